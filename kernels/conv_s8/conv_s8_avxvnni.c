/* conv_s8_avxvnni.c - gathered rows through the 6 x 16 tiles of gemm_s8_avxvnni.c; conv_s8.h has the picture. */
#include "conv_s8.h"

WOK_CONV_S8_DEFINE(wok_conv_s8_6x16__avxvnni, "wok_conv_s8_6x16__avxvnni", WOK_ISA_avxvnni, wok_conv_s8_accept,
                   wok_gemm_s8_rows__avxvnni, 6, 16);

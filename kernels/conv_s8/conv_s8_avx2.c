/* conv_s8_avx2.c - gathered rows through the 6 x 16 tiles of gemm_s8_avx2.c; conv_s8.h has the picture. */
#include "conv_s8.h"

WOK_CONV_S8_DEFINE(wok_conv_s8_6x16__avx2, "wok_conv_s8_6x16__avx2", WOK_ISA_avx2, wok_conv_s8_accept,
                   wok_gemm_s8_rows__avx2, 6, 16);

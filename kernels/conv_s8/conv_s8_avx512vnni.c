/* conv_s8_avx512vnni.c - gathered rows through the 8 x 48 tiles of gemm_s8_avx512vnni.c; conv_s8.h has the picture. */
#include "conv_s8.h"

WOK_CONV_S8_DEFINE(wok_conv_s8_8x48__avx512vnni, "wok_conv_s8_8x48__avx512vnni", WOK_ISA_avx512vnni, wok_conv_s8_accept,
                   wok_gemm_s8_rows__avx512vnni, 8, 48);

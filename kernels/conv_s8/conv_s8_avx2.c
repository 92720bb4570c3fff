/* conv_s8_avx2.c - gathered rows through the 6 x 16 tiles of gemm_s8_avx2.c; conv_s8.h has the picture.
 *
 * Bound: vpmaddwd and vpaddd, which registers alone bring to 82 GMAC/s where FMA reaches 51 (Zen 3, one thread). Gathering
 * takes 3 - 6 % of the time, widening to 16 bits 4 %, the epilogue 6 % at K = 576 and half of everything at K = 16.
 * Measured there, best, share of the 82 and times conv_f32_avx2 (bench_conv, weights not in cache):
 *     ResNet-18     3x3 64@56 82 % 1.41 x   128@28 85 % 1.43   256@14 87 % 1.47   512@7 86 % 1.5   3x3s2 78-87 % 1.4-1.5
 *                   stem 7x7s2 64 % 1.14 x   1x1s2 60-81 % 1.1-1.45 x
 *     MobileNetV2   1x1 K >= 192 76-86 % 1.3-1.5 x   K = 64, 96 49-71 % 1.0-1.3 x   K = 16 .. 32 27-47 % 0.75-0.9 x
 * ONNX Runtime 1.32 on the same core: 91 GMAC/s in 3x3 layers of u8 by s8, through vpmaddubsw, which saturates; 14 GMAC/s
 * of s8 by s8. */
#include "conv_s8.h"

WOK_CONV_S8_DEFINE(wok_conv_s8_6x16__avx2, "wok_conv_s8_6x16__avx2", WOK_ISA_avx2, wok_conv_s8_accept,
                   wok_gemm_s8_rows__avx2, 6, 16);

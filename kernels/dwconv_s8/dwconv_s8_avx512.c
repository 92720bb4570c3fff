/* dwconv_s8_avx512.c - dwconv_s8 with AVX-512: 16 channels, one register, by 2 input columns a step. The loops are
 * dwconv_s8_loops.h's. */
#include "../lanes_avx512.h"
#include "dwconv_s8_loops.h"

const wok_dwconv_s8_kernel wok_dwconv_s8_c16__avx512 = {
    .base = {"wok_dwconv_s8_c16__avx512", WOK_ISA_avx512, 0, wok_dwconv_s8_accept},
    .layout = WOK_DWCONV_S8_LAYOUT,
    .packed_bytes = wok_dwconv_s8_packed_bytes,
    .pack = wok_dwconv_s8_pack,
    .run = dw_run,
};

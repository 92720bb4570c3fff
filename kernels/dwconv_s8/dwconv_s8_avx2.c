/* dwconv_s8_avx2.c - dwconv_s8 with AVX2: 16 channels by 2 input columns a step. The loops are dwconv_s8_loops.h's. */
#include "../lanes_avx2.h"
#include "dwconv_s8_loops.h"

const wok_dwconv_s8_kernel wok_dwconv_s8_c16__avx2 = {
    .base = {"wok_dwconv_s8_c16__avx2", WOK_ISA_avx2, 0, wok_dwconv_s8_accept},
    .layout = WOK_DWCONV_S8_LAYOUT,
    .packed_bytes = wok_dwconv_s8_packed_bytes,
    .pack = wok_dwconv_s8_pack,
    .run = dw_run,
};

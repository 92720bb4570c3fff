/* dwconv_s8_avx2.c - dwconv_s8 with AVX2: 16 channels by 2 input columns a step. The loops are dwconv_s8_loops.h's.
 *
 * Registers of the 3x3 step at stride 1: 8 sums (4 outputs x 2 registers of 8 channels), 4 pairs of the two columns
 * (then 2 of the last row), a product; weights and what conversion needs are memory operands.
 *
 * Bound: instructions on the four vector ports. A step makes 288 products (2 outputs x 16 channels x 9 taps) in 6
 * widening loads, 6 unpackings, 20 multiplications, 20 additions and 24 to convert and store: 76, 19 cycles at best.
 * In a loop of its own multiplying takes 14.3 cycles on Zen 3, converting 9.6, both 26.5.
 * Measured there (3.2 GHz, checkwok --bench, dwconv in f32 in the same run): 25-31 GMAC/s at stride 1, 22 at stride 2,
 * 38 for 5x5; 1.25 to 1.45 times dwconv, and its equal at 7x7, where the ends of rows weigh most.
 * What did not help: storing outputs a step later; one half of the channels after the other. */
#include "../lanes_avx2.h"
#include "dwconv_s8_loops.h"

const wok_dwconv_s8_kernel wok_dwconv_s8_c16__avx2 = {
    .base = {"wok_dwconv_s8_c16__avx2", WOK_ISA_avx2, 0, wok_dwconv_s8_accept},
    .layout = WOK_DWCONV_S8_LAYOUT,
    .packed_bytes = wok_dwconv_s8_packed_bytes,
    .pack = wok_dwconv_s8_pack,
    .run = dw_run,
};

/* dwconv_s8.h - variants of the dwconv_s8 family (contract: wok_kernels.h) and what they share.
 *
 * Taps are multiplied in pairs (16 bits, summed in 32), so packed weights are pairs, layout "dwconv-s8-c16-v1", 64-byte
 * aligned: [ceil(channels / 16)] blocks of [pairs][16 channels][2] int16, w - w_zero, and then [16] int32, the sum of
 * the channel's weights; zeros past the last channel and where a pair has one tap only. x is multiplied as it is: an
 * accumulator starts at -x_zero * sum, and taps outside the picture read x_zero.
 *
 * The 16 channels of a block stand in the order 0-3 8-11 4-7 12-15 (lanes_avx2.h says why).
 *
 * Which taps (ky, kx) are paired, for k = 3 and 5 without dilation, strides 1 and 2 (dwconv_s8_loops.h):
 *     rows (0, 1), and (2, 3) of 5      columns kx = 0 .. k - 1 each: (0, kx) (1, kx)
 *     the last row                      neighbours: (-, 0) (0, 1) (1, 2) .. (k - 1, -)
 * and for all other windows taps 2 i and 2 i + 1 in scan order.
 *
 * All variants give the bits of the reference, but for activations of f32 outputs (math_avx2.h). Work is split as in
 * dwconv. */
#ifndef WOK_DWCONV_S8_H
#define WOK_DWCONV_S8_H

#include "../dwconv/dwconv.h"

#define WOK_DECLARE(isa, symbol) extern const wok_dwconv_s8_kernel symbol;
#define WOK_VARIANT WOK_DECLARE
#include "dwconv_s8.def"
#undef WOK_VARIANT
#undef WOK_DECLARE

#define WOK_DWCONV_S8_LAYOUT "dwconv-s8-c16-v1"

const char *wok_dwconv_s8_accept(const void *problem);
size_t wok_dwconv_s8_packed_bytes(const wok_dwconv_problem *problem);
void wok_dwconv_s8_pack(const wok_dwconv_problem *problem, const int8_t *w, const int8_t *w_zero, void *packed);

/* The windows with pairs of their own. */
static inline bool wok_dwconv_s8_special(const wok_dwconv_problem *p) {
    return p->kernel_h == p->kernel_w && (p->kernel_w == 3 || p->kernel_w == 5) && p->stride_w <= 2 &&
           p->dilation_h == 1 && p->dilation_w == 1;
}
/* Pairs of a channel. */
static inline int64_t wok_dwconv_s8_pairs(const wok_dwconv_problem *p) {
    if (wok_dwconv_s8_special(p)) return p->kernel_h / 2 * p->kernel_w + p->kernel_w + 1;
    return (p->kernel_h * p->kernel_w + 1) / 2;
}
/* Bytes of a block of 16 channels. */
static inline int64_t wok_dwconv_s8_block_bytes(const wok_dwconv_problem *p) {
    return (wok_dwconv_s8_pairs(p) + 1) * WOK_DWCONV_BLOCK * (int64_t)sizeof(int32_t);
}

/* Where channel c stands in its block. */
static inline int64_t wok_dwconv_s8_lane(int64_t c) { return (c & 3) | (c & 4) << 1 | (c & 8) >> 1; }

/* One output row of one picture. */
typedef struct wok_dwconv_s8_row {
    const wok_dwconv_problem *problem;
    const wok_dwconv_s8_args *args;
    int64_t image, oy;
} wok_dwconv_s8_row;

/* Row i of a launch, counted over the batch. */
static inline wok_dwconv_s8_row wok_dwconv_s8_row_at(const wok_dwconv_problem *p, const wok_dwconv_s8_args *a,
                                                     int64_t i) {
    return (wok_dwconv_s8_row){p, a, i / a->out_h, i % a->out_h};
}

/* Input row `ky` of the window, column 0, channel 0; NULL outside the picture. */
static inline const int8_t *wok_dwconv_s8_input(const wok_dwconv_s8_row *row, int64_t ky) {
    const wok_dwconv_s8_args *a = row->args;
    const int64_t iy = row->oy * row->problem->stride_h - a->pad_top + ky * row->problem->dilation_h;
    return iy >= 0 && iy < a->in_h ? a->x + (row->image * a->in_h + iy) * a->in_w * a->x_stride : NULL;
}

/* The launch as wok_dwconv_split() hands it on. */
typedef struct wok_dwconv_s8_job {
    const wok_dwconv_problem *problem;
    const wok_dwconv_s8_args *args;
} wok_dwconv_s8_job;

#endif

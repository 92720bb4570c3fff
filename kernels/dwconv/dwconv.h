/* dwconv.h - variants of the dwconv family (contract: wok_kernels.h) and what they share.
 *
 * Packed weights, layout "dwconv-f32-c16-v1", 64-byte aligned: [ceil(channels / 16)][kernel_h * kernel_w][16], zeros
 * past the last channel. A tap is a vector of channels, so a block of 16 channels walks its weights from front to back.
 *
 * An output is one FMA chain over ky, kx; taps in the padding contribute products with zero. The SIMD variants agree
 * bit for bit (which NaN comes out of several aside). Bound of every variant against the reference, eps = 2^-24, S =
 * sum over the window of |x * w|:
 *
 *     |y - ref| <= (kernel_h * kernel_w + 3) * eps * (S + |bias| + |residual|) + 2^-126     (before the activation)
 *
 * The clamp is exact; the other activations multiply the error by at most 1.13 and add the bound of their functions
 * (math_avx2.h), in which levels differ.
 *
 * Work is split by output rows, and by blocks of channels where there are fewer rows than threads want.
 */
#ifndef WOK_DWCONV_H
#define WOK_DWCONV_H

#include "../common.h"

#define WOK_DECLARE(isa, symbol) extern const wok_dwconv_kernel symbol;
#define WOK_VARIANT WOK_DECLARE
#include "dwconv.def"
#undef WOK_VARIANT
#undef WOK_DECLARE

#define WOK_DWCONV_BLOCK 16 /* channels */
#define WOK_DWCONV_LAYOUT "dwconv-f32-c16-v1"

const char *wok_dwconv_accept(const void *problem);
size_t wok_dwconv_packed_bytes(const wok_dwconv_problem *problem);
void wok_dwconv_pack(const wok_dwconv_problem *problem, const float *w, const float *channel_scale, void *packed);

/* One output row of one picture, channels [begin, end), begin a multiple of 16. */
typedef struct wok_dwconv_row {
    const wok_dwconv_problem *problem;
    const wok_dwconv_args *args;
    int64_t image, oy;
    int64_t begin, end;
    int64_t inner_begin, inner_end; /* ox whose windows reach over neither side of the picture */
} wok_dwconv_row;

/* Input row `ky` of the window, column 0, channel 0; NULL outside the picture. */
static inline const float *wok_dwconv_input(const wok_dwconv_row *row, int64_t ky) {
    const wok_dwconv_args *a = row->args;
    const int64_t iy = row->oy * row->problem->stride_h - a->pad_top + ky * row->problem->dilation_h;
    return iy >= 0 && iy < a->in_h ? a->x + (row->image * a->in_h + iy) * a->in_w * a->x_stride : NULL;
}

/* Index of the output pixel (oy, ox) of the row's picture. */
static inline int64_t wok_dwconv_pixel(const wok_dwconv_row *row, int64_t ox) {
    return (row->image * row->args->out_h + row->oy) * row->args->out_w + ox;
}

/* Calls fn(arg, first, last, begin, end) for all output rows first .. last - 1, counted over the batch, and channels
 * begin .. end - 1, begin a multiple of 16: by rows, and by channels where rows are fewer than threads want. */
typedef void (*wok_dwconv_part_fn)(const void *arg, int64_t first, int64_t last, int64_t begin, int64_t end);
void wok_dwconv_split(int64_t channels, int64_t rows, wok_dwconv_part_fn fn, const void *arg,
                      const wok_parallel *parallel);

typedef void (*wok_dwconv_row_fn)(const wok_dwconv_row *row);

/* Splits the work into rows; portable, shared by the variants. */
void wok_dwconv_drive(const wok_dwconv_problem *problem, const wok_dwconv_args *args, wok_dwconv_row_fn row,
                      const wok_parallel *parallel);

#endif

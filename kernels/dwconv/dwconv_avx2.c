/* dwconv_avx2.c - depthwise convolution, 4 output pixels of a row x 16 channels. dwconv.h has layout and bounds.
 *
 * Registers of the 3x3 tile: 8 accumulators (4 pixels x 2 vectors of 8 channels), 6 weights (one row of the window), 1-2
 * inputs. A row of the window loads each input column once and uses it in every output it belongs to: stride 1 loads 6
 * columns for 4 outputs, stride 2 loads 9. The 5x5 tile is the same with weights as memory operands.
 *
 *     input row ky      x0  x1  x2  x3  x4  x5            stride 1: output j takes columns j .. j + 2
 *     output            y0: x0 w0 + x1 w1 + x2 w2    y1: x1 w0 + x2 w1 + x3 w2   ...
 *
 * Channels are the inner loop, so memory is read pixel by pixel from front to back. Rows of the window above and below the
 * picture read a vector of zeros. Everything else takes one pixel at a time: columns whose window reaches over a side,
 * other window sizes, dilation, and a last block of fewer than 16 channels (masked loads and stores).
 *
 * Bound: 18 loads of input and 6 of weights for 72 FMA (3x3, stride 1); beyond L2 it is memory. Measured: bench_conv.c.
 */
#include "dwconv.h"
#include "../math_avx2.h"

#define BLOCK WOK_DWCONV_BLOCK

static const float zeros[BLOCK] __attribute__((aligned(64)));

WOK_INLINE __m256 load(const float *p, __m256i mask, const bool masked) {
    return masked ? _mm256_maskload_ps(p, mask) : _mm256_loadu_ps(p);
}

/* bias, residual, clamp and store for 8 channels from c on; other activations follow in activate(). */
WOK_INLINE void finish(const wok_dwconv_row *row, int64_t pixel, int64_t c, __m256 x, __m256i mask, const bool masked) {
    const wok_epilogue_f32 *e = &row->args->epilogue;
    if (e->bias) x = _mm256_add_ps(x, load(e->bias + c, mask, masked));
    if (e->residual) x = _mm256_add_ps(x, load(e->residual + pixel * e->residual_stride + c, mask, masked));
    if (e->act == WOK_ACT_CLAMP) x = wok_clamp_avx2(x, _mm256_set1_ps(e->lo), _mm256_set1_ps(e->hi));
    float *y = row->args->y + pixel * row->args->y_stride + c;
    if (masked)
        _mm256_maskstore_ps(y, mask, x);
    else
        _mm256_storeu_ps(y, x);
}

static __attribute__((noinline)) void activate(const wok_dwconv_row *row) {
    const wok_act act = row->args->epilogue.act;
    const __m256 none = _mm256_setzero_ps();
    for (int64_t ox = 0; ox < row->args->out_w; ox++) {
        float *y = row->args->y + wok_dwconv_pixel(row, ox) * row->args->y_stride;
        for (int64_t c = row->begin; c < row->end; c += 8) {
            const __m256i mask = wok_mask_avx2(row->end - c);
            _mm256_maskstore_ps(y + c, mask, wok_act_avx2(_mm256_maskload_ps(y + c, mask), act, none, none));
        }
    }
}

/* ---- any window, one pixel ---------------------------------------------------------------------------------------- */

/* Channels [c, c + 16), or up to row->end when masked. */
WOK_INLINE void pixel_block(const wok_dwconv_row *row, int64_t ox, int64_t c, const bool masked) {
    const wok_dwconv_problem *p = row->problem;
    const wok_dwconv_args *a = row->args;
    const __m256i mask0 = wok_mask_avx2(row->end - c), mask1 = wok_mask_avx2(row->end - c - 8);
    const float *w = (const float *)a->packed + c * p->kernel_h * p->kernel_w;
    const int64_t left = ox * p->stride_w - a->pad_left;
    __m256 c0 = _mm256_setzero_ps(), c1 = c0;
    for (int64_t ky = 0; ky < p->kernel_h; ky++) {
        const float *line = wok_dwconv_input(row, ky);
        for (int64_t kx = 0; kx < p->kernel_w; kx++, w += BLOCK) {
            const int64_t ix = left + kx * p->dilation_w;
            const float *x = line && ix >= 0 && ix < a->in_w ? line + ix * a->x_stride + c : zeros;
            c0 = _mm256_fmadd_ps(load(x, mask0, masked), _mm256_load_ps(w), c0);
            c1 = _mm256_fmadd_ps(load(x + 8, mask1, masked), _mm256_load_ps(w + 8), c1);
        }
    }
    const int64_t pixel = wok_dwconv_pixel(row, ox);
    finish(row, pixel, c, c0, mask0, masked);
    finish(row, pixel, c + 8, c1, mask1, masked);
}

/* Output pixels [ox, end), channels from c on. */
static void pixels(const wok_dwconv_row *row, int64_t ox, int64_t end, int64_t begin) {
    for (; ox < end; ox++) {
        int64_t c = begin;
        for (; c + BLOCK <= row->end; c += BLOCK) pixel_block(row, ox, c, false);
        if (c < row->end) pixel_block(row, ox, c, true);
    }
}

/* ---- 3x3 and 5x5, four pixels ------------------------------------------------------------------------------------- */

#define EACH_PIXEL(X) X(0) X(1) X(2) X(3)
#define EACH_COLUMN(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10)

#define DECLARE(j) __m256 c##j##0 = _mm256_setzero_ps(), c##j##1 = c##j##0;
#define TAP(j)                                                                                                         \
    if (I - j * stride >= 0 && I - j * stride < size) {                                                                \
        const float *tap = w + (I - j * stride) * BLOCK;                                                               \
        c##j##0 = _mm256_fmadd_ps(x0, _mm256_load_ps(tap), c##j##0);                                                   \
        c##j##1 = _mm256_fmadd_ps(x1, _mm256_load_ps(tap + 8), c##j##1);                                               \
    }
#define COLUMN(i)                                                                                                      \
    if (i < 3 * stride + size) {                                                                                       \
        enum { I = i };                                                                                                \
        const __m256 x0 = _mm256_loadu_ps(x + I * step), x1 = _mm256_loadu_ps(x + I * step + 8);                       \
        EACH_PIXEL(TAP)                                                                                                \
    }
#define FINISH(j)                                                                                                      \
    finish(row, pixel + j, c, c##j##0, all, false);                                                                    \
    finish(row, pixel + j, c + 8, c##j##1, all, false);

/* Output pixels ox .. ox + 3, whole blocks of channels; returns the first channel left over. */
WOK_INLINE int64_t tile(const wok_dwconv_row *row, const float *const lines[], int64_t ox, const int size,
                        const int stride) {
    const wok_dwconv_args *a = row->args;
    const int64_t pixel = wok_dwconv_pixel(row, ox), left = (ox * stride - a->pad_left) * a->x_stride;
    const __m256i all = _mm256_set1_epi32(-1);
    int64_t c = row->begin;
    for (; c + BLOCK <= row->end; c += BLOCK) {
        const float *w = (const float *)a->packed + c * size * size;
        EACH_PIXEL(DECLARE)
        for (int ky = 0; ky < size; ky++, w += size * BLOCK) {
            const float *x = lines[ky] ? lines[ky] + left + c : zeros;
            const int64_t step = lines[ky] ? a->x_stride : 0;
            EACH_COLUMN(COLUMN)
        }
        EACH_PIXEL(FINISH)
    }
    return c;
}

WOK_INLINE void row_of(const wok_dwconv_row *row, const int size, const int stride) {
    const float *lines[5];
    for (int ky = 0; ky < size; ky++) lines[ky] = wok_dwconv_input(row, ky);
    pixels(row, 0, row->inner_begin, row->begin);
    int64_t ox = row->inner_begin;
    for (; ox + 4 <= row->inner_end; ox += 4) pixels(row, ox, ox + 4, tile(row, lines, ox, size, stride));
    pixels(row, ox, row->args->out_w, row->begin);
}

static __attribute__((noinline)) void row_3x3(const wok_dwconv_row *row) { row_of(row, 3, 1); }
static __attribute__((noinline)) void row_3x3_stride_2(const wok_dwconv_row *row) { row_of(row, 3, 2); }
static __attribute__((noinline)) void row_5x5(const wok_dwconv_row *row) { row_of(row, 5, 1); }
static __attribute__((noinline)) void row_5x5_stride_2(const wok_dwconv_row *row) { row_of(row, 5, 2); }

static void run_row(const wok_dwconv_row *row) {
    const wok_dwconv_problem *p = row->problem;
    const bool square = p->kernel_h == p->kernel_w && p->dilation_h == 1 && p->dilation_w == 1;
    if (square && p->kernel_w == 3 && p->stride_w == 1)
        row_3x3(row);
    else if (square && p->kernel_w == 3 && p->stride_w == 2)
        row_3x3_stride_2(row);
    else if (square && p->kernel_w == 5 && p->stride_w == 1)
        row_5x5(row);
    else if (square && p->kernel_w == 5 && p->stride_w == 2)
        row_5x5_stride_2(row);
    else
        pixels(row, 0, row->args->out_w, row->begin);
    if (row->args->epilogue.act != WOK_ACT_NONE && row->args->epilogue.act != WOK_ACT_CLAMP) activate(row);
}

static void run(const wok_dwconv_problem *problem, const wok_dwconv_args *args, const wok_parallel *parallel) {
    wok_dwconv_drive(problem, args, run_row, parallel);
}

const wok_dwconv_kernel wok_dwconv_4x16__avx2 = {
    .base = {"wok_dwconv_4x16__avx2", WOK_ISA_avx2, 0, wok_dwconv_accept},
    .layout = WOK_DWCONV_LAYOUT,
    .packed_bytes = wok_dwconv_packed_bytes,
    .pack = wok_dwconv_pack,
    .run = run,
};

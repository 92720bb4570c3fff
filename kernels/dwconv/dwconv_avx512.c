/* dwconv_avx512.c - depthwise convolution, 8 output pixels of a row x 16 channels. dwconv.h has layout and bounds.
 *
 * Registers of the 3x3 tile: 8 accumulators, 3 weights (one row of the window), 1-2 inputs. A row of the window loads
 * each input column once and uses it in every output it belongs to: stride 1 loads 10 columns for 8 outputs, stride 2
 * loads 17.
 *
 *     input row ky      x0  x1  x2  x3  ...               stride 1: output j takes columns j .. j + 2
 *     output            y0: x0 w0 + x1 w1 + x2 w2    y1: x1 w0 + x2 w1 + x3 w2   ...
 *
 * A task takes rows one after the other; in a row, blocks of 16 channels, the last one under a mask; in a block,
 * tiles of pixels. What lies outside the picture is read from a vector of zeros: rows by a pointer with step 0,
 * columns in a second instance of the tile that also serves the last, narrower tile. Other windows and dilation take
 * one pixel at a time.
 *
 * Bound: a tile of 3x3, stride 1, is 30 loads of input and 9 of weights for 72 FMA; beyond L2 it is memory.
 */
#include "dwconv.h"
#include "../math_avx512.h"

#define BLOCK WOK_DWCONV_BLOCK
#define PIXELS 8

static const float zeros[BLOCK] __attribute__((aligned(64)));

/* Where a row's results go, and the epilogue, for the block of channels that starts at some c. */
typedef struct output {
    float *y;                     /* pixel 0 of the row, channel c */
    const float *bias, *residual; /* channel c; pixel 0, channel c; or NULL */
    int64_t y_stride, residual_stride;
    __m512 lo, hi;  /* infinite without a clamp, which then changes nothing */
    __mmask16 mask; /* channels of the block */
} output;

WOK_INLINE output output_at(const wok_dwconv_row *row, int64_t c) {
    const wok_dwconv_args *a = row->args;
    const wok_epilogue_f32 *e = &a->epilogue;
    const int64_t pixel = wok_dwconv_pixel(row, 0);
    const bool clamped = e->act == WOK_ACT_CLAMP;
    return (output){
        .y = a->y + pixel * a->y_stride + c,
        .bias = e->bias ? e->bias + c : NULL,
        .residual = e->residual ? e->residual + pixel * e->residual_stride + c : NULL,
        .y_stride = a->y_stride,
        .residual_stride = e->residual_stride,
        .lo = _mm512_set1_ps(clamped ? e->lo : -INFINITY),
        .hi = _mm512_set1_ps(clamped ? e->hi : INFINITY),
        .mask = wok_mask_avx512(row->end - c),
    };
}

/* Output pixel ox; activations other than the clamp follow in activate(). */
WOK_INLINE void finish(const output *o, int64_t ox, __m512 x) {
    if (o->bias) x = _mm512_add_ps(x, _mm512_maskz_loadu_ps(o->mask, o->bias));
    if (o->residual) x = _mm512_add_ps(x, _mm512_maskz_loadu_ps(o->mask, o->residual + ox * o->residual_stride));
    _mm512_mask_storeu_ps(o->y + ox * o->y_stride, o->mask, wok_clamp_avx512(x, o->lo, o->hi));
}

static __attribute__((noinline)) void activate(const wok_dwconv_row *row) {
    const wok_act act = row->args->epilogue.act;
    const __m512 none = _mm512_setzero_ps();
    for (int64_t ox = 0; ox < row->args->out_w; ox++) {
        float *y = row->args->y + wok_dwconv_pixel(row, ox) * row->args->y_stride;
        for (int64_t c = row->begin; c < row->end; c += BLOCK) {
            const __mmask16 mask = wok_mask_avx512(row->end - c);
            const __m512 x = wok_act_avx512(_mm512_maskz_loadu_ps(mask, y + c), act, none, none);
            _mm512_mask_storeu_ps(y + c, mask, x);
        }
    }
}

/* ---- any window, one pixel --------------------------------------------------------------------------------------- */

static __attribute__((noinline)) void row_any(const wok_dwconv_row *row) {
    const wok_dwconv_problem *p = row->problem;
    const wok_dwconv_args *a = row->args;
    for (int64_t c = row->begin; c < row->end; c += BLOCK) {
        const output o = output_at(row, c);
        for (int64_t ox = 0; ox < a->out_w; ox++) {
            const float *w = (const float *)a->packed + c * p->kernel_h * p->kernel_w;
            const int64_t left = ox * p->stride_w - a->pad_left;
            __m512 sum = _mm512_setzero_ps();
            for (int64_t ky = 0; ky < p->kernel_h; ky++) {
                const float *line = wok_dwconv_input(row, ky);
                for (int64_t kx = 0; kx < p->kernel_w; kx++, w += BLOCK) {
                    const int64_t ix = left + kx * p->dilation_w;
                    const float *x = line && ix >= 0 && ix < a->in_w ? line + ix * a->x_stride + c : zeros;
                    sum = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(o.mask, x), _mm512_load_ps(w), sum);
                }
            }
            finish(&o, ox, sum);
        }
    }
}

/* ---- 3x3 and 5x5, eight pixels ----------------------------------------------------------------------------------- */

#define EACH_PIXEL(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#define EACH_TAP(X) X(0) X(1) X(2) X(3) X(4)
#define EACH_COLUMN(X)                                                                                                 \
    X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15) X(16) X(17) X(18)

#define DECLARE(j) __m512 c##j = _mm512_setzero_ps();
#define WEIGHT(k) const __m512 w##k = k < size ? _mm512_load_ps(w + k * BLOCK) : _mm512_setzero_ps();
/* Column I meets output j at weight I - j * stride. */
#define PICK(j)                                                                                                        \
    (I - j * stride == 0 ? w0 : I - j * stride == 1 ? w1 : I - j * stride == 2 ? w2 : I - j * stride == 3 ? w3 : w4)
#define MULTIPLY(j)                                                                                                    \
    if (I - j * stride >= 0 && I - j * stride < size) c##j = _mm512_fmadd_ps(column, PICK(j), c##j);
#define COLUMN(i)                                                                                                      \
    if (i < (PIXELS - 1) * stride + size) {                                                                            \
        enum { I = i };                                                                                                \
        const bool outside = bordered && (left + I < 0 || left + I >= in->width);                                      \
        const __m512 column = _mm512_maskz_loadu_ps(o->mask, outside ? zeros : x + I * step);                          \
        EACH_PIXEL(MULTIPLY)                                                                                           \
    }
#define ADD_BIAS(j) c##j = _mm512_add_ps(c##j, bias);
#define FINISH(j)                                                                                                      \
    if (j < count) {                                                                                                   \
        if (residual) c##j = _mm512_add_ps(c##j, _mm512_maskz_loadu_ps(o->mask, residual + j * o->residual_stride));   \
        _mm512_mask_storeu_ps(y + j * o->y_stride, o->mask, wok_clamp_avx512(c##j, o->lo, o->hi));                     \
    }

/* The rows of a window, at column 0 of the picture and some channel; a row outside it is zeros, step 0. */
typedef struct window {
    const float *rows[5];
    int64_t steps[5];
    int64_t width;
} window;

/* Outputs ox .. ox + count - 1 (at most 8) of a block of channels. bordered: some windows reach over a side of the
 * picture, or count is below 8. left: input column of the first tap. */
WOK_INLINE void tile(const output *o, const window *in, const float *w, int64_t ox, int64_t left, int64_t count,
                     const int size, const int stride, const bool bordered) {
    EACH_PIXEL(DECLARE)
    for (int ky = 0; ky < size; ky++, w += size * BLOCK) {
        const int64_t step = in->steps[ky];
        const float *x = in->rows[ky] + left * step;
        EACH_TAP(WEIGHT)
        EACH_COLUMN(COLUMN)
    }
    if (o->bias) {
        const __m512 bias = _mm512_maskz_loadu_ps(o->mask, o->bias);
        EACH_PIXEL(ADD_BIAS)
    }
    const float *residual = o->residual ? o->residual + ox * o->residual_stride : NULL;
    float *y = o->y + ox * o->y_stride;
    EACH_PIXEL(FINISH)
}

WOK_INLINE void row_of(const wok_dwconv_row *row, const int size, const int stride) {
    const wok_dwconv_args *a = row->args;
    for (int64_t c = row->begin; c < row->end; c += BLOCK) {
        const output o = output_at(row, c);
        const float *w = (const float *)a->packed + c * size * size;
        window in = {.width = a->in_w};
        for (int ky = 0; ky < size; ky++) {
            const float *line = wok_dwconv_input(row, ky);
            in.rows[ky] = line ? line + c : zeros;
            in.steps[ky] = line ? a->x_stride : 0;
        }
        for (int64_t ox = 0; ox < a->out_w; ox += PIXELS) {
            const int64_t left = ox * stride - a->pad_left, count = wok_min64(PIXELS, a->out_w - ox);
            if (ox >= row->inner_begin && ox + PIXELS <= row->inner_end)
                tile(&o, &in, w, ox, left, PIXELS, size, stride, false);
            else
                tile(&o, &in, w, ox, left, count, size, stride, true);
        }
    }
}

static __attribute__((noinline)) void row_3x3(const wok_dwconv_row *row) {
    row_of(row, 3, 1);
}
static __attribute__((noinline)) void row_3x3_stride_2(const wok_dwconv_row *row) {
    row_of(row, 3, 2);
}
static __attribute__((noinline)) void row_5x5(const wok_dwconv_row *row) {
    row_of(row, 5, 1);
}
static __attribute__((noinline)) void row_5x5_stride_2(const wok_dwconv_row *row) {
    row_of(row, 5, 2);
}

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
        row_any(row);
    if (row->args->epilogue.act != WOK_ACT_NONE && row->args->epilogue.act != WOK_ACT_CLAMP) activate(row);
}

static void run(const wok_dwconv_problem *problem, const wok_dwconv_args *args, const wok_parallel *parallel) {
    wok_dwconv_drive(problem, args, run_row, parallel);
}

const wok_dwconv_kernel wok_dwconv_8x16__avx512 = {
    .base = {"wok_dwconv_8x16__avx512", WOK_ISA_avx512, 0, wok_dwconv_accept},
    .layout = WOK_DWCONV_LAYOUT,
    .packed_bytes = wok_dwconv_packed_bytes,
    .pack = wok_dwconv_pack,
    .run = run,
};

/* dwconv_avx2.c - depthwise convolution, 4 output pixels of a row x 16 channels. dwconv.h has layout and bounds.
 *
 * Registers of the 3x3 tile: 8 accumulators (4 pixels x 2 vectors of 8 channels), 6 weights (one row of the window),
 * 1-2 inputs. A row of the window loads each input column once and uses it in every output it belongs to: stride 1
 * loads 6 columns for 4 outputs, stride 2 loads 9. The 5x5 tile is the same with weights as memory operands.
 *
 *     input row ky      x0  x1  x2  x3  x4  x5            stride 1: output j takes columns j .. j + 2
 *     output            y0: x0 w0 + x1 w1 + x2 w2    y1: x1 w0 + x2 w1 + x3 w2   ...
 *
 * A task takes rows one after the other; in a row, blocks of 16 channels; in a block, tiles of pixels. What lies
 * outside the picture is read from a vector of zeros: rows by a pointer with step 0, columns in a second instance of
 * the tile that also serves the last, narrower tile. Other windows, dilation, and a last block of fewer than 16
 * channels (masked loads and stores) take one pixel at a time.
 *
 * Bound: 54 loads, 72 FMA and 8 stores a tile (3x3, stride 1); beyond L2 the stores: a pixel is read and written once
 * for 9 FMA. Measured on Zen 3 (52 GMAC/s a core; bench_conv): 19-28 GMAC/s at stride 1, 14-16 at stride 2; with
 * stores to one line 32@112 runs at 85 % of the FMA peak instead of 55. ONNX Runtime 1.32 on the same core: 9-15, 29
 * for 144@56.
 */
#include "dwconv.h"
#include "../math_avx2.h"

#define BLOCK WOK_DWCONV_BLOCK

static const float zeros[BLOCK] __attribute__((aligned(64)));

/* Where a row's results go, and the epilogue, for channels from some c on. */
typedef struct output {
    float *y;                     /* pixel 0 of the row, channel c */
    const float *bias, *residual; /* channel c; pixel 0, channel c; or NULL */
    int64_t y_stride, residual_stride;
    __m256 lo, hi; /* infinite without a clamp, which then changes nothing */
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
        .lo = _mm256_set1_ps(clamped ? e->lo : -INFINITY),
        .hi = _mm256_set1_ps(clamped ? e->hi : INFINITY),
    };
}

WOK_INLINE __m256 load(const float *p, __m256i mask, const bool masked) {
    return masked ? _mm256_maskload_ps(p, mask) : _mm256_loadu_ps(p);
}

/* Channels offset .. offset + 7 of output pixel ox; activations other than the clamp follow in activate(). */
WOK_INLINE void finish(const output *o, int64_t ox, int offset, __m256 x, __m256i mask, const bool masked) {
    if (o->bias) x = _mm256_add_ps(x, load(o->bias + offset, mask, masked));
    if (o->residual) x = _mm256_add_ps(x, load(o->residual + ox * o->residual_stride + offset, mask, masked));
    x = wok_clamp_avx2(x, o->lo, o->hi);
    float *y = o->y + ox * o->y_stride + offset;
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

/* ---- any window, one pixel --------------------------------------------------------------------------------------- */

/* Channels [c, c + 16) of a row, up to row->end when masked. */
WOK_INLINE void pixels_of(const wok_dwconv_row *row, const output *o, int64_t c, const bool masked) {
    const wok_dwconv_problem *p = row->problem;
    const wok_dwconv_args *a = row->args;
    const __m256i mask0 = wok_mask_avx2(row->end - c), mask1 = wok_mask_avx2(row->end - c - 8);
    for (int64_t ox = 0; ox < a->out_w; ox++) {
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
        finish(o, ox, 0, c0, mask0, masked);
        finish(o, ox, 8, c1, mask1, masked);
    }
}

/* A row, channels from c on. */
static __attribute__((noinline)) void pixels(const wok_dwconv_row *row, int64_t c) {
    for (; c < row->end; c += BLOCK) {
        const output o = output_at(row, c);
        if (c + BLOCK <= row->end)
            pixels_of(row, &o, c, false);
        else
            pixels_of(row, &o, c, true);
    }
}

/* ---- 3x3 and 5x5, four pixels ------------------------------------------------------------------------------------ */

#define PIXELS 4
#define EACH_PIXEL(X) X(0) X(1) X(2) X(3)
#define EACH_TAP(X) X(0) X(1) X(2) X(3) X(4)
#define EACH_COLUMN(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10)

#define DECLARE(j) __m256 c##j##0 = _mm256_setzero_ps(), c##j##1 = c##j##0;
#define WEIGHT(k)                                                                                                      \
    const __m256 w##k##0 = k < size ? _mm256_load_ps(w + k * BLOCK) : _mm256_setzero_ps();                             \
    const __m256 w##k##1 = k < size ? _mm256_load_ps(w + k * BLOCK + 8) : _mm256_setzero_ps();
/* Column I meets output j at weight I - j * stride. */
#define PICK(j, half)                                                                                                  \
    (I - j * stride == 0   ? w0##half                                                                                  \
     : I - j * stride == 1 ? w1##half                                                                                  \
     : I - j * stride == 2 ? w2##half                                                                                  \
     : I - j * stride == 3 ? w3##half                                                                                  \
                           : w4##half)
#define MULTIPLY(j)                                                                                                    \
    if (I - j * stride >= 0 && I - j * stride < size) {                                                                \
        c##j##0 = _mm256_fmadd_ps(x0, PICK(j, 0), c##j##0);                                                            \
        c##j##1 = _mm256_fmadd_ps(x1, PICK(j, 1), c##j##1);                                                            \
    }
#define COLUMN(i)                                                                                                      \
    if (i < 3 * stride + size) {                                                                                       \
        enum { I = i };                                                                                                \
        const bool outside = bordered && (left + I < 0 || left + I >= in->width);                                      \
        const float *p = outside ? zeros : x + I * step;                                                               \
        const __m256 x0 = _mm256_loadu_ps(p), x1 = _mm256_loadu_ps(p + 8);                                             \
        EACH_PIXEL(MULTIPLY)                                                                                           \
    }
#define ADD_BIAS(j)                                                                                                    \
    c##j##0 = _mm256_add_ps(c##j##0, bias0);                                                                           \
    c##j##1 = _mm256_add_ps(c##j##1, bias1);
#define FINISH(j)                                                                                                      \
    if (j < count) {                                                                                                   \
        if (residual) {                                                                                                \
            c##j##0 = _mm256_add_ps(c##j##0, _mm256_loadu_ps(residual + j * o->residual_stride));                      \
            c##j##1 = _mm256_add_ps(c##j##1, _mm256_loadu_ps(residual + j * o->residual_stride + 8));                  \
        }                                                                                                              \
        _mm256_storeu_ps(y + j * o->y_stride, wok_clamp_avx2(c##j##0, o->lo, o->hi));                                  \
        _mm256_storeu_ps(y + j * o->y_stride + 8, wok_clamp_avx2(c##j##1, o->lo, o->hi));                              \
    }

/* The rows of a window, at column 0 of the picture and some channel; a row outside it is zeros, step 0. */
typedef struct window {
    const float *rows[5];
    int64_t steps[5];
    int64_t width;
} window;

/* Outputs ox .. ox + count - 1 (at most 4) of 16 channels. bordered: some windows reach over a side of the picture, or
 * count is below 4. left: input column of the first tap. */
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
        const __m256 bias0 = _mm256_loadu_ps(o->bias), bias1 = _mm256_loadu_ps(o->bias + 8);
        EACH_PIXEL(ADD_BIAS)
    }
    const float *residual = o->residual ? o->residual + ox * o->residual_stride : NULL;
    float *y = o->y + ox * o->y_stride;
    EACH_PIXEL(FINISH)
}

/* A row, whole blocks of 16 channels; the rest is left to pixels(). */
WOK_INLINE void row_of(const wok_dwconv_row *row, const int size, const int stride) {
    const wok_dwconv_args *a = row->args;
    int64_t c = row->begin;
    for (; c + BLOCK <= row->end; c += BLOCK) {
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
    if (c < row->end) pixels(row, c);
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
        pixels(row, row->begin);
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

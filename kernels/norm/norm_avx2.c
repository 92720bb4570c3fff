/* norm_avx2.c - LayerNorm, RMSNorm and softmax with AVX2 and FMA.
 *
 * A row is walked in steps of 32 columns: column j is vector j / 8 % 4 of the step and has its own accumulator, so it
 * is added in lane j % 32; the tail is the same instructions under a mask. Then a fixed tree: lanes 16 apart, then 8,
 * 4, 2, 1. A row of 768 stays in the first-level cache over all passes.
 * Bound: LAYER loads and stores (x, residual, v three times, gamma, beta), SOFTMAX the arithmetic of exp.
 * Measured (bench_attention, one Zen 3 core): residual + LAYER 0.31 ns an element at 128x768, SOFTMAX 0.43. */
#include "norm.h"

#include "../math_avx2.h"

enum { LANES = 8, VECTORS = 4, STEP = LANES * VECTORS };

/* A row, the scalars of the pass that runs, and one accumulator (two for LAYER) a vector of the step. */
typedef struct row {
    const float *x, *residual, *bias, *gamma, *beta;
    const float *values; /* v: kept in `kept`, or x itself where nothing is added */
    float *kept, *y;
    int64_t cols;
    __m256 origin, centre, scale;
    __m256 acc[VECTORS], square[VECTORS];
} row;

/* One vector of columns: column j, `n` columns from there to the end, vector i of its step. */
typedef void (*step_fn)(row *r, int64_t j, int64_t n, int i);

WOK_INLINE __m256 load(const float *p, int64_t n) {
    return n >= LANES ? _mm256_loadu_ps(p) : _mm256_maskload_ps(p, wok_mask_avx2(n));
}

WOK_INLINE void store(float *p, int64_t n, __m256 x) {
    if (n >= LANES)
        _mm256_storeu_ps(p, x);
    else
        _mm256_maskstore_ps(p, wok_mask_avx2(n), x);
}

/* x in the lanes that are columns, `other` in those that are not. */
WOK_INLINE __m256 keep(__m256 x, int64_t n, __m256 other) {
    return n >= LANES ? x : _mm256_blendv_ps(other, x, _mm256_castsi256_ps(wok_mask_avx2(n)));
}

WOK_INLINE void walk(row *r, step_fn step) {
    int64_t j = 0;
    for (; j + STEP <= r->cols; j += STEP)
#pragma GCC unroll 4
        for (int i = 0; i < VECTORS; i++) step(r, j + i * LANES, LANES, i);
#pragma GCC unroll 4
    for (int i = 0; i < VECTORS; i++)
        if (j + i * LANES < r->cols) step(r, j + i * LANES, r->cols - j - i * LANES, i);
}

WOK_INLINE void clear(row *r, float x) {
#pragma GCC unroll 4
    for (int i = 0; i < VECTORS; i++) r->acc[i] = _mm256_set1_ps(x), r->square[i] = _mm256_setzero_ps();
}

WOK_INLINE float sum_of(const __m256 *acc) {
    return wok_sum_avx2(_mm256_add_ps(_mm256_add_ps(acc[0], acc[2]), _mm256_add_ps(acc[1], acc[3])));
}

/* ---- LAYER and RMS ----------------------------------------------------------------------------------------------- */

WOK_INLINE void value_step(row *r, int64_t j, int64_t n, int i) {
    __m256 v = load(r->x + j, n);
    if (r->residual) v = _mm256_add_ps(v, load(r->residual + j, n));
    if (r->bias) v = _mm256_add_ps(v, load(r->bias + j, n));
    if (r->kept) store(r->kept + j, n, v);
    r->acc[i] = _mm256_add_ps(r->acc[i], v);
}

WOK_INLINE void deviation_step(row *r, int64_t j, int64_t n, int i) {
    __m256 d = keep(_mm256_sub_ps(load(r->values + j, n), r->origin), n, _mm256_setzero_ps());
    r->acc[i] = _mm256_add_ps(r->acc[i], d);
    r->square[i] = _mm256_fmadd_ps(d, d, r->square[i]);
}

WOK_INLINE void affine_step(row *r, int64_t j, int64_t n, int i) {
    (void)i;
    __m256 t = _mm256_mul_ps(_mm256_sub_ps(_mm256_sub_ps(load(r->values + j, n), r->origin), r->centre), r->scale);
    if (r->gamma && r->beta)
        t = _mm256_fmadd_ps(t, load(r->gamma + j, n), load(r->beta + j, n));
    else if (r->gamma)
        t = _mm256_mul_ps(t, load(r->gamma + j, n));
    else if (r->beta)
        t = _mm256_add_ps(t, load(r->beta + j, n));
    store(r->y + j, n, t);
}

WOK_INLINE void layer_row(const wok_norm_args *args, int64_t index, bool centred) {
    row r = {.x = args->x + index * args->x_stride, .bias = args->bias, .gamma = args->gamma, .beta = args->beta};
    r.y = args->y + index * args->y_stride;
    r.cols = args->cols;
    if (args->residual) r.residual = args->residual + index * args->residual_stride;
    if (args->sum)
        r.kept = args->sum + index * args->sum_stride;
    else if (r.residual || r.bias)
        r.kept = r.y;
    r.values = r.kept ? r.kept : r.x;

    clear(&r, 0);
    walk(&r, value_step);
    r.origin = _mm256_set1_ps(centred ? sum_of(r.acc) / (float)r.cols : 0);
    clear(&r, 0);
    walk(&r, deviation_step);
    double n = (double)r.cols, centre = centred ? sum_of(r.acc) / n : 0;
    double variance = sum_of(r.square) / n - centre * centre;
    r.centre = _mm256_set1_ps((float)centre);
    r.scale = _mm256_set1_ps((float)(1 / sqrt((variance < 0 ? 0 : variance) + (double)args->eps)));
    walk(&r, affine_step);
}

static void norm_layer_row(const wok_norm_args *args, int64_t index) { layer_row(args, index, true); }
static void norm_rms_row(const wok_norm_args *args, int64_t index) { layer_row(args, index, false); }

/* ---- SOFTMAX and LOG_SOFTMAX ------------------------------------------------------------------------------------- */

WOK_INLINE void max_step(row *r, int64_t j, int64_t n, int i) {
    /* max(x, m): an unordered compare keeps m */
    r->acc[i] = _mm256_max_ps(keep(load(r->x + j, n), n, _mm256_set1_ps(-INFINITY)), r->acc[i]);
}

WOK_INLINE __m256 weight(row *r, int64_t j, int64_t n, int i) {
    __m256 p = wok_exp_low_avx2(_mm256_sub_ps(load(r->x + j, n), r->origin));
    r->acc[i] = _mm256_add_ps(r->acc[i], keep(p, n, _mm256_setzero_ps()));
    return p;
}

WOK_INLINE void weight_step(row *r, int64_t j, int64_t n, int i) { store(r->y + j, n, weight(r, j, n, i)); }
WOK_INLINE void weight_sum_step(row *r, int64_t j, int64_t n, int i) { (void)weight(r, j, n, i); }

WOK_INLINE void scale_step(row *r, int64_t j, int64_t n, int i) {
    (void)i;
    store(r->y + j, n, _mm256_mul_ps(load(r->y + j, n), r->scale));
}

WOK_INLINE void log_step(row *r, int64_t j, int64_t n, int i) {
    (void)i;
    store(r->y + j, n, _mm256_sub_ps(_mm256_sub_ps(load(r->x + j, n), r->origin), r->scale));
}

WOK_INLINE void softmax_row(const wok_norm_args *args, int64_t index, bool logarithm) {
    row r = {.x = args->x + index * args->x_stride, .y = args->y + index * args->y_stride, .cols = args->cols};
    clear(&r, -INFINITY);
    walk(&r, max_step);
    r.origin = _mm256_set1_ps(
        wok_max_avx2(_mm256_max_ps(_mm256_max_ps(r.acc[0], r.acc[1]), _mm256_max_ps(r.acc[2], r.acc[3]))));
    clear(&r, 0);
    if (logarithm) {
        walk(&r, weight_sum_step);
        r.scale = _mm256_set1_ps((float)log((double)sum_of(r.acc)));
        walk(&r, log_step);
    } else {
        walk(&r, weight_step);
        r.scale = _mm256_set1_ps(1.0f / sum_of(r.acc));
        walk(&r, scale_step);
    }
}

static void norm_softmax_row(const wok_norm_args *args, int64_t index) { softmax_row(args, index, false); }
static void norm_log_softmax_row(const wok_norm_args *args, int64_t index) { softmax_row(args, index, true); }

static void norm_run(const wok_norm_problem *problem, const wok_norm_args *args, const wok_parallel *parallel) {
    static void (*const rows[])(const wok_norm_args *, int64_t) = {
        [WOK_NORM_LAYER] = norm_layer_row,
        [WOK_NORM_RMS] = norm_rms_row,
        [WOK_NORM_SOFTMAX] = norm_softmax_row,
        [WOK_NORM_LOG_SOFTMAX] = norm_log_softmax_row,
    };
    wok_norm_rows(args, parallel, rows[problem->op]);
}

const wok_norm_kernel wok_norm__avx2 = {
    .base = {"wok_norm__avx2", WOK_ISA_avx2, 0, wok_norm_accept},
    .run = norm_run,
};

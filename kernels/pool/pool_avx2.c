/* pool_avx2.c - max and average over a window, 32 channels at a time. pool.h has the rules.
 *
 * Registers: 4 accumulators of 8 channels. The window is walked once for every 32 channels, then once for every 8,
 * and a last time with masked loads. Bound: a load, a maximum and the NaN rule (compare, blend) for 8 values; beyond
 * L2 memory.
 */
#include "pool.h"
#include "../math_avx2.h"

/* The NaN rule of pool.h: maxps gives m where the comparison is unordered, the blend takes an x that is NaN. */
WOK_INLINE __m256 max_step(__m256 m, __m256 x) {
    return _mm256_blendv_ps(_mm256_max_ps(x, m), x, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}

WOK_INLINE __m256 step(__m256 acc, __m256 x, const bool max) {
    return max ? max_step(acc, x) : _mm256_add_ps(acc, x);
}

WOK_INLINE __m256 finish(__m256 acc, const wok_pool_window *w, const bool max) {
    return max ? acc : _mm256_div_ps(acc, _mm256_set1_ps(w->count));
}

WOK_INLINE void channels_32(const wok_pool_window *w, int64_t c, const bool max) {
    __m256 a0 = max ? _mm256_set1_ps(-INFINITY) : _mm256_setzero_ps(), a1 = a0, a2 = a0, a3 = a0;
    for (int64_t ky = 0; ky < w->rows; ky++) {
        const float *x = w->x + ky * w->row_stride + c;
        for (int64_t kx = 0; kx < w->columns; kx++, x += w->column_stride) {
            a0 = step(a0, _mm256_loadu_ps(x), max);
            a1 = step(a1, _mm256_loadu_ps(x + 8), max);
            a2 = step(a2, _mm256_loadu_ps(x + 16), max);
            a3 = step(a3, _mm256_loadu_ps(x + 24), max);
        }
    }
    float *y = w->y + c;
    _mm256_storeu_ps(y, finish(a0, w, max));
    _mm256_storeu_ps(y + 8, finish(a1, w, max));
    _mm256_storeu_ps(y + 16, finish(a2, w, max));
    _mm256_storeu_ps(y + 24, finish(a3, w, max));
}

WOK_INLINE void channels_8(const wok_pool_window *w, int64_t c, const bool max) {
    const __m256i mask = wok_mask_avx2(w->end - c);
    __m256 a = max ? _mm256_set1_ps(-INFINITY) : _mm256_setzero_ps();
    for (int64_t ky = 0; ky < w->rows; ky++) {
        const float *x = w->x + ky * w->row_stride + c;
        for (int64_t kx = 0; kx < w->columns; kx++, x += w->column_stride)
            a = step(a, _mm256_maskload_ps(x, mask), max);
    }
    _mm256_maskstore_ps(w->y + c, mask, finish(a, w, max));
}

WOK_INLINE void window(const wok_pool_window *w, const bool max) {
    int64_t c = w->begin;
    for (; c + 32 <= w->end; c += 32) channels_32(w, c, max);
    for (; c < w->end; c += 8) channels_8(w, c, max);
}

static void max_window(const wok_pool_window *w) {
    window(w, true);
}
static void average_window(const wok_pool_window *w) {
    window(w, false);
}

static void run(const wok_pool_problem *problem, const wok_pool_args *args, const wok_parallel *parallel) {
    wok_pool_drive(problem, args, max_window, average_window, parallel);
}

const wok_pool_kernel wok_pool_c32__avx2 = {
    .base = {"wok_pool_c32__avx2", WOK_ISA_avx2, 0, wok_pool_accept},
    .run = run,
};

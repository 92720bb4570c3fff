/* pool_avx512.c - max and average over a window, 64 channels at a time. pool.h has the rules.
 *
 * Registers: 4 accumulators of 16 channels. The window is walked once for every 64 channels, then once for every 16,
 * the last time under a mask. Bound: a load, a maximum and the NaN rule (compare, blend) for 16 values; beyond L2
 * memory.
 */
#include "pool.h"
#include "../math_avx512.h"

/* The NaN rule of pool.h: maxps gives m where the comparison is unordered, the blend takes an x that is NaN. */
WOK_INLINE __m512 max_step(__m512 m, __m512 x) {
    return _mm512_mask_mov_ps(_mm512_max_ps(x, m), _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), x);
}

WOK_INLINE __m512 step(__m512 acc, __m512 x, const bool max) {
    return max ? max_step(acc, x) : _mm512_add_ps(acc, x);
}

WOK_INLINE __m512 finish(__m512 acc, const wok_pool_window *w, const bool max) {
    return max ? acc : _mm512_div_ps(acc, _mm512_set1_ps(w->count));
}

WOK_INLINE void channels_64(const wok_pool_window *w, int64_t c, const bool max) {
    __m512 a0 = max ? _mm512_set1_ps(-INFINITY) : _mm512_setzero_ps(), a1 = a0, a2 = a0, a3 = a0;
    for (int64_t ky = 0; ky < w->rows; ky++) {
        const float *x = w->x + ky * w->row_stride + c;
        for (int64_t kx = 0; kx < w->columns; kx++, x += w->column_stride) {
            a0 = step(a0, _mm512_loadu_ps(x), max);
            a1 = step(a1, _mm512_loadu_ps(x + 16), max);
            a2 = step(a2, _mm512_loadu_ps(x + 32), max);
            a3 = step(a3, _mm512_loadu_ps(x + 48), max);
        }
    }
    float *y = w->y + c;
    _mm512_storeu_ps(y, finish(a0, w, max));
    _mm512_storeu_ps(y + 16, finish(a1, w, max));
    _mm512_storeu_ps(y + 32, finish(a2, w, max));
    _mm512_storeu_ps(y + 48, finish(a3, w, max));
}

WOK_INLINE void channels_16(const wok_pool_window *w, int64_t c, const bool max) {
    const __mmask16 mask = wok_mask_avx512(w->end - c);
    __m512 a = max ? _mm512_set1_ps(-INFINITY) : _mm512_setzero_ps();
    for (int64_t ky = 0; ky < w->rows; ky++) {
        const float *x = w->x + ky * w->row_stride + c;
        for (int64_t kx = 0; kx < w->columns; kx++, x += w->column_stride)
            a = step(a, _mm512_maskz_loadu_ps(mask, x), max);
    }
    _mm512_mask_storeu_ps(w->y + c, mask, finish(a, w, max));
}

WOK_INLINE void window(const wok_pool_window *w, const bool max) {
    int64_t c = w->begin;
    for (; c + 64 <= w->end; c += 64) channels_64(w, c, max);
    for (; c < w->end; c += 16) channels_16(w, c, max);
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

const wok_pool_kernel wok_pool_c64__avx512 = {
    .base = {"wok_pool_c64__avx512", WOK_ISA_avx512, 0, wok_pool_accept},
    .run = run,
};

/* eltwise.h - variants of the eltwise family (contract: wok_kernels.h) and what they share.
 *
 * The bits of an element depend on its value, the operation and the variant only: body and tail of a vector loop are
 * the same instructions under a mask, so position, n and threads do not show. (Sign and payload of a NaN aside: the
 * compiler may swap the factors of a product.)
 *
 * Against the reference (double inside, rounded once), with u = 2^-24:
 *   CLAMP SQRT RECIPROCAL NEG ABS ADD SUB MUL DIV MIN MAX, conversions   equal bits
 *   HARD_SIGMOID   4 u (1 + |p0 a| + |p1|)      HARD_SWISH   4 u |a|
 *   EXP            4 u |y|, results below 2^-126 may be 0
 *   ERF TANH       4 u |y|                      SIGMOID      6 u |y|, results below 2^-126 may be 0
 *   SILU           8 u |y|, results below 2^-119 may be 0
 *   GELU GELU_TANH 4 u max(1, |a|)
 * Denormal operands are ordinary numbers as long as the caller's floating-point mode says so. */
#ifndef WOK_ELTWISE_H
#define WOK_ELTWISE_H

#include "../common.h"

#define WOK_DECLARE(isa, symbol) extern const wok_eltwise_kernel symbol;
#define WOK_VARIANT WOK_DECLARE
#include "eltwise.def"
#undef WOK_VARIANT
#undef WOK_DECLARE

/* Elements of a task: some 10 us of the dearer functions, so that a join costs little beside it. */
enum { WOK_ELTWISE_GRAIN = 1 << 14 };

/* Elements [begin, end) of a launch; begin is a multiple of 64. */
typedef void (*wok_eltwise_range_fn)(const wok_eltwise_args *args, int64_t begin, int64_t end);

typedef struct wok_eltwise_job {
    const wok_eltwise_args *args;
    int64_t tasks;
    wok_eltwise_range_fn range;
} wok_eltwise_job;

static inline const char *wok_eltwise_accept(const void *problem) {
    const wok_eltwise_problem *p = problem;
    return (unsigned)p->op <= WOK_ELT_F32_TO_BF16 ? NULL : "unknown operation";
}

static inline void wok_eltwise_task(void *arg, int64_t task, int worker) {
    const wok_eltwise_job *job = arg;
    (void)worker;
    int64_t begin, end;
    wok_parallel_range(job->args->n, 64, task, job->tasks, &begin, &end);
    if (begin < end) job->range(job->args, begin, end);
}

/* A launch split over the threads; each variant brings the function for a range. */
static inline void wok_eltwise_ranges(const wok_eltwise_args *args, const wok_parallel *parallel,
                                      wok_eltwise_range_fn range) {
    int64_t tasks = wok_min64(wok_ceil_div(args->n, WOK_ELTWISE_GRAIN), 4 * (int64_t)wok_parallel_threads(parallel));
    wok_eltwise_job job = {args, tasks, range};
    wok_parallel_for(parallel, wok_eltwise_task, &job, tasks);
}

static inline uint32_t wok_f32_bits(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static inline float wok_f32_from_bits(uint32_t u) {
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* Half precision as the F16C instructions do it: nearest even, overflow to infinity, NaN made quiet, payload kept. */
static inline float wok_f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, mantissa = h & 0x3ff;
    if (exponent == 31) return wok_f32_from_bits(sign | 0x7f800000 | mantissa << 13 | (mantissa ? 0x400000 : 0));
    if (exponent) return wok_f32_from_bits(sign | (exponent + 112) << 23 | mantissa << 13);
    float magnitude = (float)mantissa * 0x1p-24f;
    return sign ? -magnitude : magnitude;
}

static inline uint16_t wok_f32_to_f16(float x) {
    uint32_t u = wok_f32_bits(x), sign = u >> 16 & 0x8000, magnitude = u & 0x7fffffff;
    if (magnitude > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
    if (magnitude >= 0x477ff000) return (uint16_t)(sign | 0x7c00); /* 65520 and more round to infinity */
    if (magnitude >= 0x38800000) {                                 /* 2^-14: normal in half precision */
        uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
        return (uint16_t)(sign | (rounded - (112u << 23)) >> 13);
    }
    uint32_t shift = 126 - (magnitude >> 23); /* to units of 2^-24 */
    if (shift > 24) return (uint16_t)sign;
    uint32_t mantissa = (magnitude & 0x7fffff) | 0x800000, half = 1u << (shift - 1);
    return (uint16_t)(sign | (mantissa + half - 1 + (mantissa >> shift & 1)) >> shift);
}

/* bf16: the upper half of an f32, nearest even; NaN made quiet. */
static inline float wok_bf16_to_f32(uint16_t h) { return wok_f32_from_bits((uint32_t)h << 16); }

static inline uint16_t wok_f32_to_bf16(float x) {
    uint32_t u = wok_f32_bits(x);
    if ((u & 0x7fffffff) > 0x7f800000) return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

#endif

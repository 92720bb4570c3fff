/* norm.h - variants of the norm family (contract: wok_kernels.h) and what they share.
 *
 * LAYER sums twice over the row in cache. The first pass gives m0, close to the mean; the second sums d = v - m0 and
 * d^2 ("corrected two-pass", Chan, Golub, LeVeque, "Algorithms for computing the sample variance", 1983):
 *     c = mean d,  var = mean d^2 - c^2,  y = ((v - m0) - c) / sqrt(var + eps) * gamma + beta
 * so that neither a mean of 1000 nor the rounding of m0 shows in y. v = (x + residual) + bias, each sum rounded to f32.
 * RMS adds beta too where one is given. SOFTMAX and LOG_SOFTMAX read x only.
 *
 * The bits of a row depend on the row and its length only: column j is added in lane j % 32, lanes in a fixed
 * tree, so the vector variants agree bit for bit. `sum` overlaps nothing else.
 *
 * Against the reference, u = 2^-24, g = 8 + sqrt(cols), s = 1 / sqrt(var + eps), d = v - mean (RMS: d = v):
 *   LAYER, RMS   g u s |gamma| (|d| + mean |d|) + 4 u |beta|
 *   SOFTMAX      (g + max x - x) u y, results below 2^-126 may be 0
 *   LOG_SOFTMAX  (g + 2 |y| + max x - x) u
 * for rows whose d^2 sum below FLT_MAX; a row with NaN or infinities is what the formula gives. */
#ifndef WOK_NORM_H
#define WOK_NORM_H

#include "../common.h"

#define WOK_DECLARE(isa, symbol) extern const wok_norm_kernel symbol;
#define WOK_VARIANT WOK_DECLARE
#include "norm.def"
#undef WOK_VARIANT
#undef WOK_DECLARE

/* Elements of a task: a few us, well above the cost of handing it to a thread. */
enum { WOK_NORM_GRAIN = 1 << 13 };

typedef struct wok_norm_job {
    const wok_norm_args *args;
    int64_t tasks;
    void (*row)(const wok_norm_args *args, int64_t row);
} wok_norm_job;

static inline const char *wok_norm_accept(const void *problem) {
    const wok_norm_problem *p = problem;
    if ((unsigned)p->op > WOK_NORM_LOG_SOFTMAX) return "unknown operation";
    return p->cols >= 0 ? NULL : "negative width";
}

static inline void wok_norm_task(void *arg, int64_t task, int worker) {
    const wok_norm_job *job = arg;
    (void)worker;
    int64_t begin, end;
    wok_parallel_range(job->args->rows, 1, task, job->tasks, &begin, &end);
    for (int64_t row = begin; row < end; row++) job->row(job->args, row);
}

/* Rows split over the threads; each variant brings the function for one row. */
static inline void wok_norm_rows(const wok_norm_args *args, const wok_parallel *parallel,
                                 void (*row)(const wok_norm_args *args, int64_t row)) {
    if (args->cols <= 0) return;
    int64_t rows_per_task = wok_ceil_div(WOK_NORM_GRAIN, args->cols);
    int64_t tasks = wok_min64(wok_ceil_div(args->rows, rows_per_task), 4 * (int64_t)wok_parallel_threads(parallel));
    wok_norm_job job = {args, tasks, row};
    wok_parallel_for(parallel, wok_norm_task, &job, tasks);
}

#endif

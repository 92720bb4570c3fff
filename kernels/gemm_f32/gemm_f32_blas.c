/* gemm_f32_blas.c - OpenBLAS's sgemm as a variant: the baseline of the benchmark, and the product on processors for which
 * wok has no kernel of its own (nowhere else does it accept; tests and benchmarks call it directly).
 *
 * Layout "f32-kn-v1": B dense and row-major. The epilogue is a second pass over C, with libm's functions.
 * Flagged WOK_KERNEL_NONDETERMINISTIC: the order of its sums changes with M and with OpenBLAS's threads. `parallel` is not
 * used; OpenBLAS has threads of its own (OPENBLAS_NUM_THREADS). The bound of gemm_f32.h holds: a sum of K products in any
 * order is within it. */
#include "gemm_f32.h"
#include "../epilogue_ref.h"

#include <cblas.h>
#include <limits.h>

static size_t packed_bytes(const wok_gemm_f32_problem *p) {
    size_t bytes;
    if (__builtin_mul_overflow((size_t)p->n, sizeof(float), &bytes)) return SIZE_MAX;
    return __builtin_mul_overflow(bytes, (size_t)p->k, &bytes) ? SIZE_MAX : bytes;
}

/* By the processor, not by WOK_ISA: WOK_ISA=ref on a processor with AVX2 means the reference, whose bits are fixed. */
static const char *accept(const void *problem) {
    const wok_gemm_f32_problem *p = problem;
    const char *reason = wok_gemm_f32_accept(problem);
    if (reason) return reason;
    if (wok_cpu_isa() & (1u << WOK_ISA_avx2 | 1u << WOK_ISA_neon)) return "wok has its own kernel for this processor";
    return p->n > INT_MAX || p->k > INT_MAX ? "a size is beyond OpenBLAS's int" : NULL;
}

struct pack_job {
    const wok_gemm_f32_problem *problem;
    const float *b;
    int64_t stride_k, stride_n;
    float *packed;
};

static void pack_row(void *arg, int64_t k, int worker) {
    (void)worker;
    const struct pack_job *job = arg;
    const float *b = job->b + k * job->stride_k;
    float *out = job->packed + k * job->problem->n;
    for (int64_t n = 0; n < job->problem->n; n++) out[n] = b[n * job->stride_n];
}

static void pack(const wok_gemm_f32_problem *problem, const float *b, int64_t stride_k, int64_t stride_n, void *packed,
                 const wok_parallel *parallel) {
    struct pack_job job = {problem, b, stride_k, stride_n, packed};
    wok_parallel_for(parallel, pack_row, &job, problem->k);
}

/* C already holds the residual where there is one (beta = 1): sgemm adds to it. */
static void finish(const wok_gemm_f32_args *g) {
    const wok_epilogue_f32 *e = &g->epilogue;
    if (!e->bias && e->act == WOK_ACT_NONE) return;
    for (int64_t m = 0; m < g->m; m++)
        for (int64_t n = 0; n < g->n; n++) {
            float *c = g->c + m * g->ldc + n;
            *c = wok_epilogue_ref((double)*c, e->bias ? e->bias + n : NULL, NULL, e);
        }
}

static void multiply(const wok_gemm_f32_args *g, int64_t rows, const float *a, float *c, float beta) {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)rows, (int)g->n, (int)g->k, 1.0f, a, (int)g->lda, g->packed,
                (int)g->n, beta, c, (int)g->ldc);
}

/* sgemm counts rows and strides in int, so rows go in portions; a stride beyond int takes them one by one. */
static void run(const wok_gemm_f32_args *g, const wok_parallel *parallel) {
    (void)parallel;
    const wok_epilogue_f32 *e = &g->epilogue;
    if (g->m <= 0) return;
    for (int64_t m = 0; e->residual && e->residual != g->c && m < g->m; m++)
        memcpy(g->c + m * g->ldc, e->residual + m * e->residual_stride, (size_t)g->n * sizeof(float));
    if (g->k == 0) {
        for (int64_t m = 0; !e->residual && m < g->m; m++) memset(g->c + m * g->ldc, 0, (size_t)g->n * sizeof(float));
    } else {
        wok_gemm_f32_args one = *g;
        bool wide = g->lda > INT_MAX || g->ldc > INT_MAX;
        int64_t portion = wide ? 1 : INT_MAX;
        if (wide) one.lda = g->k, one.ldc = g->n;
        for (int64_t m = 0; m < g->m; m += portion)
            multiply(&one, wok_min64(portion, g->m - m), g->a + m * g->lda, g->c + m * g->ldc, e->residual ? 1.0f : 0.0f);
    }
    finish(g);
}

const wok_gemm_f32_kernel wok_gemm_f32__blas = {
    .base = {"wok_gemm_f32__blas", WOK_ISA_ref, WOK_KERNEL_NONDETERMINISTIC, accept},
    .layout = "f32-kn-v1",
    .mr = 4,
    .nr = 16,
    .packed_bytes = packed_bytes,
    .pack = pack,
    .run = run,
};

/* gemm_f32_ref.c - the oracle: sums in double, rounds once. Also the packing that all variants share. */
#include "gemm_f32.h"
#include "../epilogue_ref.h"

enum { NR = WOK_GEMM_F32_PANEL, ROW_BLOCK = 32 };

size_t wok_gemm_f32_packed_bytes(const wok_gemm_f32_problem *p) {
    size_t panels = (size_t)p->n / NR + ((size_t)p->n % NR != 0), bytes;
    if (__builtin_mul_overflow(panels, NR * sizeof(float), &bytes)) return SIZE_MAX;
    if (__builtin_mul_overflow(bytes, (size_t)p->k, &bytes)) return SIZE_MAX;
    return bytes;
}

const char *wok_gemm_f32_accept(const void *problem) {
    const wok_gemm_f32_problem *p = problem;
    if (p->n < 1) return "n is below 1";
    if (p->k < 0) return "k is negative";
    return wok_gemm_f32_packed_bytes(p) > PTRDIFF_MAX ? "the packed weights would not fit in memory" : NULL;
}

struct pack_job {
    const wok_gemm_f32_problem *problem;
    const float *b;
    int64_t stride_k, stride_n;
    float *packed;
};

static void pack_panel(void *arg, int64_t panel, int worker) {
    (void)worker;
    const struct pack_job *job = arg;
    int64_t k = job->problem->k, n0 = panel * NR, width = wok_min64(NR, job->problem->n - n0);
    const float *b = job->b + n0 * job->stride_n;
    float *out = job->packed + panel * k * NR;
    for (int64_t i = 0; i < k; i++, b += job->stride_k, out += NR) {
        for (int64_t j = 0; j < width; j++) out[j] = b[j * job->stride_n];
        for (int64_t j = width; j < NR; j++) out[j] = 0.0f;
    }
}

void wok_gemm_f32_pack(const wok_gemm_f32_problem *problem, const float *b, int64_t stride_k, int64_t stride_n,
                       void *packed, const wok_parallel *parallel) {
    struct pack_job job = {problem, b, stride_k, stride_n, packed};
    wok_parallel_for(parallel, pack_panel, &job, wok_ceil_div(problem->n, NR));
}

static void ref_row(const wok_gemm_f32_args *g, int64_t m, int64_t panel) {
    const float *a = g->a + m * g->lda, *b = (const float *)g->packed + panel * g->k * NR;
    const wok_epilogue_f32 *e = &g->epilogue;
    double acc[NR] = {0};
    for (int64_t k = 0; k < g->k; k++, b += NR)
        for (int j = 0; j < NR; j++) acc[j] += (double)a[k] * (double)b[j];
    int64_t n0 = panel * NR, width = wok_min64(NR, g->n - n0);
    for (int64_t j = 0; j < width; j++)
        g->c[m * g->ldc + n0 + j] = wok_epilogue_ref(acc[j], e->bias ? e->bias + n0 + j : NULL,
                                                     e->residual ? e->residual + m * e->residual_stride + n0 + j : NULL, e);
}

static void ref_task(void *arg, int64_t task, int worker) {
    (void)worker;
    const wok_gemm_f32_args *g = arg;
    int64_t panels = wok_ceil_div(g->n, NR), first = task / panels * ROW_BLOCK, last = wok_min64(g->m, first + ROW_BLOCK);
    for (int64_t m = first; m < last; m++) ref_row(g, m, task % panels);
}

static void ref_run(const wok_gemm_f32_args *args, const wok_parallel *parallel) {
    wok_gemm_f32_args g = *args;
    wok_parallel_for(parallel, ref_task, &g, wok_ceil_div(g.m, ROW_BLOCK) * wok_ceil_div(g.n, NR));
}

const wok_gemm_f32_kernel wok_gemm_f32__ref = {
    .base = {"wok_gemm_f32__ref", WOK_ISA_ref, WOK_KERNEL_REFERENCE, wok_gemm_f32_accept},
    .layout = WOK_GEMM_F32_LAYOUT,
    .mr = 1,
    .nr = NR,
    .packed_bytes = wok_gemm_f32_packed_bytes,
    .pack = wok_gemm_f32_pack,
    .run = ref_run,
};

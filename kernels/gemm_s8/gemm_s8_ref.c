/* gemm_s8_ref.c - the oracle: the sums and the epilogue of the contract, one element after the other. Also the packing that
 * all variants share. */
#include "gemm_s8.h"
#include "../epilogue_s8_ref.h"

enum { NR = WOK_GEMM_S8_PANEL, ROW_BLOCK = 32 };

size_t wok_gemm_s8_packed_bytes(const wok_gemm_s8_problem *p) {
    size_t panels = (size_t)p->n / NR + ((size_t)p->n % NR != 0), lines = ((size_t)p->k + 3) / 4, bytes;
    if (__builtin_mul_overflow(panels, (lines + 2) * WOK_GEMM_S8_LINE, &bytes)) return SIZE_MAX;
    if (__builtin_add_overflow(bytes, WOK_GEMM_S8_SLACK + WOK_GEMM_S8_LINE, &bytes)) return SIZE_MAX;
    return bytes;
}

const char *wok_gemm_s8_accept(const void *problem) {
    const wok_gemm_s8_problem *p = problem;
    if (p->n < 1) return "n is below 1";
    if (p->k < 0) return "k is negative";
    if (p->k > WOK_S8_MAX_K) return "k is so large that sums might not fit in 32 bits";
    return wok_gemm_s8_packed_bytes(p) > PTRDIFF_MAX ? "the packed weights would not fit in memory" : NULL;
}

/* ---- packing -------------------------------------------------------------------------------------------------------- */

struct pack_job {
    const wok_gemm_s8_problem *problem;
    const wok_gemm_s8_source *source;
    wok_gemm_s8_packed to;
};

/* One column: its byte of every line, and what it adds up to. */
static int32_t pack_column(const struct pack_job *job, const int8_t *b, uint8_t *out) {
    const wok_gemm_s8_source *s = job->source;
    int64_t k = 0, step = WOK_GEMM_S8_LINE;
    int32_t sum = 0;
    for (int64_t begin = 0; begin < job->problem->k; begin += s->segment, b += s->stride_segment) {
        int64_t count = wok_min64(s->segment, job->problem->k - begin);
        for (int64_t i = 0; i < count; i++, k++) {
            int8_t value = b[i * s->stride_k];
            out[k / 4 * step + k % 4] = (uint8_t)(value + 128);
            sum += value;
        }
    }
    return sum;
}

static void pack_panel(void *arg, int64_t panel, int worker) {
    (void)worker;
    const struct pack_job *job = arg;
    int64_t k = job->problem->k;
    uint8_t *out = (uint8_t *)(uintptr_t)job->to.panels + panel * job->to.panel_stride;
    int32_t *colsum = (int32_t *)(uintptr_t)job->to.colsum, *offset = (int32_t *)(uintptr_t)job->to.offset;
    memset(out, 128, (size_t)job->to.panel_stride);
    for (int64_t n = panel * NR, j = 0; j < NR; n++, j++) {
        bool inside = n < job->problem->n;
        const int8_t *b_zero = job->source->b_zero;
        int32_t zero = b_zero ? b_zero[inside ? n : 0] : 0;
        int32_t sum = inside ? pack_column(job, job->source->b + n * job->source->stride_n, out + 4 * j) : 0;
        colsum[n] = inside ? sum - zero * (int32_t)k : 0;
        offset[n] = 128 + zero;
    }
}

void wok_gemm_s8_pack_source(const wok_gemm_s8_problem *problem, const wok_gemm_s8_source *source, void *packed,
                             const wok_parallel *parallel) {
    int64_t panels = wok_ceil_div(problem->n, NR), bytes = panels * wok_ceil_div(problem->k, 4) * WOK_GEMM_S8_LINE;
    int32_t *flag = (int32_t *)(void *)((char *)packed + wok_gemm_s8_packed_bytes(problem) - WOK_GEMM_S8_LINE);
    memset((char *)packed + bytes, 128, WOK_GEMM_S8_SLACK);
    memset(flag, 0, WOK_GEMM_S8_LINE);
    flag[0] = 1;
    for (int64_t n = 1; source->b_zero && n < problem->n; n++)
        if (source->b_zero[n] != source->b_zero[0]) flag[0] = 0;
    struct pack_job job = {problem, source, wok_gemm_s8_unpack(problem->n, problem->k, packed)};
    wok_parallel_for(parallel, pack_panel, &job, panels);
}

void wok_gemm_s8_pack(const wok_gemm_s8_problem *problem, const int8_t *b, int64_t stride_k, int64_t stride_n,
                      const int8_t *b_zero, void *packed, const wok_parallel *parallel) {
    wok_gemm_s8_source source = {b, b_zero, wok_max64(1, problem->k), 0, stride_k, stride_n};
    wok_gemm_s8_pack_source(problem, &source, packed, parallel);
}

/* ---- the product ---------------------------------------------------------------------------------------------------- */

static void ref_row(const wok_gemm_s8_args *g, int64_t m, int64_t panel) {
    const wok_gemm_s8_packed p = wok_gemm_s8_unpack(g->n, g->k, g->packed);
    const int8_t *a = g->a + m * g->lda;
    const uint8_t *b = p.panels + panel * p.panel_stride;
    int32_t a_zero = g->row_zero ? g->row_zero[m] : g->a_zero;
    int64_t n0 = panel * NR, width = wok_min64(NR, g->n - n0);
    int32_t acc[NR] = {0};
    for (int64_t k = 0; k < g->k; k++)
        for (int64_t j = 0; j < width; j++)
            acc[j] += (a[k] - a_zero) * (b[k / 4 * WOK_GEMM_S8_LINE + 4 * j + k % 4] - p.offset[n0 + j]);
    for (int64_t j = 0; j < width; j++) wok_epilogue_s8_ref(acc[j], m, n0 + j, &g->epilogue, g->c, m * g->ldc + n0 + j);
}

static void ref_task(void *arg, int64_t task, int worker) {
    (void)worker;
    const wok_gemm_s8_args *g = arg;
    int64_t panels = wok_ceil_div(g->n, NR), first = task / panels * ROW_BLOCK,
            last = wok_min64(g->m, first + ROW_BLOCK);
    for (int64_t m = first; m < last; m++) ref_row(g, m, task % panels);
}

static void ref_run(const wok_gemm_s8_args *args, const wok_parallel *parallel) {
    wok_gemm_s8_args g = *args;
    wok_parallel_for(parallel, ref_task, &g, wok_ceil_div(g.m, ROW_BLOCK) * wok_ceil_div(g.n, NR));
}

const wok_gemm_s8_kernel wok_gemm_s8__ref = {
    .base = {"wok_gemm_s8__ref", WOK_ISA_ref, WOK_KERNEL_REFERENCE, wok_gemm_s8_accept},
    .layout = WOK_GEMM_S8_LAYOUT,
    .mr = 1,
    .nr = NR,
    .packed_bytes = wok_gemm_s8_packed_bytes,
    .pack = wok_gemm_s8_pack,
    .run = ref_run,
};

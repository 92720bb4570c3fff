/* bench_attention.c - what BERT-base does besides its GEMMs: attention, softmax, residual + LayerNorm, GELU.
 *
 * bench_attention [--threads N] [--seconds S] [LENGTH]...      (128 and 512 by default)
 * The best variant of each family that WOK_ISA allows, one sequence, 12 heads of 64, hidden 768, intermediate 3072; the
 * operands stand as the runtime lays them out (q, k and v are columns of one matrix, the mask is a bias of the keys).
 * All contestants take turns with the FMA peak loop in one process. Columns: one call, best and median; the calls of
 * one inference; and the share of what the FMA units could do, which only attention is measured by. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADS = 12, HEAD_DIM = 64, HIDDEN = HEADS * HEAD_DIM, INTERMEDIATE = 4 * HIDDEN, LAYERS = 12 };
enum { ATTENTION = 1, SOFTMAX, LAYER_NORM, GELU, ENTRIES }; /* entry 0: the peak loop */

typedef struct layer {
    const wok_parallel *parallel;
    const wok_attn_kernel *attn;
    wok_attn_problem attn_problem;
    wok_attn_sequence sequence;
    wok_attn_args attn_args;
    const wok_norm_kernel *softmax, *norm;
    wok_norm_args softmax_args, norm_args;
    const wok_eltwise_kernel *gelu;
    wok_eltwise_args gelu_args;
} layer;

static void run_attention(void *arg) {
    layer *l = arg;
    l->attn->run(&l->attn_problem, &l->attn_args, l->parallel);
}

static void run_softmax(void *arg) {
    layer *l = arg;
    l->softmax->run(&(wok_norm_problem){WOK_NORM_SOFTMAX, 0}, &l->softmax_args, l->parallel);
}

static void run_norm(void *arg) {
    layer *l = arg;
    l->norm->run(&(wok_norm_problem){WOK_NORM_LAYER, HIDDEN}, &l->norm_args, l->parallel);
}

static void run_gelu(void *arg) {
    layer *l = arg;
    l->gelu->run(&(wok_eltwise_problem){WOK_ELT_GELU}, &l->gelu_args, l->parallel);
}

static void prepare_attention(layer *l, wok_isa_set isa, int64_t length, int threads) {
    float *qkv = bench_floats((size_t)length * 3 * HIDDEN, 1);
    l->attn_problem = (wok_attn_problem){HEADS, HEAD_DIM, HEAD_DIM};
    l->attn = wok_attn_select(isa, &l->attn_problem, NULL, NULL);
    l->sequence = (wok_attn_sequence){0, length, 0, length};
    l->attn_args = (wok_attn_args){.sequences = &l->sequence, .sequence_count = 1, .q = qkv, .k = qkv + HIDDEN};
    wok_attn_args *a = &l->attn_args;
    a->v = qkv + 2 * HIDDEN;
    a->y = bench_floats((size_t)length * HIDDEN, 1);
    a->q_row_stride = a->k_row_stride = a->v_row_stride = 3 * HIDDEN;
    a->y_row_stride = HIDDEN;
    a->q_head_stride = a->k_head_stride = a->v_head_stride = a->y_head_stride = HEAD_DIM;
    a->scale = 0.125f;
    a->bias = bench_floats((size_t)length, 1);
    a->bias_key_stride = 1;
    a->workspace = bench_floats(l->attn->workspace_bytes(&l->attn_problem, length, length, threads) / sizeof(float), 1);
}

static void prepare(layer *l, wok_isa_set isa, int64_t length) {
    size_t hidden = (size_t)length * HIDDEN, wide = (size_t)length * INTERMEDIATE,
           scores = (size_t)(length * length) * HEADS;
    float *wide_x = bench_floats(wide, 1), *score = bench_floats(scores, 1), *gamma = bench_floats(HIDDEN, 1);
    prepare_attention(l, isa, length, l->parallel ? l->parallel->threads : 1);
    l->softmax = wok_norm_select(isa, &(wok_norm_problem){WOK_NORM_SOFTMAX, 0}, NULL, NULL);
    l->softmax_args = (wok_norm_args){.rows = length * HEADS, .cols = length, .x = score, .x_stride = length};
    l->softmax_args.y = bench_floats(scores, 1);
    l->softmax_args.y_stride = length;
    l->norm = wok_norm_select(isa, &(wok_norm_problem){WOK_NORM_LAYER, HIDDEN}, NULL, NULL);
    l->norm_args = (wok_norm_args){.rows = length, .cols = HIDDEN, .x = bench_floats(hidden, 1), .x_stride = HIDDEN};
    l->norm_args.residual = bench_floats(hidden, 1);
    l->norm_args.residual_stride = l->norm_args.y_stride = HIDDEN;
    l->norm_args.gamma = l->norm_args.beta = gamma;
    l->norm_args.eps = 1e-12f;
    l->norm_args.y = bench_floats(hidden, 1);
    l->gelu = wok_eltwise_select(isa, &(wok_eltwise_problem){WOK_ELT_GELU}, NULL, NULL);
    l->gelu_args = (wok_eltwise_args){.n = (int64_t)wide, .a = wide_x, .a_step = 1, .y = bench_floats(wide, 1)};
}

static void release(layer *l) {
    const void *owned[] = {l->attn_args.q,     l->attn_args.y,    l->attn_args.bias, l->attn_args.workspace,
                           l->softmax_args.x,  l->softmax_args.y, l->norm_args.x,    l->norm_args.residual,
                           l->norm_args.gamma, l->norm_args.y,    l->gelu_args.a,    l->gelu_args.y};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) free((void *)(uintptr_t)owned[i]);
}

static void report(const bench_entry *entries, const layer *l, wok_isa_set isa, int64_t length, int threads) {
    static const int calls[ENTRIES] = {0, LAYERS, LAYERS, 2 * LAYERS + 1, LAYERS};
    const wok_kernel *const kernels[ENTRIES] = {NULL, &l->attn->base, &l->softmax->base, &l->norm->base,
                                                &l->gelu->base};
    double peak = threads * bench_fma_macs(isa) / entries[0].best, macs = 2.0 * (double)(length * length) * HIDDEN;
    printf("\nlength %d, %d thread%s, FMA peak %.1f GMAC/s (one thread's, best, times threads)\n", (int)length, threads,
           threads > 1 ? "s" : "", peak * 1e-9);
    printf("%-22s %10s %10s %14s %18s  %s\n", "", "best us", "median us", "an inference", "GMAC/s", "kernel");
    for (int i = 1; i < ENTRIES; i++) {
        char rate[32] = "-";
        double macs_s = macs / entries[i].best;
        if (i == ATTENTION && peak > 0)
            snprintf(rate, sizeof rate, "%.1f (%.0f %%)", macs_s * 1e-9, 100 * macs_s / peak);
        else if (i == ATTENTION)
            snprintf(rate, sizeof rate, "%.1f", macs_s * 1e-9);
        printf("%-22s %10.1f %10.1f %3d x = %5.2f ms %18s  %s\n", entries[i].name, entries[i].best * 1e6,
               entries[i].median * 1e6, calls[i], calls[i] * entries[i].best * 1e3, rate, kernels[i]->name);
    }
}

static void bench_length(int64_t length, wok_isa_set isa, const wok_parallel *parallel, double seconds) {
    layer l = {.parallel = parallel};
    prepare(&l, isa, length);
    bench_entry entries[ENTRIES] = {{.name = "FMA peak", .fn = bench_fma, .arg = &isa},
                                    {.name = "attention", .fn = run_attention, .arg = &l},
                                    {.name = "softmax of all scores", .fn = run_softmax, .arg = &l},
                                    {.name = "residual + LayerNorm", .fn = run_norm, .arg = &l},
                                    {.name = "GELU", .fn = run_gelu, .arg = &l}};
    bench_contest(entries, ENTRIES, seconds, parallel != NULL);
    report(entries, &l, isa, length, parallel ? parallel->threads : 1);
    release(&l);
}

int main(int argc, char **argv) {
    double seconds = 2;
    int threads = 1, lengths = 0;
    int64_t length[16];
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--threads") && i + 1 < argc)
            threads = atoi(argv[++i]);
        else if (!strcmp(argv[i], "--seconds") && i + 1 < argc)
            seconds = atof(argv[++i]);
        else if (atoi(argv[i]) > 0 && atoi(argv[i]) <= 1 << 14 && lengths < 16)
            length[lengths++] = atoi(argv[i]);
        else
            return fprintf(stderr, "usage: bench_attention [--threads N] [--seconds S] [LENGTH]...\n"), 2;
    }
    if (threads < 1 || threads > 64 || !(seconds > 0))
        return fprintf(stderr, "bench_attention: threads must be in 1..64 and seconds positive\n"), 2;
    if (lengths == 0) {
        length[lengths++] = 128;
        length[lengths++] = 512;
    }
    wok_isa_set isa = bench_isa();
    wok_parallel *pool = threads > 1 ? bench_pool_create(threads) : NULL;
    for (int i = 0; i < lengths; i++) bench_length(length[i], isa, pool, seconds);
    if (pool) bench_pool_free(pool);
    return 0;
}

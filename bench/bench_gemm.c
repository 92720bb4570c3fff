/* bench_gemm.c - gemm_f32 on the shapes of BERT, small M and convolutions, against the FMA peak and OpenBLAS.
 *
 * bench_gemm [--threads N] [--seconds S] [--gelu 1] [MxNxK]...       --gelu: with bias and GELU, as in a feed-forward layer
 * Each shape has as many distinct weight matrices as fit in 96 MB, used in turn, so that no weight is in a cache only
 * because the last call used it. All variants and the peak loop take turns in one process. */
#include "bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WEIGHT_BYTES = 96 << 20, MAX_WEIGHTS = 64, MAX_ENTRIES = 8 };

typedef struct shape {
    int64_t m, n, k;
} shape;

static const shape shapes[] = {{128, 768, 768}, {128, 3072, 768}, {128, 768, 3072}, {512, 768, 768},  {3136, 64, 576},
                               {784, 128, 1152}, {196, 256, 2304}, {49, 512, 4608}, {1, 768, 768},    {1, 3072, 768},
                               {2, 3072, 768},   {3, 3072, 768},   {4, 3072, 768},  {8, 3072, 768},   {16, 3072, 768}};

typedef struct contestant {
    const wok_gemm_f32_kernel *kernel;
    const wok_parallel *parallel;
    wok_gemm_f32_args args;
    float *packed[MAX_WEIGHTS];
    int weights, turn;
} contestant;

static void call(void *arg) {
    contestant *c = arg;
    c->args.packed = c->packed[c->turn];
    c->turn = (c->turn + 1) % c->weights;
    c->kernel->run(&c->args, c->parallel);
}

static void prepare(contestant *c, const shape *s, const float *b) {
    wok_gemm_f32_problem problem = {s->n, s->k};
    size_t bytes = c->kernel->packed_bytes(&problem);
    c->weights = (int)(WEIGHT_BYTES / (bytes + 1));
    c->weights = c->weights < 1 ? 1 : c->weights > MAX_WEIGHTS ? MAX_WEIGHTS : c->weights;
    for (int i = 0; i < c->weights; i++) {
        c->packed[i] = bench_floats(bytes / sizeof(float) + 16, 1);
        c->kernel->pack(&problem, b, s->n, 1, c->packed[i], NULL);
    }
}

static void release(contestant *c) {
    for (int i = 0; i < c->weights; i++) free(c->packed[i]);
}

static void bench_shape(const shape *s, wok_isa_set isa, const wok_parallel *parallel, double seconds, bool gelu) {
    float *a = bench_floats((size_t)(s->m * s->k), 1), *b = bench_floats((size_t)(s->k * s->n), sqrtf((float)s->k));
    float *c = bench_floats((size_t)(s->m * s->n), 1);
    int threads = parallel ? parallel->threads : 1, count, used = 1;
    const wok_kernel *const *list = wok_kernel_list(WOK_FAMILY_gemm_f32, &count);
    contestant contestants[MAX_ENTRIES] = {{0}};
    bench_entry entries[MAX_ENTRIES] = {{.name = "FMA peak, one thread", .fn = bench_fma, .arg = &isa}};
    for (int i = 0; i < count && used < MAX_ENTRIES; i++) {
        bool slow_ref = (list[i]->flags & WOK_KERNEL_REFERENCE) && (double)s->m * (double)s->n * (double)s->k > 20e6;
        bool blas = list[i]->flags & WOK_KERNEL_NONDETERMINISTIC; /* refuses here, but is the baseline */
        bool accepts = blas || !list[i]->accept(&(wok_gemm_f32_problem){s->n, s->k});
        if (!(isa >> list[i]->isa & 1) || slow_ref || !accepts) continue;
        contestant *e = &contestants[used];
        *e = (contestant){.kernel = (const void *)list[i], .parallel = parallel};
        e->args = (wok_gemm_f32_args){.m = s->m, .n = s->n, .k = s->k, .a = a, .lda = s->k, .c = c, .ldc = s->n};
        if (gelu) e->args.epilogue = (wok_epilogue_f32){.bias = b, .act = WOK_ACT_GELU};
        prepare(e, s, b);
        entries[used++] = (bench_entry){.name = list[i]->name, .fn = call, .arg = e};
    }
    bench_contest(entries, used, seconds, threads > 1);
    double peak = bench_fma_macs(isa) / entries[0].best * threads, macs = (double)s->m * (double)s->n * (double)s->k;
    for (int i = 1; i < used; i++) {
        double rate = macs / entries[i].best;
        printf("%5lldx%lldx%lld  %-28s best %9.1f us  median %9.1f us  %7.2f GMAC/s  %6.2f GB/s of weights", (long long)s->m,
               (long long)s->n, (long long)s->k, entries[i].name, entries[i].best * 1e6, entries[i].median * 1e6, rate * 1e-9,
               (double)(s->n * s->k * 4) / entries[i].best * 1e-9);
        if (peak > 0) printf("  %5.1f %% of %.1f", 100 * rate / peak, peak * 1e-9);
        printf("\n");
        release(&contestants[i]);
    }
    fflush(stdout);
    free(a);
    free(b);
    free(c);
}

/* Present where OpenBLAS is linked: its threads are not counted by the clock of this thread. */
void openblas_set_num_threads(int threads) __attribute__((weak));

int main(int argc, char **argv) {
    int threads = 1, given = 0;
    double seconds = 0.6;
    bool gelu = false;
    wok_isa_set isa = bench_isa();
    for (int i = 1; i + 1 < argc; i++) {
        if (strcmp(argv[i], "--threads") == 0) threads = atoi(argv[i + 1]);
        if (strcmp(argv[i], "--gelu") == 0) gelu = atoi(argv[i + 1]) != 0;
        if (strcmp(argv[i], "--seconds") == 0) seconds = atof(argv[i + 1]);
    }
    if (openblas_set_num_threads) openblas_set_num_threads(threads);
    wok_parallel *pool = threads > 1 ? bench_pool_create(threads) : NULL;
    printf("%s, %d thread(s)\n", wok_cpu()->brand, threads);
    for (int i = 1; i < argc; i++) {
        long long m, n, k;
        if (sscanf(argv[i], "%lldx%lldx%lld", &m, &n, &k) != 3) continue;
        bench_shape(&(shape){m, n, k}, isa, pool, seconds, gelu);
        given++;
    }
    for (size_t i = 0; !given && i < sizeof shapes / sizeof *shapes; i++) bench_shape(&shapes[i], isa, pool, seconds, gelu);
    if (pool) bench_pool_free(pool);
    return 0;
}

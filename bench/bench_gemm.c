/* bench_gemm.c - gemm_f32 and gemm_s8 on the shapes of BERT, small M and convolutions, against the peaks of floats and bytes
 * and OpenBLAS.
 *
 * bench_gemm [--threads N] [--seconds S] [--gelu 1] [MxNxK]...       --gelu: with bias and GELU, as in a feed-forward layer
 * gemm_s8 makes bytes of bytes; with --gelu the activation is a table.
 * Each shape has as many distinct weight matrices as fit in 96 MB, used in turn, so that no weight is in a cache only
 * because the last call used it. All variants and the peak loop take turns in one process. */
#include "bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WEIGHT_BYTES = 96 << 20, MAX_WEIGHTS = 64, MAX_ENTRIES = 12 };

typedef struct shape {
    int64_t m, n, k;
} shape;

static const shape shapes[] = {{128, 768, 768},  {128, 3072, 768}, {128, 768, 3072}, {512, 768, 768}, {3136, 64, 576},
                               {784, 128, 1152}, {196, 256, 2304}, {49, 512, 4608},  {1, 768, 768},   {1, 3072, 768},
                               {2, 3072, 768},   {3, 3072, 768},   {4, 3072, 768},   {8, 3072, 768},  {16, 3072, 768}};

typedef struct contestant {
    const wok_gemm_f32_kernel *f32; /* one of the two */
    const wok_gemm_s8_kernel *s8;
    const wok_parallel *parallel;
    wok_gemm_f32_args args;
    wok_gemm_s8_args args_s8;
    void *packed[MAX_WEIGHTS];
    int weights, turn;
} contestant;

/* What all contestants of a shape work on. */
typedef struct operands {
    float *a, *b, *c, *scale;
    int8_t *a_s8, *b_s8, *c_s8, table[256];
} operands;

static void call(void *arg) {
    contestant *c = arg;
    const void *packed = c->packed[c->turn];
    c->turn = (c->turn + 1) % c->weights;
    c->args.packed = c->args_s8.packed = packed;
    if (c->f32)
        c->f32->run(&c->args, c->parallel);
    else
        c->s8->run(&c->args_s8, c->parallel);
}

static void prepare(contestant *c, const shape *s, const operands *o) {
    wok_gemm_f32_problem problem = {s->n, s->k};
    wok_gemm_s8_problem problem_s8 = {s->n, s->k};
    size_t bytes = c->f32 ? c->f32->packed_bytes(&problem) : c->s8->packed_bytes(&problem_s8);
    c->weights = (int)(WEIGHT_BYTES / (bytes + 1));
    c->weights = c->weights < 1 ? 1 : c->weights > MAX_WEIGHTS ? MAX_WEIGHTS : c->weights;
    for (int i = 0; i < c->weights; i++) {
        c->packed[i] = bench_floats(bytes / sizeof(float) + 16, 1);
        if (c->f32)
            c->f32->pack(&problem, o->b, s->n, 1, c->packed[i], NULL);
        else
            c->s8->pack(&problem_s8, o->b_s8, s->n, 1, NULL, c->packed[i], NULL);
    }
}

static void release(contestant *c) {
    for (int i = 0; i < c->weights; i++) free(c->packed[i]);
}

static int8_t *random_bytes(int64_t count) {
    float *p = bench_floats((size_t)count, 1);
    int8_t *bytes = (int8_t *)p; /* in place: byte i is made of float i, which stands behind it */
    for (int64_t i = 0; i < count; i++) bytes[i] = (int8_t)(p[i] * 127);
    return bytes;
}

static operands make_operands(const shape *s) {
    operands o = {.a = bench_floats((size_t)(s->m * s->k), 1)};
    o.b = bench_floats((size_t)(s->k * s->n), sqrtf((float)s->k));
    o.c = bench_floats((size_t)(s->m * s->n), 1);
    o.scale = bench_floats((size_t)s->n, 5000 * sqrtf((float)s->k) / 40);
    o.a_s8 = random_bytes(s->m * s->k);
    o.b_s8 = random_bytes(s->k * s->n);
    o.c_s8 = random_bytes(s->m * s->n);
    for (int i = 0; i < 256; i++) o.table[i] = (int8_t)(i < 128 ? 0 : i - 128);
    return o;
}

static void free_operands(operands *o) {
    free(o->a);
    free(o->b);
    free(o->c);
    free(o->scale);
    free(o->a_s8);
    free(o->b_s8);
    free(o->c_s8);
}

/* Can it run, and is it worth waiting for? */
static bool takes_part(const wok_kernel *kernel, const shape *s, wok_isa_set isa) {
    if (!(isa >> kernel->isa & 1)) return false;
    if ((kernel->flags & WOK_KERNEL_REFERENCE) && (double)s->m * (double)s->n * (double)s->k > 20e6) return false;
    return (kernel->flags & WOK_KERNEL_NONDETERMINISTIC) /* BLAS refuses here, but is the baseline */
           || !kernel->accept(&(wok_gemm_f32_problem){s->n, s->k});
}

static contestant enter_f32(const wok_kernel *kernel, const shape *s, operands *o, bool gelu) {
    contestant e = {.f32 = (const void *)kernel};
    e.args = (wok_gemm_f32_args){.m = s->m, .n = s->n, .k = s->k, .a = o->a, .lda = s->k, .c = o->c, .ldc = s->n};
    if (gelu) e.args.epilogue = (wok_epilogue_f32){.bias = o->b, .act = WOK_ACT_GELU};
    return e;
}

static contestant enter_s8(const wok_kernel *kernel, const shape *s, operands *o, bool gelu) {
    contestant e = {.s8 = (const void *)kernel};
    e.args_s8 =
        (wok_gemm_s8_args){.m = s->m, .n = s->n, .k = s->k, .a = o->a_s8, .lda = s->k, .c = o->c_s8, .ldc = s->n};
    e.args_s8.a_zero = 3;
    e.args_s8.epilogue =
        (wok_epilogue_s8){.out = WOK_S8_OUT_S8, .scale = o->scale, .bias = o->b, .lo = -128, .hi = 127};
    if (gelu) e.args_s8.epilogue.table = o->table;
    return e;
}

/* All variants of a family; the number of entries used up to now. */
static int enter(wok_family family, const shape *s, operands *o, wok_isa_set isa, const wok_parallel *parallel,
                 bool gelu, contestant *contestants, bench_entry *entries, int used) {
    int count;
    const wok_kernel *const *list = wok_kernel_list(family, &count);
    for (int i = 0; i < count && used < MAX_ENTRIES; i++) {
        if (!takes_part(list[i], s, isa)) continue;
        contestant *e = &contestants[used];
        *e = family == WOK_FAMILY_gemm_f32 ? enter_f32(list[i], s, o, gelu) : enter_s8(list[i], s, o, gelu);
        e->parallel = parallel;
        prepare(e, s, o);
        entries[used++] = (bench_entry){.name = list[i]->name, .fn = call, .arg = e};
    }
    return used;
}

static void bench_shape(const shape *s, wok_isa_set isa, const wok_parallel *parallel, double seconds, bool gelu) {
    operands o = make_operands(s);
    int threads = parallel ? parallel->threads : 1, used = 2;
    contestant contestants[MAX_ENTRIES] = {{0}};
    bench_entry entries[MAX_ENTRIES] = {{.name = "FMA peak, one thread", .fn = bench_fma, .arg = &isa},
                                        {.name = "peak of bytes, one thread", .fn = bench_s8, .arg = &isa}};
    used = enter(WOK_FAMILY_gemm_f32, s, &o, isa, parallel, gelu, contestants, entries, used);
    used = enter(WOK_FAMILY_gemm_s8, s, &o, isa, parallel, gelu, contestants, entries, used);
    bench_contest(entries, used, seconds, threads > 1);
    double peak = bench_fma_macs(isa) / entries[0].best * threads,
           peak_s8 = bench_s8_macs(isa) / entries[1].best * threads;
    double macs = (double)s->m * (double)s->n * (double)s->k;
    for (int i = 2; i < used; i++) {
        bool bytes = contestants[i].s8;
        double rate = macs / entries[i].best, limit = bytes ? peak_s8 : peak;
        printf("%5lldx%lldx%lld  %-30s best %9.1f us  median %9.1f us  %7.2f GMAC/s  %6.2f GB/s of weights",
               (long long)s->m, (long long)s->n, (long long)s->k, entries[i].name, entries[i].best * 1e6,
               entries[i].median * 1e6, rate * 1e-9, (double)(s->n * s->k * (bytes ? 1 : 4)) / entries[i].best * 1e-9);
        if (limit > 0) printf("  %5.1f %% of %.1f", 100 * rate / limit, limit * 1e-9);
        printf("\n");
        release(&contestants[i]);
    }
    fflush(stdout);
    free_operands(&o);
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
    for (size_t i = 0; !given && i < sizeof shapes / sizeof *shapes; i++)
        bench_shape(&shapes[i], isa, pool, seconds, gelu);
    if (pool) bench_pool_free(pool);
    return 0;
}

/* check_gemm_f32.c - gemm_f32 against sums in double over the unpacked matrices, within the bound of gemm_f32.h. */
#include "checkwok.h"
#include "epilogue_ref.h"
#include "gemm_f32/gemm_f32.h"

#include <stdlib.h>

enum { BIAS = 1, RESIDUAL = 2, IN_PLACE = 4, TRANSPOSED = 8, PADDED = 16 };

struct gemm_case {
    const wok_gemm_f32_kernel *kernel;
    int64_t m, n, k;
    unsigned with; /* BIAS ... PADDED */
    wok_act act;
    check_mode mode;
};

struct operands {
    float *a, *b, *bias, *residual, *c;
    int64_t lda, ldc, ldr, stride_k, stride_n;
};

static bool is_blas(const wok_kernel *kernel) { return kernel->flags & WOK_KERNEL_NONDETERMINISTIC; }
static size_t bytes(int64_t floats) { return (size_t)floats * sizeof(float); }

/* INTEGER sums are exact, so nothing may be lost before the activation. */
static double tolerance(const struct gemm_case *g, double magnitude, double y) {
    double linear = g->mode == CHECK_INTEGER ? 0 : (double)(g->k + 3) * 0x1p-24 * magnitude;
    if (g->act == WOK_ACT_NONE || g->act == WOK_ACT_CLAMP) return linear + 0x1p-149;
    return 1.13 * linear + 0x1p-22 * fmax(1, fabs(y));
}

static void compare_row(check *c, const struct gemm_case *g, const struct operands *o, const float *residual,
                        const wok_epilogue_f32 *e, int64_t i) {
    for (int64_t j = 0; j < g->n; j++) {
        double sum = 0, magnitude = 0;
        for (int64_t k = 0; k < g->k; k++) {
            double p = (double)o->a[i * o->lda + k] * (double)o->b[k * o->stride_k + j * o->stride_n];
            sum += p;
            magnitude += fabs(p);
        }
        if (o->bias) sum += (double)o->bias[j], magnitude += fabs((double)o->bias[j]);
        if (residual) sum += (double)residual[i * g->n + j], magnitude += fabs((double)residual[i * g->n + j]);
        double want = wok_act_ref(sum, e->act, e->lo, e->hi);
        double bound = isfinite(magnitude) ? tolerance(g, magnitude, want) : 1;
        if (!check_near(c, i, j, o->c[i * o->ldc + j], want, bound)) return;
    }
}

static void allocate(check *c, const struct gemm_case *g, struct operands *o) {
    int64_t pad = g->with & PADDED ? 5 : 0, b_rows = g->with & TRANSPOSED ? g->n : g->k;
    int64_t b_cols = g->with & TRANSPOSED ? g->k : g->n, ldb = b_cols + pad;
    o->lda = g->k + pad;
    o->ldc = g->n + 2 * pad;
    o->ldr = g->n + pad;
    o->stride_k = g->with & TRANSPOSED ? 1 : ldb;
    o->stride_n = g->with & TRANSPOSED ? ldb : 1;
    o->a = check_input(c, g->m, bytes(g->k), bytes(o->lda));
    o->b = check_input(c, b_rows, bytes(b_cols), bytes(ldb));
    if (g->with & BIAS) o->bias = check_input(c, 1, bytes(g->n), bytes(g->n));
    if ((g->with & (RESIDUAL | IN_PLACE)) == RESIDUAL) o->residual = check_input(c, g->m, bytes(g->n), bytes(o->ldr));
    o->c = check_output(c, g->m, bytes(g->n), bytes(o->ldc));
    check_fill_f32(c, o->a, g->m, g->k, o->lda, g->mode);
    check_fill_f32(c, o->b, b_rows, b_cols, ldb, g->mode);
    if (o->bias) check_fill_f32(c, o->bias, 1, g->n, g->n, g->mode);
    if (g->with & IN_PLACE) {
        o->residual = o->c;
        o->ldr = o->ldc;
    }
    if (o->residual) check_fill_f32(c, o->residual, g->m, g->n, o->ldr, g->mode);
}

/* A part of the rows, and the whole, must give the same bits: the promise that a batch does not change a result. */
static void compare_alone(check *c, const struct gemm_case *g, const struct operands *o, wok_gemm_f32_args args,
                          const float *residual) {
    int64_t first = check_range(c, 0, g->m - 1), rows = check_range(c, 1, g->m - first);
    float *alone = check_scratch(c, bytes(rows * g->n));
    args.m = rows;
    args.a += first * args.lda;
    args.c = alone;
    args.ldc = g->n;
    args.epilogue.residual = residual ? residual + first * g->n : NULL;
    args.epilogue.residual_stride = g->n;
    g->kernel->run(&args, NULL);
    check_canonical_nan(alone, rows, g->n, g->n);
    check_equal(c, "rows computed alone and in a batch", alone, bytes(g->n), o->c + first * o->ldc, bytes(o->ldc), rows,
                bytes(g->n));
}

static void gemm_case(check *c, const void *arg) {
    const struct gemm_case *g = arg;
    const wok_gemm_f32_problem problem = {g->n, g->k};
    struct operands o = {0};
    allocate(c, g, &o);
    float *residual = NULL; /* dense, because the kernel may write over the original */
    if (o.residual) {
        residual = check_scratch(c, bytes(g->m * g->n));
        for (int64_t i = 0; i < g->m; i++)
            for (int64_t j = 0; j < g->n; j++) residual[i * g->n + j] = o.residual[i * o.ldr + j];
    }
    wok_gemm_f32_args args = {.m = g->m, .n = g->n, .k = g->k, .a = o.a, .lda = o.lda, .c = o.c, .ldc = o.ldc};
    args.epilogue = (wok_epilogue_f32){.bias = o.bias, .residual = o.residual, .residual_stride = o.ldr, .act = g->act};
    args.epilogue.lo = -0.25f;
    args.epilogue.hi = 0.5f;
    void *packed = check_workspace(c, g->kernel->packed_bytes(&problem));
    check_seal(c);
    g->kernel->pack(&problem, o.b, o.stride_k, o.stride_n, packed, check_parallel(c));
    args.packed = packed;
    g->kernel->run(&args, check_parallel(c));
    for (int64_t i = 0; i < g->m; i++) compare_row(c, g, &o, residual, &args.epilogue, i);
    check_canonical_nan(o.c, g->m, g->n, o.ldc);
    if (g->m > 0 && !is_blas(&g->kernel->base)) compare_alone(c, g, &o, args, residual);
}

/* BLAS refuses where wok has a kernel of its own, but it is to be right there as well. */
static bool accepts(check *c, const wok_kernel *kernel, const wok_gemm_f32_problem *problem) {
    return is_blas(kernel) ? !wok_gemm_f32_accept(problem) : check_accepts(c, kernel, problem);
}

static void run(check *c, struct gemm_case g) {
    if (!accepts(c, &g.kernel->base, &(wok_gemm_f32_problem){g.n, g.k})) return;
    check_run(c, gemm_case, &g, "m=%d n=%d k=%d with=%u act=%d %s", (int)g.m, (int)g.n, (int)g.k, g.with, (int)g.act,
              check_mode_name(g.mode));
}

void check_gemm_f32(check *c, const wok_kernel *base, const wok_kernel *reference) {
    (void)reference;
    const wok_gemm_f32_kernel *kernel = (const void *)base;
    struct gemm_case g = {.kernel = kernel, .mode = CHECK_UNIFORM};
    /* Exhaustive tails in M and N, around one and two tiles, with K odd; every third with the whole epilogue. */
    int64_t most_m = 2 * kernel->mr + 1, most_n = 2 * kernel->nr + 1;
    for (g.m = 1; g.m <= most_m; g.m++)
        for (g.n = 1; g.n <= most_n; g.n++) {
            g.k = 1 + (g.m * 7 + g.n * 3) % 23;
            g.with = (unsigned)(g.m * 5 + g.n) % 32;
            g.act = (g.m + g.n) % 3 ? WOK_ACT_NONE : (wok_act)((g.m + g.n) / 3 % 6);
            g.mode = (check_mode)((g.m + 2 * g.n) % CHECK_FINITE_MODES);
            run(c, g);
        }
    /* Every K up to 70, and the lengths around cache blocks. */
    g = (struct gemm_case){.kernel = kernel, .m = kernel->mr + 1, .n = kernel->nr + 3, .with = BIAS | PADDED};
    for (g.k = 0; g.k <= 70; g.k++) run(c, g);
    static const int64_t long_k[] = {127, 128, 255, 256, 257, 383, 384, 385, 511, 512, 513, 767, 768, 769, 1025, 1537, 2049};
    for (size_t i = 0; i < sizeof long_k / sizeof *long_k; i++)
        for (int mode = CHECK_UNIFORM; mode < CHECK_FINITE_MODES; mode++) {
            g.k = long_k[i];
            g.m = 1 + (int64_t)i;
            g.with = (unsigned)(i * 9 + (size_t)mode) % 32;
            g.mode = (check_mode)mode;
            run(c, g);
        }
    /* Every mode with every activation and epilogue. */
    for (int mode = 0; mode < CHECK_MODES; mode++)
        for (int act = WOK_ACT_NONE; act <= WOK_ACT_SIGMOID; act++)
            for (unsigned with = 0; with < 8; with++)
                run(c, (struct gemm_case){kernel, 7, 37, 29, with, (wok_act)act, (check_mode)mode});
    /* No rows at all, and enough of everything that work is split. */
    run(c, (struct gemm_case){kernel, 0, 5, 3, BIAS, WOK_ACT_NONE, CHECK_UNIFORM});
    run(c, (struct gemm_case){kernel, 128, 200, 96, BIAS | RESIDUAL, WOK_ACT_GELU, CHECK_UNIFORM});
    run(c, (struct gemm_case){kernel, 1, 1000, 512, BIAS | TRANSPOSED, WOK_ACT_NONE, CHECK_UNIFORM});
    run(c, (struct gemm_case){kernel, 300, 17, 64, RESIDUAL | IN_PLACE | PADDED, WOK_ACT_CLAMP, CHECK_UNIFORM});
    for (int i = 0; i < 40; i++) { /* shapes nobody thought of */
        g = (struct gemm_case){kernel, check_range(c, 1, 150), check_range(c, 1, 150), check_range(c, 0, 300), 0, 0, 0};
        g.with = (unsigned)check_range(c, 0, 31);
        g.act = (wok_act)check_range(c, 0, 5);
        g.mode = (check_mode)check_range(c, 0, CHECK_FINITE_MODES - 1);
        run(c, g);
    }
}

/* ---- benchmarks -------------------------------------------------------------------------------------------------- */

struct bench {
    const wok_gemm_f32_kernel *kernel;
    wok_gemm_f32_args args;
};

static void call(void *arg) {
    struct bench *b = arg;
    b->kernel->run(&b->args, NULL);
}

void bench_gemm_f32(check *c, const wok_kernel *base, const wok_kernel *reference) {
    (void)reference;
    static const int64_t shapes[][3] = {{128, 768, 768}, {128, 384, 1536}, {196, 256, 256}, {49, 512, 512}, {8, 768, 768},
                                        {1, 768, 768}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        int64_t m = shapes[i][0], n = shapes[i][1], k = shapes[i][2];
        wok_gemm_f32_problem problem = {n, k};
        struct bench b = {.kernel = (const void *)base};
        if (!accepts(c, base, &problem)) continue;
        float *a = check_scratch(c, bytes(m * k)), *w = check_scratch(c, bytes(n * k));
        void *packed = check_scratch(c, b.kernel->packed_bytes(&problem));
        check_fill_f32(c, a, m, k, k, CHECK_UNIFORM);
        check_fill_f32(c, w, n, k, k, CHECK_UNIFORM);
        b.kernel->pack(&problem, w, 1, k, packed, NULL);
        b.args = (wok_gemm_f32_args){.m = m, .n = n, .k = k, .a = a, .lda = k, .packed = packed, .ldc = n};
        b.args.c = check_scratch(c, bytes(m * n));
        check_bench(c, call, &b, (double)(m * n * k) * 1e-9, "GMAC", m > 8, "%dx%dx%d", (int)m, (int)n, (int)k);
    }
}

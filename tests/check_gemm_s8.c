/* check_gemm_s8.c - gemm_s8 against exact sums over the unpacked matrices and the scalar epilogue, bit for bit; activations
 * of f32 outputs within the bound of gemm_s8.h. */
#include "checkwok.h"
#include "epilogue_s8_ref.h"
#include "gemm_s8/gemm_s8.h"

#include <stdlib.h>

enum {
    BIAS = 1,
    RESIDUAL = 2,
    IN_PLACE = 4,
    TRANSPOSED = 8,
    PADDED = 16,
    ROW_ZERO = 32,
    ROW_SCALE = 64,
    TABLE = 128,
    B_ZERO = 256,
    B_ZEROS = 512, /* one for all columns, or each its own */
    EVERYTHING = 1023
};

typedef enum bytes_mode {
    RANDOM,    /* all 256 values */
    LOWEST,    /* -128 everywhere, zero points 127: the largest sums there are */
    HIGHEST,   /* 127 times -128, zero points -128 */
    EXTREME,   /* -128 and 127 at random: what saturates in 16 bits */
    ALTERNATE, /* 127 and -128 in turn along k */
    SPARSE,    /* mostly zeros */
    BYTES_MODES
} bytes_mode;

static const char *const mode_names[] = {"random", "lowest", "highest", "extreme", "alternate", "sparse"};

struct gemm_case {
    const wok_gemm_s8_kernel *kernel;
    int64_t m, n, k;
    unsigned with; /* BIAS ... B_ZEROS */
    wok_s8_out out;
    wok_act act;
    bytes_mode mode;
};

struct operands {
    int8_t *a, *b, *b_zero;
    int32_t *row_zero, a_zero;
    float *scale, *bias, *row_scale;
    void *residual, *c;
    int8_t *table;
    int64_t lda, ldc, ldr, stride_k, stride_n;
};

static bool has(const struct gemm_case *g, unsigned with) {
    return (g->with & with) != 0;
}
static size_t out_size(const struct gemm_case *g) {
    return g->out == WOK_S8_OUT_S8 ? 1 : 4;
}

/* ---- operands ------------------------------------------------------------------------------------------------------- */

static int8_t byte_of(check *c, bytes_mode mode, int64_t k, bool weight) {
    switch (mode) {
    case LOWEST:
        return -128;
    case HIGHEST:
        return weight ? -128 : 127;
    case EXTREME:
        return check_random(c) & 1 ? 127 : -128;
    case ALTERNATE:
        return k & 1 ? -128 : 127;
    case SPARSE:
        return check_random(c) & 7 ? 0 : (int8_t)check_range(c, -128, 127);
    case RANDOM:
    case BYTES_MODES:
        break;
    }
    return (int8_t)check_range(c, -128, 127);
}

static int32_t zero_of(check *c, bytes_mode mode) {
    return mode == LOWEST ? 127 : mode == HIGHEST ? -128 : (int32_t)check_range(c, -128, 127);
}

static void fill_matrices(check *c, const struct gemm_case *g, struct operands *o) {
    for (int64_t i = 0; i < g->m; i++)
        for (int64_t k = 0; k < g->k; k++) o->a[i * o->lda + k] = byte_of(c, g->mode, k, false);
    for (int64_t j = 0; j < g->n; j++)
        for (int64_t k = 0; k < g->k; k++) o->b[k * o->stride_k + j * o->stride_n] = byte_of(c, g->mode, k, true);
}

static void fill_zeros(check *c, const struct gemm_case *g, struct operands *o) {
    o->a_zero = g->with % 3 ? zero_of(c, g->mode) : 0;
    if (has(g, ROW_ZERO)) {
        o->row_zero = check_input(c, 1, (size_t)g->m * 4, (size_t)g->m * 4);
        for (int64_t i = 0; i < g->m; i++) o->row_zero[i] = zero_of(c, g->mode);
    }
    if (!has(g, B_ZERO | B_ZEROS)) return;
    o->b_zero = check_input(c, 1, (size_t)g->n, (size_t)g->n);
    for (int64_t j = 0; j < g->n; j++)
        o->b_zero[j] = j == 0 || has(g, B_ZEROS) ? (int8_t)zero_of(c, g->mode) : o->b_zero[0];
}

static int32_t exact_sum(const struct gemm_case *g, const struct operands *o, int64_t i, int64_t j) {
    int32_t a_zero = o->row_zero ? o->row_zero[i] : o->a_zero, b_zero = o->b_zero ? o->b_zero[j] : 0;
    int64_t sum = 0;
    for (int64_t k = 0; k < g->k; k++)
        sum += (int64_t)(o->a[i * o->lda + k] - a_zero) * (o->b[k * o->stride_k + j * o->stride_n] - b_zero);
    return (int32_t)sum;
}

/* Half of the cases have scales that are powers of two, and where there is a bias row 0 is all halves: ties of rounding. */
static void fill_scales(check *c, const struct gemm_case *g, struct operands *o) {
    size_t row = (size_t)g->n * sizeof(float);
    float unit = g->out == WOK_S8_OUT_S8 ? 40.0f : 1.0f;
    unit /= 5000.0f * sqrtf((float)g->k + 1);
    bool ties = check_random(c) & 1;
    o->scale = check_input(c, 1, row, row);
    if (has(g, BIAS)) o->bias = check_input(c, 1, row, row);
    check_fill_f32(c, o->scale, 1, g->n, g->n, CHECK_UNIFORM);
    if (o->bias) check_fill_f32(c, o->bias, 1, g->n, g->n, CHECK_UNIFORM);
    for (int64_t j = 0; j < g->n; j++) {
        o->scale[j] = ties ? ldexpf(1, ilogbf(unit)) : unit * (1 + 0.5f * o->scale[j]);
        if (!o->bias || g->out != WOK_S8_OUT_S8) continue;
        if (ties && g->m > 0)
            o->bias[j] = floorf(o->bias[j] * 99) + 0.5f - (float)exact_sum(g, o, 0, j) * o->scale[j];
        else
            o->bias[j] *= 30;
    }
    if (!has(g, ROW_SCALE) || g->out != WOK_S8_OUT_F32) return;
    o->row_scale = check_input(c, 1, (size_t)g->m * sizeof(float), (size_t)g->m * sizeof(float));
    check_fill_f32(c, o->row_scale, 1, g->m, g->m, CHECK_UNIFORM);
    for (int64_t i = 0; i < g->m; i++) o->row_scale[i] += 1.5f;
}

static void fill_residual(check *c, const struct gemm_case *g, struct operands *o) {
    if (g->out == WOK_S8_OUT_F32)
        check_fill_f32(c, o->residual, g->m, g->n, o->ldr, CHECK_UNIFORM);
    else
        check_fill_bytes(c, o->residual, g->m, (size_t)g->n, (size_t)o->ldr);
}

static void allocate(check *c, const struct gemm_case *g, struct operands *o) {
    int64_t pad = has(g, PADDED) ? 5 : 0, b_rows = has(g, TRANSPOSED) ? g->n : g->k;
    int64_t b_cols = has(g, TRANSPOSED) ? g->k : g->n, ldb = b_cols + pad;
    size_t size = out_size(g);
    bool residual = g->out != WOK_S8_OUT_S32;
    o->lda = g->k + pad;
    o->ldc = g->n + 2 * pad;
    o->ldr = has(g, IN_PLACE) ? o->ldc : g->n + pad;
    o->stride_k = has(g, TRANSPOSED) ? 1 : ldb;
    o->stride_n = has(g, TRANSPOSED) ? ldb : 1;
    o->a = check_input(c, g->m, (size_t)g->k, (size_t)o->lda);
    o->b = check_input(c, b_rows, (size_t)b_cols, (size_t)ldb);
    if (residual && (g->with & (RESIDUAL | IN_PLACE)) == RESIDUAL)
        o->residual = check_input(c, g->m, (size_t)g->n * size, (size_t)o->ldr * size);
    o->c = check_output(c, g->m, (size_t)g->n * size, (size_t)o->ldc * size);
    if (residual && has(g, IN_PLACE)) o->residual = o->c;
    if (has(g, TABLE) && g->out == WOK_S8_OUT_S8) {
        o->table = check_input(c, 1, 256, 256);
        check_fill_bytes(c, o->table, 1, 256, 256);
    }
    fill_matrices(c, g, o);
    fill_zeros(c, g, o);
    fill_scales(c, g, o);
    if (o->residual) fill_residual(c, g, o);
}

static wok_epilogue_s8 epilogue_of(check *c, const struct gemm_case *g, const struct operands *o) {
    wok_epilogue_s8 e = {.out = g->out, .scale = o->scale, .bias = o->bias, .row_scale = o->row_scale};
    e.residual = o->residual;
    e.residual_stride = o->ldr;
    e.residual_scale = 0.37f;
    e.residual_zero = (int32_t)check_range(c, -128, 127);
    e.zero = (int32_t)check_range(c, -128, 127);
    e.lo = check_random(c) & 1 ? -128 : (int32_t)check_range(c, -128, 127);
    e.hi = check_random(c) & 1 ? 127 : (int32_t)check_range(c, e.lo, 127);
    e.table = o->table;
    e.act = g->act;
    e.act_lo = -0.25f;
    e.act_hi = 0.5f;
    return e;
}

/* ---- comparing ------------------------------------------------------------------------------------------------------ */

/* `e` has the residual as it was before the kernel ran, in dense rows. */
static void compare(check *c, const struct gemm_case *g, const struct operands *o, const wok_epilogue_s8 *e) {
    size_t size = out_size(g), row = (size_t)g->n * size;
    void *want = check_scratch(c, (size_t)g->m * row);
    for (int64_t i = 0; i < g->m; i++)
        for (int64_t j = 0; j < g->n; j++) wok_epilogue_s8_ref(exact_sum(g, o, i, j), i, j, e, want, i * g->n + j);
    if (g->out != WOK_S8_OUT_F32 || g->act <= WOK_ACT_CLAMP) {
        check_equal(c, "equal to the exact sums and the epilogue's roundings", o->c, (size_t)o->ldc * size, want, row,
                    g->m, row);
        return;
    }
    for (int64_t i = 0; i < g->m; i++)
        for (int64_t j = 0; j < g->n; j++) {
            double y = (double)((const float *)want)[i * g->n + j];
            if (!check_near(c, i, j, ((const float *)o->c)[i * o->ldc + j], y, 0x1p-22 * fmax(1, fabs(y)))) return;
        }
}

/* A part of the rows, and the whole, must give the same bits: the promise that a batch does not change a result. */
static void compare_alone(check *c, const struct gemm_case *g, const struct operands *o, wok_gemm_s8_args args,
                          const void *residual) {
    int64_t first = check_range(c, 0, g->m - 1), rows = check_range(c, 1, g->m - first), size = (int64_t)out_size(g);
    char *alone = check_scratch(c, (size_t)(rows * g->n * size));
    args.m = rows;
    args.a += first * args.lda;
    args.c = alone;
    args.ldc = g->n;
    if (args.row_zero) args.row_zero += first;
    if (args.epilogue.row_scale) args.epilogue.row_scale += first;
    args.epilogue.residual = residual ? (const char *)residual + first * g->n * size : NULL;
    args.epilogue.residual_stride = g->n;
    g->kernel->run(&args, NULL);
    check_equal(c, "rows computed alone and in a batch", alone, (size_t)(g->n * size),
                (const char *)o->c + first * o->ldc * size, (size_t)(o->ldc * size), rows, (size_t)(g->n * size));
}

static void gemm_case(check *c, const void *arg) {
    const struct gemm_case *g = arg;
    const wok_gemm_s8_problem problem = {g->n, g->k};
    size_t row = (size_t)g->n * out_size(g);
    struct operands o = {0};
    allocate(c, g, &o);
    wok_gemm_s8_args args = {.m = g->m, .n = g->n, .k = g->k, .a = o.a, .lda = o.lda, .c = o.c, .ldc = o.ldc};
    args.a_zero = o.a_zero;
    args.row_zero = o.row_zero;
    args.epilogue = epilogue_of(c, g, &o);
    wok_epilogue_s8 before = args.epilogue; /* the kernel may write over the residual */
    if (o.residual) {
        char *copy = check_scratch(c, (size_t)g->m * row);
        for (int64_t i = 0; i < g->m; i++)
            memcpy(copy + (size_t)i * row, (char *)o.residual + (size_t)(i * o.ldr) * out_size(g), row);
        before.residual = copy;
        before.residual_stride = g->n;
    }
    void *packed = check_workspace(c, g->kernel->packed_bytes(&problem));
    check_seal(c);
    g->kernel->pack(&problem, o.b, o.stride_k, o.stride_n, o.b_zero, packed, check_parallel(c));
    args.packed = packed;
    g->kernel->run(&args, check_parallel(c));
    compare(c, g, &o, &before);
    if (g->m > 0) compare_alone(c, g, &o, args, before.residual);
}

/* ---- cases ---------------------------------------------------------------------------------------------------------- */

static void run(check *c, struct gemm_case g) {
    if (!check_accepts(c, &g.kernel->base, &(wok_gemm_s8_problem){g.n, g.k})) return;
    check_run(c, gemm_case, &g, "m=%d n=%d k=%d with=%u out=%d act=%d %s", (int)g.m, (int)g.n, (int)g.k, g.with,
              (int)g.out, (int)g.act, mode_names[g.mode]);
}

/* Every M and N around one and two tiles, K of every remainder, everything else in turn. */
static void run_tails(check *c, const wok_gemm_s8_kernel *kernel) {
    struct gemm_case g = {.kernel = kernel};
    for (g.m = 1; g.m <= 2 * kernel->mr + 1; g.m++)
        for (g.n = 1; g.n <= 2 * kernel->nr + 1; g.n++) {
            int64_t turn = g.m * 5 + g.n;
            g.k = (g.m * 7 + g.n * 3) % 24;
            g.with = (unsigned)(turn * 37) % (EVERYTHING + 1);
            g.out = (wok_s8_out)(turn % 3);
            g.act = turn % 4 ? WOK_ACT_NONE : (wok_act)(turn / 4 % 6);
            g.mode = turn % 5 ? RANDOM : (bytes_mode)(turn / 5 % BYTES_MODES);
            run(c, g);
        }
}

/* Every K up to 70, and around the lengths of cache blocks up to the longest of all, where sums come close to 2^31. */
static void run_lengths(check *c, const wok_gemm_s8_kernel *kernel) {
    struct gemm_case g = {.kernel = kernel, .m = kernel->mr + 1, .n = kernel->nr + 3, .with = PADDED | B_ZERO};
    for (g.k = 0; g.k <= 70; g.k++) run(c, g);
    static const int64_t long_k[] = {127, 128, 255,  256,  257,  511,  512,  513,  767,  768,   769,   770,
                                     771, 772, 1023, 1024, 1025, 1537, 2049, 3072, 3075, 16384, 16383, WOK_S8_MAX_K};
    for (size_t i = 0; i < sizeof long_k / sizeof *long_k; i++)
        for (int mode = 0; mode < BYTES_MODES; mode++) {
            g = (struct gemm_case){.kernel = kernel, .k = long_k[i], .mode = (bytes_mode)mode};
            g.m = 1 + ((int64_t)i + mode * 5) % (g.k > 4096 ? 7 : 17);
            g.n = g.k > 4096 ? 17 : 1 + ((int64_t)i * 23 + mode) % 150;
            g.with = (unsigned)(i * 41 + (size_t)mode * 7) % (EVERYTHING + 1);
            g.out = (wok_s8_out)((int)i + mode) % 3;
            run(c, g);
        }
}

void check_gemm_s8(check *c, const wok_kernel *base, const wok_kernel *reference) {
    (void)reference;
    const wok_gemm_s8_kernel *kernel = (const void *)base;
    run_tails(c, kernel);
    run_lengths(c, kernel);
    /* Every kind of output with every epilogue, zero points of every kind. */
    for (unsigned with = 0; with <= EVERYTHING; with++) {
        if ((with & TRANSPOSED) || (with & PADDED)) continue;
        for (int out = WOK_S8_OUT_S32; out <= WOK_S8_OUT_S8; out++)
            run(c, (struct gemm_case){kernel, 7, 37, 29, with, (wok_s8_out)out, WOK_ACT_NONE,
                                      (bytes_mode)(with % BYTES_MODES)});
    }
    for (int act = WOK_ACT_NONE; act <= WOK_ACT_SIGMOID; act++)
        for (unsigned with = 0; with < 64; with++)
            run(c, (struct gemm_case){kernel, 5, 29, 30, with * 16 + with % 16, WOK_S8_OUT_F32, (wok_act)act, RANDOM});
    /* No rows at all, and enough of everything that work is split. */
    run(c, (struct gemm_case){kernel, 0, 5, 3, BIAS, WOK_S8_OUT_F32, WOK_ACT_NONE, RANDOM});
    run(c, (struct gemm_case){kernel, 128, 200, 96, BIAS | RESIDUAL | ROW_SCALE, WOK_S8_OUT_F32, WOK_ACT_GELU, RANDOM});
    run(c, (struct gemm_case){kernel, 1, 1000, 512, BIAS | TRANSPOSED | TABLE, WOK_S8_OUT_S8, WOK_ACT_NONE, EXTREME});
    run(c, (struct gemm_case){kernel, 300, 17, 64, RESIDUAL | IN_PLACE | PADDED, WOK_S8_OUT_S8, WOK_ACT_NONE, RANDOM});
    run(c, (struct gemm_case){kernel, 130, 290, 800, ROW_ZERO | B_ZEROS, WOK_S8_OUT_S32, WOK_ACT_NONE, RANDOM});
    for (int i = 0; i < 60; i++) { /* shapes nobody thought of */
        struct gemm_case g = {kernel, check_range(c, 1, 150), check_range(c, 1, 150), check_range(c, 0, 300), 0, 0, 0,
                              0};
        g.with = (unsigned)check_range(c, 0, EVERYTHING);
        g.out = (wok_s8_out)check_range(c, 0, 2);
        g.act = (wok_act)check_range(c, 0, 5);
        g.mode = (bytes_mode)check_range(c, 0, BYTES_MODES - 1);
        run(c, g);
    }
}

/* ---- benchmarks ----------------------------------------------------------------------------------------------------- */

struct bench {
    const wok_gemm_s8_kernel *kernel;
    wok_gemm_s8_args args;
};

static void call(void *arg) {
    struct bench *b = arg;
    b->kernel->run(&b->args, NULL);
}

void bench_gemm_s8(check *c, const wok_kernel *base, const wok_kernel *reference) {
    (void)reference;
    static const int64_t shapes[][3] = {{128, 768, 768}, {128, 384, 1536}, {196, 256, 256}, {49, 512, 512},
                                        {3136, 64, 64},  {8, 768, 768},    {1, 768, 768}};
    static int8_t table[256];
    for (int i = 0; i < 256; i++) table[i] = (int8_t)(i - 128);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        int64_t m = shapes[i][0], n = shapes[i][1], k = shapes[i][2];
        wok_gemm_s8_problem problem = {n, k};
        struct bench b = {.kernel = (const void *)base};
        int8_t *a = check_scratch(c, (size_t)(m * k)), *w = check_scratch(c, (size_t)(n * k));
        float *scale = check_scratch(c, (size_t)n * sizeof(float));
        void *packed = check_workspace(c, b.kernel->packed_bytes(&problem));
        check_fill_bytes(c, a, m, (size_t)k, (size_t)k);
        check_fill_bytes(c, w, n, (size_t)k, (size_t)k);
        for (int64_t j = 0; j < n; j++) scale[j] = 40.0f / (5000.0f * sqrtf((float)k));
        b.kernel->pack(&problem, w, 1, k, NULL, packed, NULL);
        b.args = (wok_gemm_s8_args){.m = m, .n = n, .k = k, .a = a, .lda = k, .packed = packed, .ldc = n};
        b.args.c = check_scratch(c, (size_t)(m * n) * sizeof(float));
        b.args.epilogue = (wok_epilogue_s8){.scale = scale, .bias = scale, .lo = -128, .hi = 127};
        static const char *const outs[] = {"f32", "s8", "s8 table"};
        for (int out = 0; out < 3; out++) {
            b.args.epilogue.out = out == 0 ? WOK_S8_OUT_F32 : WOK_S8_OUT_S8;
            b.args.epilogue.table = out == 2 ? table : NULL;
            check_bench(c, call, &b, (double)(m * n * k) * 1e-9, "GMAC", m > 8, "%dx%dx%d %s", (int)m, (int)n, (int)k,
                        outs[out]);
        }
    }
}

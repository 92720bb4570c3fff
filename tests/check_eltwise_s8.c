/* check_eltwise_s8.c - eltwise_s8 against formulas of the contract, written apart from the reference; every bit counts. */
#include "checkwok.h"
#include "eltwise_s8/eltwise_s8.h"

enum fill { FILL_MODE, FILL_TIES, FILL_SWEEP, FILL_ZERO, FILLS };

struct elt_case {
    const wok_eltwise_s8_kernel *kernel;
    wok_eltwise_s8_op op;
    int64_t rows, cols;
    int a_step, b_step;
    bool in_place;
    enum fill fill;
    check_mode mode;
};

static bool from_f32(wok_eltwise_s8_op op) { return op <= WOK_ELT_S8_QUANTIZE_ROWS; }
static bool is_binary(wok_eltwise_s8_op op) { return op >= WOK_ELT_S8_ADD; }

/* ---- the oracle -------------------------------------------------------------------------------------------------- */

static int32_t quantized(float x, float scale, int32_t zero) {
    volatile float quotient = x / scale; /* rounded to f32 */
    if (isnan(quotient)) return zero;
    double y = nearbyint((double)quotient) + zero;
    return y < -128 ? -128 : y > 127 ? 127 : (int32_t)y;
}

static float value(int8_t q, int32_t zero, float scale) {
    volatile float v = (float)((int32_t)q - zero) * scale;
    return v;
}

static int8_t combined(const wok_eltwise_s8_args *args, wok_eltwise_s8_op op, int8_t a, int8_t b) {
    float u = value(a, args->a_zero, args->a_scale), v = value(b, args->b_zero, args->b_scale);
    volatile float x = op == WOK_ELT_S8_ADD ? u + v : u * v;
    int32_t y = quantized(x, args->y_scale, args->y_zero);
    return (int8_t)(y < args->lo ? args->lo : y > args->hi ? args->hi : y);
}

/* DynamicQuantizeLinear less 128; a scale of NaN marks a row without meaning. */
static void row_parameters(const float *x, int64_t n, float *scale, int32_t *zero) {
    float lo = 0, hi = 0;
    bool finite = true;
    for (int64_t i = 0; i < n; i++) {
        finite &= isfinite(x[i]) != 0;
        lo = fminf(lo, x[i]);
        hi = fmaxf(hi, x[i]);
    }
    *zero = 0;
    *scale = NAN;
    if (!finite) return;
    volatile float range = hi - lo, step = range / 255.0f;
    *scale = step == 0 ? 1 : step;
    *zero = -128;
    if (step == 0) return;
    volatile float z = -lo / step;
    *zero = (int32_t)fmin(fmax(nearbyint((double)z), 0), 255) - 128;
}

/* ---- one case ---------------------------------------------------------------------------------------------------- */

static float random_scale(check *c) { return ldexpf((float)check_range(c, 256, 511), (int)check_range(c, -16, -6)); }

static void fill_f32(check *c, const struct elt_case *e, float scale, float *p) {
    const int64_t n = e->rows * e->cols;
    uint32_t u = (uint32_t)check_random(c);
    switch (e->fill) {
    case FILL_TIES:
        for (int64_t i = 0; i < n; i++) p[i] = ((float)check_range(c, -300, 300) + 0.5f) * scale;
        break;
    case FILL_SWEEP: /* every exponent and sign, infinities and NaN among them */
        for (int64_t i = 0; i < n; i++, u += (uint32_t)(UINT32_MAX / (uint64_t)n)) memcpy(&p[i], &u, sizeof u);
        break;
    case FILL_ZERO:
        for (int64_t i = 0; i < n; i++) p[i] = i % 2 ? -0.0f : 0.0f;
        break;
    default: check_fill_f32(c, p, e->rows, e->cols, e->cols, e->mode);
    }
}

static wok_eltwise_s8_args parameters(check *c, const struct elt_case *e) {
    wok_eltwise_s8_args args = {.rows = e->rows, .cols = e->cols, .a_step = e->a_step, .b_step = e->b_step};
    args.a_scale = random_scale(c), args.b_scale = random_scale(c), args.y_scale = random_scale(c);
    if (e->op == WOK_ELT_S8_QUANTIZE) args.y_scale /= 8; /* so that uniform numbers use all bytes */
    if (e->fill == FILL_TIES) args.y_scale = 0x1p-3f;
    args.a_zero = (int32_t)check_range(c, -128, 127);
    args.b_zero = (int32_t)check_range(c, -128, 127);
    args.y_zero = (int32_t)check_range(c, -128, 127);
    const bool whole = check_range(c, 0, 1);
    args.lo = whole ? -128 : (int32_t)check_range(c, -128, 127);
    args.hi = whole ? 127 : (int32_t)check_range(c, args.lo, 127);
    return args;
}

static void compare_rows(check *c, const struct elt_case *e, const wok_eltwise_s8_args *args, const float *x) {
    for (int64_t r = 0; r < e->rows; r++) {
        float scale;
        int32_t zero;
        row_parameters(x + r * e->cols, e->cols, &scale, &zero);
        if (isnan(scale) ? !isnan(args->row_scale[r]) : args->row_scale[r] != scale)
            check_fail(c, "row %d has scale %a, not %a", (int)r, (double)args->row_scale[r], (double)scale);
        if (args->row_zero[r] != zero)
            check_fail(c, "row %d has zero point %d, not %d", (int)r, args->row_zero[r], zero);
        for (int64_t i = 0; i < e->cols; i++) {
            int32_t want = isnan(scale) ? 0 : quantized(x[r * e->cols + i], scale, zero);
            check_near(c, r, i, ((const int8_t *)args->y)[r * e->cols + i], want, 0);
        }
    }
}

static void compare(check *c, const struct elt_case *e, const wok_eltwise_s8_args *args, const void *a) {
    const int8_t *q = a, *b = args->b, *y = args->y;
    const float *x = a;
    for (int64_t i = 0; i < e->rows * e->cols; i++) switch (e->op) {
        case WOK_ELT_S8_QUANTIZE: check_near(c, 0, i, y[i], quantized(x[i], args->y_scale, args->y_zero), 0); break;
        case WOK_ELT_S8_DEQUANTIZE:
            check_near(c, 0, i, ((const float *)args->y)[i], (double)value(q[i], args->a_zero, args->a_scale), 0);
            break;
        case WOK_ELT_S8_TABLE: check_near(c, 0, i, y[i], args->table[q[i] + 128], 0); break;
        default: check_near(c, 0, i, y[i], combined(args, e->op, q[i * e->a_step], b[i * e->b_step]), 0);
        }
}

static void elt_case(check *c, const void *arg) {
    const struct elt_case *e = arg;
    const size_t in = from_f32(e->op) ? sizeof(float) : 1, out = e->op == WOK_ELT_S8_DEQUANTIZE ? sizeof(float) : 1;
    const int64_t n = e->rows * e->cols, a_n = e->a_step || n == 0 ? n : 1, b_n = e->b_step || n == 0 ? n : 1;
    wok_eltwise_s8_args args = parameters(c, e);
    void *a = check_scratch(c, (size_t)(a_n + 1) * in); /* a copy, for y may be written over the original */
    if (from_f32(e->op))
        fill_f32(c, e, args.y_scale, a);
    else
        check_fill_bytes(c, a, 1, (size_t)a_n, (size_t)a_n);
    args.y = check_output(c, 1, (size_t)n * out, (size_t)n * out);
    void *x = e->in_place ? args.y : check_input(c, 1, (size_t)a_n * in, (size_t)a_n * in);
    memcpy(x, a, (size_t)a_n * in);
    args.a = x;
    if (is_binary(e->op)) {
        int8_t *b = check_input(c, 1, (size_t)b_n, (size_t)b_n);
        check_fill_bytes(c, b, 1, (size_t)b_n, (size_t)b_n);
        args.b = b;
    }
    if (e->op == WOK_ELT_S8_TABLE) {
        int8_t *table = check_input(c, 1, 256, 256);
        check_fill_bytes(c, table, 1, 256, 256);
        args.table = table;
    }
    if (e->op == WOK_ELT_S8_QUANTIZE_ROWS) {
        args.row_scale = check_output(c, e->rows, sizeof(float), sizeof(float));
        args.row_zero = check_output(c, e->rows, sizeof(int32_t), sizeof(int32_t));
    }
    check_seal(c);
    e->kernel->run(&(wok_eltwise_s8_problem){e->op}, &args, check_parallel(c));
    if (e->op == WOK_ELT_S8_QUANTIZE_ROWS)
        compare_rows(c, e, &args, a);
    else
        compare(c, e, &args, a);
}

static void run(check *c, struct elt_case e) {
    if (!check_accepts(c, &e.kernel->base, &(wok_eltwise_s8_problem){e.op})) return;
    check_run(c, elt_case, &e, "op=%d %dx%d steps=%d,%d in_place=%d fill=%d %s", (int)e.op, (int)e.rows, (int)e.cols,
              e.a_step, e.b_step, e.in_place, (int)e.fill, check_mode_name(e.mode));
}

static void check_op(check *c, struct elt_case e) {
    const bool bytes_only = !from_f32(e.op) && e.op != WOK_ELT_S8_DEQUANTIZE;
    for (e.cols = 0; e.cols <= 2 * 64 + 1; e.cols++) { /* every tail of every width, every mode */
        e.mode = (check_mode)(e.cols % CHECK_MODES);
        e.rows = e.cols % 5 == 4 ? 3 : 1;
        e.in_place = bytes_only && e.cols % 3 == 1;
        run(c, e);
    }
    e.in_place = false;
    e.rows = 3, e.cols = 101;
    for (int fill = FILL_MODE; fill < FILLS && from_f32(e.op); fill++)
        for (int mode = 0; mode < (fill == FILL_MODE ? CHECK_MODES : 1); mode++) {
            e.fill = (enum fill)fill, e.mode = (check_mode)mode;
            run(c, e);
        }
    e.fill = FILL_MODE, e.mode = CHECK_UNIFORM;
    for (int steps = 0; is_binary(e.op) && steps < 3; steps++)
        for (e.rows = 1, e.cols = 1; e.cols <= 140; e.cols += 23) {
            e.a_step = steps & 1;
            e.b_step = steps >> 1;
            run(c, e);
        }
    e.a_step = e.b_step = 1;
    /* more than one task: many rows, some, and one that the threads share */
    static const int64_t sizes[][2] = {{1, 5 * WOK_ELTWISE_S8_GRAIN + 77},
                                       {3, 2 * WOK_ELTWISE_S8_GRAIN + 1},
                                       {40, 2001},
                                       {5000, 13}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int fill = FILL_MODE; fill <= (from_f32(e.op) ? FILL_SWEEP : FILL_MODE); fill++) {
            e.rows = sizes[i][0], e.cols = sizes[i][1], e.fill = (enum fill)fill;
            run(c, e);
        }
    e.fill = FILL_MODE, e.mode = CHECK_SPECIAL;
    run(c, e);
}

void check_eltwise_s8(check *c, const wok_kernel *base, const wok_kernel *reference) {
    (void)reference;
    for (int op = WOK_ELT_S8_QUANTIZE; op <= WOK_ELT_S8_MUL; op++)
        check_op(c, (struct elt_case){(const void *)base, .op = (wok_eltwise_s8_op)op, .a_step = 1, .b_step = 1});
}

/* ---- benchmarks: the activations of a BERT-base layer ------------------------------------------------------------ */

struct elt_bench {
    const wok_eltwise_s8_kernel *kernel;
    wok_eltwise_s8_problem problem;
    wok_eltwise_s8_args args;
};

static void bench_run(void *arg) {
    struct elt_bench *b = arg;
    b->kernel->run(&b->problem, &b->args, NULL);
}

void bench_eltwise_s8(check *c, const wok_kernel *base, const wok_kernel *reference) {
    (void)reference;
    static const char *const names[] = {"quantize", "quantize_rows", "dequantize", "table", "add", "mul"};
    const int64_t rows = 128, cols = 768, n = rows * cols;
    float *x = check_input(c, 1, (size_t)n * 4, (size_t)n * 4), *y = check_output(c, 1, (size_t)n * 4, (size_t)n * 4);
    int8_t *a = check_input(c, 1, (size_t)n, (size_t)n), *table = check_input(c, 1, 256, 256);
    check_fill_f32(c, x, 1, n, n, CHECK_UNIFORM);
    check_fill_bytes(c, a, 1, (size_t)n, (size_t)n);
    check_fill_bytes(c, table, 1, 256, 256);
    for (int op = WOK_ELT_S8_QUANTIZE; op <= WOK_ELT_S8_MUL; op++) {
        struct elt_bench b = {.kernel = (const void *)base, .problem = {(wok_eltwise_s8_op)op}};
        b.args = (wok_eltwise_s8_args){.rows = rows, .cols = cols, .a_step = 1, .b_step = 1, .y = y, .table = table};
        b.args.a = from_f32(b.problem.op) ? (const void *)x : a;
        b.args.b = a;
        b.args.a_scale = b.args.b_scale = b.args.y_scale = 1.0f / 128;
        b.args.lo = -128, b.args.hi = 127;
        b.args.row_scale = check_scratch(c, (size_t)rows * sizeof(float));
        b.args.row_zero = check_scratch(c, (size_t)rows * sizeof(int32_t));
        check_bench(c, bench_run, &b, (double)n * 1e-9, "Gelement", false, "%s 128x768", names[op]);
    }
}

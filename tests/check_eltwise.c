/* check_eltwise.c - eltwise against formulas in double, within the bounds of eltwise.h; exact operations bit for bit.
 *  */
#include "checkwok.h"
#include "eltwise/eltwise.h"

enum fill { FILL_MODE, FILL_SWEEP, FILL_HALVES };

struct elt_case {
    const wok_eltwise_kernel *kernel;
    wok_eltwise_op op;
    int64_t n;
    int a_step, b_step;
    bool clamped, in_place;
    enum fill fill;
    check_mode mode;
};

static bool is_binary(wok_eltwise_op op) { return op >= WOK_ELT_ADD && op <= WOK_ELT_MAX; }
static bool reads16(wok_eltwise_op op) { return op == WOK_ELT_F16_TO_F32 || op == WOK_ELT_BF16_TO_F32; }
static bool writes16(wok_eltwise_op op) { return op == WOK_ELT_F32_TO_F16 || op == WOK_ELT_F32_TO_BF16; }

/* ---- the oracle: written apart from the reference variant -------------------------------------------------------- */

struct answer {
    double want, bound; /* bound 0: equal bits */
};

static double clamp(double x, double lo, double hi) { return x < lo ? lo : x > hi ? hi : x; }

static struct answer relative(double want, double ulps, double tiny) {
    return (struct answer){want, ulps * 0x1p-24 * fabs(want) + tiny};
}

static struct answer unary(wok_eltwise_op op, double a, double p0, double p1) {
    const double u = 0x1p-24, one = fmax(1, fabs(a));
    switch (op) {
    case WOK_ELT_CLAMP: return (struct answer){clamp(a, p0, p1), 0};
    case WOK_ELT_GELU: return (struct answer){a * 0.5 * erfc(a * -0.70710678118654752), 4 * u * one};
    case WOK_ELT_GELU_TANH:
        return (struct answer){0.5 * a * (1 + tanh(0.79788456080286536 * (a + 0.044715 * (a * a * a)))), 4 * u * one};
    case WOK_ELT_TANH: return relative(tanh(a), 4, 0x1p-149);
    case WOK_ELT_SIGMOID: return relative(1 / (1 + exp(-a)), 6, exp(a) < 0x1p-125 ? 0x1p-126 : 0);
    case WOK_ELT_ERF: return relative(erf(a), 4, 0x1p-149);
    case WOK_ELT_EXP: return relative(exp(a), 4, exp(a) < 0x1p-125 ? 0x1p-126 : 0);
    case WOK_ELT_SQRT: return (struct answer){sqrt(a), 0};
    case WOK_ELT_RECIPROCAL: return (struct answer){1 / a, 0};
    case WOK_ELT_NEG: return (struct answer){-a, 0};
    case WOK_ELT_ABS: return (struct answer){fabs(a), 0};
    case WOK_ELT_HARD_SIGMOID: return (struct answer){clamp(p0 * a + p1, 0, 1), 4 * u * (1 + fabs(p0 * a) + fabs(p1))};
    case WOK_ELT_HARD_SWISH: return (struct answer){a * clamp(a / 6 + 0.5, 0, 1), 4 * u * fabs(a) + 0x1p-149};
    default: return relative(a / (1 + exp(-a)), 8, 0x1p-119); /* WOK_ELT_SILU */
    }
}

/* Double has more than 2 * 24 + 2 bits, so rounding its result once more gives the correctly rounded f32. */
static double binary(wok_eltwise_op op, double a, double b) {
    switch (op) {
    case WOK_ELT_ADD: return a + b;
    case WOK_ELT_SUB: return a - b;
    case WOK_ELT_MUL: return a * b;
    case WOK_ELT_DIV: return a / b;
    case WOK_ELT_MIN: return isnan(a) || isnan(b) ? (double)NAN : a < b ? a : b;
    default: return isnan(a) || isnan(b) ? (double)NAN : a > b ? a : b;
    }
}

static double half_value(uint16_t h) {
    int exponent = h >> 10 & 31, mantissa = h & 0x3ff;
    double magnitude = exponent == 31 ? (mantissa ? (double)NAN : (double)INFINITY)
                       : exponent     ? ldexp(1024 + mantissa, exponent - 25)
                                      : ldexp(mantissa, -24);
    return h & 0x8000 ? -magnitude : magnitude;
}

static uint16_t nearest_half(float x) {
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    double a = fabs((double)x);
    if (isnan(x)) return (uint16_t)(sign | 0x7e00 | (wok_f32_bits(x) >> 13 & 0x3ff));
    if (a >= 65520) return sign | 0x7c00;
    int exponent;
    frexp(a, &exponent); /* a in [2^(exponent-1), 2^exponent) */
    if (a < 0x1p-14) exponent = -13;
    /* in units of 2^(exponent-11): at most 2048, and the carry into the exponent field is the right one */
    uint32_t units = (uint32_t)nearbyint(ldexp(a, 11 - exponent));
    return (uint16_t)(sign | (units + ((uint32_t)(exponent + 13) << 10)));
}

static uint16_t nearest_bf16(float x) {
    uint32_t u = wok_f32_bits(x), rest = u & 0xffff, upper = u >> 16;
    if (isnan(x)) return (uint16_t)(upper | 0x40);
    if (rest > 0x8000 || (rest == 0x8000 && (upper & 1))) upper++;
    return (uint16_t)upper;
}

/* ---- one case ---------------------------------------------------------------------------------------------------- */

/* Every exponent and sign, mantissas that differ. */
static void fill_sweep(check *c, float *p, int64_t n) {
    uint32_t step = (uint32_t)(UINT32_MAX / (uint64_t)(n > 0 ? n : 1)), u = (uint32_t)check_random(c);
    for (int64_t i = 0; i < n; i++) p[i] = wok_f32_from_bits(u += step);
}

static void fill(check *c, const struct elt_case *e, void *p, int64_t n) {
    uint16_t *halves = p;
    if (e->fill == FILL_HALVES)
        for (int64_t i = 0; i < n; i++) halves[i] = (uint16_t)i;
    else if (reads16(e->op))
        for (int64_t i = 0; i < n; i++) halves[i] = (uint16_t)check_random(c);
    else if (e->fill == FILL_SWEEP)
        fill_sweep(c, p, n);
    else
        check_fill_f32(c, p, 1, n, n, e->mode);
}

static void compare_f32(check *c, int64_t i, float got, struct answer answer) {
    float want = (float)answer.want;
    if (answer.bound > 0)
        check_near(c, 0, i, got, answer.want, isfinite(answer.bound) ? answer.bound : 1);
    else if (!(isnan(got) && isnan(want)) && wok_f32_bits(got) != wok_f32_bits(want))
        check_fail(c, "element %d is %a, not %a", (int)i, (double)got, (double)want);
}

static void compare(check *c, const struct elt_case *e, const wok_eltwise_args *args, const void *a) {
    const float *x = a, *z = args->b, *y = args->y;
    const uint16_t *x16 = a, *y16 = args->y;
    for (int64_t i = 0; i < e->n; i++)
        if (writes16(e->op)) {
            uint16_t want = e->op == WOK_ELT_F32_TO_F16 ? nearest_half(x[i]) : nearest_bf16(x[i]);
            if (y16[i] != want)
                check_fail(c, "element %d: %a became %04x, not %04x", (int)i, (double)x[i], y16[i], want);
        } else if (reads16(e->op)) {
            float bf16 = wok_f32_from_bits((uint32_t)x16[i] << 16);
            compare_f32(c, i, y[i],
                        (struct answer){e->op == WOK_ELT_F16_TO_F32 ? half_value(x16[i]) : (double)bf16, 0});
        } else if (is_binary(e->op)) {
            double want = (float)binary(e->op, (double)x[i * e->a_step], (double)z[i * e->b_step]);
            compare_f32(c, i, y[i], (struct answer){clamp(want, (double)args->p0, (double)args->p1), 0});
        } else {
            compare_f32(c, i, y[i], unary(e->op, (double)x[i], (double)args->p0, (double)args->p1));
        }
}

/* Some elements again, each in a launch of its own: neither position nor n may show. */
static void compare_alone(check *c, const struct elt_case *e, wok_eltwise_args args, const void *a) {
    size_t in = reads16(e->op) ? 2 : 4, out = writes16(e->op) ? 2 : 4;
    const char *x = a, *z = args.b, *y = args.y;
    for (int i = 0; i < 4 && e->n > 0; i++) {
        int64_t at = check_range(c, 0, e->n - 1);
        float alone = 0;
        args.n = 1;
        args.a = x + (size_t)(at * e->a_step) * in;
        if (z) args.b = z + (size_t)(at * e->b_step) * sizeof(float);
        args.y = &alone;
        e->kernel->run(&(wok_eltwise_problem){e->op}, &args, NULL);
        if (out == sizeof alone && isnan(alone)) continue;
        check_equal(c, "an element alone and among others", y + (size_t)at * out, out, &alone, out, 1, out);
    }
}

static void elt_case(check *c, const void *arg) {
    const struct elt_case *e = arg;
    size_t in = reads16(e->op) ? 2 : 4, out = writes16(e->op) ? 2 : 4;
    int64_t a_n = e->a_step ? e->n : 1, b_n = e->b_step ? e->n : 1;
    wok_eltwise_args args = {.n = e->n, .a_step = e->a_step, .b_step = e->b_step};
    void *a = check_scratch(c, (size_t)(a_n + 1) * in), *x = NULL;
    fill(c, e, a, a_n);
    if (!e->in_place) x = check_input(c, 1, (size_t)a_n * in, (size_t)a_n * in);
    if (is_binary(e->op)) {
        float *z = check_input(c, 1, (size_t)b_n * sizeof *z, (size_t)b_n * sizeof *z);
        fill(c, e, z, b_n);
        args.b = z;
    }
    args.y = check_output(c, 1, (size_t)e->n * out, (size_t)e->n * out);
    args.a = e->in_place ? args.y : x;
    memcpy(e->in_place ? args.y : x, a, (size_t)a_n * in);
    args.p0 = is_binary(e->op) && !e->clamped ? -INFINITY : -0.25f;
    args.p1 = is_binary(e->op) && !e->clamped ? INFINITY : 0.75f;
    check_seal(c);
    e->kernel->run(&(wok_eltwise_problem){e->op}, &args, check_parallel(c));
    compare(c, e, &args, a);
    compare_alone(c, e, args, a);
}

static void run(check *c, struct elt_case e) {
    if (!check_accepts(c, &e.kernel->base, &(wok_eltwise_problem){e.op})) return;
    check_run(c, elt_case, &e, "op=%d n=%d steps=%d,%d clamp=%d in_place=%d fill=%d %s", (int)e.op, (int)e.n, e.a_step,
              e.b_step, e.clamped, e.in_place, (int)e.fill, check_mode_name(e.mode));
}

void check_eltwise(check *c, const wok_kernel *base, const wok_kernel *reference);
void bench_eltwise(check *c, const wok_kernel *base, const wok_kernel *reference);

void check_eltwise(check *c, const wok_kernel *base, const wok_kernel *reference) {
    (void)reference;
    for (int op = 0; op <= WOK_ELT_F32_TO_BF16; op++) {
        struct elt_case e = {.kernel = (const void *)base, .op = (wok_eltwise_op)op, .a_step = 1, .b_step = 1};
        bool same_size = !reads16(e.op) && !writes16(e.op);
        for (e.n = 0; e.n <= 67; e.n++) { /* every tail, every mode */
            e.mode = (check_mode)(e.n % CHECK_MODES);
            e.in_place = same_size && e.n % 3 == 1;
            e.clamped = e.n % 2;
            run(c, e);
        }
        e.in_place = e.clamped = false;
        e.n = 100;
        for (int mode = 0; mode < CHECK_MODES; mode++) {
            e.mode = (check_mode)mode;
            run(c, e);
        }
        e.mode = CHECK_UNIFORM;
        for (int steps = 0; is_binary(e.op) && steps < 3; steps++)
            for (e.n = 1; e.n <= 33; e.n += 4) {
                e.a_step = steps & 1;
                e.b_step = steps >> 1;
                e.clamped = e.n % 8 == 1;
                run(c, e);
            }
        e.a_step = e.b_step = 1;
        e.fill = FILL_SWEEP;
        for (e.n = 20011; e.n <= 3 * WOK_ELTWISE_GRAIN + 5; e.n += 29147) { /* all exponents; more than one task */
            e.in_place = same_size && e.n > 30000;
            run(c, e);
        }
        if (!reads16(e.op)) continue;
        e.fill = FILL_HALVES;
        e.n = 1 << 16;
        run(c, e);
    }
}

/* ---- benchmarks: the intermediate activations of a BERT-base layer ----------------------------------------------- */

struct elt_bench {
    const wok_eltwise_kernel *kernel;
    wok_eltwise_problem problem;
    wok_eltwise_args args;
};

static void bench_run(void *arg) {
    struct elt_bench *b = arg;
    b->kernel->run(&b->problem, &b->args, NULL);
}

void bench_eltwise(check *c, const wok_kernel *base, const wok_kernel *reference) {
    (void)reference;
    static const struct {
        wok_eltwise_op op;
        const char *name;
    } ops[] = {{WOK_ELT_ADD, "add"},   {WOK_ELT_GELU, "gelu"}, {WOK_ELT_GELU_TANH, "gelu_tanh"},
               {WOK_ELT_TANH, "tanh"}, {WOK_ELT_EXP, "exp"},   {WOK_ELT_F32_TO_F16, "f32_to_f16"}};
    const int64_t n = 128 * 3072;
    float *a = check_input(c, 1, (size_t)n * 4, (size_t)n * 4), *y = check_output(c, 1, (size_t)n * 4, (size_t)n * 4);
    check_fill_f32(c, a, 1, n, n, CHECK_UNIFORM);
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        struct elt_bench b = {(const void *)base, {ops[i].op}, {n, a, a, 1, 1, y, -INFINITY, INFINITY}};
        check_bench(c, bench_run, &b, (double)n * 1e-9, "Gelement", false, "%s 128x3072", ops[i].name);
    }
}

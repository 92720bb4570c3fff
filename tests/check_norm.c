/* check_norm.c - norm against sums in double, within the bounds of norm.h. */
#include "checkwok.h"
#include "norm/norm.h"

enum {
    RESIDUAL = 1,
    BIAS = 2,
    GAMMA = 4,
    BETA = 8,
    SUM = 16,
    IN_PLACE = 32,
    OVER_RESIDUAL = 64,
    PADDED = 128,
    FLAGS = 256
};

struct norm_case {
    const wok_norm_kernel *kernel;
    wok_norm_op op;
    int64_t rows, cols;
    unsigned with;
    check_mode mode;
};

static size_t bytes(int64_t floats) { return (size_t)floats * sizeof(float); }

static bool is_softmax(wok_norm_op op) { return op >= WOK_NORM_SOFTMAX; }

static float *filled(check *c, int64_t rows, int64_t cols, int64_t stride, bool output, check_mode mode) {
    float *p =
        output ? check_output(c, rows, bytes(cols), bytes(stride)) : check_input(c, rows, bytes(cols), bytes(stride));
    check_fill_f32(c, p, rows, cols, stride, mode);
    return p;
}

static float *copied(check *c, const float *p, int64_t stride, int64_t rows, int64_t cols) {
    float *copy = check_scratch(c, bytes(rows * cols) + 1);
    for (int64_t i = 0; i < rows; i++) memcpy(copy + i * cols, p + i * stride, bytes(cols));
    return copy;
}

/* ---- the oracle, one row, v already summed in f32 ---------------------------------------------------------------- */

static void compare_layer(check *c, const struct norm_case *n, const wok_norm_args *args, int64_t row, const float *v) {
    const double u = 0x1p-24, cols = (double)n->cols;
    const float *y = args->y + row * args->y_stride;
    double mean = 0, square = 0, spread = 0;
    for (int64_t j = 0; n->op == WOK_NORM_LAYER && j < n->cols; j++) mean += (double)v[j];
    mean /= cols;
    for (int64_t j = 0; j < n->cols; j++) {
        double d = (double)v[j] - mean;
        square += d * d / cols;
        spread += fabs(d) / cols;
    }
    double scale = 1 / sqrt(square + (double)args->eps);
    for (int64_t j = 0; j < n->cols; j++) {
        double gamma = args->gamma ? (double)args->gamma[j] : 1, beta = args->beta ? (double)args->beta[j] : 0;
        double d = (double)v[j] - mean, want = d * scale * gamma + beta;
        double bound = (8 + sqrt(cols)) * u * scale * fabs(gamma) * (fabs(d) + spread) + 4 * u * fabs(beta) +
                       0x1p-148 * (1 + scale) * (1 + fabs(gamma));
        if (!check_near(c, row, j, y[j], want, isfinite(bound) ? bound : 1)) return;
    }
}

static void compare_softmax(check *c, const struct norm_case *n, const wok_norm_args *args, int64_t row,
                            const float *x) {
    const double u = 0x1p-24, growth = 8 + sqrt((double)n->cols);
    const float *y = args->y + row * args->y_stride;
    double max = -INFINITY, sum = 0;
    for (int64_t j = 0; j < n->cols; j++) max = (double)x[j] > max ? (double)x[j] : max;
    for (int64_t j = 0; j < n->cols; j++) sum += exp((double)x[j] - max);
    for (int64_t j = 0; j < n->cols; j++) {
        double below = (double)x[j] - max, want, bound;
        if (n->op == WOK_NORM_SOFTMAX) {
            want = exp(below) / sum;
            bound = want > 0 ? (growth + fabs(below)) * u * want + (want < 0x1p-125 ? 0x1p-126 : 0) : 0;
        } else {
            want = below - log(sum);
            bound = (growth + 2 * fabs(want) + fabs(below)) * u;
        }
        if (!check_near(c, row, j, y[j], want, isfinite(bound) ? bound : 1)) return;
    }
}

/* ---- one case ---------------------------------------------------------------------------------------------------- */

/* One row in a launch of its own, out of place. */
static void compare_alone(check *c, const struct norm_case *n, wok_norm_args args, const float *x,
                          const float *residual) {
    int64_t row = check_range(c, 0, n->rows - 1);
    float *alone = check_scratch(c, bytes(n->cols));
    const float *y = args.y + row * args.y_stride;
    args.rows = 1;
    args.x = x + row * n->cols;
    args.residual = residual ? residual + row * n->cols : NULL;
    args.y = alone;
    args.sum = NULL;
    n->kernel->run(&(wok_norm_problem){n->op, n->cols}, &args, NULL);
    check_equal(c, "a row alone and among others", y, bytes(n->cols), alone, bytes(n->cols), 1, bytes(n->cols));
}

static void norm_case(check *c, const void *arg) {
    const struct norm_case *n = arg;
    unsigned with = n->with;
    int64_t rows = n->rows, cols = n->cols, pad = with & PADDED ? 3 : 0;
    bool over_x = with & IN_PLACE, over_residual = !over_x && (with & OVER_RESIDUAL) && (with & RESIDUAL);
    wok_norm_args args = {.rows = rows, .cols = cols, .eps = 1e-12f};
    args.x_stride = cols + pad;
    args.residual_stride = cols + 2 * pad;
    args.y_stride = over_x ? args.x_stride : over_residual ? args.residual_stride : cols + 5 * pad;
    args.sum_stride = cols + 4 * pad;
    float *x = filled(c, rows, cols, args.x_stride, over_x, n->mode), *residual = NULL;
    if (with & RESIDUAL) residual = filled(c, rows, cols, args.residual_stride, over_residual, n->mode);
    if (with & BIAS) args.bias = filled(c, 1, cols, cols, false, CHECK_UNIFORM);
    if (with & GAMMA) args.gamma = filled(c, 1, cols, cols, false, CHECK_UNIFORM);
    if (with & BETA) args.beta = filled(c, 1, cols, cols, false, CHECK_UNIFORM);
    if (with & SUM) args.sum = check_output(c, rows, bytes(cols), bytes(args.sum_stride));
    args.x = x;
    args.residual = residual;
    args.y = over_x ? x : over_residual ? residual : check_output(c, rows, bytes(cols), bytes(args.y_stride));
    float *x_copy = copied(c, x, args.x_stride, rows, cols);
    float *residual_copy = residual ? copied(c, residual, args.residual_stride, rows, cols) : NULL;
    check_seal(c);
    n->kernel->run(&(wok_norm_problem){n->op, cols % 2 ? cols : 0}, &args, check_parallel(c));

    float *v = check_scratch(c, bytes(cols));
    for (int64_t i = 0; i < rows; i++) {
        for (int64_t j = 0; j < cols; j++) {
            v[j] = x_copy[i * cols + j];
            if (is_softmax(n->op)) continue;
            if (residual) v[j] += residual_copy[i * cols + j];
            if (args.bias) v[j] += args.bias[j];
            if (args.sum) check_near(c, i, j, args.sum[i * args.sum_stride + j], (double)v[j], 0);
        }
        if (is_softmax(n->op))
            compare_softmax(c, n, &args, i, v);
        else
            compare_layer(c, n, &args, i, v);
    }
    if (rows > 0) compare_alone(c, n, args, x_copy, residual_copy);
}

static void run(check *c, struct norm_case n) {
    if (is_softmax(n.op)) n.with &= IN_PLACE | PADDED;
    if (!check_accepts(c, &n.kernel->base, &(wok_norm_problem){n.op, n.cols})) return;
    check_run(c, norm_case, &n, "op=%d rows=%d cols=%d with=%u %s", (int)n.op, (int)n.rows, (int)n.cols, n.with,
              check_mode_name(n.mode));
}

/* Softmax rows that people meet: all masked, one survivor, beyond every exponent. */
struct softmax_rows {
    const wok_norm_kernel *kernel;
    int64_t cols;
};

static void softmax_rows(check *c, const void *arg) {
    const struct softmax_rows *s = arg;
    enum { ROWS = 5 };
    float *x = check_input(c, ROWS, bytes(s->cols), bytes(s->cols)),
          *y = check_output(c, ROWS, bytes(s->cols), bytes(s->cols));
    int64_t last = s->cols - 1;
    for (int64_t j = 0; j < s->cols; j++) {
        x[j] = -INFINITY;
        x[s->cols + j] = j == last ? -50.0f : -INFINITY;
        x[2 * s->cols + j] = -3.4028235e38f;
        x[3 * s->cols + j] = j == last ? 3.4e38f : -3.4e38f;
        x[4 * s->cols + j] = j == last ? NAN : 1.0f;
    }
    check_seal(c);
    wok_norm_args args = {ROWS, s->cols, x, s->cols, NULL, 0, NULL, NULL, NULL, 0, NULL, 0, y, s->cols};
    s->kernel->run(&(wok_norm_problem){WOK_NORM_SOFTMAX, s->cols}, &args, check_parallel(c));
    double even = 1 / (double)s->cols;
    for (int64_t j = 0; j < s->cols; j++) {
        check_near(c, 0, j, y[j], (double)NAN, 0);
        check_near(c, 1, j, y[s->cols + j], j == last, 0);
        check_near(c, 2, j, y[2 * s->cols + j], even, 0x1p-22 * even);
        check_near(c, 3, j, y[3 * s->cols + j], j == last, 0);
        check_near(c, 4, j, y[4 * s->cols + j], (double)NAN, 0);
    }
}

void check_norm(check *c, const wok_kernel *base, const wok_kernel *reference);
void bench_norm(check *c, const wok_kernel *base, const wok_kernel *reference);

void check_norm(check *c, const wok_kernel *base, const wok_kernel *reference) {
    (void)reference;
    struct norm_case n = {.kernel = (const void *)base};
    for (int op = WOK_NORM_LAYER; op <= WOK_NORM_LOG_SOFTMAX; op++) {
        n.op = (wok_norm_op)op;
        for (n.cols = 1; n.cols <= 67; n.cols++) /* every tail */
            for (int turn = 0; turn < 4; turn++) {
                n.rows = (n.cols + turn) % 5;
                n.with = (unsigned)(n.cols * 37 + turn * 101) % FLAGS;
                n.mode = (check_mode)((n.cols + turn * 3) % CHECK_MODES);
                run(c, n);
            }
        static const int64_t widths[] = {127, 128, 129, 384, 768, 1023, 1024, 3072};
        for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
            for (int mode = 0; mode < CHECK_MODES; mode++) {
                n.cols = widths[i];
                n.rows = mode % 2 ? 3 : 17; /* more than one task */
                n.mode = (check_mode)mode;
                n.with = (unsigned)(i * 53 + (size_t)mode * 29) % FLAGS;
                run(c, n);
            }
        for (unsigned with = 0; with < FLAGS; with++) { /* every set of operands */
            n = (struct norm_case){n.kernel, n.op, 3, 45, with, CHECK_UNIFORM};
            if (!is_softmax(n.op) || !(with & ~(unsigned)(IN_PLACE | PADDED))) run(c, n);
        }
    }
    for (int64_t cols = 1; cols <= 40; cols += 13)
        check_run(c, softmax_rows, &(struct softmax_rows){n.kernel, cols}, "softmax rows cols=%d", (int)cols);
}

/* ---- benchmarks -------------------------------------------------------------------------------------------------- */

struct norm_bench {
    const wok_norm_kernel *kernel;
    wok_norm_problem problem;
    wok_norm_args args;
};

static void bench_run(void *arg) {
    struct norm_bench *b = arg;
    b->kernel->run(&b->problem, &b->args, NULL);
}

void bench_norm(check *c, const wok_kernel *base, const wok_kernel *reference) {
    (void)reference;
    const int64_t rows = 128, cols = 768;
    float *x = filled(c, rows, cols, cols, false, CHECK_UNIFORM),
          *r = filled(c, rows, cols, cols, false, CHECK_UNIFORM);
    float *g = filled(c, 1, cols, cols, false, CHECK_UNIFORM), *y = check_output(c, rows, bytes(cols), bytes(cols));
    static const char *const names[] = {"layer with residual", "rms with residual", "softmax", "log_softmax"};
    for (int op = WOK_NORM_LAYER; op <= WOK_NORM_LOG_SOFTMAX; op++) {
        struct norm_bench b = {(const void *)base,
                               {(wok_norm_op)op, cols},
                               {rows, cols, x, cols, r, cols, NULL, g, g, 1e-12f, NULL, 0, y, cols}};
        check_bench(c, bench_run, &b, (double)(rows * cols) * 1e-9, "Gelement", false, "%s 128x768", names[op]);
    }
}

/* check_attn.c - attn against sums in double, within the bound of attn.h, and its promises bit by bit: keys of weight 0
 * at the end, neighbours, blocks of queries and NaN elsewhere do not show in a row. */
#include "checkwok.h"
#include "attn/attn.h"

#include <stdio.h>

enum bias_kind { NO_BIAS, KEY_MASK, FULL_BIAS, STRIDED_BIAS, BIAS_KINDS };

enum { MAX_SEQUENCES = 6 };

struct attn_case {
    const wok_attn_kernel *kernel;
    wok_attn_problem problem;
    int64_t count, q_rows[MAX_SEQUENCES], k_rows[MAX_SEQUENCES];
    enum bias_kind bias;
    bool fused; /* q, k and v are columns of one matrix, queries and keys the same rows */
    check_mode mode;
};

/* Operands of a case and where everything stands. */
struct operands {
    wok_attn_sequence sequences[MAX_SEQUENCES];
    wok_attn_args args;
    float *q, *k, *v, *bias;
    int64_t q_total, k_total, longest_q, longest_k, width, value_width;
};

/* Workspaces are as large as the executor of the pass asks for, to the byte. */
static void *workspace(check *c, const wok_attn_kernel *kernel, const wok_attn_problem *problem, int64_t q_rows,
                       int64_t k_rows) {
    return check_workspace(c,
                           kernel->workspace_bytes(problem, q_rows, k_rows, wok_parallel_threads(check_parallel(c))));
}

static size_t bytes(int64_t floats) { return (size_t)floats * sizeof(float); }

static float *matrix(check *c, int64_t rows, int64_t cols, int64_t stride, check_mode mode) {
    float *p = check_input(c, rows, bytes(cols), bytes(stride));
    check_fill_f32(c, p, rows, cols, stride, mode);
    return p;
}

/* Queries and keys of the sequences stand in reverse order with unused rows between them. */
static void place(const struct attn_case *a, struct operands *o) {
    for (int64_t s = a->count - 1; s >= 0; s--) {
        o->sequences[s] = (wok_attn_sequence){o->q_total, a->q_rows[s], o->k_total, a->k_rows[s]};
        o->q_total += a->q_rows[s] + 1;
        o->k_total += a->k_rows[s] + (a->fused ? 1 : 2);
        o->longest_q = wok_max64(o->longest_q, a->q_rows[s]);
        o->longest_k = wok_max64(o->longest_k, a->k_rows[s]);
    }
}

static void make_bias(check *c, const struct attn_case *a, struct operands *o) {
    wok_attn_args *args = &o->args;
    int64_t keys = wok_max64(o->longest_k, 1), queries = wok_max64(o->longest_q, 1), heads = a->problem.heads;
    int64_t step = a->bias == STRIDED_BIAS ? 3 : 1, rows = a->bias == KEY_MASK ? a->count : a->count * heads * queries;
    if (a->bias == NO_BIAS) return;
    /* rows of the matrix are (sequence, head, query), or sequences alone */
    int64_t row = keys * step;
    o->bias = check_input(c, rows, bytes(row - step + 1), bytes(row + 1));
    args->bias = o->bias;
    args->bias_key_stride = step;
    args->bias_query_stride = a->bias == KEY_MASK ? 0 : row + 1;
    args->bias_head_stride = a->bias == KEY_MASK ? 0 : queries * (row + 1);
    args->bias_sequence_stride = a->bias == KEY_MASK ? row + 1 : heads * queries * (row + 1);
    static const float masks[] = {-INFINITY, -10000.0f, -3.4028235e38f};
    check_fill_f32(c, o->bias, rows, row - step + 1, row + 1, CHECK_UNIFORM);
    for (int64_t i = 0; i < rows; i++) {
        float mask = masks[i % 3];
        for (int64_t j = 0; j < keys; j++) /* some keys masked, now and then a whole row */
            if (check_range(c, 0, 3) == 0 || i % 7 == 6) o->bias[i * (row + 1) + j * step] = mask;
    }
}

static void allocate(check *c, const struct attn_case *a, struct operands *o) {
    const wok_attn_problem *p = &a->problem;
    wok_attn_args *args = &o->args;
    place(a, o);
    o->width = p->heads * p->head_dim;
    o->value_width = p->heads * p->value_dim;
    args->q_head_stride = args->k_head_stride = p->head_dim;
    args->v_head_stride = args->y_head_stride = p->value_dim;
    if (a->fused) {
        int64_t all = 2 * o->width + o->value_width, rows = wok_max64(o->q_total, o->k_total);
        o->q = matrix(c, rows, all, all, a->mode);
        o->k = o->q + o->width;
        o->v = o->k + o->width;
        args->q_row_stride = args->k_row_stride = args->v_row_stride = all;
    } else {
        args->q_row_stride = o->width + 3;
        args->k_row_stride = o->width;
        args->v_row_stride = o->value_width + 1;
        o->q = matrix(c, o->q_total, o->width, args->q_row_stride, a->mode);
        o->k = matrix(c, o->k_total, o->width, args->k_row_stride, a->mode);
        o->v = matrix(c, o->k_total, o->value_width, args->v_row_stride, a->mode);
    }
    args->y_row_stride = o->value_width + 2;
    args->y = check_output(c, o->q_total, bytes(o->value_width), bytes(args->y_row_stride));
    args->q = o->q;
    args->k = o->k;
    args->v = o->v;
    args->sequences = o->sequences;
    args->sequence_count = a->count;
    args->scale = (float)(1 / sqrt((double)p->head_dim));
    make_bias(c, a, o);
    args->workspace = workspace(c, a->kernel, p, o->longest_q, o->longest_k);
}

/* ---- the oracle -------------------------------------------------------------------------------------------------- */

/* How far n roundings lead, in units of one: all in one direction where the operands are alike, else as a random walk.
 *  */
static double growth(const struct attn_case *a, int64_t n) {
    return a->mode == CHECK_UNIFORM ? 2 * sqrt((double)n) : (double)n;
}

/* Scores of a row as the contract rounds them, and E of attn.h for each key. */
static void score(const struct attn_case *a, const wok_attn_args *args, int64_t s, int64_t h, int64_t i, double *t,
                  double *error) {
    const wok_attn_sequence *sequence = &args->sequences[s];
    const float *q = args->q + (sequence->q_row + i) * args->q_row_stride + h * args->q_head_stride;
    for (int64_t j = 0; j < sequence->k_rows; j++) {
        const float *k = args->k + (sequence->k_row + j) * args->k_row_stride + h * args->k_head_stride;
        double dot = 0, size = 0;
        for (int64_t d = 0; d < a->problem.head_dim; d++) {
            dot += (double)q[d] * (double)k[d];
            size += fabs((double)q[d] * (double)k[d]);
        }
        float x = (float)dot * args->scale;
        if (args->bias)
            x += args->bias[s * args->bias_sequence_stride + h * args->bias_head_stride + i * args->bias_query_stride +
                            j * args->bias_key_stride];
        t[j] = (double)x;
        error[j] = growth(a, a->problem.head_dim) * (double)args->scale * size + 2 * fabs(t[j]);
    }
}

static bool compare_row(check *c, const struct attn_case *a, const wok_attn_args *args, int64_t s, int64_t h, int64_t i,
                        double *t, double *error) {
    const wok_attn_sequence *sequence = &args->sequences[s];
    const float *v = args->v + sequence->k_row * args->v_row_stride + h * args->v_head_stride;
    const float *y = args->y + (sequence->q_row + i) * args->y_row_stride + h * args->y_head_stride;
    double max = -INFINITY, sum = 0, worst = 0;
    score(a, args, s, h, i, t, error);
    for (int64_t j = 0; j < sequence->k_rows; j++) max = t[j] > max ? t[j] : max;
    for (int64_t j = 0; j < sequence->k_rows; j++) {
        if (t[j] > max - 30) worst = fmax(worst, error[j]);
        sum += t[j] = exp(t[j] - (isinf(max) ? 0 : max));
    }
    for (int64_t d = 0; d < a->problem.value_dim; d++) {
        double want = 0, size = 0, all = 1; /* all: what flushed weights could have carried */
        for (int64_t j = 0; j < sequence->k_rows; j++) {
            want += t[j] * (double)v[j * args->v_row_stride + d];
            size += t[j] * fabs((double)v[j * args->v_row_stride + d]);
            all += fabs((double)v[j * args->v_row_stride + d]);
        }
        if (sum == 0)
            want = size = 0;
        else
            want /= sum, size /= sum;
        double bound = (16 + growth(a, sequence->k_rows) + 2 * worst) * 0x1p-24 * size + 0x1p-126 * all;
        if (!check_near(c, (sequence->q_row + i), h * a->problem.value_dim + d, y[d], want,
                        isfinite(bound) ? bound : 1))
            return false;
    }
    return true;
}

/* One query row again, in a launch of its own: sequences, blocks and threads do not show. */
static void compare_alone(check *c, const struct attn_case *a, const struct operands *o) {
    wok_attn_args args = o->args;
    int64_t s = check_range(c, 0, a->count - 1), q_rows = a->q_rows[s];
    if (q_rows == 0) return;
    int64_t i = check_range(c, 0, q_rows - 1), row = o->sequences[s].q_row + i;
    float *alone = check_scratch(c, bytes(o->value_width));
    wok_attn_sequence one = {0, 1, o->sequences[s].k_row, a->k_rows[s]};
    args.sequences = &one;
    args.sequence_count = 1;
    args.q += row * args.q_row_stride;
    args.y = alone;
    args.y_row_stride = o->value_width;
    if (args.bias) args.bias += s * args.bias_sequence_stride + i * args.bias_query_stride;
    a->kernel->run(&a->problem, &args, NULL);
    check_equal(c, "a query alone and among others", o->args.y + row * o->args.y_row_stride, bytes(o->value_width),
                alone, bytes(o->value_width), 1, bytes(o->value_width));
}

static void attn_case(check *c, const void *arg) {
    const struct attn_case *a = arg;
    struct operands o = {0};
    allocate(c, a, &o);
    check_seal(c);
    a->kernel->run(&a->problem, &o.args, check_parallel(c));
    double *t = check_scratch(c, (size_t)(o.longest_k + 1) * sizeof *t);
    double *error = check_scratch(c, (size_t)(o.longest_k + 1) * sizeof *error);
    for (int64_t s = 0; s < a->count; s++)
        for (int64_t h = 0; h < a->problem.heads; h++)
            for (int64_t i = 0; i < a->q_rows[s]; i++)
                if (!compare_row(c, a, &o.args, s, h, i, t, error)) return;
    compare_alone(c, a, &o);
}

static void run(check *c, struct attn_case a) {
    if (!check_accepts(c, &a.kernel->base, &a.problem)) return;
    char text[160];
    int used = 0;
    for (int64_t s = 0; s < a.count; s++)
        used += snprintf(text + used, sizeof text - (size_t)used, " %dx%d", (int)a.q_rows[s], (int)a.k_rows[s]);
    check_run(c, attn_case, &a, "heads=%d dims=%d,%d%s bias=%d fused=%d %s", (int)a.problem.heads,
              (int)a.problem.head_dim, (int)a.problem.value_dim, text, (int)a.bias, a.fused, check_mode_name(a.mode));
}

/* ---- padding at the end ------------------------------------------------------------------------------------------ */

struct padding_case {
    const wok_attn_kernel *kernel;
    int64_t q_rows, keys, padded;
    float mask;
};

/* The same queries against `keys` keys, and against `padded` with the mask on the additional ones. */
static void padding_case(check *c, const void *arg) {
    const struct padding_case *p = arg;
    const wok_attn_problem problem = {2, 20, 20};
    const int64_t width = problem.heads * problem.head_dim, q_rows = p->q_rows;
    float *q = matrix(c, q_rows, width, width, CHECK_UNIFORM);
    float *k = matrix(c, p->padded, width, width, CHECK_UNIFORM),
          *v = matrix(c, p->padded, width, width, CHECK_UNIFORM);
    float *bias = check_input(c, 1, bytes(p->padded), bytes(p->padded));
    for (int64_t j = 0; j < p->padded; j++) bias[j] = j < p->keys ? 0 : p->mask;
    float *y = check_output(c, 2 * q_rows, bytes(width), bytes(width));
    check_seal(c);
    wok_attn_sequence sequence = {0, q_rows, 0, p->keys};
    wok_attn_args args = {.sequences = &sequence,
                          .sequence_count = 1,
                          .q = q,
                          .k = k,
                          .v = v,
                          .y = y,
                          .scale = 0.2f,
                          .bias = bias,
                          .bias_key_stride = 1};
    args.q_row_stride = args.k_row_stride = args.v_row_stride = args.y_row_stride = width;
    args.q_head_stride = args.k_head_stride = args.v_head_stride = args.y_head_stride = problem.head_dim;
    args.workspace = workspace(c, p->kernel, &problem, q_rows, p->padded);
    p->kernel->run(&problem, &args, check_parallel(c));
    sequence.k_rows = p->padded;
    args.y = y + q_rows * width;
    p->kernel->run(&problem, &args, check_parallel(c));
    if (!(p->kernel->base.flags & WOK_KERNEL_REFERENCE)) /* the oracle keeps e^-90 in double */
        check_equal(c, "keys of weight 0 at the end", args.y, bytes(width), y, bytes(width), q_rows, bytes(width));
}

/* ---- rows without an answer -------------------------------------------------------------------------------------- */

struct odd_case {
    const wok_attn_kernel *kernel;
    int64_t keys;
};

/* Query 1 is NaN, query 2 sees no key, query 3 only keys at -3.4e38; query 4 is as ordinary as query 0. */
static void odd_case(check *c, const void *arg) {
    const struct odd_case *o = arg;
    enum { QUERIES = 5, DIM = 9 };
    const wok_attn_problem problem = {1, DIM, DIM};
    float *q = matrix(c, QUERIES, DIM, DIM, CHECK_UNIFORM), *k = matrix(c, o->keys, DIM, DIM, CHECK_UNIFORM);
    float *v = matrix(c, o->keys, DIM, DIM, CHECK_UNIFORM), *y = check_output(c, QUERIES, bytes(DIM), bytes(DIM));
    float *bias = check_input(c, QUERIES, bytes(o->keys), bytes(o->keys));
    for (int64_t j = 0; j < QUERIES * o->keys; j++)
        bias[j] = j / o->keys == 2 ? -INFINITY : j / o->keys == 3 ? -3.4028235e38f : 0;
    q[DIM + 3] = NAN;
    memcpy(q + 4 * DIM, q, bytes(DIM));
    check_seal(c);
    wok_attn_sequence sequence = {0, QUERIES, 0, o->keys};
    wok_attn_args args = {.sequences = &sequence,
                          .sequence_count = 1,
                          .q = q,
                          .k = k,
                          .v = v,
                          .y = y,
                          .scale = 0.3f,
                          .bias = bias,
                          .bias_query_stride = o->keys,
                          .bias_key_stride = 1};
    args.q_row_stride = args.k_row_stride = args.v_row_stride = args.y_row_stride = DIM;
    args.workspace = workspace(c, o->kernel, &problem, QUERIES, o->keys);
    o->kernel->run(&problem, &args, check_parallel(c));
    for (int d = 0; d < DIM; d++) {
        double mean = 0, size = 0;
        for (int64_t j = 0; j < o->keys; j++)
            mean += (double)v[j * DIM + d] / (double)o->keys, size += fabs((double)v[j * DIM + d]) / (double)o->keys;
        check_near(c, 1, d, y[DIM + d], (double)NAN, 0);
        check_near(c, 2, d, y[2 * DIM + d], 0, 0);
        check_near(c, 3, d, y[3 * DIM + d], mean, (16 + 2 * sqrt((double)o->keys)) * 0x1p-24 * size);
    }
    check_equal(c, "equal queries around a NaN", y + 4 * DIM, bytes(DIM), y, bytes(DIM), 1, bytes(DIM));
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

void check_attn(check *c, const wok_kernel *base, const wok_kernel *reference);
void bench_attn(check *c, const wok_kernel *base, const wok_kernel *reference);

static void check_shapes(check *c, const wok_attn_kernel *kernel) {
    struct attn_case a = {.kernel = kernel, .problem = {1, 5, 5}, .count = 1};
    for (int64_t q = 0; q <= 25; q++) /* every tail of rows and keys */
        for (int64_t k = 0; k <= 35; k++) {
            a.q_rows[0] = q;
            a.k_rows[0] = k;
            a.bias = (enum bias_kind)((q + k) % BIAS_KINDS);
            a.mode = (check_mode)((q * 3 + k) % CHECK_FINITE_MODES);
            run(c, a);
        }
    for (int64_t d = 1; d <= 70; d++) /* every width, of heads and values */
        for (int turn = 0; turn < 2; turn++) {
            a = (struct attn_case){kernel,  {3, turn ? 70 - d + 1 : d, d}, 2,    {7, 3},
                                   {18, 5}, turn ? KEY_MASK : NO_BIAS,     turn, CHECK_UNIFORM};
            run(c, a);
        }
    for (int bias = 0; bias < BIAS_KINDS; bias++) /* ragged lists, sequences without queries or keys */
        for (int mode = 0; mode < CHECK_FINITE_MODES; mode++) {
            a = (struct attn_case){
                kernel,   {2, 16, 16},     6, {1, 30, 0, 4, 7, 50}, {9, 40, 3, 0, 128, 1}, (enum bias_kind)bias,
                mode % 2, (check_mode)mode};
            run(c, a);
        }
}

static void check_lengths(check *c, const wok_attn_kernel *kernel) {
    static const int64_t lengths[] = {64, 128, 384, 511, 512, 513, 529, 1024, 1100};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        int64_t n = lengths[i];
        struct attn_case a = {kernel, {1, 64, 64},  1, {n < 300 ? n : 26}, {n}, (enum bias_kind)(i % BIAS_KINDS),
                              false,  CHECK_UNIFORM};
        run(c, a);
        a = (struct attn_case){kernel, {4, 32, 32}, 2, {5, 2}, {n, 70}, KEY_MASK, true, CHECK_UNIFORM};
        run(c, a);
    }
    run(c, (struct attn_case){kernel, {1, 4, 4}, 1, {1000}, {3}, FULL_BIAS, false, CHECK_UNIFORM}); /* query groups */
    run(c, (struct attn_case){kernel, {1, 4, 20}, 1, {500}, {520}, NO_BIAS, false, CHECK_UNIFORM});
    run(c, (struct attn_case){kernel, {12, 64, 64}, 1, {128}, {128}, KEY_MASK, true, CHECK_UNIFORM}); /* BERT-base */
}

void check_attn(check *c, const wok_kernel *base, const wok_kernel *reference) {
    (void)reference;
    const wok_attn_kernel *kernel = (const void *)base;
    check_shapes(c, kernel);
    check_lengths(c, kernel);
    static const int64_t pairs[][2] = {{1, 2},     {1, 17},    {7, 8},     {16, 17},    {15, 64},   {128, 200},
                                       {500, 512}, {505, 513}, {512, 513}, {512, 1024}, {513, 529}, {30, 1500}};
    static const float masks[] = {-INFINITY, -10000.0f, -3.4028235e38f};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        for (int m = 0; m < 3; m++)
            check_run(c, padding_case, &(struct padding_case){kernel, 9, pairs[i][0], pairs[i][1], masks[m]},
                      "padding %d to %d with %g", (int)pairs[i][0], (int)pairs[i][1], (double)masks[m]);
    static const int64_t keys[] = {1, 8, 31, 600};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        check_run(c, odd_case, &(struct odd_case){kernel, keys[i]}, "odd rows keys=%d", (int)keys[i]);
}

/* ---- benchmarks -------------------------------------------------------------------------------------------------- */

struct attn_bench {
    const wok_attn_kernel *kernel;
    wok_attn_problem problem;
    wok_attn_args args;
};

static void bench_run(void *arg) {
    struct attn_bench *b = arg;
    b->kernel->run(&b->problem, &b->args, NULL);
}

void bench_attn(check *c, const wok_kernel *base, const wok_kernel *reference) {
    (void)reference;
    static const int64_t shapes[][3] = {{12, 64, 128}, {12, 64, 512}, {12, 32, 128}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        int64_t heads = shapes[i][0], dim = shapes[i][1], n = shapes[i][2], width = heads * dim;
        struct attn_bench b = {.kernel = (const void *)base, .problem = {heads, dim, dim}};
        float *qkv = matrix(c, n, 3 * width, 3 * width, CHECK_UNIFORM), *mask = matrix(c, 1, n, n, CHECK_CONSTANT);
        wok_attn_sequence sequence = {0, n, 0, n};
        b.args = (wok_attn_args){.sequences = &sequence,
                                 .sequence_count = 1,
                                 .q = qkv,
                                 .k = qkv + width,
                                 .v = qkv + 2 * width,
                                 .scale = 0.125f,
                                 .bias = mask,
                                 .bias_key_stride = 1};
        b.args.y = check_output(c, n, bytes(width), bytes(width));
        b.args.q_row_stride = b.args.k_row_stride = b.args.v_row_stride = 3 * width;
        b.args.q_head_stride = b.args.k_head_stride = b.args.v_head_stride = b.args.y_head_stride = dim;
        b.args.y_row_stride = width;
        b.args.workspace = workspace(c, b.kernel, &b.problem, n, n);
        check_bench(c, bench_run, &b, 2e-9 * (double)(n * n * width), "GMAC", false, "%d heads of %d, length %d",
                    (int)heads, (int)dim, (int)n);
    }
}

/* attn_blocked.h - the loops around the vector kernels of attention, compiled into each vector variant.
 *
 *   task = a span of (sequence, head, 6 query rows) with an equal share of the work
 *     query group (480 rows)            running maximum and sum of its rows, accumulators in y
 *       key block (512 keys)            K packed transposed [key / 16][head_dim][16], V packed [column / 16][key][16]
 *         query block (24 rows)         Q copied together; T = Q K^T -> p = exp(T - max) in place -> Y += P V
 *
 * The tile T of 24 x 512 scores is all that is ever stored of the score matrix. A worker's memory is bounded by the
 * widths and one key block, whatever the length. Copies cost 2-4 % and buy both products the same unit-stride
 * micro-kernel, free of cache-set conflicts when rows of a fused QKV matrix are a multiple of 4 KiB apart.
 *
 * The including file defines before it:
 *   attn_tile     rows <= ATTN_ROWS by cols <= ATTN_COLS of C = C * rescale + A B, then * inverse
 *   attn_softmax  scale, bias, maximum, exponential and sum of one row of T
 *   attn_pack_keys, attn_pack_values */
#ifndef WOK_ATTN_BLOCKED_H
#define WOK_ATTN_BLOCKED_H

#include "attn_tile.h"

enum { ATTN_QUERY_BLOCK = 24, ATTN_QUERY_GROUP = 480 };

/* One worker's memory, in floats; every part starts on a cache line. */
typedef struct attn_layout {
    int64_t keys, t_stride; /* keys of the longest block; row stride of T, off the powers of two */
    int64_t k, v, q, t, max, sum, total;
} attn_layout;

typedef struct attn_job {
    const wok_attn_problem *problem;
    const wok_attn_args *args;
    attn_layout layout;
    int64_t tasks, cost;
} attn_job;

/* A head of a sequence, and the memory of the worker that computes rows of it. */
typedef struct attn_head {
    const attn_job *job;
    const float *q, *k, *v;
    float *y;
    const float *bias; /* of query 0, or NULL */
    int64_t k_rows;
    float *memory;
} attn_head;

static attn_layout attn_lay_out(const wok_attn_problem *problem, int64_t longest_keys) {
    attn_layout l = {.keys = wok_round_up(wok_min64(longest_keys, WOK_ATTN_KEYS), ATTN_PANEL)};
    l.t_stride = l.keys + ATTN_PANEL;
    l.v = l.k + l.keys * problem->head_dim;
    l.q = l.v + l.keys * wok_round_up(problem->value_dim, ATTN_PANEL);
    l.t = l.q + ATTN_QUERY_BLOCK * wok_round_up(problem->head_dim, ATTN_PANEL);
    l.max = l.t + ATTN_QUERY_BLOCK * l.t_stride;
    l.sum = l.max + ATTN_QUERY_GROUP;
    l.total = l.sum + ATTN_QUERY_GROUP;
    return l;
}

static size_t attn_workspace_bytes(const wok_attn_problem *problem, int64_t max_q_rows, int64_t max_k_rows,
                                   int threads) {
    (void)max_q_rows;
    attn_layout layout = attn_lay_out(problem, wok_max64(max_k_rows, 0));
    return (size_t)layout.total * sizeof(float) * (size_t)wok_max64(threads, 1);
}

/* C[rows][cols] in tiles; panels outside, so that a panel of B is read from the first-level cache by all row tiles. */
static void attn_gemm(int64_t rows, int64_t cols, const attn_product *p) {
    int64_t tiles = wok_ceil_div(rows, ATTN_ROWS);
    for (int64_t col = 0; col < cols; col += ATTN_COLS)
        for (int64_t i = 0; i < tiles; i++) {
            int64_t row = rows * i / tiles;
            attn_tile(p, row, (int)(rows * (i + 1) / tiles - row), col, (int)wok_min64(cols - col, ATTN_COLS));
        }
}

/* Query rows [row, row + rows) against keys [key, key + keys), whose copies are packed. `state`: where the rows stand
 * in max and sum. */
static void attn_block(const attn_head *head, int64_t row, int64_t rows, int64_t state, int64_t key, int64_t keys) {
    const wok_attn_problem *problem = head->job->problem;
    const wok_attn_args *args = head->job->args;
    const attn_layout *l = &head->job->layout;
    float *q = head->memory + l->q, *t = head->memory + l->t;
    float *max = head->memory + l->max + state, *sum = head->memory + l->sum + state;
    float *y = head->y + row * args->y_row_stride;
    float rescale[ATTN_QUERY_BLOCK], inverse[ATTN_QUERY_BLOCK];
    bool first = key == 0, last = key + keys == head->k_rows;

    for (int64_t i = 0; i < rows; i++)
        memcpy(q + i * problem->head_dim, head->q + (row + i) * args->q_row_stride,
               (size_t)problem->head_dim * sizeof(float));
    attn_gemm(
        rows, wok_round_up(keys, ATTN_PANEL),
        &(attn_product){problem->head_dim, q, problem->head_dim, head->memory + l->k, t, l->t_stride, NULL, NULL});
    for (int64_t i = 0; i < rows; i++) {
        const float *bias =
            head->bias ? head->bias + (row + i) * args->bias_query_stride + key * args->bias_key_stride : NULL;
        if (first) max[i] = -INFINITY, sum[i] = 0;
        rescale[i] =
            attn_softmax(t + i * l->t_stride, keys, args->scale, bias, args->bias_key_stride, &max[i], &sum[i]);
        inverse[i] = 1.0f / sum[i];
    }
    attn_gemm(rows, problem->value_dim,
              &(attn_product){keys, t, l->t_stride, head->memory + l->v, y, args->y_row_stride, first ? NULL : rescale,
                              last ? inverse : NULL});
    for (int64_t i = 0; last && i < rows; i++) /* a row without weight has no direction: 0, not 0 / 0 */
        if (sum[i] == 0) memset(y + i * args->y_row_stride, 0, (size_t)problem->value_dim * sizeof(float));
}

static void attn_group(const attn_head *head, int64_t begin, int64_t end) {
    const attn_job *job = head->job;
    int64_t blocks = wok_ceil_div(end - begin, ATTN_QUERY_BLOCK);
    for (int64_t key = 0; key < head->k_rows; key += WOK_ATTN_KEYS) {
        int64_t keys = wok_min64(head->k_rows - key, WOK_ATTN_KEYS);
        attn_pack_keys(head->k + key * job->args->k_row_stride, job->args->k_row_stride, keys, job->problem->head_dim,
                       head->memory + job->layout.k);
        attn_pack_values(head->v + key * job->args->v_row_stride, job->args->v_row_stride, keys,
                         job->problem->value_dim, head->memory + job->layout.v);
        for (int64_t i = 0; i < blocks; i++) {
            int64_t first = (end - begin) * i / blocks, past = (end - begin) * (i + 1) / blocks;
            attn_block(head, begin + first, past - first, first, key, keys);
        }
    }
    for (int64_t row = begin; head->k_rows == 0 && row < end; row++)
        memset(head->y + row * job->args->y_row_stride, 0, (size_t)job->problem->value_dim * sizeof(float));
}

/* Work of ATTN_ROWS query rows of one head. */
static int64_t attn_unit_cost(const wok_attn_sequence *sequence) { return sequence->k_rows + 8; }

static int64_t attn_units(const wok_attn_sequence *sequence) { return wok_ceil_div(sequence->q_rows, ATTN_ROWS); }

/* Units [first, past) of one sequence, counted over its heads. */
static void attn_span(const attn_job *job, int64_t s, int64_t first, int64_t past, float *memory) {
    const wok_attn_args *args = job->args;
    const wok_attn_sequence *sequence = &args->sequences[s];
    int64_t units = attn_units(sequence);
    while (first < past) {
        int64_t h = first / units, begin = first % units, end = wok_min64(units, begin + past - first);
        attn_head head = {.job = job, .k_rows = sequence->k_rows, .memory = memory};
        head.q = args->q + sequence->q_row * args->q_row_stride + h * args->q_head_stride;
        head.k = args->k + sequence->k_row * args->k_row_stride + h * args->k_head_stride;
        head.v = args->v + sequence->k_row * args->v_row_stride + h * args->v_head_stride;
        head.y = args->y + sequence->q_row * args->y_row_stride + h * args->y_head_stride;
        head.bias = wok_attn_bias(args, s, h, 0);
        int64_t rows = wok_min64(end * ATTN_ROWS, sequence->q_rows);
        for (int64_t row = begin * ATTN_ROWS; row < rows; row += ATTN_QUERY_GROUP)
            attn_group(&head, row, wok_min64(row + ATTN_QUERY_GROUP, rows));
        first += end - begin;
    }
}

/* The units whose work starts in this task's share of the total: contiguous, so that a head's K and V are packed by as
 * few tasks as possible, and balanced for ragged lengths and for a single head alike. */
static void attn_task(void *arg, int64_t task, int worker) {
    const attn_job *job = arg;
    int64_t part = job->cost / job->tasks, rest = job->cost % job->tasks, base = 0;
    int64_t begin = part * task + rest * task / job->tasks, end = part * (task + 1) + rest * (task + 1) / job->tasks;
    float *memory = (float *)job->args->workspace + worker * job->layout.total;
    for (int64_t s = 0; s < job->args->sequence_count && base < end; s++) {
        const wok_attn_sequence *sequence = &job->args->sequences[s];
        int64_t units = attn_units(sequence) * job->problem->heads, cost = attn_unit_cost(sequence);
        int64_t first = wok_ceil_div(wok_max64(begin - base, 0), cost);
        int64_t past = wok_min64(wok_ceil_div(end - base, cost), units);
        attn_span(job, s, first, past, memory);
        base += units * cost;
    }
}

static void attn_run(const wok_attn_problem *problem, const wok_attn_args *args, const wok_parallel *parallel) {
    attn_job job = {problem, args, attn_lay_out(problem, wok_attn_longest_keys(args)), 0, 0};
    int64_t units = 0, threads = wok_parallel_threads(parallel), pieces = args->sequence_count * problem->heads;
    for (int64_t s = 0; s < args->sequence_count; s++) {
        int64_t n = attn_units(&args->sequences[s]) * problem->heads;
        units += n;
        job.cost += n * attn_unit_cost(&args->sequences[s]);
    }
    /* Many tasks even out unequal cores, but a border inside a head packs its keys once more: one a head where there
     * are enough heads, else one a thread. */
    job.tasks = wok_min64(pieces >= 4 * threads ? wok_min64(pieces, 8 * threads) : threads, units);
    wok_parallel_for(parallel, attn_task, &job, job.tasks);
}

#endif

/* attn_ref.c - the oracle: one query row at a time, sums and exponentials in double. */
#include "attn.h"

static size_t attn_workspace_bytes(const wok_attn_problem *problem, int64_t max_q_rows, int64_t max_k_rows,
                                   int threads) {
    (void)problem, (void)max_q_rows, (void)threads;
    return (size_t)wok_max64(max_k_rows, 1) * sizeof(double);
}

/* The scores of one row, rounded to f32 where the contract says so; the largest of them. NaN does not count. */
static double score_row(const wok_attn_problem *problem, const wok_attn_args *args, const wok_attn_sequence *sequence,
                        const float *q, int64_t head, const float *bias, double *t) {
    double max = -INFINITY;
    for (int64_t j = 0; j < sequence->k_rows; j++) {
        const float *k = args->k + (sequence->k_row + j) * args->k_row_stride + head * args->k_head_stride;
        double dot = 0;
        for (int64_t d = 0; d < problem->head_dim; d++) dot += (double)q[d] * k[d];
        float score = (float)dot * args->scale;
        if (bias) score += bias[j * args->bias_key_stride];
        t[j] = score;
        max = t[j] > max ? t[j] : max;
    }
    return max;
}

static void attn_row(const wok_attn_problem *problem, const wok_attn_args *args, int64_t s, int64_t head, int64_t i) {
    const wok_attn_sequence *sequence = &args->sequences[s];
    double *p = args->workspace, sum = 0;
    const float *q = args->q + (sequence->q_row + i) * args->q_row_stride + head * args->q_head_stride;
    const float *v = args->v + sequence->k_row * args->v_row_stride + head * args->v_head_stride;
    float *y = args->y + (sequence->q_row + i) * args->y_row_stride + head * args->y_head_stride;
    double max = score_row(problem, args, sequence, q, head, wok_attn_bias(args, s, head, i), p);
    if (max == -INFINITY) max = 0; /* every weight becomes 0, or NaN where a score is */
    for (int64_t j = 0; j < sequence->k_rows; j++) sum += p[j] = exp(p[j] - max);
    for (int64_t d = 0; d < problem->value_dim; d++) {
        double acc = 0;
        for (int64_t j = 0; j < sequence->k_rows; j++) acc += p[j] * v[j * args->v_row_stride + d];
        y[d] = (float)(sum == 0 ? 0 : acc / sum);
    }
}

static void attn_run(const wok_attn_problem *problem, const wok_attn_args *args, const wok_parallel *parallel) {
    (void)parallel;
    for (int64_t s = 0; s < args->sequence_count; s++)
        for (int64_t head = 0; head < problem->heads; head++)
            for (int64_t i = 0; i < args->sequences[s].q_rows; i++) attn_row(problem, args, s, head, i);
}

const wok_attn_kernel wok_attn__ref = {
    .base = {"wok_attn__ref", WOK_ISA_ref, WOK_KERNEL_REFERENCE, wok_attn_accept},
    .workspace_bytes = attn_workspace_bytes,
    .run = attn_run,
};

/* norm_ref.c - the oracle: sums in double, one row after the other. */
#include "norm.h"

/* v of one column, rounded as the contract says. */
static float value(const wok_norm_args *args, int64_t row, int64_t col) {
    float v = args->x[row * args->x_stride + col];
    if (args->residual) v += args->residual[row * args->residual_stride + col];
    if (args->bias) v += args->bias[col];
    return v;
}

/* y and sum may overwrite x and residual, so v is kept where the results go: in sum, else in y. */
static const float *store_values(const wok_norm_args *args, int64_t row) {
    float *v = args->sum ? args->sum + row * args->sum_stride : args->y + row * args->y_stride;
    for (int64_t col = 0; col < args->cols; col++) v[col] = value(args, row, col);
    return v;
}

static double mean_square(const float *v, int64_t cols, double origin) {
    double sum = 0;
    for (int64_t col = 0; col < cols; col++) sum += (v[col] - origin) * (v[col] - origin);
    return sum / (double)cols;
}

static void layer_row(const wok_norm_args *args, int64_t row, bool centre) {
    const float *v = store_values(args, row);
    float *y = args->y + row * args->y_stride;
    double mean = 0;
    for (int64_t col = 0; centre && col < args->cols; col++) mean += v[col];
    mean /= (double)args->cols;
    double scale = 1 / sqrt(mean_square(v, args->cols, mean) + (double)args->eps);
    for (int64_t col = 0; col < args->cols; col++) {
        double gamma = args->gamma ? args->gamma[col] : 1, beta = args->beta ? args->beta[col] : 0;
        y[col] = (float)((v[col] - mean) * scale * gamma + beta);
    }
}

static void softmax_row(const wok_norm_args *args, int64_t row, bool logarithm) {
    const float *x = args->x + row * args->x_stride;
    float *y = args->y + row * args->y_stride;
    double max = x[0], sum = 0;
    for (int64_t col = 1; col < args->cols; col++) max = x[col] > max ? x[col] : max;
    for (int64_t col = 0; col < args->cols; col++) sum += exp(x[col] - max);
    for (int64_t col = 0; col < args->cols; col++)
        y[col] = (float)(logarithm ? x[col] - max - log(sum) : exp(x[col] - max) / sum);
}

static void norm_run(const wok_norm_problem *problem, const wok_norm_args *args, const wok_parallel *parallel) {
    (void)parallel;
    for (int64_t row = 0; row < args->rows && args->cols > 0; row++)
        if (problem->op == WOK_NORM_LAYER || problem->op == WOK_NORM_RMS)
            layer_row(args, row, problem->op == WOK_NORM_LAYER);
        else
            softmax_row(args, row, problem->op == WOK_NORM_LOG_SOFTMAX);
}

const wok_norm_kernel wok_norm__ref = {
    .base = {"wok_norm__ref", WOK_ISA_ref, WOK_KERNEL_REFERENCE, wok_norm_accept},
    .run = norm_run,
};

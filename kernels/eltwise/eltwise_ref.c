/* eltwise_ref.c - the oracle: one element at a time, in double where a function is not exact. */
#include "eltwise.h"

static double sigmoid(double a) { return 1 / (1 + exp(-a)); }
static double clamp(double x, double lo, double hi) { return x < lo ? lo : x > hi ? hi : x; }

static float unary(wok_eltwise_op op, float x, float p0, float p1) {
    double a = x;
    switch (op) {
    case WOK_ELT_CLAMP: return wok_clampf(x, p0, p1);
    case WOK_ELT_GELU: return (float)(a / 2 * (1 + erf(a / sqrt(2.0))));
    case WOK_ELT_GELU_TANH: return (float)(a / 2 * (1 + tanh(sqrt(2 / acos(-1.0)) * (a + 0.044715 * a * a * a))));
    case WOK_ELT_TANH: return (float)tanh(a);
    case WOK_ELT_SIGMOID: return (float)sigmoid(a);
    case WOK_ELT_ERF: return (float)erf(a);
    case WOK_ELT_EXP: return (float)exp(a);
    case WOK_ELT_SQRT: return sqrtf(x);
    case WOK_ELT_RECIPROCAL: return 1.0f / x;
    case WOK_ELT_NEG: return -x;
    case WOK_ELT_ABS: return fabsf(x);
    case WOK_ELT_HARD_SIGMOID: return (float)clamp(p0 * a + p1, 0, 1);
    case WOK_ELT_HARD_SWISH: return (float)(a * clamp(a / 6 + 0.5, 0, 1));
    default: return (float)(a * sigmoid(a)); /* WOK_ELT_SILU */
    }
}

/* MIN and MAX: NaN if either is NaN; equal values (+0 and -0) give b. */
static float binary(wok_eltwise_op op, float a, float b) {
    switch (op) {
    case WOK_ELT_ADD: return a + b;
    case WOK_ELT_SUB: return a - b;
    case WOK_ELT_MUL: return a * b;
    case WOK_ELT_DIV: return a / b;
    case WOK_ELT_MIN: return isnan(a) || a < b ? a : b;
    default: return isnan(a) || a > b ? a : b; /* WOK_ELT_MAX */
    }
}

static void convert(wok_eltwise_op op, const wok_eltwise_args *args) {
    const uint16_t *a16 = args->a;
    uint16_t *y16 = args->y;
    const float *a = args->a;
    float *y = args->y;
    for (int64_t i = 0; i < args->n; i++) switch (op) {
        case WOK_ELT_F16_TO_F32: y[i] = wok_f16_to_f32(a16[i]); break;
        case WOK_ELT_F32_TO_F16: y16[i] = wok_f32_to_f16(a[i]); break;
        case WOK_ELT_BF16_TO_F32: y[i] = wok_bf16_to_f32(a16[i]); break;
        default: y16[i] = wok_f32_to_bf16(a[i]); break;
        }
}

static void eltwise_run(const wok_eltwise_problem *problem, const wok_eltwise_args *args,
                        const wok_parallel *parallel) {
    (void)parallel;
    if (problem->op >= WOK_ELT_F16_TO_F32) {
        convert(problem->op, args);
        return;
    }
    const float *a = args->a, *b = args->b;
    float *y = args->y;
    for (int64_t i = 0; i < args->n; i++)
        y[i] = problem->op < WOK_ELT_ADD
                   ? unary(problem->op, a[i], args->p0, args->p1)
                   : wok_clampf(binary(problem->op, a[i * args->a_step], b[i * args->b_step]), args->p0, args->p1);
}

const wok_eltwise_kernel wok_eltwise__ref = {
    .base = {"wok_eltwise__ref", WOK_ISA_ref, WOK_KERNEL_REFERENCE, wok_eltwise_accept},
    .run = eltwise_run,
};

/* epilogue_ref.h - the shared epilogue in double, for the reference kernels and as the oracle of the tests (internal). */
#ifndef WOK_EPILOGUE_REF_H
#define WOK_EPILOGUE_REF_H

#include "common.h"

/* Activations as PyTorch and ONNX define them. GELU of -inf is NaN (-inf * 0), as it is there. */
static inline double wok_act_ref(double x, wok_act act, float lo, float hi) {
    switch (act) {
    case WOK_ACT_CLAMP: return x < (double)lo ? (double)lo : x > (double)hi ? (double)hi : x;
    /* erfc keeps the left tail, where 1 + erf cancels */
    case WOK_ACT_GELU: return 0.5 * x * erfc(-x * 0.70710678118654752440);
    case WOK_ACT_GELU_TANH: {
        double t = 0.79788456080286535588 * (x + 0.044715 * x * x * x);
        return x / (1.0 + exp(-2.0 * t)); /* (1 + tanh t) / 2, without cancellation */
    }
    case WOK_ACT_TANH: return tanh(x);
    case WOK_ACT_SIGMOID: return 1.0 / (1.0 + exp(-x));
    case WOK_ACT_NONE: break;
    }
    return x;
}

/* act(acc + bias[n] + residual[m][n]), rounded once. `bias` and `residual` point at the element, or are NULL. */
static inline float wok_epilogue_ref(double acc, const float *bias, const float *residual, const wok_epilogue_f32 *e) {
    if (bias) acc += (double)*bias;
    if (residual) acc += (double)*residual;
    return (float)wok_act_ref(acc, e->act, e->lo, e->hi);
}

#endif

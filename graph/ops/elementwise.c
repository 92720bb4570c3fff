/* elementwise.c - operators of one input, element by element, and Cast. */
#include "ops.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { CHUNK = 256 };

wok_status wok_infer_same(wok_infer *infer) {
    WOK_TRY(wok_infer_need(infer, 1));
    wok_infer_out(infer, 0, infer->in[0]->dtype, infer->in[0]->rank, infer->in[0]->dims);
    return WOK_OK;
}

/* One contiguous input: the walk splits it over the threads. */
static void for_pieces(const wok_call *call, wok_walk_fn fn, void *arg) {
    wok_walk walk;
    int64_t count = wok_tensor_count(call->out[0]), one = 1;
    wok_walk_steps(&walk, &count, 1, (const int64_t *const[]){&one}, 1);
    wok_walk_run(&walk, fn, arg, call->parallel);
}

/* ---- functions of one number ------------------------------------------------------------------------------------- */

/* Parameters of an operator: its attributes, in order. */
typedef struct unary_state {
    const wok_eltwise_kernel *kernel;
    wok_eltwise_problem problem;
    double p[2];
} unary_state;

static const struct parameters {
    wok_op op;
    const char *name[2];
    float fallback[2];
} parameters[] = {
    {WOK_OP_Celu, {"alpha"}, {1.0f}},
    {WOK_OP_Elu, {"alpha"}, {1.0f}},
    {WOK_OP_HardSigmoid, {"alpha", "beta"}, {0.2f, 0.5f}},
    {WOK_OP_LeakyRelu, {"alpha"}, {0.01f}},
    {WOK_OP_Selu, {"alpha", "gamma"}, {1.67326319217681884765625f, 1.05070102214813232421875f}},
    {WOK_OP_Shrink, {"lambd", "bias"}, {0.5f, 0.0f}},
    {WOK_OP_Swish, {"alpha"}, {1.0f}},
    {WOK_OP_ThresholdedRelu, {"alpha"}, {1.0f}},
};

static bool gelu_is_tanh(const wok_ir_node *node) {
    return !strcmp(wok_ir_string(node, "approximate", "none"), "tanh");
}

static void read_parameters(const wok_ir_node *node, double p[2]) {
    for (size_t i = 0; i < sizeof parameters / sizeof parameters[0]; i++)
        for (int k = 0; k < 2 && parameters[i].op == node->op; k++)
            if (parameters[i].name[k]) p[k] = wok_ir_float(node, parameters[i].name[k], parameters[i].fallback[k]);
    if (node->op == WOK_OP_Gelu) p[0] = gelu_is_tanh(node);
}

static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}
static double softplus(double x) {
    return (x > 0 ? x : 0) + log1p(exp(-fabs(x)));
}

static double gelu(double x, bool by_tanh) {
    if (by_tanh) return x / 2 * (1 + tanh(sqrt(2 / acos(-1.0)) * (x + 0.044715 * x * x * x)));
    return x / 2 * (1 + erf(x / sqrt(2.0)));
}

static double clamp(double x, double lo, double hi) {
    return x < lo ? lo : x > hi ? hi : x;
}

static double unary(wok_op op, double x, const double *p) {
    switch (op) {
    case WOK_OP_Abs:
        return fabs(x);
    case WOK_OP_Ceil:
        return ceil(x);
    case WOK_OP_Celu:
        return x < 0 ? p[0] * expm1(x / p[0]) : x;
    case WOK_OP_Elu:
        return x < 0 ? p[0] * expm1(x) : x;
    case WOK_OP_Erf:
        return erf(x);
    case WOK_OP_Exp:
        return exp(x);
    case WOK_OP_Floor:
        return floor(x);
    case WOK_OP_HardSigmoid:
        return clamp(p[0] * x + p[1], 0, 1);
    case WOK_OP_HardSwish:
        return x * clamp(x / 6 + 0.5, 0, 1);
    case WOK_OP_LeakyRelu:
        return x < 0 ? p[0] * x : x;
    case WOK_OP_Log:
        return log(x);
    case WOK_OP_Mish:
        return x * tanh(softplus(x));
    case WOK_OP_Neg:
        return -x;
    case WOK_OP_Reciprocal:
        return 1 / x;
    case WOK_OP_Relu:
        return x < 0 ? 0 : x;
    case WOK_OP_Round:
        return wok_round_even(x);
    case WOK_OP_Selu:
        return p[1] * (x < 0 ? p[0] * expm1(x) : x);
    case WOK_OP_Shrink:
        return x < -p[0] ? x + p[1] : x > p[0] ? x - p[1] : 0;
    case WOK_OP_Sigmoid:
        return sigmoid(x);
    case WOK_OP_Sign:
        return x > 0 ? 1 : x < 0 ? -1 : x;
    case WOK_OP_Softplus:
        return softplus(x);
    case WOK_OP_Softsign:
        return x / (1 + fabs(x));
    case WOK_OP_Sqrt:
        return sqrt(x);
    case WOK_OP_Swish:
        return x * sigmoid(p[0] * x);
    case WOK_OP_Tanh:
        return tanh(x);
    case WOK_OP_ThresholdedRelu:
        return x > p[0] ? x : 0;
    case WOK_OP_Gelu:
    case WOK_OP_ms_Gelu:
        return gelu(x, p[0] != 0);
    case WOK_OP_ms_FastGelu:
        return gelu(x, true);
    case WOK_OP_Sin:
        return sin(x);
    case WOK_OP_Cos:
        return cos(x);
    case WOK_OP_Tan:
        return tan(x);
    case WOK_OP_Asin:
        return asin(x);
    case WOK_OP_Acos:
        return acos(x);
    case WOK_OP_Atan:
        return atan(x);
    case WOK_OP_Sinh:
        return sinh(x);
    case WOK_OP_Cosh:
        return cosh(x);
    case WOK_OP_Asinh:
        return asinh(x);
    case WOK_OP_Acosh:
        return acosh(x);
    default:
        return atanh(x); /* WOK_OP_Atanh */
    }
}

/* The operators that ONNX defines for integers too. */
static int64_t unary_int(wok_op op, int64_t x, bool is_signed) {
    bool negative = is_signed && x < 0;
    switch (op) {
    case WOK_OP_Abs:
        return negative ? (int64_t) - (uint64_t)x : x;
    case WOK_OP_Neg:
        return (int64_t) - (uint64_t)x;
    case WOK_OP_Relu:
        return negative ? 0 : x;
    default:
        return negative ? -1 : x != 0; /* WOK_OP_Sign */
    }
}

static bool has_int_form(wok_op op) {
    return op == WOK_OP_Abs || op == WOK_OP_Neg || op == WOK_OP_Relu || op == WOK_OP_Sign;
}

typedef struct unary_job {
    const wok_call *call;
    const double *p;
} unary_job;

static void unary_piece(void *arg, const wok_walk *walk, const int64_t *offset, int64_t y, int64_t n) {
    const unary_job *job = arg;
    const wok_tensor *in = job->call->in[0], *out = job->call->out[0];
    wok_op op = job->call->node->op;
    (void)walk;
    for (int64_t i = 0; i < n; i += CHUNK) {
        int64_t count = n - i < CHUNK ? n - i : CHUNK;
        if (wok_dtype_is_int(in->dtype) && has_int_form(op)) {
            int64_t v[CHUNK];
            wok_load_i64(in->dtype, in->data, offset[0] + i, 1, count, v);
            for (int64_t k = 0; k < count; k++) v[k] = unary_int(op, v[k], in->dtype != WOK_U64);
            wok_store_i64(out->dtype, out->data, y + i, count, v);
        } else {
            double v[CHUNK];
            wok_load_f64(in->dtype, in->data, offset[0] + i, 1, count, v);
            for (int64_t k = 0; k < count; k++) v[k] = unary(op, v[k], job->p);
            wok_store_f64(out->dtype, out->data, y + i, count, v);
        }
    }
}

static wok_status unary_run_ref(wok_call *call) {
    double p[2] = {0, 0};
    read_parameters(call->node, p);
    unary_job job = {call, p};
    for_pieces(call, unary_piece, &job);
    return WOK_OK;
}

/* -1: the kernels do not have it. */
static int kernel_op(const wok_ir_node *node) {
    switch (node->op) {
    case WOK_OP_Abs:
        return WOK_ELT_ABS;
    case WOK_OP_Erf:
        return WOK_ELT_ERF;
    case WOK_OP_Exp:
        return WOK_ELT_EXP;
    case WOK_OP_Gelu:
        return gelu_is_tanh(node) ? WOK_ELT_GELU_TANH : WOK_ELT_GELU;
    case WOK_OP_ms_Gelu:
        return WOK_ELT_GELU;
    case WOK_OP_ms_FastGelu:
        return WOK_ELT_GELU_TANH;
    case WOK_OP_HardSigmoid:
        return WOK_ELT_HARD_SIGMOID;
    case WOK_OP_HardSwish:
        return WOK_ELT_HARD_SWISH;
    case WOK_OP_Neg:
        return WOK_ELT_NEG;
    case WOK_OP_Reciprocal:
        return WOK_ELT_RECIPROCAL;
    case WOK_OP_Relu:
        return WOK_ELT_CLAMP;
    case WOK_OP_Sigmoid:
        return WOK_ELT_SIGMOID;
    case WOK_OP_Sqrt:
        return WOK_ELT_SQRT;
    case WOK_OP_Swish:
        return wok_ir_float(node, "alpha", 1) == 1 ? WOK_ELT_SILU : -1;
    case WOK_OP_Tanh:
        return WOK_ELT_TANH;
    default:
        return -1;
    }
}

static const char *unary_accept_kernel(const wok_prepare *prepare) {
    return kernel_op(prepare->node) < 0 ? "the eltwise kernels do not have this function" : wok_accept_f32(prepare);
}

static wok_status unary_prepare(wok_prepare *prepare) {
    unary_state *state = wok_prepare_alloc(prepare, sizeof *state);
    if (!state) return WOK_ERR_MEMORY;
    state->problem.op = (wok_eltwise_op)(prepare->node->op == WOK_OP_Clip ? WOK_ELT_CLAMP : kernel_op(prepare->node));
    state->kernel = (const void *)wok_prepare_kernel(prepare, WOK_FAMILY_eltwise, &state->problem);
    if (!state->kernel) return WOK_ERR_UNSUPPORTED;
    read_parameters(prepare->node, state->p);
    if (prepare->node->op == WOK_OP_Relu) state->p[1] = (double)INFINITY;
    prepare->state = state;
    prepare->kernel = &state->kernel->base;
    return WOK_OK;
}

static void run_kernel(const wok_call *call, double p0, double p1) {
    const unary_state *state = call->state;
    wok_eltwise_args args = {.n = wok_tensor_count(call->out[0]),
                             .a = call->in[0]->data,
                             .a_step = 1,
                             .b_step = 1,
                             .y = call->out[0]->data,
                             .p0 = (float)p0,
                             .p1 = (float)p1};
    if (args.n) state->kernel->run(&state->problem, &args, call->parallel);
}

static wok_status unary_run_kernel(wok_call *call) {
    const unary_state *state = call->state;
    run_kernel(call, state->p[0], state->p[1]);
    return WOK_OK;
}

const wok_op_impl *const wok_impls_unary[] = {
    &(const wok_op_impl){.name = "kernel",
                         .inplace = 1,
                         .accept = unary_accept_kernel,
                         .prepare = unary_prepare,
                         .run = unary_run_kernel},
    &(const wok_op_impl){.name = "ref", .inplace = 1, .accept = wok_accept_number, .run = unary_run_ref},
    NULL,
};

/* ---- Clip -------------------------------------------------------------------------------------------------------- */

wok_status wok_infer_clip(wok_infer *infer) {
    return wok_infer_same(infer);
}

/* The upper bound wins where the bounds cross. */
static wok_status clip_run_kernel(wok_call *call) {
    double lo = wok_call_float(call, 1, -(double)INFINITY), hi = wok_call_float(call, 2, (double)INFINITY);
    run_kernel(call, lo > hi ? hi : lo, hi);
    return WOK_OK;
}

typedef struct clip_bounds {
    const wok_call *call;
    bool has_lo, has_hi, is_signed;
    double lo, hi;
    int64_t int_lo, int_hi;
} clip_bounds;

static bool int_less(int64_t a, int64_t b, bool is_signed) {
    return is_signed ? a < b : (uint64_t)a < (uint64_t)b;
}

static void clip_piece(void *arg, const wok_walk *walk, const int64_t *offset, int64_t y, int64_t n) {
    const clip_bounds *b = arg;
    const wok_tensor *in = b->call->in[0], *out = b->call->out[0];
    (void)walk;
    for (int64_t i = 0; i < n; i += CHUNK) {
        int64_t count = n - i < CHUNK ? n - i : CHUNK;
        if (wok_dtype_is_float(in->dtype)) {
            double v[CHUNK];
            wok_load_f64(in->dtype, in->data, offset[0] + i, 1, count, v);
            for (int64_t k = 0; k < count; k++) {
                if (b->has_lo && v[k] < b->lo) v[k] = b->lo;
                if (b->has_hi && v[k] > b->hi) v[k] = b->hi;
            }
            wok_store_f64(out->dtype, out->data, y + i, count, v);
        } else {
            int64_t v[CHUNK];
            wok_load_i64(in->dtype, in->data, offset[0] + i, 1, count, v);
            for (int64_t k = 0; k < count; k++) {
                if (b->has_lo && int_less(v[k], b->int_lo, b->is_signed)) v[k] = b->int_lo;
                if (b->has_hi && int_less(b->int_hi, v[k], b->is_signed)) v[k] = b->int_hi;
            }
            wok_store_i64(out->dtype, out->data, y + i, count, v);
        }
    }
}

static wok_status clip_run_ref(wok_call *call) {
    bool real = wok_dtype_is_float(call->in[0]->dtype);
    clip_bounds b = {.call = call, .is_signed = call->in[0]->dtype != WOK_U64};
    b.has_lo = call->in_count > 1 && call->in[1];
    b.has_hi = call->in_count > 2 && call->in[2];
    if (real) {
        b.lo = wok_call_float(call, 1, 0);
        b.hi = wok_call_float(call, 2, 0);
    } else {
        b.int_lo = wok_call_int(call, 1, 0);
        b.int_hi = wok_call_int(call, 2, 0);
    }
    for_pieces(call, clip_piece, &b);
    return WOK_OK;
}

const wok_op_impl *const wok_impls_clip[] = {
    &(const wok_op_impl){
        .name = "kernel", .inplace = 1, .accept = wok_accept_f32, .prepare = unary_prepare, .run = clip_run_kernel},
    &(const wok_op_impl){.name = "ref", .inplace = 1, .accept = wok_accept_number, .run = clip_run_ref},
    NULL,
};

/* ---- Not, BitwiseNot, IsNaN, IsInf ------------------------------------------------------------------------------- */

static wok_status not_run(wok_call *call) {
    const uint8_t *x = call->in[0]->data;
    uint8_t *y = call->out[0]->data;
    int64_t n = wok_tensor_count(call->out[0]);
    for (int64_t i = 0; i < n; i++) y[i] = !x[i];
    return WOK_OK;
}

static const char *accept_bool(const wok_prepare *prepare) {
    return prepare->in[0] && prepare->in[0]->dtype == WOK_BOOL ? NULL : "takes bool only";
}

const wok_op_impl *const wok_impls_not[] = {
    &(const wok_op_impl){.name = "ref", .inplace = 1, .accept = accept_bool, .run = not_run},
    NULL,
};

static wok_status bitwise_not_run(wok_call *call) {
    const uint8_t *x = call->in[0]->data;
    uint8_t *y = call->out[0]->data;
    size_t n = (size_t)wok_tensor_count(call->out[0]) * wok_dtype_size(call->out[0]->dtype);
    for (size_t i = 0; i < n; i++) y[i] = (uint8_t)~x[i];
    return WOK_OK;
}

static const char *accept_int(const wok_prepare *prepare) {
    return prepare->in[0] && wok_dtype_is_int(prepare->in[0]->dtype) ? NULL : "takes integers only";
}

const wok_op_impl *const wok_impls_bitwise_not[] = {
    &(const wok_op_impl){.name = "ref", .inplace = 1, .accept = accept_int, .run = bitwise_not_run},
    NULL,
};

wok_status wok_infer_is(wok_infer *infer) {
    WOK_TRY(wok_infer_need(infer, 1));
    wok_infer_out(infer, 0, WOK_BOOL, infer->in[0]->rank, infer->in[0]->dims);
    return WOK_OK;
}

static wok_status is_run(wok_call *call) {
    const wok_tensor *x = call->in[0];
    bool nan = call->node->op == WOK_OP_IsNaN;
    bool up = !nan && wok_ir_int(call->node, "detect_positive", 1);
    bool down = !nan && wok_ir_int(call->node, "detect_negative", 1);
    uint8_t *y = call->out[0]->data;
    int64_t n = wok_tensor_count(x);
    for (int64_t i = 0; i < n; i += CHUNK) {
        int64_t count = n - i < CHUNK ? n - i : CHUNK;
        double v[CHUNK];
        wok_load_f64(x->dtype, x->data, i, 1, count, v);
        for (int64_t k = 0; k < count; k++) y[i + k] = nan ? isnan(v[k]) != 0 : isinf(v[k]) && (v[k] > 0 ? up : down);
    }
    return WOK_OK;
}

const wok_op_impl *const wok_impls_is[] = {
    &(const wok_op_impl){.name = "ref", .accept = wok_accept_number, .run = is_run},
    NULL,
};

/* ---- Cast -------------------------------------------------------------------------------------------------------- */

static wok_status infer_cast_to(wok_infer *infer, wok_dtype to) {
    const wok_type *x = infer->in[0];
    if (to == WOK_NONE) return WOK_OK; /* CastLike of something unknown */
    if (!wok_dtype_size(to)) return wok_infer_fail(infer, WOK_ERR_UNSUPPORTED, "cast to element type %d", (int)to);
    wok_infer_out(infer, 0, to, x->rank, x->dims);
    int64_t ints[WOK_MAX_INTS];
    int count;
    if ((wok_dtype_is_int(to) || to == WOK_BOOL) && wok_infer_ints(infer, 0, ints, &count)) {
        for (int i = 0; i < count; i++) {
            int64_t number;
            bool known = wok_dim_is_number(ints[i], &number);
            if (to == WOK_BOOL) ints[i] = known ? number != 0 : wok_infer_unknown(infer);
            /* a size that does not fit wraps; sizes are not followed through narrow types */
            if (to != WOK_BOOL && wok_dtype_size(to) < 4 && (!known || number < 0 || number > 127)) return WOK_OK;
            if (to == WOK_I32 && known && (number < INT32_MIN || number > INT32_MAX)) return WOK_OK;
            if ((to == WOK_U32 || to == WOK_U64) && known && (number < 0 || number > UINT32_MAX)) return WOK_OK;
        }
        wok_infer_set_ints(infer, 0, ints, count);
    }
    return WOK_OK;
}

wok_status wok_infer_cast(wok_infer *infer) {
    WOK_TRY(wok_infer_need(infer, 1));
    if (!wok_ir_attr(infer->node, "to", WOK_ATTR_INT))
        return wok_infer_fail(infer, WOK_ERR_FORMAT, "no attribute `to`");
    int64_t to = wok_ir_int(infer->node, "to", 0);
    return infer_cast_to(infer, to > 0 && to <= WOK_BF16 ? (wok_dtype)to : WOK_STRING);
}

wok_status wok_infer_cast_like(wok_infer *infer) {
    WOK_TRY(wok_infer_need(infer, 2));
    return infer_cast_to(infer, infer->in[1]->dtype);
}

/* -1: there is no conversion kernel. */
static int conversion(const wok_prepare *prepare) {
    wok_dtype from = prepare->in[0]->dtype, to = prepare->out[0]->dtype;
    if (from == WOK_F16 && to == WOK_F32) return WOK_ELT_F16_TO_F32;
    if (from == WOK_F32 && to == WOK_F16) return WOK_ELT_F32_TO_F16;
    if (from == WOK_BF16 && to == WOK_F32) return WOK_ELT_BF16_TO_F32;
    if (from == WOK_F32 && to == WOK_BF16) return WOK_ELT_F32_TO_BF16;
    return -1;
}

static const char *cast_accept_view(const wok_prepare *prepare) {
    wok_dtype from = prepare->in[0]->dtype;
    return from == prepare->out[0]->dtype && wok_dtype_size(from) ? NULL : "the element types differ";
}

static const char *cast_accept_kernel(const wok_prepare *prepare) {
    return conversion(prepare) >= 0 ? NULL : "the eltwise kernels do not have this conversion";
}

static wok_status cast_prepare(wok_prepare *prepare) {
    unary_state *state = wok_prepare_alloc(prepare, sizeof *state);
    if (!state) return WOK_ERR_MEMORY;
    state->problem.op = (wok_eltwise_op)conversion(prepare);
    state->kernel = (const void *)wok_prepare_kernel(prepare, WOK_FAMILY_eltwise, &state->problem);
    if (!state->kernel) return WOK_ERR_UNSUPPORTED;
    prepare->state = state;
    prepare->kernel = &state->kernel->base;
    return WOK_OK;
}

static void cast_piece(void *arg, const wok_walk *walk, const int64_t *offset, int64_t y, int64_t n) {
    const wok_call *call = arg;
    const wok_tensor *in = call->in[0], *out = call->out[0];
    (void)walk;
    wok_convert(in->dtype, (const char *)in->data + offset[0] * (int64_t)wok_dtype_size(in->dtype), out->dtype,
                (char *)out->data + y * (int64_t)wok_dtype_size(out->dtype), n);
}

static wok_status cast_run(wok_call *call) {
    for_pieces(call, cast_piece, call);
    return WOK_OK;
}

const wok_op_impl *const wok_impls_cast[] = {
    &(const wok_op_impl){.name = "view", .flags = WOK_IMPL_VIEW, .accept = cast_accept_view, .run = cast_run},
    &(const wok_op_impl){
        .name = "kernel", .accept = cast_accept_kernel, .prepare = cast_prepare, .run = unary_run_kernel},
    &(const wok_op_impl){.name = "convert", .accept = wok_accept_number, .run = cast_run},
    NULL,
};

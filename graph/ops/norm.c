/* norm.c - along one axis or the last ones: Softmax and its kin, LayerNormalization, RMSNormalization,
 * LpNormalization. */
#include "ops.h"

#include <math.h>
#include <string.h>

/* ---- rows on the norm kernels ------------------------------------------------------------------------------------ */

typedef struct norm_state {
    const wok_norm_kernel *kernel;
    wok_norm_problem problem;
    float epsilon;
    int axis; /* of the input; the row is everything from it on */
} norm_state;

/* cols 0: not known before the shapes are. */
static wok_status prepare_rows(wok_prepare *prepare, wok_norm_op op, int axis, float epsilon) {
    norm_state *s = wok_prepare_alloc(prepare, sizeof *s);
    if (!s) return WOK_ERR_MEMORY;
    int64_t cols = wok_count(prepare->in[0]->dims + axis, prepare->in[0]->rank - axis);
    s->problem = (wok_norm_problem){.op = op, .cols = cols > 0 ? cols : 0};
    s->kernel = (const void *)wok_prepare_kernel(prepare, WOK_FAMILY_norm, &s->problem);
    if (!s->kernel) return WOK_ERR_UNSUPPORTED;
    s->epsilon = epsilon;
    s->axis = axis;
    prepare->state = s;
    prepare->kernel = &s->kernel->base;
    return WOK_OK;
}

static const float *floats(const wok_call *call, int i) {
    return i >= 0 && i < call->in_count && call->in[i] ? call->in[i]->data : NULL;
}

/* Inputs by number; -1 for none. */
static wok_status run_rows(wok_call *call, int residual, int gamma, int beta, int bias, float *sum) {
    const norm_state *s = call->state;
    const wok_tensor *x = call->in[0];
    int64_t rows = wok_dims_product(x->dims, 0, s->axis), cols = wok_dims_product(x->dims, s->axis, x->rank);
    wok_norm_args args = {.rows = rows,
                          .cols = cols,
                          .x = x->data,
                          .x_stride = cols,
                          .residual = floats(call, residual),
                          .residual_stride = cols,
                          .bias = floats(call, bias),
                          .gamma = floats(call, gamma),
                          .beta = floats(call, beta),
                          .eps = s->epsilon,
                          .sum = sum,
                          .sum_stride = cols,
                          .y = call->out[0]->data,
                          .y_stride = cols};
    if (rows > 0 && cols > 0) s->kernel->run(&s->problem, &args, call->parallel);
    return WOK_OK;
}

/* ---- Softmax, LogSoftmax, Hardmax -------------------------------------------------------------------------------- */

static const char *softmax_accept(const wok_prepare *prepare) {
    const wok_type *x = prepare->in[0];
    if (prepare->node->op == WOK_OP_Hardmax) return "the norm kernels do not have it";
    if (x->rank < 1 || wok_axis(wok_ir_int(prepare->node, "axis", -1), x->rank) != x->rank - 1)
        return "not the last axis";
    return wok_accept_f32(prepare);
}

static wok_status softmax_prepare(wok_prepare *prepare) {
    wok_norm_op op = prepare->node->op == WOK_OP_Softmax ? WOK_NORM_SOFTMAX : WOK_NORM_LOG_SOFTMAX;
    return prepare_rows(prepare, op, prepare->in[0]->rank - 1, 0);
}

static wok_status softmax_run(wok_call *call) {
    return run_rows(call, -1, -1, -1, -1, NULL);
}

static void softmax_line(const wok_tensor *x, const wok_tensor *y, wok_op op, int64_t base, int64_t n, int64_t step) {
    double max = -(double)INFINITY, sum = 0;
    int64_t first = -1;
    for (int64_t i = 0; i < n; i++) {
        double v = wok_get_f64(x->dtype, x->data, base + i * step);
        if (first < 0 || v > max || isnan(v)) max = v, first = i;
        if (isnan(v)) break;
    }
    for (int64_t i = 0; i < n; i++) sum += exp(wok_get_f64(x->dtype, x->data, base + i * step) - max);
    for (int64_t i = 0; i < n; i++) {
        double v = wok_get_f64(x->dtype, x->data, base + i * step) - max;
        v = op == WOK_OP_Softmax ? exp(v) / sum : op == WOK_OP_LogSoftmax ? v - log(sum) : i == first;
        wok_store_f64(y->dtype, y->data, base + i * step, 1, &v);
    }
}

static wok_status softmax_run_ref(wok_call *call) {
    const wok_tensor *x = call->in[0];
    int64_t named = wok_ir_int(call->node, "axis", -1);
    int axis = wok_axis(named, x->rank);
    if (axis < 0 && x->rank > 0)
        return wok_call_fail(call, WOK_ERR_SHAPE, "axis %lld is outside a tensor of rank %d", (long long)named,
                             x->rank);
    int64_t n = x->rank ? x->dims[axis] : 1, inner = x->rank ? wok_dims_product(x->dims, axis + 1, x->rank) : 1;
    int64_t outer = x->rank ? wok_dims_product(x->dims, 0, axis) : 1;
    for (int64_t r = 0; r < outer * inner; r++)
        softmax_line(x, call->out[0], call->node->op, r / inner * n * inner + r % inner, n, inner);
    return WOK_OK;
}

const wok_op_impl *const wok_impls_softmax[] = {
    &(const wok_op_impl){
        .name = "rows", .inplace = 1, .accept = softmax_accept, .prepare = softmax_prepare, .run = softmax_run},
    &(const wok_op_impl){.name = "ref", .accept = wok_accept_number, .run = softmax_run_ref},
    NULL,
};

/* ---- LayerNormalization, RMSNormalization ------------------------------------------------------------------------ */

static wok_status check_vectors(wok_infer *infer, int first, int last) {
    const wok_type *x = infer->in[0];
    for (int i = first; i <= last; i++) {
        const wok_type *t = infer->in[i];
        if (!t || t->rank < 0) continue;
        bool fits = t->rank <= x->rank;
        for (int d = 0; d < t->rank && fits; d++) {
            int64_t want = x->dims[x->rank - t->rank + d];
            fits = t->dims[d] == 1 || t->dims[d] == want || !wok_dim_known(want) || !wok_dim_known(t->dims[d]);
        }
        if (!fits)
            return wok_infer_fail(infer, WOK_ERR_SHAPE, "input %d is %s, which does not broadcast to %s", i,
                                  wok_type_text(infer->graph, t), wok_type_text(infer->graph, x));
    }
    return WOK_OK;
}

wok_status wok_infer_layer_norm(wok_infer *infer) {
    WOK_TRY(wok_infer_need(infer, 1));
    const wok_type *x = infer->in[0];
    int64_t stash = wok_ir_int(infer->node, "stash_type", WOK_F32), dims[WOK_MAX_RANK];
    wok_dtype statistic = stash > 0 && stash <= WOK_BF16 ? (wok_dtype)stash : WOK_F32;
    int axis;
    infer->out[0].dtype = x->dtype;
    if (x->rank < 0) return WOK_OK;
    WOK_TRY(wok_infer_axis(infer, "axis", -1, x->rank, &axis));
    WOK_TRY(check_vectors(infer, 1, infer->node->op == WOK_OP_RMSNormalization ? 1 : 2));
    wok_infer_out(infer, 0, x->dtype, x->rank, x->dims);
    for (int d = 0; d < x->rank; d++) dims[d] = d < axis ? x->dims[d] : 1;
    wok_infer_out(infer, 1, statistic, x->rank, dims);
    wok_infer_out(infer, 2, statistic, x->rank, dims);
    return WOK_OK;
}

/* One value for each element of a row. */
static bool is_row(const wok_type *t, const wok_type *x, int axis) {
    if (!t) return true;
    if (t->dtype != WOK_F32 || t->rank < x->rank - axis) return false;
    for (int d = 1; d <= t->rank; d++) {
        bool inside = d <= x->rank - axis;
        if (inside ? t->dims[t->rank - d] != x->dims[x->rank - d] : t->dims[t->rank - d] != 1) return false;
    }
    return true;
}

static const char *layer_norm_accept(const wok_prepare *prepare) {
    const wok_type *x = prepare->in[0];
    int axis = x->rank < 0 ? -1 : wok_axis(wok_ir_int(prepare->node, "axis", -1), x->rank);
    if (axis < 0) return "the rank is not known";
    for (int i = 1; i < prepare->node->out_count; i++)
        if (prepare->node->out[i] != WOK_ABSENT) return "the norm kernels do not give mean and deviation";
    if (!is_row(prepare->in[1], x, axis) || !is_row(prepare->in[2], x, axis))
        return "scale or bias are not one f32 row";
    return wok_accept_f32(prepare);
}

static wok_status layer_norm_prepare(wok_prepare *prepare) {
    bool rms = prepare->node->op == WOK_OP_RMSNormalization;
    int axis = wok_axis(wok_ir_int(prepare->node, "axis", -1), prepare->in[0]->rank);
    return prepare_rows(prepare, rms ? WOK_NORM_RMS : WOK_NORM_LAYER, axis,
                        wok_ir_float(prepare->node, "epsilon", 1e-5f));
}

static wok_status layer_norm_run(wok_call *call) {
    bool rms = call->node->op == WOK_OP_RMSNormalization;
    return run_rows(call, -1, 1, rms ? -1 : 2, -1, NULL);
}

/* The element of `t`, which broadcasts to x, that meets element `i` of x. */
static double broadcast_at(const wok_tensor *t, const wok_tensor *x, int64_t i) {
    int64_t index = 0, size = 1;
    for (int d = x->rank - 1, k = t->rank - 1; k >= 0; d--, k--) {
        if (t->dims[k] != 1) index += i % x->dims[d] * size;
        size *= t->dims[k];
        i /= x->dims[d];
    }
    return wok_get_f64(t->dtype, t->data, index);
}

static void layer_norm_row(const wok_call *call, int64_t row, int64_t cols, double epsilon, bool rms) {
    const wok_tensor *x = call->in[0], *y = call->out[0];
    const wok_tensor *scale = call->in_count > 1 ? call->in[1] : NULL, *bias = call->in_count > 2 ? call->in[2] : NULL;
    double mean = 0, square = 0;
    for (int64_t c = 0; c < cols && !rms; c++) mean += wok_get_f64(x->dtype, x->data, row * cols + c);
    mean /= (double)cols;
    for (int64_t c = 0; c < cols; c++) {
        double v = wok_get_f64(x->dtype, x->data, row * cols + c) - mean;
        square += v * v;
    }
    double inverse = 1 / sqrt(square / (double)cols + epsilon);
    for (int64_t c = 0; c < cols; c++) {
        int64_t i = row * cols + c;
        double v = (wok_get_f64(x->dtype, x->data, i) - mean) * inverse;
        if (scale) v *= broadcast_at(scale, x, i);
        if (bias && !rms) v += broadcast_at(bias, x, i);
        wok_store_f64(y->dtype, y->data, i, 1, &v);
    }
    if (call->out_count > 1 && call->out[1]) wok_store_f64(call->out[1]->dtype, call->out[1]->data, row, 1, &mean);
    if (call->out_count > 2 && call->out[2]) wok_store_f64(call->out[2]->dtype, call->out[2]->data, row, 1, &inverse);
}

static wok_status layer_norm_run_ref(wok_call *call) {
    const wok_tensor *x = call->in[0];
    int axis = wok_axis(wok_ir_int(call->node, "axis", -1), x->rank);
    if (axis < 0) return wok_call_fail(call, WOK_ERR_SHAPE, "the axis is outside a tensor of rank %d", x->rank);
    int64_t rows = wok_dims_product(x->dims, 0, axis), cols = wok_dims_product(x->dims, axis, x->rank);
    double epsilon = (double)wok_ir_float(call->node, "epsilon", 1e-5f);
    for (int64_t r = 0; r < rows && cols; r++)
        layer_norm_row(call, r, cols, epsilon, call->node->op == WOK_OP_RMSNormalization);
    return WOK_OK;
}

const wok_op_impl *const wok_impls_layer_norm[] = {
    &(const wok_op_impl){.name = "rows",
                         .inplace = 1,
                         .accept = layer_norm_accept,
                         .prepare = layer_norm_prepare,
                         .run = layer_norm_run},
    &(const wok_op_impl){.name = "ref", .accept = wok_accept_number, .run = layer_norm_run_ref},
    NULL,
};

/* ---- wok.LayerNorm: x, residual?, gamma?, beta?, bias? -> y, sum? ------------------------------------------------ */

enum { RESIDUAL = 1, GAMMA, BETA, BIAS };

wok_status wok_infer_wok_layer_norm(wok_infer *infer) {
    WOK_TRY(wok_infer_need(infer, 1));
    const wok_type *x = infer->in[0], *residual = infer->in[RESIDUAL];
    infer->out[0].dtype = x->dtype;
    if (x->rank < 0) return WOK_OK;
    if (x->rank < 1) return wok_infer_fail(infer, WOK_ERR_SHAPE, "a scalar has no last axis");
    for (int d = 0; residual && d < x->rank && residual->rank >= 0; d++)
        if (residual->rank != x->rank ||
            (residual->dims[d] != x->dims[d] && wok_dim_known(x->dims[d]) && wok_dim_known(residual->dims[d])))
            return wok_infer_fail(infer, WOK_ERR_SHAPE, "%s is added to %s", wok_type_text(infer->graph, residual),
                                  wok_type_text(infer->graph, x));
    for (int i = GAMMA; i <= BIAS; i++) {
        const wok_type *t = infer->in[i];
        int64_t cols = x->dims[x->rank - 1];
        if (t && t->rank >= 0 && wok_dim_known(cols) && wok_count(t->dims, t->rank) != cols)
            return wok_infer_fail(infer, WOK_ERR_SHAPE, "input %d is %s for rows of %lld", i,
                                  wok_type_text(infer->graph, t), (long long)cols);
    }
    wok_infer_out(infer, 0, x->dtype, x->rank, x->dims);
    wok_infer_out(infer, 1, x->dtype, x->rank, x->dims);
    return WOK_OK;
}

static wok_status wok_layer_norm_prepare(wok_prepare *prepare) {
    return prepare_rows(prepare, WOK_NORM_LAYER, prepare->in[0]->rank - 1,
                        wok_ir_float(prepare->node, "epsilon", 1e-5f));
}

static wok_status wok_layer_norm_run(wok_call *call) {
    bool sum = call->out_count > 1 && call->out[1];
    return run_rows(call, RESIDUAL, GAMMA, BETA, BIAS, sum ? call->out[1]->data : NULL);
}

const wok_op_impl *const wok_impls_wok_layer_norm[] = {
    &(const wok_op_impl){.name = "rows",
                         .inplace = 1u | 1u << RESIDUAL,
                         .accept = wok_accept_f32,
                         .prepare = wok_layer_norm_prepare,
                         .run = wok_layer_norm_run},
    NULL,
};

/* ---- LpNormalization --------------------------------------------------------------------------------------------- */

static wok_status lp_norm_run(wok_call *call) {
    const wok_tensor *x = call->in[0], *y = call->out[0];
    int axis = wok_axis(wok_ir_int(call->node, "axis", -1), x->rank);
    int64_t p = wok_ir_int(call->node, "p", 2);
    if (axis < 0 || (p != 1 && p != 2)) return wok_call_fail(call, WOK_ERR_UNSUPPORTED, "axis or p is out of range");
    int64_t n = x->dims[axis], inner = wok_dims_product(x->dims, axis + 1, x->rank),
            outer = wok_dims_product(x->dims, 0, axis);
    for (int64_t r = 0; r < outer * inner; r++) {
        int64_t base = r / inner * n * inner + r % inner;
        double norm = 0;
        for (int64_t i = 0; i < n; i++) {
            double v = wok_get_f64(x->dtype, x->data, base + i * inner);
            norm += p == 1 ? fabs(v) : v * v;
        }
        if (p == 2) norm = sqrt(norm);
        for (int64_t i = 0; i < n; i++) {
            double v = wok_get_f64(x->dtype, x->data, base + i * inner);
            v = norm == 0 ? 0 : v / norm;
            wok_store_f64(y->dtype, y->data, base + i * inner, 1, &v);
        }
    }
    return WOK_OK;
}

const wok_op_impl *const wok_impls_lp_norm[] = {
    &(const wok_op_impl){.name = "ref", .accept = wok_accept_number, .run = lp_norm_run},
    NULL,
};

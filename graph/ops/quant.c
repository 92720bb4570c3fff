/* quant.c - QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear by their definition: quantising divides in f32,
 * rounds half to even, then adds the zero point and saturates. */
#include "ops.h"

#include <math.h>
#include <string.h>

static bool is_quantised(wok_dtype dtype) {
    return dtype == WOK_I8 || dtype == WOK_U8 || dtype == WOK_I16 || dtype == WOK_U16;
}

wok_status wok_infer_codes(wok_infer *infer, int i) {
    wok_dtype dtype = infer->in[i]->dtype;
    if (!dtype || is_quantised(dtype)) return WOK_OK;
    return wok_infer_fail(infer, WOK_ERR_UNSUPPORTED, "input %d is %s, not an integer of 8 or 16 bits", i,
                          wok_dtype_name(dtype));
}

wok_status wok_infer_scale(wok_infer *infer, int i) {
    const wok_type *scale = i < infer->in_count ? infer->in[i] : NULL;
    if (!scale || !scale->data || !wok_dtype_is_float(scale->dtype)) return WOK_OK;
    int64_t count = (int64_t)(scale->bytes / wok_dtype_size(scale->dtype));
    for (int64_t k = 0; k < count; k++) {
        double x = wok_get_f64(scale->dtype, scale->data, k);
        if (!(x > 0) || !isfinite(x))
            return wok_infer_fail(infer, WOK_ERR_VALUE, "a scale is %g, not a positive number (input %d)", x, i);
    }
    return WOK_OK;
}

static double scalar(const wok_tensor *t, int64_t i, double fallback) {
    return t ? wok_get_f64(t->dtype, t->data, i) : fallback;
}
/* ---- which scale belongs to an element --------------------------------------------------------------------------- */

/* Per tensor (one scale), per axis (a vector), or in blocks along the axis (the scale has the tensor's rank). */
typedef struct grain {
    int64_t outer, dim, inner, block, blocks; /* block 0: per tensor */
    bool vector;
} grain;

static wok_status read_grain(wok_call *call, const wok_tensor *scale, grain *g) {
    const wok_tensor *x = call->in[0];
    const wok_tensor *zero = wok_call_input(call, 2);
    *g = (grain){0};
    if (zero && wok_tensor_count(zero) != wok_tensor_count(scale))
        return wok_call_fail(call, WOK_ERR_SHAPE, "scales and zero points differ in number");
    if (wok_tensor_count(scale) == 1 && scale->rank <= 1) return WOK_OK;
    int axis = wok_axis(wok_ir_int(call->node, "axis", 1), x->rank);
    if (axis < 0) return wok_call_fail(call, WOK_ERR_SHAPE, "the axis is outside a tensor of rank %d", x->rank);
    g->dim = x->dims[axis];
    g->inner = wok_dims_product(x->dims, axis + 1, x->rank);
    g->vector = scale->rank == 1;
    g->blocks = g->vector ? g->dim : scale->rank == x->rank ? scale->dims[axis] : 0;
    int64_t given = wok_ir_int(call->node, "block_size", 0);
    if (g->blocks > 0) g->block = given > 0 && !g->vector ? given : (g->dim + g->blocks - 1) / g->blocks;
    bool fits = g->vector ? scale->dims[0] == g->dim : g->blocks > 0 && (g->dim + g->block - 1) / g->block == g->blocks;
    for (int d = 0; d < x->rank && fits && !g->vector; d++) fits = d == axis || scale->dims[d] == x->dims[d];
    if (!fits) return wok_call_fail(call, WOK_ERR_SHAPE, "the scales do not fit the tensor");
    return WOK_OK;
}

static int64_t grain_at(const grain *g, int64_t i) {
    if (!g->block) return 0;
    int64_t along = i / g->inner % g->dim;
    if (g->vector) return along;
    return (i / g->inner / g->dim * g->blocks + along / g->block) * g->inner + i % g->inner;
}

/* ---- QuantizeLinear, DequantizeLinear ---------------------------------------------------------------------------- */

wok_status wok_infer_quantize(wok_infer *infer) {
    WOK_TRY(wok_infer_need(infer, 2));
    int64_t named = wok_ir_int(infer->node, "output_dtype", 0);
    wok_dtype dtype = infer->in[2] ? infer->in[2]->dtype : named > 0 && named <= WOK_BF16 ? (wok_dtype)named : WOK_U8;
    if (dtype && !is_quantised(dtype))
        return wok_infer_fail(infer, WOK_ERR_UNSUPPORTED, "quantised type %d", (int)dtype);
    WOK_TRY(wok_infer_scale(infer, 1));
    wok_infer_out(infer, 0, dtype, infer->in[0]->rank, infer->in[0]->dims);
    return WOK_OK;
}

static wok_status quantize_run(wok_call *call) {
    const wok_tensor *x = call->in[0], *scale = call->in[1], *zero = wok_call_input(call, 2), *y = call->out[0];
    grain g;
    WOK_TRY(read_grain(call, scale, &g));
    int64_t n = wok_tensor_count(x);
    bool in_double = x->dtype == WOK_F64;
    for (int64_t i = 0; i < n; i++) {
        int64_t at = grain_at(&g, i);
        double v = wok_get_f64(x->dtype, x->data, i), by = wok_get_f64(scale->dtype, scale->data, at);
        double q = wok_round_even(in_double ? v / by : (double)((float)v / (float)by)) + scalar(zero, at, 0);
        if (isnan(v)) q = scalar(zero, at, 0);
        wok_store_i64(y->dtype, y->data, i, 1, &(int64_t){wok_saturate(q, y->dtype)});
    }
    return WOK_OK;
}

const wok_op_impl *const wok_impls_quantize[] = {
    &(const wok_op_impl){.name = "bytes",
                         .accept = wok_quantize_accept_s8,
                         .prepare = wok_quantize_prepare_s8,
                         .run = wok_quantize_run_s8},
    &(const wok_op_impl){.name = "ref", .accept = wok_accept_number, .run = quantize_run},
    NULL,
};

wok_status wok_infer_dequantize(wok_infer *infer) {
    WOK_TRY(wok_infer_need(infer, 2));
    int64_t named = wok_ir_int(infer->node, "output_dtype", 0);
    wok_dtype dtype = named > 0 && named <= WOK_BF16 ? (wok_dtype)named : infer->in[1]->dtype;
    if (infer->in[0]->dtype && !is_quantised(infer->in[0]->dtype) && infer->in[0]->dtype != WOK_I32)
        return wok_infer_fail(infer, WOK_ERR_UNSUPPORTED, "quantised type %d", (int)infer->in[0]->dtype);
    if (infer->in[2] && infer->in[2]->dtype && infer->in[0]->dtype && infer->in[2]->dtype != infer->in[0]->dtype)
        return wok_infer_fail(infer, WOK_ERR_SHAPE, "the zero point is %s, the codes are %s",
                              wok_dtype_name(infer->in[2]->dtype), wok_dtype_name(infer->in[0]->dtype));
    WOK_TRY(wok_infer_scale(infer, 1));
    wok_infer_out(infer, 0, dtype, infer->in[0]->rank, infer->in[0]->dims);
    return WOK_OK;
}

static wok_status dequantize_run(wok_call *call) {
    const wok_tensor *x = call->in[0], *scale = call->in[1], *zero = wok_call_input(call, 2), *y = call->out[0];
    grain g;
    WOK_TRY(read_grain(call, scale, &g));
    int64_t n = wok_tensor_count(x);
    for (int64_t i = 0; i < n; i++) {
        int64_t at = grain_at(&g, i);
        double v =
            (wok_get_f64(x->dtype, x->data, i) - scalar(zero, at, 0)) * wok_get_f64(scale->dtype, scale->data, at);
        wok_store_f64(y->dtype, y->data, i, 1, &v);
    }
    return WOK_OK;
}

const wok_op_impl *const wok_impls_dequantize[] = {
    &(const wok_op_impl){.name = "bytes",
                         .accept = wok_dequantize_accept_s8,
                         .prepare = wok_quantize_prepare_s8,
                         .run = wok_quantize_run_s8},
    &(const wok_op_impl){.name = "ref", .accept = wok_accept_number, .run = dequantize_run},
    NULL,
};

/* ---- DynamicQuantizeLinear: y u8, scale f32, zero point u8 ------------------------------------------------------- */

wok_status wok_infer_dynamic_quantize(wok_infer *infer) {
    WOK_TRY(wok_infer_need(infer, 1));
    wok_infer_out(infer, 0, WOK_U8, infer->in[0]->rank, infer->in[0]->dims);
    wok_infer_out(infer, 1, WOK_F32, 0, NULL);
    wok_infer_out(infer, 2, WOK_U8, 0, NULL);
    return WOK_OK;
}

static wok_status dynamic_quantize_run(wok_call *call) {
    const wok_tensor *x = call->in[0];
    const float *v = x->data;
    int64_t n = wok_tensor_count(x);
    float lo = 0, hi = 0; /* the range holds 0 */
    for (int64_t i = 0; i < n; i++) {
        if (v[i] < lo) lo = v[i];
        if (v[i] > hi) hi = v[i];
    }
    float scale = (hi - lo) / 255;
    if (scale == 0) scale = 1; /* nothing but zeros: any finite scale is right */
    uint8_t zero = (uint8_t)wok_saturate(wok_round_even((double)(-lo / scale)), WOK_U8);
    uint8_t *y = call->out[0] ? call->out[0]->data : NULL;
    for (int64_t i = 0; i < n && y; i++)
        y[i] = (uint8_t)wok_saturate(wok_round_even((double)(v[i] / scale)) + zero, WOK_U8);
    if (call->out_count > 1 && call->out[1]) *(float *)call->out[1]->data = scale;
    if (call->out_count > 2 && call->out[2]) *(uint8_t *)call->out[2]->data = zero;
    return WOK_OK;
}

const wok_op_impl *const wok_impls_dynamic_quantize[] = {
    &(const wok_op_impl){.name = "ref", .accept = wok_accept_f32, .run = dynamic_quantize_run},
    NULL,
};

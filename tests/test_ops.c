/* test_ops.c - known faults of other runtimes (B numbers of the list of public bugs), one node at a time. */
#include "nodes.h"

#include <fenv.h>

/* ---- B04: Softmax before operator set 13 flattens ---------------------------------------------------------------- */

static wok_value logs(net *n) {
    static float x[4];
    for (int i = 0; i < 4; i++) x[i] = logf((float)(i + 1));
    return f32(n, DIMS(1, 2, 2), x);
}

CASE(b04_softmax, opset_11_default_flattens_at_1, 11) {
    gives(n, OP(n, "Softmax", logs(n)), DIMS(1, 2, 2), F32(.1f, .2f, .3f, .4f));
}
CASE(b04_softmax, opset_11_axis_1_flattens, 11) {
    wok_value y = OP(n, "Softmax", logs(n));
    int_attr(n, "axis", 1);
    gives(n, y, DIMS(1, 2, 2), F32(.1f, .2f, .3f, .4f));
}
CASE(b04_softmax, opset_13_default_is_the_last_axis, 13) {
    gives(n, OP(n, "Softmax", logs(n)), DIMS(1, 2, 2), F32(1 / 3.f, 2 / 3.f, 3 / 7.f, 4 / 7.f));
}
CASE(b04_softmax, opset_13_axis_1, 13) {
    wok_value y = OP(n, "Softmax", logs(n));
    int_attr(n, "axis", 1);
    gives(n, y, DIMS(1, 2, 2), F32(1 / 4.f, 1 / 3.f, 3 / 4.f, 2 / 3.f));
}
CASE(b04_softmax, log_softmax_and_hardmax_flatten_too, 11) {
    wok_value y = OP(n, "LogSoftmax", logs(n));
    wok_value h = OP(n, "Hardmax", logs(n));
    y = OP(n, "Exp", y);
    gives(n, OP(n, "Add", y, h), DIMS(1, 2, 2), F32(.1f, .2f, .3f, 1.4f));
}

/* ---- B05: Clip --------------------------------------------------------------------------------------------------- */

static wok_value clip_input(net *n) { return f32(n, DIMS(3), F32(-3, .5f, 9)); }

CASE(b05_clip, bounds_as_attributes, 6) {
    wok_value y = OP(n, "Clip", clip_input(n));
    float_attr(n, "min", 0);
    float_attr(n, "max", 6);
    gives(n, y, DIMS(3), F32(0, .5f, 6));
}
CASE(b05_clip, lower_bound_left_out, 13) {
    gives(n, OP(n, "Clip", clip_input(n), WOK_ABSENT, number(n, 6)), DIMS(3), F32(-3, .5f, 6));
}
CASE(b05_clip, bound_from_a_constant_node, 13) {
    wok_value six = wok_graph_op(n->model, "Constant", "", "six", NULL, 0, NULL);
    float_attr(n, "value_float", 6);
    gives(n, OP(n, "Clip", clip_input(n), number(n, 0), six), DIMS(3), F32(0, .5f, 6));
}
CASE(b05_clip, bounds_as_inputs, 13) {
    wok_value x = clip_input(n), lo = f32(n, SCALAR, F32(0)), hi = f32(n, SCALAR, F32(6));
    gives(n, OP(n, "Clip", x, lo, hi), DIMS(3), F32(0, .5f, 6));
}
CASE(b05_clip, upper_bound_wins_where_they_cross, 13) {
    gives(n, OP(n, "Clip", clip_input(n), number(n, 2), number(n, 1)), DIMS(3), F32(1, 1, 1));
}
CASE(b05_clip, integers, 13) {
    wok_value x = i64(n, DIMS(4), I64(-5, 0, 5, INT64_MAX));
    wok_value lo = wok_graph_constant(n->model, NULL, WOK_I64, 0, NULL, I64(-1), 8, WOK_DATA_COPY);
    gives_i64(n, OP(n, "Clip", x, lo), DIMS(4), I64(-1, 0, 5, INT64_MAX));
}

/* ---- B06: Squeeze, Unsqueeze ------------------------------------------------------------------------------------- */

static wok_value column(net *n) { return f32(n, DIMS(1, 4, 1, 1), F32(1, 2, 3, 4)); }

CASE(b06_squeeze, axes_as_attribute, 11) {
    wok_value y = OP(n, "Squeeze", column(n));
    INTS_ATTR(n, "axes", 2);
    gives(n, y, DIMS(1, 4, 1), F32(1, 2, 3, 4));
}
CASE(b06_squeeze, axes_as_input, 13) {
    gives(n, OP(n, "Squeeze", column(n), LIST(n, -1)), DIMS(1, 4, 1), F32(1, 2, 3, 4));
}
CASE(b06_squeeze, without_axes_all_ones_go, 13) { gives(n, OP(n, "Squeeze", column(n)), DIMS(4), F32(1, 2, 3, 4)); }
CASE(b06_squeeze, an_axis_that_is_not_1, 13) {
    fails(n, OP(n, "Squeeze", column(n), LIST(n, 1)), WOK_ERR_SHAPE, "axis 1 of [1,4,1,1] is not 1");
}
CASE(b06_squeeze, axis_out_of_range, 13) { fails(n, OP(n, "Squeeze", column(n), LIST(n, 4)), WOK_ERR_SHAPE, "axis 4"); }
CASE(b06_squeeze, unsqueeze_counts_in_the_output, 11) {
    wok_value y = OP(n, "Unsqueeze", f32(n, DIMS(2), F32(1, 2)));
    INTS_ATTR(n, "axes", 0, -1);
    gives(n, y, DIMS(1, 2, 1), F32(1, 2));
}
CASE(b06_squeeze, unsqueeze_axis_named_twice, 13) {
    fails(n, OP(n, "Unsqueeze", f32(n, DIMS(2), F32(1, 2)), LIST(n, 0, -3)), WOK_ERR_VALUE, "twice");
}

/* ---- B07: ReduceMean --------------------------------------------------------------------------------------------- */

static wok_value six(net *n) { return f32(n, DIMS(2, 3), F32(0, 1, 2, 3, 4, 5)); }

CASE(b07_reduce, axes_as_input, 18) {
    wok_value y = OP(n, "ReduceMean", six(n), LIST(n, 1));
    int_attr(n, "keepdims", 0);
    gives(n, y, DIMS(2), F32(1, 4));
}
CASE(b07_reduce, empty_axes_with_the_noop_flag, 18) {
    wok_value none = wok_graph_constant(n->model, "none", WOK_I64, 1, I64(0), NULL, 0, WOK_DATA_COPY);
    wok_value y = OP(n, "ReduceMean", six(n), none);
    int_attr(n, "noop_with_empty_axes", 1);
    gives(n, y, DIMS(2, 3), F32(0, 1, 2, 3, 4, 5));
}
CASE(b07_reduce, no_axes_is_all_axes, 18) { gives(n, OP(n, "ReduceMean", six(n)), DIMS(1, 1), F32(2.5f)); }
CASE(b07_reduce, axes_as_attribute, 11) {
    wok_value y = OP(n, "ReduceMean", six(n));
    INTS_ATTR(n, "axes", -1);
    gives(n, y, DIMS(2, 1), F32(1, 4));
}
CASE(b07_reduce, middle_axis, 18) {
    wok_value x = f32(n, DIMS(2, 2, 2), F32(1, 2, 3, 4, 5, 6, 7, 8));
    gives(n, OP(n, "ReduceSum", x, LIST(n, 1)), DIMS(2, 1, 2), F32(4, 6, 12, 14));
}
CASE(b07_reduce, log_sum_exp_does_not_overflow, 18) {
    gives(n, OP(n, "ReduceLogSumExp", f32(n, DIMS(2), F32(1000, 1000)), LIST(n, 0)), DIMS(1), F32(1000.6931472f));
}
CASE(b07_reduce, integers_stay_exact, 18) {
    int64_t big = INT64_C(1) << 60;
    gives_i64(n, OP(n, "ReduceSum", i64(n, DIMS(3), I64(big, 1, 2)), LIST(n, 0)), DIMS(1), I64(big + 3));
}
CASE(b07_reduce, max_keeps_nan, 18) {
    gives(n, OP(n, "ReduceMax", f32(n, DIMS(3), F32(1, NAN, 3)), LIST(n, 0)), DIMS(1), F32(NAN));
}

/* ---- B09: auto_pad SAME with stride 2 ---------------------------------------------------------------------------- */

static wok_value conv_3x3(net *n) {
    static float x[16];
    for (int i = 0; i < 16; i++) x[i] = (float)(i + 1);
    wok_value in = f32(n, DIMS(1, 1, 4, 4), x);
    wok_value w =
        wok_graph_constant(n->model, "w", WOK_F32, DIMS(1, 1, 3, 3), F32(1, 1, 1, 1, 1, 1, 1, 1, 1), 36, WOK_DATA_COPY);
    wok_value y = OP(n, "Conv", in, w);
    INTS_ATTR(n, "strides", 2, 2);
    return y;
}

CASE(b09_auto_pad, same_upper, 13) {
    wok_value y = conv_3x3(n);
    text_attr(n, "auto_pad", "SAME_UPPER");
    gives(n, y, DIMS(1, 1, 2, 2), F32(54, 45, 72, 54));
}
CASE(b09_auto_pad, same_lower, 13) {
    wok_value y = conv_3x3(n);
    text_attr(n, "auto_pad", "SAME_LOWER");
    gives(n, y, DIMS(1, 1, 2, 2), F32(14, 30, 57, 99));
}
CASE(b09_auto_pad, pads_at_the_end, 13) {
    wok_value y = conv_3x3(n);
    INTS_ATTR(n, "pads", 0, 0, 1, 1);
    gives(n, y, DIMS(1, 1, 2, 2), F32(54, 45, 72, 54));
}
CASE(b09_auto_pad, pads_all_around, 13) {
    wok_value y = conv_3x3(n);
    INTS_ATTR(n, "pads", 1, 1, 1, 1);
    gives(n, y, DIMS(1, 1, 2, 2), F32(14, 30, 57, 99));
}
CASE(b09_auto_pad, valid, 13) {
    wok_value y = conv_3x3(n);
    text_attr(n, "auto_pad", "VALID");
    gives(n, y, DIMS(1, 1, 1, 1), F32(54));
}
CASE(b09_auto_pad, pooling_pads_the_same_way, 13) {
    static float x[16];
    for (int i = 0; i < 16; i++) x[i] = (float)(i + 1);
    wok_value y = OP(n, "AveragePool", f32(n, DIMS(1, 1, 4, 4), x));
    INTS_ATTR(n, "kernel_shape", 3, 3);
    INTS_ATTR(n, "strides", 2, 2);
    text_attr(n, "auto_pad", "SAME_LOWER");
    gives(n, y, DIMS(1, 1, 2, 2), F32(3.5f, 5, 9.5f, 11));
}

/* ---- B10: Gather ------------------------------------------------------------------------------------------------- */

static wok_value twelve(net *n) {
    static float x[12];
    for (int i = 0; i < 12; i++) x[i] = (float)i;
    return f32(n, DIMS(3, 4), x);
}
static wok_value ids(net *n, wok_dtype dtype, int count, const void *data) {
    return tensor(n, dtype, 1, (int64_t[]){count}, data);
}

CASE(b10_gather, negative_i64, 13) {
    wok_value x = twelve(n);
    gives(n, OP(n, "Gather", x, ids(n, WOK_I64, 2, I64(0, -1))), DIMS(2, 4), F32(0, 1, 2, 3, 8, 9, 10, 11));
}
CASE(b10_gather, negative_i32, 13) {
    wok_value x = twelve(n);
    gives(n, OP(n, "Gather", x, ids(n, WOK_I32, 2, (int32_t[]){0, -1})), DIMS(2, 4), F32(0, 1, 2, 3, 8, 9, 10, 11));
}
CASE(b10_gather, beyond_the_end, 13) {
    wok_value x = twelve(n);
    fails(n, OP(n, "Gather", x, ids(n, WOK_I64, 2, I64(1, 3))), WOK_ERR_VALUE, "index 3 ");
}
CASE(b10_gather, before_the_start, 13) {
    wok_value x = twelve(n);
    fails(n, OP(n, "Gather", x, ids(n, WOK_I32, 1, (int32_t[]){-4})), WOK_ERR_VALUE, "index -4 ");
}
CASE(b10_gather, an_index_that_only_fits_32_bits_by_wrapping, 13) {
    wok_value x = twelve(n);
    fails(n, OP(n, "Gather", x, ids(n, WOK_I64, 1, I64(INT64_C(1) << 32))), WOK_ERR_VALUE, "index 4294967296 ");
}
CASE(b10_gather, along_another_axis, 13) {
    wok_value x = twelve(n);
    wok_value y = OP(n, "Gather", x, ids(n, WOK_I64, 2, I64(3, 0)));
    int_attr(n, "axis", 1);
    gives(n, y, DIMS(3, 2), F32(3, 0, 7, 4, 11, 8));
}
CASE(b10_gather, elements_and_nd_check_too, 13) {
    wok_value x = twelve(n);
    fails(n, OP(n, "GatherND", x, i64(n, DIMS(1, 2), I64(2, 4))), WOK_ERR_VALUE, "index 4 ");
}
CASE(b10_gather, gather_elements, 13) {
    wok_value x = f32(n, DIMS(2, 2), F32(1, 2, 3, 4));
    wok_value y = OP(n, "GatherElements", x, i64(n, DIMS(2, 2), I64(0, 0, -1, 0)));
    int_attr(n, "axis", 1);
    gives(n, y, DIMS(2, 2), F32(1, 1, 4, 3));
}
CASE(b10_gather, scatter_checks_before_writing, 18) {
    wok_value x = f32(n, DIMS(3), F32(1, 2, 3));
    wok_value at = i64(n, DIMS(1), I64(3));
    fails(n, OP(n, "ScatterElements", x, at, f32(n, DIMS(1), F32(9))), WOK_ERR_VALUE, "index 3 ");
}

/* ---- B11: an operator set newer than this library ---------------------------------------------------------------- */

CASE(b11_opset, unchanged_operators_load_at_99, 99) {
    wok_value x = f32(n, DIMS(2), F32(1, 2));
    gives(n, OP(n, "Add", x, x), DIMS(2), F32(2, 4));
}
CASE(b11_opset, an_operator_that_does_not_exist, 21) {
    wok_value y = OP(n, "Frobnicate", f32(n, DIMS(1), F32(1)));
    wok_graph_output(n->model, y);
    cr_expect_eq(wok_model_finish(n->model, NULL), WOK_ERR_UNSUPPORTED);
    cr_expect_not_null(strstr(wok_ctx_error(n->ctx), "Frobnicate"), "%s", wok_ctx_error(n->ctx));
}

/* ---- B12: batch baked into Reshape ------------------------------------------------------------------------------- */

CASE(b12_reshape, batch_1_in_the_target, 13) {
    wok_value x = f32(n, DIMS(2, 4), F32(0, 1, 2, 3, 4, 5, 6, 7));
    fails(n, OP(n, "Reshape", x, LIST(n, 1, 4)), WOK_ERR_SHAPE, "[2,4] cannot take the shape [1,4]");
}
CASE(b12_reshape, zero_copies_and_minus_one_fills, 13) {
    wok_value x = f32(n, DIMS(2, 4), F32(0, 1, 2, 3, 4, 5, 6, 7));
    gives(n, OP(n, "Reshape", x, LIST(n, 0, -1)), DIMS(2, 4), F32(0, 1, 2, 3, 4, 5, 6, 7));
}
CASE(b12_reshape, minus_one_that_does_not_divide, 13) {
    fails(n, OP(n, "Reshape", f32(n, DIMS(5), F32(1, 2, 3, 4, 5)), LIST(n, 2, -1)), WOK_ERR_SHAPE,
          "[5] cannot take the shape");
}
CASE(b12_reshape, two_open_sizes, 13) {
    fails(n, OP(n, "Reshape", f32(n, DIMS(4), F32(1, 2, 3, 4)), LIST(n, -1, -1)), WOK_ERR_VALUE, "two sizes");
}
CASE(b12_reshape, allowzero, 14) {
    wok_value x = tensor(n, WOK_F32, DIMS(0, 3), NULL);
    wok_value y = OP(n, "Reshape", x, LIST(n, 3, 0));
    int_attr(n, "allowzero", 1);
    gives(n, y, DIMS(3, 0), NULL);
}
CASE(b12_reshape, target_from_data, 13) {
    wok_value x = f32(n, DIMS(4), F32(1, 2, 3, 4));
    gives(n, OP(n, "Reshape", x, i64(n, DIMS(2), I64(2, -1))), DIMS(2, 2), F32(1, 2, 3, 4));
}

/* ---- B22, B23, B24: rounding of codes ---------------------------------------------------------------------------- */

static wok_value quantize(net *n, int count, const float *x, float scale, wok_dtype dtype, int8_t zero) {
    wok_value in = f32(n, DIMS(count), x), by = number(n, scale);
    wok_value z = wok_graph_constant(n->model, NULL, dtype, 0, NULL, &zero, 1, WOK_DATA_COPY);
    return OP(n, "QuantizeLinear", in, by, z);
}

CASE(b22_rounding, half_to_even, 13) {
    gives_bytes(n, quantize(n, 4, F32(.25f, .75f, 1.25f, 1.75f), .5f, WOK_U8, 0), WOK_U8, DIMS(4),
                (uint8_t[]){0, 2, 2, 4});
}
CASE(b22_rounding, signed_and_saturated, 13) {
    gives_bytes(n, quantize(n, 8, F32(-2.5f, -1.5f, -.5f, .5f, 1.5f, 2.5f, 200, -200), 1, WOK_I8, 0), WOK_I8, DIMS(8),
                (int8_t[]){-2, -2, 0, 0, 2, 2, 127, -128});
}
CASE(b22_rounding, zero_point_is_added_after_rounding, 13) {
    gives_bytes(n, quantize(n, 3, F32(.5f, 1.5f, 2.5f), 1, WOK_I8, 1), WOK_I8, DIMS(3), (int8_t[]){1, 3, 3});
}
CASE(b22_rounding, whatever_the_rounding_mode_is, 13) {
    int before = fegetround();
    fesetround(FE_UPWARD);
    gives_bytes(n, quantize(n, 2, F32(.5f, 2.25f), 1, WOK_I8, 0), WOK_I8, DIMS(2), (int8_t[]){0, 2});
    fesetround(before);
}
CASE(b22_rounding, round_half_to_even, 13) {
    gives(n, OP(n, "Round", f32(n, DIMS(5), F32(-2.5f, -.5f, .5f, 1.5f, 2.4f))), DIMS(5), F32(-2, -0.f, 0, 2, 2));
}

static wok_value dynamic(net *n, int count, const float *x) {
    wok_value in = f32(n, DIMS(count), x), out[3];
    for (int i = 0; i < 3; i++) out[i] = wok_graph_value(n->model, (const char *[]){"q", "scale", "zero"}[i]);
    wok_graph_node(n->model, "DynamicQuantizeLinear", "", "node", &in, 1, out, 3);
    return out[0];
}
CASE(b22_rounding, dynamic, 13) {
    gives_bytes(n, dynamic(n, 3, F32(-127, 128, .5f)), WOK_U8, DIMS(3), (uint8_t[]){0, 255, 127});
}
CASE(b22_rounding, dynamic_with_ties, 13) {
    gives_bytes(n, dynamic(n, 2, F32(-253, 257)), WOK_U8, DIMS(2), (uint8_t[]){0, 254});
}
CASE(b23_zeros, dequantised_zeros_are_zero, 13) {
    wok_value q = dynamic(n, 3, F32(0, 0, 0));
    wok_value scale = wok_graph_value(n->model, "scale"), zero = wok_graph_value(n->model, "zero");
    gives(n, OP(n, "DequantizeLinear", q, scale, zero), DIMS(3), F32(0, 0, 0));
}
CASE(b24_padding, the_zero_point_is_padded, 13) {
    wok_value x = tensor(n, WOK_U8, DIMS(1, 1, 2, 2), (uint8_t[]){130, 130, 130, 130});
    wok_value w = tensor(n, WOK_I8, DIMS(1, 1, 3, 3), (int8_t[]){1, 1, 1, 1, 1, 1, 1, 1, 1});
    wok_value one = number(n, 1),
              x_zero = wok_graph_constant(n->model, NULL, WOK_U8, 0, NULL, (uint8_t[]){128}, 1, WOK_DATA_COPY);
    wok_value w_zero = wok_graph_constant(n->model, NULL, WOK_I8, 0, NULL, (int8_t[]){0}, 1, WOK_DATA_COPY);
    wok_value y_zero = wok_graph_constant(n->model, NULL, WOK_U8, 0, NULL, (uint8_t[]){0}, 1, WOK_DATA_COPY);
    wok_value y = OP(n, "QLinearConv", x, one, x_zero, w, one, w_zero, one, y_zero);
    INTS_ATTR(n, "pads", 1, 1, 1, 1);
    gives_bytes(n, y, WOK_U8, DIMS(1, 1, 2, 2), (uint8_t[]){8, 8, 8, 8});
}

/* ---- B26, B29: rows of -inf, NaN --------------------------------------------------------------------------------- */

CASE(b26_masked, bare_softmax_of_minus_infinity_is_nan, 13) {
    float inf = -INFINITY;
    gives(n, OP(n, "Softmax", f32(n, DIMS(2, 3), F32(inf, inf, inf, 0, 0, inf))), DIMS(2, 3),
          F32(NAN, NAN, NAN, .5f, .5f, 0));
}
CASE(b26_masked, attention_gives_zero, 23) {
    wok_value q = f32(n, DIMS(1, 1, 2, 1), F32(1, 1)), k = f32(n, DIMS(1, 1, 2, 1), F32(1, 1));
    wok_value v = f32(n, DIMS(1, 1, 2, 1), F32(2, 4)), mask = tensor(n, WOK_BOOL, DIMS(2, 2), (uint8_t[]){0, 0, 1, 1});
    gives(n, OP(n, "Attention", q, k, v, mask), DIMS(1, 1, 2, 1), F32(0, 3));
}
CASE(b29_nan, relu_and_clip_keep_it_in_body_and_tail, 13) {
    static float x[19], want[19];
    for (int i = 0; i < 19; i++) x[i] = i % 17 ? (float)(i - 8) : NAN;
    for (int i = 0; i < 19; i++) want[i] = isnan(x[i]) ? NAN : fminf(fmaxf(x[i], 0), 6);
    gives(n, OP(n, "Clip", OP(n, "Relu", f32(n, DIMS(19), x)), number(n, 0), number(n, 6)), DIMS(19), want);
}
CASE(b29_nan, min_and_max_keep_it, 13) {
    wok_value a = f32(n, DIMS(2), F32(NAN, 1)), b = f32(n, DIMS(2), F32(1, NAN));
    gives(n, OP(n, "Max", OP(n, "Min", a, b), number(n, 0)), DIMS(2), F32(NAN, NAN));
}

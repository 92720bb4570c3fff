/* test_public_bugs_quant.c - faults that users of other libraries reported for quantised models, each with the public list's
 * number (Bnn) and right answer. Every case runs on every instruction-set level of this machine (a processor with VNNI never
 * shows what goes wrong without), with its activations as inputs and as constants, with and without rewrites.
 * B27 and B30 are about the quantiser: test_quantize_command.c and quantized_models.py have their other halves. */
#define _GNU_SOURCE /* fesetround's modes */
#include "nodes.h"

#include <fenv.h>

/* ---- every level ---------------------------------------------------------------------------------------------------- */

static const char *const levels[] = {"ref", "avx2", "avxvnni", "avx512",  "avx512vnni",
                                     "amx", "neon", "neondot", "neoni8mm"};
static const char *level; /* the one at hand */

static bool is_here(const char *isa) {
    wok_isa_set set;
    return wok_cpu_select(isa, &set) == NULL;
}

static net begin_at(const char *isa, form f, int64_t opset) {
    net n = {.form = f};
    n.ctx = wok_ctx_create(&(wok_ctx_options){.size = sizeof(wok_ctx_options), .threads = 2, .isa = isa});
    cr_assert_eq(wok_model_new(n.ctx, "test", &n.model), WOK_OK, "%s", wok_ctx_error(n.ctx));
    wok_model_set_opset(n.model, "", opset);
    wok_model_set_opset(n.model, "com.microsoft", 1);
    level = isa;
    return n;
}

/* BUG(name, opset) { body with `n` } */
#define BUG(name, opset)                                                                                               \
    static void bug_##name(net *n);                                                                                    \
    Test(quantisation, name) {                                                                                         \
        for (size_t i = 0; i < sizeof levels / sizeof *levels; i++)                                                    \
            for (form f = 0; f < FORMS && is_here(levels[i]); f++) {                                                   \
                net n = begin_at(levels[i], f, opset);                                                                 \
                bug_##name(&n);                                                                                        \
                end(&n);                                                                                               \
            }                                                                                                          \
    }                                                                                                                  \
    static void bug_##name(net *n)

/* ---- shorthand ------------------------------------------------------------------------------------------------------- */

/* Weights, scales and zero points are constants in every form: that is where integer kernels are chosen. */
static wok_value fixed(net *n, wok_dtype dtype, int rank, const int64_t *dims, const void *data) {
    return wok_graph_constant(n->model, NULL, dtype, rank, dims, data, count_of(dims, rank) * wok_dtype_size(dtype),
                              WOK_DATA_COPY);
}
static wok_value u8_zero(net *n, int value) {
    return fixed(n, WOK_U8, SCALAR, &(uint8_t){(uint8_t)value});
}
static wok_value s8_zero(net *n, int value) {
    return fixed(n, WOK_I8, SCALAR, &(int8_t){(int8_t)value});
}

static void to_nowhere(net *n, const char *type, wok_value in, wok_value *out, int count) {
    static const char *const names[] = {"out0", "out1", "out2"};
    for (int i = 0; i < count; i++) out[i] = wok_graph_value(n->model, names[i]);
    wok_graph_node(n->model, type, "", "node", &in, 1, out, count);
}

/* ---- B21: pairs of products do not saturate --------------------------------------------------------------------------- */

/* All 255 times all 127, and times all -128; sizes with and without tails. */
static void saturate(net *n, int m, int cols) {
    static uint8_t a[8 * 64];
    static int8_t b[64 * 24];
    static int32_t want[8 * 24];
    memset(a, 255, sizeof a);
    for (int i = 0; i < 64 * cols; i++) b[i] = i % cols % 2 ? -128 : 127;
    for (int i = 0; i < m * cols; i++) want[i] = i % cols % 2 ? -2088960 : 2072640;
    wok_value x = tensor(n, WOK_U8, DIMS(m, 64), a), w = fixed(n, WOK_I8, DIMS(64, cols), b);
    gives_bytes(n, OP(n, "MatMulInteger", x, w), WOK_I32, DIMS(m, cols), want);
}
BUG(B21_products_of_255_do_not_saturate_in_two_columns, 13) {
    saturate(n, 1, 2);
}
BUG(B21_products_of_255_do_not_saturate_in_tiles_and_tails, 13) {
    saturate(n, 7, 19);
}

BUG(B21_convolutions_do_not_saturate, 13) {
    static uint8_t x[64 * 4];
    static int8_t w[18 * 64];
    static int32_t want[18 * 4];
    memset(x, 255, sizeof x);
    for (int i = 0; i < 18 * 64; i++) w[i] = i / 64 % 2 ? -128 : 127;
    for (int i = 0; i < 18 * 4; i++) want[i] = i / 4 % 2 ? -2088960 : 2072640;
    wok_value in = tensor(n, WOK_U8, DIMS(1, 64, 2, 2), x), kernel = fixed(n, WOK_I8, DIMS(18, 64, 1, 1), w);
    gives_bytes(n, OP(n, "ConvInteger", in, kernel), WOK_I32, DIMS(1, 18, 2, 2), want);
}

/* The same through scales: y = 255 * 127 * 64 * s. */
BUG(B21_scaled_products_do_not_saturate, 13) {
    static uint8_t a[64];
    static int8_t b[64 * 2];
    memset(a, 255, sizeof a);
    for (int i = 0; i < 128; i++) b[i] = i % 2 ? -128 : 127;
    wok_value y =
        OP(n, "QLinearMatMul", tensor(n, WOK_U8, DIMS(1, 64), a), number(n, 1.f / 255), u8_zero(n, 0),
           fixed(n, WOK_I8, DIMS(64, 2), b), number(n, 1.f / 128), s8_zero(n, 0), number(n, 1), u8_zero(n, 128));
    gives_bytes(n, y, WOK_U8, DIMS(1, 2), (uint8_t[]){192, 64}); /* 63.5 rounds to 64 */
}

/* ---- B22: half to even, then the zero point ----------------------------------------------------------------------------- */

static void quantise_cycle(net *n, int count, int period, const float *x, float scale, wok_dtype dtype, int zero,
                           const int8_t *want) {
    static float in[67];
    static int8_t out[67];
    for (int i = 0; i < count; i++) in[i] = x[i % period], out[i] = want[i % period];
    wok_value z = fixed(n, dtype, SCALAR, &(int8_t){(int8_t)zero});
    gives_bytes(n, OP(n, "QuantizeLinear", f32(n, DIMS(count), in), number(n, scale), z), dtype, DIMS(count), out);
}

/* Bodies and tails of vectors must agree: every length. */
static void every_length(int mode) {
    int before = fegetround();
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++)
        for (int count = 1; count <= 67 && is_here(levels[i]); count++)
            for (int k = 0; k < 3; k++) {
                net n = begin_at(levels[i], AS_INPUTS, 13);
                fesetround(mode);
                if (k == 0)
                    quantise_cycle(&n, count, 4, F32(.25f, .75f, 1.25f, 1.75f), .5f, WOK_U8, 0, (int8_t[]){0, 2, 2, 4});
                else if (k == 1)
                    quantise_cycle(&n, count, 8, F32(-2.5f, -1.5f, -.5f, .5f, 1.5f, 2.5f, 200, -200), 1, WOK_I8, 0,
                                   (int8_t[]){-2, -2, 0, 0, 2, 2, 127, -128});
                else
                    quantise_cycle(&n, count, 3, F32(.5f, 1.5f, 2.5f), 1, WOK_I8, 1, (int8_t[]){1, 3, 3});
                fesetround(before);
                end(&n);
            }
}
Test(quantisation, B22_half_to_even_at_every_length) {
    every_length(FE_TONEAREST);
}
Test(quantisation, B22_half_to_even_whatever_the_rounding_mode) {
    every_length(FE_UPWARD);
}

BUG(B22_dynamic_codes_and_zero_point, 13) {
    wok_value out[3];
    to_nowhere(n, "DynamicQuantizeLinear", f32(n, DIMS(3), F32(-127, 128, .5f)), out, 3);
    gives_bytes(n, out[0], WOK_U8, DIMS(3), (uint8_t[]){0, 255, 127});
}
BUG(B22_dynamic_zero_point_of_a_tie, 13) {
    wok_value out[3];
    to_nowhere(n, "DynamicQuantizeLinear", f32(n, DIMS(2), F32(-253, 257)), out, 3);
    gives_bytes(n, out[2], WOK_U8, SCALAR, (uint8_t[]){126});
}
BUG(B22_dynamic_codes_of_a_tie, 13) {
    wok_value out[3];
    to_nowhere(n, "DynamicQuantizeLinear", f32(n, DIMS(2), F32(-253, 257)), out, 3);
    gives_bytes(n, out[0], WOK_U8, DIMS(2), (uint8_t[]){0, 254});
}

/* ---- B23: DynamicQuantizeLinear of zeros --------------------------------------------------------------------------------- */

/* x [m, k] -> DynamicQuantizeLinear -> MatMulInteger with w [k, cols] and w_zero 0 -> Cast -> times both scales. */
static wok_value dynamic_product(net *n, int m, int k, const float *x, int cols, const int8_t *w, float w_scale) {
    wok_value q[3], in = f32(n, DIMS(m, k), x);
    to_nowhere(n, "DynamicQuantizeLinear", in, q, 3);
    wok_value acc = OP(n, "MatMulInteger", q[0], fixed(n, WOK_I8, DIMS(k, cols), w), q[2], s8_zero(n, 0));
    wok_value f = OP(n, "Cast", acc);
    int_attr(n, "to", WOK_F32);
    return OP(n, "Mul", f, OP(n, "Mul", q[1], number(n, w_scale)));
}
BUG(B23_zeros_stay_zeros, 13) {
    wok_value q[3];
    to_nowhere(n, "DynamicQuantizeLinear", f32(n, DIMS(3), F32(0, 0, 0)), q, 3);
    gives(n, OP(n, "DequantizeLinear", q[0], q[1], q[2]), DIMS(3), F32(0, 0, 0));
}
BUG(B23_a_product_of_zeros_is_exactly_zero, 13) {
    wok_value y = dynamic_product(n, 2, 3, F32(0, 0, 0, 0, 0, 0), 2, (int8_t[]){1, 2, 3, 4, 5, 127}, .01f);
    gives_bytes(n, y, WOK_F32, DIMS(2, 2), F32(0, 0, 0, 0));
}
BUG(B23_a_row_of_zeros_beside_others_is_exactly_zero, 13) {
    wok_value y = dynamic_product(n, 2, 2, F32(0, 0, 255, 0), 1, (int8_t[]){1, 1}, 1);
    gives_bytes(n, y, WOK_F32, DIMS(2, 1), F32(0, 255));
}

/* ---- B24: padding holds the zero point ------------------------------------------------------------------------------------ */

/* A convolution of 2x2 pixels of code 130 (zero point 128, so the value 2) with 3x3 taps of the value 1: 8 wherever the window
 * holds all four. */
static void padded(net *n, int channels, int w_zero, const int64_t *pads, int64_t stride, int64_t side) {
    static uint8_t x[4 * 20], want[20 * 4];
    static int8_t w[9 * 20];
    memset(x, 130, sizeof x);
    memset(w, 1 + w_zero, sizeof w);
    memset(want, 8, sizeof want);
    wok_value in = tensor(n, WOK_U8, DIMS(1, channels, 2, 2), x), one = number(n, 1);
    wok_value y = OP(n, "QLinearConv", in, one, u8_zero(n, 128), fixed(n, WOK_I8, DIMS(channels, 1, 3, 3), w), one,
                     s8_zero(n, w_zero), one, u8_zero(n, 0));
    INTS_ATTR(n, "pads", pads[0], pads[1], pads[2], pads[3]);
    INTS_ATTR(n, "strides", stride, stride);
    int_attr(n, "group", channels);
    gives_bytes(n, y, WOK_U8, DIMS(1, channels, side, side), want);
}
BUG(B24_borders_hold_the_zero_point, 13) {
    padded(n, 1, 0, I64(1, 1, 1, 1), 1, 2);
}
BUG(B24_borders_of_weights_with_a_zero_point, 13) {
    padded(n, 1, 5, I64(1, 1, 1, 1), 1, 2);
}
BUG(B24_borders_of_depthwise_convolutions, 13) {
    padded(n, 19, 0, I64(1, 1, 1, 1), 1, 2);
}
BUG(B24_borders_of_depthwise_convolutions_with_weight_zero_points, 13) {
    padded(n, 19, -7, I64(1, 1, 1, 1), 1, 2);
}
BUG(B24_borders_of_one_side_only, 13) {
    padded(n, 4, 0, I64(0, 0, 1, 1), 1, 1);
}
BUG(B24_borders_at_stride_2, 13) {
    padded(n, 4, 3, I64(1, 1, 1, 1), 2, 1);
}

/* Many channels in and out: the path that gathers rows. */
BUG(B24_borders_of_dense_convolutions, 13) {
    static uint8_t x[8 * 4], want[18 * 4];
    static int8_t w[18 * 8 * 9];
    memset(x, 130, sizeof x);
    memset(w, 3, sizeof w);
    memset(want, 64, sizeof want);
    wok_value in = tensor(n, WOK_U8, DIMS(1, 8, 2, 2), x), one = number(n, 1);
    wok_value y = OP(n, "QLinearConv", in, one, u8_zero(n, 128), fixed(n, WOK_I8, DIMS(18, 8, 3, 3), w), one,
                     s8_zero(n, 2), one, u8_zero(n, 0));
    INTS_ATTR(n, "pads", 1, 1, 1, 1);
    gives_bytes(n, y, WOK_U8, DIMS(1, 18, 2, 2), want);
}

/* ---- B25: a bias with a scale of its own ------------------------------------------------------------------------------------ */

static wok_value pair(net *n, wok_value x, float scale, int zero) {
    wok_value s = number(n, scale), z = u8_zero(n, zero);
    return OP(n, "DequantizeLinear", OP(n, "QuantizeLinear", x, s, z), s, z);
}
/* 1 * 1 + 100 * bias_scale */
static void own_bias_scale(net *n, float bias_scale, float want) {
    wok_value x = pair(n, f32(n, DIMS(1, 1, 1, 1), F32(1)), .1f, 0);
    wok_value w =
        OP(n, "DequantizeLinear", fixed(n, WOK_I8, DIMS(1, 1, 1, 1), (int8_t[]){10}), number(n, .1f), s8_zero(n, 0));
    wok_value b = OP(n, "DequantizeLinear", fixed(n, WOK_I32, DIMS(1), (int32_t[]){100}), number(n, bias_scale));
    gives(n, pair(n, OP(n, "Conv", x, w, b), .1f, 0), DIMS(1, 1, 1, 1), &want);
}
BUG(B25_the_scale_of_a_bias_counts, 13) {
    own_bias_scale(n, .05f, 6);
}
BUG(B25_the_scale_of_a_bias_counts_where_it_is_the_usual_one, 13) {
    own_bias_scale(n, .01f, 2);
}

/* ---- B26: rows without a single key ------------------------------------------------------------------------------------------- */

/* Two sequences of three keys, four features; the second one hides all its keys by `hidden`. With fused attention a row hidden
 * by -inf is 0, one hidden by a finite value the mean of V; the first sequence never notices. */
static void masked(net *n, float hidden) {
    static const float q[24] = {.5f, -1, 2, 0, 1, 1, -.5f, 2, 0, 1, 1, -1, 3, 0, 1, 1, 0, 2, -1, 1, 1, 1, 1, 1};
    static const float v[24] = {1, 2, 3, 4, 4, 3, 2, 1, 0, 1, 0, 1, 1, 2, 3, 4, 4, 3, 2, 1, 1, 1, 1, 1};
    const float h = hidden, mask[6] = {0, 0, 0, h, h, h};
    wok_value x = f32(n, DIMS(2, 1, 3, 4), q), values = f32(n, DIMS(2, 1, 3, 4), v),
              bias = f32(n, DIMS(2, 1, 1, 3), mask);
    wok_value keys = OP(n, "Transpose", x);
    INTS_ATTR(n, "perm", 0, 1, 3, 2);
    wok_value scores = OP(n, "Add", OP(n, "Mul", OP(n, "MatMul", x, keys), number(n, .5f)), bias);
    wok_value shares = OP(n, "Softmax", scores);
    int_attr(n, "axis", -1);
    if (isinf(h)) /* as exporters guard rows of NaN */
        shares = OP(n, "Where", OP(n, "IsNaN", shares), number(n, 0), shares);
    const wok_tensor *t = result(n, OP(n, "MatMul", shares, values), WOK_F32, DIMS(2, 1, 3, 4));
    const float *y = t->data, mean[4] = {2, 2, 2, 2};
    for (int i = 0; i < 12; i++)
        cr_expect(isfinite(y[i]) && y[i] > .5f && y[i] < 4, "%s: seen row: %g", level, (double)y[i]);
    for (int i = 12; i < 24; i++) {
        float want = isinf(h) ? 0 : mean[i % 4];
        /* a finite mask leaves what the scores say once the mask is rounded into them */
        float bound = h > -1e6f ? 2 : 1e-6f;
        cr_expect(isinf(h) ? y[i] <= 0 && y[i] >= 0 : fabsf(y[i] - want) <= bound, "%s: hidden row by %g: %g", level,
                  (double)h, (double)y[i]);
    }
}
BUG(B26_all_keys_hidden_by_minus_infinity, 20) {
    masked(n, -INFINITY);
}
BUG(B26_all_keys_hidden_by_the_lowest_float, 20) {
    masked(n, -3.4028235e38f);
}
BUG(B26_all_keys_hidden_by_minus_10000, 20) {
    masked(n, -10000);
}
BUG(B26_bare_softmax_of_minus_infinity_is_nan, 13) {
    const float inf = -INFINITY;
    gives(n, OP(n, "Softmax", f32(n, DIMS(2, 3), F32(inf, inf, inf, -10000, -10000, -10000))), DIMS(2, 3),
          F32(NAN, NAN, NAN, 1 / 3.f, 1 / 3.f, 1 / 3.f));
}

/* ---- B27: a scale for every channel, on the right axis ---------------------------------------------------------------------------- */

/* Weights whose channels differ 100 times in range keep their precision: 10 * 0.01 and 10 * 1. */
BUG(B27_a_scale_for_every_output_channel_of_a_convolution, 13) {
    wok_value x = pair(n, f32(n, DIMS(1, 2, 1, 1), F32(1, 2)), .01f, 0);
    wok_value w = OP(n, "DequantizeLinear", fixed(n, WOK_I8, DIMS(2, 2, 1, 1), (int8_t[]){10, 20, 10, 20}),
                     fixed(n, WOK_F32, DIMS(2), F32(.01f, 1)), fixed(n, WOK_I8, DIMS(2), (int8_t[]){0, 0}));
    int_attr(n, "axis", 0);
    wok_value y = OP(n, "Conv", x, w);
    const float *got = result(n, y, WOK_F32, DIMS(1, 2, 1, 1))->data;
    cr_expect(fabsf(got[0] - .5f) < 1e-5f && fabsf(got[1] - 50) < 1e-3f, "%s: %g %g", level, (double)got[0],
              (double)got[1]);
}
BUG(B27_depthwise_channels_keep_their_scales, 13) {
    static float x[19], scale[19], want[19];
    static int8_t w[19], zero[19];
    for (int i = 0; i < 19; i++) x[i] = 1, scale[i] = powf(10, (float)(i % 4) - 2), w[i] = 50, want[i] = 50 * scale[i];
    wok_value in = pair(n, f32(n, DIMS(1, 19, 1, 1), x), .01f, 0);
    wok_value kernel = OP(n, "DequantizeLinear", fixed(n, WOK_I8, DIMS(19, 1, 1, 1), w),
                          fixed(n, WOK_F32, DIMS(19), scale), fixed(n, WOK_I8, DIMS(19), zero));
    int_attr(n, "axis", 0);
    wok_value y = OP(n, "Conv", in, kernel);
    int_attr(n, "group", 19);
    const float *got = result(n, y, WOK_F32, DIMS(1, 19, 1, 1))->data;
    for (int i = 0; i < 19; i++)
        cr_expect(fabsf(got[i] - want[i]) <= 1e-5f * want[i], "%s: channel %d: %g, not %g", level, i, (double)got[i],
                  (double)want[i]);
}
/* MatMul's columns are its channels: axis 1. Scales along k must be understood as they stand, too. */
static void matmul_axis(net *n, int axis, const float *want) {
    wok_value x = pair(n, f32(n, DIMS(1, 2), F32(1, 2)), .01f, 0);
    wok_value w = OP(n, "DequantizeLinear", fixed(n, WOK_I8, DIMS(2, 2), (int8_t[]){10, 10, 20, 20}),
                     fixed(n, WOK_F32, DIMS(2), F32(.01f, 1)), fixed(n, WOK_I8, DIMS(2), (int8_t[]){0, 0}));
    int_attr(n, "axis", axis);
    const float *got = result(n, OP(n, "MatMul", x, w), WOK_F32, DIMS(1, 2))->data;
    for (int i = 0; i < 2; i++)
        cr_expect(fabsf(got[i] - want[i]) <= 1e-5f * want[i], "%s: %g, not %g", level, (double)got[i], (double)want[i]);
}
BUG(B27_a_scale_for_every_column_of_a_product, 13) {
    matmul_axis(n, 1, F32(.5f, 50));
}
BUG(B27_a_scale_for_every_row_of_a_product, 13) {
    matmul_axis(n, 0, F32(40.1f, 40.1f));
}

/* ---- B28: an answer does not depend on its neighbours ------------------------------------------------------------------------------- */

/* A file's own DynamicQuantizeLinear is per tensor, as the standard says. */
BUG(B28_per_tensor_alone, 13) {
    const float *y =
        result(n, dynamic_product(n, 1, 2, F32(1, .33f), 1, (int8_t[]){1, 1}, 1), WOK_F32, DIMS(1, 1))->data;
    cr_expect(fabsf(y[0] - 1.3294f) < 1e-4f, "%s: %g", level, (double)y[0]);
}
BUG(B28_per_tensor_in_company, 13) {
    wok_value out = dynamic_product(n, 2, 2, F32(1, .33f, 100, -100), 1, (int8_t[]){1, 1}, 1);
    const float *y = result(n, out, WOK_F32, DIMS(2, 1))->data;
    cr_expect(fabsf(y[0] - .7843f) < 1e-4f, "%s: %g", level, (double)y[0]);
}
/* wok's own dynamic files take a scale a row: the same bits alone and in company. */
static float first_of(const char *isa, int rows) {
    net n = begin_at(isa, AS_INPUTS, 13);
    wok_model_set_metadata(n.model, "wok.dynamic", "per_row");
    wok_value out = dynamic_product(&n, rows, 2, F32(1, .33f, 100, -100), 1, (int8_t[]){1, 1}, 1);
    float y = ((const float *)result(&n, out, WOK_F32, DIMS(rows, 1))->data)[0];
    end(&n);
    return y;
}
Test(quantisation, B28_per_row_alone_and_in_company) {
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        if (!is_here(levels[i])) continue;
        float alone = first_of(levels[i], 1), beside = first_of(levels[i], 2);
        cr_expect(memcmp(&alone, &beside, sizeof alone) == 0, "%s: %.9g alone, %.9g in company", levels[i],
                  (double)alone, (double)beside);
        cr_expect(fabsf(alone - 1.3294f) < 1e-4f, "%s: %g", levels[i], (double)alone);
    }
}

/* ---- B29: NaN is seen ------------------------------------------------------------------------------------------------------------ */

BUG(B29_relu_and_clip_keep_nan_in_body_and_tail, 13) {
    static float x[19], want[19];
    for (int i = 0; i < 19; i++) x[i] = i % 17 ? (float)(i - 8) : NAN;
    for (int i = 0; i < 19; i++) want[i] = isnan(x[i]) ? NAN : fminf(fmaxf(x[i], 0), 6);
    gives(n, OP(n, "Clip", OP(n, "Relu", f32(n, DIMS(19), x)), number(n, 0), number(n, 6)), DIMS(19), want);
}
BUG(B29_a_weight_that_is_nan_shows_behind_relu, 13) {
    static float w[19], want[19];
    for (int i = 0; i < 19; i++) w[i] = i % 17 ? 1 : NAN, want[i] = i % 17 ? 2 : NAN;
    wok_value x = f32(n, DIMS(1, 1, 1, 1), F32(2));
    gives(n, OP(n, "Relu", OP(n, "Conv", x, fixed(n, WOK_F32, DIMS(19, 1, 1, 1), w))), DIMS(1, 19, 1, 1), want);
}
static void pooled(net *n, int channels) {
    static float x[17 * 2], want[17];
    for (int c = 0; c < channels; c++)
        x[2 * c] = c % 3 ? (float)c : NAN, x[2 * c + 1] = 1, want[c] = fmaxf((float)c, 1);
    for (int c = 0; c < channels; c += 3) want[c] = NAN;
    wok_value y = OP(n, "MaxPool", f32(n, DIMS(1, channels, 1, 2), x));
    INTS_ATTR(n, "kernel_shape", 1, 2);
    gives(n, y, DIMS(1, channels, 1, 1), want);
}
BUG(B29_max_pooling_keeps_nan_of_3_channels, 13) {
    pooled(n, 3);
}
BUG(B29_max_pooling_keeps_nan_of_17_channels, 13) {
    pooled(n, 17);
}
/* Codes have no NaN: the header of eltwise_s8 says what becomes of it, the same at every place. */
BUG(B29_codes_of_nan_are_the_same_in_body_and_tail, 13) {
    static float x[67];
    for (int i = 0; i < 67; i++) x[i] = NAN;
    const int8_t *q =
        result(n, OP(n, "QuantizeLinear", f32(n, DIMS(67), x), number(n, 1), s8_zero(n, 3)), WOK_I8, DIMS(67))->data;
    for (int i = 1; i < 67; i++)
        cr_expect_eq(q[i], q[0], "%s: code %d of NaN is %d, the first %d", level, i, q[i], q[0]);
}

/* ---- numbers that cannot be ------------------------------------------------------------------------------------------------- */

BUG(scales_of_zero_nan_or_infinity_are_refused, 13) {
    static const float bad[] = {0, -.1f, NAN, INFINITY};
    static const char *const text[] = {"0", "-0.1", "nan", "inf"};
    static int turn; /* forms and levels take turns at the numbers */
    int i = turn++ % 4;
    char sentence[64];
    snprintf(sentence, sizeof sentence, "a scale is %s", text[i]);
    wok_value x = tensor(n, WOK_U8, DIMS(2), (uint8_t[]){1, 2}), z = u8_zero(n, 0);
    wok_value s = fixed(n, WOK_F32, SCALAR, &bad[i]);
    fails(n, OP(n, "DequantizeLinear", x, s, z), WOK_ERR_VALUE, sentence);
}
BUG(a_scale_of_zero_among_channels_is_refused, 13) {
    wok_value x = pair(n, f32(n, DIMS(1, 1, 1, 1), F32(1)), .1f, 0);
    wok_value w = OP(n, "DequantizeLinear", fixed(n, WOK_I8, DIMS(2, 1, 1, 1), (int8_t[]){1, 2}),
                     fixed(n, WOK_F32, DIMS(2), F32(.1f, 0)), fixed(n, WOK_I8, DIMS(2), (int8_t[]){0, 0}));
    int_attr(n, "axis", 0);
    fails(n, OP(n, "Conv", x, w), WOK_ERR_VALUE, "a scale is 0");
}
BUG(zero_points_of_another_type_are_refused, 13) {
    wok_value x = tensor(n, WOK_U8, DIMS(2), (uint8_t[]){1, 2}), z = fixed(n, WOK_I32, SCALAR, &(int32_t){300});
    fails(n, OP(n, "DequantizeLinear", x, number(n, .1f), z), WOK_ERR_SHAPE, "the zero point is i32");
}

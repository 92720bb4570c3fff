/* test_passes_quantised.c - the rewrites of quantised models: every form becomes integer operators, what is said to be
 * exact is exact, the rest is within one step of the quantised output, and near misses say why. */
#include "graphs.h"

/* ---- quantising, in the same language --------------------------------------------------------------------------------------- */

static bool is_u8; /* of activations */

static wok_value code(int zero, bool u8) {
    int8_t z = (int8_t)(u8 ? zero + 128 : zero); /* the same byte either way */
    return wok_graph_constant(m, NULL, u8 ? WOK_U8 : WOK_I8, 0, NULL, &z, 1, WOK_DATA_COPY);
}
/* `zero` is that of s8 codes. */
static wok_value quantised(wok_value x, float scale, int zero) {
    wok_value in[3] = {x, number(scale), code(zero, is_u8)};
    return wok_graph_op(m, "QuantizeLinear", "", NULL, in, 3, NULL);
}
static wok_value dequantised(wok_value q, float scale, int zero) {
    wok_value in[3] = {q, number(scale), code(zero, is_u8)};
    return wok_graph_op(m, "DequantizeLinear", "", NULL, in, 3, NULL);
}
static wok_value pair(wok_value x, float scale, int zero) {
    return dequantised(quantised(x, scale, zero), scale, zero);
}

/* Random bytes, s8 or u8 (then with zero points that are not 128), one scale for each entry of `axis`. */
static wok_value weight_codes(int rank, const int64_t *dims, unsigned seed, bool u8) {
    uint8_t data[4096];
    int64_t count = 1;
    for (int i = 0; i < rank; i++) count *= dims[i];
    cr_assert(count <= 4096);
    for (int64_t i = 0; i < count; i++) data[i] = (uint8_t)((seed = seed * 1664525u + 1013904223u) >> 24);
    return wok_graph_constant(m, NULL, u8 ? WOK_U8 : WOK_I8, rank, dims, data, (size_t)count, WOK_DATA_COPY);
}
static wok_value positive(unsigned seed, int64_t n, float most) {
    float data[64];
    support_random(data, (size_t)n, seed);
    for (int i = 0; i < n; i++) data[i] = most * (0.5f + 0.5f * data[i] * data[i]);
    return wok_graph_constant(m, NULL, WOK_F32, 1, &n, data, (size_t)n * 4, WOK_DATA_COPY);
}
static wok_value zeros(unsigned seed, int64_t n, bool u8) {
    uint8_t data[64];
    for (int i = 0; i < n; i++) data[i] = (uint8_t)(u8 ? 100 + (seed * 7 + (unsigned)i * 13) % 50 : 0);
    return wok_graph_constant(m, NULL, u8 ? WOK_U8 : WOK_I8, 1, &n, data, (size_t)n, WOK_DATA_COPY);
}
static wok_value weights(int rank, const int64_t *dims, int axis, unsigned seed, bool u8) {
    wok_value in[3] = {weight_codes(rank, dims, seed, u8), positive(seed, dims[axis], 0.01f),
                       zeros(seed, dims[axis], u8)};
    wok_value w = wok_graph_op(m, "DequantizeLinear", "", NULL, in, 3, NULL);
    wok_node_set_int(m, wok_graph_last(m), "axis", axis);
    return w;
}
#define BYTES(seed, axis, u8, ...)                                                                                     \
    weights((int)(sizeof((const int64_t[]){__VA_ARGS__}) / 8), (const int64_t[]){__VA_ARGS__}, axis, seed, u8)

enum { OPSET = 17 };
static bool u8_weights;

/* All rewrites against none of the two: within `tolerance` in absolute terms. */
static void against_floats(builder build, const int64_t *dims, int rank, double tolerance) {
    const char *without[] = {"lower_quantized", "fuse_requantize"};
    for (int u8 = 0; u8 < 2; u8++) {
        is_u8 = u8;
        run_once(OPSET, build, NULL, 0, dims, rank, &with);
        run_once(OPSET, build, without, 2, dims, rank, &plain);
        cr_assert_eq(with.count, plain.count);
        double distance = support_distance(with.y, plain.y, with.count);
        cr_assert(distance <= tolerance, "%g apart, %g allowed, u8 %d", distance, tolerance, u8);
    }
}

/* With and without fuse_requantize: the same bits. */
static void exact(builder build, const int64_t *dims, int rank) {
    const char *without[] = {"fuse_requantize"};
    for (int u8 = 0; u8 < 2; u8++) {
        is_u8 = u8;
        run_once(OPSET, build, NULL, 0, dims, rank, &with);
        run_once(OPSET, build, without, 1, dims, rank, &plain);
        cr_assert_eq(with.count, plain.count);
        cr_assert_arr_eq(with.y, plain.y, with.count * sizeof *with.y, "u8 %d", u8);
        cr_assert(with.nodes < plain.nodes, "%d nodes, %d without", with.nodes, plain.nodes);
    }
}

/* ---- products ----------------------------------------------------------------------------------------------------------------- */

static void chain_of_products(void) {
    wok_value x = pair(INPUT(-1, -1, 8), 0.02f, -5);
    wok_value h = op("Add", op("MatMul", x, BYTES(1, 1, u8_weights, 8, 20)), WEIGHT(2, 20));
    h = pair(unary("Relu", h), 0.01f, -128);
    wok_value w = transpose(BYTES(3, 0, u8_weights, 8, 20), (const int64_t[]){1, 0}, 2);
    wok_graph_output(m, pair(op("Add", op("MatMul", h, w), x), 0.02f, 3));
}

Test(passes_quantised, products_of_constant_weights) {
    for (int u8 = 0; u8 < 2; u8++) {
        u8_weights = u8;
        against_floats(chain_of_products, SHAPE(2, 3, 8), 0.0201); /* a step of the result */
        cr_assert_eq(bytes_of(&with, "MatMul"), 2, "%s", with.misses);
        cr_assert_eq(with.nodes, 4, "%d nodes",
                     with.nodes); /* quantise, two products with all that follows, dequantise */
        cr_assert_eq(bytes_of(&plain, "MatMul"), 0);
    }
}

static void gemm(void) {
    wok_value in[3] = {pair(INPUT(-1, 8), 0.02f, -5), BYTES(1, 0, false, 20, 8), WEIGHT(2, 20)};
    wok_value y = wok_graph_op(m, "Gemm", "", NULL, in, 3, NULL);
    wok_node_set_int(m, wok_graph_last(m), "transB", 1);
    wok_graph_output(m, y);
}

Test(passes_quantised, gemm_gives_f32_without_a_quantizer_behind_it) {
    against_floats(gemm, SHAPE(3, 8), 1e-5);
    cr_assert_eq(bytes_of(&with, "Gemm"), 1, "%s", with.misses);
    cr_assert_eq(with.nodes, 2);
}

static void two_activations(void) {
    wok_value x = INPUT(-1, -1, 8);
    wok_value a = pair(x, 0.02f, -5), b = pair(op("Mul", x, number(0.5f)), 0.01f, 7);
    wok_value t = transpose(b, (const int64_t[]){0, 2, 1}, 3);
    wok_graph_output(m, pair(op("MatMul", a, t), 0.05f, 1));
}

Test(passes_quantised, products_of_two_activations) {
    against_floats(two_activations, SHAPE(2, 5, 8), 0.0501);
    cr_assert_eq(bytes_of(&with, "MatMul"), 1, "%s", with.misses);
}

static void two_readers(void) { /* quantised, and read in f32 as well */
    wok_value y = op("MatMul", pair(INPUT(-1, 8), 0.02f, 0), BYTES(1, 1, false, 8, 8));
    wok_graph_output(m, op("Add", pair(y, 0.03f, 0), y));
}
static void along_the_sum(void) {
    wok_graph_output(m, op("MatMul", pair(INPUT(-1, 8), 0.02f, 0), BYTES(1, 0, false, 8, 8)));
}
static void gelu_behind(void) {
    wok_value x = op("MatMul", pair(INPUT(-1, 8), 0.02f, 0), BYTES(1, 1, false, 8, 8));
    wok_value e = op("Add", unary("Erf", op("Div", x, number(1.41421356f))), number(1));
    wok_graph_output(m, pair(op("Mul", op("Mul", x, e), number(0.5f)), 0.02f, 0));
}

Test(passes_quantised, near_misses_say_why) {
    struct {
        builder build;
        const char *reason;
    } cases[] = {{two_readers, "the result is read in f32 too"},
                 {along_the_sum, "the scales of the weights run along the summed dimension"},
                 {gelu_behind, "the activation is computed in f32"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        against_floats(cases[i].build, SHAPE(3, 8), 0.0301);
        cr_assert(strstr(with.misses, cases[i].reason), "case %zu: %s", i, with.misses);
    }
}

/* ---- convolutions ---------------------------------------------------------------------------------------------------------------- */

static wok_value conv(wok_value x, wok_value w, wok_value b, int64_t group) {
    wok_value in[3] = {x, w, b};
    wok_value y = wok_graph_op(m, "Conv", "", NULL, in, b == WOK_ABSENT ? 2 : 3, NULL);
    set_ints("pads", (const int64_t[]){1, 1, 1, 1}, 4);
    wok_node_set_int(m, wok_graph_last(m), "group", group);
    return y;
}
static void residual_block(void) {
    wok_value x = pair(INPUT(-1, 5, 6, 7), 0.02f, -3);
    wok_value h = pair(unary("Relu", conv(x, BYTES(1, 0, u8_weights, 5, 5, 3, 3), WEIGHT(2, 5), 1)), 0.02f, -128);
    wok_value d = pair(unary("Relu", conv(h, BYTES(3, 0, u8_weights, 5, 1, 3, 3), WEIGHT(4, 5), 5)), 0.02f, -128);
    wok_value y = op("Add", x, conv(d, BYTES(5, 0, u8_weights, 5, 5, 3, 3), WEIGHT(6, 5), 1));
    wok_graph_output(m, pair(unary("Relu", y), 0.03f, -128));
}

Test(passes_quantised, convolutions_with_residual) {
    for (int u8 = 0; u8 < 2; u8++) {
        u8_weights = u8;
        against_floats(residual_block, SHAPE(2, 5, 6, 7), 0.0602); /* steps of the inner tensors reach the result */
        cr_assert_eq(bytes_of(&with, "Conv"), 3, "%s", with.misses);
        cr_assert_eq(count_of(&with, "Add") + count_of(&with, "Relu"), 0);
        cr_assert_eq(count_of(&with, "QuantizeLinear"), 1, "only the input's: %s", with.misses);
    }
}

static void rounded_twice(void) { /* a pair between the convolution and the sum: it rounds where the file says */
    wok_value x = pair(INPUT(-1, 5, 6, 7), 0.02f, -3);
    wok_value y = pair(conv(x, BYTES(1, 0, false, 5, 5, 3, 3), WEIGHT(2, 5), 1), 0.2f, 4);
    wok_graph_output(m, pair(unary("Relu", op("Add", x, y)), 0.2f, -128));
}

Test(passes_quantised, a_pair_is_not_fused_across) {
    exact(rounded_twice, SHAPE(2, 5, 6, 7));
    cr_assert_eq(count_of(&with, "Add"), 1);
    cr_assert_eq(bytes_of(&with, "Conv"), 1);
}

Test(passes_quantised, relaxed_pairs_go_where_asked) {
    for (int relaxed = 0; relaxed < 2; relaxed++) {
        session_options.relax_qdq = relaxed;
        is_u8 = true;
        run_once(OPSET, rounded_twice, NULL, 0, SHAPE(2, 5, 6, 7), relaxed ? &with : &plain);
    }
    session_options.relax_qdq = false;
    cr_assert_eq(count_of(&with, "Add"), 0, "%s", with.misses); /* the sum is the convolution's */
    cr_assert_eq(count_of(&plain, "Add"), 1);
    double distance = support_distance(with.y, plain.y, with.count);
    cr_assert(distance > 0 && distance <= 0.2001, "%g: at most one step", distance);
}

/* ---- what is exact --------------------------------------------------------------------------------------------------------------- */

static void functions(void) {
    wok_value x = pair(INPUT(-1, -1, 8), 0.02f, 11);
    wok_value y = pair(unary("Sigmoid", op("Sub", number(0.25f), op("Mul", x, number(3)))), 0.004f, -128);
    y = pair(unary("Tanh", y), 0.008f, 2);
    wok_graph_output(m, pair(y, 0.01f, -7)); /* only another scale */
}
static void product_then_table(void) {
    wok_value x = op("MatMul", pair(INPUT(-1, -1, 8), 0.02f, 11), BYTES(1, 1, false, 8, 8));
    wok_graph_output(m, pair(unary("Tanh", pair(x, 0.02f, 3)), 0.01f, 0));
}
static void product_then_clip(void) { /* Clip between two pairs of one scale moves the product's bounds */
    wok_value x = op("MatMul", pair(INPUT(-1, -1, 8), 0.02f, 11), BYTES(1, 1, false, 8, 8));
    wok_value in[3] = {pair(x, 0.02f, 3), number(0), number(0.7f)};
    wok_graph_output(m, pair(wok_graph_op(m, "Clip", "", NULL, in, 3, NULL), 0.02f, 3));
}
static void sums(void) {
    wok_value x = INPUT(-1, -1, 8), a = pair(x, 0.02f, 11), b = pair(unary("Neg", x), 0.013f, -9);
    wok_value y = pair(unary("Relu", op("Add", a, b)), 0.01f, -128);
    wok_graph_output(m, pair(op("Mul", y, a), 0.007f, 4));
}
static void joined(void) {
    wok_value x = INPUT(-1, 3, 4, 4);
    wok_value y = op("Concat", pair(x, 0.02f, 11), pair(unary("Neg", x), 0.01f, -9));
    wok_node_set_int(m, wok_graph_last(m), "axis", 1);
    wok_graph_output(m, pair(y, 0.015f, 1));
}
static void pooled(void) {
    wok_value x = pair(INPUT(-1, 3, 6, 6), 0.02f, 11);
    wok_value y = unary("MaxPool", x);
    set_ints("kernel_shape", (const int64_t[]){3, 3}, 2);
    set_ints("pads", (const int64_t[]){1, 1, 1, 1}, 4);
    y = unary("AveragePool", pair(y, 0.02f, 11));
    set_ints("kernel_shape", (const int64_t[]){2, 2}, 2);
    wok_graph_output(m, pair(unary("GlobalAveragePool", pair(y, 0.02f, 2)), 0.02f, 3));
}

Test(passes_quantised, functions_of_bytes_are_exact) {
    exact(functions, SHAPE(2, 3, 8));
    cr_assert_eq(count_of(&with, "QTable"), 3, "%d nodes", with.nodes);
    exact(product_then_table, SHAPE(2, 3, 8));
    cr_assert_eq(with.nodes, 3);
    exact(product_then_clip, SHAPE(2, 3, 8));
    cr_assert_eq(with.nodes, 3);
    exact(sums, SHAPE(2, 3, 8));
    cr_assert_eq(bytes_of(&with, "Add") + bytes_of(&with, "Mul"), 2);
    exact(joined, SHAPE(2, 3, 4, 4));
    cr_assert_eq(bytes_of(&with, "Concat"), 1);
}

Test(passes_quantised, pooling_of_bytes) {
    against_floats(pooled, SHAPE(2, 3, 6, 6), 0.0201);
    cr_assert_eq(bytes_of(&with, "MaxPool") + bytes_of(&with, "AveragePool") + bytes_of(&with, "GlobalAveragePool"), 3);
    cr_assert_eq(count_of(&with, "DequantizeLinear"), 1, "only the output's");
}

static void broadcast(void) {
    wok_value x = INPUT(-1, 3, 8), last = op("Gather", x, INTS(0));
    wok_node_set_int(m, wok_graph_last(m), "axis", 1); /* [b,1,8] */
    wok_graph_output(m, pair(op("Add", pair(x, 0.02f, 1), pair(last, 0.01f, 5)), 0.02f, 0));
}
Test(passes_quantised, sums_broadcast) {
    exact(broadcast, SHAPE(4, 3, 8));
    cr_assert_eq(bytes_of(&with, "Add"), 1);
}

/* ---- scales found at run time ---------------------------------------------------------------------------------------------------- */

static bool nested_scales, as_conv;

static void dynamic(void) {
    wok_value x = as_conv ? INPUT(-1, 4, 5, 5) : INPUT(-1, -1, 8);
    wok_value q[3] = {wok_graph_value(m, "q"), wok_graph_value(m, "sx"), wok_graph_value(m, "zx")};
    wok_graph_node(m, "DynamicQuantizeLinear", "", NULL, &x, 1, q, 3);
    wok_value w = as_conv ? weight_codes(4, (const int64_t[]){6, 4, 3, 3}, 5, u8_weights)
                          : weight_codes(2, (const int64_t[]){8, 12}, 5, u8_weights);
    wok_value in[4] = {q[0], w, q[2], code(3, u8_weights)};
    wok_value sum = wok_graph_op(m, as_conv ? "ConvInteger" : "MatMulInteger", "", NULL, in, 4, NULL);
    wok_value real = unary("Cast", sum);
    wok_node_set_int(m, wok_graph_last(m), "to", WOK_F32);
    wok_value sw = as_conv ? number(0.01f) : positive(6, 12, 0.01f);
    wok_value y = nested_scales ? op("Mul", op("Mul", real, q[1]), sw) : op("Mul", real, op("Mul", q[1], sw));
    if (!as_conv) y = unary("Tanh", op("Add", y, WEIGHT(7, 12)));
    wok_graph_output(m, y);
}

Test(passes_quantised, scales_found_at_run_time) {
    for (int bits = 0; bits < 8; bits++) {
        u8_weights = bits & 1, nested_scales = bits & 2, as_conv = bits & 4;
        const int64_t pictures[] = {3, 4, 5, 5}, rows[] = {3, 4, 8};
        against_floats(dynamic, as_conv ? pictures : rows, as_conv ? 4 : 3, 1e-5);
        cr_assert_eq(bytes_of(&with, as_conv ? "Conv" : "MatMul"), 1, "case %d: %s", bits, with.misses);
        cr_assert(with.nodes <= (as_conv ? 5 : 2), "%d nodes", with.nodes);
    }
}

Test(passes_quantised, scales_by_row_do_not_know_their_neighbours) {
    u8_weights = nested_scales = false;
    for (int conv_too = 0; conv_too < 2; conv_too++) {
        as_conv = conv_too;
        const int64_t batch[] = {3, 4, as_conv ? 5 : 8, 5}, alone[] = {1, 4, as_conv ? 5 : 8, 5};
        for (int by_row = 0; by_row < 2; by_row++) {
            session_options.dynamic_per_row = by_row;
            run_once(OPSET, dynamic, NULL, 0, batch, as_conv ? 4 : 3, &with);
            run_once(OPSET, dynamic, NULL, 0, alone, as_conv ? 4 : 3, &plain); /* the same numbers in the first row */
            bool same = memcmp(with.y, plain.y, plain.count * sizeof *plain.y) == 0;
            cr_assert_eq(same, by_row, "conv %d, by row %d", conv_too, by_row);
        }
        session_options.dynamic_per_row = false;
        session_options.quantized_as_f32 = !as_conv;
        run_once(OPSET, dynamic, NULL, 0, batch, as_conv ? 4 : 3, &plain);
        session_options.quantized_as_f32 = false;
        double distance = support_distance(with.y, plain.y, with.count);
        cr_assert(distance < (as_conv ? 0.5 : 0.05), "conv %d: %g from the product in f32", conv_too, distance);
        cr_assert_eq(bytes_of(&plain, "MatMul"), 0);
    }
}

/* ---- weights alone ---------------------------------------------------------------------------------------------------------------- */

static void weight_only(void) {
    wok_value w = unary("Cast", weight_codes(2, (const int64_t[]){8, 20}, 5, false));
    wok_node_set_int(m, wok_graph_last(m), "to", WOK_F32);
    wok_graph_output(m, op("MatMul", INPUT(-1, -1, 8), op("Mul", w, positive(6, 20, 0.01f))));
}
static void weight_only_dequantised(void) {
    wok_graph_output(m, op("MatMul", INPUT(-1, -1, 8), BYTES(1, 1, false, 8, 20)));
}

Test(passes_quantised, weights_alone_are_packed_once) {
    builder forms[] = {weight_only, weight_only_dequantised};
    for (int i = 0; i < 2; i++) {
        against_floats(forms[i], SHAPE(2, 3, 8), 0);
        cr_assert_eq(with.nodes, 1, "form %d: %d nodes", i, with.nodes);
    }
}

/* ---- operators that quantise inside themselves ------------------------------------------------------------------------------------ */

static bool by_hand; /* the same in DequantizeLinear, the plain operator, QuantizeLinear */

static wok_value contrib(const char *type, const wok_value *in, int count) {
    return wok_graph_op(m, type, "com.microsoft", NULL, in, count, NULL);
}
static wok_value bias_codes(int64_t n) {
    int32_t data[64];
    for (int i = 0; i < n; i++) data[i] = 37 * i - 300;
    return wok_graph_constant(m, NULL, WOK_I32, 1, &n, data, (size_t)n * 4, WOK_DATA_COPY);
}
static wok_value real_bias(int64_t n) {
    wok_value b = unary("Cast", bias_codes(n));
    wok_node_set_int(m, wok_graph_last(m), "to", WOK_F32);
    return b;
}

static void qlinear_conv(void) {
    wok_value x = quantised(INPUT(-1, 5, 6, 7), 0.02f, -3),
              w = weight_codes(4, (const int64_t[]){6, 5, 3, 3}, 1, false);
    wok_value sw = positive(2, 6, 0.01f), zw = zeros(0, 6, false), y;
    if (by_hand) {
        wok_value in[3] = {w, sw, zw};
        wok_value real = wok_graph_op(m, "DequantizeLinear", "", NULL, in, 3, NULL);
        wok_node_set_int(m, wok_graph_last(m), "axis", 0);
        wok_value b = op("Mul", real_bias(6), op("Mul", number(0.02f), sw));
        y = quantised(conv(dequantised(x, 0.02f, -3), real, b, 1), 0.05f, 4);
    } else {
        wok_value in[9] = {x, number(0.02f), code(-3, is_u8), w, sw, zw, number(0.05f), code(4, is_u8), bias_codes(6)};
        y = wok_graph_op(m, "QLinearConv", "", NULL, in, 9, NULL);
        set_ints("pads", (const int64_t[]){1, 1, 1, 1}, 4);
    }
    wok_graph_output(m, dequantised(y, 0.05f, 4));
}

/* Codes between operators: pooled and flattened without a DequantizeLinear. */
static void codes_between(void) {
    wok_value x = quantised(INPUT(-1, 3, 4, 4), 0.02f, -3), y = by_hand ? dequantised(x, 0.02f, -3) : x;
    y = unary("MaxPool", y);
    set_ints("kernel_shape", (const int64_t[]){2, 2}, 2);
    y = unary("Flatten", y);
    wok_graph_output(m, by_hand ? y : dequantised(y, 0.02f, -3));
}

static void qlinear_matmul(void) {
    wok_value x = quantised(INPUT(-1, -1, 8), 0.02f, -3), w = weight_codes(2, (const int64_t[]){8, 12}, 1, false), y;
    wok_value sw = number(0.01f), zw = code(2, false);
    if (by_hand) {
        wok_value in[3] = {w, sw, zw};
        wok_value real = wok_graph_op(m, "DequantizeLinear", "", NULL, in, 3, NULL);
        y = quantised(op("MatMul", dequantised(x, 0.02f, -3), real), 0.05f, 4);
    } else {
        wok_value in[8] = {x, number(0.02f), code(-3, is_u8), w, sw, zw, number(0.05f), code(4, is_u8)};
        y = wok_graph_op(m, "QLinearMatMul", "", NULL, in, 8, NULL);
    }
    wok_graph_output(m, dequantised(y, 0.05f, 4));
}

static void qlinear_add_mul_concat_pool(void) {
    wok_value f = INPUT(-1, 3, 4, 4), a = quantised(f, 0.02f, 11), b = quantised(unary("Neg", f), 0.01f, -9), y[3];
    const char *const types[] = {"QLinearAdd", "QLinearMul"}, *const plain_types[] = {"Add", "Mul"};
    for (int i = 0; i < 2; i++) {
        wok_value in[8] = {
            a, number(0.02f), code(11, is_u8), b, number(0.01f), code(-9, is_u8), number(0.03f), code(1, is_u8)};
        y[i] = by_hand ? quantised(op(plain_types[i], dequantised(a, 0.02f, 11), dequantised(b, 0.01f, -9)), 0.03f, 1)
                       : contrib(types[i], in, 8);
    }
    if (by_hand) {
        wok_value joined = op("Concat", dequantised(y[0], 0.03f, 1), dequantised(y[1], 0.03f, 1));
        wok_node_set_int(m, wok_graph_last(m), "axis", 1);
        y[2] = quantised(unary("GlobalAveragePool", pair(joined, 0.02f, 0)), 0.02f, 5);
    } else {
        wok_value in[8] = {number(0.02f),  code(0, is_u8), y[0],          number(0.03f),
                           code(1, is_u8), y[1],           number(0.03f), code(1, is_u8)};
        wok_value joined = contrib("QLinearConcat", in, 8);
        wok_node_set_int(m, wok_graph_last(m), "axis", 1);
        wok_value pool[5] = {joined, number(0.02f), code(0, is_u8), number(0.02f), code(5, is_u8)};
        y[2] = contrib("QLinearGlobalAveragePool", pool, 5);
    }
    wok_graph_output(m, dequantised(y[2], 0.02f, 5));
}

static void qgemm(void) {
    wok_value x = quantised(INPUT(-1, 8), 0.02f, -3), w = weight_codes(2, (const int64_t[]){12, 8}, 1, false);
    wok_value sw = positive(2, 12, 0.01f), zw = zeros(0, 12, false), y;
    if (by_hand) {
        wok_value win[3] = {w, sw, zw};
        wok_value real = wok_graph_op(m, "DequantizeLinear", "", NULL, win, 3, NULL);
        wok_node_set_int(m, wok_graph_last(m), "axis", 0);
        wok_value in[3] = {dequantised(x, 0.02f, -3), real, op("Mul", real_bias(12), op("Mul", number(0.02f), sw))};
        y = wok_graph_op(m, "Gemm", "", NULL, in, 3, NULL);
        wok_node_set_int(m, wok_graph_last(m), "transB", 1);
    } else {
        wok_value in[7] = {x, number(0.02f), code(-3, is_u8), w, sw, zw, bias_codes(12)};
        y = contrib("QGemm", in, 7);
        wok_node_set_int(m, wok_graph_last(m), "transB", 1);
    }
    wok_graph_output(m, y);
}

static void integer_to_float(void) {
    wok_value x = INPUT(-1, -1, 8), w = weight_codes(2, (const int64_t[]){8, 12}, 1, false);
    wok_value sw = positive(2, 12, 0.01f), b = WEIGHT(3, 12);
    if (!by_hand) {
        wok_value in[5] = {x, w, sw, WOK_ABSENT, b};
        wok_graph_output(m, contrib("DynamicQuantizeMatMul", in, 5));
        return;
    }
    wok_value q[3] = {wok_graph_value(m, "q"), wok_graph_value(m, "sx"), wok_graph_value(m, "zx")};
    wok_graph_node(m, "DynamicQuantizeLinear", "", NULL, &x, 1, q, 3);
    wok_value in[7] = {q[0], w, q[1], sw, q[2], WOK_ABSENT, b};
    wok_graph_output(m, contrib("MatMulIntegerToFloat", in, 7));
}

/* QAttention against Attention of the dequantised input and weights. */
static void qattention(void) {
    wok_value x = quantised(INPUT(-1, -1, 8), 0.02f, -3), w = weight_codes(2, (const int64_t[]){8, 24}, 1, false);
    wok_value b = WEIGHT(2, 24), y;
    if (by_hand) {
        wok_value in[3] = {w, number(0.005f), code(0, false)};
        wok_value a[3] = {dequantised(x, 0.02f, -3), wok_graph_op(m, "DequantizeLinear", "", NULL, in, 3, NULL), b};
        y = op("Add", op("MatMul", a[0], a[1]), b);
        static const int64_t move[4] = {0, 2, 1, 3}, turn[4] = {0, 2, 3, 1};
        wok_value part[3];
        for (int i = 0; i < 3; i++) {
            wok_value s[4] = {y, INTS(8 * i), INTS(8 * i + 8), INTS(2)};
            wok_value h = op("Reshape", wok_graph_op(m, "Slice", "", NULL, s, 4, NULL), INTS(0, 0, 2, 4));
            part[i] = transpose(h, i == 1 ? turn : move, 4);
        }
        wok_value p = unary("Softmax", op("Mul", op("MatMul", part[0], part[1]), number(0.5f)));
        y = op("Reshape", transpose(op("MatMul", p, part[2]), move, 4), INTS(0, 0, 8));
    } else {
        wok_value in[8] = {x, w, b, number(0.02f), number(0.005f), WOK_ABSENT, code(-3, is_u8), code(0, false)};
        y = contrib("QAttention", in, 8);
        wok_node_set_int(m, wok_graph_last(m), "num_heads", 2);
    }
    wok_graph_output(m, y);
}

Test(passes_quantised, operators_that_quantise_inside) {
    struct {
        builder build;
        int rank;
        int64_t dims[4];
        double tolerance;
    } cases[] = {{qlinear_conv, 4, {2, 5, 6, 7}, 0},
                 {qlinear_matmul, 3, {2, 3, 8}, 0},
                 {qgemm, 2, {3, 8}, 0},
                 {integer_to_float, 3, {2, 3, 8}, 0},
                 {qattention, 3, {2, 3, 8}, 1e-5},
                 {qlinear_add_mul_concat_pool, 4, {2, 3, 4, 4}, 0},
                 {codes_between, 4, {2, 3, 4, 4}, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int u8 = 0; u8 < 2; u8++) {
            is_u8 = u8;
            by_hand = false;
            run_once(OPSET, cases[i].build, NULL, 0, cases[i].dims, cases[i].rank, &with);
            by_hand = true;
            run_once(OPSET, cases[i].build, NULL, 0, cases[i].dims, cases[i].rank, &plain);
            cr_assert_eq(with.count, plain.count, "case %zu", i);
            double distance = support_distance(with.y, plain.y, with.count);
            cr_assert(distance <= cases[i].tolerance, "case %zu, u8 %d: %g", i, u8, distance);
            cr_assert_eq(count_of(&with, "MatMul") + count_of(&with, "Gemm") + count_of(&with, "Conv"),
                         bytes_of(&with, "MatMul") + bytes_of(&with, "Gemm") + bytes_of(&with, "Conv"), "case %zu", i);
        }
}

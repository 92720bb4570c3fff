/* test_passes.c - every rewrite: the graph before and after, the same values either way, and the sentence of a near miss.
 * A case builds a graph, runs it with all rewrites and with the one in question (and what builds on it) left out. */
#include "graphs.h"

/* ---- GELU ------------------------------------------------------------------------------------------------------------------ */

static void gelu_erf_divided(void) {
    wok_value x = INPUT(-1, -1, 8);
    wok_value u = op("Add", unary("Erf", op("Div", x, number(1.41421356f))), number(1));
    wok_graph_output(m, op("Mul", op("Mul", x, u), number(0.5f)));
}
static void gelu_erf_swapped(void) {
    wok_value x = INPUT(-1, -1, 8);
    wok_value u = op("Add", number(1), unary("Erf", op("Mul", number(0.70710678f), x)));
    wok_graph_output(m, op("Mul", op("Mul", number(0.5f), u), x));
}
static void gelu_erf_halved_first(void) {
    wok_value x = INPUT(-1, -1, 8);
    wok_value u = op("Add", unary("Erf", op("Div", x, number(1.4140625f))), number(1)); /* sqrt 2 in f16 */
    wok_graph_output(m, op("Mul", op("Div", x, number(2)), u));
}
static wok_value tanh_form(wok_value x, wok_value cube) {
    wok_value inner = op("Mul", op("Add", x, op("Mul", cube, number(0.044715f))), number(0.79788456f));
    return op("Mul", op("Mul", x, op("Add", unary("Tanh", inner), number(1))), number(0.5f));
}
static void gelu_tanh_pow(void) {
    wok_value x = INPUT(-1, -1, 8);
    wok_graph_output(m, tanh_form(x, op("Pow", x, number(3))));
}
static void gelu_tanh_products(void) {
    wok_value x = INPUT(-1, -1, 8);
    wok_graph_output(m, tanh_form(x, op("Mul", op("Mul", x, x), x)));
}
static void gelu_factored(void) { /* 0.797 x (1 + 0.0447 x x) */
    wok_value x = INPUT(-1, -1, 8);
    wok_value poly = op("Add", op("Mul", op("Mul", x, x), number(0.044715f)), number(1));
    wok_value inner = op("Mul", op("Mul", x, number(0.79788456f)), poly);
    wok_graph_output(m, op("Mul", op("Mul", number(0.5f), x), op("Add", number(1), unary("Tanh", inner))));
}
static void not_gelu(void) {
    wok_value x = INPUT(-1, -1, 8);
    wok_value u = op("Add", unary("Erf", op("Div", x, number(1.5f))), number(1));
    wok_graph_output(m, op("Mul", op("Mul", x, u), number(0.5f)));
}

Test(passes, fuse_gelu_reads_every_order_of_factors) {
    builder forms[] = {gelu_erf_divided, gelu_erf_swapped,   gelu_erf_halved_first,
                       gelu_tanh_pow,    gelu_tanh_products, gelu_factored};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        compare(17, forms[i], "fuse_gelu", SHAPE(2, 3, 8), i == 2 ? 2e-4 : 1e-6);
        cr_assert_eq(count_of(&with, "Gelu"), 1, "form %zu", i);
        cr_assert_eq(with.nodes, 1, "form %zu leaves %d nodes", i, with.nodes);
        cr_assert(plain.nodes > 3);
    }
}

Test(passes, fuse_gelu_says_why_not) {
    compare(17, not_gelu, "fuse_gelu", SHAPE(2, 3, 8), 0);
    cr_assert_eq(count_of(&with, "Gelu"), 0);
    cr_assert(strstr(with.misses, "fuse_gelu: the argument of Erf is not that of GELU"), "%s", with.misses);
}

/* ---- LayerNorm --------------------------------------------------------------------------------------------------------------- */

static wok_value reduce_mean(wok_value x) {
    wok_value y = unary("ReduceMean", x);
    set_ints("axes", (const int64_t[]){-1}, 1);
    return y;
}
static void norm_pow(void) {
    wok_value x = INPUT(-1, -1, 8), d = op("Sub", x, reduce_mean(x));
    wok_value s = unary("Sqrt", op("Add", reduce_mean(op("Pow", d, number(2))), number(1e-5f)));
    wok_graph_output(m, op("Add", op("Mul", op("Div", d, s), WEIGHT(1, 8)), WEIGHT(2, 8)));
}
static void norm_twice_centred(void) {
    wok_value x = INPUT(-1, -1, 8), d = op("Sub", x, reduce_mean(x)), e = op("Sub", x, reduce_mean(x));
    wok_value s = unary("Sqrt", op("Add", number(1e-5f), reduce_mean(op("Mul", e, e))));
    wok_graph_output(m, op("Add", WEIGHT(2, 8), op("Mul", WEIGHT(1, 8), op("Mul", d, unary("Reciprocal", s)))));
}
static void norm_bare(void) {
    wok_value x = INPUT(-1, -1, 8), d = op("Sub", x, reduce_mean(x));
    wok_graph_output(m, op("Div", d, unary("Sqrt", op("Add", reduce_mean(op("Mul", d, d)), number(1e-5f)))));
}
static void norm_wrong_axis(void) { /* the mean over another axis is no LayerNorm */
    wok_value x = INPUT(-1, -1, 8), mean = unary("ReduceMean", x);
    set_ints("axes", (const int64_t[]){1}, 1);
    wok_value d = op("Sub", x, mean);
    wok_graph_output(m, op("Div", d, unary("Sqrt", op("Add", reduce_mean(op("Mul", d, d)), number(1e-5f)))));
}

Test(passes, fuse_layernorm_reads_what_exporters_write) {
    builder forms[] = {norm_pow, norm_twice_centred, norm_bare};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        compare(13, forms[i], "fuse_layernorm", SHAPE(2, 3, 8), 2e-6);
        cr_assert_eq(count_of(&with, "LayerNormalization"), 1, "form %zu", i);
        cr_assert_eq(with.nodes, 1, "form %zu leaves %d nodes", i, with.nodes);
    }
    compare(13, norm_wrong_axis, "fuse_layernorm", SHAPE(2, 3, 8), 0);
    cr_assert_eq(count_of(&with, "LayerNormalization"), 0);
}

/* ---- attention -------------------------------------------------------------------------------------------------------------- */

static bool scale_on_operands, mask_by_where, guarded, one_head, mask_by_add, targets_from_shapes;

/* x as [batch, rows, tail...]; batch and rows read from the shape of x itself, as torch's tracer does, or copied by 0. */
static wok_value batch_rows(wok_value x, wok_value tail) {
    wok_value lead = targets_from_shapes ? op("Gather", unary("Shape", x), INTS(0, 1)) : INTS(0, 0);
    wok_value target = op("Concat", lead, tail);
    wok_node_set_int(m, wok_graph_last(m), "axis", 0);
    return op("Reshape", x, target);
}
static wok_value heads(wok_value x, int64_t n) { return batch_rows(x, INTS(n, 8 / n)); }
static void attention(void) {
    static const int64_t move[4] = {0, 2, 1, 3}, turn[4] = {0, 2, 3, 1};
    int64_t n = one_head ? 1 : 2;
    wok_value x = INPUT(-1, -1, 8);
    wok_value q = transpose(heads(op("MatMul", x, WEIGHT(1, 8, 8)), n), move, 4);
    wok_value k = transpose(heads(op("MatMul", x, WEIGHT(2, 8, 8)), n), turn, 4);
    wok_value v = transpose(heads(op("MatMul", x, WEIGHT(3, 8, 8)), n), move, 4);
    if (scale_on_operands) {
        q = op("Mul", q, number(0.70710678f));
        k = op("Mul", k, number(0.70710678f));
    }
    wok_value z = op("MatMul", q, k);
    if (!scale_on_operands) z = op("Div", z, number(2));
    if (mask_by_add || mask_by_where) { /* keys whose first feature is negative are hidden */
        wok_value first = op("Gather", x, INTS(0));
        wok_node_set_int(m, wok_graph_last(m), "axis", 2); /* [b,s,1] */
        wok_value row = op("Unsqueeze", transpose(first, (const int64_t[]){0, 2, 1}, 3), INTS(1)); /* [b,1,1,s] */
        wok_value hidden = op("Less", row, number(0));
        if (mask_by_where) {
            wok_value in[3] = {hidden, number(-INFINITY), z};
            z = wok_graph_op(m, "Where", "", NULL, in, 3, NULL);
        } else {
            wok_value in[3] = {hidden, number(-10000), number(0)};
            z = op("Add", z, wok_graph_op(m, "Where", "", NULL, in, 3, NULL));
        }
    }
    wok_value p = unary("Softmax", z);
    wok_node_set_int(m, wok_graph_last(m), "axis", -1);
    if (guarded) {
        wok_value in[3] = {unary("IsNaN", p), number(0), p};
        p = wok_graph_op(m, "Where", "", NULL, in, 3, NULL);
    }
    wok_value y = transpose(op("MatMul", p, v), move, 4);
    wok_graph_output(m, batch_rows(y, INTS(8)));
}

Test(passes, fuse_attention_reads_every_place_of_scale_and_mask) {
    for (int bits = 0; bits < 64; bits++) {
        scale_on_operands = bits & 1, mask_by_where = bits & 2, guarded = bits & 4, one_head = bits & 8,
        mask_by_add = bits & 16, targets_from_shapes = bits & 32;
        if (mask_by_where && (mask_by_add || !guarded)) continue; /* rows that hide all keys are NaN without the guard */
        compare(17, attention, "fuse_attention", SHAPE(2, 5, 8), 2e-6);
        cr_assert_eq(count_of(&with, "Attention"), 1, "case %d: %s", bits, with.misses);
        cr_assert_eq(count_of(&with, "Softmax") + count_of(&with, "Shape") + count_of(&with, "Concat"), 0);
        cr_assert_eq(count_of(&plain, "Attention"), 0);
    }
}

static void attention_read_twice(void) {
    attention();
    int count = wok_graph_node_count(m);
    for (int i = 0; i < count; i++) {
        wok_node_view node = wok_graph_node_at(m, i);
        if (!strcmp(node.op_type, "Softmax")) wok_graph_output(m, unary("Neg", node.outputs[0]));
    }
}

static void attention_and_its_heads(void) {
    attention();
    int count = wok_graph_node_count(m);
    wok_value joined = WOK_ABSENT;
    for (int i = 0; i < count; i++) {
        wok_node_view node = wok_graph_node_at(m, i);
        if (!strcmp(node.op_type, "Transpose")) joined = node.outputs[0];
    }
    wok_graph_output(m, unary("Neg", joined));
}

Test(passes, fuse_attention_says_why_not) {
    scale_on_operands = mask_by_where = guarded = one_head = mask_by_add = targets_from_shapes = false;
    run_once(17, attention_read_twice, NULL, 0, SHAPE(2, 5, 8), &with);
    cr_assert_eq(count_of(&with, "Attention"), 0);
    cr_assert(strstr(with.misses, "the attention weights are read elsewhere too"), "%s", with.misses);
    run_once(17, attention_and_its_heads, NULL, 0, SHAPE(2, 5, 8), &with);
    cr_assert_eq(count_of(&with, "Attention"), 0);
    cr_assert(strstr(with.misses, "the result of attention is read elsewhere too"), "%s", with.misses);
}

/* ---- convolutions ------------------------------------------------------------------------------------------------------------ */

static wok_value conv(wok_value x, wok_value w, wok_value b, int64_t stride) {
    wok_value in[3] = {x, w, b};
    wok_value y = wok_graph_op(m, "Conv", "", NULL, in, b == WOK_ABSENT ? 2 : 3, NULL);
    set_ints("pads", (const int64_t[]){1, 1, 1, 1}, 4);
    set_ints("strides", (const int64_t[]){stride, stride}, 2);
    return y;
}
static wok_value positive(unsigned seed, int64_t n) {
    float data[64];
    support_random(data, (size_t)n, seed);
    for (int i = 0; i < n; i++) data[i] = 0.5f + data[i] * data[i];
    return wok_graph_constant(m, NULL, WOK_F32, 1, &n, data, (size_t)n * 4, WOK_DATA_COPY);
}
static void conv_bn_relu(void) {
    wok_value y = conv(INPUT(-1, 3, 9, 7), WEIGHT(1, 5, 3, 3, 3), WEIGHT(2, 5), 2);
    wok_value in[5] = {y, WEIGHT(3, 5), WEIGHT(4, 5), WEIGHT(5, 5), positive(6, 5)};
    y = wok_graph_op(m, "BatchNormalization", "", NULL, in, 5, NULL);
    wok_graph_output(m, unary("Relu", y));
}
static void conv_mul_add_clip(void) {
    wok_value y = conv(INPUT(-1, 3, 9, 7), WEIGHT(1, 5, 3, 3, 3), WOK_ABSENT, 1);
    y = op("Add", op("Mul", y, WEIGHT(3, 1, 5, 1, 1)), WEIGHT(4, 1, 5, 1, 1));
    wok_value in[3] = {y, number(0), number(6)};
    wok_graph_output(m, wok_graph_op(m, "Clip", "", NULL, in, 3, NULL));
}
static void conv_residual(void) {
    wok_value x = INPUT(-1, 5, 6, 6);
    wok_value y = conv(unary("Relu", conv(x, WEIGHT(1, 5, 5, 3, 3), WEIGHT(2, 5), 1)), WEIGHT(3, 5, 5, 3, 3), WEIGHT(4, 5), 1);
    wok_graph_output(m, unary("Relu", op("Add", x, y)));
}
static void conv_padded(void) { /* Keras: one row at the bottom, one column at the right */
    wok_value in[2] = {INPUT(-1, 3, 8, 8), INTS(0, 0, 0, 0, 0, 0, 1, 1)};
    wok_value x = wok_graph_op(m, "Pad", "", NULL, in, 2, NULL);
    wok_value cin[2] = {x, WEIGHT(1, 3, 1, 3, 3)};
    wok_value y = wok_graph_op(m, "Conv", "", NULL, cin, 2, NULL);
    wok_node_set_int(m, wok_graph_last(m), "group", 3);
    set_ints("strides", (const int64_t[]){2, 2}, 2);
    wok_graph_output(m, y);
}
static void conv_reflected(void) { /* a reflecting Pad cannot be folded */
    wok_value in[2] = {INPUT(-1, 3, 8, 8), INTS(0, 0, 1, 1, 0, 0, 1, 1)};
    wok_value x = wok_graph_op(m, "Pad", "", NULL, in, 2, NULL);
    wok_node_set_string(m, wok_graph_last(m), "mode", "reflect", 7);
    wok_graph_output(m, conv(x, WEIGHT(1, 4, 3, 3, 3), WOK_ABSENT, 1));
}

Test(passes, fold_batchnorm_and_epilogue_make_one_convolution) {
    compare(13, conv_bn_relu, "fold_batchnorm", SHAPE(2, 3, 9, 7), 2e-6);
    cr_assert_eq(count_of(&with, "Conv"), 1);
    cr_assert_eq(count_of(&with, "BatchNormalization") + count_of(&with, "Relu"), 0);
    cr_assert_eq(count_of(&plain, "BatchNormalization"), 1);
    compare(13, conv_bn_relu, "fuse_epilogue", SHAPE(2, 3, 9, 7), 2e-6);
    cr_assert_eq(count_of(&plain, "Relu"), 1);
    compare(13, conv_mul_add_clip, "fuse_epilogue", SHAPE(2, 3, 9, 7), 2e-6);
    cr_assert_eq(count_of(&with, "Mul") + count_of(&with, "Add") + count_of(&with, "Clip"), 0);
    cr_assert_eq(count_of(&plain, "Mul") + count_of(&plain, "Add") + count_of(&plain, "Clip"), 3);
    compare(13, conv_residual, "fuse_epilogue", SHAPE(2, 5, 6, 6), 2e-6);
    cr_assert_eq(count_of(&with, "Conv"), 2);
    cr_assert_eq(count_of(&with, "Add") + count_of(&with, "Relu"), 0);
}

Test(passes, layout_turns_only_the_ends) {
    compare(13, conv_residual, "layout", SHAPE(2, 5, 6, 6), 2e-6);
    cr_assert(count_of(&with, "Transpose") <= 2, "%d transposes", count_of(&with, "Transpose"));
    cr_assert_eq(count_of(&plain, "Transpose"), 0);
}

Test(passes, fold_pad_takes_constant_zeros_only) {
    compare(13, conv_padded, "fold_pad", SHAPE(2, 3, 8, 8), 2e-6);
    cr_assert_eq(count_of(&with, "Pad"), 0);
    cr_assert_eq(count_of(&plain, "Pad"), 1);
    compare(13, conv_reflected, "fold_pad", SHAPE(2, 3, 8, 8), 2e-6);
    cr_assert_eq(count_of(&with, "Pad"), 1);
    cr_assert(strstr(with.misses, "fold_pad: the padding is not constant zeros"), "%s", with.misses);
}

/* ---- products ---------------------------------------------------------------------------------------------------------------- */

static void gemm_chain(void) {
    wok_value x = INPUT(-1, -1, 8);
    wok_value h = unary("Tanh", op("Add", WEIGHT(2, 20), op("MatMul", x, WEIGHT(1, 8, 20))));
    wok_value y = op("Add", op("MatMul", h, WEIGHT(3, 20, 8)), WEIGHT(4, 8));
    wok_graph_output(m, op("Add", x, y));
}
static void gemm_turned(void) { /* x W^T, and a bias of one row */
    wok_value w = transpose(WEIGHT(1, 20, 8), (const int64_t[]){1, 0}, 2);
    wok_graph_output(m, op("Add", op("MatMul", INPUT(-1, -1, 8), w), WEIGHT(2, 1, 20)));
}
static void gemm_scaled(void) {
    wok_value in[3] = {INPUT(-1, 8), WEIGHT(1, 20, 8), WEIGHT(2, 20)};
    wok_value y = wok_graph_op(m, "Gemm", "", NULL, in, 3, NULL);
    wok_node_set_int(m, wok_graph_last(m), "transB", 1);
    wok_node_set_float(m, wok_graph_last(m), "alpha", 0.5f);
    wok_graph_output(m, y);
}

Test(passes, fuse_gemm_takes_bias_residual_activation) {
    compare(17, gemm_chain, "fuse_gemm", SHAPE(2, 3, 8), 2e-6);
    cr_assert_eq(with.nodes, 2, "%d nodes", with.nodes);
    compare(17, gemm_chain, "fuse_epilogue", SHAPE(2, 3, 8), 2e-6);
    cr_assert(plain.nodes >= 5);
    compare(17, gemm_turned, "fuse_gemm", SHAPE(2, 3, 8), 2e-6);
    cr_assert_eq(with.nodes, 1);
    compare(17, gemm_scaled, "fuse_gemm", SHAPE(3, 8), 0);
    cr_assert(strstr(with.misses, "fuse_gemm: Gemm scales"), "%s", with.misses);
}

/* ---- small ones ---------------------------------------------------------------------------------------------------------------- */

static void repeated_mask(void) {
    wok_value x = INPUT(-1, -1, 8), y = x;
    for (int i = 0; i < 3; i++) { /* the same computation with constants of its own each time */
        wok_value in[3] = {op("Less", x, number(0)), number(-1), number(1)};
        y = op("Mul", y, wok_graph_op(m, "Where", "", NULL, in, 3, NULL));
    }
    wok_graph_output(m, y);
}
Test(passes, merge_equal_computes_once) {
    compare(17, repeated_mask, "merge_equal", SHAPE(2, 3, 8), 0);
    cr_assert_eq(count_of(&with, "Where"), 1);
    cr_assert_eq(count_of(&plain, "Where"), 3);
}

static void chains(void) {
    static const int64_t there[3] = {2, 0, 1}, back[3] = {1, 2, 0};
    wok_value x = INPUT(-1, -1, 8);
    wok_value y = unary("Identity", transpose(transpose(x, there, 3), back, 3));
    y = op("Reshape", op("Reshape", y, INTS(-1, 4)), INTS(-1, 8));
    y = unary("Cast", y);
    wok_node_set_int(m, wok_graph_last(m), "to", WOK_F32);
    wok_graph_output(m, unary("Abs", y));
}
Test(passes, simplify_drops_what_does_nothing) {
    compare(17, chains, "simplify", SHAPE(2, 3, 8), 0);
    cr_assert_eq(count_of(&with, "Transpose") + count_of(&with, "Cast") + count_of(&with, "Identity"), 0);
    cr_assert(count_of(&with, "Reshape") <= 1);
    cr_assert_eq(count_of(&plain, "Transpose"), 2);
}

static void shape_arithmetic(void) { /* heads = width / 4, from Shape */
    wok_value x = INPUT(-1, -1, 8), shape = unary("Shape", x);
    wok_value width = op("Gather", shape, INTS(2)), heads_count = op("Div", width, INTS(4));
    wok_value in[4] = {op("Gather", shape, INTS(0)), op("Gather", shape, INTS(1)), heads_count, INTS(4)};
    wok_value target = wok_graph_op(m, "Concat", "", NULL, in, 4, NULL);
    wok_node_set_int(m, wok_graph_last(m), "axis", 0);
    wok_graph_output(m, unary("Neg", op("Reshape", x, target)));
}
Test(passes, shape_arithmetic_folds_away) {
    run_once(17, shape_arithmetic, NULL, 0, SHAPE(2, 3, 8), &with);
    cr_assert_eq(count_of(&with, "Shape") + count_of(&with, "Gather") + count_of(&with, "Concat") + count_of(&with, "Div"), 0);
    cr_assert(with.nodes <= 2);
}

static void half(void) {
    float data[16];
    uint16_t h[16];
    for (int i = 0; i < 16; i++) data[i] = (float)(i - 8) / 8, h[i] = 0;
    for (int i = 0; i < 16; i++) { /* exact in f16: sign, exponent, mantissa of a small dyadic number */
        uint32_t bits;
        memcpy(&bits, &data[i], 4);
        if (data[i] != 0)
            h[i] = (uint16_t)((bits >> 16 & 0x8000) | ((bits >> 23 & 255) - 112) << 10 | (bits >> 13 & 1023));
    }
    wok_value x = unary("Cast", INPUT(-1, -1, 8));
    wok_node_set_int(m, wok_graph_last(m), "to", WOK_F16);
    wok_value w = wok_graph_constant(m, NULL, WOK_F16, 2, (const int64_t[]){8, 2}, h, sizeof h, WOK_DATA_COPY);
    wok_value y = unary("Cast", op("MatMul", x, w));
    wok_node_set_int(m, wok_graph_last(m), "to", WOK_F32);
    wok_graph_output(m, y);
}
Test(passes, widen_f16_computes_in_f32) {
    run_once(17, half, NULL, 0, SHAPE(2, 3, 8), &with);
    cr_assert_eq(count_of(&with, "MatMul"), 1);
    float x[48];
    support_random(x, 48, 77);
    for (int row = 0; row < 6; row++)
        for (int n = 0; n < 2; n++) {
            double want = 0;
            for (int k = 0; k < 8; k++) want += (double)x[row * 8 + k] * (double)(float)(k * 2 + n - 8) / 8;
            cr_assert(fabs(with.y[row * 2 + n] - want) < 4e-3, "%g for %g", (double)with.y[row * 2 + n], want);
        }
}

Test(passes, an_unknown_name_is_an_error) {
    wok_ctx *ctx = support_ctx(1, NULL);
    wok_model *model = make(ctx, 17, gemm_turned);
    wok_session *session = NULL;
    const char *name = "fuse_everything";
    wok_session_options options = {.size = sizeof options, .no_passes = &name, .no_pass_count = 1};
    cr_assert_eq(wok_session_create(model, &options, &session), WOK_ERR_ARGUMENT);
    cr_assert(strstr(wok_ctx_error(ctx), name), "%s", wok_ctx_error(ctx));
    cr_assert_null(session);
    wok_model_free(&model);
    wok_ctx_free(&ctx);
}

/* lower_qoperator.c - operators that quantise inside themselves become what they are made of, so that one rewrite
 * (lower_quantized) sees every quantised model in one form:
 *
 *   QLinearConv, QLinearMatMul, QGemm, QLinearAdd, QLinearMul, QLinearGlobalAveragePool, QLinearConcat
 *       -> DequantizeLinear of the operands, the plain operator, QuantizeLinear
 *   DynamicQuantizeMatMul, MatMulIntegerToFloat, QAttention
 *       -> DynamicQuantizeLinear, MatMulInteger, Cast, Mul, or the same as above where the scale is constant
 *
 * An int32 bias is worth x_scale * w_scale a unit. Source of the meanings: the ONNX standard and ONNX Runtime's
 * ContribOperators.md. A form that is not covered stays as it is and runs on the operator's own implementation. */
#include "lower_contrib.h"

#include <math.h>

static wok_value dequantised(wok_pass_ctx *ctx, const char *name, wok_value x, wok_value scale, wok_value zero,
                             int axis) {
    wok_value in[3] = {x, scale, zero};
    wok_value y = wok_pass_op(ctx, WOK_OP_DequantizeLinear, name, in, 3, NULL);
    if (y < 0) return WOK_ABSENT;
    wok_ir_set_int(ctx->graph, ctx->graph->values[y].producer, "axis", axis);
    wok_pass_infer(ctx, ctx->graph->values[y].producer);
    return y;
}

/* The last step: the old node's output. */
static wok_node finish(wok_pass_ctx *ctx, wok_node id, wok_op op, const wok_value *in, int in_count) {
    wok_graph *g = ctx->graph;
    wok_value out = g->nodes[id].out[0];
    const char *name = g->nodes[id].name;
    wok_pass_kill(ctx, &g->nodes[id]);
    wok_node node = wok_pass_add(ctx, op, name, in, in_count, &out, 1);
    wok_pass_infer(ctx, node);
    return node;
}

static void quantise(wok_pass_ctx *ctx, wok_node id, wok_value y, wok_value scale, wok_value zero) {
    if (y >= 0) finish(ctx, id, WOK_OP_QuantizeLinear, (wok_value[]){y, scale, zero}, 3);
}

static int64_t count_of(wok_pass_ctx *ctx, wok_value v) {
    const wok_type *t = wok_pass_type(ctx, v);
    return v < 0 ? 1 : t->rank < 0 ? -1 : wok_count(t->dims, t->rank);
}

/* One number for all, or a vector that runs along a dimension of weights. */
static bool scales_fit(wok_pass_ctx *ctx, wok_value scale, bool vector) {
    return count_of(ctx, scale) == 1 || (vector && wok_pass_type(ctx, scale)->rank == 1);
}

/* bias[i] * x_scale * w_scale[i] in f32; WOK_ABSENT where the bias is absent, *fits false where it is not constant. */
static wok_value bias_of(wok_pass_ctx *ctx, wok_value bias, wok_value x_scale, wok_value w_scale, float alpha,
                         bool *fits) {
    *fits = true;
    if (bias < 0) return WOK_ABSENT;
    const wok_type *b = wok_pass_type(ctx, bias), *s = wok_pass_type(ctx, w_scale);
    int64_t n = count_of(ctx, bias), scales = count_of(ctx, w_scale);
    *fits = wok_pass_constant(ctx, bias) && wok_pass_constant(ctx, x_scale) && wok_pass_constant(ctx, w_scale) &&
            b->rank == 1 && (scales == 1 || scales == n) && count_of(ctx, x_scale) == 1;
    float *f = *fits ? wok_arena_alloc(ctx->graph->arena, (size_t)n * sizeof *f + 1) : NULL;
    if (!f) return WOK_ABSENT;
    float sx = alpha * (float)wok_pass_element(wok_pass_type(ctx, x_scale), 0);
    for (int64_t i = 0; i < n; i++)
        f[i] = (float)wok_pass_element(b, i) * (sx * (float)wok_pass_element(s, scales == 1 ? 0 : i));
    return wok_pass_f32(ctx, "bias", 1, &n, f);
}

/* x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias? */
static bool qlinear_conv(wok_pass_ctx *ctx, wok_node id) {
    wok_graph *g = ctx->graph;
    const wok_ir_node *node = &g->nodes[id];
    const char *name = node->name;
    bool fits;
    if (!scales_fit(ctx, node->in[1], false) || !scales_fit(ctx, node->in[4], true)) return false;
    wok_value in[9];
    for (int i = 0; i < 9; i++) in[i] = wok_pass_in(node, i);
    wok_value bias = bias_of(ctx, in[8], in[1], in[4], 1, &fits);
    if (!fits) return false;
    wok_value x = dequantised(ctx, name, in[0], in[1], in[2], 1), w = dequantised(ctx, name, in[3], in[4], in[5], 0);
    wok_value y = wok_ir_value_new(g, name), out = g->nodes[id].out[0];
    if (x < 0 || w < 0 || y < 0) return true;
    for (int i = 3; i < g->nodes[id].in_count; i++) wok_pass_set_input(ctx, &g->nodes[id], i, WOK_ABSENT);
    wok_pass_set_input(ctx, &g->nodes[id], 0, x);
    wok_pass_set_input(ctx, &g->nodes[id], 1, w);
    wok_pass_set_input(ctx, &g->nodes[id], 2, bias);
    wok_ir_node *conv = &g->nodes[id]; /* its attributes are a Conv's */
    conv->op = WOK_OP_Conv;
    conv->op_type = "Conv";
    conv->in_count = bias < 0 ? 2 : 3;
    conv->out[0] = y;
    g->values[y].producer = id;
    wok_pass_infer(ctx, id);
    wok_pass_infer(ctx, wok_pass_add(ctx, WOK_OP_QuantizeLinear, name, (wok_value[]){y, in[6], in[7]}, 3, &out, 1));
    ctx->changed++;
    return true;
}

static bool qlinear_matmul(wok_pass_ctx *ctx, wok_node id) {
    const wok_ir_node *node = &ctx->graph->nodes[id];
    const char *name = node->name;
    const wok_type *b = wok_pass_type(ctx, node->in[3]);
    if (!scales_fit(ctx, node->in[1], false) || !scales_fit(ctx, node->in[4], b->rank == 2)) return false;
    wok_value in[8];
    for (int i = 0; i < 8; i++) in[i] = wok_pass_in(node, i);
    wok_value operands[2] = {dequantised(ctx, name, in[0], in[1], in[2], 1),
                             dequantised(ctx, name, in[3], in[4], in[5], 1)};
    quantise(ctx, id, wok_pass_emit(ctx, WOK_OP_MatMul, name, operands, 2), in[6], in[7]);
    return true;
}

/* a, a_scale, a_zero, b, b_scale, b_zero, c?, y_scale?, y_zero? */
static bool qgemm(wok_pass_ctx *ctx, wok_node id) {
    wok_graph *g = ctx->graph;
    const wok_ir_node *node = &g->nodes[id];
    const char *name = node->name;
    int64_t trans_a = wok_ir_int(node, "transA", 0), trans_b = wok_ir_int(node, "transB", 0);
    float alpha = wok_ir_float(node, "alpha", 1);
    bool fits;
    if (!scales_fit(ctx, node->in[1], false) || !scales_fit(ctx, node->in[4], true)) return false;
    wok_value in[9];
    for (int i = 0; i < 9; i++) in[i] = wok_pass_in(node, i);
    wok_value bias = bias_of(ctx, in[6], in[1], in[4], alpha, &fits);
    if (!fits) return false;
    wok_value operands[3] = {dequantised(ctx, name, in[0], in[1], in[2], 1),
                             dequantised(ctx, name, in[3], in[4], in[5], trans_b ? 0 : 1), bias};
    wok_value y = in[7] < 0 ? g->nodes[id].out[0] : wok_ir_value_new(g, name);
    if (y < 0) return true;
    if (in[7] < 0) wok_pass_kill(ctx, &g->nodes[id]);
    wok_node gemm = wok_pass_add(ctx, WOK_OP_Gemm, name, operands, 3, &y, 1);
    if (gemm < 0) return true;
    wok_ir_set_int(g, gemm, "transA", trans_a);
    wok_ir_set_int(g, gemm, "transB", trans_b);
    wok_ir_set_float(g, gemm, "alpha", alpha);
    wok_pass_infer(ctx, gemm);
    if (in[7] >= 0) quantise(ctx, id, y, in[7], in[8]);
    return true;
}

static bool qlinear_binary(wok_pass_ctx *ctx, wok_node id) {
    const wok_ir_node *node = &ctx->graph->nodes[id];
    const char *name = node->name;
    wok_op op = node->op == WOK_OP_ms_QLinearAdd ? WOK_OP_Add : WOK_OP_Mul;
    wok_value in[8];
    for (int i = 0; i < 8; i++) in[i] = wok_pass_in(node, i);
    wok_value operands[2] = {dequantised(ctx, name, in[0], in[1], in[2], 1),
                             dequantised(ctx, name, in[3], in[4], in[5], 1)};
    quantise(ctx, id, wok_pass_emit(ctx, op, name, operands, 2), in[6], in[7]);
    return true;
}

static bool qlinear_pool(wok_pass_ctx *ctx, wok_node id) {
    const wok_ir_node *node = &ctx->graph->nodes[id];
    const char *name = node->name;
    if (wok_ir_int(node, "channels_last", 0)) return false;
    wok_value in[5];
    for (int i = 0; i < 5; i++) in[i] = wok_pass_in(node, i);
    wok_value x = dequantised(ctx, name, in[0], in[1], in[2], 1);
    quantise(ctx, id, wok_pass_emit(ctx, WOK_OP_GlobalAveragePool, name, &x, 1), in[3], in[4]);
    return true;
}

/* y_scale, y_zero, then x, scale, zero of every operand */
static bool qlinear_concat(wok_pass_ctx *ctx, wok_node id) {
    wok_graph *g = ctx->graph;
    const wok_ir_node *node = &g->nodes[id];
    const char *name = node->name;
    int count = (node->in_count - 2) / 3;
    int64_t axis = wok_ir_int(node, "axis", 1);
    wok_value operands[WOK_MAX_IN], y_scale = node->in[0], y_zero = node->in[1];
    if (count < 1 || node->in_count != 2 + 3 * count) return false;
    for (int i = 0; i < count; i++) {
        const wok_value *in = g->nodes[id].in + 2 + 3 * i;
        operands[i] = dequantised(ctx, name, in[0], in[1], in[2], 1);
    }
    wok_value y = wok_pass_op(ctx, WOK_OP_Concat, name, operands, count, NULL);
    if (y < 0) return true;
    wok_ir_set_int(g, g->values[y].producer, "axis", axis);
    wok_pass_infer(ctx, g->values[y].producer);
    quantise(ctx, id, y, y_scale, y_zero);
    return true;
}

/* ---- integer products that give f32 ------------------------------------------------------------------------------------------- */

typedef struct integer_product {
    wok_value a, a_scale, a_zero, b, b_scale, b_zero;
} integer_product;

/* The f32 product: dequantised operands where a's scale is constant, else the integer operators. */
static wok_value product(wok_pass_ctx *ctx, const char *name, const integer_product *p) {
    if (wok_pass_constant(ctx, p->a_scale)) {
        wok_value in[2] = {dequantised(ctx, name, p->a, p->a_scale, p->a_zero, 1),
                           dequantised(ctx, name, p->b, p->b_scale, p->b_zero, 1)};
        return wok_pass_emit(ctx, WOK_OP_MatMul, name, in, 2);
    }
    wok_value in[4] = {p->a, p->b, p->a_zero, p->b_zero};
    wok_value sum = wok_pass_emit(ctx, WOK_OP_MatMulInteger, name, in, 4);
    wok_value real = sum < 0 ? WOK_ABSENT : wok_pass_cast(ctx, name, sum, WOK_F32);
    wok_value scale = wok_pass_emit(ctx, WOK_OP_Mul, name, (wok_value[]){p->a_scale, p->b_scale}, 2);
    return wok_pass_emit(ctx, WOK_OP_Mul, name, (wok_value[]){real, scale}, 2);
}

static bool give(wok_pass_ctx *ctx, wok_node id, wok_value y, wok_value bias) {
    if (y < 0) return true;
    if (bias >= 0)
        finish(ctx, id, WOK_OP_Add, (wok_value[]){y, bias}, 2);
    else
        finish(ctx, id, WOK_OP_Identity, &y, 1);
    return true;
}

static bool dynamic_quantise(wok_pass_ctx *ctx, const char *name, wok_value x, integer_product *p) {
    wok_graph *g = ctx->graph;
    wok_value out[3] = {wok_ir_value_new(g, name), wok_ir_value_new(g, name), wok_ir_value_new(g, name)};
    if (out[0] < 0 || out[1] < 0 || out[2] < 0) return false;
    wok_node node = wok_pass_add(ctx, WOK_OP_DynamicQuantizeLinear, name, &x, 1, out, 3);
    wok_pass_infer(ctx, node);
    p->a = out[0], p->a_scale = out[1], p->a_zero = out[2];
    return node >= 0;
}

/* a f32, b, b_scale, b_zero?, bias? */
static bool dynamic_matmul(wok_pass_ctx *ctx, wok_node id) {
    const wok_ir_node *node = &ctx->graph->nodes[id];
    const char *name = node->name;
    wok_value x = node->in[0], bias = wok_pass_in(node, 4);
    integer_product p = {.b = node->in[1], .b_scale = node->in[2], .b_zero = wok_pass_in(node, 3)};
    if (!dynamic_quantise(ctx, name, x, &p)) return true;
    return give(ctx, id, product(ctx, name, &p), bias);
}

/* a, b, a_scale, b_scale, a_zero?, b_zero?, bias? */
static bool integer_to_float(wok_pass_ctx *ctx, wok_node id) {
    const wok_ir_node *node = &ctx->graph->nodes[id];
    const char *name = node->name;
    wok_value bias = wok_pass_in(node, 6);
    integer_product p = {node->in[0], node->in[2], wok_pass_in(node, 4),
                         node->in[1], node->in[3], wok_pass_in(node, 5)};
    if (!scales_fit(ctx, p.a_scale, false)) return false;
    return give(ctx, id, product(ctx, name, &p), bias);
}

/* x, w, bias, x_scale, w_scale, mask?, x_zero?, w_zero? */
static bool qattention(wok_pass_ctx *ctx, wok_node id) {
    const wok_ir_node *node = &ctx->graph->nodes[id];
    const char *name = node->name;
    wok_value bias = node->in[2], mask = wok_pass_in(node, 5);
    integer_product p = {node->in[0], node->in[3], wok_pass_in(node, 6),
                         node->in[1], node->in[4], wok_pass_in(node, 7)};
    if (!scales_fit(ctx, p.a_scale, false) || wok_pass_in(node, 8) >= 0 || !wok_lower_attention_fits(ctx, id, mask))
        return false;
    wok_value qkv = product(ctx, name, &p);
    qkv = wok_pass_emit(ctx, WOK_OP_Add, name, (wok_value[]){qkv, bias}, 2);
    if (qkv >= 0) wok_lower_attention(ctx, id, qkv, mask);
    return true;
}

wok_status wok_lower_qoperator(wok_pass_ctx *ctx, wok_node id, bool *lowered) {
    wok_graph *g = ctx->graph;
    static const struct {
        wok_op op;
        int inputs; /* that must be there */
        bool (*lower)(wok_pass_ctx *, wok_node);
    } table[] = {{WOK_OP_QLinearConv, 8, qlinear_conv},
                 {WOK_OP_QLinearMatMul, 8, qlinear_matmul},
                 {WOK_OP_ms_QGemm, 6, qgemm},
                 {WOK_OP_ms_QLinearAdd, 7, qlinear_binary},
                 {WOK_OP_ms_QLinearMul, 7, qlinear_binary},
                 {WOK_OP_ms_QLinearGlobalAveragePool, 5, qlinear_pool},
                 {WOK_OP_ms_QLinearConcat, 5, qlinear_concat},
                 {WOK_OP_ms_DynamicQuantizeMatMul, 3, dynamic_matmul},
                 {WOK_OP_ms_MatMulIntegerToFloat, 4, integer_to_float},
                 {WOK_OP_ms_QAttention, 5, qattention}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (table[i].op != g->nodes[id].op || g->nodes[id].in_count < table[i].inputs) continue;
        wok_pass_infer(ctx, id); /* a node that is wrong is told so in the file's own words */
        if (g->status == WOK_OK) *lowered = table[i].lower(ctx, id);
    }
    return g->status;
}

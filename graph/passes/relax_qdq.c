/* relax_qdq.c - only where a session asks for it (relax_qdq): QuantizeLinear-DequantizeLinear pairs that stand between
 * operators that compute in f32 are dropped. Quantisers that know only whole graphs put a pair behind every operator; the
 * pairs in front of integer kernels make the model fast, the others only cost time and accuracy. What is dropped:
 *
 *   pairs in front of anything but products with quantised weights, convolutions, pooling and Concat
 *   the pair between a convolution and the Add of a residual block (the sum is fused into the convolution)
 *
 * The result differs from the file's by the roundings that are left out: it is closer to the float model. */
#include "quantised.h"

/* DequantizeLinear(QuantizeLinear(x)) with one scale: x; WOK_ABSENT otherwise. */
static wok_value before_pair(wok_pass_ctx *ctx, wok_value v) {
    wok_quantised to, from;
    if (!wok_pass_quantised(ctx, v, &from)) return WOK_ABSENT;
    const wok_ir_node *node = wok_pass_producer(ctx, from.codes);
    if (!node || !wok_pass_quantises(ctx, node, &to) || to.scale != from.scale || to.zero != from.zero)
        return WOK_ABSENT;
    return node->in[0];
}

static bool from_conv(wok_pass_ctx *ctx, wok_value v) {
    wok_value x = before_pair(ctx, v);
    return wok_pass_is(ctx, x >= 0 ? x : v, WOK_OP_Conv) != NULL;
}

/* Dequantised constants, perhaps transposed. */
static bool is_weights(wok_pass_ctx *ctx, wok_value v) {
    const wok_ir_node *node = wok_pass_producer(ctx, v);
    if (node && node->op == WOK_OP_Transpose) node = wok_pass_producer(ctx, node->in[0]);
    return wok_pass_is_dequantize(node) && wok_pass_constant(ctx, node->in[0]);
}

static bool keeps(wok_pass_ctx *ctx, const wok_ir_node *node, int i) {
    switch (node->op) {
    case WOK_OP_MatMul:
    case WOK_OP_Gemm:
        return i < 2 && is_weights(ctx, node->in[1 - i]);
    case WOK_OP_Conv:
    case WOK_OP_MaxPool:
    case WOK_OP_AveragePool:
    case WOK_OP_GlobalAveragePool:
    case WOK_OP_Concat:
        return true;
    case WOK_OP_Add: /* the convolution's own side goes, bytes of the other one are its residual */
        return i == 0 ? !from_conv(ctx, node->in[0]) && from_conv(ctx, node->in[1]) : from_conv(ctx, node->in[0]);
    default:
        return false;
    }
}

wok_status wok_pass_relax_qdq(wok_pass_ctx *ctx) {
    wok_graph *g = ctx->graph;
    if (!ctx->options->relax_qdq) return WOK_OK;
    for (wok_node id = 0; id < g->node_count && g->status == WOK_OK; id++) {
        wok_ir_node *node = &g->nodes[id];
        if (node->dead || wok_pass_is_dequantize(node)) continue;
        bool keep[WOK_MAX_IN]; /* decided before anything changes */
        for (int i = 0; i < node->in_count && i < WOK_MAX_IN; i++) keep[i] = keeps(ctx, node, i);
        for (int i = 0; i < node->in_count && i < WOK_MAX_IN; i++) {
            wok_value x = node->in[i] < 0 || keep[i] ? WOK_ABSENT : before_pair(ctx, node->in[i]);
            if (x < 0) continue;
            wok_pass_set_input(ctx, node, i, x);
            ctx->changed++;
        }
    }
    return g->status;
}

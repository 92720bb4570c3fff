/* lower_contrib.c - what ONNX Runtime's transformer optimiser fused is taken apart, so that wok fuses it in its own way:
 * BiasGelu after a MatMul becomes that GEMM's epilogue, SkipLayerNormalization's additions too.
 * Source of the meanings: ONNX Runtime's ContribOperators.md. A form that is not covered stays as it is and runs on the
 * operator's own implementation. */
#include "lower_contrib.h"

#include <math.h>
#include <string.h>

/* One output that keeps its name: the last node of a lowering produces the old node's value. */
static wok_node finish(wok_pass_ctx *ctx, wok_node old, wok_op op, const wok_value *in, int in_count) {
    wok_graph *g = ctx->graph;
    wok_value out = g->nodes[old].out[0];
    const char *name = g->nodes[old].name;
    wok_pass_kill(ctx, &g->nodes[old]);
    return wok_pass_add(ctx, op, name, in, in_count, &out, 1);
}

static wok_value binary(wok_pass_ctx *ctx, wok_op op, const char *name, wok_value a, wok_value b) {
    return wok_pass_emit(ctx, op, name, (wok_value[]){a, b}, 2);
}

static wok_value unsqueeze(wok_pass_ctx *ctx, const char *name, wok_value x, const int64_t *axes, int count) {
    return binary(ctx, WOK_OP_Unsqueeze, name, x, wok_pass_i64(ctx, "axes", 1, axes, count));
}

static wok_value scalar_f32(wok_pass_ctx *ctx, float x) {
    return wok_pass_f32(ctx, "scalar", 0, NULL, &x);
}

/* Range(0, size of x's dimension `axis`, 1), int64. */
static wok_value positions(wok_pass_ctx *ctx, const char *name, wok_value x, int64_t axis) {
    wok_graph *g = ctx->graph;
    wok_value shape = wok_pass_op(ctx, WOK_OP_Shape, name, &x, 1, NULL);
    if (shape < 0) return WOK_ABSENT;
    wok_ir_set_int(g, g->values[shape].producer, "start", axis);
    wok_ir_set_int(g, g->values[shape].producer, "end", axis + 1);
    wok_pass_infer(ctx, g->values[shape].producer);
    wok_value size = wok_pass_emit(ctx, WOK_OP_Squeeze, name, &shape, 1);
    int64_t zero = 0, one = 1;
    wok_value in[3] = {wok_pass_i64(ctx, "zero", 0, &zero, 1), size, wok_pass_i64(ctx, "one", 0, &one, 1)};
    return wok_pass_emit(ctx, WOK_OP_Range, name, in, 3);
}

/* The additive bias [B,1,1,S] of a mask: raw (rank 2: 1 keeps a key) or lengths (rank 1). */
static wok_value attention_bias(wok_pass_ctx *ctx, const char *name, wok_value x, wok_value mask, float filter) {
    int rank = wok_pass_type(ctx, mask)->rank;
    wok_value keep;
    if (rank == 1) {
        wok_value lengths = unsqueeze(ctx, name, wok_pass_cast(ctx, name, mask, WOK_I64), (int64_t[]){1}, 1);
        keep = binary(ctx, WOK_OP_Less, name, positions(ctx, name, x, 1), lengths);
    } else {
        keep = wok_pass_cast(ctx, name, mask, WOK_BOOL);
    }
    wok_value in[3] = {keep, scalar_f32(ctx, 0), scalar_f32(ctx, filter)};
    wok_value bias = wok_pass_emit(ctx, WOK_OP_Where, name, in, 3);
    return unsqueeze(ctx, name, bias, (int64_t[]){1, 2}, 2);
}

/* What wok.Attention does not know is refused: one direction, rotation, sizes of their own for Q, K and V. */
bool wok_lower_attention_fits(wok_pass_ctx *ctx, wok_node id, wok_value mask) {
    const wok_ir_node *node = &ctx->graph->nodes[id];
    const wok_type *w = wok_pass_type(ctx, wok_pass_in(node, 1));
    int64_t sizes[4], heads = wok_ir_int(node, "num_heads", 0);
    int mask_rank = mask < 0 ? 0 : wok_pass_type(ctx, mask)->rank;
    return node->out_count == 1 && !wok_ir_int(node, "unidirectional", 0) && !wok_ir_int(node, "do_rotary", 0) &&
           wok_ir_ints(node, "qkv_hidden_sizes", sizes, 4) < 0 && heads >= 1 && wok_pass_constant(ctx, node->in[1]) &&
           w->rank == 2 && w->dims[1] % (3 * heads) == 0 && (mask < 0 || mask_rank == 1 || mask_rank == 2);
}

void wok_lower_attention(wok_pass_ctx *ctx, wok_node id, wok_value qkv, wok_value mask) {
    wok_graph *g = ctx->graph;
    const wok_ir_node *node = &g->nodes[id];
    const char *name = node->name;
    int64_t heads = wok_ir_int(node, "num_heads", 0), width = wok_pass_type(ctx, node->in[1])->dims[1] / 3 / heads;
    float scale = wok_ir_float(node, "scale", 0), filter = wok_ir_float(node, "mask_filter_value", -10000.0f);
    if (scale == 0) scale = (float)(1.0 / sqrt((double)width));
    wok_value bias = mask < 0 ? WOK_ABSENT : attention_bias(ctx, name, node->in[0], mask, filter);
    wok_value in[4] = {qkv, WOK_ABSENT, WOK_ABSENT, bias};
    wok_node last = finish(ctx, id, WOK_OP_wok_Attention, in, 4);
    if (last < 0) return;
    wok_ir_set_int(g, last, "heads", heads);
    wok_ir_set_int(g, last, "packed_qkv", 1);
    wok_ir_set_float(g, last, "scale", scale);
    wok_pass_label(ctx, last, "Attention");
    wok_pass_infer(ctx, last);
}

static bool attention(wok_pass_ctx *ctx, wok_node id) {
    wok_graph *g = ctx->graph;
    const wok_ir_node *node = &g->nodes[id];
    wok_value mask = wok_pass_in(node, 3);
    for (int i = 4; i < node->in_count; i++)
        if (node->in[i] >= 0) return false; /* past, relative position bias */
    if (!wok_lower_attention_fits(ctx, id, mask)) return false;
    wok_value in[3] = {node->in[0], node->in[1], wok_pass_in(node, 2)};
    wok_value qkv = wok_pass_emit(ctx, WOK_OP_wok_Gemm, node->name, in, in[2] < 0 ? 2 : 3);
    if (qkv < 0) return true;
    wok_pass_label(ctx, g->values[qkv].producer, "MatMul");
    wok_lower_attention(ctx, id, qkv, mask);
    return true;
}

static bool skip_layer_norm(wok_pass_ctx *ctx, wok_node id) {
    wok_graph *g = ctx->graph;
    const wok_ir_node *node = &g->nodes[id];
    for (int i = 1; i < node->out_count && i < 3; i++)
        if (node->out[i] >= 0 && ctx->uses[node->out[i]] > 0) return false; /* mean, inverse deviation */
    const char *name = node->name;
    float epsilon = wok_ir_float(node, "epsilon", 1e-5f);
    wok_value x = node->in[0], skip = node->in[1], gamma = wok_pass_in(node, 2), beta = wok_pass_in(node, 3),
              bias = wok_pass_in(node, 4), sum = node->out_count > 3 ? node->out[3] : WOK_ABSENT;
    if (bias >= 0) x = binary(ctx, WOK_OP_Add, name, x, bias);
    if (sum >= 0) {
        g->nodes[id].out[3] = WOK_ABSENT;
        wok_pass_infer(ctx, wok_pass_add(ctx, WOK_OP_Add, name, (wok_value[]){x, skip}, 2, &sum, 1));
    } else {
        sum = binary(ctx, WOK_OP_Add, name, x, skip);
    }
    wok_node last = finish(ctx, id, WOK_OP_wok_LayerNorm, (wok_value[]){sum, WOK_ABSENT, gamma, beta}, 4);
    wok_ir_set_float(g, last, "epsilon", epsilon);
    wok_pass_label(ctx, last, "LayerNormalization");
    wok_pass_infer(ctx, last);
    return true;
}

static wok_value embedding(wok_pass_ctx *ctx, const char *name, wok_value table, wok_value ids) {
    return binary(ctx, WOK_OP_Gather, name, table, ids);
}

/* (ids, segments?, words, positions, segment table?, gamma, beta, mask?, position ids?) -> (y, mask index, sum?) */
static bool embed_layer_norm(wok_pass_ctx *ctx, wok_node id) {
    wok_graph *g = ctx->graph;
    const wok_ir_node *node = &g->nodes[id];
    const char *name = node->name;
    float epsilon = wok_ir_float(node, "epsilon", 1e-12f);
    wok_value ids = node->in[0], segments = wok_pass_in(node, 1), words = node->in[2], table = node->in[3],
              segment_table = wok_pass_in(node, 4), gamma = wok_pass_in(node, 5), beta = wok_pass_in(node, 6),
              mask = wok_pass_in(node, 7), places = wok_pass_in(node, 8);
    wok_value index = node->out_count > 1 ? node->out[1] : WOK_ABSENT,
              sum = node->out_count > 2 ? node->out[2] : WOK_ABSENT;
    if (index >= 0 && ctx->uses[index] > 0 && mask < 0) return false;
    for (int i = 1; i < node->out_count; i++) g->nodes[id].out[i] = WOK_ABSENT;
    if (places < 0) places = positions(ctx, name, ids, 1);
    wok_value x = embedding(ctx, name, words, ids);
    if (segment_table >= 0 && segments >= 0)
        x = binary(ctx, WOK_OP_Add, name, x, embedding(ctx, name, segment_table, segments));
    wok_value place = embedding(ctx, name, table, places);
    if (sum >= 0)
        wok_pass_infer(ctx, wok_pass_add(ctx, WOK_OP_Add, name, (wok_value[]){x, place}, 2, &sum, 1));
    else
        sum = binary(ctx, WOK_OP_Add, name, x, place);
    if (index >= 0 && ctx->uses[index] > 0) {
        wok_value in[2] = {mask, wok_pass_i64(ctx, "axes", 1, (int64_t[]){1}, 1)};
        wok_node count = wok_pass_add(ctx, WOK_OP_ReduceSum, name, in, 2, &index, 1);
        wok_ir_set_int(g, count, "keepdims", 0);
        wok_pass_infer(ctx, count);
    }
    wok_node last = finish(ctx, id, WOK_OP_wok_LayerNorm, (wok_value[]){sum, WOK_ABSENT, gamma, beta}, 4);
    wok_ir_set_float(g, last, "epsilon", epsilon);
    wok_pass_label(ctx, last, "LayerNormalization");
    wok_pass_infer(ctx, last);
    return true;
}

static bool gelu(wok_pass_ctx *ctx, wok_node id, bool tanh_form) {
    wok_graph *g = ctx->graph;
    const wok_ir_node *node = &g->nodes[id];
    const char *name = node->name;
    wok_value x = node->in[0], bias = wok_pass_in(node, 1);
    if (bias >= 0) x = binary(ctx, WOK_OP_Add, name, x, bias);
    wok_node last = finish(ctx, id, WOK_OP_Gelu, &x, 1);
    if (tanh_form) wok_pass_set_string(ctx, last, "approximate", "tanh");
    wok_pass_infer(ctx, last);
    return true;
}

/* The inputs that a lowering reads without asking are there. */
static bool has_inputs(const wok_ir_node *node) {
    static const int embed[] = {0, 2, 3}, skip[] = {0, 1};
    const int *need = node->op == WOK_OP_ms_EmbedLayerNormalization ? embed : skip;
    int count = node->op == WOK_OP_ms_EmbedLayerNormalization                                     ? 3
                : node->op == WOK_OP_ms_SkipLayerNormalization || node->op == WOK_OP_ms_Attention ? 2
                                                                                                  : 1;
    for (int i = 0; i < count; i++)
        if (wok_pass_in(node, need[i]) < 0) return false;
    return node->out_count > 0 && node->out[0] >= 0;
}

wok_status wok_lower_contrib(wok_pass_ctx *ctx, wok_node id, bool *lowered) {
    wok_graph *g = ctx->graph;
    if (!has_inputs(&g->nodes[id])) return WOK_OK;
    switch (g->nodes[id].op) {
    case WOK_OP_ms_Attention:
        *lowered = attention(ctx, id);
        break;
    case WOK_OP_ms_SkipLayerNormalization:
        *lowered = skip_layer_norm(ctx, id);
        break;
    case WOK_OP_ms_EmbedLayerNormalization:
        *lowered = embed_layer_norm(ctx, id);
        break;
    case WOK_OP_ms_BiasGelu:
    case WOK_OP_ms_Gelu:
        *lowered = gelu(ctx, id, false);
        break;
    case WOK_OP_ms_FastGelu:
        *lowered = gelu(ctx, id, true);
        break;
    default:
        break;
    }
    return g->status;
}

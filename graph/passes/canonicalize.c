/* canonicalize.c - one form for each operator: what older operator sets wrote as attributes becomes inputs, Constant
 * nodes become constants, com.microsoft's fused operators become plain ones (lower_contrib.c) that the later passes fuse
 * in wok's own way. Runs first and infers types as it goes, because some old forms depend on ranks.
 * Source of the forms: the ONNX operator changelog. */
#include "lower_contrib.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* Appends the ints of attribute `name` as constant input `index`, leaving gaps absent. False: no such attribute. */
static bool ints_to_input(wok_pass_ctx *ctx, wok_node id, const char *name, int index) {
    wok_graph *g = ctx->graph;
    const wok_attr *attr = wok_ir_attr(&g->nodes[id], name, WOK_ATTR_INTS);
    int64_t single = wok_ir_int(&g->nodes[id], name, INT64_MIN);
    if (!attr && single == INT64_MIN) return false;
    wok_value v = attr ? wok_pass_i64(ctx, name, 1, attr->u.ints, attr->count) : wok_pass_i64(ctx, name, 1, &single, 1);
    wok_pass_append(ctx, id, index, v);
    return true;
}

static void float_to_input(wok_pass_ctx *ctx, wok_node id, const char *name, int index) {
    const wok_attr *attr = wok_ir_attr(&ctx->graph->nodes[id], name, WOK_ATTR_FLOAT);
    if (attr) wok_pass_append(ctx, id, index, wok_pass_f32(ctx, name, 0, NULL, &attr->u.f));
}

/* ---- Constant --------------------------------------------------------------------------------------------------------- */

static wok_value constant_value(wok_pass_ctx *ctx, const wok_ir_node *node) {
    wok_graph *g = ctx->graph;
    for (int i = 0; i < node->attr_count; i++) {
        const wok_attr *a = &node->attrs[i];
        int64_t count = a->count;
        if (a->kind == WOK_ATTR_TENSOR) return a->u.tensor;
        if (a->kind == WOK_ATTR_INT) return wok_ir_constant(g, node->name, WOK_I64, 0, NULL, &a->u.i, sizeof a->u.i);
        if (a->kind == WOK_ATTR_FLOAT) return wok_ir_constant(g, node->name, WOK_F32, 0, NULL, &a->u.f, sizeof a->u.f);
        if (a->kind == WOK_ATTR_INTS)
            return wok_ir_constant(g, node->name, WOK_I64, 1, &count, a->u.ints, (size_t)count * sizeof *a->u.ints);
        if (a->kind == WOK_ATTR_FLOATS)
            return wok_ir_constant(g, node->name, WOK_F32, 1, &count, a->u.floats, (size_t)count * sizeof *a->u.floats);
    }
    return WOK_ABSENT;
}

static wok_status constant(wok_pass_ctx *ctx, wok_node id) {
    wok_graph *g = ctx->graph;
    wok_ir_node *node = &g->nodes[id];
    wok_value out = node->out[0], from = constant_value(ctx, node);
    if (g->status != WOK_OK) return g->status;
    if (from < 0)
        return wok_ctx_fail(g->ctx, WOK_ERR_UNSUPPORTED, "node %s (Constant) holds no tensor of numbers", node->name);
    if (g->values[out].is_output) { /* keeps a producer: outputs are computed, not read from the file */
        wok_value in = from;
        wok_pass_kill(ctx, &g->nodes[id]);
        wok_pass_add(ctx, WOK_OP_Identity, g->values[out].name, &in, 1, &out, 1);
        g->values[from].only_attr = false;
        g->values[out].type.rank = -1;
        return g->status;
    }
    wok_pass_kill(ctx, &g->nodes[id]);
    g->values[out].type = g->values[from].type;
    g->values[out].producer = WOK_ABSENT;
    return WOK_OK;
}

/* ---- old forms --------------------------------------------------------------------------------------------------------- */

/* Before 13, Softmax, LogSoftmax and Hardmax flatten to two dimensions at `axis` (default 1). */
static wok_status old_softmax(wok_pass_ctx *ctx, wok_node id) {
    wok_graph *g = ctx->graph;
    wok_ir_node *node = &g->nodes[id];
    const wok_type *type = wok_pass_type(ctx, node->in[0]);
    int64_t axis = wok_ir_int(node, "axis", 1);
    node->version = 13;
    if (type->rank >= 0 && axis < 0) axis += type->rank;
    if (axis == -1 || (type->rank >= 0 && axis == type->rank - 1)) {
        wok_ir_set_int(g, id, "axis", -1);
        return WOK_OK;
    }
    const char *name = node->name;
    wok_value x = node->in[0], y = node->out[0];
    wok_value shape = wok_pass_emit(ctx, WOK_OP_Shape, name, &x, 1);
    wok_value flat = wok_pass_op(ctx, WOK_OP_Flatten, name, &x, 1, NULL);
    if (flat < 0) return g->status;
    wok_ir_set_int(g, g->values[flat].producer, "axis", axis);
    wok_pass_infer(ctx, g->values[flat].producer);
    wok_value rows = wok_ir_value_new(g, name);
    if (rows < 0) return g->status;
    wok_ir_set_int(g, id, "axis", -1);
    wok_pass_set_input(ctx, &g->nodes[id], 0, flat);
    g->nodes[id].out[0] = rows;
    g->values[rows].producer = id;
    wok_pass_infer(ctx, id);
    wok_node last = wok_pass_add(ctx, WOK_OP_Reshape, name, (wok_value[]){rows, shape}, 2, &y, 1);
    wok_pass_infer(ctx, last);
    return g->status;
}

/* Before 7, the second operand of arithmetic broadcast only with broadcast=1, its dimensions laid at `axis`. */
static void old_broadcast(wok_pass_ctx *ctx, wok_node id) {
    wok_graph *g = ctx->graph;
    const wok_ir_node *node = &g->nodes[id];
    int64_t axis = wok_ir_int(node, "axis", INT64_MIN);
    if (node->in_count != 2 || axis == INT64_MIN || !wok_ir_int(node, "broadcast", 0)) return;
    const wok_type *a = wok_pass_type(ctx, node->in[0]), *b = wok_pass_type(ctx, node->in[1]);
    if (a->rank < 0 || b->rank < 0) return;
    if (axis < 0) axis += a->rank;
    int64_t trailing = a->rank - axis - b->rank, axes[WOK_MAX_RANK];
    if (trailing <= 0 || axis < 0) return;
    for (int64_t i = 0; i < trailing; i++) axes[i] = b->rank + i;
    wok_value in[2] = {node->in[1], wok_pass_i64(ctx, "axes", 1, axes, trailing)};
    wok_value wide = wok_pass_emit(ctx, WOK_OP_Unsqueeze, node->name, in, 2);
    if (wide >= 0) wok_pass_set_input(ctx, &g->nodes[id], 1, wide);
}

static void old_slice(wok_pass_ctx *ctx, wok_node id) {
    ints_to_input(ctx, id, "starts", 1);
    ints_to_input(ctx, id, "ends", 2);
    ints_to_input(ctx, id, "axes", 3);
}

static void old_pad(wok_pass_ctx *ctx, wok_node id) {
    if (!ints_to_input(ctx, id, "pads", 1)) ints_to_input(ctx, id, "paddings", 1);
    float_to_input(ctx, id, "value", 2);
}

static void old_topk(wok_pass_ctx *ctx, wok_node id) {
    ints_to_input(ctx, id, "k", 1);
}

static bool is_reduce(wok_op op) {
    switch (op) {
    case WOK_OP_ReduceL1:
    case WOK_OP_ReduceL2:
    case WOK_OP_ReduceLogSum:
    case WOK_OP_ReduceLogSumExp:
    case WOK_OP_ReduceMax:
    case WOK_OP_ReduceMean:
    case WOK_OP_ReduceMin:
    case WOK_OP_ReduceProd:
    case WOK_OP_ReduceSum:
    case WOK_OP_ReduceSumSquare:
        return true;
    default:
        return false;
    }
}

static wok_status modernize(wok_pass_ctx *ctx, wok_node id) {
    const wok_ir_node *node = &ctx->graph->nodes[id];
    int64_t version = node->version;
    if (node->domain[0]) return WOK_OK;
    switch (node->op) {
    case WOK_OP_Softmax:
    case WOK_OP_LogSoftmax:
    case WOK_OP_Hardmax:
        return version < 13 ? old_softmax(ctx, id) : WOK_OK;
    case WOK_OP_Squeeze:
    case WOK_OP_Unsqueeze:
        if (version < 13) ints_to_input(ctx, id, "axes", 1);
        break;
    case WOK_OP_Split:
        if (version < 13) ints_to_input(ctx, id, "split", 1);
        break;
    case WOK_OP_Clip:
        if (version < 11) float_to_input(ctx, id, "min", 1), float_to_input(ctx, id, "max", 2);
        break;
    case WOK_OP_Slice:
        if (version < 10) old_slice(ctx, id);
        break;
    case WOK_OP_Pad:
        if (version < 11) old_pad(ctx, id);
        break;
    case WOK_OP_TopK:
        if (version < 10) old_topk(ctx, id);
        break;
    case WOK_OP_Reshape:
        if (version < 5) ints_to_input(ctx, id, "shape", 1);
        break;
    case WOK_OP_Add:
    case WOK_OP_Sub:
    case WOK_OP_Mul:
    case WOK_OP_Div:
    case WOK_OP_Pow:
    case WOK_OP_And:
    case WOK_OP_Or:
    case WOK_OP_Xor:
    case WOK_OP_Equal:
    case WOK_OP_Less:
    case WOK_OP_Greater:
        if (version < 7) old_broadcast(ctx, id);
        break;
    default:
        if (is_reduce(node->op) && version < 18) ints_to_input(ctx, id, "axes", 1);
        break;
    }
    return ctx->graph->status;
}

wok_status wok_pass_canonicalize(wok_pass_ctx *ctx) {
    wok_graph *g = ctx->graph;
    int count = g->node_count; /* nodes added here are canonical already */
    for (wok_node id = 0; id < count && g->status == WOK_OK; id++) {
        if (g->nodes[id].dead) continue;
        if (g->nodes[id].op == WOK_OP_Constant && !g->nodes[id].domain[0]) {
            wok_status status = constant(ctx, id);
            if (status != WOK_OK) return status;
            continue;
        }
        bool lowered = false;
        wok_status status = modernize(ctx, id);
        if (status == WOK_OK) status = wok_lower_contrib(ctx, id, &lowered);
        if (status == WOK_OK && !lowered) status = wok_lower_qoperator(ctx, id, &lowered);
        if (status != WOK_OK) return status;
        if (!lowered && !g->nodes[id].dead) wok_pass_infer(ctx, id);
    }
    return g->status;
}

/* layout.c - two-dimensional convolutions and pooling run in NHWC, where channels are contiguous and a convolution is a
 * matrix product without im2col. One walk in topological order: a convolution takes its input through a Transpose to NHWC
 * and gives its output through one back; an operator that does not care about the order of dimensions takes the source of
 * its input's Transpose and moves the Transpose behind itself. A Transpose to NHWC of a Transpose from NHWC is the source
 * itself, so that in a convolutional network only the ends are ever turned. Exact. */
#include "pass.h"

#include <string.h>

static const int64_t to_nhwc[4] = {0, 2, 3, 1}, to_nchw[4] = {0, 3, 1, 2};

/* QuantizeLinear or DequantizeLinear with one scale. */
static bool is_requantise(wok_pass_ctx *ctx, const wok_ir_node *node) {
    if (!node || (node->op != WOK_OP_QuantizeLinear && node->op != WOK_OP_DequantizeLinear)) return false;
    const wok_type *scale = wok_pass_type(ctx, wok_pass_in(node, 1));
    return scale->rank >= 0 && wok_count(scale->dims, scale->rank) == 1;
}

static wok_value turned(wok_pass_ctx *ctx, const char *name, wok_value x, const int64_t *perm) {
    wok_graph *g = ctx->graph;
    const wok_ir_node *from = wok_pass_producer(ctx, x);
    if (is_requantise(ctx, from) && from->op == WOK_OP_DequantizeLinear) { /* bytes are turned, not floats */
        wok_value in[3] = {WOK_ABSENT, from->in[1], wok_pass_in(from, 2)};
        in[0] = turned(ctx, name, from->in[0], perm);
        return in[0] < 0 ? WOK_ABSENT : wok_pass_emit(ctx, WOK_OP_DequantizeLinear, name, in, 3);
    }
    wok_value y = wok_pass_op(ctx, WOK_OP_Transpose, name, &x, 1, NULL);
    if (y < 0) return WOK_ABSENT;
    wok_ir_set_ints(g, g->values[y].producer, "perm", perm, 4);
    wok_pass_infer(ctx, g->values[y].producer);
    return y;
}

/* The NHWC source of a value that a Transpose turned to NCHW, or WOK_ABSENT. */
static wok_value source(wok_pass_ctx *ctx, wok_value v) {
    const wok_ir_node *t = wok_pass_is(ctx, v, WOK_OP_Transpose);
    return t && wok_pass_perm_is(t, 4, to_nchw) ? t->in[0] : WOK_ABSENT;
}

wok_value wok_pass_to_nhwc(wok_pass_ctx *ctx, const char *name, wok_value v) {
    wok_value x = source(ctx, v);
    return x >= 0 ? x : turned(ctx, name, v, to_nhwc);
}

void wok_pass_to_nchw(wok_pass_ctx *ctx, wok_node id) {
    wok_graph *g = ctx->graph;
    wok_value old = g->nodes[id].out[0];
    const char *name = g->nodes[id].name;
    wok_value fresh = wok_ir_value_new(g, name);
    if (fresh < 0) return;
    g->nodes[id].out[0] = fresh;
    g->values[fresh].producer = id;
    wok_pass_infer(ctx, id);
    wok_node back = wok_pass_add(ctx, WOK_OP_Transpose, name, &fresh, 1, &old, 1);
    wok_ir_set_ints(g, back, "perm", to_nchw, 4);
    wok_pass_infer(ctx, back);
}

static void to_internal(wok_pass_ctx *ctx, wok_node id, wok_op op, const char *label) {
    wok_graph *g = ctx->graph;
    const char *name = g->nodes[id].name;
    wok_value x = wok_pass_to_nhwc(ctx, name, g->nodes[id].in[0]);
    if (x < 0) return;
    wok_ir_node *node = &g->nodes[id];
    node->op = op;
    node->label = label;
    node->domain = "wok";
    wok_pass_set_input(ctx, node, 0, x);
    wok_pass_to_nchw(ctx, id);
}

static bool is_f32_picture(wok_pass_ctx *ctx, wok_value v) {
    const wok_type *t = wok_pass_type(ctx, v);
    return t->rank == 4 && t->dtype == WOK_F32;
}

static void convolution(wok_pass_ctx *ctx, wok_node id) {
    const wok_ir_node *node = &ctx->graph->nodes[id];
    if (!is_f32_picture(ctx, node->in[0])) return;
    if (!wok_pass_constant(ctx, node->in[1]) || wok_pass_type(ctx, node->in[1])->dtype != WOK_F32) {
        wok_pass_near_miss(ctx, node, "the weights are not constant");
        return;
    }
    to_internal(ctx, id, WOK_OP_wok_Conv, "Conv");
}

static void pooling(wok_pass_ctx *ctx, wok_node id, wok_op op, const char *label) {
    const wok_ir_node *node = &ctx->graph->nodes[id];
    const wok_type *x = wok_pass_type(ctx, node->in[0]);
    bool bytes = op == WOK_OP_wok_MaxPool && x->rank == 4 && x->dtype == WOK_I8;
    if ((!bytes && !is_f32_picture(ctx, node->in[0])) || (node->out_count > 1 && node->out[1] >= 0)) return;
    to_internal(ctx, id, op, label);
}

/* ReduceMean over height and width is a global average, with the two dimensions squeezed unless keepdims. */
static void reduce_mean(wok_pass_ctx *ctx, wok_node id) {
    wok_graph *g = ctx->graph;
    const wok_ir_node *node = &g->nodes[id];
    int64_t axes[2];
    if (!is_f32_picture(ctx, node->in[0]) || wok_pass_constant_ints(ctx, wok_pass_in(node, 1), axes, 2) != 2) return;
    for (int i = 0; i < 2; i++)
        if (axes[i] < 0) axes[i] += 4;
    if (axes[0] + axes[1] != 5 || axes[0] * axes[1] != 6 || source(ctx, node->in[0]) < 0) return;
    wok_value out = node->out[0];
    const char *name = node->name;
    if (!wok_ir_int(node, "keepdims", 1)) {
        wok_value pooled = wok_ir_value_new(g, name), squeeze = wok_pass_i64(ctx, "axes", 1, (int64_t[]){2, 3}, 2);
        if (pooled < 0) return;
        g->nodes[id].out[0] = pooled;
        g->values[pooled].producer = id;
        wok_pass_add(ctx, WOK_OP_Squeeze, name, (wok_value[]){pooled, squeeze}, 2, &out, 1);
    }
    wok_pass_set_input(ctx, &g->nodes[id], 1, WOK_ABSENT);
    g->nodes[id].in_count = 1;
    to_internal(ctx, id, WOK_OP_wok_GlobalAveragePool, "ReduceMean");
}

/* ---- operators that do not care ---------------------------------------------------------------------------------------- */

static bool is_unary(wok_op op) {
    switch (op) {
    case WOK_OP_Relu:
    case WOK_OP_Clip:
    case WOK_OP_Sigmoid:
    case WOK_OP_Tanh:
    case WOK_OP_HardSwish:
    case WOK_OP_HardSigmoid:
    case WOK_OP_LeakyRelu:
    case WOK_OP_Elu:
    case WOK_OP_Gelu:
    case WOK_OP_Erf:
    case WOK_OP_Exp:
    case WOK_OP_Sqrt:
    case WOK_OP_Neg:
    case WOK_OP_Abs:
    case WOK_OP_Swish:
    case WOK_OP_Cast:
    case WOK_OP_wok_QSignFlip:
        return true;
    default:
        return false;
    }
}

static bool is_binary(wok_op op) {
    return op == WOK_OP_Add || op == WOK_OP_Sub || op == WOK_OP_Mul || op == WOK_OP_Div;
}

static void unary(wok_pass_ctx *ctx, wok_node id) {
    wok_graph *g = ctx->graph;
    wok_value x = source(ctx, g->nodes[id].in[0]);
    if (x < 0) return;
    wok_pass_set_input(ctx, &g->nodes[id], 0, x);
    wok_pass_to_nchw(ctx, id);
}

/* A constant that broadcasts over NCHW with at most one dimension that is not 1, for NHWC; WOK_ABSENT if it is another. */
static wok_value constant_for_nhwc(wok_pass_ctx *ctx, wok_value v) {
    wok_graph *g = ctx->graph;
    const wok_type *t = wok_pass_type(ctx, v);
    if (!wok_pass_constant(ctx, v) || t->rank > 4) return WOK_ABSENT;
    int64_t nchw[4] = {1, 1, 1, 1}, nhwc[4];
    int wide = 0, first = 4;
    for (int i = 0; i < t->rank; i++) nchw[4 - t->rank + i] = t->dims[i];
    for (int i = 0; i < 4; i++) {
        nhwc[i] = nchw[to_nhwc[i]];
        wide += nhwc[i] != 1;
        if (nhwc[i] != 1 && first == 4) first = i;
    }
    if (wide > 1) return WOK_ABSENT;
    wok_value fresh = wok_ir_value_new(g, g->values[v].name);
    if (fresh < 0) return WOK_ABSENT;
    wok_type type = *wok_pass_type(ctx, v);
    type.rank = 4 - first;
    type.ints = NULL;
    memcpy(type.dims, nhwc + first, (size_t)type.rank * sizeof *nhwc);
    g->values[fresh].type = type;
    return fresh;
}

/* The other operand of an operator with one operand in NHWC: small constants as they are, pictures turned. */
static wok_value operand_for_nhwc(wok_pass_ctx *ctx, wok_node id, wok_value v) {
    wok_value c = constant_for_nhwc(ctx, v);
    if (c >= 0 || wok_pass_type(ctx, v)->rank != 4) return c;
    return turned(ctx, ctx->graph->nodes[id].name, v, to_nhwc);
}

static void binary(wok_pass_ctx *ctx, wok_node id) {
    wok_graph *g = ctx->graph;
    wok_value a = source(ctx, g->nodes[id].in[0]), b = source(ctx, g->nodes[id].in[1]);
    if (a < 0 && b < 0) return;
    if (a < 0) a = operand_for_nhwc(ctx, id, g->nodes[id].in[0]);
    if (b < 0) b = operand_for_nhwc(ctx, id, g->nodes[id].in[1]);
    if (a < 0 || b < 0) return;
    wok_pass_set_input(ctx, &g->nodes[id], 0, a);
    wok_pass_set_input(ctx, &g->nodes[id], 1, b);
    wok_pass_to_nchw(ctx, id);
}

static void concat(wok_pass_ctx *ctx, wok_node id) {
    wok_graph *g = ctx->graph;
    int64_t axis = wok_ir_int(&g->nodes[id], "axis", 1);
    if (axis < 0) axis += 4;
    if (axis < 0 || axis > 3) return;
    for (int i = 0; i < g->nodes[id].in_count; i++)
        if (source(ctx, g->nodes[id].in[i]) < 0) return;
    for (int i = 0; i < g->nodes[id].in_count; i++)
        wok_pass_set_input(ctx, &g->nodes[id], i, source(ctx, g->nodes[id].in[i]));
    wok_ir_set_int(g, id, "axis", to_nchw[axis]);
    wok_pass_to_nchw(ctx, id);
}

wok_status wok_pass_layout(wok_pass_ctx *ctx) {
    wok_graph *g = ctx->graph;
    int count = g->node_count;
    for (wok_node id = 0; id < count && g->status == WOK_OK; id++) {
        if (g->nodes[id].dead) continue;
        wok_op op = g->nodes[id].op;
        if (op == WOK_OP_Conv)
            convolution(ctx, id);
        else if (op == WOK_OP_MaxPool)
            pooling(ctx, id, WOK_OP_wok_MaxPool, "MaxPool");
        else if (op == WOK_OP_AveragePool)
            pooling(ctx, id, WOK_OP_wok_AveragePool, "AveragePool");
        else if (op == WOK_OP_GlobalAveragePool)
            pooling(ctx, id, WOK_OP_wok_GlobalAveragePool, "GlobalAveragePool");
        else if (op == WOK_OP_ReduceMean)
            reduce_mean(ctx, id);
        else if (op == WOK_OP_Concat)
            concat(ctx, id);
        else if (is_unary(op) || is_requantise(ctx, &g->nodes[id]))
            unary(ctx, id);
        else if (is_binary(op))
            binary(ctx, id);
    }
    return g->status;
}

/* fold_constants.c - nodes whose result is known when the program is built become constants: all inputs constant, or a
 * small integer tensor whose every element inference knows (Shape of fixed dimensions and what follows from it). Results
 * are computed by the operators' own implementations. A result much larger than what it is made from is left to the run,
 * and so is the Transpose of a weight matrix, which packing does for nothing. */
#include "../program.h"

#include <string.h>

enum { LARGE = 1 << 16 }; /* bytes */

static void to_tensor(const wok_type *type, wok_tensor *tensor) {
    memset(tensor, 0, sizeof *tensor);
    tensor->size = sizeof *tensor;
    tensor->dtype = type->dtype;
    tensor->rank = type->rank;
    memcpy(tensor->dims, type->dims, sizeof tensor->dims);
    tensor->data = (void *)(uintptr_t)type->data;
    tensor->bytes = type->bytes;
}

static void make_constant(wok_graph *g, wok_value v, const wok_tensor *t) {
    wok_type *type = &g->values[v].type;
    type->dtype = t->dtype;
    type->rank = t->rank;
    memcpy(type->dims, t->dims, sizeof type->dims);
    type->data = t->data;
    type->bytes = t->bytes;
    type->ints = NULL;
    g->values[v].producer = WOK_ABSENT;
}

/* Outputs of the graph keep a producer: an Identity of the constant. */
static wok_value constant_for(wok_pass_ctx *ctx, wok_value out) {
    wok_graph *g = ctx->graph;
    if (!g->values[out].is_output) return out;
    wok_value fresh = wok_ir_value_new(g, g->values[out].name);
    if (fresh >= 0) wok_pass_add(ctx, WOK_OP_Identity, g->values[out].name, &fresh, 1, &out, 1);
    return fresh;
}

static bool constant_inputs(wok_pass_ctx *ctx, const wok_ir_node *node, size_t *bytes) {
    *bytes = 0;
    for (int i = 0; i < node->in_count; i++) {
        if (node->in[i] < 0) continue;
        if (!wok_pass_constant(ctx, node->in[i])) return false;
        *bytes += wok_pass_type(ctx, node->in[i])->bytes;
    }
    return true;
}

/* Would the result be much larger than what it is made from? Unknown sizes are taken as small: they are checked after. */
static bool too_large(wok_pass_ctx *ctx, const wok_ir_node *node, size_t bytes_in) {
    size_t total = 0;
    for (int i = 0; i < node->out_count; i++) {
        const wok_type *t = wok_pass_type(ctx, node->out[i]);
        if (node->out[i] < 0 || t->rank < 0) continue;
        size_t bytes = wok_tensor_bytes(t->dtype, t->dims, t->rank);
        if (bytes == SIZE_MAX) return true;
        total += bytes;
    }
    return total > LARGE && total > 2 * bytes_in;
}

static bool weight_transpose(const wok_ir_node *node, size_t bytes_in) {
    return node->op == WOK_OP_Transpose && bytes_in > LARGE && wok_pass_perm_is(node, 2, (int64_t[]){1, 0});
}

/* Weights that lower_quantized is still to see as they are. */
static bool quantised_weights(wok_pass_ctx *ctx, const wok_ir_node *node) {
    if (ctx->lowered || (node->op != WOK_OP_DequantizeLinear && node->op != WOK_OP_ms_DequantizeLinear)) return false;
    const wok_type *codes = wok_pass_type(ctx, node->in[0]);
    return codes->rank >= 2 && (codes->dtype == WOK_I8 || codes->dtype == WOK_U8);
}

/* Constants on their way to be the weights of a product are better made once, however large, than at every run:
 * dequantised, cast and scaled, transposed. */
static bool feeds_product(wok_pass_ctx *ctx, wok_value v, int depth) {
    const wok_graph *g = ctx->graph;
    for (int i = 0; i < g->node_count && depth < 4; i++) {
        const wok_ir_node *n = &g->nodes[i];
        if (n->dead || n->in_count < 1 || (n->in[0] != v && (n->in_count < 2 || n->in[1] != v))) continue;
        if (n->op == WOK_OP_MatMul || n->op == WOK_OP_Gemm || n->op == WOK_OP_Conv) return n->in[1] == v;
        if ((n->op == WOK_OP_Mul || n->op == WOK_OP_Sub || n->op == WOK_OP_Transpose || n->op == WOK_OP_Cast) &&
            feeds_product(ctx, n->out[0], depth + 1))
            return true;
    }
    return false;
}

static bool widens(wok_op op) {
    return op == WOK_OP_DequantizeLinear || op == WOK_OP_ms_DequantizeLinear || op == WOK_OP_Cast;
}

static void evaluate(wok_pass_ctx *ctx, wok_node id) {
    wok_graph *g = ctx->graph;
    wok_tensor in[WOK_MAX_IN], out[WOK_MAX_OUT];
    const wok_tensor *in_ptr[WOK_MAX_IN];
    wok_ir_node *node = &g->nodes[id];
    if (node->in_count > WOK_MAX_IN || node->out_count > WOK_MAX_OUT) return;
    for (int i = 0; i < node->in_count; i++) {
        in_ptr[i] = node->in[i] < 0 ? NULL : &in[i];
        if (node->in[i] >= 0) to_tensor(wok_pass_type(ctx, node->in[i]), &in[i]);
    }
    memset(out, 0, sizeof out);
    /* one that cannot be computed now fails when it runs, with the same sentence */
    if (wok_eval_node(g, node, in_ptr, out, g->arena) != WOK_OK) return;
    int outputs = g->nodes[id].out_count;
    wok_value values[WOK_MAX_OUT];
    memcpy(values, g->nodes[id].out, (size_t)outputs * sizeof *values);
    wok_pass_kill(ctx, &g->nodes[id]);
    for (int i = 0; i < outputs && g->status == WOK_OK; i++) {
        wok_value v = values[i] < 0 ? WOK_ABSENT : constant_for(ctx, values[i]);
        if (v >= 0) make_constant(g, v, &out[i]);
    }
}

/* The elements of a small integer output that are all numbers. */
static bool known_ints(wok_pass_ctx *ctx, wok_value v, int64_t *values, int64_t *count) {
    const wok_type *t = wok_pass_type(ctx, v);
    if (!t->ints || t->rank < 0 || (t->dtype != WOK_I64 && t->dtype != WOK_I32)) return false;
    *count = wok_count(t->dims, t->rank);
    if (*count < 0 || *count > WOK_MAX_INTS) return false;
    for (int64_t i = 0; i < *count; i++)
        if (!wok_dim_is_number(t->ints[i], &values[i])) return false;
    return true;
}

static void from_inference(wok_pass_ctx *ctx, wok_node id) {
    wok_graph *g = ctx->graph;
    int64_t values[WOK_MAX_INTS], count;
    wok_value out = g->nodes[id].out_count == 1 ? g->nodes[id].out[0] : WOK_ABSENT;
    if (out < 0 || !known_ints(ctx, out, values, &count)) return;
    wok_type type = g->values[out].type;
    size_t size = wok_dtype_size(type.dtype);
    char *data = wok_arena_small(g->arena, (size_t)count * size);
    if (!data) {
        g->status = WOK_ERR_MEMORY;
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        int32_t narrow = (int32_t)values[i];
        memcpy(data + (size_t)i * size, size == 8 ? (const void *)&values[i] : (const void *)&narrow, size);
    }
    wok_tensor t;
    to_tensor(&type, &t);
    t.data = data;
    t.bytes = (size_t)count * size;
    wok_pass_kill(ctx, &g->nodes[id]);
    wok_value v = constant_for(ctx, out);
    if (v >= 0) make_constant(g, v, &t);
}

wok_status wok_pass_fold_constants(wok_pass_ctx *ctx) {
    wok_graph *g = ctx->graph;
    int count = g->node_count;
    for (wok_node id = 0; id < count && g->status == WOK_OK; id++) {
        const wok_ir_node *node = &g->nodes[id];
        size_t bytes;
        if (node->dead) continue;
        if (node->op == WOK_OP_Identity && g->values[node->out[0]].is_output) continue;
        if (!constant_inputs(ctx, node, &bytes))
            from_inference(ctx, id);
        else if (quantised_weights(ctx, node))
            continue;
        else if ((!too_large(ctx, node, bytes) || (widens(node->op) && feeds_product(ctx, node->out[0], 0))) &&
                 !weight_transpose(node, bytes))
            evaluate(ctx, id);
    }
    return g->status;
}

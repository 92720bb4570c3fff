/* fuse_epilogue.c - what follows a packed GEMM or convolution and touches each element once moves into its epilogue:
 *
 *   y = act(acc + bias + residual)      acc of a convolution with per-channel scale folded into its weights
 *
 * Mul by a constant vector (convolutions and integer products, which have scales anyway), Add of a constant vector, Add of another tensor of the same shape, then an
 * activation, each only if nothing else reads what is between. Tolerance: a bias and a scale are combined in double. */
#include "pass.h"

#include <string.h>

enum { BIAS = 2, RESIDUAL = 3, SCALE = 4 };

static bool has_epilogue(wok_op op) {
    return op == WOK_OP_wok_Gemm || op == WOK_OP_wok_Conv || op == WOK_OP_wok_QGemm || op == WOK_OP_wok_QConv;
}

/* The GEMM or convolution that makes v for one reader only and has no activation yet. */
static wok_node target(wok_pass_ctx *ctx, wok_value v) {
    const wok_ir_node *node = wok_pass_producer(ctx, v);
    if (!node || !has_epilogue(node->op)) return WOK_ABSENT;
    if (strcmp(wok_ir_string(node, "act", "none"), "none") != 0 || !wok_pass_single_use(ctx, v)) return WOK_ABSENT;
    return wok_pass_id(ctx, node);
}

static int64_t columns(wok_pass_ctx *ctx, wok_node id) {
    const wok_type *t = wok_pass_type(ctx, ctx->graph->nodes[id].out[0]);
    return t->rank > 0 ? t->dims[t->rank - 1] : -1;
}

/* A constant that is one number a column, or one for all. */
static bool column_constant(wok_pass_ctx *ctx, wok_value v, int64_t n, int rank) {
    const wok_type *t = wok_pass_type(ctx, v);
    if (!wok_pass_constant(ctx, v) || t->dtype != WOK_F32 || t->rank > rank || n < 1) return false;
    int64_t count = wok_count(t->dims, t->rank);
    return count == 1 || (count == n && t->dims[t->rank - 1] == n);
}

static double element(wok_pass_ctx *ctx, wok_value v, int64_t i, double fallback) {
    if (v < 0) return fallback;
    const wok_type *t = wok_pass_type(ctx, v);
    return wok_pass_element(t, wok_count(t->dims, t->rank) == 1 ? 0 : i);
}

/* A constant vector of a[i] * b[i] + c[i]. */
static wok_value combine(wok_pass_ctx *ctx, const char *hint, wok_value a, wok_value b, wok_value c, int64_t n) {
    float *out = wok_arena_alloc(ctx->graph->arena, (size_t)n * sizeof *out);
    if (!out) {
        ctx->graph->status = WOK_ERR_MEMORY;
        return WOK_ABSENT;
    }
    for (int64_t i = 0; i < n; i++)
        out[i] = (float)(element(ctx, a, i, 1) * element(ctx, b, i, 1) + element(ctx, c, i, 0));
    return wok_pass_f32(ctx, hint, 1, &n, out);
}

/* The fused node takes over the output of `node`, which goes. */
static void take(wok_pass_ctx *ctx, wok_node fused, wok_node id) {
    wok_graph *g = ctx->graph;
    wok_value out = g->nodes[id].out[0];
    if (g->nodes[fused].from_count == 0) wok_pass_origin(ctx, fused, &fused, 1);
    wok_pass_origin(ctx, fused, &id, 1);
    wok_pass_kill(ctx, &g->nodes[id]);
    g->nodes[fused].out[0] = out;
    g->values[out].producer = fused;
}

static bool scale(wok_pass_ctx *ctx, wok_node id, int side) {
    wok_graph *g = ctx->graph;
    wok_node f = target(ctx, g->nodes[id].in[side]);
    wok_value c = g->nodes[id].in[1 - side];
    if (f < 0 || g->nodes[f].op == WOK_OP_wok_Gemm || wok_pass_in(&g->nodes[f], RESIDUAL) >= 0) return false;
    int64_t n = columns(ctx, f);
    wok_value bias = wok_pass_in(&g->nodes[f], BIAS), before = wok_pass_in(&g->nodes[f], SCALE);
    if (!column_constant(ctx, c, n, 4) || (bias >= 0 && !wok_pass_constant(ctx, bias))) return false;
    if (bias >= 0) wok_pass_append(ctx, f, BIAS, combine(ctx, "bias", bias, c, WOK_ABSENT, n));
    wok_pass_append(ctx, f, SCALE, combine(ctx, "scale", before, c, WOK_ABSENT, n));
    take(ctx, f, id);
    return true;
}

static bool bias(wok_pass_ctx *ctx, wok_node id, int side) {
    wok_graph *g = ctx->graph;
    wok_node f = target(ctx, g->nodes[id].in[side]);
    wok_value c = g->nodes[id].in[1 - side];
    if (f < 0 || wok_pass_in(&g->nodes[f], RESIDUAL) >= 0) return false;
    int64_t n = columns(ctx, f);
    wok_value before = wok_pass_in(&g->nodes[f], BIAS);
    if (!column_constant(ctx, c, n, wok_pass_type(ctx, g->nodes[f].out[0])->rank)) return false;
    if (before >= 0 && !wok_pass_constant(ctx, before)) return false;
    bool as_it_is = before < 0 && wok_pass_type(ctx, c)->rank == 1 && wok_pass_type(ctx, c)->dims[0] == n;
    wok_value sum = as_it_is     ? c
                    : before < 0 ? combine(ctx, "bias", c, WOK_ABSENT, WOK_ABSENT, n)
                                 : combine(ctx, "bias", before, WOK_ABSENT, c, n);
    wok_pass_append(ctx, f, BIAS, sum);
    take(ctx, f, id);
    return true;
}

static bool residual(wok_pass_ctx *ctx, wok_node id, int side) {
    wok_graph *g = ctx->graph;
    wok_node f = target(ctx, g->nodes[id].in[side]);
    wok_value other = g->nodes[id].in[1 - side];
    if (f < 0 || wok_pass_in(&g->nodes[f], RESIDUAL) >= 0) return false;
    const wok_type *y = wok_pass_type(ctx, g->nodes[id].in[side]), *r = wok_pass_type(ctx, other);
    if (r->dtype != WOK_F32 || !wok_pass_same_shape(y, r)) {
        wok_pass_near_miss(ctx, &g->nodes[id], "the two operands are not known to have the same shape");
        return false;
    }
    wok_pass_append(ctx, f, RESIDUAL, other);
    take(ctx, f, id);
    return true;
}

static void activation(wok_pass_ctx *ctx, wok_node id) {
    wok_graph *g = ctx->graph;
    wok_pass_act act;
    if (!wok_pass_activation(ctx, &g->nodes[id], &act)) return;
    wok_node f = target(ctx, g->nodes[id].in[0]);
    if (f < 0) {
        const wok_ir_node *p = wok_pass_producer(ctx, g->nodes[id].in[0]);
        if (p && has_epilogue(p->op))
            wok_pass_near_miss(ctx, &g->nodes[id], "the value before the activation is read elsewhere too");
        return;
    }
    wok_pass_set_act(ctx, f, &act);
    take(ctx, f, id);
}

wok_status wok_pass_fuse_epilogue(wok_pass_ctx *ctx) {
    wok_graph *g = ctx->graph;
    int count = g->node_count;
    for (wok_node id = 0; id < count && g->status == WOK_OK; id++) {
        if (g->nodes[id].dead) continue;
        wok_op op = g->nodes[id].op;
        if (op == WOK_OP_Mul)
            (void)(scale(ctx, id, 0) || scale(ctx, id, 1));
        else if (op == WOK_OP_Add)
            (void)(bias(ctx, id, 0) || bias(ctx, id, 1) || residual(ctx, id, 0) || residual(ctx, id, 1));
        else
            activation(ctx, id);
    }
    return g->status;
}

/* fuse_attention.c - scaled-dot-product attention as exporters write it, to one node that never stores the scores:
 *
 *   Reshape(Transpose(MatMul(Softmax(scale * Q K^T + mask), V)))
 *
 * Q, K, V are heads split off a [batch, rows, heads * width] tensor by Reshape and Transpose. The scale may stand on Q, on
 * K, on the scores, or be shared out; the mask may be added, or filled in by Where (then it becomes a bias of 0 or the
 * filled value, which gives the same weights: score + value rounds to value for -inf and for the lowest float). SDPA's
 * guard Where(IsNaN(p), 0, p) goes with it: the fused kernel gives 0 for a row that is masked whole. */
#include "pass.h"

#include <math.h>

enum { MAX_NODES = 24 };

typedef struct attention {
    wok_node root;
    wok_value q, k, v, bias; /* q, k, v: the values of rank 4 before the heads move, or of rank 3 with one head */
    wok_value where_mask;    /* condition of a Where that fills scores in; the bias is made from it */
    double fill;
    bool fill_if_true;
    double scale;
    int64_t heads, width, value_width;
    wok_node nodes[MAX_NODES];
    int node_count;
    const char *reason; /* of a near miss */
} attention;

static void note(wok_pass_ctx *ctx, attention *a, const wok_ir_node *node) {
    if (a->node_count < MAX_NODES) a->nodes[a->node_count++] = wok_pass_id(ctx, node);
}

static bool miss(attention *a, const char *reason) {
    a->reason = reason;
    return false;
}

/* Strips Mul and Div by numbers. */
static wok_value unscaled(wok_pass_ctx *ctx, wok_value v, attention *a) {
    double c;
    wok_value other;
    for (;;) {
        const wok_ir_node *node = wok_pass_producer(ctx, v);
        if (!node) return v;
        if (node->op == WOK_OP_Mul && wok_pass_scalar_operand(ctx, node, &c, &other)) {
            a->scale *= c;
            v = other;
        } else if (node->op == WOK_OP_Div && wok_pass_scalar(ctx, node->in[1], &c) && c != 0) {
            a->scale /= c;
            v = node->in[0];
        } else {
            return v;
        }
        note(ctx, a, node);
    }
}

/* v is [batch, heads, rows, width] (or [..., width, rows] if turned). Gives the value in rows-first order:
 * [batch, rows, heads, width], or [batch, rows, width] where there is one head. */
static bool rows_first(wok_pass_ctx *ctx, wok_value v, bool turned, attention *a, wok_value *rows) {
    static const int64_t move[4] = {0, 2, 1, 3}, move_turn[4] = {0, 2, 3, 1}, turn[4] = {0, 1, 3, 2};
    const wok_ir_node *node = wok_pass_producer(ctx, v);
    if (!node || wok_pass_type(ctx, v)->rank != 4) return miss(a, "an operand of the scores is not split into heads");
    if (node->op == WOK_OP_Transpose) {
        note(ctx, a, node);
        if (wok_pass_perm_is(node, 4, turned ? move_turn : move)) {
            *rows = node->in[0];
            return true;
        }
        if (!turned || !wok_pass_perm_is(node, 4, turn)) return miss(a, "heads are split in an unknown order");
        node = wok_pass_producer(ctx, node->in[0]);
        turned = false;
    }
    /* one head: moving it is only a Reshape */
    if (!node || turned || (node->op != WOK_OP_Reshape && node->op != WOK_OP_Unsqueeze))
        return miss(a, "heads are split in an unknown way");
    const wok_type *t = wok_pass_type(ctx, node->out[0]), *x = wok_pass_type(ctx, node->in[0]);
    if (t->dims[1] != 1 || x->rank != 3 || x->dims[0] != t->dims[0] || x->dims[1] != t->dims[2])
        return miss(a, "heads are split in an unknown way");
    note(ctx, a, node);
    *rows = node->in[0];
    return true;
}

static bool is_product(const wok_ir_node *node) {
    return node && (node->op == WOK_OP_MatMul || node->op == WOK_OP_ms_FusedMatMul);
}

/* Does this side of an Add lead to the product of Q and K, rather than to the mask? */
static bool leads_to_product(wok_pass_ctx *ctx, wok_value v, int depth) {
    const wok_ir_node *node = wok_pass_producer(ctx, v);
    double c;
    wok_value other;
    if (!node || depth > 6) return false;
    if (is_product(node)) return true;
    if (node->op == WOK_OP_Mul && wok_pass_scalar_operand(ctx, node, &c, &other))
        return leads_to_product(ctx, other, depth + 1);
    if (node->op == WOK_OP_Div) return leads_to_product(ctx, node->in[0], depth + 1);
    if (node->op == WOK_OP_Add)
        return leads_to_product(ctx, node->in[0], depth + 1) || leads_to_product(ctx, node->in[1], depth + 1);
    return false;
}

static bool scores(wok_pass_ctx *ctx, wok_value v, attention *a) {
    const wok_ir_node *node = wok_pass_producer(ctx, v);
    if (!node || !wok_pass_single_use(ctx, v)) return miss(a, "the scores are read elsewhere too");
    if (node->op == WOK_OP_Add) {
        int side = leads_to_product(ctx, node->in[0], 0) ? 0 : leads_to_product(ctx, node->in[1], 0) ? 1 : -1;
        if (side < 0) return miss(a, "the scores are no product of two matrices");
        if (a->bias >= 0 || a->where_mask >= 0) return miss(a, "the scores have more than one mask");
        if (a->scale != 1) return miss(a, "the mask is scaled together with the scores");
        note(ctx, a, node);
        a->bias = node->in[1 - side];
        return scores(ctx, node->in[side], a);
    }
    if (node->op == WOK_OP_Where) {
        bool fill_if_true = wok_pass_scalar(ctx, node->in[1], &a->fill);
        if (!fill_if_true && !wok_pass_scalar(ctx, node->in[2], &a->fill)) return miss(a, "Where fills in no number");
        if (a->bias >= 0 || a->where_mask >= 0) return miss(a, "the scores have more than one mask");
        if (a->scale != 1 || a->fill > -1e4) return miss(a, "the filled value would not hide a key");
        note(ctx, a, node);
        a->where_mask = node->in[0];
        a->fill_if_true = fill_if_true;
        return scores(ctx, node->in[fill_if_true ? 2 : 1], a);
    }
    wok_value product = unscaled(ctx, v, a);
    node = wok_pass_producer(ctx, product);
    if (!is_product(node) || !wok_pass_single_use(ctx, product))
        return miss(a, "the scores are no product of two matrices");
    note(ctx, a, node);
    bool turned = true; /* K comes as K^T */
    if (node->op == WOK_OP_ms_FusedMatMul) {
        if (wok_ir_int(node, "transA", 0) || wok_ir_int(node, "transBatchA", 0) || wok_ir_int(node, "transBatchB", 0))
            return miss(a, "FusedMatMul transposes what attention does not");
        turned = !wok_ir_int(node, "transB", 0);
        a->scale *= (double)wok_ir_float(node, "alpha", 1);
    }
    wok_value q = unscaled(ctx, node->in[0], a), k = unscaled(ctx, node->in[1], a);
    return rows_first(ctx, q, false, a, &a->q) && rows_first(ctx, k, turned, a, &a->k);
}

/* Softmax over the last axis, perhaps behind SDPA's guard. */
static bool weights(wok_pass_ctx *ctx, wok_value v, attention *a) {
    const wok_ir_node *node = wok_pass_producer(ctx, v);
    double zero;
    if (node && node->op == WOK_OP_Where) {
        const wok_ir_node *test = wok_pass_is(ctx, node->in[0], WOK_OP_IsNaN);
        if (!test || test->in[0] != node->in[2] || !wok_pass_scalar(ctx, node->in[1], &zero) || zero != 0) return false;
        note(ctx, a, node);
        note(ctx, a, test);
        node = wok_pass_producer(ctx, node->in[2]);
    } else if (!wok_pass_single_use(ctx, v)) {
        return node && node->op == WOK_OP_Softmax ? miss(a, "the attention weights are read elsewhere too") : false;
    }
    if (!node || node->op != WOK_OP_Softmax) return false;
    int64_t axis = wok_ir_int(node, "axis", -1);
    if (wok_pass_type(ctx, node->in[0])->rank != 4) return false;
    if (axis != -1 && axis != 3) return miss(a, "the softmax is not over the keys");
    note(ctx, a, node);
    wok_value z = node->in[0];
    return scores(ctx, z, a);
}

/* The shapes prove what the pattern suggests. */
static bool shapes_fit(wok_pass_ctx *ctx, attention *a) {
    const wok_type *q = wok_pass_type(ctx, a->q), *k = wok_pass_type(ctx, a->k), *v = wok_pass_type(ctx, a->v),
                   *y = wok_pass_type(ctx, ctx->graph->nodes[a->root].out[0]);
    if (q->dtype != WOK_F32 || y->rank != 3) return miss(a, "the result is not [batch, rows, features] in f32");
    a->heads = q->rank == 4 ? q->dims[2] : 1;
    a->width = q->dims[q->rank - 1];
    a->value_width = v->dims[v->rank - 1];
    int64_t k_heads = k->rank == 4 ? k->dims[2] : 1, v_heads = v->rank == 4 ? v->dims[2] : 1;
    if (!wok_dim_known(a->heads) || !wok_dim_known(a->width) || !wok_dim_known(a->value_width))
        return miss(a, "the number or the width of heads is not known");
    if (k_heads != a->heads || v_heads != a->heads || k->dims[k->rank - 1] != a->width ||
        y->dims[2] != wok_dim_mul(ctx->graph, a->heads, a->value_width) || y->dims[0] != q->dims[0] ||
        y->dims[1] != q->dims[1])
        return miss(a, "the shapes of query, key, value and result do not go together");
    return true;
}

/* The [batch, rows, heads * width] tensor behind a value of rank 4; a view where the graph has none. */
static wok_value features(wok_pass_ctx *ctx, wok_value v, const char *name) {
    if (wok_pass_type(ctx, v)->rank == 3) return v;
    const wok_ir_node *split = wok_pass_is(ctx, v, WOK_OP_Reshape);
    const wok_type *t = wok_pass_type(ctx, v), *x = split ? wok_pass_type(ctx, split->in[0]) : NULL;
    if (x && x->rank == 3 && x->dims[0] == t->dims[0] && x->dims[1] == t->dims[1]) return split->in[0];
    wok_value in[2] = {v, wok_pass_i64(ctx, "shape", 1, (int64_t[]){0, 0, -1}, 3)};
    return wok_pass_emit(ctx, WOK_OP_Reshape, name, in, 2);
}

static wok_value bias_of(wok_pass_ctx *ctx, attention *a, const char *name) {
    if (a->where_mask < 0) return a->bias;
    float fill = (float)a->fill, zero = 0;
    wok_value filled = wok_pass_f32(ctx, "fill", 0, NULL, &fill), kept = wok_pass_f32(ctx, "zero", 0, NULL, &zero);
    wok_value in[3] = {a->where_mask, a->fill_if_true ? filled : kept, a->fill_if_true ? kept : filled};
    return wok_pass_emit(ctx, WOK_OP_Where, name, in, 3);
}

static void replace(wok_pass_ctx *ctx, attention *a) {
    wok_graph *g = ctx->graph;
    const char *name = g->nodes[a->root].name;
    wok_value out = g->nodes[a->root].out[0];
    wok_value bias = bias_of(ctx, a, name);
    wok_value in[4] = {features(ctx, a->q, name), features(ctx, a->k, name), features(ctx, a->v, name), bias};
    wok_pass_kill(ctx, &g->nodes[a->root]);
    wok_node node = wok_pass_add(ctx, WOK_OP_wok_Attention, name, in, 4, &out, 1);
    wok_ir_set_int(g, node, "heads", a->heads);
    wok_ir_set_float(g, node, "scale", (float)a->scale);
    wok_pass_label(ctx, node, "Attention");
    wok_pass_origin(ctx, node, a->nodes, a->node_count);
}

/* Rooted at the Reshape that joins the heads again. */
static bool match(wok_pass_ctx *ctx, wok_node id, attention *a) {
    *a = (attention){.root = id, .q = -1, .k = -1, .v = -1, .bias = -1, .where_mask = -1, .scale = 1};
    const wok_ir_node *root = &ctx->graph->nodes[id];
    wok_value v = root->in[0];
    const wok_ir_node *node = wok_pass_producer(ctx, v);
    bool shared = false;
    note(ctx, a, root);
    if (node && node->op == WOK_OP_Transpose) {
        if (!wok_pass_perm_is(node, 4, (int64_t[]){0, 2, 1, 3})) return false;
        note(ctx, a, node);
        shared |= !wok_pass_single_use(ctx, v);
        v = node->in[0];
        node = wok_pass_producer(ctx, v);
    }
    if (!node || node->op != WOK_OP_MatMul || wok_pass_type(ctx, v)->rank != 4) return false;
    note(ctx, a, node);
    wok_value p = node->in[0], values = node->in[1];
    const wok_ir_node *below = wok_pass_producer(ctx, p);
    bool is_attention = below && (below->op == WOK_OP_Softmax || below->op == WOK_OP_Where);
    if (!is_attention) return false;
    if (shared || !wok_pass_single_use(ctx, v)) return miss(a, "the result of attention is read elsewhere too");
    return weights(ctx, p, a) && rows_first(ctx, values, false, a, &a->v) && shapes_fit(ctx, a);
}

wok_status wok_pass_fuse_attention(wok_pass_ctx *ctx) {
    wok_graph *g = ctx->graph;
    int count = g->node_count;
    attention a;
    for (wok_node id = 0; id < count && g->status == WOK_OK; id++) {
        if (g->nodes[id].dead || g->nodes[id].op != WOK_OP_Reshape) continue;
        if (match(ctx, id, &a))
            replace(ctx, &a);
        else if (a.reason)
            wok_pass_near_miss(ctx, &g->nodes[id], "%s", a.reason);
    }
    return g->status;
}

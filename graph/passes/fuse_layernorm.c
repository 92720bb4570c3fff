/* fuse_layernorm.c - mean, variance, scale and shift, in the forms that exporters write, to one LayerNorm.
 *
 *   d = x - ReduceMean(x);  v = ReduceMean(d^2);  y = d / Sqrt(v + eps) [* gamma] [+ beta]
 *
 * with d^2 as Pow(d, 2) or Mul(d, d), the division as Div or as Mul with Reciprocal, d computed once or twice. Also plain
 * LayerNormalization over the last axis. Tolerance: that of LayerNorm itself; both take two passes. */
#include "pass.h"

typedef struct layer_norm {
    wok_value x, gamma, beta;
    double epsilon;
    wok_node nodes[12]; /* what it replaces, last first */
    int node_count;
} layer_norm;

static bool last_axis(wok_pass_ctx *ctx, const wok_ir_node *reduce) {
    int64_t axis;
    int rank = wok_pass_type(ctx, reduce->in[0])->rank;
    if (!wok_ir_int(reduce, "keepdims", 1)) return false;
    if (wok_pass_constant_ints(ctx, wok_pass_in(reduce, 1), &axis, 1) != 1) return false;
    return axis == -1 || (rank > 0 && axis == rank - 1);
}

static void note(wok_pass_ctx *ctx, layer_norm *ln, const wok_ir_node *node) {
    if (ln->node_count < (int)(sizeof ln->nodes / sizeof *ln->nodes))
        ln->nodes[ln->node_count++] = wok_pass_id(ctx, node);
}

/* d = Sub(x, ReduceMean(x)). */
static bool centred(wok_pass_ctx *ctx, wok_value d, layer_norm *ln) {
    const wok_ir_node *sub = wok_pass_is(ctx, d, WOK_OP_Sub);
    const wok_ir_node *mean = sub ? wok_pass_is(ctx, sub->in[1], WOK_OP_ReduceMean) : NULL;
    if (!mean || mean->in[0] != sub->in[0] || !last_axis(ctx, mean)) return false;
    if (ln->x >= 0 && ln->x != sub->in[0]) return false;
    ln->x = sub->in[0];
    note(ctx, ln, sub);
    note(ctx, ln, mean);
    return true;
}

/* v = ReduceMean(d^2) over the last axis. */
static bool variance(wok_pass_ctx *ctx, wok_value v, layer_norm *ln) {
    const wok_ir_node *mean = wok_pass_is(ctx, v, WOK_OP_ReduceMean);
    const wok_ir_node *square = mean && last_axis(ctx, mean) ? wok_pass_producer(ctx, mean->in[0]) : NULL;
    double power;
    if (!square) return false;
    bool squared = (square->op == WOK_OP_Pow && wok_pass_scalar(ctx, square->in[1], &power) && power == 2) ||
                   (square->op == WOK_OP_Mul && square->in[0] == square->in[1]);
    if (!squared) return false;
    note(ctx, ln, mean);
    note(ctx, ln, square);
    return centred(ctx, square->in[0], ln);
}

/* s = Sqrt(v + eps). */
static bool deviation(wok_pass_ctx *ctx, wok_value s, layer_norm *ln) {
    const wok_ir_node *root = wok_pass_is(ctx, s, WOK_OP_Sqrt);
    const wok_ir_node *add = root ? wok_pass_is(ctx, root->in[0], WOK_OP_Add) : NULL;
    wok_value v;
    if (!add || !wok_pass_scalar_operand(ctx, add, &ln->epsilon, &v)) return false;
    note(ctx, ln, root);
    note(ctx, ln, add);
    return variance(ctx, v, ln);
}

/* n = d / s, or d * (1 / s). */
static bool normalized(wok_pass_ctx *ctx, wok_value n, layer_norm *ln) {
    const wok_ir_node *node = wok_pass_producer(ctx, n);
    if (!node || node->in_count != 2) return false;
    note(ctx, ln, node);
    if (node->op == WOK_OP_Div) return deviation(ctx, node->in[1], ln) && centred(ctx, node->in[0], ln);
    if (node->op != WOK_OP_Mul) return false;
    for (int i = 0; i < 2; i++) {
        const wok_ir_node *inverse = wok_pass_producer(ctx, node->in[i]);
        double one;
        if (!inverse) continue;
        wok_value s = WOK_ABSENT;
        if (inverse->op == WOK_OP_Reciprocal) s = inverse->in[0];
        if (inverse->op == WOK_OP_Div && wok_pass_scalar(ctx, inverse->in[0], &one) && one == 1) s = inverse->in[1];
        if (s < 0) continue;
        note(ctx, ln, inverse);
        return deviation(ctx, s, ln) && centred(ctx, node->in[1 - i], ln);
    }
    return false;
}

/* The operand of a two-input node that is a constant vector of `cols`, and the other one. */
static bool vector_operand(wok_pass_ctx *ctx, const wok_ir_node *node, wok_value *vector, wok_value *other) {
    for (int i = 0; node->in_count == 2 && i < 2; i++) {
        const wok_type *t = wok_pass_type(ctx, node->in[i]);
        if (t->rank != 1 || t->dtype != WOK_F32 || !wok_dim_known(t->dims[0])) continue;
        if (!wok_pass_constant(ctx, node->in[i])) continue;
        *vector = node->in[i];
        *other = node->in[1 - i];
        return true;
    }
    return false;
}

static void replace(wok_pass_ctx *ctx, layer_norm *ln, wok_node root) {
    wok_graph *g = ctx->graph;
    wok_value out = g->nodes[root].out[0];
    const char *name = g->nodes[root].name;
    wok_pass_kill(ctx, &g->nodes[root]);
    wok_value in[4] = {ln->x, WOK_ABSENT, ln->gamma, ln->beta};
    wok_node node = wok_pass_add(ctx, WOK_OP_wok_LayerNorm, name, in, 4, &out, 1);
    wok_ir_set_float(g, node, "epsilon", (float)ln->epsilon);
    wok_pass_label(ctx, node, "LayerNormalization");
    wok_pass_origin(ctx, node, ln->nodes, ln->node_count);
}

static bool cols_fit(wok_pass_ctx *ctx, wok_value vector, wok_value x) {
    const wok_type *t = wok_pass_type(ctx, x);
    return t->rank > 0 && wok_pass_type(ctx, vector)->dims[0] == t->dims[t->rank - 1];
}

/* Rooted at the Add of beta, else at the Mul with gamma, else at the division itself. */
static bool match(wok_pass_ctx *ctx, wok_node id, layer_norm *ln) {
    const wok_ir_node *node = &ctx->graph->nodes[id];
    *ln = (layer_norm){.x = WOK_ABSENT, .gamma = WOK_ABSENT, .beta = WOK_ABSENT};
    wok_value n = node->out[0], rest;
    if (node->op == WOK_OP_Add && vector_operand(ctx, node, &ln->beta, &rest)) {
        note(ctx, ln, node);
        const wok_ir_node *mul = wok_pass_is(ctx, rest, WOK_OP_Mul);
        if (!mul || !wok_pass_single_use(ctx, rest) || !vector_operand(ctx, mul, &ln->gamma, &n)) return false;
        note(ctx, ln, mul);
        if (!wok_pass_single_use(ctx, n)) return false;
    } else if (node->op == WOK_OP_Mul && vector_operand(ctx, node, &ln->gamma, &rest)) {
        note(ctx, ln, node);
        n = rest;
        if (!wok_pass_single_use(ctx, n)) return false;
    } else if (node->op != WOK_OP_Div && node->op != WOK_OP_Mul) {
        return false;
    }
    if (!normalized(ctx, n, ln) || wok_pass_type(ctx, ln->x)->dtype != WOK_F32) return false;
    return (ln->gamma < 0 || cols_fit(ctx, ln->gamma, ln->x)) && (ln->beta < 0 || cols_fit(ctx, ln->beta, ln->x));
}

/* The operator of set 17, over the last axis with vectors for scale and shift. */
static void plain(wok_pass_ctx *ctx, wok_node id) {
    wok_graph *g = ctx->graph;
    const wok_ir_node *node = &g->nodes[id];
    const wok_type *x = wok_pass_type(ctx, node->in[0]);
    int64_t axis = wok_ir_int(node, "axis", -1);
    for (int i = 1; i < node->out_count; i++)
        if (node->out[i] >= 0 && ctx->uses[node->out[i]] > 0) return;
    if (x->dtype != WOK_F32 || x->rank < 1 || (axis != -1 && axis != x->rank - 1)) return;
    for (int i = 1; i < node->in_count; i++)
        if (node->in[i] >= 0 &&
            (wok_pass_type(ctx, node->in[i])->rank != 1 || !cols_fit(ctx, node->in[i], node->in[0])))
            return;
    layer_norm ln = {.x = node->in[0],
                     .gamma = wok_pass_in(node, 1),
                     .beta = wok_pass_in(node, 2),
                     .epsilon = wok_ir_float(node, "epsilon", 1e-5f)};
    note(ctx, &ln, node);
    replace(ctx, &ln, id);
}

wok_status wok_pass_fuse_layernorm(wok_pass_ctx *ctx) {
    wok_graph *g = ctx->graph;
    layer_norm ln;
    /* from the end, so that Add is seen before the Mul and Div that it takes in */
    for (wok_node id = g->node_count - 1; id >= 0 && g->status == WOK_OK; id--) {
        if (g->nodes[id].dead) continue;
        wok_op op = g->nodes[id].op;
        if (op == WOK_OP_LayerNormalization || op == WOK_OP_ms_LayerNormalization)
            plain(ctx, id);
        else if ((op == WOK_OP_Add || op == WOK_OP_Mul || op == WOK_OP_Div) && match(ctx, id, &ln))
            replace(ctx, &ln, id);
    }
    return g->status;
}

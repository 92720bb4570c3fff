/* simplify.c - nodes that do nothing, and chains that are one node: Identity, Dropout in inference, Cast to the type that
 * is there, Reshape of Reshape, Transpose of Transpose, the Reshape-Transpose-Reshape with which exporters swap the last
 * two of four dimensions. All exact. */
#include "pass.h"

#include <math.h>
#include <string.h>

static bool identity_perm(const int64_t *perm, int rank) {
    for (int i = 0; i < rank; i++)
        if (perm[i] != i) return false;
    return true;
}

/* perm of a Transpose, reversed dimensions by default; false if the rank is unknown. */
static bool get_perm(wok_pass_ctx *ctx, const wok_ir_node *node, int64_t *perm, int *rank) {
    *rank = wok_pass_type(ctx, node->in[0])->rank;
    if (*rank < 0) return false;
    int have = wok_ir_ints(node, "perm", perm, WOK_MAX_RANK);
    for (int i = 0; have < 0 && i < *rank; i++) perm[i] = *rank - 1 - i;
    return have < 0 || have == *rank;
}

/* A Transpose that moves only dimensions of size 1 keeps the order of elements. */
static bool keeps_order(const wok_type *type, const int64_t *perm, int rank) {
    int64_t last = -1;
    for (int i = 0; i < rank; i++) {
        if (type->dims[perm[i]] == 1) continue;
        if (perm[i] < last) return false;
        last = perm[i];
    }
    return true;
}

static void bypass(wok_pass_ctx *ctx, wok_node id) {
    wok_graph *g = ctx->graph;
    if (g->values[g->nodes[id].out[0]].is_output) return; /* the Identity that gives an output its name */
    wok_value from = g->nodes[id].out[0], to = g->nodes[id].in[0];
    wok_pass_kill(ctx, &g->nodes[id]);
    wok_pass_replace(ctx, from, to);
}

/* Reshape(x -> target constants): a node that produces the old output. dims may hold symbols: then a shape input is not
 * constant and the rewrite is left. */
static bool reshape_instead(wok_pass_ctx *ctx, wok_node id, wok_value x, const wok_type *to) {
    wok_graph *g = ctx->graph;
    int64_t dims[WOK_MAX_RANK];
    int unknown = 0;
    for (int i = 0; i < to->rank; i++) {
        dims[i] = to->dims[i];
        if (!wok_dim_known(dims[i])) dims[i] = -1, unknown++;
    }
    if (unknown > 1) return false;
    for (int i = 0; i < to->rank; i++)
        if (dims[i] == 0) return false;
    wok_value in[2] = {x, wok_pass_i64(ctx, "shape", 1, dims, to->rank)};
    wok_value out = g->nodes[id].out[0];
    const char *name = g->nodes[id].name;
    wok_pass_kill(ctx, &g->nodes[id]);
    wok_node node = wok_pass_add(ctx, WOK_OP_Reshape, name, in, 2, &out, 1);
    return node >= 0;
}

static void transpose(wok_pass_ctx *ctx, wok_node id) {
    wok_graph *g = ctx->graph;
    int64_t outer[WOK_MAX_RANK], inner[WOK_MAX_RANK], both[WOK_MAX_RANK];
    int rank, inner_rank;
    if (!get_perm(ctx, &g->nodes[id], outer, &rank)) return;
    wok_ir_node *below = wok_pass_is(ctx, g->nodes[id].in[0], WOK_OP_Transpose);
    if (below && get_perm(ctx, below, inner, &inner_rank) && inner_rank == rank) {
        for (int i = 0; i < rank; i++) both[i] = inner[outer[i]];
        wok_value x = below->in[0];
        wok_ir_set_ints(g, id, "perm", both, rank);
        wok_pass_set_input(ctx, &g->nodes[id], 0, x);
        memcpy(outer, both, sizeof both);
    }
    if (identity_perm(outer, rank)) {
        bypass(ctx, id);
        return;
    }
    wok_type from = *wok_pass_type(ctx, g->nodes[id].in[0]), to = *wok_pass_type(ctx, g->nodes[id].out[0]);
    if (keeps_order(&from, outer, rank) && to.rank == rank) reshape_instead(ctx, id, g->nodes[id].in[0], &to);
}

/* Reshape [a,b,c,d] -> [a*b,c,d], Transpose (0,2,1), Reshape -> [a,b,d,c]: a Transpose (0,1,3,2). */
static bool swapped_pair(wok_pass_ctx *ctx, wok_node id) {
    wok_graph *g = ctx->graph;
    const wok_ir_node *split = &g->nodes[id];
    const wok_ir_node *turn = wok_pass_is(ctx, split->in[0], WOK_OP_Transpose);
    const wok_ir_node *merge = turn ? wok_pass_is(ctx, turn->in[0], WOK_OP_Reshape) : NULL;
    if (!merge || !wok_pass_perm_is(turn, 3, (int64_t[]){0, 2, 1})) return false;
    const wok_type *x = wok_pass_type(ctx, merge->in[0]), *m = wok_pass_type(ctx, merge->out[0]),
                   *y = wok_pass_type(ctx, split->out[0]);
    if (x->rank != 4 || m->rank != 3 || y->rank != 4 || x->dims[0] != y->dims[0] || x->dims[1] != y->dims[1] ||
        x->dims[2] != y->dims[3] || x->dims[3] != y->dims[2] || m->dims[1] != x->dims[2] || m->dims[2] != x->dims[3])
        return false;
    wok_value in = merge->in[0], out = split->out[0];
    const char *name = split->name;
    wok_pass_kill(ctx, &g->nodes[id]);
    wok_node node = wok_pass_add(ctx, WOK_OP_Transpose, name, &in, 1, &out, 1);
    wok_ir_set_ints(g, node, "perm", (int64_t[]){0, 1, 3, 2}, 4);
    return true;
}

/* A target that is computed from shapes, with dimensions that the input has in the same place: written as a constant with 0
 * for those. The shape arithmetic falls away, and with it what it read. */
static bool constant_target(wok_pass_ctx *ctx, wok_node id) {
    wok_graph *g = ctx->graph;
    const wok_ir_node *node = &g->nodes[id];
    const wok_type *from = wok_pass_type(ctx, node->in[0]), *to = wok_pass_type(ctx, node->out[0]);
    if (to->rank < 0 || wok_pass_constant(ctx, node->in[1])) return false;
    int64_t dims[WOK_MAX_RANK];
    int unknown = 0;
    for (int i = 0; i < to->rank; i++) {
        dims[i] = to->dims[i];
        if (dims[i] == 0) return false;
        if (wok_dim_known(dims[i])) continue;
        bool kept = i < from->rank && from->dims[i] == dims[i];
        dims[i] = kept ? 0 : -1;
        unknown += !kept;
    }
    if (unknown > 1) return false;
    wok_value in[2] = {node->in[0], wok_pass_i64(ctx, "shape", 1, dims, to->rank)}, out = node->out[0];
    const char *name = node->name;
    wok_pass_kill(ctx, &g->nodes[id]);
    wok_pass_add(ctx, WOK_OP_Reshape, name, in, 2, &out, 1);
    return true;
}

static void reshape(wok_pass_ctx *ctx, wok_node id) {
    wok_graph *g = ctx->graph;
    if (swapped_pair(ctx, id) || constant_target(ctx, id)) return;
    const wok_ir_node *node = &g->nodes[id];
    const wok_type *from = wok_pass_type(ctx, node->in[0]), *to = wok_pass_type(ctx, node->out[0]);
    if (wok_pass_same_shape(from, to)) {
        bypass(ctx, id);
        return;
    }
    /* a target without 0 does not look at its input's shape: an earlier Reshape (or Flatten, Squeeze...) does not matter */
    wok_ir_node *below = wok_pass_producer(ctx, node->in[0]);
    if (!below || (below->op != WOK_OP_Reshape && below->op != WOK_OP_Flatten && below->op != WOK_OP_Squeeze &&
                   below->op != WOK_OP_Unsqueeze))
        return;
    wok_type target = *to;
    wok_value x = below->in[0];
    if (target.rank < 0) return;
    reshape_instead(ctx, id, x, &target);
}

static void cast(wok_pass_ctx *ctx, wok_node id) {
    wok_graph *g = ctx->graph;
    const wok_ir_node *node = &g->nodes[id];
    if (wok_pass_type(ctx, node->in[0])->dtype == (wok_dtype)wok_ir_int(node, "to", 0)) bypass(ctx, id);
}

static void dropout(wok_pass_ctx *ctx, wok_node id) {
    wok_graph *g = ctx->graph;
    const wok_ir_node *node = &g->nodes[id];
    double training = 0;
    if (wok_pass_in(node, 2) >= 0 && (!wok_pass_scalar(ctx, node->in[2], &training) || training != 0)) return;
    for (int i = 1; i < node->out_count; i++)
        if (node->out[i] >= 0 && ctx->uses[node->out[i]] > 0) return;
    bypass(ctx, id);
}

wok_status wok_pass_simplify(wok_pass_ctx *ctx) {
    wok_graph *g = ctx->graph;
    /* nodes made here are looked at too: a new Transpose may join the one before it */
    for (wok_node id = 0; id < g->node_count && g->status == WOK_OK; id++) {
        if (g->nodes[id].dead) continue;
        switch (g->nodes[id].op) {
        case WOK_OP_Identity:
            bypass(ctx, id);
            break;
        case WOK_OP_Dropout:
            dropout(ctx, id);
            break;
        case WOK_OP_Cast:
            cast(ctx, id);
            break;
        case WOK_OP_Transpose:
            transpose(ctx, id);
            break;
        case WOK_OP_Reshape:
            reshape(ctx, id);
            break;
        default:
            break;
        }
    }
    return g->status;
}

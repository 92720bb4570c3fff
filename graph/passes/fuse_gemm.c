/* fuse_gemm.c - products with a constant matrix become packed GEMMs: MatMul(x, W), Gemm(x, W, c), FusedMatMul(x, W), with
 * W transposed or not, whatever the rank of x. The epilogue is fuse_epilogue's. */
#include "pass.h"

static bool constant_matrix(wok_pass_ctx *ctx, wok_value v) {
    const wok_type *t = wok_pass_type(ctx, v);
    return wok_pass_constant(ctx, v) && t->rank == 2 && t->dtype == WOK_F32;
}

/* W, or the source of a Transpose of it. */
static bool weights(wok_pass_ctx *ctx, wok_value v, wok_value *w, bool *turned) {
    *w = wok_pass_unturned(ctx, v, turned);
    return constant_matrix(ctx, *w);
}

static void replace(wok_pass_ctx *ctx, wok_node id, wok_value w, bool trans_b, wok_value bias, const char *label) {
    wok_graph *g = ctx->graph;
    wok_value in[3] = {g->nodes[id].in[0], w, bias}, out = g->nodes[id].out[0];
    const char *name = g->nodes[id].name;
    wok_pass_kill(ctx, &g->nodes[id]);
    wok_node node = wok_pass_add(ctx, WOK_OP_wok_Gemm, name, in, 3, &out, 1);
    wok_ir_set_int(g, node, "trans_b", trans_b);
    wok_pass_label(ctx, node, label);
    wok_pass_origin(ctx, node, &id, 1);
}

static void matmul(wok_pass_ctx *ctx, wok_node id) {
    const wok_ir_node *node = &ctx->graph->nodes[id];
    bool fused = node->op == WOK_OP_ms_FusedMatMul, turned = fused && wok_ir_int(node, "transB", 0);
    const wok_type *x = wok_pass_type(ctx, node->in[0]);
    wok_value w;
    if (x->dtype != WOK_F32 || x->rank < 2 || !weights(ctx, node->in[1], &w, &turned)) return;
    if (fused && (wok_ir_int(node, "transA", 0) || wok_ir_int(node, "transBatchA", 0) ||
                  wok_ir_int(node, "transBatchB", 0) || wok_ir_float(node, "alpha", 1) != 1.0f)) {
        wok_pass_near_miss(ctx, node, "FusedMatMul scales or transposes its first operand");
        return;
    }
    replace(ctx, id, w, turned, WOK_ABSENT, "MatMul");
}

static void gemm(wok_pass_ctx *ctx, wok_node id) {
    const wok_ir_node *node = &ctx->graph->nodes[id];
    const wok_type *x = wok_pass_type(ctx, node->in[0]);
    wok_value w, c = wok_pass_in(node, 2);
    bool turned = wok_ir_int(node, "transB", 0);
    if (x->dtype != WOK_F32 || !weights(ctx, node->in[1], &w, &turned)) return;
    const wok_type *wt = wok_pass_type(ctx, w);
    if (wok_ir_int(node, "transA", 0) || wok_ir_float(node, "alpha", 1) != 1.0f ||
        (c >= 0 && wok_ir_float(node, "beta", 1) != 1.0f)) {
        wok_pass_near_miss(ctx, node, "Gemm scales or transposes its first operand");
        return;
    }
    if (c >= 0 && !wok_pass_is_row(wok_pass_type(ctx, c), wt->dims[turned ? 0 : 1])) {
        wok_pass_near_miss(ctx, node, "the third operand is no vector of the columns");
        return;
    }
    replace(ctx, id, w, turned, c, "Gemm");
}

wok_status wok_pass_fuse_gemm(wok_pass_ctx *ctx) {
    wok_graph *g = ctx->graph;
    int count = g->node_count;
    for (wok_node id = 0; id < count && g->status == WOK_OK; id++) {
        if (g->nodes[id].dead) continue;
        if (g->nodes[id].op == WOK_OP_MatMul || g->nodes[id].op == WOK_OP_ms_FusedMatMul)
            matmul(ctx, id);
        else if (g->nodes[id].op == WOK_OP_Gemm)
            gemm(ctx, id);
    }
    return g->status;
}

/* fold_batchnorm.c - BatchNormalization in inference is y = x * s + t with s = scale / sqrt(var + eps) and
 * t = bias - mean * s, computed in double. Written as Mul and Add of per-channel constants; fuse_epilogue then takes them
 * into the convolution, like the Mul and Add that other exporters write themselves. */
#include "pass.h"

#include <math.h>

static bool constants_fit(wok_pass_ctx *ctx, const wok_ir_node *node, int64_t channels) {
    for (int i = 1; i < 5; i++) {
        const wok_type *t = wok_pass_type(ctx, node->in[i]);
        if (!wok_pass_constant(ctx, node->in[i]) || t->rank != 1 || t->dims[0] != channels) return false;
    }
    return true;
}

static void fold(wok_pass_ctx *ctx, wok_node id) {
    wok_graph *g = ctx->graph;
    const wok_ir_node *node = &g->nodes[id];
    const wok_type *x = wok_pass_type(ctx, node->in[0]);
    for (int i = 1; i < node->out_count; i++)
        if (node->out[i] >= 0 && ctx->uses[node->out[i]] > 0) return;
    if (node->in_count != 5 || wok_ir_int(node, "training_mode", 0) || x->dtype != WOK_F32 || x->rank < 2 ||
        !wok_dim_known(x->dims[1]))
        return;
    int64_t channels = x->dims[1], dims[WOK_MAX_RANK];
    if (!constants_fit(ctx, node, channels)) {
        wok_pass_near_miss(ctx, node, "scale, bias, mean or variance is not constant");
        return;
    }
    int rank = x->rank - 1;
    for (int i = 0; i < rank; i++) dims[i] = i ? 1 : channels;
    float *s = wok_arena_alloc(g->arena, (size_t)channels * sizeof *s),
          *t = wok_arena_alloc(g->arena, (size_t)channels * sizeof *t);
    if (!s || !t) {
        g->status = WOK_ERR_MEMORY;
        return;
    }
    double epsilon = (double)wok_ir_float(node, "epsilon", 1e-5f);
    for (int64_t c = 0; c < channels; c++) {
        double scale = wok_pass_element(wok_pass_type(ctx, node->in[1]), c),
               bias = wok_pass_element(wok_pass_type(ctx, node->in[2]), c),
               mean = wok_pass_element(wok_pass_type(ctx, node->in[3]), c),
               variance = wok_pass_element(wok_pass_type(ctx, node->in[4]), c);
        double factor = scale / sqrt(variance + epsilon);
        s[c] = (float)factor;
        t[c] = (float)(bias - mean * factor);
    }
    const char *name = node->name;
    wok_value in = node->in[0], out = node->out[0];
    wok_type type = *x;
    wok_value scale = wok_pass_f32(ctx, "scale", rank, dims, s), shift = wok_pass_f32(ctx, "shift", rank, dims, t);
    wok_pass_kill(ctx, &g->nodes[id]);
    wok_value scaled = wok_pass_op(ctx, WOK_OP_Mul, name, (wok_value[]){in, scale}, 2, &type);
    if (scaled < 0) return;
    wok_pass_origin(ctx, g->values[scaled].producer, &id, 1);
    wok_node add = wok_pass_add(ctx, WOK_OP_Add, name, (wok_value[]){scaled, shift}, 2, &out, 1);
    wok_pass_origin(ctx, add, &id, 1);
}

wok_status wok_pass_fold_batchnorm(wok_pass_ctx *ctx) {
    wok_graph *g = ctx->graph;
    int count = g->node_count;
    for (wok_node id = 0; id < count && g->status == WOK_OK; id++)
        if (!g->nodes[id].dead && g->nodes[id].op == WOK_OP_BatchNormalization) fold(ctx, id);
    return g->status;
}

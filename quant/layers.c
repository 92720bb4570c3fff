/* layers.c - what can be quantised: operators with constant weights, and tables that Gather reads; and their codes. */
#include "quant.h"

#include <math.h>

enum { SMALLEST_TABLE = 16384 }; /* elements; below, a table is not worth three nodes */

/* ---- finding -------------------------------------------------------------------------------------------------------- */

static bool is_quantised(const wok_qnode *node) {
    static const char *const ops[] = {"QuantizeLinear",
                                      "DequantizeLinear",
                                      "DynamicQuantizeLinear",
                                      "MatMulInteger",
                                      "ConvInteger",
                                      "QAttention",
                                      "QGemm",
                                      "DynamicQuantizeMatMul",
                                      "MatMulIntegerToFloat",
                                      "MatMulNBits",
                                      "QEmbedLayerNormalization"};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (strcmp(node->op, ops[i]) == 0) return true;
    return strncmp(node->op, "QLinear", 7) == 0;
}

/* Is it a MatMul of com.microsoft's that is one of ONNX's with the weights transposed? */
static bool plain_fused(const wok_qnode *node) {
    return wok_qnode_int(node, "transA", 0) == 0 && wok_qnode_int(node, "transBatchA", 0) == 0 &&
           wok_qnode_int(node, "transBatchB", 0) == 0 && wok_qnode_float(node, "alpha", 1) == 1;
}

static bool kind_of(const wok_qgraph *g, const wok_qnode *node, wok_qkind *kind) {
    const wok_qvalue *first = wok_qgraph_fixed(g, wok_qnode_in(node, 0)),
                     *second = wok_qgraph_fixed(g, wok_qnode_in(node, 1));
    if (wok_qnode_is(node, "Conv")) return *kind = WOK_QCONV, true;
    if (wok_qnode_is(node, "Gemm")) return *kind = WOK_QGEMM, true;
    if (!first && second && !node->dead && (wok_qnode_is(node, "MatMul") || strcmp(node->op, "FusedMatMul") == 0))
        return *kind = WOK_QMATMUL, second->rank >= 2;
    if (wok_qnode_is(node, "Gather") && first && first->rank == 2 && first->dtype == WOK_F32)
        return *kind = WOK_QTABLE, wok_qvalue_count(first) >= SMALLEST_TABLE;
    return false;
}

static const char *refusal(wok_quant *q, const wok_qlayer *l) {
    const wok_qgraph *g = &q->graph;
    const wok_qnode *node = &g->nodes[l->node];
    const wok_qvalue *w = wok_qgraph_fixed(g, l->w);
    if (!w) return "its weights are not constant";
    if (w->dtype != WOK_F32) return wok_qpool_format(&q->pool, "its weights are %s", wok_dtype_name(w->dtype));
    if (w->bytes == 0) return "its weights are empty";
    if (wok_qgraph_fixed(g, l->x) && l->kind != WOK_QTABLE) return "it reads nothing that changes";
    if (l->kind == WOK_QCONV && !wok_quant_is_static(q)) return "convolutions stay float in the dynamic form";
    if (l->kind == WOK_QGEMM && (w->rank != 2 || wok_qnode_int(node, "transA", 0) ||
                                 wok_qnode_float(node, "alpha", 1) != 1 || wok_qnode_float(node, "beta", 1) != 1))
        return "transA, alpha and beta have no 8-bit form";
    if (l->kind == WOK_QMATMUL && w->rank != 2) return "its weights are not a matrix";
    if (l->kind == WOK_QMATMUL && *node->domain && !plain_fused(node)) return "its attributes have no 8-bit form";
    if (l->kind == WOK_QTABLE && wok_qnode_int(node, "axis", 0) != 0) return "it does not read rows";
    if (l->kind == WOK_QTABLE && q->o.tables == WOK_QUANT_TABLE_KEEP) return "tables stay float";
    if (l->kind == WOK_QTABLE && q->o.tables == WOK_QUANT_TABLE_INT4 && w->dims[1] % WOK_QUANT_GROUP)
        return "its width is no multiple of the group size";
    return NULL;
}

static bool kept_by_name(const wok_quant *q, const char *name) {
    for (int i = 0; i < q->o.keep_count; i++)
        if (strcmp(q->o.keep[i], name) == 0) return true;
    return false;
}

enum { OLDEST_OPSET = 11 }; /* DynamicQuantizeLinear came with it */

static wok_status check_names(const wok_quant *q) {
    for (int i = 0; i < q->o.keep_count; i++) {
        bool found = false;
        for (int n = 0; n < wok_graph_node_count(q->model) && !found; n++)
            found = strcmp(wok_graph_node_at(q->model, n).name, q->o.keep[i]) == 0;
        if (!found) return wok_ctx_fail(q->ctx, WOK_ERR_ARGUMENT, "the model has no node called '%s'", q->o.keep[i]);
    }
    return WOK_OK;
}

static void add_layer(wok_quant *q, int n, wok_qkind kind) {
    const wok_qnode *node = &q->graph.nodes[n];
    bool table = kind == WOK_QTABLE;
    wok_qlayer *l = &q->layers[q->layer_count++];
    *l = (wok_qlayer){.kind = kind,
                      .node = n,
                      .y = node->out[0],
                      .float_us = -1,
                      .int8_us = -1,
                      .snr = (double)NAN,
                      .snr_total = (double)NAN};
    l->x = node->in[table ? 1 : 0];
    l->w = wok_qnode_in(node, table ? 0 : 1);
    l->bias = kind == WOK_QCONV || kind == WOK_QGEMM ? wok_qnode_in(node, 2) : WOK_ABSENT;
    l->fixed = kept_by_name(q, node->name) ? "the caller keeps it" : refusal(q, l);
    l->reason = l->fixed;
}

wok_status wok_quant_check(const wok_quant *q) {
    const wok_qgraph *g = &q->graph;
    for (int n = 0; n < g->node_count; n++)
        if (is_quantised(&g->nodes[n]))
            return wok_ctx_fail(q->ctx, WOK_ERR_UNSUPPORTED, "the model is quantised already: node '%s' is a %s",
                                g->nodes[n].name, g->nodes[n].op);
    if (g->opset < OLDEST_OPSET)
        return wok_ctx_fail(q->ctx, WOK_ERR_UNSUPPORTED,
                            "the model uses operator set %lld; quantised operators came with set %d: export it again",
                            (long long)g->opset, OLDEST_OPSET);
    return check_names(q);
}

wok_status wok_quant_find_layers(wok_quant *q) {
    wok_qgraph *g = &q->graph;
    q->layers = wok_qpool_alloc(&q->pool, (size_t)g->node_count, sizeof *q->layers);
    if (!q->layers) return WOK_ERR_MEMORY;
    int open = 0;
    for (int n = 0; n < g->node_count; n++) {
        wok_qkind kind;
        if (!g->nodes[n].dead && kind_of(g, &g->nodes[n], &kind)) add_layer(q, n, kind);
    }
    for (int i = 0; i < q->layer_count; i++) open += q->layers[i].fixed == NULL;
    if (open == 0)
        return wok_ctx_fail(q->ctx, WOK_ERR_UNSUPPORTED, "the model has nothing to quantise%s%s",
                            q->layer_count ? ": " : "", q->layer_count ? q->layers[0].fixed : "");
    return WOK_OK;
}

/* ---- coding --------------------------------------------------------------------------------------------------------- */

static void lay_out(const wok_quant *q, const wok_qlayer *l, wok_qcodes *c) {
    const wok_qvalue *w = &q->graph.values[l->w];
    const wok_qnode *node = &q->graph.nodes[l->node];
    bool trans_b = wok_qnode_int(node, "transB", 0) != 0;
    bool product = l->kind == WOK_QMATMUL || (l->kind == WOK_QGEMM && !wok_quant_is_static(q));
    c->rank = w->rank;
    memcpy(c->dims, w->dims, sizeof c->dims);
    if (product && trans_b) { /* ONNX's own products take [K,N] */
        c->transposed = true;
        c->dims[0] = w->dims[1];
        c->dims[1] = w->dims[0];
    }
    bool rows = l->kind == WOK_QCONV || l->kind == WOK_QTABLE || (!product && trans_b);
    c->axis = rows ? 0 : 1;
    c->channels = c->dims[c->axis];
    c->outer = rows ? 1 : c->dims[0];
    c->inner = rows ? wok_qvalue_count(w) / c->channels : 1;
    c->scale_count = q->o.per_tensor && l->kind != WOK_QTABLE ? 1 : (int)c->channels;
}

/* The codes that an earlier layer made of the same weights in the same form. */
static wok_qcodes *shared_codes(const wok_quant *q, int layer, const wok_qcodes *like) {
    for (int i = 0; i < layer; i++) {
        const wok_qlayer *l = &q->layers[i];
        if (l->weights && l->w == q->layers[layer].w && l->weights->axis == like->axis &&
            l->weights->scale_count == like->scale_count && l->weights->transposed == like->transposed)
            return l->weights;
    }
    return NULL;
}

static wok_status code_layer(wok_quant *q, int layer) {
    wok_qlayer *l = &q->layers[layer];
    const wok_qvalue *w = &q->graph.values[l->w];
    wok_qcodes like = {0};
    lay_out(q, l, &like);
    l->weights = shared_codes(q, layer, &like);
    if (l->weights) return WOK_OK;
    wok_qcodes *c = wok_qpool_alloc(&q->pool, 1, sizeof *c);
    if (!c) return WOK_ERR_MEMORY;
    *c = like;
    if (l->kind == WOK_QTABLE && q->o.tables == WOK_QUANT_TABLE_INT4) {
        l->weights = c;
        return wok_quant_code_int4(&q->pool, w, c);
    }
    c->codes = wok_qpool_alloc(&q->pool, (size_t)wok_qvalue_count(w), 1);
    c->scales = wok_qpool_alloc(&q->pool, (size_t)c->scale_count, sizeof *c->scales);
    c->name = w->name;
    for (int i = 0; i < layer; i++) /* the same weights in another form need another name */
        if (q->layers[i].weights && q->layers[i].w == l->w)
            c->name = wok_qpool_format(&q->pool, "%s_%d", w->name, layer);
    if (!c->codes || !c->scales || !c->name) return WOK_ERR_MEMORY;
    WOK_TRYQ(wok_quant_weights(q->ctx, w->data, c, q->o.narrow_weights ? 63 : 127, q->o.method == WOK_QUANT_MSE));
    l->weights = c;
    return WOK_OK;
}

wok_status wok_quant_code(wok_quant *q) {
    for (int i = 0; i < q->layer_count; i++) {
        WOK_TRYQ(wok_quant_step(q, "quantising weights", i, q->layer_count));
        if (q->layers[i].fixed) continue;
        WOK_TRYQ(code_layer(q, i));
        q->layers[i].weight_snr =
            wok_qnoise_db(&(wok_qnoise){q->layers[i].weights->signal, q->layers[i].weights->noise});
    }
    return WOK_OK;
}

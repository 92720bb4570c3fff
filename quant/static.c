/* static.c - QDQ: DequantizeLinear(QuantizeLinear(x)) wherever 8 bits are read, and weights as DequantizeLinear(codes). */
#include "quant.h"

#include <math.h>

/* ---- biases --------------------------------------------------------------------------------------------------------- */

enum { LARGEST_BIAS = 1 << 30 };

static float weight_scale(const wok_qcodes *c, int64_t k) {
    return c->scales[c->scale_count == 1 ? 0 : k];
}

/* A channel of nearly no weights has a scale so small that its bias does not fit 32 bits: it gets a larger one. */
static void widen_channel(wok_qcodes *c, int64_t k, float scale) {
    int64_t count = c->outer * c->inner;
    float ratio = c->scales[k] / scale;
    for (int64_t j = 0; j < count; j++) {
        int8_t *code = &c->codes[(j / c->inner * c->channels + k) * c->inner + j % c->inner];
        *code = (int8_t)nearbyintf((float)*code * ratio);
    }
    c->scales[k] = scale;
}

wok_status wok_quant_code_bias(wok_quant *q, wok_qlayer *l) {
    wok_qcodes *c = l->weights;
    const wok_qvalue *bias = wok_qgraph_fixed(&q->graph, l->bias);
    bool conv = l->kind == WOK_QCONV;
    if (l->kind == WOK_QTABLE || l->kind == WOK_QMATMUL) return WOK_OK;
    if (l->bias >= 0 && (!bias || bias->dtype != WOK_F32 || wok_qvalue_count(bias) != c->channels)) return WOK_OK;
    if (l->bias < 0 && !(conv && l->correction)) return WOK_OK;
    if (!l->bias_codes) {
        l->bias_codes = wok_qpool_alloc(&q->pool, (size_t)c->channels, sizeof *l->bias_codes);
        l->bias_scales = wok_qpool_alloc(&q->pool, (size_t)c->channels, sizeof *l->bias_scales);
        if (!l->bias_codes || !l->bias_scales) return WOK_ERR_MEMORY;
    }
    float x = q->ranges[wok_quant_root(q->ranges, l->x)].scale;
    for (int64_t k = 0; k < c->channels; k++) {
        double b = bias ? (double)wok_qfloat(bias->data, k) : 0;
        if (l->correction) b += (double)l->correction[k];
        double least = fabs(b) / (double)x / LARGEST_BIAS;
        if ((double)weight_scale(c, k) < least && c->scale_count > 1) widen_channel(c, k, (float)least);
        l->bias_scales[k] = x * weight_scale(c, k);
        double code = nearbyint(b / (double)l->bias_scales[k]);
        l->bias_codes[k] = code > INT32_MAX ? INT32_MAX : code < INT32_MIN ? INT32_MIN : (int32_t)code;
    }
    return WOK_OK;
}

/* ---- nodes ---------------------------------------------------------------------------------------------------------- */

static wok_value dequantised(wok_qwriter *w, const char *name, wok_value codes, wok_value scale, wok_value zero,
                             int axis) {
    const char *node = wok_qwriter_name(w, name, "/DequantizeLinear"), *out = wok_qwriter_name(w, name, "_dequantized");
    if (!node || !out) return WOK_ABSENT;
    wok_value y =
        wok_graph_op(w->model, "DequantizeLinear", "", node, (wok_value[]){codes, scale, zero}, zero < 0 ? 2 : 3, out);
    if (axis >= 0) wok_node_set_int(w->model, wok_graph_last(w->model), "axis", axis);
    return y;
}

wok_value wok_quant_write_pair(wok_qwriter *w, wok_value v) {
    if (w->coded[v] >= 0) return w->coded[v];
    wok_value root = wok_quant_root(w->ranges, v);
    const wok_qrange *r = &w->q->ranges[root];
    const char *name = w->graph->values[v].name, *root_name = w->graph->values[root].name;
    uint8_t zero = (uint8_t)r->zero;
    wok_value scale = wok_qwriter_scalar(w, wok_qwriter_name(w, root_name, "_scale"), WOK_F32, &r->scale);
    wok_value point = wok_qwriter_scalar(w, wok_qwriter_name(w, root_name, "_zero_point"),
                                         w->q->o.signed_activations ? WOK_I8 : WOK_U8, &zero);
    const char *node = wok_qwriter_name(w, name, "/QuantizeLinear"), *out = wok_qwriter_name(w, name, "_quantized");
    if (!node || !out) return WOK_ABSENT;
    wok_value in[3] = {wok_qwriter_value(w, v), scale, point};
    wok_value codes = wok_graph_op(w->model, "QuantizeLinear", "", node, in, 3, out);
    return w->coded[v] = dequantised(w, name, codes, scale, point, -1);
}

static wok_value write_weights(wok_qwriter *w, const wok_qcodes *c) {
    int64_t count = c->scale_count;
    int rank = count > 1 || c->channels == 1;
    for (int i = 0; i < w->q->layer_count; i++) { /* layers of equal weights share what is written of them */
        const wok_qlayer *l = &w->q->layers[i];
        if (l->weights == c && w->written[i] >= 0) return w->written[i];
    }
    int8_t *zeros = wok_qpool_alloc(&w->q->pool, (size_t)count, 1);
    if (!zeros) {
        wok_model_fail(w->model, WOK_ERR_MEMORY, "out of memory for zero points");
        return WOK_ABSENT;
    }
    wok_value codes =
        wok_qwriter_constant(w, wok_qwriter_name(w, c->name, "_quantized"), WOK_I8, c->rank, c->dims, c->codes);
    wok_value scales =
        wok_qwriter_constant(w, wok_qwriter_name(w, c->name, "_scale"), WOK_F32, rank, &count, c->scales);
    wok_value points =
        wok_qwriter_constant(w, wok_qwriter_name(w, c->name, "_zero_point"), WOK_I8, rank, &count, zeros);
    return dequantised(w, c->name, codes, scales, points, rank ? c->axis : -1);
}

static wok_value write_bias(wok_qwriter *w, const wok_qlayer *l) {
    const wok_qcodes *c = l->weights;
    if (!l->bias_codes) return wok_qwriter_value(w, l->bias);
    /* Named after the layer: a bias that two layers share has two scales. */
    const char *stem = wok_qpool_format(&w->pool, "%s_bias", w->graph->nodes[l->node].name);
    const char *name = stem ? wok_qwriter_name(w, stem, "_quantized") : NULL;
    if (!name) return WOK_ABSENT;
    wok_value codes = wok_qwriter_constant(w, name, WOK_I32, 1, &c->channels, l->bias_codes);
    wok_value scales =
        wok_qwriter_constant(w, wok_qwriter_name(w, stem, "_scale"), WOK_F32, 1, &c->channels, l->bias_scales);
    return dequantised(w, stem, codes, scales, WOK_ABSENT, 0);
}

void wok_quant_write_static(wok_qwriter *w, const wok_qlayer *l, wok_value out) {
    wok_qnode node = w->graph->nodes[l->node];
    int layer = (int)(l - w->q->layers);
    wok_value in[3] = {wok_quant_write_pair(w, l->x), write_weights(w, l->weights), WOK_ABSENT};
    w->written[layer] = in[1];
    if (l->kind != WOK_QMATMUL) in[2] = write_bias(w, l);
    node.in_count = in[2] >= 0 ? 3 : 2;
    if (*node.domain) { /* FusedMatMul: the codes are transposed already */
        node.op = "MatMul";
        node.domain = "";
        node.attr_count = 0;
    }
    wok_qwriter_node(w, &node, in, &out);
}

bool wok_quant_write_plain(wok_qwriter *w, int n) {
    const wok_qnode *node = &w->graph->nodes[n];
    wok_qhow how = (wok_qhow)w->how[n];
    if (how == WOK_QHOW_FLOAT) return false;
    wok_value *ids = wok_qpool_alloc(&w->pool, (size_t)(node->in_count + node->out_count), sizeof *ids);
    if (!ids) {
        wok_model_fail(w->model, WOK_ERR_MEMORY, "out of memory for a node");
        return true;
    }
    for (int i = 0; i < node->in_count; i++) {
        bool coded = how == WOK_QHOW_ALL || (how == WOK_QHOW_FIRST && i == 0) || (how == WOK_QHOW_SECOND && i == 1);
        ids[i] = coded ? wok_quant_write_pair(w, node->in[i]) : wok_qwriter_value(w, node->in[i]);
    }
    for (int i = 0; i < node->out_count; i++) ids[node->in_count + i] = wok_qwriter_value(w, node->out[i]);
    wok_qwriter_node(w, node, ids, ids + node->in_count);
    return true;
}

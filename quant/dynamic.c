/* dynamic.c - a matrix product whose activations are quantised when they are known:
 *
 *   x -> DynamicQuantizeLinear -> q, scale, zero
 *   y = Cast(MatMulInteger(q, codes, zero)) * (scale * scales) [+ bias]
 *
 * One DynamicQuantizeLinear for all layers that read x. The order of the products is that of ONNX Runtime's quantiser,
 * so that whoever fuses the one fuses the other. */
#include "quant.h"

static void quantise_input(wok_qwriter *w, wok_value x) {
    if (w->coded[x] >= 0) return;
    const char *name = w->graph->values[x].name;
    wok_value in = wok_qwriter_value(w, x);
    wok_value out[3];
    static const char *const suffix[] = {"_quantized", "_scale", "_zero_point"};
    for (int i = 0; i < 3; i++) {
        const char *fresh = wok_qwriter_name(w, name, suffix[i]);
        if (!fresh) return;
        out[i] = wok_graph_value(w->model, fresh);
    }
    const char *node = wok_qwriter_name(w, name, "_DynamicQuantizeLinear");
    wok_graph_node(w->model, "DynamicQuantizeLinear", "", node, &in, 1, out, 3);
    w->coded[x] = out[0];
    w->scales[x] = out[1];
    w->zeros[x] = out[2];
}

static wok_value op(wok_qwriter *w, const wok_qnode *node, const char *kind, const wok_value *in, int count,
                    wok_value out, const char *stem, const char *suffix) {
    const char *name = wok_qpool_format(&w->pool, "%s%s", node->name, suffix);
    if (out < 0) {
        const char *fresh = wok_qwriter_name(w, stem, suffix);
        out = fresh ? wok_graph_value(w->model, fresh) : WOK_ABSENT;
    }
    wok_graph_node(w->model, kind, "", name, in, count, &out, 1);
    return out;
}

void wok_quant_write_dynamic(wok_qwriter *w, const wok_qlayer *l, wok_value out) {
    const wok_qnode *node = &w->graph->nodes[l->node];
    const wok_qcodes *c = l->weights;
    int64_t channels = c->scale_count;
    quantise_input(w, l->x);
    const char *stem = wok_graph_value_at(w->model, out).name;
    wok_value codes =
        wok_qwriter_constant(w, wok_qwriter_name(w, c->name, "_quantized"), WOK_I8, c->rank, c->dims, c->codes);
    wok_value scales =
        wok_qwriter_constant(w, wok_qwriter_name(w, c->name, "_scale"), WOK_F32, channels > 1, &channels, c->scales);
    wok_value sum = op(w, node, "MatMulInteger", (wok_value[]){w->coded[l->x], codes, w->zeros[l->x]}, 3, WOK_ABSENT,
                       stem, "/MatMulInteger");
    wok_value real = op(w, node, "Cast", &sum, 1, WOK_ABSENT, stem, "/Cast");
    wok_node_set_int(w->model, wok_graph_last(w->model), "to", WOK_F32);
    wok_value scale = op(w, node, "Mul", (wok_value[]){w->scales[l->x], scales}, 2, WOK_ABSENT, stem, "/Scales");
    bool biased = l->bias >= 0;
    wok_value product = op(w, node, "Mul", (wok_value[]){real, scale}, 2, biased ? WOK_ABSENT : out, stem, "/Mul");
    if (biased) op(w, node, "Add", (wok_value[]){product, wok_qwriter_value(w, l->bias)}, 2, out, stem, "/Add");
}

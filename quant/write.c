/* write.c - from the graph, a model: some layers in 8 bits, the rest as it was. */
#include "quant.h"

enum { NEWEST_NEED = 13, NEEDED_IR = 7 }; /* operator set 13 came with IR version 7 */

/* ---- values --------------------------------------------------------------------------------------------------------- */

const char *wok_qwriter_name(wok_qwriter *w, const char *base, const char *suffix) {
    const char *name = wok_qpool_format(&w->pool, "%s%s", base, suffix);
    for (int v = 0; name && v < w->graph->value_count; v++) {
        if (strcmp(w->graph->values[v].name, name) != 0) continue;
        name = wok_qpool_format(&w->pool, "%s_", name);
        v = -1;
    }
    if (!name) wok_model_fail(w->model, WOK_ERR_MEMORY, "out of memory for a name");
    return name;
}

static wok_data_kind kind(const wok_qwriter *w) {
    return w->copy ? WOK_DATA_COPY : WOK_DATA_BORROW;
}

wok_value wok_qwriter_value(wok_qwriter *w, wok_value v) {
    if (v < 0) return WOK_ABSENT;
    if (w->map[v] >= 0) return w->map[v];
    const wok_qvalue *value = &w->graph->values[v];
    if (value->data)
        return w->map[v] = wok_graph_constant(w->model, value->name, value->dtype, value->rank, value->dims,
                                              value->data, value->bytes, kind(w));
    w->map[v] = wok_graph_value(w->model, value->name);
    if (value->dtype != WOK_NONE)
        wok_graph_declare(w->model, w->map[v], value->dtype, value->rank, value->dims, value->dim_names);
    return w->map[v];
}

wok_value wok_qwriter_constant(wok_qwriter *w, const char *name, wok_dtype dtype, int rank, const int64_t *dims,
                               const void *data) {
    wok_value v = name ? wok_graph_value(w->model, name) : WOK_ABSENT;
    if (v >= 0 && wok_graph_value_at(w->model, v).data) return v;
    size_t bytes = wok_dtype_size(dtype);
    for (int i = 0; i < rank; i++) bytes *= (size_t)dims[i];
    return v < 0 ? v : wok_graph_constant(w->model, name, dtype, rank, dims, data, bytes, kind(w));
}

wok_value wok_qwriter_scalar(wok_qwriter *w, const char *name, wok_dtype dtype, const void *number) {
    wok_value v = name ? wok_graph_value(w->model, name) : WOK_ABSENT;
    if (v < 0 || wok_graph_value_at(w->model, v).data) return v;
    return wok_graph_constant(w->model, name, dtype, 0, NULL, number, wok_dtype_size(dtype), WOK_DATA_COPY);
}

/* ---- nodes ---------------------------------------------------------------------------------------------------------- */

static void write_attribute(wok_qwriter *w, wok_node id, const wok_attr *a) {
    wok_model *m = w->model;
    switch (a->kind) {
    case WOK_ATTR_INT:
        wok_node_set_int(m, id, a->name, a->u.i);
        break;
    case WOK_ATTR_FLOAT:
        wok_node_set_float(m, id, a->name, a->u.f);
        break;
    case WOK_ATTR_STRING:
        wok_node_set_string(m, id, a->name, a->u.s, (size_t)a->count);
        break;
    case WOK_ATTR_INTS:
        wok_node_set_ints(m, id, a->name, a->u.ints, a->count);
        break;
    case WOK_ATTR_FLOATS:
        wok_node_set_floats(m, id, a->name, a->u.floats, a->count);
        break;
    case WOK_ATTR_STRINGS:
        wok_node_set_strings(m, id, a->name, a->u.strings, a->count);
        break;
    case WOK_ATTR_TENSOR:
        wok_node_set_tensor(m, id, a->name, wok_qwriter_value(w, a->u.tensor));
        break;
    default:
        wok_node_set_opaque(m, id, a->name, a->u.s);
    }
}

void wok_qwriter_node(wok_qwriter *w, const wok_qnode *node, const wok_value *in, const wok_value *out) {
    wok_node id =
        wok_graph_node(w->model, node->op, node->domain, node->name, in, node->in_count, out, node->out_count);
    for (int i = 0; i < node->attr_count && id >= 0; i++) write_attribute(w, id, &node->attrs[i]);
}

static void write_as_it_is(wok_qwriter *w, const wok_qnode *node) {
    wok_value *ids = wok_qpool_alloc(&w->pool, (size_t)(node->in_count + node->out_count), sizeof *ids);
    if (!ids) {
        wok_model_fail(w->model, WOK_ERR_MEMORY, "out of memory for a node");
        return;
    }
    for (int i = 0; i < node->in_count; i++) ids[i] = wok_qwriter_value(w, node->in[i]);
    for (int i = 0; i < node->out_count; i++) ids[node->in_count + i] = wok_qwriter_value(w, node->out[i]);
    wok_qwriter_node(w, node, ids, ids + node->in_count);
}

static void write_layer(wok_qwriter *w, const wok_qlayer *layer, wok_value out) {
    if (layer->kind == WOK_QTABLE)
        wok_quant_write_table(w, layer, out);
    else if (wok_quant_is_static(w->q))
        wok_quant_write_static(w, layer, out);
    else
        wok_quant_write_dynamic(w, layer, out);
}

const char *wok_quant_probe_name(wok_qpool *pool, const wok_quant *q, const wok_qlayer *layer) {
    return wok_qpool_format(pool, "%s/wok_probe", q->graph.values[layer->y].name);
}

static void write_probe(wok_qwriter *w, const wok_qlayer *layer) {
    const char *name = wok_quant_probe_name(&w->pool, w->q, layer);
    if (name)
        write_layer(w, layer, wok_graph_value(w->model, name));
    else
        wok_model_fail(w->model, WOK_ERR_MEMORY, "out of memory for a name");
}

/* ---- the whole ------------------------------------------------------------------------------------------------------ */

typedef enum wok_qform { FLOAT, PROBE, QUANTISED } wok_qform;

/* The names of the layers that could be in 8 bits and are not, one a line. */
static void note_kept(wok_qwriter *w) {
    const char *names = "";
    for (int i = 0; i < w->q->layer_count && names; i++) {
        const wok_qlayer *l = &w->q->layers[i];
        if (l->reason && !l->fixed)
            names = wok_qpool_format(&w->pool, "%s%s%s", names, *names ? "\n" : "", w->graph->nodes[l->node].name);
    }
    if (!names)
        wok_model_fail(w->model, WOK_ERR_MEMORY, "out of memory for names");
    else if (*names)
        wok_model_set_metadata(w->model, "wok.quant.float", names);
}

static void write_header(wok_qwriter *w, wok_qform form) {
    const wok_model *from = w->graph->model;
    const wok_model_info *info = wok_model_describe(from);
    bool newer = w->graph->opset >= NEWEST_NEED && info->ir_version < NEEDED_IR;
    wok_model_set_ir(w->model, newer ? NEEDED_IR : info->ir_version, "wok");
    for (int i = 0; i < wok_model_opset_count(from); i++) {
        int64_t version;
        const char *domain = wok_model_opset_at(from, i, &version);
        wok_model_set_opset(w->model, domain, *domain ? version : w->graph->opset);
    }
    for (int i = 0; i < wok_model_metadata_count(from); i++) {
        const char *value, *key = wok_model_metadata_at(from, i, &value);
        wok_model_set_metadata(w->model, key, value);
    }
    if (form != FLOAT && !wok_quant_is_static(w->q)) wok_model_set_metadata(w->model, "wok.dynamic", "per_row");
    if (form == QUANTISED) note_kept(w);
}

static void write_inputs(wok_qwriter *w) {
    int count;
    const wok_value *inputs = wok_graph_inputs(w->graph->model, &count);
    for (int i = 0; i < count; i++) {
        const wok_value_info *info = wok_model_input(w->graph->model, i);
        const wok_qvalue *value = &w->graph->values[inputs[i]];
        wok_value v = wok_graph_input(w->model, info->name, info->dtype, info->rank, info->dims, info->dim_names);
        if (value->data)
            wok_graph_constant(w->model, info->name, value->dtype, value->rank, value->dims, value->data, value->bytes,
                               kind(w));
        w->map[inputs[i]] = v;
    }
}

static void write_outputs(wok_qwriter *w) {
    int count;
    const wok_value *outputs = wok_graph_outputs(w->graph->model, &count);
    for (int i = 0; i < count; i++) wok_graph_output(w->model, wok_qwriter_value(w, outputs[i]));
}

static void write_nodes(wok_qwriter *w, wok_qform form, const int *layer_of) {
    wok_quant *q = w->q;
    for (int n = 0; n < w->graph->node_count && !wok_model_failed(w->model); n++) {
        const wok_qnode *node = &w->graph->nodes[n];
        if (node->dead) continue;
        const wok_qlayer *layer = layer_of[n] ? &q->layers[layer_of[n] - 1] : NULL;
        bool quantised = form == QUANTISED && layer && !layer->reason;
        if (quantised)
            write_layer(w, layer, wok_qwriter_value(w, layer->y));
        else if (form != QUANTISED || !wok_quant_is_static(q) || layer || !wok_quant_write_plain(w, n))
            write_as_it_is(w, node);
        if (form == PROBE && layer && !layer->fixed) write_probe(w, layer);
    }
}

static bool start(wok_qwriter *w, wok_qform form, int **layer_of) {
    size_t values = (size_t)w->graph->value_count, nodes = (size_t)w->graph->node_count;
    w->map = wok_qpool_alloc(&w->pool, values * 4, sizeof *w->map);
    *layer_of = wok_qpool_alloc(&w->pool, nodes, sizeof **layer_of);
    w->written = wok_qpool_alloc(&w->pool, (size_t)w->q->layer_count, sizeof *w->written);
    w->how = wok_qpool_alloc(&w->pool, nodes, 1);
    w->ranges = wok_qpool_alloc(&w->pool, values, sizeof *w->ranges);
    if (!w->map || !*layer_of || !w->written || !w->how || !w->ranges) return false;
    for (size_t i = 0; i < values * 4; i++) w->map[i] = WOK_ABSENT;
    w->coded = w->map + values;
    w->scales = w->coded + values;
    w->zeros = w->scales + values;
    for (int i = 0; i < w->q->layer_count; i++) {
        (*layer_of)[w->q->layers[i].node] = i + 1;
        w->written[i] = WOK_ABSENT;
    }
    if (form != FLOAT && wok_quant_is_static(w->q)) wok_quant_plan(w->q, *layer_of, w->how, w->ranges);
    return true;
}

static wok_status write_model(wok_quant *q, wok_qform form, bool copy, wok_model **model) {
    wok_qwriter w = {.q = q, .graph = &q->graph, .pool = {.ctx = q->ctx}, .copy = copy};
    int *layer_of;
    wok_status status = wok_model_new(q->ctx, "onnx", &w.model);
    if (status == WOK_OK && !start(&w, form, &layer_of)) status = WOK_ERR_MEMORY;
    if (status == WOK_OK) {
        write_header(&w, form);
        write_inputs(&w);
        write_nodes(&w, form, layer_of);
        write_outputs(&w);
        status = wok_model_finish(w.model, NULL);
    }
    wok_qpool_free(&w.pool);
    if (status != WOK_OK) wok_model_free(&w.model);
    *model = w.model;
    return status;
}

wok_status wok_quant_write(wok_quant *q, bool copy, wok_model **model) {
    return write_model(q, QUANTISED, copy, model);
}
wok_status wok_quant_write_float(wok_quant *q, wok_model **model) {
    return write_model(q, FLOAT, false, model);
}
wok_status wok_quant_write_probe(wok_quant *q, wok_model **model) {
    return write_model(q, PROBE, false, model);
}

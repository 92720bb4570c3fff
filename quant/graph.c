/* graph.c - a model's graph as something that can be changed. */
#include "quant.h"

/* ---- growing -------------------------------------------------------------------------------------------------------- */

static bool room(wok_qpool *pool, void **items, int *capacity, int count, size_t size) {
    if (count < *capacity) return true;
    int wanted = *capacity > 0 ? 2 * *capacity : 64;
    void *grown = wok_qpool_alloc(pool, (size_t)wanted, size);
    if (!grown) return false;
    if (count) memcpy(grown, *items, (size_t)count * size);
    *items = grown;
    *capacity = wanted;
    return true;
}

wok_value wok_qgraph_value(wok_qgraph *g, const char *name) {
    void *values = g->values;
    if (!name || !room(g->pool, &values, &g->value_capacity, g->value_count, sizeof *g->values)) return WOK_ABSENT;
    g->values = values;
    g->values[g->value_count] = (wok_qvalue){.name = name, .rank = -1, .producer = -1};
    return g->value_count++;
}

wok_value wok_qgraph_constant(wok_qgraph *g, const char *name, wok_dtype dtype, int rank, const int64_t *dims,
                              const void *data) {
    wok_value v = data ? wok_qgraph_value(g, name) : WOK_ABSENT;
    if (v < 0) return WOK_ABSENT;
    wok_qvalue *value = &g->values[v];
    value->dtype = dtype;
    value->rank = rank;
    value->data = data;
    value->bytes = wok_dtype_size(dtype);
    for (int i = 0; i < rank; i++) {
        value->dims[i] = dims[i];
        value->bytes *= (size_t)dims[i];
    }
    return v;
}

static wok_value *copy_ids(wok_qpool *pool, const wok_value *ids, int count) {
    wok_value *copy = wok_qpool_alloc(pool, (size_t)count, sizeof *copy);
    if (copy && count) memcpy(copy, ids, (size_t)count * sizeof *copy);
    return copy;
}

static wok_status add_node(wok_qgraph *g, wok_qnode node) {
    void *nodes = g->nodes;
    node.in = copy_ids(g->pool, node.in, node.in_count);
    node.out = copy_ids(g->pool, node.out, node.out_count);
    if (!node.name || !node.in || !node.out ||
        !room(g->pool, &nodes, &g->node_capacity, g->node_count, sizeof *g->nodes))
        return WOK_ERR_MEMORY;
    g->nodes = nodes;
    g->nodes[g->node_count++] = node;
    return WOK_OK;
}

wok_status wok_qgraph_node(wok_qgraph *g, const char *op, const char *name, const wok_value *in, int in_count,
                           wok_value out) {
    for (int i = 0; i < in_count; i++)
        if (in[i] < 0) return WOK_ERR_MEMORY; /* a constant that could not be made */
    return add_node(g, (wok_qnode){.op = op,
                                   .domain = "",
                                   .name = name,
                                   .in = (wok_value *)(uintptr_t)in,
                                   .in_count = in_count,
                                   .out = &out,
                                   .out_count = 1});
}

const char *wok_qgraph_unique(const wok_qgraph *g, const char *name) {
    for (int v = 0; name && v < g->value_count; v++) {
        if (strcmp(g->values[v].name, name) != 0) continue;
        name = wok_qpool_format(g->pool, "%s_", name);
        v = -1;
    }
    return name;
}

wok_value wok_qgraph_replace(wok_qgraph *g, wok_value old, const float *data) {
    const wok_qvalue from = g->values[old];
    const char *fresh = wok_qgraph_unique(g, wok_qpool_format(g->pool, "%s_1", from.name));
    wok_value v = fresh ? wok_qgraph_constant(g, fresh, WOK_F32, from.rank, from.dims, data) : WOK_ABSENT;
    if (v >= 0 && from.readers <= 1) { /* nobody else knows it by that name */
        g->values[v].name = from.name;
        g->values[old].name = fresh;
    }
    return v;
}

/* ---- reading -------------------------------------------------------------------------------------------------------- */

static wok_status read_values(wok_qgraph *g) {
    for (int v = 0; v < wok_graph_value_count(g->model); v++) {
        wok_value_view view = wok_graph_value_at(g->model, v);
        if (wok_qgraph_value(g, view.name) < 0) return WOK_ERR_MEMORY;
        wok_qvalue *value = &g->values[v];
        value->dtype = view.dtype;
        value->rank = view.rank;
        value->data = view.data;
        value->bytes = view.bytes;
        value->is_input = view.is_input;
        value->is_output = view.is_output;
        value->only_attr = view.only_attr;
        memcpy(value->dims, view.dims, sizeof view.dims);
        memcpy(value->dim_names, view.dim_names, sizeof view.dim_names);
    }
    return WOK_OK;
}

static wok_status read_nodes(wok_qgraph *g) {
    for (int n = 0; n < wok_graph_node_count(g->model); n++) {
        wok_node_view view = wok_graph_node_at(g->model, n);
        wok_qnode node = {.op = view.op_type,
                          .domain = view.domain,
                          .name = view.name,
                          .in = (wok_value *)(uintptr_t)view.inputs,
                          .in_count = view.input_count,
                          .out = (wok_value *)(uintptr_t)view.outputs,
                          .out_count = view.output_count,
                          .attr_count = view.attr_count};
        node.attrs = wok_qpool_alloc(g->pool, (size_t)view.attr_count, sizeof *node.attrs);
        if (!node.attrs) return WOK_ERR_MEMORY;
        if (view.attr_count) memcpy(node.attrs, view.attrs, (size_t)view.attr_count * sizeof *node.attrs);
        WOK_TRYQ(add_node(g, node));
    }
    return WOK_OK;
}

wok_status wok_qgraph_read(wok_qgraph *g, const wok_model *model, wok_qpool *pool) {
    *g = (wok_qgraph){.pool = pool, .model = model, .opset = wok_model_describe(model)->opset};
    WOK_TRYQ(read_values(g));
    WOK_TRYQ(read_nodes(g));
    wok_qgraph_index(g);
    return WOK_OK;
}

void wok_qgraph_index(wok_qgraph *g) {
    for (int v = 0; v < g->value_count; v++) {
        g->values[v].producer = -1;
        g->values[v].readers = g->values[v].is_output ? 1 : 0;
    }
    for (int n = 0; n < g->node_count; n++) {
        const wok_qnode *node = &g->nodes[n];
        if (node->dead) continue;
        for (int i = 0; i < node->in_count; i++)
            if (node->in[i] >= 0) g->values[node->in[i]].readers++;
        for (int i = 0; i < node->out_count; i++)
            if (node->out[i] >= 0) g->values[node->out[i]].producer = n;
    }
}

/* ---- asking --------------------------------------------------------------------------------------------------------- */

const wok_attr *wok_qnode_attr(const wok_qnode *node, const char *name) {
    for (int i = 0; i < node->attr_count; i++)
        if (strcmp(node->attrs[i].name, name) == 0) return &node->attrs[i];
    return NULL;
}

int64_t wok_qnode_int(const wok_qnode *node, const char *name, int64_t fallback) {
    const wok_attr *a = wok_qnode_attr(node, name);
    return a && a->kind == WOK_ATTR_INT ? a->u.i : fallback;
}

float wok_qnode_float(const wok_qnode *node, const char *name, float fallback) {
    const wok_attr *a = wok_qnode_attr(node, name);
    return a && a->kind == WOK_ATTR_FLOAT ? a->u.f : fallback;
}

int wok_qgraph_only_reader(const wok_qgraph *g, wok_value v) {
    if (v < 0 || g->values[v].readers != 1 || g->values[v].is_output) return -1;
    for (int n = 0; n < g->node_count; n++) {
        if (g->nodes[n].dead) continue;
        for (int i = 0; i < g->nodes[n].in_count; i++)
            if (g->nodes[n].in[i] == v) return n;
    }
    return -1;
}

/* cmd_positions.c - how long a sequence a model takes.
 *
 * An encoder with learned positions holds a table of them, a row a position, and fails (or worse, reads something else)
 * beyond its last row. A Hugging Face folder says in its config how many rows there are. In an ONNX file the table is what
 * is gathered by indices that count up: from a constant 0, 1, 2 ... (PyTorch's position_ids buffer, cut to the sequence) or
 * from a Range; or the fourth input of EmbedLayerNormalization. */
#include "cmd_model.h"
#include "wok_build.h"

#include <stdlib.h>
#include <string.h>

enum { FAR = 16 }; /* nodes between a table and its Gather, or between the counting and its Gather */

typedef struct graph {
    const wok_model *model;
    wok_node *producers; /* of every value; -1: none */
} graph;

static bool is_one_of(const char *op, const char *const *list) {
    while (*list && strcmp(*list, op) != 0) list++;
    return *list != NULL;
}

/* The constant that a value is: an initializer, or what a Constant node holds. False if it is none. */
static bool constant(const graph *g, wok_value value, wok_value_view *view) {
    *view = wok_graph_value_at(g->model, value);
    if (view->data || g->producers[value] < 0) return view->data != NULL;
    wok_node_view node = wok_graph_node_at(g->model, g->producers[value]);
    for (int i = 0; i < node.attr_count && !strcmp(node.op_type, "Constant"); i++)
        if (node.attrs[i].kind == WOK_ATTR_TENSOR) {
            *view = wok_graph_value_at(g->model, node.attrs[i].u.tensor);
            return view->data != NULL;
        }
    return false;
}

/* Back along first inputs through operators of `list`. */
static wok_value origin(const graph *g, wok_value value, const char *const *list) {
    for (int i = 0; i < FAR && value >= 0 && g->producers[value] >= 0; i++) {
        wok_node_view node = wok_graph_node_at(g->model, g->producers[value]);
        if (!is_one_of(node.op_type, list) || node.input_count < 1) break;
        value = node.inputs[0];
    }
    return value;
}

/* 0, 1, 2 ... of at least two numbers: their count. Else 0. */
static int64_t counts_up(const wok_value_view *view) {
    size_t size = view->dtype == WOK_I64 ? 8 : view->dtype == WOK_I32 ? 4 : 0;
    int64_t count = size ? (int64_t)(view->bytes / size) : 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t wide;
        int32_t narrow;
        memcpy(size == 8 ? (void *)&wide : (void *)&narrow, (const char *)view->data + (size_t)i * size, size);
        if ((size == 8 ? wide : narrow) != i) return 0;
    }
    return count > 1 ? count : 0;
}

static int64_t rows(const graph *g, wok_value table) {
    static const char *const harmless[] = {"DequantizeLinear", "Cast", "Identity", NULL};
    wok_value_view view;
    table = origin(g, table, harmless);
    return table >= 0 && constant(g, table, &view) && view.rank == 2 ? view.dims[0] : 0;
}

static int64_t smaller(int64_t a, int64_t b) {
    return a > 0 && (b <= 0 || a < b) ? a : b;
}

/* Rows that indices can reach; 0 if they do not count up. */
static int64_t reach(const graph *g, wok_value indices, int64_t table_rows) {
    static const char *const harmless[] = {"Slice",  "Cast",    "Identity", "Unsqueeze", "Squeeze",
                                           "Expand", "Reshape", "Add",      NULL};
    wok_value_view view;
    wok_value from = origin(g, indices, harmless);
    if (from < 0) return 0;
    if (constant(g, from, &view)) return counts_up(&view) ? smaller(counts_up(&view), table_rows) : 0;
    return g->producers[from] >= 0 && !strcmp(wok_graph_node_at(g->model, g->producers[from]).op_type, "Range")
               ? table_rows
               : 0;
}

/* Positions that a node has room for; 0 if it knows nothing of positions. */
static int64_t positions_of(const graph *g, const wok_node_view *node) {
    if (!strcmp(node->op_type, "EmbedLayerNormalization")) return node->input_count > 3 ? rows(g, node->inputs[3]) : 0;
    if (strcmp(node->op_type, "Gather") != 0 || node->input_count < 2) return 0;
    int64_t table_rows = rows(g, node->inputs[0]);
    return table_rows ? reach(g, node->inputs[1], table_rows) : 0;
}

int64_t cmd_model_positions(const wok_model *model) {
    const char *text = wok_model_metadata(model, "max_position_embeddings");
    int64_t longest = text ? strtoll(text, NULL, 10) : 0;
    int values = wok_graph_value_count(model), nodes = wok_graph_node_count(model);
    graph g = {model, malloc(((size_t)values + 1) * sizeof *g.producers)};
    if (longest > 0 || !g.producers) {
        free(g.producers);
        return longest > 0 ? longest : 0;
    }
    for (int i = 0; i < values; i++) g.producers[i] = -1;
    for (int i = 0; i < nodes; i++) {
        wok_node_view node = wok_graph_node_at(model, i);
        for (int k = 0; k < node.output_count; k++)
            if (node.outputs[k] >= 0) g.producers[node.outputs[k]] = i;
    }
    for (int i = 0; i < nodes; i++) {
        wok_node_view node = wok_graph_node_at(model, i);
        longest = smaller(positions_of(&g, &node), longest);
    }
    free(g.producers);
    return longest;
}

/* model.c - building a model, checking it, reading it back. */
#include "model.h"
#include "ctx.h"
#include "op.h"
#include "tensor.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- life -------------------------------------------------------------------------------------------------------------- */

wok_status wok_model_new(wok_ctx *ctx, const char *format, wok_model **handle) {
    *handle = NULL;
    wok_status status = wok_ctx_check(ctx);
    if (status != WOK_OK) return status;
    wok_model *model = wok_ctx_alloc(ctx, sizeof *model);
    if (!model) return wok_ctx_last(ctx);
    *model = (wok_model){.ctx = ctx, .graph = wok_ir_new(ctx), .info = {.ir_version = 10, .producer = ""}};
    if (model->graph) model->info.format = wok_arena_strdup(model->graph->arena, format ? format : "");
    if (!model->info.format) {
        status = wok_ctx_last(ctx);
        wok_model_free(&model);
        return status;
    }
    *handle = model;
    return WOK_OK;
}

void wok_model_free(wok_model **handle) {
    if (!handle || !*handle) return;
    wok_model *model = *handle;
    *handle = NULL;
    for (wok_blob *b = model->blobs; b; b = b->next) b->release(b->user);
    wok_ir_free(model->graph);
    wok_ctx_release(model->ctx, model, sizeof *model);
}

wok_status wok_model_own(wok_model *model, const void *base, size_t bytes, void (*release)(void *user),
                         void (*forget)(void *user, const void *ptr, size_t bytes), void *user) {
    wok_blob *blob = wok_arena_alloc(model->graph->arena, sizeof *blob);
    if (!blob) {
        release(user);
        wok_model_fail(model, wok_ctx_last(model->ctx), "%s", wok_ctx_error(model->ctx));
        return model->status;
    }
    *blob = (wok_blob){base, bytes, release, forget, user, model->blobs};
    model->blobs = blob;
    return WOK_OK;
}

void wok_model_forget(const wok_model *model, const void *ptr, size_t bytes) {
    for (const wok_blob *b = model->blobs; b; b = b->next)
        if (b->forget && (const char *)ptr >= b->base && (const char *)ptr < b->base + b->bytes)
            b->forget(b->user, ptr, bytes);
}

wok_ctx *wok_model_ctx(const wok_model *model) {
    return model->ctx;
}

/* ---- failures ------------------------------------------------------------------------------------------------------------ */

void wok_model_fail(wok_model *model, wok_status status, const char *format, ...) {
    char text[4096];
    if (model->status != WOK_OK) return;
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    model->status = status == WOK_OK ? WOK_ERR_FORMAT : status;
    const char *kept = wok_arena_strdup(model->graph->arena, text);
    model->error = kept ? kept : wok_status_name(model->status);
    wok_ctx_fail(model->ctx, model->status, "%s", text);
}

/* A failure inside the graph (no memory, a duplicate) becomes the model's. */
static bool broken(wok_model *model) {
    if (model->status == WOK_OK && model->graph->status != WOK_OK)
        wok_model_fail(model, model->graph->status, "%s", wok_ctx_error(model->ctx));
    return model->status != WOK_OK;
}

bool wok_model_failed(const wok_model *model) {
    return model->status != WOK_OK || model->graph->status != WOK_OK;
}

static const char *copy_text(wok_model *model, const char *text) {
    const char *copy = wok_arena_strdup(model->graph->arena, text ? text : "");
    if (!copy) wok_model_fail(model, wok_ctx_last(model->ctx), "%s", wok_ctx_error(model->ctx));
    return copy;
}

static void *copy_bytes(wok_model *model, const void *data, size_t bytes) {
    void *copy = wok_arena_alloc(model->graph->arena, bytes ? bytes : 1);
    if (!copy)
        wok_model_fail(model, wok_ctx_last(model->ctx), "%s", wok_ctx_error(model->ctx));
    else if (bytes)
        memcpy(copy, data, bytes);
    return copy;
}

/* ---- what the file says about itself ---------------------------------------------------------------------------------------- */

static wok_pair *find_pair(wok_pair *list, const char *key) {
    for (; list; list = list->next)
        if (strcmp(list->key, key) == 0) return list;
    return NULL;
}

static wok_pair *set_pair(wok_model *model, wok_pair **list, const char *key) {
    wok_pair *pair = find_pair(*list, key);
    if (pair || broken(model)) return pair;
    pair = copy_bytes(model, &(wok_pair){0}, sizeof *pair);
    if (!pair || !(pair->key = copy_text(model, key))) return NULL;
    while (*list) list = &(*list)->next;
    return *list = pair;
}

static const char *plain_domain(const char *domain) {
    return !domain || strcmp(domain, "ai.onnx") == 0 ? "" : domain;
}

void wok_model_set_opset(wok_model *model, const char *domain, int64_t version) {
    wok_pair *pair = set_pair(model, &model->opsets, plain_domain(domain));
    if (pair) pair->version = version;
}

void wok_model_set_ir(wok_model *model, int64_t ir_version, const char *producer) {
    model->info.ir_version = ir_version;
    const char *text = copy_text(model, producer);
    if (text) model->info.producer = text;
}

void wok_model_set_metadata(wok_model *model, const char *key, const char *value) {
    wok_pair *pair = set_pair(model, &model->metadata, key);
    if (pair) pair->value = copy_text(model, value);
}

/* ---- values -------------------------------------------------------------------------------------------------------------- */

wok_value wok_graph_value(wok_model *model, const char *name) {
    return broken(model) ? WOK_ABSENT : wok_ir_value_named(model->graph, name);
}

/* The type that a declaration spells out, and the names of its free dimensions; false (and the failure) if it cannot be
 * one. */
static bool read_type(wok_model *model, const char *name, wok_dtype dtype, int rank, const int64_t *dims,
                      const char *const *dim_names, wok_type *type, const char **names) {
    if (rank > WOK_MAX_RANK) {
        wok_model_fail(model, WOK_ERR_UNSUPPORTED, "'%s' has %d dimensions, more than %d", name, rank, WOK_MAX_RANK);
        return false;
    }
    *type = (wok_type){.dtype = dtype, .rank = rank < 0 ? -1 : rank};
    for (int i = 0; i < rank; i++) {
        const char *dim_name = dim_names && dim_names[i] && dim_names[i][0] ? dim_names[i] : NULL;
        if (dims[i] < -1) {
            wok_model_fail(model, WOK_ERR_FORMAT, "'%s': dimension %d is %lld", name, i, (long long)dims[i]);
            return false;
        }
        if (dims[i] < 0 && dim_name && !(names[i] = copy_text(model, dim_name))) return false;
        type->dims[i] = dims[i] >= 0 ? dims[i] : wok_dim_symbol(model->graph, dim_name);
    }
    return !broken(model);
}

static bool declare(wok_model *model, wok_value v, wok_dtype dtype, int rank, const int64_t *dims,
                    const char *const *dim_names) {
    wok_type type;
    const char *names[WOK_MAX_RANK] = {NULL};
    if (!read_type(model, model->graph->values[v].name, dtype, rank, dims, dim_names, &type, names)) return false;
    wok_ir_value *value = &model->graph->values[v];
    type.data = value->type.data;
    type.bytes = value->type.bytes;
    value->type = type;
    memcpy(value->dim_names, names, sizeof names);
    return true;
}

/* The value is both an input and a constant: keeps what may be set apart from what stands in for it. */
static bool keep_declared(wok_model *model, wok_value v, const wok_type *type, const char *const *names) {
    wok_ir_value *value = &model->graph->values[v];
    wok_dtype dtype = value->type.dtype;
    if (type->dtype != WOK_NONE && type->dtype != dtype) {
        wok_model_fail(model, WOK_ERR_FORMAT, "input '%s' is declared as %s, but its default is %s", value->name,
                       wok_dtype_name(type->dtype), wok_dtype_name(dtype));
        return false;
    }
    wok_type *kept = copy_bytes(model, type, sizeof *type);
    if (!kept) return false;
    kept->dtype = dtype;
    kept->data = NULL;
    kept->bytes = 0;
    value->declared = kept;
    memcpy(value->dim_names, names, sizeof value->dim_names);
    return true;
}

static bool append(wok_model *model, wok_value **list, int *count, int *capacity, wok_value v) {
    if (*count == *capacity) {
        int wanted = *capacity ? 2 * *capacity : 8;
        wok_value *grown = wok_arena_alloc(model->graph->arena, (size_t)wanted * sizeof *grown);
        if (!grown) {
            wok_model_fail(model, wok_ctx_last(model->ctx), "%s", wok_ctx_error(model->ctx));
            return false;
        }
        if (*count) memcpy(grown, *list, (size_t)*count * sizeof *grown);
        *list = grown;
        *capacity = wanted;
    }
    (*list)[(*count)++] = v;
    return true;
}

wok_value wok_graph_input(wok_model *model, const char *name, wok_dtype dtype, int rank, const int64_t *dims,
                          const char *const *dim_names) {
    wok_value v = wok_graph_value(model, name);
    if (v < 0) return WOK_ABSENT;
    wok_graph *graph = model->graph;
    if (graph->values[v].is_input) {
        wok_model_fail(model, WOK_ERR_FORMAT, "the graph has two inputs called '%s'", name);
        return WOK_ABSENT;
    }
    wok_type type;
    const char *names[WOK_MAX_RANK] = {NULL};
    if (!graph->values[v].type.data) {
        if (!declare(model, v, dtype, rank, dims, dim_names)) return WOK_ABSENT;
    } else if (!read_type(model, graph->values[v].name, dtype, rank, dims, dim_names, &type, names) ||
               !keep_declared(model, v, &type, names)) {
        return WOK_ABSENT;
    }
    if (!append(model, &graph->inputs, &graph->input_count, &graph->input_capacity, v)) return WOK_ABSENT;
    graph->values[v].is_input = true;
    return v;
}

wok_value wok_graph_constant(wok_model *model, const char *name, wok_dtype dtype, int rank, const int64_t *dims,
                             const void *data, size_t bytes, wok_data_kind kind) {
    static const char nothing[1]; /* what an empty constant points at */
    if (broken(model)) return WOK_ABSENT;
    wok_value v = name ? wok_ir_value_named(model->graph, name) : wok_ir_value_new(model->graph, "constant");
    if (v < 0) return WOK_ABSENT;
    const char *shown = model->graph->values[v].name;
    if (model->graph->values[v].type.data) {
        wok_model_fail(model, WOK_ERR_FORMAT, "the graph has two constants called '%s'", shown);
        return WOK_ABSENT;
    }
    wok_ir_value declared = model->graph->values[v];
    if (rank < 0 || !declare(model, v, dtype, rank, dims, NULL)) {
        wok_model_fail(model, WOK_ERR_FORMAT, "constant '%s' has no shape", shown);
        return WOK_ABSENT;
    }
    size_t need = wok_tensor_bytes(dtype, dims, rank);
    if (need != bytes || (!data && bytes)) {
        wok_model_fail(model, WOK_ERR_FORMAT, "constant '%s' has %zu bytes of data, but its shape %s %s%s", shown,
                       bytes, wok_shape_text(dims, rank), wok_dtype_name(dtype),
                       need == SIZE_MAX ? " is not one that can be stored" : " takes another number");
        return WOK_ABSENT;
    }
    if (declared.is_input && !keep_declared(model, v, &declared.type, declared.dim_names)) return WOK_ABSENT;
    if (bytes && kind == WOK_DATA_COPY) data = copy_bytes(model, data, bytes);
    model->graph->values[v].type.data = bytes ? data : nothing;
    model->graph->values[v].type.bytes = bytes;
    return broken(model) ? WOK_ABSENT : v;
}

static bool valid_value(wok_model *model, wok_value v) {
    return v >= 0 && v < model->graph->value_count;
}

void wok_graph_declare(wok_model *model, wok_value v, wok_dtype dtype, int rank, const int64_t *dims,
                       const char *const *dim_names) {
    if (broken(model) || !valid_value(model, v)) return;
    wok_ir_value *value = &model->graph->values[v];
    if (!value->is_input && !value->type.data) declare(model, v, dtype, rank, dims, dim_names);
}

void wok_graph_output(wok_model *model, wok_value v) {
    if (broken(model)) return;
    if (!valid_value(model, v)) {
        wok_model_fail(model, WOK_ERR_ARGUMENT, "an output of the graph is no value");
        return;
    }
    wok_graph *graph = model->graph;
    if (graph->values[v].is_output) {
        wok_model_fail(model, WOK_ERR_FORMAT, "the graph has two outputs called '%s'", graph->values[v].name);
        return;
    }
    if (append(model, &graph->outputs, &graph->output_count, &graph->output_capacity, v))
        graph->values[v].is_output = true;
}

/* ---- nodes ---------------------------------------------------------------------------------------------------------------- */

wok_node wok_graph_node(wok_model *model, const char *op_type, const char *domain, const char *name,
                        const wok_value *inputs, int input_count, const wok_value *outputs, int output_count) {
    if (broken(model)) return WOK_ABSENT;
    bool any = false;
    for (int i = 0; i < output_count; i++) any |= outputs[i] >= 0;
    /* A name of its own, so that every sentence about the node can name it. */
    char fresh[160];
    if (!name || !*name) {
        snprintf(fresh, sizeof fresh, "%.120s_%d", op_type, model->graph->node_count);
        name = fresh;
    }
    if (input_count > WOK_MAX_IN || output_count > WOK_MAX_OUT || !any) {
        wok_model_fail(model, any ? WOK_ERR_UNSUPPORTED : WOK_ERR_FORMAT,
                       "node '%s' (%s) has %d inputs and %d outputs; at most %d and 1 to %d are supported", name,
                       op_type, input_count, output_count, WOK_MAX_IN, WOK_MAX_OUT);
        return WOK_ABSENT;
    }
    domain = plain_domain(domain);
    wok_node id =
        wok_ir_node_new(model->graph, wok_op_find(domain, op_type), name, inputs, input_count, outputs, output_count);
    if (id < 0) return broken(model), WOK_ABSENT;
    model->graph->nodes[id].op_type = copy_text(model, op_type);
    model->graph->nodes[id].domain = copy_text(model, domain);
    return broken(model) ? WOK_ABSENT : id;
}

wok_value wok_graph_op(wok_model *model, const char *op_type, const char *domain, const char *name,
                       const wok_value *inputs, int input_count, const char *output) {
    if (broken(model)) return WOK_ABSENT;
    wok_value out =
        output ? wok_ir_value_named(model->graph, output) : wok_ir_value_new(model->graph, name ? name : op_type);
    return wok_graph_node(model, op_type, domain, name, inputs, input_count, &out, 1) < 0 ? WOK_ABSENT : out;
}

wok_node wok_graph_last(const wok_model *model) {
    return model->graph->node_count - 1;
}

static wok_attr *add_attr(wok_model *model, wok_node node, const char *name, wok_attr_kind kind) {
    if (broken(model) || node < 0 || node >= model->graph->node_count) return NULL;
    const wok_ir_node *n = &model->graph->nodes[node];
    for (int i = 0; i < n->attr_count; i++) {
        if (strcmp(n->attrs[i].name, name) != 0) continue;
        wok_model_fail(model, WOK_ERR_FORMAT, "node '%s' (%s) has two attributes called '%s'", n->name, n->op_type,
                       name);
        return NULL;
    }
    wok_attr *attr = wok_ir_attr_add(model->graph, node, name, kind);
    broken(model);
    return attr;
}

void wok_node_set_int(wok_model *model, wok_node node, const char *name, int64_t value) {
    wok_attr *attr = add_attr(model, node, name, WOK_ATTR_INT);
    if (attr) attr->u.i = value;
}

void wok_node_set_float(wok_model *model, wok_node node, const char *name, float value) {
    wok_attr *attr = add_attr(model, node, name, WOK_ATTR_FLOAT);
    if (attr) attr->u.f = value;
}

static const char *copy_string(wok_model *model, const char *text, size_t length) {
    char *copy = wok_arena_alloc(model->graph->arena, length + 1);
    if (!copy)
        wok_model_fail(model, wok_ctx_last(model->ctx), "%s", wok_ctx_error(model->ctx));
    else if (length)
        memcpy(copy, text, length);
    return copy;
}

void wok_node_set_string(wok_model *model, wok_node node, const char *name, const char *text, size_t length) {
    wok_attr *attr = add_attr(model, node, name, WOK_ATTR_STRING);
    if (!attr) return;
    attr->u.s = copy_string(model, text, length);
    attr->count = (int64_t)length;
}

void wok_node_set_ints(wok_model *model, wok_node node, const char *name, const int64_t *values, int64_t count) {
    wok_attr *attr = add_attr(model, node, name, WOK_ATTR_INTS);
    if (!attr) return;
    attr->u.ints = copy_bytes(model, values, (size_t)count * sizeof *values);
    attr->count = count;
}

void wok_node_set_floats(wok_model *model, wok_node node, const char *name, const float *values, int64_t count) {
    wok_attr *attr = add_attr(model, node, name, WOK_ATTR_FLOATS);
    if (!attr) return;
    attr->u.floats = copy_bytes(model, values, (size_t)count * sizeof *values);
    attr->count = count;
}

void wok_node_set_strings(wok_model *model, wok_node node, const char *name, const char *const *values, int64_t count) {
    wok_attr *attr = add_attr(model, node, name, WOK_ATTR_STRINGS);
    const char **copy = attr ? copy_bytes(model, values, (size_t)count * sizeof *values) : NULL;
    if (!copy) return;
    for (int64_t i = 0; i < count; i++) copy[i] = copy_text(model, values[i]);
    attr->u.strings = copy;
    attr->count = count;
}

void wok_node_set_tensor(wok_model *model, wok_node node, const char *name, wok_value constant) {
    wok_attr *attr = add_attr(model, node, name, WOK_ATTR_TENSOR);
    if (!attr) return;
    attr->u.tensor = constant;
    if (valid_value(model, constant)) model->graph->values[constant].only_attr = true;
}

void wok_node_set_opaque(wok_model *model, wok_node node, const char *name, const char *kind) {
    wok_attr *attr = add_attr(model, node, name, WOK_ATTR_OPAQUE);
    if (attr) attr->u.s = copy_text(model, kind);
}

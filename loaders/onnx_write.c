/* onnx_write.c - a model back into ONNX, as it was loaded: the weights are referenced, not copied, until they are
 * written.
 *
 * protobuf ends at 2 GiB, so beyond a limit the weights go to a file beside the model ("model.onnx.data", the common
 * name), each at a multiple of 64 bytes. Both files are complete under temporary names before either is renamed. What
 * no run depends on (doc strings, the producer's own annotations) is not kept. */
#define _DEFAULT_SOURCE
#include "onnx.h"

#include "outfile.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { DATA_ALIGN = 64, DATA_SMALLEST = 1024 }; /* smaller tensors stay in the model: shapes are needed to load it */

typedef struct writer {
    wok_ctx *ctx;
    const wok_model *model;
    wok_wire_out wire;
    wok_outfile *data; /* NULL: no external data */
    const char *data_name;
} writer;

static wok_status fail_node(writer *w, const wok_node_view *node, const char *attribute) {
    return wok_ctx_fail(w->ctx, WOK_ERR_UNSUPPORTED,
                        "node '%s' (%s): attribute '%s' was not loaded and cannot be written", node->name,
                        node->op_type, attribute);
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

static void put_entry(writer *w, uint32_t field, const char *key, const char *value) {
    wok_wire_mark mark = wok_wire_begin(&w->wire, field);
    wok_wire_put_text(&w->wire, ENTRY_KEY, key);
    wok_wire_put_text(&w->wire, ENTRY_VALUE, value);
    wok_wire_end(&w->wire, mark);
}

static void put_external(writer *w, const void *data, size_t bytes) {
    char number[24];
    wok_outfile_pad(w->data, DATA_ALIGN);
    put_entry(w, TENSOR_EXTERNAL_DATA, "location", w->data_name);
    snprintf(number, sizeof number, "%llu", (unsigned long long)w->data->written);
    put_entry(w, TENSOR_EXTERNAL_DATA, "offset", number);
    snprintf(number, sizeof number, "%zu", bytes);
    put_entry(w, TENSOR_EXTERNAL_DATA, "length", number);
    wok_wire_put_int(&w->wire, TENSOR_DATA_LOCATION, 1);
    wok_outfile_write(w->data, data, bytes);
}

static void put_tensor(writer *w, uint32_t field, wok_value value, bool named) {
    wok_value_view v = wok_graph_value_at(w->model, value);
    wok_wire_mark mark = wok_wire_begin(&w->wire, field);
    wok_wire_put_packed_ints(&w->wire, TENSOR_DIMS, v.dims, v.rank > 0 ? v.rank : 0);
    wok_wire_put_int(&w->wire, TENSOR_DATA_TYPE, v.dtype);
    if (named) wok_wire_put_text(&w->wire, TENSOR_NAME, v.name);
    if (w->data && named && v.bytes >= DATA_SMALLEST)
        put_external(w, v.data, v.bytes);
    else
        wok_wire_put_bytes(&w->wire, TENSOR_RAW_DATA, v.data, v.bytes);
    wok_wire_end(&w->wire, mark);
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

static void put_dim(writer *w, int64_t size, const char *name) {
    wok_wire_mark mark = wok_wire_begin(&w->wire, SHAPE_DIM);
    if (size >= 0)
        wok_wire_put_int(&w->wire, DIM_VALUE, size);
    else if (name)
        wok_wire_put_text(&w->wire, DIM_PARAM, name);
    wok_wire_end(&w->wire, mark);
}

static void put_value_info(writer *w, uint32_t field, const char *name, wok_dtype dtype, int rank, const int64_t *dims,
                           const char *const *dim_names) {
    wok_wire_mark info = wok_wire_begin(&w->wire, field);
    wok_wire_put_text(&w->wire, VALUE_NAME, name);
    if (dtype != WOK_NONE) {
        wok_wire_mark type = wok_wire_begin(&w->wire, VALUE_TYPE);
        wok_wire_mark tensor = wok_wire_begin(&w->wire, TYPE_TENSOR_TYPE);
        wok_wire_put_int(&w->wire, TENSOR_TYPE_ELEM, dtype);
        if (rank >= 0) {
            wok_wire_mark shape = wok_wire_begin(&w->wire, TENSOR_TYPE_SHAPE);
            for (int i = 0; i < rank; i++) put_dim(w, dims[i], dim_names[i]);
            wok_wire_end(&w->wire, shape);
        }
        wok_wire_end(&w->wire, tensor);
        wok_wire_end(&w->wire, type);
    }
    wok_wire_end(&w->wire, info);
}

static void put_value(writer *w, uint32_t field, wok_value value) {
    wok_value_view v = wok_graph_value_at(w->model, value);
    put_value_info(w, field, v.name, v.dtype, v.rank, v.dims, v.dim_names);
}

/* An input's declared shape, which its default need not have. */
static void put_input(writer *w, int index) {
    const wok_value_info *info = wok_model_input(w->model, index);
    if (info) put_value_info(w, GRAPH_INPUT, info->name, info->dtype, info->rank, info->dims, info->dim_names);
}

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

static bool put_attribute(writer *w, const wok_attr *a) {
    static const uint32_t types[] = {
        [WOK_ATTR_INT] = TYPE_INT,      [WOK_ATTR_FLOAT] = TYPE_FLOAT,   [WOK_ATTR_STRING] = TYPE_STRING,
        [WOK_ATTR_INTS] = TYPE_INTS,    [WOK_ATTR_FLOATS] = TYPE_FLOATS, [WOK_ATTR_STRINGS] = TYPE_STRINGS,
        [WOK_ATTR_TENSOR] = TYPE_TENSOR};
    if (a->kind == WOK_ATTR_OPAQUE) return false;
    wok_wire_mark mark = wok_wire_begin(&w->wire, NODE_ATTRIBUTE);
    wok_wire_put_text(&w->wire, ATTRIBUTE_NAME, a->name);
    switch (a->kind) {
    case WOK_ATTR_INT: wok_wire_put_int(&w->wire, ATTRIBUTE_I, a->u.i); break;
    case WOK_ATTR_FLOAT: wok_wire_put_float(&w->wire, ATTRIBUTE_F, a->u.f); break;
    case WOK_ATTR_STRING: wok_wire_put_bytes(&w->wire, ATTRIBUTE_S, a->u.s, (size_t)a->count); break;
    /* not packed: onnx.proto declares these lists without it */
    case WOK_ATTR_INTS:
        for (int64_t i = 0; i < a->count; i++) wok_wire_put_int(&w->wire, ATTRIBUTE_INTS, a->u.ints[i]);
        break;
    case WOK_ATTR_FLOATS:
        for (int64_t i = 0; i < a->count; i++) wok_wire_put_float(&w->wire, ATTRIBUTE_FLOATS, a->u.floats[i]);
        break;
    case WOK_ATTR_STRINGS:
        for (int64_t i = 0; i < a->count; i++) wok_wire_put_text(&w->wire, ATTRIBUTE_STRINGS, a->u.strings[i]);
        break;
    default: put_tensor(w, ATTRIBUTE_T, a->u.tensor, false); break;
    }
    wok_wire_put_int(&w->wire, ATTRIBUTE_TYPE, types[a->kind]);
    wok_wire_end(&w->wire, mark);
    return true;
}

static const char *name_of(const writer *w, wok_value value) {
    return value == WOK_ABSENT ? "" : wok_graph_value_at(w->model, value).name;
}

static wok_status put_node(writer *w, wok_node id) {
    wok_node_view node = wok_graph_node_at(w->model, id);
    wok_wire_mark mark = wok_wire_begin(&w->wire, GRAPH_NODE);
    for (int i = 0; i < node.input_count; i++) wok_wire_put_text(&w->wire, NODE_INPUT, name_of(w, node.inputs[i]));
    for (int i = 0; i < node.output_count; i++) wok_wire_put_text(&w->wire, NODE_OUTPUT, name_of(w, node.outputs[i]));
    if (node.name && *node.name) wok_wire_put_text(&w->wire, NODE_NAME, node.name);
    wok_wire_put_text(&w->wire, NODE_OP_TYPE, node.op_type);
    for (int i = 0; i < node.attr_count; i++)
        if (!put_attribute(w, &node.attrs[i])) return fail_node(w, &node, node.attrs[i].name);
    if (*node.domain) wok_wire_put_text(&w->wire, NODE_DOMAIN, node.domain);
    wok_wire_end(&w->wire, mark);
    return WOK_OK;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static wok_status put_graph(writer *w) {
    wok_status status = WOK_OK;
    int count, values = wok_graph_value_count(w->model);
    wok_wire_mark mark = wok_wire_begin(&w->wire, MODEL_GRAPH);
    for (int i = 0; i < wok_graph_node_count(w->model) && status == WOK_OK; i++) status = put_node(w, i);
    wok_wire_put_text(&w->wire, GRAPH_NAME, wok_model_describe(w->model)->format);
    for (int i = 0; i < values; i++) {
        wok_value_view v = wok_graph_value_at(w->model, i);
        if (v.data && !v.only_attr) put_tensor(w, GRAPH_INITIALIZER, i, true);
    }
    for (int i = 0; i < wok_model_input_count(w->model); i++) put_input(w, i);
    const wok_value *outputs = wok_graph_outputs(w->model, &count);
    for (int i = 0; i < count; i++) put_value(w, GRAPH_OUTPUT, outputs[i]);
    for (int i = 0; i < values; i++) {
        wok_value_view v = wok_graph_value_at(w->model, i);
        if (!v.data && !v.is_input && !v.is_output && v.dtype != WOK_NONE) put_value(w, GRAPH_VALUE_INFO, i);
    }
    wok_wire_end(&w->wire, mark);
    return status;
}

static wok_status put_model(writer *w) {
    const wok_model_info *info = wok_model_describe(w->model);
    /* From IR 4 on weights need not be inputs, and ours are not. */
    wok_wire_put_int(&w->wire, MODEL_IR_VERSION, info->ir_version < 4 ? 4 : info->ir_version);
    if (info->producer && *info->producer) wok_wire_put_text(&w->wire, MODEL_PRODUCER_NAME, info->producer);
    wok_status status = put_graph(w);
    for (int i = 0; i < wok_model_opset_count(w->model); i++) {
        int64_t version;
        const char *domain = wok_model_opset_at(w->model, i, &version);
        wok_wire_mark mark = wok_wire_begin(&w->wire, MODEL_OPSET_IMPORT);
        wok_wire_put_text(&w->wire, OPSET_DOMAIN, domain);
        wok_wire_put_int(&w->wire, OPSET_VERSION, version);
        wok_wire_end(&w->wire, mark);
    }
    for (int i = 0; i < wok_model_metadata_count(w->model); i++) {
        const char *value, *key = wok_model_metadata_at(w->model, i, &value);
        put_entry(w, MODEL_METADATA, key, value);
    }
    if (status == WOK_OK) status = w->wire.status;
    if (status == WOK_OK && wok_wire_total(&w->wire) > INT32_MAX)
        status = wok_ctx_fail(w->ctx, WOK_ERR_LIMIT, "an ONNX file cannot be larger than 2 GiB");
    return status;
}

static wok_status write_message(writer *w, const char *path, wok_outfile **out) {
    wok_status status = wok_outfile_open(w->ctx, path, out);
    if (status != WOK_OK) return status;
    size_t at = 0;
    for (size_t i = 0; i < w->wire.ref_count; i++) {
        const struct wok_wire_ref *ref = &w->wire.refs[i];
        wok_outfile_write(*out, w->wire.data + at, ref->at - at);
        wok_outfile_write(*out, ref->span.data, ref->span.bytes);
        at = ref->at;
    }
    wok_outfile_write(*out, w->wire.data + at, w->wire.bytes - at);
    return wok_outfile_flush(*out);
}

static wok_status write_files(writer *w, const char *path, const char *data_path) {
    wok_outfile *out = NULL;
    wok_status status = data_path ? wok_outfile_open(w->ctx, data_path, &w->data) : WOK_OK;
    if (status == WOK_OK) status = put_model(w);
    if (status == WOK_OK && w->data) status = wok_outfile_flush(w->data);
    if (status == WOK_OK) status = write_message(w, path, &out);
    bool has_data = status == WOK_OK && w->data;
    if (has_data) status = wok_outfile_commit(&w->data);
    if (status == WOK_OK) {
        status = wok_outfile_commit(&out);
        if (status != WOK_OK && has_data) unlink(data_path);
    }
    wok_outfile_abort(&w->data);
    wok_outfile_abort(&out);
    return status;
}

wok_status wok_onnx_write(const wok_model *model, const char *path, int64_t external_above) {
    wok_ctx *ctx = wok_model_ctx(model);
    writer w = {.ctx = ctx, .model = model, .wire = {.ctx = ctx}};
    char *data_path = NULL;
    size_t length = strlen(path) + sizeof ".data";
    if (wok_model_describe(model)->weight_bytes > external_above) {
        data_path = wok_ctx_alloc(ctx, length);
        if (!data_path) return WOK_ERR_MEMORY;
        snprintf(data_path, length, "%s.data", path);
        const char *slash = strrchr(data_path, '/');
        w.data_name = slash ? slash + 1 : data_path;
    }
    wok_status status = write_files(&w, path, data_path);
    wok_wire_out_free(&w.wire);
    wok_ctx_release(ctx, data_path, length);
    return status;
}

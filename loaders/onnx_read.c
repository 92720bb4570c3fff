/* onnx_read.c - ModelProto to a wok_model, in passes over the bytes: the file's order of fields is not relied upon.
 *
 * First the model's own fields, then of the graph: initializers, inputs (which must know the initializers: before IR
 * 4 an initializer that is also listed as an input is a plain constant, from IR 4 on a default), nodes, outputs,
 * hints. */
#include "onnx.h"

#include <stdlib.h>
#include <string.h>

/* ---- shared with onnx_tensor.c and onnx_node.c ------------------------------------------------------------------- */

void *wok_onnx_scratch(wok_onnx_reader *reader, onnx_slot slot, size_t bytes) {
    if (reader->status == WOK_OK)
        reader->status =
            wok_ctx_grow(reader->ctx, &reader->scratch[slot].data, &reader->scratch[slot].bytes, bytes > 0 ? bytes : 1);
    return reader->status == WOK_OK ? reader->scratch[slot].data : NULL;
}

const char *wok_onnx_text(wok_onnx_reader *reader, char **at, wok_span text) {
    char *out = *at, shown[160];
    if (text.bytes > 0 && memchr(text.data, 0, text.bytes)) {
        reader->status =
            wok_ctx_fail(reader->ctx, WOK_ERR_FORMAT, "%s: a name holds a zero byte: '%s'", reader->source->name,
                         wok_loader_printable((const char *)text.data, text.bytes, shown, sizeof shown));
        return NULL;
    }
    if (text.bytes > 0) memcpy(out, text.data, text.bytes);
    out[text.bytes] = 0;
    *at = out + text.bytes + 1;
    return out;
}

void wok_onnx_wire_problem(wok_onnx_reader *reader, const wok_wire *wire, const char *where) {
    if (reader->status != WOK_OK) return;
    reader->status =
        wok_ctx_fail(reader->ctx, WOK_ERR_FORMAT, "%s: damaged or not an ONNX file: %s at byte %zu (%s)",
                     reader->source->name, wire->problem, (size_t)(wire->at - reader->source->data), where);
}

const char *wok_onnx_type_name(int64_t data_type) {
    /* clang-format off */
    static const char *const names[] = {
        "none", "f32", "u8", "i8", "u16", "i16", "i32", "i64", "string", "bool", "f16", "f64", "u32", "u64",
        "complex64", "complex128", "bf16", "float8e4m3fn", "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz",
        "uint4", "int4", "float4e2m1", "float8e8m0", "uint2", "int2"};
    /* clang-format on */
    return data_type >= 0 && data_type < (int64_t)(sizeof names / sizeof *names) ? names[data_type] : "unknown";
}

/* Fills a span with the last field of this number; false after a problem. */
static bool text_fields(wok_onnx_reader *reader, wok_span message, uint32_t a, wok_span *first, uint32_t b,
                        wok_span *second, const char *where) {
    *first = *second = (wok_span){NULL, 0};
    wok_wire wire = wok_wire_open(message);
    while (wok_wire_next(&wire)) {
        if (wire.type != WOK_WIRE_BYTES) continue;
        if (wire.field == a) *first = wire.span;
        if (wire.field == b) *second = wire.span;
    }
    if (wire.problem) wok_onnx_wire_problem(reader, &wire, where);
    return !wire.problem;
}

/* ---- the model's own fields -------------------------------------------------------------------------------------- */

static void read_opset(wok_onnx_reader *reader, wok_span message) {
    wok_span domain = {NULL, 0};
    int64_t version = 0;
    wok_wire wire = wok_wire_open(message);
    while (wok_wire_next(&wire)) {
        if (wire.field == OPSET_DOMAIN && wire.type == WOK_WIRE_BYTES) domain = wire.span;
        if (wire.field == OPSET_VERSION && wire.type == WOK_WIRE_VARINT) version = (int64_t)wire.number;
    }
    if (wire.problem) {
        wok_onnx_wire_problem(reader, &wire, "opset import");
        return;
    }
    char *at = wok_onnx_scratch(reader, SLOT_NODE, domain.bytes + 1);
    const char *name = at ? wok_onnx_text(reader, &at, domain) : NULL;
    if (name) wok_model_set_opset(reader->model, name, version);
}

static void read_metadata(wok_onnx_reader *reader, wok_span message) {
    wok_span key, value;
    if (!text_fields(reader, message, ENTRY_KEY, &key, ENTRY_VALUE, &value, "metadata")) return;
    char *at = wok_onnx_scratch(reader, SLOT_NODE, key.bytes + value.bytes + 2);
    const char *name = at ? wok_onnx_text(reader, &at, key) : NULL;
    const char *text = name ? wok_onnx_text(reader, &at, value) : NULL;
    if (text) wok_model_set_metadata(reader->model, name, text);
}

static void set_producer(wok_onnx_reader *reader, wok_span name, wok_span version) {
    char *start = wok_onnx_scratch(reader, SLOT_NODE, name.bytes + version.bytes + 2), *at = start;
    if (!at || !wok_onnx_text(reader, &at, name)) return;
    if (version.bytes > 0) {
        if (name.bytes > 0) at[-1] = ' ';
        if (!wok_onnx_text(reader, &at, version)) return;
    }
    wok_model_set_ir(reader->model, reader->ir_version, start);
}

static int compare_hashes(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Functions written in the file are not looked into; what matters is which nodes call one. */
static void read_functions(wok_onnx_reader *reader, wok_span file, size_t count) {
    void *hashes = NULL;
    if (count == 0 || reader->status != WOK_OK) return;
    reader->status = wok_ctx_grow(reader->ctx, &hashes, &reader->function_bytes, count * sizeof *reader->functions);
    reader->functions = hashes;
    wok_wire wire = wok_wire_open(file);
    while (reader->status == WOK_OK && wok_wire_next(&wire)) {
        wok_span name, domain;
        if (wire.field != MODEL_FUNCTION || wire.type != WOK_WIRE_BYTES) continue;
        if (!text_fields(reader, wire.span, FUNCTION_NAME, &name, FUNCTION_DOMAIN, &domain, "function")) return;
        reader->functions[reader->function_count++] = wok_onnx_function_hash(domain, name);
    }
    qsort(reader->functions, reader->function_count, sizeof *reader->functions, compare_hashes);
}

static bool read_model(wok_onnx_reader *reader, wok_span file, wok_span *graph) {
    wok_span producer = {NULL, 0}, producer_version = {NULL, 0};
    size_t functions = 0;
    wok_wire wire = wok_wire_open(file);
    *graph = (wok_span){NULL, 0};
    while (reader->status == WOK_OK && wok_wire_next(&wire)) {
        if (wire.field == MODEL_IR_VERSION && wire.type == WOK_WIRE_VARINT) reader->ir_version = (int64_t)wire.number;
        if (wire.type != WOK_WIRE_BYTES) continue;
        switch (wire.field) {
        case MODEL_PRODUCER_NAME: producer = wire.span; break;
        case MODEL_PRODUCER_VERSION: producer_version = wire.span; break;
        case MODEL_GRAPH: *graph = wire.span; break;
        case MODEL_OPSET_IMPORT: read_opset(reader, wire.span); break;
        case MODEL_METADATA: read_metadata(reader, wire.span); break;
        case MODEL_FUNCTION: functions++; break;
        default: break;
        }
    }
    if (wire.problem) wok_onnx_wire_problem(reader, &wire, "model");
    read_functions(reader, file, functions);
    if (reader->status != WOK_OK) return false;
    const char *name = reader->source->name;
    if (!graph->data || reader->ir_version <= 0)
        reader->status = wok_ctx_fail(reader->ctx, WOK_ERR_FORMAT, "%s: not an ONNX model: it has no %s", name,
                                      graph->data ? "IR version" : "graph");
    else if (reader->ir_version < ONNX_OLDEST_IR)
        reader->status = wok_ctx_fail(reader->ctx, WOK_ERR_UNSUPPORTED, "%s: model IR %lld / oldest known %d", name,
                                      (long long)reader->ir_version, ONNX_OLDEST_IR);
    else if (reader->ir_version > ONNX_NEWEST_IR)
        wok_ctx_log(reader->ctx, WOK_LOG_WARNING, "%s: model IR %lld / newest known %d; its operators decide", name,
                    (long long)reader->ir_version, ONNX_NEWEST_IR);
    if (reader->status == WOK_OK) set_producer(reader, producer, producer_version);
    return reader->status == WOK_OK;
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

typedef struct value_info {
    const char *name;
    int64_t elem; /* -1: the value is no tensor, or the file does not say */
    int rank;     /* -1: the file does not say */
    int64_t dims[WOK_MAX_RANK];
    const char *dim_names[WOK_MAX_RANK];
    wok_span dim_texts[WOK_MAX_RANK];
} value_info;

static void read_dim(value_info *info, wok_wire *outer) {
    int64_t size = -1;
    wok_span text = {NULL, 0};
    wok_wire wire = wok_wire_open(outer->span);
    while (wok_wire_next(&wire)) {
        if (wire.field == DIM_VALUE && wire.type == WOK_WIRE_VARINT) size = (int64_t)wire.number;
        if (wire.field == DIM_PARAM && wire.type == WOK_WIRE_BYTES) text = wire.span;
    }
    if (wire.problem) outer->problem = wire.problem;
    if (info->rank < WOK_MAX_RANK) {
        info->dims[info->rank] = size < 0 ? -1 : size; /* some exporters write -1 for a free dimension */
        info->dim_texts[info->rank] = size < 0 ? text : (wok_span){NULL, 0};
    }
    info->rank += info->rank <= WOK_MAX_RANK;
}

static void read_shape(value_info *info, wok_wire *outer) {
    info->rank = 0;
    wok_wire wire = wok_wire_open(outer->span);
    while (wok_wire_next(&wire))
        if (wire.field == SHAPE_DIM && wire.type == WOK_WIRE_BYTES) read_dim(info, &wire);
    if (wire.problem) outer->problem = wire.problem;
}

static void read_tensor_type(value_info *info, wok_wire *outer) {
    wok_wire wire = wok_wire_open(outer->span);
    info->elem = 0;
    while (wok_wire_next(&wire)) {
        if (wire.field == TENSOR_TYPE_ELEM && wire.type == WOK_WIRE_VARINT) info->elem = (int64_t)wire.number;
        if (wire.field == TENSOR_TYPE_SHAPE && wire.type == WOK_WIRE_BYTES) read_shape(info, &wire);
    }
    if (wire.problem) outer->problem = wire.problem;
}

static void read_type(value_info *info, wok_wire *outer) {
    wok_wire wire = wok_wire_open(outer->span);
    while (wok_wire_next(&wire))
        if (wire.field == TYPE_TENSOR_TYPE && wire.type == WOK_WIRE_BYTES) read_tensor_type(info, &wire);
    if (wire.problem) outer->problem = wire.problem;
}

static bool name_dims(wok_onnx_reader *reader, value_info *info, wok_span name) {
    size_t bytes = name.bytes + 1;
    int rank = info->rank < WOK_MAX_RANK ? info->rank : WOK_MAX_RANK;
    for (int i = 0; i < rank; i++) bytes += info->dim_texts[i].bytes + 1;
    char *at = wok_onnx_scratch(reader, SLOT_NODE, bytes);
    info->name = at ? wok_onnx_text(reader, &at, name) : NULL;
    for (int i = 0; i < rank && reader->status == WOK_OK; i++)
        if (info->dim_texts[i].bytes > 0) info->dim_names[i] = wok_onnx_text(reader, &at, info->dim_texts[i]);
    return reader->status == WOK_OK;
}

static bool read_value_info(wok_onnx_reader *reader, wok_span message, const char *where, value_info *info) {
    *info = (value_info){.elem = -1, .rank = -1};
    wok_span name = {NULL, 0};
    wok_wire wire = wok_wire_open(message);
    while (wok_wire_next(&wire)) {
        if (wire.type != WOK_WIRE_BYTES) continue;
        if (wire.field == VALUE_NAME) name = wire.span;
        if (wire.field == VALUE_TYPE) read_type(info, &wire);
    }
    if (wire.problem) wok_onnx_wire_problem(reader, &wire, where);
    return reader->status == WOK_OK && name_dims(reader, info, name);
}

/* WOK_NONE for what wok has no type for. */
static wok_dtype dtype_of(int64_t elem) {
    bool known = elem > 0 && elem <= WOK_BF16 && wok_dtype_size((wok_dtype)elem) > 0;
    return known ? (wok_dtype)elem : WOK_NONE;
}

static void read_input(wok_onnx_reader *reader, wok_span message) {
    value_info info;
    char shown[160];
    if (!read_value_info(reader, message, "input", &info)) return;
    if (reader->ir_version < 4) {
        wok_value value = wok_graph_value(reader->model, info.name);
        if (value != WOK_ABSENT && wok_graph_value_at(reader->model, value).data) return;
    }
    wok_loader_printable(info.name, strlen(info.name), shown, sizeof shown);
    const char *problem = NULL, *detail = "";
    wok_dtype dtype = dtype_of(info.elem);
    if (info.rank > WOK_MAX_RANK) problem = "it has more than 8 dimensions";
    if (dtype == WOK_NONE && !reader->allow_unsupported) {
        problem =
            info.elem < 0 ? "the file does not say that it is a tensor" : "elements of this type are not supported: ";
        detail = info.elem < 0 ? "" : wok_onnx_type_name(info.elem);
    }
    if (!*info.name)
        reader->status = wok_ctx_fail(reader->ctx, WOK_ERR_FORMAT, "%s: an input has no name", reader->source->name);
    else if (problem)
        reader->status = wok_ctx_fail(reader->ctx, WOK_ERR_UNSUPPORTED, "input '%s': %s%s", shown, problem, detail);
    else
        wok_graph_input(reader->model, info.name, dtype, info.rank, info.dims, info.dim_names);
}

static void read_output(wok_onnx_reader *reader, wok_span message) {
    value_info info;
    if (!read_value_info(reader, message, "output", &info)) return;
    if (!*info.name) {
        reader->status = wok_ctx_fail(reader->ctx, WOK_ERR_FORMAT, "%s: an output has no name", reader->source->name);
        return;
    }
    wok_value value = wok_graph_value(reader->model, info.name);
    if (dtype_of(info.elem) != WOK_NONE && info.rank <= WOK_MAX_RANK)
        wok_graph_declare(reader->model, value, dtype_of(info.elem), info.rank, info.dims, info.dim_names);
    wok_graph_output(reader->model, value);
}

/* Hints, and only for values that exist: nothing may hang on them. */
static void read_hint(wok_onnx_reader *reader, wok_span message) {
    value_info info;
    if (!read_value_info(reader, message, "value info", &info)) return;
    if (!*info.name || dtype_of(info.elem) == WOK_NONE || info.rank > WOK_MAX_RANK) return;
    wok_graph_declare(reader->model, wok_graph_value(reader->model, info.name), dtype_of(info.elem), info.rank,
                      info.dims, info.dim_names);
}

static void refuse_sparse(wok_onnx_reader *reader, wok_span message) {
    wok_span values, name, none;
    char shown[160];
    if (!text_fields(reader, message, SPARSE_VALUES, &values, 0, &none, "sparse initializer")) return;
    if (!text_fields(reader, values, TENSOR_NAME, &name, 0, &none, "sparse initializer")) return;
    reader->status =
        wok_ctx_fail(reader->ctx, WOK_ERR_UNSUPPORTED, "sparse initializer '%s': sparse tensors are not supported",
                     wok_loader_printable((const char *)name.data, name.bytes, shown, sizeof shown));
}

static void read_initializer(wok_onnx_reader *reader, wok_span message) {
    wok_onnx_constant(reader, message, true, "initializer");
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static void each(wok_onnx_reader *reader, wok_span graph, uint32_t field, void (*read)(wok_onnx_reader *, wok_span)) {
    wok_wire wire = wok_wire_open(graph);
    while (reader->status == WOK_OK && !wok_model_failed(reader->model) && wok_wire_next(&wire))
        if (wire.field == field && wire.type == WOK_WIRE_BYTES) read(reader, wire.span);
    if (wire.problem) wok_onnx_wire_problem(reader, &wire, "graph");
}

static void read_file(wok_onnx_reader *reader) {
    wok_span graph;
    if (!read_model(reader, (wok_span){reader->source->data, reader->source->bytes}, &graph)) return;
    each(reader, graph, GRAPH_SPARSE_INITIALIZER, refuse_sparse);
    each(reader, graph, GRAPH_INITIALIZER, read_initializer);
    each(reader, graph, GRAPH_INPUT, read_input);
    each(reader, graph, GRAPH_NODE, wok_onnx_node);
    each(reader, graph, GRAPH_OUTPUT, read_output);
    each(reader, graph, GRAPH_VALUE_INFO, read_hint);
}

wok_status wok_onnx_read(wok_ctx *ctx, const wok_source *source, const wok_load_options *options, wok_model **model) {
    wok_onnx_reader reader = {.ctx = ctx, .source = source, .allow_unsupported = options && options->allow_unsupported};
    reader.status = wok_model_new(ctx, "onnx", model);
    reader.model = *model;
    if (reader.status == WOK_OK) read_file(&reader);
    for (int i = 0; i < SLOT_COUNT; i++) wok_ctx_release(ctx, reader.scratch[i].data, reader.scratch[i].bytes);
    wok_ctx_release(ctx, reader.functions, reader.function_bytes);
    wok_onnx_external_free(&reader);
    return reader.status;
}

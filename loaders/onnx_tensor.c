/* onnx_tensor.c - TensorProto: elements are used where they stand (raw_data, external data, packed floats) and decoded
 * only where the wire format leaves no choice (varints). Nothing is allocated before the file is known to hold it. */
#include "onnx.h"

#include <string.h>

static void fail(wok_onnx_reader *reader, wok_status status) {
    if (reader->status == WOK_OK) reader->status = status;
}

static void add_dims(wok_onnx_tensor *tensor, wok_wire *wire) {
    uint64_t number;
    for (size_t at = 0; wok_wire_number(wire, WOK_WIRE_VARINT, &at, &number);) {
        if (tensor->rank < WOK_MAX_RANK) tensor->dims[tensor->rank] = (int64_t)number;
        if (++tensor->rank > WOK_MAX_RANK) return; /* refused later: no use in counting a billion of them */
    }
}

static bool is_key(wok_span key, const char *text) {
    return key.bytes == strlen(text) && !memcmp(key.data, text, key.bytes);
}

static void add_external(wok_onnx_tensor *tensor, wok_wire *outer) {
    wok_span key = {(const uint8_t *)"", 0}, value = key;
    wok_wire wire = wok_wire_open(outer->span);
    while (wok_wire_next(&wire)) {
        if (wire.type != WOK_WIRE_BYTES) continue;
        if (wire.field == ENTRY_KEY) key = wire.span;
        if (wire.field == ENTRY_VALUE) value = wire.span;
    }
    if (wire.problem) outer->problem = wire.problem;
    if (is_key(key, "location")) tensor->location = value;
    if (is_key(key, "offset")) tensor->offset = value;
    if (is_key(key, "length")) tensor->length = value;
}

static bool parse(wok_onnx_reader *reader, wok_onnx_tensor *tensor, const char *what) {
    wok_wire wire = wok_wire_open(tensor->message);
    while (wok_wire_next(&wire)) {
        bool bytes = wire.type == WOK_WIRE_BYTES, number = wire.type == WOK_WIRE_VARINT;
        if (wire.field == TENSOR_DIMS && (bytes || number)) add_dims(tensor, &wire);
        if (wire.field == TENSOR_DATA_TYPE && number) tensor->data_type = (int64_t)wire.number;
        if (wire.field == TENSOR_DATA_LOCATION && number) tensor->external = wire.number == 1;
        if (wire.field == TENSOR_NAME && bytes) tensor->name = wire.span;
        if (wire.field == TENSOR_EXTERNAL_DATA && bytes) add_external(tensor, &wire);
        if (wire.field == TENSOR_RAW_DATA && bytes) {
            tensor->raw = wire.span;
            tensor->has_raw = true;
        }
    }
    if (wire.problem) wok_onnx_wire_problem(reader, &wire, what);
    return !wire.problem;
}

/* ---- elements in fields of their type ---------------------------------------------------------------------------- */

static uint32_t typed_field(wok_dtype dtype, wok_wire_type *type) {
    *type = WOK_WIRE_VARINT;
    switch (dtype) {
    case WOK_F32: *type = WOK_WIRE_32; return TENSOR_FLOAT_DATA;
    case WOK_F64: *type = WOK_WIRE_64; return TENSOR_DOUBLE_DATA;
    case WOK_I64: return TENSOR_INT64_DATA;
    case WOK_U32:
    case WOK_U64: return TENSOR_UINT64_DATA;
    default: return TENSOR_INT32_DATA; /* 8 and 16 bits, halves as their bits, booleans */
    }
}

/* The run of typed fields: how many numbers, and the span if they stand in one packed field. */
static size_t count_numbers(const wok_onnx_tensor *tensor, uint32_t field, wok_wire_type type, wok_span *only) {
    size_t count = 0, fields = 0;
    wok_wire wire = wok_wire_open(tensor->message);
    while (wok_wire_next(&wire)) {
        if (wire.field != field) continue;
        count += wok_wire_numbers(&wire, type);
        *only = wire.span;
        fields++;
    }
    if (fields != 1) *only = (wok_span){NULL, 0};
    return count;
}

/* An integer of 8 or 16 bits stands in a field of 32: it must be one. Other types take any bits. */
static bool is_in_range(wok_dtype dtype, uint64_t number) {
    int64_t x = (int32_t)(uint32_t)number;
    if (dtype == WOK_U8) return x >= 0 && x <= UINT8_MAX;
    if (dtype == WOK_I8) return x >= INT8_MIN && x <= INT8_MAX;
    if (dtype == WOK_U16) return x >= 0 && x <= UINT16_MAX;
    return dtype != WOK_I16 || (x >= INT16_MIN && x <= INT16_MAX);
}

/* Little-endian: the low bytes of the number are the element. */
static bool decode(wok_onnx_reader *reader, const wok_onnx_tensor *tensor, wok_dtype dtype, uint32_t field,
                   wok_wire_type type, uint8_t *out, const char *what) {
    size_t size = wok_dtype_size(dtype);
    wok_wire wire = wok_wire_open(tensor->message);
    while (wok_wire_next(&wire)) {
        if (wire.field != field) continue;
        uint64_t number;
        for (size_t at = 0; wok_wire_number(&wire, type, &at, &number); out += size) {
            if (!is_in_range(dtype, number)) {
                fail(reader, wok_ctx_fail(reader->ctx, WOK_ERR_FORMAT, "tensor '%s' holds %d, which is no %s", what,
                                          (int)(int32_t)(uint32_t)number, wok_dtype_name(dtype)));
                return false;
            }
            if (dtype == WOK_BOOL) number = number != 0;
            memcpy(out, &number, size);
        }
    }
    if (wire.problem) wok_onnx_wire_problem(reader, &wire, what);
    return !wire.problem;
}

static bool typed_elements(wok_onnx_reader *reader, const wok_onnx_tensor *tensor, wok_dtype dtype, const char *name,
                           size_t need, wok_span *elements, wok_data_kind *kind) {
    wok_wire_type type;
    wok_span only;
    uint32_t field = typed_field(dtype, &type);
    size_t have = count_numbers(tensor, field, type, &only), want = need / wok_dtype_size(dtype);
    if (have != want) {
        fail(reader, wok_ctx_fail(reader->ctx, WOK_ERR_FORMAT,
                                  "tensor '%s': its shape needs %zu elements, it holds %zu", name, want, have));
        return false;
    }
    if (type != WOK_WIRE_VARINT && only.data && only.bytes == need) { /* packed: the elements as they are */
        *elements = only;
        return true;
    }
    uint8_t *out = wok_onnx_scratch(reader, SLOT_TENSOR, need);
    if (!out || !decode(reader, tensor, dtype, field, type, out, name)) return false;
    *elements = (wok_span){out, need};
    *kind = WOK_DATA_COPY;
    return true;
}

/* ---- all forms --------------------------------------------------------------------------------------------------- */

/* Operators take a byte that is 0 or 1 on trust. */
static bool tidy_bools(wok_onnx_reader *reader, wok_span *elements, wok_data_kind *kind) {
    size_t i = 0;
    while (i < elements->bytes && elements->data[i] <= 1) i++;
    if (i == elements->bytes) return true;
    uint8_t *out = wok_onnx_scratch(reader, SLOT_TENSOR, elements->bytes);
    if (!out) return false;
    for (i = 0; i < elements->bytes; i++) out[i] = elements->data[i] != 0;
    elements->data = out;
    *kind = WOK_DATA_COPY;
    return true;
}

static bool find_elements(wok_onnx_reader *reader, const wok_onnx_tensor *tensor, wok_dtype dtype, const char *name,
                          size_t need, wok_span *elements, wok_data_kind *kind) {
    if (tensor->external) {
        fail(reader, wok_onnx_external(reader, tensor, name, need, elements));
        if (reader->status != WOK_OK) return false;
    } else if (!tensor->has_raw) {
        return typed_elements(reader, tensor, dtype, name, need, elements, kind);
    } else {
        *elements = tensor->raw;
    }
    if (elements->bytes != need) {
        fail(reader, wok_ctx_fail(reader->ctx, WOK_ERR_FORMAT, "tensor '%s': its shape needs %zu bytes, it holds %zu",
                                  name, need, elements->bytes));
        return false;
    }
    return dtype != WOK_BOOL || tidy_bools(reader, elements, kind);
}

static bool check_type(wok_onnx_reader *reader, const wok_onnx_tensor *tensor, const char *name, size_t *need) {
    char shape[128];
    if (tensor->data_type <= 0 || tensor->data_type > WOK_BF16 || wok_dtype_size((wok_dtype)tensor->data_type) == 0)
        fail(reader, wok_ctx_fail(reader->ctx, WOK_ERR_UNSUPPORTED,
                                  "tensor '%s': elements of ONNX type %lld (%s) are not supported", name,
                                  (long long)tensor->data_type, wok_onnx_type_name(tensor->data_type)));
    else if (tensor->rank > WOK_MAX_RANK)
        fail(reader, wok_ctx_fail(reader->ctx, WOK_ERR_UNSUPPORTED, "tensor '%s' has more than %d dimensions", name,
                                  WOK_MAX_RANK));
    else if (!wok_loader_bytes((wok_dtype)tensor->data_type, tensor->rank, tensor->dims, need))
        fail(reader, wok_ctx_fail(reader->ctx, WOK_ERR_FORMAT, "tensor '%s': its shape %s is impossible", name,
                                  wok_loader_shape(tensor->dims, tensor->rank, shape, sizeof shape)));
    return reader->status == WOK_OK;
}

wok_value wok_onnx_constant(wok_onnx_reader *reader, wok_span message, bool named, const char *what) {
    wok_onnx_tensor tensor = {.message = message};
    char shown[160];
    if (reader->status != WOK_OK || !parse(reader, &tensor, what)) return WOK_ABSENT;
    const char *name = tensor.name.bytes > 0 ? wok_loader_printable((const char *)tensor.name.data, tensor.name.bytes,
                                                                    shown, sizeof shown)
                                             : what;
    const char *text = NULL;
    if (named) {
        char *at = wok_onnx_scratch(reader, SLOT_NODE, tensor.name.bytes + 1);
        text = at ? wok_onnx_text(reader, &at, tensor.name) : NULL;
        if (!text) return WOK_ABSENT;
        if (!*text) fail(reader, wok_ctx_fail(reader->ctx, WOK_ERR_FORMAT, "an initializer has no name"));
    }
    size_t need = 0;
    wok_span elements;
    wok_data_kind kind = WOK_DATA_BORROW;
    wok_dtype dtype = (wok_dtype)tensor.data_type;
    if (!check_type(reader, &tensor, name, &need) ||
        !find_elements(reader, &tensor, dtype, name, need, &elements, &kind))
        return WOK_ABSENT;
    const void *data = elements.bytes > 0 ? elements.data : wok_loader_nothing;
    return wok_graph_constant(reader->model, text, dtype, tensor.rank, tensor.dims, data, elements.bytes, kind);
}

/* onnx.h - ONNX's messages by field number, and what the parts of the reader share (internal).
 *
 * Source: onnx/onnx.proto of the ONNX project, release 1.23 (IR version 14).
 */
#ifndef WOK_ONNX_H
#define WOK_ONNX_H

#include "loader.h"
#include "mapfile.h"
#include "wire.h"

/* Newer files are read too, with a warning: what matters is whether their operators are known. */
enum { ONNX_OLDEST_IR = 3, ONNX_NEWEST_IR = 14 };

enum onnx_model_field {
    MODEL_IR_VERSION = 1,
    MODEL_PRODUCER_NAME = 2,
    MODEL_PRODUCER_VERSION = 3,
    MODEL_GRAPH = 7,
    MODEL_OPSET_IMPORT = 8,
    MODEL_METADATA = 14,
    MODEL_FUNCTION = 25
};
enum onnx_opset_field { OPSET_DOMAIN = 1, OPSET_VERSION = 2 };
enum onnx_entry_field { ENTRY_KEY = 1, ENTRY_VALUE = 2 };
enum onnx_function_field { FUNCTION_NAME = 1, FUNCTION_DOMAIN = 10 };
enum onnx_graph_field {
    GRAPH_NODE = 1,
    GRAPH_NAME = 2,
    GRAPH_INITIALIZER = 5,
    GRAPH_INPUT = 11,
    GRAPH_OUTPUT = 12,
    GRAPH_VALUE_INFO = 13,
    GRAPH_SPARSE_INITIALIZER = 15
};
enum onnx_node_field {
    NODE_INPUT = 1,
    NODE_OUTPUT = 2,
    NODE_NAME = 3,
    NODE_OP_TYPE = 4,
    NODE_ATTRIBUTE = 5,
    NODE_DOMAIN = 7
};
enum onnx_attribute_field {
    ATTRIBUTE_NAME = 1,
    ATTRIBUTE_F = 2,
    ATTRIBUTE_I = 3,
    ATTRIBUTE_S = 4,
    ATTRIBUTE_T = 5,
    ATTRIBUTE_G = 6,
    ATTRIBUTE_FLOATS = 7,
    ATTRIBUTE_INTS = 8,
    ATTRIBUTE_STRINGS = 9,
    ATTRIBUTE_TENSORS = 10,
    ATTRIBUTE_GRAPHS = 11,
    ATTRIBUTE_TP = 14,
    ATTRIBUTE_TYPE_PROTOS = 15,
    ATTRIBUTE_TYPE = 20,
    ATTRIBUTE_REF = 21,
    ATTRIBUTE_SPARSE_TENSOR = 22,
    ATTRIBUTE_SPARSE_TENSORS = 23
};
/* AttributeProto.AttributeType */
enum onnx_attribute_type {
    TYPE_UNDEFINED,
    TYPE_FLOAT,
    TYPE_INT,
    TYPE_STRING,
    TYPE_TENSOR,
    TYPE_GRAPH,
    TYPE_FLOATS,
    TYPE_INTS,
    TYPE_STRINGS
};
enum onnx_tensor_field {
    TENSOR_DIMS = 1,
    TENSOR_DATA_TYPE = 2,
    TENSOR_FLOAT_DATA = 4,
    TENSOR_INT32_DATA = 5,
    TENSOR_STRING_DATA = 6,
    TENSOR_INT64_DATA = 7,
    TENSOR_NAME = 8,
    TENSOR_RAW_DATA = 9,
    TENSOR_DOUBLE_DATA = 10,
    TENSOR_UINT64_DATA = 11,
    TENSOR_EXTERNAL_DATA = 13,
    TENSOR_DATA_LOCATION = 14
};
enum onnx_sparse_field { SPARSE_VALUES = 1 };
enum onnx_value_info_field { VALUE_NAME = 1, VALUE_TYPE = 2 };
enum onnx_type_field { TYPE_TENSOR_TYPE = 1 };
enum onnx_tensor_type_field { TENSOR_TYPE_ELEM = 1, TENSOR_TYPE_SHAPE = 2 };
enum onnx_shape_field { SHAPE_DIM = 1 };
enum onnx_dim_field { DIM_VALUE = 1, DIM_PARAM = 2 };

/* ---- the reader -------------------------------------------------------------------------------------------------- */

/* Memory that is used again and again: names need a zero behind them, numbers need decoding. */
typedef enum onnx_slot { SLOT_NODE, SLOT_IDS, SLOT_ATTRIBUTE, SLOT_VALUES, SLOT_TENSOR, SLOT_COUNT } onnx_slot;

typedef struct wok_onnx_reader {
    wok_ctx *ctx;
    wok_model *model;
    const wok_source *source;
    bool allow_unsupported;
    int64_t ir_version;
    wok_status status; /* the first failure sticks; the builder's own stick to the model */
    struct {
        void *data;
        size_t bytes;
    } scratch[SLOT_COUNT];
    uint64_t *functions; /* sorted hashes of (domain, name) */
    size_t function_count, function_bytes;
    struct onnx_external *files; /* external data, opened so far; the maps belong to the model */
    size_t file_count, file_bytes;
    char *roots[2]; /* real paths that external data may lie under; PATH_MAX bytes each, made on first use */
} wok_onnx_reader;

/* At least `bytes` bytes; NULL on failure. */
void *wok_onnx_scratch(wok_onnx_reader *reader, onnx_slot slot, size_t bytes);
/* Copies a text and puts a zero behind it; *at moves on. NULL (and the failure) if it holds a zero byte. */
const char *wok_onnx_text(wok_onnx_reader *reader, char **at, wok_span text);
/* "float8e4m3fn", ... for the sentence that refuses it. */
const char *wok_onnx_type_name(int64_t data_type);
/* Reports what a wire reader stumbled over. */
void wok_onnx_wire_problem(wok_onnx_reader *reader, const wok_wire *wire, const char *where);

uint64_t wok_onnx_function_hash(wok_span domain, wok_span name);
void wok_onnx_node(wok_onnx_reader *reader, wok_span message);

/* What a TensorProto says, without its elements. */
typedef struct wok_onnx_tensor {
    wok_span message, name, raw;
    int64_t data_type;
    int rank;
    int64_t dims[WOK_MAX_RANK];
    bool has_raw, external;
    wok_span location, offset, length; /* of external data; data NULL: absent */
} wok_onnx_tensor;

/* Makes a constant of a TensorProto, under its own name or under a fresh one (a tensor in an attribute); `what` names
 * it in error sentences where it has no name. WOK_ABSENT on failure. */
wok_value wok_onnx_constant(wok_onnx_reader *reader, wok_span message, bool named, const char *what);

/* The bytes of external data, mapped. `name` is printable; `need` is what the tensor's shape asks for. */
wok_status wok_onnx_external(wok_onnx_reader *reader, const wok_onnx_tensor *tensor, const char *name, size_t need,
                             wok_span *bytes);
void wok_onnx_external_free(wok_onnx_reader *reader);

#endif

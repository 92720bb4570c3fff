/* wok_build.h - make a graph in code, and read one back.
 *
 * Loaders build models with it, writers walk models with it, researchers write graphs by hand. The vocabulary is ONNX:
 * operators are named by (domain, op_type) with the opset version that the model imports.
 *
 *   wok_model *model = NULL;
 *   wok_model_new(ctx, "my-net", &model);
 *   wok_model_set_opset(model, "", 17);
 *   wok_value x = wok_graph_input(model, "x", WOK_F32, 2, (int64_t[]){-1, 64}, NULL);
 *   wok_value w = wok_graph_constant(model, "w", WOK_F32, 2, (int64_t[]){64, 10}, weights, sizeof weights, WOK_DATA_COPY);
 *   wok_value y = wok_graph_op(model, "MatMul", "", "fc", (wok_value[]){x, w}, 2, "y");
 *   wok_graph_output(model, y);
 *   status = wok_model_finish(model, NULL);
 *
 * Building functions may be called in any order and with failed ids: the first failure sticks to the model and
 * wok_model_finish returns it, so that a builder checks once. A model under construction belongs to one thread; after
 * wok_model_finish it is immutable and shared freely.
 */
#ifndef WOK_BUILD_H
#define WOK_BUILD_H

#include "wok.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Ids, counted from 0 in the order of creation; WOK_ABSENT for an optional input that is left out. */
typedef int32_t wok_value;
typedef int32_t wok_node;
#define WOK_ABSENT (-1)

/* ---- helpers for code that lives beside the graph (loaders, pipelines) -------------------------------------------- */

/* Allocation by the context's allocator, counted against its limit; 64-byte aligned; NULL and the error set on failure.
 * bytes 0 gives a valid pointer. */
WOK_API void *wok_ctx_alloc(wok_ctx *ctx, size_t bytes);
/* `bytes` as given to wok_ctx_alloc; ptr may be NULL. */
WOK_API void wok_ctx_release(wok_ctx *ctx, void *ptr, size_t bytes);
/* Grows *ptr (capacity *bytes) to at least `need` bytes, doubling; contents are kept. */
WOK_API wok_status wok_ctx_grow(wok_ctx *ctx, void **ptr, size_t *bytes, size_t need);
/* Sets the thread's error sentence (printf) and returns `status`. */
WOK_API wok_status wok_ctx_fail(wok_ctx *ctx, wok_status status, const char *format, ...) WOK_PRINTF(3, 4);
WOK_API void wok_ctx_log(wok_ctx *ctx, wok_log_level level, const char *format, ...) WOK_PRINTF(3, 4);
/* The context's executor, for kernels run outside a session. NULL: this thread. Do not nest. */
WOK_API const wok_parallel *wok_ctx_parallel(wok_ctx *ctx);
WOK_API wok_ctx *wok_model_ctx(const wok_model *model);

/* ---- building ----------------------------------------------------------------------------------------------------- */

typedef enum wok_data_kind {
    WOK_DATA_COPY,   /* copied now */
    WOK_DATA_BORROW, /* stays valid and unchanged as long as the model (see wok_model_own) */
} wok_data_kind;

/* format: "onnx", "hf-bert", ... (copied). */
WOK_API wok_status wok_model_new(wok_ctx *ctx, const char *format, wok_model **model);
/* Hands something to the model that borrowed data stands in: release(user) is called when the model is freed (or at
 * once, if this fails). `forget` (may be NULL) is told that bytes [ptr, ptr+bytes) are not needed for now and may be
 * dropped from memory; they must read the same again later (madvise on a file mapping). */
WOK_API wok_status wok_model_own(wok_model *model, const void *base, size_t bytes, void (*release)(void *user),
                                 void (*forget)(void *user, const void *ptr, size_t bytes), void *user);
WOK_API void wok_model_set_opset(wok_model *model, const char *domain, int64_t version);
WOK_API void wok_model_set_ir(wok_model *model, int64_t ir_version, const char *producer);
WOK_API void wok_model_set_metadata(wok_model *model, const char *key, const char *value);

/* The value of this name, made on first mention (type unknown). Names are unique; the text is copied. */
WOK_API wok_value wok_graph_value(wok_model *model, const char *name);
/* dims: -1 for a free dimension, named by dim_names[i] (or NULL); equal names mean equal sizes. rank -1: unknown.
 * A value that also gets constant data is an input with a default. The declared shape and its names bind what a caller
 * sets; the default is a constant with the shape of its data, which may be another one (a mask of ones [1,1] that
 * broadcasts where the caller would give [batch,sequence]). */
WOK_API wok_value wok_graph_input(wok_model *model, const char *name, wok_dtype dtype, int rank, const int64_t *dims,
                                  const char *const *dim_names);
/* `bytes` must be exactly the size of the shape. Data may stand at any alignment. name NULL: a fresh name (tensors that
 * stand in attributes). */
WOK_API wok_value wok_graph_constant(wok_model *model, const char *name, wok_dtype dtype, int rank, const int64_t *dims,
                                     const void *data, size_t bytes, wok_data_kind kind);
/* A node; outputs are values that nothing else produces. name may be NULL. */
WOK_API wok_node wok_graph_node(wok_model *model, const char *op_type, const char *domain, const char *name,
                                const wok_value *inputs, int input_count, const wok_value *outputs, int output_count);
/* The common case: one output of this name (NULL: a fresh name). Attributes are set on wok_graph_last(). */
WOK_API wok_value wok_graph_op(wok_model *model, const char *op_type, const char *domain, const char *name,
                               const wok_value *inputs, int input_count, const char *output);
WOK_API wok_node wok_graph_last(const wok_model *model);
/* Declared type of an inner value or output (ONNX value_info); a hint for people, never trusted for memory. */
WOK_API void wok_graph_declare(wok_model *model, wok_value value, wok_dtype dtype, int rank, const int64_t *dims,
                               const char *const *dim_names);
WOK_API void wok_graph_output(wok_model *model, wok_value value);

WOK_API void wok_node_set_int(wok_model *model, wok_node node, const char *name, int64_t value);
WOK_API void wok_node_set_float(wok_model *model, wok_node node, const char *name, float value);
WOK_API void wok_node_set_string(wok_model *model, wok_node node, const char *name, const char *text, size_t length);
WOK_API void wok_node_set_ints(wok_model *model, wok_node node, const char *name, const int64_t *values, int64_t count);
WOK_API void wok_node_set_floats(wok_model *model, wok_node node, const char *name, const float *values, int64_t count);
WOK_API void wok_node_set_strings(wok_model *model, wok_node node, const char *name, const char *const *values,
                                  int64_t count);
/* The tensor is held as a constant value of the graph that no node reads; the attribute names it. */
WOK_API void wok_node_set_tensor(wok_model *model, wok_node node, const char *name, wok_value constant);
/* An attribute of a kind that wok does not run (a subgraph): kept so that errors can name it; cannot be written back. */
WOK_API void wok_node_set_opaque(wok_model *model, wok_node node, const char *name, const char *kind);

/* Records a failure found by the builder itself; the first one sticks. */
WOK_API void wok_model_fail(wok_model *model, wok_status status, const char *format, ...) WOK_PRINTF(3, 4);
WOK_API bool wok_model_failed(const wok_model *model);
/* Checks the graph: every input is produced, no cycle (nodes are put in topological order), constants have the size of
 * their shape, operators are known at their version. All unsupported operators are listed in the one error sentence,
 * unless options->allow_unsupported. On failure the model is only good for wok_model_free. */
WOK_API wok_status wok_model_finish(wok_model *model, const wok_load_options *options);

/* A full-size model with random weights, finished: "bert-base", "distilbert", "resnet18", "mobilenet_v2". The weights are a
 * function of the seed, the same everywhere. */
WOK_API wok_status wok_model_synthetic(wok_ctx *ctx, const char *arch, uint64_t seed, wok_model **model);

/* ---- reading back ------------------------------------------------------------------------------------------------- */

typedef enum wok_attr_kind {
    WOK_ATTR_INT,
    WOK_ATTR_FLOAT,
    WOK_ATTR_STRING,
    WOK_ATTR_INTS,
    WOK_ATTR_FLOATS,
    WOK_ATTR_STRINGS,
    WOK_ATTR_TENSOR,
    WOK_ATTR_OPAQUE
} wok_attr_kind;

typedef struct wok_attr {
    const char *name;
    wok_attr_kind kind;
    int64_t count; /* of ints, floats, strings; bytes of a string */
    union {
        int64_t i;
        float f;
        const char *s; /* zero-terminated as well */
        const int64_t *ints;
        const float *floats;
        const char *const *strings;
        wok_value tensor;
    } u;
} wok_attr;

typedef struct wok_node_view {
    const char *op_type, *domain, *name;
    const wok_value *inputs, *outputs;
    int input_count, output_count;
    const wok_attr *attrs;
    int attr_count;
} wok_node_view;

typedef struct wok_value_view {
    const char *name;
    wok_dtype dtype;
    int rank;
    int64_t dims[WOK_MAX_RANK];
    const char *dim_names[WOK_MAX_RANK];
    const void *data; /* a constant's elements, any alignment; NULL otherwise */
    size_t bytes;
    bool is_input, is_output;
    bool only_attr; /* a constant that stands in an attribute */
} wok_value_view;

WOK_API int wok_graph_node_count(const wok_model *model);
WOK_API int wok_graph_value_count(const wok_model *model);
WOK_API wok_node_view wok_graph_node_at(const wok_model *model, wok_node node);
WOK_API wok_value_view wok_graph_value_at(const wok_model *model, wok_value value);
/* Graph inputs and outputs in order, as value ids. */
WOK_API const wok_value *wok_graph_inputs(const wok_model *model, int *count);
WOK_API const wok_value *wok_graph_outputs(const wok_model *model, int *count);
WOK_API int wok_model_opset_count(const wok_model *model);
WOK_API const char *wok_model_opset_at(const wok_model *model, int index, int64_t *version);
WOK_API int wok_model_metadata_count(const wok_model *model);
WOK_API const char *wok_model_metadata_at(const wok_model *model, int index, const char **value);

#ifdef __cplusplus
}
#endif
#endif

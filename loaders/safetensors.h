/* safetensors.h - a table of named tensors, and the file format that holds one (internal).
 *
 * The format: u64 length of a JSON header, the header {"name": {"dtype", "shape", "data_offsets": [begin, end]}, ...,
 * "__metadata__": {...}}, then the elements. Source: the format section of github.com/huggingface/safetensors. Read
 * in place; nothing of the header is trusted: the tensors must cover the rest of the file exactly, without gap or
 * overlap, and each must have the bytes that its type and shape ask for. Stricter than the Python reader in one
 * thing: a name that occurs twice is refused. /
 */
#ifndef WOK_SAFETENSORS_H
#define WOK_SAFETENSORS_H

#include "json.h"
#include "loader.h"

typedef struct wok_tensor_entry {
    const char *name;
    wok_dtype dtype; /* WOK_NONE: a type that wok does not know */
    int rank;
    int64_t dims[WOK_MAX_RANK];
    const void *data; /* any alignment; never NULL */
    size_t bytes;
} wok_tensor_entry;

typedef struct wok_tensors {
    wok_ctx *ctx;
    const char *source;        /* for error sentences */
    wok_tensor_entry *entries; /* by name */
    size_t count, capacity;    /* capacity in bytes */
    wok_json *header;          /* holds the names; NULL for a table made in memory */
} wok_tensors;

/* Elements stay where they are in `source`. On failure the table is empty. */
wok_status wok_safetensors_read(wok_ctx *ctx, const wok_source *source, wok_tensors *tensors);
void wok_tensors_free(wok_tensors *tensors);
/* NULL if absent. */
const wok_tensor_entry *wok_tensors_find(const wok_tensors *tensors, const char *name);

/* The model's constants, whole or not at all. WOK_ERR_UNSUPPORTED for a model without any. */
wok_status wok_safetensors_write(const wok_model *model, const char *path);

#endif

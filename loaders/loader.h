/* loader.h - what the readers and writers of model files share (internal). */
#ifndef WOK_LOADER_H
#define WOK_LOADER_H

#include "wok_build.h"

#if defined __BYTE_ORDER__ && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "model files are little-endian and are used in place: a big-endian machine needs a conversion here"
#endif

/* Bytes of a tensor. False where a dimension is negative, the product does not fit, or elements have no size. */
static inline bool wok_loader_bytes(wok_dtype dtype, int rank, const int64_t *dims, size_t *bytes) {
    size_t total = wok_dtype_size(dtype);
    bool zero = false;
    if (total == 0) return false;
    for (int i = 0; i < rank; i++) {
        if (dims[i] < 0) return false;
        zero |= dims[i] == 0;
    }
    for (int i = 0; i < rank && !zero; i++) {
        if ((uint64_t)dims[i] > (uint64_t)(SIZE_MAX / 2) / total)
            return false; /* /2: differences of pointers fit too */
        total *= (size_t)dims[i];
    }
    *bytes = zero ? 0 : total;
    return true;
}

/* A constant that is to be borrowed must not be NULL, even with no bytes. */
extern const unsigned char wok_loader_nothing[1];

/* "[2,3]" for error sentences, cut off where it does not fit. */
const char *wok_loader_shape(const int64_t *dims, int rank, char *buffer, size_t size);
/* A name from a file, fit for a sentence: control characters become '?', long names are cut. */
const char *wok_loader_printable(const char *name, size_t length, char *buffer, size_t size);

/* ---- readers: from bytes that outlive the model ------------------------------------------------------------------ */

/* What the model's bytes are and where they came from. */
typedef struct wok_source {
    const uint8_t *data;
    size_t bytes;
    const char *name;     /* for error sentences: the path, or "memory" */
    const char *base_dir; /* folder of external data; NULL: there is none */
    const char *real_dir; /* the folder that the file really lies in, where that is another one; or NULL */
} wok_source;

/* Each creates *model and fills it through the builder, without wok_model_finish. On failure *model may be set: the
 * caller frees it. The source's bytes must stay until the model is freed. */
wok_status wok_onnx_read(wok_ctx *ctx, const wok_source *source, const wok_load_options *options, wok_model **model);
/* Weights of more than `external_above` bytes in all go to PATH.data. */
wok_status wok_onnx_write(const wok_model *model, const char *path, int64_t external_above);

#endif

/* wok_npy.h - NumPy's .npy files, for tensors in and out.
 *
 * Read: format versions 1 to 3, both byte orders, C and Fortran order, rank 0 to 8, zero sizes; bool, (u)int 8 to 64,
 * float 16, 32, 64. What comes out is always row-major and little-endian. Written: version 1.0, little-endian, C
 * order. Source of the format: numpy.lib.format. All functions are thread-safe; errors go to wok_ctx_error. /
 */
#ifndef WOK_NPY_H
#define WOK_NPY_H

#include "wok.h"

#ifdef __cplusplus
extern "C" {
#endif

/* On success tensor->data belongs to the caller: wok_npy_free. On failure (WOK_ERR_IO, WOK_ERR_FORMAT,
 * WOK_ERR_UNSUPPORTED for element types that wok has none for, WOK_ERR_MEMORY) tensor is empty. */
WOK_API wok_status wok_npy_load(wok_ctx *ctx, const char *path, wok_tensor *tensor);
/* The same from memory; `name` stands for the path in error sentences. */
WOK_API wok_status wok_npy_parse(wok_ctx *ctx, const void *data, size_t bytes, const char *name, wok_tensor *tensor);
/* Writes the file whole or not at all: under a temporary name in the same folder, then renamed. bf16, for which NumPy
 * has no type, is written as two opaque bytes ('|V2'). */
WOK_API wok_status wok_npy_save(wok_ctx *ctx, const char *path, const wok_tensor *tensor);
/* Frees and clears what wok_npy_load or wok_npy_parse gave. An empty tensor and NULL are fine. */
WOK_API void wok_npy_free(wok_ctx *ctx, wok_tensor *tensor);

#ifdef __cplusplus
}
#endif
#endif

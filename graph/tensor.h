/* tensor.h - helpers about tensors and types (internal). Sizes themselves (wok_count, wok_tensor_bytes) are in ir.h. */
#ifndef WOK_TENSOR_H
#define WOK_TENSOR_H

#include "ir.h"

/* Type to tensor, without data. WOK_ERR_SHAPE if its size does not fit. All dims must be numbers. */
wok_status wok_tensor_set(wok_tensor *tensor, const wok_type *type);
/* Element type, rank and all dims are known. */
bool wok_type_is_known(const wok_type *type);
/* f16, bf16, f32 or f64 at any alignment; false for other types. */
bool wok_convert_f32(wok_dtype dtype, const void *from, int64_t count, float *to);
/* "[2,3]", "[]" for a scalar, "?" for rank -1; -1 shows as "?". Thread-local ring, as wok_type_text. */
const char *wok_shape_text(const int64_t *dims, int rank);

#endif

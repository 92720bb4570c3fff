/* tensor.c - sizes of tensors, and plain conversions of constants. */
#include "tensor.h"

#include <math.h>
#include <string.h>

int64_t wok_count(const int64_t *dims, int rank) {
    if (rank < 0) return -1;
    int64_t count = 1;
    bool zero = false;
    for (int i = 0; i < rank; i++) {
        if (dims[i] < 0) return -1;
        zero |= dims[i] == 0;
    }
    for (int i = 0; i < rank && !zero; i++)
        if (__builtin_mul_overflow(count, dims[i], &count)) return -1;
    return zero ? 0 : count;
}

size_t wok_tensor_bytes(wok_dtype dtype, const int64_t *dims, int rank) {
    int64_t count = wok_count(dims, rank);
    size_t bytes, size = wok_dtype_size(dtype);
    if (count < 0 || size == 0 || __builtin_mul_overflow((size_t)count, size, &bytes)) return SIZE_MAX;
    return bytes > SIZE_MAX / 4 ? SIZE_MAX : bytes; /* room for alignment and for sums of a few */
}

wok_status wok_tensor_set(wok_tensor *tensor, const wok_type *type) {
    *tensor = (wok_tensor){.size = sizeof *tensor, .dtype = type->dtype, .rank = type->rank};
    for (int i = 0; i < type->rank; i++) tensor->dims[i] = type->dims[i];
    tensor->bytes = wok_tensor_bytes(type->dtype, type->dims, type->rank);
    return tensor->bytes == SIZE_MAX ? WOK_ERR_SHAPE : WOK_OK;
}

bool wok_type_is_known(const wok_type *type) {
    if (type->rank < 0 || type->dtype == WOK_NONE) return false;
    for (int i = 0; i < type->rank; i++)
        if (!wok_dim_known(type->dims[i])) return false;
    return true;
}

static float f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, mantissa = h & 0x3ff, bits;
    float x;
    if (exponent == 0) {
        x = ldexpf((float)mantissa, -24);
        return sign ? -x : x;
    }
    bits = sign | (exponent == 31 ? 0x7f800000u : (exponent + 112) << 23) | mantissa << 13;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static float bf16_to_f32(uint16_t h) {
    uint32_t bits = (uint32_t)h << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

bool wok_convert_f32(wok_dtype dtype, const void *from, int64_t count, float *to) {
    const unsigned char *p = from;
    if (dtype == WOK_F32) {
        if (count) memcpy(to, from, (size_t)count * sizeof *to);
        return true;
    }
    if (dtype == WOK_F64) {
        for (int64_t i = 0; i < count; i++) {
            double x;
            memcpy(&x, p + 8 * i, sizeof x);
            to[i] = (float)x;
        }
        return true;
    }
    if (dtype != WOK_F16 && dtype != WOK_BF16) return false;
    for (int64_t i = 0; i < count; i++) {
        uint16_t h;
        memcpy(&h, p + 2 * i, sizeof h);
        to[i] = dtype == WOK_F16 ? f16_to_f32(h) : bf16_to_f32(h);
    }
    return true;
}

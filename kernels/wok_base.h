/* wok_base.h - what every other header of wok builds on: version, status codes, element types, allocator.
 *
 * The library never prints, exits or aborts. Every function that can fail returns a wok_status; the sentence that
 * explains a failure is kept by the object that failed (wok_ctx_error, wok_session_error in wok.h).
 */
#ifndef WOK_BASE_H
#define WOK_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* MAJOR: a program must change; MINOR: something new; PATCH: neither. */
#define WOK_VERSION_MAJOR 0
#define WOK_VERSION_MINOR 1
#define WOK_VERSION_PATCH 0

#if defined(__GNUC__)
#define WOK_API __attribute__((visibility("default")))
#define WOK_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define WOK_API
#define WOK_PRINTF(fmt, args)
#endif

/* Values are pinned: they are part of the ABI. */
typedef enum wok_status {
    WOK_OK = 0,
    WOK_ERR_ARGUMENT = 1,    /* the caller passed something that cannot be right */
    WOK_ERR_MEMORY = 2,      /* the allocator said no */
    WOK_ERR_IO = 3,          /* a file cannot be opened, read or written */
    WOK_ERR_FORMAT = 4,      /* a file is damaged or is not what it says */
    WOK_ERR_UNSUPPORTED = 5, /* well formed, but wok cannot run it; the message lists what */
    WOK_ERR_SHAPE = 6,       /* shapes or element types do not fit each other */
    WOK_ERR_VALUE = 7,       /* an input value is out of its range (a token id outside the vocabulary) */
    WOK_ERR_LIMIT = 8,       /* a limit that the caller set was reached */
    WOK_ERR_STATE = 9        /* calls in the wrong order (an output asked for before the first run) */
} wok_status;

/* Element types, numbered as in ONNX (TensorProto.DataType). */
typedef enum wok_dtype {
    WOK_NONE = 0,
    WOK_F32 = 1,
    WOK_U8 = 2,
    WOK_I8 = 3,
    WOK_U16 = 4,
    WOK_I16 = 5,
    WOK_I32 = 6,
    WOK_I64 = 7,
    WOK_STRING = 8, /* known to the readers only; no operator computes on it */
    WOK_BOOL = 9,   /* one byte, 0 or 1 */
    WOK_F16 = 10,
    WOK_F64 = 11,
    WOK_U32 = 12,
    WOK_U64 = 13,
    WOK_BF16 = 16
} wok_dtype;

/* Bytes of one element; 0 for WOK_NONE and WOK_STRING. Thread-safe, like every function of this header. */
WOK_API size_t wok_dtype_size(wok_dtype dtype);
/* "f32", "i64", ...; "none" for an unknown value. Static storage. */
WOK_API const char *wok_dtype_name(wok_dtype dtype);
/* "ok", "argument", ... Static storage. */
WOK_API const char *wok_status_name(wok_status status);
/* "0.1.0", as compiled into the archive. */
WOK_API const char *wok_version(void);

/* A caller's allocator. alloc: at least `bytes` (> 0) bytes aligned to `alignment` (a power of two, at most 4096),
 * or NULL. free: `ptr` came from alloc and is not NULL. Both may be called from any thread that calls wok. */
typedef struct wok_allocator {
    void *(*alloc)(void *user, size_t bytes, size_t alignment);
    void (*free)(void *user, void *ptr, size_t bytes);
    void *user;
} wok_allocator;

#ifdef __cplusplus
}
#endif
#endif

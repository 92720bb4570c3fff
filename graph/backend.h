/* backend.h - what a device brings along (internal). The CPU is one; another archive may bring a second. */
#ifndef WOK_BACKEND_H
#define WOK_BACKEND_H

#include "op.h"

typedef struct wok_backend {
    const char *name;
    wok_device device;
    /* Best-first implementations of an operator, ending with NULL; NULL where there are none. */
    const wok_op_impl *const *(*impls)(wok_op op);
    /* Memory for the tensors of a run, counted by the ctx. Contents are unimportant. */
    void *(*alloc)(wok_ctx *ctx, size_t bytes);
    void (*release)(wok_ctx *ctx, void *ptr, size_t bytes);
} wok_backend;

extern const wok_backend wok_backend_cpu;

#endif

/* support.h - what the Criterion programs share: paths, arrays from .npy files, an allocator that fails on demand. */
#ifndef SUPPORT_H
#define SUPPORT_H

#include "wok_build.h"

#include <stdatomic.h>

/* "tests/data/NAME". Valid until the eighth call after this one. */
const char *support_data(const char *name);
/* "../shared/NAME" beside the source tree. Where it is absent the test is skipped; with CI=true in the environment it
 * fails. */
const char *support_shared(const char *name);
/* True if ../shared is there; false (or, with CI=true, a failed test) if not. For parameter generators and loops. */
bool support_has_shared(void);

/* ---- memory: counts, and fails at the call `fail_at` (counted from 1; 0: never) and at all later ones if `lasting` ------ */

typedef struct support_heap {
    _Atomic long calls, blocks, bytes; /* calls of alloc; what is allocated now */
    long fail_at;
    bool lasting;
    _Atomic long failures;
} support_heap;

wok_allocator support_allocator(support_heap *heap);
/* A context with this many threads (0: the default) whose memory comes from `heap` (NULL: the C library). */
wok_ctx *support_ctx(int threads, support_heap *heap);

/* ---- tensors --------------------------------------------------------------------------------------------------------------- */

/* Reads a .npy file or fails the test. Free with wok_npy_free. */
wok_tensor support_npy(wok_ctx *ctx, const char *path);
/* Largest |a - b|; infinity where one is NaN and the other is not. */
double support_distance(const float *a, const float *b, size_t count);
/* Reproducible numbers in [-1, 1). */
void support_random(float *out, size_t count, unsigned seed);

#endif

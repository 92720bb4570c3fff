/* eager.h - running a program node by node, where sizes depend on data (internal).
 *
 * Slower than a plan and not free of allocation: every tensor is allocated when its size becomes known and freed after
 * its last reader. It is there so that every valid graph runs. */
#ifndef WOK_EAGER_H
#define WOK_EAGER_H

#include "program.h"

/* The outputs of the last run; memory of the ctx. */
typedef struct wok_eager {
    wok_tensor *outputs; /* by output of the program */
    void **owned;        /* what is to be freed; NULL where the caller's memory was used */
    int count;
} wok_eager;

/* inputs: by input of the model, with data. Outputs that the caller bound are written there; one that is larger than what
 * was bound is an error, found only after it has been computed. */
wok_status wok_eager_run(wok_program *program, const wok_type *inputs, void *const *bound, const size_t *bound_bytes,
                         wok_eager *eager);
void wok_eager_clear(wok_ctx *ctx, wok_eager *eager);

#endif

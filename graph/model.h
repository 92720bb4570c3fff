/* model.h - inside a model (internal). */
#ifndef WOK_MODEL_H
#define WOK_MODEL_H

#include "ir.h"

typedef struct wok_blob {
    const char *base;
    size_t bytes;
    void (*release)(void *user);
    void (*forget)(void *user, const void *ptr, size_t bytes);
    void *user;
    struct wok_blob *next;
} wok_blob;

typedef struct wok_pair {
    const char *key, *value; /* metadata */
    int64_t version;         /* operator sets: key is the domain */
    struct wok_pair *next;
} wok_pair;

struct wok_program;

struct wok_model {
    wok_ctx *ctx;
    wok_graph *graph; /* as loaded; immutable after wok_model_finish */
    wok_blob *blobs;
    wok_pair *opsets, *metadata; /* in the order in which they were set */
    wok_status status;           /* first failure sticks */
    const char *error;
    bool finished, runnable;
    wok_model_info info;
    wok_value_info *inputs, *outputs;
    struct wok_program *programs; /* guarded by the process lock */
};

/* Tells the owner of borrowed memory that these bytes will not be read for a while. */
void wok_model_forget(const wok_model *model, const void *ptr, size_t bytes);
/* "input_ids i64[batch,sequence]": thread-local ring. */
const char *wok_value_info_text(const wok_value_info *info);

#endif

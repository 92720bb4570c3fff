/* pipeline.h - inside of wok_text (internal). pipeline_load.c reads files, pipeline.c runs. */
#ifndef WOK_PIPELINE_H
#define WOK_PIPELINE_H

#include "json.h"
#include "wok_build.h"
#include "wok_text.h"

#include <stdatomic.h>

enum wok_role { WOK_ROLE_IDS, WOK_ROLE_MASK, WOK_ROLE_TYPES, WOK_ROLE_POSITIONS, WOK_ROLE_COUNT };

struct wok_feed {
    int index; /* of the model's input; -1: the model has none */
    wok_dtype dtype;
};

enum wok_pooling {
    WOK_POOLING_CLS = 1,
    WOK_POOLING_MAX = 2,
    WOK_POOLING_MEAN = 4,
    WOK_POOLING_MEAN_SQRT = 8
}; /* a set */
enum wok_squash { WOK_SQUASH_SOFTMAX, WOK_SQUASH_SIGMOID, WOK_SQUASH_NONE };

struct wok_label {
    const char *text; /* in the configuration, or `standard` */
    char standard[28];
};

/* What a pipeline and its clones have in common. Read only, but for `users`. */
struct wok_text_shared {
    wok_ctx *ctx;
    atomic_int users;
    wok_model *model;
    wok_tokenizer *tokenizer;
    wok_json *config; /* config.json, holds the labels; NULL if absent */
    struct wok_label *labels;
    size_t label_count;
    wok_text_task task;
    wok_text_options options;
    struct wok_feed feeds[WOK_ROLE_COUNT];
    const char *output;
    int64_t fixed_batch, fixed_sequence; /* 0: free */
    int32_t max_length;                  /* 0: none */
    unsigned pooling;
    bool normalize;
    enum wok_squash squash;
};

/* A tokenised text, waiting for its batch. */
struct wok_text_row {
    size_t begin; /* in the stores of ids and types */
    int32_t length;
    size_t number; /* of the caller's item */
};

struct wok_text {
    struct wok_text_shared *shared;
    wok_session *session;
    wok_encoding *encoding;
    size_t width;
    int32_t *ids, *types; /* of all texts, one behind the other */
    size_t ids_bytes, types_bytes, stored;
    struct wok_text_row *rows, *order; /* as given; longest first */
    size_t rows_bytes, order_bytes;
    size_t *starts; /* counting sort by length */
    size_t starts_bytes;
    void *feeds[WOK_ROLE_COUNT];
    size_t feeds_bytes[WOK_ROLE_COUNT];
    char error[512];
};

/* Makes a pipeline on what is shared (whose count of users goes up by one): session, encoding, width. */
wok_status wok_text_open(struct wok_text_shared *shared, wok_text **pipeline);
void wok_text_release(struct wok_text_shared *shared);

#endif

/* labels.h - names of classes, from a file (internal). */
#ifndef WOK_LABELS_H
#define WOK_LABELS_H

#include "wok_build.h"

typedef struct wok_labels {
    wok_ctx *ctx;
    size_t count;
    const char **names; /* NULL for a class that the file does not name */
    char *text;         /* what the names point into */
    size_t names_bytes, text_bytes;
} wok_labels;

/* JSON where the path ends in .json, else one a line. On failure *labels is empty. */
wok_status wok_labels_load(wok_ctx *ctx, const char *path, wok_labels *labels);
void wok_labels_free(wok_labels *labels);

#endif

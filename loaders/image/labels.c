/* labels.c - see labels.h. */
#include "labels.h"

#include "../json.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_FILE = 64 << 20, MAX_LABELS = 1 << 20 };

/* Room for `count` names and `bytes` of text. */
static wok_status reserve(wok_labels *l, size_t count, size_t bytes) {
    l->names_bytes = count * sizeof *l->names;
    l->text_bytes = bytes;
    l->names = wok_ctx_alloc(l->ctx, l->names_bytes);
    l->text = l->names ? wok_ctx_alloc(l->ctx, bytes) : NULL;
    if (!l->text) return WOK_ERR_MEMORY;
    l->count = count;
    for (size_t i = 0; i < count; i++) l->names[i] = NULL;
    return WOK_OK;
}

/* ---- one a line ------------------------------------------------------------------------------------------------ */

static wok_status read_lines(wok_labels *l, const char *data, size_t bytes) {
    size_t count = 0, at = 0;
    for (size_t i = 0; i < bytes; i++) count += data[i] == '\n';
    if (bytes > 0 && data[bytes - 1] != '\n') count++;
    wok_status status = reserve(l, count, bytes + 1);
    if (status != WOK_OK) return status;
    memcpy(l->text, data, bytes);
    l->text[bytes] = 0;
    for (size_t i = 0; i < count; i++) {
        char *end = memchr(l->text + at, '\n', bytes - at);
        l->names[i] = l->text + at;
        if (!end) break;
        *end = 0;
        if (end > l->names[i] && end[-1] == '\r') end[-1] = 0;
        at = (size_t)(end - l->text) + 1;
    }
    return WOK_OK;
}

/* ---- JSON ------------------------------------------------------------------------------------------------------ */

/* The class that element number `n` names: n in an array, the key's number in an object; -1 if it is none. */
static int64_t class_of(const wok_json *doc, wok_json_at item, int64_t n, bool object) {
    if (!object) return n;
    const char *key = wok_json_string(doc, item, NULL);
    char *end;
    if (key[0] < '0' || key[0] > '9') return -1;
    long long value = strtoll(key, &end, 10);
    return *end == 0 && value < MAX_LABELS ? value : -1;
}

/* Calls for every label; false where the document holds anything else. */
static bool each_label(const wok_json *doc, void (*fn)(void *user, int64_t index, const char *name, size_t length),
                       void *user) {
    const wok_json_kind kind = wok_json_kind_of(doc, wok_json_root(doc));
    int64_t n = 0;
    if (kind != WOK_JSON_ARRAY && kind != WOK_JSON_OBJECT) return false;
    wok_json_each(doc, item, wok_json_root(doc)) {
        const bool object = kind == WOK_JSON_OBJECT;
        size_t length;
        const char *name = wok_json_string(doc, object ? wok_json_value(doc, item) : item, &length);
        const int64_t index = class_of(doc, item, n++, object);
        if (!name || index < 0) return false;
        fn(user, index, name, length);
    }
    return true;
}

typedef struct tally {
    size_t count, bytes;
} tally;

static void count_label(void *user, int64_t index, const char *name, size_t length) {
    tally *t = user;
    (void)name;
    if ((size_t)index + 1 > t->count) t->count = (size_t)index + 1;
    t->bytes += length + 1;
}

typedef struct filler {
    wok_labels *labels;
    size_t used;
} filler;

static void add_label(void *user, int64_t index, const char *name, size_t length) {
    filler *f = user;
    char *to = f->labels->text + f->used;
    memcpy(to, name, length);
    to[length] = 0;
    f->labels->names[index] = to;
    f->used += length + 1;
}

static wok_status read_json(wok_labels *l, const char *data, size_t bytes, const char *path) {
    wok_json *doc;
    wok_status status = wok_json_parse(l->ctx, data, bytes, path, &doc);
    if (status != WOK_OK) return status;
    tally t = {0, 1};
    filler f = {l, 0};
    if (!each_label(doc, count_label, &t))
        status = wok_ctx_fail(l->ctx, WOK_ERR_FORMAT,
                              "%s should be an array of labels, or an object from number to label", path);
    if (status == WOK_OK) status = reserve(l, t.count, t.bytes);
    if (status == WOK_OK) each_label(doc, add_label, &f);
    wok_json_free(&doc);
    return status;
}

/* ---------------------------------------------------------------------------------------------------------------- */

wok_status wok_labels_load(wok_ctx *ctx, const char *path, wok_labels *l) {
    char *data;
    size_t bytes;
    const size_t length = strlen(path);
    *l = (wok_labels){.ctx = ctx};
    wok_status status = wok_file_load(ctx, path, MAX_FILE, &data, &bytes);
    if (status != WOK_OK) return status;
    const bool json = length >= 5 && !strcmp(path + length - 5, ".json");
    status = json ? read_json(l, data, bytes, path) : read_lines(l, data, bytes);
    wok_ctx_release(ctx, data, bytes + 1);
    if (status != WOK_OK) wok_labels_free(l);
    return status;
}

void wok_labels_free(wok_labels *l) {
    if (!l->ctx) return;
    wok_ctx_release(l->ctx, l->names, l->names_bytes);
    wok_ctx_release(l->ctx, l->text, l->text_bytes);
    *l = (wok_labels){0};
}

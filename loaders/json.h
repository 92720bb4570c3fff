/* json.h - JSON as configuration files need it: strict, bounded, read-only (internal; jsmn finds the tokens).
 *
 *   wok_json *doc = NULL;
 *   if (wok_json_load(ctx, "config.json", &doc) != WOK_OK) ...          the ctx has the sentence
 *   wok_json_at layers = wok_json_get(doc, wok_json_root(doc), "n_layers");
 *   int64_t n;
 *   if (!wok_json_int(doc, layers, &n)) ...                             absent, or not an integer
 *   wok_json_each(doc, item, array) ...                                 elements of an array, keys of an object
 *   wok_json_free(&doc);
 *
 * Accepted: exactly RFC 8259 (plus a byte order mark in front), nested at most 64 deep, at most 128 MiB, valid
 * UTF-8. A lone surrogate escape (\ud800) is an error, \u0000 is a character like any other: strings carry their
 * length. Positions are plain integers; every function takes an absent one (-1) and answers "absent", so that
 * lookups chain: wok_json_get(doc, wok_json_get(doc, root, "model"), "type"). A document is immutable: any number
 * of threads may read.
 */
#ifndef WOK_JSON_H
#define WOK_JSON_H

#include "wok_build.h"

#define WOK_JSON_MAX_DEPTH 64

typedef struct wok_json wok_json;
typedef int32_t wok_json_at;

typedef enum wok_json_kind {
    WOK_JSON_ABSENT,
    WOK_JSON_NULL,
    WOK_JSON_BOOL,
    WOK_JSON_NUMBER,
    WOK_JSON_STRING,
    WOK_JSON_ARRAY,
    WOK_JSON_OBJECT
} wok_json_kind;

/* Copies the text. `what` names it in error sentences ("tokenizer.json"). Failure: WOK_ERR_FORMAT with the
 * offset, WOK_ERR_LIMIT, WOK_ERR_MEMORY; WOK_ERR_UNSUPPORTED in a build without jsmn. */
wok_status wok_json_parse(wok_ctx *ctx, const char *text, size_t bytes, const char *what, wok_json **doc);
/* The same from a file; WOK_ERR_IO if it cannot be read. */
wok_status wok_json_load(wok_ctx *ctx, const char *path, wok_json **doc);
/* A whole regular file in memory, one zero byte behind it; *bytes excludes it. Release with
 * wok_ctx_release(ctx, *data, *bytes + 1). Larger than `limit`: WOK_ERR_LIMIT. */
wok_status wok_file_load(wok_ctx *ctx, const char *path, size_t limit, char **data, size_t *bytes);
void wok_json_free(wok_json **doc);

static inline wok_json_at wok_json_root(const wok_json *doc) {
    return doc ? 0 : -1;
}
wok_json_kind wok_json_kind_of(const wok_json *doc, wok_json_at at);
/* Elements of an array, pairs of an object; 0 for anything else. */
int32_t wok_json_count(const wok_json *doc, wok_json_at at);
/* First element of an array, first key of an object; then the next one; -1 at the end. */
wok_json_at wok_json_first(const wok_json *doc, wok_json_at at);
wok_json_at wok_json_next(const wok_json *doc, wok_json_at at);
#define wok_json_each(doc, item, parent)                                                                               \
    for (wok_json_at item = wok_json_first(doc, parent); item >= 0; item = wok_json_next(doc, item))
/* The value that belongs to a key found by wok_json_first / wok_json_next in an object. */
wok_json_at wok_json_value(const wok_json *doc, wok_json_at key);
/* By name, a walk over the object; of repeated keys the last one counts, as in Python. -1 if absent or no
 * object. */
wok_json_at wok_json_get(const wok_json *doc, wok_json_at object, const char *name);

/* UTF-8, escapes resolved, zero-terminated as well; lives as long as the document. NULL if not a string.
 * `length` may be NULL. */
const char *wok_json_string(const wok_json *doc, wok_json_at at, size_t *length);
/* Is it this string? */
bool wok_json_is(const wok_json *doc, wok_json_at at, const char *text);
/* false, and *value untouched, where the kind is another. An integer may be written 12, 12.0 or 1.2e1.
 * Numbers beyond the double range are errors, not infinities. */
bool wok_json_int(const wok_json *doc, wok_json_at at, int64_t *value);
bool wok_json_double(const wok_json *doc, wok_json_at at, double *value);
bool wok_json_bool(const wok_json *doc, wok_json_at at, bool *value);

#endif

/* json.c - jsmn cuts the text into tokens, one walk over them checks what jsmn lets pass (punctuation,
 * literals, escapes, UTF-8), resolves the strings in place and links siblings. */
#include "json.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_BYTES ((size_t)128 << 20) /* a safetensors header may have 100 MB; jsmn counts in int */

wok_status wok_file_load(wok_ctx *ctx, const char *path, size_t limit, char **data, size_t *bytes) {
    *data = NULL;
    *bytes = 0;
    FILE *file = fopen(path, "rb");
    if (!file) return wok_ctx_fail(ctx, WOK_ERR_IO, "%s: %s", path, strerror(errno));
    void *text = NULL;
    size_t held = 0, length = 0, got = 0;
    wok_status status = WOK_OK;
    do { /* no size is asked for: a directory or a pipe has none */
        length += got;
        if (length > limit) {
            status = wok_ctx_fail(ctx, WOK_ERR_LIMIT, "%s: larger than %zu bytes", path, limit);
            break;
        }
        status = wok_ctx_grow(ctx, &text, &held, length + 65536);
        if (status != WOK_OK) break;
        errno = 0;
        got = fread((char *)text + length, 1, held - length, file);
    } while (got > 0);
    if (status == WOK_OK && ferror(file))
        status = wok_ctx_fail(ctx, WOK_ERR_IO, "%s: %s", path, errno ? strerror(errno) : "read error");
    fclose(file);
    char *exact = status == WOK_OK ? wok_ctx_alloc(ctx, length + 1) : NULL;
    if (exact) {
        memcpy(exact, text, length);
        exact[length] = 0;
        *data = exact;
        *bytes = length;
    } else if (status == WOK_OK) {
        status = WOK_ERR_MEMORY;
    }
    wok_ctx_release(ctx, text, held);
    return status;
}

#if !defined WOK_HAVE_JSMN || !WOK_HAVE_JSMN

/* Nothing can be parsed, so no document exists for the readers below to see. */
wok_status wok_json_parse(wok_ctx *ctx, const char *text, size_t bytes, const char *what, wok_json **doc) {
    (void)text, (void)bytes;
    *doc = NULL;
    return wok_ctx_fail(ctx, WOK_ERR_UNSUPPORTED, "%s: this build of wok has no JSON reader (jsmn)", what);
}
void wok_json_free(wok_json **doc) {
    *doc = NULL;
}
wok_json_kind wok_json_kind_of(const wok_json *doc, wok_json_at at) {
    return (void)doc, (void)at, WOK_JSON_ABSENT;
}
int32_t wok_json_count(const wok_json *doc, wok_json_at at) {
    return (void)doc, (void)at, 0;
}
wok_json_at wok_json_first(const wok_json *doc, wok_json_at at) {
    return (void)doc, (void)at, -1;
}
wok_json_at wok_json_next(const wok_json *doc, wok_json_at at) {
    return (void)doc, (void)at, -1;
}
wok_json_at wok_json_value(const wok_json *doc, wok_json_at key) {
    return (void)doc, (void)key, -1;
}
wok_json_at wok_json_get(const wok_json *doc, wok_json_at object, const char *name) {
    return (void)doc, (void)object, (void)name, -1;
}
const char *wok_json_string(const wok_json *doc, wok_json_at at, size_t *length) {
    return (void)doc, (void)at, (void)length, NULL;
}
bool wok_json_is(const wok_json *doc, wok_json_at at, const char *text) {
    return (void)doc, (void)at, (void)text, false;
}
bool wok_json_int(const wok_json *doc, wok_json_at at, int64_t *value) {
    return (void)doc, (void)at, (void)value, false;
}
bool wok_json_double(const wok_json *doc, wok_json_at at, double *value) {
    return (void)doc, (void)at, (void)value, false;
}
bool wok_json_bool(const wok_json *doc, wok_json_at at, bool *value) {
    return (void)doc, (void)at, (void)value, false;
}

#else

#define JSMN_STATIC
#define JSMN_PARENT_LINKS /* without them every closing bracket searches all tokens */
#include <jsmn.h>

struct wok_json {
    wok_ctx *ctx;
    char *text; /* a copy; strings are resolved in place and zero-terminated */
    size_t bytes;
    jsmntok_t *tokens; /* after the check, `parent` holds the next sibling, -1 for the last */
    int count;
};

/* ---- the check
 * ----------------------------------------------------------------------------------------------------- */

struct walk {
    char *text;
    size_t bytes, pos;
    jsmntok_t *tokens;
    int count, at; /* tokens; the next one */
    const char *problem;
};

static bool refuse(struct walk *w, size_t pos, const char *problem) {
    if (!w->problem) {
        w->problem = problem;
        w->pos = pos;
    }
    return false;
}

static void skip_space(struct walk *w) {
    while (w->pos < w->bytes && memchr(" \t\r\n", w->text[w->pos], 4)) w->pos++;
}

static bool expect(struct walk *w, char c, const char *problem) {
    skip_space(w);
    if (w->pos >= w->bytes || w->text[w->pos] != c) return refuse(w, w->pos, problem);
    w->pos++;
    return true;
}

static size_t digits(const char *s, size_t n) {
    size_t i = 0;
    while (i < n && s[i] >= '0' && s[i] <= '9') i++;
    return i;
}

static bool is_number(const char *s, size_t n) {
    size_t i = n > 0 && s[0] == '-', d = digits(s + i, n - i);
    if (d == 0 || (d > 1 && s[i] == '0')) return false;
    i += d;
    if (i < n && s[i] == '.') {
        d = digits(s + i + 1, n - i - 1);
        if (d == 0) return false;
        i += 1 + d;
    }
    if (i < n && (s[i] == 'e' || s[i] == 'E')) {
        i++;
        if (i < n && (s[i] == '+' || s[i] == '-')) i++;
        d = digits(s + i, n - i);
        if (d == 0) return false;
        i += d;
    }
    return i == n;
}

static bool is_literal(const char *s, size_t n, const char *word) {
    return strlen(word) == n && !memcmp(s, word, n);
}

/* Bytes of the valid UTF-8 sequence at s (Unicode table 3-7), 0 if it is not one. */
static size_t utf8_length(const unsigned char *s, size_t n) {
    if (s[0] < 0x80) return 1;
    if (s[0] < 0xc2 || s[0] > 0xf4) return 0;
    size_t length = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    if (length > n) return 0;
    unsigned low = s[0] == 0xe0   ? 0xa0
                   : s[0] == 0xf0 ? 0x90
                                  : 0x80,
             high = s[0] == 0xed   ? 0x9f
                    : s[0] == 0xf4 ? 0x8f
                                   : 0xbf;
    if (s[1] < low || s[1] > high) return 0;
    for (size_t i = 2; i < length; i++)
        if (s[i] < 0x80 || s[i] > 0xbf) return 0;
    return length;
}

static int hex4(const char *s, size_t n) {
    int value = 0;
    if (n < 4) return -1;
    for (int i = 0; i < 4; i++) {
        char c = s[i];
        int d = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
        if (d < 0) return -1;
        value = value * 16 + d;
    }
    return value;
}

static size_t put_utf8(char *to, unsigned c) {
    if (c < 0x80) return to[0] = (char)c, 1;
    if (c < 0x800) return to[0] = (char)(0xc0 | c >> 6), to[1] = (char)(0x80 | (c & 63)), 2;
    if (c < 0x10000)
        return to[0] = (char)(0xe0 | c >> 12), to[1] = (char)(0x80 | (c >> 6 & 63)), to[2] = (char)(0x80 | (c & 63)), 3;
    to[0] = (char)(0xf0 | c >> 18), to[1] = (char)(0x80 | (c >> 12 & 63));
    to[2] = (char)(0x80 | (c >> 6 & 63)), to[3] = (char)(0x80 | (c & 63));
    return 4;
}

/* The escape at s (behind the backslash) as a code point, and its length; -1 if it is none. */
static int32_t escape(const char *s, size_t n, size_t *used) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *hit = n > 0 ? memchr(from, s[0], 8) : NULL;
    *used = 1;
    if (hit) return to[hit - from];
    int high = n > 0 && s[0] == 'u' ? hex4(s + 1, n - 1) : -1;
    *used = 5;
    if (high < 0xd800 || high > 0xdfff) return high;
    int low = high < 0xdc00 && n >= 11 && s[5] == '\\' && s[6] == 'u' ? hex4(s + 7, 4) : -1;
    *used = 11;
    return low < 0xdc00 || low > 0xdfff ? -1 : 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
}

/* An escape is never shorter than what it stands for, so the text shrinks in place; the closing quote has
 * room for the terminating zero. */
static bool check_string(struct walk *w, jsmntok_t *token) {
    size_t from = (size_t)token->start, end = (size_t)token->end, to = from;
    while (from < end) {
        unsigned char c = (unsigned char)w->text[from];
        size_t used = 1;
        if (c < 0x20) return refuse(w, from, "a control character in a string");
        if (c == '\\') {
            int32_t code = escape(w->text + from + 1, end - from - 1, &used);
            if (code < 0) return refuse(w, from, "a bad escape in a string");
            to += put_utf8(w->text + to, (unsigned)code);
            from += used + 1;
            continue;
        }
        used = utf8_length((unsigned char *)w->text + from, end - from);
        if (used == 0) return refuse(w, from, "not UTF-8");
        memmove(w->text + to, w->text + from, used);
        to += used;
        from += used;
    }
    w->text[to] = 0;
    token->end = (int)to;
    w->pos = end + 1;
    return true;
}

static bool check_value(struct walk *w);

/* Members of an object or array; tokens come in the order of the text, so a child follows where the last one
 * ended. */
static bool check_members(struct walk *w, int parent) {
    bool object = w->tokens[parent].type == JSMN_OBJECT;
    int last = -1;
    w->pos++;
    for (int i = 0; i < w->tokens[parent].size; i++) {
        if (i > 0 && !expect(w, ',', "',' expected")) return false;
        int child = w->at;
        if (child >= w->count) return refuse(w, w->pos, "a value expected");
        if (object && (w->tokens[child].type != JSMN_STRING || w->tokens[child].size != 1))
            return refuse(w, w->pos, "a key and its value expected");
        if (!check_value(w)) return false;
        if (object && (!expect(w, ':', "':' expected") || !check_value(w))) return false;
        if (last >= 0) w->tokens[last].parent = child;
        last = child;
    }
    return expect(w, object ? '}' : ']', object ? "'}' or ',' expected" : "']' or ',' expected");
}

/* Recursive; too_deep() has bounded the depth. */
static bool check_value(struct walk *w) {
    skip_space(w);
    if (w->at >= w->count) return refuse(w, w->pos, "a value expected");
    int self = w->at++;
    jsmntok_t *token = &w->tokens[self];
    size_t start = (size_t)token->start - (token->type == JSMN_STRING);
    if (start != w->pos) return refuse(w, w->pos, "a value expected");
    token->parent = -1;
    if (token->type == JSMN_STRING) return check_string(w, token);
    if (token->type != JSMN_PRIMITIVE) return check_members(w, self);
    const char *s = w->text + start;
    size_t n = (size_t)(token->end - token->start);
    if (!is_number(s, n) && !is_literal(s, n, "true") && !is_literal(s, n, "false") && !is_literal(s, n, "null"))
        return refuse(w, start, "neither a number nor true, false, null");
    w->pos += n;
    return true;
}

static bool check_document(struct walk *w) {
    if (!check_value(w)) return false;
    skip_space(w);
    return w->pos == w->bytes && w->at == w->count ? true : refuse(w, w->pos, "text after the end");
}

/* ---- parsing
 * ------------------------------------------------------------------------------------------------------- */

/* Asked before jsmn runs: its way back from a closing bracket takes a step per level. */
static bool too_deep(const char *text, size_t bytes) {
    bool quoted = false;
    int depth = 0;
    for (size_t i = 0; i < bytes; i++) {
        char c = text[i];
        if (quoted && c == '\\')
            i++;
        else if (c == '"')
            quoted = !quoted;
        else if (!quoted && (c == '[' || c == '{') && ++depth > WOK_JSON_MAX_DEPTH)
            return true;
        else if (!quoted && (c == ']' || c == '}'))
            depth -= depth > 0;
    }
    return false;
}

static wok_status tokenize(wok_json *doc, size_t skip, const char *what) {
    jsmn_parser parser;
    jsmn_init(&parser);
    char *text = doc->text + skip;
    size_t bytes = doc->bytes - skip;
    if (too_deep(text, bytes))
        return wok_ctx_fail(doc->ctx, WOK_ERR_LIMIT, "%s: nested more than %d deep", what, WOK_JSON_MAX_DEPTH);
    int count = jsmn_parse(&parser, text, bytes, NULL, 0);
    if (count > 0) {
        doc->count = count;
        doc->tokens = wok_ctx_alloc(doc->ctx, (size_t)count * sizeof *doc->tokens);
        if (!doc->tokens) return WOK_ERR_MEMORY;
        jsmn_init(&parser);
        count = jsmn_parse(&parser, text, bytes, doc->tokens, (unsigned)count);
    }
    if (count <= 0 || count != doc->count)
        return wok_ctx_fail(doc->ctx, WOK_ERR_FORMAT, "%s: not JSON: %s at byte %u", what,
                            count == JSMN_ERROR_PART ? "cut off"
                            : count == 0             ? "empty"
                                                     : "a character out of place",
                            parser.pos + (unsigned)skip);
    struct walk walk = {.text = text, .bytes = bytes, .tokens = doc->tokens, .count = count};
    if (!check_document(&walk))
        return wok_ctx_fail(doc->ctx, WOK_ERR_FORMAT, "%s: not JSON: %s at byte %zu", what, walk.problem,
                            walk.pos + skip);
    for (int i = 0; i < count; i++) doc->tokens[i].start += (int)skip, doc->tokens[i].end += (int)skip;
    return WOK_OK;
}

wok_status wok_json_parse(wok_ctx *ctx, const char *text, size_t bytes, const char *what, wok_json **out) {
    *out = NULL;
    if (bytes > MAX_BYTES) return wok_ctx_fail(ctx, WOK_ERR_LIMIT, "%s: larger than %zu bytes", what, MAX_BYTES);
    wok_json *doc = wok_ctx_alloc(ctx, sizeof *doc);
    if (!doc) return WOK_ERR_MEMORY;
    *doc = (wok_json){.ctx = ctx, .bytes = bytes};
    doc->text = wok_ctx_alloc(ctx, bytes + 1);
    wok_status status = WOK_ERR_MEMORY;
    if (doc->text) {
        if (bytes > 0) memcpy(doc->text, text, bytes);
        doc->text[bytes] = 0;
        status = tokenize(doc, bytes >= 3 && !memcmp(text, "\xef\xbb\xbf", 3) ? 3 : 0, what);
    }
    if (status != WOK_OK) wok_json_free(&doc);
    *out = doc;
    return status;
}

void wok_json_free(wok_json **doc) {
    if (!doc || !*doc) return;
    wok_json *d = *doc;
    wok_ctx *ctx = d->ctx;
    wok_ctx_release(ctx, d->tokens, (size_t)d->count * sizeof *d->tokens);
    wok_ctx_release(ctx, d->text, d->bytes + 1);
    wok_ctx_release(ctx, d, sizeof *d);
    *doc = NULL;
}

/* ---- reading
 * ------------------------------------------------------------------------------------------------------- */

static const jsmntok_t *token_at(const wok_json *doc, wok_json_at at) {
    return doc && at >= 0 && at < doc->count ? &doc->tokens[at] : NULL;
}

wok_json_kind wok_json_kind_of(const wok_json *doc, wok_json_at at) {
    const jsmntok_t *token = token_at(doc, at);
    if (!token) return WOK_JSON_ABSENT;
    if (token->type == JSMN_OBJECT) return WOK_JSON_OBJECT;
    if (token->type == JSMN_ARRAY) return WOK_JSON_ARRAY;
    if (token->type == JSMN_STRING) return WOK_JSON_STRING;
    char c = doc->text[token->start];
    return c == 'n' ? WOK_JSON_NULL : c == 't' || c == 'f' ? WOK_JSON_BOOL : WOK_JSON_NUMBER;
}

static bool is_container(const jsmntok_t *token) {
    return token && (token->type == JSMN_OBJECT || token->type == JSMN_ARRAY);
}

int32_t wok_json_count(const wok_json *doc, wok_json_at at) {
    const jsmntok_t *token = token_at(doc, at);
    return is_container(token) ? token->size : 0;
}

wok_json_at wok_json_first(const wok_json *doc, wok_json_at at) {
    return wok_json_count(doc, at) > 0 ? at + 1 : -1;
}

wok_json_at wok_json_next(const wok_json *doc, wok_json_at at) {
    const jsmntok_t *token = token_at(doc, at);
    return token ? token->parent : -1;
}

wok_json_at wok_json_value(const wok_json *doc, wok_json_at key) {
    const jsmntok_t *token = token_at(doc, key);
    return token && token->type == JSMN_STRING && token->size == 1 ? key + 1 : -1;
}

wok_json_at wok_json_get(const wok_json *doc, wok_json_at object, const char *name) {
    wok_json_at found = -1;
    if (wok_json_kind_of(doc, object) == WOK_JSON_OBJECT)
        wok_json_each(doc, key, object) if (wok_json_is(doc, key, name)) found = wok_json_value(doc, key);
    return found;
}

const char *wok_json_string(const wok_json *doc, wok_json_at at, size_t *length) {
    const jsmntok_t *token = token_at(doc, at);
    if (!token || token->type != JSMN_STRING) return NULL;
    if (length) *length = (size_t)(token->end - token->start);
    return doc->text + token->start;
}

bool wok_json_is(const wok_json *doc, wok_json_at at, const char *text) {
    size_t length;
    const char *s = wok_json_string(doc, at, &length);
    return s && is_literal(s, length, text);
}

bool wok_json_bool(const wok_json *doc, wok_json_at at, bool *value) {
    if (wok_json_kind_of(doc, at) != WOK_JSON_BOOL) return false;
    *value = doc->text[token_at(doc, at)->start] == 't';
    return true;
}

/* strtod reads the decimal point of the program's locale: give it that one. */
static double slow_double(const char *s, size_t n) {
    char copy[1100]; /* more digits than any double needs to round right */
    const char *point = localeconv()->decimal_point;
    size_t used = 0, width = strlen(point);
    for (size_t i = 0; i < n && used + width + 1 < sizeof copy; i++) {
        if (s[i] != '.')
            copy[used++] = s[i];
        else
            memcpy(copy + used, point, width), used += width;
    }
    copy[used] = 0;
    return n < 1024 ? strtod(copy, NULL) : NAN;
}

bool wok_json_double(const wok_json *doc, wok_json_at at, double *value) {
    static const double tens[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                  1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    if (wok_json_kind_of(doc, at) != WOK_JSON_NUMBER) return false;
    const char *s = doc->text + token_at(doc, at)->start;
    size_t n = (size_t)(token_at(doc, at)->end - token_at(doc, at)->start), i = s[0] == '-';
    uint64_t mantissa = 0;
    int scale = 0;
    bool exact = true, fraction = false;
    for (; i < n && (s[i] == '.' || (s[i] >= '0' && s[i] <= '9')); i++) {
        if (s[i] == '.') {
            fraction = true;
            continue;
        }
        mantissa = mantissa * 10 + (uint64_t)(s[i] - '0');
        scale -= fraction;
        if (mantissa > (uint64_t)1 << 53) exact = false, mantissa = 0;
    }
    if (i < n && n - i <= 6) {
        int exponent = 0;
        bool down = s[i + 1] == '-';
        for (i += 1 + (s[i + 1] == '-' || s[i + 1] == '+'); i < n; i++) exponent = exponent * 10 + (s[i] - '0');
        scale += down ? -exponent : exponent;
    }
    /* Both sides exact, one rounding: right to the last bit. */
    double result = i == n && exact && scale >= -22 && scale <= 22
                        ? (scale < 0 ? (double)mantissa / tens[-scale] : (double)mantissa * tens[scale])
                        : fabs(slow_double(s, n));
    if (!isfinite(result)) return false;
    *value = s[0] == '-' ? -result : result;
    return true;
}

bool wok_json_int(const wok_json *doc, wok_json_at at, int64_t *value) {
    if (wok_json_kind_of(doc, at) != WOK_JSON_NUMBER) return false;
    const char *s = doc->text + token_at(doc, at)->start;
    size_t n = (size_t)(token_at(doc, at)->end - token_at(doc, at)->start), sign = s[0] == '-';
    if (digits(s + sign, n - sign) == n - sign) {
        uint64_t magnitude = 0, most = (uint64_t)INT64_MAX + sign;
        for (size_t i = sign; i < n; i++) {
            uint64_t digit = (uint64_t)(s[i] - '0');
            if (magnitude > (most - digit) / 10) return false;
            magnitude = magnitude * 10 + digit;
        }
        *value = sign ? (int64_t)(0 - magnitude) : (int64_t)magnitude;
        return true;
    }
    double d;
    if (!wok_json_double(doc, at, &d) || d != floor(d) || fabs(d) > 9007199254740992.0) return false;
    *value = (int64_t)d;
    return true;
}

wok_status wok_json_load(wok_ctx *ctx, const char *path, wok_json **doc) {
    char *text = NULL;
    size_t bytes = 0;
    *doc = NULL;
    wok_status status = wok_file_load(ctx, path, MAX_BYTES, &text, &bytes);
    if (status != WOK_OK) return status;
    status = wok_json_parse(ctx, text, bytes, path, doc);
    wok_ctx_release(ctx, text, bytes + 1);
    return status;
}
#endif

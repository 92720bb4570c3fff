/* npy.c - see wok_npy.h. The header is a Python dictionary in text: a small reader takes the three keys that NumPy
 * writes, in any order. */
#include "wok_npy.h"

#include "loader.h"
#include "mapfile.h"
#include "outfile.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const unsigned char MAGIC[6] = {0x93, 'N', 'U', 'M', 'P', 'Y'};

static const struct {
    const char *descr; /* behind the byte order */
    wok_dtype dtype;
} types[] = {{"f4", WOK_F32}, {"f8", WOK_F64}, {"f2", WOK_F16}, {"i8", WOK_I64}, {"i4", WOK_I32}, {"i2", WOK_I16},
             {"i1", WOK_I8},  {"u8", WOK_U64}, {"u4", WOK_U32}, {"u2", WOK_U16}, {"u1", WOK_U8},  {"b1", WOK_BOOL}};
enum { TYPE_COUNT = sizeof types / sizeof *types };

/* ---- the header's text ------------------------------------------------------------------------------------------- */

typedef struct text {
    const char *at, *end;
} text;

typedef struct header {
    char descr[32];
    bool fortran, swapped;
    bool has_descr, has_order, has_shape;
    wok_dtype dtype;
    int rank; /* WOK_MAX_RANK + 1: more than fit */
    int64_t dims[WOK_MAX_RANK];
} header;

static void skip_space(text *t) {
    while (t->at < t->end && (*t->at == ' ' || *t->at == '\n' || *t->at == '\t' || *t->at == '\r')) t->at++;
}

static bool take(text *t, char c) {
    skip_space(t);
    if (t->at == t->end || *t->at != c) return false;
    t->at++;
    return true;
}

static bool take_word(text *t, const char *word) {
    size_t n = strlen(word);
    skip_space(t);
    if ((size_t)(t->end - t->at) < n || memcmp(t->at, word, n)) return false;
    t->at += n;
    return true;
}

/* A string in either quotes, without escapes; cut to the buffer. */
static bool take_string(text *t, char *out, size_t size) {
    skip_space(t);
    if (t->at == t->end || (*t->at != '\'' && *t->at != '"')) return false;
    const char *start = t->at + 1, *stop = memchr(start, *t->at, (size_t)(t->end - start));
    if (!stop) return false;
    wok_loader_printable(start, (size_t)(stop - start), out, size);
    t->at = stop + 1;
    return true;
}

static bool take_size(text *t, int64_t *value) {
    skip_space(t);
    const char *start = t->at;
    *value = 0;
    for (; t->at < t->end && *t->at >= '0' && *t->at <= '9'; t->at++) {
        if (*value > (INT64_MAX - 9) / 10) return false;
        *value = *value * 10 + (*t->at - '0');
    }
    if (t->at == start) return false;
    if (t->at < t->end && *t->at == 'L') t->at++; /* Python 2 */
    return true;
}

static bool take_shape(text *t, header *h) {
    if (!take(t, '(')) return false;
    h->rank = 0;
    while (!take(t, ')')) {
        int64_t size;
        if (h->rank > 0 && !take(t, ',')) return false;
        if (h->rank > 0 && take(t, ')')) return true; /* (3,) */
        if (!take_size(t, &size)) return false;
        if (h->rank < WOK_MAX_RANK) h->dims[h->rank] = size;
        h->rank += h->rank <= WOK_MAX_RANK;
    }
    return true;
}

static bool take_entry(text *t, header *h) {
    char key[32];
    if (!take_string(t, key, sizeof key) || !take(t, ':')) return false;
    if (!strcmp(key, "descr")) return h->has_descr = take_string(t, h->descr, sizeof h->descr);
    if (!strcmp(key, "shape")) return h->has_shape = take_shape(t, h);
    if (strcmp(key, "fortran_order")) return false;
    h->fortran = take_word(t, "True");
    return h->has_order = h->fortran || take_word(t, "False");
}

static bool take_header(text t, header *h) {
    if (!take(&t, '{')) return false;
    while (!take(&t, '}'))
        if (!take_entry(&t, h) || (!take(&t, ',') && (t.at == t.end || *t.at != '}'))) return false;
    skip_space(&t);
    return t.at == t.end && h->has_descr && h->has_order && h->has_shape;
}

static bool find_type(header *h) {
    const char *descr = h->descr;
    h->swapped = *descr == '>' || *descr == '!';
    if (*descr && strchr("<>|=!", *descr)) descr++;
    if (!strcmp(descr, "?")) descr = "b1";
    for (int i = 0; i < TYPE_COUNT; i++)
        if (!strcmp(descr, types[i].descr)) h->dtype = types[i].dtype;
    return h->dtype != WOK_NONE;
}

/* ---- elements ---------------------------------------------------------------------------------------------------- */

static void swap_bytes(uint8_t *data, size_t count, size_t size) {
    for (size_t i = 0; i < count; i++, data += size)
        for (size_t a = 0, b = size - 1; a < b; a++, b--) {
            uint8_t byte = data[a];
            data[a] = data[b];
            data[b] = byte;
        }
}

/* Column-major to row-major: an odometer over the output, whose last axis moves by the largest step. */
static void from_fortran(const uint8_t *in, uint8_t *out, const header *h, size_t size, size_t count) {
    size_t step[WOK_MAX_RANK], index[WOK_MAX_RANK] = {0}, at = 0;
    size_t stride = size;
    for (int i = 0; i < h->rank; i++) {
        step[i] = stride;
        stride *= (size_t)h->dims[i];
    }
    for (size_t n = 0; n < count; n++, out += size) {
        memcpy(out, in + at, size);
        for (int axis = h->rank - 1; axis >= 0; axis--) {
            at += step[axis];
            if (++index[axis] < (size_t)h->dims[axis]) break;
            at -= step[axis] * (size_t)h->dims[axis];
            index[axis] = 0;
        }
    }
}

static wok_status read_elements(wok_ctx *ctx, const header *h, const uint8_t *data, size_t bytes, wok_tensor *tensor) {
    size_t size = wok_dtype_size(h->dtype), count = bytes / size;
    uint8_t *out = wok_ctx_alloc(ctx, bytes);
    if (!out) return WOK_ERR_MEMORY;
    if (h->fortran && h->rank > 1)
        from_fortran(data, out, h, size, count);
    else if (bytes > 0)
        memcpy(out, data, bytes);
    if (h->swapped && size > 1) swap_bytes(out, count, size);
    for (size_t i = 0; h->dtype == WOK_BOOL && i < count; i++) out[i] = out[i] != 0;
    *tensor = (wok_tensor){.size = sizeof *tensor, .dtype = h->dtype, .rank = h->rank, .data = out, .bytes = bytes};
    memcpy(tensor->dims, h->dims, sizeof h->dims);
    return WOK_OK;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* Where the header's text stands. */
static const char *find_text(const uint8_t *data, size_t bytes, text *t) {
    if (bytes < 10 || memcmp(data, MAGIC, sizeof MAGIC)) return "it is not a .npy file";
    size_t start = data[6] == 1 ? 10 : 12, length = (size_t)data[8] | (size_t)data[9] << 8;
    if (data[6] < 1 || data[6] > 3) return "its version is not 1, 2 or 3";
    if (bytes < start) return "its header is cut off";
    if (data[6] > 1) length |= (size_t)data[10] << 16 | (size_t)data[11] << 24;
    if (length > bytes - start) return "its header is cut off";
    *t = (text){(const char *)data + start, (const char *)data + start + length};
    return NULL;
}

wok_status wok_npy_parse(wok_ctx *ctx, const void *data, size_t bytes, const char *name, wok_tensor *tensor) {
    text t;
    header h = {.rank = 0};
    size_t need;
    char shape[128];
    *tensor = (wok_tensor){.size = sizeof *tensor};
    const char *problem = find_text(data, bytes, &t);
    if (!problem && !take_header(t, &h)) problem = "its header is not what NumPy writes";
    if (problem) return wok_ctx_fail(ctx, WOK_ERR_FORMAT, "%s: %s", name, problem);
    if (h.rank > WOK_MAX_RANK) return wok_ctx_fail(ctx, WOK_ERR_UNSUPPORTED, "%s: it has more than 8 dimensions", name);
    if (!find_type(&h))
        return wok_ctx_fail(ctx, WOK_ERR_UNSUPPORTED, "%s: elements of type '%s' are not supported", name, h.descr);
    const char *shown = wok_loader_shape(h.dims, h.rank, shape, sizeof shape);
    if (!wok_loader_bytes(h.dtype, h.rank, h.dims, &need))
        return wok_ctx_fail(ctx, WOK_ERR_FORMAT, "%s: its shape %s is impossible", name, shown);
    size_t have = bytes - (size_t)(t.end - (const char *)data);
    if (have != need)
        return wok_ctx_fail(ctx, WOK_ERR_FORMAT, "%s: its shape %s needs %zu bytes, %zu are there", name, shown, need,
                            have);
    return read_elements(ctx, &h, (const uint8_t *)t.end, need, tensor);
}

wok_status wok_npy_load(wok_ctx *ctx, const char *path, wok_tensor *tensor) {
    wok_mapfile *map;
    *tensor = (wok_tensor){.size = sizeof *tensor};
    wok_status status = wok_mapfile_open(ctx, path, true, &map);
    if (status != WOK_OK) return status;
    status = wok_npy_parse(ctx, map->data, map->bytes, path, tensor);
    wok_mapfile_close(map);
    return status;
}

void wok_npy_free(wok_ctx *ctx, wok_tensor *tensor) {
    if (!tensor) return;
    wok_ctx_release(ctx, tensor->data, tensor->bytes);
    *tensor = (wok_tensor){.size = sizeof *tensor};
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static const char *descr_of(wok_dtype dtype) {
    for (int i = 0; i < TYPE_COUNT; i++)
        if (types[i].dtype == dtype) return types[i].descr;
    return dtype == WOK_BF16 ? "V2" : NULL;
}

wok_status wok_npy_save(wok_ctx *ctx, const char *path, const wok_tensor *tensor) {
    char head[512];
    size_t need;
    const char *descr = descr_of(tensor->dtype);
    if (!descr || tensor->rank < 0 || tensor->rank > WOK_MAX_RANK || tensor->device != WOK_DEVICE_CPU ||
        !wok_loader_bytes(tensor->dtype, tensor->rank, tensor->dims, &need) || need != tensor->bytes)
        return wok_ctx_fail(ctx, WOK_ERR_ARGUMENT, "%s: this tensor cannot be written as .npy", path);
    char order = wok_dtype_size(tensor->dtype) == 1 || tensor->dtype == WOK_BF16 ? '|' : '<';
    int used = snprintf(head, sizeof head, "{'descr': '%c%s', 'fortran_order': False, 'shape': (", order, descr);
    for (int i = 0; i < tensor->rank; i++)
        used += snprintf(head + used, sizeof head - (size_t)used, "%s%" PRId64, i ? ", " : "", tensor->dims[i]);
    used += snprintf(head + used, sizeof head - (size_t)used, "%s), }", tensor->rank == 1 ? "," : "");
    while ((used + 11) % 64 != 0) head[used++] = ' '; /* 10 bytes before, a newline behind: elements start aligned */
    head[used++] = '\n';
    unsigned char start[10] = {[6] = 1, [8] = (unsigned char)(used & 255), [9] = (unsigned char)(used >> 8)};
    memcpy(start, MAGIC, sizeof MAGIC);
    wok_outfile *out;
    wok_status status = wok_outfile_open(ctx, path, &out);
    if (status != WOK_OK) return status;
    wok_outfile_write(out, start, sizeof start);
    wok_outfile_write(out, head, (size_t)used);
    wok_outfile_write(out, tensor->data, tensor->bytes);
    return wok_outfile_commit(&out);
}

/* safetensors.c - see safetensors.h. */
#include "safetensors.h"

#include "outfile.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_HEADER = 100000000 }; /* the limit of the format's own reader */

static const struct {
    const char *name;
    wok_dtype dtype;
} types[] = {{"F32", WOK_F32}, {"F16", WOK_F16}, {"BF16", WOK_BF16}, {"F64", WOK_F64}, {"I64", WOK_I64},
             {"I32", WOK_I32}, {"I16", WOK_I16}, {"I8", WOK_I8},     {"U64", WOK_U64}, {"U32", WOK_U32},
             {"U16", WOK_U16}, {"U8", WOK_U8},   {"BOOL", WOK_BOOL}};
enum { TYPE_COUNT = sizeof types / sizeof *types };

/* ---- reading ----------------------------------------------------------------------------------------------------- */

typedef struct reader {
    wok_ctx *ctx;
    const wok_source *source;
    const wok_json *header;
    const uint8_t *data; /* behind the header */
    size_t bytes;
} reader;

static wok_status bad(const reader *r, const char *tensor, const char *what) {
    char shown[160];
    return wok_ctx_fail(r->ctx, WOK_ERR_FORMAT, "%s: tensor '%s': %s", r->source->name,
                        wok_loader_printable(tensor, strlen(tensor), shown, sizeof shown), what);
}

static wok_status read_shape(const reader *r, wok_json_at shape, wok_tensor_entry *entry) {
    if (wok_json_kind_of(r->header, shape) != WOK_JSON_ARRAY) return bad(r, entry->name, "it has no shape");
    if (wok_json_count(r->header, shape) > WOK_MAX_RANK) return bad(r, entry->name, "it has more than 8 dimensions");
    wok_json_each(r->header, item, shape) {
        int64_t size;
        if (!wok_json_int(r->header, item, &size) || size < 0)
            return bad(r, entry->name, "a dimension is not a whole number >= 0");
        entry->dims[entry->rank++] = size;
    }
    return WOK_OK;
}

static wok_status read_extent(const reader *r, wok_json_at offsets, wok_tensor_entry *entry) {
    int64_t begin, end;
    wok_json_at first = wok_json_first(r->header, offsets), second = wok_json_next(r->header, first);
    if (wok_json_kind_of(r->header, offsets) != WOK_JSON_ARRAY || wok_json_count(r->header, offsets) != 2 ||
        !wok_json_int(r->header, first, &begin) || !wok_json_int(r->header, second, &end) || begin < 0 || end < begin)
        return bad(r, entry->name, "its data_offsets are not [begin, end]");
    if ((uint64_t)end > r->bytes) return bad(r, entry->name, "it ends beyond the file");
    entry->data = end > begin ? r->data + begin : wok_loader_nothing;
    entry->bytes = (size_t)(end - begin);
    return WOK_OK;
}

static wok_status read_entry(const reader *r, wok_json_at key, wok_tensor_entry *entry) {
    size_t length, need;
    wok_json_at value = wok_json_value(r->header, key), dtype = wok_json_get(r->header, value, "dtype");
    *entry = (wok_tensor_entry){.name = wok_json_string(r->header, key, &length)};
    if (strlen(entry->name) != length) return bad(r, entry->name, "its name holds a zero byte");
    if (!wok_json_string(r->header, dtype, NULL)) return bad(r, entry->name, "it has no dtype");
    for (int i = 0; i < TYPE_COUNT; i++)
        if (wok_json_is(r->header, dtype, types[i].name)) entry->dtype = types[i].dtype;
    wok_status status = read_shape(r, wok_json_get(r->header, value, "shape"), entry);
    if (status == WOK_OK) status = read_extent(r, wok_json_get(r->header, value, "data_offsets"), entry);
    if (status != WOK_OK || entry->dtype == WOK_NONE) return status;
    if (!wok_loader_bytes(entry->dtype, entry->rank, entry->dims, &need) || need != entry->bytes)
        return bad(r, entry->name, "its shape does not fit the bytes that it has");
    return WOK_OK;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const wok_tensor_entry *)a)->name, ((const wok_tensor_entry *)b)->name);
}

static int by_place(const void *a, const void *b) {
    const wok_tensor_entry *x = a, *y = b;
    if (x->bytes == 0 || y->bytes == 0) return (y->bytes == 0) - (x->bytes == 0); /* empty ones in front */
    return (x->data > y->data) - (x->data < y->data);
}

/* Where every byte belongs to exactly one tensor there is no room for hidden data, and no two tensors share memory. */
static wok_status check_cover(const reader *r, wok_tensors *tensors) {
    const uint8_t *at = r->data;
    qsort(tensors->entries, tensors->count, sizeof *tensors->entries, by_place);
    for (size_t i = 0; i < tensors->count; i++) {
        const wok_tensor_entry *e = &tensors->entries[i];
        if (e->bytes == 0) continue;
        if (e->data != at)
            return bad(r, e->name, (const uint8_t *)e->data < at ? "it overlaps another" : "there is a gap before it");
        at += e->bytes;
    }
    if (at != r->data + r->bytes)
        return wok_ctx_fail(r->ctx, WOK_ERR_FORMAT, "%s: %zu bytes behind the last tensor belong to none",
                            r->source->name, (size_t)(r->data + r->bytes - at));
    return WOK_OK;
}

static wok_status check_names(const reader *r, wok_tensors *tensors) {
    qsort(tensors->entries, tensors->count, sizeof *tensors->entries, by_name);
    for (size_t i = 1; i < tensors->count; i++)
        if (!strcmp(tensors->entries[i - 1].name, tensors->entries[i].name))
            return bad(r, tensors->entries[i].name, "it occurs twice");
    return WOK_OK;
}

static wok_status read_table(const reader *r, wok_tensors *tensors) {
    wok_json_at root = wok_json_root(r->header);
    if (wok_json_kind_of(r->header, root) != WOK_JSON_OBJECT)
        return wok_ctx_fail(r->ctx, WOK_ERR_FORMAT, "%s: the header is no JSON object", r->source->name);
    size_t need = (size_t)wok_json_count(r->header, root) * sizeof *tensors->entries;
    void *entries = NULL;
    wok_status status = wok_ctx_grow(r->ctx, &entries, &tensors->capacity, need + 1);
    tensors->entries = entries;
    wok_json_each(r->header, key, root) {
        if (status != WOK_OK) return status;
        if (wok_json_is(r->header, key, "__metadata__")) continue;
        status = read_entry(r, key, &tensors->entries[tensors->count]);
        tensors->count += status == WOK_OK;
    }
    if (status == WOK_OK) status = check_cover(r, tensors);
    return status == WOK_OK ? check_names(r, tensors) : status;
}

wok_status wok_safetensors_read(wok_ctx *ctx, const wok_source *source, wok_tensors *tensors) {
    uint64_t length = 0;
    *tensors = (wok_tensors){.ctx = ctx, .source = source->name};
    if (source->bytes < 8)
        return wok_ctx_fail(ctx, WOK_ERR_FORMAT, "%s: %zu bytes are too few for a safetensors file", source->name,
                            source->bytes);
    memcpy(&length, source->data, 8);
    if (length > MAX_HEADER || length > source->bytes - 8)
        return wok_ctx_fail(ctx, WOK_ERR_FORMAT,
                            "%s: damaged or not a safetensors file: its header would have %" PRIu64 " bytes",
                            source->name, length);
    const char *text = (const char *)source->data + 8;
    wok_status status = wok_json_parse(ctx, text, (size_t)length, source->name, &tensors->header);
    if (status == WOK_OK) {
        reader r = {ctx, source, tensors->header, source->data + 8 + length, source->bytes - 8 - (size_t)length};
        status = read_table(&r, tensors);
    }
    if (status != WOK_OK) wok_tensors_free(tensors);
    return status;
}

void wok_tensors_free(wok_tensors *tensors) {
    wok_ctx_release(tensors->ctx, tensors->entries, tensors->capacity);
    wok_json_free(&tensors->header);
    *tensors = (wok_tensors){.ctx = tensors->ctx, .source = tensors->source};
}

const wok_tensor_entry *wok_tensors_find(const wok_tensors *tensors, const char *name) {
    wok_tensor_entry key = {.name = name};
    return tensors->count ? bsearch(&key, tensors->entries, tensors->count, sizeof key, by_name) : NULL;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* Wide elements first, then by name: every tensor is aligned to its element. */
static int by_width(const void *a, const void *b) {
    const wok_tensor_entry *x = a, *y = b;
    size_t p = wok_dtype_size(x->dtype), q = wok_dtype_size(y->dtype);
    return p != q ? (p < q) - (p > q) : strcmp(x->name, y->name);
}

typedef struct text_out {
    wok_ctx *ctx;
    void *text;
    size_t used, capacity;
    wok_status status;
} text_out;

static void add(text_out *out, const char *text, size_t bytes) {
    if (out->status == WOK_OK) out->status = wok_ctx_grow(out->ctx, &out->text, &out->capacity, out->used + bytes);
    if (out->status != WOK_OK) return;
    memcpy((char *)out->text + out->used, text, bytes);
    out->used += bytes;
}

static void add_text(text_out *out, const char *text) { add(out, text, strlen(text)); }

static void add_quoted(text_out *out, const char *text) {
    add_text(out, "\"");
    for (; *text; text++) {
        char escape[8];
        if (*text == '"' || *text == '\\' || (unsigned char)*text < 0x20)
            add(out, escape, (size_t)snprintf(escape, sizeof escape, "\\u%04x", (unsigned char)*text));
        else
            add(out, text, 1);
    }
    add_text(out, "\"");
}

static void add_entry(text_out *out, const wok_tensor_entry *entry, uint64_t begin) {
    char buffer[64];
    const char *dtype = "";
    for (int i = 0; i < TYPE_COUNT; i++)
        if (types[i].dtype == entry->dtype) dtype = types[i].name;
    add_quoted(out, entry->name);
    add_text(out, ":{\"dtype\":");
    add_quoted(out, dtype);
    add_text(out, ",\"shape\":[");
    for (int i = 0; i < entry->rank; i++)
        add(out, buffer, (size_t)snprintf(buffer, sizeof buffer, "%s%" PRId64, i ? "," : "", entry->dims[i]));
    add(out, buffer,
        (size_t)snprintf(buffer, sizeof buffer, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", begin,
                         begin + entry->bytes));
}

static wok_status gather(const wok_model *model, wok_tensors *tensors) {
    for (int i = 0; i < wok_graph_value_count(model); i++) {
        wok_value_view v = wok_graph_value_at(model, i);
        if (!v.data || v.only_attr || v.is_input) continue;
        void *entries = tensors->entries;
        size_t need = (tensors->count + 1) * sizeof *tensors->entries;
        wok_status status = wok_ctx_grow(tensors->ctx, &entries, &tensors->capacity, need);
        tensors->entries = entries;
        if (status != WOK_OK) return status;
        wok_tensor_entry *e = &tensors->entries[tensors->count++];
        *e = (wok_tensor_entry){.name = v.name, .dtype = v.dtype, .rank = v.rank, .data = v.data, .bytes = v.bytes};
        memcpy(e->dims, v.dims, sizeof e->dims);
    }
    if (tensors->count == 0)
        return wok_ctx_fail(tensors->ctx, WOK_ERR_UNSUPPORTED, "the model has no weights to write");
    qsort(tensors->entries, tensors->count, sizeof *tensors->entries, by_width);
    return WOK_OK;
}

static wok_status write_file(const wok_tensors *tensors, text_out *text, const char *path) {
    wok_outfile *out = NULL;
    uint64_t at = 0;
    add_text(text, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (size_t i = 0; i < tensors->count; i++) {
        add_text(text, ",");
        add_entry(text, &tensors->entries[i], at);
        at += tensors->entries[i].bytes;
    }
    add_text(text, "}");
    while (text->used % 8 != 0 && text->status == WOK_OK) add_text(text, " ");
    if (text->status == WOK_OK) text->status = wok_outfile_open(tensors->ctx, path, &out);
    if (text->status != WOK_OK) return text->status;
    uint64_t length = text->used;
    wok_outfile_write(out, &length, sizeof length);
    wok_outfile_write(out, text->text, text->used);
    for (size_t i = 0; i < tensors->count; i++)
        wok_outfile_write(out, tensors->entries[i].data, tensors->entries[i].bytes);
    return wok_outfile_commit(&out);
}

wok_status wok_safetensors_write(const wok_model *model, const char *path) {
    wok_tensors tensors = {.ctx = wok_model_ctx(model)};
    text_out text = {.ctx = tensors.ctx};
    wok_status status = gather(model, &tensors);
    if (status == WOK_OK) status = write_file(&tensors, &text, path);
    wok_ctx_release(text.ctx, text.text, text.capacity);
    wok_tensors_free(&tensors);
    return status;
}

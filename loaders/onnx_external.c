/* onnx_external.c - tensors whose elements stand in a file beside the model.
 *
 * A model is not trusted: its locations must stay inside its folder. They are cleaned as text first ("sub/../w.bin" is
 * "w.bin"; a path that climbs out or is absolute is refused), then resolved through symbolic links without opening
 * anything, and only a file that still lies under the folder is opened, without following a link. The folder is the one
 * that the model's path names, or the one that the model really lies in, where its path is itself a link: download
 * caches keep models and data side by side under other names. Hard links are ordinary files here. */
#define _DEFAULT_SOURCE
#include "onnx.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#ifndef PATH_MAX
#define PATH_MAX 4096
#endif

struct onnx_external {
    char *location; /* cleaned */
    size_t location_bytes;
    const wok_mapfile *map;
};

void wok_onnx_external_free(wok_onnx_reader *reader) {
    for (size_t i = 0; i < reader->file_count; i++)
        wok_ctx_release(reader->ctx, reader->files[i].location, reader->files[i].location_bytes);
    wok_ctx_release(reader->ctx, reader->files, reader->file_bytes);
    for (int i = 0; i < 2; i++) wok_ctx_release(reader->ctx, reader->roots[i], PATH_MAX);
}

/* Removes "", "." and "..". False where the path is absolute, climbs out, ends as nothing or does not fit. */
static bool clean(wok_span location, char *out) {
    const char *at = (const char *)location.data, *end = at + location.bytes;
    size_t used = 0;
    if (at == end || *at == '/' || memchr(at, 0, location.bytes) || location.bytes >= PATH_MAX) return false;
    while (at < end) {
        const char *slash = memchr(at, '/', (size_t)(end - at)), *stop = slash ? slash : end;
        size_t n = (size_t)(stop - at);
        if (n == 2 && !memcmp(at, "..", 2)) {
            if (used == 0) return false;
            while (used > 0 && out[used - 1] != '/') used--; /* the last component ... */
            used -= used > 0;                                /* ... and its slash */
        } else if (n > 0 && !(n == 1 && *at == '.')) {
            if (used > 0) out[used++] = '/';
            memcpy(out + used, at, n);
            used += n;
        }
        at = slash ? slash + 1 : end;
    }
    out[used] = 0;
    return used > 0;
}

static bool lies_under(const char *path, const char *root) {
    size_t n = strlen(root);
    if (n == 1) return path[0] == '/'; /* the root folder itself */
    return !strncmp(path, root, n) && path[n] == '/';
}

static wok_status find_roots(wok_onnx_reader *reader) {
    const char *folders[2] = {reader->source->base_dir, reader->source->real_dir};
    for (int i = 0; i < 2 && folders[i]; i++) {
        reader->roots[i] = wok_ctx_alloc(reader->ctx, PATH_MAX);
        if (!reader->roots[i]) return WOK_ERR_MEMORY;
        if (!realpath(folders[i], reader->roots[i]))
            return wok_ctx_fail(reader->ctx, WOK_ERR_IO, "%s: %s", folders[i], strerror(errno));
    }
    return WOK_OK;
}

static wok_status open_file(wok_onnx_reader *reader, const char *name, const char *location, wok_mapfile **map) {
    char path[PATH_MAX], real[PATH_MAX];
    wok_ctx *ctx = reader->ctx;
    wok_status status = reader->roots[0] ? WOK_OK : find_roots(reader);
    if (status != WOK_OK) return status;
    size_t root = strlen(reader->roots[0]);
    if (root + 1 + strlen(location) >= sizeof path)
        return wok_ctx_fail(ctx, WOK_ERR_FORMAT, "tensor '%s': the path of its external data is too long", name);
    memcpy(path, reader->roots[0], root);
    path[root] = '/';
    strcpy(path + root + 1, location);
    if (!realpath(path, real))
        return wok_ctx_fail(ctx, WOK_ERR_IO, "tensor '%s': its external data %s: %s", name, path, strerror(errno));
    if (!lies_under(real, reader->roots[0]) && !(reader->roots[1] && lies_under(real, reader->roots[1])))
        return wok_ctx_fail(ctx, WOK_ERR_FORMAT, "tensor '%s': its external data '%s' leads out of the model's folder",
                            name, location);
    status = wok_mapfile_open(ctx, real, false, map);
    return status == WOK_OK ? wok_mapfile_give(*map, reader->model) : status;
}

/* One map a file, however many tensors stand in it. */
static wok_status find_file(wok_onnx_reader *reader, const char *name, const char *location, const wok_mapfile **map) {
    for (size_t i = reader->file_count; i-- > 0;)
        if (!strcmp(reader->files[i].location, location)) {
            *map = reader->files[i].map;
            return WOK_OK;
        }
    wok_mapfile *opened = NULL;
    wok_status status = open_file(reader, name, location, &opened);
    if (status != WOK_OK) return status;
    *map = opened;
    void *files = reader->files;
    status = wok_ctx_grow(reader->ctx, &files, &reader->file_bytes, (reader->file_count + 1) * sizeof *reader->files);
    reader->files = files;
    if (status != WOK_OK) return status;
    size_t bytes = strlen(location) + 1;
    char *copy = wok_ctx_alloc(reader->ctx, bytes);
    if (!copy) return WOK_ERR_MEMORY;
    memcpy(copy, location, bytes);
    reader->files[reader->file_count++] = (struct onnx_external){copy, bytes, opened};
    return WOK_OK;
}

/* Decimal digits only: no sign, no space, no wrap. */
static bool parse_number(wok_span text, uint64_t *value) {
    *value = 0;
    for (size_t i = 0; i < text.bytes; i++) {
        unsigned digit = (unsigned)text.data[i] - '0';
        if (digit > 9 || *value > (UINT64_MAX - digit) / 10) return false;
        *value = *value * 10 + digit;
    }
    return text.bytes > 0;
}

wok_status wok_onnx_external(wok_onnx_reader *reader, const wok_onnx_tensor *tensor, const char *name, size_t need,
                             wok_span *bytes) {
    wok_ctx *ctx = reader->ctx;
    uint64_t offset = 0, length = need;
    char location[PATH_MAX], shown[128];
    if (!tensor->location.data)
        return wok_ctx_fail(ctx, WOK_ERR_FORMAT, "tensor '%s': its external data has no location", name);
    if (tensor->offset.data && !parse_number(tensor->offset, &offset))
        return wok_ctx_fail(ctx, WOK_ERR_FORMAT, "tensor '%s': the offset of its external data is no number: '%s'",
                            name,
                            wok_loader_printable((const char *)tensor->offset.data, tensor->offset.bytes, shown, 32));
    if (tensor->length.data && !parse_number(tensor->length, &length))
        return wok_ctx_fail(ctx, WOK_ERR_FORMAT, "tensor '%s': the length of its external data is no number: '%s'",
                            name,
                            wok_loader_printable((const char *)tensor->length.data, tensor->length.bytes, shown, 32));
    if (length != need)
        return wok_ctx_fail(ctx, WOK_ERR_FORMAT, "tensor '%s': its shape needs %zu bytes, its external data has %llu",
                            name, need, (unsigned long long)length);
    if (!reader->source->base_dir)
        return wok_ctx_fail(
            ctx, WOK_ERR_IO,
            "tensor '%s' has external data, but the model comes from memory and no base folder is given", name);
    if (!clean(tensor->location, location))
        return wok_ctx_fail(
            ctx, WOK_ERR_FORMAT, "tensor '%s': its external data '%s' leads out of the model's folder", name,
            wok_loader_printable((const char *)tensor->location.data, tensor->location.bytes, shown, sizeof shown));
    const wok_mapfile *map = NULL;
    wok_status status = find_file(reader, name, location, &map);
    if (status != WOK_OK) return status;
    if (offset > map->bytes || length > map->bytes - offset)
        return wok_ctx_fail(ctx, WOK_ERR_FORMAT,
                            "tensor '%s': its external data (offset %llu, length %llu) ends beyond '%s' (%zu bytes)",
                            name, (unsigned long long)offset, (unsigned long long)length, location, map->bytes);
    *bytes = (wok_span){map->data + offset, (size_t)length};
    return WOK_OK;
}

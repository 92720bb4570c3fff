/* load.c - wok_model_load, wok_model_load_memory, wok_model_save: which reader or writer a path means. */
#define _DEFAULT_SOURCE
#include "encoder.h"
#include "loader.h"
#include "mapfile.h"
#include "safetensors.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#ifndef PATH_MAX
#define PATH_MAX 4096
#endif

/* Weights beyond this go to a file beside an ONNX model. */
static const int64_t EXTERNAL_ABOVE = (int64_t)1 << 30;

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

static wok_load_options read_options(const wok_load_options *options) {
    wok_load_options o = {0};
    if (options) memcpy(&o, options, options->size && options->size < sizeof o ? options->size : sizeof o);
    return o;
}

/* ---- from bytes -------------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    void (*build)(const wok_nn *nn);
} architectures[] = {{"resnet18", wok_build_resnet}, {"mobilenet_v2", wok_build_mobilenet_v2}};
enum { ARCHITECTURE_COUNT = sizeof architectures / sizeof *architectures };

static wok_status read_tensors(wok_ctx *ctx, const wok_source *source, const char *arch, wok_model **model) {
    int i = 0;
    while (i < ARCHITECTURE_COUNT && strcmp(architectures[i].name, arch)) i++;
    if (i == ARCHITECTURE_COUNT)
        return wok_ctx_fail(ctx, WOK_ERR_ARGUMENT,
                            "'%s' is no architecture of a bare .safetensors file (resnet18 and mobilenet_v2 are)",
                            arch);
    wok_tensors tensors;
    wok_status status = wok_safetensors_read(ctx, source, &tensors);
    if (status != WOK_OK) return status;
    status = wok_model_new(ctx, arch, model);
    if (status == WOK_OK) {
        wok_nn_start(*model);
        architectures[i].build(&(wok_nn){*model, &tensors, ""});
    }
    wok_tensors_free(&tensors);
    return status;
}

static bool looks_like_safetensors(const wok_source *source) {
    uint64_t length;
    if (source->bytes < 9) return false;
    memcpy(&length, source->data, sizeof length);
    return length <= source->bytes - 8 && (source->data[8] == '{' || source->data[8] == ' ');
}

/* Files that people load by mistake, by their first bytes. */
static const char *mistaken_for(const wok_source *source) {
    static const struct {
        const char *bytes, *what;
    } known[] = {{"version https://git-lfs", "it is a Git LFS pointer: the model itself was not downloaded"},
                 {"PK\003\004", "it is a zip archive (a PyTorch checkpoint?), not a model that wok reads"},
                 {"\200\002", "it is a Python pickle, not a model that wok reads"},
                 {"GGUF", "it is a GGUF file, not a model that wok reads"},
                 {"<!DOCTYPE", "it is a web page"},
                 {"<html", "it is a web page"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        size_t n = strlen(known[i].bytes);
        if (source->bytes >= n && !memcmp(source->data, known[i].bytes, n)) return known[i].what;
    }
    return NULL;
}

static wok_status read_source(wok_ctx *ctx, const wok_source *source, bool safetensors, const wok_load_options *options,
                              wok_model **model) {
    const char *mistake = mistaken_for(source);
    if (source->bytes == 0) return wok_ctx_fail(ctx, WOK_ERR_FORMAT, "%s is empty", source->name);
    if (mistake) return wok_ctx_fail(ctx, WOK_ERR_FORMAT, "%s: %s", source->name, mistake);
    if (!safetensors && !options->arch) return wok_onnx_read(ctx, source, options, model);
    if (!safetensors)
        return wok_ctx_fail(ctx, WOK_ERR_ARGUMENT, "%s is no .safetensors file: it needs no architecture",
                            source->name);
    if (!options->arch)
        return wok_ctx_fail(
            ctx, WOK_ERR_ARGUMENT,
            "%s holds tensors only: name an architecture (resnet18 or mobilenet_v2), or give the folder of "
            "a BERT or DistilBERT",
            source->name);
    return read_tensors(ctx, source, options->arch, model);
}

/* Finishes or frees what a reader left. */
static wok_status finish(wok_status status, const wok_load_options *options, wok_model **model) {
    if (status == WOK_OK) status = wok_model_finish(*model, options);
    if (status != WOK_OK) wok_model_free(model);
    return status;
}

/* ---- from a path ------------------------------------------------------------------------------------------------- */

/* The folder of a path, into PATH_MAX bytes; NULL where it does not fit. */
static const char *folder_of(const char *path, char *out) {
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) : 0;
    if (!slash) return strcpy(out, ".");
    if (n >= PATH_MAX) return NULL;
    if (n == 0) return strcpy(out, "/");
    memcpy(out, path, n);
    out[n] = 0;
    return out;
}

static wok_status load_file(wok_ctx *ctx, const char *path, const wok_load_options *options, wok_model **model) {
    char folder[PATH_MAX], real[PATH_MAX], real_folder[PATH_MAX];
    wok_mapfile *map;
    wok_status status = wok_mapfile_open(ctx, path, true, &map);
    if (status != WOK_OK) return status;
    wok_source source = {map->data, map->bytes, path, options->base_dir ? options->base_dir : folder_of(path, folder),
                         NULL};
    if (realpath(path, real)) source.real_dir = folder_of(real, real_folder);
    bool safetensors =
        ends_with(path, ".safetensors") || (!ends_with(path, ".onnx") && looks_like_safetensors(&source));
    status = read_source(ctx, &source, safetensors, options, model);
    if (status == WOK_OK) return wok_mapfile_give(map, *model);
    wok_model_free(model);
    wok_mapfile_close(map);
    return status;
}

wok_status wok_model_load(wok_ctx *ctx, const char *path, const wok_load_options *given, wok_model **model) {
    struct stat info;
    wok_load_options options = read_options(given);
    *model = NULL;
    if (!path || !*path) return wok_ctx_fail(ctx, WOK_ERR_ARGUMENT, "the path of the model is empty");
    bool folder = stat(path, &info) == 0 && S_ISDIR(info.st_mode);
    wok_status status = folder ? wok_hf_load(ctx, path, model) : load_file(ctx, path, &options, model);
    return finish(status, &options, model);
}

/* ---- from memory ------------------------------------------------------------------------------------------------- */

typedef struct copy {
    wok_ctx *ctx;
    size_t bytes; /* of the whole block */
    unsigned char data[];
} copy;

static void release_copy(void *user) {
    copy *c = user;
    wok_ctx_release(c->ctx, c, c->bytes);
}

static wok_status read_copy(wok_ctx *ctx, wok_source *source, const wok_load_options *options, wok_model **model) {
    if (source->bytes > SIZE_MAX - sizeof(copy))
        return wok_ctx_fail(ctx, WOK_ERR_MEMORY, "the model is too large to copy");
    copy *c = wok_ctx_alloc(ctx, sizeof *c + source->bytes);
    if (!c) return WOK_ERR_MEMORY;
    *c = (copy){ctx, sizeof *c + source->bytes};
    memcpy(c->data, source->data, source->bytes);
    source->data = c->data;
    wok_status status = read_source(ctx, source, looks_like_safetensors(source), options, model);
    if (status == WOK_OK) return wok_model_own(*model, c->data, source->bytes, release_copy, NULL, c);
    wok_model_free(model);
    release_copy(c);
    return status;
}

wok_status wok_model_load_memory(wok_ctx *ctx, const void *data, size_t bytes, const wok_load_options *given,
                                 wok_model **model) {
    wok_load_options options = read_options(given);
    wok_source source = {data, bytes, "the model in memory", options.base_dir, NULL};
    *model = NULL;
    if (!data || bytes == 0) return wok_ctx_fail(ctx, WOK_ERR_FORMAT, "%s is empty", source.name);
    wok_status status = options.copy ? read_copy(ctx, &source, &options, model)
                                     : read_source(ctx, &source, looks_like_safetensors(&source), &options, model);
    return finish(status, &options, model);
}

/* ---- saving ------------------------------------------------------------------------------------------------------ */

wok_status wok_model_save(const wok_model *model, const char *path) {
    wok_ctx *ctx = wok_model_ctx(model);
    if (path && ends_with(path, ".onnx")) return wok_onnx_write(model, path, EXTERNAL_ABOVE);
    if (path && ends_with(path, ".safetensors")) return wok_safetensors_write(model, path);
    return wok_ctx_fail(ctx, WOK_ERR_ARGUMENT, "%s: a model is saved as .onnx or .safetensors",
                        path ? path : "no path");
}

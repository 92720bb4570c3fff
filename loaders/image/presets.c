/* presets.c - ways of preprocessing by name, and preprocess.json. */
#include "image.h"

#include "../json.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_JSON = 1 << 20 };

/* ---- presets --------------------------------------------------------------------------------------------------- */

#define IMAGENET .scale = 1.0 / 255, .mean = {0.485, 0.456, 0.406}, .std = {0.229, 0.224, 0.225}
#define PLAIN .scale = 1, .std = {1, 1, 1}
#define COMMON .size = sizeof(wok_preprocess), .dtype = WOK_F32, .decode = {.size = sizeof(wok_decode_options)}

static const struct {
    const char *name;
    wok_preprocess p;
} presets[] = {
    {"raw", {COMMON, PLAIN, .interpolation = WOK_FILTER_BILINEAR, .antialias = true, .resize_in_float = true}},
    {"torchvision",
     {COMMON, IMAGENET, .resize = 256, .crop_h = 224, .crop_w = 224, .interpolation = WOK_FILTER_BILINEAR,
      .antialias = true}},
    {"timm",
     {COMMON, IMAGENET, .resize = 256, .crop_h = 224, .crop_w = 224, .interpolation = WOK_FILTER_BICUBIC,
      .antialias = true}},
    {"keras-tf",
     {COMMON, .scale = 1 / 127.5, .mean = {1, 1, 1}, .std = {1, 1, 1}, .height = 224, .width = 224,
      .interpolation = WOK_FILTER_NEAREST, .antialias = true, .layout = WOK_LAYOUT_HWC}},
    {"keras-caffe",
     {COMMON, .scale = 1, .mean = {103.939, 116.779, 123.68}, .std = {1, 1, 1}, .height = 224, .width = 224,
      .interpolation = WOK_FILTER_NEAREST, .antialias = true, .layout = WOK_LAYOUT_HWC, .bgr = true}},
    {"keras-torch",
     {COMMON, IMAGENET, .height = 224, .width = 224, .interpolation = WOK_FILTER_NEAREST, .antialias = true,
      .layout = WOK_LAYOUT_HWC}},
    {"opencv",
     {COMMON, PLAIN, .height = 224, .width = 224, .interpolation = WOK_FILTER_BILINEAR, .layout = WOK_LAYOUT_HWC,
      .bgr = true}},
};
enum { PRESETS = (int)(sizeof presets / sizeof *presets) };

const char *wok_preprocess_preset_name(int index) {
    return index >= 0 && index < PRESETS ? presets[index].name : NULL;
}

wok_status wok_preprocess_preset(wok_ctx *ctx, const char *name, wok_preprocess *p) {
    char list[256] = "";
    for (int i = 0; i < PRESETS; i++) {
        if (!strcmp(presets[i].name, name ? name : "raw")) {
            *p = presets[i].p;
            return WOK_OK;
        }
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i ? " " : "", presets[i].name);
    }
    return wok_ctx_fail(ctx, WOK_ERR_ARGUMENT, "no preprocessing is called '%s'; there are %s", name, list);
}

/* ---- preprocess.json ------------------------------------------------------------------------------------------- */

typedef struct reader {
    wok_ctx *ctx;
    const wok_json *doc;
    const char *name;
    wok_preprocess *p;
} reader;

static wok_status bad(const reader *r, const char *key, const char *wanted) {
    return wok_ctx_fail(r->ctx, WOK_ERR_FORMAT, "%s: \"%s\" should be %s", r->name, key, wanted);
}

static bool get_side(const reader *r, wok_json_at at, int64_t *side) {
    return wok_json_int(r->doc, at, side) && *side >= 1 && *side <= WOK_IMAGE_MAX_SIDE;
}

static wok_status get_size(const reader *r, const char *key, wok_json_at at, int64_t *height, int64_t *width) {
    const wok_json_at first = wok_json_first(r->doc, at);
    const bool pair = wok_json_kind_of(r->doc, at) == WOK_JSON_ARRAY && wok_json_count(r->doc, at) == 2;
    if (pair ? get_side(r, first, height) && get_side(r, wok_json_next(r->doc, first), width)
             : get_side(r, at, height)) {
        if (!pair) *width = *height;
        return WOK_OK;
    }
    return bad(r, key, "a number of pixels or [height, width]");
}

static wok_status get_three(const reader *r, const char *key, wok_json_at at, double values[3]) {
    int n = 0;
    if (wok_json_double(r->doc, at, &values[0])) {
        values[1] = values[2] = values[0];
        return WOK_OK;
    }
    if (wok_json_kind_of(r->doc, at) == WOK_JSON_ARRAY && wok_json_count(r->doc, at) == 3) {
        wok_json_each(r->doc, item, at) n += wok_json_double(r->doc, item, &values[n]);
    }
    return n == 3 ? WOK_OK : bad(r, key, "a number or three numbers");
}

/* Index of the string in a list that ends in NULL; -1 if it is none of them. */
static int get_choice(const reader *r, wok_json_at at, const char *const *choices) {
    for (int i = 0; choices[i]; i++)
        if (wok_json_is(r->doc, at, choices[i])) return i;
    return -1;
}

static wok_status read_word(const reader *r, const char *key, wok_json_at at) {
    static const char *const filters[] = {"nearest", "bilinear", "bicubic", NULL};
    static const char *const layouts[] = {"chw", "hwc", "nchw", "nhwc", NULL};
    static const char *const orders[] = {"rgb", "bgr", NULL};
    int i;
    if (!strcmp(key, "interpolation")) {
        if ((i = get_choice(r, at, filters)) < 0) return bad(r, key, "\"nearest\", \"bilinear\" or \"bicubic\"");
        r->p->interpolation = (wok_resize_filter)i;
    } else if (!strcmp(key, "layout")) {
        if ((i = get_choice(r, at, layouts)) < 0) return bad(r, key, "\"nchw\", \"nhwc\", \"chw\" or \"hwc\"");
        r->p->layout = i % 2 ? WOK_LAYOUT_HWC : WOK_LAYOUT_CHW;
    } else {
        if ((i = get_choice(r, at, orders)) < 0) return bad(r, key, "\"rgb\" or \"bgr\"");
        r->p->bgr = i == 1;
    }
    return WOK_OK;
}

static wok_status read_key(const reader *r, const char *key, wok_json_at at) {
    wok_preprocess *p = r->p;
    if (!strcmp(key, "preset")) return WOK_OK;
    if (!strcmp(key, "resize")) {
        p->height = p->width = 0;
        return get_side(r, at, &p->resize) ? WOK_OK : bad(r, key, "a number of pixels, the shorter side's");
    }
    if (!strcmp(key, "size")) {
        p->resize = 0;
        return get_size(r, key, at, &p->height, &p->width);
    }
    if (!strcmp(key, "crop")) return get_size(r, key, at, &p->crop_h, &p->crop_w);
    if (!strcmp(key, "mean")) return get_three(r, key, at, p->mean);
    if (!strcmp(key, "std")) return get_three(r, key, at, p->std);
    if (!strcmp(key, "scale")) return wok_json_double(r->doc, at, &p->scale) ? WOK_OK : bad(r, key, "a number");
    if (!strcmp(key, "antialias"))
        return wok_json_bool(r->doc, at, &p->antialias) ? WOK_OK : bad(r, key, "true or false");
    if (!strcmp(key, "interpolation") || !strcmp(key, "layout") || !strcmp(key, "channels"))
        return read_word(r, key, at);
    return wok_ctx_fail(r->ctx, WOK_ERR_UNSUPPORTED, "%s asks for \"%s\", which wok does not know", r->name, key);
}

static wok_status read_document(const reader *r) {
    const wok_json_at root = wok_json_root(r->doc), preset = wok_json_get(r->doc, root, "preset");
    if (wok_json_kind_of(r->doc, root) != WOK_JSON_OBJECT)
        return wok_ctx_fail(r->ctx, WOK_ERR_FORMAT, "%s is not a JSON object", r->name);
    if (preset >= 0 && !wok_json_string(r->doc, preset, NULL)) return bad(r, "preset", "a name");
    wok_status status = wok_preprocess_preset(r->ctx, wok_json_string(r->doc, preset, NULL), r->p);
    if (status == WOK_OK && preset < 0) {
        r->p->scale = 1.0 / 255;
        r->p->resize_in_float = false;
    }
    if (wok_json_get(r->doc, root, "resize") >= 0 && wok_json_get(r->doc, root, "size") >= 0)
        status = wok_ctx_fail(r->ctx, WOK_ERR_FORMAT, "%s has both \"resize\" and \"size\"", r->name);
    wok_json_each(r->doc, key, root) {
        if (status != WOK_OK) break;
        status = read_key(r, wok_json_string(r->doc, key, NULL), wok_json_value(r->doc, key));
    }
    return status;
}

wok_status wok_preprocess_parse(wok_ctx *ctx, const char *json, size_t bytes, const char *name, wok_preprocess *p) {
    wok_json *doc;
    wok_status status = wok_json_parse(ctx, json, bytes, name ? name : "preprocess.json", &doc);
    if (status != WOK_OK) return status;
    const reader r = {ctx, doc, name ? name : "preprocess.json", p};
    status = read_document(&r);
    wok_json_free(&doc);
    return status;
}

char *wok_image_beside(wok_ctx *ctx, const char *model_path, const char *file) {
    struct stat info;
    const char *slash = strrchr(model_path, '/');
    size_t folder = slash ? (size_t)(slash - model_path) + 1 : 0;
    if (stat(model_path, &info) == 0 && S_ISDIR(info.st_mode)) folder = strlen(model_path);
    const bool cut = folder > 0 && model_path[folder - 1] != '/';
    const size_t bytes = folder + cut + strlen(file) + 1;
    char *path = wok_ctx_alloc(ctx, bytes);
    if (!path) return NULL;
    snprintf(path, bytes, "%.*s%s%s", (int)folder, model_path, cut ? "/" : "", file);
    return path;
}

void wok_image_beside_free(wok_ctx *ctx, char *path) {
    wok_ctx_release(ctx, path, path ? strlen(path) + 1 : 0);
}

wok_status wok_preprocess_beside(wok_ctx *ctx, const char *model_path, wok_preprocess *p) {
    char *data;
    size_t bytes;
    char *path = wok_image_beside(ctx, model_path, "preprocess.json");
    if (!path) return WOK_ERR_MEMORY;
    wok_status status = wok_file_load(ctx, path, MAX_JSON, &data, &bytes);
    if (status == WOK_OK) {
        status = wok_preprocess_parse(ctx, data, bytes, path, p);
        wok_ctx_release(ctx, data, bytes + 1);
    }
    wok_image_beside_free(ctx, path);
    return status;
}

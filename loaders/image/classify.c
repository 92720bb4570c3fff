/* classify.c - a picture in, a probability a class out. */
#include "image.h"
#include "labels.h"

#include "../json.h"

#include <math.h>
#include <string.h>
#include <sys/stat.h>

struct wok_classifier {
    wok_ctx *ctx;
    wok_model *model;
    wok_session *session;
    wok_preprocess preprocess;
    wok_labels labels;
    int64_t batch; /* of the model's input; pictures beyond the first are zeros */
    size_t width;
    float *input;
    size_t input_bytes;
};

static wok_status session_fail(wok_classifier *c, wok_status status) {
    return wok_ctx_fail(c->ctx, status, "%s", wok_session_error(c->session));
}

/* ---- what the model wants -------------------------------------------------------------------------------------- */

static const wok_value_info *input_of(const wok_model *model) {
    for (int i = 0; i < wok_model_input_count(model); i++)
        if (!wok_model_input(model, i)->optional) return wok_model_input(model, i);
    return NULL;
}

/* The picture that a model reads: -1 where a size is free. */
struct slot {
    bool hwc;
    int64_t batch, height, width;
};

static wok_status look_at_input(wok_ctx *ctx, const wok_model *model, const char *path, struct slot *slot) {
    const wok_value_info *in = input_of(model);
    int wanted = 0;
    for (int i = 0; i < wok_model_input_count(model); i++) wanted += !wok_model_input(model, i)->optional;
    if (wanted != 1 || in->dtype != WOK_F32 || in->rank != 4 || (in->dims[1] != 3 && in->dims[3] != 3))
        return wok_ctx_fail(ctx, WOK_ERR_UNSUPPORTED,
                            "%s does not classify pictures: its input is not one f32 [N,3,H,W] or [N,H,W,3]", path);
    slot->hwc = in->dims[1] != 3;
    slot->batch = in->dims[0] > 0 ? in->dims[0] : 1;
    slot->height = in->dims[slot->hwc ? 1 : 2];
    slot->width = in->dims[slot->hwc ? 2 : 3];
    return WOK_OK;
}

/* A preset at the model's size, where that is fixed: a resize keeps its ratio to the crop. */
static wok_status use_preset(wok_ctx *ctx, const char *name, const struct slot *slot, wok_preprocess *p) {
    const int64_t height = slot->height, width = slot->width;
    wok_status status = wok_preprocess_preset(ctx, name, p);
    if (status != WOK_OK || height < 1 || width < 1) return status;
    if (p->resize) {
        const int64_t side = height < width ? height : width;
        p->resize = (side * p->resize + p->crop_h / 2) / p->crop_h;
        p->crop_h = height;
        p->crop_w = width;
    } else {
        p->height = height;
        p->width = width;
    }
    return WOK_OK;
}

/* Layout, element type and (where nothing else says how large) size follow the model. */
static void fit_to_model(const struct slot *slot, wok_preprocess *p) {
    p->layout = slot->hwc ? WOK_LAYOUT_HWC : WOK_LAYOUT_CHW;
    p->dtype = WOK_F32;
    if (!p->crop_h && !p->height && slot->height > 0 && slot->width > 0) {
        *(p->resize ? &p->crop_h : &p->height) = slot->height;
        *(p->resize ? &p->crop_w : &p->width) = slot->width;
    }
}

wok_status wok_preprocess_for_model(wok_ctx *ctx, const wok_model *model, const char *path, const char *preset,
                                    wok_preprocess *p) {
    struct slot slot;
    struct stat info;
    wok_status status = look_at_input(ctx, model, path, &slot);
    if (status != WOK_OK) return status;
    char *beside = wok_image_beside(ctx, path, "preprocess.json");
    if (!beside) return WOK_ERR_MEMORY;
    if (!preset && stat(beside, &info) == 0) status = wok_preprocess_beside(ctx, path, p);
    else status = use_preset(ctx, preset ? preset : "torchvision", &slot, p);
    wok_image_beside_free(ctx, beside);
    if (status == WOK_OK) fit_to_model(&slot, p);
    return status;
}

static wok_status choose_preprocess(wok_classifier *c, const char *path, const wok_classifier_options *o) {
    struct slot slot;
    wok_status status = look_at_input(c->ctx, c->model, path, &slot);
    if (status != WOK_OK) return status;
    c->batch = slot.batch;
    if (!o->preprocess) return wok_preprocess_for_model(c->ctx, c->model, path, o->preset, &c->preprocess);
    c->preprocess = *o->preprocess;
    fit_to_model(&slot, &c->preprocess);
    return WOK_OK;
}

/* Labels that do not fit the model would be wrong names without a word. */
static wok_status choose_labels(wok_classifier *c, const char *path, const wok_classifier_options *o) {
    struct stat info;
    wok_status status = WOK_OK;
    char *beside = wok_image_beside(c->ctx, path, "labels.json");
    if (!beside) return WOK_ERR_MEMORY;
    if (o->labels) status = wok_labels_load(c->ctx, o->labels, &c->labels);
    else if (stat(beside, &info) == 0) status = wok_labels_load(c->ctx, beside, &c->labels);
    if (status == WOK_OK && c->labels.ctx && c->labels.count != c->width)
        status = wok_ctx_fail(c->ctx, WOK_ERR_SHAPE, "%s names %zu classes, %s has %zu", o->labels ? o->labels : beside,
                              c->labels.count, path, c->width);
    wok_image_beside_free(c->ctx, beside);
    return status;
}

/* ---- running --------------------------------------------------------------------------------------------------- */

/* Room for a batch of this shape; the first picture is filled in by the caller, the others are zeros. */
static wok_status make_input(wok_classifier *c, const wok_tensor *shape) {
    const size_t bytes = shape->bytes * (size_t)c->batch;
    if (bytes != c->input_bytes) {
        wok_ctx_release(c->ctx, c->input, c->input_bytes);
        c->input_bytes = 0;
        c->input = wok_ctx_alloc(c->ctx, bytes);
        if (!c->input) return WOK_ERR_MEMORY;
        c->input_bytes = bytes;
        memset(c->input, 0, bytes);
    }
    const int64_t dims[4] = {c->batch, shape->dims[0], shape->dims[1], shape->dims[2]};
    const int index = wok_model_input_index(c->model, input_of(c->model)->name);
    wok_status status = wok_session_set_input(c->session, index, WOK_F32, dims, 4, c->input, bytes);
    return status == WOK_OK ? WOK_OK : session_fail(c, status);
}

/* The model's first output; *width classes for the first picture. */
static wok_status scores_of(wok_classifier *c, const float **scores, size_t *width) {
    const wok_tensor *y = wok_session_output(c->session, 0);
    if (!y || y->dtype != WOK_F32 || y->bytes == 0 || y->bytes / sizeof(float) % (size_t)c->batch != 0)
        return wok_ctx_fail(c->ctx, WOK_ERR_UNSUPPORTED, "the model's first output is not a list of f32 scores");
    *scores = y->data;
    *width = y->bytes / sizeof(float) / (size_t)c->batch;
    return WOK_OK;
}

static bool are_probabilities(const float *x, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        if (!(x[i] >= 0)) return false;
        sum += (double)x[i];
    }
    return fabs(sum - 1) <= 1e-3;
}

static void softmax(const float *x, size_t n, float *y) {
    float most = x[0];
    double sum = 0;
    for (size_t i = 1; i < n; i++) most = x[i] > most ? x[i] : most;
    for (size_t i = 0; i < n; i++) sum += exp((double)(x[i] - most));
    for (size_t i = 0; i < n; i++) y[i] = (float)(exp((double)(x[i] - most)) / sum);
}

wok_status wok_classifier_run(wok_classifier *c, const wok_image *image, float *scores) {
    wok_tensor shape;
    const float *raw;
    size_t width;
    wok_status status = wok_preprocess_shape(c->ctx, &c->preprocess, image->full_width, image->full_height, &shape);
    if (status == WOK_OK) status = make_input(c, &shape);
    if (status == WOK_OK) status = wok_preprocess_run(c->ctx, &c->preprocess, image, c->input, shape.bytes);
    if (status != WOK_OK) return status;
    status = wok_session_run(c->session);
    if (status != WOK_OK) return session_fail(c, status);
    status = scores_of(c, &raw, &width);
    if (status == WOK_OK && width != c->width)
        status = wok_ctx_fail(c->ctx, WOK_ERR_SHAPE, "the model gives %zu scores for this picture, not %zu", width,
                              c->width);
    if (status != WOK_OK) return status;
    if (are_probabilities(raw, width)) memcpy(scores, raw, width * sizeof *scores);
    else softmax(raw, width, scores);
    return WOK_OK;
}

wok_status wok_classifier_run_file(wok_classifier *c, const char *path, float *scores) {
    wok_image image;
    wok_status status = wok_preprocess_open(c->ctx, &c->preprocess, path, &image);
    if (status == WOK_OK) status = wok_classifier_run(c, &image, scores);
    wok_image_free(c->ctx, &image);
    return status;
}

/* ---- life ------------------------------------------------------------------------------------------------------ */

/* How many classes there are shows on a black picture, which also plans the session for its usual size. */
static wok_status find_width(wok_classifier *c) {
    const wok_preprocess *p = &c->preprocess;
    const int64_t side = p->crop_h || p->height ? 1 : 224;
    wok_tensor shape;
    const float *scores;
    wok_status status = wok_preprocess_shape(c->ctx, p, side, side, &shape);
    if (status == WOK_OK) status = make_input(c, &shape);
    if (status != WOK_OK) return status;
    memset(c->input, 0, c->input_bytes);
    status = wok_session_run(c->session);
    return status == WOK_OK ? scores_of(c, &scores, &c->width) : session_fail(c, status);
}

static wok_status load(wok_classifier *c, const char *path, const wok_classifier_options *o) {
    const wok_load_options load_options = {.size = sizeof load_options, .arch = o->arch};
    wok_status status = wok_model_load(c->ctx, path, &load_options, &c->model);
    if (status == WOK_OK) status = choose_preprocess(c, path, o);
    if (status == WOK_OK) status = wok_session_create(c->model, NULL, &c->session);
    if (status == WOK_OK) status = find_width(c);
    if (status == WOK_OK) status = choose_labels(c, path, o);
    return status;
}

wok_status wok_classifier_load(wok_ctx *ctx, const char *path, const wok_classifier_options *options,
                               wok_classifier **classifier) {
    wok_classifier_options known = {.size = sizeof known};
    if (options) memcpy(&known, options, options->size < sizeof known ? options->size : sizeof known);
    wok_classifier *c = wok_ctx_alloc(ctx, sizeof *c);
    *classifier = NULL;
    if (!c) return WOK_ERR_MEMORY;
    *c = (wok_classifier){.ctx = ctx, .batch = 1};
    wok_status status = load(c, path, &known);
    if (status == WOK_OK) *classifier = c;
    else wok_classifier_free(&c);
    return status;
}

void wok_classifier_free(wok_classifier **classifier) {
    wok_classifier *c = classifier ? *classifier : NULL;
    if (!c) return;
    wok_session_free(&c->session);
    wok_model_free(&c->model);
    wok_labels_free(&c->labels);
    wok_ctx_release(c->ctx, c->input, c->input_bytes);
    wok_ctx_release(c->ctx, c, sizeof *c);
    *classifier = NULL;
}

size_t wok_classifier_width(const wok_classifier *c) { return c->width; }

const char *wok_classifier_label(const wok_classifier *c, size_t index) {
    return index < c->labels.count ? c->labels.names[index] : NULL;
}

wok_model *wok_classifier_model(const wok_classifier *c) { return c->model; }

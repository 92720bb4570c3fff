/* preprocess.c - resize, crop, normalise: sizes and offsets as torchvision works them out, pixels by the resize
 * kernels. */
#include "image.h"

#include "../json.h"

#include <math.h>
#include <string.h>

/* ---- geometry -------------------------------------------------------------------------------------------------- */

/* What becomes of a picture: resized to width x height, of which the window (left, top, w, h) lands at (pad_left,
 * pad_top) of an out_w x out_h result that is zero elsewhere. */
typedef struct geometry {
    int64_t width, height, left, top, w, h, pad_left, pad_top, out_w, out_h;
} geometry;

static void resized_size(const wok_preprocess *p, int64_t width, int64_t height, geometry *g) {
    g->width = p->width ? p->width : width;
    g->height = p->height ? p->height : height;
    if (!p->resize) return;
    const int64_t shorter = width < height ? width : height, longer = width < height ? height : width;
    /* Python's int(size * long / short) */
    const int64_t other = (int64_t)((double)(p->resize * longer) / (double)shorter);
    g->width = width <= height ? p->resize : other;
    g->height = width <= height ? other : p->resize;
}

/* Half of a gap >= 0, as Python rounds: halves to even. */
static int64_t half_even(int64_t gap) { return gap / 2 + (gap % 2 && gap / 2 % 2); }

static void crop_axis(int64_t size, int64_t crop, int64_t *offset, int64_t *count, int64_t *pad, int64_t *out) {
    *out = crop ? crop : size;
    *offset = *out < size ? half_even(size - *out) : 0;
    *pad = *out > size ? (*out - size) / 2 : 0;
    *count = *out < size ? *out : size;
}

static bool is_side(int64_t n) { return n >= 0 && n <= WOK_IMAGE_MAX_SIDE; }

static wok_status check_options(wok_ctx *ctx, const wok_preprocess *p) {
    if (!is_side(p->resize) || !is_side(p->width) || !is_side(p->height) || !is_side(p->crop_w) || !is_side(p->crop_h))
        return wok_ctx_fail(ctx, WOK_ERR_ARGUMENT, "a size for preprocessing is not in 0 .. 2^24");
    if (!p->width != !p->height || !p->crop_w != !p->crop_h)
        return wok_ctx_fail(ctx, WOK_ERR_ARGUMENT, "a size for preprocessing needs both height and width");
    if (p->resize && p->width)
        return wok_ctx_fail(ctx, WOK_ERR_ARGUMENT, "preprocessing can resize to a shorter side or to a size, not both");
    if (p->dtype != WOK_F32 && p->dtype != WOK_U8)
        return wok_ctx_fail(ctx, WOK_ERR_ARGUMENT, "preprocessing gives f32 or u8, not %s", wok_dtype_name(p->dtype));
    if (p->layout != WOK_LAYOUT_CHW && p->layout != WOK_LAYOUT_HWC)
        return wok_ctx_fail(ctx, WOK_ERR_ARGUMENT, "preprocessing knows the layouts chw and hwc");
    for (int c = 0; c < 3; c++)
        if (!isfinite(p->mean[c]) || !isfinite(p->scale) || !isfinite(p->scale / p->std[c]))
            return wok_ctx_fail(ctx, WOK_ERR_ARGUMENT,
                                "mean, std or scale of preprocessing is not a number that works");
    return WOK_OK;
}

static wok_status geometry_of(wok_ctx *ctx, const wok_preprocess *p, int64_t width, int64_t height, geometry *g) {
    wok_status status = check_options(ctx, p);
    if (status != WOK_OK) return status;
    if (width < 1 || height < 1 || !is_side(width) || !is_side(height))
        return wok_ctx_fail(ctx, WOK_ERR_ARGUMENT, "a picture of %lld x %lld pixels cannot be preprocessed",
                            (long long)width, (long long)height);
    resized_size(p, width, height, g);
    crop_axis(g->width, p->crop_w, &g->left, &g->w, &g->pad_left, &g->out_w);
    crop_axis(g->height, p->crop_h, &g->top, &g->h, &g->pad_top, &g->out_h);
    const int64_t limit = p->decode.max_pixels > 0 ? p->decode.max_pixels : WOK_IMAGE_MAX_PIXELS;
    if (!is_side(g->width) || !is_side(g->height) || g->out_w * g->out_h > limit)
        return wok_ctx_fail(ctx, WOK_ERR_LIMIT, "preprocessing would make a picture of %lld x %lld pixels",
                            (long long)(p->crop_w ? g->out_w : g->width),
                            (long long)(p->crop_h ? g->out_h : g->height));
    return WOK_OK;
}

wok_status wok_preprocess_shape(wok_ctx *ctx, const wok_preprocess *p, int64_t width, int64_t height,
                                wok_tensor *shape) {
    geometry g;
    wok_status status = geometry_of(ctx, p, width, height, &g);
    if (status != WOK_OK) return status;
    *shape = (wok_tensor){.size = sizeof *shape, .dtype = p->dtype, .rank = 3, .dims = {3, g.out_h, g.out_w}};
    if (p->layout == WOK_LAYOUT_HWC) shape->dims[0] = g.out_h, shape->dims[1] = g.out_w, shape->dims[2] = 3;
    shape->bytes = (size_t)(3 * g.out_h * g.out_w) * wok_dtype_size(p->dtype);
    return WOK_OK;
}

/* ---- pixels ---------------------------------------------------------------------------------------------------- */

/* Strides of the result, channel c counted r g b as the picture stands; `origin` is where r of pixel (0, 0) goes. */
typedef struct target {
    int64_t row, pixel, channel, origin;
    float scale[3], shift[3];
} target;

static void make_target(const wok_preprocess *p, const geometry *g, target *t) {
    const bool planes = p->layout == WOK_LAYOUT_CHW;
    t->row = planes ? g->out_w : 3 * g->out_w;
    t->pixel = planes ? 1 : 3;
    t->channel = planes ? g->out_h * g->out_w : 1;
    t->origin = 0;
    if (p->bgr) {
        t->origin = 2 * t->channel;
        t->channel = -t->channel;
    }
    for (int c = 0; c < 3; c++) {
        const int at = p->bgr ? 2 - c : c; /* mean and std are in the order of the output */
        t->scale[c] = (float)(p->scale / p->std[at]);
        t->shift[c] = (float)(-p->mean[at] / p->std[at]);
    }
}

/* Padding is a zero pixel of the picture, so in f32 it is the shift. */
static void fill(const wok_preprocess *p, const geometry *g, const target *t, void *data) {
    if (p->dtype == WOK_U8) {
        memset(data, 0, (size_t)(3 * g->out_h * g->out_w));
        return;
    }
    for (int c = 0; c < 3; c++)
        for (int64_t i = 0; i < g->out_h; i++)
            for (int64_t j = 0; j < g->out_w; j++)
                ((float *)data)[t->origin + i * t->row + j * t->pixel + c * t->channel] = t->shift[c];
}

wok_status wok_preprocess_run(wok_ctx *ctx, const wok_preprocess *p, const wok_image *image, void *data, size_t bytes) {
    geometry g;
    target t;
    wok_status status = geometry_of(ctx, p, image->full_width, image->full_height, &g);
    if (status != WOK_OK) return status;
    const size_t element = wok_dtype_size(p->dtype), need = (size_t)(3 * g.out_h * g.out_w) * element;
    if (bytes != need || !data)
        return wok_ctx_fail(ctx, WOK_ERR_ARGUMENT, "preprocessing gives %zu bytes, the memory given is %zu", need,
                            bytes);
    make_target(p, &g, &t);
    if (g.w < g.out_w || g.h < g.out_h) fill(p, &g, &t, data);

    const wok_resize_op op = p->dtype == WOK_U8     ? WOK_RESIZE_U8
                             : p->resize_in_float ? WOK_RESIZE_U8_F32
                                                  : WOK_RESIZE_U8_UNIT;
    const wok_resize_problem problem = {op, p->interpolation, p->antialias, 3};
    const int64_t origin = t.origin + g.pad_top * t.row + g.pad_left * t.pixel;
    wok_resize_args args = {
        .x = image->pixels, .in_h = image->height, .in_w = image->width, .x_stride = 3 * image->width,
        .out_h = g.height, .out_w = g.width, .crop_top = g.top, .crop_left = g.left, .crop_h = g.h, .crop_w = g.w,
        .y = (uint8_t *)data + (size_t)origin * element, .y_stride = t.row, .y_pixel_stride = t.pixel,
        .y_channel_stride = t.channel, .scale = t.scale, .shift = t.shift};
    const wok_resize_kernel *kernel = wok_resize_select(wok_ctx_isa(ctx), &problem, NULL, NULL);
    if (!kernel) return wok_ctx_fail(ctx, WOK_ERR_ARGUMENT, "preprocessing does not know this interpolation");
    const wok_parallel *parallel = wok_ctx_parallel(ctx);
    const size_t workspace = kernel->workspace_bytes(&problem, &args, parallel ? parallel->threads : 1);
    args.workspace = wok_ctx_alloc(ctx, workspace);
    if (!args.workspace) return WOK_ERR_MEMORY;
    kernel->run(&problem, &args, parallel);
    wok_ctx_release(ctx, args.workspace, workspace);
    return WOK_OK;
}

/* ---- files ----------------------------------------------------------------------------------------------------- */

/* Decoding stays at least as large as the resized picture, before the crop. */
static wok_status plan_decode(wok_ctx *ctx, const wok_preprocess *p, const void *data, size_t bytes, const char *name,
                              wok_decode_options *o) {
    wok_image_info info;
    geometry g;
    *o = p->decode;
    o->size = sizeof *o;
    o->fast_width = o->fast_height = 0;
    wok_status status = wok_image_inspect(ctx, data, bytes, name, &info);
    if (status != WOK_OK) return status;
    const bool swapped = !o->keep_orientation && info.orientation >= 5;
    status = geometry_of(ctx, p, swapped ? info.height : info.width, swapped ? info.width : info.height, &g);
    if (status != WOK_OK || !p->fast) return status;
    o->fast_width = g.width;
    o->fast_height = g.height;
    return WOK_OK;
}

static wok_status decode(wok_ctx *ctx, const wok_preprocess *p, const void *data, size_t bytes, const char *name,
                         wok_image *image) {
    wok_decode_options options;
    wok_status status = plan_decode(ctx, p, data, bytes, name, &options);
    return status == WOK_OK ? wok_image_decode(ctx, data, bytes, name, &options, image) : status;
}

static wok_status finish(wok_ctx *ctx, const wok_preprocess *p, const wok_image *image, wok_tensor *tensor) {
    wok_status status = wok_preprocess_shape(ctx, p, image->full_width, image->full_height, tensor);
    if (status != WOK_OK) return status;
    tensor->data = wok_ctx_alloc(ctx, tensor->bytes);
    status = tensor->data ? wok_preprocess_run(ctx, p, image, tensor->data, tensor->bytes) : WOK_ERR_MEMORY;
    if (status != WOK_OK) wok_preprocess_free(ctx, tensor);
    return status;
}

wok_status wok_preprocess_decode(wok_ctx *ctx, const wok_preprocess *p, const void *data, size_t bytes,
                                 const char *name, wok_tensor *tensor) {
    wok_image image = {0};
    memset(tensor, 0, sizeof *tensor);
    wok_status status = decode(ctx, p, data, bytes, name, &image);
    if (status == WOK_OK) status = finish(ctx, p, &image, tensor);
    wok_image_free(ctx, &image);
    return status;
}

wok_status wok_preprocess_open(wok_ctx *ctx, const wok_preprocess *p, const char *path, wok_image *image) {
    char *data;
    size_t bytes;
    memset(image, 0, sizeof *image);
    wok_status status = wok_file_load(ctx, path, WOK_IMAGE_MAX_FILE, &data, &bytes);
    if (status != WOK_OK) return status;
    status = decode(ctx, p, data, bytes, path, image);
    wok_ctx_release(ctx, data, bytes + 1);
    return status;
}

wok_status wok_preprocess_load(wok_ctx *ctx, const wok_preprocess *p, const char *path, wok_tensor *tensor) {
    wok_image image;
    memset(tensor, 0, sizeof *tensor);
    wok_status status = wok_preprocess_open(ctx, p, path, &image);
    if (status == WOK_OK) status = finish(ctx, p, &image, tensor);
    wok_image_free(ctx, &image);
    return status;
}

void wok_preprocess_free(wok_ctx *ctx, wok_tensor *tensor) {
    if (!tensor) return;
    wok_ctx_release(ctx, tensor->data, tensor->bytes);
    memset(tensor, 0, sizeof *tensor);
}

/* test_preprocess.c - resize and crop against torchvision, Pillow, torch and OpenCV; presets; preprocess.json. */
#include "support.h"

#include "wok_image.h"
#include "wok_npy.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static wok_ctx *ctx;
static size_t held;

static void setup(void) {
    ctx = wok_ctx_create(NULL);
    held = wok_ctx_memory(ctx, NULL);
}

static void teardown(void) {
    cr_assert_eq(wok_ctx_memory(ctx, NULL), held, "something was not given back");
    wok_ctx_free(&ctx);
}

TestSuite(preprocess, .init = setup, .fini = teardown);

static wok_preprocess preset(const char *name) {
    wok_preprocess p;
    cr_assert_eq(wok_preprocess_preset(ctx, name, &p), WOK_OK, "%s", wok_ctx_error(ctx));
    return p;
}

static wok_tensor load(const wok_preprocess *p, const char *path) {
    wok_tensor x;
    cr_assert_eq(wok_preprocess_load(ctx, p, path, &x), WOK_OK, "%s", wok_ctx_error(ctx));
    return x;
}

/* Runs on a picture in memory; the result is the caller's to free(). */
static void *run(const wok_preprocess *p, uint8_t *pixels, int64_t width, int64_t height, wok_tensor *shape) {
    wok_image image = {.size = sizeof image, .width = width, .height = height, .pixels = pixels, .full_width = width,
                       .full_height = height};
    cr_assert_eq(wok_preprocess_shape(ctx, p, width, height, shape), WOK_OK, "%s", wok_ctx_error(ctx));
    void *data = malloc(shape->bytes);
    cr_assert_eq(wok_preprocess_run(ctx, p, &image, data, shape->bytes), WOK_OK, "%s", wok_ctx_error(ctx));
    return data;
}

static int bytes_apart(const uint8_t *a, const uint8_t *b, size_t count) {
    int most = 0;
    for (size_t i = 0; i < count; i++)
        if (abs(a[i] - b[i]) > most) most = abs(a[i] - b[i]);
    return most;
}

/* ---- photos ---------------------------------------------------------------------------------------------------- */

static const char *const photos[][2] = {{"china", "jpg"}, {"rocket", "jpg"}, {"chelsea", "png"}};

static const char *shared_photo(int i, const char *suffix) {
    static char name[128];
    snprintf(name, sizeof name, "images/%s%s%s", photos[i][0], suffix[0] ? "" : ".", suffix[0] ? suffix : photos[i][1]);
    return support_shared(name);
}

Test(preprocess, resize_and_crop_equal_pillow_byte_for_byte) {
    wok_preprocess p = preset("torchvision");
    p.dtype = WOK_U8;
    p.layout = WOK_LAYOUT_HWC;
    for (int i = 0; i < 3; i++) {
        wok_tensor want = support_npy(ctx, shared_photo(i, ".pil256-crop224.u8.npy"));
        wok_tensor got = load(&p, shared_photo(i, ""));
        cr_assert(got.rank == 3 && got.dims[0] == 224 && got.dims[1] == 224 && got.dims[2] == 3 && got.dtype == WOK_U8);
        cr_assert_eq(got.bytes, want.bytes);
        cr_expect_arr_eq(got.data, want.data, want.bytes, "%s", photos[i][0]);
        wok_preprocess_free(ctx, &got);
        wok_npy_free(ctx, &want);
    }
}

Test(preprocess, float_resize_equals_torch) {
    wok_preprocess p = preset("raw");
    p.height = p.width = 224;
    for (int i = 0; i < 6; i++) {
        p.antialias = i < 3;
        wok_tensor want =
            support_npy(ctx, shared_photo(i % 3, p.antialias ? ".torch-aa224.f32.npy" : ".torch-noaa224.f32.npy"));
        wok_tensor got = load(&p, shared_photo(i % 3, ""));
        cr_assert(got.rank == 3 && got.dims[0] == 3 && got.dims[1] == 224 && got.dims[2] == 224 &&
                  got.dtype == WOK_F32);
        cr_expect_leq(support_distance(got.data, want.data, 3 * 224 * 224), 2e-4, "%s", photos[i % 3][0]);
        wok_preprocess_free(ctx, &got);
        wok_npy_free(ctx, &want);
    }
}

/* The f32 of torchvision on a PIL picture: the rounded bytes, then ToTensor and Normalize. CHW and HWC hold the same.
 */
Test(preprocess, normalising_follows_the_rounded_bytes) {
    wok_preprocess p = preset("torchvision"), q = p;
    q.dtype = WOK_U8;
    q.layout = WOK_LAYOUT_HWC;
    wok_tensor chw = load(&p, support_data("images/small-420.jpg")),
               bytes = load(&q, support_data("images/small-420.jpg"));
    p.layout = WOK_LAYOUT_HWC;
    wok_tensor hwc = load(&p, support_data("images/small-420.jpg"));
    for (int i = 0; i < 224 * 224; i++)
        for (int c = 0; c < 3; c++) {
            const double v = ((uint8_t *)bytes.data)[3 * i + c], want = (v / 255 - p.mean[c]) / p.std[c];
            cr_assert_leq(fabs((double)((float *)chw.data)[c * 224 * 224 + i] - want), 1e-6);
            cr_assert_eq(((float *)hwc.data)[3 * i + c], ((float *)chw.data)[c * 224 * 224 + i]);
        }
    wok_preprocess_free(ctx, &chw);
    wok_preprocess_free(ctx, &hwc);
    wok_preprocess_free(ctx, &bytes);
}

Test(preprocess, scaled_decoding_is_close_and_keeps_the_shape) {
    wok_preprocess p = preset("torchvision"), q = p;
    p.resize = q.resize = 30;
    p.crop_h = p.crop_w = q.crop_h = q.crop_w = 28;
    p.dtype = q.dtype = WOK_U8;
    q.fast = true;
    wok_tensor a = load(&p, support_data("images/small-exif6.jpg")),
               b = load(&q, support_data("images/small-exif6.jpg"));
    cr_assert(a.bytes == b.bytes && a.bytes == 3 * 28 * 28);
    double sum = 0;
    for (size_t i = 0; i < a.bytes; i++) sum += abs(((uint8_t *)a.data)[i] - ((uint8_t *)b.data)[i]);
    cr_expect(sum > 0 && sum / (double)a.bytes < 6, "mean difference %g", sum / (double)a.bytes);
    wok_preprocess_free(ctx, &a);
    wok_preprocess_free(ctx, &b);
}

/* ---- public bugs, group D -------------------------------------------------------------------------------------- */

static void row_becomes(const char *what, const uint8_t *row, int64_t width, const uint8_t *want, int64_t out,
                        bool antialias, wok_resize_filter filter) {
    wok_preprocess p = preset("raw");
    wok_tensor shape;
    uint8_t pixels[16 * 16 * 3];
    for (int64_t i = 0; i < 16 * width * 3; i++) pixels[i] = row[i / 3 % width];
    p.dtype = WOK_U8;
    p.layout = WOK_LAYOUT_HWC;
    p.height = 4;
    p.width = out;
    p.antialias = antialias;
    p.interpolation = filter;
    uint8_t *got = run(&p, pixels, width, 16, &shape);
    for (int64_t i = 0; i < 4 * out * 3; i++)
        cr_expect_eq(got[i], want[i / 3 % out], "%s: pixel %d is %d, not %d", what, (int)(i / 3 % out), got[i],
                     want[i / 3 % out]);
    free(got);
}

Test(preprocess, B48_antialias_when_shrinking) {
    uint8_t stripes[16], ramp[16], edge[2] = {0, 255};
    for (int i = 0; i < 16; i++) stripes[i] = i % 2 ? 255 : 0, ramp[i] = (uint8_t)(16 * i);
    const uint8_t grey[] = {118, 128, 128, 137}, black[] = {0, 0, 0, 0}, smooth[] = {23, 69, 120, 171, 217};
    const uint8_t plain[] = {18, 69, 120, 171, 222}, grown[] = {0, 64, 191, 255};
    row_becomes("stripes, antialias", stripes, 16, grey, 4, true, WOK_FILTER_BILINEAR);
    row_becomes("ramp, antialias", ramp, 16, smooth, 5, true, WOK_FILTER_BILINEAR);
    row_becomes("ramp, plain", ramp, 16, plain, 5, false, WOK_FILTER_BILINEAR);
    row_becomes("edge, growing", edge, 2, grown, 4, true, WOK_FILTER_BILINEAR);
    row_becomes("stripes, nearest", stripes, 16, black, 4, true, WOK_FILTER_NEAREST);
}

static void resized(const char *picture, const char *want_name, wok_resize_filter filter, bool antialias, int bound) {
    char name[128];
    snprintf(name, sizeof name, "images/%s", want_name);
    wok_tensor want = support_npy(ctx, support_data(name));
    wok_preprocess p = preset("raw");
    p.dtype = WOK_U8;
    p.layout = WOK_LAYOUT_HWC;
    p.height = want.dims[0];
    p.width = want.dims[1];
    p.interpolation = filter;
    p.antialias = antialias;
    wok_tensor got = load(&p, support_data(picture));
    const int most = bytes_apart(got.data, want.data, want.bytes);
    cr_expect_leq(most, bound, "%s differs by %d", want_name, most);
    wok_preprocess_free(ctx, &got);
    wok_npy_free(ctx, &want);
}

Test(preprocess, B49_pillow_and_opencv_recipes) {
    resized("images/small-palette.png", "resize-nearest-50x40.npy", WOK_FILTER_NEAREST, true, 0);
    resized("images/small-palette.png", "resize-nearest-7x300.npy", WOK_FILTER_NEAREST, true, 0);
    resized("images/small-palette.png", "resize-bilinear-50x40.npy", WOK_FILTER_BILINEAR, true, 0);
    resized("images/small-palette.png", "resize-bilinear-7x300.npy", WOK_FILTER_BILINEAR, true, 0);
    resized("images/small-palette.png", "resize-bicubic-50x40.npy", WOK_FILTER_BICUBIC, true, 0);
    resized("images/small-palette.png", "resize-bicubic-7x300.npy", WOK_FILTER_BICUBIC, true, 0);
    resized("images/small-palette.png", "resize-opencv-50x40.npy", WOK_FILTER_BILINEAR, false, 1);
}

/* Pillow 13 resizes vertically first where the height shrinks much more than the width. */
Test(preprocess, B49_order_of_the_passes) {
    wok_preprocess p = preset("raw");
    p.dtype = WOK_U8;
    p.layout = WOK_LAYOUT_HWC;
    p.interpolation = WOK_FILTER_NEAREST;
    p.height = 300;
    p.width = 30;
    wok_tensor narrow = load(&p, support_data("images/small-palette.png")), shape;
    wok_tensor want = support_npy(ctx, support_data("images/resize-tall.npy"));
    p.interpolation = WOK_FILTER_BILINEAR;
    p.height = 40;
    p.width = 20;
    uint8_t *got = run(&p, narrow.data, 30, 300, &shape);
    cr_expect_arr_eq(got, want.data, want.bytes);
    free(got);
    wok_preprocess_free(ctx, &narrow);
    wok_npy_free(ctx, &want);
}

/* A picture of one colour shows what a preset does to values, and in which order the channels come. */
Test(preprocess, B49_presets_by_name) {
    static const struct {
        const char *name;
        wok_image_layout layout;
        double want[3];
    } cases[] = {
        {"raw", WOK_LAYOUT_CHW, {10, 100, 200}},
        {"torchvision",
         WOK_LAYOUT_CHW,
         {(10 / 255.0 - 0.485) / 0.229, (100 / 255.0 - 0.456) / 0.224, (200 / 255.0 - 0.406) / 0.225}},
        {"timm",
         WOK_LAYOUT_CHW,
         {(10 / 255.0 - 0.485) / 0.229, (100 / 255.0 - 0.456) / 0.224, (200 / 255.0 - 0.406) / 0.225}},
        {"keras-tf", WOK_LAYOUT_HWC, {10 / 127.5 - 1, 100 / 127.5 - 1, 200 / 127.5 - 1}},
        {"keras-caffe", WOK_LAYOUT_HWC, {200 - 103.939, 100 - 116.779, 10 - 123.68}},
        {"keras-torch",
         WOK_LAYOUT_HWC,
         {(10 / 255.0 - 0.485) / 0.229, (100 / 255.0 - 0.456) / 0.224, (200 / 255.0 - 0.406) / 0.225}},
        {"opencv", WOK_LAYOUT_HWC, {200, 100, 10}},
    };
    enum { W = 60, H = 40 };
    static uint8_t pixels[W * H * 3];
    for (int i = 0; i < W * H; i++) memcpy(pixels + 3 * i, (uint8_t[]){10, 100, 200}, 3);
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        cr_assert_str_eq(wok_preprocess_preset_name((int)k), cases[k].name);
        wok_preprocess p = preset(cases[k].name);
        wok_tensor shape;
        const float *x = run(&p, pixels, W, H, &shape);
        const int64_t n = (int64_t)(shape.bytes / sizeof(float)) / 3;
        cr_expect_eq(n, k == 0 ? W * H : 224 * 224);
        cr_expect_eq(p.layout, cases[k].layout);
        cr_expect_eq(shape.dims[p.layout == WOK_LAYOUT_CHW ? 0 : 2], 3);
        for (int64_t i = 0; i < n; i++)
            for (int64_t c = 0; c < 3; c++)
                cr_assert_leq(fabs((double)x[p.layout == WOK_LAYOUT_CHW ? c * n + i : 3 * i + c] - cases[k].want[c]),
                              2e-5 * 255, "%s", cases[k].name);
        free((void *)x);
    }
    cr_assert_null(wok_preprocess_preset_name(7));
    wok_preprocess p;
    cr_expect_eq(wok_preprocess_preset(ctx, "caffe3", &p), WOK_ERR_ARGUMENT);
    cr_expect(strstr(wok_ctx_error(ctx), "torchvision") && strstr(wok_ctx_error(ctx), "opencv"));
}

/* The window is found by looking where pixels that hold their own position come from. */
static void cropped(int64_t width, int64_t height, int64_t resize, int64_t crop, int64_t left, int64_t top,
                    int64_t new_w, int64_t new_h) {
    wok_preprocess p = preset("raw"), whole;
    wok_tensor shape, all;
    uint8_t *pixels = malloc((size_t)(3 * width * height));
    for (int64_t i = 0; i < width * height; i++)
        memcpy(pixels + 3 * i, (uint8_t[]){(uint8_t)(i % width), (uint8_t)(i / width), (uint8_t)(i % 251)}, 3);
    p.resize = resize;
    p.dtype = WOK_U8;
    p.layout = WOK_LAYOUT_HWC;
    p.interpolation = WOK_FILTER_NEAREST;
    whole = p;
    p.crop_h = p.crop_w = crop;
    uint8_t *resized_picture = run(&whole, pixels, width, height, &all), *got = run(&p, pixels, width, height, &shape);
    cr_expect(all.dims[0] == new_h && all.dims[1] == new_w, "%dx%d became %dx%d", (int)width, (int)height,
              (int)all.dims[1], (int)all.dims[0]);
    cr_expect(shape.dims[0] == crop && shape.dims[1] == crop);
    for (int64_t i = 0; i < crop; i++)
        cr_assert_arr_eq(got + i * crop * 3, resized_picture + ((top + i) * new_w + left) * 3, (size_t)crop * 3,
                         "%dx%d: row %d", (int)width, (int)height, (int)i);
    free(pixels);
    free(resized_picture);
    free(got);
}

Test(preprocess, B53_shorter_side_and_centre_crop) {
    cropped(500, 375, 256, 224, 58, 16, 341, 256);
    cropped(333, 500, 256, 224, 16, 80, 256, 384);
    cropped(1000, 667, 256, 224, 80, 16, 383, 256);
    cropped(257, 1023, 256, 224, 16, 398, 256, 1019);
    cropped(11, 11, 11, 10, 0, 0, 11, 11); /* gaps 1 3 5 7: halves go to the even number */
    cropped(13, 13, 13, 10, 2, 2, 13, 13);
    cropped(15, 15, 15, 10, 2, 2, 15, 15);
    cropped(17, 17, 17, 10, 4, 4, 17, 17);
}

Test(preprocess, B53_crop_larger_than_the_picture_is_padded) {
    uint8_t pixels[3 * 3 * 3];
    for (int i = 0; i < 27; i++) pixels[i] = (uint8_t)(100 + i);
    wok_preprocess p = preset("raw");
    wok_tensor shape;
    p.crop_h = p.crop_w = 8;
    p.dtype = WOK_U8;
    p.layout = WOK_LAYOUT_HWC;
    uint8_t *got = run(&p, pixels, 3, 3, &shape);
    cr_assert(shape.dims[0] == 8 && shape.dims[1] == 8);
    for (int y = 0; y < 8; y++)
        for (int x = 0; x < 8; x++)
            for (int c = 0; c < 3; c++) {
                const bool inside =
                    y >= 2 && y < 5 && x >= 2 && x < 5; /* (8 - 3) / 2 in front, the larger half behind */
                cr_assert_eq(got[(y * 8 + x) * 3 + c], inside ? 100 + ((y - 2) * 3 + x - 2) * 3 + c : 0);
            }
    free(got);
    wok_preprocess norm = preset("torchvision"); /* padding is a black pixel: it is normalised too */
    norm.resize = 0;
    norm.crop_h = 8;
    norm.crop_w = 2;
    float *x = run(&norm, pixels, 3, 3, &shape);
    cr_assert(shape.dims[1] == 8 && shape.dims[2] == 2);
    cr_expect_float_eq(x[0], (float)(-0.485 / 0.229), 1e-6);
    cr_expect_float_eq(x[2 * 16 + 15], (float)(-0.406 / 0.225), 1e-6);
    cr_expect_float_eq(x[2 * 2], (float)((100 / 255.0 - 0.485) / 0.229), 1e-6); /* gap 1: offset 0 */
    free(x);
}

/* ---- threads, instruction sets --------------------------------------------------------------------------------- */

Test(preprocess, the_same_bits_for_any_number_of_threads) {
    wok_preprocess p = preset("torchvision");
    wok_tensor one = load(&p, support_data("images/small-422.jpg"));
    for (int threads = 1; threads <= 5; threads++) {
        wok_ctx *own = support_ctx(threads, NULL);
        wok_tensor other;
        cr_assert_eq(wok_preprocess_load(own, &p, support_data("images/small-422.jpg"), &other), WOK_OK);
        cr_expect_arr_eq(one.data, other.data, one.bytes, "%d threads", threads);
        wok_preprocess_free(own, &other);
        wok_ctx_free(&own);
    }
    wok_preprocess_free(ctx, &one);
}

/* ---- preprocess.json ------------------------------------------------------------------------------------------- */

static wok_status parse(const char *json, wok_preprocess *p) {
    return wok_preprocess_parse(ctx, json, strlen(json), NULL, p);
}

Test(preprocess, json_of_the_trained_models) {
    wok_preprocess p;
    cr_assert_eq(wok_preprocess_beside(ctx, support_shared("models/mobilenetv2-dogs19/float.onnx"), &p), WOK_OK, "%s",
                 wok_ctx_error(ctx));
    cr_expect(p.height == 160 && p.width == 160 && !p.resize && !p.crop_h && p.interpolation == WOK_FILTER_BILINEAR);
    cr_expect(p.layout == WOK_LAYOUT_CHW && p.dtype == WOK_F32 && p.antialias && !p.resize_in_float && !p.bgr);
    cr_expect(p.mean[0] == 0.5 && p.std[2] == 0.5 && fabs(p.scale - 1 / 255.0) < 1e-12);
    cr_assert_eq(wok_preprocess_beside(ctx, support_shared("models/resnet18-digits"), &p), WOK_OK, "a folder");
    cr_expect(p.resize == 32 && p.crop_h == 32 && p.crop_w == 32 && !p.height);
    cr_assert_eq(wok_preprocess_beside(ctx, support_shared("models/resnet18-digits/"), &p), WOK_OK, "with a slash");
    cr_expect_eq(wok_preprocess_beside(ctx, support_shared("models/minilm-l6/int8-dynamic.onnx"), &p), WOK_ERR_IO);
    cr_expect(strstr(wok_ctx_error(ctx), "minilm-l6/preprocess.json"));
}

Test(preprocess, json_keys) {
    wok_preprocess p;
    cr_assert_eq(parse("{}", &p), WOK_OK);
    cr_expect(!p.resize && !p.height && !p.crop_h && p.scale == 1 / 255.0 && p.std[1] == 1 && !p.resize_in_float);
    cr_assert_eq(parse("{\"resize\": 40, \"crop\": [30, 32], \"interpolation\": \"bicubic\", \"antialias\": false, "
                       "\"mean\": [1, 2, 3], \"std\": 2, \"scale\": 0.5, \"layout\": \"nhwc\", \"channels\": \"bgr\"}",
                       &p),
                 WOK_OK, "%s", wok_ctx_error(ctx));
    cr_expect(p.resize == 40 && p.crop_h == 30 && p.crop_w == 32 && p.interpolation == WOK_FILTER_BICUBIC &&
              !p.antialias);
    cr_expect(p.mean[2] == 3 && p.std[0] == 2 && p.std[2] == 2 && p.scale == 0.5 && p.layout == WOK_LAYOUT_HWC &&
              p.bgr);
    cr_assert_eq(parse("{\"size\": 96, \"preset\": \"torchvision\"}", &p), WOK_OK, "%s", wok_ctx_error(ctx));
    cr_expect(p.height == 96 && p.width == 96 && !p.resize && p.crop_h == 224 && p.mean[0] == 0.485);
}

Test(preprocess, json_that_is_refused) {
    static const char *const texts[] = {"",
                                        "[]",
                                        "{\"resize\": 0}",
                                        "{\"resize\": -3}",
                                        "{\"resize\": \"256\"}",
                                        "{\"resize\": 99999999}",
                                        "{\"crop\": [1]}",
                                        "{\"crop\": [1, 2, 3]}",
                                        "{\"crop\": [0, 2]}",
                                        "{\"size\": {}}",
                                        "{\"mean\": [1, 2]}",
                                        "{\"mean\": [1, 2, \"3\"]}",
                                        "{\"std\": null}",
                                        "{\"scale\": \"1\"}",
                                        "{\"interpolation\": \"lanczos\"}",
                                        "{\"layout\": \"chwn\"}",
                                        "{\"channels\": 3}",
                                        "{\"antialias\": 1}",
                                        "{\"preset\": 3}",
                                        "{\"preset\": \"nope\"}",
                                        "{\"normalise\": true}",
                                        "{\"resize\": 3, \"size\": 4}"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        wok_preprocess p;
        cr_expect_neq(parse(texts[i], &p), WOK_OK, "%s", texts[i]);
        cr_expect(wok_ctx_error(ctx)[0]);
    }
}

/* ---- options that cannot be right, memory ---------------------------------------------------------------------- */

Test(preprocess, contradictions_are_refused) {
    wok_preprocess p = preset("torchvision");
    wok_tensor shape;
    uint8_t pixel[3] = {0};
    p.height = p.width = 100;
    cr_expect_eq(wok_preprocess_shape(ctx, &p, 10, 10, &shape), WOK_ERR_ARGUMENT);
    p = preset("raw"), p.height = 3;
    cr_expect_eq(wok_preprocess_shape(ctx, &p, 10, 10, &shape), WOK_ERR_ARGUMENT);
    p = preset("raw"), p.dtype = WOK_I8;
    cr_expect_eq(wok_preprocess_shape(ctx, &p, 10, 10, &shape), WOK_ERR_ARGUMENT);
    p = preset("raw"), p.std[1] = 0;
    cr_expect_eq(wok_preprocess_shape(ctx, &p, 10, 10, &shape), WOK_ERR_ARGUMENT);
    p = preset("raw");
    cr_expect_eq(wok_preprocess_shape(ctx, &p, 0, 10, &shape), WOK_ERR_ARGUMENT);
    p.resize = 256;
    cr_expect_eq(wok_preprocess_shape(ctx, &p, 1, 1 << 24, &shape), WOK_ERR_LIMIT, "a side of 2^32");
    p.crop_w = p.crop_h = 224;
    cr_expect_eq(wok_preprocess_shape(ctx, &p, 1, 1 << 16, &shape), WOK_OK, "only the window counts");
    p = preset("raw"), p.interpolation = (wok_resize_filter)7;
    wok_image image = {
        .size = sizeof image, .width = 1, .height = 1, .pixels = pixel, .full_width = 1, .full_height = 1};
    float out[4];
    cr_expect_eq(wok_preprocess_run(ctx, &p, &image, out, 12), WOK_ERR_ARGUMENT);
    p = preset("raw");
    cr_expect_eq(wok_preprocess_run(ctx, &p, &image, out, 16), WOK_ERR_ARGUMENT);
}

Test(preprocess, failing_memory) {
    support_heap heap = {0};
    wok_ctx *own = support_ctx(1, &heap);
    wok_preprocess p = preset("torchvision");
    const long before = heap.blocks;
    wok_status status = WOK_ERR_MEMORY;
    for (long at = 1; status != WOK_OK; at++) {
        wok_tensor x;
        heap.calls = 0;
        heap.fail_at = at;
        status = wok_preprocess_load(own, &p, support_data("images/small-exif6.jpg"), &x);
        heap.fail_at = 0;
        cr_assert(status == WOK_OK || status == WOK_ERR_MEMORY, "%s", wok_ctx_error(own));
        if (status == WOK_OK) wok_preprocess_free(own, &x);
        cr_assert_eq(heap.blocks, before, "allocation %ld", at);
        cr_assert_lt(at, 100);
    }
    cr_assert_gt(heap.failures, 4);
    wok_ctx_free(&own);
}

/* wok_image.h - pictures: decode JPEG and PNG, resize, crop, normalise, and classify with a model.
 *
 *   wok_tensor x = {0};
 *   wok_preprocess p;
 *   wok_preprocess_preset(ctx, "torchvision", &p);              Resize(256), CenterCrop(224), ToTensor, Normalize
 *   wok_preprocess_load(ctx, &p, "cat.jpg", &x);                x is f32 [3, 224, 224]
 *   ...
 *   wok_preprocess_free(ctx, &x);
 *
 * Decoding gives 8-bit RGB, the bytes that Pillow's Image.open(path).convert("RGB") gives where the same libjpeg-turbo
 * is underneath (accurate integer DCT, triangle upsampling of colour). Resizing is the `resize` kernel family:
 * byte-equal to Pillow in 8 bits, equal to torch.nn.functional.interpolate within rounding in f32.
 *
 * All functions are thread-safe; errors go to wok_ctx_error(ctx), one sentence that names the file. Memory comes from
 * the context's allocator, except what libturbojpeg and libspng keep while they decode.
 */
#ifndef WOK_IMAGE_H
#define WOK_IMAGE_H

#include "wok.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- decoding ------------------------------------------------------------------------------------------------ */

typedef enum wok_image_format { WOK_IMAGE_JPEG = 1, WOK_IMAGE_PNG = 2 } wok_image_format;

/* A decoded picture. Filled by wok_image_decode or by the caller (then never given to wok_image_free). */
typedef struct wok_image {
    size_t size;           /* sizeof(wok_image) */
    int64_t width, height; /* of `pixels` */
    uint8_t *pixels;       /* R G B, row by row, no gaps */
    size_t bytes;          /* allocated, at least 3 * width * height */
    int64_t full_width, full_height; /* without scaled decoding; orientation applied as in width and height */
    int orientation;                 /* what the file's EXIF block says: 1 to 8; 1 where it says nothing */
} wok_image;

typedef struct wok_image_info {
    size_t size;
    wok_image_format format;
    int64_t width, height; /* as stored */
    int orientation;       /* as in wok_image */
} wok_image_info;

typedef struct wok_decode_options {
    size_t size;        /* sizeof(wok_decode_options); zero means the default everywhere */
    int64_t max_pixels; /* larger pictures are refused before anything is allocated, WOK_ERR_LIMIT; 0: 2^28 */
    /* By default the EXIF orientation is applied, so that the picture stands as a viewer shows it (as OpenCV's imread
     * does). Pillow and torchvision leave pixels as they are stored: `keep_orientation`. Damaged EXIF is ignored. */
    bool keep_orientation;
    /* Scaled decoding, off where 0: a JPEG is decoded at 1/2, 1/4 or 1/8, as long as both sides stay at least this
     * long. Several times faster for large photos, and other pixels than those of a full decode. PNG pays no heed. */
    int64_t fast_width, fast_height;
} wok_decode_options;

/* What a file is, without decoding it. WOK_ERR_UNSUPPORTED for other formats, by name where it is known;
 * WOK_ERR_FORMAT for damaged headers. `name` stands for the file in error sentences. */
WOK_API wok_status wok_image_inspect(wok_ctx *ctx, const void *data, size_t bytes, const char *name,
                                     wok_image_info *info);
/* JPEG: baseline and progressive, 8 bit; RGB, YCbCr, grey, and CMYK or YCCK as Adobe stores them, inverted (so Pillow
 * reads all of them). A cut-off file is an error; damaged data inside is decoded as far as libjpeg-turbo goes, as in
 * Pillow.
 * PNG: all colour types and depths, interlaced too. Alpha is dropped, not blended; grey is repeated; 16 bits keep their
 * upper 8 (where Pillow clips 16-bit grey at 255); gamma and colour profiles are left alone.
 * On success image->pixels belongs to the caller: wok_image_free. options may be NULL. */
WOK_API wok_status wok_image_decode(wok_ctx *ctx, const void *data, size_t bytes, const char *name,
                                    const wok_decode_options *options, wok_image *image);
/* The same from a file, of at most 1 GiB. */
WOK_API wok_status wok_image_load(wok_ctx *ctx, const char *path, const wok_decode_options *options, wok_image *image);
/* Frees and clears. An empty image and NULL are fine. */
WOK_API void wok_image_free(wok_ctx *ctx, wok_image *image);

/* ---- preprocessing ------------------------------------------------------------------------------------------- */

typedef enum wok_image_layout { WOK_LAYOUT_CHW = 0, WOK_LAYOUT_HWC = 1 } wok_image_layout;

/* From a picture to the numbers that a model was trained on. Always start from a preset: zero is not a default here.
 *   1. resize: `resize` makes the shorter side that long and the longer side trunc(resize * long / short), as
 *      torchvision's Resize; or `height` x `width` exactly; or neither.
 *   2. crop: the middle crop_h x crop_w; offset round-half-even((h - crop_h) / 2) as torchvision's CenterCrop. Where
 *      the picture is smaller it is first padded with zeros, floor of the lack in front.
 *   3. value: u8, or f32 (v * scale - mean[c]) / std[c], in the order r g b (b g r with bgr; mean and std in the same
 *      order as the output). */
typedef struct wok_preprocess {
    size_t size; /* sizeof(wok_preprocess) */
    int64_t resize, height, width; /* at most one way of resizing: resize, or height and width; 0: not this way */
    int64_t crop_h, crop_w;        /* 0: no crop */
    wok_resize_filter interpolation;
    bool antialias;
    /* f32 only. false: resize in 8 bits, rounding as Pillow does, then convert (torchvision on PIL pictures, where most
     * models were trained). true: convert, then resize unrounded (torchvision and torch on float tensors). */
    bool resize_in_float;
    wok_dtype dtype; /* WOK_F32 or WOK_U8 */
    wok_image_layout layout;
    bool bgr;
    double scale, mean[3], std[3]; /* WOK_F32 only */
    wok_decode_options decode; /* for wok_preprocess_load and _decode, except fast_width and fast_height */
    bool fast;                 /* scaled JPEG decoding, as long as no side becomes shorter than the resized picture's */
} wok_preprocess;

/* NULL or one of
 *   raw          nothing but f32 0..255, CHW; resizing, once asked for, bilinear with antialias, unrounded
 *   torchvision  resize 256, crop 224, bilinear, /255, ImageNet mean and std, CHW
 *   timm         as torchvision, bicubic
 *   keras-tf     224 x 224, nearest (load_img), v / 127.5 - 1, HWC: MobileNet, Inception, Xception, NASNet, ResNetV2
 *   keras-caffe  224 x 224, nearest, BGR minus (103.939, 116.779, 123.68), HWC: ResNet, VGG
 *   keras-torch  224 x 224, nearest, /255, ImageNet mean and std, HWC: DenseNet
 *   opencv       224 x 224, bilinear without antialias in 8 bits (cv2.resize within 1), BGR 0..255, HWC
 * NULL is raw. An unknown name is WOK_ERR_ARGUMENT and the sentence lists these. */
WOK_API wok_status wok_preprocess_preset(wok_ctx *ctx, const char *name, wok_preprocess *p);
/* Name number `index` of that list; NULL outside. */
WOK_API const char *wok_preprocess_preset_name(int index);

/* preprocess.json: an object with any of
 *   "preset"         a name from above, read first
 *   "resize"         shorter side;  "crop", "size": one number, or [height, width]
 *   "interpolation"  "nearest", "bilinear", "bicubic";  "antialias": true or false
 *   "mean", "std"    one number or three;  "scale": number
 *   "layout"         "chw", "hwc", "nchw", "nhwc";  "channels": "rgb" or "bgr"
 * Without "preset": no resizing, bilinear, antialias, rounded to 8 bits, mean 0, std 1, scale 1/255, CHW. A key that is
 * none of these is an error, because a step left out shows only as wrong answers. */
WOK_API wok_status wok_preprocess_parse(wok_ctx *ctx, const char *json, size_t bytes, const char *name,
                                        wok_preprocess *p);
/* preprocess.json beside a model file or in a model's folder. WOK_ERR_IO if there is none. */
WOK_API wok_status wok_preprocess_beside(wok_ctx *ctx, const char *model_path, wok_preprocess *p);
/* How wok_classifier prepares pictures for this model: as `preset` says, at the model's size where that is fixed; with
 * preset NULL as preprocess.json beside model_path says, else torchvision. Layout and element type follow the model, whose
 * one needed input must be f32 [N,3,H,W] or [N,H,W,3] (otherwise WOK_ERR_UNSUPPORTED). */
WOK_API wok_status wok_preprocess_for_model(wok_ctx *ctx, const wok_model *model, const char *model_path,
                                            const char *preset, wok_preprocess *p);

/* dtype, rank 3, dims and bytes of what a picture of this size becomes; data NULL. WOK_ERR_ARGUMENT for options that
 * contradict each other, WOK_ERR_LIMIT beyond decode.max_pixels. */
WOK_API wok_status wok_preprocess_shape(wok_ctx *ctx, const wok_preprocess *p, int64_t width, int64_t height,
                                        wok_tensor *shape);
/* Into the caller's memory of `bytes` bytes, which must be what wok_preprocess_shape says. The target of `resize` is
 * worked out from image->full_width and full_height. */
WOK_API wok_status wok_preprocess_run(wok_ctx *ctx, const wok_preprocess *p, const wok_image *image, void *data,
                                      size_t bytes);
/* Decodes and runs. tensor->data belongs to the caller: wok_preprocess_free. */
WOK_API wok_status wok_preprocess_decode(wok_ctx *ctx, const wok_preprocess *p, const void *data, size_t bytes,
                                         const char *name, wok_tensor *tensor);
WOK_API wok_status wok_preprocess_load(wok_ctx *ctx, const wok_preprocess *p, const char *path, wok_tensor *tensor);
/* Only decodes, as p->decode and p->fast say. Free with wok_image_free. */
WOK_API wok_status wok_preprocess_open(wok_ctx *ctx, const wok_preprocess *p, const char *path, wok_image *image);
WOK_API void wok_preprocess_free(wok_ctx *ctx, wok_tensor *tensor);

/* ---- classifying --------------------------------------------------------------------------------------------- */

/* A model with its preprocessing and labels; one thread at a time. Errors go to wok_ctx_error of its context.
 *
 *   wok_classifier *c = NULL;
 *   wok_classifier_load(ctx, "resnet18/float.onnx", NULL, &c);
 *   float *scores = malloc(wok_classifier_width(c) * sizeof *scores);
 *   wok_classifier_run_file(c, "cat.jpg", scores);
 *   printf("%s\n", wok_classifier_label(c, largest(scores)));
 */
typedef struct wok_classifier wok_classifier;

typedef struct wok_classifier_options {
    size_t size;      /* sizeof(wok_classifier_options); zero means the default everywhere */
    const char *arch; /* as in wok_load_options */
    /* The first of these that is there: `preprocess` (copied); `preset`, at the model's size where that is fixed;
     * preprocess.json beside the model; the preset torchvision. */
    const wok_preprocess *preprocess;
    const char *preset;
    /* A file: one label a line, or where its name ends in .json an array of strings or {"0": "cat", "1": "dog"}. NULL:
     * labels.json beside the model, if there is one. */
    const char *labels;
} wok_classifier_options;

/* model_path: what wok_model_load takes. The model must have one f32 input [N, 3, H, W] or [N, H, W, 3] (which of the
 * two decides the layout, whatever the preprocessing says), and its first output must be f32: a score a class. */
WOK_API wok_status wok_classifier_load(wok_ctx *ctx, const char *model_path, const wok_classifier_options *options,
                                       wok_classifier **classifier);
/* Frees and clears. NULL and pointer to NULL are fine. */
WOK_API void wok_classifier_free(wok_classifier **classifier);
/* Number of classes. */
WOK_API size_t wok_classifier_width(const wok_classifier *classifier);
/* NULL without labels and outside the range. */
WOK_API const char *wok_classifier_label(const wok_classifier *classifier, size_t index);
/* Owned by the classifier. */
WOK_API wok_model *wok_classifier_model(const wok_classifier *classifier);
/* scores: one probability a class. Scores of the model that are no probabilities yet (one is negative, or their sum is
 * off 1 by more than 0.001) go through a softmax. */
WOK_API wok_status wok_classifier_run(wok_classifier *classifier, const wok_image *image, float *scores);
/* Decodes as the preprocessing says. */
WOK_API wok_status wok_classifier_run_file(wok_classifier *classifier, const char *path, float *scores);

#ifdef __cplusplus
}
#endif
#endif

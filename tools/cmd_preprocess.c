/* cmd_preprocess.c - `wok preprocess`: a picture to the array that a model gets. */
#include "cmd.h"

#if WOK_HAVE_IMAGE
#include "wok_image.h"
#include "wok_npy.h"

#include <string.h>

typedef struct settings {
    const char *out, *size, *preset, *model, *layout, *dtype, *interpolation;
    int resize, crop;
    bool no_antialias, fast, keep_orientation, as_json;
} settings;

/* Index of `text` in a list that ends in NULL; -1 if it is none of them. */
static int choose(const char *text, const char *const *names) {
    for (int i = 0; names[i]; i++)
        if (!strcmp(text, names[i])) return i;
    return -1;
}

/* "224x224" (height first) or "224". */
static bool read_size(const char *text, int64_t *height, int64_t *width) {
    int64_t dims[2];
    int n = cmd_parse_shape(text, dims, 2);
    if (n < 1 || dims[0] < 1 || dims[n - 1] < 1) return false;
    *height = dims[0];
    *width = dims[n - 1];
    return true;
}

static int apply_words(const char *command, const settings *s, wok_preprocess *p) {
    static const char *const layouts[] = {"chw", "hwc", NULL}, *const dtypes[] = {"f32", "u8", NULL};
    static const char *const filters[] = {"nearest", "bilinear", "bicubic", NULL};
    int i;
    if (s->layout) {
        if ((i = choose(s->layout, layouts)) < 0)
            return cmd_usage(command, "--layout is chw or hwc, not `%s`", s->layout);
        p->layout = (wok_image_layout)i;
    }
    if (s->dtype) {
        if ((i = choose(s->dtype, dtypes)) < 0) return cmd_usage(command, "--dtype is f32 or u8, not `%s`", s->dtype);
        p->dtype = i ? WOK_U8 : WOK_F32;
    }
    if (s->interpolation) {
        if ((i = choose(s->interpolation, filters)) < 0)
            return cmd_usage(command, "--interpolation is nearest, bilinear or bicubic, not `%s`", s->interpolation);
        p->interpolation = (wok_resize_filter)i;
    }
    return 0;
}

/* What the options say, over what the preset or the model's preprocess.json says. */
static int apply(const char *command, const settings *s, wok_preprocess *p) {
    if (s->size && s->resize) return cmd_usage(command, "--size and --resize exclude each other");
    if (s->size) {
        if (!read_size(s->size, &p->height, &p->width))
            return cmd_usage(command, "--size wants HxW in pixels, not `%s`", s->size);
        p->resize = 0;
        p->crop_h = p->crop_w = 0;
    }
    if (s->resize) {
        p->resize = s->resize;
        p->height = p->width = 0;
    }
    if (s->crop) p->crop_h = p->crop_w = s->crop;
    if (s->no_antialias) p->antialias = false;
    p->fast = s->fast;
    p->decode.keep_orientation = s->keep_orientation;
    return apply_words(command, s, p);
}

static int choose_preprocess(wok_ctx *ctx, const char *command, const settings *s, wok_preprocess *p) {
    if (s->preset && s->model) return cmd_usage(command, "--preset and --model exclude each other");
    wok_status status = s->model ? wok_preprocess_beside(ctx, s->model, p) : wok_preprocess_preset(ctx, s->preset, p);
    if (status != WOK_OK)
        return s->preset ? cmd_usage(command, "%s", wok_ctx_error(ctx)) : cmd_error("%s", wok_ctx_error(ctx));
    return apply(command, s, p);
}

static int report(const settings *s, const wok_tensor *x) {
    if (!s->as_json) return 0;
    cmd_json json;
    json_start(&json, stdout);
    json_object(&json);
    json_key(&json, "file"), json_text(&json, s->out);
    json_key(&json, "dtype"), json_text(&json, wok_dtype_name(x->dtype));
    json_key(&json, "shape"), json_array(&json);
    for (int i = 0; i < x->rank; i++) json_int(&json, x->dims[i]);
    json_array_end(&json);
    json_object_end(&json);
    return json_finish(&json) ? 0 : cmd_error("stdout cannot be written");
}

static int preprocess(const char *command, const char *path, const settings *s) {
    wok_ctx_options options = {.size = sizeof options, .log = cmd_log};
    wok_ctx *ctx = wok_ctx_create(&options);
    wok_preprocess p;
    wok_tensor x = {0};
    if (!ctx) return cmd_error("out of memory");
    int status = choose_preprocess(ctx, command, s, &p);
    if (!status && (wok_preprocess_load(ctx, &p, path, &x) != WOK_OK || wok_npy_save(ctx, s->out, &x) != WOK_OK))
        status = cmd_error("%s", wok_ctx_error(ctx));
    if (!status) status = report(s, &x);
    wok_preprocess_free(ctx, &x);
    wok_ctx_free(&ctx);
    return status;
}

int cmd_preprocess(int argc, char **argv) {
    settings s = {0};
    cmd_list list;
    int status;
    const cmd_option options[] = {
        {"-o", OPT_TEXT, &s.out, "X.npy", "where the array goes"},
        {"--size", OPT_TEXT, &s.size, "HxW", "resize to exactly this"},
        {"--resize", OPT_COUNT, &s.resize, "N", "resize so that the shorter side is N"},
        {"--crop", OPT_COUNT, &s.crop, "N", "cut out the middle N x N"},
        {"--no-antialias", OPT_FLAG, &s.no_antialias, NULL, "do not widen the filter when shrinking (as OpenCV)"},
        {"--interpolation", OPT_TEXT, &s.interpolation, "NAME", "nearest, bilinear or bicubic"},
        {"--layout", OPT_TEXT, &s.layout, "NAME", "chw or hwc"},
        {"--dtype", OPT_TEXT, &s.dtype, "NAME", "f32 (0..255 unless a preset normalises) or u8"},
        {"--preset", OPT_TEXT, &s.preset, "NAME",
         "raw (the default), torchvision, timm, keras-tf, keras-caffe, keras-torch, opencv"},
        {"--model", OPT_TEXT, &s.model, "MODEL", "as preprocess.json beside this model says"},
        {"--fast-decode", OPT_FLAG, &s.fast, NULL, "decode a JPEG at 1/2, 1/4 or 1/8 where that is large enough"},
        {"--keep-orientation", OPT_FLAG, &s.keep_orientation, NULL,
         "leave pixels as stored, whatever EXIF says (as Pillow and torchvision)"},
        {"--json", OPT_FLAG, &s.as_json, NULL, "print file, dtype and shape"}};
    if (!cmd_parse(argc, argv, options, CMD_OPTION_COUNT(options), 1, 1, &list, &status)) return status;
    status = s.out ? preprocess(argv[0], list.items[0], &s) : cmd_usage(argv[0], "preprocess wants -o X.npy");
    cmd_list_free(&list);
    return status;
}

#else

int cmd_preprocess(int argc, char **argv) {
    (void)argc, (void)argv;
    return cmd_error("this build has no picture support (libturbojpeg, libspng and jsmn)");
}
#endif

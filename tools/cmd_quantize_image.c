/* cmd_quantize_image.c - samples for `wok quantize` from pictures. */
#include "cmd_quantize.h"

#if WOK_HAVE_IMAGE
#include "wok_image.h"

#include <stdlib.h>
#include <string.h>

static int prepare(const quant_data *d, wok_preprocess *p) {
    return wok_preprocess_for_model(d->ctx, d->model, d->path, d->preset, p) == WOK_OK
               ? 0
               : cmd_error("%s", wok_ctx_error(d->ctx));
}

/* The group for `count` pictures that become `shape`, made with the first of them; all must be as large. */
static int make_room(quant_data *d, const wok_tensor *shape, int64_t count, const char *name, wok_tensor **stack) {
    int input = quant_only_input(d->model);
    if (!*stack) {
        quant_group *g = quant_data_group(d, count);
        const int64_t dims[4] = {count, shape->dims[0], shape->dims[1], shape->dims[2]};
        if (!g || !quant_tensor_alloc(d, &g->inputs[input], WOK_F32, 4, dims)) return 1;
        *stack = &g->inputs[input];
        const wok_value_info *info = wok_model_input(d->model, input);
        for (int i = 1; i < 4; i++)
            if (info->dims[i] >= 0 && info->dims[i] != dims[i]) {
                char have[160], want[160];
                return cmd_error("%s becomes %s, but input %s is %s", name,
                                 cmd_shape_text(dims + 1, 3, have, sizeof have), info->name,
                                 cmd_shape_text(info->dims + 1, 3, want, sizeof want));
            }
    }
    if (memcmp((*stack)->dims + 1, shape->dims, 3 * sizeof *shape->dims) == 0) return 0;
    return cmd_error("%s becomes another size than the pictures before it: say with --preset, or with crop or size in "
                     "preprocess.json, how large pictures shall be",
                     name);
}

static int put(quant_data *d, const wok_preprocess *p, const wok_image *image, const char *name, int64_t index,
               int64_t count, wok_tensor **stack) {
    wok_tensor shape;
    if (wok_preprocess_shape(d->ctx, p, image->full_width, image->full_height, &shape) != WOK_OK)
        return cmd_error("%s", wok_ctx_error(d->ctx));
    int status = make_room(d, &shape, count, name, stack);
    if (status) return status;
    char *to = (char *)(*stack)->data + (size_t)index * shape.bytes;
    return wok_preprocess_run(d->ctx, p, image, to, shape.bytes) == WOK_OK ? 0 : cmd_error("%s", wok_ctx_error(d->ctx));
}

int quant_data_pictures(quant_data *d, const char *const *paths, int64_t all) {
    wok_preprocess p;
    wok_tensor *stack = NULL;
    int64_t count = d->limit > 0 && d->limit < all ? d->limit : all;
    int status = prepare(d, &p);
    for (int64_t i = 0; i < count && !status; i++) {
        wok_image image = {0};
        const char *path = paths[quant_choose(i, count, all)];
        if (wok_preprocess_open(d->ctx, &p, path, &image) != WOK_OK)
            status = cmd_error("%s", wok_ctx_error(d->ctx));
        else
            status = put(d, &p, &image, path, i, count, &stack);
        wok_image_free(d->ctx, &image);
        cmd_progress("reading pictures", i + 1, count);
    }
    return status;
}

/* [N,H,W] or [N,H,W,1] are grey: every value three times. */
static void to_rgb(const uint8_t *from, int64_t pixels, int channels, uint8_t *to) {
    if (channels == 3)
        memcpy(to, from, (size_t)pixels * 3);
    else
        for (int64_t i = 0; i < 3 * pixels; i++) to[i] = from[i / 3];
}

int quant_data_bytes(quant_data *d, const char *file, const wok_tensor *t) {
    const int64_t height = t->dims[1], width = t->dims[2], pixels = height * width;
    const int channels = t->rank == 4 ? (int)t->dims[3] : 1;
    wok_image image = {.size = sizeof image,
                       .width = width,
                       .height = height,
                       .full_width = width,
                       .full_height = height,
                       .orientation = 1,
                       .bytes = (size_t)pixels * 3};
    wok_preprocess p;
    wok_tensor *stack = NULL;
    int status = prepare(d, &p);
    image.pixels = status ? NULL : malloc(image.bytes + 1);
    if (!status && !image.pixels) status = cmd_error("out of memory");
    for (int64_t i = 0; i < t->dims[0] && !status; i++) {
        to_rgb((const uint8_t *)t->data + i * pixels * channels, pixels, channels, image.pixels);
        status = put(d, &p, &image, file, i, t->dims[0], &stack);
    }
    free(image.pixels);
    return status;
}

#else

int quant_data_pictures(quant_data *d, const char *const *paths, int64_t count) {
    (void)d, (void)count;
    return cmd_error("%s: this build has no picture support (libturbojpeg, libspng and jsmn)", paths[0]);
}

int quant_data_bytes(quant_data *d, const char *file, const wok_tensor *stack) {
    (void)d, (void)stack;
    return cmd_error("%s holds bytes, and this build cannot prepare pictures (libturbojpeg, libspng and jsmn)", file);
}
#endif

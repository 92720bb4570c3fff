/* image.c - which reader a file belongs to, limits, orientation. */
#include "image.h"

#include "../json.h"

#include <string.h>

wok_status wok_image_allocate(wok_ctx *ctx, wok_image *image, int64_t width, int64_t height, int64_t channels) {
    image->width = width;
    image->height = height;
    image->bytes = (size_t)width * (size_t)height * (size_t)channels; /* bounded by max_pixels */
    image->pixels = wok_ctx_alloc(ctx, image->bytes);
    return image->pixels ? WOK_OK : WOK_ERR_MEMORY;
}

void wok_image_free(wok_ctx *ctx, wok_image *image) {
    if (!image) return;
    wok_ctx_release(ctx, image->pixels, image->bytes);
    memset(image, 0, sizeof *image);
}

/* ---- formats --------------------------------------------------------------------------------------------------- */

static const char *other_format(const uint8_t *data, size_t bytes) {
    static const struct {
        size_t at, length;
        const char *magic, *name;
    } others[] = {{0, 4, "GIF8", "GIF"},     {8, 4, "WEBP", "WebP"},        {0, 2, "BM", "BMP"},
                  {0, 4, "II*\0", "TIFF"},   {0, 4, "MM\0*", "TIFF"},       {4, 8, "ftypavif", "AVIF"},
                  {4, 8, "ftypheic", "HEIC"}, {4, 8, "ftypmif1", "HEIF"},   {0, 4, "\0\0\0\x0cjP  ", "JPEG 2000"},
                  {0, 4, "<svg", "SVG"},     {0, 4, "%PDF", "PDF"}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (bytes >= others[i].at + others[i].length && !memcmp(data + others[i].at, others[i].magic, others[i].length))
            return others[i].name;
    return NULL;
}

static wok_status refuse(const wok_image_source *s) {
    const char *other = other_format(s->data, s->bytes);
    if (other)
        return wok_ctx_fail(s->ctx, WOK_ERR_UNSUPPORTED, "%s is a %s file; wok reads JPEG and PNG", s->name, other);
    return wok_ctx_fail(s->ctx, s->bytes ? WOK_ERR_UNSUPPORTED : WOK_ERR_FORMAT, "%s is %s; wok reads JPEG and PNG",
                        s->name, s->bytes ? "no picture that wok knows" : "empty");
}

static wok_status inspect(const wok_image_source *s, wok_image_info *info) {
    memset(info, 0, sizeof *info);
    info->size = sizeof *info;
    if (wok_jpeg_is(s->data, s->bytes)) return wok_jpeg_inspect(s, info);
    if (wok_png_is(s->data, s->bytes)) return wok_png_inspect(s, info);
    return refuse(s);
}

wok_status wok_image_inspect(wok_ctx *ctx, const void *data, size_t bytes, const char *name, wok_image_info *info) {
    const wok_image_source source = {ctx, data, bytes, name ? name : "the picture"};
    return inspect(&source, info);
}

/* ---- orientation ----------------------------------------------------------------------------------------------- */

/* EXIF's eight orientations as three switches: mirror rows, mirror columns, swap axes (applied last). */
enum { FLIP_X = 1, FLIP_Y = 2, SWAP = 4 };
static const unsigned char steps[9] = {
    0, 0, FLIP_X, FLIP_X | FLIP_Y, FLIP_Y, SWAP, SWAP | FLIP_Y, SWAP | FLIP_X | FLIP_Y, SWAP | FLIP_X};

/* Pixel (x, y) of the stored picture is written to its place: read in order, written by strides. */
static wok_status orient(wok_ctx *ctx, wok_image *image) {
    const unsigned how = steps[image->orientation];
    if (!how) return WOK_OK;
    wok_image turned = *image;
    const int64_t w = image->width, h = image->height;
    wok_status status = wok_image_allocate(ctx, &turned, how & SWAP ? h : w, how & SWAP ? w : h, 3);
    if (status != WOK_OK) return status;
    const uint8_t *from = image->pixels;
    for (int64_t y = 0; y < h; y++)
        for (int64_t x = 0; x < w; x++, from += 3) {
            const int64_t u = how & FLIP_X ? w - 1 - x : x, v = how & FLIP_Y ? h - 1 - y : y;
            uint8_t *to = turned.pixels + 3 * (how & SWAP ? u * h + v : v * w + u);
            to[0] = from[0], to[1] = from[1], to[2] = from[2];
        }
    wok_ctx_release(ctx, image->pixels, image->bytes);
    *image = turned;
    return WOK_OK;
}

/* ---- decoding -------------------------------------------------------------------------------------------------- */

static int denominator(const wok_image_info *info, const wok_decode_options *o, bool swapped) {
    const int64_t w = swapped ? o->fast_height : o->fast_width, h = swapped ? o->fast_width : o->fast_height;
    int d = 1;
    if (w < 1 || h < 1 || info->format != WOK_IMAGE_JPEG) return 1;
    while (d < 8 && (info->width + 2 * d - 1) / (2 * d) >= w && (info->height + 2 * d - 1) / (2 * d) >= h) d *= 2;
    return d;
}

static wok_status decode(const wok_image_source *s, const wok_decode_options *o, wok_image *image) {
    wok_image_info info;
    wok_status status = inspect(s, &info);
    if (status != WOK_OK) return status;
    const int64_t limit = o->max_pixels > 0 ? o->max_pixels : WOK_IMAGE_MAX_PIXELS;
    if (info.width > WOK_IMAGE_MAX_SIDE || info.height > WOK_IMAGE_MAX_SIDE || info.width * info.height > limit)
        return wok_ctx_fail(s->ctx, WOK_ERR_LIMIT, "%s has %lld x %lld pixels, more than the limit of %lld", s->name,
                            (long long)info.width, (long long)info.height, (long long)limit);
    const bool swapped = !o->keep_orientation && (steps[info.orientation] & SWAP) != 0;
    if (info.format == WOK_IMAGE_JPEG) status = wok_jpeg_decode(s, denominator(&info, o, swapped), image);
    else status = wok_png_decode(s, image);
    image->orientation = info.orientation;
    image->full_width = swapped ? info.height : info.width;
    image->full_height = swapped ? info.width : info.height;
    if (status == WOK_OK && !o->keep_orientation) status = orient(s->ctx, image);
    return status;
}

wok_status wok_image_decode(wok_ctx *ctx, const void *data, size_t bytes, const char *name,
                            const wok_decode_options *options, wok_image *image) {
    const wok_image_source source = {ctx, data, bytes, name ? name : "the picture"};
    wok_decode_options known = {.size = sizeof known};
    if (options) memcpy(&known, options, options->size < sizeof known ? options->size : sizeof known);
    memset(image, 0, sizeof *image);
    image->size = sizeof *image;
    wok_status status = decode(&source, &known, image);
    if (status != WOK_OK) wok_image_free(ctx, image);
    return status;
}

wok_status wok_image_load(wok_ctx *ctx, const char *path, const wok_decode_options *options, wok_image *image) {
    char *data;
    size_t bytes;
    memset(image, 0, sizeof *image);
    wok_status status = wok_file_load(ctx, path, WOK_IMAGE_MAX_FILE, &data, &bytes);
    if (status != WOK_OK) return status;
    status = wok_image_decode(ctx, data, bytes, path, options, image);
    wok_ctx_release(ctx, data, bytes + 1);
    return status;
}

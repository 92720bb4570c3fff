/* image.h - what the picture readers share (internal). */
#ifndef WOK_IMAGE_INTERNAL_H
#define WOK_IMAGE_INTERNAL_H

#include "wok_build.h"
#include "wok_image.h"

#define WOK_IMAGE_MAX_PIXELS ((int64_t)1 << 28)
#define WOK_IMAGE_MAX_FILE ((size_t)1 << 30)
#define WOK_IMAGE_MAX_SIDE ((int64_t)1 << 24) /* the resize kernels' */

/* A file in memory, on its way through a reader. */
typedef struct wok_image_source {
    wok_ctx *ctx;
    const uint8_t *data;
    size_t bytes;
    const char *name; /* for error sentences */
} wok_image_source;

/* Orientation in a TIFF block (what follows "Exif\0\0" in a JPEG, the eXIf chunk of a PNG): 1 to 8; 0 where the
 * block is damaged or says nothing. */
int wok_exif_orientation(const uint8_t *tiff, size_t bytes);

bool wok_jpeg_is(const uint8_t *data, size_t bytes);
wok_status wok_jpeg_inspect(const wok_image_source *source, wok_image_info *info);
/* Decodes at 1/denominator (1, 2, 4, 8); image->pixels allocated, width, height, bytes set; orientation not applied. */
wok_status wok_jpeg_decode(const wok_image_source *source, int denominator, wok_image *image);

bool wok_png_is(const uint8_t *data, size_t bytes);
wok_status wok_png_inspect(const wok_image_source *source, wok_image_info *info);
wok_status wok_png_decode(const wok_image_source *source, wok_image *image);

/* Allocates image->pixels for width x height x channels. */
wok_status wok_image_allocate(wok_ctx *ctx, wok_image *image, int64_t width, int64_t height, int64_t channels);

/* Path of `file` in a model's folder, or beside a model file; NULL where there is no memory. */
char *wok_image_beside(wok_ctx *ctx, const char *model_path, const char *file);
void wok_image_beside_free(wok_ctx *ctx, char *path);

#endif

/* png.c - PNG by libspng. */
#include "image.h"

#include <spng.h>
#include <string.h>

/* Bytes of one ancillary chunk and of all that are kept: colour profiles and text must not become a memory bomb. */
enum { CHUNK_LIMIT = 16 << 20, CHUNKS_LIMIT = 64 << 20 };

bool wok_png_is(const uint8_t *data, size_t bytes) { return bytes >= 8 && !memcmp(data, "\x89PNG\r\n\x1a\n", 8); }

static wok_status fail(const wok_image_source *s, int code) {
    const bool cut = code == SPNG_IO_EOF || code == SPNG_EOF || code == SPNG_EIDAT_TOO_SHORT;
    if (cut) return wok_ctx_fail(s->ctx, WOK_ERR_FORMAT, "%s is a PNG file that was cut off", s->name);
    return wok_ctx_fail(s->ctx, code == SPNG_EMEM ? WOK_ERR_MEMORY : WOK_ERR_FORMAT, "%s cannot be decoded as PNG: %s",
                        s->name, spng_strerror(code));
}

/* On success *png is to be freed. */
static wok_status open_png(const wok_image_source *s, spng_ctx **png, struct spng_ihdr *header) {
    *png = spng_ctx_new(0);
    if (!*png) return wok_ctx_fail(s->ctx, WOK_ERR_MEMORY, "%s: libspng cannot start", s->name);
    int code = spng_set_png_buffer(*png, s->data, s->bytes);
    if (!code) code = spng_set_chunk_limits(*png, CHUNK_LIMIT, CHUNKS_LIMIT);
    if (!code) code = spng_get_ihdr(*png, header);
    if (!code) return WOK_OK;
    spng_ctx_free(*png);
    *png = NULL;
    return fail(s, code);
}

static int orientation_of(spng_ctx *png) {
    struct spng_exif exif;
    int value = spng_get_exif(png, &exif) == 0 ? wok_exif_orientation((const uint8_t *)exif.data, exif.length) : 0;
    return value ? value : 1;
}

wok_status wok_png_inspect(const wok_image_source *s, wok_image_info *info) {
    spng_ctx *png;
    struct spng_ihdr header;
    wok_status status = open_png(s, &png, &header);
    if (status != WOK_OK) return status;
    info->format = WOK_IMAGE_PNG;
    info->width = header.width;
    info->height = header.height;
    info->orientation = orientation_of(png);
    spng_ctx_free(png);
    return WOK_OK;
}

/* RGB8 of any colour type: palettes looked up, grey spread over 0..255 and repeated, alpha dropped, 16 bits cut. */
wok_status wok_png_decode(const wok_image_source *s, wok_image *image) {
    spng_ctx *png;
    struct spng_ihdr header;
    wok_status status = open_png(s, &png, &header);
    if (status != WOK_OK) return status;
    status = wok_image_allocate(s->ctx, image, header.width, header.height, 3);
    if (status == WOK_OK) {
        int code = spng_decode_image(png, image->pixels, image->bytes, SPNG_FMT_RGB8, 0);
        if (code) status = fail(s, code);
    }
    spng_ctx_free(png);
    return status;
}

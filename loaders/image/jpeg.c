/* jpeg.c - JPEG by libjpeg-turbo.
 *
 * The markers are walked by hand first: that finds size, components and EXIF without a decoder, and a file that was
 * cut off, which libjpeg only warns of in words. ITU-T T.81 annex B. */
#include "image.h"

#include <limits.h>
#include <string.h>
#include <turbojpeg.h>

enum { M_TEM = 0x01, M_RST0 = 0xd0, M_RST7 = 0xd7, M_SOI = 0xd8, M_EOI = 0xd9, M_SOS = 0xda, M_APP1 = 0xe1 };

typedef struct outline {
    int width, height, components;
    int orientation; /* 0: nothing said */
    bool ended;      /* the end-of-image marker was found */
} outline;

/* Start of frame of any process; 0xc4, 0xc8 and 0xcc are other things. */
static bool is_frame(int marker) {
    return marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
}

static bool stands_alone(int marker) {
    return marker == M_TEM || marker == M_SOI || (marker >= M_RST0 && marker <= M_RST7);
}

static int be16(const uint8_t *p) { return p[0] << 8 | p[1]; }

static void read_segment(outline *o, int marker, const uint8_t *p, size_t bytes) {
    if (is_frame(marker) && !o->components && bytes >= 6) {
        o->height = be16(p + 1);
        o->width = be16(p + 3);
        o->components = p[5];
    }
    if (marker == M_APP1 && !o->orientation && bytes >= 6 && !memcmp(p, "Exif\0", 6))
        o->orientation = wok_exif_orientation(p + 6, bytes - 6);
}

/* The next marker at or after *at, which moves behind it; -1 at the end. Stuffed zeros and fill bytes are passed
 * over, and so is anything between segments, as libjpeg does. */
static int next_marker(const uint8_t *data, size_t bytes, size_t *at) {
    while (*at < bytes) {
        const uint8_t *ff = memchr(data + *at, 0xff, bytes - *at);
        if (!ff) break;
        *at = (size_t)(ff - data) + 1;
        while (*at < bytes && data[*at] == 0xff) ++*at;
        if (*at < bytes && data[(*at)++] != 0) return data[*at - 1];
    }
    return -1;
}

static void walk(const uint8_t *data, size_t bytes, outline *o) {
    size_t at = 2;
    int marker;
    while ((marker = next_marker(data, bytes, &at)) >= 0) {
        if (marker == M_EOI) {
            o->ended = true;
            return;
        }
        if (stands_alone(marker)) continue;
        if (bytes - at < 2) return;
        size_t length = (size_t)be16(data + at);
        if (length < 2 || length > bytes - at) return;
        read_segment(o, marker, data + at + 2, length - 2);
        at += length; /* after SOS: entropy-coded data, in which only markers are looked for */
    }
}

bool wok_jpeg_is(const uint8_t *data, size_t bytes) { return bytes >= 3 && !memcmp(data, "\xff\xd8\xff", 3); }

static wok_status look(const wok_image_source *s, outline *o) {
    memset(o, 0, sizeof *o);
    walk(s->data, s->bytes, o);
    if (!o->components)
        return wok_ctx_fail(s->ctx, WOK_ERR_FORMAT, "%s is a JPEG file without a picture in it, or cut off", s->name);
    if (o->width == 0 || o->height == 0)
        return wok_ctx_fail(s->ctx, WOK_ERR_FORMAT, "%s: the JPEG header says %d x %d pixels", s->name, o->width,
                            o->height);
    return WOK_OK;
}

wok_status wok_jpeg_inspect(const wok_image_source *s, wok_image_info *info) {
    outline o;
    wok_status status = look(s, &o);
    if (status != WOK_OK) return status;
    info->format = WOK_IMAGE_JPEG;
    info->width = o.width;
    info->height = o.height;
    info->orientation = o.orientation ? o.orientation : 1;
    return WOK_OK;
}

/* a * b / 255, rounded; exact for bytes. */
static int mul255(int a, int b) {
    int t = a * b + 128;
    return (t + (t >> 8)) >> 8;
}

/* Inverted CMYK, as Adobe writes and Pillow assumes, to RGB. In place: a pixel's target never passes its source. */
static void cmyk_to_rgb(uint8_t *p, int64_t pixels) {
    for (int64_t i = 0; i < pixels; i++) {
        const int k = p[4 * i + 3];
        const int r = mul255(p[4 * i], k), g = mul255(p[4 * i + 1], k), b = mul255(p[4 * i + 2], k);
        p[3 * i] = (uint8_t)r;
        p[3 * i + 1] = (uint8_t)g;
        p[3 * i + 2] = (uint8_t)b;
    }
}

/* Does libjpeg see the picture that the walk saw? Otherwise it would fill another rectangle than the one allocated. The
 * call also fails for samplings that it has no name for, but not before it has set the size. */
static bool same_size(tjhandle tj, const wok_image_source *s, const outline *o) {
    int width = 0, height = 0, sampling, colours;
    tjDecompressHeader3(tj, s->data, (unsigned long)s->bytes, &width, &height, &sampling, &colours);
    return width == o->width && height == o->height;
}

static wok_status decode(tjhandle tj, const wok_image_source *s, const outline *o, wok_image *image) {
    const int width = (int)image->width, height = (int)image->height;
    const bool cmyk = o->components == 4;
    if (!same_size(tj, s, o))
        return wok_ctx_fail(s->ctx, WOK_ERR_FORMAT, "%s has a damaged JPEG header: %s", s->name, tjGetErrorStr2(tj));
    /* at most 500 scans, which no honest encoder needs and a hostile file makes minutes of */
    const int flags = TJFLAG_ACCURATEDCT | TJFLAG_LIMITSCANS;
    const int rc = tjDecompress2(tj, s->data, (unsigned long)s->bytes, image->pixels, width, 0, height,
                                 cmyk ? TJPF_CMYK : TJPF_RGB, flags);
    if (rc != 0 && tjGetErrorCode(tj) != TJERR_WARNING) {
        const char *reason = tjGetErrorStr2(tj);
        return wok_ctx_fail(s->ctx, strstr(reason, "nsufficient memory") ? WOK_ERR_MEMORY : WOK_ERR_FORMAT,
                            "%s cannot be decoded as JPEG: %s", s->name, reason);
    }
    if (cmyk) cmyk_to_rgb(image->pixels, image->width * image->height);
    return WOK_OK;
}

wok_status wok_jpeg_decode(const wok_image_source *s, int denominator, wok_image *image) {
    outline o;
    wok_status status = look(s, &o);
    if (status != WOK_OK) return status;
    if (!o.ended) return wok_ctx_fail(s->ctx, WOK_ERR_FORMAT, "%s is a JPEG file that was cut off", s->name);
    tjscalingfactor factor = {1, denominator};
    status = wok_image_allocate(s->ctx, image, TJSCALED(o.width, factor), TJSCALED(o.height, factor),
                                o.components == 4 ? 4 : 3);
    if (status != WOK_OK) return status;
    tjhandle tj = tjInitDecompress();
    if (!tj) return wok_ctx_fail(s->ctx, WOK_ERR_MEMORY, "%s: libturbojpeg cannot start", s->name);
    status = decode(tj, s, &o, image);
    tjDestroy(tj);
    return status;
}

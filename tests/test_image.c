/* test_image.c - decoding: bytes against Pillow's, EXIF, CMYK, all PNG types, damaged files, limits, failing memory. */
#include "support.h"

#include "sha256.h"
#include "wok_image.h"
#include "wok_npy.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <turbojpeg.h>

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

TestSuite(image, .init = setup, .fini = teardown);

static wok_image load(const char *path) {
    wok_image image;
    cr_assert_eq(wok_image_load(ctx, path, NULL, &image), WOK_OK, "%s", wok_ctx_error(ctx));
    return image;
}

static unsigned char *read_file(const char *path, size_t *bytes) {
    static unsigned char buffer[1 << 20];
    FILE *file = fopen(path, "rb");
    cr_assert(file, "%s", path);
    *bytes = fread(buffer, 1, sizeof buffer, file);
    fclose(file);
    return buffer;
}

/* Largest difference from NAME.rgb.npy; 999 where the shape differs. */
static int difference(const char *picture, const wok_image *image) {
    char name[256];
    snprintf(name, sizeof name, "images/%s.rgb.npy", picture);
    wok_tensor want = support_npy(ctx, support_data(name));
    int most = 999;
    if (want.rank == 3 && want.dims[0] == image->height && want.dims[1] == image->width && want.dims[2] == 3) {
        most = 0;
        for (size_t i = 0; i < want.bytes; i++) {
            int d = abs((int)((uint8_t *)want.data)[i] - image->pixels[i]);
            if (d > most) most = d;
        }
    }
    wok_npy_free(ctx, &want);
    return most;
}

static void check_form(const char *picture, int bound) {
    char name[256];
    snprintf(name, sizeof name, "images/%s", picture);
    wok_image image = load(support_data(name));
    int most = difference(picture, &image);
    cr_expect_leq(most, bound, "%s differs by %d", picture, most);
    wok_image_free(ctx, &image);
}

/* ---- whole photos ---------------------------------------------------------------------------------------------- */

static void check_hash(const char *picture, const char *hash_file) {
    wok_image image = load(support_shared(picture));
    wok_tensor want = support_npy(ctx, support_shared(hash_file));
    uint8_t digest[32];
    sha256(image.pixels, (size_t)(3 * image.width * image.height), digest);
    cr_expect_arr_eq(digest, want.data, sizeof digest, "%s", picture);
    wok_npy_free(ctx, &want);
    wok_image_free(ctx, &image);
}

Test(image, photos_decode_to_the_bytes_of_libjpeg_turbo) {
    uint8_t digest[32];
    sha256("abc", 3, digest);
    cr_assert_arr_eq(digest, "\xba\x78\x16\xbf\x8f\x01\xcf\xea", 8, "the hash itself");
    check_hash("images/china.jpg", "images/china.decoded.sha256.npy");
    check_hash("images/rocket.jpg", "images/rocket.decoded.sha256.npy");
    check_hash("images/chelsea.png", "images/chelsea.decoded.sha256.npy");
}

Test(image, forms_that_users_send) {
    static const char *const jpegs[] = {"small-420.jpg", "small-422.jpg", "small-progressive.jpg", "small-exif6.jpg",
                                        "small-grey.jpg", "small-cmyk.jpg"};
    static const char *const pngs[] = {"small-grey.png", "small-palette.png", "small-alpha.png", "small-1bit.png"};
    for (size_t i = 0; i < sizeof jpegs / sizeof *jpegs; i++) check_form(jpegs[i], 2);
    for (size_t i = 0; i < sizeof pngs / sizeof *pngs; i++) check_form(pngs[i], 0);
}

Test(image, every_png_colour_type_and_depth) {
    static const char *const pngs[] = {"grey-1.png", "grey-2.png", "grey-4.png", "grey-8.png", "grey-16.png",
                                       "grey-1-interlaced.png", "grey-2-interlaced.png", "grey-4-interlaced.png",
                                       "grey-8-interlaced.png", "grey-16-interlaced.png", "palette-2.png",
                                       "palette-4.png", "rgb-8.png", "rgb-16.png", "rgba-8.png", "rgba-16.png",
                                       "grey-alpha-8.png", "grey-alpha-16.png", "rgb-transparent.png", "exif6.png"};
    for (size_t i = 0; i < sizeof pngs / sizeof *pngs; i++) check_form(pngs[i], 0);
}

/* ---- public bugs, group D -------------------------------------------------------------------------------------- */

typedef struct jpeg {
    unsigned char *data;
    unsigned long bytes;
} jpeg;

static jpeg encode(const unsigned char *pixels, int width, int height, enum TJPF format, enum TJSAMP sampling,
                   int flags) {
    jpeg out = {NULL, 0};
    tjhandle tj = tjInitCompress();
    cr_assert_eq(tjCompress2(tj, pixels, width, 0, height, format, &out.data, &out.bytes, sampling, 100, flags), 0,
                 "%s", tjGetErrorStr2(tj));
    tjDestroy(tj);
    return out;
}

static wok_status decode(const void *data, size_t bytes, const wok_decode_options *options, wok_image *image) {
    return wok_image_decode(ctx, data, bytes, "test.jpg", options, image);
}

/* 32 x 16, grey, with a red block of 8 x 8 at the top left, and an APP1 segment after the SOI. */
static jpeg red_corner(const void *app1, size_t bytes) {
    unsigned char pixels[16][32][3];
    memset(pixels, 128, sizeof pixels);
    for (int y = 0; y < 8; y++)
        for (int x = 0; x < 8; x++) memcpy(pixels[y][x], "\xff\0\0", 3);
    jpeg plain = encode(pixels[0][0], 32, 16, TJPF_RGB, TJSAMP_444, 0), out;
    out.bytes = plain.bytes + 4 + bytes;
    out.data = tjAlloc((int)out.bytes);
    memcpy(out.data, plain.data, 2);
    memcpy(out.data + 2, (unsigned char[]){0xff, 0xe1, (unsigned char)((bytes + 2) >> 8), (unsigned char)(bytes + 2)},
           4);
    memcpy(out.data + 6, app1, bytes);
    memcpy(out.data + 6 + bytes, plain.data + 2, plain.bytes - 2);
    tjFree(plain.data);
    return out;
}

static size_t exif_block(unsigned char *p, bool big_endian, int orientation) {
    static const unsigned char little[] = "Exif\0\0II*\0\x08\0\0\0\1\0\x12\1\3\0\1\0\0\0\0\0\0\0\0\0\0\0";
    static const unsigned char big[] = "Exif\0\0MM\0*\0\0\0\x08\0\1\1\x12\0\3\0\0\0\1\0\0\0\0\0\0\0\0";
    memcpy(p, big_endian ? big : little, sizeof big - 1);
    p[big_endian ? 25 : 24] = (unsigned char)orientation;
    return sizeof big - 1;
}

static bool is_red(const wok_image *image, int64_t x, int64_t y) {
    const uint8_t *p = image->pixels + 3 * (y * image->width + x);
    return p[0] > 200 && p[1] < 60 && p[2] < 60;
}

Test(image, B50_exif_orientation) {
    /* where the red corner comes to lie: x and y in the turned picture */
    static const struct {
        int w, h, x, y;
    } want[9] = {{0, 0, 0, 0},   {32, 16, 1, 1},  {32, 16, 30, 1}, {32, 16, 30, 14}, {32, 16, 1, 14},
                 {16, 32, 1, 1}, {16, 32, 14, 1}, {16, 32, 14, 30}, {16, 32, 1, 30}};
    for (int big = 0; big < 2; big++)
        for (int o = 1; o <= 8; o++) {
            unsigned char block[64];
            jpeg file = red_corner(block, exif_block(block, big, o));
            wok_image image;
            cr_assert_eq(decode(file.data, file.bytes, NULL, &image), WOK_OK, "%s", wok_ctx_error(ctx));
            cr_expect(image.width == want[o].w && image.height == want[o].h && image.orientation == o);
            cr_expect(is_red(&image, want[o].x, want[o].y), "orientation %d", o);
            wok_image_free(ctx, &image);
            wok_decode_options keep = {.size = sizeof keep, .keep_orientation = true};
            cr_assert_eq(decode(file.data, file.bytes, &keep, &image), WOK_OK);
            cr_expect(image.width == 32 && image.height == 16 && image.full_width == 32 && is_red(&image, 1, 1));
            cr_expect_eq(image.orientation, o);
            wok_image_free(ctx, &image);
            tjFree(file.data);
        }
}

Test(image, B50_broken_exif_is_ignored) {
    unsigned char whole[64], block[64];
    const size_t bytes = exif_block(whole, true, 6);
    for (size_t cut = 0; cut <= bytes; cut++)
        for (int damage = 0; damage < 6; damage++) {
            memcpy(block, whole, bytes);
            if (damage == 1) block[10] = 0xff;                      /* directory far outside */
            if (damage == 2) block[14] = 0xff;                      /* more entries than there are */
            if (damage == 3) block[19] = 4;                         /* another type */
            if (damage == 4) block[25] = 9;                         /* no such orientation */
            if (damage == 5) block[6] = 'I';                        /* two byte orders */
            jpeg file = red_corner(block, cut);
            wok_image image;
            cr_assert_eq(decode(file.data, file.bytes, NULL, &image), WOK_OK, "%s", wok_ctx_error(ctx));
            const bool whole_entry = damage == 0 && cut >= 28;
            if (damage != 2) cr_expect_eq(image.orientation, whole_entry ? 6 : 1, "cut %zu, damage %d", cut, damage);
            wok_image_free(ctx, &image);
            tjFree(file.data);
        }
}

Test(image, B51_cmyk_ycck_and_other_colour_spaces) {
    static const char *const forms[] = {"cmyk-adobe.jpg", "cmyk-no-marker.jpg", "rgb-transform0.jpg", "grey-77.jpg"};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) check_form(forms[i], 0);
    wok_image image = load(support_data("images/cmyk-adobe.jpg"));
    cr_expect(image.pixels[0] >= 254 && image.pixels[1] <= 1 && image.pixels[2] <= 1, "C 0 M 255 Y 255 K 0 is red");
    cr_expect(abs(image.pixels[3 * 24] - 127) <= 1 && abs(image.pixels[3 * 24 + 2] - 127) <= 1, "K 128 is grey");
    wok_image_free(ctx, &image);
    image = load(support_data("images/grey-77.jpg"));
    for (int i = 0; i < 3 * 256; i++) cr_assert_eq(image.pixels[i], 77);
    wok_image_free(ctx, &image);
    /* libjpeg-turbo writes YCCK; the values are inverted, as Adobe's: 255 is no ink */
    unsigned char pixels[16 * 16][4];
    for (int i = 0; i < 256; i++) memcpy(pixels[i], (unsigned char[]){255, 0, 0, 255}, 4);
    jpeg ycck = encode(pixels[0], 16, 16, TJPF_CMYK, TJSAMP_444, 0);
    cr_assert_eq(decode(ycck.data, ycck.bytes, NULL, &image), WOK_OK, "%s", wok_ctx_error(ctx));
    cr_expect(image.pixels[0] >= 253 && image.pixels[1] <= 2 && image.pixels[2] <= 2);
    wok_image_free(ctx, &image);
    tjFree(ycck.data);
}

Test(image, B52_pixels_of_every_sampling) {
    static const char *const forms[] = {"odd-444.jpg", "odd-422.jpg", "odd-420.jpg", "odd-restart.jpg", "odd-grey.jpg"};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) check_form(forms[i], i == 0 || i == 4 ? 1 : 2);
}

Test(image, B52_progressive_equals_baseline) {
    static const enum TJSAMP samplings[] = {TJSAMP_444, TJSAMP_422, TJSAMP_420, TJSAMP_440, TJSAMP_411, TJSAMP_GRAY};
    unsigned char pixels[47 * 33 * 3];
    for (size_t i = 0; i < sizeof pixels; i++) pixels[i] = (unsigned char)(i * i / 7 + i % 33 * 5);
    for (size_t i = 0; i < sizeof samplings / sizeof *samplings; i++) {
        jpeg baseline = encode(pixels, 33, 47, TJPF_RGB, samplings[i], 0), progressive = {NULL, 0};
        tjhandle tj = tjInitTransform();
        tjtransform same = {.op = TJXOP_NONE, .options = TJXOPT_PROGRESSIVE};
        cr_assert_eq(tjTransform(tj, baseline.data, baseline.bytes, 1, &progressive.data, &progressive.bytes, &same, 0),
                     0);
        tjDestroy(tj);
        wok_image a, b;
        cr_assert_eq(decode(baseline.data, baseline.bytes, NULL, &a), WOK_OK, "%s", wok_ctx_error(ctx));
        cr_assert_eq(decode(progressive.data, progressive.bytes, NULL, &b), WOK_OK, "%s", wok_ctx_error(ctx));
        cr_assert(a.width == 33 && a.height == 47 && b.width == 33 && b.height == 47);
        cr_expect_arr_eq(a.pixels, b.pixels, 3 * 33 * 47);
        wok_image_free(ctx, &a);
        wok_image_free(ctx, &b);
        tjFree(baseline.data);
        tjFree(progressive.data);
    }
}

/* ---- scaled decoding ------------------------------------------------------------------------------------------- */

Test(image, scaled_decoding_keeps_the_size_asked_for) {
    static const struct {
        int64_t w, h, want_w, want_h;
    } cases[] = {{0, 0, 161, 119}, {161, 119, 161, 119}, {80, 59, 81, 60}, {81, 60, 81, 60}, {82, 60, 161, 119},
                 {30, 30, 41, 30}, {20, 15, 21, 15},     {1, 1, 21, 15},   {1, 0, 161, 119}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wok_decode_options options = {.size = sizeof options, .fast_width = cases[i].w, .fast_height = cases[i].h};
        wok_image image;
        cr_assert_eq(wok_image_load(ctx, support_data("images/small-420.jpg"), &options, &image), WOK_OK);
        cr_expect(image.width == cases[i].want_w && image.height == cases[i].want_h, "%zu: %dx%d", i, (int)image.width,
                  (int)image.height);
        cr_expect(image.full_width == 161 && image.full_height == 119);
        wok_image_free(ctx, &image);
    }
    wok_decode_options turned = {.size = sizeof turned, .fast_width = 50, .fast_height = 80}; /* sides as turned */
    wok_image image;
    cr_assert_eq(wok_image_load(ctx, support_data("images/small-exif6.jpg"), &turned, &image), WOK_OK);
    cr_expect(image.width == 60 && image.height == 81 && image.full_width == 119 && image.full_height == 161);
    wok_image_free(ctx, &image);
}

/* ---- what must be refused -------------------------------------------------------------------------------------- */

static void refused(const void *data, size_t bytes, wok_status status, const char *word) {
    wok_image image;
    wok_status got = wok_image_decode(ctx, data, bytes, "it", NULL, &image);
    cr_expect(got == status, "%s instead of %s", wok_status_name(got), wok_status_name(status));
    cr_expect(strstr(wok_ctx_error(ctx), word), "'%s' lacks '%s'", wok_ctx_error(ctx), word);
    cr_expect(!image.pixels && !image.width);
}

Test(image, other_files_are_refused_by_name) {
    wok_image image;
    refused("", 0, WOK_ERR_FORMAT, "empty");
    refused("x", 1, WOK_ERR_UNSUPPORTED, "no picture");
    refused("GIF89a......", 12, WOK_ERR_UNSUPPORTED, "GIF");
    refused("RIFF....WEBPVP8 ", 16, WOK_ERR_UNSUPPORTED, "WebP");
    refused("BM..............", 16, WOK_ERR_UNSUPPORTED, "BMP");
    refused("\xff\xd8\xff", 3, WOK_ERR_FORMAT, "cut off");
    refused("\xff\xd8\xff\xd9", 4, WOK_ERR_FORMAT, "without a picture");
    refused("\x89PNG\r\n\x1a\n", 8, WOK_ERR_FORMAT, "cut off");
    cr_expect_eq(wok_image_load(ctx, "/nonexistent/cat.jpg", NULL, &image), WOK_ERR_IO);
    cr_expect(strstr(wok_ctx_error(ctx), "/nonexistent/cat.jpg"));
    cr_expect_eq(wok_image_load(ctx, WOK_TEST_DATA, NULL, &image), WOK_ERR_IO);
}

Test(image, limits_come_before_memory) {
    static const char *const names[] = {"images/small-420.jpg", "images/small-1bit.png"};
    for (int i = 0; i < 2; i++) {
        size_t bytes;
        unsigned char *data = read_file(support_data(names[i]), &bytes);
        wok_decode_options options = {.size = sizeof options, .max_pixels = 161 * 119};
        wok_image image;
        cr_assert_eq(decode(data, bytes, &options, &image), WOK_OK);
        wok_image_free(ctx, &image);
        options.max_pixels--;
        cr_expect_eq(decode(data, bytes, &options, &image), WOK_ERR_LIMIT);
        /* a header that claims the largest picture there can be */
        if (i == 0) {
            size_t at = 0;
            while (data[at] != 0xff || data[at + 1] != 0xc0) at++;
            memset(data + at + 5, 0xff, 4);
        } else {
            memcpy(data + 16, "\x7f\xff\xff\xff\x7f\xff\xff\xff\1\0\0\0\0\x56\x0d\x8c\xd2", 17);
        }
        cr_expect_neq(decode(data, bytes, NULL, &image), WOK_OK);
        size_t peak;
        wok_ctx_memory(ctx, &peak);
        cr_expect_lt(peak, held + (1 << 20));
    }
}

/* A cut file is an error, or for a PNG whose pixels were complete, the whole picture. */
static void cut_everywhere(const char *name) {
    size_t bytes;
    unsigned char *data = read_file(support_data(name), &bytes);
    wok_image whole, image;
    cr_assert_eq(decode(data, bytes, NULL, &whole), WOK_OK);
    int right = 0;
    for (size_t cut = 0; cut < bytes; cut++) {
        unsigned char *exact = malloc(cut + !cut); /* so that a sanitizer sees one byte too many */
        memcpy(exact, data, cut);
        if (decode(exact, cut, NULL, &image) == WOK_OK) {
            cr_assert_arr_eq(image.pixels, whole.pixels, whole.bytes, "%s cut at %zu", name, cut);
            wok_image_free(ctx, &image);
            right++;
        } else {
            cr_assert(!image.pixels && wok_ctx_error(ctx)[0]);
        }
        free(exact);
    }
    cr_expect_leq(right, 16, "%s: %d cuts pass", name, right);
    wok_image_free(ctx, &whole);
}

Test(image, cut_jpeg) { cut_everywhere("images/odd-420.jpg"); }
Test(image, cut_progressive_jpeg) { cut_everywhere("images/small-progressive.jpg"); }
Test(image, cut_cmyk_jpeg) { cut_everywhere("images/cmyk-adobe.jpg"); }
Test(image, cut_png) { cut_everywhere("images/palette-4.png"); }
Test(image, cut_interlaced_png) { cut_everywhere("images/rgb-8.png"); }

/* Damaged anywhere: a picture or a sentence, and nothing else. */
static void damage_everywhere(const char *name) {
    size_t bytes;
    unsigned char *data = read_file(support_data(name), &bytes);
    uint32_t state = 1;
    for (int round = 0; round < 1500; round++) {
        unsigned char *copy = malloc(bytes);
        memcpy(copy, data, bytes);
        for (int k = 0; k < 1 + round % 4; k++) {
            state = state * 1664525 + 1013904223;
            copy[(state >> 8) % bytes] = (unsigned char)(state >> 24);
        }
        wok_decode_options options = {.size = sizeof options, .max_pixels = 1 << 20};
        wok_image image;
        if (decode(copy, bytes, &options, &image) == WOK_OK) wok_image_free(ctx, &image);
        else cr_assert(wok_ctx_error(ctx)[0] && !image.pixels);
        free(copy);
    }
}

Test(image, damaged_jpeg) { damage_everywhere("images/odd-restart.jpg"); }
Test(image, damaged_progressive_jpeg) { damage_everywhere("images/small-progressive.jpg"); }
Test(image, damaged_exif_jpeg) { damage_everywhere("images/small-exif6.jpg"); }
Test(image, damaged_png) { damage_everywhere("images/exif6.png"); }

/* ---- memory ---------------------------------------------------------------------------------------------------- */

Test(image, failing_memory) {
    static const char *const names[] = {"images/small-exif6.jpg", "images/small-cmyk.jpg", "images/small-palette.png"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        support_heap heap = {0};
        wok_ctx *own = support_ctx(1, &heap);
        const long before = heap.blocks;
        wok_status status = WOK_ERR_MEMORY;
        for (long at = 1; status != WOK_OK; at++) {
            wok_image image;
            heap.calls = 0;
            heap.fail_at = at;
            status = wok_image_load(own, support_data(names[i]), NULL, &image);
            heap.fail_at = 0;
            cr_assert(status == WOK_OK || status == WOK_ERR_MEMORY, "%s", wok_ctx_error(own));
            if (status == WOK_OK) wok_image_free(own, &image);
            cr_assert_eq(heap.blocks, before, "allocation %ld", at);
            cr_assert_lt(at, 100);
        }
        cr_assert_gt(heap.failures, 2);
        wok_ctx_free(&own);
        cr_assert_eq(heap.blocks, 0);
    }
}

/* test_image_command.c - preprocess and classify of pictures from outside: arrays, JSON, exit statuses, nothing
 * half-written. */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include "json.h"
#include "support.h"
#include "wok_npy.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static wok_ctx *ctx;
static char folder[64], out[1 << 16], errors[4096];

static const char *in_folder(const char *name) {
    static char paths[4][128];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static void setup(void) {
    if (WOK_COMMAND[0] == 0) cr_skip_test("the wok command is not built");
    ctx = wok_ctx_create(NULL);
    strcpy(folder, "/tmp/wok-command-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
}

static void teardown(void) {
    static const char *const names[] = {"x.npy", "y.npy", "list", "cat.jpg", "out", "err"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) unlink(in_folder(names[i]));
    if (folder[0]) cr_assert_eq(rmdir(folder), 0, "the command left files behind");
    wok_ctx_free(&ctx);
}
TestSuite(image_command, .init = setup, .fini = teardown, .timeout = 300);

static void read_file(const char *name, char *text, size_t size) {
    FILE *file = fopen(in_folder(name), "rb");
    cr_assert_not_null(file);
    text[fread(text, 1, size - 1, file)] = 0;
    fclose(file);
}

/* Runs `wok ARGUMENTS` there; fills out and errors, returns the exit status. $I stands for tests/data/images, $D for
 * tests/data/digits. */
static int wok(const char *arguments) {
    char line[4096];
    snprintf(line, sizeof line, "cd '%s' && I='%s' D='%s' && '%s' %s </dev/null >out 2>err", folder,
             support_data("images"), support_data("digits"), WOK_COMMAND, arguments);
    int status = system(line);
    read_file("out", out, sizeof out);
    read_file("err", errors, sizeof errors);
    cr_assert(WIFEXITED(status), "%s: ended by a signal: %s", arguments, errors);
    return WEXITSTATUS(status);
}

static bool there(const char *name) {
    struct stat info;
    return stat(in_folder(name), &info) == 0;
}

/* A failure: this status, one sentence, nothing on stdout, no x.npy. */
static void fails(const char *arguments, int want, const char *word) {
    int status = wok(arguments);
    cr_expect_eq(status, want, "%s: status %d: %s", arguments, status, errors);
    cr_expect_str_eq(out, "", "%s wrote %s", arguments, out);
    const char *newline = strchr(errors, '\n');
    cr_expect(newline && newline[1] == 0 && !strncmp(errors, "wok: ", 5), "%s: <%s>", arguments, errors);
    cr_expect(strstr(errors, word), "%s: '%s' lacks '%s'", arguments, errors, word);
    cr_expect_not(there("x.npy"), "%s", arguments);
}

static wok_tensor runs(const char *arguments, const char *array) {
    cr_assert_eq(wok(arguments), 0, "%s: %s", arguments, errors);
    cr_expect_str_eq(errors, "");
    wok_tensor x = support_npy(ctx, in_folder(array));
    unlink(in_folder(array));
    return x;
}

static void has_shape(const wok_tensor *x, wok_dtype dtype, int64_t a, int64_t b, int64_t c) {
    cr_expect(x->dtype == dtype && x->rank == 3 && x->dims[0] == a && x->dims[1] == b && x->dims[2] == c,
              "%s [%d,%d,%d]", wok_dtype_name(x->dtype), (int)x->dims[0], (int)x->dims[1], (int)x->dims[2]);
}

/* ---- preprocess ------------------------------------------------------------------------------------------------ */

Test(image_command, preprocess_gives_the_bytes_of_pillow) {
    wok_tensor want = support_npy(ctx, support_data("images/resize-bicubic-50x40.npy"));
    wok_tensor x = runs("preprocess \"$I/small-palette.png\" --size 50x40 --interpolation bicubic --dtype u8 "
                        "--layout hwc -o x.npy",
                        "x.npy");
    has_shape(&x, WOK_U8, 50, 40, 3);
    cr_expect_arr_eq(x.data, want.data, want.bytes);
    wok_npy_free(ctx, &want);
    wok_npy_free(ctx, &x);
}

Test(image_command, preprocess_options_in_any_order) {
    wok_tensor x = runs("preprocess -o x.npy --resize 40 \"$I/small-420.jpg\" --crop=32", "x.npy");
    has_shape(&x, WOK_F32, 3, 32, 32);
    float most = 0;
    for (int i = 0; i < 3 * 32 * 32; i++) most = ((float *)x.data)[i] > most ? ((float *)x.data)[i] : most;
    cr_expect(most > 10 && most <= 255, "0..255 without a preset");
    wok_npy_free(ctx, &x);
    x = runs("preprocess \"$I/small-420.jpg\" --preset torchvision -o x.npy", "x.npy");
    has_shape(&x, WOK_F32, 3, 224, 224);
    wok_npy_free(ctx, &x);
    x = runs("preprocess \"$I/small-420.jpg\" --preset keras-tf --size 20x30 -o x.npy", "x.npy");
    has_shape(&x, WOK_F32, 20, 30, 3);
    for (int i = 0; i < 1800; i++) cr_assert_leq(fabs((double)((float *)x.data)[i]), 1 + 1e-6);
    wok_npy_free(ctx, &x);
    x = runs("preprocess \"$D/digit-3.png\" --model \"$D/resnet18-w16/float.onnx\" -o x.npy", "x.npy");
    has_shape(&x, WOK_F32, 3, 32, 32);
    wok_npy_free(ctx, &x);
}

Test(image_command, preprocess_orientation_and_fast_decoding) {
    wok_tensor x = runs("preprocess \"$I/small-exif6.jpg\" --dtype u8 --layout hwc -o x.npy", "x.npy");
    has_shape(&x, WOK_U8, 161, 119, 3);
    wok_tensor want = support_npy(ctx, support_data("images/small-exif6.jpg.rgb.npy"));
    for (size_t i = 0; i < want.bytes; i++)
        cr_assert_leq(abs(((uint8_t *)x.data)[i] - ((uint8_t *)want.data)[i]), 2);
    wok_npy_free(ctx, &x);
    wok_npy_free(ctx, &want);
    x = runs("preprocess \"$I/small-exif6.jpg\" --keep-orientation --dtype u8 -o x.npy", "x.npy");
    has_shape(&x, WOK_U8, 3, 119, 161);
    wok_npy_free(ctx, &x);
    x = runs("preprocess \"$I/small-420.jpg\" --resize 20 -o x.npy", "x.npy");
    wok_tensor fast = runs("preprocess \"$I/small-420.jpg\" --resize 20 --fast-decode -o y.npy", "y.npy");
    cr_expect(x.bytes == fast.bytes && memcmp(x.data, fast.data, x.bytes) != 0, "scaled decoding is opt-in");
    wok_npy_free(ctx, &fast);
    wok_tensor plain = runs("preprocess \"$I/small-420.jpg\" --resize 20 --no-antialias -o y.npy", "y.npy");
    cr_expect(memcmp(x.data, plain.data, x.bytes) != 0);
    wok_npy_free(ctx, &plain);
    wok_npy_free(ctx, &x);
}

Test(image_command, preprocess_json) {
    cr_assert_eq(wok("preprocess \"$I/small-420.jpg\" --size 8x9 -o x.npy --json"), 0, "%s", errors);
    cr_expect_str_eq(out, "{\"file\":\"x.npy\",\"dtype\":\"f32\",\"shape\":[3,8,9]}\n");
}

Test(image_command, preprocess_errors) {
    fails("preprocess", 2, "wants IMAGE");
    fails("preprocess \"$I/small-420.jpg\"", 2, "-o");
    fails("preprocess \"$I/small-420.jpg\" -o x.npy --size 0x5", 2, "--size");
    fails("preprocess \"$I/small-420.jpg\" -o x.npy --size 5x5 --resize 5", 2, "exclude");
    fails("preprocess \"$I/small-420.jpg\" -o x.npy --preset torchvision --model x", 2, "exclude");
    fails("preprocess \"$I/small-420.jpg\" -o x.npy --preset nope", 2, "torchvision");
    fails("preprocess \"$I/small-420.jpg\" -o x.npy --layout nchw", 2, "--layout");
    fails("preprocess \"$I/small-420.jpg\" -o x.npy --dtype f16", 2, "--dtype");
    fails("preprocess \"$I/small-420.jpg\" -o x.npy --interpolation lanczos", 2, "bicubic");
    fails("preprocess \"$I/small-420.jpg\" -o x.npy --model /no/such/model.onnx", 1, "preprocess.json");
    fails("preprocess /no/such/cat.jpg -o x.npy", 1, "/no/such/cat.jpg");
    fails("preprocess \"$I\" -o x.npy", 1, "images");
    fails("preprocess \"$I/resize-tall.npy\" -o x.npy", 1, "no picture");
    fails("preprocess \"$I/small-420.jpg\" -o /no/such/folder/x.npy", 1, "/no/such/folder");
    wok("preprocess --help");
    cr_expect(strstr(out, "--fast-decode"));
}

Test(image_command, preprocess_a_cut_picture) {
    char bytes[2000];
    FILE *from = fopen(support_data("images/small-420.jpg"), "rb"), *to = fopen(in_folder("cat.jpg"), "wb");
    cr_assert_eq(fread(bytes, 1, sizeof bytes, from), sizeof bytes);
    fwrite(bytes, 1, sizeof bytes, to);
    fclose(from);
    fclose(to);
    fails("preprocess cat.jpg -o x.npy", 1, "cut off");
}

/* ---- classify --------------------------------------------------------------------------------------------------- */

static void best_label(const wok_json *doc, wok_json_at result, const char *label) {
    double score = 0;
    cr_expect(wok_json_is(doc, wok_json_get(doc, result, "label"), label));
    cr_expect(wok_json_double(doc, wok_json_get(doc, result, "score"), &score) && score > 0.9 && score <= 1);
    cr_expect_eq(wok_json_count(doc, wok_json_get(doc, result, "top")), 5);
}

Test(image_command, classify_pictures) {
    cr_assert_eq(wok("classify \"$D/resnet18-w16/float.onnx\" --json \"$D/digit-7.png\" \"$D/digit-2.png\""), 0, "%s",
                 errors);
    wok_json *doc = NULL;
    cr_assert_eq(wok_json_parse(ctx, out, strlen(out), "stdout", &doc), WOK_OK, "%s", wok_ctx_error(ctx));
    wok_json_at results = wok_json_get(doc, wok_json_root(doc), "results"), first = wok_json_first(doc, results);
    cr_expect_eq(wok_json_count(doc, results), 2);
    best_label(doc, first, "7");
    best_label(doc, wok_json_next(doc, first), "2");
    wok_json_free(&doc);
    cr_assert_eq(wok("classify \"$D/mobilenetv2-w035/model.safetensors\" --arch mobilenet_v2 \"$D/digit-5.png\""), 0,
                 "%s", errors);
    cr_expect(strstr(out, "digit-5.png\n") && strstr(out, "%  5\n"), "%s", out);
}

Test(image_command, classify_lines_of_paths) {
    FILE *list = fopen(in_folder("list"), "wb");
    for (int i = 0; i < 10; i++) fprintf(list, "%s/digit-%d.png\n", support_data("digits"), i);
    fclose(list);
    cr_assert_eq(wok("classify \"$D/resnet18-w16/float.onnx\" --lines list --json"), 0, "%s", errors);
    const char *line = out;
    for (int i = 0; i < 10; i++, line = strchr(line, '\n') + 1) {
        char label[2] = {(char)('0' + i), 0};
        wok_json *doc = NULL;
        cr_assert_eq(wok_json_parse(ctx, line, strcspn(line, "\n"), "line", &doc), WOK_OK, "%s", wok_ctx_error(ctx));
        best_label(doc, wok_json_root(doc), label);
        wok_json_free(&doc);
    }
    cr_expect_eq(*line, 0);
}

Test(image_command, classify_errors) {
    fails("classify \"$D/resnet18-w16/float.onnx\"", 2, "one more argument");
    fails("classify \"$D/resnet18-w16/float.onnx\" /no/such/cat.jpg", 1, "/no/such/cat.jpg");
    fails("classify \"$D/resnet18-w16/float.onnx\" \"$D/digit-1.png\" /no/such/cat.jpg", 1, "/no/such/cat.jpg");
    fails("classify /no/such/model.onnx \"$D/digit-1.png\"", 1, "/no/such/model.onnx");
    fails("classify \"$D/resnet18-w16/float.onnx\" \"$D/digit-1.png\" --preset nope", 2, "torchvision");
    fails("classify \"$D/resnet18-w16/float.onnx\" \"$D/digit-1.png\" --labels /no/such/names", 1, "/no/such/names");
    fails("classify \"$D/resnet18-w16/model.safetensors\" \"$D/digit-1.png\"", 1, "architecture");
}

/* test_classifier.c - pictures through a model: digits, layouts, labels, preprocessing, what is refused. */
#define _POSIX_C_SOURCE 200809L /* mkdtemp */
#include "support.h"

#include "image/labels.h"
#include "wok_image.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static wok_ctx *ctx;
static size_t held;
static char folder[64];

static void setup(void) {
    ctx = wok_ctx_create(NULL);
    held = wok_ctx_memory(ctx, NULL);
    strcpy(folder, "/tmp/wok-classifier-XXXXXX");
    cr_assert(mkdtemp(folder));
}

static const char *in_folder(const char *name) {
    static char path[2][256];
    static int turn;
    snprintf(path[turn ^= 1], sizeof path[0], "%s/%s", folder, name);
    return path[turn];
}

static void teardown(void) {
    static const char *const names[] = {"m.onnx", "labels.json", "preprocess.json", "names.txt"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) unlink(in_folder(names[i]));
    rmdir(folder);
    cr_assert_eq(wok_ctx_memory(ctx, NULL), held, "something was not given back");
    wok_ctx_free(&ctx);
}

TestSuite(classifier, .init = setup, .fini = teardown);

static const char *put(const char *name, const char *text) {
    const char *path = in_folder(name);
    FILE *file = fopen(path, "wb");
    fputs(text, file);
    cr_assert_eq(fclose(file), 0);
    return path;
}

static wok_classifier *load(const char *path, const wok_classifier_options *options) {
    wok_classifier *c;
    cr_assert_eq(wok_classifier_load(ctx, path, options, &c), WOK_OK, "%s", wok_ctx_error(ctx));
    return c;
}

static size_t best(const float *scores, size_t n) {
    size_t at = 0;
    for (size_t i = 1; i < n; i++)
        if (scores[i] > scores[at]) at = i;
    return at;
}

/* ---- trained models -------------------------------------------------------------------------------------------- */

static void digits(const char *model, const char *arch) {
    wok_classifier_options options = {.size = sizeof options, .arch = arch};
    wok_classifier *c = load(support_data(model), &options);
    float scores[10];
    cr_assert_eq(wok_classifier_width(c), 10);
    for (int i = 0; i < 10; i++) {
        char name[32], digit[2] = {(char)('0' + i), 0};
        snprintf(name, sizeof name, "digits/digit-%d.png", i);
        cr_assert_eq(wok_classifier_run_file(c, support_data(name), scores), WOK_OK, "%s", wok_ctx_error(ctx));
        cr_expect_str_eq(wok_classifier_label(c, best(scores, 10)), digit, "%s", model);
        double sum = 0;
        for (int k = 0; k < 10; k++) sum += (double)scores[k];
        cr_expect(fabs(sum - 1) < 1e-5 && scores[i] > 0.9f, "logits become probabilities");
    }
    cr_expect_null(wok_classifier_label(c, 10));
    wok_classifier_free(&c);
    cr_assert_null(c);
    wok_classifier_free(&c);
}

Test(classifier, digits_by_onnx_files) {
    digits("digits/resnet18-w16/float.onnx", NULL);
    digits("digits/mobilenetv2-w035/float.onnx", NULL);
}

Test(classifier, digits_by_safetensors) {
    digits("digits/resnet18-w16/model.safetensors", "resnet18");
    digits("digits/mobilenetv2-w035/model.safetensors", "mobilenet_v2");
}

/* ---- a model that is easy to predict: the mean of each channel ------------------------------------------------- */

static const char *mean_model(const int64_t dims[4], int channel_axis, wok_dtype dtype) {
    wok_model *model;
    wok_model_new(ctx, "onnx", &model);
    wok_model_set_ir(model, 8, "test");
    wok_model_set_opset(model, "", 13);
    wok_value x = wok_graph_input(model, "pixels", dtype, 4, dims, NULL);
    wok_value y = wok_graph_op(model, "ReduceMean", "", "mean", &x, 1, "y");
    const int64_t axes[2] = {channel_axis == 1 ? 2 : 1, channel_axis == 1 ? 3 : 2};
    wok_node_set_ints(model, wok_graph_last(model), "axes", axes, 2);
    wok_node_set_int(model, wok_graph_last(model), "keepdims", 0);
    wok_graph_output(model, y);
    cr_assert_eq(wok_model_finish(model, NULL), WOK_OK, "%s", wok_ctx_error(ctx));
    cr_assert_eq(wok_model_save(model, in_folder("m.onnx")), WOK_OK, "%s", wok_ctx_error(ctx));
    wok_model_free(&model);
    return in_folder("m.onnx");
}

/* Scores for a picture of one colour. */
static void run_colour(wok_classifier *c, const uint8_t colour[3], int64_t width, int64_t height, float scores[3]) {
    uint8_t *pixels = malloc((size_t)(3 * width * height));
    for (int64_t i = 0; i < width * height; i++) memcpy(pixels + 3 * i, colour, 3);
    wok_image image = {.size = sizeof image, .width = width, .height = height, .pixels = pixels, .full_width = width,
                       .full_height = height};
    cr_assert_eq(wok_classifier_run(c, &image, scores), WOK_OK, "%s", wok_ctx_error(ctx));
    free(pixels);
}

Test(classifier, layout_is_the_models) {
    static const struct {
        int64_t dims[4];
        int channel_axis;
    } cases[] = {
        {{1, 3, 20, 30}, 1}, {{1, 20, 30, 3}, 3}, {{-1, 3, -1, -1}, 1}, {{-1, -1, -1, 3}, 3}, {{4, 3, 20, 30}, 1}};
    put("preprocess.json", "{\"scale\": 0.01, \"mean\": 1}");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wok_classifier *c = load(mean_model(cases[i].dims, cases[i].channel_axis, WOK_F32), NULL);
        float scores[3];
        double e[3] = {exp(2 - 1), exp(1 - 1), exp(0.5 - 1)}, sum = e[0] + e[1] + e[2];
        cr_assert_eq(wok_classifier_width(c), 3, "case %zu", i);
        cr_expect_null(wok_classifier_label(c, 0));
        run_colour(c, (uint8_t[]){200, 100, 50}, 33, 44, scores);
        for (int k = 0; k < 3; k++) cr_expect_float_eq(scores[k], (float)(e[k] / sum), 1e-5, "case %zu class %d", i, k);
        wok_classifier_free(&c);
        unlink(in_folder("m.onnx"));
    }
}

Test(classifier, probabilities_are_left_alone) {
    put("preprocess.json", "{}");
    wok_classifier *c = load(mean_model((int64_t[]){1, 3, 8, 8}, 1, WOK_F32), NULL);
    float scores[3];
    run_colour(c, (uint8_t[]){51, 102, 102}, 8, 8, scores); /* .2 .4 .4 */
    cr_expect_float_eq(scores[0], 0.2f, 1e-6);
    cr_expect_float_eq(scores[2], 0.4f, 1e-6);
    wok_classifier_free(&c);
}

/* Without preprocess.json: torchvision's way at the model's size. */
Test(classifier, usual_preprocessing) {
    wok_classifier *c = load(mean_model((int64_t[]){1, 3, 112, 112}, 1, WOK_F32), NULL);
    float scores[3];
    double e[3], sum = 0;
    const double mean[3] = {0.485, 0.456, 0.406}, std[3] = {0.229, 0.224, 0.225};
    run_colour(c, (uint8_t[]){120, 130, 90}, 300, 200, scores);
    for (int k = 0; k < 3; k++) sum += e[k] = exp(((double[]){120, 130, 90}[k] / 255 - mean[k]) / std[k]);
    for (int k = 0; k < 3; k++) cr_expect_float_eq(scores[k], (float)(e[k] / sum), 1e-5);
    wok_classifier_free(&c);
    wok_preprocess p;
    wok_preprocess_preset(ctx, "keras-tf", &p);
    p.height = p.width = 112;
    wok_classifier_options by_struct = {.size = sizeof by_struct, .preprocess = &p};
    wok_classifier_options by_name = {.size = sizeof by_name, .preset = "keras-tf"};
    for (int k = 0; k < 2; k++) { /* HWC in the preset, CHW in the model */
        c = load(in_folder("m.onnx"), k ? &by_name : &by_struct);
        run_colour(c, (uint8_t[]){255, 0, 0}, 5, 5, scores);
        cr_expect_float_eq(scores[0], (float)(exp(1) / (exp(1) + 2 * exp(-1))), 1e-5);
        wok_classifier_free(&c);
    }
    by_name.preset = "caffe7";
    cr_expect_eq(wok_classifier_load(ctx, in_folder("m.onnx"), &by_name, &c), WOK_ERR_ARGUMENT);
}

/* ---- labels ---------------------------------------------------------------------------------------------------- */

static wok_labels labels(const char *name, const char *text, wok_status want) {
    wok_labels l;
    cr_expect_eq(wok_labels_load(ctx, put(name, text), &l), want, "%s: %s", text, wok_ctx_error(ctx));
    return l;
}

Test(classifier, label_files) {
    wok_labels l = labels("labels.json", "[\"cat\", \"dog \\u00e9\", \"\"]", WOK_OK);
    cr_assert(l.count == 3 && !strcmp(l.names[1], "dog \xc3\xa9") && !strcmp(l.names[2], ""));
    wok_labels_free(&l);
    l = labels("labels.json", "{\"2\": \"c\", \"0\": \"a\"}", WOK_OK);
    cr_assert(l.count == 3 && !strcmp(l.names[0], "a") && !l.names[1] && !strcmp(l.names[2], "c"));
    wok_labels_free(&l);
    l = labels("names.txt", "one\r\ntwo\nthree", WOK_OK);
    cr_assert(l.count == 3 && !strcmp(l.names[0], "one") && !strcmp(l.names[1], "two") && !strcmp(l.names[2], "three"));
    wok_labels_free(&l);
    l = labels("names.txt", "a\n\nb\n", WOK_OK);
    cr_assert(l.count == 3 && !strcmp(l.names[1], "") && !strcmp(l.names[2], "b"));
    wok_labels_free(&l);
    l = labels("names.txt", "", WOK_OK);
    cr_assert_eq(l.count, 0);
    wok_labels_free(&l);
    static const char *const bad[] = {"[1]", "{\"a\": \"b\"}", "{\"-1\": \"b\"}", "{\"99999999999\": \"b\"}", "3",
                                      "[",   "{\"1x\": \"b\"}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        l = labels("labels.json", bad[i], WOK_ERR_FORMAT);
        cr_expect(l.count == 0 && !l.names);
    }
}

Test(classifier, labels_must_fit_the_model) {
    wok_classifier *c;
    const char *model = mean_model((int64_t[]){1, 3, 8, 8}, 1, WOK_F32);
    put("labels.json", "[\"r\", \"g\"]");
    cr_expect_eq(wok_classifier_load(ctx, model, NULL, &c), WOK_ERR_SHAPE);
    cr_expect(strstr(wok_ctx_error(ctx), "labels.json names 2 classes"), "%s", wok_ctx_error(ctx));
    wok_classifier_options options = {.size = sizeof options, .labels = put("names.txt", "r\ng\nb\n")};
    c = load(in_folder("m.onnx"), &options);
    cr_expect_str_eq(wok_classifier_label(c, 2), "b");
    wok_classifier_free(&c);
}

/* ---- what is refused ------------------------------------------------------------------------------------------- */

Test(classifier, models_that_classify_no_pictures) {
    static const struct {
        int64_t dims[4];
        wok_dtype dtype;
    } cases[] = {{{1, 1, 8, 8}, WOK_F32}, {{1, 4, 8, 5}, WOK_F32}};
    wok_classifier *c;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cr_expect_eq(wok_classifier_load(ctx, mean_model(cases[i].dims, 1, cases[i].dtype), NULL, &c),
                     WOK_ERR_UNSUPPORTED);
        cr_expect(strstr(wok_ctx_error(ctx), "does not classify pictures"));
        cr_expect_null(c);
        unlink(in_folder("m.onnx"));
    }
    cr_expect_eq(wok_classifier_load(ctx, in_folder("absent.onnx"), NULL, &c), WOK_ERR_IO);
    put("preprocess.json", "{\"resize\": \"large\"}");
    cr_expect_eq(wok_classifier_load(ctx, mean_model((int64_t[]){1, 3, 8, 8}, 1, WOK_F32), NULL, &c), WOK_ERR_FORMAT);
    put("preprocess.json", "{\"size\": 9}"); /* not the model's */
    cr_expect_neq(wok_classifier_load(ctx, in_folder("m.onnx"), NULL, &c), WOK_OK);
    put("preprocess.json", "{}");
    c = load(in_folder("m.onnx"), NULL);
    float scores[3];
    cr_expect_eq(wok_classifier_run_file(c, in_folder("absent.png"), scores), WOK_ERR_IO);
    cr_expect_eq(wok_classifier_run_file(c, in_folder("preprocess.json"), scores), WOK_ERR_UNSUPPORTED);
    cr_expect_eq(wok_classifier_run_file(c, support_data("digits/digit-1.png"), scores), WOK_OK, "still usable");
    wok_classifier_free(&c);
}

Test(classifier, failing_memory) {
    support_heap heap = {0};
    wok_ctx *own = support_ctx(1, &heap);
    const long before = heap.blocks;
    wok_status status = WOK_ERR_MEMORY;
    for (long at = 1; status != WOK_OK; at++) {
        wok_classifier *c = NULL;
        float scores[10];
        heap.calls = 0;
        heap.fail_at = at;
        status = wok_classifier_load(own, support_data("digits/mobilenetv2-w035/float.onnx"), NULL, &c);
        if (status == WOK_OK) status = wok_classifier_run_file(c, support_data("digits/digit-1.png"), scores);
        heap.fail_at = 0;
        cr_assert(status == WOK_OK || status == WOK_ERR_MEMORY, "allocation %ld: %s", at, wok_ctx_error(own));
        wok_classifier_free(&c);
        cr_assert_eq(heap.blocks, before, "allocation %ld", at);
        if (at > 60) at += at / 7; /* loading has its own test of every allocation */
    }
    wok_ctx_free(&own);
}

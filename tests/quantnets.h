/* quantnets.h - small models for tests of the quantiser, data for them, how near an answer is, and what was written.
 * Functions are static inline: a test uses what it needs. Define _GNU_SOURCE first. */
#ifndef QUANTNETS_H
#define QUANTNETS_H

#include "quant.h"
#include "support.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- building ----------------------------------------------------------------------------------------------------------- */

static wok_model *m;

static inline wok_value values(const char *name, int rank, const int64_t *dims, const float *data) {
    size_t count = 1;
    for (int i = 0; i < rank; i++) count *= (size_t)dims[i];
    return wok_graph_constant(m, name, WOK_F32, rank, dims, data, count * sizeof *data, WOK_DATA_COPY);
}

/* Random in [-scale, scale) + shift. */
static inline wok_value random_values(const char *name, int rank, const int64_t *dims, unsigned seed, float scale,
                                      float shift) {
    static float data[1 << 16];
    size_t count = 1;
    for (int i = 0; i < rank; i++) count *= (size_t)dims[i];
    cr_assert(count <= sizeof data / sizeof *data);
    support_random(data, count, seed);
    for (size_t i = 0; i < count; i++) data[i] = data[i] * scale + shift;
    return values(name, rank, dims, data);
}
#define DIMS(...)                                                                                                      \
    (int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]) {                               \
        __VA_ARGS__                                                                                                    \
    }

static inline wok_value op(const char *kind, const char *name, const wok_value *in, int count) {
    return wok_graph_op(m, kind, "", name, in, count, name);
}
#define OP(kind, name, ...)                                                                                            \
    op(kind, name, (const wok_value[]){__VA_ARGS__},                                                                   \
       (int)(sizeof((const wok_value[]){__VA_ARGS__}) / sizeof(wok_value)))

static inline wok_value conv(const char *name, wok_value x, wok_value w, wok_value b, int64_t kernel, int64_t group) {
    int64_t pad = kernel / 2;
    wok_value y = b < 0 ? OP("Conv", name, x, w) : OP("Conv", name, x, w, b);
    wok_node_set_ints(m, wok_graph_last(m), "kernel_shape", (int64_t[]){kernel, kernel}, 2);
    wok_node_set_ints(m, wok_graph_last(m), "pads", (int64_t[]){pad, pad, pad, pad}, 4);
    wok_node_set_int(m, wok_graph_last(m), "group", group);
    return y;
}

static inline wok_value batch_norm(const char *name, wok_value x, int64_t channels, unsigned seed) {
    char text[4][32];
    static const char *const parts[] = {"scale", "bias", "mean", "var"};
    wok_value in[5] = {x};
    for (int i = 0; i < 4; i++) {
        snprintf(text[i], sizeof text[i], "%s.%s", name, parts[i]);
        bool positive = i == 0 || i == 3;
        in[i + 1] = random_values(text[i], DIMS(channels), seed + (unsigned)i, 0.3f, positive ? 0.8f : 0.1f);
    }
    return op("BatchNormalization", name, in, 5);
}

static inline wok_value clip(const char *name, wok_value x, float top) {
    char text[2][32];
    snprintf(text[0], sizeof text[0], "%s.lo", name);
    snprintf(text[1], sizeof text[1], "%s.hi", name);
    wok_value lo = wok_graph_constant(m, text[0], WOK_F32, 0, NULL, &(float){0}, 4, WOK_DATA_COPY);
    wok_value hi = wok_graph_constant(m, text[1], WOK_F32, 0, NULL, &top, 4, WOK_DATA_COPY);
    return OP("Clip", name, x, lo, hi);
}

static inline wok_value linear(const char *name, wok_value x, int64_t in, int64_t out, unsigned seed) {
    char w[32], b[32], product[32];
    snprintf(w, sizeof w, "%s.w", name);
    snprintf(b, sizeof b, "%s.b", name);
    snprintf(product, sizeof product, "%s.product", name);
    wok_value y = OP("MatMul", product, x, random_values(w, DIMS(in, out), seed, 0.3f, 0));
    return OP("Add", name, y, random_values(b, DIMS(out), seed + 1, 0.2f, 0));
}

static inline wok_value layer_norm(const char *name, wok_value x, int64_t width, unsigned seed) {
    char s[32], b[32];
    snprintf(s, sizeof s, "%s.s", name);
    snprintf(b, sizeof b, "%s.b", name);
    wok_value y = OP("LayerNormalization", name, x, random_values(s, DIMS(width), seed, 0.5f, 1),
                     random_values(b, DIMS(width), seed + 1, 0.3f, 0));
    wok_node_set_int(m, wok_graph_last(m), "axis", -1);
    return y;
}

enum { SIDE = 12, CLASSES = 5, WIDTH = 32, ROWS = 600, LENGTH = 7 };

/* Convolutions with batch normalisation, a depthwise one under Clip, a residual sum, pools, a classifier. */
static inline void build_cnn(void) {
    wok_value x = wok_graph_input(m, "x", WOK_F32, 4, (int64_t[]){-1, 3, SIDE, SIDE}, (const char *[]){"n", 0, 0, 0});
    wok_value a = conv("c1", x, random_values("c1.w", DIMS(8, 3, 3, 3), 1, 0.4f, 0), WOK_ABSENT, 3, 1);
    a = OP("Relu", "r1", batch_norm("n1", a, 8, 10));
    wok_value b = conv("c2", a, random_values("c2.w", DIMS(8, 1, 3, 3), 2, 0.5f, 0), WOK_ABSENT, 3, 8);
    b = clip("r2", batch_norm("n2", b, 8, 20), 6);
    b = conv("c3", b, random_values("c3.w", DIMS(8, 8, 1, 1), 3, 0.4f, 0), random_values("c3.b", DIMS(8), 4, 0.2f, 0),
             1, 1);
    wok_value sum = OP("Relu", "r3", OP("Add", "sum", b, a));
    wok_value p = OP("MaxPool", "pool", sum);
    wok_node_set_ints(m, wok_graph_last(m), "kernel_shape", (int64_t[]){2, 2}, 2);
    wok_node_set_ints(m, wok_graph_last(m), "strides", (int64_t[]){2, 2}, 2);
    p = conv("c4", p, random_values("c4.w", DIMS(16, 8, 1, 1), 5, 0.4f, 0), random_values("c4.b", DIMS(16), 6, 0.2f, 0),
             1, 1);
    p = OP("Flatten", "flat", OP("GlobalAveragePool", "mean", OP("Relu", "r4", p)));
    wok_value y = OP("Gemm", "fc", p, random_values("fc.w", DIMS(CLASSES, 16), 7, 0.4f, 0),
                     random_values("fc.b", DIMS(CLASSES), 8, 0.2f, 0));
    wok_node_set_int(m, wok_graph_last(m), "transB", 1);
    wok_graph_declare(m, y, WOK_F32, 2, (int64_t[]){-1, CLASSES}, (const char *[]){"n", NULL});
    wok_graph_output(m, y);
}

/* A table, a normalisation that feeds two products and a residual path, one that feeds products only, Gemm at the end. */
static inline void build_encoder(void) {
    wok_value ids = wok_graph_input(m, "ids", WOK_I64, 2, (int64_t[]){-1, -1}, (const char *[]){"n", "s"});
    wok_value x = OP("Gather", "rows", random_values("table", DIMS(ROWS, WIDTH), 31, 1, 0), ids);
    wok_value h = layer_norm("norm1", x, WIDTH, 32);
    wok_value p = linear("query", h, WIDTH, WIDTH, 34), q = linear("value", h, WIDTH, WIDTH, 36);
    wok_value sum = OP("Add", "residual", OP("Mul", "product", p, OP("Tanh", "gate", q)), h);
    h = layer_norm("norm2", sum, WIDTH, 38);
    h = OP("Relu", "inner_relu", linear("inner", h, WIDTH, 2 * WIDTH, 40));
    h = linear("outer", h, 2 * WIDTH, WIDTH, 42);
    wok_value first = wok_graph_constant(m, "zero", WOK_I64, 0, NULL, &(int64_t){0}, 8, WOK_DATA_COPY);
    h = OP("Gather", "first", h, first);
    wok_node_set_int(m, wok_graph_last(m), "axis", 1);
    wok_graph_output(m, OP("Gemm", "logits", h, random_values("logits.w", DIMS(WIDTH, CLASSES), 44, 0.4f, 0),
                           random_values("logits.b", DIMS(CLASSES), 45, 0.2f, 0)));
}

static inline wok_model *make(wok_ctx *ctx, int64_t opset, void (*build)(void)) {
    if (wok_model_new(ctx, "test", &m) != WOK_OK) return NULL;
    wok_model_set_opset(m, "", opset);
    wok_model_set_opset(m, "com.microsoft", 1);
    build();
    if (wok_model_finish(m, NULL) != WOK_OK) wok_model_free(&m);
    return m;
}

/* ---- data ------------------------------------------------------------------------------------------------------------------ */

enum { SAMPLES = 6, BATCH = 4, PIXELS = 3 * SIDE * SIDE };
static float pictures[SAMPLES][BATCH * PIXELS];
static int64_t sentences[SAMPLES][BATCH * LENGTH];

static inline void fill(void) {
    support_random(&pictures[0][0], SAMPLES * BATCH * PIXELS, 99);
    for (int i = 0; i < SAMPLES; i++)
        for (int k = 0; k < BATCH * LENGTH; k++) sentences[i][k] = (i * 131 + k * 37) % ROWS;
}

static inline wok_status picture(void *user, int64_t index, wok_tensor *inputs) {
    (void)user;
    inputs[0] = (wok_tensor){.size = sizeof *inputs,
                             .dtype = WOK_F32,
                             .rank = 4,
                             .dims = {BATCH, 3, SIDE, SIDE},
                             .data = pictures[index],
                             .bytes = sizeof pictures[0]};
    return WOK_OK;
}

static inline wok_status sentence(void *user, int64_t index, wok_tensor *inputs) {
    (void)user;
    inputs[0] = (wok_tensor){.size = sizeof *inputs,
                             .dtype = WOK_I64,
                             .rank = 2,
                             .dims = {BATCH, LENGTH},
                             .data = sentences[index],
                             .bytes = sizeof sentences[0]};
    return WOK_OK;
}

static inline wok_quant_options for_cnn(void) {
    return (wok_quant_options){.size = sizeof(wok_quant_options),
                               .mode = WOK_QUANT_STATIC,
                               .samples = SAMPLES,
                               .sample = picture,
                               .max_loss = -1};
}
static inline wok_quant_options for_encoder(wok_quant_mode mode) {
    return (wok_quant_options){
        .size = sizeof(wok_quant_options), .mode = mode, .samples = SAMPLES, .sample = sentence, .max_loss = -1};
}

enum { MOST_ANSWERS = 1 << 15 };

/* The model's first output on every sample; `out` takes MOST_ANSWERS. */
static inline size_t answers(wok_ctx *ctx, wok_model *model, wok_status (*sample)(void *, int64_t, wok_tensor *),
                             float *out) {
    wok_session *session = NULL;
    size_t count = 0;
    cr_assert_eq(wok_session_create(model, NULL, &session), WOK_OK, "%s", wok_ctx_error(ctx));
    for (int i = 0; i < SAMPLES; i++) {
        wok_tensor t;
        sample(NULL, i, &t);
        cr_assert_eq(wok_session_set_input(session, 0, t.dtype, t.dims, t.rank, t.data, t.bytes), WOK_OK);
        cr_assert_eq(wok_session_run(session), WOK_OK, "%s", wok_session_error(session));
        const wok_tensor *y = wok_session_output(session, 0);
        cr_assert_leq(count + y->bytes / sizeof *out, (size_t)MOST_ANSWERS);
        memcpy(out + count, y->data, y->bytes);
        count += y->bytes / sizeof *out;
    }
    wok_session_free(&session);
    return count;
}

static inline double decibels(const float *want, const float *got, size_t count) {
    double signal = 0, noise = 0;
    for (size_t i = 0; i < count; i++) {
        signal += (double)want[i] * (double)want[i];
        noise += ((double)want[i] - (double)got[i]) * ((double)want[i] - (double)got[i]);
    }
    return noise == 0 ? 999 : 10 * log10(signal / noise);
}

/* Signal to noise of `model` against the float one. */
static inline double quality(wok_ctx *ctx, wok_model *model, wok_model *as_float,
                             wok_status (*sample)(void *, int64_t, wok_tensor *)) {
    static float want[MOST_ANSWERS], got[MOST_ANSWERS];
    size_t count = answers(ctx, as_float, sample, want);
    cr_assert_eq(answers(ctx, model, sample, got), count);
    return decibels(want, got, count);
}

/* ---- looking at what was written ------------------------------------------------------------------------------------------- */

static inline int count_ops(const wok_model *model, const char *kind) {
    int count = 0;
    for (int n = 0; n < wok_graph_node_count(model); n++) count += !strcmp(wok_graph_node_at(model, n).op_type, kind);
    return count;
}

static inline wok_node_view producer(const wok_model *model, wok_value v) {
    for (int n = 0; n < wok_graph_node_count(model); n++) {
        wok_node_view node = wok_graph_node_at(model, n);
        for (int i = 0; i < node.output_count; i++)
            if (node.outputs[i] == v) return node;
    }
    return (wok_node_view){.op_type = "", .name = ""};
}

static inline wok_node_view named(const wok_model *model, const char *name) {
    for (int n = 0; n < wok_graph_node_count(model); n++)
        if (!strcmp(wok_graph_node_at(model, n).name, name)) return wok_graph_node_at(model, n);
    cr_assert_fail("no node is called %s", name);
    return (wok_node_view){0};
}

/* The QuantizeLinear behind whose DequantizeLinear input i of the node stands; fails the test if there is none. */
static inline wok_node_view quantiser(const wok_model *model, const char *name, int i) {
    wok_node_view dq = producer(model, named(model, name).inputs[i]);
    cr_assert_str_eq(dq.op_type, "DequantizeLinear", "input %d of %s is made by '%s'", i, name, dq.op_type);
    wok_node_view q = producer(model, dq.inputs[0]);
    cr_assert_str_eq(q.op_type, "QuantizeLinear");
    cr_assert_eq(q.inputs[1], dq.inputs[1]);
    cr_assert_eq(q.inputs[2], dq.inputs[2]);
    return q;
}

static inline float scale_of(const wok_model *model, const char *name, int i) {
    float scale;
    memcpy(&scale, wok_graph_value_at(model, quantiser(model, name, i).inputs[1]).data, sizeof scale);
    return scale;
}

static inline int zero_of(const wok_model *model, const char *name, int i) {
    wok_value_view v = wok_graph_value_at(model, quantiser(model, name, i).inputs[2]);
    return v.dtype == WOK_I8 ? *(const int8_t *)v.data : *(const uint8_t *)v.data;
}

static inline const wok_quant_layer *layer(const wok_quant_report *report, const char *name) {
    for (int i = 0; wok_quant_report_layer(report, i); i++)
        if (!strcmp(wok_quant_report_layer(report, i)->name, name)) return wok_quant_report_layer(report, i);
    cr_assert_fail("no layer is called %s", name);
    return NULL;
}

/* ---- one of each, made once a test ------------------------------------------------------------------------------------------- */

typedef struct bench {
    wok_ctx *ctx;
    wok_model *model, *small;
    wok_quant_report *report;
} bench;

static inline bench start(int64_t opset, void (*build)(void)) {
    bench b = {.ctx = support_ctx(1, NULL)};
    fill();
    b.model = make(b.ctx, opset, build);
    cr_assert(b.model, "%s", wok_ctx_error(b.ctx));
    return b;
}

static inline void quantise(bench *b, const wok_quant_options *options) {
    wok_quant_report_free(&b->report);
    wok_model_free(&b->small);
    wok_status status = wok_quantize(b->model, options, &b->small, &b->report);
    cr_assert_eq(status, WOK_OK, "%s", wok_ctx_error(b->ctx));
    cr_assert(b->small && b->report);
}

static inline void finish(bench *b) {
    wok_quant_report_free(&b->report);
    wok_model_free(&b->small);
    wok_model_free(&b->model);
    wok_ctx_free(&b->ctx);
}

#endif

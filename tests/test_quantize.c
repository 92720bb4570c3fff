/* test_quantize.c - the quantiser: what it writes, how near that is to the float model, what leaves the float function as it
 * is, equal bytes, bad input, no memory. Small models built here; trained ones are quantized_models.py's. */
#define _GNU_SOURCE
#include "quant.h"
#include "support.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- building ----------------------------------------------------------------------------------------------------------- */

static wok_model *m;

static wok_value values(const char *name, int rank, const int64_t *dims, const float *data) {
    size_t count = 1;
    for (int i = 0; i < rank; i++) count *= (size_t)dims[i];
    return wok_graph_constant(m, name, WOK_F32, rank, dims, data, count * sizeof *data, WOK_DATA_COPY);
}

/* Random in [-scale, scale) + shift. */
static wok_value random_values(const char *name, int rank, const int64_t *dims, unsigned seed, float scale,
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

static wok_value op(const char *kind, const char *name, const wok_value *in, int count) {
    return wok_graph_op(m, kind, "", name, in, count, name);
}
#define OP(kind, name, ...)                                                                                            \
    op(kind, name, (const wok_value[]){__VA_ARGS__},                                                                   \
       (int)(sizeof((const wok_value[]){__VA_ARGS__}) / sizeof(wok_value)))

static wok_value conv(const char *name, wok_value x, wok_value w, wok_value b, int64_t kernel, int64_t group) {
    int64_t pad = kernel / 2;
    wok_value y = b < 0 ? OP("Conv", name, x, w) : OP("Conv", name, x, w, b);
    wok_node_set_ints(m, wok_graph_last(m), "kernel_shape", (int64_t[]){kernel, kernel}, 2);
    wok_node_set_ints(m, wok_graph_last(m), "pads", (int64_t[]){pad, pad, pad, pad}, 4);
    wok_node_set_int(m, wok_graph_last(m), "group", group);
    return y;
}

static wok_value batch_norm(const char *name, wok_value x, int64_t channels, unsigned seed) {
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

static wok_value clip(const char *name, wok_value x, float top) {
    char text[2][32];
    snprintf(text[0], sizeof text[0], "%s.lo", name);
    snprintf(text[1], sizeof text[1], "%s.hi", name);
    wok_value lo = wok_graph_constant(m, text[0], WOK_F32, 0, NULL, &(float){0}, 4, WOK_DATA_COPY);
    wok_value hi = wok_graph_constant(m, text[1], WOK_F32, 0, NULL, &top, 4, WOK_DATA_COPY);
    return OP("Clip", name, x, lo, hi);
}

static wok_value linear(const char *name, wok_value x, int64_t in, int64_t out, unsigned seed) {
    char w[32], b[32], product[32];
    snprintf(w, sizeof w, "%s.w", name);
    snprintf(b, sizeof b, "%s.b", name);
    snprintf(product, sizeof product, "%s.product", name);
    wok_value y = OP("MatMul", product, x, random_values(w, DIMS(in, out), seed, 0.3f, 0));
    return OP("Add", name, y, random_values(b, DIMS(out), seed + 1, 0.2f, 0));
}

static wok_value layer_norm(const char *name, wok_value x, int64_t width, unsigned seed) {
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
static void build_cnn(void) {
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
static void build_encoder(void) {
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

static wok_model *make(wok_ctx *ctx, int64_t opset, void (*build)(void)) {
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

static void fill(void) {
    support_random(&pictures[0][0], SAMPLES * BATCH * PIXELS, 99);
    for (int i = 0; i < SAMPLES; i++)
        for (int k = 0; k < BATCH * LENGTH; k++) sentences[i][k] = (i * 131 + k * 37) % ROWS;
}

static wok_status picture(void *user, int64_t index, wok_tensor *inputs) {
    (void)user;
    inputs[0] = (wok_tensor){.size = sizeof *inputs,
                             .dtype = WOK_F32,
                             .rank = 4,
                             .dims = {BATCH, 3, SIDE, SIDE},
                             .data = pictures[index],
                             .bytes = sizeof pictures[0]};
    return WOK_OK;
}

static wok_status sentence(void *user, int64_t index, wok_tensor *inputs) {
    (void)user;
    inputs[0] = (wok_tensor){.size = sizeof *inputs,
                             .dtype = WOK_I64,
                             .rank = 2,
                             .dims = {BATCH, LENGTH},
                             .data = sentences[index],
                             .bytes = sizeof sentences[0]};
    return WOK_OK;
}

static wok_quant_options for_cnn(void) {
    return (wok_quant_options){.size = sizeof(wok_quant_options),
                               .mode = WOK_QUANT_STATIC,
                               .samples = SAMPLES,
                               .sample = picture,
                               .max_loss = -1};
}
static wok_quant_options for_encoder(wok_quant_mode mode) {
    return (wok_quant_options){
        .size = sizeof(wok_quant_options), .mode = mode, .samples = SAMPLES, .sample = sentence, .max_loss = -1};
}

enum { MOST_ANSWERS = 1 << 15 };

/* The model's first output on every sample; `out` takes MOST_ANSWERS. */
static size_t answers(wok_ctx *ctx, wok_model *model, wok_status (*sample)(void *, int64_t, wok_tensor *), float *out) {
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

static double decibels(const float *want, const float *got, size_t count) {
    double signal = 0, noise = 0;
    for (size_t i = 0; i < count; i++) {
        signal += (double)want[i] * (double)want[i];
        noise += ((double)want[i] - (double)got[i]) * ((double)want[i] - (double)got[i]);
    }
    return noise == 0 ? 999 : 10 * log10(signal / noise);
}

/* Signal to noise of `model` against the float one. */
static double quality(wok_ctx *ctx, wok_model *model, wok_model *as_float,
                      wok_status (*sample)(void *, int64_t, wok_tensor *)) {
    static float want[MOST_ANSWERS], got[MOST_ANSWERS];
    size_t count = answers(ctx, as_float, sample, want);
    cr_assert_eq(answers(ctx, model, sample, got), count);
    return decibels(want, got, count);
}

/* ---- looking at what was written ------------------------------------------------------------------------------------------- */

static int count_ops(const wok_model *model, const char *kind) {
    int count = 0;
    for (int n = 0; n < wok_graph_node_count(model); n++) count += !strcmp(wok_graph_node_at(model, n).op_type, kind);
    return count;
}

static wok_node_view producer(const wok_model *model, wok_value v) {
    for (int n = 0; n < wok_graph_node_count(model); n++) {
        wok_node_view node = wok_graph_node_at(model, n);
        for (int i = 0; i < node.output_count; i++)
            if (node.outputs[i] == v) return node;
    }
    return (wok_node_view){.op_type = "", .name = ""};
}

static wok_node_view named(const wok_model *model, const char *name) {
    for (int n = 0; n < wok_graph_node_count(model); n++)
        if (!strcmp(wok_graph_node_at(model, n).name, name)) return wok_graph_node_at(model, n);
    cr_assert_fail("no node is called %s", name);
    return (wok_node_view){0};
}

/* The QuantizeLinear behind whose DequantizeLinear input i of the node stands; fails the test if there is none. */
static wok_node_view quantiser(const wok_model *model, const char *name, int i) {
    wok_node_view dq = producer(model, named(model, name).inputs[i]);
    cr_assert_str_eq(dq.op_type, "DequantizeLinear", "input %d of %s is made by '%s'", i, name, dq.op_type);
    wok_node_view q = producer(model, dq.inputs[0]);
    cr_assert_str_eq(q.op_type, "QuantizeLinear");
    cr_assert_eq(q.inputs[1], dq.inputs[1]);
    cr_assert_eq(q.inputs[2], dq.inputs[2]);
    return q;
}

static float scale_of(const wok_model *model, const char *name, int i) {
    float scale;
    memcpy(&scale, wok_graph_value_at(model, quantiser(model, name, i).inputs[1]).data, sizeof scale);
    return scale;
}

static int zero_of(const wok_model *model, const char *name, int i) {
    wok_value_view v = wok_graph_value_at(model, quantiser(model, name, i).inputs[2]);
    return v.dtype == WOK_I8 ? *(const int8_t *)v.data : *(const uint8_t *)v.data;
}

static const wok_quant_layer *layer(const wok_quant_report *report, const char *name) {
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

static bench start(int64_t opset, void (*build)(void)) {
    bench b = {.ctx = support_ctx(1, NULL)};
    fill();
    b.model = make(b.ctx, opset, build);
    cr_assert(b.model, "%s", wok_ctx_error(b.ctx));
    return b;
}

static void quantise(bench *b, const wok_quant_options *options) {
    wok_quant_report_free(&b->report);
    wok_model_free(&b->small);
    wok_status status = wok_quantize(b->model, options, &b->small, &b->report);
    cr_assert_eq(status, WOK_OK, "%s", wok_ctx_error(b->ctx));
    cr_assert(b->small && b->report);
}

static void finish(bench *b) {
    wok_quant_report_free(&b->report);
    wok_model_free(&b->small);
    wok_model_free(&b->model);
    wok_ctx_free(&b->ctx);
}

/* ---- dynamic --------------------------------------------------------------------------------------------------------------- */

Test(dynamic, products_and_tables_become_integers) {
    bench b = start(17, build_encoder);
    wok_quant_options o = for_encoder(WOK_QUANT_DYNAMIC);
    quantise(&b, &o);
    cr_assert_eq(count_ops(b.small, "MatMulInteger"), 5, "four MatMul and one Gemm");
    cr_assert_eq(count_ops(b.small, "MatMul") + count_ops(b.small, "Gemm"), 0);
    cr_assert_eq(count_ops(b.small, "DynamicQuantizeLinear"), 4, "query and value read the same tensor");
    cr_assert_str_eq(wok_model_metadata(b.small, "wok.dynamic"), "per_row");
    wok_node_view product = named(b.small, "query.product/MatMulInteger");
    wok_value_view codes = wok_graph_value_at(b.small, product.inputs[1]);
    cr_assert(codes.dtype == WOK_I8 && codes.rank == 2 && codes.dims[0] == WIDTH && codes.dims[1] == WIDTH);
    double db = quality(b.ctx, b.small, b.model, sentence);
    cr_assert_gt(db, 30, "%f dB", db);
    const wok_quant_summary *all = wok_quant_report_summary(b.report);
    cr_assert(all->layers == 6 && all->quantised == 6, "%d of %d", all->quantised, all->layers);
    cr_assert_lt(fabs(all->snr_db - db), 0.01, "the report says %f dB, it is %f", all->snr_db, db);
    cr_assert_gt(layer(b.report, "inner.product")->snr_db, 30);
    cr_assert(layer(b.report, "rows")->bytes_before == ROWS * WIDTH * 4 &&
              layer(b.report, "rows")->bytes_after == ROWS * (WIDTH + 4));
    cr_assert_lt(all->bytes_after, all->bytes_before / 3);
    finish(&b);
}

Test(dynamic, needs_no_data) {
    bench b = start(17, build_encoder);
    quantise(&b, NULL);
    cr_assert_gt(quality(b.ctx, b.small, b.model, sentence), 30);
    cr_assert(isnan(wok_quant_report_summary(b.report)->snr_db));
    cr_assert(isnan(layer(b.report, "inner.product")->snr_db));
    finish(&b);
}

static void transposed_products(void) {
    wok_value x = wok_graph_input(m, "ids", WOK_I64, 2, (int64_t[]){BATCH, LENGTH}, NULL);
    x = OP("Cast", "cast", x);
    wok_node_set_int(m, wok_graph_last(m), "to", WOK_F32);
    wok_value w = random_values("w", DIMS(9, LENGTH), 50, 1, 0);
    wok_value y = wok_graph_op(m, "FusedMatMul", "com.microsoft", "fused", (wok_value[]){x, w}, 2, "fused");
    wok_node_set_int(m, wok_graph_last(m), "transB", 1);
    wok_value z = OP("Gemm", "gemm", x, w, random_values("b", DIMS(9), 51, 1, 0));
    wok_node_set_int(m, wok_graph_last(m), "transB", 1);
    wok_graph_output(m, OP("Add", "both", y, z));
}

Test(dynamic, transposed_weights_are_turned_and_shared) {
    bench b = start(17, transposed_products);
    quantise(&b, NULL);
    wok_node_view one = named(b.small, "fused/MatMulInteger"), two = named(b.small, "gemm/MatMulInteger");
    cr_assert_eq(one.inputs[1], two.inputs[1], "equal weights are written once");
    cr_assert_eq(wok_graph_value_at(b.small, one.inputs[1]).dims[0], LENGTH);
    cr_assert_gt(quality(b.ctx, b.small, b.model, sentence), 35);
    wok_quant_options o = for_encoder(WOK_QUANT_STATIC);
    quantise(&b, &o);
    cr_assert_gt(quality(b.ctx, b.small, b.model, sentence), 35);
    finish(&b);
}

static void table_only(void) {
    wok_value ids = wok_graph_input(m, "ids", WOK_I64, 2, (int64_t[]){-1, -1}, NULL);
    wok_graph_output(m, OP("Gather", "rows", random_values("table", DIMS(ROWS, WIDTH), 31, 1, 0), ids));
}

Test(dynamic, tables_in_8_and_4_bits) {
    bench b = start(11, table_only);
    static float want[MOST_ANSWERS], got[MOST_ANSWERS];
    size_t count = answers(b.ctx, b.model, sentence, want);
    quantise(&b, NULL);
    answers(b.ctx, b.small, sentence, got);
    for (size_t i = 0; i < count; i++)
        cr_assert_lt(fabsf(want[i] - got[i]), 0.501f / 127, "half a step of a row below 1");
    wok_quant_options o = {.size = sizeof o, .tables = WOK_QUANT_TABLE_INT4};
    quantise(&b, &o);
    answers(b.ctx, b.small, sentence, got);
    for (size_t i = 0; i < count; i++) cr_assert_lt(fabsf(want[i] - got[i]), 0.25f);
    cr_assert_gt(decibels(want, got, count), 19, "%f", decibels(want, got, count));
    cr_assert_eq(layer(b.report, "rows")->bytes_after, ROWS * (WIDTH / 2 + 4));
    o.tables = WOK_QUANT_TABLE_KEEP;
    wok_model *none = NULL;
    cr_assert_eq(wok_quantize(b.model, &o, &none, NULL), WOK_ERR_UNSUPPORTED);
    finish(&b);
}

/* ---- static ---------------------------------------------------------------------------------------------------------------- */

Test(form, pairs_stand_where_kernels_read) {
    bench b = start(17, build_cnn);
    wok_quant_options o = for_cnn();
    quantise(&b, &o);
    cr_assert_eq(count_ops(b.small, "BatchNormalization"), 0);
    cr_assert_eq(wok_quant_report_summary(b.report)->folded, 2);
    /* behind the activation only, and not between the convolution and the sum */
    cr_assert_str_eq(producer(b.small, named(b.small, "r1").inputs[0]).op_type, "Conv");
    cr_assert_str_eq(producer(b.small, named(b.small, "r2").inputs[0]).op_type, "Conv");
    cr_assert_str_eq(producer(b.small, named(b.small, "sum").inputs[0]).op_type, "Conv");
    cr_assert_eq(quantiser(b.small, "sum", 1).inputs[0], quantiser(b.small, "c2", 0).inputs[0]);
    cr_assert_str_eq(producer(b.small, named(b.small, "r3").inputs[0]).op_type, "Add");
    /* what moves codes keeps their scale */
    cr_assert_eq(quantiser(b.small, "pool", 0).inputs[1], quantiser(b.small, "c4", 0).inputs[1]);
    cr_assert_eq(quantiser(b.small, "flat", 0).inputs[1], quantiser(b.small, "fc", 0).inputs[1]);
    cr_assert_eq(zero_of(b.small, "c2", 0), 0, "Relu has no negative half");
    cr_assert_leq(scale_of(b.small, "c3", 0), 6.0f / 255 * 1.0001f, "Clip ends at 6");
    cr_assert_eq(count_ops(b.small, "QuantizeLinear"), 8);
    double db = quality(b.ctx, b.small, b.model, picture);
    cr_assert_gt(db, 30, "%f dB", db);
    cr_assert_lt(fabs(wok_quant_report_summary(b.report)->snr_db - db), 0.01);
    for (int i = 0; i < 5; i++) cr_assert_gt(wok_quant_report_layer(b.report, i)->snr_db, 30);
    cr_assert_null(wok_quant_report_layer(b.report, 5));
    cr_assert_null(wok_quant_report_layer(b.report, -1));
    finish(&b);
}

Test(form, weights_and_biases) {
    bench b = start(17, build_cnn);
    wok_quant_options o = for_cnn();
    quantise(&b, &o);
    wok_node_view c3 = named(b.small, "c3"), w = producer(b.small, c3.inputs[1]),
                  bias = producer(b.small, c3.inputs[2]);
    cr_assert_str_eq(w.op_type, "DequantizeLinear");
    cr_assert_eq(wok_graph_value_at(b.small, w.inputs[0]).dtype, WOK_I8);
    cr_assert_eq(wok_graph_value_at(b.small, bias.inputs[0]).dtype, WOK_I32);
    wok_value_view ws = wok_graph_value_at(b.small, w.inputs[1]), bs = wok_graph_value_at(b.small, bias.inputs[1]);
    cr_assert(ws.rank == 1 && ws.dims[0] == 8);
    for (int c = 0; c < 8; c++)
        cr_assert_eq(((const float *)bs.data)[c], scale_of(b.small, "c3", 0) * ((const float *)ws.data)[c]);
    finish(&b);
}

Test(form, options_change_what_they_say) {
    bench b = start(17, build_cnn);
    wok_quant_options o = for_cnn();
    quantise(&b, &o);
    float asymmetric = scale_of(b.small, "c1", 0);
    o.signed_activations = true;
    quantise(&b, &o);
    cr_assert_eq(zero_of(b.small, "c2", 0), -128);
    cr_assert_eq(wok_graph_value_at(b.small, quantiser(b.small, "c2", 0).inputs[2]).dtype, WOK_I8);
    o.symmetric_activations = true;
    quantise(&b, &o);
    cr_assert_eq(zero_of(b.small, "c1", 0), 0);
    cr_assert_geq(scale_of(b.small, "c1", 0), asymmetric);
    o.signed_activations = false;
    o.per_tensor = true;
    o.narrow_weights = true;
    quantise(&b, &o);
    cr_assert_eq(zero_of(b.small, "c1", 0), 128);
    wok_node_view w = producer(b.small, named(b.small, "c4").inputs[1]);
    cr_assert_eq(wok_graph_value_at(b.small, w.inputs[1]).rank, 0);
    wok_value_view codes = wok_graph_value_at(b.small, w.inputs[0]);
    int most = 0;
    for (size_t i = 0; i < codes.bytes; i++)
        most = abs(((const int8_t *)codes.data)[i]) > most ? abs(((const int8_t *)codes.data)[i]) : most;
    cr_assert_eq(most, 63);
    cr_assert_gt(quality(b.ctx, b.small, b.model, picture), 20);
    finish(&b);
}

Test(form, encoders_keep_their_residual_path) {
    bench b = start(17, build_encoder);
    wok_quant_options o = for_encoder(WOK_QUANT_STATIC);
    quantise(&b, &o);
    cr_assert_eq(count_ops(b.small, "QuantizeLinear"), 4, "the inputs of the linear layers");
    cr_assert_str_eq(producer(b.small, named(b.small, "residual").inputs[1]).op_type, "LayerNormalization");
    cr_assert_null(wok_model_metadata(b.small, "wok.dynamic"));
    double db = quality(b.ctx, b.small, b.model, sentence);
    cr_assert_gt(db, 30, "%f dB", db);
    finish(&b);
}

Test(form, kept_nodes_stay_float) {
    bench b = start(17, build_cnn);
    wok_quant_options o = for_cnn();
    o.keep = (const char *const[]){"c2", "fc"};
    o.keep_count = 2;
    quantise(&b, &o);
    cr_assert_str_eq(producer(b.small, named(b.small, "c2").inputs[0]).op_type, "Relu");
    cr_assert_str_eq(layer(b.report, "c2")->reason, "the caller keeps it");
    cr_assert(!layer(b.report, "fc")->quantised && layer(b.report, "c1")->quantised);
    cr_assert_eq(layer(b.report, "c2")->bytes_after, layer(b.report, "c2")->bytes_before);
    cr_assert_gt(quality(b.ctx, b.small, b.model, picture), 30);
    finish(&b);
}

/* A channel whose weights are nearly nothing: its bias does not fit 32 bits of its own scale. */
static void dead_channel(void) {
    wok_value x = wok_graph_input(m, "x", WOK_F32, 4, (int64_t[]){-1, 3, SIDE, SIDE}, NULL);
    float w[2 * 3] = {0.5f, -0.25f, 0.75f, 1e-12f, 0, -1e-12f}, b[2] = {0.5f, 3};
    wok_value y = conv("c", x, values("w", DIMS(2, 3, 1, 1), w), values("b", DIMS(2), b), 1, 1);
    wok_graph_output(m, y);
}

Test(form, a_bias_fits_its_32_bits) {
    bench b = start(17, dead_channel);
    static float got[1 << 13];
    wok_quant_options o = for_cnn();
    quantise(&b, &o);
    wok_session *session = NULL;
    cr_assert_eq(wok_session_create(b.small, NULL, &session), WOK_OK);
    cr_assert_eq(wok_session_set_input(session, 0, WOK_F32, (int64_t[]){1, 3, SIDE, SIDE}, 4, pictures[0], PIXELS * 4),
                 WOK_OK);
    cr_assert_eq(wok_session_run(session), WOK_OK);
    memcpy(got, wok_session_output(session, 0)->data, 2 * SIDE * SIDE * sizeof *got);
    for (int i = 0; i < SIDE * SIDE; i++) cr_assert_lt(fabsf(got[SIDE * SIDE + i] - 3), 1e-5f);
    wok_session_free(&session);
    finish(&b);
}

static void padded(void) {
    wok_value x = wok_graph_input(m, "x", WOK_F32, 4, (int64_t[]){-1, 3, SIDE, SIDE}, NULL);
    int64_t pads[8] = {0, 0, 0, 1, 0, 0, 2, 0};
    wok_value p = OP("Pad", "pad", x,
                     wok_graph_constant(m, "pads", WOK_I64, 1, (int64_t[]){8}, pads, sizeof pads, WOK_DATA_COPY));
    wok_value y = conv("c", p, random_values("w", DIMS(4, 3, 3, 3), 1, 1, 0), WOK_ABSENT, 3, 1);
    y = OP("Mul", "times", y, random_values("factor", DIMS(4, 1, 1), 2, 1, 0));
    wok_graph_output(m, OP("Add", "plus", y, random_values("term", DIMS(1, 4, 1, 1), 3, 1, 0)));
}

Test(form, pads_and_factors_go_into_the_convolution) {
    bench b = start(13, padded);
    wok_quant_options o = for_cnn();
    quantise(&b, &o);
    cr_assert_eq(count_ops(b.small, "Pad") + count_ops(b.small, "Mul") + count_ops(b.small, "Add"), 0);
    cr_assert_eq(wok_graph_node_count(b.small), 5, "QuantizeLinear, three DequantizeLinear, Conv");
    double db = quality(b.ctx, b.small, b.model, picture);
    cr_assert_gt(db, 35, "%f dB", db);
    finish(&b);
}

static int64_t softmax_axis;
static void old_set(void) {
    wok_value x = wok_graph_input(m, "x", WOK_F32, 4, (int64_t[]){BATCH, 3, SIDE, SIDE}, NULL);
    wok_value y = conv("c", x, random_values("w", DIMS(4, 3, 1, 1), 1, 1, 0), WOK_ABSENT, 1, 1);
    y = OP("Unsqueeze", "wide", y);
    wok_node_set_ints(m, wok_graph_last(m), "axes", (int64_t[]){1}, 1);
    y = OP("Squeeze", "narrow", y);
    wok_node_set_ints(m, wok_graph_last(m), "axes", (int64_t[]){1}, 1);
    y = OP("Softmax", "shares", y);
    wok_node_set_int(m, wok_graph_last(m), "axis", softmax_axis);
    wok_graph_output(m, y);
}

Test(form, old_operator_sets_are_brought_up) {
    softmax_axis = -1;
    bench b = start(11, old_set);
    wok_quant_options o = for_cnn();
    quantise(&b, &o);
    cr_assert_eq(wok_model_describe(b.small)->opset, 13);
    double db = quality(b.ctx, b.small, b.model, picture);
    cr_assert_gt(db, 30, "%f dB", db);
    finish(&b);
    softmax_axis = 3; /* the last one, which only a run can tell */
    b = start(11, old_set);
    quantise(&b, &o);
    cr_assert_gt(quality(b.ctx, b.small, b.model, picture), 30);
    finish(&b);
    softmax_axis = 1;
    b = start(11, old_set);
    wok_model *none = NULL;
    cr_assert_eq(wok_quantize(b.model, &o, &none, NULL), WOK_ERR_UNSUPPORTED);
    cr_assert(strstr(wok_ctx_error(b.ctx), "shares"), "%s", wok_ctx_error(b.ctx));
    finish(&b);
}

/* ---- ranges ---------------------------------------------------------------------------------------------------------------- */

Test(ranges, methods_cut_an_outlier) {
    bench b = start(17, build_cnn);
    pictures[2][17] = 40; /* all others are in [-1, 1) */
    wok_quant_options o = for_cnn();
    quantise(&b, &o);
    float all = scale_of(b.small, "c1", 0);
    cr_assert_gt(all, 40.0f / 255);
    o.percentile = 99.9;
    for (int method = WOK_QUANT_PERCENTILE; method <= WOK_QUANT_ENTROPY; method++) {
        o.method = (wok_quant_method)method;
        quantise(&b, &o);
        float cut = scale_of(b.small, "c1", 0);
        cr_assert(cut < all / 3 && cut > 0.5f / 255, "method %d: %g of %g", method, (double)cut, (double)all);
    }
    finish(&b);
}

Test(ranges, a_histogram_is_cut_where_its_method_says) {
    static double bins[WOK_QUANT_BINS];
    wok_quant_options o = {.method = WOK_QUANT_PERCENTILE, .percentile = 90};
    for (int i = 0; i < WOK_QUANT_BINS; i++) bins[i] = 1; /* even in [-1, 3] */
    double lo = -1, hi = 3;
    wok_quant_clip(&o, bins, &lo, &hi);
    cr_assert(fabs(lo + 0.6) < 0.01 && fabs(hi - 2.6) < 0.01, "%f %f", lo, hi);
    o.method = WOK_QUANT_MSE;
    lo = -1, hi = 3;
    wok_quant_clip(&o, bins, &lo, &hi);
    cr_assert(fabs(lo + 1) < 0.05 && fabs(hi - 3) < 0.05, "even distributions lose by clipping: %f %f", lo, hi);
    memset(bins, 0, sizeof bins);
    for (int i = 0; i < 200; i++) bins[i] = 1e6; /* a tenth of [0, 1], and one element at its end */
    bins[WOK_QUANT_BINS - 1] = 1;
    lo = 0, hi = 1;
    wok_quant_clip(&o, bins, &lo, &hi);
    cr_assert(lo == 0 && hi < 0.3 && hi > 0.09, "%f %f", lo, hi);
    for (int method = 0; method <= WOK_QUANT_MSE; method++) { /* nothing but zeros */
        memset(bins, 0, sizeof bins);
        o.method = (wok_quant_method)method;
        lo = hi = 0;
        wok_quant_clip(&o, bins, &lo, &hi);
        cr_assert(lo == 0 && hi == 0);
    }
}

Test(ranges, weights_with_the_least_square_error) {
    float w[64];
    support_random(w, 64, 5);
    w[7] = 9;
    double errors[2];
    for (int mse = 0; mse < 2; mse++) {
        float scale = wok_quant_weight_scale(w, 64, 7, mse);
        errors[mse] = 0;
        for (int i = 0; i < 64; i++) {
            double r = fmin(7, fmax(-7, nearbyint((double)(w[i] / scale)))) * (double)scale - (double)w[i];
            errors[mse] += r * r;
        }
    }
    cr_assert_lt(errors[1], errors[0]);
    cr_assert_eq(wok_quant_weight_scale((float[]){0, 0}, 2, 127, true), 1.0f);
    cr_assert_eq(wok_quant_weight_scale((float[]){-2.54f, 1}, 2, 127, false), 2.54f / 127);
}

/* ---- what must leave the function as it is ----------------------------------------------------------------------------------- */

/* The float model after `change`. */
static wok_model *changed(bench *b, wok_quant *q, const wok_quant_options *o, wok_status (*change)(wok_quant *)) {
    wok_model *after = NULL;
    *q = (wok_quant){.ctx = b->ctx, .model = b->model, .o = *o, .pool = {.ctx = b->ctx}};
    cr_assert_eq(wok_qgraph_read(&q->graph, b->model, &q->pool), WOK_OK);
    cr_assert_eq(wok_quant_fold_constants(&q->graph), WOK_OK);
    cr_assert_eq(wok_quant_fold_batchnorm(&q->graph, &q->summary.folded), WOK_OK);
    if (change) cr_assert_eq(change(q), WOK_OK, "%s", wok_ctx_error(b->ctx));
    cr_assert_eq(wok_quant_write_float(q, &after), WOK_OK, "%s", wok_ctx_error(b->ctx));
    return after;
}

Test(same_function, folding) {
    bench b = start(17, build_cnn);
    wok_quant q;
    wok_quant_options o = for_cnn();
    wok_model *after = changed(&b, &q, &o, NULL);
    cr_assert_gt(quality(b.ctx, after, b.model, picture), 110);
    wok_model_free(&after);
    wok_qpool_free(&q.pool);
    finish(&b);
}

Test(same_function, equalisation) {
    bench b = start(17, build_cnn);
    for (int per_tensor = 0; per_tensor < 2; per_tensor++) {
        wok_quant q;
        wok_quant_options o = for_cnn();
        o.per_tensor = per_tensor;
        wok_model *after = changed(&b, &q, &o, wok_quant_equalize);
        cr_assert_eq(q.summary.equalised, 1, "c2 and c3; c1's output is read twice");
        const float *w = wok_graph_value_at(after, named(after, "c3").inputs[1]).data;
        cr_assert_neq(w[0], ((const float *)wok_graph_value_at(b.model, named(b.model, "c3").inputs[1]).data)[0]);
        cr_assert_gt(quality(b.ctx, after, b.model, picture), 110);
        wok_model_free(&after);
        wok_qpool_free(&q.pool);
    }
    finish(&b);
}

static void long_normalisation(void) {
    wok_value ids = wok_graph_input(m, "ids", WOK_I64, 2, (int64_t[]){-1, -1}, (const char *[]){"n", "s"});
    wok_value x = OP("Gather", "rows", random_values("table", DIMS(ROWS, WIDTH), 31, 1, 0), ids);
    wok_value mean = OP("ReduceMean", "mean", x);
    wok_node_set_ints(m, wok_graph_last(m), "axes", (int64_t[]){-1}, 1);
    wok_value centred = OP("Sub", "centred", x, mean), square = OP("Mul", "square", centred, centred);
    wok_value variance = OP("ReduceMean", "variance", square);
    wok_node_set_ints(m, wok_graph_last(m), "axes", (int64_t[]){-1}, 1);
    wok_value normal = OP("Div", "normal", centred, OP("Sqrt", "deviation", variance));
    wok_value scaled = OP("Mul", "scaled", normal, random_values("gains", DIMS(WIDTH), 3, 1, 2));
    wok_value y = OP("Add", "shifted", scaled, random_values("shifts", DIMS(WIDTH), 4, 1, 0));
    wok_graph_output(m, linear("product", y, WIDTH, 8, 5));
}

Test(same_function, smoothing_of_the_long_form) {
    bench b = start(13, long_normalisation);
    wok_quant q;
    wok_quant_options o = for_encoder(WOK_QUANT_DYNAMIC);
    o.smooth = 0.5f;
    wok_model *after = changed(&b, &q, &o, wok_quant_smooth);
    cr_assert_eq(q.summary.smoothed, 1);
    cr_assert_gt(quality(b.ctx, after, b.model, sentence), 110);
    wok_model_free(&after);
    wok_qpool_free(&q.pool);
    finish(&b);
}

Test(same_function, smoothing) {
    bench b = start(17, build_encoder);
    wok_quant q;
    wok_quant_options o = for_encoder(WOK_QUANT_DYNAMIC);
    o.smooth = 0.5f;
    wok_model *after = changed(&b, &q, &o, wok_quant_smooth);
    cr_assert_eq(q.summary.smoothed, 2);
    cr_assert_eq(count_ops(after, "Mul"), 2, "norm1 has another reader and needs a Mul, norm2 takes the factors");
    cr_assert_gt(quality(b.ctx, after, b.model, sentence), 110);
    wok_model_free(&after);
    wok_qpool_free(&q.pool);
    finish(&b);
}

/* Channels of very different size: one scale for the activation between leaves most of them a few steps. */
static void uneven(void) {
    wok_value x = wok_graph_input(m, "x", WOK_F32, 4, (int64_t[]){-1, 3, SIDE, SIDE}, NULL);
    float w1[8 * 3], w2[8 * 9], w3[4 * 8];
    support_random(w1, 24, 61);
    support_random(w2, 72, 62);
    support_random(w3, 32, 63);
    for (int c = 0; c < 8; c++) {
        float factor = ldexpf(1, -c);
        for (int i = 0; i < 3; i++) w1[c * 3 + i] *= factor;
        for (int o = 0; o < 4; o++) w3[o * 8 + c] /= factor;
    }
    wok_value y = clip("a", conv("c1", x, values("w1", DIMS(8, 3, 1, 1), w1), WOK_ABSENT, 1, 1), 6);
    y = OP("Relu", "b", conv("c2", y, values("w2", DIMS(8, 1, 3, 3), w2), WOK_ABSENT, 3, 8));
    wok_graph_output(
        m, OP("GlobalAveragePool", "mean", conv("c3", y, values("w3", DIMS(4, 8, 1, 1), w3), WOK_ABSENT, 1, 1)));
}

Test(better, equalisation_helps_uneven_channels) {
    bench b = start(17, uneven);
    wok_quant_options o = for_cnn();
    quantise(&b, &o);
    double before = quality(b.ctx, b.small, b.model, picture);
    o.equalize = true;
    quantise(&b, &o);
    double after = quality(b.ctx, b.small, b.model, picture);
    cr_assert_eq(wok_quant_report_summary(b.report)->equalised, 2);
    cr_assert_gt(after, before + 6, "%f dB, with equalisation %f dB", before, after);
    finish(&b);
}

Test(better, bias_correction_takes_the_mean_error_out) {
    bench b = start(17, build_cnn);
    static float want[MOST_ANSWERS], got[MOST_ANSWERS];
    double means[2];
    wok_quant_options o = for_cnn();
    o.method = WOK_QUANT_PERCENTILE;
    o.percentile = 98; /* clips, which moves means */
    for (int corrected = 0; corrected < 2; corrected++) {
        o.bias_correction = corrected;
        quantise(&b, &o);
        size_t count = answers(b.ctx, b.model, picture, want);
        answers(b.ctx, b.small, picture, got);
        double sums[CLASSES] = {0};
        for (size_t i = 0; i < count; i++) sums[i % CLASSES] += (double)(got[i] - want[i]) / (double)count * CLASSES;
        means[corrected] = 0;
        for (int c = 0; c < CLASSES; c++) means[corrected] += fabs(sums[c]);
        cr_assert_eq(wok_quant_report_summary(b.report)->corrected, corrected ? 5 : 0);
    }
    cr_assert_lt(means[1], means[0] / 2, "%g, corrected %g", means[0], means[1]);
    finish(&b);
}

static void with_outliers(void) {
    wok_value ids = wok_graph_input(m, "ids", WOK_I64, 2, (int64_t[]){-1, -1}, NULL);
    float gains[WIDTH];
    for (int j = 0; j < WIDTH; j++) gains[j] = j == 5 ? 60 : 1;
    wok_value x = OP("Gather", "rows", random_values("table", DIMS(ROWS, WIDTH), 31, 1, 0), ids);
    x = OP("LayerNormalization", "norm", x, values("gains", DIMS(WIDTH), gains),
           random_values("shifts", DIMS(WIDTH), 3, 0.1f, 0));
    float w[WIDTH * 8];
    support_random(w, WIDTH * 8, 4);
    for (int i = 0; i < 8; i++) w[5 * 8 + i] /= 60;
    wok_graph_output(m, OP("MatMul", "product", x, values("w", DIMS(WIDTH, 8), w)));
}

Test(better, smoothing_helps_against_outliers) {
    bench b = start(17, with_outliers);
    for (int mode = 0; mode < 2; mode++) {
        wok_quant_options o = for_encoder((wok_quant_mode)mode);
        quantise(&b, &o);
        double before = quality(b.ctx, b.small, b.model, sentence);
        o.smooth = 0.5f;
        quantise(&b, &o);
        double after = quality(b.ctx, b.small, b.model, sentence);
        cr_assert_gt(after, before + 6, "%f dB, smoothed %f dB", before, after);
        cr_assert_eq(wok_quant_report_summary(b.report)->smoothed, 1);
    }
    finish(&b);
}

/* ---- score and time -------------------------------------------------------------------------------------------------------------- */

typedef struct judge {
    float want[512];
    int calls;
    bool fails, nan;
} judge;

/* Minus the largest distance from the first model that was asked. */
static wok_status distance(void *user, wok_session *session, double *score) {
    judge *j = user;
    size_t count = 0;
    *score = 0;
    if (j->fails) return WOK_ERR_IO;
    for (int i = 0; i < SAMPLES; i++) {
        wok_tensor t;
        picture(NULL, i, &t);
        if (wok_session_set_input(session, 0, t.dtype, t.dims, t.rank, t.data, t.bytes) != WOK_OK ||
            wok_session_run(session) != WOK_OK)
            return WOK_ERR_STATE;
        const wok_tensor *y = wok_session_output(session, 0);
        size_t n = y->bytes / sizeof(float);
        if (j->calls == 0) memcpy(j->want + count, y->data, y->bytes);
        double far = support_distance(j->want + count, y->data, n);
        if (-far < *score) *score = -far;
        count += n;
    }
    j->calls++;
    if (j->nan) *score = (double)NAN;
    return WOK_OK;
}

Test(score, damaging_layers_stay_float) {
    bench b = start(17, build_cnn);
    judge j = {.calls = 0};
    wok_quant_options o = for_cnn();
    o.eval = distance;
    o.eval_user = &j;
    quantise(&b, &o);
    const wok_quant_summary *all = wok_quant_report_summary(b.report);
    double loss = all->float_score - all->score;
    cr_assert(j.calls == 2 && all->float_score == 0 && loss > 0 && all->quantised == 5);
    cr_assert_null(wok_model_metadata(b.small, "wok.quant.float"));
    o.max_loss = loss * 0.8;
    j.calls = 0;
    quantise(&b, &o);
    all = wok_quant_report_summary(b.report);
    cr_assert(all->quantised > 0 && all->quantised < 5, "%d layers are in 8 bits", all->quantised);
    cr_assert_leq(all->float_score - all->score, o.max_loss);
    double score;
    wok_session *session = NULL;
    cr_assert_eq(wok_session_create(b.small, NULL, &session), WOK_OK);
    cr_assert_eq(distance(&j, session, &score), WOK_OK);
    cr_assert_eq(score, all->score, "the model that was scored is the one that came back");
    wok_session_free(&session);
    double worst_kept = -1000;
    for (int i = 0; i < 5; i++)
        if (!wok_quant_report_layer(b.report, i)->quantised)
            worst_kept = fmax(worst_kept, wok_quant_report_layer(b.report, i)->snr_db);
    for (int i = 0; i < 5; i++)
        if (wok_quant_report_layer(b.report, i)->quantised)
            cr_assert_geq(wok_quant_report_layer(b.report, i)->snr_db, worst_kept);
    cr_assert(wok_model_metadata(b.small, "wok.quant.float"));
    finish(&b);
}

Test(score, a_loss_that_cannot_be_held) {
    bench b = start(17, build_cnn);
    judge j = {.calls = 0};
    wok_quant_options o = for_cnn();
    o.eval = distance;
    o.eval_user = &j;
    o.max_loss = 1e-9;
    cr_assert_eq(wok_quantize(b.model, &o, &b.small, &b.report), WOK_ERR_LIMIT);
    cr_assert(!b.small && !b.report && strstr(wok_ctx_error(b.ctx), "max_loss"), "%s", wok_ctx_error(b.ctx));
    finish(&b);
}

Test(score, callbacks_may_fail) {
    bench b = start(17, build_cnn);
    judge j = {.fails = true};
    wok_quant_options o = for_cnn();
    o.eval = distance;
    o.eval_user = &j;
    cr_assert_eq(wok_quantize(b.model, &o, &b.small, &b.report), WOK_ERR_IO);
    cr_assert(!b.small && !b.report && strstr(wok_ctx_error(b.ctx), "score"));
    j = (judge){.nan = true};
    cr_assert_eq(wok_quantize(b.model, &o, &b.small, NULL), WOK_ERR_VALUE);
    finish(&b);
}

Test(score, times_of_both_forms) {
    bench b = start(17, build_cnn);
    wok_quant_options o = for_cnn();
    o.measure = true;
    quantise(&b, &o);
    for (int i = 0; i < 5; i++) {
        const wok_quant_layer *l = wok_quant_report_layer(b.report, i);
        cr_assert(l->float_us > 0 && l->int8_us > 0, "%s: %f %f", l->name, l->float_us, l->int8_us);
    }
    finish(&b);
}

/* ---- equal bytes ----------------------------------------------------------------------------------------------------------------- */

static char *saved(wok_model *model, size_t *bytes) {
    char path[] = "/tmp/wok-quantize-XXXXXX.onnx";
    int file = mkstemps(path, 5);
    cr_assert_geq(file, 0);
    close(file);
    cr_assert_eq(wok_model_save(model, path), WOK_OK);
    FILE *in = fopen(path, "rb");
    cr_assert(in);
    static char buffer[2][1 << 20];
    static int next;
    char *data = buffer[next++ % 2];
    *bytes = fread(data, 1, 1 << 20, in);
    fclose(in);
    unlink(path);
    cr_assert_lt(*bytes, 1 << 20);
    return data;
}

static void check_bytes(void (*build)(void), const wok_quant_options *options) {
    char *data[2];
    size_t bytes[2];
    fill();
    for (int i = 0; i < 2; i++) {
        wok_ctx *ctx = support_ctx(i ? 3 : 1, NULL);
        wok_model *model = make(ctx, 17, build), *small = NULL;
        cr_assert_eq(wok_quantize(model, options, &small, NULL), WOK_OK, "%s", wok_ctx_error(ctx));
        wok_model_free(&model); /* the result stands alone */
        data[i] = saved(small, &bytes[i]);
        wok_model_free(&small);
        wok_ctx_free(&ctx);
    }
    cr_assert(bytes[0] == bytes[1] && memcmp(data[0], data[1], bytes[0]) == 0);
}

Test(bytes, are_equal_at_any_number_of_threads) {
    wok_quant_options cnn = for_cnn(), encoder = for_encoder(WOK_QUANT_DYNAMIC);
    cnn.equalize = cnn.bias_correction = true;
    cnn.method = WOK_QUANT_ENTROPY;
    check_bytes(build_cnn, &cnn);
    encoder.smooth = 0.5f;
    encoder.tables = WOK_QUANT_TABLE_INT4;
    check_bytes(build_encoder, &encoder);
}

/* ---- bad input -------------------------------------------------------------------------------------------------------------------- */

typedef struct mistake {
    wok_dtype dtype;
    int rank;
    int64_t dims[4];
    bool nan, absent;
    wok_status status;
} mistake;

static wok_status wrong_picture(void *user, int64_t index, wok_tensor *inputs) {
    const mistake *w = user;
    picture(NULL, index, inputs);
    if (index < 2) return WOK_OK; /* the third one is wrong */
    inputs->dtype = w->dtype;
    inputs->rank = w->rank;
    memcpy(inputs->dims, w->dims, sizeof w->dims);
    inputs->bytes = wok_dtype_size(w->dtype);
    for (int i = 0; i < w->rank; i++) inputs->bytes *= (size_t)w->dims[i];
    pictures[index][5] = w->nan ? NAN : 0;
    if (w->absent) inputs->data = NULL;
    return w->status;
}

Test(bad, samples) {
    static const struct {
        mistake how;
        wok_status status;
        const char *says;
    } cases[] = {
        {{WOK_F32, 4, {1, 3, SIDE, SIDE - 1}, false, false, WOK_OK}, WOK_ERR_SHAPE, "axis 3"},
        {{WOK_F32, 3, {3, SIDE, SIDE}, false, false, WOK_OK}, WOK_ERR_SHAPE, "rank 3"},
        {{WOK_U8, 4, {1, 3, SIDE, SIDE}, false, false, WOK_OK}, WOK_ERR_SHAPE, "u8"},
        {{WOK_F32, 4, {1, 3, SIDE, SIDE}, true, false, WOK_OK}, WOK_ERR_VALUE, "NaN"},
        {{WOK_F32, 4, {1, 3, SIDE, SIDE}, false, true, WOK_OK}, WOK_ERR_ARGUMENT, "no data"},
        {{WOK_F32, 4, {1, 3, SIDE, SIDE}, false, false, WOK_ERR_IO}, WOK_ERR_IO, "sample 2"},
    };
    bench b = start(17, build_cnn);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wok_quant_options o = for_cnn();
        mistake how = cases[i].how;
        o.sample = wrong_picture;
        o.sample_user = &how;
        wok_status status = wok_quantize(b.model, &o, &b.small, &b.report);
        cr_assert_eq(status, cases[i].status, "case %zu: %d, %s", i, status, wok_ctx_error(b.ctx));
        cr_assert(strstr(wok_ctx_error(b.ctx), cases[i].says), "case %zu: %s", i, wok_ctx_error(b.ctx));
        cr_assert(strstr(wok_ctx_error(b.ctx), "sample 2"), "case %zu: %s", i, wok_ctx_error(b.ctx));
        cr_assert(!b.small && !b.report);
    }
    finish(&b);
}

static void refuses(bench *b, const wok_quant_options *o, wok_status want, const char *says) {
    wok_status status = wok_quantize(b->model, o, &b->small, &b->report);
    cr_assert_eq(status, want, "%d, %s", status, wok_ctx_error(b->ctx));
    cr_assert(strstr(wok_ctx_error(b->ctx), says), "'%s' is not in: %s", says, wok_ctx_error(b->ctx));
    cr_assert(!b->small && !b->report);
}

Test(bad, options) {
    bench b = start(17, build_cnn);
    wok_quant_options good = for_cnn(), o;
    o = good, o.samples = 0, refuses(&b, &o, WOK_ERR_ARGUMENT, "needs samples");
    o = good, o.samples = -1, refuses(&b, &o, WOK_ERR_ARGUMENT, "samples");
    o = good, o.sample = NULL, refuses(&b, &o, WOK_ERR_ARGUMENT, "callback");
    o = good, o.mode = (wok_quant_mode)7, refuses(&b, &o, WOK_ERR_ARGUMENT, "mode");
    o = good, o.method = (wok_quant_method)9, refuses(&b, &o, WOK_ERR_ARGUMENT, "method");
    o = good, o.tables = (wok_quant_table)9, refuses(&b, &o, WOK_ERR_ARGUMENT, "tables");
    o = good, o.percentile = 30, refuses(&b, &o, WOK_ERR_ARGUMENT, "percentile");
    o = good, o.percentile = (double)NAN, refuses(&b, &o, WOK_ERR_ARGUMENT, "percentile");
    o = good, o.smooth = 1.5f, refuses(&b, &o, WOK_ERR_ARGUMENT, "smooth");
    o = good, o.smooth = NAN, refuses(&b, &o, WOK_ERR_ARGUMENT, "smooth");
    o = good, o.max_loss = (double)NAN, refuses(&b, &o, WOK_ERR_ARGUMENT, "max_loss");
    o = good, o.keep_count = 1, refuses(&b, &o, WOK_ERR_ARGUMENT, "keep");
    o.keep = (const char *const[]){"nobody"};
    refuses(&b, &o, WOK_ERR_ARGUMENT, "nobody");
    o = (wok_quant_options){.size = sizeof o, .measure = true};
    refuses(&b, &o, WOK_ERR_ARGUMENT, "measure");
    o = (wok_quant_options){.size = sizeof o, .equalize = true};
    refuses(&b, &o, WOK_ERR_ARGUMENT, "static");
    finish(&b);
}

static void nothing_to_do(void) {
    wok_value x = wok_graph_input(m, "x", WOK_F32, 4, (int64_t[]){-1, 3, SIDE, SIDE}, NULL);
    wok_graph_output(m, OP("Relu", "y", x));
}
static void makes_nan(void) {
    wok_value x = wok_graph_input(m, "x", WOK_F32, 4, (int64_t[]){-1, 3, SIDE, SIDE}, NULL);
    x = OP("Log", "logarithm", x);
    wok_graph_output(m, conv("c", x, random_values("w", DIMS(4, 3, 1, 1), 1, 1, 0), WOK_ABSENT, 1, 1));
}

Test(bad, models) {
    wok_quant_options o = for_cnn();
    bench b = start(17, nothing_to_do);
    refuses(&b, &o, WOK_ERR_UNSUPPORTED, "nothing to quantise");
    finish(&b);
    b = start(10, build_cnn);
    refuses(&b, &o, WOK_ERR_UNSUPPORTED, "operator set 10");
    finish(&b);
    b = start(17, makes_nan);
    refuses(&b, &o, WOK_ERR_VALUE, "logarithm");
    finish(&b);
    b = start(17, build_cnn);
    quantise(&b, &o);
    wok_model *again = NULL;
    cr_assert_eq(wok_quantize(b.small, &o, &again, NULL), WOK_ERR_UNSUPPORTED);
    cr_assert(!again && strstr(wok_ctx_error(b.ctx), "quantised already"), "%s", wok_ctx_error(b.ctx));
    finish(&b);
    b = start(17, build_encoder);
    quantise(&b, NULL);
    cr_assert_eq(wok_quantize(b.small, NULL, &again, NULL), WOK_ERR_UNSUPPORTED);
    finish(&b);
}

static bool stop_at_three(void *user, const char *step, int64_t done, int64_t total) {
    int *calls = user;
    cr_assert(*step && done >= 0 && done <= total);
    return ++*calls < 3;
}

Test(bad, the_caller_may_stop) {
    bench b = start(17, build_cnn);
    int calls = 0;
    wok_quant_options o = for_cnn();
    o.progress = stop_at_three;
    o.progress_user = &calls;
    refuses(&b, &o, WOK_ERR_STATE, "stopped");
    cr_assert_eq(calls, 3);
    finish(&b);
}

Test(bad, an_older_struct_is_read_as_far_as_it_goes) {
    bench b = start(17, build_encoder);
    wok_quant_options o = {.size = offsetof(wok_quant_options, method), .percentile = -5, .measure = true};
    quantise(&b, &o);
    finish(&b);
}

/* ---- no memory -------------------------------------------------------------------------------------------------------------------- */

static void check_memory(void (*build)(void), const wok_quant_options *options) {
    fill();
    for (long n = 1, step = 1;; n += step) {
        support_heap heap = {0};
        wok_ctx *ctx = support_ctx(1, &heap);
        wok_model *model = make(ctx, 17, build), *small = (wok_model *)&heap;
        wok_quant_report *report = (wok_quant_report *)&heap;
        cr_assert(model);
        heap.fail_at = heap.calls + n;
        heap.lasting = n % 2;
        wok_status status = wok_quantize(model, options, &small, &report);
        bool failed = heap.failures > 0;
        heap.fail_at = 0;
        if (status != WOK_OK) cr_assert(!small && !report, "allocation %ld: status %d", n, status);
        cr_assert(failed ? status == WOK_ERR_MEMORY || status == WOK_OK : status == WOK_OK, "allocation %ld: %d, %s", n,
                  status, wok_ctx_error(ctx));
        wok_quant_report_free(&report);
        wok_model_free(&small);
        wok_model_free(&model);
        wok_ctx_free(&ctx);
        cr_assert_eq(heap.blocks, 0, "allocation %ld leaks", n);
        if (!failed) return;
        if (n > 200) step = 7; /* what a session does is test_session.c's */
    }
}

Test(memory, every_allocation_may_fail) {
    wok_quant_options cnn = for_cnn(), encoder = for_encoder(WOK_QUANT_DYNAMIC);
    cnn.samples = encoder.samples = 1;
    cnn.equalize = cnn.bias_correction = true;
    cnn.method = WOK_QUANT_MSE;
    encoder.smooth = 0.5f;
    check_memory(build_cnn, &cnn);
    check_memory(build_encoder, &encoder);
}

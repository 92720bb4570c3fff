/* test_onnx_cases.c - faults that users of other libraries reported for ONNX models, from the file to the numbers.
 * Bnn are the numbers of the public list, the right answers its own. Loading alone is in test_onnx.c. */
#define _DEFAULT_SOURCE
#include "loading.h"

#include <glob.h>
#include <math.h>

static wok_ctx *ctx;
static size_t held;

static void setup(void) {
    ctx = wok_ctx_create(&(wok_ctx_options){.size = sizeof(wok_ctx_options), .threads = 1});
    held = wok_ctx_memory(ctx, NULL);
}

static void teardown(void) {
    size_t now = wok_ctx_memory(ctx, NULL);
    wok_ctx_free(&ctx);
    if (now != held) fprintf(stderr, "Assertion Failed: %zu bytes were not given back\n", now - held);
}
TestSuite(onnx_cases, .init = setup, .fini = teardown);

/* ---- one model, one run ------------------------------------------------------------------------------------------ */

static void attr_int(make *m, const char *name, int64_t value) {
    wok_wire_mark a = wok_wire_begin(&m->wire, NODE_ATTRIBUTE);
    wok_wire_put_text(&m->wire, ATTRIBUTE_NAME, name);
    wok_wire_put_int(&m->wire, ATTRIBUTE_I, value);
    wok_wire_put_int(&m->wire, ATTRIBUTE_TYPE, TYPE_INT);
    wok_wire_end(&m->wire, a);
}

static void attr_ints(make *m, const char *name, int count, const int64_t *values) {
    wok_wire_mark a = wok_wire_begin(&m->wire, NODE_ATTRIBUTE);
    wok_wire_put_text(&m->wire, ATTRIBUTE_NAME, name);
    for (int i = 0; i < count; i++) wok_wire_put_int(&m->wire, ATTRIBUTE_INTS, values[i]);
    wok_wire_put_int(&m->wire, ATTRIBUTE_TYPE, TYPE_INTS);
    wok_wire_end(&m->wire, a);
}

static void attr_float(make *m, const char *name, float value) {
    wok_wire_mark a = wok_wire_begin(&m->wire, NODE_ATTRIBUTE);
    wok_wire_put_text(&m->wire, ATTRIBUTE_NAME, name);
    wok_wire_put_float(&m->wire, ATTRIBUTE_F, value);
    wok_wire_put_int(&m->wire, ATTRIBUTE_TYPE, TYPE_FLOAT);
    wok_wire_end(&m->wire, a);
}

static void attr_text(make *m, const char *name, const char *value) {
    wok_wire_mark a = wok_wire_begin(&m->wire, NODE_ATTRIBUTE);
    wok_wire_put_text(&m->wire, ATTRIBUTE_NAME, name);
    wok_wire_put_text(&m->wire, ATTRIBUTE_S, value);
    wok_wire_put_int(&m->wire, ATTRIBUTE_TYPE, TYPE_STRING);
    wok_wire_end(&m->wire, a);
}

static void node_end(make *m, wok_wire_mark mark) { wok_wire_end(&m->wire, mark); }

typedef struct feed {
    const char *name;
    wok_dtype dtype;
    int rank;
    int64_t dims[WOK_MAX_RANK];
    const void *data;
} feed;

typedef struct answer {
    wok_status status;
    char error[512];
    int rank;
    int64_t dims[WOK_MAX_RANK];
    size_t count;
    float values[64];
} answer;

static answer run_model(wok_model *model, const feed *feeds, int count) {
    answer a = {.status = WOK_OK};
    wok_session *session = NULL;
    a.status = wok_session_create(model, NULL, &session);
    snprintf(a.error, sizeof a.error, "%s", wok_ctx_error(ctx));
    for (int i = 0; i < count && a.status == WOK_OK; i++) {
        size_t bytes = wok_dtype_size(feeds[i].dtype);
        for (int d = 0; d < feeds[i].rank; d++) bytes *= (size_t)feeds[i].dims[d];
        a.status = wok_session_set_input(session, wok_model_input_index(model, feeds[i].name), feeds[i].dtype,
                                         feeds[i].dims, feeds[i].rank, feeds[i].data, bytes);
    }
    if (session && a.status == WOK_OK) a.status = wok_session_run(session);
    if (session && a.status != WOK_OK) snprintf(a.error, sizeof a.error, "%s", wok_session_error(session));
    if (a.status == WOK_OK) {
        const wok_tensor *y = wok_session_output(session, 0);
        cr_assert_eq(y->dtype, WOK_F32);
        cr_assert_leq(y->bytes, sizeof a.values);
        a.rank = y->rank;
        memcpy(a.dims, y->dims, sizeof a.dims);
        a.count = y->bytes / sizeof(float);
        memcpy(a.values, y->data, y->bytes);
    } else {
        cr_assert(a.error[0] && !strchr(a.error, '\n'), "no sentence");
    }
    wok_session_free(&session);
    return a;
}

/* Ends the file, loads it, runs it. */
static answer run(make *m, const feed *feeds, int count) {
    size_t bytes;
    uint8_t *file = make_end(m, &bytes);
    wok_model *model = NULL;
    answer a = {.status = wok_model_load_memory(ctx, file, bytes, NULL, &model)};
    snprintf(a.error, sizeof a.error, "%s", wok_ctx_error(ctx));
    if (model) a = run_model(model, feeds, count);
    wok_model_free(&model);
    free(file);
    return a;
}

static void expect(const answer *a, const char *what, int rank, const int64_t *dims, const float *want, float bound) {
    cr_assert_eq(a->status, WOK_OK, "%s: %s", what, a->error);
    cr_assert_eq(a->rank, rank, "%s: rank %d", what, a->rank);
    for (int d = 0; d < rank; d++) cr_assert_eq(a->dims[d], dims[d], "%s: axis %d is %d", what, d, (int)a->dims[d]);
    for (size_t i = 0; i < a->count; i++)
        cr_assert(fabsf(a->values[i] - want[i]) <= bound, "%s: %g at %zu, not %g", what, (double)a->values[i], i,
                  (double)want[i]);
}

static void expect_failure(const answer *a, const char *what, const char *part) {
    cr_assert_neq(a->status, WOK_OK, "%s runs", what);
    cr_assert(strstr(a->error, part), "%s: '%s' is not in: %s", what, part, a->error);
}

/* ---- the cases --------------------------------------------------------------------------------------------------- */

Test(onnx_cases, B04_softmax_before_opset_13_flattens) {
    const float x[4] = {logf(1), logf(2), logf(3), logf(4)};
    const struct {
        int64_t opset;
        bool axis;
        float want[4];
    } cases[] = {{11, false, {.1f, .2f, .3f, .4f}},
                 {11, true, {.1f, .2f, .3f, .4f}},
                 {13, false, {1 / 3.f, 2 / 3.f, 3 / 7.f, 4 / 7.f}},
                 {13, true, {1 / 4.f, 1 / 3.f, 3 / 4.f, 2 / 3.f}}};
    static const char *const ops[] = {"Softmax", "LogSoftmax"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int op = 0; op < 2; op++) {
            make m = make_start(ctx, 7, cases[i].opset);
            wok_wire_mark node = make_node_start(&m, ops[op], "X", NULL, "Y");
            if (cases[i].axis) attr_int(&m, "axis", 1);
            node_end(&m, node);
            make_value(&m, GRAPH_INPUT, "X", WOK_F32, 3, (int64_t[]){1, 2, 2});
            make_value(&m, GRAPH_OUTPUT, "Y", WOK_F32, 3, (int64_t[]){1, 2, 2});
            answer a = run(&m, &(feed){"X", WOK_F32, 3, {1, 2, 2}, x}, 1);
            for (size_t k = 0; op && k < a.count; k++) a.values[k] = expf(a.values[k]);
            expect(&a, ops[op], 3, (int64_t[]){1, 2, 2}, cases[i].want, 1e-6f);
        }
}

/* Clip on [-3, 0.5, 9]: `opset` 6 takes attributes, from 11 on inputs; NAN: left out. constant: bounds from Constant
 * nodes. */
static answer clip(int64_t opset, float low, float high, bool constant) {
    const float x[3] = {-3, .5f, 9};
    const int64_t three[1] = {3};
    make m = make_start(ctx, 7, opset);
    const char *names[2] = {isnan(low) ? "" : "lo", isnan(high) ? "" : "hi"};
    for (int i = 0; i < 2 && opset >= 11; i++) {
        float bound = i ? high : low;
        if (isnan(bound)) continue;
        if (!constant) {
            make_raw(&m, names[i], WOK_F32, 0, NULL, &bound, 4);
            continue;
        }
        wok_wire_mark node = make_node_start(&m, "Constant", NULL, NULL, names[i]);
        wok_wire_mark a = wok_wire_begin(&m.wire, NODE_ATTRIBUTE);
        wok_wire_put_text(&m.wire, ATTRIBUTE_NAME, "value");
        wok_wire_mark t = make_tensor(&m, ATTRIBUTE_T, "c", WOK_F32, 0, NULL);
        wok_wire_put_bytes(&m.wire, TENSOR_RAW_DATA, &bound, 4);
        wok_wire_end(&m.wire, t);
        wok_wire_put_int(&m.wire, ATTRIBUTE_TYPE, TYPE_TENSOR);
        wok_wire_end(&m.wire, a);
        node_end(&m, node);
    }
    wok_wire_mark node = make_node_start(&m, "Clip", "X", opset < 11 ? NULL : names[0], "Y");
    if (opset >= 11) wok_wire_put_text(&m.wire, NODE_INPUT, names[1]);
    if (opset < 11 && !isnan(low)) attr_float(&m, "min", low);
    if (opset < 11 && !isnan(high)) attr_float(&m, "max", high);
    node_end(&m, node);
    make_value(&m, GRAPH_INPUT, "X", WOK_F32, 1, three);
    make_value(&m, GRAPH_OUTPUT, "Y", WOK_F32, 1, three);
    return run(&m, &(feed){"X", WOK_F32, 1, {3}, x}, 1);
}

Test(onnx_cases, B05_clip_bounds_as_attributes_inputs_or_absent) {
    const int64_t three[1] = {3};
    answer a = clip(6, 0, 6, false);
    expect(&a, "attributes", 1, three, (float[]){0, .5f, 6}, 0);
    a = clip(13, NAN, 6, false);
    expect(&a, "no lower bound", 1, three, (float[]){-3, .5f, 6}, 0);
    a = clip(13, 0, 6, false);
    expect(&a, "initializers", 1, three, (float[]){0, .5f, 6}, 0);
    a = clip(13, 0, 6, true);
    expect(&a, "Constant nodes", 1, three, (float[]){0, .5f, 6}, 0);
    a = clip(13, 2, 1, false);
    expect(&a, "bounds that cross", 1, three, (float[]){1, 1, 1}, 0);
    a = clip(13, NAN, NAN, false);
    expect(&a, "no bounds", 1, three, (float[]){-3, .5f, 9}, 0);
}

/* Squeeze of 1 x 4 x 1 x 1; how: 'a'ttribute, 'i'nput or '-'. */
static answer squeeze(int64_t opset, char how, int64_t axis) {
    const float x[4] = {1, 2, 3, 4};
    make m = make_start(ctx, 7, opset);
    if (how == 'i') make_raw(&m, "A", WOK_I64, 1, (int64_t[]){1}, &axis, 8);
    wok_wire_mark node = make_node_start(&m, "Squeeze", "X", how == 'i' ? "A" : NULL, "Y");
    if (how == 'a') attr_ints(&m, "axes", 1, &axis);
    node_end(&m, node);
    make_value(&m, GRAPH_INPUT, "X", WOK_F32, 4, (int64_t[]){-1, 4, 1, 1});
    make_value(&m, GRAPH_OUTPUT, "Y", WOK_F32, 1, (int64_t[]){-1});
    return run(&m, &(feed){"X", WOK_F32, 4, {1, 4, 1, 1}, x}, 1);
}

Test(onnx_cases, B06_squeeze_axes_as_attribute_input_or_absent) {
    const float x[4] = {1, 2, 3, 4};
    answer a = squeeze(11, 'a', 2);
    expect(&a, "attribute", 3, (int64_t[]){1, 4, 1}, x, 0);
    a = squeeze(13, 'i', -1);
    expect(&a, "input", 3, (int64_t[]){1, 4, 1}, x, 0);
    a = squeeze(13, '-', 0);
    expect(&a, "absent", 1, (int64_t[]){4}, x, 0);
    a = squeeze(13, 'i', 1);
    expect_failure(&a, "an axis of size 4", "4");
    a = squeeze(11, 'a', 1);
    expect_failure(&a, "an axis of size 4", "4");
}

Test(onnx_cases, B07_reduce_mean_18_axes_input_and_noop_flag) {
    const float x[6] = {0, 1, 2, 3, 4, 5};
    for (int form = 0; form < 4; form++) { /* input [1]; empty input with the flag; no axes; opset 11 attribute [-1] */
        make m = make_start(ctx, 8, form == 3 ? 11 : 18);
        if (form == 0) make_raw(&m, "A", WOK_I64, 1, (int64_t[]){1}, (int64_t[]){1}, 8);
        if (form == 1) make_raw(&m, "A", WOK_I64, 1, (int64_t[]){0}, "", 0);
        wok_wire_mark node = make_node_start(&m, "ReduceMean", "X", form < 2 ? "A" : NULL, "Y");
        if (form == 0 || form == 3) attr_int(&m, "keepdims", 0);
        if (form == 1) attr_int(&m, "noop_with_empty_axes", 1);
        if (form == 3) attr_ints(&m, "axes", 1, (int64_t[]){-1});
        node_end(&m, node);
        make_value(&m, GRAPH_INPUT, "X", WOK_F32, 2, (int64_t[]){2, 3});
        make_value(&m, GRAPH_OUTPUT, "Y", WOK_F32, 1, (int64_t[]){-1});
        answer a = run(&m, &(feed){"X", WOK_F32, 2, {2, 3}, x}, 1);
        if (form == 1)
            expect(&a, "noop", 2, (int64_t[]){2, 3}, x, 0);
        else if (form == 2)
            expect(&a, "all", 2, (int64_t[]){1, 1}, (float[]){2.5f}, 1e-6f);
        else
            expect(&a, "last", 1, (int64_t[]){2}, (float[]){1, 4}, 1e-6f);
    }
}

static make default_model(int64_t ir) {
    make m = make_start(ctx, ir, 7);
    make_node(&m, "Add", "X", "B", "Y");
    make_value(&m, GRAPH_INPUT, "X", WOK_F32, 1, (int64_t[]){1});
    make_value(&m, GRAPH_INPUT, "B", WOK_F32, 1, (int64_t[]){1});
    make_raw(&m, "B", WOK_F32, 1, (int64_t[]){1}, (float[]){10}, 4);
    make_value(&m, GRAPH_OUTPUT, "Y", WOK_F32, 1, (int64_t[]){1});
    return m;
}

Test(onnx_cases, B08_initializer_that_is_also_an_input) {
    const float five = 5, one = 1;
    const feed feeds[2] = {{"X", WOK_F32, 1, {1}, &five}, {"B", WOK_F32, 1, {1}, &one}};
    make m = default_model(8);
    answer a = run(&m, feeds, 2);
    expect(&a, "IR 8, set", 1, (int64_t[]){1}, (float[]){6}, 0);
    m = default_model(8);
    a = run(&m, feeds, 1);
    expect(&a, "IR 8, not set", 1, (int64_t[]){1}, (float[]){15}, 0);
    m = default_model(3);
    a = run(&m, feeds, 1);
    expect(&a, "IR 3", 1, (int64_t[]){1}, (float[]){15}, 0);
    m = default_model(3);
    a = run(&m, feeds, 2);
    cr_assert_neq(a.status, WOK_OK, "in IR 3 the initializer is no input");
}

/* Set, cleared, set again: the session follows. */
Test(onnx_cases, B08_a_default_comes_back) {
    size_t bytes;
    make m = default_model(8);
    uint8_t *file = make_end(&m, &bytes);
    wok_model *model = NULL;
    wok_session *session = NULL;
    const float x = 5;
    const int64_t dims[1] = {1};
    cr_assert_eq(wok_model_load_memory(ctx, file, bytes, NULL, &model), WOK_OK, "%s", wok_ctx_error(ctx));
    cr_assert_eq(wok_session_create(model, NULL, &session), WOK_OK);
    cr_assert_eq(wok_session_set_input(session, 0, WOK_F32, dims, 1, &x, 4), WOK_OK);
    for (int i = 0; i < 6; i++) {
        const float b = (float)(100 + i);
        cr_assert_eq(wok_session_set_input(session, 1, WOK_F32, dims, 1, i % 2 ? &b : NULL, i % 2 ? 4 : 0), WOK_OK,
                     "%s", wok_session_error(session));
        cr_assert_eq(wok_session_run(session), WOK_OK, "%s", wok_session_error(session));
        cr_assert_eq(*(const float *)wok_session_output(session, 0)->data, i % 2 ? x + b : 15);
    }
    wok_session_free(&session);
    wok_model_free(&model);
    free(file);
}

Test(onnx_cases, B09_auto_pad_same_with_stride_2) {
    static const struct {
        const char *auto_pad;
        int64_t pads[4];
        float want[4];
    } cases[] = {{"SAME_UPPER", {0, 0, 0, 0}, {54, 45, 72, 54}},
                 {"SAME_LOWER", {0, 0, 0, 0}, {14, 30, 57, 99}},
                 {NULL, {0, 0, 1, 1}, {54, 45, 72, 54}},
                 {NULL, {1, 1, 1, 1}, {14, 30, 57, 99}}};
    float x[16], ones[9];
    for (int i = 0; i < 16; i++) x[i] = (float)(i + 1);
    for (int i = 0; i < 9; i++) ones[i] = 1;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        make m = make_start(ctx, 7, 13);
        make_raw(&m, "W", WOK_F32, 4, (int64_t[]){1, 1, 3, 3}, ones, sizeof ones);
        wok_wire_mark node = make_node_start(&m, "Conv", "X", "W", "Y");
        attr_ints(&m, "strides", 2, (int64_t[]){2, 2});
        if (cases[i].auto_pad)
            attr_text(&m, "auto_pad", cases[i].auto_pad);
        else
            attr_ints(&m, "pads", 4, cases[i].pads);
        node_end(&m, node);
        make_value(&m, GRAPH_INPUT, "X", WOK_F32, 4, (int64_t[]){1, 1, 4, 4});
        make_value(&m, GRAPH_OUTPUT, "Y", WOK_F32, 4, (int64_t[]){1, 1, 2, 2});
        answer a = run(&m, &(feed){"X", WOK_F32, 4, {1, 1, 4, 4}, x}, 1);
        expect(&a, cases[i].auto_pad ? cases[i].auto_pad : "pads", 4, (int64_t[]){1, 1, 2, 2}, cases[i].want, 0);
    }
}

static answer gather(wok_dtype dtype, const void *indices) {
    float data[12];
    for (int i = 0; i < 12; i++) data[i] = (float)i;
    make m = make_start(ctx, 7, 13);
    make_raw(&m, "D", WOK_F32, 2, (int64_t[]){3, 4}, data, sizeof data);
    make_node(&m, "Gather", "D", "I", "Y");
    make_value(&m, GRAPH_INPUT, "I", dtype, 1, (int64_t[]){2});
    make_value(&m, GRAPH_OUTPUT, "Y", WOK_F32, 2, (int64_t[]){2, 4});
    return run(&m, &(feed){"I", dtype, 1, {2}, indices}, 1);
}

Test(onnx_cases, B10_gather_of_negative_and_impossible_indices) {
    const float want[8] = {0, 1, 2, 3, 8, 9, 10, 11};
    answer a = gather(WOK_I64, (int64_t[]){0, -1});
    expect(&a, "i64", 2, (int64_t[]){2, 4}, want, 0);
    a = gather(WOK_I32, (int32_t[]){0, -1});
    expect(&a, "i32", 2, (int64_t[]){2, 4}, want, 0);
    a = gather(WOK_I64, (int64_t[]){0, 3});
    expect_failure(&a, "index 3", "3");
    cr_assert_eq(a.status, WOK_ERR_VALUE);
    a = gather(WOK_I64, (int64_t[]){0, -4});
    expect_failure(&a, "index -4", "-4");
    a = gather(WOK_I64, (int64_t[]){INT64_MAX, INT64_MIN});
    cr_assert_eq(a.status, WOK_ERR_VALUE);
    a = gather(WOK_I32, (int32_t[]){INT32_MAX, INT32_MIN});
    cr_assert_eq(a.status, WOK_ERR_VALUE);
}

static answer reshape(int64_t first, int64_t second, int64_t batch) {
    const float x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    make m = make_start(ctx, 7, 13);
    make_raw(&m, "S", WOK_I64, 1, (int64_t[]){2}, (int64_t[]){first, second}, 16);
    wok_wire_mark node = make_node_start(&m, "Reshape", "X", "S", "Y");
    wok_wire_put_text(&m.wire, NODE_NAME, "flatten_it");
    node_end(&m, node);
    make_value(&m, GRAPH_INPUT, "X", WOK_F32, 2, (int64_t[]){-1, 4});
    make_value(&m, GRAPH_OUTPUT, "Y", WOK_F32, 2, (int64_t[]){-1, -1});
    return run(&m, &(feed){"X", WOK_F32, 2, {batch, 4}, x}, 1);
}

Test(onnx_cases, B12_batch_baked_into_reshape) {
    const float x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    answer a = reshape(1, 4, 2);
    expect_failure(&a, "batch 2 of a model for batch 1", "flatten_it");
    cr_assert(strstr(a.error, "[2,4]") && strstr(a.error, "[1,4]"), "both shapes: %s", a.error);
    a = reshape(1, 4, 1);
    expect(&a, "batch 1", 2, (int64_t[]){1, 4}, x, 0);
    a = reshape(0, -1, 2);
    expect(&a, "free batch", 2, (int64_t[]){2, 4}, x, 0);
}

static int count_attention(const char *path) {
    wok_model *model = NULL;
    wok_session *session = NULL;
    int fused = 0;
    wok_session_info info;
    cr_assert_eq(wok_model_load(ctx, path, NULL, &model), WOK_OK, "%s: %s", path, wok_ctx_error(ctx));
    cr_assert_eq(wok_session_create(model, NULL, &session), WOK_OK, "%s: %s", path, wok_ctx_error(ctx));
    for (int i = 0; i < wok_model_input_count(model); i++)
        if (!wok_model_input(model, i)->optional)
            cr_assert_eq(wok_session_set_input(session, i, WOK_I64, (int64_t[]){2, 9}, 2, NULL, 144), WOK_OK, "%s",
                         wok_session_error(session));
    cr_assert_eq(wok_session_plan(session), WOK_OK, "%s: %s", path, wok_session_error(session));
    cr_assert_eq(wok_session_describe(session, &info), WOK_OK);
    for (int i = 0; i < info.nodes; i++) {
        wok_node_info node;
        cr_assert_eq(wok_session_node(session, i, &node), WOK_OK);
        fused += !strcmp(node.op, "Attention");
    }
    wok_session_free(&session);
    wok_model_free(&model);
    return fused;
}

Test(onnx_cases, B13_one_fused_attention_a_layer_whatever_the_exporter, .timeout = 600) {
    cr_assert_eq(count_attention(MODELS "bert-h64/ts13.onnx"), 2);
    cr_assert_eq(count_attention(MODELS "bert-h64"), 2);
    cr_assert_eq(count_attention(MODELS "distilbert-h64-cls"), 2);
    NEED_SHARED();
    static const char *const patterns[] = {"ts*", "dynamo*", "ortfused*", "half*", "external*"};
    int files = 0;
    for (size_t p = 0; p < sizeof patterns / sizeof *patterns; p++) {
        glob_t found;
        if (glob(path_of(SHARED "fixtures/*bert*/%s.onnx", patterns[p]), 0, NULL, &found) != 0) continue;
        for (size_t i = 0; i < found.gl_pathc; i++, files++)
            cr_expect_eq(count_attention(found.gl_pathv[i]), 2, "%s", found.gl_pathv[i]);
        globfree(&found);
    }
    cr_assert_geq(files, 30, "%d", files);
}

/* A convolution of a 1x1x5x5 picture; what does not fit is an error before anything runs. */
static answer conv(int rank, const int64_t *w, int64_t kernel, int64_t stride, int64_t group) {
    static const float zeros[81];
    const float x[25] = {0};
    size_t count = 1;
    for (int i = 0; i < rank; i++) count *= (size_t)w[i];
    make m = make_start(ctx, 7, 13);
    make_raw(&m, "W", WOK_F32, rank, w, zeros, count * 4);
    wok_wire_mark node = make_node_start(&m, "Conv", "X", "W", "Y");
    if (kernel != 99) attr_ints(&m, "kernel_shape", 2, (int64_t[]){kernel, kernel});
    if (stride != 99) attr_ints(&m, "strides", 2, (int64_t[]){stride, stride});
    if (group != 99) attr_int(&m, "group", group);
    node_end(&m, node);
    make_value(&m, GRAPH_INPUT, "X", WOK_F32, 4, (int64_t[]){1, 1, 5, 5});
    make_value(&m, GRAPH_OUTPUT, "Y", WOK_F32, 1, (int64_t[]){-1});
    return run(&m, &(feed){"X", WOK_F32, 4, {1, 1, 5, 5}, x}, 1);
}

Test(onnx_cases, B14_convolutions_that_cannot_be) {
    const int64_t plain[4] = {1, 1, 3, 3}, deep[5] = {1, 1, 3, 3, 3}, large[4] = {1, 1, 9, 9}, two[4] = {1, 2, 3, 3};
    enum { NONE = 99 };
    answer a = conv(4, plain, NONE, NONE, NONE);
    cr_assert_eq(a.status, WOK_OK, "%s", a.error);
    const struct {
        const char *what;
        answer a;
    } wrong[] = {{"a kernel of more axes than the picture", conv(5, deep, NONE, NONE, NONE)},
                 {"a kernel larger than the picture", conv(4, large, NONE, NONE, NONE)},
                 {"other channels", conv(4, two, NONE, NONE, NONE)},
                 {"another kernel_shape", conv(4, plain, 2, NONE, NONE)},
                 {"kernel 0", conv(4, plain, 0, NONE, NONE)},
                 {"kernel -3", conv(4, plain, -3, NONE, NONE)},
                 {"stride 0", conv(4, plain, NONE, 0, NONE)},
                 {"stride -1", conv(4, plain, NONE, -1, NONE)},
                 {"group 0", conv(4, plain, NONE, NONE, 0)},
                 {"group -1", conv(4, plain, NONE, NONE, -1)},
                 {"group 2 of one channel", conv(4, plain, NONE, NONE, 2)}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) expect_failure(&wrong[i].a, wrong[i].what, "Conv");
}

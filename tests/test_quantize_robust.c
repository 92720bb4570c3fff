/* test_quantize_robust.c - the quantiser: layers kept float by score and time, equal bytes, bad input, no memory. */
#define _GNU_SOURCE
#include "quantnets.h"

#include <unistd.h>

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

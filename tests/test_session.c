/* test_session.c - sessions as their users meet them: inputs, runs, many threads, fork, memory, failing allocations. */
#define _GNU_SOURCE
#include "pool.h"
#include "session.h"
#include "support.h"
#include "wok_npy.h"

#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- a model with a bit of everything: x[batch,seq,8] -> MatMul, Relu, Reshape by Shape arithmetic, MatMul, Softmax ---- */

enum { WIDTH = 8, HIDDEN = 96, CLASSES = 12 };
static float w1[WIDTH * HIDDEN], w2[HIDDEN * CLASSES], b1[HIDDEN];
static const int64_t one = 1, two = 2, minus_hidden[2] = {-1, HIDDEN}, zero = 0;

static wok_status build(wok_ctx *ctx, wok_model **model) {
    wok_model *m = NULL;
    *model = NULL;
    support_random(w1, WIDTH * HIDDEN, 1);
    support_random(w2, HIDDEN * CLASSES, 2);
    support_random(b1, HIDDEN, 3);
    wok_status status = wok_model_new(ctx, "test", &m);
    if (status != WOK_OK) return status;
    wok_model_set_opset(m, "", 17);
    wok_value x = wok_graph_input(m, "x", WOK_F32, 3, (int64_t[]){-1, -1, WIDTH}, (const char *[]){"batch", "seq", NULL});
    wok_value c1 = wok_graph_constant(m, "w1", WOK_F32, 2, (int64_t[]){WIDTH, HIDDEN}, w1, sizeof w1, WOK_DATA_BORROW);
    wok_value c2 = wok_graph_constant(m, "w2", WOK_F32, 2, (int64_t[]){HIDDEN, CLASSES}, w2, sizeof w2, WOK_DATA_COPY);
    wok_value bias = wok_graph_constant(m, "b1", WOK_F32, 1, (int64_t[]){HIDDEN}, b1, sizeof b1, WOK_DATA_BORROW);
    wok_value flat = wok_graph_constant(m, "flat", WOK_I64, 1, &two, minus_hidden, sizeof minus_hidden, WOK_DATA_COPY);
    wok_value z = wok_graph_constant(m, "zero", WOK_I64, 1, &one, &zero, sizeof zero, WOK_DATA_COPY);
    wok_value h = wok_graph_op(m, "MatMul", "", "up", (wok_value[]){x, c1}, 2, "h");
    h = wok_graph_op(m, "Add", "", "bias", (wok_value[]){h, bias}, 2, "hb");
    h = wok_graph_op(m, "Relu", "", "relu", &h, 1, "hidden");
    wok_value rows = wok_graph_op(m, "Reshape", "", "rows", (wok_value[]){h, flat}, 2, NULL);
    wok_value y = wok_graph_op(m, "MatMul", "", "down", (wok_value[]){rows, c2}, 2, NULL);
    wok_value shape = wok_graph_op(m, "Shape", "", "shape", &x, 1, NULL);
    wok_value n = wok_graph_op(m, "Gather", "", "first", (wok_value[]){shape, z}, 2, NULL);
    wok_value rest = wok_graph_constant(m, "rest", WOK_I64, 1, &one, &(int64_t){-1}, 8, WOK_DATA_COPY);
    wok_value target = wok_graph_op(m, "Concat", "", "target", (wok_value[]){n, rest}, 2, NULL);
    wok_node_set_int(m, wok_graph_last(m), "axis", 0);
    y = wok_graph_op(m, "Reshape", "", "back", (wok_value[]){y, target}, 2, NULL);
    y = wok_graph_op(m, "Softmax", "", "softmax", &y, 1, "y");
    wok_graph_output(m, y);
    status = wok_model_finish(m, NULL);
    if (status == WOK_OK) *model = m;
    else wok_model_free(&m);
    return status;
}

/* The same in double. */
static void expected(const float *x, int64_t batch, int64_t seq, float *y) {
    for (int64_t b = 0; b < batch; b++) {
        double total = 0, *out = malloc((size_t)(seq * CLASSES) * sizeof *out), most = -INFINITY;
        for (int64_t s = 0; s < seq; s++) {
            double hidden[HIDDEN];
            const float *row = x + (b * seq + s) * WIDTH;
            for (int j = 0; j < HIDDEN; j++) {
                hidden[j] = b1[j];
                for (int k = 0; k < WIDTH; k++) hidden[j] += (double)row[k] * w1[k * HIDDEN + j];
                if (hidden[j] < 0) hidden[j] = 0;
            }
            for (int c = 0; c < CLASSES; c++) {
                double sum = 0;
                for (int j = 0; j < HIDDEN; j++) sum += hidden[j] * w2[j * CLASSES + c];
                out[s * CLASSES + c] = sum;
                if (sum > most) most = sum;
            }
        }
        for (int64_t i = 0; i < seq * CLASSES; i++) total += out[i] = exp(out[i] - most);
        for (int64_t i = 0; i < seq * CLASSES; i++) y[b * seq * CLASSES + i] = (float)(out[i] / total);
        free(out);
    }
}

enum { MOST_BATCH = 8, MOST_SEQ = 64, MOST_IN = MOST_BATCH * MOST_SEQ * WIDTH, MOST_OUT = MOST_BATCH * MOST_SEQ * CLASSES };

static wok_status set_and_run(wok_session *s, const float *x, int64_t batch, int64_t seq) {
    wok_status status = wok_session_set_input(s, 0, WOK_F32, (int64_t[]){batch, seq, WIDTH}, 3, x,
                                              (size_t)(batch * seq * WIDTH) * sizeof *x);
    return status == WOK_OK ? wok_session_run(s) : status;
}

static void check_run(wok_session *s, int64_t batch, int64_t seq, unsigned seed) {
    static _Thread_local float x[MOST_IN], y[MOST_OUT];
    support_random(x, (size_t)(batch * seq * WIDTH), seed);
    wok_status status = set_and_run(s, x, batch, seq);
    cr_assert(status == WOK_OK, "%s", wok_session_error(s));
    expected(x, batch, seq, y);
    const wok_tensor *out = wok_session_output(s, 0);
    cr_assert(out->dtype == WOK_F32 && out->rank == 2 && out->dims[0] == batch && out->dims[1] == seq * CLASSES);
    double far = support_distance(out->data, y, (size_t)(batch * seq * CLASSES));
    cr_assert(far < 1e-5, "batch %d, seq %d: %g", (int)batch, (int)seq, far);
}

typedef struct fixture {
    support_heap heap;
    wok_ctx *ctx;
    wok_model *model;
    wok_session *session;
} fixture;

static fixture *open_with(int threads, const wok_session_options *options) {
    fixture *f = calloc(1, sizeof *f);
    f->ctx = support_ctx(threads, &f->heap);
    cr_assert(build(f->ctx, &f->model) == WOK_OK, "%s", wok_ctx_error(f->ctx));
    cr_assert(wok_session_create(f->model, options, &f->session) == WOK_OK, "%s", wok_ctx_error(f->ctx));
    return f;
}

static fixture *open_fixture(int threads) { return open_with(threads, NULL); }

static void close_fixture(fixture *f) {
    wok_session_free(&f->session);
    wok_model_free(&f->model);
    wok_ctx_free(&f->ctx);
    cr_assert(f->heap.blocks == 0 && f->heap.bytes == 0, "%ld blocks are left", (long)f->heap.blocks);
    free(f);
}

/* ---- runs ------------------------------------------------------------------------------------------------------------------ */

Test(session, right_for_every_shape) {
    for (int threads = 1; threads <= 3; threads++) {
        fixture *f = open_fixture(threads);
        cr_assert(wok_session_output(f->session, 0) == NULL, "before the first run");
        for (int64_t batch = 1; batch <= 3; batch++)
            for (int64_t seq = 1; seq <= 33; seq += 4) check_run(f->session, batch, seq, (unsigned)(batch * 100 + seq));
        check_run(f->session, 1, 5, 1);
        close_fixture(f);
    }
}

Test(session, same_bits_for_any_batch_and_any_number_of_threads) {
    static float x[MOST_IN], alone[MOST_SEQ * CLASSES];
    support_random(x, MOST_IN, 11);
    fixture *f = open_fixture(1), *g = open_fixture(2);
    cr_assert(set_and_run(f->session, x, 1, MOST_SEQ) == WOK_OK);
    memcpy(alone, wok_session_output(f->session, 0)->data, sizeof alone);
    for (int64_t batch = 1; batch <= MOST_BATCH; batch++) {
        cr_assert(set_and_run(f->session, x, batch, MOST_SEQ) == WOK_OK && set_and_run(g->session, x, batch, MOST_SEQ) == WOK_OK);
        const wok_tensor *a = wok_session_output(f->session, 0), *b = wok_session_output(g->session, 0);
        cr_assert(memcmp(a->data, alone, sizeof alone) == 0, "batch %d", (int)batch);
        cr_assert(memcmp(a->data, b->data, a->bytes) == 0, "threads");
    }
    close_fixture(f);
    close_fixture(g);
}

Test(session, inner_values_and_passes) {
    const char *const wanted[] = {"hidden", "y"};
    wok_session_options options = {.size = sizeof options, .outputs = wanted, .output_count = 2};
    fixture *f = open_with(1, &options);
    static float x[WIDTH * 3];
    support_random(x, WIDTH * 3, 5);
    cr_assert(set_and_run(f->session, x, 1, 3) == WOK_OK, "%s", wok_session_error(f->session));
    const wok_tensor *hidden = wok_session_output(f->session, 0);
    cr_assert(hidden->rank == 3 && hidden->dims[2] == HIDDEN);
    double sum = b1[7];
    for (int k = 0; k < WIDTH; k++) sum += (double)x[k] * w1[k * HIDDEN + 7];
    cr_assert(fabs(((const float *)hidden->data)[7] - (sum > 0 ? sum : 0)) < 1e-5);
    cr_assert_str_eq(wok_session_output_name(f->session, 0), "hidden");
    cr_assert(wok_session_output_count(f->session) == 2 && !wok_session_output_name(f->session, 2));

    wok_session *s = NULL;
    options = (wok_session_options){.size = sizeof options, .outputs = (const char *[]){"hiden"}, .output_count = 1};
    cr_assert(wok_session_create(f->model, &options, &s) == WOK_ERR_ARGUMENT && !s);
    cr_assert(strstr(wok_ctx_error(f->ctx), "'hiden'"));
    options = (wok_session_options){.size = sizeof options, .no_passes = (const char *[]){"fuse_everything"}, .no_pass_count = 1};
    cr_assert(wok_session_create(f->model, &options, &s) == WOK_ERR_ARGUMENT && !s);
    cr_assert(strstr(wok_ctx_error(f->ctx), "'fuse_everything'"));
    options = (wok_session_options){.size = sizeof options, .precision = WOK_PRECISION_INT8};
    cr_assert(wok_session_create(f->model, &options, &s) == WOK_ERR_UNSUPPORTED && !s);
    close_fixture(f);
}

Test(session, without_any_rewrite_the_answer_is_the_same) {
    const char *names[32];
    int count = 0;
    for (int i = 0; wok_pass_name(i); i++)
        if (strcmp(wok_pass_name(i), "canonicalize") != 0) names[count++] = wok_pass_name(i);
    cr_assert(count > 0 && wok_pass_name(-1) == NULL);
    wok_session_options options = {.size = sizeof options, .no_passes = names, .no_pass_count = count};
    fixture *f = open_with(2, &options);
    for (int64_t seq = 1; seq < 20; seq += 3) check_run(f->session, 2, seq, (unsigned)seq);
    close_fixture(f);
}

Test(session, bound_outputs_are_written_directly) {
    fixture *f = open_fixture(1);
    static float x[2 * 4 * WIDTH], mine[2 * 4 * CLASSES + 1], want[2 * 4 * CLASSES];
    support_random(x, 2 * 4 * WIDTH, 3);
    expected(x, 2, 4, want);
    mine[2 * 4 * CLASSES] = 42;
    cr_assert(wok_session_bind_output(f->session, 0, mine, sizeof want) == WOK_OK);
    cr_assert(set_and_run(f->session, x, 2, 4) == WOK_OK);
    cr_assert(wok_session_output(f->session, 0)->data == mine);
    cr_assert(support_distance(mine, want, 2 * 4 * CLASSES) < 1e-5 && mine[2 * 4 * CLASSES] == 42);
    cr_assert(set_and_run(f->session, x, 2, 5) == WOK_ERR_SHAPE, "too small for this shape");
    cr_assert(strstr(wok_session_error(f->session), "'y' is f32[2,60] and takes 480 bytes, but 384 were bound"), "%s",
              wok_session_error(f->session));
    cr_assert(wok_session_output(f->session, 0) == NULL);
    cr_assert(wok_session_bind_output(f->session, 0, x, sizeof want) == WOK_OK);
    cr_assert(set_and_run(f->session, x, 2, 4) == WOK_ERR_ARGUMENT && strstr(wok_session_error(f->session), "overlaps"));
    cr_assert(wok_session_bind_output(f->session, 0, NULL, 0) == WOK_OK);
    cr_assert(set_and_run(f->session, x, 2, 4) == WOK_OK && wok_session_output(f->session, 0)->data != mine);
    cr_assert(support_distance(wok_session_output(f->session, 0)->data, want, 2 * 4 * CLASSES) < 1e-5);
    cr_assert(wok_session_bind_output(f->session, 1, mine, 4) == WOK_ERR_ARGUMENT);
    close_fixture(f);
}

Test(session, describes_and_profiles) {
    wok_session_options options = {.size = sizeof options, .profile = true};
    fixture *f = open_with(2, &options);
    wok_session_info info;
    wok_node_info node;
    cr_assert(wok_session_describe(f->session, &info) == WOK_ERR_STATE);
    cr_assert(wok_session_set_input(f->session, 0, WOK_F32, (int64_t[]){1, 2, WIDTH}, 3, NULL, 2 * WIDTH * 4) == WOK_OK);
    cr_assert(wok_session_plan(f->session) == WOK_OK, "a plan needs no data: %s", wok_session_error(f->session));
    cr_assert(wok_session_run(f->session) == WOK_ERR_ARGUMENT && strstr(wok_session_error(f->session), "no data"));
    cr_assert(wok_session_describe(f->session, &info) == WOK_OK);
    cr_assert(info.threads == 2 && info.nodes > 0 && info.packed_bytes >= (int64_t)sizeof w1 && info.arena_bytes > 0);
    for (int i = 0; i < 10; i++) check_run(f->session, 1, 2, 5);
    int64_t macs = 0;
    int names = 0;
    double us = 0;
    for (int i = 0; i < info.nodes; i++) {
        cr_assert(wok_session_node(f->session, i, &node) == WOK_OK);
        cr_assert(node.us >= 0 && node.fused_count >= 1 && node.kernel && node.isa && node.rank >= 0);
        us += node.us;
        macs += node.macs;
        for (int k = 0; k < node.fused_count; k++)
            names += !strcmp(node.fused_from[k], "up") || !strcmp(node.fused_from[k], "relu") || !strcmp(node.fused_from[k], "bias");
    }
    cr_assert(us > 0 && names == 3, "%d of the three nodes are named", names);
    cr_assert(macs == 2 * (WIDTH * HIDDEN + HIDDEN * CLASSES), "%lld", (long long)macs);
    cr_assert(wok_session_node(f->session, info.nodes, &node) == WOK_ERR_ARGUMENT);
    close_fixture(f);
}

/* ---- wrong inputs -------------------------------------------------------------------------------------------------------- */

static void refuse(wok_session *s, wok_status want, wok_status got, const char *text) {
    cr_assert(got == want, "%s instead of %s", wok_status_name(got), wok_status_name(want));
    cr_assert(strstr(wok_session_error(s), text), "'%s' lacks '%s'", wok_session_error(s), text);
}

Test(session, inputs_that_do_not_fit) {
    fixture *f = open_fixture(1);
    wok_session *s = f->session;
    static float x[64];
    const int64_t good[] = {1, 2, WIDTH}, wrong[] = {1, 2, 9}, huge[] = {INT64_MAX, 2, WIDTH}, negative[] = {-1, 2, WIDTH};
    refuse(s, WOK_ERR_ARGUMENT, wok_session_set_input(s, 1, WOK_F32, good, 3, x, 64), "there is no input 1");
    refuse(s, WOK_ERR_SHAPE, wok_session_set_input(s, 0, WOK_F64, good, 3, x, 128),
           "input 'x' was given as f64[1,2,8], but the model wants x f32[batch,seq,8]");
    refuse(s, WOK_ERR_SHAPE, wok_session_set_input(s, 0, WOK_F32, good, 2, x, 8), "f32[1,2]");
    refuse(s, WOK_ERR_SHAPE, wok_session_set_input(s, 0, WOK_F32, wrong, 3, x, 72), "f32[1,2,9]");
    refuse(s, WOK_ERR_SHAPE, wok_session_set_input(s, 0, WOK_F32, good, 3, x, 60), "takes 64 bytes, but 60");
    refuse(s, WOK_ERR_SHAPE, wok_session_set_input(s, 0, WOK_F32, huge, 3, x, 60), "can be stored");
    refuse(s, WOK_ERR_SHAPE, wok_session_set_input(s, 0, WOK_F32, negative, 3, x, 60), "can be stored");
    refuse(s, WOK_ERR_ARGUMENT, wok_session_set_input(s, 0, WOK_F32, good, 9, x, 64), "rank");
    refuse(s, WOK_ERR_ARGUMENT, wok_session_set_input(s, 0, WOK_F32, NULL, 3, x, 64), "dims");
    refuse(s, WOK_ERR_ARGUMENT, wok_session_set_input(s, 0, WOK_F32, good, 3, (char *)x + 1, 64), "aligned");
    refuse(s, WOK_ERR_ARGUMENT, wok_session_run(s), "input 'x' is missing");
    check_run(s, 1, 2, 1);
    cr_assert_str_empty(wok_session_error(s));
    close_fixture(f);
}

/* A small encoder's face: three inputs of one shape. */
static wok_session *three_inputs(wok_ctx *ctx, wok_model **model) {
    wok_model *m = NULL;
    wok_session *s = NULL;
    cr_assert(wok_model_new(ctx, "test", &m) == WOK_OK);
    wok_model_set_opset(m, "", 17);
    static const char *const names[] = {"input_ids", "attention_mask", "token_type_ids"};
    wok_value sum = WOK_ABSENT;
    for (int i = 0; i < 3; i++) {
        wok_value in = wok_graph_input(m, names[i], WOK_I64, 2, (int64_t[]){-1, -1}, (const char *[]){"batch", "sequence"});
        sum = i ? wok_graph_op(m, "Add", "", NULL, (wok_value[]){sum, in}, 2, NULL) : in;
    }
    wok_graph_output(m, sum);
    cr_assert(wok_model_finish(m, NULL) == WOK_OK && wok_session_create(m, NULL, &s) == WOK_OK, "%s", wok_ctx_error(ctx));
    *model = m;
    return s;
}

Test(session, b42_a_missing_input_lists_wanted_and_given) {
    wok_ctx *ctx = support_ctx(1, NULL);
    wok_model *m;
    wok_session *s = three_inputs(ctx, &m);
    static const int64_t ids[8];
    const int64_t shape[] = {1, 8}, other[] = {1, 7};
    wok_session_set_input(s, 0, WOK_I64, shape, 2, ids, sizeof ids);
    wok_session_set_input(s, 1, WOK_I64, shape, 2, ids, sizeof ids);
    refuse(s, WOK_ERR_ARGUMENT, wok_session_run(s), "input 'token_type_ids' is missing");
    refuse(s, WOK_ERR_ARGUMENT, wok_session_run(s),
           "wants input_ids i64[batch,sequence], attention_mask i64[batch,sequence], token_type_ids i64[batch,sequence]");
    refuse(s, WOK_ERR_ARGUMENT, wok_session_run(s), "given: input_ids i64[1,8], attention_mask i64[1,8]");
    refuse(s, WOK_ERR_SHAPE, wok_session_set_input(s, 2, WOK_I32, shape, 2, ids, 32),
           "'token_type_ids' was given as i32[1,8], but the model wants token_type_ids i64[batch,sequence]");
    cr_assert(wok_session_set_input(s, 2, WOK_I64, other, 2, ids, 56) == WOK_OK);
    refuse(s, WOK_ERR_SHAPE, wok_session_run(s), "do not agree on the dimension 'sequence'");
    cr_assert(wok_session_set_input(s, 2, WOK_I64, shape, 2, ids, sizeof ids) == WOK_OK);
    cr_assert(wok_session_run(s) == WOK_OK, "%s", wok_session_error(s));
    wok_session_free(&s);
    wok_model_free(&m);
    wok_ctx_free(&ctx);
}

static wok_session *reshape(wok_ctx *ctx, const int64_t target[2], wok_model **model) {
    wok_model *m = NULL;
    wok_session *s = NULL;
    cr_assert(wok_model_new(ctx, "test", &m) == WOK_OK);
    wok_model_set_opset(m, "", 17);
    wok_value x = wok_graph_input(m, "x", WOK_F32, 2, (int64_t[]){-1, 4}, (const char *[]){"N", NULL});
    wok_value t = wok_graph_constant(m, "target", WOK_I64, 1, &two, target, 16, WOK_DATA_COPY);
    wok_graph_output(m, wok_graph_op(m, "Reshape", "", "baked", (wok_value[]){x, t}, 2, "y"));
    cr_assert(wok_model_finish(m, NULL) == WOK_OK && wok_session_create(m, NULL, &s) == WOK_OK, "%s", wok_ctx_error(ctx));
    *model = m;
    return s;
}

Test(session, b12_batch_baked_into_reshape) {
    wok_ctx *ctx = support_ctx(1, NULL);
    wok_model *m;
    static const float x[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    wok_session *s = reshape(ctx, (int64_t[]){1, 4}, &m);
    cr_assert(wok_session_set_input(s, 0, WOK_F32, (int64_t[]){2, 4}, 2, x, 32) == WOK_OK);
    wok_status status = wok_session_run(s);
    cr_assert(status == WOK_ERR_SHAPE, "never a wrong answer");
    cr_assert(strstr(wok_session_error(s), "baked") && strstr(wok_session_error(s), "[2,4]") &&
                  strstr(wok_session_error(s), "[1,4]"),
              "node and both shapes are named: %s", wok_session_error(s));
    cr_assert(wok_session_set_input(s, 0, WOK_F32, (int64_t[]){1, 4}, 2, x, 16) == WOK_OK);
    cr_assert(wok_session_run(s) == WOK_OK, "and the session goes on: %s", wok_session_error(s));
    wok_session_free(&s);
    wok_model_free(&m);
    s = reshape(ctx, (int64_t[]){0, -1}, &m);
    cr_assert(wok_session_set_input(s, 0, WOK_F32, (int64_t[]){2, 4}, 2, x, 32) == WOK_OK && wok_session_run(s) == WOK_OK);
    cr_assert(wok_session_output(s, 0)->dims[0] == 2 && memcmp(wok_session_output(s, 0)->data, x, 32) == 0);
    wok_session_free(&s);
    wok_model_free(&m);
    wok_ctx_free(&ctx);
}

Test(session, b08_defaults_can_be_overridden_and_cleared) {
    wok_ctx *ctx = support_ctx(1, NULL);
    wok_model *m = NULL;
    wok_session *s = NULL;
    const float ten = 10, five = 5, instead = 1;
    cr_assert(wok_model_new(ctx, "test", &m) == WOK_OK);
    wok_model_set_opset(m, "", 17);
    wok_value x = wok_graph_input(m, "x", WOK_F32, 1, &one, NULL), b = wok_graph_input(m, "b", WOK_F32, 1, &one, NULL);
    wok_graph_constant(m, "b", WOK_F32, 1, &one, &ten, 4, WOK_DATA_COPY);
    wok_graph_output(m, wok_graph_op(m, "Add", "", NULL, (wok_value[]){x, b}, 2, "y"));
    cr_assert(wok_model_finish(m, NULL) == WOK_OK && wok_session_create(m, NULL, &s) == WOK_OK, "%s", wok_ctx_error(ctx));
    for (int round = 0; round < 3; round++) {
        cr_assert(wok_session_set_input(s, 0, WOK_F32, &one, 1, &five, 4) == WOK_OK && wok_session_run(s) == WOK_OK);
        cr_assert(*(const float *)wok_session_output(s, 0)->data == 15, "nothing fed");
        cr_assert(wok_session_set_input(s, 1, WOK_F32, &one, 1, &instead, 4) == WOK_OK && wok_session_run(s) == WOK_OK);
        cr_assert(*(const float *)wok_session_output(s, 0)->data == 6, "fed: %s", wok_session_error(s));
        cr_assert(wok_session_set_input(s, 1, WOK_F32, NULL, 0, NULL, 0) == WOK_OK);
    }
    wok_session_free(&s);
    wok_model_free(&m);
    wok_ctx_free(&ctx);
}

/* ---- sizes that depend on values --------------------------------------------------------------------------------------------- */

Test(session, sizes_given_as_an_input) {
    wok_ctx *ctx = support_ctx(1, NULL);
    wok_model *m = NULL;
    wok_session *s = NULL;
    cr_assert(wok_model_new(ctx, "test", &m) == WOK_OK);
    wok_model_set_opset(m, "", 17);
    wok_value x = wok_graph_input(m, "x", WOK_F32, 1, (int64_t[]){12}, NULL);
    wok_value shape = wok_graph_input(m, "shape", WOK_I64, 1, &two, NULL);
    wok_value y = wok_graph_op(m, "Reshape", "", NULL, (wok_value[]){x, shape}, 2, NULL);
    wok_graph_output(m, wok_graph_op(m, "Transpose", "", NULL, &y, 1, "y"));
    cr_assert(wok_model_finish(m, NULL) == WOK_OK && wok_session_create(m, NULL, &s) == WOK_OK, "%s", wok_ctx_error(ctx));
    float data[12];
    for (int i = 0; i < 12; i++) data[i] = (float)i;
    const int64_t shapes[][2] = {{3, 4}, {2, 6}, {12, 1}, {3, 4}, {5, 3}, {4, 3}};
    cr_assert(wok_session_set_input(s, 0, WOK_F32, (int64_t[]){12}, 1, data, sizeof data) == WOK_OK);
    for (int i = 0; i < 6; i++) {
        cr_assert(wok_session_set_input(s, 1, WOK_I64, &two, 1, shapes[i], 16) == WOK_OK);
        wok_status status = wok_session_run(s);
        if (i == 4) {
            cr_assert(status == WOK_ERR_SHAPE, "5 x 3 is not 12");
            continue;
        }
        cr_assert(status == WOK_OK, "%s", wok_session_error(s));
        const wok_tensor *out = wok_session_output(s, 0);
        int64_t rows = shapes[i][0], cols = shapes[i][1];
        cr_assert(out->dims[0] == cols && out->dims[1] == rows);
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < cols; c++) cr_assert(((const float *)out->data)[c * rows + r] == data[r * cols + c]);
        cr_assert(!s->plan->eager, "a plan all the same");
    }
    wok_session_free(&s);
    wok_model_free(&m);
    wok_ctx_free(&ctx);
}

Test(session, sizes_that_only_the_data_tells) {
    support_heap heap = {0};
    wok_ctx *ctx = support_ctx(2, &heap);
    wok_model *m = NULL;
    wok_session *s = NULL;
    cr_assert(wok_model_new(ctx, "test", &m) == WOK_OK);
    wok_model_set_opset(m, "", 17);
    wok_value x = wok_graph_input(m, "x", WOK_F32, 2, (int64_t[]){-1, 40}, NULL);
    wok_value y = wok_graph_op(m, "Relu", "", NULL, &x, 1, NULL);
    y = wok_graph_op(m, "NonZero", "", NULL, &y, 1, NULL);
    wok_graph_output(m, wok_graph_op(m, "Transpose", "", NULL, &y, 1, "y"));
    wok_graph_output(m, x);
    cr_assert(wok_model_finish(m, NULL) == WOK_OK && wok_session_create(m, NULL, &s) == WOK_OK, "%s", wok_ctx_error(ctx));
    static float data[80];
    for (int round = 0; round < 5; round++) {
        support_random(data, 80, (unsigned)round + 1);
        int64_t positive = 0;
        for (int i = 0; i < 80; i++) positive += data[i] > 0;
        cr_assert(wok_session_set_input(s, 0, WOK_F32, (int64_t[]){2, 40}, 2, data, sizeof data) == WOK_OK);
        cr_assert(wok_session_run(s) == WOK_OK, "%s", wok_session_error(s));
        const wok_tensor *out = wok_session_output(s, 0);
        cr_assert(s->plan->eager && out->dims[0] == positive && out->dims[1] == 2);
        const int64_t *at = out->data;
        for (int64_t i = 0; i < positive; i++) cr_assert(data[at[2 * i] * 40 + at[2 * i + 1]] > 0);
        cr_assert(memcmp(wok_session_output(s, 1)->data, data, sizeof data) == 0);
    }
    int64_t small[2];
    cr_assert(wok_session_bind_output(s, 0, small, sizeof small) == WOK_OK);
    refuse(s, WOK_ERR_SHAPE, wok_session_run(s), "16 were bound");
    wok_session_free(&s);
    wok_model_free(&m);
    wok_ctx_free(&ctx);
    cr_assert(heap.blocks == 0);
}

Test(session, a_value_out_of_range_names_the_node) {
    wok_ctx *ctx = support_ctx(1, NULL);
    wok_model *m = NULL;
    wok_session *s = NULL;
    static const float table[12];
    cr_assert(wok_model_new(ctx, "test", &m) == WOK_OK);
    wok_model_set_opset(m, "", 17);
    wok_value ids = wok_graph_input(m, "ids", WOK_I64, 1, (int64_t[]){-1}, NULL);
    wok_value words = wok_graph_constant(m, "words", WOK_F32, 2, (int64_t[]){3, 4}, table, sizeof table, WOK_DATA_BORROW);
    wok_graph_output(m, wok_graph_op(m, "Gather", "", "lookup", (wok_value[]){words, ids}, 2, "y"));
    cr_assert(wok_model_finish(m, NULL) == WOK_OK && wok_session_create(m, NULL, &s) == WOK_OK, "%s", wok_ctx_error(ctx));
    const int64_t bad[2] = {1, 3}, good[2] = {0, -1};
    cr_assert(wok_session_set_input(s, 0, WOK_I64, &two, 1, bad, 16) == WOK_OK);
    refuse(s, WOK_ERR_VALUE, wok_session_run(s), "'lookup' (Gather)");
    refuse(s, WOK_ERR_VALUE, wok_session_run(s), "3");
    cr_assert(wok_session_set_input(s, 0, WOK_I64, &two, 1, good, 16) == WOK_OK);
    cr_assert(wok_session_run(s) == WOK_OK, "and the session goes on");
    wok_session_free(&s);
    wok_model_free(&m);
    wok_ctx_free(&ctx);
}

/* ---- memory ---------------------------------------------------------------------------------------------------------------------- */

Test(memory, a_cached_shape_allocates_nothing) {
    fixture *f = open_fixture(2);
    for (int64_t seq = 1; seq <= 10; seq++) check_run(f->session, 2, seq, 1);
    long calls = f->heap.calls;
    f->heap.fail_at = calls + 1;
    f->heap.lasting = true;
    for (int round = 0; round < 5; round++)
        for (int64_t seq = 1; seq <= 10; seq++) check_run(f->session, 2, seq, (unsigned)seq);
    cr_assert(f->heap.calls == calls, "%ld allocations", f->heap.calls - calls);
    close_fixture(f);
}

Test(memory, b59_a_thousand_runs_of_fifty_shapes_leave_it_where_it_was) {
    fixture *f = open_fixture(2);
    for (int i = 0; i < 100; i++) check_run(f->session, 1 + i % 5, 1 + i * 7 % MOST_SEQ, 1);
    check_run(f->session, MOST_BATCH, MOST_SEQ, 1);
    size_t peak, after, before = 0;
    for (int i = 0; i < 1000; i++) {
        check_run(f->session, 1 + i % 5, 1 + i / 5 % 10 * 6, (unsigned)i);
        if (i == 100) before = wok_ctx_memory(f->ctx, NULL);
    }
    after = wok_ctx_memory(f->ctx, &peak);
    cr_assert(after <= before + before / 20, "%zu bytes, then %zu", before, after);
    cr_assert(f->session->plan_count <= 16);
    cr_assert(f->heap.bytes == (long)after, "the context counts what it holds");
    wok_session_trim(f->session);
    cr_assert(wok_session_output(f->session, 0) == NULL);
    cr_assert(wok_ctx_memory(f->ctx, NULL) < after);
    check_run(f->session, 2, 3, 1);
    close_fixture(f);
}

Test(memory, b59_the_limit_is_an_error_and_not_the_end) {
    support_heap heap = {0};
    wok_ctx *ctx = support_ctx(1, &heap);
    wok_model *m = NULL;
    wok_session *s = NULL;
    cr_assert(build(ctx, &m) == WOK_OK && wok_session_create(m, NULL, &s) == WOK_OK);
    check_run(s, 1, 1, 1);
    size_t small = wok_ctx_memory(ctx, NULL);
    wok_session_free(&s);
    wok_model_free(&m);
    wok_ctx_free(&ctx);

    wok_ctx_options options = {.size = sizeof options, .threads = 1, .memory_limit = small + 100000};
    ctx = wok_ctx_create(&options);
    cr_assert(build(ctx, &m) == WOK_OK && wok_session_create(m, NULL, &s) == WOK_OK, "%s", wok_ctx_error(ctx));
    check_run(s, 1, 1, 1);
    static float x[MOST_IN];
    refuse(s, WOK_ERR_LIMIT, set_and_run(s, x, MOST_BATCH, MOST_SEQ), "memory limit");
    check_run(s, 1, 1, 1);
    wok_session_free(&s);
    wok_model_free(&m);
    wok_ctx_free(&ctx);
}

/* Node by node, every tensor in memory of its own, gives the same bits as the plan that shares it. */
static void compare_with_eager(wok_session *s) {
    wok_type types[8] = {{0}};
    void *bound[8] = {NULL};
    size_t sizes[8] = {0};
    wok_eager eager = {0};
    for (int i = 0; i < wok_model_input_count(s->model); i++) {
        const wok_session_input *in = &s->inputs[i];
        types[i] = (wok_type){.dtype = in->dtype, .rank = in->rank, .data = in->data, .bytes = in->bytes};
        memcpy(types[i].dims, in->dims, sizeof in->dims);
    }
    wok_fp_state fp = wok_fp_enter();
    cr_assert(wok_eager_run(s->program, types, bound, sizes, &eager) == WOK_OK, "%s", wok_ctx_error(s->ctx));
    wok_fp_leave(fp);
    for (int i = 0; i < wok_session_output_count(s); i++) {
        const wok_tensor *a = wok_session_output(s, i), *b = &eager.outputs[i];
        cr_assert(a->bytes == b->bytes && a->rank == b->rank && memcmp(a->dims, b->dims, (size_t)a->rank * 8) == 0);
        cr_assert(memcmp(a->data, b->data, a->bytes) == 0);
    }
    wok_eager_clear(s->ctx, &eager);
}

/* Real models, from every exporter: once their shape is planned, no run allocates. */
static void run_fixture(const char *folder, const char *file, int *count) {
    char path[4096];
    support_heap heap = {0};
    wok_ctx *ctx = support_ctx(2, &heap);
    wok_model *m = NULL;
    wok_session *s = NULL;
    wok_tensor inputs[8] = {{0}};
    snprintf(path, sizeof path, "fixtures/%s/%s", folder, file);
    cr_assert(wok_model_load(ctx, support_shared(path), NULL, &m) == WOK_OK, "%s: %s", path, wok_ctx_error(ctx));
    cr_assert(wok_session_create(m, NULL, &s) == WOK_OK, "%s: %s", path, wok_ctx_error(ctx));
    for (int i = 0; i < wok_model_input_count(m); i++) {
        snprintf(path, sizeof path, "fixtures/%s/float.in.%s.npy", folder, wok_model_input(m, i)->name);
        inputs[i] = support_npy(ctx, support_shared(path));
        cr_assert(wok_session_set_input(s, i, inputs[i].dtype, inputs[i].dims, inputs[i].rank, inputs[i].data,
                                        inputs[i].bytes) == WOK_OK, "%s", wok_session_error(s));
    }
    cr_assert(wok_session_run(s) == WOK_OK, "%s", wok_session_error(s));
    cr_assert(!s->plan->eager, "%s/%s has sizes that depend on data", folder, file);
    compare_with_eager(s);
    heap.fail_at = heap.calls + 1;
    heap.lasting = true;
    for (int i = 0; i < 3; i++) cr_assert(wok_session_run(s) == WOK_OK, "%s/%s: %s", folder, file, wok_session_error(s));
    cr_assert(heap.failures == 0);
    (*count)++;
    for (int i = 0; i < 8; i++) wok_npy_free(ctx, &inputs[i]);
    wok_session_free(&s);
    wok_model_free(&m);
    wok_ctx_free(&ctx);
    cr_assert(heap.blocks == 0);
}

Test(memory, exported_models_allocate_nothing_when_planned, .timeout = 300) {
    static const char *const folders[] = {"bert-h64", "distilbert-h64-cls", "resnet18-w8", "mobilenetv2-w025", "mobilenetv2-keras"};
    static const char *const files[] = {"ts11.onnx", "ts13.onnx", "ts17.onnx", "ts17-sdpa.onnx", "bn13.onnx", "dynamo18.onnx",
                                        "dynamo18-sdpa.onnx", "dynamo21.onnx", "ortfused13.onnx", "half13.onnx",
                                        "external13.onnx", "tf2onnx15.onnx"};
    if (!support_has_shared()) cr_skip_test("../shared is absent");
    int count = 0;
    for (size_t f = 0; f < sizeof folders / sizeof *folders; f++)
        for (size_t k = 0; k < sizeof files / sizeof *files; k++) {
            char path[512];
            snprintf(path, sizeof path, WOK_SOURCE_DIR "/../shared/fixtures/%s/%s", folders[f], files[k]);
            if (access(path, R_OK) == 0) run_fixture(folders[f], files[k], &count);
        }
    cr_assert(count > 20, "only %d models were run", count);
}

/* Build, plan, run, plan anew, with the nth allocation failing: a status, a sentence, nothing leaked, nothing wrong. */
static bool everything(support_heap *heap, int threads) {
    wok_ctx *ctx = support_ctx(threads, heap);
    if (!ctx) return false;
    wok_model *m = NULL;
    wok_session *s = NULL;
    static float x[2 * 9 * WIDTH], y[2 * 9 * CLASSES];
    support_random(x, 2 * 9 * WIDTH, 1);
    wok_status status = build(ctx, &m);
    if (status == WOK_OK) status = wok_session_create(m, NULL, &s);
    if (status != WOK_OK) {
        cr_assert(status == WOK_ERR_MEMORY, "%s: %s", wok_status_name(status), wok_ctx_error(ctx));
        cr_assert_str_not_empty(wok_ctx_error(ctx));
        cr_assert(!s);
    }
    bool failed = status != WOK_OK;
    for (int64_t seq = 1; s && seq <= 9; seq += 4) {
        status = set_and_run(s, x, 2, seq);
        if (status != WOK_OK) {
            failed = true;
            cr_assert(status == WOK_ERR_MEMORY, "%s: %s", wok_status_name(status), wok_session_error(s));
            cr_assert_str_not_empty(wok_session_error(s));
            if (!heap->lasting) cr_assert(set_and_run(s, x, 2, seq) == WOK_OK, "the session stays usable");
        }
        if (status != WOK_OK && heap->lasting) continue;
        expected(x, 2, seq, y);
        cr_assert(support_distance(wok_session_output(s, 0)->data, y, (size_t)(2 * seq * CLASSES)) < 1e-5);
    }
    wok_session_free(&s);
    wok_model_free(&m);
    wok_ctx_free(&ctx);
    return !failed;
}

Test(memory, failing_allocation_n_for_all_n, .timeout = 600) {
    for (int lasting = 0; lasting < 2; lasting++) {
        long n = 1;
        for (bool more = true; more; n++) {
            support_heap heap = {.fail_at = n, .lasting = lasting};
            bool ok = everything(&heap, 1 + (int)(n % 2));
            cr_assert(heap.blocks == 0 && heap.bytes == 0, "failing call %ld leaks %ld blocks", n, (long)heap.blocks);
            cr_assert(!ok || heap.failures == 0 || !lasting, "call %ld failed and nobody noticed", n);
            more = heap.failures > 0;
        }
        cr_assert(n > 50, "only %ld allocations", n);
    }
}

/* ---- threads and processes --------------------------------------------------------------------------------------------------------- */

typedef struct crowd {
    wok_model *model;
    int index;
    const float (*want)[MOST_OUT];
    const float *x;
    const char *wrong;
} crowd;

enum { SHAPES = 6 };

static void *one_of_many(void *arg) {
    crowd *c = arg;
    wok_session *s = NULL;
    if (wok_session_create(c->model, NULL, &s) != WOK_OK) {
        c->wrong = "no session";
        return NULL;
    }
    for (int i = 0; i < 100 && !c->wrong; i++) {
        int shape = (i + c->index) % SHAPES;
        int64_t batch = 1 + shape % 3, seq = 3 + 5 * shape;
        if (set_and_run(s, c->x, batch, seq) != WOK_OK) c->wrong = "a run failed";
        else if (memcmp(wok_session_output(s, 0)->data, c->want[shape], wok_session_output(s, 0)->bytes) != 0)
            c->wrong = "other bits";
    }
    wok_session_free(&s);
    return NULL;
}

Test(threads, b78_one_model_in_eight_threads_gives_the_same_bits) {
    fixture *f = open_fixture(2);
    static float x[MOST_IN], want[SHAPES][MOST_OUT];
    support_random(x, MOST_IN, 9);
    for (int shape = 0; shape < SHAPES; shape++) {
        cr_assert(set_and_run(f->session, x, 1 + shape % 3, 3 + 5 * shape) == WOK_OK);
        memcpy(want[shape], wok_session_output(f->session, 0)->data, wok_session_output(f->session, 0)->bytes);
    }
    size_t with_one = wok_ctx_memory(f->ctx, NULL);
    wok_session_free(&f->session); /* so that the crowd builds the program, all at once */
    size_t peak, base = wok_ctx_memory(f->ctx, NULL);
    pthread_t threads[8];
    crowd crowds[8];
    for (int i = 0; i < 8; i++) {
        crowds[i] = (crowd){f->model, i, (const float(*)[MOST_OUT])want, x, NULL};
        pthread_create(&threads[i], NULL, one_of_many, &crowds[i]);
    }
    for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 8; i++) cr_assert(!crowds[i].wrong, "%s", crowds[i].wrong);
    cr_assert(wok_ctx_memory(f->ctx, &peak) == base);
    (void)with_one;
    close_fixture(f);
}

Test(threads, sessions_share_packed_weights) {
    fixture *f = open_fixture(1);
    size_t before = wok_ctx_memory(f->ctx, NULL);
    wok_session *more[10];
    for (int i = 0; i < 10; i++) cr_assert(wok_session_create(f->model, NULL, &more[i]) == WOK_OK);
    size_t each = (wok_ctx_memory(f->ctx, NULL) - before) / 10;
    cr_assert(each < 16384, "%zu bytes a session", each);
    cr_assert(f->model->programs->references == 11 && !f->model->programs->next, "one program for all");
    for (int i = 0; i < 10; i++) wok_session_free(&more[i]);
    cr_assert(wok_ctx_memory(f->ctx, NULL) == before);
    close_fixture(f);
}

/* The sanitizer's allocator, unlike the C library's, may be locked for ever in the child of a process with threads that
 * allocate: there, nobody does while another thread forks. */
#if defined(__SANITIZE_ADDRESS__)
enum { MAY_ALLOCATE = 0 };
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
enum { MAY_ALLOCATE = 0 };
#else
enum { MAY_ALLOCATE = 1 };
#endif
#else
enum { MAY_ALLOCATE = 1 };
#endif

static void run_in_child(fixture *f, const float *x, const float *want, size_t bytes) {
    pid_t pid = fork();
    cr_assert(pid >= 0);
    if (pid == 0) {
        alarm(10);
        int wrong = 0;
        for (int i = 0; i < 50; i++) {
            wrong |= set_and_run(f->session, x, 2, 30) != WOK_OK;
            wrong |= wrong || memcmp(wok_session_output(f->session, 0)->data, want, bytes) != 0;
        }
        wok_session *other = NULL;
        if (MAY_ALLOCATE)
            wrong |= wok_session_create(f->model, NULL, &other) != WOK_OK || set_and_run(other, x, 2, 30) != WOK_OK;
        _exit(wrong);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child %s", WIFSIGNALED(status) ? "hung or crashed" : "was wrong");
}

static _Atomic bool stop;
static _Atomic bool running;
static void *keep_running(void *arg) {
    wok_session *s = NULL;
    wok_session_create(arg, NULL, &s);
    static float x[2 * 30 * WIDTH];
    for (; !stop; running = true) set_and_run(s, x, 2, 30);
    wok_session_free(&s);
    return NULL;
}

static void *keep_creating(void *arg) {
    static const char *const off[] = {"simplify"};
    wok_session_options options = {.size = sizeof options, .no_passes = off, .no_pass_count = 1};
    while (!stop && MAY_ALLOCATE) {
        wok_session *s = NULL;
        wok_session_create(arg, &options, &s);
        wok_session_free(&s);
    }
    return NULL;
}

Test(threads, b62_fork_before_after_and_while_running, .timeout = 120) {
    static float x[2 * 30 * WIDTH], want[2 * 30 * CLASSES];
    support_random(x, 2 * 30 * WIDTH, 4);
    fixture *f = open_fixture(3);
    fixture *g = open_fixture(1);
    cr_assert(set_and_run(g->session, x, 2, 30) == WOK_OK);
    memcpy(want, wok_session_output(g->session, 0)->data, sizeof want);
    run_in_child(f, x, want, sizeof want); /* before any run */
    cr_assert(set_and_run(f->session, x, 2, 30) == WOK_OK);
    run_in_child(f, x, want, sizeof want);
    pthread_t runner, creator;
    pthread_create(&runner, NULL, keep_running, f->model);
    pthread_create(&creator, NULL, keep_creating, f->model);
    while (!running) usleep(100);
    for (int i = 0; i < 20; i++) {
        usleep(1000);
        run_in_child(f, x, want, sizeof want);
    }
    stop = true;
    pthread_join(runner, NULL);
    pthread_join(creator, NULL);
    cr_assert(set_and_run(f->session, x, 2, 30) == WOK_OK && memcmp(wok_session_output(f->session, 0)->data, want, sizeof want) == 0,
              "the parent runs on");
    close_fixture(f);
    close_fixture(g);
}

/* ---- denormals ------------------------------------------------------------------------------------------------------------------------ */

static double seconds_of_a_run(wok_session *s) {
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    cr_assert(wok_session_run(s) == WOK_OK, "%s", wok_session_error(s));
    clock_gettime(CLOCK_MONOTONIC, &b);
    return (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
}

/* Twenty products with a matrix whose every tenth weight is `tiny`. */
static wok_session *stack(wok_ctx *ctx, float tiny, wok_model **model) {
    static float weights[64 * 64];
    wok_model *m = NULL;
    wok_session *s = NULL;
    support_random(weights, 64 * 64, 3);
    for (int i = 0; i < 64 * 64; i += 10) weights[i] = tiny;
    cr_assert(wok_model_new(ctx, "test", &m) == WOK_OK);
    wok_model_set_opset(m, "", 17);
    wok_value y = wok_graph_input(m, "x", WOK_F32, 2, (int64_t[]){-1, 64}, NULL);
    wok_value w = wok_graph_constant(m, "w", WOK_F32, 2, (int64_t[]){64, 64}, weights, sizeof weights, WOK_DATA_COPY);
    for (int i = 0; i < 20; i++) y = wok_graph_op(m, "MatMul", "", NULL, (wok_value[]){y, w}, 2, NULL);
    wok_graph_output(m, y);
    cr_assert(wok_model_finish(m, NULL) == WOK_OK && wok_session_create(m, NULL, &s) == WOK_OK, "%s", wok_ctx_error(ctx));
    *model = m;
    return s;
}

Test(session, b60_denormals_cost_nothing_and_the_callers_state_is_restored, .timeout = 120) {
    static float zeros[32 * 64], tinies[32 * 64];
    wok_ctx *ctx = support_ctx(2, NULL);
    wok_model *models[2];
    wok_session *plain = stack(ctx, 0, &models[0]), *tiny = stack(ctx, 1e-41f, &models[1]);
    for (int i = 0; i < 32 * 64; i++) tinies[i] = 1e-38f;
    cr_assert(wok_session_set_input(plain, 0, WOK_F32, (int64_t[]){32, 64}, 2, zeros, sizeof zeros) == WOK_OK);
    cr_assert(wok_session_set_input(tiny, 0, WOK_F32, (int64_t[]){32, 64}, 2, tinies, sizeof tinies) == WOK_OK);
    double best[2] = {1e9, 1e9};
    /* Best of many, in turns; again where the machine is busy. */
    for (int i = 0; i < 2000 && (i < 50 || best[1] > 1.2 * best[0]); i++) {
        best[0] = fmin(best[0], seconds_of_a_run(plain));
        best[1] = fmin(best[1], seconds_of_a_run(tiny));
    }
    cr_assert(best[1] <= 1.2 * best[0], "%g s with denormals, %g s with zeros", best[1], best[0]);
    const float *out = wok_session_output(tiny, 0)->data;
    for (int i = 0; i < 32 * 64; i++) cr_assert(out[i] == 0 || fabsf(out[i]) >= FLT_MIN, "no denormal comes out");
    volatile float smallest = FLT_MIN;
    cr_assert(smallest / 2 > 0, "denormals work again after a run");
    wok_session_free(&plain);
    wok_session_free(&tiny);
    for (int i = 0; i < 2; i++) wok_model_free(&models[i]);
    wok_ctx_free(&ctx);
}

/* ---- constants at any alignment --------------------------------------------------------------------------------------------------------- */

Test(session, b79_constants_at_any_alignment_give_the_same_bits) {
    static char buffer[4096 + 16];
    static float weights[32 * 24], table[10 * 32], want[24 * 2];
    support_random(weights, 32 * 24, 1);
    support_random(table, 320, 2);
    wok_ctx *ctx = support_ctx(1, NULL);
    const int64_t ids[2] = {7, 2};
    for (int offset = 0; offset < 16; offset++) {
        char *place = buffer + offset;
        memcpy(place, table, sizeof table);
        memcpy(place + sizeof table, weights, 24 * 4);
        wok_model *m = NULL;
        wok_session *s = NULL;
        cr_assert(wok_model_new(ctx, "test", &m) == WOK_OK);
        wok_model_set_opset(m, "", 17);
        wok_value i = wok_graph_input(m, "ids", WOK_I64, 1, &two, NULL);
        wok_value t = wok_graph_constant(m, "t", WOK_F32, 2, (int64_t[]){10, 32}, place, sizeof table, WOK_DATA_BORROW);
        wok_value bias = wok_graph_constant(m, "b", WOK_F32, 1, (int64_t[]){24}, place + sizeof table, 96, WOK_DATA_BORROW);
        wok_value w = wok_graph_constant(m, "w", WOK_F32, 2, (int64_t[]){32, 24}, weights, sizeof weights, WOK_DATA_BORROW);
        wok_value y = wok_graph_op(m, "Gather", "", NULL, (wok_value[]){t, i}, 2, NULL);
        y = wok_graph_op(m, "MatMul", "", NULL, (wok_value[]){y, w}, 2, NULL);
        y = wok_graph_op(m, "Tanh", "", NULL, &y, 1, NULL);
        wok_graph_output(m, wok_graph_op(m, "Mul", "", NULL, (wok_value[]){y, bias}, 2, "y"));
        cr_assert(wok_model_finish(m, NULL) == WOK_OK && wok_session_create(m, NULL, &s) == WOK_OK, "%s", wok_ctx_error(ctx));
        cr_assert(wok_session_set_input(s, 0, WOK_I64, &two, 1, ids, 16) == WOK_OK && wok_session_run(s) == WOK_OK);
        if (offset == 0) memcpy(want, wok_session_output(s, 0)->data, sizeof want);
        cr_assert(memcmp(want, wok_session_output(s, 0)->data, sizeof want) == 0, "offset %d", offset);
        wok_session_free(&s);
        wok_model_free(&m);
    }
    wok_ctx_free(&ctx);
}

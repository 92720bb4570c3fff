/* test_plan.c - offsets of buffers, and what a plan makes of a small graph. */
#define _GNU_SOURCE
#include "ctx.h"
#include "offsets.h"
#include "plan.h"
#include "session.h"
#include "support.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- offsets -------------------------------------------------------------------------------------------------------------- */

static uint64_t random_state = 88172645463325252u;
static int below(int n) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (int)(random_state % (uint64_t)n);
}

enum { MOST = 200 };

static void check_offsets(wok_ctx *ctx, wok_interval *items, int count, double *worst) {
    size_t total, bound;
    cr_assert(wok_plan_offsets(ctx, items, count, &total, &bound) == WOK_OK);
    for (int i = 0; i < count; i++) {
        cr_assert(items[i].offset % WOK_ARENA_ALIGN == 0);
        cr_assert(items[i].offset + items[i].bytes <= total);
        for (int j = 0; j < i; j++) {
            bool time = items[i].first <= items[j].last && items[j].first <= items[i].last;
            bool space = items[i].offset < items[j].offset + items[j].bytes && items[j].offset < items[i].offset + items[i].bytes;
            cr_assert(!(time && space), "buffers %d and %d overlap", i, j);
        }
    }
    size_t most = 0; /* the bound, by brute force */
    for (int step = 0; step < MOST; step++) {
        size_t alive = 0;
        for (int i = 0; i < count; i++)
            if (items[i].first <= step && step <= items[i].last) alive += (items[i].bytes + 63) / 64 * 64;
        if (alive > most) most = alive;
    }
    cr_assert(bound == most, "bound %zu instead of %zu", bound, most);
    cr_assert(total >= bound);
    if (bound && (double)total / (double)bound > *worst) *worst = (double)total / (double)bound;
}

Test(offsets, random_intervals_never_overlap) {
    wok_ctx *ctx = support_ctx(1, NULL);
    static wok_interval items[MOST];
    double worst = 1, sum = 0;
    int rounds = 1500;
    for (int round = 0; round < rounds; round++) {
        int count = below(MOST), span = 1 + below(40);
        for (int i = 0; i < count; i++) {
            int first = below(MOST - 50);
            items[i] = (wok_interval){.bytes = (size_t)below(below(4) ? 300 : 100000), .first = first, .last = first + below(span)};
        }
        double ratio = 1;
        check_offsets(ctx, items, count, &ratio);
        sum += ratio;
        if (ratio > worst) worst = ratio;
    }
    cr_log_info("used / lower bound over %d random graphs: mean %.3f, worst %.3f\n", rounds, sum / rounds, worst);
    cr_assert(sum / rounds < 1.05, "mean %.3f", sum / rounds);
    wok_ctx_free(&ctx);
}

Test(offsets, a_chain_needs_two_buffers) {
    wok_ctx *ctx = support_ctx(1, NULL);
    wok_interval items[50];
    for (int i = 0; i < 50; i++) items[i] = (wok_interval){.bytes = 1000, .first = i, .last = i + 1};
    size_t total, bound;
    cr_assert(wok_plan_offsets(ctx, items, 50, &total, &bound) == WOK_OK);
    cr_assert(total == 2048 && bound == 2048);
    cr_assert(wok_plan_offsets(ctx, NULL, 0, &total, NULL) == WOK_OK && total == 0);
    wok_ctx_free(&ctx);
}

Test(offsets, sizes_that_overflow_are_refused) {
    wok_ctx *ctx = support_ctx(1, NULL);
    wok_interval items[8];
    size_t total;
    for (int i = 0; i < 8; i++) items[i] = (wok_interval){.bytes = SIZE_MAX / 5, .first = 0, .last = 1};
    cr_assert(wok_plan_offsets(ctx, items, 8, &total, NULL) == WOK_ERR_SHAPE);
    items[0].bytes = SIZE_MAX;
    cr_assert(wok_plan_offsets(ctx, items, 1, &total, NULL) == WOK_ERR_SHAPE);
    wok_ctx_free(&ctx);
}

/* ---- plans ------------------------------------------------------------------------------------------------------------------- */

static wok_model *start(wok_ctx *ctx, wok_value *x) {
    wok_model *m = NULL;
    cr_assert(wok_model_new(ctx, "test", &m) == WOK_OK);
    wok_model_set_opset(m, "", 17);
    *x = wok_graph_input(m, "x", WOK_F32, 2, (int64_t[]){-1, 16}, (const char *[]){"batch", NULL});
    return m;
}

static wok_value op1(wok_model *m, const char *op, wok_value x, const char *name) {
    return wok_graph_op(m, op, "", NULL, &x, 1, name);
}

static wok_session *finish(wok_ctx *ctx, wok_model *m, wok_value y, const wok_session_options *options) {
    wok_session *s = NULL;
    wok_graph_output(m, y);
    cr_assert(wok_model_finish(m, NULL) == WOK_OK, "%s", wok_ctx_error(ctx));
    cr_assert(wok_session_create(m, options, &s) == WOK_OK, "%s", wok_ctx_error(ctx));
    return s;
}

static float pixels[64 * 16];

static void run(wok_session *s, int64_t batch) {
    support_random(pixels, (size_t)batch * 16, 7);
    wok_status status = wok_session_set_input(s, 0, WOK_F32, (int64_t[]){batch, 16}, 2, pixels, (size_t)batch * 64);
    if (status == WOK_OK) status = wok_session_run(s);
    cr_assert(status == WOK_OK, "%s", wok_session_error(s));
}

static void end(wok_ctx *ctx, wok_model *m, wok_session *s) {
    wok_session_free(&s);
    wok_model_free(&m);
    cr_assert(wok_ctx_memory(ctx, NULL) > 0);
    wok_ctx_free(&ctx);
}

Test(plan, element_by_element_chains_run_in_place) {
    wok_ctx *ctx = support_ctx(1, NULL);
    wok_value x, y;
    wok_model *m = start(ctx, &x);
    y = op1(m, "Abs", op1(m, "Neg", op1(m, "Exp", op1(m, "Sin", x, NULL), NULL), NULL), "y");
    wok_session *s = finish(ctx, m, y, NULL);
    run(s, 4);
    cr_assert(s->plan->step_count == 4);
    cr_assert(s->plan->arena_bytes == 4 * 64, "%zu bytes for one tensor of 256", s->plan->arena_bytes);
    for (int i = 0; i < 64; i++)
        cr_assert(pixels[i] != 0 && ((const float *)wok_session_output(s, 0)->data)[i] > 0, "and the input is left alone");
    end(ctx, m, s);
}

Test(plan, a_value_that_is_read_again_is_not_overwritten) {
    wok_ctx *ctx = support_ctx(1, NULL);
    wok_value x;
    wok_model *m = start(ctx, &x);
    wok_value a = op1(m, "Exp", x, "a"), b = op1(m, "Neg", a, "b");
    wok_value y = wok_graph_op(m, "Add", "", NULL, (wok_value[]){a, b}, 2, "y");
    wok_session *s = finish(ctx, m, y, NULL);
    run(s, 3);
    for (int i = 0; i < 48; i++) cr_assert(((const float *)wok_session_output(s, 0)->data)[i] == 0, "e^x - e^x");
    end(ctx, m, s);
}

Test(plan, an_output_that_is_read_again_is_not_overwritten) {
    wok_ctx *ctx = support_ctx(1, NULL);
    wok_value x;
    wok_model *m = start(ctx, &x);
    wok_value a = op1(m, "Abs", x, "a"), b = op1(m, "Neg", a, "b");
    wok_graph_output(m, a);
    wok_session *s = finish(ctx, m, b, NULL);
    run(s, 2);
    const float *first = wok_session_output(s, 0)->data, *second = wok_session_output(s, 1)->data;
    for (int i = 0; i < 32; i++) cr_assert(first[i] >= 0 && second[i] == -first[i]);
    end(ctx, m, s);
}

/* Reshape(x, Concat(Gather(Shape(x), 0), 4, 4)): no step is left of it. */
static wok_value reshape_to_batch_4_4(wok_model *m, wok_value x) {
    const int64_t zero = 0, fours[2] = {4, 4}, one = 1, two = 2;
    wok_value i = wok_graph_constant(m, "zero", WOK_I64, 1, &one, &zero, 8, WOK_DATA_COPY);
    wok_value rest = wok_graph_constant(m, "fours", WOK_I64, 1, &two, fours, 16, WOK_DATA_COPY);
    wok_value n = wok_graph_op(m, "Gather", "", NULL, (wok_value[]){op1(m, "Shape", x, NULL), i}, 2, NULL);
    wok_value shape = wok_graph_op(m, "Concat", "", NULL, (wok_value[]){n, rest}, 2, NULL);
    wok_node_set_int(m, wok_graph_last(m), "axis", 0);
    return wok_graph_op(m, "Reshape", "", "reshape", (wok_value[]){x, shape}, 2, NULL);
}

Test(plan, shape_arithmetic_leaves_no_step) {
    const char *const off[] = {"fold_constants", "simplify"};
    for (int passes = 0; passes < 2; passes++) {
        wok_ctx *ctx = support_ctx(1, NULL);
        wok_value x;
        wok_model *m = start(ctx, &x);
        wok_value y = op1(m, "Abs", reshape_to_batch_4_4(m, x), "y");
        const wok_session_options options = {.size = sizeof options, .no_passes = off, .no_pass_count = passes ? 0 : 2};
        wok_session *s = finish(ctx, m, y, &options);
        for (int64_t batch = 1; batch < 6; batch++) {
            run(s, batch);
            const wok_tensor *out = wok_session_output(s, 0);
            cr_assert(out->rank == 3 && out->dims[0] == batch && out->dims[1] == 4 && out->dims[2] == 4);
            cr_assert(s->plan->step_count == 1, "%d steps", s->plan->step_count);
            for (int i = 0; i < 16 * batch; i++)
                cr_assert(((const float *)out->data)[i] == (pixels[i] < 0 ? -pixels[i] : pixels[i]));
        }
        wok_session_info info;
        wok_node_info node;
        cr_assert(wok_session_describe(s, &info) == WOK_OK);
        int views = 0;
        for (int i = 0; i < info.nodes; i++) {
            cr_assert(wok_session_node(s, i, &node) == WOK_OK);
            views += strcmp(node.op, "Reshape") == 0;
        }
        cr_assert(info.nodes == 2 && views == 1, "a view is shown");
        end(ctx, m, s);
    }
}

Test(plan, outputs_that_stand_elsewhere_are_copied) {
    wok_ctx *ctx = support_ctx(1, NULL);
    wok_value x;
    wok_model *m = start(ctx, &x);
    const float weights[2] = {3, 4};
    wok_value c = wok_graph_constant(m, "c", WOK_F32, 1, (int64_t[]){2}, weights, sizeof weights, WOK_DATA_COPY);
    wok_value a = op1(m, "Abs", x, "a");
    wok_value shape = op1(m, "Shape", x, "shape");
    wok_graph_output(m, x);     /* an input */
    wok_graph_output(m, c);     /* a constant */
    wok_graph_output(m, shape); /* known when planning */
    wok_graph_output(m, a);
    wok_session *s = finish(ctx, m, reshape_to_batch_4_4(m, a), NULL); /* the bytes of another output */
    run(s, 3);
    const wok_tensor *out[5];
    for (int i = 0; i < 5; i++) out[i] = wok_session_output(s, i);
    cr_assert(out[0]->data != pixels && memcmp(out[0]->data, pixels, 3 * 64) == 0);
    cr_assert(((const float *)out[1]->data)[1] == 4);
    cr_assert(((const int64_t *)out[2]->data)[0] == 3 && ((const int64_t *)out[2]->data)[1] == 16);
    cr_assert(out[3]->data != out[4]->data && memcmp(out[3]->data, out[4]->data, 3 * 64) == 0);
    cr_assert_str_eq(wok_session_output_name(s, 2), "shape");
    float bound[48];
    cr_assert(wok_session_bind_output(s, 4, bound, sizeof bound) == WOK_OK);
    run(s, 3);
    cr_assert(wok_session_output(s, 4)->data == bound && memcmp(bound, wok_session_output(s, 3)->data, sizeof bound) == 0);
    end(ctx, m, s);
}

Test(plan, b14_empty_tensors_run) {
    wok_ctx *ctx = support_ctx(1, NULL);
    wok_value x;
    wok_model *m = start(ctx, &x);
    wok_session *s = finish(ctx, m, op1(m, "Abs", reshape_to_batch_4_4(m, op1(m, "Neg", x, NULL)), "y"), NULL);
    run(s, 0);
    cr_assert(wok_session_output(s, 0)->dims[0] == 0 && wok_session_output(s, 0)->bytes == 0);
    run(s, 2);
    cr_assert(wok_session_output(s, 0)->dims[0] == 2);
    end(ctx, m, s);
}

/* Feed-forward layers with residuals: what is used, and what no planner could beat. */
Test(plan, arena_meets_the_lower_bound) {
    wok_ctx *ctx = support_ctx(1, NULL);
    wok_value x;
    wok_model *m = start(ctx, &x);
    static float weights[16 * 64];
    support_random(weights, 16 * 64, 3);
    wok_value up = wok_graph_constant(m, "up", WOK_F32, 2, (int64_t[]){16, 64}, weights, sizeof weights, WOK_DATA_BORROW);
    wok_value down = wok_graph_constant(m, "down", WOK_F32, 2, (int64_t[]){64, 16}, weights, sizeof weights, WOK_DATA_BORROW);
    wok_value y = x;
    for (int layer = 0; layer < 5; layer++) {
        wok_value wide = op1(m, "Relu", wok_graph_op(m, "MatMul", "", NULL, (wok_value[]){y, up}, 2, NULL), NULL);
        wok_value narrow = wok_graph_op(m, "MatMul", "", NULL, (wok_value[]){wide, down}, 2, NULL);
        y = wok_graph_op(m, "Add", "", NULL, (wok_value[]){narrow, y}, 2, NULL);
    }
    wok_session *s = finish(ctx, m, y, NULL);
    run(s, 8);
    cr_assert(s->plan->bound_bytes <= 8 * (64 + 16 + 16) * sizeof(float), "%zu", s->plan->bound_bytes);
    cr_assert(s->plan->arena_bytes == s->plan->bound_bytes, "%zu, %zu", s->plan->arena_bytes, s->plan->bound_bytes);
    end(ctx, m, s);
}

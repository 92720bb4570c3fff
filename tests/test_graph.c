/* test_graph.c - contexts, arenas, symbolic dimensions, the order of nodes, building models, worker threads. */
#define _GNU_SOURCE
#include "ctx.h"
#include "ir.h"
#include "model.h"
#include "op.h"
#include "pool.h"
#include "support.h"
#include "symbols.h"
#include "tensor.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- contexts ------------------------------------------------------------------------------------------------------------- */

Test(ctx, counts_what_it_holds) {
    support_heap heap = {0};
    wok_ctx *ctx = support_ctx(1, &heap);
    size_t peak, before = wok_ctx_memory(ctx, NULL);
    void *a = wok_ctx_alloc(ctx, 1000), *b = wok_ctx_alloc(ctx, 0);
    cr_assert(a && b);
    cr_assert((uintptr_t)a % 64 == 0 && (uintptr_t)b % 64 == 0);
    cr_assert(wok_ctx_memory(ctx, &peak) == before + 1001);
    cr_assert(peak == before + 1001);
    wok_ctx_release(ctx, a, 1000);
    wok_ctx_release(ctx, b, 0);
    wok_ctx_release(ctx, NULL, 7);
    cr_assert(wok_ctx_memory(ctx, &peak) == before);
    cr_assert(peak == before + 1001);
    wok_ctx_free(&ctx);
    cr_assert(ctx == NULL);
    cr_assert(heap.blocks == 0 && heap.bytes == 0);
    wok_ctx_free(&ctx);
    wok_ctx_free(NULL);
}

Test(ctx, limit_is_an_error_that_names_the_numbers) {
    wok_ctx_options options = {.size = sizeof options, .threads = 1, .memory_limit = 1 << 20};
    wok_ctx *ctx = wok_ctx_create(&options);
    void *a = wok_ctx_alloc(ctx, 1 << 19);
    cr_assert(a);
    cr_assert(wok_ctx_alloc(ctx, 1 << 19) == NULL, "half a MiB and half a MiB and the context are more than a MiB");
    cr_assert(strstr(wok_ctx_error(ctx), "1048576"), "%s", wok_ctx_error(ctx));
    cr_assert(wok_ctx_last(ctx) == WOK_ERR_LIMIT);
    cr_assert(wok_ctx_alloc(ctx, SIZE_MAX) == NULL);
    wok_ctx_release(ctx, a, 1 << 19);
    cr_assert((a = wok_ctx_alloc(ctx, 1 << 19)) != NULL, "what was given back can be had again");
    wok_ctx_release(ctx, a, 1 << 19);
    wok_ctx_free(&ctx);
}

Test(ctx, unknown_isa_is_kept_and_returned_by_every_load) {
    wok_ctx_options options = {.size = sizeof options, .threads = 1, .isa = "avx1024"};
    wok_ctx *ctx = wok_ctx_create(&options);
    cr_assert(ctx);
    cr_assert(strstr(wok_ctx_error(ctx), "avx1024"));
    for (int i = 0; i < 2; i++) {
        wok_model *model = (wok_model *)&model;
        wok_ctx_fail(ctx, WOK_ERR_IO, "something else");
        cr_assert(wok_model_new(ctx, "test", &model) == WOK_ERR_ARGUMENT);
        cr_assert(model == NULL);
        cr_assert(strstr(wok_ctx_error(ctx), "avx1024"), "%s", wok_ctx_error(ctx));
    }
    wok_ctx_free(&ctx);
}

Test(ctx, older_options_struct_works) {
    wok_ctx_options options = {.size = offsetof(wok_ctx_options, threads), .threads = -77, .isa = "nonsense"};
    wok_ctx *ctx = wok_ctx_create(&options);
    cr_assert_str_empty(wok_ctx_error(ctx), "fields beyond `size` are not read");
    wok_ctx_free(&ctx);
}

static void *other_thread(void *arg) {
    wok_ctx *ctx = arg;
    const char *seen = wok_ctx_error(ctx);
    if (*seen) return "saw the other thread's error";
    wok_ctx_fail(ctx, WOK_ERR_VALUE, "mine");
    return strcmp(wok_ctx_error(ctx), "mine") == 0 ? NULL : "lost its own error";
}

Test(ctx, errors_belong_to_thread_and_context) {
    wok_ctx *a = support_ctx(1, NULL), *b = support_ctx(1, NULL);
    wok_ctx_fail(a, WOK_ERR_IO, "error of %s", "a");
    wok_ctx_fail(b, WOK_ERR_IO, "error of b");
    cr_assert_str_eq(wok_ctx_error(a), "error of a");
    cr_assert_str_eq(wok_ctx_error(b), "error of b");
    cr_assert(wok_ctx_fail(a, WOK_ERR_SHAPE, "more: %s", wok_ctx_error(a)) == WOK_ERR_SHAPE);
    cr_assert_str_eq(wok_ctx_error(a), "more: error of a", "an argument may be the old error");
    pthread_t thread;
    void *wrong = NULL;
    pthread_create(&thread, NULL, other_thread, a);
    pthread_join(thread, &wrong);
    cr_assert(!wrong, "%s", (char *)wrong);
    cr_assert_str_eq(wok_ctx_error(a), "more: error of a");
    wok_ctx_free(&a);
    wok_ctx *c = support_ctx(1, NULL);
    cr_assert_str_empty(wok_ctx_error(c), "a new context has no error, wherever it stands");
    wok_ctx_free(&b);
    wok_ctx_free(&c);
}

/* ---- arenas ----------------------------------------------------------------------------------------------------------------- */

Test(arena, aligned_zeroed_and_given_back) {
    support_heap heap = {0};
    wok_ctx *ctx = support_ctx(1, &heap);
    size_t before = wok_ctx_memory(ctx, NULL);
    wok_arena *arena = wok_arena_new(ctx);
    for (size_t n = 0; n < 300; n++) {
        unsigned char *p = wok_arena_alloc(arena, n * 37), *q = wok_arena_small(arena, n);
        cr_assert(p && q && (uintptr_t)p % 64 == 0 && (uintptr_t)q % 8 == 0);
        for (size_t i = 0; i < n * 37; i++) cr_assert(p[i] == 0);
        memset(p, 0xff, n * 37);
        memset(q, 0xff, n);
    }
    cr_assert_str_eq(wok_arena_format(arena, "%d-%s", 7, "seven"), "7-seven");
    cr_assert(wok_arena_bytes(arena) == wok_ctx_memory(ctx, NULL) - before);
    void *large = wok_arena_alloc(arena, 10 << 20);
    size_t with = wok_ctx_memory(ctx, NULL);
    wok_arena_drop(arena, wok_arena_small(arena, 8)); /* nothing happens */
    wok_arena_drop(arena, large);
    cr_assert(with - wok_ctx_memory(ctx, NULL) >= 10 << 20);
    cr_assert(wok_arena_alloc(arena, SIZE_MAX - 100) == NULL);
    memset(wok_arena_raw(arena, 3 << 20), 0xff, 3 << 20);
    wok_arena_reset(arena);
    with = wok_ctx_memory(ctx, NULL);
    unsigned char *again = wok_arena_alloc(arena, 3 << 20);
    for (size_t i = 0; i < 3 << 20; i++) cr_assert(again[i] == 0);
    cr_assert(wok_ctx_memory(ctx, NULL) == with, "the largest chunk is used again");
    wok_arena_free(arena);
    cr_assert(wok_ctx_memory(ctx, NULL) == before);
    wok_ctx_free(&ctx);
    cr_assert(heap.blocks == 0);
}

/* ---- symbolic dimensions ---------------------------------------------------------------------------------------------------- */

Test(symbols, algebra) {
    wok_ctx *ctx = support_ctx(1, NULL);
    wok_graph *g = wok_ir_new(ctx);
    int64_t n = wok_dim_symbol(g, "batch"), s = wok_dim_symbol(g, "seq"), u = wok_dim_symbol(g, NULL);
    cr_assert(n < 0 && s < 0 && u < 0 && n != s && s != u);
    cr_assert(wok_dim_symbol(g, "batch") == n);
    cr_assert(wok_dim_symbol(g, NULL) != u, "unknowns are fresh");
    int64_t ns = wok_dim_mul(g, n, s);
    cr_assert(ns == wok_dim_mul(g, s, n));
    cr_assert(wok_dim_div(g, wok_dim_mul(g, wok_dim_mul(g, ns, 12), 64), 768) == ns);
    cr_assert(wok_dim_div(g, wok_dim_mul(g, ns, 768), wok_dim_mul(g, s, 64)) == wok_dim_mul(g, n, 12));
    cr_assert(wok_dim_sub(g, wok_dim_add(g, s, 5), 5) == s);
    cr_assert(wok_dim_sub(g, s, s) == 0);
    cr_assert(wok_dim_add(g, s, s) == wok_dim_mul(g, 2, s));
    cr_assert(wok_dim_div(g, wok_dim_add(g, wok_dim_mul(g, s, 4), 3), 4) == s, "(4 s + 3) / 4 rounds down to s");
    int64_t square = wok_dim_mul(g, wok_dim_add(g, n, 1), wok_dim_sub(g, n, 1));
    cr_assert(square == wok_dim_sub(g, wok_dim_mul(g, n, n), 1));
    cr_assert(wok_dim_div(g, s, 2) == wok_dim_div(g, s, 2), "an opaque quotient is still equal to itself");
    cr_assert(wok_dim_div(g, s, 2) != wok_dim_div(g, n, 2));
    cr_assert(wok_dim_mul(g, 0, s) == 0 && wok_dim_mul(g, 1, s) == s);
    cr_assert(wok_dim_call(g, "max", (int64_t[]){n, 1}, 2) == wok_dim_call(g, "max", (int64_t[]){n, 1}, 2));
    cr_assert(wok_dim_call(g, "max", (int64_t[]){n, 1}, 2) != wok_dim_call(g, "max", (int64_t[]){n, 2}, 2));
    cr_assert_str_eq(wok_dim_text(g, ns), "seq*batch");
    cr_assert_str_eq(wok_dim_text(g, wok_dim_add(g, wok_dim_mul(g, s, 2), 1)), "2*seq+1");
    cr_assert_str_eq(wok_dim_text(g, 12), "12");
    wok_type type = {.rank = 3, .dims = {n, s, 768}};
    cr_assert_str_eq(wok_type_text(g, &type), "[batch,seq,768]");
    wok_ir_free(g);
    wok_ctx_free(&ctx);
}

Test(symbols, numbers_may_be_negative_as_elements) {
    wok_ctx *ctx = support_ctx(1, NULL);
    wok_graph *g = wok_ir_new(ctx);
    int64_t number;
    cr_assert(wok_dim_is_number(wok_dim_sub(g, 2, 5), &number) && number == -3);
    cr_assert(wok_dim_is_number(wok_dim_mul(g, wok_dim_number(-4), 5), &number) && number == -20);
    cr_assert(wok_dim_is_number(wok_dim_div(g, wok_dim_number(-7), 2), &number) && number == -4, "rounds down");
    int64_t s = wok_dim_symbol(g, "s");
    cr_assert(wok_dim_add(g, wok_dim_mul(g, wok_dim_number(-1), s), s) == 0);
    cr_assert(wok_dim_is_number(wok_dim_mul(g, INT64_MAX, INT64_MAX), &number) && number == INT64_MAX, "saturates");
    wok_ir_free(g);
    wok_ctx_free(&ctx);
}

/* Random polynomials: the symbolic result, evaluated, equals arithmetic on numbers. */
static int64_t horner(wok_graph *g, unsigned seed, int64_t a, int64_t b) {
    int64_t x = 1;
    for (int step = 0; step < 6; step++) {
        seed = seed * 1103515245u + 12345u;
        int64_t operand = seed >> 16 & 1 ? a : b;
        switch (seed >> 20 & 3) {
        case 0: x = wok_dim_add(g, x, operand); break;
        case 1: x = wok_dim_mul(g, x, operand); break;
        case 2: x = wok_dim_add(g, x, seed >> 24 & 7); break;
        default: x = wok_dim_div(g, wok_dim_mul(g, x, wok_dim_mul(g, 6, operand)), wok_dim_mul(g, 3, operand)); break;
        }
    }
    return x;
}

Test(symbols, agree_with_numbers) {
    wok_ctx *ctx = support_ctx(1, NULL);
    wok_graph *g = wok_ir_new(ctx);
    int64_t a = wok_dim_symbol(g, "a"), b = wok_dim_symbol(g, "b");
    for (unsigned seed = 1; seed < 200; seed++)
        for (unsigned other = 1; other < 8; other++) {
            int64_t p = horner(g, seed, a, b), q = horner(g, other, a, b);
            bool equal = true; /* as functions, at enough points */
            for (int64_t x = 2; x < 9; x++)
                for (int64_t y = 2; y < 9; y++) equal &= horner(g, seed, x, y) == horner(g, other, x, y);
            cr_assert((p == q) == equal, "seeds %u and %u: %s, %s", seed, other, wok_dim_text(g, p), wok_dim_text(g, q));
        }
    wok_ir_free(g);
    wok_ctx_free(&ctx);
}

Test(symbols, clone_keeps_ids) {
    wok_ctx *ctx = support_ctx(1, NULL);
    wok_graph *g = wok_ir_new(ctx);
    int64_t n = wok_dim_symbol(g, "n"), expression = wok_dim_add(g, wok_dim_mul(g, n, 3), 1);
    wok_graph *copy = wok_ir_clone(g);
    cr_assert(wok_dim_symbol(copy, "n") == n);
    cr_assert(wok_dim_add(copy, 1, wok_dim_mul(copy, 3, n)) == expression);
    for (int i = 0; i < 200; i++) wok_dim_symbol(copy, NULL);
    cr_assert_str_eq(wok_dim_text(g, expression), "3*n+1");
    wok_ir_free(copy);
    wok_ir_free(g);
    wok_ctx_free(&ctx);
}

/* ---- order -------------------------------------------------------------------------------------------------------------------- */

static wok_value value(wok_graph *g, const char *name) { return wok_ir_value_named(g, name); }

static void identity(wok_graph *g, const char *from, const char *to) {
    wok_ir_node_new(g, WOK_OP_Identity, to, (wok_value[]){value(g, from)}, 1, (wok_value[]){value(g, to)}, 1);
}

Test(order, sorts_and_keeps_what_is_sorted) {
    wok_ctx *ctx = support_ctx(1, NULL);
    wok_graph *g = wok_ir_new(ctx);
    wok_value x = value(g, "x");
    g->values[x].is_input = true;
    identity(g, "x", "a");
    identity(g, "c", "d"); /* too early */
    identity(g, "a", "b");
    identity(g, "x", "e");
    identity(g, "b", "c");
    cr_assert(wok_ir_sort(g) == WOK_OK, "%s", wok_ctx_error(ctx));
    const char *expected[] = {"a", "b", "c", "d", "e"};
    for (int i = 0; i < 5; i++) {
        cr_assert_str_eq(g->nodes[i].name, expected[i]);
        cr_assert(g->values[g->nodes[i].out[0]].producer == i);
    }
    g->nodes[4].dead = true;
    cr_assert(wok_ir_sort(g) == WOK_OK && g->node_count == 4);
    wok_ir_free(g);
    wok_ctx_free(&ctx);
}

Test(order, a_chain_of_100000_does_not_exhaust_the_stack) {
    wok_ctx *ctx = support_ctx(1, NULL);
    wok_graph *g = wok_ir_new(ctx);
    wok_value first = value(g, "v0");
    g->values[first].is_input = true;
    for (int i = 100000; i > 0; i--) {
        char from[16], to[16];
        snprintf(from, sizeof from, "v%d", i - 1);
        snprintf(to, sizeof to, "v%d", i);
        identity(g, from, to);
    }
    cr_assert(wok_ir_sort(g) == WOK_OK);
    cr_assert_str_eq(g->nodes[0].name, "v1");
    cr_assert_str_eq(g->nodes[99999].name, "v100000");
    wok_ir_free(g);
    wok_ctx_free(&ctx);
}

/* ---- models --------------------------------------------------------------------------------------------------------------------- */

static wok_model *new_model(wok_ctx *ctx) {
    wok_model *model = NULL;
    cr_assert(wok_model_new(ctx, "test", &model) == WOK_OK, "%s", wok_ctx_error(ctx));
    wok_model_set_opset(model, "", 17);
    return model;
}

/* Finishing fails with this status and a sentence that holds `text`. */
static void expect_refused(wok_ctx *ctx, wok_model *model, wok_status status, const char *text) {
    wok_ctx_fail(ctx, WOK_ERR_IO, "another error in between");
    wok_status got = wok_model_finish(model, NULL);
    cr_assert(got == status, "%s instead of %s: %s", wok_status_name(got), wok_status_name(status), wok_ctx_error(ctx));
    cr_assert(strstr(wok_ctx_error(ctx), text), "'%s' lacks '%s'", wok_ctx_error(ctx), text);
    wok_model_free(&model);
    cr_assert(model == NULL);
}

static const int64_t four = 4;

Test(model, b14_cycle) {
    wok_ctx *ctx = support_ctx(1, NULL);
    wok_model *m = new_model(ctx);
    wok_value y = wok_graph_value(m, "y"), z = wok_graph_value(m, "z");
    wok_graph_node(m, "Identity", "", "first", &y, 1, &z, 1);
    wok_graph_node(m, "Identity", "", "second", &z, 1, &y, 1);
    wok_graph_output(m, z);
    expect_refused(ctx, m, WOK_ERR_FORMAT, "cycle");
    wok_ctx_free(&ctx);
}

Test(model, b14_input_that_nothing_produces) {
    wok_ctx *ctx = support_ctx(1, NULL);
    wok_model *m = new_model(ctx);
    wok_graph_output(m, wok_graph_op(m, "Relu", "", "act", (wok_value[]){wok_graph_value(m, "ghost")}, 1, "y"));
    expect_refused(ctx, m, WOK_ERR_FORMAT, "node 'act' (Relu): its input 'ghost' is produced by nothing");
    m = new_model(ctx);
    wok_graph_output(m, wok_graph_value(m, "nowhere"));
    expect_refused(ctx, m, WOK_ERR_FORMAT, "'nowhere'");
    wok_ctx_free(&ctx);
}

Test(model, b14_constants_of_impossible_sizes) {
    static const float data[8];
    static const struct {
        int rank;
        int64_t dims[2];
        size_t bytes;
    } cases[] = {{1, {-4}, 16}, {2, {INT64_C(1) << 32, INT64_C(1) << 32}, 16}, {1, {5}, 16}, {1, {3}, 16}, {2, {2, 2}, 0},
                 {2, {0, -1}, 0}};
    wok_ctx *ctx = support_ctx(1, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wok_model *m = new_model(ctx);
        size_t before = wok_ctx_memory(ctx, NULL);
        wok_value w = wok_graph_constant(m, "w", WOK_F32, cases[i].rank, cases[i].dims, data, cases[i].bytes, WOK_DATA_COPY);
        cr_assert(w == WOK_ABSENT);
        cr_assert(wok_ctx_memory(ctx, NULL) - before < 8192, "no memory is taken on the word of a header");
        wok_graph_output(m, wok_graph_op(m, "Identity", "", NULL, &w, 1, "y"));
        expect_refused(ctx, m, WOK_ERR_FORMAT, "'w'");
    }
    wok_ctx_free(&ctx);
}

/* x 1x2x5x5, w 3x2x3x3 (or rank 5), one attribute that cannot be. */
static void refuse_conv(wok_ctx *ctx, int kernel_rank, const char *name, int64_t a, int64_t b) {
    static const float data[3 * 2 * 27];
    const int64_t dims[] = {3, 2, 3, 3, 3};
    wok_model *m = new_model(ctx);
    wok_value x = wok_graph_input(m, "x", WOK_F32, 4, (int64_t[]){1, 2, 5, 5}, NULL);
    size_t bytes = wok_tensor_bytes(WOK_F32, dims, kernel_rank);
    wok_value w = wok_graph_constant(m, "w", WOK_F32, kernel_rank, dims, data, bytes, WOK_DATA_COPY);
    wok_graph_output(m, wok_graph_op(m, "Conv", "", "the_conv", (wok_value[]){x, w}, 2, "y"));
    if (name && strcmp(name, "group") == 0) wok_node_set_int(m, wok_graph_last(m), name, a);
    else if (name) wok_node_set_ints(m, wok_graph_last(m), name, (int64_t[]){a, b, a, b}, strcmp(name, "pads") ? 2 : 4);
    wok_status status = wok_model_finish(m, NULL);
    cr_assert(status != WOK_OK, "%s %lld", name ? name : "rank", (long long)a);
    cr_assert(strstr(wok_ctx_error(ctx), "the_conv"), "%s", wok_ctx_error(ctx));
    wok_model_free(&m);
}

Test(model, b14_impossible_convolutions_do_not_load) {
    wok_ctx *ctx = support_ctx(1, NULL);
    refuse_conv(ctx, 5, NULL, 0, 0);
    refuse_conv(ctx, 4, "strides", 0, 1);
    refuse_conv(ctx, 4, "strides", -1, 1);
    refuse_conv(ctx, 4, "dilations", 0, 1);
    refuse_conv(ctx, 4, "kernel_shape", -3, 3);
    refuse_conv(ctx, 4, "kernel_shape", 2, 3);
    refuse_conv(ctx, 4, "group", 0, 0);
    refuse_conv(ctx, 4, "group", 2, 0);
    refuse_conv(ctx, 4, "dilations", 4, 1); /* larger than the picture */
    wok_ctx_free(&ctx);
}

Test(model, outputs_without_a_declaration_get_their_type) {
    wok_ctx *ctx = support_ctx(1, NULL);
    wok_model *m = new_model(ctx);
    wok_value x = wok_graph_input(m, "x", WOK_F32, 2, (int64_t[]){-1, 5}, (const char *[]){"batch", NULL});
    wok_graph_output(m, wok_graph_op(m, "Transpose", "", NULL, &x, 1, "y"));
    cr_assert(wok_model_finish(m, NULL) == WOK_OK, "%s", wok_ctx_error(ctx));
    const wok_value_info *y = wok_model_output(m, 0);
    cr_assert(y->dtype == WOK_F32 && y->rank == 2 && y->dims[0] == 5 && y->dims[1] == -1);
    cr_assert_str_eq(y->dim_names[1], "batch");
    wok_model_free(&m);
    wok_ctx_free(&ctx);
}

Test(model, duplicates_are_refused) {
    static const float data[4];
    wok_ctx *ctx = support_ctx(1, NULL);
    wok_model *m = new_model(ctx);
    wok_graph_input(m, "x", WOK_F32, 1, &four, NULL);
    wok_graph_input(m, "x", WOK_F32, 1, &four, NULL);
    expect_refused(ctx, m, WOK_ERR_FORMAT, "two inputs called 'x'");
    m = new_model(ctx);
    wok_graph_constant(m, "w", WOK_F32, 1, &four, data, 16, WOK_DATA_COPY);
    wok_graph_constant(m, "w", WOK_F32, 1, &four, data, 16, WOK_DATA_COPY);
    expect_refused(ctx, m, WOK_ERR_FORMAT, "two constants called 'w'");
    m = new_model(ctx);
    wok_value x = wok_graph_input(m, "x", WOK_F32, 1, &four, NULL);
    wok_graph_op(m, "Relu", "", "one", &x, 1, "y");
    wok_graph_output(m, wok_graph_op(m, "Abs", "", "two", &x, 1, "y"));
    expect_refused(ctx, m, WOK_ERR_FORMAT, "node 'two' (Abs): its output 'y' is already the output of another node");
    m = new_model(ctx);
    x = wok_graph_input(m, "x", WOK_F32, 1, &four, NULL);
    wok_graph_output(m, wok_graph_op(m, "Abs", "", "two", &x, 1, "x"));
    expect_refused(ctx, m, WOK_ERR_FORMAT, "already an input of the graph");
    wok_ctx_free(&ctx);
}

Test(model, every_unsupported_operator_is_listed) {
    wok_ctx *ctx = support_ctx(1, NULL);
    for (int allow = 0; allow < 2; allow++) {
        wok_model *m = new_model(ctx);
        wok_value x = wok_graph_input(m, "x", WOK_F32, 1, &four, NULL), y = x;
        y = wok_graph_op(m, "Frobnicate", "", NULL, &y, 1, NULL);
        y = wok_graph_op(m, "Relu", "", NULL, &y, 1, NULL);
        y = wok_graph_op(m, "Frobnicate", "", NULL, &y, 1, NULL);
        y = wok_graph_op(m, "Spin", "my.domain", NULL, &y, 1, NULL);
        wok_graph_output(m, y);
        if (!allow) {
            wok_status status = wok_model_finish(m, NULL);
            cr_assert(status == WOK_ERR_UNSUPPORTED);
            cr_assert(strstr(wok_ctx_error(ctx), "Frobnicate (2 nodes)"), "%s", wok_ctx_error(ctx));
            cr_assert(strstr(wok_ctx_error(ctx), "my.domain.Spin (1 node)"), "%s", wok_ctx_error(ctx));
            cr_assert(!strstr(wok_ctx_error(ctx), "Relu"));
        } else {
            wok_load_options options = {.size = sizeof options, .allow_unsupported = true};
            cr_assert(wok_model_finish(m, &options) == WOK_OK);
            const wok_model_info *info = wok_model_describe(m);
            cr_assert(info->op_count == 3 && info->nodes == 4);
            cr_assert_str_eq(info->ops[0].op, "Frobnicate");
            cr_assert(info->ops[0].unsupported && info->ops[0].count == 2);
            cr_assert_str_eq(info->ops[1].op, "Relu");
            cr_assert(!info->ops[1].unsupported);
            wok_session *session = NULL;
            cr_assert(wok_session_create(m, NULL, &session) == WOK_ERR_UNSUPPORTED && !session);
            cr_assert(strstr(wok_ctx_error(ctx), "Frobnicate"), "the reason is kept");
        }
        wok_model_free(&m);
    }
    wok_ctx_free(&ctx);
}

Test(model, b08_defaults_are_inputs_from_ir_4_on) {
    wok_ctx *ctx = support_ctx(1, NULL);
    for (int ir = 3; ir <= 8; ir += 5)
        for (int constant_first = 0; constant_first < 2; constant_first++) {
            wok_model *m = new_model(ctx);
            wok_model_set_ir(m, ir, "test");
            const float ten = 10;
            const int64_t one = 1;
            wok_value x = wok_graph_input(m, "x", WOK_F32, 1, &one, NULL);
            if (constant_first) wok_graph_constant(m, "b", WOK_F32, 1, &one, &ten, 4, WOK_DATA_COPY);
            wok_value b = wok_graph_input(m, "b", WOK_F32, 1, &one, NULL);
            if (!constant_first) wok_graph_constant(m, "b", WOK_F32, 1, &one, &ten, 4, WOK_DATA_COPY);
            wok_graph_output(m, wok_graph_op(m, "Add", "", NULL, (wok_value[]){x, b}, 2, "y"));
            cr_assert(wok_model_finish(m, NULL) == WOK_OK, "%s", wok_ctx_error(ctx));
            cr_assert(wok_model_input_count(m) == (ir < 4 ? 1 : 2));
            cr_assert((wok_model_input_index(m, "b") >= 0) == (ir >= 4));
            if (ir >= 4) cr_assert(wok_model_input(m, 1)->optional && !wok_model_input(m, 0)->optional);
            wok_model_free(&m);
        }
    wok_ctx_free(&ctx);
}

Test(model, reads_back_what_was_built) {
    wok_ctx *ctx = support_ctx(1, NULL);
    wok_model *m = new_model(ctx);
    wok_model_set_metadata(m, "author", "nobody");
    wok_value x = wok_graph_input(m, "x", WOK_F32, 3, (int64_t[]){-1, -1, 3}, (const char *[]){"batch", NULL, NULL});
    wok_value y = wok_graph_op(m, "Transpose", "ai.onnx", "t", &x, 1, "y");
    wok_node_set_ints(m, wok_graph_last(m), "perm", (int64_t[]){2, 1, 0}, 3);
    wok_node_set_string(m, wok_graph_last(m), "note", "a\0b", 3);
    wok_node_set_strings(m, wok_graph_last(m), "tags", (const char *[]){"u", "v"}, 2);
    wok_node_set_floats(m, wok_graph_last(m), "scales", (float[]){1.5f}, 1);
    wok_graph_output(m, y);
    cr_assert(wok_model_finish(m, NULL) == WOK_OK, "%s", wok_ctx_error(ctx));
    cr_assert(wok_model_finish(m, NULL) == WOK_ERR_STATE);
    const wok_value_info *in = wok_model_input(m, 0);
    cr_assert(in->rank == 3 && in->dims[0] == -1 && in->dims[1] == -1 && in->dims[2] == 3);
    cr_assert_str_eq(in->dim_names[0], "batch");
    cr_assert(!in->dim_names[1] && !wok_model_input(m, 1) && !wok_model_input(m, -1));
    wok_node_view node = wok_graph_node_at(m, 0);
    cr_assert_str_eq(node.op_type, "Transpose");
    cr_assert_str_eq(node.domain, "");
    cr_assert(node.attr_count == 4 && node.attrs[0].kind == WOK_ATTR_INTS && node.attrs[0].u.ints[0] == 2);
    cr_assert(node.attrs[1].count == 3 && memcmp(node.attrs[1].u.s, "a\0b", 4) == 0);
    cr_assert_str_eq(node.attrs[2].u.strings[1], "v");
    cr_assert(node.attrs[3].u.floats[0] == 1.5f);
    cr_assert_str_eq(wok_model_metadata(m, "author"), "nobody");
    cr_assert(!wok_model_metadata(m, "missing"));
    cr_assert(wok_model_output_index(m, "y") == 0 && wok_model_output_index(m, "x") == -1);
    wok_model_free(&m);
    wok_ctx_free(&ctx);
}

static int released;
static void count_release(void *user) { released += *(int *)user; }

Test(model, releases_what_it_owns_even_if_unfinished) {
    wok_ctx *ctx = support_ctx(1, NULL);
    wok_model *m = new_model(ctx);
    int one = 1, ten = 10;
    cr_assert(wok_model_own(m, &one, sizeof one, count_release, NULL, &one) == WOK_OK);
    cr_assert(wok_model_own(m, &ten, sizeof ten, count_release, NULL, &ten) == WOK_OK);
    wok_model_fail(m, WOK_ERR_FORMAT, "the builder found %s", "something");
    wok_model_fail(m, WOK_ERR_IO, "and something else");
    cr_assert(wok_model_failed(m));
    expect_refused(ctx, m, WOK_ERR_FORMAT, "the builder found something");
    cr_assert(released == 11);
    wok_ctx_free(&ctx);
}

/* ---- how many threads -------------------------------------------------------------------------------------------------------------- */

static char root[64];

static void make_root(void) {
    snprintf(root, sizeof root, "/tmp/wok-cgroup-XXXXXX");
    cr_assert(mkdtemp(root));
}

static void put_file(const char *name, const char *text) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", root, name);
    for (char *slash = strchr(path + strlen(root) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(path, 0700);
        *slash = '/';
    }
    FILE *file = fopen(path, "w");
    cr_assert(file);
    fputs(text, file);
    fclose(file);
}

static void remove_root(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", root);
    cr_assert(system(command) == 0);
}

Test(threads, b57_quota_of_version_2, .init = make_root, .fini = remove_root) {
    cr_assert(wok_cgroup_quota(root) == 0, "no file: no limit");
    put_file("proc/self/cgroup", "0::/pod/app\n");
    cr_assert(wok_cgroup_quota(root) == 0);
    put_file("sys/fs/cgroup/pod/app/cpu.max", "max 100000\n");
    cr_assert(wok_cgroup_quota(root) == 0);
    put_file("sys/fs/cgroup/pod/app/cpu.max", "200000 100000\n");
    cr_assert(wok_cgroup_quota(root) == 2);
    put_file("sys/fs/cgroup/pod/cpu.max", "150000 100000\n");
    cr_assert(wok_cgroup_quota(root) == 1.5, "an ancestor may be tighter");
    put_file("sys/fs/cgroup/cpu.max", "50000 100000\n");
    cr_assert(wok_cgroup_quota(root) == 0.5, "the mount of a container is the group itself");
    put_file("sys/fs/cgroup/cpu.max", "garbage\n");
    put_file("proc/self/cgroup", "0::/../../elsewhere\n");
    cr_assert(wok_cgroup_quota(root) == 0, "a path that climbs out is not followed");
}

Test(threads, b57_quota_of_version_1, .init = make_root, .fini = remove_root) {
    put_file("proc/self/cgroup", "7:memory:/x\n4:cpu,cpuacct:/docker/1\n1:name=systemd:/y\n");
    put_file("sys/fs/cgroup/cpu,cpuacct/docker/1/cpu.cfs_quota_us", "-1\n");
    put_file("sys/fs/cgroup/cpu,cpuacct/docker/1/cpu.cfs_period_us", "100000\n");
    cr_assert(wok_cgroup_quota(root) == 0);
    put_file("sys/fs/cgroup/cpu,cpuacct/docker/1/cpu.cfs_quota_us", "300000\n");
    cr_assert(wok_cgroup_quota(root) == 3);
    put_file("sys/fs/cgroup/cpu/docker/cpu.cfs_quota_us", "250000\n");
    put_file("sys/fs/cgroup/cpu/docker/cpu.cfs_period_us", "100000\n");
    cr_assert(wok_cgroup_quota(root) == 2.5);
}

Test(threads, b57_count) {
    static const struct {
        wok_cpu_budget budget;
        int asked, expected;
        const char *why;
    } cases[] = {
        {{64, 0, 0}, 0, 64, "allowed"},       {{64, 2.0, 0}, 0, 2, "control group"}, {{64, 1.5, 0}, 0, 2, "control group"},
        {{64, 0.25, 0}, 0, 1, "control group"}, {{2, 16, 0}, 0, 2, "allowed"},        {{64, 2, 5}, 0, 5, "WOK_NUM_THREADS"},
        {{64, 2, 5}, 3, 3, "asked"},          {{1, 0, 0}, 0, 1, "allowed"},          {{1000, 0, 0}, 0, WOK_MAX_THREADS, "allowed"},
        {{4, 0, 0}, -3, 4, "allowed"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[256];
        int got = wok_thread_count(&cases[i].budget, cases[i].asked);
        cr_assert(got == cases[i].expected, "case %zu: %d instead of %d", i, got, cases[i].expected);
        wok_thread_count_text(&cases[i].budget, cases[i].asked, text, sizeof text);
        cr_assert(strstr(text, cases[i].why), "case %zu: '%s' does not say '%s'", i, text, cases[i].why);
    }
    const wok_cpu_budget two = {2, 0, 0};
    cr_assert(wok_spin_ns(&two, 2, 0) == 50000);
    cr_assert(wok_spin_ns(&two, 2, -1) == 0);
    cr_assert(wok_spin_ns(&two, 3, 0) == 0, "no spinning where threads share a CPU");
    cr_assert(wok_spin_ns(&two, 2, 100000) == 1000000);
}

Test(threads, environment) {
    static const struct {
        const char *text;
        int expected;
    } cases[] = {{"3", 3}, {"0", 0}, {"-1", 0}, {"many", 0}, {"", 0}, {"4x", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        setenv("WOK_NUM_THREADS", cases[i].text, 1);
        wok_cpu_budget budget;
        wok_cpu_budget_read(&budget);
        cr_assert(budget.environment == cases[i].expected, "'%s'", cases[i].text);
        cr_assert(budget.affinity >= 1);
    }
    setenv("WOK_NUM_THREADS", "3", 1);
    wok_ctx *ctx = support_ctx(0, NULL);
    cr_assert(wok_ctx_threads(ctx) == 3);
    wok_ctx_free(&ctx);
    ctx = support_ctx(1, NULL);
    cr_assert(wok_ctx_threads(ctx) == 1 && wok_ctx_parallel(ctx) == NULL);
    wok_ctx_free(&ctx);
}

/* ---- the pool ------------------------------------------------------------------------------------------------------------------------ */

typedef struct job {
    _Atomic int done[512];
    _Atomic int in_use[WOK_MAX_THREADS]; /* by worker */
    _Atomic int clashes;
    int threads;
} job;

static void count_task(void *arg, int64_t task, int worker) {
    job *j = arg;
    if (worker < 0 || worker >= j->threads || atomic_fetch_add(&j->in_use[worker], 1) != 0) atomic_fetch_add(&j->clashes, 1);
    for (volatile int i = 0; i < 50; i++) {}
    atomic_fetch_add(&j->done[task], 1);
    atomic_fetch_sub(&j->in_use[worker], 1);
}

static const char *run_jobs(wok_ctx *ctx, int rounds) {
    const wok_parallel *p = wok_ctx_parallel(ctx);
    for (int round = 0; round < rounds; round++) {
        job j = {.threads = p->threads};
        int tasks = round % 300;
        p->run(p->self, count_task, &j, tasks);
        for (int i = 0; i < 512; i++)
            if (j.done[i] != (i < tasks)) return "a task was not done exactly once";
        if (j.clashes) return "two running tasks shared a worker number";
        if (round % 500 == 499) usleep(1000); /* long enough for workers to fall asleep */
    }
    return NULL;
}

Test(pool, every_task_once) {
    for (int threads = 2; threads <= 5; threads++) {
        wok_ctx *ctx = support_ctx(threads, NULL);
        const char *wrong = run_jobs(ctx, 3000);
        cr_assert(!wrong, "%d threads: %s", threads, wrong);
        wok_ctx_free(&ctx);
    }
}

static void *run_jobs_thread(void *arg) { return (void *)(uintptr_t)run_jobs(arg, 2000); }

Test(pool, several_callers_at_once) {
    wok_ctx *ctx = support_ctx(3, NULL);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, run_jobs_thread, ctx);
    for (int i = 0; i < 4; i++) {
        void *wrong = NULL;
        pthread_join(threads[i], &wrong);
        cr_assert(!wrong, "%s", (char *)wrong);
    }
    wok_ctx_free(&ctx);
}

static void many_small_runs(wok_ctx *ctx) {
    for (int i = 0; i < 200; i++) {
        job j = {.threads = wok_ctx_threads(ctx)};
        const wok_parallel *p = wok_ctx_parallel(ctx);
        p->run(p->self, count_task, &j, 8);
    }
}

Test(pool, starts_late_and_stops) {
    for (int i = 0; i < 50; i++) {
        wok_ctx *ctx = support_ctx(4, NULL);
        if (i % 2) many_small_runs(ctx);
        wok_ctx_free(&ctx);
    }
}

static void halve_smallest(void *arg, int64_t task, int worker) {
    (void)worker;
    volatile float tiny = 1.17549435e-38f; /* FLT_MIN */
    ((float *)arg)[task] = tiny / 2;
}

Test(pool, b60_workers_flush_denormals) {
    wok_ctx *ctx = support_ctx(4, NULL);
    float results[64];
    wok_fp_state fp = wok_fp_enter();
    wok_ctx_parallel(ctx)->run(wok_ctx_parallel(ctx)->self, halve_smallest, results, 64);
    wok_fp_leave(fp);
    for (int i = 0; i < 64; i++) cr_assert(results[i] == 0);
    halve_smallest(results, 0, 0);
    cr_assert(results[0] > 0, "the caller's own state is restored");
    wok_ctx_free(&ctx);
}

static void backwards(void *self, wok_task_fn fn, void *arg, int64_t tasks) {
    (void)self;
    for (int64_t i = tasks - 1; i >= 0; i--) fn(arg, i, (int)(i % 2));
}

Test(pool, b60_callers_executor_is_flushed_and_restored_too) {
    const wok_parallel executor = {backwards, NULL, 2};
    wok_ctx_options options = {.size = sizeof options, .executor = &executor};
    wok_ctx *ctx = wok_ctx_create(&options);
    float results[8];
    cr_assert(wok_ctx_threads(ctx) == 2);
    wok_ctx_parallel(ctx)->run(wok_ctx_parallel(ctx)->self, halve_smallest, results, 8);
    for (int i = 0; i < 8; i++) cr_assert(results[i] == 0);
    halve_smallest(results, 0, 0);
    cr_assert(results[0] > 0);
    wok_ctx_free(&ctx);
}

/* The CPU clock of the thread that runs the task; the worker's number is its place. */
static void note_clock(void *arg, int64_t task, int worker) {
    (void)task;
    pthread_getcpuclockid(pthread_self(), (clockid_t *)arg + worker);
    usleep(100); /* long enough for the other thread to wake up and take its share */
}

/* Only the workers' own time counts: Criterion's threads are busy in the same process. */
Test(pool, b58_idle_workers_sleep) {
    wok_ctx *ctx = support_ctx(2, NULL);
    clockid_t clocks[2] = {CLOCK_THREAD_CPUTIME_ID, CLOCK_THREAD_CPUTIME_ID};
    many_small_runs(ctx);
    for (int i = 0; i < 1000 && clocks[1] == CLOCK_THREAD_CPUTIME_ID; i++)
        wok_ctx_parallel(ctx)->run(wok_ctx_parallel(ctx)->self, note_clock, clocks, 64);
    cr_assert(clocks[1] != CLOCK_THREAD_CPUTIME_ID, "the second thread never took part");
    usleep(20000);
    struct timespec before, after;
    clock_gettime(clocks[1], &before);
    usleep(500000);
    clock_gettime(clocks[1], &after);
    double ms = 1e3 * (double)(after.tv_sec - before.tv_sec) + 1e-6 * (double)(after.tv_nsec - before.tv_nsec);
    cr_assert(ms < 5, "%.1f ms of a worker's CPU in half a second", ms);
    wok_ctx_free(&ctx);
}

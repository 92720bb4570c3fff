/* graphs.h - for tests of rewrites: a small language for graphs, running one with and without a rewrite, comparing. */
#ifndef WOK_TEST_GRAPHS_H
#define WOK_TEST_GRAPHS_H

#include "support.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- a small language for graphs ------------------------------------------------------------------------------------------ */

static wok_model *m;

static inline wok_value op(const char *type, wok_value a, wok_value b) {
    wok_value in[2] = {a, b};
    return wok_graph_op(m, type, "", NULL, in, b == WOK_ABSENT ? 1 : 2, NULL);
}
static inline wok_value unary(const char *type, wok_value a) {
    return op(type, a, WOK_ABSENT);
}
static inline wok_value number(float x) {
    return wok_graph_constant(m, NULL, WOK_F32, 0, NULL, &x, sizeof x, WOK_DATA_COPY);
}
static inline wok_value ints(const int64_t *values, int64_t count) {
    return wok_graph_constant(m, NULL, WOK_I64, 1, &count, values, (size_t)count * 8, WOK_DATA_COPY);
}
#define INTS(...) ints((const int64_t[]){__VA_ARGS__}, (int64_t)(sizeof((const int64_t[]){__VA_ARGS__}) / 8))

static inline wok_value random_constant(int rank, const int64_t *dims, unsigned seed) {
    float data[4096];
    size_t count = 1;
    for (int i = 0; i < rank; i++) count *= (size_t)dims[i];
    cr_assert(count <= 4096);
    support_random(data, count, seed);
    return wok_graph_constant(m, NULL, WOK_F32, rank, dims, data, count * 4, WOK_DATA_COPY);
}
#define WEIGHT(seed, ...)                                                                                              \
    random_constant((int)(sizeof((const int64_t[]){__VA_ARGS__}) / 8), (const int64_t[]){__VA_ARGS__}, seed)

static inline void set_ints(const char *name, const int64_t *values, int64_t count) {
    wok_node_set_ints(m, wok_graph_last(m), name, values, count);
}
static inline wok_value transpose(wok_value x, const int64_t *perm, int rank) {
    wok_value y = unary("Transpose", x);
    set_ints("perm", perm, rank);
    return y;
}

/* ---- running ---------------------------------------------------------------------------------------------------------------- */

enum { MAX_OUT = 1 << 14 };
typedef struct result {
    float y[MAX_OUT];
    size_t count;
    int nodes;
    char ops[64][24];    /* labels, in order */
    wok_dtype types[64]; /* what the nodes compute in */
    char misses[512];
} result;

typedef void (*builder)(void);

static inline wok_model *make(wok_ctx *ctx, int64_t opset, builder build) {
    cr_assert_eq(wok_model_new(ctx, "test", &m), WOK_OK);
    wok_model_set_opset(m, "", opset);
    wok_model_set_opset(m, "com.microsoft", 1);
    build();
    cr_assert_eq(wok_model_finish(m, NULL), WOK_OK, "%s", wok_ctx_error(ctx));
    return m;
}

static wok_session_options session_options; /* of run_once(), beside the passes */

static inline void run_once(int64_t opset, builder build, const char *const *without, int count, const int64_t *dims,
                            int rank, result *r) {
    static float x[MAX_OUT];
    wok_ctx *ctx = support_ctx(1, NULL);
    wok_model *model = make(ctx, opset, build);
    wok_session *session = NULL;
    wok_session_options options = session_options;
    options.size = sizeof options;
    options.no_passes = without;
    options.no_pass_count = count;
    cr_assert_eq(wok_session_create(model, &options, &session), WOK_OK, "%s", wok_ctx_error(ctx));
    size_t n = 1;
    for (int i = 0; i < rank; i++) n *= (size_t)dims[i];
    support_random(x, n, 77);
    cr_assert_eq(wok_session_set_input(session, 0, WOK_F32, dims, rank, x, n * 4), WOK_OK, "%s",
                 wok_session_error(session));
    cr_assert_eq(wok_session_run(session), WOK_OK, "%s", wok_session_error(session));
    const wok_tensor *y = wok_session_output(session, 0);
    cr_assert(y->dtype == WOK_F32 && y->bytes <= sizeof r->y);
    memcpy(r->y, y->data, y->bytes);
    r->count = y->bytes / 4;
    wok_session_info info = {0};
    wok_session_describe(session, &info);
    r->nodes = info.nodes;
    for (int i = 0; i < info.nodes && i < 64; i++) {
        wok_node_info node;
        cr_assert_eq(wok_session_node(session, i, &node), WOK_OK);
        snprintf(r->ops[i], sizeof r->ops[i], "%s", node.op);
        r->types[i] = node.dtype;
    }
    r->misses[0] = 0;
    for (int i = 0; i < info.near_misses; i++) {
        wok_near_miss miss;
        cr_assert_eq(wok_session_near_miss(session, i, &miss), WOK_OK);
        size_t used = strlen(r->misses);
        snprintf(r->misses + used, sizeof r->misses - used, "%s: %s; ", miss.pass, miss.reason);
    }
    wok_session_free(&session);
    wok_model_free(&model);
    wok_ctx_free(&ctx);
}

static result with, plain;

static inline int count_of(const result *r, const char *name) {
    int n = 0;
    for (int i = 0; i < r->nodes && i < 64; i++) n += !strcmp(r->ops[i], name);
    return n;
}

/* Nodes of this label that compute in bytes. */
static inline int bytes_of(const result *r, const char *name) {
    int n = 0;
    for (int i = 0; i < r->nodes && i < 64; i++) n += !strcmp(r->ops[i], name) && r->types[i] == WOK_I8;
    return n;
}

/* Runs both ways; the values agree within `tolerance` of the largest. */
static inline void compare(int64_t opset, builder build, const char *pass, const int64_t *dims, int rank,
                           double tolerance) {
    run_once(opset, build, NULL, 0, dims, rank, &with);
    run_once(opset, build, &pass, 1, dims, rank, &plain);
    cr_assert_eq(with.count, plain.count);
    double largest = 0;
    for (size_t i = 0; i < plain.count; i++) largest = fmax(largest, fabs((double)plain.y[i]));
    double distance = support_distance(with.y, plain.y, with.count);
    cr_assert(distance <= tolerance * largest, "%s changes values by %g of %g", pass, distance, largest);
    cr_assert(with.nodes <= plain.nodes, "%s: %d nodes, %d without", pass, with.nodes, plain.nodes);
}
#define SHAPE(...) (const int64_t[]){__VA_ARGS__}, (int)(sizeof((const int64_t[]){__VA_ARGS__}) / 8)

static inline wok_value input(int rank, const int64_t *dims) {
    static const char *const names[] = {"batch", "rows", NULL, NULL};
    return wok_graph_input(m, "x", WOK_F32, rank, dims, names);
}
#define INPUT(...) input((int)(sizeof((const int64_t[]){__VA_ARGS__}) / 8), (const int64_t[]){__VA_ARGS__})

#endif

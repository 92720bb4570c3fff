/* nodes.h - for tests of single operators: a graph of one node or a few, its data, and what must come out. Every case
 * runs three times: with its data as inputs, with its data as constants (folded when the program is built), without
 * rewrites. */
#ifndef NODES_H
#define NODES_H

#include "support.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef enum form { AS_INPUTS, AS_CONSTANTS, NO_PASSES, FORMS } form;
static inline const char *form_name(form f) { return (const char *[]){"inputs", "constants", "no passes"}[f]; }

typedef struct feed {
    wok_dtype dtype;
    int rank;
    int64_t dims[WOK_MAX_RANK];
    size_t bytes;
    _Alignas(64) unsigned char data[1024];
} feed;

typedef struct net {
    form form;
    wok_ctx *ctx;
    wok_model *model;
    wok_session *session;
    feed feeds[8];
    int feed_count;
} net;

#define DIMS(...) (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__}
#define SCALAR 0, NULL
#define F32(...) (float[]){__VA_ARGS__}
#define I64(...) (int64_t[]){__VA_ARGS__}
#define LIST(n, ...) list(n, (int64_t[]){__VA_ARGS__}, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)))

static inline size_t count_of(const int64_t *dims, int rank) {
    size_t n = 1;
    for (int d = 0; d < rank; d++) n *= (size_t)dims[d];
    return n;
}

/* Data of the case: an input of free sizes, or a constant. */
static inline wok_value tensor(net *n, wok_dtype dtype, int rank, const int64_t *dims, const void *data) {
    char name[16];
    size_t bytes = count_of(dims, rank) * wok_dtype_size(dtype);
    snprintf(name, sizeof name, "in%d", n->feed_count);
    if (n->form == AS_CONSTANTS) {
        n->feed_count++;
        return wok_graph_constant(n->model, name, dtype, rank, dims, data, bytes, WOK_DATA_COPY);
    }
    int64_t any[WOK_MAX_RANK];
    feed *f = &n->feeds[n->feed_count++];
    *f = (feed){.dtype = dtype, .rank = rank, .bytes = bytes};
    cr_assert_leq(bytes, sizeof f->data);
    if (data) memcpy(f->data, data, bytes);
    for (int d = 0; d < rank; d++) f->dims[d] = dims[d], any[d] = -1;
    return wok_graph_input(n->model, name, dtype, rank, any, NULL);
}

static inline wok_value f32(net *n, int rank, const int64_t *dims, const float *data) {
    return tensor(n, WOK_F32, rank, dims, data);
}
static inline wok_value i64(net *n, int rank, const int64_t *dims, const int64_t *data) {
    return tensor(n, WOK_I64, rank, dims, data);
}

/* Always a constant: axes, shapes. */
static inline wok_value list(net *n, const int64_t *data, int count) {
    return wok_graph_constant(n->model, NULL, WOK_I64, 1, (int64_t[]){count}, data, (size_t)count * sizeof *data,
                              WOK_DATA_COPY);
}
static inline wok_value number(net *n, float value) {
    return wok_graph_constant(n->model, NULL, WOK_F32, 0, NULL, &value, sizeof value, WOK_DATA_COPY);
}

static inline wok_value op_in(net *n, const char *domain, const char *type, const wok_value *in, int count) {
    return wok_graph_op(n->model, type, domain, "node", in, count, NULL);
}
#define OP(n, type, ...)                                                                                               \
    op_in(n, "", type, (wok_value[]){__VA_ARGS__}, (int)(sizeof((wok_value[]){__VA_ARGS__}) / sizeof(wok_value)))

static inline void int_attr(net *n, const char *name, int64_t value) {
    wok_node_set_int(n->model, wok_graph_last(n->model), name, value);
}
static inline void float_attr(net *n, const char *name, float value) {
    wok_node_set_float(n->model, wok_graph_last(n->model), name, value);
}
static inline void text_attr(net *n, const char *name, const char *text) {
    wok_node_set_string(n->model, wok_graph_last(n->model), name, text, strlen(text));
}
#define INTS_ATTR(n, name, ...)                                                                                        \
    wok_node_set_ints((n)->model, wok_graph_last((n)->model), name, (int64_t[]){__VA_ARGS__},                          \
                      sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t))

static inline net begin(form f, int64_t opset) {
    net n = {.form = f, .ctx = support_ctx(2, NULL)};
    cr_assert_eq(wok_model_new(n.ctx, "test", &n.model), WOK_OK);
    wok_model_set_opset(n.model, "", opset);
    wok_model_set_opset(n.model, "com.microsoft", 1);
    return n;
}

static inline void end(net *n) {
    wok_session_free(&n->session);
    wok_model_free(&n->model);
    wok_ctx_free(&n->ctx);
}

/* Runs the graph up to y. */
static inline wok_status run(net *n, wok_value y) {
    static const char *const rewrites[] = {"widen_f16", "merge_equal", "simplify", "fuse_layernorm", "fuse_gelu",
                                           "fuse_attention", "fold_batchnorm", "fold_pad", "layout", "fuse_gemm",
                                           "fuse_epilogue"};
    wok_session_options options = {.size = sizeof options};
    if (n->form == NO_PASSES) {
        options.no_passes = rewrites;
        options.no_pass_count = sizeof rewrites / sizeof rewrites[0];
    }
    wok_graph_output(n->model, y);
    wok_status status = wok_model_finish(n->model, NULL);
    if (status == WOK_OK) status = wok_session_create(n->model, &options, &n->session);
    for (int i = 0; i < n->feed_count && n->form != AS_CONSTANTS && status == WOK_OK; i++) {
        const feed *f = &n->feeds[i];
        status = wok_session_set_input(n->session, i, f->dtype, f->dims, f->rank, f->data, f->bytes);
    }
    return status == WOK_OK ? wok_session_run(n->session) : status;
}

static inline const char *why(const net *n) {
    return n->session && *wok_session_error(n->session) ? wok_session_error(n->session) : wok_ctx_error(n->ctx);
}

static inline void check_shape(const net *n, const wok_tensor *y, wok_dtype dtype, int rank, const int64_t *dims) {
    cr_assert_eq(y->dtype, dtype, "%s: %s", form_name(n->form), wok_dtype_name(y->dtype));
    cr_assert_eq(y->rank, rank, "%s: rank %d, not %d", form_name(n->form), y->rank, rank);
    for (int d = 0; d < rank; d++)
        cr_assert_eq(y->dims[d], dims[d], "%s: dimension %d is %ld, not %ld", form_name(n->form), d, (long)y->dims[d],
                     (long)dims[d]);
}

static inline const wok_tensor *result(net *n, wok_value y, wok_dtype dtype, int rank, const int64_t *dims) {
    wok_status status = run(n, y);
    cr_assert_eq(status, WOK_OK, "%s: %s", form_name(n->form), why(n));
    const wok_tensor *t = wok_session_output(n->session, 0);
    check_shape(n, t, dtype, rank, dims);
    return t;
}

/* y has these dims and elements, within 1e-6 of their size. */
static inline void gives(net *n, wok_value y, int rank, const int64_t *dims, const float *want) {
    const wok_tensor *t = result(n, y, WOK_F32, rank, dims);
    const float *got = t->data;
    for (size_t i = 0; i < count_of(dims, rank); i++) {
        bool same = got[i] == want[i] || (isnan(got[i]) && isnan(want[i]));
        cr_expect(same || fabsf(got[i] - want[i]) <= 1e-6f * fmaxf(1, fabsf(want[i])),
                  "%s: element %zu is %.9g, not %.9g", form_name(n->form), i, (double)got[i], (double)want[i]);
    }
}

static inline void gives_bytes(net *n, wok_value y, wok_dtype dtype, int rank, const int64_t *dims, const void *want) {
    const wok_tensor *t = result(n, y, dtype, rank, dims);
    size_t size = wok_dtype_size(dtype);
    for (size_t i = 0; i < count_of(dims, rank); i++)
        cr_expect_eq(memcmp((const char *)t->data + i * size, (const char *)want + i * size, size), 0,
                     "%s: element %zu differs", form_name(n->form), i);
}

static inline void gives_i64(net *n, wok_value y, int rank, const int64_t *dims, const int64_t *want) {
    gives_bytes(n, y, WOK_I64, rank, dims, want);
}

/* An error of this kind whose sentence names the node and holds `text`. */
static inline void fails(net *n, wok_value y, wok_status status, const char *text) {
    wok_status got = run(n, y);
    cr_expect_eq(got, status, "%s: %s (%s)", form_name(n->form), wok_status_name(got), why(n));
    cr_expect_not_null(strstr(why(n), text), "%s: \"%s\" does not say \"%s\"", form_name(n->form), why(n), text);
    cr_expect_not_null(strstr(why(n), "node"), "%s: \"%s\" does not name the node", form_name(n->form), why(n));
}

/* CASE(suite, name, opset) { body with `n` } */
#define CASE(suite, name, opset)                                                                                       \
    static void suite##_##name(net *n);                                                                                \
    Test(suite, name) {                                                                                                \
        for (form f = 0; f < FORMS; f++) {                                                                             \
            net n = begin(f, opset);                                                                                   \
            suite##_##name(&n);                                                                                        \
            end(&n);                                                                                                   \
        }                                                                                                              \
    }                                                                                                                  \
    static void suite##_##name(net *n)

#endif

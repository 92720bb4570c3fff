/* loading.h - what the tests of the loaders share: files, an allocator that fails on demand, models compared, ONNX
 * files made by hand. Functions are static inline: a test uses what it needs. */
#ifndef TEST_LOADING_H
#define TEST_LOADING_H

#include "onnx.h"

#include <criterion/criterion.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MODELS WOK_TEST_DATA "/models/"
#define SHARED WOK_SOURCE_DIR "/../shared/"

/* True if the shared folder is there. Without it a test is skipped; in CI, where CI=true, it fails. */
static inline bool have_shared(void) {
    if (access(SHARED "fixtures", R_OK) == 0) return true;
    const char *ci = getenv("CI");
    cr_assert(!ci || strcmp(ci, "true"), "../shared is absent");
    return false;
}
#define NEED_SHARED()                                                                                                  \
    if (!have_shared()) cr_skip_test("../shared is absent")

static inline char *path_of(const char *format, ...) {
    static char ring[8][512];
    static unsigned next;
    char *path = ring[next++ % 8];
    va_list args;
    va_start(args, format);
    vsnprintf(path, sizeof ring[0], format, args);
    va_end(args);
    return path;
}

static inline uint8_t *read_file(const char *path, size_t *bytes) {
    FILE *file = fopen(path, "rb");
    cr_assert(file, "%s", path);
    fseek(file, 0, SEEK_END);
    *bytes = (size_t)ftell(file);
    rewind(file);
    uint8_t *data = malloc(*bytes + 1);
    cr_assert_eq(fread(data, 1, *bytes, file), *bytes);
    fclose(file);
    return data;
}

static inline void write_file(const char *path, const void *data, size_t bytes) {
    FILE *file = fopen(path, "wb");
    cr_assert(file, "%s", path);
    cr_assert_eq(fwrite(data, 1, bytes, file), bytes);
    cr_assert_eq(fclose(file), 0);
}

/* A fresh folder; removed by remove_temp. */
static inline char *make_temp(void) {
    static char folder[64];
    snprintf(folder, sizeof folder, "/tmp/wok-test-XXXXXX");
    cr_assert(mkdtemp(folder));
    return folder;
}

static inline void remove_temp(const char *folder) { cr_assert_eq(system(path_of("rm -rf '%s'", folder)), 0); }

static inline int count_files(const char *folder) {
    FILE *list = popen(path_of("ls -A '%s' | wc -l", folder), "r");
    int count = -1;
    cr_assert_eq(fscanf(list, "%d", &count), 1);
    pclose(list);
    return count;
}

/* ---- contexts ---------------------------------------------------------------------------------------------------- */

typedef struct failing {
    long calls, fail_at; /* fail_at < 0: never */
    long live;
    size_t largest;
} failing;

static inline void *failing_alloc(void *user, size_t bytes, size_t alignment) {
    failing *f = user;
    void *ptr = NULL;
    if (f->calls++ == f->fail_at) return NULL;
    if (bytes > f->largest) f->largest = bytes;
    if (posix_memalign(&ptr, alignment < sizeof ptr ? sizeof ptr : alignment, bytes)) return NULL;
    f->live++;
    return ptr;
}

static inline void failing_free(void *user, void *ptr, size_t bytes) {
    (void)bytes;
    ((failing *)user)->live--;
    free(ptr);
}

static inline wok_ctx *failing_ctx(failing *f) {
    wok_allocator allocator = {failing_alloc, failing_free, f};
    return wok_ctx_create(&(wok_ctx_options){.size = sizeof(wok_ctx_options), .threads = 1, .allocator = &allocator});
}

/* One sentence, and it is not empty. */
static inline void expect_sentence(wok_ctx *ctx) {
    const char *text = wok_ctx_error(ctx);
    cr_assert(*text, "a failure without a sentence");
    cr_assert_not(strchr(text, '\n'), "more than one line: %s", text);
}

/* ---- models compared --------------------------------------------------------------------------------------------- */

static inline wok_value value_called(const wok_model *model, const char *name) {
    for (int i = 0; i < wok_graph_value_count(model); i++)
        if (!strcmp(wok_graph_value_at(model, i).name, name)) return i;
    return WOK_ABSENT;
}

static inline void same_value(const wok_model *a, wok_value i, const wok_model *b, wok_value k, bool name_too) {
    cr_assert_eq(i == WOK_ABSENT, k == WOK_ABSENT);
    if (i == WOK_ABSENT) return;
    wok_value_view x = wok_graph_value_at(a, i), y = wok_graph_value_at(b, k);
    if (name_too) cr_assert_str_eq(x.name, y.name);
    cr_assert_eq(x.dtype, y.dtype, "%s: %d %d", x.name, x.dtype, y.dtype);
    cr_assert_eq(x.rank, y.rank, "%s: %d %d", x.name, x.rank, y.rank);
    for (int d = 0; d < x.rank; d++) {
        cr_assert_eq(x.dims[d], y.dims[d], "%s", x.name);
        cr_assert_eq(!x.dim_names[d], !y.dim_names[d], "%s", x.name);
        if (x.dim_names[d]) cr_assert_str_eq(x.dim_names[d], y.dim_names[d]);
    }
    cr_assert_eq(x.is_input, y.is_input);
    cr_assert_eq(x.is_output, y.is_output);
    cr_assert_eq(!x.data, !y.data, "%s", x.name);
    cr_assert_eq(x.bytes, y.bytes, "%s", x.name);
    if (x.data) cr_assert_eq(memcmp(x.data, y.data, x.bytes), 0, "%s", x.name);
}

static inline void same_attr(const wok_model *a, const wok_attr *x, const wok_model *b, const wok_attr *y) {
    cr_assert_str_eq(x->name, y->name);
    cr_assert_eq(x->kind, y->kind, "%s", x->name);
    if (x->kind == WOK_ATTR_INT) cr_assert_eq(x->u.i, y->u.i, "%s", x->name);
    if (x->kind == WOK_ATTR_FLOAT) cr_assert_eq(memcmp(&x->u.f, &y->u.f, 4), 0, "%s", x->name);
    if (x->kind == WOK_ATTR_TENSOR) same_value(a, x->u.tensor, b, y->u.tensor, false);
    if (x->kind == WOK_ATTR_INT || x->kind == WOK_ATTR_FLOAT || x->kind == WOK_ATTR_TENSOR) return;
    cr_assert_eq(x->count, y->count, "%s", x->name);
    size_t n = (size_t)x->count;
    if (x->kind == WOK_ATTR_STRING) cr_assert_eq(memcmp(x->u.s, y->u.s, n), 0);
    if (x->kind == WOK_ATTR_INTS && n) cr_assert_eq(memcmp(x->u.ints, y->u.ints, n * 8), 0);
    if (x->kind == WOK_ATTR_FLOATS && n) cr_assert_eq(memcmp(x->u.floats, y->u.floats, n * 4), 0);
    for (size_t i = 0; x->kind == WOK_ATTR_STRINGS && i < n; i++) cr_assert_str_eq(x->u.strings[i], y->u.strings[i]);
}

static inline void same_node(const wok_model *a, const wok_model *b, int i) {
    wok_node_view x = wok_graph_node_at(a, i), y = wok_graph_node_at(b, i);
    cr_assert_str_eq(x.op_type, y.op_type);
    cr_assert_str_eq(x.domain, y.domain);
    cr_assert_str_eq(x.name, y.name);
    cr_assert_eq(x.input_count, y.input_count, "%s", x.name);
    cr_assert_eq(x.output_count, y.output_count, "%s", x.name);
    cr_assert_eq(x.attr_count, y.attr_count, "%s", x.name);
    for (int k = 0; k < x.input_count; k++) same_value(a, x.inputs[k], b, y.inputs[k], true);
    for (int k = 0; k < x.output_count; k++) same_value(a, x.outputs[k], b, y.outputs[k], true);
    for (int k = 0; k < x.attr_count; k++) same_attr(a, &x.attrs[k], b, &y.attrs[k]);
}

/* Equal in all that a file says, bit for bit. */
static inline void same_model(const wok_model *a, const wok_model *b) {
    int x, y;
    const wok_value *p = wok_graph_inputs(a, &x), *q = wok_graph_inputs(b, &y);
    cr_assert_eq(x, y);
    for (int i = 0; i < x; i++) same_value(a, p[i], b, q[i], true);
    p = wok_graph_outputs(a, &x), q = wok_graph_outputs(b, &y);
    cr_assert_eq(x, y);
    for (int i = 0; i < x; i++) same_value(a, p[i], b, q[i], true);
    cr_assert_eq(wok_graph_node_count(a), wok_graph_node_count(b));
    for (int i = 0; i < wok_graph_node_count(a); i++) same_node(a, b, i);
    for (int i = 0; i < wok_graph_value_count(a); i++) {
        wok_value_view v = wok_graph_value_at(a, i);
        if (v.data && !v.only_attr) same_value(a, i, b, value_called(b, v.name), true);
    }
    cr_assert_eq(wok_model_opset_count(a), wok_model_opset_count(b));
    for (int i = 0; i < wok_model_opset_count(a); i++) {
        int64_t v, w;
        cr_assert_str_eq(wok_model_opset_at(a, i, &v), wok_model_opset_at(b, i, &w));
        cr_assert_eq(v, w);
    }
    cr_assert_eq(wok_model_metadata_count(a), wok_model_metadata_count(b));
    for (int i = 0; i < wok_model_metadata_count(a); i++) {
        const char *v, *w;
        cr_assert_str_eq(wok_model_metadata_at(a, i, &v), wok_model_metadata_at(b, i, &w));
        cr_assert_str_eq(v, w);
    }
    cr_assert_str_eq(wok_model_describe(a)->producer, wok_model_describe(b)->producer);
}

/* ---- ONNX files made by hand ------------------------------------------------------------------------------------- */

/* make_start, then fields of the graph, then make_end, which gives the file's bytes (the caller frees them). */
typedef struct make {
    wok_wire_out wire;
    wok_wire_mark graph;
} make;

static inline make make_start(wok_ctx *ctx, int64_t ir, int64_t opset) {
    make m = {.wire = {.ctx = ctx}};
    wok_wire_put_int(&m.wire, MODEL_IR_VERSION, ir);
    wok_wire_mark mark = wok_wire_begin(&m.wire, MODEL_OPSET_IMPORT);
    wok_wire_put_int(&m.wire, OPSET_VERSION, opset);
    wok_wire_end(&m.wire, mark);
    m.graph = wok_wire_begin(&m.wire, MODEL_GRAPH);
    return m;
}

static inline uint8_t *make_bytes(wok_wire_out *wire, size_t *bytes) {
    *bytes = (size_t)wok_wire_total(wire);
    uint8_t *file = malloc(*bytes + 1), *to = file;
    size_t at = 0;
    for (size_t i = 0; i <= wire->ref_count; i++) {
        size_t stop = i < wire->ref_count ? wire->refs[i].at : wire->bytes;
        memcpy(to, wire->data + at, stop - at);
        to += stop - at;
        at = stop;
        if (i == wire->ref_count) break;
        memcpy(to, wire->refs[i].span.data, wire->refs[i].span.bytes);
        to += wire->refs[i].span.bytes;
    }
    wok_wire_out_free(wire);
    return file;
}

static inline uint8_t *make_end(make *m, size_t *bytes) {
    wok_wire_end(&m->wire, m->graph);
    return make_bytes(&m->wire, bytes);
}

/* GRAPH_INPUT or GRAPH_OUTPUT; dims below 0 are free. */
static inline void make_value(make *m, uint32_t field, const char *name, int64_t elem, int rank, const int64_t *dims) {
    wok_wire_mark info = wok_wire_begin(&m->wire, field);
    wok_wire_put_text(&m->wire, VALUE_NAME, name);
    wok_wire_mark type = wok_wire_begin(&m->wire, VALUE_TYPE);
    wok_wire_mark tensor = wok_wire_begin(&m->wire, TYPE_TENSOR_TYPE);
    wok_wire_put_int(&m->wire, TENSOR_TYPE_ELEM, elem);
    wok_wire_mark shape = wok_wire_begin(&m->wire, TENSOR_TYPE_SHAPE);
    for (int i = 0; i < rank; i++) {
        wok_wire_mark dim = wok_wire_begin(&m->wire, SHAPE_DIM);
        if (dims[i] >= 0) wok_wire_put_int(&m->wire, DIM_VALUE, dims[i]);
        wok_wire_end(&m->wire, dim);
    }
    wok_wire_end(&m->wire, shape);
    wok_wire_end(&m->wire, tensor);
    wok_wire_end(&m->wire, type);
    wok_wire_end(&m->wire, info);
}

/* Starts a TensorProto with its name, type and shape. */
static inline wok_wire_mark make_tensor(make *m, uint32_t field, const char *name, int64_t type, int rank,
                                        const int64_t *dims) {
    wok_wire_mark mark = wok_wire_begin(&m->wire, field);
    for (int i = 0; i < rank; i++) wok_wire_put_int(&m->wire, TENSOR_DIMS, dims[i]);
    wok_wire_put_int(&m->wire, TENSOR_DATA_TYPE, type);
    wok_wire_put_text(&m->wire, TENSOR_NAME, name);
    return mark;
}

static inline void make_raw(make *m, const char *name, int64_t type, int rank, const int64_t *dims, const void *data,
                            size_t bytes) {
    wok_wire_mark mark = make_tensor(m, GRAPH_INITIALIZER, name, type, rank, dims);
    wok_wire_put_bytes(&m->wire, TENSOR_RAW_DATA, data, bytes);
    wok_wire_end(&m->wire, mark);
}

static inline wok_wire_mark make_node_start(make *m, const char *op, const char *in1, const char *in2,
                                            const char *out) {
    wok_wire_mark mark = wok_wire_begin(&m->wire, GRAPH_NODE);
    if (in1) wok_wire_put_text(&m->wire, NODE_INPUT, in1);
    if (in2) wok_wire_put_text(&m->wire, NODE_INPUT, in2);
    wok_wire_put_text(&m->wire, NODE_OUTPUT, out);
    wok_wire_put_text(&m->wire, NODE_OP_TYPE, op);
    return mark;
}

static inline void make_node(make *m, const char *op, const char *in1, const char *in2, const char *out) {
    wok_wire_end(&m->wire, make_node_start(m, op, in1, in2, out));
}

/* The frame of most cases: Y = Add(X, W), f32 [4], with W left to be made. */
static inline make make_add(wok_ctx *ctx, int64_t ir, int64_t opset) {
    make m = make_start(ctx, ir, opset);
    make_node(&m, "Add", "X", "W", "Y");
    make_value(&m, GRAPH_INPUT, "X", WOK_F32, 1, (int64_t[]){4});
    make_value(&m, GRAPH_OUTPUT, "Y", WOK_F32, 1, (int64_t[]){4});
    return m;
}

#endif

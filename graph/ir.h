/* ir.h - the graph as data: values, nodes, symbolic dimensions (internal).
 *
 * One representation serves a model (as loaded) and a program (as rewritten). A wok_graph owns an arena that all names,
 * attributes and arrays live in; nothing of it is freed singly. Constants point into memory owned by the model's blobs,
 * by the graph's arena, or by the caller.
 *
 * Dimensions. A dimension >= 0 is a number. A negative one is a symbol: an index into the graph's table of monomials
 * (coefficient * product of named sizes) and of opaque expressions, interned so that equal expressions have equal ids.
 * Thus "batch * seq", 12 * 64 = 768 and (N * S * 768) / 768 = N * S come out right without a computer algebra system.
 * Shape inference runs twice over the same functions: once with symbols when a program is built, where the rewrites need
 * it, and once with numbers for every plan.
 */
#ifndef WOK_IR_H
#define WOK_IR_H

#include "wok_build.h"

typedef struct wok_arena wok_arena; /* bump allocator over a ctx */
wok_arena *wok_arena_new(wok_ctx *ctx);
void wok_arena_free(wok_arena *arena);
/* Zeroed, 64-byte aligned; NULL (and the ctx's error) on failure. */
void *wok_arena_alloc(wok_arena *arena, size_t bytes);
/* The same, aligned to 8: for things that come by the thousand. */
void *wok_arena_small(wok_arena *arena, size_t bytes);
/* As wok_arena_alloc, with any contents. */
void *wok_arena_raw(wok_arena *arena, size_t bytes);
/* Forgets all allocations; the largest chunk is kept for the next ones. */
void wok_arena_reset(wok_arena *arena);
/* Gives a large allocation back at once; does nothing for a small one, or for what is not the arena's. */
void wok_arena_drop(wok_arena *arena, const void *ptr);
char *wok_arena_strdup(wok_arena *arena, const char *text);
char *wok_arena_format(wok_arena *arena, const char *format, ...) WOK_PRINTF(2, 3);
size_t wok_arena_bytes(const wok_arena *arena);

/* Operators: one enum over ONNX's own, com.microsoft's and wok's internal fused ones. */
typedef enum wok_op {
    WOK_OP_UNKNOWN,
#define WOK_OP(name, domain, ...) WOK_OP_##name,
#include "ops.def"
#undef WOK_OP
    WOK_OP_COUNT
} wok_op;

/* What is known of a value. */
typedef struct wok_type {
    wok_dtype dtype;
    int rank; /* -1: unknown */
    int64_t dims[WOK_MAX_RANK];
    const int64_t *ints; /* elements of a small integer tensor, as dimensions (may be symbols); NULL: not known */
    const void *data;    /* elements, any alignment, where they are constant; NULL otherwise */
    size_t bytes;        /* of data */
} wok_type;
/* The longest integer tensor whose elements are followed symbolically. */
#define WOK_MAX_INTS 64

typedef struct wok_ir_value {
    const char *name;
    wok_type type;
    wok_node producer; /* WOK_ABSENT: an input, a constant, or nothing */
    bool is_input, is_output, only_attr;
    const char *dim_names[WOK_MAX_RANK]; /* as declared */
    /* An input with a default: `type` is the constant's own, this is what a caller may set (see wok_graph_input). A program
     * for sessions that set the input takes this type and no data; for the others the value is a plain constant. NULL for
     * every other value. */
    const wok_type *declared;
} wok_ir_value;

typedef struct wok_ir_node {
    wok_op op;
    const char *op_type, *domain, *name;
    const char *label; /* op shown by explain; NULL: op_type */
    int64_t version;   /* of the operator set that it was written for */
    wok_value *in, *out;
    int in_count, out_count;
    wok_attr *attrs;
    int attr_count, attr_capacity;
    const char **from; /* names of the nodes of the file that this node replaces; NULL: itself */
    int from_count;
    bool dead;
} wok_ir_node;

typedef struct wok_symbols wok_symbols;

typedef struct wok_graph {
    wok_ctx *ctx;
    wok_arena *arena;
    wok_symbols *symbols;
    wok_ir_value *values;
    int value_count, value_capacity;
    wok_ir_node *nodes; /* in topological order after wok_graph_sort */
    int node_count, node_capacity;
    wok_value *inputs, *outputs;
    int input_count, output_count, input_capacity, output_capacity;
    void *names;       /* hash of value names */
    wok_status status; /* first failure sticks */
} wok_graph;

wok_graph *wok_ir_new(wok_ctx *ctx);
void wok_ir_free(wok_graph *graph);
/* A deep copy that shares constants' elements. Value and node ids stay the same. */
wok_graph *wok_ir_clone(const wok_graph *graph);

/* Ids stay valid for ever; pointers only until the next call that adds. All return WOK_ABSENT on failure (sticky). */
wok_value wok_ir_find(const wok_graph *graph, const char *name);
wok_value wok_ir_value_named(wok_graph *graph, const char *name); /* found or made */
wok_value wok_ir_value_new(wok_graph *graph, const char *hint);   /* a fresh unique name that starts with hint */
wok_value wok_ir_constant(wok_graph *graph, const char *hint, wok_dtype dtype, int rank, const int64_t *dims,
                          const void *data, size_t bytes); /* data copied into the arena */
wok_node wok_ir_node_new(wok_graph *graph, wok_op op, const char *name, const wok_value *in, int in_count,
                         const wok_value *out, int out_count);
wok_attr *wok_ir_attr_add(wok_graph *graph, wok_node node, const char *name, wok_attr_kind kind);
void wok_ir_set_int(wok_graph *graph, wok_node node, const char *name, int64_t value);
void wok_ir_set_float(wok_graph *graph, wok_node node, const char *name, float value);
void wok_ir_set_ints(wok_graph *graph, wok_node node, const char *name, const int64_t *values, int64_t count);

/* Attributes by name; the default where absent or of another kind. */
const wok_attr *wok_ir_attr(const wok_ir_node *node, const char *name, wok_attr_kind kind);
int64_t wok_ir_int(const wok_ir_node *node, const char *name, int64_t fallback);
float wok_ir_float(const wok_ir_node *node, const char *name, float fallback);
const char *wok_ir_string(const wok_ir_node *node, const char *name, const char *fallback);
/* Copies up to `max` ints; returns how many the attribute has, -1 if absent. */
int wok_ir_ints(const wok_ir_node *node, const char *name, int64_t *out, int max);

/* Sets producers, drops dead nodes, sorts topologically (stable). A cycle or an input that nothing produces is an error
 * that names it. */
wok_status wok_ir_sort(wok_graph *graph);

/* ---- symbolic dimensions -------------------------------------------------------------------------------------------- */

static inline bool wok_dim_known(int64_t dim) {
    return dim >= 0;
}
/* Elements of wok_type.ints may be negative numbers too (the -1 of a Reshape, a Slice's end): they are written far below
 * every symbol. Numbers below -2^62 are taken for -2^62, which no shape can tell apart. */
static inline int64_t wok_dim_number(int64_t n) {
    return n >= 0 ? n : n < -(INT64_C(1) << 62) ? -(INT64_C(1) << 62) - 1 : INT64_MIN - (n + 1);
}
static inline bool wok_dim_is_number(int64_t dim, int64_t *n) {
    bool negative = dim < -(INT64_C(1) << 62);
    *n = negative ? INT64_MIN - dim - 1 : dim;
    return negative || dim >= 0;
}
int64_t wok_dim_symbol(wok_graph *graph, const char *name); /* the size called `name`; NULL: a fresh unknown */
int64_t wok_dim_mul(wok_graph *graph, int64_t a, int64_t b);
int64_t wok_dim_div(wok_graph *graph, int64_t a, int64_t b); /* rounds down; exact where the monomials divide */
int64_t wok_dim_add(wok_graph *graph, int64_t a, int64_t b);
int64_t wok_dim_sub(wok_graph *graph, int64_t a, int64_t b);
/* An opaque function of dimensions, interned: equal (name, arguments) give the equal symbol. */
int64_t wok_dim_call(wok_graph *graph, const char *name, const int64_t *args, int count);
/* For people: "batch*seq", "12", "?3". Static thread-local ring of a few buffers. */
const char *wok_dim_text(const wok_graph *graph, int64_t dim);
/* "[batch,seq,768]" into a thread-local ring; "?" for an unknown rank. */
const char *wok_type_text(const wok_graph *graph, const wok_type *type);

/* Product of dims with overflow check; -1 if it does not fit, or if any is a symbol. */
int64_t wok_count(const int64_t *dims, int rank);
/* Bytes of a tensor of numbers; SIZE_MAX if it does not fit. */
size_t wok_tensor_bytes(wok_dtype dtype, const int64_t *dims, int rank);

#endif

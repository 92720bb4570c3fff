/* pass.h - rewrites (internal). One file a rewrite, one line in passes.def, one name for --no-pass.
 *
 * A pass walks the program's graph, whose types are inferred and whose nodes are sorted, and replaces patterns. It keeps
 * every value's meaning within the pass's stated tolerance. It may take a value away only if nothing else reads it and it
 * is not an output. Where a pattern almost matches, it records why it did not.
 *
 * Matching goes backwards: from the last node of a pattern through producers. Replacing goes by output: a new node
 * produces the value that the old one produced, so that names and readers stay. Pointers to nodes and values are good
 * only until something is added; ids are good for ever.
 */
#ifndef WOK_PASS_H
#define WOK_PASS_H

#include "../op.h"

/* Near misses of a program, in its graph's arena. */
typedef struct wok_near_misses {
    wok_near_miss *items;
    int count, capacity;
} wok_near_misses;

/* What a session may ask of the rewrites. */
typedef struct wok_pass_options {
    const char *const *no_passes;
    int no_pass_count;
    bool dynamic_per_row;  /* DynamicQuantizeLinear takes every row by itself */
    bool relax_qdq;        /* see relax_qdq.c */
    bool quantized_as_f32; /* lower_quantized leaves products to the float kernels */
} wok_pass_options;

typedef struct wok_pass_ctx {
    wok_graph *graph;
    const wok_pass_options *options;
    bool lowered;     /* lower_quantized has run, or will not: dequantised constants are constants like others */
    const char *pass; /* name of the running pass */
    int changed;      /* rewrites done by the running pass */
    int *uses;        /* by value: how many node inputs and graph outputs read it */
    size_t uses_bytes;
    int uses_count;
    wok_near_misses *near_misses;
} wok_pass_ctx;

typedef struct wok_pass {
    const char *name, *text;
    wok_status (*run)(wok_pass_ctx *ctx);
} wok_pass;

#define WOK_PASS(name, text) wok_status wok_pass_##name(wok_pass_ctx *ctx);
#include "passes.def"
#undef WOK_PASS

/* Runs all passes in order but those in options->no_passes; sorts, drops dead nodes and infers after each that changed something. The
 * graph's types are inferred when it returns. */
wok_status wok_passes_run(wok_graph *graph, const wok_pass_options *options, wok_near_misses *near_misses);
/* NULL, or the first name that is no pass. */
const char *wok_passes_unknown(const char *const *names, int count);

/* ---- matching -------------------------------------------------------------------------------------------------------- */

/* The node that produces v, or NULL (an input, a constant, WOK_ABSENT). */
wok_ir_node *wok_pass_producer(wok_pass_ctx *ctx, wok_value v);
/* The same, if its operator is `op`. */
wok_ir_node *wok_pass_is(wok_pass_ctx *ctx, wok_value v, wok_op op);
const wok_type *wok_pass_type(wok_pass_ctx *ctx, wok_value v);
wok_value wok_pass_in(const wok_ir_node *node, int index); /* WOK_ABSENT beyond the end */
bool wok_pass_constant(wok_pass_ctx *ctx, wok_value v);
/* Exactly one input reads v and it is no graph output: it can be fused away. */
bool wok_pass_single_use(wok_pass_ctx *ctx, wok_value v);
/* A constant whose elements are all the same number (a scalar above all). */
bool wok_pass_scalar(wok_pass_ctx *ctx, wok_value v, double *x);
/* Of a two-input node: the input that is such a scalar, and the other one. */
bool wok_pass_scalar_operand(wok_pass_ctx *ctx, const wok_ir_node *node, double *x, wok_value *other);
bool wok_pass_near(double a, double b); /* equal within 5e-4 of b: constants that went through f16 */
/* Constant integers (int32 or int64), at most `max`; the count, or -1. */
int wok_pass_constant_ints(wok_pass_ctx *ctx, wok_value v, int64_t *out, int max);
/* The dims are known to be equal (numbers or symbols). */
bool wok_pass_same_shape(const wok_type *a, const wok_type *b);
bool wok_pass_perm_is(const wok_ir_node *transpose, int rank, const int64_t *perm);
/* [..., n] with nothing but ones in front of n: a vector that is added to every row. */
bool wok_pass_is_row(const wok_type *type, int64_t n);
/* v, or the source of a Transpose of a matrix, for which *turned is turned over. */
wok_value wok_pass_unturned(wok_pass_ctx *ctx, wok_value v, bool *turned);
/* Element i of f16, bf16, f32, f64 or integer data at any alignment. */
double wok_pass_element(const wok_type *type, int64_t i);

/* ---- rewriting ------------------------------------------------------------------------------------------------------- */

/* A new node named after `name`; counts uses and sets producers. WOK_ABSENT on failure (sticky in the graph). */
wok_node wok_pass_add(wok_pass_ctx *ctx, wok_op op, const char *name, const wok_value *in, int in_count,
                      const wok_value *out, int out_count);
/* A new node with one fresh output, of this type. */
wok_value wok_pass_op(wok_pass_ctx *ctx, wok_op op, const char *name, const wok_value *in, int in_count,
                      const wok_type *type);
/* The same, with the type inferred at once: for passes that build on what they added. */
wok_value wok_pass_emit(wok_pass_ctx *ctx, wok_op op, const char *name, const wok_value *in, int in_count);
/* Infers a node's outputs now and stores their types. A failure sticks to the graph. */
void wok_pass_infer(wok_pass_ctx *ctx, wok_node node);
wok_value wok_pass_f32(wok_pass_ctx *ctx, const char *hint, int rank, const int64_t *dims, const float *data);
wok_value wok_pass_i64(wok_pass_ctx *ctx, const char *hint, int rank, const int64_t *data, int64_t count);
void wok_pass_set_string(wok_pass_ctx *ctx, wok_node node, const char *name, const char *text);
/* Input `index` of the node becomes v. */
void wok_pass_set_input(wok_pass_ctx *ctx, wok_ir_node *node, int index, wok_value v);
/* The same beyond the node's last input: inputs in between are absent. */
void wok_pass_append(wok_pass_ctx *ctx, wok_node node, int index, wok_value v);
/* x as `to`; x itself where it is that already. */
wok_value wok_pass_cast(wok_pass_ctx *ctx, const char *name, wok_value x, wok_dtype to);
/* Every reader of `from`, and the graph's outputs, read `to` instead. If `from` is a graph output an Identity is kept. */
void wok_pass_replace(wok_pass_ctx *ctx, wok_value from, wok_value to);
void wok_pass_kill(wok_pass_ctx *ctx, wok_ir_node *node);
/* `to` shows the nodes `from` (and what they show) in explain. */
void wok_pass_origin(wok_pass_ctx *ctx, wok_node to, const wok_node *from, int count);
void wok_pass_label(wok_pass_ctx *ctx, wok_node node, const char *label);
wok_node wok_pass_id(const wok_pass_ctx *ctx, const wok_ir_node *node);
void wok_pass_near_miss(wok_pass_ctx *ctx, const wok_ir_node *node, const char *format, ...) WOK_PRINTF(3, 4);

/* x (NCHW) in NHWC: through a Transpose, or what a Transpose to NCHW was made of. WOK_ABSENT on failure. (layout.c) */
wok_value wok_pass_to_nhwc(wok_pass_ctx *ctx, const char *name, wok_value x);
/* The node's output becomes a fresh value in NHWC, turned back into the old one. */
void wok_pass_to_nchw(wok_pass_ctx *ctx, wok_node node);

/* ---- shared by passes ------------------------------------------------------------------------------------------------- */

/* The activation that node computes of its first input, as attributes of a fused node; false if it is none. */
typedef struct wok_pass_act {
    const char *name;
    float lo, hi;
} wok_pass_act;
bool wok_pass_activation(wok_pass_ctx *ctx, const wok_ir_node *node, wok_pass_act *act);
void wok_pass_set_act(wok_pass_ctx *ctx, wok_node node, const wok_pass_act *act);

#endif

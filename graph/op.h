/* op.h - how an operator is described and implemented (internal).
 *
 * ops.def has one line an operator: WOK_OP(name, domain, first version, last version, infer). The version range is of
 * operator-set versions at which the operator's definition changed that are understood here: a node of an operator set
 * newer than `last` is refused only for operators known to have changed since (`last` is the newest version whose
 * definition was read; CHANGED lists later changes). A `canonicalize` pass rewrites old forms (axes as attribute, Clip
 * bounds as attributes, Softmax before 13) to the newest, so that inference and implementations see one form.
 *
 * Implementations are best-first lists per backend: the first whose accept() gives NULL is taken. The generic reference
 * implementations run on any dtype that they declare; constant folding runs the same code.
 */
#ifndef WOK_OP_H
#define WOK_OP_H

#include "ir.h"

#define WOK_MAX_IN 64
#define WOK_MAX_OUT 16

/* ---- shape inference ------------------------------------------------------------------------------------------------ */

typedef struct wok_infer {
    wok_graph *graph; /* for symbols and the arena that out[].ints may live in */
    const wok_ir_node *node;
    int in_count, out_count;
    const wok_type *in[WOK_MAX_IN]; /* NULL: left out */
    wok_type out[WOK_MAX_OUT];      /* rank -1 on entry; leave it so where nothing can be known */
    char reason[256];               /* on failure: what does not fit, without the node's name */
} wok_infer;

/* WOK_OK, or WOK_ERR_SHAPE / WOK_ERR_VALUE / WOK_ERR_UNSUPPORTED with `reason`. Must accept unknown ranks, symbols, and
 * absent ints. With numbers everywhere it must decide everything that does not depend on data; with the data of every
 * input as well (in[i]->data, whether or not the input is constant) it decides everything: a runtime that meets an output
 * of unknown size infers the node again when its inputs have been computed. */
typedef wok_status (*wok_infer_fn)(wok_infer *infer);

/* Writes infer->reason and returns `status`. */
wok_status wok_infer_fail(wok_infer *infer, wok_status status, const char *format, ...) WOK_PRINTF(3, 4);
/* Infers one node, checks counts, names the node in the ctx's error on failure. */
wok_status wok_infer_node(wok_graph *graph, const wok_ir_node *node, const wok_type *const *in, wok_type *out);
/* Infers the whole graph in order and stores the types in the values. */
wok_status wok_infer_graph(wok_graph *graph);

/* ---- the operator table --------------------------------------------------------------------------------------------- */

typedef struct wok_op_info {
    const char *name, *domain;
    int first, last; /* operator-set versions understood */
    wok_infer_fn infer;
} wok_op_info;

/* NULL for WOK_OP_UNKNOWN. */
const wok_op_info *wok_op_get(wok_op op);
/* WOK_OP_UNKNOWN if there is none. Domain "ai.onnx" is "". */
wok_op wok_op_find(const char *domain, const char *op_type);
/* NULL if (op, version) can be run; otherwise why not. */
const char *wok_op_unsupported(const char *domain, const char *op_type, int64_t version);

/* ---- implementations ------------------------------------------------------------------------------------------------ */

/* Program time. What an implementation sees when it is asked whether it fits, and when it packs. */
typedef struct wok_prepare {
    wok_ctx *ctx;
    wok_graph *graph;
    const wok_ir_node *node;
    const wok_type *in[WOK_MAX_IN]; /* symbolic types; .data set for constants; NULL: left out */
    const wok_type *out[WOK_MAX_OUT];
    wok_isa_set isa;
    /* filled in by prepare() */
    void *state;                /* handed to run(); allocate with wok_prepare_alloc */
    const wok_kernel *kernel;   /* for explain; NULL: the implementation's own name is shown */
    uint32_t consumed;          /* bit i: constant input i was packed; run() will not look at it */
    struct wok_preparing *work; /* of the calls below */
} wok_prepare;

/* Zeroed, 64-byte aligned, owned by the program, counted as packed bytes. NULL on failure (error set). */
void *wok_prepare_alloc(wok_prepare *prepare, size_t bytes);
/* A constant input as aligned f32 (f16, bf16, f64 are converted), in scratch memory of the prepare step where it cannot
 * be used in place; valid until prepare() returns. NULL: not a constant, or no memory (error set). */
const float *wok_prepare_f32(wok_prepare *prepare, int input);
/* Selects a kernel and records the rejections for explain. NULL cannot happen for a valid problem; error set if so. */
const wok_kernel *wok_prepare_kernel(wok_prepare *prepare, wok_family family, const void *problem);

/* Run time: one launch. Tensors are whole and not aliased, except that out[0] may share memory with an input that the
 * implementation allows in `inplace`. */
typedef struct wok_call {
    wok_ctx *ctx;
    const wok_ir_node *node;
    const void *state;
    int in_count, out_count;
    const wok_tensor
        *in[WOK_MAX_IN]; /* NULL: left out. Constants may stand at any alignment only where CONST_UNALIGNED */
    wok_tensor *out[WOK_MAX_OUT];
    void *workspace; /* 64-byte aligned */
    const wok_parallel *parallel;
    char reason[256];
} wok_call;
wok_status wok_call_fail(wok_call *call, wok_status status, const char *format, ...) WOK_PRINTF(3, 4);

enum wok_impl_flags {
    WOK_IMPL_VIEW = 1u,        /* out[0] is the bytes of in[0] under another shape: no code runs */
    WOK_IMPL_UNALIGNED_0 = 2u, /* reads a constant in[0] at any alignment (Gather copies rows) */
    WOK_IMPL_SHAPE_ONLY = 4u   /* reads shapes, never elements: Shape, Size */
};

typedef struct wok_op_impl {
    const char *name; /* "ref", "packed", ... */
    unsigned flags;
    uint32_t inplace; /* bit i: out[0] may be in[i], element for element, when dtype and shape are equal */
    /* NULL: fits; else a sentence. NULL function: always fits. */
    const char *(*accept)(const wok_prepare *prepare);
    wok_status (*prepare)(wok_prepare *prepare); /* may be NULL */
    /* Bytes of workspace for these shapes (data pointers are not set). NULL: none. */
    size_t (*workspace)(const wok_call *call);
    wok_status (*run)(wok_call *call);
    int64_t (*macs)(const wok_call *call); /* for reports; may be NULL */
} wok_op_impl;

/* Best-first list of the CPU's implementations of an operator, ending with NULL. */
const wok_op_impl *const *wok_op_impls(wok_op op);

#endif

/* program.h - a model made ready to run: rewritten graph, packed weights, chosen implementations (internal).
 *
 * Programs live in their model, one for every key, and are shared by sessions and threads. A program does not change once
 * it is built. The same files run single nodes when a program is built or a plan is made (constant folding, shapes).
 */
#ifndef WOK_PROGRAM_H
#define WOK_PROGRAM_H

#include "backend.h"
#include "model.h"
#include "passes/pass.h"

typedef struct wok_program wok_program;

/* How a node is done. */
typedef struct wok_choice {
    const wok_op_impl *impl;
    const wok_kernel *kernel; /* NULL: the implementation itself */
    const void *state;
    uint32_t consumed; /* constant inputs that run() does not look at */
    const wok_rejection *rejected;
    int rejected_count;
    size_t packed_bytes;
    bool slow; /* a reference kernel where a fast one was to be expected */
} wok_choice;

/* What makes one program differ from another of the same model. Names and lists are the caller's. */
typedef struct wok_program_key {
    wok_precision precision;
    bool dynamic_per_row, relax_qdq, quantized_as_f32;
    const char *const *no_passes;
    int no_pass_count;
    const wok_value *outputs; /* values of the model's graph */
    int output_count;
    const bool *overridden; /* by input of the model: the caller sets this one although it has a default */
} wok_program_key;

struct wok_program {
    wok_model *model;
    wok_ctx *ctx;
    const wok_backend *backend;
    wok_graph *graph;       /* rewritten, inferred, sorted. Outputs are the wanted ones. */
    wok_choice *choices;    /* by node */
    const void **constants; /* by value: elements as run() reads them, aligned; NULL: no constant, or only packed */
    bool *is_constant;      /* by value */
    size_t packed_bytes;    /* weights as packed, and states */
    size_t weight_bytes;    /* constants read where the file has them */
    wok_near_misses near_misses;
    const char *isa; /* best level in use */
    /* inside program.c */
    wok_arena *arena, *packed;
    wok_program_key key;
    wok_program *next;
    int references, state;
    unsigned generation;
    wok_status status;
    char error[1024];
};

/* The program of this key, built by the first caller; others wait for it. To be given back. On failure the ctx's error
 * is set. Thread-safe. */
wok_status wok_program_get(wok_model *model, const wok_program_key *key, wok_program **program);
/* The last one frees it. NULL is fine. */
void wok_program_put(wok_program *program);

/* ---- choosing and preparing implementations (prepare.c) ----------------------------------------------------------------- */

/* Chooses an implementation and packs for it, into `packed`; texts of rejections go to `texts`; `scratch` may be reset
 * when this returns. in/out: types, those of constants with data. On failure the error names the node and says why each
 * implementation does not fit. */
wok_status wok_choose(const wok_backend *backend, wok_graph *graph, const wok_ir_node *node, const wok_type *const *in,
                      const wok_type *const *out, wok_arena *packed, wok_arena *texts, wok_arena *scratch,
                      wok_choice *choice);

/* Runs a node with the chosen implementation. `out` has data (a view is copied); workspace comes from the ctx. */
wok_status wok_run_choice(wok_ctx *ctx, const wok_choice *choice, const wok_ir_node *node, const wok_tensor *const *in,
                          wok_tensor *const *out);
/* The ctx's error for a call that failed: node, operator, reason, shapes. Returns `status`. */
wok_status wok_call_report(const wok_call *call, wok_status status);

/* Runs one node now: for constant folding and for shape arithmetic. `in` has node->in_count tensors with data (any
 * alignment), NULL where an input is left out. Fills out[0..out_count) with data allocated in `arena`. Types are inferred
 * with the elements at hand, so that every supported node can be evaluated. On failure the ctx's error names the node;
 * a caller that only wanted to save work may go on without. Not for two threads on one graph at a time. */
wok_status wok_eval_node(wok_graph *graph, const wok_ir_node *node, const wok_tensor *const *in, wok_tensor *out,
                         wok_arena *arena);

#endif

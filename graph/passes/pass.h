/* pass.h - rewrites (internal). One file a rewrite, one line in passes.def, one name for --no-pass.
 *
 * A pass walks the program's graph, whose types are inferred and whose nodes are sorted, and replaces patterns. It must
 * keep every value's meaning within the pass's stated tolerance, must not touch values that are graph outputs or wanted
 * inner values other than by producing them, and records a near miss where a pattern almost matched.
 */
#ifndef WOK_PASS_H
#define WOK_PASS_H

#include "../op.h"

typedef struct wok_pass_ctx {
    wok_graph *graph;
    const char *pass; /* name of the running pass */
    int changed;      /* rewrites done by the running pass */
    int *uses;        /* by value: how many node inputs and graph outputs read it; kept by the helpers below */
    struct wok_near_misses *near_misses;
} wok_pass_ctx;

typedef struct wok_pass {
    const char *name, *text;
    wok_status (*run)(wok_pass_ctx *ctx);
} wok_pass;

/* In running order, ending with a NULL name. */
extern const wok_pass wok_passes[];

/* Runs all passes but those named; infers and sorts between passes that changed something. */
wok_status wok_passes_run(wok_graph *graph, const char *const *no_passes, int no_pass_count,
                          struct wok_near_misses *near_misses);

/* The node that produces value v, or NULL. */
wok_ir_node *wok_pass_producer(wok_pass_ctx *ctx, wok_value v);
const wok_type *wok_pass_type(wok_pass_ctx *ctx, wok_value v);
/* True if only one input reads v and it is not a graph output: it can be fused away. */
bool wok_pass_single_use(wok_pass_ctx *ctx, wok_value v);
/* A constant scalar (or tensor of equal elements) as a number. */
bool wok_pass_scalar(wok_pass_ctx *ctx, wok_value v, double *x);
void wok_pass_near_miss(wok_pass_ctx *ctx, const wok_ir_node *node, const char *format, ...) WOK_PRINTF(3, 4);
/* Makes `to` carry the origins of `from` (a list of nodes): explain shows them. */
wok_status wok_pass_merge_origin(wok_pass_ctx *ctx, wok_ir_node *to, wok_ir_node *const *from, int count);
void wok_pass_kill(wok_pass_ctx *ctx, wok_ir_node *node);

#endif

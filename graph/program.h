/* program.h - a model made ready to run: rewritten graph, packed weights, chosen implementations (internal).
 *
 * Programs live in their model, one for every key, and are shared by sessions and threads. A program does not change once
 * it is built. The same files run single nodes when a program is built or a plan is made (constant folding, shapes).
 */
#ifndef WOK_PROGRAM_H
#define WOK_PROGRAM_H

#include "model.h"
#include "op.h"
#include "passes/pass.h"

/* Runs one node now: for constant folding and for shape arithmetic. `in` has node->in_count tensors with data (any
 * alignment), NULL where an input is left out. Fills out[0..out_count) with data allocated in `arena`. Types are inferred
 * with the elements at hand, so that every supported node can be evaluated. On failure the ctx's error names the node;
 * a caller that only wanted to save work may go on without. Single-threaded. */
wok_status wok_eval_node(wok_graph *graph, const wok_ir_node *node, const wok_tensor *const *in, wok_tensor *out,
                         wok_arena *arena);

#endif

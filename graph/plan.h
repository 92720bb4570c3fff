/* plan.h - a program for one set of input shapes: steps in order, and a place for every tensor (internal).
 *
 * Making a plan infers all shapes with numbers, does the arithmetic on shapes and other small values that are known by
 * then, and lays the remaining tensors out in one block of memory. Running it walks the steps and allocates nothing.
 *
 * Where a size depends on the data of the inputs there is nothing to lay out: the plan is `eager`, its nodes run one by
 * one (eager.h) and allocate as their sizes become known.
 */
#ifndef WOK_PLAN_H
#define WOK_PLAN_H

#include "program.h"

/* Where a tensor's elements stand. */
typedef enum wok_place_kind {
    WOK_PLACE_NONE,  /* nobody reads elements: shapes only, or packed */
    WOK_PLACE_FIXED, /* a constant, or computed when planning */
    WOK_PLACE_INPUT, /* the caller's */
    WOK_PLACE_ARENA,
    WOK_PLACE_OUTPUT /* the caller's if he bound output `index`, else the arena */
} wok_place_kind;

typedef struct wok_place {
    wok_place_kind kind;
    int index;     /* of the model's input, or of the output */
    size_t offset; /* in the arena */
} wok_place;

typedef struct wok_step {
    wok_status (*run)(wok_call *call);
    const wok_ir_node *node; /* NULL: copies an output to its place */
    const void *state;
    wok_tensor **tensors; /* in_count inputs, then out_count outputs; NULL where left out */
    int in_count, out_count;
    size_t workspace;     /* offset in the arena */
    double seconds, best; /* spent here in all profiled runs; in the quickest of them */
} wok_step;

/* A node as people see it: what runs, and views that cost nothing. */
typedef struct wok_plan_node {
    wok_node node;
    int step;             /* -1: a view */
    wok_tensor **tensors; /* as in wok_step */
} wok_plan_node;

typedef struct wok_plan {
    wok_program *program;
    wok_arena *arena; /* holds everything below */
    bool eager;
    wok_step *steps;
    int step_count;
    wok_tensor *tensors;
    wok_place *places; /* by tensor */
    int tensor_count;
    int *input_tensors; /* the tensors with WOK_PLACE_INPUT */
    int input_tensor_count;
    wok_tensor **outputs; /* by output of the program */
    wok_plan_node *nodes;
    int node_count;
    size_t arena_bytes, bound_bytes; /* bound: the most that is in use at one step */
    int64_t profiled_runs;
    /* the session's */
    const int64_t *key;
    int key_count;
    uint64_t last_use;
} wok_plan;

/* inputs: by input of the model, dims all numbers; rank -1 for one that is not given. `data` only where values may decide
 * sizes (then they are part of the plan). On failure the ctx's error names node and shapes. The program must outlive the
 * plan. */
wok_status wok_plan_new(wok_program *program, const wok_type *inputs, wok_plan **plan);
void wok_plan_free(wok_plan *plan);

/* Points the tensors at this memory (arena_bytes, aligned) and at the outputs that the caller bound (NULL: not bound). */
void wok_plan_bind(wok_plan *plan, char *arena, void *const *bound);
/* Points the tensors at the inputs: by input of the model. */
void wok_plan_bind_inputs(wok_plan *plan, const void *const *inputs);
/* Everything must be bound. */
wok_status wok_plan_run(wok_plan *plan, char *arena);
/* The same, timing every step (profile.c). */
wok_status wok_plan_run_profiled(wok_plan *plan, char *arena);

/* One step: shared by the two above. */
static inline wok_status wok_step_run(const wok_step *step, wok_call *call, char *arena) {
    call->node = step->node;
    call->state = step->state;
    call->in_count = step->in_count;
    call->out_count = step->out_count;
    for (int i = 0; i < step->in_count; i++) call->in[i] = step->tensors[i];
    for (int i = 0; i < step->out_count; i++) call->out[i] = step->tensors[step->in_count + i];
    call->workspace = arena + step->workspace;
    return step->run(call);
}

#endif

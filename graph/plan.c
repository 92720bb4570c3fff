/* plan.c - making and running plans. */
#include "plan.h"
#include "ctx.h"
#include "offsets.h"
#include "symbols.h"
#include "tensor.h"

#include <string.h>

/* Results that are known when planning are kept if they are no larger than this, all of them together than the second:
 * enough for shapes, positions and masks, not for a broadcast of them to the whole batch. */
enum { EVAL_BYTES = 1 << 20, EVAL_TOTAL = 4 << 20 };

/* One piece of storage. Several tensors may stand in it: views, and results that took an input's place. */
typedef struct block {
    wok_place_kind kind;
    int index;         /* INPUT: which */
    const void *fixed; /* FIXED */
    size_t bytes;
    int first, last;   /* positions at which it is in use */
    bool holds_output; /* must keep its contents to the end */
    int output;        /* the output that stands here, or -1 */
    int interval;
} block;

typedef struct planner {
    wok_program *program;
    wok_ctx *ctx;
    wok_graph graph; /* the program's, with an arena and symbols of our own: others plan at the same time */
    wok_arena *scratch;
    wok_plan *plan;
    const wok_type *inputs;
    wok_type *types;                  /* by value; data: known when planning */
    bool *needed;                     /* by value */
    int *last, *block_of, *tensor_of; /* by value */
    wok_node *order;                  /* nodes that are left to run */
    int count;
    size_t evaluated; /* bytes */
    block *blocks;
    int block_count, step_count;
    wok_interval *intervals;
    int interval_count;
    int *workspaces; /* by position: interval, or -1 */
    bool undecided;
} planner;

static void *array(planner *s, int count, size_t size) {
    return wok_arena_small(s->scratch, (size_t)(count > 0 ? count : 1) * size);
}

/* ---- shapes, and what is known already -------------------------------------------------------------------------------------- */

static void seed_types(planner *s) {
    const wok_graph *graph = s->program->graph;
    for (int v = 0; v < graph->value_count; v++) {
        s->types[v] = graph->values[v].type;
        s->types[v].ints = NULL;
        if (!s->program->is_constant[v]) {
            s->types[v].data = NULL;
            s->types[v].rank = -1;
        } else if (s->program->constants[v]) {
            s->types[v].data = s->program->constants[v];
        }
    }
    const wok_graph *file = s->program->model->graph;
    for (int i = 0; i < file->input_count; i++)
        if (graph->values[file->inputs[i]].is_input) s->types[file->inputs[i]] = s->inputs[i];
}

static bool is_known(const wok_type *type) {
    return type->data != NULL;
}

static bool all_inputs_known(const planner *s, const wok_ir_node *node, const wok_choice *choice) {
    for (int i = 0; i < node->in_count; i++) {
        if (node->in[i] < 0 || is_known(&s->types[node->in[i]])) continue;
        if (i >= 32 || !(choice->consumed >> i & 1)) return false;
    }
    return true;
}

static size_t output_bytes(const wok_ir_node *node, const wok_type *out) {
    size_t bytes = 0;
    for (int i = 0; i < node->out_count; i++)
        if (node->out[i] >= 0) bytes += wok_tensor_bytes(out[i].dtype, out[i].dims, out[i].rank);
    return bytes;
}

/* Elements that inference found, as the tensor they are. False: not all are numbers, or no integer type. */
static bool data_from_ints(planner *s, wok_type *type) {
    int64_t count = wok_count(type->dims, type->rank), number;
    if (!type->ints || count < 0 || (type->dtype != WOK_I64 && type->dtype != WOK_I32)) return false;
    for (int64_t i = 0; i < count; i++)
        if (!wok_dim_is_number(type->ints[i], &number)) return false;
    char *data = wok_arena_alloc(s->scratch, (size_t)(count ? count : 1) * sizeof(int64_t));
    if (!data) return false;
    for (int64_t i = 0; i < count; i++) {
        wok_dim_is_number(type->ints[i], &number);
        int32_t narrow = (int32_t)number;
        if (type->dtype == WOK_I64)
            memcpy(data + 8 * i, &number, 8);
        else
            memcpy(data + 4 * i, &narrow, 4);
    }
    type->data = data;
    type->bytes = wok_tensor_bytes(type->dtype, type->dims, type->rank);
    return true;
}

static bool find_ints(planner *s, const wok_ir_node *node, wok_type *out) {
    bool all = true;
    for (int i = 0; i < node->out_count; i++)
        if (node->out[i] >= 0) all &= data_from_ints(s, &out[i]);
    return all;
}

static wok_status set_tensor(planner *s, const wok_type *type, wok_tensor *tensor) {
    if (wok_tensor_set(tensor, type) == WOK_OK) return WOK_OK;
    return wok_ctx_fail(s->ctx, WOK_ERR_SHAPE, "a tensor of shape %s is too large",
                        wok_shape_text(type->dims, type->rank));
}

/* Runs the node now. */
static wok_status evaluate(planner *s, const wok_ir_node *node, const wok_choice *choice, wok_type *out) {
    wok_tensor in_tensors[WOK_MAX_IN], out_tensors[WOK_MAX_OUT], *outs[WOK_MAX_OUT] = {NULL};
    const wok_tensor *ins[WOK_MAX_IN] = {NULL};
    for (int i = 0; i < node->in_count; i++) {
        if (node->in[i] < 0) continue;
        wok_status status = set_tensor(s, &s->types[node->in[i]], &in_tensors[i]);
        if (status != WOK_OK) return status;
        in_tensors[i].data = (void *)(uintptr_t)s->types[node->in[i]].data;
        ins[i] = &in_tensors[i];
    }
    for (int i = 0; i < node->out_count; i++) {
        if (node->out[i] < 0) continue;
        wok_status status = set_tensor(s, &out[i], &out_tensors[i]);
        if (status != WOK_OK) return status;
        out_tensors[i].data = wok_arena_alloc(s->scratch, out_tensors[i].bytes ? out_tensors[i].bytes : 1);
        if (!out_tensors[i].data) return wok_ctx_last(s->ctx);
        outs[i] = &out_tensors[i];
    }
    wok_status status = wok_run_choice(s->ctx, choice, node, ins, outs);
    for (int i = 0; i < node->out_count && status == WOK_OK; i++) {
        if (!outs[i]) continue;
        out[i].data = outs[i]->data;
        out[i].bytes = outs[i]->bytes;
        s->evaluated += outs[i]->bytes;
    }
    return status;
}

static wok_status plan_node(planner *s, wok_node n) {
    const wok_ir_node *node = &s->program->graph->nodes[n];
    const wok_choice *choice = &s->program->choices[n];
    const wok_type *in[WOK_MAX_IN];
    wok_type out[WOK_MAX_OUT];
    for (int i = 0; i < node->in_count; i++) in[i] = node->in[i] < 0 ? NULL : &s->types[node->in[i]];
    wok_status status = wok_infer_node(&s->graph, node, in, out);
    if (status != WOK_OK) return status;
    for (int i = 0; i < node->out_count; i++) {
        if (node->out[i] >= 0 && !wok_type_is_known(&out[i])) s->undecided = true;
        out[i].data = NULL;
    }
    if (s->undecided) return WOK_OK;
    if (!find_ints(s, node, out)) {
        for (int i = 0; i < node->out_count; i++) out[i].data = NULL;
        bool known = all_inputs_known(s, node, choice);
        size_t bytes = known ? output_bytes(node, out) : 0;
        if (known && choice->impl->flags & WOK_IMPL_VIEW) {
            out[0].data = s->types[node->in[0]].data;
            out[0].bytes = s->types[node->in[0]].bytes;
        } else if (known && bytes <= EVAL_BYTES && s->evaluated + bytes <= EVAL_TOTAL) {
            status = evaluate(s, node, choice, out);
        } else {
            s->order[s->count++] = n;
        }
    }
    for (int i = 0; i < node->out_count; i++)
        if (node->out[i] >= 0) s->types[node->out[i]] = out[i];
    return status;
}

/* ---- who reads what --------------------------------------------------------------------------------------------------------- */

/* Does run() look at the elements of input i? */
static bool reads(const wok_choice *choice, int i) {
    if (choice->impl->flags & WOK_IMPL_SHAPE_ONLY) return false;
    return i >= 32 || !(choice->consumed >> i & 1);
}

/* Drops nodes that only shapes were wanted of, and finds for every value the last position that reads it. */
static void find_lifetimes(planner *s) {
    const wok_graph *graph = s->program->graph;
    for (int i = 0; i < graph->output_count; i++) s->needed[graph->outputs[i]] = true;
    int kept = s->count;
    for (int t = s->count - 1; t >= 0; t--) {
        const wok_ir_node *node = &graph->nodes[s->order[t]];
        bool wanted = false;
        for (int i = 0; i < node->out_count; i++)
            wanted |= node->out[i] >= 0 && s->needed[node->out[i]] && !is_known(&s->types[node->out[i]]);
        if (!wanted) continue;
        s->order[--kept] = s->order[t];
        for (int i = 0; i < node->in_count; i++)
            if (node->in[i] >= 0 && reads(&s->program->choices[s->order[t]], i)) s->needed[node->in[i]] = true;
    }
    s->count -= kept;
    s->order += kept;
    for (int v = 0; v < graph->value_count; v++) s->last[v] = -1;
    for (int t = 0; t < s->count; t++) {
        const wok_ir_node *node = &graph->nodes[s->order[t]];
        for (int i = 0; i < node->in_count; i++)
            if (node->in[i] >= 0 && reads(&s->program->choices[s->order[t]], i)) s->last[node->in[i]] = t;
    }
    for (int i = 0; i < graph->output_count; i++) s->last[graph->outputs[i]] = s->count;
}

/* ---- storage ------------------------------------------------------------------------------------------------------------------ */

static int new_block(planner *s, wok_place_kind kind, size_t bytes, int first, int last) {
    s->blocks[s->block_count] =
        (block){.kind = kind, .bytes = bytes, .first = first, .last = last, .output = -1, .interval = -1};
    return s->block_count++;
}

static void join_block(planner *s, wok_value v, int b) {
    s->block_of[v] = b;
    if (s->last[v] > s->blocks[b].last) s->blocks[b].last = s->last[v];
    if (s->program->graph->values[v].is_output) s->blocks[b].holds_output = true;
}

static int input_index(const planner *s, wok_value v) {
    const wok_graph *file = s->program->model->graph;
    for (int i = 0; i < file->input_count; i++)
        if (file->inputs[i] == v) return i;
    return -1;
}

/* Storage of a value that no step computes. */
static wok_status place_source(planner *s, wok_value v) {
    const wok_type *type = &s->types[v];
    if (s->block_of[v] >= 0) return WOK_OK;
    int b;
    if (s->program->graph->values[v].is_input) {
        b = new_block(s, WOK_PLACE_INPUT, 0, 0, 0);
        s->blocks[b].index = input_index(s, v);
    } else if (is_known(type) && !s->program->is_constant[v] && s->needed[v]) {
        void *own = wok_arena_alloc(s->plan->arena, type->bytes ? type->bytes : 1);
        if (!own) return wok_ctx_last(s->ctx);
        memcpy(own, type->data, type->bytes);
        b = new_block(s, WOK_PLACE_FIXED, 0, 0, 0);
        s->blocks[b].fixed = own;
    } else if (s->program->is_constant[v] && s->program->constants[v]) {
        b = new_block(s, WOK_PLACE_FIXED, 0, 0, 0);
        s->blocks[b].fixed = s->program->constants[v];
    } else {
        b = new_block(s, WOK_PLACE_NONE, 0, 0, 0);
    }
    join_block(s, v, b);
    return WOK_OK;
}

static bool same_type(const wok_type *a, const wok_type *b) {
    return a->dtype == b->dtype && a->rank == b->rank &&
           memcmp(a->dims, b->dims, (size_t)a->rank * sizeof *a->dims) == 0;
}

/* The block of an input that dies here and may hold the result; -1: none. */
static int find_inplace(const planner *s, const wok_ir_node *node, const wok_op_impl *impl, int t) {
    for (int i = 0; i < node->in_count && i < 32; i++) {
        if (!(impl->inplace >> i & 1) || node->in[i] < 0) continue;
        const block *b = &s->blocks[s->block_of[node->in[i]]];
        if (b->kind != WOK_PLACE_ARENA || b->last != t || b->holds_output) continue;
        if (!same_type(&s->types[node->in[i]], &s->types[node->out[0]])) continue;
        bool shared = false;
        for (int j = 0; j < node->in_count; j++)
            shared |= j != i && node->in[j] >= 0 && s->block_of[node->in[j]] == s->block_of[node->in[i]];
        if (!shared) return s->block_of[node->in[i]];
    }
    return -1;
}

static wok_status place_outputs(planner *s, const wok_ir_node *node, const wok_op_impl *impl, int t) {
    for (int i = 0; i < node->out_count; i++) {
        wok_value v = node->out[i];
        if (v < 0) continue;
        int b = i > 0 ? -1 : impl->flags & WOK_IMPL_VIEW ? s->block_of[node->in[0]] : find_inplace(s, node, impl, t);
        if (b < 0) {
            const wok_type *type = &s->types[v];
            size_t bytes = wok_tensor_bytes(type->dtype, type->dims, type->rank);
            b = new_block(s, WOK_PLACE_ARENA, bytes, t, t);
        }
        join_block(s, v, b);
    }
    return WOK_OK;
}

static wok_status place_values(planner *s) {
    const wok_graph *graph = s->program->graph;
    for (int v = 0; v < graph->value_count; v++) s->block_of[v] = -1;
    wok_status status = WOK_OK;
    for (int t = 0; t < s->count && status == WOK_OK; t++) {
        const wok_ir_node *node = &graph->nodes[s->order[t]];
        for (int i = 0; i < node->in_count && status == WOK_OK; i++)
            if (node->in[i] >= 0) status = place_source(s, node->in[i]);
        if (status == WOK_OK) status = place_outputs(s, node, s->program->choices[s->order[t]].impl, t);
    }
    for (int i = 0; i < graph->output_count && status == WOK_OK; i++) status = place_source(s, graph->outputs[i]);
    return status;
}

/* ---- tensors and steps ----------------------------------------------------------------------------------------------------- */

static wok_status add_tensor(planner *s, wok_value v, int b) {
    int index = s->plan->tensor_count++;
    wok_status status = set_tensor(s, &s->types[v], &s->plan->tensors[index]);
    s->plan->places[index] = (wok_place){.kind = s->blocks[b].kind, .index = b};
    return status;
}

static wok_tensor *tensor_of(planner *s, wok_value v) {
    return v < 0 ? NULL : &s->plan->tensors[s->tensor_of[v]];
}

static wok_status make_tensors(planner *s) {
    const wok_graph *graph = s->program->graph;
    int count = graph->output_count; /* one more for each that may have to be copied */
    for (int v = 0; v < graph->value_count; v++) count += s->block_of[v] >= 0;
    s->plan->tensors = wok_arena_small(s->plan->arena, (size_t)(count + 1) * sizeof *s->plan->tensors);
    s->plan->places = array(s, count, sizeof *s->plan->places);
    if (!s->plan->tensors || !s->plan->places) return wok_ctx_last(s->ctx);
    wok_status status = WOK_OK;
    for (int v = 0; v < graph->value_count && status == WOK_OK; v++) {
        if (s->block_of[v] < 0) continue;
        s->tensor_of[v] = s->plan->tensor_count;
        status = add_tensor(s, v, s->block_of[v]);
    }
    return status;
}

static wok_tensor **tensor_list(planner *s, const wok_ir_node *node) {
    wok_tensor **list = wok_arena_small(s->plan->arena, (size_t)(node->in_count + node->out_count + 1) * sizeof *list);
    if (!list) return NULL;
    for (int i = 0; i < node->in_count; i++) list[i] = tensor_of(s, node->in[i]);
    for (int i = 0; i < node->out_count; i++) list[node->in_count + i] = tensor_of(s, node->out[i]);
    return list;
}

static void add_interval(planner *s, size_t bytes, int first, int last) {
    s->intervals[s->interval_count++] = (wok_interval){.bytes = bytes, .first = first, .last = last};
}

static bool writes_nothing(const wok_step *step) {
    for (int i = 0; i < step->out_count; i++) {
        const wok_tensor *out = step->tensors[step->in_count + i];
        if (out && out->bytes) return false;
    }
    return true;
}

static size_t workspace_bytes(planner *s, const wok_step *step, const wok_op_impl *impl) {
    if (!impl->workspace) return 0;
    wok_call call = {.ctx = s->ctx,
                     .node = step->node,
                     .state = step->state,
                     .in_count = step->in_count,
                     .out_count = step->out_count,
                     .parallel = wok_ctx_parallel(s->ctx)};
    for (int i = 0; i < step->in_count; i++) call.in[i] = step->tensors[i];
    for (int i = 0; i < step->out_count; i++) call.out[i] = step->tensors[step->in_count + i];
    return impl->workspace(&call);
}

static wok_status make_steps(planner *s) {
    wok_plan *plan = s->plan;
    const wok_graph *graph = s->program->graph;
    plan->steps = wok_arena_small(plan->arena, (size_t)(s->count + graph->output_count + 1) * sizeof *plan->steps);
    plan->nodes = wok_arena_small(plan->arena, (size_t)(s->count + 1) * sizeof *plan->nodes);
    if (!plan->steps || !plan->nodes) return wok_ctx_last(s->ctx);
    for (int t = 0; t < s->count; t++) {
        const wok_ir_node *node = &graph->nodes[s->order[t]];
        const wok_choice *choice = &s->program->choices[s->order[t]];
        wok_step step = {.run = choice->impl->run,
                         .node = node,
                         .state = choice->state,
                         .tensors = tensor_list(s, node),
                         .in_count = node->in_count,
                         .out_count = node->out_count};
        if (!step.tensors) return wok_ctx_last(s->ctx);
        bool runs = !(choice->impl->flags & WOK_IMPL_VIEW) && !writes_nothing(&step);
        plan->nodes[plan->node_count++] = (wok_plan_node){s->order[t], runs ? plan->step_count : -1, step.tensors};
        if (!runs) continue;
        size_t bytes = workspace_bytes(s, &step, choice->impl);
        s->workspaces[plan->step_count] = bytes ? s->interval_count : -1;
        if (bytes) add_interval(s, bytes, t, t);
        plan->steps[plan->step_count++] = step;
    }
    return WOK_OK;
}

static wok_status copy_output(wok_call *call) {
    memcpy(call->out[0]->data, call->in[0]->data, call->out[0]->bytes);
    return WOK_OK;
}

/* An output whose value stands elsewhere (an input, a constant, another output) is copied when all is done. */
static wok_status make_outputs(planner *s) {
    wok_plan *plan = s->plan;
    const wok_graph *graph = s->program->graph;
    plan->outputs = wok_arena_small(plan->arena, (size_t)(graph->output_count + 1) * sizeof *plan->outputs);
    if (!plan->outputs) return wok_ctx_last(s->ctx);
    for (int i = 0; i < graph->output_count; i++) {
        wok_value v = graph->outputs[i];
        block *b = &s->blocks[s->block_of[v]];
        plan->outputs[i] = tensor_of(s, v);
        if (b->kind == WOK_PLACE_ARENA && b->output < 0) {
            b->output = i;
            continue;
        }
        int own = new_block(s, WOK_PLACE_ARENA, plan->outputs[i]->bytes, s->count, s->count);
        s->blocks[own].output = i;
        wok_tensor **list = wok_arena_small(plan->arena, 2 * sizeof *list);
        if (!list) return wok_ctx_last(s->ctx);
        list[0] = plan->outputs[i];
        list[1] = &plan->tensors[plan->tensor_count];
        wok_status status = add_tensor(s, v, own);
        if (status != WOK_OK) return status;
        plan->outputs[i] = list[1];
        if (list[1]->bytes == 0) continue;
        s->workspaces[plan->step_count] = -1;
        plan->steps[plan->step_count++] =
            (wok_step){.run = copy_output, .tensors = list, .in_count = 1, .out_count = 1};
    }
    return WOK_OK;
}

static wok_status make_offsets(planner *s) {
    for (int i = 0; i < s->block_count; i++) {
        block *b = &s->blocks[i];
        if (b->kind != WOK_PLACE_ARENA) continue;
        b->interval = s->interval_count;
        add_interval(s, b->bytes, b->first, b->last);
    }
    return wok_plan_offsets(s->ctx, s->intervals, s->interval_count, &s->plan->arena_bytes, &s->plan->bound_bytes);
}

/* Blocks become places of tensors. */
static wok_status finish_places(planner *s) {
    wok_plan *plan = s->plan;
    int count = plan->tensor_count;
    wok_place *places = wok_arena_small(plan->arena, (size_t)(count + 1) * sizeof *places);
    plan->input_tensors = wok_arena_small(plan->arena, (size_t)(count + 1) * sizeof *plan->input_tensors);
    if (!places || !plan->input_tensors) return wok_ctx_last(s->ctx);
    for (int i = 0; i < count; i++) {
        const block *b = &s->blocks[plan->places[i].index];
        places[i] = (wok_place){.kind = b->kind};
        if (b->kind == WOK_PLACE_FIXED) plan->tensors[i].data = (void *)(uintptr_t)b->fixed;
        if (b->kind == WOK_PLACE_INPUT) {
            places[i].index = b->index;
            plan->input_tensors[plan->input_tensor_count++] = i;
        }
        if (b->kind != WOK_PLACE_ARENA) continue;
        places[i].offset = s->intervals[b->interval].offset;
        if (b->output >= 0) {
            places[i].kind = WOK_PLACE_OUTPUT;
            places[i].index = b->output;
        }
    }
    plan->places = places;
    for (int i = 0; i < plan->step_count; i++)
        plan->steps[i].workspace = s->workspaces[i] < 0 ? 0 : s->intervals[s->workspaces[i]].offset;
    return WOK_OK;
}

/* ---- making a plan ----------------------------------------------------------------------------------------------------------- */

static wok_status allocate(planner *s) {
    const wok_graph *graph = s->program->graph;
    int values = graph->value_count, nodes = graph->node_count, outputs = graph->output_count;
    s->graph = *graph;
    s->graph.arena = s->scratch;
    s->graph.symbols = wok_symbols_new(s->scratch);
    s->types = array(s, values, sizeof *s->types);
    s->needed = array(s, values, sizeof *s->needed);
    s->last = array(s, 3 * values, sizeof *s->last);
    s->order = array(s, nodes, sizeof *s->order);
    s->blocks = array(s, values + outputs, sizeof *s->blocks);
    s->intervals = array(s, values + outputs + nodes, sizeof *s->intervals);
    s->workspaces = array(s, nodes + outputs, sizeof *s->workspaces);
    if (!s->graph.symbols || !s->types || !s->needed || !s->last || !s->order || !s->blocks || !s->intervals ||
        !s->workspaces)
        return wok_ctx_last(s->ctx);
    s->block_of = s->last + values;
    s->tensor_of = s->last + 2 * values;
    return WOK_OK;
}

static wok_status make(planner *s) {
    wok_status status = allocate(s);
    if (status != WOK_OK) return status;
    seed_types(s);
    for (int n = 0; n < s->program->graph->node_count && status == WOK_OK && !s->undecided; n++)
        status = plan_node(s, n);
    s->plan->eager = s->undecided;
    if (status != WOK_OK || s->undecided) return status;
    find_lifetimes(s);
    status = place_values(s);
    if (status == WOK_OK) status = make_tensors(s);
    if (status == WOK_OK) status = make_steps(s);
    if (status == WOK_OK) status = make_outputs(s);
    if (status == WOK_OK) status = make_offsets(s);
    if (status == WOK_OK) status = finish_places(s);
    return status;
}

wok_status wok_plan_new(wok_program *program, const wok_type *inputs, wok_plan **handle) {
    wok_ctx *ctx = program->ctx;
    *handle = NULL;
    wok_arena *arena = wok_arena_new(ctx), *scratch = wok_arena_new(ctx);
    wok_plan *plan = arena ? wok_arena_alloc(arena, sizeof *plan) : NULL;
    if (!plan || !scratch) {
        wok_status status = wok_ctx_last(ctx);
        wok_arena_free(arena);
        wok_arena_free(scratch);
        return status;
    }
    *plan = (wok_plan){.program = program, .arena = arena};
    planner s = {.program = program, .ctx = ctx, .scratch = scratch, .plan = plan, .inputs = inputs};
    wok_fp_state fp = wok_fp_enter();
    wok_status status = make(&s);
    wok_fp_leave(fp);
    wok_arena_free(scratch);
    if (status == WOK_OK)
        *handle = plan;
    else
        wok_plan_free(plan);
    return status;
}

void wok_plan_free(wok_plan *plan) {
    if (plan) wok_arena_free(plan->arena);
}

/* ---- running ------------------------------------------------------------------------------------------------------------------- */

void wok_plan_bind(wok_plan *plan, char *arena, void *const *bound) {
    for (int i = 0; i < plan->tensor_count; i++) {
        const wok_place *place = &plan->places[i];
        if (place->kind == WOK_PLACE_ARENA)
            plan->tensors[i].data = arena + place->offset;
        else if (place->kind == WOK_PLACE_OUTPUT)
            plan->tensors[i].data = bound[place->index] ? bound[place->index] : arena + place->offset;
    }
}

void wok_plan_bind_inputs(wok_plan *plan, const void *const *inputs) {
    for (int i = 0; i < plan->input_tensor_count; i++) {
        int tensor = plan->input_tensors[i];
        plan->tensors[tensor].data = (void *)(uintptr_t)inputs[plan->places[tensor].index];
    }
}

wok_status wok_plan_run(wok_plan *plan, char *arena) {
    wok_call call;
    call.ctx = plan->program->ctx;
    call.parallel = wok_ctx_parallel(call.ctx);
    call.reason[0] = 0;
    for (const wok_step *step = plan->steps, *end = step + plan->step_count; step < end; step++) {
        wok_status status = wok_step_run(step, &call, arena);
        if (status != WOK_OK) return wok_call_report(&call, status);
    }
    return WOK_OK;
}

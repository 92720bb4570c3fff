/* eager.c - one node after the other. */
#include "eager.h"
#include "ctx.h"
#include "symbols.h"
#include "tensor.h"

#include <string.h>

typedef struct runner {
    wok_program *program;
    wok_ctx *ctx;
    wok_graph graph; /* the program's, with an arena and symbols of this run */
    wok_arena *scratch;
    wok_type *types; /* by value, with data as soon as it is computed */
    void **owned;    /* by value: memory of this run */
    int *readers;    /* by value: how many inputs and outputs will still read it */
} runner;

void wok_eager_clear(wok_ctx *ctx, wok_eager *eager) {
    for (int i = 0; i < eager->count; i++)
        if (eager->owned[i]) wok_ctx_release(ctx, eager->owned[i], eager->outputs[i].bytes);
    wok_ctx_release(ctx, eager->outputs, (size_t)eager->count * sizeof *eager->outputs);
    wok_ctx_release(ctx, eager->owned, (size_t)eager->count * sizeof *eager->owned);
    *eager = (wok_eager){0};
}

static void drop(runner *r, wok_value v) {
    if (v < 0 || --r->readers[v] > 0 || !r->owned[v]) return;
    wok_ctx_release(r->ctx, r->owned[v], r->types[v].bytes);
    r->owned[v] = NULL;
}

static void seed(runner *r, const wok_type *inputs) {
    const wok_program *p = r->program;
    for (int v = 0; v < p->graph->value_count; v++) {
        r->types[v] = p->graph->values[v].type;
        r->types[v].ints = NULL;
        if (p->is_constant[v] && p->constants[v]) r->types[v].data = p->constants[v];
    }
    const wok_graph *file = p->model->graph;
    for (int i = 0; i < file->input_count; i++)
        if (p->graph->values[file->inputs[i]].is_input) r->types[file->inputs[i]] = inputs[i];
    for (int n = 0; n < p->graph->node_count; n++) {
        const wok_ir_node *node = &p->graph->nodes[n];
        for (int i = 0; i < node->in_count; i++)
            if (node->in[i] >= 0) r->readers[node->in[i]]++;
    }
    for (int i = 0; i < p->graph->output_count; i++) r->readers[p->graph->outputs[i]]++;
}

static wok_status set_input(runner *r, wok_value v, wok_tensor *tensor, const wok_tensor **list) {
    if (v < 0) return WOK_OK;
    *list = tensor;
    if (wok_tensor_set(tensor, &r->types[v]) != WOK_OK)
        return wok_ctx_fail(r->ctx, WOK_ERR_SHAPE, "a tensor is too large");
    tensor->data = (void *)(uintptr_t)r->types[v].data;
    return WOK_OK;
}

static wok_status make_output(runner *r, const wok_ir_node *node, int i, wok_type *type, wok_tensor *tensor) {
    wok_value v = node->out[i];
    if (!wok_type_is_known(type))
        return wok_ctx_fail(r->ctx, WOK_ERR_UNSUPPORTED,
                            "node '%s' (%s): the size of output '%s' cannot be told from its inputs", node->name,
                            node->op_type, r->program->graph->values[v].name);
    if (wok_tensor_set(tensor, type) != WOK_OK)
        return wok_ctx_fail(r->ctx, WOK_ERR_SHAPE, "node '%s' (%s): its output %s is too large", node->name,
                            node->op_type, wok_shape_text(type->dims, type->rank));
    r->owned[v] = tensor->data = wok_ctx_alloc(r->ctx, tensor->bytes);
    if (!tensor->data) return wok_ctx_last(r->ctx);
    type->data = tensor->data;
    type->bytes = tensor->bytes;
    r->types[v] = *type;
    return WOK_OK;
}

static wok_status run_node(runner *r, wok_node n) {
    const wok_ir_node *node = &r->program->graph->nodes[n];
    const wok_type *in_types[WOK_MAX_IN];
    wok_type out_types[WOK_MAX_OUT];
    wok_tensor in[WOK_MAX_IN], out[WOK_MAX_OUT], *outs[WOK_MAX_OUT] = {NULL};
    const wok_tensor *ins[WOK_MAX_IN] = {NULL};
    for (int i = 0; i < node->in_count; i++) in_types[i] = node->in[i] < 0 ? NULL : &r->types[node->in[i]];
    wok_status status = wok_infer_node(&r->graph, node, in_types, out_types);
    for (int i = 0; i < node->in_count && status == WOK_OK; i++) status = set_input(r, node->in[i], &in[i], &ins[i]);
    for (int i = 0; i < node->out_count && status == WOK_OK; i++) {
        if (node->out[i] < 0) continue;
        outs[i] = &out[i];
        status = make_output(r, node, i, &out_types[i], &out[i]);
    }
    if (status == WOK_OK) status = wok_run_choice(r->ctx, &r->program->choices[n], node, ins, outs);
    if (status != WOK_OK) return status;
    for (int i = 0; i < node->in_count; i++) drop(r, node->in[i]);
    for (int i = 0; i < node->out_count; i++) {
        if (node->out[i] < 0) continue;
        r->readers[node->out[i]]++; /* one that nobody reads goes at once */
        drop(r, node->out[i]);
    }
    return WOK_OK;
}

static wok_status give_output(runner *r, int i, void *bound, size_t bound_bytes, wok_eager *eager) {
    wok_value v = r->program->graph->outputs[i];
    wok_tensor *out = &eager->outputs[i];
    if (wok_tensor_set(out, &r->types[v]) != WOK_OK)
        return wok_ctx_fail(r->ctx, WOK_ERR_SHAPE, "an output is too large");
    if (bound && bound_bytes < out->bytes)
        return wok_ctx_fail(r->ctx, WOK_ERR_SHAPE, "output '%s' takes %zu bytes, but %zu were bound for it",
                            r->program->graph->values[v].name, out->bytes, bound_bytes);
    out->data = bound;
    if (!bound && r->owned[v]) {
        out->data = eager->owned[i] = r->owned[v];
        r->owned[v] = NULL;
        return WOK_OK;
    }
    if (!bound && !(out->data = eager->owned[i] = wok_ctx_alloc(r->ctx, out->bytes))) return wok_ctx_last(r->ctx);
    if (out->bytes) memcpy(out->data, r->types[v].data, out->bytes);
    return WOK_OK;
}

static wok_status new_outputs(wok_ctx *ctx, int count, wok_eager *eager) {
    *eager = (wok_eager){wok_ctx_alloc(ctx, (size_t)count * sizeof *eager->outputs),
                         wok_ctx_alloc(ctx, (size_t)count * sizeof *eager->owned), count};
    if (eager->outputs) memset(eager->outputs, 0, (size_t)count * sizeof *eager->outputs);
    if (eager->owned) memset(eager->owned, 0, (size_t)count * sizeof *eager->owned);
    if (eager->outputs && eager->owned) return WOK_OK;
    wok_status status = wok_ctx_last(ctx);
    wok_ctx_release(ctx, eager->outputs, (size_t)count * sizeof *eager->outputs);
    wok_ctx_release(ctx, eager->owned, (size_t)count * sizeof *eager->owned);
    *eager = (wok_eager){0};
    return status;
}

static wok_status run(runner *r, const wok_type *inputs, void *const *bound, const size_t *bound_bytes,
                      wok_eager *eager) {
    const wok_graph *graph = r->program->graph;
    size_t values = (size_t)graph->value_count + 1;
    r->graph = *graph;
    r->graph.arena = r->scratch;
    r->graph.symbols = wok_symbols_new(r->scratch);
    r->types = wok_arena_small(r->scratch, values * sizeof *r->types);
    r->owned = wok_arena_small(r->scratch, values * sizeof *r->owned);
    r->readers = wok_arena_small(r->scratch, values * sizeof *r->readers);
    if (!r->graph.symbols || !r->types || !r->owned || !r->readers) return wok_ctx_last(r->ctx);
    seed(r, inputs);
    wok_status status = new_outputs(r->ctx, graph->output_count, eager);
    for (int n = 0; n < graph->node_count && status == WOK_OK; n++) status = run_node(r, n);
    for (int i = 0; i < graph->output_count && status == WOK_OK; i++)
        status = give_output(r, i, bound[i], bound_bytes[i], eager);
    for (size_t v = 0; v + 1 < values; v++)
        if (r->owned[v]) wok_ctx_release(r->ctx, r->owned[v], r->types[v].bytes);
    if (status != WOK_OK) wok_eager_clear(r->ctx, eager);
    return status;
}

wok_status wok_eager_run(wok_program *program, const wok_type *inputs, void *const *bound, const size_t *bound_bytes,
                         wok_eager *eager) {
    wok_ctx *ctx = program->ctx;
    wok_eager_clear(ctx, eager);
    runner r = {.program = program, .ctx = ctx, .scratch = wok_arena_new(ctx)};
    if (!r.scratch) return wok_ctx_last(ctx);
    wok_status status = run(&r, inputs, bound, bound_bytes, eager);
    wok_arena_free(r.scratch);
    return status;
}

/* program.c - building programs and sharing them. */
#include "program.h"
#include "ctx.h"
#include "tensor.h"

#include <stdio.h>
#include <string.h>

enum { BUILDING, READY, FAILED };

/* ---- keys ---------------------------------------------------------------------------------------------------------------- */

static bool has_name(const char *const *names, int count, const char *name) {
    for (int i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0) return true;
    return false;
}

/* As sets: an order of names means nothing. */
static bool same_passes(const wok_program_key *a, const wok_program_key *b) {
    for (int i = 0; i < a->no_pass_count; i++)
        if (!has_name(b->no_passes, b->no_pass_count, a->no_passes[i])) return false;
    for (int i = 0; i < b->no_pass_count; i++)
        if (!has_name(a->no_passes, a->no_pass_count, b->no_passes[i])) return false;
    return true;
}

static bool same_key(const wok_program_key *a, const wok_program_key *b, int inputs) {
    if (a->dynamic_per_row != b->dynamic_per_row || a->relax_qdq != b->relax_qdq) return false;
    if (a->precision != b->precision || a->quantized_as_f32 != b->quantized_as_f32 ||
        a->output_count != b->output_count || !same_passes(a, b))
        return false;
    for (int i = 0; i < a->output_count; i++)
        if (a->outputs[i] != b->outputs[i]) return false;
    for (int i = 0; i < inputs; i++)
        if (a->overridden[i] != b->overridden[i]) return false;
    return true;
}

static void *copy(wok_arena *arena, const void *data, size_t bytes) {
    void *to = wok_arena_small(arena, bytes);
    if (to && bytes) memcpy(to, data, bytes);
    return to;
}

static bool copy_key(wok_arena *arena, const wok_program_key *from, int inputs, wok_program_key *to) {
    *to = *from;
    const char **names = wok_arena_small(arena, (size_t)from->no_pass_count * sizeof *names);
    to->outputs = copy(arena, from->outputs, (size_t)from->output_count * sizeof *from->outputs);
    to->overridden = copy(arena, from->overridden, (size_t)inputs * sizeof *from->overridden);
    to->no_passes = names;
    if (!names || !to->outputs || !to->overridden) return false;
    for (int i = 0; i < from->no_pass_count; i++)
        if (!(names[i] = wok_arena_strdup(arena, from->no_passes[i]))) return false;
    return true;
}

/* ---- building -------------------------------------------------------------------------------------------------------------- */

/* Inputs with a default become what this program takes them for; wanted values become the outputs. */
static wok_status specialise(wok_program *p) {
    const wok_graph *file = p->model->graph;
    wok_graph *graph = p->graph;
    int kept = 0;
    for (int i = 0; i < file->input_count; i++) {
        wok_ir_value *value = &graph->values[file->inputs[i]];
        if (value->type.data && p->key.overridden[i]) {
            if (value->declared) value->type = *value->declared;
            value->type.data = NULL;
            value->type.bytes = 0;
        }
        value->is_input = !value->type.data;
        if (value->is_input) graph->inputs[kept++] = file->inputs[i];
    }
    graph->input_count = kept;
    for (int i = 0; i < graph->output_count; i++) graph->values[graph->outputs[i]].is_output = false;
    graph->outputs = copy(graph->arena, p->key.outputs, (size_t)p->key.output_count * sizeof *graph->outputs);
    if (!graph->outputs) return wok_ctx_last(p->ctx);
    graph->output_count = graph->output_capacity = p->key.output_count;
    for (int i = 0; i < graph->output_count; i++) graph->values[graph->outputs[i]].is_output = true;
    return WOK_OK;
}

static wok_status make_tables(wok_program *p) {
    size_t values = (size_t)p->graph->value_count, nodes = (size_t)p->graph->node_count;
    p->choices = wok_arena_alloc(p->arena, nodes * sizeof *p->choices);
    p->constants = wok_arena_alloc(p->arena, values * sizeof *p->constants);
    p->is_constant = wok_arena_alloc(p->arena, values * sizeof *p->is_constant);
    if (!p->choices || !p->constants || !p->is_constant) return wok_ctx_last(p->ctx);
    for (size_t v = 0; v < values; v++) {
        const wok_ir_value *value = &p->graph->values[v];
        p->is_constant[v] = value->type.data && value->producer < 0 && !value->is_input;
    }
    return WOK_OK;
}

/* Elements that run() reads: in the file where that will do. */
static wok_status keep_constant(wok_program *p, wok_value v, bool any_alignment) {
    const wok_type *type = &p->graph->values[v].type;
    size_t size = wok_dtype_size(type->dtype);
    bool aligned = size == 0 || (uintptr_t)type->data % size == 0;
    if (p->constants[v] && (any_alignment || (uintptr_t)p->constants[v] % (size ? size : 1) == 0)) return WOK_OK;
    if (!p->constants[v] && (aligned || any_alignment)) {
        p->weight_bytes += type->bytes;
        p->constants[v] = type->data;
        return WOK_OK;
    }
    void *own = wok_arena_alloc(p->packed, type->bytes ? type->bytes : 1);
    if (!own) return wok_ctx_last(p->ctx);
    memcpy(own, type->data, type->bytes);
    p->packed_bytes += type->bytes;
    p->constants[v] = own;
    return WOK_OK;
}

/* After packing, the original is not needed for now: file pages go back to the system, what a rewrite made and nobody
 * reads any more is freed. */
static void release_packed(wok_program *p, const wok_ir_node *node, const wok_choice *choice, int *uses) {
    for (int i = 0; i < node->in_count; i++) {
        wok_value v = node->in[i];
        if (v < 0 || !p->is_constant[v]) continue;
        wok_type *type = &p->graph->values[v].type;
        uses[v]--;
        if (i >= 32 || !(choice->consumed >> i & 1) || !type->data) continue;
        wok_model_forget(p->model, type->data, type->bytes);
        if (uses[v] > 0 || p->constants[v] || v < p->model->graph->value_count) continue;
        wok_arena_drop(p->graph->arena, type->data);
        type->data = NULL;
    }
}

static wok_status choose_node(wok_program *p, wok_node n, int *uses, wok_arena *scratch) {
    wok_graph *graph = p->graph;
    const wok_ir_node *node = &graph->nodes[n];
    const wok_type *in[WOK_MAX_IN], *out[WOK_MAX_OUT];
    for (int i = 0; i < node->in_count && i < WOK_MAX_IN; i++)
        in[i] = node->in[i] < 0 ? NULL : &graph->values[node->in[i]].type;
    for (int i = 0; i < node->out_count && i < WOK_MAX_OUT; i++)
        out[i] = node->out[i] < 0 ? NULL : &graph->values[node->out[i]].type;
    wok_choice *choice = &p->choices[n];
    wok_status status = wok_choose(p->backend, graph, node, in, out, p->packed, p->arena, scratch, choice);
    wok_arena_reset(scratch);
    if (status != WOK_OK) return status;
    p->packed_bytes += choice->packed_bytes;
    for (int i = 0; i < node->in_count && status == WOK_OK; i++) {
        wok_value v = node->in[i];
        bool consumed = i < 32 && choice->consumed >> i & 1, shape_only = choice->impl->flags & WOK_IMPL_SHAPE_ONLY;
        if (v >= 0 && p->is_constant[v] && !consumed && !shape_only)
            status = keep_constant(p, v, i == 0 && choice->impl->flags & WOK_IMPL_UNALIGNED_0);
    }
    if (status == WOK_OK) release_packed(p, node, choice, uses);
    return status;
}

static void report_slow(const wok_program *p) {
    int count = 0;
    wok_node first = WOK_ABSENT;
    for (int i = 0; i < p->graph->node_count; i++) {
        if (!p->choices[i].slow) continue;
        if (count++ == 0) first = i;
    }
    if (count)
        wok_ctx_log(p->ctx, WOK_LOG_WARNING, "%d node%s on slow reference kernels, the first is '%s' (%s): %s", count,
                    count == 1 ? " runs" : "s run", p->graph->nodes[first].name, p->graph->nodes[first].op_type,
                    p->choices[first].kernel->name);
}

static wok_status choose_all(wok_program *p) {
    wok_graph *graph = p->graph;
    size_t bytes = (size_t)graph->value_count * sizeof(int);
    wok_arena *scratch = wok_arena_new(p->ctx);
    int *uses = scratch ? wok_ctx_alloc_zeroed(p->ctx, bytes) : NULL;
    if (!uses) {
        wok_arena_free(scratch);
        return wok_ctx_last(p->ctx);
    }
    for (int i = 0; i < graph->node_count; i++)
        for (int j = 0; j < graph->nodes[i].in_count; j++)
            if (graph->nodes[i].in[j] >= 0) uses[graph->nodes[i].in[j]]++;
    for (int i = 0; i < graph->output_count; i++) uses[graph->outputs[i]]++;
    wok_status status = WOK_OK;
    for (int i = 0; i < graph->node_count && status == WOK_OK; i++) status = choose_node(p, i, uses, scratch);
    for (int i = 0; i < graph->output_count && status == WOK_OK; i++)
        if (p->is_constant[graph->outputs[i]]) status = keep_constant(p, graph->outputs[i], true);
    wok_ctx_release(p->ctx, uses, bytes);
    wok_arena_free(scratch);
    wok_isa best = WOK_ISA_ref;
    for (int i = 0; i < graph->node_count; i++)
        if (status == WOK_OK && p->choices[i].kernel && p->choices[i].kernel->isa > best)
            best = p->choices[i].kernel->isa;
    p->isa = wok_isa_name(best);
    if (status == WOK_OK) report_slow(p);
    return status;
}

static wok_status build(wok_program *p) {
    p->graph = wok_ir_clone(p->model->graph);
    p->packed = wok_arena_new(p->ctx);
    if (!p->graph || !p->packed) return wok_ctx_last(p->ctx);
    wok_status status = specialise(p);
    const char *dynamic = wok_model_metadata(p->model, "wok.dynamic");
    wok_pass_options options = {p->key.no_passes, p->key.no_pass_count, .dynamic_per_row = p->key.dynamic_per_row,
                                .relax_qdq = p->key.relax_qdq, .quantized_as_f32 = p->key.quantized_as_f32};
    if (dynamic && strcmp(dynamic, "per_row") == 0) options.dynamic_per_row = true;
    if (status == WOK_OK) status = wok_passes_run(p->graph, &options, &p->near_misses);
    if (status == WOK_OK) status = make_tables(p);
    if (status == WOK_OK) status = choose_all(p);
    return status;
}

/* ---- sharing ---------------------------------------------------------------------------------------------------------------- */

static void destroy(wok_program *p) {
    if (!p) return;
    wok_ctx *ctx = p->ctx;
    wok_ir_free(p->graph);
    wok_arena_free(p->packed);
    wok_arena_free(p->arena);
    wok_ctx_release(ctx, p, sizeof *p);
}

static wok_program *new_program(wok_model *model, const wok_program_key *key) {
    wok_ctx *ctx = model->ctx;
    wok_program *p = wok_ctx_alloc(ctx, sizeof *p);
    if (!p) return NULL;
    *p = (wok_program){.model = model, .ctx = ctx, .backend = &wok_backend_cpu, .references = 1, .state = BUILDING};
    p->arena = wok_arena_new(ctx);
    if (p->arena && copy_key(p->arena, key, model->graph->input_count, &p->key)) return p;
    destroy(p);
    return NULL;
}

/* With the lock held. What a parent process was building at the time of a fork is never finished here. */
static wok_program *find(wok_model *model, const wok_program_key *key) {
    for (wok_program *p = model->programs; p; p = p->next) {
        bool orphan = p->state == BUILDING && p->generation != wok_process_generation();
        if (!orphan && p->state != FAILED && same_key(&p->key, key, model->graph->input_count)) return p;
    }
    return NULL;
}

static void build_and_publish(wok_program *p) {
    wok_fp_state fp = wok_fp_enter();
    wok_status status = build(p);
    wok_fp_leave(fp);
    wok_process_lock();
    p->status = status;
    if (status != WOK_OK) snprintf(p->error, sizeof p->error, "%s", wok_ctx_error(p->ctx));
    p->state = status == WOK_OK ? READY : FAILED;
    wok_process_wake();
    wok_process_unlock();
}

wok_status wok_program_get(wok_model *model, const wok_program_key *key, wok_program **program) {
    *program = NULL;
    wok_program *made = new_program(model, key);
    if (!made) return wok_ctx_last(model->ctx);
    wok_process_lock();
    wok_program *p = find(model, key);
    bool mine = p == NULL;
    if (mine) {
        p = made;
        p->generation = wok_process_generation();
        p->next = model->programs;
        model->programs = p;
    } else {
        p->references++;
        while (p->state == BUILDING) wok_process_wait();
    }
    wok_process_unlock();
    if (mine)
        build_and_publish(p);
    else
        destroy(made);
    wok_status status = p->status;
    if (status == WOK_OK)
        *program = p;
    else {
        wok_ctx_fail(model->ctx, status, "%s", p->error);
        wok_program_put(p);
    }
    return status;
}

void wok_program_put(wok_program *p) {
    if (!p) return;
    wok_process_lock();
    bool last = --p->references == 0;
    for (wok_program **link = &p->model->programs; last && *link; link = &(*link)->next)
        if (*link == p) {
            *link = p->next;
            break;
        }
    wok_process_unlock();
    if (last) destroy(p);
}

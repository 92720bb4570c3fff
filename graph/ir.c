/* ir.c - values, nodes and attributes of a graph, and their order. */
#include "ctx.h"
#include "op.h"
#include "symbols.h"

#include <stdio.h>
#include <string.h>

/* ---- the graph ------------------------------------------------------------------------------------------------------- */

typedef struct name_table {
    int32_t *slots; /* open addressing: value id, or -1 */
    uint32_t count;
} name_table;

wok_graph *wok_ir_new(wok_ctx *ctx) {
    wok_arena *arena = wok_arena_new(ctx);
    if (!arena) return NULL;
    wok_graph *graph = wok_arena_alloc(arena, sizeof *graph);
    if (graph) {
        *graph = (wok_graph){.ctx = ctx,
                             .arena = arena,
                             .symbols = wok_symbols_new(arena),
                             .names = wok_arena_alloc(arena, sizeof(name_table))};
        if (graph->symbols && graph->names) return graph;
    }
    wok_arena_free(arena);
    return NULL;
}

void wok_ir_free(wok_graph *graph) {
    if (graph) wok_arena_free(graph->arena);
}

static bool fail_memory(wok_graph *graph) {
    if (graph->status == WOK_OK) graph->status = wok_ctx_last(graph->ctx);
    return false;
}

static bool failed(wok_graph *graph) {
    return graph->status != WOK_OK;
}

/* *array has room for `need` elements. */
static bool reserve(wok_graph *graph, void *array, int *capacity, int need, size_t size) {
    if (need <= *capacity) return true;
    int wanted = *capacity ? 2 * *capacity : 8;
    if (wanted < need) wanted = need;
    void *old, *grown = wok_arena_small(graph->arena, (size_t)wanted * size);
    if (!grown) return fail_memory(graph);
    memcpy(&old, array, sizeof old);
    if (*capacity) memcpy(grown, old, (size_t)*capacity * size);
    wok_arena_drop(graph->arena, old);
    memcpy(array, &grown, sizeof grown);
    *capacity = wanted;
    return true;
}

static void *copy(wok_graph *graph, const void *data, size_t bytes) {
    void *to = wok_arena_small(graph->arena, bytes);
    if (!to)
        fail_memory(graph);
    else if (bytes)
        memcpy(to, data, bytes);
    return to;
}

static bool clone_into(wok_graph *to, const wok_graph *from) {
    to->values = copy(to, from->values, (size_t)from->value_count * sizeof *from->values);
    to->nodes = copy(to, from->nodes, (size_t)from->node_count * sizeof *from->nodes);
    to->inputs = copy(to, from->inputs, (size_t)from->input_count * sizeof *from->inputs);
    to->outputs = copy(to, from->outputs, (size_t)from->output_count * sizeof *from->outputs);
    const name_table *names = from->names;
    name_table *table = copy(to, names, sizeof *names);
    if (failed(to)) return false;
    table->slots = copy(to, names->slots, names->count * sizeof *names->slots);
    to->names = table;
    to->value_count = to->value_capacity = from->value_count;
    to->node_count = to->node_capacity = from->node_count;
    to->input_count = to->input_capacity = from->input_count;
    to->output_count = to->output_capacity = from->output_count;
    to->symbols = wok_symbols_clone(from->symbols, to->arena);
    if (!to->symbols) return fail_memory(to);
    for (int i = 0; i < to->node_count && !failed(to); i++) {
        wok_ir_node *node = &to->nodes[i];
        node->in = copy(to, node->in, (size_t)node->in_count * sizeof *node->in);
        node->out = copy(to, node->out, (size_t)node->out_count * sizeof *node->out);
        node->attrs = copy(to, node->attrs, (size_t)node->attr_count * sizeof *node->attrs);
        node->attr_capacity = node->attr_count;
    }
    return !failed(to);
}

wok_graph *wok_ir_clone(const wok_graph *from) {
    wok_graph *to = wok_ir_new(from->ctx);
    if (to && clone_into(to, from)) return to;
    wok_ir_free(to);
    return NULL;
}

/* ---- values ------------------------------------------------------------------------------------------------------------- */

static uint32_t hash_name(const char *name) {
    uint32_t hash = 2166136261u;
    for (; *name; name++) hash = (hash ^ (unsigned char)*name) * 16777619u;
    return hash;
}

/* The slot of this name, or the free one where it belongs. */
static int32_t *name_slot(const wok_graph *graph, const name_table *table, const char *name) {
    uint32_t at = hash_name(name) & (table->count - 1);
    while (table->slots[at] >= 0 && strcmp(graph->values[table->slots[at]].name, name) != 0)
        at = (at + 1) & (table->count - 1);
    return &table->slots[at];
}

static bool grow_names(wok_graph *graph) {
    name_table *table = graph->names;
    if (table->count >= 2 * ((uint32_t)graph->value_count + 1)) return true;
    uint32_t count = table->count ? 2 * table->count : 64;
    int32_t *old = table->slots, *slots = wok_arena_small(graph->arena, count * sizeof *slots);
    if (!slots) return fail_memory(graph);
    memset(slots, 0xff, count * sizeof *slots);
    *table = (name_table){slots, count};
    for (wok_value v = 0; v < graph->value_count; v++) *name_slot(graph, table, graph->values[v].name) = v;
    wok_arena_drop(graph->arena, old);
    return true;
}

wok_value wok_ir_find(const wok_graph *graph, const char *name) {
    const name_table *table = graph->names;
    return table->count ? *name_slot(graph, table, name) : WOK_ABSENT;
}

wok_value wok_ir_value_named(wok_graph *graph, const char *name) {
    if (failed(graph) || !grow_names(graph)) return WOK_ABSENT;
    int32_t *slot = name_slot(graph, graph->names, name);
    if (*slot >= 0) return *slot;
    if (!reserve(graph, &graph->values, &graph->value_capacity, graph->value_count + 1, sizeof *graph->values))
        return WOK_ABSENT;
    const char *text = wok_arena_strdup(graph->arena, name);
    if (!text) return fail_memory(graph), WOK_ABSENT;
    graph->values[graph->value_count] = (wok_ir_value){.name = text, .type = {.rank = -1}, .producer = WOK_ABSENT};
    return *slot = graph->value_count++;
}

wok_value wok_ir_value_new(wok_graph *graph, const char *hint) {
    char name[512];
    if (!hint || !*hint) hint = "value";
    if (wok_ir_find(graph, hint) < 0 && strlen(hint) < sizeof name) return wok_ir_value_named(graph, hint);
    /* Numbered by the count of values: a collision is possible, a long search is not. */
    for (int n = graph->value_count;; n++) {
        snprintf(name, sizeof name, "%.480s_%d", hint, n);
        if (wok_ir_find(graph, name) < 0) return wok_ir_value_named(graph, name);
    }
}

wok_value wok_ir_constant(wok_graph *graph, const char *hint, wok_dtype dtype, int rank, const int64_t *dims,
                          const void *data, size_t bytes) {
    if (failed(graph)) return WOK_ABSENT;
    void *own = wok_arena_alloc(graph->arena, bytes ? bytes : 1);
    if (!own) return fail_memory(graph), WOK_ABSENT;
    if (bytes) memcpy(own, data, bytes);
    wok_value v = wok_ir_value_new(graph, hint);
    if (v < 0) return WOK_ABSENT;
    wok_type *type = &graph->values[v].type;
    *type = (wok_type){.dtype = dtype, .rank = rank, .data = own, .bytes = bytes};
    for (int i = 0; i < rank; i++) type->dims[i] = dims[i];
    return v;
}

/* ---- nodes --------------------------------------------------------------------------------------------------------------- */

wok_node wok_ir_node_new(wok_graph *graph, wok_op op, const char *name, const wok_value *in, int in_count,
                         const wok_value *out, int out_count) {
    if (failed(graph)) return WOK_ABSENT;
    if (!reserve(graph, &graph->nodes, &graph->node_capacity, graph->node_count + 1, sizeof *graph->nodes))
        return WOK_ABSENT;
    const wok_op_info *info = wok_op_get(op);
    wok_ir_node node = {.op = op, .in_count = in_count, .out_count = out_count};
    node.op_type = info ? info->name : "?";
    node.domain = info ? info->domain : "";
    node.version = info ? info->last : 1;
    node.name = wok_arena_strdup(graph->arena, name ? name : "");
    node.in = copy(graph, in, (size_t)in_count * sizeof *in);
    node.out = copy(graph, out, (size_t)out_count * sizeof *out);
    if (!node.name) fail_memory(graph);
    if (failed(graph)) return WOK_ABSENT;
    wok_node id = graph->node_count++;
    graph->nodes[id] = node;
    for (int i = 0; i < out_count; i++)
        if (out[i] >= 0) graph->values[out[i]].producer = id;
    return id;
}

wok_attr *wok_ir_attr_add(wok_graph *graph, wok_node id, const char *name, wok_attr_kind kind) {
    if (failed(graph) || id < 0) return NULL;
    wok_ir_node *node = &graph->nodes[id];
    wok_attr *attr = NULL;
    for (int i = 0; i < node->attr_count; i++)
        if (strcmp(node->attrs[i].name, name) == 0) attr = &node->attrs[i];
    if (!attr) {
        if (!reserve(graph, &node->attrs, &node->attr_capacity, node->attr_count + 1, sizeof *attr)) return NULL;
        const char *text = wok_arena_strdup(graph->arena, name);
        if (!text) return fail_memory(graph), NULL;
        attr = &node->attrs[node->attr_count++];
        attr->name = text;
    }
    *attr = (wok_attr){.name = attr->name, .kind = kind};
    return attr;
}

void wok_ir_set_int(wok_graph *graph, wok_node node, const char *name, int64_t value) {
    wok_attr *attr = wok_ir_attr_add(graph, node, name, WOK_ATTR_INT);
    if (attr) attr->u.i = value;
}

void wok_ir_set_float(wok_graph *graph, wok_node node, const char *name, float value) {
    wok_attr *attr = wok_ir_attr_add(graph, node, name, WOK_ATTR_FLOAT);
    if (attr) attr->u.f = value;
}

void wok_ir_set_ints(wok_graph *graph, wok_node node, const char *name, const int64_t *values, int64_t count) {
    const int64_t *own = copy(graph, values, (size_t)count * sizeof *values);
    wok_attr *attr = own ? wok_ir_attr_add(graph, node, name, WOK_ATTR_INTS) : NULL;
    if (!attr) return;
    attr->count = count;
    attr->u.ints = own;
}

const wok_attr *wok_ir_attr(const wok_ir_node *node, const char *name, wok_attr_kind kind) {
    for (int i = 0; i < node->attr_count; i++)
        if (node->attrs[i].kind == kind && strcmp(node->attrs[i].name, name) == 0) return &node->attrs[i];
    return NULL;
}

int64_t wok_ir_int(const wok_ir_node *node, const char *name, int64_t fallback) {
    const wok_attr *attr = wok_ir_attr(node, name, WOK_ATTR_INT);
    return attr ? attr->u.i : fallback;
}

float wok_ir_float(const wok_ir_node *node, const char *name, float fallback) {
    const wok_attr *attr = wok_ir_attr(node, name, WOK_ATTR_FLOAT);
    return attr ? attr->u.f : fallback;
}

const char *wok_ir_string(const wok_ir_node *node, const char *name, const char *fallback) {
    const wok_attr *attr = wok_ir_attr(node, name, WOK_ATTR_STRING);
    return attr ? attr->u.s : fallback;
}

int wok_ir_ints(const wok_ir_node *node, const char *name, int64_t *out, int max) {
    const wok_attr *attr = wok_ir_attr(node, name, WOK_ATTR_INTS);
    if (!attr) return -1;
    for (int64_t i = 0; i < attr->count && i < max; i++) out[i] = attr->u.ints[i];
    return attr->count > INT32_MAX ? INT32_MAX : (int)attr->count;
}

/* ---- order ----------------------------------------------------------------------------------------------------------------- */

static wok_status stick(wok_graph *graph, wok_status status) {
    if (graph->status == WOK_OK) graph->status = status;
    return status;
}

static bool is_source(const wok_ir_value *value) {
    return value->is_input || value->type.data;
}

static wok_status set_producers(wok_graph *graph) {
    for (int v = 0; v < graph->value_count; v++) graph->values[v].producer = WOK_ABSENT;
    for (int i = 0; i < graph->node_count; i++) {
        const wok_ir_node *node = &graph->nodes[i];
        for (int j = 0; !node->dead && j < node->out_count; j++) {
            if (node->out[j] < 0) continue;
            wok_ir_value *value = &graph->values[node->out[j]];
            if (value->producer >= 0 || is_source(value))
                return stick(graph,
                             wok_ctx_fail(graph->ctx, WOK_ERR_FORMAT, "node '%s' (%s): its output '%s' is already %s",
                                          node->name, node->op_type, value->name,
                                          value->producer >= 0 ? "the output of another node"
                                          : value->is_input    ? "an input of the graph"
                                                               : "a constant"));
            value->producer = i;
        }
    }
    return WOK_OK;
}

static wok_status check_sources(wok_graph *graph) {
    for (int i = 0; i < graph->node_count; i++) {
        const wok_ir_node *node = &graph->nodes[i];
        for (int j = 0; !node->dead && j < node->in_count; j++) {
            const wok_ir_value *value = node->in[j] < 0 ? NULL : &graph->values[node->in[j]];
            if (value && value->producer < 0 && !is_source(value))
                return stick(graph, wok_ctx_fail(graph->ctx, WOK_ERR_FORMAT,
                                                 "node '%s' (%s): its input '%s' is produced by nothing", node->name,
                                                 node->op_type, value->name));
        }
    }
    for (int i = 0; i < graph->output_count; i++) {
        const wok_ir_value *value = &graph->values[graph->outputs[i]];
        if (value->producer < 0 && !is_source(value))
            return stick(graph,
                         wok_ctx_fail(graph->ctx, WOK_ERR_FORMAT, "output '%s' is produced by nothing", value->name));
    }
    return WOK_OK;
}

typedef struct order {
    unsigned char *state; /* 0: not seen, 1: on the stack, 2: placed */
    int *stack, *next;    /* node, and the input of it to look at next */
    int *placed, count;
} order;

/* Depth first, producers before readers; an explicit stack, as graphs may be as deep as they are long. */
static wok_status place(wok_graph *graph, order *o, int root) {
    int depth = 0;
    o->stack[0] = root;
    o->next[0] = 0;
    o->state[root] = 1;
    while (depth >= 0) {
        const wok_ir_node *node = &graph->nodes[o->stack[depth]];
        if (o->next[depth] == node->in_count) {
            o->state[o->stack[depth]] = 2;
            o->placed[o->count++] = o->stack[depth--];
            continue;
        }
        wok_value v = node->in[o->next[depth]++];
        wok_node producer = v < 0 ? WOK_ABSENT : graph->values[v].producer;
        if (producer < 0 || o->state[producer] == 2) continue;
        if (o->state[producer] == 1)
            return stick(graph,
                         wok_ctx_fail(graph->ctx, WOK_ERR_FORMAT,
                                      "the graph has a cycle: node '%s' (%s) needs its own result by way of '%s'",
                                      node->name, node->op_type, graph->values[v].name));
        o->state[producer] = 1;
        o->stack[++depth] = producer;
        o->next[depth] = 0;
    }
    return WOK_OK;
}

static void reorder(wok_graph *graph, const order *o, wok_ir_node *scratch) {
    memcpy(scratch, graph->nodes, (size_t)graph->node_count * sizeof *scratch);
    for (int i = 0; i < o->count; i++) {
        graph->nodes[i] = scratch[o->placed[i]];
        for (int j = 0; j < graph->nodes[i].out_count; j++)
            if (graph->nodes[i].out[j] >= 0) graph->values[graph->nodes[i].out[j]].producer = i;
    }
    graph->node_count = o->count;
}

wok_status wok_ir_sort(wok_graph *graph) {
    if (failed(graph)) return graph->status;
    wok_status status = set_producers(graph);
    if (status == WOK_OK) status = check_sources(graph);
    if (status != WOK_OK || graph->node_count == 0) return status;
    size_t n = (size_t)graph->node_count, bytes = n * (sizeof(wok_ir_node) + 3 * sizeof(int) + 1);
    char *block = wok_ctx_alloc(graph->ctx, bytes);
    if (!block) return fail_memory(graph), graph->status;
    wok_ir_node *scratch = (wok_ir_node *)(void *)block;
    int *ints = (int *)(void *)(scratch + n);
    order o = {.state = (unsigned char *)(ints + 3 * n), .stack = ints, .next = ints + n, .placed = ints + 2 * n};
    memset(o.state, 0, n);
    for (int i = 0; i < graph->node_count && status == WOK_OK; i++)
        if (!graph->nodes[i].dead && o.state[i] == 0) status = place(graph, &o, i);
    if (status == WOK_OK) reorder(graph, &o, scratch);
    wok_ctx_release(graph->ctx, block, bytes);
    return status;
}

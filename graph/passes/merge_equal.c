/* merge_equal.c - two nodes with the same operator, attributes and inputs compute the same: one is enough. Exporters write
 * the attention mask and the shape arithmetic anew in every layer, with constants of their own, so small constants of
 * equal type and bytes are made one first. Exact. */
#include "pass.h"

#include <string.h>

enum { SMALL_CONSTANT = 256 }; /* bytes */

static uint64_t mix(uint64_t h, uint64_t x) {
    return (h ^ x) * UINT64_C(0x9E3779B97F4A7C15) ^ h >> 29;
}

static uint64_t mix_bytes(uint64_t h, const void *data, size_t bytes) {
    const unsigned char *p = data;
    for (size_t i = 0; i < bytes; i++) h = mix(h, p[i]);
    return h;
}

static size_t attr_bytes(const wok_attr *a, const void **data) {
    switch (a->kind) {
    case WOK_ATTR_INT:
        *data = &a->u.i;
        return sizeof a->u.i;
    case WOK_ATTR_FLOAT:
        *data = &a->u.f;
        return sizeof a->u.f;
    case WOK_ATTR_STRING:
        *data = a->u.s;
        return (size_t)a->count;
    case WOK_ATTR_INTS:
        *data = a->u.ints;
        return (size_t)a->count * sizeof *a->u.ints;
    case WOK_ATTR_FLOATS:
        *data = a->u.floats;
        return (size_t)a->count * sizeof *a->u.floats;
    case WOK_ATTR_TENSOR:
        *data = &a->u.tensor;
        return sizeof a->u.tensor;
    default:
        *data = NULL;
        return 0; /* never equal */
    }
}

static uint64_t node_hash(const wok_ir_node *node) {
    uint64_t h = mix(node->op, (uint64_t)node->version);
    for (int i = 0; i < node->in_count; i++) h = mix(h, (uint64_t)(int64_t)node->in[i]);
    for (int i = 0; i < node->attr_count; i++) {
        const void *data;
        size_t bytes = attr_bytes(&node->attrs[i], &data);
        h = mix_bytes(mix_bytes(h, node->attrs[i].name, strlen(node->attrs[i].name)), data, bytes);
    }
    return h;
}

static bool attr_equal(const wok_attr *a, const wok_attr *b) {
    const void *x, *y;
    if (strcmp(a->name, b->name) != 0 || a->kind != b->kind || a->count != b->count) return false;
    size_t bytes = attr_bytes(a, &x), other = attr_bytes(b, &y);
    return x && y && bytes == other && memcmp(x, y, bytes) == 0;
}

static bool node_equal(const wok_ir_node *a, const wok_ir_node *b) {
    if (a->op != b->op || a->version != b->version || a->in_count != b->in_count || a->out_count != b->out_count ||
        a->attr_count != b->attr_count)
        return false;
    for (int i = 0; i < a->in_count; i++)
        if (a->in[i] != b->in[i]) return false;
    for (int i = 0; i < a->out_count; i++)
        if ((a->out[i] < 0) != (b->out[i] < 0)) return false;
    for (int i = 0; i < a->attr_count; i++)
        if (!attr_equal(&a->attrs[i], &b->attrs[i])) return false;
    return true;
}

/* An open-addressed table of ids; a slot holds id + 1. */
typedef struct table {
    int *slots;
    size_t size;
} table;

static bool table_init(wok_pass_ctx *ctx, table *t, int count) {
    for (t->size = 64; t->size < 2 * (size_t)count; t->size *= 2) {
    }
    t->slots = wok_arena_alloc(ctx->graph->arena, t->size * sizeof *t->slots);
    return t->slots != NULL;
}

static bool constant_equal(const wok_type *a, const wok_type *b) {
    return a->dtype == b->dtype && wok_pass_same_shape(a, b) && a->bytes == b->bytes &&
           memcmp(a->data, b->data, a->bytes) == 0;
}

/* to[v]: the constant that stands for constant v. */
static void merge_constants(wok_pass_ctx *ctx, table *t, wok_value *to) {
    wok_graph *g = ctx->graph;
    for (wok_value v = 0; v < g->value_count; v++) {
        const wok_type *type = &g->values[v].type;
        to[v] = v;
        if (!wok_pass_constant(ctx, v) || type->bytes > SMALL_CONSTANT || type->bytes == 0 || ctx->uses[v] == 0)
            continue;
        uint64_t h = mix_bytes(mix(type->dtype, (uint64_t)type->rank), type->data, type->bytes);
        for (size_t i = h & (t->size - 1);; i = (i + 1) & (t->size - 1)) {
            if (!t->slots[i]) {
                t->slots[i] = v + 1;
                break;
            }
            if (constant_equal(type, &g->values[t->slots[i] - 1].type)) {
                to[v] = t->slots[i] - 1;
                break;
            }
        }
    }
}

static bool mergeable(const wok_graph *g, const wok_ir_node *node) {
    for (int i = 0; i < node->out_count; i++)
        if (node->out[i] >= 0 && g->values[node->out[i]].is_output) return false;
    return !node->dead && node->out_count > 0;
}

wok_status wok_pass_merge_equal(wok_pass_ctx *ctx) {
    wok_graph *g = ctx->graph;
    table constants, nodes;
    wok_value *to = wok_arena_alloc(g->arena, (size_t)g->value_count * sizeof *to);
    if (!to || !table_init(ctx, &constants, g->value_count) || !table_init(ctx, &nodes, g->node_count))
        return WOK_ERR_MEMORY;
    merge_constants(ctx, &constants, to);
    /* in topological order: a node's inputs have been merged when it is looked up */
    for (wok_node id = 0; id < g->node_count; id++) {
        wok_ir_node *node = &g->nodes[id];
        for (int i = 0; !node->dead && i < node->in_count; i++)
            if (node->in[i] >= 0 && to[node->in[i]] != node->in[i]) wok_pass_set_input(ctx, node, i, to[node->in[i]]);
        if (!mergeable(g, node)) continue;
        for (size_t i = node_hash(node) & (nodes.size - 1);; i = (i + 1) & (nodes.size - 1)) {
            if (!nodes.slots[i]) {
                nodes.slots[i] = id + 1;
                break;
            }
            const wok_ir_node *same = &g->nodes[nodes.slots[i] - 1];
            if (!node_equal(node, same)) continue;
            for (int o = 0; o < node->out_count; o++)
                if (node->out[o] >= 0) to[node->out[o]] = same->out[o];
            wok_pass_kill(ctx, node);
            break;
        }
    }
    return g->status;
}

/* pass.c - the driver of the rewrites and what they share. */
#include "pass.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const wok_pass passes[] = {
#define WOK_PASS(name, text) {#name, text, wok_pass_##name},
#include "passes.def"
#undef WOK_PASS
};
enum { PASS_COUNT = sizeof passes / sizeof *passes };

const char *wok_pass_name(int index) {
    return index >= 0 && index < PASS_COUNT ? passes[index].name : NULL;
}

static bool named(const char *name, const char *const *names, int count) {
    for (int i = 0; i < count; i++)
        if (!strcmp(name, names[i])) return true;
    return false;
}

const char *wok_passes_unknown(const char *const *names, int count) {
    for (int i = 0; i < count; i++) {
        bool known = false;
        for (int p = 0; p < PASS_COUNT; p++) known |= !strcmp(names[i], passes[p].name);
        if (!known) return names[i];
    }
    return NULL;
}

/* ---- the driver ------------------------------------------------------------------------------------------------------ */

static wok_status grow_uses(wok_pass_ctx *ctx) {
    wok_graph *g = ctx->graph;
    if (g->value_count <= ctx->uses_count) return WOK_OK;
    wok_status status =
        wok_ctx_grow(g->ctx, (void **)&ctx->uses, &ctx->uses_bytes, (size_t)g->value_count * sizeof *ctx->uses);
    if (status != WOK_OK) {
        if (g->status == WOK_OK) g->status = status;
        return status;
    }
    memset(ctx->uses + ctx->uses_count, 0, (size_t)(g->value_count - ctx->uses_count) * sizeof *ctx->uses);
    ctx->uses_count = g->value_count;
    return WOK_OK;
}

static void use(wok_pass_ctx *ctx, wok_value v, int by) {
    if (v >= 0 && v < ctx->uses_count) ctx->uses[v] += by;
}

/* Counts uses afresh and kills nodes that nothing reads, last first. */
static wok_status count_uses(wok_pass_ctx *ctx) {
    wok_graph *g = ctx->graph;
    wok_status status = grow_uses(ctx);
    if (status != WOK_OK) return status;
    memset(ctx->uses, 0, (size_t)ctx->uses_count * sizeof *ctx->uses);
    for (int i = 0; i < g->output_count; i++) use(ctx, g->outputs[i], 1);
    for (int i = g->node_count - 1; i >= 0; i--) {
        wok_ir_node *node = &g->nodes[i];
        if (node->dead) continue;
        bool wanted = false;
        for (int o = 0; o < node->out_count; o++) wanted |= node->out[o] >= 0 && ctx->uses[node->out[o]] > 0;
        node->dead = !wanted;
        for (int j = 0; wanted && j < node->in_count; j++) use(ctx, node->in[j], 1);
    }
    return WOK_OK;
}

static wok_status settle(wok_pass_ctx *ctx) {
    wok_status status = ctx->graph->status;
    if (status == WOK_OK) status = wok_ir_sort(ctx->graph);
    if (status == WOK_OK) status = count_uses(ctx);
    if (status == WOK_OK) status = wok_ir_sort(ctx->graph);
    if (status == WOK_OK) status = wok_infer_graph(ctx->graph);
    return status;
}

wok_status wok_passes_run(wok_graph *graph, const wok_pass_options *options, wok_near_misses *near_misses) {
    const char *const *no_passes = options->no_passes;
    int no_pass_count = options->no_pass_count;
    wok_pass_ctx ctx = {.graph = graph, .options = options, .near_misses = near_misses};
    ctx.lowered = named("lower_quantized", no_passes, no_pass_count);
    wok_status status = wok_ir_sort(graph);
    if (status == WOK_OK) status = count_uses(&ctx);
    for (int p = 0; p < PASS_COUNT && status == WOK_OK; p++) {
        if (named(passes[p].name, no_passes, no_pass_count)) continue;
        ctx.pass = passes[p].name;
        ctx.changed = 0;
        status = passes[p].run(&ctx);
        ctx.lowered |= passes[p].run == wok_pass_lower_quantized;
        /* canonicalize runs before the first inference: every later pass finds types */
        if (status == WOK_OK && (ctx.changed || p == 0)) status = settle(&ctx);
    }
    if (status == WOK_OK) status = settle(&ctx);
    wok_ctx_release(graph->ctx, ctx.uses, ctx.uses_bytes);
    return status;
}

/* ---- matching -------------------------------------------------------------------------------------------------------- */

wok_ir_node *wok_pass_producer(wok_pass_ctx *ctx, wok_value v) {
    if (v < 0) return NULL;
    wok_node n = ctx->graph->values[v].producer;
    return n >= 0 && !ctx->graph->nodes[n].dead ? &ctx->graph->nodes[n] : NULL;
}

wok_ir_node *wok_pass_is(wok_pass_ctx *ctx, wok_value v, wok_op op) {
    wok_ir_node *node = wok_pass_producer(ctx, v);
    return node && node->op == op ? node : NULL;
}

static const wok_type unknown_type = {.rank = -1};
const wok_type *wok_pass_type(wok_pass_ctx *ctx, wok_value v) {
    return v < 0 ? &unknown_type : &ctx->graph->values[v].type;
}

wok_value wok_pass_in(const wok_ir_node *node, int index) {
    return index < node->in_count ? node->in[index] : WOK_ABSENT;
}

/* An input with a default is no constant: the caller may set it (programs that do not let him clear is_input). */
bool wok_pass_constant(wok_pass_ctx *ctx, wok_value v) {
    return v >= 0 && ctx->graph->values[v].type.data && ctx->graph->values[v].producer < 0 &&
           !ctx->graph->values[v].is_input;
}

bool wok_pass_single_use(wok_pass_ctx *ctx, wok_value v) {
    return v >= 0 && v < ctx->uses_count && ctx->uses[v] == 1 && !ctx->graph->values[v].is_output;
}

static float f16_to_float(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, mantissa = h & 1023;
    if (exponent == 31) return mantissa ? NAN : (sign ? -INFINITY : INFINITY);
    float magnitude = exponent ? ldexpf((float)(1024 + mantissa), (int)exponent - 25) : ldexpf((float)mantissa, -24);
    return sign ? -magnitude : magnitude;
}

double wok_pass_element(const wok_type *type, int64_t i) {
    const char *p = (const char *)type->data + i * (int64_t)wok_dtype_size(type->dtype);
#define WOK_READ(ctype)                                                                                                \
    {                                                                                                                  \
        ctype x;                                                                                                       \
        memcpy(&x, p, sizeof x);                                                                                       \
        return (double)x;                                                                                              \
    }
    switch (type->dtype) {
    case WOK_F32:
        WOK_READ(float)
    case WOK_F64:
        WOK_READ(double)
    case WOK_I64:
        WOK_READ(int64_t)
    case WOK_I32:
        WOK_READ(int32_t)
    case WOK_I16:
        WOK_READ(int16_t)
    case WOK_I8:
        WOK_READ(int8_t)
    case WOK_U64:
        WOK_READ(uint64_t)
    case WOK_U32:
        WOK_READ(uint32_t)
    case WOK_U16:
        WOK_READ(uint16_t)
    case WOK_U8:
    case WOK_BOOL:
        WOK_READ(uint8_t)
    case WOK_F16: {
        uint16_t x;
        memcpy(&x, p, sizeof x);
        return f16_to_float(x);
    }
    case WOK_BF16: {
        uint16_t x;
        memcpy(&x, p, sizeof x);
        uint32_t bits = (uint32_t)x << 16;
        float f;
        memcpy(&f, &bits, sizeof f);
        return f;
    }
    default:
        return NAN;
    }
#undef WOK_READ
}

bool wok_pass_scalar(wok_pass_ctx *ctx, wok_value v, double *x) {
    if (!wok_pass_constant(ctx, v)) return false;
    const wok_type *type = wok_pass_type(ctx, v);
    int64_t count = wok_count(type->dims, type->rank);
    if (count < 1 || count > 4096) return false;
    *x = wok_pass_element(type, 0);
    for (int64_t i = 1; i < count; i++)
        if (wok_pass_element(type, i) != *x) return false;
    return !isnan(*x);
}

bool wok_pass_scalar_operand(wok_pass_ctx *ctx, const wok_ir_node *node, double *x, wok_value *other) {
    if (node->in_count != 2) return false;
    for (int i = 0; i < 2; i++) {
        if (!wok_pass_scalar(ctx, node->in[i], x)) continue;
        /* a one-element tensor of a higher rank would change the other's shape */
        const wok_type *scalar = wok_pass_type(ctx, node->in[i]), *type = wok_pass_type(ctx, node->in[1 - i]);
        if (scalar->rank > type->rank || wok_count(scalar->dims, scalar->rank) != 1) continue;
        *other = node->in[1 - i];
        return true;
    }
    return false;
}

bool wok_pass_near(double a, double b) {
    return fabs(a - b) <= 5e-4 * fabs(b) + 1e-12;
}

int wok_pass_constant_ints(wok_pass_ctx *ctx, wok_value v, int64_t *out, int max) {
    if (v < 0) return -1;
    const wok_type *type = wok_pass_type(ctx, v);
    if (type->dtype != WOK_I64 && type->dtype != WOK_I32) return -1;
    int64_t count = wok_count(type->dims, type->rank);
    if (count < 0 || count > max) return -1;
    for (int64_t i = 0; i < count; i++) {
        if (wok_pass_constant(ctx, v)) {
            int64_t wide = 0;
            int32_t narrow;
            if (type->dtype == WOK_I64)
                memcpy(&wide, (const char *)type->data + 8 * i, 8);
            else
                memcpy(&narrow, (const char *)type->data + 4 * i, 4), wide = narrow;
            out[i] = wide;
        } else {
            return -1;
        }
    }
    return (int)count;
}

bool wok_pass_same_shape(const wok_type *a, const wok_type *b) {
    if (a->rank < 0 || a->rank != b->rank) return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dims[i] != b->dims[i]) return false;
    return true;
}

bool wok_pass_perm_is(const wok_ir_node *transpose, int rank, const int64_t *perm) {
    int64_t have[WOK_MAX_RANK];
    if (wok_ir_ints(transpose, "perm", have, WOK_MAX_RANK) != rank) return false;
    return memcmp(have, perm, (size_t)rank * sizeof *perm) == 0;
}

bool wok_pass_is_row(const wok_type *type, int64_t n) {
    for (int i = 0; i < type->rank - 1; i++)
        if (type->dims[i] != 1) return false;
    return type->rank >= 1 && type->dims[type->rank - 1] == n;
}

wok_value wok_pass_unturned(wok_pass_ctx *ctx, wok_value v, bool *turned) {
    const wok_ir_node *t = wok_pass_is(ctx, v, WOK_OP_Transpose);
    if (!t || !wok_pass_perm_is(t, 2, (int64_t[]){1, 0})) return v;
    *turned = !*turned;
    return t->in[0];
}

/* ---- rewriting ------------------------------------------------------------------------------------------------------- */

wok_node wok_pass_id(const wok_pass_ctx *ctx, const wok_ir_node *node) {
    return (wok_node)(node - ctx->graph->nodes);
}

wok_node wok_pass_add(wok_pass_ctx *ctx, wok_op op, const char *name, const wok_value *in, int in_count,
                      const wok_value *out, int out_count) {
    wok_graph *g = ctx->graph;
    while (in_count > 0 && in[in_count - 1] == WOK_ABSENT) in_count--;
    wok_node id = wok_ir_node_new(g, op, name, in, in_count, out, out_count);
    if (id < 0 || grow_uses(ctx) != WOK_OK) return WOK_ABSENT;
    for (int i = 0; i < in_count; i++) use(ctx, in[i], 1);
    for (int i = 0; i < out_count; i++)
        if (out[i] >= 0) g->values[out[i]].producer = id;
    ctx->changed++;
    return id;
}

wok_value wok_pass_op(wok_pass_ctx *ctx, wok_op op, const char *name, const wok_value *in, int in_count,
                      const wok_type *type) {
    wok_value out = wok_ir_value_new(ctx->graph, name);
    if (out < 0) return WOK_ABSENT;
    ctx->graph->values[out].type = type ? *type : unknown_type;
    ctx->graph->values[out].type.data = NULL;
    ctx->graph->values[out].type.ints = NULL;
    return wok_pass_add(ctx, op, name, in, in_count, &out, 1) < 0 ? WOK_ABSENT : out;
}

void wok_pass_infer(wok_pass_ctx *ctx, wok_node node) {
    wok_graph *g = ctx->graph;
    if (node < 0 || g->status != WOK_OK) return;
    const wok_ir_node *n = &g->nodes[node];
    const wok_type *in[WOK_MAX_IN];
    wok_type out[WOK_MAX_OUT];
    for (int i = 0; i < n->in_count && i < WOK_MAX_IN; i++) in[i] = n->in[i] < 0 ? NULL : &g->values[n->in[i]].type;
    wok_status status = wok_infer_node(g, n, in, out);
    if (status != WOK_OK) g->status = status;
    for (int i = 0; status == WOK_OK && i < n->out_count; i++)
        if (n->out[i] >= 0) g->values[n->out[i]].type = out[i];
}

wok_value wok_pass_emit(wok_pass_ctx *ctx, wok_op op, const char *name, const wok_value *in, int in_count) {
    wok_value out = wok_pass_op(ctx, op, name, in, in_count, NULL);
    if (out >= 0) wok_pass_infer(ctx, ctx->graph->values[out].producer);
    return out;
}

wok_value wok_pass_f32(wok_pass_ctx *ctx, const char *hint, int rank, const int64_t *dims, const float *data) {
    wok_value v = wok_ir_constant(ctx->graph, hint, WOK_F32, rank, dims, data, wok_tensor_bytes(WOK_F32, dims, rank));
    return grow_uses(ctx) == WOK_OK ? v : WOK_ABSENT;
}

wok_value wok_pass_i64(wok_pass_ctx *ctx, const char *hint, int rank, const int64_t *data, int64_t count) {
    wok_value v = wok_ir_constant(ctx->graph, hint, WOK_I64, rank, &count, data, (size_t)count * sizeof *data);
    return grow_uses(ctx) == WOK_OK ? v : WOK_ABSENT;
}

void wok_pass_set_string(wok_pass_ctx *ctx, wok_node node, const char *name, const char *text) {
    wok_attr *attr = node < 0 ? NULL : wok_ir_attr_add(ctx->graph, node, name, WOK_ATTR_STRING);
    char *copy = attr ? wok_arena_strdup(ctx->graph->arena, text) : NULL;
    if (!copy) return;
    attr->u.s = copy;
    attr->count = (int64_t)strlen(text);
}

void wok_pass_set_input(wok_pass_ctx *ctx, wok_ir_node *node, int index, wok_value v) {
    use(ctx, node->in[index], -1);
    node->in[index] = v;
    use(ctx, v, 1);
    ctx->changed++;
}

void wok_pass_append(wok_pass_ctx *ctx, wok_node id, int index, wok_value v) {
    wok_graph *g = ctx->graph;
    wok_ir_node *node = &g->nodes[id];
    if (v < 0) return;
    if (index >= node->in_count) {
        wok_value *in = wok_arena_alloc(g->arena, (size_t)(index + 1) * sizeof *in);
        if (!in) {
            g->status = WOK_ERR_MEMORY;
            return;
        }
        for (int i = 0; i <= index; i++) in[i] = i < node->in_count ? node->in[i] : WOK_ABSENT;
        node->in = in;
        node->in_count = index + 1;
    }
    wok_pass_set_input(ctx, node, index, v);
}

wok_value wok_pass_cast(wok_pass_ctx *ctx, const char *name, wok_value x, wok_dtype to) {
    wok_graph *g = ctx->graph;
    if (wok_pass_type(ctx, x)->dtype == to) return x;
    wok_value y = wok_pass_op(ctx, WOK_OP_Cast, name, &x, 1, NULL);
    if (y < 0) return WOK_ABSENT;
    wok_ir_set_int(g, g->values[y].producer, "to", to);
    wok_pass_infer(ctx, g->values[y].producer);
    return y;
}

void wok_pass_replace(wok_pass_ctx *ctx, wok_value from, wok_value to) {
    wok_graph *g = ctx->graph;
    if (from < 0 || to < 0 || from == to) return;
    for (int i = 0; i < g->node_count; i++) {
        wok_ir_node *node = &g->nodes[i];
        for (int j = 0; !node->dead && j < node->in_count; j++)
            if (node->in[j] == from) wok_pass_set_input(ctx, node, j, to);
    }
    ctx->changed++;
    if (!g->values[from].is_output) return;
    /* an output keeps its name */
    const char *name = g->values[from].name;
    wok_pass_add(ctx, WOK_OP_Identity, name, &to, 1, &from, 1);
}

void wok_pass_kill(wok_pass_ctx *ctx, wok_ir_node *node) {
    if (node->dead) return;
    node->dead = true;
    for (int i = 0; i < node->in_count; i++) use(ctx, node->in[i], -1);
    wok_node id = wok_pass_id(ctx, node);
    for (int i = 0; i < node->out_count; i++)
        if (node->out[i] >= 0 && ctx->graph->values[node->out[i]].producer == id)
            ctx->graph->values[node->out[i]].producer = WOK_ABSENT;
    ctx->changed++;
}

/* Rewrites overlap (two nodes may both come of one that was shared): every origin is named once. */
static int add_name(const char **names, int count, const char *name) {
    for (int i = 0; i < count; i++)
        if (!strcmp(names[i], name)) return count;
    names[count] = name;
    return count + 1;
}

void wok_pass_origin(wok_pass_ctx *ctx, wok_node to, const wok_node *from, int count) {
    wok_graph *g = ctx->graph;
    if (to < 0) return;
    int total = g->nodes[to].from_count;
    for (int i = 0; i < count; i++)
        if (from[i] >= 0) total += g->nodes[from[i]].from_count ? g->nodes[from[i]].from_count : 1;
    const char **names = wok_arena_alloc(g->arena, (size_t)total * sizeof *names);
    if (!names) {
        if (g->status == WOK_OK) g->status = WOK_ERR_MEMORY;
        return;
    }
    int n = 0;
    for (int i = 0; i < g->nodes[to].from_count; i++) n = add_name(names, n, g->nodes[to].from[i]);
    for (int i = 0; i < count; i++) {
        if (from[i] < 0) continue;
        const wok_ir_node *node = &g->nodes[from[i]];
        if (!node->from_count) n = add_name(names, n, node->name);
        for (int j = 0; j < node->from_count; j++) n = add_name(names, n, node->from[j]);
    }
    g->nodes[to].from = names;
    g->nodes[to].from_count = n;
}

void wok_pass_label(wok_pass_ctx *ctx, wok_node node, const char *label) {
    if (node >= 0) ctx->graph->nodes[node].label = label;
}

void wok_pass_near_miss(wok_pass_ctx *ctx, const wok_ir_node *node, const char *format, ...) {
    wok_near_misses *list = ctx->near_misses;
    if (!list) return;
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    wok_arena *arena = ctx->graph->arena;
    if (list->count == list->capacity) {
        int capacity = list->capacity ? 2 * list->capacity : 16;
        wok_near_miss *items = wok_arena_alloc(arena, (size_t)capacity * sizeof *items);
        if (!items) return;
        if (list->count) memcpy(items, list->items, (size_t)list->count * sizeof *items);
        list->items = items;
        list->capacity = capacity;
    }
    const char *reason = wok_arena_strdup(arena, text);
    if (reason) list->items[list->count++] = (wok_near_miss){ctx->pass, node->name, reason};
}

/* ---- activations ------------------------------------------------------------------------------------------------------ */

bool wok_pass_activation(wok_pass_ctx *ctx, const wok_ir_node *node, wok_pass_act *act) {
    *act = (wok_pass_act){"none", -INFINITY, INFINITY};
    switch (node->op) {
    case WOK_OP_Relu:
        *act = (wok_pass_act){"clamp", 0, INFINITY};
        return true;
    case WOK_OP_Tanh:
        act->name = "tanh";
        return true;
    case WOK_OP_Sigmoid:
        act->name = "sigmoid";
        return true;
    case WOK_OP_Gelu:
        act->name = strcmp(wok_ir_string(node, "approximate", "none"), "tanh") == 0 ? "gelu_tanh" : "gelu";
        return true;
    case WOK_OP_Clip: {
        double lo = -INFINITY, hi = INFINITY;
        if (wok_pass_in(node, 1) >= 0 && !wok_pass_scalar(ctx, node->in[1], &lo)) return false;
        if (wok_pass_in(node, 2) >= 0 && !wok_pass_scalar(ctx, node->in[2], &hi)) return false;
        *act = (wok_pass_act){"clamp", (float)lo, (float)hi};
        return lo <= hi;
    }
    default:
        return false;
    }
}

void wok_pass_set_act(wok_pass_ctx *ctx, wok_node node, const wok_pass_act *act) {
    wok_pass_set_string(ctx, node, "act", act->name);
    wok_ir_set_float(ctx->graph, node, "lo", act->lo);
    wok_ir_set_float(ctx->graph, node, "hi", act->hi);
}

/* widen_f16.c - float16 and bfloat16 tensors compute in f32. Constants are widened once; a Cast to 16 bits still rounds
 * (to 16 bits and back), every other operator keeps the wider result. Inputs and outputs keep the file's type through a
 * Cast at the edge. Values therefore differ from a 16-bit engine's by its rounding errors, not by wok's. */
#include "pass.h"

#include <string.h>

static bool is_half(wok_dtype dtype) {
    return dtype == WOK_F16 || dtype == WOK_BF16;
}

static wok_value widen_constant(wok_pass_ctx *ctx, wok_value v) {
    wok_graph *g = ctx->graph;
    wok_type type = g->values[v].type;
    int64_t count = wok_count(type.dims, type.rank);
    float *wide = count < 0 ? NULL : wok_arena_alloc(g->arena, (size_t)count * sizeof *wide);
    if (!wide) {
        if (g->status == WOK_OK) g->status = WOK_ERR_MEMORY;
        return WOK_ABSENT;
    }
    for (int64_t i = 0; i < count; i++) wide[i] = (float)wok_pass_element(&type, i);
    wok_value w = wok_ir_value_new(g, g->values[v].name);
    if (w < 0) return WOK_ABSENT;
    type.dtype = WOK_F32;
    type.data = wide;
    type.bytes = (size_t)count * sizeof *wide;
    g->values[w].type = type;
    return w;
}

/* The f32 value that stands for half value v, made on first need; map[v] remembers it. */
static wok_value wide_of(wok_pass_ctx *ctx, wok_value *map, wok_value v) {
    wok_graph *g = ctx->graph;
    if (map[v] != WOK_ABSENT) return map[v];
    map[v] = wok_pass_constant(ctx, v)
                 ? widen_constant(ctx, v)
                 : wok_pass_cast(ctx, g->values[v].name, v, WOK_F32); /* an input, or a rounding Cast */
    return map[v];
}

/* Operators whose output type is not that of their inputs: they stay, and a Cast widens behind them. */
static bool sets_type(const wok_ir_node *node) {
    switch (node->op) {
    case WOK_OP_Cast:
    case WOK_OP_CastLike:
    case WOK_OP_ConstantOfShape:
    case WOK_OP_EyeLike:
    case WOK_OP_DequantizeLinear:
        return true;
    default:
        return false;
    }
}

static wok_status widen_node(wok_pass_ctx *ctx, wok_node id, wok_value *map) {
    wok_graph *g = ctx->graph;
    for (int i = 0; i < g->nodes[id].in_count && g->status == WOK_OK; i++) {
        wok_value v = g->nodes[id].in[i];
        if (v < 0 || !is_half(g->values[v].type.dtype)) continue;
        wok_value wide = wide_of(ctx, map, v);
        if (wide >= 0) wok_pass_set_input(ctx, &g->nodes[id], i, wide);
    }
    if (g->status != WOK_OK || sets_type(&g->nodes[id])) return g->status;
    for (int o = 0; o < g->nodes[id].out_count; o++) {
        wok_value v = g->nodes[id].out[o];
        if (v < 0 || !is_half(g->values[v].type.dtype)) continue;
        wok_dtype half = g->values[v].type.dtype;
        wok_value wide = wok_ir_value_new(g, g->values[v].name);
        if (wide < 0) return g->status;
        g->nodes[id].out[o] = wide;
        g->values[wide].type = g->values[v].type;
        g->values[wide].type.dtype = WOK_F32;
        g->values[wide].producer = id;
        g->values[v].producer = WOK_ABSENT;
        map[v] = wide;
        if (!g->values[v].is_output) continue;
        wok_node cast = wok_pass_add(ctx, WOK_OP_Cast, g->values[v].name, &wide, 1, &v, 1);
        wok_ir_set_int(g, cast, "to", half);
    }
    return g->status;
}

wok_status wok_pass_widen_f16(wok_pass_ctx *ctx) {
    wok_graph *g = ctx->graph;
    bool any = false;
    for (int v = 0; v < g->value_count; v++) any |= is_half(g->values[v].type.dtype) && !g->values[v].only_attr;
    if (!any) return WOK_OK;
    int nodes = g->node_count, values = g->value_count; /* what is added here is f32 already */
    wok_value *map = wok_arena_alloc(g->arena, (size_t)values * sizeof *map);
    if (!map) return WOK_ERR_MEMORY;
    for (int v = 0; v < values; v++) map[v] = WOK_ABSENT;
    for (wok_node id = 0; id < nodes && g->status == WOK_OK; id++)
        if (!g->nodes[id].dead) widen_node(ctx, id, map);
    return g->status;
}

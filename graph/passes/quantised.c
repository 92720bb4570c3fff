/* quantised.c - reading QuantizeLinear and DequantizeLinear, and turning u8 codes to s8 (see quantised.h). */
#include "quantised.h"

#include <math.h>
#include <string.h>

bool wok_pass_is_dequantize(const wok_ir_node *node) {
    return node && (node->op == WOK_OP_DequantizeLinear || node->op == WOK_OP_ms_DequantizeLinear);
}

bool wok_pass_is_quantize(const wok_ir_node *node) {
    return node && (node->op == WOK_OP_QuantizeLinear || node->op == WOK_OP_ms_QuantizeLinear);
}

static bool is_byte(wok_dtype dtype) {
    return dtype == WOK_I8 || dtype == WOK_U8;
}

/* A usable scale: rounding and clamping mean nothing with the others. */
static bool is_scale(double x) {
    return isfinite(x) && x > 0;
}

static bool one_number(wok_pass_ctx *ctx, wok_value v, double *x) {
    const wok_type *t = wok_pass_type(ctx, v);
    if (!wok_pass_constant(ctx, v) || wok_count(t->dims, t->rank) != 1) return false;
    *x = wok_pass_element(t, 0);
    return true;
}

static bool read_pair(wok_pass_ctx *ctx, const wok_ir_node *node, wok_value codes, wok_quantised *q) {
    double scale, zero = 0;
    wok_value z = wok_pass_in(node, 2);
    wok_dtype dtype = wok_pass_type(ctx, codes)->dtype;
    if (!is_byte(dtype) || node->in_count < 2 || !one_number(ctx, node->in[1], &scale) || !is_scale(scale))
        return false;
    if (z >= 0 && !one_number(ctx, z, &zero)) return false;
    *q = (wok_quantised){codes, dtype, (float)scale, (int32_t)zero - (dtype == WOK_U8 ? 128 : 0)};
    return true;
}

bool wok_pass_quantised(wok_pass_ctx *ctx, wok_value v, wok_quantised *q) {
    const wok_ir_node *node = wok_pass_producer(ctx, v);
    if (!wok_pass_is_dequantize(node) || wok_pass_type(ctx, v)->dtype != WOK_F32) return false;
    return read_pair(ctx, node, node->in[0], q);
}

bool wok_pass_quantises(wok_pass_ctx *ctx, const wok_ir_node *node, wok_quantised *q) {
    if (!wok_pass_is_quantize(node) || wok_pass_type(ctx, node->in[0])->dtype != WOK_F32) return false;
    return read_pair(ctx, node, node->out[0], q);
}

/* ---- u8 to s8 ------------------------------------------------------------------------------------------------------------ */

static wok_value flipped_constant(wok_pass_ctx *ctx, wok_value v) {
    wok_graph *g = ctx->graph;
    wok_type type = g->values[v].type;
    uint8_t *data = wok_arena_raw(g->arena, type.bytes ? type.bytes : 1);
    wok_value fresh = data ? wok_ir_value_new(g, g->values[v].name) : WOK_ABSENT;
    if (fresh < 0) {
        if (g->status == WOK_OK) g->status = WOK_ERR_MEMORY;
        return WOK_ABSENT;
    }
    for (size_t i = 0; i < type.bytes; i++) data[i] = ((const uint8_t *)type.data)[i] ^ 0x80;
    type.dtype = WOK_I8;
    type.data = data;
    type.ints = NULL;
    g->values[fresh].type = type;
    return fresh;
}

/* A QuantizeLinear of the same values to s8: one for all readers. */
static wok_value signed_quantize(wok_pass_ctx *ctx, const wok_ir_node *node, const wok_quantised *q) {
    const wok_graph *g = ctx->graph;
    for (int i = 0; i < g->node_count; i++) {
        wok_quantised have;
        const wok_ir_node *n = &g->nodes[i];
        if (n->dead || !wok_pass_is_quantize(n) || n->in[0] != node->in[0] || !wok_pass_quantises(ctx, n, &have))
            continue;
        if (have.dtype == WOK_I8 && have.scale == q->scale && have.zero == q->zero) return n->out[0];
    }
    int8_t zero = (int8_t)q->zero;
    wok_value x = node->in[0], scale = node->in[1];
    const char *name = node->name;
    wok_value in[3] = {x, scale, wok_ir_constant(ctx->graph, "zero", WOK_I8, 0, NULL, &zero, 1)};
    return wok_pass_emit(ctx, WOK_OP_QuantizeLinear, name, in, 3);
}

wok_value wok_pass_signed_codes(wok_pass_ctx *ctx, wok_value codes) {
    const wok_ir_node *node = wok_pass_producer(ctx, codes);
    wok_quantised to, from;
    bool quantises = node && wok_pass_quantises(ctx, node, &to);
    /* quantising again with the same scale and zero point gives the codes that are there */
    if (quantises && wok_pass_quantised(ctx, node->in[0], &from) && from.scale == to.scale && from.zero == to.zero)
        return wok_pass_signed_codes(ctx, from.codes);
    if (wok_pass_type(ctx, codes)->dtype == WOK_I8) return codes;
    if (node && node->op == WOK_OP_wok_QSignFlip) return node->in[0];
    if (wok_pass_constant(ctx, codes)) return flipped_constant(ctx, codes);
    if (quantises) return signed_quantize(ctx, node, &to);
    return wok_pass_emit(ctx, WOK_OP_wok_QSignFlip, ctx->graph->values[codes].name, &codes, 1);
}

/* ---- weights -------------------------------------------------------------------------------------------------------------- */

static bool one_or(const wok_type *t, int64_t n) {
    int64_t count = wok_count(t->dims, t->rank);
    return count == 1 || count == n;
}

static const char *read_zeros(wok_pass_ctx *ctx, wok_value zero, bool is_u8, wok_quantised_weights *w) {
    const wok_type *t = wok_pass_type(ctx, zero);
    if (zero >= 0 && (!wok_pass_constant(ctx, zero) || !one_or(t, w->n)))
        return "the zero points of the weights do not fit";
    int8_t *zeros = wok_arena_small(ctx->graph->arena, (size_t)w->n);
    if (!zeros) return "no memory";
    bool any = false;
    for (int64_t i = 0; i < w->n; i++) {
        double z = zero < 0 ? 0 : wok_pass_element(t, wok_count(t->dims, t->rank) == 1 ? 0 : i);
        zeros[i] = (int8_t)((int)z - (is_u8 ? 128 : 0));
        any |= zeros[i] != 0;
    }
    w->zero = any ? zeros : NULL;
    return NULL;
}

const char *wok_pass_weights_from(wok_pass_ctx *ctx, wok_value codes, wok_value scale, wok_value zero, int axis,
                                  wok_quantised_weights *w) {
    const wok_type *c = wok_pass_type(ctx, codes), *s = wok_pass_type(ctx, scale);
    *w = (wok_quantised_weights){.codes = WOK_ABSENT};
    if (!wok_pass_constant(ctx, codes) || !is_byte(c->dtype)) return "the weights are no constant bytes";
    if (axis >= c->rank || c->dims[axis] < 1) return "the weights have too few dimensions";
    w->n = c->dims[axis];
    if (!wok_pass_constant(ctx, scale) || !one_or(s, w->n)) return "the scales of the weights do not fit";
    w->scale = wok_arena_small(ctx->graph->arena, (size_t)w->n * sizeof *w->scale);
    if (!w->scale) return "no memory";
    for (int64_t i = 0; i < w->n; i++) {
        double x = wok_pass_element(s, wok_count(s->dims, s->rank) == 1 ? 0 : i);
        if (!is_scale(x)) return "a scale of the weights is no positive number";
        w->scale[i] = (float)x;
    }
    bool is_u8 = c->dtype == WOK_U8;
    const char *wrong = read_zeros(ctx, zero, is_u8, w);
    if (!wrong) w->codes = is_u8 ? flipped_constant(ctx, codes) : codes;
    return wrong;
}

const char *wok_pass_quantised_weights(wok_pass_ctx *ctx, wok_value v, int axis, wok_quantised_weights *w) {
    const wok_ir_node *node = wok_pass_producer(ctx, v);
    *w = (wok_quantised_weights){.codes = WOK_ABSENT};
    if (!wok_pass_is_dequantize(node)) return "the weights are not quantised";
    const wok_type *c = wok_pass_type(ctx, node->in[0]), *s = wok_pass_type(ctx, node->in[1]);
    int64_t along = wok_ir_int(node, "axis", 1);
    if (along < 0) along += c->rank;
    if (wok_count(s->dims, s->rank) != 1 && along != axis)
        return "the scales of the weights run along the summed dimension";
    return wok_pass_weights_from(ctx, node->in[0], node->in[1], wok_pass_in(node, 2), axis, w);
}

wok_value wok_pass_zero_points(wok_pass_ctx *ctx, const wok_quantised_weights *w) {
    return w->zero ? wok_ir_constant(ctx->graph, "w_zero", WOK_I8, 1, &w->n, w->zero, (size_t)w->n) : WOK_ABSENT;
}

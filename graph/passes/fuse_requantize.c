/* fuse_requantize.c - a QuantizeLinear goes into the operator before it, where that gives what the file says:
 *
 *   integer product or convolution (+ bias, residual, clamp) -> s8 result, rounded once, at this QuantizeLinear
 *   Add, Mul of two dequantised values (+ Relu, Clip)         -> QAdd, QMul
 *   functions of one dequantised value                        -> a table of 256 bytes; nothing where the codes stay
 *   average pooling, Concat of dequantised values             -> on bytes
 *
 * The last three are exact, byte for byte: they compute QuantizeLinear(f(DequantizeLinear(x))) as it stands. */
#include "quantised.h"
#include "../program.h"

#include <math.h>
#include <string.h>

enum { BIAS = 2, RESIDUAL = 3, SCALE = 4, X_SCALE_GEMM = 5, X_SCALE_CONV = 6, TABLE = 8, CODES = 256, MAX_CHAIN = 12 };

/* The quantised output `id` gives, as s8: its own value, or a fresh one that a QSignFlip turns to the u8 of the file. */
static wok_value result(wok_pass_ctx *ctx, wok_node id, const wok_quantised *q) {
    wok_graph *g = ctx->graph;
    wok_value out = g->nodes[id].out[0];
    const char *name = g->nodes[id].name;
    wok_pass_kill(ctx, &g->nodes[id]);
    if (q->dtype == WOK_I8) return out;
    wok_value fresh = wok_ir_value_new(g, name);
    if (fresh >= 0) wok_pass_add(ctx, WOK_OP_wok_QSignFlip, name, &fresh, 1, &out, 1);
    return fresh;
}

/* `fused` gives the codes that QuantizeLinear `id` made. */
static void give_codes(wok_pass_ctx *ctx, wok_node fused, wok_node id, const wok_quantised *q) {
    wok_graph *g = ctx->graph;
    if (g->nodes[fused].from_count == 0) wok_pass_origin(ctx, fused, &fused, 1);
    wok_pass_origin(ctx, fused, &id, 1);
    wok_value out = result(ctx, id, q);
    if (out < 0) return;
    g->nodes[fused].out[0] = out;
    g->values[out].producer = fused;
    g->values[out].type.dtype = WOK_I8;
    wok_ir_set_float(g, fused, "y_scale", q->scale);
    wok_ir_set_int(g, fused, "y_zero", q->zero);
    ctx->changed++;
}

/* ---- products and convolutions -------------------------------------------------------------------------------------------- */

static int32_t code_of(float v, const wok_quantised *q) {
    float x = rintf(v / q->scale) + (float)q->zero;
    return x < -128 ? -128 : x > 127 ? 127 : isnan(x) ? q->zero : (int32_t)x;
}

/* The clamp of the f32 result, if there is one, as bounds of its codes: quantising keeps order. */
static void clamp_codes(wok_pass_ctx *ctx, wok_node fused, const wok_quantised *q) {
    const wok_ir_node *node = &ctx->graph->nodes[fused];
    bool clamped = strcmp(wok_ir_string(node, "act", "none"), "clamp") == 0;
    float lo = clamped ? wok_ir_float(node, "lo", -INFINITY) : -INFINITY;
    float hi = clamped ? wok_ir_float(node, "hi", INFINITY) : INFINITY;
    wok_ir_set_int(ctx->graph, fused, "y_lo", code_of(lo, q));
    wok_ir_set_int(ctx->graph, fused, "y_hi", code_of(hi, q));
}

static const char *why_not(wok_pass_ctx *ctx, const wok_ir_node *node, wok_quantised *residual) {
    int x_scale = node->op == WOK_OP_wok_QConv ? X_SCALE_CONV : X_SCALE_GEMM;
    if (wok_ir_attr(node, "y_scale", WOK_ATTR_FLOAT)) return "the result is quantised already";
    if (!wok_pass_single_use(ctx, node->out[0])) return "the result is read in f32 too";
    const char *act = wok_ir_string(node, "act", "none");
    if (strcmp(act, "none") != 0 && strcmp(act, "clamp") != 0) return "the activation is computed in f32";
    if (node->op == WOK_OP_wok_QMatMul) return NULL;
    if (wok_pass_in(node, x_scale) >= 0) return "the scale of the input is known only at run time";
    if (wok_pass_in(node, BIAS) >= 0 && !wok_pass_constant(ctx, node->in[BIAS])) return "the bias is not constant";
    if (wok_pass_in(node, RESIDUAL) >= 0 && !wok_pass_quantised(ctx, node->in[RESIDUAL], residual))
        return "what is added is not quantised with one scale";
    return NULL;
}

static bool into_product(wok_pass_ctx *ctx, wok_node id, const wok_quantised *q) {
    wok_graph *g = ctx->graph;
    wok_ir_node *node = wok_pass_producer(ctx, g->nodes[id].in[0]);
    if (!node || (node->op != WOK_OP_wok_QGemm && node->op != WOK_OP_wok_QConv && node->op != WOK_OP_wok_QMatMul))
        return false;
    wok_quantised residual = {.codes = WOK_ABSENT};
    const char *reason = why_not(ctx, node, &residual);
    if (reason) {
        wok_pass_near_miss(ctx, &g->nodes[id], "%s", reason);
        return true;
    }
    wok_node fused = wok_pass_id(ctx, node);
    clamp_codes(ctx, fused, q);
    if (residual.codes >= 0) {
        wok_value codes = wok_pass_signed_codes(ctx, residual.codes);
        if (codes < 0) return true;
        wok_pass_set_input(ctx, &g->nodes[fused], RESIDUAL, codes);
        wok_ir_set_float(g, fused, "residual_scale", residual.scale);
        wok_ir_set_int(g, fused, "residual_zero", residual.zero);
    }
    give_codes(ctx, fused, id, q);
    return true;
}

/* ---- functions of one value -------------------------------------------------------------------------------------------------- */

static bool is_pointwise(wok_op op) {
    switch (op) {
    case WOK_OP_Relu:
    case WOK_OP_Clip:
    case WOK_OP_LeakyRelu:
    case WOK_OP_Elu:
    case WOK_OP_Selu:
    case WOK_OP_Sigmoid:
    case WOK_OP_HardSigmoid:
    case WOK_OP_HardSwish:
    case WOK_OP_Swish:
    case WOK_OP_Tanh:
    case WOK_OP_Erf:
    case WOK_OP_Exp:
    case WOK_OP_Log:
    case WOK_OP_Sqrt:
    case WOK_OP_Reciprocal:
    case WOK_OP_Neg:
    case WOK_OP_Abs:
    case WOK_OP_Gelu:
    case WOK_OP_Softplus:
    case WOK_OP_Softsign:
    case WOK_OP_Add:
    case WOK_OP_Sub:
    case WOK_OP_Mul:
    case WOK_OP_Div:
    case WOK_OP_Pow:
    case WOK_OP_Max:
    case WOK_OP_Min:
        return true;
    default:
        return false;
    }
}

/* Which input of a pointwise node is not a constant number; -1 if there is not exactly one. */
static int variable_input(wok_pass_ctx *ctx, const wok_ir_node *node) {
    int variable = -1;
    for (int i = 0; i < node->in_count; i++) {
        if (node->in[i] < 0) continue;
        const wok_type *t = wok_pass_type(ctx, node->in[i]);
        if (wok_pass_constant(ctx, node->in[i]) && t->dtype == WOK_F32 && wok_count(t->dims, t->rank) == 1) continue;
        if (variable >= 0) return -1;
        variable = i;
    }
    return variable;
}

/* Nodes from QuantizeLinear back to DequantizeLinear, the last first. */
typedef struct chain {
    wok_node nodes[MAX_CHAIN];
    int count;
    wok_value source; /* what DequantizeLinear gives */
    wok_quantised from;
} chain;

static bool find_chain(wok_pass_ctx *ctx, wok_value v, chain *c) {
    c->count = 0;
    while (!wok_pass_quantised(ctx, v, &c->from)) {
        const wok_ir_node *node = wok_pass_producer(ctx, v);
        if (!node || !is_pointwise(node->op) || c->count == MAX_CHAIN || !wok_pass_single_use(ctx, v)) return false;
        int i = variable_input(ctx, node);
        if (i < 0 || wok_pass_type(ctx, node->in[i])->rank != wok_pass_type(ctx, v)->rank) return false;
        c->nodes[c->count++] = wok_pass_id(ctx, node);
        v = node->in[i];
    }
    c->source = v;
    return true;
}

/* Runs one node of the chain on all 256 values. */
static bool step(wok_pass_ctx *ctx, wok_node id, float *values) {
    wok_graph *g = ctx->graph;
    const wok_ir_node *node = &g->nodes[id];
    wok_tensor in[WOK_MAX_IN], out[WOK_MAX_OUT];
    const wok_tensor *in_ptr[WOK_MAX_IN];
    int variable = variable_input(ctx, node);
    memset(out, 0, sizeof out);
    for (int i = 0; i < node->in_count && i < WOK_MAX_IN; i++) {
        in_ptr[i] = node->in[i] < 0 ? NULL : &in[i];
        in[i] = (wok_tensor){.size = sizeof in[i], .dtype = WOK_F32};
        if (i == variable) {
            in[i].rank = 1, in[i].dims[0] = CODES, in[i].data = values, in[i].bytes = CODES * sizeof *values;
        } else if (node->in[i] >= 0) {
            in[i].data = (void *)(uintptr_t)wok_pass_type(ctx, node->in[i])->data, in[i].bytes = sizeof *values;
        }
    }
    if (wok_eval_node(g, node, in_ptr, out, g->arena) != WOK_OK || out[0].bytes != CODES * sizeof *values) return false;
    memcpy(values, out[0].data, out[0].bytes);
    return true;
}

static bool make_table(wok_pass_ctx *ctx, const chain *c, const wok_quantised *q, int8_t *table, bool *identity) {
    float values[CODES];
    for (int i = 0; i < CODES; i++) values[i] = (float)(i - 128 - c->from.zero) * c->from.scale;
    for (int i = c->count - 1; i >= 0; i--)
        if (!step(ctx, c->nodes[i], values)) return false;
    *identity = true;
    for (int i = 0; i < CODES; i++) {
        table[i] = (int8_t)code_of(values[i], q);
        *identity &= table[i] == i - 128;
    }
    return true;
}

static wok_value through_table(wok_pass_ctx *ctx, const char *name, wok_value codes, const int8_t *table) {
    int64_t count = CODES;
    wok_value in[2] = {codes, wok_ir_constant(ctx->graph, "table", WOK_I8, 1, &count, table, CODES)};
    return wok_pass_emit(ctx, WOK_OP_wok_QTable, name, in, 2);
}

/* The operator that makes the codes looks them up as it stores them; a table that only clamps moves its bounds. */
static bool table_into_product(wok_pass_ctx *ctx, wok_value codes, const int8_t *table, wok_node *into) {
    wok_graph *g = ctx->graph;
    const wok_ir_node *node = wok_pass_producer(ctx, codes);
    if (!node || (node->op != WOK_OP_wok_QGemm && node->op != WOK_OP_wok_QConv)) return false;
    if (!wok_pass_single_use(ctx, codes) || wok_pass_in(node, TABLE) >= 0) return false;
    int64_t count = CODES, lo = wok_ir_int(node, "y_lo", -128), hi = wok_ir_int(node, "y_hi", 127);
    *into = wok_pass_id(ctx, node);
    bool clamps = true;
    for (int64_t i = lo; i <= hi; i++) {
        int64_t first = table[lo + 128], last = table[hi + 128];
        clamps &= table[i + 128] == (i < first ? first : i > last ? last : i);
    }
    if (clamps) {
        wok_ir_set_int(g, *into, "y_lo", table[lo + 128]);
        wok_ir_set_int(g, *into, "y_hi", table[hi + 128]);
    } else {
        wok_pass_append(ctx, *into, TABLE, wok_ir_constant(g, "table", WOK_I8, 1, &count, table, CODES));
    }
    return true;
}

/* `made` computes what the chain and QuantizeLinear `id` did; its codes are y. */
static void replace_chain(wok_pass_ctx *ctx, wok_node id, const chain *c, const wok_quantised *q, wok_node made,
                          wok_value y) {
    wok_graph *g = ctx->graph;
    if (made >= 0) {
        if (g->nodes[made].from_count == 0 && g->nodes[made].op != WOK_OP_wok_QTable)
            wok_pass_origin(ctx, made, &made, 1);
        for (int i = c->count - 1; i >= 0; i--) wok_pass_origin(ctx, made, &c->nodes[i], 1);
        wok_pass_origin(ctx, made, &id, 1);
    }
    wok_value out = g->nodes[id].out[0];
    if (q->dtype == WOK_I8) {
        wok_pass_kill(ctx, &g->nodes[id]);
        wok_pass_replace(ctx, out, y);
    } else if ((out = result(ctx, id, q)) >= 0) {
        wok_pass_replace(ctx, out, y);
    }
}

static bool into_table(wok_pass_ctx *ctx, wok_node id, const wok_quantised *q) {
    wok_graph *g = ctx->graph;
    chain c;
    int8_t table[CODES];
    bool identity;
    wok_node made = WOK_ABSENT;
    if (!find_chain(ctx, g->nodes[id].in[0], &c) || !make_table(ctx, &c, q, table, &identity)) return false;
    wok_value codes = wok_pass_signed_codes(ctx, c.from.codes), y = codes;
    if (codes < 0) return true;
    if (!identity && !(wok_pass_single_use(ctx, c.source) && table_into_product(ctx, codes, table, &made))) {
        y = through_table(ctx, g->nodes[id].name, codes, table);
        if (y < 0) return true;
        made = g->values[y].producer;
    }
    replace_chain(ctx, id, &c, q, made, y);
    return true;
}

/* ---- functions of two values, pooling, joining ----------------------------------------------------------------------------------- */

/* Steps over Relu and Clip, which become bounds of the codes. */
static wok_value unclamped(wok_pass_ctx *ctx, wok_value v, const wok_quantised *q, int32_t *lo, int32_t *hi) {
    wok_pass_act act;
    *lo = -128, *hi = 127;
    const wok_ir_node *node = wok_pass_producer(ctx, v);
    if (!node || !wok_pass_activation(ctx, node, &act) || strcmp(act.name, "clamp") != 0 ||
        !wok_pass_single_use(ctx, v))
        return v;
    *lo = code_of(act.lo, q);
    *hi = code_of(act.hi, q);
    return node->in[0];
}

static bool into_binary(wok_pass_ctx *ctx, wok_node id, const wok_quantised *q) {
    wok_graph *g = ctx->graph;
    int32_t lo, hi;
    wok_value v = unclamped(ctx, g->nodes[id].in[0], q, &lo, &hi);
    const wok_ir_node *node = wok_pass_producer(ctx, v);
    wok_quantised a, b;
    if (!node || (node->op != WOK_OP_Add && node->op != WOK_OP_Mul) || !wok_pass_single_use(ctx, v)) return false;
    if (!wok_pass_quantised(ctx, node->in[0], &a) || !wok_pass_quantised(ctx, node->in[1], &b)) return false;
    wok_node old = wok_pass_id(ctx, node);
    wok_op op = node->op == WOK_OP_Add ? WOK_OP_wok_QAdd : WOK_OP_wok_QMul;
    const char *name = node->name, *label = node->op_type;
    wok_value in[2] = {wok_pass_signed_codes(ctx, a.codes), wok_pass_signed_codes(ctx, b.codes)};
    wok_value y = wok_pass_op(ctx, op, name, in, 2, NULL);
    if (y < 0) return true;
    wok_node made = g->values[y].producer;
    wok_ir_set_float(g, made, "a_scale", a.scale);
    wok_ir_set_float(g, made, "b_scale", b.scale);
    wok_ir_set_int(g, made, "a_zero", a.zero);
    wok_ir_set_int(g, made, "b_zero", b.zero);
    wok_ir_set_int(g, made, "y_lo", lo);
    wok_ir_set_int(g, made, "y_hi", hi);
    wok_pass_label(ctx, made, label);
    wok_pass_origin(ctx, made, &old, 1);
    give_codes(ctx, made, id, q);
    wok_pass_infer(ctx, made);
    return true;
}

static bool into_pool(wok_pass_ctx *ctx, wok_node id, const wok_quantised *q) {
    wok_graph *g = ctx->graph;
    wok_ir_node *node = wok_pass_producer(ctx, g->nodes[id].in[0]);
    wok_quantised x;
    if (!node || (node->op != WOK_OP_wok_AveragePool && node->op != WOK_OP_wok_GlobalAveragePool)) return false;
    if (!wok_pass_single_use(ctx, node->out[0]) || !wok_pass_quantised(ctx, node->in[0], &x)) return false;
    wok_node pool = wok_pass_id(ctx, node);
    wok_value codes = wok_pass_signed_codes(ctx, x.codes);
    if (codes < 0) return true;
    node = &g->nodes[pool];
    node->label = node->label ? node->label : node->op_type;
    node->op = WOK_OP_wok_QAveragePool;
    node->op_type = "QAveragePool";
    wok_pass_set_input(ctx, node, 0, codes);
    wok_ir_set_float(g, pool, "x_scale", x.scale);
    wok_ir_set_int(g, pool, "x_zero", x.zero);
    give_codes(ctx, pool, id, q);
    wok_pass_infer(ctx, pool);
    return true;
}

/* Every operand is requantised by a table, then the codes are joined. */
static bool into_concat(wok_pass_ctx *ctx, wok_node id, const wok_quantised *q) {
    wok_graph *g = ctx->graph;
    wok_ir_node *node = wok_pass_is(ctx, g->nodes[id].in[0], WOK_OP_Concat);
    if (!node || !wok_pass_single_use(ctx, node->out[0])) return false;
    chain c = {.count = 0};
    for (int i = 0; i < node->in_count; i++)
        if (!wok_pass_quantised(ctx, node->in[i], &c.from)) return false;
    wok_node concat = wok_pass_id(ctx, node);
    for (int i = 0; i < g->nodes[concat].in_count && g->status == WOK_OK; i++) {
        int8_t table[CODES];
        bool identity;
        wok_pass_quantised(ctx, g->nodes[concat].in[i], &c.from);
        wok_value codes = wok_pass_signed_codes(ctx, c.from.codes);
        if (codes < 0 || !make_table(ctx, &c, q, table, &identity)) return true;
        if (!identity) codes = through_table(ctx, g->nodes[concat].name, codes, table);
        wok_pass_set_input(ctx, &g->nodes[concat], i, codes);
    }
    give_codes(ctx, concat, id, q);
    wok_pass_infer(ctx, concat);
    return true;
}

wok_status wok_pass_fuse_requantize(wok_pass_ctx *ctx) {
    wok_graph *g = ctx->graph;
    int count = g->node_count;
    for (wok_node id = 0; id < count && g->status == WOK_OK; id++) {
        wok_quantised q;
        if (g->nodes[id].dead || !wok_pass_quantises(ctx, &g->nodes[id], &q)) continue;
        (void)(into_product(ctx, id, &q) || into_table(ctx, id, &q) || into_binary(ctx, id, &q) ||
               into_pool(ctx, id, &q) || into_concat(ctx, id, &q));
    }
    return g->status;
}

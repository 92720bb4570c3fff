/* lower_quantized.c - products and convolutions of quantised operands to wok's integer operators:
 *
 *   MatMul, Gemm, Conv of DequantizeLinear(codes) and DequantizeLinear(constant codes)    QDQ, and QOperator (canonicalize)
 *   MatMulInteger / ConvInteger of DynamicQuantizeLinear, Cast, Mul by both scales       dynamic
 *   MatMul of two dequantised activations                                                attention in static models
 *
 * The sum is exact; the result is f32, and fuse_epilogue and fuse_requantize fuse what follows. DequantizeLinear moves
 * behind operators that only move elements (or take the largest), so that it meets the operators that compute. */
#include "quantised.h"

#include <math.h>
#include <string.h>

static bool is_mover(wok_op op) {
    switch (op) {
    case WOK_OP_Reshape:
    case WOK_OP_Transpose:
    case WOK_OP_Flatten:
    case WOK_OP_Squeeze:
    case WOK_OP_Unsqueeze:
    case WOK_OP_Slice:
    case WOK_OP_Gather:
    case WOK_OP_Expand:
    case WOK_OP_Identity:
    case WOK_OP_MaxPool:
    case WOK_OP_GlobalMaxPool:
        return true;
    default:
        return false;
    }
}

/* f(u8 codes) in files that keep codes between operators (QOperator): f of the s8 ones, turned back behind it. */
static bool move_codes(wok_pass_ctx *ctx, wok_node id) {
    wok_graph *g = ctx->graph;
    wok_value x = g->nodes[id].in[0], old = g->nodes[id].out[0];
    const wok_ir_node *from = wok_pass_producer(ctx, x);
    if (wok_pass_type(ctx, x)->dtype != WOK_U8 || !from) return false;
    if (!wok_pass_is_quantize(from) && from->op != WOK_OP_wok_QSignFlip) return false;
    const char *name = g->nodes[id].name;
    wok_value codes = wok_pass_signed_codes(ctx, x), fresh = wok_ir_value_new(g, name);
    if (codes < 0 || fresh < 0) return true;
    wok_pass_set_input(ctx, &g->nodes[id], 0, codes);
    g->nodes[id].out[0] = fresh;
    g->values[fresh].producer = id;
    wok_pass_infer(ctx, id);
    wok_pass_infer(ctx, wok_pass_add(ctx, WOK_OP_wok_QSignFlip, name, &fresh, 1, &old, 1));
    return true;
}

/* f(DequantizeLinear(codes)) is DequantizeLinear(f(codes)). */
static void sink(wok_pass_ctx *ctx, wok_node id) {
    wok_graph *g = ctx->graph;
    wok_quantised q;
    if (g->nodes[id].out_count != 1 || move_codes(ctx, id) || !wok_pass_quantised(ctx, g->nodes[id].in[0], &q)) return;
    if (g->values[g->nodes[id].out[0]].is_output && g->nodes[id].op == WOK_OP_Identity) return;
    const char *name = g->nodes[id].name;
    wok_value codes = wok_pass_signed_codes(ctx, q.codes), old = g->nodes[id].out[0], fresh = wok_ir_value_new(g, name);
    int8_t zero = (int8_t)q.zero;
    wok_value s = wok_pass_f32(ctx, "scale", 0, NULL, &q.scale),
              z = wok_ir_constant(g, "zero", WOK_I8, 0, NULL, &zero, 1);
    if (codes < 0 || fresh < 0 || s < 0 || z < 0) return;
    wok_pass_set_input(ctx, &g->nodes[id], 0, codes);
    g->nodes[id].out[0] = fresh;
    g->values[fresh].producer = id;
    wok_pass_infer(ctx, id);
    wok_pass_infer(ctx, wok_pass_add(ctx, WOK_OP_DequantizeLinear, name, (wok_value[]){fresh, s, z}, 3, &old, 1));
}

/* DequantizeLinear of u8 codes reads s8 ones. */
static void to_signed(wok_pass_ctx *ctx, wok_node id) {
    wok_graph *g = ctx->graph;
    wok_quantised q;
    wok_value v = g->nodes[id].in[0];
    if (!wok_pass_quantised(ctx, g->nodes[id].out[0], &q) || q.dtype != WOK_U8 || wok_pass_constant(ctx, v)) return;
    int8_t zero = (int8_t)q.zero;
    wok_value codes = wok_pass_signed_codes(ctx, v), z = wok_ir_constant(g, "zero", WOK_I8, 0, NULL, &zero, 1);
    if (codes < 0 || z < 0) return;
    wok_pass_set_input(ctx, &g->nodes[id], 0, codes);
    wok_pass_append(ctx, id, 2, z);
    ctx->changed++;
}

/* ---- products ------------------------------------------------------------------------------------------------------------- */

/* A matrix of weights, perhaps behind a Transpose; `turned` flips where there is one. */
static const char *matrix(wok_pass_ctx *ctx, wok_value v, bool *turned, wok_quantised_weights *w) {
    v = wok_pass_unturned(ctx, v, turned);
    if (wok_pass_type(ctx, v)->rank != 2) return "the weights are no matrix";
    return wok_pass_quantised_weights(ctx, v, *turned ? 0 : 1, w);
}

enum { X, W, BIAS, RESIDUAL, SCALE, X_SCALE, X_ZERO, W_ZERO, GEMM_INPUTS };

/* The node of an integer product in place of `id`; x_scale multiplies the weights' scales. */
static wok_node product(wok_pass_ctx *ctx, wok_node id, wok_value codes, const wok_quantised_weights *w, bool turned,
                        wok_value bias, float x_scale, const char *label) {
    wok_graph *g = ctx->graph;
    for (int64_t n = 0; n < w->n; n++) w->scale[n] *= x_scale;
    wok_value in[GEMM_INPUTS] = {codes,
                                 w->codes,
                                 bias,
                                 WOK_ABSENT,
                                 wok_pass_f32(ctx, "scale", 1, &w->n, w->scale),
                                 WOK_ABSENT,
                                 WOK_ABSENT,
                                 wok_pass_zero_points(ctx, w)};
    wok_value out = g->nodes[id].out[0];
    const char *name = g->nodes[id].name;
    wok_pass_kill(ctx, &g->nodes[id]);
    wok_node node = wok_pass_add(ctx, WOK_OP_wok_QGemm, name, in, GEMM_INPUTS, &out, 1);
    if (node < 0) return WOK_ABSENT;
    wok_ir_set_int(g, node, "trans_b", turned);
    wok_pass_label(ctx, node, label);
    wok_pass_origin(ctx, node, &id, 1);
    return node;
}

static void activations(wok_pass_ctx *ctx, wok_node id, const wok_quantised *a, const wok_quantised *b) {
    wok_graph *g = ctx->graph;
    wok_value in[2] = {wok_pass_signed_codes(ctx, a->codes), wok_pass_signed_codes(ctx, b->codes)},
              out = g->nodes[id].out[0];
    const char *name = g->nodes[id].name;
    wok_pass_kill(ctx, &g->nodes[id]);
    wok_node node = wok_pass_add(ctx, WOK_OP_wok_QMatMul, name, in, 2, &out, 1);
    if (node < 0) return;
    wok_ir_set_float(g, node, "scale", a->scale * b->scale);
    wok_ir_set_int(g, node, "a_zero", a->zero);
    wok_ir_set_int(g, node, "b_zero", b->zero);
    wok_pass_label(ctx, node, "MatMul");
    wok_pass_origin(ctx, node, &id, 1);
    wok_pass_infer(ctx, node);
}

static void matmul(wok_pass_ctx *ctx, wok_node id) {
    const wok_ir_node *node = &ctx->graph->nodes[id];
    wok_quantised x, y;
    wok_quantised_weights w;
    bool turned = false;
    if (!wok_pass_quantised(ctx, node->in[0], &x)) {
        if (wok_pass_is_dequantize(wok_pass_producer(ctx, node->in[0])))
            wok_pass_near_miss(ctx, node, "the first operand has not one constant scale");
        return;
    }
    if (wok_pass_type(ctx, node->in[0])->rank < 2) return;
    const char *wrong = matrix(ctx, node->in[1], &turned, &w);
    if (wrong && wok_pass_quantised(ctx, node->in[1], &y) && !wok_pass_constant(ctx, y.codes)) {
        activations(ctx, id, &x, &y);
        return;
    }
    if (wrong) {
        wok_pass_near_miss(ctx, node, "%s", wrong);
        return;
    }
    wok_node made = product(ctx, id, wok_pass_signed_codes(ctx, x.codes), &w, turned, WOK_ABSENT, x.scale, "MatMul");
    if (made < 0) return;
    wok_ir_set_int(ctx->graph, made, "x_zero", x.zero);
    wok_pass_infer(ctx, made);
}

static void gemm(wok_pass_ctx *ctx, wok_node id) {
    const wok_ir_node *node = &ctx->graph->nodes[id];
    wok_quantised x;
    wok_quantised_weights w;
    wok_value c = wok_pass_in(node, 2);
    bool turned = wok_ir_int(node, "transB", 0);
    if (!wok_pass_quantised(ctx, node->in[0], &x)) return;
    const char *wrong = matrix(ctx, node->in[1], &turned, &w);
    if (!wrong && (wok_ir_int(node, "transA", 0) || wok_ir_float(node, "alpha", 1) != 1.0f ||
                   (c >= 0 && wok_ir_float(node, "beta", 1) != 1.0f)))
        wrong = "Gemm scales or transposes its first operand";
    if (!wrong && c >= 0 && (wok_pass_type(ctx, c)->dtype != WOK_F32 || !wok_pass_is_row(wok_pass_type(ctx, c), w.n)))
        wrong = "the third operand is no vector of the columns";
    if (wrong) {
        wok_pass_near_miss(ctx, node, "%s", wrong);
        return;
    }
    wok_node made = product(ctx, id, wok_pass_signed_codes(ctx, x.codes), &w, turned, c, x.scale, "Gemm");
    if (made < 0) return;
    wok_ir_set_int(ctx->graph, made, "x_zero", x.zero);
    wok_pass_infer(ctx, made);
}

/* ---- convolutions ---------------------------------------------------------------------------------------------------------- */

enum { CONV_W_ZERO = 5, CONV_X_SCALE = 6, CONV_X_ZERO = 7 };

/* The Conv (or ConvInteger) itself becomes the integer one: its attributes stay. */
static void convolution_of(wok_pass_ctx *ctx, wok_node id, wok_value codes, const wok_quantised_weights *w,
                           wok_value bias) {
    wok_graph *g = ctx->graph;
    wok_value x = wok_pass_to_nhwc(ctx, g->nodes[id].name, codes);
    if (x < 0) return;
    wok_pass_set_input(ctx, &g->nodes[id], X, x);
    wok_pass_set_input(ctx, &g->nodes[id], W, w->codes);
    for (int i = BIAS; i < g->nodes[id].in_count; i++) wok_pass_set_input(ctx, &g->nodes[id], i, WOK_ABSENT);
    wok_pass_append(ctx, id, BIAS, bias);
    wok_pass_append(ctx, id, RESIDUAL, WOK_ABSENT);
    wok_pass_append(ctx, id, SCALE, wok_pass_f32(ctx, "scale", 1, &w->n, w->scale));
    wok_pass_append(ctx, id, CONV_W_ZERO, wok_pass_zero_points(ctx, w));
    wok_ir_node *node = &g->nodes[id];
    node->op = WOK_OP_wok_QConv;
    node->op_type = "QConv";
    node->label = "Conv";
    node->domain = "wok";
}

static void convolution(wok_pass_ctx *ctx, wok_node id) {
    wok_graph *g = ctx->graph;
    const wok_ir_node *node = &g->nodes[id];
    wok_quantised x;
    wok_quantised_weights w;
    wok_value bias = wok_pass_in(node, 2);
    if (!wok_pass_quantised(ctx, node->in[0], &x)) {
        if (wok_pass_is_dequantize(wok_pass_producer(ctx, node->in[1])))
            wok_pass_near_miss(ctx, node, "the input is not quantised with one constant scale");
        return;
    }
    const char *wrong = wok_pass_type(ctx, node->in[0])->rank != 4
                            ? "not two spatial dimensions"
                            : wok_pass_quantised_weights(ctx, node->in[1], 0, &w);
    if (!wrong && bias >= 0 && wok_pass_type(ctx, bias)->dtype != WOK_F32) wrong = "the bias is not f32";
    if (wrong) {
        wok_pass_near_miss(ctx, node, "%s", wrong);
        return;
    }
    for (int64_t n = 0; n < w.n; n++) w.scale[n] *= x.scale;
    convolution_of(ctx, id, wok_pass_signed_codes(ctx, x.codes), &w, bias);
    wok_ir_set_int(g, id, "x_zero", x.zero);
    wok_pass_to_nchw(ctx, id);
    ctx->changed++;
}

/* ---- scales found at run time ----------------------------------------------------------------------------------------------- */

/* Mul(Cast(integer product), scales) */
typedef struct dynamic {
    wok_node sum, dql; /* the integer product, and the DynamicQuantizeLinear of its first operand */
    wok_value w_scale;
} dynamic;

/* v as the product of DynamicQuantizeLinear's scale and a constant one. */
static bool both_scales(wok_pass_ctx *ctx, wok_value v, wok_value x_scale, dynamic *d) {
    const wok_ir_node *mul = wok_pass_is(ctx, v, WOK_OP_Mul);
    for (int i = 0; mul && i < 2; i++)
        if (mul->in[i] == x_scale && wok_pass_constant(ctx, mul->in[1 - i])) {
            d->w_scale = mul->in[1 - i];
            return true;
        }
    return false;
}

/* v as Cast(integer product), read here only. */
static bool cast_sum(wok_pass_ctx *ctx, wok_value v, dynamic *d) {
    const wok_ir_node *cast = wok_pass_is(ctx, v, WOK_OP_Cast);
    if (!cast || wok_ir_int(cast, "to", 0) != WOK_F32 || !wok_pass_single_use(ctx, v)) return false;
    const wok_ir_node *sum = wok_pass_producer(ctx, cast->in[0]);
    if (!sum || (sum->op != WOK_OP_MatMulInteger && sum->op != WOK_OP_ConvInteger)) return false;
    if (!wok_pass_single_use(ctx, cast->in[0])) return false;
    const wok_ir_node *dql = wok_pass_is(ctx, sum->in[0], WOK_OP_DynamicQuantizeLinear);
    if (!dql || dql->out_count < 3 || wok_pass_in(sum, 2) != dql->out[2]) {
        wok_pass_near_miss(ctx, sum, "its first operand is not DynamicQuantizeLinear's");
        return false;
    }
    d->sum = wok_pass_id(ctx, sum);
    d->dql = wok_pass_id(ctx, dql);
    return true;
}

static wok_value run_time_scale(wok_pass_ctx *ctx, const dynamic *d) {
    return ctx->graph->nodes[d->dql].out[1];
}

/* The Mul that scales an integer product back: Mul(sum, Mul(sx, sw)), or Mul(Mul(sum, sx), sw). */
static bool scaled_sum(wok_pass_ctx *ctx, wok_node id, dynamic *d) {
    const wok_ir_node *mul = &ctx->graph->nodes[id];
    for (int i = 0; i < 2; i++) {
        wok_value other = mul->in[1 - i];
        if (cast_sum(ctx, mul->in[i], d)) {
            if (both_scales(ctx, other, run_time_scale(ctx, d), d)) return true;
            if (other != run_time_scale(ctx, d))
                wok_pass_near_miss(ctx, &ctx->graph->nodes[d->sum], "what follows is no product with both scales");
            return false;
        }
        const wok_ir_node *inner = wok_pass_is(ctx, mul->in[i], WOK_OP_Mul);
        if (!inner || !wok_pass_constant(ctx, other) || !wok_pass_single_use(ctx, mul->in[i])) continue;
        for (int k = 0; k < 2; k++)
            if (cast_sum(ctx, inner->in[k], d) && inner->in[1 - k] == run_time_scale(ctx, d)) {
                d->w_scale = other;
                return true;
            }
    }
    return false;
}

/* The QuantizeDynamic that stands for a DynamicQuantizeLinear, for readers that take `rows` leading dimensions as rows. */
static wok_node quantize_dynamic(wok_pass_ctx *ctx, wok_node dql, int rows) {
    wok_graph *g = ctx->graph;
    wok_value x = g->nodes[dql].in[0];
    const char *name = g->nodes[dql].name;
    for (wok_node n = dql + 1; n < g->node_count; n++)
        if (!g->nodes[n].dead && g->nodes[n].op == WOK_OP_wok_QuantizeDynamic && g->nodes[n].in[0] == x &&
            wok_ir_int(&g->nodes[n], "rows", 0) == rows)
            return n;
    wok_value out[3] = {wok_ir_value_new(g, name), wok_ir_value_new(g, name), wok_ir_value_new(g, name)};
    if (out[0] < 0 || out[1] < 0 || out[2] < 0) return WOK_ABSENT;
    wok_node node = wok_pass_add(ctx, WOK_OP_wok_QuantizeDynamic, name, &x, 1, out, 3);
    if (node < 0) return WOK_ABSENT;
    wok_ir_set_int(g, node, "rows", rows);
    wok_pass_label(ctx, node, "DynamicQuantizeLinear");
    wok_pass_origin(ctx, node, &dql, 1);
    wok_pass_infer(ctx, node);
    return node;
}

static void dynamic_conv(wok_pass_ctx *ctx, wok_node id, const dynamic *d, wok_node q, const wok_quantised_weights *w) {
    wok_graph *g = ctx->graph;
    wok_value scaled = g->nodes[id].out[0], sum = g->nodes[d->sum].out[0];
    wok_pass_kill(ctx, &g->nodes[id]);
    convolution_of(ctx, d->sum, g->nodes[q].out[0], w, WOK_ABSENT);
    wok_pass_append(ctx, d->sum, CONV_X_SCALE, g->nodes[q].out[1]);
    wok_pass_append(ctx, d->sum, CONV_X_ZERO, g->nodes[q].out[2]);
    wok_pass_origin(ctx, d->sum, (wok_node[]){d->sum, id}, 2);
    wok_pass_to_nchw(ctx, d->sum);
    wok_pass_replace(ctx, scaled, sum);
}

/* For quantized_as_f32: the same product of what was to be quantised and dequantised weights. Convolutions stay. */
static void float_product(wok_pass_ctx *ctx, wok_node id, const dynamic *d) {
    wok_graph *g = ctx->graph;
    const wok_ir_node *sum = &g->nodes[d->sum];
    const char *name = g->nodes[id].name;
    wok_value x = g->nodes[d->dql].in[0], out = g->nodes[id].out[0];
    wok_quantised_weights q;
    if (sum->op != WOK_OP_MatMulInteger || wok_pass_type(ctx, sum->in[1])->rank != 2 ||
        wok_pass_weights_from(ctx, sum->in[1], d->w_scale, wok_pass_in(sum, 3), 1, &q))
        return;
    wok_value in[3] = {q.codes, wok_pass_f32(ctx, "scale", 1, &q.n, q.scale), wok_pass_zero_points(ctx, &q)};
    wok_value w = wok_pass_emit(ctx, WOK_OP_DequantizeLinear, name, in, 3);
    if (w < 0) return;
    wok_pass_kill(ctx, &g->nodes[id]);
    wok_pass_infer(ctx, wok_pass_add(ctx, WOK_OP_MatMul, name, (wok_value[]){x, w}, 2, &out, 1));
}

static void dynamic_product(wok_pass_ctx *ctx, wok_node id) {
    wok_graph *g = ctx->graph;
    dynamic d;
    wok_quantised_weights w;
    if (!scaled_sum(ctx, id, &d)) return;
    if (ctx->options->quantized_as_f32) {
        float_product(ctx, id, &d);
        return;
    }
    const wok_ir_node *sum = &g->nodes[d.sum];
    bool conv = sum->op == WOK_OP_ConvInteger;
    int rank = wok_pass_type(ctx, sum->in[0])->rank;
    const char *wrong = rank < 2 || (conv && rank != 4) || wok_pass_type(ctx, sum->in[1])->rank != (conv ? 4 : 2)
                            ? "the operands are no matrix or picture"
                            : wok_pass_weights_from(ctx, sum->in[1], d.w_scale, wok_pass_in(sum, 3), conv ? 0 : 1, &w);
    if (wrong) {
        wok_pass_near_miss(ctx, sum, "%s", wrong);
        return;
    }
    /* what has a scale of its own: every row of a matrix, every picture of a batch */
    wok_node q = quantize_dynamic(ctx, d.dql, !ctx->options->dynamic_per_row ? 0 : conv ? 1 : rank - 1);
    if (q < 0) return;
    if (conv) {
        dynamic_conv(ctx, id, &d, q, &w);
        return;
    }
    wok_node made = product(ctx, id, g->nodes[q].out[0], &w, false, WOK_ABSENT, 1, "MatMul");
    if (made < 0) return;
    wok_pass_append(ctx, made, X_SCALE, g->nodes[q].out[1]);
    wok_pass_append(ctx, made, X_ZERO, g->nodes[q].out[2]);
    wok_pass_origin(ctx, made, &d.sum, 1);
    wok_pass_infer(ctx, made);
}

wok_status wok_pass_lower_quantized(wok_pass_ctx *ctx) {
    wok_graph *g = ctx->graph;
    int count = g->node_count;
    for (wok_node id = 0; id < count && g->status == WOK_OK; id++) {
        wok_op op = g->nodes[id].op;
        if (g->nodes[id].dead) continue;
        if (ctx->options->quantized_as_f32 && op != WOK_OP_Mul) continue;
        switch (op) {
        case WOK_OP_DequantizeLinear:
            to_signed(ctx, id);
            break;
        case WOK_OP_MatMul:
            matmul(ctx, id);
            break;
        case WOK_OP_Gemm:
            gemm(ctx, id);
            break;
        case WOK_OP_Conv:
            convolution(ctx, id);
            break;
        case WOK_OP_Mul:
            dynamic_product(ctx, id);
            break;
        default:
            if (is_mover(op)) sink(ctx, id);
        }
    }
    return g->status;
}

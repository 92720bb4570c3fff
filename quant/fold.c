/* fold.c - the graph before it is quantised: constants in one form, batch normalisations and per-channel factors inside
 * the convolutions, operators in the form of the operator set that per-channel DequantizeLinear came with. */
#include "quant.h"

#include <math.h>

/* ---- constants ------------------------------------------------------------------------------------------------------ */

static void take_constant(wok_qgraph *g, wok_value out, const wok_qvalue *from) {
    wok_qvalue *value = &g->values[out];
    value->dtype = from->dtype;
    value->rank = from->rank;
    memcpy(value->dims, from->dims, sizeof value->dims);
    value->data = from->data;
    value->bytes = from->bytes;
}

/* What a Constant node holds; data NULL: nothing that is a number. */
static wok_qvalue constant_value(const wok_qgraph *g, const wok_qnode *node) {
    for (int i = 0; i < node->attr_count; i++) {
        const wok_attr *a = &node->attrs[i];
        wok_qvalue v = {.rank = 1, .dims = {a->count}};
        switch (a->kind) {
        case WOK_ATTR_TENSOR:
            return g->values[a->u.tensor];
        case WOK_ATTR_INT:
            v = (wok_qvalue){.dtype = WOK_I64, .data = &a->u.i, .bytes = sizeof a->u.i};
            break;
        case WOK_ATTR_FLOAT:
            v = (wok_qvalue){.dtype = WOK_F32, .data = &a->u.f, .bytes = sizeof a->u.f};
            break;
        case WOK_ATTR_INTS:
            v.dtype = WOK_I64, v.data = a->u.ints, v.bytes = (size_t)a->count * sizeof *a->u.ints;
            break;
        case WOK_ATTR_FLOATS:
            v.dtype = WOK_F32, v.data = a->u.floats, v.bytes = (size_t)a->count * sizeof *a->u.floats;
            break;
        default:
            continue;
        }
        return v;
    }
    return (wok_qvalue){.data = NULL};
}

static float half(uint16_t h) {
    int exponent = h >> 10 & 31;
    float magnitude = exponent == 31  ? (h & 1023 ? NAN : INFINITY)
                      : exponent == 0 ? ldexpf((float)(h & 1023), -24)
                                      : ldexpf((float)((h & 1023) + 1024), exponent - 25);
    return h & 0x8000 ? -magnitude : magnitude;
}

static float widened(wok_dtype dtype, const void *data, int64_t i) {
    uint16_t h;
    double d;
    if (dtype == WOK_F64) {
        memcpy(&d, (const char *)data + i * 8, 8);
        return (float)d;
    }
    memcpy(&h, (const char *)data + i * 2, 2);
    if (dtype == WOK_F16) return half(h);
    uint32_t bits = (uint32_t)h << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

/* Cast of constant weights in another float type to f32. */
static wok_status fold_cast(wok_qgraph *g, wok_qnode *node, const wok_qvalue *from) {
    bool is_float = from->dtype == WOK_F16 || from->dtype == WOK_BF16 || from->dtype == WOK_F64;
    if (!is_float || wok_qnode_int(node, "to", 0) != WOK_F32) return WOK_OK;
    int64_t count = wok_qvalue_count(from);
    float *wide = wok_qpool_alloc(g->pool, (size_t)count, sizeof *wide);
    if (!wide) return WOK_ERR_MEMORY;
    for (int64_t i = 0; i < count; i++) wide[i] = widened(from->dtype, from->data, i);
    wok_qvalue v = *from;
    v.dtype = WOK_F32;
    v.data = wide;
    v.bytes = (size_t)count * sizeof *wide;
    take_constant(g, node->out[0], &v);
    node->dead = true;
    return WOK_OK;
}

wok_status wok_quant_fold_constants(wok_qgraph *g) {
    for (int n = 0; n < g->node_count; n++) {
        wok_qnode *node = &g->nodes[n];
        if (node->dead || g->values[node->out[0]].is_output) continue;
        const wok_qvalue *from = wok_qgraph_fixed(g, wok_qnode_in(node, 0));
        if (wok_qnode_is(node, "Constant")) {
            wok_qvalue v = constant_value(g, node);
            if (!v.data) continue;
            take_constant(g, node->out[0], &v);
            node->dead = true;
        } else if (from && wok_qnode_is(node, "Identity")) {
            take_constant(g, node->out[0], from);
            node->dead = true;
        } else if (from && wok_qnode_is(node, "Cast")) {
            WOK_TRYQ(fold_cast(g, node, from));
        }
    }
    wok_qgraph_index(g);
    return WOK_OK;
}

/* ---- y = conv(x) * s + t -------------------------------------------------------------------------------------------- */

bool wok_quant_is_convolution(const wok_qgraph *g, const wok_qnode *node) {
    const wok_qvalue *w = wok_qgraph_fixed(g, wok_qnode_in(node, 1)),
                     *bias = wok_qgraph_fixed(g, wok_qnode_in(node, 2));
    if (!wok_qnode_is(node, "Conv") || !w || w->dtype != WOK_F32 || w->rank < 3 || w->bytes == 0) return false;
    return wok_qnode_in(node, 2) < 0 || (bias && bias->dtype == WOK_F32 && wok_qvalue_count(bias) == w->dims[0]);
}

/* The convolution that makes v for one reader only. */
static wok_qnode *convolution(const wok_qgraph *g, wok_value v) {
    if (v < 0 || g->values[v].producer < 0 || g->values[v].readers != 1 || g->values[v].is_output) return NULL;
    wok_qnode *node = &g->nodes[g->values[v].producer];
    return wok_quant_is_convolution(g, node) ? node : NULL;
}

wok_status wok_quant_scale_rows(wok_qgraph *g, wok_qnode *conv, const double *scale, const double *shift) {
    const wok_qvalue w = g->values[conv->in[1]];
    wok_value old_bias = wok_qnode_in(conv, 2);
    int64_t channels = w.dims[0], inner = channels > 0 ? wok_qvalue_count(&w) / channels : 0;
    float *weights = wok_qpool_alloc(g->pool, (size_t)(channels * inner), sizeof *weights);
    float *bias = wok_qpool_alloc(g->pool, (size_t)channels, sizeof *bias);
    wok_value *in = wok_qpool_alloc(g->pool, 3, sizeof *in);
    if (!weights || !bias || !in) return WOK_ERR_MEMORY;
    for (int64_t c = 0; c < channels; c++) {
        double b = old_bias >= 0 ? (double)wok_qfloat(g->values[old_bias].data, c) : 0;
        bias[c] = (float)(b * scale[c] + (shift ? shift[c] : 0));
        for (int64_t i = c * inner; i < (c + 1) * inner; i++)
            weights[i] = (float)((double)wok_qfloat(w.data, i) * scale[c]);
    }
    in[0] = conv->in[0];
    in[1] = wok_qgraph_replace(g, conv->in[1], weights);
    in[2] = WOK_ABSENT;
    if (old_bias >= 0)
        in[2] = wok_qgraph_replace(g, old_bias, bias);
    else if (shift) {
        const char *name = wok_qgraph_unique(g, wok_qpool_format(g->pool, "%s_bias", conv->name));
        in[2] = wok_qgraph_constant(g, name, WOK_F32, 1, &channels, bias);
    }
    if (in[1] < 0 || (in[2] < 0 && (old_bias >= 0 || shift))) return WOK_ERR_MEMORY;
    conv->in = in;
    conv->in_count = in[2] >= 0 ? 3 : 2;
    return WOK_OK;
}

/* scale and shift of a BatchNormalization in inference; false: not all of it is fixed. */
static bool batchnorm_factors(const wok_qgraph *g, const wok_qnode *node, int64_t channels, double *scale,
                              double *shift) {
    const wok_qvalue *p[5] = {NULL};
    if (node->in_count != 5 || wok_qnode_int(node, "training_mode", 0)) return false;
    for (int i = 1; i < 5; i++) {
        p[i] = wok_qgraph_fixed(g, node->in[i]);
        if (!p[i] || p[i]->dtype != WOK_F32 || wok_qvalue_count(p[i]) != channels) return false;
    }
    double epsilon = (double)wok_qnode_float(node, "epsilon", 1e-5f);
    for (int64_t c = 0; c < channels; c++) {
        scale[c] = (double)wok_qfloat(p[1]->data, c) / sqrt((double)wok_qfloat(p[4]->data, c) + epsilon);
        shift[c] = (double)wok_qfloat(p[2]->data, c) - (double)wok_qfloat(p[3]->data, c) * scale[c];
    }
    return true;
}

/* Mul or Add of a constant that is one number a channel ([C,1,1], [1,C,1,1]), or one for all. */
static bool affine_factors(const wok_qgraph *g, const wok_qnode *node, int side, const wok_qvalue *w, double *scale,
                           double *shift) {
    const wok_qvalue *c = node->in_count == 2 ? wok_qgraph_fixed(g, node->in[1 - side]) : NULL;
    bool mul = wok_qnode_is(node, "Mul");
    int spatial = w->rank - 2;
    if (!c || c->dtype != WOK_F32 || c->rank > w->rank) return false;
    int64_t count = wok_qvalue_count(c), channels = w->dims[0];
    if (count != 1 && (count != channels || c->rank <= spatial || c->dims[c->rank - spatial - 1] != channels))
        return false;
    for (int64_t i = 0; i < channels; i++) {
        double v = (double)wok_qfloat(c->data, count == 1 ? 0 : i);
        scale[i] = mul ? v : 1;
        shift[i] = mul ? 0 : v;
    }
    return true;
}

wok_status wok_quant_fold_batchnorm(wok_qgraph *g, int *folded) {
    for (int n = 0; n < g->node_count; n++) {
        wok_qnode *node = &g->nodes[n];
        bool norm = wok_qnode_is(node, "BatchNormalization");
        if (!norm && !wok_qnode_is(node, "Mul") && !wok_qnode_is(node, "Add")) continue;
        for (int side = 0; side < (norm ? 1 : 2) && !node->dead; side++) {
            wok_qnode *conv = convolution(g, wok_qnode_in(node, side));
            if (!conv) continue;
            const wok_qvalue *w = &g->values[conv->in[1]];
            double *scale = wok_qpool_alloc(g->pool, (size_t)w->dims[0], sizeof *scale);
            double *shift = wok_qpool_alloc(g->pool, (size_t)w->dims[0], sizeof *shift);
            if (!scale || !shift) return WOK_ERR_MEMORY;
            if (norm ? !batchnorm_factors(g, node, w->dims[0], scale, shift)
                     : !affine_factors(g, node, side, w, scale, shift))
                continue;
            WOK_TRYQ(wok_quant_scale_rows(g, conv, scale, shift));
            conv->out[0] = node->out[0];
            node->dead = true;
            *folded += norm;
            wok_qgraph_index(g);
        }
    }
    return WOK_OK;
}

/* ---- Pad in front of a convolution ---------------------------------------------------------------------------------- */

/* Padding of the spatial axes by zeros, in `pads` [begin..., end...] of the whole rank. */
static const int64_t *zero_padding(const wok_qgraph *g, const wok_qnode *node, int rank, int64_t *pads) {
    const wok_qvalue *amounts = wok_qgraph_fixed(g, wok_qnode_in(node, 1));
    if (!amounts || amounts->dtype != WOK_I64 || wok_qvalue_count(amounts) != 2 * rank || wok_qnode_in(node, 3) >= 0 ||
        !wok_quant_pads_zeros(g, node))
        return NULL;
    memcpy(pads, amounts->data, amounts->bytes);
    for (int i = 0; i < 2 * rank; i++)
        if (pads[i] < 0 || (i % rank < 2 && pads[i])) return NULL;
    return pads;
}

static wok_status fold_pad(wok_qgraph *g, wok_qnode *pad, wok_qnode *conv) {
    const wok_attr *own = wok_qnode_attr(conv, "pads");
    const wok_qvalue *w = wok_qgraph_fixed(g, wok_qnode_in(conv, 1));
    int64_t pads[2 * WOK_MAX_RANK];
    int spatial = w ? w->rank - 2 : 0;
    const wok_attr *automatic = wok_qnode_attr(conv, "auto_pad");
    if (!w || (automatic && automatic->kind == WOK_ATTR_STRING && strcmp(automatic->u.s, "NOTSET") != 0) ||
        (own && own->count != 2 * spatial) || !zero_padding(g, pad, w->rank, pads))
        return WOK_OK;
    int64_t *sum = wok_qpool_alloc(g->pool, (size_t)(2 * spatial), sizeof *sum);
    wok_attr *attrs = wok_qpool_alloc(g->pool, (size_t)conv->attr_count + 1, sizeof *attrs);
    if (!sum || !attrs) return WOK_ERR_MEMORY;
    for (int i = 0; i < spatial; i++) {
        sum[i] = pads[2 + i] + (own ? own->u.ints[i] : 0);
        sum[spatial + i] = pads[w->rank + 2 + i] + (own ? own->u.ints[spatial + i] : 0);
    }
    int count = 0;
    for (int i = 0; i < conv->attr_count; i++)
        if (&conv->attrs[i] != own) attrs[count++] = conv->attrs[i];
    attrs[count++] = (wok_attr){.name = "pads", .kind = WOK_ATTR_INTS, .count = 2 * spatial, .u.ints = sum};
    conv->attrs = attrs;
    conv->attr_count = count;
    conv->in[0] = pad->in[0];
    pad->dead = true;
    return WOK_OK;
}

wok_status wok_quant_fold_pads(wok_qgraph *g) {
    for (int n = 0; n < g->node_count; n++) {
        int reader = wok_qnode_is(&g->nodes[n], "Pad") ? wok_qgraph_only_reader(g, g->nodes[n].out[0]) : -1;
        if (reader >= 0 && wok_qnode_is(&g->nodes[reader], "Conv") && g->nodes[reader].in[0] == g->nodes[n].out[0])
            WOK_TRYQ(fold_pad(g, &g->nodes[n], &g->nodes[reader]));
    }
    wok_qgraph_index(g);
    return WOK_OK;
}

/* ---- a newer operator set --------------------------------------------------------------------------------------------- */

/* Attribute `name` (ints) becomes input 1. */
static wok_status ints_to_input(wok_qgraph *g, wok_qnode *node, const char *name) {
    const wok_attr *a = wok_qnode_attr(node, name);
    if (!a || a->kind != WOK_ATTR_INTS) return WOK_OK;
    wok_value *in = wok_qpool_alloc(g->pool, 2, sizeof *in);
    const char *fresh = wok_qgraph_unique(g, wok_qpool_format(g->pool, "%s_%s", node->name, name));
    wok_value v = in ? wok_qgraph_constant(g, fresh, WOK_I64, 1, &a->count, a->u.ints) : WOK_ABSENT;
    if (v < 0) return WOK_ERR_MEMORY;
    in[0] = node->in[0];
    in[1] = v;
    node->in = in;
    node->in_count = 2;
    int at = (int)(a - node->attrs);
    node->attr_count--;
    memmove(node->attrs + at, node->attrs + at + 1, (size_t)(node->attr_count - at) * sizeof *node->attrs);
    return WOK_OK;
}

/* Before 13, Softmax flattened at `axis` (default 1); from then on it works along it (default the last). The same where
 * the axis is the last one. */
static wok_status upgrade_softmax(wok_quant *q, wok_qnode *node) {
    wok_qgraph *g = &q->graph;
    int rank = g->values[node->in[0]].rank;
    int64_t axis = wok_qnode_int(node, "axis", 1);
    if (axis != -1 && (rank < 0 || axis != rank - 1))
        return wok_ctx_fail(q->ctx, WOK_ERR_UNSUPPORTED,
                            "node '%s' (%s) of operator set %lld has no form in set 13, which static quantisation "
                            "needs: export the model again with a newer set",
                            node->name, node->op, (long long)g->opset);
    wok_attr *attrs = wok_qpool_alloc(g->pool, (size_t)node->attr_count + 1, sizeof *attrs);
    if (!attrs) return WOK_ERR_MEMORY;
    int count = 0;
    for (int i = 0; i < node->attr_count; i++)
        if (strcmp(node->attrs[i].name, "axis") != 0) attrs[count++] = node->attrs[i];
    attrs[count++] = (wok_attr){.name = "axis", .kind = WOK_ATTR_INT, .u.i = -1};
    node->attrs = attrs;
    node->attr_count = count;
    return WOK_OK;
}

static bool is_softmax(const wok_qnode *node) {
    return wok_qnode_is(node, "Softmax") || wok_qnode_is(node, "LogSoftmax") || wok_qnode_is(node, "Hardmax");
}

typedef struct rank_seeker {
    wok_qgraph *graph;
    const wok_session *session;
    const wok_value *values;
    int count;
} rank_seeker;

static wok_status see_ranks(void *user) {
    const rank_seeker *s = user;
    for (int i = 0; i < s->count; i++) s->graph->values[s->values[i]].rank = wok_session_output(s->session, i)->rank;
    return WOK_OK;
}

/* Ranks of what Softmax reads where the file does not tell them: one sample does. */
static wok_status learn_ranks(wok_quant *q, wok_qpool *pool) {
    wok_qgraph *g = &q->graph;
    wok_model *model = NULL;
    wok_session *session = NULL;
    const char **names = wok_qpool_alloc(pool, (size_t)g->node_count, sizeof *names);
    wok_value *values = wok_qpool_alloc(pool, (size_t)g->node_count, sizeof *values);
    rank_seeker s = {.graph = g, .values = values};
    if (!names || !values) return WOK_ERR_MEMORY;
    for (int n = 0; n < g->node_count; n++) {
        wok_value v = wok_qnode_in(&g->nodes[n], 0);
        if (!is_softmax(&g->nodes[n]) || v < 0 || g->values[v].rank >= 0 || g->values[v].data) continue;
        names[s.count] = g->values[v].name;
        values[s.count++] = v;
        g->values[v].rank = 0; /* a second reader does not ask again */
    }
    for (int i = 0; i < s.count; i++) g->values[values[i]].rank = -1;
    if (s.count == 0) return WOK_OK;
    wok_status status = wok_quant_write_float(q, &model);
    if (status == WOK_OK) status = wok_quant_session(q, model, names, s.count, false, &session);
    s.session = session;
    if (status == WOK_OK) status = wok_quant_run(q, "reading ranks", 1, &session, 1, see_ranks, &s);
    wok_session_free(&session);
    wok_model_free(&model);
    return status;
}

static wok_status upgrade_from_11(wok_quant *q, wok_qpool *pool) {
    wok_qgraph *g = &q->graph;
    WOK_TRYQ(learn_ranks(q, pool));
    for (int n = 0; n < g->node_count; n++) {
        wok_qnode *node = &g->nodes[n];
        if (wok_qnode_is(node, "Squeeze") || wok_qnode_is(node, "Unsqueeze") || wok_qnode_is(node, "ReduceSum"))
            WOK_TRYQ(ints_to_input(g, node, "axes"));
        if (wok_qnode_is(node, "Split")) WOK_TRYQ(ints_to_input(g, node, "split"));
        if (is_softmax(node)) WOK_TRYQ(upgrade_softmax(q, node));
    }
    return WOK_OK;
}

wok_status wok_quant_upgrade(wok_quant *q, int64_t opset) {
    wok_qgraph *g = &q->graph;
    wok_qpool pool = {.ctx = q->ctx};
    if (g->opset >= opset) return WOK_OK;
    wok_status status = upgrade_from_11(q, &pool);
    wok_qpool_free(&pool);
    g->opset = opset;
    wok_qgraph_index(g);
    return status;
}

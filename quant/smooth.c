/* smooth.c - SmoothQuant's scale migration: a few columns of LayerNormalization's output are so large that one scale for
 * all leaves the others few steps. Column j is divided by s[j], and row j of the weights that read it multiplied:
 *
 *   s[j] = max|x[:,j]|^alpha / max|W[j,:]|^(1 - alpha)
 *
 * (Xiao et al. 2022). Where only matrix products read the normalisation, the division goes into its scale and bias; where a
 * residual path reads it too (BERT normalises behind the addition), it is a Mul in front of the products. */
#include "quant.h"

#include <math.h>

typedef struct group {
    wok_value x;
    int norm; /* the LayerNormalization */
    int64_t width;
    bool alone; /* nothing else reads x */
} group;

/* Weights [width,n], or [n,width] if transposed, of a product that reads x; NULL: it is none. */
static const wok_qvalue *weights_of(const wok_qgraph *g, const wok_qnode *node, wok_value x, bool *transposed) {
    const wok_qvalue *w = wok_qgraph_fixed(g, wok_qnode_in(node, 1));
    bool product = wok_qnode_is(node, "MatMul") || wok_qnode_is(node, "Gemm") ||
                   (!node->dead && strcmp(node->op, "FusedMatMul") == 0);
    if (!product || node->in[0] != x || !w || w->dtype != WOK_F32 || w->rank != 2 || wok_qnode_int(node, "transA", 0))
        return NULL;
    *transposed = wok_qnode_int(node, "transB", 0) != 0;
    return w;
}

/* A vector of f32 among the two operands of `kind`; its length, and in *other the other operand. 0: there is none. */
static int64_t vector_operand(const wok_qgraph *g, const wok_qnode *node, const char *kind, wok_value *other) {
    for (int i = 0; wok_qnode_is(node, kind) && i < 2; i++) {
        const wok_qvalue *v = wok_qgraph_fixed(g, wok_qnode_in(node, i));
        *other = wok_qnode_in(node, 1 - i);
        if (v && v->dtype == WOK_F32 && v->rank == 1 && *other >= 0) return v->dims[0];
    }
    return 0;
}

/* Width of what a normalisation makes, LayerNormalization or the Mul and Add at the end of its long form; 0: it is none. */
static int64_t norm_width(const wok_qgraph *g, const wok_qnode *node) {
    wok_value scaled, normal;
    if (wok_qnode_is(node, "LayerNormalization")) {
        const wok_qvalue *scale = wok_qgraph_fixed(g, wok_qnode_in(node, 1));
        wok_value bias = wok_qnode_in(node, 2);
        const wok_qvalue *b = wok_qgraph_fixed(g, bias);
        bool fine = scale && scale->dtype == WOK_F32 && scale->rank == 1 &&
                    (bias < 0 || (b && b->dtype == WOK_F32 && b->bytes == scale->bytes));
        return fine ? scale->dims[0] : 0;
    }
    int64_t width = vector_operand(g, node, "Add", &scaled);
    int n = width > 0 ? g->values[scaled].producer : -1;
    bool long_form = n >= 0 && vector_operand(g, &g->nodes[n], "Mul", &normal) == width &&
                     g->values[normal].producer >= 0 && wok_qnode_is(&g->nodes[g->values[normal].producer], "Div");
    return long_form ? width : 0;
}

static bool find_group(const wok_qgraph *g, int norm, group *out) {
    const wok_qnode *node = &g->nodes[norm];
    int64_t width = node->dead ? 0 : norm_width(g, node);
    if (width == 0) return false;
    *out = (group){.x = node->out[0], .norm = norm, .width = width};
    int products = 0;
    for (int n = 0; n < g->node_count; n++) {
        bool transposed;
        const wok_qvalue *w = weights_of(g, &g->nodes[n], out->x, &transposed);
        products += w && w->dims[transposed ? 1 : 0] == width;
    }
    out->alone = g->values[out->x].readers == products && wok_qnode_is(node, "LayerNormalization");
    return products > 0;
}

static void widen_rows(const wok_qvalue *w, bool transposed, int64_t width, float *most) {
    int64_t n = wok_qvalue_count(w) / width;
    for (int64_t j = 0; j < width; j++)
        for (int64_t i = 0; i < n; i++)
            most[j] = fmaxf(most[j], fabsf(wok_qfloat(w->data, transposed ? i * width + j : j * n + i)));
}

static wok_status scale_weights(wok_qgraph *g, wok_qnode *node, bool transposed, int64_t width, const float *s) {
    const wok_qvalue w = g->values[node->in[1]];
    int64_t all = wok_qvalue_count(&w), n = all / width;
    float *scaled = wok_qpool_alloc(g->pool, (size_t)all, sizeof *scaled);
    if (!scaled) return WOK_ERR_MEMORY;
    for (int64_t e = 0; e < all; e++) scaled[e] = wok_qfloat(w.data, e) * s[transposed ? e % width : e / n];
    node->in[1] = wok_qgraph_replace(g, node->in[1], scaled);
    return node->in[1] < 0 ? WOK_ERR_MEMORY : WOK_OK;
}

/* Input `i` of the normalisation, divided. */
static wok_status divide_input(wok_qgraph *g, wok_qnode *norm, int i, int64_t width, const float *s) {
    if (wok_qnode_in(norm, i) < 0) return WOK_OK;
    float *divided = wok_qpool_alloc(g->pool, (size_t)width, sizeof *divided);
    if (!divided) return WOK_ERR_MEMORY;
    for (int64_t j = 0; j < width; j++) divided[j] = wok_qfloat(g->values[norm->in[i]].data, j) / s[j];
    norm->in[i] = wok_qgraph_replace(g, norm->in[i], divided);
    return norm->in[i] < 0 ? WOK_ERR_MEMORY : WOK_OK;
}

/* A Mul by 1 / s behind x; WOK_ABSENT on failure. */
static wok_value divided_copy(wok_qgraph *g, const group *k, const float *s) {
    const char *base = g->values[k->x].name;
    float *inverse = wok_qpool_alloc(g->pool, (size_t)k->width, sizeof *inverse);
    for (int64_t j = 0; inverse && j < k->width; j++) inverse[j] = 1 / s[j];
    wok_value factor = wok_qgraph_constant(g, wok_qgraph_unique(g, wok_qpool_format(g->pool, "%s_smooth", base)),
                                           WOK_F32, 1, &k->width, inverse);
    wok_value y = wok_qgraph_value(g, wok_qgraph_unique(g, wok_qpool_format(g->pool, "%s_smoothed", base)));
    const char *name = wok_qpool_format(g->pool, "%s/Smooth", base);
    if (factor < 0 || y < 0 || wok_qgraph_node(g, "Mul", name, (wok_value[]){k->x, factor}, 2, y) != WOK_OK)
        return WOK_ABSENT;
    return y;
}

static wok_status smooth_group(wok_quant *q, wok_qpool *pool, const group *k, const float *peaks) {
    wok_qgraph *g = &q->graph;
    bool transposed;
    float *s = wok_qpool_alloc(pool, (size_t)k->width, sizeof *s);
    if (!s) return WOK_ERR_MEMORY;
    for (int n = 0; n < g->node_count; n++) {
        const wok_qvalue *w = weights_of(g, &g->nodes[n], k->x, &transposed);
        if (w && w->dims[transposed ? 1 : 0] == k->width) widen_rows(w, transposed, k->width, s);
    }
    for (int64_t j = 0; j < k->width; j++) {
        float v = peaks[j] > 0 && s[j] > 0 ? powf(peaks[j], q->o.smooth) / powf(s[j], 1 - q->o.smooth) : 1;
        s[j] = v < 1e-5f ? 1e-5f : v > 1e5f ? 1e5f : v;
    }
    wok_value x = k->alone ? k->x : divided_copy(g, k, s);
    if (x < 0) return WOK_ERR_MEMORY;
    for (int n = 0; n < g->node_count; n++) {
        const wok_qvalue *w = weights_of(g, &g->nodes[n], k->x, &transposed);
        if (!w || w->dims[transposed ? 1 : 0] != k->width) continue;
        WOK_TRYQ(scale_weights(g, &g->nodes[n], transposed, k->width, s));
        g->nodes[n].in[0] = x;
    }
    for (int i = 1; i <= 2 && k->alone; i++) WOK_TRYQ(divide_input(g, &g->nodes[k->norm], i, k->width, s));
    wok_qgraph_index(g);
    return WOK_OK;
}

static wok_status smooth(wok_quant *q, wok_qpool *pool) {
    int nodes = q->graph.node_count, count = 0;
    group *groups = wok_qpool_alloc(pool, (size_t)nodes, sizeof *groups);
    wok_qpeaks *peaks = wok_qpool_alloc(pool, (size_t)nodes, sizeof *peaks);
    if (!groups || !peaks) return WOK_ERR_MEMORY;
    for (int n = 0; n < nodes; n++) {
        if (!find_group(&q->graph, n, &groups[count])) continue;
        wok_qpeaks *p = &peaks[count];
        *p = (wok_qpeaks){.value = groups[count].x, .axis = -1, .count = groups[count].width};
        p->most = wok_qpool_alloc(pool, (size_t)p->count, sizeof *p->most);
        if (!p->most) return WOK_ERR_MEMORY;
        count++;
    }
    if (count == 0) return WOK_OK;
    WOK_TRYQ(wok_quant_peaks(q, "smoothing", peaks, count));
    for (int i = 0; i < count; i++) WOK_TRYQ(smooth_group(q, pool, &groups[i], peaks[i].most));
    q->summary.smoothed = count;
    return WOK_OK;
}

wok_status wok_quant_smooth(wok_quant *q) {
    wok_qpool pool = {.ctx = q->ctx};
    wok_status status = smooth(q, &pool);
    wok_qpool_free(&pool);
    return status;
}

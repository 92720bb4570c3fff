/* equalize.c - cross-layer equalisation: between two convolutions, channel i may be divided by s[i] if the second one's
 * weights for it are multiplied (Nagel et al. 2019):
 *
 *   W2 f(W1 x + b1) = (W2 S) f(S^-1 W1 x + S^-1 b1)      f: nothing, Relu, Clip(0, top)
 *
 * What that is good for depends on what shares a scale. With one scale for a whole weight, s[i] = sqrt(r1[i] / r2[i])
 * makes the ranges of W1's rows and W2's columns equal, as in the paper. With one scale for every channel the rows need no
 * help; the activation between, which has one scale, does: r1 is then the range of the activation's channels, and where
 * the second convolution is depthwise (each channel its own scale) s[i] = r1[i] / max r1 spends the whole precision on
 * every channel.
 *
 * Clip is not homogeneous: the bound of channel i would become top / s[i], and kernels have one bound. So with Clip only
 * channels that stayed below the bound on the samples are changed, and only so far that they stay MARGIN below it: the
 * function is the same on the samples and on all inputs whose activations are at most MARGIN times larger. */
#include "quant.h"

#include <math.h>

enum { ROUNDS = 10, MOST = 1000 }; /* s is in [1/MOST, MOST] */
static const double MARGIN = 1.25;

typedef struct pair {
    int first, second; /* nodes */
    int64_t channels;
    bool depthwise; /* the second */
    double top;     /* of Clip; infinity: no bound */
} pair;

static bool is_conv(const wok_qgraph *g, int n) {
    return n >= 0 && wok_quant_is_convolution(g, &g->nodes[n]);
}

/* The upper bound of an activation that may stand between; 0: it may not. */
static double bound_of(const wok_qgraph *g, const wok_qnode *node) {
    if (wok_qnode_is(node, "Relu")) return (double)INFINITY;
    const wok_qvalue *lo = wok_qgraph_fixed(g, wok_qnode_in(node, 1)), *hi = wok_qgraph_fixed(g, wok_qnode_in(node, 2));
    if (!wok_qnode_is(node, "Clip") || !lo || !hi || lo->dtype != WOK_F32 || hi->dtype != WOK_F32) return 0;
    if (lo->bytes < sizeof(float) || hi->bytes < sizeof(float)) return 0;
    return wok_qfloat(lo->data, 0) == 0 && wok_qfloat(hi->data, 0) > 0 ? (double)wok_qfloat(hi->data, 0) : 0;
}

/* The pair that begins with convolution `n`. */
static bool find_pair(const wok_qgraph *g, int n, pair *p) {
    *p = (pair){.first = n, .top = (double)INFINITY};
    int next = is_conv(g, n) ? wok_qgraph_only_reader(g, g->nodes[n].out[0]) : -1;
    if (next >= 0 && !is_conv(g, next)) {
        p->top = bound_of(g, &g->nodes[next]);
        next = p->top > 0 ? wok_qgraph_only_reader(g, g->nodes[next].out[0]) : -1;
    }
    if (next < 0 || !is_conv(g, next)) return false;
    const wok_qvalue *w1 = &g->values[g->nodes[n].in[1]], *w2 = &g->values[g->nodes[next].in[1]];
    int64_t group = wok_qnode_int(&g->nodes[next], "group", 1);
    p->second = next;
    p->channels = w1->dims[0];
    p->depthwise = group == p->channels && group > 1 && w2->dims[1] == 1 && w2->dims[0] % group == 0;
    return p->depthwise || (group == 1 && w2->dims[1] == p->channels);
}

/* ---- ranges and scales ---------------------------------------------------------------------------------------------- */

/* Elements of W2 that multiply input channel c: j-th of them. */
static int64_t column_at(const pair *p, const wok_qvalue *w2, int64_t c, int64_t j) {
    int64_t taps = wok_qvalue_count(w2) / (w2->dims[0] * w2->dims[1]), outputs = w2->dims[0] / p->channels;
    if (p->depthwise) return c * outputs * taps + j;
    return (j / taps * p->channels + c) * taps + j % taps;
}

static double column_range(const pair *p, const wok_qvalue *w2, int64_t c) {
    double most = 0;
    for (int64_t j = 0; j < wok_qvalue_count(w2) / p->channels; j++)
        most = fmax(most, fabs((double)wok_qfloat(w2->data, column_at(p, w2, c, j))));
    return most;
}

static double row_range(const wok_qvalue *w1, int64_t c) {
    int64_t inner = wok_qvalue_count(w1) / w1->dims[0];
    double most = 0;
    for (int64_t i = c * inner; i < (c + 1) * inner; i++) most = fmax(most, fabs((double)wok_qfloat(w1->data, i)));
    return most;
}

/* s of every channel; peaks: of the activation between. */
static void choose(const wok_quant *q, const pair *p, const float *peaks, double *s) {
    const wok_qvalue *w1 = &q->graph.values[q->graph.nodes[p->first].in[1]],
                     *w2 = &q->graph.values[q->graph.nodes[p->second].in[1]];
    bool rows = q->o.per_tensor;
    double before = 0, after = 0;
    for (int64_t c = 0; c < p->channels; c++) {
        double r1 = rows ? row_range(w1, c) : (double)peaks[c], r2 = column_range(p, w2, c);
        s[c] = r1 > 0 && r2 > 0 ? (!rows && p->depthwise ? r1 : sqrt(r1 / r2)) : 0;
        before = fmax(before, (double)peaks[c]);
        if (s[c] > 0) after = fmax(after, (double)peaks[c] / s[c]);
    }
    for (int64_t c = 0; c < p->channels; c++) {
        if (!rows && before > 0) s[c] *= after / before; /* the activation's whole range stays what it was */
        bool bounded = isfinite(p->top) != 0, clipped = bounded && (double)peaks[c] >= p->top;
        if (s[c] == 0 || clipped || peaks[c] == 0) s[c] = 1;
        double least = bounded ? (double)peaks[c] * MARGIN / p->top : 0;
        if (s[c] < least) s[c] = least;
        if (bounded && !rows && s[c] > 1) s[c] = 1;
        s[c] = s[c] < 1.0 / MOST ? 1.0 / MOST : s[c] > MOST ? MOST : s[c];
    }
}

/* ---- the change --------------------------------------------------------------------------------------------------------- */

static wok_status scale_columns(wok_qgraph *g, const pair *p, const double *s) {
    wok_qnode *node = &g->nodes[p->second];
    const wok_qvalue w2 = g->values[node->in[1]];
    float *weights = wok_qpool_alloc(g->pool, (size_t)wok_qvalue_count(&w2), sizeof *weights);
    if (!weights) return WOK_ERR_MEMORY;
    for (int64_t c = 0; c < p->channels; c++)
        for (int64_t j = 0; j < wok_qvalue_count(&w2) / p->channels; j++) {
            int64_t at = column_at(p, &w2, c, j);
            weights[at] = (float)((double)wok_qfloat(w2.data, at) * s[c]);
        }
    node->in[1] = wok_qgraph_replace(g, node->in[1], weights);
    return node->in[1] < 0 ? WOK_ERR_MEMORY : WOK_OK;
}

static wok_status equalize_pair(wok_quant *q, wok_qpool *pool, const pair *p, float *peaks) {
    double *s = wok_qpool_alloc(pool, (size_t)p->channels, sizeof *s);
    double *inverse = wok_qpool_alloc(pool, (size_t)p->channels, sizeof *inverse);
    if (!s || !inverse) return WOK_ERR_MEMORY;
    choose(q, p, peaks, s);
    for (int64_t c = 0; c < p->channels; c++) {
        inverse[c] = 1 / s[c];
        peaks[c] = (float)((double)peaks[c] / s[c]);
    }
    WOK_TRYQ(wok_quant_scale_rows(&q->graph, &q->graph.nodes[p->first], inverse, NULL));
    WOK_TRYQ(scale_columns(&q->graph, p, s));
    wok_qgraph_index(&q->graph);
    return WOK_OK;
}

static wok_status equalize(wok_quant *q, wok_qpool *pool) {
    wok_qgraph *g = &q->graph;
    pair *pairs = wok_qpool_alloc(pool, (size_t)g->node_count, sizeof *pairs);
    wok_qpeaks *peaks = wok_qpool_alloc(pool, (size_t)g->node_count, sizeof *peaks);
    if (!pairs || !peaks) return WOK_ERR_MEMORY;
    int count = 0;
    for (int n = 0; n < g->node_count; n++) {
        if (!find_pair(g, n, &pairs[count])) continue;
        wok_qpeaks *k = &peaks[count];
        *k = (wok_qpeaks){.value = g->nodes[pairs[count].second].in[0], .axis = 1, .count = pairs[count].channels};
        k->most = wok_qpool_alloc(pool, (size_t)k->count, sizeof *k->most);
        if (!k->most) return WOK_ERR_MEMORY;
        count++;
    }
    if (count == 0) return WOK_OK;
    WOK_TRYQ(wok_quant_peaks(q, "equalising", peaks, count));
    /* Rows of one pair are columns of the next: ranges of weights settle after a few rounds. */
    for (int round = 0; round < (q->o.per_tensor ? ROUNDS : 1); round++)
        for (int i = 0; i < count; i++) WOK_TRYQ(equalize_pair(q, pool, &pairs[i], peaks[i].most));
    q->summary.equalised = count;
    return WOK_OK;
}

wok_status wok_quant_equalize(wok_quant *q) {
    wok_qpool pool = {.ctx = q->ctx};
    wok_status status = equalize(q, &pool);
    wok_qpool_free(&pool);
    return status;
}

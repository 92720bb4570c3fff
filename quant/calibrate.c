/* calibrate.c - what the activations are on the samples: least and largest, and (for all methods but min-max) a histogram
 * between the two in a second walk over the samples. */
#include "quant.h"

#include <math.h>

typedef struct observed {
    wok_value value;
    double lo, hi;
    double *bins; /* WOK_QUANT_BINS of [lo, hi] */
} observed;

typedef struct observer {
    wok_quant *q;
    wok_session *session;
    observed *items;
    int count;
    bool counting; /* the second walk */
} observer;

static void count_elements(observed *o, const float *v, size_t count) {
    double width = (o->hi - o->lo) / WOK_QUANT_BINS;
    if (!(width > 0)) return;
    for (size_t i = 0; i < count; i++) {
        int bin = (int)(((double)v[i] - o->lo) / width);
        o->bins[bin < 0 ? 0 : bin >= WOK_QUANT_BINS ? WOK_QUANT_BINS - 1 : bin]++;
    }
}

static bool widen(observed *o, const float *v, size_t count) {
    float lo = 0, hi = 0;
    bool fine = true;
    for (size_t i = 0; i < count; i++) {
        if (v[i] < lo) lo = v[i];
        if (v[i] > hi) hi = v[i];
        fine &= isfinite(v[i]) != 0;
    }
    if ((double)lo < o->lo) o->lo = (double)lo;
    if ((double)hi > o->hi) o->hi = (double)hi;
    return fine;
}

static wok_status look(void *user) {
    observer *s = user;
    for (int i = 0; i < s->count; i++) {
        observed *o = &s->items[i];
        const wok_tensor *t = wok_session_output(s->session, i);
        size_t count = t->bytes / sizeof(float);
        const char *name = s->q->graph.values[o->value].name;
        if (t->dtype != WOK_F32)
            return wok_ctx_fail(s->q->ctx, WOK_ERR_UNSUPPORTED, "tensor '%s' is %s, not f32", name,
                                wok_dtype_name(t->dtype));
        if (s->counting)
            count_elements(o, t->data, count);
        else if (!widen(o, t->data, count))
            return wok_ctx_fail(s->q->ctx, WOK_ERR_VALUE, "tensor '%s' holds NaN or infinity on the samples", name);
    }
    return WOK_OK;
}

/* Scale and zero point of [lo, hi], which holds 0. */
static void set_scale(const wok_quant *q, wok_qrange *r, double lo, double hi) {
    bool is_signed = q->o.signed_activations, symmetric = q->o.symmetric_activations;
    double most = -lo > hi ? -lo : hi;
    r->lo = lo;
    r->hi = hi;
    r->scale = (float)(symmetric ? most / 127 : (hi - lo) / 255);
    if (!(r->scale > 1e-30f)) r->scale = 1; /* nothing but zeros */
    double zero = symmetric ? 128 : nearbyint(-lo / (double)r->scale);
    r->zero = (int)(zero < 0 ? 0 : zero > 255 ? 255 : zero) - (is_signed ? 128 : 0);
}

static wok_status observe(wok_quant *q, observer *s, const char *const *names) {
    wok_model *model = NULL;
    wok_status status = wok_quant_write_float(q, &model);
    if (status == WOK_OK) status = wok_quant_session(q, model, names, s->count, false, &s->session);
    if (status == WOK_OK) status = wok_quant_run(q, "calibrating", q->o.samples, &s->session, 1, look, s);
    s->counting = true;
    if (status == WOK_OK && q->o.method != WOK_QUANT_MINMAX)
        status = wok_quant_run(q, "counting", q->o.samples, &s->session, 1, look, s);
    wok_session_free(&s->session);
    wok_model_free(&model);
    return status;
}

static wok_status calibrate(wok_quant *q, wok_qpool *pool) {
    observer s = {.q = q};
    int values = q->graph.value_count;
    const char **names = wok_qpool_alloc(pool, (size_t)values, sizeof *names);
    s.items = wok_qpool_alloc(pool, (size_t)values, sizeof *s.items);
    if (!names || !s.items) return WOK_ERR_MEMORY;
    for (int v = 0; v < values; v++) {
        if (!q->ranges[v].wanted || wok_quant_root(q->ranges, v) != v) continue;
        observed *o = &s.items[s.count];
        o->value = v;
        o->bins = q->o.method == WOK_QUANT_MINMAX ? NULL : wok_qpool_alloc(pool, WOK_QUANT_BINS, sizeof *o->bins);
        if (!o->bins && q->o.method != WOK_QUANT_MINMAX) return WOK_ERR_MEMORY;
        names[s.count++] = q->graph.values[v].name;
    }
    if (s.count == 0) return WOK_OK;
    WOK_TRYQ(observe(q, &s, names));
    for (int i = 0; i < s.count; i++) {
        observed *o = &s.items[i];
        if (o->bins) wok_quant_clip(&q->o, o->bins, &o->lo, &o->hi);
        set_scale(q, &q->ranges[o->value], o->lo, o->hi);
    }
    /* With fewer layers in 8 bits a chain of moves may begin further down: its scale stays. */
    for (int v = 0; v < values; v++) {
        const wok_qrange *root = &q->ranges[wok_quant_root(q->ranges, v)];
        q->ranges[v].scale = root->scale;
        q->ranges[v].zero = root->zero;
    }
    return WOK_OK;
}

wok_status wok_quant_calibrate(wok_quant *q) {
    wok_qpool pool = {.ctx = q->ctx};
    size_t nodes = (size_t)q->graph.node_count;
    q->ranges = wok_qpool_alloc(&q->pool, (size_t)q->graph.value_count, sizeof *q->ranges);
    int *layer_of = wok_qpool_alloc(&pool, nodes, sizeof *layer_of);
    unsigned char *how = wok_qpool_alloc(&pool, nodes, 1);
    wok_status status = q->ranges && layer_of && how ? WOK_OK : WOK_ERR_MEMORY;
    for (int i = 0; i < q->layer_count && status == WOK_OK; i++) layer_of[q->layers[i].node] = i + 1;
    if (status == WOK_OK) wok_quant_plan(q, layer_of, how, q->ranges);
    if (status == WOK_OK) status = calibrate(q, &pool);
    wok_qpool_free(&pool);
    return status;
}

/* bias.c - bias correction: rounding weights and clipping activations moves the mean of every output channel; the mean
 * error seen on the samples goes into the bias (Nagel et al. 2019, section 4.2, the empirical form).
 *
 * Every layer is compared with its own copy in 8 bits on the same float input (the probe), so that one walk over the
 * samples does for all of them and no layer corrects the error of another. */
#include "quant.h"

typedef struct correction {
    wok_qlayer *layer;
    double *sums; /* of float - quantised, by channel */
    double elements;
} correction;

typedef struct corrector {
    const wok_session *session;
    correction *items;
    int count; /* outputs i and i + count belong together */
} corrector;

static bool has_bias(const wok_qlayer *l) {
    return !l->fixed && (l->kind == WOK_QCONV || (l->kind == WOK_QGEMM && l->bias_codes));
}

static wok_status add_errors(void *user) {
    corrector *c = user;
    for (int i = 0; i < c->count; i++) {
        const wok_tensor *want = wok_session_output(c->session, i), *got = wok_session_output(c->session, i + c->count);
        correction *k = &c->items[i];
        int64_t channels = k->layer->weights->channels, inner = 1, all = (int64_t)(want->bytes / sizeof(float));
        for (int d = 2; d < want->rank; d++) inner *= want->dims[d];
        const float *a = want->data, *b = got->data;
        for (int64_t e = 0; e < all; e++) k->sums[e / inner % channels] += (double)a[e] - (double)b[e];
        k->elements += (double)(all / channels);
    }
    return WOK_OK;
}

static wok_status correct(wok_quant *q, wok_qpool *pool, corrector *c, const char **names) {
    for (int i = 0; i < q->layer_count; i++) {
        wok_qlayer *l = &q->layers[i];
        if (!has_bias(l)) continue;
        c->items[c->count] = (correction){.layer = l};
        c->items[c->count].sums = wok_qpool_alloc(pool, (size_t)l->weights->channels, sizeof(double));
        if (!c->items[c->count].sums) return WOK_ERR_MEMORY;
        names[c->count++] = q->graph.values[l->y].name;
    }
    for (int i = 0; i < c->count; i++)
        if (!(names[c->count + i] = wok_quant_probe_name(pool, q, c->items[i].layer))) return WOK_ERR_MEMORY;
    if (c->count == 0) return WOK_OK;
    wok_model *model = NULL;
    wok_session *session = NULL;
    wok_status status = wok_quant_write_probe(q, &model);
    if (status == WOK_OK) status = wok_quant_session(q, model, names, 2 * c->count, false, &session);
    c->session = session;
    if (status == WOK_OK) status = wok_quant_run(q, "correcting biases", q->o.samples, &session, 1, add_errors, c);
    wok_session_free(&session);
    wok_model_free(&model);
    return status;
}

static wok_status apply(wok_quant *q, const correction *k) {
    wok_qlayer *l = k->layer;
    int64_t channels = l->weights->channels;
    if (k->elements == 0) return WOK_OK;
    if (!l->correction) l->correction = wok_qpool_alloc(&q->pool, (size_t)channels, sizeof *l->correction);
    if (!l->correction) return WOK_ERR_MEMORY;
    for (int64_t i = 0; i < channels; i++) l->correction[i] += (float)(k->sums[i] / k->elements);
    return wok_quant_code_bias(q, l);
}

wok_status wok_quant_correct(wok_quant *q) {
    wok_qpool pool = {.ctx = q->ctx};
    corrector c = {.items = wok_qpool_alloc(&pool, (size_t)q->layer_count, sizeof *c.items)};
    const char **names = wok_qpool_alloc(&pool, (size_t)q->layer_count * 2, sizeof *names);
    wok_status status = c.items && names ? correct(q, &pool, &c, names) : WOK_ERR_MEMORY;
    for (int i = 0; i < c.count && status == WOK_OK; i++) status = apply(q, &c.items[i]);
    if (status == WOK_OK) q->summary.corrected = c.count;
    wok_qpool_free(&pool);
    return status;
}

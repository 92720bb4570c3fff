/* report.c - what was done and what it costs: measured on the samples, kept beyond the call. */
#include "quant.h"

#include <math.h>

struct wok_quant_report {
    wok_qpool pool; /* holds everything but this struct */
    wok_quant_summary summary;
    wok_quant_layer *layers;
};

/* ---- signal to noise ---------------------------------------------------------------------------------------------------- */

typedef struct comparison {
    const wok_session *want, *got;
    wok_qnoise *noise; /* of output i */
    int count, offset; /* output i of `want` against i + offset of `got` */
} comparison;

static wok_status compare(void *user) {
    comparison *c = user;
    for (int i = 0; i < c->count; i++)
        wok_qnoise_add(&c->noise[i], wok_session_output(c->want, i), wok_session_output(c->got, i + c->offset));
    return WOK_OK;
}

wok_status wok_quant_measure_alone(wok_quant *q) {
    wok_qpool pool = {.ctx = q->ctx};
    wok_model *model = NULL;
    wok_session *session = NULL;
    const char **names = wok_qpool_alloc(&pool, (size_t)q->layer_count * 2, sizeof *names);
    comparison c = {.noise = wok_qpool_alloc(&pool, (size_t)q->layer_count, sizeof(wok_qnoise))};
    for (int i = 0; names && i < q->layer_count; i++)
        if (!q->layers[i].fixed) names[c.count++] = q->graph.values[q->layers[i].y].name;
    for (int i = 0, k = c.count; names && i < q->layer_count; i++)
        if (!q->layers[i].fixed && !(names[k++] = wok_quant_probe_name(&pool, q, &q->layers[i]))) names = NULL;
    wok_status status = names && c.noise ? wok_quant_write_probe(q, &model) : WOK_ERR_MEMORY;
    if (status == WOK_OK) status = wok_quant_session(q, model, names, 2 * c.count, false, &session);
    c.want = c.got = session;
    c.offset = c.count;
    if (status == WOK_OK) status = wok_quant_run(q, "measuring layers", q->o.samples, &session, 1, compare, &c);
    for (int i = 0, k = 0; status == WOK_OK && i < q->layer_count; i++)
        if (!q->layers[i].fixed) q->layers[i].snr = wok_qnoise_db(&c.noise[k++]);
    wok_session_free(&session);
    wok_model_free(&model);
    wok_qpool_free(&pool);
    return status;
}

/* Names of all layers' outputs and of the model's, each once. */
static int name_outputs(const wok_quant *q, const char **names) {
    int count = 0, outputs;
    const wok_value *ids = wok_graph_outputs(q->model, &outputs);
    for (int i = 0; i < outputs; i++) names[count++] = q->graph.values[ids[i]].name;
    for (int i = 0; i < q->layer_count; i++)
        if (!q->graph.values[q->layers[i].y].is_output) names[count++] = q->graph.values[q->layers[i].y].name;
    return count;
}

wok_status wok_quant_measure_total(wok_quant *q, wok_model *quantised) {
    wok_qpool pool = {.ctx = q->ctx};
    wok_model *model = NULL;
    wok_session *sessions[2] = {NULL, NULL};
    int outputs = wok_model_output_count(q->model);
    size_t most = (size_t)(q->layer_count + outputs);
    const char **names = wok_qpool_alloc(&pool, most, sizeof *names);
    comparison c = {.noise = wok_qpool_alloc(&pool, most, sizeof(wok_qnoise))};
    wok_status status = names && c.noise ? wok_quant_write_float(q, &model) : WOK_ERR_MEMORY;
    if (status == WOK_OK) c.count = name_outputs(q, names);
    if (status == WOK_OK) status = wok_quant_session(q, model, names, c.count, false, &sessions[0]);
    if (status == WOK_OK) status = wok_quant_session(q, quantised, names, c.count, false, &sessions[1]);
    c.want = sessions[0];
    c.got = sessions[1];
    if (status == WOK_OK) status = wok_quant_run(q, "comparing", q->o.samples, sessions, 2, compare, &c);
    wok_qnoise all = {0};
    for (int i = 0, k = outputs; status == WOK_OK && i < q->layer_count; i++) {
        int at = k;
        if (q->graph.values[q->layers[i].y].is_output)
            for (at = 0; strcmp(names[at], q->graph.values[q->layers[i].y].name) != 0;) at++;
        else
            k++;
        q->layers[i].snr_total = wok_qnoise_db(&c.noise[at]);
    }
    for (int i = 0; status == WOK_OK && i < outputs; i++) {
        all.signal += c.noise[i].signal;
        all.noise += c.noise[i].noise;
    }
    if (status == WOK_OK) q->summary.snr_db = wok_qnoise_db(&all);
    wok_session_free(&sessions[0]);
    wok_session_free(&sessions[1]);
    wok_model_free(&model);
    wok_qpool_free(&pool);
    return status;
}

/* ---- the report --------------------------------------------------------------------------------------------------------- */

static const char *form_of(const wok_quant *q, const wok_qlayer *l) {
    static const char *const forms[2][2][2] = {
        /* static? signed activations? per tensor? */
        {{"dynamic u8 x s8 per channel", "dynamic u8 x s8 per tensor"},
         {"dynamic u8 x s8 per channel", "dynamic u8 x s8 per tensor"}},
        {{"u8 x s8 per channel", "u8 x s8 per tensor"}, {"s8 x s8 per channel", "s8 x s8 per tensor"}}};
    if (l->reason) return "f32";
    if (l->kind == WOK_QTABLE) return q->o.tables == WOK_QUANT_TABLE_INT4 ? "4 bits in groups of 32" : "s8 per row";
    return forms[wok_quant_is_static(q)][q->o.signed_activations][q->o.per_tensor];
}

static int64_t coded_bytes(const wok_qlayer *l) {
    const wok_qcodes *c = l->weights;
    int64_t bytes = c->scale_count * (int64_t)sizeof(float), elements = 1;
    for (int d = 0; d < c->rank; d++) elements *= c->dims[d];
    return bytes + elements;
}

static bool fill_layer(wok_qpool *pool, const wok_quant *q, const wok_qlayer *l, wok_quant_layer *out) {
    const wok_qnode *node = &q->graph.nodes[l->node];
    *out = (wok_quant_layer){.quantised = !l->reason,
                             .form = form_of(q, l),
                             .snr_db = l->snr,
                             .snr_total_db = l->snr_total,
                             .float_us = l->float_us,
                             .int8_us = l->int8_us};
    out->name = wok_qpool_format(pool, "%s", node->name);
    out->op = wok_qpool_format(pool, "%s", node->op);
    if (l->reason) out->reason = wok_qpool_format(pool, "%s", l->reason);
    const wok_qvalue *w = wok_qgraph_fixed(&q->graph, l->w);
    out->bytes_before = w ? (int64_t)w->bytes : 0;
    out->bytes_after = l->reason ? out->bytes_before : coded_bytes(l);
    return out->name && out->op && (out->reason || !l->reason);
}

wok_status wok_quant_report_new(const wok_quant *q, wok_quant_report **handle) {
    wok_quant_report *r = wok_ctx_alloc(q->ctx, sizeof *r);
    if (!r) return WOK_ERR_MEMORY;
    *r = (wok_quant_report){.pool = {.ctx = q->ctx}, .summary = q->summary};
    r->layers = wok_qpool_alloc(&r->pool, (size_t)q->layer_count, sizeof *r->layers);
    bool fine = r->layers != NULL;
    for (int i = 0; i < q->layer_count && fine; i++) {
        fine = fill_layer(&r->pool, q, &q->layers[i], &r->layers[i]);
        r->summary.quantised += fine && r->layers[i].quantised;
    }
    r->summary.layers = q->layer_count;
    *handle = r;
    if (!fine) wok_quant_report_free(handle);
    return fine ? WOK_OK : WOK_ERR_MEMORY;
}

const wok_quant_summary *wok_quant_report_summary(const wok_quant_report *report) {
    return &report->summary;
}

const wok_quant_layer *wok_quant_report_layer(const wok_quant_report *report, int index) {
    return index >= 0 && index < report->summary.layers ? &report->layers[index] : NULL;
}

void wok_quant_report_free(wok_quant_report **report) {
    if (!report || !*report) return;
    wok_quant_report *r = *report;
    *report = NULL;
    wok_ctx *ctx = r->pool.ctx;
    wok_qpool_free(&r->pool);
    wok_ctx_release(ctx, r, sizeof *r);
}

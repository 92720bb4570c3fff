/* quantize.c - the order of things. */
#include "quant.h"

#include <math.h>

wok_status wok_quant_step(wok_quant *q, const char *step, int64_t done, int64_t total) {
    if (!q->o.progress || q->o.progress(q->o.progress_user, step, done, total)) return WOK_OK;
    return wok_ctx_fail(q->ctx, WOK_ERR_STATE, "stopped by the caller while %s", step);
}

/* ---- options ---------------------------------------------------------------------------------------------------------- */

static const char *problem(const wok_quant_options *o) {
    bool is_static = o->mode == WOK_QUANT_STATIC;
    if (o->mode != WOK_QUANT_DYNAMIC && !is_static) return "the mode is neither dynamic nor static";
    if ((unsigned)o->method > WOK_QUANT_MSE) return "the method is none that is known";
    if ((unsigned)o->tables > WOK_QUANT_TABLE_KEEP) return "the form of tables is none that is known";
    if (o->samples < 0 || (o->samples > 0 && !o->sample))
        return "samples are announced, but there is no callback for them";
    if (is_static && o->samples == 0) return "static quantisation needs samples";
    if (!(o->percentile == 0 || (o->percentile > 50 && o->percentile <= 100)))
        return "the percentile is not in (50, 100]";
    if (!(o->smooth >= 0 && o->smooth <= 1)) return "smooth is not in [0, 1]";
    if (o->smooth > 0 && o->samples == 0) return "smooth needs samples";
    if (o->measure && o->samples == 0) return "measure needs samples";
    if (o->keep_count < 0 || (o->keep_count > 0 && !o->keep)) return "keep has no names";
    if (isnan(o->max_loss)) return "max_loss is NaN";
    if (!is_static && (o->equalize || o->bias_correction))
        return "equalisation and bias correction are for the static form";
    return NULL;
}

static wok_status read_options(wok_quant *q, const wok_quant_options *options) {
    if (options) memcpy(&q->o, options, options->size < sizeof q->o ? options->size : sizeof q->o);
    if (q->o.percentile == 0) q->o.percentile = 99.99;
    const char *wrong = problem(&q->o);
    return wrong ? wok_ctx_fail(q->ctx, WOK_ERR_ARGUMENT, "%s", wrong) : WOK_OK;
}

enum { PER_CHANNEL_OPSET = 13 }; /* of QuantizeLinear and DequantizeLinear */

/* ---- steps ------------------------------------------------------------------------------------------------------------ */

static wok_status prepare(wok_quant *q) {
    WOK_TRYQ(wok_qgraph_read(&q->graph, q->model, &q->pool));
    WOK_TRYQ(wok_quant_check(q));
    WOK_TRYQ(wok_quant_fold_constants(&q->graph));
    if (wok_quant_is_static(q)) {
        WOK_TRYQ(wok_quant_fold_batchnorm(&q->graph, &q->summary.folded));
        WOK_TRYQ(wok_quant_fold_pads(&q->graph));
        WOK_TRYQ(wok_quant_upgrade(q, PER_CHANNEL_OPSET));
    }
    if (q->o.equalize) WOK_TRYQ(wok_quant_equalize(q));
    if (q->o.smooth > 0) WOK_TRYQ(wok_quant_smooth(q));
    WOK_TRYQ(wok_quant_find_layers(q));
    if (wok_quant_is_static(q)) WOK_TRYQ(wok_quant_calibrate(q));
    WOK_TRYQ(wok_quant_code(q));
    for (int i = 0; i < q->layer_count && wok_quant_is_static(q); i++)
        if (!q->layers[i].fixed) WOK_TRYQ(wok_quant_code_bias(q, &q->layers[i]));
    return q->o.bias_correction ? wok_quant_correct(q) : WOK_OK;
}

static int64_t constant_bytes(const wok_model *model) {
    return wok_model_describe(model)->weight_bytes;
}

static wok_status work(wok_quant *q, wok_model **result, wok_quant_report **report) {
    WOK_TRYQ(prepare(q));
    if (q->o.samples > 0) WOK_TRYQ(wok_quant_measure_alone(q));
    if (q->o.measure) WOK_TRYQ(wok_quant_time(q));
    if (q->o.eval) WOK_TRYQ(wok_quant_evaluate(q));
    WOK_TRYQ(wok_quant_write(q, true, result));
    if (report && q->o.samples > 0) WOK_TRYQ(wok_quant_measure_total(q, *result));
    q->summary.bytes_before = constant_bytes(q->model);
    q->summary.bytes_after = constant_bytes(*result);
    return report ? wok_quant_report_new(q, report) : WOK_OK;
}

wok_status wok_quantize(wok_model *model, const wok_quant_options *options, wok_model **quantised,
                        wok_quant_report **report) {
    wok_ctx *ctx = wok_model_ctx(model);
    wok_quant q = {.ctx = ctx, .model = model, .pool = {.ctx = ctx}};
    q.summary.snr_db = q.summary.score = q.summary.float_score = (double)NAN;
    *quantised = NULL;
    if (report) *report = NULL;
    wok_status status = read_options(&q, options);
    if (status == WOK_OK) status = work(&q, quantised, report);
    wok_qpool_free(&q.pool);
    if (status != WOK_OK) wok_model_free(quantised);
    return status;
}

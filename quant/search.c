/* search.c - which layers stay float: those that gain no time, and as many of the most damaging ones as the score asks for.
 *
 * Layers are ordered by their own signal-to-noise ratio; k of them, the worst first, stay float. The loss falls with k, not
 * strictly but well enough: k is doubled until the loss is small enough and then halved into (Wu et al. 2020 keep the same
 * order). The result is always one that was scored. */
#include "quant.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- scores ------------------------------------------------------------------------------------------------------------- */

static wok_status score_model(wok_quant *q, wok_model *model, double *score) {
    wok_session *session = NULL;
    wok_status status = wok_quant_session(q, model, NULL, 0, false, &session);
    if (status == WOK_OK) {
        status = q->o.eval(q->o.eval_user, session, score);
        if (status != WOK_OK)
            wok_ctx_fail(q->ctx, status, "the score could not be had: %s", wok_session_error(session));
    }
    wok_session_free(&session);
    if (status == WOK_OK && isnan(*score)) return wok_ctx_fail(q->ctx, WOK_ERR_VALUE, "the score is NaN");
    return status;
}

static const char too_damaging[] = "it costs more of the score than max_loss allows";

typedef struct damage {
    double snr;
    int layer;
} damage;

static int worst_first(const void *a, const void *b) {
    const damage *x = a, *y = b;
    return x->snr < y->snr ? -1 : x->snr > y->snr ? 1 : x->layer - y->layer;
}

/* The first `kept` of the order stay float, the others do not. */
static wok_status score_kept(wok_quant *q, const damage *order, int count, int kept, double *score) {
    wok_model *model = NULL;
    for (int i = 0; i < count; i++) q->layers[order[i].layer].reason = i < kept ? too_damaging : NULL;
    wok_status status = wok_quant_step(q, "scoring", kept, count);
    if (status == WOK_OK) status = wok_quant_write(q, false, &model);
    if (status == WOK_OK) status = score_model(q, model, score);
    wok_model_free(&model);
    return status;
}

static wok_status search(wok_quant *q, const damage *order, int count) {
    double least = q->summary.float_score - q->o.max_loss;
    int bad = 0, good = 1; /* too few, enough */
    double score, best;
    for (;; good *= 2) {
        if (good >= count) good = count - 1; /* with all of them float nothing would be quantised */
        WOK_TRYQ(score_kept(q, order, count, good, &best));
        if (best >= least) break;
        if (good == count - 1)
            return wok_ctx_fail(
                q->ctx, WOK_ERR_LIMIT,
                "the score falls from %g to %g even with only one layer of %d in 8 bits: max_loss %g cannot "
                "be held",
                q->summary.float_score, best, count, q->o.max_loss);
        bad = good;
    }
    while (good - bad > 1) {
        int middle = bad + (good - bad) / 2;
        WOK_TRYQ(score_kept(q, order, count, middle, &score));
        if (score >= least)
            good = middle, best = score;
        else
            bad = middle;
    }
    for (int i = 0; i < count; i++) q->layers[order[i].layer].reason = i < good ? too_damaging : NULL;
    q->summary.score = best;
    return WOK_OK;
}

static wok_status evaluate(wok_quant *q, damage *order) {
    wok_model *model = NULL;
    int count = 0;
    wok_status status = wok_quant_step(q, "scoring", 0, q->layer_count);
    if (status == WOK_OK) status = wok_quant_write_float(q, &model);
    if (status == WOK_OK) status = score_model(q, model, &q->summary.float_score);
    wok_model_free(&model);
    for (int i = 0; i < q->layer_count; i++) {
        const wok_qlayer *l = &q->layers[i];
        if (!l->reason) order[count++] = (damage){isnan(l->snr) ? l->weight_snr : l->snr, i};
    }
    qsort(order, (size_t)count, sizeof *order, worst_first);
    if (status == WOK_OK) status = score_kept(q, order, count, 0, &q->summary.score);
    bool enough = q->o.max_loss < 0 || q->summary.float_score - q->summary.score <= q->o.max_loss;
    if (status != WOK_OK || enough) return status;
    if (count < 2)
        return wok_ctx_fail(q->ctx, WOK_ERR_LIMIT, "the score falls from %g to %g: max_loss %g cannot be held",
                            q->summary.float_score, q->summary.score, q->o.max_loss);
    return search(q, order, count);
}

wok_status wok_quant_evaluate(wok_quant *q) {
    wok_qpool pool = {.ctx = q->ctx};
    damage *order = wok_qpool_alloc(&pool, (size_t)q->layer_count, sizeof *order);
    wok_status status = order ? evaluate(q, order) : WOK_ERR_MEMORY;
    wok_qpool_free(&pool);
    return status;
}

/* ---- times -------------------------------------------------------------------------------------------------------------- */

enum { ROUNDS = 30, SLOWER_US = 20, SLOWER_PERCENT = 5 };

/* Is it the layer's node, or one that was written for it? */
static bool is_part(const char *node, const char *layer) {
    size_t length = strlen(layer);
    return strncmp(node, layer, length) == 0 && (node[length] == 0 || node[length] == '/');
}

/* Is it what quantises the value? */
static bool quantises(const char *node, const char *value) {
    static const char *const ends[] = {"/QuantizeLinear", "/DequantizeLinear", "_DynamicQuantizeLinear"};
    size_t length = strlen(value);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (strncmp(node, value, length) == 0 && strcmp(node + length, ends[i]) == 0) return true;
    return false;
}

/* How many layers read what this one reads: they share the cost of quantising it. */
static int sharers(const wok_quant *q, wok_value x) {
    int count = 0;
    for (int i = 0; i < q->layer_count; i++) count += !q->layers[i].reason && q->layers[i].x == x;
    return count > 0 ? count : 1;
}

/* One of the two models under the clock. */
typedef struct timed {
    wok_model *model;
    wok_session *session;
    bool quantised;
    double *totals; /* us of every node until now */
    double *layers; /* us of every layer in this round; negative: none of its nodes was found */
} timed;

/* Adds the node's time to the layer that it belongs to. */
static void charge(const wok_quant *q, const timed *t, const wok_node_info *info, double us) {
    for (int i = 0; i < q->layer_count; i++) {
        const wok_qlayer *l = &q->layers[i];
        const char *name = q->graph.nodes[l->node].name, *x = q->graph.values[l->x].name;
        double share = 0;
        for (int k = 0; k < info->fused_count && share == 0; k++) {
            if (is_part(info->fused_from[k], name))
                share = 1;
            else if (t->quantised && !l->reason && quantises(info->fused_from[k], x))
                share = 1.0 / sharers(q, l->x);
        }
        if (share > 0) t->layers[i] = (t->layers[i] < 0 ? 0 : t->layers[i]) + us * share;
    }
}

/* The session tells means over its runs: the last one is what the sum grew by. */
static wok_status read_round(wok_quant *q, timed *t, int round) {
    wok_session_info all;
    WOK_TRYQ(wok_session_describe(t->session, &all));
    for (int i = 0; i < q->layer_count; i++) t->layers[i] = -1;
    for (int i = 0; i < all.nodes; i++) {
        wok_node_info info;
        WOK_TRYQ(wok_session_node(t->session, i, &info));
        double total = info.us * (round + 1);
        if (info.us >= 0) charge(q, t, &info, total - t->totals[i]);
        t->totals[i] = total;
    }
    for (int i = 0; i < q->layer_count; i++) {
        double *best = t->quantised ? &q->layers[i].int8_us : &q->layers[i].float_us;
        if (t->layers[i] >= 0 && (*best < 0 || t->layers[i] < *best)) *best = t->layers[i];
    }
    return WOK_OK;
}

static wok_status open_timed(wok_quant *q, wok_qpool *pool, timed *t) {
    wok_session_info all;
    WOK_TRYQ(t->quantised ? wok_quant_write(q, false, &t->model) : wok_quant_write_float(q, &t->model));
    WOK_TRYQ(wok_quant_session(q, t->model, NULL, 0, true, &t->session));
    WOK_TRYQ(wok_quant_run(q, "timing", 1, &t->session, 1, NULL, NULL));
    WOK_TRYQ(wok_session_describe(t->session, &all));
    t->totals = wok_qpool_alloc(pool, (size_t)all.nodes, sizeof *t->totals);
    t->layers = wok_qpool_alloc(pool, (size_t)q->layer_count, sizeof *t->layers);
    return t->totals && t->layers ? read_round(q, t, 0) : WOK_ERR_MEMORY;
}

/* Best of ROUNDS, the two models in turn: other programs disturb both alike. */
static wok_status time_both(wok_quant *q) {
    wok_qpool pool = {.ctx = q->ctx};
    timed both[2] = {{.quantised = false}, {.quantised = true}};
    wok_status status = WOK_OK;
    for (int i = 0; i < 2 && status == WOK_OK; i++) status = open_timed(q, &pool, &both[i]);
    for (int round = 1; round < ROUNDS && status == WOK_OK; round++)
        for (int i = 0; i < 2 && status == WOK_OK; i++) {
            status = wok_quant_run(q, "timing", 1, &both[i].session, 1, NULL, NULL);
            if (status == WOK_OK) status = read_round(q, &both[i], round);
        }
    for (int i = 0; i < 2; i++) {
        wok_session_free(&both[i].session);
        wok_model_free(&both[i].model);
    }
    wok_qpool_free(&pool);
    return status;
}

wok_status wok_quant_time(wok_quant *q) {
    wok_status status = time_both(q);
    int left = 0;
    for (int i = 0; i < q->layer_count && status == WOK_OK; i++) {
        wok_qlayer *l = &q->layers[i];
        bool known = l->float_us >= 0 && l->int8_us >= 0, table = l->kind == WOK_QTABLE; /* tables are for their size */
        if (!l->reason && known && !table && l->int8_us > l->float_us + SLOWER_US &&
            l->int8_us > l->float_us * (1 + SLOWER_PERCENT / 100.0)) {
            l->reason = wok_qpool_format(&q->pool, "8 bits take %.0f us, float %.0f", l->int8_us, l->float_us);
            if (!l->reason) return WOK_ERR_MEMORY;
        }
        left += !l->reason;
    }
    if (status == WOK_OK && left == 0) return wok_ctx_fail(q->ctx, WOK_ERR_LIMIT, "no layer gains time in 8 bits here");
    return status;
}

/* samples.c - runs models on the caller's samples: nothing of them is trusted. */
#include "quant.h"

#include <math.h>
#include <stdio.h>

/* ---- one sample ------------------------------------------------------------------------------------------------------- */

static wok_status refuse(const wok_quant *q, wok_status status, int64_t index, const wok_value_info *info,
                         const char *problem) {
    return wok_ctx_fail(q->ctx, status, "sample %lld, input '%s': %s", (long long)index, info->name, problem);
}

static bool finite(const wok_tensor *t) {
    if (t->dtype != WOK_F32) return true;
    const float *v = t->data;
    for (size_t i = 0; i < t->bytes / sizeof *v; i++)
        if (!isfinite(v[i])) return false;
    return true;
}

static wok_status check_input(const wok_quant *q, int64_t index, const wok_value_info *info, const wok_tensor *t) {
    char text[128];
    if (t->dtype != info->dtype) {
        snprintf(text, sizeof text, "it is %s, the model wants %s", wok_dtype_name(t->dtype),
                 wok_dtype_name(info->dtype));
        return refuse(q, WOK_ERR_SHAPE, index, info, text);
    }
    if (t->rank < 0 || t->rank > WOK_MAX_RANK || (info->rank >= 0 && t->rank != info->rank)) {
        snprintf(text, sizeof text, "it has rank %d, the model wants %d", t->rank, info->rank);
        return refuse(q, WOK_ERR_SHAPE, index, info, text);
    }
    for (int d = 0; d < info->rank; d++) {
        if (info->dims[d] < 0 || info->dims[d] == t->dims[d]) continue;
        snprintf(text, sizeof text, "axis %d is %lld, the model wants %lld", d, (long long)t->dims[d],
                 (long long)info->dims[d]);
        return refuse(q, WOK_ERR_SHAPE, index, info, text);
    }
    return WOK_OK;
}

/* Of model input i; the session has the same inputs. */
static wok_status set_input(wok_quant *q, wok_session *session, int64_t index, int i, const wok_tensor *t) {
    const wok_value_info *info = wok_model_input(q->model, i);
    if (!t->data) {
        if (!info->optional)
            return refuse(q, WOK_ERR_ARGUMENT, index, info, "it has no data, and the model no default");
        return wok_session_set_input(session, i, info->dtype, NULL, 0, NULL, 0);
    }
    WOK_TRYQ(check_input(q, index, info, t));
    wok_status status =
        wok_session_set_input(session, i, t->dtype, t->rank ? t->dims : NULL, t->rank, t->data, t->bytes);
    if (status != WOK_OK) return refuse(q, status, index, info, wok_session_error(session));
    return finite(t) ? WOK_OK : refuse(q, WOK_ERR_VALUE, index, info, "it holds NaN or infinity");
}

/* Asks for sample `index` and sets it in all sessions. */
static wok_status feed(wok_quant *q, wok_session *const *sessions, int count, int64_t index) {
    int inputs = wok_model_input_count(q->model);
    size_t bytes = (size_t)inputs * sizeof(wok_tensor);
    wok_tensor *tensors = wok_ctx_alloc(q->ctx, bytes);
    if (!tensors) return WOK_ERR_MEMORY;
    memset(tensors, 0, bytes);
    for (int i = 0; i < inputs; i++) tensors[i].size = sizeof *tensors;
    wok_status status = q->o.sample(q->o.sample_user, index, tensors);
    if (status != WOK_OK) wok_ctx_fail(q->ctx, status, "sample %lld could not be had", (long long)index);
    for (int i = 0; i < inputs && status == WOK_OK; i++)
        for (int s = 0; s < count && status == WOK_OK; s++) status = set_input(q, sessions[s], index, i, &tensors[i]);
    wok_ctx_release(q->ctx, tensors, bytes);
    return status;
}

/* ---- all of them ------------------------------------------------------------------------------------------------------ */

wok_status wok_quant_session(wok_quant *q, wok_model *model, const char *const *outputs, int count, bool profile,
                             wok_session **session) {
    wok_session_options options = {
        .size = sizeof options, .outputs = count ? outputs : NULL, .output_count = count, .profile = profile};
    wok_status status = wok_session_create(model, &options, session);
    return status == WOK_OK ? WOK_OK : wok_ctx_fail(q->ctx, status, "%s", wok_ctx_error(q->ctx));
}

wok_status wok_quant_run(wok_quant *q, const char *step, int64_t samples, wok_session *const *sessions, int count,
                         wok_status (*look)(void *user), void *user) {
    wok_status status = WOK_OK;
    for (int64_t i = 0; i < samples && status == WOK_OK; i++) {
        status = wok_quant_step(q, step, i, samples);
        if (status == WOK_OK) status = feed(q, sessions, count, i);
        for (int s = 0; s < count && status == WOK_OK; s++) {
            status = wok_session_run(sessions[s]);
            if (status != WOK_OK)
                wok_ctx_fail(q->ctx, status, "sample %lld: %s", (long long)i, wok_session_error(sessions[s]));
        }
        if (status == WOK_OK && look) status = look(user);
    }
    return status;
}

/* ---- largest magnitudes, channel by channel ----------------------------------------------------------------------------- */

typedef struct peak_seeker {
    wok_quant *q;
    wok_session *session;
    wok_qpeaks *peaks;
    int count;
} peak_seeker;

static wok_status find_peaks(void *user) {
    peak_seeker *s = user;
    for (int i = 0; i < s->count; i++) {
        wok_qpeaks *p = &s->peaks[i];
        const wok_tensor *t = wok_session_output(s->session, i);
        int axis = p->axis < 0 ? t->rank + p->axis : p->axis;
        const char *name = s->q->graph.values[p->value].name;
        if (t->dtype != WOK_F32 || axis < 0 || axis >= t->rank || t->dims[axis] != p->count)
            return wok_ctx_fail(s->q->ctx, WOK_ERR_SHAPE, "tensor '%s' does not have the %lld channels of the weights",
                                name, (long long)p->count);
        const float *v = t->data;
        int64_t inner = 1, elements = (int64_t)(t->bytes / sizeof *v);
        for (int d = axis + 1; d < t->rank; d++) inner *= t->dims[d];
        for (int64_t e = 0; e < elements; e++) {
            float m = fabsf(v[e]);
            int64_t c = e / inner % p->count;
            if (!isfinite(m))
                return wok_ctx_fail(s->q->ctx, WOK_ERR_VALUE, "tensor '%s' holds NaN or infinity on the samples", name);
            if (m > p->most[c]) p->most[c] = m;
        }
    }
    return WOK_OK;
}

wok_status wok_quant_peaks(wok_quant *q, const char *step, wok_qpeaks *peaks, int count) {
    wok_qpool pool = {.ctx = q->ctx};
    wok_model *model = NULL;
    peak_seeker s = {.q = q, .peaks = peaks, .count = count};
    const char **names = wok_qpool_alloc(&pool, (size_t)count, sizeof *names);
    for (int i = 0; names && i < count; i++) names[i] = q->graph.values[peaks[i].value].name;
    wok_status status = names ? wok_quant_write_float(q, &model) : WOK_ERR_MEMORY;
    if (status == WOK_OK) status = wok_quant_session(q, model, names, count, false, &s.session);
    if (status == WOK_OK) status = wok_quant_run(q, step, q->o.samples, &s.session, 1, find_peaks, &s);
    wok_session_free(&s.session);
    wok_model_free(&model);
    wok_qpool_free(&pool);
    return status;
}

/* ---- signal and noise --------------------------------------------------------------------------------------------------- */

void wok_qnoise_add(wok_qnoise *n, const wok_tensor *want, const wok_tensor *got) {
    if (want->dtype != WOK_F32 || got->dtype != WOK_F32 || want->bytes != got->bytes) return;
    const float *a = want->data, *b = got->data;
    for (size_t i = 0; i < want->bytes / sizeof *a; i++) {
        double e = (double)a[i] - (double)b[i];
        n->signal += (double)a[i] * (double)a[i];
        n->noise += e * e;
    }
}

double wok_qnoise_db(const wok_qnoise *n) {
    if (n->signal == 0 && n->noise == 0) return (double)NAN;
    return n->noise == 0 ? (double)INFINITY : 10 * log10(n->signal / n->noise);
}

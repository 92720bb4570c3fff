/* weights.c - floats into signed bytes, symmetric: code = round(w / scale), half to even, scale = clip / top.
 *
 * The clip is the largest magnitude, or (mse) that fraction of it whose codes have the least square error: a few outliers
 * cost every other weight of the channel its precision. */
#include "quant.h"

#include <math.h>

enum { CLIP_STEP = 2, SMALLEST_CLIP = 30 }; /* percent of the largest magnitude */

static float code(float w, float scale, int top) {
    float r = nearbyintf(w / scale);
    return r > (float)top ? (float)top : r < -(float)top ? -(float)top : r;
}

static double square_error(const float *w, int64_t count, float scale, int top) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++) {
        double e = (double)(code(w[i], scale, top) * scale - w[i]);
        sum += e * e;
    }
    return sum;
}

float wok_quant_weight_scale(const float *w, int64_t count, int top, bool mse) {
    float most = 0;
    for (int64_t i = 0; i < count; i++)
        if (fabsf(w[i]) > most) most = fabsf(w[i]);
    float best = most / (float)top;
    if (!(best > 1e-35f)) return 1; /* all codes are 0: any scale is right */
    if (!mse) return best;
    double least = square_error(w, count, best, top);
    for (int percent = 100 - CLIP_STEP; percent >= SMALLEST_CLIP; percent -= CLIP_STEP) {
        float scale = most * ((float)percent / 100) / (float)top;
        double error = square_error(w, count, scale, top);
        if (error >= least) continue;
        least = error;
        best = scale;
    }
    return best;
}

/* Element j of channel k in the codes, and in the source. */
static int64_t code_at(const wok_qcodes *c, int64_t k, int64_t j) {
    return (j / c->inner * c->channels + k) * c->inner + j % c->inner;
}
static int64_t source_at(const wok_qcodes *c, int64_t k, int64_t j) {
    return c->transposed ? k * c->outer + j : code_at(c, k, j);
}

wok_status wok_quant_weights(wok_ctx *ctx, const void *w, wok_qcodes *c, int top, bool mse) {
    int64_t count = c->outer * c->inner, all = count * c->channels;
    bool one = c->scale_count == 1;
    size_t bytes = (size_t)(one ? all : count) * sizeof(float);
    float *channel = wok_ctx_alloc(ctx, bytes);
    if (!channel) return WOK_ERR_MEMORY;
    for (int64_t i = 0; one && i < all; i++) channel[i] = wok_qfloat(w, i);
    if (one) c->scales[0] = wok_quant_weight_scale(channel, all, top, mse);
    for (int64_t k = 0; k < c->channels; k++) {
        for (int64_t j = 0; j < count; j++) channel[j] = wok_qfloat(w, source_at(c, k, j));
        if (!one) c->scales[k] = wok_quant_weight_scale(channel, count, top, mse);
        float scale = c->scales[one ? 0 : k];
        for (int64_t j = 0; j < count; j++) {
            int8_t q = (int8_t)code(channel[j], scale, top);
            double e = (double)((float)q * scale - channel[j]);
            c->codes[code_at(c, k, j)] = q;
            c->signal += (double)channel[j] * (double)channel[j];
            c->noise += e * e;
        }
    }
    wok_ctx_release(ctx, channel, bytes);
    return WOK_OK;
}

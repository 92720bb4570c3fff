/* batchnorm.c - normalisation by channel: BatchNormalization, InstanceNormalization, GroupNormalization, LRN. */
#include "ops.h"

#include <math.h>
#include <string.h>

/* ---- BatchNormalization: x, scale, bias, mean, variance -> y, running mean?, running variance? ------------------- */

wok_status wok_infer_batch_norm(wok_infer *infer) {
    WOK_TRY(wok_infer_need(infer, 5));
    const wok_type *x = infer->in[0];
    infer->out[0].dtype = x->dtype;
    if (x->rank < 0) return WOK_OK;
    int64_t c = x->rank > 1 ? x->dims[1] : 1;
    for (int i = 1; i < 5; i++) {
        const wok_type *t = infer->in[i];
        if (t->rank >= 0 && wok_dim_known(c) && wok_count(t->dims, t->rank) >= 0 && wok_count(t->dims, t->rank) != c)
            return wok_infer_fail(infer, WOK_ERR_SHAPE, "input %d is %s for %lld channels", i,
                                  wok_type_text(infer->graph, t), (long long)c);
    }
    wok_infer_out(infer, 0, x->dtype, x->rank, x->dims);
    if (wok_ir_int(infer->node, "training_mode", 0))
        for (int i = 1; i < 3; i++) wok_infer_out(infer, i, infer->in[i + 2]->dtype, 1, &c);
    else if (infer->out_count > 1 && infer->node->out[1] != WOK_ABSENT)
        return wok_infer_fail(infer, WOK_ERR_UNSUPPORTED, "statistics as outputs without training_mode");
    return WOK_OK;
}

/* Mean and variance of channel c over the batch. */
static void batch_statistics(const wok_tensor *x, int64_t channels, int64_t plane, int64_t c, double *mean,
                             double *variance) {
    int64_t n = x->dims[0];
    double sum = 0, square = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t b = 0; b < n; b++)
            for (int64_t i = 0; i < plane; i++) {
                double v = wok_get_f64(x->dtype, x->data, (b * channels + c) * plane + i);
                if (pass == 0)
                    sum += v;
                else
                    square += (v - *mean) * (v - *mean);
            }
        *mean = sum / (double)(n * plane);
    }
    *variance = square / (double)(n * plane);
}

static double vector_at(const wok_tensor *t, int64_t i) {
    return wok_get_f64(t->dtype, t->data, i);
}

static void update_statistics(const wok_call *call, int64_t c, double mean, double variance) {
    double momentum = (double)wok_ir_float(call->node, "momentum", 0.9f), now[2] = {mean, variance};
    for (int i = 0; i < 2; i++) {
        const wok_tensor *out = call->out_count > i + 1 ? call->out[i + 1] : NULL;
        double running = vector_at(call->in[i + 3], c) * momentum + now[i] * (1 - momentum);
        if (out) wok_store_f64(out->dtype, out->data, c, 1, &running);
    }
}

static wok_status batch_norm_run(wok_call *call) {
    const wok_tensor *x = call->in[0], *y = call->out[0];
    bool training = wok_ir_int(call->node, "training_mode", 0);
    double epsilon = (double)wok_ir_float(call->node, "epsilon", 1e-5f);
    int64_t channels = x->rank > 1 ? x->dims[1] : 1, plane = x->rank > 2 ? wok_dims_product(x->dims, 2, x->rank) : 1;
    int64_t batch = x->rank > 0 ? x->dims[0] : 1;
    for (int64_t c = 0; c < channels; c++) {
        double mean = vector_at(call->in[3], c), variance = vector_at(call->in[4], c);
        if (training) {
            batch_statistics(x, channels, plane, c, &mean, &variance);
            update_statistics(call, c, mean, variance);
        }
        double scale = vector_at(call->in[1], c) / sqrt(variance + epsilon),
               shift = vector_at(call->in[2], c) - mean * scale;
        for (int64_t b = 0; b < batch; b++)
            for (int64_t i = 0; i < plane; i++) {
                int64_t at = (b * channels + c) * plane + i;
                double v = wok_get_f64(x->dtype, x->data, at) * scale + shift;
                wok_store_f64(y->dtype, y->data, at, 1, &v);
            }
    }
    return WOK_OK;
}

const wok_op_impl *const wok_impls_batch_norm[] = {
    &(const wok_op_impl){.name = "ref", .accept = wok_accept_number, .run = batch_norm_run},
    NULL,
};

/* ---- InstanceNormalization, GroupNormalization: x, scale, bias --------------------------------------------------- */

/* One group of one picture: `channels` planes from element `base`. */
static void normalise_group(const wok_call *call, int64_t base, int64_t first, int64_t channels, int64_t plane,
                            int64_t vector_step, double epsilon) {
    const wok_tensor *x = call->in[0], *y = call->out[0];
    int64_t n = channels * plane;
    double mean = 0, square = 0;
    for (int64_t i = 0; i < n; i++) mean += wok_get_f64(x->dtype, x->data, base + i);
    mean /= (double)n;
    for (int64_t i = 0; i < n; i++) {
        double v = wok_get_f64(x->dtype, x->data, base + i) - mean;
        square += v * v;
    }
    double inverse = 1 / sqrt(square / (double)n + epsilon);
    for (int64_t i = 0; i < n; i++) {
        int64_t c = vector_step ? first + i / plane : first / channels;
        double v = (wok_get_f64(x->dtype, x->data, base + i) - mean) * inverse;
        v = v * vector_at(call->in[1], c) + vector_at(call->in[2], c);
        wok_store_f64(y->dtype, y->data, base + i, 1, &v);
    }
}

static wok_status group_norm_run(wok_call *call) {
    const wok_tensor *x = call->in[0];
    if (x->rank < 2 || call->in_count < 3 || !call->in[1] || !call->in[2])
        return wok_call_fail(call, WOK_ERR_SHAPE, "needs a picture, a scale and a bias");
    int64_t channels = x->dims[1], plane = wok_dims_product(x->dims, 2, x->rank);
    int64_t groups =
        call->node->op == WOK_OP_InstanceNormalization ? channels : wok_ir_int(call->node, "num_groups", 0);
    int64_t vectors = wok_tensor_count(call->in[1]);
    /* before version 21 scale and bias had one value a group */
    if (groups < 1 || channels % groups || (vectors != channels && vectors != groups) ||
        wok_tensor_count(call->in[2]) != vectors)
        return wok_call_fail(call, WOK_ERR_SHAPE, "%lld channels, %lld groups and %lld scales do not fit",
                             (long long)channels, (long long)groups, (long long)vectors);
    int64_t size = channels / groups;
    for (int64_t b = 0; b < x->dims[0]; b++)
        for (int64_t g = 0; g < groups; g++)
            normalise_group(call, (b * channels + g * size) * plane, g * size, size, plane, vectors == channels,
                            (double)wok_ir_float(call->node, "epsilon", 1e-5f));
    return WOK_OK;
}

const wok_op_impl *const wok_impls_group_norm[] = {
    &(const wok_op_impl){.name = "ref", .accept = wok_accept_number, .run = group_norm_run},
    NULL,
};

/* ---- LRN: y = x / (bias + alpha / size * sum of squares over neighbouring channels)^beta ------------------------- */

static wok_status lrn_run(wok_call *call) {
    const wok_tensor *x = call->in[0], *y = call->out[0];
    int64_t size = wok_ir_int(call->node, "size", 0);
    double alpha = (double)wok_ir_float(call->node, "alpha", 1e-4f),
           beta = (double)wok_ir_float(call->node, "beta", 0.75f);
    double bias = (double)wok_ir_float(call->node, "bias", 1);
    if (x->rank < 2 || size < 1)
        return wok_call_fail(call, WOK_ERR_SHAPE, "size %lld, rank %d", (long long)size, x->rank);
    int64_t channels = x->dims[1], plane = wok_dims_product(x->dims, 2, x->rank), n = wok_tensor_count(x);
    for (int64_t at = 0; at < n; at++) {
        int64_t c = at / plane % channels;
        int64_t first = c - (size - 1) / 2 > 0 ? c - (size - 1) / 2 : 0;
        int64_t last = c + size / 2 < channels - 1 ? c + size / 2 : channels - 1;
        double sum = 0;
        for (int64_t k = first; k <= last; k++) {
            double v = wok_get_f64(x->dtype, x->data, at + (k - c) * plane);
            sum += v * v;
        }
        double v = wok_get_f64(x->dtype, x->data, at) / pow(bias + alpha / (double)size * sum, beta);
        wok_store_f64(y->dtype, y->data, at, 1, &v);
    }
    return WOK_OK;
}

const wok_op_impl *const wok_impls_lrn[] = {
    &(const wok_op_impl){.name = "ref", .accept = wok_accept_number, .run = lrn_run},
    NULL,
};

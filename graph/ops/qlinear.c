/* qlinear.c - integer products and convolutions by their definition: MatMulInteger, ConvInteger, QLinearMatMul,
 * QLinearConv. A product is exact; scaling it back is (float)accumulator * (scale_a * scale_b / scale_y), rounded half
 * to even, then the zero point is added and the sum saturates. */
#include "ops.h"

#include <math.h>

/* Element i of a vector, the only one of a scalar, 0 where it is left out. */
static double vector_at(const wok_tensor *t, int64_t i) {
    return t ? wok_get_f64(t->dtype, t->data, wok_tensor_count(t) > 1 ? i : 0) : 0;
}

/* A vector of n values, or one, or none; of a type to compute with. */
static bool fits(const wok_tensor *t, int64_t n) {
    int64_t count = t ? wok_tensor_count(t) : 1;
    return count == 1 || (count == n && n > 0);
}

static int64_t requantise(double accumulator, double scale_a, double scale_b, double scale_y, double zero,
                          wok_dtype dtype) {
    float factor = (float)scale_a * (float)scale_b / (float)scale_y;
    return wok_saturate(wok_round_even((double)((float)accumulator * factor)) + zero, dtype);
}

/* ---- MatMulInteger: a, b, a_zero?, b_zero? ----------------------------------------------------------------------- */

wok_status wok_infer_matmul_integer(wok_infer *infer) {
    WOK_TRY(wok_infer_need(infer, 2));
    WOK_TRY(wok_infer_codes(infer, 0));
    WOK_TRY(wok_infer_codes(infer, 1));
    WOK_TRY(wok_product_infer(infer, infer->in[0], infer->in[1], false, false));
    infer->out[0].dtype = WOK_I32;
    return WOK_OK;
}

/* sum (a - a_zero) (b - b_zero), exact below 2^53 */
static double integer_dot(const wok_product *p, const wok_tensor *a, int64_t at_a, double a_zero, const wok_tensor *b,
                          int64_t at_b, double b_zero) {
    double sum = 0;
    for (int64_t k = 0; k < p->k; k++)
        sum += (wok_get_f64(a->dtype, a->data, at_a + k * p->a_k) - a_zero) *
               (wok_get_f64(b->dtype, b->data, at_b + k * p->b_k) - b_zero);
    return sum;
}

static wok_status matmul_integer_run(wok_call *call) {
    const wok_tensor *a = call->in[0], *b = call->in[1], *a_zero = wok_call_input(call, 2),
                     *b_zero = wok_call_input(call, 3);
    wok_product p = wok_product_view(a, b, call->out[0], false, false);
    int32_t *y = call->out[0]->data;
    if (!fits(a_zero, p.m) || !fits(b_zero, p.n))
        return wok_call_fail(call, WOK_ERR_SHAPE, "the zero points do not fit");
    for (int64_t i = 0; i < p.batches; i++) {
        int64_t at_a, at_b;
        wok_product_locate(&p, i, &at_a, &at_b);
        for (int64_t m = 0; m < p.m; m++)
            for (int64_t n = 0; n < p.n; n++)
                *y++ = (int32_t)wok_truncate(integer_dot(&p, a, at_a + m * p.a_m, vector_at(a_zero, m), b,
                                                         at_b + n * p.b_n, vector_at(b_zero, n)));
    }
    return WOK_OK;
}

const wok_op_impl *const wok_impls_matmul_integer[] = {
    &(const wok_op_impl){.name = "ref", .accept = wok_accept_number, .run = matmul_integer_run},
    NULL,
};

/* ---- QLinearMatMul: a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero -------------------------------------- */

wok_status wok_infer_qlinear_matmul(wok_infer *infer) {
    WOK_TRY(wok_infer_need(infer, 8));
    WOK_TRY(wok_infer_codes(infer, 0));
    WOK_TRY(wok_infer_codes(infer, 3));
    WOK_TRY(wok_infer_codes(infer, 7));
    WOK_TRY(wok_infer_scale(infer, 1));
    WOK_TRY(wok_infer_scale(infer, 4));
    WOK_TRY(wok_infer_scale(infer, 6));
    WOK_TRY(wok_product_infer(infer, infer->in[0], infer->in[3], false, false));
    infer->out[0].dtype = infer->in[7]->dtype;
    return WOK_OK;
}

static wok_status qlinear_matmul_run(wok_call *call) {
    const wok_tensor *const *in = call->in, *out = call->out[0];
    wok_product p = wok_product_view(in[0], in[3], out, false, false);
    int64_t y = 0;
    if (!fits(in[1], p.m) || !fits(in[2], p.m) || !fits(in[4], p.n) || !fits(in[5], p.n) || !fits(in[6], 1) ||
        !fits(in[7], 1))
        return wok_call_fail(call, WOK_ERR_SHAPE, "scales and zero points do not fit the operands");
    for (int64_t i = 0; i < p.batches; i++) {
        int64_t a, b;
        wok_product_locate(&p, i, &a, &b);
        for (int64_t m = 0; m < p.m; m++)
            for (int64_t n = 0; n < p.n; n++, y++) {
                double sum = integer_dot(&p, in[0], a + m * p.a_m, vector_at(in[2], m), in[3], b + n * p.b_n,
                                         vector_at(in[5], n));
                int64_t q = requantise(sum, vector_at(in[1], m), vector_at(in[4], n), vector_at(in[6], 0),
                                       vector_at(in[7], 0), out->dtype);
                wok_store_i64(out->dtype, out->data, y, 1, &q);
            }
    }
    return WOK_OK;
}

const wok_op_impl *const wok_impls_qlinear_matmul[] = {
    &(const wok_op_impl){.name = "ref", .accept = wok_accept_number, .run = qlinear_matmul_run},
    NULL,
};

/* ---- ConvInteger: x, w, x_zero?, w_zero? ------------------------------------------------------------------------- */

wok_status wok_infer_conv_integer(wok_infer *infer) {
    WOK_TRY(wok_infer_need(infer, 2));
    WOK_TRY(wok_infer_codes(infer, 0));
    WOK_TRY(wok_infer_codes(infer, 1));
    return wok_conv_infer(infer, infer->in[0], infer->in[1], false, WOK_I32);
}

typedef struct conv_job {
    wok_call *call;
    wok_conv_ref ref;
} conv_job;

static void conv_integer_plane(void *arg, int64_t plane, int worker) {
    const conv_job *job = arg;
    int64_t channels = job->ref.y->dims[1];
    int32_t *y = (int32_t *)job->ref.y->data + plane * job->ref.pixels_out;
    (void)worker;
    for (int64_t at = 0; at < job->ref.pixels_out; at++)
        y[at] = (int32_t)wok_truncate(wok_conv_ref_sum(&job->ref, plane / channels, plane % channels, at));
}

static wok_status conv_integer_run(wok_call *call) {
    conv_job job = {.call = call};
    WOK_TRY(wok_conv_ref_start(call, call->in[0], call->in[1], &job.ref));
    job.ref.w_zero = wok_call_input(call, 3);
    if (!fits(job.ref.w_zero, job.ref.w->dims[0]) || !fits(wok_call_input(call, 2), 1))
        return wok_call_fail(call, WOK_ERR_SHAPE, "the zero points do not fit");
    job.ref.x_zero = vector_at(wok_call_input(call, 2), 0);
    wok_parallel_for(call->parallel, conv_integer_plane, &job, job.ref.y->dims[0] * job.ref.y->dims[1]);
    return WOK_OK;
}

const wok_op_impl *const wok_impls_conv_integer[] = {
    &(const wok_op_impl){.name = "ref", .accept = wok_accept_number, .run = conv_integer_run},
    NULL,
};

/* ---- QLinearConv: x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias (i32)? --------------------------- */

wok_status wok_infer_qlinear_conv(wok_infer *infer) {
    WOK_TRY(wok_infer_need(infer, 8));
    WOK_TRY(wok_infer_codes(infer, 0));
    WOK_TRY(wok_infer_codes(infer, 3));
    WOK_TRY(wok_infer_codes(infer, 7));
    WOK_TRY(wok_infer_scale(infer, 1));
    WOK_TRY(wok_infer_scale(infer, 4));
    WOK_TRY(wok_infer_scale(infer, 6));
    return wok_conv_infer(infer, infer->in[0], infer->in[3], false, infer->in[7]->dtype);
}

static void qlinear_conv_plane(void *arg, int64_t plane, int worker) {
    const conv_job *job = arg;
    const wok_tensor *const *in = job->call->in, *y = job->ref.y, *bias = wok_call_input(job->call, 8);
    int64_t b = plane / y->dims[1], m = plane % y->dims[1];
    (void)worker;
    for (int64_t at = 0; at < job->ref.pixels_out; at++) {
        double sum = wok_conv_ref_sum(&job->ref, b, m, at) + vector_at(bias, m);
        int64_t q = requantise(sum, vector_at(in[1], 0), vector_at(in[4], m), vector_at(in[6], 0), vector_at(in[7], 0),
                               y->dtype);
        wok_store_i64(y->dtype, y->data, plane * job->ref.pixels_out + at, 1, &q);
    }
}

static wok_status qlinear_conv_run(wok_call *call) {
    const wok_tensor *const *in = call->in;
    conv_job job = {.call = call};
    WOK_TRY(wok_conv_ref_start(call, in[0], in[3], &job.ref));
    int64_t m = in[3]->dims[0];
    if (!fits(in[1], 1) || !fits(in[2], 1) || !fits(in[4], m) || !fits(in[5], m) || !fits(in[6], 1) ||
        !fits(in[7], 1) || !fits(wok_call_input(call, 8), m))
        return wok_call_fail(call, WOK_ERR_SHAPE, "scales, zero points or bias do not fit the operands");
    job.ref.x_zero = vector_at(in[2], 0);
    job.ref.w_zero = in[5];
    wok_parallel_for(call->parallel, qlinear_conv_plane, &job, job.ref.y->dims[0] * job.ref.y->dims[1]);
    return WOK_OK;
}

const wok_op_impl *const wok_impls_qlinear_conv[] = {
    &(const wok_op_impl){.name = "ref", .accept = wok_accept_number, .run = qlinear_conv_run},
    NULL,
};

/* qcontrib.c - com.microsoft's quantised operators by their definition: QGemm, QLinearAdd, QLinearMul,
 * QLinearGlobalAveragePool. Each computes on (x - zero) * scale in f32, divides by the result's scale, rounds half to
 * even, adds the zero point and saturates. */
#include "ops.h"

static double vector_at(const wok_tensor *t, int64_t i) {
    return t ? wok_get_f64(t->dtype, t->data, wok_tensor_count(t) > 1 ? i : 0) : 0;
}

static void store_quantised(const wok_tensor *y, int64_t i, float value, float scale, double zero) {
    wok_store_i64(y->dtype, y->data, i, 1,
                  &(int64_t){wok_saturate(wok_round_even((double)(value / scale)) + zero, y->dtype)});
}

/* Input i, where it is there, has one element, or n. */
static wok_status check_count(wok_infer *infer, int i, int64_t n) {
    const wok_type *t = infer->in[i];
    int64_t count = t && t->rank >= 0 ? wok_count(t->dims, t->rank) : -1;
    if (count < 0 || count == 1 || (count == n && n > 0) || (n < 0 && count > 0)) return WOK_OK;
    return wok_infer_fail(infer, WOK_ERR_SHAPE, "input %d has shape %s", i, wok_type_text(infer->graph, t));
}

/* ---- QLinearAdd, QLinearMul: a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero ----------------------------- */

wok_status wok_infer_ms_qlinear_binary(wok_infer *infer) {
    int64_t dims[WOK_MAX_RANK];
    int rank = 0;
    for (int i = 0; i < 7; i++)
        if (i != 2 && i != 5 && !infer->in[i]) return wok_infer_fail(infer, WOK_ERR_SHAPE, "input %d is missing", i);
    for (int i = 1; i < 8; i++)
        if (i != 3) WOK_TRY(check_count(infer, i, 1));
    WOK_TRY(wok_infer_codes(infer, 0));
    if (infer->in[0]->dtype != infer->in[3]->dtype)
        return wok_infer_fail(infer, WOK_ERR_SHAPE, "operands of two types");
    WOK_TRY(wok_infer_broadcast(infer, dims, &rank, infer->in[0]));
    WOK_TRY(wok_infer_broadcast(infer, dims, &rank, infer->in[3]));
    wok_infer_out(infer, 0, infer->in[0]->dtype, rank, dims);
    return WOK_OK;
}

typedef struct scaled {
    const wok_tensor *t;
    double zero;
    float scale;
} scaled;

typedef struct binary_job {
    scaled a, b, y;
    bool multiply;
} binary_job;

static scaled read_scaled(const wok_call *call, const wok_tensor *t, int scale) {
    return (scaled){t, vector_at(wok_call_input(call, scale + 1), 0), (float)vector_at(wok_call_input(call, scale), 0)};
}

static float dequantise(const scaled *s, int64_t i) {
    return (float)(wok_get_f64(s->t->dtype, s->t->data, i) - s->zero) * s->scale;
}

static void binary_piece(void *arg, const wok_walk *walk, const int64_t *offset, int64_t y, int64_t n) {
    const binary_job *job = arg;
    int last = walk->rank - 1;
    for (int64_t i = 0; i < n; i++) {
        float a = dequantise(&job->a, offset[0] + i * walk->step[0][last]);
        float b = dequantise(&job->b, offset[1] + i * walk->step[1][last]);
        store_quantised(job->y.t, y + i, job->multiply ? a * b : a + b, job->y.scale, job->y.zero);
    }
}

static wok_status binary_run(wok_call *call) {
    const wok_tensor *a = call->in[0], *b = call->in[3], *y = call->out[0];
    binary_job job = {read_scaled(call, a, 1), read_scaled(call, b, 4), read_scaled(call, y, 6),
                      call->node->op == WOK_OP_ms_QLinearMul};
    wok_walk walk;
    wok_walk_init(&walk, y->dims, y->rank, (const wok_tensor *const[]){a, b}, 2);
    wok_walk_run(&walk, binary_piece, &job, call->parallel);
    return WOK_OK;
}

const wok_op_impl *const wok_impls_ms_qlinear_binary[] = {
    &(const wok_op_impl){.name = "ref", .accept = wok_accept_number, .run = binary_run},
    NULL,
};

/* ---- QLinearGlobalAveragePool: x, x_scale, x_zero, y_scale, y_zero ----------------------------------------------- */

wok_status wok_infer_ms_qlinear_global_pool(wok_infer *infer) {
    WOK_TRY(wok_infer_need(infer, 5));
    WOK_TRY(wok_infer_codes(infer, 0));
    for (int i = 1; i < 5; i++) WOK_TRY(check_count(infer, i, 1));
    bool last = wok_ir_int(infer->node, "channels_last", 0);
    return wok_infer_channels(infer, last);
}

static wok_status global_pool_run(wok_call *call) {
    const wok_tensor *x = call->in[0], *y = call->out[0];
    bool last = wok_ir_int(call->node, "channels_last", 0);
    int64_t channels = x->dims[last ? x->rank - 1 : 1], batch = x->dims[0];
    int64_t pixels = last ? wok_dims_product(x->dims, 1, x->rank - 1) : wok_dims_product(x->dims, 2, x->rank);
    double zero = vector_at(call->in[2], 0);
    float scale = (float)vector_at(call->in[1], 0), y_scale = (float)vector_at(call->in[3], 0);
    for (int64_t r = 0; r < batch * channels; r++) {
        int64_t first = last ? r / channels * pixels * channels + r % channels : r * pixels;
        double sum = 0;
        for (int64_t i = 0; i < pixels; i++)
            sum += wok_get_f64(x->dtype, x->data, first + i * (last ? channels : 1)) - zero;
        store_quantised(y, r, (float)sum * scale / (float)pixels, y_scale, vector_at(call->in[4], 0));
    }
    return WOK_OK;
}

const wok_op_impl *const wok_impls_ms_qlinear_global_pool[] = {
    &(const wok_op_impl){.name = "ref", .accept = wok_accept_number, .run = global_pool_run},
    NULL,
};

/* ---- QGemm: a, a_scale, a_zero, b, b_scale, b_zero, c (i32)?, y_scale?, y_zero? ---------------------------------- */

enum { B = 3, B_SCALE, B_ZERO, C, Y_SCALE, Y_ZERO };

wok_status wok_infer_ms_qgemm(wok_infer *infer) {
    WOK_TRY(wok_infer_need(infer, 6));
    WOK_TRY(wok_infer_codes(infer, 0));
    WOK_TRY(wok_infer_codes(infer, B));
    if (infer->in[Y_SCALE] && infer->in[Y_ZERO]) WOK_TRY(wok_infer_codes(infer, Y_ZERO));
    WOK_TRY(wok_product_infer(infer, infer->in[0], infer->in[B], wok_ir_int(infer->node, "transA", 0),
                              wok_ir_int(infer->node, "transB", 0)));
    const wok_type *y = &infer->out[0], *c = infer->in[C];
    int64_t n = y->rank == 2 ? y->dims[1] : -1, m = y->rank == 2 ? y->dims[0] : -1;
    for (int i = 1; i <= Y_ZERO; i++)
        if (i != B && i != C) WOK_TRY(check_count(infer, i, i == B_SCALE || i == B_ZERO ? n : 1));
    if (y->rank >= 0 && y->rank != 2) return wok_infer_fail(infer, WOK_ERR_SHAPE, "the operands are not matrices");
    for (int d = 0; c && d < c->rank; d++) {
        int64_t want = d == c->rank - 1 ? n : d == c->rank - 2 ? m : 1;
        if (c->dims[d] != 1 && wok_dim_known(c->dims[d]) && wok_dim_known(want) && c->dims[d] != want)
            return wok_infer_fail(infer, WOK_ERR_SHAPE, "C %s does not fit", wok_type_text(infer->graph, c));
    }
    infer->out[0].dtype = infer->in[Y_SCALE] ? infer->in[Y_ZERO] ? infer->in[Y_ZERO]->dtype : WOK_U8 : WOK_F32;
    return WOK_OK;
}

/* C broadcasts to [M, N]. */
static double bias_at(const wok_tensor *c, int64_t m, int64_t n) {
    if (!c) return 0;
    int64_t columns = c->rank > 0 ? c->dims[c->rank - 1] : 1, rows = c->rank > 1 ? c->dims[c->rank - 2] : 1;
    return wok_get_f64(c->dtype, c->data, (rows > 1 ? m * columns : 0) + (columns > 1 ? n : 0));
}

static wok_status qgemm_run(wok_call *call) {
    const wok_tensor *a = call->in[0], *b = call->in[B], *y = call->out[0], *y_scale = wok_call_input(call, Y_SCALE);
    wok_product p = wok_product_view(a, b, y, wok_ir_int(call->node, "transA", 0), wok_ir_int(call->node, "transB", 0));
    float alpha = wok_ir_float(call->node, "alpha", 1);
    for (int64_t i = 0; i < p.m * p.n; i++) {
        int64_t m = i / p.n, n = i % p.n;
        double a_zero = vector_at(call->in[2], 0), b_zero = vector_at(call->in[B_ZERO], n),
               sum = bias_at(wok_call_input(call, C), m, n);
        for (int64_t k = 0; k < p.k; k++)
            sum += (wok_get_f64(a->dtype, a->data, m * p.a_m + k * p.a_k) - a_zero) *
                   (wok_get_f64(b->dtype, b->data, k * p.b_k + n * p.b_n) - b_zero);
        float scale = alpha * (float)vector_at(call->in[1], 0) * (float)vector_at(call->in[B_SCALE], n);
        if (!y_scale)
            wok_store_f64(y->dtype, y->data, i, 1, &(double){(double)((float)sum * scale)});
        else
            store_quantised(y, i, (float)sum * (scale / (float)vector_at(y_scale, 0)), 1,
                            vector_at(wok_call_input(call, Y_ZERO), 0));
    }
    return WOK_OK;
}

const wok_op_impl *const wok_impls_ms_qgemm[] = {
    &(const wok_op_impl){.name = "ref", .accept = wok_accept_number, .run = qgemm_run},
    NULL,
};

/* ---- taken apart by lower_qoperator: only their shapes are told here ----------------------------------------------- */

/* y_scale, y_zero, then x, scale, zero of every operand */
wok_status wok_infer_ms_qlinear_concat(wok_infer *infer) {
    int count = (infer->in_count - 2) / 3, axis;
    if (count < 1 || infer->in_count != 2 + 3 * count)
        return wok_infer_fail(infer, WOK_ERR_SHAPE, "%d inputs are not 2 + 3 an operand", infer->in_count);
    WOK_TRY(wok_infer_need(infer, infer->in_count));
    wok_type y = *infer->in[2];
    infer->out[0].dtype = y.dtype;
    for (int i = 0; i < count; i++) WOK_TRY(wok_infer_codes(infer, 2 + 3 * i));
    for (int i = 0; i < count; i++)
        if (infer->in[2 + 3 * i]->rank < 0) return WOK_OK;
    WOK_TRY(wok_infer_axis(infer, "axis", 1, y.rank, &axis));
    for (int i = 1; i < count; i++) {
        const wok_type *t = infer->in[2 + 3 * i];
        if (t->rank != y.rank) return wok_infer_fail(infer, WOK_ERR_SHAPE, "operands of different rank");
        y.dims[axis] = wok_dim_add(infer->graph, y.dims[axis], t->dims[axis]);
    }
    wok_infer_out(infer, 0, y.dtype, y.rank, y.dims);
    return WOK_OK;
}

/* DynamicQuantizeMatMul, MatMulIntegerToFloat */
wok_status wok_infer_ms_integer_to_float(wok_infer *infer) {
    WOK_TRY(wok_infer_need(infer, 3));
    WOK_TRY(wok_infer_codes(infer, 1));
    WOK_TRY(wok_product_infer(infer, infer->in[0], infer->in[1], false, false));
    infer->out[0].dtype = WOK_F32;
    return WOK_OK;
}

wok_status wok_infer_ms_qattention(wok_infer *infer) {
    WOK_TRY(wok_infer_need(infer, 5));
    WOK_TRY(wok_infer_codes(infer, 0));
    WOK_TRY(wok_infer_codes(infer, 1));
    WOK_TRY(wok_infer_ms_attention(infer));
    infer->out[0].dtype = WOK_F32;
    return WOK_OK;
}

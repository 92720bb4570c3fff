/* select.c - outputs whose size or order depends on the data: NonZero, TopK. */
#include "ops.h"

#include <math.h>
#include <string.h>

/* ---- NonZero ----------------------------------------------------------------------------------------------------- */

static bool is_zero(wok_dtype dtype, const void *data, int64_t i) {
    return wok_dtype_is_float(dtype) ? wok_get_f64(dtype, data, i) == 0 : wok_get_i64(dtype, data, i) == 0;
}

wok_status wok_infer_non_zero(wok_infer *infer) {
    WOK_TRY(wok_infer_need(infer, 1));
    const wok_type *x = infer->in[0];
    infer->out[0].dtype = WOK_I64;
    if (x->rank < 0) return WOK_OK;
    int64_t n = wok_count(x->dims, x->rank), found = 0;
    if (n > 0 && x->data)
        for (int64_t i = 0; i < n; i++) found += !is_zero(x->dtype, x->data, i);
    else if (n != 0)
        found = wok_infer_unknown(infer);
    /* a scalar counts as one element of rank 1 */
    wok_infer_out(infer, 0, WOK_I64, 2, (int64_t[]){x->rank ? x->rank : 1, found});
    return WOK_OK;
}

static wok_status non_zero_run(wok_call *call) {
    const wok_tensor *x = call->in[0], *out = call->out[0];
    int64_t n = wok_tensor_count(x), columns = out->dims[1], column = 0, *y = out->data;
    for (int64_t i = 0; i < n && column < columns; i++) {
        if (is_zero(x->dtype, x->data, i)) continue;
        int64_t rest = i;
        if (x->rank == 0) y[column] = 0;
        for (int d = x->rank - 1; d >= 0; d--) {
            y[d * columns + column] = rest % x->dims[d];
            rest /= x->dims[d];
        }
        column++;
    }
    return WOK_OK;
}

const wok_op_impl *const wok_impls_non_zero[] = {
    &(const wok_op_impl){.name = "ref", .accept = wok_accept_number, .run = non_zero_run},
    NULL,
};

/* ---- TopK -------------------------------------------------------------------------------------------------------- */

wok_status wok_infer_top_k(wok_infer *infer) {
    WOK_TRY(wok_infer_need(infer, 2));
    const wok_type *x = infer->in[0];
    int64_t ints[WOK_MAX_INTS], dims[WOK_MAX_RANK], k;
    int axis, count;
    infer->out[0].dtype = x->dtype;
    if (infer->out_count > 1) infer->out[1].dtype = WOK_I64;
    if (x->rank < 0) return WOK_OK;
    WOK_TRY(wok_infer_axis(infer, "axis", -1, x->rank, &axis));
    memcpy(dims, x->dims, sizeof dims);
    bool known = wok_infer_ints(infer, 1, ints, &count) && count == 1;
    dims[axis] = known ? ints[0] : wok_infer_unknown(infer);
    if (known && wok_dim_is_number(ints[0], &k) && (k < 0 || (wok_dim_known(x->dims[axis]) && k > x->dims[axis])))
        return wok_infer_fail(infer, WOK_ERR_VALUE, "k is %lld, but axis %d has %s", (long long)k, axis,
                              wok_dim_text(infer->graph, x->dims[axis]));
    wok_infer_out(infer, 0, x->dtype, x->rank, dims);
    wok_infer_out(infer, 1, WOK_I64, x->rank, dims);
    return WOK_OK;
}

typedef struct candidates {
    const wok_tensor *x;
    int64_t base, step; /* element i of the row: base + i * step */
    bool largest;
} candidates;

/* Whether candidate a stands before b: a strict order, equal values by position. NaN counts as the largest. */
static bool before(const candidates *c, int64_t a, int64_t b) {
    int64_t at_a = c->base + a * c->step, at_b = c->base + b * c->step;
    int order = 0;
    if (wok_dtype_is_float(c->x->dtype)) {
        double u = wok_get_f64(c->x->dtype, c->x->data, at_a), v = wok_get_f64(c->x->dtype, c->x->data, at_b);
        order = isnan(u) || isnan(v) ? (isnan(u) != 0) - (isnan(v) != 0) : (u > v) - (u < v);
    } else {
        int64_t u = wok_get_i64(c->x->dtype, c->x->data, at_a), v = wok_get_i64(c->x->dtype, c->x->data, at_b);
        order = c->x->dtype == WOK_U64 ? ((uint64_t)u > (uint64_t)v) - ((uint64_t)u < (uint64_t)v) : (u > v) - (u < v);
    }
    if (!c->largest) order = -order;
    return order ? order > 0 : a < b;
}

/* heap[0] is the worst of `n`. */
static void sift_down(const candidates *c, int64_t *heap, int64_t i, int64_t n) {
    for (int64_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && before(c, heap[child], heap[child + 1])) child++;
        if (!before(c, heap[i], heap[child])) return;
        int64_t t = heap[i];
        heap[i] = heap[child];
        heap[child] = t;
    }
}

/* The k best of n, best first: a heap of the best so far, sorted at the end. */
static void select_best(const candidates *c, int64_t *heap, int64_t k, int64_t n) {
    for (int64_t i = 0; i < k; i++) heap[i] = i;
    for (int64_t i = k / 2 - 1; i >= 0; i--) sift_down(c, heap, i, k);
    for (int64_t i = k; i < n; i++) {
        if (!before(c, i, heap[0])) continue;
        heap[0] = i;
        sift_down(c, heap, 0, k);
    }
    for (int64_t last = k - 1; last > 0; last--) {
        int64_t t = heap[0];
        heap[0] = heap[last];
        heap[last] = t;
        sift_down(c, heap, 0, last);
    }
}

static size_t top_k_workspace(const wok_call *call) {
    const wok_tensor *y = call->out[0] ? call->out[0] : call->out[1];
    int axis = wok_axis(wok_ir_int(call->node, "axis", -1), y->rank);
    return (size_t)y->dims[axis] * sizeof(int64_t);
}

static wok_status top_k_run(wok_call *call) {
    const wok_tensor *x = call->in[0], *values = call->out[0], *indices = call->out_count > 1 ? call->out[1] : NULL;
    const wok_tensor *y = values ? values : indices;
    int axis = wok_axis(wok_ir_int(call->node, "axis", -1), x->rank);
    int64_t n = x->dims[axis], k = y->dims[axis], inner = wok_dims_product(x->dims, axis + 1, x->rank);
    int64_t outer = wok_dims_product(x->dims, 0, axis), *heap = call->workspace;
    size_t size = wok_dtype_size(x->dtype);
    candidates c = {.x = x, .step = inner, .largest = wok_ir_int(call->node, "largest", 1) != 0};
    for (int64_t r = 0; r < outer * inner && k; r++) {
        c.base = r / inner * n * inner + r % inner;
        select_best(&c, heap, k, n);
        for (int64_t i = 0; i < k; i++) {
            int64_t to = (r / inner * k + i) * inner + r % inner;
            if (indices) ((int64_t *)indices->data)[to] = heap[i];
            if (values)
                memcpy((char *)values->data + (size_t)to * size,
                       (const char *)x->data + (size_t)(c.base + heap[i] * inner) * size, size);
        }
    }
    return WOK_OK;
}

const wok_op_impl *const wok_impls_top_k[] = {
    &(const wok_op_impl){.name = "ref", .accept = wok_accept_number, .workspace = top_k_workspace, .run = top_k_run},
    NULL,
};

/* scatter.c - writing by index: ScatterElements, ScatterND, OneHot. Indices outside their axis are errors. */
#include "ops.h"

#include <math.h>
#include <string.h>

enum reduction { REPLACE, ADD, MUL, MIN, MAX };

static bool read_reduction(const wok_ir_node *node, enum reduction *how) {
    static const char *const names[] = {"none", "add", "mul", "min", "max"};
    const char *name = wok_ir_string(node, "reduction", "none");
    for (int i = 0; i < 5; i++)
        if (!strcmp(name, names[i])) {
            *how = (enum reduction)i;
            return true;
        }
    return false;
}

/* y[to] = y[to] (how) u[from] */
static void put(const wok_tensor *y, int64_t to, const wok_tensor *u, int64_t from, enum reduction how) {
    size_t size = wok_dtype_size(y->dtype);
    if (how == REPLACE) {
        memcpy((char *)y->data + (size_t)to * size, (const char *)u->data + (size_t)from * size, size);
    } else if (wok_dtype_is_float(y->dtype)) {
        double a = wok_get_f64(y->dtype, y->data, to), b = wok_get_f64(u->dtype, u->data, from);
        a = how == ADD             ? a + b
            : how == MUL           ? a * b
            : isnan(a) || isnan(b) ? a + b
            : how == MIN           ? fmin(a, b)
                                   : fmax(a, b);
        wok_store_f64(y->dtype, y->data, to, 1, &a);
    } else {
        int64_t a = wok_get_i64(y->dtype, y->data, to), b = wok_get_i64(u->dtype, u->data, from);
        bool less = y->dtype == WOK_U64 ? (uint64_t)a < (uint64_t)b : a < b;
        a = how == ADD             ? (int64_t)((uint64_t)a + (uint64_t)b)
            : how == MUL           ? (int64_t)((uint64_t)a * (uint64_t)b)
            : (how == MIN) == less ? a
                                   : b;
        wok_store_i64(y->dtype, y->data, to, 1, &a);
    }
}

static wok_status start(wok_call *call, enum reduction *how) {
    const wok_tensor *x = call->in[0], *y = call->out[0];
    if (!read_reduction(call->node, how))
        return wok_call_fail(call, WOK_ERR_UNSUPPORTED, "reduction \"%s\"", wok_ir_string(call->node, "reduction", ""));
    if (call->in_count < 3 || !call->in[1] || !call->in[2] || call->in[2]->dtype != x->dtype ||
        (call->in[1]->dtype != WOK_I64 && call->in[1]->dtype != WOK_I32))
        return wok_call_fail(call, WOK_ERR_SHAPE, "indices or updates are missing or of the wrong type");
    if (y->data != x->data && y->bytes) memcpy(y->data, x->data, y->bytes);
    return WOK_OK;
}

static wok_status read_index(wok_call *call, int64_t i, int64_t dim, int64_t *index) {
    *index = wok_get_i64(call->in[1]->dtype, call->in[1]->data, i);
    if (*index < -dim || *index >= dim)
        return wok_call_fail(call, WOK_ERR_VALUE, "index %lld is outside [%lld, %lld]", (long long)*index,
                             (long long)-dim, (long long)dim - 1);
    if (*index < 0) *index += dim;
    return WOK_OK;
}

static wok_status scatter_elements_run(wok_call *call) {
    enum reduction how;
    WOK_TRY(start(call, &how));
    const wok_tensor *indices = call->in[1], *updates = call->in[2], *y = call->out[0];
    int axis = wok_axis(wok_ir_int(call->node, "axis", 0), y->rank);
    bool fits = axis >= 0 && indices->rank == y->rank && updates->rank == y->rank;
    for (int d = 0; d < y->rank && fits; d++)
        fits = indices->dims[d] == updates->dims[d] && (d == axis || indices->dims[d] <= y->dims[d]);
    if (!fits) return wok_call_fail(call, WOK_ERR_SHAPE, "axis, indices, updates and data do not fit each other");
    int64_t step[WOK_MAX_RANK], n = wok_tensor_count(indices);
    wok_row_major(y->dims, y->rank, step);
    for (int64_t i = 0; i < n; i++) {
        int64_t rest = i, to;
        WOK_TRY(read_index(call, i, y->dims[axis], &to));
        to *= step[axis];
        for (int d = y->rank - 1; d >= 0; d--) {
            if (d != axis) to += rest % indices->dims[d] * step[d];
            rest /= indices->dims[d];
        }
        put(y, to, updates, i, how);
    }
    return WOK_OK;
}

static wok_status scatter_nd_run(wok_call *call) {
    enum reduction how;
    WOK_TRY(start(call, &how));
    const wok_tensor *indices = call->in[1], *updates = call->in[2], *y = call->out[0];
    int64_t depth = indices->rank > 0 ? indices->dims[indices->rank - 1] : 0;
    if (depth < 1 || depth > y->rank)
        return wok_call_fail(call, WOK_ERR_SHAPE, "indices of %lld numbers into rank %d", (long long)depth, y->rank);
    int64_t step[WOK_MAX_RANK], tuples = wok_dims_product(indices->dims, 0, indices->rank - 1);
    wok_row_major(y->dims, y->rank, step);
    int64_t run = step[depth - 1];
    if (wok_tensor_count(updates) != tuples * run)
        return wok_call_fail(call, WOK_ERR_SHAPE, "%lld updates for %lld places", (long long)wok_tensor_count(updates),
                             (long long)(tuples * run));
    for (int64_t t = 0; t < tuples; t++) {
        int64_t to = 0;
        for (int64_t d = 0, index; d < depth; d++) {
            WOK_TRY(read_index(call, t * depth + d, y->dims[d], &index));
            to += index * step[d];
        }
        for (int64_t k = 0; k < run; k++) put(y, to + k, updates, t * run + k, how);
    }
    return WOK_OK;
}

static const char *accept_bytes(const wok_prepare *prepare) {
    return prepare->in[0] && wok_dtype_size(prepare->in[0]->dtype) ? NULL : "the element type is not one to copy";
}

const wok_op_impl *const wok_impls_scatter_elements[] = {
    &(const wok_op_impl){.name = "ref", .inplace = 1, .accept = accept_bytes, .run = scatter_elements_run},
    NULL,
};
const wok_op_impl *const wok_impls_scatter_nd[] = {
    &(const wok_op_impl){.name = "ref", .inplace = 1, .accept = accept_bytes, .run = scatter_nd_run},
    NULL,
};

/* ---- OneHot ------------------------------------------------------------------------------------------------------ */

/* The depth, a scalar of any numeric type; -1: not known. */
static wok_status one_hot_depth(wok_infer *infer, int64_t *depth) {
    const wok_type *t = infer->in[1];
    double real;
    bool known = true;
    if (wok_dtype_is_float(t->dtype)) {
        known = wok_infer_floats(infer, 1, &real, 1) == 1;
        *depth = known ? wok_truncate(real) : wok_infer_unknown(infer);
    } else {
        known = wok_infer_numbers(infer, 1, depth, 1) == 1;
        if (!known) *depth = wok_infer_unknown(infer);
    }
    return known && *depth < 1 ? wok_infer_fail(infer, WOK_ERR_VALUE, "depth %lld", (long long)*depth) : WOK_OK;
}

wok_status wok_infer_one_hot(wok_infer *infer) {
    WOK_TRY(wok_infer_need(infer, 3));
    const wok_type *x = infer->in[0];
    int64_t dims[WOK_MAX_RANK + 1], depth;
    int axis;
    infer->out[0].dtype = infer->in[2]->dtype;
    if (x->rank < 0) return WOK_OK;
    WOK_TRY(one_hot_depth(infer, &depth));
    WOK_TRY(wok_infer_axis(infer, "axis", -1, x->rank + 1, &axis));
    for (int d = 0; d <= x->rank; d++) dims[d] = d < axis ? x->dims[d] : d == axis ? depth : x->dims[d - 1];
    wok_infer_out(infer, 0, infer->in[2]->dtype, x->rank + 1, dims);
    return WOK_OK;
}

/* Indices outside [-depth, depth) give a row of "off" values, as the standard says. */
static wok_status one_hot_run(wok_call *call) {
    const wok_tensor *x = call->in[0], *values = call->in[2], *y = call->out[0];
    int axis = wok_axis(wok_ir_int(call->node, "axis", -1), y->rank);
    int64_t depth = y->dims[axis], inner = wok_dims_product(y->dims, axis + 1, y->rank), n = wok_tensor_count(x);
    size_t size = wok_dtype_size(y->dtype);
    if (wok_tensor_count(values) != 2) return wok_call_fail(call, WOK_ERR_SHAPE, "values are not [off, on]");
    wok_copy_step(y->data, values->data, 0, wok_tensor_count(y), size);
    for (int64_t i = 0; i < n; i++) {
        int64_t index = wok_truncate(wok_get_f64(x->dtype, x->data, i));
        if (index < 0 && index >= -depth) index += depth;
        if (index < 0 || index >= depth) continue;
        int64_t to = (i / inner * depth + index) * inner + i % inner;
        memcpy((char *)y->data + (size_t)to * size, (const char *)values->data + size, size);
    }
    return WOK_OK;
}

static const char *one_hot_accept(const wok_prepare *prepare) {
    if (prepare->in[2] && !wok_dtype_size(prepare->in[2]->dtype)) return "the element type is not one to copy";
    return wok_accept_number(prepare);
}

const wok_op_impl *const wok_impls_one_hot[] = {
    &(const wok_op_impl){.name = "ref", .accept = one_hot_accept, .run = one_hot_run},
    NULL,
};

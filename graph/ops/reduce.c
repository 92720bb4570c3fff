/* reduce.c - reductions over axes, ArgMax, ArgMin, CumSum, MeanVarianceNormalization. */
#include "ops.h"

#include <math.h>
#include <string.h>

/* ---- axes -------------------------------------------------------------------------------------------------------- */

/* Marks the axes to reduce. All of them where none are named, unless noop_with_empty_axes (then *noop). */
static bool mark_axes(const wok_ir_node *node, const int64_t *axes, int count, int rank, bool *reduced, bool *noop) {
    *noop = count == 0 && wok_ir_int(node, "noop_with_empty_axes", 0);
    for (int d = 0; d < rank; d++) reduced[d] = count == 0 && !*noop;
    for (int i = 0; i < count; i++) {
        int axis = wok_axis(axes[i], rank);
        if (axis < 0) return false;
        reduced[axis] = true;
    }
    return true;
}

wok_status wok_infer_reduce(wok_infer *infer) {
    WOK_TRY(wok_infer_need(infer, 1));
    const wok_type *x = infer->in[0];
    bool keep = wok_ir_int(infer->node, "keepdims", 1), reduced[WOK_MAX_RANK], noop;
    int64_t axes[WOK_MAX_INTS], dims[WOK_MAX_RANK];
    int rank = 0, count = infer->in[1] ? wok_infer_numbers(infer, 1, axes, WOK_MAX_INTS) : 0;
    infer->out[0].dtype = x->dtype;
    if (x->rank < 0) return WOK_OK;
    if (count < 0) { /* axes are computed */
        for (int d = 0; d < x->rank; d++) dims[d] = wok_infer_unknown(infer);
        if (keep) wok_infer_out(infer, 0, x->dtype, x->rank, dims);
        return WOK_OK;
    }
    if (!mark_axes(infer->node, axes, count, x->rank, reduced, &noop))
        return wok_infer_fail(infer, WOK_ERR_SHAPE, "an axis is outside a tensor of rank %d", x->rank);
    for (int d = 0; d < x->rank; d++)
        if (!reduced[d])
            dims[rank++] = x->dims[d];
        else if (keep)
            dims[rank++] = 1;
    wok_infer_out(infer, 0, x->dtype, rank, dims);
    int64_t ints[WOK_MAX_INTS];
    if (infer->node->op == WOK_OP_ReduceProd && x->rank == 1 && reduced[0] && wok_infer_ints(infer, 0, ints, &count)) {
        int64_t product = 1, n;
        for (int i = 0; i < count; i++)
            if (wok_dim_is_number(ints[i], &n) && n < 0) return WOK_OK;
        product = wok_infer_product(infer, ints, 0, count);
        wok_infer_set_ints(infer, 0, &product, 1);
    }
    return WOK_OK;
}

/* ---- the reduction ----------------------------------------------------------------------------------------------- */

enum { CHUNK = 256, TASK_OUTPUTS = 64 };

/* Every output element reduces the elements that `inner` visits from its start in `outer`. */
typedef struct reduction {
    wok_op op;
    const wok_tensor *x;
    void *y;
    wok_walk outer, inner;
    int64_t outputs, count; /* elements reduced into one */
} reduction;

static double start_of(wok_op op) {
    return op == WOK_OP_ReduceMax   ? -(double)INFINITY
           : op == WOK_OP_ReduceMin ? (double)INFINITY
                                    : op == WOK_OP_ReduceProd;
}

static double accumulate(wok_op op, double sum, const double *v, int64_t n, double shift) {
    for (int64_t i = 0; i < n; i++) {
        switch (op) {
        case WOK_OP_ReduceL1:
            sum += fabs(v[i]);
            break;
        case WOK_OP_ReduceL2:
        case WOK_OP_ReduceSumSquare:
            sum += v[i] * v[i];
            break;
        case WOK_OP_ReduceLogSumExp:
            sum += exp(v[i] - shift);
            break;
        case WOK_OP_ReduceMax:
            sum = isnan(sum) || sum > v[i] ? sum : v[i];
            break;
        case WOK_OP_ReduceMin:
            sum = isnan(sum) || sum < v[i] ? sum : v[i];
            break;
        case WOK_OP_ReduceProd:
            sum *= v[i];
            break;
        default:
            sum += v[i];
            break;
        }
    }
    return sum;
}

static double finish(wok_op op, double sum, int64_t count, double shift) {
    switch (op) {
    case WOK_OP_ReduceL2:
        return sqrt(sum);
    case WOK_OP_ReduceLogSum:
        return log(sum);
    case WOK_OP_ReduceLogSumExp:
        return log(sum) + shift;
    case WOK_OP_ReduceMean:
        return sum / (double)count;
    default:
        return sum;
    }
}

/* Position of output (or inner row) `i`. */
static int64_t position(const wok_walk *walk, int64_t i) {
    int64_t at = 0;
    for (int d = walk->rank - 1; d >= 0; d--) {
        at += i % walk->dims[d] * walk->step[0][d];
        i /= walk->dims[d];
    }
    return at;
}

static double reduce_real(const reduction *r, wok_op op, int64_t base, double shift) {
    double sum = start_of(op), v[CHUNK];
    int64_t step = r->inner.step[0][r->inner.rank - 1], n = r->inner.n, offset[WOK_WALK_MAX];
    for (int64_t row = 0; row < r->inner.rows; row++) {
        wok_walk_offsets(&r->inner, row, offset);
        for (int64_t i = 0; i < n; i += CHUNK) {
            int64_t count = n - i < CHUNK ? n - i : CHUNK;
            wok_load_f64(r->x->dtype, r->x->data, base + offset[0] + i * step, step, count, v);
            sum = accumulate(op, sum, v, count, shift);
        }
    }
    return sum;
}

static int64_t reduce_int(const reduction *r, int64_t base) {
    bool is_signed = r->x->dtype != WOK_U64, first = true;
    uint64_t sum = r->op == WOK_OP_ReduceProd;
    int64_t step = r->inner.step[0][r->inner.rank - 1], offset[WOK_WALK_MAX];
    for (int64_t row = 0; row < r->inner.rows; row++) {
        wok_walk_offsets(&r->inner, row, offset);
        for (int64_t i = 0; i < r->inner.n; i++, first = false) {
            int64_t v = wok_get_i64(r->x->dtype, r->x->data, base + offset[0] + i * step), s = (int64_t)sum;
            bool below = is_signed ? v < s : (uint64_t)v < sum;
            switch (r->op) {
            case WOK_OP_ReduceL1:
                sum += is_signed && v < 0 ? -(uint64_t)v : (uint64_t)v;
                break;
            case WOK_OP_ReduceSumSquare:
                sum += (uint64_t)v * (uint64_t)v;
                break;
            case WOK_OP_ReduceMax:
                sum = first || !below ? (uint64_t)v : sum;
                break;
            case WOK_OP_ReduceMin:
                sum = first || below ? (uint64_t)v : sum;
                break;
            case WOK_OP_ReduceProd:
                sum *= (uint64_t)v;
                break;
            default:
                sum += (uint64_t)v;
                break;
            }
        }
    }
    if (r->op == WOK_OP_ReduceMean && r->count)
        return is_signed ? (int64_t)sum / r->count : (int64_t)(sum / (uint64_t)r->count);
    return (int64_t)sum;
}

static bool exact_int(wok_op op, wok_dtype dtype) {
    return !wok_dtype_is_float(dtype) && op != WOK_OP_ReduceL2 && op != WOK_OP_ReduceLogSum &&
           op != WOK_OP_ReduceLogSumExp;
}

/* The largest or smallest of nothing: the other end of the type. */
static void store_empty(const reduction *r, int64_t i) {
    bool low = r->op == WOK_OP_ReduceMax;
    wok_dtype t = r->x->dtype;
    int64_t v = t == WOK_BOOL  ? !low
                : t == WOK_I64 ? (low ? INT64_MIN : INT64_MAX)
                : t == WOK_U64 ? (low ? 0 : -1)
                               : wok_saturate(low ? -(double)INFINITY : (double)INFINITY, t);
    wok_store_i64(t, r->y, i, 1, &v);
}

static void reduce_task(void *arg, int64_t task, int worker) {
    const reduction *r = arg;
    (void)worker;
    int64_t end = (task + 1) * TASK_OUTPUTS < r->outputs ? (task + 1) * TASK_OUTPUTS : r->outputs;
    for (int64_t i = task * TASK_OUTPUTS; i < end; i++) {
        int64_t base = position(&r->outer, i);
        if (!r->count && !wok_dtype_is_float(r->x->dtype) && (r->op == WOK_OP_ReduceMax || r->op == WOK_OP_ReduceMin)) {
            store_empty(r, i);
            continue;
        }
        if (exact_int(r->op, r->x->dtype) && r->count) {
            wok_store_i64(r->x->dtype, r->y, i, 1, &(int64_t){reduce_int(r, base)});
            continue;
        }
        double shift = 0;
        if (r->op == WOK_OP_ReduceLogSumExp) shift = reduce_real(r, WOK_OP_ReduceMax, base, 0);
        if (!isfinite(shift)) shift = 0;
        double sum = finish(r->op, reduce_real(r, r->op, base, shift), r->count, shift);
        wok_store_f64(r->x->dtype, r->y, i, 1, &sum);
    }
}

/* Kept axes to `outer`, reduced ones to `inner`. */
static void split_axes(reduction *r, const bool *reduced) {
    const wok_tensor *x = r->x;
    int64_t step[WOK_MAX_RANK], dims[2][WOK_MAX_RANK], steps[2][WOK_MAX_RANK];
    int rank[2] = {0, 0};
    wok_row_major(x->dims, x->rank, step);
    for (int d = 0; d < x->rank; d++) {
        int side = reduced[d];
        dims[side][rank[side]] = x->dims[d];
        steps[side][rank[side]++] = step[d];
    }
    wok_walk_steps(&r->outer, dims[0], rank[0], (const int64_t *const[]){steps[0]}, 1);
    wok_walk_steps(&r->inner, dims[1], rank[1], (const int64_t *const[]){steps[1]}, 1);
    r->outputs = r->outer.rows * r->outer.n;
    r->count = r->inner.rows * r->inner.n;
}

static wok_status reduce_run(wok_call *call) {
    reduction r = {.op = call->node->op, .x = call->in[0], .y = call->out[0]->data};
    int64_t axes[WOK_MAX_INTS];
    bool reduced[WOK_MAX_RANK], noop;
    int count = wok_call_ints(call, 1, axes, WOK_MAX_INTS);
    if (!mark_axes(call->node, axes, count < 0 ? 0 : count, r.x->rank, reduced, &noop))
        return wok_call_fail(call, WOK_ERR_SHAPE, "an axis is outside a tensor of rank %d", r.x->rank);
    if (noop) {
        memcpy(r.y, r.x->data, r.x->bytes);
        return WOK_OK;
    }
    split_axes(&r, reduced);
    wok_parallel_for(call->parallel, reduce_task, &r, (r.outputs + TASK_OUTPUTS - 1) / TASK_OUTPUTS);
    return WOK_OK;
}

const wok_op_impl *const wok_impls_reduce[] = {
    &(const wok_op_impl){.name = "ref", .accept = wok_accept_number, .run = reduce_run},
    NULL,
};

/* ---- ArgMax, ArgMin ---------------------------------------------------------------------------------------------- */

wok_status wok_infer_arg(wok_infer *infer) {
    WOK_TRY(wok_infer_need(infer, 1));
    const wok_type *x = infer->in[0];
    int64_t dims[WOK_MAX_RANK];
    int axis, rank = 0;
    infer->out[0].dtype = WOK_I64;
    if (x->rank < 0) return WOK_OK;
    WOK_TRY(wok_infer_axis(infer, "axis", 0, x->rank, &axis));
    if (x->dims[axis] == 0) return wok_infer_fail(infer, WOK_ERR_SHAPE, "axis %d is empty", axis);
    for (int d = 0; d < x->rank; d++)
        if (d != axis)
            dims[rank++] = x->dims[d];
        else if (wok_ir_int(infer->node, "keepdims", 1))
            dims[rank++] = 1;
    wok_infer_out(infer, 0, WOK_I64, rank, dims);
    return WOK_OK;
}

static bool better(const wok_tensor *x, bool max, bool last, int64_t at, int64_t best) {
    if (wok_dtype_is_float(x->dtype)) {
        double v = wok_get_f64(x->dtype, x->data, at), b = wok_get_f64(x->dtype, x->data, best);
        if (isnan(b)) return false;
        return isnan(v) || (max ? v > b : v < b) || (last && v == b);
    }
    int64_t v = wok_get_i64(x->dtype, x->data, at), b = wok_get_i64(x->dtype, x->data, best);
    bool less = x->dtype == WOK_U64 ? (uint64_t)v < (uint64_t)b : v < b;
    return (max ? !less && v != b : less) || (last && v == b);
}

static wok_status arg_run(wok_call *call) {
    const wok_tensor *x = call->in[0];
    bool max = call->node->op == WOK_OP_ArgMax, last = wok_ir_int(call->node, "select_last_index", 0);
    int axis = wok_axis(wok_ir_int(call->node, "axis", 0), x->rank);
    int64_t n = x->dims[axis], outer = wok_dims_product(x->dims, 0, axis),
            inner = wok_dims_product(x->dims, axis + 1, x->rank);
    int64_t *y = call->out[0]->data;
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < inner; i++) {
            int64_t base = o * n * inner + i, best = 0;
            for (int64_t k = 1; k < n; k++)
                if (better(x, max, last, base + k * inner, base + best * inner)) best = k;
            *y++ = best;
        }
    return WOK_OK;
}

const wok_op_impl *const wok_impls_arg[] = {
    &(const wok_op_impl){.name = "ref", .accept = wok_accept_number, .run = arg_run},
    NULL,
};

/* ---- CumSum ------------------------------------------------------------------------------------------------------ */

static wok_status cum_sum_run(wok_call *call) {
    const wok_tensor *x = call->in[0], *y = call->out[0];
    int64_t named = wok_call_int(call, 1, 0);
    int axis = wok_axis(named, x->rank);
    if (axis < 0)
        return wok_call_fail(call, WOK_ERR_VALUE, "axis %lld is outside a tensor of rank %d", (long long)named,
                             x->rank);
    bool exclusive = wok_ir_int(call->node, "exclusive", 0), reverse = wok_ir_int(call->node, "reverse", 0);
    bool real = wok_dtype_is_float(x->dtype);
    int64_t n = x->dims[axis], outer = wok_dims_product(x->dims, 0, axis),
            inner = wok_dims_product(x->dims, axis + 1, x->rank);
    for (int64_t r = 0; r < outer * inner; r++) {
        int64_t base = r / inner * n * inner + r % inner;
        double sum = 0;
        uint64_t total = 0;
        for (int64_t k = 0; k < n; k++) {
            int64_t at = base + (reverse ? n - 1 - k : k) * inner;
            double before = sum;
            uint64_t total_before = total;
            if (real)
                sum += wok_get_f64(x->dtype, x->data, at);
            else
                total += (uint64_t)wok_get_i64(x->dtype, x->data, at);
            if (real)
                wok_store_f64(y->dtype, y->data, at, 1, exclusive ? &before : &sum);
            else
                wok_store_i64(y->dtype, y->data, at, 1, &(int64_t){(int64_t)(exclusive ? total_before : total)});
        }
    }
    return WOK_OK;
}

const wok_op_impl *const wok_impls_cum_sum[] = {
    &(const wok_op_impl){.name = "ref", .inplace = 1, .accept = wok_accept_number, .run = cum_sum_run},
    NULL,
};

/* ---- MeanVarianceNormalization: (x - mean) / sqrt(variance + 1e-9) over axes ------------------------------------- */

static void normalise(const reduction *r, int64_t base) {
    double mean = reduce_real(r, WOK_OP_ReduceSum, base, 0) / (double)r->count, square = 0;
    int64_t offset[WOK_WALK_MAX], step = r->inner.step[0][r->inner.rank - 1];
    for (int pass = 0; pass < 2; pass++)
        for (int64_t row = 0; row < r->inner.rows; row++) {
            wok_walk_offsets(&r->inner, row, offset);
            for (int64_t i = 0; i < r->inner.n; i++) {
                int64_t at = base + offset[0] + i * step;
                double v = wok_get_f64(r->x->dtype, r->x->data, at) - mean;
                if (pass == 0)
                    square += v * v;
                else
                    wok_store_f64(r->x->dtype, r->y, at, 1, &(double){v / (sqrt(square / (double)r->count) + 1e-9)});
            }
        }
}

static wok_status mean_variance_run(wok_call *call) {
    reduction r = {.op = WOK_OP_ReduceSum, .x = call->in[0], .y = call->out[0]->data};
    int64_t axes[WOK_MAX_RANK];
    bool reduced[WOK_MAX_RANK] = {false};
    int count = wok_ir_ints(call->node, "axes", axes, WOK_MAX_RANK);
    if (count < 0) {
        memcpy(axes, (int64_t[]){0, 2, 3}, 3 * sizeof *axes);
        count = 3;
    }
    for (int i = 0; i < count; i++) {
        int axis = wok_axis(axes[i], r.x->rank);
        if (axis < 0) return wok_call_fail(call, WOK_ERR_SHAPE, "an axis is outside a tensor of rank %d", r.x->rank);
        reduced[axis] = true;
    }
    split_axes(&r, reduced);
    for (int64_t i = 0; i < r.outputs && r.count; i++) normalise(&r, position(&r.outer, i));
    return WOK_OK;
}

const wok_op_impl *const wok_impls_mean_variance[] = {
    &(const wok_op_impl){.name = "ref", .accept = wok_accept_number, .run = mean_variance_run},
    NULL,
};

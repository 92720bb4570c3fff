/* copy.c - operators that only move elements: transposes, joins, cuts, repeats, padding. */
#include "ops.h"

#include <string.h>

void wok_row_major(const int64_t *dims, int rank, int64_t *step) {
    int64_t size = 1;
    for (int d = rank - 1; d >= 0; d--) {
        step[d] = size;
        size *= dims[d];
    }
}

/* ---- strided copies ---------------------------------------------------------------------------------------------- */

enum { TILE = 16, PLANE_GRAIN = 1 << 14 };

/* The output seen as planes of [rows][n]: along a row the input goes in steps of `across`, from row to row in steps of
 * 1 (a transposed matrix). Both sides of a tile stay in cache. */
typedef struct planes {
    wok_walk outer; /* the planes; one input */
    int64_t y_step[WOK_WALK_RANK];
    int64_t rows, n, across, y_row;
    void *y;
    const void *x;
    size_t size;
    int64_t tasks, bands;
} planes;

#define TRANSPOSE_CASE(type)                                                                                           \
    case sizeof(type): {                                                                                               \
        const type *x = (const type *)p->x + x_at;                                                                     \
        type *y = (type *)p->y + y_at;                                                                                 \
        for (int64_t r0 = row; r0 < end; r0 += TILE) {                                                                 \
            int64_t r1 = r0 + TILE < end ? r0 + TILE : end;                                                            \
            for (int64_t c0 = 0; c0 < p->n; c0 += TILE) {                                                              \
                int64_t c1 = c0 + TILE < p->n ? c0 + TILE : p->n;                                                      \
                for (int64_t r = r0; r < r1; r++)                                                                      \
                    for (int64_t c = c0; c < c1; c++) y[r * p->y_row + c] = x[c * p->across + r];                      \
            }                                                                                                          \
        }                                                                                                              \
        return;                                                                                                        \
    }

static void transpose_band(const planes *p, int64_t x_at, int64_t y_at, int64_t row, int64_t end) {
    switch (p->size) {
        TRANSPOSE_CASE(uint8_t)
        TRANSPOSE_CASE(uint16_t)
        TRANSPOSE_CASE(uint32_t)
        TRANSPOSE_CASE(uint64_t)
    }
}

static void planes_task(void *arg, int64_t task, int worker) {
    const planes *p = arg;
    (void)worker;
    int64_t begin, end, total = p->outer.rows * p->outer.n * p->bands;
    wok_parallel_range(total, 1, task, p->tasks, &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        int64_t plane = t / p->bands, band = t % p->bands, x_at = 0, y_at = 0, first, last;
        for (int d = p->outer.rank - 1; d >= 0; d--) {
            int64_t at = plane % p->outer.dims[d];
            plane /= p->outer.dims[d];
            x_at += at * p->outer.step[0][d];
            y_at += at * p->outer.step[1][d];
        }
        wok_parallel_range(p->rows, TILE, band, p->bands, &first, &last);
        transpose_band(p, x_at, y_at, first, last);
    }
}

/* walk: one input, whose last step is not 1; dimension d has step 1. */
static void copy_planes(const wok_walk *walk, int d, void *y, const void *x, size_t size,
                        const wok_parallel *parallel) {
    int64_t y_step[WOK_WALK_RANK], dims[WOK_WALK_RANK], step[2][WOK_WALK_RANK];
    int last = walk->rank - 1, rank = 0;
    wok_row_major(walk->dims, walk->rank, y_step);
    for (int k = 0; k < last; k++) {
        if (k == d) continue;
        dims[rank] = walk->dims[k];
        step[0][rank] = walk->step[0][k];
        step[1][rank++] = y_step[k];
    }
    planes p = {.rows = walk->dims[d],
                .n = walk->n,
                .across = walk->step[0][last],
                .y_row = y_step[d],
                .y = y,
                .x = x,
                .size = size};
    wok_walk_steps(&p.outer, dims, rank, (const int64_t *const[]){step[0], step[1]}, 2);
    p.bands = (p.rows * p.n + PLANE_GRAIN - 1) / PLANE_GRAIN;
    int64_t tiles = (p.rows + TILE - 1) / TILE, most = 4 * (int64_t)wok_parallel_threads(parallel);
    if (p.bands > tiles) p.bands = tiles;
    p.tasks = p.outer.rows * p.outer.n * p.bands < most ? p.outer.rows * p.outer.n * p.bands : most;
    wok_parallel_for(parallel, planes_task, &p, p.tasks);
}

typedef struct copy_job {
    char *y;
    const char *x;
    size_t size;
} copy_job;

static void copy_piece(void *arg, const wok_walk *walk, const int64_t *offset, int64_t y, int64_t n) {
    const copy_job *job = arg;
    int64_t size = (int64_t)job->size;
    wok_copy_step(job->y + y * size, job->x + offset[0] * size, walk->step[0][walk->rank - 1], n, job->size);
}

void wok_copy_strided(void *y, const void *x, const int64_t *dims, const int64_t *step, int rank, size_t size,
                      const wok_parallel *parallel) {
    wok_walk walk;
    wok_walk_steps(&walk, dims, rank, &step, 1);
    if (walk.n == 0 || walk.rows == 0) return;
    int across = -1;
    for (int d = 0; d < walk.rank - 1; d++)
        if (walk.step[0][d] == 1 && walk.step[0][walk.rank - 1] > 1) across = d;
    if (across >= 0) {
        copy_planes(&walk, across, y, x, size, parallel);
        return;
    }
    copy_job job = {y, x, size};
    wok_walk_run(&walk, copy_piece, &job, parallel);
}

static const char *accept_bytes(const wok_prepare *prepare) {
    return !prepare->in[0] || wok_dtype_size(prepare->in[0]->dtype) ? NULL : "the element type is not one to copy";
}

/* ---- Transpose --------------------------------------------------------------------------------------------------- */

/* perm of the node, or the reverse order; false if it is no permutation of rank axes. */
static bool read_perm(const wok_ir_node *node, int rank, int64_t *perm) {
    unsigned seen = 0;
    int count = wok_ir_ints(node, "perm", perm, WOK_MAX_RANK);
    if (count < 0) {
        for (int d = 0; d < rank; d++) perm[d] = rank - 1 - d;
        return true;
    }
    for (int d = 0; d < count && count == rank; d++) {
        if (perm[d] < 0) perm[d] += rank;
        if (perm[d] < 0 || perm[d] >= rank || seen >> perm[d] & 1) return false;
        seen |= 1u << perm[d];
    }
    return count == rank;
}

wok_status wok_infer_transpose(wok_infer *infer) {
    WOK_TRY(wok_infer_need(infer, 1));
    const wok_type *x = infer->in[0];
    int64_t perm[WOK_MAX_RANK], dims[WOK_MAX_RANK];
    infer->out[0].dtype = x->dtype;
    if (x->rank < 0) return WOK_OK;
    if (!read_perm(infer->node, x->rank, perm))
        return wok_infer_fail(infer, WOK_ERR_SHAPE, "perm does not fit %s", wok_type_text(infer->graph, x));
    for (int d = 0; d < x->rank; d++) dims[d] = x->dims[perm[d]];
    wok_infer_out(infer, 0, x->dtype, x->rank, dims);
    return WOK_OK;
}

static wok_status transpose_run(wok_call *call) {
    const wok_tensor *x = call->in[0], *y = call->out[0];
    int64_t perm[WOK_MAX_RANK], from[WOK_MAX_RANK], step[WOK_MAX_RANK];
    read_perm(call->node, x->rank, perm);
    wok_row_major(x->dims, x->rank, from);
    for (int d = 0; d < x->rank; d++) step[d] = from[perm[d]];
    wok_copy_strided(y->data, x->data, y->dims, step, x->rank, wok_dtype_size(x->dtype), call->parallel);
    return WOK_OK;
}

const wok_op_impl *const wok_impls_transpose[] = {
    &(const wok_op_impl){.name = "copy", .accept = accept_bytes, .run = transpose_run},
    NULL,
};

/* ---- Concat ------------------------------------------------------------------------------------------------------ */

static void concat_ints(wok_infer *infer) {
    int64_t ints[WOK_MAX_INTS], part[WOK_MAX_INTS];
    int count = 0, n;
    for (int i = 0; i < infer->in_count; i++) {
        if (!wok_infer_ints(infer, i, part, &n) || count + n > WOK_MAX_INTS) return;
        memcpy(ints + count, part, (size_t)n * sizeof *part);
        count += n;
    }
    wok_infer_set_ints(infer, 0, ints, count);
}

wok_status wok_infer_concat(wok_infer *infer) {
    WOK_TRY(wok_infer_need(infer, infer->in_count > 0 ? infer->in_count : 1));
    const wok_type *x = infer->in[0];
    int axis;
    infer->out[0].dtype = x->dtype;
    for (int i = 0; i < infer->in_count; i++)
        if (infer->in[i]->rank < 0) return WOK_OK;
    WOK_TRY(wok_infer_axis(infer, "axis", 1, x->rank, &axis));
    wok_type y = *x;
    for (int i = 1; i < infer->in_count; i++) {
        const wok_type *t = infer->in[i];
        bool fits = t->rank == x->rank && t->dtype == x->dtype;
        for (int d = 0; d < x->rank && fits; d++) {
            if (d == axis) continue;
            fits = t->dims[d] == y.dims[d] || !wok_dim_known(t->dims[d]) || !wok_dim_known(y.dims[d]);
            if (wok_dim_known(t->dims[d])) y.dims[d] = t->dims[d];
        }
        if (!fits)
            return wok_infer_fail(infer, WOK_ERR_SHAPE, "input %d is %s %s, input 0 %s %s; only axis %d may differ", i,
                                  wok_dtype_name(t->dtype), wok_type_text(infer->graph, t), wok_dtype_name(x->dtype),
                                  wok_type_text(infer->graph, x), axis);
        y.dims[axis] = wok_dim_add(infer->graph, y.dims[axis], t->dims[axis]);
    }
    wok_infer_out(infer, 0, x->dtype, x->rank, y.dims);
    if (x->rank == 1 && !wok_dtype_is_float(x->dtype)) concat_ints(infer);
    return WOK_OK;
}

static wok_status concat_run(wok_call *call) {
    const wok_tensor *y = call->out[0];
    int axis = wok_axis(wok_ir_int(call->node, "axis", 1), y->rank);
    size_t size = wok_dtype_size(y->dtype), inner = (size_t)wok_dims_product(y->dims, axis + 1, y->rank) * size;
    int64_t outer = wok_dims_product(y->dims, 0, axis);
    char *to = y->data;
    for (int64_t o = 0; o < outer; o++)
        for (int i = 0; i < call->in_count; i++) {
            size_t run = (size_t)call->in[i]->dims[axis] * inner;
            if (run) memcpy(to, (const char *)call->in[i]->data + (size_t)o * run, run);
            to += run;
        }
    return WOK_OK;
}

const wok_op_impl *const wok_impls_concat[] = {
    &(const wok_op_impl){.name = "copy", .accept = accept_bytes, .run = concat_run},
    NULL,
};

/* ---- Split ------------------------------------------------------------------------------------------------------- */

/* Sizes of the parts: given, or equal with a smaller last one. */
static wok_status split_sizes(wok_infer *infer, int64_t dim, int64_t *sizes) {
    int count, parts = infer->out_count;
    if (infer->in[1]) {
        if (!wok_infer_ints(infer, 1, sizes, &count)) {
            for (int i = 0; i < parts; i++) sizes[i] = wok_infer_unknown(infer);
            return WOK_OK;
        }
        if (count != parts) return wok_infer_fail(infer, WOK_ERR_SHAPE, "%d sizes for %d outputs", count, parts);
        int64_t total = 0, number;
        for (int i = 0; i < parts; i++) {
            if (wok_dim_is_number(sizes[i], &number) && number < 0)
                return wok_infer_fail(infer, WOK_ERR_VALUE, "part %d has size %lld", i, (long long)number);
            total = wok_dim_add(infer->graph, total, sizes[i]);
        }
        if (wok_dim_known(total) && wok_dim_known(dim) && total != dim)
            return wok_infer_fail(infer, WOK_ERR_SHAPE, "the parts have %lld of %lld", (long long)total,
                                  (long long)dim);
        return WOK_OK;
    }
    int64_t part = wok_dim_known(dim) ? (dim + parts - 1) / parts : wok_dim_div(infer->graph, dim, parts);
    for (int i = 0; i < parts; i++) sizes[i] = part;
    if (!wok_dim_known(dim)) return WOK_OK;
    for (int i = 0; i < parts; i++) {
        int64_t left = dim - i * part;
        sizes[i] = left < 0 ? 0 : left < part ? left : part;
    }
    return WOK_OK;
}

wok_status wok_infer_split(wok_infer *infer) {
    WOK_TRY(wok_infer_need(infer, 1));
    const wok_type *x = infer->in[0];
    int64_t sizes[WOK_MAX_INTS], dims[WOK_MAX_RANK], ints[WOK_MAX_INTS], at = 0;
    int axis, count = 0;
    for (int i = 0; i < infer->out_count; i++) infer->out[i].dtype = x->dtype;
    if (x->rank < 0) return WOK_OK;
    WOK_TRY(wok_infer_axis(infer, "axis", 0, x->rank, &axis));
    WOK_TRY(split_sizes(infer, x->dims[axis], sizes));
    bool follow = x->rank == 1 && wok_infer_ints(infer, 0, ints, &count);
    memcpy(dims, x->dims, sizeof dims);
    for (int i = 0; i < infer->out_count; i++) {
        dims[axis] = sizes[i];
        wok_infer_out(infer, i, x->dtype, x->rank, dims);
        follow = follow && wok_dim_known(sizes[i]) && at + sizes[i] <= count;
        if (follow) wok_infer_set_ints(infer, i, ints + at, (int)sizes[i]);
        if (follow) at += sizes[i];
    }
    return WOK_OK;
}

static wok_status split_run(wok_call *call) {
    const wok_tensor *x = call->in[0];
    int axis = wok_axis(wok_ir_int(call->node, "axis", 0), x->rank);
    size_t inner = (size_t)wok_dims_product(x->dims, axis + 1, x->rank) * wok_dtype_size(x->dtype);
    int64_t outer = wok_dims_product(x->dims, 0, axis), first = 0;
    /* parts that nobody reads have no tensor; their sizes are what is left between those that have */
    int64_t sizes[WOK_MAX_INTS];
    if (wok_call_ints(call, 1, sizes, WOK_MAX_INTS) < 0)
        for (int i = 0; i < call->out_count; i++) sizes[i] = (x->dims[axis] + call->out_count - 1) / call->out_count;
    for (int i = 0; i < call->out_count; i++) {
        if (call->out[i]) {
            size_t run = (size_t)call->out[i]->dims[axis] * inner;
            for (int64_t o = 0; o < outer && run; o++)
                memcpy((char *)call->out[i]->data + (size_t)o * run,
                       (const char *)x->data + (size_t)(o * x->dims[axis] + first) * inner, run);
        }
        first += sizes[i];
    }
    return WOK_OK;
}

const wok_op_impl *const wok_impls_split[] = {
    &(const wok_op_impl){.name = "copy", .accept = accept_bytes, .run = split_run},
    NULL,
};

/* ---- Slice ------------------------------------------------------------------------------------------------------- */

/* One axis with numbers everywhere, as ONNX clamps it. */
static void clamp_slice(int64_t dim, int64_t *start, int64_t *end, int64_t step, int64_t *count) {
    int64_t lowest = step > 0 ? 0 : -1, highest = step > 0 ? dim : dim - 1;
    int64_t s = *start < 0 ? *start + dim : *start, e = *end < 0 ? *end + dim : *end;
    s = s < 0 ? 0 : s > highest ? highest : s;
    e = e < lowest ? lowest : e > highest ? highest : e;
    int64_t span = step > 0 ? e - s : s - e, stride = step > 0 ? step : step == INT64_MIN ? INT64_MAX : -step;
    *start = s;
    *end = e;
    *count = dim == 0 || span <= 0 ? 0 : (span - 1) / stride + 1;
}

/* The same with symbols. Bounds are taken to lie inside the tensor where that cannot be told; numbers are clamped again
 * when the plan is made. */
static int64_t slice_size(wok_infer *infer, int64_t dim, int64_t start, int64_t end, int64_t step) {
    int64_t s, e, count;
    bool known_s = wok_dim_is_number(start, &s), known_e = wok_dim_is_number(end, &e);
    if (wok_dim_known(dim) && known_s && known_e) {
        clamp_slice(dim, &s, &e, step, &count);
        return count;
    }
    if (step != 1)
        return s == 0 && known_s && known_e && e >= INT32_MAX && step > 1
                   ? wok_dim_div(infer->graph, wok_dim_add(infer->graph, dim, step - 1), step)
                   : wok_infer_unknown(infer);
    if (known_e && e >= INT32_MAX) end = dim;
    if (known_e && e < 0) end = wok_dim_sub(infer->graph, dim, e < -INT32_MAX ? INT32_MAX : -e);
    if (known_s && s < 0) {
        if (end == dim && s > -INT32_MAX) { /* the last -s */
            int64_t pair[2] = {-s, dim};
            return s == -1 ? 1 : wok_dim_call(infer->graph, "min", pair, 2);
        }
        return wok_infer_unknown(infer);
    }
    if (known_s && known_e && e >= 0 && e < INT32_MAX && !wok_dim_known(dim)) {
        int64_t pair[2] = {e, dim};
        if (e <= s) return 0;
        if (s == 0 && e == 1) return 1;
        return wok_dim_sub(infer->graph, wok_dim_call(infer->graph, "min", pair, 2), s);
    }
    if (known_s && s == 0) return end;
    return wok_dim_sub(infer->graph, end, start);
}

/* Fills start, end, step per axis of a tensor of this rank; numbers and symbols. *known false: not enough is known. */
static wok_status read_slice(wok_infer *infer, int rank, int64_t *start, int64_t *end, int64_t *step, bool *touched,
                             bool *known) {
    int64_t s[WOK_MAX_INTS], e[WOK_MAX_INTS], axes[WOK_MAX_INTS], steps[WOK_MAX_INTS];
    int n, n_end, n_axes = 0, n_steps = 0;
    *known = wok_infer_ints(infer, 1, s, &n) && wok_infer_ints(infer, 2, e, &n_end);
    if (*known && infer->in[3]) *known = (n_axes = wok_infer_numbers(infer, 3, axes, WOK_MAX_INTS)) >= 0;
    if (*known && infer->in[4]) *known = (n_steps = wok_infer_numbers(infer, 4, steps, WOK_MAX_INTS)) >= 0;
    if (!*known) return WOK_OK;
    if (n != n_end || n > rank || (infer->in[3] && n_axes != n) || (infer->in[4] && n_steps != n))
        return wok_infer_fail(infer, WOK_ERR_SHAPE, "starts, ends, axes and steps do not fit each other and rank %d",
                              rank);
    for (int i = 0; i < n; i++) {
        int axis = infer->in[3] ? wok_axis(axes[i], rank) : i;
        int64_t by = infer->in[4] ? steps[i] : 1;
        if (axis < 0 || touched[axis])
            return wok_infer_fail(infer, WOK_ERR_SHAPE, "axis %lld is named twice or outside a tensor of rank %d",
                                  (long long)axes[i], rank);
        if (by == 0) return wok_infer_fail(infer, WOK_ERR_VALUE, "a step is 0");
        touched[axis] = true;
        start[axis] = s[i];
        end[axis] = e[i];
        step[axis] = by;
    }
    return WOK_OK;
}

static void slice_ints(wok_infer *infer, int64_t start, int64_t end, int64_t step) {
    int64_t ints[WOK_MAX_INTS], y[WOK_MAX_INTS], s, e, size;
    int count;
    if (!wok_infer_ints(infer, 0, ints, &count)) return;
    if (!wok_dim_is_number(start, &s) || !wok_dim_is_number(end, &e)) return;
    clamp_slice(count, &s, &e, step, &size);
    for (int64_t i = 0; i < size; i++) y[i] = ints[s + i * step];
    wok_infer_set_ints(infer, 0, y, (int)size);
}

wok_status wok_infer_slice(wok_infer *infer) {
    WOK_TRY(wok_infer_need(infer, 3));
    const wok_type *x = infer->in[0];
    int64_t start[WOK_MAX_RANK], end[WOK_MAX_RANK], step[WOK_MAX_RANK], dims[WOK_MAX_RANK];
    bool touched[WOK_MAX_RANK] = {false}, known;
    infer->out[0].dtype = x->dtype;
    if (x->rank < 0) return WOK_OK;
    WOK_TRY(read_slice(infer, x->rank, start, end, step, touched, &known));
    int64_t axes[WOK_MAX_INTS];
    int named = infer->in[3] ? wok_infer_numbers(infer, 3, axes, WOK_MAX_INTS) : 0;
    for (int d = 0; d < x->rank; d++) {
        bool maybe = !known && named <= 0; /* nothing is known of this axis */
        for (int i = 0; i < named && !known; i++) maybe = maybe || wok_axis(axes[i], x->rank) == d;
        dims[d] = maybe        ? wok_infer_unknown(infer)
                  : touched[d] ? slice_size(infer, x->dims[d], start[d], end[d], step[d])
                               : x->dims[d];
    }
    wok_infer_out(infer, 0, x->dtype, x->rank, dims);
    if (known && x->rank == 1 && touched[0]) slice_ints(infer, start[0], end[0], step[0]);
    return WOK_OK;
}

static wok_status slice_run(wok_call *call) {
    const wok_tensor *x = call->in[0], *y = call->out[0];
    int64_t starts[WOK_MAX_INTS], ends[WOK_MAX_INTS], axes[WOK_MAX_INTS], steps[WOK_MAX_INTS], step[WOK_MAX_RANK],
        at = 0;
    int n = wok_call_ints(call, 1, starts, WOK_MAX_INTS), n_axes = wok_call_ints(call, 3, axes, WOK_MAX_INTS);
    int n_steps = wok_call_ints(call, 4, steps, WOK_MAX_INTS);
    if (wok_call_ints(call, 2, ends, WOK_MAX_INTS) != n || (n_axes >= 0 && n_axes != n) ||
        (n_steps >= 0 && n_steps != n) || (n_axes < 0 && n > x->rank))
        return wok_call_fail(call, WOK_ERR_SHAPE, "starts, ends, axes and steps do not fit each other");
    wok_row_major(x->dims, x->rank, step);
    for (int i = 0; i < n; i++) {
        int axis = n_axes >= 0 ? wok_axis(axes[i], x->rank) : i;
        int64_t by = n_steps >= 0 ? steps[i] : 1, count;
        if (axis < 0 || by == 0) return wok_call_fail(call, WOK_ERR_VALUE, "an axis is out of range, or a step is 0");
        clamp_slice(x->dims[axis], &starts[i], &ends[i], by, &count);
        if (count <= 0) return WOK_OK;
        at += starts[i] * step[axis];
        step[axis] *= count == 1 ? 1 : by;
    }
    size_t size = wok_dtype_size(x->dtype);
    if (y->bytes)
        wok_copy_strided(y->data, (const char *)x->data + (size_t)at * size, y->dims, step, x->rank, size,
                         call->parallel);
    return WOK_OK;
}

const wok_op_impl *const wok_impls_slice[] = {
    &(const wok_op_impl){.name = "copy", .accept = accept_bytes, .run = slice_run},
    NULL,
};

/* ---- Expand, Tile ------------------------------------------------------------------------------------------------ */

wok_status wok_infer_expand(wok_infer *infer) {
    WOK_TRY(wok_infer_need(infer, 2));
    const wok_type *x = infer->in[0];
    wok_type target = {.dtype = WOK_I64};
    int64_t dims[WOK_MAX_RANK], want[WOK_MAX_INTS], number;
    int rank = x->rank;
    infer->out[0].dtype = x->dtype;
    if (rank < 0 || !wok_infer_ints(infer, 1, want, &target.rank)) return WOK_OK;
    if (target.rank > WOK_MAX_RANK)
        return wok_infer_fail(infer, WOK_ERR_UNSUPPORTED, "the target has rank %d, more than %d", target.rank,
                              WOK_MAX_RANK);
    memcpy(dims, x->dims, sizeof dims);
    memcpy(target.dims, want, (size_t)target.rank * sizeof *want);
    for (int d = 0; d < target.rank; d++)
        if (wok_dim_is_number(target.dims[d], &number) && number < 0)
            return wok_infer_fail(infer, WOK_ERR_VALUE, "target size %lld", (long long)number);
    WOK_TRY(wok_infer_broadcast(infer, dims, &rank, &target));
    wok_infer_out(infer, 0, x->dtype, rank, dims);
    int64_t ints[WOK_MAX_INTS];
    int count;
    if (rank == 1 && wok_dim_known(dims[0]) && dims[0] <= WOK_MAX_INTS && wok_infer_ints(infer, 0, ints, &count) &&
        count) {
        for (int64_t i = count; i < dims[0]; i++) ints[i] = ints[0];
        wok_infer_set_ints(infer, 0, ints, (int)dims[0]);
    }
    return WOK_OK;
}

static wok_status expand_run(wok_call *call) {
    const wok_tensor *y = call->out[0];
    copy_job job = {y->data, call->in[0]->data, wok_dtype_size(y->dtype)};
    wok_walk walk;
    wok_walk_init(&walk, y->dims, y->rank, call->in, 1);
    wok_walk_run(&walk, copy_piece, &job, call->parallel);
    return WOK_OK;
}

const wok_op_impl *const wok_impls_expand[] = {
    &(const wok_op_impl){.name = "copy", .accept = accept_bytes, .run = expand_run},
    NULL,
};

wok_status wok_infer_tile(wok_infer *infer) {
    WOK_TRY(wok_infer_need(infer, 2));
    const wok_type *x = infer->in[0];
    int64_t repeats[WOK_MAX_INTS], dims[WOK_MAX_RANK], number;
    int count;
    infer->out[0].dtype = x->dtype;
    if (x->rank < 0) return WOK_OK;
    bool known = wok_infer_ints(infer, 1, repeats, &count);
    if (known && count != x->rank)
        return wok_infer_fail(infer, WOK_ERR_SHAPE, "%d repeats for a tensor of rank %d", count, x->rank);
    for (int d = 0; d < x->rank; d++) {
        if (known && wok_dim_is_number(repeats[d], &number) && number < 0)
            return wok_infer_fail(infer, WOK_ERR_VALUE, "%lld repeats", (long long)number);
        dims[d] = !known                               ? wok_infer_unknown(infer)
                  : repeats[d] == 0 || x->dims[d] == 0 ? 0
                                                       : wok_dim_mul(infer->graph, x->dims[d], repeats[d]);
    }
    wok_infer_out(infer, 0, x->dtype, x->rank, dims);
    return WOK_OK;
}

/* The output as [repeat, size] for every dimension: repeats have step 0. */
static wok_status tile_run(wok_call *call) {
    const wok_tensor *x = call->in[0], *y = call->out[0];
    int64_t from[WOK_MAX_RANK], dims[WOK_WALK_RANK], step[WOK_WALK_RANK];
    if (!y->bytes) return WOK_OK;
    wok_row_major(x->dims, x->rank, from);
    for (int d = 0; d < x->rank; d++) {
        dims[2 * d] = y->dims[d] / x->dims[d];
        step[2 * d] = 0;
        dims[2 * d + 1] = x->dims[d];
        step[2 * d + 1] = from[d];
    }
    wok_copy_strided(y->data, x->data, dims, step, 2 * x->rank, wok_dtype_size(x->dtype), call->parallel);
    return WOK_OK;
}

const wok_op_impl *const wok_impls_tile[] = {
    &(const wok_op_impl){.name = "copy", .accept = accept_bytes, .run = tile_run},
    NULL,
};

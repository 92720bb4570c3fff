/* gather.c - reading by index: Gather, GatherElements, GatherND. An index outside its axis is an error that gives the
 * value; nothing is read before all indices have been checked. */
#include "ops.h"

#include <string.h>

static const char *accept_bytes(const wok_prepare *prepare) {
    return prepare->in[0] && wok_dtype_size(prepare->in[0]->dtype) ? NULL : "the element type is not one to copy";
}

static wok_status check_indices(wok_infer *infer) {
    WOK_TRY(wok_infer_need(infer, 2));
    wok_dtype dtype = infer->in[1]->dtype;
    if (dtype && dtype != WOK_I64 && dtype != WOK_I32)
        return wok_infer_fail(infer, WOK_ERR_SHAPE, "indices are %s, not i32 or i64", wok_dtype_name(dtype));
    return WOK_OK;
}

static wok_status bad_index(wok_call *call, int64_t index, int64_t dim) {
    return wok_call_fail(call, WOK_ERR_VALUE, "index %lld is outside [%lld, %lld]", (long long)index, (long long)-dim,
                         (long long)dim - 1);
}

/* Index `i` of a tensor of indices, counted from the end where negative; -1: outside the axis. */
static int64_t read_index(const wok_tensor *indices, int64_t i, int64_t dim) {
    int64_t index =
        indices->dtype == WOK_I64 ? ((const int64_t *)indices->data)[i] : ((const int32_t *)indices->data)[i];
    if (index < 0 && index >= -dim) index += dim;
    return index >= 0 && index < dim ? index : -1;
}

static wok_status check_all(wok_call *call, const wok_tensor *indices, int64_t dim) {
    int64_t n = wok_tensor_count(indices);
    for (int64_t i = 0; i < n; i++)
        if (read_index(indices, i, dim) < 0) return bad_index(call, wok_get_i64(indices->dtype, indices->data, i), dim);
    return WOK_OK;
}

/* ---- Gather ------------------------------------------------------------------------------------------------------ */

static void gather_ints(wok_infer *infer) {
    int64_t ints[WOK_MAX_INTS], at[WOK_MAX_INTS], y[WOK_MAX_INTS];
    int count, n = wok_infer_numbers(infer, 1, at, WOK_MAX_INTS);
    if (n < 0 || !wok_infer_ints(infer, 0, ints, &count)) return;
    for (int i = 0; i < n; i++) {
        int64_t index = at[i] < 0 ? at[i] + count : at[i];
        if (index < 0 || index >= count) return; /* the run says which */
        y[i] = ints[index];
    }
    wok_infer_set_ints(infer, 0, y, n);
}

wok_status wok_infer_gather(wok_infer *infer) {
    WOK_TRY(check_indices(infer));
    const wok_type *x = infer->in[0], *indices = infer->in[1];
    int64_t dims[2 * WOK_MAX_RANK];
    int axis, rank = 0;
    infer->out[0].dtype = x->dtype;
    if (x->rank < 0 || indices->rank < 0) return WOK_OK;
    WOK_TRY(wok_infer_axis(infer, "axis", 0, x->rank, &axis));
    for (int d = 0; d < axis; d++) dims[rank++] = x->dims[d];
    for (int d = 0; d < indices->rank; d++) dims[rank++] = indices->dims[d];
    for (int d = axis + 1; d < x->rank; d++) dims[rank++] = x->dims[d];
    wok_infer_out(infer, 0, x->dtype, rank, dims);
    if (x->rank == 1 && !wok_dtype_is_float(x->dtype)) gather_ints(infer);
    return WOK_OK;
}

typedef struct gather_job {
    const wok_call *call;
    int64_t outer, dim, count, tasks;
    size_t run; /* bytes copied for an index */
} gather_job;

static void gather_task(void *arg, int64_t task, int worker) {
    const gather_job *job = arg;
    const wok_tensor *indices = job->call->in[1];
    const char *x = job->call->in[0]->data;
    char *y = job->call->out[0]->data;
    int64_t begin, end;
    (void)worker;
    wok_parallel_range(job->outer * job->count, 1, task, job->tasks, &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        int64_t from = t / job->count * job->dim + read_index(indices, t % job->count, job->dim);
        memcpy(y + (size_t)t * job->run, x + (size_t)from * job->run, job->run);
    }
}

static wok_status gather_run(wok_call *call) {
    const wok_tensor *x = call->in[0], *indices = call->in[1];
    int axis = wok_axis(wok_ir_int(call->node, "axis", 0), x->rank);
    gather_job job = {.call = call,
                      .outer = wok_dims_product(x->dims, 0, axis),
                      .dim = x->dims[axis],
                      .count = wok_tensor_count(indices)};
    job.run = (size_t)wok_dims_product(x->dims, axis + 1, x->rank) * wok_dtype_size(x->dtype);
    WOK_TRY(check_all(call, indices, job.dim));
    int64_t most = 4 * (int64_t)wok_parallel_threads(call->parallel);
    job.tasks = (int64_t)(call->out[0]->bytes >> 16) + 1;
    if (job.tasks > most) job.tasks = most;
    if (call->out[0]->bytes) wok_parallel_for(call->parallel, gather_task, &job, job.tasks);
    return WOK_OK;
}

const wok_op_impl *const wok_impls_gather[] = {
    &(const wok_op_impl){.name = "copy", .flags = WOK_IMPL_UNALIGNED_0, .accept = accept_bytes, .run = gather_run},
    NULL,
};

/* ---- GatherElements ---------------------------------------------------------------------------------------------- */

wok_status wok_infer_gather_elements(wok_infer *infer) {
    WOK_TRY(check_indices(infer));
    const wok_type *x = infer->in[0], *indices = infer->in[1];
    int axis;
    infer->out[0].dtype = x->dtype;
    if (x->rank >= 0) WOK_TRY(wok_infer_axis(infer, "axis", 0, x->rank, &axis));
    if (x->rank >= 0 && indices->rank >= 0 && x->rank != indices->rank)
        return wok_infer_fail(infer, WOK_ERR_SHAPE, "data %s, indices %s", wok_type_text(infer->graph, x),
                              wok_type_text(infer->graph, indices));
    for (int d = 0; d < x->rank && indices->rank >= 0; d++)
        if (d != axis && wok_dim_known(x->dims[d]) && wok_dim_known(indices->dims[d]) && indices->dims[d] > x->dims[d])
            return wok_infer_fail(infer, WOK_ERR_SHAPE, "data %s, indices %s", wok_type_text(infer->graph, x),
                                  wok_type_text(infer->graph, indices));
    wok_infer_out(infer, 0, x->dtype, indices->rank, indices->dims);
    return WOK_OK;
}

static wok_status gather_elements_run(wok_call *call) {
    const wok_tensor *x = call->in[0], *indices = call->in[1], *y = call->out[0];
    int axis = wok_axis(wok_ir_int(call->node, "axis", 0), x->rank);
    size_t size = wok_dtype_size(x->dtype);
    int64_t step[WOK_MAX_RANK], n = wok_tensor_count(indices);
    WOK_TRY(check_all(call, indices, x->dims[axis]));
    wok_row_major(x->dims, x->rank, step);
    for (int64_t i = 0; i < n; i++) {
        int64_t rest = i, from = read_index(indices, i, x->dims[axis]) * step[axis];
        for (int d = x->rank - 1; d >= 0; d--) {
            if (d != axis) from += rest % indices->dims[d] * step[d];
            rest /= indices->dims[d];
        }
        memcpy((char *)y->data + (size_t)i * size, (const char *)x->data + (size_t)from * size, size);
    }
    return WOK_OK;
}

const wok_op_impl *const wok_impls_gather_elements[] = {
    &(const wok_op_impl){
        .name = "copy", .flags = WOK_IMPL_UNALIGNED_0, .accept = accept_bytes, .run = gather_elements_run},
    NULL,
};

/* ---- GatherND ---------------------------------------------------------------------------------------------------- */

wok_status wok_infer_gather_nd(wok_infer *infer) {
    WOK_TRY(check_indices(infer));
    const wok_type *x = infer->in[0], *indices = infer->in[1];
    int64_t batch = wok_ir_int(infer->node, "batch_dims", 0), dims[2 * WOK_MAX_RANK];
    int rank = 0;
    infer->out[0].dtype = x->dtype;
    if (x->rank < 0 || indices->rank < 0) return WOK_OK;
    if (indices->rank < 1 || batch < 0 || batch >= indices->rank || batch >= x->rank)
        return wok_infer_fail(infer, WOK_ERR_SHAPE, "data %s, indices %s, %lld batch dimensions",
                              wok_type_text(infer->graph, x), wok_type_text(infer->graph, indices), (long long)batch);
    int64_t depth = indices->dims[indices->rank - 1];
    if (!wok_dim_known(depth)) return WOK_OK;
    if (depth < 1 || depth > x->rank - batch)
        return wok_infer_fail(infer, WOK_ERR_SHAPE, "indices of %lld numbers into %s", (long long)depth,
                              wok_type_text(infer->graph, x));
    for (int d = 0; d < indices->rank - 1; d++) dims[rank++] = indices->dims[d];
    for (int d = 0; d < batch; d++) {
        if (!wok_dim_known(dims[d])) dims[d] = x->dims[d];
        if (wok_dim_known(x->dims[d]) && wok_dim_known(dims[d]) && x->dims[d] != dims[d])
            return wok_infer_fail(infer, WOK_ERR_SHAPE, "batch dimension %d of data %s and indices %s differs", d,
                                  wok_type_text(infer->graph, x), wok_type_text(infer->graph, indices));
    }
    for (int d = (int)(batch + depth); d < x->rank; d++) dims[rank++] = x->dims[d];
    wok_infer_out(infer, 0, x->dtype, rank, dims);
    return WOK_OK;
}

static wok_status gather_nd_run(wok_call *call) {
    const wok_tensor *x = call->in[0], *indices = call->in[1];
    int batch = (int)wok_ir_int(call->node, "batch_dims", 0), depth = (int)indices->dims[indices->rank - 1];
    int64_t step[WOK_MAX_RANK], batches = wok_dims_product(x->dims, 0, batch);
    int64_t tuples = wok_dims_product(indices->dims, batch, indices->rank - 1);
    wok_row_major(x->dims, x->rank, step);
    size_t size = wok_dtype_size(x->dtype), run = (size_t)step[batch + depth - 1] * size;
    char *y = call->out[0]->data;
    for (int64_t t = 0; t < batches * tuples; t++) {
        int64_t from = batch ? t / tuples * step[batch - 1] : 0;
        for (int d = 0; d < depth; d++) {
            int64_t dim = x->dims[batch + d], index = read_index(indices, t * depth + d, dim);
            if (index < 0) return bad_index(call, wok_get_i64(indices->dtype, indices->data, t * depth + d), dim);
            from += index * step[batch + d];
        }
        if (run) memcpy(y + (size_t)t * run, (const char *)x->data + (size_t)from * size, run);
    }
    return WOK_OK;
}

const wok_op_impl *const wok_impls_gather_nd[] = {
    &(const wok_op_impl){.name = "copy", .flags = WOK_IMPL_UNALIGNED_0, .accept = accept_bytes, .run = gather_nd_run},
    NULL,
};

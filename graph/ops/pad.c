/* pad.c - Pad, DepthToSpace, SpaceToDepth. */
#include "ops.h"

#include <string.h>

/* ---- Pad --------------------------------------------------------------------------------------------------------- */

/* pads per axis, before and after, from the input's order: all begins, then all ends, of `axes` (NULL: all in
 * order). */
static bool spread_pads(const int64_t *pads, int count, const int64_t *axes, int axis_count, int rank, int64_t *before,
                        int64_t *after) {
    int n = axes ? axis_count : rank;
    if (count != 2 * n) return false;
    for (int d = 0; d < rank; d++) before[d] = after[d] = 0;
    for (int i = 0; i < n; i++) {
        int axis = axes ? wok_axis(axes[i], rank) : i;
        if (axis < 0) return false;
        before[axis] = pads[i];
        after[axis] = pads[n + i];
    }
    return true;
}

wok_status wok_infer_pad(wok_infer *infer) {
    WOK_TRY(wok_infer_need(infer, 2));
    const wok_type *x = infer->in[0];
    const char *mode = wok_ir_string(infer->node, "mode", "constant");
    int64_t pads[WOK_MAX_INTS], axes[WOK_MAX_INTS], before[WOK_MAX_RANK], after[WOK_MAX_RANK], dims[WOK_MAX_RANK];
    if (strcmp(mode, "constant") && strcmp(mode, "reflect") && strcmp(mode, "edge") && strcmp(mode, "wrap"))
        return wok_infer_fail(infer, WOK_ERR_UNSUPPORTED, "mode \"%s\"", mode);
    infer->out[0].dtype = x->dtype;
    if (x->rank < 0) return WOK_OK;
    int count = wok_infer_numbers(infer, 1, pads, WOK_MAX_INTS);
    int axis_count = infer->in[3] ? wok_infer_numbers(infer, 3, axes, WOK_MAX_INTS) : 0;
    bool known = count >= 0 && axis_count >= 0;
    if (known && !spread_pads(pads, count, infer->in[3] ? axes : NULL, axis_count, x->rank, before, after))
        return wok_infer_fail(infer, WOK_ERR_SHAPE, "%d pads do not fit a tensor of rank %d", count, x->rank);
    for (int d = 0; d < x->rank; d++) {
        dims[d] = wok_infer_unknown(infer);
        if (!known) continue;
        int64_t more, extra;
        if (__builtin_add_overflow(before[d], after[d], &more) || before[d] < -INT32_MAX || after[d] < -INT32_MAX ||
            (wok_dim_known(x->dims[d]) && __builtin_add_overflow(x->dims[d], more, &extra)))
            return wok_infer_fail(infer, WOK_ERR_VALUE, "a pad is out of range");
        if (wok_dim_known(x->dims[d]) && x->dims[d] + more < 0)
            return wok_infer_fail(infer, WOK_ERR_SHAPE, "axis %d of size %lld is cut by %lld", d, (long long)x->dims[d],
                                  (long long)-more);
        if (wok_dim_known(x->dims[d]) && x->dims[d] == 0 && more > 0 && strcmp(mode, "constant"))
            return wok_infer_fail(infer, WOK_ERR_SHAPE, "axis %d is empty: nothing to repeat", d);
        dims[d] = more < 0 ? wok_dim_sub(infer->graph, x->dims[d], -more) : wok_dim_add(infer->graph, x->dims[d], more);
    }
    wok_infer_out(infer, 0, x->dtype, x->rank, dims);
    return WOK_OK;
}

enum pad_mode { PAD_CONSTANT, PAD_REFLECT, PAD_EDGE, PAD_WRAP };

/* Where output position `at` of an axis comes from; -1: the constant. */
static int64_t pad_source(enum pad_mode mode, int64_t at, int64_t before, int64_t dim) {
    int64_t i = at - before;
    if (i >= 0 && i < dim) return i;
    if (mode == PAD_CONSTANT) return -1;
    if (mode == PAD_EDGE || dim == 1) return i < 0 ? 0 : dim - 1;
    int64_t period = mode == PAD_WRAP ? dim : 2 * (dim - 1);
    i %= period;
    if (i < 0) i += period;
    return i < dim ? i : period - i;
}

/* The source position of every output position, axis after axis. */
static size_t pad_workspace(const wok_call *call) {
    size_t positions = 0;
    for (int d = 0; d < call->out[0]->rank; d++) positions += (size_t)call->out[0]->dims[d];
    return positions * sizeof(int64_t);
}

static wok_status pad_maps(wok_call *call, int64_t **map) {
    const wok_tensor *x = call->in[0], *y = call->out[0];
    const char *mode = wok_ir_string(call->node, "mode", "constant");
    enum pad_mode how = !strcmp(mode, "constant")  ? PAD_CONSTANT
                        : !strcmp(mode, "reflect") ? PAD_REFLECT
                        : !strcmp(mode, "edge")    ? PAD_EDGE
                                                   : PAD_WRAP;
    int64_t pads[WOK_MAX_INTS], axes[WOK_MAX_INTS], before[WOK_MAX_RANK], after[WOK_MAX_RANK], *next = call->workspace;
    int count = wok_call_ints(call, 1, pads, WOK_MAX_INTS), axis_count = wok_call_ints(call, 3, axes, WOK_MAX_INTS);
    if (!spread_pads(pads, count, axis_count < 0 ? NULL : axes, axis_count, x->rank, before, after))
        return wok_call_fail(call, WOK_ERR_SHAPE, "the pads do not fit a tensor of rank %d", x->rank);
    for (int d = 0; d < x->rank; d++) {
        map[d] = next;
        for (int64_t i = 0; i < y->dims[d]; i++) *next++ = pad_source(how, i, before[d], x->dims[d]);
    }
    return WOK_OK;
}

/* One row of the output: runs of neighbours are copied whole. */
static void pad_row(char *y, const char *x, const int64_t *map, int64_t n, size_t size, const void *value) {
    for (int64_t i = 0, run; i < n; i += run) {
        run = 1;
        if (map[i] < 0 || !x) {
            while (i + run < n && (!x || map[i + run] < 0)) run++;
            wok_copy_step(y + (size_t)i * size, value, 0, run, size);
        } else {
            while (i + run < n && map[i + run] == map[i] + run) run++;
            memcpy(y + (size_t)i * size, x + (size_t)map[i] * size, (size_t)run * size);
        }
    }
}

static wok_status pad_run(wok_call *call) {
    const wok_tensor *x = call->in[0], *y = call->out[0], *c = call->in_count > 2 ? call->in[2] : NULL;
    size_t size = wok_dtype_size(x->dtype);
    uint64_t zero = 0;
    const void *value = c && c->bytes ? c->data : &zero;
    int64_t *map[WOK_MAX_RANK], step[WOK_MAX_RANK];
    if (!y->bytes) return WOK_OK;
    if (y->rank == 0) {
        memcpy(y->data, x->data, size);
        return WOK_OK;
    }
    WOK_TRY(pad_maps(call, map));
    wok_row_major(x->dims, x->rank, step);
    int last = y->rank - 1;
    int64_t n = y->dims[last], rows = wok_dims_product(y->dims, 0, last);
    for (int64_t r = 0; r < rows; r++) {
        int64_t rest = r, from = 0;
        bool inside = true;
        for (int d = last - 1; d >= 0; d--) {
            int64_t at = map[d][rest % y->dims[d]];
            rest /= y->dims[d];
            inside = inside && at >= 0;
            if (inside) from += at * step[d];
        }
        pad_row((char *)y->data + (size_t)(r * n) * size, inside ? (const char *)x->data + (size_t)from * size : NULL,
                map[last], n, size, value);
    }
    return WOK_OK;
}

static const char *accept_bytes(const wok_prepare *prepare) {
    return prepare->in[0] && wok_dtype_size(prepare->in[0]->dtype) ? NULL : "the element type is not one to copy";
}

const wok_op_impl *const wok_impls_pad[] = {
    &(const wok_op_impl){.name = "copy", .accept = accept_bytes, .workspace = pad_workspace, .run = pad_run},
    NULL,
};

/* ---- DepthToSpace, SpaceToDepth ---------------------------------------------------------------------------------- */

static wok_status check_blocks(wok_infer *infer, int64_t *block) {
    const wok_type *x = infer->in[0];
    *block = wok_ir_int(infer->node, "blocksize", 0);
    if (*block < 1 || *block > 1 << 20)
        return wok_infer_fail(infer, WOK_ERR_VALUE, "blocksize %lld", (long long)*block);
    if (x->rank >= 0 && x->rank != 4)
        return wok_infer_fail(infer, WOK_ERR_SHAPE, "the input has rank %d, not 4", x->rank);
    return WOK_OK;
}

static wok_status divide_dim(wok_infer *infer, int64_t *dim, int64_t by) {
    if (wok_dim_known(*dim) && *dim % by)
        return wok_infer_fail(infer, WOK_ERR_SHAPE, "size %lld is not a multiple of %lld", (long long)*dim,
                              (long long)by);
    *dim = wok_dim_div(infer->graph, *dim, by);
    return WOK_OK;
}

wok_status wok_infer_depth_to_space(wok_infer *infer) {
    int64_t block;
    WOK_TRY(wok_infer_need(infer, 1));
    WOK_TRY(check_blocks(infer, &block));
    infer->out[0] = *infer->in[0];
    infer->out[0].ints = infer->out[0].data = NULL;
    if (infer->in[0]->rank < 0) return WOK_OK;
    int64_t *dims = infer->out[0].dims;
    WOK_TRY(divide_dim(infer, &dims[1], block * block));
    dims[2] = wok_dim_mul(infer->graph, dims[2], block);
    dims[3] = wok_dim_mul(infer->graph, dims[3], block);
    return WOK_OK;
}

wok_status wok_infer_space_to_depth(wok_infer *infer) {
    int64_t block;
    WOK_TRY(wok_infer_need(infer, 1));
    WOK_TRY(check_blocks(infer, &block));
    infer->out[0] = *infer->in[0];
    infer->out[0].ints = infer->out[0].data = NULL;
    if (infer->in[0]->rank < 0) return WOK_OK;
    int64_t *dims = infer->out[0].dims;
    WOK_TRY(divide_dim(infer, &dims[2], block));
    WOK_TRY(divide_dim(infer, &dims[3], block));
    dims[1] = wok_dim_mul(infer->graph, dims[1], block * block);
    return WOK_OK;
}

/* y[n, c, h, i, w, j] = x[n, (i, j, c) or (c, i, j), h, w] */
static wok_status depth_to_space_run(wok_call *call) {
    const wok_tensor *x = call->in[0], *y = call->out[0];
    int64_t b = wok_ir_int(call->node, "blocksize", 1), c = y->dims[1], h = x->dims[2], w = x->dims[3];
    bool crd = !strcmp(wok_ir_string(call->node, "mode", "DCR"), "CRD");
    int64_t plane = h * w, step_i = crd ? b * plane : b * c * plane, step_j = crd ? plane : c * plane;
    int64_t dims[6] = {x->dims[0], c, h, b, w, b};
    int64_t step[6] = {x->dims[1] * plane, crd ? b * b * plane : plane, w, step_i, 1, step_j};
    wok_copy_strided(y->data, x->data, dims, step, 6, wok_dtype_size(x->dtype), call->parallel);
    return WOK_OK;
}

/* y[n, (i, j, c) or (c, i, j), h, w] = x[n, c, h * b + i, w * b + j] */
static wok_status space_to_depth_run(wok_call *call) {
    const wok_tensor *x = call->in[0], *y = call->out[0];
    int64_t b = wok_ir_int(call->node, "blocksize", 1), c = x->dims[1], h = y->dims[2], w = y->dims[3],
            row = x->dims[3];
    bool crd = !strcmp(wok_ir_string(call->node, "mode", "DCR"), "CRD");
    int64_t plane = x->dims[2] * row;
    int64_t dcr_dims[6] = {x->dims[0], b, b, c, h, w}, dcr_step[6] = {c * plane, row, 1, plane, b * row, b};
    int64_t crd_dims[6] = {x->dims[0], c, b, b, h, w}, crd_step[6] = {c * plane, plane, row, 1, b * row, b};
    wok_copy_strided(y->data, x->data, crd ? crd_dims : dcr_dims, crd ? crd_step : dcr_step, 6,
                     wok_dtype_size(x->dtype), call->parallel);
    return WOK_OK;
}

const wok_op_impl *const wok_impls_depth_to_space[] = {
    &(const wok_op_impl){.name = "copy", .accept = accept_bytes, .run = depth_to_space_run},
    NULL,
};
const wok_op_impl *const wok_impls_space_to_depth[] = {
    &(const wok_op_impl){.name = "copy", .accept = accept_bytes, .run = space_to_depth_run},
    NULL,
};

/* infer.c - shape inference: the driver, and the helpers that the operators' functions share (ops/ops.h). */
#include "ops/ops.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

wok_status wok_infer_fail(wok_infer *infer, wok_status status, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(infer->reason, sizeof infer->reason, format, args);
    va_end(args);
    return status;
}

/* ---- the driver -------------------------------------------------------------------------------------------------- */

static const char *node_name(const wok_ir_node *node) {
    return node->name && node->name[0] ? node->name : "(no name)";
}

static wok_status name_failure(const wok_infer *infer, wok_status status) {
    return wok_ctx_fail(infer->graph->ctx, status, "node %s (%s): %s", node_name(infer->node), infer->node->op_type,
                        infer->reason);
}

/* Types that no memory can hold are refused here, for every operator. */
static wok_status check_outputs(wok_infer *infer) {
    for (int i = 0; i < infer->out_count; i++) {
        const wok_type *out = &infer->out[i];
        if (out->rank > WOK_MAX_RANK)
            return wok_infer_fail(infer, WOK_ERR_UNSUPPORTED, "output %d has rank %d, more than %d", i, out->rank,
                                  WOK_MAX_RANK);
        bool numbers = out->rank >= 0;
        for (int d = 0; d < out->rank; d++) numbers = numbers && wok_dim_known(out->dims[d]);
        if (numbers && wok_dtype_size(out->dtype) && wok_tensor_bytes(out->dtype, out->dims, out->rank) == SIZE_MAX)
            return wok_infer_fail(infer, WOK_ERR_SHAPE, "output %d is too large: %s", i,
                                  wok_type_text(infer->graph, out));
    }
    return WOK_OK;
}

wok_status wok_infer_node(wok_graph *graph, const wok_ir_node *node, const wok_type *const *in, wok_type *out) {
    wok_infer infer = {.graph = graph, .node = node, .in_count = node->in_count, .out_count = node->out_count};
    const wok_op_info *info = wok_op_get(node->op);
    wok_status status = WOK_OK;
    if (!info)
        status = wok_infer_fail(&infer, WOK_ERR_UNSUPPORTED, "unknown operator");
    else if (node->in_count > WOK_MAX_IN || node->out_count > WOK_MAX_OUT)
        status =
            wok_infer_fail(&infer, WOK_ERR_UNSUPPORTED, "%d inputs and %d outputs; at most %d and %d are supported",
                           node->in_count, node->out_count, WOK_MAX_IN, WOK_MAX_OUT);
    if (status != WOK_OK) return name_failure(&infer, status);
    for (int i = 0; i < node->in_count; i++) infer.in[i] = in[i];
    for (int i = 0; i < node->out_count; i++) infer.out[i].rank = -1;
    status = info->infer(&infer);
    if (status == WOK_OK) status = check_outputs(&infer);
    if (status != WOK_OK) return name_failure(&infer, status);
    for (int i = 0; i < node->out_count; i++) out[i] = infer.out[i];
    return graph->status;
}

wok_status wok_infer_graph(wok_graph *graph) {
    for (wok_node n = 0; n < graph->node_count; n++) {
        const wok_ir_node *node = &graph->nodes[n];
        if (node->dead) continue;
        const wok_type *in[WOK_MAX_IN];
        wok_type out[WOK_MAX_OUT];
        for (int i = 0; i < node->in_count && i < WOK_MAX_IN; i++)
            in[i] = node->in[i] == WOK_ABSENT ? NULL : &graph->values[node->in[i]].type;
        WOK_TRY(wok_infer_node(graph, node, in, out));
        for (int i = 0; i < node->out_count; i++)
            if (node->out[i] != WOK_ABSENT) graph->values[node->out[i]].type = out[i];
    }
    return WOK_OK;
}

/* ---- inputs ------------------------------------------------------------------------------------------------------ */

wok_status wok_infer_need(wok_infer *infer, int count) {
    for (int i = 0; i < count; i++)
        if (!infer->in[i]) return wok_infer_fail(infer, WOK_ERR_SHAPE, "input %d is missing", i);
    return WOK_OK;
}

/* How many elements input i has; -1 if not known. */
static int64_t element_count(const wok_type *type) {
    return type && type->rank >= 0 ? wok_count(type->dims, type->rank) : -1;
}

bool wok_infer_ints(wok_infer *infer, int i, int64_t *ints, int *count) {
    const wok_type *type = infer->in[i];
    int64_t n = element_count(type);
    if (n < 0 || n > WOK_MAX_INTS || wok_dtype_is_float(type->dtype)) return false;
    if (type->data) {
        wok_load_i64(type->dtype, type->data, 0, 1, n, ints);
        for (int64_t k = 0; k < n; k++) ints[k] = wok_dim_number(ints[k]);
    } else if (type->ints) {
        memcpy(ints, type->ints, (size_t)n * sizeof *ints);
    } else if (n) {
        return false;
    }
    *count = (int)n;
    return true;
}

int wok_infer_numbers(wok_infer *infer, int i, int64_t *numbers, int max) {
    const wok_type *type = infer->in[i];
    int64_t n = element_count(type), ints[WOK_MAX_INTS];
    int count;
    if (n < 0 || n > max || wok_dtype_is_float(type->dtype)) return -1;
    if (type->data) {
        wok_load_i64(type->dtype, type->data, 0, 1, n, numbers);
        return (int)n;
    }
    if (!wok_infer_ints(infer, i, ints, &count)) return -1;
    for (int k = 0; k < count; k++)
        if (!wok_dim_is_number(ints[k], &numbers[k])) return -1;
    return count;
}

int wok_infer_floats(wok_infer *infer, int i, double *values, int max) {
    const wok_type *type = infer->in[i];
    int64_t n = element_count(type);
    if (n < 0 || n > max || (n && !type->data)) return -1;
    if (n) wok_load_f64(type->dtype, type->data, 0, 1, n, values);
    return (int)n;
}

int wok_axis(int64_t axis, int rank) {
    return axis >= -rank && axis < rank ? (int)(axis < 0 ? axis + rank : axis) : -1;
}

wok_status wok_infer_axis(wok_infer *infer, const char *name, int64_t fallback, int rank, int *axis) {
    int64_t value = wok_ir_int(infer->node, name, fallback);
    *axis = wok_axis(value, rank);
    if (*axis < 0)
        return wok_infer_fail(infer, WOK_ERR_SHAPE, "%s %lld is outside a tensor of rank %d", name, (long long)value,
                              rank);
    return WOK_OK;
}

/* ---- outputs ----------------------------------------------------------------------------------------------------- */

void wok_infer_out(wok_infer *infer, int i, wok_dtype dtype, int rank, const int64_t *dims) {
    if (i >= infer->out_count) return;
    wok_type *out = &infer->out[i];
    *out = (wok_type){.dtype = dtype, .rank = rank};
    for (int d = 0; d < rank && d < WOK_MAX_RANK; d++) out->dims[d] = dims[d];
}

void wok_infer_set_ints(wok_infer *infer, int i, const int64_t *ints, int count) {
    if (i >= infer->out_count || count > WOK_MAX_INTS) return;
    for (int k = 0; k < count; k++)
        if (ints[k] == wok_dim_number(INT64_MIN)) return; /* one that was too small to be written exactly */
    int64_t *copy = wok_arena_alloc(infer->graph->arena, (size_t)(count ? count : 1) * sizeof *copy);
    if (!copy) return; /* they are only known less well */
    memcpy(copy, ints, (size_t)count * sizeof *copy);
    infer->out[i].ints = copy;
}

int64_t wok_infer_product(wok_infer *infer, const int64_t *dims, int from, int to) {
    int64_t product = 1;
    for (int d = from; d < to; d++) {
        if (dims[d] == 0) return 0;
        product = wok_dim_mul(infer->graph, product, dims[d]);
    }
    return product;
}

/* NumPy's rule for two sizes. A symbol against a number other than 1 is that number: anything else fails at run time,
 * when both are numbers. Two symbols stay open. -1 (no symbol is made of it) where they do not fit. */
static bool broadcast_dim(wok_graph *graph, int64_t a, int64_t b, int64_t *dim) {
    if (a == b || b == 1) {
        *dim = a;
    } else if (a == 1) {
        *dim = b;
    } else if (wok_dim_known(a) && wok_dim_known(b)) {
        return false;
    } else if (wok_dim_known(a) || wok_dim_known(b)) {
        *dim = wok_dim_known(a) ? a : b;
    } else {
        int64_t pair[2] = {a < b ? a : b, a < b ? b : a};
        *dim = wok_dim_call(graph, "broadcast", pair, 2);
    }
    return true;
}

wok_status wok_infer_broadcast(wok_infer *infer, int64_t *dims, int *rank, const wok_type *type) {
    if (*rank < 0 || type->rank < 0) {
        *rank = -1;
        return WOK_OK;
    }
    int more = type->rank - *rank;
    if (more > 0) {
        memmove(dims + more, dims, (size_t)*rank * sizeof *dims);
        for (int d = 0; d < more; d++) dims[d] = 1;
        *rank = type->rank;
    }
    wok_type before = {.rank = *rank};
    memcpy(before.dims, dims, (size_t)*rank * sizeof *dims);
    for (int d = 0; d < type->rank; d++) {
        int64_t *dim = &dims[*rank - type->rank + d];
        if (!broadcast_dim(infer->graph, *dim, type->dims[d], dim))
            return wok_infer_fail(infer, WOK_ERR_SHAPE, "shapes %s and %s do not broadcast",
                                  wok_type_text(infer->graph, &before), wok_type_text(infer->graph, type));
    }
    return WOK_OK;
}

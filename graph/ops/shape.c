/* shape.c - operators on shapes, and those that give the same bytes another shape. */
#include "ops.h"

#include <math.h>
#include <string.h>

/* out[i] has the elements of in[0], in order. */
static void pass_ints(wok_infer *infer) {
    int64_t ints[WOK_MAX_INTS];
    int count;
    if (wok_infer_ints(infer, 0, ints, &count)) wok_infer_set_ints(infer, 0, ints, count);
}

/* ---- views ------------------------------------------------------------------------------------------------------- */

wok_status wok_infer_identity(wok_infer *infer) {
    WOK_TRY(wok_infer_need(infer, 1));
    wok_infer_out(infer, 0, infer->in[0]->dtype, infer->in[0]->rank, infer->in[0]->dims);
    pass_ints(infer);
    return WOK_OK;
}

/* The sizes that the target gives, 0 and -1 not yet replaced; *guess: the position of -1. */
static wok_status read_target(wok_infer *infer, int64_t *dims, int rank, int *guess) {
    const wok_type *x = infer->in[0];
    bool allow_zero = wok_ir_int(infer->node, "allowzero", 0);
    *guess = -1;
    for (int d = 0; d < rank; d++) {
        int64_t n;
        if (!wok_dim_is_number(dims[d], &n)) continue;
        if (n < -1) return wok_infer_fail(infer, WOK_ERR_VALUE, "target size %lld", (long long)n);
        if (n == -1) {
            if (*guess >= 0) return wok_infer_fail(infer, WOK_ERR_VALUE, "two sizes of the target are -1");
            *guess = d;
        } else if (n == 0 && !allow_zero) {
            if (x->rank >= 0 && d >= x->rank)
                return wok_infer_fail(infer, WOK_ERR_VALUE, "size %d of the target is 0, but the input has rank %d", d,
                                      x->rank);
            dims[d] = x->rank >= 0 ? x->dims[d] : wok_infer_unknown(infer);
        }
    }
    return WOK_OK;
}

static wok_status reshape_mismatch(wok_infer *infer, const int64_t *dims, int rank, int guess) {
    wok_type target = {.rank = rank};
    memcpy(target.dims, dims, (size_t)rank * sizeof *dims);
    if (guess >= 0) target.dims[guess] = -1;
    return wok_infer_fail(infer, WOK_ERR_SHAPE, "%s cannot take the shape %s%s",
                          wok_type_text(infer->graph, infer->in[0]), wok_type_text(infer->graph, &target),
                          guess >= 0 ? " (one size is left open)" : "");
}

/* dims[guess] = elements of x / product of the others. Sizes that stand on both sides are struck out first: symbols
 * divide best where nothing has to be multiplied. */
static wok_status fill_guess(wok_infer *infer, int64_t *dims, int rank, int guess) {
    const wok_type *x = infer->in[0];
    int64_t others[WOK_MAX_RANK], all[WOK_MAX_RANK];
    int other_count = 0, count = x->rank;
    memcpy(all, x->dims, (size_t)count * sizeof *all);
    for (int d = 0; d < rank; d++) {
        if (d == guess) continue;
        int same = 0;
        while (same < count && (all[same] != dims[d] || dims[d] == 0)) same++;
        if (same < count)
            all[same] = all[--count];
        else
            others[other_count++] = dims[d];
    }
    int64_t total = wok_infer_product(infer, all, 0, count), rest = wok_infer_product(infer, others, 0, other_count);
    bool numbers = wok_dim_known(total) && wok_dim_known(rest);
    if (numbers && (rest == 0 ? total != 0 : total % rest != 0)) return reshape_mismatch(infer, dims, rank, guess);
    dims[guess] = rest == 1 ? total : rest == 0 ? 0 : wok_dim_div(infer->graph, total, rest);
    return WOK_OK;
}

wok_status wok_infer_reshape(wok_infer *infer) {
    WOK_TRY(wok_infer_need(infer, 2));
    const wok_type *x = infer->in[0], *shape = infer->in[1];
    int64_t dims[WOK_MAX_INTS];
    int rank, guess;
    infer->out[0].dtype = x->dtype;
    if (shape->rank > 1 || (shape->dtype && shape->dtype != WOK_I64))
        return wok_infer_fail(infer, WOK_ERR_SHAPE, "the target shape is %s %s, not a list of i64",
                              wok_dtype_name(shape->dtype), wok_type_text(infer->graph, shape));
    if (!wok_infer_ints(infer, 1, dims, &rank)) {
        if (shape->rank != 1 || !wok_dim_known(shape->dims[0]) || shape->dims[0] > WOK_MAX_RANK) return WOK_OK;
        rank = (int)shape->dims[0];
        for (int d = 0; d < rank; d++) dims[d] = wok_infer_unknown(infer);
        wok_infer_out(infer, 0, x->dtype, rank, dims);
        return WOK_OK;
    }
    if (rank > WOK_MAX_RANK)
        return wok_infer_fail(infer, WOK_ERR_UNSUPPORTED, "the target has rank %d, more than %d", rank, WOK_MAX_RANK);
    WOK_TRY(read_target(infer, dims, rank, &guess));
    if (x->rank < 0) {
        if (guess >= 0) dims[guess] = wok_infer_unknown(infer);
    } else if (guess >= 0) {
        WOK_TRY(fill_guess(infer, dims, rank, guess));
    } else {
        int64_t have = wok_infer_product(infer, x->dims, 0, x->rank), want = wok_infer_product(infer, dims, 0, rank);
        if (wok_dim_known(have) && wok_dim_known(want) && have != want) return reshape_mismatch(infer, dims, rank, -1);
    }
    wok_infer_out(infer, 0, x->dtype, rank, dims);
    pass_ints(infer);
    return WOK_OK;
}

wok_status wok_infer_flatten(wok_infer *infer) {
    WOK_TRY(wok_infer_need(infer, 1));
    const wok_type *x = infer->in[0];
    infer->out[0].dtype = x->dtype;
    if (x->rank < 0) return WOK_OK;
    int64_t axis = wok_ir_int(infer->node, "axis", 1);
    if (axis < -x->rank || axis > x->rank)
        return wok_infer_fail(infer, WOK_ERR_SHAPE, "axis %lld is outside a tensor of rank %d", (long long)axis,
                              x->rank);
    int split = (int)(axis < 0 ? axis + x->rank : axis);
    int64_t dims[2] = {wok_infer_product(infer, x->dims, 0, split), wok_infer_product(infer, x->dims, split, x->rank)};
    wok_infer_out(infer, 0, x->dtype, 2, dims);
    pass_ints(infer);
    return WOK_OK;
}

/* Marks the axes that input 1 names in a tensor of this rank. */
static wok_status read_axes(wok_infer *infer, int rank, bool *marked, int *count, bool *known) {
    int64_t axes[WOK_MAX_INTS];
    *count = wok_infer_numbers(infer, 1, axes, WOK_MAX_RANK);
    *known = *count >= 0;
    for (int i = 0; i < *count; i++) {
        int axis = wok_axis(axes[i], rank);
        if (axis < 0)
            return wok_infer_fail(infer, WOK_ERR_SHAPE, "axis %lld is outside a tensor of rank %d", (long long)axes[i],
                                  rank);
        if (marked[axis]) return wok_infer_fail(infer, WOK_ERR_VALUE, "axis %d is named twice", axis);
        marked[axis] = true;
    }
    return WOK_OK;
}

wok_status wok_infer_squeeze(wok_infer *infer) {
    WOK_TRY(wok_infer_need(infer, 1));
    const wok_type *x = infer->in[0];
    bool gone[WOK_MAX_RANK] = {false}, known = true, all = !infer->in[1];
    int count, rank = 0;
    int64_t dims[WOK_MAX_RANK];
    infer->out[0].dtype = x->dtype;
    if (x->rank < 0) return WOK_OK;
    if (!all) WOK_TRY(read_axes(infer, x->rank, gone, &count, &known));
    if (!known) return WOK_OK;
    for (int d = 0; d < x->rank; d++) {
        if (all && !wok_dim_known(x->dims[d])) return WOK_OK; /* it may turn out as 1 */
        if (gone[d] && wok_dim_known(x->dims[d]) && x->dims[d] != 1)
            return wok_infer_fail(infer, WOK_ERR_SHAPE, "axis %d of %s is not 1", d, wok_type_text(infer->graph, x));
        if (all ? x->dims[d] != 1 : !gone[d]) dims[rank++] = x->dims[d];
    }
    wok_infer_out(infer, 0, x->dtype, rank, dims);
    pass_ints(infer);
    return WOK_OK;
}

wok_status wok_infer_unsqueeze(wok_infer *infer) {
    WOK_TRY(wok_infer_need(infer, 2));
    const wok_type *x = infer->in[0], *axes = infer->in[1];
    bool added[WOK_MAX_RANK] = {false}, known;
    int64_t dims[WOK_MAX_RANK], more = axes->rank >= 0 ? wok_count(axes->dims, axes->rank) : -1;
    infer->out[0].dtype = x->dtype;
    if (x->rank < 0 || more < 0) return WOK_OK;
    if (x->rank + more > WOK_MAX_RANK)
        return wok_infer_fail(infer, WOK_ERR_UNSUPPORTED, "the output has rank %lld, more than %d",
                              (long long)(x->rank + more), WOK_MAX_RANK);
    int count, rank = x->rank + (int)more;
    WOK_TRY(read_axes(infer, rank, added, &count, &known));
    if (!known) return WOK_OK;
    for (int d = 0, from = 0; d < rank; d++) dims[d] = added[d] ? 1 : x->dims[from++];
    wok_infer_out(infer, 0, x->dtype, rank, dims);
    pass_ints(infer);
    return WOK_OK;
}

static const char *accept_bytes(const wok_prepare *prepare) {
    return prepare->in[0] && wok_dtype_size(prepare->in[0]->dtype) ? NULL : "the element type is not one to copy";
}

static wok_status view_run(wok_call *call) {
    if (call->out[0]->data != call->in[0]->data && call->out[0]->bytes)
        memcpy(call->out[0]->data, call->in[0]->data, call->out[0]->bytes);
    return WOK_OK;
}

const wok_op_impl *const wok_impls_view[] = {
    &(const wok_op_impl){.name = "view", .flags = WOK_IMPL_VIEW, .accept = accept_bytes, .run = view_run},
    NULL,
};

/* ---- Dropout ----------------------------------------------------------------------------------------------------- */

wok_status wok_infer_dropout(wok_infer *infer) {
    WOK_TRY(wok_infer_identity(infer));
    const wok_type *training = infer->in[2];
    double ratio[1] = {0.5};
    int64_t on[1];
    if (infer->in[1]) wok_infer_floats(infer, 1, ratio, 1);
    if (training && wok_infer_numbers(infer, 2, on, 1) == 1 && on[0] && ratio[0] != 0)
        return wok_infer_fail(infer, WOK_ERR_UNSUPPORTED, "Dropout in training mode");
    wok_infer_out(infer, 1, WOK_BOOL, infer->in[0]->rank, infer->in[0]->dims);
    return WOK_OK;
}

static const char *dropout_accept_view(const wok_prepare *prepare) {
    if (prepare->node->out_count > 1 && prepare->node->out[1] != WOK_ABSENT) return "the mask is wanted";
    return prepare->in[2] && !prepare->in[2]->data ? "training mode is an input" : accept_bytes(prepare);
}

static wok_status dropout_run(wok_call *call) {
    if (wok_call_int(call, 2, 0) && wok_call_float(call, 1, 0.5) != 0)
        return wok_call_fail(call, WOK_ERR_UNSUPPORTED, "Dropout in training mode");
    if (call->out_count > 1 && call->out[1]) memset(call->out[1]->data, 1, call->out[1]->bytes);
    return view_run(call);
}

const wok_op_impl *const wok_impls_dropout[] = {
    &(const wok_op_impl){.name = "view", .flags = WOK_IMPL_VIEW, .accept = dropout_accept_view, .run = view_run},
    &(const wok_op_impl){.name = "copy", .inplace = 1, .accept = accept_bytes, .run = dropout_run},
    NULL,
};

/* ---- Shape, Size ------------------------------------------------------------------------------------------------- */

static int clamp_index(int64_t index, int rank) {
    if (index < 0) index += rank;
    return (int)(index < 0 ? 0 : index > rank ? rank : index);
}

static int shape_range(const wok_ir_node *node, int rank, int *start) {
    *start = clamp_index(wok_ir_int(node, "start", 0), rank);
    int end = wok_ir_attr(node, "end", WOK_ATTR_INT) ? clamp_index(wok_ir_int(node, "end", 0), rank) : rank;
    return end > *start ? end - *start : 0;
}

wok_status wok_infer_shape(wok_infer *infer) {
    WOK_TRY(wok_infer_need(infer, 1));
    const wok_type *x = infer->in[0];
    infer->out[0].dtype = WOK_I64;
    if (x->rank < 0) return WOK_OK;
    int start, count = shape_range(infer->node, x->rank, &start);
    wok_infer_out(infer, 0, WOK_I64, 1, &(int64_t){count});
    wok_infer_set_ints(infer, 0, x->dims + start, count);
    return WOK_OK;
}

static wok_status shape_run(wok_call *call) {
    int start, count = shape_range(call->node, call->in[0]->rank, &start);
    memcpy(call->out[0]->data, call->in[0]->dims + start, (size_t)count * sizeof(int64_t));
    return WOK_OK;
}

const wok_op_impl *const wok_impls_shape[] = {
    &(const wok_op_impl){.name = "ref", .flags = WOK_IMPL_SHAPE_ONLY, .run = shape_run},
    NULL,
};

wok_status wok_infer_size(wok_infer *infer) {
    WOK_TRY(wok_infer_need(infer, 1));
    const wok_type *x = infer->in[0];
    wok_infer_out(infer, 0, WOK_I64, 0, NULL);
    if (x->rank < 0) return WOK_OK;
    int64_t size = wok_infer_product(infer, x->dims, 0, x->rank);
    wok_infer_set_ints(infer, 0, &size, 1);
    return WOK_OK;
}

static wok_status size_run(wok_call *call) {
    *(int64_t *)call->out[0]->data = wok_tensor_count(call->in[0]);
    return WOK_OK;
}

const wok_op_impl *const wok_impls_size[] = {
    &(const wok_op_impl){.name = "ref", .flags = WOK_IMPL_SHAPE_ONLY, .run = size_run},
    NULL,
};

/* ---- Constant, ConstantOfShape ----------------------------------------------------------------------------------- */

/* The constant that a node's attributes hold; rank -1 if none that can be used. Data stands in the graph's arena or in
 * the model. */
static wok_type constant_type(wok_graph *graph, const wok_ir_node *node) {
    const wok_attr *a;
    if ((a = wok_ir_attr(node, "value", WOK_ATTR_TENSOR))) return graph->values[a->u.tensor].type;
    if ((a = wok_ir_attr(node, "value_ints", WOK_ATTR_INTS)))
        return (wok_type){.dtype = WOK_I64,
                          .rank = 1,
                          .dims = {a->count},
                          .data = a->u.ints,
                          .bytes = (size_t)a->count * sizeof(int64_t)};
    if ((a = wok_ir_attr(node, "value_floats", WOK_ATTR_FLOATS)))
        return (wok_type){.dtype = WOK_F32,
                          .rank = 1,
                          .dims = {a->count},
                          .data = a->u.floats,
                          .bytes = (size_t)a->count * sizeof(float)};
    bool integer = (a = wok_ir_attr(node, "value_int", WOK_ATTR_INT)) != NULL;
    if (!a) a = wok_ir_attr(node, "value_float", WOK_ATTR_FLOAT);
    void *copy = a ? wok_arena_alloc(graph->arena, sizeof(int64_t)) : NULL; /* attributes may move */
    if (!copy) return (wok_type){.rank = -1};
    size_t bytes = integer ? sizeof a->u.i : sizeof a->u.f;
    memcpy(copy, &a->u, bytes);
    return (wok_type){.dtype = integer ? WOK_I64 : WOK_F32, .data = copy, .bytes = bytes};
}

wok_status wok_infer_constant(wok_infer *infer) {
    infer->out[0] = constant_type(infer->graph, infer->node);
    if (infer->out[0].rank < 0)
        return wok_infer_fail(infer, WOK_ERR_UNSUPPORTED, "a constant that is a string or sparse");
    return WOK_OK;
}

typedef struct constant_state {
    const void *data;
    size_t bytes;
} constant_state;

static wok_status constant_prepare(wok_prepare *prepare) {
    wok_type type = constant_type(prepare->graph, prepare->node);
    constant_state *state = wok_prepare_alloc(prepare, sizeof *state + type.bytes);
    if (!state) return WOK_ERR_MEMORY;
    memcpy(state + 1, type.data, type.bytes);
    *state = (constant_state){state + 1, type.bytes};
    prepare->state = state;
    return WOK_OK;
}

static wok_status constant_run(wok_call *call) {
    const constant_state *state = call->state;
    memcpy(call->out[0]->data, state->data, state->bytes);
    return WOK_OK;
}

const wok_op_impl *const wok_impls_constant[] = {
    &(const wok_op_impl){.name = "copy", .prepare = constant_prepare, .run = constant_run},
    NULL,
};

wok_status wok_infer_constant_of_shape(wok_infer *infer) {
    WOK_TRY(wok_infer_need(infer, 1));
    wok_type value = constant_type(infer->graph, infer->node);
    int64_t dims[WOK_MAX_INTS], number = 0;
    int rank;
    bool known = wok_infer_ints(infer, 0, dims, &rank);
    infer->out[0].dtype = value.rank < 0 ? WOK_F32 : value.dtype;
    if (!known) return WOK_OK;
    for (int d = 0; d < rank; d++)
        if (wok_dim_is_number(dims[d], &number) && number < 0)
            return wok_infer_fail(infer, WOK_ERR_VALUE, "size %lld is negative", (long long)number);
    wok_infer_out(infer, 0, infer->out[0].dtype, rank, dims);
    int64_t count = rank <= WOK_MAX_RANK ? wok_count(dims, rank) : -1, ints[WOK_MAX_INTS];
    if (count < 0 || count > WOK_MAX_INTS || value.rank < 0 || wok_dtype_is_float(value.dtype)) return WOK_OK;
    for (int64_t i = 0; i < count; i++) ints[i] = wok_dim_number(wok_get_i64(value.dtype, value.data, 0));
    wok_infer_set_ints(infer, 0, ints, (int)count);
    return WOK_OK;
}

static wok_status constant_of_shape_prepare(wok_prepare *prepare) {
    wok_type type = constant_type(prepare->graph, prepare->node);
    constant_state *state = wok_prepare_alloc(prepare, sizeof *state + sizeof(double));
    if (!state) return WOK_ERR_MEMORY;
    state->data = state + 1;
    state->bytes = type.rank < 0 ? sizeof(float) : wok_dtype_size(type.dtype);
    if (type.rank >= 0 && type.bytes >= state->bytes) memcpy(state + 1, type.data, state->bytes);
    prepare->state = state;
    return WOK_OK;
}

static wok_status constant_of_shape_run(wok_call *call) {
    const constant_state *state = call->state;
    wok_copy_step(call->out[0]->data, state->data, 0, wok_tensor_count(call->out[0]), state->bytes);
    return WOK_OK;
}

const wok_op_impl *const wok_impls_constant_of_shape[] = {
    &(const wok_op_impl){.name = "copy", .prepare = constant_of_shape_prepare, .run = constant_of_shape_run},
    NULL,
};

/* ---- Range ------------------------------------------------------------------------------------------------------- */

static wok_status range_count(wok_infer *infer, double start, double limit, double delta, int64_t *count) {
    if (delta == 0) return wok_infer_fail(infer, WOK_ERR_VALUE, "the step is 0");
    double n = ceil((limit - start) / delta);
    if (!(n < 0x1p62)) return wok_infer_fail(infer, WOK_ERR_VALUE, "from %g to %g by %g", start, limit, delta);
    *count = n > 0 ? (int64_t)n : 0;
    return WOK_OK;
}

wok_status wok_infer_range(wok_infer *infer) {
    WOK_TRY(wok_infer_need(infer, 3));
    wok_dtype dtype = infer->in[0]->dtype;
    int64_t v[3], number[3], count;
    double f[3];
    bool ints = true, numbers = true, reals = true;
    for (int i = 0; i < 3; i++) {
        int64_t elements[WOK_MAX_INTS];
        int n;
        ints = ints && wok_infer_ints(infer, i, elements, &n) && n == 1;
        v[i] = ints ? elements[0] : 0;
        numbers = numbers && ints && wok_dim_is_number(v[i], &number[i]);
        reals = reals && wok_dtype_is_float(dtype) && wok_infer_floats(infer, i, &f[i], 1) == 1;
    }
    if (reals) {
        WOK_TRY(range_count(infer, f[0], f[1], f[2], &count));
    } else if (numbers) {
        WOK_TRY(range_count(infer, (double)number[0], (double)number[1], (double)number[2], &count));
    } else if (ints && v[2] == 1 && wok_dim_is_number(v[0], &number[0]) && number[0] >= 0) {
        count = wok_dim_sub(infer->graph, v[1], number[0]);
    } else {
        count = ints && v[2] == 1 ? wok_dim_sub(infer->graph, v[1], v[0]) : wok_infer_unknown(infer);
    }
    wok_infer_out(infer, 0, dtype, 1, &count);
    if (!numbers || reals || count > WOK_MAX_INTS) return WOK_OK;
    int64_t y[WOK_MAX_INTS];
    for (int64_t i = 0; i < count; i++) y[i] = wok_dim_number(number[0] + i * number[2]);
    wok_infer_set_ints(infer, 0, y, (int)count);
    return WOK_OK;
}

static wok_status range_run(wok_call *call) {
    const wok_tensor *out = call->out[0];
    bool real = wok_dtype_is_float(out->dtype);
    double start = real ? wok_call_float(call, 0, 0) : 0, delta = real ? wok_call_float(call, 2, 0) : 0;
    int64_t from = real ? 0 : wok_call_int(call, 0, 0), step = real ? 0 : wok_call_int(call, 2, 0);
    for (int64_t i = 0; i < out->dims[0]; i++) {
        if (real)
            wok_store_f64(out->dtype, out->data, i, 1, &(double){start + (double)i * delta});
        else
            wok_store_i64(out->dtype, out->data, i, 1, &(int64_t){from + i * step});
    }
    return WOK_OK;
}

const wok_op_impl *const wok_impls_range[] = {
    &(const wok_op_impl){.name = "ref", .accept = wok_accept_number, .run = range_run},
    NULL,
};

/* ---- EyeLike, Trilu ---------------------------------------------------------------------------------------------- */

wok_status wok_infer_eye_like(wok_infer *infer) {
    WOK_TRY(wok_infer_need(infer, 1));
    int64_t dtype = wok_ir_int(infer->node, "dtype", infer->in[0]->dtype);
    if (dtype < 0 || dtype > WOK_BF16 || (dtype && !wok_dtype_size((wok_dtype)dtype)))
        return wok_infer_fail(infer, WOK_ERR_UNSUPPORTED, "element type %lld", (long long)dtype);
    if (infer->in[0]->rank >= 0 && infer->in[0]->rank != 2)
        return wok_infer_fail(infer, WOK_ERR_SHAPE, "the input has rank %d, not 2", infer->in[0]->rank);
    wok_infer_out(infer, 0, (wok_dtype)dtype, infer->in[0]->rank, infer->in[0]->dims);
    return WOK_OK;
}

static wok_status eye_like_run(wok_call *call) {
    const wok_tensor *out = call->out[0];
    int64_t k = wok_ir_int(call->node, "k", 0);
    if (k < -out->dims[0] || k > out->dims[1]) k = out->dims[1]; /* beside the matrix */
    memset(out->data, 0, out->bytes);
    for (int64_t i = 0; i < out->dims[0]; i++)
        if (i + k >= 0 && i + k < out->dims[1])
            wok_convert(WOK_I32, &(int32_t){1}, out->dtype,
                        (char *)out->data + (size_t)(i * out->dims[1] + i + k) * wok_dtype_size(out->dtype), 1);
    return WOK_OK;
}

const wok_op_impl *const wok_impls_eye_like[] = {
    &(const wok_op_impl){.name = "ref", .flags = WOK_IMPL_SHAPE_ONLY, .run = eye_like_run},
    NULL,
};

static wok_status trilu_run(wok_call *call) {
    const wok_tensor *x = call->in[0], *y = call->out[0];
    if (x->rank < 2) return wok_call_fail(call, WOK_ERR_SHAPE, "the input has rank %d, less than 2", x->rank);
    size_t size = wok_dtype_size(x->dtype);
    bool upper = wok_ir_int(call->node, "upper", 1);
    int64_t k = wok_call_int(call, 1, 0), rows = x->dims[x->rank - 2], cols = x->dims[x->rank - 1];
    int64_t matrices = wok_dims_product(x->dims, 0, x->rank - 2);
    if (k < -rows - 1) k = -rows - 1; /* all the same from there on */
    if (k > cols) k = cols;
    for (int64_t r = 0; r < matrices * rows; r++) {
        int64_t diagonal = r % rows + (upper ? k : k + 1); /* first column of the kept (upper) or lost (lower) part */
        diagonal = diagonal < 0 ? 0 : diagonal > cols ? cols : diagonal;
        char *out = (char *)y->data + (size_t)(r * cols) * size;
        memmove(out, (const char *)x->data + (size_t)(r * cols) * size, (size_t)cols * size);
        if (upper)
            memset(out, 0, (size_t)diagonal * size);
        else
            memset(out + (size_t)diagonal * size, 0, (size_t)(cols - diagonal) * size);
    }
    return WOK_OK;
}

const wok_op_impl *const wok_impls_trilu[] = {
    &(const wok_op_impl){.name = "ref", .inplace = 1, .accept = wok_accept_number, .run = trilu_run},
    NULL,
};

/* qproduct.c - products of bytes: wok.QGemm with constant weights, wok.QMatMul of two activations. The rewrite
 * lower_quantized makes them of what quantisers write; what a fused node does after the sum is shared with qconv.c.
 *
 * wok.QGemm inputs: x s8 [..., K], w s8 [K, N] (or [N, K] with trans_b), bias f32 [N]?, residual [..., N]? (f32 for an f32
 * result, s8 for an s8 one), scale f32 [N]: what one unit of the accumulator is worth, x_scale f32, x_zero i32 (one
 * value, or one a row) of activations that are quantised at run time, w_zero s8 [N]?, table s8 [256]? for an s8 result.
 * wok.QMatMul inputs: a, b s8. Attribute scale: what one unit of the accumulator is worth.
 * Attributes of both: x_zero (a_zero, b_zero) of activations with fixed scales; act, lo, hi for an f32 result; y_scale,
 * y_zero, y_lo, y_hi for an s8 one; residual_scale, residual_zero. */
#include "ops.h"

#include <math.h>
#include <string.h>

/* ---- the epilogue of a fused integer node ------------------------------------------------------------------------ */

bool wok_q_gives_bytes(const wok_ir_node *node) {
    return wok_ir_attr(node, "y_scale", WOK_ATTR_FLOAT) != NULL;
}

static wok_status f32_epilogue(wok_prepare *prepare, wok_epilogue_s8 *e) {
    e->out = WOK_S8_OUT_F32;
    if (wok_read_activation(prepare->node, &e->act, &e->act_lo, &e->act_hi)) return WOK_OK;
    return wok_ctx_fail(prepare->ctx, WOK_ERR_UNSUPPORTED, "node %s: unknown activation", prepare->node->name);
}

static void s8_epilogue(const wok_ir_node *node, wok_epilogue_s8 *e) {
    e->out = WOK_S8_OUT_S8;
    e->zero = (int32_t)wok_ir_int(node, "y_zero", 0);
    e->lo = (int32_t)wok_ir_int(node, "y_lo", -128);
    e->hi = (int32_t)wok_ir_int(node, "y_hi", 127);
    e->residual_scale = wok_ir_float(node, "residual_scale", 1) / wok_ir_float(node, "y_scale", 1);
    e->residual_zero = (int32_t)wok_ir_int(node, "residual_zero", 0);
}

/* Constant input i (n values, or one for all) divided by `by`, kept by the program. */
static wok_status keep_vector(wok_prepare *prepare, int i, int64_t n, float by, float **kept) {
    const float *x = wok_prepare_f32(prepare, i);
    bool one = x && wok_count(prepare->in[i]->dims, prepare->in[i]->rank) == 1;
    *kept = x ? wok_prepare_alloc(prepare, (size_t)n * sizeof **kept) : NULL;
    if (!*kept) return WOK_ERR_MEMORY;
    for (int64_t k = 0; k < n; k++) (*kept)[k] = x[one ? 0 : k] / by;
    prepare->consumed |= 1u << i;
    return WOK_OK;
}

static wok_status keep_table(wok_prepare *prepare, wok_epilogue_s8 *e) {
    const wok_type *table = prepare->in[WOK_Q_TABLE];
    if (!table || !table->data || e->out != WOK_S8_OUT_S8) return WOK_OK;
    int8_t *kept = wok_prepare_alloc(prepare, 256);
    if (!kept) return WOK_ERR_MEMORY;
    memcpy(kept, table->data, 256);
    e->table = kept;
    prepare->consumed |= 1u << WOK_Q_TABLE;
    return WOK_OK;
}

wok_status wok_prepare_epilogue_s8(wok_prepare *prepare, int bias, int scale, int64_t n, wok_epilogue_s8 *e) {
    const wok_ir_node *node = prepare->node;
    float by = wok_q_gives_bytes(node) ? wok_ir_float(node, "y_scale", 1) : 1, *kept;
    *e = (wok_epilogue_s8){.residual_stride = n};
    if (wok_q_gives_bytes(node))
        s8_epilogue(node, e);
    else
        WOK_TRY(f32_epilogue(prepare, e));
    if (scale >= 0) {
        WOK_TRY(keep_vector(prepare, scale, n, by, &kept));
        e->scale = kept;
    }
    WOK_TRY(keep_table(prepare, e));
    if (bias < 0 || !prepare->in[bias] || !prepare->in[bias]->data) return WOK_OK;
    WOK_TRY(keep_vector(prepare, bias, n, by, &kept));
    e->bias = kept;
    return WOK_OK;
}

const char *wok_accept_bytes(const wok_prepare *prepare) {
    return prepare->in[0]->dtype == WOK_I8 ? NULL : "the input is not s8";
}

/* ---- wok.QGemm ----------------------------------------------------------------------------------------------------- */

enum { X, W, BIAS, RESIDUAL, SCALE, X_SCALE, X_ZERO, W_ZERO, TABLE = WOK_Q_TABLE };

wok_status wok_infer_wok_qgemm(wok_infer *infer) {
    WOK_TRY(wok_infer_need(infer, 2));
    WOK_TRY(wok_infer_wok_gemm(infer));
    infer->out[0].dtype = wok_q_gives_bytes(infer->node) ? WOK_I8 : WOK_F32;
    return WOK_OK;
}

typedef struct qgemm_state {
    const wok_gemm_s8_kernel *kernel;
    wok_gemm_s8_problem problem;
    void *packed;
    int32_t x_zero;
    wok_epilogue_s8 epilogue;
} qgemm_state;

static const char *qgemm_accept(const wok_prepare *prepare) {
    const wok_type *w = prepare->in[W], *zero = prepare->in[W_ZERO];
    if (!w->data || w->rank != 2 || w->dtype != WOK_I8) return "the weights are not a constant matrix of s8";
    if (w->dims[0] < 1 || w->dims[1] < 1) return "the weights are empty";
    if (!prepare->in[SCALE] || !prepare->in[SCALE]->data) return "the scales are not constant";
    if (zero && !zero->data) return "the zero points of the weights are not constant";
    if (prepare->in[TABLE] && !prepare->in[TABLE]->data) return "the table is not constant";
    return wok_accept_bytes(prepare);
}

static wok_status qgemm_prepare(wok_prepare *prepare) {
    qgemm_state *s = wok_prepare_alloc(prepare, sizeof *s);
    if (!s) return WOK_ERR_MEMORY;
    const wok_type *w = prepare->in[W], *zero = prepare->in[W_ZERO];
    bool trans = wok_ir_int(prepare->node, "trans_b", 0);
    s->problem = (wok_gemm_s8_problem){.n = w->dims[trans ? 0 : 1], .k = w->dims[trans ? 1 : 0]};
    s->x_zero = (int32_t)wok_ir_int(prepare->node, "x_zero", 0);
    s->kernel = (const void *)wok_prepare_kernel(prepare, WOK_FAMILY_gemm_s8, &s->problem);
    if (!s->kernel) return WOK_ERR_UNSUPPORTED;
    WOK_TRY(wok_prepare_epilogue_s8(prepare, BIAS, SCALE, s->problem.n, &s->epilogue));
    s->packed = wok_prepare_alloc(prepare, s->kernel->packed_bytes(&s->problem));
    if (!s->packed) return WOK_ERR_MEMORY;
    s->kernel->pack(&s->problem, w->data, trans ? 1 : s->problem.n, trans ? s->problem.k : 1, zero ? zero->data : NULL,
                    s->packed, wok_ctx_parallel(prepare->ctx));
    prepare->state = s;
    prepare->kernel = &s->kernel->base;
    prepare->consumed |= 1u << W | (zero ? 1u << W_ZERO : 0);
    return WOK_OK;
}

static int64_t rows_of(const wok_call *call) {
    return wok_dims_product(call->in[X]->dims, 0, call->in[X]->rank - 1);
}

/* Scales of a tensor that was quantised as a whole at run time. */
static size_t qgemm_workspace(const wok_call *call) {
    const qgemm_state *s = call->state;
    return wok_call_input(call, X_SCALE) ? (size_t)s->problem.n * sizeof(float) : 0;
}

/* Activations that were quantised at run time: one scale a row, or one for all. */
static wok_status dynamic_scales(wok_call *call, wok_gemm_s8_args *a) {
    const wok_tensor *scale = wok_call_input(call, X_SCALE), *zero = wok_call_input(call, X_ZERO);
    int64_t count = wok_tensor_count(scale);
    if (!zero || wok_tensor_count(zero) != count || (count != 1 && count != a->m))
        return wok_call_fail(call, WOK_ERR_SHAPE, "%lld scales for %lld rows", (long long)count, (long long)a->m);
    if (count != 1) {
        a->epilogue.row_scale = scale->data;
        a->row_zero = zero->data;
        return WOK_OK;
    }
    float *scaled = call->workspace, x_scale = *(const float *)scale->data;
    for (int64_t n = 0; n < a->n; n++) scaled[n] = x_scale * a->epilogue.scale[n];
    a->epilogue.scale = scaled;
    a->a_zero = *(const int32_t *)zero->data;
    return WOK_OK;
}

static wok_status qgemm_run(wok_call *call) {
    const qgemm_state *s = call->state;
    wok_gemm_s8_args args = {.m = rows_of(call),
                             .n = s->problem.n,
                             .k = s->problem.k,
                             .a = call->in[X]->data,
                             .lda = s->problem.k,
                             .a_zero = s->x_zero,
                             .packed = s->packed,
                             .c = call->out[0]->data,
                             .ldc = s->problem.n,
                             .epilogue = s->epilogue};
    if (args.m < 1) return WOK_OK;
    if (!args.epilogue.bias && wok_call_input(call, BIAS)) args.epilogue.bias = wok_call_input(call, BIAS)->data;
    if (wok_call_input(call, RESIDUAL)) args.epilogue.residual = wok_call_input(call, RESIDUAL)->data;
    if (wok_call_input(call, X_SCALE)) WOK_TRY(dynamic_scales(call, &args));
    s->kernel->run(&args, call->parallel);
    return WOK_OK;
}

static int64_t qgemm_macs(const wok_call *call) {
    const qgemm_state *s = call->state;
    return rows_of(call) * s->problem.n * s->problem.k;
}

const wok_op_impl *const wok_impls_wok_qgemm[] = {
    &(const wok_op_impl){.name = "packed",
                         .inplace = 1u << RESIDUAL,
                         .accept = qgemm_accept,
                         .prepare = qgemm_prepare,
                         .workspace = qgemm_workspace,
                         .run = qgemm_run,
                         .macs = qgemm_macs},
    NULL,
};

/* ---- wok.QMatMul --------------------------------------------------------------------------------------------------- */

wok_status wok_infer_wok_qmatmul(wok_infer *infer) {
    WOK_TRY(wok_infer_need(infer, 2));
    WOK_TRY(wok_product_infer(infer, infer->in[0], infer->in[1], false, false));
    infer->out[0].dtype = wok_q_gives_bytes(infer->node) ? WOK_I8 : WOK_F32;
    return WOK_OK;
}

typedef struct qmatmul_state {
    const wok_gemm_s8_kernel *kernel;
    wok_epilogue_s8 epilogue;
    float scale;
    int32_t a_zero;
    int8_t b_zero;
} qmatmul_state;

static const char *qmatmul_accept(const wok_prepare *prepare) {
    if (prepare->in[1]->dtype != WOK_I8) return "the second operand is not s8";
    return wok_accept_bytes(prepare);
}

static wok_status qmatmul_prepare(wok_prepare *prepare) {
    qmatmul_state *s = wok_prepare_alloc(prepare, sizeof *s);
    if (!s) return WOK_ERR_MEMORY;
    const wok_ir_node *node = prepare->node;
    wok_gemm_s8_problem problem = {.n = 1,
                                   .k = 1}; /* sizes may be known only when it runs: any variant takes them all */
    s->kernel = (const void *)wok_prepare_kernel(prepare, WOK_FAMILY_gemm_s8, &problem);
    if (!s->kernel) return WOK_ERR_UNSUPPORTED;
    WOK_TRY(wok_prepare_epilogue_s8(prepare, -1, -1, 0, &s->epilogue));
    s->scale = wok_ir_float(node, "scale", 1);
    if (wok_q_gives_bytes(node)) s->scale /= wok_ir_float(node, "y_scale", 1);
    s->a_zero = (int32_t)wok_ir_int(node, "a_zero", 0);
    s->b_zero = (int8_t)wok_ir_int(node, "b_zero", 0);
    prepare->state = s;
    prepare->kernel = &s->kernel->base;
    return WOK_OK;
}

typedef struct qmatmul_layout {
    wok_product p;
    wok_gemm_s8_problem problem;
    size_t scale, zero, total; /* offsets into the workspace; B packed stands at 0 */
} qmatmul_layout;

static qmatmul_layout plan_qmatmul(const wok_call *call) {
    const qmatmul_state *s = call->state;
    qmatmul_layout l = {.p = wok_product_view(call->in[0], call->in[1], call->out[0], false, false)};
    l.problem = (wok_gemm_s8_problem){.n = l.p.n, .k = l.p.k};
    if (l.p.n < 1 || l.p.k > WOK_S8_MAX_K) return l;
    l.scale = wok_align_up(s->kernel->packed_bytes(&l.problem));
    l.zero = l.scale + wok_align_up((size_t)l.p.n * sizeof(float));
    l.total = l.zero + wok_align_up((size_t)l.p.n);
    return l;
}

static size_t qmatmul_workspace(const wok_call *call) {
    return plan_qmatmul(call).total;
}

static wok_status qmatmul_run(wok_call *call) {
    const qmatmul_state *s = call->state;
    qmatmul_layout l = plan_qmatmul(call);
    if (l.p.k > WOK_S8_MAX_K)
        return wok_call_fail(call, WOK_ERR_UNSUPPORTED, "sums of %lld products of bytes may not fit 32 bits",
                             (long long)l.p.k);
    if (!l.total || l.p.m < 1) return WOK_OK;
    char *work = call->workspace, *out = call->out[0]->data;
    float *scale = (float *)(void *)(work + l.scale);
    for (int64_t n = 0; n < l.p.n; n++) scale[n] = s->scale;
    memset(work + l.zero, s->b_zero, (size_t)l.p.n);
    wok_gemm_s8_args args = {.m = l.p.m,
                             .n = l.p.n,
                             .k = l.p.k,
                             .lda = l.p.a_m,
                             .a_zero = s->a_zero,
                             .packed = work,
                             .ldc = l.p.n,
                             .epilogue = s->epilogue};
    args.epilogue.scale = scale;
    size_t step = (size_t)(l.p.m * l.p.n) * wok_dtype_size(call->out[0]->dtype);
    for (int64_t i = 0; i < l.p.batches; i++) {
        int64_t a, b;
        wok_product_locate(&l.p, i, &a, &b);
        s->kernel->pack(&l.problem, (const int8_t *)call->in[1]->data + b, l.p.b_k, l.p.b_n,
                        (const int8_t *)(const void *)(work + l.zero), work, call->parallel);
        args.a = (const int8_t *)call->in[0]->data + a;
        args.c = out + (size_t)i * step;
        s->kernel->run(&args, call->parallel);
    }
    return WOK_OK;
}

static int64_t qmatmul_macs(const wok_call *call) {
    wok_product p = wok_product_view(call->in[0], call->in[1], call->out[0], false, false);
    return p.batches * p.m * p.n * p.k;
}

const wok_op_impl *const wok_impls_wok_qmatmul[] = {
    &(const wok_op_impl){.name = "packed",
                         .accept = qmatmul_accept,
                         .prepare = qmatmul_prepare,
                         .workspace = qmatmul_workspace,
                         .run = qmatmul_run,
                         .macs = qmatmul_macs},
    NULL,
};

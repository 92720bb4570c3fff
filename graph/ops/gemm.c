/* gemm.c - wok.Gemm: y[..., N] = act(x[..., K] w + bias + residual), the form that the rewrites give every product with
 * constant weights. Inputs: x, w ([K, N], or [N, K] with trans_b), bias [N]?, residual [..., N]?. */
#include "ops.h"

#include <math.h>
#include <string.h>

enum { X, W, BIAS, RESIDUAL };

bool wok_read_activation(const wok_ir_node *node, wok_act *act, float *lo, float *hi) {
    static const struct {
        const char *name;
        wok_act act;
    } names[] = {{"none", WOK_ACT_NONE},           {"clamp", WOK_ACT_CLAMP}, {"gelu", WOK_ACT_GELU},
                 {"gelu_tanh", WOK_ACT_GELU_TANH}, {"tanh", WOK_ACT_TANH},   {"sigmoid", WOK_ACT_SIGMOID}};
    const char *name = wok_ir_string(node, "act", "none");
    *lo = wok_ir_float(node, "lo", -INFINITY);
    *hi = wok_ir_float(node, "hi", INFINITY);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (!strcmp(name, names[i].name)) {
            *act = names[i].act;
            return true;
        }
    return false;
}

/* A tensor of `want`'s shape: sizes that are known on both sides must agree. */
static bool same_shape(const wok_type *t, const wok_type *want) {
    if (t->rank < 0 || want->rank < 0) return true;
    if (t->rank != want->rank) return false;
    for (int d = 0; d < t->rank; d++)
        if (wok_dim_known(t->dims[d]) && wok_dim_known(want->dims[d]) && t->dims[d] != want->dims[d]) return false;
    return true;
}

wok_status wok_infer_wok_gemm(wok_infer *infer) {
    WOK_TRY(wok_infer_need(infer, 2));
    const wok_type *x = infer->in[X], *w = infer->in[W], *bias = infer->in[BIAS], *residual = infer->in[RESIDUAL];
    bool trans = wok_ir_int(infer->node, "trans_b", 0);
    wok_type y = *x;
    y.ints = y.data = NULL;
    y.bytes = 0;
    infer->out[0].dtype = x->dtype;
    if (x->rank < 0) return WOK_OK;
    if (x->rank < 1 || w->rank != 2)
        return wok_infer_fail(infer, WOK_ERR_SHAPE, "%s times %s", wok_type_text(infer->graph, x),
                              wok_type_text(infer->graph, w));
    int64_t k = w->dims[trans ? 1 : 0], n = w->dims[trans ? 0 : 1], have = x->dims[x->rank - 1];
    if (wok_dim_known(k) && wok_dim_known(have) && k != have)
        return wok_infer_fail(infer, WOK_ERR_SHAPE, "%s times %s%s: the inner sizes differ",
                              wok_type_text(infer->graph, x), wok_type_text(infer->graph, w),
                              trans ? " transposed" : "");
    y.dims[x->rank - 1] = n;
    if (bias && bias->rank >= 0 && wok_dim_known(n) && wok_count(bias->dims, bias->rank) != n)
        return wok_infer_fail(infer, WOK_ERR_SHAPE, "bias %s for %lld columns", wok_type_text(infer->graph, bias),
                              (long long)n);
    if (residual && !same_shape(residual, &y))
        return wok_infer_fail(infer, WOK_ERR_SHAPE, "%s is added to %s", wok_type_text(infer->graph, residual),
                              wok_type_text(infer->graph, &y));
    infer->out[0] = y;
    return WOK_OK;
}

typedef struct gemm_state {
    const wok_gemm_f32_kernel *kernel;
    wok_gemm_f32_problem problem;
    void *packed;
    wok_act act;
    float lo, hi;
} gemm_state;

static const char *gemm_accept(const wok_prepare *prepare) {
    const wok_type *w = prepare->in[W];
    if (!w->data || w->rank != 2) return "the weights are not a constant matrix";
    if (w->dims[0] < 1 || w->dims[1] < 1) return "the weights are empty";
    return wok_accept_f32(prepare);
}

static wok_status gemm_prepare(wok_prepare *prepare) {
    gemm_state *s = wok_prepare_alloc(prepare, sizeof *s);
    if (!s) return WOK_ERR_MEMORY;
    const wok_type *w = prepare->in[W];
    bool trans = wok_ir_int(prepare->node, "trans_b", 0);
    s->problem = (wok_gemm_f32_problem){.n = w->dims[trans ? 0 : 1], .k = w->dims[trans ? 1 : 0]};
    s->kernel = (const void *)wok_prepare_kernel(prepare, WOK_FAMILY_gemm_f32, &s->problem);
    if (!s->kernel) return WOK_ERR_UNSUPPORTED;
    if (!wok_read_activation(prepare->node, &s->act, &s->lo, &s->hi))
        return wok_ctx_fail(prepare->ctx, WOK_ERR_UNSUPPORTED, "node %s: unknown activation", prepare->node->name);
    const float *b = wok_prepare_f32(prepare, W);
    s->packed = b ? wok_prepare_alloc(prepare, s->kernel->packed_bytes(&s->problem)) : NULL;
    if (!s->packed) return WOK_ERR_MEMORY;
    s->kernel->pack(&s->problem, b, trans ? 1 : s->problem.n, trans ? s->problem.k : 1, s->packed,
                    wok_ctx_parallel(prepare->ctx));
    prepare->state = s;
    prepare->kernel = &s->kernel->base;
    prepare->consumed = 1u << W;
    return WOK_OK;
}

static int64_t rows_of(const wok_call *call) {
    return wok_dims_product(call->in[X]->dims, 0, call->in[X]->rank - 1);
}

static wok_status gemm_run(wok_call *call) {
    const gemm_state *s = call->state;
    const wok_tensor *bias = call->in_count > BIAS ? call->in[BIAS] : NULL;
    const wok_tensor *residual = call->in_count > RESIDUAL ? call->in[RESIDUAL] : NULL;
    wok_gemm_f32_args args = {.m = rows_of(call),
                              .n = s->problem.n,
                              .k = s->problem.k,
                              .a = call->in[X]->data,
                              .lda = s->problem.k,
                              .packed = s->packed,
                              .c = call->out[0]->data,
                              .ldc = s->problem.n};
    args.epilogue = (wok_epilogue_f32){.bias = bias ? bias->data : NULL,
                                       .residual = residual ? residual->data : NULL,
                                       .residual_stride = s->problem.n,
                                       .act = s->act,
                                       .lo = s->lo,
                                       .hi = s->hi};
    if (args.m > 0) s->kernel->run(&args, call->parallel);
    return WOK_OK;
}

static int64_t gemm_macs(const wok_call *call) {
    const gemm_state *s = call->state;
    return rows_of(call) * s->problem.n * s->problem.k;
}

const wok_op_impl *const wok_impls_wok_gemm[] = {
    &(const wok_op_impl){.name = "packed",
                         .inplace = 1u << RESIDUAL,
                         .accept = gemm_accept,
                         .prepare = gemm_prepare,
                         .run = gemm_run,
                         .macs = gemm_macs},
    NULL,
};

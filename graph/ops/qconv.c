/* qconv.c - wok.QConv: two-dimensional convolution of bytes in NHWC on the integer kernels, depthwise ones included. The
 * rewrite lower_quantized makes it of a Conv between DequantizeLinear and QuantizeLinear.
 *
 * Inputs: x s8 [N, H, W, C], w s8 [M, C / group, kH, kW], bias f32 [M]?, residual [N, oH, oW, M]?, scale f32 [M],
 * w_zero s8 [M]?, x_scale f32, x_zero i32: one value, or one a picture, of an input that is quantised at run time (f32
 * result only), table s8 [256]? for an s8 result. Attributes as ONNX's Conv, and those of wok.QGemm (qproduct.c). */
#include "ops.h"

enum { X, W, BIAS, RESIDUAL, SCALE, W_ZERO, X_SCALE, X_ZERO };

wok_status wok_infer_wok_qconv(wok_infer *infer) {
    WOK_TRY(wok_infer_wok_conv(infer));
    infer->out[0].dtype = wok_q_gives_bytes(infer->node) ? WOK_I8 : WOK_F32;
    return WOK_OK;
}

typedef struct qconv_state {
    const wok_conv_s8_kernel *conv;
    const wok_dwconv_s8_kernel *depthwise; /* instead of conv */
    wok_conv_f32_problem problem;
    wok_dwconv_problem depthwise_problem;
    wok_window window;
    void *packed;
    int32_t x_zero;
    wok_epilogue_s8 epilogue;
} qconv_state;

static const char *qconv_accept(const wok_prepare *prepare) {
    const wok_type *w = prepare->in[W], *zero = prepare->in[W_ZERO];
    if (!w->data || w->rank != 4 || w->dtype != WOK_I8 || wok_count(w->dims, 4) < 1)
        return "the weights are not a constant of s8 and rank 4";
    if (!prepare->in[SCALE] || !prepare->in[SCALE]->data) return "the scales are not constant";
    if (zero && !zero->data) return "the zero points of the weights are not constant";
    return wok_accept_bytes(prepare);
}

static wok_status choose_kernel(wok_prepare *prepare, qconv_state *s) {
    const wok_conv_f32_problem *p = &s->problem;
    bool depthwise = wok_conv_is_depthwise(p);
    prepare->kernel = wok_prepare_kernel(prepare, depthwise ? WOK_FAMILY_dwconv_s8 : WOK_FAMILY_conv_s8,
                                         depthwise ? (const void *)&s->depthwise_problem : p);
    if (!prepare->kernel) return WOK_ERR_UNSUPPORTED;
    if (depthwise)
        s->depthwise = (const void *)prepare->kernel;
    else
        s->conv = (const void *)prepare->kernel;
    return WOK_OK;
}

static wok_status pack(wok_prepare *prepare, qconv_state *s) {
    const int8_t *w = prepare->in[W]->data, *zero = prepare->in[W_ZERO] ? prepare->in[W_ZERO]->data : NULL;
    s->packed = wok_prepare_alloc(prepare, s->depthwise ? s->depthwise->packed_bytes(&s->depthwise_problem)
                                                        : s->conv->packed_bytes(&s->problem));
    if (!s->packed) return WOK_ERR_MEMORY;
    if (s->depthwise)
        s->depthwise->pack(&s->depthwise_problem, w, zero, s->packed);
    else
        s->conv->pack(&s->problem, w, zero, s->packed);
    prepare->consumed |= 1u << W | (zero ? 1u << W_ZERO : 0);
    return WOK_OK;
}

static wok_status qconv_prepare(wok_prepare *prepare) {
    qconv_state *s = wok_prepare_alloc(prepare, sizeof *s);
    if (!s) return WOK_ERR_MEMORY;
    const wok_type *w = prepare->in[W];
    const wok_ir_node *node = prepare->node;
    const char *wrong = wok_window_read(node, 2, w->dims + 2, &s->window);
    if (wrong)
        return wok_ctx_fail(prepare->ctx, WOK_ERR_UNSUPPORTED, "node %s: %s", node->name ? node->name : "", wrong);
    wok_conv_problems(&s->window, w, wok_ir_int(node, "group", 1), &s->problem, &s->depthwise_problem);
    s->x_zero = (int32_t)wok_ir_int(node, "x_zero", 0);
    WOK_TRY(choose_kernel(prepare, s));
    WOK_TRY(wok_prepare_epilogue_s8(prepare, BIAS, SCALE, w->dims[0], &s->epilogue));
    prepare->state = s;
    return pack(prepare, s);
}

static wok_conv_s8_args shape_args(const wok_call *call) {
    const qconv_state *s = call->state;
    const wok_tensor *x = call->in[X], *y = call->out[0];
    wok_window w = s->window;
    wok_window_set(&w, x->dims + 1, y->dims + 1);
    return (wok_conv_s8_args){.batch = x->dims[0],
                              .in_h = w.in[0],
                              .in_w = w.in[1],
                              .out_h = w.out[0],
                              .out_w = w.out[1],
                              .pad_top = w.begin[0],
                              .pad_left = w.begin[1],
                              .x_stride = s->problem.c_in,
                              .x_zero = s->x_zero,
                              .packed = s->packed,
                              .y_stride = s->problem.c_out,
                              .epilogue = s->epilogue};
}

/* Scales of an input that was quantised at run time stand in front of the kernel's workspace. */
static size_t scale_bytes(const wok_call *call) {
    const qconv_state *s = call->state;
    return wok_call_input(call, X_SCALE) ? wok_align_up((size_t)s->problem.c_out * sizeof(float)) : 0;
}

static size_t qconv_workspace(const wok_call *call) {
    const qconv_state *s = call->state;
    wok_conv_s8_args args = shape_args(call);
    if (args.batch < 1) return 0;
    size_t kernel =
        s->depthwise ? 0 : s->conv->workspace_bytes(&s->problem, &args, wok_parallel_threads(call->parallel));
    return scale_bytes(call) + kernel;
}

static void launch(const qconv_state *s, const wok_conv_s8_args *a, const wok_parallel *parallel) {
    if (!s->depthwise) {
        s->conv->run(&s->problem, a, parallel);
        return;
    }
    wok_dwconv_s8_args d = {.batch = a->batch,
                            .in_h = a->in_h,
                            .in_w = a->in_w,
                            .out_h = a->out_h,
                            .out_w = a->out_w,
                            .pad_top = a->pad_top,
                            .pad_left = a->pad_left,
                            .x = a->x,
                            .x_stride = a->x_stride,
                            .x_zero = a->x_zero,
                            .packed = a->packed,
                            .y = a->y,
                            .y_stride = a->y_stride,
                            .epilogue = a->epilogue};
    s->depthwise->run(&s->depthwise_problem, &d, parallel);
}

/* One launch for all pictures if they share a scale, else one for each. */
static wok_status run_dynamic(wok_call *call, wok_conv_s8_args *a) {
    const qconv_state *s = call->state;
    const wok_tensor *scale = wok_call_input(call, X_SCALE), *zero = wok_call_input(call, X_ZERO);
    int64_t count = wok_tensor_count(scale), n = s->problem.c_out;
    if (!zero || wok_tensor_count(zero) != count || (count != 1 && count != a->batch))
        return wok_call_fail(call, WOK_ERR_SHAPE, "%lld scales for %lld pictures", (long long)count,
                             (long long)a->batch);
    float *scaled = call->workspace;
    int64_t x_step = a->in_h * a->in_w * a->x_stride, y_step = a->out_h * a->out_w * a->y_stride;
    if (count > 1) a->batch = 1;
    a->epilogue.scale = scaled;
    for (int64_t i = 0; i < count; i++) {
        for (int64_t k = 0; k < n; k++) scaled[k] = ((const float *)scale->data)[i] * s->epilogue.scale[k];
        a->x_zero = ((const int32_t *)zero->data)[i];
        launch(s, a, call->parallel);
        a->x += x_step;
        a->y = (float *)a->y + y_step;
        if (a->epilogue.residual) a->epilogue.residual = (const float *)a->epilogue.residual + y_step;
    }
    return WOK_OK;
}

static wok_status qconv_run(wok_call *call) {
    const qconv_state *s = call->state;
    wok_conv_s8_args a = shape_args(call);
    if (a.batch < 1) return WOK_OK;
    a.x = call->in[X]->data;
    a.y = call->out[0]->data;
    a.workspace = (char *)call->workspace + scale_bytes(call);
    if (!a.epilogue.bias && wok_call_input(call, BIAS)) a.epilogue.bias = wok_call_input(call, BIAS)->data;
    if (wok_call_input(call, RESIDUAL)) a.epilogue.residual = wok_call_input(call, RESIDUAL)->data;
    if (wok_call_input(call, X_SCALE)) return run_dynamic(call, &a);
    launch(s, &a, call->parallel);
    return WOK_OK;
}

static int64_t qconv_macs(const wok_call *call) {
    const qconv_state *s = call->state;
    const wok_conv_f32_problem *p = &s->problem;
    return wok_tensor_count(call->out[0]) * (p->c_in / p->group) * p->kernel_h * p->kernel_w;
}

const wok_op_impl *const wok_impls_wok_qconv[] = {
    &(const wok_op_impl){.name = "packed",
                         .inplace = 1u << RESIDUAL,
                         .accept = qconv_accept,
                         .prepare = qconv_prepare,
                         .workspace = qconv_workspace,
                         .run = qconv_run,
                         .macs = qconv_macs},
    NULL,
};

/* qpool.c - pooling of bytes in NHWC: wok.MaxPool where its input is s8 (the largest code is the largest value), and
 * wok.QAveragePool (x s8; attributes x_scale, x_zero, y_scale, y_zero; global where there is no kernel_shape). */
#include "ops.h"

wok_status wok_infer_wok_qaverage_pool(wok_infer *infer) {
    bool global = !wok_ir_attr(infer->node, "kernel_shape", WOK_ATTR_INTS);
    WOK_TRY(wok_infer_need(infer, 1));
    WOK_TRY(global ? wok_infer_channels(infer, true) : wok_infer_wok_pool(infer));
    infer->out[0].dtype = WOK_I8;
    return WOK_OK;
}

typedef struct qpool_state {
    wok_isa_set isa;
    wok_pool_op op;
    wok_window window;
    bool global;
    wok_pool_s8_args args; /* what does not depend on shapes */
} qpool_state;

const char *wok_qpool_accept(const wok_prepare *prepare) {
    if (prepare->node->out_count > 1 && prepare->node->out[1] != WOK_ABSENT) return "the kernels give no indices";
    if (prepare->node->op == WOK_OP_wok_AveragePool || prepare->node->op == WOK_OP_wok_GlobalAveragePool)
        return "an average of bytes needs scales";
    return wok_accept_bytes(prepare);
}

wok_status wok_qpool_prepare(wok_prepare *prepare) {
    qpool_state *s = wok_prepare_alloc(prepare, sizeof *s);
    if (!s) return WOK_ERR_MEMORY;
    const wok_ir_node *node = prepare->node;
    int64_t channels = prepare->in[0]->rank == 4 ? prepare->in[0]->dims[3] : -1;
    s->isa = prepare->isa;
    s->op = node->op == WOK_OP_wok_MaxPool ? WOK_POOL_MAX : WOK_POOL_AVERAGE;
    s->global = !wok_ir_attr(node, "kernel_shape", WOK_ATTR_INTS);
    const char *wrong = s->global ? NULL : wok_window_read(node, 2, NULL, &s->window);
    if (wrong) return wok_ctx_fail(prepare->ctx, WOK_ERR_SHAPE, "node %s: %s", node->name ? node->name : "", wrong);
    s->args = (wok_pool_s8_args){.count_include_pad = wok_ir_int(node, "count_include_pad", 0) != 0,
                                 .x_scale = wok_ir_float(node, "x_scale", 1),
                                 .y_scale = wok_ir_float(node, "y_scale", 1),
                                 .x_zero = (int32_t)wok_ir_int(node, "x_zero", 0),
                                 .y_zero = (int32_t)wok_ir_int(node, "y_zero", 0)};
    wok_pool_problem problem = {.op = s->op, .channels = channels > 0 ? channels : 1};
    prepare->kernel = wok_prepare_kernel(prepare, WOK_FAMILY_pool_s8, &problem);
    prepare->state = s;
    return prepare->kernel ? WOK_OK : WOK_ERR_UNSUPPORTED;
}

static void set_window(const qpool_state *s, const wok_tensor *x, const wok_tensor *y, wok_pool_s8_args *a) {
    if (s->global) {
        a->kernel_h = x->dims[1], a->kernel_w = x->dims[2];
        a->stride_h = a->stride_w = a->dilation_h = a->dilation_w = 1;
        return;
    }
    wok_window w = s->window;
    wok_window_set(&w, x->dims + 1, y->dims + 1);
    a->kernel_h = w.kernel[0], a->kernel_w = w.kernel[1];
    a->stride_h = w.stride[0], a->stride_w = w.stride[1];
    a->dilation_h = w.dilation[0], a->dilation_w = w.dilation[1];
    a->pad_top = w.begin[0], a->pad_left = w.begin[1];
    a->pad_bottom = w.end[0], a->pad_right = w.end[1];
}

wok_status wok_qpool_run(wok_call *call) {
    const qpool_state *s = call->state;
    const wok_tensor *x = call->in[0], *y = call->out[0];
    wok_pool_s8_args a = s->args;
    if (!y->bytes || !x->bytes) return WOK_OK;
    a.batch = x->dims[0], a.in_h = x->dims[1], a.in_w = x->dims[2];
    a.out_h = y->dims[1], a.out_w = y->dims[2];
    a.x = x->data, a.x_stride = x->dims[3];
    a.y = y->data, a.y_stride = y->dims[3];
    set_window(s, x, y, &a);
    wok_pool_problem problem = {.op = s->op, .channels = x->dims[3]};
    const wok_pool_s8_kernel *kernel = wok_pool_s8_select(s->isa, &problem, NULL, NULL);
    if (!kernel) return wok_call_fail(call, WOK_ERR_UNSUPPORTED, "no kernel for %lld channels", (long long)x->dims[3]);
    kernel->run(&problem, &a, call->parallel);
    return WOK_OK;
}

const wok_op_impl *const wok_impls_wok_qaverage_pool[] = {
    &(const wok_op_impl){
        .name = "bytes", .accept = wok_qpool_accept, .prepare = wok_qpool_prepare, .run = wok_qpool_run},
    NULL,
};

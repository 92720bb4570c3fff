/* conv.c - convolution: ONNX's Conv (NCHW, any rank and type), and wok.Conv (NHWC, f32, constant weights, with scale,
 * bias, residual and activation), which the layout rewrite makes of it.
 *
 * wok.Conv inputs: x [N, H, W, C], w [M, C / group, kH, kW], bias [M]?, residual [N, oH, oW, M]?, scale [M]?. */
#include "ops.h"

#include <string.h>

enum { X, W, BIAS, RESIDUAL, SCALE };

/* ---- inference --------------------------------------------------------------------------------------------------- */

/* x and w together: group, channels, window. `channel_last`: x is [N, spatial, C]. */
static wok_status conv_shape(wok_infer *infer, const wok_type *x, const wok_type *w, bool channel_last,
                             wok_window *window, int64_t *dims) {
    if (x->rank < 3 || x->rank != w->rank)
        return wok_infer_fail(infer, WOK_ERR_SHAPE, "input %s and weights %s", wok_type_text(infer->graph, x),
                              wok_type_text(infer->graph, w));
    int64_t group = wok_ir_int(infer->node, "group", 1), c = x->dims[channel_last ? x->rank - 1 : 1], m = w->dims[0];
    if (group < 1 || (wok_dim_known(m) && (m < 1 || m % group)))
        return wok_infer_fail(infer, WOK_ERR_SHAPE, "%lld groups of weights %s", (long long)group,
                              wok_type_text(infer->graph, w));
    if (wok_dim_known(c) && wok_dim_known(w->dims[1]) && (c % group || c / group != w->dims[1]))
        return wok_infer_fail(infer, WOK_ERR_SHAPE, "%lld channels in %lld groups, but weights %s", (long long)c,
                              (long long)group, wok_type_text(infer->graph, w));
    const char *wrong = wok_window_read(infer->node, x->rank - 2, w->dims + 2, window);
    if (wrong) return wok_infer_fail(infer, WOK_ERR_SHAPE, "%s", wrong);
    WOK_TRY(wok_window_infer(infer, window, x->dims + (channel_last ? 1 : 2)));
    dims[0] = x->dims[0];
    dims[channel_last ? x->rank - 1 : 1] = m;
    memcpy(dims + (channel_last ? 1 : 2), window->out, (size_t)window->rank * sizeof *dims);
    return WOK_OK;
}

static wok_status check_vector(wok_infer *infer, int i, int64_t m) {
    const wok_type *t = infer->in[i];
    if (t && t->rank >= 0 && wok_dim_known(m) && wok_count(t->dims, t->rank) >= 0 && wok_count(t->dims, t->rank) != m)
        return wok_infer_fail(infer, WOK_ERR_SHAPE, "input %d is %s, not one value for each of %lld channels", i,
                              wok_type_text(infer->graph, t), (long long)m);
    return WOK_OK;
}

wok_status wok_conv_infer(wok_infer *infer, const wok_type *x, const wok_type *w, bool channel_last, wok_dtype dtype) {
    wok_window window;
    int64_t dims[WOK_MAX_RANK];
    infer->out[0].dtype = dtype;
    if (x->rank < 0 || w->rank < 0) return WOK_OK;
    WOK_TRY(conv_shape(infer, x, w, channel_last, &window, dims));
    wok_infer_out(infer, 0, dtype, x->rank, dims);
    return WOK_OK;
}

wok_status wok_infer_conv(wok_infer *infer) {
    WOK_TRY(wok_infer_need(infer, 2));
    if (infer->in[X]->dtype != infer->in[W]->dtype)
        return wok_infer_fail(infer, WOK_ERR_SHAPE, "%s input, %s weights", wok_dtype_name(infer->in[X]->dtype),
                              wok_dtype_name(infer->in[W]->dtype));
    if (infer->in[W]->rank > 0) WOK_TRY(check_vector(infer, BIAS, infer->in[W]->dims[0]));
    return wok_conv_infer(infer, infer->in[X], infer->in[W], false, infer->in[X]->dtype);
}

wok_status wok_infer_wok_conv(wok_infer *infer) {
    WOK_TRY(wok_infer_need(infer, 2));
    WOK_TRY(wok_conv_infer(infer, infer->in[X], infer->in[W], true, infer->in[X]->dtype));
    const wok_type *residual = infer->in[RESIDUAL], *y = &infer->out[0];
    if (y->rank < 0) return WOK_OK;
    WOK_TRY(check_vector(infer, BIAS, y->dims[3]));
    WOK_TRY(check_vector(infer, SCALE, y->dims[3]));
    for (int d = 0; d < 4 && residual && residual->rank >= 0; d++)
        if (residual->rank != 4 ||
            (wok_dim_known(residual->dims[d]) && wok_dim_known(y->dims[d]) && residual->dims[d] != y->dims[d]))
            return wok_infer_fail(infer, WOK_ERR_SHAPE, "%s is added to %s", wok_type_text(infer->graph, residual),
                                  wok_type_text(infer->graph, y));
    return WOK_OK;
}

/* ---- f32, two dimensions, on the kernels ------------------------------------------------------------------------- */

typedef struct conv_state {
    const wok_conv_f32_kernel *conv;
    const wok_dwconv_kernel *depthwise; /* instead of conv */
    wok_conv_f32_problem problem;
    wok_dwconv_problem depthwise_problem;
    wok_window window;
    void *packed; /* NULL: the weights are not constant */
    wok_act act;
    float lo, hi;
} conv_state;

static bool is_known(const wok_type *t) {
    for (int d = 0; d < t->rank; d++)
        if (!wok_dim_known(t->dims[d]) || t->dims[d] < 1) return false;
    return t->rank > 0;
}

/* One-dimensional signals are pictures of height 1. */
void wok_conv_problems(const wok_window *v, const wok_type *w, int64_t group, wok_conv_f32_problem *conv,
                       wok_dwconv_problem *depthwise) {
    bool flat = v->rank == 1;
    int x = flat ? 0 : 1;
    *conv = (wok_conv_f32_problem){.c_in = w->dims[1] * group,
                                   .c_out = w->dims[0],
                                   .group = group,
                                   .kernel_h = flat ? 1 : v->kernel[0],
                                   .kernel_w = v->kernel[x],
                                   .stride_h = flat ? 1 : v->stride[0],
                                   .stride_w = v->stride[x],
                                   .dilation_h = flat ? 1 : v->dilation[0],
                                   .dilation_w = v->dilation[x]};
    *depthwise = (wok_dwconv_problem){conv->c_in,     conv->kernel_h,   conv->kernel_w,  conv->stride_h,
                                      conv->stride_w, conv->dilation_h, conv->dilation_w};
}

bool wok_conv_is_depthwise(const wok_conv_f32_problem *p) {
    return p->group > 1 && p->group == p->c_in && p->c_in == p->c_out;
}

static size_t packed_bytes(const conv_state *s) {
    return s->depthwise ? s->depthwise->packed_bytes(&s->depthwise_problem) : s->conv->packed_bytes(&s->problem);
}

static void pack(const conv_state *s, const float *w, const float *scale, void *packed) {
    if (s->depthwise)
        s->depthwise->pack(&s->depthwise_problem, w, scale, packed);
    else
        s->conv->pack(&s->problem, w, scale, packed);
}

static wok_status choose_kernel(wok_prepare *prepare, conv_state *s) {
    bool depthwise = wok_conv_is_depthwise(&s->problem);
    const void *problem = depthwise ? (const void *)&s->depthwise_problem : &s->problem;
    const wok_kernel *kernel =
        wok_prepare_kernel(prepare, depthwise ? WOK_FAMILY_dwconv : WOK_FAMILY_conv_f32, problem);
    if (!kernel) return WOK_ERR_UNSUPPORTED;
    if (depthwise)
        s->depthwise = (const void *)kernel;
    else
        s->conv = (const void *)kernel;
    prepare->kernel = kernel;
    return WOK_OK;
}

static wok_status conv_prepare(wok_prepare *prepare) {
    conv_state *s = wok_prepare_alloc(prepare, sizeof *s);
    if (!s) return WOK_ERR_MEMORY;
    const wok_type *w = prepare->in[W];
    const wok_ir_node *node = prepare->node;
    const char *wrong = wok_window_read(node, w->rank - 2, w->dims + 2, &s->window);
    if (!wok_read_activation(node, &s->act, &s->lo, &s->hi)) wrong = "unknown activation";
    if (wrong)
        return wok_ctx_fail(prepare->ctx, WOK_ERR_UNSUPPORTED, "node %s: %s", node->name ? node->name : "", wrong);
    wok_conv_problems(&s->window, w, wok_ir_int(node, "group", 1), &s->problem, &s->depthwise_problem);
    WOK_TRY(choose_kernel(prepare, s));
    prepare->state = s;
    if (!w->data) return WOK_OK;
    bool scaled = node->op == WOK_OP_wok_Conv && prepare->in[SCALE];
    const float *weights = wok_prepare_f32(prepare, W), *scale = scaled ? wok_prepare_f32(prepare, SCALE) : NULL;
    if (!weights || (scaled && !scale)) return WOK_ERR_MEMORY;
    s->packed = wok_prepare_alloc(prepare, packed_bytes(s));
    if (!s->packed) return WOK_ERR_MEMORY;
    pack(s, weights, scale, s->packed);
    prepare->consumed = 1u << W | (scaled ? 1u << SCALE : 0);
    return WOK_OK;
}

/* Everything of a launch but the pointers. in, out: the spatial sizes. */
static wok_conv_f32_args shape_args(const conv_state *s, int64_t batch, const int64_t *in, const int64_t *out) {
    wok_window w = s->window;
    wok_window_set(&w, in, out);
    bool flat = w.rank == 1;
    int x = flat ? 0 : 1;
    wok_conv_f32_args args = {.batch = batch,
                              .in_h = flat ? 1 : w.in[0],
                              .in_w = w.in[x],
                              .out_h = flat ? 1 : w.out[0],
                              .out_w = w.out[x],
                              .pad_top = flat ? 0 : w.begin[0],
                              .pad_left = w.begin[x],
                              .x_stride = s->problem.c_in,
                              .y_stride = s->problem.c_out};
    args.epilogue = (wok_epilogue_f32){.residual_stride = s->problem.c_out, .act = s->act, .lo = s->lo, .hi = s->hi};
    return args;
}

static size_t kernel_workspace(const conv_state *s, const wok_conv_f32_args *args, const wok_parallel *parallel) {
    if (s->depthwise || args->batch < 1) return 0;
    return s->conv->workspace_bytes(&s->problem, args, wok_parallel_threads(parallel));
}

static void launch(const conv_state *s, const wok_conv_f32_args *a, const wok_parallel *parallel) {
    if (a->batch < 1) return;
    if (!s->depthwise) {
        s->conv->run(&s->problem, a, parallel);
        return;
    }
    wok_dwconv_args args = {.batch = a->batch,
                            .in_h = a->in_h,
                            .in_w = a->in_w,
                            .out_h = a->out_h,
                            .out_w = a->out_w,
                            .pad_top = a->pad_top,
                            .pad_left = a->pad_left,
                            .x = a->x,
                            .x_stride = a->x_stride,
                            .packed = a->packed,
                            .y = a->y,
                            .y_stride = a->y_stride,
                            .epilogue = a->epilogue};
    s->depthwise->run(&s->depthwise_problem, &args, parallel);
}

static const void *input_data(const wok_call *call, int i) {
    return i < call->in_count && call->in[i] ? call->in[i]->data : NULL;
}

static int64_t conv_macs(const wok_call *call) {
    const conv_state *s = call->state;
    const wok_conv_f32_problem *p = &s->problem;
    return wok_tensor_count(call->out[0]) * (p->c_in / p->group) * p->kernel_h * p->kernel_w;
}

/* ---- wok.Conv ---------------------------------------------------------------------------------------------------- */

static const char *wok_conv_accept(const wok_prepare *prepare) {
    const wok_type *w = prepare->in[W];
    if (!w->data || w->rank != 4 || !is_known(w)) return "the weights are not a constant of rank 4";
    if (prepare->in[SCALE] && !prepare->in[SCALE]->data) return "the scale is not constant";
    return wok_accept_f32(prepare);
}

static wok_conv_f32_args wok_conv_args(const wok_call *call) {
    return shape_args(call->state, call->in[X]->dims[0], call->in[X]->dims + 1, call->out[0]->dims + 1);
}

static size_t wok_conv_workspace(const wok_call *call) {
    wok_conv_f32_args args = wok_conv_args(call);
    return kernel_workspace(call->state, &args, call->parallel);
}

static wok_status wok_conv_run(wok_call *call) {
    const conv_state *s = call->state;
    wok_conv_f32_args args = wok_conv_args(call);
    args.x = call->in[X]->data;
    args.y = call->out[0]->data;
    args.packed = s->packed;
    args.workspace = call->workspace;
    args.epilogue.bias = input_data(call, BIAS);
    args.epilogue.residual = input_data(call, RESIDUAL);
    launch(s, &args, call->parallel);
    return WOK_OK;
}

const wok_op_impl *const wok_impls_wok_conv[] = {
    &(const wok_op_impl){.name = "packed",
                         .inplace = 1u << RESIDUAL,
                         .accept = wok_conv_accept,
                         .prepare = conv_prepare,
                         .workspace = wok_conv_workspace,
                         .run = wok_conv_run,
                         .macs = conv_macs},
    NULL,
};

/* ---- Conv on the same kernels: turned to NHWC and back ----------------------------------------------------------- */

static const char *nhwc_accept(const wok_prepare *prepare) {
    const wok_type *w = prepare->in[W];
    if (w->rank != 3 && w->rank != 4) return "not one or two spatial dimensions";
    if (!is_known(w)) return "the shape of the weights is not known";
    return wok_accept_f32(prepare);
}

typedef struct nhwc_layout {
    wok_conv_f32_args args;
    size_t x, y, packed, kernel, total; /* offsets into the workspace */
    int64_t pixels_in, pixels_out;
} nhwc_layout;

static nhwc_layout plan_nhwc(const wok_call *call) {
    const conv_state *s = call->state;
    nhwc_layout l = {.args = shape_args(s, call->in[X]->dims[0], call->in[X]->dims + 2, call->out[0]->dims + 2)};
    l.pixels_in = l.args.in_h * l.args.in_w;
    l.pixels_out = l.args.out_h * l.args.out_w;
    l.y = wok_align_up((size_t)(l.args.batch * l.pixels_in * s->problem.c_in) * sizeof(float));
    l.packed = l.y + wok_align_up((size_t)(l.args.batch * l.pixels_out * s->problem.c_out) * sizeof(float));
    l.kernel = l.packed + (s->packed ? 0 : wok_align_up(packed_bytes(s)));
    l.total = l.kernel + kernel_workspace(s, &l.args, call->parallel);
    return l;
}

static size_t nhwc_workspace(const wok_call *call) {
    return plan_nhwc(call).total;
}

static wok_status nhwc_run(wok_call *call) {
    const conv_state *s = call->state;
    nhwc_layout l = plan_nhwc(call);
    char *work = call->workspace;
    int64_t c = s->problem.c_in, m = s->problem.c_out;
    if (l.args.batch < 1) return WOK_OK;
    wok_copy_strided(work, call->in[X]->data, (int64_t[]){l.args.batch, l.pixels_in, c},
                     (int64_t[]){c * l.pixels_in, 1, l.pixels_in}, 3, sizeof(float), call->parallel);
    if (!s->packed) pack(s, call->in[W]->data, NULL, work + l.packed);
    l.args.x = (const float *)(const void *)work;
    l.args.y = (float *)(void *)(work + l.y);
    l.args.packed = s->packed ? s->packed : work + l.packed;
    l.args.workspace = work + l.kernel;
    l.args.epilogue.bias = input_data(call, BIAS);
    launch(s, &l.args, call->parallel);
    wok_copy_strided(call->out[0]->data, l.args.y, (int64_t[]){l.args.batch, m, l.pixels_out},
                     (int64_t[]){m * l.pixels_out, 1, m}, 3, sizeof(float), call->parallel);
    return WOK_OK;
}

/* ---- reference: any rank and type -------------------------------------------------------------------------------- */

wok_status wok_conv_ref_start(wok_call *call, const wok_tensor *x, const wok_tensor *w, wok_conv_ref *ref) {
    const wok_tensor *y = call->out[0];
    *ref = (wok_conv_ref){.x = x, .w = w, .y = y};
    const char *wrong = wok_window_read(call->node, x->rank - 2, w->dims + 2, &ref->window);
    if (wrong) return wok_call_fail(call, WOK_ERR_SHAPE, "%s", wrong);
    wok_window_set(&ref->window, x->dims + 2, y->dims + 2);
    ref->group_in = w->dims[1];
    ref->group_out = w->dims[0] / wok_ir_int(call->node, "group", 1);
    ref->pixels_in = wok_dims_product(x->dims, 2, x->rank);
    ref->pixels_out = wok_dims_product(y->dims, 2, y->rank);
    ref->taps = wok_dims_product(w->dims, 2, w->rank);
    return WOK_OK;
}

double wok_conv_ref_sum(const wok_conv_ref *ref, int64_t b, int64_t m, int64_t at) {
    const wok_tensor *x = ref->x, *w = ref->w, *zero = ref->w_zero;
    int64_t first = m / ref->group_out * ref->group_in;
    double sum = 0, w_zero = zero ? wok_get_f64(zero->dtype, zero->data, wok_tensor_count(zero) > 1 ? m : 0) : 0;
    for (int64_t tap = 0; tap < ref->taps; tap++) {
        int64_t from = wok_window_source(&ref->window, at, tap);
        for (int64_t c = 0; c < ref->group_in && from >= 0; c++)
            sum +=
                (wok_get_f64(x->dtype, x->data, (b * x->dims[1] + first + c) * ref->pixels_in + from) - ref->x_zero) *
                (wok_get_f64(w->dtype, w->data, (m * ref->group_in + c) * ref->taps + tap) - w_zero);
    }
    return sum;
}

typedef struct ref_job {
    wok_conv_ref ref;
    const wok_tensor *bias;
} ref_job;

static void ref_plane(void *arg, int64_t plane, int worker) {
    const ref_job *job = arg;
    const wok_tensor *y = job->ref.y;
    int64_t b = plane / y->dims[1], m = plane % y->dims[1];
    double add = job->bias ? wok_get_f64(job->bias->dtype, job->bias->data, m) : 0;
    (void)worker;
    for (int64_t at = 0; at < job->ref.pixels_out; at++) {
        double sum = wok_conv_ref_sum(&job->ref, b, m, at) + add;
        wok_store_f64(y->dtype, y->data, plane * job->ref.pixels_out + at, 1, &sum);
    }
}

static wok_status conv_run_ref(wok_call *call) {
    ref_job job = {.bias = call->in_count > BIAS ? call->in[BIAS] : NULL};
    WOK_TRY(wok_conv_ref_start(call, call->in[X], call->in[W], &job.ref));
    wok_parallel_for(call->parallel, ref_plane, &job, call->out[0]->dims[0] * call->out[0]->dims[1]);
    return WOK_OK;
}

const wok_op_impl *const wok_impls_conv[] = {
    &(const wok_op_impl){.name = "nhwc",
                         .accept = nhwc_accept,
                         .prepare = conv_prepare,
                         .workspace = nhwc_workspace,
                         .run = nhwc_run,
                         .macs = conv_macs},
    &(const wok_op_impl){.name = "ref", .accept = wok_accept_number, .run = conv_run_ref},
    NULL,
};

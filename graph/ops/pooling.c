/* pooling.c - max and average pooling: ONNX's (NCHW, any rank and type, indices), and wok's on NHWC pictures. */
#include "ops.h"

#include <math.h>
#include <string.h>

/* ---- inference --------------------------------------------------------------------------------------------------- */

static wok_status infer_pool(wok_infer *infer, bool channel_last) {
    const wok_type *x = infer->in[0];
    wok_window window;
    int64_t dims[WOK_MAX_RANK];
    infer->out[0].dtype = x->dtype;
    if (x->rank < 0) return WOK_OK;
    if (x->rank < 3)
        return wok_infer_fail(infer, WOK_ERR_SHAPE, "the input %s is no picture", wok_type_text(infer->graph, x));
    const char *wrong = wok_window_read(infer->node, x->rank - 2, NULL, &window);
    if (wrong) return wok_infer_fail(infer, WOK_ERR_SHAPE, "%s", wrong);
    memcpy(dims, x->dims, sizeof dims);
    int first = channel_last ? 1 : 2;
    WOK_TRY(wok_window_infer(infer, &window, x->dims + first));
    memcpy(dims + first, window.out, (size_t)window.rank * sizeof *dims);
    wok_infer_out(infer, 0, x->dtype, x->rank, dims);
    wok_infer_out(infer, 1, WOK_I64, x->rank, dims);
    return WOK_OK;
}

wok_status wok_infer_pool(wok_infer *infer) {
    WOK_TRY(wok_infer_need(infer, 1));
    return infer_pool(infer, false);
}

wok_status wok_infer_wok_pool(wok_infer *infer) {
    WOK_TRY(wok_infer_need(infer, 1));
    if (infer->in[0]->rank >= 0 && infer->in[0]->rank != 4)
        return wok_infer_fail(infer, WOK_ERR_SHAPE, "the input %s is no picture",
                              wok_type_text(infer->graph, infer->in[0]));
    return infer_pool(infer, true);
}

wok_status wok_infer_channels(wok_infer *infer, bool channel_last) {
    WOK_TRY(wok_infer_need(infer, 1));
    const wok_type *x = infer->in[0];
    int64_t dims[WOK_MAX_RANK];
    infer->out[0].dtype = x->dtype;
    if (x->rank < 0) return WOK_OK;
    if (x->rank < 3)
        return wok_infer_fail(infer, WOK_ERR_SHAPE, "the input %s is no picture", wok_type_text(infer->graph, x));
    memcpy(dims, x->dims, sizeof dims);
    for (int d = 1; d < x->rank; d++)
        if (d != (channel_last ? x->rank - 1 : 1)) dims[d] = 1;
    wok_infer_out(infer, 0, x->dtype, x->rank, dims);
    return WOK_OK;
}

wok_status wok_infer_global_pool(wok_infer *infer) {
    return wok_infer_channels(infer, false);
}
wok_status wok_infer_wok_global_pool(wok_infer *infer) {
    return wok_infer_channels(infer, true);
}

/* ---- NHWC pictures on the kernels -------------------------------------------------------------------------------- */

typedef struct pool_state {
    wok_isa_set isa;
    const wok_pool_kernel *kernel; /* NULL: the number of channels is known when the shapes are */
    wok_pool_problem problem;
    wok_window window;
    bool global, count_pads;
} pool_state;

static const char *nhwc_accept(const wok_prepare *prepare) {
    if (prepare->node->out_count > 1 && prepare->node->out[1] != WOK_ABSENT) return "the kernels give no indices";
    return wok_accept_f32(prepare);
}

static wok_status nhwc_prepare(wok_prepare *prepare) {
    pool_state *s = wok_prepare_alloc(prepare, sizeof *s);
    if (!s) return WOK_ERR_MEMORY;
    const wok_ir_node *node = prepare->node;
    s->problem.op = node->op == WOK_OP_wok_MaxPool ? WOK_POOL_MAX : WOK_POOL_AVERAGE;
    int64_t channels = prepare->in[0]->rank == 4 ? prepare->in[0]->dims[3] : -1;
    s->isa = prepare->isa;
    s->problem.channels = channels > 0 ? channels : 1;
    s->global = node->op == WOK_OP_wok_GlobalAveragePool;
    s->count_pads = wok_ir_int(node, "count_include_pad", 0) != 0;
    const char *wrong = s->global ? NULL : wok_window_read(node, 2, NULL, &s->window);
    if (wrong) return wok_ctx_fail(prepare->ctx, WOK_ERR_SHAPE, "node %s: %s", node->name ? node->name : "", wrong);
    prepare->kernel = wok_prepare_kernel(prepare, WOK_FAMILY_pool, &s->problem);
    if (!prepare->kernel) return WOK_ERR_UNSUPPORTED;
    if (channels > 0) s->kernel = (const void *)prepare->kernel;
    prepare->state = s;
    return WOK_OK;
}

static wok_status nhwc_run(wok_call *call) {
    const pool_state *s = call->state;
    const wok_tensor *x = call->in[0], *y = call->out[0];
    wok_pool_args a = {.batch = x->dims[0],
                       .in_h = x->dims[1],
                       .in_w = x->dims[2],
                       .out_h = y->dims[1],
                       .out_w = y->dims[2],
                       .kernel_h = x->dims[1],
                       .kernel_w = x->dims[2],
                       .stride_h = 1,
                       .stride_w = 1,
                       .dilation_h = 1,
                       .dilation_w = 1,
                       .count_include_pad = s->count_pads,
                       .x = x->data,
                       .x_stride = x->dims[3],
                       .y = y->data,
                       .y_stride = y->dims[3]};
    if (!s->global) {
        wok_window w = s->window;
        wok_window_set(&w, x->dims + 1, y->dims + 1);
        a.kernel_h = w.kernel[0], a.kernel_w = w.kernel[1];
        a.stride_h = w.stride[0], a.stride_w = w.stride[1];
        a.dilation_h = w.dilation[0], a.dilation_w = w.dilation[1];
        a.pad_top = w.begin[0], a.pad_left = w.begin[1];
        a.pad_bottom = w.end[0], a.pad_right = w.end[1];
    }
    if (!y->bytes || !x->bytes) return WOK_OK;
    wok_pool_problem problem = {.op = s->problem.op, .channels = x->dims[3]};
    const wok_pool_kernel *kernel = s->kernel ? s->kernel : wok_pool_select(s->isa, &problem, NULL, NULL);
    if (!kernel) return wok_call_fail(call, WOK_ERR_UNSUPPORTED, "no kernel for %lld channels", (long long)x->dims[3]);
    kernel->run(&problem, &a, call->parallel);
    return WOK_OK;
}

const wok_op_impl *const wok_impls_wok_pool[] = {
    &(const wok_op_impl){.name = "nhwc", .accept = nhwc_accept, .prepare = nhwc_prepare, .run = nhwc_run},
    &(const wok_op_impl){
        .name = "bytes", .accept = wok_qpool_accept, .prepare = wok_qpool_prepare, .run = wok_qpool_run},
    NULL,
};

/* ---- reference: NCHW, any rank and type -------------------------------------------------------------------------- */

typedef struct ref_job {
    const wok_call *call;
    wok_window window;
    int64_t pixels_in, pixels_out;
    bool average, count_pads, column_major;
} ref_job;

/* A NaN stays, the first of equal values wins. */
static double max_of(const ref_job *job, const wok_tensor *x, int64_t base, int64_t at, int64_t *index) {
    wok_taps taps = wok_window_taps(&job->window, at);
    double best = -(double)INFINITY;
    *index = -1;
    for (int64_t i = 0; i < taps.count && !isnan(best); i++) {
        int64_t from = wok_taps_source(&job->window, &taps, i);
        double v = wok_get_f64(x->dtype, x->data, base + from);
        if (*index < 0 || v > best || isnan(v)) best = v, *index = from;
    }
    return best;
}

static double average_of(const ref_job *job, const wok_tensor *x, int64_t base, int64_t at) {
    wok_taps taps = wok_window_taps(&job->window, at);
    int64_t count = job->count_pads ? taps.padded : taps.count;
    double sum = 0;
    for (int64_t i = 0; i < taps.count; i++)
        sum += wok_get_f64(x->dtype, x->data, base + wok_taps_source(&job->window, &taps, i));
    return count ? sum / (double)count : 0;
}

/* Position in the plane as storage_order 1 counts it: the last dimension slowest. */
static int64_t column_major(const wok_window *w, int64_t index) {
    int64_t at[WOK_WINDOW_MAX], position = 0;
    for (int d = w->rank - 1; d >= 0; d--) {
        at[d] = index % w->in[d];
        index /= w->in[d];
    }
    for (int d = w->rank - 1; d >= 0; d--) position = position * w->in[d] + at[d];
    return position;
}

static void ref_plane(void *arg, int64_t plane, int worker) {
    const ref_job *job = arg;
    const wok_tensor *x = job->call->in[0], *y = job->call->out[0];
    const wok_tensor *indices = job->call->out_count > 1 ? job->call->out[1] : NULL;
    (void)worker;
    for (int64_t at = 0; at < job->pixels_out; at++) {
        int64_t index = 0, base = plane * job->pixels_in, to = plane * job->pixels_out + at;
        double v = job->average ? average_of(job, x, base, at) : max_of(job, x, base, at, &index);
        wok_store_f64(y->dtype, y->data, to, 1, &v);
        if (!indices) continue;
        if (job->column_major && index >= 0) index = column_major(&job->window, index);
        ((int64_t *)indices->data)[to] = base + index;
    }
}

static void run_planes(const wok_call *call, ref_job *job) {
    const wok_tensor *x = call->in[0], *y = call->out[0];
    job->call = call;
    job->pixels_in = wok_dims_product(x->dims, 2, x->rank);
    job->pixels_out = wok_dims_product(y->dims, 2, y->rank);
    wok_parallel_for(call->parallel, ref_plane, job, x->dims[0] * x->dims[1]);
}

static wok_status ref_run(wok_call *call) {
    const wok_tensor *x = call->in[0];
    ref_job job = {.average = call->node->op == WOK_OP_AveragePool,
                   .count_pads = wok_ir_int(call->node, "count_include_pad", 0) != 0,
                   .column_major = wok_ir_int(call->node, "storage_order", 0) != 0};
    const char *wrong = wok_window_read(call->node, x->rank - 2, NULL, &job.window);
    if (wrong) return wok_call_fail(call, WOK_ERR_SHAPE, "%s", wrong);
    wok_window_set(&job.window, x->dims + 2, call->out[0]->dims + 2);
    run_planes(call, &job);
    return WOK_OK;
}

static wok_status global_run(wok_call *call) {
    const wok_tensor *x = call->in[0];
    ref_job job = {.average = call->node->op == WOK_OP_GlobalAveragePool, .window = {.rank = x->rank - 2}};
    for (int d = 0; d < job.window.rank; d++) {
        job.window.kernel[d] = job.window.in[d] = x->dims[d + 2];
        job.window.stride[d] = job.window.dilation[d] = job.window.out[d] = 1;
    }
    run_planes(call, &job);
    return WOK_OK;
}

const wok_op_impl *const wok_impls_max_pool[] = {
    &(const wok_op_impl){.name = "ref", .accept = wok_accept_number, .run = ref_run},
    NULL,
};
const wok_op_impl *const wok_impls_average_pool[] = {
    &(const wok_op_impl){.name = "ref", .accept = wok_accept_number, .run = ref_run},
    NULL,
};
const wok_op_impl *const wok_impls_global_pool[] = {
    &(const wok_op_impl){.name = "ref", .accept = wok_accept_number, .run = global_run},
    NULL,
};

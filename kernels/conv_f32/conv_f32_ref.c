/* conv_f32_ref.c - the oracle: the definition of a convolution, summed in double, rounded once. */
#include "conv_f32.h"
#include "../epilogue_ref.h"

enum { NR = WOK_CONV_F32_NR };

typedef struct ref_run {
    const wok_conv_f32_problem *problem;
    const wok_conv_f32_args *args;
} ref_run;

/* acc[16] += one tap of one panel; x is NULL outside the picture, where the products are with zero. */
static void add_tap(double *acc, const float *x, const float *w, int64_t channels) {
    for (int64_t c = 0; c < channels; c++, w += NR)
        for (int lane = 0; lane < NR; lane++) acc[lane] += (x ? (double)x[c] : 0.0) * (double)w[lane];
}

/* Output pixel (image, oy, ox), 16 columns from column n0 of a group on. */
static void ref_panel(const ref_run *run, int64_t image, int64_t oy, int64_t ox, int64_t group, int64_t n0) {
    const wok_conv_f32_problem *p = run->problem;
    const wok_conv_f32_args *a = run->args;
    const wok_epilogue_f32 *e = &a->epilogue;
    const int64_t channels = p->c_in / p->group, group_out = p->c_out / p->group;
    const int64_t tap_size = channels * NR, panel_size = p->kernel_h * p->kernel_w * tap_size;
    const float *w = (const float *)a->packed + (group * wok_ceil_div(group_out, NR) + n0 / NR) * panel_size;
    double acc[NR] = {0};
    for (int64_t ky = 0; ky < p->kernel_h; ky++)
        for (int64_t kx = 0; kx < p->kernel_w; kx++, w += tap_size) {
            const int64_t iy = oy * p->stride_h - a->pad_top + ky * p->dilation_h;
            const int64_t ix = ox * p->stride_w - a->pad_left + kx * p->dilation_w;
            const bool inside = iy >= 0 && iy < a->in_h && ix >= 0 && ix < a->in_w;
            const int64_t pixel = (image * a->in_h + iy) * a->in_w + ix;
            add_tap(acc, inside ? a->x + pixel * a->x_stride + group * channels : NULL, w, channels);
        }
    const int64_t pixel = (image * a->out_h + oy) * a->out_w + ox;
    for (int64_t lane = 0; lane < wok_min64(NR, group_out - n0); lane++) {
        const int64_t n = group * group_out + n0 + lane;
        a->y[pixel * a->y_stride + n] =
            wok_epilogue_ref(acc[lane], e->bias ? e->bias + n : NULL,
                             e->residual ? e->residual + pixel * e->residual_stride + n : NULL, e);
    }
}

static void ref_row(void *arg, int64_t row, int worker) {
    (void)worker;
    const ref_run *run = arg;
    const wok_conv_f32_problem *p = run->problem;
    for (int64_t ox = 0; ox < run->args->out_w; ox++)
        for (int64_t group = 0; group < p->group; group++)
            for (int64_t n0 = 0; n0 < p->c_out / p->group; n0 += NR)
                ref_panel(run, row / run->args->out_h, row % run->args->out_h, ox, group, n0);
}

static size_t workspace_bytes(const wok_conv_f32_problem *problem, const wok_conv_f32_args *args, int threads) {
    (void)problem, (void)args, (void)threads;
    return 0;
}

static void run(const wok_conv_f32_problem *problem, const wok_conv_f32_args *args, const wok_parallel *parallel) {
    ref_run r = {problem, args};
    wok_parallel_for(parallel, ref_row, &r, args->batch * args->out_h);
}

const wok_conv_f32_kernel wok_conv_f32__ref = {
    .base = {"wok_conv_f32__ref", WOK_ISA_ref, WOK_KERNEL_REFERENCE, wok_conv_f32_accept},
    .layout = WOK_CONV_F32_LAYOUT,
    .mr = 1,
    .nr = NR,
    .packed_bytes = wok_conv_f32_packed_bytes,
    .pack = wok_conv_f32_pack,
    .workspace_bytes = workspace_bytes,
    .run = run,
};

/* conv_s8_ref.c - the oracle: the definition of a convolution, tap by tap, and the scalar epilogue. */
#include "conv_s8.h"
#include "../epilogue_s8_ref.h"

enum { NR = WOK_GEMM_S8_PANEL, LINE = WOK_GEMM_S8_LINE };

typedef struct ref_run {
    const wok_conv_s8_problem *problem;
    const wok_conv_s8_args *args;
} ref_run;

/* Output pixel (image, oy, ox), output channel n of a group. */
static void ref_element(const ref_run *run, int64_t image, int64_t oy, int64_t ox, int64_t group, int64_t n) {
    const wok_conv_s8_problem *p = run->problem;
    const wok_conv_s8_args *a = run->args;
    const wok_gemm_s8_problem g = wok_conv_s8_group(p);
    const wok_gemm_s8_packed w =
        wok_gemm_s8_unpack(g.n, g.k, (const char *)a->packed + (size_t)group * wok_conv_s8_group_bytes(p));
    const uint8_t *column = w.panels + n / NR * w.panel_stride + n % NR * 4;
    const int64_t channels = p->c_in / p->group;
    int32_t acc = 0;
    for (int64_t k = 0; k < g.k; k++) {
        const int64_t tap = k / channels, ky = tap / p->kernel_w, kx = tap % p->kernel_w;
        const int64_t iy = oy * p->stride_h - a->pad_top + ky * p->dilation_h;
        const int64_t ix = ox * p->stride_w - a->pad_left + kx * p->dilation_w;
        if (iy < 0 || iy >= a->in_h || ix < 0 || ix >= a->in_w) continue; /* x_zero: the value 0 */
        const int64_t pixel = (image * a->in_h + iy) * a->in_w + ix;
        const int32_t x = a->x[pixel * a->x_stride + group * channels + k % channels];
        acc += (x - a->x_zero) * (column[k / 4 * LINE + k % 4] - w.offset[n]);
    }
    const int64_t pixel = (image * a->out_h + oy) * a->out_w + ox, channel = group * g.n + n;
    wok_epilogue_s8_ref(acc, pixel, channel, &a->epilogue, a->y, pixel * a->y_stride + channel);
}

static void ref_row(void *arg, int64_t row, int worker) {
    (void)worker;
    const ref_run *run = arg;
    const wok_conv_s8_problem *p = run->problem;
    for (int64_t ox = 0; ox < run->args->out_w; ox++)
        for (int64_t group = 0; group < p->group; group++)
            for (int64_t n = 0; n < p->c_out / p->group; n++)
                ref_element(run, row / run->args->out_h, row % run->args->out_h, ox, group, n);
}

static size_t workspace_bytes(const wok_conv_s8_problem *problem, const wok_conv_s8_args *args, int threads) {
    (void)problem, (void)args, (void)threads;
    return 0;
}

static void run(const wok_conv_s8_problem *problem, const wok_conv_s8_args *args, const wok_parallel *parallel) {
    ref_run r = {problem, args};
    wok_parallel_for(parallel, ref_row, &r, args->batch * args->out_h);
}

const wok_conv_s8_kernel wok_conv_s8__ref = {
    .base = {"wok_conv_s8__ref", WOK_ISA_ref, WOK_KERNEL_REFERENCE, wok_conv_s8_accept},
    .layout = WOK_CONV_S8_LAYOUT,
    .mr = 1,
    .nr = NR,
    .packed_bytes = wok_conv_s8_packed_bytes,
    .pack = wok_conv_s8_pack,
    .workspace_bytes = workspace_bytes,
    .run = run,
};

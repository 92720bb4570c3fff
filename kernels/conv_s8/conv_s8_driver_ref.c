/* conv_s8_driver_ref.c - the convolution without its inner loop: packing, splitting into tasks, gathering rows.
 *
 * Portable C, shared by every SIMD variant; conv_s8.h has the picture. Workspace: [thread][rows of a chunk][lda] bytes,
 * lda = K rounded up to 64.
 */
#include "conv_s8.h"
#include "../conv_f32/conv_f32.h"
#include "../conv_split.h"

enum { NR = WOK_GEMM_S8_PANEL, CHUNK_BYTES = 192 * 1024 };

const char *wok_conv_s8_accept(const void *problem) {
    const wok_conv_s8_problem *p = problem;
    const char *reason = wok_conv_f32_accept(problem);
    if (reason) return reason;
    const wok_gemm_s8_problem group = wok_conv_s8_group(p);
    reason = wok_gemm_s8_accept(&group);
    if (reason) return reason;
    const int64_t bytes = wok_mul_sat(p->group, (int64_t)wok_conv_s8_group_bytes(p));
    return bytes >= WOK_SIZE_LIMIT ? "the weights are too large to address" : NULL;
}

size_t wok_conv_s8_group_bytes(const wok_conv_s8_problem *p) {
    const wok_gemm_s8_problem group = wok_conv_s8_group(p);
    return (wok_gemm_s8_packed_bytes(&group) + 63) / 64 * 64;
}

size_t wok_conv_s8_packed_bytes(const wok_conv_s8_problem *p) {
    return (size_t)p->group * wok_conv_s8_group_bytes(p);
}

void wok_conv_s8_pack(const wok_conv_s8_problem *p, const int8_t *w, const int8_t *w_zero, void *packed) {
    const wok_gemm_s8_problem group = wok_conv_s8_group(p);
    const int64_t channels = p->c_in / p->group, taps = p->kernel_h * p->kernel_w;
    for (int64_t g = 0; g < p->group; g++) {
        const wok_gemm_s8_source source = {.b = w + g * group.n * group.k,
                                           .b_zero = w_zero ? w_zero + g * group.n : NULL,
                                           .segment = channels,
                                           .stride_segment = 1,
                                           .stride_k = taps,
                                           .stride_n = group.k};
        wok_gemm_s8_pack_source(&group, &source, (char *)packed + (size_t)g * wok_conv_s8_group_bytes(p), NULL);
    }
}

/* ---- plan -------------------------------------------------------------------------------------------------------- */

typedef struct conv_plan {
    bool in_place; /* 1x1, nothing skipped, no padding: output pixel i reads input
                    pixel i */
    int64_t k, lda;
    int64_t pixels;       /* output pixels of the batch */
    int64_t group_panels; /* of one group */
    int64_t chunks, ranges;
    int64_t thread_bytes;
} conv_plan;

static conv_plan make_plan(const wok_conv_s8_problem *p, const wok_conv_s8_args *a, int mr, int threads) {
    const wok_gemm_s8_problem group = wok_conv_s8_group(p);
    conv_plan plan = {.k = group.k, .group_panels = wok_ceil_div(group.n, NR)};
    plan.in_place = p->kernel_h == 1 && p->kernel_w == 1 && p->stride_h == 1 && p->stride_w == 1 && a->pad_top == 0 &&
                    a->pad_left == 0 && a->out_h == a->in_h && a->out_w == a->in_w;
    plan.lda = plan.in_place ? a->x_stride : wok_round_up(group.k, 64);
    plan.pixels = wok_mul_sat(a->batch, wok_mul_sat(a->out_h, a->out_w));
    if (plan.pixels == 0) return plan;

    const double k = (double)group.k;
    wok_conv_cost cost = {.units = wok_ceil_div(plan.pixels, mr), .panels = p->group * plan.group_panels};
    cost.unit_panel = k * mr * NR / 32;
    cost.unit_prepare =
        plan.in_place ? 0 : (double)p->group * mr * (k / 16 + 4.0 * (double)(p->kernel_h * p->kernel_w));
    cost.weight_bytes = (double)cost.panels * k * NR;
    cost.pixel_bytes = (double)a->batch * (double)a->in_h * (double)a->in_w * (double)p->c_in;
    const int64_t chunk_units = wok_max64(1, CHUNK_BYTES / (wok_round_up(group.k, 64) * mr));
    const wok_conv_split split = wok_conv_choose_split(&cost, wok_ceil_div(cost.units, chunk_units), threads);
    plan.chunks = split.chunks;
    plan.ranges = split.ranges;
    if (!plan.in_place) plan.thread_bytes = wok_mul_sat(wok_ceil_div(cost.units, plan.chunks) * mr, plan.lda);
    return plan;
}

size_t wok_conv_s8_workspace(const wok_conv_s8_problem *p, const wok_conv_s8_args *args, int mr, int threads) {
    threads = threads > 1 ? threads : 1;
    const int64_t bytes = wok_mul_sat(make_plan(p, args, mr, threads).thread_bytes, threads);
    return bytes >= WOK_SIZE_LIMIT ? SIZE_MAX : (size_t)bytes;
}

/* ---- gathering --------------------------------------------------------------------------------------------------- */

/* memcpy for a few bytes: calling it costs more than they do. Never touches a byte outside. */
static inline int8_t *copy(int8_t *out, const int8_t *x, int64_t count) {
    if (count >= 16) {
        int64_t i = 0;
        for (; i <= count - 16; i += 16) memcpy(out + i, x + i, 16);
        if (i < count) memcpy(out + count - 16, x + count - 16, 16);
    } else if (count >= 8) {
        memcpy(out, x, 8);
        memcpy(out + count - 8, x + count - 8, 8);
    } else if (count >= 4) {
        memcpy(out, x, 4);
        memcpy(out + count - 4, x + count - 4, 4);
    } else {
        for (int64_t i = 0; i < count; i++) out[i] = x[i];
    }
    return out + count;
}

static inline int8_t *fill(int8_t *out, int32_t value, int64_t count) {
    memset(out, value, (size_t)count);
    return out + count;
}

typedef struct gather {
    const wok_conv_s8_problem *p;
    const wok_conv_s8_args *a;
    int64_t channels, first; /* of the group */
    bool joined;             /* the taps of a kernel row lie side by side in the picture */
} gather;

/* The taps of one kernel row. x: the picture row's first pixel; ix: column of the first tap, columns [0, in_w)
 * exist. */
static inline int8_t *gather_taps(const gather *g, const int8_t *x, int64_t ix, int8_t *out) {
    const int64_t taps = g->p->kernel_w, step = g->p->dilation_w, stride = g->a->x_stride;
    if (g->joined) {
        const int64_t begin = wok_min64(taps, wok_max64(0, -ix));
        const int64_t end = wok_max64(begin, wok_min64(taps, g->a->in_w - ix));
        if (begin > 0) out = fill(out, g->a->x_zero, begin * g->channels);
        if (end > begin) out = copy(out, x + (ix + begin) * stride, (end - begin) * g->channels);
        return end < taps ? fill(out, g->a->x_zero, (taps - end) * g->channels) : out;
    }
    for (int64_t kx = 0; kx < taps; kx++, ix += step)
        out =
            ix >= 0 && ix < g->a->in_w ? copy(out, x + ix * stride, g->channels) : fill(out, g->a->x_zero, g->channels);
    return out;
}

/* Rows of `count` output pixels from `pixel` on, lda apart. */
static void gather_rows(const gather *g, int64_t pixel, int64_t count, int64_t lda, int8_t *rows) {
    const wok_conv_s8_problem *p = g->p;
    const wok_conv_s8_args *a = g->a;
    int64_t ox = pixel % a->out_w, oy = pixel / a->out_w % a->out_h, image = pixel / a->out_w / a->out_h;
    for (int64_t i = 0; i < count; i++) {
        const int64_t top = oy * p->stride_h - a->pad_top, left = ox * p->stride_w - a->pad_left;
        int8_t *out = rows + i * lda;
        for (int64_t ky = 0; ky < p->kernel_h; ky++) {
            const int64_t iy = top + ky * p->dilation_h;
            if (iy >= 0 && iy < a->in_h)
                out = gather_taps(g, a->x + (image * a->in_h + iy) * a->in_w * a->x_stride + g->first, left, out);
            else
                out = fill(out, a->x_zero, p->kernel_w * g->channels);
        }
        if (++ox < a->out_w) continue;
        ox = 0;
        if (++oy < a->out_h) continue;
        oy = 0;
        image++;
    }
}

/* ---- tasks ------------------------------------------------------------------------------------------------------- */

typedef struct conv_run {
    const wok_conv_s8_problem *problem;
    const wok_conv_s8_args *args;
    conv_plan plan;
    int mr;
    wok_gemm_s8_rows_fn rows;
} conv_run;

/* Pixels [begin, end) against panels [panel, last) of one group. */
static void group_task(const conv_run *run, int64_t group, int64_t begin, int64_t end, int64_t panel, int64_t last,
                       int8_t *space) {
    const wok_conv_s8_problem *p = run->problem;
    const wok_conv_s8_args *a = run->args;
    const int64_t channels = p->c_in / p->group, columns = p->c_out / p->group, n = group * columns;
    wok_gemm_s8_rows job = {.m = end - begin,
                            .n = columns,
                            .k = run->plan.k,
                            .a = space,
                            .lda = run->plan.lda,
                            .a_zero = a->x_zero,
                            .packed = (const char *)a->packed + (size_t)group * wok_conv_s8_group_bytes(p),
                            .panel_begin = panel,
                            .panel_end = last,
                            .c = a->y,
                            .ldc = a->y_stride,
                            .epilogue = a->epilogue};
    job.epilogue.row_scale = NULL;
    wok_gemm_s8_advance(&job, begin);
    const int64_t shift = n * wok_gemm_s8_out_bytes(&job.epilogue);
    job.c = (char *)job.c + shift;
    if (job.epilogue.residual) job.epilogue.residual = (const char *)job.epilogue.residual + shift;
    if (job.epilogue.scale) job.epilogue.scale += n;
    if (job.epilogue.bias) job.epilogue.bias += n;
    if (run->plan.in_place) {
        job.a = a->x + begin * a->x_stride + group * channels;
    } else {
        const bool joined = p->dilation_w == 1 && channels == a->x_stride;
        gather_rows(&(gather){p, a, channels, group * channels, joined}, begin, job.m, job.lda, space);
    }
    run->rows(&job);
}

static void conv_task(void *arg, int64_t task, int worker) {
    const conv_run *run = arg;
    const conv_plan *plan = &run->plan;
    int64_t begin, end, panel, last;
    wok_parallel_range(plan->pixels, run->mr, task / plan->ranges, plan->chunks, &begin, &end);
    wok_parallel_range(run->problem->group * plan->group_panels, 1, task % plan->ranges, plan->ranges, &panel, &last);
    if (begin == end) return;
    int8_t *space = (int8_t *)run->args->workspace + worker * plan->thread_bytes;
    while (panel < last) {
        const int64_t group = panel / plan->group_panels, first = group * plan->group_panels;
        const int64_t until = wok_min64(last, first + plan->group_panels);
        group_task(run, group, begin, end, panel - first, until - first, space);
        panel = until;
    }
}

void wok_conv_s8_drive(const wok_conv_s8_problem *problem, const wok_conv_s8_args *args, int mr,
                       wok_gemm_s8_rows_fn rows, const wok_parallel *parallel) {
    conv_run run = {problem, args, make_plan(problem, args, mr, wok_parallel_threads(parallel)), mr, rows};
    if (run.plan.pixels) wok_parallel_for(parallel, conv_task, &run, run.plan.chunks * run.plan.ranges);
}

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

/* Output pixels [begin, end) of one output row. */
typedef struct stretch {
    int64_t image, oy, begin, end;
} stretch;

/* Taps that lie side by side in the picture: `count` from (ky, kx) on, n bytes. */
typedef struct tap_run {
    int64_t ky, kx, count, n;
} tap_run;

/* memcpy for a few bytes: calling it costs more than they do. Nothing outside is touched; n >= 16. */
static inline void copy_bytes(int8_t *out, const int8_t *x, int64_t n) {
    for (int64_t i = 0; i <= n - 16; i += 16) memcpy(out + i, x + i, 16);
    memcpy(out + n - 16, x + n - 16, 16);
}

/* n bytes to each of `count` rows, lda apart, from places `step` apart. */
static void copy_runs(int8_t *out, int64_t lda, const int8_t *x, int64_t step, int64_t count, int64_t n) {
    if (n > 32)
        for (int64_t i = 0; i < count; i++) copy_bytes(out + i * lda, x + i * step, n);
    else if (n >= 16)
        for (int64_t i = 0; i < count; i++) {
            memcpy(out + i * lda, x + i * step, 16);
            memcpy(out + i * lda + n - 16, x + i * step + n - 16, 16);
        }
    else if (n >= 8)
        for (int64_t i = 0; i < count; i++) {
            memcpy(out + i * lda, x + i * step, 8);
            memcpy(out + i * lda + n - 8, x + i * step + n - 8, 8);
        }
    else
        for (int64_t i = 0; i < count; i++)
            for (int64_t j = 0; j < n; j++) out[i * lda + j] = x[i * step + j];
}

/* The same where taps lie left or right of the picture; ix: column of the first tap of the first row. */
static void clip_runs(const wok_conv_s8_problem *p, const wok_conv_s8_args *a, const tap_run *run, int8_t *out,
                      int64_t lda, const int8_t *x, int64_t ix, int64_t count) {
    const int64_t channels = run->n / run->count;
    for (int64_t i = 0; i < count; i++, ix += p->stride_w, out += lda)
        for (int64_t t = 0; t < run->count; t++) {
            const bool inside = ix + t >= 0 && ix + t < a->in_w;
            if (inside)
                memcpy(out + t * channels, x + (ix + t) * a->x_stride, (size_t)channels);
            else
                memset(out + t * channels, a->x_zero, (size_t)channels);
        }
}

/* The bytes of one run for all pixels of a stretch; x: first channel of the group. */
static void gather_run(const wok_conv_s8_problem *p, const wok_conv_s8_args *a, const stretch *s, const tap_run *run,
                       const int8_t *x, int8_t *out, int64_t lda) {
    const int64_t count = s->end - s->begin, iy = s->oy * p->stride_h - a->pad_top + run->ky * p->dilation_h;
    if (iy < 0 || iy >= a->in_h) {
        for (int64_t i = 0; i < count; i++) memset(out + i * lda, a->x_zero, (size_t)run->n);
        return;
    }
    const int64_t step = p->stride_w, left = s->begin * step - a->pad_left + run->kx * p->dilation_w;
    const int8_t *row = x + (s->image * a->in_h + iy) * a->in_w * a->x_stride;
    /* pixels [whole, until) of the stretch have all taps inside */
    const int64_t room = a->in_w - run->count - left;
    const int64_t whole = wok_min64(count, left < 0 ? wok_ceil_div(-left, step) : 0);
    const int64_t until = room < 0 ? whole : wok_max64(whole, wok_min64(count, room / step + 1));
    clip_runs(p, a, run, out, lda, row, left, whole);
    if (until > whole)
        copy_runs(out + whole * lda, lda, row + (left + whole * step) * a->x_stride, step * a->x_stride, until - whole,
                  run->n);
    clip_runs(p, a, run, out + until * lda, lda, row, left + until * step, count - until);
}

/* Rows of `count` output pixels from `pixel` on, for a group whose first channel is `first`. */
static void gather_rows(const wok_conv_s8_problem *p, const wok_conv_s8_args *a, int64_t first, int64_t pixel,
                        int64_t count, int8_t *rows, int64_t lda) {
    const int64_t channels = p->c_in / p->group;
    const bool joined = p->dilation_w == 1 && channels == a->x_stride;
    tap_run run = {.count = joined ? p->kernel_w : 1};
    run.n = run.count * channels;
    for (int64_t done = 0; done < count;) {
        const int64_t ox = (pixel + done) % a->out_w, row = (pixel + done) / a->out_w;
        const stretch s = {row / a->out_h, row % a->out_h, ox, wok_min64(a->out_w, ox + count - done)};
        int8_t *out = rows + done * lda;
        for (run.ky = 0; run.ky < p->kernel_h; run.ky++)
            for (run.kx = 0; run.kx < p->kernel_w; run.kx += run.count, out += run.n)
                gather_run(p, a, &s, &run, a->x + first, out, lda);
        done += s.end - s.begin;
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
        gather_rows(p, a, group * channels, begin, job.m, space, job.lda);
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

/* pool_ref.c - the oracle (averages in double, rounded once), and the walk over windows that all variants share. */
#include "pool.h"

const char *wok_pool_accept(const void *problem) {
    const wok_pool_problem *p = problem;
    if (p->op != WOK_POOL_MAX && p->op != WOK_POOL_AVERAGE) return "the operation is neither max nor average";
    return p->channels < 1 ? "the channel count must be positive" : NULL;
}

/* ---- windows ----------------------------------------------------------------------------------------------------- */

typedef struct taps {
    int64_t first;  /* input coordinate of the first tap inside [0, size) */
    int64_t inside; /* taps inside [0, size) */
    int64_t padded; /* taps inside [-before, size + after) */
} taps;

/* Of taps at start, start + dilation, ...: how many of the first `kernel` lie below `limit`. */
static int64_t taps_below(int64_t start, int64_t dilation, int64_t kernel, int64_t limit) {
    if (limit <= start) return 0;
    return wok_min64(kernel, dilation == 1 ? limit - start : wok_ceil_div(limit - start, dilation));
}

static taps clip(int64_t start, int64_t kernel, int64_t dilation, int64_t size, int64_t before, int64_t after) {
    const int64_t skipped = taps_below(start, dilation, kernel, 0);
    taps t = {.first = start + skipped * dilation};
    t.inside = taps_below(start, dilation, kernel, size) - skipped;
    t.padded = taps_below(start, dilation, kernel, size + after) - taps_below(start, dilation, kernel, -before);
    return t;
}

typedef struct pool_run {
    const wok_pool_args *shape;
    wok_pool_place_fn fn;
    const void *arg;
    int64_t channels, row_parts, channel_parts;
} pool_run;

static void pool_row(const pool_run *run, int64_t row, int64_t begin, int64_t end) {
    const wok_pool_args *a = run->shape;
    const int64_t image = row / a->out_h, oy = row % a->out_h;
    const taps v = clip(oy * a->stride_h - a->pad_top, a->kernel_h, a->dilation_h, a->in_h, a->pad_top, a->pad_bottom);
    for (int64_t ox = 0; ox < a->out_w; ox++) {
        const taps h =
            clip(ox * a->stride_w - a->pad_left, a->kernel_w, a->dilation_w, a->in_w, a->pad_left, a->pad_right);
        wok_pool_place p = {
            .y = (row * a->out_w + ox) * a->y_stride,
            .rows = v.inside,
            .columns = h.inside,
            .row_stride = a->dilation_h * a->in_w * a->x_stride,
            .column_stride = a->dilation_w * a->x_stride,
            .count = a->count_include_pad ? v.padded * h.padded : v.inside * h.inside,
            .begin = begin,
            .end = end,
        };
        if (v.inside > 0 && h.inside > 0)
            p.x = ((image * a->in_h + v.first) * a->in_w + h.first) * a->x_stride;
        else
            p.rows = 0, p.count = 1;
        run->fn(run->arg, &p);
    }
}

static void pool_task(void *arg, int64_t task, int worker) {
    (void)worker;
    const pool_run *run = arg;
    int64_t first, last, begin, end;
    wok_parallel_range(run->shape->batch * run->shape->out_h, 1, task / run->channel_parts, run->row_parts, &first,
                       &last);
    wok_parallel_range(run->channels, 16, task % run->channel_parts, run->channel_parts, &begin, &end);
    for (int64_t row = first; row < last && begin < end; row++) pool_row(run, row, begin, end);
}

void wok_pool_walk(int64_t channels, const wok_pool_args *shape, wok_pool_place_fn fn, const void *arg,
                   const wok_parallel *parallel) {
    const int64_t rows = shape->batch * shape->out_h, wanted = 4 * (int64_t)wok_parallel_threads(parallel);
    if (rows < 1) return;
    pool_run run = {shape, fn, arg, channels, wok_min64(rows, wanted), 1};
    if (rows < wanted) run.channel_parts = wok_min64(wok_ceil_div(wanted, rows), wok_ceil_div(channels, 16));
    wok_parallel_for(parallel, pool_task, &run, run.row_parts * run.channel_parts);
}

typedef struct pool_f32 {
    const wok_pool_args *args;
    wok_pool_window_fn window;
} pool_f32;

static void f32_place(const void *arg, const wok_pool_place *p) {
    const pool_f32 *job = arg;
    job->window(&(wok_pool_window){.x = job->args->x + p->x,
                                   .rows = p->rows,
                                   .columns = p->columns,
                                   .row_stride = p->row_stride,
                                   .column_stride = p->column_stride,
                                   .count = (float)p->count,
                                   .begin = p->begin,
                                   .end = p->end,
                                   .y = job->args->y + p->y});
}

void wok_pool_drive(const wok_pool_problem *problem, const wok_pool_args *args, wok_pool_window_fn max,
                    wok_pool_window_fn average, const wok_parallel *parallel) {
    const pool_f32 job = {args, problem->op == WOK_POOL_MAX ? max : average};
    wok_pool_walk(problem->channels, args, f32_place, &job, parallel);
}

/* ---- the oracle -------------------------------------------------------------------------------------------------- */

static void max_window(const wok_pool_window *w) {
    for (int64_t c = w->begin; c < w->end; c++) {
        float m = -INFINITY;
        for (int64_t ky = 0; ky < w->rows; ky++)
            for (int64_t kx = 0; kx < w->columns; kx++) {
                const float x = w->x[ky * w->row_stride + kx * w->column_stride + c];
                if (x > m || x != x) m = x;
            }
        w->y[c] = m;
    }
}

static void average_window(const wok_pool_window *w) {
    for (int64_t c = w->begin; c < w->end; c++) {
        double sum = 0;
        for (int64_t ky = 0; ky < w->rows; ky++)
            for (int64_t kx = 0; kx < w->columns; kx++)
                sum += (double)w->x[ky * w->row_stride + kx * w->column_stride + c];
        w->y[c] = (float)(sum / (double)w->count);
    }
}

static void run(const wok_pool_problem *problem, const wok_pool_args *args, const wok_parallel *parallel) {
    wok_pool_drive(problem, args, max_window, average_window, parallel);
}

const wok_pool_kernel wok_pool__ref = {
    .base = {"wok_pool__ref", WOK_ISA_ref, WOK_KERNEL_REFERENCE, wok_pool_accept},
    .run = run,
};

/* dwconv_ref.c - the oracle, summed in double and rounded once; and the packing and splitting that all variants
 * share. */
#include "dwconv.h"
#include "../epilogue_ref.h"

enum { BLOCK = WOK_DWCONV_BLOCK };

/* ---- shared ------------------------------------------------------------------------------------------------------ */

const char *wok_dwconv_accept(const void *problem) {
    const wok_dwconv_problem *p = problem;
    if (p->channels < 1) return "the channel count must be positive";
    if (p->kernel_h < 1 || p->kernel_w < 1 || p->stride_h < 1 || p->stride_w < 1 || p->dilation_h < 1 ||
        p->dilation_w < 1)
        return "kernel size, stride and dilation must be positive";
    const int64_t most = (int64_t)1 << 56;
    int64_t taps, values, extent_h, extent_w;
    if (p->channels > most || __builtin_mul_overflow(p->kernel_h, p->kernel_w, &taps) ||
        __builtin_mul_overflow(taps, wok_round_up(p->channels, BLOCK), &values) || values > most ||
        __builtin_mul_overflow(p->kernel_h, p->dilation_h, &extent_h) || extent_h > most ||
        __builtin_mul_overflow(p->kernel_w, p->dilation_w, &extent_w) || extent_w > most)
        return "the weights are too large to address";
    return NULL;
}

size_t wok_dwconv_packed_bytes(const wok_dwconv_problem *p) {
    return (size_t)(wok_round_up(p->channels, BLOCK) * p->kernel_h * p->kernel_w) * sizeof(float);
}

void wok_dwconv_pack(const wok_dwconv_problem *p, const float *w, const float *channel_scale, void *packed) {
    const int64_t taps = p->kernel_h * p->kernel_w;
    float *out = packed;
    for (int64_t c0 = 0; c0 < p->channels; c0 += BLOCK)
        for (int64_t t = 0; t < taps; t++)
            for (int64_t c = c0; c < c0 + BLOCK; c++)
                *out++ = c < p->channels ? w[c * taps + t] * (channel_scale ? channel_scale[c] : 1.0f) : 0.0f;
}

typedef struct dwconv_split {
    wok_dwconv_part_fn fn;
    const void *arg;
    int64_t channels, rows, row_parts, channel_parts;
} dwconv_split;

static void dwconv_task(void *arg, int64_t task, int worker) {
    (void)worker;
    const dwconv_split *s = arg;
    int64_t first, last, begin, end;
    wok_parallel_range(s->rows, 1, task / s->channel_parts, s->row_parts, &first, &last);
    wok_parallel_range(s->channels, BLOCK, task % s->channel_parts, s->channel_parts, &begin, &end);
    if (first < last && begin < end) s->fn(s->arg, first, last, begin, end);
}

void wok_dwconv_split(int64_t channels, int64_t rows, wok_dwconv_part_fn fn, const void *arg,
                      const wok_parallel *parallel) {
    const int64_t wanted = 4 * (int64_t)wok_parallel_threads(parallel);
    if (rows < 1) return;
    dwconv_split split = {fn, arg, channels, rows, wok_min64(rows, wanted), 1};
    if (rows < wanted)
        split.channel_parts = wok_min64(wok_ceil_div(wanted, rows), wok_ceil_div(channels, BLOCK));
    wok_parallel_for(parallel, dwconv_task, &split, split.row_parts * split.channel_parts);
}

typedef struct dwconv_run {
    const wok_dwconv_problem *problem;
    const wok_dwconv_args *args;
    wok_dwconv_row_fn row;
} dwconv_run;

/* Output columns whose windows stay inside the picture; empty: begin == end == 0. */
static void find_inner(wok_dwconv_row *row) {
    const wok_dwconv_problem *p = row->problem;
    const wok_dwconv_args *a = row->args;
    const int64_t last_start = a->in_w - 1 - (p->kernel_w - 1) * p->dilation_w + a->pad_left;
    row->inner_begin = wok_ceil_div(wok_max64(a->pad_left, 0), p->stride_w);
    row->inner_end = last_start < 0 ? 0 : wok_min64(last_start / p->stride_w + 1, a->out_w);
    if (row->inner_begin >= row->inner_end) row->inner_begin = row->inner_end = 0;
}

static void dwconv_part(const void *arg, int64_t first, int64_t last, int64_t begin, int64_t end) {
    const dwconv_run *run = arg;
    wok_dwconv_row row = {.problem = run->problem, .args = run->args, .begin = begin, .end = end};
    find_inner(&row);
    for (int64_t i = first; i < last; i++) {
        row.image = i / run->args->out_h;
        row.oy = i % run->args->out_h;
        run->row(&row);
    }
}

void wok_dwconv_drive(const wok_dwconv_problem *problem, const wok_dwconv_args *args, wok_dwconv_row_fn row,
                      const wok_parallel *parallel) {
    const dwconv_run run = {problem, args, row};
    if (args->out_w < 1) return;
    wok_dwconv_split(problem->channels, args->batch * args->out_h, dwconv_part, &run, parallel);
}

/* ---- the oracle -------------------------------------------------------------------------------------------------- */

static double window(const wok_dwconv_row *row, int64_t ox, int64_t c) {
    const wok_dwconv_problem *p = row->problem;
    const wok_dwconv_args *a = row->args;
    const int64_t taps = p->kernel_h * p->kernel_w;
    const float *w = (const float *)a->packed + c / BLOCK * taps * BLOCK + c % BLOCK;
    double sum = 0;
    for (int64_t ky = 0; ky < p->kernel_h; ky++) {
        const float *x = wok_dwconv_input(row, ky);
        for (int64_t kx = 0; kx < p->kernel_w; kx++, w += BLOCK) {
            const int64_t ix = ox * p->stride_w - a->pad_left + kx * p->dilation_w;
            sum += (x && ix >= 0 && ix < a->in_w ? (double)x[ix * a->x_stride + c] : 0.0) * (double)*w;
        }
    }
    return sum;
}

static void ref_row(const wok_dwconv_row *row) {
    const wok_epilogue_f32 *e = &row->args->epilogue;
    for (int64_t ox = 0; ox < row->args->out_w; ox++)
        for (int64_t c = row->begin; c < row->end; c++) {
            const int64_t pixel = wok_dwconv_pixel(row, ox);
            row->args->y[pixel * row->args->y_stride + c] =
                wok_epilogue_ref(window(row, ox, c), e->bias ? e->bias + c : NULL,
                                 e->residual ? e->residual + pixel * e->residual_stride + c : NULL, e);
        }
}

static void run(const wok_dwconv_problem *problem, const wok_dwconv_args *args, const wok_parallel *parallel) {
    wok_dwconv_drive(problem, args, ref_row, parallel);
}

const wok_dwconv_kernel wok_dwconv__ref = {
    .base = {"wok_dwconv__ref", WOK_ISA_ref, WOK_KERNEL_REFERENCE, wok_dwconv_accept},
    .layout = WOK_DWCONV_LAYOUT,
    .packed_bytes = wok_dwconv_packed_bytes,
    .pack = wok_dwconv_pack,
    .run = run,
};

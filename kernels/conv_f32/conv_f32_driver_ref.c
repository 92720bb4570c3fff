/* conv_f32_driver_ref.c - the indirect GEMM without its inner loop: packing, splitting into tasks, pointer tables.
 *
 * Portable C, shared by every SIMD variant; conv_f32.h has the picture. Workspace, per thread, parts rounded up to 64
 * bytes:  zeros [c_in] | strip [rows][columns * c_in] (strips only) | table [blocks][runs][mr] pointers.
 */
#include "conv_f32.h"
#include "../conv_split.h"

#define NR WOK_CONV_F32_NR
#define CHUNK_BYTES (160 * 1024) /* input pixels of a chunk: with a panel of weights they share an L2 of 512 KiB */
#define TABLE_BYTES (32 * 1024)
#define STRIP_CHANNELS 64 /* shorter taps than this are joined to strips */

const char *wok_conv_f32_accept(const void *problem) {
    const wok_conv_f32_problem *p = problem;
    if (p->c_in < 1 || p->c_out < 1 || p->group < 1) return "channel and group counts must be positive";
    if (p->c_in % p->group || p->c_out % p->group) return "the channels do not divide into the groups";
    if (p->kernel_h < 1 || p->kernel_w < 1 || p->stride_h < 1 || p->stride_w < 1 || p->dilation_h < 1 ||
        p->dilation_w < 1)
        return "kernel size, stride and dilation must be positive";
    int64_t k = wok_mul_sat(wok_mul_sat(p->kernel_h, p->kernel_w), p->c_in / p->group);
    int64_t columns = wok_mul_sat(p->group, wok_round_up(p->c_out / p->group, NR));
    if (wok_mul_sat(wok_mul_sat(k, columns), sizeof(float)) >= WOK_SIZE_LIMIT ||
        wok_mul_sat(p->kernel_h, p->dilation_h) >= WOK_SIZE_LIMIT ||
        wok_mul_sat(p->kernel_w, p->dilation_w) >= WOK_SIZE_LIMIT)
        return "the weights are too large to address";
    return NULL;
}

static int64_t depth(const wok_conv_f32_problem *p) {
    return p->kernel_h * p->kernel_w * (p->c_in / p->group);
}
static int64_t group_panels(const wok_conv_f32_problem *p) {
    return wok_ceil_div(p->c_out / p->group, NR);
}

size_t wok_conv_f32_packed_bytes(const wok_conv_f32_problem *p) {
    return (size_t)(p->group * group_panels(p) * depth(p) * NR) * sizeof(float);
}

void wok_conv_f32_pack(const wok_conv_f32_problem *p, const float *w, const float *channel_scale, void *packed) {
    const int64_t channels = p->c_in / p->group, taps = p->kernel_h * p->kernel_w, k = taps * channels;
    const int64_t group_out = p->c_out / p->group;
    float *out = packed;
    for (int64_t g = 0; g < p->group; g++)
        for (int64_t n0 = 0; n0 < group_out; n0 += NR, out += k * NR)
            for (int64_t lane = 0; lane < NR; lane++) {
                const int64_t n = g * group_out + n0 + lane;
                const bool real = n0 + lane < group_out;
                const float scale = real && channel_scale ? channel_scale[n] : 1.0f;
                for (int64_t t = 0; t < taps; t++)
                    for (int64_t c = 0; c < channels; c++)
                        out[(t * channels + c) * NR + lane] = real ? w[(n * channels + c) * taps + t] * scale : 0.0f;
            }
}

/* ---- plan -------------------------------------------------------------------------------------------------------- */

typedef struct conv_plan {
    bool strips;
    bool dense; /* 1x1, nothing skipped, no padding: output pixel i reads input pixel i */
    int64_t runs, run;
    int64_t pixels;         /* output pixels of the batch */
    int64_t chunks, ranges;
    int64_t chunk_pixels;   /* at most, in one chunk */
    int64_t strip_width, strip_rows;
    int64_t zero_bytes, strip_bytes, table_bytes, thread_bytes;
} conv_plan;

static int64_t align64(int64_t bytes) {
    return wok_round_up(bytes, 64);
}

static int64_t strip_rows(const wok_conv_f32_problem *p, int64_t out_rows) {
    return wok_mul_sat(out_rows - 1, p->stride_h) + (p->kernel_h - 1) * p->dilation_h + 1;
}

static conv_plan make_plan(const wok_conv_f32_problem *p, const wok_conv_f32_args *a, int mr, int threads) {
    conv_plan plan = {0};
    const int64_t k = depth(p), image = wok_mul_sat(a->out_h, a->out_w);
    plan.strips = p->kernel_w > 1 && p->dilation_w == 1 && p->group == 1 && p->c_in < STRIP_CHANNELS;
    plan.dense = p->kernel_h == 1 && p->kernel_w == 1 && p->stride_h == 1 && p->stride_w == 1 && a->pad_top == 0 &&
                 a->pad_left == 0 && a->out_h == a->in_h && a->out_w == a->in_w;
    plan.runs = plan.strips ? p->kernel_h : p->kernel_h * p->kernel_w;
    plan.run = k / plan.runs;
    plan.pixels = wok_mul_sat(a->batch, image);
    if (plan.pixels == 0) return plan;

    const int64_t table_row = plan.runs * (int64_t)sizeof(void *);
    wok_conv_cost cost = {.panels = p->group * group_panels(p)};
    cost.weight_bytes = (double)cost.panels * (double)k * NR * sizeof(float);
    cost.pixel_bytes = (double)a->batch * (double)a->in_h * (double)a->in_w * (double)p->c_in * sizeof(float);
    if (plan.strips) {
        plan.strip_width = wok_mul_sat(wok_mul_sat(a->out_w - 1, p->stride_w) + p->kernel_w, p->c_in);
        const int64_t row_bytes = wok_mul_sat(plan.strip_width, (int64_t)sizeof(float));
        int64_t rows = (CHUNK_BYTES / row_bytes - strip_rows(p, 1)) / p->stride_h + 1;
        rows = wok_max64(1, wok_min64(rows, TABLE_BYTES / wok_mul_sat(a->out_w, table_row)));
        cost.units = wok_mul_sat(a->batch, a->out_h);
        cost.unit_panel = (double)k * (double)wok_round_up(a->out_w, mr);
        cost.unit_prepare = (double)p->stride_h * (double)row_bytes / 16 + 4.0 * (double)(a->out_w * plan.runs);
        const wok_conv_split split =
            wok_conv_choose_split(&cost, wok_mul_sat(wok_ceil_div(a->out_h, rows), a->batch), threads);
        /* A chunk stays inside one picture. */
        const int64_t parts = wok_min64(a->out_h, wok_ceil_div(split.chunks, a->batch));
        rows = wok_ceil_div(a->out_h, parts);
        plan.chunks = parts * a->batch;
        plan.ranges = split.ranges;
        plan.chunk_pixels = rows * a->out_w;
        plan.strip_rows = strip_rows(p, rows);
        plan.strip_bytes = align64(wok_mul_sat(plan.strip_rows, row_bytes));
    } else {
        cost.units = wok_ceil_div(plan.pixels, mr);
        cost.unit_panel = (double)k * mr;
        cost.unit_prepare = 4.0 * (double)(plan.runs * mr);
        const double chunks =
            fmax(cost.pixel_bytes / CHUNK_BYTES, (double)plan.pixels * (double)table_row / TABLE_BYTES);
        const wok_conv_split split =
            wok_conv_choose_split(&cost, (int64_t)fmin(ceil(chunks + 1e-9), (double)cost.units), threads);
        plan.chunks = split.chunks;
        plan.ranges = split.ranges;
        plan.chunk_pixels = wok_ceil_div(cost.units, plan.chunks) * mr;
        plan.zero_bytes = align64(p->c_in * (int64_t)sizeof(float));
    }
    /* A chunk of n pixels has ceil(n / mr) blocks. */
    plan.table_bytes = align64(wok_mul_sat(wok_round_up(plan.chunk_pixels, mr), table_row));
    plan.thread_bytes = plan.zero_bytes + plan.strip_bytes + plan.table_bytes;
    return plan;
}

size_t wok_conv_f32_workspace(const wok_conv_f32_problem *p, const wok_conv_f32_args *args, int mr, int threads) {
    threads = threads > 1 ? threads : 1;
    const int64_t bytes = wok_mul_sat(make_plan(p, args, mr, threads).thread_bytes, threads);
    return bytes >= WOK_SIZE_LIMIT ? SIZE_MAX : (size_t)bytes;
}

/* ---- tables ------------------------------------------------------------------------------------------------------ */

typedef struct pixel {
    int64_t image, oy, ox;
} pixel;

static pixel pixel_at(const wok_conv_f32_args *a, int64_t index) {
    const int64_t row = index / a->out_w;
    return (pixel){row / a->out_h, row % a->out_h, index % a->out_w};
}

static void next_pixel(const wok_conv_f32_args *a, pixel *at) {
    if (++at->ox < a->out_w) return;
    at->ox = 0;
    if (++at->oy < a->out_h) return;
    at->oy = 0;
    at->image++;
}

/* Pointers of one output pixel, one a tap; out is a column of a block's [runs][mr] table. */
static void tap_pointers(const wok_conv_f32_problem *p, const wok_conv_f32_args *a, pixel at, const float *zeros,
                         int mr, const float **out) {
    const int64_t top = at.oy * p->stride_h - a->pad_top, left = at.ox * p->stride_w - a->pad_left;
    for (int64_t ky = 0; ky < p->kernel_h; ky++) {
        const int64_t iy = top + ky * p->dilation_h;
        const bool row_inside = iy >= 0 && iy < a->in_h;
        for (int64_t kx = 0; kx < p->kernel_w; kx++, out += mr) {
            const int64_t ix = left + kx * p->dilation_w;
            const bool inside = row_inside && ix >= 0 && ix < a->in_w;
            *out = inside ? a->x + ((at.image * a->in_h + iy) * a->in_w + ix) * a->x_stride : zeros;
        }
    }
}

static void strip_pointers(const wok_conv_f32_problem *p, const conv_plan *plan, const float *strip, int64_t row,
                           int64_t ox, int mr, const float **out) {
    const float *at = strip + row * p->stride_h * plan->strip_width + ox * p->stride_w * p->c_in;
    for (int64_t ky = 0; ky < p->kernel_h; ky++, out += mr) *out = at + ky * p->dilation_h * plan->strip_width;
}

static void copy_pixels(float *out, const float *x, int64_t stride, int64_t channels, int64_t count) {
    if (stride == channels) {
        memcpy(out, x, (size_t)(count * channels) * sizeof *out);
        return;
    }
    for (int64_t i = 0; i < count; i++) memcpy(out + i * channels, x + i * stride, (size_t)channels * sizeof *out);
}

/* Copies picture rows [iy, iy + rows) of one image, columns from -pad_left on, zeros outside the picture. */
static void fill_strip(const wok_conv_f32_problem *p, const wok_conv_f32_args *a, const conv_plan *plan, int64_t image,
                       int64_t iy, int64_t rows, float *strip) {
    const int64_t c = p->c_in, width = plan->strip_width / c;
    const int64_t begin = wok_min64(wok_max64(a->pad_left, 0), width); /* strip columns that hold the picture */
    const int64_t end = wok_max64(begin, wok_min64(a->pad_left + a->in_w, width));
    for (int64_t row = 0; row < rows; row++, iy++, strip += plan->strip_width) {
        if (iy < 0 || iy >= a->in_h || begin == end) {
            memset(strip, 0, (size_t)plan->strip_width * sizeof *strip);
            continue;
        }
        memset(strip, 0, (size_t)(begin * c) * sizeof *strip);
        copy_pixels(strip + begin * c, a->x + ((image * a->in_h + iy) * a->in_w + begin - a->pad_left) * a->x_stride,
                    a->x_stride, c, end - begin);
        memset(strip + end * c, 0, (size_t)((width - end) * c) * sizeof *strip);
    }
}

/* ---- tasks ------------------------------------------------------------------------------------------------------- */

typedef struct conv_run {
    const wok_conv_f32_problem *problem;
    const wok_conv_f32_args *args;
    conv_plan plan;
    int mr;
    wok_conv_f32_panels_fn panels;
} conv_run;

/* Fills the table for the pixels of `job`, which start at pixel `first`. */
static void fill_table(const conv_run *run, const wok_conv_f32_job *job, int64_t first, const float *zeros,
                       const float *strip, const float **table) {
    const wok_conv_f32_problem *p = run->problem;
    const wok_conv_f32_args *a = run->args;
    const conv_plan *plan = &run->plan;
    pixel at = pixel_at(a, first);
    const int64_t oy = at.oy;
    for (int64_t block = 0; block < job->blocks; block++, table += plan->runs * run->mr) {
        const int64_t rows = wok_conv_f32_rows(job, block);
        if (plan->dense) {
            for (int64_t i = 0; i < rows; i++, first++) table[i] = a->x + first * a->x_stride;
            continue;
        }
        for (int64_t i = 0; i < rows; i++, next_pixel(a, &at)) {
            if (plan->strips)
                strip_pointers(p, plan, strip, at.oy - oy, at.ox, run->mr, table + i);
            else
                tap_pointers(p, a, at, zeros, run->mr, table + i);
        }
    }
}

/* Runs the panels [begin, end), counted over all groups, group by group. */
static void run_panels(const conv_run *run, wok_conv_f32_job job, int64_t first, int64_t begin, int64_t end) {
    const wok_conv_f32_problem *p = run->problem;
    const wok_conv_f32_args *a = run->args;
    const wok_epilogue_f32 *e = &a->epilogue;
    const int64_t per_group = group_panels(p), group_out = p->c_out / p->group;
    const float *packed = a->packed;
    for (int64_t panel = begin; panel < end; panel += job.panels) {
        const int64_t group = panel / per_group, in_group = panel % per_group;
        job.panels = wok_min64(end - panel, per_group - in_group);
        job.columns = wok_min64(job.panels * NR, group_out - in_group * NR);
        job.offset = group * (p->c_in / p->group);
        job.b = packed + panel * job.runs * job.run * NR;
        const int64_t n = group * group_out + in_group * NR;
        job.y = a->y + first * a->y_stride + n;
        job.bias = e->bias ? e->bias + n : NULL;
        job.residual = e->residual ? e->residual + first * e->residual_stride + n : NULL;
        run->panels(&job);
    }
}

static void conv_task(void *arg, int64_t task, int worker) {
    const conv_run *run = arg;
    const wok_conv_f32_args *a = run->args;
    const conv_plan *plan = &run->plan;
    const int64_t chunk = task / plan->ranges, range = task % plan->ranges;
    int64_t begin, end;
    if (plan->strips) {
        const int64_t parts = plan->chunks / a->batch, image = chunk / parts;
        wok_parallel_range(a->out_h, 1, chunk % parts, parts, &begin, &end);
        begin = (image * a->out_h + begin) * a->out_w;
        end = (image * a->out_h + end) * a->out_w;
    } else {
        wok_parallel_range(plan->pixels, run->mr, chunk, plan->chunks, &begin, &end);
    }
    if (begin == end) return;

    char *space = (char *)a->workspace + worker * plan->thread_bytes;
    float *zeros = (float *)(void *)space, *strip = (float *)(void *)(space + plan->zero_bytes);
    const float **table = (const float **)(void *)(space + plan->zero_bytes + plan->strip_bytes);
    if (plan->strips) {
        const int64_t row = begin / a->out_w, iy = row % a->out_h * run->problem->stride_h - a->pad_top;
        fill_strip(run->problem, a, plan, row / a->out_h, iy, strip_rows(run->problem, (end - begin) / a->out_w),
                   strip);
    } else {
        memset(zeros, 0, (size_t)plan->zero_bytes);
    }
    const int64_t blocks = wok_ceil_div(end - begin, run->mr);
    wok_conv_f32_job job = {
        .table = table,
        .blocks = blocks,
        .block_rows = (end - begin) / blocks,
        .longer_blocks = (end - begin) % blocks,
        .runs = plan->runs,
        .run = plan->run,
        .y_stride = a->y_stride,
        .residual_stride = a->epilogue.residual_stride,
        .act = a->epilogue.act,
        .lo = a->epilogue.lo,
        .hi = a->epilogue.hi,
    };
    fill_table(run, &job, begin, zeros, strip, table);
    int64_t first_panel, last_panel;
    wok_parallel_range(run->problem->group * group_panels(run->problem), 1, range, plan->ranges, &first_panel,
                       &last_panel);
    run_panels(run, job, begin, first_panel, last_panel);
}

void wok_conv_f32_drive(const wok_conv_f32_problem *problem, const wok_conv_f32_args *args, int mr,
                        wok_conv_f32_panels_fn panels, const wok_parallel *parallel) {
    conv_run run = {problem, args, make_plan(problem, args, mr, wok_parallel_threads(parallel)), mr, panels};
    if (run.plan.pixels) wok_parallel_for(parallel, conv_task, &run, run.plan.chunks * run.plan.ranges);
}

/* resize_run_ref.c - what all variants of resize share: tables, windows, bands, the order of the passes. */
#include "resize.h"

/* Where things stand in the workspace; a pure function of problem, sizes and threads. */
typedef struct layout {
    int64_t bands;               /* tasks: contiguous ranges of output rows */
    int64_t stride_h, stride_v;  /* of the coefficient tables */
    int64_t ring;                /* rows of a band's ring */
    size_t first_h, taps_h, weights_h, first_v, taps_v, weights_v, scratch;
    size_t band, band_bytes;     /* first band's part, distance to the next */
    size_t row, row_bytes;       /* offsets inside a band's part */
    size_t tail, tail_bytes, wide, wide_bytes, out, pointers;
} layout;

typedef struct job {
    const wok_resize_rows *rows;
    const wok_resize_problem *problem;
    const wok_resize_args *args;
    layout at;
    wok_resize_axis h, v;
    int64_t left, columns; /* window of source columns that the taps reach; h.first counts from its left edge */
    int64_t safe;          /* output columns below this one read nothing beyond the window */
} job;

static bool is_fixed(const wok_resize_problem *problem) { return problem->op <= WOK_RESIZE_U8_UNIT; }

/* Rounding between the passes makes their order show. Pillow, from version 13 on, takes the vertical pass first
 * where the height shrinks by more than twice as many pixels as the width. */
static bool is_vertical_first(const wok_resize_args *args) {
    int64_t fewer_rows = args->in_h - args->out_h, fewer_columns = args->in_w - args->out_w;
    return fewer_rows > 0 && fewer_rows > 2 * fewer_columns;
}

static size_t take(size_t *end, int64_t count, size_t size) {
    size_t at = *end;
    *end += (size_t)wok_round_up(count * (int64_t)size + WOK_RESIZE_SLACK, 64);
    return at;
}

/* Source columns that a window of `count` output columns can reach at most. */
static int64_t reach_of(int64_t count, int64_t stride, int64_t in, int64_t out) {
    return wok_min64(in, (int64_t)((double)count * ((double)in / (double)out)) + stride + 2);
}

static size_t plan(layout *at, const wok_resize_problem *problem, const wok_resize_args *args, int threads) {
    size_t end = 0;
    int64_t c = problem->channels, columns;
    bool fixed = is_fixed(problem);
    at->bands = wok_min64(threads, args->crop_h);
    at->stride_h = wok_resize_stride(problem->filter, problem->antialias, args->in_w, args->out_w);
    at->stride_v = wok_resize_stride(problem->filter, problem->antialias, args->in_h, args->out_h);
    columns = reach_of(args->crop_w, at->stride_h, args->in_w, args->out_w);
    at->first_h = take(&end, args->crop_w, sizeof(int32_t));
    at->taps_h = take(&end, args->crop_w, sizeof(int32_t));
    at->weights_h = take(&end, args->crop_w * at->stride_h, sizeof(int32_t));
    at->first_v = take(&end, args->crop_h, sizeof(int32_t));
    at->taps_v = take(&end, args->crop_h, sizeof(int32_t));
    at->weights_v = take(&end, args->crop_h * at->stride_v, sizeof(int32_t));
    at->scratch = take(&end, wok_max64(at->stride_h, at->stride_v), sizeof(double));
    at->band = end;

    end = 0;
    at->ring = fixed ? (is_vertical_first(args) ? 0 : at->stride_v) + WOK_RESIZE_BLOCK : 0;
    at->row_bytes = (size_t)wok_round_up(args->crop_w * c + WOK_RESIZE_SLACK, 64);
    at->row = take(&end, at->ring, at->row_bytes);
    at->tail_bytes = fixed ? (size_t)wok_round_up((2 * at->stride_h + 8) * c + WOK_RESIZE_SLACK, 64) : 0;
    at->tail = take(&end, WOK_RESIZE_BLOCK, at->tail_bytes);
    at->wide_bytes = (size_t)wok_round_up(columns * c * (int64_t)(fixed ? 1 : sizeof(float)) + WOK_RESIZE_SLACK, 64);
    at->wide = take(&end, fixed ? (is_vertical_first(args) ? WOK_RESIZE_BLOCK : 0) : 1, at->wide_bytes);
    at->out = take(&end, args->crop_w * wok_resize_lanes(c), fixed ? 1 : sizeof(float));
    at->pointers = take(&end, at->stride_v, sizeof(void *));
    at->band_bytes = end;
    return at->band + (size_t)at->bands * end;
}

size_t wok_resize_workspace_bytes(const wok_resize_problem *problem, const wok_resize_args *args, int threads) {
    layout at;
    return plan(&at, problem, args, threads > 1 ? threads : 1);
}

const char *wok_resize_accept(const void *problem) {
    const wok_resize_problem *p = problem;
    if ((unsigned)p->op > WOK_RESIZE_F32) return "unknown operation";
    if ((unsigned)p->filter > WOK_FILTER_BICUBIC) return "unknown filter";
    return p->channels >= 1 && p->channels <= 1 << 20 ? NULL : "channels are outside 1 .. 2^20";
}

/* ---- fixed point ----------------------------------------------------------------------------------------------- */

typedef struct band {
    const job *job;
    uint8_t *base;       /* its part of the workspace */
    const void **rows;   /* of the vertical pass */
    int64_t begin, end;  /* output rows */
    int64_t next;        /* first source row that is not in the ring */
} band;

static uint8_t *ring_row(const band *b, int64_t row) {
    return b->base + b->job->at.row + (size_t)(row % b->job->at.ring) * b->job->at.row_bytes;
}

/* The last columns of the window are resampled from a copy with room behind it, since the pass reads whole groups. */
static void tails(const band *b, const uint8_t *src[WOK_RESIZE_BLOCK], int64_t origin) {
    const job *j = b->job;
    int64_t c = j->problem->channels;
    for (int r = 0; r < WOK_RESIZE_BLOCK; r++) {
        uint8_t *copy = b->base + j->at.tail + (size_t)r * j->at.tail_bytes;
        memcpy(copy, src[r] + origin * c, (size_t)((j->columns - origin) * c));
        src[r] = copy;
    }
}

/* Resamples source rows row .. row + count - 1 (1 <= count <= WOK_RESIZE_BLOCK) into the ring. */
static void block(const band *b, int64_t row, int64_t count) {
    const job *j = b->job;
    const wok_resize_args *args = j->args;
    int64_t c = j->problem->channels, n = args->crop_w;
    const uint8_t *src[WOK_RESIZE_BLOCK];
    uint8_t *dst[WOK_RESIZE_BLOCK];
    for (int64_t r = 0; r < WOK_RESIZE_BLOCK; r++) {
        int64_t y = row + wok_min64(r, count - 1); /* a short block does its last row again */
        src[r] = (const uint8_t *)args->x + y * args->x_stride + j->left * c;
        dst[r] = ring_row(b, y);
    }
    if (j->safe > 0) j->rows->horizontal_u8(&j->h, 0, j->safe, 0, c, src, dst);
    if (j->safe == n) return;
    int64_t origin = j->h.first[j->safe];
    tails(b, src, origin);
    for (int r = 0; r < WOK_RESIZE_BLOCK; r++) dst[r] += j->safe * c;
    j->rows->horizontal_u8(&j->h, j->safe, n, origin, c, src, dst);
}

/* Fills the ring up to what output row i needs, and in full blocks as far as the following rows need them as well. */
static void feed(band *b, int64_t i) {
    const wok_resize_axis *v = &b->job->v;
    int64_t need = v->first[i] + v->taps[i], want = need;
    b->next = wok_max64(b->next, v->first[i]);
    for (int64_t q = i + 1; q < b->end && want - b->next < WOK_RESIZE_BLOCK && v->first[q] <= want; q++)
        want = wok_max64(want, v->first[q] + v->taps[q]);
    while (b->next < need) {
        int64_t count = wok_min64(want - b->next, WOK_RESIZE_BLOCK);
        block(b, b->next, count);
        b->next += count;
    }
}

static void put_row(const job *j, int64_t i, const uint8_t *row) {
    const wok_resize_args *args = j->args;
    int64_t c = j->problem->channels, n = args->crop_w;
    if (j->problem->op == WOK_RESIZE_U8_UNIT) {
        j->rows->store_unit(row, n, c, args, (float *)args->y + i * args->y_stride);
        return;
    }
    uint8_t *y = (uint8_t *)args->y + i * args->y_stride;
    if (args->y_channel_stride == 1 && args->y_pixel_stride == c) {
        memcpy(y, row, (size_t)(n * c));
        return;
    }
    for (int64_t p = 0; p < n; p++)
        for (int64_t k = 0; k < c; k++) y[p * args->y_pixel_stride + k * args->y_channel_stride] = row[p * c + k];
}

/* The rows of output row i, as far as whole groups of 4 taps reach; the last one repeats. */
static const uint8_t *const *point_rows(const band *b, const uint8_t *(*row_of)(const band *b, int64_t row),
                                        int64_t i) {
    const wok_resize_axis *v = &b->job->v;
    for (int64_t t = 0, last = v->taps[i] - 1; t < v->stride; t++)
        b->rows[t] = row_of(b, v->first[i] + wok_min64(t, last));
    return (const uint8_t *const *)(const void *)b->rows;
}

static const uint8_t *ring_row_of(const band *b, int64_t row) { return ring_row(b, row); }

static const uint8_t *source_row(const band *b, int64_t row) {
    const job *j = b->job;
    return (const uint8_t *)j->args->x + row * j->args->x_stride + j->left * j->problem->channels;
}

static void run_fixed(band *b) {
    const job *j = b->job;
    uint8_t *row = b->base + j->at.out;
    for (int64_t i = b->begin; i < b->end; i++) {
        feed(b, i);
        j->rows->vertical_u8(point_rows(b, ring_row_of, i), (const int32_t *)j->v.weights + i * j->v.stride,
                             j->v.taps[i], j->args->crop_w * j->problem->channels, row);
        put_row(j, i, row);
    }
}

static void run_fixed_vertical_first(band *b) {
    const job *j = b->job;
    int64_t c = j->problem->channels, count;
    for (int64_t i = b->begin; i < b->end; i += count) {
        const uint8_t *src[WOK_RESIZE_BLOCK];
        uint8_t *dst[WOK_RESIZE_BLOCK];
        count = wok_min64(b->end - i, WOK_RESIZE_BLOCK);
        for (int64_t r = 0; r < WOK_RESIZE_BLOCK; r++) {
            int64_t k = wok_min64(r, count - 1);
            uint8_t *wide = b->base + j->at.wide + (size_t)k * j->at.wide_bytes;
            if (r == k)
                j->rows->vertical_u8(point_rows(b, source_row, i + k),
                                     (const int32_t *)j->v.weights + (i + k) * j->v.stride, j->v.taps[i + k],
                                     j->columns * c, wide);
            src[r] = wide;
            dst[r] = ring_row(b, k);
        }
        j->rows->horizontal_u8(&j->h, 0, j->h.count, 0, c, src, dst);
        for (int64_t k = 0; k < count; k++) put_row(j, i + k, dst[k]);
    }
}

/* ---- floating point -------------------------------------------------------------------------------------------- */

static void run_float(band *b) {
    const job *j = b->job;
    const wok_resize_args *args = j->args;
    int64_t c = j->problem->channels;
    bool is_u8 = j->problem->op == WOK_RESIZE_U8_F32;
    int64_t row_bytes = args->x_stride * (int64_t)(is_u8 ? 1 : sizeof(float));
    float *wide = (float *)(void *)(b->base + j->at.wide), *out = (float *)(void *)(b->base + j->at.out);
    for (int64_t i = b->begin; i < b->end; i++) {
        const float *weights = (const float *)j->v.weights + i * j->v.stride;
        int64_t first = j->v.first[i], taps = j->v.taps[i];
        for (int64_t t = 0; t < taps; t++) b->rows[t] = (const uint8_t *)args->x + (first + t) * row_bytes;
        j->rows->vertical_f32(b->rows, is_u8, j->left * c, weights, taps, j->columns * c, wide);
        j->rows->horizontal_f32(&j->h, 0, c, wide, out);
        j->rows->store_f32(out, args->crop_w, c, args, (float *)args->y + i * args->y_stride);
    }
}

/* ---- both ------------------------------------------------------------------------------------------------------ */

static void run_band(void *arg, int64_t task, int worker) {
    const job *j = arg;
    band b = {.job = j};
    (void)worker;
    b.base = (uint8_t *)j->args->workspace + j->at.band + (size_t)task * j->at.band_bytes;
    b.rows = (const void **)(void *)(b.base + j->at.pointers);
    wok_parallel_range(j->args->crop_h, 1, task, j->at.bands, &b.begin, &b.end);
    if (!is_fixed(j->problem)) run_float(&b);
    else if (is_vertical_first(j->args)) run_fixed_vertical_first(&b);
    else run_fixed(&b);
}

static void make_axis(const job *j, wok_resize_axis *axis, int64_t in, int64_t out, int64_t begin, int64_t count,
                      int64_t stride, size_t first, size_t taps, size_t weights) {
    uint8_t *base = j->args->workspace;
    axis->count = count;
    axis->stride = stride;
    axis->first = (int32_t *)(void *)(base + first);
    axis->taps = (int32_t *)(void *)(base + taps);
    axis->weights = base + weights;
    wok_resize_fill(axis, j->problem->filter, j->problem->antialias,
                    is_fixed(j->problem) ? WOK_RESIZE_FIXED : WOK_RESIZE_FLOAT, in, out, begin,
                    (double *)(void *)(base + j->at.scratch));
    if (is_fixed(j->problem) && j->rows->split) wok_resize_split(axis->weights, count * stride);
}

/* The columns that the taps reach, and how many outputs may read whole groups of 4 taps and 16 bytes more. */
static void make_window(job *j) {
    const wok_resize_axis *h = &j->h;
    int64_t right = 0, more = wok_ceil_div(16, j->problem->channels);
    j->left = h->first[0];
    for (int64_t i = 0; i < h->count; i++) {
        h->first[i] -= (int32_t)j->left;
        right = wok_max64(right, h->first[i] + h->taps[i]);
    }
    j->columns = right;
    while (j->safe < h->count && h->first[j->safe] + wok_round_up(h->taps[j->safe], 4) + more <= right) j->safe++;
}

void wok_resize_run(const wok_resize_rows *rows, const wok_resize_problem *problem, const wok_resize_args *args,
                    const wok_parallel *parallel) {
    job j = {.rows = rows, .problem = problem, .args = args};
    plan(&j.at, problem, args, wok_parallel_threads(parallel));
    make_axis(&j, &j.h, args->in_w, args->out_w, args->crop_left, args->crop_w, j.at.stride_h, j.at.first_h,
              j.at.taps_h, j.at.weights_h);
    make_axis(&j, &j.v, args->in_h, args->out_h, args->crop_top, args->crop_h, j.at.stride_v, j.at.first_v,
              j.at.taps_v, j.at.weights_v);
    make_window(&j);
    wok_parallel_for(parallel, run_band, &j, j.at.bands);
}

/* dwconv_s8_ref.c - the oracle: one tap after the other from weights in their own plain layout; and the packing and
 * splitting that the vector variants share. */
#include "dwconv_s8.h"
#include "../epilogue_s8_ref.h"

enum { BLOCK = WOK_DWCONV_BLOCK };

/* ---- shared ------------------------------------------------------------------------------------------------------ */

const char *wok_dwconv_s8_accept(const void *problem) {
    const wok_dwconv_problem *p = problem;
    const char *reason = wok_dwconv_accept(p);
    if (reason) return reason;
    return p->kernel_h * p->kernel_w > WOK_S8_MAX_K ? "the window has more taps than int32 sums hold" : NULL;
}

size_t wok_dwconv_s8_packed_bytes(const wok_dwconv_problem *p) {
    return (size_t)(wok_ceil_div(p->channels, BLOCK) * wok_dwconv_s8_block_bytes(p));
}

/* The taps of pair i, in scan order; -1: none. */
static void pair_taps(const wok_dwconv_problem *p, int64_t i, int64_t tap[2]) {
    const int64_t size = p->kernel_w, taps = p->kernel_h * size, upright = p->kernel_h / 2 * size;
    if (!wok_dwconv_s8_special(p)) {
        tap[0] = 2 * i;
        tap[1] = 2 * i + 1 < taps ? 2 * i + 1 : -1;
    } else if (i < upright) {
        tap[0] = i / size * 2 * size + i % size;
        tap[1] = tap[0] + size;
    } else {
        const int64_t column = i - upright;
        tap[0] = column > 0 ? taps - size + column - 1 : -1;
        tap[1] = column < size ? taps - size + column : -1;
    }
}

void wok_dwconv_s8_pack(const wok_dwconv_problem *p, const int8_t *w, const int8_t *w_zero, void *packed) {
    const int64_t taps = p->kernel_h * p->kernel_w, pairs = wok_dwconv_s8_pairs(p);
    memset(packed, 0, wok_dwconv_s8_packed_bytes(p));
    for (int64_t c = 0; c < p->channels; c++) {
        char *block = (char *)packed + c / BLOCK * wok_dwconv_s8_block_bytes(p);
        int16_t *pair = (int16_t *)(void *)block + c % BLOCK * 2;
        int32_t *sum = (int32_t *)(void *)block + pairs * BLOCK + c % BLOCK;
        const int32_t zero = w_zero ? w_zero[c] : 0;
        for (int64_t i = 0; i < pairs; i++, pair += 2 * BLOCK) {
            int64_t tap[2];
            pair_taps(p, i, tap);
            for (int side = 0; side < 2; side++)
                if (tap[side] >= 0) pair[side] = (int16_t)(w[c * taps + tap[side]] - zero);
        }
        for (int64_t t = 0; t < taps; t++) *sum += w[c * taps + t] - zero;
    }
}

void wok_dwconv_s8_drive(const wok_dwconv_problem *problem, const wok_dwconv_s8_args *args, wok_dwconv_row_fn row,
                         const wok_parallel *parallel) {
    const wok_dwconv_s8_job job = {
        .geometry = {.batch = args->batch,
                     .in_h = args->in_h,
                     .in_w = args->in_w,
                     .out_h = args->out_h,
                     .out_w = args->out_w,
                     .pad_top = args->pad_top,
                     .pad_left = args->pad_left},
        .args = args,
    };
    wok_dwconv_drive(problem, &job.geometry, row, parallel);
}

/* ---- the oracle: weights [channels][kernel_h * kernel_w] int16 --------------------------------------------------- */

static size_t packed_bytes(const wok_dwconv_problem *p) {
    return (size_t)(p->channels * p->kernel_h * p->kernel_w) * sizeof(int16_t);
}

static void pack(const wok_dwconv_problem *p, const int8_t *w, const int8_t *w_zero, void *packed) {
    const int64_t taps = p->kernel_h * p->kernel_w;
    int16_t *out = packed;
    for (int64_t i = 0; i < p->channels * taps; i++) out[i] = (int16_t)(w[i] - (w_zero ? w_zero[i / taps] : 0));
}

static int32_t window(const wok_dwconv_row *row, int64_t ox, int64_t c) {
    const wok_dwconv_problem *p = row->problem;
    const wok_dwconv_s8_args *a = wok_dwconv_s8_args_of(row);
    const int16_t *w = (const int16_t *)a->packed + c * p->kernel_h * p->kernel_w;
    int32_t sum = 0;
    for (int64_t ky = 0; ky < p->kernel_h; ky++) {
        const int8_t *x = wok_dwconv_s8_input(row, ky);
        for (int64_t kx = 0; kx < p->kernel_w; kx++, w++) {
            const int64_t ix = ox * p->stride_w - a->pad_left + kx * p->dilation_w;
            if (x && ix >= 0 && ix < a->in_w) sum += (x[ix * a->x_stride + c] - a->x_zero) * *w;
        }
    }
    return sum;
}

static void ref_row(const wok_dwconv_row *row) {
    const wok_dwconv_s8_args *a = wok_dwconv_s8_args_of(row);
    for (int64_t ox = 0; ox < a->out_w; ox++)
        for (int64_t c = row->begin; c < row->end; c++) {
            const int64_t pixel = wok_dwconv_pixel(row, ox);
            wok_epilogue_s8_ref(window(row, ox, c), pixel, c, &a->epilogue, a->y, pixel * a->y_stride + c);
        }
}

static void run(const wok_dwconv_problem *problem, const wok_dwconv_s8_args *args, const wok_parallel *parallel) {
    wok_dwconv_s8_drive(problem, args, ref_row, parallel);
}

const wok_dwconv_s8_kernel wok_dwconv_s8__ref = {
    .base = {"wok_dwconv_s8__ref", WOK_ISA_ref, WOK_KERNEL_REFERENCE, wok_dwconv_s8_accept},
    .layout = "dwconv-s8-plain-v1",
    .packed_bytes = packed_bytes,
    .pack = pack,
    .run = run,
};

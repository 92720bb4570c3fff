/* dwconv_s8_ref.c - the oracle: one tap after the other from weights in their own plain layout; and the packing that
 * the vector variants share. */
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
        int16_t *pair = (int16_t *)(void *)block + wok_dwconv_s8_lane(c % BLOCK) * 2;
        int32_t *sum = (int32_t *)(void *)block + pairs * BLOCK + wok_dwconv_s8_lane(c % BLOCK);
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

/* ---- the oracle: weights [channels][kernel_h * kernel_w] int16 --------------------------------------------------- */

static size_t packed_bytes(const wok_dwconv_problem *p) {
    return (size_t)(p->channels * p->kernel_h * p->kernel_w) * sizeof(int16_t);
}

static void pack(const wok_dwconv_problem *p, const int8_t *w, const int8_t *w_zero, void *packed) {
    const int64_t taps = p->kernel_h * p->kernel_w;
    int16_t *out = packed;
    for (int64_t i = 0; i < p->channels * taps; i++) out[i] = (int16_t)(w[i] - (w_zero ? w_zero[i / taps] : 0));
}

static int32_t window(const wok_dwconv_s8_row *row, int64_t ox, int64_t c) {
    const wok_dwconv_problem *p = row->problem;
    const wok_dwconv_s8_args *a = row->args;
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

static void ref_rows(const void *arg, int64_t first, int64_t last, int64_t begin, int64_t end) {
    const wok_dwconv_s8_job *job = arg;
    const wok_dwconv_s8_args *a = job->args;
    for (int64_t i = first; i < last; i++) {
        const wok_dwconv_s8_row row = wok_dwconv_s8_row_at(job->problem, a, i);
        for (int64_t m = i * a->out_w; m < (i + 1) * a->out_w; m++)
            for (int64_t c = begin; c < end; c++)
                wok_epilogue_s8_ref(window(&row, m - i * a->out_w, c), m, c, &a->epilogue, a->y, m * a->y_stride + c);
    }
}

static void run(const wok_dwconv_problem *problem, const wok_dwconv_s8_args *args, const wok_parallel *parallel) {
    wok_dwconv_split(problem->channels, args->batch * args->out_h, ref_rows, &(wok_dwconv_s8_job){problem, args},
                     parallel);
}

const wok_dwconv_s8_kernel wok_dwconv_s8__ref = {
    .base = {"wok_dwconv_s8__ref", WOK_ISA_ref, WOK_KERNEL_REFERENCE, wok_dwconv_s8_accept},
    .layout = "dwconv-s8-plain-v1",
    .packed_bytes = packed_bytes,
    .pack = pack,
    .run = run,
};

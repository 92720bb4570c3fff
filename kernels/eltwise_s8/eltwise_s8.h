/* eltwise_s8.h - variants of the eltwise_s8 family (contract: wok_kernels.h) and what they share.
 *
 * All variants give the bits of the reference: divisions are divisions, and every step is rounded where the contract
 * says so. Corners: a NaN among the values that ADD and MUL make gives y_zero too, before the clamp to [lo, hi]. A row
 * whose scale would be 0 in f32 (hi - lo at most 255 * 2^-150) counts as a row of zeros, and so does an empty one.
 *
 * Work is split by ranges of elements; QUANTIZE_ROWS by rows, and where there are few long rows each row by ranges,
 * once for its extent and once for its bytes: minimum and maximum do not depend on an order. */
#ifndef WOK_ELTWISE_S8_H
#define WOK_ELTWISE_S8_H

#include "../common.h"

#define WOK_DECLARE(isa, symbol) extern const wok_eltwise_s8_kernel symbol;
#define WOK_VARIANT WOK_DECLARE
#include "eltwise_s8.def"
#undef WOK_VARIANT
#undef WOK_DECLARE

/* Elements of a task: some 10 us, so that a join costs little beside it. */
enum { WOK_ELTWISE_S8_GRAIN = 1 << 14, WOK_ELTWISE_S8_PARTS = 64 };

/* The extent of a row or a part of it: lo <= 0 <= hi; `special` is NaN if there was a NaN or an infinity, else 0. */
typedef struct wok_extent {
    float lo, hi, special;
} wok_extent;

/* The vector parts of a variant. `begin` is a multiple of 64 where there is an `end`. */
typedef struct wok_eltwise_s8_loops {
    void (*range)(wok_eltwise_s8_op op, const wok_eltwise_s8_args *args, int64_t begin, int64_t end);
    wok_extent (*extent)(const float *a, int64_t n);
    void (*quantize)(const float *a, int64_t n, float scale, int32_t zero, int8_t *y);
} wok_eltwise_s8_loops;

const char *wok_eltwise_s8_accept(const void *problem);

/* Scale and zero point of a row; false for a row with NaN or infinities, whose bytes are all 0. */
bool wok_eltwise_s8_row(wok_extent extent, float *scale, int32_t *zero);

/* A launch split over the threads; portable, shared by the variants. */
void wok_eltwise_s8_drive(wok_eltwise_s8_op op, const wok_eltwise_s8_args *args, const wok_eltwise_s8_loops *loops,
                          const wok_parallel *parallel);

#endif

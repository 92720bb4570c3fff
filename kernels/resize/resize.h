/* resize.h - variants of the resize family (contract: wok_kernels.h) and what they share.
 *
 * A variant is a wok_resize_rows: functions on rows of pixels. resize_run_ref.c does the rest once for all of
 * them: coefficient tables (resize_table_ref.c), the window of source rows, bands for threads, order of the passes.
 *
 * Fixed point (WOK_RESIZE_U8, _UNIT). The algorithm is Pillow's (src/libImaging/Resample.c): a weight is rounded to
 * 22 fractional bits, a pass sums weight * u8 in 32 bits, adds half, shifts and clips. Only exact sums give its
 * bytes, so SIMD variants cut a weight into k = hi * 2^15 + lo with 0 <= lo < 2^15 and multiply u8 pairs by i16
 * pairs twice. Sums wrap modulo 2^32, which is harmless since the true sum fits.
 *
 *   source rows --horizontal--> ring of u8 rows --vertical--> u8 row --store--> y
 *
 * or, where the height shrinks much more than the width (resize_run_ref.c),
 *
 *   source rows --vertical--> 4 u8 rows --horizontal--> 4 u8 rows --store--> y
 *
 * Floating point (WOK_RESIZE_U8_F32, _F32). Each output row sums its source rows first, for only those columns that
 * the window needs, then runs along that one f32 row.
 *
 *   source rows --vertical--> f32 row --horizontal--> f32 row, 4 lanes a pixel --store--> y
 *
 * Rows in the workspace end in WOK_RESIZE_SLACK bytes that may be read and written, so that only reads of x and
 * writes of y need care at their ends. */
#ifndef WOK_RESIZE_H
#define WOK_RESIZE_H

#include "../common.h"

#define WOK_DECLARE(isa, symbol) extern const wok_resize_kernel symbol;
#define WOK_VARIANT WOK_DECLARE
#include "resize.def"
#undef WOK_VARIANT
#undef WOK_DECLARE

enum {
    WOK_RESIZE_BITS = 22,  /* fraction of a fixed-point weight */
    WOK_RESIZE_SPLIT = 15, /* bits of its low half */
    WOK_RESIZE_BLOCK = 4,  /* source rows that a horizontal u8 pass takes at once */
    WOK_RESIZE_SLACK = 64
};

/* The taps of `count` output positions along one axis. Position i reads source positions first[i] .. first[i] +
 * taps[i] - 1 with weights[i * stride ...], zero from taps[i] to stride. stride is a multiple of 4. */
typedef struct wok_resize_axis {
    int64_t count, stride;
    int32_t *first, *taps;
    void *weights; /* float, or int32_t in fixed point; split in place by wok_resize_split where the variant wants it */
} wok_resize_axis;

typedef enum wok_resize_arithmetic { WOK_RESIZE_FLOAT, WOK_RESIZE_FIXED } wok_resize_arithmetic;

/* Upper bound of taps for this axis, rounded up to 4. */
int64_t wok_resize_stride(wok_resize_filter filter, bool antialias, int64_t in, int64_t out);
/* Fills axis->first, taps and weights (memory set up by the caller, count and stride given) for positions
 * begin .. begin + count - 1 of `out`. scratch: stride doubles. Zero weights at the ends are dropped. */
void wok_resize_fill(wok_resize_axis *axis, wok_resize_filter filter, bool antialias, wok_resize_arithmetic arithmetic,
                     int64_t in, int64_t out, int64_t begin, double *scratch);

/* Every 4 weights become 8 halves in the same 16 bytes: lo0 lo1 lo2 lo3 hi0 hi1 hi2 hi3. */
static inline void wok_resize_split(int32_t *weights, int64_t count) {
    for (int64_t i = 0; i < count; i += 4) {
        int16_t halves[8];
        for (int j = 0; j < 4; j++) {
            halves[j] = (int16_t)(weights[i + j] & ((1 << WOK_RESIZE_SPLIT) - 1));
            halves[4 + j] = (int16_t)(weights[i + j] >> WOK_RESIZE_SPLIT);
        }
        memcpy(weights + i, halves, sizeof halves);
    }
}

/* Lanes that horizontal_f32 writes for a pixel: 3 channels take 4. */
static inline int64_t wok_resize_lanes(int64_t channels) { return channels == 3 ? 4 : channels; }

typedef struct wok_resize_rows {
    bool split; /* wants fixed-point weights split */
    /* dst[r][(i - begin) * channels + c] for i in [begin, end), from src[r], whose pixel 0 is source position `origin`.
     * Reads whole groups of 4 taps and up to 16 bytes beyond them, writes up to 16 bytes beyond the row. */
    void (*horizontal_u8)(const wok_resize_axis *axis, int64_t begin, int64_t end, int64_t origin, int64_t channels,
                          const uint8_t *const src[WOK_RESIZE_BLOCK], uint8_t *const dst[WOK_RESIZE_BLOCK]);
    /* rows[0 .. taps rounded up to 4) are valid, those from `taps` on repeat. Reads and writes nothing beyond n. */
    void (*vertical_u8)(const uint8_t *const *rows, const int32_t *weights, int64_t taps, int64_t n, uint8_t *dst);
    /* Sums elements offset .. offset + n - 1 of picture rows (u8 or f32): reads nothing beyond them. */
    void (*vertical_f32)(const void *const *rows, bool is_u8, int64_t offset, const float *weights, int64_t taps,
                         int64_t n, float *dst);
    /* src: pixel 0 is source position `origin`. dst: [axis->count][lanes]. */
    void (*horizontal_f32)(const wok_resize_axis *axis, int64_t origin, int64_t channels, const float *src, float *dst);
    /* One output row from n pixels, f32 (4 lanes for 3 channels) or u8 (no gaps); y, strides as in the args. */
    void (*store_f32)(const float *src, int64_t n, int64_t channels, const wok_resize_args *args, float *y);
    void (*store_unit)(const uint8_t *src, int64_t n, int64_t channels, const wok_resize_args *args, float *y);
} wok_resize_rows;

const char *wok_resize_accept(const void *problem);
size_t wok_resize_workspace_bytes(const wok_resize_problem *problem, const wok_resize_args *args, int threads);
void wok_resize_run(const wok_resize_rows *rows, const wok_resize_problem *problem, const wok_resize_args *args,
                    const wok_parallel *parallel);

/* vertical_u8 for split weights, element by element: for rows shorter than a vector. */
void wok_resize_vertical_split(const uint8_t *const *rows, const int32_t *weights, int64_t taps, int64_t n,
                               uint8_t *dst);
/* Scalar stores for any strides; variants call them for what they have no shuffle for. */
void wok_resize_store_f32(const float *src, int64_t n, int64_t channels, const wok_resize_args *args, float *y);
void wok_resize_store_unit(const uint8_t *src, int64_t n, int64_t channels, const wok_resize_args *args, float *y);

#endif

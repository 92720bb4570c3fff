/* pool.h - variants of the pool family (contract: wok_kernels.h) and what they share.
 *
 * Windows are clipped to the picture; a tap outside it is skipped, never read.
 *
 * Max: a NaN in the window makes the result NaN, as in PyTorch (ONNX Runtime drops it): a broken activation must not
 *      disappear. In scan order ky, kx: m = -inf; m = x if x is NaN or x > m. So of several NaN the last
 *      one's bits come out, of -0 and +0 the first. All variants give the same bits.
 * Average: the sum over ky, kx ascending in f32, divided by the count of taps inside the picture, or with
 *      count_include_pad inside the padded picture. Windows that run past the padded edge (ceil_mode) count only what
 * is
 *      inside it. Bound against the reference, n taps, eps = 2^-24:  |y - ref| <= (n + 1) * eps * sum |x| / count.
 *      The SIMD variants agree bit for bit.
 * A window that holds no pixel gives -inf (max) and 0 (average).
 *
 * Work is split by output rows, and by ranges of channels where there are fewer rows than threads want.
 */
#ifndef WOK_POOL_H
#define WOK_POOL_H

#include "../common.h"

#define WOK_DECLARE(isa, symbol) extern const wok_pool_kernel symbol;
#define WOK_VARIANT WOK_DECLARE
#include "pool.def"
#undef WOK_VARIANT
#undef WOK_DECLARE

const char *wok_pool_accept(const void *problem);

/* The window of one output pixel, for elements of any size. */
typedef struct wok_pool_place {
    int64_t x, y;                      /* elements from the tensors' beginnings: first pixel inside; the output pixel */
    int64_t rows, columns;             /* taps inside the picture; rows is 0 if there is none */
    int64_t row_stride, column_stride; /* elements from tap to tap */
    int64_t count;                     /* divisor of an average, at least 1 */
    int64_t begin, end;                /* channels to compute */
} wok_pool_place;

typedef void (*wok_pool_place_fn)(const void *arg, const wok_pool_place *place);

/* Calls `fn` for every output pixel of a launch with `shape`'s sizes and strides; its pointers are not used. */
void wok_pool_walk(int64_t channels, const wok_pool_args *shape, wok_pool_place_fn fn, const void *arg,
                   const wok_parallel *parallel);

/* The same with pointers, f32. */
typedef struct wok_pool_window {
    const float *x;                    /* first pixel inside the picture, channel 0 */
    int64_t rows, columns;             /* taps inside the picture */
    int64_t row_stride, column_stride; /* elements from tap to tap */
    float count;                       /* divisor of an average */
    int64_t begin, end;                /* channels to compute */
    float *y;                          /* the output pixel, channel 0 */
} wok_pool_window;

typedef void (*wok_pool_window_fn)(const wok_pool_window *window);

/* Calls `max` or `average`, as the problem says, for every output pixel; portable, shared by the variants. */
void wok_pool_drive(const wok_pool_problem *problem, const wok_pool_args *args, wok_pool_window_fn max,
                    wok_pool_window_fn average, const wok_parallel *parallel);

#endif

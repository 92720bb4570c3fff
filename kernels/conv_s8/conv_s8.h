/* conv_s8.h - variants of the conv_s8 family (contract: wok_kernels.h) and what they share.
 *
 * A row of the matrix A is an output pixel; its K = kernel_h * kernel_w * (c_in / group) bytes, in the order ky, kx,
 * channel, are gathered from the picture, x_zero where a tap lies outside of it. What multiplies them is gemm_s8's
 * inner part, rows times panels, so that every level has one micro-kernel and one packed layout:
 *
 *     conv-s8-n16k4-v1     [group] gemm_s8's "s8-n16k4-v1" of K x c_out / group, each rounded up to 64
 *
 * Why copies and not the pointers of conv_f32: the bytes of a pixel are used c_out / group times, copying them costs
 * about 2 / c_out of the multiplications; in return four k may stand in different taps (a stem of three channels wastes
 * nothing), the padding needs no row of zeros, and row sums, which every zero point asks for, run over one stretch of
 * memory. A 1x1 convolution without stride and padding reads the picture in place.
 *
 * A chunk is a range of output pixels whose gathered rows fit into half the L2 cache. Tasks are chunks x ranges of
 * panels, an output element belongs to exactly one. Sums are exact, so no split can be seen in the bits. */
#ifndef WOK_CONV_S8_H
#define WOK_CONV_S8_H

#include "../gemm_s8/gemm_s8.h"

#define WOK_DECLARE(isa, symbol) extern const wok_conv_s8_kernel symbol;
#define WOK_VARIANT WOK_DECLARE
#include "conv_s8.def"
#undef WOK_VARIANT
#undef WOK_DECLARE

#define WOK_CONV_S8_LAYOUT "conv-s8-n16k4-v1"

/* ---- shared by all variants (conv_s8_driver_ref.c) --------------------------------------------------------------- */

/* NULL, or why the problem is no convolution, or too large for int32 sums or for 64-bit sizes. */
const char *wok_conv_s8_accept(const void *problem);
size_t wok_conv_s8_packed_bytes(const wok_conv_s8_problem *problem);
void wok_conv_s8_pack(const wok_conv_s8_problem *problem, const int8_t *w, const int8_t *w_zero, void *packed);

/* What one group is to gemm_s8, and the bytes from one packed group to the next. */
static inline wok_gemm_s8_problem wok_conv_s8_group(const wok_conv_s8_problem *p) {
    return (wok_gemm_s8_problem){p->c_out / p->group, p->kernel_h * p->kernel_w * (p->c_in / p->group)};
}
size_t wok_conv_s8_group_bytes(const wok_conv_s8_problem *problem);

/* The part of a variant that knows no instruction set. `rows` multiplies, at best in blocks of mr rows. */
size_t wok_conv_s8_workspace(const wok_conv_s8_problem *problem, const wok_conv_s8_args *args, int mr, int threads);
void wok_conv_s8_drive(const wok_conv_s8_problem *problem, const wok_conv_s8_args *args, int mr,
                       wok_gemm_s8_rows_fn rows, const wok_parallel *parallel);

/* A variant is a rows-times-panels function and the size of its blocks. */
#define WOK_CONV_S8_DEFINE(symbol, symbol_name, level, accept_fn, rows_fn, block_rows, block_columns)                  \
    static size_t workspace_bytes(const wok_conv_s8_problem *problem, const wok_conv_s8_args *args, int threads) {     \
        return wok_conv_s8_workspace(problem, args, block_rows, threads);                                              \
    }                                                                                                                  \
    static void run(const wok_conv_s8_problem *problem, const wok_conv_s8_args *args, const wok_parallel *parallel) {  \
        wok_conv_s8_drive(problem, args, block_rows, rows_fn, parallel);                                               \
    }                                                                                                                  \
    const wok_conv_s8_kernel symbol = {                                                                                \
        .base = {symbol_name, level, 0, accept_fn},                                                                    \
        .layout = WOK_CONV_S8_LAYOUT,                                                                                  \
        .mr = block_rows,                                                                                              \
        .nr = block_columns,                                                                                           \
        .packed_bytes = wok_conv_s8_packed_bytes,                                                                      \
        .pack = wok_conv_s8_pack,                                                                                      \
        .workspace_bytes = workspace_bytes,                                                                            \
        .run = run,                                                                                                    \
    }

#endif

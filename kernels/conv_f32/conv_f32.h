/* conv_f32.h - variants of the conv_f32 family (contract: wok_kernels.h) and what they share.
 *
 * Packed weights, layout "conv-f32-n16-v1", 64-byte aligned:
 *
 *     [group][ceil((c_out / group) / 16)][K = kernel_h * kernel_w * (c_in / group)][16]
 *
 * K runs over ky, kx, then the channels of the group; columns past the group's last output channel are zero.
 *
 * Indirect GEMM (Dukhan, "The Indirect Convolution Algorithm", 2019): a row of the matrix A is an output pixel. Its K
 * elements are `runs` runs of `run` floats that are contiguous in memory, so a table of pointers [block][run][mr]
 * stands for A and no im2col copy is made. Two ways to cut K into runs:
 *
 *     taps     run = c_in / group, runs = kernel_h * kernel_w; a tap outside the picture points at a row of zeros
 *     strips   run = kernel_w * c_in, runs = kernel_h: a chunk first copies the picture rows that it needs into its
 *              workspace, with the zeros of the padding. For few channels, where a tap is too short a run.
 *
 * A chunk is a range of output pixels whose input fits into the L2 cache. Within it the loops are: panels of 16 output
 * channels, blocks of at most mr pixels, runs, channels. Tasks are chunks x ranges of panels; wok_conv_f32_plan
 * weighs the two for the number of threads. No split touches the order of a sum: an output is one FMA chain over k,
 * and taps in the padding contribute products with zero.
 *
 * Bound of every variant against the reference, eps = 2^-24, S = sum over the window of |x * w|:
 *
 *     |y - ref| <= (K + 3) * eps * (S + |bias| + |residual|) + 2^-126     (before the activation)
 *
 * and the SIMD variants agree bit for bit (which NaN comes out of several aside). The clamp is exact; the other
 * activations multiply the error by at most 1.13 and add the bound of their functions (math_avx2.h), in which levels
 * differ.
 */
#ifndef WOK_CONV_F32_H
#define WOK_CONV_F32_H

#include "../common.h"

#define WOK_DECLARE(isa, symbol) extern const wok_conv_f32_kernel symbol;
#define WOK_VARIANT WOK_DECLARE
#include "conv_f32.def"
#undef WOK_VARIANT
#undef WOK_DECLARE

#define WOK_CONV_F32_NR 16 /* columns of a panel */
#define WOK_CONV_F32_LAYOUT "conv-f32-n16-v1"

/* NULL, or why the problem is no convolution or too large for 64-bit sizes. */
const char *wok_conv_f32_accept(const void *problem);
size_t wok_conv_f32_packed_bytes(const wok_conv_f32_problem *problem);
void wok_conv_f32_pack(const wok_conv_f32_problem *problem, const float *w, const float *channel_scale, void *packed);

/* What a variant's panel function gets: a chunk of pixels against `panels` panels of one group. */
typedef struct wok_conv_f32_job {
    const float *const *table; /* [blocks][runs][mr] */
    int64_t blocks;
    int64_t block_rows,
        longer_blocks; /* the first `longer_blocks` blocks have one pixel more: no short one at the end */
    int64_t runs, run;
    int64_t offset;  /* added to every pointer of the table: first channel of the group */
    const float *b;  /* [panels][runs * run][16] */
    int64_t panels;  /* >= 1 */
    int64_t columns; /* output channels in these panels: 16 * panels, or fewer at the end of a group */
    float *y;        /* first pixel, first column */
    int64_t y_stride;
    const float *bias;     /* first column, or NULL */
    const float *residual; /* first pixel, first column, or NULL */
    int64_t residual_stride;
    wok_act act;
    float lo, hi;
} wok_conv_f32_job;

static inline int64_t wok_conv_f32_rows(const wok_conv_f32_job *job, int64_t block) {
    return job->block_rows + (block < job->longer_blocks);
}

typedef void (*wok_conv_f32_panels_fn)(const wok_conv_f32_job *job);

/* The part of a variant that knows no instruction set. mr: pixels of a full block. */
size_t wok_conv_f32_workspace(const wok_conv_f32_problem *problem, const wok_conv_f32_args *args, int mr, int threads);
void wok_conv_f32_drive(const wok_conv_f32_problem *problem, const wok_conv_f32_args *args, int mr,
                        wok_conv_f32_panels_fn panels, const wok_parallel *parallel);

#endif

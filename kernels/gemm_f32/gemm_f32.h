/* gemm_f32.h - variants of the gemm_f32 family (contract: wok_kernels.h) and what they share.
 *
 * Packed layout "f32-n16-v1", common to all variants: [ceil(N/16)][K][16]. A panel is 16 columns of B, row k of it is one
 * 64-byte line, columns beyond N are zeros. Any register tile whose width is a multiple of 16 (or 8) walks it, and a small
 * M streams several panels side by side.
 *
 *      panel 0              panel 1
 *      k=0  b[0][0..15]     k=0  b[0][16..31]
 *      k=1  b[1][0..15]     k=1  b[1][16..31]     ...
 *
 * Arithmetic of the SIMD variants: acc = 0; acc = fma(a[m][k], b[k][n], acc) for k = 0 .. K-1; y = act(acc + bias + residual)
 * with one f32 rounding per addition. Nothing else is free, so their bits are equal whatever M, the tile, the split over
 * threads and the level are (activations other than NONE and CLAMP: equal within one level).
 *
 * Bound, with u = 2^-24 and S = sum_k |a b| + |bias| + |residual|, all sums exact:
 *     before the activation   |acc + bias + residual - exact| <= (K + 3) u S
 *     after it                1.13 times that (the steepest slope, of GELU) + 2^-22 max(1, |y|) (math_avx2.h)
 * where K u < 1/16. Infinities and NaN propagate as in the exact formula; sums beyond FLT_MAX are infinite.
 *
 * Split over threads: tiles of columns and rows, an output element belongs to exactly one task. */
#ifndef WOK_GEMM_F32_H
#define WOK_GEMM_F32_H

#include "../common.h"

#define WOK_DECLARE(isa, symbol) extern const wok_gemm_f32_kernel symbol;
#define WOK_VARIANT WOK_DECLARE
#include "gemm_f32.def"
#undef WOK_VARIANT
#undef WOK_DECLARE

#define WOK_GEMM_F32_LAYOUT "f32-n16-v1"
enum { WOK_GEMM_F32_PANEL = 16 };

/* Shared by the variants (gemm_f32_ref.c): the accept rule that the problem is valid and its packed size is a size_t. */
const char *wok_gemm_f32_accept(const void *problem);
size_t wok_gemm_f32_packed_bytes(const wok_gemm_f32_problem *problem);
void wok_gemm_f32_pack(const wok_gemm_f32_problem *problem, const float *b, int64_t stride_k, int64_t stride_n,
                       void *packed, const wok_parallel *parallel);

#endif

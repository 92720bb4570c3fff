/* attn_tile.h - one product of the blocked attention, as its micro-kernels see it. */
#ifndef WOK_ATTN_TILE_H
#define WOK_ATTN_TILE_H

#include "attn.h"

enum { ATTN_PANEL = 16, ATTN_ROWS = 6 };

/* C[i][n] = (rescale ? C[i][n] * rescale[i] : 0) + sum_k A[i][k] B[k][n], one FMA chain over ascending k; with
 * `inverse` C[i][n] * inverse[i] + 0 at the end, which makes -0 (a product that underflowed) the +0 it is with more
 * keys behind it. B[k][n] stands at b[(n / 16 * depth + k) * 16 + n % 16]; columns up to the next multiple of 16 exist
 * in B. */
typedef struct attn_product {
    int64_t depth;
    const float *a;
    int64_t lda;
    const float *b;
    float *c;
    int64_t ldc;
    const float *rescale, *inverse;
} attn_product;

#endif

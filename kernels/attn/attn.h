/* attn.h - variants of the attn family (contract: wok_kernels.h) and what they share.
 *
 * A score is t = (q . k) * scale + bias, each step rounded to f32, as PyTorch computes it: with a mask of -1e4 on every
 * key the scores lose bits together and the softmax of what is left is the answer; with -3.4e38 it is the mean of V.
 *   y = sum_j p_j v_j / sum_j p_j,   p_j = exp(t_j - max t)
 * -inf has weight 0, a row with weights 0 only gives 0, NaN (in q, k, bias, or v of any key) gives NaN in the rows that
 * use it. +inf gives NaN, as in PyTorch.
 *
 * The bits of a row depend on its q, its keys, values and bias only. Keys are taken in blocks of WOK_ATTN_KEYS from the
 * start of the sequence, with the running maximum of Milakov and Gimelshein, "Online normalizer calculation for
 * softmax" (2018): up to one block this is the ordinary two-pass softmax, and a block of keys with weight 0 behind it
 * multiplies by exp(0) = 1 and adds 0. Length classes do not exist.
 *
 * Against the reference, u = 2^-24, over keys with t_j > max t - 30:
 *   E = max_j (head_dim scale sum_d |q_d k_jd| + 2 |t_j|)
 *   |y - ref| <= (16 + k_rows + 2 E) u sum_j p_j |v_j| / sum_j p_j + 2^-126 (1 + sum_j |v_j|)      weights below 2^-126 are 0
 * when all roundings lean one way; with ordinary numbers 2 sqrt(head_dim) and 2 sqrt(k_rows) stand for the lengths. The
 * vector variants sum in the same order and agree bit for bit. */
#ifndef WOK_ATTN_H
#define WOK_ATTN_H

#include "../common.h"

#define WOK_DECLARE(isa, symbol) extern const wok_attn_kernel symbol;
#define WOK_VARIANT WOK_DECLARE
#include "attn.def"
#undef WOK_VARIANT
#undef WOK_DECLARE

/* Keys of a block; part of the numeric contract, the same for every variant. */
enum { WOK_ATTN_KEYS = 512 };

static inline const char *wok_attn_accept(const void *problem) {
    const wok_attn_problem *p = problem;
    if (p->heads < 1 || p->head_dim < 1 || p->value_dim < 1) return "heads and their widths must be positive";
    return p->head_dim <= 1 << 20 && p->value_dim <= 1 << 20 ? NULL : "a head is wider than 2^20";
}

static inline int64_t wok_attn_longest_keys(const wok_attn_args *args) {
    int64_t longest = 0;
    for (int64_t s = 0; s < args->sequence_count; s++) longest = wok_max64(longest, args->sequences[s].k_rows);
    return longest;
}

/* Bias of the keys of one query row, key_stride elements apart; NULL without bias. */
static inline const float *wok_attn_bias(const wok_attn_args *args, int64_t sequence, int64_t head, int64_t query) {
    if (!args->bias) return NULL;
    return args->bias + sequence * args->bias_sequence_stride + head * args->bias_head_stride +
           query * args->bias_query_stride;
}

#endif

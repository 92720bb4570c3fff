/* lower_contrib.h - com.microsoft's fused operators as plain ones (internal to canonicalize). */
#ifndef WOK_LOWER_CONTRIB_H
#define WOK_LOWER_CONTRIB_H

#include "pass.h"

/* Rewrites the node if it is one that can be; *lowered says so. Types of the new nodes are inferred. */
wok_status wok_lower_contrib(wok_pass_ctx *ctx, wok_node node, bool *lowered);

/* The same for operators that quantise inside themselves (lower_qoperator.c). */
wok_status wok_lower_qoperator(wok_pass_ctx *ctx, wok_node node, bool *lowered);

/* com.microsoft's Attention and QAttention, in place of node `id`, from the joined projections `qkv`. */
bool wok_lower_attention_fits(wok_pass_ctx *ctx, wok_node id, wok_value mask);
void wok_lower_attention(wok_pass_ctx *ctx, wok_node id, wok_value qkv, wok_value mask);

#endif

/* quantised.h - what the rewrites of quantised graphs share (internal): quantised.c, lower_quantized.c, fuse_requantize.c.
 *
 * Every quantised form becomes one: DequantizeLinear in front of plain operators, QuantizeLinear behind them. Codes that
 * kernels see are s8; u8 codes are the same values with 128 taken off codes and zero point. */
#ifndef WOK_QUANTISED_H
#define WOK_QUANTISED_H

#include "pass.h"

/* A value that is DequantizeLinear of codes with one constant scale and zero point. */
typedef struct wok_quantised {
    wok_value codes;
    wok_dtype dtype; /* of the codes: s8 or u8 */
    float scale;
    int32_t zero; /* of s8 codes: 128 is taken off where the file's are u8 */
} wok_quantised;

bool wok_pass_quantised(wok_pass_ctx *ctx, wok_value v, wok_quantised *q);
/* The same of a node that is QuantizeLinear: scale and zero point that it quantises to; codes is its output. */
bool wok_pass_quantises(wok_pass_ctx *ctx, const wok_ir_node *node, wok_quantised *q);
/* The codes as s8: themselves, a constant turned, the QuantizeLinear that makes them with another zero point, or a
 * QSignFlip. */
wok_value wok_pass_signed_codes(wok_pass_ctx *ctx, wok_value codes);

/* Constant weights: DequantizeLinear of constant codes, one scale for all or one for each entry of dimension `axis`. */
typedef struct wok_quantised_weights {
    wok_value codes; /* s8 */
    int64_t n;
    float *scale;       /* n values */
    const int8_t *zero; /* n values, or NULL where all are 0 */
} wok_quantised_weights;

/* NULL, or why v is no such weights. `axis` counts from the front. */
const char *wok_pass_quantised_weights(wok_pass_ctx *ctx, wok_value v, int axis, wok_quantised_weights *w);
/* From codes, scale and zero point as separate constants (MatMulInteger, QLinearConv); zero may be absent. */
const char *wok_pass_weights_from(wok_pass_ctx *ctx, wok_value codes, wok_value scale, wok_value zero, int axis,
                                  wok_quantised_weights *w);
wok_value wok_pass_zero_points(wok_pass_ctx *ctx, const wok_quantised_weights *w);
bool wok_pass_is_dequantize(const wok_ir_node *node);
bool wok_pass_is_quantize(const wok_ir_node *node);

#endif

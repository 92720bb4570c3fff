/* fold_pad.c - a constant Pad with zeros in the spatial dimensions, read only by a convolution, becomes the convolution's
 * own padding (Keras pads MobileNetV2 by one row at the bottom and right only). Exact. */
#include "pass.h"

#include <string.h>

/* The pads of the two spatial dimensions as [top, left, bottom, right]; false unless nothing else is padded. */
static bool spatial_pads(wok_pass_ctx *ctx, const wok_ir_node *pad, int64_t *out) {
    int64_t pads[2 * WOK_MAX_RANK], axes[WOK_MAX_RANK], all[8] = {0};
    double value = 0;
    int count = wok_pass_constant_ints(ctx, wok_pass_in(pad, 1), pads, 2 * WOK_MAX_RANK);
    if (strcmp(wok_ir_string(pad, "mode", "constant"), "constant") != 0) return false;
    if (wok_pass_in(pad, 2) >= 0 && (!wok_pass_scalar(ctx, pad->in[2], &value) || value != 0)) return false;
    if (wok_pass_in(pad, 3) >= 0) {
        int n = wok_pass_constant_ints(ctx, pad->in[3], axes, WOK_MAX_RANK);
        if (n < 0 || count != 2 * n) return false;
        for (int i = 0; i < n; i++) {
            int64_t axis = axes[i] < 0 ? axes[i] + 4 : axes[i];
            if (axis < 0 || axis > 3) return false;
            all[axis] = pads[i];
            all[4 + axis] = pads[n + i];
        }
    } else {
        if (count != 8) return false;
        memcpy(all, pads, sizeof all);
    }
    for (int i = 0; i < 8; i++)
        if (all[i] < 0 || (i % 4 < 2 && all[i] != 0)) return false;
    out[0] = all[2], out[1] = all[3], out[2] = all[6], out[3] = all[7];
    return true;
}

wok_status wok_pass_fold_pad(wok_pass_ctx *ctx) {
    wok_graph *g = ctx->graph;
    for (wok_node id = 0; id < g->node_count && g->status == WOK_OK; id++) {
        wok_ir_node *conv = &g->nodes[id];
        if (conv->dead || conv->op != WOK_OP_Conv) continue;
        const wok_ir_node *pad = wok_pass_is(ctx, conv->in[0], WOK_OP_Pad);
        int64_t extra[4], pads[4] = {0};
        if (!pad || wok_pass_type(ctx, conv->in[0])->rank != 4) continue;
        const char *mode = wok_ir_string(conv, "auto_pad", "NOTSET");
        if (!wok_pass_single_use(ctx, conv->in[0])) {
            wok_pass_near_miss(ctx, pad, "the padded picture is read elsewhere too");
        } else if (strcmp(mode, "NOTSET") != 0 && strcmp(mode, "VALID") != 0) {
            wok_pass_near_miss(ctx, pad, "the convolution pads by itself (auto_pad %s)", mode);
        } else if (!spatial_pads(ctx, pad, extra)) {
            wok_pass_near_miss(ctx, pad, "the padding is not constant zeros around height and width");
        } else {
            wok_ir_ints(conv, "pads", pads, 4);
            for (int i = 0; i < 4; i++) pads[i] += extra[i];
            wok_node pad_id = wok_pass_id(ctx, pad);
            wok_value x = pad->in[0];
            wok_pass_origin(ctx, id, (wok_node[]){pad_id, id}, 2);
            wok_pass_set_input(ctx, &g->nodes[id], 0, x);
            wok_ir_set_ints(g, id, "pads", pads, 4);
            wok_pass_set_string(ctx, id, "auto_pad", "NOTSET");
        }
    }
    return g->status;
}

/* window.c - the geometry of convolution and pooling, any number of spatial dimensions. */
#include "ops.h"

#include <string.h>

static const char *read_list(const wok_ir_node *node, const char *name, int count, int64_t fallback, int64_t low,
                             int64_t *out) {
    static _Thread_local char text[96];
    int n = wok_ir_ints(node, name, out, count);
    for (int d = 0; d < count && n < 0; d++) out[d] = fallback;
    bool fits = n < 0 || n == count;
    for (int d = 0; d < count && fits; d++) fits = out[d] >= low && out[d] <= INT32_MAX;
    if (fits) return NULL;
    strcpy(text, name);
    strcat(text, " is out of range or does not fit the rank");
    return text;
}

const char *wok_window_read(const wok_ir_node *node, int rank, const int64_t *kernel, wok_window *window) {
    const char *wrong, *pad = wok_ir_string(node, "auto_pad", "NOTSET");
    int64_t pads[2 * WOK_WINDOW_MAX];
    *window = (wok_window){.rank = rank, .ceil_mode = wok_ir_int(node, "ceil_mode", 0) != 0};
    if (rank < 1 || rank > WOK_WINDOW_MAX) return "the input has no spatial dimensions";
    if ((wrong = read_list(node, "kernel_shape", rank, 0,
                           kernel && !wok_ir_attr(node, "kernel_shape", WOK_ATTR_INTS) ? 0 : 1, window->kernel)))
        return wrong;
    for (int d = 0; d < rank && kernel; d++) {
        if (window->kernel[d] == 0) window->kernel[d] = kernel[d];
        if (wok_dim_known(kernel[d]) && kernel[d] != window->kernel[d])
            return "kernel_shape is not that of the weights";
    }
    if ((wrong = read_list(node, "strides", rank, 1, 1, window->stride))) return wrong;
    if ((wrong = read_list(node, "dilations", rank, 1, 1, window->dilation))) return wrong;
    if (!strcmp(pad, "SAME_UPPER"))
        window->pad = WOK_PAD_UPPER;
    else if (!strcmp(pad, "SAME_LOWER"))
        window->pad = WOK_PAD_LOWER;
    else if (!strcmp(pad, "VALID"))
        window->pad = WOK_PAD_VALID;
    else if (*pad && strcmp(pad, "NOTSET"))
        return "auto_pad is not one of NOTSET, SAME_UPPER, SAME_LOWER, VALID";
    if (window->pad != WOK_PAD_GIVEN) return NULL;
    if ((wrong = read_list(node, "pads", 2 * rank, 0, 0, pads))) return wrong;
    memcpy(window->begin, pads, (size_t)rank * sizeof *pads);
    memcpy(window->end, pads + rank, (size_t)rank * sizeof *pads);
    return NULL;
}

static int64_t extent(const wok_window *w, int d) {
    return (w->kernel[d] - 1) * w->dilation[d] + 1;
}

/* SAME: pads such that out = ceil(in / stride); the odd one at the end (UPPER) or at the beginning (LOWER). */
static void same_pads(wok_window *w, int d) {
    int64_t total = (w->out[d] - 1) * w->stride[d] + extent(w, d) - w->in[d];
    if (total < 0) total = 0;
    w->begin[d] = (total + (w->pad == WOK_PAD_LOWER)) / 2;
    w->end[d] = total - w->begin[d];
}

static int64_t known_out(const wok_window *w, int d) {
    if (w->pad == WOK_PAD_UPPER || w->pad == WOK_PAD_LOWER) return (w->in[d] + w->stride[d] - 1) / w->stride[d];
    int64_t room = w->in[d] + w->begin[d] + w->end[d] - extent(w, d);
    if (room < 0) return 0;
    int64_t out = (room + (w->ceil_mode ? w->stride[d] - 1 : 0)) / w->stride[d] + 1;
    /* a last window that starts behind the input would see padding only */
    if (w->ceil_mode && (out - 1) * w->stride[d] >= w->in[d] + w->begin[d]) out--;
    return out;
}

/* The rules of known_out over symbols. */
static int64_t symbolic_out(wok_infer *infer, const wok_window *w, int d) {
    wok_graph *g = infer->graph;
    if (w->pad == WOK_PAD_UPPER || w->pad == WOK_PAD_LOWER)
        return w->stride[d] == 1 ? w->in[d] : wok_dim_div(g, wok_dim_add(g, w->in[d], w->stride[d] - 1), w->stride[d]);
    int64_t shift = w->begin[d] + w->end[d] - extent(w, d) + (w->ceil_mode ? w->stride[d] - 1 : 0);
    if (w->ceil_mode && w->stride[d] > 1) return wok_infer_unknown(infer);
    if (w->stride[d] == 1) shift += 1;
    int64_t room = shift < 0 ? wok_dim_sub(g, w->in[d], -shift) : wok_dim_add(g, w->in[d], shift);
    return w->stride[d] == 1 ? room : wok_dim_add(g, wok_dim_div(g, room, w->stride[d]), 1);
}

wok_status wok_window_infer(wok_infer *infer, wok_window *w, const int64_t *in) {
    for (int d = 0; d < w->rank; d++) {
        w->in[d] = in[d];
        if (!wok_dim_known(w->kernel[d])) {
            w->out[d] = wok_infer_unknown(infer);
        } else if (!wok_dim_known(in[d])) {
            w->out[d] = symbolic_out(infer, w, d);
        } else {
            if (in[d] > INT64_MAX / 4)
                return wok_infer_fail(infer, WOK_ERR_SHAPE, "spatial size %lld", (long long)in[d]);
            w->out[d] = known_out(w, d);
            if (w->out[d] < 1 || in[d] < 1)
                return wok_infer_fail(infer, WOK_ERR_SHAPE, "a window of %lld (dilated) does not fit spatial size %lld",
                                      (long long)extent(w, d), (long long)in[d]);
        }
    }
    return WOK_OK;
}

void wok_window_set(wok_window *w, const int64_t *in, const int64_t *out) {
    for (int d = 0; d < w->rank; d++) {
        w->in[d] = in[d];
        w->out[d] = out[d];
        if (w->pad == WOK_PAD_UPPER || w->pad == WOK_PAD_LOWER) same_pads(w, d);
    }
}

int64_t wok_window_source(const wok_window *w, int64_t at, int64_t tap) {
    int64_t index = 0, size = 1;
    for (int d = w->rank - 1; d >= 0; d--) {
        int64_t i = at % w->out[d] * w->stride[d] + tap % w->kernel[d] * w->dilation[d] - w->begin[d];
        if (i < 0 || i >= w->in[d]) return -1;
        index += i * size;
        size *= w->in[d];
        at /= w->out[d];
        tap /= w->kernel[d];
    }
    return index;
}

/* The least t >= 0 with start + t * step >= bound; at most `limit`. */
static int64_t first_at(int64_t start, int64_t step, int64_t bound, int64_t limit) {
    int64_t t = start >= bound ? 0 : (bound - start + step - 1) / step;
    return t < limit ? t : limit;
}

wok_taps wok_window_taps(const wok_window *w, int64_t at) {
    wok_taps taps = {.count = 1, .padded = 1};
    for (int d = w->rank - 1; d >= 0; d--) {
        int64_t start = at % w->out[d] * w->stride[d], begin = w->begin[d], end = begin + w->in[d];
        int64_t lo = first_at(start, w->dilation[d], begin, w->kernel[d]),
                hi = first_at(start, w->dilation[d], end, w->kernel[d]);
        taps.first[d] = start + lo * w->dilation[d] - begin;
        taps.size[d] = hi - lo;
        taps.count *= hi - lo;
        int64_t padded = first_at(start, w->dilation[d], end + w->end[d], w->kernel[d]), product;
        taps.padded = __builtin_mul_overflow(taps.padded, padded, &product) ? INT64_MAX : product;
        at /= w->out[d];
    }
    return taps;
}

int64_t wok_taps_source(const wok_window *w, const wok_taps *taps, int64_t i) {
    int64_t index = 0, size = 1;
    for (int d = w->rank - 1; d >= 0; d--) {
        index += (taps->first[d] + i % taps->size[d] * w->dilation[d]) * size;
        size *= w->in[d];
        i /= taps->size[d];
    }
    return index;
}

/* resize.c - Resize and Upsample: resampling along any axes, one axis after another, in double.
 *
 * An output position maps to a coordinate of the input (coordinate_transformation_mode); its taps are the two or four
 * neighbours, or all that the widened filter covers with antialias. Before version 11 a coordinate is position /
 * scale, and nearest rounds down. */
#include "ops.h"

#include <math.h>
#include <string.h>

enum { ROI = 1, SCALES, SIZES };
enum interpolation { NEAREST, LINEAR, CUBIC };
enum coordinates { HALF_PIXEL, SYMMETRIC, PYTORCH, ALIGN_CORNERS, ASYMMETRIC, CROP };
enum rounding { PREFER_FLOOR, PREFER_CEIL, FLOOR, CEIL };

typedef struct settings {
    enum interpolation mode;
    enum coordinates coordinates;
    enum rounding rounding;
    bool antialias, exclude_outside, old;
    int policy; /* 0 stretch, 1 not_larger, 2 not_smaller */
    double cubic, extrapolation;
    int scales; /* input that holds them; -1: an attribute */
} settings;

/* Index of the attribute's text in names; -1 if it is none of them. */
static int choose(const wok_ir_node *node, const char *attr, const char *fallback, const char *const *names) {
    const char *text = wok_ir_string(node, attr, fallback);
    for (int i = 0; names[i]; i++)
        if (!strcmp(text, names[i])) return i;
    return -1;
}

static bool read_settings(const wok_ir_node *node, settings *s) {
    static const char *const modes[] = {"nearest", "linear", "cubic", NULL};
    static const char *const coordinates[] = {
        "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize",
        NULL};
    static const char *const roundings[] = {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil", NULL};
    static const char *const policies[] = {"stretch", "not_larger", "not_smaller", NULL};
    *s = (settings){.old = node->op == WOK_OP_Upsample || node->version < 11};
    bool bilinear = s->old && !strcmp(wok_ir_string(node, "mode", "nearest"), "bilinear");
    int mode = bilinear ? LINEAR : choose(node, "mode", "nearest", modes);
    int place = choose(node, "coordinate_transformation_mode", s->old ? "asymmetric" : "half_pixel", coordinates);
    int rounding = choose(node, "nearest_mode", s->old ? "floor" : "round_prefer_floor", roundings);
    s->policy = choose(node, "keep_aspect_ratio_policy", "stretch", policies);
    if (mode < 0 || place < 0 || rounding < 0 || s->policy < 0) return false;
    s->mode = (enum interpolation)mode;
    s->coordinates = (enum coordinates)place;
    s->rounding = (enum rounding)rounding;
    s->antialias = wok_ir_int(node, "antialias", 0) && s->mode != NEAREST;
    s->exclude_outside = wok_ir_int(node, "exclude_outside", 0);
    s->cubic = (double)wok_ir_float(node, "cubic_coeff_a", -0.75f);
    s->extrapolation = (double)wok_ir_float(node, "extrapolation_value", 0);
    s->scales = !s->old ? SCALES : node->in_count > 1 ? 1 : -1;
    return true;
}

/* The axes that scales, sizes and roi speak of, in their order; -1 if one is out of range. */
static int read_axes(const wok_ir_node *node, int rank, int *axes) {
    int64_t given[WOK_MAX_RANK];
    int count = wok_ir_ints(node, "axes", given, WOK_MAX_RANK);
    for (int i = 0; i < rank && count < 0; i++) axes[i] = i;
    if (count < 0) return rank;
    for (int i = 0; i < count && i < WOK_MAX_RANK; i++) {
        axes[i] = wok_axis(given[i], rank);
        if (axes[i] < 0) return -1;
    }
    return count <= rank ? count : -1;
}

/* ---- output sizes ------------------------------------------------------------------------------------------------ */

/* Factors of all axes from sizes: their own, or with a policy the smallest or largest of all. out is corrected. */
static void scales_from_sizes(const settings *s, const int64_t *in, const int *axes, int count, int64_t *out,
                              double *scale) {
    double common = 0;
    for (int i = 0; i < count; i++) {
        double own = (double)out[axes[i]] / (double)in[axes[i]];
        scale[axes[i]] = own;
        if (i == 0 || (s->policy == 1 ? own < common : own > common)) common = own;
    }
    for (int i = 0; i < count && s->policy; i++) {
        scale[axes[i]] = common;
        out[axes[i]] = wok_truncate(common * (double)in[axes[i]] + 0.5);
    }
}

static int64_t scaled_dim(wok_infer *infer, int64_t dim, double scale) {
    if (scale == 1) return dim;
    if (wok_dim_known(dim)) return wok_truncate((double)dim * scale);
    return scale == floor(scale) && scale < INT32_MAX ? wok_dim_mul(infer->graph, dim, (int64_t)scale)
                                                      : wok_infer_unknown(infer);
}

static wok_status sizes_by_scale(wok_infer *infer, const settings *s, const int *axes, int count, int64_t *dims) {
    double scale[WOK_MAX_RANK];
    const wok_attr *attr = s->scales < 0 ? wok_ir_attr(infer->node, "scales", WOK_ATTR_FLOATS) : NULL;
    int given = s->scales >= 0 ? wok_infer_floats(infer, s->scales, scale, WOK_MAX_RANK) : attr ? (int)attr->count : -1;
    for (int i = 0; attr && i < given && i < WOK_MAX_RANK; i++) scale[i] = (double)attr->u.floats[i];
    if (given >= 0 && given != count)
        return wok_infer_fail(infer, WOK_ERR_SHAPE, "%d scales for %d axes", given, count);
    for (int i = 0; i < count; i++) {
        if (given >= 0 && !(scale[i] > 0 && scale[i] < 0x1p31))
            return wok_infer_fail(infer, WOK_ERR_VALUE, "scale %g", scale[i]);
        if (given >= 0 && wok_dim_known(dims[axes[i]]) && (double)dims[axes[i]] * scale[i] > 0x1p60)
            return wok_infer_fail(infer, WOK_ERR_VALUE, "scale %g of size %lld", scale[i], (long long)dims[axes[i]]);
        dims[axes[i]] = given < 0 ? wok_infer_unknown(infer) : scaled_dim(infer, dims[axes[i]], scale[i]);
    }
    return WOK_OK;
}

static wok_status sizes_by_size(wok_infer *infer, const settings *s, const int *axes, int count, int64_t *dims) {
    int64_t sizes[WOK_MAX_INTS], in[WOK_MAX_RANK];
    int given;
    memcpy(in, dims, sizeof in);
    if (!wok_infer_ints(infer, SIZES, sizes, &given)) {
        for (int i = 0; i < count; i++) dims[axes[i]] = wok_infer_unknown(infer);
        return WOK_OK;
    }
    if (given != count) return wok_infer_fail(infer, WOK_ERR_SHAPE, "%d sizes for %d axes", given, count);
    bool numbers = true;
    for (int i = 0; i < count; i++) {
        int64_t n;
        if (wok_dim_is_number(sizes[i], &n) && n < 0)
            return wok_infer_fail(infer, WOK_ERR_VALUE, "size %lld", (long long)n);
        numbers = numbers && wok_dim_known(sizes[i]) && wok_dim_known(in[axes[i]]);
        dims[axes[i]] = sizes[i];
    }
    double scale[WOK_MAX_RANK];
    for (int i = 0; i < count && s->policy && !numbers; i++) dims[axes[i]] = wok_infer_unknown(infer);
    if (numbers) scales_from_sizes(s, in, axes, count, dims, scale);
    return WOK_OK;
}

wok_status wok_infer_resize(wok_infer *infer) {
    WOK_TRY(wok_infer_need(infer, 1));
    const wok_type *x = infer->in[0];
    int axes[WOK_MAX_RANK];
    int64_t dims[WOK_MAX_RANK];
    settings s;
    infer->out[0].dtype = x->dtype;
    if (!read_settings(infer->node, &s))
        return wok_infer_fail(infer, WOK_ERR_UNSUPPORTED, "an attribute has an unknown value");
    if (x->rank < 0) return WOK_OK;
    int count = read_axes(infer->node, x->rank, axes);
    if (count < 0) return wok_infer_fail(infer, WOK_ERR_SHAPE, "an axis is outside a tensor of rank %d", x->rank);
    memcpy(dims, x->dims, sizeof dims);
    for (int d = 0; d < x->rank; d++)
        if (dims[d] == 0) return wok_infer_fail(infer, WOK_ERR_SHAPE, "%s is empty", wok_type_text(infer->graph, x));
    const wok_type *sizes = s.old ? NULL : infer->in[SIZES];
    if (!sizes && s.scales >= 0 && !infer->in[s.scales])
        return wok_infer_fail(infer, WOK_ERR_SHAPE, "neither scales nor sizes are given");
    WOK_TRY(sizes ? sizes_by_size(infer, &s, axes, count, dims) : sizes_by_scale(infer, &s, axes, count, dims));
    wok_infer_out(infer, 0, x->dtype, x->rank, dims);
    return WOK_OK;
}

wok_status wok_infer_upsample(wok_infer *infer) {
    return wok_infer_resize(infer);
}

/* ---- one axis ---------------------------------------------------------------------------------------------------- */

typedef struct axis_job {
    const settings *s;
    int64_t in, out;
    double scale, roi_start, roi_end;
    int taps;
} axis_job;

static double coordinate(const axis_job *a, int64_t i) {
    double x = (double)i, in = (double)a->in, width = a->scale * in; /* of the output, before rounding */
    switch (a->s->coordinates) {
    case ALIGN_CORNERS:
        return width == 1 ? 0 : x * (in - 1) / (width - 1);
    case ASYMMETRIC:
        return x / a->scale;
    case PYTORCH:
        return width == 1 ? -0.5 : (x + 0.5) / a->scale - 0.5;
    case SYMMETRIC:
        return in / 2 * (1 - (double)a->out / width) + (x + 0.5) / a->scale - 0.5;
    case CROP:
        x = width == 1 ? (a->roi_end - a->roi_start) * (in - 1) / 2
                       : x * (a->roi_end - a->roi_start) * (in - 1) / (width - 1);
        return x + a->roi_start * (in - 1);
    default:
        return (x + 0.5) / a->scale - 0.5;
    }
}

/* Keys' cubic. */
static double cubic(double x, double a) {
    x = fabs(x);
    if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

static double filter(const axis_job *a, double distance, double ratio) {
    const settings *s = a->s;
    bool left = distance < 0;
    if (s->mode == LINEAR) return fabs(distance) < 1 ? 1 - fabs(distance) : 0;
    if (s->mode == CUBIC) return cubic(distance, s->cubic);
    if (ratio == 1) return !left; /* on a pixel */
    bool right = s->rounding == PREFER_FLOOR  ? ratio > 0.5
                 : s->rounding == PREFER_CEIL ? ratio >= 0.5
                                              : s->rounding == CEIL;
    return left != right;
}

static double shrink(const axis_job *a) {
    return a->s->antialias && a->scale < 1 ? a->scale : 1;
}

/* Taps of every position: pixels first .. first + taps - 1 around the coordinate. */
static int tap_count(const axis_job *a) {
    double radius = a->s->mode == CUBIC ? 2 : 1;
    return 2 * (int)(radius - (a->s->antialias ? floor(-radius / shrink(a)) + radius : 0));
}

/* Weights of position i, and its first pixel. False: the coordinate lies outside and gives the extrapolation value. */
static bool weigh(const axis_job *a, int64_t i, double *weight, int64_t *first) {
    double x = coordinate(a, i), below = floor(x), ratio = x - below, sum = 0;
    if (a->s->coordinates == CROP && (x < 0 || x > (double)(a->in - 1))) return false;
    if (ratio == 0) ratio = 1, below -= 1; /* the pixel on the left is preferred */
    *first = (int64_t)below - a->taps / 2 + 1;
    for (int k = 0; k < a->taps; k++) {
        int64_t at = *first + k;
        double distance = ((double)at - below - ratio) * shrink(a);
        bool lost = a->s->exclude_outside && (at < 0 || at >= a->in);
        weight[k] = lost ? 0 : filter(a, distance, ratio);
        sum += weight[k];
    }
    if ((a->s->antialias || a->s->exclude_outside) && sum != 0)
        for (int k = 0; k < a->taps; k++) weight[k] /= sum;
    return true;
}

/* y[outer][out][inner] from x[outer][in][inner] */
static void resample(const axis_job *a, const double *x, double *y, int64_t outer, int64_t inner, double *weight) {
    for (int64_t i = 0; i < a->out; i++) {
        int64_t first = 0;
        bool inside = weigh(a, i, weight, &first);
        for (int64_t o = 0; o < outer; o++) {
            double *to = y + (o * a->out + i) * inner;
            for (int64_t c = 0; c < inner; c++) to[c] = inside ? 0 : a->s->extrapolation;
            for (int k = 0; k < a->taps && inside; k++) {
                int64_t at = first + k < 0 ? 0 : first + k >= a->in ? a->in - 1 : first + k;
                const double *from = x + (o * a->in + at) * inner;
                for (int64_t c = 0; c < inner; c++) to[c] += weight[k] == 0 ? 0 : weight[k] * from[c];
            }
        }
    }
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

/* Per axis: factor and region. */
static wok_status read_factors(const wok_call *call, const settings *s, double *scale, double *start, double *end) {
    const wok_tensor *x = call->in[0], *y = call->out[0];
    const wok_tensor *sizes = !s->old && call->in_count > SIZES ? call->in[SIZES] : NULL;
    int axes[WOK_MAX_RANK], count = read_axes(call->node, x->rank, axes);
    double given[2 * WOK_MAX_RANK];
    for (int d = 0; d < x->rank; d++) scale[d] = 1, start[d] = 0, end[d] = 1;
    if (sizes) {
        int64_t out[WOK_MAX_RANK], wanted[WOK_MAX_RANK];
        memcpy(out, y->dims, sizeof out);
        wok_call_ints(call, SIZES, wanted, WOK_MAX_RANK);
        for (int i = 0; i < count; i++) out[axes[i]] = wanted[i];
        scales_from_sizes(s, x->dims, axes, count, out, scale);
    } else if (s->scales >= 0) {
        wok_load_f64(call->in[s->scales]->dtype, call->in[s->scales]->data, 0, 1, count, given);
        for (int i = 0; i < count; i++) scale[axes[i]] = given[i];
    } else {
        const wok_attr *attr = wok_ir_attr(call->node, "scales", WOK_ATTR_FLOATS);
        for (int i = 0; i < count; i++) scale[axes[i]] = (double)attr->u.floats[i];
    }
    const wok_tensor *roi = s->coordinates == CROP && call->in_count > ROI ? call->in[ROI] : NULL;
    if (!roi || wok_tensor_count(roi) != 2 * count) return WOK_OK;
    wok_load_f64(roi->dtype, roi->data, 0, 1, 2 * count, given);
    for (int i = 0; i < count; i++) start[axes[i]] = given[i], end[axes[i]] = given[count + i];
    return WOK_OK;
}

typedef struct steps {
    int64_t largest; /* elements of the largest tensor on the way */
    int taps;
} steps;

static bool is_identity(const axis_job *a) {
    return a->in == a->out && fabs(a->scale - 1) <= 1e-9 && a->roi_start == 0 && a->roi_end == 1;
}

static axis_job axis_of(const settings *s, const wok_call *call, int d, double scale, double start, double end) {
    axis_job a = {.s = s,
                  .in = call->in[0]->dims[d],
                  .out = call->out[0]->dims[d],
                  .scale = scale,
                  .roi_start = start,
                  .roi_end = end};
    a.taps = tap_count(&a);
    return a;
}

/* Two buffers of the largest tensor on the way, and the weights of one position. Scales may not be there yet: the
 * filter's width is taken from the sizes, with room for their rounding. */
static steps measure(const settings *s, const wok_call *call) {
    const wok_tensor *x = call->in[0], *y = call->out[0];
    steps m = {wok_tensor_count(x), 4};
    int64_t elements = m.largest;
    for (int d = 0; d < x->rank; d++) {
        elements = x->dims[d] ? elements / x->dims[d] * y->dims[d] : 0;
        if (elements > m.largest) m.largest = elements;
        int64_t reach = s->antialias && y->dims[d] ? 4 * (x->dims[d] / y->dims[d] + 2) + 4 : 4;
        if (s->policy) reach = s->antialias ? 4 * (x->dims[d] + 2) + 4 : 4;
        if (reach > m.taps) m.taps = (int)(reach < INT32_MAX / 2 ? reach : INT32_MAX / 2);
    }
    return m;
}

static size_t resize_workspace(const wok_call *call) {
    settings s;
    if (!read_settings(call->node, &s)) return 0;
    steps m = measure(&s, call);
    return (size_t)(2 * m.largest + m.taps) * sizeof(double);
}

static wok_status resize_run(wok_call *call) {
    const wok_tensor *x = call->in[0], *y = call->out[0];
    double scale[WOK_MAX_RANK], start[WOK_MAX_RANK], end[WOK_MAX_RANK];
    settings s;
    if (!read_settings(call->node, &s))
        return wok_call_fail(call, WOK_ERR_UNSUPPORTED, "an attribute has an unknown value");
    if (!y->bytes) return WOK_OK;
    WOK_TRY(read_factors(call, &s, scale, start, end));
    steps m = measure(&s, call);
    double *from = call->workspace, *to = from + m.largest, *weight = to + m.largest;
    int64_t dims[WOK_MAX_RANK];
    memcpy(dims, x->dims, sizeof dims);
    wok_load_f64(x->dtype, x->data, 0, 1, wok_tensor_count(x), from);
    for (int d = 0; d < x->rank; d++) {
        axis_job a = axis_of(&s, call, d, scale[d], start[d], end[d]);
        if (is_identity(&a)) continue;
        if (a.taps > m.taps) return wok_call_fail(call, WOK_ERR_VALUE, "scale %g", a.scale);
        resample(&a, from, to, wok_dims_product(dims, 0, d), wok_dims_product(dims, d + 1, x->rank), weight);
        dims[d] = a.out;
        double *t = from;
        from = to;
        to = t;
    }
    wok_store_f64(y->dtype, y->data, 0, wok_tensor_count(y), from);
    return WOK_OK;
}

const wok_op_impl *const wok_impls_resize[] = {
    &(const wok_op_impl){.name = "ref", .accept = wok_accept_number, .workspace = resize_workspace, .run = resize_run},
    NULL,
};

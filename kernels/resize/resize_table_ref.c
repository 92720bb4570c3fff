/* resize_table_ref.c - which source positions an output position reads, and with which weights.
 *
 * In fixed point, positions and weights are computed in double as Pillow does and then rounded half away from zero.
 * In floating point, positions are computed in f32 as torch does: at column 600 that moves a tap by up to 3e-5,
 * which against a hard edge shows as 0.008 of 255, more than all other roundings together. */
#include "resize.h"

static double triangle(double x) {
    x = fabs(x);
    return x < 1.0 ? 1.0 - x : 0.0;
}

/* Keys, "Cubic convolution interpolation for digital image processing" (1981). */
static double cubic(double x, double a) {
    x = fabs(x);
    if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0;
    if (x < 2.0) return (((x - 5.0) * x + 8.0) * x - 4.0) * a;
    return 0.0;
}

static double weigh(wok_resize_filter filter, bool antialias, double x) {
    return filter == WOK_FILTER_BILINEAR ? triangle(x) : cubic(x, antialias ? -0.5 : -0.75);
}

static double reach(wok_resize_filter filter) { return filter == WOK_FILTER_BICUBIC ? 2.0 : 1.0; }

/* Widening of the filter. */
static double widen(bool antialias, double scale) { return antialias && scale > 1.0 ? scale : 1.0; }

int64_t wok_resize_stride(wok_resize_filter filter, bool antialias, int64_t in, int64_t out) {
    if (filter == WOK_FILTER_NEAREST) return 4;
    int64_t radius = (int64_t)ceil(reach(filter) * widen(antialias, (double)in / (double)out) + 0x1p-20);
    return wok_round_up(wok_min64(2 * radius + 1, in), 4);
}

/* Centre of output position i, in units of source positions. */
static double centre_of(wok_resize_arithmetic arithmetic, bool antialias, int64_t in, int64_t out, int64_t i) {
    if (arithmetic == WOK_RESIZE_FIXED) return ((double)i + 0.5) * ((double)in / (double)out);
    float scale = (float)in / (float)out, at = (float)i + 0.5f;
    return antialias ? (double)(scale * at) : (double)fmaf(scale, at, -0.5f) + 0.5;
}

/* The filter is cut at the border, and what is left is normalised. Returns taps. */
static int64_t taps_cut(double *w, int64_t *first, wok_resize_filter filter, double centre, double width, int64_t in) {
    double support = reach(filter) * width, sum = 0.0;
    int64_t lo = (int64_t)(centre - support + 0.5), hi = (int64_t)(centre + support + 0.5);
    lo = wok_max64(lo, 0);
    hi = wok_min64(hi, in);
    for (int64_t j = lo; j < hi; j++) {
        w[j - lo] = weigh(filter, true, ((double)j - centre + 0.5) * (1.0 / width));
        sum += w[j - lo];
    }
    for (int64_t j = lo; j < hi && sum != 0.0; j++) w[j - lo] /= sum;
    *first = lo;
    return hi - lo;
}

/* The border position stands in for all beyond it. Returns taps. */
static int64_t taps_repeat(double *w, int64_t *first, wok_resize_filter filter, double centre, int64_t in) {
    int64_t radius = (int64_t)reach(filter), middle = (int64_t)floor(centre - 0.5);
    int64_t lo = wok_max64(middle - radius + 1, 0), hi = wok_min64(middle + radius + 1, in);
    lo = wok_min64(lo, in - 1);
    hi = wok_max64(hi, lo + 1);
    for (int64_t j = lo; j < hi; j++) w[j - lo] = 0.0;
    for (int64_t j = middle - radius + 1; j <= middle + radius; j++)
        w[wok_min64(wok_max64(j, lo), hi - 1) - lo] += weigh(filter, false, (double)j + 0.5 - centre);
    *first = lo;
    return hi - lo;
}

/* Stores the weights of position i and zeros behind them. Last weights that are (or round to) zero are dropped;
 * first ones are not, because first[] must never fall: a cubic's zero crossing may lie on the border pixel. */
static void put(wok_resize_axis *axis, wok_resize_arithmetic arithmetic, int64_t i, int64_t first, const double *w,
                int64_t taps) {
    int32_t *fixed = (int32_t *)axis->weights + i * axis->stride;
    float *real = (float *)axis->weights + i * axis->stride;
    double tiny = arithmetic == WOK_RESIZE_FIXED ? 0.5 / (1 << WOK_RESIZE_BITS) : 0x1p-149;
    while (taps > 1 && fabs(w[taps - 1]) < tiny) taps--;
    axis->first[i] = (int32_t)first;
    axis->taps[i] = (int32_t)taps;
    for (int64_t j = 0; j < axis->stride; j++) {
        double v = j < taps ? w[j] : 0.0;
        if (arithmetic == WOK_RESIZE_FIXED) {
            fixed[j] = (int32_t)(v * (1 << WOK_RESIZE_BITS) + (v < 0.0 ? -0.5 : 0.5));
        } else {
            real[j] = (float)v;
        }
    }
}

/* Pillow adds the step up from position to position; so do we, or a tie would fall the other way. */
static void fill_nearest(wok_resize_axis *axis, wok_resize_arithmetic arithmetic, int64_t in, int64_t out,
                         int64_t begin) {
    const double one = 1.0;
    double step = (double)in / (double)out, at = step * 0.5;
    for (int64_t i = 0; i < begin + axis->count; i++, at += step)
        if (i >= begin) put(axis, arithmetic, i - begin, wok_min64((int64_t)at, in - 1), &one, 1);
}

void wok_resize_fill(wok_resize_axis *axis, wok_resize_filter filter, bool antialias, wok_resize_arithmetic arithmetic,
                     int64_t in, int64_t out, int64_t begin, double *scratch) {
    if (filter == WOK_FILTER_NEAREST) {
        fill_nearest(axis, arithmetic, in, out, begin);
        return;
    }
    double width = widen(antialias, arithmetic == WOK_RESIZE_FIXED ? (double)in / (double)out
                                                                   : (double)((float)in / (float)out));
    for (int64_t i = 0; i < axis->count; i++) {
        double centre = centre_of(arithmetic, antialias, in, out, begin + i);
        int64_t first = 0;
        int64_t taps = antialias ? taps_cut(scratch, &first, filter, centre, width, in)
                                 : taps_repeat(scratch, &first, filter, centre, in);
        put(axis, arithmetic, i, first, scratch, taps);
    }
}

/* range.c - from a histogram, the range that is worth 256 steps. Everything beyond it is clipped.
 *
 *   percentile   cuts an equal share of the elements at either end
 *   mse          the least mean square error, of clipped elements and of rounded ones (step squared / 12)
 *   entropy      the clip T of |x| for which the elements, clipped, and the same elements in 128 steps (256 where there is
 *                one sign only) are most alike as distributions (Kullback-Leibler divergence; Migacz 2017). The first
 *                bin does not count: zeros, of which Relu makes half of the elements, have their own code anyway
 *
 * A range always holds 0, which must have a code of its own (zero padding, Relu). */
#include "quant.h"

#include <math.h>

enum { BINS = WOK_QUANT_BINS };

static double centre(double lo, double hi, int bin) {
    return lo + (hi - lo) * (bin + 0.5) / BINS;
}

/* ---- percentile ------------------------------------------------------------------------------------------------------- */

static void percentile(const double *bins, double share, double *lo, double *hi) {
    double all = 0, below = 0, above = 0, from = *lo, width = (*hi - *lo) / BINS;
    for (int i = 0; i < BINS; i++) all += bins[i];
    double cut = all * (1 - share / 100);
    int first = 0, last = BINS - 1;
    while (first < BINS && below + bins[first] <= cut) below += bins[first++];
    while (last > first && above + bins[last] <= cut) above += bins[last--];
    double a = from + width * first, b = from + width * (last + 1);
    *lo = a < 0 ? a : 0;
    *hi = b > 0 ? b : 0;
}

/* ---- mean square error ---------------------------------------------------------------------------------------------------- */

static double square_error(const double *bins, double lo, double hi, double a, double b) {
    double step = (b - a) / 255, rounding = step * step / 12, sum = 0;
    for (int i = 0; i < BINS; i++) {
        if (bins[i] == 0) continue;
        double x = centre(lo, hi, i), beyond = x < a ? a - x : x > b ? x - b : 0;
        sum += bins[i] * (beyond > 0 ? beyond * beyond : rounding);
    }
    return sum;
}

static void least_square(const double *bins, double *lo, double *hi) {
    double least = (double)INFINITY, a = *lo, b = *hi;
    for (int i = 100; i >= 20; i -= 2)
        for (int k = 100; k >= 20; k -= 2) {
            if ((*lo == 0 && i < 100) || (*hi == 0 && k < 100)) continue;
            double e = square_error(bins, *lo, *hi, *lo * i / 100, *hi * k / 100);
            if (e >= least) continue;
            least = e;
            a = *lo * i / 100;
            b = *hi * k / 100;
        }
    *lo = a;
    *hi = b;
}

/* ---- entropy ------------------------------------------------------------------------------------------------------------- */

/* Divergence of the first `count` bins (what lies beyond counts for the last) from the same in `steps` steps. */
static double divergence(const double *bins, int count, int steps) {
    double beyond = 0, all = 0, sum = 0;
    for (int i = 0; i < BINS; i++) {
        all += bins[i];
        if (i >= count) beyond += bins[i];
    }
    if (all == beyond) return (double)INFINITY;
    for (int s = 0; s < steps; s++) {
        int from = (int)((int64_t)s * count / steps), to = (int)((int64_t)(s + 1) * count / steps), filled = 0;
        double step = 0;
        for (int i = from; i < to; i++) {
            step += bins[i];
            filled += bins[i] > 0 || (i == count - 1 && beyond > 0);
        }
        if (filled == 0) continue;
        double q = step / filled / (all - beyond);
        for (int i = from; i < to; i++) {
            double p = (bins[i] + (i == count - 1 ? beyond : 0)) / all;
            if (p > 0) sum += p * log(p / (q > 1e-12 ? q : 1e-12));
        }
    }
    return sum;
}

static void entropy(const double *bins, double *lo, double *hi) {
    double folded[BINS] = {0}, most = -*lo > *hi ? -*lo : *hi, least = (double)INFINITY, clip = most;
    for (int i = 0; i < BINS; i++) {
        int at = (int)(fabs(centre(*lo, *hi, i)) / most * BINS);
        folded[at < BINS ? at : BINS - 1] += bins[i];
    }
    folded[0] = 0;
    int steps = *lo == 0 || *hi == 0 ? 256 : 128;
    for (int count = BINS; count >= steps; count -= 16) {
        double d = divergence(folded, count, steps);
        if (d >= least) continue;
        least = d;
        clip = most * count / BINS;
    }
    if (*lo < -clip) *lo = -clip;
    if (*hi > clip) *hi = clip;
}

void wok_quant_clip(const wok_quant_options *o, const double *bins, double *lo, double *hi) {
    if (!(*hi > *lo)) return;
    if (o->method == WOK_QUANT_PERCENTILE) percentile(bins, o->percentile, lo, hi);
    if (o->method == WOK_QUANT_MSE) least_square(bins, lo, hi);
    if (o->method == WOK_QUANT_ENTROPY) entropy(bins, lo, hi);
}

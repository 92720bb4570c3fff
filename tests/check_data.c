/* check_data.c - random inputs, pathological ones included, and comparisons that NaN cannot slip through. */
#include "checkwok.h"

#include <float.h>
#include <math.h>
#include <string.h>

int64_t check_range(check *c, int64_t lo, int64_t hi) {
    return lo + (int64_t)(check_random(c) % (uint64_t)(hi - lo + 1));
}

const char *check_mode_name(check_mode mode) {
    static const char *const names[CHECK_MODES] = {"uniform",  "integer", "wide",     "cancel", "sparse",
                                                   "constant", "offset",  "denormal", "special"};
    return (unsigned)mode < CHECK_MODES ? names[mode] : "?";
}

static float unit(check *c) { return (float)((double)(check_random(c) >> 40) * 0x1p-23 - 1.0); } /* [-1, 1) */

static float value(check *c, check_mode mode, int64_t index) {
    static const float specials[] = {INFINITY, -INFINITY, NAN, 0.0f, -0.0f};
    switch (mode) {
    case CHECK_INTEGER: return (float)check_range(c, -8, 8);
    case CHECK_WIDE: return ldexpf(unit(c), (int)check_range(c, -16, 16));
    case CHECK_CANCEL: return index % 3 == 2 ? unit(c) : index % 2 ? -4096.0f - unit(c) : 4096.0f + unit(c);
    case CHECK_SPARSE: return check_range(c, 0, 9) ? (check_random(c) & 1 ? -0.0f : 0.0f) : unit(c);
    case CHECK_OFFSET: return 1000.0f + unit(c);
    case CHECK_DENORMAL: return unit(c) * FLT_MIN;
    case CHECK_SPECIAL: return check_range(c, 0, 30) ? unit(c) : specials[check_range(c, 0, 4)];
    default: return unit(c);
    }
}

void check_fill_f32(check *c, float *p, int64_t rows, int64_t cols, int64_t stride, check_mode mode) {
    float constant = unit(c);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            p[i * stride + j] = mode == CHECK_CONSTANT ? constant : value(c, mode, i + j);
}

void check_fill_bytes(check *c, void *p, int64_t rows, size_t row_bytes, size_t stride_bytes) {
    for (int64_t i = 0; i < rows; i++)
        for (size_t j = 0; j < row_bytes; j++)
            ((unsigned char *)p)[(size_t)i * stride_bytes + j] = (unsigned char)(check_random(c) >> 56);
}

static bool near(float got, double want, double bound) {
    const double most = (double)FLT_MAX * (1 - 0x1p-20);
    if (isnan(want)) return isnan(got);
    if (isnan(got) || isnan(bound)) return false;
    if ((double)got == want) return true; /* infinities too */
    if (fabs(want) + bound > most && fabs((double)got) > most && signbit(got) == signbit(want)) return true;
    if (isinf(want)) return false;
    return fabs((double)got - want) <= bound;
}

bool check_near(check *c, int64_t row, int64_t col, float got, double want, double bound) {
    if (near(got, want, bound)) return true;
    check_fail(c, "element [%lld][%lld] is %.9g, expected %.9g, off by %.3g, bound %.3g", (long long)row, (long long)col,
               (double)got, want, fabs((double)got - want), bound);
    return false;
}

void check_rows_f32(check *c, const float *got, int64_t got_stride, const float *want, int64_t want_stride, int64_t rows,
                    int64_t cols, double abs, double rel) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) {
            double w = (double)want[i * want_stride + j];
            if (!check_near(c, i, j, got[i * got_stride + j], w, isfinite(w) ? abs + rel * fabs(w) : abs)) return;
        }
}

void check_canonical_nan(float *y, int64_t rows, int64_t cols, int64_t stride) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            if (isnan(y[i * stride + j])) y[i * stride + j] = NAN;
}

void check_equal(check *c, const char *what, const void *got, size_t got_stride, const void *want, size_t want_stride,
                 int64_t rows, size_t row_bytes) {
    for (int64_t i = 0; i < rows; i++) {
        const unsigned char *g = (const unsigned char *)got + (size_t)i * got_stride;
        const unsigned char *w = (const unsigned char *)want + (size_t)i * want_stride;
        if (row_bytes == 0 || memcmp(g, w, row_bytes) == 0) continue;
        size_t j = 0;
        while (g[j] == w[j]) j++;
        check_fail(c, "%s: row %lld differs from byte %zu on: %02x, expected %02x", what, (long long)i, j, g[j], w[j]);
        return;
    }
}

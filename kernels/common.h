/* common.h - small helpers for kernel files (internal). */
#ifndef WOK_COMMON_H
#define WOK_COMMON_H

#include "isa_guard.h"
#include "parallel.h"

#include <math.h>
#include <string.h>

#define WOK_INLINE static inline __attribute__((always_inline))
#define WOK_RESTRICT __restrict

static inline int64_t wok_min64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t wok_max64(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t wok_ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline int64_t wok_round_up(int64_t a, int64_t b) { return wok_ceil_div(a, b) * b; }

/* NaN stays NaN: every comparison with it is false. */
static inline float wok_clampf(float x, float lo, float hi) { return x < lo ? lo : x > hi ? hi : x; }

#endif

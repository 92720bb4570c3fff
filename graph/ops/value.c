/* value.c - elements of any type as double or int64, and walking tensors that broadcast. */
#include "ops.h"

#include <math.h>
#include <string.h>

/* ---- half precision ---------------------------------------------------------------------------------------------- */

static double f16_to_f64(uint16_t h) {
    int exponent = h >> 10 & 31, mantissa = h & 0x3ff;
    double magnitude = exponent == 31 ? (mantissa ? (double)NAN : (double)INFINITY)
                       : exponent     ? ldexp(mantissa | 0x400, exponent - 25)
                                      : ldexp(mantissa, -24);
    return h & 0x8000 ? -magnitude : magnitude;
}

/* One rounding, nearest even; magnitudes from 65520 on give infinity. */
static uint16_t f64_to_f16(double x) {
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    double magnitude = fabs(x);
    if (isnan(x)) return (uint16_t)(sign | 0x7e00);
    if (magnitude >= 65520.0) return (uint16_t)(sign | 0x7c00);
    int exponent;
    frexp(magnitude, &exponent);
    if (exponent < -13) exponent = -13;                                    /* subnormal: units of 2^-24 */
    uint32_t units = (uint32_t)nearbyint(ldexp(magnitude, 11 - exponent)); /* 11 bits; 2048 carries into the exponent */
    if (units < 0x400) return (uint16_t)(sign | units);
    return (uint16_t)(sign | (((uint32_t)(exponent + 13) << 10) + units));
}

static double bf16_to_f64(uint16_t h) {
    uint32_t bits = (uint32_t)h << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Through f32 rounded to odd, so that the two roundings are one. */
static uint16_t f64_to_bf16(double x) {
    float f = (float)x;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if (isnan(x)) return (uint16_t)(bits >> 16 | 0x40);
    if (isfinite(f) && (double)f != x && !(bits & 1)) bits += fabs((double)f) < fabs(x) ? 1u : -1u;
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* ---- loads and stores -------------------------------------------------------------------------------------------- */

#define EACH_INTEGER(X)                                                                                                \
    X(WOK_U8, uint8_t)                                                                                                 \
    X(WOK_I8, int8_t)                                                                                                  \
    X(WOK_U16, uint16_t)                                                                                               \
    X(WOK_I16, int16_t)                                                                                                \
    X(WOK_I32, int32_t)                                                                                                \
    X(WOK_U32, uint32_t)                                                                                               \
    X(WOK_I64, int64_t)                                                                                                \
    X(WOK_U64, uint64_t)

/* `value` is what an element `e` of this type is worth. Constants of a file stand at any alignment: memcpy. */
#define LOAD_CASE(dtype, type, value)                                                                                  \
    case dtype: {                                                                                                      \
        const unsigned char *p = (const unsigned char *)base + index * (int64_t)sizeof(type);                          \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            type e;                                                                                                    \
            memcpy(&e, p + i * step * (int64_t)sizeof e, sizeof e);                                                    \
            out[i] = value;                                                                                            \
        }                                                                                                              \
        return;                                                                                                        \
    }
#define STORE_CASE(dtype, type, element)                                                                               \
    case dtype: {                                                                                                      \
        type *p = (type *)base + index;                                                                                \
        for (int64_t i = 0; i < n; i++) p[i] = element;                                                                \
        return;                                                                                                        \
    }

void wok_load_f64(wok_dtype dtype, const void *base, int64_t index, int64_t step, int64_t n, double *out) {
    switch (dtype) {
#define X(dtype, type) LOAD_CASE(dtype, type, (double)e)
        X(WOK_F32, float)
        X(WOK_F64, double)
        EACH_INTEGER(X)
#undef X
        LOAD_CASE(WOK_BOOL, uint8_t, e != 0)
        LOAD_CASE(WOK_F16, uint16_t, f16_to_f64(e))
        LOAD_CASE(WOK_BF16, uint16_t, bf16_to_f64(e))
    default:
        return;
    }
}

int64_t wok_truncate(double x) {
    return x >= -0x1p63 && x < 0x1p63 ? (int64_t)x : INT64_MIN;
}
static uint64_t truncate_u64(double x) {
    return x >= 0x1p63 && x < 0x1p64 ? (uint64_t)x : (uint64_t)wok_truncate(x);
}

void wok_store_f64(wok_dtype dtype, void *base, int64_t index, int64_t n, const double *values) {
    switch (dtype) {
        STORE_CASE(WOK_F32, float, (float)values[i])
        STORE_CASE(WOK_F64, double, values[i])
        STORE_CASE(WOK_U8, uint8_t, (uint8_t)wok_truncate(values[i]))
        STORE_CASE(WOK_I8, int8_t, (int8_t)wok_truncate(values[i]))
        STORE_CASE(WOK_U16, uint16_t, (uint16_t)wok_truncate(values[i]))
        STORE_CASE(WOK_I16, int16_t, (int16_t)wok_truncate(values[i]))
        STORE_CASE(WOK_U32, uint32_t, (uint32_t)wok_truncate(values[i]))
        STORE_CASE(WOK_I32, int32_t, (int32_t)wok_truncate(values[i]))
        STORE_CASE(WOK_U64, uint64_t, truncate_u64(values[i]))
        STORE_CASE(WOK_I64, int64_t, wok_truncate(values[i]))
        STORE_CASE(WOK_BOOL, uint8_t, values[i] != 0)
        STORE_CASE(WOK_F16, uint16_t, f64_to_f16(values[i]))
        STORE_CASE(WOK_BF16, uint16_t, f64_to_bf16(values[i]))
    default:
        return;
    }
}

void wok_load_i64(wok_dtype dtype, const void *base, int64_t index, int64_t step, int64_t n, int64_t *out) {
    switch (dtype) {
#define X(dtype, type) LOAD_CASE(dtype, type, (int64_t)e)
        EACH_INTEGER(X)
#undef X
        LOAD_CASE(WOK_BOOL, uint8_t, e != 0)
    default:
        return;
    }
}

void wok_store_i64(wok_dtype dtype, void *base, int64_t index, int64_t n, const int64_t *values) {
    switch (dtype) {
#define X(dtype, type) STORE_CASE(dtype, type, (type)values[i])
        EACH_INTEGER(X)
#undef X
        STORE_CASE(WOK_BOOL, uint8_t, values[i] != 0)
    default:
        return;
    }
}

bool wok_dtype_is_float(wok_dtype dtype) {
    return dtype == WOK_F32 || dtype == WOK_F64 || dtype == WOK_F16 || dtype == WOK_BF16;
}

bool wok_dtype_is_int(wok_dtype dtype) {
    return (dtype >= WOK_U8 && dtype <= WOK_I64) || dtype == WOK_U32 || dtype == WOK_U64;
}

double wok_round_even(double x) {
    double below = floor(x), rest = x - below;
    bool up = rest > 0.5 || (rest == 0.5 && fmod(below, 2) != 0);
    return copysign(up ? below + 1 : below, x);
}

int64_t wok_saturate(double x, wok_dtype dtype) {
    static const struct {
        double lo, hi;
    } range[] = {[WOK_U8] = {0, UINT8_MAX},          [WOK_I8] = {INT8_MIN, INT8_MAX},    [WOK_U16] = {0, UINT16_MAX},
                 [WOK_I16] = {INT16_MIN, INT16_MAX}, [WOK_I32] = {INT32_MIN, INT32_MAX}, [WOK_U32] = {0, UINT32_MAX}};
    if (isnan(x) || dtype > WOK_U32) return 0;
    return (int64_t)(x < range[dtype].lo ? range[dtype].lo : x > range[dtype].hi ? range[dtype].hi : x);
}

void wok_convert(wok_dtype from, const void *x, wok_dtype to, void *y, int64_t n) {
    enum { CHUNK = 256 };
    if (from == to) {
        memcpy(y, x, (size_t)n * wok_dtype_size(to));
        return;
    }
    bool integers = !wok_dtype_is_float(from) && !wok_dtype_is_float(to);
    for (int64_t i = 0; i < n; i += CHUNK) {
        int64_t count = n - i < CHUNK ? n - i : CHUNK;
        if (integers) {
            int64_t chunk[CHUNK];
            wok_load_i64(from, x, i, 1, count, chunk);
            wok_store_i64(to, y, i, count, chunk);
        } else {
            double chunk[CHUNK];
            wok_load_f64(from, x, i, 1, count, chunk);
            wok_store_f64(to, y, i, count, chunk);
        }
    }
}

int wok_call_ints(const wok_call *call, int i, int64_t *numbers, int max) {
    const wok_tensor *t = i < call->in_count ? call->in[i] : NULL;
    if (!t) return -1;
    int64_t count = wok_tensor_count(t);
    if (count > max || wok_dtype_is_float(t->dtype)) return -1;
    wok_load_i64(t->dtype, t->data, 0, 1, count, numbers);
    return (int)count;
}

double wok_call_float(const wok_call *call, int i, double fallback) {
    const wok_tensor *t = i < call->in_count ? call->in[i] : NULL;
    return t && wok_tensor_count(t) > 0 ? wok_get_f64(t->dtype, t->data, 0) : fallback;
}

int64_t wok_call_int(const wok_call *call, int i, int64_t fallback) {
    const wok_tensor *t = i < call->in_count ? call->in[i] : NULL;
    return t && wok_tensor_count(t) > 0 ? wok_get_i64(t->dtype, t->data, 0) : fallback;
}

/* ---- broadcasting ------------------------------------------------------------------------------------------------ */

/* Dimension d of the output goes into the last one of the walk if no input notices. */
static bool join(wok_walk *walk, int64_t dim, const int64_t *step) {
    int last = walk->rank - 1;
    if (last < 0) return false;
    for (int i = 0; i < walk->inputs; i++)
        if (walk->step[i][last] != step[i] * dim) return false;
    walk->dims[last] *= dim;
    for (int i = 0; i < walk->inputs; i++) walk->step[i][last] = step[i];
    return true;
}

void wok_walk_steps(wok_walk *walk, const int64_t *dims, int rank, const int64_t *const *step, int inputs) {
    walk->rank = 0;
    walk->inputs = inputs;
    for (int d = 0; d < rank; d++) {
        if (dims[d] == 1) continue;
        int64_t steps[WOK_WALK_MAX];
        for (int i = 0; i < inputs; i++) steps[i] = step[i][d];
        if (join(walk, dims[d], steps)) continue;
        walk->dims[walk->rank] = dims[d];
        for (int i = 0; i < inputs; i++) walk->step[i][walk->rank] = steps[i];
        walk->rank++;
    }
    if (walk->rank == 0) {
        walk->dims[walk->rank++] = 1;
        for (int i = 0; i < inputs; i++) walk->step[i][0] = 1;
    }
    walk->n = walk->dims[walk->rank - 1];
    walk->rows = wok_dims_product(walk->dims, 0, walk->rank - 1);
}

void wok_walk_init(wok_walk *walk, const int64_t *dims, int rank, const wok_tensor *const *in, int inputs) {
    int64_t step[WOK_WALK_MAX][WOK_MAX_RANK];
    const int64_t *rows[WOK_WALK_MAX];
    for (int i = 0; i < inputs; i++) {
        int64_t size = 1;
        for (int d = rank - 1, k = in[i]->rank - 1; d >= 0; d--, k--) {
            int64_t dim = k >= 0 ? in[i]->dims[k] : 1;
            step[i][d] = dim == 1 ? 0 : size;
            size *= dim;
        }
        rows[i] = step[i];
    }
    wok_walk_steps(walk, dims, rank, rows, inputs);
}

void wok_walk_offsets(const wok_walk *walk, int64_t row, int64_t *offset) {
    for (int i = 0; i < walk->inputs; i++) offset[i] = 0;
    for (int d = walk->rank - 2; d >= 0; d--) {
        int64_t at = row % walk->dims[d];
        row /= walk->dims[d];
        for (int i = 0; i < walk->inputs; i++) offset[i] += at * walk->step[i][d];
    }
}

typedef struct walk_job {
    const wok_walk *walk;
    wok_walk_fn fn;
    void *arg;
    int64_t tasks, pieces, piece; /* a row is cut in `pieces` of `piece` elements */
} walk_job;

static void walk_task(void *arg, int64_t task, int worker) {
    const walk_job *job = arg;
    const wok_walk *walk = job->walk;
    (void)worker;
    int64_t begin, end;
    wok_parallel_range(walk->rows * job->pieces, 1, task, job->tasks, &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        int64_t row = t / job->pieces, first = t % job->pieces * job->piece, offset[WOK_WALK_MAX];
        int64_t n = walk->n - first < job->piece ? walk->n - first : job->piece;
        wok_walk_offsets(walk, row, offset);
        for (int i = 0; i < walk->inputs; i++) offset[i] += first * walk->step[i][walk->rank - 1];
        job->fn(job->arg, walk, offset, row * walk->n + first, n);
    }
}

void wok_walk_run(const wok_walk *walk, wok_walk_fn fn, void *arg, const wok_parallel *parallel) {
    enum { GRAIN = 1 << 14 }; /* elements of a task */
    if (walk->n == 0 || walk->rows == 0) return;
    walk_job job = {.walk = walk, .fn = fn, .arg = arg, .piece = GRAIN};
    job.pieces = (walk->n + GRAIN - 1) / GRAIN;
    int64_t tasks = (walk->rows * walk->n + GRAIN - 1) / GRAIN, most = 4 * (int64_t)wok_parallel_threads(parallel);
    job.tasks = tasks < most ? tasks : most;
    wok_parallel_for(parallel, walk_task, &job, job.tasks);
}

#define COPY_CASE(type)                                                                                                \
    case sizeof(type): {                                                                                               \
        const type *from = x;                                                                                          \
        type *to = y;                                                                                                  \
        for (int64_t i = 0; i < n; i++) to[i] = from[i * step];                                                        \
        return;                                                                                                        \
    }

void wok_copy_step(void *y, const void *x, int64_t step, int64_t n, size_t size) {
    if (step == 1) {
        memcpy(y, x, (size_t)n * size);
        return;
    }
    switch (size) {
        COPY_CASE(uint8_t)
        COPY_CASE(uint16_t)
        COPY_CASE(uint32_t)
        COPY_CASE(uint64_t)
    }
}

/* ---- accept ------------------------------------------------------------------------------------------------------ */

const char *wok_accept_f32(const wok_prepare *prepare) {
    return prepare->in[0] && prepare->in[0]->dtype == WOK_F32 ? NULL : "computes f32 only";
}

const char *wok_accept_number(const wok_prepare *prepare) {
    return !prepare->in[0] || wok_dtype_size(prepare->in[0]->dtype) ? NULL
                                                                    : "the element type is not one to compute with";
}

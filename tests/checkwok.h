/* checkwok.h - how check_FAMILY.c files test and bench the registered variants of a family.
 *
 * The harness takes the families from wok_families.def. For a family NAME it calls, once per registered variant that this
 * CPU can run (reference included),
 *     void check_NAME(check *c, const wok_kernel *kernel, const wok_kernel *reference);
 *     void bench_NAME(check *c, const wok_kernel *kernel, const wok_kernel *reference);   with --bench
 * which tests/check_NAME.c must define: checkwok does not link without them. A check file looks like this:
 *
 *     struct scale_case { const wok_scale_kernel *kernel; int64_t rows, cols, stride; };
 *
 *     static void scale_case(check *c, const void *arg) {
 *         const struct scale_case *s = arg;
 *         size_t row = s->cols * sizeof(float), stride = s->stride * sizeof(float);
 *         float *x = check_input(c, s->rows, row, stride), *y = check_output(c, s->rows, row, stride);
 *         check_fill_f32(c, x, s->rows, s->cols, s->stride, CHECK_UNIFORM);
 *         check_seal(c);                                    // inputs are complete: from here on nobody may change them
 *         s->kernel->run(&(wok_scale_args){...}, check_parallel(c));
 *         for (int64_t i = 0; i < s->rows; i++)
 *             for (int64_t j = 0; j < s->cols; j++)
 *                 check_near(c, i, j, y[i * s->stride + j], 2.0 * x[i * s->stride + j], 1e-7);
 *     }
 *
 *     void check_scale(check *c, const wok_kernel *kernel, const wok_kernel *reference) {
 *         for (int64_t cols = 1; cols <= 33; cols++)        // 1 .. 2 * tile + 1
 *             check_run(c, scale_case, &(struct scale_case){(const void *)kernel, 3, cols, cols + 5}, "cols=%d", (int)cols);
 *     }
 *
 * check_run() runs the case several times with the same random numbers: buffers end-aligned against a guard page and one
 * thread; start-aligned and tasks in a shuffled order; misaligned and on real threads. In every pass the case compares
 * with its oracle, and the harness checks what no author should have to remember: nothing outside the rows was touched
 * (guard pages, canaries in the row gaps), sealed inputs are unchanged, the floating-point control word is unchanged, no
 * signal, and outputs have the same bits in all passes (variants flagged WOK_KERNEL_NONDETERMINISTIC excepted).
 *
 * The text given to check_run() names the case: it must be unique in the family, it seeds the random numbers together
 * with --seed, and `--case "TEXT"` runs it alone. Draw inputs from the kernel's declared domain only.
 * Everything allocated through `c` is freed when the case (or the bench function) ends, however it ends. */
#ifndef CHECKWOK_H
#define CHECKWOK_H

#include "wok_kernels.h"

typedef struct check check;
typedef void (*check_case_fn)(check *c, const void *arg);

#define WOK_FAMILY(name, text)                                                                                             \
    void check_##name(check *c, const wok_kernel *kernel, const wok_kernel *reference);                                    \
    void bench_##name(check *c, const wok_kernel *kernel, const wok_kernel *reference);
#include "wok_families.def"
#undef WOK_FAMILY

/* ---- cases ------------------------------------------------------------------------------------------------------ */

void check_run(check *c, check_case_fn fn, const void *arg, const char *format, ...) WOK_PRINTF(4, 5);

/* Rows of memory whose first byte is returned; stride_bytes >= row_bytes. Never NULL. With rows or row_bytes 0 the
 * address is valid but not a byte behind it is. */
void *check_input(check *c, int64_t rows, size_t row_bytes, size_t stride_bytes);
void *check_output(check *c, int64_t rows, size_t row_bytes, size_t stride_bytes);
/* Exactly `bytes` bytes aligned to 64 (packed weights, workspaces); may be written, is not compared between passes. */
void *check_workspace(check *c, size_t bytes);
/* Memory of the check itself, zeroed: oracles and copies. */
void *check_scratch(check *c, size_t bytes);
/* Ends the filling of inputs; required once per case. Later buffers are allowed, later changes to inputs are errors. */
void check_seal(check *c);
/* The executor of this pass; NULL means one thread. */
const wok_parallel *check_parallel(const check *c);

/* ---- random numbers: a function of --seed, family and case text --------------------------------------------------- */

uint64_t check_random(check *c);
int64_t check_range(check *c, int64_t lo, int64_t hi); /* lo .. hi inclusive */

typedef enum check_mode {
    CHECK_UNIFORM,   /* [-1, 1) */
    CHECK_INTEGER,   /* whole numbers -8 .. 8: sums are exact */
    CHECK_WIDE,      /* +-2^-16 .. 2^16 */
    CHECK_CANCEL,    /* large values of alternating sign and small ones between them */
    CHECK_SPARSE,    /* mostly +0 and -0 */
    CHECK_CONSTANT,  /* one value everywhere */
    CHECK_OFFSET,    /* 1000 + [-1, 1): a variance that is small beside the mean */
    CHECK_DENORMAL,  /* below FLT_MIN */
    CHECK_SPECIAL,   /* uniform with infinities and NaN strewn in */
    CHECK_MODES,
    CHECK_FINITE_MODES = CHECK_DENORMAL /* modes below this one are ordinary numbers */
} check_mode;
const char *check_mode_name(check_mode mode);
/* rows x cols values, rows `stride` ELEMENTS apart. */
void check_fill_f32(check *c, float *p, int64_t rows, int64_t cols, int64_t stride, check_mode mode);
void check_fill_bytes(check *c, void *p, int64_t rows, size_t row_bytes, size_t stride_bytes);

/* ---- comparisons: the first failure of a case is printed, with what reproduces it ---------------------------------- */

/* |got - want| <= bound. NaN equals NaN only, an infinity the same infinity only; beyond FLT_MAX both mean infinity. */
bool check_near(check *c, int64_t row, int64_t col, float got, double want, double bound);
/* All of rows x cols against `want`, bound = abs + rel * |want|; strides in elements. */
void check_rows_f32(check *c, const float *got, int64_t got_stride, const float *want, int64_t want_stride, int64_t rows,
                    int64_t cols, double abs, double rel);
/* Every NaN becomes the same one. Its sign and payload are no part of the promise of equal bits: IEEE 754 leaves open whose
 * NaN the sum of two hands on, and compilers swap operands. */
void check_canonical_nan(float *y, int64_t rows, int64_t cols, int64_t stride);
/* Equal bytes. `what` names the promise ("rows do not depend on the batch"). */
void check_equal(check *c, const char *what, const void *got, size_t got_stride, const void *want, size_t want_stride,
                 int64_t rows, size_t row_bytes);
/* Any other broken promise. */
void check_fail(check *c, const char *format, ...) WOK_PRINTF(2, 3);
/* Does the variant accept the problem? A reference that refuses a valid problem is a failure. */
bool check_accepts(check *c, const wok_kernel *kernel, const void *problem);

/* ---- benchmarks ------------------------------------------------------------------------------------------------- */

/* Times fn(arg), CPU time of one thread, best of many; `work` units of `unit` ("GMAC", "GB") per call, in 1e9. `gate`: a variant that
 * is not 1.3 times the next lower instruction set fails (GEMM and convolutions). The text names the shape. */
void check_bench(check *c, void (*fn)(void *arg), void *arg, double work, const char *unit, bool gate, const char *format,
                 ...) WOK_PRINTF(7, 8);

/* ---- for checkwok's own files ----------------------------------------------------------------------------------- */

typedef void (*check_variant_fn)(check *c, const wok_kernel *kernel, const wok_kernel *reference);
/* Self-test: failures are not printed but searched for a text that says what is broken. */
typedef struct check_capture {
    const char *wanted;
    bool matched;
    char message[512]; /* the first that matches, or else the first of all */
} check_capture;
/* Runs the cases of one variant; the number of failed cases. `capture` is NULL outside the self-test. */
int check_variant(check *c, const char *family, check_variant_fn fn, const wok_kernel *kernel,
                  const wok_kernel *reference, check_capture *capture);
/* badkernels.c: every deliberately broken kernel must be caught; the number that was not. */
int check_selftest(check *c);

/* check_exec.c: executors that put tasks in odd orders and on real threads, and the signal trap that both share. */
extern const wok_parallel check_shuffled, check_threaded;
typedef struct check_signal {
    int number;
    const void *address;
} check_signal;
void check_trap_install(void);
/* Calls fn(arg). False if a signal ended it, on this thread or on one of check_threaded's. */
bool check_trap(void (*fn)(void *arg), void *arg, check_signal *signal);
/* Rounding, flush-to-zero and exception masks of this thread, without the sticky flags. */
uint64_t check_fp_control(void);
void check_set_fp_control(uint64_t control);

/* check_bench.c */
void check_bench_reset(void);
/* Prints one family's table; the number of gate failures. */
int check_bench_report(const char *family);
void check_bench_record(const wok_kernel *kernel, const char *text, double seconds, double work, const char *unit,
                        bool gate);

#endif

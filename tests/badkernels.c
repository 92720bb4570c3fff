/* badkernels.c - `checkwok --selftest`: kernels that are broken on purpose, one promise each. All must be caught, and for
 * the reason they are broken; the sound kernels beside them must pass, or catching proves nothing.
 *
 * The float ones are gemm_f32 kernels that wrap the reference and are judged by the real check_gemm_f32. The saturating
 * one needs integers: a little dot-product family that lives here only. */
#include "checkwok.h"
#include "gemm_f32/gemm_f32.h"

#include <stdatomic.h>
#include <stdio.h>


static void sound_run(const wok_gemm_f32_args *g, const wok_parallel *p) { wok_gemm_f32__ref.run(g, p); }

/* volatile: the broken accesses must really happen. */
static volatile unsigned char sink;

static void over_read(const wok_gemm_f32_args *g, const wok_parallel *p) {
    if (g->m > 0) sink = ((const volatile unsigned char *)(g->a + (g->m - 1) * g->lda + g->k))[0];
    sound_run(g, p);
}

static void under_read(const wok_gemm_f32_args *g, const wok_parallel *p) {
    sink = ((const volatile unsigned char *)g->a)[-1];
    sound_run(g, p);
}

static void gap_write(const wok_gemm_f32_args *g, const wok_parallel *p) {
    sound_run(g, p);
    if (g->m > 1 && g->ldc > g->n) g->c[g->n] = 0;
}

/* Reads a row gap of A as if it were zeros: harmless there, wrong where something else stands in it. */
static void gap_read(const wok_gemm_f32_args *g, const wok_parallel *p) {
    sound_run(g, p);
    if (g->m > 1 && g->lda > g->k) g->c[0] += 0.0f * g->a[g->k];
}

static void wrong_last_row(const wok_gemm_f32_args *g, const wok_parallel *p) {
    wok_gemm_f32_args fewer = *g;
    sound_run(g, p);
    if (g->m < 2) return;
    fewer.m = 1;
    fewer.a += (g->m - 2) * g->lda;
    fewer.c += (g->m - 1) * g->ldc;
    if (g->epilogue.residual != g->c) sound_run(&fewer, NULL);
}

/* Drops the last k of an odd K: the packed panels are K lines apart, so only single-panel products can be cut short. */
static void wrong_odd_k(const wok_gemm_f32_args *g, const wok_parallel *p) {
    wok_gemm_f32_args shorter = *g;
    if (g->k % 2 && g->n <= WOK_GEMM_F32_PANEL) shorter.k--;
    sound_run(&shorter, p);
}

static void unrepeatable(const wok_gemm_f32_args *g, const wok_parallel *p) {
    static unsigned calls;
    sound_run(g, p);
    if (g->m > 0 && ++calls % 3 == 0) g->c[0] = nextafterf(g->c[0], 0);
}

static void thread_dependent(const wok_gemm_f32_args *g, const wok_parallel *p) {
    sound_run(g, p);
    if (g->m > 0 && wok_parallel_threads(p) > 1) g->c[0] = nextafterf(g->c[0], 0);
}

static void changed_control(const wok_gemm_f32_args *g, const wok_parallel *p) {
    sound_run(g, p);
#if defined(__x86_64__)
    check_set_fp_control(check_fp_control() | 0x8000); /* flush to zero */
#else
    check_set_fp_control(check_fp_control() | 1u << 24);
#endif
}

static void assumed_alignment(const wok_gemm_f32_args *g, const wok_parallel *p) {
#if defined(__x86_64__)
    if (g->m * g->k >= 4) __asm__ volatile("movaps (%0), %%xmm0" : : "r"(g->a) : "xmm0", "memory");
    sound_run(g, p);
#else
    wok_gemm_f32_args rounded = *g;
    rounded.a = (const float *)((uintptr_t)g->a & ~(uintptr_t)15);
    sound_run(&rounded, p);
#endif
}

static void hidden_nan(const wok_gemm_f32_args *g, const wok_parallel *p) {
    sound_run(g, p);
    if (g->m > 0) g->c[(g->m - 1) * g->ldc + g->n - 1] = NAN;
}

static void lost_nan(const wok_gemm_f32_args *g, const wok_parallel *p) {
    sound_run(g, p);
    for (int64_t i = 0; i < g->m; i++)
        for (int64_t j = 0; j < g->n; j++)
            if (isnan(g->c[i * g->ldc + j])) g->c[i * g->ldc + j] = 0;
}

static void illegal_instruction(const wok_gemm_f32_args *g, const wok_parallel *p) {
    sound_run(g, p);
#if defined(__x86_64__)
    __asm__ volatile("ud2");
#elif defined(__aarch64__)
    __asm__ volatile("udf #0");
#else
    raise(SIGILL);
#endif
}

static void crash_task(void *arg, int64_t task, int worker) {
    (void)worker;
    if (task == 5) *(volatile char *)arg = 1;
}

/* On a worker thread, where a longjmp to the main thread would be undefined. */
static void crash_on_worker(const wok_gemm_f32_args *g, const wok_parallel *p) {
    sound_run(g, p);
    if (wok_parallel_threads(p) > 1) wok_parallel_for(p, crash_task, (void *)(uintptr_t)8, 64);
}

static void changed_input(const wok_gemm_f32_args *g, const wok_parallel *p) {
    sound_run(g, p);
    if (g->m > 0 && g->k > 0) ((float *)(uintptr_t)g->a)[0] += 1.0f;
}

static void unwritten_output(const wok_gemm_f32_args *g, const wok_parallel *p) {
    wok_gemm_f32_args fewer = *g;
    fewer.m = g->m > 0 ? g->m - 1 : 0;
    sound_run(&fewer, p);
}

static void batch_dependent(const wok_gemm_f32_args *g, const wok_parallel *p) {
    sound_run(g, p);
    for (int64_t i = 0; g->m == 1 && i < g->n; i++) g->c[i] = nextafterf(g->c[i], 0);
}

#define BAD(name, caught_as)                                                                                               \
    {                                                                                                                      \
        {.base = {#name, WOK_ISA_ref, 0, wok_gemm_f32_accept}, .layout = WOK_GEMM_F32_LAYOUT, .mr = 6, .nr = 16,           \
         .packed_bytes = wok_gemm_f32_packed_bytes, .pack = wok_gemm_f32_pack, .run = name},                               \
            caught_as                                                                                                      \
    }
static const struct {
    wok_gemm_f32_kernel kernel;
    const char *caught_as; /* must occur in the message; NULL: must pass */
} kernels[] = {
    BAD(sound_run, NULL),
    BAD(over_read, "guard page of buffer 0"),
    BAD(under_read, "guard page of buffer 0"),
    BAD(gap_write, "write outside the rows"),
    BAD(gap_read, "element"),
    BAD(wrong_last_row, "element"),
    BAD(wrong_odd_k, "element"),
    BAD(unrepeatable, "bits"),
    BAD(thread_dependent, "bits"),
    BAD(changed_control, "control word"),
    BAD(assumed_alignment, "SIGSEGV"),
    BAD(hidden_nan, "element"),
    BAD(lost_nan, "element"),
    BAD(illegal_instruction, "SIGILL"),
    BAD(crash_on_worker, "SIGSEGV"),
    BAD(changed_input, "changed its input"),
    BAD(unwritten_output, "element"),
    BAD(batch_dependent, "alone and in a batch"),
};

/* ---- a little integer family: y[i] = sum_k a[i][k] * b[i][k], u8 x s8 in 32 bits ------------------------------------- */

typedef struct dot_kernel {
    wok_kernel base;
    void (*run)(const unsigned char *a, const signed char *b, int32_t *y, int64_t rows, int64_t k);
} dot_kernel;

static const char *dot_accept(const void *problem) {
    (void)problem;
    return NULL;
}

static void dot_sound(const unsigned char *a, const signed char *b, int32_t *y, int64_t rows, int64_t k) {
    for (int64_t i = 0; i < rows; i++) {
        y[i] = 0;
        for (int64_t j = 0; j < k; j++) y[i] += a[i * k + j] * b[i * k + j];
    }
}

/* What vpmaddubsw does: pairs are added in 16 bits, saturating. Ordinary values never get there. */
static void dot_saturating(const unsigned char *a, const signed char *b, int32_t *y, int64_t rows, int64_t k) {
    for (int64_t i = 0; i < rows; i++) {
        y[i] = 0;
        for (int64_t j = 0; j < k; j += 2) {
            int32_t pair = a[i * k + j] * b[i * k + j] + (j + 1 < k ? a[i * k + j + 1] * b[i * k + j + 1] : 0);
            y[i] += pair > INT16_MAX ? INT16_MAX : pair < INT16_MIN ? INT16_MIN : pair;
        }
    }
}

static const dot_kernel dot_kernels[] = {
    {{"dot_sound", WOK_ISA_ref, WOK_KERNEL_REFERENCE, dot_accept}, dot_sound},
    {{"dot_saturating", WOK_ISA_ref, 0, dot_accept}, dot_saturating},
};

struct dot_case {
    const dot_kernel *kernel;
    int64_t rows, k;
    bool extreme;
};

static void dot_case(check *c, const void *arg) {
    const struct dot_case *d = arg;
    size_t row = (size_t)d->k;
    unsigned char *a = check_input(c, d->rows, row, row);
    signed char *b = check_input(c, d->rows, row, row);
    int32_t *y = check_output(c, 1, (size_t)d->rows * 4, (size_t)d->rows * 4), *want = check_scratch(c, (size_t)d->rows * 4);
    for (int64_t i = 0; i < d->rows * d->k; i++) {
        a[i] = d->extreme ? (check_random(c) & 1 ? 255 : 0) : (unsigned char)check_range(c, 0, 90);
        b[i] = d->extreme ? (check_random(c) & 1 ? 127 : -128) : (signed char)check_range(c, -90, 90);
    }
    check_seal(c);
    d->kernel->run(a, b, y, d->rows, d->k);
    dot_sound(a, b, want, d->rows, d->k);
    check_equal(c, "sums in 32 bits", y, 4, want, 4, d->rows, 4);
}

static void check_dot(check *c, const wok_kernel *base, const wok_kernel *reference) {
    (void)reference;
    for (int64_t k = 0; k <= 17; k++)
        for (int extreme = 0; extreme < 2; extreme++)
            check_run(c, dot_case, &(struct dot_case){(const void *)base, 5, k, extreme}, "k=%d extreme=%d", (int)k, extreme);
}

/* ---- the judge --------------------------------------------------------------------------------------------------- */

static int judge(check *c, const char *family, check_variant_fn fn, const wok_kernel *kernel, const char *caught_as) {
    check_capture capture = {.wanted = caught_as};
    int failures = check_variant(c, family, fn, kernel, &wok_gemm_f32__ref.base, &capture);
    bool right = caught_as ? failures > 0 && capture.matched : failures == 0;
    printf("%-4s %-20s %s\n", right ? "ok" : "FAIL", kernel->name, failures ? capture.message : "passes");
    if (!right) printf("     expected: %s\n", caught_as ? caught_as : "no failure");
    return !right;
}

int check_selftest(check *c) {
    int missed = 0;
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        missed += judge(c, "gemm_f32", check_gemm_f32, &kernels[i].kernel.base, kernels[i].caught_as);
    missed += judge(c, "dot", check_dot, &dot_kernels[0].base, NULL);
    missed += judge(c, "dot", check_dot, &dot_kernels[1].base, "sums in 32 bits");
    return missed;
}

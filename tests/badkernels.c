/* badkernels.c - `checkwok --selftest`: kernels that are broken on purpose, one promise each. All must be caught, and for
 * the reason they are broken; the sound kernels beside them must pass, or catching proves nothing.
 *
 * The float ones are gemm_f32 kernels that wrap the reference and are judged by the real check_gemm_f32. The integer
 * ones are gemm_s8 kernels, judged by check_gemm_s8. */
#include "checkwok.h"
#include "epilogue_s8_ref.h"
#include "gemm_f32/gemm_f32.h"
#include "gemm_s8/gemm_s8.h"

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

/* ---- gemm_s8: what goes wrong with integers -------------------------------------------------------------------------- */

typedef int32_t (*sum_fn)(const wok_gemm_s8_args *g, const wok_gemm_s8_packed *p, int64_t m, int64_t n);

static int32_t product(const wok_gemm_s8_args *g, const wok_gemm_s8_packed *p, int64_t m, int64_t n, int64_t k) {
    const uint8_t *panel = p->panels + n / WOK_GEMM_S8_PANEL * p->panel_stride + n % WOK_GEMM_S8_PANEL * 4;
    return k < g->k ? g->a[m * g->lda + k] * panel[k / 4 * WOK_GEMM_S8_LINE + k % 4] : 0;
}

/* What the sums of a x (b + 128) lack. */
static int32_t zero_terms(const wok_gemm_s8_args *g, const wok_gemm_s8_packed *p, int64_t m, int64_t n) {
    int32_t rowsum = 0;
    for (int64_t k = 0; k < g->k; k++) rowsum += g->a[m * g->lda + k];
    return p->offset[n] * rowsum + (g->row_zero ? g->row_zero[m] : g->a_zero) * p->colsum[n];
}

static int32_t sound_sum(const wok_gemm_s8_args *g, const wok_gemm_s8_packed *p, int64_t m, int64_t n) {
    int32_t sum = 0;
    for (int64_t k = 0; k < g->k; k++) sum += product(g, p, m, n, k);
    return (int32_t)((uint32_t)sum - (uint32_t)zero_terms(g, p, m, n));
}

/* What vpmaddubsw does: pairs are added in 16 bits, saturating. */
static int32_t saturating_sum(const wok_gemm_s8_args *g, const wok_gemm_s8_packed *p, int64_t m, int64_t n) {
    int32_t sum = 0;
    for (int64_t k = 0; k < g->k; k += 2) {
        int32_t pair = product(g, p, m, n, k) + product(g, p, m, n, k + 1);
        sum += pair > INT16_MAX ? INT16_MAX : pair < INT16_MIN ? INT16_MIN : pair;
    }
    return (int32_t)((uint32_t)sum - (uint32_t)zero_terms(g, p, m, n));
}

/* One zero point for all columns, which is the usual case. */
static int32_t one_offset_sum(const wok_gemm_s8_args *g, const wok_gemm_s8_packed *p, int64_t m, int64_t n) {
    wok_gemm_s8_packed same = *p;
    same.offset -= n;
    return (int32_t)((uint32_t)sound_sum(g, p, m, n) + (uint32_t)zero_terms(g, p, m, n) -
                     (uint32_t)zero_terms(g, &same, m, n));
}

static void run_s8(const wok_gemm_s8_args *g, sum_fn sum) {
    const wok_gemm_s8_packed p = wok_gemm_s8_unpack(g->n, g->k, g->packed);
    for (int64_t m = 0; m < g->m; m++)
        for (int64_t n = 0; n < g->n; n++)
            wok_epilogue_s8_ref(sum(g, &p, m, n), m, n, &g->epilogue, g->c, m * g->ldc + n);
}

static void s8_sound(const wok_gemm_s8_args *g, const wok_parallel *parallel) {
    (void)parallel;
    run_s8(g, sound_sum);
}

static void s8_saturating(const wok_gemm_s8_args *g, const wok_parallel *parallel) {
    (void)parallel;
    run_s8(g, saturating_sum);
}

static void s8_one_offset(const wok_gemm_s8_args *g, const wok_parallel *parallel) {
    (void)parallel;
    run_s8(g, one_offset_sum);
}

/* Rounds halves away from zero: (int)(v + 0.5). */
static void s8_rounds_up(const wok_gemm_s8_args *g, const wok_parallel *parallel) {
    (void)parallel;
    run_s8(g, sound_sum);
    const wok_gemm_s8_packed p = wok_gemm_s8_unpack(g->n, g->k, g->packed);
    const wok_epilogue_s8 *e = &g->epilogue;
    if (e->out != WOK_S8_OUT_S8 || e->residual || e->table) return;
    for (int64_t m = 0; m < g->m; m++)
        for (int64_t n = 0; n < g->n; n++) {
            float v = fmaf((float)sound_sum(g, &p, m, n), e->scale[n], e->bias ? e->bias[n] : 0.0f);
            int8_t *c = (int8_t *)g->c + m * g->ldc + n;
            if (v - floorf(v) == 0.5f && v > 0 && v + (float)e->zero < (float)e->hi - 1 && *c > e->lo)
                *c = (int8_t)((int32_t)(v + 0.5f) + e->zero);
        }
}

#define BAD_S8(name, caught_as)                                                                                            \
    {                                                                                                                      \
        {.base = {#name, WOK_ISA_ref, 0, wok_gemm_s8_accept}, .layout = WOK_GEMM_S8_LAYOUT, .mr = 2, .nr = 16,             \
         .packed_bytes = wok_gemm_s8_packed_bytes, .pack = wok_gemm_s8_pack, .run = name},                                 \
            caught_as                                                                                                      \
    }
static const struct {
    wok_gemm_s8_kernel kernel;
    const char *caught_as;
} kernels_s8[] = {
    BAD_S8(s8_sound, NULL),
    BAD_S8(s8_saturating, "exact sums"),
    BAD_S8(s8_one_offset, "exact sums"),
    BAD_S8(s8_rounds_up, "exact sums"),
};

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
    for (size_t i = 0; i < sizeof kernels_s8 / sizeof *kernels_s8; i++)
        missed += judge(c, "gemm_s8", check_gemm_s8, &kernels_s8[i].kernel.base, kernels_s8[i].caught_as);
    return missed;
}

/* bench.c - see bench.h. */
#define _GNU_SOURCE
#include "bench.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <sched.h>

enum { SAMPLES = 4096 };

static double clock_seconds(clockid_t id) {
    struct timespec t;
    clock_gettime(id, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void bench_contest(bench_entry *entries, int count, double seconds, bool wall) {
    clockid_t id = wall ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID;
    double *samples = malloc(sizeof(double) * SAMPLES * (size_t)count), begin = clock_seconds(CLOCK_MONOTONIC);
    int *calls = malloc(sizeof(int) * (size_t)count), rounds = 0;
    if (!samples || !calls) abort();
    for (int i = 0; i < count; i++) { /* warm up, and see how long a call is */
        double start = clock_seconds(id);
        entries[i].fn(entries[i].arg);
        entries[i].fn(entries[i].arg);
        double once = (clock_seconds(id) - start) / 2;
        calls[i] = once < 20e-6 ? (int)(20e-6 / (once + 1e-9)) + 1 : 1;
    }
    while (rounds < SAMPLES && (rounds < 3 || clock_seconds(CLOCK_MONOTONIC) - begin < seconds)) {
        for (int i = 0; i < count; i++) {
            double start = clock_seconds(id);
            for (int j = 0; j < calls[i]; j++) entries[i].fn(entries[i].arg);
            samples[(size_t)i * SAMPLES + (size_t)rounds] = (clock_seconds(id) - start) / calls[i];
        }
        rounds++;
    }
    for (int i = 0; i < count; i++) {
        double *s = samples + (size_t)i * SAMPLES;
        qsort(s, (size_t)rounds, sizeof *s, by_value);
        entries[i].best = s[rounds / 50]; /* the very smallest of many is a glitch of a virtual machine's clock */
        entries[i].median = s[rounds / 2];
    }
    free(samples);
    free(calls);
}

/* ---- the FMA peak: 12 chains on AVX2, 24 on AVX-512, nothing but registers ------------------------------------------ */

enum { FMA_STEPS = 4096 };

#if defined(__x86_64__)
#include <immintrin.h>
#define CHAIN(i) c##i = FMA(x, y, c##i);
#define TWELVE(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#define TWELVE_MORE(X) X(12) X(13) X(14) X(15) X(16) X(17) X(18) X(19) X(20) X(21) X(22) X(23)

static volatile float sink;

__attribute__((target("avx2,fma"))) static void fma_avx2(void) {
#define FMA(a, b, c) _mm256_fmadd_ps(a, b, c)
#define START(i) __m256 c##i = _mm256_set1_ps((float)i);
#define ADD(i) sum = _mm256_add_ps(sum, c##i);
    __m256 x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(1e-9f), sum = x;
    TWELVE(START)
    for (int i = 0; i < FMA_STEPS; i++) {
        TWELVE(CHAIN)
        __asm__ volatile("" : "+x"(x)); /* or the loop would be folded */
    }
    TWELVE(ADD)
    sink = _mm256_cvtss_f32(sum);
#undef FMA
#undef START
#undef ADD
}

__attribute__((target("avx512f"))) static void fma_avx512(void) {
#define FMA(a, b, c) _mm512_fmadd_ps(a, b, c)
#define START(i) __m512 c##i = _mm512_set1_ps((float)i);
#define ADD(i) sum = _mm512_add_ps(sum, c##i);
    __m512 x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(1e-9f), sum = x;
    TWELVE(START) TWELVE_MORE(START) for (int i = 0; i < FMA_STEPS; i++) {
        TWELVE(CHAIN) TWELVE_MORE(CHAIN) __asm__ volatile("" : "+v"(x));
    }
    TWELVE(ADD) TWELVE_MORE(ADD) sink = _mm512_cvtss_f32(sum);
#undef FMA
#undef START
#undef ADD
}
#else
static void fma_avx2(void) {}
static void fma_avx512(void) {}
#endif

static bool has(wok_isa_set isa, wok_isa level) {
    return isa >> level & 1;
}

void bench_fma(void *isa_set) {
    wok_isa_set isa = *(const wok_isa_set *)isa_set;
    if (has(isa, WOK_ISA_avx512))
        fma_avx512();
    else if (has(isa, WOK_ISA_avx2))
        fma_avx2();
}

double bench_fma_macs(wok_isa_set isa) {
    return has(isa, WOK_ISA_avx512) ? FMA_STEPS * 24.0 * 16 : has(isa, WOK_ISA_avx2) ? FMA_STEPS * 12.0 * 8 : 0;
}

void bench_fma_peak(wok_isa_set isa, double seconds, double *best, double *median) {
    bench_entry peak = {.name = "FMA", .fn = bench_fma, .arg = &isa};
    bench_contest(&peak, 1, seconds, false);
    *best = bench_fma_macs(isa) / peak.best * 1e-9;
    *median = bench_fma_macs(isa) / peak.median * 1e-9;
}

/* ---- the peak of byte products: spelled out, since a compiler would see that the products are all the same ----------- */

enum { S8_STEPS = 4096, TILE_STEPS = 64 };

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void s8_avx2(void) {
#define START(i) __m256i c##i = x;
#define CHAIN_S8(i) __asm__ volatile("vpmaddwd %2, %2, %1\n\tvpaddd %1, %0, %0" : "+x"(c##i), "=&x"(product) : "x"(x));
    __m256i x = _mm256_set1_epi16(1), product;
    TWELVE(START)
    for (int i = 0; i < S8_STEPS; i++) {
        TWELVE(CHAIN_S8)
    }
#undef START
#undef CHAIN_S8
}

/* {vex} as gcc wants it in assembly with operands */
__attribute__((target("avx2"))) static void s8_avxvnni(void) {
#define START(i) __m256i c##i = x;
#define CHAIN_S8(i) __asm__ volatile("%{vex%} vpdpbusd %1, %1, %0" : "+x"(c##i) : "x"(x));
    __m256i x = _mm256_set1_epi8(1);
    TWELVE(START)
    for (int i = 0; i < S8_STEPS; i++) {
        TWELVE(CHAIN_S8)
    }
#undef START
#undef CHAIN_S8
}

__attribute__((target("avx512f"))) static void s8_avx512(void) {
#define START(i) __m512i c##i = x;
#define CHAIN_S8(i) __asm__ volatile("vpdpbusd %1, %1, %0" : "+v"(c##i) : "v"(x));
    __m512i x = _mm512_set1_epi32(0x01010101);
    TWELVE(START) TWELVE_MORE(START) for (int i = 0; i < S8_STEPS; i++) {
        TWELVE(CHAIN_S8) TWELVE_MORE(CHAIN_S8)
    }
#undef START
#undef CHAIN_S8
}

static void s8_amx(void) {
    struct {
        uint8_t palette, start, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config = {.palette = 1};
    for (int t = 0; t < 8; t++) {
        config.row_bytes[t] = 64;
        config.rows[t] = 16;
    }
    __asm__ volatile("ldtilecfg %0" : : "m"(config));
    for (int i = 0; i < TILE_STEPS; i++)
        __asm__ volatile("tdpbsud %tmm7, %tmm6, %tmm0\n\ttdpbsud %tmm7, %tmm6, %tmm1\n\t"
                         "tdpbsud %tmm7, %tmm6, %tmm2\n\ttdpbsud %tmm7, %tmm6, %tmm3");
    __asm__ volatile("tilerelease");
}
#else
static void s8_avx2(void) {}
static void s8_avxvnni(void) {}
static void s8_avx512(void) {}
static void s8_amx(void) {}
#endif

static bool has_amx(wok_isa_set isa) {
    return has(isa, WOK_ISA_amx) && wok_cpu()->amx_int8;
}

void bench_s8(void *isa_set) {
    wok_isa_set isa = *(const wok_isa_set *)isa_set;
    if (has_amx(isa))
        s8_amx();
    else if (has(isa, WOK_ISA_avx512vnni))
        s8_avx512();
    else if (has(isa, WOK_ISA_avxvnni))
        s8_avxvnni();
    else if (has(isa, WOK_ISA_avx2))
        s8_avx2();
}

double bench_s8_macs(wok_isa_set isa) {
    if (has_amx(isa)) return TILE_STEPS * 4.0 * 16 * 16 * 64;
    if (has(isa, WOK_ISA_avx512vnni)) return S8_STEPS * 24.0 * 64;
    if (has(isa, WOK_ISA_avxvnni)) return S8_STEPS * 12.0 * 32;
    return has(isa, WOK_ISA_avx2) ? S8_STEPS * 12.0 * 16 : 0;
}

void bench_s8_peak(wok_isa_set isa, double seconds, double *best, double *median) {
    bench_entry peak = {.name = "bytes", .fn = bench_s8, .arg = &isa};
    bench_contest(&peak, 1, seconds, false);
    *best = bench_s8_macs(isa) / peak.best * 1e-9;
    *median = bench_s8_macs(isa) / peak.median * 1e-9;
}

/* ---- a pool ------------------------------------------------------------------------------------------------------ */

typedef struct bench_pool {
    wok_parallel parallel;
    wok_task_fn fn;
    void *arg;
    int64_t tasks;
    _Atomic int64_t next;
    _Atomic unsigned epoch;
    _Atomic int running, joined;
    pthread_t threads[64];
} bench_pool;

static void take(bench_pool *p, int worker) {
    int64_t task;
    while ((task = p->next++) < p->tasks) p->fn(p->arg, task, worker);
}

static void *serve(void *arg) {
    bench_pool *p = arg;
    int worker = ++p->joined;
    for (unsigned seen = 0;;) {
        for (int spins = 0; p->epoch == seen; spins++)
            if (spins > 2000) sched_yield();
        seen = p->epoch;
        if (!p->fn) return NULL;
        take(p, worker);
        p->running--;
    }
}

static void pool_run(void *self, wok_task_fn fn, void *arg, int64_t tasks) {
    bench_pool *p = self;
    p->fn = fn;
    p->arg = arg;
    p->tasks = tasks;
    p->next = 0;
    p->running = p->parallel.threads - 1;
    p->epoch++;
    if (!fn) return;
    take(p, 0);
    for (int spins = 0; p->running; spins++)
        if (spins > 2000) sched_yield();
}

wok_parallel *bench_pool_create(int threads) {
    bench_pool *p = calloc(1, sizeof *p);
    if (!p || threads < 1 || threads > 64) abort();
    p->parallel = (wok_parallel){pool_run, p, threads};
    for (int i = 1; i < threads; i++)
        if (pthread_create(&p->threads[i], NULL, serve, p) != 0) abort();
    return &p->parallel;
}

void bench_pool_free(wok_parallel *parallel) {
    bench_pool *p = parallel->self;
    pool_run(p, NULL, NULL, 0);
    for (int i = 1; i < parallel->threads; i++) pthread_join(p->threads[i], NULL);
    free(p);
}

/* ---- odds and ends ----------------------------------------------------------------------------------------------- */

wok_isa_set bench_isa(void) {
    wok_isa_set isa;
    const char *problem = wok_cpu_select(getenv("WOK_ISA"), &isa);
    if (!problem) return isa;
    fprintf(stderr, "%s\n", problem);
    exit(2);
}

float *bench_floats(size_t count, float scale) {
    size_t bytes = (count * sizeof(float) + 63) / 64 * 64;
    float *p = aligned_alloc(64, bytes ? bytes : 64);
    if (!p) {
        fprintf(stderr, "no memory for %zu floats\n", count);
        exit(1);
    }
    uint64_t state = 0x9e3779b97f4a7c15u;
    for (size_t i = 0; i < count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        p[i] = (float)((double)(state >> 40) * 0x1p-23 - 1.0) / scale;
    }
    return p;
}

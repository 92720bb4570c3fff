/* bench.h - timing for the benchmarks: contestants take turns in one process, best and median of many are kept.
 *
 * On one thread time is the thread's CPU time, which neighbours on the machine do not lengthen (what they take from the
 * clock and the caches still shows). With a pool it is wall time. Ratios inside one contest are to be trusted, absolute
 * figures of a busy machine are not: every program prints the FMA peak of the same minutes beside its results. */
#ifndef WOK_BENCH_H
#define WOK_BENCH_H

#include "wok_kernels.h"

typedef struct bench_entry {
    const char *name;
    void (*fn)(void *arg);
    void *arg;
    double best, median; /* seconds a call, filled by bench_contest; best is the 2nd percentile */
} bench_entry;

/* Runs the entries in turn for about `seconds` altogether. A call that is shorter than the clock can resolve is repeated. */
void bench_contest(bench_entry *entries, int count, double seconds, bool wall);

/* One unit of register-only FMA work on the best level of `isa` (16 chains or more). MACs it does: */
void bench_fma(void *isa_set);
double bench_fma_macs(wok_isa_set isa);
/* GMAC/s of one thread, best and median of `seconds`. */
void bench_fma_peak(wok_isa_set isa, double seconds, double *best, double *median);

/* The same for products of bytes: what instructions of the best level make of registers alone. AVX2 has vpmaddwd and vpaddd,
 * two instructions for 16 products. */
void bench_s8(void *isa_set);
double bench_s8_macs(wok_isa_set isa);
void bench_s8_peak(wok_isa_set isa, double seconds, double *best, double *median);

/* A pool of `threads` spinning threads, the caller included. */
wok_parallel *bench_pool_create(int threads);
void bench_pool_free(wok_parallel *pool);

/* WOK_ISA, or everything; exits with a message where the variable is wrong. */
wok_isa_set bench_isa(void);
/* 64-byte aligned, filled with numbers in [-1, 1) / scale; exits when there is no memory. */
float *bench_floats(size_t count, float scale);

#endif

/* isa_guard.h - included first by every kernel file: the compiler's flags must equal the run-time gate.
 *
 * CMake defines WOK_LEVEL_<name> for the object library of a level. A file compiled with more than its gate promises
 * (CFLAGS=-march=native) would die of an illegal instruction on a smaller CPU; that is a build error here. Both spellings
 * of the AMX macros are tested: gcc says __AMX_TILE__, clang __AMXTILE__. */
#ifndef WOK_ISA_GUARD_H
#define WOK_ISA_GUARD_H

#if defined(__x86_64__)

#if !defined(WOK_LEVEL_ref) && !defined(WOK_LEVEL_avx2) && !defined(WOK_LEVEL_avxvnni) && !defined(WOK_LEVEL_avx512) &&  \
    !defined(WOK_LEVEL_avx512vnni) && !defined(WOK_LEVEL_avx512bf16) && !defined(WOK_LEVEL_amx)
#error "a kernel file is compiled outside the object library of its instruction-set level"
#endif

#if defined(WOK_LEVEL_ref) &&                                                                                           \
    (defined(__SSE3__) || defined(__SSE4_1__) || defined(__AVX__) || defined(__BMI__) || defined(__LZCNT__))
#error "level ref is compiled for more than baseline x86-64; remove -march and -m flags from CFLAGS"
#endif

#if defined(WOK_LEVEL_avx2)
#if !defined(__AVX2__) || !defined(__FMA__) || !defined(__F16C__)
#error "level avx2 needs -mavx2 -mfma -mf16c"
#endif
#if defined(__AVX512F__) || defined(__AVXVNNI__) || defined(__BMI2__)
#error "level avx2 is compiled for more than its gate promises"
#endif
#endif

#if defined(WOK_LEVEL_avx512)
#if !defined(__AVX512F__) || !defined(__AVX512BW__) || !defined(__AVX512DQ__) || !defined(__AVX512VL__) ||              \
    !defined(__AVX512CD__) || !defined(__FMA__) || !defined(__F16C__)
#error "level avx512 needs -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512cd -mfma -mf16c"
#endif
#if defined(__AVX512VNNI__) || defined(__AVX512BF16__) || defined(__AVX512VBMI__) || defined(__BMI2__)
#error "level avx512 is compiled for more than its gate promises"
#endif
#endif

#if !defined(WOK_LEVEL_amx) && (defined(__AMX_TILE__) || defined(__AMXTILE__))
#error "AMX is enabled outside level amx"
#endif

#endif /* __x86_64__ */

#if defined(__FAST_MATH__)
#error "wok is never compiled with -ffast-math: its results are promised bit for bit"
#endif

#endif

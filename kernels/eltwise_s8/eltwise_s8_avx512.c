/* eltwise_s8_avx512.c - eltwise_s8 with AVX-512: blocks of 64 bytes. The loops are eltwise_s8_loops.h's. */
#include "../lanes_avx512.h"
#include "eltwise_s8_loops.h"

const wok_eltwise_s8_kernel wok_eltwise_s8__avx512 = {
    .base = {"wok_eltwise_s8__avx512", WOK_ISA_avx512, 0, wok_eltwise_s8_accept},
    .run = elt_run,
};

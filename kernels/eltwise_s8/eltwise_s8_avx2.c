/* eltwise_s8_avx2.c - eltwise_s8 with AVX2: blocks of 32 bytes. The loops are eltwise_s8_loops.h's. */
#include "../lanes_avx2.h"
#include "eltwise_s8_loops.h"

const wok_eltwise_s8_kernel wok_eltwise_s8__avx2 = {
    .base = {"wok_eltwise_s8__avx2", WOK_ISA_avx2, 0, wok_eltwise_s8_accept},
    .run = elt_run,
};

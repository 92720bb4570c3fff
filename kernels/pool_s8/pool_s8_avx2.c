/* pool_s8_avx2.c - pool_s8 with AVX2: 32 channels at a time. The loops are pool_s8_loops.h's. */
#include "../lanes_avx2.h"
#include "pool_s8_loops.h"

const wok_pool_s8_kernel wok_pool_s8_c32__avx2 = {
    .base = {"wok_pool_s8_c32__avx2", WOK_ISA_avx2, 0, wok_pool_accept},
    .run = pool_run_s8,
};

/* pool_s8_avx512.c - pool_s8 with AVX-512: 64 channels at a time. The loops are pool_s8_loops.h's. */
#include "../lanes_avx512.h"
#include "pool_s8_loops.h"

const wok_pool_s8_kernel wok_pool_s8_c64__avx512 = {
    .base = {"wok_pool_s8_c64__avx512", WOK_ISA_avx512, 0, wok_pool_accept},
    .run = pool_run_s8,
};

/* pool_s8.h - variants of the pool_s8 family (contract: wok_kernels.h) and what they share. Windows, counts and the
 * splitting of work are those of pool (pool/pool.h). All variants give the bits of the reference: sums of bytes are
 * exact in int32, and x_zero is taken off for every tap inside the picture. An average that is NaN gives y_zero. */
#ifndef WOK_POOL_S8_H
#define WOK_POOL_S8_H

#include "../pool/pool.h"

#define WOK_DECLARE(isa, symbol) extern const wok_pool_s8_kernel symbol;
#define WOK_VARIANT WOK_DECLARE
#include "pool_s8.def"
#undef WOK_VARIANT
#undef WOK_DECLARE

/* `arg` is the launch's wok_pool_s8_args. */
void wok_pool_s8_drive(const wok_pool_problem *problem, const wok_pool_s8_args *args, wok_pool_place_fn max,
                       wok_pool_place_fn average, const wok_parallel *parallel);

#endif

/* pool.h - variants of the pool family (contract: wok_kernels.h) and what they share. */
#ifndef WOK_POOL_H
#define WOK_POOL_H

#include "../common.h"

#define WOK_DECLARE(isa, symbol) extern const wok_pool_kernel symbol;
#define WOK_VARIANT WOK_DECLARE
#include "pool.def"
#undef WOK_VARIANT

#endif

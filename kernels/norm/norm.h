/* norm.h - variants of the norm family (contract: wok_kernels.h) and what they share. */
#ifndef WOK_NORM_H
#define WOK_NORM_H

#include "../common.h"

#define WOK_DECLARE(isa, symbol) extern const wok_norm_kernel symbol;
#define WOK_VARIANT WOK_DECLARE
#include "norm.def"
#undef WOK_VARIANT

#endif

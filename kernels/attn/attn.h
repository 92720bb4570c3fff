/* attn.h - variants of the attn family (contract: wok_kernels.h) and what they share. */
#ifndef WOK_ATTN_H
#define WOK_ATTN_H

#include "../common.h"

#define WOK_DECLARE(isa, symbol) extern const wok_attn_kernel symbol;
#define WOK_VARIANT WOK_DECLARE
#include "attn.def"
#undef WOK_VARIANT

#endif

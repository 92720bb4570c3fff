/* dwconv.h - variants of the dwconv family (contract: wok_kernels.h) and what they share. */
#ifndef WOK_DWCONV_H
#define WOK_DWCONV_H

#include "../common.h"

#define WOK_DECLARE(isa, symbol) extern const wok_dwconv_kernel symbol;
#define WOK_VARIANT WOK_DECLARE
#include "dwconv.def"
#undef WOK_VARIANT

#endif

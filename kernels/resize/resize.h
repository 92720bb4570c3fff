/* resize.h - variants of the resize family (contract: wok_kernels.h) and what they share. */
#ifndef WOK_RESIZE_H
#define WOK_RESIZE_H

#include "../common.h"

#define WOK_DECLARE(isa, symbol) extern const wok_resize_kernel symbol;
#define WOK_VARIANT WOK_DECLARE
#include "resize.def"
#undef WOK_VARIANT

#endif

/* eltwise.h - variants of the eltwise family (contract: wok_kernels.h) and what they share. */
#ifndef WOK_ELTWISE_H
#define WOK_ELTWISE_H

#include "../common.h"

#define WOK_DECLARE(isa, symbol) extern const wok_eltwise_kernel symbol;
#define WOK_VARIANT WOK_DECLARE
#include "eltwise.def"
#undef WOK_VARIANT

#endif

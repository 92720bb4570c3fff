/* conv_f32.h - variants of the conv_f32 family (contract: wok_kernels.h) and what they share. */
#ifndef WOK_CONV_F32_H
#define WOK_CONV_F32_H

#include "../common.h"

#define WOK_DECLARE(isa, symbol) extern const wok_conv_f32_kernel symbol;
#define WOK_VARIANT WOK_DECLARE
#include "conv_f32.def"
#undef WOK_VARIANT

#endif

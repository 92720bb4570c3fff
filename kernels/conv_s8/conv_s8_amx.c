/* conv_s8_amx.c - gathered rows through the tiles of gemm_s8_amx.c; conv_s8.h has the picture.
 *
 * Rows are 64 bytes aligned, so that a row of a tile is one line of cache. */
#include "conv_s8.h"
#include "../amx_tile.h"

static const char *accept(const void *problem) {
    return wok_tile_has_int8() ? wok_conv_s8_accept(problem) : "the tiles of this processor cannot multiply bytes";
}

WOK_CONV_S8_DEFINE(WOK_AMX(wok_conv_s8_32x32), WOK_AMX_NAME(wok_conv_s8_32x32), WOK_AMX_ISA, accept,
                   WOK_AMX(wok_gemm_s8_rows), 32, 32);

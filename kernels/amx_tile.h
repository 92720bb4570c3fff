/* amx_tile.h - the AMX tile operations that wok's kernels use, and a scalar twin of them (internal).
 *
 * AMX has eight tiles of up to 16 rows x 64 bytes. A kernel file is written once, against the names below: compiled for
 * level amx they are the instructions, compiled for any other level they are plain C on a struct of eight tiles. So the
 * packing and the loops of an AMX kernel run, and are tested, on machines that have no AMX (tests/twin_gemm_s8.c).
 *
 *     WOK_TILE_CONFIGURE(tiles, config)      shapes of all tiles, contents zero
 *     WOK_TILE_RELEASE(tiles)                no tiles: a switch of threads has nothing to save
 *     WOK_TILE_ZERO(tiles, t)
 *     WOK_TILE_LOAD(tiles, t, p, stride)     rows of tile t, `stride` bytes apart in memory
 *     WOK_TILE_STORE(tiles, t, p, stride)
 *     WOK_TILE_DOT_SU(tiles, c, a, b)        c.i32[m][n] += sum over k, j of a.s8[m][4k + j] * b.u8[k][4n + j]
 *
 * Tile numbers are literal digits. `tiles` is the address of a wok_tiles, which the instructions do not use.
 *
 * The instructions are written as assembly that declares what it reads, since gcc 12's intrinsics do not:
 * _tile_loadconfig owns up to 8 bytes of its 64 and _tile_loadd to none, so that gcc drops the stores that fill them.
 *
 * The twin touches the bytes of memory that the instruction touches, and where the processor would raise #UD (a tile
 * that is not configured, operands whose shapes do not agree) it traps too.
 *
 * Who sets tiles up: every call of a rows function configures them, and releases them before it returns. A kernel keeps
 * no state and is not told when a worker starts or parks, a call may find the thread in any state, and the two
 * instructions cost some hundred cycles against the tens of thousands of a call. So no worker ever parks with tiles in
 * use, and user code on the same threads finds none of ours. The permission to use tiles is asked for once, by
 * cpu.c. */
#ifndef WOK_AMX_TILE_H
#define WOK_AMX_TILE_H

#include "common.h"

enum { WOK_TILE_ROWS = 16, WOK_TILE_ROW_BYTES = 64, WOK_TILE_BYTES = 1024 };

/* The memory operand of LDTILECFG. */
typedef struct wok_tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} wok_tile_config;
_Static_assert(sizeof(wok_tile_config) == 64, "LDTILECFG reads 64 bytes");

#if defined(WOK_LEVEL_amx)

/* Symbols of an AMX file, its level, and whether 8-bit products can be had. */
#define WOK_AMX(name) name##__amx
#define WOK_AMX_NAME(name) #name "__amx"
#define WOK_AMX_ISA WOK_ISA_amx
static inline bool wok_tile_has_int8(void) {
    return wok_cpu()->amx_int8;
}

typedef struct wok_tiles {
    char unused;
} wok_tiles;

#define WOK_TILE_ASM(tiles, ...)                                                                                       \
    do {                                                                                                               \
        (void)(tiles);                                                                                                 \
        __asm__ volatile(__VA_ARGS__ : "memory");                                                                      \
    } while (0)
#define WOK_TILE_CONFIGURE(tiles, config) WOK_TILE_ASM(tiles, "ldtilecfg %0" : : "m"(*(config)))
#define WOK_TILE_RELEASE(tiles) WOK_TILE_ASM(tiles, "tilerelease" : :)
#define WOK_TILE_ZERO(tiles, t) WOK_TILE_ASM(tiles, "tilezero %%tmm" #t : :)
#define WOK_TILE_LOAD(tiles, t, p, stride)                                                                             \
    WOK_TILE_ASM(tiles, "tileloadd (%0,%1,1), %%tmm" #t : : "r"(p), "r"((int64_t)(stride)))
#define WOK_TILE_STORE(tiles, t, p, stride)                                                                            \
    WOK_TILE_ASM(tiles, "tilestored %%tmm" #t ", (%0,%1,1)" : : "r"(p), "r"((int64_t)(stride)))
#define WOK_TILE_DOT_SU(tiles, c, a, b) WOK_TILE_ASM(tiles, "tdpbsud %%tmm" #b ", %%tmm" #a ", %%tmm" #c : :)

#else

#define WOK_AMX(name) name##__twin
#define WOK_AMX_NAME(name) #name "__twin"
#define WOK_AMX_ISA WOK_ISA_ref
static inline bool wok_tile_has_int8(void) {
    return true;
}

enum { WOK_TILE_COUNT = 8 };

typedef struct wok_tiles {
    int rows[WOK_TILE_COUNT], row_bytes[WOK_TILE_COUNT]; /* 0: not configured */
    uint8_t data[WOK_TILE_COUNT][WOK_TILE_ROWS][WOK_TILE_ROW_BYTES];
} wok_tiles;

/* What #UD is. */
static inline void wok_tile_demand(bool condition) {
    if (!condition) __builtin_trap();
}

static inline void wok_tile_configure(wok_tiles *tiles, const wok_tile_config *config) {
    wok_tile_demand(config->palette == 1 && config->start_row == 0);
    memset(tiles, 0, sizeof *tiles);
    for (int t = 0; t < WOK_TILE_COUNT; t++) {
        tiles->rows[t] = config->rows[t];
        tiles->row_bytes[t] = config->row_bytes[t];
        wok_tile_demand(tiles->rows[t] <= WOK_TILE_ROWS && tiles->row_bytes[t] <= WOK_TILE_ROW_BYTES &&
                        (tiles->rows[t] == 0) == (tiles->row_bytes[t] == 0));
    }
}

static inline void wok_tile_load(wok_tiles *tiles, int t, const void *p, int64_t stride) {
    wok_tile_demand(tiles->rows[t] > 0);
    memset(tiles->data[t], 0, sizeof tiles->data[t]);
    for (int row = 0; row < tiles->rows[t]; row++)
        memcpy(tiles->data[t][row], (const char *)p + row * stride, (size_t)tiles->row_bytes[t]);
}

static inline void wok_tile_store(const wok_tiles *tiles, int t, void *p, int64_t stride) {
    wok_tile_demand(tiles->rows[t] > 0);
    for (int row = 0; row < tiles->rows[t]; row++)
        memcpy((char *)p + row * stride, tiles->data[t][row], (size_t)tiles->row_bytes[t]);
}

static inline void wok_tile_zero(wok_tiles *tiles, int t) {
    wok_tile_demand(tiles->rows[t] > 0);
    memset(tiles->data[t], 0, sizeof tiles->data[t]);
}

static inline void wok_tile_dot_su(wok_tiles *tiles, int c, int a, int b) {
    wok_tile_demand(c != a && c != b && a != b && tiles->rows[c] > 0 && tiles->row_bytes[c] % 4 == 0 &&
                    tiles->rows[a] == tiles->rows[c] && tiles->row_bytes[b] == tiles->row_bytes[c] &&
                    tiles->row_bytes[a] == 4 * tiles->rows[b]);
    for (int m = 0; m < tiles->rows[c]; m++) {
        int32_t sum[WOK_TILE_ROW_BYTES / 4];
        memcpy(sum, tiles->data[c][m], sizeof sum);
        for (int k = 0; k < tiles->rows[b]; k++)
            for (int n = 0; n < tiles->row_bytes[c] / 4; n++)
                for (int j = 0; j < 4; j++)
                    sum[n] = (int32_t)((uint32_t)sum[n] + (uint32_t)((int8_t)tiles->data[a][m][4 * k + j] *
                                                                     (int)tiles->data[b][k][4 * n + j]));
        memcpy(tiles->data[c][m], sum, sizeof sum);
    }
}

#define WOK_TILE_CONFIGURE(tiles, config) wok_tile_configure(tiles, config)
#define WOK_TILE_RELEASE(tiles) memset(tiles, 0, sizeof *(tiles))
#define WOK_TILE_ZERO(tiles, t) wok_tile_zero(tiles, t)
#define WOK_TILE_LOAD(tiles, t, p, stride) wok_tile_load(tiles, t, p, stride)
#define WOK_TILE_STORE(tiles, t, p, stride) wok_tile_store(tiles, t, p, stride)
#define WOK_TILE_DOT_SU(tiles, c, a, b) wok_tile_dot_su(tiles, c, a, b)

#endif
#endif

/* registry.c - the lists of kernel variants, made from the .def file of each family, and the one selection rule. */
#include "common.h"

#include "gemm_f32/gemm_f32.h"
#include "conv_f32/conv_f32.h"
#include "dwconv/dwconv.h"
#include "pool/pool.h"
#include "attn/attn.h"
#include "norm/norm.h"
#include "eltwise/eltwise.h"
#include "eltwise_s8/eltwise_s8.h"
#include "resize/resize.h"
#include "gemm_s8/gemm_s8.h"
#include "conv_s8/conv_s8.h"
#include "dwconv_s8/dwconv_s8.h"
#include "pool_s8/pool_s8.h"

/* A .def line is unconditional: WOK_VARIANT(isa, symbol). Levels that this build lacks are dropped here. CMake defines
 * WOK_HAVE_<level> to 1 or 0 for every level, and WOK_HAVE_blas for the OpenBLAS variant. */
#define WOK_CAT_(a, b) a##b
#define WOK_CAT(a, b) WOK_CAT_(a, b)
#define WOK_KEEP_1(symbol) &symbol.base,
#define WOK_KEEP_0(symbol)
#define WOK_VARIANT(isa, symbol) WOK_CAT(WOK_KEEP_, WOK_HAVE_##isa)(symbol)

static const wok_kernel *const gemm_f32_list[] = {
#include "gemm_f32/gemm_f32.def"
};
static const wok_kernel *const conv_f32_list[] = {
#include "conv_f32/conv_f32.def"
};
static const wok_kernel *const dwconv_list[] = {
#include "dwconv/dwconv.def"
};
static const wok_kernel *const pool_list[] = {
#include "pool/pool.def"
};
static const wok_kernel *const attn_list[] = {
#include "attn/attn.def"
};
static const wok_kernel *const norm_list[] = {
#include "norm/norm.def"
};
static const wok_kernel *const eltwise_list[] = {
#include "eltwise/eltwise.def"
};
static const wok_kernel *const eltwise_s8_list[] = {
#include "eltwise_s8/eltwise_s8.def"
};
static const wok_kernel *const resize_list[] = {
#include "resize/resize.def"
};
static const wok_kernel *const gemm_s8_list[] = {
#include "gemm_s8/gemm_s8.def"
};
static const wok_kernel *const conv_s8_list[] = {
#include "conv_s8/conv_s8.def"
};
static const wok_kernel *const dwconv_s8_list[] = {
#include "dwconv_s8/dwconv_s8.def"
};
static const wok_kernel *const pool_s8_list[] = {
#include "pool_s8/pool_s8.def"
};

static const struct {
    const char *name;
    const wok_kernel *const *list;
    int count;
} families[WOK_FAMILY_COUNT] = {
#define WOK_FAMILY(name, text) {#name, name##_list, (int)(sizeof name##_list / sizeof *name##_list)},
#include "wok_families.def"
#undef WOK_FAMILY
};

const char *wok_family_name(wok_family family) {
    return (unsigned)family < WOK_FAMILY_COUNT ? families[family].name : "?";
}

const wok_kernel *const *wok_kernel_list(wok_family family, int *count) {
    if ((unsigned)family >= WOK_FAMILY_COUNT) {
        *count = 0;
        return NULL;
    }
    *count = families[family].count;
    return families[family].list;
}

const wok_kernel *wok_kernel_select(wok_family family, wok_isa_set allowed, const void *problem, wok_reject_fn reject,
                                    void *user) {
    int count;
    const wok_kernel *const *list = wok_kernel_list(family, &count);
    for (int i = 0; i < count; i++) {
        const char *reason =
            (allowed >> list[i]->isa & 1) == 0 ? "its instruction set is not available here" : list[i]->accept(problem);
        if (!reason) return list[i];
        if (reject) reject(user, list[i], reason);
    }
    return NULL;
}

/* base.c - names and sizes of wok_base.h. */
#include "wok_base.h"

#define WOK_STR_(x) #x
#define WOK_STR(x) WOK_STR_(x)

const char *wok_version(void) {
    return WOK_STR(WOK_VERSION_MAJOR) "." WOK_STR(WOK_VERSION_MINOR) "." WOK_STR(WOK_VERSION_PATCH);
}

static const struct {
    const char *name;
    unsigned char size;
} dtypes[] = {
    [WOK_NONE] = {"none", 0},  [WOK_F32] = {"f32", 4}, [WOK_U8] = {"u8", 1},    [WOK_I8] = {"i8", 1},
    [WOK_U16] = {"u16", 2},    [WOK_I16] = {"i16", 2}, [WOK_I32] = {"i32", 4},  [WOK_I64] = {"i64", 8},
    [WOK_STRING] = {"str", 0}, [WOK_BOOL] = {"bool", 1}, [WOK_F16] = {"f16", 2}, [WOK_F64] = {"f64", 8},
    [WOK_U32] = {"u32", 4},    [WOK_U64] = {"u64", 8}, [WOK_BF16] = {"bf16", 2},
};

size_t wok_dtype_size(wok_dtype dtype) {
    return (unsigned)dtype < sizeof dtypes / sizeof *dtypes ? dtypes[dtype].size : 0;
}

const char *wok_dtype_name(wok_dtype dtype) {
    return (unsigned)dtype < sizeof dtypes / sizeof *dtypes && dtypes[dtype].name ? dtypes[dtype].name : "none";
}

const char *wok_status_name(wok_status status) {
    static const char *const names[] = {"ok",    "argument", "memory", "io",    "format",
                                        "unsupported", "shape",    "value",  "limit", "state"};
    return (unsigned)status < sizeof names / sizeof *names ? names[status] : "unknown";
}

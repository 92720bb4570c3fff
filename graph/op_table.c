/* op_table.c - the table of operators, made of ops.def. */
#include "ops/ops.h"

#include <stdio.h>
#include <string.h>

/* Length of the prefix that keeps enum constants of different domains apart. */
#define PREFIX(domain)                                                                                                 \
    (sizeof(domain) == sizeof("com.microsoft") ? sizeof "ms" : sizeof(domain) == sizeof("wok") ? sizeof "wok" : 0)

static const wok_op_info table[] = {
    {0},
#define WOK_OP(name, domain, first, last, infer, impls)                                                                \
    {&#name[PREFIX(domain)], domain, first, last, wok_infer_##infer},
#include "ops.def"
#undef WOK_OP
};

static const wok_op_impl *const *const impls_of[] = {
    NULL,
#define WOK_OP(name, domain, first, last, infer, impls) wok_impls_##impls,
#include "ops.def"
#undef WOK_OP
};

const wok_op_info *wok_op_get(wok_op op) {
    return op > WOK_OP_UNKNOWN && op < WOK_OP_COUNT ? &table[op] : NULL;
}

wok_op wok_op_find(const char *domain, const char *op_type) {
    if (!strcmp(domain, "ai.onnx")) domain = "";
    for (int op = 1; op < WOK_OP_COUNT; op++)
        if (!strcmp(table[op].name, op_type) && !strcmp(table[op].domain, domain)) return (wok_op)op;
    return WOK_OP_UNKNOWN;
}

/* Operators whose definition changed after the version that is understood here: {name, version of the change}. The
 * whole of ONNX up to operator set 28 was read, so that there is none yet. */
static const struct change {
    wok_op op;
    int version;
} changed[] = {{WOK_OP_UNKNOWN, 0}};

const char *wok_op_unsupported(const char *domain, const char *op_type, int64_t version) {
    static _Thread_local char text[160];
    wok_op op = wok_op_find(domain, op_type);
    const wok_op_info *info = wok_op_get(op);
    if (!info || !strcmp(domain, "wok")) return "this operator is not implemented";
    if (version < info->first) {
        snprintf(text, sizeof text, "version %lld of the operator set is older than %d, the first that is understood",
                 (long long)version, info->first);
        return text;
    }
    for (size_t i = 0; i < sizeof changed / sizeof changed[0]; i++) {
        if (changed[i].op != op || version < changed[i].version) continue;
        snprintf(text, sizeof text,
                 "the operator changed in version %d of the operator set; %d is the newest understood",
                 changed[i].version, info->last);
        return text;
    }
    return NULL;
}

const wok_op_impl *const *wok_op_impls(wok_op op) {
    return op > WOK_OP_UNKNOWN && op < WOK_OP_COUNT ? impls_of[op] : NULL;
}

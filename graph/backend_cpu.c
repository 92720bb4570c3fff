/* backend_cpu.c - this machine's own processor. */
#include "backend.h"

const wok_backend wok_backend_cpu = {
    .name = "cpu",
    .device = WOK_DEVICE_CPU,
    .impls = wok_op_impls,
    .alloc = wok_ctx_alloc,
    .release = wok_ctx_release,
};

/* cpu.h - detection as a pure function, so that it can be tested with made-up processors (internal). */
#ifndef WOK_CPU_H
#define WOK_CPU_H

#include "wok_kernels.h"

typedef struct wok_cpuid {
    uint32_t leaf1_ecx, leaf7_ebx, leaf7_ecx, leaf7_edx, leaf7_1_eax;
    uint64_t xcr0;        /* 0 where OSXSAVE is clear */
    bool tiles_permitted; /* the kernel granted AMX tile data */
} wok_cpuid;

wok_isa_set wok_isa_from_cpuid(const wok_cpuid *id);

#endif

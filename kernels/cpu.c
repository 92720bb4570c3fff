/* cpu.c - what this processor and its operating system can run.
 *
 * Detection is a pure function of the CPUID leaves and XCR0 (wok_isa_from_cpuid, tested with made-up processors), so a
 * hypervisor that advertises AVX-512 without enabling its registers is seen. Bits are read one by one, never a model
 * number: virtual machines mix them. AMX needs the kernel's permission as well, asked for once (Linux,
 * arch/x86/kernel/fpu: ARCH_REQ_XCOMP_PERM). */
#define _GNU_SOURCE
#include "cpu.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct {
    const char *name, *text;
    wok_isa_set allows;
} levels[WOK_ISA_COUNT] = {
#define WOK_ISA_LEVEL(name, arch, allows, text) {#name, text, allows},
#include "isa.def"
#undef WOK_ISA_LEVEL
};

#define BIT(word, n) ((word) >> (n)&1u)
#define LEVEL(name) (1u << WOK_ISA_##name)

wok_isa_set wok_isa_from_cpuid(const wok_cpuid *id) {
    wok_isa_set set = LEVEL(ref);
    if (!BIT(id->leaf1_ecx, 27)) return set; /* OSXSAVE: XCR0 can be read */
    bool ymm = (id->xcr0 & 0x6) == 0x6, zmm = (id->xcr0 & 0xe6) == 0xe6, tile = (id->xcr0 & 0x60000) == 0x60000;
    bool avx2 = ymm && BIT(id->leaf1_ecx, 28) && BIT(id->leaf1_ecx, 12) && BIT(id->leaf1_ecx, 29) &&
                BIT(id->leaf7_ebx, 5); /* AVX, FMA, F16C, AVX2 */
    if (!avx2) return set;
    set |= LEVEL(avx2);
    if (BIT(id->leaf7_1_eax, 4)) set |= LEVEL(avxvnni);
    bool avx512 = zmm && BIT(id->leaf7_ebx, 16) && BIT(id->leaf7_ebx, 30) && BIT(id->leaf7_ebx, 17) &&
                  BIT(id->leaf7_ebx, 31) && BIT(id->leaf7_ebx, 28); /* F BW DQ VL CD */
    if (!avx512) return set;
    set |= LEVEL(avx512);
    if (!BIT(id->leaf7_ecx, 11)) return set; /* AVX512_VNNI */
    set |= LEVEL(avx512vnni);
    if (!BIT(id->leaf7_1_eax, 5)) return set; /* AVX512_BF16 */
    set |= LEVEL(avx512bf16);
    if (tile && BIT(id->leaf7_edx, 24) && id->tiles_permitted) set |= LEVEL(amx);
    return set;
}

static wok_cpu_features features;
static wok_isa_set detected;
static pthread_once_t once = PTHREAD_ONCE_INIT;

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#endif

static uint64_t read_xcr0(void) {
    uint32_t lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return (uint64_t)hi << 32 | lo;
}

/* ARCH_REQ_XCOMP_PERM for tile data; inherited by threads made later. */
static bool ask_for_tiles(void) {
#if defined(__linux__) && defined(SYS_arch_prctl)
    return syscall(SYS_arch_prctl, 0x1023, 18) == 0;
#else
    return false;
#endif
}

static void read_brand(void) {
    uint32_t r[12] = {0};
    if ((uint32_t)__get_cpuid_max(0x80000000u, NULL) < 0x80000004u) return;
    for (unsigned i = 0; i < 3; i++)
        __get_cpuid(0x80000002u + i, &r[4 * i], &r[4 * i + 1], &r[4 * i + 2], &r[4 * i + 3]);
    memcpy(features.brand, r, sizeof r);
    features.brand[sizeof r] = 0;
}

static void detect(void) {
    wok_cpuid id = {0};
    uint32_t a, b, c, d, vendor_b = 0, family = 0;
    if (__get_cpuid(0, &a, &vendor_b, &c, &d) && __get_cpuid(1, &a, &b, &id.leaf1_ecx, &d))
        family = (a >> 8 & 15) + (a >> 20 & 255);
    if (__get_cpuid_count(7, 0, &a, &id.leaf7_ebx, &id.leaf7_ecx, &id.leaf7_edx) && a >= 1)
        __get_cpuid_count(7, 1, &id.leaf7_1_eax, &b, &c, &d);
    if (BIT(id.leaf1_ecx, 27)) id.xcr0 = read_xcr0();
    if (BIT(id.leaf7_edx, 24) && (id.xcr0 & 0x60000) == 0x60000) id.tiles_permitted = ask_for_tiles();
    detected = wok_isa_from_cpuid(&id);
    features.avx512vbmi = detected & LEVEL(avx512) && BIT(id.leaf7_ecx, 1);
    features.amx_int8 = detected & LEVEL(amx) && BIT(id.leaf7_edx, 25);
    features.amx_bf16 = detected & LEVEL(amx) && BIT(id.leaf7_edx, 22);
    features.slow_zmm = vendor_b == signature_AMD_ebx && family == 25; /* Zen 4: 512-bit operations in two halves */
    read_brand();
}
#else
static void detect(void) { detected = LEVEL(ref); }
#endif

static size_t cache_bytes(int name) {
    long v = sysconf(name);
    return v > 0 ? (size_t)v : 0;
}

static void init(void) {
    detect();
#ifdef _SC_LEVEL1_DCACHE_SIZE
    features.l1d_bytes = cache_bytes(_SC_LEVEL1_DCACHE_SIZE);
    features.l2_bytes = cache_bytes(_SC_LEVEL2_CACHE_SIZE);
    features.l3_bytes = cache_bytes(_SC_LEVEL3_CACHE_SIZE);
#endif
}

wok_isa_set wok_cpu_isa(void) {
    pthread_once(&once, init);
    return detected;
}

const wok_cpu_features *wok_cpu(void) {
    pthread_once(&once, init);
    return &features;
}

const char *wok_isa_name(wok_isa isa) { return (unsigned)isa < WOK_ISA_COUNT ? levels[isa].name : "?"; }
const char *wok_isa_text(wok_isa isa) { return (unsigned)isa < WOK_ISA_COUNT ? levels[isa].text : "?"; }

static size_t list_levels(char *out, size_t size, wok_isa_set set) {
    size_t used = 0;
    for (int i = 0; i < WOK_ISA_COUNT; i++)
        if (set >> i & 1 && used < size)
            used += (size_t)snprintf(out + used, size - used, "%s%s", used ? " " : "", levels[i].name);
    return used;
}

const char *wok_cpu_select(const char *cap, wok_isa_set *set) {
    static _Thread_local char message[320];
    wok_isa_set found = wok_cpu_isa();
    *set = found;
    if (!cap || !*cap) return NULL;
    char have[160];
    list_levels(have, sizeof have, found);
    for (int i = 0; i < WOK_ISA_COUNT; i++) {
        if (strcmp(cap, levels[i].name) != 0) continue;
        if (found >> i & 1) {
            *set = found & levels[i].allows;
            return NULL;
        }
        *set = LEVEL(ref);
        snprintf(message, sizeof message, "WOK_ISA=%s: this processor cannot run it; it has %s", cap, have);
        return message;
    }
    *set = LEVEL(ref);
    snprintf(message, sizeof message, "WOK_ISA=%.40s is not an instruction-set level of wok; this processor has %s", cap,
             have);
    return message;
}

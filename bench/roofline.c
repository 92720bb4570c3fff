/* roofline.c - the two limits of this machine: multiply-adds from registers (floats, bytes), and what each level of memory
 * delivers.
 *
 * roofline [--seconds S]     one thread, best and median; WOK_ISA caps the level. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct region {
    const float *data;
    size_t floats;
} region;

static volatile float sink;

/* Eight sums: enough to keep the loads of a core busy without any instruction set of its own. */
static void read_all(void *arg) {
    const region *r = arg;
    float s[32] = {0};
    for (size_t i = 0; i + 32 <= r->floats; i += 32)
        for (int j = 0; j < 32; j++) s[j] += r->data[i + (size_t)j];
    for (int j = 1; j < 32; j++) s[0] += s[j];
    sink = s[0];
}

static void read_region(const char *name, size_t bytes, double seconds) {
    region r = {bench_floats(bytes / sizeof(float), 1), bytes / sizeof(float)};
    bench_entry e = {.name = name, .fn = read_all, .arg = &r};
    bench_contest(&e, 1, seconds, false);
    printf("read %-16s %8.1f MB  best %7.2f GB/s  median %7.2f GB/s\n", name, (double)bytes / 1e6,
           (double)bytes / e.best * 1e-9, (double)bytes / e.median * 1e-9);
    free((void *)(uintptr_t)r.data);
}

int main(int argc, char **argv) {
    double seconds = argc == 3 && strcmp(argv[1], "--seconds") == 0 ? atof(argv[2]) : 1.0, best, median;
    wok_isa_set isa = bench_isa();
    const wok_cpu_features *cpu = wok_cpu();
    printf("%s\n", cpu->brand);
    static const wok_isa fma_levels[] = {WOK_ISA_avx2, WOK_ISA_avx512};
    static const wok_isa s8_levels[] = {WOK_ISA_avx2, WOK_ISA_avxvnni, WOK_ISA_avx512vnni, WOK_ISA_amx};
    for (size_t i = 0; i < sizeof fma_levels / sizeof *fma_levels; i++) {
        if (!(isa >> fma_levels[i] & 1)) continue;
        bench_fma_peak(1u << fma_levels[i], seconds, &best, &median);
        printf("FMA f32 %-10s              best %7.2f GMAC/s median %7.2f GMAC/s\n", wok_isa_name(fma_levels[i]), best,
               median);
    }
    for (size_t i = 0; i < sizeof s8_levels / sizeof *s8_levels; i++) {
        if (!(isa >> s8_levels[i] & 1) || bench_s8_macs(1u << s8_levels[i]) == 0) continue;
        bench_s8_peak(1u << s8_levels[i], seconds, &best, &median);
        printf("bytes   %-10s              best %7.2f GMAC/s median %7.2f GMAC/s\n", wok_isa_name(s8_levels[i]), best,
               median);
    }
    size_t l1 = cpu->l1d_bytes ? cpu->l1d_bytes : 32 << 10, l2 = cpu->l2_bytes ? cpu->l2_bytes : 512 << 10;
    size_t l3 = cpu->l3_bytes ? cpu->l3_bytes : 16 << 20;
    read_region("half of L1", l1 / 2, seconds);
    read_region("half of L2", l2 / 2, seconds);
    read_region("a quarter of L3", l3 / 4, seconds);
    read_region("memory", l3 * 4 > 256u << 20 ? l3 * 4 : 256u << 20, seconds);
    return 0;
}

/* roofline.c - the two limits of this machine: multiply-adds from registers, and bytes from each level of memory.
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
    for (int i = 0; i < WOK_ISA_COUNT; i++) {
        if (!(isa >> i & 1) || (i != WOK_ISA_avx2 && i != WOK_ISA_avx512)) continue;
        bench_fma_peak(1u << i, seconds, &best, &median);
        printf("FMA f32 %-8s                best %7.2f GMAC/s median %7.2f GMAC/s\n", wok_isa_name((wok_isa)i), best, median);
    }
    size_t l1 = cpu->l1d_bytes ? cpu->l1d_bytes : 32 << 10, l2 = cpu->l2_bytes ? cpu->l2_bytes : 512 << 10;
    size_t l3 = cpu->l3_bytes ? cpu->l3_bytes : 16 << 20;
    read_region("half of L1", l1 / 2, seconds);
    read_region("half of L2", l2 / 2, seconds);
    read_region("a quarter of L3", l3 / 4, seconds);
    read_region("memory", l3 * 4 > 256u << 20 ? l3 * 4 : 256u << 20, seconds);
    return 0;
}

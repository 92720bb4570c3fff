/* test_cpu.c - instruction-set detection as a pure function, on processors that do not exist here, and the WOK_ISA rule. */
#include "cpu.h"

#include <criterion/criterion.h>
#include <string.h>

#define LEVEL(name) (1u << WOK_ISA_##name)

enum {
    /* leaf 1 ecx */
    FMA = 1 << 12, OSXSAVE = 1 << 27, AVX = 1 << 28, F16C = 1 << 29,
    LEAF1 = FMA | OSXSAVE | AVX | F16C,
    /* leaf 7 ebx */
    AVX2 = 1 << 5, AVX512F = 1 << 16, AVX512DQ = 1 << 17, AVX512CD = 1 << 28, AVX512BW = 1 << 30,
    /* leaf 7 ecx, edx; leaf 7.1 eax */
    VNNI = 1 << 11, VBMI = 1 << 1,
    AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24, AMX_INT8 = 1 << 25,
    AVX_VNNI = 1 << 4, AVX512_BF16 = 1 << 5,
    /* xcr0 */
    X87_SSE = 3, YMM = 7, ZMM = 0xe7, TILES = 0x60000 | ZMM
};
#define AVX512VL (1u << 31)
#define AVX512 (AVX2 | AVX512F | AVX512DQ | AVX512CD | AVX512BW | AVX512VL)

/* A Sapphire Rapids whose operating system has enabled everything. */
static wok_cpuid everything(void) {
    return (wok_cpuid){.leaf1_ecx = LEAF1,
                       .leaf7_ebx = AVX512,
                       .leaf7_ecx = VNNI | VBMI,
                       .leaf7_edx = AMX_BF16 | AMX_TILE | AMX_INT8,
                       .leaf7_1_eax = AVX_VNNI | AVX512_BF16,
                       .xcr0 = TILES,
                       .tiles_permitted = true};
}

static const wok_isa_set up_to_avx2 = LEVEL(ref) | LEVEL(avx2) | LEVEL(avxvnni);
static const wok_isa_set up_to_bf16 =
    LEVEL(ref) | LEVEL(avx2) | LEVEL(avxvnni) | LEVEL(avx512) | LEVEL(avx512vnni) | LEVEL(avx512bf16);

#define EXPECT(change, expected)                                                                                           \
    do {                                                                                                                   \
        wok_cpuid id = everything();                                                                                       \
        change;                                                                                                            \
        cr_expect_eq(wok_isa_from_cpuid(&id), (wok_isa_set)(expected), "%s gives 0x%x, expected 0x%x", #change,            \
                     wok_isa_from_cpuid(&id), (unsigned)(expected));                                                       \
    } while (0)

/* B61: CPUID says yes, the operating system or the hypervisor says no. */
Test(cpu, register_state_that_the_system_did_not_enable) {
    EXPECT((void)0, up_to_bf16 | LEVEL(amx));
    EXPECT(id.xcr0 = X87_SSE, LEVEL(ref));
    EXPECT(id.xcr0 = YMM, up_to_avx2);
    EXPECT(id.xcr0 = ZMM, up_to_bf16);
    EXPECT(id.xcr0 = ZMM & ~0x20, up_to_avx2); /* opmask off */
    EXPECT(id.xcr0 = ZMM & ~0x40, up_to_avx2); /* upper halves off */
    EXPECT(id.xcr0 = ZMM & ~0x80, up_to_avx2); /* zmm16..31 off */
    EXPECT(id.xcr0 = TILES & ~0x20000, up_to_bf16);
    EXPECT(id.xcr0 = TILES & ~0x40000, up_to_bf16);
    EXPECT(id.leaf1_ecx &= ~(uint32_t)OSXSAVE, LEVEL(ref));
    EXPECT((id.leaf1_ecx &= ~(uint32_t)OSXSAVE, id.xcr0 = 0), LEVEL(ref));
    EXPECT(id.tiles_permitted = false, up_to_bf16);
}

/* Each bit on its own: virtual machines and hybrid parts mix them. */
Test(cpu, every_bit_counts) {
    EXPECT(id.leaf1_ecx &= ~(uint32_t)AVX, LEVEL(ref));
    EXPECT(id.leaf1_ecx &= ~(uint32_t)FMA, LEVEL(ref));
    EXPECT(id.leaf1_ecx &= ~(uint32_t)F16C, LEVEL(ref));
    EXPECT(id.leaf7_ebx &= ~(uint32_t)AVX2, LEVEL(ref));
    EXPECT(id.leaf7_ebx &= ~(uint32_t)AVX512F, up_to_avx2);
    EXPECT(id.leaf7_ebx &= ~(uint32_t)AVX512DQ, up_to_avx2);
    EXPECT(id.leaf7_ebx &= ~(uint32_t)AVX512CD, up_to_avx2);
    EXPECT(id.leaf7_ebx &= ~(uint32_t)AVX512BW, up_to_avx2);
    EXPECT(id.leaf7_ebx &= ~AVX512VL, up_to_avx2);
    EXPECT(id.leaf7_ecx &= ~(uint32_t)VNNI, up_to_avx2 | LEVEL(avx512));
    EXPECT(id.leaf7_1_eax &= ~(uint32_t)AVX512_BF16, up_to_avx2 | LEVEL(avx512) | LEVEL(avx512vnni));
    EXPECT(id.leaf7_edx &= ~(uint32_t)AMX_TILE, up_to_bf16);
    EXPECT(id.leaf7_1_eax &= ~(uint32_t)AVX_VNNI, (up_to_bf16 | LEVEL(amx)) & ~LEVEL(avxvnni)); /* Zen 4 and its like */
    EXPECT(id = (wok_cpuid){0}, LEVEL(ref));
}

Test(cpu, detection_is_stable_and_holds_ref) {
    wok_isa_set set = wok_cpu_isa();
    cr_expect(set & LEVEL(ref));
    cr_expect_eq(set, wok_cpu_isa());
    cr_expect_not_null(wok_cpu());
    cr_expect_eq(wok_cpu()->brand[sizeof wok_cpu()->brand - 1], 0);
    if (wok_cpu()->avx512vbmi) cr_expect(set & LEVEL(avx512));
    if (wok_cpu()->amx_int8 || wok_cpu()->amx_bf16) cr_expect(set & LEVEL(amx));
}

Test(cpu, no_cap_means_everything) {
    wok_isa_set set = 0;
    cr_expect_null(wok_cpu_select(NULL, &set));
    cr_expect_eq(set, wok_cpu_isa());
    set = 0;
    cr_expect_null(wok_cpu_select("", &set));
    cr_expect_eq(set, wok_cpu_isa());
}

Test(cpu, ref_can_always_be_forced) {
    wok_isa_set set = 0;
    cr_expect_null(wok_cpu_select("ref", &set));
    cr_expect_eq(set, LEVEL(ref));
}

/* A forced level is what it says or an error that names what was found; never a quiet fall-back. */
Test(cpu, every_level_is_granted_or_refused_by_name) {
    for (int isa = 0; isa < WOK_ISA_COUNT; isa++) {
        wok_isa_set set = 0;
        const char *name = wok_isa_name((wok_isa)isa), *problem = wok_cpu_select(name, &set);
        if (wok_cpu_isa() >> isa & 1) {
            cr_expect_null(problem);
            cr_expect(set >> isa & 1, "%s does not allow itself", name);
            cr_expect_eq(set & ~wok_cpu_isa(), 0u);
            cr_expect(set & LEVEL(ref));
        } else {
            cr_assert_not_null(problem);
            cr_expect_eq(set, LEVEL(ref));
            cr_expect_not_null(strstr(problem, name));
            cr_expect_not_null(strstr(problem, "ref"), "the message does not name what was found: %s", problem);
        }
    }
}

Test(cpu, unknown_levels_are_errors) {
    static const char *const unknown[] = {"sse9", "AVX2", "avx", "avx2 ", " ref", "?",
                                          "a name that is much too long to be printed whole in any message of one line"};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        wok_isa_set set = 0;
        const char *problem = wok_cpu_select(unknown[i], &set);
        cr_assert_not_null(problem, "'%s' was accepted", unknown[i]);
        cr_expect_eq(set, LEVEL(ref));
        cr_expect_not_null(strstr(problem, "ref"));
    }
}

Test(cpu, names) {
    cr_expect_str_eq(wok_isa_name(WOK_ISA_ref), "ref");
    cr_expect_str_eq(wok_isa_name(WOK_ISA_avx512vnni), "avx512vnni");
    cr_expect_str_eq(wok_isa_name(WOK_ISA_COUNT), "?");
    cr_expect_str_eq(wok_isa_name((wok_isa)-1), "?");
    cr_expect_str_eq(wok_isa_text(WOK_ISA_COUNT), "?");
}

/* The registry: best first, the reference last and once, levels and flags as promised. */
Test(registry, lists_are_well_formed) {
    for (int f = 0; f < WOK_FAMILY_COUNT; f++) {
        int count;
        const wok_kernel *const *list = wok_kernel_list((wok_family)f, &count);
        const char *family = wok_family_name((wok_family)f);
        if (count == 0) continue;
        cr_assert_not_null(list);
        for (int i = 0; i < count; i++) {
            cr_expect_eq(strncmp(list[i]->name, "wok_", 4), 0);
            cr_expect_not_null(strstr(list[i]->name, family), "%s is not named after %s", list[i]->name, family);
            cr_expect_not_null(list[i]->accept);
            cr_expect_eq((list[i]->flags & WOK_KERNEL_REFERENCE) != 0, i == count - 1, "%s", list[i]->name);
            for (int j = 0; j < i; j++) cr_expect_str_neq(list[i]->name, list[j]->name);
        }
        cr_expect_eq(list[count - 1]->isa, WOK_ISA_ref);
    }
    int count = 1;
    cr_expect_null(wok_kernel_list(WOK_FAMILY_COUNT, &count));
    cr_expect_eq(count, 0);
    cr_expect_str_eq(wok_family_name(WOK_FAMILY_COUNT), "?");
}

static void note_reason(void *user, const wok_kernel *kernel, const char *reason) {
    cr_expect_not_null(reason);
    cr_expect_not_null(kernel);
    ++*(int *)user;
}

Test(registry, selection_reports_every_variant_passed_over) {
    wok_gemm_f32_problem problem = {.n = 5, .k = 7};
    int count, rejected = 0;
    wok_kernel_list(WOK_FAMILY_gemm_f32, &count);
    const wok_gemm_f32_kernel *kernel = wok_gemm_f32_select(LEVEL(ref), &problem, note_reason, &rejected);
    cr_assert_not_null(kernel);
    cr_expect_eq(kernel->base.isa, WOK_ISA_ref);
    cr_expect(rejected <= count - 1);
    problem.n = 0;
    rejected = 0;
    cr_expect_null(wok_gemm_f32_select(wok_cpu_isa(), &problem, note_reason, &rejected));
    cr_expect_eq(rejected, count);
    problem = (wok_gemm_f32_problem){.n = INT64_MAX / 2, .k = INT64_MAX / 2};
    cr_expect_null(wok_gemm_f32_select(wok_cpu_isa(), &problem, NULL, NULL), "the packed size overflows");
}

/* check_bench.c - the table behind `checkwok --bench`: time, rate, ratio to the reference and to the next lower level.
 *
 * The harness goes through all variants of a family several times and the best time of each wins, so that a busy moment
 * of the machine does not fall on one variant alone. */
#include "checkwok.h"

#include <stdio.h>
#include <string.h>

enum { ROWS = 1024 };
static struct row {
    const wok_kernel *kernel;
    char text[96];
    double seconds, work;
    char unit[8];
    bool gate;
} rows[ROWS];
static int row_count;

static const wok_isa_set allowed_by[WOK_ISA_COUNT] = {
#define WOK_ISA_LEVEL(name, arch, allows, text) allows,
#include "isa.def"
#undef WOK_ISA_LEVEL
};

static const double gate_ratio = 1.3;

void check_bench_reset(void) { row_count = 0; }

void check_bench_record(const wok_kernel *kernel, const char *text, double seconds, double work, const char *unit,
                        bool gate) {
    for (int i = 0; i < row_count; i++) {
        if (rows[i].kernel != kernel || strcmp(rows[i].text, text) != 0) continue;
        if (seconds < rows[i].seconds) rows[i].seconds = seconds;
        return;
    }
    if (row_count == ROWS) return;
    struct row *r = &rows[row_count++];
    *r = (struct row){.kernel = kernel, .seconds = seconds, .work = work, .gate = gate};
    snprintf(r->text, sizeof r->text, "%s", text);
    snprintf(r->unit, sizeof r->unit, "%s", unit);
}

static bool is_blas(const struct row *r) { return r->kernel->flags & WOK_KERNEL_NONDETERMINISTIC; }

/* The best row of this shape on `isa`, BLAS aside. */
static const struct row *best_on(const char *text, wok_isa isa) {
    const struct row *best = NULL;
    for (int i = 0; i < row_count; i++)
        if (strcmp(rows[i].text, text) == 0 && rows[i].kernel->isa == isa && !is_blas(&rows[i]) &&
            (!best || rows[i].seconds < best->seconds))
            best = &rows[i];
    return best;
}

/* Levels are listed from low to high; the next lower one that was measured and that this level includes. */
static const struct row *next_lower(const struct row *r) {
    for (int isa = (int)r->kernel->isa - 1; isa >= 0; isa--) {
        const struct row *lower = best_on(r->text, (wok_isa)isa);
        if (lower && allowed_by[r->kernel->isa] >> isa & 1) return lower;
    }
    return NULL;
}

static bool exempt(const struct row *r, const struct row *lower) {
    return wok_cpu()->slow_zmm && r->kernel->isa >= WOK_ISA_avx512 && r->kernel->isa <= WOK_ISA_avx512bf16 &&
           lower->kernel->isa == WOK_ISA_avx2;
}

/* Only the level's best variant of a shape is held to the gate: a family may keep a second tile for other shapes. */
static bool gate_fails(const struct row *r, const struct row *lower) {
    return r->gate && lower && !is_blas(r) && best_on(r->text, r->kernel->isa) == r && !exempt(r, lower) &&
           lower->seconds < gate_ratio * r->seconds;
}

static int print_row(const struct row *r) {
    const struct row *lower = next_lower(r), *ref = best_on(r->text, WOK_ISA_ref);
    bool fails = gate_fails(r, lower);
    printf("  %-34s %-34s %10.2f us %9.2f %s/s", r->text, r->kernel->name, r->seconds * 1e6, r->work / r->seconds, r->unit);
    if (ref && r != ref) printf("  %6.2fx ref", ref->seconds / r->seconds);
    if (lower && lower != ref) printf("  %5.2fx %s", lower->seconds / r->seconds, wok_isa_name(lower->kernel->isa));
    printf("%s\n", fails ? "  FAIL: below 1.3x the next lower level" : "");
    return fails;
}

int check_bench_report(const char *family) {
    int failures = 0;
    if (row_count) printf("%s\n", family);
    for (int i = 0; i < row_count; i++) {
        bool seen = false;
        for (int j = 0; j < i; j++) seen |= strcmp(rows[j].text, rows[i].text) == 0;
        for (int j = i; !seen && j < row_count; j++)
            if (strcmp(rows[j].text, rows[i].text) == 0) failures += print_row(&rows[j]);
    }
    return failures;
}

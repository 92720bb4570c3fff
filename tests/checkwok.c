/* checkwok.c - tests and benches every registered kernel variant against its reference (see checkwok.h).
 *
 * checkwok [--list] [--family NAME] [--kernel NAME] [--isa LEVEL] [--case TEXT] [--seed N] [--sample N]
 *          [--bench] [--selftest]
 * Exit status: 0 all well, 1 a failure, 2 wrong usage. WOK_ISA caps the levels as everywhere in wok. */
#define _GNU_SOURCE
#include "checkwok.h"
#include "guardbuf.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_BUFFERS = 64, PRINTED_PER_VARIANT = 5, PASSES = 3, BENCH_ROUNDS = 3 };

enum buffer_kind { INPUT, OUTPUT, WORKSPACE, SCRATCH };
static const char *const kind_names[] = {"input", "output", "workspace", "scratch"};
static const char *const pass_names[PASSES] = {"end-aligned, one thread", "start-aligned, shuffled tasks",
                                               "misaligned, real threads"};

struct buffer {
    guard_rect rect;
    enum buffer_kind kind;
    uint64_t hash; /* of an input, when it was sealed */
};

struct check {
    /* options */
    uint64_t seed;
    const char *only_family, *only_kernel, *only_case;
    int only_isa; /* -1: any */
    uint64_t sample;
    wok_isa_set allowed;
    /* totals */
    int64_t cases, failures;
    /* the variant */
    const char *family;
    const wok_kernel *kernel, *reference;
    int variant_failures;
    check_capture *capture;
    /* the case */
    char text[256];
    uint64_t random;
    int pass;
    bool failed, sealed;
    struct buffer buffers[MAX_BUFFERS];
    int buffer_count;
};

/* ASan must leave the signals that the harness catches to the harness. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "allow_user_segv_handler=1:handle_segv=1:detect_stack_use_after_return=0"; }

/* ---- random numbers ---------------------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t z) { /* splitmix64, Steele, Lea and Flood 2014 */
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

uint64_t check_random(check *c) { return mix(c->random += 0x9e3779b97f4a7c15u); }

static uint64_t hash_text(uint64_t h, const char *s) {
    for (; *s; s++) h = mix(h ^ (unsigned char)*s);
    return h;
}

/* ---- failures ---------------------------------------------------------------------------------------------------- */

static void capture_message(check_capture *capture, const char *message) {
    bool match = capture->wanted && strstr(message, capture->wanted);
    if (capture->matched || (capture->message[0] && !match)) return;
    capture->matched = match;
    snprintf(capture->message, sizeof capture->message, "%s", message);
}

void check_fail(check *c, const char *format, ...) {
    if (c->failed && !c->capture) return;
    c->failed = true;
    char message[512];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    if (c->capture) {
        capture_message(c->capture, message);
        return;
    }
    if (c->variant_failures == PRINTED_PER_VARIANT) printf("  (further failures of %s are only counted)\n", c->kernel->name);
    if (c->variant_failures >= PRINTED_PER_VARIANT) return;
    printf("FAIL %s [%s] (%s): %s\n  checkwok --seed 0x%llx --family %s --kernel %s --case \"%s\"\n", c->kernel->name, c->text,
           pass_names[c->pass], message, (unsigned long long)c->seed, c->family, c->kernel->name, c->text);
    fflush(stdout);
}

bool check_accepts(check *c, const wok_kernel *kernel, const void *problem) {
    const char *reason = kernel->accept(problem);
    if (reason && (kernel->flags & WOK_KERNEL_REFERENCE)) {
        snprintf(c->text, sizeof c->text, "accept");
        c->failed = false;
        check_fail(c, "the reference refuses a valid problem: %s", reason);
        c->variant_failures++;
    }
    return !reason;
}

/* ---- buffers ----------------------------------------------------------------------------------------------------- */

static void *new_buffer(check *c, enum buffer_kind kind, int64_t rows, size_t row_bytes, size_t stride, int offset,
                        size_t align) {
    struct buffer *b = &c->buffers[c->buffer_count];
    if (c->buffer_count == MAX_BUFFERS || !guard_new(&b->rect, rows, row_bytes, stride, offset, align)) {
        fprintf(stderr, "checkwok: out of memory or of buffers in case [%s]\n", c->text);
        exit(2);
    }
    b->kind = kind;
    c->buffer_count++;
    return b->rect.data;
}

/* Elements are at most 4 bytes wide; their size shows in the row and the stride. */
static size_t element_bytes(size_t row_bytes, size_t stride) {
    size_t bits = row_bytes | stride | 4;
    return bits & (~bits + 1);
}

static void *new_rows(check *c, enum buffer_kind kind, int64_t rows, size_t row_bytes, size_t stride) {
    size_t element = element_bytes(row_bytes, stride);
    int offset = c->pass == 0 ? GUARD_END : c->pass == 1 ? 0 : (int)(element * (1 + 2 * (size_t)(c->buffer_count % 7)));
    return new_buffer(c, kind, rows, row_bytes, stride, offset, 1);
}

void *check_input(check *c, int64_t rows, size_t row_bytes, size_t stride) {
    if (c->sealed) check_fail(c, "the check itself is wrong: check_input() after check_seal()");
    return new_rows(c, INPUT, rows, row_bytes, stride);
}

void *check_output(check *c, int64_t rows, size_t row_bytes, size_t stride) {
    return new_rows(c, OUTPUT, rows, row_bytes, stride);
}

void *check_workspace(check *c, size_t bytes) {
    return new_buffer(c, WORKSPACE, 1, bytes, bytes, c->pass == 0 ? GUARD_END : c->pass == 1 ? 0 : 64, 64);
}

void *check_scratch(check *c, size_t bytes) {
    void *p = new_buffer(c, SCRATCH, 1, bytes, bytes, GUARD_END, 64);
    if (bytes) memset(p, 0, bytes);
    return p;
}

void check_seal(check *c) {
    c->sealed = true;
    for (int i = 0; i < c->buffer_count; i++)
        if (c->buffers[i].kind == INPUT) c->buffers[i].hash = guard_hash(&c->buffers[i].rect);
}

const wok_parallel *check_parallel(const check *c) {
    return c->pass == 0 ? NULL : c->pass == 1 ? &check_shuffled : &check_threaded;
}

static void free_buffers(check *c) {
    for (int i = 0; i < c->buffer_count; i++) guard_free(&c->buffers[i].rect);
    c->buffer_count = 0;
}

static void inspect_buffers(check *c) {
    for (int i = 0; i < c->buffer_count; i++) {
        const struct buffer *b = &c->buffers[i];
        const unsigned char *damage = guard_damage(&b->rect);
        if (damage)
            check_fail(c, "write outside the rows of buffer %d (%s, %lld rows of %zu bytes, stride %zu), at byte %td", i,
                       kind_names[b->kind], (long long)b->rect.rows, b->rect.row_bytes, b->rect.stride_bytes,
                       damage - b->rect.data);
        if (b->kind == INPUT && guard_hash(&b->rect) != b->hash) check_fail(c, "the kernel changed its input, buffer %d", i);
    }
}

static uint64_t hash_outputs(const check *c) {
    uint64_t h = 0;
    for (int i = 0; i < c->buffer_count; i++)
        if (c->buffers[i].kind == OUTPUT) h = mix(h ^ guard_hash(&c->buffers[i].rect));
    return h;
}

/* ---- one case ---------------------------------------------------------------------------------------------------- */

static void describe_signal(check *c, const check_signal *s) {
    const char *name = s->number == SIGSEGV ? "SIGSEGV" : s->number == SIGBUS ? "SIGBUS" : s->number == SIGILL ? "SIGILL" : "SIGFPE";
    for (int i = 0; i < c->buffer_count; i++) {
        const struct buffer *b = &c->buffers[i];
        if (s->number == SIGILL || !guard_owns(&b->rect, s->address)) continue;
        check_fail(c, "%s: guard page of buffer %d (%s, %lld rows of %zu bytes, stride %zu) touched at byte %td", name, i,
                   kind_names[b->kind], (long long)b->rect.rows, b->rect.row_bytes, b->rect.stride_bytes,
                   (const unsigned char *)s->address - b->rect.data);
        return;
    }
    check_fail(c, "%s at address %p", name, s->address);
}

struct call {
    check *c;
    check_case_fn fn;
    const void *arg;
};

static void call_case(void *arg) {
    struct call *call = arg;
    call->fn(call->c, call->arg);
}

static void run_pass(check *c, check_case_fn fn, const void *arg, uint64_t *hash) {
    c->random = hash_text(hash_text(c->seed, c->family), c->text);
    c->sealed = false;
    uint64_t control = check_fp_control();
    check_signal signal;
    bool survived = check_trap(call_case, &(struct call){c, fn, arg}, &signal);
    uint64_t control_after = check_fp_control();
    check_set_fp_control(control);
    if (!survived) describe_signal(c, &signal);
    else if (!c->sealed) check_fail(c, "the check itself is wrong: no check_seal()");
    else inspect_buffers(c);
    if (survived && control_after != control) check_fail(c, "the floating-point control word was left changed");
    *hash = hash_outputs(c);
    free_buffers(c);
}

void check_run(check *c, check_case_fn fn, const void *arg, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(c->text, sizeof c->text, format, args);
    va_end(args);
    if (c->only_case && strcmp(c->only_case, c->text) != 0) return;
    if (c->capture && c->capture->matched) return;
    if (c->sample > 1 && hash_text(c->seed, c->text) % c->sample != 0) return;
    c->cases++;
    c->failed = false;
    uint64_t first = 0, hash, outer = c->random;
    for (c->pass = 0; c->pass < PASSES && !c->failed; c->pass++) {
        run_pass(c, fn, arg, c->pass == 0 ? &first : &hash);
        if (c->pass > 0 && !c->failed && hash != first && !(c->kernel->flags & WOK_KERNEL_NONDETERMINISTIC))
            check_fail(c, "the bits are not those of the first pass (%s)", pass_names[0]);
    }
    c->pass = 0;
    c->random = outer; /* shapes drawn between cases do not depend on which cases are run */
    if (c->failed) c->variant_failures++;
}

int check_variant(check *c, const char *family, check_variant_fn fn, const wok_kernel *kernel, const wok_kernel *reference,
                  check_capture *capture) {
    c->family = family;
    c->kernel = kernel;
    c->reference = reference;
    c->variant_failures = 0;
    c->capture = capture;
    c->random = hash_text(c->seed, family);
    fn(c, kernel, reference);
    c->capture = NULL;
    return c->variant_failures;
}

/* ---- benchmarks -------------------------------------------------------------------------------------------------- */

static double clock_seconds(clockid_t id) {
    struct timespec t;
    clock_gettime(id, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double now(void) { return clock_seconds(CLOCK_MONOTONIC); }

/* What neighbours on the machine take from a thread does not count. */
static double cpu_now(void) { return clock_seconds(CLOCK_THREAD_CPUTIME_ID); }

struct timing {
    void (*fn)(void *arg);
    void *arg;
    double best;
};

static void time_calls(void *arg) {
    struct timing *t = arg;
    double begin = cpu_now();
    t->fn(t->arg);
    double once = cpu_now() - begin;
    int64_t calls = once < 100e-6 ? (int64_t)(100e-6 / (once + 1e-9)) + 1 : 1; /* the clock costs some 300 ns */
    begin = now();
    for (int repeat = 0; repeat < 3 || (now() - begin < 0.06 && repeat < 2000); repeat++) {
        double start = cpu_now();
        for (int64_t i = 0; i < calls; i++) t->fn(t->arg);
        double seconds = (cpu_now() - start) / (double)calls;
        if (repeat == 0 || seconds < t->best) t->best = seconds;
    }
}

void check_bench(check *c, void (*fn)(void *arg), void *arg, double work, const char *unit, bool gate, const char *format,
                 ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(c->text, sizeof c->text, format, args);
    va_end(args);
    if (c->only_case && strcmp(c->only_case, c->text) != 0) return;
    struct timing timing = {.fn = fn, .arg = arg};
    c->failed = false;
    check_signal signal;
    if (check_trap(time_calls, &timing, &signal)) {
        check_bench_record(c->kernel, c->text, timing.best, work, unit, gate);
        return;
    }
    describe_signal(c, &signal);
    c->variant_failures++;
}

/* ---- families and the command line ------------------------------------------------------------------------------- */

static const struct {
    check_variant_fn check, bench;
} families[WOK_FAMILY_COUNT] = {
#define WOK_FAMILY(name, text) {check_##name, bench_##name},
#include "wok_families.def"
#undef WOK_FAMILY
};

/* Kernels of this program only, which do without instructions that the machine may lack (twin_*.c): the AMX ones over plain
 * C instead of tiles, the VNNI ones with several instructions in place of one. */
extern const wok_gemm_s8_kernel wok_gemm_s8_32x32__twin;
extern const wok_conv_s8_kernel wok_conv_s8_32x32__twin;
#if defined(__x86_64__)
extern const wok_gemm_s8_kernel wok_gemm_s8_6x16__twin, wok_gemm_s8_8x48__twin;
#endif
static const struct {
    wok_family family;
    const wok_kernel *kernel;
} twins[] = {
#if defined(__x86_64__)
    {WOK_FAMILY_gemm_s8, &wok_gemm_s8_6x16__twin.base},
    {WOK_FAMILY_gemm_s8, &wok_gemm_s8_8x48__twin.base},
#endif
    {WOK_FAMILY_gemm_s8, &wok_gemm_s8_32x32__twin.base},
    {WOK_FAMILY_conv_s8, &wok_conv_s8_32x32__twin.base},
};

static bool wanted(const check *c, const wok_kernel *kernel) {
    return (c->allowed >> kernel->isa & 1) && (c->only_isa < 0 || (int)kernel->isa == c->only_isa) &&
           (!c->only_kernel || strcmp(c->only_kernel, kernel->name) == 0);
}

static void check_one(check *c, wok_family family, const wok_kernel *kernel, const wok_kernel *reference) {
    if (!wanted(c, kernel)) return;
    int64_t before = c->cases;
    double begin = now();
    int failures = check_variant(c, wok_family_name(family), families[family].check, kernel, reference, NULL);
    c->failures += failures;
    printf("%-9s %-36s %6lld cases %6.2f s%s\n", wok_family_name(family), kernel->name, (long long)(c->cases - before),
           now() - begin, failures ? "  FAILED" : "");
    fflush(stdout);
    if (c->cases == before && !c->only_case && c->sample <= 1) {
        printf("FAIL %s: no case was run\n", kernel->name);
        c->failures++;
    }
}

static void check_family(check *c, wok_family family) {
    int count;
    const wok_kernel *const *list = wok_kernel_list(family, &count);
    for (int i = 0; i < count; i++) check_one(c, family, list[i], list[count - 1]);
    for (size_t i = 0; i < sizeof twins / sizeof *twins; i++)
        if (twins[i].family == family) check_one(c, family, twins[i].kernel, list[count - 1]);
}

/* Present where OpenBLAS is linked: its threads are not counted by the clock of this thread. */
void openblas_set_num_threads(int threads) __attribute__((weak));

static void bench_family(check *c, wok_family family) {
    int count;
    if (openblas_set_num_threads) openblas_set_num_threads(1);
    const wok_kernel *const *list = wok_kernel_list(family, &count);
    check_bench_reset();
    for (int round = 0; round < BENCH_ROUNDS; round++)
        for (int i = 0; i < count; i++) {
            if (!wanted(c, list[i])) continue;
            c->family = wok_family_name(family);
            c->kernel = list[i];
            c->reference = list[count - 1];
            c->variant_failures = 0;
            families[family].bench(c, list[i], list[count - 1]);
            c->failures += c->variant_failures;
            free_buffers(c);
        }
    c->failures += check_bench_report(wok_family_name(family));
    fflush(stdout);
}

static void list_variants(const check *c) {
    for (int f = 0; f < WOK_FAMILY_COUNT; f++) {
        int count;
        const wok_kernel *const *list = wok_kernel_list((wok_family)f, &count);
        for (int i = 0; i < count; i++)
            printf("%-9s %-10s %-40s %s%s\n", wok_family_name((wok_family)f), wok_isa_name(list[i]->isa), list[i]->name,
                   c->allowed >> list[i]->isa & 1 ? "" : "(not on this machine)",
                   list[i]->flags & WOK_KERNEL_NONDETERMINISTIC ? "(may differ in bits from run to run)" : "");
    }
}

static int usage(const char *problem) {
    fprintf(stderr, "checkwok: %s\nusage: checkwok [--list] [--family NAME] [--kernel NAME] [--isa LEVEL] [--case TEXT]\n"
                    "                [--seed N] [--sample N] [--bench] [--selftest]\n", problem);
    return 2;
}

static int isa_by_name(const char *name) {
    for (int i = 0; i < WOK_ISA_COUNT; i++)
        if (strcmp(name, wok_isa_name((wok_isa)i)) == 0) return i;
    return -1;
}

int main(int argc, char **argv) {
    static check state = {.only_isa = -1, .sample = 1};
    check *c = &state;
    bool list = false, bench = false, selftest = false;
    c->seed = mix((uint64_t)time(NULL)) & 0xffffffffu;
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(name, "--list") == 0) list = true;
        else if (strcmp(name, "--bench") == 0) bench = true;
        else if (strcmp(name, "--selftest") == 0) selftest = true;
        else if (!value) return usage("an option is unknown or lacks its value");
        else {
            i++;
            if (strcmp(name, "--family") == 0) c->only_family = value;
            else if (strcmp(name, "--kernel") == 0) c->only_kernel = value;
            else if (strcmp(name, "--case") == 0) c->only_case = value;
            else if (strcmp(name, "--seed") == 0) c->seed = strtoull(value, NULL, 0);
            else if (strcmp(name, "--sample") == 0) c->sample = strtoull(value, NULL, 0);
            else if (strcmp(name, "--isa") == 0) {
                if ((c->only_isa = isa_by_name(value)) < 0) return usage("--isa: no such level");
            } else return usage("unknown option");
        }
    }
    check_trap_install();
    const char *problem = wok_cpu_select(getenv("WOK_ISA"), &c->allowed);
    if (problem) return usage(problem);
    if (c->only_isa >= 0 && !(c->allowed >> c->only_isa & 1)) return usage("--isa: this machine cannot run it");
    if (list) return list_variants(c), 0;

    printf("checkwok: seed 0x%llx\n", (unsigned long long)c->seed);
    if (selftest) c->failures = check_selftest(c);
    bool known = !c->only_family;
    for (int f = 0; f < WOK_FAMILY_COUNT && !selftest; f++) {
        if (c->only_family && strcmp(c->only_family, wok_family_name((wok_family)f)) != 0) continue;
        known = true;
        if (bench) bench_family(c, (wok_family)f);
        else check_family(c, (wok_family)f);
    }
    guard_release_all();
    if (!known) return usage("--family: no such family");
    if (!selftest && !bench && c->cases == 0) {
        printf("checkwok: nothing matches\n");
        return 1;
    }
    printf("checkwok: %lld cases, %lld failures\n", (long long)c->cases, (long long)c->failures);
    return c->failures ? 1 : 0;
}

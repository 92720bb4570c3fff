/* bench_conv.c - the convolutions of ResNet-18 and MobileNetV2 at 224x224, each layer with weights that are not in cache.
 *
 * bench_conv [--threads N] [--isa LEVEL] [--layer TEXT] [--ms N]
 *
 * For every distinct layer: microseconds (best of many), GMAC/s and the share of the FMA peak, on one thread and on N. The
 * peak is measured in this process just before each layer, a chain of register FMAs of the width that the kernel uses.
 * Layers rotate through copies of their packed weights (up to 48 MB), because in a network every layer finds the caches
 * full of other layers' weights. Totals count a layer as often as the network has it.
 */
#define _GNU_SOURCE
#include "ctx.h"
#include "wok_kernels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct layer {
    const char *model, *name;
    int times; /* in the model */
    int c_in, c_out, kernel, stride, size;
    bool depthwise;
} layer;

static const layer layers[] = {
    {"resnet18", "stem 7x7s2 3>64 @224", 1, 3, 64, 7, 2, 224, false},
    {"resnet18", "3x3 64>64 @56", 4, 64, 64, 3, 1, 56, false},
    {"resnet18", "3x3s2 64>128 @56", 1, 64, 128, 3, 2, 56, false},
    {"resnet18", "1x1s2 64>128 @56", 1, 64, 128, 1, 2, 56, false},
    {"resnet18", "3x3 128>128 @28", 3, 128, 128, 3, 1, 28, false},
    {"resnet18", "3x3s2 128>256 @28", 1, 128, 256, 3, 2, 28, false},
    {"resnet18", "1x1s2 128>256 @28", 1, 128, 256, 1, 2, 28, false},
    {"resnet18", "3x3 256>256 @14", 3, 256, 256, 3, 1, 14, false},
    {"resnet18", "3x3s2 256>512 @14", 1, 256, 512, 3, 2, 14, false},
    {"resnet18", "1x1s2 256>512 @14", 1, 256, 512, 1, 2, 14, false},
    {"resnet18", "3x3 512>512 @7", 3, 512, 512, 3, 1, 7, false},
    {"mobilenet_v2", "stem 3x3s2 3>32 @224", 1, 3, 32, 3, 2, 224, false},
    {"mobilenet_v2", "dw 32 @112", 1, 32, 32, 3, 1, 112, true},
    {"mobilenet_v2", "1x1 32>16 @112", 1, 32, 16, 1, 1, 112, false},
    {"mobilenet_v2", "1x1 16>96 @112", 1, 16, 96, 1, 1, 112, false},
    {"mobilenet_v2", "dw s2 96 @112", 1, 96, 96, 3, 2, 112, true},
    {"mobilenet_v2", "1x1 96>24 @56", 1, 96, 24, 1, 1, 56, false},
    {"mobilenet_v2", "1x1 24>144 @56", 2, 24, 144, 1, 1, 56, false},
    {"mobilenet_v2", "dw 144 @56", 1, 144, 144, 3, 1, 56, true},
    {"mobilenet_v2", "1x1 144>24 @56", 1, 144, 24, 1, 1, 56, false},
    {"mobilenet_v2", "dw s2 144 @56", 1, 144, 144, 3, 2, 56, true},
    {"mobilenet_v2", "1x1 144>32 @28", 1, 144, 32, 1, 1, 28, false},
    {"mobilenet_v2", "1x1 32>192 @28", 3, 32, 192, 1, 1, 28, false},
    {"mobilenet_v2", "dw 192 @28", 2, 192, 192, 3, 1, 28, true},
    {"mobilenet_v2", "1x1 192>32 @28", 2, 192, 32, 1, 1, 28, false},
    {"mobilenet_v2", "dw s2 192 @28", 1, 192, 192, 3, 2, 28, true},
    {"mobilenet_v2", "1x1 192>64 @14", 1, 192, 64, 1, 1, 14, false},
    {"mobilenet_v2", "1x1 64>384 @14", 4, 64, 384, 1, 1, 14, false},
    {"mobilenet_v2", "dw 384 @14", 4, 384, 384, 3, 1, 14, true},
    {"mobilenet_v2", "1x1 384>64 @14", 3, 384, 64, 1, 1, 14, false},
    {"mobilenet_v2", "1x1 384>96 @14", 1, 384, 96, 1, 1, 14, false},
    {"mobilenet_v2", "1x1 96>576 @14", 3, 96, 576, 1, 1, 14, false},
    {"mobilenet_v2", "dw 576 @14", 2, 576, 576, 3, 1, 14, true},
    {"mobilenet_v2", "1x1 576>96 @14", 2, 576, 96, 1, 1, 14, false},
    {"mobilenet_v2", "dw s2 576 @14", 1, 576, 576, 3, 2, 14, true},
    {"mobilenet_v2", "1x1 576>160 @7", 1, 576, 160, 1, 1, 7, false},
    {"mobilenet_v2", "1x1 160>960 @7", 3, 160, 960, 1, 1, 7, false},
    {"mobilenet_v2", "dw 960 @7", 3, 960, 960, 3, 1, 7, true},
    {"mobilenet_v2", "1x1 960>160 @7", 2, 960, 160, 1, 1, 7, false},
    {"mobilenet_v2", "1x1 960>320 @7", 1, 960, 320, 1, 1, 7, false},
    {"mobilenet_v2", "1x1 320>1280 @7", 1, 320, 1280, 1, 1, 7, false},
};
enum { LAYERS = sizeof layers / sizeof *layers, MAX_COPIES = 16 };
static const size_t rotated_bytes = 48u << 20;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- FMA peak ----------------------------------------------------------------------------------------------------- */

#if defined(__x86_64__)
typedef float f32x8 __attribute__((vector_size(32)));
typedef float f32x16 __attribute__((vector_size(64)));

/* 12 chains cover the latency of two FMA ports. */
#define FMA_CHAIN(i) __asm__ volatile("vfmadd231ps %1, %2, %0" : "+x"(acc[i]) : "x"(x), "x"(y));
#define EACH_CHAIN(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)

__attribute__((target("avx2,fma"))) static double fma_loop_256(int64_t steps) {
    f32x8 acc[12] = {0}, x = {1}, y = {1};
    for (int64_t i = 0; i < steps; i++) { EACH_CHAIN(FMA_CHAIN) }
    return (double)steps * 12 * 8;
}
#undef FMA_CHAIN
#define FMA_CHAIN(i) __asm__ volatile("vfmadd231ps %1, %2, %0" : "+v"(acc[i]) : "v"(x), "v"(y));
__attribute__((target("avx512f"))) static double fma_loop_512(int64_t steps) {
    f32x16 acc[12] = {0}, x = {1}, y = {1};
    for (int64_t i = 0; i < steps; i++) { EACH_CHAIN(FMA_CHAIN) }
    return (double)steps * 12 * 16;
}
#endif

typedef struct peak_run {
    wok_isa isa;
    double rate[WOK_MAX_THREADS];
} peak_run;

static void peak_task(void *arg, int64_t task, int worker) {
    (void)worker;
    peak_run *run = arg;
    run->rate[task] = 0;
#if defined(__x86_64__)
    if (run->isa == WOK_ISA_ref) return;
    for (int repeat = 0; repeat < 5; repeat++) {
        const double begin = now();
        const double work = run->isa == WOK_ISA_avx2 ? fma_loop_256(100000) : fma_loop_512(100000);
        run->rate[task] = fmax(run->rate[task], work / (now() - begin));
    }
#endif
}

/* MAC/s of all threads together; 0 where it is not known how to measure. */
static double fma_peak(wok_isa isa, const wok_parallel *parallel) {
    peak_run run = {.isa = isa};
    const int threads = parallel ? parallel->threads : 1;
    double sum = 0;
    if (parallel)
        parallel->run(parallel->self, peak_task, &run, threads);
    else
        peak_task(&run, 0, 0);
    for (int i = 0; i < threads; i++) sum += run.rate[i];
    return sum;
}

/* ---- one layer ---------------------------------------------------------------------------------------------------- */

typedef struct bench {
    const wok_conv_f32_kernel *conv;
    const wok_dwconv_kernel *dw;
    wok_conv_f32_problem conv_problem;
    wok_dwconv_problem dw_problem;
    wok_conv_f32_args conv_args;
    wok_dwconv_args dw_args;
    void *packed[MAX_COPIES];
    int copies;
} bench;

static void *allocate(size_t bytes) {
    void *p = aligned_alloc(64, (bytes + 64) / 64 * 64);
    if (!p) {
        fprintf(stderr, "bench_conv: out of memory\n");
        exit(1);
    }
    return p;
}

static float *random_floats(int64_t count) {
    static uint32_t state = 1;
    float *p = allocate((size_t)count * sizeof *p);
    for (int64_t i = 0; i < count; i++) p[i] = (float)((state = state * 1664525u + 1013904223u) >> 8) * 0x1p-23f - 1;
    return p;
}

static const wok_kernel *base(const bench *b) { return b->dw ? &b->dw->base : &b->conv->base; }

static bench prepare(const layer *l, wok_isa_set isa, int threads) {
    bench b = {0};
    const int size = l->size, pad = l->kernel / 2, out = (size + 2 * pad - l->kernel) / l->stride + 1;
    const int64_t weights = (int64_t)l->c_out * l->kernel * l->kernel * (l->depthwise ? 1 : l->c_in);
    b.conv_problem = (wok_conv_f32_problem){l->c_in, l->c_out, 1, l->kernel, l->kernel, l->stride, l->stride, 1, 1};
    b.dw_problem = (wok_dwconv_problem){l->c_out, l->kernel, l->kernel, l->stride, l->stride, 1, 1};
    if (l->depthwise)
        b.dw = wok_dwconv_select(isa, &b.dw_problem, NULL, NULL);
    else
        b.conv = wok_conv_f32_select(isa, &b.conv_problem, NULL, NULL);
    if (!b.dw && !b.conv) return b;

    const wok_epilogue_f32 epilogue = {.bias = random_floats(l->c_out), .act = WOK_ACT_CLAMP, .hi = 6};
    const float *x = random_floats((int64_t)size * size * l->c_in);
    float *y = random_floats((int64_t)out * out * l->c_out), *w = random_floats(weights);
    b.dw_args = (wok_dwconv_args){1, size, size, out, out, pad, pad, x, l->c_in, NULL, y, l->c_out, epilogue};
    b.conv_args = (wok_conv_f32_args){1, size, size, out, out, pad, pad, x, l->c_in, NULL, y, l->c_out, epilogue, NULL};
    size_t workspace = 0;
    if (b.conv) {
        workspace = b.conv->workspace_bytes(&b.conv_problem, &b.conv_args, 1);
        const size_t shared = b.conv->workspace_bytes(&b.conv_problem, &b.conv_args, threads);
        workspace = shared > workspace ? shared : workspace;
    }
    b.conv_args.workspace = allocate(workspace);
    const size_t bytes = b.dw ? b.dw->packed_bytes(&b.dw_problem) : b.conv->packed_bytes(&b.conv_problem);
    const size_t copies = rotated_bytes / bytes + 1;
    b.copies = copies < MAX_COPIES ? (int)copies : MAX_COPIES;
    for (int i = 0; i < b.copies; i++) {
        b.packed[i] = allocate(bytes);
        if (b.dw)
            b.dw->pack(&b.dw_problem, w, NULL, b.packed[i]);
        else
            b.conv->pack(&b.conv_problem, w, NULL, b.packed[i]);
    }
    free(w);
    return b;
}

static void release(bench *b) {
    for (int i = 0; i < b->copies; i++) free(b->packed[i]);
    free((void *)(uintptr_t)b->conv_args.x);
    free(b->conv_args.y);
    free((void *)(uintptr_t)b->conv_args.epilogue.bias);
    free(b->conv_args.workspace);
}

static double best_seconds(bench *b, const wok_parallel *parallel, double seconds) {
    double best = INFINITY;
    const double begin = now();
    for (int i = 0; i < 5 || now() - begin < seconds; i++) {
        b->dw_args.packed = b->conv_args.packed = b->packed[i % b->copies];
        const double start = now();
        if (b->dw)
            b->dw->run(&b->dw_problem, &b->dw_args, parallel);
        else
            b->conv->run(&b->conv_problem, &b->conv_args, parallel);
        best = fmin(best, now() - start);
    }
    return best;
}

static double measure(bench *b, const layer *l, const wok_parallel *parallel, double seconds) {
    const double peak = fma_peak(base(b)->isa, parallel), best = best_seconds(b, parallel, seconds);
    const int out = (l->size - 1) / l->stride + 1;
    const double macs = (double)out * out * l->c_out * l->kernel * l->kernel * (l->depthwise ? 1 : l->c_in);
    printf(" %9.1f us %7.1f GMAC/s", best * 1e6, macs / best * 1e-9);
    if (peak > 0)
        printf(" %4.0f %%", 100 * macs / best / peak);
    else
        printf("      ?");
    return best;
}

/* ---- the command line --------------------------------------------------------------------------------------------- */

typedef struct options {
    int threads;
    const char *isa, *layer;
    double seconds;
} options;

static bool parse(int argc, char **argv, options *o) {
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 == argc) return false;
        if (strcmp(argv[i], "--threads") == 0)
            o->threads = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--isa") == 0)
            o->isa = argv[i + 1];
        else if (strcmp(argv[i], "--layer") == 0)
            o->layer = argv[i + 1];
        else if (strcmp(argv[i], "--ms") == 0)
            o->seconds = 1e-3 * atof(argv[i + 1]);
        else
            return false;
    }
    return o->threads >= 0;
}

int main(int argc, char **argv) {
    options o = {.isa = getenv("WOK_ISA"), .seconds = 0.1};
    if (!parse(argc, argv, &o)) {
        fprintf(stderr, "usage: bench_conv [--threads N] [--isa LEVEL] [--layer TEXT] [--ms N]\n");
        return 2;
    }
    wok_isa_set isa;
    const char *error = wok_cpu_select(o.isa, &isa);
    wok_ctx_options ctx_options = {.size = sizeof ctx_options, .threads = o.threads};
    wok_ctx *ctx = wok_ctx_create(&ctx_options);
    if (error || !ctx || wok_ctx_check(ctx) != WOK_OK) {
        fprintf(stderr, "bench_conv: %s\n", error ? error : "no context");
        return 1;
    }
    const wok_parallel *parallel = ctx->threads > 1 ? &ctx->parallel : NULL;
    printf("%-14s%-24s%-30s 1 thread", "model", "layer", "kernel");
    if (parallel) printf("%31d threads", ctx->threads);
    printf("\n");
    double total[2] = {0};
    for (int i = 0; i < LAYERS; i++) {
        const layer *l = &layers[i];
        if (o.layer && !strstr(l->name, o.layer) && !strstr(l->model, o.layer)) continue;
        bench b = prepare(l, isa, ctx->threads);
        if (!base(&b)) continue;
        printf("%-14s%-24s%-26s", l->model, l->name, base(&b)->name);
        total[0] += l->times * measure(&b, l, NULL, o.seconds);
        if (parallel) total[1] += l->times * measure(&b, l, parallel, o.seconds);
        printf("\n");
        fflush(stdout);
        release(&b);
        if (i + 1 < LAYERS && strcmp(l->model, layers[i + 1].model) == 0) continue;
        printf("%-14s%-50s %9.2f ms%28.2f ms\n", l->model, "all layers, as often as they occur", total[0] * 1e3, total[1] * 1e3);
        total[0] = total[1] = 0;
    }
    wok_ctx_free(&ctx);
    return 0;
}

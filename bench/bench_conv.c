/* bench_conv.c - the convolutions of ResNet-18 and MobileNetV2 at 224x224 against the FMA peak.
 *
 * bench_conv [--threads N] [--seconds S] [--layer TEXT]
 * For every distinct layer: microseconds (best and median), GMAC/s and the share of the FMA peak, on one thread and
 * then on N; on the line below the same layer on bytes, requantised, and how many times as fast it is. Layers rotate
 * through copies of their packed weights (up to 48 MB), because in a network every layer finds the caches full of
 * other layers' weights; pictures stay where the last call left them. Totals count a layer as often as the network has
 * it. WOK_ISA chooses the variant. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
enum { LAYERS = sizeof layers / sizeof *layers, WEIGHT_BYTES = 48 << 20, MAX_COPIES = 16 };

/* A layer in f32 or on bytes; one of the kernels is there. */
typedef struct contestant {
    const wok_conv_f32_kernel *conv;
    const wok_dwconv_kernel *dw;
    const wok_conv_s8_kernel *conv_s8;
    const wok_dwconv_s8_kernel *dw_s8;
    const wok_kernel *kernel; /* the one */
    const wok_parallel *parallel;
    wok_conv_f32_problem conv_problem;
    wok_dwconv_problem dw_problem;
    wok_conv_f32_args conv_args;
    wok_dwconv_args dw_args;
    wok_conv_s8_args conv_s8_args;
    wok_dwconv_s8_args dw_s8_args;
    void *packed[MAX_COPIES];
    int copies, turn;
} contestant;

static void call(void *arg) {
    contestant *c = arg;
    const void *packed = c->packed[c->turn];
    c->dw_args.packed = c->conv_args.packed = c->conv_s8_args.packed = c->dw_s8_args.packed = packed;
    c->turn = (c->turn + 1) % c->copies;
    if (c->conv) c->conv->run(&c->conv_problem, &c->conv_args, c->parallel);
    if (c->dw) c->dw->run(&c->dw_problem, &c->dw_args, c->parallel);
    if (c->conv_s8) c->conv_s8->run(&c->conv_problem, &c->conv_s8_args, c->parallel);
    if (c->dw_s8) c->dw_s8->run(&c->dw_problem, &c->dw_s8_args, c->parallel);
}

static int out_size(const layer *l) {
    return (l->size - 1) / l->stride + 1;
}
static int weights(const layer *l) {
    return l->c_out * l->kernel * l->kernel * (l->depthwise ? 1 : l->c_in);
}

static void *room(size_t bytes) {
    return bench_floats(bytes / sizeof(float) + 16, 1);
}

static size_t packed_bytes(const contestant *c) {
    return c->conv      ? c->conv->packed_bytes(&c->conv_problem)
           : c->dw      ? c->dw->packed_bytes(&c->dw_problem)
           : c->conv_s8 ? c->conv_s8->packed_bytes(&c->conv_problem)
                        : c->dw_s8->packed_bytes(&c->dw_problem);
}

/* w: f32 or bytes. */
static void pack(contestant *c, const void *w) {
    const size_t bytes = packed_bytes(c), copies = WEIGHT_BYTES / bytes + 1;
    c->copies = copies < MAX_COPIES ? (int)copies : MAX_COPIES;
    for (int i = 0; i < c->copies; i++) {
        void *packed = c->packed[i] = room(bytes);
        if (c->conv) c->conv->pack(&c->conv_problem, w, NULL, packed);
        if (c->dw) c->dw->pack(&c->dw_problem, w, NULL, packed);
        if (c->conv_s8) c->conv_s8->pack(&c->conv_problem, w, NULL, packed);
        if (c->dw_s8) c->dw_s8->pack(&c->dw_problem, w, NULL, packed);
    }
}

static void set_problems(contestant *c, const layer *l) {
    c->conv_problem = (wok_conv_f32_problem){l->c_in, l->c_out, 1, l->kernel, l->kernel, l->stride, l->stride, 1, 1};
    c->dw_problem = (wok_dwconv_problem){l->c_out, l->kernel, l->kernel, l->stride, l->stride, 1, 1};
}

static void prepare_f32(contestant *c, const layer *l, wok_isa_set isa, int threads) {
    const int size = l->size, pad = l->kernel / 2, out = out_size(l);
    set_problems(c, l);
    if (l->depthwise)
        c->dw = wok_dwconv_select(isa, &c->dw_problem, NULL, NULL);
    else
        c->conv = wok_conv_f32_select(isa, &c->conv_problem, NULL, NULL);
    c->kernel = c->dw ? &c->dw->base : &c->conv->base;
    const wok_epilogue_f32 epilogue = {.bias = bench_floats((size_t)l->c_out, 1), .act = WOK_ACT_CLAMP, .hi = 6};
    const float *x = bench_floats((size_t)(size * size * l->c_in), 1);
    float *y = bench_floats((size_t)(out * out * l->c_out), 1), *w = bench_floats((size_t)weights(l), 1);
    c->dw_args = (wok_dwconv_args){1, size, size, out, out, pad, pad, x, l->c_in, NULL, y, l->c_out, epilogue};
    c->conv_args =
        (wok_conv_f32_args){1, size, size, out, out, pad, pad, x, l->c_in, NULL, y, l->c_out, epilogue, NULL};
    if (c->conv) {
        const size_t alone = c->conv->workspace_bytes(&c->conv_problem, &c->conv_args, 1);
        const size_t shared = c->conv->workspace_bytes(&c->conv_problem, &c->conv_args, threads);
        c->conv_args.workspace = room(alone > shared ? alone : shared);
    }
    pack(c, w);
    free(w);
}

static int8_t *bytes_of(size_t count) {
    int8_t *p = room(count);
    for (size_t i = 0; i < count; i++) p[i] = (int8_t)(i * 2654435761u >> 24);
    return p;
}

/* The same layer on bytes. */
static void prepare_s8(contestant *c, const layer *l, wok_isa_set isa, int threads) {
    const int size = l->size, pad = l->kernel / 2, out = out_size(l);
    set_problems(c, l);
    if (l->depthwise)
        c->dw_s8 = wok_dwconv_s8_select(isa, &c->dw_problem, NULL, NULL);
    else
        c->conv_s8 = wok_conv_s8_select(isa, &c->conv_problem, NULL, NULL);
    c->kernel = c->dw_s8 ? &c->dw_s8->base : &c->conv_s8->base;
    const wok_epilogue_s8 epilogue = {.out = WOK_S8_OUT_S8,
                                      .scale = bench_floats((size_t)l->c_out, 1e3f),
                                      .bias = bench_floats((size_t)l->c_out, 1),
                                      .zero = -128,
                                      .lo = -128,
                                      .hi = 127};
    const int8_t *x = bytes_of((size_t)(size * size * l->c_in));
    int8_t *y = room((size_t)(out * out * l->c_out)), *w = bytes_of((size_t)weights(l));
    c->conv_s8_args =
        (wok_conv_s8_args){1, size, size, out, out, pad, pad, x, l->c_in, -128, NULL, y, l->c_out, epilogue, NULL};
    c->dw_s8_args =
        (wok_dwconv_s8_args){1, size, size, out, out, pad, pad, x, l->c_in, -128, NULL, y, l->c_out, epilogue};
    if (c->conv_s8) {
        const size_t alone = c->conv_s8->workspace_bytes(&c->conv_problem, &c->conv_s8_args, 1);
        const size_t shared = c->conv_s8->workspace_bytes(&c->conv_problem, &c->conv_s8_args, threads);
        c->conv_s8_args.workspace = room(alone > shared ? alone : shared);
    }
    pack(c, w);
    free(w);
}

static void release(contestant *c) {
    for (int i = 0; i < c->copies; i++) free(c->packed[i]);
    free((void *)(uintptr_t)c->conv_args.x);
    free((void *)(uintptr_t)c->conv_args.epilogue.bias);
    free(c->conv_args.y);
    free(c->conv_args.workspace);
    free((void *)(uintptr_t)c->conv_s8_args.x);
    free((void *)(uintptr_t)c->conv_s8_args.epilogue.scale);
    free((void *)(uintptr_t)c->conv_s8_args.epilogue.bias);
    free(c->conv_s8_args.y);
    free(c->conv_s8_args.workspace);
}

/* What the layers of one model take on one thread and on all. */
typedef struct totals {
    double f32[2], s8[2];
} totals;

static void show(const bench_entry *e, double macs) {
    printf("  %8.1f %8.1f us %7.1f GMAC/s", e->best * 1e6, e->median * 1e6, macs / e->best * 1e-9);
}

/* One layer in f32 and on bytes, taking turns; adds the best seconds to the totals. */
static void measure(const layer *l, contestant *f32, contestant *s8, wok_parallel *pool, wok_isa_set isa,
                    double seconds, totals *sum) {
    bench_entry entries[2][3];
    const double macs = (double)out_size(l) * out_size(l) * weights(l);
    const int sizes = pool ? 2 : 1;
    for (int i = 0; i < sizes; i++) {
        bench_entry *e = entries[i];
        e[0] = (bench_entry){.name = "FMA peak", .fn = bench_fma, .arg = &isa};
        e[1] = (bench_entry){.name = l->name, .fn = call, .arg = f32};
        e[2] = (bench_entry){.name = l->name, .fn = call, .arg = s8};
        f32->parallel = s8->parallel = i ? pool : NULL;
        bench_contest(e, 3, seconds, i);
        sum->f32[i] += l->times * e[1].best;
        sum->s8[i] += l->times * e[2].best;
    }
    printf("%-13s%-22s%-25s", l->model, l->name, f32->kernel->name);
    for (int i = 0; i < sizes; i++) {
        const double peak = bench_fma_macs(isa) / entries[i][0].best * (i ? pool->threads : 1);
        show(&entries[i][1], macs);
        printf(" %4.0f %% ", peak > 0 ? 100 * macs / entries[i][1].best / peak : 0);
    }
    printf("\n");
    printf("%-35s%-25s", "", s8->kernel->name);
    for (int i = 0; i < sizes; i++) {
        show(&entries[i][2], macs);
        printf(" %5.2f x", entries[i][1].best / entries[i][2].best);
    }
    printf("\n");
}

int main(int argc, char **argv) {
    int threads = 1;
    double seconds = 0.2;
    totals sum = {{0}, {0}};
    const char *text = "";
    const wok_isa_set isa = bench_isa();
    for (int i = 1; i + 1 < argc; i++) {
        if (strcmp(argv[i], "--threads") == 0) threads = atoi(argv[i + 1]);
        if (strcmp(argv[i], "--seconds") == 0) seconds = atof(argv[i + 1]);
        if (strcmp(argv[i], "--layer") == 0) text = argv[i + 1];
    }
    wok_parallel *pool = threads > 1 ? bench_pool_create(threads) : NULL;
    printf("%s, 1 thread%s\n", wok_cpu()->brand, pool ? " and all" : "");
    for (int i = 0; i < LAYERS; i++) {
        const layer *l = &layers[i];
        contestant f32 = {0}, s8 = {0};
        if (strstr(l->name, text) || strstr(l->model, text)) {
            prepare_f32(&f32, l, isa, threads);
            prepare_s8(&s8, l, isa, threads);
            measure(l, &f32, &s8, pool, isa, seconds, &sum);
            fflush(stdout);
            release(&f32);
            release(&s8);
        }
        if (i + 1 < LAYERS && strcmp(l->model, layers[i + 1].model) == 0) continue;
        printf("%-13severy layer as often as it occurs, best: f32 %.2f ms, bytes %.2f ms", l->model, sum.f32[0] * 1e3,
               sum.s8[0] * 1e3);
        if (pool) printf("; %d threads %.2f ms, %.2f ms", threads, sum.f32[1] * 1e3, sum.s8[1] * 1e3);
        printf("\n");
        sum = (totals){{0}, {0}};
    }
    if (pool) bench_pool_free(pool);
    return 0;
}

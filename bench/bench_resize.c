/* bench_resize.c - picture resampling on one thread.
 *
 * bench_resize [--seconds S] [--shape IN_WxIN_H:OUT_WxOUT_H]...
 * A line for every shape and way of resizing 3-channel pictures, bilinear: microseconds (best and median), source
 * pixels a second, and the ratio to the reference. WOK_ISA chooses the variant. bench/compare_resize.py puts Pillow
 * and torch beside these lines. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct way {
    const char *name;
    wok_resize_op op;
    bool antialias, planes;
} way;

static const way ways[] = {
    {"u8", WOK_RESIZE_U8, true, false},
    {"u8-unit-chw", WOK_RESIZE_U8_UNIT, true, true},
    {"u8-f32-chw", WOK_RESIZE_U8_F32, true, true},
    {"u8-f32-chw-no-antialias", WOK_RESIZE_U8_F32, false, true},
    {"f32", WOK_RESIZE_F32, true, false},
};
enum { WAYS = sizeof ways / sizeof *ways, SHAPES = 16 };

typedef struct shape {
    long long in_w, in_h, out_w, out_h;
} shape;

typedef struct contestant {
    const wok_resize_kernel *kernel;
    wok_resize_problem problem;
    wok_resize_args args;
} contestant;

static void call(void *arg) {
    contestant *c = arg;
    c->kernel->run(&c->problem, &c->args, NULL);
}

static void *room(size_t bytes) {
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!p) {
        fprintf(stderr, "bench_resize: out of memory\n");
        exit(1);
    }
    return p;
}

static void prepare(contestant *c, wok_isa_set isa, const way *w, const shape *s, const void *x, void *y) {
    const wok_resize_problem problem = {w->op, WOK_FILTER_BILINEAR, w->antialias, 3};
    c->kernel = wok_resize_select(isa, &problem, NULL, NULL);
    c->problem = problem;
    c->args = (wok_resize_args){.x = x, .in_h = s->in_h, .in_w = s->in_w, .x_stride = 3 * s->in_w, .out_h = s->out_h,
                                .out_w = s->out_w, .crop_h = s->out_h, .crop_w = s->out_w, .y = y,
                                .y_stride = w->planes ? s->out_w : 3 * s->out_w, .y_pixel_stride = w->planes ? 1 : 3,
                                .y_channel_stride = w->planes ? s->out_w * s->out_h : 1};
    c->args.workspace = room(c->kernel->workspace_bytes(&c->problem, &c->args, 1));
}

static void bench(wok_isa_set isa, const way *w, const shape *s, double seconds) {
    contestant both[2];
    const size_t in = (size_t)(3 * s->in_w * s->in_h), out = (size_t)(3 * s->out_w * s->out_h);
    float *floats = bench_floats(in, 1);
    uint8_t *bytes = room(in);
    void *y = room(out * sizeof(float));
    for (size_t i = 0; i < in; i++) bytes[i] = (uint8_t)(int)(128 + 127 * floats[i]);
    const void *x = w->op == WOK_RESIZE_F32 ? (void *)floats : bytes;
    prepare(&both[0], isa, w, s, x, y);
    prepare(&both[1], 1u << WOK_ISA_ref, w, s, x, y);
    bench_entry entries[2] = {{both[0].kernel->base.name, call, &both[0], 0, 0},
                              {both[1].kernel->base.name, call, &both[1], 0, 0}};
    bench_contest(entries, 2, seconds, false);
    char text[64];
    snprintf(text, sizeof text, "%lldx%lld:%lldx%lld", s->in_w, s->in_h, s->out_w, s->out_h);
    printf("%-24s %-24s %-20s %9.1f us %9.1f median %7.2f Gpixel/s %6.2fx ref\n", text, w->name, entries[0].name,
           entries[0].best * 1e6, entries[0].median * 1e6, (double)(s->in_w * s->in_h) / entries[0].best * 1e-9,
           entries[1].best / entries[0].best);
    free(both[0].args.workspace);
    free(both[1].args.workspace);
    free(floats);
    free(bytes);
    free(y);
}

int main(int argc, char **argv) {
    shape shapes[SHAPES] = {{640, 427, 383, 256}, {640, 427, 224, 224},   {1920, 1080, 224, 224},
                            {4000, 3000, 341, 256}, {224, 224, 448, 448}};
    int count = 5, given = 0;
    double seconds = 0.5;
    for (int i = 1; i + 1 < argc; i += 2) {
        shape *s = &shapes[given];
        if (!strcmp(argv[i], "--seconds")) {
            seconds = atof(argv[i + 1]);
        } else if (!strcmp(argv[i], "--shape") && given < SHAPES &&
                   sscanf(argv[i + 1], "%lldx%lld:%lldx%lld", &s->in_w, &s->in_h, &s->out_w, &s->out_h) == 4 &&
                   s->in_w > 0 && s->in_h > 0 && s->out_w > 0 && s->out_h > 0) {
            count = ++given;
        } else {
            fprintf(stderr, "usage: bench_resize [--seconds S] [--shape IN_WxIN_H:OUT_WxOUT_H]...\n");
            return 2;
        }
    }
    const wok_isa_set isa = bench_isa();
    for (int i = 0; i < count; i++)
        for (int w = 0; w < WAYS; w++) bench(isa, &ways[w], &shapes[i], seconds);
    return 0;
}

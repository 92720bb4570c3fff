/* check_conv_f32.c - conv_f32 against the definition, summed in double over the unpacked weights, within the bound of
 * conv_f32.h. */
#include "checkwok.h"
#include "conv_f32/conv_f32.h"
#include "epilogue_ref.h"

#include <stdlib.h>

enum { BIAS = 1, RESIDUAL = 2, IN_PLACE = 4, SCALE = 8, PADDED = 16, ALL = 31 };

struct conv_case {
    const wok_conv_f32_kernel *kernel;
    wok_conv_f32_problem p;
    int64_t batch, in_h, in_w, top, left, bottom, right; /* pads may be negative: a crop */
    unsigned with;                                       /* BIAS ... PADDED */
    wok_act act;
    check_mode mode;
};

struct operands {
    float *x, *w, *bias, *scale, *residual, *y;
    int64_t x_stride, y_stride, residual_stride;
};

static size_t bytes(int64_t floats) {
    return (size_t)floats * sizeof(float);
}

static int64_t out_size(int64_t in, int64_t pads, int64_t kernel, int64_t stride, int64_t dilation) {
    int64_t room = in + pads - (kernel - 1) * dilation - 1;
    return room < 0 ? 0 : room / stride + 1;
}

static int64_t out_h(const struct conv_case *s) {
    return out_size(s->in_h, s->top + s->bottom, s->p.kernel_h, s->p.stride_h, s->p.dilation_h);
}

static int64_t out_w(const struct conv_case *s) {
    return out_size(s->in_w, s->left + s->right, s->p.kernel_w, s->p.stride_w, s->p.dilation_w);
}

static int64_t depth(const struct conv_case *s) {
    return s->p.kernel_h * s->p.kernel_w * (s->p.c_in / s->p.group);
}

/* INTEGER sums are exact, so nothing may be lost before the activation. */
static double tolerance(const struct conv_case *s, double magnitude, double y) {
    double linear = s->mode == CHECK_INTEGER ? 0 : (double)(depth(s) + 3) * 0x1p-24 * magnitude;
    if (s->act == WOK_ACT_NONE || s->act == WOK_ACT_CLAMP) return linear + 0x1p-126;
    return 1.13 * linear + 0x1p-22 * fmax(1, fabs(y));
}

/* Sum and sum of magnitudes for output channel n at (image, oy, ox). */
static double window(const struct conv_case *s, const struct operands *o, int64_t image, int64_t oy, int64_t ox,
                     int64_t n, double *magnitude) {
    const wok_conv_f32_problem *p = &s->p;
    const int64_t channels = p->c_in / p->group, first = n / (p->c_out / p->group) * channels;
    double sum = 0;
    for (int64_t ky = 0; ky < p->kernel_h; ky++)
        for (int64_t kx = 0; kx < p->kernel_w; kx++)
            for (int64_t c = 0; c < channels; c++) {
                const int64_t iy = oy * p->stride_h - s->top + ky * p->dilation_h;
                const int64_t ix = ox * p->stride_w - s->left + kx * p->dilation_w;
                const bool inside = iy >= 0 && iy < s->in_h && ix >= 0 && ix < s->in_w;
                const float x = inside ? o->x[((image * s->in_h + iy) * s->in_w + ix) * o->x_stride + first + c] : 0;
                float w = o->w[((n * channels + c) * p->kernel_h + ky) * p->kernel_w + kx];
                if (o->scale) w *= o->scale[n];
                sum += (double)x * (double)w;
                *magnitude += fabs((double)x * (double)w);
            }
    return sum;
}

static void compare(check *c, const struct conv_case *s, const struct operands *o, const float *residual,
                    const wok_epilogue_f32 *e) {
    const int64_t pixels = s->batch * out_h(s) * out_w(s), image_pixels = out_h(s) * out_w(s);
    for (int64_t m = 0; m < pixels; m++)
        for (int64_t n = 0; n < s->p.c_out; n++) {
            const int64_t in_image = m % image_pixels;
            double magnitude = 0;
            double sum = window(s, o, m / image_pixels, in_image / out_w(s), in_image % out_w(s), n, &magnitude);
            if (o->bias) sum += (double)o->bias[n], magnitude += fabs((double)o->bias[n]);
            if (residual)
                sum += (double)residual[m * s->p.c_out + n], magnitude += fabs((double)residual[m * s->p.c_out + n]);
            const double want = wok_act_ref(sum, e->act, e->lo, e->hi);
            const double bound = isfinite(magnitude) ? tolerance(s, magnitude, want) : 1;
            if (!check_near(c, m, n, o->y[m * o->y_stride + n], want, bound)) return;
        }
}

static void allocate(check *c, const struct conv_case *s, struct operands *o) {
    const int64_t pad = s->with & PADDED ? 3 : 0, in = s->batch * s->in_h * s->in_w,
                  out = s->batch * out_h(s) * out_w(s);
    const int64_t filter = depth(s);
    o->x_stride = s->p.c_in + pad;
    o->y_stride = s->p.c_out + 2 * pad;
    o->residual_stride = s->p.c_out + pad;
    o->x = check_input(c, in, bytes(s->p.c_in), bytes(o->x_stride));
    o->w = check_input(c, s->p.c_out, bytes(filter), bytes(filter));
    if (s->with & BIAS) o->bias = check_input(c, 1, bytes(s->p.c_out), bytes(s->p.c_out));
    if (s->with & SCALE) o->scale = check_input(c, 1, bytes(s->p.c_out), bytes(s->p.c_out));
    if ((s->with & (RESIDUAL | IN_PLACE)) == RESIDUAL)
        o->residual = check_input(c, out, bytes(s->p.c_out), bytes(o->residual_stride));
    o->y = check_output(c, out, bytes(s->p.c_out), bytes(o->y_stride));
    check_fill_f32(c, o->x, in, s->p.c_in, o->x_stride, s->mode);
    check_fill_f32(c, o->w, s->p.c_out, filter, filter, s->mode);
    if (o->bias) check_fill_f32(c, o->bias, 1, s->p.c_out, s->p.c_out, s->mode);
    if (o->scale)
        check_fill_f32(c, o->scale, 1, s->p.c_out, s->p.c_out,
                       s->mode == CHECK_INTEGER ? CHECK_INTEGER : CHECK_UNIFORM);
    if (s->with & IN_PLACE) {
        o->residual = o->y;
        o->residual_stride = o->y_stride;
    }
    if (o->residual) check_fill_f32(c, o->residual, out, s->p.c_out, o->residual_stride, s->mode);
}

/* One picture of the batch alone must give the same bits. */
static void compare_alone(check *c, const struct conv_case *s, const struct operands *o, wok_conv_f32_args args,
                          const float *residual) {
    const int64_t image = check_range(c, 0, s->batch - 1), pixels = out_h(s) * out_w(s), n = s->p.c_out;
    float *alone = check_scratch(c, bytes(pixels * n));
    args.batch = 1;
    args.x += image * s->in_h * s->in_w * args.x_stride;
    args.y = alone;
    args.y_stride = n;
    args.epilogue.residual = residual ? residual + image * pixels * n : NULL;
    args.epilogue.residual_stride = n;
    args.workspace = check_workspace(c, s->kernel->workspace_bytes(&s->p, &args, 1));
    s->kernel->run(&s->p, &args, NULL);
    check_canonical_nan(alone, pixels, n, n);
    check_equal(c, "a picture alone and in a batch", alone, bytes(n), o->y + image * pixels * o->y_stride,
                bytes(o->y_stride), pixels, bytes(n));
}

/* SIMD variants promise each other's bits, up to activations of which every level has its own. */
static void compare_siblings(check *c, const struct conv_case *s, const struct operands *o, wok_conv_f32_args args,
                             const float *residual) {
    const int64_t pixels = s->batch * out_h(s) * out_w(s), n = s->p.c_out;
    int count;
    const wok_kernel *const *list = wok_kernel_list(WOK_FAMILY_conv_f32, &count);
    for (int i = 0; i < count; i++) {
        const wok_conv_f32_kernel *other = (const void *)list[i];
        if (other == s->kernel || list[i]->flags & WOK_KERNEL_REFERENCE || !(wok_cpu_isa() >> list[i]->isa & 1))
            continue;
        float *y = check_scratch(c, bytes(pixels * n));
        void *packed = check_workspace(c, other->packed_bytes(&s->p));
        other->pack(&s->p, o->w, o->scale, packed);
        args.packed = packed;
        args.y = y;
        args.y_stride = n;
        args.epilogue.residual = residual;
        args.epilogue.residual_stride = n;
        args.workspace = check_workspace(c, other->workspace_bytes(&s->p, &args, 1));
        other->run(&s->p, &args, NULL);
        check_canonical_nan(y, pixels, n, n);
        check_equal(c, list[i]->name, o->y, bytes(o->y_stride), y, bytes(n), pixels, bytes(n));
    }
}

static void conv_case(check *c, const void *arg) {
    const struct conv_case *s = arg;
    const int64_t pixels = s->batch * out_h(s) * out_w(s), n = s->p.c_out;
    struct operands o = {0};
    allocate(c, s, &o);
    float *residual = NULL; /* dense, because the kernel may write over the original */
    if (o.residual) {
        residual = check_scratch(c, bytes(pixels * n));
        for (int64_t i = 0; i < pixels; i++)
            for (int64_t j = 0; j < n; j++) residual[i * n + j] = o.residual[i * o.residual_stride + j];
    }
    wok_conv_f32_args args = {
        .batch = s->batch, .in_h = s->in_h, .in_w = s->in_w, .out_h = out_h(s), .out_w = out_w(s)};
    args.pad_top = s->top;
    args.pad_left = s->left;
    args.x = o.x;
    args.x_stride = o.x_stride;
    args.y = o.y;
    args.y_stride = o.y_stride;
    args.epilogue = (wok_epilogue_f32){.bias = o.bias, .residual = o.residual, .residual_stride = o.residual_stride};
    args.epilogue.act = s->act;
    args.epilogue.lo = -0.25f;
    args.epilogue.hi = 0.5f;
    const wok_parallel *parallel = check_parallel(c);
    void *packed = check_workspace(c, s->kernel->packed_bytes(&s->p));
    args.packed = packed;
    args.workspace = check_workspace(c, s->kernel->workspace_bytes(&s->p, &args, parallel ? parallel->threads : 1));
    check_seal(c);
    s->kernel->pack(&s->p, o.w, o.scale, packed);
    s->kernel->run(&s->p, &args, parallel);
    compare(c, s, &o, residual, &args.epilogue);
    check_canonical_nan(o.y, pixels, n, o.y_stride);
    if (s->batch > 1) compare_alone(c, s, &o, args, residual);
    if (!(s->kernel->base.flags & WOK_KERNEL_REFERENCE) && (s->act == WOK_ACT_NONE || s->act == WOK_ACT_CLAMP))
        compare_siblings(c, s, &o, args, residual);
}

static void run(check *c, struct conv_case s) {
    if (out_h(&s) == 0 || out_w(&s) == 0 || !check_accepts(c, &s.kernel->base, &s.p)) return;
    check_run(c, conv_case, &s, "c=%d>%d g=%d k=%dx%d s=%dx%d d=%dx%d in=%dx%dx%d pad=%d,%d,%d,%d with=%u act=%d %s",
              (int)s.p.c_in, (int)s.p.c_out, (int)s.p.group, (int)s.p.kernel_h, (int)s.p.kernel_w, (int)s.p.stride_h,
              (int)s.p.stride_w, (int)s.p.dilation_h, (int)s.p.dilation_w, (int)s.batch, (int)s.in_h, (int)s.in_w,
              (int)s.top, (int)s.left, (int)s.bottom, (int)s.right, s.with, (int)s.act, check_mode_name(s.mode));
}

void check_conv_f32(check *c, const wok_kernel *base, const wok_kernel *reference);
void bench_conv_f32(check *c, const wok_kernel *base, const wok_kernel *reference);

/* Every number of output channels with many numbers of input channels: register tiles, unrolling, strips and taps. */
static void check_channels(check *c, struct conv_case s) {
    static const int64_t c_in[] = {1, 2, 3, 4, 5, 7, 8, 9, 31, 32, 33};
    s.in_h = 4, s.in_w = 3;
    for (size_t i = 0; i < sizeof c_in / sizeof *c_in; i++)
        for (s.p.c_out = 1; s.p.c_out <= 2 * s.kernel->nr + 1; s.p.c_out++) {
            s.p.c_in = c_in[i];
            s.p.kernel_h = s.p.kernel_w = s.p.c_out % 2 ? 3 : 1;
            s.top = s.left = s.bottom = s.right = s.p.kernel_h / 2;
            s.with = (unsigned)(s.p.c_in * 5 + s.p.c_out) % (ALL + 1);
            s.act = (s.p.c_in + s.p.c_out) % 3 ? WOK_ACT_NONE : (wok_act)((s.p.c_in + s.p.c_out) / 3 % 6);
            s.mode = (check_mode)((s.p.c_in + 2 * s.p.c_out) % CHECK_FINITE_MODES);
            run(c, s);
        }
}

/* Every number of pixels up to two blocks and one, with and without a window. */
static void check_pixels(check *c, struct conv_case s) {
    static const int64_t c_out[] = {5, 16, 24};
    for (size_t i = 0; i < sizeof c_out / sizeof *c_out; i++)
        for (int64_t kernel = 1; kernel <= 3; kernel += 2)
            for (s.p.c_in = 6; s.p.c_in <= 38; s.p.c_in += 32)
                for (s.in_w = 1; s.in_w <= 2 * s.kernel->mr + 1; s.in_w++) {
                    s.p.c_out = c_out[i];
                    s.p.kernel_h = s.p.kernel_w = kernel;
                    s.top = s.left = s.bottom = s.right = kernel / 2;
                    s.in_h = 1;
                    s.with = (unsigned)(s.in_w + kernel) % (ALL + 1);
                    run(c, s);
                }
}

/* Pads 0..2 on each side on their own, strides and dilations, on small pictures: through strips and through taps. */
static void check_windows(check *c, struct conv_case s) {
    static const struct {
        int64_t kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w;
    } w[] = {{3, 3, 1, 1, 1, 1}, {3, 2, 2, 1, 1, 1}, {2, 3, 1, 2, 2, 1}, {3, 3, 3, 3, 1, 2},
             {1, 1, 2, 2, 1, 1}, {5, 5, 2, 2, 1, 1}, {1, 4, 1, 3, 1, 2}};
    for (size_t i = 0; i < sizeof w / sizeof *w; i++)
        for (int pads = 0; pads < 81; pads++) {
            s.p = (wok_conv_f32_problem){(pads + (int)i) % 2 ? 3 : 33,
                                         6,
                                         1,
                                         w[i].kernel_h,
                                         w[i].kernel_w,
                                         w[i].stride_h,
                                         w[i].stride_w,
                                         w[i].dilation_h,
                                         w[i].dilation_w};
            s.top = pads % 3, s.left = pads / 3 % 3, s.bottom = pads / 9 % 3, s.right = pads / 27;
            s.in_h = 3 + pads % 4, s.in_w = 2 + pads % 5;
            s.with = (unsigned)pads % (ALL + 1);
            s.batch = 1 + pads % 2;
            run(c, s);
        }
}

static void check_groups(check *c, struct conv_case s) {
    s.in_h = 3, s.in_w = 4, s.top = 1, s.left = 1, s.right = 1;
    s.p.kernel_h = 2, s.p.kernel_w = 3;
    for (s.p.group = 2; s.p.group <= 4; s.p.group++)
        for (int64_t in = 1; in <= 5; in++)
            for (int64_t out = 1; out <= s.kernel->nr + 1; out += 1 + out % 3) {
                s.p.c_in = in * s.p.group;
                s.p.c_out = out * s.p.group;
                s.with = (unsigned)(in + out) % (ALL + 1);
                run(c, s);
            }
}

void check_conv_f32(check *c, const wok_kernel *base, const wok_kernel *reference) {
    (void)reference;
    const struct conv_case basic = {.kernel = (const void *)base, .p = {4, 4, 1, 1, 1, 1, 1, 1, 1}, .batch = 1};
    check_channels(c, basic);
    check_pixels(c, basic);
    check_windows(c, basic);
    check_groups(c, basic);
    struct conv_case s = basic;
    s.p = (wok_conv_f32_problem){6, 21, 1, 3, 3, 1, 1, 1, 1};
    s.in_h = 4, s.in_w = 5, s.top = s.left = s.right = s.bottom = 1;
    for (int mode = 0; mode < CHECK_MODES; mode++) /* every mode with every activation and epilogue */
        for (int act = WOK_ACT_NONE; act <= WOK_ACT_SIGMOID; act++)
            for (unsigned with = 0; with < 8; with++) {
                s.mode = (check_mode)mode;
                s.act = (wok_act)act;
                s.with = with;
                run(c, s);
            }
    /* Enough of everything that work is split: pixels, panels, both; a window larger than the picture; a crop. */
    run(c, (struct conv_case){basic.kernel,
                              {64, 40, 1, 3, 3, 1, 1, 1, 1},
                              3,
                              14,
                              14,
                              1,
                              1,
                              1,
                              1,
                              ALL & ~IN_PLACE,
                              WOK_ACT_CLAMP,
                              CHECK_UNIFORM});
    run(c, (struct conv_case){basic.kernel,
                              {96, 200, 1, 3, 3, 1, 1, 1, 1},
                              1,
                              5,
                              5,
                              1,
                              1,
                              1,
                              1,
                              BIAS | IN_PLACE,
                              WOK_ACT_CLAMP,
                              CHECK_UNIFORM});
    run(c, (struct conv_case){basic.kernel,
                              {3, 24, 1, 7, 7, 2, 2, 1, 1},
                              2,
                              40,
                              37,
                              3,
                              3,
                              2,
                              2,
                              BIAS | PADDED,
                              WOK_ACT_CLAMP,
                              CHECK_UNIFORM});
    run(c, (struct conv_case){
               basic.kernel, {3, 5, 1, 3, 3, 1, 1, 1, 1}, 5, 60, 70, 0, 1, 2, 1, BIAS, WOK_ACT_NONE, CHECK_UNIFORM});
    run(c, (struct conv_case){basic.kernel,
                              {16, 16, 1, 1, 1, 1, 1, 1, 1},
                              1,
                              120,
                              90,
                              0,
                              0,
                              0,
                              0,
                              RESIDUAL,
                              WOK_ACT_NONE,
                              CHECK_UNIFORM});
    run(c, (struct conv_case){
               basic.kernel, {8, 8, 1, 9, 9, 1, 1, 1, 1}, 2, 3, 2, 4, 4, 4, 4, BIAS, WOK_ACT_NONE, CHECK_UNIFORM});
    run(c, (struct conv_case){
               basic.kernel, {40, 8, 1, 7, 7, 1, 1, 2, 2}, 1, 3, 2, 9, 9, 9, 9, BIAS, WOK_ACT_NONE, CHECK_UNIFORM});
    run(c, (struct conv_case){
               basic.kernel, {5, 7, 1, 2, 2, 1, 1, 1, 1}, 2, 6, 6, -1, -2, -1, -1, 0, WOK_ACT_NONE, CHECK_UNIFORM});
    run(c, (struct conv_case){
               basic.kernel, {35, 7, 1, 1, 1, 1, 1, 1, 1}, 2, 6, 6, 1, 0, -1, 0, 0, WOK_ACT_NONE, CHECK_UNIFORM});
    for (int i = 0; i < 60; i++) { /* shapes nobody thought of */
        const int64_t group = check_range(c, 1, 3);
        s.p =
            (wok_conv_f32_problem){group * check_range(c, 1, 20), group * check_range(c, 1, 30), group,
                                   check_range(c, 1, 4),          check_range(c, 1, 4),          check_range(c, 1, 3),
                                   check_range(c, 1, 3),          check_range(c, 1, 2),          check_range(c, 1, 2)};
        s.batch = check_range(c, 1, 3), s.in_h = check_range(c, 1, 12), s.in_w = check_range(c, 1, 12);
        s.top = check_range(c, 0, 2), s.left = check_range(c, 0, 2), s.bottom = check_range(c, 0, 2),
        s.right = check_range(c, 0, 2);
        s.with = (unsigned)check_range(c, 0, ALL);
        s.act = (wok_act)check_range(c, 0, 5);
        s.mode = (check_mode)check_range(c, 0, CHECK_FINITE_MODES - 1);
        run(c, s);
    }
}

/* ---- benchmarks -------------------------------------------------------------------------------------------------- */

struct bench {
    const wok_conv_f32_kernel *kernel;
    wok_conv_f32_problem problem;
    wok_conv_f32_args args;
};

static void call(void *arg) {
    struct bench *b = arg;
    b->kernel->run(&b->problem, &b->args, NULL);
}

void bench_conv_f32(check *c, const wok_kernel *base, const wok_kernel *reference) {
    (void)reference;
    static const struct {
        int64_t c_in, c_out, kernel, stride, size;
    } shapes[] = {{3, 64, 7, 2, 112}, {64, 64, 3, 1, 28}, {256, 256, 3, 1, 7}, {144, 24, 1, 1, 28}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const int64_t size = shapes[i].size, k = shapes[i].kernel, out = (size - 1) / shapes[i].stride + 1;
        struct bench b = {(const void *)base,
                          {shapes[i].c_in, shapes[i].c_out, 1, k, k, shapes[i].stride, shapes[i].stride, 1, 1},
                          {.batch = 1, .in_h = size, .in_w = size, .out_h = out, .out_w = out}};
        if (!check_accepts(c, base, &b.problem)) continue;
        const int64_t weights = b.problem.c_in * b.problem.c_out * k * k;
        float *x = check_scratch(c, bytes(size * size * b.problem.c_in)), *w = check_scratch(c, bytes(weights));
        void *packed = check_scratch(c, b.kernel->packed_bytes(&b.problem));
        check_fill_f32(c, x, size * size, b.problem.c_in, b.problem.c_in, CHECK_UNIFORM);
        check_fill_f32(c, w, 1, weights, weights, CHECK_UNIFORM);
        b.kernel->pack(&b.problem, w, NULL, packed);
        b.args.pad_top = b.args.pad_left = k / 2;
        b.args.x = x, b.args.x_stride = b.problem.c_in, b.args.packed = packed;
        b.args.y = check_scratch(c, bytes(out * out * b.problem.c_out)), b.args.y_stride = b.problem.c_out;
        b.args.workspace = check_scratch(c, b.kernel->workspace_bytes(&b.problem, &b.args, 1));
        check_bench(c, call, &b, (double)(out * out * weights) * 1e-9, "GMAC", true, "%d>%d %dx%ds%d@%d",
                    (int)b.problem.c_in, (int)b.problem.c_out, (int)k, (int)k, (int)shapes[i].stride, (int)size);
    }
}

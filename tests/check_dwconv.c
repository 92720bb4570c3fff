/* check_dwconv.c - dwconv against the definition, summed in double over the unpacked weights, within the bound of
 * dwconv.h. */
#include "checkwok.h"
#include "dwconv/dwconv.h"
#include "epilogue_ref.h"

#include <stdlib.h>

enum { BIAS = 1, RESIDUAL = 2, IN_PLACE = 4, SCALE = 8, PADDED = 16, ALL = 31 };

struct dw_case {
    const wok_dwconv_kernel *kernel;
    wok_dwconv_problem p;
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

static int64_t out_h(const struct dw_case *s) {
    return out_size(s->in_h, s->top + s->bottom, s->p.kernel_h, s->p.stride_h, s->p.dilation_h);
}

static int64_t out_w(const struct dw_case *s) {
    return out_size(s->in_w, s->left + s->right, s->p.kernel_w, s->p.stride_w, s->p.dilation_w);
}

static int64_t taps(const struct dw_case *s) {
    return s->p.kernel_h * s->p.kernel_w;
}

static double tolerance(const struct dw_case *s, double magnitude, double y) {
    double linear = s->mode == CHECK_INTEGER ? 0 : (double)(taps(s) + 3) * 0x1p-24 * magnitude;
    if (s->act == WOK_ACT_NONE || s->act == WOK_ACT_CLAMP) return linear + 0x1p-126;
    return 1.13 * linear + 0x1p-22 * fmax(1, fabs(y));
}

static double window(const struct dw_case *s, const struct operands *o, int64_t image, int64_t oy, int64_t ox,
                     int64_t n, double *magnitude) {
    const wok_dwconv_problem *p = &s->p;
    double sum = 0;
    for (int64_t ky = 0; ky < p->kernel_h; ky++)
        for (int64_t kx = 0; kx < p->kernel_w; kx++) {
            const int64_t iy = oy * p->stride_h - s->top + ky * p->dilation_h;
            const int64_t ix = ox * p->stride_w - s->left + kx * p->dilation_w;
            const bool inside = iy >= 0 && iy < s->in_h && ix >= 0 && ix < s->in_w;
            const float x = inside ? o->x[((image * s->in_h + iy) * s->in_w + ix) * o->x_stride + n] : 0;
            float w = o->w[n * taps(s) + ky * p->kernel_w + kx];
            if (o->scale) w *= o->scale[n];
            sum += (double)x * (double)w;
            *magnitude += fabs((double)x * (double)w);
        }
    return sum;
}

static void compare(check *c, const struct dw_case *s, const struct operands *o, const float *residual,
                    const wok_epilogue_f32 *e) {
    const int64_t image_pixels = out_h(s) * out_w(s), pixels = s->batch * image_pixels, channels = s->p.channels;
    for (int64_t m = 0; m < pixels; m++)
        for (int64_t n = 0; n < channels; n++) {
            const int64_t in_image = m % image_pixels;
            double magnitude = 0;
            double sum = window(s, o, m / image_pixels, in_image / out_w(s), in_image % out_w(s), n, &magnitude);
            if (o->bias) sum += (double)o->bias[n], magnitude += fabs((double)o->bias[n]);
            if (residual)
                sum += (double)residual[m * channels + n], magnitude += fabs((double)residual[m * channels + n]);
            const double want = wok_act_ref(sum, e->act, e->lo, e->hi);
            const double bound = isfinite(magnitude) ? tolerance(s, magnitude, want) : 1;
            if (!check_near(c, m, n, o->y[m * o->y_stride + n], want, bound)) return;
        }
}

static void allocate(check *c, const struct dw_case *s, struct operands *o) {
    const int64_t pad = s->with & PADDED ? 3 : 0, n = s->p.channels;
    const int64_t in = s->batch * s->in_h * s->in_w, out = s->batch * out_h(s) * out_w(s);
    o->x_stride = n + pad;
    o->y_stride = n + 2 * pad;
    o->residual_stride = n + pad;
    o->x = check_input(c, in, bytes(n), bytes(o->x_stride));
    o->w = check_input(c, n, bytes(taps(s)), bytes(taps(s)));
    if (s->with & BIAS) o->bias = check_input(c, 1, bytes(n), bytes(n));
    if (s->with & SCALE) o->scale = check_input(c, 1, bytes(n), bytes(n));
    if ((s->with & (RESIDUAL | IN_PLACE)) == RESIDUAL)
        o->residual = check_input(c, out, bytes(n), bytes(o->residual_stride));
    o->y = check_output(c, out, bytes(n), bytes(o->y_stride));
    check_fill_f32(c, o->x, in, n, o->x_stride, s->mode);
    check_fill_f32(c, o->w, n, taps(s), taps(s), s->mode);
    if (o->bias) check_fill_f32(c, o->bias, 1, n, n, s->mode);
    if (o->scale) check_fill_f32(c, o->scale, 1, n, n, s->mode == CHECK_INTEGER ? CHECK_INTEGER : CHECK_UNIFORM);
    if (s->with & IN_PLACE) {
        o->residual = o->y;
        o->residual_stride = o->y_stride;
    }
    if (o->residual) check_fill_f32(c, o->residual, out, n, o->residual_stride, s->mode);
}

/* One picture of the batch alone must give the same bits. */
static void compare_alone(check *c, const struct dw_case *s, const struct operands *o, wok_dwconv_args args,
                          const float *residual) {
    const int64_t image = check_range(c, 0, s->batch - 1), pixels = out_h(s) * out_w(s), n = s->p.channels;
    float *alone = check_scratch(c, bytes(pixels * n));
    args.batch = 1;
    args.x += image * s->in_h * s->in_w * args.x_stride;
    args.y = alone;
    args.y_stride = n;
    args.epilogue.residual = residual ? residual + image * pixels * n : NULL;
    args.epilogue.residual_stride = n;
    s->kernel->run(&s->p, &args, NULL);
    check_canonical_nan(alone, pixels, n, n);
    check_equal(c, "a picture alone and in a batch", alone, bytes(n), o->y + image * pixels * o->y_stride,
                bytes(o->y_stride), pixels, bytes(n));
}

/* SIMD variants promise each other's bits, up to activations of which every level has its own. */
static void compare_siblings(check *c, const struct dw_case *s, const struct operands *o, wok_dwconv_args args,
                             const float *residual) {
    const int64_t pixels = s->batch * out_h(s) * out_w(s), n = s->p.channels;
    int count;
    const wok_kernel *const *list = wok_kernel_list(WOK_FAMILY_dwconv, &count);
    for (int i = 0; i < count; i++) {
        const wok_dwconv_kernel *other = (const void *)list[i];
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
        other->run(&s->p, &args, NULL);
        check_canonical_nan(y, pixels, n, n);
        check_equal(c, list[i]->name, o->y, bytes(o->y_stride), y, bytes(n), pixels, bytes(n));
    }
}

static void dw_case(check *c, const void *arg) {
    const struct dw_case *s = arg;
    const int64_t pixels = s->batch * out_h(s) * out_w(s), n = s->p.channels;
    struct operands o = {0};
    allocate(c, s, &o);
    float *residual = NULL; /* dense, because the kernel may write over the original */
    if (o.residual) {
        residual = check_scratch(c, bytes(pixels * n));
        for (int64_t i = 0; i < pixels; i++)
            for (int64_t j = 0; j < n; j++) residual[i * n + j] = o.residual[i * o.residual_stride + j];
    }
    void *packed = check_workspace(c, s->kernel->packed_bytes(&s->p));
    check_seal(c);
    s->kernel->pack(&s->p, o.w, o.scale, packed);
    wok_dwconv_args args = {.batch = s->batch, .in_h = s->in_h, .in_w = s->in_w, .out_h = out_h(s), .out_w = out_w(s)};
    args.pad_top = s->top;
    args.pad_left = s->left;
    args.x = o.x;
    args.x_stride = o.x_stride;
    args.packed = packed;
    args.y = o.y;
    args.y_stride = o.y_stride;
    args.epilogue = (wok_epilogue_f32){o.bias, o.residual, o.residual_stride, s->act, -0.25f, 0.5f};
    s->kernel->run(&s->p, &args, check_parallel(c));
    compare(c, s, &o, residual, &args.epilogue);
    check_canonical_nan(o.y, pixels, n, o.y_stride);
    if (s->batch > 1) compare_alone(c, s, &o, args, residual);
    if (!(s->kernel->base.flags & WOK_KERNEL_REFERENCE) && (s->act == WOK_ACT_NONE || s->act == WOK_ACT_CLAMP))
        compare_siblings(c, s, &o, args, residual);
}

static void run(check *c, struct dw_case s) {
    if (out_h(&s) == 0 || out_w(&s) == 0 || !check_accepts(c, &s.kernel->base, &s.p)) return;
    check_run(c, dw_case, &s, "c=%d k=%dx%d s=%dx%d d=%dx%d in=%dx%dx%d pad=%d,%d,%d,%d with=%u act=%d %s",
              (int)s.p.channels, (int)s.p.kernel_h, (int)s.p.kernel_w, (int)s.p.stride_h, (int)s.p.stride_w,
              (int)s.p.dilation_h, (int)s.p.dilation_w, (int)s.batch, (int)s.in_h, (int)s.in_w, (int)s.top, (int)s.left,
              (int)s.bottom, (int)s.right, s.with, (int)s.act, check_mode_name(s.mode));
}

void check_dwconv(check *c, const wok_kernel *base, const wok_kernel *reference);
void bench_dwconv(check *c, const wok_kernel *base, const wok_kernel *reference);

static struct dw_case square(const wok_kernel *base, int64_t channels, int64_t kernel, int64_t stride, int64_t size) {
    const int64_t pad = kernel / 2;
    return (struct dw_case){.kernel = (const void *)base,
                            .p = {channels, kernel, kernel, stride, stride, 1, 1},
                            .batch = 1,
                            .in_h = size,
                            .in_w = size,
                            .top = pad,
                            .left = pad,
                            .bottom = pad,
                            .right = pad};
}

/* Pads 0..2 on each side on their own with every specialised window and some others. */
static void check_windows(check *c, const wok_kernel *base) {
    static const struct {
        int64_t kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w;
    } w[] = {{3, 3, 1, 1, 1, 1}, {3, 3, 2, 2, 1, 1}, {5, 5, 1, 1, 1, 1}, {5, 5, 2, 2, 1, 1}, {3, 3, 3, 3, 1, 1},
             {3, 3, 2, 1, 1, 1}, {3, 3, 1, 1, 2, 2}, {1, 4, 1, 2, 1, 1}, {4, 2, 3, 1, 1, 2}};
    for (size_t i = 0; i < sizeof w / sizeof *w; i++)
        for (int pads = 0; pads < 81; pads++) {
            struct dw_case s = square(base, pads % 2 ? 19 : 16, 1, 1, 1);
            s.p = (wok_dwconv_problem){s.p.channels,  w[i].kernel_h,   w[i].kernel_w,  w[i].stride_h,
                                       w[i].stride_w, w[i].dilation_h, w[i].dilation_w};
            s.top = pads % 3, s.left = pads / 3 % 3, s.bottom = pads / 9 % 3, s.right = pads / 27;
            s.in_h = 3 + pads % 4, s.in_w = 2 + pads % 13;
            s.with = (unsigned)pads % (ALL + 1);
            s.batch = 1 + pads % 2;
            run(c, s);
        }
}

void check_dwconv(check *c, const wok_kernel *base, const wok_kernel *reference) {
    (void)reference;
    /* Every channel count up to two blocks and one; every width around the tile of pixels, strides 1 to 3. */
    for (int64_t channels = 1; channels <= 2 * WOK_DWCONV_BLOCK + 1; channels++)
        for (int64_t kernel = 3; kernel <= 5; kernel += 2)
            for (int64_t stride = 1; stride <= 2; stride++) {
                struct dw_case s = square(base, channels, kernel, stride, 6 + channels % 7);
                s.with = (unsigned)(channels * 3 + kernel + stride) % (ALL + 1);
                s.act = channels % 3 ? WOK_ACT_CLAMP : (wok_act)(channels / 3 % 6);
                s.mode = (check_mode)(channels % CHECK_FINITE_MODES);
                run(c, s);
            }
    for (int64_t width = 1; width <= 24; width++)
        for (int64_t kernel = 3; kernel <= 7; kernel += 2)
            for (int64_t stride = 1; stride <= 3; stride++) {
                struct dw_case s = square(base, 21, kernel, stride, 5);
                s.in_w = width;
                s.with = (unsigned)(width + kernel) % (ALL + 1);
                run(c, s);
            }
    check_windows(c, base);
    for (int mode = 0; mode < CHECK_MODES; mode++)
        for (int act = WOK_ACT_NONE; act <= WOK_ACT_SIGMOID; act++)
            for (unsigned with = 0; with < 8; with++) {
                struct dw_case s = square(base, 19, 3, 1, 7);
                s.mode = (check_mode)mode, s.act = (wok_act)act, s.with = with;
                run(c, s);
            }
    /* Work that is split by rows, by channels, by both; a window larger than the picture; a crop. */
    struct dw_case s = square(base, 24, 3, 2, 41);
    s.batch = 3, s.with = BIAS, s.act = WOK_ACT_CLAMP;
    run(c, s);
    s = square(base, 300, 3, 1, 2);
    s.with = BIAS | RESIDUAL;
    run(c, s);
    s = square(base, 17, 9, 1, 3);
    run(c, s);
    s = square(base, 18, 3, 1, 9);
    s.top = -1, s.left = -2, s.right = -1, s.bottom = 0;
    run(c, s);
    for (int i = 0; i < 60; i++) { /* shapes nobody thought of */
        s = square(base, check_range(c, 1, 50), 3, 1, 1);
        s.p =
            (wok_dwconv_problem){s.p.channels,         check_range(c, 1, 6), check_range(c, 1, 6), check_range(c, 1, 3),
                                 check_range(c, 1, 3), check_range(c, 1, 3), check_range(c, 1, 3)};
        if (i % 2) s.p = (wok_dwconv_problem){s.p.channels, 3, 3, check_range(c, 1, 2), check_range(c, 1, 2), 1, 1};
        s.batch = check_range(c, 1, 3), s.in_h = check_range(c, 1, 15), s.in_w = check_range(c, 1, 25);
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
    const wok_dwconv_kernel *kernel;
    wok_dwconv_problem problem;
    wok_dwconv_args args;
};

static void call(void *arg) {
    struct bench *b = arg;
    b->kernel->run(&b->problem, &b->args, NULL);
}

void bench_dwconv(check *c, const wok_kernel *base, const wok_kernel *reference) {
    (void)reference;
    static const int64_t shapes[][4] = {{32, 3, 1, 112}, {96, 3, 2, 112}, {144, 3, 1, 56},
                                        {144, 3, 2, 56}, {192, 3, 1, 28}, {384, 3, 1, 14},
                                        {576, 3, 1, 14}, {960, 3, 1, 7},  {96, 5, 1, 28}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const int64_t channels = shapes[i][0], k = shapes[i][1], stride = shapes[i][2], size = shapes[i][3];
        const int64_t out = (size - 1) / stride + 1;
        struct bench b = {(const void *)base,
                          {channels, k, k, stride, stride, 1, 1},
                          {.batch = 1, .in_h = size, .in_w = size, .out_h = out, .out_w = out}};
        if (!check_accepts(c, base, &b.problem)) continue;
        float *x = check_scratch(c, bytes(size * size * channels)), *w = check_scratch(c, bytes(channels * k * k));
        void *packed = check_scratch(c, b.kernel->packed_bytes(&b.problem));
        check_fill_f32(c, x, size * size, channels, channels, CHECK_UNIFORM);
        check_fill_f32(c, w, channels, k * k, k * k, CHECK_UNIFORM);
        b.kernel->pack(&b.problem, w, NULL, packed);
        b.args.pad_top = b.args.pad_left = k / 2;
        b.args.x = x, b.args.x_stride = channels, b.args.packed = packed;
        b.args.y = check_scratch(c, bytes(out * out * channels)), b.args.y_stride = channels;
        check_bench(c, call, &b, (double)(out * out * channels * k * k) * 1e-9, "GMAC", false, "%d %dx%ds%d@%d",
                    (int)channels, (int)k, (int)k, (int)stride, (int)size);
    }
}

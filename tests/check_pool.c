/* check_pool.c - max and average pooling against the definition: every tap of every window is looked at, inside the
 * picture, in the padding or past it. */
#include "checkwok.h"
#include "pool/pool.h"

#include <math.h>
#include <stdlib.h>

struct pool_case {
    const wok_pool_kernel *kernel;
    wok_pool_problem p;
    wok_pool_args a; /* sizes; pointers and strides are filled in */
    int64_t gap;     /* elements between pixels */
    check_mode mode;
};

static size_t bytes(int64_t floats) {
    return (size_t)floats * sizeof(float);
}

/* ceil: one window more where the last one would start inside the padded picture. */
static int64_t out_size(int64_t in, int64_t before, int64_t after, int64_t kernel, int64_t stride, int64_t dilation,
                        bool ceil) {
    const int64_t room = in + before + after - (kernel - 1) * dilation - 1;
    if (room < 0) return 0;
    int64_t out = room / stride + 1;
    if (ceil && room % stride != 0 && out * stride < in + before) out++;
    return out;
}

struct taps {
    int64_t inside, padded;
    double sum, magnitude;
    float max;
};

static struct taps look(const wok_pool_args *a, int64_t image, int64_t oy, int64_t ox, int64_t c) {
    struct taps t = {.max = -INFINITY};
    for (int64_t ky = 0; ky < a->kernel_h; ky++)
        for (int64_t kx = 0; kx < a->kernel_w; kx++) {
            const int64_t iy = oy * a->stride_h - a->pad_top + ky * a->dilation_h;
            const int64_t ix = ox * a->stride_w - a->pad_left + kx * a->dilation_w;
            t.padded +=
                iy >= -a->pad_top && iy < a->in_h + a->pad_bottom && ix >= -a->pad_left && ix < a->in_w + a->pad_right;
            if (iy < 0 || iy >= a->in_h || ix < 0 || ix >= a->in_w) continue;
            const float x = a->x[((image * a->in_h + iy) * a->in_w + ix) * a->x_stride + c];
            t.inside++;
            t.sum += (double)x;
            t.magnitude += fabs((double)x);
            if (x > t.max || isnan(x)) t.max = x;
        }
    return t;
}

static bool compare_one(check *c, const struct pool_case *s, const wok_pool_args *a, int64_t pixel, int64_t channel) {
    const int64_t in_image = pixel % (a->out_h * a->out_w);
    const struct taps t = look(a, pixel / (a->out_h * a->out_w), in_image / a->out_w, in_image % a->out_w, channel);
    const float got = a->y[pixel * a->y_stride + channel];
    if (s->p.op == WOK_POOL_MAX) { /* exact, and -0 is not +0 */
        if (signbit(got) != signbit(t.max) && !isnan(t.max)) check_fail(c, "the sign of a zero changed");
        return check_near(c, pixel, channel, got, (double)t.max, 0);
    }
    const int64_t count = a->count_include_pad ? t.padded : t.inside;
    const double want = t.inside ? t.sum / (double)count : 0;
    const double bound = t.inside ? (double)(t.inside + 1) * 0x1p-24 * t.magnitude / (double)count + 0x1p-149 : 0;
    return check_near(c, pixel, channel, got, want, isfinite(bound) ? bound : 1);
}

static void pool_case(check *c, const void *arg) {
    const struct pool_case *s = arg;
    wok_pool_args a = s->a;
    const int64_t in = a.batch * a.in_h * a.in_w, out = a.batch * a.out_h * a.out_w, n = s->p.channels;
    a.x_stride = n + s->gap;
    a.y_stride = n + 2 * s->gap;
    float *x = check_input(c, in, bytes(n), bytes(a.x_stride));
    a.x = x;
    a.y = check_output(c, out, bytes(n), bytes(a.y_stride));
    check_fill_f32(c, x, in, n, a.x_stride, s->mode);
    check_seal(c);
    s->kernel->run(&s->p, &a, check_parallel(c));
    for (int64_t m = 0; m < out; m++)
        for (int64_t j = 0; j < n; j++)
            if (!compare_one(c, s, &a, m, j)) return;
    check_canonical_nan(a.y, out, n, a.y_stride);
    if (a.batch < 2) return;
    const int64_t pixels = a.out_h * a.out_w, image = check_range(c, 0, a.batch - 1);
    wok_pool_args alone = a;
    alone.batch = 1;
    alone.x += image * a.in_h * a.in_w * a.x_stride;
    alone.y = check_scratch(c, bytes(pixels * n));
    alone.y_stride = n;
    s->kernel->run(&s->p, &alone, NULL);
    check_canonical_nan(alone.y, pixels, n, n);
    check_equal(c, "a picture alone and in a batch", alone.y, bytes(n), a.y + image * pixels * a.y_stride,
                bytes(a.y_stride), pixels, bytes(n));
}

static void run(check *c, struct pool_case s, bool ceil) {
    wok_pool_args *a = &s.a;
    a->out_h = out_size(a->in_h, a->pad_top, a->pad_bottom, a->kernel_h, a->stride_h, a->dilation_h, ceil);
    a->out_w = out_size(a->in_w, a->pad_left, a->pad_right, a->kernel_w, a->stride_w, a->dilation_w, ceil);
    if (a->out_h == 0 || a->out_w == 0 || !check_accepts(c, &s.kernel->base, &s.p)) return;
    check_run(c, pool_case, &s, "%s c=%d k=%dx%d s=%dx%d d=%dx%d in=%dx%dx%d out=%dx%d pad=%d,%d,%d,%d%s gap=%d %s",
              s.p.op == WOK_POOL_MAX ? "max" : "average", (int)s.p.channels, (int)a->kernel_h, (int)a->kernel_w,
              (int)a->stride_h, (int)a->stride_w, (int)a->dilation_h, (int)a->dilation_w, (int)a->batch, (int)a->in_h,
              (int)a->in_w, (int)a->out_h, (int)a->out_w, (int)a->pad_top, (int)a->pad_left, (int)a->pad_bottom,
              (int)a->pad_right, a->count_include_pad ? " with pads" : "", (int)s.gap, check_mode_name(s.mode));
}

static struct pool_case square(const wok_kernel *base, wok_pool_op op, int64_t channels, int64_t kernel, int64_t stride,
                               int64_t pad, int64_t size) {
    return (struct pool_case){.kernel = (const void *)base,
                              .p = {op, channels},
                              .a = {.batch = 1,
                                    .in_h = size,
                                    .in_w = size,
                                    .kernel_h = kernel,
                                    .kernel_w = kernel,
                                    .stride_h = stride,
                                    .stride_w = stride,
                                    .dilation_h = 1,
                                    .dilation_w = 1,
                                    .pad_top = pad,
                                    .pad_left = pad,
                                    .pad_bottom = pad,
                                    .pad_right = pad}};
}

void check_pool(check *c, const wok_kernel *base, const wok_kernel *reference);
void bench_pool(check *c, const wok_kernel *base, const wok_kernel *reference);

static void check_op(check *c, const wok_kernel *base, wok_pool_op op) {
    for (int64_t channels = 1; channels <= 69; channels++)
        for (int64_t kernel = 1; kernel <= 3; kernel++) {
            struct pool_case s = square(base, op, channels, kernel, 2, kernel / 2, 5);
            s.mode = (check_mode)(channels % CHECK_MODES);
            s.gap = channels % 2 * 3;
            run(c, s, channels % 3 == 0);
        }
    /* Pads 0..2 on each side, floor and ceil, with and without the pads in the count. */
    static const int64_t windows[][4] = {{2, 2, 1, 1}, {3, 2, 2, 1}, {3, 3, 3, 1},
                                         {2, 3, 1, 2}, {1, 1, 2, 1}, {4, 4, 3, 1}};
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++)
        for (int pads = 0; pads < 81; pads++) {
            struct pool_case s = square(base, op, 5 + 30 * (pads % 2), 1, windows[i][2], 0, 4);
            s.a.kernel_h = windows[i][0], s.a.kernel_w = windows[i][1];
            s.a.dilation_h = s.a.dilation_w = windows[i][3];
            s.a.pad_top = pads % 3, s.a.pad_left = pads / 3 % 3, s.a.pad_bottom = pads / 9 % 3,
            s.a.pad_right = pads / 27;
            s.a.in_w = 2 + pads % 4;
            s.a.batch = 1 + pads % 2;
            s.a.count_include_pad = pads / 2 % 2;
            run(c, s, false);
            run(c, s, true);
        }
    /* One NaN in a window of few and of many channels, every mode. */
    for (int mode = 0; mode < CHECK_MODES; mode++)
        for (int64_t channels = 3; channels <= 51; channels += 16) {
            struct pool_case s = square(base, op, channels, 3, 1, 1, 6);
            s.mode = (check_mode)mode;
            run(c, s, false);
        }
    /* Global, and enough that work is split by rows and by channels. */
    run(c, square(base, op, 200, 7, 1, 0, 7), false);
    run(c, square(base, op, 1, 40, 1, 0, 40), false);
    struct pool_case s = square(base, op, 40, 3, 2, 1, 30);
    s.a.batch = 3;
    run(c, s, false);
    for (int i = 0; i < 40; i++) {
        s = square(base, op, check_range(c, 1, 80), 1, 1, 0, 1);
        s.a.batch = check_range(c, 1, 3), s.a.in_h = check_range(c, 1, 12), s.a.in_w = check_range(c, 1, 12);
        s.a.kernel_h = check_range(c, 1, 5), s.a.kernel_w = check_range(c, 1, 5);
        s.a.stride_h = check_range(c, 1, 3), s.a.stride_w = check_range(c, 1, 3);
        s.a.dilation_h = check_range(c, 1, 2), s.a.dilation_w = check_range(c, 1, 2);
        s.a.pad_top = check_range(c, 0, 2), s.a.pad_left = check_range(c, 0, 2);
        s.a.pad_bottom = check_range(c, 0, 2), s.a.pad_right = check_range(c, 0, 2);
        s.a.count_include_pad = check_range(c, 0, 1);
        s.gap = check_range(c, 0, 3);
        s.mode = (check_mode)check_range(c, 0, CHECK_MODES - 1);
        run(c, s, check_range(c, 0, 1));
    }
}

void check_pool(check *c, const wok_kernel *base, const wok_kernel *reference) {
    (void)reference;
    check_op(c, base, WOK_POOL_MAX);
    check_op(c, base, WOK_POOL_AVERAGE);
}

/* ---- benchmarks -------------------------------------------------------------------------------------------------- */

struct bench {
    const wok_pool_kernel *kernel;
    wok_pool_problem problem;
    wok_pool_args args;
};

static void call(void *arg) {
    struct bench *b = arg;
    b->kernel->run(&b->problem, &b->args, NULL);
}

void bench_pool(check *c, const wok_kernel *base, const wok_kernel *reference) {
    (void)reference;
    static const struct {
        wok_pool_op op;
        int64_t channels, kernel, stride, pad, size;
    } shapes[] = {{WOK_POOL_MAX, 64, 3, 2, 1, 56}, {WOK_POOL_AVERAGE, 512, 7, 1, 0, 7}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const int64_t n = shapes[i].channels, size = shapes[i].size, pad = shapes[i].pad;
        struct pool_case s = square(base, shapes[i].op, n, shapes[i].kernel, shapes[i].stride, pad, size);
        s.a.out_h = s.a.out_w = out_size(size, pad, pad, shapes[i].kernel, shapes[i].stride, 1, false);
        struct bench b = {(const void *)base, s.p, s.a};
        float *x = check_scratch(c, bytes(size * size * n));
        check_fill_f32(c, x, size * size, n, n, CHECK_UNIFORM);
        b.args.x = x, b.args.x_stride = n;
        b.args.y = check_scratch(c, bytes(b.args.out_h * b.args.out_w * n)), b.args.y_stride = n;
        const double taps = (double)(b.args.out_h * b.args.out_w * n * shapes[i].kernel * shapes[i].kernel);
        check_bench(c, call, &b, taps * 4e-9, "GB", false, "%s %d %dx%d@%d", s.p.op == WOK_POOL_MAX ? "max" : "average",
                    (int)n, (int)shapes[i].kernel, (int)shapes[i].kernel, (int)size);
    }
}

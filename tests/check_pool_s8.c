/* check_pool_s8.c - max and average pooling of bytes against the definition: every tap of every window is looked at,
 * inside the picture, in the padding or past it. Every bit counts. */
#include "checkwok.h"
#include "pool_s8/pool_s8.h"

struct pool_case {
    const wok_pool_s8_kernel *kernel;
    wok_pool_problem p;
    wok_pool_s8_args a; /* sizes; pointers, strides and scales are filled in */
    int64_t gap;        /* elements between pixels */
};

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
    int64_t inside, padded, sum;
    int8_t max;
};

static struct taps look(const wok_pool_s8_args *a, int64_t image, int64_t oy, int64_t ox, int64_t c) {
    struct taps t = {.max = -128};
    for (int64_t ky = 0; ky < a->kernel_h; ky++)
        for (int64_t kx = 0; kx < a->kernel_w; kx++) {
            const int64_t iy = oy * a->stride_h - a->pad_top + ky * a->dilation_h;
            const int64_t ix = ox * a->stride_w - a->pad_left + kx * a->dilation_w;
            t.padded +=
                iy >= -a->pad_top && iy < a->in_h + a->pad_bottom && ix >= -a->pad_left && ix < a->in_w + a->pad_right;
            if (iy < 0 || iy >= a->in_h || ix < 0 || ix >= a->in_w) continue;
            const int8_t x = a->x[((image * a->in_h + iy) * a->in_w + ix) * a->x_stride + c];
            t.inside++;
            t.sum += x - a->x_zero;
            if (x > t.max) t.max = x;
        }
    return t;
}

static int32_t average(const wok_pool_s8_args *a, struct taps t) {
    if (t.inside == 0) return a->y_zero;
    volatile float v = (float)t.sum * a->x_scale;
    v /= (float)(a->count_include_pad ? t.padded : t.inside);
    v /= a->y_scale;
    const double y = nearbyint((double)v) + a->y_zero;
    return y < -128 ? -128 : y > 127 ? 127 : (int32_t)y;
}

static void pool_case(check *c, const void *arg) {
    const struct pool_case *s = arg;
    wok_pool_s8_args a = s->a;
    const int64_t in = a.batch * a.in_h * a.in_w, out = a.batch * a.out_h * a.out_w, n = s->p.channels;
    a.x_stride = n + s->gap;
    a.y_stride = n + 2 * s->gap;
    a.x_scale = ldexpf((float)check_range(c, 256, 511), -14);
    a.y_scale = a.x_scale * (check_range(c, 0, 1) ? 1 : ldexpf((float)check_range(c, 256, 511), -10));
    a.x_zero = (int32_t)check_range(c, -128, 127);
    a.y_zero = (int32_t)check_range(c, -128, 127);
    int8_t *x = check_input(c, in, (size_t)n, (size_t)a.x_stride);
    a.x = x;
    a.y = check_output(c, out, (size_t)n, (size_t)a.y_stride);
    check_fill_bytes(c, x, in, (size_t)n, (size_t)a.x_stride);
    check_seal(c);
    s->kernel->run(&s->p, &a, check_parallel(c));
    for (int64_t m = 0; m < out; m++)
        for (int64_t j = 0; j < n; j++) {
            const int64_t at = m % (a.out_h * a.out_w);
            const struct taps t = look(&a, m / (a.out_h * a.out_w), at / a.out_w, at % a.out_w, j);
            const int32_t want = s->p.op == WOK_POOL_MAX ? t.max : average(&a, t);
            if (!check_near(c, m, j, a.y[m * a.y_stride + j], want, 0)) return;
        }
}

static void run(check *c, struct pool_case s, bool ceil) {
    wok_pool_s8_args *a = &s.a;
    a->out_h = out_size(a->in_h, a->pad_top, a->pad_bottom, a->kernel_h, a->stride_h, a->dilation_h, ceil);
    a->out_w = out_size(a->in_w, a->pad_left, a->pad_right, a->kernel_w, a->stride_w, a->dilation_w, ceil);
    if (a->out_h == 0 || a->out_w == 0 || !check_accepts(c, &s.kernel->base, &s.p)) return;
    check_run(c, pool_case, &s, "%s c=%d k=%dx%d s=%dx%d d=%dx%d in=%dx%dx%d out=%dx%d pad=%d,%d,%d,%d%s gap=%d",
              s.p.op == WOK_POOL_MAX ? "max" : "average", (int)s.p.channels, (int)a->kernel_h, (int)a->kernel_w,
              (int)a->stride_h, (int)a->stride_w, (int)a->dilation_h, (int)a->dilation_w, (int)a->batch, (int)a->in_h,
              (int)a->in_w, (int)a->out_h, (int)a->out_w, (int)a->pad_top, (int)a->pad_left, (int)a->pad_bottom,
              (int)a->pad_right, a->count_include_pad ? " with pads" : "", (int)s.gap);
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

static void check_op(check *c, const wok_kernel *base, wok_pool_op op) {
    for (int64_t channels = 1; channels <= 2 * 64 + 1; channels++)
        for (int64_t kernel = 1; kernel <= 3; kernel++) {
            struct pool_case s = square(base, op, channels, kernel, 2, kernel / 2, 5);
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
    /* Global, large, and enough that work is split by rows and by channels. */
    run(c, square(base, op, 200, 7, 1, 0, 7), false);
    run(c, square(base, op, 33, 300, 1, 0, 300), false);
    struct pool_case s = square(base, op, 40, 3, 2, 1, 30);
    s.a.batch = 3;
    run(c, s, false);
    for (int i = 0; i < 40; i++) {
        s = square(base, op, check_range(c, 1, 150), 1, 1, 0, 1);
        s.a.batch = check_range(c, 1, 3), s.a.in_h = check_range(c, 1, 12), s.a.in_w = check_range(c, 1, 12);
        s.a.kernel_h = check_range(c, 1, 5), s.a.kernel_w = check_range(c, 1, 5);
        s.a.stride_h = check_range(c, 1, 3), s.a.stride_w = check_range(c, 1, 3);
        s.a.dilation_h = check_range(c, 1, 2), s.a.dilation_w = check_range(c, 1, 2);
        s.a.pad_top = check_range(c, 0, 2), s.a.pad_left = check_range(c, 0, 2);
        s.a.pad_bottom = check_range(c, 0, 2), s.a.pad_right = check_range(c, 0, 2);
        s.a.count_include_pad = check_range(c, 0, 1);
        s.gap = check_range(c, 0, 3);
        run(c, s, check_range(c, 0, 1));
    }
}

void check_pool_s8(check *c, const wok_kernel *base, const wok_kernel *reference) {
    (void)reference;
    check_op(c, base, WOK_POOL_MAX);
    check_op(c, base, WOK_POOL_AVERAGE);
}

/* ---- benchmarks: ResNet's maximum, averages of ResNet and MobileNetV2 -------------------------------------------- */

struct bench {
    const wok_pool_s8_kernel *kernel;
    wok_pool_problem problem;
    wok_pool_s8_args args;
};

static void call(void *arg) {
    struct bench *b = arg;
    b->kernel->run(&b->problem, &b->args, NULL);
}

void bench_pool_s8(check *c, const wok_kernel *base, const wok_kernel *reference) {
    (void)reference;
    static const struct {
        wok_pool_op op;
        int64_t channels, kernel, stride, pad, size;
    } shapes[] = {
        {WOK_POOL_MAX, 64, 3, 2, 1, 112}, {WOK_POOL_AVERAGE, 512, 7, 1, 0, 7}, {WOK_POOL_AVERAGE, 1280, 7, 1, 0, 7}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const int64_t n = shapes[i].channels, size = shapes[i].size, pad = shapes[i].pad;
        struct pool_case s = square(base, shapes[i].op, n, shapes[i].kernel, shapes[i].stride, pad, size);
        s.a.out_h = s.a.out_w = out_size(size, pad, pad, shapes[i].kernel, shapes[i].stride, 1, false);
        struct bench b = {(const void *)base, s.p, s.a};
        int8_t *x = check_scratch(c, (size_t)(size * size * n));
        check_fill_bytes(c, x, size * size, (size_t)n, (size_t)n);
        b.args.x = x, b.args.x_stride = n;
        b.args.x_scale = b.args.y_scale = 1.0f / 128;
        b.args.y = check_scratch(c, (size_t)(b.args.out_h * b.args.out_w * n)), b.args.y_stride = n;
        const double taps = (double)(b.args.out_h * b.args.out_w * n * shapes[i].kernel * shapes[i].kernel);
        check_bench(c, call, &b, taps * 1e-9, "GB", false, "%s %d %dx%d@%d", s.p.op == WOK_POOL_MAX ? "max" : "average",
                    (int)n, (int)shapes[i].kernel, (int)shapes[i].kernel, (int)size);
    }
}

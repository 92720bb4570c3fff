/* check_dwconv_s8.c - dwconv_s8 against the definition, summed in 64 bits over the unpacked weights. Every bit counts,
 * but for activations of f32 outputs. */
#include "checkwok.h"
#include "dwconv_s8/dwconv_s8.h"
#include "epilogue_s8_ref.h"

enum { BIAS = 1, RESIDUAL = 2, IN_PLACE = 4, TABLE = 8, PADDED = 16, W_ZERO = 32, EXTREME = 64, ALL = 127 };

struct dw_case {
    const wok_dwconv_s8_kernel *kernel;
    wok_dwconv_problem p;
    int64_t batch, in_h, in_w, top, left, bottom, right; /* pads may be negative: a crop */
    unsigned with;                                       /* BIAS ... EXTREME */
    wok_s8_out out;
    wok_act act;
};

struct operands {
    int8_t *x, *w, *w_zero;
    void *residual, *y;
    int64_t x_stride, y_stride, residual_stride;
};

static size_t element(wok_s8_out out) { return out == WOK_S8_OUT_S8 ? 1 : 4; }

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

static int64_t taps(const struct dw_case *s) { return s->p.kernel_h * s->p.kernel_w; }

static int64_t window(const struct dw_case *s, const struct operands *o, int32_t x_zero, int64_t image, int64_t oy,
                      int64_t ox, int64_t n) {
    const wok_dwconv_problem *p = &s->p;
    int64_t sum = 0;
    for (int64_t ky = 0; ky < p->kernel_h; ky++)
        for (int64_t kx = 0; kx < p->kernel_w; kx++) {
            const int64_t iy = oy * p->stride_h - s->top + ky * p->dilation_h;
            const int64_t ix = ox * p->stride_w - s->left + kx * p->dilation_w;
            if (iy < 0 || iy >= s->in_h || ix < 0 || ix >= s->in_w) continue;
            const int64_t x = o->x[((image * s->in_h + iy) * s->in_w + ix) * o->x_stride + n] - x_zero;
            sum += x * (o->w[n * taps(s) + ky * p->kernel_w + kx] - (o->w_zero ? o->w_zero[n] : 0));
        }
    return sum;
}

/* `e` has the residual as it was, dense. */
static bool compare_one(check *c, const struct dw_case *s, const struct operands *o, int64_t m, int64_t n, int64_t sum,
                        const wok_epilogue_s8 *e) {
    const int64_t at = m * o->y_stride + n;
    int32_t want = 0;
    wok_epilogue_s8_ref((int32_t)sum, m, n, e, &want, 0);
    if (s->out == WOK_S8_OUT_S8) return check_near(c, m, n, ((int8_t *)o->y)[at], *(int8_t *)(void *)&want, 0);
    if (s->out == WOK_S8_OUT_S32) {
        const int32_t got = ((int32_t *)o->y)[at];
        if (got != want) check_fail(c, "sum [%d][%d] is %d, not %d", (int)m, (int)n, got, want);
        return got == want;
    }
    float value;
    memcpy(&value, &want, sizeof value);
    const double bound = s->act <= WOK_ACT_CLAMP ? 0 : 0x1p-21 * fmax(1, fabs((double)value));
    return check_near(c, m, n, ((float *)o->y)[at], (double)value, bound);
}

static void compare(check *c, const struct dw_case *s, const struct operands *o, int32_t x_zero,
                    const wok_epilogue_s8 *e) {
    const int64_t pixels = out_h(s) * out_w(s);
    for (int64_t m = 0; m < s->batch * pixels; m++)
        for (int64_t n = 0; n < s->p.channels; n++) {
            const int64_t in_image = m % pixels;
            const int64_t sum = window(s, o, x_zero, m / pixels, in_image / out_w(s), in_image % out_w(s), n);
            if (!compare_one(c, s, o, m, n, sum, e)) return;
        }
}

static void fill_bytes(check *c, const struct dw_case *s, int8_t *p, int64_t rows, int64_t n, int64_t stride) {
    check_fill_bytes(c, p, rows, (size_t)n, (size_t)stride);
    for (int64_t i = 0; s->with & EXTREME && i < rows; i++)
        for (int64_t j = 0; j < n; j++) p[i * stride + j] = (i + j) % 97 ? -128 : 127;
}

static void allocate(check *c, const struct dw_case *s, struct operands *o) {
    const int64_t pad = s->with & PADDED ? 3 : 0, n = s->p.channels;
    const int64_t in = s->batch * s->in_h * s->in_w, out = s->batch * out_h(s) * out_w(s);
    const size_t size = element(s->out);
    o->x_stride = n + pad;
    o->y_stride = o->residual_stride = n + 2 * pad;
    o->x = check_input(c, in, (size_t)n, (size_t)o->x_stride);
    o->w = check_input(c, n, (size_t)taps(s), (size_t)taps(s));
    fill_bytes(c, s, o->x, in, n, o->x_stride);
    fill_bytes(c, s, o->w, n, taps(s), taps(s));
    if (s->with & W_ZERO) {
        o->w_zero = check_input(c, 1, (size_t)n, (size_t)n);
        check_fill_bytes(c, o->w_zero, 1, (size_t)n, (size_t)n);
        for (int64_t i = 0; s->with & EXTREME && i < n; i++) o->w_zero[i] = i % 2 ? 127 : -128;
    }
    o->y = check_output(c, out, (size_t)n * size, (size_t)o->y_stride * size);
    if (!(s->with & RESIDUAL) || s->out == WOK_S8_OUT_S32) return;
    o->residual = s->with & IN_PLACE ? o->y : check_input(c, out, (size_t)n * size, (size_t)o->residual_stride * size);
    if (s->out == WOK_S8_OUT_S8)
        check_fill_bytes(c, o->residual, out, (size_t)n, (size_t)o->residual_stride);
    else
        check_fill_f32(c, o->residual, out, n, o->residual_stride, CHECK_UNIFORM);
}

static wok_epilogue_s8 epilogue(check *c, const struct dw_case *s, const struct operands *o) {
    const int64_t n = s->p.channels;
    float *scale = check_input(c, 1, (size_t)n * sizeof *scale, (size_t)n * sizeof *scale);
    /* bytes all over, and some that are cut */
    const float typical = 1.0f / (s->out == WOK_S8_OUT_S8 ? 64 * sqrtf((float)taps(s)) : 4096);
    for (int64_t i = 0; i < n; i++) scale[i] = typical * (float)check_range(c, 10, 100) / 50;
    wok_epilogue_s8 e = {.out = s->out, .scale = scale, .act = s->act, .act_lo = -0.25f, .act_hi = 0.5f};
    if (s->with & BIAS) {
        float *bias = check_input(c, 1, (size_t)n * sizeof *bias, (size_t)n * sizeof *bias);
        for (int64_t i = 0; i < n; i++) bias[i] = (float)check_range(c, -100, 100) / (s->out == WOK_S8_OUT_S8 ? 2 : 64);
        e.bias = bias;
    }
    if (s->with & TABLE) {
        int8_t *table = check_input(c, 1, 256, 256);
        check_fill_bytes(c, table, 1, 256, 256);
        e.table = table;
    }
    e.residual = o->residual;
    e.residual_stride = o->residual_stride;
    e.residual_scale = 0.75f;
    e.residual_zero = (int32_t)check_range(c, -128, 127);
    e.zero = (int32_t)check_range(c, -128, 127);
    e.lo = (int32_t)check_range(c, -128, 0);
    e.hi = (int32_t)check_range(c, e.lo, 127);
    return e;
}

/* One picture of the batch alone must give the same bits. */
static void compare_alone(check *c, const struct dw_case *s, const struct operands *o, wok_dwconv_s8_args args,
                          const char *residual) {
    const int64_t image = check_range(c, 0, s->batch - 1), pixels = out_h(s) * out_w(s), n = s->p.channels;
    const size_t size = element(s->out);
    char *alone = check_scratch(c, (size_t)(pixels * n) * size);
    args.batch = 1;
    args.x += image * s->in_h * s->in_w * args.x_stride;
    args.y = alone;
    args.y_stride = n;
    args.epilogue.residual = residual ? residual + (size_t)(image * pixels * n) * size : NULL;
    args.epilogue.residual_stride = n;
    s->kernel->run(&s->p, &args, NULL);
    check_equal(c, "a picture alone and in a batch", alone, (size_t)n * size,
                (char *)o->y + (size_t)(image * pixels * o->y_stride) * size, (size_t)o->y_stride * size, pixels,
                (size_t)n * size);
}

static void dw_case(check *c, const void *arg) {
    const struct dw_case *s = arg;
    const int64_t pixels = s->batch * out_h(s) * out_w(s), n = s->p.channels;
    const size_t size = element(s->out), row = (size_t)n * size;
    struct operands o = {0};
    allocate(c, s, &o);
    wok_dwconv_s8_args args = {.batch = s->batch, .in_h = s->in_h, .in_w = s->in_w};
    args.out_h = out_h(s), args.out_w = out_w(s);
    args.epilogue = epilogue(c, s, &o);
    args.x_zero = s->with & EXTREME ? 127 : (int32_t)check_range(c, -128, 127);
    char *residual = NULL; /* dense, because the kernel may write over the original */
    if (o.residual) {
        residual = check_scratch(c, (size_t)pixels * row);
        for (int64_t i = 0; i < pixels; i++)
            memcpy(residual + (size_t)i * row, (char *)o.residual + (size_t)(i * o.residual_stride) * size, row);
    }
    void *packed = check_workspace(c, s->kernel->packed_bytes(&s->p));
    check_seal(c);
    s->kernel->pack(&s->p, o.w, o.w_zero, packed);
    args.pad_top = s->top;
    args.pad_left = s->left;
    args.x = o.x;
    args.x_stride = o.x_stride;
    args.packed = packed;
    args.y = o.y;
    args.y_stride = o.y_stride;
    s->kernel->run(&s->p, &args, check_parallel(c));
    wok_epilogue_s8 dense = args.epilogue;
    dense.residual = residual;
    dense.residual_stride = n;
    compare(c, s, &o, args.x_zero, &dense);
    if (s->batch > 1) compare_alone(c, s, &o, args, residual);
}

static void run(check *c, struct dw_case s) {
    if (out_h(&s) == 0 || out_w(&s) == 0 || !check_accepts(c, &s.kernel->base, &s.p)) return;
    check_run(c, dw_case, &s, "c=%d k=%dx%d s=%dx%d d=%dx%d in=%dx%dx%d pad=%d,%d,%d,%d with=%u out=%d act=%d",
              (int)s.p.channels, (int)s.p.kernel_h, (int)s.p.kernel_w, (int)s.p.stride_h, (int)s.p.stride_w,
              (int)s.p.dilation_h, (int)s.p.dilation_w, (int)s.batch, (int)s.in_h, (int)s.in_w, (int)s.top, (int)s.left,
              (int)s.bottom, (int)s.right, s.with, (int)s.out, (int)s.act);
}

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
                            .right = pad,
                            .out = WOK_S8_OUT_S8};
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
            s.with = (unsigned)(pads * 37) & ALL;
            s.out = pads % 5 == 3 ? WOK_S8_OUT_S32 : pads % 5 == 4 ? WOK_S8_OUT_F32 : WOK_S8_OUT_S8;
            s.batch = 1 + pads % 2;
            run(c, s);
        }
}

void check_dwconv_s8(check *c, const wok_kernel *base, const wok_kernel *reference) {
    (void)reference;
    /* Every channel count up to two blocks and one; every width around the step of columns, strides 1 to 3. */
    for (int64_t channels = 1; channels <= 2 * WOK_DWCONV_BLOCK + 1; channels++)
        for (int64_t kernel = 3; kernel <= 5; kernel += 2)
            for (int64_t stride = 1; stride <= 2; stride++)
                for (int out = WOK_S8_OUT_S32; out <= WOK_S8_OUT_S8; out++) {
                    struct dw_case s = square(base, channels, kernel, stride, 6 + channels % 7);
                    s.with = (unsigned)(channels * 13 + kernel * 7 + stride) & ALL;
                    s.out = (wok_s8_out)out;
                    s.act = (wok_act)(channels % 6);
                    run(c, s);
                }
    for (int64_t width = 1; width <= 24; width++)
        for (int64_t kernel = 3; kernel <= 7; kernel += 2)
            for (int64_t stride = 1; stride <= 3; stride++) {
                struct dw_case s = square(base, 21, kernel, stride, 5);
                s.in_w = width;
                s.with = (unsigned)(width * 5 + kernel * 3) & ALL;
                run(c, s);
            }
    check_windows(c, base);
    for (int out = WOK_S8_OUT_S32; out <= WOK_S8_OUT_S8; out++) /* everything an epilogue can do */
        for (int act = WOK_ACT_NONE; act <= WOK_ACT_SIGMOID; act++)
            for (unsigned with = 0; with < 16; with++) {
                struct dw_case s = square(base, 24, 3, 1, 7);
                s.out = (wok_s8_out)out, s.act = (wok_act)act, s.with = with;
                run(c, s);
            }
    /* The largest sums: all taps of one sign at the ends of the bytes, as many as the contract allows. */
    struct dw_case s = square(base, 3, 181, 1, 182);
    s.in_h = s.in_w = 183;
    s.top = s.left = s.bottom = s.right = 0;
    s.out = WOK_S8_OUT_S32, s.with = EXTREME | W_ZERO;
    run(c, s);
    /* Work that is split by rows, by channels, by both; a window larger than the picture; a crop. */
    s = square(base, 24, 3, 2, 41);
    s.batch = 3, s.with = BIAS;
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
        s.out = (wok_s8_out)check_range(c, 0, 2);
        s.act = (wok_act)check_range(c, 0, 5);
        run(c, s);
    }
}

/* ---- benchmarks: the depthwise layers of MobileNetV2, and one of 5x5 --------------------------------------------- */

struct bench {
    const wok_dwconv_s8_kernel *kernel;
    wok_dwconv_problem problem;
    wok_dwconv_s8_args args;
};

static void call(void *arg) {
    struct bench *b = arg;
    b->kernel->run(&b->problem, &b->args, NULL);
}

void bench_dwconv_s8(check *c, const wok_kernel *base, const wok_kernel *reference) {
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
        int8_t *x = check_scratch(c, (size_t)(size * size * channels));
        int8_t *w = check_scratch(c, (size_t)(channels * k * k));
        float *scale = check_scratch(c, (size_t)channels * sizeof *scale);
        void *packed = check_scratch(c, b.kernel->packed_bytes(&b.problem));
        check_fill_bytes(c, x, size * size, (size_t)channels, (size_t)channels);
        check_fill_bytes(c, w, channels, (size_t)(k * k), (size_t)(k * k));
        for (int64_t n = 0; n < channels; n++) scale[n] = 1.0f / 1024;
        b.kernel->pack(&b.problem, w, NULL, packed);
        b.args.pad_top = b.args.pad_left = k / 2;
        b.args.x = x, b.args.x_stride = channels, b.args.packed = packed;
        b.args.y = check_scratch(c, (size_t)(out * out * channels)), b.args.y_stride = channels;
        b.args.epilogue = (wok_epilogue_s8){.out = WOK_S8_OUT_S8, .scale = scale, .bias = scale, .lo = -128, .hi = 127};
        check_bench(c, call, &b, (double)(out * out * channels * k * k) * 1e-9, "GMAC", false, "%d %dx%ds%d@%d",
                    (int)channels, (int)k, (int)k, (int)stride, (int)size);
    }
}

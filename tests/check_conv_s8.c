/* check_conv_s8.c - conv_s8 against the definition over the unpacked weights: sums in int32, the scalar epilogue, equal
 * bits. Only the functions of f32 outputs (GELU and its like) have a bound instead, math_avx2.h's. */
#include "checkwok.h"
#include "conv_s8/conv_s8.h"
#include "epilogue_s8_ref.h"

enum { BIAS = 1, RESIDUAL = 2, IN_PLACE = 4, TABLE = 8, W_ZERO = 16, PADDED = 32, ONE_W_ZERO = 64, ALL = 127 };
typedef enum fill { RANDOM, EXTREMES, LOWEST, HIGHEST, ALTERNATING, FILLS } fill;
static const char *const fill_names[FILLS] = {"random", "extremes", "lowest", "highest", "alternating"};

struct conv_case {
    const wok_conv_s8_kernel *kernel;
    wok_conv_s8_problem p;
    int64_t batch, in_h, in_w, top, left, bottom, right; /* pads may be negative: a crop */
    unsigned with;                                       /* BIAS ... ONE_W_ZERO */
    wok_s8_out out;
    wok_act act; /* F32 */
    fill x_fill, w_fill;
    int32_t x_zero;
};

struct operands {
    int8_t *x, *w, *w_zero, *table;
    float *scale, *bias;
    void *residual, *y;
    int64_t x_stride, y_stride, residual_stride;
};

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

static size_t element(const struct conv_case *s) {
    return s->out == WOK_S8_OUT_S8 ? 1 : 4;
}

static bool any_function(const struct conv_case *s) {
    return s->out == WOK_S8_OUT_F32 && s->act != WOK_ACT_NONE && s->act != WOK_ACT_CLAMP;
}

/* ---- operands ---------------------------------------------------------------------------------------------------- */

static void fill_s8(check *c, int8_t *p, int64_t rows, int64_t cols, int64_t stride, fill how) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) {
            const uint64_t r = check_random(c);
            p[i * stride + j] = how == RANDOM     ? (int8_t)(r >> 32)
                                : how == EXTREMES ? (r >> 32 & 1 ? 127 : -128)
                                : how == LOWEST   ? -128
                                : how == HIGHEST  ? 127
                                : (i + j) & 1     ? 127
                                                  : -128;
        }
}

static void *rows_of(check *c, const struct conv_case *s, int64_t rows, int64_t stride, bool output) {
    const size_t e = element(s), row = (size_t)s->p.c_out * e;
    return output ? check_output(c, rows, row, (size_t)stride * e) : check_input(c, rows, row, (size_t)stride * e);
}

static void fill_residual(check *c, const struct conv_case *s, void *residual, int64_t rows, int64_t stride) {
    if (s->out == WOK_S8_OUT_S8)
        fill_s8(c, residual, rows, s->p.c_out, stride, RANDOM);
    else
        check_fill_f32(c, residual, rows, s->p.c_out, stride, CHECK_UNIFORM);
}

/* Scales bring typical sums to the size of a few bytes, or of one unit for floats; one in eight is so large that it
 * saturates, and one in eight makes halves that have to be rounded to even. */
static void fill_scale(check *c, const struct conv_case *s, float *scale) {
    const double typical = 74.0 * 74.0 * sqrt((double)depth(s)), wanted = s->out == WOK_S8_OUT_S8 ? 60 : 1;
    for (int64_t n = 0; n < s->p.c_out; n++) {
        const int64_t kind = check_range(c, 0, 7);
        scale[n] = kind == 0   ? 1e8f
                   : kind == 1 ? 0x1p-11f
                               : (float)(wanted / typical * (double)check_range(c, 50, 150) / 100);
    }
}

static void allocate(check *c, const struct conv_case *s, struct operands *o) {
    const int64_t out = s->batch * out_h(s) * out_w(s), in = s->batch * s->in_h * s->in_w, n = s->p.c_out;
    const int64_t pad = s->with & PADDED ? 5 : 0;
    const size_t floats = (size_t)n * sizeof(float);
    o->x_stride = s->p.c_in + pad;
    o->y_stride = n + 2 * pad;
    o->residual_stride = n + pad;
    o->x = check_input(c, in, (size_t)s->p.c_in, (size_t)o->x_stride);
    o->w = check_input(c, n, (size_t)depth(s), (size_t)depth(s));
    fill_s8(c, o->x, in, s->p.c_in, o->x_stride, s->x_fill);
    fill_s8(c, o->w, n, depth(s), depth(s), s->w_fill);
    if (s->with & (W_ZERO | ONE_W_ZERO)) {
        o->w_zero = check_input(c, 1, (size_t)n, (size_t)n);
        fill_s8(c, o->w_zero, 1, n, n, s->w_fill == RANDOM ? RANDOM : s->w_fill == LOWEST ? HIGHEST : EXTREMES);
        if (s->with & ONE_W_ZERO) memset(o->w_zero, o->w_zero[0], (size_t)n);
    }
    if (s->out != WOK_S8_OUT_S32) {
        o->scale = check_input(c, 1, floats, floats);
        fill_scale(c, s, o->scale);
        if (s->with & BIAS) {
            o->bias = check_input(c, 1, floats, floats);
            check_fill_f32(c, o->bias, 1, n, n, s->out == WOK_S8_OUT_S8 ? CHECK_INTEGER : CHECK_UNIFORM);
        }
        if ((s->with & (RESIDUAL | IN_PLACE)) == RESIDUAL) {
            o->residual = rows_of(c, s, out, o->residual_stride, false);
            fill_residual(c, s, o->residual, out, o->residual_stride);
        }
    }
    if (s->out == WOK_S8_OUT_S8 && s->with & TABLE) {
        o->table = check_input(c, 1, 256, 256);
        fill_s8(c, o->table, 1, 256, 256, RANDOM);
    }
    o->y = rows_of(c, s, out, o->y_stride, true);
    if (s->with & IN_PLACE && s->out != WOK_S8_OUT_S32) {
        o->residual = o->y;
        o->residual_stride = o->y_stride;
        fill_residual(c, s, o->residual, out, o->y_stride);
    }
}

/* ---- the definition ---------------------------------------------------------------------------------------------- */

/* Sum of output channel n at (image, oy, ox). */
static int32_t window(const struct conv_case *s, const struct operands *o, int64_t image, int64_t oy, int64_t ox,
                      int64_t n) {
    const wok_conv_s8_problem *p = &s->p;
    const int64_t channels = p->c_in / p->group, first = n / (p->c_out / p->group) * channels;
    const int32_t w_zero = o->w_zero ? o->w_zero[n] : 0;
    int32_t sum = 0;
    for (int64_t ky = 0; ky < p->kernel_h; ky++)
        for (int64_t kx = 0; kx < p->kernel_w; kx++) {
            const int64_t iy = oy * p->stride_h - s->top + ky * p->dilation_h;
            const int64_t ix = ox * p->stride_w - s->left + kx * p->dilation_w;
            if (iy < 0 || iy >= s->in_h || ix < 0 || ix >= s->in_w) continue; /* value 0 */
            const int8_t *x = o->x + ((image * s->in_h + iy) * s->in_w + ix) * o->x_stride + first;
            for (int64_t i = 0; i < channels; i++)
                sum += (x[i] - s->x_zero) * (o->w[((n * channels + i) * p->kernel_h + ky) * p->kernel_w + kx] - w_zero);
        }
    return sum;
}

/* The whole output, dense; `e` has a dense residual. */
static void *define(check *c, const struct conv_case *s, const struct operands *o, const wok_epilogue_s8 *e) {
    const int64_t image_pixels = out_h(s) * out_w(s), pixels = s->batch * image_pixels, n = s->p.c_out;
    void *want = check_scratch(c, (size_t)(pixels * n) * element(s));
    for (int64_t m = 0; m < pixels; m++)
        for (int64_t j = 0; j < n; j++) {
            const int64_t in_image = m % image_pixels;
            const int32_t sum = window(s, o, m / image_pixels, in_image / out_w(s), in_image % out_w(s), j);
            wok_epilogue_s8_ref(sum, m, j, e, want, m * n + j);
        }
    return want;
}

static void compare(check *c, const struct conv_case *s, const struct operands *o, const void *want) {
    const int64_t pixels = s->batch * out_h(s) * out_w(s), n = s->p.c_out;
    const size_t e = element(s);
    if (any_function(s) && !(s->kernel->base.flags & WOK_KERNEL_REFERENCE))
        for (int64_t m = 0; m < pixels; m++)
            for (int64_t j = 0; j < n; j++) {
                const float y = ((const float *)want)[m * n + j];
                if (!check_near(c, m, j, ((const float *)o->y)[m * o->y_stride + j], (double)y,
                                0x1p-22 * fmax(1, fabs((double)y))))
                    return;
            }
    else
        check_equal(c, "bits of the definition", o->y, (size_t)o->y_stride * e, want, (size_t)n * e, pixels,
                    (size_t)n * e);
}

/* One picture of the batch alone must give the same bits: of interest where bits are not those of the definition. */
static void compare_alone(check *c, const struct conv_case *s, const struct operands *o, wok_conv_s8_args args,
                          const void *residual) {
    const int64_t image = check_range(c, 0, s->batch - 1), pixels = out_h(s) * out_w(s), n = s->p.c_out;
    const size_t e = element(s), row = (size_t)n * e;
    args.batch = 1;
    args.x += image * s->in_h * s->in_w * args.x_stride;
    args.y = check_scratch(c, (size_t)pixels * row);
    args.y_stride = n;
    args.epilogue.residual = residual ? (const char *)residual + (size_t)(image * pixels) * row : NULL;
    args.epilogue.residual_stride = n;
    args.workspace = check_workspace(c, s->kernel->workspace_bytes(&s->p, &args, 1));
    s->kernel->run(&s->p, &args, NULL);
    check_equal(c, "a picture alone and in a batch", args.y, row,
                (char *)o->y + (size_t)(image * pixels * o->y_stride) * e, (size_t)o->y_stride * e, pixels, row);
}

/* ---- cases ------------------------------------------------------------------------------------------------------- */

static wok_epilogue_s8 epilogue_of(const struct conv_case *s, const struct operands *o) {
    return (wok_epilogue_s8){.out = s->out,
                             .scale = o->scale,
                             .bias = o->bias,
                             .residual = o->residual,
                             .residual_stride = o->residual_stride,
                             .residual_scale = 0.37f,
                             .residual_zero = -9,
                             .zero = s->p.c_out % 3 ? 5 : -128,
                             .lo = s->p.c_out % 2 ? -128 : -100,
                             .hi = s->p.c_out % 2 ? 127 : 90,
                             .table = o->table,
                             .act = s->act,
                             .act_lo = -0.25f,
                             .act_hi = 0.5f};
}

static void conv_case(check *c, const void *arg) {
    const struct conv_case *s = arg;
    const int64_t pixels = s->batch * out_h(s) * out_w(s), n = s->p.c_out;
    struct operands o = {0};
    allocate(c, s, &o);
    void *residual = NULL; /* dense, because the kernel may write over the original */
    if (o.residual) {
        const size_t e = element(s);
        residual = check_scratch(c, (size_t)(pixels * n) * e);
        for (int64_t i = 0; i < pixels; i++)
            memcpy((char *)residual + (size_t)(i * n) * e, (char *)o.residual + (size_t)(i * o.residual_stride) * e,
                   (size_t)n * e);
    }
    wok_conv_s8_args args = {.batch = s->batch,
                             .in_h = s->in_h,
                             .in_w = s->in_w,
                             .out_h = out_h(s),
                             .out_w = out_w(s),
                             .pad_top = s->top,
                             .pad_left = s->left,
                             .x = o.x,
                             .x_stride = o.x_stride,
                             .x_zero = s->x_zero,
                             .y = o.y,
                             .y_stride = o.y_stride,
                             .epilogue = epilogue_of(s, &o)};
    const wok_parallel *parallel = check_parallel(c);
    void *packed = check_workspace(c, s->kernel->packed_bytes(&s->p));
    args.packed = packed;
    args.workspace = check_workspace(c, s->kernel->workspace_bytes(&s->p, &args, parallel ? parallel->threads : 1));
    check_seal(c);
    s->kernel->pack(&s->p, o.w, o.w_zero, packed);
    s->kernel->run(&s->p, &args, parallel);
    wok_epilogue_s8 dense = args.epilogue;
    dense.residual = residual;
    dense.residual_stride = n;
    compare(c, s, &o, define(c, s, &o, &dense));
    if (s->batch > 1 && any_function(s)) compare_alone(c, s, &o, args, residual);
}

static void run(check *c, struct conv_case s) {
    if (out_h(&s) == 0 || out_w(&s) == 0 || !check_accepts(c, &s.kernel->base, &s.p)) return;
    check_run(c, conv_case, &s,
              "c=%d>%d g=%d k=%dx%d s=%dx%d d=%dx%d in=%dx%dx%d pad=%d,%d,%d,%d "
              "with=%u out=%d act=%d %s*%s zero=%d",
              (int)s.p.c_in, (int)s.p.c_out, (int)s.p.group, (int)s.p.kernel_h, (int)s.p.kernel_w, (int)s.p.stride_h,
              (int)s.p.stride_w, (int)s.p.dilation_h, (int)s.p.dilation_w, (int)s.batch, (int)s.in_h, (int)s.in_w,
              (int)s.top, (int)s.left, (int)s.bottom, (int)s.right, s.with, (int)s.out, (int)s.act,
              fill_names[s.x_fill], fill_names[s.w_fill], (int)s.x_zero);
}

/* Everything but the shape, from one number. */
static void vary(struct conv_case *s, uint64_t i) {
    static const int32_t zeros[] = {0, -128, 3, 127, -7};
    s->with = (unsigned)(i * 37 % (ALL + 1));
    s->out = i % 5 == 0 ? WOK_S8_OUT_S32 : i % 5 == 1 ? WOK_S8_OUT_F32 : WOK_S8_OUT_S8;
    s->act = (wok_act)(i / 5 % 6);
    s->x_fill = i % 3 ? RANDOM : (fill)(i / 3 % FILLS);
    s->w_fill = i % 4 ? RANDOM : (fill)(i / 4 % FILLS);
    s->x_zero = zeros[i / 2 % 5];
}

/* Every number of output channels with many numbers of input channels. */
static void check_channels(check *c, struct conv_case s) {
    static const int64_t c_in[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65};
    s.in_h = 4, s.in_w = 3;
    for (size_t i = 0; i < sizeof c_in / sizeof *c_in; i++)
        for (s.p.c_out = 1; s.p.c_out <= 2 * 16 + 1; s.p.c_out++) {
            s.p.c_in = c_in[i];
            s.p.kernel_h = s.p.kernel_w = s.p.c_out % 2 ? 3 : 1;
            s.top = s.left = s.bottom = s.right = s.p.kernel_h / 2;
            vary(&s, (uint64_t)(s.p.c_out + 33 * (int64_t)i));
            run(c, s);
        }
}

/* Every number of pixels up to two blocks and one, with and without a window.
 */
static void check_pixels(check *c, struct conv_case s) {
    static const int64_t c_out[] = {5, 16, 24, 72};
    for (size_t i = 0; i < sizeof c_out / sizeof *c_out; i++)
        for (int64_t kernel = 1; kernel <= 3; kernel += 2)
            for (s.p.c_in = 6; s.p.c_in <= 38; s.p.c_in += 32)
                for (s.in_w = 1; s.in_w <= 2 * s.kernel->mr + 1; s.in_w++) {
                    s.p.c_out = c_out[i];
                    s.p.kernel_h = s.p.kernel_w = kernel;
                    s.top = s.left = s.bottom = s.right = kernel / 2;
                    s.in_h = 1;
                    vary(&s, (uint64_t)(s.in_w + kernel + s.p.c_in));
                    run(c, s);
                }
}

/* Kernel sizes 1..7; pads 0..2 on each side on their own, strides and dilations, on small pictures. */
static void check_windows(check *c, struct conv_case s) {
    static const struct {
        int64_t kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w;
    } w[] = {{3, 3, 1, 1, 1, 1}, {3, 2, 2, 1, 1, 1}, {2, 3, 1, 2, 2, 1}, {3, 3, 3, 3, 1, 2},
             {1, 1, 2, 2, 1, 1}, {5, 5, 2, 2, 1, 1}, {1, 4, 1, 3, 1, 2}};
    for (size_t i = 0; i < sizeof w / sizeof *w; i++)
        for (int pads = 0; pads < 81; pads++) {
            s.p = (wok_conv_s8_problem){(pads + (int)i) % 2 ? 3 : 33,
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
            s.batch = 1 + pads % 2;
            vary(&s, (uint64_t)pads * 7 + i);
            run(c, s);
        }
    for (int64_t kernel = 1; kernel <= 7; kernel++)
        for (int64_t c_in = 1; c_in <= 4; c_in++)
            for (int64_t stride = 1; stride <= 2; stride++) {
                s.p = (wok_conv_s8_problem){c_in, 18, 1, kernel, kernel, stride, stride, 1, 1};
                s.top = s.left = kernel / 2, s.bottom = s.right = (kernel - 1) / 2;
                s.in_h = 9, s.in_w = 14, s.batch = 2;
                vary(&s, (uint64_t)(kernel * 8 + c_in * 2 + stride));
                run(c, s);
            }
}

static void check_groups(check *c, struct conv_case s) {
    s.in_h = 3, s.in_w = 4, s.top = 1, s.left = 1, s.right = 1;
    s.p.kernel_h = 2, s.p.kernel_w = 3;
    for (s.p.group = 2; s.p.group <= 4; s.p.group++)
        for (int64_t in = 1; in <= 5; in++)
            for (int64_t out = 1; out <= 17; out += 1 + out % 3) {
                s.p.c_in = in * s.p.group;
                s.p.c_out = out * s.p.group;
                vary(&s, (uint64_t)(in * 17 + out + s.p.group));
                run(c, s);
                s.p.kernel_h = 3 - s.p.kernel_h; /* 1x1 of a group lies in place */
                s.p.kernel_w = s.p.kernel_h == 1 ? 1 : 3;
            }
}

/* Every epilogue with every fill, at a width with a tail. */
static void check_epilogues(check *c, struct conv_case s) {
    static const int32_t zeros[] = {-128, 0, 127};
    s.p = (wok_conv_s8_problem){6, 37, 1, 3, 3, 1, 1, 1, 1};
    s.in_h = 4, s.in_w = 5, s.top = s.left = s.right = s.bottom = 1;
    s.batch = 2;
    for (unsigned with = 0; with < 16; with++)
        for (int kind = 0; kind < 8; kind++) { /* S32, S8, F32 with each activation */
            s.out = kind == 0 ? WOK_S8_OUT_S32 : kind == 1 ? WOK_S8_OUT_S8 : WOK_S8_OUT_F32;
            s.act = kind < 2 ? WOK_ACT_NONE : (wok_act)(kind - 2);
            s.with = with;
            run(c, s);
        }
    for (int x = 0; x < FILLS; x++)
        for (int w = 0; w < FILLS; w++)
            for (size_t z = 0; z < sizeof zeros / sizeof *zeros; z++)
                for (unsigned with = 0; with < 3; with++) {
                    s.out = WOK_S8_OUT_S32;
                    s.with = with == 0 ? 0 : with == 1 ? W_ZERO : ONE_W_ZERO;
                    s.x_fill = (fill)x, s.w_fill = (fill)w, s.x_zero = zeros[z];
                    run(c, s);
                }
}

/* Enough of everything that work is split: pixels, panels, both; a window larger than the picture; a crop; the longest
 * sums, which 16 bits or a float would not hold. */
static void check_large(check *c, const struct conv_case *basic) {
    static const struct {
        wok_conv_s8_problem p;
        int64_t batch, in_h, in_w, top, left, bottom, right;
    } large[] = {
        {{64, 40, 1, 3, 3, 1, 1, 1, 1}, 3, 14, 14, 1, 1, 1, 1},  {{96, 200, 1, 3, 3, 1, 1, 1, 1}, 1, 5, 5, 1, 1, 1, 1},
        {{3, 24, 1, 7, 7, 2, 2, 1, 1}, 2, 40, 37, 3, 3, 2, 2},   {{3, 5, 1, 3, 3, 1, 1, 1, 1}, 5, 60, 70, 0, 1, 2, 1},
        {{16, 16, 1, 1, 1, 1, 1, 1, 1}, 1, 120, 90, 0, 0, 0, 0}, {{8, 8, 1, 9, 9, 1, 1, 1, 1}, 2, 3, 2, 4, 4, 4, 4},
        {{40, 8, 1, 7, 7, 1, 1, 2, 2}, 1, 3, 2, 9, 9, 9, 9},     {{5, 7, 1, 2, 2, 1, 1, 1, 1}, 2, 6, 6, -1, -2, -1, -1},
        {{35, 7, 1, 1, 1, 1, 1, 1, 1}, 2, 6, 6, 1, 0, -1, 0},    {{64, 70, 1, 1, 1, 2, 2, 1, 1}, 2, 16, 18, 0, 0, 0, 0},
        {{256, 80, 2, 3, 3, 1, 1, 1, 1}, 2, 7, 7, 1, 1, 1, 1},   {{512, 9, 1, 3, 3, 1, 1, 1, 1}, 1, 3, 3, 1, 1, 1, 1},
    };
    for (size_t i = 0; i < sizeof large / sizeof *large; i++)
        for (int out = WOK_S8_OUT_S32; out <= WOK_S8_OUT_S8; out++) {
            struct conv_case s = *basic;
            s.p = large[i].p;
            s.batch = large[i].batch, s.in_h = large[i].in_h, s.in_w = large[i].in_w;
            s.top = large[i].top, s.left = large[i].left, s.bottom = large[i].bottom, s.right = large[i].right;
            s.out = (wok_s8_out)out;
            s.act = WOK_ACT_CLAMP;
            s.with = out == WOK_S8_OUT_S32 ? W_ZERO : BIAS | RESIDUAL | PADDED;
            s.x_zero = -3;
            run(c, s);
        }
    struct conv_case s = *basic;
    s.p = (wok_conv_s8_problem){WOK_S8_MAX_K / 4, 3, 1, 2, 2, 1, 1, 1, 1};
    s.in_h = s.in_w = 2;
    s.with = ONE_W_ZERO;
    for (int fills = 0; fills < 4; fills++) {
        s.x_fill = fills & 1 ? LOWEST : HIGHEST, s.w_fill = fills & 2 ? LOWEST : HIGHEST;
        s.x_zero = fills & 1 ? 127 : -128;
        run(c, s);
    }
}

void check_conv_s8(check *c, const wok_kernel *base, const wok_kernel *reference) {
    (void)reference;
    const struct conv_case basic = {.kernel = (const void *)base, .p = {4, 4, 1, 1, 1, 1, 1, 1, 1}, .batch = 1};
    check_channels(c, basic);
    check_pixels(c, basic);
    check_windows(c, basic);
    check_groups(c, basic);
    check_epilogues(c, basic);
    check_large(c, &basic);
    struct conv_case s = basic;
    for (int i = 0; i < 80; i++) { /* shapes nobody thought of */
        const int64_t group = check_range(c, 1, 3);
        s.p = (wok_conv_s8_problem){group * check_range(c, 1, 20), group * check_range(c, 1, 40), group,
                                    check_range(c, 1, 4),          check_range(c, 1, 4),          check_range(c, 1, 3),
                                    check_range(c, 1, 3),          check_range(c, 1, 2),          check_range(c, 1, 2)};
        s.batch = check_range(c, 1, 3), s.in_h = check_range(c, 1, 12), s.in_w = check_range(c, 1, 12);
        s.top = check_range(c, 0, 2), s.left = check_range(c, 0, 2), s.bottom = check_range(c, 0, 2),
        s.right = check_range(c, 0, 2);
        vary(&s, check_random(c) >> 1);
        s.x_zero = (int32_t)check_range(c, -128, 127);
        run(c, s);
    }
}

/* ---- benchmarks -------------------------------------------------------------------------------------------------- */

struct bench {
    const wok_conv_s8_kernel *kernel;
    wok_conv_s8_problem problem;
    wok_conv_s8_args args;
};

static void call(void *arg) {
    struct bench *b = arg;
    b->kernel->run(&b->problem, &b->args, NULL);
}

void bench_conv_s8(check *c, const wok_kernel *base, const wok_kernel *reference) {
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
        int8_t *x = check_scratch(c, (size_t)(size * size * b.problem.c_in)), *w = check_scratch(c, (size_t)weights);
        void *packed = check_scratch(c, b.kernel->packed_bytes(&b.problem));
        float *scale = check_scratch(c, (size_t)b.problem.c_out * sizeof *scale);
        fill_s8(c, x, 1, size * size * b.problem.c_in, 0, RANDOM);
        fill_s8(c, w, 1, weights, 0, RANDOM);
        for (int64_t n = 0; n < b.problem.c_out; n++) scale[n] = 1e-4f;
        b.kernel->pack(&b.problem, w, NULL, packed);
        b.args.pad_top = b.args.pad_left = k / 2;
        b.args.x = x, b.args.x_stride = b.problem.c_in, b.args.packed = packed;
        b.args.y = check_scratch(c, (size_t)(out * out * b.problem.c_out)), b.args.y_stride = b.problem.c_out;
        b.args.epilogue = (wok_epilogue_s8){.out = WOK_S8_OUT_S8, .scale = scale, .bias = scale, .lo = 0, .hi = 127};
        b.args.workspace = check_scratch(c, b.kernel->workspace_bytes(&b.problem, &b.args, 1));
        check_bench(c, call, &b, (double)(out * out * weights) * 1e-9, "GMAC", true, "%d>%d %dx%ds%d@%d",
                    (int)b.problem.c_in, (int)b.problem.c_out, (int)k, (int)k, (int)shapes[i].stride, (int)size);
    }
}

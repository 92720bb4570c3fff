/* check_resize.c - resize against its definition: weights worked out pixel by pixel, fixed point summed in 64 bits and
 * floating point in double. Nothing is shared with the kernels' tables. */
#include "checkwok.h"
#include "resize/resize.h"

#include <math.h>
#include <string.h>

enum layout { HWC, CHW, BGR_PLANES, LOOSE, LAYOUTS };
static const char *const layout_names[LAYOUTS] = {"hwc", "chw", "bgr-planes", "loose"};
static const char *const op_names[] = {"u8", "u8-unit", "u8-f32", "f32"};
static const char *const filter_names[] = {"nearest", "bilinear", "bicubic"};

struct resize_case {
    const wok_resize_kernel *kernel;
    wok_resize_problem p;
    int64_t in_h, in_w, out_h, out_w, top, left, h, w;
    int64_t gap; /* elements between rows of x */
    enum layout layout;
    bool plain; /* no scale and shift */
    check_mode mode;
};

/* ---- the definition -------------------------------------------------------------------------------------------- */

struct line {
    int64_t taps;
    double *weights;
};

static double triangle(double x) { return fmax(0, 1 - fabs(x)); }

static double keys(double x, double a) {
    x = fabs(x);
    if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? ((x - 5) * x + 8) * x * a - 4 * a : 0;
}

/* weights: room for `in` values. */
static struct line line_of(double *weights, const wok_resize_problem *p, int64_t in, int64_t out, int64_t i) {
    const bool fixed = p->op == WOK_RESIZE_U8 || p->op == WOK_RESIZE_U8_UNIT, cubic = p->filter == WOK_FILTER_BICUBIC;
    const float scale_f = (float)in / (float)out, at_f = (float)i + 0.5f;
    const double scale = fixed ? (double)in / (double)out : (double)scale_f;
    const double width = p->antialias && scale > 1 ? scale : 1, reach = (cubic ? 2 : 1) * width;
    double centre = fixed          ? ((double)i + 0.5) * scale
                    : p->antialias ? (double)(scale_f * at_f)
                                   : (double)fmaf(scale_f, at_f, -0.5f) + 0.5;
    struct line line = {in, weights};
    memset(weights, 0, (size_t)in * sizeof *weights);
    if (p->filter == WOK_FILTER_NEAREST) {
        double at = (double)in / (double)out * 0.5;
        for (int64_t k = 0; k < i; k++) at += (double)in / (double)out;
        line.weights[at < (double)in ? (int64_t)at : in - 1] = 1;
        return line;
    }
    double sum = 0;
    const int64_t from = (int64_t)floor(centre - reach + 0.5), to = (int64_t)floor(centre + reach + 0.5);
    for (int64_t j = from - 1; j <= to; j++) {
        const double x = ((double)j - centre + 0.5) / width;
        const double w = cubic ? keys(x, p->antialias ? -0.5 : -0.75) : triangle(x);
        const bool inside = j >= 0 && j < in, counted = j >= from && j < to;
        if (p->antialias && (!inside || !counted)) continue; /* cut and normalised */
        line.weights[j < 0 ? 0 : j < in ? j : in - 1] += w;
        sum += w;
    }
    if (p->antialias)
        for (int64_t j = 0; j < in; j++) line.weights[j] /= sum;
    return line;
}

static double fixed_weight(double w) { return w < 0 ? ceil(w * 0x1p22 - 0.5) : floor(w * 0x1p22 + 0.5); }

static double clip8(double sum) { return fmin(255, fmax(0, floor((sum + 0x1p21) * 0x1p-22))); }

/* One pass over `count` lines: y[j] = sum over taps of weight * x[tap], elements `step` apart. */
static double apply(const struct line *line, const double *x, int64_t step, bool fixed) {
    double sum = 0;
    for (int64_t t = 0; t < line->taps; t++)
        sum += (fixed ? fixed_weight(line->weights[t]) : line->weights[t]) * (line->weights[t] != 0 ? x[t * step] : 0);
    return fixed ? clip8(sum) : sum;
}

/* The resized window [h][w][channels] in double, before scale and shift. x: the whole picture, no gaps. */
static const double *resized(check *c, const struct resize_case *s, const double *x) {
    const int64_t n = s->p.channels;
    const bool fixed = s->p.op == WOK_RESIZE_U8 || s->p.op == WOK_RESIZE_U8_UNIT;
    const bool vertical_first = s->in_h > s->out_h && s->in_h - s->out_h > 2 * (s->in_w - s->out_w);
    double *weights = check_scratch(c, (size_t)(s->in_h + s->in_w) * sizeof(double));
    double *y = check_scratch(c, (size_t)(s->h * s->w * n) * sizeof(double));
    if (vertical_first) {
        double *mid = check_scratch(c, (size_t)(s->h * s->in_w * n) * sizeof(double));
        for (int64_t i = 0; i < s->h; i++) {
            struct line line = line_of(weights, &s->p, s->in_h, s->out_h, s->top + i);
            for (int64_t j = 0; j < s->in_w * n; j++)
                mid[i * s->in_w * n + j] = apply(&line, x + j, s->in_w * n, fixed);
        }
        for (int64_t j = 0; j < s->w; j++) {
            struct line line = line_of(weights, &s->p, s->in_w, s->out_w, s->left + j);
            for (int64_t i = 0; i < s->h * n; i++)
                y[(i / n * s->w + j) * n + i % n] = apply(&line, mid + i / n * s->in_w * n + i % n, n, fixed);
        }
        return y;
    }
    double *mid = check_scratch(c, (size_t)(s->in_h * s->w * n) * sizeof(double));
    for (int64_t j = 0; j < s->w; j++) {
        struct line line = line_of(weights, &s->p, s->in_w, s->out_w, s->left + j);
        for (int64_t i = 0; i < s->in_h * n; i++)
            mid[(i / n * s->w + j) * n + i % n] = apply(&line, x + i / n * s->in_w * n + i % n, n, fixed);
    }
    for (int64_t i = 0; i < s->h; i++) {
        struct line line = line_of(weights, &s->p, s->in_h, s->out_h, s->top + i);
        for (int64_t j = 0; j < s->w * n; j++) y[i * s->w * n + j] = apply(&line, mid + j, s->w * n, fixed);
    }
    return y;
}

/* ---- one case -------------------------------------------------------------------------------------------------- */

static void fill(check *c, const struct resize_case *s, void *x, int64_t stride, double *copy) {
    const int64_t row = s->in_w * s->p.channels;
    if (s->p.op == WOK_RESIZE_F32) check_fill_f32(c, x, s->in_h, row, stride, s->mode);
    else check_fill_bytes(c, x, s->in_h, (size_t)row, (size_t)stride);
    for (int64_t i = 0; i < s->in_h; i++)
        for (int64_t j = 0; j < row; j++) {
            uint8_t *byte = (uint8_t *)x + i * stride + j;
            if (s->p.op == WOK_RESIZE_F32) copy[i * row + j] = (double)((float *)x)[i * stride + j];
            else if (s->mode == CHECK_SPARSE) *byte = *byte > 127 ? 255 : 0; /* edges make a cubic overshoot */
            if (s->p.op != WOK_RESIZE_F32) copy[i * row + j] = *byte;
        }
}

/* Sets y and its strides; row (i, j) of the rectangle is y[i * *stride + j]. LOOSE leaves room between pixels. */
static void *place(check *c, const struct resize_case *s, wok_resize_args *a, size_t size) {
    const int64_t n = s->p.channels;
    if (s->layout == HWC) {
        a->y_stride = s->w * n + s->gap;
        a->y_pixel_stride = n;
        a->y_channel_stride = 1;
        return check_output(c, s->h, (size_t)(s->w * n) * size, (size_t)a->y_stride * size);
    }
    if (s->layout == LOOSE) { /* every pixel is a row of the rectangle */
        a->y_pixel_stride = n + 2;
        a->y_stride = s->w * a->y_pixel_stride;
        a->y_channel_stride = 1;
        return check_output(c, s->h * s->w, (size_t)n * size, (size_t)(n + 2) * size);
    }
    a->y_stride = s->w + s->gap;
    a->y_pixel_stride = 1;
    a->y_channel_stride = s->h * a->y_stride;
    uint8_t *y = check_output(c, s->h * n, (size_t)s->w * size, (size_t)a->y_stride * size);
    if (s->layout == CHW) return y;
    y += (size_t)((n - 1) * a->y_channel_stride) * size;
    a->y_channel_stride = -a->y_channel_stride;
    return y;
}

/* Taps of an output pixel along an axis, an upper bound. */
static double axis_taps(const struct resize_case *s, int64_t in, int64_t out) {
    const double reach = s->p.filter == WOK_FILTER_BICUBIC ? 4 : s->p.filter == WOK_FILTER_BILINEAR ? 2 : 1;
    const double widen = s->p.antialias && in > out ? (double)in / (double)out : 1;
    return fmin((double)in, reach * widen + 1);
}

static void compare(check *c, const struct resize_case *s, const wok_resize_args *a, const double *want, double most) {
    const int64_t n = s->p.channels;
    const bool exact = s->p.op == WOK_RESIZE_U8;
    const double growth = 16 + 2 * sqrt(axis_taps(s, s->in_w, a->out_w)) + 2 * sqrt(axis_taps(s, s->in_h, a->out_h));
    for (int64_t i = 0; i < s->h; i++)
        for (int64_t j = 0; j < s->w; j++)
            for (int64_t k = 0; k < n; k++) {
                const int64_t at = i * a->y_stride + j * a->y_pixel_stride + k * a->y_channel_stride;
                const double scale = a->scale ? (double)a->scale[k] : 1, shift = a->shift ? (double)a->shift[k] : 0;
                const double v = want[(i * s->w + j) * n + k], y = exact ? v : v * scale + shift;
                const float got = exact ? (float)((const uint8_t *)a->y)[at] : ((const float *)a->y)[at];
                double bound = exact ? 0 : 0x1p-24 * (fabs(v * scale) + fabs(shift)); /* the last FMA */
                if (s->p.op >= WOK_RESIZE_U8_F32) bound += growth * 0x1p-24 * most * fabs(scale) + 0x1p-140;
                if (!check_near(c, i, j * n + k, got, y, isfinite(bound) ? bound : 1)) return;
            }
}

static void resize_case(check *c, const void *arg) {
    const struct resize_case *s = arg;
    const int64_t n = s->p.channels, row = s->in_w * n, stride = row + s->gap;
    const size_t in_size = s->p.op == WOK_RESIZE_F32 ? sizeof(float) : 1;
    const size_t out_size = s->p.op == WOK_RESIZE_U8 ? 1 : sizeof(float);
    wok_resize_args a = {.in_h = s->in_h, .in_w = s->in_w, .x_stride = stride, .out_h = s->out_h, .out_w = s->out_w,
                         .crop_top = s->top, .crop_left = s->left, .crop_h = s->h, .crop_w = s->w};
    void *x = check_input(c, s->in_h, (size_t)row * in_size, (size_t)stride * in_size);
    double *copy = check_scratch(c, (size_t)(s->in_h * row) * sizeof(double)), most = 0;
    a.x = x;
    fill(c, s, x, stride, copy);
    for (int64_t i = 0; i < s->in_h * row; i++) most = fmax(most, isfinite(copy[i]) ? fabs(copy[i]) : 0);
    float *factors = check_input(c, 2, (size_t)n * sizeof(float), (size_t)n * sizeof(float));
    check_fill_f32(c, factors, 2, n, n, CHECK_UNIFORM);
    a.scale = s->plain ? NULL : factors;
    a.shift = s->plain ? NULL : factors + n;
    a.y = place(c, s, &a, out_size);
    check_seal(c);
    const wok_parallel *parallel = check_parallel(c);
    a.workspace = check_workspace(c, s->kernel->workspace_bytes(&s->p, &a, parallel ? parallel->threads : 1));
    s->kernel->run(&s->p, &a, parallel);
    compare(c, s, &a, resized(c, s, copy), most);
}

static void run(check *c, struct resize_case s) {
    if (!check_accepts(c, &s.kernel->base, &s.p)) return;
    check_run(c, resize_case, &s, "%s %s%s c=%d %dx%d to %dx%d window %dx%d at %d,%d gap=%d %s%s %s", op_names[s.p.op],
              filter_names[s.p.filter], s.p.antialias ? " antialias" : "", (int)s.p.channels, (int)s.in_h, (int)s.in_w,
              (int)s.out_h, (int)s.out_w, (int)s.h, (int)s.w, (int)s.top, (int)s.left, (int)s.gap,
              layout_names[s.layout], s.plain ? " plain" : "", check_mode_name(s.mode));
}

static struct resize_case whole(const wok_kernel *base, wok_resize_problem p, int64_t in_h, int64_t in_w, int64_t out_h,
                                int64_t out_w) {
    return (struct resize_case){.kernel = (const void *)base, .p = p, .in_h = in_h, .in_w = in_w, .out_h = out_h,
                                .out_w = out_w, .h = out_h, .w = out_w};
}

/* ---- what is covered ------------------------------------------------------------------------------------------- */

/* Every width of a row around the vectors' widths, shrinking, growing and unchanged. */
static void check_widths(check *c, const wok_kernel *base, wok_resize_problem p) {
    for (int64_t w = 1; w <= 67; w += w < 24 ? 1 : 7) {
        struct resize_case s = whole(base, p, 5, w, 4, 1 + w * 5 / 9);
        s.layout = (enum layout)(w % LAYOUTS);
        s.gap = w % 3;
        s.plain = w % 4 == 0;
        s.mode = w % 5 == 0 ? CHECK_SPARSE : CHECK_UNIFORM;
        run(c, s);
        s = whole(base, p, 3, 1 + w / 3, 5, w);
        s.layout = CHW;
        run(c, s);
        run(c, whole(base, p, 40, w, 3, w)); /* vertical pass first */
        run(c, whole(base, p, 3, w, 3, w));
    }
}

static void check_windows(check *c, const wok_kernel *base, wok_resize_problem p) {
    for (int round = 0; round < 8; round++) {
        struct resize_case s = whole(base, p, check_range(c, 1, 60), check_range(c, 1, 60), check_range(c, 1, 40),
                                     check_range(c, 1, 40));
        s.top = check_range(c, 0, s.out_h - 1);
        s.left = check_range(c, 0, s.out_w - 1);
        s.h = check_range(c, 1, s.out_h - s.top);
        s.w = check_range(c, 1, s.out_w - s.left);
        s.layout = (enum layout)check_range(c, 0, LAYOUTS - 1);
        s.gap = check_range(c, 0, 9);
        s.mode = p.op == WOK_RESIZE_F32 ? (check_mode)(round % CHECK_MODES) : CHECK_UNIFORM;
        if (s.mode == CHECK_SPECIAL && p.filter == WOK_FILTER_BICUBIC)
            s.mode = CHECK_WIDE; /* a zero weight times inf */
        run(c, s);
    }
    run(c, whole(base, p, 40, 30, 20, 20)); /* the last one with the horizontal pass first, and the first without */
    run(c, whole(base, p, 41, 30, 20, 20));
    run(c, whole(base, p, 500, 3, 2, 2)); /* many taps */
    run(c, whole(base, p, 3, 700, 2, 3));
    run(c, whole(base, p, 1, 1, 5, 7));
    run(c, whole(base, p, 9, 11, 1, 1));
}

void check_resize(check *c, const wok_kernel *base, const wok_kernel *reference);
void bench_resize(check *c, const wok_kernel *base, const wok_kernel *reference);

void check_resize(check *c, const wok_kernel *base, const wok_kernel *reference) {
    static const int64_t channels[] = {1, 3, 4, 5, 19};
    (void)reference;
    for (int op = WOK_RESIZE_U8; op <= WOK_RESIZE_F32; op++)
        for (int filter = WOK_FILTER_NEAREST; filter <= WOK_FILTER_BICUBIC; filter++)
            for (int antialias = 0; antialias < 2; antialias++)
                for (size_t n = 0; n < sizeof channels / sizeof *channels; n++) {
                    wok_resize_problem p = {(wok_resize_op)op, (wok_resize_filter)filter, antialias, channels[n]};
                    if (channels[n] == 3) check_widths(c, base, p);
                    if (filter != WOK_FILTER_NEAREST || n < 2) check_windows(c, base, p);
                }
}

struct resize_bench {
    const wok_resize_kernel *kernel;
    wok_resize_problem p;
    wok_resize_args a;
};

static void bench_run(void *arg) {
    struct resize_bench *b = arg;
    b->kernel->run(&b->p, &b->a, NULL);
}

static void bench_one(check *c, const wok_kernel *base, wok_resize_op op, int64_t in_h, int64_t in_w,
                      const char *text) {
    const size_t in_size = op == WOK_RESIZE_F32 ? sizeof(float) : 1;
    struct resize_bench b = {(const void *)base, {op, WOK_FILTER_BILINEAR, true, 3}, {0}};
    void *x = check_scratch(c, (size_t)(in_h * in_w * 3) * in_size);
    if (op != WOK_RESIZE_F32) check_fill_bytes(c, x, 1, (size_t)(in_h * in_w * 3), (size_t)(in_h * in_w * 3));
    b.a = (wok_resize_args){.x = x, .in_h = in_h, .in_w = in_w, .x_stride = in_w * 3, .out_h = 224, .out_w = 224,
                            .crop_h = 224, .crop_w = 224, .y_stride = 224, .y_pixel_stride = 1,
                            .y_channel_stride = 224 * 224};
    b.a.y = check_scratch(c, 224 * 224 * 3 * sizeof(float));
    b.a.workspace = check_workspace(c, b.kernel->workspace_bytes(&b.p, &b.a, 1));
    check_bench(c, bench_run, &b, (double)(in_h * in_w) * 1e-9, "Gpixel", false, "%s", text);
}

void bench_resize(check *c, const wok_kernel *base, const wok_kernel *reference) {
    (void)reference;
    bench_one(c, base, WOK_RESIZE_U8, 427, 640, "u8 640x427 to 224x224 chw");
    bench_one(c, base, WOK_RESIZE_U8_UNIT, 427, 640, "u8-unit 640x427 to 224x224 chw");
    bench_one(c, base, WOK_RESIZE_U8_F32, 427, 640, "u8-f32 640x427 to 224x224 chw");
    bench_one(c, base, WOK_RESIZE_F32, 427, 640, "f32 640x427 to 224x224 chw");
    bench_one(c, base, WOK_RESIZE_U8_UNIT, 1080, 1920, "u8-unit 1920x1080 to 224x224 chw");
    bench_one(c, base, WOK_RESIZE_U8_F32, 1080, 1920, "u8-f32 1920x1080 to 224x224 chw");
}

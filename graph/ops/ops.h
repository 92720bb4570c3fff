/* ops.h - what the files of graph/ops share (internal): inference helpers, element access, broadcasting.
 *
 * An operator group is one file: inference functions wok_infer_NAME and implementation lists wok_impls_NAME, as named
 * in ops.def. Every operator has a reference implementation that takes any element type it is defined for: floating
 * point in double, rounded once at the end; integers in 64 bits, wrapped. Faster ones stand before it in the list and
 * use the kernels (f32). Results do not depend on the number of threads.
 */
#ifndef WOK_OPS_H
#define WOK_OPS_H

#include "../op.h"
#include "parallel.h"

#define WOK_OP(name, domain, first, last, infer, impls)                                                                \
    wok_status wok_infer_##infer(wok_infer *);                                                                         \
    extern const wok_op_impl *const wok_impls_##impls[];
#include "../ops.def"
#undef WOK_OP

#define WOK_TRY(call)                                                                                                  \
    do {                                                                                                               \
        wok_status try_status = (call);                                                                                \
        if (try_status != WOK_OK) return try_status;                                                                   \
    } while (0)

/* ---- inference (infer.c) ----------------------------------------------------------------------------------------- */

/* The first `count` inputs must be there. */
wok_status wok_infer_need(wok_infer *infer, int count);
/* Elements of integer input i as numbers and symbols (wok_dim_is_number), from its data or its ints. False if they are
 * not known, the input is left out, or there are more than WOK_MAX_INTS. */
bool wok_infer_ints(wok_infer *infer, int i, int64_t *ints, int *count);
/* The same where all are plain numbers; -1 if not known, else how many. */
int wok_infer_numbers(wok_infer *infer, int i, int64_t *numbers, int max);
/* A floating-point input's elements; -1 if not known, else how many. */
int wok_infer_floats(wok_infer *infer, int i, double *values, int max);
/* Attaches elements to out[i]. */
void wok_infer_set_ints(wok_infer *infer, int i, const int64_t *ints, int count);
/* out[i] is a tensor of this type. */
void wok_infer_out(wok_infer *infer, int i, wok_dtype dtype, int rank, const int64_t *dims);
/* dims := broadcast of dims and type's (NumPy's rules, symbols included). *rank -1: unknown. */
wok_status wok_infer_broadcast(wok_infer *infer, int64_t *dims, int *rank, const wok_type *type);
/* Product of dims[from..to), a symbol where need be. */
int64_t wok_infer_product(wok_infer *infer, const int64_t *dims, int from, int to);
/* In [0, rank), or -1 where `axis` is out of range. */
int wok_axis(int64_t axis, int rank);
/* The attribute `name` as an axis of a tensor of this rank; fails with a sentence. */
wok_status wok_infer_axis(wok_infer *infer, const char *name, int64_t fallback, int rank, int *axis);
/* A size that depends on data. */
static inline int64_t wok_infer_unknown(wok_infer *infer) {
    return wok_dim_symbol(infer->graph, NULL);
}
static inline bool wok_type_known(const wok_type *type) {
    return type && type->rank >= 0;
}
bool wok_dtype_is_float(wok_dtype dtype);
bool wok_dtype_is_int(wok_dtype dtype); /* bool is not */

/* ---- element access (value.c) ------------------------------------------------------------------------------------ */

/* n elements from base[index], `step` apart, at any alignment. Exact but for 64-bit integers beyond 2^53. */
void wok_load_f64(wok_dtype dtype, const void *base, int64_t index, int64_t step, int64_t n, double *out);
/* Rounded to nearest even; towards zero and wrapped for integers; != 0 for bool. */
void wok_store_f64(wok_dtype dtype, void *base, int64_t index, int64_t n, const double *values);
/* u64 as its two's complement. Not for floating point. */
void wok_load_i64(wok_dtype dtype, const void *base, int64_t index, int64_t step, int64_t n, int64_t *out);
void wok_store_i64(wok_dtype dtype, void *base, int64_t index, int64_t n, const int64_t *values);
static inline double wok_get_f64(wok_dtype dtype, const void *base, int64_t index) {
    double x;
    wok_load_f64(dtype, base, index, 0, 1, &x);
    return x;
}
static inline int64_t wok_get_i64(wok_dtype dtype, const void *base, int64_t index) {
    int64_t x;
    wok_load_i64(dtype, base, index, 0, 1, &x);
    return x;
}
/* Towards zero. What does not fit gives the smallest number, as x86's own conversion does; C leaves it undefined. */
int64_t wok_truncate(double x);
/* To the nearest integer, half to even, whatever the rounding mode is. */
double wok_round_even(double x);
/* Into the range of an integer type of at most 32 bits; NaN gives 0. */
int64_t wok_saturate(double x, wok_dtype dtype);
/* Element by element conversion with Cast's rules. */
void wok_convert(wok_dtype from, const void *x, wok_dtype to, void *y, int64_t n);

/* Elements of a tensor whose dims are known to be sane. */
static inline int64_t wok_tensor_count(const wok_tensor *t) {
    int64_t count = 1;
    for (int i = 0; i < t->rank; i++) count *= t->dims[i];
    return count;
}
static inline int64_t wok_dims_product(const int64_t *dims, int from, int to) {
    int64_t product = 1;
    for (int i = from; i < to; i++) product *= dims[i];
    return product;
}
/* Input i; NULL where it is left out or beyond the end. */
static inline const wok_tensor *wok_call_input(const wok_call *call, int i) {
    return i < call->in_count ? call->in[i] : NULL;
}
/* Integer input i as numbers; -1 if it is left out or longer than max, else how many. */
int wok_call_ints(const wok_call *call, int i, int64_t *numbers, int max);
/* Scalar input i, or the fallback where it is left out or empty. */
double wok_call_float(const wok_call *call, int i, double fallback);
int64_t wok_call_int(const wok_call *call, int i, int64_t fallback);

/* ---- broadcasting (value.c) -------------------------------------------------------------------------------------- */

enum { WOK_WALK_MAX = 4, WOK_WALK_RANK = 2 * WOK_MAX_RANK };

/* The steps of up to four inputs through an output, dimensions joined where all of them allow it. The innermost one is
 * the row. */
typedef struct wok_walk {
    int rank, inputs;
    int64_t dims[WOK_WALK_RANK], step[WOK_WALK_MAX][WOK_WALK_RANK];
    int64_t rows, n; /* rows of n elements */
} wok_walk;

/* dims of the output; in[i] broadcasts to it, elements row-major. */
void wok_walk_init(wok_walk *walk, const int64_t *dims, int rank, const wok_tensor *const *in, int inputs);
/* The same from steps given by dimension: step[i] has `rank` (at most WOK_WALK_RANK) entries, negative ones too. */
void wok_walk_steps(wok_walk *walk, const int64_t *dims, int rank, const int64_t *const *step, int inputs);
/* Offsets, in elements, of the inputs at the start of a row. */
void wok_walk_offsets(const wok_walk *walk, int64_t row, int64_t *offset);
/* Elements [y, y + n) of the output; input i starts at offset[i] and goes in steps of walk->step[i][rank - 1]. */
typedef void (*wok_walk_fn)(void *arg, const wok_walk *walk, const int64_t *offset, int64_t y, int64_t n);
/* All of the output in pieces of rows, split over the threads. */
void wok_walk_run(const wok_walk *walk, wok_walk_fn fn, void *arg, const wok_parallel *parallel);

/* y[i] = x[i * step], elements of `size` bytes */
void wok_copy_step(void *y, const void *x, int64_t step, int64_t n, size_t size);
/* y (row-major, dims) = the elements of x that `step` visits: transposes, slices, repeats (copy.c). Planes whose input
 * runs across the rows are copied in tiles. */
void wok_copy_strided(void *y, const void *x, const int64_t *dims, const int64_t *step, int rank, size_t size,
                      const wok_parallel *parallel);
/* Row-major steps of dims. */
void wok_row_major(const int64_t *dims, int rank, int64_t *step);

/* ---- sliding windows (window.c): what convolution and pooling have in common ------------------------------------- */

enum { WOK_WINDOW_MAX = WOK_MAX_RANK - 2 };

typedef struct wok_window {
    int rank; /* spatial dimensions */
    int64_t kernel[WOK_WINDOW_MAX], stride[WOK_WINDOW_MAX], dilation[WOK_WINDOW_MAX];
    int64_t begin[WOK_WINDOW_MAX], end[WOK_WINDOW_MAX]; /* pads */
    int64_t in[WOK_WINDOW_MAX], out[WOK_WINDOW_MAX];
    enum { WOK_PAD_GIVEN, WOK_PAD_VALID, WOK_PAD_UPPER, WOK_PAD_LOWER } pad;
    bool ceil_mode;
} wok_window;

/* Attributes kernel_shape, strides, dilations, pads, auto_pad, ceil_mode. kernel: where kernel_shape is absent (NULL:
 * it must be there). NULL, or a sentence about what is wrong. */
const char *wok_window_read(const wok_ir_node *node, int rank, const int64_t *kernel, wok_window *window);
/* Output sizes (and the pads of auto_pad) for input sizes that may be symbols. */
wok_status wok_window_infer(wok_infer *infer, wok_window *window, const int64_t *in);
/* The same at run time from sizes that were inferred: fills in, out and the pads. */
void wok_window_set(wok_window *window, const int64_t *in, const int64_t *out);
/* The element of the input's spatial dimensions that tap `tap` of output position `at` (both linear) reads; -1:
 * padding. */
int64_t wok_window_source(const wok_window *window, int64_t at, int64_t tap);
/* The taps of an output position that lie inside the input: count of them, and of those inside the padded input
 * (windows of ceil_mode may reach beyond it). Their number is bounded by the input, however large the window is. */
typedef struct wok_taps {
    int64_t first[WOK_WINDOW_MAX]; /* input position of the first one, by dimension */
    int64_t size[WOK_WINDOW_MAX];  /* how many */
    int64_t count, padded;
} wok_taps;
wok_taps wok_window_taps(const wok_window *window, int64_t at);
/* The input's element under the i-th of them. */
int64_t wok_taps_source(const wok_window *window, const wok_taps *taps, int64_t i);

/* Input i is u8, i8, u16 or i16 (quant.c). */
wok_status wok_infer_codes(wok_infer *infer, int i);
/* Input i, if it is constant, holds scales: positive numbers. Another one is a damaged file. */
wok_status wok_infer_scale(wok_infer *infer, int i);
/* out[0] is a picture of one pixel with in[0]'s channels: global pooling (pooling.c). */
wok_status wok_infer_channels(wok_infer *infer, bool channel_last);

/* ---- matrix products, convolution (matmul.c, gemm.c) ------------------------------------------------------------- */

/* `batches` products y[m][n] = sum_k a[m][k] b[k][n]; operands by strides in elements, results one after another. */
typedef struct wok_product {
    int64_t m, n, k, batches;
    int64_t a_m, a_k, b_k, b_n;
    wok_walk walk; /* of the batch dimensions: matrices of a and b */
} wok_product;

/* NumPy's matmul of shapes that fit; y is its result. */
wok_product wok_product_view(const wok_tensor *a, const wok_tensor *b, const wok_tensor *y, bool trans_a, bool trans_b);
/* Elements of a and b in front of product i. */
void wok_product_locate(const wok_product *product, int64_t i, int64_t *a, int64_t *b);
/* out[0] for operands a and b. */
wok_status wok_product_infer(wok_infer *infer, const wok_type *a, const wok_type *b, bool trans_a, bool trans_b);

/* Convolution by its definition, any rank and type: x [N, C, spatial], w [M, C / group, spatial]. */
typedef struct wok_conv_ref {
    const wok_tensor *x, *w, *y;
    wok_window window;
    int64_t group_in, group_out, pixels_in, pixels_out, taps;
    double x_zero;
    const wok_tensor *w_zero; /* one value, or one for each of M; NULL: 0 */
} wok_conv_ref;

wok_status wok_conv_ref_start(wok_call *call, const wok_tensor *x, const wok_tensor *w, wok_conv_ref *ref);
/* Channel m, pixel `at` of picture b. Integers are exact up to 2^53. */
double wok_conv_ref_sum(const wok_conv_ref *ref, int64_t b, int64_t m, int64_t at);
wok_status wok_conv_infer(wok_infer *infer, const wok_type *x, const wok_type *w, bool channel_last, wok_dtype dtype);

/* What the kernels are told of a convolution with weights w: the general one, and the depthwise one where it is that. */
void wok_conv_problems(const wok_window *window, const wok_type *w, int64_t group, wok_conv_f32_problem *conv,
                       wok_dwconv_problem *depthwise);
bool wok_conv_is_depthwise(const wok_conv_f32_problem *problem);

/* act, lo, hi of a fused node. False for an activation that does not exist. */
bool wok_read_activation(const wok_ir_node *node, wok_act *act, float *lo, float *hi);
static inline size_t wok_align_up(size_t bytes) {
    return (bytes + 63) & ~(size_t)63;
}

/* ---- bytes (qproduct.c, qbytes.c, qpool.c) ------------------------------------------------------------------------ */

/* Input of a table that the bytes of an s8 result go through. */
enum { WOK_Q_TABLE = 8 };
/* A fused integer node quantises its result (attribute y_scale) instead of giving f32. */
bool wok_q_gives_bytes(const wok_ir_node *node);
/* The epilogue that a fused integer node's attributes describe, for n columns. Constant inputs `scale` and `bias` (n values
 * or one; -1: none) are divided by y_scale, kept by the program and consumed; a bias that is not constant is left to run(). */
wok_status wok_prepare_epilogue_s8(wok_prepare *prepare, int bias, int scale, int64_t n, wok_epilogue_s8 *epilogue);
/* NULL where in[0] is s8. */
const char *wok_accept_bytes(const wok_prepare *prepare);
/* QuantizeLinear and DequantizeLinear of s8 with one scale, on the kernels. */
const char *wok_quantize_accept_s8(const wok_prepare *prepare);
const char *wok_dequantize_accept_s8(const wok_prepare *prepare);
wok_status wok_quantize_prepare_s8(wok_prepare *prepare);
wok_status wok_quantize_run_s8(wok_call *call);
/* wok.MaxPool of bytes, wok.QAveragePool. */
const char *wok_qpool_accept(const wok_prepare *prepare);
wok_status wok_qpool_prepare(wok_prepare *prepare);
wok_status wok_qpool_run(wok_call *call);

/* ---- accept ------------------------------------------------------------------------------------------------------ */

/* NULL where the input is f32. */
const char *wok_accept_f32(const wok_prepare *prepare);
/* NULL where the input is something to compute with. */
const char *wok_accept_number(const wok_prepare *prepare);

#endif

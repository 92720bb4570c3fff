/* wok_kernels.h - the numeric kernels of wok, usable without its graph.
 *
 * A kernel is a pure function on raw pointers. It allocates nothing, keeps no state, prints nothing, and touches no
 * byte outside the extents it is given (workspace included). All functions here are thread-safe.
 *
 * Kernels come in families (wok_families.def). A family has
 *   wok_FAMILY_problem   what is known when a program is built (K, N, kernel size, operation), never batch or length
 *   wok_FAMILY_args      one launch: pointers, strides (in ELEMENTS unless named bytes), sizes
 *   wok_FAMILY_kernel    a registered variant: a descriptor whose first member is `wok_kernel base`
 * and is used in three steps:
 *   1. kernel = wok_FAMILY_select(isa, &problem, NULL, NULL)   best variant that accepts; never NULL for a valid problem,
 *                                                              because the scalar reference accepts every valid problem
 *   2. kernel->pack(...) where the family packs its weights    the kernel dictates its packed layout
 *   3. kernel->run(&args, parallel)
 *
 * Determinism: an output element is one chain of operations in a fixed order, whatever M, batch, threads or neighbours
 * are; two runs give the same bits, and so do one thread and many. Variants of one family may differ from one another
 * within the bound that the family states (abs + rel against the reference, which sums in double).
 *
 * Aliasing: an output may overlap an input only where a family says so.
 * NaN: activations keep NaN (clamp as max(lo, x) then min(hi, .) with x winning ties and unordered compares).
 */
#ifndef WOK_KERNELS_H
#define WOK_KERNELS_H

#include "wok_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- instruction sets ------------------------------------------------------------------------------------------ */

/* Levels are named bundles (isa.def), not a chain. */
typedef enum wok_isa {
#define WOK_ISA_LEVEL(name, arch, allows, text) WOK_ISA_##name,
#include "isa.def"
#undef WOK_ISA_LEVEL
    WOK_ISA_COUNT
} wok_isa;

/* A set of levels: bit (1u << WOK_ISA_name). */
typedef uint32_t wok_isa_set;

/* Levels that this CPU and its operating system can run, whether or not kernels for them were built. */
WOK_API wok_isa_set wok_cpu_isa(void);
/* The levels to use: wok_cpu_isa() capped by `cap` (the value of WOK_ISA; NULL or "" means no cap).
 * NULL on success and *set filled; otherwise a sentence in thread-local storage that names what was found
 * (`cap` is unknown, or this CPU lacks it), and *set holds only ref. */
WOK_API const char *wok_cpu_select(const char *cap, wok_isa_set *set);
/* "avx512vnni"; "?" outside the enum. */
WOK_API const char *wok_isa_name(wok_isa isa);
/* One line for people about a level. */
WOK_API const char *wok_isa_text(wok_isa isa);
/* Finer bits that `accept` functions test. */
typedef struct wok_cpu_features {
    char brand[64];
    bool avx512vbmi, amx_int8, amx_bf16, slow_zmm; /* slow_zmm: 512-bit operations run as two halves (Zen 4) */
    size_t l1d_bytes, l2_bytes, l3_bytes;          /* 0 where unknown */
} wok_cpu_features;
WOK_API const wok_cpu_features *wok_cpu(void);

/* ---- splitting work -------------------------------------------------------------------------------------------- */

/* One task of a parallel loop. `worker` is in [0, threads) and no two running tasks share it. */
typedef void (*wok_task_fn)(void *arg, int64_t task, int worker);

/* An executor: run() calls fn(arg, i, worker) once for every i in [0, tasks) and returns when all are done.
 * A NULL `const wok_parallel *` means: this thread only. Kernels never nest run() calls. */
typedef struct wok_parallel {
    void (*run)(void *self, wok_task_fn fn, void *arg, int64_t tasks);
    void *self;
    int threads;
} wok_parallel;

/* ---- the registry ---------------------------------------------------------------------------------------------- */

typedef enum wok_family {
#define WOK_FAMILY(name, text) WOK_FAMILY_##name,
#include "wok_families.def"
#undef WOK_FAMILY
    WOK_FAMILY_COUNT
} wok_family;

enum wok_kernel_flags {
    WOK_KERNEL_NONDETERMINISTIC = 1u, /* cannot promise the same bits for every M or thread count (BLAS) */
    WOK_KERNEL_REFERENCE = 2u
};

/* Head of every kernel descriptor. accept: NULL if the variant can run the problem (a wok_FAMILY_problem), else a
 * sentence that says why not. */
typedef struct wok_kernel {
    const char *name; /* "wok_gemm_f32_6x16__avx2" */
    wok_isa isa;
    unsigned flags;
    const char *(*accept)(const void *problem);
} wok_kernel;

typedef void (*wok_reject_fn)(void *user, const wok_kernel *kernel, const char *reason);

WOK_API const char *wok_family_name(wok_family family);
/* All built variants, best first, the reference last. */
WOK_API const wok_kernel *const *wok_kernel_list(wok_family family, int *count);
/* The first variant whose level is in `allowed` and which accepts. Each one passed over is reported to `reject` (may be
 * NULL). NULL if the problem is outside the family's domain. */
WOK_API const wok_kernel *wok_kernel_select(wok_family family, wok_isa_set allowed, const void *problem,
                                            wok_reject_fn reject, void *user);

#define WOK_DEFINE_SELECT(family)                                                                                      \
    static inline const wok_##family##_kernel *wok_##family##_select(                                                  \
        wok_isa_set allowed, const wok_##family##_problem *problem, wok_reject_fn reject, void *user) {                \
        return (const wok_##family##_kernel *)(const void *)wok_kernel_select(WOK_FAMILY_##family, allowed, problem,   \
                                                                              reject, user);                           \
    }

/* ---- epilogue, shared by gemm_f32, conv_f32 and dwconv ---------------------------------------------------------- */

typedef enum wok_act {
    WOK_ACT_NONE,
    WOK_ACT_CLAMP,     /* min(max(x, lo), hi): ReLU is (0, inf), ReLU6 (0, 6); NaN stays NaN */
    WOK_ACT_GELU,      /* x/2 * (1 + erf(x / sqrt 2)) */
    WOK_ACT_GELU_TANH, /* x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))) */
    WOK_ACT_TANH,
    WOK_ACT_SIGMOID
} wok_act;

/* y = act(acc + bias[n] + residual[m][n]), in this order. */
typedef struct wok_epilogue_f32 {
    const float *bias;       /* n values, or NULL */
    const float *residual;   /* same rows and columns as the output, or NULL; may be the output itself */
    int64_t residual_stride; /* elements between rows of `residual` */
    wok_act act;
    float lo, hi; /* WOK_ACT_CLAMP */
} wok_epilogue_f32;

/* ---- gemm_f32: C[m][n] = act(sum_k A[m][k] * B[k][n] + bias[n] + residual[m][n]) ---------------------------------- */
/* One FMA chain per output over ascending k (a K block that reloads C continues the chain), so the tile, the M tail,
 * the packing and the thread count are free; all x86 SIMD variants give the same bits.
 * Bound against exact sums: (k + 3) 2^-24 (sum |a b| + |bias| + |residual|), and the activation's: gemm_f32/gemm_f32.h.
 * The BLAS variant registers with WOK_KERNEL_NONDETERMINISTIC. */

typedef struct wok_gemm_f32_problem {
    int64_t n, k; /* n >= 1, k >= 0 */
} wok_gemm_f32_problem;

typedef struct wok_gemm_f32_args {
    int64_t m, n, k;
    const float *a; /* row-major, lda >= k */
    int64_t lda;
    const void *packed; /* B as packed by the same kernel */
    float *c;           /* row-major, ldc >= n; must not overlap a */
    int64_t ldc;
    wok_epilogue_f32 epilogue;
} wok_gemm_f32_args;

typedef struct wok_gemm_f32_kernel {
    wok_kernel base;
    const char *layout; /* layout id with version, "f32-n16-v1"; kernels with the same id share packed weights */
    int mr, nr;         /* register tile, for reports */
    size_t (*packed_bytes)(const wok_gemm_f32_problem *problem);
    /* b[k][n] stands at b[k * stride_k + n * stride_n], so B transposed is a swap of strides.
     * `packed` holds packed_bytes() bytes aligned to 64. Work is split over `parallel`. */
    void (*pack)(const wok_gemm_f32_problem *problem, const float *b, int64_t stride_k, int64_t stride_n, void *packed,
                 const wok_parallel *parallel);
    void (*run)(const wok_gemm_f32_args *args, const wok_parallel *parallel);
} wok_gemm_f32_kernel;
WOK_DEFINE_SELECT(gemm_f32)

/* ---- conv_f32: 2-D convolution, NHWC, with the shared epilogue ---------------------------------------------------- */
/* Group > 1 with more than one channel a group is supported; depthwise belongs to `dwconv`. Order of summation: ky, kx,
 * then channels ascending, one FMA chain; taps outside the picture contribute a product with zero.
 * Indirect GEMM after Dukhan, "The Indirect Convolution Algorithm" (2019). */

typedef struct wok_conv_f32_problem {
    int64_t c_in, c_out; /* over all groups; both divisible by group */
    int64_t group;
    int64_t kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w; /* all >= 1 */
} wok_conv_f32_problem;

typedef struct wok_conv_f32_args {
    int64_t batch, in_h, in_w, out_h, out_w;
    int64_t pad_top, pad_left; /* bottom and right follow from out_h, out_w */
    const float *x;            /* [batch][in_h][in_w][c_in], x_stride elements from pixel to pixel (>= c_in) */
    int64_t x_stride;
    const void *packed; /* weights as packed by the same kernel */
    float *y;           /* [batch][out_h][out_w][c_out], y_stride elements from pixel to pixel; must not overlap x */
    int64_t y_stride;
    wok_epilogue_f32 epilogue; /* rows are output pixels; residual_stride from pixel to pixel */
    void *workspace;           /* workspace_bytes() bytes aligned to 64, contents unimportant */
} wok_conv_f32_args;

typedef struct wok_conv_f32_kernel {
    wok_kernel base;
    const char *layout;
    int mr, nr;
    size_t (*packed_bytes)(const wok_conv_f32_problem *problem);
    /* w: [c_out][c_in / group][kernel_h][kernel_w] contiguous (ONNX and PyTorch order). `channel_scale`: c_out values
     * multiplied into the weights while packing (a folded BatchNorm), or NULL. */
    void (*pack)(const wok_conv_f32_problem *problem, const float *w, const float *channel_scale, void *packed);
    /* Depends on args' sizes and `threads` only, not on its pointers; `threads` is what run()'s parallel has (NULL: 1).
     * SIZE_MAX where no address space would hold it. */
    size_t (*workspace_bytes)(const wok_conv_f32_problem *problem, const wok_conv_f32_args *args, int threads);
    void (*run)(const wok_conv_f32_problem *problem, const wok_conv_f32_args *args, const wok_parallel *parallel);
} wok_conv_f32_kernel;
WOK_DEFINE_SELECT(conv_f32)

/* ---- dwconv: depthwise 2-D convolution, NHWC, f32 ---------------------------------------------------------------- */
/* Multiplier 1: channel c of y from channel c of x. Summation ky, kx ascending, one FMA chain. No workspace. */

typedef struct wok_dwconv_problem {
    int64_t channels;
    int64_t kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w;
} wok_dwconv_problem;

typedef struct wok_dwconv_args {
    int64_t batch, in_h, in_w, out_h, out_w, pad_top, pad_left;
    const float *x; /* NHWC, pixels x_stride apart */
    int64_t x_stride;
    const void *packed;
    float *y; /* must not overlap x */
    int64_t y_stride;
    wok_epilogue_f32 epilogue;
} wok_dwconv_args;

typedef struct wok_dwconv_kernel {
    wok_kernel base;
    const char *layout;
    size_t (*packed_bytes)(const wok_dwconv_problem *problem);
    /* w: [channels][kernel_h][kernel_w]; channel_scale as in conv_f32 */
    void (*pack)(const wok_dwconv_problem *problem, const float *w, const float *channel_scale, void *packed);
    void (*run)(const wok_dwconv_problem *problem, const wok_dwconv_args *args, const wok_parallel *parallel);
} wok_dwconv_kernel;
WOK_DEFINE_SELECT(dwconv)

/* ---- pool: 2-D max and average, NHWC, f32 ------------------------------------------------------------------------ */
/* Max: a NaN in a window makes the result NaN, as in PyTorch (ONNX Runtime drops it); the same for every C and ISA.
 * Average sums ky, kx ascending in f32; count is the window inside the picture, or the whole window
 * (count_include_pad: the window clipped to the padded picture). Global average: kernel = in_h x in_w.
 * A window without a pixel gives -inf (max) and 0 (average). Details: pool/pool.h. */

typedef enum wok_pool_op { WOK_POOL_MAX, WOK_POOL_AVERAGE } wok_pool_op;

typedef struct wok_pool_problem {
    wok_pool_op op;
    int64_t channels;
} wok_pool_problem;

typedef struct wok_pool_args {
    int64_t batch, in_h, in_w, out_h, out_w;
    int64_t kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w;
    int64_t pad_top, pad_left, pad_bottom, pad_right;
    bool count_include_pad;
    const float *x; /* NHWC */
    int64_t x_stride;
    float *y;
    int64_t y_stride;
} wok_pool_args;

typedef struct wok_pool_kernel {
    wok_kernel base;
    void (*run)(const wok_pool_problem *problem, const wok_pool_args *args, const wok_parallel *parallel);
} wok_pool_kernel;
WOK_DEFINE_SELECT(pool)

/* ---- attn: fused scaled-dot-product attention over ragged sequences, f32 ------------------------------------------ */
/* For every sequence s and head h:  Y = softmax(scale * Q K^T + bias) V.  The score matrix lives in a tile of the
 * workspace that stays in cache. A key whose biased score is -inf has weight 0; a row whose scores are all -inf gives 0.
 * Keys at the end whose weight is exactly 0 leave the bits of the other rows' results as they would be without them. */

typedef struct wok_attn_problem {
    int64_t heads, head_dim, value_dim; /* value_dim: width of V and Y per head, usually head_dim */
} wok_attn_problem;

typedef struct wok_attn_sequence {
    int64_t q_row, q_rows; /* rows of q (and y) that belong to this sequence: first, count */
    int64_t k_row, k_rows; /* rows of k and v */
} wok_attn_sequence;

typedef struct wok_attn_args {
    const wok_attn_sequence *sequences;
    int64_t sequence_count;
    /* Element (row r, head h, lane d) of q stands at q[r * q_row_stride + h * q_head_stride + d]; likewise k, v, y.
     * A fused QKV projection is three pointers into one matrix. y must not overlap q, k, v. */
    const float *q, *k, *v;
    float *y;
    int64_t q_row_stride, q_head_stride, k_row_stride, k_head_stride;
    int64_t v_row_stride, v_head_stride, y_row_stride, y_head_stride;
    float scale;
    /* Additive bias of (sequence s, head h, query i, key j), i and j counted inside the sequence; NULL for none. A
     * stride of 0 broadcasts: a key mask has head and query strides 0. */
    const float *bias;
    int64_t bias_sequence_stride, bias_head_stride, bias_query_stride, bias_key_stride;
    void *workspace; /* workspace_bytes(), aligned to 64 */
} wok_attn_args;

typedef struct wok_attn_kernel {
    wok_kernel base;
    /* for the longest sequence of a launch; threads as in the parallel that run() gets */
    size_t (*workspace_bytes)(const wok_attn_problem *problem, int64_t max_q_rows, int64_t max_k_rows, int threads);
    void (*run)(const wok_attn_problem *problem, const wok_attn_args *args, const wok_parallel *parallel);
} wok_attn_kernel;
WOK_DEFINE_SELECT(attn)

/* ---- norm: LayerNorm and softmax over rows, f32 ------------------------------------------------------------------- */

typedef enum wok_norm_op { WOK_NORM_LAYER, WOK_NORM_RMS, WOK_NORM_SOFTMAX, WOK_NORM_LOG_SOFTMAX } wok_norm_op;

typedef struct wok_norm_problem {
    wok_norm_op op;
    int64_t cols; /* 0: not known yet */
} wok_norm_problem;

/* LAYER: v = x + residual + bias; y = (v - mean v) / sqrt(var v + eps) * gamma + beta, two passes over the row in cache.
 * RMS: y = v / sqrt(mean v^2 + eps) * gamma. SOFTMAX of a row that is all -inf is NaN, as the ONNX standard says. */
typedef struct wok_norm_args {
    int64_t rows, cols;
    const float *x;
    int64_t x_stride;
    const float *residual; /* or NULL */
    int64_t residual_stride;
    const float *bias;         /* cols values added before the norm, or NULL */
    const float *gamma, *beta; /* cols values; NULL: 1 and 0 */
    float eps;
    float *sum; /* x + residual + bias is stored here as well, or NULL */
    int64_t sum_stride;
    float *y; /* may be x or residual, element for element */
    int64_t y_stride;
} wok_norm_args;

typedef struct wok_norm_kernel {
    wok_kernel base;
    void (*run)(const wok_norm_problem *problem, const wok_norm_args *args, const wok_parallel *parallel);
} wok_norm_kernel;
WOK_DEFINE_SELECT(norm)

/* ---- eltwise: element by element, f32 and conversions ------------------------------------------------------------- */

typedef enum wok_eltwise_op {
    /* unary: y = f(a) */
    WOK_ELT_CLAMP, /* p0 = lo, p1 = hi */
    WOK_ELT_GELU,
    WOK_ELT_GELU_TANH,
    WOK_ELT_TANH,
    WOK_ELT_SIGMOID,
    WOK_ELT_ERF,
    WOK_ELT_EXP,
    WOK_ELT_SQRT,
    WOK_ELT_RECIPROCAL,
    WOK_ELT_NEG,
    WOK_ELT_ABS,
    WOK_ELT_HARD_SIGMOID, /* clamp(p0 * a + p1, 0, 1) */
    WOK_ELT_HARD_SWISH,   /* a * clamp(a / 6 + 0.5, 0, 1) */
    WOK_ELT_SILU,         /* a * sigmoid(a) */
    /* binary: y = clamp(a op b, p0, p1) */
    WOK_ELT_ADD,
    WOK_ELT_SUB,
    WOK_ELT_MUL,
    WOK_ELT_DIV,
    WOK_ELT_MIN,
    WOK_ELT_MAX,
    /* conversions: round to nearest even; f16 overflow gives inf; NaN stays NaN */
    WOK_ELT_F16_TO_F32,
    WOK_ELT_F32_TO_F16,
    WOK_ELT_BF16_TO_F32,
    WOK_ELT_F32_TO_BF16
} wok_eltwise_op;

typedef struct wok_eltwise_problem {
    wok_eltwise_op op;
} wok_eltwise_problem;

typedef struct wok_eltwise_args {
    int64_t n;
    const void *a, *b;      /* b: binary only */
    int64_t a_step, b_step; /* 1, or 0 for one value repeated (binary only; unary and conversions: 1) */
    void *y;                /* may be a or b, element for element, where the element sizes are equal */
    float p0, p1;           /* binary: -inf, +inf for no clamp */
} wok_eltwise_args;

typedef struct wok_eltwise_kernel {
    wok_kernel base;
    void (*run)(const wok_eltwise_problem *problem, const wok_eltwise_args *args, const wok_parallel *parallel);
} wok_eltwise_kernel;
WOK_DEFINE_SELECT(eltwise)

/* ---- resize: pictures, u8 and f32 --------------------------------------------------------------------------------- */
/* Separable resampling, pixel centres at i + 0.5 (align_corners = False). What the taps of an output pixel are:
 *   BILINEAR        triangle
 *   BICUBIC         Keys' cubic, a = -0.5 with antialias and -0.75 without
 *   NEAREST         source pixel floor((i + 0.5) * in / out)
 *   antialias       the filter is widened by in / out where that shrinks, and cut at the border and normalised there
 *                   (Pillow's resize; torch's interpolate(antialias=True))
 *   no antialias    never widened, the border pixel is repeated (torch's interpolate; OpenCV)
 * WOK_RESIZE_U8 is Pillow's fixed-point arithmetic, byte for byte where antialias is set or the filter is NEAREST:
 * weights rounded to 22 bits, horizontal pass first, rounded and clipped to 8 bits, then the vertical pass likewise; the
 * other way round where in_h - out_h > max(0, 2 * (in_w - out_w)), as Pillow does since version 13.
 * The others compute in f32, vertical pass first (fewer conversions), and equal torch's within rounding: an output
 * differs from the reference by at most (16 + 2 sqrt(taps of a row) + 2 sqrt(taps of a column)) * 2^-24 * max|x|, times
 * max|scale|.
 * No operation holds more of the picture than the rows that one output row needs. */

typedef enum wok_resize_op {
    WOK_RESIZE_U8,      /* u8 -> u8 */
    WOK_RESIZE_U8_UNIT, /* u8 -> u8 as WOK_RESIZE_U8, then y = u8 * scale[c] + shift[c] in f32: torchvision on PIL */
    WOK_RESIZE_U8_F32,  /* u8 -> f32 unrounded, y = resized * scale[c] + shift[c]: torchvision on float tensors */
    WOK_RESIZE_F32      /* f32 -> f32, scale and shift too */
} wok_resize_op;
typedef enum wok_resize_filter { WOK_FILTER_NEAREST, WOK_FILTER_BILINEAR, WOK_FILTER_BICUBIC } wok_resize_filter;

typedef struct wok_resize_problem {
    wok_resize_op op;
    wok_resize_filter filter;
    bool antialias; /* widen the filter when shrinking; NEAREST pays no heed to it */
    int64_t channels;
} wok_resize_problem;

/* Sizes are in [1, 2^24]. y must not overlap x. */
typedef struct wok_resize_args {
    const void *x; /* [in_h][in_w][channels], rows x_stride elements apart */
    int64_t in_h, in_w, x_stride;
    int64_t out_h, out_w; /* of the resized picture */
    /* Only this window of the resized picture is computed (a centre crop); the whole: 0, 0, out_h, out_w. Source pixels
     * that it does not need are not read. */
    int64_t crop_top, crop_left, crop_h, crop_w;
    /* Pixel (i, j) of the window, channel c, goes to y[i * y_stride + j * y_pixel_stride + c * y_channel_stride]. Any
     * strides that keep elements apart, negative ones too (BGR): HWC is (crop_w * channels, channels, 1), CHW is
     * (crop_w, 1, crop_h * crop_w). */
    void *y;
    int64_t y_stride, y_pixel_stride, y_channel_stride;
    const float *scale, *shift; /* `channels` values each; NULL: 1 and 0. Not used by WOK_RESIZE_U8. */
    void *workspace;            /* workspace_bytes(), aligned to 64 */
} wok_resize_args;

typedef struct wok_resize_kernel {
    wok_kernel base;
    /* Depends on args' sizes and `threads` only; the coefficient tables are built in there by every run(). */
    size_t (*workspace_bytes)(const wok_resize_problem *problem, const wok_resize_args *args, int threads);
    void (*run)(const wok_resize_problem *problem, const wok_resize_args *args, const wok_parallel *parallel);
} wok_resize_kernel;
WOK_DEFINE_SELECT(resize)

#ifdef __cplusplus
}
#endif
#endif

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

/* ---- 8-bit integers: what gemm_s8, conv_s8 and dwconv_s8 share ------------------------------------------------------- */
/* One canonical quantised tensor: signed bytes q with value (q - zero) * scale, zero in [-128, 127]. An unsigned tensor is
 * the same with 128 taken off bytes and zero point. Sums are exact in int32 (k and the number of taps times channels is at
 * most WOK_S8_MAX_K), so every variant gives the bits of the reference, whatever its instructions are.
 *
 * acc[m][n] = sum_k (a[m][k] - a_zero) * (b[k][n] - b_zero[n]), an exact int32; then, in f32, each step rounded once:
 *   WOK_S8_OUT_S32   y = acc
 *   WOK_S8_OUT_F32   v = fmaf((float)acc, s, bias[n]); v = v + residual[m][n]; y = act(v)
 *                    s = scale[n], or row_scale[m] * scale[n] where the rows have scales of their own
 *   WOK_S8_OUT_S8    v = fmaf((float)acc, scale[n], bias[n]); v = fmaf((float)(residual[m][n] - residual_zero),
 *                    residual_scale, v); y = clamp(round half to even(v) + zero, lo, hi); y = table[y + 128] if there is one
 * For S8, scale[n] is a_scale * b_scale[n] / y_scale, bias[n] the real bias / y_scale, residual_scale r_scale / y_scale.
 * ReLU is lo = zero, ReLU6 hi = zero + round(6 / y_scale) too; any other function of one byte is a table. */

enum { WOK_S8_MAX_K = 32768 };

typedef enum wok_s8_out { WOK_S8_OUT_S32, WOK_S8_OUT_F32, WOK_S8_OUT_S8 } wok_s8_out;

typedef struct wok_epilogue_s8 {
    wok_s8_out out;
    const float *scale;      /* n values; not used by S32 */
    const float *bias;       /* n values, or NULL: 0 */
    const float *row_scale;  /* F32 only: m values, or NULL */
    const void *residual;    /* f32 (F32) or s8 (S8) with the rows and columns of the output, or NULL; may be the output */
    int64_t residual_stride; /* elements between rows of `residual` */
    float residual_scale;    /* S8 */
    int32_t residual_zero;   /* S8 */
    int32_t zero, lo, hi;    /* S8: -128 <= lo <= hi <= 127, zero in [-128, 127] */
    const int8_t *table;     /* S8: 256 values, or NULL */
    wok_act act;             /* F32 */
    float act_lo, act_hi;    /* F32, WOK_ACT_CLAMP */
} wok_epilogue_s8;

/* ---- gemm_s8: integer product with packed weights ------------------------------------------------------------------- */

typedef struct wok_gemm_s8_problem {
    int64_t n, k; /* n >= 1, 0 <= k <= WOK_S8_MAX_K */
} wok_gemm_s8_problem;

typedef struct wok_gemm_s8_args {
    int64_t m, n, k;
    const int8_t *a; /* row-major, lda >= k */
    int64_t lda;
    int32_t a_zero;          /* zero point of all rows, in [-128, 127] */
    const int32_t *row_zero; /* m zero points instead, or NULL */
    const void *packed;      /* B as packed by the same kernel */
    void *c;                 /* int32_t, float or int8_t as the epilogue says; row-major, ldc >= n; must not overlap a */
    int64_t ldc;
    wok_epilogue_s8 epilogue;
} wok_gemm_s8_args;

typedef struct wok_gemm_s8_kernel {
    wok_kernel base;
    const char *layout;
    int mr, nr;
    size_t (*packed_bytes)(const wok_gemm_s8_problem *problem);
    /* b[k][n] stands at b[k * stride_k + n * stride_n]; b_zero: n zero points in [-128, 127], or NULL for 0. `packed` holds
     * packed_bytes() bytes aligned to 64. Work is split over `parallel`. */
    void (*pack)(const wok_gemm_s8_problem *problem, const int8_t *b, int64_t stride_k, int64_t stride_n,
                 const int8_t *b_zero, void *packed, const wok_parallel *parallel);
    void (*run)(const wok_gemm_s8_args *args, const wok_parallel *parallel);
} wok_gemm_s8_kernel;
WOK_DEFINE_SELECT(gemm_s8)

/* ---- conv_s8: 2-D convolution of bytes, NHWC ------------------------------------------------------------------------- */
/* Taps outside the picture hold x_zero, that is the value 0. Problem as conv_f32; taps * c_in / group <= WOK_S8_MAX_K. */

typedef struct wok_conv_s8_args {
    int64_t batch, in_h, in_w, out_h, out_w;
    int64_t pad_top, pad_left; /* bottom and right follow from out_h, out_w */
    const int8_t *x;           /* [batch][in_h][in_w][c_in], x_stride elements from pixel to pixel (>= c_in) */
    int64_t x_stride;
    int32_t x_zero;
    const void *packed;
    void *y; /* [batch][out_h][out_w][c_out], y_stride elements from pixel to pixel; must not overlap x */
    int64_t y_stride;
    wok_epilogue_s8 epilogue; /* rows are output pixels; row_scale is not used */
    void *workspace;          /* workspace_bytes() bytes aligned to 64, contents unimportant */
} wok_conv_s8_args;

typedef struct wok_conv_s8_kernel {
    wok_kernel base; /* accepts a wok_conv_f32_problem */
    const char *layout;
    int mr, nr;
    size_t (*packed_bytes)(const wok_conv_f32_problem *problem);
    /* w: [c_out][c_in / group][kernel_h][kernel_w] contiguous; w_zero: c_out zero points, or NULL for 0 */
    void (*pack)(const wok_conv_f32_problem *problem, const int8_t *w, const int8_t *w_zero, void *packed);
    size_t (*workspace_bytes)(const wok_conv_f32_problem *problem, const wok_conv_s8_args *args, int threads);
    void (*run)(const wok_conv_f32_problem *problem, const wok_conv_s8_args *args, const wok_parallel *parallel);
} wok_conv_s8_kernel;
typedef wok_conv_f32_problem wok_conv_s8_problem;
WOK_DEFINE_SELECT(conv_s8)

/* ---- dwconv_s8: depthwise 2-D convolution of bytes, NHWC ------------------------------------------------------------- */

typedef struct wok_dwconv_s8_args {
    int64_t batch, in_h, in_w, out_h, out_w, pad_top, pad_left;
    const int8_t *x; /* NHWC, pixels x_stride apart */
    int64_t x_stride;
    int32_t x_zero;
    const void *packed;
    void *y; /* must not overlap x */
    int64_t y_stride;
    wok_epilogue_s8 epilogue; /* row_scale is not used */
} wok_dwconv_s8_args;

typedef struct wok_dwconv_s8_kernel {
    wok_kernel base; /* accepts a wok_dwconv_problem with at most WOK_S8_MAX_K taps */
    const char *layout;
    size_t (*packed_bytes)(const wok_dwconv_problem *problem);
    /* w: [channels][kernel_h][kernel_w]; w_zero: `channels` zero points, or NULL for 0 */
    void (*pack)(const wok_dwconv_problem *problem, const int8_t *w, const int8_t *w_zero, void *packed);
    void (*run)(const wok_dwconv_problem *problem, const wok_dwconv_s8_args *args, const wok_parallel *parallel);
} wok_dwconv_s8_kernel;
typedef wok_dwconv_problem wok_dwconv_s8_problem;
WOK_DEFINE_SELECT(dwconv_s8)

/* ---- pool_s8: 2-D max and average of bytes, NHWC ---------------------------------------------------------------------- */
/* Max: y = x's largest byte, the quantisation stays. Average: s = sum over the window of (x - x_zero), exact; then in f32
 *   y = clamp(round half to even((float)s * x_scale / count / y_scale) + y_zero, -128, 127)    left to right, each rounded
 * with count as in `pool`. A window without a pixel gives -128 (max) and y_zero (average). At most 2^23 pixels a window. */

typedef struct wok_pool_s8_args {
    int64_t batch, in_h, in_w, out_h, out_w;
    int64_t kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w;
    int64_t pad_top, pad_left, pad_bottom, pad_right;
    bool count_include_pad;
    const int8_t *x; /* NHWC */
    int64_t x_stride;
    int8_t *y;
    int64_t y_stride;
    float x_scale, y_scale; /* average only */
    int32_t x_zero, y_zero;
} wok_pool_s8_args;

typedef struct wok_pool_s8_kernel {
    wok_kernel base; /* accepts a wok_pool_problem */
    void (*run)(const wok_pool_problem *problem, const wok_pool_s8_args *args, const wok_parallel *parallel);
} wok_pool_s8_kernel;
typedef wok_pool_problem wok_pool_s8_problem;
WOK_DEFINE_SELECT(pool_s8)

/* ---- eltwise_s8: to bytes, from bytes, byte by byte ------------------------------------------------------------------- */
/* All in f32, one rounding an operation, so that fusing changes no bit of what QuantizeLinear and DequantizeLinear say:
 *   QUANTIZE       y = clamp(round half to even(a / y_scale) + y_zero, -128, 127); NaN gives y_zero
 *   QUANTIZE_ROWS  ONNX's DynamicQuantizeLinear of each row by itself, with 128 taken off: lo = min(0, row), hi = max(0,
 *                  row), scale = (hi - lo) / 255, zero = clamp(round half to even(-lo / scale), 0, 255) - 128, then
 *                  QUANTIZE. scale, zero go to row_scale[row], row_zero[row]. A row of zeros has scale 1 and zero -128. A
 *                  row that holds a NaN or an infinity has scale NaN, zero 0 and bytes 0, so that what is made of it is
 *                  NaN too.
 *   DEQUANTIZE     y = (float)(a - a_zero) * a_scale
 *   TABLE          y = table[a + 128]
 *   ADD, MUL       y = QUANTIZE(DEQUANTIZE(a) + or * DEQUANTIZE(b)), clamped to [lo, hi] */

typedef enum wok_eltwise_s8_op {
    WOK_ELT_S8_QUANTIZE,
    WOK_ELT_S8_QUANTIZE_ROWS,
    WOK_ELT_S8_DEQUANTIZE,
    WOK_ELT_S8_TABLE,
    WOK_ELT_S8_ADD,
    WOK_ELT_S8_MUL
} wok_eltwise_s8_op;

typedef struct wok_eltwise_s8_problem {
    wok_eltwise_s8_op op;
} wok_eltwise_s8_problem;

typedef struct wok_eltwise_s8_args {
    int64_t rows, cols;        /* rows * cols contiguous elements; only QUANTIZE_ROWS tells rows apart */
    const void *a, *b;         /* f32 for the two QUANTIZE, s8 otherwise; b: ADD and MUL */
    int64_t a_step, b_step;    /* ADD and MUL: 1, or 0 for one byte repeated; otherwise 1 */
    void *y;                   /* f32 for DEQUANTIZE, s8 otherwise; may be a or b, element for element, where all are s8 */
    float a_scale, b_scale, y_scale;
    int32_t a_zero, b_zero, y_zero;
    int32_t lo, hi;            /* ADD and MUL */
    const int8_t *table;       /* TABLE: 256 values */
    float *row_scale;          /* QUANTIZE_ROWS: results, `rows` values each */
    int32_t *row_zero;
} wok_eltwise_s8_args;

typedef struct wok_eltwise_s8_kernel {
    wok_kernel base;
    void (*run)(const wok_eltwise_s8_problem *problem, const wok_eltwise_s8_args *args, const wok_parallel *parallel);
} wok_eltwise_s8_kernel;
WOK_DEFINE_SELECT(eltwise_s8)

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

/* wok.h - load a model, run it.
 *
 *   wok_ctx      settings, allocator, worker threads. Any number; used from any thread.
 *   wok_model    a file as loaded: immutable, shared by any number of sessions and threads.
 *   wok_session  one user of a model: inputs, plans, memory. One thread at a time.
 *
 * Five calls run a model: wok_ctx_create, wok_model_load, wok_session_create, wok_session_set_input, wok_session_run.
 * A program (rewritten graph, packed weights, chosen kernels) is built by the first session of its kind and shared by
 * later ones. A run with a shape whose plan is cached allocates nothing.
 *
 * Errors: a wok_status, and one sentence that names node, operator, shapes or file position, kept by the object:
 * wok_ctx_error for creating and loading (thread-local), wok_session_error for everything done with a session.
 * The library never prints, exits or aborts; warnings go to wok_ctx_options.log.
 */
#ifndef WOK_H
#define WOK_H

#include "wok_base.h"
#include "wok_kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

#define WOK_MAX_RANK 8

typedef struct wok_ctx wok_ctx;
typedef struct wok_model wok_model;
typedef struct wok_session wok_session;

/* ---- context ----------------------------------------------------------------------------------------------------- */

typedef enum wok_log_level { WOK_LOG_WARNING = 1, WOK_LOG_INFO = 2 } wok_log_level;

/* `size` first: a program compiled against an older header keeps working. Zero means the default everywhere. */
typedef struct wok_ctx_options {
    size_t size;     /* sizeof(wok_ctx_options) */
    int threads;     /* threads of a run, the caller's included; 0: as many CPUs as this process may use */
    const char *isa; /* cap, as WOK_ISA; NULL: the environment variable WOK_ISA, if set */
    const wok_allocator *allocator; /* copied; NULL: the C library's */
    size_t memory_limit;            /* bytes that the context may hold at a time; 0: none. Beyond it: WOK_ERR_LIMIT */
    const wok_parallel *executor;   /* the caller's own threads instead of wok's; copied; must outlive the context */
    void (*log)(void *user, wok_log_level level, const char *text);
    void *log_user;
    int spin_us; /* how long an idle worker looks for work before it sleeps, at most 1000; 0: 50; negative: not at all */
} wok_ctx_options;

/* NULL only where not even the context could be allocated. Bad options (an unknown ISA) are kept as the context's
 * error and returned by every later load. Options may be NULL. */
WOK_API wok_ctx *wok_ctx_create(const wok_ctx_options *options);
/* Frees and clears *ctx. Models of the context must have been freed. NULL and pointer to NULL are fine. */
WOK_API void wok_ctx_free(wok_ctx **ctx);
/* The calling thread's last error with this context; "" if none. Valid until its next failing call in this thread. */
WOK_API const char *wok_ctx_error(const wok_ctx *ctx);
WOK_API int wok_ctx_threads(const wok_ctx *ctx);
WOK_API wok_isa_set wok_ctx_isa(const wok_ctx *ctx);
/* Bytes that objects of this context hold now, and the most they ever held. Memory mapped from files is not counted. */
WOK_API size_t wok_ctx_memory(const wok_ctx *ctx, size_t *peak);

/* ---- tensors ------------------------------------------------------------------------------------------------------ */

typedef enum wok_device { WOK_DEVICE_CPU = 0, WOK_DEVICE_CUDA = 1 } wok_device;

typedef struct wok_tensor {
    size_t size; /* sizeof(wok_tensor) */
    wok_dtype dtype;
    int rank; /* 0: a scalar */
    int64_t dims[WOK_MAX_RANK];
    void *data; /* row-major, no gaps */
    size_t bytes;
    wok_device device;
    unsigned flags; /* none yet */
} wok_tensor;

/* ---- models ------------------------------------------------------------------------------------------------------- */

typedef struct wok_load_options {
    size_t size;
    const char *arch;     /* for a bare .safetensors: "resnet18" or "mobilenet_v2" (widths are read from the tensors) */
    const char *base_dir; /* loading from memory: folder of external data; NULL: external data is an error */
    bool copy;            /* loading from memory: copy the bytes, so that the caller may free them after the call */
    bool allow_unsupported; /* load a model that cannot run, to look at it */
} wok_load_options;

/* A path: an .onnx file, a Hugging Face folder (config.json + model.safetensors), a bare .safetensors with
 * options->arch. The file is mapped, not read; it must stay unchanged while the model lives. On failure *model is NULL
 * and wok_ctx_error lists every operator that is not supported. */
WOK_API wok_status wok_model_load(wok_ctx *ctx, const char *path, const wok_load_options *options, wok_model **model);
/* From memory: an ONNX file, or a .safetensors with options->arch. Without options->copy the bytes are borrowed until
 * the model is freed, at any alignment. */
WOK_API wok_status wok_model_load_memory(wok_ctx *ctx, const void *data, size_t bytes, const wok_load_options *options,
                                         wok_model **model);
/* Writes what was loaded, not what was rewritten: ".onnx" (weights beyond 1 GiB go to a .data file beside it) or
 * ".safetensors" (tensors only). Written to a temporary name and renamed, so that a failure leaves nothing behind. */
WOK_API wok_status wok_model_save(const wok_model *model, const char *path);
/* Sessions of the model must have been freed. */
WOK_API void wok_model_free(wok_model **model);

/* An input or output of the model. Strings and arrays live as long as the model. */
typedef struct wok_value_info {
    const char *name;
    wok_dtype dtype;
    int rank;                            /* -1: the file does not say */
    int64_t dims[WOK_MAX_RANK];          /* -1: free */
    const char *dim_names[WOK_MAX_RANK]; /* "batch"; NULL where the file gives a number or nothing */
    bool optional;                       /* an input that has a default */
} wok_value_info;

WOK_API int wok_model_input_count(const wok_model *model);
WOK_API int wok_model_output_count(const wok_model *model);
/* NULL outside the range. */
WOK_API const wok_value_info *wok_model_input(const wok_model *model, int index);
WOK_API const wok_value_info *wok_model_output(const wok_model *model, int index);
/* -1 if there is none of this name. */
WOK_API int wok_model_input_index(const wok_model *model, const char *name);
WOK_API int wok_model_output_index(const wok_model *model, const char *name);

typedef struct wok_op_count {
    const char *domain, *op; /* domain "" is ONNX's own */
    int count;
    const char *unsupported; /* why wok cannot run it, or NULL */
} wok_op_count;

typedef struct wok_model_info {
    const char *format; /* "onnx", "hf-bert", "hf-distilbert", "resnet18", ... */
    const char *producer;
    int64_t ir_version, opset;
    int nodes, weights;
    int64_t weight_bytes, parameters;
    const wok_op_count *ops; /* op_count of them, by name */
    int op_count;
} wok_model_info;
WOK_API const wok_model_info *wok_model_describe(const wok_model *model);
/* Metadata of the file ("author"); NULL if absent. */
WOK_API const char *wok_model_metadata(const wok_model *model, const char *key);

/* ---- sessions ----------------------------------------------------------------------------------------------------- */

typedef enum wok_precision { WOK_PRECISION_F32 = 0, WOK_PRECISION_BF16 = 1, WOK_PRECISION_INT8 = 2 } wok_precision;

typedef struct wok_session_options {
    size_t size;
    wok_precision precision;      /* only F32 so far */
    const char *const *no_passes; /* names of rewrites to leave out; an unknown name is an error */
    int no_pass_count;
    const char *const *outputs; /* values wanted, inner ones included; NULL: the model's outputs */
    int output_count;
    int plan_cache; /* shapes whose plans are kept; 0: 16 */
    bool profile;   /* time every node */
    /* DynamicQuantizeLinear finds a scale for every row of a matrix (every picture of a convolution's batch) instead of one
     * for the tensor, so that a result is the same bits alone, in a batch and beside padding. Files that say so themselves
     * (metadata wok.dynamic=per_row) need no option; others compute per tensor, as the standard says. */
    bool dynamic_per_row;
    /* Every QuantizeLinear-DequantizeLinear pair of a file rounds where the file says. This drops the pairs between operators
     * that compute in f32 anyway: faster, and closer to the float model, but no longer what other runtimes compute. */
    bool relax_qdq;
    /* Products and convolutions of quantised operands compute in f32 with dequantised weights: what they would cost, and give,
     * without integer kernels. Activations of dynamic models are not quantised then. */
    bool quantized_as_f32;
} wok_session_options;

WOK_API wok_status wok_session_create(wok_model *model, const wok_session_options *options, wok_session **session);
WOK_API void wok_session_free(wok_session **session);
/* "" if none. Valid until the session's next call. */
WOK_API const char *wok_session_error(const wok_session *session);

/* Inputs and outputs are counted as in the model (outputs: as in the options). Shapes may change from run to run.
 * The data, aligned to its element size, is borrowed until the next run ends; a further run without a new call reads it
 * again. rank 0 takes dims NULL. An optional input is cleared by data NULL. */
WOK_API wok_status wok_session_set_input(wok_session *session, int index, wok_dtype dtype, const int64_t *dims,
                                         int rank, const void *data, size_t bytes);
/* The next runs write output `index` into the caller's memory, which must be aligned to 8, hold it and overlap no input or
 * other output (checked before anything runs; a size that depends on data is checked when it is known). NULL goes back to
 * the session's own. */
WOK_API wok_status wok_session_bind_output(wok_session *session, int index, void *data, size_t bytes);
/* Checks inputs, plans if the shapes are new, runs. On failure outputs are undefined and the session stays usable. */
WOK_API wok_status wok_session_run(wok_session *session);
/* Plans for the shapes of the inputs that are set, without running: what `explain` shows. Data pointers may be NULL. */
WOK_API wok_status wok_session_plan(wok_session *session);
WOK_API int wok_session_output_count(const wok_session *session);
/* Owned by the session, valid until its next run; NULL before the first run or outside the range. */
WOK_API const wok_tensor *wok_session_output(const wok_session *session, int index);
WOK_API const char *wok_session_output_name(const wok_session *session, int index);
/* Gives back plans and arena; the next run plans anew. */
WOK_API void wok_session_trim(wok_session *session);

/* ---- what a session does, for people ------------------------------------------------------------------------------ */

typedef struct wok_rejection {
    const char *kernel, *reason;
} wok_rejection;

typedef struct wok_node_info {
    const char *name, *op;
    const char *const *fused_from; /* names of the nodes of the file that this one does; at least itself */
    int fused_count;
    const char *kernel, *isa;
    wok_dtype dtype; /* computes in */
    int rank;        /* of the first output */
    int64_t dims[WOK_MAX_RANK];
    const wok_rejection *rejected;
    int rejected_count;
    double us, us_best;  /* mean over the runs since planning, and the quickest; us is negative without profile */
    int64_t bytes, macs; /* read and written; multiply-adds */
} wok_node_info;

typedef struct wok_near_miss {
    const char *pass, *node, *reason;
} wok_near_miss;

typedef struct wok_session_info {
    int nodes, near_misses;
    int64_t arena_bytes;  /* of the current plan, outputs included */
    int64_t packed_bytes; /* weights as packed, shared by the sessions of the program */
    int64_t weight_bytes; /* weights used as they stand in the file */
    int threads;
    const char *isa; /* best level in use */
} wok_session_info;

/* Of the current plan (after wok_session_plan or wok_session_run); strings live until the next plan. */
WOK_API wok_status wok_session_describe(wok_session *session, wok_session_info *info);
WOK_API wok_status wok_session_node(wok_session *session, int index, wok_node_info *info);
WOK_API wok_status wok_session_near_miss(wok_session *session, int index, wok_near_miss *miss);

/* Names of the rewrites, in the order in which they run; NULL outside the range. */
WOK_API const char *wok_pass_name(int index);

#ifdef __cplusplus
}
#endif
#endif

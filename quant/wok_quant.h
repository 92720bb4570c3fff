/* wok_quant.h - makes an 8-bit model of a float one, and says what that costs.
 *
 *   wok_quant_options options = {.size = sizeof options, .mode = WOK_QUANT_STATIC, .samples = 64, .sample = next_picture};
 *   wok_model *small = NULL;
 *   wok_quant_report *report = NULL;
 *   if (wok_quantize(model, &options, &small, &report) != WOK_OK) puts(wok_ctx_error(ctx));
 *   wok_model_save(small, "small.onnx");
 *   wok_quant_report_free(&report);
 *   wok_model_free(&small);
 *
 * The result is a model like any other, in standard ONNX operators: save it, run it, give it to another runtime. It
 * holds copies of everything that it needs; the float model may be freed. Data come by callback only: nothing here
 * opens a file. Two calls with equal arguments give equal models, byte for byte once saved, at any number of threads
 * (`measure` excepted, whose choices depend on the clock). Metadata "wok.quant.float" of the result lists, one a line, the
 * layers that `measure` and `max_loss` kept float.
 *
 * The two forms
 *
 *   Dynamic. For MatMul, FusedMatMul and Gemm with constant weights: DynamicQuantizeLinear -> MatMulInteger -> Cast ->
 *   Mul -> Add. Weights are signed bytes, symmetric, one scale a column; activations are quantised when they are known.
 *   Needs no data. The metadata entry "wok.dynamic" = "per_row" tells wok to take one scale for every row, so that an
 *   answer does not depend on its neighbours; other runtimes ignore it and take one scale for the tensor, as ONNX says.
 *   Float tables that Gather reads (embeddings) become signed bytes with one scale a row. Convolutions stay float.
 *
 *   Static. For Conv, Gemm, MatMul, FusedMatMul and what stands between them (Add, Mul, pools, data movement):
 *   QuantizeLinear / DequantizeLinear pairs (ONNX's QDQ form) with ranges seen on the caller's samples. Activations are
 *   unsigned bytes, asymmetric, one scale a tensor; weights are signed bytes, symmetric, one scale an output channel;
 *   a bias is 32 bits with the scale x_scale * w_scale. BatchNormalization is folded into the convolution first. A
 *   convolution is quantised behind its activation (Relu, Clip), and one whose only reader is a residual Add not before
 *   that Add: kernels add in the epilogue, where nothing needs to be rounded. Data movement and MaxPool keep the scale
 *   of what they move. Encoders: the linear layers (their inputs and weights) are quantised, attention, Softmax and
 *   LayerNormalization stay float, and tables become bytes as in the dynamic form.
 *
 * Saturation. wok's integer products are exact: no instruction set saturates. ONNX Runtime on CPUs without VNNI
 * multiplies u8 x s8 with a 16-bit intermediate sum that saturates; a file for those machines wants `narrow_weights` (7
 * bits) or `signed_activations`.
 *
 * Sources. Forms and bias scale: Jacob et al. 2018 (Quantization and Training of Neural Networks for Efficient
 * Integer-Arithmetic-Only Inference). Equalisation and bias correction: Nagel et al. 2019 (Data-Free Quantization
 * Through Weight Equalization and Bias Correction); the correction here is the empirical one. Scale migration: Xiao et
 * al. 2022 (SmoothQuant). Entropy: Migacz 2017 (8-bit Inference with TensorRT). Layer-wise search: Wu et al. 2020
 * (Integer Quantization for Deep Learning Inference), partial quantisation.
 *
 * Threads: calls with different models may run at the same time if their contexts differ; one call uses the context's
 * threads. Everything is allocated by the context.
 */
#ifndef WOK_QUANT_H
#define WOK_QUANT_H

#include "wok.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum wok_quant_mode { WOK_QUANT_DYNAMIC = 0, WOK_QUANT_STATIC = 1 } wok_quant_mode;

/* How the range of an activation is taken from what the samples showed. */
typedef enum wok_quant_method {
    WOK_QUANT_MINMAX = 0,     /* all of it */
    WOK_QUANT_PERCENTILE = 1, /* all but the outermost (100 - percentile) % of the elements */
    WOK_QUANT_ENTROPY = 2,    /* the clip that loses least information (Kullback-Leibler) */
    WOK_QUANT_MSE = 3         /* the clip with the least mean square error; for weights too, channel by channel */
} wok_quant_method;

/* Float tables that Gather reads rows from. */
typedef enum wok_quant_table {
    WOK_QUANT_TABLE_INT8 = 0, /* one scale a row: 8.03 bits an element at a width of 1024, error about 0.3 % */
    WOK_QUANT_TABLE_INT4 =
        1,                   /* two to a byte, one scale for 32 elements of a row: 5 bits an element, error about 6 % */
    WOK_QUANT_TABLE_KEEP = 2 /* float */
} wok_quant_table;

/* `size` first; zero means the default everywhere. Arrays and strings are read during the call only. */
typedef struct wok_quant_options {
    size_t size; /* sizeof(wok_quant_options) */
    wok_quant_mode mode;

    /* Calibration data; static needs them, dynamic uses them (if given) for smooth and for the report. Sample `index`, 0
     * to samples - 1, asked for in order and several times over; equal answers each time. `inputs` has one entry a model
     * input, empty (data NULL: an optional input's default); the callback points it at memory of its own, which must stay
     * until the next call of it. A sample may be a batch. Anything but WOK_OK ends wok_quantize with that status. */
    int64_t samples;
    wok_status (*sample)(void *user, int64_t index, wok_tensor *inputs);
    void *sample_user;

    wok_quant_method method;
    double percentile;          /* in (50, 100]; 0: 99.99 */
    bool per_tensor;            /* one scale for a whole weight, not for every channel */
    bool signed_activations;    /* bytes -128..127 instead of 0..255 */
    bool symmetric_activations; /* zero point 0 (128 for unsigned bytes) */
    bool narrow_weights;        /* -63..63: no u8 x s8 pair sum saturates anywhere, at 1 bit of precision */

    /* Static: evens out the channels of neighbouring convolutions, which leaves the function as it is. (Where Clip stands
     * between them: for activations up to 1.25 times those of the samples; Clip has one bound for all channels.) */
    bool equalize;
    /* Static: takes the mean error of every output channel, seen on the samples, out of the bias. */
    bool bias_correction;
    /* alpha in (0, 1], 0: off. Moves outliers of LayerNormalization's output into the weights that read it, which leaves
     * the function as it is. Needs samples. 0.5 is the usual value. */
    float smooth;
    wok_quant_table tables;

    const char *const *keep; /* nodes (by name) that stay float; an unknown name is an error */
    int keep_count;

    /* The score of a model, larger is better: called with a session of the float model first, then of candidates. The
     * session is wok_quantize's. Anything but WOK_OK ends wok_quantize with that status. */
    wok_status (*eval)(void *user, wok_session *session, double *score);
    void *eval_user;
    /* With eval: float score - score must not be more; layers stay float, the most damaging first, until that holds.
     * Negative: no limit, the scores are only reported. */
    double max_loss;

    /* Times every layer in both forms, on the first sample; those that are slower in 8 bits by more than 5 % and 20 us stay
     * float. */
    bool measure;

    /* Called between steps: what is being done ("calibrating"), and how far it is. False stops with WOK_ERR_STATE. */
    bool (*progress)(void *user, const char *step, int64_t done, int64_t total);
    void *progress_user;
} wok_quant_options;

typedef struct wok_quant_report wok_quant_report;

/* options NULL: dynamic with defaults. report may be NULL. The model is only read.
 * On failure both results are NULL and wok_ctx_error has the sentence:
 *   WOK_ERR_ARGUMENT    options that cannot be right, an unknown name in `keep`, no samples where they are needed
 *   WOK_ERR_UNSUPPORTED the model is quantised already; it has nothing to quantise; its operator set is older than 11
 *   WOK_ERR_SHAPE       a sample of the wrong element type or shape
 *   WOK_ERR_VALUE       NaN or infinity in a sample, or in a tensor that it makes; an eval score that is NaN
 *   WOK_ERR_LIMIT       max_loss cannot be held even with all layers float
 *   WOK_ERR_MEMORY, and whatever a callback returns */
WOK_API wok_status wok_quantize(wok_model *model, const wok_quant_options *options, wok_model **quantised,
                                wok_quant_report **report);

/* ---- what was done, and what it costs ----------------------------------------------------------------------------- */

/* One candidate: an operator with weights, or a table. */
typedef struct wok_quant_layer {
    const char *name, *op; /* the node's name (its output's, where it has none) and operator in the float model */
    bool quantised;
    const char *reason; /* why it stayed float; NULL: it did not */
    const char *form;   /* "u8 x s8 per channel", "s8 rows", "f32", ... */
    double snr_db; /* signal to noise of its output when it alone is quantised, over the samples; NaN: no samples */
    double snr_total_db;               /* the same in the finished model, with all errors before it; NaN: no samples */
    double float_us, int8_us;          /* one run; negative: not measured */
    int64_t bytes_before, bytes_after; /* its weights */
} wok_quant_layer;

typedef struct wok_quant_summary {
    int layers, quantised;             /* candidates, and how many of them are 8 bit now */
    int folded;                        /* batch normalisations */
    int equalised;                     /* pairs of layers */
    int smoothed;                      /* LayerNormalizations */
    int corrected;                     /* biases */
    int64_t bytes_before, bytes_after; /* all constants of the model */
    double snr_db;                     /* of the model's outputs together; NaN: no samples */
    double float_score, score;         /* by eval; NaN: none */
} wok_quant_summary;

/* Strings and structs live as long as the report. */
WOK_API const wok_quant_summary *wok_quant_report_summary(const wok_quant_report *report);
/* In the order of the graph, 0 to summary->layers - 1; NULL outside. */
WOK_API const wok_quant_layer *wok_quant_report_layer(const wok_quant_report *report, int index);
/* Frees and clears *report. The context must still be there. NULL and pointer to NULL are fine. */
WOK_API void wok_quant_report_free(wok_quant_report **report);

#ifdef __cplusplus
}
#endif
#endif

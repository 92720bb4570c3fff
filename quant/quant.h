/* quant.h - what the parts of the quantiser share (internal).
 *
 * wok_quantize reads the model into a `wok_qgraph`, changes that in ways that keep the float function (fold.c, equalize.c,
 * smooth.c), finds the layers (layers.c), looks at the samples (calibrate.c, range.c), and then writes models from it as
 * often as it needs: the float one, candidates with some layers in 8 bits (write.c, dynamic.c, static.c, tables.c), a
 * probe where every layer stands in both forms. The graph is not changed by writing. Weights are coded once (weights.c)
 * and borrowed by all candidates; only the result copies them.
 */
#ifndef WOK_QUANT_INTERNAL_H
#define WOK_QUANT_INTERNAL_H

#include "wok_build.h"
#include "wok_quant.h"

#include <string.h>

#define WOK_TRYQ(call)                                                                                                 \
    do {                                                                                                               \
        wok_status tried = (call);                                                                                     \
        if (tried != WOK_OK) return tried;                                                                             \
    } while (0)

/* ---- memory: many things, freed together -------------------------------------------------------------------------- */

typedef struct wok_qpool {
    wok_ctx *ctx;
    struct wok_qblock *blocks;
} wok_qpool;

/* Zeroed; NULL (and the context's error) on failure. */
void *wok_qpool_alloc(wok_qpool *pool, size_t count, size_t size);
char *wok_qpool_format(wok_qpool *pool, const char *format, ...) WOK_PRINTF(2, 3);
void wok_qpool_free(wok_qpool *pool);

/* ---- the graph ---------------------------------------------------------------------------------------------------- */

typedef struct wok_qvalue {
    const char *name;
    wok_dtype dtype;
    int rank; /* -1: unknown */
    int64_t dims[WOK_MAX_RANK];
    const char *dim_names[WOK_MAX_RANK];
    const void *data; /* of a constant, at any alignment */
    size_t bytes;
    bool is_input, is_output, only_attr;
    int producer, readers; /* by wok_qgraph_index: the node or -1; how often nodes and the caller read it */
} wok_qvalue;

typedef struct wok_qnode {
    const char *op, *domain, *name;
    wok_value *in, *out;
    int in_count, out_count;
    wok_attr *attrs;
    int attr_count;
    bool dead;
} wok_qnode;

typedef struct wok_qgraph {
    wok_qpool *pool;
    const wok_model *model; /* names and weights live there */
    wok_qvalue *values;
    wok_qnode *nodes;
    int value_count, value_capacity, node_count, node_capacity;
    int64_t opset;
} wok_qgraph;

wok_status wok_qgraph_read(wok_qgraph *g, const wok_model *model, wok_qpool *pool);
void wok_qgraph_index(wok_qgraph *g);
/* A constant with data in the pool (or in the model); WOK_ABSENT on failure. */
wok_value wok_qgraph_constant(wok_qgraph *g, const char *name, wok_dtype dtype, int rank, const int64_t *dims,
                              const void *data);
/* A constant like `old` with other elements; it has the name of the old one, where that had no other reader. */
wok_value wok_qgraph_replace(wok_qgraph *g, wok_value old, const float *data);
/* An inner value without a type. */
wok_value wok_qgraph_value(wok_qgraph *g, const char *name);
/* Appends a node with one output; outputs keep their ids. */
wok_status wok_qgraph_node(wok_qgraph *g, const char *op, const char *name, const wok_value *in, int in_count,
                           wok_value out);
/* A name that no value has: `name` itself, or with underscores behind it. NULL on failure. */
const char *wok_qgraph_unique(const wok_qgraph *g, const char *name);

static inline bool wok_qnode_is(const wok_qnode *node, const char *op) {
    return !node->dead && !*node->domain && strcmp(node->op, op) == 0;
}
const wok_attr *wok_qnode_attr(const wok_qnode *node, const char *name);
int64_t wok_qnode_int(const wok_qnode *node, const char *name, int64_t fallback);
float wok_qnode_float(const wok_qnode *node, const char *name, float fallback);
/* Input i, or WOK_ABSENT. */
static inline wok_value wok_qnode_in(const wok_qnode *node, int i) {
    return i < node->in_count ? node->in[i] : WOK_ABSENT;
}
/* A constant that no caller can replace. */
static inline const wok_qvalue *wok_qgraph_fixed(const wok_qgraph *g, wok_value v) {
    return v >= 0 && g->values[v].data && !g->values[v].is_input ? &g->values[v] : NULL;
}
/* The one node that reads v as an input; -1 if there is none, or more, or v is an output of the graph. */
int wok_qgraph_only_reader(const wok_qgraph *g, wok_value v);
static inline int64_t wok_qvalue_count(const wok_qvalue *v) {
    return (int64_t)(v->bytes / wok_dtype_size(v->dtype));
}
static inline float wok_qfloat(const void *data, int64_t i) {
    float f;
    memcpy(&f, (const char *)data + (size_t)i * sizeof f, sizeof f);
    return f;
}

/* ---- layers ------------------------------------------------------------------------------------------------------- */

typedef enum wok_qkind { WOK_QCONV, WOK_QGEMM, WOK_QMATMUL, WOK_QTABLE } wok_qkind;

/* Weights as codes: element ((o * channels) + c) * inner + i has scale[c]. */
typedef struct wok_qcodes {
    int8_t *codes;
    float *scales;
    int64_t outer, channels, inner;
    bool transposed; /* the source is [channels,outer], inner is 1 */
    int rank, axis;  /* as written: the axis of the scales */
    int64_t dims[WOK_MAX_RANK];
    int scale_count;      /* channels, or 1 */
    double signal, noise; /* sums of squares: of the weights, of their error */
    const char *name;
} wok_qcodes;

typedef struct wok_qlayer {
    wok_qkind kind;
    int node;
    wok_value x, w, bias, y; /* bias of Conv and Gemm; y: what it makes */
    const char *fixed;       /* why it can never be quantised; NULL: it can */
    const char *reason;      /* why it stays float now; NULL: it does not */
    wok_qcodes *weights;     /* shared by layers of equal weights; NULL before wok_quant_code */
    int32_t *bias_codes;     /* static: with the scales of wok_quant_bias */
    float *bias_scales;
    float *correction; /* added to the bias when it is quantised; NULL: nothing */
    double snr, snr_total, float_us, int8_us;
    double weight_snr; /* of the weights; where there are no samples */
} wok_qlayer;

/* How a value is quantised. Scale and zero point count at the root of a chain of moves. */
typedef struct wok_qrange {
    bool wanted;   /* somebody reads it in 8 bits */
    double lo, hi; /* seen */
    float scale;
    int zero;       /* in the type of the activations */
    wok_value from; /* moved from there, and has its scale; WOK_ABSENT: has its own */
} wok_qrange;

typedef struct wok_quant {
    wok_ctx *ctx;
    wok_model *model;
    wok_quant_options o;
    wok_qpool pool;
    wok_qgraph graph;
    wok_qlayer *layers;
    int layer_count;
    wok_qrange *ranges; /* of every value; static */
    wok_quant_summary summary;
} wok_quant;

/* Reports progress; WOK_ERR_STATE if the caller wants no more. */
wok_status wok_quant_step(wok_quant *q, const char *step, int64_t done, int64_t total);
static inline bool wok_quant_is_static(const wok_quant *q) {
    return q->o.mode == WOK_QUANT_STATIC;
}

/* fold.c */
wok_status wok_quant_fold_constants(wok_qgraph *g);
wok_status wok_quant_fold_batchnorm(wok_qgraph *g, int *folded);
/* With weights and bias that are fixed, f32 and of the right number. */
bool wok_quant_is_convolution(const wok_qgraph *g, const wok_qnode *node);
/* Output channel c of a convolution times scale[c], plus shift[c] (NULL: nothing); new constants. */
wok_status wok_quant_scale_rows(wok_qgraph *g, wok_qnode *conv, const double *scale, const double *shift);
wok_status wok_quant_fold_pads(wok_qgraph *g);
bool wok_quant_pads_zeros(const wok_qgraph *g, const wok_qnode *pad); /* it adds zeros (plan.c) */
wok_status wok_quant_upgrade(wok_quant *q, int64_t opset);

/* samples.c: a session with these outputs (count 0: the model's own) */
wok_status wok_quant_session(wok_quant *q, wok_model *model, const char *const *outputs, int count, bool profile,
                             wok_session **session);
/* channels[i]: of output i, largest magnitudes along `axis` (1, or -1 for the last), over the samples; in the pool. */
typedef struct wok_qpeaks {
    wok_value value;
    int axis;
    int64_t count; /* as expected; another size is an error */
    float *most;
} wok_qpeaks;
wok_status wok_quant_peaks(wok_quant *q, const char *step, wok_qpeaks *peaks, int count);
/* Every sample through all the sessions, then look(user). */
wok_status wok_quant_run(wok_quant *q, const char *step, int64_t samples, wok_session *const *sessions, int count,
                         wok_status (*look)(void *user), void *user);
typedef struct wok_qnoise {
    double signal, noise; /* sums of squares */
} wok_qnoise;
void wok_qnoise_add(wok_qnoise *n, const wok_tensor *want, const wok_tensor *got);
double wok_qnoise_db(const wok_qnoise *n); /* NaN: nothing was seen */

/* plan.c: which operands a node reads in 8 bits */
typedef enum wok_qhow { WOK_QHOW_FLOAT, WOK_QHOW_FIRST, WOK_QHOW_SECOND, WOK_QHOW_ALL } wok_qhow;
/* For the layers that are quantised now: how[node], and ranges[value].wanted and .from; nothing else is changed.
 * layer_of[node]: index of its layer + 1, or 0. */
void wok_quant_plan(wok_quant *q, const int *layer_of, unsigned char *how, wok_qrange *ranges);
wok_value wok_quant_root(const wok_qrange *ranges, wok_value v);

/* calibrate.c: q->ranges for all layers that can be quantised */
wok_status wok_quant_calibrate(wok_quant *q);
/* range.c: narrows [lo, hi], which `bins` divides evenly and which holds 0 */
enum { WOK_QUANT_BINS = 2048 };
void wok_quant_clip(const wok_quant_options *o, const double *bins, double *lo, double *hi);

/* report.c: of the layers alone, by the probe; of the whole, in the finished model */
wok_status wok_quant_measure_alone(wok_quant *q);
wok_status wok_quant_measure_total(wok_quant *q, wok_model *quantised);
wok_status wok_quant_report_new(const wok_quant *q, wok_quant_report **report);

/* equalize.c, smooth.c: before layers are found */
wok_status wok_quant_equalize(wok_quant *q);
wok_status wok_quant_smooth(wok_quant *q);
/* bias.c: corrections of all layers with a bias; needs their codes */
wok_status wok_quant_correct(wok_quant *q);

/* search.c: which layers stay float, by time and by score */
wok_status wok_quant_time(wok_quant *q);
wok_status wok_quant_evaluate(wok_quant *q);

/* layers.c: refuses quantised models, old operator sets, unknown names in `keep` */
wok_status wok_quant_check(const wok_quant *q);
wok_status wok_quant_find_layers(wok_quant *q);
wok_status wok_quant_code(wok_quant *q); /* codes of all layers that can be quantised */

/* weights.c: largest code `top`; mse: the clip with the least square error, else the largest magnitude. Fills codes, scales
 * and noise. */
wok_status wok_quant_weights(wok_ctx *ctx, const void *w, wok_qcodes *codes, int top, bool mse);
float wok_quant_weight_scale(const float *w, int64_t count, int top, bool mse);

enum { WOK_QUANT_GROUP = 32 }; /* elements with one scale in a table of 4 bits */
/* tables.c: fills all of `codes` */
wok_status wok_quant_code_int4(wok_qpool *pool, const wok_qvalue *table, wok_qcodes *codes);

/* ---- writing models ------------------------------------------------------------------------------------------------- */

typedef struct wok_qwriter {
    wok_quant *q;
    wok_qgraph *graph;
    wok_model *model;
    wok_qpool pool;                    /* of this writing */
    bool copy;                         /* the model outlives the graph */
    wok_value *map;                    /* of the graph's values in the model; WOK_ABSENT: not yet */
    wok_value *coded, *scales, *zeros; /* dynamic: the outputs of DynamicQuantizeLinear; static: coded is DQ(Q(x)) */
    wok_value *written;                /* static: of every layer, DQ(codes of the weights) */
    unsigned char *how;                /* static: of every node */
    wok_qrange *ranges;                /* static: wanted and from, for the layers of this model */
} wok_qwriter;

/* The model with the layers whose reason is NULL in 8 bits. */
wok_status wok_quant_write(wok_quant *q, bool copy, wok_model **model);
/* The float model of the graph as it is now. */
wok_status wok_quant_write_float(wok_quant *q, wok_model **model);
/* The float model, where every layer that can be quantised stands a second time in 8 bits and reads the same float
 * input; that copy's output is called wok_quant_probe_name. */
wok_status wok_quant_write_probe(wok_quant *q, wok_model **model);
const char *wok_quant_probe_name(wok_qpool *pool, const wok_quant *q, const wok_qlayer *layer);

wok_value wok_qwriter_value(wok_qwriter *w, wok_value v); /* as float */
/* A new constant; equal names are the same constant. */
wok_value wok_qwriter_constant(wok_qwriter *w, const char *name, wok_dtype dtype, int rank, const int64_t *dims,
                               const void *data);
wok_value wok_qwriter_scalar(wok_qwriter *w, const char *name, wok_dtype dtype, const void *number);
/* A copy of `node` that reads `in` and makes `out`. */
void wok_qwriter_node(wok_qwriter *w, const wok_qnode *node, const wok_value *in, const wok_value *out);
const char *wok_qwriter_name(wok_qwriter *w, const char *base, const char *suffix);

void wok_quant_write_dynamic(wok_qwriter *w, const wok_qlayer *layer, wok_value out);
void wok_quant_write_static(wok_qwriter *w, const wok_qlayer *layer, wok_value out);
void wok_quant_write_table(wok_qwriter *w, const wok_qlayer *layer, wok_value out);
/* static.c: codes of the layer's bias, with its correction; needs the ranges */
wok_status wok_quant_code_bias(wok_quant *q, wok_qlayer *layer);
/* static: DQ(Q(v)) */
wok_value wok_quant_write_pair(wok_qwriter *w, wok_value v);
/* static: nodes without weights; false: nothing to do with 8 bits */
bool wok_quant_write_plain(wok_qwriter *w, int node);

#endif

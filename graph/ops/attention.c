/* attention.c - wok.Attention on the fused kernels, ONNX's Attention (23 to 25) by its definition, and the forms of
 * com.microsoft's fused operators that canonicalize does not lower.
 *
 * wok.Attention: q [B, Sq, H*D], k [B, Sk, H*D], v [B, Sk, H*Dv], bias? (broadcasts to [B, H, Sq, Sk]); with
 * packed_qkv=1 q is [B, S, 3*H*D] and k, v are left out. y [B, Sq, H*Dv]. Attributes heads, scale. */
#include "ops.h"

#include <math.h>
#include <string.h>

enum { Q, K, V, BIAS };

/* ---- wok.Attention ----------------------------------------------------------------------------------------------- */

static bool differ(int64_t a, int64_t b) {
    return wok_dim_known(a) && wok_dim_known(b) && a != b;
}

/* The bias broadcasts to [B, H, Sq, Sk]. */
static bool bias_fits(const wok_type *bias, const int64_t *full) {
    if (!bias || bias->rank < 0) return true;
    if (bias->rank > 4) return false;
    for (int d = 0; d < bias->rank; d++)
        if (bias->dims[d] != 1 && differ(bias->dims[d], full[4 - bias->rank + d])) return false;
    return true;
}

wok_status wok_infer_wok_attention(wok_infer *infer) {
    bool packed = wok_ir_int(infer->node, "packed_qkv", 0);
    WOK_TRY(wok_infer_need(infer, packed ? 1 : 3));
    const wok_type *q = infer->in[Q], *k = packed ? q : infer->in[K], *v = packed ? q : infer->in[V];
    int64_t heads = wok_ir_int(infer->node, "heads", 0), parts = packed ? 3 : 1;
    infer->out[0].dtype = q->dtype;
    if (q->rank < 0 || k->rank < 0 || v->rank < 0) return WOK_OK;
    bool fits = q->rank == 3 && k->rank == 3 && v->rank == 3 && heads > 0 && !differ(q->dims[0], k->dims[0]) &&
                !differ(k->dims[0], v->dims[0]) && !differ(k->dims[1], v->dims[1]) && !differ(q->dims[2], k->dims[2]);
    fits = fits && (!wok_dim_known(q->dims[2]) || q->dims[2] % (parts * heads) == 0) &&
           (!wok_dim_known(v->dims[2]) || v->dims[2] % (parts * heads) == 0);
    if (!fits)
        return wok_infer_fail(infer, WOK_ERR_SHAPE, "query %s, key %s, value %s, %lld heads",
                              wok_type_text(infer->graph, q), wok_type_text(infer->graph, k),
                              wok_type_text(infer->graph, v), (long long)heads);
    if (!bias_fits(infer->in[BIAS], (int64_t[]){q->dims[0], heads, q->dims[1], k->dims[1]}))
        return wok_infer_fail(infer, WOK_ERR_SHAPE, "bias %s for query %s and key %s",
                              wok_type_text(infer->graph, infer->in[BIAS]), wok_type_text(infer->graph, q),
                              wok_type_text(infer->graph, k));
    int64_t width = packed ? wok_dim_div(infer->graph, v->dims[2], 3) : v->dims[2];
    wok_infer_out(infer, 0, q->dtype, 3, (int64_t[]){q->dims[0], q->dims[1], width});
    return WOK_OK;
}

typedef struct attention_state {
    const wok_attn_kernel *kernel;
    wok_attn_problem problem;
    float scale;
    bool packed;
} attention_state;

static const char *accept(const wok_prepare *prepare) {
    bool packed = wok_ir_int(prepare->node, "packed_qkv", 0);
    const wok_type *q = prepare->in[Q], *v = packed ? q : prepare->in[V];
    if (!wok_dim_known(q->dims[2]) || !wok_dim_known(v->dims[2]) || q->dims[2] < 1 || v->dims[2] < 1)
        return "the width of a head is not known";
    if (prepare->in[BIAS] && prepare->in[BIAS]->dtype != WOK_F32) return "the bias is not f32";
    return wok_accept_f32(prepare);
}

static wok_status prepare(wok_prepare *prepare) {
    attention_state *s = wok_prepare_alloc(prepare, sizeof *s);
    if (!s) return WOK_ERR_MEMORY;
    s->packed = wok_ir_int(prepare->node, "packed_qkv", 0);
    int64_t heads = wok_ir_int(prepare->node, "heads", 0), parts = s->packed ? 3 : 1;
    s->problem.heads = heads;
    s->problem.head_dim = prepare->in[Q]->dims[2] / (heads * parts);
    s->problem.value_dim = s->packed ? s->problem.head_dim : prepare->in[V]->dims[2] / heads;
    s->scale = wok_ir_float(prepare->node, "scale", (float)(1 / sqrt((double)s->problem.head_dim)));
    s->kernel = (const void *)wok_prepare_kernel(prepare, WOK_FAMILY_attn, &s->problem);
    if (!s->kernel) return WOK_ERR_UNSUPPORTED;
    prepare->state = s;
    prepare->kernel = &s->kernel->base;
    return WOK_OK;
}

static int64_t key_rows(const wok_call *call) {
    const attention_state *s = call->state;
    return call->in[s->packed ? Q : K]->dims[1];
}

static size_t sequence_bytes(const wok_call *call) {
    return wok_align_up((size_t)call->in[Q]->dims[0] * sizeof(wok_attn_sequence));
}

static size_t workspace(const wok_call *call) {
    const attention_state *s = call->state;
    return sequence_bytes(call) + s->kernel->workspace_bytes(&s->problem, call->in[Q]->dims[1], key_rows(call),
                                                             wok_parallel_threads(call->parallel));
}

static void set_bias(wok_attn_args *args, const wok_tensor *bias) {
    if (!bias) return;
    int64_t step[4] = {0, 0, 0, 0}, size = 1;
    for (int d = bias->rank - 1; d >= 0; d--) {
        step[4 - bias->rank + d] = bias->dims[d] == 1 ? 0 : size;
        size *= bias->dims[d];
    }
    args->bias = bias->data;
    args->bias_sequence_stride = step[0];
    args->bias_head_stride = step[1];
    args->bias_query_stride = step[2];
    args->bias_key_stride = step[3];
}

static void set_rows(wok_attn_args *args, const wok_call *call) {
    const attention_state *s = call->state;
    int64_t d = s->problem.head_dim, dv = s->problem.value_dim, width = s->problem.heads * d;
    args->q = call->in[Q]->data;
    args->k = s->packed ? args->q + width : call->in[K]->data;
    args->v = s->packed ? args->q + 2 * width : call->in[V]->data;
    args->y = call->out[0]->data;
    args->q_row_stride = args->k_row_stride = s->packed ? 3 * width : width;
    args->v_row_stride = s->packed ? 3 * width : s->problem.heads * dv;
    args->y_row_stride = s->problem.heads * dv;
    args->q_head_stride = args->k_head_stride = d;
    args->v_head_stride = args->y_head_stride = dv;
}

static wok_status run(wok_call *call) {
    const attention_state *s = call->state;
    int64_t batch = call->in[Q]->dims[0], rows = call->in[Q]->dims[1], keys = key_rows(call);
    wok_attn_sequence *sequences = call->workspace;
    for (int64_t b = 0; b < batch; b++) sequences[b] = (wok_attn_sequence){b * rows, rows, b * keys, keys};
    wok_attn_args args = {.sequences = sequences,
                          .sequence_count = batch,
                          .scale = s->scale,
                          .workspace = (char *)call->workspace + sequence_bytes(call)};
    set_rows(&args, call);
    set_bias(&args, call->in_count > BIAS ? call->in[BIAS] : NULL);
    if (batch > 0 && rows > 0) s->kernel->run(&s->problem, &args, call->parallel);
    return WOK_OK;
}

static int64_t macs(const wok_call *call) {
    const attention_state *s = call->state;
    return call->in[Q]->dims[0] * call->in[Q]->dims[1] * key_rows(call) * s->problem.heads *
           (s->problem.head_dim + s->problem.value_dim);
}

const wok_op_impl *const wok_impls_wok_attention[] = {
    &(const wok_op_impl){
        .name = "fused", .accept = accept, .prepare = prepare, .workspace = workspace, .run = run, .macs = macs},
    NULL,
};

/* ---- ONNX Attention ---------------------------------------------------------------------------------------------- */
/* q, k, v, mask?, past_key?, past_value?, nonpad_kv_seqlen? -> y, present_key?, present_value?, scores? */

enum { MASK = 3, PAST_KEY, PAST_VALUE, LENGTHS };

/* Sizes, and how to find an element: rank 3 is [B, S, H*D], rank 4 [B, H, S, D]. */
typedef struct shapes {
    int64_t batch, heads, kv_heads, rows, fresh, past, keys, width, value_width;
    bool flat;
} shapes;

static bool read_shapes(const wok_ir_node *node, const int64_t *q, const int64_t *k, const int64_t *v, int rank,
                        const int64_t *past, shapes *s) {
    s->flat = rank == 3;
    s->batch = q[0];
    s->heads = s->flat ? wok_ir_int(node, "q_num_heads", 0) : q[1];
    s->kv_heads = s->flat ? wok_ir_int(node, "kv_num_heads", 0) : k[1];
    if (s->heads < 1 || s->kv_heads < 1 || s->heads % s->kv_heads) return false;
    s->rows = q[s->flat ? 1 : 2];
    s->fresh = k[s->flat ? 1 : 2];
    s->past = past ? past[2] : 0;
    s->keys = s->past + s->fresh;
    s->width = s->flat ? q[2] / s->heads : q[3];
    s->value_width = s->flat ? v[2] / s->kv_heads : v[3];
    int64_t key_width = s->flat ? k[2] / s->kv_heads : k[3];
    return key_width == s->width && k[0] == q[0] && v[0] == q[0] && v[s->flat ? 1 : 2] == s->fresh &&
           (s->flat ? q[2] % s->heads == 0 && k[2] % s->kv_heads == 0 && v[2] % s->kv_heads == 0 : v[1] == s->kv_heads);
}

static bool all_known(const wok_type *t) {
    for (int d = 0; d < t->rank; d++)
        if (!wok_dim_known(t->dims[d])) return false;
    return t->rank >= 0;
}

static bool has_shape(const wok_type *t, int rank, const int64_t *dims) {
    if (!t || t->rank < 0) return true;
    for (int d = 0; d < rank && t->rank == rank; d++)
        if (differ(t->dims[d], dims[d])) return false;
    return t->rank == rank;
}

/* Past rows, mask (whose last dimension may be short) and lengths. */
static wok_status check_extras(wok_infer *infer, const shapes *s) {
    const wok_type *mask = infer->in[MASK];
    int64_t full[4] = {s->batch, s->heads, s->rows, s->keys};
    bool fits = has_shape(infer->in[PAST_KEY], 4, (int64_t[]){s->batch, s->kv_heads, s->past, s->width}) &&
                has_shape(infer->in[PAST_VALUE], 4, (int64_t[]){s->batch, s->kv_heads, s->past, s->value_width}) &&
                has_shape(infer->in[LENGTHS], 1, full);
    if (!fits)
        return wok_infer_fail(infer, WOK_ERR_SHAPE, "past keys, past values or lengths do not fit key and value");
    if (mask && mask->rank > 0 && wok_dim_known(mask->dims[mask->rank - 1]) && mask->dims[mask->rank - 1] < s->keys)
        full[3] = mask->dims[mask->rank - 1];
    if (!bias_fits(mask, full))
        return wok_infer_fail(infer, WOK_ERR_SHAPE, "mask %s for scores of [%lld,%lld,%lld,%lld]",
                              wok_type_text(infer->graph, mask), (long long)s->batch, (long long)s->heads,
                              (long long)s->rows, (long long)s->keys);
    return WOK_OK;
}

wok_status wok_infer_attention(wok_infer *infer) {
    WOK_TRY(wok_infer_need(infer, 3));
    const wok_type *q = infer->in[Q], *k = infer->in[K], *v = infer->in[V], *past = infer->in[PAST_KEY];
    shapes s;
    infer->out[0].dtype = q->dtype;
    for (int i = 1; i < infer->out_count; i++) infer->out[i].dtype = q->dtype;
    if (!all_known(q) || !all_known(k) || !all_known(v) || (past && !all_known(past))) return WOK_OK;
    if ((q->rank != 3 && q->rank != 4) || k->rank != q->rank || v->rank != q->rank || (past && past->rank != 4) ||
        !past != !infer->in[PAST_VALUE] ||
        !read_shapes(infer->node, q->dims, k->dims, v->dims, q->rank, past ? past->dims : NULL, &s))
        return wok_infer_fail(infer, WOK_ERR_SHAPE, "query %s, key %s, value %s", wok_type_text(infer->graph, q),
                              wok_type_text(infer->graph, k), wok_type_text(infer->graph, v));
    WOK_TRY(check_extras(infer, &s));
    int64_t flat[3] = {s.batch, s.rows, s.heads * s.value_width}, split[4] = {s.batch, s.heads, s.rows, s.value_width};
    wok_infer_out(infer, 0, q->dtype, q->rank, s.flat ? flat : split);
    wok_infer_out(infer, 1, k->dtype, 4, (int64_t[]){s.batch, s.kv_heads, s.keys, s.width});
    wok_infer_out(infer, 2, v->dtype, 4, (int64_t[]){s.batch, s.kv_heads, s.keys, s.value_width});
    wok_infer_out(infer, 3, q->dtype, 4, (int64_t[]){s.batch, s.heads, s.rows, s.keys});
    return WOK_OK;
}

/* Position of (b, head, row, 0) in a tensor of `rows` rows. */
static int64_t locate(bool flat, int64_t heads, int64_t rows, int64_t width, int64_t b, int64_t head, int64_t row) {
    return flat ? ((b * rows + row) * heads + head) * width : ((b * heads + head) * rows + row) * width;
}

/* Row `j` of keys or values, past first. */
static void load_row(const wok_call *call, const shapes *s, int input, int past, int64_t width, int64_t b, int64_t head,
                     int64_t j, double *out) {
    bool old = j < s->past;
    const wok_tensor *t = call->in[old ? past : input];
    int64_t at = old ? locate(false, s->kv_heads, s->past, width, b, head, j)
                     : locate(s->flat, s->kv_heads, s->fresh, width, b, head, j - s->past);
    wok_load_f64(t->dtype, t->data, at, 1, width, out);
}

/* What mask, causality, window and lengths add to score (b, h, i, j): 0, -inf, or the mask's number. */
static double score_bias(const wok_call *call, const shapes *s, int64_t b, int64_t h, int64_t i, int64_t j) {
    const wok_tensor *mask = call->in_count > MASK ? call->in[MASK] : NULL;
    const wok_tensor *lengths = call->in_count > LENGTHS ? call->in[LENGTHS] : NULL;
    int64_t left = wok_ir_int(call->node, "left_window_size", -1),
            right = wok_ir_int(call->node, "right_window_size", -1);
    int64_t length = lengths ? wok_get_i64(lengths->dtype, lengths->data, b) : s->keys;
    int64_t place = i + (s->past ? s->past : lengths ? length - s->rows : 0);
    bool hidden = j >= length || (wok_ir_int(call->node, "is_causal", 0) && j > place) ||
                  (left >= 0 && place - j > left) || (right >= 0 && j - place > right);
    if (hidden) return -(double)INFINITY;
    if (!mask) return 0;
    int64_t at = 0, size = 1, index[4] = {b, h, i, j};
    for (int d = mask->rank - 1; d >= 0; d--) {
        int64_t k = index[4 - mask->rank + d];
        if (d == mask->rank - 1 && k >= mask->dims[d] && mask->dims[d] != 1)
            return -(double)INFINITY; /* a short mask */
        if (mask->dims[d] != 1) at += k * size;
        size *= mask->dims[d];
    }
    if (mask->dtype == WOK_BOOL) return ((const uint8_t *)mask->data)[at] ? 0 : -(double)INFINITY;
    return wok_get_f64(mask->dtype, mask->data, at);
}

/* Doubles of one row: query, key or value, sum, scores, biases. */
static size_t onnx_workspace(const wok_call *call) {
    shapes s;
    const wok_tensor *past = call->in_count > PAST_KEY ? call->in[PAST_KEY] : NULL;
    if (!read_shapes(call->node, call->in[Q]->dims, call->in[K]->dims, call->in[V]->dims, call->in[Q]->rank,
                     past ? past->dims : NULL, &s))
        return 0;
    int64_t widest = s.width > s.value_width ? s.width : s.value_width;
    return (size_t)(3 * widest + 2 * s.keys) * sizeof(double);
}

typedef struct row_buffers {
    double *query, *line, *sum, *score, *bias;
} row_buffers;

static void store_scores(const wok_call *call, const shapes *s, int64_t row, const double *score) {
    const wok_tensor *out = call->out_count > 3 ? call->out[3] : NULL;
    if (out) wok_store_f64(out->dtype, out->data, row * s->keys, s->keys, score);
}

static void softmax(double *score, const double *bias, int64_t n) {
    double max = -(double)INFINITY, sum = 0;
    bool all_hidden = true;
    for (int64_t j = 0; j < n; j++) {
        all_hidden = all_hidden && bias[j] == -(double)INFINITY;
        if (score[j] > max || isnan(score[j])) max = score[j];
    }
    for (int64_t j = 0; j < n; j++) {
        score[j] = all_hidden ? 0 : exp(score[j] - max);
        sum += score[j];
    }
    for (int64_t j = 0; j < n && !all_hidden; j++) score[j] /= sum;
}

static void attend(const wok_call *call, const shapes *s, int64_t b, int64_t h, int64_t i, const row_buffers *r) {
    const wok_tensor *q = call->in[Q], *y = call->out[0];
    int64_t head = h / (s->heads / s->kv_heads), row = (b * s->heads + h) * s->rows + i, mode;
    double scale = (double)wok_ir_float(call->node, "scale", 0), cap = (double)wok_ir_float(call->node, "softcap", 0);
    if (scale == 0) scale = 1 / sqrt((double)s->width);
    mode = wok_ir_int(call->node, "qk_matmul_output_mode", 0);
    wok_load_f64(q->dtype, q->data, locate(s->flat, s->heads, s->rows, s->width, b, h, i), 1, s->width, r->query);
    for (int64_t j = 0; j < s->keys; j++) {
        load_row(call, s, K, PAST_KEY, s->width, b, head, j, r->line);
        double sum = 0;
        for (int64_t d = 0; d < s->width; d++) sum += r->query[d] * r->line[d];
        r->score[j] = sum * scale;
        r->bias[j] = score_bias(call, s, b, h, i, j);
    }
    if (mode == 0) store_scores(call, s, row, r->score);
    for (int64_t j = 0; j < s->keys && cap > 0; j++) r->score[j] = cap * tanh(r->score[j] / cap);
    if (mode == 1) store_scores(call, s, row, r->score);
    for (int64_t j = 0; j < s->keys; j++) r->score[j] += r->bias[j];
    if (mode == 2) store_scores(call, s, row, r->score);
    softmax(r->score, r->bias, s->keys);
    if (mode == 3) store_scores(call, s, row, r->score);
    memset(r->sum, 0, (size_t)s->value_width * sizeof(double));
    for (int64_t j = 0; j < s->keys; j++) {
        if (r->score[j] == 0) continue;
        load_row(call, s, V, PAST_VALUE, s->value_width, b, head, j, r->line);
        for (int64_t d = 0; d < s->value_width; d++) r->sum[d] += r->score[j] * r->line[d];
    }
    wok_store_f64(y->dtype, y->data, locate(s->flat, s->heads, s->rows, s->value_width, b, h, i), s->value_width,
                  r->sum);
}

/* present = past and fresh rows, [B, H, S, D] */
static void store_present(const wok_call *call, const shapes *s, int input, int past, int output, int64_t width,
                          double *line) {
    const wok_tensor *out = call->out_count > output ? call->out[output] : NULL;
    for (int64_t r = 0; out && r < s->batch * s->kv_heads * s->keys; r++) {
        int64_t j = r % s->keys, head = r / s->keys % s->kv_heads, b = r / s->keys / s->kv_heads;
        load_row(call, s, input, past, width, b, head, j, line);
        wok_store_f64(out->dtype, out->data, r * width, width, line);
    }
}

static wok_status onnx_run(wok_call *call) {
    shapes s;
    const wok_tensor *past = call->in_count > PAST_KEY ? call->in[PAST_KEY] : NULL, *q = call->in[Q];
    if (!read_shapes(call->node, q->dims, call->in[K]->dims, call->in[V]->dims, q->rank, past ? past->dims : NULL, &s))
        return wok_call_fail(call, WOK_ERR_SHAPE, "query, key and value do not fit each other");
    int64_t widest = s.width > s.value_width ? s.width : s.value_width;
    double *work = call->workspace;
    row_buffers r = {work, work + widest, work + 2 * widest, work + 3 * widest, work + 3 * widest + s.keys};
    store_present(call, &s, K, PAST_KEY, 1, s.width, r.line);
    store_present(call, &s, V, PAST_VALUE, 2, s.value_width, r.line);
    for (int64_t b = 0; b < s.batch; b++)
        for (int64_t h = 0; h < s.heads; h++)
            for (int64_t i = 0; i < s.rows; i++) attend(call, &s, b, h, i, &r);
    return WOK_OK;
}

static const char *onnx_accept(const wok_prepare *prepare_) {
    return wok_dtype_is_float(prepare_->in[Q]->dtype) ? NULL : "takes floating point only";
}

const wok_op_impl *const wok_impls_attention[] = {
    &(const wok_op_impl){.name = "ref", .accept = onnx_accept, .workspace = onnx_workspace, .run = onnx_run},
    NULL,
};

/* ---- com.microsoft ----------------------------------------------------------------------------------------------- */
/* canonicalize turns these into plain operators; what is left of them here is not supported, and says so. */

wok_status wok_infer_ms_attention(wok_infer *infer) {
    WOK_TRY(wok_infer_need(infer, 2));
    const wok_type *x = infer->in[0], *w = infer->in[1];
    infer->out[0].dtype = x->dtype;
    if (x->rank == 3 && w->rank == 2)
        wok_infer_out(infer, 0, x->dtype, 3,
                      (int64_t[]){x->dims[0], x->dims[1], wok_dim_div(infer->graph, w->dims[1], 3)});
    return WOK_OK;
}

wok_status wok_infer_ms_skip_layer_norm(wok_infer *infer) {
    WOK_TRY(wok_infer_need(infer, 3));
    const wok_type *x = infer->in[0];
    for (int i = 0; i < infer->out_count; i++) infer->out[i].dtype = x->dtype;
    wok_infer_out(infer, 0, x->dtype, x->rank, x->dims);
    wok_infer_out(infer, 3, x->dtype, x->rank, x->dims);
    return WOK_OK;
}

wok_status wok_infer_ms_embed_layer_norm(wok_infer *infer) {
    WOK_TRY(wok_infer_need(infer, 4));
    const wok_type *ids = infer->in[0], *words = infer->in[2];
    infer->out[0].dtype = words ? words->dtype : WOK_F32;
    if (infer->out_count > 1) infer->out[1].dtype = WOK_I32;
    if (!words || ids->rank != 2 || words->rank != 2) return WOK_OK;
    int64_t dims[3] = {ids->dims[0], ids->dims[1], words->dims[1]};
    wok_infer_out(infer, 0, words->dtype, 3, dims);
    wok_infer_out(infer, 1, WOK_I32, 1, dims);
    wok_infer_out(infer, 2, words->dtype, 3, dims);
    return WOK_OK;
}

wok_status wok_infer_ms_bias_gelu(wok_infer *infer) {
    WOK_TRY(wok_infer_need(infer, 2));
    wok_infer_out(infer, 0, infer->in[0]->dtype, infer->in[0]->rank, infer->in[0]->dims);
    return WOK_OK;
}

static const char *not_lowered(const wok_prepare *prepare_) {
    switch (prepare_->node->op) {
    case WOK_OP_ms_Attention:
    case WOK_OP_ms_QAttention:
        return "only constant weights and no past, relative position bias, rotation or one direction are supported";
    case WOK_OP_ms_SkipLayerNormalization:
        return "mean and deviation as outputs are not supported";
    case WOK_OP_ms_EmbedLayerNormalization:
        return "a mask index without a mask is not supported";
    case WOK_OP_ms_QLinearConcat:
    case WOK_OP_ms_DynamicQuantizeMatMul:
    case WOK_OP_ms_MatMulIntegerToFloat:
        return "scales of this shape are not supported";
    default:
        return "the canonicalize pass was left out";
    }
}

const wok_op_impl *const wok_impls_ms_lowered[] = {
    &(const wok_op_impl){.name = "none", .accept = not_lowered},
    NULL,
};

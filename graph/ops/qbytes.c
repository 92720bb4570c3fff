/* qbytes.c - what stands between integer products, on bytes: wok.QuantizeDynamic (activations to bytes with scales found at
 * run time; attribute rows: so many leading dimensions count the parts that have a scale of their own, 0 is one for all),
 * wok.QTable (any function of one quantised value), wok.QAdd and wok.QMul (two quantised values with NumPy's
 * broadcasting), wok.QSignFlip (u8 to s8 and back: the same values with 128 taken off codes and zero point). The rewrites
 * lower_quantized and fuse_requantize make them. */
#include "ops.h"

#include <string.h>

typedef struct bytes_state {
    const wok_eltwise_s8_kernel *kernel;
    wok_eltwise_s8_problem problem;
} bytes_state;

/* A state whose first member is a bytes_state with its kernel chosen; NULL on failure. */
static void *prepare_bytes(wok_prepare *prepare, wok_eltwise_s8_op op, size_t size) {
    bytes_state *s = wok_prepare_alloc(prepare, size);
    if (!s) return NULL;
    s->problem.op = op;
    s->kernel = (const void *)wok_prepare_kernel(prepare, WOK_FAMILY_eltwise_s8, &s->problem);
    if (!s->kernel) return NULL;
    prepare->kernel = &s->kernel->base;
    prepare->state = s;
    return s;
}

/* ---- QuantizeLinear, DequantizeLinear: s8, one scale ---------------------------------------------------------------- */

static const char *accept_one_scale(const wok_prepare *prepare) {
    const wok_type *scale = prepare->in[1], *zero = prepare->in[2];
    if (scale->dtype != WOK_F32 || scale->rank < 0 || wok_count(scale->dims, scale->rank) != 1)
        return "not one f32 scale";
    if (zero && (zero->rank < 0 || wok_count(zero->dims, zero->rank) != 1)) return "not one zero point";
    return NULL;
}

const char *wok_quantize_accept_s8(const wok_prepare *prepare) {
    if (prepare->in[0]->dtype != WOK_F32 || prepare->out[0]->dtype != WOK_I8) return "not f32 to s8";
    return accept_one_scale(prepare);
}

const char *wok_dequantize_accept_s8(const wok_prepare *prepare) {
    if (prepare->in[0]->dtype != WOK_I8 || prepare->out[0]->dtype != WOK_F32) return "not s8 to f32";
    return accept_one_scale(prepare);
}

wok_status wok_quantize_prepare_s8(wok_prepare *prepare) {
    bool to_bytes = prepare->out[0]->dtype == WOK_I8;
    return prepare_bytes(prepare, to_bytes ? WOK_ELT_S8_QUANTIZE : WOK_ELT_S8_DEQUANTIZE, sizeof(bytes_state))
               ? WOK_OK
               : WOK_ERR_MEMORY;
}

wok_status wok_quantize_run_s8(wok_call *call) {
    const bytes_state *s = call->state;
    const wok_tensor *zero = call->in_count > 2 ? call->in[2] : NULL;
    float scale = *(const float *)call->in[1]->data;
    int32_t z = zero ? *(const int8_t *)zero->data : 0;
    wok_eltwise_s8_args a = {.rows = 1,
                             .cols = wok_tensor_count(call->in[0]),
                             .a = call->in[0]->data,
                             .a_step = 1,
                             .y = call->out[0]->data,
                             .a_scale = scale,
                             .a_zero = z,
                             .y_scale = scale,
                             .y_zero = z};
    s->kernel->run(&s->problem, &a, call->parallel);
    return WOK_OK;
}

/* ---- wok.QuantizeDynamic ---------------------------------------------------------------------------------------------- */

wok_status wok_infer_wok_quantize_dynamic(wok_infer *infer) {
    WOK_TRY(wok_infer_need(infer, 1));
    const wok_type *x = infer->in[0];
    wok_infer_out(infer, 0, WOK_I8, x->rank, x->dims);
    int64_t leading = wok_ir_int(infer->node, "rows", 0);
    infer->out[1].dtype = WOK_F32, infer->out[2].dtype = WOK_I32;
    if (x->rank < leading) return WOK_OK;
    int64_t rows = wok_infer_product(infer, x->dims, 0, (int)leading);
    wok_infer_out(infer, 1, WOK_F32, 1, &rows);
    wok_infer_out(infer, 2, WOK_I32, 1, &rows);
    return WOK_OK;
}

static wok_status dynamic_prepare(wok_prepare *prepare) {
    return prepare_bytes(prepare, WOK_ELT_S8_QUANTIZE_ROWS, sizeof(bytes_state)) ? WOK_OK : WOK_ERR_MEMORY;
}

static wok_status dynamic_run(wok_call *call) {
    const bytes_state *s = call->state;
    int64_t count = wok_tensor_count(call->in[0]), rows = wok_tensor_count(call->out[1]);
    wok_eltwise_s8_args a = {.rows = rows,
                             .cols = rows > 0 ? count / rows : 0,
                             .a = call->in[0]->data,
                             .a_step = 1,
                             .y = call->out[0]->data,
                             .row_scale = call->out[1]->data,
                             .row_zero = call->out[2]->data};
    if (rows > 0) s->kernel->run(&s->problem, &a, call->parallel);
    return WOK_OK;
}

const wok_op_impl *const wok_impls_wok_quantize_dynamic[] = {
    &(const wok_op_impl){.name = "bytes", .accept = wok_accept_f32, .prepare = dynamic_prepare, .run = dynamic_run},
    NULL,
};

/* ---- wok.QTable: x s8, table s8 [256] ----------------------------------------------------------------------------------- */

static const char *table_accept(const wok_prepare *prepare) {
    const wok_type *table = prepare->in[1];
    if (!table || !table->data || table->dtype != WOK_I8 || table->bytes != 256)
        return "not a constant table of 256 bytes";
    return wok_accept_bytes(prepare);
}

static wok_status table_prepare(wok_prepare *prepare) {
    return prepare_bytes(prepare, WOK_ELT_S8_TABLE, sizeof(bytes_state)) ? WOK_OK : WOK_ERR_MEMORY;
}

static wok_status table_run(wok_call *call) {
    const bytes_state *s = call->state;
    wok_eltwise_s8_args a = {.rows = 1,
                             .cols = wok_tensor_count(call->in[0]),
                             .a = call->in[0]->data,
                             .a_step = 1,
                             .y = call->out[0]->data,
                             .table = call->in[1]->data};
    s->kernel->run(&s->problem, &a, call->parallel);
    return WOK_OK;
}

const wok_op_impl *const wok_impls_wok_qtable[] = {
    &(const wok_op_impl){
        .name = "bytes", .inplace = 1u, .accept = table_accept, .prepare = table_prepare, .run = table_run},
    NULL,
};

/* ---- wok.QAdd, wok.QMul: a, b s8 ------------------------------------------------------------------------------------------ */

wok_status wok_infer_wok_qbinary(wok_infer *infer) {
    WOK_TRY(wok_infer_need(infer, 2));
    int64_t dims[WOK_MAX_RANK];
    int rank = 0;
    for (int i = 0; i < 2; i++) WOK_TRY(wok_infer_broadcast(infer, dims, &rank, infer->in[i]));
    wok_infer_out(infer, 0, WOK_I8, rank, dims);
    return WOK_OK;
}

typedef struct binary_state {
    bytes_state bytes;
    wok_eltwise_s8_args args;
} binary_state;

static const char *binary_accept(const wok_prepare *prepare) {
    return prepare->in[1]->dtype == WOK_I8 ? wok_accept_bytes(prepare) : "the second operand is not s8";
}

static wok_status binary_prepare(wok_prepare *prepare) {
    const wok_ir_node *node = prepare->node;
    bool add = node->op == WOK_OP_wok_QAdd;
    binary_state *s = prepare_bytes(prepare, add ? WOK_ELT_S8_ADD : WOK_ELT_S8_MUL, sizeof *s);
    if (!s) return WOK_ERR_MEMORY;
    s->args = (wok_eltwise_s8_args){.rows = 1,
                                    .a_scale = wok_ir_float(node, "a_scale", 1),
                                    .b_scale = wok_ir_float(node, "b_scale", 1),
                                    .y_scale = wok_ir_float(node, "y_scale", 1),
                                    .a_zero = (int32_t)wok_ir_int(node, "a_zero", 0),
                                    .b_zero = (int32_t)wok_ir_int(node, "b_zero", 0),
                                    .y_zero = (int32_t)wok_ir_int(node, "y_zero", 0),
                                    .lo = (int32_t)wok_ir_int(node, "y_lo", -128),
                                    .hi = (int32_t)wok_ir_int(node, "y_hi", 127)};
    return WOK_OK;
}

static void binary_piece(void *arg, const wok_walk *walk, const int64_t *offset, int64_t y, int64_t n) {
    const wok_call *call = arg;
    const binary_state *s = call->state;
    wok_eltwise_s8_args a = s->args;
    a.cols = n;
    a.a = (const int8_t *)call->in[0]->data + offset[0];
    a.b = (const int8_t *)call->in[1]->data + offset[1];
    a.a_step = walk->step[0][walk->rank - 1];
    a.b_step = walk->step[1][walk->rank - 1];
    a.y = (int8_t *)call->out[0]->data + y;
    s->bytes.kernel->run(&s->bytes.problem, &a, NULL);
}

static wok_status binary_run(wok_call *call) {
    wok_walk walk;
    wok_walk_init(&walk, call->out[0]->dims, call->out[0]->rank, call->in, 2);
    wok_walk_run(&walk, binary_piece, call, call->parallel);
    return WOK_OK;
}

const wok_op_impl *const wok_impls_wok_qbinary[] = {
    &(const wok_op_impl){
        .name = "bytes", .inplace = 3u, .accept = binary_accept, .prepare = binary_prepare, .run = binary_run},
    NULL,
};

/* ---- wok.QSignFlip ---------------------------------------------------------------------------------------------------------- */

wok_status wok_infer_wok_qsign_flip(wok_infer *infer) {
    WOK_TRY(wok_infer_need(infer, 1));
    WOK_TRY(wok_infer_codes(infer, 0));
    wok_infer_out(infer, 0, infer->in[0]->dtype == WOK_U8 ? WOK_I8 : WOK_U8, infer->in[0]->rank, infer->in[0]->dims);
    return WOK_OK;
}

static wok_status flip_run(wok_call *call) {
    const uint8_t *x = call->in[0]->data;
    uint8_t *y = call->out[0]->data;
    size_t n = call->out[0]->bytes;
    for (size_t i = 0; i < n; i++) y[i] = x[i] ^ 0x80;
    return WOK_OK;
}

const wok_op_impl *const wok_impls_wok_qsign_flip[] = {
    &(const wok_op_impl){.name = "bytes", .inplace = 1u, .accept = wok_accept_number, .run = flip_run},
    NULL,
};

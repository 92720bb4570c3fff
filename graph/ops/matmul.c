/* matmul.c - MatMul, FusedMatMul and Gemm as ONNX defines them: any ranks, types and operands. The packed form that the
 * rewrites make, wok.Gemm, is in gemm.c. */
#include "ops.h"

#include <string.h>

/* ---- inference --------------------------------------------------------------------------------------------------- */

static wok_status check_types(wok_infer *infer) {
    const wok_type *a = infer->in[0], *b = infer->in[1];
    if (a->dtype && b->dtype && a->dtype != b->dtype)
        return wok_infer_fail(infer, WOK_ERR_SHAPE, "%s times %s", wok_dtype_name(a->dtype), wok_dtype_name(b->dtype));
    return WOK_OK;
}

wok_status wok_product_infer(wok_infer *infer, const wok_type *a, const wok_type *b, bool trans_a, bool trans_b) {
    infer->out[0].dtype = a->dtype;
    if (a->rank < 0 || b->rank < 0) return WOK_OK;
    if (a->rank == 0 || b->rank == 0) return wok_infer_fail(infer, WOK_ERR_SHAPE, "a scalar is not a matrix");
    trans_a = trans_a && a->rank > 1;
    trans_b = trans_b && b->rank > 1;
    int64_t ka = a->dims[a->rank - (trans_a ? 2 : 1)];
    int64_t kb = b->rank == 1 ? b->dims[0] : b->dims[b->rank - (trans_b ? 1 : 2)];
    if (wok_dim_known(ka) && wok_dim_known(kb) && ka != kb)
        return wok_infer_fail(infer, WOK_ERR_SHAPE, "%s times %s: the inner sizes differ",
                              wok_type_text(infer->graph, a), wok_type_text(infer->graph, b));
    wok_type batch_a = *a, batch_b = *b;
    batch_a.rank = a->rank > 2 ? a->rank - 2 : 0;
    batch_b.rank = b->rank > 2 ? b->rank - 2 : 0;
    int64_t dims[WOK_MAX_RANK];
    int rank = 0;
    WOK_TRY(wok_infer_broadcast(infer, dims, &rank, &batch_a));
    WOK_TRY(wok_infer_broadcast(infer, dims, &rank, &batch_b));
    if (a->rank > 1) dims[rank++] = a->dims[a->rank - (trans_a ? 1 : 2)];
    if (b->rank > 1) dims[rank++] = b->dims[b->rank - (trans_b ? 2 : 1)];
    wok_infer_out(infer, 0, a->dtype, rank, dims);
    return WOK_OK;
}

wok_status wok_infer_matmul(wok_infer *infer) {
    WOK_TRY(wok_infer_need(infer, 2));
    WOK_TRY(check_types(infer));
    const wok_ir_node *node = infer->node;
    if (wok_ir_int(node, "transBatchA", 0) || wok_ir_int(node, "transBatchB", 0))
        return wok_infer_fail(infer, WOK_ERR_UNSUPPORTED, "transBatchA and transBatchB");
    bool fused = node->op == WOK_OP_ms_FusedMatMul;
    return wok_product_infer(infer, infer->in[0], infer->in[1], fused && wok_ir_int(node, "transA", 0),
                             fused && wok_ir_int(node, "transB", 0));
}

wok_status wok_infer_gemm(wok_infer *infer) {
    WOK_TRY(wok_infer_need(infer, 2));
    WOK_TRY(check_types(infer));
    const wok_type *a = infer->in[0], *b = infer->in[1], *c = infer->in[2];
    if ((a->rank >= 0 && a->rank != 2) || (b->rank >= 0 && b->rank != 2))
        return wok_infer_fail(infer, WOK_ERR_SHAPE, "operands %s and %s are not matrices",
                              wok_type_text(infer->graph, a), wok_type_text(infer->graph, b));
    WOK_TRY(wok_product_infer(infer, a, b, wok_ir_int(infer->node, "transA", 0), wok_ir_int(infer->node, "transB", 0)));
    wok_type y = infer->out[0];
    if (!c || c->rank < 0 || y.rank < 0) return WOK_OK;
    for (int d = 0; d < c->rank; d++) {
        int64_t want = d - c->rank + 2 >= 0 ? y.dims[d - c->rank + 2] : 1;
        if (wok_dim_known(c->dims[d]) && wok_dim_known(want) && c->dims[d] != 1 && c->dims[d] != want)
            return wok_infer_fail(infer, WOK_ERR_SHAPE, "C %s does not broadcast to %s", wok_type_text(infer->graph, c),
                                  wok_type_text(infer->graph, &y));
    }
    return WOK_OK;
}

/* ---- one view of all products ------------------------------------------------------------------------------------ */

static void swap(int64_t *a, int64_t *b) {
    int64_t t = *a;
    *a = *b;
    *b = t;
}

/* Matrices between matrices: dims of the batch in front of the last two. */
static void batch_steps(const wok_tensor *t, int rank, int64_t *step) {
    int64_t size = 1;
    for (int d = rank - 1, k = t->rank - 3; d >= 0; d--, k--) {
        int64_t dim = k >= 0 ? t->dims[k] : 1;
        step[d] = dim == 1 ? 0 : size;
        size *= dim;
    }
}

wok_product wok_product_view(const wok_tensor *a, const wok_tensor *b, const wok_tensor *y, bool trans_a,
                             bool trans_b) {
    wok_product p = {.m = a->rank > 1 ? a->dims[a->rank - 2] : 1,
                     .k = a->dims[a->rank - 1],
                     .n = b->rank > 1 ? b->dims[b->rank - 1] : 1,
                     .a_k = 1,
                     .b_n = 1};
    p.a_m = p.k;
    p.b_k = p.n;
    if (trans_a && a->rank > 1) swap(&p.m, &p.k), swap(&p.a_m, &p.a_k);
    if (trans_b && b->rank > 1) {
        p.n = b->dims[b->rank - 2];
        swap(&p.b_k, &p.b_n);
    }
    int rank = y->rank - (a->rank > 1) - (b->rank > 1);
    int64_t step_a[WOK_MAX_RANK], step_b[WOK_MAX_RANK];
    batch_steps(a, rank, step_a);
    batch_steps(b, rank, step_b);
    wok_walk_steps(&p.walk, y->dims, rank, (const int64_t *const[]){step_a, step_b}, 2);
    p.batches = p.walk.rows * p.walk.n;
    return p;
}

static wok_product view(const wok_call *call) {
    bool plain = call->node->op == WOK_OP_MatMul;
    return wok_product_view(call->in[0], call->in[1], call->out[0], !plain && wok_ir_int(call->node, "transA", 0),
                            !plain && wok_ir_int(call->node, "transB", 0));
}

void wok_product_locate(const wok_product *p, int64_t i, int64_t *a, int64_t *b) {
    *a = *b = 0;
    for (int d = p->walk.rank - 1; d >= 0; d--) {
        int64_t at = i % p->walk.dims[d];
        i /= p->walk.dims[d];
        *a += at * p->walk.step[0][d];
        *b += at * p->walk.step[1][d];
    }
    *a *= p->m * p->k;
    *b *= p->k * p->n;
}

/* One matrix b for all rows of all batches: one tall product. */
static void make_tall(wok_product *p) {
    if (p->a_k != 1) return;
    for (int d = 0; d < p->walk.rank; d++)
        if (p->walk.step[1][d] != 0 && p->batches > 1) return;
    int64_t size = 1;
    for (int d = p->walk.rank - 1; d >= 0; d--) {
        if (p->walk.dims[d] > 1 && p->walk.step[0][d] != size) return;
        size *= p->walk.dims[d];
    }
    p->m *= p->batches;
    p->batches = 1;
}

/* ---- f32 on the gemm kernels ------------------------------------------------------------------------------------- */

typedef struct f32_state {
    wok_isa_set isa;
    const wok_gemm_f32_kernel *kernel; /* NULL: n and k are known when the shapes are */
    wok_gemm_f32_problem problem;
    void *packed; /* NULL: b is not constant */
} f32_state;

static const wok_gemm_f32_kernel *kernel_for(const f32_state *state, const wok_gemm_f32_problem *problem) {
    return state->kernel ? state->kernel : wok_gemm_f32_select(state->isa, problem, NULL, NULL);
}

/* n and k of b as the node uses it; false while they are symbols. */
static bool static_problem(const wok_prepare *prepare, wok_gemm_f32_problem *problem) {
    const wok_type *b = prepare->in[1];
    if (b->rank < 1) return false;
    int64_t k = b->rank > 1 ? b->dims[b->rank - 2] : b->dims[0], n = b->rank > 1 ? b->dims[b->rank - 1] : 1;
    if (prepare->node->op != WOK_OP_MatMul && b->rank > 1 && wok_ir_int(prepare->node, "transB", 0)) swap(&n, &k);
    *problem = (wok_gemm_f32_problem){.n = n, .k = k};
    return wok_dim_known(n) && wok_dim_known(k) && n > 0;
}

static wok_status pack_constant(wok_prepare *prepare, f32_state *state) {
    const float *b = wok_prepare_f32(prepare, 1);
    if (!b) return WOK_ERR_MEMORY;
    bool trans = prepare->node->op != WOK_OP_MatMul && wok_ir_int(prepare->node, "transB", 0);
    state->packed = wok_prepare_alloc(prepare, state->kernel->packed_bytes(&state->problem));
    if (!state->packed) return WOK_ERR_MEMORY;
    state->kernel->pack(&state->problem, b, trans ? 1 : state->problem.n, trans ? state->problem.k : 1, state->packed,
                        NULL);
    prepare->consumed |= 2;
    return WOK_OK;
}

static wok_status f32_prepare(wok_prepare *prepare) {
    f32_state *state = wok_prepare_alloc(prepare, sizeof *state);
    if (!state) return WOK_ERR_MEMORY;
    state->isa = prepare->isa;
    bool known = static_problem(prepare, &state->problem);
    wok_gemm_f32_problem any = {.n = 1, .k = 1};
    const wok_gemm_f32_kernel *kernel =
        (const void *)wok_prepare_kernel(prepare, WOK_FAMILY_gemm_f32, known ? &state->problem : &any);
    if (!kernel) return WOK_ERR_UNSUPPORTED;
    if (known) state->kernel = kernel;
    prepare->kernel = &kernel->base;
    prepare->state = state;
    const wok_type *b = prepare->in[1];
    return known && b->data && b->rank == 2 ? pack_constant(prepare, state) : WOK_OK;
}

/* Of one worker: b packed, and a turned where it is transposed. */
static size_t scratch_bytes(const f32_state *state, const wok_product *p) {
    wok_gemm_f32_problem problem = {.n = p->n, .k = p->k};
    if (p->n < 1 || p->m < 1) return 0;
    const wok_gemm_f32_kernel *kernel = kernel_for(state, &problem);
    size_t bytes = state->packed || !kernel ? 0 : wok_align_up(kernel->packed_bytes(&problem));
    return bytes + (p->a_k == 1 ? 0 : wok_align_up((size_t)(p->m * p->k) * sizeof(float)));
}

static bool by_batch(const wok_product *p, const wok_parallel *parallel) {
    return p->batches >= 2 * (int64_t)wok_parallel_threads(parallel);
}

static wok_product f32_product(const wok_call *call) {
    wok_product p = view(call);
    make_tall(&p);
    return p;
}

static size_t f32_workspace(const wok_call *call) {
    wok_product p = f32_product(call);
    return scratch_bytes(call->state, &p) *
           (size_t)(by_batch(&p, call->parallel) ? wok_parallel_threads(call->parallel) : 1);
}

typedef struct f32_job {
    const wok_call *call;
    const wok_product *p;
    const wok_gemm_f32_kernel *kernel;
    wok_epilogue_f32 epilogue;
    size_t scratch;
    const wok_parallel *parallel; /* inside one product */
} f32_job;

static void f32_batch(void *arg, int64_t i, int worker) {
    const f32_job *job = arg;
    const wok_product *p = job->p;
    const f32_state *state = job->call->state;
    char *scratch = (char *)job->call->workspace + (size_t)worker * job->scratch;
    wok_gemm_f32_problem problem = {.n = p->n, .k = p->k};
    int64_t at_a, at_b;
    wok_product_locate(p, i, &at_a, &at_b);
    const float *a = (const float *)job->call->in[0]->data + at_a;
    const void *packed = state->packed;
    if (!packed) {
        job->kernel->pack(&problem, (const float *)job->call->in[1]->data + at_b, p->b_k, p->b_n, scratch,
                          job->parallel);
        packed = scratch;
        scratch += wok_align_up(job->kernel->packed_bytes(&problem));
    }
    if (p->a_k != 1) {
        wok_copy_strided(scratch, a, (int64_t[]){p->m, p->k}, (int64_t[]){p->a_m, p->a_k}, 2, sizeof(float),
                         job->parallel);
        a = (const float *)(const void *)scratch;
    }
    wok_gemm_f32_args args = {.m = p->m,
                              .n = p->n,
                              .k = p->k,
                              .a = a,
                              .lda = p->k,
                              .packed = packed,
                              .c = (float *)job->call->out[0]->data + i * p->m * p->n,
                              .ldc = p->n,
                              .epilogue = job->epilogue};
    job->kernel->run(&args, job->parallel);
}

static wok_status f32_products(wok_call *call, const wok_epilogue_f32 *epilogue) {
    wok_product p = f32_product(call);
    if (p.m < 1 || p.n < 1 || p.batches < 1) return WOK_OK;
    wok_gemm_f32_problem problem = {.n = p.n, .k = p.k};
    f32_job job = {.call = call,
                   .p = &p,
                   .kernel = kernel_for(call->state, &problem),
                   .epilogue = *epilogue,
                   .scratch = scratch_bytes(call->state, &p)};
    if (!job.kernel)
        return wok_call_fail(call, WOK_ERR_UNSUPPORTED, "no kernel for n %lld, k %lld", (long long)p.n, (long long)p.k);
    if (by_batch(&p, call->parallel)) {
        wok_parallel_for(call->parallel, f32_batch, &job, p.batches);
        return WOK_OK;
    }
    job.parallel = call->parallel;
    for (int64_t i = 0; i < p.batches; i++) f32_batch(&job, i, 0);
    return WOK_OK;
}

static wok_status matmul_run_f32(wok_call *call) {
    wok_epilogue_f32 none = {0};
    float alpha = call->node->op == WOK_OP_MatMul ? 1 : wok_ir_float(call->node, "alpha", 1);
    WOK_TRY(f32_products(call, &none));
    float *y = call->out[0]->data;
    for (int64_t i = 0, n = alpha == 1 ? 0 : wok_tensor_count(call->out[0]); i < n; i++) y[i] *= alpha;
    return WOK_OK;
}

static int64_t product_macs(const wok_call *call) {
    wok_product p = view(call);
    return p.batches * p.m * p.n * p.k;
}

/* ---- reference: any type ----------------------------------------------------------------------------------------- */

enum { CHUNK = 256 };

static double dot_real(const wok_call *call, const wok_product *p, int64_t a, int64_t b) {
    double sum = 0, x[CHUNK], w[CHUNK];
    for (int64_t k = 0; k < p->k; k += CHUNK) {
        int64_t count = p->k - k < CHUNK ? p->k - k : CHUNK;
        wok_load_f64(call->in[0]->dtype, call->in[0]->data, a + k * p->a_k, p->a_k, count, x);
        wok_load_f64(call->in[1]->dtype, call->in[1]->data, b + k * p->b_k, p->b_k, count, w);
        for (int64_t i = 0; i < count; i++) sum += x[i] * w[i];
    }
    return sum;
}

static int64_t dot_int(const wok_call *call, const wok_product *p, int64_t a, int64_t b) {
    uint64_t sum = 0;
    int64_t x[CHUNK], w[CHUNK];
    for (int64_t k = 0; k < p->k; k += CHUNK) {
        int64_t count = p->k - k < CHUNK ? p->k - k : CHUNK;
        wok_load_i64(call->in[0]->dtype, call->in[0]->data, a + k * p->a_k, p->a_k, count, x);
        wok_load_i64(call->in[1]->dtype, call->in[1]->data, b + k * p->b_k, p->b_k, count, w);
        for (int64_t i = 0; i < count; i++) sum += (uint64_t)x[i] * (uint64_t)w[i];
    }
    return (int64_t)sum;
}

/* c: position in C, or -1. */
static void store_product(const wok_call *call, const wok_product *p, int64_t y, int64_t a, int64_t b, int64_t c) {
    const wok_tensor *out = call->out[0];
    bool plain = call->node->op == WOK_OP_MatMul;
    double alpha = plain ? 1 : (double)wok_ir_float(call->node, "alpha", 1);
    double beta = plain ? 1 : (double)wok_ir_float(call->node, "beta", 1);
    if (wok_dtype_is_float(out->dtype)) {
        double sum = alpha * dot_real(call, p, a, b);
        if (c >= 0) sum += beta * wok_get_f64(call->in[2]->dtype, call->in[2]->data, c);
        wok_store_f64(out->dtype, out->data, y, 1, &sum);
    } else {
        int64_t sum = dot_int(call, p, a, b);
        if (alpha != 1) sum = wok_truncate(alpha * (double)sum);
        if (c >= 0)
            sum = (int64_t)((uint64_t)sum + (uint64_t)wok_truncate(
                                                beta * (double)wok_get_i64(call->in[2]->dtype, call->in[2]->data, c)));
        wok_store_i64(out->dtype, out->data, y, 1, &sum);
    }
}

/* Steps of C along rows and columns of the result. */
static bool bias_steps(const wok_call *call, int64_t *step_m, int64_t *step_n) {
    const wok_tensor *c = call->node->op == WOK_OP_Gemm && call->in_count > 2 ? call->in[2] : NULL;
    if (!c) return false;
    int64_t n = c->rank > 0 ? c->dims[c->rank - 1] : 1, m = c->rank > 1 ? c->dims[c->rank - 2] : 1;
    *step_n = n > 1;
    *step_m = m > 1 ? n : 0;
    return true;
}

static wok_status run_ref(wok_call *call) {
    wok_product p = view(call);
    int64_t step_m = 0, step_n = 0, y = 0;
    bool bias = bias_steps(call, &step_m, &step_n);
    for (int64_t i = 0; i < p.batches; i++) {
        int64_t a, b;
        wok_product_locate(&p, i, &a, &b);
        for (int64_t m = 0; m < p.m; m++)
            for (int64_t n = 0; n < p.n; n++)
                store_product(call, &p, y++, a + m * p.a_m, b + n * p.b_n, bias ? m * step_m + n * step_n : -1);
    }
    return WOK_OK;
}

static const char *f32_accept(const wok_prepare *prepare) {
    return prepare->in[1] && prepare->in[1]->dtype == WOK_F32 ? wok_accept_f32(prepare) : "computes f32 only";
}

const wok_op_impl *const wok_impls_matmul[] = {
    &(const wok_op_impl){.name = "packed",
                         .accept = f32_accept,
                         .prepare = f32_prepare,
                         .workspace = f32_workspace,
                         .run = matmul_run_f32,
                         .macs = product_macs},
    &(const wok_op_impl){.name = "ref", .accept = wok_accept_number, .run = run_ref, .macs = product_macs},
    NULL,
};

/* ---- Gemm -------------------------------------------------------------------------------------------------------- */

static const char *gemm_accept(const wok_prepare *prepare) {
    const wok_type *c = prepare->in[2];
    return c && c->dtype != WOK_F32 ? "C is not f32" : f32_accept(prepare);
}

/* y = alpha * y + beta * C */
static void add_bias(const wok_call *call, float alpha, float beta) {
    const wok_tensor *out = call->out[0];
    int64_t step_m = 0, step_n = 0;
    bool bias = bias_steps(call, &step_m, &step_n);
    float *y = out->data;
    for (int64_t m = 0; m < out->dims[0]; m++)
        for (int64_t n = 0; n < out->dims[1]; n++, y++)
            *y = alpha * *y + (bias ? beta * ((const float *)call->in[2]->data)[m * step_m + n * step_n] : 0);
}

static wok_status gemm_run_f32(wok_call *call) {
    float alpha = wok_ir_float(call->node, "alpha", 1), beta = wok_ir_float(call->node, "beta", 1);
    const wok_tensor *c = call->in_count > 2 ? call->in[2] : NULL, *y = call->out[0];
    bool row = c && wok_tensor_count(c) == y->dims[1] && c->rank > 0 && c->dims[c->rank - 1] == y->dims[1];
    if (alpha == 1 && (!c || (row && beta == 1)))
        return f32_products(call, &(wok_epilogue_f32){.bias = c ? c->data : NULL});
    WOK_TRY(f32_products(call, &(wok_epilogue_f32){0}));
    add_bias(call, alpha, beta);
    return WOK_OK;
}

const wok_op_impl *const wok_impls_gemm[] = {
    &(const wok_op_impl){.name = "packed",
                         .accept = gemm_accept,
                         .prepare = f32_prepare,
                         .workspace = f32_workspace,
                         .run = gemm_run_f32,
                         .macs = product_macs},
    &(const wok_op_impl){.name = "ref", .accept = wok_accept_number, .run = run_ref, .macs = product_macs},
    NULL,
};

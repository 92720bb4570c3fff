/* prepare.c - choosing implementations, packing for them, and running single nodes. */
#include "ctx.h"
#include "program.h"
#include "tensor.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* What the wok_prepare_* calls of one node work on. */
struct wok_preparing {
    wok_arena *packed, *texts, *scratch;
    wok_rejection *rejected;
    int rejected_count, rejected_capacity;
    size_t packed_bytes;
    bool slow;
};

static void reject(struct wok_preparing *work, const char *kernel, const char *reason) {
    if (work->rejected_count == work->rejected_capacity) {
        int capacity = work->rejected_capacity ? 2 * work->rejected_capacity : 4;
        wok_rejection *list = wok_arena_small(work->texts, (size_t)capacity * sizeof *list);
        if (!list) return; /* explain says less */
        if (work->rejected_count) memcpy(list, work->rejected, (size_t)work->rejected_count * sizeof *list);
        work->rejected = list;
        work->rejected_capacity = capacity;
    }
    const char *text = wok_arena_strdup(work->texts, reason);
    if (text) work->rejected[work->rejected_count++] = (wok_rejection){kernel, text};
}

/* ---- for implementations ------------------------------------------------------------------------------------------------ */

void *wok_prepare_alloc(wok_prepare *prepare, size_t bytes) {
    void *ptr = wok_arena_alloc(prepare->work->packed, bytes);
    if (ptr) prepare->work->packed_bytes += bytes;
    return ptr;
}

const float *wok_prepare_f32(wok_prepare *prepare, int input) {
    const wok_type *type = input < prepare->node->in_count ? prepare->in[input] : NULL;
    const char *name = prepare->node->name;
    if (!type || !type->data) {
        wok_ctx_fail(prepare->ctx, WOK_ERR_UNSUPPORTED, "node '%s' (%s): input %d is no constant", name,
                     prepare->node->op_type, input);
        return NULL;
    }
    if (type->dtype == WOK_F32 && (uintptr_t)type->data % sizeof(float) == 0) return type->data;
    int64_t count = wok_count(type->dims, type->rank);
    float *copy = wok_arena_raw(prepare->work->scratch, (size_t)(count > 0 ? count : 1) * sizeof *copy);
    if (!copy) return NULL;
    if (wok_convert_f32(type->dtype, type->data, count, copy)) return copy;
    wok_ctx_fail(prepare->ctx, WOK_ERR_UNSUPPORTED, "node '%s' (%s): input %d is %s, not floating point", name,
                 prepare->node->op_type, input, wok_dtype_name(type->dtype));
    return NULL;
}

static void reject_kernel(void *user, const wok_kernel *kernel, const char *reason) {
    reject(user, kernel->name, reason);
}

/* Families whose reference is too slow to go unmentioned. */
static bool is_hot(wok_family family) {
    return family == WOK_FAMILY_gemm_f32 || family == WOK_FAMILY_conv_f32 || family == WOK_FAMILY_dwconv ||
           family == WOK_FAMILY_attn;
}

const wok_kernel *wok_prepare_kernel(wok_prepare *prepare, wok_family family, const void *problem) {
    const wok_kernel *kernel = wok_kernel_select(family, prepare->isa, problem, reject_kernel, prepare->work);
    const wok_ir_node *node = prepare->node;
    if (!kernel)
        wok_ctx_fail(prepare->ctx, WOK_ERR_UNSUPPORTED, "node '%s' (%s): no kernel of %s takes it", node->name,
                     node->op_type, wok_family_name(family));
    else if (kernel->flags & WOK_KERNEL_REFERENCE && is_hot(family))
        prepare->work->slow = true;
    return kernel;
}

wok_status wok_call_fail(wok_call *call, wok_status status, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(call->reason, sizeof call->reason, format, args);
    va_end(args);
    return status;
}

wok_status wok_call_report(const wok_call *call, wok_status status) {
    char shapes[512] = "";
    size_t used = 0;
    for (int i = 0; i < call->in_count && used < sizeof shapes; i++) {
        const wok_tensor *in = call->in[i];
        int n = in ? snprintf(shapes + used, sizeof shapes - used, "%s%s%s", i ? ", " : "", wok_dtype_name(in->dtype),
                              wok_shape_text(in->dims, in->rank))
                   : snprintf(shapes + used, sizeof shapes - used, "%s-", i ? ", " : "");
        used += n > 0 ? (size_t)n : 0;
    }
    return wok_ctx_fail(call->ctx, status, "node '%s' (%s): %s (inputs %s)", call->node->name, call->node->op_type,
                        call->reason[0] ? call->reason : wok_status_name(status), shapes);
}

/* ---- choosing ------------------------------------------------------------------------------------------------------------ */

static wok_status no_implementation(const wok_prepare *prepare) {
    char reasons[1024] = "";
    size_t used = 0;
    for (int i = 0; i < prepare->work->rejected_count && used < sizeof reasons; i++) {
        const wok_rejection *r = &prepare->work->rejected[i];
        int n = snprintf(reasons + used, sizeof reasons - used, "%s%s: %s", i ? "; " : "", r->kernel, r->reason);
        used += n > 0 ? (size_t)n : 0;
    }
    return wok_ctx_fail(prepare->ctx, WOK_ERR_UNSUPPORTED, "node '%s' (%s) cannot be run: %s", prepare->node->name,
                        prepare->node->op_type, reasons[0] ? reasons : "the operator has no implementation");
}

/* `status` of a failed prepare, with the node's name before a sentence that lacks it. */
static wok_status name_failure(const wok_prepare *prepare, wok_status status) {
    const char *text = wok_ctx_error(prepare->ctx);
    if (strncmp(text, "node ", 5) == 0) return status;
    return wok_ctx_fail(prepare->ctx, status, "node '%s' (%s): %s", prepare->node->name, prepare->node->op_type, text);
}

static wok_status choose(const wok_backend *backend, wok_prepare *prepare, wok_choice *choice) {
    const wok_op_impl *const *impls = backend->impls(prepare->node->op);
    for (; impls && *impls; impls++) {
        const char *reason = (*impls)->accept ? (*impls)->accept(prepare) : NULL;
        if (reason) {
            reject(prepare->work, (*impls)->name, reason);
            continue;
        }
        wok_status status = (*impls)->prepare ? (*impls)->prepare(prepare) : WOK_OK;
        if (status != WOK_OK) return name_failure(prepare, status);
        *choice = (wok_choice){*impls,
                               prepare->kernel,
                               prepare->state,
                               prepare->consumed,
                               prepare->work->rejected,
                               prepare->work->rejected_count,
                               prepare->work->packed_bytes,
                               prepare->work->slow};
        return WOK_OK;
    }
    return no_implementation(prepare);
}

wok_status wok_choose(const wok_backend *backend, wok_graph *graph, const wok_ir_node *node, const wok_type *const *in,
                      const wok_type *const *out, wok_arena *packed, wok_arena *texts, wok_arena *scratch,
                      wok_choice *choice) {
    wok_ctx *ctx = graph->ctx;
    if (node->in_count > WOK_MAX_IN || node->out_count > WOK_MAX_OUT)
        return wok_ctx_fail(ctx, WOK_ERR_UNSUPPORTED, "node '%s' (%s) has too many inputs or outputs", node->name,
                            node->op_type);
    struct wok_preparing work = {.packed = packed, .texts = texts, .scratch = scratch};
    wok_prepare prepare = {.ctx = ctx, .graph = graph, .node = node, .isa = ctx->isa, .work = &work};
    for (int i = 0; i < node->in_count; i++) prepare.in[i] = in[i];
    for (int i = 0; i < node->out_count; i++) prepare.out[i] = out[i];
    return choose(backend, &prepare, choice);
}

/* ---- running one node ------------------------------------------------------------------------------------------------------ */

static wok_status run_with_workspace(wok_call *call, const wok_choice *choice) {
    size_t bytes = choice->impl->workspace ? choice->impl->workspace(call) : 0;
    if (bytes && !(call->workspace = wok_ctx_alloc(call->ctx, bytes))) return wok_ctx_last(call->ctx);
    wok_status status = choice->impl->run(call);
    wok_ctx_release(call->ctx, call->workspace, bytes);
    return status == WOK_OK ? WOK_OK : wok_call_report(call, status);
}

static bool nothing_to_write(const wok_call *call) {
    for (int i = 0; i < call->out_count; i++)
        if (call->out[i] && call->out[i]->bytes) return false;
    return true;
}

wok_status wok_run_choice(wok_ctx *ctx, const wok_choice *choice, const wok_ir_node *node, const wok_tensor *const *in,
                          wok_tensor *const *out) {
    wok_call call = {.ctx = ctx,
                     .node = node,
                     .state = choice->state,
                     .in_count = node->in_count,
                     .out_count = node->out_count,
                     .parallel = wok_ctx_parallel(ctx)};
    for (int i = 0; i < node->in_count; i++) call.in[i] = in[i];
    for (int i = 0; i < node->out_count; i++) call.out[i] = out[i];
    if (nothing_to_write(&call)) return WOK_OK;
    if (!(choice->impl->flags & WOK_IMPL_VIEW)) return run_with_workspace(&call, choice);
    memcpy(out[0]->data, in[0]->data, out[0]->bytes);
    return WOK_OK;
}

static wok_type type_of(const wok_tensor *t) {
    wok_type type = {.dtype = t->dtype, .rank = t->rank, .data = t->data, .bytes = t->bytes};
    memcpy(type.dims, t->dims, sizeof type.dims);
    return type;
}

/* Elements at their natural alignment, copied where they are not. */
static wok_status align_input(wok_arena *scratch, wok_ctx *ctx, wok_tensor *tensor) {
    size_t size = wok_dtype_size(tensor->dtype);
    if (size == 0 || (uintptr_t)tensor->data % size == 0) return WOK_OK;
    void *copy = wok_arena_alloc(scratch, tensor->bytes);
    if (!copy) return wok_ctx_last(ctx);
    memcpy(copy, tensor->data, tensor->bytes);
    tensor->data = copy;
    return WOK_OK;
}

typedef struct eval {
    wok_type in_types[WOK_MAX_IN], out_types[WOK_MAX_OUT];
    const wok_type *in[WOK_MAX_IN], *out[WOK_MAX_OUT];
    wok_tensor in_tensors[WOK_MAX_IN];
    const wok_tensor *in_list[WOK_MAX_IN];
    wok_tensor *out_list[WOK_MAX_OUT];
} eval;

static wok_status make_outputs(wok_graph *graph, const wok_ir_node *node, eval *e, wok_tensor *out, wok_arena *arena) {
    for (int i = 0; i < node->out_count; i++) {
        if (node->out[i] < 0) continue;
        if (!wok_type_is_known(&e->out_types[i]))
            return wok_ctx_fail(graph->ctx, WOK_ERR_UNSUPPORTED,
                                "node '%s' (%s): the size of its output cannot be told", node->name, node->op_type);
        if (wok_tensor_set(&out[i], &e->out_types[i]) != WOK_OK)
            return wok_ctx_fail(graph->ctx, WOK_ERR_SHAPE, "node '%s' (%s): its output is too large", node->name,
                                node->op_type);
        if (!(out[i].data = wok_arena_alloc(arena, out[i].bytes ? out[i].bytes : 1))) return wok_ctx_last(graph->ctx);
        e->out_list[i] = &out[i];
        e->out[i] = &e->out_types[i];
    }
    return WOK_OK;
}

static wok_status eval_node(wok_graph *graph, const wok_ir_node *node, eval *e, const wok_tensor *const *in,
                            wok_tensor *out, wok_arena *arena, wok_arena *scratch) {
    for (int i = 0; i < node->in_count; i++) {
        if (!in[i]) continue;
        e->in_tensors[i] = *in[i];
        wok_status status = align_input(scratch, graph->ctx, &e->in_tensors[i]);
        if (status != WOK_OK) return status;
        e->in_types[i] = type_of(&e->in_tensors[i]);
        e->in[i] = &e->in_types[i];
        e->in_list[i] = &e->in_tensors[i];
    }
    wok_choice choice;
    wok_status status = wok_infer_node(graph, node, e->in, e->out_types);
    if (status == WOK_OK) status = make_outputs(graph, node, e, out, arena);
    if (status == WOK_OK)
        status = wok_choose(&wok_backend_cpu, graph, node, e->in, e->out, scratch, scratch, scratch, &choice);
    if (status == WOK_OK) status = wok_run_choice(graph->ctx, &choice, node, e->in_list, e->out_list);
    return status;
}

wok_status wok_eval_node(wok_graph *graph, const wok_ir_node *node, const wok_tensor *const *in, wok_tensor *out,
                         wok_arena *arena) {
    if (node->in_count > WOK_MAX_IN || node->out_count > WOK_MAX_OUT)
        return wok_ctx_fail(graph->ctx, WOK_ERR_UNSUPPORTED, "node '%s' (%s) has too many inputs or outputs",
                            node->name, node->op_type);
    wok_arena *scratch = wok_arena_new(graph->ctx);
    eval *e = scratch ? wok_arena_alloc(scratch, sizeof *e) : NULL;
    wok_status status = e ? eval_node(graph, node, e, in, out, arena, scratch) : wok_ctx_last(graph->ctx);
    wok_arena_free(scratch);
    return status;
}

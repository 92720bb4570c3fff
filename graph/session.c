/* session.c - inputs, plans, memory and runs of one user of a model. */
#include "session.h"
#include "ctx.h"
#include "tensor.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { PLANS = 16, MOST_PLANS = 4096, VALUE_INTS = 16 };

/* ---- errors: kept by the session ----------------------------------------------------------------------------------------- */

static wok_status WOK_PRINTF(3, 4) fail(wok_session *s, wok_status status, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(s->error, sizeof s->error, format, args);
    for (char *c = s->error; *c; c++) /* names come from files: a sentence stays one line */
        if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = '?';
    va_end(args);
    return status;
}

/* A failure that was reported to the context. */
static wok_status keep(wok_session *s, wok_status status) {
    if (status == WOK_OK) return WOK_OK;
    snprintf(s->error, sizeof s->error, "%s", wok_ctx_error(s->ctx));
    return wok_ctx_settle(s->ctx, status);
}

const char *wok_session_error(const wok_session *session) {
    return session ? session->error : "";
}

/* ---- life ------------------------------------------------------------------------------------------------------------------ */

static wok_session_options read_options(const wok_session_options *options) {
    wok_session_options o = {0};
    if (options) memcpy(&o, options, options->size < sizeof o ? options->size : sizeof o);
    return o;
}

static wok_status check_options(const wok_model *model, const wok_session_options *o) {
    wok_ctx *ctx = model->ctx;
    const char *unknown = wok_passes_unknown(o->no_passes, o->no_passes ? o->no_pass_count : 0);
    if (unknown) return wok_ctx_fail(ctx, WOK_ERR_ARGUMENT, "there is no rewrite called '%s'", unknown);
    if (o->precision != WOK_PRECISION_F32)
        return wok_ctx_fail(ctx, WOK_ERR_UNSUPPORTED, "only the precision f32 is supported so far");
    if (!model->finished)
        return wok_ctx_fail(ctx, WOK_ERR_STATE, "the model is not finished: call wok_model_finish first");
    if (!model->runnable)
        return wok_ctx_fail(ctx, WOK_ERR_UNSUPPORTED, "%s", model->error ? model->error : "the model cannot run");
    return WOK_OK;
}

/* Names to values; none given: the model's outputs. */
static wok_status find_outputs(wok_session *s, const wok_session_options *o) {
    const wok_graph *graph = s->model->graph;
    int count = o->outputs && o->output_count > 0 ? o->output_count : graph->output_count;
    wok_value *values = wok_arena_small(s->arena, (size_t)count * sizeof *values);
    if (!values) return wok_ctx_last(s->ctx);
    for (int i = 0; i < count; i++) {
        values[i] = o->outputs && o->output_count > 0 ? wok_ir_find(graph, o->outputs[i]) : graph->outputs[i];
        if (values[i] < 0)
            return wok_ctx_fail(s->ctx, WOK_ERR_ARGUMENT, "the model has no value called '%s'", o->outputs[i]);
        for (int j = 0; j < i; j++)
            if (values[j] == values[i])
                return wok_ctx_fail(s->ctx, WOK_ERR_ARGUMENT, "output '%s' is asked for twice",
                                    graph->values[values[i]].name);
        const wok_ir_value *value = &graph->values[values[i]];
        if (value->producer < 0 && !value->is_input && !value->type.data)
            return wok_ctx_fail(s->ctx, WOK_ERR_ARGUMENT, "value '%s' is produced by nothing", value->name);
    }
    s->key.outputs = values;
    s->key.output_count = count;
    return WOK_OK;
}

static wok_status copy_pass_names(wok_session *s, const wok_session_options *o) {
    int count = o->no_passes ? o->no_pass_count : 0;
    const char **names = wok_arena_small(s->arena, (size_t)(count + 1) * sizeof *names);
    if (!names) return wok_ctx_last(s->ctx);
    for (int i = 0; i < count; i++)
        if (!(names[i] = wok_arena_strdup(s->arena, o->no_passes[i]))) return wok_ctx_last(s->ctx);
    s->key.no_passes = names;
    s->key.no_pass_count = count;
    return WOK_OK;
}

static wok_status make_arrays(wok_session *s) {
    size_t inputs = (size_t)s->model->graph->input_count + 1, outputs = (size_t)s->key.output_count;
    s->inputs = wok_arena_small(s->arena, inputs * sizeof *s->inputs);
    s->input_data = wok_arena_small(s->arena, inputs * sizeof *s->input_data);
    s->overridden = wok_arena_small(s->arena, inputs * sizeof *s->overridden);
    s->plan_key = wok_arena_small(s->arena, inputs * (1 + WOK_MAX_RANK + VALUE_INTS) * sizeof *s->plan_key);
    s->bound = wok_arena_small(s->arena, outputs * sizeof *s->bound);
    s->bound_bytes = wok_arena_small(s->arena, outputs * sizeof *s->bound_bytes);
    s->plans = wok_arena_small(s->arena, (size_t)s->plan_limit * sizeof *s->plans);
    s->key.overridden = s->overridden;
    return s->inputs && s->input_data && s->overridden && s->plan_key && s->bound && s->bound_bytes && s->plans
               ? WOK_OK
               : wok_ctx_last(s->ctx);
}

/* The program for the inputs as they are set; it is kept until the session ends, as packing is dear. */
static wok_status use_program(wok_session *s) {
    for (int i = 0; i < s->program_count; i++) {
        const wok_program *p = s->programs[i];
        if (memcmp(p->key.overridden, s->overridden, (size_t)s->model->graph->input_count * sizeof *s->overridden) ==
            0) {
            s->program = s->programs[i];
            return WOK_OK;
        }
    }
    size_t need = (size_t)(s->program_count + 1) * sizeof *s->programs;
    wok_status status = wok_ctx_grow(s->ctx, (void **)&s->programs, &s->programs_bytes, need);
    wok_program *program = NULL;
    if (status == WOK_OK) status = wok_program_get(s->model, &s->key, &program);
    if (status == WOK_OK) s->program = s->programs[s->program_count++] = program;
    return status;
}

wok_status wok_session_create(wok_model *model, const wok_session_options *options, wok_session **handle) {
    *handle = NULL;
    wok_ctx *ctx = model->ctx;
    const wok_session_options o = read_options(options);
    wok_status status = check_options(model, &o);
    if (status != WOK_OK) return status;
    wok_session *s = wok_ctx_alloc(ctx, sizeof *s);
    if (!s) return wok_ctx_last(ctx);
    memset(s, 0, sizeof *s);
    s->model = model;
    s->ctx = ctx;
    s->key.precision = o.precision;
    s->key.dynamic_per_row = o.dynamic_per_row;
    s->key.relax_qdq = o.relax_qdq;
    s->key.quantized_as_f32 = o.quantized_as_f32;
    s->profile = o.profile;
    s->plan_limit = o.plan_cache <= 0 ? PLANS : o.plan_cache < MOST_PLANS ? o.plan_cache : MOST_PLANS;
    s->arena = wok_arena_new(ctx);
    status = s->arena ? find_outputs(s, &o) : wok_ctx_last(ctx);
    if (status == WOK_OK) status = copy_pass_names(s, &o);
    if (status == WOK_OK) status = make_arrays(s);
    if (status == WOK_OK) status = use_program(s);
    if (status == WOK_OK)
        *handle = s;
    else
        wok_session_free(&s);
    return wok_ctx_settle(ctx, status);
}

void wok_session_trim(wok_session *s) {
    for (int i = 0; i < s->plan_count; i++) wok_plan_free(s->plans[i]);
    s->plan_count = 0;
    s->plan = s->shown = s->ready = NULL;
    wok_backend_cpu.release(s->ctx, s->memory, s->memory_bytes);
    s->memory = NULL;
    s->memory_bytes = 0;
    wok_eager_clear(s->ctx, &s->eager);
}

void wok_session_free(wok_session **handle) {
    if (!handle || !*handle) return;
    wok_session *s = *handle;
    *handle = NULL;
    wok_session_trim(s);
    for (int i = 0; i < s->program_count; i++) wok_program_put(s->programs[i]);
    wok_ctx_release(s->ctx, s->programs, s->programs_bytes);
    wok_arena_free(s->arena);
    wok_ctx_release(s->ctx, s, sizeof *s);
}

/* ---- inputs and outputs ----------------------------------------------------------------------------------------------------- */

static wok_status check_input(wok_session *s, const wok_value_info *info, wok_dtype dtype, const int64_t *dims,
                              int rank, const void *data, size_t bytes) {
    if (rank < 0 || rank > WOK_MAX_RANK || (rank > 0 && !dims))
        return fail(s, WOK_ERR_ARGUMENT, "input '%s': the rank %d is not between 0 and %d, or dims is NULL", info->name,
                    rank, WOK_MAX_RANK);
    bool fits = info->rank < 0 || info->rank == rank;
    for (int i = 0; fits && i < rank && info->rank >= 0; i++) fits = info->dims[i] < 0 || info->dims[i] == dims[i];
    if (info->dtype != WOK_NONE && info->dtype != dtype) fits = false;
    if (!fits)
        return fail(s, WOK_ERR_SHAPE, "input '%s' was given as %s%s, but the model wants %s", info->name,
                    wok_dtype_name(dtype), wok_shape_text(dims, rank), wok_value_info_text(info));
    size_t need = wok_tensor_bytes(dtype, dims, rank), size = wok_dtype_size(dtype);
    if (need == SIZE_MAX)
        return fail(s, WOK_ERR_SHAPE, "input '%s': %s%s is not a type and shape that can be stored", info->name,
                    wok_dtype_name(dtype), wok_shape_text(dims, rank));
    if (need != bytes)
        return fail(s, WOK_ERR_SHAPE, "input '%s': %s%s takes %zu bytes, but %zu were given", info->name,
                    wok_dtype_name(dtype), wok_shape_text(dims, rank), need, bytes);
    if ((uintptr_t)data % size != 0)
        return fail(s, WOK_ERR_ARGUMENT, "input '%s': the data is not aligned to its element size %zu", info->name,
                    size);
    return WOK_OK;
}

wok_status wok_session_set_input(wok_session *s, int index, wok_dtype dtype, const int64_t *dims, int rank,
                                 const void *data, size_t bytes) {
    s->error[0] = 0;
    const wok_value_info *info = wok_model_input(s->model, index);
    if (!info)
        return fail(s, WOK_ERR_ARGUMENT, "there is no input %d: the model has %d", index,
                    wok_model_input_count(s->model));
    wok_session_input *input = &s->inputs[index];
    if (!data && info->optional) {
        *input = (wok_session_input){0};
        s->overridden[index] = false;
        return WOK_OK;
    }
    wok_status status = check_input(s, info, dtype, dims, rank, data, bytes);
    if (status != WOK_OK) return status;
    *input = (wok_session_input){.set = true, .dtype = dtype, .rank = rank, .data = data, .bytes = bytes};
    if (rank) memcpy(input->dims, dims, (size_t)rank * sizeof *dims);
    s->overridden[index] = info->optional;
    return WOK_OK;
}

wok_status wok_session_bind_output(wok_session *s, int index, void *data, size_t bytes) {
    s->error[0] = 0;
    if (index < 0 || index >= s->key.output_count)
        return fail(s, WOK_ERR_ARGUMENT, "there is no output %d: the session has %d", index, s->key.output_count);
    if ((uintptr_t)data % 8 != 0)
        return fail(s, WOK_ERR_ARGUMENT, "output '%s': the memory is not aligned to 8 bytes",
                    wok_session_output_name(s, index));
    if (s->bound[index] != data) s->ready = NULL;
    s->bound[index] = data;
    s->bound_bytes[index] = data ? bytes : 0;
    return WOK_OK;
}

int wok_session_output_count(const wok_session *s) {
    return s->key.output_count;
}

const wok_tensor *wok_session_output(const wok_session *s, int index) {
    if (!s->shown || index < 0 || index >= s->key.output_count) return NULL;
    return s->shown->eager ? &s->eager.outputs[index] : s->shown->outputs[index];
}

const char *wok_session_output_name(const wok_session *s, int index) {
    if (index < 0 || index >= s->key.output_count) return NULL;
    return s->model->graph->values[s->key.outputs[index]].name;
}

/* ---- checks that need all inputs ---------------------------------------------------------------------------------------------- */

typedef struct list {
    char *text;
    size_t used, size;
} list;

static void WOK_PRINTF(2, 3) add(list *l, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int n = vsnprintf(l->text + l->used, l->size - l->used, format, args);
    va_end(args);
    size_t room = l->size - 1 - l->used;
    l->used += n < 0 ? 0 : (size_t)n < room ? (size_t)n : room;
}

static wok_status missing(wok_session *s, int index) {
    list l = {s->error, 0, sizeof s->error};
    int count = wok_model_input_count(s->model), given = 0;
    add(&l, "input '%s' is missing. The model wants ", wok_model_input(s->model, index)->name);
    for (int i = 0; i < count; i++)
        if (!wok_model_input(s->model, i)->optional)
            add(&l, "%s%s", l.used && i ? ", " : "", wok_value_info_text(wok_model_input(s->model, i)));
    add(&l, "; given: ");
    for (int i = 0; i < count; i++) {
        const wok_session_input *in = &s->inputs[i];
        if (in->set)
            add(&l, "%s%s %s%s", given++ ? ", " : "", wok_model_input(s->model, i)->name, wok_dtype_name(in->dtype),
                wok_shape_text(in->dims, in->rank));
    }
    if (!given) add(&l, "none");
    return WOK_ERR_ARGUMENT;
}

/* Dimensions of one name have one size. */
static wok_status check_names(wok_session *s) {
    int count = wok_model_input_count(s->model);
    for (int k = 0; k < count * WOK_MAX_RANK; k++) {
        int a = k / WOK_MAX_RANK, i = k % WOK_MAX_RANK;
        const wok_value_info *x = wok_model_input(s->model, a);
        if (!s->inputs[a].set || i >= x->rank || !x->dim_names[i]) continue;
        for (int m = 0; m < k; m++) {
            int b = m / WOK_MAX_RANK, j = m % WOK_MAX_RANK;
            const wok_value_info *y = wok_model_input(s->model, b);
            if (!s->inputs[b].set || j >= y->rank || !y->dim_names[j] || strcmp(x->dim_names[i], y->dim_names[j]) != 0)
                continue;
            if (s->inputs[a].dims[i] != s->inputs[b].dims[j])
                return fail(s, WOK_ERR_SHAPE, "inputs '%s' %s and '%s' %s do not agree on the dimension '%s'", y->name,
                            wok_shape_text(s->inputs[b].dims, s->inputs[b].rank), x->name,
                            wok_shape_text(s->inputs[a].dims, s->inputs[a].rank), x->dim_names[i]);
            break;
        }
    }
    return WOK_OK;
}

/* Inputs of the current program: set, or (for a run) with data. */
static wok_status check_given(wok_session *s, bool with_data) {
    const wok_graph *file = s->model->graph;
    for (int i = 0; i < file->input_count; i++) {
        const wok_session_input *in = &s->inputs[i];
        bool optional = file->values[file->inputs[i]].type.data != NULL;
        if (!in->set && !optional) return missing(s, i);
        if (with_data && in->set && !in->data && in->bytes)
            return fail(s, WOK_ERR_ARGUMENT, "input '%s' has a shape but no data", wok_model_input(s->model, i)->name);
    }
    return WOK_OK;
}

/* ---- plans -------------------------------------------------------------------------------------------------------------------- */

/* An input that may hold sizes: few integers, and one dimension at most. */
static bool may_hold_sizes(const wok_session_input *in) {
    return in->set && in->data && in->rank <= 1 && (in->dtype == WOK_I64 || in->dtype == WOK_I32) &&
           in->bytes <= VALUE_INTS * wok_dtype_size(in->dtype);
}

/* Fills s->plan_key; its length. */
static int make_key(wok_session *s) {
    int64_t *key = s->plan_key;
    for (int i = 0; i < s->model->graph->input_count; i++) {
        const wok_session_input *in = &s->inputs[i];
        *key++ = in->set ? in->rank : -1;
        for (int d = 0; in->set && d < in->rank; d++) *key++ = in->dims[d];
        if (!s->keyed_by_values || !may_hold_sizes(in) || !in->bytes) continue;
        key[(in->bytes - 1) / sizeof *key] = 0; /* the end of the last word */
        memcpy(key, in->data, in->bytes);
        key += (in->bytes + sizeof *key - 1) / sizeof *key;
    }
    return (int)(key - s->plan_key);
}

static wok_plan *find_plan(wok_session *s, int key_count) {
    size_t bytes = (size_t)key_count * sizeof *s->plan_key;
    for (int i = 0; i < s->plan_count; i++) {
        wok_plan *p = s->plans[i];
        if (p->program == s->program && p->key_count == key_count && memcmp(p->key, s->plan_key, bytes) == 0) return p;
    }
    return NULL;
}

static void drop_plan(wok_session *s, int index) {
    wok_plan *p = s->plans[index];
    if (s->plan == p) s->plan = NULL;
    if (s->shown == p) s->shown = NULL;
    if (s->ready == p) s->ready = NULL;
    wok_plan_free(p);
    s->plans[index] = s->plans[--s->plan_count];
}

static wok_status keep_plan(wok_session *s, wok_plan *plan, int key_count) {
    int64_t *key = wok_arena_small(plan->arena, (size_t)(key_count + 1) * sizeof *key);
    if (!key) {
        wok_plan_free(plan);
        return wok_ctx_last(s->ctx);
    }
    memcpy(key, s->plan_key, (size_t)key_count * sizeof *key);
    plan->key = key;
    plan->key_count = key_count;
    if (s->plan_count == s->plan_limit) {
        int oldest = 0;
        for (int i = 1; i < s->plan_count; i++)
            if (s->plans[i]->last_use < s->plans[oldest]->last_use) oldest = i;
        drop_plan(s, oldest);
    }
    s->plans[s->plan_count++] = plan;
    s->plan = plan;
    return WOK_OK;
}

static void make_types(const wok_session *s, bool with_values, bool all_data, wok_type *types) {
    for (int i = 0; i < s->model->graph->input_count; i++) {
        const wok_session_input *in = &s->inputs[i];
        types[i] = (wok_type){.dtype = in->dtype, .rank = in->set ? in->rank : -1, .bytes = in->bytes};
        memcpy(types[i].dims, in->dims, sizeof in->dims);
        if (all_data || (with_values && may_hold_sizes(in))) types[i].data = in->data;
    }
}

static bool any_sizes(const wok_session *s) {
    for (int i = 0; i < s->model->graph->input_count; i++)
        if (may_hold_sizes(&s->inputs[i])) return true;
    return false;
}

/* A plan for the shapes alone, if that is enough; else one for the values of small inputs as well; else an eager one. */
static wok_status new_plan(wok_session *s) {
    size_t bytes = (size_t)(s->model->graph->input_count + 1) * sizeof(wok_type);
    wok_type *types = wok_ctx_alloc(s->ctx, bytes);
    if (!types) return wok_ctx_last(s->ctx);
    wok_plan *plan = NULL;
    make_types(s, s->keyed_by_values, false, types);
    wok_status status = wok_plan_new(s->program, types, &plan);
    if (status == WOK_OK && plan->eager && !s->keyed_by_values && any_sizes(s)) {
        wok_plan *better = NULL;
        make_types(s, true, false, types);
        status = wok_plan_new(s->program, types, &better);
        if (status == WOK_OK && !better->eager) {
            wok_plan *other = plan;
            plan = better;
            better = other;
            s->keyed_by_values = true;
        }
        wok_plan_free(better);
    }
    wok_ctx_release(s->ctx, types, bytes);
    if (status != WOK_OK) {
        wok_plan_free(plan);
        return status;
    }
    return keep_plan(s, plan, make_key(s));
}

static wok_status find_or_make_plan(wok_session *s) {
    wok_status status = use_program(s);
    if (status != WOK_OK) return keep(s, status);
    int key_count = make_key(s);
    s->plan = find_plan(s, key_count);
    if (!s->plan) {
        status = check_given(s, false);
        if (status == WOK_OK) status = check_names(s);
        if (status != WOK_OK) return status;
        status = keep(s, new_plan(s));
        if (status != WOK_OK) return status;
    }
    s->plan->last_use = ++s->clock;
    return WOK_OK;
}

wok_status wok_session_plan(wok_session *s) {
    s->error[0] = 0;
    return find_or_make_plan(s);
}

/* ---- running ------------------------------------------------------------------------------------------------------------------ */

static bool overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes) {
    const char *x = a, *y = b;
    return x && y && x < y + b_bytes && y < x + a_bytes;
}

static wok_status check_bound(wok_session *s) {
    for (int i = 0; i < s->key.output_count; i++) {
        if (!s->bound[i]) continue;
        const wok_tensor *out = s->plan->eager ? NULL : s->plan->outputs[i];
        if (out && s->bound_bytes[i] < out->bytes)
            return fail(s, WOK_ERR_SHAPE, "output '%s' is %s%s and takes %zu bytes, but %zu were bound for it",
                        wok_session_output_name(s, i), wok_dtype_name(out->dtype), wok_shape_text(out->dims, out->rank),
                        out->bytes, s->bound_bytes[i]);
        for (int k = 0; k < i; k++)
            if (overlap(s->bound[i], s->bound_bytes[i], s->bound[k], s->bound_bytes[k]))
                return fail(s, WOK_ERR_ARGUMENT, "the memory bound for output '%s' overlaps output '%s'",
                            wok_session_output_name(s, i), wok_session_output_name(s, k));
        for (int k = 0; k < s->model->graph->input_count; k++)
            if (s->inputs[k].set && overlap(s->bound[i], s->bound_bytes[i], s->inputs[k].data, s->inputs[k].bytes))
                return fail(s, WOK_ERR_ARGUMENT, "the memory bound for output '%s' overlaps input '%s'",
                            wok_session_output_name(s, i), wok_model_input(s->model, k)->name);
    }
    return WOK_OK;
}

/* One block serves all plans: it grows to the largest. */
static wok_status ensure_memory(wok_session *s) {
    size_t need = s->plan->arena_bytes ? s->plan->arena_bytes : 64;
    if (need <= s->memory_bytes) return WOK_OK;
    wok_backend_cpu.release(s->ctx, s->memory, s->memory_bytes);
    s->ready = NULL;
    s->memory_bytes = 0;
    s->memory = s->program->backend->alloc(s->ctx, need);
    if (!s->memory) return wok_ctx_last(s->ctx);
    s->memory_bytes = need;
    return WOK_OK;
}

static wok_status run_eager(wok_session *s) {
    size_t bytes = (size_t)(s->model->graph->input_count + 1) * sizeof(wok_type);
    wok_type *types = wok_ctx_alloc(s->ctx, bytes);
    if (!types) return wok_ctx_last(s->ctx);
    make_types(s, true, true, types);
    wok_status status = wok_eager_run(s->program, types, s->bound, s->bound_bytes, &s->eager);
    wok_ctx_release(s->ctx, types, bytes);
    return status;
}

static wok_status run_plan(wok_session *s) {
    wok_status status = ensure_memory(s);
    if (status != WOK_OK) return status;
    if (s->ready != s->plan) wok_plan_bind(s->plan, s->memory, s->bound);
    s->ready = s->plan;
    for (int i = 0; i < s->model->graph->input_count; i++) s->input_data[i] = s->inputs[i].data;
    wok_plan_bind_inputs(s->plan, s->input_data);
    return s->profile ? wok_plan_run_profiled(s->plan, s->memory) : wok_plan_run(s->plan, s->memory);
}

wok_status wok_session_run(wok_session *s) {
    s->error[0] = 0;
    s->shown = NULL;
    wok_status status = find_or_make_plan(s);
    if (status == WOK_OK) status = check_given(s, true);
    if (status == WOK_OK) status = check_bound(s);
    if (status != WOK_OK) return status;
    wok_fp_state fp = wok_fp_enter();
    status = keep(s, s->plan->eager ? run_eager(s) : run_plan(s));
    wok_fp_leave(fp);
    if (status == WOK_OK) s->shown = s->plan;
    return status;
}

/* ---- for people ---------------------------------------------------------------------------------------------------------------- */

static wok_status need_plan(wok_session *s) {
    s->error[0] = 0;
    return s->plan ? WOK_OK
                   : fail(s, WOK_ERR_STATE, "there is no plan yet: call wok_session_plan or wok_session_run first");
}

wok_status wok_session_describe(wok_session *s, wok_session_info *info) {
    *info = (wok_session_info){0};
    wok_status status = need_plan(s);
    if (status != WOK_OK) return status;
    const wok_program *p = s->plan->program;
    *info = (wok_session_info){.nodes = s->plan->eager ? p->graph->node_count : s->plan->node_count,
                               .near_misses = p->near_misses.count,
                               .arena_bytes = (int64_t)s->plan->arena_bytes,
                               .packed_bytes = (int64_t)p->packed_bytes,
                               .weight_bytes = (int64_t)p->weight_bytes,
                               .threads = s->ctx->threads,
                               .isa = p->isa};
    return WOK_OK;
}

static void measure(const wok_session *s, const wok_plan_node *at, const wok_ir_node *node, const wok_choice *choice,
                    wok_node_info *info) {
    wok_call call = {.ctx = s->ctx,
                     .node = node,
                     .state = choice->state,
                     .in_count = node->in_count,
                     .out_count = node->out_count,
                     .parallel = wok_ctx_parallel(s->ctx)};
    bool view = choice->impl->flags & WOK_IMPL_VIEW;
    for (int i = 0; i < node->in_count; i++) {
        call.in[i] = at->tensors[i];
        if (call.in[i] && !view && !(i < 32 && choice->consumed >> i & 1)) info->bytes += (int64_t)call.in[i]->bytes;
    }
    for (int i = 0; i < node->out_count; i++) {
        call.out[i] = at->tensors[node->in_count + i];
        if (call.out[i] && !view) info->bytes += (int64_t)call.out[i]->bytes;
    }
    info->bytes += (int64_t)choice->packed_bytes;
    if (choice->impl->macs) info->macs = choice->impl->macs(&call);
    const wok_tensor *out = call.out[0];
    if (out) {
        info->rank = out->rank;
        memcpy(info->dims, out->dims, sizeof out->dims);
    }
    if (s->plan->profiled_runs == 0) return;
    const wok_step *step = at->step < 0 ? NULL : &s->plan->steps[at->step];
    info->us = step ? 1e6 * step->seconds / (double)s->plan->profiled_runs : 0;
    info->us_best = step ? 1e6 * step->best : 0;
}

/* What a node computes in: products of bytes in bytes, whatever they give. */
static wok_dtype compute_type(const wok_graph *g, const wok_ir_node *node) {
    wok_value v = node->out[0];
    switch (node->op) {
    case WOK_OP_wok_QGemm:
    case WOK_OP_wok_QMatMul:
    case WOK_OP_wok_QConv:
    case WOK_OP_MatMulInteger:
    case WOK_OP_ConvInteger:
        v = node->in[0];
        break;
    default:
        break;
    }
    return v < 0 ? WOK_NONE : g->values[v].type.dtype;
}

wok_status wok_session_node(wok_session *s, int index, wok_node_info *info) {
    *info = (wok_node_info){.us = -1};
    wok_status status = need_plan(s);
    if (status != WOK_OK) return status;
    const wok_plan *plan = s->plan;
    int count = plan->eager ? plan->program->graph->node_count : plan->node_count;
    if (index < 0 || index >= count)
        return fail(s, WOK_ERR_ARGUMENT, "there is no node %d: the plan has %d", index, count);
    wok_node n = plan->eager ? index : plan->nodes[index].node;
    const wok_ir_node *node = &plan->program->graph->nodes[n];
    const wok_choice *choice = &plan->program->choices[n];
    info->name = node->name;
    info->op = node->label ? node->label : node->op_type;
    info->fused_from = node->from ? node->from : (const char *const *)&node->name;
    info->fused_count = node->from ? node->from_count : 1;
    info->kernel = choice->kernel ? choice->kernel->name : choice->impl->name;
    info->isa = wok_isa_name(choice->kernel ? choice->kernel->isa : WOK_ISA_ref);
    info->dtype = compute_type(plan->program->graph, node);
    info->rejected = choice->rejected;
    info->rejected_count = choice->rejected_count;
    info->rank = -1;
    if (!plan->eager) measure(s, &plan->nodes[index], node, choice, info);
    return WOK_OK;
}

wok_status wok_session_near_miss(wok_session *s, int index, wok_near_miss *miss) {
    *miss = (wok_near_miss){0};
    wok_status status = need_plan(s);
    if (status != WOK_OK) return status;
    const wok_near_misses *list_of = &s->plan->program->near_misses;
    if (index < 0 || index >= list_of->count)
        return fail(s, WOK_ERR_ARGUMENT, "there is no near miss %d: the program has %d", index, list_of->count);
    *miss = list_of->items[index];
    return WOK_OK;
}

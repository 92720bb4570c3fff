/* model_finish.c - the checks that end the building of a model, and reading it back. */
#include "ctx.h"
#include "model.h"
#include "op.h"
#include "passes/pass.h"
#include "tensor.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* IR versions before 4 list every constant among the inputs without meaning that it may be set; operator sets are named
 * from 3 on. */
enum { IR_OPTIONAL_INPUTS = 4, IR_OPERATOR_SETS = 3 };

/* ---- checks ---------------------------------------------------------------------------------------------------------------- */

static void drop_constant_inputs(wok_model *model) {
    wok_graph *graph = model->graph;
    int kept = 0;
    for (int i = 0; i < graph->input_count; i++) {
        wok_ir_value *value = &graph->values[graph->inputs[i]];
        value->is_input = !value->type.data;
        value->declared = NULL;
        if (value->is_input) graph->inputs[kept++] = graph->inputs[i];
    }
    graph->input_count = kept;
}

static const wok_pair *find_opset(const wok_model *model, const char *domain) {
    for (const wok_pair *p = model->opsets; p; p = p->next)
        if (strcmp(p->key, domain) == 0) return p;
    return NULL;
}

/* A domain that is not imported has version 1, but ONNX's own must be. */
static void set_versions(wok_model *model) {
    for (int i = 0; i < model->graph->node_count; i++) {
        wok_ir_node *node = &model->graph->nodes[i];
        const wok_pair *opset = find_opset(model, node->domain);
        node->version = opset ? opset->version : 1;
        if (!opset && !*node->domain && model->info.ir_version >= IR_OPERATOR_SETS) {
            wok_model_fail(model, WOK_ERR_FORMAT, "the model does not say which version of ONNX's operators it uses");
            return;
        }
    }
    const wok_pair *own = find_opset(model, "");
    model->info.opset = own ? own->version : 1;
}

static void check_attributes(wok_model *model) {
    const wok_graph *graph = model->graph;
    for (int i = 0; i < graph->node_count; i++) {
        const wok_ir_node *node = &graph->nodes[i];
        for (int k = 0; k < node->attr_count; k++) {
            const wok_attr *attr = &node->attrs[k];
            if (attr->kind != WOK_ATTR_TENSOR) continue;
            if (attr->u.tensor < 0 || attr->u.tensor >= graph->value_count || !graph->values[attr->u.tensor].type.data)
                wok_model_fail(model, WOK_ERR_FORMAT, "node '%s' (%s): attribute '%s' is no tensor", node->name,
                               node->op_type, attr->name);
        }
    }
}

static const char *opaque_attribute(const wok_ir_node *node) {
    for (int i = 0; i < node->attr_count; i++)
        if (node->attrs[i].kind == WOK_ATTR_OPAQUE) return node->attrs[i].name;
    return NULL;
}

/* Why the node cannot run, in the arena; NULL: it can. */
static const char *unsupported(wok_model *model, const wok_ir_node *node) {
    const char *reason = wok_op_unsupported(node->domain, node->op_type, node->version);
    if (reason) return wok_arena_strdup(model->graph->arena, reason);
    const char *opaque = opaque_attribute(node);
    return opaque ? wok_arena_format(model->graph->arena, "attribute '%s' is of a kind that is not supported", opaque)
                  : NULL;
}

static int by_name(const void *a, const void *b) {
    const wok_op_count *x = a, *y = b;
    int order = strcmp(x->op, y->op);
    return order ? order : strcmp(x->domain, y->domain);
}

/* model->info.ops, and in *first the first node of each kind that is not supported. */
static void count_ops(wok_model *model) {
    const wok_graph *graph = model->graph;
    wok_op_count *ops = wok_arena_alloc(graph->arena, (size_t)(graph->node_count + 1) * sizeof *ops);
    if (!ops) {
        wok_model_fail(model, wok_ctx_last(model->ctx), "%s", wok_ctx_error(model->ctx));
        return;
    }
    int count = 0;
    for (int i = 0; i < graph->node_count; i++) {
        const wok_ir_node *node = &graph->nodes[i];
        int k = 0;
        while (k < count && (strcmp(ops[k].op, node->op_type) || strcmp(ops[k].domain, node->domain))) k++;
        if (k == count) ops[count++] = (wok_op_count){node->domain, node->op_type, 0, NULL};
        ops[k].count++;
        if (!ops[k].unsupported) ops[k].unsupported = unsupported(model, node);
    }
    if (count) qsort(ops, (size_t)count, sizeof *ops, by_name);
    model->info.ops = ops;
    model->info.op_count = count;
}

typedef struct sentence {
    char text[4096];
    size_t used;
} sentence;

static void WOK_PRINTF(2, 3) say(sentence *s, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int length = vsnprintf(s->text + s->used, sizeof s->text - s->used, format, args);
    va_end(args);
    size_t room = sizeof s->text - 1 - s->used;
    s->used += length < 0 ? 0 : (size_t)length < room ? (size_t)length : room;
}

/* All of them in one sentence, kept as the model's error. */
static void list_unsupported(wok_model *model) {
    sentence s = {.used = 0};
    int kinds = 0;
    for (int i = 0; i < model->info.op_count; i++) kinds += model->info.ops[i].unsupported != NULL;
    model->runnable = kinds == 0;
    if (kinds == 0) return;
    say(&s, "%d operator%s of the model %s not supported: ", kinds, kinds == 1 ? "" : "s", kinds == 1 ? "is" : "are");
    for (int i = 0, shown = 0; i < model->info.op_count; i++) {
        const wok_op_count *op = &model->info.ops[i];
        if (!op->unsupported) continue;
        say(&s, "%s%s%s%s (%d node%s): %s", shown++ ? "; " : "", op->domain, *op->domain ? "." : "", op->op, op->count,
            op->count == 1 ? "" : "s", op->unsupported);
    }
    model->error = wok_arena_strdup(model->graph->arena, s.text);
}

/* ---- what people ask about a model ------------------------------------------------------------------------------------------ */

static wok_value_info *describe_values(wok_model *model, const wok_value *list, int count) {
    wok_value_info *infos = wok_arena_alloc(model->graph->arena, (size_t)(count + 1) * sizeof *infos);
    if (!infos) {
        wok_model_fail(model, wok_ctx_last(model->ctx), "%s", wok_ctx_error(model->ctx));
        return NULL;
    }
    for (int i = 0; i < count; i++) {
        const wok_ir_value *value = &model->graph->values[list[i]];
        const wok_type *type = value->declared ? value->declared : &value->type;
        infos[i] = (wok_value_info){.name = value->name,
                                    .dtype = type->dtype,
                                    .rank = type->rank,
                                    .optional = value->is_input && value->type.data};
        for (int d = 0; d < type->rank; d++) {
            infos[i].dims[d] = wok_dim_known(type->dims[d]) ? type->dims[d] : -1;
            infos[i].dim_names[d] = value->dim_names[d];
        }
    }
    return infos;
}

static void describe(wok_model *model) {
    const wok_graph *graph = model->graph;
    model->inputs = describe_values(model, graph->inputs, graph->input_count);
    model->outputs = describe_values(model, graph->outputs, graph->output_count);
    model->info.nodes = graph->node_count;
    for (int v = 0; v < graph->value_count; v++) {
        const wok_ir_value *value = &graph->values[v];
        if (!value->type.data || value->only_attr) continue;
        model->info.weights++;
        model->info.weight_bytes += (int64_t)value->type.bytes;
        model->info.parameters += wok_count(value->type.dims, value->type.rank);
    }
}

/* An output whose type the file does not give, as inference knows it. */
static void complete_output(wok_model *model, int index, const wok_graph *inferred) {
    wok_value_info *info = &model->outputs[index];
    const wok_type *type = &inferred->values[model->graph->outputs[index]].type;
    if (info->dtype == WOK_NONE) info->dtype = type->dtype;
    if (info->rank >= 0 || type->rank < 0) return;
    info->rank = type->rank;
    for (int d = 0; d < type->rank; d++) {
        info->dims[d] = wok_dim_known(type->dims[d]) ? type->dims[d] : -1;
        const char *text = wok_dim_text(inferred, type->dims[d]);
        info->dim_names[d] = info->dims[d] < 0 && text[0] != '?' ? wok_arena_strdup(model->graph->arena, text) : NULL;
    }
}

/* Shapes that can be told from the file alone are wrong now, not at the first run. Only the rewrite that inference needs
 * is done, on a copy. */
static void check_types(wok_model *model) {
    const char *others[64];
    int count = 0;
    for (int i = 0; wok_pass_name(i) && count < 64; i++)
        if (strcmp(wok_pass_name(i), "canonicalize") != 0) others[count++] = wok_pass_name(i);
    wok_near_misses misses = {0};
    wok_graph *copy = wok_ir_clone(model->graph);
    wok_status status =
        copy ? wok_passes_run(copy, &(wok_pass_options){.no_passes = others, .no_pass_count = count}, &misses)
             : wok_ctx_last(model->ctx);
    if (status != WOK_OK) wok_model_fail(model, wok_ctx_settle(model->ctx, status), "%s", wok_ctx_error(model->ctx));
    for (int i = 0; status == WOK_OK && i < model->graph->output_count; i++) complete_output(model, i, copy);
    wok_ir_free(copy);
}

wok_status wok_model_finish(wok_model *model, const wok_load_options *options) {
    wok_graph *graph = model->graph;
    wok_ctx *ctx = model->ctx;
    if (model->finished) return wok_ctx_fail(ctx, WOK_ERR_STATE, "the model is finished already");
    if (model->status == WOK_OK && graph->status == WOK_OK) {
        if (model->info.ir_version < IR_OPTIONAL_INPUTS) drop_constant_inputs(model);
        if (wok_ir_sort(graph) == WOK_OK) set_versions(model);
        if (model->status == WOK_OK) check_attributes(model);
        if (model->status == WOK_OK && graph->output_count == 0)
            wok_model_fail(model, WOK_ERR_FORMAT, "the graph has no outputs");
        if (model->status == WOK_OK) count_ops(model);
        if (model->status == WOK_OK) describe(model);
    }
    if (model->status == WOK_OK && graph->status != WOK_OK)
        wok_model_fail(model, wok_ctx_settle(ctx, graph->status), "%s", wok_ctx_error(ctx));
    if (model->status != WOK_OK) return wok_ctx_fail(ctx, model->status, "%s", model->error);
    list_unsupported(model);
    if (!model->runnable && !(options && options->allow_unsupported))
        return model->status = wok_ctx_fail(ctx, WOK_ERR_UNSUPPORTED, "%s", model->error);
    if (model->runnable) check_types(model);
    if (model->status != WOK_OK) return wok_ctx_fail(ctx, model->status, "%s", model->error);
    model->finished = true;
    return WOK_OK;
}

static int value_index(const wok_value_info *infos, int count, const char *name) {
    for (int i = 0; i < count; i++)
        if (strcmp(infos[i].name, name) == 0) return i;
    return -1;
}

int wok_model_input_count(const wok_model *model) {
    return model->graph->input_count;
}
int wok_model_output_count(const wok_model *model) {
    return model->graph->output_count;
}
const wok_value_info *wok_model_input(const wok_model *model, int i) {
    return model->inputs && i >= 0 && i < model->graph->input_count ? &model->inputs[i] : NULL;
}
const wok_value_info *wok_model_output(const wok_model *model, int i) {
    return model->outputs && i >= 0 && i < model->graph->output_count ? &model->outputs[i] : NULL;
}
int wok_model_input_index(const wok_model *model, const char *name) {
    return model->inputs ? value_index(model->inputs, model->graph->input_count, name) : -1;
}
int wok_model_output_index(const wok_model *model, const char *name) {
    return model->outputs ? value_index(model->outputs, model->graph->output_count, name) : -1;
}
const wok_model_info *wok_model_describe(const wok_model *model) {
    return &model->info;
}

const char *wok_model_metadata(const wok_model *model, const char *key) {
    for (const wok_pair *p = model->metadata; p; p = p->next)
        if (strcmp(p->key, key) == 0) return p->value;
    return NULL;
}

const char *wok_value_info_text(const wok_value_info *info) {
    static _Thread_local char ring[8][320];
    static _Thread_local unsigned next;
    char *text = ring[next++ % 8];
    size_t used = 0, size = sizeof ring[0];
    const char *dtype = info->dtype == WOK_NONE ? "" : wok_dtype_name(info->dtype);
    used += (size_t)snprintf(text, size, "%.120s %s%s", info->name, dtype, info->rank < 0 ? "[...]" : "[");
    for (int d = 0; d < info->rank && used < size - 48; d++) {
        used += (size_t)snprintf(text + used, size - used, d ? "," : "");
        if (info->dims[d] >= 0)
            used += (size_t)snprintf(text + used, size - used, "%lld", (long long)info->dims[d]);
        else
            used += (size_t)snprintf(text + used, size - used, "%.24s", info->dim_names[d] ? info->dim_names[d] : "?");
    }
    if (info->rank >= 0) snprintf(text + used, size - used, "]");
    return text;
}

/* ---- reading the graph back --------------------------------------------------------------------------------------------------- */

int wok_graph_node_count(const wok_model *model) {
    return model->graph->node_count;
}
int wok_graph_value_count(const wok_model *model) {
    return model->graph->value_count;
}

wok_node_view wok_graph_node_at(const wok_model *model, wok_node id) {
    if (id < 0 || id >= model->graph->node_count) return (wok_node_view){.op_type = "", .domain = "", .name = ""};
    const wok_ir_node *node = &model->graph->nodes[id];
    return (wok_node_view){.op_type = node->op_type,
                           .domain = node->domain,
                           .name = node->name,
                           .inputs = node->in,
                           .outputs = node->out,
                           .input_count = node->in_count,
                           .output_count = node->out_count,
                           .attrs = node->attrs,
                           .attr_count = node->attr_count};
}

wok_value_view wok_graph_value_at(const wok_model *model, wok_value v) {
    if (v < 0 || v >= model->graph->value_count) return (wok_value_view){.name = "", .rank = -1};
    const wok_ir_value *value = &model->graph->values[v];
    wok_value_view view = {.name = value->name,
                           .dtype = value->type.dtype,
                           .rank = value->type.rank,
                           .data = value->type.data,
                           .bytes = value->type.bytes,
                           .is_input = value->is_input,
                           .is_output = value->is_output,
                           .only_attr = value->only_attr};
    for (int d = 0; d < view.rank; d++) {
        view.dims[d] = wok_dim_known(value->type.dims[d]) ? value->type.dims[d] : -1;
        view.dim_names[d] = value->dim_names[d];
    }
    return view;
}

const wok_value *wok_graph_inputs(const wok_model *model, int *count) {
    *count = model->graph->input_count;
    return model->graph->inputs;
}

const wok_value *wok_graph_outputs(const wok_model *model, int *count) {
    *count = model->graph->output_count;
    return model->graph->outputs;
}

static const wok_pair *pair_at(const wok_pair *list, int index) {
    while (list && index-- > 0) list = list->next;
    return list;
}

static int pair_count(const wok_pair *list) {
    int count = 0;
    for (; list; list = list->next) count++;
    return count;
}

int wok_model_opset_count(const wok_model *model) {
    return pair_count(model->opsets);
}
const char *wok_model_opset_at(const wok_model *model, int index, int64_t *version) {
    const wok_pair *pair = pair_at(model->opsets, index);
    *version = pair ? pair->version : 0;
    return pair ? pair->key : NULL;
}

int wok_model_metadata_count(const wok_model *model) {
    return pair_count(model->metadata);
}
const char *wok_model_metadata_at(const wok_model *model, int index, const char **value) {
    const wok_pair *pair = pair_at(model->metadata, index);
    *value = pair ? pair->value : NULL;
    return pair ? pair->key : NULL;
}

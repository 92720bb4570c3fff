/* nn.c - see nn.h. */
#include "nn.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

wok_name wok_nn_name(const char *format, ...) {
    wok_name name;
    va_list args;
    va_start(args, format);
    vsnprintf(name.text, sizeof name.text, format, args);
    va_end(args);
    return name;
}

void wok_nn_start(wok_model *model) {
    wok_model_set_ir(model, 10, "wok");
    wok_model_set_opset(model, "", 20);
    wok_model_set_opset(model, "com.microsoft", 1);
}

void wok_nn_output(const wok_nn *nn, wok_value value, int rank, const int64_t *dims, const char *const *names) {
    wok_graph_declare(nn->model, value, WOK_F32, rank, dims, names);
    wok_graph_output(nn->model, value);
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

static const wok_tensor_entry *find(const wok_nn *nn, const char *name) {
    return wok_tensors_find(nn->tensors, wok_nn_name("%s%s", nn->prefix, name).text);
}

bool wok_nn_has(const wok_nn *nn, const char *name) { return find(nn, name) != NULL; }

static const wok_tensor_entry *need(const wok_nn *nn, const char *name) {
    const wok_tensor_entry *entry = find(nn, name);
    if (!entry)
        wok_model_fail(nn->model, WOK_ERR_FORMAT, "%s: tensor '%s%s' is missing", nn->tensors->source, nn->prefix,
                       name);
    return entry;
}

int64_t wok_nn_dim(const wok_nn *nn, const char *name, int axis) {
    const wok_tensor_entry *entry = need(nn, name);
    if (!entry) return 0;
    if (axis < entry->rank && entry->dims[axis] > 0) return entry->dims[axis];
    char shape[128];
    wok_model_fail(nn->model, WOK_ERR_FORMAT, "%s: tensor '%s' has the shape %s, whose axis %d is missing or empty",
                   nn->tensors->source, entry->name, wok_loader_shape(entry->dims, entry->rank, shape, sizeof shape),
                   axis);
    return 0;
}

static bool is_float(wok_dtype dtype) {
    return dtype == WOK_F32 || dtype == WOK_F16 || dtype == WOK_BF16 || dtype == WOK_F64;
}

wok_value wok_nn_tensor(const wok_nn *nn, const char *name, int rank, const int64_t *dims) {
    const wok_tensor_entry *entry = need(nn, name);
    if (!entry) return WOK_ABSENT;
    bool fits = entry->rank == rank;
    for (int i = 0; i < rank && fits; i++) fits = entry->dims[i] == dims[i];
    if (!fits) {
        char have[128], want[128];
        wok_model_fail(nn->model, WOK_ERR_FORMAT, "%s: tensor '%s' has the shape %s where %s is needed",
                       nn->tensors->source, entry->name, wok_loader_shape(entry->dims, entry->rank, have, sizeof have),
                       wok_loader_shape(dims, rank, want, sizeof want));
        return WOK_ABSENT;
    }
    if (!is_float(entry->dtype)) {
        wok_model_fail(nn->model, WOK_ERR_UNSUPPORTED, "%s: tensor '%s' is not F32, F16, BF16 or F64",
                       nn->tensors->source, entry->name);
        return WOK_ABSENT;
    }
    wok_value value = wok_graph_constant(nn->model, entry->name, entry->dtype, rank, dims, entry->data, entry->bytes,
                                         WOK_DATA_BORROW);
    if (entry->dtype == WOK_F32) return value;
    value = wok_graph_op(nn->model, "Cast", "", wok_nn_name("%s/Cast", entry->name).text, &value, 1, NULL);
    wok_node_set_int(nn->model, wok_graph_last(nn->model), "to", WOK_F32);
    return value;
}

/* ---- layers ------------------------------------------------------------------------------------------------------ */

wok_value wok_nn_op(const wok_nn *nn, const char *op, const char *name, const wok_value *inputs, int count) {
    return wok_graph_op(nn->model, op, "", wok_nn_name("%s/%s", name, op).text, inputs, count, NULL);
}

wok_value wok_nn_ints(const wok_nn *nn, const char *name, const int64_t *values, int count) {
    wok_value value = wok_nn_op(nn, "Constant", name, NULL, 0);
    wok_node_set_ints(nn->model, wok_graph_last(nn->model), "value_ints", values, count);
    return value;
}

wok_value wok_nn_scalar(const wok_nn *nn, const char *name, float number) {
    wok_value value = wok_nn_op(nn, "Constant", name, NULL, 0);
    wok_node_set_float(nn->model, wok_graph_last(nn->model), "value_float", number);
    return value;
}

wok_value wok_nn_linear(const wok_nn *nn, wok_value x, const char *name, int64_t in, int64_t out, const char *output) {
    wok_value weight = wok_nn_tensor(nn, wok_nn_name("%s.weight", name).text, 2, (int64_t[]){out, in});
    wok_value bias = wok_nn_tensor(nn, wok_nn_name("%s.bias", name).text, 1, &out);
    wok_value y = wok_graph_op(nn->model, "Gemm", "", wok_nn_name("%s/Gemm", name).text, (wok_value[]){x, weight, bias},
                               3, output);
    wok_node_set_int(nn->model, wok_graph_last(nn->model), "transB", 1);
    return y;
}

wok_value wok_nn_linear_sequence(const wok_nn *nn, wok_value x, const char *name, int64_t in, int64_t out) {
    wok_value weight = wok_nn_tensor(nn, wok_nn_name("%s.weight", name).text, 2, (int64_t[]){out, in});
    wok_value bias = wok_nn_tensor(nn, wok_nn_name("%s.bias", name).text, 1, &out);
    wok_value y = wok_graph_op(nn->model, "FusedMatMul", "com.microsoft", wok_nn_name("%s/MatMul", name).text,
                               (wok_value[]){x, weight}, 2, NULL);
    wok_node_set_int(nn->model, wok_graph_last(nn->model), "transB", 1);
    return wok_nn_op(nn, "Add", name, (wok_value[]){y, bias}, 2);
}

wok_value wok_nn_layer_norm(const wok_nn *nn, wok_value x, const char *name, int64_t width, float epsilon,
                            const char *output) {
    bool early =
        !wok_nn_has(nn, wok_nn_name("%s.weight", name).text) && wok_nn_has(nn, wok_nn_name("%s.gamma", name).text);
    wok_value scale = wok_nn_tensor(nn, wok_nn_name("%s.%s", name, early ? "gamma" : "weight").text, 1, &width);
    wok_value bias = wok_nn_tensor(nn, wok_nn_name("%s.%s", name, early ? "beta" : "bias").text, 1, &width);
    wok_value y = wok_graph_op(nn->model, "LayerNormalization", "", wok_nn_name("%s/LayerNormalization", name).text,
                               (wok_value[]){x, scale, bias}, 3, output);
    wok_node_set_int(nn->model, wok_graph_last(nn->model), "axis", -1);
    wok_node_set_float(nn->model, wok_graph_last(nn->model), "epsilon", epsilon);
    return y;
}

static wok_value batch_norm(const wok_nn *nn, wok_value x, const char *name, int64_t width) {
    static const char *const parts[] = {"weight", "bias", "running_mean", "running_var"};
    wok_value inputs[5] = {x};
    for (int i = 0; i < 4; i++) inputs[i + 1] = wok_nn_tensor(nn, wok_nn_name("%s.%s", name, parts[i]).text, 1, &width);
    wok_value y = wok_nn_op(nn, "BatchNormalization", name, inputs, 5);
    wok_node_set_float(nn->model, wok_graph_last(nn->model), "epsilon", 1e-5f);
    return y;
}

wok_value wok_nn_conv_bn(const wok_nn *nn, wok_value x, const char *conv, const char *bn, int64_t in, int64_t out,
                         int64_t kernel, int64_t stride, int64_t groups) {
    int64_t pad = kernel / 2, dims[] = {out, groups > 0 ? in / groups : 0, kernel, kernel};
    wok_value weight = wok_nn_tensor(nn, wok_nn_name("%s.weight", conv).text, 4, dims);
    wok_value y = wok_nn_op(nn, "Conv", conv, (wok_value[]){x, weight}, 2);
    wok_node node = wok_graph_last(nn->model);
    wok_node_set_ints(nn->model, node, "kernel_shape", (int64_t[]){kernel, kernel}, 2);
    wok_node_set_ints(nn->model, node, "strides", (int64_t[]){stride, stride}, 2);
    wok_node_set_ints(nn->model, node, "pads", (int64_t[]){pad, pad, pad, pad}, 4);
    wok_node_set_int(nn->model, node, "group", groups);
    return batch_norm(nn, y, bn, out);
}

void wok_nn_logits(const wok_nn *nn, wok_value x, const char *name, int64_t in) {
    int64_t labels = wok_nn_dim(nn, wok_nn_name("%s.weight", name).text, 0);
    wok_value logits = wok_nn_linear(nn, x, name, in, labels, "logits");
    wok_nn_output(nn, logits, 2, (int64_t[]){-1, labels}, (const char *[]){"batch", NULL});
}

void wok_nn_classifier(const wok_nn *nn, wok_value x, const char *name, int64_t in) {
    wok_value mean = wok_nn_op(nn, "GlobalAveragePool", name, &x, 1);
    wok_value flat = wok_nn_op(nn, "Flatten", name, &mean, 1);
    wok_node_set_int(nn->model, wok_graph_last(nn->model), "axis", 1);
    wok_nn_logits(nn, flat, name, in);
}

/* mobilenet_v2.c - MobileNetV2 from tensors named as torchvision names them.
 *
 * Source: Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks" (2018), in torchvision's form.
 * Widths and expansions are read from the tensors, strides are the architecture's. A block has a shortcut where it
 * keeps the size and the number of channels: torchvision's rule, which slim variants meet in blocks that the full one
 * does not. */
#include "nn.h"

static const int strides[] = {1, 2, 1, 2, 1, 1, 2, 1, 1, 1, 1, 1, 1, 2, 1, 1, 1};
enum { BLOCKS = sizeof strides / sizeof *strides };

typedef struct net {
    const wok_nn *nn;
    wok_value zero, six;
} net;

static wok_value relu6(const net *n, wok_value x, const char *name) {
    return wok_nn_op(n->nn, "Clip", name, (wok_value[]){x, n->zero, n->six}, 3);
}

/* A convolution NAME.0 with its normalisation NAME.1 and ReLU6. */
static wok_value conv_relu6(const net *n, wok_value x, const char *name, int64_t in, int64_t out, int64_t kernel,
                            int64_t stride, int64_t groups) {
    wok_name conv = wok_nn_name("%s.0", name), bn = wok_nn_name("%s.1", name);
    return relu6(n, wok_nn_conv_bn(n->nn, x, conv.text, bn.text, in, out, kernel, stride, groups), name);
}

static int64_t width_of(const net *n, const char *name) {
    return wok_nn_dim(n->nn, wok_nn_name("%s.weight", name).text, 0);
}

static wok_value block(const net *n, wok_value x, int index, int64_t *width) {
    const wok_nn *nn = n->nn;
    wok_name name = wok_nn_name("features.%d.conv", index);
    bool expands = wok_nn_has(nn, wok_nn_name("%s.3.weight", name.text).text);
    int64_t in = *width, wide = in, stride = strides[index - 1];
    wok_value y = x;
    if (expands) {
        wok_name expand = wok_nn_name("%s.0", name.text);
        wide = width_of(n, wok_nn_name("%s.0", expand.text).text);
        y = conv_relu6(n, y, expand.text, in, wide, 1, 1, 1);
    }
    y = conv_relu6(n, y, wok_nn_name("%s.%d", name.text, expands).text, wide, wide, 3, stride, wide);
    wok_name project = wok_nn_name("%s.%d", name.text, expands + 1), bn = wok_nn_name("%s.%d", name.text, expands + 2);
    int64_t out = width_of(n, project.text);
    y = wok_nn_conv_bn(nn, y, project.text, bn.text, wide, out, 1, 1, 1);
    *width = out;
    return stride == 1 && in == out ? wok_nn_op(nn, "Add", name.text, (wok_value[]){x, y}, 2) : y;
}

void wok_build_mobilenet_v2(const wok_nn *nn) {
    int64_t channels = wok_nn_dim(nn, "features.0.0.weight", 1), width = wok_nn_dim(nn, "features.0.0.weight", 0);
    wok_value x = wok_graph_input(nn->model, "input", WOK_F32, 4, (int64_t[]){-1, channels, -1, -1},
                                  (const char *[]){"batch", NULL, "height", "width"});
    net n = {nn, wok_nn_scalar(nn, "zero", 0), wok_nn_scalar(nn, "six", 6)};
    x = conv_relu6(&n, x, "features.0", channels, width, 3, 2, 1);
    for (int i = 1; i <= BLOCKS && !wok_model_failed(nn->model); i++) x = block(&n, x, i, &width);
    if (wok_model_failed(nn->model)) return;
    int64_t last = wok_nn_dim(nn, "features.18.0.weight", 0);
    x = conv_relu6(&n, x, "features.18", width, last, 1, 1, 1);
    wok_nn_classifier(nn, x, "classifier.1", last);
}

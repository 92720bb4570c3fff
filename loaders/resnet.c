/* resnet.c - ResNet of basic blocks (18, 34 and slimmed ones) from tensors named as torchvision names them.
 *
 * Source: He et al., "Deep Residual Learning for Image Recognition" (2015), in torchvision's form. Widths and the
 * number of blocks are read from the tensors; strides are the architecture's: 2 in the stem, the pool and where
 * layers 2 to 4 begin. */
#include "nn.h"

static wok_value relu(const wok_nn *nn, wok_value x, const char *name) { return wok_nn_op(nn, "Relu", name, &x, 1); }

static wok_value block(const wok_nn *nn, wok_value x, const char *name, int64_t *width, int64_t stride) {
    wok_name conv1 = wok_nn_name("%s.conv1", name), conv2 = wok_nn_name("%s.conv2", name);
    int64_t in = *width, middle = wok_nn_dim(nn, wok_nn_name("%s.weight", conv1.text).text, 0);
    int64_t out = wok_nn_dim(nn, wok_nn_name("%s.weight", conv2.text).text, 0);
    wok_value y = wok_nn_conv_bn(nn, x, conv1.text, wok_nn_name("%s.bn1", name).text, in, middle, 3, stride, 1);
    y = relu(nn, y, conv1.text);
    y = wok_nn_conv_bn(nn, y, conv2.text, wok_nn_name("%s.bn2", name).text, middle, out, 3, 1, 1);
    if (stride != 1 || in != out || wok_nn_has(nn, wok_nn_name("%s.downsample.0.weight", name).text))
        x = wok_nn_conv_bn(nn, x, wok_nn_name("%s.downsample.0", name).text, wok_nn_name("%s.downsample.1", name).text,
                           in, out, 1, stride, 1);
    *width = out;
    y = wok_nn_op(nn, "Add", name, (wok_value[]){y, x}, 2);
    return relu(nn, y, name);
}

static wok_value stem(const wok_nn *nn, int64_t *width) {
    int64_t channels = wok_nn_dim(nn, "conv1.weight", 1);
    *width = wok_nn_dim(nn, "conv1.weight", 0);
    wok_value x = wok_graph_input(nn->model, "input", WOK_F32, 4, (int64_t[]){-1, channels, -1, -1},
                                  (const char *[]){"batch", NULL, "height", "width"});
    x = relu(nn, wok_nn_conv_bn(nn, x, "conv1", "bn1", channels, *width, 7, 2, 1), "conv1");
    x = wok_nn_op(nn, "MaxPool", "maxpool", &x, 1);
    wok_node pool = wok_graph_last(nn->model);
    wok_node_set_ints(nn->model, pool, "kernel_shape", (int64_t[]){3, 3}, 2);
    wok_node_set_ints(nn->model, pool, "strides", (int64_t[]){2, 2}, 2);
    wok_node_set_ints(nn->model, pool, "pads", (int64_t[]){1, 1, 1, 1}, 4);
    return x;
}

void wok_build_resnet(const wok_nn *nn) {
    int64_t width;
    if (wok_nn_has(nn, "layer1.0.conv3.weight")) {
        wok_model_fail(nn->model, WOK_ERR_UNSUPPORTED, "%s: bottleneck blocks (ResNet-50 and deeper) are not supported",
                       nn->tensors->source);
        return;
    }
    wok_value x = stem(nn, &width);
    for (int layer = 1; layer <= 4; layer++) {
        int b = 0;
        do {
            x = block(nn, x, wok_nn_name("layer%d.%d", layer, b).text, &width, layer > 1 && b == 0 ? 2 : 1);
            b++;
        } while (!wok_model_failed(nn->model) && wok_nn_has(nn, wok_nn_name("layer%d.%d.conv1.weight", layer, b).text));
    }
    wok_nn_classifier(nn, x, "fc", width);
}

/* nn.h - layers by the names of their tensors: what the architectures that come without a graph are built of
 * (internal).
 *
 * Every function records its failure in the model (a tensor that is missing, a shape that does not fit) and goes on
 * with WOK_ABSENT: builders check once, by wok_model_finish. Node names are tensor names with the operator behind
 * them.
 *
 * The graph is plain ONNX, opset 20. Weights stay as checkpoints hold them, [out,in]: a linear layer on rows is Gemm
 * with transB, on sequences FusedMatMul (com.microsoft) with transB and Add, so that packing reads them in place.
 * Half-precision tensors get a Cast, which folds away. Shapes and scalars are Constant nodes: the model's constants
 * are the checkpoint's. /
 */
#ifndef WOK_NN_H
#define WOK_NN_H

#include "safetensors.h"

typedef struct wok_nn {
    wok_model *model;
    const wok_tensors *tensors;
    const char *prefix; /* before every tensor name: "", "bert." */
} wok_nn;

/* Operator sets, IR version and producer of a model that is built here. */
void wok_nn_start(wok_model *model);
/* Marks an output, f32, with free dimensions -1 called names[i]. */
void wok_nn_output(const wok_nn *nn, wok_value value, int rank, const int64_t *dims, const char *const *names);

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

enum { WOK_NN_NAME = 256 };
typedef struct wok_name {
    char text[WOK_NN_NAME];
} wok_name;
wok_name wok_nn_name(const char *format, ...) WOK_PRINTF(1, 2);

bool wok_nn_has(const wok_nn *nn, const char *name);
/* Size of one axis; 0 (recorded as a failure) where the tensor is missing or has fewer. */
int64_t wok_nn_dim(const wok_nn *nn, const char *name, int axis);
/* The constant of this name as f32, of exactly these dims. */
wok_value wok_nn_tensor(const wok_nn *nn, const char *name, int rank, const int64_t *dims);

/* ---- layers ------------------------------------------------------------------------------------------------------ */

/* One node with one output. */
wok_value wok_nn_op(const wok_nn *nn, const char *op, const char *name, const wok_value *inputs, int count);
wok_value wok_nn_ints(const wok_nn *nn, const char *name, const int64_t *values, int count); /* [count] of i64 */
wok_value wok_nn_scalar(const wok_nn *nn, const char *name, float value);
/* NAME.weight [out,in], NAME.bias [out] on [batch,in]. `output` names the result; NULL: a fresh name. */
wok_value wok_nn_linear(const wok_nn *nn, wok_value x, const char *name, int64_t in, int64_t out, const char *output);
/* The same on [batch,sequence,in]. */
wok_value wok_nn_linear_sequence(const wok_nn *nn, wok_value x, const char *name, int64_t in, int64_t out);
/* NAME.weight, NAME.bias, or NAME.gamma, NAME.beta as early checkpoints call them; over the last axis. */
wok_value wok_nn_layer_norm(const wok_nn *nn, wok_value x, const char *name, int64_t width, float epsilon,
                            const char *output);
/* CONV.weight [out,in/groups,kernel,kernel] with padding kernel/2 and no bias, then the batch normalisation BN.*. */
wok_value wok_nn_conv_bn(const wok_nn *nn, wok_value x, const char *conv, const char *bn, int64_t in, int64_t out,
                         int64_t kernel, int64_t stride, int64_t groups);
/* The linear layer NAME as the model's output "logits" [batch,labels]. */
void wok_nn_logits(const wok_nn *nn, wok_value x, const char *name, int64_t in);
/* Mean over the picture, then the logits. */
void wok_nn_classifier(const wok_nn *nn, wok_value x, const char *name, int64_t in);

/* ---- architectures ----------------------------------------------------------------------------------------------- */

/* The tensors' elements must outlive the model. Each makes the model's inputs, nodes and outputs. */
void wok_build_resnet(const wok_nn *nn);
void wok_build_mobilenet_v2(const wok_nn *nn);

#endif

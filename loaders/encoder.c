/* encoder.c - the transformer encoder with normalisation behind each residual (Vaswani et al. 2017, Devlin et al.
 * 2018), written as exporters write it, so that the same rewrites find it. */
#include "encoder.h"

#include <math.h>
#include <string.h>

/* ---- embeddings -------------------------------------------------------------------------------------------------- */

/* An input [batch,sequence] of whole numbers with a default of its own, smaller shape. */
static wok_value optional_input(const wok_nn *nn, const char *name, const int64_t *values, int64_t count) {
    wok_value input =
        wok_graph_input(nn->model, name, WOK_I64, 2, (int64_t[]){-1, -1}, (const char *[]){"batch", "sequence"});
    wok_graph_constant(nn->model, name, WOK_I64, 2, (int64_t[]){1, count}, values, (size_t)count * sizeof *values,
                       WOK_DATA_COPY);
    return input;
}

static wok_value table(const wok_nn *nn, const char *name, int64_t rows, int64_t width) {
    return wok_nn_tensor(nn, wok_nn_name("%s.weight", name).text, 2, (int64_t[]){rows, width});
}

/* ONNX's Gather counts negative indices from the end, PyTorch's embedding refuses them: a negative id moves below the
 * range of both, so that a damaged token is an error and not somebody's embedding. */
static wok_value lookup(const wok_nn *nn, const char *name, wok_value data, int64_t rows, wok_value ids) {
    wok_value zero = wok_nn_ints(nn, name, (int64_t[]){0}, 1), count = wok_nn_ints(nn, name, &rows, 1);
    wok_value negative = wok_nn_op(nn, "Less", name, (wok_value[]){ids, zero}, 2);
    wok_value below = wok_nn_op(nn, "Sub", name, (wok_value[]){ids, count}, 2);
    ids = wok_nn_op(nn, "Where", name, (wok_value[]){negative, below, ids}, 3);
    return wok_nn_op(nn, "Gather", name, (wok_value[]){data, ids}, 2);
}

/* 0, 1, ..., positions - 1 as the default of position_ids. The table was found to have so many rows: a damaged config
 * cannot ask for more memory than the file has. */
static wok_value position_input(const wok_nn *nn, int64_t positions) {
    if (wok_model_failed(nn->model)) return WOK_ABSENT;
    wok_ctx *ctx = wok_model_ctx(nn->model);
    size_t bytes = (size_t)positions * sizeof(int64_t);
    int64_t *row = wok_ctx_alloc(ctx, bytes);
    if (!row) {
        wok_model_fail(nn->model, WOK_ERR_MEMORY, "no memory for %lld positions", (long long)positions);
        return WOK_ABSENT;
    }
    for (int64_t i = 0; i < positions; i++) row[i] = i;
    wok_value ids = optional_input(nn, "position_ids", row, positions);
    wok_ctx_release(ctx, row, bytes);
    return ids;
}

/* position_ids[:, :sequence]: all of what a caller gives, the front of the default. */
static wok_value cut_positions(const wok_nn *nn, wok_value positions, wok_value input_ids) {
    wok_value length = wok_nn_op(nn, "Shape", "embeddings.sequence", &input_ids, 1);
    wok_node_set_int(nn->model, wok_graph_last(nn->model), "start", 1);
    wok_value zero = wok_nn_ints(nn, "embeddings.zero", (int64_t[]){0}, 1);
    wok_value one = wok_nn_ints(nn, "embeddings.one", (int64_t[]){1}, 1);
    return wok_nn_op(nn, "Slice", "embeddings.position_ids", (wok_value[]){positions, zero, length, one}, 4);
}

wok_value wok_encoder_embed(const wok_nn *nn, const wok_encoder_config *config, wok_value *mask) {
    static const char word[] = "embeddings.word_embeddings", type[] = "embeddings.token_type_embeddings",
                      position[] = "embeddings.position_embeddings";
    bool typed = config->types > 0;
    wok_value words = table(nn, word, config->vocabulary, config->width);
    wok_value places = table(nn, position, config->positions, config->width);
    wok_value kinds = typed ? table(nn, type, config->types, config->width) : WOK_ABSENT;
    wok_value ids =
        wok_graph_input(nn->model, "input_ids", WOK_I64, 2, (int64_t[]){-1, -1}, (const char *[]){"batch", "sequence"});
    *mask = optional_input(nn, "attention_mask", (int64_t[]){1}, 1);
    wok_value type_ids = typed ? optional_input(nn, "token_type_ids", (int64_t[]){0}, 1) : WOK_ABSENT;
    wok_value position_ids = position_input(nn, config->positions);
    wok_value sum = lookup(nn, word, words, config->vocabulary, ids);
    if (typed) {
        wok_value kind = lookup(nn, type, kinds, config->types, type_ids);
        sum = wok_nn_op(nn, "Add", type, (wok_value[]){sum, kind}, 2);
    }
    wok_value place = lookup(nn, position, places, config->positions, cut_positions(nn, position_ids, ids));
    sum = wok_nn_op(nn, "Add", position, (wok_value[]){sum, place}, 2);
    return wok_nn_layer_norm(nn, sum, "embeddings.LayerNorm", config->width, config->epsilon, NULL);
}

wok_value wok_encoder_first_token(const wok_nn *nn, wok_value hidden) {
    wok_value zero = wok_nn_op(nn, "Constant", "first_token.index", NULL, 0);
    wok_node_set_int(nn->model, wok_graph_last(nn->model), "value_int", 0);
    wok_value first = wok_nn_op(nn, "Gather", "first_token", (wok_value[]){hidden, zero}, 2);
    wok_node_set_int(nn->model, wok_graph_last(nn->model), "axis", 1);
    return first;
}

void wok_encoder_output(const wok_nn *nn, const wok_encoder_config *config, wok_value hidden) {
    wok_nn_output(nn, hidden, 3, (int64_t[]){-1, -1, config->width}, (const char *[]){"batch", "sequence", NULL});
}

/* ---- layers ------------------------------------------------------------------------------------------------------ */

/* What all layers share. */
typedef struct shared {
    const wok_nn *nn;
    const wok_encoder_config *config;
    wok_value bias;  /* added to the scores: [batch,1,1,sequence], 0 or the lowest float */
    wok_value split; /* [0,0,heads,width/heads] */
    wok_value join;  /* [0,0,width] */
    wok_value root;  /* sqrt(width/heads) */
} shared;

/* (1 - mask) * lowest, as PyTorch's models make it. */
static wok_value key_bias(const wok_nn *nn, wok_value mask) {
    wok_value axes = wok_nn_ints(nn, "mask.axes", (int64_t[]){1, 2}, 2);
    mask = wok_nn_op(nn, "Unsqueeze", "mask", (wok_value[]){mask, axes}, 2);
    mask = wok_nn_op(nn, "Cast", "mask", &mask, 1);
    wok_node_set_int(nn->model, wok_graph_last(nn->model), "to", WOK_F32);
    mask = wok_nn_op(nn, "Sub", "mask", (wok_value[]){wok_nn_scalar(nn, "mask.one", 1), mask}, 2);
    return wok_nn_op(nn, "Mul", "mask", (wok_value[]){mask, wok_nn_scalar(nn, "mask.lowest", -3.4028234663852886e38f)},
                     2);
}

static wok_value transpose(const wok_nn *nn, wok_value x, const char *name, int64_t a, int64_t b, int64_t c,
                           int64_t d) {
    wok_value y = wok_nn_op(nn, "Transpose", name, &x, 1);
    wok_node_set_ints(nn->model, wok_graph_last(nn->model), "perm", (int64_t[]){a, b, c, d}, 4);
    return y;
}

/* A projection, split into heads: [batch,heads,sequence,depth], or its last two axes swapped. */
static wok_value project(const shared *s, wok_value x, const char *name, bool swapped) {
    wok_value y = wok_nn_linear_sequence(s->nn, x, name, s->config->width, s->config->width);
    y = wok_nn_op(s->nn, "Reshape", name, (wok_value[]){y, s->split}, 2);
    return swapped ? transpose(s->nn, y, name, 0, 2, 3, 1) : transpose(s->nn, y, name, 0, 2, 1, 3);
}

static wok_value attention(const shared *s, wok_value x, const char *layer, const wok_encoder_names *names) {
    const wok_nn *nn = s->nn;
    wok_name name = wok_nn_name("%sattention", layer);
    wok_value q = project(s, x, wok_nn_name("%s%s", layer, names->query).text, false);
    wok_value k = project(s, x, wok_nn_name("%s%s", layer, names->key).text, true);
    wok_value v = project(s, x, wok_nn_name("%s%s", layer, names->value).text, false);
    wok_value scores = wok_nn_op(nn, "MatMul", wok_nn_name("%s.scores", name.text).text, (wok_value[]){q, k}, 2);
    scores = wok_nn_op(nn, "Div", name.text, (wok_value[]){scores, s->root}, 2);
    scores = wok_nn_op(nn, "Add", name.text, (wok_value[]){scores, s->bias}, 2);
    wok_value shares = wok_nn_op(nn, "Softmax", name.text, &scores, 1);
    wok_node_set_int(nn->model, wok_graph_last(nn->model), "axis", -1);
    wok_value mixed = wok_nn_op(nn, "MatMul", wok_nn_name("%s.mix", name.text).text, (wok_value[]){shares, v}, 2);
    mixed = transpose(nn, mixed, name.text, 0, 2, 1, 3);
    mixed = wok_nn_op(nn, "Reshape", name.text, (wok_value[]){mixed, s->join}, 2);
    return wok_nn_linear_sequence(nn, mixed, wok_nn_name("%s%s", layer, names->attention_out).text, s->config->width,
                                  s->config->width);
}

static wok_value activate(const shared *s, wok_value x, const char *name) {
    static const struct {
        const char *names, *op, *approximate;
    } known[] = {{" gelu gelu_python ", "Gelu", "none"},
                 {" gelu_new gelu_fast gelu_pytorch_tanh gelu_python_tanh ", "Gelu", "tanh"},
                 {" relu ", "Relu", NULL},
                 {" silu swish ", "Swish", NULL},
                 {" tanh ", "Tanh", NULL}};
    wok_name want = wok_nn_name(" %s ", s->config->activation);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (!strstr(known[i].names, want.text)) continue;
        wok_value y = wok_nn_op(s->nn, known[i].op, name, &x, 1);
        if (known[i].approximate)
            wok_node_set_string(s->nn->model, wok_graph_last(s->nn->model), "approximate", known[i].approximate, 4);
        return y;
    }
    wok_model_fail(s->nn->model, WOK_ERR_UNSUPPORTED, "the activation '%s' is not supported", s->config->activation);
    return WOK_ABSENT;
}

static wok_value residual_norm(const shared *s, wok_value x, wok_value y, const char *name, const char *output) {
    y = wok_nn_op(s->nn, "Add", wok_nn_name("%s.residual", name).text, (wok_value[]){y, x}, 2);
    return wok_nn_layer_norm(s->nn, y, name, s->config->width, s->config->epsilon, output);
}

static wok_value layer(const shared *s, wok_value x, const char *prefix, const wok_encoder_names *names,
                       const char *output) {
    wok_value y = attention(s, x, prefix, names);
    x = residual_norm(s, x, y, wok_nn_name("%s%s", prefix, names->attention_norm).text, NULL);
    wok_name inner = wok_nn_name("%s%s", prefix, names->inner);
    y = wok_nn_linear_sequence(s->nn, x, inner.text, s->config->width, s->config->inner);
    y = activate(s, y, inner.text);
    y = wok_nn_linear_sequence(s->nn, y, wok_nn_name("%s%s", prefix, names->outer).text, s->config->inner,
                               s->config->width);
    return residual_norm(s, x, y, wok_nn_name("%s%s", prefix, names->output_norm).text, output);
}

wok_value wok_encoder_layers(const wok_nn *nn, const wok_encoder_config *config, const wok_encoder_names *names,
                             wok_value hidden, wok_value mask, const char *output) {
    int64_t depth = config->width / config->heads;
    shared s = {nn, config, key_bias(nn, mask), WOK_ABSENT, WOK_ABSENT, WOK_ABSENT};
    s.split = wok_nn_ints(nn, "attention.split", (int64_t[]){0, 0, config->heads, depth}, 4);
    s.join = wok_nn_ints(nn, "attention.join", (int64_t[]){0, 0, config->width}, 3);
    s.root = wok_nn_scalar(nn, "attention.root", sqrtf((float)depth));
    for (int64_t i = 0; i < config->layers && !wok_model_failed(nn->model); i++) {
        wok_name prefix = wok_nn_name("%s.%lld.", names->layer, (long long)i);
        hidden = layer(&s, hidden, prefix.text, names, i + 1 == config->layers ? output : NULL);
    }
    return hidden;
}

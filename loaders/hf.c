/* hf.c - a Hugging Face folder: config.json says what the tensors of model.safetensors are. Every number that the
 * graph is built with is read from the config and checked against the tensors' shapes where they are used (nn.c). */
#define _DEFAULT_SOURCE
#include "encoder.h"

#include "mapfile.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct config_reader {
    wok_ctx *ctx;
    const wok_json *doc;
    const char *path;
    wok_status status; /* the first failure sticks */
} config_reader;

static void fail_field(config_reader *r, const char *key, const char *what) {
    if (r->status == WOK_OK) r->status = wok_ctx_fail(r->ctx, WOK_ERR_FORMAT, "%s: %s %s", r->path, key, what);
}

/* Sizes beyond this are no encoder: products of two stay far from overflow. */
static int64_t size_field(config_reader *r, const char *key, int64_t fallback) {
    int64_t value = fallback;
    wok_json_at at = wok_json_get(r->doc, wok_json_root(r->doc), key);
    bool there = at >= 0 && wok_json_int(r->doc, at, &value);
    if (!there && (at >= 0 || fallback < 0)) fail_field(r, key, "is missing or no whole number");
    if (there && (value < 1 || value > 1 << 24)) fail_field(r, key, "is out of range");
    return r->status == WOK_OK ? value : 1;
}

static bool flag_field(config_reader *r, const char *key) {
    bool value = false;
    wok_json_bool(r->doc, wok_json_get(r->doc, wok_json_root(r->doc), key), &value);
    return value;
}

static void text_field(config_reader *r, const char *key, char *out, size_t size) {
    size_t length = 0;
    const char *text = wok_json_string(r->doc, wok_json_get(r->doc, wok_json_root(r->doc), key), &length);
    if (!text || length == 0 || length >= size || strlen(text) != length)
        fail_field(r, key, "is missing or no plain text");
    else
        memcpy(out, text, length + 1);
}

static float epsilon_field(config_reader *r, const char *key, double fallback) {
    double value = fallback;
    wok_json_at at = wok_json_get(r->doc, wok_json_root(r->doc), key);
    if (at >= 0 && (!wok_json_double(r->doc, at, &value) || !(value >= 0 && value < 1)))
        fail_field(r, key, "is no number between 0 and 1");
    return (float)value;
}

/* Which head the checkpoint was saved with; without `architectures` the tensors tell. */
static bool wants_classifier(const config_reader *r, const wok_tensors *tensors) {
    wok_json_at list = wok_json_get(r->doc, wok_json_root(r->doc), "architectures");
    if (wok_json_count(r->doc, list) == 0) return wok_tensors_find(tensors, "classifier.weight") != NULL;
    wok_json_each(r->doc, item, list) {
        const char *name = wok_json_string(r->doc, item, NULL), *head = name ? strstr(name, "For") : NULL;
        if (head && !strcmp(head, "ForSequenceClassification")) return true;
        if (head) wok_ctx_log(r->ctx, WOK_LOG_INFO, "%s: the head of %s is left out", r->path, name);
    }
    return false;
}

static void read_bert(config_reader *r, wok_encoder_config *config) {
    char position[32] = "absolute";
    config->vocabulary = size_field(r, "vocab_size", -1);
    config->positions = size_field(r, "max_position_embeddings", -1);
    config->types = size_field(r, "type_vocab_size", 2);
    config->width = size_field(r, "hidden_size", -1);
    config->inner = size_field(r, "intermediate_size", -1);
    config->heads = size_field(r, "num_attention_heads", -1);
    config->layers = size_field(r, "num_hidden_layers", -1);
    config->epsilon = epsilon_field(r, "layer_norm_eps", 1e-12);
    text_field(r, "hidden_act", config->activation, sizeof config->activation);
    if (wok_json_get(r->doc, wok_json_root(r->doc), "position_embedding_type") >= 0)
        text_field(r, "position_embedding_type", position, sizeof position);
    if (flag_field(r, "is_decoder")) fail_field(r, "is_decoder", "is true: decoders are not supported");
    if (strcmp(position, "absolute")) fail_field(r, "position_embedding_type", "is not 'absolute'");
}

static void read_distilbert(config_reader *r, wok_encoder_config *config) {
    config->vocabulary = size_field(r, "vocab_size", -1);
    config->positions = size_field(r, "max_position_embeddings", -1);
    config->width = size_field(r, "dim", -1);
    config->inner = size_field(r, "hidden_dim", -1);
    config->heads = size_field(r, "n_heads", -1);
    config->layers = size_field(r, "n_layers", -1);
    config->epsilon = 1e-12f; /* not configurable there */
    text_field(r, "activation", config->activation, sizeof config->activation);
}

static void build(config_reader *r, const wok_tensors *tensors, bool distil, wok_model **model) {
    wok_encoder_config config = {.layers = 0};
    (distil ? read_distilbert : read_bert)(r, &config);
    if (r->status == WOK_OK && config.width % config.heads != 0)
        fail_field(r, "the number of attention heads", "does not divide the width");
    if (r->status == WOK_OK) r->status = wok_model_new(r->ctx, distil ? "hf-distilbert" : "hf-bert", model);
    if (r->status != WOK_OK) return;
    wok_nn_start(*model);
    config.classifies = wants_classifier(r, tensors);
    const char *prefix = distil ? "distilbert." : "bert.";
    wok_name word = wok_nn_name("%sembeddings.word_embeddings.weight", prefix), positions;
    wok_nn nn = {*model, tensors, wok_tensors_find(tensors, word.text) ? prefix : ""};
    positions = wok_nn_name("%lld", (long long)config.positions);
    wok_model_set_metadata(*model, "max_position_embeddings", positions.text);
    (distil ? wok_build_distilbert : wok_build_bert)(&nn, &config);
}

/* "FOLDER/NAME"; NULL where it does not fit. */
static const char *join(char *buffer, size_t size, const char *folder, const char *name) {
    size_t n = strlen(folder);
    int used = snprintf(buffer, size, "%s%s%s", folder, n > 0 && folder[n - 1] == '/' ? "" : "/", name);
    return used > 0 && (size_t)used < size ? buffer : NULL;
}

/* Says which of the forms that are not read is there. */
static wok_status no_weights(wok_ctx *ctx, const char *folder) {
    static const struct {
        const char *file, *what;
    } others[] = {{"model.safetensors.index.json", "sharded checkpoints are"},
                  {"pytorch_model.bin", "pickled checkpoints are"},
                  {"pytorch_model.bin.index.json", "pickled checkpoints are"},
                  {"tf_model.h5", "TensorFlow checkpoints are"},
                  {"flax_model.msgpack", "Flax checkpoints are"}};
    char path[4096];
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (join(path, sizeof path, folder, others[i].file) && access(path, F_OK) == 0)
            return wok_ctx_fail(ctx, WOK_ERR_UNSUPPORTED, "%s: %s not supported; model.safetensors is needed", path,
                                others[i].what);
    return wok_ctx_fail(ctx, WOK_ERR_IO, "%s: there is no model.safetensors", folder);
}

static wok_status load(wok_ctx *ctx, const char *config_path, const char *weights_path, wok_mapfile *map,
                       wok_model **model) {
    config_reader r = {ctx, NULL, config_path, WOK_OK};
    wok_json *doc = NULL;
    wok_tensors tensors = {.ctx = ctx};
    char type[64] = "";
    wok_source source = {.data = map->data, .bytes = map->bytes, .name = weights_path};
    r.status = wok_json_load(ctx, config_path, &doc);
    r.doc = doc;
    if (r.status == WOK_OK) text_field(&r, "model_type", type, sizeof type);
    if (r.status == WOK_OK && strcmp(type, "bert") && strcmp(type, "distilbert"))
        r.status = wok_ctx_fail(ctx, WOK_ERR_UNSUPPORTED,
                                "%s: model_type '%s' is not supported (bert and distilbert are)", config_path, type);
    if (r.status == WOK_OK) r.status = wok_safetensors_read(ctx, &source, &tensors);
    if (r.status == WOK_OK) build(&r, &tensors, !strcmp(type, "distilbert"), model);
    wok_tensors_free(&tensors);
    wok_json_free(&doc);
    return r.status;
}

wok_status wok_hf_load(wok_ctx *ctx, const char *folder, wok_model **model) {
    char config[4096], weights[4096];
    wok_mapfile *map = NULL;
    if (!join(config, sizeof config, folder, "config.json") ||
        !join(weights, sizeof weights, folder, "model.safetensors"))
        return wok_ctx_fail(ctx, WOK_ERR_IO, "the folder's path is too long");
    if (access(config, F_OK) != 0)
        return wok_ctx_fail(ctx, WOK_ERR_IO, "%s is a folder without config.json: not a Hugging Face model", folder);
    if (access(weights, F_OK) != 0) return no_weights(ctx, folder);
    wok_status status = wok_mapfile_open(ctx, weights, true, &map);
    if (status != WOK_OK) return status;
    status = load(ctx, config, weights, map, model);
    if (status != WOK_OK || !*model) { /* nothing refers to the mapping but what the caller is about to free */
        wok_model_free(model);
        wok_mapfile_close(map);
        return status;
    }
    return wok_mapfile_give(map, *model);
}

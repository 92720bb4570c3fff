/* synthetic.c - full-size models with random weights: the builders of the real ones over tensors made here.
 *
 * Weights are uniform with the variance that keeps activations in range through any depth (Glorot and Bengio 2010 for
 * the encoders, He et al. 2015 before ReLU), so that no run works on denormals, infinities or saturated activations.
 * The numbers are a function of the seed alone (splitmix64, Steele et al. 2014), on every machine. */
#include "encoder.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef enum filling { FILL_ZERO, FILL_ONE, FILL_UNIT, FILL_BIAS, FILL_LINEAR, FILL_RELU } filling;

/* The list of tensors is walked twice: to count, then to make. */
typedef struct maker {
    wok_tensor_entry *entries; /* NULL while counting */
    char *names;
    float *data;
    size_t count, name_bytes, floats;
    uint64_t seed;
} maker;

static uint64_t splitmix64(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static void fill(maker *m, float *out, size_t count, size_t fan_in, filling how) {
    float range = how == FILL_UNIT ? 1.0f : how == FILL_BIAS ? 0.02f : 0.0f;
    if (how == FILL_LINEAR) range = sqrtf(3.0f / (float)fan_in);
    if (how == FILL_RELU) range = sqrtf(6.0f / (float)fan_in);
    for (size_t i = 0; i < count; i++) {
        float unit = how > FILL_ONE ? (float)(splitmix64(&m->seed) >> 40) * 0x1p-23f - 1.0f : 0.0f; /* [-1, 1) */
        out[i] = how == FILL_ONE ? 1.0f : unit * range;
    }
}

static void tensor(maker *m, filling how, int rank, const int64_t *dims, const char *name) {
    size_t length = strlen(name) + 1, count = 1;
    for (int i = 0; i < rank; i++) count *= (size_t)dims[i];
    if (m->entries) {
        wok_tensor_entry *e = &m->entries[m->count];
        *e = (wok_tensor_entry){.name = m->names + m->name_bytes, .dtype = WOK_F32, .rank = rank};
        memcpy(m->names + m->name_bytes, name, length);
        memcpy(e->dims, dims, (size_t)rank * sizeof *dims);
        e->data = m->data + m->floats;
        e->bytes = count * sizeof(float);
        fill(m, m->data + m->floats, count, count / (size_t)dims[0], how);
    }
    m->count++;
    m->name_bytes += length;
    m->floats += (count + 15) / 16 * 16; /* 64-byte aligned, as a mapped file rarely is */
}

/* ---- encoders ---------------------------------------------------------------------------------------------------- */

static void linear(maker *m, const char *name, int64_t in, int64_t out) {
    tensor(m, FILL_LINEAR, 2, (int64_t[]){out, in}, wok_nn_name("%s.weight", name).text);
    tensor(m, FILL_BIAS, 1, &out, wok_nn_name("%s.bias", name).text);
}

static void norm(maker *m, const char *name, int64_t width) {
    tensor(m, FILL_ONE, 1, &width, wok_nn_name("%s.weight", name).text);
    tensor(m, FILL_BIAS, 1, &width, wok_nn_name("%s.bias", name).text);
}

static const wok_encoder_config base = {.vocabulary = 30522,
                                        .positions = 512,
                                        .types = 2,
                                        .width = 768,
                                        .inner = 3072,
                                        .heads = 12,
                                        .layers = 12,
                                        .activation = "gelu",
                                        .epsilon = 1e-12f};

static void encoder(maker *m, const wok_encoder_config *c, const char *layers, const char *const names[8]) {
    tensor(m, FILL_UNIT, 2, (int64_t[]){c->vocabulary, c->width}, "embeddings.word_embeddings.weight");
    tensor(m, FILL_UNIT, 2, (int64_t[]){c->positions, c->width}, "embeddings.position_embeddings.weight");
    if (c->types) tensor(m, FILL_UNIT, 2, (int64_t[]){c->types, c->width}, "embeddings.token_type_embeddings.weight");
    norm(m, "embeddings.LayerNorm", c->width);
    for (int64_t i = 0; i < c->layers; i++) {
        wok_name at[8];
        for (int k = 0; k < 8; k++) at[k] = wok_nn_name("%s.%d.%s", layers, (int)i, names[k]);
        for (int k = 0; k < 4; k++) linear(m, at[k].text, c->width, c->width);
        norm(m, at[4].text, c->width);
        linear(m, at[5].text, c->width, c->inner);
        linear(m, at[6].text, c->inner, c->width);
        norm(m, at[7].text, c->width);
    }
}

static void bert_tensors(maker *m) {
    encoder(m, &base, "encoder.layer",
            (const char *const[]){"attention.self.query", "attention.self.key", "attention.self.value",
                                  "attention.output.dense", "attention.output.LayerNorm", "intermediate.dense",
                                  "output.dense", "output.LayerNorm"});
    linear(m, "pooler.dense", base.width, base.width);
}

static wok_encoder_config distilbert_config(void) {
    wok_encoder_config c = base;
    c.layers = 6;
    c.types = 0;
    return c;
}

static void distilbert_tensors(maker *m) {
    wok_encoder_config c = distilbert_config();
    encoder(m, &c, "transformer.layer",
            (const char *const[]){"attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin",
                                  "sa_layer_norm", "ffn.lin1", "ffn.lin2", "output_layer_norm"});
}

static void build_bert(const wok_nn *nn) { wok_build_bert(nn, &base); }

static void build_distilbert(const wok_nn *nn) {
    wok_encoder_config c = distilbert_config();
    wok_build_distilbert(nn, &c);
}

/* ---- convolutional networks -------------------------------------------------------------------------------------- */

static void conv_bn(maker *m, const char *conv, const char *bn, int64_t in, int64_t out, int64_t kernel, filling how) {
    tensor(m, how, 4, (int64_t[]){out, in, kernel, kernel}, wok_nn_name("%s.weight", conv).text);
    tensor(m, FILL_ONE, 1, &out, wok_nn_name("%s.weight", bn).text);
    tensor(m, FILL_BIAS, 1, &out, wok_nn_name("%s.bias", bn).text);
    tensor(m, FILL_BIAS, 1, &out, wok_nn_name("%s.running_mean", bn).text);
    tensor(m, FILL_ONE, 1, &out, wok_nn_name("%s.running_var", bn).text);
}

static void resnet18_tensors(maker *m) {
    int64_t in = 64;
    conv_bn(m, "conv1", "bn1", 3, in, 7, FILL_RELU);
    for (int layer = 1; layer <= 4; layer++)
        for (int b = 0; b < 2; b++) {
            int64_t out = (int64_t)32 << layer;
            wok_name block = wok_nn_name("layer%d.%d", layer, b);
            conv_bn(m, wok_nn_name("%s.conv1", block.text).text, wok_nn_name("%s.bn1", block.text).text, in, out, 3,
                    FILL_RELU);
            conv_bn(m, wok_nn_name("%s.conv2", block.text).text, wok_nn_name("%s.bn2", block.text).text, out, out, 3,
                    FILL_LINEAR);
            if (in != out)
                conv_bn(m, wok_nn_name("%s.downsample.0", block.text).text,
                        wok_nn_name("%s.downsample.1", block.text).text, in, out, 1, FILL_LINEAR);
            in = out;
        }
    linear(m, "fc", in, 1000);
}

static void mobilenet_v2_tensors(maker *m) {
    static const int widths[] = {16, 24, 24, 32, 32, 32, 64, 64, 64, 64, 96, 96, 96, 160, 160, 160, 320};
    int64_t in = 32;
    conv_bn(m, "features.0.0", "features.0.1", 3, in, 3, FILL_RELU);
    for (int i = 1; i <= 17; i++) {
        int expands = i > 1;
        int64_t wide = expands ? 6 * in : in, out = widths[i - 1];
        wok_name name = wok_nn_name("features.%d.conv", i);
        if (expands)
            conv_bn(m, wok_nn_name("%s.0.0", name.text).text, wok_nn_name("%s.0.1", name.text).text, in, wide, 1,
                    FILL_RELU);
        conv_bn(m, wok_nn_name("%s.%d.0", name.text, expands).text, wok_nn_name("%s.%d.1", name.text, expands).text, 1,
                wide, 3, FILL_RELU);
        conv_bn(m, wok_nn_name("%s.%d", name.text, expands + 1).text, wok_nn_name("%s.%d", name.text, expands + 2).text,
                wide, out, 1, FILL_LINEAR);
        in = out;
    }
    conv_bn(m, "features.18.0", "features.18.1", in, 1280, 1, FILL_RELU);
    linear(m, "classifier.1", 1280, 1000);
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    void (*tensors)(maker *m);
    void (*build)(const wok_nn *nn);
} architectures[] = {{"bert-base", bert_tensors, build_bert},
                     {"distilbert", distilbert_tensors, build_distilbert},
                     {"resnet18", resnet18_tensors, wok_build_resnet},
                     {"mobilenet_v2", mobilenet_v2_tensors, wok_build_mobilenet_v2}};
enum { ARCHITECTURE_COUNT = sizeof architectures / sizeof *architectures };

typedef struct weights {
    wok_ctx *ctx;
    size_t bytes;
} weights;

enum { WEIGHTS_AT = 64 }; /* offset of the floats behind the struct */

static void release(void *user) {
    weights *w = user;
    wok_ctx_release(w->ctx, w, w->bytes);
}

static int compare(const void *a, const void *b) {
    return strcmp(((const wok_tensor_entry *)a)->name, ((const wok_tensor_entry *)b)->name);
}

/* Entries and names are needed only while the graph is built; the floats go to the model. */
static wok_status build(wok_ctx *ctx, int arch, maker *m, wok_model *model) {
    size_t entries = m->count * sizeof(wok_tensor_entry), bytes = entries + m->name_bytes;
    weights *w = wok_ctx_alloc(ctx, WEIGHTS_AT + m->floats * sizeof(float));
    if (!w) return WOK_ERR_MEMORY;
    *w = (weights){ctx, WEIGHTS_AT + m->floats * sizeof(float)};
    unsigned char *table = wok_ctx_alloc(ctx, bytes);
    if (!table) {
        release(w);
        return WOK_ERR_MEMORY;
    }
    *m = (maker){.entries = (wok_tensor_entry *)(void *)table,
                 .names = (char *)table + entries,
                 .data = (float *)(void *)((unsigned char *)w + WEIGHTS_AT),
                 .seed = m->seed};
    architectures[arch].tensors(m);
    wok_tensors tensors = {.ctx = ctx, .source = architectures[arch].name, .entries = m->entries, .count = m->count};
    qsort(tensors.entries, tensors.count, sizeof *tensors.entries, compare);
    wok_status status = wok_model_own(model, m->data, w->bytes - WEIGHTS_AT, release, NULL, w);
    if (status == WOK_OK) {
        wok_nn_start(model);
        architectures[arch].build(&(wok_nn){model, &tensors, ""});
    }
    wok_ctx_release(ctx, table, bytes);
    return status;
}

wok_status wok_model_synthetic(wok_ctx *ctx, const char *arch, uint64_t seed, wok_model **model) {
    int i = 0;
    maker m = {.seed = seed};
    *model = NULL;
    while (i < ARCHITECTURE_COUNT && strcmp(architectures[i].name, arch)) i++;
    if (i == ARCHITECTURE_COUNT)
        return wok_ctx_fail(ctx, WOK_ERR_ARGUMENT,
                            "'%s' is no architecture (bert-base, distilbert, resnet18 and mobilenet_v2 are)", arch);
    architectures[i].tensors(&m);
    wok_status status = wok_model_new(ctx, arch, model);
    if (status == WOK_OK) status = build(ctx, i, &m, *model);
    if (status == WOK_OK) status = wok_model_finish(*model, NULL);
    if (status != WOK_OK) wok_model_free(model);
    return status;
}

/* encoder.h - what BERT and DistilBERT have in common (internal): one encoder, two sets of names. */
#ifndef WOK_ENCODER_H
#define WOK_ENCODER_H

#include "nn.h"

typedef struct wok_encoder_config {
    int64_t vocabulary, positions, types; /* rows of the embedding tables; types 0: there is no such table */
    int64_t width, inner, heads, layers;
    char activation[32]; /* as Hugging Face calls it: "gelu", "relu", ... */
    float epsilon;       /* of the layer normalisations */
    bool classifies;     /* a sequence classification head is wanted instead of the hidden states */
} wok_encoder_config;

/* Tensor names behind the layer's own prefix. */
typedef struct wok_encoder_names {
    const char *layer; /* "encoder.layer": ".0." and so on follow */
    const char *query, *key, *value, *attention_out, *attention_norm, *inner, *outer, *output_norm;
} wok_encoder_names;

/* Declares input_ids [batch,sequence] (i64) and the optional inputs, and returns the embeddings' sum, normalised:
 * word + position (+ token type). Optional inputs are constants that broadcast: token types [[0]], and the positions
 * 0, 1, ... as one row, cut to the sequence. */
wok_value wok_encoder_embed(const wok_nn *nn, const wok_encoder_config *config);
/* The layers over hidden [batch,sequence,width]; declares the optional attention_mask (1: look at it, 0: do not). The last
 * layer's result is called `output` (NULL: a fresh name). */
wok_value wok_encoder_layers(const wok_nn *nn, const wok_encoder_config *config, const wok_encoder_names *names,
                             wok_value hidden, const char *output);
/* The model's output [batch,sequence,width]. */
void wok_encoder_output(const wok_nn *nn, const wok_encoder_config *config, wok_value hidden);
/* hidden[:, 0] */
wok_value wok_encoder_first_token(const wok_nn *nn, wok_value hidden);

void wok_build_bert(const wok_nn *nn, const wok_encoder_config *config);
void wok_build_distilbert(const wok_nn *nn, const wok_encoder_config *config);

/* A Hugging Face folder. On failure *model may be set: the caller frees it. */
wok_status wok_hf_load(wok_ctx *ctx, const char *folder, wok_model **model);

#endif

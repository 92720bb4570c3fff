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

/* Declares input_ids [batch,sequence] (i64) and the optional inputs attention_mask (1: look at it, 0: do not),
 * token_type_ids, position_ids, and returns the embeddings' sum, normalised: word + token type + position. The
 * defaults are constants that broadcast: mask [[1]], types [[0]], and the positions 0, 1, ... as one row that is cut
 * to the sequence. */
wok_value wok_encoder_embed(const wok_nn *nn, const wok_encoder_config *config, wok_value *mask);
/* The layers over hidden [batch,sequence,width]. The last one's result is called `output` (NULL: a fresh name). */
wok_value wok_encoder_layers(const wok_nn *nn, const wok_encoder_config *config, const wok_encoder_names *names,
                             wok_value hidden, wok_value mask, const char *output);
/* The model's output [batch,sequence,width]. */
void wok_encoder_output(const wok_nn *nn, const wok_encoder_config *config, wok_value hidden);
/* hidden[:, 0] */
wok_value wok_encoder_first_token(const wok_nn *nn, wok_value hidden);

void wok_build_bert(const wok_nn *nn, const wok_encoder_config *config);
void wok_build_distilbert(const wok_nn *nn, const wok_encoder_config *config);

/* A Hugging Face folder. On failure *model may be set: the caller frees it. */
wok_status wok_hf_load(wok_ctx *ctx, const char *folder, wok_model **model);

#endif

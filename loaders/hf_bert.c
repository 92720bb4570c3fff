/* hf_bert.c - BertModel and BertForSequenceClassification (Devlin et al. 2018, transformers' tensor names). */
#include "encoder.h"

static const wok_encoder_names names = {.layer = "encoder.layer",
                                        .query = "attention.self.query",
                                        .key = "attention.self.key",
                                        .value = "attention.self.value",
                                        .attention_out = "attention.output.dense",
                                        .attention_norm = "attention.output.LayerNorm",
                                        .inner = "intermediate.dense",
                                        .outer = "output.dense",
                                        .output_norm = "output.LayerNorm"};

void wok_build_bert(const wok_nn *nn, const wok_encoder_config *config) {
    bool pools = config->classifies || wok_nn_has(nn, "pooler.dense.weight");
    wok_value mask, hidden = wok_encoder_embed(nn, config, &mask);
    hidden = wok_encoder_layers(nn, config, &names, hidden, mask, "last_hidden_state");
    if (!config->classifies) wok_encoder_output(nn, config, hidden);
    if (!pools) return;
    wok_value first = wok_encoder_first_token(nn, hidden);
    wok_value pooled = wok_nn_linear(nn, first, "pooler.dense", config->width, config->width, NULL);
    pooled = wok_graph_op(nn->model, "Tanh", "", "pooler/Tanh", &pooled, 1, "pooler_output");
    if (config->classifies)
        wok_nn_logits(&(wok_nn){nn->model, nn->tensors, ""}, pooled, "classifier", config->width);
    else
        wok_nn_output(nn, pooled, 2, (int64_t[]){-1, config->width}, (const char *[]){"batch", NULL});
}

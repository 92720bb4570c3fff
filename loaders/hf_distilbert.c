/* hf_distilbert.c - DistilBertModel and DistilBertForSequenceClassification (Sanh et al. 2019, transformers' names). */
#include "encoder.h"

static const wok_encoder_names names = {.layer = "transformer.layer",
                                        .query = "attention.q_lin",
                                        .key = "attention.k_lin",
                                        .value = "attention.v_lin",
                                        .attention_out = "attention.out_lin",
                                        .attention_norm = "sa_layer_norm",
                                        .inner = "ffn.lin1",
                                        .outer = "ffn.lin2",
                                        .output_norm = "output_layer_norm"};

void wok_build_distilbert(const wok_nn *nn, const wok_encoder_config *config) {
    wok_value mask, hidden = wok_encoder_embed(nn, config, &mask);
    hidden = wok_encoder_layers(nn, config, &names, hidden, mask, "last_hidden_state");
    if (!config->classifies) {
        wok_encoder_output(nn, config, hidden);
        return;
    }
    wok_nn head = {nn->model, nn->tensors, ""};
    wok_value x = wok_encoder_first_token(nn, hidden);
    x = wok_nn_linear(&head, x, "pre_classifier", config->width, config->width, NULL);
    x = wok_nn_op(&head, "Relu", "pre_classifier", &x, 1);
    wok_nn_logits(&head, x, "classifier", config->width);
}

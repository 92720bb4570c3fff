/* cmd_model.h - opening a model from the command line, shared by run, info, explain, bench. */
#ifndef WOK_CMD_MODEL_H
#define WOK_CMD_MODEL_H

#include "cmd.h"

/* Options that these commands have in common. */
typedef struct cmd_model_options {
    const char *arch, *precision, *backend;
    int threads;
    bool dynamic_per_row, relax_qdq, quantized_as_f32;
    cmd_list no_pass;
} cmd_model_options;

/* The rows of a cmd_option table for them; `o` is a cmd_model_options. */
#define CMD_MODEL_OPTIONS(o)                                                                                            \
    {"--arch", OPT_TEXT, &(o).arch, "NAME", "resnet18 or mobilenet_v2, for a bare .safetensors"},                       \
    {"--threads", OPT_COUNT, &(o).threads, "N", "threads; default: the CPUs this process may use"},                     \
    {"--precision", OPT_TEXT, &(o).precision, "fp32", "how to compute: fp32"},                                          \
    {"--backend", OPT_TEXT, &(o).backend, "cpu", "where to compute: cpu"},                                              \
    {"--dynamic-per-row", OPT_FLAG, &(o).dynamic_per_row, NULL,                                                         \
     "run-time scales of int8 activations row by row, not for the tensor: the same bits alone and batched"},             \
    {"--relax-qdq", OPT_FLAG, &(o).relax_qdq, NULL,                                                                     \
     "drop QuantizeLinear-DequantizeLinear pairs between float operators: faster, not what the file says"},             \
    {"--quantized-as-fp32", OPT_FLAG, &(o).quantized_as_f32, NULL,                                                      \
     "compute quantised products in fp32, with dequantised weights"},                                                   \
    {"--no-pass", OPT_LIST, &(o).no_pass, "NAME", "leave a rewrite out (may be repeated)"}

typedef struct cmd_model {
    wok_ctx *ctx;
    wok_model *model;
    wok_session *session;
} cmd_model;

/* Loads (allow_unsupported: for looking only). 0, or a status after a message. Close in any case. */
int cmd_model_load(const char *command, const char *path, const cmd_model_options *options, bool allow_unsupported,
                   cmd_model *m);
/* Makes the session. */
int cmd_model_session(const char *command, const cmd_model_options *options, bool profile, cmd_model *m);
void cmd_model_close(cmd_model *m, cmd_model_options *options);

/* Rows of the model's position table, the longest sequence that it takes; 0 where it has none that is known. */
int64_t cmd_model_positions(const wok_model *model);

/* Made-up data for every input of the session that is not optional, freed by cmd_buffers_free after the session's last run.
 * `shapes` are "NAME=1x128"; the free dimensions of other inputs follow those given (by their names, or by place in inputs of
 * token ids), else they are batch 1 and sequence 128 (or cmd_model_positions, if that is less). 0, or a status after a
 * message. */
typedef struct cmd_buffers {
    void **items;
    int count;
} cmd_buffers;
int cmd_model_default_inputs(const char *command, cmd_model *m, const cmd_list *shapes, uint64_t seed,
                             cmd_buffers *buffers);
void cmd_buffers_free(cmd_buffers *buffers);

#endif

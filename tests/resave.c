/* resave.c IN OUT [ARCH] - loads a model and writes it again; for roundtrip.py and quantized_models.py, which give OUT to ONNX
 * Runtime. ARCH: for a bare .safetensors. */
#include "wok.h"

#include <stdio.h>

int main(int argc, char **argv) {
    if (argc < 3 || argc > 4) return fprintf(stderr, "usage: resave IN OUT [ARCH]\n"), 2;
    wok_ctx *ctx = wok_ctx_create(NULL);
    wok_model *model = NULL;
    wok_load_options how = {.size = sizeof how, .arch = argc == 4 ? argv[3] : NULL};
    int status = 0;
    if (!ctx || wok_model_load(ctx, argv[1], &how, &model) != WOK_OK || wok_model_save(model, argv[2]) != WOK_OK)
        status = fprintf(stderr, "%s\n", ctx ? wok_ctx_error(ctx) : "out of memory") < 0 ? 2 : 1;
    wok_model_free(&model);
    wok_ctx_free(&ctx);
    return status;
}

/* resave.c IN OUT - loads a model and writes it again; for roundtrip.py, which gives OUT to ONNX Runtime. */
#include "wok.h"

#include <stdio.h>

int main(int argc, char **argv) {
    if (argc != 3) return fprintf(stderr, "usage: resave IN OUT\n"), 2;
    wok_ctx *ctx = wok_ctx_create(NULL);
    wok_model *model = NULL;
    int status = 0;
    if (!ctx || wok_model_load(ctx, argv[1], NULL, &model) != WOK_OK || wok_model_save(model, argv[2]) != WOK_OK)
        status = fprintf(stderr, "%s\n", ctx ? wok_ctx_error(ctx) : "out of memory") < 0 ? 2 : 1;
    wok_model_free(&model);
    wok_ctx_free(&ctx);
    return status;
}

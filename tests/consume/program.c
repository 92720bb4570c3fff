/* program.c - what a program outside the tree does: load, run, print. Compiles as C and as C++. */
#include "wok.h"

#include <stdio.h>

static float pixels[3 * 32 * 32];

int main(int argc, char **argv) {
    wok_ctx *ctx = wok_ctx_create(NULL);
    wok_model *model = NULL;
    wok_session *session = NULL;
    int64_t dims[4] = {1, 3, 32, 32};
    if (argc != 2 || wok_model_load(ctx, argv[1], NULL, &model) != WOK_OK ||
        wok_session_create(model, NULL, &session) != WOK_OK) {
        fprintf(stderr, "%s\n", wok_ctx_error(ctx));
        return 1;
    }
    for (int i = 0; i < 3 * 32 * 32; i++) pixels[i] = (float)(i % 17) / 8.5f - 1.0f;
    if (wok_session_set_input(session, 0, WOK_F32, dims, 4, pixels, sizeof pixels) != WOK_OK ||
        wok_session_run(session) != WOK_OK) {
        fprintf(stderr, "%s\n", wok_session_error(session));
        return 1;
    }
    const wok_tensor *y = wok_session_output(session, 0);
    for (int64_t i = 0; i < y->dims[1]; i++) printf("%.6f\n", (double)((const float *)y->data)[i]);
    wok_session_free(&session);
    wok_model_free(&model);
    wok_ctx_free(&ctx);
    return 0;
}

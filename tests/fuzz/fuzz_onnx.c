/* fuzz_onnx.c - the ONNX reader, the checks of a finished model, and the writer. What loads must load again when
 * written. */
#define _DEFAULT_SOURCE
#include "fuzz.h"

#include "loader.h"

#include <unistd.h>

static const char *temp_path(void) {
    static char path[64];
    if (!*path) snprintf(path, sizeof path, "/tmp/wok-fuzz-%ld.onnx", (long)getpid());
    return path;
}

static void write_and_load(wok_ctx *ctx, const wok_model *model) {
    wok_load_options options = {.size = sizeof options, .allow_unsupported = true};
    wok_model *again = NULL;
    if (wok_onnx_write(model, temp_path(), INT64_MAX) != WOK_OK) return; /* a subgraph, for instance */
    wok_status status = wok_model_load(ctx, temp_path(), &options, &again);
    fuzz_check(status == WOK_OK, "what was loaded and written loads again", wok_ctx_error(ctx));
    fuzz_check(wok_graph_node_count(again) == wok_graph_node_count(model), "nodes survive", "another count");
    wok_model_free(&again);
    unlink(temp_path());
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    wok_ctx *ctx = fuzz_ctx((size_t)4 << 20 | size * 32);
    size_t before = wok_ctx_memory(ctx, NULL);
    for (int form = 0; form < 2; form++) {
        wok_load_options options = {.size = sizeof options, .allow_unsupported = form, .copy = form};
        wok_model *model = NULL;
        wok_status status = wok_model_load_memory(ctx, data, size, &options, &model);
        fuzz_check((status == WOK_OK) == (model != NULL), "status and model agree", wok_ctx_error(ctx));
        fuzz_sentence(status, wok_ctx_error(ctx));
        if (model && form) write_and_load(ctx, model);
        wok_model_free(&model);
    }
    fuzz_ctx_end(&ctx, before);
    return 0;
}

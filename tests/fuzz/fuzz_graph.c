/* fuzz_graph.c - from a file to a run: rewrites, constant folding, shape inference, planning and the kernels on
 * whatever graph the fuzzer makes of the seeds, with small inputs of the declared types. */
#include "fuzz.h"

enum { MOST_BYTES = 1 << 16 };

/* Declared sizes, 2 for free ones; false where the input is of no use or too large. */
static bool make_input(const wok_value_info *info, int64_t *dims, size_t *bytes) {
    *bytes = wok_dtype_size(info->dtype);
    if (info->rank < 0 || *bytes == 0) return false;
    for (int i = 0; i < info->rank; i++) {
        dims[i] = info->dims[i] >= 0 ? info->dims[i] : 2;
        if (dims[i] > MOST_BYTES) return false;
        *bytes *= (size_t)dims[i];
        if (*bytes > MOST_BYTES) return false;
    }
    return true;
}

static void run(const wok_model *model, wok_session *session) {
    static uint8_t ones[MOST_BYTES + 16];
    for (size_t i = 0; i < sizeof ones; i += 4) memcpy(ones + i, (float[]){0.5f}, 4);
    static const uint8_t zeros[MOST_BYTES + 16];
    for (int i = 0; i < wok_model_input_count(model); i++) {
        const wok_value_info *info = wok_model_input(model, i);
        int64_t dims[WOK_MAX_RANK];
        size_t bytes;
        if (info->optional && i % 2) continue;
        if (!make_input(info, dims, &bytes)) return;
        const void *data = info->dtype == WOK_F32 ? ones : zeros;
        wok_status status = wok_session_set_input(session, i, info->dtype, dims, info->rank, data, bytes);
        fuzz_sentence(status, wok_session_error(session));
    }
    for (int repeat = 0; repeat < 2; repeat++) {
        wok_status status = wok_session_run(session);
        fuzz_sentence(status, wok_session_error(session));
        for (int i = 0; status == WOK_OK && i < wok_session_output_count(session); i++) {
            const wok_tensor *out = wok_session_output(session, i);
            volatile uint8_t sum = 0;
            for (size_t k = 0; k < out->bytes; k++) sum = (uint8_t)(sum + ((const uint8_t *)out->data)[k]);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    wok_ctx *ctx = fuzz_ctx((size_t)64 << 20);
    size_t before = wok_ctx_memory(ctx, NULL);
    wok_model *model = NULL;
    if (wok_model_load_memory(ctx, data, size, NULL, &model) == WOK_OK) {
        wok_session *session = NULL;
        wok_status status = wok_session_create(model, NULL, &session);
        fuzz_sentence(status, wok_ctx_error(ctx));
        if (session) run(model, session);
        wok_session_free(&session);
    }
    wok_model_free(&model);
    fuzz_ctx_end(&ctx, before);
    return 0;
}

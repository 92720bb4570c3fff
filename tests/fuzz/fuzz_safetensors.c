/* fuzz_safetensors.c - the safetensors reader, and the builders on whatever tensors it finds. */
#include "fuzz.h"

#include "safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const architectures[] = {"resnet18", "mobilenet_v2"};
    wok_ctx *ctx = fuzz_ctx((size_t)4 << 20 | size * 64);
    size_t before = wok_ctx_memory(ctx, NULL);
    wok_source source = {.data = data, .bytes = size, .name = "fuzz"};
    wok_tensors tensors;
    wok_status status = wok_safetensors_read(ctx, &source, &tensors);
    fuzz_sentence(status, wok_ctx_error(ctx));
    for (size_t i = 0; i < tensors.count; i++) {
        const wok_tensor_entry *e = &tensors.entries[i];
        const uint8_t *at = e->data;
        fuzz_check(e->bytes == 0 || (at >= data && e->bytes <= size && (size_t)(at - data) <= size - e->bytes),
                   "tensors lie in the file", e->name);
        fuzz_check(wok_tensors_find(&tensors, e->name) == e, "tensors are found by name", e->name);
    }
    wok_tensors_free(&tensors);
    for (int i = 0; i < 2; i++) {
        wok_load_options options = {.size = sizeof options, .arch = architectures[i]};
        wok_model *model = NULL;
        status = wok_model_load_memory(ctx, data, size, &options, &model);
        fuzz_sentence(status, wok_ctx_error(ctx));
        wok_model_free(&model);
    }
    fuzz_ctx_end(&ctx, before);
    return 0;
}

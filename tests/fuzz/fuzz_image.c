/* fuzz_image.c - JPEG and PNG: what a header promises is what is decoded, and preprocessing takes it. */
#include "fuzz.h"

#include "wok_image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    wok_ctx *ctx = fuzz_ctx((size_t)64 << 20);
    size_t before = wok_ctx_memory(ctx, NULL);
    wok_decode_options options = {.size = sizeof options, .max_pixels = 1 << 18};
    wok_image image = {0};
    wok_status status = wok_image_decode(ctx, data, size, "fuzz", &options, &image);
    fuzz_sentence(status, wok_ctx_error(ctx));
    if (status == WOK_OK) {
        volatile uint8_t sum = 0;
        for (int64_t i = 0; i < image.width * image.height * 3; i++) sum = (uint8_t)(sum + image.pixels[i]);
    }
    wok_image_free(ctx, &image);
    wok_preprocess p;
    if (wok_preprocess_preset(ctx, "torchvision", &p) != WOK_OK) abort();
    p.decode.max_pixels = 1 << 18;
    wok_tensor tensor = {0};
    status = wok_preprocess_decode(ctx, &p, data, size, "fuzz", &tensor);
    fuzz_sentence(status, wok_ctx_error(ctx));
    wok_preprocess_free(ctx, &tensor);
    status = wok_preprocess_parse(ctx, (const char *)data, size, "fuzz", &p);
    fuzz_sentence(status, wok_ctx_error(ctx));
    fuzz_ctx_end(&ctx, before);
    return 0;
}

/* fuzz_npy.c - the .npy reader: a tensor that is read holds exactly what its shape says. */
#include "fuzz.h"

#include "wok_npy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    wok_ctx *ctx = fuzz_ctx((size_t)1 << 20 | size * 4);
    size_t before = wok_ctx_memory(ctx, NULL);
    wok_tensor tensor;
    wok_status status = wok_npy_parse(ctx, data, size, "fuzz", &tensor);
    fuzz_sentence(status, wok_ctx_error(ctx));
    fuzz_check((status == WOK_OK) == (tensor.data != NULL), "status and tensor agree", wok_ctx_error(ctx));
    if (status == WOK_OK) {
        size_t bytes = wok_dtype_size(tensor.dtype);
        for (int i = 0; i < tensor.rank; i++) bytes *= (size_t)tensor.dims[i];
        fuzz_check(bytes == tensor.bytes && bytes <= size, "bytes and shape agree", wok_dtype_name(tensor.dtype));
    }
    wok_npy_free(ctx, &tensor);
    fuzz_ctx_end(&ctx, before);
    return 0;
}

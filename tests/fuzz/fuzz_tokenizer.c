/* fuzz_tokenizer.c - tokenizer.json and vocab.txt, and texts on whatever vocabulary they make: up to the first zero
 * byte the file, behind it the text. */
#include "fuzz.h"

#include "wok_text.h"

static void encode(const wok_tokenizer *tokenizer, const char *text, size_t length) {
    wok_encoding *encoding = NULL;
    if (wok_encoding_create(tokenizer, &encoding) != WOK_OK) return;
    wok_encode_options options = {
        .size = sizeof options, .max_length = 8, .truncation = WOK_LONGEST_FIRST, .offsets = true};
    for (int form = 0; form < 3; form++) {
        const char *pair = form == 2 ? text : NULL;
        wok_status status = wok_tokenizer_encode(tokenizer, form ? &options : NULL, text, length, pair,
                                                 pair ? length / 2 : 0, encoding);
        fuzz_sentence(status, wok_encoding_error(encoding));
        for (size_t i = 0; status == WOK_OK && i < wok_encoding_size(encoding); i++) {
            int32_t id = wok_encoding_ids(encoding)[i];
            fuzz_check(id >= 0 && id < wok_tokenizer_size(tokenizer), "ids are of the vocabulary", "");
            fuzz_check(wok_tokenizer_token(tokenizer, id, NULL) != NULL, "ids have a text", "");
        }
    }
    wok_status status = wok_tokenizer_encode_json(tokenizer, text, length, encoding);
    fuzz_sentence(status, wok_encoding_error(encoding));
    wok_encoding_free(&encoding);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char sample[] = "Hello, \xe4\xb8\x96 na\xc3\xafve [SEP] un##able \xff";
    const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
    size_t file = zero ? (size_t)(zero - data) : size;
    wok_ctx *ctx = fuzz_ctx((size_t)16 << 20 | size * 256);
    size_t before = wok_ctx_memory(ctx, NULL);
    for (int form = 0; form < 2; form++) {
        wok_tokenizer *tokenizer = NULL;
        wok_status status = (form ? wok_tokenizer_from_vocab : wok_tokenizer_from_json)(ctx, (const char *)data, file,
                                                                                        NULL, &tokenizer);
        fuzz_sentence(status, wok_ctx_error(ctx));
        if (tokenizer) {
            encode(tokenizer, sample, sizeof sample - 1);
            if (zero) encode(tokenizer, (const char *)zero + 1, size - file - 1);
        }
        wok_tokenizer_free(&tokenizer);
    }
    fuzz_ctx_end(&ctx, before);
    return 0;
}

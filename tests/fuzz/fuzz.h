/* fuzz.h - what the fuzz targets share. A target is LLVMFuzzerTestOneInput: clang links libFuzzer to it, gcc
 * replay.c. Promises that every target checks: no crash (the sanitizers see to that), nothing leaks, a failure has
 * one sentence, and a small file never makes the library hold much memory: the context's limit stands for "a small
 * multiple of the file". */
#ifndef TEST_FUZZ_H
#define TEST_FUZZ_H

#include "wok_build.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline wok_ctx *fuzz_ctx(size_t memory_limit) {
    wok_ctx *ctx =
        wok_ctx_create(&(wok_ctx_options){.size = sizeof(wok_ctx_options), .threads = 1, .memory_limit = memory_limit});
    if (!ctx) abort();
    return ctx;
}

/* A broken promise is a crash, which is what fuzzers look for. */
static inline void fuzz_check(bool holds, const char *promise, const char *detail) {
    if (holds) return;
    fprintf(stderr, "broken promise: %s: %s\n", promise, detail);
    abort();
}

static inline void fuzz_sentence(wok_status status, const char *text) {
    fuzz_check(status == WOK_OK || (*text && !strchr(text, '\n')), "a failure has one sentence", text);
}

/* The context and everything of it must be gone. */
static inline void fuzz_ctx_end(wok_ctx **ctx, size_t before) {
    fuzz_check(wok_ctx_memory(*ctx, NULL) == before, "nothing is kept", "memory is still held");
    wok_ctx_free(ctx);
}

#endif

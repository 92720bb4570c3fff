/* test_onnx_robust.c - damaged ONNX files, failing allocations, and the writer's round trips. */
#define _DEFAULT_SOURCE
#include "loading.h"

#include <glob.h>
#include <signal.h>
#include <sys/resource.h>

static wok_ctx *ctx;
static size_t held;

static void setup(void) {
    ctx = wok_ctx_create(&(wok_ctx_options){.size = sizeof(wok_ctx_options), .threads = 1});
    held = wok_ctx_memory(ctx, NULL);
}

static void teardown(void) {
    size_t now = wok_ctx_memory(ctx, NULL);
    wok_ctx_free(&ctx);
    if (now != held) fprintf(stderr, "Assertion Failed: %zu bytes were not given back\n", now - held);
}
TestSuite(onnx_robust, .init = setup, .fini = teardown);

static const float ramp[4] = {0, 1, 2, 3};
static const int64_t four[1] = {4};

/* ---- robustness -------------------------------------------------------------------------------------------------- */

/* A small file with every kind of thing in it. */
static uint8_t *rich_file(size_t *bytes) {
    make m = make_add(ctx, 8, 17);
    make_raw(&m, "W", WOK_F32, 1, four, ramp, sizeof ramp);
    wok_wire_mark t = make_tensor(&m, GRAPH_INITIALIZER, "I", WOK_I64, 1, four);
    wok_wire_put_packed_ints(&m.wire, TENSOR_INT64_DATA, (int64_t[]){1, -2, 300, 4}, 4);
    wok_wire_end(&m.wire, t);
    wok_wire_mark node = make_node_start(&m, "Constant", NULL, NULL, "C");
    wok_wire_mark a = wok_wire_begin(&m.wire, NODE_ATTRIBUTE);
    wok_wire_put_text(&m.wire, ATTRIBUTE_NAME, "value_ints");
    wok_wire_put_packed_ints(&m.wire, ATTRIBUTE_INTS, (int64_t[]){1, 2, 3}, 3);
    wok_wire_put_int(&m.wire, ATTRIBUTE_TYPE, TYPE_INTS);
    wok_wire_end(&m.wire, a);
    wok_wire_end(&m.wire, node);
    wok_wire_end(&m.wire, m.graph);
    wok_wire_mark meta = wok_wire_begin(&m.wire, MODEL_METADATA);
    wok_wire_put_text(&m.wire, ENTRY_KEY, "author");
    wok_wire_put_text(&m.wire, ENTRY_VALUE, "nobody");
    wok_wire_end(&m.wire, meta);
    return make_bytes(&m.wire, bytes);
}

/* Loads from memory that ends where the file does, so that a read beyond it is seen. */
static bool try_bytes(const uint8_t *file, size_t bytes) {
    uint8_t *exact = malloc(bytes ? bytes : 1);
    memcpy(exact, file, bytes);
    wok_model *model = NULL;
    wok_status status = wok_model_load_memory(ctx, exact, bytes, NULL, &model);
    if (status != WOK_OK) {
        cr_assert_null(model);
        expect_sentence(ctx);
    }
    wok_model_free(&model);
    free(exact);
    return status == WOK_OK;
}

Test(onnx_robust, truncated_at_every_byte) {
    size_t bytes, whole = 0;
    uint8_t *file = rich_file(&bytes);
    for (size_t cut = 0; cut <= bytes; cut++) whole += try_bytes(file, cut);
    cr_assert_eq(whole, 2, "only the whole file and the one without metadata are models");
    free(file);
}

Test(onnx_robust, fixture_truncated_at_many_cuts) {
    size_t bytes;
    uint8_t *file = read_file(MODELS "bert-h64/ts13.onnx", &bytes);
    for (size_t cut = 0; cut < bytes; cut += 997) cr_assert_not(try_bytes(file, cut), "cut at %zu", cut);
    free(file);
}

static uint64_t random_next(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    return *state ^= *state << 17;
}

Test(onnx_robust, random_bytes_never_crash) {
    size_t bytes;
    uint8_t *file = rich_file(&bytes), *copy = malloc(bytes);
    uint64_t state = 1;
    for (int i = 0; i < 20000; i++) {
        memcpy(copy, file, bytes);
        for (uint64_t n = 1 + random_next(&state) % 4; n > 0; n--)
            copy[random_next(&state) % bytes] = (uint8_t)random_next(&state);
        try_bytes(copy, bytes);
    }
    free(copy);
    free(file);
}

Test(onnx_robust, fixture_with_random_bytes_never_crashes) {
    size_t bytes;
    uint8_t *file = read_file(MODELS "bert-h64/ts13.onnx", &bytes);
    uint64_t state = 2;
    for (int i = 0; i < 300; i++) {
        size_t at = (size_t)(random_next(&state) % bytes);
        uint8_t old = file[at];
        file[at] ^= (uint8_t)(1u << random_next(&state) % 8);
        try_bytes(file, bytes);
        file[at] = old;
    }
    cr_assert(try_bytes(file, bytes));
    free(file);
}

/* A weight bit flipped is still a model. */
Test(onnx_robust, flipped_weight_bit_still_loads) {
    size_t bytes;
    uint8_t *file = read_file(MODELS "bert-h64/ts13.onnx", &bytes);
    wok_model *model = NULL;
    cr_assert_eq(wok_model_load_memory(ctx, file, bytes, NULL, &model), WOK_OK);
    const uint8_t *weight = NULL;
    for (int i = 0; i < wok_graph_value_count(model) && !weight; i++) {
        wok_value_view v = wok_graph_value_at(model, i);
        if (v.data && v.bytes > 1000) weight = v.data;
    }
    cr_assert(weight && weight >= file && weight < file + bytes, "weights are used where they stand");
    size_t at = (size_t)(weight - file);
    wok_model_free(&model);
    file[at] ^= 0x10;
    cr_assert(try_bytes(file, bytes));
    free(file);
}

Test(onnx_robust, failing_allocations_leak_nothing) {
    size_t bytes;
    uint8_t *file = rich_file(&bytes);
    for (int form = 0; form < 3; form++) {
        failing f = {.fail_at = -1};
        bool done = false;
        for (long n = 0; !done; n++) {
            cr_assert_lt(n, 10000);
            f = (failing){.fail_at = n};
            wok_ctx *weak = failing_ctx(&f);
            if (!weak) continue;
            wok_model *model = NULL;
            wok_load_options options = {.size = sizeof options, .copy = form == 1};
            wok_status status = form < 2 ? wok_model_load_memory(weak, file, bytes, &options, &model)
                                         : wok_model_load(weak, MODELS "bert-h64/external13.onnx", NULL, &model);
            cr_assert_eq(status == WOK_OK, model != NULL);
            if (status != WOK_OK) {
                cr_assert_eq(status, WOK_ERR_MEMORY, "allocation %ld: %s: %s", n, wok_status_name(status),
                             wok_ctx_error(weak));
                expect_sentence(weak);
            }
            done = f.calls <= n;
            wok_model_free(&model);
            wok_ctx_free(&weak);
            cr_assert_eq(f.live, 0, "allocation %ld: %ld blocks are left", n, f.live);
        }
    }
    free(file);
}

Test(onnx_robust, nothing_large_is_allocated_for_a_small_file) {
    size_t bytes;
    uint8_t *file = read_file(MODELS "bert-h64/ts13.onnx", &bytes);
    failing f = {.fail_at = -1};
    wok_ctx *own = failing_ctx(&f);
    wok_model *model = NULL;
    cr_assert_eq(wok_model_load_memory(own, file, bytes, NULL, &model), WOK_OK);
    size_t peak;
    wok_ctx_memory(own, &peak);
    cr_assert_lt(peak, 3 * bytes, "%zu bytes for a file of %zu", peak, bytes);
    wok_model_free(&model);
    wok_ctx_free(&own);
    free(file);
}

Test(onnx_robust, B79_any_alignment_and_both_forms_of_ownership) {
    size_t bytes;
    uint8_t *file = read_file(MODELS "bert-h64/ts13.onnx", &bytes), *block = malloc(bytes + 16);
    wok_model *first = NULL;
    cr_assert_eq(wok_model_load_memory(ctx, file, bytes, NULL, &first), WOK_OK);
    for (size_t offset = 0; offset < 16; offset++) {
        wok_model *model = NULL;
        memcpy(block + offset, file, bytes);
        wok_load_options options = {.size = sizeof options, .copy = true};
        cr_assert_eq(wok_model_load_memory(ctx, block + offset, bytes, &options, &model), WOK_OK);
        memset(block, 0xff, bytes + 16); /* the copy lives on */
        same_model(first, model);
        wok_model_free(&model);
        memcpy(block + offset, file, bytes);
        cr_assert_eq(wok_model_load_memory(ctx, block + offset, bytes, NULL, &model), WOK_OK);
        same_model(first, model);
        wok_model_free(&model);
    }
    wok_model_free(&first);
    free(block);
    free(file);
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static void round_trip(const char *from, const char *folder, int64_t external_above) {
    wok_model *model = NULL, *again = NULL;
    wok_load_options options = {.size = sizeof options, .allow_unsupported = true};
    char *path = path_of("%s/x.onnx", folder);
    cr_assert_eq(wok_model_load(ctx, from, &options, &model), WOK_OK, "%s: %s", from, wok_ctx_error(ctx));
    cr_assert_eq(wok_onnx_write(model, path, external_above), WOK_OK, "%s: %s", from, wok_ctx_error(ctx));
    cr_assert_eq(wok_model_load(ctx, path, &options, &again), WOK_OK, "%s: %s", from, wok_ctx_error(ctx));
    same_model(model, again);
    wok_model_free(&again);
    wok_model_free(&model);
}

Test(onnx_robust, load_write_load_gives_the_same_bits) {
    char *folder = make_temp();
    round_trip(MODELS "bert-h64/ts13.onnx", folder, INT64_MAX);
    cr_assert_eq(count_files(folder), 1);
    round_trip(MODELS "bert-h64/external13.onnx", folder, INT64_MAX);
    cr_assert_eq(count_files(folder), 1);
    round_trip(MODELS "bert-h64/ts13.onnx", folder, 0);
    cr_assert_eq(count_files(folder), 2);
    remove_temp(folder);
}

Test(onnx_robust, load_write_load_of_every_fixture, .timeout = 600) {
    NEED_SHARED();
    char *folder = make_temp();
    glob_t found;
    cr_assert_eq(glob(SHARED "fixtures/*/*.onnx", 0, NULL, &found), 0);
    cr_assert_geq(found.gl_pathc, 60);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        round_trip(found.gl_pathv[i], folder, INT64_MAX);
        round_trip(found.gl_pathv[i], folder, 100000);
    }
    globfree(&found);
    remove_temp(folder);
}

/* A model can be written over the files that it is mapped from. */
Test(onnx_robust, writing_over_the_source) {
    char *folder = make_temp();
    size_t bytes;
    uint8_t *file = read_file(MODELS "bert-h64/ts13.onnx", &bytes);
    char *path = path_of("%s/m.onnx", folder);
    write_file(path, file, bytes);
    free(file);
    wok_model *model = NULL, *again = NULL, *first = NULL;
    cr_assert_eq(wok_model_load(ctx, path, NULL, &model), WOK_OK);
    cr_assert_eq(wok_onnx_write(model, path, 0), WOK_OK, "%s", wok_ctx_error(ctx));
    cr_assert_eq(wok_model_load(ctx, path, NULL, &again), WOK_OK, "%s", wok_ctx_error(ctx));
    cr_assert_eq(wok_onnx_write(again, path, 0), WOK_OK, "%s", wok_ctx_error(ctx));
    cr_assert_eq(wok_model_load(ctx, MODELS "bert-h64/ts13.onnx", NULL, &first), WOK_OK);
    same_model(first, model);
    same_model(first, again);
    wok_model_free(&first);
    wok_model_free(&again);
    wok_model_free(&model);
    remove_temp(folder);
}

Test(onnx_robust, a_failing_write_leaves_nothing_behind) {
    char *folder = make_temp();
    wok_model *model = NULL;
    cr_assert_eq(wok_model_load(ctx, MODELS "bert-h64/ts13.onnx", NULL, &model), WOK_OK);
    cr_assert_eq(wok_model_save(model, path_of("%s/none/x.onnx", folder)), WOK_ERR_IO);
    expect_sentence(ctx);
    cr_assert_eq(mkdir(path_of("%s/x.onnx", folder), 0777), 0);
    cr_assert_eq(wok_model_save(model, path_of("%s/x.onnx", folder)), WOK_ERR_IO);
    cr_assert_eq(wok_model_save(model, path_of("%s/x.bin", folder)), WOK_ERR_ARGUMENT);
    cr_assert_eq(wok_model_save(model, path_of("%s/x.safetensors/y.safetensors", folder)), WOK_ERR_IO);
    cr_assert_eq(count_files(folder), 1);
    /* A disk that fills up, as a limit on file size plays it. */
    write_file(path_of("%s/y.onnx", folder), "old", 3);
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit limit = {100000, RLIM_INFINITY};
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    cr_assert_eq(wok_model_save(model, path_of("%s/y.onnx", folder)), WOK_ERR_IO);
    cr_assert_eq(wok_onnx_write(model, path_of("%s/y.onnx", folder), 0), WOK_ERR_IO);
    cr_assert_eq(count_files(folder), 2);
    size_t bytes;
    uint8_t *old = read_file(path_of("%s/y.onnx", folder), &bytes);
    cr_assert(bytes == 3 && !memcmp(old, "old", 3));
    free(old);
    wok_model_free(&model);
    remove_temp(folder);
}

Test(onnx_robust, failing_allocations_while_writing) {
    char *folder = make_temp();
    for (int external = 0; external < 2; external++) {
        bool done = false;
        for (long n = 0; !done; n++) {
            failing f = {.fail_at = -1};
            wok_ctx *weak = failing_ctx(&f);
            wok_model *model = NULL;
            cr_assert_eq(wok_model_load(weak, MODELS "bert-h64/external13.onnx", NULL, &model), WOK_OK);
            f.calls = 0;
            f.fail_at = n;
            wok_status status = wok_onnx_write(model, path_of("%s/x.onnx", folder), external ? 0 : INT64_MAX);
            done = f.calls <= n;
            cr_assert_eq(status, done ? WOK_OK : WOK_ERR_MEMORY, "allocation %ld: %s", n, wok_ctx_error(weak));
            wok_model_free(&model);
            wok_ctx_free(&weak);
            cr_assert_eq(f.live, 0);
            if (!done) cr_assert_eq(count_files(folder), 0);
        }
        cr_assert_eq(system(path_of("rm -f '%s'/*", folder)), 0);
    }
    remove_temp(folder);
}

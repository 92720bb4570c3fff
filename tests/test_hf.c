/* test_hf.c - Hugging Face folders and torchvision checkpoints: what they compute, what may be left out, what is
 * refused. */
#define _DEFAULT_SOURCE
#include "loading.h"
#include "safetensors.h"
#include "wok_npy.h"

#include <math.h>

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
TestSuite(hf, .init = setup, .fini = teardown);

static wok_model *load(const char *path, const char *arch) {
    wok_model *model = NULL;
    wok_load_options options = {.size = sizeof options, .arch = arch};
    wok_status status = wok_model_load(ctx, path, &options, &model);
    cr_assert_eq(status == WOK_OK, model != NULL);
    if (status != WOK_OK) expect_sentence(ctx);
    return model;
}

/* ---- what they compute ------------------------------------------------------------------------------------------- */

static void set(wok_session *session, const wok_model *model, const char *name, const wok_tensor *t) {
    int index = wok_model_input_index(model, name);
    cr_assert_geq(index, 0, "%s", name);
    cr_assert_eq(wok_session_set_input(session, index, t->dtype, t->dims, t->rank, t->data, t->bytes), WOK_OK, "%s",
                 wok_session_error(session));
}

/* Runs a fixture on its inputs and compares every output with the framework's answer. */
static void check_fixture(const wok_model *model, const char *folder) {
    wok_session *session = NULL;
    wok_tensor inputs[4] = {{0}};
    cr_assert_eq(wok_session_create((wok_model *)(uintptr_t)model, NULL, &session), WOK_OK, "%s", wok_ctx_error(ctx));
    for (int i = 0; i < wok_model_input_count(model); i++) {
        const char *name = wok_model_input(model, i)->name, *path = path_of("%s/float.in.%s.npy", folder, name);
        if (access(path, R_OK) != 0) continue;
        cr_assert_eq(wok_npy_load(ctx, path, &inputs[i]), WOK_OK, "%s", wok_ctx_error(ctx));
        set(session, model, name, &inputs[i]);
    }
    cr_assert_eq(wok_session_run(session), WOK_OK, "%s", wok_session_error(session));
    for (int i = 0; i < wok_session_output_count(session); i++) {
        const wok_tensor *out = wok_session_output(session, i);
        wok_tensor want;
        char *path = path_of("%s/float.out.%s.npy", folder, wok_session_output_name(session, i));
        cr_assert_eq(wok_npy_load(ctx, path, &want), WOK_OK, "%s", wok_ctx_error(ctx));
        cr_assert(out->dtype == want.dtype && out->rank == want.rank && out->bytes == want.bytes);
        float largest = 0, error = 0;
        for (size_t k = 0; k < out->bytes / 4; k++) {
            float a = ((const float *)out->data)[k], b = ((const float *)want.data)[k];
            largest = fmaxf(largest, fabsf(b));
            error = fmaxf(error, fabsf(a - b));
        }
        cr_assert(error <= 2e-5f * largest, "%s: error %g of %g", path, (double)error, (double)largest);
        wok_npy_free(ctx, &want);
    }
    for (int i = 0; i < 4; i++) wok_npy_free(ctx, &inputs[i]);
    wok_session_free(&session);
}

static void check_model(const char *folder, const char *arch) {
    char *temp = make_temp();
    wok_model *model = load(arch ? path_of("%s/model.safetensors", folder) : folder, arch), *again = NULL;
    cr_assert(model, "%s", wok_ctx_error(ctx));
    check_fixture(model, folder);
    char *path = path_of("%s/x.onnx", temp); /* and as the ONNX file that it is written to */
    cr_assert_eq(wok_model_save(model, path), WOK_OK, "%s", wok_ctx_error(ctx));
    again = load(path, NULL);
    cr_assert(again, "%s", wok_ctx_error(ctx));
    same_model(model, again);
    check_fixture(again, folder);
    wok_model_free(&again);
    wok_model_free(&model);
    remove_temp(temp);
}

Test(hf, bert) { check_model(MODELS "bert-h64", NULL); }
Test(hf, distilbert_classifier) { check_model(MODELS "distilbert-h64-cls", NULL); }
Test(hf, resnet18) { check_model(MODELS "resnet18-w8", "resnet18"); }
Test(hf, mobilenet_v2) { check_model(MODELS "mobilenetv2-w025", "mobilenet_v2"); }

Test(hf, every_fixture) {
    NEED_SHARED();
    check_model(SHARED "fixtures/bert-h64", NULL);
    check_model(SHARED "fixtures/bert-h64-cls/", NULL); /* a trailing slash is fine */
    check_model(SHARED "fixtures/distilbert-h64", NULL);
    check_model(SHARED "fixtures/distilbert-h64-cls", NULL);
}

Test(hf, inputs_and_outputs) {
    static const char *const names[] = {"input_ids", "attention_mask", "token_type_ids", "position_ids"};
    wok_model *model = load(MODELS "bert-h64", NULL);
    cr_assert_eq(wok_model_input_count(model), 4);
    for (int i = 0; i < 4; i++) {
        const wok_value_info *in = wok_model_input(model, i);
        cr_assert_str_eq(in->name, names[i]);
        cr_assert_eq(in->optional, i > 0);
        cr_assert(in->dtype == WOK_I64 && in->rank == 2 && in->dims[0] == -1 && in->dims[1] == -1);
        cr_assert_str_eq(in->dim_names[0], "batch");
        cr_assert_str_eq(in->dim_names[1], "sequence");
    }
    cr_assert_eq(wok_model_output_count(model), 2);
    cr_assert_str_eq(wok_model_output(model, 0)->name, "last_hidden_state");
    cr_assert_str_eq(wok_model_output(model, 1)->name, "pooler_output");
    cr_assert_str_eq(wok_model_describe(model)->format, "hf-bert");
    cr_assert_str_eq(wok_model_metadata(model, "max_position_embeddings"), "64");
    wok_model_free(&model);
    model = load(MODELS "distilbert-h64-cls", NULL);
    cr_assert_eq(wok_model_input_count(model), 3);
    cr_assert_eq(wok_model_input_index(model, "token_type_ids"), -1);
    cr_assert_eq(wok_model_output_count(model), 1);
    cr_assert_str_eq(wok_model_output(model, 0)->name, "logits");
    cr_assert_str_eq(wok_model_describe(model)->format, "hf-distilbert");
    wok_model_free(&model);
}

enum { BATCH = 2, LENGTH = 7 };

/* last_hidden_state of 2 x 7 ids; NULL leaves an optional input out. The caller frees it. */
static float *hidden(wok_model *model, const int64_t *ids, const int64_t *mask, const int64_t *types,
                     const int64_t *places) {
    wok_session *session = NULL;
    const int64_t *values[] = {ids, mask, types, places}, dims[] = {BATCH, LENGTH};
    cr_assert_eq(wok_session_create(model, NULL, &session), WOK_OK);
    for (int i = 0; i < 4; i++)
        if (values[i])
            cr_assert_eq(wok_session_set_input(session, i, WOK_I64, dims, 2, values[i], BATCH * LENGTH * 8), WOK_OK,
                         "%s", wok_session_error(session));
    wok_status status = wok_session_run(session);
    float *copy = NULL;
    if (status == WOK_OK) {
        const wok_tensor *out = wok_session_output(session, 0);
        copy = malloc(out->bytes);
        memcpy(copy, out->data, out->bytes);
    } else {
        wok_ctx_fail(ctx, status, "%s", wok_session_error(session));
        expect_sentence(ctx);
    }
    wok_session_free(&session);
    return copy;
}

Test(hf, left_out_inputs_mean_ones_zeros_and_counting) {
    wok_model *model = load(MODELS "bert-h64", NULL);
    int64_t ids[BATCH * LENGTH], ones[BATCH * LENGTH], zeros[BATCH * LENGTH] = {0}, places[BATCH * LENGTH];
    for (int i = 0; i < BATCH * LENGTH; i++) ids[i] = 7 * i + 3, ones[i] = 1, places[i] = i % LENGTH;
    float *none = hidden(model, ids, NULL, NULL, NULL);
    cr_assert(none, "%s", wok_ctx_error(ctx));
    const int64_t *const given[4][3] = {
        {ones, zeros, places}, {ones, NULL, NULL}, {NULL, zeros, NULL}, {NULL, NULL, places}};
    for (int i = 0; i < 4; i++) {
        float *some = hidden(model, ids, given[i][0], given[i][1], given[i][2]);
        cr_assert(some, "%s", wok_ctx_error(ctx));
        for (int k = 0; k < BATCH * LENGTH * 64; k++)
            cr_assert(fabsf(some[k] - none[k]) <= 1e-5f, "case %d at %d: %g %g", i, k, (double)some[k],
                      (double)none[k]);
        free(some);
    }
    /* and they do matter when they say something else */
    ones[LENGTH - 1] = 0, zeros[2] = 1, places[1] = 9;
    const int64_t *const other[3][3] = {{ones, NULL, NULL}, {NULL, zeros, NULL}, {NULL, NULL, places}};
    for (int i = 0; i < 3; i++) {
        float *some = hidden(model, ids, other[i][0], other[i][1], other[i][2]), most = 0;
        for (int k = 0; k < BATCH * LENGTH * 64; k++) most = fmaxf(most, fabsf(some[k] - none[k]));
        cr_assert(most > 1e-3f, "input %d changes nothing", i);
        free(some);
    }
    free(none);
    wok_model_free(&model);
}

/* Ids outside their tables, negative ones too, in each of the three tables: an error that says so, and the next run
 * is fine. */
Test(hf, B10_ids_outside_their_tables) {
    wok_model *model = load(MODELS "bert-h64", NULL);
    int64_t good[BATCH * LENGTH] = {0};
    static const int64_t rows[4] = {500, 0, 2, 64};
    for (int input = 0; input < 4; input++) {
        const int64_t wrong[] = {-1, rows[input], INT64_MAX, INT64_MIN};
        for (int i = 0; i < 4 && input != 1; i++) {
            int64_t bad[BATCH * LENGTH] = {0};
            bad[9] = wrong[i];
            const int64_t *in[4] = {good, NULL, NULL, NULL};
            in[input] = bad;
            float *out = hidden(model, in[0], in[1], in[2], in[3]);
            cr_expect_null(out, "input %d takes %lld", input, (long long)wrong[i]);
            cr_expect(strstr(wok_ctx_error(ctx), "outside"), "%s", wok_ctx_error(ctx));
            free(out);
        }
    }
    float *out = hidden(model, good, NULL, NULL, NULL);
    cr_assert(out);
    free(out);
    wok_model_free(&model);
}

/* ---- folders as they come ---------------------------------------------------------------------------------------- */

/* A copy of a folder's config, with one text in it exchanged, beside a link to its tensors. */
static char *folder_with(const char *from, const char *old, const char *new) {
    char *folder = make_temp(), real[4096];
    size_t bytes;
    char *config = (char *)read_file(path_of("%s/config.json", from), &bytes);
    config[bytes] = 0;
    char *at = strstr(config, old);
    cr_assert(at, "'%s' is not in the config", old);
    FILE *out = fopen(path_of("%s/config.json", folder), "wb");
    fprintf(out, "%.*s%s%s", (int)(at - config), config, new, at + strlen(old));
    fclose(out);
    free(config);
    cr_assert(realpath(path_of("%s/model.safetensors", from), real));
    cr_assert_eq(symlink(real, path_of("%s/model.safetensors", folder)), 0);
    return folder;
}

static void refuse_config(const char *old, const char *new, const char *part) {
    char *folder = folder_with(MODELS "bert-h64", old, new);
    wok_model *model = load(folder, NULL);
    cr_expect_null(model, "%s", new);
    cr_expect(strstr(wok_ctx_error(ctx), part), "'%s' is not in: %s", part, wok_ctx_error(ctx));
    wok_model_free(&model);
    remove_temp(folder);
}

Test(hf, configs_that_do_not_fit_the_tensors) {
    refuse_config("\"hidden_size\": 64", "\"hidden_size\": 128", "shape [500,64] where [500,128] is needed");
    refuse_config("\"vocab_size\": 500", "\"vocab_size\": 501", "shape [500,64] where [501,64] is needed");
    refuse_config("\"max_position_embeddings\": 64", "\"max_position_embeddings\": 16000000",
                  "[64,64] where [16000000,64]");
    refuse_config("\"type_vocab_size\": 2", "\"type_vocab_size\": 3", "where [3,64] is needed");
    refuse_config("\"intermediate_size\": 128", "\"intermediate_size\": 129", "where [129,64] is needed");
    refuse_config("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3",
                  "'encoder.layer.2.attention.self.query.weight' is missing");
    refuse_config("\"num_attention_heads\": 4", "\"num_attention_heads\": 5", "does not divide");
    refuse_config("\"num_attention_heads\": 4", "\"num_attention_heads\": 0", "out of range");
    refuse_config("\"hidden_size\": 64", "\"hidden_size\": -64", "out of range");
    refuse_config("\"hidden_size\": 64", "\"hidden_size\": \"64\"", "hidden_size is missing or no whole number");
    refuse_config("\"hidden_size\": 64,", "", "hidden_size is missing");
    refuse_config("\"hidden_act\": \"gelu\"", "\"hidden_act\": \"mish\"", "'mish'");
    refuse_config("\"layer_norm_eps\": 1e-12", "\"layer_norm_eps\": \"x\"", "layer_norm_eps");
    refuse_config("\"is_decoder\": false", "\"is_decoder\": true", "decoders");
    refuse_config("\"model_type\": \"bert\"", "\"model_type\": \"roberta\"", "'roberta' is not supported");
    refuse_config("\"model_type\": \"bert\"", "\"model_type\": \"bert\", \"position_embedding_type\": \"relative_key\"",
                  "position_embedding_type");
    refuse_config("BertModel", "BertForSequenceClassification", "'classifier.weight' is missing");
    refuse_config("{", "[", "not JSON");
}

Test(hf, configs_that_change_little) {
    static const char *const changes[][2] = {{"BertModel", "BertForMaskedLM"},
                                             {"\"layer_norm_eps\": 1e-12", "\"layer_norm_eps\": 1e-5"},
                                             {"\"type_vocab_size\": 2,", ""},
                                             {"\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1"},
                                             {"\"hidden_act\": \"gelu\"", "\"hidden_act\": \"gelu_new\""},
                                             {"\"hidden_act\": \"gelu\"", "\"hidden_act\": \"relu\""},
                                             {"\"hidden_act\": \"gelu\"", "\"hidden_act\": \"silu\""}};
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        char *folder = folder_with(MODELS "bert-h64", changes[i][0], changes[i][1]);
        wok_model *model = load(folder, NULL);
        cr_assert(model, "%s: %s", changes[i][1], wok_ctx_error(ctx));
        int64_t ids[BATCH * LENGTH] = {1, 2, 3};
        float *out = hidden(model, ids, NULL, NULL, NULL);
        cr_assert(out, "%s: %s", changes[i][1], wok_ctx_error(ctx));
        free(out);
        wok_model_free(&model);
        remove_temp(folder);
    }
}

/* Writes the tensors of the BERT fixture under other names: a prefix, and "gamma"/"beta" for the normalisations. */
static void rename_tensors(const char *file_path, const char *prefix, bool early) {
    char path[512];
    size_t bytes;
    snprintf(path, sizeof path, "%s", file_path); /* path_of's ring goes round below */
    uint8_t *file = read_file(MODELS "bert-h64/model.safetensors", &bytes);
    wok_tensors tensors;
    cr_assert_eq(wok_safetensors_read(ctx, &(wok_source){file, bytes, "fixture", NULL, NULL}, &tensors), WOK_OK);
    wok_model *model = NULL;
    cr_assert_eq(wok_model_new(ctx, "test", &model), WOK_OK);
    wok_model_set_opset(model, "", 17);
    for (size_t i = 0; i < tensors.count; i++) {
        const wok_tensor_entry *e = &tensors.entries[i];
        const char *norm = early ? strstr(e->name, "LayerNorm.") : NULL;
        char *name = path_of("%s%s", prefix, e->name);
        if (norm)
            name = path_of("%s%.*s%s", prefix, (int)(norm + 10 - e->name), e->name, norm[10] == 'w' ? "gamma" : "beta");
        wok_graph_constant(model, name, e->dtype, e->rank, e->dims, e->data, e->bytes, WOK_DATA_COPY);
    }
    wok_graph_constant(model, "cls.predictions.bias", WOK_F32, 1, (int64_t[]){1}, "\0\0\0", 4, WOK_DATA_COPY);
    wok_graph_constant(model, path_of("%sembeddings.position_ids", prefix), WOK_I64, 1, (int64_t[]){1},
                       "\0\0\0\0\0\0\0", 8, WOK_DATA_COPY);
    wok_value one = wok_graph_value(model, "cls.predictions.bias");
    wok_graph_output(model, wok_graph_op(model, "Identity", "", "i", &one, 1, "y"));
    cr_assert_eq(wok_model_finish(model, NULL), WOK_OK, "%s", wok_ctx_error(ctx));
    cr_assert_eq(wok_model_save(model, path), WOK_OK, "%s", wok_ctx_error(ctx));
    wok_model_free(&model);
    wok_tensors_free(&tensors);
    free(file);
}

Test(hf, prefixes_early_names_and_unused_heads) {
    wok_model *plain = load(MODELS "bert-h64", NULL);
    int64_t ids[BATCH * LENGTH] = {5, 6, 7, 8, 9};
    float *want = hidden(plain, ids, NULL, NULL, NULL);
    for (int form = 0; form < 4; form++) {
        char *folder = folder_with(MODELS "bert-h64", "BertModel", "BertForPreTraining");
        char *path = path_of("%s/model.safetensors", folder);
        cr_assert_eq(unlink(path), 0);
        rename_tensors(path, form & 1 ? "bert." : "", form & 2);
        wok_model *model = load(folder, NULL);
        cr_assert(model, "form %d: %s", form, wok_ctx_error(ctx));
        float *out = hidden(model, ids, NULL, NULL, NULL);
        cr_assert(out, "%s", wok_ctx_error(ctx));
        cr_assert_eq(memcmp(out, want, BATCH * LENGTH * 64 * sizeof *out), 0, "form %d", form);
        free(out);
        wok_model_free(&model);
        remove_temp(folder);
    }
    free(want);
    wok_model_free(&plain);
}

/* F16 and BF16 tensors: what they hold is computed with in f32. */
static void halve(const char *path, wok_dtype dtype) {
    size_t bytes;
    uint8_t *file = read_file(MODELS "bert-h64/model.safetensors", &bytes);
    wok_tensors tensors;
    wok_model *model = NULL;
    cr_assert_eq(wok_safetensors_read(ctx, &(wok_source){file, bytes, "fixture", NULL, NULL}, &tensors), WOK_OK);
    cr_assert_eq(wok_model_new(ctx, "test", &model), WOK_OK);
    wok_model_set_opset(model, "", 17);
    for (size_t i = 0; i < tensors.count; i++) {
        const wok_tensor_entry *e = &tensors.entries[i];
        uint16_t *half = malloc(e->bytes / 2);
        for (size_t k = 0; k < e->bytes / 4; k++) {
            uint32_t u;
            memcpy(&u, (const uint8_t *)e->data + 4 * k, 4);
            int exponent = (int)(u >> 23 & 255) - 127 + 15; /* cut off, small ones to zero */
            half[k] = dtype == WOK_BF16 ? (uint16_t)(u >> 16)
                      : exponent <= 0   ? 0
                                        : (uint16_t)((u >> 16 & 0x8000) | (uint32_t)exponent << 10 | (u >> 13 & 0x3ff));
        }
        wok_graph_constant(model, e->name, dtype, e->rank, e->dims, half, e->bytes / 2, WOK_DATA_COPY);
        free(half);
    }
    wok_value any = wok_graph_value(model, tensors.entries[0].name);
    wok_graph_output(model, wok_graph_op(model, "Identity", "", "i", &any, 1, "y"));
    cr_assert_eq(wok_model_finish(model, NULL), WOK_OK, "%s", wok_ctx_error(ctx));
    cr_assert_eq(wok_model_save(model, path), WOK_OK, "%s", wok_ctx_error(ctx));
    wok_model_free(&model);
    wok_tensors_free(&tensors);
    free(file);
}

Test(hf, half_precision_tensors) {
    wok_model *plain = load(MODELS "bert-h64", NULL);
    int64_t ids[BATCH * LENGTH] = {5, 6, 7, 8, 9};
    float *want = hidden(plain, ids, NULL, NULL, NULL);
    for (int i = 0; i < 2; i++) {
        char *folder = folder_with(MODELS "bert-h64", "float32", i ? "bfloat16" : "float16");
        char *path = path_of("%s/model.safetensors", folder);
        cr_assert_eq(unlink(path), 0);
        halve(path, i ? WOK_BF16 : WOK_F16);
        wok_model *model = load(folder, NULL);
        cr_assert(model, "%s", wok_ctx_error(ctx));
        float *out = hidden(model, ids, NULL, NULL, NULL), most = 0;
        cr_assert(out, "%s", wok_ctx_error(ctx));
        for (int k = 0; k < BATCH * LENGTH * 64; k++) most = fmaxf(most, fabsf(out[k] - want[k]));
        cr_assert(most > 0 && most < (i ? 0.2f : 0.02f), "error %g", (double)most);
        free(out);
        wok_model_free(&model);
        remove_temp(folder);
    }
    free(want);
    wok_model_free(&plain);
}

Test(hf, forms_that_are_not_read_are_refused_by_name) {
    static const char *const files[] = {"model.safetensors.index.json", "pytorch_model.bin",
                                        "pytorch_model.bin.index.json", "tf_model.h5"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char *folder = folder_with(MODELS "bert-h64", "bert", "bert");
        cr_assert_eq(unlink(path_of("%s/model.safetensors", folder)), 0);
        cr_assert_null(load(folder, NULL));
        cr_assert(strstr(wok_ctx_error(ctx), "no model.safetensors"), "%s", wok_ctx_error(ctx));
        write_file(path_of("%s/%s", folder, files[i]), "x", 1);
        cr_assert_null(load(folder, NULL));
        cr_assert(strstr(wok_ctx_error(ctx), files[i]), "%s", wok_ctx_error(ctx));
        remove_temp(folder);
    }
}

Test(hf, failing_allocations_leak_nothing) {
    bool done = false;
    for (long n = 0; !done; n++) {
        failing f = {.fail_at = n};
        wok_ctx *weak = failing_ctx(&f);
        if (!weak) continue;
        wok_model *model = NULL;
        wok_status status = wok_model_load(weak, MODELS "distilbert-h64-cls", NULL, &model);
        done = f.calls <= n;
        cr_assert_eq(status, done ? WOK_OK : WOK_ERR_MEMORY, "allocation %ld: %s", n, wok_ctx_error(weak));
        wok_model_free(&model);
        wok_ctx_free(&weak);
        cr_assert_eq(f.live, 0, "allocation %ld", n);
    }
}

Test(hf, damaged_tensors_never_crash) {
    size_t bytes;
    uint8_t *file = read_file(MODELS "bert-h64/model.safetensors", &bytes);
    char *folder = folder_with(MODELS "bert-h64", "bert", "bert"), *path = path_of("%s/model.safetensors", folder);
    cr_assert_eq(unlink(path), 0);
    uint64_t state = 7;
    for (int i = 0; i < 300; i++) { /* in the header, where it hurts */
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        size_t at = state % 4000;
        uint8_t old = file[at];
        file[at] = (uint8_t)(state >> 40);
        write_file(path, file, i % 10 ? bytes : state >> 20 & 0xffff);
        wok_model *model = load(folder, NULL);
        wok_model_free(&model);
        file[at] = old;
    }
    free(file);
    remove_temp(folder);
}

/* test_text.c - the text pipelines: which inputs a model gets, pooling, lengths, labels, the same bits in any batch. */
#define _XOPEN_SOURCE 700 /* mkdtemp, symlink */
#include "support.h"
#include "wok_text.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static wok_ctx *ctx;
static wok_text *pipeline;
static size_t held;
static char folder[64];

static void setup(void) {
    ctx = wok_ctx_create(NULL);
    held = wok_ctx_memory(ctx, NULL);
    strcpy(folder, "/tmp/wok-text-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
}

static const char *in_folder(const char *name) {
    static char paths[4][128];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static void drop(const char *const *names) {
    for (; *names; names++) unlink(in_folder(*names));
}

static void teardown(void) {
    static const char *const names[] = {"model.onnx",
                                        "vocab.txt",
                                        "config.json",
                                        "modules.json",
                                        "1_Pooling/config.json",
                                        "tokenizer_config.json",
                                        "sentence_bert_config.json",
                                        "model.safetensors",
                                        "onnx/model.onnx",
                                        NULL};
    wok_text_free(&pipeline);
    drop(names);
    rmdir(in_folder("1_Pooling"));
    rmdir(in_folder("onnx"));
    cr_assert_eq(rmdir(folder), 0, "%s is not empty", folder);
    size_t now = wok_ctx_memory(ctx, NULL);
    cr_assert_eq(now, held, "%zu bytes were not given back", now - held);
    wok_ctx_free(&ctx);
}
TestSuite(text, .init = setup, .fini = teardown, .timeout = 300);

static void write_file(const char *name, const char *text) {
    FILE *file = fopen(in_folder(name), "wb");
    cr_assert_not_null(file);
    fputs(text, file);
    fclose(file);
}

/* ---- a made-up encoder whose answers can be reckoned by hand ----------------------------------------------------------- */

/* hidden[b, t] = (word[id] + type[type] + position[position]) * mask; every part only if the model has that input. */
enum { WORDS = 8, WIDTH = 3, POSITIONS = 16 };
static float word_of(int id, int i) {
    return (float)(id * 10 + i * i) + 0.5f * (float)((id * 7 + i) % 3);
}
static float type_of(int type, int i) {
    return (float)(type * (i + 1)) * 100;
}
static float position_of(int t, int i) {
    return (float)t * 0.25f * (float)(i + 1);
}

struct shape {
    const char *ids, *mask, *types, *positions; /* names of inputs; NULL: the model has none */
    wok_dtype dtype, mask_dtype;                /* of the inputs; the mask's may differ (0: it does not) */
    int64_t batch, sequence;                    /* fixed sizes; 0: free */
    bool logits;                                /* hidden[:, 0] is the output */
    const char *output;                         /* NULL: the usual name */
};

static wok_value table(wok_model *m, const char *name, int rows, float (*cell)(int, int)) {
    float data[POSITIONS * WIDTH];
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < WIDTH; i++) data[r * WIDTH + i] = cell(r, i);
    return wok_graph_constant(m, name, WOK_F32, 2, (int64_t[]){rows, WIDTH}, data,
                              (size_t)(rows * WIDTH) * sizeof *data, WOK_DATA_COPY);
}

static wok_value input(wok_model *m, const struct shape *s, const char *name, wok_dtype dtype) {
    const int64_t dims[2] = {s->batch ? s->batch : -1, s->sequence ? s->sequence : -1};
    static const char *const names[2] = {"batch", "sequence"};
    return wok_graph_input(m, name, dtype, 2, dims, names);
}

static wok_value looked_up(wok_model *m, const struct shape *s, const char *name, wok_value rows, wok_value sum) {
    wok_value picked = wok_graph_op(m, "Gather", "", NULL, (wok_value[]){rows, input(m, s, name, s->dtype)}, 2, NULL);
    return sum == WOK_ABSENT ? picked : wok_graph_op(m, "Add", "", NULL, (wok_value[]){sum, picked}, 2, NULL);
}

static void write_model(const char *name, struct shape s) {
    wok_model *m = NULL;
    cr_assert_eq(wok_model_new(ctx, "onnx", &m), WOK_OK);
    wok_model_set_opset(m, "", 17);
    wok_model_set_ir(m, 8, "test_text");
    wok_value h = looked_up(m, &s, s.ids, table(m, "word", WORDS, word_of), WOK_ABSENT);
    if (s.types) h = looked_up(m, &s, s.types, table(m, "type", 2, type_of), h);
    if (s.positions) h = looked_up(m, &s, s.positions, table(m, "position", POSITIONS, position_of), h);
    if (s.mask) {
        wok_value mask = input(m, &s, s.mask, s.mask_dtype ? s.mask_dtype : s.dtype);
        mask = wok_graph_op(m, "Cast", "", NULL, &mask, 1, NULL);
        wok_node_set_int(m, wok_graph_last(m), "to", WOK_F32);
        wok_value last = wok_graph_constant(m, "last", WOK_I64, 1, (int64_t[]){1}, (int64_t[]){2}, 8, WOK_DATA_COPY);
        mask = wok_graph_op(m, "Unsqueeze", "", NULL, (wok_value[]){mask, last}, 2, NULL);
        h = wok_graph_op(m, "Mul", "", NULL, (wok_value[]){h, mask}, 2, NULL);
    }
    if (s.logits) {
        wok_value first = wok_graph_constant(m, "first", WOK_I64, 0, NULL, (int64_t[]){0}, 8, WOK_DATA_COPY);
        h = wok_graph_op(m, "Gather", "", NULL, (wok_value[]){h, first}, 2, NULL);
        wok_node_set_int(m, wok_graph_last(m), "axis", 1);
    }
    h = wok_graph_op(m, "Identity", "", NULL, &h, 1, s.output ? s.output : s.logits ? "logits" : "last_hidden_state");
    static const char *const names[3] = {"batch", "sequence", "width"};
    wok_graph_declare(m, h, WOK_F32, s.logits ? 2 : 3,
                      s.logits ? (int64_t[]){-1, WIDTH, 0} : (int64_t[]){-1, -1, WIDTH}, names);
    wok_graph_output(m, h);
    cr_assert_eq(wok_model_finish(m, NULL), WOK_OK, "%s", wok_ctx_error(ctx));
    cr_assert_eq(wok_model_save(m, in_folder(name)), WOK_OK, "%s", wok_ctx_error(ctx));
    wok_model_free(&m);
}

#define VOCAB "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\n"
static const struct shape usual = {
    .ids = "input_ids", .mask = "attention_mask", .types = "token_type_ids", .dtype = WOK_I64};

static void load(wok_text_task task, const wok_text_options *options) {
    wok_text_free(&pipeline);
    cr_assert_eq(wok_text_load(ctx, folder, task, options, &pipeline), WOK_OK, "%s", wok_ctx_error(ctx));
}

static void refused(wok_text_task task, wok_status status, const char *says) {
    wok_text_free(&pipeline);
    cr_assert_eq(wok_text_load(ctx, folder, task, NULL, &pipeline), status, "%s", wok_ctx_error(ctx));
    cr_assert_null(pipeline);
    cr_assert_not_null(strstr(wok_ctx_error(ctx), says), "%s", wok_ctx_error(ctx));
}

static wok_text_item item(const char *text) {
    return (wok_text_item){text, strlen(text), NULL, 0};
}

static void run(const wok_text_item *items, size_t count, float *out) {
    cr_assert_eq(wok_text_run(pipeline, items, count, out), WOK_OK, "%s", wok_text_error(pipeline));
}

/* The mean over [CLS] ids... [SEP] that the made-up model must give. */
static float mean_of(const int *ids, const int *types, int count, bool positions, int i) {
    double sum = 0;
    for (int t = 0; t < count; t++)
        sum += (double)(word_of(ids[t], i) + type_of(types[t], i) + (positions ? position_of(t, i) : 0));
    return (float)(sum / count);
}

static void check_pairs(const char *what, bool types, bool positions) {
    static const int ids[3][7] = {{2, 5, 3}, {2, 5, 6, 7, 3}, {2, 5, 3, 6, 7, 3}}, counts[3] = {3, 5, 6};
    static const int none[7] = {0}, second[7] = {0, 0, 0, 1, 1, 1};
    const wok_text_item items[3] = {{"a", 1, NULL, 0}, {"a b c", 5, NULL, 0}, {"a", 1, "b c", 3}};
    float out[3][WIDTH];
    cr_assert_eq(wok_text_width(pipeline), WIDTH);
    run(items, 3, out[0]);
    for (int r = 0; r < 3; r++)
        for (int i = 0; i < WIDTH; i++) {
            float want = mean_of(ids[r], types && r == 2 ? second : none, counts[r], positions, i);
            cr_assert_float_eq(out[r][i], want, 1e-4f, "%s: row %d [%d]: %g, not %g", what, r, i, (double)out[r][i],
                               (double)want);
        }
}

/* ---- inputs ----------------------------------------------------------------------------------------------------------------- */

Test(text, B42_inputs_are_given_where_the_model_has_them) {
    static const struct {
        const char *what;
        struct shape shape;
    } cases[] = {
        {"BERT", {.ids = "input_ids", .mask = "attention_mask", .types = "token_type_ids", .dtype = WOK_I64}},
        {"DistilBERT: no types", {.ids = "input_ids", .mask = "attention_mask", .dtype = WOK_I64}},
        {"ids only", {.ids = "input_ids", .dtype = WOK_I64}},
        {"int32", {.ids = "input_ids", .mask = "attention_mask", .types = "token_type_ids", .dtype = WOK_I32}},
        {"float mask", {.ids = "input_ids", .mask = "attention_mask", .dtype = WOK_I64, .mask_dtype = WOK_F32}},
        {"positions",
         {.ids = "input_ids",
          .mask = "attention_mask",
          .types = "token_type_ids",
          .positions = "position_ids",
          .dtype = WOK_I64}},
        {"TensorFlow's names",
         {.ids = "input_ids:0", .mask = "input_mask:0", .types = "segment_ids:0", .dtype = WOK_I32}},
        {"serving names",
         {.ids = "serving_default_input_ids:0", .mask = "serving_default_attention_mask:0", .dtype = WOK_I32}},
        {"renamed ids", {.ids = "input.1", .mask = "attention_mask", .dtype = WOK_I64}},
        {"one input of any name", {.ids = "whatever", .dtype = WOK_I64}},
        {"fixed batch of one", {.ids = "input_ids", .mask = "attention_mask", .dtype = WOK_I64, .batch = 1}},
        {"fixed batch of two", {.ids = "input_ids", .mask = "attention_mask", .dtype = WOK_I64, .batch = 2}},
        {"fixed sequence",
         {.ids = "input_ids", .mask = "attention_mask", .types = "token_type_ids", .dtype = WOK_I64, .sequence = 9}},
        {"another output", {.ids = "input_ids", .dtype = WOK_I64, .output = "hidden"}},
    };
    write_file("vocab.txt", VOCAB);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_model("model.onnx", cases[i].shape);
        load(WOK_TEXT_EMBED, NULL);
        check_pairs(cases[i].what, cases[i].shape.types != NULL, cases[i].shape.positions != NULL);
    }
}

Test(text, inputs_that_nobody_knows_are_named) {
    write_file("vocab.txt", VOCAB);
    write_model("model.onnx", (struct shape){.ids = "x", .mask = "y", .dtype = WOK_I64});
    refused(WOK_TEXT_EMBED, WOK_ERR_UNSUPPORTED, "input y");
    write_model("model.onnx", (struct shape){.ids = "input_ids", .mask = "ids", .dtype = WOK_I64});
    refused(WOK_TEXT_EMBED, WOK_ERR_UNSUPPORTED, "seem to mean the same");
    write_model("model.onnx", (struct shape){.ids = "input_ids", .dtype = WOK_I64, .logits = true});
    refused(WOK_TEXT_EMBED, WOK_ERR_UNSUPPORTED, "hidden states");
    write_model("model.onnx", usual);
    refused(WOK_TEXT_CLASSIFY, WOK_ERR_UNSUPPORTED, "logits");
}

Test(text, places_of_model_and_tokenizer) {
    refused(WOK_TEXT_EMBED, WOK_ERR_IO, "tokenizer.json");
    write_file("vocab.txt", VOCAB);
    refused(WOK_TEXT_EMBED, WOK_ERR_IO, "config.json");
    mkdir(in_folder("onnx"), 0777);
    write_model("onnx/model.onnx", usual);
    load(WOK_TEXT_EMBED, NULL);
    check_pairs("a folder with onnx/", true, false);
    wok_text_free(&pipeline);
    cr_assert_eq(wok_text_load(ctx, in_folder("onnx/model.onnx"), WOK_TEXT_EMBED, NULL, &pipeline), WOK_OK, "%s",
                 wok_ctx_error(ctx));
    check_pairs("the file, its tokenizer above", true, false);
    wok_text_free(&pipeline);
    cr_assert_eq(wok_text_load(ctx, "/no/such/model.onnx", WOK_TEXT_EMBED, NULL, &pipeline), WOK_ERR_IO);
    write_model("model.onnx", usual);
    wok_text_options options = {.size = 0};
    cr_assert_eq(wok_text_load(ctx, folder, WOK_TEXT_EMBED, &options, &pipeline), WOK_ERR_ARGUMENT);
    options = (wok_text_options){.size = sizeof options, .batch = -1};
    cr_assert_eq(wok_text_load(ctx, folder, WOK_TEXT_EMBED, &options, &pipeline), WOK_ERR_ARGUMENT);
}

/* ---- pooling ---------------------------------------------------------------------------------------------------------------- */

#define MODULE(n, path, class)                                                                                         \
    "{\"idx\":" #n ",\"name\":\"" #n "\",\"path\":\"" path "\",\"type\":\"sentence_transformers.models." class "\"}"
#define TRANSFORMER MODULE(0, "", "Transformer")
#define POOLING MODULE(1, "1_Pooling", "Pooling")
#define NORMALIZE MODULE(2, "2_Normalize", "Normalize")

Test(text, pooling_is_as_the_folder_says) {
    static const int ids[5] = {2, 5, 6, 7, 3}, none[5] = {0};
    float cls[WIDTH], most[WIDTH], mean[WIDTH], out[3 * WIDTH];
    for (int i = 0; i < WIDTH; i++) {
        cls[i] = word_of(2, i);
        mean[i] = mean_of(ids, none, 5, false, i);
        most[i] = cls[i];
        for (int t = 1; t < 5; t++) most[i] = fmaxf(most[i], word_of(ids[t], i));
    }
    write_file("vocab.txt", VOCAB);
    write_model("model.onnx", usual);
    mkdir(in_folder("1_Pooling"), 0777);
    write_file("modules.json", "[" TRANSFORMER "," POOLING "]");
    const struct {
        const char *config;
        int parts;
        const float *want[3];
        float scale;
    } cases[] = {
        {"{\"pooling_mode_cls_token\":true,\"pooling_mode_mean_tokens\":false}", 1, {cls}, 1},
        {"{\"pooling_mode_mean_tokens\":true,\"pooling_mode_max_tokens\":false}", 1, {mean}, 1},
        {"{\"pooling_mode_max_tokens\":true}", 1, {most}, 1},
        {"{\"pooling_mode_mean_sqrt_len_tokens\":true}", 1, {mean}, 2.2360680f},
        {"{\"pooling_mode_mean_tokens\":true,\"pooling_mode_cls_token\":true,\"pooling_mode_max_tokens\":"
         "true}",
         3,
         {cls, most, mean},
         1},
        {"{\"pooling_mode\":\"cls\"}", 1, {cls}, 1},
    };
    const wok_text_item texts[2] = {item("a b c"), item("a b c a b c a b c")};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        write_file("1_Pooling/config.json", cases[k].config);
        load(WOK_TEXT_EMBED, NULL);
        cr_assert_eq(wok_text_width(pipeline), (size_t)cases[k].parts * WIDTH);
        float both[2][3 * WIDTH];
        run(texts, 1, out);
        run(texts, 2, both[0]); /* beside a longer one: padding may not count */
        cr_assert_eq(memcmp(out, both, wok_text_width(pipeline) * sizeof *out), 0);
        for (int p = 0; p < cases[k].parts; p++)
            for (int i = 0; i < WIDTH; i++)
                cr_assert_float_eq(out[p * WIDTH + i], cases[k].scale * cases[k].want[p][i], 1e-3f, "case %zu", k);
    }
    write_file("1_Pooling/config.json", "{\"pooling_mode_lasttoken\":true}");
    refused(WOK_TEXT_EMBED, WOK_ERR_UNSUPPORTED, "lasttoken");
    write_file("1_Pooling/config.json", "{}");
    refused(WOK_TEXT_EMBED, WOK_ERR_UNSUPPORTED, "pooling");
    write_file("modules.json", "[" TRANSFORMER "," MODULE(1, "2_Dense", "Dense") "]");
    refused(WOK_TEXT_EMBED, WOK_ERR_UNSUPPORTED, "Dense");
    write_file("modules.json", "[" TRANSFORMER "," MODULE(1, "../x", "Pooling") "]");
    refused(WOK_TEXT_EMBED, WOK_ERR_FORMAT, "leaves the folder");
    write_file("modules.json", "{}");
    refused(WOK_TEXT_EMBED, WOK_ERR_FORMAT, "not a list");
}

Test(text, scaled_to_one_only_where_the_folder_says_so) {
    static const int ids[3] = {2, 5, 3}, none[3] = {0};
    float out[WIDTH];
    const wok_text_item a = item("a");
    write_file("vocab.txt", VOCAB);
    write_model("model.onnx", usual);
    for (int scaled = 0; scaled < 2; scaled++) {
        write_file("modules.json",
                   scaled ? "[" TRANSFORMER "," POOLING "," NORMALIZE "]" : "[" TRANSFORMER "," POOLING "]");
        load(WOK_TEXT_EMBED, NULL);
        run(&a, 1, out);
        double length = 0;
        for (int i = 0; i < WIDTH; i++)
            length += (double)mean_of(ids, none, 3, false, i) * mean_of(ids, none, 3, false, i);
        for (int i = 0; i < WIDTH; i++)
            cr_assert_float_eq(out[i], mean_of(ids, none, 3, false, i) / (scaled ? (float)sqrt(length) : 1.0f), 1e-4f);
    }
}

/* ---- lengths ------------------------------------------------------------------------------------------------------------------ */

Test(text, texts_are_cut_where_the_files_say) {
    write_file("vocab.txt", VOCAB);
    write_model("model.onnx", usual);
    load(WOK_TEXT_EMBED, NULL);
    cr_assert_eq(wok_text_max_length(pipeline), 0);
    write_file("config.json", "{\"max_position_embeddings\":12}");
    load(WOK_TEXT_EMBED, NULL);
    cr_assert_eq(wok_text_max_length(pipeline), 12);
    write_file("tokenizer_config.json", "{\"model_max_length\":9}");
    load(WOK_TEXT_EMBED, NULL);
    cr_assert_eq(wok_text_max_length(pipeline), 9);
    write_file("sentence_bert_config.json", "{\"max_seq_length\":5,\"do_lower_case\":false}");
    load(WOK_TEXT_EMBED, NULL);
    cr_assert_eq(wok_text_max_length(pipeline), 5);
    static const int ids[5] = {2, 5, 6, 7, 3}, none[5] = {0};
    const wok_text_item longer = item("a b c a b c a b c a b c a b c a b c");
    float out[WIDTH];
    run(&longer, 1, out);
    for (int i = 0; i < WIDTH; i++) cr_assert_float_eq(out[i], mean_of(ids, none, 5, false, i), 1e-4f);
    write_file("sentence_bert_config.json", "{\"max_seq_length\":500}");
    load(WOK_TEXT_EMBED, NULL);
    cr_assert_eq(wok_text_max_length(pipeline), 12, "never beyond the position table");
    const wok_text_options options = {.size = sizeof options, .max_length = 7};
    load(WOK_TEXT_EMBED, &options);
    cr_assert_eq(wok_text_max_length(pipeline), 7);
    write_model("model.onnx",
                (struct shape){.ids = "input_ids", .mask = "attention_mask", .dtype = WOK_I64, .sequence = 4});
    load(WOK_TEXT_EMBED, NULL);
    cr_assert_eq(wok_text_max_length(pipeline), 4);
    run(&longer, 1, out);
}

Test(text, lower_case_of_sentence_bert_config) {
    write_file("vocab.txt", VOCAB);
    write_model("model.onnx", usual);
    write_file("tokenizer_config.json", "{\"do_lower_case\":false}");
    float upper[WIDTH], lower[WIDTH];
    const wok_text_item texts[2] = {item("A"), item("a")};
    for (int on = 0; on < 2; on++) {
        write_file("sentence_bert_config.json", on ? "{\"do_lower_case\":true}" : "{\"do_lower_case\":false}");
        load(WOK_TEXT_EMBED, NULL);
        run(&texts[0], 1, upper);
        run(&texts[1], 1, lower);
        cr_assert_eq(memcmp(upper, lower, sizeof upper) == 0, on == 1);
    }
}

/* ---- classification ------------------------------------------------------------------------------------------------------------ */

Test(text, classification_squashes_and_names) {
    const struct {
        const char *config, *labels[WIDTH];
        int how;
    } cases[] = {{"{}", {"LABEL_0", "LABEL_1", "LABEL_2"}, 0},
                 {"{\"id2label\":{\"0\":\"bad\",\"2\":\"good\"}}", {"bad", "LABEL_1", "good"}, 0},
                 {"{\"id2label\":{\"0\":\"x\",\"9\":\"y\",\"1\":7},\"problem_type\":\"multi_label_classification\"}",
                  {"x", "LABEL_1", "LABEL_2"},
                  1},
                 {"{\"problem_type\":\"regression\"}", {"LABEL_0", "LABEL_1", "LABEL_2"}, 2}};
    write_file("vocab.txt", VOCAB);
    write_model("model.onnx",
                (struct shape){.ids = "input_ids", .mask = "attention_mask", .dtype = WOK_I64, .logits = true});
    const wok_text_item a = item("a");
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        write_file("config.json", cases[k].config);
        load(WOK_TEXT_CLASSIFY, NULL);
        float out[WIDTH];
        double logit[WIDTH], sum = 0;
        run(&a, 1, out);
        for (int i = 0; i < WIDTH; i++) {
            logit[i] = (double)word_of(2, i);
            sum += exp(logit[i] - (double)word_of(2, WIDTH - 1));
            cr_assert_str_eq(wok_text_label(pipeline, (size_t)i), cases[k].labels[i]);
        }
        for (int i = 0; i < WIDTH; i++) {
            double want = cases[k].how == 0   ? exp(logit[i] - (double)word_of(2, WIDTH - 1)) / sum
                          : cases[k].how == 1 ? 1 / (1 + exp(-logit[i]))
                                              : logit[i];
            cr_assert_float_eq((double)out[i], want, 1e-6, "case %zu: %g, not %g", k, (double)out[i], want);
        }
        cr_assert_null(wok_text_label(pipeline, WIDTH));
    }
}

/* ---- batches ------------------------------------------------------------------------------------------------------------------- */

static int pick(unsigned *seed, int below) {
    *seed = *seed * 1664525u + 1013904223u;
    return (int)((*seed >> 8) % (unsigned)below);
}

enum { TEXTS = 40 };
static char sentences[TEXTS][200];

static void make_sentences(wok_text_item *items, int words, int longest) {
    unsigned seed = 7;
    for (int n = 0; n < TEXTS; n++) {
        sentences[n][0] = 0;
        for (int k = pick(&seed, longest + 1); k > 0; k--) {
            char word[8];
            snprintf(word, sizeof word, "w%d ", pick(&seed, words));
            strcat(sentences[n], word);
        }
        items[n] = item(sentences[n]);
    }
}

/* A Hugging Face folder of tests/data with a made-up vocabulary. */
static void use_fixture(const char *name) {
    char path[200], vocab[8000] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n", config[6000];
    snprintf(path, sizeof path, "models/%s/model.safetensors", name);
    char *real = realpath(support_data(path), NULL);
    cr_assert_not_null(real);
    cr_assert_eq(symlink(real, in_folder("model.safetensors")), 0);
    free(real);
    snprintf(path, sizeof path, "models/%s/config.json", name);
    FILE *file = fopen(support_data(path), "rb");
    cr_assert_not_null(file);
    config[fread(config, 1, sizeof config - 1, file)] = 0;
    fclose(file);
    write_file("config.json", config);
    for (int i = 0; i < 400; i++) snprintf(vocab + strlen(vocab), 16, "w%d\n", i);
    write_file("vocab.txt", vocab);
}

/* Alone, in batches of any size, in any order, at one and two threads: the same bits. */
static void check_bits(wok_text_task task) {
    wok_text_item items[TEXTS], turned[TEXTS];
    float alone[TEXTS][64], out[TEXTS][64];
    make_sentences(items, 400, 30);
    load(task, NULL);
    size_t width = wok_text_width(pipeline), row = width * sizeof(float);
    cr_assert_leq(width, 64);
    for (int n = 0; n < TEXTS; n++) run(&items[n], 1, alone[n]);
    for (int batch = 1; batch <= 64; batch = batch * 3 + 1) {
        const wok_text_options options = {.size = sizeof options, .batch = batch};
        load(task, &options);
        float *flat = malloc(TEXTS * row);
        run(items, TEXTS, flat);
        for (int n = 0; n < TEXTS; n++)
            cr_assert_eq(memcmp(flat + (size_t)n * width, alone[n], row), 0, "text %d in batches of %d", n, batch);
        for (int n = 0; n < TEXTS; n++) turned[n] = items[TEXTS - 1 - n];
        run(turned, TEXTS, flat);
        for (int n = 0; n < TEXTS; n++)
            cr_assert_eq(memcmp(flat + (size_t)(TEXTS - 1 - n) * width, alone[n], row), 0, "text %d, turned round", n);
        free(flat);
    }
    wok_ctx_options single = {.size = sizeof single, .threads = 1};
    wok_ctx *other = wok_ctx_create(&single);
    wok_text *lone = NULL;
    cr_assert_eq(wok_text_load(other, folder, task, NULL, &lone), WOK_OK, "%s", wok_ctx_error(other));
    for (int n = 0; n < TEXTS; n++) {
        cr_assert_eq(wok_text_run(lone, &items[n], 1, out[n]), WOK_OK);
        cr_assert_eq(memcmp(out[n], alone[n], row), 0, "text %d at one thread", n);
    }
    wok_text_free(&lone);
    wok_ctx_free(&other);
}

Test(text, the_same_bits_in_any_batch_bert) {
    use_fixture("bert-h64");
    check_bits(WOK_TEXT_EMBED);
    cr_assert_eq(wok_text_max_length(pipeline), 64);
}

Test(text, the_same_bits_in_any_batch_distilbert_classifier) {
    use_fixture("distilbert-h64-cls");
    check_bits(WOK_TEXT_CLASSIFY);
    cr_assert_eq(wok_text_width(pipeline), 3);
}

Test(text, clones_share_and_outlive) {
    write_file("vocab.txt", VOCAB);
    write_model("model.onnx", usual);
    load(WOK_TEXT_EMBED, NULL);
    float a[WIDTH], b[WIDTH];
    const wok_text_item text = item("a b");
    run(&text, 1, a);
    wok_text *clone = NULL;
    cr_assert_eq(wok_text_clone(pipeline, &clone), WOK_OK);
    cr_assert_eq(wok_text_model(clone), wok_text_model(pipeline));
    wok_text_free(&pipeline);
    pipeline = clone;
    run(&text, 1, b);
    cr_assert_eq(memcmp(a, b, sizeof a), 0);
}

Test(text, errors_leave_the_pipeline_usable) {
    write_file("vocab.txt", VOCAB "d\ne\n"); /* ids 8 and 9: beyond the model's table */
    write_model("model.onnx", usual);
    load(WOK_TEXT_EMBED, NULL);
    float out[2 * WIDTH];
    const wok_text_item texts[2] = {item("a"), item("d")};
    cr_assert_neq(wok_text_run(pipeline, texts, 2, out), WOK_OK);
    cr_assert_neq(wok_text_error(pipeline)[0], 0);
    cr_assert_eq(wok_text_run(pipeline, NULL, 1, out), WOK_ERR_ARGUMENT);
    run(texts, 1, out);
    cr_assert_eq(wok_text_run(pipeline, texts, 0, NULL), WOK_OK);
}

/* ---- failing memory --------------------------------------------------------------------------------------------------------------- */

static wok_status load_and_run(wok_ctx *c) {
    const wok_text_item texts[2] = {item("a"), item("a b c")};
    float out[2 * WIDTH];
    wok_text *p = NULL;
    wok_status status = wok_text_load(c, folder, WOK_TEXT_EMBED, NULL, &p);
    if (status == WOK_OK) status = wok_text_run(p, texts, 2, out);
    wok_text_free(&p);
    return status;
}

Test(text, every_allocation_may_fail) {
    write_file("vocab.txt", VOCAB);
    write_model("model.onnx", usual);
    write_file("modules.json", "[" TRANSFORMER "," POOLING "," NORMALIZE "]");
    mkdir(in_folder("1_Pooling"), 0777);
    write_file("1_Pooling/config.json", "{\"pooling_mode_mean_tokens\":true}");
    support_heap heap = {0};
    wok_ctx *c = support_ctx(1, &heap);
    long before = heap.blocks, failures = 0;
    for (long n = 1;; n++) {
        heap.fail_at = heap.calls + n;
        heap.failures = 0;
        wok_status status = load_and_run(c);
        cr_assert_eq(heap.blocks, before, "allocation %ld leaks", n);
        if (heap.failures == 0) {
            cr_assert_eq(status, WOK_OK, "%s", wok_ctx_error(c));
            break;
        }
        failures++;
        cr_assert(status == WOK_ERR_MEMORY || status == WOK_OK, "allocation %ld: %s", n, wok_status_name(status));
    }
    cr_assert_geq(failures, 50);
    wok_ctx_free(&c);
    cr_assert_eq(heap.blocks, 0);
}

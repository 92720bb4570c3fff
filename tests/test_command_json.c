/* test_command_json.c - what the `wok` command tells: the JSON of run, info and explain, the shapes that nobody gave, help. */
#define _XOPEN_SOURCE 700 /* mkdtemp, realpath */
#include "command.h"

/* ---- JSON -------------------------------------------------------------------------------------------------------------------------- */

Test(command, run_json) {
    save_ids("ids.npy", 5, 1, 2);
    WORKS("run", bert, "-i", "input_ids=ids.npy", "--json", "--threads", "2", "--repeat", "5");
    cr_assert_str_empty(err);
    wok_json *doc = json_of();
    cr_assert(number(doc, 0, "min_ms") > 0 && number(doc, 0, "min_ms") <= number(doc, 0, "median_ms"));
    cr_assert_gt(number(doc, 0, "load_ms"), 0);
    cr_assert_gt(number(doc, 0, "peak_rss_mib"), 0);
    cr_assert_gt(number(doc, 0, "arena_mib"), 0);
    cr_assert_geq(number(doc, 0, "packed_mib"), 0);
    cr_assert_eq(number(doc, 0, "threads"), 2);
    cr_assert_eq(wok_json_kind_of(doc, wok_json_get(doc, 0, "isa")), WOK_JSON_STRING);
    cr_assert(wok_json_is(doc, wok_json_get(doc, 0, "device"), "cpu"));
    wok_json_at outputs = wok_json_get(doc, 0, "outputs"), first = item(doc, outputs, 0);
    cr_assert_eq(wok_json_count(doc, outputs), 2);
    cr_assert(wok_json_is(doc, wok_json_get(doc, first, "name"), "last_hidden_state"));
    cr_assert_eq(wok_json_kind_of(doc, wok_json_get(doc, first, "file")), WOK_JSON_NULL, "no -o, no file");
    expect_shape(doc, wok_json_get(doc, first, "shape"), 3, (int64_t[]){1, 5, 64});
    wok_json_free(&doc);
}

Test(command, run_without_json_is_for_people) {
    save_ids("ids.npy", 5, 1, 2);
    WORKS("run", bert, "-i", "input_ids=ids.npy");
    cr_assert(strstr(out, "last_hidden_state: f32 [1,5,64]") && strstr(out, "best"), "%s", out);
    WORKS("run", bert, "-i", "input_ids=ids.npy", "--profile", "--json");
    cr_assert(strstr(err, "Attention"), "%s", err);
    wok_json *doc = json_of();
    wok_json_free(&doc);
}

Test(command, info_json) {
    WORKS("info", onnx, "--json");
    wok_json *doc = json_of();
    wok_json_at ids = item(doc, wok_json_get(doc, 0, "inputs"), 0), shape = wok_json_get(doc, ids, "shape");
    cr_assert(wok_json_is(doc, wok_json_get(doc, 0, "format"), "onnx"));
    cr_assert_eq(number(doc, 0, "opset"), 13);
    cr_assert(wok_json_is(doc, wok_json_get(doc, ids, "name"), "input_ids") &&
              wok_json_is(doc, wok_json_get(doc, ids, "dtype"), "i64"));
    cr_assert(wok_json_is(doc, item(doc, shape, 0), "batch") && wok_json_is(doc, item(doc, shape, 1), "seq"));
    double nodes = 0;
    wok_json_each(doc, op, wok_json_get(doc, 0, "operators")) nodes += number(doc, op, "count");
    cr_assert_eq(nodes, number(doc, 0, "nodes"));
    wok_json_free(&doc);
}

static void check_node(const wok_json *doc, wok_json_at node, bool timed) {
    static const char *const texts[] = {"name", "op"};
    for (int i = 0; i < 2; i++)
        cr_assert_eq(wok_json_kind_of(doc, wok_json_get(doc, node, texts[i])), WOK_JSON_STRING, "%s", texts[i]);
    static const char *const lists[] = {"fused_from", "shape", "rejected"};
    for (int i = 0; i < 3; i++)
        cr_assert_eq(wok_json_kind_of(doc, wok_json_get(doc, node, lists[i])), WOK_JSON_ARRAY, "%s", lists[i]);
    static const char *const keys[] = {"kernel", "isa", "dtype", "us"};
    for (int i = 0; i < 4; i++) cr_assert_geq(wok_json_get(doc, node, keys[i]), 0, "%s", keys[i]);
    wok_json_at from = wok_json_get(doc, node, "fused_from");
    cr_assert_geq(wok_json_count(doc, from), 1);
    wok_json_each(doc, one, from) wok_json_each(doc, other, from)
        cr_assert(one == other || !wok_json_is(doc, one, wok_json_string(doc, other, NULL)), "named twice: %s",
                  wok_json_string(doc, other, NULL));
    wok_json_each(doc, no, wok_json_get(doc, node, "rejected")) {
        cr_assert_eq(wok_json_kind_of(doc, wok_json_get(doc, no, "kernel")), WOK_JSON_STRING);
        cr_assert_eq(wok_json_kind_of(doc, wok_json_get(doc, no, "reason")), WOK_JSON_STRING);
    }
    if (timed)
        cr_assert_geq(number(doc, node, "us"), 0);
    else
        cr_assert_eq(wok_json_kind_of(doc, wok_json_get(doc, node, "us")), WOK_JSON_NULL);
    cr_assert_geq(number(doc, node, "bytes"), 0);
    cr_assert_geq(number(doc, node, "macs"), 0);
}

static void check_explain(bool timed, int attentions, int convolutions) {
    wok_json *doc = json_of();
    int attention = 0, conv = 0;
    double macs = 0;
    wok_json_each(doc, node, wok_json_get(doc, 0, "nodes")) {
        check_node(doc, node, timed);
        attention += wok_json_is(doc, wok_json_get(doc, node, "op"), "Attention");
        conv += wok_json_is(doc, wok_json_get(doc, node, "op"), "Conv");
        macs += number(doc, node, "macs");
    }
    cr_assert_eq(attention, attentions);
    cr_assert_eq(conv, convolutions);
    cr_assert_gt(macs, 0);
    cr_assert_eq(wok_json_kind_of(doc, wok_json_get(doc, 0, "near_misses")), WOK_JSON_ARRAY);
    wok_json_each(doc, miss, wok_json_get(doc, 0, "near_misses")) {
        cr_assert_eq(wok_json_kind_of(doc, wok_json_get(doc, miss, "pass")), WOK_JSON_STRING);
        cr_assert_eq(wok_json_kind_of(doc, wok_json_get(doc, miss, "node")), WOK_JSON_STRING);
        cr_assert_eq(wok_json_kind_of(doc, wok_json_get(doc, miss, "reason")), WOK_JSON_STRING);
    }
    cr_assert_gt(number(doc, 0, "arena_bytes"), 0);
    cr_assert_geq(number(doc, 0, "weight_bytes"), 0);
    wok_json_free(&doc);
}

Test(command, explain_json) {
    char *resnet = realpath(MODELS "resnet18-w8/model.safetensors", NULL);
    WORKS("explain", onnx, "--json");
    check_explain(false, 2, 0);
    WORKS("explain", bert, "--json", "--profile");
    check_explain(true, 2, 0);
    WORKS("explain", resnet, "--arch", "resnet18", "--json", "--shape", "input=1x3x32x32");
    check_explain(false, 0, 20);
    WORKS("explain", onnx, "--json", "--no-pass", "fuse_attention");
    check_explain(false, 0, 0);
    WORKS("explain", onnx);
    cr_assert(strstr(out, "Attention") && strstr(out, "nodes, best level"), "%s", out);
    free(resnet);
}

/* ---- shapes that nobody gave ---------------------------------------------------------------------------------------------------- */

/* The shape of the first output of the first attention, as `explain` planned it. */
static void expect_attention(int64_t batch, int64_t sequence) {
    wok_json *doc = json_of();
    int found = 0;
    wok_json_each(doc, node, wok_json_get(doc, 0, "nodes")) {
        if (!wok_json_is(doc, wok_json_get(doc, node, "op"), "Attention") || found++) continue;
        expect_shape(doc, wok_json_get(doc, node, "shape"), 3, (int64_t[]){batch, sequence, 64});
    }
    cr_assert_gt(found, 0);
    wok_json_free(&doc);
}

Test(command, free_dimensions_default_to_a_batch_of_one_and_a_sequence_that_has_positions) {
    const char *const models[] = {bert, distil, onnx};
    for (int i = 0; i < 3; i++) {
        WORKS("explain", models[i], "--json");
        expect_attention(1, 64);
        WORKS("explain", models[i], "--json", "--shape", "input_ids=3x17");
        expect_attention(3, 17); /* the other inputs follow */
        WORKS("explain", models[i], "--json", "--shape", "input_ids=1x1", "--shape", "input_ids=2x64");
        expect_attention(2, 64); /* the last one counts */
        FAILS(1, "", "explain", models[i], "--json", "--shape", "input_ids=1x65");
        FAILS(1, "no input `x`", "explain", models[i], "--json", "--shape", "x=1x1");
        FAILS(1, "too large", "explain", models[i], "--shape", "input_ids=3000000000x3000000000");
        WORKS("bench", models[i], "--repeat", "1", "--warmup", "0", "--json");
        wok_json *doc = json_of();
        cr_assert(number(doc, 0, "min_ms") > 0 && number(doc, 0, "median_ms") >= number(doc, 0, "min_ms"));
        wok_json_free(&doc);
    }
}

Test(command, bench_shows_int8_layers_beside_fp32) {
    FAILS(1, "no layer that computes in int8", "bench", onnx, "--layers", "--repeat", "1");
    WORKS("quantize", onnx, "-o", "q.onnx", "--dynamic");
    WORKS("bench", "q.onnx", "--layers", "--repeat", "2", "--json");
    wok_json *doc = json_of();
    int count = 0;
    wok_json_each(doc, layer, wok_json_get(doc, 0, "layers")) {
        cr_assert(number(doc, layer, "int8_us") > 0 && number(doc, layer, "fp32_us") > 0 && number(doc, layer, "macs") > 0);
        count++;
    }
    cr_assert_eq(count, 2 * 6 + 1, "%d layers", count); /* six a layer, and the pooler */
    wok_json_free(&doc);
}

/* Positions may also be counted by Range, and rows of a table that only looks like one do not matter. */
static void save_counting(const char *path, bool range, int64_t rows) {
    wok_model *model = NULL;
    float table[2 * 200] = {0};
    cr_assert_eq(wok_model_new(ctx, "onnx", &model), WOK_OK);
    wok_model_set_opset(model, "", 17);
    wok_value ids = wok_graph_input(model, "ids", WOK_I64, 2, (int64_t[]){-1, -1}, (const char *[]){"b", "s"});
    wok_value words = wok_graph_constant(model, "words", WOK_F32, 2, (int64_t[]){7, 2}, table, 56, WOK_DATA_COPY);
    wok_value places =
        wok_graph_constant(model, "places", WOK_F32, 2, (int64_t[]){rows, 2}, table, (size_t)rows * 8, WOK_DATA_COPY);
    wok_value zero = wok_graph_constant(model, "zero", WOK_I64, 0, NULL, (int64_t[]){0}, 8, WOK_DATA_COPY);
    wok_value one = wok_graph_constant(model, "one", WOK_I64, 0, NULL, (int64_t[]){1}, 8, WOK_DATA_COPY);
    wok_value shape = wok_graph_op(model, "Shape", "", NULL, &ids, 1, "shape");
    wok_value length = wok_graph_op(model, "Gather", "", NULL, (wok_value[]){shape, one}, 2, "length");
    wok_value at = range ? wok_graph_op(model, "Range", "", NULL, (wok_value[]){zero, length, one}, 3, "at")
                         : wok_graph_op(model, "Mul", "", NULL, (wok_value[]){ids, zero}, 2, "at");
    wok_value x = wok_graph_op(model, "Gather", "", NULL, (wok_value[]){words, ids}, 2, "x");
    wok_value p = wok_graph_op(model, "Gather", "", NULL, (wok_value[]){places, at}, 2, "p");
    wok_graph_output(model, wok_graph_op(model, "Add", "", NULL, (wok_value[]){x, p}, 2, "y"));
    cr_assert_eq(wok_model_finish(model, NULL), WOK_OK, "%s", wok_ctx_error(ctx));
    cr_assert_eq(wok_model_save(model, path), WOK_OK);
    wok_model_free(&model);
}

static void expect_last(int64_t sequence) {
    wok_json *doc = json_of();
    wok_json_at last = -1;
    wok_json_each(doc, node, wok_json_get(doc, 0, "nodes")) last = node;
    expect_shape(doc, wok_json_get(doc, last, "shape"), 3, (int64_t[]){1, sequence, 2});
    wok_json_free(&doc);
}

Test(command, positions_are_found_where_they_are_counted) {
    save_counting("range.onnx", true, 33);
    WORKS("explain", "range.onnx", "--json", "--profile");
    expect_last(33);
    save_counting("long.onnx", true, 200);
    WORKS("explain", "long.onnx", "--json", "--profile");
    expect_last(128);
    save_counting("kinds.onnx", false, 5);
    WORKS("explain", "kinds.onnx", "--json", "--profile");
    expect_last(128);
}

Test(command, other_free_dimensions_must_be_given) {
    wok_model *model = NULL;
    cr_assert_eq(wok_model_new(ctx, "onnx", &model), WOK_OK);
    wok_model_set_opset(model, "", 17);
    wok_value x = wok_graph_input(model, "x", WOK_F32, 3, (int64_t[]){-1, 2, -1}, (const char *[]){"n", NULL, "width"});
    wok_graph_output(model, wok_graph_op(model, "Relu", "", NULL, &x, 1, "y"));
    cr_assert_eq(wok_model_finish(model, NULL), WOK_OK);
    cr_assert_eq(wok_model_save(model, "m.onnx"), WOK_OK);
    wok_model_free(&model);
    FAILS(1, "dimension 2 of input x", "explain", "m.onnx", "--json");
    FAILS(1, "--shape x=", "bench", "m.onnx");
    WORKS("explain", "m.onnx", "--shape", "x=1x2x9", "--json");
    FAILS(1, "x", "explain", "m.onnx", "--shape", "x=1x3x9");
    FAILS(1, "x", "explain", "m.onnx", "--shape", "x=2");
}

Test(command, explain_works_for_every_fixture, .timeout = 600) {
    static const char *const folders[] = {"bert-h64",           "bert-h64-cls",      "distilbert-h64",
                                          "distilbert-h64-cls", "mobilenetv2-keras", "mobilenetv2-w025",
                                          "resnet18-w8"};
    if (!support_has_shared()) cr_skip_test("../shared is absent");
    for (int i = 0; i < 7; i++) {
        char *list = path_of("%s/list", captured), file[256];
        cr_assert_eq(system(path_of("ls '%s'fixtures/%s/*.onnx >'%s'", SHARED, folders[i], list)), 0);
        FILE *files = fopen(list, "r");
        int count = 0;
        while (fgets(file, sizeof file, files)) {
            file[strcspn(file, "\n")] = 0;
            cr_assert_eq(WOK("explain", file, "--json"), 0, "%s: %s", file, err);
            wok_json *doc = json_of();
            cr_assert_gt(wok_json_count(doc, wok_json_get(doc, 0, "nodes")), 5, "%s", file);
            wok_json_free(&doc);
            count++;
        }
        fclose(files);
        cr_assert_gt(count, 0);
    }
}

/* ---- help ---------------------------------------------------------------------------------------------------------------------------- */

Test(command, help) {
    static const char *const commands[] = {"run",      "info",       "explain", "embed", "classify",
                                           "tokenize", "preprocess", "bench",   "cpu"};
    WORKS("--help");
    char all[8192];
    snprintf(all, sizeof all, "%s", out);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        cr_assert(strstr(all, path_of("  %s ", commands[i])), "%s is not listed", commands[i]);
        WORKS(commands[i], "--help");
        cr_assert_str_empty(err);
        cr_assert(!strncmp(out, path_of("usage: wok %s ", commands[i]), 12 + strlen(commands[i])) &&
                      !strstr(out, "  ["),
                  "%s", out);
        cr_assert(strstr(out, "options") && strstr(out, "--help"), "%s", out);
        for (const char *line = out; *line; line += strcspn(line, "\n") + (line[strcspn(line, "\n")] != 0))
            cr_assert_leq(strcspn(line, "\n"), 130, "%s: a line of %zu", commands[i], strcspn(line, "\n"));
    }
}

Test(command, version_and_processor) {
    WORKS("--version");
    cr_assert_str_eq(out, path_of("wok %s\n", wok_version()));
    WORKS("cpu", "--json");
    wok_json *doc = json_of();
    cr_assert_geq(wok_json_count(doc, wok_json_get(doc, 0, "levels")), 1);
    wok_json_free(&doc);
    setenv("WOK_ISA", "nonsense", 1);
    FAILS(1, "nonsense", "cpu");
    FAILS(1, "nonsense", "explain", onnx);
    setenv("WOK_ISA", "ref", 1);
    WORKS("cpu");
    WORKS("explain", onnx, "--json");
    check_explain(false, 2, 0);
    unsetenv("WOK_ISA");
}

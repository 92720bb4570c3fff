/* test_quantize_command.c - `wok quantize` from outside: every kind of data, the report in its three forms, what it refuses, and
 * that a failure leaves nothing and two runs give the same bytes. */
#define _XOPEN_SOURCE 700 /* mkdtemp, realpath */
#include "command.h"

static const char *digits(const char *name) {
    static char paths[8][512];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s%s", WOK_TEST_DATA "/digits", name);
    return path;
}
#define RESNET digits("/resnet18-w16/float.onnx")
#define MOBILENET digits("/mobilenetv2-w035/float.onnx")

static bool exists(const char *path) {
    struct stat info;
    return stat(path, &info) == 0;
}

static void save_text(const char *name, const char *text) {
    write_file(name, text, strlen(text));
}

/* The digits as [10,3,32,32] and their labels. */
static void save_digits(void) {
    if (!WOK_HAVE_IMAGE) cr_skip_test("a build without pictures");
    for (int i = 0; i < 10; i++)
        WORKS("preprocess", digits(path_of("/digit-%d.png", i)), "-o", path_of("%d.npy", i), "--model", RESNET);
    static float all[10][3 * 32 * 32];
    for (int i = 0; i < 10; i++) {
        wok_tensor t = support_npy(ctx, path_of("%d.npy", i));
        cr_assert_eq(t.bytes, sizeof all[0]);
        memcpy(all[i], t.data, t.bytes);
        wok_npy_free(ctx, &t);
        unlink(path_of("%d.npy", i));
    }
    save_npy("x.npy", WOK_F32, 4, (int64_t[]){10, 3, 32, 32}, all);
    save_npy("labels.npy", WOK_I64, 1, (int64_t[]){10}, (int64_t[]){0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
}

/* Largest difference of the outputs of two models on the same inputs, as a share of the largest. */
static double distance(const char *file, const char *a, const char *b) {
    wok_tensor x = support_npy(ctx, path_of("%s/%s.npy", a, file)), y = support_npy(ctx, path_of("%s/%s.npy", b, file));
    cr_assert_eq(x.bytes, y.bytes);
    double most = 0, worst = support_distance(x.data, y.data, x.bytes / sizeof(float));
    for (size_t i = 0; i < x.bytes / sizeof(float); i++) most = fmax(most, fabs((double)((float *)x.data)[i]));
    wok_npy_free(ctx, &x), wok_npy_free(ctx, &y);
    return worst / most;
}

static void same_bytes(const char *a, const char *b) {
    size_t n, m;
    uint8_t *x = read_file(a, &n), *y = read_file(b, &m);
    cr_assert(n == m && memcmp(x, y, n) == 0, "%s and %s differ", a, b);
    free(x), free(y);
}

/* How many layers the JSON report on stdout calls quantised; *layers: of how many. */
static int quantised(int *layers) {
    wok_json *doc = json_of();
    wok_json_at list = wok_json_get(doc, 0, "layers");
    int count = 0;
    *layers = wok_json_count(doc, list);
    wok_json_each(doc, layer, list) {
        bool yes = false;
        const char *reason = wok_json_string(doc, wok_json_get(doc, layer, "reason"), NULL);
        cr_assert(wok_json_bool(doc, wok_json_get(doc, layer, "quantised"), &yes));
        cr_assert(wok_json_string(doc, wok_json_get(doc, layer, "name"), NULL));
        cr_assert_eq(yes, reason == NULL, "a layer is kept in float if and only if there is a reason: %s", out);
        count += yes;
    }
    cr_assert_eq(count, (int)number(doc, 0, "quantised"));
    wok_json_free(&doc);
    return count;
}

static double member(const char *key) {
    wok_json *doc = json_of();
    double value = number(doc, 0, key);
    wok_json_free(&doc);
    return value;
}

/* ---- data of every kind --------------------------------------------------------------------------------------------- */

static void expect_digits(const char *model) {
    WORKS("run", RESNET, "-i", "input=x.npy", "-o", "before");
    WORKS("run", model, "-i", "input=x.npy", "-o", "after");
    double d = distance("logits", "before", "after");
    cr_assert(d > 0 && d < .1, "%s: %g", model, d);
    cr_assert_eq(system("rm -r before after"), 0);
}

Test(command, quantize_by_pictures_and_by_stacks) {
    int layers;
    save_digits();
    WORKS("quantize", RESNET, "-o", "pictures.onnx", "--static", "--calibrate", digits(""), "--json");
    cr_assert_eq(quantised(&layers), layers);
    cr_assert_eq(layers, 21, "20 convolutions and the classifier");
    cr_assert(member("bytes_after") < .3 * member("bytes_before"));
    cr_assert(member("snr_db") > 20, "%s", out);
    expect_digits("pictures.onnx");
    WORKS("quantize", RESNET, "-o", "stack.onnx", "--static", "--calibrate", "x.npy");
    same_bytes("pictures.onnx", "stack.onnx");
    WORKS("quantize", RESNET, "-o", "named.onnx", "--static", "--calibrate", "input=x.npy", "--json");
    same_bytes("pictures.onnx", "named.onnx");
    mkdir("folder", 0777);
    cr_assert_eq(rename("x.npy", "folder/input.npy"), 0);
    WORKS("quantize", RESNET, "-o", "folder.onnx", "--static", "--calibrate", "folder");
    same_bytes("pictures.onnx", "folder.onnx");
    cr_assert_eq(rename("folder/input.npy", "folder/other.npy"), 0);
    WORKS("quantize", RESNET, "-o", "other.onnx", "--static", "--calibrate", "folder/");
    same_bytes("pictures.onnx", "other.onnx");
}

/* Bytes are pictures that are decoded already. */
Test(command, quantize_by_bytes_of_pictures) {
    static uint8_t grey[10][32][32];
    for (int i = 0; i < 10 * 32 * 32; i++) ((uint8_t *)grey)[i] = (uint8_t)(i * 7 % 256);
    save_npy("grey.npy", WOK_U8, 3, (int64_t[]){10, 32, 32}, grey);
    WORKS("quantize", RESNET, "-o", "a.onnx", "--static", "--calibrate", "grey.npy");
    static float x[10][3][32][32];
    for (int i = 0; i < 10; i++)
        for (int c = 0; c < 3; c++)
            for (int p = 0; p < 32 * 32; p++)
                ((float *)x[i][c])[p] = (float)(((double)((uint8_t *)grey[i])[p] * (1 / 255.0) - .5) / .5);
    save_npy("x.npy", WOK_F32, 4, (int64_t[]){10, 3, 32, 32}, x);
    WORKS("quantize", RESNET, "-o", "b.onnx", "--static", "--calibrate", "x.npy", "--json");
    WORKS("run", "a.onnx", "-i", "input=x.npy", "-o", "a");
    WORKS("run", "b.onnx", "-i", "input=x.npy", "-o", "b");
    cr_assert(distance("logits", "a", "b") < .02, "%g", distance("logits", "a", "b"));
}

#define BERT_INPUTS(option)                                                                                            \
    option, path_of("input_ids=%s/float.in.input_ids.npy", bert), option,                                              \
        path_of("attention_mask=%s/float.in.attention_mask.npy", bert), option,                                        \
        path_of("token_type_ids=%s/float.in.token_type_ids.npy", bert)

Test(command, quantize_encoders_dynamically) {
    const char *const models[] = {bert, onnx};
    WORKS("run", bert, BERT_INPUTS("-i"), "-o", "before");
    for (int i = 0; i < 2; i++) {
        int layers;
        WORKS("quantize", models[i], "-o", "small.onnx", "--dynamic", "--json");
        cr_assert(quantised(&layers) == layers && layers >= 12, "%s", out);
        cr_assert(member("bytes_after") < .4 * member("bytes_before"), "%s", out);
        WORKS("run", "small.onnx", BERT_INPUTS("-i"), "-o", "after");
        double d = distance("last_hidden_state", "before", "after");
        cr_assert(d > 0 && d < .05, "%g", d);
        cr_assert_eq(system("rm -r after"), 0);
    }
}

Test(command, quantize_encoders_statically) {
    int layers;
    WORKS("run", bert, BERT_INPUTS("-i"), "-o", "before");
    WORKS("quantize", bert, "-o", "small.onnx", "--static", BERT_INPUTS("--calibrate"), "--json");
    cr_assert(quantised(&layers) > 0);
    WORKS("run", "small.onnx", BERT_INPUTS("-i"), "-o", "after");
    double d = distance("last_hidden_state", "before", "after");
    cr_assert(d > 0 && d < .1, "%g", d);
    WORKS("quantize", bert, "-o", "smooth.onnx", "--dynamic", "--smooth", "0.5", BERT_INPUTS("--calibrate"), "--json");
    cr_assert(member("smoothed") > 0, "%s", out);
    WORKS("run", "smooth.onnx", BERT_INPUTS("-i"), "-o", "smooth");
    d = distance("last_hidden_state", "before", "smooth");
    cr_assert(d > 0 && d < .05, "%g", d);
}

#if WOK_HAVE_TEXT
static const char vocabulary[] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\ncat\ndog\nsat\nran\nfine\nfilm\nbad\n,\n.\n";

Test(command, quantize_by_texts) {
    copy_bert();
    save_text("hf/vocab.txt", vocabulary);
    save_text("lines.txt", "a cat sat.\n\na dog ran, a cat sat\na film\r\n");
    WORKS("quantize", "hf", "-o", "a.onnx", "--static", "--calibrate", "lines.txt");
    WORKS("quantize", "hf", "-o", "b.onnx", "--static", "--calibrate", "lines.txt", "--samples", "2");
    save_text("two.txt", "a cat sat.\na dog ran, a cat sat");
    WORKS("quantize", "hf", "-o", "c.onnx", "--static", "--calibrate", "two.txt", "--samples", "2");
    same_bytes("b.onnx", "c.onnx"); /* evenly chosen of three: the first two */
    save_text("pairs.csv",
              "first,second,score\n\"a cat, sat\",a \"\"dog\"\",1.5\na film,\"a bad\nfilm\",4\na cat,a cat,5\n");
    WORKS("quantize", "hf", "-o", "d.onnx", "--dynamic", "--eval", "pairs.csv", "--json");
    cr_assert(member("float_score") >= -1 && member("float_score") <= 1, "%s", out);
    cr_assert(fabs(member("float_score") - member("score")) <= 1, "%s", out);
}

Test(command, quantize_counts_right_answers) {
    copy_bert();
    size_t bytes;
    uint8_t *data = read_file(path_of("%s/config.json", distil), &bytes);
    write_file("hf/config.json", data, bytes), free(data);
    data = read_file(path_of("%s/model.safetensors", distil), &bytes);
    write_file("hf/model.safetensors", data, bytes), free(data);
    save_text("hf/vocab.txt", vocabulary);
    save_text("labels.tsv", "text\tlabel\na fine film\t0\na bad film\t1\na fine film\t1\na bad film\t0\n");
    WORKS("quantize", "hf", "-o", "a.onnx", "--dynamic", "--eval", "labels.tsv", "--json");
    cr_assert_eq(member("float_score"), .5, "each text once with each label: %s", out);
}

Test(command, quantize_refuses_texts_that_make_no_sense) {
    copy_bert();
    save_text("lines.txt", "a cat\n");
    FAILS(1, "no tokenizer.json or vocab.txt", "quantize", "hf", "-o", "a.onnx", "--static", "--calibrate",
          "lines.txt");
    FAILS(1, "no tokenizer.json or vocab.txt", "quantize", RESNET, "-o", "a.onnx", "--static", "--calibrate",
          "lines.txt");
    save_text("hf/vocab.txt", vocabulary);
    save_text("empty.txt", "");
    save_text("blank.txt", "\n\n");
    save_text("two.tsv", "a cat\t1\na dog\ta\t2\n");
    save_text("four.csv", "a,b,c,d\n");
    save_text("words.tsv", "a cat\t1\na dog\tyes\n");
    save_text("half.tsv", "a cat\t0.5\n");
    save_text("labels.tsv", "a cat\t0\n");
    FAILS(1, "empty.txt holds no texts", "quantize", "hf", "-o", "a.onnx", "--static", "--calibrate", "empty.txt");
    FAILS(1, "blank.txt holds no texts", "quantize", "hf", "-o", "a.onnx", "--static", "--calibrate", "blank.txt");
    FAILS(1, "3 columns in record 2, but 2", "quantize", "hf", "-o", "a.onnx", "--dynamic", "--eval", "two.tsv");
    FAILS(1, "more than 3 columns", "quantize", "hf", "-o", "a.onnx", "--dynamic", "--eval", "four.csv");
    FAILS(1, "no number", "quantize", "hf", "-o", "a.onnx", "--dynamic", "--eval", "words.tsv");
    FAILS(1, "no whole number", "quantize", "hf", "-o", "a.onnx", "--dynamic", "--eval", "half.tsv");
    FAILS(1, "does not say what is right", "quantize", "hf", "-o", "a.onnx", "--dynamic", "--eval", "lines.txt");
    FAILS(1, "no list of scores", "quantize", "hf", "-o", "a.onnx", "--dynamic", "--eval", "labels.tsv");
}
#endif

/* ---- reports ------------------------------------------------------------------------------------------------------------ */

static int count_of_text(const char *text, const char *part) {
    int count = 0;
    for (const char *at = text; (at = strstr(at, part)); at++) count++;
    return count;
}

Test(command, quantize_reports_table_json_and_picture) {
    size_t bytes;
    save_digits();
    WORKS("quantize", RESNET, "-o", "a.onnx", "--static", "--calibrate", "x.npy", "--report", "a.svg");
    cr_assert(strstr(out, "21 of 21 layers in 8 bits"), "%s", out);
    cr_assert(strstr(out, "a.onnx is written"), "%s", out);
    cr_assert_str_empty(err);
    char *svg = (char *)read_file("a.svg", &bytes);
    svg[bytes] = 0;
    cr_assert(!strncmp(svg, "<svg xmlns=\"http://www.w3.org/2000/svg\"", 39) && strstr(svg, "</svg>\n"), "%s", svg);
    cr_assert_eq(count_of_text(svg, "<g>"), 21);
    cr_assert_eq(count_of_text(svg, "<g>"), count_of_text(svg, "</g>"));
    cr_assert_eq(count_of_text(svg, "<script") + count_of_text(svg, "href"), 0, "the picture needs nothing else");
    free(svg);
    WORKS("quantize", RESNET, "-o", "b.onnx", "--static", "--calibrate", "x.npy", "--report", "b.json", "--json");
    char *json = (char *)read_file("b.json", &bytes);
    json[bytes] = 0;
    cr_assert_str_eq(json, out);
    free(json);
    same_bytes("a.onnx", "b.onnx");
    cr_assert_eq(things(), 7, "a.onnx a.svg b.onnx b.json x.npy labels.npy and the folder");
}

Test(command, quantize_keeps_what_it_is_told_to) {
    int layers;
    save_digits();
    WORKS("quantize", RESNET, "-o", "a.onnx", "--static", "--calibrate", "x.npy", "--json");
    wok_json *doc = json_of();
    char first[200];
    snprintf(first, sizeof first, "%s",
             wok_json_string(doc, wok_json_get(doc, item(doc, wok_json_get(doc, 0, "layers"), 0), "name"), NULL));
    wok_json_free(&doc);
    WORKS("quantize", RESNET, "-o", "b.onnx", "--static", "--calibrate", "x.npy", "--keep", first, "--json");
    cr_assert_eq(quantised(&layers), 20, "%s", out);
    expect_digits("b.onnx");
    FAILS(1, "nonsense", "quantize", RESNET, "-o", "c.onnx", "--static", "--calibrate", "x.npy", "--keep", "nonsense");
}

/* ---- the same bytes, whatever else happens --------------------------------------------------------------------------------- */

Test(command, quantize_gives_the_same_bytes_again) {
    save_digits();
    WORKS("quantize", MOBILENET, "-o", "a.onnx", "--static", "--calibrate", "x.npy", "--threads", "1", "--equalize",
          "--bias-correction", "--method", "mse");
    WORKS("quantize", MOBILENET, "-o", "b.onnx", "--static", "--calibrate", "x.npy", "--threads", "2", "--equalize",
          "--bias-correction", "--method", "mse");
    same_bytes("a.onnx", "b.onnx");
    WORKS("quantize", bert, "-o", "c.onnx", "--dynamic", "--threads", "1");
    WORKS("quantize", bert, "-o", "d.onnx", "--dynamic", "--threads", "2");
    same_bytes("c.onnx", "d.onnx");
}

Test(command, quantize_by_every_method) {
    static const char *const methods[] = {"minmax", "percentile", "entropy", "mse"};
    save_digits();
    for (int i = 0; i < 4; i++) {
        WORKS("quantize", RESNET, "-o", "a.onnx", "--static", "--calibrate", "x.npy", "--method", methods[i]);
        expect_digits("a.onnx");
    }
    static const char *const switches[] = {"--per-tensor", "--signed", "--symmetric", "--narrow-weights"};
    for (int i = 0; i < 4; i++) {
        WORKS("quantize", RESNET, "-o", "a.onnx", "--static", "--calibrate", "x.npy", switches[i]);
        expect_digits("a.onnx");
    }
}

/* ---- accuracy and time ------------------------------------------------------------------------------------------------------ */

/* x -> depthwise 3x3 whose channels differ 256 times in range -> Relu -> 1x1 that undoes it; and x.npy. */
static void save_uneven(void) {
    static float depthwise[16 * 9], pointwise[8 * 16], x[16 * 16 * 64];
    wok_model *m = NULL;
    support_random(depthwise, 16 * 9, 1), support_random(pointwise, 8 * 16, 2), support_random(x, 16 * 16 * 64, 3);
    for (int i = 0; i < 16 * 9; i++) depthwise[i] *= powf(4, (float)(i / 9 % 5) - 2);
    for (int i = 0; i < 8 * 16; i++) pointwise[i] /= powf(4, (float)(i % 16 % 5) - 2);
    cr_assert_eq(wok_model_new(ctx, "onnx", &m), WOK_OK);
    wok_model_set_opset(m, "", 17);
    wok_value in = wok_graph_input(m, "x", WOK_F32, 4, (int64_t[]){-1, 16, 8, 8}, NULL);
    wok_value w =
        wok_graph_constant(m, "w", WOK_F32, 4, (int64_t[]){16, 1, 3, 3}, depthwise, sizeof depthwise, WOK_DATA_COPY);
    wok_value v =
        wok_graph_constant(m, "v", WOK_F32, 4, (int64_t[]){8, 16, 1, 1}, pointwise, sizeof pointwise, WOK_DATA_COPY);
    wok_value y = wok_graph_op(m, "Conv", "", "depthwise", (wok_value[]){in, w}, 2, NULL);
    wok_node_set_int(m, wok_graph_last(m), "group", 16);
    y = wok_graph_op(m, "Relu", "", "relu", &y, 1, NULL);
    wok_graph_output(m, wok_graph_op(m, "Conv", "", "pointwise", (wok_value[]){y, v}, 2, "y"));
    cr_assert_eq(wok_model_finish(m, NULL), WOK_OK, "%s", wok_ctx_error(ctx));
    cr_assert_eq(wok_model_save(m, "uneven.onnx"), WOK_OK, "%s", wok_ctx_error(ctx));
    wok_model_free(&m);
    save_npy("x.npy", WOK_F32, 4, (int64_t[]){16, 16, 8, 8}, x);
}

/* B27: depthwise channels of different ranges. One scale a weight loses what one a channel keeps; people hear of it. */
Test(command, B27_per_channel_is_better_and_a_bad_result_is_told) {
    save_uneven();
    WORKS("quantize", "uneven.onnx", "-o", "a.onnx", "--static", "--calibrate", "x.npy", "--per-tensor", "--json");
    double tensor = member("snr_db");
    cr_assert(tensor < 10 && strstr(err, "warning: the outputs are at"), "%g dB: %s", tensor, err);
    cr_assert(strstr(err, "--equalize"), "what helps: %s", err);
    WORKS("quantize", "uneven.onnx", "-o", "b.onnx", "--static", "--calibrate", "x.npy", "--json");
    double channel = member("snr_db");
    cr_assert(channel > tensor + 2, "%g dB by channel, %g by tensor", channel, tensor);
    WORKS("quantize", "uneven.onnx", "-o", "c.onnx", "--static", "--calibrate", "x.npy", "--equalize", "--json");
    cr_assert_eq(member("equalised"), 1, "%s", out);
    double even = member("snr_db");
    cr_assert(even > channel + 10 && even > 30, "%g dB equalised, %g before", even, channel);
    cr_assert_str_empty(err);
}

Test(command, quantize_measures_accuracy) {
    save_digits();
    WORKS("quantize", RESNET, "-o", "a.onnx", "--static", "--calibrate", "x.npy", "--eval", "x.npy", "--labels",
          "labels.npy", "--json");
    cr_assert_eq(member("float_score"), 1, "%s", out);
    cr_assert_eq(member("score"), 1, "%s", out);
    mkdir("test", 0777);
    cr_assert_eq(rename("labels.npy", "test/labels.npy"), 0);
    cr_assert_eq(rename("x.npy", "test/images.npy"), 0);
    WORKS("quantize", RESNET, "-o", "b.onnx", "--static", "--calibrate", "test", "--eval", "test", "--max-loss", "0");
    cr_assert(strstr(out, "accuracy 1.0000 -> 1.0000"), "%s", out);
    same_bytes("a.onnx", "b.onnx");
}

/* Labels that the int8 model misses where float does not: layers go back to float until it agrees. */
Test(command, quantize_keeps_layers_in_float_until_the_loss_is_small) {
    int layers;
    save_digits();
    WORKS("quantize", MOBILENET, "-o", "a.onnx", "--static", "--calibrate", "x.npy", "--per-tensor", "--eval", "x.npy",
          "--labels", "labels.npy", "--json");
    double before = member("float_score"), loss = before - member("score");
    WORKS("quantize", MOBILENET, "-o", "b.onnx", "--static", "--calibrate", "x.npy", "--per-tensor", "--eval", "x.npy",
          "--labels", "labels.npy", "--max-loss", "0", "--json");
    cr_assert(member("score") >= before, "%s", out);
    int count = quantised(&layers);
    cr_assert(loss > 0 ? count < layers : count == layers, "loss %g, %d of %d: %s", loss, count, layers, out);
}

/* B30: every layer is timed in both forms, and one that gains nothing stays float and says so. */
Test(command, B30_layers_are_timed_and_slow_ones_stay_float) {
    save_digits();
    WORKS("quantize", RESNET, "-o", "a.onnx", "--static", "--calibrate", "x.npy", "--measure", "--json", "--report",
          "a.svg");
    wok_json *doc = json_of();
    wok_json_each(doc, layer, wok_json_get(doc, 0, "layers")) {
        bool yes = true;
        double us = number(doc, layer, "float_us"), small_us = number(doc, layer, "int8_us");
        const char *reason = wok_json_string(doc, wok_json_get(doc, layer, "reason"), NULL);
        cr_assert(us > 0 && small_us > 0);
        cr_assert(wok_json_bool(doc, wok_json_get(doc, layer, "quantised"), &yes));
        if (small_us > 1.05 * us + 20) cr_assert(!yes && reason, "%g us in float, %g in 8 bits", us, small_us);
    }
    wok_json_free(&doc);
    expect_digits("a.onnx");
}

/* ---- what it refuses --------------------------------------------------------------------------------------------------------- */

Test(command, quantize_wrong_usage) {
    save_digits();
#define Q "quantize", RESNET
    FAILS(2, "--help", "quantize");
    FAILS(2, "`two`", Q, "two");
    FAILS(2, "-o says", Q, "--dynamic");
    FAILS(2, "must end in .onnx", Q, "--dynamic", "-o", "out");
    FAILS(2, "must end in .onnx", Q, "--dynamic", "-o", "out.safetensors");
    FAILS(2, "either --dynamic or --static", Q, "-o", "a.onnx");
    FAILS(2, "either --dynamic or --static", Q, "-o", "a.onnx", "--dynamic", "--static", "--calibrate", "x.npy");
    FAILS(2, "--calibrate DATA", Q, "-o", "a.onnx", "--static");
    FAILS(2, "--eval DATA", Q, "-o", "a.onnx", "--static", "--calibrate", "x.npy", "--max-loss", "0.1");
    FAILS(2, "--eval DATA", Q, "-o", "a.onnx", "--static", "--calibrate", "x.npy", "--labels", "labels.npy");
    FAILS(2, "--measure", Q, "-o", "a.onnx", "--dynamic", "--measure");
    FAILS(2, "--smooth", Q, "-o", "a.onnx", "--dynamic", "--smooth", "0.5");
    FAILS(2, "go with --static", Q, "-o", "a.onnx", "--dynamic", "--equalize");
#define S Q, "-o", "a.onnx", "--static", "--calibrate", "x.npy"
    FAILS(2, "not `best`", S, "--method", "best");
    FAILS(2, "not `int3`", S, "--embeddings", "int3");
    FAILS(2, "at most 100", S, "--method", "percentile", "--percentile", "101");
    FAILS(2, "above 50", S, "--method", "percentile", "--percentile", "50");
    FAILS(2, "--method percentile", S, "--percentile", "99");
    FAILS(2, "wants a number", S, "--percentile", "nan");
    FAILS(2, "wants a number", S, "--smooth", "much");
    FAILS(2, "at most 1", S, "--smooth", "1.5");
    FAILS(2, "at least 0", S, "--eval", "x.npy", "--max-loss", "-1");
    FAILS(2, ".svg or .json", S, "--report", "a.png");
    FAILS(2, "NAME=FILE.npy", S, "--calibrate", "x.npy");
}

static void save_stack(const char *name, int rank, const int64_t *dims, float value) {
    static float x[10 * 3 * 32 * 32];
    for (size_t i = 0; i < sizeof x / sizeof *x; i++) x[i] = (float)(i % 17) / 17;
    x[3 * 32 * 32 + 5] = value; /* in sample 1 */
    save_npy(name, WOK_F32, rank, dims, x);
}

Test(command, quantize_refuses_data_that_does_not_fit) {
    save_stack("narrow.npy", 4, (int64_t[]){2, 3, 30, 32}, 0);
    save_stack("single.npy", 3, (int64_t[]){3, 32, 32}, 0);
    save_stack("none.npy", 4, (int64_t[]){0, 3, 32, 32}, 0);
    save_stack("nan.npy", 4, (int64_t[]){2, 3, 32, 32}, NAN);
    save_stack("inf.npy", 4, (int64_t[]){2, 3, 32, 32}, -INFINITY);
    save_stack("good.npy", 4, (int64_t[]){2, 3, 32, 32}, 0);
    save_npy("ids.npy", WOK_I64, 2, (int64_t[]){1, 4}, (int64_t[]){1, 2, 3, 4});
    save_npy("half.npy", WOK_F32, 1, (int64_t[]){2}, (float[]){0, 1});
    save_npy("three.npy", WOK_I64, 1, (int64_t[]){3}, (int64_t[]){0, 1, 2});
    save_npy("minus.npy", WOK_I64, 1, (int64_t[]){2}, (int64_t[]){0, -1});
    save_npy("high.npy", WOK_I64, 1, (int64_t[]){2}, (int64_t[]){0, 10});
    mkdir("empty", 0777);
    mkdir("useless", 0777);
    mkdir("broken", 0777);
    save_text("useless/notes.md", "nothing");
    save_text("broken/cat.png", "no picture");
#define C(data) "quantize", RESNET, "-o", "a.onnx", "--static", "--calibrate", data
    FAILS(1, "narrow.npy is f32 [2,3,30,32], but input input is f32", C("narrow.npy"));
    FAILS(1, "single.npy is f32 [3,32,32]", C("single.npy"));
    FAILS(1, "ids.npy is i64", C("ids.npy"));
    FAILS(1, "none.npy holds no samples", C("none.npy"));
    FAILS(1, "nan.npy holds NaN in sample 1", C("nan.npy"));
    FAILS(1, "inf.npy holds infinity in sample 1", C("inf.npy"));
    FAILS(1, "missing.npy: No such file", C("missing.npy"));
    FAILS(1, "no input `x`", C("x=good.npy"));
    FAILS(1, "no-such.npy", C("input=no-such.npy"));
    FAILS(1, "empty holds no samples", C("empty"));
    FAILS(1, "useless holds no samples", C("useless"));
    FAILS(1, "cat.png", C("broken"));
    FAILS(1, "several inputs", "quantize", onnx, "-o", "a.onnx", "--static", "--calibrate", "ids.npy");
    FAILS(1, "gives nothing for input", "quantize", onnx, "-o", "a.onnx", "--static", "--calibrate",
          "input_ids=ids.npy");
    FAILS(1, "does not say what is right", C("good.npy"), "--eval", "good.npy");
    FAILS(1, "not a list of 2 labels", C("good.npy"), "--eval", "good.npy", "--labels", "three.npy");
    FAILS(1, "whole numbers", C("good.npy"), "--eval", "good.npy", "--labels", "half.npy");
    FAILS(1, "whole numbers", C("good.npy"), "--eval", "good.npy", "--labels", "minus.npy");
    FAILS(1, "a label is 10, but the model has 10 classes", C("good.npy"), "--eval", "good.npy", "--labels",
          "high.npy");
}

/* Ids outside the table show only while the model runs. */
Test(command, quantize_refuses_data_that_the_model_refuses) {
    save_ids("ids.npy", 4, 1, 2);
    save_ids("wild.npy", 4, 1, 99999);
    FAILS(1, "99999", "quantize", bert, "-o", "a.onnx", "--static", "--calibrate", "input_ids=wild.npy");
    WORKS("quantize", bert, "-o", "a.onnx", "--static", "--calibrate", "input_ids=ids.npy");
}

Test(command, quantize_refuses_models) {
    save_digits();
    WORKS("quantize", RESNET, "-o", "static.onnx", "--static", "--calibrate", "x.npy");
    WORKS("quantize", bert, "-o", "dynamic.onnx", "--dynamic");
    FAILS(1, "quantised already", "quantize", "static.onnx", "-o", "a.onnx", "--static", "--calibrate", "x.npy");
    FAILS(1, "quantised already", "quantize", "dynamic.onnx", "-o", "a.onnx", "--dynamic");
    save_model("double.onnx", 1, (const char *[]){"y"});
    FAILS(1, "nothing to quantise", "quantize", "double.onnx", "-o", "a.onnx", "--dynamic");
    FAILS(1, "missing.onnx: No such file", "quantize", "missing.onnx", "-o", "a.onnx", "--dynamic");
    FAILS(1, "not a Hugging Face model", "quantize", digits(""), "-o", "a.onnx", "--dynamic");
}

/* A zero point of 300 in a field of 32 bits is no u8. */
Test(command, quantize_refuses_a_zero_point_outside_its_type) {
    size_t bytes;
    for (int zero = 255; zero <= 300; zero += 45) {
        make m = make_start(ctx, 8, 13);
        wok_wire_mark node = make_node_start(&m, "QuantizeLinear", "x", "scale", "y");
        wok_wire_put_text(&m.wire, NODE_INPUT, "zero");
        wok_wire_end(&m.wire, node);
        make_value(&m, GRAPH_INPUT, "x", WOK_F32, 2, (int64_t[]){1, 2});
        make_value(&m, GRAPH_OUTPUT, "y", WOK_U8, 2, (int64_t[]){1, 2});
        make_raw(&m, "scale", WOK_F32, 0, NULL, (float[]){.5f}, 4);
        wok_wire_mark tensor = make_tensor(&m, GRAPH_INITIALIZER, "zero", WOK_U8, 0, NULL);
        wok_wire_put_int(&m.wire, TENSOR_INT32_DATA, zero);
        wok_wire_end(&m.wire, tensor);
        uint8_t *file = make_end(&m, &bytes);
        write_file(zero == 300 ? "bad.onnx" : "good.onnx", file, bytes);
        free(file);
    }
    save_x();
    FAILS(1, "tensor 'zero' holds 300, which is no u8", "run", "bad.onnx", "-i", "x=x.npy", "-o", "out");
    FAILS(1, "tensor 'zero' holds 300, which is no u8", "quantize", "bad.onnx", "-o", "a.onnx", "--dynamic");
    WORKS("run", "good.onnx", "-i", "x=x.npy");
}

Test(command, quantize_refuses_places_it_cannot_write_to) {
    save_digits();
    mkdir("dir.onnx", 0777);
    mkdir("dir.svg", 0777);
#define TO(path) "quantize", RESNET, "--static", "--calibrate", "x.npy", "-o", path
    FAILS(1, "nowhere/a.onnx cannot be written: No such file", TO("nowhere/a.onnx"));
    FAILS(1, "x.npy/a.onnx cannot be written: Not a directory", TO("x.npy/a.onnx"));
    FAILS(1, "dir.onnx cannot be written: Is a directory", TO("dir.onnx"));
    FAILS(1, "nowhere/a.svg cannot be written: No such file", TO("a.onnx"), "--report", "nowhere/a.svg");
    FAILS(1, "dir.svg cannot be written: Is a directory", TO("a.onnx"), "--report", "dir.svg");
}

/* What was there before stays until the new file is whole; a full stdout is an error, but the model is whole. */
Test(command, quantize_leaves_what_was_there) {
    save_digits();
    save_stack("nan.npy", 4, (int64_t[]){2, 3, 32, 32}, NAN);
    save_text("a.onnx", "before");
    FAILS(1, "NaN", "quantize", RESNET, "-o", "a.onnx", "--static", "--calibrate", "nan.npy");
    size_t bytes;
    uint8_t *data = read_file("a.onnx", &bytes);
    cr_assert(bytes == 6 && !memcmp(data, "before", 6));
    free(data);
    WORKS("quantize", RESNET, "-o", "a.onnx", "--static", "--calibrate", "x.npy");
    cr_assert_eq(WOK_INTO(TO_FULL, "quantize", RESNET, "-o", "b.onnx", "--static", "--calibrate", "x.npy", "--json"),
                 1);
    cr_assert(strstr(err, "stdout cannot be written"), "%s", err);
    same_bytes("a.onnx", "b.onnx");
    cr_assert(!exists("b.onnx.tmp"));
    cr_assert_eq(things(), 6, "x.npy labels.npy nan.npy a.onnx b.onnx and the folder");
}

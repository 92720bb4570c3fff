/* test_command.c - the `wok` command from outside, where something is wrong: its exit statuses, its one sentence, the files that
 * it leaves. (What it tells when all is well: test_command_json.c.) */
#define _XOPEN_SOURCE 700 /* mkdtemp, realpath */
#include "command.h"

/* ---- wrong usage ------------------------------------------------------------------------------------------------------------ */

Test(command, wrong_usage) {
    int before = things();
    expect_failure("nothing", run_into(TO_FILE, (const char *const[]){"wok", NULL}), 2, "wok --help", before);
    FAILS(2, "no command `nonsense`", "nonsense");
    FAILS(2, "no command `--nonsense`", "--nonsense");
    static const char *const commands[] = {"run", "info", "explain", "bench"};
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        FAILS(2, "--help", commands[i]);
        FAILS(2, "`two`", commands[i], "one", "two");
        FAILS(2, "`--nonsense`", commands[i], onnx, "--nonsense");
        FAILS(2, "`-x`", commands[i], "-x", onnx);
        FAILS(2, "wants a value", commands[i], onnx, "--arch");
        FAILS(2, "not an empty one", commands[i], onnx, "--arch", "");
        FAILS(2, "takes no value", commands[i], onnx, "--json=yes");
    }
    FAILS(2, "`extra`", "cpu", "extra");
    FAILS(2, "at least 1", "run", onnx, "--threads", "0");
    FAILS(2, "at least 1", "run", onnx, "--repeat", "0");
    FAILS(2, "at least 0", "run", onnx, "--warmup", "-1");
    FAILS(2, "whole number", "run", onnx, "--repeat", "3x");
    FAILS(2, "whole number", "run", onnx, "--repeat=99999999999999999999");
    FAILS(2, "--precision fp8", "run", onnx, "--precision", "fp8");
    FAILS(2, "--backend tpu", "explain", onnx, "--backend", "tpu");
    FAILS(2, "no rewrite called `nonsense`", "explain", onnx, "--no-pass", "nonsense");
    FAILS(2, "NAME=FILE.npy", "run", onnx, "-i", "input_ids");
    FAILS(2, "NAME=FILE.npy", "run", onnx, "-i", "=ids.npy");
    FAILS(2, "NAME=FILE.npy", "run", onnx, "-i", "input_ids=");
    FAILS(2, "not an empty one", "run", onnx, "-o", "");
    FAILS(2, "NAME=1x128", "explain", onnx, "--shape", "1x128");
    FAILS(2, "NAME=1x128", "explain", onnx, "--shape", "=1x128");
    FAILS(2, "`1y128`", "explain", onnx, "--shape", "input_ids=1y128");
    FAILS(2, "`1x-3`", "explain", onnx, "--shape", "input_ids=1x-3");
    FAILS(2, "`1x99999999999999999999`", "explain", onnx, "--shape", "input_ids=1x99999999999999999999");
    FAILS(2, "--arch NAME", "bench");
    FAILS(2, "--arch vgg", "bench", "--arch", "vgg");
}

/* A newline in a path or a name is no second line. */
Test(command, a_sentence_is_one_line_whatever_it_names) {
    FAILS(1, "a?b?[31m: No such file", "run", "a\nb\033[31m");
    FAILS(1, "no input `a?b`", "run", onnx, "-i", "a\nb=ids.npy");
    FAILS(2, "no command `a?b`", "a\nb");
}

/* ---- files that are no models -------------------------------------------------------------------------------------------------- */

Test(command, models_that_cannot_be_opened) {
    static const char *const commands[] = {"run", "info", "explain", "bench"};
    mkdir("folder", 0777);
    mkdir("half", 0777);
    write_file("half/config.json", "{\"model_type\": \"bert\"}", 22);
    write_file("empty.onnx", "", 0);
    write_file("lfs.onnx", "version https://git-lfs.github.com/spec/v1\n", 43);
    write_file("page.onnx", "<!DOCTYPE html>", 15);
    write_file("tensors.safetensors", "\2\0\0\0\0\0\0\0{}", 10);
    cr_assert_eq(mkfifo("pipe", 0666), 0);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        FAILS(1, "missing.onnx: No such file", commands[i], "missing.onnx");
        FAILS(1, "not a Hugging Face model", commands[i], "folder");
        FAILS(1, "not a Hugging Face model", commands[i], "folder/");
        FAILS(1, "half: there is no model.safetensors", commands[i], "half");
        FAILS(1, "empty.onnx is empty", commands[i], "empty.onnx");
        FAILS(1, "Git LFS", commands[i], "lfs.onnx");
        FAILS(1, "web page", commands[i], "page.onnx");
        FAILS(1, "not a regular file", commands[i], "pipe");
        FAILS(1, "not a regular file", commands[i], "/dev/null");
        FAILS(1, "Not a directory", commands[i], path_of("%s/", onnx));
        FAILS(1, "name an architecture", commands[i], "tensors.safetensors");
        FAILS(1, "'vgg'", commands[i], "tensors.safetensors", "--arch", "vgg");
        FAILS(1, "tensors.safetensors", commands[i], "tensors.safetensors", "--arch", "resnet18");
    }
}

/* Cut at `cut`, or whole with one byte changed: 1 and a sentence, or (changed bytes may not matter) 0 and none. */
static void try_damage(const char *path, const char *model, const uint8_t *data, size_t bytes, bool must_fail) {
    write_file(path, data, bytes);
    int before = things(),
        status = WOK("run", model, "-i", "input_ids=ids.npy", "-i", "attention_mask=ids.npy", "-o", "o");
    if (status == 1)
        expect_failure(path, status, 1, "", before);
    else
        cr_assert(status == 0 && !must_fail, "%s of %zu bytes: status %d: %s", path, bytes, status, err);
    if (status == 0) cr_assert_eq(system("rm -r o"), 0);
}

static void damage(const char *path, const char *model) {
    size_t bytes;
    uint8_t *data = read_file(path, &bytes);
    uint64_t state = 42;
    for (int i = 0; i < 24; i++) try_damage(path, model, data, bytes * (size_t)i / 24, true);
    try_damage(path, model, data, bytes - 2, true);
    for (int i = 0; i < 24; i++) {
        state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
        size_t at = (size_t)(state >> 33) % (i % 2 && bytes > 2000 ? 2000 : bytes); /* the beginning as often as all */
        uint8_t was = data[at];
        data[at] = (uint8_t)(state >> 20);
        try_damage(path, model, data, bytes, false);
        data[at] = was;
    }
    for (size_t i = 0; i < bytes; i++) data[i] = (uint8_t)(i * 2654435761u >> 13);
    try_damage(path, model, data, bytes, true);
    free(data);
}

Test(command, cut_and_damaged_models) {
    save_ids("ids.npy", 5, 1, 1);
    copy_bert();
    damage("hf/config.json", "hf");
    copy_bert();
    damage("hf/model.safetensors", "hf");
    size_t bytes;
    uint8_t *data = read_file(path_of("%s/ts13.onnx", bert), &bytes);
    write_file("m.onnx", data, bytes);
    free(data);
    damage("m.onnx", "m.onnx");
}

/* A flipped bit of a weight is a weight. */
Test(command, a_model_with_a_flipped_weight_bit_runs) {
    copy_bert();
    save_ids("ids.npy", 5, 1, 2);
    WORKS("run", "hf", "-i", "input_ids=ids.npy", "-o", "before");
    size_t bytes;
    uint8_t *data = read_file("hf/model.safetensors", &bytes);
    data[bytes - 2] ^= 0x40; /* the exponent of the last number, a weight of the pooler */
    write_file("hf/model.safetensors", data, bytes);
    free(data);
    WORKS("run", "hf", "-i", "input_ids=ids.npy", "-o", "after");
    cr_assert_str_empty(err);
    wok_tensor a = support_npy(ctx, "before/pooler_output.npy"), b = support_npy(ctx, "after/pooler_output.npy");
    cr_assert(a.bytes == b.bytes && memcmp(a.data, b.data, a.bytes), "the bit is read");
    wok_npy_free(ctx, &a), wok_npy_free(ctx, &b);
    WORKS("info", "hf");
    WORKS("explain", "hf");
}

/* ---- inputs ------------------------------------------------------------------------------------------------------------------- */

Test(command, inputs_that_do_not_fit) {
    save_ids("ids.npy", 5, 1, 2);
    save_ids("six.npy", 6, 1, 2);
    save_ids("500.npy", 5, 1, 500);
    save_ids("-501.npy", 5, 1, -501);
    save_ids("-1.npy", 5, 1, -1);
    save_ids("long.npy", 65, 1, 2);
    save_npy("rank3.npy", WOK_I64, 3, (int64_t[]){1, 1, 1}, (int64_t[]){1});
    save_npy("i32.npy", WOK_I32, 2, (int64_t[]){1, 2}, (int32_t[]){1, 2});
    save_npy("f32.npy", WOK_F32, 2, (int64_t[]){1, 2}, (float[]){1, 2});
    const char *const models[] = {bert, onnx};
    for (int i = 0; i < 2; i++) {
        const char *m = models[i];
        FAILS(1, "'input_ids' is missing", "run", m, "-o", "o");
        FAILS(1, "'input_ids' is missing", "run", m, "-i", "attention_mask=ids.npy", "-i", "token_type_ids=ids.npy",
              "-o", "o");
        FAILS(1, "no input `pixels`; it has input_ids, attention_mask, token_type_ids", "run", m, "-i",
              "input_ids=ids.npy", "-i", "pixels=ids.npy", "-o", "o");
        FAILS(1, "no input `last_hidden_state`", "run", m, "-i", "last_hidden_state=ids.npy", "-o", "o");
        FAILS(1, "no input `Input_Ids`", "run", m, "-i", "Input_Ids=ids.npy");
#define RUN(file, mask)                                                                                                \
    "run", m, "-i", "input_ids=" file, "-i", "attention_mask=" mask, "-i", "token_type_ids=" mask, "-o", "o/deep",     \
        "--json"
        FAILS(1, "given as i64[1,1,1]", RUN("rank3.npy", "ids.npy"));
        FAILS(1, "given as i32[1,2]", RUN("i32.npy", "ids.npy"));
        FAILS(1, "given as f32[1,2]", RUN("f32.npy", "ids.npy"));
        FAILS(1, "do not agree", RUN("ids.npy", "six.npy"));
        FAILS(1, "index 500 is outside", RUN("500.npy", "ids.npy"));
        FAILS(1, "is outside", RUN("-501.npy", "ids.npy"));
        FAILS(1, "positions for 64", RUN("long.npy", "long.npy"));
        FAILS(1, "missing.npy: No such file", RUN("missing.npy", "ids.npy"));
        FAILS(1, "folder", RUN(".", "ids.npy"));
    }
    FAILS(1, "outside", "run", bert, "-i", "input_ids=-1.npy"); /* ONNX counts -1 from the end, PyTorch does not */
    FAILS(1, "no input `token_type_ids`", "run", distil, "-i", "input_ids=ids.npy", "-i", "token_type_ids=ids.npy");
}

Test(command, damaged_npy_files) {
    save_ids("ids.npy", 5, 1, 2);
    size_t bytes;
    uint8_t *data = read_file("ids.npy", &bytes);
    for (size_t cut = 0; cut < bytes; cut += cut < 20 || cut > bytes - 3 ? 1 : 7) {
        write_file("cut.npy", data, cut);
        FAILS(1, "cut.npy", "run", bert, "-i", "input_ids=cut.npy", "-o", "o");
    }
    write_file("more.npy", data, bytes + 1);
    FAILS(1, "more.npy", "run", bert, "-i", "input_ids=more.npy", "-o", "o");
    memcpy(strstr((char *)data + 10, "i8"), "c8", 2); /* complex */
    write_file("complex.npy", data, bytes);
    FAILS(1, "'<c8'", "run", bert, "-i", "input_ids=complex.npy", "-o", "o");
    free(data);
}

Test(command, an_input_is_split_at_the_first_equals_sign) {
    save_ids("a=b=c.npy", 5, 1, 2);
    WORKS("run", bert, "-i", "input_ids=a=b=c.npy");
    save_ids("ids.npy", 5, 1, 2);
    FAILS(1, "no input `input_ids`", "run", path_of("%s/../resnet18-w8/model.safetensors", bert), "--arch", "resnet18",
          "-i", "input_ids=a=b=c.npy");
}

Test(command, options_in_any_order) {
    save_ids("ids.npy", 5, 1, 2);
    WORKS("run", "-i", "input_ids=ids.npy", "--json", "--repeat", "2", bert, "-o", "one", "--threads", "1");
    WORKS("run", "-o", "two", "--threads=1", "--repeat=2", bert, "--json", "-i", "input_ids=ids.npy");
    WORKS("run", "-o", "three", "-i", "input_ids=ids.npy", "--", path_of("%s/", bert));
    for (int i = 0; i < 2; i++) {
        wok_tensor a = support_npy(ctx, "one/last_hidden_state.npy");
        wok_tensor b = support_npy(ctx, i ? "three/last_hidden_state.npy" : "two/last_hidden_state.npy");
        cr_assert(a.bytes == b.bytes && !memcmp(a.data, b.data, a.bytes));
        wok_npy_free(ctx, &a), wok_npy_free(ctx, &b);
    }
}

/* ---- graphs that cannot run ----------------------------------------------------------------------------------------------------- */

Test(command, unsupported_operators_are_all_listed) {
    make m = make_start(ctx, 8, 17);
    size_t bytes;
    make_node(&m, "FooBar", "X", NULL, "A");
    make_node(&m, "Relu", "A", NULL, "B");
    make_node(&m, "NonZeroish", "B", NULL, "C");
    make_node(&m, "FooBar", "C", NULL, "Y");
    make_value(&m, GRAPH_INPUT, "X", WOK_F32, 1, (int64_t[]){4});
    make_value(&m, GRAPH_OUTPUT, "Y", WOK_F32, 1, (int64_t[]){4});
    uint8_t *data = make_end(&m, &bytes);
    write_file("m.onnx", data, bytes);
    free(data);
    save_npy("x.npy", WOK_F32, 1, (int64_t[]){4}, (float[]){1, 2, 3, 4});
    FAILS(1, "FooBar", "run", "m.onnx", "-i", "X=x.npy", "-o", "o", "--json");
    cr_assert_not_null(strstr(err, "NonZeroish"), "%s", err);
    FAILS(1, "NonZeroish", "explain", "m.onnx", "--json");
    FAILS(1, "NonZeroish", "bench", "m.onnx");
    WORKS("info", "m.onnx");
    cr_assert(strstr(out, "FooBar") && strstr(out, "NonZeroish") && strstr(out, "not supported"), "%s", out);
    WORKS("info", "m.onnx", "--json");
    wok_json *doc = json_of();
    int unsupported = 0;
    wok_json_each(doc, op, wok_json_get(doc, 0, "operators")) unsupported +=
        wok_json_kind_of(doc, wok_json_get(doc, op, "unsupported")) == WOK_JSON_STRING;
    cr_assert_eq(unsupported, 2);
    wok_json_free(&doc);
}

static void save_external(const char *path, const char *location) {
    make m = make_add(ctx, 8, 17);
    wok_wire_mark t = make_tensor(&m, GRAPH_INITIALIZER, "W", WOK_F32, 1, (int64_t[]){4});
    wok_wire_mark entry = wok_wire_begin(&m.wire, TENSOR_EXTERNAL_DATA);
    wok_wire_put_text(&m.wire, ENTRY_KEY, "location");
    wok_wire_put_text(&m.wire, ENTRY_VALUE, location);
    wok_wire_end(&m.wire, entry);
    wok_wire_put_int(&m.wire, TENSOR_DATA_LOCATION, 1);
    wok_wire_end(&m.wire, t);
    size_t bytes;
    uint8_t *data = make_end(&m, &bytes);
    write_file(path, data, bytes);
    free(data);
}

Test(command, external_data_stays_in_the_models_folder) {
    mkdir("model", 0777);
    write_file("secret.bin", "0123456789abcdef", 16);
    write_file("model/w.bin", "0123456789abcdef", 16);
    save_npy("x.npy", WOK_F32, 1, (int64_t[]){4}, (float[]){1, 2, 3, 4});
    save_external("model/m.onnx", "w.bin");
    WORKS("run", "model/m.onnx", "-i", "X=x.npy");
    cr_assert_eq(symlink("../secret.bin", "model/link.bin"), 0);
    const char *const outside[] = {"../secret.bin", "a/../../secret.bin", path_of("%s/secret.bin", work), "link.bin"};
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++) {
        save_external("model/m.onnx", outside[i]);
        FAILS(1, "leads out of the model's folder", "run", "model/m.onnx", "-i", "X=x.npy", "-o", "o");
        FAILS(1, "leads out of the model's folder", "info", "model/m.onnx");
    }
    save_external("model/m.onnx", "missing.bin");
    FAILS(1, "missing.bin", "run", "model/m.onnx", "-i", "X=x.npy", "-o", "o");
    write_file("model/w.bin", "0123456789abcde", 15);
    save_external("model/m.onnx", "w.bin");
    FAILS(1, "w.bin", "run", "model/m.onnx", "-i", "X=x.npy", "-o", "o");
}

/* ---- outputs ----------------------------------------------------------------------------------------------------------------------- */

Test(command, output_names_become_file_names) {
    static const char *const names[] = {
        "463", "onnx::Shape_422", "StatefulPartitionedCall:0", "a/b", "../up", ".hidden", "100%", "a\tb", "m\xc3\xbcr",
        "x.y"};
    static const char *const files[] = {"463",    "onnx::Shape_422", "StatefulPartitionedCall:0",
                                        "a%2Fb",  "%2E.%2Fup",       "%2Ehidden",
                                        "100%25", "a%09b",           "m\xc3\xbcr",
                                        "x.y"};
    enum { COUNT = sizeof names / sizeof *names };
    save_model("m.onnx", COUNT, names);
    save_x();
    int before = things();
    WORKS("run", "m.onnx", "-i", "x=x.npy", "-o", "a/deep/folder/", "--json");
    cr_assert_eq(things(), before + 3 + COUNT, "the folders, a file an output, nothing else");
    wok_json *doc = json_of();
    wok_json_at outputs = wok_json_get(doc, 0, "outputs");
    cr_assert_eq(wok_json_count(doc, outputs), COUNT);
    for (int i = 0; i < COUNT; i++) {
        char *path = path_of("a/deep/folder/%s.npy", files[i]);
        wok_tensor y = support_npy(ctx, path);
        cr_assert(y.dtype == WOK_F32 && y.rank == 2 && y.dims[0] == 1 && y.dims[1] == 2);
        cr_assert_eq(((float *)y.data)[1], -2.0f * (float)(i + 2), "%s", names[i]);
        wok_npy_free(ctx, &y);
        wok_json_at o = item(doc, outputs, i);
        cr_assert(wok_json_is(doc, wok_json_get(doc, o, "name"), names[i]));
        cr_assert(wok_json_is(doc, wok_json_get(doc, o, "file"), path), "%s", out);
        cr_assert(wok_json_is(doc, wok_json_get(doc, o, "dtype"), "f32"));
        expect_shape(doc, wok_json_get(doc, o, "shape"), 2, (int64_t[]){1, 2});
    }
    wok_json_free(&doc);
}

Test(command, outputs_replace_older_ones) {
    save_model("m.onnx", 1, (const char *[]){"y"});
    save_x();
    mkdir("o", 0777);
    write_file("o/y.npy", "old", 3);
    write_file("o/other.npy", "old", 3);
    WORKS("run", "m.onnx", "-i", "x=x.npy", "-o", "o");
    cr_assert_eq(count_files("o"), 2, "what is not an output stays");
    wok_tensor y = support_npy(ctx, "o/y.npy");
    wok_npy_free(ctx, &y);
}

/* All outputs or none, and no folder made for nothing. */
Test(command, output_folders_that_cannot_be_written) {
    char long_name[301];
    memset(long_name, 'n', 300), long_name[300] = 0;
    save_model("long.onnx", 2, (const char *[]){"first", long_name});
    save_model("m.onnx", 2, (const char *[]){"first", "second"});
    save_x();
    FAILS(1, "File name too long", "run", "long.onnx", "-i", "x=x.npy", "-o", "o/deep", "--json");
    write_file("file", "", 0);
    FAILS(1, "file: Not a directory", "run", "m.onnx", "-i", "x=x.npy", "-o", "file", "--json");
    FAILS(1, "Not a directory", "run", "m.onnx", "-i", "x=x.npy", "-o", "file/deep", "--json");
    FAILS(1, "/proc", "run", "m.onnx", "-i", "x=x.npy", "-o", "/proc/wok", "--json");
    FAILS(1, "Not a directory", "run", "m.onnx", "-i", "x=x.npy", "-o", "/dev/null", "--json");
    FAILS(1, "File name too long", "run", "m.onnx", "-i", "x=x.npy", "-o", path_of("new/%s", long_name));
    cr_assert_eq(system("mkdir -p o/second.npy"), 0);
    FAILS(1, "Is a directory", "run", "m.onnx", "-i", "x=x.npy", "-o", "o", "--json");
    FAILS(1, "x.npy", "run", "m.onnx", "-i", "x=x.npy/", "-o", "p", "--json");
}

/* A disk that is full after so many bytes: the largest file that the command may write. */
Test(command, a_disk_that_is_full_half_way) {
    save_ids("ids.npy", 60, 1, 2);
    cr_assert_eq(WOK("run", bert, "-i", "input_ids=ids.npy"), 0);
    int before = things();
    const char *script =
        path_of("ulimit -f 8; trap '' XFSZ; exec '%s' run '%s' -i input_ids=ids.npy -o o/p --json >'%s/out' 2>'%s/err'",
                WOK_COMMAND, bert, captured, captured);
    int status = system(script);
    size_t bytes;
    free(out), free(err);
    out = (char *)read_file(path_of("%s/out", captured), &bytes), out[bytes] = 0;
    err = (char *)read_file(path_of("%s/err", captured), &bytes), err[bytes] = 0;
    cr_assert(WIFEXITED(status));
    expect_failure("full disk", WEXITSTATUS(status), 1, "last_hidden_state.npy cannot be written: File too large",
                   before);
}

/* ---- stdout ------------------------------------------------------------------------------------------------------------------------ */

Test(command, stdout_that_cannot_be_written) {
    save_ids("ids.npy", 5, 1, 2);
    static const sink sinks[] = {TO_FULL, TO_NOTHING, TO_BROKEN_PIPE};
    for (int i = 0; i < 3; i++)
        for (int json = 0; json < 2; json++) {
            const char *flag = json ? "--json" : "--";
            int before = things();
#define REFUSED(label, ...)                                                                                            \
    expect_failure(label, WOK_INTO(sinks[i], __VA_ARGS__), 1, "stdout cannot be written", before)
            REFUSED("run", "run", bert, "-i", "input_ids=ids.npy", flag);
            REFUSED("info", "info", bert, flag);
            REFUSED("explain", "explain", bert, flag);
            REFUSED("bench", "bench", bert, "--repeat", "1", flag);
            REFUSED("cpu", "cpu", flag);
            REFUSED("help", "--help");
            REFUSED("help of run", "run", "--help");
            REFUSED("version", "--version");
        }
    /* Files must not take the place of a closed stdout. */
    cr_assert_eq(WOK_INTO(TO_NOTHING, "run", bert, "-i", "input_ids=ids.npy", "-o", "o"), 1);
    wok_tensor y = support_npy(ctx, "o/last_hidden_state.npy");
    wok_npy_free(ctx, &y);
}

Test(command, progress_is_for_terminals) {
    save_ids("ids.npy", 60, 1, 2);
    WORKS("run", bert, "-i", "input_ids=ids.npy", "--repeat", "200", "--warmup", "2");
    cr_assert_str_empty(err);
    WORKS("bench", bert, "--repeat", "50", "--json");
    cr_assert_str_empty(err);
    WORKS("explain", bert, "--profile", "--json");
    cr_assert_str_empty(err);
}

/* ---- damage, in this process -------------------------------------------------------------------------------------------------------- */

/* Loads, plans and runs whatever a damaged file still says; every failure has one sentence, and memory is given back. */
static int load_and_run(wok_ctx *limited, const uint8_t *data, size_t bytes) {
    wok_load_options options = {.size = sizeof options, .base_dir = bert, .copy = true};
    wok_model *model = NULL;
    wok_session *session = NULL;
    int64_t ids[3] = {1, 0, 1};
    int reached = 0;
    if (wok_model_load_memory(limited, data, bytes, &options, &model) != WOK_OK) {
        expect_sentence(limited);
        return 0;
    }
    if (wok_session_create(model, NULL, &session) == WOK_OK) {
        wok_status status = WOK_OK;
        for (int i = 0; i < wok_model_input_count(model) && status == WOK_OK; i++)
            status = wok_session_set_input(session, i, WOK_I64, (int64_t[]){1, 3}, 2, ids, sizeof ids);
        if (status == WOK_OK) status = wok_session_run(session);
        reached = status == WOK_OK ? 2 : 1;
        if (status != WOK_OK) {
            cr_assert(*wok_session_error(session), "a failure without a sentence");
            cr_assert_not(strchr(wok_session_error(session), '\n'), "%s", wok_session_error(session));
        }
    } else {
        expect_sentence(limited);
    }
    wok_session_free(&session);
    wok_model_free(&model);
    return reached;
}

/* external13 is all structure: its weights stand elsewhere. */
Test(command, damaged_structure_is_refused_or_runs, .timeout = 600) {
    wok_ctx *limited =
        wok_ctx_create(&(wok_ctx_options){.size = sizeof(wok_ctx_options), .threads = 1, .memory_limit = 256 << 20});
    size_t bytes, held = wok_ctx_memory(limited, NULL);
    uint8_t *data = read_file(path_of("%s/external13.onnx", bert), &bytes), *copy = malloc(bytes);
    uint64_t state = 7;
    int reached[3] = {0};
    cr_assert_eq(load_and_run(limited, data, bytes), 2);
    for (int i = 0; i < 1500; i++) {
        memcpy(copy, data, bytes);
        for (int k = 0; k <= i % 3; k++) {
            state ^= state << 13, state ^= state >> 7, state ^= state << 17;
            size_t at = (size_t)(state >> 32) % bytes;
            copy[at] = i % 2 ? (uint8_t)state : (uint8_t)(copy[at] ^ 1u << (state & 7));
        }
        reached[load_and_run(limited, copy, bytes)]++;
        cr_assert_eq(wok_ctx_memory(limited, NULL), held, "case %d keeps memory", i);
    }
    cr_assert(reached[0] > 100 && reached[1] > 0 && reached[2] > 100, "%d refused, %d failed, %d ran", reached[0],
              reached[1], reached[2]);
    free(copy), free(data);
    wok_ctx_free(&limited);
}

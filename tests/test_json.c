/* test_json.c - the JSON helper: grammar, strings, numbers, limits, failing memory. */
#define _POSIX_C_SOURCE 200809L /* mkstemp */
#include "json.h"

#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static wok_ctx *ctx;

static size_t held;

static void setup(void) {
    ctx = wok_ctx_create(NULL);
    held = wok_ctx_memory(ctx, NULL);
}
static void teardown(void) {
    size_t now = wok_ctx_memory(ctx, NULL);
    cr_assert_eq(now, held, "%zu bytes were not given back", now - held);
    wok_ctx_free(&ctx);
}
TestSuite(json, .init = setup, .fini = teardown);

static wok_json *parse(const char *text) {
    wok_json *doc = NULL;
    cr_assert_eq(wok_json_parse(ctx, text, strlen(text), "test", &doc), WOK_OK, "%s: %s", text, wok_ctx_error(ctx));
    return doc;
}

Test(json, reads_an_object) {
    wok_json *doc = parse(" {\"a\" : [1, -2.5e1, true, null, \"x\"], \"b\":{\"c\":{}}, \"n\":false}\n");
    wok_json_at root = wok_json_root(doc), a = wok_json_get(doc, root, "a");
    cr_assert_eq(wok_json_kind_of(doc, root), WOK_JSON_OBJECT);
    cr_assert_eq(wok_json_count(doc, root), 3);
    cr_assert_eq(wok_json_count(doc, a), 5);
    static const wok_json_kind kinds[] = {WOK_JSON_NUMBER, WOK_JSON_NUMBER, WOK_JSON_BOOL, WOK_JSON_NULL,
                                          WOK_JSON_STRING};
    int i = 0;
    wok_json_each(doc, item, a) cr_assert_eq(wok_json_kind_of(doc, item), kinds[i++]);
    cr_assert_eq(i, 5);
    double d = 0;
    cr_assert(wok_json_double(doc, wok_json_next(doc, wok_json_first(doc, a)), &d));
    cr_assert_eq(d, -25.0);
    bool flag = true;
    cr_assert(wok_json_bool(doc, wok_json_get(doc, root, "n"), &flag));
    cr_assert_not(flag);
    cr_assert_eq(wok_json_count(doc, wok_json_get(doc, wok_json_get(doc, root, "b"), "c")), 0);
    static const char *const keys[] = {"a", "b", "n"};
    i = 0;
    wok_json_each(doc, key, root) cr_assert(wok_json_is(doc, key, keys[i++]));
    wok_json_free(&doc);
}

Test(json, absent_positions_stay_absent) {
    wok_json *doc = parse("{\"a\":1}");
    wok_json_at none = wok_json_get(doc, wok_json_get(doc, wok_json_get(doc, 0, "x"), "y"), "z");
    int64_t i = 7;
    double d = 7;
    bool b = true;
    cr_assert_eq(none, -1);
    cr_assert_eq(wok_json_kind_of(doc, none), WOK_JSON_ABSENT);
    cr_assert_eq(wok_json_kind_of(doc, 99), WOK_JSON_ABSENT);
    cr_assert_eq(wok_json_first(doc, none), -1);
    cr_assert_null(wok_json_string(doc, none, NULL));
    cr_assert_not(wok_json_int(doc, none, &i) || wok_json_double(doc, none, &d) || wok_json_bool(doc, none, &b));
    cr_assert(i == 7 && d == 7 && b);
    cr_assert_eq(wok_json_get(doc, wok_json_get(doc, 0, "a"), "b"), -1);
    wok_json_free(&doc);
    wok_json_free(&doc);
}

Test(json, strings_are_resolved) {
    wok_json *doc =
        parse("[\"q\\\"\\\\\\/\\b\\f\\n\\r\\t\", \"\\u00e9\\u4e2d\\ud83d\\ude0a\\u0000z\", \"\xc3\xa9\", \"\", "
              "{\"k\\u0041\":1}]");
    static const struct {
        const char *text;
        size_t length;
    } want[] = {{"q\"\\/\b\f\n\r\t", 9}, {"\xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x8a\0z", 11}, {"\xc3\xa9", 2}, {"", 0}};
    wok_json_at at = wok_json_first(doc, 0);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++, at = wok_json_next(doc, at)) {
        size_t length = 99;
        const char *s = wok_json_string(doc, at, &length);
        cr_assert_eq(length, want[i].length);
        cr_assert_eq(memcmp(s, want[i].text, length + 1), 0);
    }
    cr_assert_neq(wok_json_get(doc, at, "kA"), -1);
    wok_json_free(&doc);
}

Test(json, of_repeated_keys_the_last_counts) {
    wok_json *doc = parse("{\"a\":1,\"b\":2,\"a\":3}");
    int64_t value = 0;
    cr_assert(wok_json_int(doc, wok_json_get(doc, 0, "a"), &value));
    cr_assert_eq(value, 3);
    wok_json_free(&doc);
}

Test(json, integers) {
    static const struct {
        const char *text;
        bool good;
        int64_t value;
    } cases[] = {{"0", true, 0},
                 {"-0", true, 0},
                 {"9223372036854775807", true, INT64_MAX},
                 {"-9223372036854775808", true, INT64_MIN},
                 {"9223372036854775808", false, 0},
                 {"-9223372036854775809", false, 0},
                 {"99999999999999999999999", false, 0},
                 {"512.0", true, 512},
                 {"1.2e1", true, 12},
                 {"1e30", false, 0},
                 {"0.5", false, 0},
                 {"\"1\"", false, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wok_json *doc = parse(cases[i].text);
        int64_t value = 0;
        cr_assert_eq(wok_json_int(doc, 0, &value), cases[i].good, "%s", cases[i].text);
        cr_assert_eq(value, cases[i].value, "%s", cases[i].text);
        wok_json_free(&doc);
    }
}

/* strtod in the C locale is the reference; the answer may not depend on the program's locale. */
Test(json, doubles_are_exact_in_any_locale) {
    static const char *const texts[] = {"1e-12",
                                        "0.1",
                                        "-0.0",
                                        "3.141592653589793238",
                                        "1.7976931348623157e308",
                                        "5e-324",
                                        "2.2250738585072011e-308",
                                        "123456789012345678901234567890",
                                        "0.000000000000000000000000000001",
                                        "9007199254740993",
                                        "1E+22",
                                        "1e-22",
                                        "1e23",
                                        "0.30000000000000004",
                                        "1e0000000000001",
                                        "7.2057594037927933e16"};
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
            setlocale(LC_ALL, "C");
            double want = strtod(texts[i], NULL), got = 0;
            if (pass == 1 && !setlocale(LC_ALL, "de_DE.UTF-8")) continue; /* not installed everywhere */
            wok_json *doc = parse(texts[i]);
            cr_assert(wok_json_double(doc, 0, &got), "%s", texts[i]);
            cr_assert_eq(memcmp(&want, &got, sizeof got), 0, "%s: %.17g, not %.17g", texts[i], got, want);
            wok_json_free(&doc);
        }
    setlocale(LC_ALL, "C");
    wok_json *doc = parse("1e999");
    double d = 1;
    cr_assert_not(wok_json_double(doc, 0, &d));
    wok_json_free(&doc);
}

Test(json, refuses_what_is_not_json) {
    static const char *const texts[] = {"",
                                        " ",
                                        "{",
                                        "}",
                                        "[",
                                        "]",
                                        "{]",
                                        "[}",
                                        "[1",
                                        "[1,",
                                        "[1,]",
                                        "[,1]",
                                        "[1 2]",
                                        "[1,,2]",
                                        "{\"a\"}",
                                        "{\"a\":}",
                                        "{\"a\":1,}",
                                        "{\"a\" 1}",
                                        "{\"a\":1 2}",
                                        "{\"a\":1 \"b\":2}",
                                        "{1:2}",
                                        "{a:1}",
                                        "{\"a\":1,\"b\"}",
                                        "{\"a\":1:2}",
                                        "{[]:1}",
                                        "[\"a\":1]",
                                        "1 2",
                                        "{} {}",
                                        "[]]",
                                        "[] x",
                                        "tru",
                                        "True",
                                        "nul",
                                        "truex",
                                        "NaN",
                                        "Infinity",
                                        "+1",
                                        "01",
                                        "-",
                                        "1.",
                                        ".5",
                                        "1e",
                                        "1e+",
                                        "0x10",
                                        "--1",
                                        "1-",
                                        "\"",
                                        "\"a",
                                        "\"\\x\"",
                                        "\"\\u12\"",
                                        "\"\\u12g4\"",
                                        "\"\\ud800\"",
                                        "\"\\ud800\\u0041\"",
                                        "\"\\udc00\"",
                                        "\"\\ud800x\\udc00\"",
                                        "\"\t\"",
                                        "\"\n\"",
                                        "'a'",
                                        "\"\x80\"",
                                        "\"\xc0\x80\"",
                                        "\"\xed\xa0\x80\"",
                                        "\"\xf5\x80\x80\x80\"",
                                        "\"\xe4\xb8\"",
                                        "// c\n1",
                                        "[1]/**/",
                                        ":",
                                        ",",
                                        "\\",
                                        "{\"a\":{\"b\":1}",
                                        "{\"a\":[1}",
                                        "[[1]",
                                        "\xef\xbb\xbf",
                                        "\xef\xbb"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        wok_json *doc = (wok_json *)1;
        wok_status status = wok_json_parse(ctx, texts[i], strlen(texts[i]), "bad.json", &doc);
        cr_assert_eq(status, WOK_ERR_FORMAT, "<%s>", texts[i]);
        cr_assert_null(doc);
        cr_assert_eq(strncmp(wok_ctx_error(ctx), "bad.json: ", 10), 0, "%s", wok_ctx_error(ctx));
    }
    wok_json *doc = NULL;
    cr_assert_eq(wok_json_parse(ctx, "[1\0]", 4, "nul", &doc), WOK_ERR_FORMAT);
    cr_assert_eq(wok_json_parse(ctx, "[1]\0", 4, "nul", &doc), WOK_ERR_FORMAT);
}

Test(json, byte_order_mark_is_skipped) {
    wok_json *doc = parse("\xef\xbb\xbf[\"a\"]");
    cr_assert(wok_json_is(doc, wok_json_first(doc, 0), "a"));
    wok_json_free(&doc);
}

Test(json, depth_is_bounded) {
    char text[2 * WOK_JSON_MAX_DEPTH + 8];
    for (int extra = 0; extra < 2; extra++) {
        int depth = WOK_JSON_MAX_DEPTH + extra;
        memset(text, '[', (size_t)depth);
        memset(text + depth, ']', (size_t)depth);
        wok_json *doc = NULL;
        cr_assert_eq(wok_json_parse(ctx, text, 2 * (size_t)depth, "deep", &doc), extra ? WOK_ERR_LIMIT : WOK_OK);
        wok_json_free(&doc);
    }
    size_t many = 1 << 22; /* quadratic work would not end */
    char *open = malloc(many);
    memset(open, '[', many);
    wok_json *doc = NULL;
    cr_assert_eq(wok_json_parse(ctx, open, many, "deep", &doc), WOK_ERR_LIMIT);
    free(open);
}

/* Every prefix and every one-byte change of a document: an answer or an error, never a fault. */
Test(json, survives_damage) {
    static const char text[] = "{\"a\":[1,{\"b\":\"\\u00e9x\"},null],\"c\":-1.5e3,\"d\":{\"e\":[],\"f\":true}}";
    char copy[sizeof text];
    wok_json *doc = NULL;
    for (size_t n = 0; n < sizeof text - 1; n++) {
        cr_assert_eq(wok_json_parse(ctx, text, n, "cut", &doc), WOK_ERR_FORMAT, "%zu", n);
        for (int c = 0; c < 256; c++) {
            memcpy(copy, text, sizeof text);
            copy[n] = (char)c;
            if (wok_json_parse(ctx, copy, sizeof text - 1, "changed", &doc) == WOK_OK)
                wok_json_each(doc, key, 0) cr_assert_geq(wok_json_value(doc, key), 0);
            wok_json_free(&doc);
        }
    }
}

Test(json, files) {
    wok_json *doc = NULL;
    cr_assert_eq(wok_json_load(ctx, WOK_TEST_DATA "/no-such-file.json", &doc), WOK_ERR_IO);
    cr_assert_eq(wok_json_load(ctx, WOK_TEST_DATA, &doc), WOK_ERR_IO, "a directory");
    char name[] = "/tmp/wok-json-XXXXXX";
    int fd = mkstemp(name);
    cr_assert_geq(fd, 0);
    FILE *file = fdopen(fd, "wb");
    fputs("{\"hidden_size\": 64}", file);
    fclose(file);
    int64_t value = 0;
    cr_assert_eq(wok_json_load(ctx, name, &doc), WOK_OK, "%s", wok_ctx_error(ctx));
    cr_assert(wok_json_int(doc, wok_json_get(doc, 0, "hidden_size"), &value));
    cr_assert_eq(value, 64);
    wok_json_free(&doc);
    char *data = NULL;
    size_t bytes = 0;
    cr_assert_eq(wok_file_load(ctx, name, 18, &data, &bytes), WOK_ERR_LIMIT);
    cr_assert_eq(wok_file_load(ctx, name, 19, &data, &bytes), WOK_OK);
    cr_assert(bytes == 19 && data[19] == 0);
    wok_ctx_release(ctx, data, bytes + 1);
    unlink(name);
}

/* ---- failing memory
 * -------------------------------------------------------------------------------------------------- */

static long left, live;
static void *failing_alloc(void *user, size_t bytes, size_t alignment) {
    (void)user;
    if (left-- <= 0) return NULL;
    live++;
    return aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}
static void failing_free(void *user, void *ptr, size_t bytes) {
    (void)user, (void)bytes;
    live--;
    free(ptr);
}

Test(json_memory, every_allocation_may_fail) {
    wok_allocator allocator = {failing_alloc, failing_free, NULL};
    wok_ctx_options options = {.size = sizeof options, .allocator = &allocator, .threads = 1};
    left = 1000;
    ctx = wok_ctx_create(&options);
    cr_assert_not_null(ctx);
    long before = live, failures = 0;
    for (long n = 0;; n++, failures++) {
        wok_json *doc = NULL;
        left = n;
        wok_status status = wok_json_parse(ctx, "{\"a\":[1,2,3]}", 13, "test", &doc);
        if (status == WOK_OK)
            cr_assert_not_null(doc);
        else
            cr_assert(status == WOK_ERR_MEMORY && !doc, "allocation %ld: %s", n, wok_status_name(status));
        wok_json_free(&doc);
        cr_assert_eq(live, before, "allocation %ld leaks", n);
        if (status == WOK_OK) break;
    }
    cr_assert_geq(failures, 3);
    left = 1000;
    wok_ctx_free(&ctx);
    cr_assert_eq(live, 0);
}

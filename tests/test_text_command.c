/* test_text_command.c - tokenize, embed and classify from outside: n lines in, n lines out, exit statuses, nothing
 * half-written. */
#define _XOPEN_SOURCE 700 /* mkdtemp, popen */
#include "json.h"
#include "support.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static wok_ctx *ctx;
static char folder[64], out[1 << 20], errors[4096];

static const char *in_folder(const char *name) {
    static char paths[4][128];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static void write_file(const char *name, const char *text) {
    FILE *file = fopen(in_folder(name), "wb");
    cr_assert_not_null(file);
    fputs(text, file);
    fclose(file);
}

static size_t read_file(const char *name, char *text, size_t size) {
    FILE *file = fopen(in_folder(name), "rb");
    cr_assert_not_null(file);
    size_t length = fread(text, 1, size - 1, file);
    text[length] = 0;
    fclose(file);
    return length;
}

/* A model of tests/data with a made-up vocabulary. */
static void use_model(const char *name) {
    char path[200], vocab[8000] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";
    static const char *const parts[] = {"model.safetensors", "config.json"};
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "models/%s/%s", name, parts[i]);
        char *real = realpath(support_data(path), NULL);
        cr_assert_not_null(real);
        unlink(in_folder(parts[i]));
        cr_assert_eq(symlink(real, in_folder(parts[i])), 0);
        free(real);
    }
    for (int i = 0; i < 400; i++) snprintf(vocab + strlen(vocab), 16, "w%d\n", i);
    write_file("vocab.txt", vocab);
}

static void setup(void) {
    if (WOK_COMMAND[0] == 0) cr_skip_test("the wok command is not built");
    ctx = wok_ctx_create(NULL);
    strcpy(folder, "/tmp/wok-command-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
    use_model("bert-h64");
}

static void teardown(void) {
    static const char *const names[] = {"model.safetensors", "config.json", "vocab.txt", "in", "out", "err"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) unlink(in_folder(names[i]));
    if (folder[0]) rmdir(folder);
    wok_ctx_free(&ctx);
}
TestSuite(text_command, .init = setup, .fini = teardown, .timeout = 300);

/* Runs `wok ARGS` with the file `in` as stdin; fills out and errors, returns the exit status. */
static int wok(const char *arguments) {
    char line[2048];
    snprintf(line, sizeof line, "cd '%s' && touch in && '%s' %s <in >out 2>err", folder, WOK_COMMAND, arguments);
    int status = system(line);
    read_file("out", out, sizeof out);
    read_file("err", errors, sizeof errors);
    cr_assert(WIFEXITED(status), "%s: ended by a signal: %s", arguments, errors);
    return WEXITSTATUS(status);
}

/* A failure: this status, one sentence, nothing on stdout. */
static void fails(const char *arguments, int want) {
    int status = wok(arguments);
    cr_assert_eq(status, want, "%s: status %d: %s", arguments, status, errors);
    cr_assert_str_eq(out, "", "%s wrote %s", arguments, out);
    const char *newline = strchr(errors, '\n');
    cr_assert(newline && newline[1] == 0 && !strncmp(errors, "wok: ", 5), "%s: <%s>", arguments, errors);
}

static int count_lines(void) {
    int count = 0;
    for (const char *p = out; (p = strchr(p, '\n')); p++) count++;
    return count;
}

/* Line number `index` of the output as JSON. */
static wok_json *line_json(int index) {
    const char *begin = out;
    for (; index > 0; index--) begin = strchr(begin, '\n') + 1;
    wok_json *doc = NULL;
    cr_assert_eq(wok_json_parse(ctx, begin, strcspn(begin, "\n"), "line", &doc), WOK_OK, "%s", wok_ctx_error(ctx));
    return doc;
}

Test(text_command, tokenize_a_line_in_a_line_out) {
    write_file("in", "{\"text\":\"w0 w1 zzz\"}\n\n  \n{\"text\":\"w0\",\"pair\":\"w1 w2 "
                     "w3\",\"max_length\":6,\"truncation\":"
                     "\"only_second\"}\n{\"text\":\"w9\"}");
    cr_assert_eq(wok("tokenize . --jsonl"), 0, "%s", errors);
    cr_assert_str_eq(out, "{\"ids\":[2,5,6,1,3],\"type_ids\":[0,0,0,0,0]}\n{\"ids\":[2,3],\"type_ids\":[0,0]}\n"
                          "{\"ids\":[2,3],\"type_ids\":[0,0]}\n{\"ids\":[2,5,3,6,7,3],\"type_ids\":[0,0,0,1,1,1]}\n"
                          "{\"ids\":[2,14,3],\"type_ids\":[0,0,0]}\n");
    cr_assert_eq(wok("tokenize --jsonl ./"), 0, "options in any order, a slash at the end");
    cr_assert_eq(count_lines(), 5);
    write_file("in", "");
    cr_assert_eq(wok("tokenize . --jsonl"), 0);
    cr_assert_str_eq(out, "");
    cr_assert_eq(wok("tokenize . 'w0 w1'"), 0);
    cr_assert_str_eq(out, "2 [CLS]  5 w0  6 w1  3 [SEP]\n");
}

Test(text_command, tokenize_errors) {
    write_file("in", "{\"text\":\"w0\"\n");
    fails("tokenize . --jsonl", 1);
    cr_assert_not_null(strstr(errors, "line 1"));
    fails("tokenize /no/such/folder --jsonl", 1);
    fails("tokenize . ", 2);
    fails("tokenize", 2);
    fails("tokenize . --jsonl text", 2);
    fails("tokenize . --nonsense", 2);
}

Test(text_command, embed_a_line_in_a_line_out) {
    write_file("in", "w1 w2 w3\n\nw7 w8 w9 w10 w11 w12\nw1 w2 w3");
    cr_assert_eq(wok("embed . --lines in --json"), 0, "%s", errors);
    cr_assert_eq(count_lines(), 4);
    wok_json *rows[4];
    double first[4];
    for (int i = 0; i < 4; i++) {
        rows[i] = line_json(i);
        wok_json_at vector = wok_json_get(rows[i], 0, "embedding");
        cr_assert_eq(wok_json_count(rows[i], vector), 64);
        cr_assert(wok_json_double(rows[i], wok_json_first(rows[i], vector), &first[i]));
    }
    cr_assert(first[0] == first[3] && first[0] != first[1] && first[1] != first[2]);
    for (int i = 0; i < 4; i++) wok_json_free(&rows[i]);
    static char first_time[sizeof out];
    memcpy(first_time, out, sizeof out);
    cr_assert_eq(wok("embed . --json --lines - --batch 1 --threads 1"), 0);
    cr_assert_str_eq(out, first_time, "the same digits from stdin, one by one");
    cr_assert_eq(wok("embed . --lines in"), 0);
    cr_assert_eq(count_lines(), 4);
}

Test(text_command, embed_texts_and_their_similarities) {
    cr_assert_eq(wok("embed . 'w1 w2' 'w1 w2' 'w300' --json"), 0, "%s", errors);
    cr_assert_eq(count_lines(), 1);
    wok_json *doc = line_json(0);
    cr_assert_eq(wok_json_count(doc, wok_json_get(doc, 0, "texts")), 3);
    cr_assert_eq(wok_json_count(doc, wok_json_get(doc, 0, "embeddings")), 3);
    wok_json_at row = wok_json_first(doc, wok_json_get(doc, 0, "similarities"));
    wok_json_at cell = wok_json_first(doc, row);
    double same = 0, twin = 0, other = 0;
    cr_assert(wok_json_double(doc, cell, &same));
    cr_assert(wok_json_double(doc, cell = wok_json_next(doc, cell), &twin));
    cr_assert(wok_json_double(doc, wok_json_next(doc, cell), &other));
    cr_assert(same == twin && same > 0.999999 && same < 1.000001 && other < 0.9999);
    wok_json_free(&doc);
    cr_assert_eq(wok("embed . 'w1 w2' 'w300'"), 0);
    cr_assert_not_null(strstr(out, "w300"));
    fails("embed .", 2);
    fails("embed . w1 --lines in", 2);
    fails("embed . --lines no-such-file", 1);
    fails("embed /no/such/folder w1", 1);
    fails("classify . w1", 1); /* a model without logits */
    write_file("vocab.txt", "[PAD]\n[UNK]\n");
    unlink(in_folder("model.safetensors"));
    fails("embed . w1", 1);
}

Test(text_command, classify_texts) {
    use_model("distilbert-h64-cls");
    write_file("in", "w1 w2\n\nw3");
    cr_assert_eq(wok("classify . --lines in --json"), 0, "%s", errors);
    cr_assert_eq(count_lines(), 3);
    for (int i = 0; i < 3; i++) {
        wok_json *doc = line_json(i);
        wok_json_at top = wok_json_get(doc, 0, "top");
        cr_assert_eq(wok_json_count(doc, top), 3);
        double sum = 0, last = 2, score = 0;
        wok_json_each(doc, item, top) {
            cr_assert(wok_json_double(doc, wok_json_get(doc, item, "score"), &score));
            cr_assert_leq(score, last, "the likeliest first");
            last = score;
            sum += score;
        }
        cr_assert_float_eq(sum, 1.0, 1e-6);
        const char *label = wok_json_string(doc, wok_json_get(doc, 0, "label"), NULL);
        cr_assert(label && !strncmp(label, "LABEL_", 6));
        wok_json_free(&doc);
    }
    cr_assert_eq(wok("classify . --lines in"), 0);
    cr_assert_eq(count_lines(), 3);
    cr_assert_eq(wok("classify . 'w1 w2' w3 --json"), 0);
    wok_json *doc = line_json(0);
    cr_assert_eq(wok_json_count(doc, wok_json_get(doc, 0, "results")), 2);
    wok_json_free(&doc);
    fails("classify . --lines no-such-file --json", 1);
    fails("embed . w1", 1); /* a classifier has no hidden states to pool */
}

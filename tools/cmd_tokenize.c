/* cmd_tokenize.c - `wok tokenize`: token ids, of requests on stdin or of texts on the command line. */
#include "cmd.h"

#if WOK_HAVE_TEXT
#include "wok_text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct tokenize {
    wok_ctx *ctx;
    wok_tokenizer *tokenizer;
    wok_encoding *encoding;
};

static int open_tokenizer(const char *path, struct tokenize *t) {
    wok_ctx_options options = {.size = sizeof options, .threads = 1, .log = cmd_log};
    t->ctx = wok_ctx_create(&options);
    if (!t->ctx) return cmd_error("out of memory");
    if (wok_tokenizer_load(t->ctx, path, NULL, &t->tokenizer) != WOK_OK ||
        wok_encoding_create(t->tokenizer, &t->encoding) != WOK_OK)
        return cmd_error("%s", wok_ctx_error(t->ctx));
    return 0;
}

static void put_row(cmd_json *json, const char *key, const int32_t *row, size_t count) {
    json_key(json, key), json_array(json);
    for (size_t i = 0; i < count; i++) json_int(json, row[i]);
    json_array_end(json);
}

static bool put_encoding(const wok_encoding *encoding, FILE *file) {
    cmd_json json;
    size_t count = wok_encoding_size(encoding);
    const wok_text_span *spans = wok_encoding_offsets(encoding);
    json_start(&json, file);
    json_object(&json);
    put_row(&json, "ids", wok_encoding_ids(encoding), count);
    put_row(&json, "type_ids", wok_encoding_type_ids(encoding), count);
    if (spans) {
        json_key(&json, "offsets"), json_array(&json);
        for (size_t i = 0; i < count; i++) {
            json_array(&json);
            json_int(&json, spans[i].begin), json_int(&json, spans[i].end);
            json_array_end(&json);
        }
        json_array_end(&json);
    }
    json_object_end(&json);
    return json_finish(&json);
}

static bool is_blank(const char *line, int64_t length) {
    for (int64_t i = 0; i < length; i++)
        if (!memchr(" \t\r", line[i], 3)) return false;
    return true;
}

/* A line in, a line out. */
static int tokenize_lines(struct tokenize *t) {
    char *line = NULL;
    size_t capacity = 0;
    int status = 0;
    int64_t length = 0, number = 0;
    while (!status && (length = cmd_read_line(stdin, &line, &capacity)) >= 0) {
        number++;
        wok_status got = is_blank(line, length)
                             ? wok_tokenizer_encode(t->tokenizer, NULL, "", 0, NULL, 0, t->encoding)
                             : wok_tokenizer_encode_json(t->tokenizer, line, (size_t)length, t->encoding);
        if (got != WOK_OK)
            status = cmd_error("line %lld: %s", (long long)number, wok_encoding_error(t->encoding));
        else if (!put_encoding(t->encoding, stdout))
            status = cmd_error("stdout cannot be written");
    }
    if (!status && length == -2) status = cmd_error("stdin cannot be read: %s", strerror(errno));
    free(line);
    return status;
}

static int tokenize_texts(struct tokenize *t, const cmd_list *texts) {
    for (int i = 1; i < texts->count; i++) {
        const char *text = texts->items[i];
        if (wok_tokenizer_encode(t->tokenizer, NULL, text, strlen(text), NULL, 0, t->encoding) != WOK_OK)
            return cmd_error("%s", wok_encoding_error(t->encoding));
        const int32_t *ids = wok_encoding_ids(t->encoding);
        for (size_t k = 0; k < wok_encoding_size(t->encoding); k++) {
            const char *token = wok_tokenizer_token(t->tokenizer, ids[k], NULL);
            printf("%s%d %s", k ? "  " : "", (int)ids[k], token ? token : "?");
        }
        printf("\n");
    }
    return fflush(stdout) == 0 ? 0 : cmd_error("stdout cannot be written");
}

int cmd_tokenize(int argc, char **argv) {
    bool jsonl = false;
    const cmd_option options[] = {{"--jsonl", OPT_FLAG, &jsonl, NULL,
                                   "read {\"text\", \"pair\"?, \"max_length\"?, \"truncation\"?} a line, "
                                   "write {\"ids\", \"type_ids\"} a line"}};
    cmd_list list;
    int status;
    if (!cmd_parse(argc, argv, options, CMD_OPTION_COUNT(options), 1, -1, &list, &status)) return status;
    struct tokenize t = {NULL, NULL, NULL};
    if (jsonl == (list.count > 1)) status = cmd_usage(argv[0], "tokenize wants --jsonl, or texts");
    if (!status) status = open_tokenizer(list.items[0], &t);
    if (!status) status = jsonl ? tokenize_lines(&t) : tokenize_texts(&t, &list);
    wok_encoding_free(&t.encoding);
    wok_tokenizer_free(&t.tokenizer);
    wok_ctx_free(&t.ctx);
    cmd_list_free(&list);
    return status;
}

#else

int cmd_tokenize(int argc, char **argv) {
    (void)argc, (void)argv;
    return cmd_error("this build has no text support (utf8proc and jsmn)");
}
#endif

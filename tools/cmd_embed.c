/* cmd_embed.c - `wok embed`: vectors of sentences, and how alike they are. */
#include "cmd_lines.h"

#if WOK_HAVE_TEXT
#include "wok_text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct embed {
    wok_ctx *ctx;
    wok_text *pipeline;
    size_t width;
    float *vectors; /* of all texts (command line), or of the portion at hand (--lines) */
    size_t held;    /* vectors that there is room for */
};

static int open_pipeline(const char *path, int threads, int batch, struct embed *e) {
    wok_ctx_options ctx_options = {.size = sizeof ctx_options, .threads = threads, .log = cmd_log};
    wok_text_options options = {.size = sizeof options, .batch = batch};
    e->ctx = wok_ctx_create(&ctx_options);
    if (!e->ctx) return cmd_error("out of memory");
    if (wok_text_load(e->ctx, path, WOK_TEXT_EMBED, &options, &e->pipeline) != WOK_OK)
        return cmd_error("%s", wok_ctx_error(e->ctx));
    e->width = wok_text_width(e->pipeline);
    return 0;
}

/* The portion's vectors behind the first `before`. */
static int embed_portion(struct embed *e, const cmd_lines *lines, size_t before) {
    wok_text_item items[CMD_PORTION];
    size_t need = before + (size_t)lines->count;
    if (need > e->held) {
        float *grown = realloc(e->vectors, 2 * need * e->width * sizeof *grown);
        if (!grown) return cmd_error("out of memory");
        e->vectors = grown;
        e->held = 2 * need;
    }
    for (int i = 0; i < lines->count; i++) items[i] = (wok_text_item){lines->lines[i], lines->lengths[i], NULL, 0};
    if (wok_text_run(e->pipeline, items, (size_t)lines->count, e->vectors + before * e->width) != WOK_OK)
        return cmd_error("%s", wok_text_error(e->pipeline));
    return 0;
}

static void put_vector(cmd_json *json, const float *vector, size_t width) {
    json_array(json);
    for (size_t i = 0; i < width; i++) json_double(json, (double)vector[i], 9);
    json_array_end(json);
}

/* A line in, a line out: a JSON object, or the numbers. */
static bool put_line(const float *vector, size_t width, bool as_json) {
    if (as_json) {
        cmd_json json;
        json_start(&json, stdout);
        json_object(&json);
        json_key(&json, "embedding"), put_vector(&json, vector, width);
        json_object_end(&json);
        return json_finish(&json);
    }
    for (size_t i = 0; i < width; i++) printf("%s%.9g", i ? " " : "", (double)vector[i]);
    return putchar('\n') != EOF;
}

static int embed_lines(struct embed *e, cmd_lines *lines, bool as_json) {
    int status = 0;
    while (!status && cmd_lines_next(lines)) {
        status = embed_portion(e, lines, 0);
        for (int i = 0; i < lines->count && !status; i++)
            if (!put_line(e->vectors + (size_t)i * e->width, e->width, as_json))
                status = cmd_error("stdout cannot be written");
        cmd_progress("embedding, lines done", lines->done, INT64_MAX);
    }
    cmd_progress("", 1, 1);
    return status;
}

static double cosine(const float *a, const float *b, size_t width) {
    double dot = 0, aa = 0, bb = 0;
    for (size_t i = 0; i < width; i++) {
        dot += (double)a[i] * b[i];
        aa += (double)a[i] * a[i];
        bb += (double)b[i] * b[i];
    }
    return aa > 0 && bb > 0 ? dot / sqrt(aa * bb) : 0;
}

static bool print_json(const struct embed *e, const cmd_list *texts, size_t count) {
    cmd_json json;
    json_start(&json, stdout);
    json_object(&json);
    json_key(&json, "texts"), json_array(&json);
    for (size_t i = 0; i < count; i++) json_bytes(&json, texts->items[i + 1], strlen(texts->items[i + 1]));
    json_array_end(&json);
    json_key(&json, "embeddings"), json_array(&json);
    for (size_t i = 0; i < count; i++) put_vector(&json, e->vectors + i * e->width, e->width);
    json_array_end(&json);
    json_key(&json, "similarities"), json_array(&json);
    for (size_t i = 0; i < count; i++) {
        json_array(&json);
        for (size_t k = 0; k < count; k++)
            json_double(&json, cosine(e->vectors + i * e->width, e->vectors + k * e->width, e->width), 9);
        json_array_end(&json);
    }
    json_array_end(&json);
    json_object_end(&json);
    return json_finish(&json);
}

static void print_table(const struct embed *e, const cmd_list *texts, size_t count) {
    printf("%zu texts, vectors of %zu numbers; cosine similarities:\n", count, e->width);
    for (size_t i = 0; i < count; i++) {
        printf("%4zu ", i + 1);
        for (size_t k = 0; k < count && count <= 16; k++)
            printf(" %6.3f", cosine(e->vectors + i * e->width, e->vectors + k * e->width, e->width));
        printf("  %s\n", texts->items[i + 1]);
    }
}

static int embed_texts(struct embed *e, cmd_lines *lines, const cmd_list *texts, bool as_json) {
    size_t count = 0;
    while (cmd_lines_next(lines)) {
        int status = embed_portion(e, lines, count);
        if (status) return status;
        count += (size_t)lines->count;
    }
    if (!as_json)
        print_table(e, texts, count);
    else if (!print_json(e, texts, count))
        return cmd_error("stdout cannot be written");
    return fflush(stdout) == 0 ? 0 : cmd_error("stdout cannot be written");
}

int cmd_embed(int argc, char **argv) {
    const char *path = NULL;
    bool as_json = false;
    int threads = 0, batch = 0, status;
    const cmd_option options[] = {
        {"--lines", OPT_TEXT, &path, "FILE", "a text a line, a vector a line out; - is stdin"},
        {"--json", OPT_FLAG, &as_json, NULL, "one JSON object; with --lines one a line: {\"embedding\": [...]}"},
        {"--threads", OPT_COUNT, &threads, "N", "threads; default: the CPUs this process may use"},
        {"--batch", OPT_COUNT, &batch, "N", "texts that run together; default 32; changes no result"}};
    cmd_list list;
    if (!cmd_parse(argc, argv, options, CMD_OPTION_COUNT(options), 1, -1, &list, &status)) return status;
    struct embed e = {0};
    cmd_lines lines;
    status = cmd_lines_open(argv[0], &list, 1, path, &lines);
    if (!status) status = open_pipeline(list.items[0], threads, batch, &e);
    if (!status) status = path ? embed_lines(&e, &lines, as_json) : embed_texts(&e, &lines, &list, as_json);
    if (!status && fflush(stdout) != 0) status = cmd_error("stdout cannot be written");
    status = cmd_lines_close(&lines, status);
    wok_text_free(&e.pipeline);
    wok_ctx_free(&e.ctx);
    free(e.vectors);
    cmd_list_free(&list);
    return status;
}

#else

int cmd_embed(int argc, char **argv) {
    (void)argc, (void)argv;
    return cmd_error("this build has no text support (utf8proc and jsmn)");
}
#endif

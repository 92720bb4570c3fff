/* cmd_classify_text.c - the text half of `wok classify`. */
#include "cmd_classify.h"

#if WOK_HAVE_TEXT
#include "wok_text.h"

#include <stdlib.h>

static const char *label_of(void *user, size_t index) {
    return wok_text_label(user, index);
}

static int classify_portion(wok_text *pipeline, const cmd_lines *lines, float *scores, classify_out *out) {
    wok_text_item items[CMD_PORTION];
    size_t width = wok_text_width(pipeline);
    for (int i = 0; i < lines->count; i++) items[i] = (wok_text_item){lines->lines[i], lines->lengths[i], NULL, 0};
    if (wok_text_run(pipeline, items, (size_t)lines->count, scores) != WOK_OK)
        return cmd_error("%s", wok_text_error(pipeline));
    for (int i = 0; i < lines->count; i++)
        if (!classify_put(out, lines->lines[i], lines->lengths[i], scores + (size_t)i * width, width, label_of,
                          pipeline))
            return cmd_error("stdout cannot be written");
    return 0;
}

static int classify_all(const classify_job *job, wok_text *pipeline, cmd_lines *lines) {
    float *scores = malloc(CMD_PORTION * wok_text_width(pipeline) * sizeof *scores);
    classify_out out = {0};
    int status = scores && classify_begin(job, &out) ? 0 : cmd_error("out of memory");
    while (!status && cmd_lines_next(lines)) {
        status = classify_portion(pipeline, lines, scores, &out);
        cmd_progress("classifying, texts done", lines->done, INT64_MAX);
    }
    cmd_progress("", 1, 1);
    status = classify_end(&out, status);
    free(scores);
    return status;
}

int classify_texts(const classify_job *job, cmd_lines *lines) {
    wok_ctx_options options = {.size = sizeof options, .threads = job->threads, .log = cmd_log};
    wok_ctx *ctx = wok_ctx_create(&options);
    wok_text *pipeline = NULL;
    if (!ctx) return cmd_error("out of memory");
    int status = wok_text_load(ctx, job->model, WOK_TEXT_CLASSIFY, NULL, &pipeline) == WOK_OK
                     ? classify_all(job, pipeline, lines)
                     : cmd_error("%s", wok_ctx_error(ctx));
    wok_text_free(&pipeline);
    wok_ctx_free(&ctx);
    return status;
}

#else

int classify_texts(const classify_job *job, cmd_lines *lines) {
    (void)job, (void)lines;
    return cmd_error("this build has no text support (utf8proc and jsmn)");
}
#endif

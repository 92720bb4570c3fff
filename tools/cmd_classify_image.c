/* cmd_classify_image.c - the picture half of `wok classify`. */
#include "cmd_classify.h"

#if WOK_HAVE_IMAGE
#include "wok_image.h"

#include <stdlib.h>
#include <string.h>

static const char *label_of(void *user, size_t index) { return wok_classifier_label(user, index); }

static int classify_one(wok_ctx *ctx, wok_classifier *classifier, const char *path, size_t length, float *scores,
                        classify_out *out) {
    if (strlen(path) != length) return cmd_error("a picture's path holds a zero byte");
    if (wok_classifier_run_file(classifier, path, scores) != WOK_OK) return cmd_error("%s", wok_ctx_error(ctx));
    const size_t width = wok_classifier_width(classifier);
    return classify_put(out, path, length, scores, width, label_of, classifier) ? 0
                                                                               : cmd_error("stdout cannot be written");
}

static int classify_all(const classify_job *job, wok_ctx *ctx, wok_classifier *classifier, cmd_lines *lines) {
    float *scores = malloc(wok_classifier_width(classifier) * sizeof *scores);
    classify_out out = {0};
    int64_t done = 0;
    int status = scores && classify_begin(job, &out) ? 0 : cmd_error("out of memory");
    while (!status && cmd_lines_next(lines))
        for (int i = 0; i < lines->count && !status; i++) {
            status = classify_one(ctx, classifier, lines->lines[i], lines->lengths[i], scores, &out);
            cmd_progress("classifying, pictures done", ++done, INT64_MAX);
        }
    cmd_progress("", 1, 1);
    status = classify_end(&out, status);
    free(scores);
    return status;
}

int classify_images(const classify_job *job, cmd_lines *lines) {
    wok_ctx_options options = {.size = sizeof options, .threads = job->threads, .log = cmd_log};
    wok_classifier_options how = {
        .size = sizeof how, .arch = job->arch, .preset = job->preset, .labels = job->labels};
    wok_ctx *ctx = wok_ctx_create(&options);
    wok_classifier *classifier = NULL;
    wok_preprocess p;
    if (!ctx) return cmd_error("out of memory");
    int status = 0;
    if (job->preset && wok_preprocess_preset(ctx, job->preset, &p) != WOK_OK)
        status = cmd_usage(job->command, "%s", wok_ctx_error(ctx));
    if (!status && wok_classifier_load(ctx, job->model, &how, &classifier) != WOK_OK)
        status = cmd_error("%s", wok_ctx_error(ctx));
    if (!status) status = classify_all(job, ctx, classifier, lines);
    wok_classifier_free(&classifier);
    wok_ctx_free(&ctx);
    return status;
}

#else

int classify_images(const classify_job *job, cmd_lines *lines) {
    (void)job, (void)lines;
    return cmd_error("this build has no picture support (libturbojpeg, libspng and jsmn)");
}
#endif

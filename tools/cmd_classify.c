/* cmd_classify.c - `wok classify`: which half does it, and how results are printed. */
#define _POSIX_C_SOURCE 200809L /* open_memstream */
#include "cmd_classify.h"

#include <stdlib.h>

/* ---- printing ---------------------------------------------------------------------------------------------------------- */

enum { TOP = 5 };

/* Indices of the largest scores, largest first, equal ones by index. */
static int find_top(const float *scores, size_t count, size_t top[TOP]) {
    int found = 0;
    for (size_t i = 0; i < count; i++) {
        int at = found < TOP ? found++ : TOP;
        for (; at > 0 && scores[i] > scores[top[at - 1]]; at--)
            if (at < TOP) top[at] = top[at - 1];
        if (at < TOP) top[at] = i;
    }
    return found;
}

static const char *name_of(classify_label label, void *user, size_t index, char buffer[32]) {
    const char *text = label ? label(user, index) : NULL;
    if (text) return text;
    snprintf(buffer, 32, "%zu", index);
    return buffer;
}

bool classify_begin(const classify_job *job, classify_out *out) {
    *out = (classify_out){.job = job, .file = stdout};
    if (!job->by_line) out->file = open_memstream(&out->held, &out->size);
    if (!out->file) return false;
    json_start(&out->json, out->file);
    if (job->as_json && !job->by_line) {
        json_object(&out->json);
        json_key(&out->json, "results"), json_array(&out->json);
    }
    return true;
}

int classify_end(classify_out *out, int status) {
    if (out->file && out->file != stdout) {
        if (out->job->as_json) {
            json_array_end(&out->json);
            json_object_end(&out->json);
            json_finish(&out->json);
        }
        bool good = fclose(out->file) == 0;
        if (!status && (!good || fwrite(out->held, 1, out->size, stdout) != out->size))
            status = cmd_error("stdout cannot be written");
        free(out->held);
    }
    if (!status && fflush(stdout) != 0) status = cmd_error("stdout cannot be written");
    return status;
}

static void put_json(cmd_json *json, const char *input, size_t length, const float *scores, const size_t *top,
                     int found, classify_label label, void *user) {
    char buffer[32];
    json_object(json);
    json_key(json, "input"), json_bytes(json, input, length);
    json_key(json, "label"), json_text(json, name_of(label, user, top[0], buffer));
    json_key(json, "score"), json_double(json, (double)scores[top[0]], 9);
    json_key(json, "top"), json_array(json);
    for (int i = 0; i < found; i++) {
        json_object(json);
        json_key(json, "label"), json_text(json, name_of(label, user, top[i], buffer));
        json_key(json, "index"), json_int(json, (int64_t)top[i]);
        json_key(json, "score"), json_double(json, (double)scores[top[i]], 9);
        json_object_end(json);
    }
    json_array_end(json);
    json_object_end(json);
}

bool classify_put(classify_out *out, const char *input, size_t length, const float *scores, size_t count,
                  classify_label label, void *user) {
    size_t top[TOP] = {0};
    int found = find_top(scores, count, top);
    char buffer[32];
    if (out->job->as_json) {
        if (out->job->by_line) json_start(&out->json, out->file);
        put_json(&out->json, input, length, scores, top, found, label, user);
        return !out->job->by_line || json_finish(&out->json);
    }
    if (out->job->by_line) { /* n lines in, n lines out */
        for (int i = 0; i < found; i++)
            fprintf(out->file, "%s%s %.6f", i ? "  " : "", name_of(label, user, top[i], buffer),
                    (double)scores[top[i]]);
        return fputc('\n', out->file) != EOF;
    }
    fprintf(out->file, "%.*s\n", (int)length, input);
    for (int i = 0; i < found; i++)
        fprintf(out->file, "  %8.4f %%  %s\n", 100 * (double)scores[top[i]], name_of(label, user, top[i], buffer));
    return !ferror(out->file);
}

/* ---- the command --------------------------------------------------------------------------------------------------------- */

int cmd_classify(int argc, char **argv) {
    classify_job job = {.command = argv[0]};
    const char *path = NULL;
    int status;
    const cmd_option options[] = {
        {"--lines", OPT_TEXT, &path, "FILE", "a text, or a picture's path, a line; - is stdin"},
        {"--json", OPT_FLAG, &job.as_json, NULL, "one JSON object; with --lines one a line"},
        {"--arch", OPT_TEXT, &job.arch, "NAME", "resnet18 or mobilenet_v2, for a bare .safetensors"},
        {"--preset", OPT_TEXT, &job.preset, "NAME", "how pictures are prepared, instead of preprocess.json"},
        {"--labels", OPT_TEXT, &job.labels, "FILE", "names of the classes of a picture model, one a line"},
        {"--threads", OPT_COUNT, &job.threads, "N", "threads; default: the CPUs this process may use"}};
    cmd_list list;
    if (!cmd_parse(argc, argv, options, CMD_OPTION_COUNT(options), 1, -1, &list, &status)) return status;
    cmd_lines lines;
    status = cmd_lines_open(argv[0], &list, 1, path, &lines);
    job.model = list.items[0];
    job.by_line = path != NULL;
    if (!status)
        status = !job.arch && cmd_text_place(job.model, NULL, 0) ? classify_texts(&job, &lines)
                                                                 : classify_images(&job, &lines);
    status = cmd_lines_close(&lines, status);
    cmd_list_free(&list);
    return status;
}

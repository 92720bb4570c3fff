/* cmd_classify.h - what the text and the picture half of `wok classify` share. */
#ifndef WOK_CMD_CLASSIFY_H
#define WOK_CMD_CLASSIFY_H

#include "cmd_lines.h"

typedef struct classify_job {
    const char *command, *model;
    const char *arch; /* for a bare .safetensors of a picture model */
    const char
        *preset; /* preprocessing of pictures; NULL: preprocess.json beside the model, else the model's usual one */
    const char *labels;    /* a file with a label a line; NULL: what lies beside the model */
    bool as_json, by_line; /* by_line: --lines */
    int threads;
} classify_job;

/* Runs over all of `lines` (texts, or paths of pictures) and prints with classify_put. Each returns an exit status. */
int classify_texts(const classify_job *job, cmd_lines *lines);
int classify_images(const classify_job *job, cmd_lines *lines);

/* Results go through a classify_out: line by line with --lines; otherwise all at once at the end, so that a failure leaves
 * nothing half-written. JSON without --lines:
 * {"results": [{"input": "...", "label": "...", "score": 0.9, "top": [{"label", "index", "score"}...]}...]},
 * with --lines one such element a line. */
typedef struct classify_out {
    const classify_job *job;
    cmd_json json;
    FILE *file; /* stdout, or `held` */
    char *held;
    size_t size;
} classify_out;
/* Names number i; NULL: the number is its name. */
typedef const char *(*classify_label)(void *user, size_t index);

bool classify_begin(const classify_job *job, classify_out *out);
/* The five likeliest of `count` scores of one text or picture. False if it cannot be written. */
bool classify_put(classify_out *out, const char *input, size_t length, const float *scores, size_t count,
                  classify_label label, void *user);
/* Prints what was held back unless `status` is an error already. Returns the exit status. */
int classify_end(classify_out *out, int status);

#endif

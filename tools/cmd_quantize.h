/* cmd_quantize.h - what the parts of `wok quantize` share.
 *
 * DATA of --calibrate and --eval is one of
 *   NAME=FILE.npy (again for every input), FILE.npy   stacks: sample i is row i of every file, axis 0 is the batch
 *   a folder with a NAME.npy for every input           the same
 *   a folder of other .npy files                       stacks of the model's one input, in order of their names
 *   a folder of .jpg, .jpeg, .png                      in order of their names, prepared as `wok classify` does
 *   a .tsv or .csv file                                a text in the first column (see below)
 *   any other file                                     a text a line; needs the model's vocabulary
 * A stack of bytes [N,H,W] or [N,H,W,3] for a model that reads pictures is prepared like pictures.
 *
 * What is right, for --eval: labels.npy in the folder or --labels FILE.npy (a class a sample); a second column with the
 * number of the class; or two columns of texts and a third with how alike they are.
 */
#ifndef WOK_CMD_QUANTIZE_H
#define WOK_CMD_QUANTIZE_H

#include "cmd.h"
#include "wok_quant.h"

/* ---- data -------------------------------------------------------------------------------------------------------------- */

typedef enum quant_metric {
    QUANT_UNLABELLED,
    QUANT_ACCURACY, /* share of the samples whose largest score is that of their class */
    QUANT_SPEARMAN  /* rank correlation of cosine similarities with the scores of pairs */
} quant_metric;

/* Rows with equal dimensions, one tensor for every input of the model: [rows, ...]; data NULL where an input keeps its
 * default. Owned. */
typedef struct quant_group {
    wok_tensor *inputs;
    int64_t rows;
} quant_group;

typedef struct quant_data {
    wok_ctx *ctx;
    const wok_model *model;
    const char *path, *preset; /* the model's; how pictures are prepared */
    int64_t limit;             /* samples at most; 0: all */
    quant_group *groups;
    int group_count;
    int64_t rows, step; /* rows in all; how many go into one run where the model fixes that, else 1 */
    /* Texts are sorted by length. */
    int64_t *place;   /* of every row: its number in the file; NULL: the same */
    int32_t *lengths; /* of every row: tokens, where a fixed sequence pads them; NULL: all of them count */
    double *wanted;   /* class of every row, or score of every pair, in the file's order */
    int64_t wanted_count;
    quant_metric metric;
    char error[256]; /* why there is no score; "" where nothing went wrong */
} quant_data;

/* Fills d, in which ctx, model, path, preset and limit are set. 0, or a status after a message. Close in any case. */
int quant_data_load(const char *command, const cmd_list *items, const char *labels, quant_data *d);
void quant_data_close(quant_data *d);
int64_t quant_data_samples(const quant_data *d);
/* For wok_quant_options; user is a quant_data. */
wok_status quant_data_sample(void *user, int64_t index, wok_tensor *inputs);
wok_status quant_data_score(void *user, wok_session *session, double *score);

/* ---- for the readers ---------------------------------------------------------------------------------------------------- */

/* One more group with an empty tensor for every input; NULL without memory, after a message. */
quant_group *quant_data_group(quant_data *d, int64_t rows);
/* Room for [rows, dims...] in a tensor of a group. False without memory, after a message. */
bool quant_tensor_alloc(quant_data *d, wok_tensor *t, wok_dtype dtype, int rank, const int64_t *dims);
/* Rows [first, first + rows) of a group, as tensors that point into it. */
void quant_group_slice(const quant_data *d, const quant_group *g, int64_t first, int64_t rows, wok_tensor *out);
/* The model's one input without a default; -1 if there are none or several. */
int quant_only_input(const wok_model *model);
/* The texts of a file (lines, .tsv or .csv) into groups. */
int quant_data_texts(quant_data *d, const char *file);
/* Pictures, `count` paths; or a stack of bytes, into one group. */
int quant_data_pictures(quant_data *d, const char *const *paths, int64_t count);
int quant_data_bytes(quant_data *d, const char *file, const wok_tensor *stack);
/* Number i of `count` things evenly chosen from `all`. */
static inline int64_t quant_choose(int64_t i, int64_t count, int64_t all) {
    return i * all / count;
}

/* ---- report -------------------------------------------------------------------------------------------------------------- */

typedef struct quant_about {
    const char *model, *out, *mode, *metric; /* metric NULL: no --eval */
} quant_about;

void quant_report_table(const quant_about *about, const wok_quant_report *report);
void quant_report_json(const quant_about *about, const wok_quant_report *report, FILE *file);
void quant_report_svg(const quant_about *about, const wok_quant_report *report, FILE *file);

#endif

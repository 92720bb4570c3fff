/* cmd_quantize_data.c - samples for `wok quantize` from files, and the score of a model on them. */
#define _POSIX_C_SOURCE 200809L /* strcasecmp, strdup */
#include "cmd_quantize.h"
#include "wok_build.h"
#include "wok_npy.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

enum { EVAL_BATCH = 16 };

/* ---- groups ------------------------------------------------------------------------------------------------------------- */

quant_group *quant_data_group(quant_data *d, int64_t rows) {
    quant_group *groups = realloc(d->groups, (size_t)(d->group_count + 1) * sizeof *groups);
    if (groups) d->groups = groups;
    wok_tensor *inputs = groups ? calloc((size_t)wok_model_input_count(d->model) + 1, sizeof *inputs) : NULL;
    if (!inputs) {
        cmd_error("out of memory");
        return NULL;
    }
    groups[d->group_count] = (quant_group){inputs, rows};
    d->rows += rows;
    return &groups[d->group_count++];
}

bool quant_tensor_alloc(quant_data *d, wok_tensor *t, wok_dtype dtype, int rank, const int64_t *dims) {
    *t = (wok_tensor){.size = sizeof *t, .dtype = dtype, .rank = rank, .bytes = wok_dtype_size(dtype)};
    for (int i = 0; i < rank; i++) {
        t->dims[i] = dims[i];
        if (__builtin_mul_overflow(t->bytes, (size_t)dims[i], &t->bytes)) t->bytes = SIZE_MAX / 2;
    }
    t->data = wok_ctx_alloc(d->ctx, t->bytes);
    if (t->data) return true;
    *t = (wok_tensor){0};
    cmd_error("%s", wok_ctx_error(d->ctx));
    return false;
}

void quant_data_close(quant_data *d) {
    int inputs = d->group_count ? wok_model_input_count(d->model) : 0;
    for (int g = 0; g < d->group_count; g++) {
        for (int i = 0; i < inputs; i++) wok_npy_free(d->ctx, &d->groups[g].inputs[i]);
        free(d->groups[g].inputs);
    }
    free(d->groups);
    free(d->place);
    free(d->lengths);
    free(d->wanted);
    *d = (quant_data){0};
}

int quant_only_input(const wok_model *model) {
    int found = -1;
    for (int i = 0; i < wok_model_input_count(model); i++) {
        if (wok_model_input(model, i)->optional) continue;
        if (found >= 0) return -1;
        found = i;
    }
    return found;
}

/* ---- stacks --------------------------------------------------------------------------------------------------------------- */

static bool has_suffix(const char *path, const char *suffix) {
    size_t length = strlen(path), end = strlen(suffix);
    return length > end && !strcasecmp(path + length - end, suffix);
}

/* Axis 0 is free: it counts samples. */
static bool fits(const wok_value_info *info, const wok_tensor *t) {
    if (t->dtype != info->dtype || t->rank < 1) return false;
    if (info->rank < 0) return true;
    if (t->rank != info->rank) return false;
    for (int i = 1; i < t->rank; i++)
        if (info->dims[i] >= 0 && info->dims[i] != t->dims[i]) return false;
    return true;
}

static int check_stack(const char *file, const wok_value_info *info, const wok_tensor *t) {
    char have[160], want[160];
    if (!fits(info, t))
        return cmd_error("%s is %s %s, but input %s is %s %s (the first axis counts samples)", file,
                         wok_dtype_name(t->dtype), cmd_shape_text(t->dims, t->rank, have, sizeof have), info->name,
                         wok_dtype_name(info->dtype),
                         info->rank < 0 ? "of any shape" : cmd_shape_text(info->dims, info->rank, want, sizeof want));
    if (t->bytes == 0) return cmd_error("%s holds no samples", file);
    const float *x = t->data;
    for (size_t i = 0; t->dtype == WOK_F32 && i < t->bytes / sizeof *x; i++)
        if (!isfinite(x[i]))
            return cmd_error("%s holds %s in sample %lld", file, isnan(x[i]) ? "NaN" : "infinity",
                             (long long)((int64_t)i / (int64_t)(t->bytes / sizeof *x / (size_t)t->dims[0])));
    return 0;
}

static bool is_bytes_of_pictures(const wok_value_info *info, const wok_tensor *t) {
    return info->dtype == WOK_F32 && info->rank == 4 && t->dtype == WOK_U8 &&
           (t->rank == 3 || (t->rank == 4 && (t->dims[3] == 1 || t->dims[3] == 3)));
}

/* One more group of the model's only input (g NULL), or one input of a group for several. */
static int load_stack(quant_data *d, const char *file, int input, quant_group *g) {
    wok_tensor t;
    const wok_value_info *info = wok_model_input(d->model, input);
    if (wok_npy_load(d->ctx, file, &t) != WOK_OK) return cmd_error("%s", wok_ctx_error(d->ctx));
    int status;
    if (!g && is_bytes_of_pictures(info, &t)) {
        status = t.bytes ? quant_data_bytes(d, file, &t) : cmd_error("%s holds no samples", file);
    } else if (!(status = check_stack(file, info, &t))) {
        if (!g && !(g = quant_data_group(d, t.dims[0]))) {
            status = 1;
        } else if (g->rows && g->rows != t.dims[0]) {
            status =
                cmd_error("%s has %lld samples, the other inputs %lld", file, (long long)t.dims[0], (long long)g->rows);
        } else {
            if (!g->rows) d->rows += g->rows = t.dims[0];
            wok_npy_free(d->ctx, &g->inputs[input]);
            g->inputs[input] = t;
            return 0;
        }
    }
    wok_npy_free(d->ctx, &t);
    return status;
}

static int check_complete(const quant_data *d, const quant_group *g, const char *where) {
    for (int i = 0; i < wok_model_input_count(d->model); i++)
        if (!g->inputs[i].data && !wok_model_input(d->model, i)->optional)
            return cmd_error("%s gives nothing for input %s", where, wok_model_input(d->model, i)->name);
    return 0;
}

/* NAME=FILE.npy, again and again. */
static int load_named(const char *command, quant_data *d, const cmd_list *items) {
    bool alone = items->count == 1 && quant_only_input(d->model) >= 0;
    quant_group *g = alone ? NULL : quant_data_group(d, 0);
    if (!alone && !g) return 1;
    for (int i = 0; i < items->count; i++) {
        const char *item = items->items[i], *equals = strchr(item, '=');
        if (!equals || equals == item || !equals[1])
            return cmd_usage(command, "several data are given, so each must be NAME=FILE.npy, not `%s`", item);
        char *name = strndup(item, (size_t)(equals - item));
        int input = name ? wok_model_input_index(d->model, name) : -1;
        free(name);
        if (input < 0) return cmd_error("the model has no input `%.*s`", (int)(equals - item), item);
        int status = load_stack(d, equals + 1, input, g);
        if (status) return status;
    }
    return alone ? 0 : check_complete(d, g, "the data");
}

/* ---- folders ---------------------------------------------------------------------------------------------------------------- */

static int by_text(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void free_paths(char **paths, int count) {
    for (int i = 0; i < count; i++) free(paths[i]);
    free(paths);
}

static char *join(const char *folder, const char *name) {
    size_t size = strlen(folder) + strlen(name) + 2;
    char *path = malloc(size);
    if (path) snprintf(path, size, "%s/%s", folder, name);
    return path;
}

/* Paths of everything in a folder that is not hidden, in the order of their bytes. -1 after a message. */
static int list_folder(const char *folder, char ***paths) {
    int count = 0;
    *paths = NULL;
    DIR *dir = opendir(folder);
    if (!dir) return cmd_error("%s: %s", folder, strerror(errno)), -1;
    for (const struct dirent *e; (e = readdir(dir));) {
        if (e->d_name[0] == '.') continue;
        char **more = realloc(*paths, (size_t)(count + 1) * sizeof *more);
        if (more) *paths = more;
        char *path = more ? join(folder, e->d_name) : NULL;
        if (!path) {
            closedir(dir);
            free_paths(*paths, count);
            return cmd_error("out of memory"), -1;
        }
        (*paths)[count++] = path;
    }
    closedir(dir);
    if (count) qsort(*paths, (size_t)count, sizeof **paths, by_text);
    return count;
}

static bool is_labels(const char *path) {
    const char *slash = strrchr(path, '/');
    return !strcmp(slash ? slash + 1 : path, "labels.npy");
}

static bool is_picture(const char *path) {
    return has_suffix(path, ".jpg") || has_suffix(path, ".jpeg") || has_suffix(path, ".png");
}

/* FOLDER/NAME.npy for the inputs that have one; *found: how many. */
static int load_by_input(quant_data *d, const char *folder, int *found) {
    bool alone = quant_only_input(d->model) >= 0;
    quant_group *g = NULL;
    *found = 0;
    for (int i = 0; i < wok_model_input_count(d->model); i++) {
        const char *name = wok_model_input(d->model, i)->name;
        struct stat info;
        size_t size = strlen(folder) + strlen(name) + 6;
        char *path = malloc(size);
        if (!path) return cmd_error("out of memory");
        snprintf(path, size, "%s/%s.npy", folder, name);
        int status = 0;
        if (stat(path, &info) == 0) {
            (*found)++;
            if (!g && !alone) g = quant_data_group(d, 0);
            status = g || alone ? load_stack(d, path, i, g) : 1;
        }
        free(path);
        if (status) return status;
    }
    return g ? check_complete(d, g, folder) : 0;
}

static int load_files(quant_data *d, const char *folder, char **paths, int count) {
    int stacks = 0, pictures = 0;
    for (int i = 0; i < count; i++) {
        stacks += has_suffix(paths[i], ".npy") && !is_labels(paths[i]);
        pictures += is_picture(paths[i]);
    }
    if (stacks + pictures == 0)
        return cmd_error("%s holds no samples: neither .npy files nor pictures (.jpg, .jpeg, .png)", folder);
    int input = quant_only_input(d->model), at = 0, status = 0;
    if (input < 0) return cmd_error("%s must hold a NAME.npy for every input of the model", folder);
    for (int i = 0; stacks && i < count && !status; i++)
        if (has_suffix(paths[i], ".npy") && !is_labels(paths[i])) status = load_stack(d, paths[i], input, NULL);
    if (stacks) return status;
    for (int i = 0; i < count; i++)
        if (is_picture(paths[i])) { /* to the front, the others behind */
            char *path = paths[i];
            paths[i] = paths[at];
            paths[at++] = path;
        }
    return quant_data_pictures(d, (const char *const *)paths, at);
}

static int load_folder(quant_data *d, const char *folder) {
    int found, status = load_by_input(d, folder, &found);
    if (status || found) return status;
    char **paths;
    int count = list_folder(folder, &paths);
    if (count < 0) return 1;
    status = load_files(d, folder, paths, count);
    free_paths(paths, count);
    return status;
}

/* ---- labels ----------------------------------------------------------------------------------------------------------------- */

static double whole(const wok_tensor *t, int64_t i) {
    switch (t->dtype) {
    case WOK_I64:
        return (double)((const int64_t *)t->data)[i];
    case WOK_I32:
        return ((const int32_t *)t->data)[i];
    case WOK_U8:
        return ((const uint8_t *)t->data)[i];
    case WOK_I8:
        return ((const int8_t *)t->data)[i];
    default:
        return -1;
    }
}

static int load_labels(quant_data *d, const char *file) {
    wok_tensor t;
    if (wok_npy_load(d->ctx, file, &t) != WOK_OK) return cmd_error("%s", wok_ctx_error(d->ctx));
    int64_t count = t.rank == 1 ? t.dims[0] : -1;
    int status = 0;
    if (count != d->rows)
        status = cmd_error("%s is not a list of %lld labels, one a sample", file, (long long)d->rows);
    else if (!(d->wanted = calloc((size_t)count + 1, sizeof *d->wanted)))
        status = cmd_error("out of memory");
    for (int64_t i = 0; i < count && !status; i++)
        if ((d->wanted[i] = whole(&t, i)) < 0)
            status = cmd_error("%s holds %s, but labels are whole numbers from 0", file, wok_dtype_name(t.dtype));
    d->wanted_count = count;
    d->metric = QUANT_ACCURACY;
    wok_npy_free(d->ctx, &t);
    return status;
}

static int find_labels(quant_data *d, const char *folder, const char *labels) {
    struct stat info;
    if (labels) return load_labels(d, labels);
    char *path = folder ? join(folder, "labels.npy") : NULL;
    int status = path && stat(path, &info) == 0 ? load_labels(d, path) : 0;
    free(path);
    return status;
}

/* ---- all of it ------------------------------------------------------------------------------------------------------------- */

/* A model that takes 8 at a time gets 8 at a time. */
static int settle_step(quant_data *d) {
    d->step = 1;
    for (int i = 0; i < wok_model_input_count(d->model); i++) {
        const wok_value_info *info = wok_model_input(d->model, i);
        if (info->rank > 0 && info->dims[0] > 0 && !info->optional) d->step = info->dims[0];
    }
    for (int g = 0; g < d->group_count; g++)
        if (d->groups[g].rows % d->step)
            return cmd_error("the model takes %lld samples at a time, and %lld of one size are given",
                             (long long)d->step, (long long)d->groups[g].rows);
    return 0;
}

int quant_data_load(const char *command, const cmd_list *items, const char *labels, quant_data *d) {
    const char *item = items->items[0], *equals = strchr(item, '=');
    struct stat info;
    bool there = stat(item, &info) == 0;
    const char *folder = there && S_ISDIR(info.st_mode) ? item : NULL;
    int status;
    if (items->count > 1 || (!there && equals)) {
        status = load_named(command, d, items);
    } else if (!there) {
        status = cmd_error("%s: %s", item, strerror(errno));
    } else if (folder) {
        status = load_folder(d, folder);
    } else if (has_suffix(item, ".npy")) {
        int input = quant_only_input(d->model);
        status = input < 0 ? cmd_error("the model has several inputs: give NAME=%s", item)
                           : load_stack(d, item, input, NULL);
    } else {
        status = quant_data_texts(d, item);
    }
    if (!status && !d->wanted) status = find_labels(d, folder, labels);
    return status ? status : settle_step(d);
}

int64_t quant_data_samples(const quant_data *d) {
    int64_t all = d->rows / d->step;
    return d->limit > 0 && d->limit < all ? d->limit : all;
}

/* Rows [first, first + rows) of a group, as tensors that point into it. */
static void slice(const quant_data *d, const quant_group *g, int64_t first, int64_t rows, wok_tensor *out) {
    for (int i = 0; i < wok_model_input_count(d->model); i++) {
        out[i] = g->inputs[i];
        if (!out[i].data) continue;
        size_t bytes = out[i].bytes / (size_t)g->rows;
        out[i].dims[0] = rows;
        out[i].bytes = bytes * (size_t)rows;
        out[i].data = (char *)out[i].data + bytes * (size_t)first;
    }
}

wok_status quant_data_sample(void *user, int64_t index, wok_tensor *inputs) {
    const quant_data *d = user;
    int64_t row = quant_choose(index, quant_data_samples(d), d->rows / d->step) * d->step;
    int g = 0;
    while (row >= d->groups[g].rows) row -= d->groups[g++].rows;
    slice(d, &d->groups[g], row, d->step, inputs);
    return WOK_OK;
}

/* ---- scores ---------------------------------------------------------------------------------------------------------------- */

typedef struct scoring {
    quant_data *d;
    wok_session *session;
    wok_tensor *inputs;
    int64_t right;  /* accuracy */
    float *vectors; /* of every text, in the file's order: the mean over its tokens */
    int64_t width;
} scoring;

static wok_status fail(const scoring *s, wok_status status, const char *format, ...) WOK_PRINTF(3, 4);
static wok_status fail(const scoring *s, wok_status status, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(s->d->error, sizeof s->d->error, format, args);
    va_end(args);
    return wok_ctx_fail(s->d->ctx, status, "%s", s->d->error);
}

static int64_t place_of(const quant_data *d, int64_t row) {
    return d->place ? d->place[row] : row;
}

/* [rows, classes]; further axes are 1. */
static wok_status count_right(scoring *s, const wok_tensor *y, int64_t first, int64_t rows) {
    const float *scores = y->data;
    int axes = 0;
    for (int i = 1; i < y->rank; i++) axes += y->dims[i] != 1;
    if (axes > 1) return fail(s, WOK_ERR_UNSUPPORTED, "the model's first output is no list of scores, one a class");
    int64_t width = (int64_t)(y->bytes / sizeof(float)) / rows;
    for (int64_t r = 0; r < rows; r++, scores += width) {
        int64_t best = 0;
        for (int64_t k = 1; k < width; k++)
            if (scores[k] > scores[best]) best = k;
        double want = s->d->wanted[place_of(s->d, first + r)];
        if (want >= (double)width)
            return fail(s, WOK_ERR_VALUE, "a label is %.0f, but the model has %lld classes", want, (long long)width);
        s->right += (double)best == want;
    }
    return WOK_OK;
}

/* [rows, width], or [rows, tokens, width]: then the mean over the tokens. */
static wok_status keep_vectors(scoring *s, const wok_tensor *y, int64_t first, int64_t rows) {
    const quant_data *d = s->d;
    if (y->rank != 2 && y->rank != 3)
        return fail(s, WOK_ERR_UNSUPPORTED, "the model's first output is no list of vectors");
    int64_t tokens = y->rank == 3 ? y->dims[1] : 1, width = y->dims[y->rank - 1];
    if (!s->vectors) {
        s->width = width;
        s->vectors = calloc((size_t)(d->rows * width) + 1, sizeof *s->vectors);
        if (!s->vectors) return fail(s, WOK_ERR_MEMORY, "out of memory");
    }
    for (int64_t r = 0; r < rows; r++) {
        const float *x = (const float *)y->data + r * tokens * width;
        int64_t count = d->lengths && y->rank == 3 ? d->lengths[first + r] : tokens;
        float *out = s->vectors + place_of(d, first + r) * width;
        for (int64_t k = 0; k < width; k++) {
            double sum = 0;
            for (int64_t t = 0; t < count; t++) sum += (double)x[t * width + k];
            out[k] = (float)(sum / (double)count);
        }
    }
    return WOK_OK;
}

static wok_status run_rows(scoring *s, const quant_group *g, int64_t at, int64_t rows, int64_t first) {
    slice(s->d, g, at, rows, s->inputs);
    for (int i = 0; i < wok_model_input_count(s->d->model); i++) {
        const wok_tensor *t = &s->inputs[i];
        if (!t->data) continue;
        wok_status status = wok_session_set_input(s->session, i, t->dtype, t->dims, t->rank, t->data, t->bytes);
        if (status != WOK_OK) return fail(s, status, "%s", wok_session_error(s->session));
    }
    wok_status status = wok_session_run(s->session);
    if (status != WOK_OK) return fail(s, status, "%s", wok_session_error(s->session));
    const wok_tensor *y = wok_session_output(s->session, 0);
    if (y->dtype != WOK_F32 || y->rank < 1 || y->dims[0] != rows || y->bytes == 0)
        return fail(s, WOK_ERR_UNSUPPORTED, "the model's first output has no f32 row for every sample");
    return s->d->metric == QUANT_ACCURACY ? count_right(s, y, first, rows) : keep_vectors(s, y, first, rows);
}

static double cosine(const float *a, const float *b, int64_t n) {
    double dot = 0, aa = 0, bb = 0;
    for (int64_t i = 0; i < n; i++) {
        dot += (double)a[i] * b[i];
        aa += (double)a[i] * a[i];
        bb += (double)b[i] * b[i];
    }
    return aa > 0 && bb > 0 ? dot / sqrt(aa * bb) : 0;
}

typedef struct ranked {
    double value;
    int64_t index;
} ranked;

static int by_value(const void *a, const void *b) {
    double x = ((const ranked *)a)->value, y = ((const ranked *)b)->value;
    return (x > y) - (x < y);
}

/* values become their ranks; ties share their mean. */
static void to_ranks(double *values, int64_t n, ranked *order) {
    for (int64_t i = 0; i < n; i++) order[i] = (ranked){values[i], i};
    qsort(order, (size_t)n, sizeof *order, by_value);
    for (int64_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && order[end].value <= order[i].value;) end++;
        for (int64_t k = i; k < end; k++) values[order[k].index] = (double)(i + end - 1) / 2;
    }
}

static double correlation(const double *a, const double *b, int64_t n) {
    double ma = 0, mb = 0, ab = 0, aa = 0, bb = 0;
    for (int64_t i = 0; i < n; i++) ma += a[i] / (double)n, mb += b[i] / (double)n;
    for (int64_t i = 0; i < n; i++) {
        ab += (a[i] - ma) * (b[i] - mb);
        aa += (a[i] - ma) * (a[i] - ma);
        bb += (b[i] - mb) * (b[i] - mb);
    }
    return aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : 0;
}

static wok_status spearman(const scoring *s, double *score) {
    int64_t n = s->d->wanted_count;
    double *a = malloc(2 * (size_t)n * sizeof *a), *b = a + n;
    ranked *order = malloc((size_t)n * sizeof *order);
    if (a && order) {
        for (int64_t i = 0; i < n; i++) {
            const float *x = s->vectors + 2 * i * s->width;
            a[i] = cosine(x, x + s->width, s->width);
            b[i] = s->d->wanted[i];
        }
        to_ranks(a, n, order);
        to_ranks(b, n, order);
        *score = correlation(a, b, n);
    }
    bool good = a && order;
    free(a);
    free(order);
    return good ? WOK_OK : fail(s, WOK_ERR_MEMORY, "out of memory");
}

wok_status quant_data_score(void *user, wok_session *session, double *score) {
    quant_data *d = user;
    scoring s = {.d = d, .session = session};
    s.inputs = calloc((size_t)wok_model_input_count(d->model) + 1, sizeof *s.inputs);
    wok_status status = s.inputs ? WOK_OK : fail(&s, WOK_ERR_MEMORY, "out of memory");
    int64_t first = 0, most = d->step > 1 ? d->step : EVAL_BATCH;
    for (int g = 0; g < d->group_count && status == WOK_OK; g++) {
        const quant_group *group = &d->groups[g];
        for (int64_t at = 0; at < group->rows && status == WOK_OK; at += most) {
            int64_t rows = group->rows - at < most ? group->rows - at : most;
            status = run_rows(&s, group, at, rows, first + at);
            cmd_progress("scoring", first + at + rows, d->rows);
        }
        first += group->rows;
    }
    if (status == WOK_OK && d->metric == QUANT_SPEARMAN)
        status = spearman(&s, score);
    else if (status == WOK_OK)
        *score = (double)s.right / (double)d->rows;
    free(s.vectors);
    free(s.inputs);
    return status;
}

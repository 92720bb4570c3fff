/* cmd_quantize_data.c - samples for `wok quantize` from files. */
#define _POSIX_C_SOURCE 200809L /* strcasecmp, strdup */
#include "cmd_quantize.h"
#include "wok_build.h"
#include "wok_npy.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

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

void quant_group_slice(const quant_data *d, const quant_group *g, int64_t first, int64_t rows, wok_tensor *out) {
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
    quant_group_slice(d, &d->groups[g], row, d->step, inputs);
    return WOK_OK;
}

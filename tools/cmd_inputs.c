/* cmd_inputs.c - made-up inputs, for commands that need none of the user's. */
#include "cmd_model.h"

#include <stdlib.h>
#include <string.h>

enum { DEFAULT_BATCH = 1, DEFAULT_SEQUENCE = 128 };

void cmd_buffers_free(cmd_buffers *buffers) {
    for (int i = 0; i < buffers->count; i++) free(buffers->items[i]);
    free(buffers->items);
    *buffers = (cmd_buffers){NULL, 0};
}

/* ---- shapes ------------------------------------------------------------------------------------------------------------ */

/* The last one counts. */
static const char *given_shape(const cmd_list *shapes, const char *name) {
    size_t length = strlen(name);
    for (int i = shapes->count - 1; i >= 0; i--)
        if (!strncmp(shapes->items[i], name, length) && shapes->items[i][length] == '=')
            return shapes->items[i] + length + 1;
    return NULL;
}

static bool is_input(const wok_model *model, const char *name, size_t length) {
    for (int i = 0; i < wok_model_input_count(model); i++) {
        const char *other = wok_model_input(model, i)->name;
        if (strlen(other) == length && !memcmp(other, name, length)) return true;
    }
    return false;
}

static int check_shapes(const char *command, const wok_model *model, const cmd_list *shapes) {
    for (int i = 0; i < shapes->count; i++) {
        const char *text = shapes->items[i], *equals = strchr(text, '=');
        int64_t dims[WOK_MAX_RANK];
        if (!equals || equals == text) return cmd_usage(command, "--shape wants NAME=1x128, not `%s`", text);
        if (cmd_parse_shape(equals + 1, dims, WOK_MAX_RANK) < 0)
            return cmd_usage(command, "`%s` is not a shape such as 1x128", equals + 1);
        if (!is_input(model, text, (size_t)(equals - text)))
            return cmd_error("the model has no input `%.*s`", (int)(equals - text), text);
    }
    return 0;
}

/* Token ids and what goes with them. */
static bool is_sequence(const wok_value_info *info) {
    return info->rank == 2 && (info->dtype == WOK_I64 || info->dtype == WOK_I32);
}

/* What a given shape says of dimension `axis` of another input: by the dimension's name, else by its place in a sequence
 * input. -1 if nothing. */
static int64_t given_dim(const wok_model *model, const cmd_list *shapes, const wok_value_info *info, int axis) {
    int64_t dims[WOK_MAX_RANK], found = -1;
    for (int i = 0; i < wok_model_input_count(model); i++) {
        const wok_value_info *other = wok_model_input(model, i);
        const char *text = given_shape(shapes, other->name);
        int rank = text ? cmd_parse_shape(text, dims, WOK_MAX_RANK) : -1;
        for (int d = 0; d < rank && d < other->rank; d++) {
            const char *name = info->dim_names[axis], *other_name = other->dim_names[d];
            if (name && other_name && !strcmp(name, other_name)) return dims[d];
            if (d == axis && is_sequence(info) && is_sequence(other) && !(name && other_name)) found = dims[d];
        }
    }
    return found;
}

static int choose_shape(const cmd_model *m, const cmd_list *shapes, const wok_value_info *info, int64_t *dims,
                        int *rank) {
    const char *text = given_shape(shapes, info->name);
    if (text) {
        *rank = cmd_parse_shape(text, dims, WOK_MAX_RANK);
        return 0;
    }
    if (info->rank < 0)
        return cmd_error("the shape of input %s must be given with --shape %s=...", info->name, info->name);
    *rank = info->rank;
    int64_t longest = cmd_model_positions(m->model);
    for (int i = 0; i < info->rank; i++) {
        dims[i] = info->dims[i] >= 0 ? info->dims[i] : given_dim(m->model, shapes, info, i);
        if (dims[i] >= 0) continue;
        if (i == 0)
            dims[i] = DEFAULT_BATCH;
        else if (i == 1 && is_sequence(info))
            dims[i] = longest > 0 && longest < DEFAULT_SEQUENCE ? longest : DEFAULT_SEQUENCE;
        else
            return cmd_error("dimension %d of input %s is free: give it with --shape %s=...", i, info->name,
                             info->name);
    }
    return 0;
}

/* ---- data -------------------------------------------------------------------------------------------------------------- */

static uint64_t next_random(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

/* Pictures: uniform in [-1, 1). Whole numbers index tables of unknown length: masks are ones, positions count along the last
 * axis, other ids are 0 or 1. */
static void fill(void *data, const wok_value_info *info, int64_t count, int64_t row, uint64_t *state) {
    bool mask = strstr(info->name, "mask"), type = strstr(info->name, "type"), place = strstr(info->name, "position");
    size_t size = wok_dtype_size(info->dtype);
    for (int64_t i = 0; i < count; i++) {
        uint64_t r = next_random(state) >> 40;
        int64_t id = mask ? 1 : type ? 0 : place ? i % row : (int64_t)(r & 1);
        if (info->dtype == WOK_F32)
            ((float *)data)[i] = (float)r / 8388608.0f - 1.0f;
        else if (info->dtype == WOK_F64)
            ((double *)data)[i] = (double)r / 8388608.0 - 1.0;
        else if (info->dtype == WOK_I64)
            ((int64_t *)data)[i] = id;
        else if (info->dtype == WOK_I32)
            ((int32_t *)data)[i] = (int32_t)id;
        else if (size == 1)
            ((uint8_t *)data)[i] = (uint8_t)(id & 1);
        else
            memset((char *)data + (size_t)i * size, 0, size);
    }
}

int cmd_model_default_inputs(const char *command, cmd_model *m, const cmd_list *shapes, uint64_t seed,
                             cmd_buffers *buffers) {
    int inputs = wok_model_input_count(m->model), status = check_shapes(command, m->model, shapes);
    *buffers = (cmd_buffers){calloc((size_t)inputs + 1, sizeof(void *)), inputs};
    if (!buffers->items) return cmd_error("out of memory");
    for (int i = 0; i < inputs && !status; i++) {
        const wok_value_info *info = wok_model_input(m->model, i);
        int64_t dims[WOK_MAX_RANK], count = 1;
        int rank = 0;
        if (info->optional && !given_shape(shapes, info->name)) continue;
        status = choose_shape(m, shapes, info, dims, &rank);
        for (int d = 0; d < rank && !status; d++)
            if (__builtin_mul_overflow(count, dims[d], &count) || count > INT64_C(1) << 32)
                status = cmd_error("the shape of input %s is too large", info->name);
        if (status) break;
        size_t bytes = (size_t)count * wok_dtype_size(info->dtype);
        buffers->items[i] = malloc(bytes + 1);
        if (!buffers->items[i]) return cmd_error("out of memory");
        fill(buffers->items[i], info, count, rank > 0 && dims[rank - 1] > 0 ? dims[rank - 1] : 1, &seed);
        if (wok_session_set_input(m->session, i, info->dtype, dims, rank, buffers->items[i], bytes) != WOK_OK)
            status = cmd_error("%s", wok_session_error(m->session));
    }
    return status;
}

/* cmd_model.c - opening models, sessions and made-up inputs for the sub-commands. */
#include "cmd_model.h"

#include <stdlib.h>
#include <string.h>

static int check_words(const char *command, const cmd_model_options *o) {
    if (o->precision && strcmp(o->precision, "fp32") != 0)
        return cmd_usage(command, "--precision %s is not known; it is fp32", o->precision);
    if (o->backend && strcmp(o->backend, "cpu") != 0)
        return cmd_usage(command, "--backend %s is not known; it is cpu", o->backend);
    return 0;
}

int cmd_model_load(const char *command, const char *path, const cmd_model_options *options, bool allow_unsupported,
                   cmd_model *m) {
    *m = (cmd_model){NULL, NULL, NULL};
    int status = check_words(command, options);
    if (status) return status;
    wok_ctx_options ctx_options = {.size = sizeof ctx_options, .threads = options->threads, .log = cmd_log};
    m->ctx = wok_ctx_create(&ctx_options);
    if (!m->ctx) return cmd_error("out of memory");
    if (!path) return 0;
    wok_load_options load = {.size = sizeof load, .arch = options->arch, .allow_unsupported = allow_unsupported};
    if (wok_model_load(m->ctx, path, &load, &m->model) != WOK_OK) return cmd_error("%s", wok_ctx_error(m->ctx));
    return 0;
}

int cmd_model_session(const char *command, const cmd_model_options *options, bool profile, cmd_model *m) {
    (void)command;
    wok_session_options session = {.size = sizeof session,
                                   .no_passes = options->no_pass.items,
                                   .no_pass_count = options->no_pass.count,
                                   .profile = profile};
    if (wok_session_create(m->model, &session, &m->session) != WOK_OK) return cmd_error("%s", wok_ctx_error(m->ctx));
    return 0;
}

void cmd_model_close(cmd_model *m, cmd_model_options *options) {
    wok_session_free(&m->session);
    wok_model_free(&m->model);
    wok_ctx_free(&m->ctx);
    cmd_list_free(&options->no_pass);
}

void cmd_buffers_free(cmd_buffers *buffers) {
    for (int i = 0; i < buffers->count; i++) free(buffers->items[i]);
    free(buffers->items);
    *buffers = (cmd_buffers){NULL, 0};
}

/* ---- made-up inputs ---------------------------------------------------------------------------------------------------- */

static const char *given_shape(const cmd_list *shapes, const char *name) {
    size_t length = strlen(name);
    for (int i = 0; i < shapes->count; i++)
        if (!strncmp(shapes->items[i], name, length) && shapes->items[i][length] == '=')
            return shapes->items[i] + length + 1;
    return NULL;
}

static int check_shape_names(const char *command, const cmd_model *m, const cmd_list *shapes) {
    for (int i = 0; i < shapes->count; i++) {
        const char *equals = strchr(shapes->items[i], '=');
        char name[512];
        size_t length = equals ? (size_t)(equals - shapes->items[i]) : 0;
        if (!equals || length >= sizeof name)
            return cmd_usage(command, "--shape wants NAME=1x128, not `%s`", shapes->items[i]);
        memcpy(name, shapes->items[i], length);
        name[length] = 0;
        if (wok_model_input_index(m->model, name) < 0) return cmd_error("the model has no input `%s`", name);
    }
    return 0;
}

/* The rows of the position table: the longest sequence that the model takes, where it can be told. */
static int64_t longest_sequence(const cmd_model *m) {
    const char *text = wok_model_metadata(m->model, "max_position_embeddings");
    return text ? strtoll(text, NULL, 10) : 0;
}

static int choose_shape(const char *command, const cmd_model *m, const cmd_list *shapes, const wok_value_info *info,
                        int64_t *dims, int *rank) {
    const char *text = given_shape(shapes, info->name);
    if (text) {
        *rank = cmd_parse_shape(text, dims, WOK_MAX_RANK);
        return *rank < 0 ? cmd_usage(command, "`%s` is not a shape such as 1x128", text) : 0;
    }
    if (info->rank < 0) return cmd_error("the shape of input %s must be given with --shape %s=...", info->name, info->name);
    *rank = info->rank;
    int64_t longest = longest_sequence(m);
    for (int i = 0; i < info->rank; i++) {
        dims[i] = info->dims[i];
        if (dims[i] >= 0) continue;
        bool integers = info->dtype == WOK_I64 || info->dtype == WOK_I32;
        if (i == 0) dims[i] = 1;
        else if (i == 1 && integers && info->rank == 2) dims[i] = longest > 0 && longest < 128 ? longest : 128;
        else
            return cmd_error("dimension %d of input %s is free: give it with --shape %s=...", i, info->name, info->name);
    }
    return 0;
}

static uint64_t next_random(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

/* Pictures: uniform in [-1, 1); masks: ones; other integers: small ids that every vocabulary has. */
static void fill(void *data, const wok_value_info *info, int64_t count, uint64_t *state) {
    bool mask = strstr(info->name, "mask") != NULL, type = strstr(info->name, "type") != NULL;
    for (int64_t i = 0; i < count; i++) {
        uint64_t r = next_random(state) >> 40;
        int64_t id = mask ? 1 : type ? 0 : (int64_t)(r % 100);
        if (info->dtype == WOK_F32) ((float *)data)[i] = (float)r / 8388608.0f - 1.0f;
        else if (info->dtype == WOK_F64) ((double *)data)[i] = (double)r / 8388608.0 - 1.0;
        else if (info->dtype == WOK_I64) ((int64_t *)data)[i] = id;
        else if (info->dtype == WOK_I32) ((int32_t *)data)[i] = (int32_t)id;
        else if (wok_dtype_size(info->dtype) == 1) ((uint8_t *)data)[i] = (uint8_t)(id & 1);
        else memset((char *)data + (size_t)i * wok_dtype_size(info->dtype), 0, wok_dtype_size(info->dtype));
    }
}

int cmd_model_default_inputs(const char *command, cmd_model *m, const cmd_list *shapes, uint64_t seed,
                             cmd_buffers *buffers) {
    int inputs = wok_model_input_count(m->model), status = check_shape_names(command, m, shapes);
    *buffers = (cmd_buffers){calloc((size_t)inputs + 1, sizeof(void *)), inputs};
    if (!buffers->items) return cmd_error("out of memory");
    for (int i = 0; i < inputs && !status; i++) {
        const wok_value_info *info = wok_model_input(m->model, i);
        int64_t dims[WOK_MAX_RANK], count = 1;
        int rank = 0;
        if (info->optional && !given_shape(shapes, info->name)) continue;
        status = choose_shape(command, m, shapes, info, dims, &rank);
        for (int d = 0; d < rank && !status; d++)
            if (__builtin_mul_overflow(count, dims[d], &count) || count > INT64_C(1) << 32)
                status = cmd_error("the shape of input %s is too large", info->name);
        if (status) break;
        size_t bytes = (size_t)count * wok_dtype_size(info->dtype);
        buffers->items[i] = malloc(bytes + 1);
        if (!buffers->items[i]) return cmd_error("out of memory");
        fill(buffers->items[i], info, count, &seed);
        if (wok_session_set_input(m->session, i, info->dtype, dims, rank, buffers->items[i], bytes) != WOK_OK)
            status = cmd_error("%s", wok_session_error(m->session));
    }
    return status;
}

/* pipeline_load.c - finds model, tokenizer and configuration, and settles what goes into the model and what comes out. */
#include "pipeline.h"

#include "tokenizer.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_PATH_BYTES 4096

struct places {
    char model[MAX_PATH_BYTES];  /* what wok_model_load gets */
    char folder[MAX_PATH_BYTES]; /* tokenizer and configuration */
};

static bool is_file(const char *folder, const char *name) {
    char path[MAX_PATH_BYTES];
    struct stat info;
    int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    return n > 0 && (size_t)n < sizeof path && stat(path, &info) == 0 && !S_ISDIR(info.st_mode);
}

static bool has_tokenizer(const char *folder) {
    return is_file(folder, "tokenizer.json") || is_file(folder, "vocab.txt");
}

static bool join(char out[MAX_PATH_BYTES], const char *folder, const char *name) {
    int n = snprintf(out, MAX_PATH_BYTES, "%s%s%s", folder, *name ? "/" : "", name);
    return n >= 0 && n < MAX_PATH_BYTES;
}

static wok_status find_places(wok_ctx *ctx, const char *path, struct places *p) {
    struct stat info;
    bool fits;
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode)) {
        bool safetensors = is_file(path, "model.safetensors");
        const char *name = safetensors                        ? ""
                           : is_file(path, "model.onnx")      ? "model.onnx"
                           : is_file(path, "onnx/model.onnx") ? "onnx/model.onnx"
                                                              : "";
        fits = join(p->model, path, name) && join(p->folder, path, "");
    } else {
        const char *slash = strrchr(path, '/');
        int length = slash ? (int)(slash - path) : 1;
        fits = join(p->model, path, "") && strlen(path) < MAX_PATH_BYTES;
        if (fits) snprintf(p->folder, sizeof p->folder, "%.*s", length > 0 ? length : 1, slash ? path : ".");
        char above[MAX_PATH_BYTES];
        if (fits && !has_tokenizer(p->folder) && join(above, p->folder, "..") && has_tokenizer(above))
            memcpy(p->folder, above, sizeof above);
    }
    return fits ? WOK_OK : wok_ctx_fail(ctx, WOK_ERR_ARGUMENT, "%.100s...: the path is too long", path);
}

/* Optional JSON file: *doc stays NULL if it is absent. */
static wok_status load_json(wok_ctx *ctx, const char *folder, const char *name, wok_json **doc) {
    char path[MAX_PATH_BYTES];
    *doc = NULL;
    if (!is_file(folder, name) || !join(path, folder, name)) return WOK_OK;
    return wok_json_load(ctx, path, doc);
}

/* ---- inputs and output ---------------------------------------------------------------------------------------------- */

static const char *const role_names[WOK_ROLE_COUNT][6] = {
    [WOK_ROLE_IDS] = {"input_ids", "input_word_ids", "ids", "tokens", "input", "input.1"},
    [WOK_ROLE_MASK] = {"attention_mask", "input_mask", "mask"},
    [WOK_ROLE_TYPES] = {"token_type_ids", "segment_ids", "input_type_ids"},
    [WOK_ROLE_POSITIONS] = {"position_ids"},
};

/* "input_ids:0" and "serving_default_input_ids:0" are input_ids as TensorFlow writes it. */
static int role_of(const char *name) {
    static const char serving[] = "serving_default_";
    if (!strncmp(name, serving, sizeof serving - 1)) name += sizeof serving - 1;
    size_t length = strcspn(name, ":");
    for (int role = 0; role < WOK_ROLE_COUNT; role++)
        for (int i = 0; i < 6 && role_names[role][i]; i++)
            if (strlen(role_names[role][i]) == length && !memcmp(role_names[role][i], name, length)) return role;
    return -1;
}

static wok_status fix_size(struct wok_text_shared *s, const wok_value_info *info, int dim, int64_t *fixed) {
    int64_t size = info->rank == 2 ? info->dims[dim] : -1;
    if (size < 0 || size == *fixed) return WOK_OK;
    if (size == 0 || *fixed != 0)
        return wok_ctx_fail(s->ctx, WOK_ERR_UNSUPPORTED, "input %s has a size that does not fit the other inputs",
                            info->name);
    *fixed = size;
    return WOK_OK;
}

static wok_status take_input(struct wok_text_shared *s, int index, int role) {
    const wok_value_info *info = wok_model_input(s->model, index);
    bool integer = info->dtype == WOK_I64 || info->dtype == WOK_I32;
    if ((info->rank != 2 && info->rank >= 0) || (!integer && !(role == WOK_ROLE_MASK && info->dtype == WOK_F32)))
        return wok_ctx_fail(s->ctx, WOK_ERR_UNSUPPORTED, "input %s should be [batch, sequence] of int64 or int32",
                            info->name);
    if (s->feeds[role].index >= 0)
        return wok_ctx_fail(s->ctx, WOK_ERR_UNSUPPORTED, "inputs %s and %s seem to mean the same",
                            wok_model_input(s->model, s->feeds[role].index)->name, info->name);
    s->feeds[role] = (struct wok_feed){index, info->dtype};
    wok_status status = fix_size(s, info, 0, &s->fixed_batch);
    return status == WOK_OK ? fix_size(s, info, 1, &s->fixed_sequence) : status;
}

static wok_status choose_inputs(struct wok_text_shared *s) {
    int count = wok_model_input_count(s->model), required = 0, unknown = -1;
    for (int i = 0; i < WOK_ROLE_COUNT; i++) s->feeds[i].index = -1;
    for (int i = 0; i < count; i++) {
        const wok_value_info *info = wok_model_input(s->model, i);
        int role = role_of(info->name);
        required += !info->optional;
        if (role < 0 && info->optional) continue;
        if (role == WOK_ROLE_POSITIONS && info->optional) continue; /* its default is what we would give */
        if (role < 0) {
            unknown = i;
            continue;
        }
        wok_status status = take_input(s, i, role);
        if (status != WOK_OK) return status;
    }
    if (unknown >= 0 && required == 1) return take_input(s, unknown, WOK_ROLE_IDS);
    if (unknown >= 0)
        return wok_ctx_fail(s->ctx, WOK_ERR_UNSUPPORTED,
                            "nobody knows what the model's input %s means; known are input_ids, "
                            "attention_mask, token_type_ids and position_ids",
                            wok_model_input(s->model, unknown)->name);
    return s->feeds[WOK_ROLE_IDS].index >= 0
               ? WOK_OK
               : wok_ctx_fail(s->ctx, WOK_ERR_UNSUPPORTED, "the model has no input input_ids");
}

/* The first float output of this rank (or of unknown rank, if nothing better is there). */
static const char *output_of_rank(const wok_model *model, int rank) {
    const char *found = NULL;
    for (int i = 0; i < wok_model_output_count(model); i++) {
        const wok_value_info *info = wok_model_output(model, i);
        if (info->dtype != WOK_F32 && info->dtype != WOK_NONE) continue;
        if (info->rank == rank) return info->name;
        if (info->rank < 0 && !found) found = info->name;
    }
    return found;
}

static wok_status choose_output(struct wok_text_shared *s) {
    static const char *const wanted[2][3] = {{"last_hidden_state", "token_embeddings", "sentence_embedding"},
                                             {"logits", "logits", "logits"}};
    for (int i = 0; i < 3 && !s->output; i++)
        if (wok_model_output_index(s->model, wanted[s->task][i]) >= 0) s->output = wanted[s->task][i];
    bool logits = wok_model_output_index(s->model, "logits") >= 0;
    if (!s->output && s->task == WOK_TEXT_EMBED && !logits) s->output = output_of_rank(s->model, 3);
    if (!s->output && (s->task == WOK_TEXT_CLASSIFY || !logits) &&
        wok_model_output_index(s->model, "last_hidden_state") < 0)
        s->output = output_of_rank(s->model, 2);
    if (s->output) return WOK_OK;
    return wok_ctx_fail(s->ctx, WOK_ERR_UNSUPPORTED, "the model's first output, %s, holds no %s",
                        wok_model_output_count(s->model) > 0 ? wok_model_output(s->model, 0)->name : "(none)",
                        s->task == WOK_TEXT_EMBED ? "hidden states" : "logits");
}

/* ---- sentence-transformers' files ----------------------------------------------------------------------------------------- */

static bool ends_with_class(const char *type, const char *name) {
    size_t length = strlen(type), tail = strlen(name);
    return length > tail && type[length - tail - 1] == '.' && !strcmp(type + length - tail, name);
}

static wok_status read_pooling(struct wok_text_shared *s, const char *folder, const char *path) {
    static const struct {
        const char *key, *mode;
        unsigned set;
    } modes[] = {{"pooling_mode_cls_token", "cls", WOK_POOLING_CLS},
                 {"pooling_mode_max_tokens", "max", WOK_POOLING_MAX},
                 {"pooling_mode_mean_tokens", "mean", WOK_POOLING_MEAN},
                 {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", WOK_POOLING_MEAN_SQRT},
                 {"pooling_mode_weightedmean_tokens", "weightedmean", 0},
                 {"pooling_mode_lasttoken", "lasttoken", 0}};
    char name[MAX_PATH_BYTES];
    wok_json *doc = NULL;
    if (!join(name, path, "config.json")) return WOK_ERR_ARGUMENT;
    wok_status status = load_json(s->ctx, folder, name, &doc);
    if (status != WOK_OK || !doc) return status;
    wok_json_at word = wok_json_get(doc, 0, "pooling_mode");
    unsigned set = 0;
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        bool on = false;
        if (word >= 0)
            on = wok_json_is(doc, word, modes[i].mode);
        else
            wok_json_bool(doc, wok_json_get(doc, 0, modes[i].key), &on);
        if (on && !modes[i].set)
            status =
                wok_ctx_fail(s->ctx, WOK_ERR_UNSUPPORTED, "%s: pooling by %s is not supported", name, modes[i].mode);
        if (on) set |= modes[i].set;
    }
    if (status == WOK_OK && set == 0)
        status = wok_ctx_fail(s->ctx, WOK_ERR_UNSUPPORTED, "%s: names no pooling that is supported", name);
    s->pooling = set;
    wok_json_free(&doc);
    return status;
}

static wok_status read_module(struct wok_text_shared *s, const char *folder, const wok_json *doc, wok_json_at item) {
    const char *type = wok_json_string(doc, wok_json_get(doc, item, "type"), NULL);
    const char *path = wok_json_string(doc, wok_json_get(doc, item, "path"), NULL);
    if (!type || !path) return wok_ctx_fail(s->ctx, WOK_ERR_FORMAT, "modules.json: a module without type and path");
    if (ends_with_class(type, "Transformer") && *path == 0) return WOK_OK;
    if (strstr(path, "..") || *path == '/')
        return wok_ctx_fail(s->ctx, WOK_ERR_FORMAT, "modules.json: a path that leaves the folder");
    if (ends_with_class(type, "Pooling")) return read_pooling(s, folder, path);
    if (ends_with_class(type, "Normalize")) {
        s->normalize = true;
        return WOK_OK;
    }
    return wok_ctx_fail(s->ctx, WOK_ERR_UNSUPPORTED, "modules.json: module %.100s is not supported", type);
}

static wok_status read_modules(struct wok_text_shared *s, const char *folder) {
    wok_json *doc = NULL;
    s->pooling = WOK_POOLING_MEAN;
    wok_status status = load_json(s->ctx, folder, "modules.json", &doc);
    if (status == WOK_OK && doc && wok_json_kind_of(doc, 0) != WOK_JSON_ARRAY)
        status = wok_ctx_fail(s->ctx, WOK_ERR_FORMAT, "modules.json: not a list");
    for (wok_json_at item = wok_json_first(doc, 0); item >= 0 && status == WOK_OK; item = wok_json_next(doc, item))
        status = read_module(s, folder, doc, item);
    wok_json_free(&doc);
    return status;
}

/* ---- lengths, labels -------------------------------------------------------------------------------------------------------- */

static void lower_to(int32_t *length, int64_t limit) {
    if (limit > 0 && limit < INT32_MAX && (*length == 0 || limit < *length)) *length = (int32_t)limit;
}

static int64_t to_number(const char *text) {
    int64_t value = 0;
    for (; text && *text >= '0' && *text <= '9' && value < INT32_MAX; text++) value = value * 10 + (*text - '0');
    return value;
}

static wok_status settle_length(struct wok_text_shared *s, const wok_json *sentence) {
    int64_t most = 0, positions = to_number(wok_model_metadata(s->model, "max_position_embeddings"));
    wok_json_int(sentence, wok_json_get(sentence, 0, "max_seq_length"), &most);
    if (s->options.max_length > 0) most = s->options.max_length;
    if (most <= 0) most = wok_tokenizer_max_length(s->tokenizer);
    if (positions == 0) wok_json_int(s->config, wok_json_get(s->config, 0, "max_position_embeddings"), &positions);
    lower_to(&s->max_length, most);
    lower_to(&s->max_length, positions);
    lower_to(&s->max_length, s->fixed_sequence);
    return WOK_OK;
}

/* sentence_bert_config.json's do_lower_case lowers text before the tokenizer sees it: accents stay as they would. */
static wok_status load_tokenizer(struct wok_text_shared *s, const char *folder, const wok_json *sentence) {
    bool lower = false;
    wok_status status = wok_tokenizer_load(s->ctx, folder, NULL, &s->tokenizer);
    wok_json_bool(sentence, wok_json_get(sentence, 0, "do_lower_case"), &lower);
    if (status != WOK_OK || !lower || s->tokenizer->rules.lowercase) return status;
    const wok_tokenizer_options options = {.size = sizeof options,
                                           .lowercase = WOK_ON,
                                           .strip_accents = s->tokenizer->rules.strip_accents ? WOK_ON : WOK_OFF};
    wok_tokenizer_free(&s->tokenizer);
    return wok_tokenizer_load(s->ctx, folder, &options, &s->tokenizer);
}

static void read_squash(struct wok_text_shared *s) {
    wok_json_at problem = wok_json_get(s->config, 0, "problem_type");
    if (wok_json_is(s->config, problem, "multi_label_classification")) s->squash = WOK_SQUASH_SIGMOID;
    if (wok_json_is(s->config, problem, "regression")) s->squash = WOK_SQUASH_NONE;
}

/* Names of the numbers: id2label's, and LABEL_i for those that it leaves out. */
static wok_status name_labels(struct wok_text_shared *s, size_t count) {
    wok_json_at names = wok_json_get(s->config, 0, "id2label");
    s->labels = wok_ctx_alloc(s->ctx, count * sizeof *s->labels);
    if (!s->labels) return WOK_ERR_MEMORY;
    s->label_count = count;
    for (size_t i = 0; i < count; i++) {
        snprintf(s->labels[i].standard, sizeof s->labels[i].standard, "LABEL_%zu", i);
        s->labels[i].text = s->labels[i].standard;
    }
    wok_json_each(s->config, key, names) {
        const char *number = wok_json_string(s->config, key, NULL);
        const char *text = wok_json_string(s->config, wok_json_value(s->config, key), NULL);
        size_t index = number ? (size_t)to_number(number) : count;
        if (index < count && text) s->labels[index].text = text;
    }
    return WOK_OK;
}

/* ---- entry points -------------------------------------------------------------------------------------------------------------- */

static wok_status load_parts(struct wok_text_shared *s, const struct places *p) {
    wok_json *sentence = NULL;
    wok_status status = load_json(s->ctx, p->folder, "sentence_bert_config.json", &sentence);
    if (status == WOK_OK) status = load_tokenizer(s, p->folder, sentence); /* the quick part first: errors come early */
    if (status == WOK_OK) status = load_json(s->ctx, p->folder, "config.json", &s->config);
    if (status == WOK_OK && s->task == WOK_TEXT_EMBED) status = read_modules(s, p->folder);
    read_squash(s);
    if (status == WOK_OK) status = wok_model_load(s->ctx, p->model, NULL, &s->model);
    if (status == WOK_OK) status = choose_inputs(s);
    if (status == WOK_OK) status = choose_output(s);
    if (status == WOK_OK) status = settle_length(s, sentence);
    wok_json_free(&sentence);
    return status;
}

wok_status wok_text_load(wok_ctx *ctx, const char *path, wok_text_task task, const wok_text_options *options,
                         wok_text **pipeline) {
    struct places places;
    wok_text_options o;
    *pipeline = NULL;
    if (!wok_take_options(&o, sizeof o, options) || o.batch < 0 || o.max_length < 0 ||
        (unsigned)task > WOK_TEXT_CLASSIFY)
        return wok_ctx_fail(ctx, WOK_ERR_ARGUMENT, "wok_text_options are not valid");
    wok_status status = find_places(ctx, path, &places);
    if (status != WOK_OK) return status;
    struct wok_text_shared *s = wok_ctx_alloc(ctx, sizeof *s);
    if (!s) return WOK_ERR_MEMORY;
    *s = (struct wok_text_shared){.ctx = ctx, .task = task, .options = o};
    atomic_init(&s->users, 1);
    status = load_parts(s, &places);
    if (status == WOK_OK) status = wok_text_open(s, pipeline);
    if (status == WOK_OK && task == WOK_TEXT_CLASSIFY) status = name_labels(s, wok_text_width(*pipeline));
    if (status != WOK_OK) wok_text_free(pipeline);
    wok_text_release(s);
    return status;
}

void wok_text_release(struct wok_text_shared *s) {
    if (atomic_fetch_sub(&s->users, 1) > 1) return;
    wok_ctx *ctx = s->ctx;
    wok_model_free(&s->model);
    wok_tokenizer_free(&s->tokenizer);
    wok_ctx_release(ctx, s->labels, s->label_count * sizeof *s->labels);
    wok_json_free(&s->config);
    wok_ctx_release(ctx, s, sizeof *s);
}

/* cmd_run.c - `wok run`: a model on .npy inputs, outputs to a folder, times on stdout. */
#define _POSIX_C_SOURCE 200809L /* open_memstream */
#include "cmd_model.h"
#include "wok_npy.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct run_options {
    cmd_model_options common;
    cmd_list inputs;
    const char *out;
    int warmup, repeat;
    bool profile, json;
} run_options;

/* ---- inputs ------------------------------------------------------------------------------------------------------------- */

static int unknown_input(const wok_model *model, const char *name) {
    char *list = NULL;
    size_t size;
    FILE *file = open_memstream(&list, &size);
    for (int i = 0; file && i < wok_model_input_count(model); i++)
        fprintf(file, "%s%s", i ? ", " : "", cmd_plain(wok_model_input(model, i)->name));
    if (!file || fclose(file) != 0) return cmd_error("out of memory");
    cmd_error("the model has no input `%s`; it has %s", name, size ? list : "none");
    free(list);
    return 1;
}

/* Loads NAME=FILE into tensors[index of NAME]; the last one of a name counts. */
static int load_input(cmd_model *m, const char *text, wok_tensor *tensors) {
    const char *equals = strchr(text, '=');
    size_t length = equals ? (size_t)(equals - text) : 0;
    if (!equals || length == 0 || !equals[1]) return cmd_usage("run", "-i wants NAME=FILE.npy, not `%s`", text);
    char *name = malloc(length + 1);
    if (!name) return cmd_error("out of memory");
    memcpy(name, text, length);
    name[length] = 0;
    int index = wok_model_input_index(m->model, name), status = 0;
    if (index < 0) {
        status = unknown_input(m->model, name);
    } else {
        wok_npy_free(m->ctx, &tensors[index]);
        if (wok_npy_load(m->ctx, equals + 1, &tensors[index]) != WOK_OK)
            status = cmd_error("%s", wok_ctx_error(m->ctx));
    }
    free(name);
    return status;
}

static int set_inputs(cmd_model *m, const cmd_list *inputs, wok_tensor *tensors) {
    for (int i = 0; i < inputs->count; i++) {
        int status = load_input(m, inputs->items[i], tensors);
        if (status) return status;
    }
    for (int i = 0; i < wok_model_input_count(m->model); i++) {
        const wok_tensor *t = &tensors[i];
        if (!t->size) continue; /* missing ones are named by the session, with their shapes */
        if (wok_session_set_input(m->session, i, t->dtype, t->dims, t->rank, t->data, t->bytes) != WOK_OK)
            return cmd_error("%s", wok_session_error(m->session));
    }
    return 0;
}

/* ---- outputs ------------------------------------------------------------------------------------------------------------ */

/* DIR/NAME.npy with the bytes that a file name cannot hold as %XX. Freed by the caller; NULL without memory. */
static char *output_path(const char *dir, const char *name) {
    size_t length = strlen(dir), size = length + 3 * strlen(name) + 8;
    char *path = malloc(size);
    if (!path) return NULL;
    size_t used = (size_t)snprintf(path, size, "%s%s", dir, length > 0 && dir[length - 1] == '/' ? "" : "/");
    for (const char *c = name; *c; c++) {
        unsigned char byte = (unsigned char)*c;
        bool plain = byte != '/' && byte != '%' && byte >= 0x20 && byte != 0x7F && !(c == name && byte == '.');
        if (plain)
            path[used++] = (char)byte;
        else
            used += (size_t)snprintf(path + used, size - used, "%%%02X", byte);
    }
    snprintf(path + used, size - used, ".npy");
    return path;
}

static int write_all(cmd_model *m, const char *dir) {
    int count = wok_session_output_count(m->session), status = 0, done = 0;
    for (; done < count && !status; done++) {
        char *path = output_path(dir, wok_session_output_name(m->session, done));
        if (!path)
            status = cmd_error("out of memory");
        else if (wok_npy_save(m->ctx, path, wok_session_output(m->session, done)) != WOK_OK)
            status = cmd_error("%s", wok_ctx_error(m->ctx));
        free(path);
    }
    for (int i = 0; status && i < done - 1; i++) {
        char *path = output_path(dir, wok_session_output_name(m->session, i));
        if (path) unlink(path);
        free(path);
    }
    return status;
}

/* All outputs or none: each is written under a temporary name by wok_npy_save; a failure removes those already there, and
 * the folders made for them. */
static int write_outputs(cmd_model *m, const char *dir) {
    size_t existing;
    int error = cmd_make_dirs(dir, &existing);
    if (error) return cmd_error("%s: %s", dir, strerror(error));
    int status = write_all(m, dir);
    if (status) cmd_remove_dirs(dir, existing);
    return status;
}

/* ---- running ------------------------------------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The library says where it stumbled over too long a sequence; people want to know how long it may be. */
static int run_error(const cmd_model *m, const wok_tensor *tensors) {
    const char *error = wok_session_error(m->session);
    int64_t longest = cmd_model_positions(m->model);
    for (int i = 0; longest > 0 && i < wok_model_input_count(m->model); i++) {
        const wok_tensor *t = &tensors[i];
        if (t->size && t->rank == 2 && (t->dtype == WOK_I64 || t->dtype == WOK_I32) && t->dims[1] > longest)
            return cmd_error("input '%s' is a sequence of %lld, but the model has positions for %lld: %s",
                             wok_model_input(m->model, i)->name, (long long)t->dims[1], (long long)longest, error);
    }
    return cmd_error("%s", error);
}

static int run_all(const cmd_model *m, const wok_tensor *tensors, const run_options *o, double *times) {
    for (int i = -o->warmup; i < o->repeat; i++) {
        double start = cmd_now_ms();
        if (wok_session_run(m->session) != WOK_OK) return run_error(m, tensors);
        if (i >= 0) times[i] = cmd_now_ms() - start;
        if (o->repeat > 1) cmd_progress("running", i + o->warmup + 1, o->repeat + o->warmup);
    }
    qsort(times, (size_t)o->repeat, sizeof *times, by_value);
    return 0;
}

static int report_json(cmd_model *m, const run_options *o, const double *times, double load_ms) {
    wok_session_info info = {0};
    wok_session_describe(m->session, &info);
    cmd_json json;
    json_start(&json, stdout);
    json_object(&json);
    json_key(&json, "min_ms"), json_double(&json, times[0], 6);
    json_key(&json, "median_ms"), json_double(&json, times[o->repeat / 2], 6);
    json_key(&json, "load_ms"), json_double(&json, load_ms, 6);
    json_key(&json, "peak_rss_mib"), json_int(&json, cmd_peak_rss_mib());
    json_key(&json, "arena_mib"), json_double(&json, (double)info.arena_bytes / 1048576.0, 6);
    json_key(&json, "packed_mib"), json_double(&json, (double)info.packed_bytes / 1048576.0, 6);
    json_key(&json, "threads"), json_int(&json, info.threads);
    json_key(&json, "isa"), json_text(&json, info.isa);
    json_key(&json, "device"), json_text(&json, "cpu");
    json_key(&json, "outputs"), json_array(&json);
    for (int i = 0; i < wok_session_output_count(m->session); i++) {
        const wok_tensor *t = wok_session_output(m->session, i);
        char *path = o->out ? output_path(o->out, wok_session_output_name(m->session, i)) : NULL;
        json_object(&json);
        json_key(&json, "name"), json_text(&json, wok_session_output_name(m->session, i));
        json_key(&json, "file"), json_text(&json, path);
        json_key(&json, "dtype"), json_text(&json, wok_dtype_name(t->dtype));
        json_key(&json, "shape"), json_array(&json);
        for (int d = 0; d < t->rank; d++) json_int(&json, t->dims[d]);
        json_array_end(&json);
        json_object_end(&json);
        free(path);
    }
    json_array_end(&json);
    json_object_end(&json);
    return json_finish(&json) ? 0 : cmd_error("stdout cannot be written");
}

static void report_text(cmd_model *m, const run_options *o, const double *times, double load_ms) {
    wok_session_info info = {0};
    wok_session_describe(m->session, &info);
    for (int i = 0; i < wok_session_output_count(m->session); i++) {
        const wok_tensor *t = wok_session_output(m->session, i);
        char shape[160];
        printf("%s: %s %s\n", cmd_plain(wok_session_output_name(m->session, i)), wok_dtype_name(t->dtype),
               cmd_shape_text(t->dims, t->rank, shape, sizeof shape));
    }
    printf("best %.3f ms, median %.3f ms of %d, ready after %.1f ms; %d threads, %s, arena %.2f MiB, packed %.2f MiB\n",
           times[0], times[o->repeat / 2], o->repeat, load_ms, info.threads, info.isa,
           (double)info.arena_bytes / 1048576.0, (double)info.packed_bytes / 1048576.0);
}

static void print_profile(wok_session *session) {
    wok_session_info info = {0};
    wok_session_describe(session, &info);
    fprintf(stderr, "%10s  %-20s %-36s %s\n", "us", "op", "kernel", "node");
    for (int i = 0; i < info.nodes; i++) {
        wok_node_info n;
        if (wok_session_node(session, i, &n) == WOK_OK)
            fprintf(stderr, "%10.1f  %-20s %-36s %s\n", n.us, n.op, n.kernel ? n.kernel : "-", cmd_plain(n.name));
    }
}

/* The folder is made only when there is something to put into it: a failed run leaves nothing behind. */
static int execute(const char *path, run_options *o) {
    cmd_model m;
    double start = cmd_now_ms(), *times = malloc((size_t)o->repeat * sizeof *times);
    wok_tensor *tensors = NULL;
    int inputs = 0, status = times ? cmd_model_load("run", path, &o->common, false, &m) : cmd_error("out of memory");
    if (!times) return status;
    if (!status) status = cmd_model_session("run", &o->common, o->profile, &m);
    if (!status) {
        inputs = wok_model_input_count(m.model);
        tensors = calloc((size_t)inputs + 1, sizeof *tensors);
        status = tensors ? set_inputs(&m, &o->inputs, tensors) : cmd_error("out of memory");
    }
    double load_ms = cmd_now_ms() - start;
    if (!status) status = run_all(&m, tensors, o, times);
    if (!status && o->out) status = write_outputs(&m, o->out);
    if (!status && o->profile) print_profile(m.session);
    if (!status && o->json)
        status = report_json(&m, o, times, load_ms);
    else if (!status)
        report_text(&m, o, times, load_ms);
    for (int i = 0; tensors && i < inputs; i++) wok_npy_free(m.ctx, &tensors[i]);
    free(tensors);
    free(times);
    cmd_model_close(&m, &o->common);
    return status;
}

int cmd_run(int argc, char **argv) {
    run_options o = {.repeat = 1};
    cmd_list paths;
    const cmd_option options[] = {
        {"-i", OPT_LIST, &o.inputs, "NAME=FILE.npy", "an input (repeated for each)"},
        {"-o", OPT_TEXT, &o.out, "DIR", "folder for the outputs, NAME.npy each; made if need be"},
        {"--warmup", OPT_NUMBER, &o.warmup, "N", "runs that are not timed; default 0"},
        {"--repeat", OPT_COUNT, &o.repeat, "N", "timed runs; default 1"},
        {"--profile", OPT_FLAG, &o.profile, NULL, "time of every node, on stderr"},
        {"--json", OPT_FLAG, &o.json, NULL, "one JSON object on stdout"},
        CMD_MODEL_OPTIONS(o.common)};
    int status;
    if (!cmd_parse(argc, argv, options, CMD_OPTION_COUNT(options), 1, 1, &paths, &status)) return status;
    status = execute(paths.items[0], &o);
    cmd_list_free(&paths);
    cmd_list_free(&o.inputs);
    return status;
}

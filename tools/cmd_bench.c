/* cmd_bench.c - `wok bench`: how fast a model runs here, on made-up inputs of a shape. */
#include "cmd_bench.h"
#include "wok_build.h"

#include <stdlib.h>
#include <string.h>

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Fills times[0..runs); sorted. */
static int measure(wok_session *session, int warmup, int runs, double *times) {
    for (int i = -warmup; i < runs; i++) {
        double start = cmd_now_ms();
        if (wok_session_run(session) != WOK_OK) return cmd_error("%s", wok_session_error(session));
        if (i >= 0) times[i] = cmd_now_ms() - start;
        cmd_progress("running", i + warmup + 1, runs + warmup);
    }
    qsort(times, (size_t)runs, sizeof *times, by_value);
    return 0;
}

static int report(const char *name, wok_session *session, const double *times, int runs, double load_ms, bool as_json) {
    wok_session_info info = {0};
    wok_session_describe(session, &info);
    int64_t macs = 0;
    for (int i = 0; i < info.nodes; i++) {
        wok_node_info node;
        if (wok_session_node(session, i, &node) == WOK_OK) macs += node.macs;
    }
    double best = times[0], median = times[runs / 2];
    if (!as_json) {
        printf("%s: best %.3f ms, median %.3f ms of %d runs, %d threads, %s\n", name, best, median, runs, info.threads,
               info.isa);
        printf("  %.3f GMAC, %.1f GMAC/s at best; ready after %.1f ms; arena %.2f MiB, packed weights %.2f MiB\n",
               (double)macs * 1e-9, (double)macs * 1e-6 / best, load_ms, (double)info.arena_bytes / 1048576.0,
               (double)info.packed_bytes / 1048576.0);
        return 0;
    }
    cmd_json json;
    json_start(&json, stdout);
    json_object(&json);
    json_key(&json, "model"), json_text(&json, name);
    json_key(&json, "min_ms"), json_double(&json, best, 6);
    json_key(&json, "median_ms"), json_double(&json, median, 6);
    json_key(&json, "runs"), json_int(&json, runs);
    json_key(&json, "gmac"), json_double(&json, (double)macs * 1e-9, 6);
    json_key(&json, "load_ms"), json_double(&json, load_ms, 6);
    json_key(&json, "arena_mib"), json_double(&json, (double)info.arena_bytes / 1048576.0, 6);
    json_key(&json, "packed_mib"), json_double(&json, (double)info.packed_bytes / 1048576.0, 6);
    json_key(&json, "threads"), json_int(&json, info.threads);
    json_key(&json, "isa"), json_text(&json, info.isa);
    json_object_end(&json);
    return json_finish(&json) ? 0 : cmd_error("stdout cannot be written");
}

static bool is_synthetic(const char *arch) {
    static const char *const names[] = {"bert-base", "distilbert", "resnet18", "mobilenet_v2"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(arch, names[i])) return true;
    return false;
}

/* A file, or one of the four full-size networks made in memory. */
static int open_model(const char *path, const cmd_model_options *common, int seed, cmd_model *m) {
    int status = cmd_model_load("bench", path, common, false, m);
    if (status || path) return status;
    if (wok_model_synthetic(m->ctx, common->arch, (uint64_t)seed, &m->model) != WOK_OK)
        return cmd_error("%s", wok_ctx_error(m->ctx));
    return 0;
}

static int compare_layers(const cmd_model *m, cmd_model_options common, const cmd_list *shapes, int seed, int runs,
                          bool as_json) {
    cmd_model twin = {m->ctx, m->model, NULL};
    cmd_buffers buffers = {NULL, 0};
    common.quantized_as_f32 = true;
    int status = cmd_model_session("bench", &common, true, &twin);
    if (!status) status = cmd_model_default_inputs("bench", &twin, shapes, (uint64_t)seed, &buffers);
    if (!status) status = cmd_bench_layers(m->session, twin.session, runs, as_json);
    wok_session_free(&twin.session);
    cmd_buffers_free(&buffers);
    return status;
}

int cmd_bench(int argc, char **argv) {
    bool as_json = false, layers = false;
    int runs = 20, warmup = 3, seed = 1;
    cmd_model_options common = {0};
    cmd_list paths, shapes = {NULL, 0};
    const cmd_option options[] = {
        {"--shape", OPT_LIST, &shapes, "NAME=1x128",
         "shape of an input (may be repeated); default batch 1, sequence 128"},
        {"--repeat", OPT_COUNT, &runs, "N", "timed runs; default 20"},
        {"--warmup", OPT_NUMBER, &warmup, "N", "runs before them; default 3"},
        {"--seed", OPT_NUMBER, &seed, "N", "of made-up weights and inputs; default 1"},
        {"--layers", OPT_FLAG, &layers, NULL, "time every int8 layer beside the same one in fp32"},
        {"--json", OPT_FLAG, &as_json, NULL, "one JSON object"},
        CMD_MODEL_OPTIONS(common)};
    int status;
    if (!cmd_parse(argc, argv, options, CMD_OPTION_COUNT(options), 0, 1, &paths, &status)) return status;
    const char *path = paths.count ? paths.items[0] : NULL;
    if (!path && !common.arch)
        status = cmd_usage("bench", "bench wants a model, or --arch NAME");
    else if (!path && !is_synthetic(common.arch))
        status = cmd_usage("bench", "--arch %s is not bert-base, distilbert, resnet18 or mobilenet_v2", common.arch);
    cmd_model m = {NULL, NULL, NULL};
    cmd_buffers buffers = {NULL, 0};
    double *times = malloc((size_t)runs * sizeof *times), start = cmd_now_ms();
    if (!status && !times) status = cmd_error("out of memory");
    if (!status) status = open_model(path, &common, seed, &m);
    if (!status) status = cmd_model_session("bench", &common, layers, &m);
    cmd_list full_size = {(const char *[]){"input=1x3x224x224"},
                          1}; /* the networks for pictures are made for this size */
    bool picture = !path && common.arch && !strstr(common.arch, "bert") && shapes.count == 0;
    if (!status)
        status = cmd_model_default_inputs("bench", &m, picture ? &full_size : &shapes, (uint64_t)seed, &buffers);
    if (!status && wok_session_plan(m.session) != WOK_OK) status = cmd_error("%s", wok_session_error(m.session));
    double load_ms = cmd_now_ms() - start;
    if (!status && layers) status = compare_layers(&m, common, picture ? &full_size : &shapes, seed, runs, as_json);
    if (!status && !layers) status = measure(m.session, warmup, runs, times);
    if (!status && !layers) status = report(path ? path : common.arch, m.session, times, runs, load_ms, as_json);
    free(times);
    cmd_model_close(&m, &common);
    cmd_buffers_free(&buffers);
    cmd_list_free(&paths);
    cmd_list_free(&shapes);
    return status;
}

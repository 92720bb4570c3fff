/* cmd_bench_layers.c - `wok bench --layers`: where quantising pays. Every product and convolution that computes in bytes
 * beside the same one in f32, both sessions run in turn, best of all runs. */
#include "cmd_bench.h"

#include <stdlib.h>
#include <string.h>

enum { SLACK_US = 20 };
static const double slack = 1.05; /* a layer counts as slower beyond both */

typedef struct layer {
    char name[256], op[24];
    double bytes_us, float_us; /* float_us negative: not found */
    int64_t macs;
} layer;

static bool node_at(wok_session *s, int i, wok_node_info *node) {
    *node = (wok_node_info){0};
    return wok_session_node(s, i, node) == WOK_OK;
}

/* The nodes that compute in bytes, with the float node of the same name where there is one. */
static int collect(wok_session *bytes, wok_session *floats, layer *layers) {
    wok_session_info b = {0}, f = {0};
    wok_session_describe(bytes, &b);
    wok_session_describe(floats, &f);
    int count = 0;
    for (int i = 0; i < b.nodes; i++) {
        wok_node_info node, twin;
        if (!node_at(bytes, i, &node) || node.dtype != WOK_I8 || node.macs <= 0) continue;
        layer *l = &layers[count++];
        *l = (layer){.bytes_us = node.us_best, .float_us = -1, .macs = node.macs};
        snprintf(l->name, sizeof l->name, "%s", cmd_plain(node.name));
        snprintf(l->op, sizeof l->op, "%s", node.op);
        for (int k = 0; k < f.nodes; k++)
            if (node_at(floats, k, &twin) && !strcmp(twin.name, node.name) && twin.macs > 0) l->float_us = twin.us_best;
    }
    return count;
}

static bool is_slower(const layer *l) {
    return l->float_us >= 0 && l->bytes_us > slack * l->float_us && l->bytes_us > l->float_us + SLACK_US;
}

static void print_layers(const layer *layers, int count) {
    int slower = 0;
    printf("%10s %10s %7s  %-8s %s\n", "int8 us", "fp32 us", "ratio", "op", "layer");
    for (int i = 0; i < count; i++) {
        const layer *l = &layers[i];
        if (l->float_us < 0)
            printf("%10.1f %10s %7s  %-8s %s\n", l->bytes_us, "-", "-", l->op, l->name);
        else
            printf("%10.1f %10.1f %6.2fx  %-8s %s%s\n", l->bytes_us, l->float_us, l->float_us / l->bytes_us, l->op,
                   l->name, is_slower(l) ? "  SLOWER THAN FP32" : "");
        slower += is_slower(l);
    }
    printf("%d of %d layers are slower in int8 (by more than 5 %% and %d us)\n", slower, count, SLACK_US);
}

static int json_layers(const layer *layers, int count) {
    cmd_json json;
    json_start(&json, stdout);
    json_object(&json);
    json_key(&json, "layers"), json_array(&json);
    for (int i = 0; i < count; i++) {
        json_object(&json);
        json_key(&json, "name"), json_text(&json, layers[i].name);
        json_key(&json, "op"), json_text(&json, layers[i].op);
        json_key(&json, "int8_us"), json_double(&json, layers[i].bytes_us, 6);
        json_key(&json, "fp32_us");
        if (layers[i].float_us < 0)
            json_null(&json);
        else
            json_double(&json, layers[i].float_us, 6);
        json_key(&json, "macs"), json_int(&json, layers[i].macs);
        json_key(&json, "slower"), json_bool(&json, is_slower(&layers[i]));
        json_object_end(&json);
    }
    json_array_end(&json);
    json_object_end(&json);
    return json_finish(&json) ? 0 : cmd_error("stdout cannot be written");
}

/* The two in turn, so that a slow spell of the machine meets both. */
static int run_both(wok_session *bytes, wok_session *floats, int runs) {
    for (int i = 0; i < runs; i++) {
        if (wok_session_run(bytes) != WOK_OK) return cmd_error("%s", wok_session_error(bytes));
        if (wok_session_run(floats) != WOK_OK) return cmd_error("%s", wok_session_error(floats));
        cmd_progress("running", i + 1, runs);
    }
    return 0;
}

int cmd_bench_layers(wok_session *bytes, wok_session *floats, int runs, bool as_json) {
    int status = run_both(bytes, floats, runs);
    wok_session_info info = {0};
    wok_session_describe(bytes, &info);
    layer *layers = status ? NULL : calloc((size_t)info.nodes + 1, sizeof *layers);
    if (!status && !layers) status = cmd_error("out of memory");
    if (status) return status;
    int count = collect(bytes, floats, layers);
    if (!count)
        status = cmd_error("the model has no layer that computes in int8");
    else if (as_json)
        status = json_layers(layers, count);
    else
        print_layers(layers, count);
    free(layers);
    return status;
}

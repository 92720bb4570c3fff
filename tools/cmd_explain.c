/* cmd_explain.c - `wok explain`: node by node, fused from what, which kernel and why. */
#include "cmd_model.h"

#include <string.h>

static void print_node(int index, const wok_node_info *n) {
    char shape[160];
    printf("%4d  %-20s %-40s %-5s %s", index, n->op, n->kernel ? n->kernel : "-", wok_dtype_name(n->dtype),
           cmd_shape_text(n->dims, n->rank, shape, sizeof shape));
    if (n->us >= 0) printf("  %.1f us", n->us);
    if (n->us > 0 && n->macs > 0) printf("  %.1f GMAC/s", (double)n->macs / n->us * 1e-3);
    printf("\n");
    printf("      %s", cmd_plain(n->name));
    if (n->fused_count > 1) {
        printf("  = ");
        for (int i = 0; i < n->fused_count; i++) printf("%s%s", i ? " + " : "", cmd_plain(n->fused_from[i]));
    }
    printf("\n");
    for (int i = 0; i < n->rejected_count; i++)
        printf("      not %s: %s\n", n->rejected[i].kernel, n->rejected[i].reason);
}

static int print_text(wok_session *session) {
    wok_session_info info = {0};
    wok_session_describe(session, &info);
    for (int i = 0; i < info.nodes; i++) {
        wok_node_info node;
        if (wok_session_node(session, i, &node) != WOK_OK) return cmd_error("%s", wok_session_error(session));
        print_node(i, &node);
    }
    if (info.near_misses) printf("\nrewrites that almost matched:\n");
    for (int i = 0; i < info.near_misses; i++) {
        wok_near_miss miss;
        if (wok_session_near_miss(session, i, &miss) == WOK_OK) printf("  %s at %s: %s\n", miss.pass, cmd_plain(miss.node), cmd_plain(miss.reason));
    }
    printf("\n%d nodes, best level %s, %d threads, arena %.2f MiB, packed weights %.2f MiB, weights used in place %.2f MiB\n",
           info.nodes, info.isa, info.threads, (double)info.arena_bytes / 1048576.0,
           (double)info.packed_bytes / 1048576.0, (double)info.weight_bytes / 1048576.0);
    return 0;
}

static void json_node(cmd_json *json, const wok_node_info *n) {
    json_object(json);
    json_key(json, "name"), json_text(json, n->name);
    json_key(json, "op"), json_text(json, n->op);
    json_key(json, "fused_from"), json_array(json);
    for (int i = 0; i < n->fused_count; i++) json_text(json, n->fused_from[i]);
    json_array_end(json);
    json_key(json, "kernel"), json_text(json, n->kernel);
    json_key(json, "isa"), json_text(json, n->isa);
    json_key(json, "dtype"), json_text(json, wok_dtype_name(n->dtype));
    json_key(json, "shape"), json_array(json);
    for (int i = 0; i < n->rank; i++) json_int(json, n->dims[i]);
    json_array_end(json);
    json_key(json, "rejected"), json_array(json);
    for (int i = 0; i < n->rejected_count; i++) {
        json_object(json);
        json_key(json, "kernel"), json_text(json, n->rejected[i].kernel);
        json_key(json, "reason"), json_text(json, n->rejected[i].reason);
        json_object_end(json);
    }
    json_array_end(json);
    json_key(json, "us");
    if (n->us < 0) json_null(json);
    else json_double(json, n->us, 6);
    json_key(json, "bytes"), json_int(json, n->bytes);
    json_key(json, "macs"), json_int(json, n->macs);
    json_object_end(json);
}

static int print_json(wok_session *session) {
    wok_session_info info = {0};
    wok_session_describe(session, &info);
    cmd_json json;
    json_start(&json, stdout);
    json_object(&json);
    json_key(&json, "nodes"), json_array(&json);
    for (int i = 0; i < info.nodes; i++) {
        wok_node_info node;
        if (wok_session_node(session, i, &node) == WOK_OK) json_node(&json, &node);
    }
    json_array_end(&json);
    json_key(&json, "near_misses"), json_array(&json);
    for (int i = 0; i < info.near_misses; i++) {
        wok_near_miss miss;
        if (wok_session_near_miss(session, i, &miss) != WOK_OK) continue;
        json_object(&json);
        json_key(&json, "pass"), json_text(&json, miss.pass);
        json_key(&json, "node"), json_text(&json, miss.node);
        json_key(&json, "reason"), json_text(&json, miss.reason);
        json_object_end(&json);
    }
    json_array_end(&json);
    json_key(&json, "arena_bytes"), json_int(&json, info.arena_bytes);
    json_key(&json, "packed_bytes"), json_int(&json, info.packed_bytes);
    json_key(&json, "weight_bytes"), json_int(&json, info.weight_bytes);
    json_object_end(&json);
    return json_finish(&json) ? 0 : cmd_error("stdout cannot be written");
}

/* Plans, and with --profile runs a few times so that every node has a time. */
static int prepare(cmd_model *m, bool profile) {
    int runs = profile ? 10 : 0;
    if (wok_session_plan(m->session) != WOK_OK) return cmd_error("%s", wok_session_error(m->session));
    for (int i = 0; i < runs; i++) {
        if (wok_session_run(m->session) != WOK_OK) return cmd_error("%s", wok_session_error(m->session));
        cmd_progress("profiling", i + 1, runs);
    }
    return 0;
}

int cmd_explain(int argc, char **argv) {
    bool as_json = false, profile = false;
    cmd_model_options common = {0};
    cmd_list paths, shapes = {NULL, 0};
    const cmd_option options[] = {
        {"--shape", OPT_LIST, &shapes, "NAME=1x128", "shape of an input (may be repeated); default batch 1, sequence 128"},
        {"--profile", OPT_FLAG, &profile, NULL, "run on made-up inputs and time every node"},
        {"--json", OPT_FLAG, &as_json, NULL, "one JSON object"},
        CMD_MODEL_OPTIONS(common)};
    int status;
    if (!cmd_parse(argc, argv, options, CMD_OPTION_COUNT(options), 1, 1, &paths, &status)) return status;
    cmd_model m;
    cmd_buffers buffers = {NULL, 0};
    status = cmd_model_load("explain", paths.items[0], &common, false, &m);
    if (!status) status = cmd_model_session("explain", &common, profile, &m);
    if (!status) status = cmd_model_default_inputs("explain", &m, &shapes, 1, &buffers);
    if (!status) status = prepare(&m, profile);
    if (!status) status = as_json ? print_json(m.session) : print_text(m.session);
    cmd_model_close(&m, &common);
    cmd_buffers_free(&buffers);
    cmd_list_free(&paths);
    cmd_list_free(&shapes);
    return status;
}

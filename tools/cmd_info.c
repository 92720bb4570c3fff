/* cmd_info.c - `wok info`: what a file holds, and what of it wok cannot run. */
#include "cmd_model.h"

#include <string.h>

static void shape_text(const wok_value_info *info, char *buffer, size_t size) {
    size_t used = (size_t)snprintf(buffer, size, "[");
    for (int i = 0; i < info->rank && used < size; i++) {
        if (info->dims[i] >= 0)
            used += (size_t)snprintf(buffer + used, size - used, "%s%lld", i ? "," : "", (long long)info->dims[i]);
        else
            used += (size_t)snprintf(buffer + used, size - used, "%s%s", i ? "," : "",
                                     info->dim_names[i] ? info->dim_names[i] : "?");
    }
    if (used < size) snprintf(buffer + used, size - used, "%s]", info->rank < 0 ? "?" : "");
}

static void print_values(const wok_model *model, const char *title, int count,
                         const wok_value_info *(*at)(const wok_model *, int)) {
    printf("%s:\n", title);
    for (int i = 0; i < count; i++) {
        const wok_value_info *info = at(model, i);
        char shape[512];
        shape_text(info, shape, sizeof shape);
        printf("  %-24s %-5s %s%s\n", cmd_plain(info->name), wok_dtype_name(info->dtype), cmd_plain(shape), info->optional ? "  (optional)" : "");
    }
}

static void print_text(const wok_model *model) {
    const wok_model_info *info = wok_model_describe(model);
    printf("%s, IR %lld, operator set %lld%s%s\n", info->format, (long long)info->ir_version, (long long)info->opset,
           info->producer && info->producer[0] ? ", by " : "", info->producer ? cmd_plain(info->producer) : "");
    print_values(model, "inputs", wok_model_input_count(model), wok_model_input);
    print_values(model, "outputs", wok_model_output_count(model), wok_model_output);
    printf("weights: %d tensors, %.2f million numbers, %.1f MiB\n", info->weights, (double)info->parameters * 1e-6,
           (double)info->weight_bytes / 1048576.0);
    printf("operators: %d nodes\n", info->nodes);
    for (int i = 0; i < info->op_count; i++) {
        const wok_op_count *op = &info->ops[i];
        char name[256];
        snprintf(name, sizeof name, "%s%s%s", op->domain, op->domain[0] ? "." : "", op->op);
        printf("  %5d  %-32s%s%s\n", op->count, cmd_plain(name), op->unsupported ? "  not supported: " : "",
               op->unsupported ? cmd_plain(op->unsupported) : "");
    }
}

static void json_values(cmd_json *json, const wok_model *model, const char *key, int count,
                        const wok_value_info *(*at)(const wok_model *, int)) {
    json_key(json, key), json_array(json);
    for (int i = 0; i < count; i++) {
        const wok_value_info *info = at(model, i);
        json_object(json);
        json_key(json, "name"), json_text(json, info->name);
        json_key(json, "dtype"), json_text(json, wok_dtype_name(info->dtype));
        json_key(json, "shape");
        if (info->rank < 0) {
            json_null(json);
        } else {
            json_array(json);
            for (int d = 0; d < info->rank; d++) {
                if (info->dims[d] >= 0) json_int(json, info->dims[d]);
                else json_text(json, info->dim_names[d]);
            }
            json_array_end(json);
        }
        json_key(json, "optional"), json_bool(json, info->optional);
        json_object_end(json);
    }
    json_array_end(json);
}

static int print_json(const wok_model *model) {
    const wok_model_info *info = wok_model_describe(model);
    cmd_json json;
    json_start(&json, stdout);
    json_object(&json);
    json_key(&json, "format"), json_text(&json, info->format);
    json_key(&json, "producer"), json_text(&json, info->producer);
    json_key(&json, "ir_version"), json_int(&json, info->ir_version);
    json_key(&json, "opset"), json_int(&json, info->opset);
    json_values(&json, model, "inputs", wok_model_input_count(model), wok_model_input);
    json_values(&json, model, "outputs", wok_model_output_count(model), wok_model_output);
    json_key(&json, "weights"), json_int(&json, info->weights);
    json_key(&json, "weight_bytes"), json_int(&json, info->weight_bytes);
    json_key(&json, "parameters"), json_int(&json, info->parameters);
    json_key(&json, "nodes"), json_int(&json, info->nodes);
    json_key(&json, "operators"), json_array(&json);
    for (int i = 0; i < info->op_count; i++) {
        json_object(&json);
        json_key(&json, "domain"), json_text(&json, info->ops[i].domain);
        json_key(&json, "op"), json_text(&json, info->ops[i].op);
        json_key(&json, "count"), json_int(&json, info->ops[i].count);
        json_key(&json, "unsupported"), json_text(&json, info->ops[i].unsupported);
        json_object_end(&json);
    }
    json_array_end(&json);
    json_object_end(&json);
    return json_finish(&json) ? 0 : cmd_error("stdout cannot be written");
}

int cmd_info(int argc, char **argv) {
    bool as_json = false;
    cmd_model_options common = {0};
    const cmd_option options[] = {
        {"--arch", OPT_TEXT, &common.arch, "NAME", "resnet18 or mobilenet_v2, for a bare .safetensors"},
        {"--json", OPT_FLAG, &as_json, NULL, "one JSON object"}};
    cmd_list paths;
    int status;
    if (!cmd_parse(argc, argv, options, CMD_OPTION_COUNT(options), 1, 1, &paths, &status)) return status;
    cmd_model m;
    status = cmd_model_load("info", paths.items[0], &common, true, &m);
    if (!status && as_json) status = print_json(m.model);
    else if (!status) print_text(m.model);
    cmd_model_close(&m, &common);
    cmd_list_free(&paths);
    return status;
}

/* cmd_model.c - opening models and sessions for the sub-commands. */
#include "cmd_model.h"

#include <string.h>

static int check_words(const char *command, const cmd_model_options *o) {
    if (o->precision && strcmp(o->precision, "fp32") != 0)
        return cmd_usage(command, "--precision %s is not known; it is fp32", o->precision);
    if (o->backend && strcmp(o->backend, "cpu") != 0)
        return cmd_usage(command, "--backend %s is not known; it is cpu", o->backend);
    for (int i = 0; i < o->no_pass.count; i++) {
        int k = 0;
        while (wok_pass_name(k) && strcmp(wok_pass_name(k), o->no_pass.items[i]) != 0) k++;
        if (!wok_pass_name(k)) return cmd_usage(command, "there is no rewrite called `%s`", o->no_pass.items[i]);
    }
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
                                   .profile = profile,
                                   .dynamic_per_row = options->dynamic_per_row,
                                   .relax_qdq = options->relax_qdq,
                                   .quantized_as_f32 = options->quantized_as_f32};
    if (wok_session_create(m->model, &session, &m->session) != WOK_OK) return cmd_error("%s", wok_ctx_error(m->ctx));
    return 0;
}

void cmd_model_close(cmd_model *m, cmd_model_options *options) {
    wok_session_free(&m->session);
    wok_model_free(&m->model);
    wok_ctx_free(&m->ctx);
    cmd_list_free(&options->no_pass);
}

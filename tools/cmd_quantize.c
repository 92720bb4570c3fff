/* cmd_quantize.c - `wok quantize`: an 8-bit model of a float one. */
#define _POSIX_C_SOURCE 200809L /* open_memstream, strcasecmp */
#include "cmd_model.h"
#include "cmd_quantize.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct settings {
    cmd_model_options common;
    const char *out, *report, *method, *embeddings, *preset, *labels;
    cmd_list calibrate, eval, keep;
    bool dynamic, is_static, equalize, bias_correction, measure, as_json, per_tensor, is_signed, symmetric, narrow;
    double percentile, smooth, max_loss;
    int samples;
} settings;

enum { DEFAULT_SAMPLES = 256 };

/* ---- options --------------------------------------------------------------------------------------------------------------- */

/* Index of `text` in a list that ends in NULL; -1 if it is none of them. */
static int choose(const char *text, const char *const *names) {
    for (int i = 0; names[i]; i++)
        if (!strcmp(text, names[i])) return i;
    return -1;
}

static bool ends_in(const char *path, const char *suffix) {
    size_t length = strlen(path), end = strlen(suffix);
    return length > end && !strcasecmp(path + length - end, suffix);
}

static int check_combination(const char *command, const settings *s) {
    if (!s->out) return cmd_usage(command, "-o says where the model goes, as in -o model-int8.onnx");
    if (!ends_in(s->out, ".onnx"))
        return cmd_usage(
            command, "-o must end in .onnx, because only ONNX says how its numbers are quantised, not `%s`", s->out);
    if (s->report && !ends_in(s->report, ".svg") && !ends_in(s->report, ".json"))
        return cmd_usage(command, "--report writes .svg or .json, not `%s`", s->report);
    if (s->dynamic == s->is_static) return cmd_usage(command, "quantize wants either --dynamic or --static");
    if (s->is_static && !s->calibrate.count)
        return cmd_usage(command, "--static wants samples of what the model will see: --calibrate DATA");
    if (s->dynamic && (s->equalize || s->bias_correction))
        return cmd_usage(command, "--equalize and --bias-correction go with --static");
    if ((s->measure || s->smooth != 0) && !s->calibrate.count)
        return cmd_usage(command, "%s wants samples of what the model will see: --calibrate DATA",
                         s->measure ? "--measure" : "--smooth");
    if (!isnan(s->max_loss) && !s->eval.count)
        return cmd_usage(command, "--max-loss wants data to measure the loss on: --eval DATA");
    if (s->labels && !s->eval.count) return cmd_usage(command, "--labels belong to --eval DATA");
    return 0;
}

static int check_numbers(const char *command, const settings *s) {
    if (!isnan(s->percentile) && !(s->percentile > 50 && s->percentile <= 100))
        return cmd_usage(command, "--percentile lies above 50 and is at most 100, not %g", s->percentile);
    if (!isnan(s->percentile) && (!s->method || strcmp(s->method, "percentile") != 0))
        return cmd_usage(command, "--percentile goes with --method percentile");
    if (s->smooth != 0 && !(s->smooth > 0 && s->smooth <= 1))
        return cmd_usage(command, "--smooth lies above 0 and is at most 1, not %g", s->smooth);
    if (!isnan(s->max_loss) && s->max_loss < 0)
        return cmd_usage(command, "--max-loss is at least 0, not %g", s->max_loss);
    return 0;
}

static int to_options(const char *command, const settings *s, wok_quant_options *o) {
    static const char *const methods[] = {"minmax", "percentile", "entropy", "mse", NULL};
    static const char *const tables[] = {"int8", "int4", "keep", NULL};
    int method = s->method ? choose(s->method, methods) : 0, table = s->embeddings ? choose(s->embeddings, tables) : 0;
    int status = check_combination(command, s);
    if (!status) status = check_numbers(command, s);
    if (status) return status;
    if (method < 0) return cmd_usage(command, "--method is minmax, percentile, entropy or mse, not `%s`", s->method);
    if (table < 0) return cmd_usage(command, "--embeddings is int8, int4 or keep, not `%s`", s->embeddings);
    *o = (wok_quant_options){.size = sizeof *o,
                             .mode = s->is_static ? WOK_QUANT_STATIC : WOK_QUANT_DYNAMIC,
                             .method = (wok_quant_method)method,
                             .percentile = isnan(s->percentile) ? 0 : s->percentile,
                             .per_tensor = s->per_tensor,
                             .signed_activations = s->is_signed,
                             .symmetric_activations = s->symmetric,
                             .narrow_weights = s->narrow,
                             .equalize = s->equalize,
                             .bias_correction = s->bias_correction,
                             .smooth = (float)s->smooth,
                             .tables = (wok_quant_table)table,
                             .keep = s->keep.items,
                             .keep_count = s->keep.count,
                             .max_loss = isnan(s->max_loss) ? -1 : s->max_loss,
                             .measure = s->measure};
    return 0;
}

/* ---- files that appear whole or not at all ---------------------------------------------------------------------------------- */

/* Found out before the work, not after it. */
static int check_target(const char *path) {
    struct stat info;
    const char *slash = strrchr(path, '/');
    char *folder = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup("."); /* "/" keeps its slash */
    if (!folder) return cmd_error("out of memory");
    int error = access(folder, W_OK | X_OK) != 0 ? errno : 0;
    free(folder);
    if (!error && stat(path, &info) == 0 && !S_ISREG(info.st_mode)) error = S_ISDIR(info.st_mode) ? EISDIR : EEXIST;
    return error ? cmd_error("%s cannot be written: %s", path, strerror(error)) : 0;
}

/* The report under a temporary name beside its place; *temp is freed by the caller. */
static int write_report(const settings *s, const quant_about *about, const wok_quant_report *report, char **temp) {
    size_t size = strlen(s->report) + 40;
    *temp = malloc(size);
    if (!*temp) return cmd_error("out of memory");
    const char *slash = strrchr(s->report, '/');
    snprintf(*temp, size, "%.*s.wok-report-%ld.tmp", slash ? (int)(slash - s->report) + 1 : 0, s->report,
             (long)getpid());
    FILE *file = fopen(*temp, "wx");
    if (!file) {
        int error = errno;
        free(*temp);
        *temp = NULL;
        return cmd_error("%s cannot be written: %s", s->report, strerror(error));
    }
    (ends_in(s->report, ".svg") ? quant_report_svg : quant_report_json)(about, report, file);
    bool good = !ferror(file);
    good = fclose(file) == 0 && good;
    return good ? 0 : cmd_error("%s cannot be written: %s", s->report, strerror(errno));
}

/* The model last but one: once it stands, only a rename is left to do. */
static int write_all(const settings *s, const quant_about *about, wok_ctx *ctx, const wok_model *model,
                     const wok_quant_report *report) {
    char *temp = NULL;
    int status = s->report ? write_report(s, about, report, &temp) : 0;
    if (!status && wok_model_save(model, s->out) != WOK_OK) status = cmd_error("%s", wok_ctx_error(ctx));
    if (!status && temp && rename(temp, s->report) != 0)
        status = cmd_error("%s cannot be written: %s", s->report, strerror(errno));
    if (status && temp) unlink(temp);
    free(temp);
    return status;
}

/* ---- the work ----------------------------------------------------------------------------------------------------------------- */

static bool show_progress(void *user, const char *step, int64_t done, int64_t total) {
    (void)user;
    cmd_progress(step, done, total);
    return true;
}

static const char *metric_name(const quant_data *eval) {
    return eval->metric == QUANT_ACCURACY ? "accuracy" : eval->metric == QUANT_SPEARMAN ? "Spearman" : NULL;
}

/* People must hear of it when the result is bad, and what helps. */
static void warn(const settings *s, const quant_about *about, const wok_quant_report *report) {
    const wok_quant_summary *r = wok_quant_report_summary(report);
    const char *help = s->is_static && !(s->equalize && s->bias_correction) ? " --equalize --bias-correction," : "";
    char text[400];
    if (about->metric && isnan(s->max_loss) && r->float_score - r->score > 0.01)
        snprintf(text, sizeof text,
                 "%s falls from %.4f to %.4f; try%s another --method, or --max-loss, which keeps the layers that cost "
                 "most in "
                 "float",
                 about->metric, r->float_score, r->score, help);
    else if (!about->metric && r->snr_db < 10)
        snprintf(text, sizeof text,
                 "the outputs are at %.1f dB of those in float, which may be too little; try%s another --method, and "
                 "measure "
                 "with --eval",
                 r->snr_db, help);
    else
        return;
    cmd_log(NULL, WOK_LOG_WARNING, text);
}

static int report_all(const settings *s, const quant_about *about, const wok_quant_report *report) {
    if (s->as_json)
        quant_report_json(about, report, stdout);
    else
        quant_report_table(about, report);
    return fflush(stdout) == 0 && !ferror(stdout) ? 0 : cmd_error("stdout cannot be written");
}

static int load_data(const char *command, const settings *s, quant_data *samples, quant_data *eval) {
    int status = s->calibrate.count ? quant_data_load(command, &s->calibrate, NULL, samples) : 0;
    if (!status && s->eval.count) status = quant_data_load(command, &s->eval, s->labels, eval);
    if (!status && s->eval.count && eval->metric == QUANT_UNLABELLED)
        status = cmd_error(
            "%s does not say what is right: --eval wants labels.npy in the folder or --labels FILE.npy, or a .tsv "
            "or .csv with a class or a score in its last column",
            s->eval.items[0]);
    return status;
}

static int quantize(const char *command, const char *path, const settings *s, wok_quant_options *o, cmd_model *m,
                    quant_data *samples, quant_data *eval) {
    wok_model *small = NULL;
    wok_quant_report *report = NULL;
    int status = load_data(command, s, samples, eval);
    if (status) return status;
    o->samples = s->calibrate.count ? quant_data_samples(samples) : 0;
    if (o->samples) o->sample = quant_data_sample, o->sample_user = samples;
    if (s->eval.count) o->eval = quant_data_score, o->eval_user = eval;
    o->progress = show_progress;
    if (wok_quantize(m->model, o, &small, &report) != WOK_OK)
        status = cmd_error("%s", eval->error[0] ? eval->error : wok_ctx_error(m->ctx));
    cmd_progress("", 1, 1);
    const quant_about about = {path, s->out, s->is_static ? "static" : "dynamic",
                               s->eval.count ? metric_name(eval) : NULL};
    if (!status) status = write_all(s, &about, m->ctx, small, report);
    if (!status) warn(s, &about, report);
    if (!status) status = report_all(s, &about, report);
    wok_quant_report_free(&report);
    wok_model_free(&small);
    return status;
}

static int execute(const char *command, const char *path, settings *s) {
    wok_quant_options o;
    cmd_model m = {NULL, NULL, NULL};
    int status = to_options(command, s, &o);
    if (!status) status = check_target(s->out);
    if (!status && s->report) status = check_target(s->report);
    if (!status) status = cmd_model_load(command, path, &s->common, false, &m);
    quant_data samples = {.ctx = m.ctx,
                          .model = m.model,
                          .path = path,
                          .preset = s->preset,
                          .limit = s->samples ? s->samples : DEFAULT_SAMPLES};
    quant_data eval = {.ctx = m.ctx, .model = m.model, .path = path, .preset = s->preset};
    if (!status) status = quantize(command, path, s, &o, &m, &samples, &eval);
    quant_data_close(&samples);
    quant_data_close(&eval);
    cmd_model_close(&m, &s->common);
    return status;
}

int cmd_quantize(int argc, char **argv) {
    settings s = {.percentile = NAN, .max_loss = NAN};
    cmd_list paths;
    const cmd_option options[] = {
        {"-o", OPT_TEXT, &s.out, "OUT.onnx", "where the model goes"},
        {"--dynamic", OPT_FLAG, &s.dynamic, NULL, "activations are quantised as they come, row by row"},
        {"--static", OPT_FLAG, &s.is_static, NULL, "the ranges of activations are fixed, as seen on samples"},
        {"--calibrate", OPT_LIST, &s.calibrate, "DATA", "samples of what the model will see (repeat NAME=FILE.npy)"},
        {"--samples", OPT_COUNT, &s.samples, "N", "how many of them, evenly chosen; default 256"},
        {"--method", OPT_TEXT, &s.method, "NAME",
         "range of an activation: minmax, percentile, entropy, mse; default minmax"},
        {"--percentile", OPT_REAL, &s.percentile, "P", "how much lies inside the range; default 99.99"},
        {"--equalize", OPT_FLAG, &s.equalize, NULL, "even out neighbouring convolutions (depthwise networks)"},
        {"--bias-correction", OPT_FLAG, &s.bias_correction, NULL,
         "take the mean error of channels out of their biases"},
        {"--smooth", OPT_REAL, &s.smooth, "ALPHA", "move outliers of activations into weights; 0.5 is usual"},
        {"--embeddings", OPT_TEXT, &s.embeddings, "FORM", "tables of words: int8, int4 or keep; default int8"},
        {"--keep", OPT_LIST, &s.keep, "NODE", "leave this node in float (may be repeated)"},
        {"--per-tensor", OPT_FLAG, &s.per_tensor, NULL, "one scale for a weight, not one for every channel"},
        {"--signed", OPT_FLAG, &s.is_signed, NULL, "activations as signed bytes"},
        {"--symmetric", OPT_FLAG, &s.symmetric, NULL, "activations without a zero point"},
        {"--narrow-weights", OPT_FLAG, &s.narrow, NULL, "7-bit weights, for runtimes whose products saturate"},
        {"--eval", OPT_LIST, &s.eval, "DATA", "measure accuracy before and after on data with labels"},
        {"--labels", OPT_TEXT, &s.labels, "FILE.npy", "the class of every sample of --eval"},
        {"--max-loss", OPT_REAL, &s.max_loss, "X", "keep layers in float until no more than X of the score is lost"},
        {"--measure", OPT_FLAG, &s.measure, NULL, "time the layers, keep in float what gains nothing"},
        {"--report", OPT_TEXT, &s.report, "FILE", "the report as a picture (.svg) or as .json, too"},
        {"--json", OPT_FLAG, &s.as_json, NULL, "the report as one JSON object on stdout"},
        {"--preset", OPT_TEXT, &s.preset, "NAME", "how pictures are prepared, instead of preprocess.json"},
        {"--arch", OPT_TEXT, &s.common.arch, "NAME", "resnet18 or mobilenet_v2, for a bare .safetensors"},
        {"--threads", OPT_COUNT, &s.common.threads, "N", "threads; default: the CPUs this process may use"}};
    int status;
    if (!cmd_parse(argc, argv, options, CMD_OPTION_COUNT(options), 1, 1, &paths, &status)) return status;
    status = execute(argv[0], paths.items[0], &s);
    cmd_list_free(&paths);
    cmd_list_free(&s.calibrate);
    cmd_list_free(&s.eval);
    cmd_list_free(&s.keep);
    return status;
}

/* cmd_quantize_report.c - what `wok quantize` did: a table, JSON. */
#include "cmd_quantize.h"

#include <math.h>
#include <string.h>

static const char *decibels(double value, char buffer[16]) {
    if (isnan(value)) return "-";
    if (value > 200) return "exact";
    snprintf(buffer, 16, "%.1f", value);
    return buffer;
}

static const char *microseconds(double value, char buffer[16]) {
    if (value < 0) return "-";
    snprintf(buffer, 16, "%.1f", value);
    return buffer;
}

static const char *gain(const wok_quant_layer *l, char buffer[16]) {
    if (l->float_us < 0 || l->int8_us <= 0) return "-";
    snprintf(buffer, 16, "x%.2f", l->float_us / l->int8_us);
    return buffer;
}

static void print_layer(const wok_quant_layer *l, int width) {
    char alone[16], all[16], before[16], after[16], times[16];
    printf("%-*s  %-11s  %7s  %7s  %9s  %9s  %6s  %s%s%s\n", width, l->name, l->op, decibels(l->snr_db, alone),
           decibels(l->snr_total_db, all), microseconds(l->float_us, before), microseconds(l->int8_us, after),
           gain(l, times), l->quantised ? l->form : "float", l->reason ? ": " : "", l->reason ? l->reason : "");
}

static void print_fixes(const wok_quant_summary *s) {
    const struct {
        int count;
        const char *one, *many;
    } fixes[] = {{s->folded, "batch normalisation folded", "batch normalisations folded"},
                 {s->equalised, "pair of layers equalised", "pairs of layers equalised"},
                 {s->smoothed, "LayerNormalization smoothed", "LayerNormalizations smoothed"},
                 {s->corrected, "bias corrected", "biases corrected"}};
    for (size_t i = 0; i < sizeof fixes / sizeof *fixes; i++)
        if (fixes[i].count) printf("%d %s\n", fixes[i].count, fixes[i].count == 1 ? fixes[i].one : fixes[i].many);
}

void quant_report_table(const quant_about *about, const wok_quant_report *report) {
    const wok_quant_summary *s = wok_quant_report_summary(report);
    int width = 5;
    for (int i = 0; i < s->layers; i++) {
        int length = (int)strlen(wok_quant_report_layer(report, i)->name);
        if (length > width) width = length < 60 ? length : 60;
    }
    printf("%-*s  %-11s  %7s  %7s  %9s  %9s  %6s  %s\n", width, "layer", "operator", "alone", "in all", "float us",
           "int8 us", "gain", "became");
    for (int i = 0; i < s->layers; i++) print_layer(wok_quant_report_layer(report, i), width);
    printf("(alone, in all: signal to noise of the layer's output in dB, where it alone is quantised and where all "
           "are)\n\n");
    print_fixes(s);
    printf("%d of %d layers in 8 bits, %.2f -> %.2f MiB", s->quantised, s->layers, (double)s->bytes_before / 1048576.0,
           (double)s->bytes_after / 1048576.0);
    if (!isnan(s->snr_db)) printf(", outputs at %.1f dB", s->snr_db);
    if (about->metric) printf(", %s %.4f -> %.4f", about->metric, s->float_score, s->score);
    printf("\n%s is written\n", about->out);
}

/* ---- JSON ------------------------------------------------------------------------------------------------------------------ */

static void json_time(cmd_json *json, const char *key, double us) {
    json_key(json, key), json_double(json, us < 0 ? NAN : us, 6);
}

static void json_layer(cmd_json *json, const wok_quant_layer *l) {
    json_object(json);
    json_key(json, "name"), json_text(json, l->name);
    json_key(json, "op"), json_text(json, l->op);
    json_key(json, "quantised"), json_bool(json, l->quantised);
    json_key(json, "reason"), json_text(json, l->reason);
    json_key(json, "form"), json_text(json, l->form);
    json_key(json, "snr_db"), json_double(json, l->snr_db, 6);
    json_key(json, "snr_total_db"), json_double(json, l->snr_total_db, 6);
    json_time(json, "float_us", l->float_us);
    json_time(json, "int8_us", l->int8_us);
    json_key(json, "bytes_before"), json_int(json, l->bytes_before);
    json_key(json, "bytes_after"), json_int(json, l->bytes_after);
    json_object_end(json);
}

void quant_report_json(const quant_about *about, const wok_quant_report *report, FILE *file) {
    const wok_quant_summary *s = wok_quant_report_summary(report);
    cmd_json json;
    json_start(&json, file);
    json_object(&json);
    json_key(&json, "model"), json_text(&json, about->model);
    json_key(&json, "output"), json_text(&json, about->out);
    json_key(&json, "mode"), json_text(&json, about->mode);
    json_key(&json, "layers"), json_array(&json);
    for (int i = 0; i < s->layers; i++) json_layer(&json, wok_quant_report_layer(report, i));
    json_array_end(&json);
    json_key(&json, "quantised"), json_int(&json, s->quantised);
    json_key(&json, "folded"), json_int(&json, s->folded);
    json_key(&json, "equalised"), json_int(&json, s->equalised);
    json_key(&json, "smoothed"), json_int(&json, s->smoothed);
    json_key(&json, "corrected"), json_int(&json, s->corrected);
    json_key(&json, "bytes_before"), json_int(&json, s->bytes_before);
    json_key(&json, "bytes_after"), json_int(&json, s->bytes_after);
    json_key(&json, "snr_db"), json_double(&json, s->snr_db, 6);
    json_key(&json, "metric"), json_text(&json, about->metric);
    json_key(&json, "float_score"), json_double(&json, s->float_score, 9);
    json_key(&json, "score"), json_double(&json, s->score, 9);
    json_object_end(&json);
    json_finish(&json);
}

/* cmd_quantize_svg.c - what `wok quantize` did, as a picture: a bar of signal to noise a layer, and its times. */
#include "cmd_quantize.h"

#include <math.h>
#include <string.h>

enum { NAME_X = 16, BAR_X = 330, BAR_WIDTH = 300, TIME_X = 720, TIME_WIDTH = 200, TOP = 92, ROW = 20 };
#define GREEN "#1b7f5c"
#define GREY "#a9b1b8"
#define INK "#1d2329"

/* The text between tags. XML allows neither control characters nor bytes that are no UTF-8. */
static void put_text(FILE *file, const char *text) {
    const unsigned char *c = (const unsigned char *)text;
    for (size_t left = strlen(text); left > 0;) {
        int length = cmd_utf8_length(c, left);
        if (*c == '<')
            fputs("&lt;", file);
        else if (*c == '&')
            fputs("&amp;", file);
        else if (*c == '>')
            fputs("&gt;", file);
        else if (length == 0 || *c < 0x20)
            fputc('?', file);
        else
            fwrite(c, 1, (size_t)length, file);
        c += length ? length : 1;
        left -= (size_t)(length ? length : 1);
    }
}

/* Long names differ at their ends; not inside a UTF-8 sequence. */
static const char *tail(const char *name, size_t most) {
    size_t length = strlen(name), skip = length > most ? length - most : 0;
    while (((unsigned char)name[skip] & 0xC0) == 0x80) skip++;
    return name + skip;
}

static void bar(FILE *file, double x, double y, double width, double height, const char *colour) {
    if (width > 0)
        fprintf(file, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"/>\n", x, y, width, height,
                colour);
}

static void label(FILE *file, double x, double y, const char *anchor, const char *text) {
    fprintf(file, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor);
    put_text(file, text);
    fputs("</text>\n", file);
}

typedef struct scale {
    double most_db, most_us; /* 0: nothing to show */
} scale;

/* Bars end at 80 dB. 0, that is no bar: not known, or no noise at all. */
static double shown_db(double value) {
    return isnan(value) || value < 0 || value > 200 ? 0 : fmin(value, 80);
}

static scale find_scale(const wok_quant_report *report, int layers) {
    scale s = {20, 0};
    for (int i = 0; i < layers; i++) {
        const wok_quant_layer *l = wok_quant_report_layer(report, i);
        s.most_db = fmax(s.most_db, fmax(shown_db(l->snr_db), shown_db(l->snr_total_db)));
        s.most_us = fmax(s.most_us, fmax(l->float_us, l->int8_us));
    }
    s.most_db = 10 * ceil(s.most_db / 10);
    return s;
}

static void put_axis(FILE *file, const scale *s, int layers) {
    char text[32];
    int bottom = TOP + layers * ROW;
    for (int db = 0; db <= (int)s->most_db; db += 10) {
        double x = BAR_X + BAR_WIDTH * db / s->most_db;
        fprintf(file, "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" stroke=\"#e3e6e9\"/>\n", x, TOP - 4, x,
                bottom);
        snprintf(text, sizeof text, "%d%s", db, db ? "" : " dB");
        label(file, x, TOP - 8, "middle", text);
    }
    if (s->most_us > 0) {
        snprintf(text, sizeof text, "time, up to %.0f us", s->most_us);
        label(file, TIME_X, TOP - 8, "start", text);
    }
}

static void put_layer(FILE *file, const scale *s, const wok_quant_layer *l, int y) {
    char text[48];
    const char *name = tail(l->name, 42);
    fprintf(file, "<g><title>");
    put_text(file, l->name);
    fprintf(file, " (%s): ", l->op);
    put_text(file, l->quantised ? l->form : l->reason ? l->reason : "float");
    fprintf(file, "</title>\n");
    fprintf(file, "<text x=\"%d\" y=\"%d\">%s", NAME_X, y + 14, name == l->name ? "" : "&#8230;");
    put_text(file, name);
    fputs("</text>\n", file);
    double alone = shown_db(l->snr_db), all = shown_db(l->snr_total_db);
    bar(file, BAR_X, y + 4, BAR_WIDTH * alone / s->most_db, ROW - 8, l->quantised ? GREEN : GREY);
    if (all > 0) bar(file, BAR_X + BAR_WIDTH * all / s->most_db - 1, y + 1, 3, ROW - 2, INK);
    if (!isnan(l->snr_db))
        snprintf(text, sizeof text, "%.1f%s", l->snr_db, l->quantised ? "" : ", float");
    else
        snprintf(text, sizeof text, "%s", l->quantised ? "8 bits" : "float");
    label(file, BAR_X + BAR_WIDTH + 8, y + 14, "start", text);
    if (s->most_us > 0) {
        bar(file, TIME_X, y + 3, TIME_WIDTH * fmax(l->float_us, 0) / s->most_us, 6, GREY);
        bar(file, TIME_X, y + 10, TIME_WIDTH * fmax(l->int8_us, 0) / s->most_us, 6, GREEN);
        if (l->float_us > 0 && l->int8_us > 0) {
            snprintf(text, sizeof text, "x%.2f", l->float_us / l->int8_us);
            label(file, TIME_X + TIME_WIDTH + 8, y + 14, "start", text);
        }
    }
    fprintf(file, "</g>\n");
}

static void put_title(FILE *file, const quant_about *about, const wok_quant_summary *s) {
    fprintf(file, "<text x=\"%d\" y=\"28\" font-size=\"18\" font-weight=\"bold\">", NAME_X);
    put_text(file, tail(about->model, 80));
    fprintf(file, ", %s int8</text>\n<text x=\"%d\" y=\"50\">%d of %d layers in 8 bits, %.2f to %.2f MiB", about->mode,
            NAME_X, s->quantised, s->layers, (double)s->bytes_before / 1048576.0, (double)s->bytes_after / 1048576.0);
    if (!isnan(s->snr_db)) fprintf(file, ", outputs at %.1f dB", s->snr_db);
    if (about->metric) fprintf(file, ", %s %.4f to %.4f", about->metric, s->float_score, s->score);
    fprintf(file, "</text>\n");
}

/* What the colours mean, below the rows. */
static void put_legend(FILE *file, int y, bool times) {
    bar(file, NAME_X, y, 14, 10, GREEN);
    label(file, NAME_X + 20, y + 10, "start", "8 bits: signal to noise of the layer alone");
    bar(file, BAR_X, y - 3, 3, 16, INK);
    label(file, BAR_X + 10, y + 10, "start", "with all layers quantised");
    bar(file, BAR_X + 200, y, 14, 10, GREY);
    label(file, BAR_X + 220, y + 10, "start", times ? "float (kept; and its time)" : "kept in float");
}

void quant_report_svg(const quant_about *about, const wok_quant_report *report, FILE *file) {
    const wok_quant_summary *s = wok_quant_report_summary(report);
    scale sizes = find_scale(report, s->layers);
    int bottom = TOP + s->layers * ROW, height = bottom + 44, width = sizes.most_us > 0 ? 1000 : 720;
    fprintf(file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" "
            "font-family=\"sans-serif\" font-size=\"12\" fill=\"" INK "\">\n<rect width=\"%d\" height=\"%d\" "
            "fill=\"#ffffff\"/>\n",
            width, height, width, height, width, height);
    put_title(file, about, s);
    put_axis(file, &sizes, s->layers);
    for (int i = 0; i < s->layers; i++) put_layer(file, &sizes, wok_quant_report_layer(report, i), TOP + i * ROW);
    put_legend(file, bottom + 20, sizes.most_us > 0);
    fputs("</svg>\n", file);
}

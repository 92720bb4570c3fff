/* cmd_quantize_score.c - how good a model is on labelled data, for `wok quantize --eval`. */
#include "cmd_quantize.h"
#include "wok_build.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>

enum { EVAL_BATCH = 16 };

typedef struct scoring {
    quant_data *d;
    wok_session *session;
    wok_tensor *inputs;
    int64_t right;  /* accuracy */
    float *vectors; /* of every text, in the file's order: the mean over its tokens */
    int64_t width;
} scoring;

static wok_status fail(const scoring *s, wok_status status, const char *format, ...) WOK_PRINTF(3, 4);
static wok_status fail(const scoring *s, wok_status status, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(s->d->error, sizeof s->d->error, format, args);
    va_end(args);
    return wok_ctx_fail(s->d->ctx, status, "%s", s->d->error);
}

static int64_t place_of(const quant_data *d, int64_t row) {
    return d->place ? d->place[row] : row;
}

/* [rows, classes]; further axes are 1. */
static wok_status count_right(scoring *s, const wok_tensor *y, int64_t first, int64_t rows) {
    const float *scores = y->data;
    int axes = 0;
    for (int i = 1; i < y->rank; i++) axes += y->dims[i] != 1;
    if (axes > 1) return fail(s, WOK_ERR_UNSUPPORTED, "the model's first output is no list of scores, one a class");
    int64_t width = (int64_t)(y->bytes / sizeof(float)) / rows;
    for (int64_t r = 0; r < rows; r++, scores += width) {
        int64_t best = 0;
        for (int64_t k = 1; k < width; k++)
            if (scores[k] > scores[best]) best = k;
        double want = s->d->wanted[place_of(s->d, first + r)];
        if (want >= (double)width)
            return fail(s, WOK_ERR_VALUE, "a label is %.0f, but the model has %lld classes", want, (long long)width);
        s->right += (double)best == want;
    }
    return WOK_OK;
}

/* [rows, width], or [rows, tokens, width]: then the mean over the tokens. */
static wok_status keep_vectors(scoring *s, const wok_tensor *y, int64_t first, int64_t rows) {
    const quant_data *d = s->d;
    if (y->rank != 2 && y->rank != 3)
        return fail(s, WOK_ERR_UNSUPPORTED, "the model's first output is no list of vectors");
    int64_t tokens = y->rank == 3 ? y->dims[1] : 1, width = y->dims[y->rank - 1];
    if (!s->vectors) {
        s->width = width;
        s->vectors = calloc((size_t)(d->rows * width) + 1, sizeof *s->vectors);
        if (!s->vectors) return fail(s, WOK_ERR_MEMORY, "out of memory");
    }
    for (int64_t r = 0; r < rows; r++) {
        const float *x = (const float *)y->data + r * tokens * width;
        int64_t count = d->lengths && y->rank == 3 ? d->lengths[first + r] : tokens;
        float *out = s->vectors + place_of(d, first + r) * width;
        for (int64_t k = 0; k < width; k++) {
            double sum = 0;
            for (int64_t t = 0; t < count; t++) sum += (double)x[t * width + k];
            out[k] = (float)(sum / (double)count);
        }
    }
    return WOK_OK;
}

static wok_status run_rows(scoring *s, const quant_group *g, int64_t at, int64_t rows, int64_t first) {
    quant_group_slice(s->d, g, at, rows, s->inputs);
    for (int i = 0; i < wok_model_input_count(s->d->model); i++) {
        const wok_tensor *t = &s->inputs[i];
        if (!t->data) continue;
        wok_status status = wok_session_set_input(s->session, i, t->dtype, t->dims, t->rank, t->data, t->bytes);
        if (status != WOK_OK) return fail(s, status, "%s", wok_session_error(s->session));
    }
    wok_status status = wok_session_run(s->session);
    if (status != WOK_OK) return fail(s, status, "%s", wok_session_error(s->session));
    const wok_tensor *y = wok_session_output(s->session, 0);
    if (y->dtype != WOK_F32 || y->rank < 1 || y->dims[0] != rows || y->bytes == 0)
        return fail(s, WOK_ERR_UNSUPPORTED, "the model's first output has no f32 row for every sample");
    return s->d->metric == QUANT_ACCURACY ? count_right(s, y, first, rows) : keep_vectors(s, y, first, rows);
}

static double cosine(const float *a, const float *b, int64_t n) {
    double dot = 0, aa = 0, bb = 0;
    for (int64_t i = 0; i < n; i++) {
        dot += (double)a[i] * b[i];
        aa += (double)a[i] * a[i];
        bb += (double)b[i] * b[i];
    }
    return aa > 0 && bb > 0 ? dot / sqrt(aa * bb) : 0;
}

typedef struct ranked {
    double value;
    int64_t index;
} ranked;

static int by_value(const void *a, const void *b) {
    double x = ((const ranked *)a)->value, y = ((const ranked *)b)->value;
    return (x > y) - (x < y);
}

/* values become their ranks; ties share their mean. */
static void to_ranks(double *values, int64_t n, ranked *order) {
    for (int64_t i = 0; i < n; i++) order[i] = (ranked){values[i], i};
    qsort(order, (size_t)n, sizeof *order, by_value);
    for (int64_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && order[end].value <= order[i].value;) end++;
        for (int64_t k = i; k < end; k++) values[order[k].index] = (double)(i + end - 1) / 2;
    }
}

static double correlation(const double *a, const double *b, int64_t n) {
    double ma = 0, mb = 0, ab = 0, aa = 0, bb = 0;
    for (int64_t i = 0; i < n; i++) ma += a[i] / (double)n, mb += b[i] / (double)n;
    for (int64_t i = 0; i < n; i++) {
        ab += (a[i] - ma) * (b[i] - mb);
        aa += (a[i] - ma) * (a[i] - ma);
        bb += (b[i] - mb) * (b[i] - mb);
    }
    return aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : 0;
}

static wok_status spearman(const scoring *s, double *score) {
    int64_t n = s->d->wanted_count;
    double *a = malloc(2 * (size_t)n * sizeof *a), *b = a + n;
    ranked *order = malloc((size_t)n * sizeof *order);
    if (a && order) {
        for (int64_t i = 0; i < n; i++) {
            const float *x = s->vectors + 2 * i * s->width;
            a[i] = cosine(x, x + s->width, s->width);
            b[i] = s->d->wanted[i];
        }
        to_ranks(a, n, order);
        to_ranks(b, n, order);
        *score = correlation(a, b, n);
    }
    bool good = a && order;
    free(a);
    free(order);
    return good ? WOK_OK : fail(s, WOK_ERR_MEMORY, "out of memory");
}

wok_status quant_data_score(void *user, wok_session *session, double *score) {
    quant_data *d = user;
    scoring s = {.d = d, .session = session};
    s.inputs = calloc((size_t)wok_model_input_count(d->model) + 1, sizeof *s.inputs);
    wok_status status = s.inputs ? WOK_OK : fail(&s, WOK_ERR_MEMORY, "out of memory");
    int64_t first = 0, most = d->step > 1 ? d->step : EVAL_BATCH;
    for (int g = 0; g < d->group_count && status == WOK_OK; g++) {
        const quant_group *group = &d->groups[g];
        for (int64_t at = 0; at < group->rows && status == WOK_OK; at += most) {
            int64_t rows = group->rows - at < most ? group->rows - at : most;
            status = run_rows(&s, group, at, rows, first + at);
            cmd_progress("scoring", first + at + rows, d->rows);
        }
        first += group->rows;
    }
    if (status == WOK_OK && d->metric == QUANT_SPEARMAN)
        status = spearman(&s, score);
    else if (status == WOK_OK)
        *score = (double)s.right / (double)d->rows;
    free(s.vectors);
    free(s.inputs);
    return status;
}

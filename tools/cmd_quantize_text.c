/* cmd_quantize_text.c - samples for `wok quantize` from texts.
 *
 * Texts of one length in tokens make one group, so that nothing has to be padded. Where the model fixes the sequence, all are
 * padded to it. */
#include "cmd_quantize.h"

#if WOK_HAVE_TEXT
#include "cmd_lines.h"
#include "cmd_model.h"
#include "wok_text.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- files of texts ------------------------------------------------------------------------------------------------------- */

typedef enum form { LINES, TABS, COMMAS } form;
enum { MAX_COLUMNS = 3 };

typedef struct table {
    const char *name;
    form form;
    char *data, *at, *end; /* the whole file; what is not read yet */
    int columns;           /* of every record: text, label; or text, text, score */
    wok_text_item *texts;  /* point into data; one or two a record */
    double *wanted;
    int64_t records, room, texts_each;
} table;

static int read_file(table *t) {
    FILE *file = fopen(t->name, "rb");
    size_t bytes = 0, room = 0, got = 1;
    if (!file) return cmd_error("%s: %s", t->name, strerror(errno));
    int status = 0;
    while (got && !status) {
        if (bytes + 1 >= room) {
            char *more = realloc(t->data, room = 2 * room + 65536);
            if (!more)
                status = cmd_error("out of memory");
            else
                t->data = more;
        }
        if (status) break;
        got = fread(t->data + bytes, 1, room - bytes - 1, file);
        bytes += got;
    }
    if (!status && ferror(file)) status = cmd_error("%s: %s", t->name, strerror(errno ? errno : EIO));
    fclose(file);
    if (status) return status;
    t->at = t->data;
    t->end = t->data + bytes;
    *t->end = 0;
    return 0;
}

/* A field in quotes: "" is a quote, anything else stands for itself, line ends too. Closes up in place. */
static wok_text_item quoted(table *t) {
    char *from = t->at + 1, *to = t->at;
    wok_text_item field = {to, 0, NULL, 0};
    for (; from < t->end; from++) {
        if (*from == '"' && ++from < t->end && *from != '"') break;
        if (from < t->end) *to++ = *from;
    }
    t->at = from < t->end ? from : t->end;
    field.length = (size_t)(to - field.text);
    return field;
}

static wok_text_item plain(table *t, char separator) {
    wok_text_item field = {t->at, 0, NULL, 0};
    while (t->at < t->end && *t->at != '\n' && (separator == 0 || *t->at != separator)) t->at++;
    field.length = (size_t)(t->at - field.text);
    bool ends = t->at == t->end || *t->at == '\n';
    if (ends && field.length && field.text[field.length - 1] == '\r') field.length--;
    return field;
}

/* The fields of one record; the number of them, or MAX_COLUMNS + 1 if there are more. */
static int read_record(table *t, wok_text_item fields[MAX_COLUMNS]) {
    const char separator = t->form == TABS ? '\t' : t->form == COMMAS ? ',' : 0;
    int count = 0;
    for (;;) {
        wok_text_item field = t->form == COMMAS && t->at < t->end && *t->at == '"' ? quoted(t) : plain(t, separator);
        while (t->at < t->end && *t->at != '\n' && (separator == 0 || *t->at != separator)) t->at++;
        if (count < MAX_COLUMNS) fields[count] = field;
        if (count <= MAX_COLUMNS) count++;
        if (t->at >= t->end || *t->at == '\n') break;
        t->at++;
    }
    t->at += t->at < t->end;
    return count;
}

static bool to_number(const wok_text_item *field, double *value) {
    char buffer[64], *end;
    if (field->length == 0 || field->length >= sizeof buffer) return false;
    memcpy(buffer, field->text, field->length);
    buffer[field->length] = 0;
    *value = strtod(buffer, &end);
    return end != buffer && *end == 0 && isfinite(*value);
}

static int grow(table *t) {
    t->room = 2 * t->room + 64;
    wok_text_item *texts = realloc(t->texts, (size_t)(2 * t->room) * sizeof *texts);
    if (texts) t->texts = texts;
    double *wanted = realloc(t->wanted, (size_t)t->room * sizeof *wanted);
    if (wanted) t->wanted = wanted;
    return texts && wanted ? 0 : cmd_error("out of memory");
}

static int add_record(table *t, const wok_text_item *fields, int count, int64_t number) {
    double value = 0;
    if (t->columns == 0) {
        t->columns = count;
        t->texts_each = count == 3 ? 2 : 1;
    }
    if (count > MAX_COLUMNS)
        return cmd_error(
            "%s has more than %d columns in record %lld: it may hold a text, a text and its class, or two texts "
            "and their score",
            t->name, MAX_COLUMNS, (long long)number);
    if (count != t->columns)
        return cmd_error("%s has %d columns in record %lld, but %d before", t->name, count, (long long)number,
                         t->columns);
    if (count > 1 && !to_number(&fields[count - 1], &value)) {
        if (number == 1) return 0; /* the names of the columns */
        return cmd_error("%s has no number in the last column of record %lld", t->name, (long long)number);
    }
    if (count == 2 && (value < 0 || value != floor(value)))
        return cmd_error("%s: the class in record %lld is no whole number from 0", t->name, (long long)number);
    if (t->records == t->room && grow(t)) return 1;
    for (int i = 0; i < t->texts_each; i++) t->texts[t->records * t->texts_each + i] = fields[i];
    t->wanted[t->records++] = value;
    return 0;
}

/* Blank lines hold nothing, but where every line is a text they are empty texts: those teach nothing either. */
static int parse(table *t) {
    for (int64_t number = 1; t->at < t->end; number++) {
        wok_text_item fields[MAX_COLUMNS];
        int count = read_record(t, fields);
        if (count == 1 && fields[0].length == 0) continue;
        int status = add_record(t, fields, count, number);
        if (status) return status;
    }
    return t->records ? 0 : cmd_error("%s holds no texts", t->name);
}

/* ---- texts to tokens ------------------------------------------------------------------------------------------------------- */

typedef enum role { IDS, MASK, TYPES, POSITIONS } role;

static role role_of(const char *name) {
    if (strstr(name, "mask")) return MASK;
    if (strstr(name, "type") || strstr(name, "segment")) return TYPES;
    return strstr(name, "position") ? POSITIONS : IDS;
}

typedef struct line {
    size_t start;           /* in `ids` and `types` */
    int32_t length, tokens; /* with and without padding */
    int64_t index;
} line;

typedef struct tokens {
    wok_tokenizer *tokenizer;
    wok_encoding *encoding;
    wok_encode_options how;
    int32_t *ids, *types;
    size_t used, room;
    line *lines;
} tokens;

/* The longest sequence is what the model fixes, else the least that tokenizer and position table allow. */
static int settle_length(const quant_data *d, tokens *t) {
    int64_t most = wok_tokenizer_max_length(t->tokenizer), positions = cmd_model_positions(d->model);
    if (positions > 0 && (most == 0 || positions < most)) most = positions;
    for (int i = 0; i < wok_model_input_count(d->model); i++) {
        const wok_value_info *info = wok_model_input(d->model, i);
        if (info->rank != 2 || (info->dtype != WOK_I64 && info->dtype != WOK_I32 && info->dtype != WOK_F32))
            return cmd_error("%s does not read texts: input %s is no [batch, sequence] of token ids", d->path,
                             info->name);
        if (info->dims[1] > 0) most = t->how.pad_length = (int32_t)info->dims[1];
    }
    t->how.max_length = most < INT32_MAX ? (int32_t)most : 0;
    return 0;
}

static int encode(tokens *t, const wok_text_item *text, int64_t index) {
    if (wok_tokenizer_encode(t->tokenizer, &t->how, text->text, text->length, NULL, 0, t->encoding) != WOK_OK)
        return cmd_error("%s", wok_encoding_error(t->encoding));
    size_t length = wok_encoding_size(t->encoding);
    if (length == 0) return cmd_error("text %lld has no tokens", (long long)index + 1);
    if (t->used + length > t->room) {
        t->room = 2 * t->room + length + 4096;
        int32_t *ids = realloc(t->ids, t->room * sizeof *ids);
        if (ids) t->ids = ids;
        int32_t *types = realloc(t->types, t->room * sizeof *types);
        if (types) t->types = types;
        if (!ids || !types) return cmd_error("out of memory");
    }
    const int32_t *mask = wok_encoding_attention_mask(t->encoding);
    line *to = &t->lines[index];
    *to = (line){t->used, (int32_t)length, 0, index};
    memcpy(t->ids + t->used, wok_encoding_ids(t->encoding), length * sizeof *t->ids);
    memcpy(t->types + t->used, wok_encoding_type_ids(t->encoding), length * sizeof *t->types);
    for (size_t i = 0; i < length; i++) to->tokens += mask[i];
    t->used += length;
    return 0;
}

static int by_length(const void *a, const void *b) {
    const line *x = a, *y = b;
    if (x->length != y->length) return x->length < y->length ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

static void fill_row(const tokens *t, const line *from, role what, wok_tensor *to, int64_t row) {
    int64_t at = row * from->length;
    for (int32_t i = 0; i < from->length; i++, at++) {
        int32_t value = what == IDS     ? t->ids[from->start + (size_t)i]
                        : what == MASK  ? i < from->tokens
                        : what == TYPES ? t->types[from->start + (size_t)i]
                                        : i;
        if (to->dtype == WOK_I64)
            ((int64_t *)to->data)[at] = value;
        else if (to->dtype == WOK_I32)
            ((int32_t *)to->data)[at] = value;
        else
            ((float *)to->data)[at] = (float)value;
    }
}

/* Lines [first, first + rows), all of one length. Optional positions keep their default. */
static int make_group(quant_data *d, const tokens *t, int64_t first, int64_t rows) {
    const int64_t dims[2] = {rows, t->lines[first].length};
    quant_group *g = quant_data_group(d, rows);
    if (!g) return 1;
    for (int i = 0; i < wok_model_input_count(d->model); i++) {
        const wok_value_info *info = wok_model_input(d->model, i);
        role what = role_of(info->name);
        if (what == POSITIONS && info->optional) continue;
        if (!quant_tensor_alloc(d, &g->inputs[i], info->dtype, 2, dims)) return 1;
        for (int64_t r = 0; r < rows; r++) fill_row(t, &t->lines[first + r], what, &g->inputs[i], r);
    }
    return 0;
}

static int make_groups(quant_data *d, tokens *t, int64_t count) {
    qsort(t->lines, (size_t)count, sizeof *t->lines, by_length);
    d->place = malloc((size_t)count * sizeof *d->place);
    d->lengths = malloc((size_t)count * sizeof *d->lengths);
    if (!d->place || !d->lengths) return cmd_error("out of memory");
    for (int64_t i = 0; i < count; i++) d->place[i] = t->lines[i].index, d->lengths[i] = t->lines[i].tokens;
    for (int64_t i = 0, end; i < count; i = end) {
        for (end = i + 1; end < count && t->lines[end].length == t->lines[i].length;) end++;
        if (make_group(d, t, i, end - i)) return 1;
    }
    return 0;
}

static int encode_all(quant_data *d, const table *from, tokens *t, int64_t count, int64_t all) {
    for (int64_t i = 0; i < count; i++) {
        if (encode(t, &from->texts[quant_choose(i, count, all)], i)) return 1;
        cmd_progress("reading texts", i + 1, count);
    }
    return make_groups(d, t, count);
}

static int use_table(quant_data *d, table *from) {
    char place[4096];
    tokens t = {.how = {.size = sizeof t.how}};
    if (!cmd_text_place(d->path, place, sizeof place))
        return cmd_error("%s is a file of texts, but there is no tokenizer.json or vocab.txt with %s", from->name,
                         d->path);
    int64_t all = from->records * from->texts_each, count = d->limit > 0 && d->limit < all ? d->limit : all;
    int status = 0;
    if (wok_tokenizer_load(d->ctx, place, NULL, &t.tokenizer) != WOK_OK ||
        wok_encoding_create(t.tokenizer, &t.encoding) != WOK_OK)
        status = cmd_error("%s", wok_ctx_error(d->ctx));
    else if (!(t.lines = calloc((size_t)count, sizeof *t.lines)))
        status = cmd_error("out of memory");
    if (!status) status = settle_length(d, &t);
    if (!status) status = encode_all(d, from, &t, count, all);
    wok_encoding_free(&t.encoding);
    wok_tokenizer_free(&t.tokenizer);
    free(t.ids);
    free(t.types);
    free(t.lines);
    return status;
}

static form form_of(const char *file) {
    size_t length = strlen(file);
    const char *end = length > 4 ? file + length - 4 : "";
    return !strcasecmp(end, ".tsv") ? TABS : !strcasecmp(end, ".csv") ? COMMAS : LINES;
}

int quant_data_texts(quant_data *d, const char *file) {
    table t = {.name = file, .form = form_of(file)};
    int status = read_file(&t);
    if (!status) status = parse(&t);
    if (!status) status = use_table(d, &t);
    if (!status && t.columns > 1) {
        d->metric = t.columns == 2 ? QUANT_ACCURACY : QUANT_SPEARMAN;
        d->wanted_count = t.records;
        d->wanted = t.wanted;
        t.wanted = NULL;
    }
    free(t.data);
    free(t.texts);
    free(t.wanted);
    return status;
}

#else

int quant_data_texts(quant_data *d, const char *file) {
    (void)d;
    return cmd_error("%s is no .npy file, and this build has no text support (utf8proc and jsmn)", file);
}
#endif

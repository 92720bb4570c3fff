/* pipeline.c - texts to batches, batches through the model, outputs to vectors or probabilities.
 *
 * Texts are run longest first, so that a batch holds texts of nearly one length; results go where the caller's order
 * wants them. Sums over tokens and labels are taken in double, in order, so that a result is its text's alone. */
#include "pipeline.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define DEFAULT_BATCH 32

static wok_status fail(wok_text *p, wok_status status, const char *format, ...) WOK_PRINTF(3, 4);
static wok_status fail(wok_text *p, wok_status status, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(p->error, sizeof p->error, format, args);
    va_end(args);
    return status;
}

static wok_status grow(wok_text *p, void **ptr, size_t *bytes, size_t count, size_t size) {
    if (count > SIZE_MAX / 2 / size) return fail(p, WOK_ERR_LIMIT, "too many texts");
    wok_status status = wok_ctx_grow(p->shared->ctx, ptr, bytes, count * size);
    return status == WOK_OK ? WOK_OK : fail(p, status, "%s", wok_ctx_error(p->shared->ctx));
}
#define GROW(p, field, count) grow(p, (void **)&(p)->field, &(p)->field##_bytes, count, sizeof *(p)->field)

/* ---- texts to rows -------------------------------------------------------------------------------------------------------- */

static wok_status store(wok_text *p, const wok_text_item *item, size_t number) {
    const struct wok_text_shared *s = p->shared;
    const wok_encode_options options = {
        .size = sizeof options, .max_length = s->max_length, .specials_are_text = s->options.specials_are_text};
    wok_status status = wok_tokenizer_encode(s->tokenizer, &options, item->text, item->length, item->pair,
                                             item->pair_length, p->encoding);
    if (status != WOK_OK) return fail(p, status, "text %zu: %s", number + 1, wok_encoding_error(p->encoding));
    size_t count = wok_encoding_size(p->encoding);
    if (count == 0) return fail(p, WOK_ERR_VALUE, "text %zu has no tokens", number + 1);
    if (count > INT32_MAX) return fail(p, WOK_ERR_LIMIT, "text %zu has too many tokens", number + 1);
    status = GROW(p, ids, p->stored + count);
    if (status == WOK_OK) status = GROW(p, types, p->stored + count);
    if (status != WOK_OK) return status;
    memcpy(p->ids + p->stored, wok_encoding_ids(p->encoding), count * sizeof *p->ids);
    memcpy(p->types + p->stored, wok_encoding_type_ids(p->encoding), count * sizeof *p->types);
    p->rows[number] = (struct wok_text_row){p->stored, (int32_t)count, number};
    p->stored += count;
    return WOK_OK;
}

/* Longest first, equal ones in the caller's order. */
static wok_status sort(wok_text *p, size_t count) {
    size_t longest = 0;
    for (size_t i = 0; i < count; i++)
        if ((size_t)p->rows[i].length > longest) longest = (size_t)p->rows[i].length;
    wok_status status = GROW(p, starts, longest + 2);
    if (status != WOK_OK) return status;
    memset(p->starts, 0, (longest + 2) * sizeof *p->starts);
    for (size_t i = 0; i < count; i++) p->starts[longest - (size_t)p->rows[i].length + 1]++;
    for (size_t i = 1; i <= longest; i++) p->starts[i] += p->starts[i - 1];
    for (size_t i = 0; i < count; i++) p->order[p->starts[longest - (size_t)p->rows[i].length]++] = p->rows[i];
    return WOK_OK;
}

/* ---- rows to the model ------------------------------------------------------------------------------------------------------ */

static void put(void *data, wok_dtype dtype, size_t at, int32_t value) {
    if (dtype == WOK_I64)
        ((int64_t *)data)[at] = value;
    else if (dtype == WOK_I32)
        ((int32_t *)data)[at] = value;
    else
        ((float *)data)[at] = (float)value;
}

/* What the token at `t` of the row is to this input; padding behind the end. */
static int32_t value_of(const wok_text *p, enum wok_role role, const struct wok_text_row *row, int64_t t) {
    bool inside = t < row->length;
    switch (role) {
    case WOK_ROLE_IDS:
        return inside ? p->ids[row->begin + (size_t)t] : wok_tokenizer_pad_id(p->shared->tokenizer);
    case WOK_ROLE_MASK:
        return inside;
    case WOK_ROLE_TYPES:
        return inside ? p->types[row->begin + (size_t)t] : 0;
    default:
        return (int32_t)t;
    }
}

/* One input for `count` rows of the order; a fixed batch is filled up with the last of them. */
static wok_status feed(wok_text *p, enum wok_role role, const struct wok_text_row *rows, size_t count, int64_t batch,
                       int64_t sequence) {
    const struct wok_feed *f = &p->shared->feeds[role];
    size_t cells = (size_t)batch * (size_t)sequence, size = wok_dtype_size(f->dtype);
    if (f->index < 0) return WOK_OK;
    wok_status status = grow(p, &p->feeds[role], &p->feeds_bytes[role], cells, size);
    if (status != WOK_OK) return status;
    for (int64_t b = 0; b < batch; b++) {
        const struct wok_text_row *row = &rows[(size_t)b < count ? (size_t)b : count - 1];
        for (int64_t t = 0; t < sequence; t++)
            put(p->feeds[role], f->dtype, (size_t)(b * sequence + t), value_of(p, role, row, t));
    }
    const int64_t dims[2] = {batch, sequence};
    status = wok_session_set_input(p->session, f->index, f->dtype, dims, 2, p->feeds[role], cells * size);
    return status == WOK_OK ? WOK_OK : fail(p, status, "%s", wok_session_error(p->session));
}

/* ---- the model's output to results -------------------------------------------------------------------------------------------- */

enum { POOL_BITS = 4 };

/* hidden: [tokens, width], the text's own tokens. */
static void pool_one(unsigned mode, const float *hidden, int64_t tokens, size_t width, float *out) {
    for (size_t i = 0; i < width; i++) {
        double sum = 0;
        float most = hidden[i];
        for (int64_t t = 0; t < tokens; t++) {
            float x = hidden[(size_t)t * width + i];
            sum += x;
            if (!(x <= most)) most = x;
        }
        out[i] = mode == WOK_POOLING_CLS ? hidden[i]
                 : mode == WOK_POOLING_MAX
                     ? most
                     : (float)(sum / (mode == WOK_POOLING_MEAN ? (double)tokens : sqrt((double)tokens)));
    }
}

static size_t pool(unsigned set, const float *hidden, int64_t tokens, size_t width, float *out) {
    size_t used = 0;
    for (int bit = 0; bit < POOL_BITS; bit++)
        if (set >> bit & 1) {
            pool_one(1u << bit, hidden, tokens, width, out + used);
            used += width;
        }
    return used;
}

static void normalize(float *x, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += (double)x[i] * x[i];
    double length = sqrt(sum) > 1e-12 ? sqrt(sum) : 1e-12;
    for (size_t i = 0; i < count; i++) x[i] = (float)(x[i] / length);
}

static void squash(enum wok_squash how, float *x, size_t count) {
    if (how == WOK_SQUASH_NONE) return;
    if (how == WOK_SQUASH_SIGMOID || count == 1) {
        for (size_t i = 0; i < count; i++) x[i] = (float)(1.0 / (1.0 + exp(-(double)x[i])));
        return;
    }
    double most = x[0], sum = 0;
    for (size_t i = 1; i < count; i++) most = x[i] > most ? x[i] : most;
    for (size_t i = 0; i < count; i++) sum += exp(x[i] - most);
    for (size_t i = 0; i < count; i++) x[i] = (float)(exp(x[i] - most) / sum);
}

/* Numbers a text gets out of an output of this shape; 0 if the shape is none that can be used. */
static size_t width_of(const struct wok_text_shared *s, const wok_tensor *y, int64_t batch) {
    if (y->dtype != WOK_F32 || y->rank < 2 || y->dims[0] != batch || y->dims[y->rank - 1] <= 0) return 0;
    size_t width = (size_t)y->dims[y->rank - 1], parts = 0;
    if (y->rank == 2) return width;
    for (int bit = 0; bit < POOL_BITS; bit++) parts += s->pooling >> bit & 1;
    return y->rank == 3 && s->task == WOK_TEXT_EMBED ? parts * width : 0;
}

static void finish_row(const struct wok_text_shared *s, const wok_tensor *y, size_t b, int64_t tokens, float *out) {
    size_t last = (size_t)y->dims[y->rank - 1], width = last;
    if (y->rank == 3) {
        const float *hidden = (const float *)y->data + b * (size_t)y->dims[1] * last;
        width = pool(s->pooling, hidden, tokens < y->dims[1] ? tokens : y->dims[1], last, out);
    } else {
        memcpy(out, (const float *)y->data + b * last, last * sizeof *out);
    }
    if (s->task == WOK_TEXT_CLASSIFY)
        squash(s->squash, out, width);
    else if (s->normalize)
        normalize(out, width);
}

/* Rows of nearly one length; the first is the longest. out NULL: only the width is wanted. */
static wok_status run_batch(wok_text *p, const struct wok_text_row *rows, size_t count, float *out) {
    const struct wok_text_shared *s = p->shared;
    int64_t batch = s->fixed_batch ? s->fixed_batch : (int64_t)count;
    int64_t sequence = s->fixed_sequence ? s->fixed_sequence : rows[0].length;
    for (int role = 0; role < WOK_ROLE_COUNT; role++) {
        wok_status status = feed(p, (enum wok_role)role, rows, count, batch, sequence);
        if (status != WOK_OK) return status;
    }
    wok_status status = wok_session_run(p->session);
    if (status != WOK_OK) return fail(p, status, "%s", wok_session_error(p->session));
    const wok_tensor *y = wok_session_output(p->session, 0);
    size_t width = y ? width_of(s, y, batch) : 0;
    if (width == 0 || (p->width != 0 && width != p->width))
        return fail(p, WOK_ERR_SHAPE, "the model's output %s is no float array of [batch, ...] that fits the task",
                    s->output);
    p->width = width;
    for (size_t b = 0; out && b < count; b++) finish_row(s, y, b, rows[b].length, out + rows[b].number * width);
    return WOK_OK;
}

static wok_status run(wok_text *p, const wok_text_item *items, size_t count, float *out) {
    p->error[0] = 0;
    p->stored = 0;
    wok_status status = GROW(p, rows, count + 1);
    if (status == WOK_OK) status = GROW(p, order, count + 1);
    for (size_t i = 0; i < count && status == WOK_OK; i++) status = store(p, &items[i], i);
    if (status == WOK_OK) status = sort(p, count);
    size_t step = p->shared->fixed_batch     ? (size_t)p->shared->fixed_batch
                  : p->shared->options.batch ? (size_t)p->shared->options.batch
                                             : DEFAULT_BATCH;
    for (size_t i = 0; i < count && status == WOK_OK; i += step)
        status = run_batch(p, p->order + i, count - i < step ? count - i : step, out);
    return status;
}

wok_status wok_text_run(wok_text *p, const wok_text_item *items, size_t count, float *out) {
    if (count == 0) return WOK_OK;
    return items && out ? run(p, items, count, out) : fail(p, WOK_ERR_ARGUMENT, "wok_text_run without items or output");
}

/* ---- the object ------------------------------------------------------------------------------------------------------------------ */

wok_status wok_text_open(struct wok_text_shared *s, wok_text **pipeline) {
    wok_text *p = wok_ctx_alloc(s->ctx, sizeof *p);
    *pipeline = NULL;
    if (!p) return WOK_ERR_MEMORY;
    *p = (wok_text){.shared = s};
    atomic_fetch_add(&s->users, 1);
    const wok_session_options options = {.size = sizeof options, .outputs = &s->output, .output_count = 1};
    wok_status status = wok_session_create(s->model, &options, &p->session);
    if (status == WOK_OK) status = wok_encoding_create(s->tokenizer, &p->encoding);
    if (status == WOK_OK) { /* one empty text: finds the width, and what does not fit */
        status = run(p, &(wok_text_item){"", 0, NULL, 0}, 1, NULL);
        if (status != WOK_OK) wok_ctx_fail(s->ctx, status, "%s", p->error);
    }
    if (status != WOK_OK) wok_text_free(&p);
    *pipeline = p;
    return status;
}

wok_status wok_text_clone(const wok_text *p, wok_text **clone) {
    return wok_text_open(p->shared, clone);
}

void wok_text_free(wok_text **pipeline) {
    if (!pipeline || !*pipeline) return;
    wok_text *p = *pipeline;
    struct wok_text_shared *s = p->shared;
    wok_session_free(&p->session);
    wok_encoding_free(&p->encoding);
    wok_ctx_release(s->ctx, p->ids, p->ids_bytes);
    wok_ctx_release(s->ctx, p->types, p->types_bytes);
    wok_ctx_release(s->ctx, p->rows, p->rows_bytes);
    wok_ctx_release(s->ctx, p->order, p->order_bytes);
    wok_ctx_release(s->ctx, p->starts, p->starts_bytes);
    for (int role = 0; role < WOK_ROLE_COUNT; role++) wok_ctx_release(s->ctx, p->feeds[role], p->feeds_bytes[role]);
    wok_ctx_release(s->ctx, p, sizeof *p);
    wok_text_release(s);
    *pipeline = NULL;
}

size_t wok_text_width(const wok_text *p) {
    return p->width;
}
int32_t wok_text_max_length(const wok_text *p) {
    return p->shared->max_length;
}
wok_model *wok_text_model(const wok_text *p) {
    return p->shared->model;
}
const wok_tokenizer *wok_text_tokenizer(const wok_text *p) {
    return p->shared->tokenizer;
}
const char *wok_text_error(const wok_text *p) {
    return p->error;
}

const char *wok_text_label(const wok_text *p, size_t index) {
    const struct wok_text_shared *s = p->shared;
    if (s->task != WOK_TEXT_CLASSIFY || index >= p->width) return NULL;
    return s->labels[index].text;
}

/* frame.c - the whole call: both texts, truncation, special tokens, padding. */
#include "tokenizer.h"

#include <string.h>

bool wok_take_options(void *to, size_t size, const void *from) {
    memset(to, 0, size);
    if (!from) return true;
    size_t given;
    memcpy(&given, from, sizeof given); /* `size` comes first in every options struct */
    if (given < sizeof given) return false;
    memcpy(to, from, given < size ? given : size);
    return true;
}

/* Lengths of A and B that fit into `room`. Longest first, as Hugging Face counts: the shorter text stays whole if it
 * takes at most half of the room (or what the longer one leaves), otherwise they share, the longer one rounded up. */
static void share(size_t room, size_t *a, size_t *b) {
    size_t *shorter = *a > *b ? b : a, *longer = *a > *b ? a : b;
    size_t rest = *shorter > room ? *shorter : *shorter > room - *shorter ? *shorter : room - *shorter;
    *longer = rest;
    if (*shorter + *longer > room) {
        *shorter = room / 2;
        *longer = room - room / 2;
    }
}

static wok_status truncate(const wok_encode_options *o, size_t room, bool has_pair, size_t *a, size_t *b,
                           wok_encoding *e) {
    size_t total = *a + *b;
    if (total <= room) return WOK_OK;
    e->truncated = true;
    if (room == 0) {
        *a = *b = 0;
    } else if (o->truncation == WOK_LONGEST_FIRST) {
        if (has_pair)
            share(room, a, b);
        else
            *a = room;
    } else {
        bool second = o->truncation == WOK_ONLY_SECOND;
        if (second && !has_pair)
            return wok_encoding_fail(e, WOK_ERR_ARGUMENT, "truncation only_second, but there is no second text");
        size_t *text = second ? b : a, excess = total - room;
        if (*text <= excess)
            return wok_encoding_fail(e, WOK_ERR_ARGUMENT, "the %s text has %zu tokens, too few to lose %zu",
                                     second ? "second" : "first", *text, excess);
        *text -= excess;
    }
    return WOK_OK;
}

static void put(wok_encoding *e, int32_t id, int32_t type, int32_t mask, wok_text_span span) {
    e->rows[e->count] = id;
    e->rows[e->stride + e->count] = type;
    e->rows[2 * e->stride + e->count] = mask;
    if (e->offsets) e->spans[e->count] = span;
    e->count++;
}

static void put_pieces(wok_encoding *e, size_t begin, size_t count, int32_t type) {
    for (size_t i = begin; i < begin + count; i++) put(e, e->pieces[i].id, type, 1, e->pieces[i].span);
}

wok_status wok_encode_frame(const wok_tokenizer *t, const wok_encode_options *o, size_t first, bool has_pair,
                            wok_encoding *e) {
    const struct wok_frame *frame = has_pair ? &t->pair : &t->single;
    size_t specials = o->no_special_tokens ? 0 : (size_t)frame->specials, a = first, b = e->piece_count - first;
    if (o->max_length > 0 && o->truncation != WOK_DO_NOT_TRUNCATE) {
        if ((size_t)o->max_length < specials)
            return wok_encoding_fail(e, WOK_ERR_ARGUMENT, "max_length %d has no room for %zu special tokens",
                                     (int)o->max_length, specials);
        wok_status status = truncate(o, (size_t)o->max_length - specials, has_pair, &a, &b, e);
        if (status != WOK_OK) return status;
    }
    size_t length = specials; /* a frame may repeat a text */
    for (int i = 0; i < frame->count; i++)
        length += frame->items[i].id == WOK_FRAME_A ? a : frame->items[i].id == WOK_FRAME_B ? b : 0;
    size_t padded = length < (size_t)o->pad_length ? (size_t)o->pad_length : length;
    if (o->pad_multiple > 0)
        padded += ((size_t)o->pad_multiple - padded % (size_t)o->pad_multiple) % (size_t)o->pad_multiple;
    if (!WOK_RESERVE(e, rows, 3 * padded + 3) || (e->offsets && !WOK_RESERVE(e, spans, padded + 1))) return e->status;
    e->stride = padded + 1; /* never 0, so that an empty result has pointers */
    for (int i = 0; i < frame->count; i++) {
        int32_t id = frame->items[i].id, type = frame->items[i].type;
        if (id == WOK_FRAME_A)
            put_pieces(e, 0, a, type);
        else if (id == WOK_FRAME_B)
            put_pieces(e, first, b, type);
        else if (!o->no_special_tokens)
            put(e, id, type, 1, (wok_text_span){0, 0});
    }
    while (e->count < padded) put(e, t->pad, 0, 0, (wok_text_span){0, 0});
    return WOK_OK;
}

static bool valid(const wok_encode_options *o) {
    return o->max_length >= 0 && o->pad_length >= 0 && o->pad_multiple >= 0 &&
           (unsigned)o->truncation <= WOK_DO_NOT_TRUNCATE;
}

wok_status wok_tokenizer_encode(const wok_tokenizer *t, const wok_encode_options *options, const char *text,
                                size_t length, const char *pair, size_t pair_length, wok_encoding *e) {
    wok_encode_options o;
    e->count = e->piece_count = 0;
    e->truncated = false;
    e->status = WOK_OK;
    e->error[0] = 0;
    if (!wok_take_options(&o, sizeof o, options) || !valid(&o) || (!text && length > 0))
        return wok_encoding_fail(e, WOK_ERR_ARGUMENT, "options or text of an encode call are not valid");
    if (length > WOK_MAX_TEXT || (pair && pair_length > WOK_MAX_TEXT))
        return wok_encoding_fail(e, WOK_ERR_LIMIT, "a text is longer than %zu bytes", WOK_MAX_TEXT);
    e->offsets = o.offsets;
    e->specials_are_text = o.specials_are_text;
    /* One text that is cut anyway need not be read to its end; of two, both lengths decide. */
    bool cut = o.max_length > 0 && o.truncation != WOK_DO_NOT_TRUNCATE && !pair;
    e->piece_limit = cut ? (size_t)o.max_length : SIZE_MAX;
    if (!wok_encode_text(t, e, text ? text : "", length)) return e->status;
    size_t first = e->piece_count;
    if (pair && !wok_encode_text(t, e, pair, pair_length)) return e->status;
    return wok_encode_frame(t, &o, first, pair != NULL, e);
}

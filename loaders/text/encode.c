/* encode.c - one text to token ids: added tokens, words, pieces. */
#include "tokenizer.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- the encoding object --------------------------------------------------------------------------------------------- */

wok_status wok_encoding_fail(wok_encoding *e, wok_status status, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(e->error, sizeof e->error, format, args);
    va_end(args);
    e->count = 0;
    return e->status = status;
}

bool wok_encoding_reserve(wok_encoding *e, void **ptr, size_t *bytes, size_t need) {
    if (need <= *bytes) return true;
    wok_status status = wok_ctx_grow(e->ctx, ptr, bytes, need);
    if (status != WOK_OK) wok_encoding_fail(e, status, "no memory for an encoding (%zu bytes)", need);
    return status == WOK_OK;
}

wok_status wok_encoding_create(const wok_tokenizer *tokenizer, wok_encoding **encoding) {
    *encoding = NULL;
    wok_encoding *e = wok_ctx_alloc(tokenizer->ctx, sizeof *e);
    if (!e) return WOK_ERR_MEMORY;
    *e = (wok_encoding){.tokenizer = tokenizer, .ctx = tokenizer->ctx};
    *encoding = e;
    return WOK_OK;
}

void wok_encoding_free(wok_encoding **encoding) {
    if (!encoding || !*encoding) return;
    wok_encoding *e = *encoding;
    wok_ctx_release(e->ctx, e->rows, e->rows_bytes);
    wok_ctx_release(e->ctx, e->spans, e->spans_bytes);
    wok_ctx_release(e->ctx, e->pieces, e->pieces_bytes);
    wok_ctx_release(e->ctx, e->normal, e->normal_bytes);
    wok_ctx_release(e->ctx, e->source, e->source_bytes);
    wok_ctx_release(e->ctx, e->pending, e->pending_bytes);
    wok_ctx_release(e->ctx, e->memo, WOK_MEMO_SIZE * sizeof *e->memo);
    wok_ctx_release(e->ctx, e, sizeof *e);
    *encoding = NULL;
}

size_t wok_encoding_size(const wok_encoding *e) {
    return e->count;
}
const int32_t *wok_encoding_ids(const wok_encoding *e) {
    return e->rows;
}
const int32_t *wok_encoding_type_ids(const wok_encoding *e) {
    return e->rows ? e->rows + e->stride : NULL;
}
const int32_t *wok_encoding_attention_mask(const wok_encoding *e) {
    return e->rows ? e->rows + 2 * e->stride : NULL;
}
const wok_text_span *wok_encoding_offsets(const wok_encoding *e) {
    return e->offsets ? e->spans : NULL;
}
bool wok_encoding_truncated(const wok_encoding *e) {
    return e->truncated;
}
const char *wok_encoding_error(const wok_encoding *e) {
    return e->error;
}

/* ---- words and pieces -------------------------------------------------------------------------------------------------- */

static bool push(wok_encoding *e, int32_t id, wok_text_span span) {
    if (!WOK_RESERVE(e, pieces, e->piece_count + 1)) return false;
    e->pieces[e->piece_count++] = (struct wok_piece){id, span};
    return true;
}

/* Where bytes [begin, end) of the normalised text come from. */
static wok_text_span source_of(const wok_encoding *e, size_t begin, size_t end) {
    return e->offsets ? (wok_text_span){e->source[begin].begin, e->source[end - 1].end} : (wok_text_span){0, 0};
}

static bool longer_than(const char *text, size_t length, size_t limit) {
    if (length <= limit) return false;
    size_t count = 0;
    for (size_t i = 0; i < length && count <= limit; i++) count += ((uint8_t)text[i] & 0xc0) != 0x80;
    return count > limit;
}

/* Longest match first; a word of which any part is not in the vocabulary is unknown as a whole. */
static bool push_word(const wok_tokenizer *t, wok_encoding *e, size_t begin, size_t end) {
    size_t mark = e->piece_count;
    if (longer_than(e->normal + begin, end - begin, t->max_word)) return push(e, t->unknown, source_of(e, begin, end));
    uint32_t node = 0;
    for (size_t i = begin, used = 0; i < end; i += used) {
        int32_t id = node == WOK_NO_NODE ? -1 : wok_trie_longest(&t->pieces, node, e->normal + i, end - i, &used);
        if (id < 0) {
            e->piece_count = mark;
            return push(e, t->unknown, source_of(e, begin, end));
        }
        if (!push(e, id, source_of(e, i, i + used))) return false;
        node = t->inner;
    }
    return true;
}

static const uint8_t ascii_class[128] = {
    [9] = WOK_CHAR_SPACE,    [10] = WOK_CHAR_SPACE,   [11] = WOK_CHAR_SPACE,  [12] = WOK_CHAR_SPACE,
    [13] = WOK_CHAR_SPACE,   [' '] = WOK_CHAR_SPACE,  ['!'] = WOK_CHAR_PUNCT, ['"'] = WOK_CHAR_PUNCT,
    ['#'] = WOK_CHAR_PUNCT,  ['$'] = WOK_CHAR_PUNCT,  ['%'] = WOK_CHAR_PUNCT, ['&'] = WOK_CHAR_PUNCT,
    ['\''] = WOK_CHAR_PUNCT, ['('] = WOK_CHAR_PUNCT,  [')'] = WOK_CHAR_PUNCT, ['*'] = WOK_CHAR_PUNCT,
    ['+'] = WOK_CHAR_PUNCT,  [','] = WOK_CHAR_PUNCT,  ['-'] = WOK_CHAR_PUNCT, ['.'] = WOK_CHAR_PUNCT,
    ['/'] = WOK_CHAR_PUNCT,  [':'] = WOK_CHAR_PUNCT,  [';'] = WOK_CHAR_PUNCT, ['<'] = WOK_CHAR_PUNCT,
    ['='] = WOK_CHAR_PUNCT,  ['>'] = WOK_CHAR_PUNCT,  ['?'] = WOK_CHAR_PUNCT, ['@'] = WOK_CHAR_PUNCT,
    ['['] = WOK_CHAR_PUNCT,  ['\\'] = WOK_CHAR_PUNCT, [']'] = WOK_CHAR_PUNCT, ['^'] = WOK_CHAR_PUNCT,
    ['_'] = WOK_CHAR_PUNCT,  ['`'] = WOK_CHAR_PUNCT,  ['{'] = WOK_CHAR_PUNCT, ['|'] = WOK_CHAR_PUNCT,
    ['}'] = WOK_CHAR_PUNCT,  ['~'] = WOK_CHAR_PUNCT,
};

/* BertPreTokenizer's view of the character at `i`: space, sign, or part of a word; -1 without memory. */
static int word_class(const wok_tokenizer *t, wok_encoding *e, size_t i, size_t end, size_t *used) {
    uint8_t byte = (uint8_t)e->normal[i];
    *used = 1;
    if (byte < 0x80) return ascii_class[byte];
    const struct wok_memo *memo = wok_recall(t, e, wok_utf8_get(e->normal + i, end - i, used));
    return memo ? memo->kind : -1;
}

static bool push_words(const wok_tokenizer *t, wok_encoding *e, size_t begin, size_t end) {
    size_t word = begin;
    for (size_t i = begin, used; i < end && e->piece_count <= e->piece_limit; i += used) {
        int kind = word_class(t, e, i, end, &used);
        if (kind == WOK_CHAR_OTHER) continue;
        if (kind < 0) return false;
        if (i > word && !push_word(t, e, word, i)) return false;
        if (kind == WOK_CHAR_PUNCT && !push_word(t, e, i, i + used)) return false;
        word = i + used;
    }
    return word >= end || e->piece_count > e->piece_limit || push_word(t, e, word, end);
}

/* ---- added tokens -------------------------------------------------------------------------------------------------------- */

struct hit {
    size_t begin, end; /* with the white space that the token takes along */
    const struct wok_added *token;
};

/* The character that ends at `end`, and where it begins. */
static int32_t char_before(const char *text, size_t end, size_t *begin) {
    size_t i = end - 1, used;
    while (i > 0 && end - i < 4 && ((uint8_t)text[i] & 0xc0) == 0x80) i--;
    int32_t c = wok_utf8_get(text + i, end - i, &used);
    *begin = i + used == end ? i : end - 1;
    return i + used == end ? c : 0xfffd;
}

static bool stands_alone(const char *text, size_t length, size_t begin, size_t end) {
    size_t unused;
    if (begin > 0 && wok_char_is_word(char_before(text, begin, &unused))) return false;
    return end == length || !wok_char_is_word(wok_utf8_get(text + end, length - end, &unused));
}

static void take_space(const char *text, size_t length, size_t floor, struct hit *hit) {
    size_t step;
    while (hit->token->lstrip && hit->begin > floor && wok_char_is_space(char_before(text, hit->begin, &step)))
        hit->begin = step;
    while (hit->token->rstrip && hit->end < length &&
           wok_char_is_space(wok_utf8_get(text + hit->end, length - hit->end, &step)))
        hit->end += step;
}

/* The leftmost, longest added token at or behind `from`; false at the end. Text before `from` is taken. */
static bool next_added(const wok_tokenizer *t, const wok_encoding *e, const struct wok_trie *trie, const char *text,
                       size_t length, size_t from, struct hit *hit) {
    if (trie->count == 0) return false;
    for (size_t i = from, used; i < length; i += used) {
        used = 1;
        if (trie->root[(uint8_t)text[i]] == 0) continue;
        int32_t index = wok_trie_longest(trie, 0, text + i, length - i, &used);
        if (index < 0) continue;
        *hit = (struct hit){i, i + used, &t->added[index]};
        if (hit->token->special && e->specials_are_text) continue;
        if (hit->token->single_word && !stands_alone(text, length, hit->begin, hit->end)) continue;
        take_space(text, length, from, hit);
        return true;
    }
    return false;
}

/* Text between added tokens that match as written: normalise it, look for those that match normalised text. */
static bool push_between(const wok_tokenizer *t, wok_encoding *e, const char *text, size_t length, uint32_t base) {
    if (length == 0) return true;
    if (!wok_normalize(t, e, text, length, base)) return false;
    struct hit hit;
    size_t from = 0;
    while (next_added(t, e, &t->added_normal, e->normal, e->normal_used, from, &hit)) {
        if (!push_words(t, e, from, hit.begin) || !push(e, hit.token->id, source_of(e, hit.begin, hit.end)))
            return false;
        from = hit.end;
    }
    return push_words(t, e, from, e->normal_used);
}

bool wok_encode_text(const wok_tokenizer *t, wok_encoding *e, const char *text, size_t length) {
    struct hit hit;
    size_t from = 0;
    while (e->piece_count <= e->piece_limit && next_added(t, e, &t->added_raw, text, length, from, &hit)) {
        if (!push_between(t, e, text + from, hit.begin - from, (uint32_t)from) ||
            !push(e, hit.token->id, (wok_text_span){(uint32_t)hit.begin, (uint32_t)hit.end}))
            return false;
        from = hit.end;
    }
    return e->piece_count > e->piece_limit || push_between(t, e, text + from, length - from, (uint32_t)from);
}

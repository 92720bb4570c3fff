/* normalize.c - BertNormalizer: clean text, spaces round CJK, NFD without accents, lower case. */
#include "tokenizer.h"

#include <string.h>

void wok_rules_apply(wok_tokenizer *t) {
    for (int c = 0; c < 128; c++) {
        wok_char_class kind = wok_char_classify(c);
        bool upper = c >= 'A' && c <= 'Z';
        t->ascii[c] = (int16_t)(t->rules.lowercase && upper ? c + 32 : c);
        if (t->rules.clean_text && kind == WOK_CHAR_DROP) t->ascii[c] = -1;
        if (t->rules.clean_text && kind == WOK_CHAR_SPACE) t->ascii[c] = ' ';
    }
}

static bool put(wok_encoding *e, int32_t c, wok_text_span span) {
    if (!WOK_RESERVE(e, normal, e->normal_used + 4)) return false;
    size_t n = wok_utf8_put(c, e->normal + e->normal_used);
    if (e->offsets) {
        if (!WOK_RESERVE(e, source, e->normal_used + n)) return false;
        for (size_t i = 0; i < n; i++) e->source[e->normal_used + i] = span;
    }
    e->normal_used += n;
    return true;
}

static bool put_lower(const wok_tokenizer *t, wok_encoding *e, int32_t c, wok_text_span span) {
    int32_t lower[2] = {c};
    int n = t->rules.lowercase ? wok_char_lower(c, lower) : 1;
    return put(e, lower[0], span) && (n == 1 || put(e, lower[1], span));
}

/* Puts out the waiting combining characters in canonical order: by class, otherwise as they came. Classes are bytes,
 * so one pass a class that occurs keeps this linear however long the run is. */
static bool flush(const wok_tokenizer *t, wok_encoding *e) {
    if (e->pending_count == 0) return true;
    bool present[256] = {false};
    for (size_t i = 0; i < e->pending_count; i++) present[e->pending[i].combining] = true;
    for (int class = 1; class < 256; class ++)
        for (size_t i = 0; present[class] && i < e->pending_count; i++)
            if (e->pending[i].combining == class && !put_lower(t, e, e->pending[i].c, e->pending[i].span)) return false;
    e->pending_count = 0;
    return true;
}

/* NFD without Mn. Ordering and removal may swap: the sort is stable. A mark of class 0 still ends a run. */
static bool put_stripped(const wok_tokenizer *t, wok_encoding *e, int32_t c, wok_text_span span) {
    int32_t parts[WOK_MAX_DECOMPOSITION];
    int n = wok_char_decompose(c, parts);
    for (int i = 0; i < n; i++) {
        bool mark = wok_char_classify(parts[i]) == WOK_CHAR_MARK;
        int combining = wok_char_combining(parts[i]);
        if (combining == 0) {
            if (!flush(t, e) || (!mark && !put_lower(t, e, parts[i], span))) return false;
        } else if (!mark) {
            if (!WOK_RESERVE(e, pending, e->pending_count + 1)) return false;
            e->pending[e->pending_count++] = (struct wok_pending){parts[i], combining, span};
        }
    }
    return true;
}

static bool put_char(const wok_tokenizer *t, wok_encoding *e, int32_t c, wok_text_span span) {
    if (t->rules.clean_text) {
        if (wok_char_classify(c) == WOK_CHAR_DROP) return true;
        if (wok_char_is_space(c)) c = ' ';
    }
    bool apart = t->rules.handle_chinese_chars && wok_char_is_cjk(c);
    if (apart && !(flush(t, e) && put(e, ' ', span))) return false;
    if (!(t->rules.strip_accents ? put_stripped(t, e, c, span) : put_lower(t, e, c, span))) return false;
    return !apart || put(e, ' ', span);
}

/* ---- the memory -------------------------------------------------------------------------------------------------------- */

/* What put_char would write for c with nothing pending. */
static void learn(const wok_tokenizer *t, int32_t c, struct wok_memo *m) {
    int32_t parts[WOK_MAX_DECOMPOSITION] = {c}, lower[2];
    bool apart = t->rules.handle_chinese_chars && wok_char_is_cjk(c);
    wok_char_class kind = wok_char_classify(c);
    *m = (struct wok_memo){.c = c, .kind = kind == WOK_CHAR_PUNCT ? WOK_CHAR_PUNCT : WOK_CHAR_OTHER};
    if (wok_char_is_space(c)) m->kind = WOK_CHAR_SPACE;
    if (t->rules.clean_text && kind == WOK_CHAR_DROP) return;
    if (t->rules.clean_text && m->kind == WOK_CHAR_SPACE) parts[0] = ' ';
    int n = t->rules.strip_accents ? wok_char_decompose(parts[0], parts) : 1;
    if (apart) m->bytes[m->length++] = ' ';
    for (int i = 0; i < n; i++) {
        bool mark = t->rules.strip_accents && wok_char_classify(parts[i]) == WOK_CHAR_MARK;
        if (mark) continue;
        if (t->rules.strip_accents && wok_char_combining(parts[i])) m->slow = true;
        lower[0] = parts[i];
        int count = t->rules.lowercase ? wok_char_lower(parts[i], lower) : 1;
        for (int k = 0; k < count; k++) {
            if (m->length > sizeof m->bytes - 5)
                m->slow = true;
            else
                m->length += (uint8_t)wok_utf8_put(lower[k], m->bytes + m->length);
        }
    }
    if (apart) m->bytes[m->length++] = ' ';
}

const struct wok_memo *wok_recall(const wok_tokenizer *t, wok_encoding *e, int32_t c) {
    if (!e->memo) {
        e->memo = wok_ctx_alloc(e->ctx, WOK_MEMO_SIZE * sizeof *e->memo);
        if (!e->memo) {
            wok_encoding_fail(e, WOK_ERR_MEMORY, "no memory for an encoding");
            return NULL;
        }
        for (int i = 0; i < WOK_MEMO_SIZE; i++) e->memo[i].c = -1;
    }
    struct wok_memo *m = &e->memo[c % WOK_MEMO_SIZE];
    if (m->c != c) learn(t, c, m);
    return m;
}

static bool put_remembered(const wok_tokenizer *t, wok_encoding *e, int32_t c, wok_text_span span) {
    const struct wok_memo *m = wok_recall(t, e, c);
    if (!m) return false;
    if (m->slow || e->pending_count > 0) return put_char(t, e, c, span);
    if (!WOK_RESERVE(e, normal, e->normal_used + sizeof m->bytes)) return false;
    memcpy(e->normal + e->normal_used, m->bytes, sizeof m->bytes);
    if (e->offsets) {
        if (!WOK_RESERVE(e, source, e->normal_used + m->length)) return false;
        for (size_t i = 0; i < m->length; i++) e->source[e->normal_used + i] = span;
    }
    e->normal_used += m->length;
    return true;
}

/* ---- the walk ------------------------------------------------------------------------------------------------------------ */

/* Most text: one table look-up a byte. */
static bool put_ascii(const wok_tokenizer *t, wok_encoding *e, const char *text, size_t length, uint32_t base) {
    if (!flush(t, e) || !WOK_RESERVE(e, normal, e->normal_used + length)) return false;
    size_t used = e->normal_used;
    if (!e->offsets) {
        for (size_t i = 0; i < length; i++) {
            int16_t c = t->ascii[(uint8_t)text[i]];
            e->normal[used] = (char)c; /* overwritten by the next one if dropped */
            used += c >= 0;
        }
    } else {
        if (!WOK_RESERVE(e, source, e->normal_used + length)) return false;
        for (size_t i = 0; i < length; i++) {
            int16_t c = t->ascii[(uint8_t)text[i]];
            e->normal[used] = (char)c;
            e->source[used] = (wok_text_span){base + (uint32_t)i, base + (uint32_t)i + 1};
            used += c >= 0;
        }
    }
    e->normal_used = used;
    return true;
}

static size_t ascii_run(const char *text, size_t length) {
    size_t i = 0;
    for (uint64_t word; i + 8 <= length; i += 8) {
        memcpy(&word, text + i, 8);
        if (word & UINT64_C(0x8080808080808080)) break;
    }
    while (i < length && (uint8_t)text[i] < 0x80) i++;
    return i;
}

bool wok_normalize(const wok_tokenizer *t, wok_encoding *e, const char *text, size_t length, uint32_t base) {
    e->normal_used = e->pending_count = 0;
    for (size_t i = 0; i < length;) {
        size_t used = ascii_run(text + i, length - i);
        if (used > 0) {
            if (!put_ascii(t, e, text + i, used, base + (uint32_t)i)) return false;
        } else {
            int32_t c = wok_utf8_get(text + i, length - i, &used);
            wok_text_span span = {base + (uint32_t)i, base + (uint32_t)(i + used)};
            if (!put_remembered(t, e, c, span)) return false;
        }
        i += used;
    }
    return flush(t, e);
}

/* tokenizer.h - inside of wok_tokenizer and wok_encoding (internal).
 *
 * load: tokenizer_load.c fills the struct from files. encode: encode.c finds added tokens, normalize.c turns the pieces
 * between them into normalised text, encode.c cuts that into words and pieces, frame.c truncates, frames and pads.
 */
#ifndef WOK_TOKENIZER_H
#define WOK_TOKENIZER_H

#include "trie.h"
#include "unicode.h"
#include "wok_text.h"

#define WOK_MAX_TEXT ((size_t)1 << 30)

struct wok_rules {
    bool clean_text, handle_chinese_chars, strip_accents, lowercase;
};

struct wok_token {
    uint32_t offset, length; /* in the arena; offset WOK_NO_TOKEN: no such id */
};
#define WOK_NO_TOKEN UINT32_MAX

struct wok_added {
    const char *text; /* in the arena */
    uint32_t length;
    int32_t id;
    bool special, lstrip, rstrip, single_word, normalized;
};

/* What stands round the texts: ids, and the places of the texts. */
#define WOK_FRAME_MAX 64
enum { WOK_FRAME_A = -1, WOK_FRAME_B = -2 };
struct wok_frame {
    struct {
        int32_t id, type;
    } items[WOK_FRAME_MAX];
    int count, specials;
};

struct wok_tokenizer {
    wok_ctx *ctx;
    struct wok_rules rules;
    int16_t ascii[128];     /* normalised form of an ASCII character, -1: dropped */
    struct wok_trie pieces; /* the model's vocabulary */
    uint32_t inner;         /* node of the trie behind the continuing prefix ("##"), NO_NODE if nothing continues */
    int32_t unknown;        /* [UNK] */
    size_t max_word;        /* characters; longer words are unknown */
    struct wok_added *added;
    size_t added_count;
    struct wok_trie added_raw, added_normal; /* values: indices of added[] */
    struct wok_frame single, pair;
    int32_t pad, max_length;
    char *arena; /* texts of all tokens, zero-terminated */
    size_t arena_bytes;
    struct wok_token *tokens; /* by id */
    int32_t size;
};
#define WOK_NO_NODE UINT32_MAX

struct wok_piece {
    int32_t id;
    wok_text_span span;
};

struct wok_pending {
    int32_t c, combining;
    wok_text_span span;
};

/* What one character beyond ASCII becomes, remembered: alphabets are small, and the Unicode tables are deep. */
#define WOK_MEMO_SIZE 2048
struct wok_memo {
    int32_t c; /* -1: empty */
    uint8_t length;
    bool slow;    /* leaves combining characters that must be ordered: no memory can hold that */
    uint8_t kind; /* wok_char_class of c in normalised text: OTHER, SPACE or PUNCT */
    char bytes[17];
};

struct wok_encoding {
    const wok_tokenizer *tokenizer;
    wok_ctx *ctx;
    /* the result */
    int32_t *rows; /* ids, type ids, mask: three rows of `stride` */
    size_t rows_bytes, stride, count;
    wok_text_span *spans;
    size_t spans_bytes;
    bool offsets, truncated;
    /* tokens of the texts, before the frame: A, then B */
    struct wok_piece *pieces;
    size_t pieces_bytes, piece_count, piece_limit; /* enough when more than the limit are found */
    bool specials_are_text;
    /* normalised text of the piece at hand, and where each of its bytes comes from (if offsets are wanted) */
    char *normal;
    size_t normal_bytes, normal_used;
    wok_text_span *source;
    size_t source_bytes;
    /* combining characters that wait for their canonical order */
    struct wok_pending *pending;
    size_t pending_bytes, pending_count;
    struct wok_memo *memo; /* [WOK_MEMO_SIZE] by the low bits of c; NULL until needed */
    wok_status status;
    char error[192];
};

/* Copies a size-first options struct: what the caller's header did not know yet stays zero. */
bool wok_take_options(void *to, size_t size, const void *from);

/* Grows; on failure keeps the status in the encoding and returns false. */
bool wok_encoding_reserve(wok_encoding *e, void **ptr, size_t *bytes, size_t need);
#define WOK_RESERVE(e, field, count)                                                                                   \
    wok_encoding_reserve(e, (void **)&(e)->field, &(e)->field##_bytes, (count) * sizeof *(e)->field)

void wok_rules_apply(wok_tokenizer *tokenizer); /* fills ascii[] from rules */
/* The memory's entry for c > 127, filled if need be; NULL without memory. */
const struct wok_memo *wok_recall(const wok_tokenizer *t, wok_encoding *e, int32_t c);
/* Normalised form of text[0, length) into e->normal; base: its place in the whole text. */
bool wok_normalize(const wok_tokenizer *t, wok_encoding *e, const char *text, size_t length, uint32_t base);
/* Tokens of one text, appended to e->pieces. */
bool wok_encode_text(const wok_tokenizer *t, wok_encoding *e, const char *text, size_t length);
/* e->pieces (the first `first` are A) to the result. */
wok_status wok_encode_frame(const wok_tokenizer *t, const wok_encode_options *o, size_t first, bool has_pair,
                            wok_encoding *e);
wok_status wok_encoding_fail(wok_encoding *e, wok_status status, const char *format, ...) WOK_PRINTF(3, 4);

#endif

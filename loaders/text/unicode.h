/* unicode.h - the Unicode questions that BertNormalizer and BertPreTokenizer ask (internal).
 *
 * Data: utf8proc, corrected where Hugging Face tokenizers' tables differ (unicode_peer.h). Pure functions.
 */
#ifndef WOK_UNICODE_H
#define WOK_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a character is to the tokenizer. Every character is one of these. */
typedef enum wok_char_class {
    WOK_CHAR_OTHER, /* part of a word; unassigned ones too */
    WOK_CHAR_DROP,  /* controls, format characters, private use, NUL, U+FFFD: clean_text removes them */
    WOK_CHAR_SPACE, /* White_Space */
    WOK_CHAR_MARK,  /* Mn: strip_accents removes them behind NFD */
    WOK_CHAR_PUNCT  /* P*, and the ASCII signs: a word of its own */
} wok_char_class;

#define WOK_MAX_DECOMPOSITION 4

wok_char_class wok_char_classify(int32_t c);
/* Also White_Space, which are dropped by clean_text before they are asked for: U+000B, U+000C, U+0085. */
bool wok_char_is_space(int32_t c);
/* The blocks that handle_chinese_chars puts spaces round. */
bool wok_char_is_cjk(int32_t c);
/* \w of a Unicode regular expression: letters, marks, decimal digits, connectors, joiners. */
bool wok_char_is_word(int32_t c);
/* Full canonical decomposition, not ordered; returns how many (1 for most). */
int wok_char_decompose(int32_t c, int32_t out[WOK_MAX_DECOMPOSITION]);
/* Canonical combining class, 0 for starters. */
int wok_char_combining(int32_t c);
/* Lower case of one character without context; returns 1, or 2 for U+0130. */
int wok_char_lower(int32_t c, int32_t out[2]);

/* The character at text (length > 0); *used bytes belong to it. Bytes that are not UTF-8 give U+FFFD, one for each
 * maximal part of a sequence, as Python's errors="replace" and browsers do. */
int32_t wok_utf8_get(const char *text, size_t length, size_t *used);
/* Writes 1 to 4 bytes, returns how many. c is a Unicode scalar value. */
size_t wok_utf8_put(int32_t c, char *out);

#endif

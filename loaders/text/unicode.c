/* unicode.c - utf8proc's data with the peer's corrections. */
#include "unicode.h"

#include <utf8proc.h>

enum peer_kind { PEER_OTHER, PEER_STARTER, PEER_MARK, PEER_PUNCT };
struct peer_class {
    int32_t first, last;
    enum peer_kind kind;
};
struct peer_lower {
    int32_t first, last, delta;
};
struct peer_range {
    int32_t first, last;
};
#include "unicode_peer.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static bool peer_has(const struct peer_range *ranges, size_t count, int32_t c) {
    for (size_t i = 0; i < count && c >= ranges[i].first; i++)
        if (c <= ranges[i].last) return true;
    return false;
}

static const struct peer_class *peer_find(int32_t c) {
    size_t low = 0, high = COUNT(peer_classes);
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (c > peer_classes[middle].last)
            low = middle + 1;
        else
            high = middle;
    }
    return low < COUNT(peer_classes) && c >= peer_classes[low].first ? &peer_classes[low] : NULL;
}

bool wok_char_is_space(int32_t c) {
    if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13);
    return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
           c == 0x202f || c == 0x205f || c == 0x3000;
}

wok_char_class wok_char_classify(int32_t c) {
    if (c == '\t' || c == '\n' || c == '\r') return WOK_CHAR_SPACE;
    if (c == 0xfffd) return WOK_CHAR_DROP;
    if (c < 0x80 && c > ' ' && c != 0x7f) /* ASCII signs such as $ + ^ are symbols to Unicode */
        return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ? WOK_CHAR_OTHER
                                                                                          : WOK_CHAR_PUNCT;
    const struct peer_class *peer = c < 0x80 ? NULL : peer_find(c);
    if (peer)
        return peer->kind == PEER_MARK ? WOK_CHAR_MARK : peer->kind == PEER_PUNCT ? WOK_CHAR_PUNCT : WOK_CHAR_OTHER;
    switch (utf8proc_get_property(c)->category) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CO:
        return WOK_CHAR_DROP;
    case UTF8PROC_CATEGORY_MN:
        return WOK_CHAR_MARK;
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
        return WOK_CHAR_PUNCT;
    default:
        return wok_char_is_space(c) ? WOK_CHAR_SPACE : WOK_CHAR_OTHER;
    }
}

bool wok_char_is_cjk(int32_t c) {
    /* U+2B820..U+2B91F, the head of extension E, is missing in the peer. */
    return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) || (c >= 0xf900 && c <= 0xfaff) ||
           (c >= 0x20000 && c <= 0x2a6df) || (c >= 0x2a700 && c <= 0x2b81f) || (c >= 0x2b920 && c <= 0x2ceaf) ||
           (c >= 0x2f800 && c <= 0x2fa1f);
}

bool wok_char_is_word(int32_t c) {
    switch (utf8proc_get_property(c)->category) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
        return true;
    default: /* joiners, the circled and squared letters (Other_Alphabetic), and what utf8proc may not know yet */
        return c == 0x200c || c == 0x200d || (c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) ||
               (c >= 0x1f150 && c <= 0x1f169) || (c >= 0x1f170 && c <= 0x1f189) ||
               peer_has(peer_word, COUNT(peer_word), c);
    }
}

int wok_char_decompose(int32_t c, int32_t out[WOK_MAX_DECOMPOSITION]) {
    out[0] = c;
    if (c < 0xc0) return 1;
    if (c >= 0x10000 && peer_has(peer_whole, COUNT(peer_whole), c)) return 1;
    int boundary = 0;
    utf8proc_ssize_t n = utf8proc_decompose_char(c, out, WOK_MAX_DECOMPOSITION, UTF8PROC_DECOMPOSE, &boundary);
    if (n >= 1 && n <= WOK_MAX_DECOMPOSITION) return (int)n;
    out[0] = c;
    return 1;
}

int wok_char_combining(int32_t c) {
    if (c < 0x300) return 0;
    int combining = utf8proc_get_property(c)->combining_class;
    if (combining == 0) return 0;
    const struct peer_class *peer = peer_find(c);
    return peer && peer->kind == PEER_STARTER ? 0 : combining;
}

int wok_char_lower(int32_t c, int32_t out[2]) {
    if (c == 0x130) { /* the only one whose lower case is two characters */
        out[0] = 'i', out[1] = 0x307;
        return 2;
    }
    out[0] = utf8proc_tolower(c);
    for (size_t i = 0; c >= 0x1c89 && out[0] == c && i < COUNT(peer_lower); i++)
        if (c >= peer_lower[i].first && c <= peer_lower[i].last) out[0] = c + peer_lower[i].delta;
    return 1;
}

int32_t wok_utf8_get(const char *text, size_t length, size_t *used) {
    const unsigned char *s = (const unsigned char *)text;
    *used = 1;
    if (s[0] < 0x80) return s[0];
    if (s[0] < 0xc2 || s[0] > 0xf4) return 0xfffd;
    size_t want = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    /* The second byte has bounds of its own: no over-long forms, no surrogates, nothing beyond U+10FFFF. */
    unsigned char low = s[0] == 0xe0 ? 0xa0 : s[0] == 0xf0 ? 0x90 : 0x80;
    unsigned char high = s[0] == 0xed ? 0x9f : s[0] == 0xf4 ? 0x8f : 0xbf;
    int32_t c = s[0] & (0xff >> (want + 1));
    for (size_t i = 1; i < want; i++, low = 0x80, high = 0xbf) {
        if (i >= length || s[i] < low || s[i] > high) {
            *used = i;
            return 0xfffd;
        }
        c = c << 6 | (s[i] & 0x3f);
    }
    *used = want;
    return c;
}

size_t wok_utf8_put(int32_t c, char *out) {
    return (size_t)utf8proc_encode_char(c, (utf8proc_uint8_t *)out);
}

/* trie.h - a static byte trie with values (internal).
 *
 * The children of a node are neighbours, and the children of its first child follow them: a path that no longer branches
 * lies in one cache line. A step looks for the byte among the labels of the children, eight at a time in one 64-bit word,
 * without a branch that depends on which one it is. Built in time linear in the bytes of the keys.
 */
#ifndef WOK_TRIE_H
#define WOK_TRIE_H

#include "wok_build.h"

#include <string.h>

struct wok_trie_key {
    const char *text; /* UTF-8 */
    uint32_t length;
    int32_t value; /* >= 0 */
};

struct wok_trie_node {
    uint32_t first : 24;   /* child */
    uint32_t children : 8; /* UTF-8 has 243 bytes that occur */
    int32_t value;         /* -1 where no key ends */
};

struct wok_trie {
    struct wok_trie_node *nodes; /* [count] */
    uint8_t *labels;             /* [count + 8]: the byte that leads to a node; read in words of eight */
    uint32_t room;               /* of the arrays */
    uint32_t count;              /* 0: not built */
    uint32_t root[256];          /* children of the root, by byte */
};
#define WOK_TRIE_ROOM ((uint32_t)1 << 24)

/* The array of keys is used up. Of equal keys the last one counts. Empty keys are left out. */
wok_status wok_trie_build(wok_ctx *ctx, struct wok_trie *trie, struct wok_trie_key *keys, size_t count);
void wok_trie_free(wok_ctx *ctx, struct wok_trie *trie);

/* The child of `node` by this byte, 0 if there is none (the root is nobody's child). */
static inline uint32_t wok_trie_step(const struct wok_trie *trie, uint32_t node, uint8_t byte) {
    if (node == 0) return trie->root[byte];
    const uint64_t ones = UINT64_C(0x0101010101010101), wanted = ones * byte;
    uint32_t low = trie->nodes[node].first, high = low + trie->nodes[node].children;
    for (; low < high; low += 8) {
        uint64_t word;
        memcpy(&word, trie->labels + low, 8);
        word ^= wanted; /* the byte that fits becomes zero; little-endian: the lowest bit left is the first */
        word = (word - ones) & ~word & (ones << 7);
        if (word) {
            uint32_t hit = low + (uint32_t)__builtin_ctzll(word) / 8;
            return hit < high ? hit : 0;
        }
    }
    return 0;
}

/* Value of the longest key that, behind what led to `node`, begins the text; -1 if none. *used: bytes it takes. */
static inline int32_t wok_trie_longest(const struct wok_trie *trie, uint32_t node, const char *text, size_t length,
                                       size_t *used) {
    int32_t found = -1;
    for (size_t i = 0; i < length; i++) {
        node = wok_trie_step(trie, node, (uint8_t)text[i]);
        if (node == 0) break;
        if (trie->nodes[node].value >= 0) {
            found = trie->nodes[node].value;
            *used = i + 1;
        }
    }
    return found;
}

#endif

/* trie.h - a static byte trie with values (internal).
 *
 * Nodes are numbered in breadth-first order, so the children of a node are neighbours: `first[node]` is where they
 * begin, `first[node + 1]` where they end, `label` is sorted within them. Built in time linear in the bytes of the
 * keys; walked with one comparison a byte in all but the widest nodes, which have a table.
 */
#ifndef WOK_TRIE_H
#define WOK_TRIE_H

#include "wok_build.h"

struct wok_trie_key {
    const char *text;
    uint32_t length;
    int32_t value; /* >= 0 */
};

struct wok_trie {
    uint32_t *first; /* [nodes + 1] */
    int32_t *value;  /* [nodes], -1 where no key ends */
    uint8_t *label;  /* [nodes] */
    uint32_t room;   /* nodes that the arrays have room for */
    uint32_t nodes;  /* 0: empty, not built */
    uint32_t root[256];
};

/* The array of keys is used up. Of equal keys the last one counts. Empty keys are left out. */
wok_status wok_trie_build(wok_ctx *ctx, struct wok_trie *trie, struct wok_trie_key *keys, size_t count);
void wok_trie_free(wok_ctx *ctx, struct wok_trie *trie);

/* The child of `node` by this byte, 0 if there is none (the root is nobody's child). */
static inline uint32_t wok_trie_step(const struct wok_trie *trie, uint32_t node, uint8_t byte) {
    if (node == 0) return trie->root[byte];
    uint32_t low = trie->first[node], high = trie->first[node + 1];
    while (high - low > 6) {
        uint32_t middle = (low + high) / 2;
        if (trie->label[middle] > byte)
            high = middle;
        else
            low = middle;
    }
    for (; low < high; low++)
        if (trie->label[low] == byte) return low;
    return 0;
}

/* Value of the longest key that, behind what led to `node`, begins the text; -1 if none. *used: bytes it takes. */
static inline int32_t wok_trie_longest(const struct wok_trie *trie, uint32_t node, const char *text,
                                       size_t length, size_t *used) {
    int32_t found = -1;
    for (size_t i = 0; i < length; i++) {
        node = wok_trie_step(trie, node, (uint8_t)text[i]);
        if (node == 0) break;
        if (trie->value[node] >= 0) {
            found = trie->value[node];
            *used = i + 1;
        }
    }
    return found;
}

#endif

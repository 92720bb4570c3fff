/* trie.h - a static byte trie with values (internal).
 *
 * Nodes are numbered in breadth-first order, so the children of a node are neighbours, sorted by their label: they begin
 * where the node says and end where the next node's begin. A step reads one cache line or two. Built in time linear in
 * the bytes of the keys.
 */
#ifndef WOK_TRIE_H
#define WOK_TRIE_H

#include "wok_build.h"

struct wok_trie_key {
    const char *text;
    uint32_t length;
    int32_t value; /* >= 0 */
};

struct wok_trie_node {
    uint32_t first : 24; /* child */
    uint32_t label : 8;  /* byte that leads here */
    int32_t value;       /* -1 where no key ends */
};

struct wok_trie {
    struct wok_trie_node *nodes; /* [count + 1]; the last one only ends the children of the one before */
    uint32_t room;               /* of the array */
    uint32_t count;              /* 0: not built */
    uint32_t root[256];          /* children of the root, by byte */
};
#define WOK_TRIE_MAX ((uint32_t)1 << 24)

/* The array of keys is used up. Of equal keys the last one counts. Empty keys are left out. */
wok_status wok_trie_build(wok_ctx *ctx, struct wok_trie *trie, struct wok_trie_key *keys, size_t count);
void wok_trie_free(wok_ctx *ctx, struct wok_trie *trie);

/* The child of `node` by this byte, 0 if there is none (the root is nobody's child). */
static inline uint32_t wok_trie_step(const struct wok_trie *trie, uint32_t node, uint8_t byte) {
    if (node == 0) return trie->root[byte];
    const struct wok_trie_node *nodes = trie->nodes;
    uint32_t low = nodes[node].first, high = nodes[node + 1].first;
    while (high - low > 6) {
        uint32_t middle = (low + high) / 2;
        if (nodes[middle].label > byte)
            high = middle;
        else
            low = middle;
    }
    for (; low < high; low++)
        if (nodes[low].label == byte) return low;
    return 0;
}

/* Value of the longest key that, behind what led to `node`, begins the text; -1 if none. *used: bytes it takes. */
static inline int32_t wok_trie_longest(const struct wok_trie *trie, uint32_t node, const char *text,
                                       size_t length, size_t *used) {
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

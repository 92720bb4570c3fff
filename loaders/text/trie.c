/* trie.c - building: every node holds a range of keys; a counting sort by the next byte cuts it into its children. */
#include "trie.h"

#include <string.h>

struct range {
    uint32_t low, high, depth; /* keys[low, high) share their first `depth` bytes */
};

struct builder {
    struct wok_trie *trie;
    struct wok_trie_key *keys, *sorted;
    struct range *ranges; /* of node i */
    uint32_t *waiting;    /* nodes whose children have no place yet, the next one last */
};

/* Drops the keys that end here (the last of them gives the node its value) and packs the others, in their order,
 * against the end of the range; gives the first of those. */
static uint32_t take_ending(struct builder *b, uint32_t node, struct range r) {
    uint32_t rest = r.high;
    b->trie->nodes[node].value = -1;
    for (uint32_t i = r.high; i-- > r.low;) {
        if (b->keys[i].length > r.depth)
            b->keys[--rest] = b->keys[i];
        else if (b->trie->nodes[node].value < 0)
            b->trie->nodes[node].value = b->keys[i].value;
    }
    return rest;
}

static void add_child(struct builder *b, uint8_t label, struct range range) {
    uint32_t node = b->trie->count++;
    b->trie->labels[node] = label;
    b->ranges[node] = range;
}

static void split(struct builder *b, struct range r) {
    if (r.high - r.low == 1) {
        add_child(b, (uint8_t)b->keys[r.low].text[r.depth], (struct range){r.low, r.high, r.depth + 1});
        return;
    }
    uint32_t start[257] = {0};
    for (uint32_t i = r.low; i < r.high; i++) start[(uint8_t)b->keys[i].text[r.depth] + 1]++;
    start[0] = r.low;
    for (int c = 0; c < 256; c++) {
        uint32_t members = start[c + 1];
        start[c + 1] += start[c];
        if (members > 0) add_child(b, (uint8_t)c, (struct range){start[c], start[c + 1], r.depth + 1});
    }
    for (uint32_t i = r.low; i < r.high; i++) b->sorted[start[(uint8_t)b->keys[i].text[r.depth]]++] = b->keys[i];
    memcpy(b->keys + r.low, b->sorted + r.low, (r.high - r.low) * sizeof *b->keys);
}

static void build(struct builder *b, uint32_t count) {
    struct wok_trie *trie = b->trie;
    uint32_t waiting = 1;
    trie->count = 1;
    trie->labels[0] = 0;
    b->ranges[0] = (struct range){0, count, 0};
    b->waiting[0] = 0;
    while (waiting > 0) {
        uint32_t node = b->waiting[--waiting], first = trie->count;
        struct range r = b->ranges[node];
        r.low = take_ending(b, node, r);
        if (r.low < r.high) split(b, r);
        trie->nodes[node].first = first & (WOK_TRIE_ROOM - 1);
        trie->nodes[node].children = (trie->count - first) & 255;
        for (uint32_t child = trie->count; child-- > first;) b->waiting[waiting++] = child;
    }
    memset(trie->labels + trie->count, 0, 8);
    trie->nodes[0].value = -1; /* the empty key matches nothing */
    memset(trie->root, 0, sizeof trie->root);
    for (uint32_t child = 1; child <= trie->nodes[0].children; child++) trie->root[trie->labels[child]] = child;
}

wok_status wok_trie_build(wok_ctx *ctx, struct wok_trie *trie, struct wok_trie_key *keys, size_t count) {
    uint64_t room = 1;
    for (size_t i = 0; i < count; i++) room += keys[i].length;
    if (room > WOK_TRIE_ROOM - 8)
        return wok_ctx_fail(ctx, WOK_ERR_LIMIT, "a vocabulary of more than %u bytes", (unsigned)WOK_TRIE_ROOM);
    *trie = (struct wok_trie){.room = (uint32_t)room + 8};
    trie->nodes = wok_ctx_alloc(ctx, (size_t)trie->room * sizeof *trie->nodes);
    trie->labels = wok_ctx_alloc(ctx, trie->room);
    struct builder b = {.trie = trie, .keys = keys};
    b.sorted = wok_ctx_alloc(ctx, count * sizeof *b.sorted);
    b.ranges = wok_ctx_alloc(ctx, (size_t)room * sizeof *b.ranges);
    b.waiting = wok_ctx_alloc(ctx, (size_t)room * sizeof *b.waiting);
    bool good = trie->nodes && trie->labels && b.sorted && b.ranges && b.waiting;
    if (good) build(&b, (uint32_t)count);
    wok_ctx_release(ctx, b.sorted, count * sizeof *b.sorted);
    wok_ctx_release(ctx, b.ranges, (size_t)room * sizeof *b.ranges);
    wok_ctx_release(ctx, b.waiting, (size_t)room * sizeof *b.waiting);
    if (!good) wok_trie_free(ctx, trie);
    return good ? WOK_OK : WOK_ERR_MEMORY;
}

void wok_trie_free(wok_ctx *ctx, struct wok_trie *trie) {
    wok_ctx_release(ctx, trie->nodes, (size_t)trie->room * sizeof *trie->nodes);
    wok_ctx_release(ctx, trie->labels, trie->room);
    *trie = (struct wok_trie){0};
}

/* table_s8.h - 256-entry byte tables in vector registers; include lanes_<level>.h before it (internal).
 *
 * A byte shuffle looks up 16 entries and gives 0 for a negative index. For x >= 0 the 8 blocks of 16 entries are stored
 * as differences, D[0] = T[0] and D[k] = T[k] ^ T[k - 1]: the xor of D[k][x - 16 k] over all k whose index is not
 * negative telescopes to T[x >> 4][x & 15], because a shuffle looks at the index's lower 4 bits only. The other half of
 * the table is the same with x ^ 128, and the half that x is not in gives 0. */
#ifndef WOK_TABLE_S8_H
#define WOK_TABLE_S8_H

typedef struct v_table {
    int8_t difference[256];
} v_table;

/* table[x + 128] is the value of x */
WOK_INLINE void v_table_make(v_table *t, const int8_t *table) {
    for (int i = 0; i < 256; i++)
        t->difference[i] = (int8_t)(i % 128 < 16 ? table[i] : table[i] ^ table[i - 16]);
}

WOK_INLINE v_bytes v_table_apply(const v_table *t, v_bytes x) {
    const v_bytes step = v_set1_bytes(16);
    v_bytes low = v_xor_bytes(x, v_set1_bytes(-128)); /* x + 128 where x is negative */
    v_bytes y = v_xor_bytes(v_lookup16(t->difference, low), v_lookup16(t->difference + 128, x));
#pragma GCC unroll 7
    for (int k = 16; k < 128; k += 16) {
        low = v_subs_bytes(low, step);
        x = v_subs_bytes(x, step);
        y = v_xor_bytes(y, v_lookup16(t->difference + k, low));
        y = v_xor_bytes(y, v_lookup16(t->difference + 128 + k, x));
    }
    return y;
}

#endif

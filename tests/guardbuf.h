/* guardbuf.h - rectangles of memory between two inaccessible pages, with canaries wherever the kernel has no business.
 *
 *   | PROT_NONE page | canary | row 0 | gap | row 1 | gap | ... | row n-1 | canary | PROT_NONE page |
 *
 * The canary word is a NaN when read as an f32, so arithmetic on a gap shows in the result, and a write to one is found by
 * guard_damage(). Data starts out as canaries too: an output that is read before it is written turns to NaN.
 * Not thread-safe; memory is kept for reuse and given back by guard_release_all(). */
#ifndef GUARDBUF_H
#define GUARDBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GUARD_END (-1) /* the last byte touches the guard page behind; otherwise: bytes after the guard page in front */

typedef struct guard_rect {
    unsigned char *map; /* the guard page in front */
    size_t pages;       /* accessible pages behind it */
    unsigned char *data;
    int64_t rows;
    size_t row_bytes, stride_bytes;
} guard_rect;

/* rows * row_bytes of data, rows stride_bytes apart (>= row_bytes). `offset`: GUARD_END or a number of bytes below a page.
 * `align` (a power of two) rounds a GUARD_END position down. False when there is no memory. */
bool guard_new(guard_rect *rect, int64_t rows, size_t row_bytes, size_t stride_bytes, int offset, size_t align);
void guard_free(guard_rect *rect);
void guard_release_all(void);

/* NULL, or the first byte outside the rows that is no longer a canary. */
const unsigned char *guard_damage(const guard_rect *rect);
/* A hash of the rows only. */
uint64_t guard_hash(const guard_rect *rect);
/* Does the address lie in this rectangle's mapping, guard pages included? */
bool guard_owns(const guard_rect *rect, const void *address);

#endif

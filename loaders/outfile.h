/* outfile.h - a file that appears whole or not at all (internal).
 *
 * Written under a temporary name in the same folder, then renamed over the target. Until wok_outfile_commit an existing
 * file of that name stays as it is, and whoever has it open or mapped keeps the old contents afterwards too.
 */
#ifndef WOK_OUTFILE_H
#define WOK_OUTFILE_H

#include "wok_build.h"

typedef struct wok_outfile {
    wok_ctx *ctx;
    char *path, *temp; /* one block, path first */
    size_t block, used;
    uint64_t written;  /* bytes given to wok_outfile_write so far */
    wok_status status; /* the first failure sticks */
    int fd;
    unsigned char buffer[16384];
} wok_outfile;

/* On failure nothing is left, and *out is NULL. */
wok_status wok_outfile_open(wok_ctx *ctx, const char *path, wok_outfile **out);
/* The first failure sticks and is returned by wok_outfile_commit, so that writers check once. */
void wok_outfile_write(wok_outfile *out, const void *data, size_t bytes);
/* Zero bytes up to a multiple of `alignment`. */
void wok_outfile_pad(wok_outfile *out, size_t alignment);
/* Writes what is buffered; the file is complete under its temporary name. */
wok_status wok_outfile_flush(wok_outfile *out);
/* Flushes, renames, frees. On failure nothing is left of the new file. *out becomes NULL. */
wok_status wok_outfile_commit(wok_outfile **out);
/* Drops the file. NULL and pointer to NULL are fine. */
void wok_outfile_abort(wok_outfile **out);

#endif

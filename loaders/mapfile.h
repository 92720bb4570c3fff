/* mapfile.h - a file mapped into memory, read-only (internal).
 *
 * The pages belong to the page cache: they cost no memory of the process that the system could not take back. The file
 * must not shrink while it is mapped (a read beyond its end is a SIGBUS, as with every mapping).
 */
#ifndef WOK_MAPFILE_H
#define WOK_MAPFILE_H

#include "wok_build.h"

typedef struct wok_mapfile {
    wok_ctx *ctx;
    const uint8_t *data; /* never NULL */
    size_t bytes;        /* 0 for an empty file */
} wok_mapfile;

/* WOK_ERR_IO with a sentence that names the path: missing, a folder, not a regular file, not readable.
 * follow: whether the last component may be a symbolic link. */
wok_status wok_mapfile_open(wok_ctx *ctx, const char *path, bool follow, wok_mapfile **map);
/* Unmaps. NULL is fine. */
void wok_mapfile_close(wok_mapfile *map);
/* Gives the mapping to the model: unmapped when the model is freed (at once, if this fails), and pages that the model
 * does not need are dropped on its word. */
wok_status wok_mapfile_give(wok_mapfile *map, wok_model *model);

#endif

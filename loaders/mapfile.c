/* mapfile.c - see mapfile.h. */
#define _DEFAULT_SOURCE
#include "mapfile.h"

#include "loader.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Linux maps a huge page of the page cache whole where it lies in one page table: a few rows looked up in an embedding
 * table would count as the whole table (on Linux 6.18, 128 rows of BERT's words: 85 MiB instead of 9). One page off the
 * boundary it never does. Packing, which reads everything once and lets it go, does not notice. */
static void *map_off_boundary(int fd, size_t bytes) {
    size_t huge = (size_t)2 << 20, page = (size_t)sysconf(_SC_PAGESIZE), room = bytes + 2 * huge;
    uint8_t *space = bytes < 2 * huge ? MAP_FAILED : mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (space == MAP_FAILED) return mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    uint8_t *at = (uint8_t *)(((uintptr_t)space + huge - 1) / huge * huge + page);
    uint8_t *end = at + (bytes + page - 1) / page * page;
    void *data = mmap(at, bytes, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0);
    if (data == MAP_FAILED) {
        munmap(space, room);
        return MAP_FAILED;
    }
    munmap(space, (size_t)(at - space));
    munmap(end, (size_t)(space + room - end));
    return data;
}

/* O_NONBLOCK: opening a pipe must not wait for a writer, only to be refused. */
static wok_status map(wok_ctx *ctx, const char *path, bool follow, wok_mapfile *out) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | (follow ? 0 : O_NOFOLLOW));
    if (fd < 0) return wok_ctx_fail(ctx, WOK_ERR_IO, "%s: %s", path, strerror(errno));
    struct stat info;
    wok_status status = WOK_OK;
    if (fstat(fd, &info) != 0)
        status = wok_ctx_fail(ctx, WOK_ERR_IO, "%s: %s", path, strerror(errno));
    else if (S_ISDIR(info.st_mode))
        status = wok_ctx_fail(ctx, WOK_ERR_IO, "%s is a folder, not a file", path);
    else if (!S_ISREG(info.st_mode))
        status = wok_ctx_fail(ctx, WOK_ERR_IO, "%s is not a regular file", path);
    else if ((uintmax_t)info.st_size > SIZE_MAX / 2)
        status = wok_ctx_fail(ctx, WOK_ERR_LIMIT, "%s is too large for this machine", path);
    else if (info.st_size > 0) {
        void *data = map_off_boundary(fd, (size_t)info.st_size);
        if (data == MAP_FAILED)
            status = wok_ctx_fail(ctx, WOK_ERR_IO, "%s cannot be mapped: %s", path, strerror(errno));
        else
            *out = (wok_mapfile){ctx, data, (size_t)info.st_size};
    }
    close(fd);
    return status;
}

wok_status wok_mapfile_open(wok_ctx *ctx, const char *path, bool follow, wok_mapfile **out) {
    *out = NULL;
    wok_mapfile *file = wok_ctx_alloc(ctx, sizeof *file);
    if (!file) return WOK_ERR_MEMORY;
    *file = (wok_mapfile){ctx, wok_loader_nothing, 0};
    wok_status status = map(ctx, path, follow, file);
    if (status != WOK_OK)
        wok_ctx_release(ctx, file, sizeof *file);
    else
        *out = file;
    return status;
}

void wok_mapfile_close(wok_mapfile *file) {
    if (!file) return;
    if (file->bytes > 0) munmap((void *)(uintptr_t)file->data, file->bytes);
    wok_ctx_release(file->ctx, file, sizeof *file);
}

static void release(void *user) { wok_mapfile_close(user); }

/* Whole pages only: the ones at the ends may hold a neighbour that is still needed. */
static void forget(void *user, const void *ptr, size_t bytes) {
    const wok_mapfile *file = user;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), base = (uintptr_t)file->data;
    uintptr_t begin = (uintptr_t)ptr, end = begin + bytes;
    if (begin < base || bytes > file->bytes || begin - base > file->bytes - bytes) return;
    begin = (begin + page - 1) / page * page;
    end = end / page * page;
    if (begin < end) madvise((void *)begin, end - begin, MADV_DONTNEED);
}

wok_status wok_mapfile_give(wok_mapfile *file, wok_model *model) {
    return wok_model_own(model, file->data, file->bytes, release, forget, file);
}

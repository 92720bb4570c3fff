/* outfile.c - see outfile.h. */
#define _DEFAULT_SOURCE
#include "outfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static wok_status fail(wok_outfile *out, const char *path, int error) {
    if (out->status == WOK_OK)
        out->status = wok_ctx_fail(out->ctx, WOK_ERR_IO, "%s cannot be written: %s", path, strerror(error));
    return out->status;
}

/* Not mkstemp: its mode 0600 would stay with the file. The name is unique in this process; EEXIST tries the next. */
static int open_temp(const char *path, char *temp, size_t size) {
    const char *slash = strrchr(path, '/');
    int folder = slash ? (int)(slash - path) + 1 : 0;
    static unsigned counter;
    for (int attempt = 0; attempt < 1000; attempt++) {
        unsigned n = __atomic_add_fetch(&counter, 1, __ATOMIC_RELAXED);
        snprintf(temp, size, "%.*s.wok-%ld-%u.tmp", folder, path, (long)getpid(), n);
        int fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (fd >= 0 || errno != EEXIST) return fd;
    }
    return -1;
}

static void destroy(wok_outfile *out) {
    wok_ctx *ctx = out->ctx;
    wok_ctx_release(ctx, out->path, out->block);
    wok_ctx_release(ctx, out, sizeof *out);
}

/* Renaming over a device or a pipe would replace it. */
static int refuse_target(const char *path) {
    struct stat info;
    if (stat(path, &info) != 0) return 0;
    return S_ISREG(info.st_mode) ? 0 : S_ISDIR(info.st_mode) ? EISDIR : EEXIST;
}

wok_status wok_outfile_open(wok_ctx *ctx, const char *path, wok_outfile **result) {
    *result = NULL;
    size_t length = strlen(path) + 1;
    wok_outfile *out = wok_ctx_alloc(ctx, sizeof *out);
    if (!out) return WOK_ERR_MEMORY;
    *out = (wok_outfile){.ctx = ctx, .fd = -1, .block = 2 * length + 64};
    out->path = wok_ctx_alloc(ctx, out->block);
    if (!out->path) {
        wok_ctx_release(ctx, out, sizeof *out);
        return WOK_ERR_MEMORY;
    }
    memcpy(out->path, path, length);
    out->temp = out->path + length;
    int error = refuse_target(path);
    if (error == 0) {
        out->fd = open_temp(path, out->temp, length + 64);
        error = out->fd < 0 ? errno : 0;
    }
    if (error != 0) {
        wok_status status = fail(out, path, error);
        destroy(out);
        return status;
    }
    *result = out;
    return WOK_OK;
}

static void drain(wok_outfile *out, const unsigned char *data, size_t bytes) {
    while (bytes > 0 && out->status == WOK_OK) {
        ssize_t n = write(out->fd, data, bytes < (size_t)1 << 30 ? bytes : (size_t)1 << 30);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            fail(out, out->path, n < 0 ? errno : ENOSPC);
            return;
        }
        data += n;
        bytes -= (size_t)n;
    }
}

void wok_outfile_write(wok_outfile *out, const void *data, size_t bytes) {
    if (bytes == 0) return;
    out->written += bytes;
    if (bytes > sizeof out->buffer - out->used) {
        drain(out, out->buffer, out->used);
        out->used = 0;
    }
    if (bytes > sizeof out->buffer) {
        drain(out, data, bytes);
        return;
    }
    memcpy(out->buffer + out->used, data, bytes);
    out->used += bytes;
}

void wok_outfile_pad(wok_outfile *out, size_t alignment) {
    static const unsigned char zeros[64];
    size_t rest = (size_t)(out->written % alignment), need = rest ? alignment - rest : 0;
    for (; need > 0; need -= need < sizeof zeros ? need : sizeof zeros)
        wok_outfile_write(out, zeros, need < sizeof zeros ? need : sizeof zeros);
}

wok_status wok_outfile_flush(wok_outfile *out) {
    drain(out, out->buffer, out->used);
    out->used = 0;
    return out->status;
}

wok_status wok_outfile_commit(wok_outfile **result) {
    wok_outfile *out = *result;
    *result = NULL;
    wok_outfile_flush(out);
    if (close(out->fd) != 0) fail(out, out->path, errno); /* a full network disk says so here */
    if (out->status == WOK_OK && rename(out->temp, out->path) != 0) fail(out, out->path, errno);
    wok_status status = out->status;
    if (status != WOK_OK) unlink(out->temp);
    destroy(out);
    return status;
}

void wok_outfile_abort(wok_outfile **result) {
    if (!result || !*result) return;
    wok_outfile *out = *result;
    *result = NULL;
    close(out->fd);
    unlink(out->temp);
    destroy(out);
}

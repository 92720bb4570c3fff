/* cmd_lines.c - texts in portions. */
#include "cmd_lines.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int cmd_lines_open(const char *command, const cmd_list *texts, int first, const char *path, cmd_lines *lines) {
    memset(lines, 0, sizeof *lines);
    lines->next = first;
    if ((texts->count > first) == (path != NULL))
        return cmd_usage(command, "%s wants either --lines FILE or at least one more argument", command);
    if (!path) {
        lines->texts = texts;
        return 0;
    }
    lines->file = strcmp(path, "-") ? fopen(path, "rb") : stdin;
    return lines->file ? 0 : cmd_error("%s: %s", path, strerror(errno));
}

bool cmd_lines_next(cmd_lines *l) {
    for (l->count = 0; l->count < CMD_PORTION; l->count++, l->done++) {
        int i = l->count;
        if (l->texts) {
            if (l->next >= l->texts->count) break;
            l->lines[i] = (char *)l->texts->items[l->next++];
            l->lengths[i] = strlen(l->lines[i]);
        } else {
            int64_t length = cmd_read_line(l->file, &l->lines[i], &l->capacities[i]);
            if (length == -2) l->error = errno ? errno : EIO;
            if (length < 0) break;
            l->lengths[i] = (size_t)length;
        }
    }
    return l->count > 0;
}

int cmd_lines_close(cmd_lines *l, int status) {
    if (!status && l->error) status = cmd_error("the lines cannot be read: %s", strerror(l->error));
    if (!l->texts)
        for (int i = 0; i < CMD_PORTION; i++) free(l->lines[i]);
    if (l->file && l->file != stdin) fclose(l->file);
    return status;
}

/* ---- where the vocabulary is ------------------------------------------------------------------------------------------- */

static bool has_vocabulary(const char *folder) {
    static const char *const names[] = {"tokenizer.json", "vocab.txt"};
    char path[4096];
    struct stat info;
    for (int i = 0; i < 2; i++) {
        int n = snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        if (n > 0 && (size_t)n < sizeof path && stat(path, &info) == 0) return true;
    }
    return false;
}

bool cmd_text_place(const char *model, char *place, size_t size) {
    char folder[4096];
    struct stat info;
    bool is_folder = stat(model, &info) == 0 && S_ISDIR(info.st_mode);
    const char *slash = strrchr(model, '/');
    int length = is_folder ? (int)strlen(model) : slash ? (int)(slash - model) + 1 : 0;
    if (length + 4 > (int)sizeof folder) return false;
    snprintf(folder, sizeof folder, "%.*s%s", length, model, is_folder ? "" : ".");
    bool found = has_vocabulary(folder);
    if (!found && !is_folder) {
        strcat(folder, ".");
        found = has_vocabulary(folder);
    }
    if (found && place) found = (size_t)snprintf(place, size, "%s", folder) < size;
    return found;
}

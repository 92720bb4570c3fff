/* cmd_lines.c - texts in portions. */
#include "cmd_lines.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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

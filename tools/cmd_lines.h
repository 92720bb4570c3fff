/* cmd_lines.h - texts for embed and classify: from the command line or the lines of a file, in portions. */
#ifndef WOK_CMD_LINES_H
#define WOK_CMD_LINES_H

#include "cmd.h"

#define CMD_PORTION 256 /* texts that are tokenised and sorted together */

typedef struct cmd_lines {
    const cmd_list *texts; /* from index `next` on; or NULL: the lines of `file` */
    FILE *file;
    int next;
    int64_t done;
    char *lines[CMD_PORTION]; /* the portion at hand; not terminated where a line holds zero bytes */
    size_t lengths[CMD_PORTION], capacities[CMD_PORTION];
    int count, error; /* texts in the portion; the errno of a failed read */
} cmd_lines;

/* texts (from index `first`) or the lines of `path` ("-": stdin), of which exactly one must be given. 0, or a status
 * after a message. Close in any case. */
int cmd_lines_open(const char *command, const cmd_list *texts, int first, const char *path, cmd_lines *lines);
/* The next portion; false at the end. */
bool cmd_lines_next(cmd_lines *lines);
/* Returns status, or what a failed read makes of status 0 after a message. */
int cmd_lines_close(cmd_lines *lines, int status);

/* A model with a vocabulary (tokenizer.json or vocab.txt) in its folder, or beside or above its file, reads texts. Puts that
 * folder into place (NULL: does not). */
bool cmd_text_place(const char *model, char *place, size_t size);

#endif

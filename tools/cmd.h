/* cmd.h - what the sub-commands of `wok` share: options, errors, JSON, progress.
 *
 * Exit status: 0 right, 1 an error (one sentence on stderr and nothing else), 2 wrong usage. With --json nothing but
 * one JSON object goes to stdout.
 */
#ifndef WOK_CMD_H
#define WOK_CMD_H

#include "wok.h"

#include <stdio.h>

/* ---- commands ------------------------------------------------------------------------------------------------------ */

typedef struct cmd {
    const char *name;
    const char *usage; /* "MODEL [-i NAME=FILE.npy]..." */
    const char *text;  /* one line for the list of commands */
    int (*run)(int argc, char **argv); /* argv[0] is the command's name */
} cmd;

#define CMD(name, usage, text, more) int cmd_##name(int argc, char **argv);
#include "cmd.def"
#undef CMD

/* ---- options ------------------------------------------------------------------------------------------------------- */

typedef enum opt_kind {
    OPT_FLAG,   /* bool: set to true */
    OPT_TEXT,   /* const char * */
    OPT_COUNT,  /* int >= 1 */
    OPT_NUMBER, /* int >= 0 */
    OPT_REAL,   /* double, finite */
    OPT_LIST    /* cmd_list: may be given again and again */
} opt_kind;

typedef struct cmd_list {
    const char **items;
    int count;
} cmd_list;

typedef struct cmd_option {
    const char *name;  /* "--threads" or "-i" */
    opt_kind kind;
    void *target;
    const char *value; /* how the value is called in help: "N" */
    const char *help;
} cmd_option;

/* Parses options in any order after (and between) the positional arguments, which are gathered in *positional.
 * "--" ends the options; "--name=value" and "--name value" are equal. Returns true to go on. Otherwise *status is what
 * the command returns: 0 after --help, 2 after a message about wrong usage; the lists are freed then. */
bool cmd_parse(int argc, char **argv, const cmd_option *options, int option_count, int min_positional,
               int max_positional, cmd_list *positional, int *status);
#define CMD_OPTION_COUNT(options) ((int)(sizeof(options) / sizeof *(options)))
void cmd_list_free(cmd_list *list);

/* ---- errors and progress -------------------------------------------------------------------------------------------- */

/* A name from a file as one line for a terminal: control characters become question marks, and what is over 1,023 bytes is
 * cut. Good until eight calls later. */
const char *cmd_plain(const char *text);
/* One sentence on stderr; returns 1. */
int cmd_error(const char *format, ...) WOK_PRINTF(1, 2);
/* Wrong usage: the sentence, a pointer to --help; returns 2. */
int cmd_usage(const char *command, const char *format, ...) WOK_PRINTF(2, 3);
/* A line on stderr that is overwritten, only on a terminal; done == total clears it, as does an error. total INT64_MAX: not
 * known. */
void cmd_progress(const char *what, int64_t done, int64_t total);
/* Warnings of the library, for wok_ctx_options.log: kept until cmd_finish. */
void cmd_log(void *user, wok_log_level level, const char *text);
/* The end of every command: what stdout still holds is written (a full disk or a closed pipe makes status 0 an error), and
 * the warnings of a command that succeeded go to stderr. Returns the exit status. */
int cmd_finish(int status);

double cmd_now_ms(void);
int64_t cmd_peak_rss_mib(void);
/* "1x128" -> dims; -1 where it does not parse. */
int cmd_parse_shape(const char *text, int64_t *dims, int max);
/* "[1,128]" into buffer. */
const char *cmd_shape_text(const int64_t *dims, int rank, char *buffer, size_t size);
/* Makes a folder and its parents; *existing becomes the length of the part of the path that was there. 0, or an errno
 * after removing what was made. */
int cmd_make_dirs(const char *path, size_t *existing);
/* Removes the empty folders that cmd_make_dirs made. */
void cmd_remove_dirs(const char *path, size_t existing);
/* Reads a line of any length (with its zero bytes); the newline is dropped. -1 at the end, -2 where it cannot be read
 * (errno says why). */
int64_t cmd_read_line(FILE *file, char **line, size_t *capacity);

/* Length of the UTF-8 sequence at s (at most n bytes), 0 if it is not one: overlong forms, surrogates and values beyond
 * U+10FFFF are not. */
int cmd_utf8_length(const unsigned char *s, size_t n);

/* ---- JSON ----------------------------------------------------------------------------------------------------------- */

/* Writes one JSON value. Commas are placed by the writer. Floats that are not finite become null. */
typedef struct cmd_json {
    FILE *file;
    int depth;
    bool comma[16];
    bool after_key;
} cmd_json;

void json_start(cmd_json *json, FILE *file);
void json_object(cmd_json *json);
void json_object_end(cmd_json *json);
void json_array(cmd_json *json);
void json_array_end(cmd_json *json);
void json_key(cmd_json *json, const char *key);
void json_text(cmd_json *json, const char *text);                  /* NULL becomes null */
void json_bytes(cmd_json *json, const char *text, size_t length);  /* bytes that are not UTF-8 become U+FFFD */
void json_int(cmd_json *json, int64_t value);
void json_double(cmd_json *json, double value, int digits);        /* significant digits */
void json_bool(cmd_json *json, bool value);
void json_null(cmd_json *json);
/* Ends the line. False if writing failed (a full disk, a closed pipe). */
bool json_finish(cmd_json *json);

#endif

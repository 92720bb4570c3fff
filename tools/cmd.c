/* cmd.c - options, errors and small helpers of the sub-commands. */
#define _GNU_SOURCE
#include "cmd.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const struct {
    const char *name, *usage, *text, *more;
} usages[] = {
#define CMD(name, usage, text, more) {#name, usage, text, more},
#include "cmd.def"
#undef CMD
};

/* ---- sentences ------------------------------------------------------------------------------------------------------- */

static bool progress_shown;

const char *cmd_plain(const char *text) {
    static char ring[8][1024];
    static unsigned next;
    char *plain = ring[next++ % 8];
    snprintf(plain, sizeof ring[0], "%s", text);
    for (char *c = plain; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7F) *c = '?';
    return plain;
}

/* One line whatever a path or an argument holds: control characters become question marks. */
static void say(const char *format, va_list args) {
    char *text = NULL;
    if (vasprintf(&text, format, args) < 0) text = NULL;
    for (char *c = text; c && *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7F) *c = '?';
    if (progress_shown) cmd_progress("", 1, 1);
    fprintf(stderr, "wok: %s\n", text ? text : "out of memory");
    free(text);
}

int cmd_error(const char *format, ...) {
    va_list args;
    va_start(args, format);
    say(format, args);
    va_end(args);
    return 1;
}

int cmd_usage(const char *command, const char *format, ...) {
    char *text = NULL;
    va_list args;
    va_start(args, format);
    if (vasprintf(&text, format, args) < 0) text = NULL;
    va_end(args);
    cmd_error("%s; see `wok %s%s--help`", text ? text : "out of memory", command ? command : "", command ? " " : "");
    free(text);
    return 2;
}

/* Warnings wait until the command has succeeded: where it fails, one sentence says why and nothing stands around it. */
static char *warnings[8];
static int warning_count;

void cmd_log(void *user, wok_log_level level, const char *text) {
    (void)user;
    if (level != WOK_LOG_WARNING || warning_count == (int)(sizeof warnings / sizeof *warnings)) return;
    char *copy = strdup(text);
    if (copy) warnings[warning_count++] = copy;
}

int cmd_finish(int status) {
    errno = 0;
    bool flushed = fflush(stdout) == 0, whole = !ferror(stdout);
    if (status == 0 && !(flushed && whole))
        status = cmd_error("stdout cannot be written%s%s", errno ? ": " : "", errno ? strerror(errno) : "");
    for (int i = 0; i < warning_count; i++) {
        if (status == 0) cmd_error("warning: %s", warnings[i]);
        free(warnings[i]);
    }
    warning_count = 0;
    return status;
}

void cmd_progress(const char *what, int64_t done, int64_t total) {
    static double last;
    if (!isatty(STDERR_FILENO)) return;
    if (done >= total) {
        if (progress_shown) fputs("\r\033[K", stderr);
        progress_shown = false;
        last = 0;
        return;
    }
    double now = cmd_now_ms();
    if (now - last < 100) return;
    last = now;
    progress_shown = true;
    int filled = total > 0 ? (int)(30.0 * (double)done / (double)total) : 0;
    if (total == INT64_MAX)
        fprintf(stderr, "\r%s: %lld", what, (long long)done);
    else
        fprintf(stderr, "\r%s [%.*s%*s] %lld/%lld", what, filled, "##############################", 30 - filled, "",
                (long long)done, (long long)total);
    fflush(stderr);
}

/* ---- options --------------------------------------------------------------------------------------------------------- */

static void print_passes(void) {
    int column = printf("\nrewrites (--no-pass):");
    for (int i = 0; wok_pass_name(i); i++) {
        int first = 0; /* some run twice */
        while (strcmp(wok_pass_name(first), wok_pass_name(i)) != 0) first++;
        if (first < i) continue;
        if (column + (int)strlen(wok_pass_name(i)) > 110) column = printf("\n ") - 1;
        column += printf(" %s", wok_pass_name(i));
    }
    printf("\n");
}

static void print_help(const char *command, const cmd_option *options, int count) {
    bool passes = false;
    for (size_t i = 0; i < sizeof usages / sizeof *usages; i++)
        if (!strcmp(usages[i].name, command))
            printf("usage: wok %s%s%s [options]\n\n%s\n\noptions, in any order:\n", command,
                   usages[i].usage[0] ? " " : "", usages[i].usage, usages[i].more);
    for (int i = 0; i < count; i++) {
        char left[64];
        snprintf(left, sizeof left, "%s%s%s", options[i].name, options[i].value ? " " : "",
                 options[i].value ? options[i].value : "");
        printf("  %-24s %s\n", left, options[i].help);
        passes = passes || !strcmp(options[i].name, "--no-pass");
    }
    printf("  %-24s %s\n", "--help", "this text");
    if (passes) print_passes();
}

static const char *usage_of(const char *command) {
    size_t i = 0;
    while (strcmp(usages[i].name, command) != 0) i++;
    return usages[i].usage;
}

static bool list_add(cmd_list *list, const char *item) {
    const char **items = realloc(list->items, (size_t)(list->count + 1) * sizeof *items);
    if (!items) return false;
    list->items = items;
    list->items[list->count++] = item;
    return true;
}

void cmd_list_free(cmd_list *list) {
    free(list->items);
    *list = (cmd_list){NULL, 0};
}

static const cmd_option *find_option(const cmd_option *options, int count, const char *arg, const char **value) {
    for (int i = 0; i < count; i++) {
        size_t length = strlen(options[i].name);
        if (strncmp(arg, options[i].name, length) != 0) continue;
        if (arg[length] == 0) {
            *value = NULL;
            return &options[i];
        }
        if (arg[length] == '=' && arg[1] == '-') {
            *value = arg + length + 1;
            return &options[i];
        }
    }
    return NULL;
}

/* 0, or 2 after a message. */
static int store(const char *command, const cmd_option *option, const char *value) {
    if (!*value) return cmd_usage(command, "%s wants a value, not an empty one", option->name);
    if (option->kind == OPT_TEXT) {
        *(const char **)option->target = value;
    } else if (option->kind == OPT_LIST) {
        if (!list_add(option->target, value)) return cmd_error("out of memory");
    } else if (option->kind == OPT_REAL) {
        char *end;
        double number = strtod(value, &end);
        if (*end || end == value || !isfinite(number))
            return cmd_usage(command, "%s wants a number, not `%s`", option->name, value);
        *(double *)option->target = number;
    } else {
        char *end;
        long number = strtol(value, &end, 10);
        long least = option->kind == OPT_COUNT ? 1 : 0;
        if (*end || end == value || number < least || number > 1000000000)
            return cmd_usage(command, "%s wants a whole number of at least %ld, not `%s`", option->name, least, value);
        *(int *)option->target = (int)number;
    }
    return 0;
}

bool cmd_parse(int argc, char **argv, const cmd_option *options, int option_count, int min_positional,
               int max_positional, cmd_list *positional, int *status) {
    const char *command = argv[0];
    bool only_positional = false;
    *positional = (cmd_list){NULL, 0};
    *status = 0;
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i], *value;
        if (only_positional || arg[0] != '-' || arg[1] == 0) {
            if (!list_add(positional, arg)) *status = cmd_error("out of memory");
        } else if (!strcmp(arg, "--")) {
            only_positional = true;
        } else if (!strcmp(arg, "--help") || !strcmp(arg, "-h")) {
            print_help(command, options, option_count);
            goto out;
        } else {
            const cmd_option *option = find_option(options, option_count, arg, &value);
            if (!option) {
                *status = cmd_usage(command, "%s has no option `%s`", command, arg);
            } else if (option->kind == OPT_FLAG) {
                if (value) *status = cmd_usage(command, "%s takes no value", option->name);
                *(bool *)option->target = true;
            } else {
                if (!value && i + 1 < argc) value = argv[++i];
                *status = value ? store(command, option, value) : cmd_usage(command, "%s wants a value", option->name);
            }
        }
        if (*status) break;
    }
    if (!*status && positional->count < min_positional)
        *status = cmd_usage(command, "%s wants %s", command, usage_of(command));
    if (!*status && max_positional >= 0 && positional->count > max_positional)
        *status =
            cmd_usage(command, "%s does not know what to do with `%s`", command, positional->items[max_positional]);
    if (!*status) return true;
out:
    cmd_list_free(positional);
    for (int i = 0; i < option_count; i++)
        if (options[i].kind == OPT_LIST) cmd_list_free(options[i].target);
    return false;
}

/* ---- small helpers ---------------------------------------------------------------------------------------------------- */

double cmd_now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

int64_t cmd_peak_rss_mib(void) {
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (int64_t)usage.ru_maxrss / 1024 : 0;
}

int cmd_parse_shape(const char *text, int64_t *dims, int max) {
    int rank = 0;
    if (!*text) return 0;
    for (;;) {
        char *end;
        errno = 0;
        long long dim = strtoll(text, &end, 10);
        if (end == text || errno || dim < 0 || rank == max) return -1;
        dims[rank++] = dim;
        if (*end == 0) return rank;
        if (*end != 'x' && *end != ',') return -1;
        text = end + 1;
    }
}

const char *cmd_shape_text(const int64_t *dims, int rank, char *buffer, size_t size) {
    size_t used = (size_t)snprintf(buffer, size, "[");
    for (int i = 0; i < rank && used < size; i++)
        used += (size_t)snprintf(buffer + used, size - used, dims[i] < 0 ? "%s?" : "%s%lld", i ? "," : "",
                                 (long long)dims[i]);
    if (used < size) snprintf(buffer + used, size - used, "]");
    return buffer;
}

/* mkdir says EROFS or EACCES of folders that exist, too. */
static int make_dir(const char *path, bool *made) {
    struct stat info;
    *made = mkdir(path, 0777) == 0;
    if (*made) return 0;
    int error = errno;
    if (stat(path, &info) != 0) return error;
    return S_ISDIR(info.st_mode) ? 0 : ENOTDIR;
}

int cmd_make_dirs(const char *path, size_t *existing) {
    size_t length = strlen(path);
    char *buffer = strdup(path);
    int error = !buffer ? ENOMEM : length == 0 ? ENOENT : 0;
    *existing = length;
    for (size_t i = 1; i <= length && !error; i++) {
        if (path[i] != '/' && path[i] != 0) continue;
        bool made;
        buffer[i] = 0;
        error = make_dir(buffer, &made);
        buffer[i] = path[i];
        if (made && *existing == length) *existing = i - 1;
    }
    free(buffer);
    if (error) cmd_remove_dirs(path, *existing);
    return error;
}

void cmd_remove_dirs(const char *path, size_t existing) {
    char *buffer = strdup(path);
    for (size_t i = strlen(path); buffer && i > existing; i--)
        if (path[i] == 0 || path[i] == '/') {
            buffer[i] = 0;
            rmdir(buffer);
        }
    free(buffer);
}

int64_t cmd_read_line(FILE *file, char **line, size_t *capacity) {
    ssize_t length = getline(line, capacity, file);
    if (length < 0) return ferror(file) || !feof(file) ? -2 : -1;
    if (length > 0 && (*line)[length - 1] == '\n') length--;
    (*line)[length] = 0;
    return length;
}

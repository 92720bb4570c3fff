/* cmd.c - options, errors and small helpers of the sub-commands. */
#define _GNU_SOURCE
#include "cmd.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const struct {
    const char *name, *usage, *text;
} usages[] = {
#define CMD(name, usage, text) {#name, usage, text},
#include "cmd.def"
#undef CMD
};

static void vsentence(const char *format, va_list args) {
    fputs("wok: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
}

int cmd_error(const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsentence(format, args);
    va_end(args);
    return 1;
}

int cmd_usage(const char *command, const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fprintf(stderr, "wok: %s; see `wok %s%s--help`\n", text, command ? command : "", command ? " " : "");
    return 2;
}

void cmd_log(void *user, wok_log_level level, const char *text) {
    (void)user;
    if (level == WOK_LOG_WARNING) fprintf(stderr, "wok: warning: %s\n", text);
}

void cmd_progress(const char *what, int64_t done, int64_t total) {
    static double last;
    if (!isatty(STDERR_FILENO)) return;
    if (done >= total) {
        fputs("\r\033[K", stderr);
        last = 0;
        return;
    }
    double now = cmd_now_ms();
    if (now - last < 100) return;
    last = now;
    int filled = (int)(30 * done / (total > 0 ? total : 1));
    fprintf(stderr, "\r%s [%.*s%*s] %lld/%lld", what, filled, "##############################", 30 - filled, "",
            (long long)done, (long long)total);
    fflush(stderr);
}

/* ---- options --------------------------------------------------------------------------------------------------------- */

static void print_help(const char *command, const cmd_option *options, int count) {
    for (size_t i = 0; i < sizeof usages / sizeof *usages; i++)
        if (!strcmp(usages[i].name, command))
            printf("usage: wok %s %s [options]\n\n%s.\n\noptions:\n", command, usages[i].usage, usages[i].text);
    for (int i = 0; i < count; i++) {
        char left[64];
        snprintf(left, sizeof left, "%s%s%s", options[i].name, options[i].value ? " " : "",
                 options[i].value ? options[i].value : "");
        printf("  %-24s %s\n", left, options[i].help);
    }
    printf("  %-24s %s\n", "--help", "this text");
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
    if (option->kind == OPT_TEXT) {
        *(const char **)option->target = value;
    } else if (option->kind == OPT_LIST) {
        if (!list_add(option->target, value)) return cmd_error("out of memory");
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
            cmd_list_free(positional);
            return false;
        } else {
            const cmd_option *option = find_option(options, option_count, arg, &value);
            if (!option) {
                *status = cmd_usage(command, "%s has no option `%s`", command, arg);
            } else if (option->kind == OPT_FLAG) {
                if (value) *status = cmd_usage(command, "%s takes no value", option->name);
                *(bool *)option->target = true;
            } else {
                if (!value && i + 1 < argc) value = argv[++i];
                *status = value ? store(command, option, value)
                                : cmd_usage(command, "%s wants a value", option->name);
            }
        }
        if (*status) break;
    }
    if (!*status && positional->count < min_positional)
        *status = cmd_usage(command, "%s wants %s", command, min_positional == 1 ? "one more argument" : "more arguments");
    if (!*status && max_positional >= 0 && positional->count > max_positional)
        *status = cmd_usage(command, "%s does not know what to do with `%s`", command, positional->items[max_positional]);
    if (*status) cmd_list_free(positional);
    return *status == 0;
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

int cmd_make_dirs(const char *path) {
    char buffer[4096];
    size_t length = strlen(path);
    if (length == 0 || length >= sizeof buffer) return length ? ENAMETOOLONG : ENOENT;
    memcpy(buffer, path, length + 1);
    for (char *p = buffer + 1;; p++) {
        if (*p && *p != '/') continue;
        char saved = *p;
        *p = 0;
        if (mkdir(buffer, 0777) != 0 && errno != EEXIST) return errno;
        *p = saved;
        if (!saved) break;
    }
    struct stat info;
    if (stat(path, &info) != 0) return errno;
    return S_ISDIR(info.st_mode) ? 0 : ENOTDIR;
}

int64_t cmd_read_line(FILE *file, char **line, size_t *capacity) {
    ssize_t length = getline(line, capacity, file);
    if (length > 0 && (*line)[length - 1] == '\n') length--;
    if (length >= 0) (*line)[length] = 0;
    return length;
}

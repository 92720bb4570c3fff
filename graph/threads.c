/* threads.c - how many threads a run takes: CPUs allowed to the process, and no more than its control groups pay for.
 *
 * A pool sized to the machine under a CFS quota spins its quota away and is throttled. The quota may be set on any
 * ancestor of the process's group: the tightest one counts. */
#define _GNU_SOURCE
#include "pool.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* First line of the file; false if it cannot be read. */
static bool read_line(const char *path, char *line, size_t size) {
    FILE *file = fopen(path, "re");
    if (!file) return false;
    bool ok = fgets(line, (int)size, file) != NULL;
    fclose(file);
    return ok;
}

static double tighter(double a, double b) {
    return a == 0 ? b : b == 0 ? a : fmin(a, b);
}

static double v2_quota(const char *group) {
    char path[4200], line[128];
    double quota, period;
    snprintf(path, sizeof path, "%s/cpu.max", group);
    if (!read_line(path, line, sizeof line) || sscanf(line, "%lf %lf", &quota, &period) != 2)
        return 0; /* "max 100000" */
    return quota > 0 && period > 0 ? quota / period : 0;
}

static double v1_quota(const char *group) {
    char path[4200], line[128];
    snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", group);
    double quota = read_line(path, line, sizeof line) ? atof(line) : 0; /* -1: none */
    snprintf(path, sizeof path, "%s/cpu.cfs_period_us", group);
    double period = read_line(path, line, sizeof line) ? atof(line) : 0;
    return quota > 0 && period > 0 ? quota / period : 0;
}

/* Of the group and its ancestors up to the mount. Inside a container the path may not exist there: the mount itself is
 * read all the same. */
static double walk(const char *mount, const char *group, double (*quota)(const char *)) {
    char path[4160];
    size_t top = strlen(mount);
    if (snprintf(path, sizeof path, "%s%s", mount, strstr(group, "..") ? "" : group) >= (int)sizeof path) return 0;
    double least = 0;
    for (;;) {
        least = tighter(least, quota(path));
        char *slash = strrchr(path, '/');
        if (!slash || (size_t)(slash - path) < top) return least;
        *slash = 0;
    }
}

/* Does the comma-separated list of controllers hold "cpu"? */
static bool has_cpu(const char *list) {
    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strncmp(at, "cpu", 3) == 0 && (at[3] == 0 || at[3] == ',')) return true;
    return false;
}

/* One line of /proc/self/cgroup: "0::/group" (v2) or "4:cpu,cpuacct:/group" (v1). */
static double line_quota(const char *root, char *line) {
    char mount[4096];
    line[strcspn(line, "\n")] = 0;
    char *list = strchr(line, ':');
    char *group = list ? strchr(list + 1, ':') : NULL;
    if (!group) return 0;
    *list++ = 0;
    *group++ = 0;
    if (!*list) {
        snprintf(mount, sizeof mount, "%s/sys/fs/cgroup", root);
        return walk(mount, group, v2_quota);
    }
    if (!has_cpu(list)) return 0;
    snprintf(mount, sizeof mount, "%s/sys/fs/cgroup/%s", root, list);
    double named = walk(mount, group, v1_quota);
    snprintf(mount, sizeof mount, "%s/sys/fs/cgroup/cpu", root);
    return tighter(named, walk(mount, group, v1_quota));
}

double wok_cgroup_quota(const char *root) {
    char path[4096], line[4096];
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "re");
    if (!file) return 0;
    double least = 0;
    while (fgets(line, sizeof line, file)) least = tighter(least, line_quota(root, line));
    fclose(file);
    return least;
}

static int affinity(void) {
#if defined(__linux__)
    /* The kernel refuses sets that are smaller than its own. */
    for (int cpus = 1024; cpus <= 65536; cpus *= 4) {
        cpu_set_t *set = CPU_ALLOC((size_t)cpus);
        if (!set) break;
        size_t bytes = CPU_ALLOC_SIZE((size_t)cpus);
        int count = sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 0;
        CPU_FREE(set);
        if (count > 0) return count;
    }
#endif
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}

void wok_cpu_budget_read(wok_cpu_budget *budget) {
    const char *text = getenv("WOK_NUM_THREADS");
    char *end = NULL;
    long n = text ? strtol(text, &end, 10) : 0;
    *budget = (wok_cpu_budget){affinity(), wok_cgroup_quota(""),
                               text && end != text && !*end && n > 0 && n < 1 << 20 ? (int)n : 0};
}

static int clamp(int n) {
    return n < 1 ? 1 : n > WOK_MAX_THREADS ? WOK_MAX_THREADS : n;
}

static int allowed(const wok_cpu_budget *budget) {
    int cpus = budget->affinity;
    if (budget->quota > 0 && budget->quota < cpus) cpus = (int)ceil(budget->quota - 1e-6);
    return clamp(cpus);
}

int wok_thread_count(const wok_cpu_budget *budget, int asked) {
    if (asked > 0) return clamp(asked);
    return budget->environment > 0 ? clamp(budget->environment) : allowed(budget);
}

const char *wok_thread_count_text(const wok_cpu_budget *budget, int asked, char *text, size_t size) {
    int n = wok_thread_count(budget, asked);
    const char *s = n == 1 ? "" : "s";
    if (asked > 0)
        snprintf(text, size, "%d thread%s, as asked for", n, s);
    else if (budget->environment > 0)
        snprintf(text, size, "%d thread%s, by WOK_NUM_THREADS", n, s);
    else if (budget->quota > 0 && n < budget->affinity)
        snprintf(text, size, "%d thread%s: the control group grants %.2f of %d CPUs", n, s, budget->quota,
                 budget->affinity);
    else
        snprintf(text, size, "%d thread%s: as many as CPUs are allowed to the process", n, s);
    return text;
}

int64_t wok_spin_ns(const wok_cpu_budget *budget, int threads, int asked_us) {
    if (asked_us < 0 || threads > allowed(budget)) return 0;
    int us = asked_us == 0 ? 50 : asked_us > 1000 ? 1000 : asked_us;
    return (int64_t)us * 1000;
}

/* replay.c - a main for fuzz targets where there is no libFuzzer: every file of the given folders as it is, cut at a
 * few places, and with bytes changed (the same changes on every run). usage: TARGET [ROUNDS] FOLDER|FILE... */
#define _DEFAULT_SOURCE
#include "fuzz.h"

#include <dirent.h>
#include <sys/stat.h>

static int rounds = 50;
static long inputs;
static uint64_t state = 0x9e3779b97f4a7c15u;

static uint64_t random_next(void) {
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

/* From memory of exactly this size, so that the sanitizers see a read beyond it. */
static void try_bytes(const uint8_t *data, size_t size) {
    uint8_t *exact = malloc(size ? size : 1);
    if (!exact) abort();
    if (size) memcpy(exact, data, size);
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
    inputs++;
}

static void try_changed(uint8_t *data, size_t size) {
    static const uint8_t edges[] = {0, 1, 0x7f, 0x80, 0xff};
    size_t at[4];
    uint8_t old[4];
    int changes = 1 + (int)(random_next() % 4);
    for (int i = 0; i < changes; i++) {
        at[i] = (size_t)(random_next() % size);
        old[i] = data[at[i]];
        uint64_t how = random_next();
        data[at[i]] = how % 3 == 0   ? (uint8_t)(how >> 8)
                      : how % 3 == 1 ? (uint8_t)(old[i] ^ 1u << (how >> 8) % 8)
                                     : edges[(how >> 8) % sizeof edges];
    }
    try_bytes(data, size);
    for (int i = changes; i-- > 0;) data[at[i]] = old[i];
}

static void replay_file(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        exit(1);
    }
    fseek(file, 0, SEEK_END);
    size_t size = (size_t)ftell(file);
    rewind(file);
    uint8_t *data = malloc(size + 1);
    if (!data || fread(data, 1, size, file) != size) exit(1);
    fclose(file);
    try_bytes(data, size);
    for (int i = 0; i < rounds && size > 0; i++) {
        if (i % 4 == 0) try_bytes(data, (size_t)(random_next() % size));
        try_changed(data, size);
    }
    free(data);
}

static void replay(const char *path) {
    struct stat info;
    DIR *folder = stat(path, &info) == 0 && S_ISDIR(info.st_mode) ? opendir(path) : NULL;
    if (!folder) {
        replay_file(path);
        return;
    }
    for (struct dirent *entry; (entry = readdir(folder));) {
        char inner[4096];
        if (entry->d_name[0] == '.') continue;
        snprintf(inner, sizeof inner, "%s/%s", path, entry->d_name);
        replay(inner);
    }
    closedir(folder);
}

int main(int argc, char **argv) {
    int first = 1;
    if (argc > 1 && atoi(argv[1]) > 0) rounds = atoi(argv[first++]);
    for (int i = first; i < argc; i++) replay(argv[i]);
    printf("%ld inputs, no broken promise\n", inputs);
    return inputs == 0;
}

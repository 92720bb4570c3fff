/* loader.c - see loader.h. */
#include "loader.h"

#include <stdio.h>

const unsigned char wok_loader_nothing[1] = {0};

const char *wok_loader_shape(const int64_t *dims, int rank, char *buffer, size_t size) {
    size_t used = (size_t)snprintf(buffer, size, "[");
    for (int i = 0; i < rank && used < size; i++)
        used += (size_t)snprintf(buffer + used, size - used, "%s%lld", i ? "," : "", (long long)dims[i]);
    if (used < size) snprintf(buffer + used, size - used, "]");
    return buffer;
}

const char *wok_loader_printable(const char *name, size_t length, char *buffer, size_t size) {
    size_t n = length < size - 1 ? length : size - 1;
    for (size_t i = 0; i < n; i++) buffer[i] = (unsigned char)name[i] < 0x20 || name[i] == 0x7f ? '?' : name[i];
    while (n < length && n > 0 && ((unsigned char)name[n] & 0xc0) == 0x80) n--; /* not in the middle of a character */
    buffer[n] = 0;
    return buffer;
}

/* exif.c - the one thing that pixels need from an EXIF block. TIFF 6.0 section 2, Exif 2.3 section 4.6.4. */
#include "image.h"

enum { TAG_ORIENTATION = 0x0112, TYPE_SHORT = 3, ENTRY_BYTES = 12 };

typedef struct tiff {
    const uint8_t *data;
    size_t bytes;
    bool big_endian;
} tiff;

/* Bytes that lie outside read as zero, which no caller takes for an orientation. */
static uint32_t get(const tiff *t, size_t at, int width) {
    uint32_t value = 0;
    if (at > t->bytes || t->bytes - at < (size_t)width) return 0;
    for (int i = 0; i < width; i++) value = value << 8 | t->data[at + (size_t)(t->big_endian ? i : width - 1 - i)];
    return value;
}

int wok_exif_orientation(const uint8_t *data, size_t bytes) {
    tiff t = {data, bytes, false};
    if (bytes < 8 || data[0] != data[1] || (data[0] != 'I' && data[0] != 'M')) return 0;
    t.big_endian = data[0] == 'M';
    if (get(&t, 2, 2) != 42) return 0;
    size_t directory = get(&t, 4, 4);
    uint32_t entries = get(&t, directory, 2);
    for (uint32_t i = 0; i < entries; i++) {
        size_t at = directory + 2 + (size_t)i * ENTRY_BYTES;
        if (at > bytes || bytes - at < ENTRY_BYTES) return 0;
        if (get(&t, at, 2) != TAG_ORIENTATION) continue;
        if (get(&t, at + 2, 2) != TYPE_SHORT || get(&t, at + 4, 4) != 1) return 0;
        uint32_t value = get(&t, at + 8, 2);
        return value >= 1 && value <= 8 ? (int)value : 0;
    }
    return 0;
}

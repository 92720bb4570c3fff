/* json_out.c - the JSON writer of cmd.h. */
#include "cmd.h"

#include <math.h>
#include <string.h>

void json_start(cmd_json *json, FILE *file) {
    memset(json, 0, sizeof *json);
    json->file = file;
}

static void separate(cmd_json *json) {
    if (json->after_key) {
        json->after_key = false;
        return;
    }
    if (json->comma[json->depth]) fputc(',', json->file);
    json->comma[json->depth] = true;
}

static void open_level(cmd_json *json, char bracket) {
    separate(json);
    fputc(bracket, json->file);
    if (json->depth + 1 < (int)(sizeof json->comma)) json->depth++;
    json->comma[json->depth] = false;
}

static void close_level(cmd_json *json, char bracket) {
    fputc(bracket, json->file);
    if (json->depth > 0) json->depth--;
}

void json_object(cmd_json *json) { open_level(json, '{'); }
void json_object_end(cmd_json *json) { close_level(json, '}'); }
void json_array(cmd_json *json) { open_level(json, '['); }
void json_array_end(cmd_json *json) { close_level(json, ']'); }

void json_key(cmd_json *json, const char *key) {
    json_text(json, key);
    fputc(':', json->file);
    json->after_key = true;
}

int cmd_utf8_length(const unsigned char *s, size_t n) {
    if (s[0] < 0x80) return 1;
    int length = s[0] >= 0xF0 && s[0] <= 0xF4 ? 4 : s[0] >= 0xE0 ? 3 : s[0] >= 0xC2 ? 2 : 0;
    if (!length || s[0] > 0xF4 || (size_t)length > n) return 0;
    for (int i = 1; i < length; i++)
        if ((s[i] & 0xC0) != 0x80) return 0;
    if ((s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xED && s[1] > 0x9F) || (s[0] == 0xF0 && s[1] < 0x90) ||
        (s[0] == 0xF4 && s[1] > 0x8F))
        return 0;
    return length;
}

void json_bytes(cmd_json *json, const char *text, size_t length) {
    separate(json);
    fputc('"', json->file);
    const unsigned char *s = (const unsigned char *)text;
    for (size_t i = 0; i < length;) {
        int n = cmd_utf8_length(s + i, length - i);
        if (n == 0) {
            fputs("\\ufffd", json->file);
            i++;
        } else if (n > 1) {
            fwrite(s + i, 1, (size_t)n, json->file);
            i += (size_t)n;
        } else {
            unsigned char c = s[i++];
            if (c == '"' || c == '\\') fprintf(json->file, "\\%c", c);
            else if (c < 0x20 || c == 0x7F) fprintf(json->file, "\\u%04x", c);
            else fputc(c, json->file);
        }
    }
    fputc('"', json->file);
}

void json_text(cmd_json *json, const char *text) {
    if (text) json_bytes(json, text, strlen(text));
    else json_null(json);
}

void json_int(cmd_json *json, int64_t value) {
    separate(json);
    fprintf(json->file, "%lld", (long long)value);
}

void json_double(cmd_json *json, double value, int digits) {
    if (!isfinite(value)) {
        json_null(json);
        return;
    }
    separate(json);
    fprintf(json->file, "%.*g", digits, value);
}

void json_bool(cmd_json *json, bool value) {
    separate(json);
    fputs(value ? "true" : "false", json->file);
}

void json_null(cmd_json *json) {
    separate(json);
    fputs("null", json->file);
}

bool json_finish(cmd_json *json) {
    fputc('\n', json->file);
    return fflush(json->file) == 0 && !ferror(json->file);
}

/* wire.c - see wire.h. */
#include "wire.h"

#include <string.h>

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static bool refuse(wok_wire *wire, const char *problem) {
    wire->problem = problem;
    return false;
}

/* At most ten bytes; bits beyond 64 are dropped, as every protobuf reader does. NULL if the bytes end before the
 * number. */
static const uint8_t *varint(const uint8_t *at, const uint8_t *end, uint64_t *value) {
    uint64_t result = 0;
    for (unsigned shift = 0; shift < 70; shift += 7) {
        if (at == end) return NULL;
        uint8_t byte = *at++;
        result |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *value = result;
            return at;
        }
    }
    return NULL;
}

static uint64_t fixed(const uint8_t *at, size_t bytes) {
    uint64_t value = 0;
    memcpy(&value, at, bytes);
    return value;
}

bool wok_wire_next(wok_wire *wire) {
    if (wire->problem || wire->at == wire->end) return false;
    uint64_t key, length = 0;
    const uint8_t *at = varint(wire->at, wire->end, &key);
    if (!at) return refuse(wire, "a field's number is cut off");
    if (key >> 3 == 0 || key >> 3 > 0x1fffffff) return refuse(wire, "a field's number is out of range");
    wire->field = (uint32_t)(key >> 3);
    wire->type = (wok_wire_type)(key & 7);
    size_t left = (size_t)(wire->end - at);
    switch (wire->type) {
    case WOK_WIRE_VARINT: {
        const uint8_t *end = varint(at, wire->end, &wire->number);
        if (!end) return refuse(wire, "a number is cut off");
        length = (uint64_t)(end - at);
        break;
    }
    case WOK_WIRE_64: length = 8; break;
    case WOK_WIRE_32: length = 4; break;
    case WOK_WIRE_BYTES:
        at = varint(at, wire->end, &length);
        if (!at) return refuse(wire, "a length is cut off");
        left = (size_t)(wire->end - at);
        break;
    default: return refuse(wire, "a field has an unknown wire type");
    }
    if (length > left) return refuse(wire, "a field is longer than what is left");
    if (wire->type == WOK_WIRE_64 || wire->type == WOK_WIRE_32) wire->number = fixed(at, (size_t)length);
    wire->span = (wok_span){at, (size_t)length};
    wire->at = at + length;
    return true;
}

bool wok_wire_number(wok_wire *wire, wok_wire_type type, size_t *at, uint64_t *number) {
    if (*at >= wire->span.bytes) return false;
    if (wire->type != WOK_WIRE_BYTES) { /* not packed: this field is one number */
        *at = wire->span.bytes;
        *number = wire->number;
        return wire->type == type ? true : refuse(wire, "a number has the wrong wire type");
    }
    const uint8_t *p = wire->span.data + *at, *end = wire->span.data + wire->span.bytes;
    size_t size = type == WOK_WIRE_64 ? 8 : 4;
    if (type == WOK_WIRE_VARINT) {
        p = varint(p, end, number);
        if (!p) return refuse(wire, "a number is cut off");
        *at = (size_t)(p - wire->span.data);
        return true;
    }
    if (size > (size_t)(end - p)) return refuse(wire, "a number is cut off");
    *number = fixed(p, size);
    *at += size;
    return true;
}

size_t wok_wire_numbers(const wok_wire *wire, wok_wire_type type) {
    if (wire->type != WOK_WIRE_BYTES) return 1;
    if (type != WOK_WIRE_VARINT) return wire->span.bytes / (type == WOK_WIRE_64 ? 8 : 4);
    size_t count = 0; /* every varint has one byte without the continuation bit */
    for (size_t i = 0; i < wire->span.bytes; i++) count += wire->span.data[i] < 0x80;
    return count;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* Spans below this are copied: a reference costs more than they do. */
enum { REF_BYTES = 1024 };

static uint8_t *reserve(wok_wire_out *out, size_t bytes) {
    if (out->status != WOK_OK) return NULL;
    if (bytes > out->capacity - out->bytes) {
        void *data = out->data;
        out->status = bytes > SIZE_MAX - out->bytes ? WOK_ERR_MEMORY
                                                    : wok_ctx_grow(out->ctx, &data, &out->capacity, out->bytes + bytes);
        out->data = data;
        if (out->status != WOK_OK) return NULL;
    }
    uint8_t *at = out->data + out->bytes;
    out->bytes += bytes;
    return at;
}

static size_t put_varint(uint8_t *at, uint64_t value) {
    size_t n = 0;
    for (; value >= 0x80; value >>= 7) at[n++] = (uint8_t)(value | 0x80);
    at[n++] = (uint8_t)value;
    return n;
}

static void put_number(wok_wire_out *out, uint64_t value) {
    uint8_t bytes[10];
    size_t n = put_varint(bytes, value);
    uint8_t *at = reserve(out, n);
    if (at) memcpy(at, bytes, n);
}

static void put_key(wok_wire_out *out, uint32_t field, wok_wire_type type) {
    put_number(out, (uint64_t)field << 3 | (unsigned)type);
}

void wok_wire_out_free(wok_wire_out *out) {
    wok_ctx_release(out->ctx, out->data, out->capacity);
    wok_ctx_release(out->ctx, out->refs, out->ref_capacity);
    *out = (wok_wire_out){.ctx = out->ctx};
}

void wok_wire_put_int(wok_wire_out *out, uint32_t field, int64_t value) {
    put_key(out, field, WOK_WIRE_VARINT);
    put_number(out, (uint64_t)value);
}

void wok_wire_put_float(wok_wire_out *out, uint32_t field, float value) {
    put_key(out, field, WOK_WIRE_32);
    uint8_t *at = reserve(out, 4);
    if (at) memcpy(at, &value, 4);
}

void wok_wire_put_text(wok_wire_out *out, uint32_t field, const char *text) {
    if (text) wok_wire_put_bytes(out, field, text, strlen(text));
}

static void put_ref(wok_wire_out *out, const void *data, size_t bytes) {
    if (out->status != WOK_OK) return;
    size_t need = (out->ref_count + 1) * sizeof *out->refs;
    void *refs = out->refs;
    if (need > out->ref_capacity) out->status = wok_ctx_grow(out->ctx, &refs, &out->ref_capacity, need);
    out->refs = refs;
    if (out->status != WOK_OK) return;
    out->refs[out->ref_count++] = (struct wok_wire_ref){out->bytes, {data, bytes}};
}

void wok_wire_put_bytes(wok_wire_out *out, uint32_t field, const void *data, size_t bytes) {
    put_key(out, field, WOK_WIRE_BYTES);
    put_number(out, bytes);
    if (bytes >= REF_BYTES) {
        put_ref(out, data, bytes);
        return;
    }
    uint8_t *at = reserve(out, bytes);
    if (at && bytes > 0) memcpy(at, data, bytes);
}

void wok_wire_put_packed_ints(wok_wire_out *out, uint32_t field, const int64_t *values, int64_t count) {
    wok_wire_mark mark = wok_wire_begin(out, field);
    for (int64_t i = 0; i < count; i++) put_number(out, (uint64_t)values[i]);
    wok_wire_end(out, mark);
}

void wok_wire_put_packed_floats(wok_wire_out *out, uint32_t field, const float *values, int64_t count) {
    wok_wire_mark mark = wok_wire_begin(out, field);
    uint8_t *at = reserve(out, (size_t)count * 4);
    if (at && count > 0) memcpy(at, values, (size_t)count * 4);
    wok_wire_end(out, mark);
}

/* The length stands before a message whose length is not known yet: ten bytes are left for it, and the message moves
 * up to its place at the end. */
enum { LENGTH_ROOM = 10 };

wok_wire_mark wok_wire_begin(wok_wire_out *out, uint32_t field) {
    put_key(out, field, WOK_WIRE_BYTES);
    reserve(out, LENGTH_ROOM);
    return (wok_wire_mark){out->bytes, out->ref_count};
}

void wok_wire_end(wok_wire_out *out, wok_wire_mark mark) {
    if (out->status != WOK_OK) return;
    uint64_t length = out->bytes - mark.at;
    for (size_t i = mark.ref; i < out->ref_count; i++) length += out->refs[i].span.bytes;
    uint8_t *room = out->data + mark.at - LENGTH_ROOM;
    size_t used = put_varint(room, length), gap = LENGTH_ROOM - used;
    memmove(room + used, out->data + mark.at, out->bytes - mark.at);
    out->bytes -= gap;
    for (size_t i = mark.ref; i < out->ref_count; i++) out->refs[i].at -= gap;
}

uint64_t wok_wire_total(const wok_wire_out *out) {
    uint64_t total = out->bytes;
    for (size_t i = 0; i < out->ref_count; i++) total += out->refs[i].span.bytes;
    return total;
}

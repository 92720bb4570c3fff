/* wire.h - protobuf's wire format, read in place and written (internal).
 *
 * A message is a run of fields: a key (field number, wire type) and a value. The reader hands out one field after the
 * other as spans of the original bytes; it never copies, never recurses, and checks every length against what is left.
 * Source: protobuf.dev/programming-guides/encoding. Groups (wire types 3 and 4) were gone before ONNX began: refused.
 */
#ifndef WOK_WIRE_H
#define WOK_WIRE_H

#include "wok_build.h"

/* ---- reading ----------------------------------------------------------------------------------------------------- */

typedef struct wok_span {
    const uint8_t *data;
    size_t bytes;
} wok_span;

typedef enum wok_wire_type { WOK_WIRE_VARINT = 0, WOK_WIRE_64 = 1, WOK_WIRE_BYTES = 2, WOK_WIRE_32 = 5 } wok_wire_type;

typedef struct wok_wire {
    const uint8_t *at, *end;
    /* the field last read */
    uint32_t field;
    wok_wire_type type;
    uint64_t number; /* varint, 64 or 32 bits */
    wok_span span;   /* bytes, or the encoded number itself */
    /* NULL, or what is wrong, at `at` */
    const char *problem;
} wok_wire;

/* A message that is absent (data NULL) is an empty one. */
static inline wok_wire wok_wire_open(wok_span message) {
    static const uint8_t nothing[1];
    const uint8_t *data = message.bytes > 0 ? message.data : nothing;
    return (wok_wire){.at = data, .end = data + message.bytes};
}
/* The next field. False at the end and at the first problem. */
bool wok_wire_next(wok_wire *wire);
/* The next number of a repeated scalar field, which a writer may have packed or not: `item` is either a packed span or
 * the one number of the field just read. Start with *at = 0. wire type: of the single number. */
bool wok_wire_number(wok_wire *wire, wok_wire_type type, size_t *at, uint64_t *number);
/* How many numbers the field just read holds, without decoding them. */
size_t wok_wire_numbers(const wok_wire *wire, wok_wire_type type);

static inline float wok_wire_float(uint64_t number) {
    union {
        uint32_t u;
        float f;
    } bits = {(uint32_t)number};
    return bits.f;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* A message under construction. Large byte fields are referenced, not copied: they must stay until the message is
 * written out. The first failure sticks. */
typedef struct wok_wire_out {
    wok_ctx *ctx;
    uint8_t *data;
    size_t bytes, capacity;
    struct wok_wire_ref {
        size_t at; /* offset in data behind which the span stands */
        wok_span span;
    } * refs;
    size_t ref_count, ref_capacity; /* capacity in bytes */
    wok_status status;
} wok_wire_out;

void wok_wire_out_free(wok_wire_out *out);
void wok_wire_put_int(wok_wire_out *out, uint32_t field, int64_t value);
void wok_wire_put_float(wok_wire_out *out, uint32_t field, float value);
void wok_wire_put_text(wok_wire_out *out, uint32_t field, const char *text); /* NULL: nothing */
void wok_wire_put_bytes(wok_wire_out *out, uint32_t field, const void *data, size_t bytes);
void wok_wire_put_packed_ints(wok_wire_out *out, uint32_t field, const int64_t *values, int64_t count);
void wok_wire_put_packed_floats(wok_wire_out *out, uint32_t field, const float *values, int64_t count);
/* An inner message: everything put between the two calls. */
typedef struct wok_wire_mark {
    size_t at, ref;
} wok_wire_mark;
wok_wire_mark wok_wire_begin(wok_wire_out *out, uint32_t field);
void wok_wire_end(wok_wire_out *out, wok_wire_mark mark);
/* Bytes of the whole message, references included. */
uint64_t wok_wire_total(const wok_wire_out *out);

#endif

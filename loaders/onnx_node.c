/* onnx_node.c - NodeProto and AttributeProto. */
#include "onnx.h"

#include <stdlib.h>
#include <string.h>

/* FNV-1a over domain, a zero, name. */
uint64_t wok_onnx_function_hash(wok_span domain, wok_span name) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < domain.bytes; i++) hash = (hash ^ domain.data[i]) * 0x100000001b3u;
    hash *= 0x100000001b3u;
    for (size_t i = 0; i < name.bytes; i++) hash = (hash ^ name.data[i]) * 0x100000001b3u;
    return hash;
}

static bool calls_function(const wok_onnx_reader *reader, wok_span domain, wok_span op_type) {
    uint64_t hash = wok_onnx_function_hash(domain, op_type);
    size_t low = 0, high = reader->function_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (reader->functions[middle] < hash)
            low = middle + 1;
        else
            high = middle;
    }
    return low < reader->function_count && reader->functions[low] == hash;
}

/* ---- attributes -------------------------------------------------------------------------------------------------- */

typedef struct attribute {
    wok_span message, name, s, t;
    uint64_t type, fields; /* bit of every field that occurs, up to 63 */
    int64_t i;
    float f;
    size_t ints, floats, strings, string_bytes;
} attribute;

static void add_field(attribute *a, const wok_wire *wire) {
    bool number = wire->type == WOK_WIRE_VARINT, bytes = wire->type == WOK_WIRE_BYTES;
    if (wire->field < 64) a->fields |= (uint64_t)1 << wire->field;
    switch (wire->field) {
    case ATTRIBUTE_NAME: a->name = bytes ? wire->span : a->name; break;
    case ATTRIBUTE_TYPE: a->type = number ? wire->number : a->type; break;
    case ATTRIBUTE_I: a->i = number ? (int64_t)wire->number : a->i; break;
    case ATTRIBUTE_F: a->f = wire->type == WOK_WIRE_32 ? wok_wire_float(wire->number) : a->f; break;
    case ATTRIBUTE_S: a->s = bytes ? wire->span : a->s; break;
    case ATTRIBUTE_T: a->t = bytes ? wire->span : a->t; break;
    case ATTRIBUTE_INTS: a->ints += wok_wire_numbers(wire, WOK_WIRE_VARINT); break;
    case ATTRIBUTE_FLOATS: a->floats += wok_wire_numbers(wire, WOK_WIRE_32); break;
    case ATTRIBUTE_STRINGS:
        a->strings += bytes;
        a->string_bytes += bytes ? wire->span.bytes + 1 : 0;
        break;
    default: break;
    }
}

/* Files from before the type was written say it by the field that they use. */
static uint64_t infer_type(const attribute *a) {
    static const struct {
        uint32_t field;
        uint64_t type;
    } order[] = {{ATTRIBUTE_F, TYPE_FLOAT},   {ATTRIBUTE_I, TYPE_INT},          {ATTRIBUTE_S, TYPE_STRING},
                 {ATTRIBUTE_T, TYPE_TENSOR},  {ATTRIBUTE_G, TYPE_GRAPH},        {ATTRIBUTE_FLOATS, TYPE_FLOATS},
                 {ATTRIBUTE_INTS, TYPE_INTS}, {ATTRIBUTE_STRINGS, TYPE_STRINGS}};
    for (size_t i = 0; i < sizeof order / sizeof *order; i++)
        if (a->fields >> order[i].field & 1) return order[i].type;
    return TYPE_UNDEFINED;
}

static void set_numbers(wok_onnx_reader *reader, wok_node node, const char *name, const attribute *a, bool floats) {
    uint32_t field = floats ? ATTRIBUTE_FLOATS : ATTRIBUTE_INTS;
    wok_wire_type type = floats ? WOK_WIRE_32 : WOK_WIRE_VARINT;
    size_t count = floats ? a->floats : a->ints, used = 0;
    int64_t *ints = wok_onnx_scratch(reader, SLOT_VALUES, count * sizeof *ints);
    float *values = (float *)ints;
    wok_wire wire = wok_wire_open(a->message);
    while (ints && wok_wire_next(&wire)) {
        uint64_t number;
        if (wire.field != field) continue;
        for (size_t at = 0; used < count && wok_wire_number(&wire, type, &at, &number); used++) {
            if (floats)
                values[used] = wok_wire_float(number);
            else
                ints[used] = (int64_t)number;
        }
    }
    if (wire.problem) wok_onnx_wire_problem(reader, &wire, "attribute");
    if (reader->status != WOK_OK) return;
    if (floats)
        wok_node_set_floats(reader->model, node, name, values, (int64_t)used);
    else
        wok_node_set_ints(reader->model, node, name, ints, (int64_t)used);
}

static void set_strings(wok_onnx_reader *reader, wok_node node, const char *name, const attribute *a) {
    size_t table = a->strings * sizeof(const char *), used = 0;
    char *block = wok_onnx_scratch(reader, SLOT_VALUES, table + a->string_bytes);
    if (!block) return;
    const char **texts = (const char **)(void *)block;
    char *at = block + table;
    wok_wire wire = wok_wire_open(a->message);
    while (wok_wire_next(&wire)) {
        if (wire.field != ATTRIBUTE_STRINGS || wire.type != WOK_WIRE_BYTES) continue;
        texts[used] = wok_onnx_text(reader, &at, wire.span);
        if (!texts[used++]) return;
    }
    wok_node_set_strings(reader->model, node, name, texts, (int64_t)used);
}

static const char *opaque_kind(const attribute *a) {
    if (a->fields >> ATTRIBUTE_REF & 1) return "reference";
    if (a->fields >> ATTRIBUTE_G & 1 || a->fields >> ATTRIBUTE_GRAPHS & 1) return "subgraph";
    if (a->fields >> ATTRIBUTE_SPARSE_TENSOR & 1 || a->fields >> ATTRIBUTE_SPARSE_TENSORS & 1) return "sparse tensor";
    if (a->fields >> ATTRIBUTE_TP & 1 || a->fields >> ATTRIBUTE_TYPE_PROTOS & 1) return "type";
    if (a->fields >> ATTRIBUTE_TENSORS & 1) return "tensors";
    return "unknown";
}

static void read_attribute(wok_onnx_reader *reader, wok_node node, wok_span message) {
    attribute a = {.message = message};
    wok_wire wire = wok_wire_open(message);
    while (wok_wire_next(&wire)) add_field(&a, &wire);
    if (wire.problem) {
        wok_onnx_wire_problem(reader, &wire, "attribute");
        return;
    }
    char *at = wok_onnx_scratch(reader, SLOT_ATTRIBUTE, a.name.bytes + 1);
    const char *name = at ? wok_onnx_text(reader, &at, a.name) : NULL;
    if (!name) return;
    uint64_t type = a.fields >> ATTRIBUTE_REF & 1 ? TYPE_UNDEFINED : a.type != TYPE_UNDEFINED ? a.type : infer_type(&a);
    switch (type) {
    case TYPE_INT: wok_node_set_int(reader->model, node, name, a.i); break;
    case TYPE_FLOAT: wok_node_set_float(reader->model, node, name, a.f); break;
    case TYPE_STRING:
        wok_node_set_string(reader->model, node, name, a.s.bytes ? (const char *)a.s.data : "", a.s.bytes);
        break;
    case TYPE_INTS: set_numbers(reader, node, name, &a, false); break;
    case TYPE_FLOATS: set_numbers(reader, node, name, &a, true); break;
    case TYPE_STRINGS: set_strings(reader, node, name, &a); break;
    case TYPE_TENSOR: {
        wok_value constant = wok_onnx_constant(reader, a.t, false, "tensor of an attribute");
        if (constant != WOK_ABSENT) wok_node_set_tensor(reader->model, node, name, constant);
        break;
    }
    default: wok_node_set_opaque(reader->model, node, name, opaque_kind(&a)); break;
    }
}

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

typedef struct node {
    wok_span name, op_type, domain;
    size_t inputs, outputs, longest;
} node;

static void add_node_field(node *n, const wok_wire *wire) {
    if (wire->type != WOK_WIRE_BYTES) return;
    switch (wire->field) {
    case NODE_NAME: n->name = wire->span; break;
    case NODE_OP_TYPE: n->op_type = wire->span; break;
    case NODE_DOMAIN: n->domain = wire->span; break;
    case NODE_INPUT: n->inputs++; break;
    case NODE_OUTPUT: n->outputs++; break;
    default: return;
    }
    if (wire->span.bytes > n->longest) n->longest = wire->span.bytes;
}

/* Names of inputs and outputs to ids; an empty name is one that is left out. */
static wok_value *read_ids(wok_onnx_reader *reader, wok_span message, const node *n) {
    wok_value *ids = wok_onnx_scratch(reader, SLOT_IDS, (n->inputs + n->outputs) * sizeof *ids);
    char *text = wok_onnx_scratch(reader, SLOT_NODE, n->longest + 1);
    size_t in = 0, out = n->inputs;
    wok_wire wire = wok_wire_open(message);
    while (ids && text && wok_wire_next(&wire)) {
        if (wire.type != WOK_WIRE_BYTES || (wire.field != NODE_INPUT && wire.field != NODE_OUTPUT)) continue;
        char *at = text;
        const char *name = wok_onnx_text(reader, &at, wire.span);
        if (!name) return NULL;
        ids[wire.field == NODE_INPUT ? in++ : out++] = *name ? wok_graph_value(reader->model, name) : WOK_ABSENT;
    }
    return text ? ids : NULL;
}

void wok_onnx_node(wok_onnx_reader *reader, wok_span message) {
    node n = {.longest = 0};
    wok_wire wire = wok_wire_open(message);
    while (wok_wire_next(&wire)) add_node_field(&n, &wire);
    if (wire.problem) {
        wok_onnx_wire_problem(reader, &wire, "node");
        return;
    }
    if (n.inputs > INT32_MAX || n.outputs > INT32_MAX) return; /* the file would have 4 GiB of empty names */
    wok_value *ids = read_ids(reader, message, &n);
    char *at = wok_onnx_scratch(reader, SLOT_NODE, n.name.bytes + n.op_type.bytes + n.domain.bytes + 3);
    const char *name = ids && at ? wok_onnx_text(reader, &at, n.name) : NULL;
    const char *op_type = name ? wok_onnx_text(reader, &at, n.op_type) : NULL;
    const char *domain = op_type ? wok_onnx_text(reader, &at, n.domain) : NULL;
    if (!domain) return;
    wok_node id = wok_graph_node(reader->model, op_type, domain, *name ? name : NULL, ids, (int)n.inputs,
                                 ids + n.inputs, (int)n.outputs);
    if (wok_model_failed(reader->model)) return;
    if (calls_function(reader, n.domain, n.op_type))
        wok_node_set_opaque(reader->model, id, "function", "function of the file");
    wire = wok_wire_open(message);
    while (reader->status == WOK_OK && wok_wire_next(&wire))
        if (wire.field == NODE_ATTRIBUTE && wire.type == WOK_WIRE_BYTES) read_attribute(reader, id, wire.span);
}

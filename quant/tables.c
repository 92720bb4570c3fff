/* tables.c - rows of a table in 8 or 4 bits: what Gather reads is widened behind it.
 *
 *   8 bits   y = float(Gather(codes [V,D], ids)) * Gather(scales [V,1], ids)
 *   4 bits   b = float(Gather(bytes [V,D/32,16], ids)): byte j holds element j (low half) and element j + 16 of its group
 *            of 32, each plus 8; high = Floor(b / 16), low = b - 16 high
 *            y = Reshape((Concat(low, high) - 8) * Gather(scales [V,D/32,1], ids), [shape of ids, D])
 *
 * Plain float arithmetic on bytes: INT4 as an element type came with operator set 21, which few files import. */
#include "quant.h"

#include <math.h>

enum { GROUP = WOK_QUANT_GROUP, HALF = GROUP / 2, TOP = 7 };

/* ---- coding --------------------------------------------------------------------------------------------------------- */

static uint8_t nibble(float v, float scale) {
    float r = nearbyintf(v / scale);
    return (uint8_t)((r > TOP ? TOP : r < -TOP ? -TOP : r) + TOP + 1);
}

wok_status wok_quant_code_int4(wok_qpool *pool, const wok_qvalue *table, wok_qcodes *c) {
    int64_t groups = wok_qvalue_count(table) / GROUP;
    uint8_t *bytes = wok_qpool_alloc(pool, (size_t)groups * HALF, 1);
    c->scales = wok_qpool_alloc(pool, (size_t)groups, sizeof *c->scales);
    if (!bytes || !c->scales) return WOK_ERR_MEMORY;
    for (int64_t g = 0; g < groups; g++) {
        float v[GROUP];
        memcpy(v, (const char *)table->data + (size_t)g * sizeof v, sizeof v);
        float scale = c->scales[g] = wok_quant_weight_scale(v, GROUP, TOP, true);
        for (int j = 0; j < GROUP; j++) {
            double e = (double)(((float)nibble(v[j], scale) - TOP - 1) * scale - v[j]);
            c->signal += (double)v[j] * (double)v[j];
            c->noise += e * e;
        }
        for (int j = 0; j < HALF; j++)
            bytes[g * HALF + j] = (uint8_t)(nibble(v[j], scale) | nibble(v[j + HALF], scale) << 4);
    }
    c->codes = (int8_t *)bytes;
    c->scale_count = (int)groups;
    c->rank = 3;
    c->dims[0] = table->dims[0];
    c->dims[1] = table->dims[1] / GROUP;
    c->dims[2] = HALF;
    c->name = table->name;
    return WOK_OK;
}

/* ---- writing -------------------------------------------------------------------------------------------------------- */

typedef struct table_writer {
    wok_qwriter *w;
    const wok_qnode *node;
    const char *stem;
} table_writer;

static wok_value op(const table_writer *t, const char *kind, wok_value a, wok_value b, const char *suffix,
                    wok_value out) {
    wok_value in[2] = {a, b};
    if (out < 0) {
        const char *fresh = wok_qwriter_name(t->w, t->stem, suffix);
        out = fresh ? wok_graph_value(t->w->model, fresh) : WOK_ABSENT;
    }
    const char *name = wok_qpool_format(&t->w->pool, "%s/%s%s", t->node->name, kind, suffix);
    wok_graph_node(t->w->model, kind, "", name, in, b < 0 ? 1 : 2, &out, 1);
    return out;
}

static wok_value number(const table_writer *t, const char *suffix, float value) {
    return wok_qwriter_scalar(t->w, wok_qwriter_name(t->w, t->stem, suffix), WOK_F32, &value);
}

/* Bytes as floats: dequantised with scale 1, for which there are kernels, unlike for a Cast. */
static wok_value widened(const table_writer *t, wok_value bytes, const char *suffix) {
    return op(t, "DequantizeLinear", bytes, number(t, "_one", 1), suffix, WOK_ABSENT);
}

static void write_int4(const table_writer *t, const wok_qlayer *l, wok_value codes, wok_value scales, wok_value ids,
                       wok_value out) {
    wok_model *m = t->w->model;
    int64_t width = l->weights->dims[1] * GROUP, one = 1;
    wok_value b = widened(t, codes, "_bytes");
    wok_value high = op(t, "Floor", op(t, "Mul", b, number(t, "_sixteenth", 1.0f / 16), "_shifted", WOK_ABSENT),
                        WOK_ABSENT, "_high", WOK_ABSENT);
    wok_value back = op(t, "Mul", high, number(t, "_sixteen", 16), "_back", WOK_ABSENT);
    wok_value low = op(t, "Sub", b, back, "_low", WOK_ABSENT);
    wok_value both = op(t, "Concat", low, high, "_codes", WOK_ABSENT);
    wok_node_set_int(m, wok_graph_last(m), "axis", -1);
    wok_value centred = op(t, "Sub", both, number(t, "_eight", TOP + 1), "_centred", WOK_ABSENT);
    wok_value scaled = op(t, "Mul", centred, scales, "_scaled", WOK_ABSENT);
    wok_value shape = op(t, "Shape", ids, WOK_ABSENT, "_ids_shape", WOK_ABSENT);
    const char *name = wok_qwriter_name(t->w, t->stem, "_width");
    wok_value columns =
        name ? wok_graph_constant(m, name, WOK_I64, 1, &one, &width, sizeof width, WOK_DATA_COPY) : WOK_ABSENT;
    wok_value target = op(t, "Concat", shape, columns, "_shape", WOK_ABSENT);
    wok_node_set_int(m, wok_graph_last(m), "axis", 0);
    op(t, "Reshape", scaled, target, "", out);
}

void wok_quant_write_table(wok_qwriter *w, const wok_qlayer *l, wok_value out) {
    const wok_qcodes *c = l->weights;
    const table_writer t = {w, &w->graph->nodes[l->node], wok_graph_value_at(w->model, out).name};
    bool int4 = w->q->o.tables == WOK_QUANT_TABLE_INT4;
    int64_t scale_dims[3] = {c->dims[0], int4 ? c->dims[1] : 1, 1};
    wok_value table = wok_qwriter_constant(w, wok_qwriter_name(w, c->name, "_quantized"), int4 ? WOK_U8 : WOK_I8,
                                           c->rank, c->dims, c->codes);
    wok_value scales =
        wok_qwriter_constant(w, wok_qwriter_name(w, c->name, "_scale"), WOK_F32, int4 ? 3 : 2, scale_dims, c->scales);
    wok_value ids = wok_qwriter_value(w, l->x);
    wok_value codes = op(&t, "Gather", table, ids, "_quantized", WOK_ABSENT);
    wok_value scale = op(&t, "Gather", scales, ids, "_scale", WOK_ABSENT);
    if (int4)
        write_int4(&t, l, codes, scale, ids, out);
    else
        op(&t, "Mul", widened(&t, codes, "_float"), scale, "", out);
}

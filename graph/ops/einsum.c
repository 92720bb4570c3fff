/* einsum.c - Einsum by its definition: for every output index, the sum over the labels that it lacks of the product of
 * the operands' elements. Repeated labels of one operand take its diagonal. */
#include "ops.h"

#include <ctype.h>
#include <string.h>

enum { LABELS = 24, OPERANDS = 8, ELLIPSIS = 1 /* first of the labels that stand for "..."; letters are themselves */ };

/* Labels of a term, one for each dimension. The ellipsis of `width` dimensions becomes labels ELLIPSIS + position,
 * counted from the right so that they broadcast. */
typedef struct term {
    int labels[WOK_MAX_RANK];
    int count;
} term;

typedef struct equation {
    term in[OPERANDS], out;
    int operands;
} equation;

/* Reads one term up to `end`. rank -1: the ellipsis is as wide as the widest of the operands. */
static bool read_term(const char *text, const char *end, int rank, int ellipsis, term *t) {
    int letters = 0;
    bool dots = false;
    for (const char *c = text; c < end; c++) letters += isalpha((unsigned char)*c) != 0;
    int width = rank >= 0 ? rank - letters : ellipsis;
    t->count = 0;
    for (const char *c = text; c < end; c++) {
        if (isspace((unsigned char)*c)) continue;
        if (isalpha((unsigned char)*c)) {
            if (t->count == WOK_MAX_RANK) return false;
            t->labels[t->count++] = *c;
        } else if (!dots && end - c >= 3 && !strncmp(c, "...", 3)) {
            if (width < 0 || t->count + width > WOK_MAX_RANK) return false;
            for (int i = width - 1; i >= 0; i--) t->labels[t->count++] = ELLIPSIS + i;
            dots = true;
            c += 2;
        } else {
            return false;
        }
    }
    return rank < 0 || t->count == rank;
}

static bool seen(const term *t, int label) {
    for (int i = 0; i < t->count; i++)
        if (t->labels[i] == label) return true;
    return false;
}

/* Without "->": the ellipsis, then the labels that occur once, by letter. */
static bool implicit_output(equation *e, int ellipsis) {
    int uses[128] = {0};
    for (int k = 0; k < e->operands; k++)
        for (int i = 0; i < e->in[k].count; i++) uses[e->in[k].labels[i]]++;
    e->out.count = 0;
    for (int i = ellipsis - 1; i >= 0; i--) e->out.labels[e->out.count++] = ELLIPSIS + i;
    for (int c = 'A'; c <= 'z'; c++) {
        if (uses[c] != 1) continue;
        if (e->out.count == WOK_MAX_RANK) return false;
        e->out.labels[e->out.count++] = c;
    }
    return true;
}

static bool read_equation(const char *text, const int *ranks, int operands, equation *e) {
    const char *arrow = strstr(text, "->"), *end = arrow ? arrow : text + strlen(text);
    int ellipsis = 0;
    *e = (equation){.operands = operands};
    if (operands < 1 || operands > OPERANDS) return false;
    for (int k = 0; k < operands; k++) {
        const char *comma = memchr(text, ',', (size_t)(end - text)), *stop = comma ? comma : end;
        if ((comma != NULL) != (k < operands - 1) || !read_term(text, stop, ranks[k], 0, &e->in[k])) return false;
        for (int i = 0; i < e->in[k].count; i++)
            if (e->in[k].labels[i] < ELLIPSIS + WOK_MAX_RANK && e->in[k].labels[i] - ELLIPSIS + 1 > ellipsis)
                ellipsis = e->in[k].labels[i] - ELLIPSIS + 1;
        text = stop + 1;
    }
    if (!arrow) return implicit_output(e, ellipsis);
    if (!read_term(arrow + 2, arrow + strlen(arrow), -1, ellipsis, &e->out)) return false;
    for (int i = 0; i < e->out.count; i++) {
        bool known = false;
        for (int k = 0; k < operands; k++) known = known || seen(&e->in[k], e->out.labels[i]);
        for (int j = 0; j < i; j++) known = known && e->out.labels[j] != e->out.labels[i];
        if (!known) return false;
    }
    return true;
}

/* The size of a label over all operands: 1 broadcasts. False where sizes differ. */
static bool merge(int64_t *size, int64_t dim) {
    if (*size == 1 || (!wok_dim_known(*size) && wok_dim_known(dim) && dim != 1)) *size = dim;
    return dim == 1 || dim == *size || !wok_dim_known(dim) || !wok_dim_known(*size);
}

wok_status wok_infer_einsum(wok_infer *infer) {
    WOK_TRY(wok_infer_need(infer, infer->in_count));
    const char *text = wok_ir_string(infer->node, "equation", "");
    int ranks[WOK_MAX_IN];
    int64_t size[128], dims[WOK_MAX_RANK];
    equation e;
    if (infer->in_count > 0) infer->out[0].dtype = infer->in[0]->dtype;
    for (int k = 0; k < infer->in_count; k++)
        if ((ranks[k] = infer->in[k]->rank) < 0) return WOK_OK;
    if (!read_equation(text, ranks, infer->in_count, &e))
        return wok_infer_fail(infer, WOK_ERR_SHAPE, "the equation \"%.100s\" does not fit the operands", text);
    for (int i = 0; i < 128; i++) size[i] = 1;
    for (int k = 0; k < e.operands; k++)
        for (int i = 0; i < e.in[k].count; i++)
            if (!merge(&size[e.in[k].labels[i]], infer->in[k]->dims[i]))
                return wok_infer_fail(infer, WOK_ERR_SHAPE,
                                      "\"%.100s\": dimension %d of operand %d is %lld, elsewhere %lld", text, i, k,
                                      (long long)infer->in[k]->dims[i], (long long)size[e.in[k].labels[i]]);
    for (int i = 0; i < e.out.count; i++) dims[i] = size[e.out.labels[i]];
    wok_infer_out(infer, 0, infer->in[0]->dtype, e.out.count, dims);
    return WOK_OK;
}

/* Labels in order: those of the output, then those that are summed. */
typedef struct loops {
    int operands, outer, all;
    int64_t dims[LABELS], step[OPERANDS][LABELS];
} loops;

static int find_label(const int *labels, int count, int label) {
    for (int i = 0; i < count; i++)
        if (labels[i] == label) return i;
    return -1;
}

static bool make_loops(const wok_call *call, const equation *e, loops *l) {
    int labels[LABELS];
    *l = (loops){.operands = e->operands, .outer = e->out.count, .all = e->out.count};
    memcpy(labels, e->out.labels, (size_t)e->out.count * sizeof *labels);
    for (int i = 0; i < LABELS; i++) l->dims[i] = 1;
    for (int k = 0; k < e->operands; k++) {
        int64_t step[WOK_MAX_RANK];
        wok_row_major(call->in[k]->dims, call->in[k]->rank, step);
        for (int i = 0; i < e->in[k].count; i++) {
            int at = find_label(labels, l->all, e->in[k].labels[i]);
            if (at < 0 && l->all == LABELS) return false;
            if (at < 0) labels[at = l->all++] = e->in[k].labels[i];
            int64_t dim = call->in[k]->dims[i];
            if (dim != 1) l->step[k][at] += step[i];
            if (dim != 1) l->dims[at] = dim;
        }
    }
    return true;
}

static double real_product(const wok_call *call, const loops *l, const int64_t *at) {
    double y = 1;
    for (int k = 0; k < l->operands; k++) y *= wok_get_f64(call->in[k]->dtype, call->in[k]->data, at[k]);
    return y;
}

static int64_t int_product(const wok_call *call, const loops *l, const int64_t *at) {
    uint64_t y = 1;
    for (int k = 0; k < l->operands; k++) y *= (uint64_t)wok_get_i64(call->in[k]->dtype, call->in[k]->data, at[k]);
    return (int64_t)y;
}

/* Adds to `at` the steps of index i over loops [from, to). */
static void move(const loops *l, int from, int to, int64_t i, int64_t *at) {
    for (int d = to - 1; d >= from; d--) {
        int64_t index = i % l->dims[d];
        i /= l->dims[d];
        for (int k = 0; k < l->operands; k++) at[k] += index * l->step[k][d];
    }
}

static wok_status einsum_run(wok_call *call) {
    int ranks[WOK_MAX_IN];
    equation e;
    loops l;
    for (int k = 0; k < call->in_count; k++) ranks[k] = call->in[k]->rank;
    if (!read_equation(wok_ir_string(call->node, "equation", ""), ranks, call->in_count, &e) ||
        !make_loops(call, &e, &l))
        return wok_call_fail(call, WOK_ERR_SHAPE, "the equation does not fit the operands");
    const wok_tensor *y = call->out[0];
    bool real = wok_dtype_is_float(y->dtype);
    int64_t outputs = wok_dims_product(l.dims, 0, l.outer), terms = wok_dims_product(l.dims, l.outer, l.all);
    for (int64_t i = 0; i < outputs; i++) {
        int64_t base[OPERANDS] = {0};
        double sum = 0;
        uint64_t total = 0;
        move(&l, 0, l.outer, i, base);
        for (int64_t t = 0; t < terms; t++) {
            int64_t at[OPERANDS];
            memcpy(at, base, sizeof at);
            move(&l, l.outer, l.all, t, at);
            if (real)
                sum += real_product(call, &l, at);
            else
                total += (uint64_t)int_product(call, &l, at);
        }
        if (real)
            wok_store_f64(y->dtype, y->data, i, 1, &sum);
        else
            wok_store_i64(y->dtype, y->data, i, 1, &(int64_t){(int64_t)total});
    }
    return WOK_OK;
}

const wok_op_impl *const wok_impls_einsum[] = {
    &(const wok_op_impl){.name = "ref", .accept = wok_accept_number, .run = einsum_run},
    NULL,
};

/* symbols.c - dimensions that are not numbers yet: polynomials over named sizes, unknowns and opaque functions.
 *
 * A dimension is a number or the id of an interned entry: an atom (a name, an unknown, a function of dimensions) or a sum
 * of terms coefficient * atom * atom... in one canonical order. Equal expressions have equal ids, so the rewrites compare
 * shapes by comparing integers. What the small fixed forms here cannot hold becomes an opaque function: still correct,
 * only less is known about it. */
#include "symbols.h"
#include "tensor.h"

#include <stdio.h>
#include <string.h>

enum { MAX_TERMS = 12, MAX_ATOMS = 8 };

typedef struct term {
    int64_t coeff;
    int count;
    int64_t atoms[MAX_ATOMS]; /* ids, ascending; an atom squared stands twice */
} term;

typedef struct sum {
    int count;
    term terms[MAX_TERMS];
} sum;

typedef struct entry {
    const char *name; /* an atom: what it is called; a sum: NULL */
    const char *function;
    const int64_t *args; /* of a function */
    int count;           /* of args or terms */
    const term *terms;
    uint32_t hash;
} entry;

struct wok_symbols {
    wok_arena *arena;
    entry *entries;
    int count, capacity;
    int32_t *slots; /* open addressing: entry index, or -1 */
    uint32_t slot_count;
    int unknowns;
};

wok_symbols *wok_symbols_new(wok_arena *arena) {
    wok_symbols *s = wok_arena_alloc(arena, sizeof *s);
    if (s) s->arena = arena;
    return s;
}

wok_symbols *wok_symbols_clone(const wok_symbols *from, wok_arena *arena) {
    wok_symbols *s = wok_arena_alloc(arena, sizeof *s);
    if (!s) return NULL;
    *s = *from;
    s->arena = arena;
    s->capacity = from->count;
    s->entries = wok_arena_alloc(arena, (size_t)from->count * sizeof *s->entries);
    s->slots = wok_arena_alloc(arena, from->slot_count * sizeof *s->slots);
    if (!s->entries || !s->slots) return NULL;
    if (from->count) memcpy(s->entries, from->entries, (size_t)from->count * sizeof *s->entries);
    if (from->slot_count) memcpy(s->slots, from->slots, from->slot_count * sizeof *s->slots);
    return s;
}

/* ---- interning --------------------------------------------------------------------------------------------------------- */

static uint32_t mix(uint32_t hash, const void *data, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ ((const unsigned char *)data)[i]) * 16777619u;
    return hash;
}

static uint32_t hash_terms(const term *terms, int count) {
    uint32_t hash = 2166136261u;
    for (int i = 0; i < count; i++) {
        hash = mix(hash, &terms[i].coeff, sizeof terms[i].coeff);
        hash = mix(hash, terms[i].atoms, (size_t)terms[i].count * sizeof *terms[i].atoms);
    }
    return hash;
}

static bool same_terms(const term *a, const term *b, int count) {
    for (int i = 0; i < count; i++)
        if (a[i].coeff != b[i].coeff || a[i].count != b[i].count ||
            memcmp(a[i].atoms, b[i].atoms, (size_t)a[i].count * sizeof *a[i].atoms) != 0)
            return false;
    return true;
}

static bool same_text(const char *a, const char *b) {
    return a == b || (a && b && strcmp(a, b) == 0);
}

static bool same_entry(const entry *a, const entry *b) {
    if (a->hash != b->hash || a->count != b->count || !a->terms != !b->terms) return false;
    if (a->terms) return same_terms(a->terms, b->terms, a->count);
    if (!same_text(a->function, b->function)) return false;
    if (!a->function) return same_text(a->name, b->name);
    return a->count == 0 || memcmp(a->args, b->args, (size_t)a->count * sizeof *a->args) == 0;
}

static int32_t *find_slot(const wok_symbols *s, const entry *e) {
    uint32_t at = e->hash & (s->slot_count - 1);
    while (s->slots[at] >= 0 && !same_entry(&s->entries[s->slots[at]], e)) at = (at + 1) & (s->slot_count - 1);
    return &s->slots[at];
}

static bool grow(wok_symbols *s) {
    if (s->count == s->capacity) {
        int capacity = s->capacity ? 2 * s->capacity : 32;
        entry *entries = wok_arena_alloc(s->arena, (size_t)capacity * sizeof *entries);
        if (!entries) return false;
        if (s->count) memcpy(entries, s->entries, (size_t)s->count * sizeof *entries);
        s->entries = entries;
        s->capacity = capacity;
    }
    if (s->slot_count >= 2 * ((uint32_t)s->count + 1)) return true;
    uint32_t slots = s->slot_count ? 2 * s->slot_count : 64, before = s->slot_count;
    int32_t *table = wok_arena_alloc(s->arena, slots * sizeof *table), *old = s->slots;
    if (!table) return false;
    memset(table, 0xff, slots * sizeof *table);
    s->slots = table;
    s->slot_count = slots;
    for (uint32_t i = 0; i < before; i++)
        if (old[i] >= 0) *find_slot(s, &s->entries[old[i]]) = old[i];
    return true;
}

static int64_t no_memory(wok_graph *graph) {
    if (graph->status == WOK_OK) graph->status = WOK_ERR_MEMORY;
    return -1;
}

static int64_t id_of(int32_t index) {
    return -(int64_t)index - 1;
}
static const entry *entry_of(const wok_symbols *s, int64_t dim) {
    return &s->entries[-(dim + 1)];
}

/* Finds the entry or adds it; what it points to is copied into the arena when it is new. */
static int64_t intern(wok_graph *graph, entry e) {
    wok_symbols *s = graph->symbols;
    if (!grow(s)) return no_memory(graph);
    int32_t *slot = find_slot(s, &e);
    if (*slot >= 0) return id_of(*slot);
    size_t bytes = (size_t)e.count * (e.terms ? sizeof *e.terms : sizeof *e.args);
    void *copy = bytes ? wok_arena_small(s->arena, bytes) : NULL;
    if (bytes && !copy) return no_memory(graph);
    if (e.terms)
        e.terms = memcpy(copy, e.terms, bytes);
    else if (e.count)
        e.args = memcpy(copy, e.args, bytes);
    if (e.function) e.function = wok_arena_strdup(s->arena, e.function);
    if (e.name) e.name = wok_arena_strdup(s->arena, e.name);
    if (!e.terms && !e.name && !e.function) return no_memory(graph);
    s->entries[s->count] = e;
    *slot = s->count;
    return id_of(s->count++);
}

int64_t wok_dim_symbol(wok_graph *graph, const char *name) {
    char fresh[24];
    if (!name) snprintf(fresh, sizeof fresh, "?%d", graph->symbols->unknowns++);
    const char *text = name ? name : fresh;
    return intern(graph, (entry){.name = text, .hash = mix(7, text, strlen(text))});
}

int64_t wok_dim_call(wok_graph *graph, const char *name, const int64_t *args, int count) {
    uint32_t hash = mix(mix(11, name, strlen(name)), args, (size_t)count * sizeof *args);
    return intern(graph, (entry){.function = name, .args = args, .count = count, .hash = hash});
}

/* ---- sums of products ---------------------------------------------------------------------------------------------------- */

static sum load(const wok_symbols *s, int64_t dim) {
    sum x = {0};
    int64_t number;
    if (wok_dim_is_number(dim, &number)) {
        x.count = number != 0;
        x.terms[0].coeff = number;
        return x;
    }
    const entry *e = -(dim + 1) < s->count ? entry_of(s, dim) : NULL; /* NULL: what no_memory() gave */
    if (e && e->terms) {
        x.count = e->count;
        memcpy(x.terms, e->terms, (size_t)e->count * sizeof *e->terms);
        return x;
    }
    x.count = 1;
    x.terms[0] = (term){.coeff = 1, .count = 1, .atoms = {dim}};
    return x;
}

static int64_t store(wok_graph *graph, const sum *x) {
    if (x->count == 0) return 0;
    const term *first = &x->terms[0];
    if (x->count == 1 && first->count == 0) return wok_dim_number(first->coeff);
    if (x->count == 1 && first->count == 1 && first->coeff == 1) return first->atoms[0];
    return intern(graph, (entry){.terms = x->terms, .count = x->count, .hash = hash_terms(x->terms, x->count)});
}

static int compare_atoms(const term *a, const term *b) {
    if (a->count != b->count) return a->count > b->count ? -1 : 1;
    for (int i = 0; i < a->count; i++)
        if (a->atoms[i] != b->atoms[i]) return a->atoms[i] > b->atoms[i] ? -1 : 1;
    return 0;
}

/* x += t, in order. False where it does not fit. */
static bool add_term(sum *x, const term *t) {
    int at = 0;
    while (at < x->count && compare_atoms(&x->terms[at], t) < 0) at++;
    if (at < x->count && compare_atoms(&x->terms[at], t) == 0) {
        if (__builtin_add_overflow(x->terms[at].coeff, t->coeff, &x->terms[at].coeff)) return false;
        if (x->terms[at].coeff != 0) return true;
        x->count--;
        memmove(&x->terms[at], &x->terms[at + 1], (size_t)(x->count - at) * sizeof *x->terms);
        return true;
    }
    if (x->count == MAX_TERMS) return false;
    memmove(&x->terms[at + 1], &x->terms[at], (size_t)(x->count - at) * sizeof *x->terms);
    x->terms[at] = *t;
    x->count++;
    return true;
}

static bool multiply(const term *a, const term *b, term *product) {
    *product = (term){0};
    if (a->count + b->count > MAX_ATOMS) return false;
    if (__builtin_mul_overflow(a->coeff, b->coeff, &product->coeff)) return false;
    for (int i = 0, j = 0; i < a->count || j < b->count;) {
        bool from_a = j == b->count || (i < a->count && a->atoms[i] <= b->atoms[j]);
        product->atoms[product->count++] = from_a ? a->atoms[i++] : b->atoms[j++];
    }
    return true;
}

/* a / b where it leaves no rest. */
static bool divide(const term *a, const term *b, term *quotient) {
    *quotient = (term){0};
    if (b->coeff == 0 || a->coeff % b->coeff != 0) return false;
    quotient->coeff = a->coeff / b->coeff;
    int j = 0;
    for (int i = 0; i < a->count; i++) {
        if (j < b->count && a->atoms[i] == b->atoms[j])
            j++;
        else
            quotient->atoms[quotient->count++] = a->atoms[i];
    }
    return j == b->count;
}

static int64_t opaque(wok_graph *graph, const char *name, int64_t a, int64_t b) {
    return wok_dim_call(graph, name, (int64_t[]){a, b}, 2);
}

/* Numbers saturate: what is that large fails the size checks behind. */
static int64_t saturate(bool overflow, bool negative, int64_t value) {
    return wok_dim_number(!overflow ? value : negative ? INT64_MIN : INT64_MAX);
}

int64_t wok_dim_mul(wok_graph *graph, int64_t a, int64_t b) {
    int64_t x, y, z;
    if (wok_dim_is_number(a, &x) && wok_dim_is_number(b, &y)) {
        bool overflow = __builtin_mul_overflow(x, y, &z);
        return saturate(overflow, (x < 0) != (y < 0), z);
    }
    if (a > b) return wok_dim_mul(graph, b, a); /* so that an opaque product has one form */
    sum p = load(graph->symbols, a), q = load(graph->symbols, b), product = {0};
    for (int i = 0; i < p.count; i++)
        for (int j = 0; j < q.count; j++) {
            term t;
            if (!multiply(&p.terms[i], &q.terms[j], &t) || !add_term(&product, &t)) return opaque(graph, "mul", a, b);
        }
    return store(graph, &product);
}

static int64_t add_scaled(wok_graph *graph, int64_t a, int64_t b, int64_t sign) {
    int64_t x, y, z;
    if (wok_dim_is_number(a, &x) && wok_dim_is_number(b, &y)) {
        bool overflow = sign > 0 ? __builtin_add_overflow(x, y, &z) : __builtin_sub_overflow(x, y, &z);
        return saturate(overflow, x < 0, z);
    }
    sum p = load(graph->symbols, a), q = load(graph->symbols, b);
    for (int i = 0; i < q.count; i++) {
        q.terms[i].coeff *= sign;
        if (!add_term(&p, &q.terms[i])) return opaque(graph, sign > 0 ? "add" : "sub", a, b);
    }
    return store(graph, &p);
}

int64_t wok_dim_add(wok_graph *graph, int64_t a, int64_t b) {
    return add_scaled(graph, a, b, 1);
}
int64_t wok_dim_sub(wok_graph *graph, int64_t a, int64_t b) {
    return add_scaled(graph, a, b, -1);
}

static int64_t floor_div(int64_t a, int64_t b) {
    if (b == 0) return 0;
    if (b == -1) return a == INT64_MIN ? INT64_MAX : -a;
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

/* (d * q + r) / d = q + r / d for a number d and a number r. */
static bool divide_by_number(wok_graph *graph, const sum *p, int64_t d, int64_t *result) {
    sum quotient = {0};
    const term by = {.coeff = d};
    for (int i = 0; i < p->count; i++) {
        term t;
        if (p->terms[i].count == 0)
            t = (term){.coeff = floor_div(p->terms[i].coeff, d)};
        else if (!divide(&p->terms[i], &by, &t))
            return false;
        if (t.coeff != 0 && !add_term(&quotient, &t)) return false;
    }
    *result = store(graph, &quotient);
    return true;
}

int64_t wok_dim_div(wok_graph *graph, int64_t a, int64_t b) {
    int64_t x, y, result;
    bool number = wok_dim_is_number(b, &y);
    if (wok_dim_is_number(a, &x) && number) return wok_dim_number(floor_div(x, y));
    if (a == b) return 1;
    if (a == 0) return 0;
    sum p = load(graph->symbols, a), q = load(graph->symbols, b), quotient = {0};
    if (number && y != 0 && divide_by_number(graph, &p, y, &result)) return result;
    bool exact = q.count == 1;
    for (int i = 0; exact && i < p.count; i++) {
        term t;
        exact = divide(&p.terms[i], &q.terms[0], &t) && add_term(&quotient, &t);
    }
    return exact ? store(graph, &quotient) : opaque(graph, "div", a, b);
}

/* ---- for people ----------------------------------------------------------------------------------------------------------- */

enum { RING = 16, TEXT = 256 };
static _Thread_local char ring[RING][TEXT];
static _Thread_local unsigned ring_next;

typedef struct writer {
    char *text;
    size_t used;
} writer;

static void put(writer *w, const char *text) {
    size_t length = strlen(text), room = TEXT - 1 - w->used;
    if (length > room) length = room;
    memcpy(w->text + w->used, text, length);
    w->used += length;
    w->text[w->used] = 0;
}

static void put_number(writer *w, int64_t n) {
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)n);
    put(w, text);
}

static void put_dim(writer *w, const wok_symbols *s, int64_t dim, int depth);

static void put_term(writer *w, const wok_symbols *s, const term *t, bool first, int depth) {
    int64_t coeff = t->coeff;
    if (!first)
        put(w, coeff < 0 ? "-" : "+");
    else if (coeff < 0)
        put(w, "-");
    if (coeff < 0 && coeff != INT64_MIN) coeff = -coeff;
    if (coeff != 1 || t->count == 0) put_number(w, coeff);
    for (int i = 0; i < t->count; i++) {
        if (i > 0 || coeff != 1) put(w, "*");
        put_dim(w, s, t->atoms[i], depth);
    }
}

static void put_dim(writer *w, const wok_symbols *s, int64_t dim, int depth) {
    int64_t number;
    if (wok_dim_is_number(dim, &number)) {
        put_number(w, number);
        return;
    }
    if (!s || -(dim + 1) >= s->count || depth == 0) {
        put(w, "?");
        return;
    }
    const entry *e = entry_of(s, dim);
    if (e->terms) {
        for (int i = 0; i < e->count; i++) put_term(w, s, &e->terms[i], i == 0, depth - 1);
    } else if (e->function) {
        put(w, e->function);
        for (int i = 0; i < e->count; i++) {
            put(w, i ? "," : "(");
            put_dim(w, s, e->args[i], depth - 1);
        }
        put(w, ")");
    } else {
        put(w, e->name);
    }
}

static writer next_text(void) {
    writer w = {ring[ring_next++ % RING], 0};
    w.text[0] = 0;
    return w;
}

const char *wok_dim_text(const wok_graph *graph, int64_t dim) {
    writer w = next_text();
    put_dim(&w, graph->symbols, dim, 6);
    return w.text;
}

const char *wok_type_text(const wok_graph *graph, const wok_type *type) {
    writer w = next_text();
    if (type->rank < 0) put(&w, "?");
    for (int i = 0; i < type->rank; i++) {
        put(&w, i ? "," : "[");
        put_dim(&w, graph->symbols, type->dims[i], 6);
    }
    if (type->rank >= 0) put(&w, type->rank ? "]" : "[]");
    return w.text;
}

const char *wok_shape_text(const int64_t *dims, int rank) {
    wok_graph none = {0};
    wok_type type = {.rank = rank};
    for (int i = 0; i < rank && i < WOK_MAX_RANK; i++) type.dims[i] = dims[i];
    return wok_type_text(&none, &type);
}

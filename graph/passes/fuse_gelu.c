/* fuse_gelu.c - the two forms of GELU in whatever order of factors an exporter chose:
 *
 *   erf    x * 1/2 * (1 + Erf(x / sqrt 2))
 *   tanh   x * 1/2 * (1 + Tanh(sqrt(2/pi) * (x + 0.044715 x^3)))     with the cube as Pow or as products
 *
 * The product is flattened into factors and a coefficient; the inner argument is read as a polynomial in x, so that no
 * order of operations has to be listed. Tolerance: constants within 5e-4 (those of f16 files), the result that of the exact function. */
#include "pass.h"

#include <math.h>
#include <string.h>

enum { MAX_FACTORS = 4, MAX_NODES = 16 };

typedef struct product {
    double coefficient;
    wok_value factors[MAX_FACTORS];
    int count;
    wok_node nodes[MAX_NODES];
    int node_count;
} product;

static void note(wok_pass_ctx *ctx, product *p, const wok_ir_node *node) {
    if (p->node_count < MAX_NODES) p->nodes[p->node_count++] = wok_pass_id(ctx, node);
}

/* Splits v into factors through Mul and Div by numbers. Inner products that others read too count as one factor. */
static bool factor(wok_pass_ctx *ctx, wok_value v, bool root, product *p) {
    const wok_ir_node *node = wok_pass_producer(ctx, v);
    double c;
    wok_value other;
    if (node && (root || wok_pass_single_use(ctx, v))) {
        if (node->op == WOK_OP_Mul && wok_pass_scalar_operand(ctx, node, &c, &other)) {
            note(ctx, p, node);
            p->coefficient *= c;
            return factor(ctx, other, false, p);
        }
        if (node->op == WOK_OP_Div && wok_pass_scalar(ctx, node->in[1], &c) && c != 0) {
            note(ctx, p, node);
            p->coefficient /= c;
            return factor(ctx, node->in[0], false, p);
        }
        if (node->op == WOK_OP_Mul) {
            note(ctx, p, node);
            wok_value a = node->in[0], b = node->in[1];
            return factor(ctx, a, false, p) && factor(ctx, b, false, p);
        }
    }
    if (p->count == MAX_FACTORS) return false;
    p->factors[p->count++] = v;
    return true;
}

/* Coefficients of v as a polynomial of degree <= 3 in x. */
static bool polynomial(wok_pass_ctx *ctx, wok_value v, wok_value x, int depth, double *c) {
    double a[4], b[4], n;
    memset(c, 0, 4 * sizeof *c);
    if (v == x) {
        c[1] = 1;
        return true;
    }
    if (wok_pass_scalar(ctx, v, &c[0])) return true;
    const wok_ir_node *node = wok_pass_producer(ctx, v);
    if (!node || node->in_count != 2 || depth > 8) return false;
    if (node->op == WOK_OP_Pow) {
        if (!wok_pass_scalar(ctx, node->in[1], &n) || (n != 2 && n != 3)) return false;
        if (!polynomial(ctx, node->in[0], x, depth + 1, a) || a[0] != 0 || a[2] != 0 || a[3] != 0) return false;
        c[(int)n] = pow(a[1], n);
        return true;
    }
    if (!polynomial(ctx, node->in[0], x, depth + 1, a) || !polynomial(ctx, node->in[1], x, depth + 1, b)) return false;
    switch (node->op) {
    case WOK_OP_Add:
        for (int i = 0; i < 4; i++) c[i] = a[i] + b[i];
        return true;
    case WOK_OP_Sub:
        for (int i = 0; i < 4; i++) c[i] = a[i] - b[i];
        return true;
    case WOK_OP_Mul:
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 4; j++) {
                if (i + j < 4)
                    c[i + j] += a[i] * b[j];
                else if (a[i] * b[j] != 0)
                    return false;
            }
        return true;
    case WOK_OP_Div:
        if (b[0] == 0 || b[1] != 0 || b[2] != 0 || b[3] != 0) return false;
        for (int i = 0; i < 4; i++) c[i] = a[i] / b[0];
        return true;
    default:
        return false;
    }
}

/* u = 1 + f(argument); the function's node. */
static const wok_ir_node *one_plus(wok_pass_ctx *ctx, wok_value u, product *p) {
    const wok_ir_node *add = wok_pass_is(ctx, u, WOK_OP_Add);
    double one;
    wok_value inner;
    if (!add || !wok_pass_scalar_operand(ctx, add, &one, &inner) || !wok_pass_near(one, 1)) return NULL;
    const wok_ir_node *f = wok_pass_producer(ctx, inner);
    if (!f || (f->op != WOK_OP_Erf && f->op != WOK_OP_Tanh)) return NULL;
    if (!wok_pass_single_use(ctx, u) || !wok_pass_single_use(ctx, inner)) return NULL;
    note(ctx, p, add);
    note(ctx, p, f);
    return f;
}

static bool argument_fits(wok_pass_ctx *ctx, const wok_ir_node *f, wok_value x) {
    double c[4];
    if (!polynomial(ctx, f->in[0], x, 0, c) || c[0] != 0 || c[2] != 0) return false;
    if (f->op == WOK_OP_Erf) return wok_pass_near(c[1], 0.70710678118654752) && c[3] == 0;
    return wok_pass_near(c[1], 0.79788456080286536) && wok_pass_near(c[3], 0.79788456080286536 * 0.044715);
}

static void match(wok_pass_ctx *ctx, wok_node id) {
    wok_graph *g = ctx->graph;
    product p = {.coefficient = 1};
    wok_value y = g->nodes[id].out[0];
    if (!factor(ctx, y, true, &p) || p.count != 2) return;
    for (int i = 0; i < 2; i++) {
        const wok_ir_node *f = one_plus(ctx, p.factors[i], &p);
        wok_value x = p.factors[1 - i];
        if (!f) continue;
        if (!argument_fits(ctx, f, x)) {
            wok_pass_near_miss(ctx, f, "the argument of %s is not that of GELU", f->op_type);
            return;
        }
        if (!wok_pass_near(p.coefficient, 0.5)) return; /* the factor 1/2 stands further out: that product will match */
        bool tanh_form = f->op == WOK_OP_Tanh;
        const char *name = g->nodes[id].name;
        wok_pass_kill(ctx, &g->nodes[id]);
        wok_node node = wok_pass_add(ctx, WOK_OP_Gelu, name, &x, 1, &y, 1);
        if (tanh_form) wok_pass_set_string(ctx, node, "approximate", "tanh");
        wok_pass_origin(ctx, node, p.nodes, p.node_count);
        return;
    }
}

wok_status wok_pass_fuse_gelu(wok_pass_ctx *ctx) {
    wok_graph *g = ctx->graph;
    for (wok_node id = g->node_count - 1; id >= 0 && g->status == WOK_OK; id--) {
        if (g->nodes[id].dead) continue;
        if (g->nodes[id].op == WOK_OP_Mul || g->nodes[id].op == WOK_OP_Div) match(ctx, id);
    }
    return g->status;
}

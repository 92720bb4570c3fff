/* plan.c - where a static model is quantised: which values are read in 8 bits, by which operand of which node, and which
 * values share a scale.
 *
 * It starts from the layers: their inputs are read in 8 bits. What follows convolutions joins in: residual additions,
 * products, pools and concatenations whose operands are in 8 bits anyway. Relu, Clip and other activations are no stops:
 * kernels have them in their epilogues, so the value behind them is quantised. Of the operands of a residual addition the
 * one that a convolution makes for nobody else stays float: it never leaves the registers. Data movement is passed
 * upstream: what moves bytes can move codes, and then has the scale of what it moves. Encoders keep their attention,
 * normalisation and residual path in float, because nothing there comes from a convolution. */
#include "quant.h"

static bool is_one_of(const wok_qnode *node, const char *const *ops) {
    for (; *ops; ops++)
        if (wok_qnode_is(node, *ops)) return true;
    return false;
}

/* One element in, one out: what an epilogue or a table can do. */
static bool is_activation(const wok_qnode *node) {
    static const char *const ops[] = {"Relu", "Clip",      "LeakyRelu", "Sigmoid", "HardSigmoid",
                                      "Tanh", "HardSwish", "Elu",       "Gelu",    NULL};
    return is_one_of(node, ops);
}

/* Pad adds zeros (no pad value, or 0). */
bool wok_quant_pads_zeros(const wok_qgraph *g, const wok_qnode *node) {
    const wok_attr *mode = wok_qnode_attr(node, "mode");
    wok_value v = wok_qnode_in(node, 2);
    const wok_qvalue *value = wok_qgraph_fixed(g, v);
    if (mode && mode->kind == WOK_ATTR_STRING && strcmp(mode->u.s, "constant") != 0) return false;
    return v < 0 || (value && value->dtype == WOK_F32 && value->bytes == 4 && wok_qfloat(value->data, 0) == 0);
}

/* Its output holds elements of its first input, and zeros. */
static bool is_movement(const wok_qgraph *g, const wok_qnode *node) {
    static const char *const ops[] = {"Flatten",  "Reshape", "Squeeze",      "Unsqueeze",    "Transpose",
                                      "Identity", "Slice",   "DepthToSpace", "SpaceToDepth", NULL};
    if (wok_qnode_is(node, "MaxPool")) return node->out_count == 1 || g->values[node->out[1]].readers == 0;
    return is_one_of(node, ops) || (wok_qnode_is(node, "Pad") && wok_quant_pads_zeros(g, node));
}

typedef struct planner {
    wok_quant *q;
    const wok_qgraph *g;
    const int *layer_of;
    unsigned char *how; /* wok_qhow of every node */
    wok_qrange *ranges;
} planner;

static const wok_qlayer *layer_at(const planner *p, int node) {
    return p->layer_of[node] ? &p->q->layers[p->layer_of[node] - 1] : NULL;
}

/* The node behind whose output v stands, activations and data movement passed over; -1: an input or a constant. */
static int source(const planner *p, wok_value v) {
    int n = v >= 0 ? p->g->values[v].producer : -1;
    while (n >= 0 && (is_activation(&p->g->nodes[n]) || is_movement(p->g, &p->g->nodes[n])))
        n = p->g->values[p->g->nodes[n].in[0]].producer;
    return n;
}

/* Does v come from a convolution in 8 bits, or from something that joined it? */
static bool in_region(const planner *p, wok_value v) {
    int n = source(p, v);
    if (n < 0) return false;
    const wok_qlayer *l = layer_at(p, n);
    return l ? l->kind == WOK_QCONV && !l->reason : p->how[n] != WOK_QHOW_FLOAT;
}

/* The output of a convolution that nothing else reads. */
static bool fusible(const planner *p, wok_value v) {
    int n = v >= 0 ? p->g->values[v].producer : -1;
    return n >= 0 && wok_qnode_is(&p->g->nodes[n], "Conv") && p->g->values[v].readers == 1;
}

/* v is read in 8 bits; so is what it was moved from, as far as that is a matter of codes. */
static void want(planner *p, wok_value v) {
    bool moved = in_region(p, v) || source(p, v) < 0;
    for (;;) {
        p->ranges[v].wanted = true;
        int n = p->g->values[v].producer;
        if (n < 0 || !moved || !is_movement(p->g, &p->g->nodes[n]) || wok_qgraph_fixed(p->g, p->g->nodes[n].in[0]))
            return;
        p->how[n] = WOK_QHOW_FIRST;
        v = p->g->nodes[n].in[0];
    }
}

static void plan_sum(planner *p, int n) {
    const wok_qnode *node = &p->g->nodes[n];
    bool region[2];
    if (node->in_count != 2 || node->in[0] == node->in[1]) return;
    for (int i = 0; i < 2; i++) {
        if (node->in[i] < 0 || p->g->values[node->in[i]].data) return;
        region[i] = in_region(p, node->in[i]);
    }
    bool sum = wok_qnode_is(node, "Add");
    int kept = sum && fusible(p, node->in[0]) ? 0 : sum && fusible(p, node->in[1]) ? 1 : -1;
    if (!region[0] && !region[1]) return;
    for (int i = 0; i < 2; i++)
        if (i != kept && !region[i] && !p->ranges[node->in[i]].wanted) return;
    for (int i = 0; i < 2; i++)
        if (i != kept) want(p, node->in[i]);
    p->how[n] = kept == 0 ? WOK_QHOW_SECOND : kept == 1 ? WOK_QHOW_FIRST : WOK_QHOW_ALL;
}

static void plan_concat(planner *p, int n) {
    const wok_qnode *node = &p->g->nodes[n];
    for (int i = 0; i < node->in_count; i++)
        if (!in_region(p, node->in[i])) return;
    for (int i = 0; i < node->in_count; i++) want(p, node->in[i]);
    p->how[n] = WOK_QHOW_ALL;
}

static void plan_node(planner *p, int n) {
    const wok_qnode *node = &p->g->nodes[n];
    if (node->dead || layer_at(p, n)) return;
    if (wok_qnode_is(node, "Add") || wok_qnode_is(node, "Mul")) plan_sum(p, n);
    if (wok_qnode_is(node, "Concat")) plan_concat(p, n);
    if ((wok_qnode_is(node, "GlobalAveragePool") || wok_qnode_is(node, "AveragePool")) && in_region(p, node->in[0])) {
        want(p, node->in[0]);
        p->how[n] = WOK_QHOW_FIRST;
    }
}

void wok_quant_plan(wok_quant *q, const int *layer_of, unsigned char *how, wok_qrange *ranges) {
    planner p = {q, &q->graph, layer_of, how, ranges};
    memset(how, WOK_QHOW_FLOAT, (size_t)q->graph.node_count);
    for (int v = 0; v < q->graph.value_count; v++) ranges[v].wanted = false;
    for (int i = 0; i < q->layer_count; i++)
        if (!q->layers[i].reason && q->layers[i].kind != WOK_QTABLE) want(&p, q->layers[i].x);
    for (int n = 0; n < q->graph.node_count; n++) plan_node(&p, n);
    /* What was wanted before its source joined: once more, now that all have. */
    for (int i = 0; i < q->layer_count; i++)
        if (!q->layers[i].reason && q->layers[i].kind != WOK_QTABLE) want(&p, q->layers[i].x);
    for (int v = 0; v < q->graph.value_count; v++) {
        int n = q->graph.values[v].producer;
        bool moved = n >= 0 && how[n] == WOK_QHOW_FIRST && is_movement(&q->graph, &q->graph.nodes[n]);
        ranges[v].from = moved ? q->graph.nodes[n].in[0] : WOK_ABSENT;
    }
}

wok_value wok_quant_root(const wok_qrange *ranges, wok_value v) {
    while (ranges[v].from >= 0) v = ranges[v].from;
    return v;
}

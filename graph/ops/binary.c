/* binary.c - operators of two and more inputs that broadcast, element by element. */
#include "ops.h"

#include <math.h>
#include <string.h>

enum { CHUNK = 256 };

/* ---- symbolic elements ------------------------------------------------------------------------------------------- */

/* A number that stands for itself: the smallest one stands for all below it too (wok_dim_number). */
static bool exact_number(int64_t dim, int64_t *n) {
    return wok_dim_is_number(dim, n) && dim != wok_dim_number(INT64_MIN);
}

static bool add_numbers(wok_op op, int64_t a, int64_t b, int64_t *y) {
    switch (op) {
    case WOK_OP_Add:
    case WOK_OP_Sum:
        return !__builtin_add_overflow(a, b, y);
    case WOK_OP_Sub:
        return !__builtin_sub_overflow(a, b, y);
    case WOK_OP_Mul:
        return !__builtin_mul_overflow(a, b, y);
    case WOK_OP_Div:
        return b != 0 && b != -1 ? (*y = a / b, true) : false;
    case WOK_OP_Min:
        *y = a < b ? a : b;
        return true;
    case WOK_OP_Max:
        *y = a > b ? a : b;
        return true;
    case WOK_OP_Mod:
        return a >= 0 && b > 0 ? (*y = a % b, true) : false;
    default:
        return false;
    }
}

/* At least one is a symbol; negative numbers only where a rule for them exists. */
static bool add_symbols(wok_graph *graph, wok_op op, int64_t a, int64_t b, int64_t *y) {
    int64_t na, nb, pair[2] = {a, b};
    bool negative_a = wok_dim_is_number(a, &na) && na < 0, negative_b = wok_dim_is_number(b, &nb) && nb < 0;
    switch (op) {
    case WOK_OP_Add:
    case WOK_OP_Sum:
        *y = negative_b   ? wok_dim_sub(graph, a, -nb)
             : negative_a ? wok_dim_sub(graph, b, -na)
                          : wok_dim_add(graph, a, b);
        return true;
    case WOK_OP_Sub:
        if (negative_a) return false;
        *y = negative_b ? wok_dim_add(graph, a, -nb) : wok_dim_sub(graph, a, b);
        return true;
    case WOK_OP_Mul:
        if (negative_a || negative_b) return false;
        *y = a == 0 || b == 0 ? 0 : wok_dim_mul(graph, a, b);
        return true;
    case WOK_OP_Div:
        if (negative_a || negative_b || b == 0) return false;
        *y = wok_dim_div(graph, a, b);
        return true;
    case WOK_OP_Min:
    case WOK_OP_Max:
        if (negative_a || negative_b) { /* sizes are not negative */
            *y = (op == WOK_OP_Min) == negative_a ? a : b;
            return true;
        }
        if (a == b || (op == WOK_OP_Min && b >= INT32_MAX)) {
            *y = a;
            return true;
        }
        if (op == WOK_OP_Min && a >= INT32_MAX) {
            *y = b;
            return true;
        }
        if (a > b) pair[0] = b, pair[1] = a;
        *y = wok_dim_call(graph, op == WOK_OP_Min ? "min" : "max", pair, 2);
        return true;
    default:
        return false;
    }
}

static int64_t combine(wok_infer *infer, wok_op op, int64_t a, int64_t b) {
    int64_t na, nb, y;
    if (a == wok_dim_number(INT64_MIN) || b == wok_dim_number(INT64_MIN)) return wok_infer_unknown(infer);
    if (exact_number(a, &na) && exact_number(b, &nb))
        return add_numbers(op, na, nb, &y) ? wok_dim_number(y) : wok_infer_unknown(infer);
    return add_symbols(infer->graph, op, a, b, &y) ? y : wok_infer_unknown(infer);
}

/* 0, 1, or -1 where it cannot be told. */
static int compare(wok_op op, int64_t a, int64_t b) {
    int64_t na, nb;
    bool known_a = exact_number(a, &na), known_b = exact_number(b, &nb);
    if (known_a && known_b) {
        switch (op) {
        case WOK_OP_Equal:
            return na == nb;
        case WOK_OP_Less:
            return na < nb;
        case WOK_OP_LessOrEqual:
            return na <= nb;
        case WOK_OP_Greater:
            return na > nb;
        case WOK_OP_GreaterOrEqual:
            return na >= nb;
        case WOK_OP_And:
            return na && nb;
        case WOK_OP_Or:
            return na || nb;
        case WOK_OP_Xor:
            return !na != !nb;
        default:
            return -1;
        }
    }
    if (op == WOK_OP_Equal && a == b) return a == wok_dim_number(INT64_MIN) ? -1 : 1;
    if (op == WOK_OP_Equal && ((known_a && na < 0) || (known_b && nb < 0))) return 0; /* a size is not negative */
    if (op == WOK_OP_And && (a == 0 || b == 0)) return 0;
    if (op == WOK_OP_Or && ((known_a && na) || (known_b && nb))) return 1;
    return -1;
}

/* Index into a small input of the element that output element k broadcasts from. */
static int source(const wok_type *out, const wok_type *in, int64_t k) {
    int64_t index = 0, size = 1;
    for (int d = out->rank - 1, i = in->rank - 1; i >= 0; d--, i--) {
        if (in->dims[i] != 1) index += k % out->dims[d] * size;
        size *= in->dims[i];
        k /= out->dims[d];
    }
    return (int)index;
}

/* Elements of up to three inputs, if all are known, and the count of the output's. */
static bool read_ints(wok_infer *infer, int inputs, int64_t (*v)[WOK_MAX_INTS], int64_t *count) {
    const wok_type *out = &infer->out[0];
    *count = out->rank >= 0 ? wok_count(out->dims, out->rank) : -1;
    if (*count < 0 || *count > WOK_MAX_INTS) return false;
    for (int i = 0, n; i < inputs; i++)
        if (!wok_infer_ints(infer, i, v[i], &n)) return false;
    return true;
}

static void follow_ints(wok_infer *infer, bool comparing) {
    int64_t v[2][WOK_MAX_INTS], y[WOK_MAX_INTS], count;
    wok_op op = infer->node->op;
    if (infer->in_count != 2 || !read_ints(infer, 2, v, &count)) return;
    for (int64_t k = 0; k < count; k++) {
        int64_t a = v[0][source(&infer->out[0], infer->in[0], k)], b = v[1][source(&infer->out[0], infer->in[1], k)];
        int truth = comparing ? compare(op, a, b) : 0;
        y[k] = !comparing ? combine(infer, op, a, b) : truth >= 0 ? truth : wok_infer_unknown(infer);
    }
    wok_infer_set_ints(infer, 0, y, (int)count);
}

/* ---- inference --------------------------------------------------------------------------------------------------- */

/* Broadcasts inputs [from, in_count) into out[0]. */
static wok_status broadcast_all(wok_infer *infer, int from, wok_dtype dtype) {
    int64_t dims[WOK_MAX_RANK];
    int rank = 0;
    for (int i = from; i < infer->in_count; i++) {
        if (!infer->in[i]) return wok_infer_fail(infer, WOK_ERR_SHAPE, "input %d is missing", i);
        WOK_TRY(wok_infer_broadcast(infer, dims, &rank, infer->in[i]));
    }
    wok_infer_out(infer, 0, dtype, rank, dims);
    return WOK_OK;
}

static wok_status check_same_dtype(wok_infer *infer, int from) {
    for (int i = from + 1; i < infer->in_count; i++)
        if (infer->in[i] && infer->in[from] && infer->in[i]->dtype != infer->in[from]->dtype && infer->in[i]->dtype &&
            infer->in[from]->dtype)
            return wok_infer_fail(infer, WOK_ERR_SHAPE, "input %d is %s, but input %d is %s", from,
                                  wok_dtype_name(infer->in[from]->dtype), i, wok_dtype_name(infer->in[i]->dtype));
    return WOK_OK;
}

wok_status wok_infer_arithmetic(wok_infer *infer) {
    bool variadic = infer->node->op == WOK_OP_Min || infer->node->op == WOK_OP_Max || infer->node->op == WOK_OP_Sum ||
                    infer->node->op == WOK_OP_Mean;
    WOK_TRY(wok_infer_need(infer, variadic ? 1 : 2));
    WOK_TRY(check_same_dtype(infer, 0));
    WOK_TRY(broadcast_all(infer, 0, infer->in[0]->dtype));
    if (wok_dtype_is_int(infer->in[0]->dtype)) follow_ints(infer, false);
    return WOK_OK;
}

wok_status wok_infer_binary_first(wok_infer *infer) {
    WOK_TRY(wok_infer_need(infer, 2));
    return broadcast_all(infer, 0, infer->in[0]->dtype);
}

wok_status wok_infer_compare(wok_infer *infer) {
    WOK_TRY(wok_infer_need(infer, 2));
    WOK_TRY(check_same_dtype(infer, 0));
    WOK_TRY(broadcast_all(infer, 0, WOK_BOOL));
    if (!wok_dtype_is_float(infer->in[0]->dtype)) follow_ints(infer, true);
    return WOK_OK;
}

wok_status wok_infer_where(wok_infer *infer) {
    WOK_TRY(wok_infer_need(infer, 3));
    WOK_TRY(check_same_dtype(infer, 1));
    WOK_TRY(broadcast_all(infer, 0, infer->in[1]->dtype));
    int64_t v[3][WOK_MAX_INTS], y[WOK_MAX_INTS], count;
    if (wok_dtype_is_float(infer->in[1]->dtype) || !read_ints(infer, 3, v, &count)) return WOK_OK;
    for (int64_t k = 0; k < count; k++) {
        const wok_type *out = &infer->out[0];
        int64_t c = v[0][source(out, infer->in[0], k)], truth;
        int64_t a = v[1][source(out, infer->in[1], k)], b = v[2][source(out, infer->in[2], k)];
        y[k] = a == b ? a : !wok_dim_is_number(c, &truth) ? wok_infer_unknown(infer) : truth ? a : b;
    }
    wok_infer_set_ints(infer, 0, y, (int)count);
    return WOK_OK;
}

/* ---- reference: any type ----------------------------------------------------------------------------------------- */

static double floored_mod(double a, double b) {
    if (isinf(b) && isfinite(a)) return a == 0 ? copysign(0.0, b) : (a < 0) == (b < 0) ? a : b;
    double r = fmod(a, b);
    if (r == 0) return copysign(0.0, b);
    return (r < 0) != (b < 0) ? r + b : r;
}

static double real_op(wok_op op, double a, double b) {
    switch (op) {
    case WOK_OP_Add:
    case WOK_OP_Sum:
    case WOK_OP_Mean:
        return a + b;
    case WOK_OP_Sub:
        return a - b;
    case WOK_OP_Mul:
        return a * b;
    case WOK_OP_Div:
        return a / b;
    case WOK_OP_Min:
        return isnan(a) || a < b ? a : b;
    case WOK_OP_Max:
        return isnan(a) || a > b ? a : b;
    case WOK_OP_Pow:
        return pow(a, b);
    case WOK_OP_PRelu:
        return a < 0 ? a * b : a;
    case WOK_OP_Equal:
        return a == b;
    case WOK_OP_Less:
        return a < b;
    case WOK_OP_LessOrEqual:
        return a <= b;
    case WOK_OP_Greater:
        return a > b;
    case WOK_OP_GreaterOrEqual:
        return a >= b;
    default:
        return floored_mod(a, b); /* WOK_OP_Mod */
    }
}

/* Wrapped. A negative exponent leaves only 1 and -1. */
static int64_t int_pow(int64_t base, int64_t exponent, bool is_signed) {
    uint64_t y = 1, x = (uint64_t)base;
    if (is_signed && exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent & 1 ? -1 : 1) : 0;
    for (uint64_t e = (uint64_t)exponent; e; e >>= 1, x *= x)
        if (e & 1) y *= x;
    return (int64_t)y;
}

/* b is not 0. floor: the sign of the divisor, else that of the dividend. */
static int64_t int_mod(int64_t a, int64_t b, bool is_signed, bool floor_it) {
    if (!is_signed) return (int64_t)((uint64_t)a % (uint64_t)b);
    if (b == -1) return 0;
    int64_t r = a % b;
    return floor_it && r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

static int64_t int_div(int64_t a, int64_t b, bool is_signed) {
    if (!is_signed) return (int64_t)((uint64_t)a / (uint64_t)b);
    return b == -1 ? (int64_t) - (uint64_t)a : a / b;
}

typedef struct binary_job {
    wok_op op;
    const wok_tensor *a, *b, *out;
    bool integers, is_signed, fmod, shift_left;
    int bits;          /* of an element */
    bool zero_divisor; /* one was met; any thread may say so */
} binary_job;

static bool less(const binary_job *job, int64_t a, int64_t b) {
    return job->is_signed ? a < b : (uint64_t)a < (uint64_t)b;
}

/* To the right the sign fills in; counts outside the type shift everything out. */
static int64_t shift(const binary_job *job, int64_t a, int64_t b) {
    bool negative = a < 0 && job->is_signed, out = b < 0 || b >= job->bits;
    if (job->shift_left) return out ? 0 : (int64_t)((uint64_t)a << b);
    if (out) return negative ? -1 : 0;
    return (int64_t)(negative ? ~(~(uint64_t)a >> b) : (uint64_t)a >> b);
}

static int64_t int_op(const binary_job *job, int64_t a, int64_t b) {
    switch (job->op) {
    case WOK_OP_Add:
    case WOK_OP_Sum:
    case WOK_OP_Mean:
        return (int64_t)((uint64_t)a + (uint64_t)b);
    case WOK_OP_Sub:
        return (int64_t)((uint64_t)a - (uint64_t)b);
    case WOK_OP_Mul:
        return (int64_t)((uint64_t)a * (uint64_t)b);
    case WOK_OP_Div:
        return int_div(a, b, job->is_signed);
    case WOK_OP_Mod:
        return int_mod(a, b, job->is_signed, !job->fmod);
    case WOK_OP_Min:
        return less(job, a, b) ? a : b;
    case WOK_OP_Max:
        return less(job, b, a) ? a : b;
    case WOK_OP_Pow:
        return int_pow(a, b, job->is_signed);
    case WOK_OP_PRelu:
        return less(job, a, 0) ? (int64_t)((uint64_t)a * (uint64_t)b) : a;
    case WOK_OP_BitwiseAnd:
        return a & b;
    case WOK_OP_BitwiseOr:
        return a | b;
    case WOK_OP_BitwiseXor:
        return a ^ b;
    case WOK_OP_BitShift:
        return shift(job, a, b);
    case WOK_OP_And:
        return a && b;
    case WOK_OP_Or:
        return a || b;
    case WOK_OP_Xor:
        return !a != !b;
    case WOK_OP_Equal:
        return a == b;
    case WOK_OP_Less:
        return less(job, a, b);
    case WOK_OP_LessOrEqual:
        return !less(job, b, a);
    case WOK_OP_Greater:
        return less(job, b, a);
    default:
        return !less(job, a, b); /* WOK_OP_GreaterOrEqual */
    }
}

static void int_piece(binary_job *job, const int64_t *at, const int64_t *step, int64_t y, int64_t n) {
    int64_t a[CHUNK], b[CHUNK];
    bool divides = job->op == WOK_OP_Div || job->op == WOK_OP_Mod;
    wok_load_i64(job->a->dtype, job->a->data, at[0], step[0], n, a);
    wok_load_i64(job->b->dtype, job->b->data, at[1], step[1], n, b);
    for (int64_t k = 0; k < n; k++) {
        if (divides && b[k] == 0) {
            __atomic_store_n(&job->zero_divisor, true, __ATOMIC_RELAXED);
            return;
        }
        a[k] = int_op(job, a[k], b[k]);
    }
    wok_store_i64(job->out->dtype, job->out->data, y, n, a);
}

static void real_piece(const binary_job *job, const int64_t *at, const int64_t *step, int64_t y, int64_t n) {
    double a[CHUNK], b[CHUNK];
    wok_load_f64(job->a->dtype, job->a->data, at[0], step[0], n, a);
    wok_load_f64(job->b->dtype, job->b->data, at[1], step[1], n, b);
    for (int64_t k = 0; k < n; k++) a[k] = job->fmod ? fmod(a[k], b[k]) : real_op(job->op, a[k], b[k]);
    wok_store_f64(job->out->dtype, job->out->data, y, n, a);
}

static void binary_piece(void *arg, const wok_walk *walk, const int64_t *offset, int64_t y, int64_t n) {
    binary_job *job = arg;
    int64_t step[2] = {walk->step[0][walk->rank - 1], walk->step[1][walk->rank - 1]};
    for (int64_t i = 0; i < n; i += CHUNK) {
        int64_t count = n - i < CHUNK ? n - i : CHUNK, at[2] = {offset[0] + i * step[0], offset[1] + i * step[1]};
        if (job->integers)
            int_piece(job, at, step, y + i, count);
        else
            real_piece(job, at, step, y + i, count);
    }
}

/* out = a op b; out may be a. */
static wok_status run_pair(wok_call *call, const wok_tensor *a, const wok_tensor *b) {
    const wok_tensor *out = call->out[0];
    binary_job job = {.op = call->node->op, .a = a, .b = b, .out = out, .is_signed = a->dtype != WOK_U64};
    job.integers = !wok_dtype_is_float(a->dtype) && !wok_dtype_is_float(b->dtype);
    job.fmod = job.op == WOK_OP_Mod && wok_ir_int(call->node, "fmod", 0);
    job.shift_left = job.op == WOK_OP_BitShift && !strcmp(wok_ir_string(call->node, "direction", ""), "LEFT");
    job.bits = 8 * (int)wok_dtype_size(out->dtype);
    wok_walk walk;
    wok_walk_init(&walk, out->dims, out->rank, (const wok_tensor *const[]){a, b}, 2);
    wok_walk_run(&walk, binary_piece, &job, call->parallel);
    return job.zero_divisor ? wok_call_fail(call, WOK_ERR_VALUE, "integer division by zero") : WOK_OK;
}

static wok_status binary_run(wok_call *call) {
    return run_pair(call, call->in[0], call->in[1]);
}

static void copy_piece(void *arg, const wok_walk *walk, const int64_t *offset, int64_t y, int64_t n) {
    const wok_call *call = arg;
    size_t size = wok_dtype_size(call->out[0]->dtype);
    wok_copy_step((char *)call->out[0]->data + (size_t)y * size,
                  (const char *)call->in[0]->data + (size_t)offset[0] * size, walk->step[0][walk->rank - 1], n, size);
}

/* out = in[0], broadcast */
static void copy_first(wok_call *call) {
    wok_walk walk;
    if (call->out[0]->data == call->in[0]->data) return;
    wok_walk_init(&walk, call->out[0]->dims, call->out[0]->rank, call->in, 1);
    wok_walk_run(&walk, copy_piece, call, call->parallel);
}

static void divide(const wok_tensor *t, double divisor) {
    int64_t n = wok_tensor_count(t);
    for (int64_t i = 0; i < n; i += CHUNK) {
        int64_t count = n - i < CHUNK ? n - i : CHUNK;
        double v[CHUNK];
        wok_load_f64(t->dtype, t->data, i, 1, count, v);
        for (int64_t k = 0; k < count; k++) v[k] /= divisor;
        wok_store_f64(t->dtype, t->data, i, count, v);
    }
}

/* ((in0 op in1) op in2) ..., each rounded to the element type, as ONNX's reference does. */
static wok_status arithmetic_run(wok_call *call) {
    if (call->in_count == 1) copy_first(call);
    for (int i = 1; i < call->in_count; i++) WOK_TRY(run_pair(call, i == 1 ? call->in[0] : call->out[0], call->in[i]));
    if (call->node->op == WOK_OP_Mean && call->in_count > 1) divide(call->out[0], call->in_count);
    return WOK_OK;
}

/* ---- f32 on the eltwise kernels ---------------------------------------------------------------------------------- */

typedef struct f32_state {
    const wok_eltwise_kernel *kernel;
    wok_eltwise_problem problem;
} f32_state;

/* -1: the kernels do not have it. */
static int kernel_op(wok_op op) {
    switch (op) {
    case WOK_OP_Add:
    case WOK_OP_Sum:
        return WOK_ELT_ADD;
    case WOK_OP_Sub:
        return WOK_ELT_SUB;
    case WOK_OP_Mul:
        return WOK_ELT_MUL;
    case WOK_OP_Div:
        return WOK_ELT_DIV;
    case WOK_OP_Min:
        return WOK_ELT_MIN;
    case WOK_OP_Max:
        return WOK_ELT_MAX;
    default:
        return -1;
    }
}

static const char *f32_accept(const wok_prepare *prepare) {
    if (prepare->node->in_count != 2) return "the eltwise kernels take two inputs";
    return kernel_op(prepare->node->op) < 0 ? "the eltwise kernels do not have this function" : wok_accept_f32(prepare);
}

static wok_status f32_prepare_op(wok_prepare *prepare, wok_eltwise_op op) {
    f32_state *state = wok_prepare_alloc(prepare, sizeof *state);
    if (!state) return WOK_ERR_MEMORY;
    state->problem.op = op;
    state->kernel = (const void *)wok_prepare_kernel(prepare, WOK_FAMILY_eltwise, &state->problem);
    if (!state->kernel) return WOK_ERR_UNSUPPORTED;
    prepare->state = state;
    prepare->kernel = &state->kernel->base;
    return WOK_OK;
}

static wok_status f32_prepare(wok_prepare *prepare) {
    return f32_prepare_op(prepare, (wok_eltwise_op)kernel_op(prepare->node->op));
}

static void f32_piece(void *arg, const wok_walk *walk, const int64_t *offset, int64_t y, int64_t n) {
    const wok_call *call = arg;
    const f32_state *state = call->state;
    const wok_tensor *b = call->in[walk->inputs - 1];
    wok_eltwise_args args = {.n = n,
                             .a = (const float *)call->in[0]->data + offset[0],
                             .b = (const float *)b->data + offset[walk->inputs - 1],
                             .a_step = walk->step[0][walk->rank - 1],
                             .b_step = walk->step[walk->inputs - 1][walk->rank - 1],
                             .y = (float *)call->out[0]->data + y,
                             .p0 = -INFINITY,
                             .p1 = INFINITY};
    state->kernel->run(&state->problem, &args, NULL);
}

static wok_status f32_run(wok_call *call) {
    wok_walk walk;
    wok_walk_init(&walk, call->out[0]->dims, call->out[0]->rank, call->in, 2);
    wok_walk_run(&walk, f32_piece, call, call->parallel);
    return WOK_OK;
}

const wok_op_impl *const wok_impls_arithmetic[] = {
    &(const wok_op_impl){.name = "kernel", .inplace = 3, .accept = f32_accept, .prepare = f32_prepare, .run = f32_run},
    &(const wok_op_impl){.name = "ref", .inplace = 1, .accept = wok_accept_number, .run = arithmetic_run},
    NULL,
};

/* x^2 and x^0.5 are what LayerNorm written out is made of. */
static bool constant_exponent(const wok_prepare *prepare, double *exponent) {
    const wok_type *e = prepare->in[1];
    if (!e || !e->data || wok_count(e->dims, e->rank) != 1) return false;
    *exponent = wok_get_f64(e->dtype, e->data, 0);
    return true;
}

static const char *square_accept(const wok_prepare *prepare) {
    double exponent;
    if (prepare->node->op != WOK_OP_Pow) return "the eltwise kernels do not have this function";
    if (!constant_exponent(prepare, &exponent) || exponent != 2) return "the exponent is not a constant 2";
    return prepare->in[1]->rank <= prepare->in[0]->rank ? wok_accept_f32(prepare) : "the exponent has the higher rank";
}

static wok_status square_prepare(wok_prepare *prepare) {
    return f32_prepare_op(prepare, WOK_ELT_MUL);
}

static wok_status square_run(wok_call *call) {
    wok_walk walk;
    wok_walk_init(&walk, call->out[0]->dims, call->out[0]->rank, call->in, 1);
    wok_walk_run(&walk, f32_piece, call, call->parallel);
    return WOK_OK;
}

const wok_op_impl *const wok_impls_binary[] = {
    &(const wok_op_impl){
        .name = "square", .inplace = 1, .accept = square_accept, .prepare = square_prepare, .run = square_run},
    &(const wok_op_impl){.name = "ref", .inplace = 1, .accept = wok_accept_number, .run = binary_run},
    NULL,
};

const wok_op_impl *const wok_impls_compare[] = {
    &(const wok_op_impl){.name = "ref", .accept = wok_accept_number, .run = binary_run},
    NULL,
};

/* ---- Where ------------------------------------------------------------------------------------------------------- */

#define WHERE_CASE(type)                                                                                               \
    case sizeof(type): {                                                                                               \
        const type *a = call->in[1]->data, *b = call->in[2]->data;                                                     \
        type *out = call->out[0]->data;                                                                                \
        for (int64_t i = 0; i < n; i++)                                                                                \
            out[y + i] = c[i * step[0]] ? a[offset[1] + i * step[1]] : b[offset[2] + i * step[2]];                     \
        return;                                                                                                        \
    }

static void where_piece(void *arg, const wok_walk *walk, const int64_t *offset, int64_t y, int64_t n) {
    const wok_call *call = arg;
    const uint8_t *c = (const uint8_t *)call->in[0]->data + offset[0];
    int64_t step[3];
    for (int i = 0; i < 3; i++) step[i] = walk->step[i][walk->rank - 1];
    switch (wok_dtype_size(call->out[0]->dtype)) {
        WHERE_CASE(uint8_t)
        WHERE_CASE(uint16_t)
        WHERE_CASE(uint32_t)
        WHERE_CASE(uint64_t)
    }
}

static wok_status where_run(wok_call *call) {
    wok_walk walk;
    wok_walk_init(&walk, call->out[0]->dims, call->out[0]->rank, call->in, 3);
    wok_walk_run(&walk, where_piece, call, call->parallel);
    return WOK_OK;
}

static const char *where_accept(const wok_prepare *prepare) {
    return prepare->in[1] && wok_dtype_size(prepare->in[1]->dtype) ? NULL : "the element type is not one to copy";
}

const wok_op_impl *const wok_impls_where[] = {
    &(const wok_op_impl){.name = "copy", .inplace = 2 | 4, .accept = where_accept, .run = where_run},
    NULL,
};

/* eltwise_s8_ref.c - the oracle, one element at a time; and the splitting that all variants share. */
#include "eltwise_s8.h"
#include "../epilogue_s8_ref.h"

/* ---- shared ------------------------------------------------------------------------------------------------------ */

const char *wok_eltwise_s8_accept(const void *problem) {
    const wok_eltwise_s8_problem *p = problem;
    return (unsigned)p->op <= WOK_ELT_S8_MUL ? NULL : "unknown operation";
}

bool wok_eltwise_s8_row(wok_extent extent, float *scale, int32_t *zero) {
    if (isnan(extent.special)) {
        *scale = NAN;
        *zero = 0;
        return false;
    }
    *scale = (extent.hi - extent.lo) / 255.0f;
    *zero = -128;
    if (*scale == 0)
        *scale = 1;
    else
        *zero = wok_clamp_s8(-extent.lo / *scale, -128, -128, 127);
    return true;
}

typedef struct elt_job {
    wok_eltwise_s8_op op;
    const wok_eltwise_s8_args *args;
    const wok_eltwise_s8_loops *loops;
    int64_t tasks;
    int64_t row; /* the one whose ranges are worked on */
    wok_extent parts[WOK_ELTWISE_S8_PARTS];
} elt_job;

static void range_task(void *arg, int64_t task, int worker) {
    const elt_job *job = arg;
    (void)worker;
    int64_t begin, end;
    wok_parallel_range(job->args->rows * job->args->cols, 64, task, job->tasks, &begin, &end);
    if (begin < end) job->loops->range(job->op, job->args, begin, end);
}

static void quantize_part(const elt_job *job, int64_t row, int64_t begin, int64_t end) {
    const wok_eltwise_s8_args *args = job->args;
    int8_t *y = (int8_t *)args->y + row * args->cols + begin;
    if (isnan(args->row_scale[row]))
        memset(y, 0, (size_t)(end - begin));
    else
        job->loops->quantize((const float *)args->a + row * args->cols + begin, end - begin, args->row_scale[row],
                             args->row_zero[row], y);
}

static void rows_task(void *arg, int64_t task, int worker) {
    const elt_job *job = arg;
    const wok_eltwise_s8_args *args = job->args;
    (void)worker;
    int64_t begin, end;
    wok_parallel_range(args->rows, 1, task, job->tasks, &begin, &end);
    for (int64_t row = begin; row < end; row++) {
        wok_eltwise_s8_row(job->loops->extent((const float *)args->a + row * args->cols, args->cols),
                           &args->row_scale[row], &args->row_zero[row]);
        quantize_part(job, row, 0, args->cols);
    }
}

static void extent_task(void *arg, int64_t task, int worker) {
    elt_job *job = arg;
    (void)worker;
    int64_t begin, end;
    wok_parallel_range(job->args->cols, 64, task, job->tasks, &begin, &end);
    const float *row = (const float *)job->args->a + job->row * job->args->cols;
    job->parts[task] = job->loops->extent(row + begin, end - begin);
}

static void bytes_task(void *arg, int64_t task, int worker) {
    const elt_job *job = arg;
    (void)worker;
    int64_t begin, end;
    wok_parallel_range(job->args->cols, 64, task, job->tasks, &begin, &end);
    quantize_part(job, job->row, begin, end);
}

/* One row over all threads. */
static void wide_row(elt_job *job, const wok_parallel *parallel) {
    wok_parallel_for(parallel, extent_task, job, job->tasks);
    wok_extent all = job->parts[0];
    for (int64_t i = 1; i < job->tasks; i++) {
        all.lo = fminf(all.lo, job->parts[i].lo);
        all.hi = fmaxf(all.hi, job->parts[i].hi);
        all.special += job->parts[i].special;
    }
    wok_eltwise_s8_row(all, &job->args->row_scale[job->row], &job->args->row_zero[job->row]);
    wok_parallel_for(parallel, bytes_task, job, job->tasks);
}

void wok_eltwise_s8_drive(wok_eltwise_s8_op op, const wok_eltwise_s8_args *args, const wok_eltwise_s8_loops *loops,
                          const wok_parallel *parallel) {
    const int64_t threads = wok_parallel_threads(parallel), most = wok_min64(4 * threads, WOK_ELTWISE_S8_PARTS);
    if (args->rows < 1) return;
    elt_job job = {.op = op, .args = args, .loops = loops};
    job.tasks = wok_min64(args->rows * args->cols / WOK_ELTWISE_S8_GRAIN + 1, most);
    if (op != WOK_ELT_S8_QUANTIZE_ROWS) {
        wok_parallel_for(parallel, range_task, &job, job.tasks);
    } else if (threads == 1 || args->rows >= job.tasks || args->cols < 2 * WOK_ELTWISE_S8_GRAIN) {
        job.tasks = wok_min64(job.tasks, args->rows);
        wok_parallel_for(parallel, rows_task, &job, job.tasks);
    } else {
        job.tasks = wok_min64(args->cols / WOK_ELTWISE_S8_GRAIN, most);
        for (job.row = 0; job.row < args->rows; job.row++) wide_row(&job, parallel);
    }
}

/* ---- the oracle -------------------------------------------------------------------------------------------------- */

static int8_t quantize(float x, float scale, int32_t zero, int32_t lo, int32_t hi) {
    float v = x / scale;
    return (int8_t)wok_clamp_s8(isnan(v) ? 0.0f : v, zero, lo, hi);
}

static void quantize_range(const float *a, int64_t n, float scale, int32_t zero, int8_t *y) {
    for (int64_t i = 0; i < n; i++) y[i] = quantize(a[i], scale, zero, -128, 127);
}

static wok_extent extent(const float *a, int64_t n) {
    wok_extent e = {0, 0, 0};
    for (int64_t i = 0; i < n; i++) {
        if (a[i] < e.lo) e.lo = a[i];
        if (a[i] > e.hi) e.hi = a[i];
        if (!isfinite(a[i])) e.special = NAN;
    }
    return e;
}

static float dequantize(int8_t q, int32_t zero, float scale) { return (float)(q - zero) * scale; }

static void range(wok_eltwise_s8_op op, const wok_eltwise_s8_args *args, int64_t begin, int64_t end) {
    const int8_t *a = args->a, *b = args->b;
    int8_t *y = args->y;
    if (op == WOK_ELT_S8_QUANTIZE)
        quantize_range((const float *)args->a + begin, end - begin, args->y_scale, args->y_zero, y + begin);
    for (int64_t i = begin; i < end; i++) switch (op) {
        case WOK_ELT_S8_DEQUANTIZE: ((float *)args->y)[i] = dequantize(a[i], args->a_zero, args->a_scale); break;
        case WOK_ELT_S8_TABLE: y[i] = args->table[a[i] + 128]; break;
        case WOK_ELT_S8_ADD:
        case WOK_ELT_S8_MUL: {
            float u = dequantize(a[i * args->a_step], args->a_zero, args->a_scale);
            float v = dequantize(b[i * args->b_step], args->b_zero, args->b_scale);
            y[i] = quantize(op == WOK_ELT_S8_ADD ? u + v : u * v, args->y_scale, args->y_zero, args->lo, args->hi);
            break;
        }
        default: break;
        }
}

static void run(const wok_eltwise_s8_problem *problem, const wok_eltwise_s8_args *args, const wok_parallel *parallel) {
    (void)parallel;
    wok_eltwise_s8_drive(problem->op, args, &(wok_eltwise_s8_loops){range, extent, quantize_range}, NULL);
}

const wok_eltwise_s8_kernel wok_eltwise_s8__ref = {
    .base = {"wok_eltwise_s8__ref", WOK_ISA_ref, WOK_KERNEL_REFERENCE, wok_eltwise_s8_accept},
    .run = run,
};

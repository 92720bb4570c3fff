/* pool_s8_ref.c - the oracle, one channel at a time. */
#include "pool_s8.h"
#include "../epilogue_s8_ref.h"

void wok_pool_s8_drive(const wok_pool_problem *problem, const wok_pool_s8_args *args, wok_pool_place_fn max,
                       wok_pool_place_fn average, const wok_parallel *parallel) {
    const wok_pool_args shape = {
        .batch = args->batch,
        .in_h = args->in_h,
        .in_w = args->in_w,
        .out_h = args->out_h,
        .out_w = args->out_w,
        .kernel_h = args->kernel_h,
        .kernel_w = args->kernel_w,
        .stride_h = args->stride_h,
        .stride_w = args->stride_w,
        .dilation_h = args->dilation_h,
        .dilation_w = args->dilation_w,
        .pad_top = args->pad_top,
        .pad_left = args->pad_left,
        .pad_bottom = args->pad_bottom,
        .pad_right = args->pad_right,
        .count_include_pad = args->count_include_pad,
        .x_stride = args->x_stride,
        .y_stride = args->y_stride,
    };
    wok_pool_walk(problem->channels, &shape, problem->op == WOK_POOL_MAX ? max : average, args, parallel);
}

static void max_place(const void *arg, const wok_pool_place *p) {
    const wok_pool_s8_args *a = arg;
    for (int64_t c = p->begin; c < p->end; c++) {
        int8_t max = -128;
        for (int64_t ky = 0; ky < p->rows; ky++)
            for (int64_t kx = 0; kx < p->columns; kx++) {
                const int8_t x = a->x[p->x + ky * p->row_stride + kx * p->column_stride + c];
                if (x > max) max = x;
            }
        a->y[p->y + c] = max;
    }
}

static void average_place(const void *arg, const wok_pool_place *p) {
    const wok_pool_s8_args *a = arg;
    for (int64_t c = p->begin; c < p->end; c++) {
        int32_t sum = 0;
        for (int64_t ky = 0; ky < p->rows; ky++)
            for (int64_t kx = 0; kx < p->columns; kx++)
                sum += a->x[p->x + ky * p->row_stride + kx * p->column_stride + c] - a->x_zero;
        const float mean = (float)sum * a->x_scale / (float)p->count / a->y_scale;
        a->y[p->y + c] = (int8_t)wok_clamp_s8(isnan(mean) ? 0.0f : mean, a->y_zero, -128, 127);
    }
}

static void run(const wok_pool_problem *problem, const wok_pool_s8_args *args, const wok_parallel *parallel) {
    wok_pool_s8_drive(problem, args, max_place, average_place, parallel);
}

const wok_pool_s8_kernel wok_pool_s8__ref = {
    .base = {"wok_pool_s8__ref", WOK_ISA_ref, WOK_KERNEL_REFERENCE, wok_pool_accept},
    .run = run,
};

/* resize_ref.c - the portable variant: what the others are checked against. Fixed point is exact; floating point
 * sums in double and rounds once after each pass. */
#include "resize.h"

static uint8_t clip(int32_t sum) {
    int32_t v = (sum + (1 << (WOK_RESIZE_BITS - 1))) >> WOK_RESIZE_BITS;
    return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

static void horizontal_u8(const wok_resize_axis *axis, int64_t begin, int64_t end, int64_t origin, int64_t channels,
                          const uint8_t *const src[WOK_RESIZE_BLOCK], uint8_t *const dst[WOK_RESIZE_BLOCK]) {
    for (int r = 0; r < WOK_RESIZE_BLOCK; r++) {
        if (r > 0 && dst[r] == dst[r - 1]) break; /* a short block repeats its last row */
        for (int64_t i = begin; i < end; i++) {
            const int32_t *weights = (const int32_t *)axis->weights + i * axis->stride;
            const uint8_t *x = src[r] + (axis->first[i] - origin) * channels;
            for (int64_t c = 0; c < channels; c++) {
                int32_t sum = 0;
                for (int64_t t = 0; t < axis->taps[i]; t++) sum += weights[t] * x[t * channels + c];
                dst[r][(i - begin) * channels + c] = clip(sum);
            }
        }
    }
}

static void vertical_u8(const uint8_t *const *rows, const int32_t *weights, int64_t taps, int64_t n, uint8_t *dst) {
    for (int64_t i = 0; i < n; i++) {
        int32_t sum = 0;
        for (int64_t t = 0; t < taps; t++) sum += weights[t] * rows[t][i];
        dst[i] = clip(sum);
    }
}

void wok_resize_vertical_split(const uint8_t *const *rows, const int32_t *weights, int64_t taps, int64_t n,
                               uint8_t *dst) {
    const int16_t *halves = (const int16_t *)(const void *)weights;
    for (int64_t i = 0; i < n; i++) {
        int32_t sum = 0;
        for (int64_t t = 0; t < taps; t++) {
            const int16_t *group = halves + (t & ~(int64_t)3) * 2 + (t & 3);
            sum += (group[0] + group[4] * (1 << WOK_RESIZE_SPLIT)) * rows[t][i];
        }
        dst[i] = clip(sum);
    }
}

static void vertical_f32(const void *const *rows, bool is_u8, int64_t offset, const float *weights, int64_t taps,
                         int64_t n, float *dst) {
    for (int64_t i = 0; i < n; i++) {
        double sum = 0.0;
        for (int64_t t = 0; t < taps; t++) {
            const uint8_t *bytes = rows[t];
            const float *floats = rows[t];
            sum += (double)weights[t] * (is_u8 ? (double)bytes[offset + i] : (double)floats[offset + i]);
        }
        dst[i] = (float)sum;
    }
}

static void horizontal_f32(const wok_resize_axis *axis, int64_t origin, int64_t channels, const float *src,
                           float *dst) {
    int64_t lanes = wok_resize_lanes(channels);
    for (int64_t i = 0; i < axis->count; i++) {
        const float *weights = (const float *)axis->weights + i * axis->stride;
        const float *x = src + (axis->first[i] - origin) * channels;
        for (int64_t c = 0; c < channels; c++) {
            double sum = 0.0;
            for (int64_t t = 0; t < axis->taps[i]; t++) sum += (double)weights[t] * (double)x[t * channels + c];
            dst[i * lanes + c] = (float)sum;
        }
    }
}

void wok_resize_store_f32(const float *src, int64_t n, int64_t channels, const wok_resize_args *args, float *y) {
    int64_t lanes = wok_resize_lanes(channels);
    for (int64_t c = 0; c < channels; c++) {
        float scale = args->scale ? args->scale[c] : 1.0f, shift = args->shift ? args->shift[c] : 0.0f;
        float *to = y + c * args->y_channel_stride;
        for (int64_t i = 0; i < n; i++) to[i * args->y_pixel_stride] = fmaf(src[i * lanes + c], scale, shift);
    }
}

void wok_resize_store_unit(const uint8_t *src, int64_t n, int64_t channels, const wok_resize_args *args, float *y) {
    for (int64_t c = 0; c < channels; c++) {
        float scale = args->scale ? args->scale[c] : 1.0f, shift = args->shift ? args->shift[c] : 0.0f;
        float *to = y + c * args->y_channel_stride;
        for (int64_t i = 0; i < n; i++) to[i * args->y_pixel_stride] = fmaf((float)src[i * channels + c], scale, shift);
    }
}

static const wok_resize_rows rows = {
    .split = false,
    .horizontal_u8 = horizontal_u8,
    .vertical_u8 = vertical_u8,
    .vertical_f32 = vertical_f32,
    .horizontal_f32 = horizontal_f32,
    .store_f32 = wok_resize_store_f32,
    .store_unit = wok_resize_store_unit,
};

static void run(const wok_resize_problem *problem, const wok_resize_args *args, const wok_parallel *parallel) {
    wok_resize_run(&rows, problem, args, parallel);
}

const wok_resize_kernel wok_resize__ref = {
    .base = {"wok_resize__ref", WOK_ISA_ref, WOK_KERNEL_REFERENCE, wok_resize_accept},
    .workspace_bytes = wok_resize_workspace_bytes,
    .run = run,
};

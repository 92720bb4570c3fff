/* twin_gemm_s8.c - gemm_s8_amx.c over the scalar twin of the tiles (kernels/amx_tile.h), with scalar sums of rows and a
 * scalar epilogue: its packing and loops, checked by checkwok on machines without AMX. Never part of the library. */
#include "gemm_s8/gemm_s8_driver.h"
#include "epilogue_s8_ref.h"

void wok_gemm_s8_rows__twin(const wok_gemm_s8_rows *rows);
extern const wok_gemm_s8_kernel wok_gemm_s8_32x32__twin;

static void rowsums(const int8_t *a, int64_t lda, int64_t rows, int64_t k, int32_t *sums) {
    for (int64_t i = 0; i < rows; i++) {
        sums[i] = 0;
        for (int64_t j = 0; j < k; j++) sums[i] += a[i * lda + j];
    }
}

static void finish(const wok_gemm_s8_walk *w, const wok_gemm_s8_sums *sums) {
    const wok_gemm_s8_rows *g = w->job;
    for (int64_t i = 0; i < sums->count; i++)
        for (int64_t j = 0; j < sums->columns; j++) {
            const int64_t m = sums->row + i, n = sums->column + j;
            const uint32_t a_zero = (uint32_t)(g->row_zero ? g->row_zero[m] : g->a_zero);
            const uint32_t offset = w->packed.uniform ? 1 : (uint32_t)w->packed.offset[n];
            const uint32_t acc = (uint32_t)sums->acc[i * sums->acc_stride + j] - offset * (uint32_t)sums->row_term[i] -
                                 a_zero * (uint32_t)w->packed.colsum[n];
            wok_epilogue_s8_ref((int32_t)acc, m, n, &g->epilogue, g->c, m * g->ldc + n);
        }
}

/* finish() has been through the table. */
typedef struct v_table {
    char unused;
} v_table;
static void v_table_make(v_table *table, const int8_t *values) {
    (void)table, (void)values;
}
static void finish_table(const wok_gemm_s8_walk *w, int64_t n, int64_t columns) {
    (void)w, (void)n, (void)columns;
}

#include "gemm_s8/gemm_s8_amx.c"

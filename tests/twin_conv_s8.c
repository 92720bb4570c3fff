/* twin_conv_s8.c - conv_s8_amx.c over the scalar twin of the tiles (twin_gemm_s8.c). */
#include "conv_s8/conv_s8.h"

void wok_gemm_s8_rows__twin(const wok_gemm_s8_rows *rows);
extern const wok_conv_s8_kernel wok_conv_s8_32x32__twin;
#include "conv_s8/conv_s8_amx.c"

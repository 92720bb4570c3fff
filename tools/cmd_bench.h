/* cmd_bench.h - the parts of `wok bench`. */
#ifndef WOK_CMD_BENCH_H
#define WOK_CMD_BENCH_H

#include "cmd_model.h"

/* Two sessions of one model with their inputs set, both profiled: quantised as it is, and with quantized_as_f32. Runs them in
 * turn and prints every int8 layer beside its float twin. 0, or a status after a message. */
int cmd_bench_layers(wok_session *bytes, wok_session *floats, int runs, bool as_json);

#endif

/* profile.c - where the time of a run goes, step by step. */
#define _GNU_SOURCE
#include "ctx.h"
#include "plan.h"

#include <time.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

wok_status wok_plan_run_profiled(wok_plan *plan, char *arena) {
    wok_call call = {.ctx = plan->program->ctx, .parallel = wok_ctx_parallel(plan->program->ctx)};
    double before = now();
    for (int i = 0; i < plan->step_count; i++) {
        wok_status status = wok_step_run(&plan->steps[i], &call, arena);
        if (status != WOK_OK) return wok_call_report(&call, status);
        double after = now();
        double spent = after - before;
        if (plan->profiled_runs == 0 || spent < plan->steps[i].best) plan->steps[i].best = spent;
        plan->steps[i].seconds += spent;
        before = after;
    }
    plan->profiled_runs++;
    return WOK_OK;
}

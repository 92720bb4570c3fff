/* session.h - inside a session (internal). */
#ifndef WOK_SESSION_H
#define WOK_SESSION_H

#include "eager.h"
#include "plan.h"

typedef struct wok_session_input {
    bool set;
    wok_dtype dtype;
    int rank;
    int64_t dims[WOK_MAX_RANK];
    const void *data;
    size_t bytes;
} wok_session_input;

struct wok_session {
    wok_model *model;
    wok_ctx *ctx;
    wok_arena *arena; /* what lives as long as the session */
    wok_program_key key;
    bool *overridden; /* key.overridden */
    /* Programs that were used: one for each set of inputs whose default was replaced. */
    wok_program **programs;
    size_t programs_bytes;
    int program_count;
    wok_program *program;      /* for the inputs as they are set now */
    wok_session_input *inputs; /* by input of the model */
    const void **input_data;
    void **bound; /* by output */
    size_t *bound_bytes;
    wok_plan **plans;
    int plan_count, plan_limit;
    uint64_t clock;
    int64_t *plan_key;    /* scratch, long enough for any */
    bool keyed_by_values; /* sizes depend on the elements of small inputs: they are part of a plan's key */
    wok_plan *plan;       /* of the last wok_session_plan or run */
    wok_plan *shown;      /* whose outputs are valid; NULL: none */
    wok_plan *ready;      /* whose tensors point at memory and bound outputs as they are now */
    char *memory;         /* the tensors of a run; shared by all plans */
    size_t memory_bytes;
    wok_eager eager;
    bool profile;
    char error[4096];
};

#endif

/* lower_contrib.h - com.microsoft's fused operators as plain ones (internal to canonicalize). */
#ifndef WOK_LOWER_CONTRIB_H
#define WOK_LOWER_CONTRIB_H

#include "pass.h"

/* Rewrites the node if it is one that can be; *lowered says so. Types of the new nodes are inferred. */
wok_status wok_lower_contrib(wok_pass_ctx *ctx, wok_node node, bool *lowered);

#endif

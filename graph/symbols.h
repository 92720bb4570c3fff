/* symbols.h - life of the table of symbolic dimensions (internal); what one does with dimensions is in ir.h. */
#ifndef WOK_SYMBOLS_H
#define WOK_SYMBOLS_H

#include "ir.h"

/* In the arena; NULL on failure (the ctx's error is set). */
wok_symbols *wok_symbols_new(wok_arena *arena);
/* Equal ids for equal dimensions. Shares what does not change: `from` must outlive the copy. */
wok_symbols *wok_symbols_clone(const wok_symbols *from, wok_arena *arena);

#endif

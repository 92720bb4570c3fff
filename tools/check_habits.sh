#!/bin/sh
# check_habits.sh - the include rule of docs/architecture.md and a few habits, checked with grep. Prints what breaks them.
set -eu
cd "$(dirname "$0")/.."
bad=0
complain() { [ -z "$2" ] || { echo "$1:"; echo "$2"; bad=1; }; }
# Quoted includes of a folder's sources that are not in the allowed list (basenames).
foreign() { # foreign FOLDER ALLOWED-REGEX
    find "$1" -name '*.[ch]' -o -name '*.def' | xargs grep -Hn '^#include "' 2>/dev/null |
        grep -Ev "#include \"($2)\"" || true
}
own() { find "$@" \( -name '*.h' -o -name '*.def' \) -printf '(\\.\\./|[a-z_0-9]+/)*%f|' ; }
complain "kernels may include nothing else of wok" "$(foreign kernels "$(own kernels)-")"
complain "graph may include only kernels" "$(foreign graph "$(own graph)$(own kernels)-")"
complain "loaders may include only graph/wok_build.h, wok.h and kernels/wok_kernels.h" \
    "$(foreign loaders "$(own loaders)(\.\./)*(graph/|kernels/)?(wok|wok_build|wok_base|wok_kernels)\.h|-")"
complain "quant may include only graph/wok_build.h, wok.h and kernels/wok_kernels.h" \
    "$(foreign quant "$(own quant)(wok|wok_build|wok_base|wok_kernels)\.h|-")"
complain "tools may include only public headers" "$(foreign tools "$(own tools)wok(_[a-z]+)?\.h|-")"
complain "files over 900 lines" "$(git ls-files '*.c' '*.h' '*.py' '*.sh' | xargs wc -l | awk '$2 != "total" && $1 > 900')"
complain "tabs or blanks at the end of a line" "$(git ls-files '*.c' '*.h' '*.def' | xargs grep -nP '\t|[ \t]+$' || true)"
complain "the library must not print, exit or abort" \
    "$(grep -nE '\b(printf|puts|exit|abort|assert)\(' $(git ls-files 'kernels/*.c' 'graph/*.c' 'quant/*.c' 'loaders/*.c') |
        grep -vE 'static_assert|_Static_assert' || true)"
[ $bad = 0 ] && echo "habits: fine"
exit $bad

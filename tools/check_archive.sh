#!/bin/sh
# check_archive.sh BUILD - what libwok.a promises to whoever links it: every global name starts with wok_, no constructors
# run before main, and code of the baseline level holds no AVX instruction (the dispatcher must run on any x86-64).
set -eu
build=$1
bad=0
for archive in "$build"/libwok*.a; do
    names=$(nm -g --defined-only "$archive" 2>/dev/null | awk 'NF == 3 {print $3}' | grep -v '^wok_' | sort -u || true)
    [ -z "$names" ] || { echo "$archive: globals that do not start with wok_:"; echo "$names"; bad=1; }
    constructors=$(objdump -h "$archive" 2>/dev/null | grep -E '\.(init_array|ctors)' || true)
    [ -z "$constructors" ] || { echo "$archive: static constructors"; bad=1; }
done
if [ "$(uname -m)" = x86_64 ]; then
    objects=$(find "$build" -path '*wok_kernels_ref.dir*' -name '*.o'; find "$build" -path '*wok.dir/graph*' -name '*.o')
    for object in $objects; do
        wide=$(objdump -d --no-show-raw-insn "$object" | grep -cE '%[yz]mm|[[:space:]]v[a-z0-9]+[[:space:]].*%xmm|tdp|tileload' || true)
        [ "$wide" = 0 ] || { echo "$object: $wide AVX or AMX instructions at the baseline level"; bad=1; }
    done
fi
[ $bad = 0 ] && echo "archive: fine"
exit $bad

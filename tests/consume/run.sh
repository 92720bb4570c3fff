#!/bin/sh
# run.sh BUILD - installs BUILD into a throw-away folder and uses it from outside, as other projects do: a CMake project in C
# and one in C++, pkg-config, and the README's program on the digits network. The installed tree is moved first.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
build=$(cd "$1" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$build" --prefix "$work/first" >/dev/null
mv "$work/first" "$work/installed"
model=$root/tests/data/digits/resnet18-w16/float.onnx

for language in c cxx; do
    cmake -S "$here/$language" -B "$work/$language" -DCMAKE_PREFIX_PATH="$work/installed" >"$work/log" 2>&1 &&
        cmake --build "$work/$language" >>"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
    "$work/$language/program" "$model" >"$work/out.$language"
done
cmp "$work/out.c" "$work/out.cxx"
echo "find_package: C and C++ fine"

# The README's program is the first C block of the README, copied out and compiled as it stands.
awk '/^```c$/ {on = 1; next} /^```$/ {if (on) exit} on' "$root/README.md" >"$work/readme.c"
pc=$(find "$work/installed" -name wok.pc -exec dirname {} \;)
# shellcheck disable=SC2046
${CC:-gcc} -std=c11 -Wall -Wextra -Werror "$work/readme.c" -o "$work/readme" \
    $(PKG_CONFIG_PATH=$pc pkg-config --cflags --libs wok)
(cd "$work" && cp "$model" resnet18.onnx && ./readme) | tee "$work/out.readme" | head -3
grep -q . "$work/out.readme"
echo "pkg-config and the README's program: fine"

# Every public header compiles alone, as C and as C++.
for header in "$work"/installed/include/*.h; do
    echo "#include \"$(basename "$header")\"" >"$work/one.c"
    ${CC:-gcc} -std=c11 -Wall -Wextra -Werror -Wstrict-prototypes -I "$work/installed/include" -fsyntax-only "$work/one.c"
    g++ -std=c++11 -Wall -Wextra -Werror -I "$work/installed/include" -fsyntax-only -x c++ "$work/one.c"
done
echo "headers: fine"

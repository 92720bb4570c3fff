#!/bin/sh
# test.sh - builds wok in every way that is promised and runs all tests that are no benchmarks.
#   sh tools/test.sh            (as root it installs the Debian packages that are missing)
# Steps: include rule and habits; gcc with all tests; the checks of ../shared (where it lies beside the checkout; with
# CI=true it must); installed package; an archive without optional libraries; clang; gcc with ASan and UBSan; with
# WOK_TEST_ALL=1 also short fuzzing and clang with ASan and UBSan. Ends with ctest's summary.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/tools/packages.sh"
wok_install $WOK_PACKAGES_TEST
work=${WOK_TEST_BUILD:-$root/build-test}
mkdir -p "$work"
jobs=$(nproc)
step() { echo; echo "== $*"; }

step "habits: include rule, names, long files"
sh "$root/tools/check_habits.sh"
python3 "$root/tools/docs_tables.py" --check

build() { # build NAME COMPILER OPTIONS...
    name=$1 compiler=$2
    shift 2
    cmake -S "$root" -B "$work/$name" -G Ninja -DCMAKE_C_COMPILER="$compiler" -DCMAKE_BUILD_TYPE=RelWithDebInfo \
        -DWOK_WERROR=ON "$@" >"$work/$name.log" 2>&1 || { cat "$work/$name.log"; exit 1; }
    cmake --build "$work/$name" -j "$jobs" >"$work/$name.log" 2>&1 || { tail -60 "$work/$name.log"; exit 1; }
}
run_tests() { # run_tests NAME
    ctest --test-dir "$work/$1" --no-tests=error --output-on-failure -j "$jobs" --timeout 1800
}

step "gcc, Release flags: all tests"
build gcc gcc -DWOK_TESTS=ON -DWOK_BENCH=ON -DWOK_OPENBLAS=ON -DCMAKE_BUILD_TYPE=Release
run_tests gcc

step "archive: symbols, instruction sets, static constructors"
sh "$root/tools/check_archive.sh" "$work/gcc"

step "AVX-512 kernels on an emulated processor"
if "$work/gcc/wok" cpu | grep -q '^  avx512 '; then
    echo "not needed: this processor has AVX-512"
else
    wok_install $WOK_PACKAGES_EMULATE
    cmake -S "$root" -B "$work/static" -G Ninja -DCMAKE_BUILD_TYPE=Release -DWOK_TESTS=ON -DWOK_TEXT=OFF \
        -DWOK_IMAGE=OFF -DWOK_TOOLS=OFF -DCMAKE_EXE_LINKER_FLAGS=-static >"$work/static.log" 2>&1
    cmake --build "$work/static" -j "$jobs" --target checkwok >>"$work/static.log" 2>&1
    WOK_EMULATE_DIR=$work/emulate sh "$root/tests/emulate/run.sh" "$work/static/checkwok" --isa avx512 --sample 12
fi

step "whole models against PyTorch, TensorFlow and ONNX Runtime"
if [ -d "$root/../shared/fixtures" ]; then
    [ -x "$work/venv/bin/python" ] || python3 -m venv "$work/venv"
    "$work/venv/bin/pip" install -q numpy onnx==1.23.2 onnxruntime==1.32.0
    for kind in float safetensors int8 bits; do
        "$work/venv/bin/python" "$root/../shared/check/check_models.py" "$work/gcc/wok" $kind "$root/../shared/fixtures"
    done
    "$work/venv/bin/python" "$root/tests/roundtrip.py" "$work/gcc/resave" "$root/../shared/fixtures"
    "$work/venv/bin/python" "$root/tests/trained_models.py" "$work/gcc/wok" "$root/../shared" "$work/models"
    "$work/venv/bin/python" "$root/tests/quantized_models.py" "$work/gcc/wok" "$root/../shared" "$work/models" \
        "$work/gcc/resave"
elif [ "${CI:-}" = true ]; then
    echo "../shared is absent" >&2
    exit 1
else
    echo "skipped: ../shared is absent"
fi

step "installed package: CMake, C++, pkg-config, the README's program"
sh "$root/tests/consume/run.sh" "$work/gcc"

step "nothing but a C compiler"
build bare gcc -DWOK_TEXT=OFF -DWOK_IMAGE=OFF
"$work/bare/wok" cpu >/dev/null

step "clang: all tests"
build clang clang -DWOK_TESTS=ON
run_tests clang

step "gcc with AddressSanitizer and UndefinedBehaviorSanitizer: all tests, and the fuzz targets on seeds, cut and changed"
build asan gcc -DWOK_TESTS=ON -DWOK_FUZZ=ON -DWOK_SANITIZE=address,undefined
run_tests asan

# A fuzzer may always find something new, and clang with sanitizers takes minutes over the kernels: asked for by name.
if [ "${WOK_TEST_ALL:-}" = 1 ]; then
    step "clang: short fuzzing"
    build fuzz clang -DWOK_FUZZ=ON -DWOK_TOOLS=OFF -DWOK_SANITIZE=address,undefined
    run_tests fuzz

    step "clang with AddressSanitizer and UndefinedBehaviorSanitizer: all tests"
    build clang-asan clang -DWOK_TESTS=ON -DWOK_SANITIZE=address,undefined
    run_tests clang-asan
fi

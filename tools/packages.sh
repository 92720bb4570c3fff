# packages.sh - Debian packages by use (sourced by demo.sh and test.sh). Every package that a step needs is named here, as
# --no-install-recommends leaves out what the package manager would add by itself.
WOK_PACKAGES_BUILD="gcc libc6-dev cmake ninja-build pkg-config libjsmn-dev libutf8proc-dev libturbojpeg0-dev libspng-dev"
WOK_PACKAGES_DEMO="$WOK_PACKAGES_BUILD python3 python3-pip ca-certificates"
WOK_PACKAGES_TEST="$WOK_PACKAGES_DEMO git g++ libcriterion-dev libopenblas-dev clang libclang-rt-14-dev llvm binutils python3-venv"
# A processor with AVX-512, emulated (tests/emulate): only where this one has none.
WOK_PACKAGES_EMULATE="bochs bochsbios vgabios bochs-term grub-pc-bin grub-common xorriso mtools cpio"

# Installs what is missing; without root it only says what to install.
wok_install() {
    missing=""
    for package in "$@"; do
        dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q "ok installed" || missing="$missing $package"
    done
    [ -z "$missing" ] && return 0
    if [ "$(id -u)" != 0 ]; then
        echo "wok: these Debian packages are missing (install them as root):$missing" >&2
        return 1
    fi
    echo "== installing$missing"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
}

#!/bin/sh
# run.sh PROGRAM [ARGUMENT]... - runs a static x86-64 program on an emulated processor with AVX-512 (Bochs, full system), on
# machines that have none. Prints what the program prints and ends with its status; 77 if the tools cannot be had.
#   WOK_EMULATE_CPU    corei7_skylake_x (AVX-512 F BW DQ VL CD). tigerlake, which has VNNI, does not boot: Bochs 2.7
#                      gives PKRU no room in the XSAVE area, and the kernel stops early even with clearcpuid of it. VNNI
#                      kernels run here as twins with vpdpbusd spelled out (tests/twin_gemm_s8_*.c)
#   WOK_EMULATE_DIR    where the kernel and the image are kept; default: a folder under TMPDIR
#   WOK_EMULATE_LIMIT  seconds; default 1500
# About 40 s of boot, then some 50 million instructions a second. The Linux kernel is Debian's cloud kernel, only
# unpacked. Its check of the XSAVE area's size disagrees with Bochs 2.7's compacted form, hence clearcpuid of XSAVEC and
# XSAVES: without it the kernel would switch AVX off.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
program=$1
shift
dir=${WOK_EMULATE_DIR:-${TMPDIR:-/tmp}/wok-emulate}
mkdir -p "$dir/root" "$dir/iso/boot/grub"
for tool in bochs grub-mkrescue xorriso cpio mformat dpkg; do
    command -v $tool >/dev/null || { echo "emulate: $tool is not installed" >&2; exit 77; }
done

if [ ! -f "$dir/iso/boot/vmlinuz" ]; then
    package=$(apt-cache depends linux-image-cloud-amd64 | awk '/Depends: linux-image/ {print $2; exit}')
    [ -n "$package" ] || { echo "emulate: no Debian kernel package is known here" >&2; exit 77; }
    (cd "$dir" && apt-get download -qq "$package" 2>/dev/null && dpkg -x "$package"_*.deb kernel) || exit 77
    mv "$dir"/kernel/boot/vmlinuz-* "$dir/iso/boot/vmlinuz"
    rm -rf "$dir/kernel" "$dir"/*.deb
fi
${CC:-gcc} -O1 -static "$here/init.c" -o "$dir/root/init"
cp "$program" "$dir/root/program"
printf '/program\n' >"$dir/root/args"
for argument in "$@"; do printf '%s\n' "$argument" >>"$dir/root/args"; done
(cd "$dir/root" && find . | cpio -o -H newc --quiet | gzip -1 >"$dir/iso/boot/initrd.gz")
cat >"$dir/iso/boot/grub/grub.cfg" <<END
set timeout=0
linux /boot/vmlinuz quiet mitigations=off clearcpuid=321,323 tsc=reliable lpj=1000000 no_timer_check nosmp noapic
initrd /boot/initrd.gz
boot
END
grub-mkrescue -o "$dir/disk.iso" "$dir/iso" >/dev/null 2>&1
cat >"$dir/bochsrc" <<END
display_library: rfb, options="timeout=0"
romimage: file=/usr/share/bochs/BIOS-bochs-latest
vgaromimage: file=/usr/share/bochs/VGABIOS-lgpl-latest
cpu: model=${WOK_EMULATE_CPU:-corei7_skylake_x}, count=1, ips=100000000, ignore_bad_msrs=1
memory: guest=1024, host=1024
ata0-master: type=cdrom, path=$dir/disk.iso, status=inserted
boot: cdrom
port_e9_hack: enabled=1
log: $dir/bochs.log
clock: sync=none
panic: action=fatal
error: action=ignore
info: action=ignore
END
echo c >"$dir/commands"
timeout "${WOK_EMULATE_LIMIT:-1500}" bochs -q -f "$dir/bochsrc" -rc "$dir/commands" >"$dir/out" 2>&1 </dev/null || true
sed -e '1,/^(0) \[/d' -e '/^EMULATED EXIT/,$d' "$dir/out"
status=$(sed -n 's/^EMULATED EXIT \([0-9]*\).*/\1/p' "$dir/out")
[ -n "$status" ] || { echo "emulate: the machine did not finish" >&2; tail -3 "$dir/out" >&2; exit 1; }
exit "$status"

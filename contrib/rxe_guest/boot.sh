#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# boot.sh [--cache DIR] [--limit SECONDS] [--writable DIR]... [--] COMMAND [ARGUMENT...]
# Runs COMMAND as root in a virtual machine that has the distribution's kernel, soft-RoCE devices
# (wire.sh describes them) and, read-only, the files of this machine at their own paths. Folders
# that have to be writable are fresh there: /tmp, /var/tmp, /run, /dev/shm and root's home. This
# checkout is seen wherever it lies, and what COMMAND writes below a --writable DIR arrives here.
# QEMU emulates the processor (KVM is not used) and there is no network card.
# Ends with COMMAND's status; 124 when SECONDS (1800) have passed, 99 when the guest died before
# COMMAND ended. The kernel stays in DIR (build/rxe-guest, or TAGWIRE_TEST_GUEST_CACHE).
set -euo pipefail
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
checkout=$(dirname "$(dirname "$here")")
PATH=$PATH:/usr/sbin:/sbin

cache=${TAGWIRE_TEST_GUEST_CACHE:-$checkout/build/rxe-guest}
limit_s=${TAGWIRE_TEST_GUEST_LIMIT:-1800}
writable=() shares=() devices=() run='' qemu='' printer=''
modules=(virtio_pci 9p 9pnet_virtio virtio_console ib_uverbs rdma_ucm rdma_rxe veth dummy sch_netem)
modules_if_any=(crc32_generic crc32-pclmul libcrc32c)  # newer kernels have no such modules

say() { printf 'boot: %s\n' "$*" >&2; }
die() { say "$@"; exit 1; }

# add_share MODE TAG PATH [PATH_IN_GUEST]
add_share() {
    local mode=$1 tag=$2 path=$3 readonly=''
    [[ $path != *$'\n'* ]] || die "a path with a line break: $path"
    [[ $mode == rw ]] || readonly=,readonly=on
    shares+=("$mode $tag ${4:-$path}")
    devices+=(-fsdev "local,id=$tag,path=${path//,/,,},security_model=none,multidevs=remap$readonly"
              -device "virtio-9p-pci,fsdev=$tag,mount_tag=$tag")
}

add_shares() {
    local directory
    add_share ro root /
    add_share ro checkout "$checkout"
    for directory in "${writable[@]}"; do
        add_share rw "writable${#shares[@]}" "$directory"
    done
    mkdir "$run/control"
    add_share rw control "$run/control" /run/rxe-guest
}

check_tools() {
    local pair
    for pair in qemu-system-x86_64:qemu-system-x86 busybox:busybox-static cpio:cpio modprobe:kmod \
        ip:iproute2 rdma:iproute2; do
        command -v "${pair%:*}" >/dev/null ||
            die "there is no ${pair%:*}: please install ${pair#*:} (./run test-kernel does)"
    done
}

# module_files NAME: its file as modprobe prints it, after those that it needs.
module_files() {
    local root=$cache/kernel
    modprobe -C /dev/null -d "$root" -S "$(basename "$root"/lib/modules/*)" --show-depends "$1"
}

all_module_files() {
    local name
    for name in "${modules_if_any[@]}"; do
        module_files "$name" 2>/dev/null || true
    done
    for name in "${modules[@]}"; do
        module_files "$name" || die "the kernel in $cache/kernel lacks the module $name"
    done
}

make_initrd() {
    local root=$run/initrd file
    mkdir -p "$root/bin" "$root/modules"
    cp "$(command -v busybox)" "$root/bin/busybox"
    ln -s busybox "$root/bin/sh"
    install -m 755 "$here/init.sh" "$root/init"
    printf '%s\n' "${shares[@]}" >"$root/shares"
    all_module_files >"$run/modules"
    sed -n 's/^insmod \(.*\.ko\).*/\1/p' "$run/modules" | awk '!seen[$0]++' >"$run/order"
    while read -r file; do
        cp "$file" "$root/modules/"
        printf '%s\n' "${file##*/}"
    done <"$run/order" >"$root/modules/order"
    (cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) >"$run/initrd.gz"
    rm -r "$root"
}

# What bash in the guest reads: the devices first, then the command in the folder of its caller.
make_command() {
    local name
    for name in "${!TAGWIRE_@}"; do
        printf 'export %s=%q\n' "$name" "${!name}"
    done
    printf 'export TAGWIRE_TEST_GUEST=1\n'
    printf 'ulimit -l unlimited\nulimit -c 0\n'
    printf 'cd %q 2>/dev/null || cd %q\n' "$PWD" "$checkout"
    printf '%q up || exit 99\n' "$here/wire.sh"
    printf 'exec'
    printf ' %q' "$@"
    printf '\n'
}

finish() {
    trap '' INT TERM HUP
    local process
    for process in $qemu $printer; do
        kill "$process" 2>/dev/null || true
    done
    wait
    rm -rf "$run"
}

while (($#)); do
    case $1 in
        --cache) cache=${2:?--cache needs a directory}; shift 2 ;;
        --limit) limit_s=${2:?--limit needs seconds}; shift 2 ;;
        --writable)
            [[ -d ${2:?--writable needs a directory} ]] || die "--writable: no directory $2"
            writable+=("$(realpath "$2")")
            shift 2 ;;
        --) shift; break ;;
        -*) die "unknown option $1" ;;
        *) break ;;
    esac
done
(($#)) || die "which command?"
[[ $limit_s =~ ^[1-9][0-9]*$ ]] || die "the limit is a number of seconds, not '$limit_s'"
check_tools
mkdir -p "$cache"
cache=$(realpath "$cache")
"$here/kernel.sh" "$cache/kernel"

trap finish EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
run=$(mktemp -d "$cache/run.XXXXXX")
add_shares
make_initrd
make_command "$@" >"$run/control/command"

mkfifo "$run/output"
cat "$run/output" &
printer=$!
timeout -k 5 "$limit_s" qemu-system-x86_64 -machine q35 -accel tcg,thread=multi -cpu max -smp 2 \
    -m 1024 -nodefaults -no-user-config -display none -monitor none -nic none -no-reboot \
    -serial "file:$run/console" -chardev "file,id=output,path=${run//,/,,}/output" \
    -device virtio-serial-pci -device virtserialport,chardev=output \
    -kernel "$cache/kernel/vmlinuz" -initrd "$run/initrd.gz" -append "console=ttyS0 quiet \
loglevel=3 panic=-1 mitigations=off nokaslr random.trust_cpu=on clocksource=hpet" \
    "${devices[@]}" </dev/null >"$run/messages" 2>&1 &
qemu=$!
qemu_status=0
wait "$qemu" || qemu_status=$?
qemu=''
wait "$printer"
printer=''

status=$(cat "$run/control/status" 2>/dev/null || true)
if [[ $status =~ ^[0-9]+$ ]]; then
    exit "$status"
fi
cat "$run/console" "$run/messages" >&2 2>/dev/null || true
if ((qemu_status == 124 || qemu_status == 137)); then
    say "the guest was stopped after $limit_s s, its limit"
    exit 124
fi
say "the guest died (status of QEMU: $qemu_status)"
exit 99

#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# kernel.sh DIR: fills DIR with the distribution's own kernel, DIR/vmlinuz, and with the modules
# that the guest loads, below DIR/lib/modules. The packages are downloaded and unpacked, never
# installed; of several hundred megabytes about fifteen stay. Does nothing when DIR exists.
set -euo pipefail

say() { printf 'kernel: %s\n' "$*" >&2; }
die() { say "$@"; exit 1; }

target=$1
[[ ! -e $target ]] || exit 0
mkdir -p "$(dirname "$target")"
work=$(mktemp -d "$target.XXXXXX")
trap 'rm -rf "$work"' EXIT

unpacked_patterns=('*boot/vmlinuz-*' '*lib/modules/*/modules.order'
                   '*lib/modules/*/modules.builtin*')
for module in 'drivers/virtio/*' 'drivers/char/virtio_console.ko*' 'net/9p/*' 'fs/9p/*' \
    'fs/netfs/*' 'fs/fscache/*' 'fs/configfs/*' 'drivers/infiniband/core/*' \
    'drivers/infiniband/sw/rxe/*' 'net/ipv4/udp_tunnel.ko*' 'net/ipv6/ip6_udp_tunnel.ko*' \
    'drivers/net/veth.ko*' 'drivers/net/dummy.ko*' 'net/sched/sch_netem.ko*' \
    'lib/libcrc32c.ko*' 'crypto/crc32*' 'arch/x86/crypto/crc32*'; do
    unpacked_patterns+=("*lib/modules/*/kernel/$module")
done

# What the distribution's "the newest kernel" package asks for: Debian's name, then Ubuntu's.
image_package() {
    local meta
    for meta in linux-image-amd64 linux-image-generic; do
        apt-cache depends "$meta" 2>/dev/null |
            awk '$1 == "Depends:" && $2 ~ /^linux-image-[0-9]/ && !seen++ {print $2}'
    done | sed -n 1p
}

# Debian has one package; Ubuntu keeps the modules, rdma_rxe among them, in two others.
kernel_packages() {
    local image=$1 release=${1#linux-image-} name
    printf '%s\n' "$image"
    for name in "linux-modules-$release" "linux-modules-extra-$release"; do
        apt-cache pkgnames "$name" 2>/dev/null | grep -Fx "$name" || true
    done
}

# In a subshell, because apt-get downloads into the current directory.
download() (
    cd "$work/packages"
    apt-get -qq -o APT::Sandbox::User=root download "$@" >&2
)

update_lists() {
    local as_root=()
    ((EUID == 0)) || as_root=(sudo)
    "${as_root[@]}" apt-get -qq update >&2
}

unpack() {
    local package
    mkdir "$work/files"
    for package in "$work"/packages/*.deb; do
        # A pattern that a package has nothing for is no error; what is missing is seen below.
        dpkg-deb --fsys-tarfile "$package" |
            tar -x -C "$work/files" --wildcards "${unpacked_patterns[@]}" 2>/dev/null || true
    done
    if [[ -d $work/files/usr/lib/modules ]]; then
        mkdir -p "$work/files/lib"
        cp -r "$work/files/usr/lib/modules" "$work/files/lib/"
        rm -r "$work/files/usr"
    fi
}

# The guest's insmod takes plain modules only.
decompress() {
    local suffix=$1 file
    shift
    while IFS= read -r file; do
        command -v "$1" >/dev/null || die "please install $1: ${file##*/} is compressed with it"
        "$@" "$file"
    done < <(find "$work/files/lib/modules" -name "*.ko.$suffix")
}

[[ $(uname -m) == x86_64 ]] || die "the guest runs programs of the host and is x86-64 only"
for tool in apt-cache apt-get dpkg-deb depmod; do
    command -v "$tool" >/dev/null || command -v "/sbin/$tool" >/dev/null ||
        die "there is no $tool; fill $target as docs/how-to/soft-roce.md describes"
done
image=$(image_package)
[[ -n $image ]] || { update_lists && image=$(image_package); }
[[ -n $image ]] || die "apt knows neither linux-image-amd64 nor linux-image-generic"
mapfile -t packages < <(kernel_packages "$image")
say "downloading ${packages[*]} (to be unpacked, not installed)"
mkdir "$work/packages"
download "${packages[@]}" || { update_lists && download "${packages[@]}"; } ||
    die "apt-get download ${packages[*]} failed"

unpack
shopt -s nullglob
images=("$work"/files/boot/vmlinuz-*) releases=("$work"/files/lib/modules/*)
((${#images[@]} == 1 && ${#releases[@]} == 1)) ||
    die "${packages[*]} have not one vmlinuz and one folder of modules"
decompress zst zstd -dq --rm
decompress xz xz -d
decompress gz gzip -d
PATH=$PATH:/usr/sbin:/sbin depmod -b "$work/files" "${releases[0]##*/}"
mv "${images[0]}" "$work/files/vmlinuz"
rm -r "$work/files/boot"
mv "$work/files" "$target"

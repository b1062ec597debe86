#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# aarch64_root.sh DIR: lays out in DIR the arm64 packages that a cross build needs, unpacked and
# not set up, so that no program of that architecture runs. A DIR that is complete stays as it is.
# Release, mirror, proxy and keys are those of this machine's apt; nothing of the machine changes.
# Needs mmdebstrap.
set -euo pipefail

packages=(libc6-dev libstdc++6 libfmt-dev libspdlog-dev libhwloc-dev libibverbs-dev libpmix-dev
          libcli11-dev nlohmann-json3-dev zlib1g-dev libgtest-dev libgmock-dev
          librapidcheck-dev)
root=${1:?aarch64_root.sh needs the folder to fill}
die() { printf 'aarch64_root: %s\n' "$*" >&2; exit 1; }

complete=$root/tagwire-packages
wanted="${packages[*]}"
[[ ! -f $complete || $(<"$complete") != "$wanted" ]] || exit 0
[[ ! -e $root || -f $complete ]] || die "$root exists and is not one of ours: please remove it"
command -v mmdebstrap >/dev/null || die "please install mmdebstrap"

release=$(. /etc/os-release && printf '%s' "${VERSION_CODENAME:?}")
mirror=$(apt-get indextargets --format '$(REPO_URI) $(CODENAME) $(COMPONENT)' \
             'Created-By: Packages' |
             awk -v name="$release" '$2 == name && $3 == "main" {print $1; exit}')
# Ubuntu serves its ports from elsewhere.
if grep -q '^ID=ubuntu' /etc/os-release; then
    mirror=${TAGWIRE_AARCH64_MIRROR:?name the mirror of the ubuntu-ports archive in it}
fi
[[ -n $mirror ]] || die "apt on this machine has no repository of $release"

rm -rf --one-file-system "$root"
work=$(mktemp -d "$root.XXXXXX")
trap 'rm -rf --one-file-system "$work"' EXIT
mode=unshare
((EUID != 0)) || mode=root
mmdebstrap --quiet --mode="$mode" --variant=extract --architectures=arm64 \
    --include="$(IFS=,; printf '%s' "${packages[*]}")" "$release" "$work/root" "$mirror"
printf '%s' "$wanted" >"$work/root/tagwire-packages"
mv -T "$work/root" "$root"

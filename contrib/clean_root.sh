#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# clean_root.sh [--suite NAME] [--mirror URL] [--dir DIR] [--with FILE]... [--keep] [COMMAND...]
# Proves that the README's commands work on a machine that has nothing: makes a minimal root with
# debootstrap, copies the tracked files of this checkout into it, and runs each COMMAND there (./run
# demo and ./run test when none is given). Each FILE is there, too, in /src/with. Mirror, proxy and
# keys are those of this machine's apt.
# Needs to be root. All mounts live in a mount name space of their own and end with it.
set -euo pipefail
self=$(realpath "${BASH_SOURCE[0]}")
source_dir=$(dirname "$(dirname "$self")")

suite=bookworm mirror='' dir='' keep=0 with=()
die() { printf 'clean_root: %s\n' "$*" >&2; exit 1; }
say() { printf '\n=== %s\n' "$*"; }

# The host's repositories, one `URI CODENAME COMPONENT` a line.
host_repositories() {
    apt-get indextargets --format '$(REPO_URI) $(CODENAME) $(COMPONENT)' 'Created-By: Packages' |
        sort -u
}

make_root() {
    local root=$1 repositories
    repositories=$(host_repositories | awk -v suite="$suite" '$2 ~ "^" suite "(-|$)"')
    if [[ -z $mirror ]]; then
        mirror=$(awk -v suite="$suite" '$2 == suite && $3 == "main" {print $1; exit}' \
            <<<"$repositories")
        [[ -n $mirror ]] || die "apt on this machine has no repository of $suite: name a --mirror"
    fi
    debootstrap --variant=minbase "$suite" "$root" "$mirror"

    local uri name component
    while read -r uri name component; do
        [[ -z $uri ]] || printf 'deb %s %s %s\n' "$uri" "$name" "$component"
    done <<<"$repositories" >"$root/etc/apt/sources.list.host"
    [[ -s $root/etc/apt/sources.list.host ]] ||
        printf 'deb %s %s main\n' "$mirror" "$suite" >"$root/etc/apt/sources.list.host"
    mv "$root/etc/apt/sources.list.host" "$root/etc/apt/sources.list"
    # Proxy, retries, certificates: how this machine reaches its mirror, and nothing else of apt.
    apt-config dump | grep '^Acquire::' | grep -v '^Acquire::IndexTargets' \
        >"$root/etc/apt/apt.conf.d/99host"
    cp -nr /etc/apt/trusted.gpg.d/. "$root/etc/apt/trusted.gpg.d/"
    cp -n /usr/share/keyrings/*.gpg "$root/usr/share/keyrings/" 2>/dev/null || true
    if [[ -f /etc/ssl/certs/ca-certificates.crt ]]; then
        install -D -m 644 /etc/ssl/certs/ca-certificates.crt \
            "$root/etc/ssl/certs/ca-certificates.crt"
    fi
    cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
}

copy_checkout() {
    local target=$1/src/tagwire
    mkdir -p "$target"
    if git -C "$source_dir" rev-parse --is-inside-work-tree >/dev/null 2>&1; then
        git -C "$source_dir" ls-files -z |
            tar -C "$source_dir" --null --ignore-failed-read -T - -cf - | tar -C "$target" -xf -
    else
        tar -C "$source_dir" --exclude=./build --exclude=./.git -cf - . | tar -C "$target" -xf -
    fi
}

# Runs in name spaces of its own, where it may mount what it likes.
inside() {
    local root=$1 command begin failed=0
    shift
    # Tests that mount things in a name space of their own need a root that is a mount.
    mount --bind "$root" "$root"
    mount -t proc proc "$root/proc"
    mount --rbind /sys "$root/sys"
    mount --rbind /dev "$root/dev"
    mount -t tmpfs tmpfs "$root/dev/shm"
    for command in "$@"; do
        say "$command"
        begin=$SECONDS
        if env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
            HOME=/tmp TERM="${TERM:-dumb}" ${http_proxy:+http_proxy="$http_proxy"} \
            ${https_proxy:+https_proxy="$https_proxy"} ${no_proxy:+no_proxy="$no_proxy"} \
            chroot "$root" sh -c "cd /src/tagwire && exec $command" </dev/null; then
            say "$command: ok after $((SECONDS - begin)) s"
        else
            say "$command: FAILED after $((SECONDS - begin)) s"
            failed=1
        fi
    done
    return "$failed"
}

if [[ ${1:-} == --inside ]]; then
    shift
    inside "$@"
    exit
fi

while (($#)); do
    case $1 in
        --suite) suite=${2:?--suite needs a name}; shift 2 ;;
        --mirror) mirror=${2:?--mirror needs an address}; shift 2 ;;
        --dir) dir=${2:?--dir needs a directory}; shift 2 ;;
        --with) with+=("${2:?--with needs a file}"); shift 2 ;;
        --keep) keep=1; shift ;;
        -*) die "unknown option $1" ;;
        *) break ;;
    esac
done
(($#)) || set -- './run demo' './run test'
((EUID == 0)) || die "only root can make a root directory for chroot"
command -v debootstrap >/dev/null || die "please install debootstrap"

root=$(mktemp -d "${dir:-${TMPDIR:-/tmp}}/tagwire-root.XXXXXX")
chmod 755 "$root"
trap '((keep)) && echo "the root stays in $root" || rm -rf --one-file-system "$root"' EXIT
say "a minimal $suite in $root"
make_root "$root"
copy_checkout "$root"
mkdir "$root/src/with"
((${#with[@]} == 0)) || cp -t "$root/src/with" -- "${with[@]}"
unshare --mount --propagation private --pid --fork --kill-child "$self" --inside "$root" "$@"

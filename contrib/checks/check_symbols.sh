#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# check_symbols.sh LIBDIR MAP: tagwire lives beside UCX in one process, so what its libraries show
# to the linker is checked on the files themselves. MAP lists what the shared one exports.
set -euo pipefail

libdir=$(realpath "$1")
map=$(realpath "$2")
shared=$libdir/libtagwire.so
static=$libdir/libtagwire.a
failures=0

# complain TEXT LIST: an empty list is what every check hopes for.
complain() {
    [[ -n $2 ]] || return 0
    printf 'FAILED: %s:\n%s\n' "$1" "$2"
    failures=$((failures + 1))
}

# The nodes of versions are absolute symbols.
versioned=$(nm -D --defined-only --with-symbol-versions "$shared" | awk '$2 != "A" {print $3}')
exported=$(sed 's/@.*//' <<<"$versioned")
[[ -n $exported ]] || { echo "FAILED: $shared exports nothing"; exit 1; }
complain "exported, but neither tagwire_ nor tw_" \
    "$(grep -Ev '^(tagwire|tw)_' <<<"$exported" || true)"
complain "exported without a version" \
    "$(grep -Ev '@@TAGWIRE_[0-9]+\.[0-9]+$' <<<"$versioned" || true)"
listed=$(sed 's|/\*.*\*/||' "$map" | grep -oE '\b(tagwire|tw)_[a-z0-9_]+' | sort)
complain "listed twice in ${map##*/}" "$(uniq -d <<<"$listed")"
complain "listed in ${map##*/}, but not exported" \
    "$(comm -23 <(sort -u <<<"$listed") <(sort -u <<<"$exported"))"
complain "in the archive, but not listed in ${map##*/}" \
    "$(nm --defined-only --extern-only "$static" 2>/dev/null |
        awk '$3 ~ /^(tagwire|tw)_/ {print $3}' | sort -u | comm -23 - <(sort -u <<<"$listed"))"
complain "left undefined, so UCX's would be called" \
    "$(nm -D --undefined-only "$shared" | grep -E ' (uct|ucs|ucp|ucm)_' || true)"
complain "loads UCX" \
    "$(readelf -d "$shared" | grep -E 'NEEDED.*lib(uct|ucs|ucp|ucm)\.' || true)"

# Variables of threads take of the static room, some 1600 bytes, that glibc keeps for all libraries
# that are loaded at run time.
thread_bytes=$(readelf -lW "$shared" | awk '$1 == "TLS" {print $6}')
complain "more than 64 bytes of thread-local variables" \
    "$( ((${thread_bytes:-0} <= 64)) || echo "$thread_bytes")"

# The verbs library is chosen when the program runs.
complain "loads a verbs library" \
    "$(readelf -d "$shared" | grep -E 'NEEDED.*lib(ibverbs|mlx5|rdmacm)\.' || true)"
complain "refers to a verbs library" \
    "$( (nm -D --undefined-only "$shared"; nm --undefined-only "$static" 2>/dev/null) |
        grep -E ' _?(ibv|mlx5dv|rdma|tagwire_vhca)_' || true)"

# In the archive nothing is hidden from the linker: C names carry our prefix, C++ names are ours or
# are weak copies of templates that every library may carry.
of='(guard variable|typeinfo( name)?|vtable) for'
complain "global in the archive, but not in our name space" \
    "$(nm --defined-only --extern-only -C "$static" 2>/dev/null |
        sed -nE 's/^[0-9a-f]+ [TBDRGS] //p' |
        grep -Ev "^(tagwire_|tw_|($of |non-virtual thunk to )?tagwire::)" ||
        true)"

# Start-up code may do what <iostream> forces on everybody, and nothing else: these are the names
# that its relocations mention.
forced='^(_ZNSt8ios_base4Init[CD]1Ev|__cxa_atexit|__dso_handle|\.bss|_ZStL8__ioinit)'
unpacked=$(mktemp -d)
trap 'rm -rf "$unpacked"' EXIT
(cd "$unpacked" && ar x "$static")
for object in "$unpacked"/*.o; do
    readelf -SW "$object" | grep -qE '\.(init_array|ctors)' || continue
    complain "constructor function in ${object##*/}" \
        "$(readelf -rW "$object" | awk '/^Relocation section/ {found = /init_array|ctors/}
               found && $3 ~ /^R_/ && $5 !~ /^\.text\.startup/ {print $5}' | c++filt)"
    complain "static constructor with effects in ${object##*/}" \
        "$(objdump -dr -j .text.startup "$object" 2>/dev/null | awk '$2 ~ /^R_/ {print $3}' |
            grep -Ev "$forced" | c++filt || true)"
done

printf '%d symbols exported, %d objects, %d failures\n' "$(wc -l <<<"$exported")" \
    "$(find "$unpacked" -name '*.o' | wc -l)" "$failures"
((failures == 0))

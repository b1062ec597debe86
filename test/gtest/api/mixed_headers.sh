#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# mixed_headers.sh SRC UCX_INCLUDE CC CXX: a translation unit that includes both UCX's
# <uct/api/uct.h> and ours does not compile, in either order, and each alone does. The bootstrap's
# headers stand beside UCX's.
set -euo pipefail

src=$1 ucx=$2 cc=$3 cxx=$4
failures=0

# compile COMPILER LANGUAGE FIRST [SECOND]: by absolute path; companions come from the first tree.
compile() {
    local compiler=$1 language=$2
    shift 2
    printf '#include "%s/uct/api/uct.h"\n' "$@" |
        "$compiler" -x "$language" -I"$1" -fsyntax-only - 2>/dev/null
}

expect() {
    local wanted=$1 what=$2
    shift 2
    local got=no
    ! compile "$@" || got=yes
    [[ $got == "$wanted" ]] || { printf 'FAILED: %s\n' "$what"; failures=$((failures + 1)); }
}

for pair in "$cc c" "$cxx c++"; do
    read -r compiler language <<<"$pair"
    expect yes "ours alone as $language" "$compiler" "$language" "$src"
    expect yes "UCX's alone as $language" "$compiler" "$language" "$ucx"
    expect no "ours, then UCX's as $language" "$compiler" "$language" "$src" "$ucx"
    expect no "UCX's, then ours as $language" "$compiler" "$language" "$ucx" "$src"
done

# beside_ucx COMPILER LANGUAGE STANDARD FIRST SECOND
beside_ucx() {
    local compiler=$1 language=$2 standard=$3
    shift 3
    printf '#include "%s"\n' "$@" |
        "$compiler" -x "$language" "-std=$standard" -I"$ucx" -fsyntax-only - ||
        { printf 'FAILED: %s as %s\n' "$*" "$language"; failures=$((failures + 1)); }
}

theirs=$ucx/uct/api/uct.h
beside_ucx "$cc" c gnu11 "$src/tagwire_bootstrap.h" "$theirs"
beside_ucx "$cc" c gnu11 "$theirs" "$src/tagwire_bootstrap.h"
beside_ucx "$cxx" c++ gnu++20 "$src/tagwire_bootstrap.hpp" "$theirs"
beside_ucx "$cxx" c++ gnu++20 "$theirs" "$src/tagwire_bootstrap.hpp"
printf '12 compilations, %d surprises\n' "$failures"
((failures == 0))

#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# check_headers.sh FOLDER CC CXX: every public header of src, or of an installed folder, compiles
# alone, and twice in a row, as C11 and as C++20, without a warning; the C++ wrappers as C++20.
set -euo pipefail

shopt -s nullglob
src=$1 cc=$2 cxx=$3
warnings=(-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror)
failures=0 checked=0

# alone LANGUAGE HEADER COMPILER...: a translation unit of nothing else (ISO C wants a declaration).
alone() {
    local language=$1 header=$2
    shift 2
    checked=$((checked + 1))
    printf '#include <%s>\n#include <%s>\ntypedef int alone;\n' "$header" "$header" |
        "$@" "${warnings[@]}" -I"$src" -fsyntax-only -x "$language" - && return 0
    printf 'FAILED: %s as %s\n' "$header" "$language"
    failures=$((failures + 1))
}

while read -r header; do
    alone c "$header" "$cc" -std=c11 -Wstrict-prototypes
    alone c++ "$header" "$cxx" -std=c++20
done < <(cd "$src" && find tagwire*.h tw_*.h ucs uct/api protocols/api -name '*.h' | sort)
while read -r header; do
    alone c++ "$header" "$cxx" -std=c++20
done < <(cd "$src" && find tagwire*.hpp cxx_*.hpp uct/api protocols/api -name '*.hpp' | sort)

printf '%d compilations, %d failures\n' "$checked" "$failures"
((checked > 0 && failures == 0))

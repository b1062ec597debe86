#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# lint.sh [--base REF | --all] [--max N]: formatting and house rules of the whole tree, workflows of
# .github, and clang-tidy on the code that changed since REF. Without a REF that is where this
# branch left origin/main, or else the last commit. lint.sh --only-tidy FILE: clang-tidy on a file
# alone, as build/lint is configured.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

format_version=14  # other versions of clang-format lay out some lines differently
base='' all=0 files_max=1000 failures=0
while (($#)); do
    case $1 in
        --base) base=${2:?--base needs a commit}; shift 2 ;;
        --max) files_max=${2:?--max needs a number}; shift 2 ;;
        --all) all=1; shift ;;
        --only-tidy) looked_at=${2:?--only-tidy needs a file}; shift 2 ;;
        *) echo "lint: unknown argument $1" >&2; exit 2 ;;
    esac
done

fail() { printf 'lint: %s FAILED\n' "$1"; failures=$((failures + 1)); }

check_format() {
    local tool=clang-format sources
    command -v "clang-format-$format_version" >/dev/null && tool=clang-format-$format_version
    "$tool" --version | grep -q "version $format_version\." ||
        echo "lint: formatting is defined by clang-format $format_version, this is another one"
    mapfile -t sources < <(git ls-files '*.h' '*.hpp' '*.c' '*.cc')
    "$tool" --dry-run -Werror "${sources[@]}" || fail "clang-format (-i FILE repairs)"
    printf 'lint: clang-format looked at %d files\n' "${#sources[@]}"
}

# Sources to analyse, those of the library and its programs first: the changed ones, and for a
# changed header one source that includes it.
changed_sources() {
    local file
    if ((all)); then
        git ls-files '*.cc' '*.c'
        return
    fi
    git diff --name-only --diff-filter=d "$base" -- '*.cc' '*.c' '*.hpp' | while read -r file; do
        case $file in
            *.hpp) git grep -lE "include \"(${file#*/}|$file)\"" -- '*.cc' | head -1 ;;
            *) echo "$file" ;;
        esac
    done | sort -u | awk '/^((vhca\/|tools\/)?test|bench)\// { last = last $0 "\n"; next } { print }
                          END { printf "%s", last }'
}

check_code() {
    local log=build/lint/configure.log sources
    if [[ -z $base ]]; then
        base=$(git merge-base HEAD origin/main 2>/dev/null || echo HEAD~1)
        [[ $(git rev-parse "$base") != "$(git rev-parse HEAD)" ]] || base=HEAD~1
        git rev-parse -q --verify "$base" >/dev/null || all=1
    fi
    mkdir -p build/lint
    # Each file is looked at by its own command, and must include what it needs.
    cmake --preset release -B build/lint -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON \
        -DTAGWIRE_UNITY=OFF >"$log" 2>&1 ||
        { cat "$log"; fail "configuration"; return; }
    mapfile -t sources < <(changed_sources)
    printf 'lint: clang-tidy on %d files' "${#sources[@]}"
    if ((${#sources[@]} > files_max)); then
        printf ', of which the first %d are looked at' "$files_max"
        sources=("${sources[@]:0:files_max}")
    fi
    echo
    ((${#sources[@]})) || return 0
    printf '%s\0' "${sources[@]}" |
        xargs -0 -n 1 -P "$(nproc)" contrib/checks/lint.sh --only-tidy || fail clang-tidy
}

# The analyser follows each path through GoogleTest's macros: minutes for a file of tests, whose
# faults the sanitizers see.
look_at() {
    local less=()
    [[ ! $1 =~ ^(test/gtest|vhca/test|tools/test)/ ]] || less=(--checks='-clang-analyzer-*')
    clang-tidy -p build/lint --quiet "${less[@]}" \
        --extra-arg=-Wno-unknown-warning-option "$1" 2> >(grep -v 'warnings generated' >&2)
}

# The names of sources that a unity build may join; any configured build says which.
check_unity() {
    local build
    for build in build/release/ build/*/; do
        if compgen -G "$build/src/CMakeFiles/*.dir/Unity" >/dev/null; then
            python3 contrib/checks/unity_names.py "$build" || fail unity_names.py
            return
        fi
    done
    echo 'lint: no build here joins sources: ctest -R unity_names checks their names'
}

# By the system's Python, whatever the path says: packages are installed for that one.
check_workflow() {
    local python=/usr/bin/python3
    [[ -x $python ]] || python=python3
    "$python" contrib/checks/check_workflow.py || fail check_workflow.py
}

if [[ ${looked_at:-} ]]; then
    look_at "$looked_at"
    exit
fi
check_format
python3 contrib/checks/tidy.py || fail tidy.py
check_workflow
check_unity
check_code
((failures == 0)) && echo "lint: PASS"
exit $((failures > 0))

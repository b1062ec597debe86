#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# check_install.sh BUILD SOURCE CC CXX: installs into a temporary prefix, moves that prefix, and
# builds and runs every example from there: by CMake's find_package, by pkg-config, and with the
# static library; and programs of projects that enable C alone, or state no standard of C++. An
# example run without arguments shows what it has to show and ends with status 0.
set -euo pipefail

build=$1 source=$2 cc=$3 cxx=$4
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
prefix=$root/moved
export CCACHE_DISABLE=1

say() { printf -- '-- %s\n' "$*"; }

run_example() {
    say "run $1"
    timeout 60 "$1"
}

shopt -s nullglob
examples=("$source"/examples/*.c "$source"/examples/*.cc)
((${#examples[@]})) || { echo "FAILED: there is no example to build"; exit 1; }

cmake --install "$build" --prefix "$root/prefix" >"$root/install.log" ||
    { cat "$root/install.log"; exit 1; }
mv "$root/prefix" "$prefix"
libdir=$(dirname "$(find "$prefix" -name libtagwire.so)")

# Headers of the messaging layer show no folder of the source tree, but for the paths that they had
# before: there a line leads to each of them.
say "headers"
include=$prefix/include/tagwire
"$source/contrib/checks/check_headers.sh" "$include" "$cc" "$cxx"
moved=("$source"/src/protocols/api/*)
for header in "${moved[@]##*/}"; do
    [[ -f $include/$header ]] || { echo "FAILED: $header is not installed"; exit 1; }
    [[ $(<"$include/protocols/api/$header") == "#include <$header>"* ]] ||
        { echo "FAILED: the old path of $header does not lead there"; exit 1; }
done
if grep -rn '^#include .protocols/' "$include"; then
    echo "FAILED: these headers name a folder of the source tree"
    exit 1
fi

# Who installs again gets no header with a new time, and an absolute folder is where it says.
say "headers again, into a folder of their own"
for _ in 1 2; do
    cmake -D CMAKE_INSTALL_PREFIX="$root/unused" -D source="$source/src" -D made="$root/made" \
        -D folder="$root/absolute" -P "$source/cmake/install_headers.cmake" >"$root/again.log" ||
        { cat "$root/again.log"; exit 1; }
    [[ ! -f $root/times ]] || (cd "$root/made" && stat -c '%n %y' -- *) | diff "$root/times" - ||
        { echo "FAILED: headers that did not change have new times"; exit 1; }
    (cd "$root/made" && stat -c '%n %y' -- *) >"$root/times"
done
[[ -f $root/absolute/tw_data.h && ! -e $root/unused ]] ||
    { echo "FAILED: an absolute folder of headers is not where it says"; exit 1; }

say "find_package"
cmake -G Ninja -S "$source/examples" -B "$root/cmake" -DCMAKE_PREFIX_PATH="$prefix" \
    -DCMAKE_C_COMPILER="$cc" -DCMAKE_CXX_COMPILER="$cxx" >"$root/cmake.log" ||
    { cat "$root/cmake.log"; exit 1; }
grep -q "^tagwire_DIR:PATH=$prefix/" "$root/cmake/CMakeCache.txt" ||
    { echo "FAILED: CMake found another tagwire"; exit 1; }
cmake --build "$root/cmake" >"$root/build.log" || { cat "$root/build.log"; exit 1; }
for example in "${examples[@]}"; do
    name=$(basename "${example%.*}")
    run_example "$root/cmake/$name"
done

# outside NAME LANGUAGE SOURCE: a project of this language alone, its program with either library.
outside() {
    local project=$root/$1
    say "find_package, $1"
    mkdir "$project"
    cat >"$project/CMakeLists.txt" <<EOF
cmake_minimum_required(VERSION 3.25)
project(outside LANGUAGES $2)
find_package(tagwire 0.1 REQUIRED)
foreach(library tagwire static)
    add_executable(with_\${library} $source/examples/$3)
    target_link_libraries(with_\${library} PRIVATE tagwire::\${library})
endforeach()
EOF
    { cmake -G Ninja -S "$project" -B "$project/out" -DCMAKE_PREFIX_PATH="$prefix" \
        -DCMAKE_C_COMPILER="$cc" -DCMAKE_CXX_COMPILER="$cxx" --no-warn-unused-cli &&
        cmake --build "$project/out"; } >"$project/log" 2>&1 || { cat "$project/log"; exit 1; }
    run_example "$project/out/with_tagwire"
    run_example "$project/out/with_static"
}
outside "C alone" C hello.c
outside "C++ of any standard" CXX hello_cpp.cc

export PKG_CONFIG_PATH=$libdir/pkgconfig
say "pkg-config: $(pkg-config --cflags --libs tagwire)"
for example in "${examples[@]}"; do
    compile=("$cc" -std=c11 -D_GNU_SOURCE)
    [[ $example == *.cc ]] && compile=("$cxx" -std=c++20)
    read -ra shared < <(pkg-config --cflags --libs tagwire)
    "${compile[@]}" -Wall -Wextra -Wpedantic -Werror -O2 "$example" -o "$root/example" \
        "${shared[@]}" -Wl,-rpath,"$libdir"
    run_example "$root/example"
done

say "static library"
mkdir "$root/static"
cp "$libdir"/libtagwire.a "$root/static"
read -ra static < <(pkg-config --static --libs-only-l tagwire)
read -ra cflags < <(pkg-config --cflags tagwire)
for example in "${examples[@]}"; do
    compile=("$cc" -std=c11 -D_GNU_SOURCE)
    [[ $example == *.cc ]] && compile=("$cxx" -std=c++20)
    "${compile[@]}" "${cflags[@]}" -O2 "$example" -o "$root/static/example" -L"$root/static" \
        "${static[@]}" -pthread
    run_example "$root/static/example"
done

if [[ -x $prefix/bin/tagwire ]]; then
    say "the installed command"
    "$prefix/bin/tagwire" info >/dev/null
    if command -v python3 >/dev/null && command -v gnuplot >/dev/null; then
        "$prefix/bin/tagwire" explain --plot "$root/explained.svg" >/dev/null
        grep -q '<svg' "$root/explained.svg" ||
            { echo "FAILED: the installed command draws no plot"; exit 1; }
    fi
fi
if [[ -x $prefix/bin/tagwire-vhca ]] && command -v ibv_devinfo >/dev/null; then
    say "the installed virtual HCA"
    "$prefix/bin/tagwire-vhca" run -- ibv_devinfo -d vhca0 >/dev/null
    "$prefix/bin/tagwire" vhca run -- ibv_devinfo -d vhca0 >/dev/null
fi
echo "${#examples[@]} examples built and run in three ways"

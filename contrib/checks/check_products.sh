#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# check_products.sh BUILD SOURCE OUT [PRODUCT...]: configures, builds and tests each product alone
# in a folder below OUT: the virtual HCA without any library, the command and the provider over the
# library of BUILD, which is installed into OUT. Compilers and flags are those of BUILD. A project
# may also take the library's folder and a product's into its own build.
set -euo pipefail

# Absolute, as CMake wants the prefix.
build=$(realpath "$1") source=$(realpath "$2") out=$(realpath -m "$3")
shift 3
products=("$@")
((${#products[@]})) || products=(vhca tools contrib/libfabric)
mkdir -p "$out"

# cached NAME: a value of the configuration of BUILD.
cached() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }

for component in runtime dev; do
    cmake --install "$build" --prefix "$out/prefix" --component "$component" >"$out/install.log" ||
        { cat "$out/install.log"; exit 1; }
done
type=$(cached CMAKE_BUILD_TYPE)
options=(-DCMAKE_BUILD_TYPE="$type" -DTAGWIRE_BUILD_TESTS=ON -DCMAKE_PREFIX_PATH="$out/prefix")
for name in CMAKE_C_COMPILER CMAKE_CXX_COMPILER CMAKE_C_FLAGS_${type^^} CMAKE_CXX_FLAGS_${type^^} \
    TAGWIRE_WERROR; do
    options+=("-D$name=$(cached "$name")")
done
for product in "${products[@]}"; do
    folder=$out/${product##*/}
    begin=$SECONDS
    cmake -G Ninja -S "$source/$product" -B "$folder" "${options[@]}" >"$folder.log" 2>&1 ||
        { cat "$folder.log"; echo "FAILED: $product does not configure alone"; exit 1; }
    configured=$SECONDS
    cmake --build "$folder" -j "$(nproc)" >"$folder.log" 2>&1 ||
        { tail -n 60 "$folder.log"; echo "FAILED: $product does not build alone"; exit 1; }
    built=$SECONDS
    ctest --test-dir "$folder" -L '^quick$' --no-tests=error -j 4 --output-on-failure \
        --no-label-summary --test-output-truncation head >"$folder.log" 2>&1 ||
        { tail -n 200 "$folder.log"; echo "FAILED: tests of $product alone"; exit 1; }
    printf '%s alone: configured in %d s, built in %d s, tested in %d s: %s\n' "$product" \
        $((configured - begin)) $((built - configured)) $((SECONDS - built)) \
        "$(grep 'tests passed' "$folder.log")"
done

mkdir -p "$out/outer"
cat >"$out/outer/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.25)
project(outer LANGUAGES C CXX)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(TAGWIRE_PRODUCTS library)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "\${CMAKE_BINARY_DIR}")
add_subdirectory("$(realpath "$source")" tagwire)
add_subdirectory("$(realpath "$source")/vhca" vhca)
add_subdirectory("$(realpath "$source")/tools" tools)
END
cmake -G Ninja -S "$out/outer" -B "$out/outer/build" "${options[@]:0:1}" >"$out/outer.log" 2>&1 ||
    { cat "$out/outer.log"; echo "FAILED: a project that takes both folders"; exit 1; }
compiled=$(grep '"command": .*vhca.*\.cc' "$out/outer/build/compile_commands.json")
if [[ -z $compiled ]] || grep -v -- -std=c++20 <<<"$compiled"; then
    echo "FAILED: a product in another project's build is compiled by another standard"
    exit 1
fi
echo "both folders in another project's build: the options of this tree"

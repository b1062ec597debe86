#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# ccache_launcher.sh SOURCE_DIR BUILD_DIR CCACHE COMPILER ARGS...: compiles through ccache, so that
# a clone at another path finds what was compiled before. Paths of the tree count from the build
# directory, where the compiler runs. ccache makes them relative where it knows the option; those of
# the build directory are made so here, as it does not know clang's of a precompiled header.
source_dir=$1 build_dir=$2 ccache=$3
shift 3
[[ -x $ccache ]] || exec "$@"  # it was removed since the build directory was configured
export CCACHE_BASEDIR=${CCACHE_BASEDIR:-$source_dir} CCACHE_NOHASHDIR=1
# The sloppiness is what ccache's manual asks for with precompiled headers, less what it says of
# times: without that, ccache keeps nothing of a file that was edited during its compilation.
export CCACHE_SLOPPINESS=${CCACHE_SLOPPINESS:+$CCACHE_SLOPPINESS,}pch_defines,time_macros
[[ $build_dir -ef . ]] || exec "$ccache" "$@"
words=()
for word in "$@"; do
    case $word in
        "$build_dir"/*) word=${word#"$build_dir"/} ;;
        -I"$build_dir"/*) word=-I${word#"-I$build_dir/"} ;;
    esac
    words+=("$word")
done
# clang writes where a precompiled header came from into it, made absolute: a name that is absolute
# and the same for every clone.
last=$((${#words[@]} - 1))
[[ ${words[last]} != *cmake_pch.hxx.cxx || ${words[last]} == /* ]] ||
    words[last]=/proc/self/cwd/${words[last]}
exec "$ccache" "${words[@]}"

#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# ccache_launcher.sh SOURCE_DIR COMPILER ARGS...: compiles through ccache, so that a clone at
# another path, and every build directory of the same name in it, finds what was compiled before.
# Paths count from the tree (CCACHE_BASEDIR), those of the build directory, where the compiler runs,
# from there: ccache leaves the ones that it does not know, such as clang's of a precompiled header.
export CCACHE_BASEDIR=$1 CCACHE_NOHASHDIR=1
# The sloppiness is what ccache's manual asks for with precompiled headers, less what it says of
# times: without that, ccache keeps nothing of a file that was edited during its compilation.
export CCACHE_SLOPPINESS=pch_defines,time_macros
shift
words=()
for word in "$@"; do
    [[ $word == -D* ]] || word=${word//"$PWD/"/}
    words+=("$word")
done
set -- "${words[@]}"
# clang writes where a precompiled header came from into it, made absolute: a name that is absolute
# and the same for every clone.
[[ ${!#} != *cmake_pch.hxx.cxx ]] || set -- "${@:1:$#-1}" "/proc/self/cwd/${!#}"
exec ccache "$@"

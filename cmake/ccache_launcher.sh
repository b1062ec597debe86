#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# ccache_launcher.sh SOURCE_DIR BUILD_DIR COMPILER_ID CCACHE COMPILER ARGS...: compiles through
# ccache, so that a clone at another path finds what was compiled before. COMPILER_ID is CMake's.
# Paths of the tree count from the build directory, where the compiler runs. ccache makes them
# relative where it knows the option; those of the build directory are made so here, as it does not
# know clang's of a precompiled header.
source_dir=$1 build_dir=$2 compiler_id=$3 ccache=$4
shift 4
[[ -x $ccache ]] || exec "$@"  # it was removed since the build directory was configured
export CCACHE_BASEDIR=${CCACHE_BASEDIR:-$source_dir} CCACHE_NOHASHDIR=1
# The sloppiness is what ccache's manual asks for with precompiled headers, less what it says of
# times: without that, ccache keeps nothing of a file that was edited during its compilation.
export CCACHE_SLOPPINESS=${CCACHE_SLOPPINESS:+$CCACHE_SLOPPINESS,}pch_defines,time_macros
# What another edition of this script has put there is not found.
export CCACHE_EXTRAFILES=${CCACHE_EXTRAFILES:+$CCACHE_EXTRAFILES:}$0
[[ $build_dir -ef . ]] || exec "$ccache" "$@"

# clang writes into a precompiled header where each header of it is, made absolute, and wants it
# there whenever the result is used: all names are absolute then, and the same for every clone.
here='' up=''
if [[ ${!#} == *cmake_pch.hxx.cxx && $compiler_id == *Clang* ]]; then
    here=/proc/self/cwd/
    up=$(realpath -m --relative-to="$build_dir" "$source_dir")
fi
words=()
for word in "$@"; do
    option=''
    [[ $word != -I/* ]] || option=-I word=${word#-I}
    case $word in
        "$build_dir"/*) word=$here${word#"$build_dir"/} ;;
        "$source_dir"/*) [[ -z $here ]] || word=$here$up/${word#"$source_dir"/} ;;
    esac
    words+=("$option$word")
done
exec "$ccache" "${words[@]}"

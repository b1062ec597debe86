# SPDX-License-Identifier: BSD-3-Clause
# What the whole tree and a product that is configured alone begin with: options, compilers' flags,
# functions, the version as a header. Sources of each product lie below ${tw_tree}.
cmake_path(GET CMAKE_CURRENT_LIST_DIR PARENT_PATH tw_tree)

option(TAGWIRE_BUILD_TESTS "Build the GoogleTest suites" ${PROJECT_IS_TOP_LEVEL})
option(TAGWIRE_BUILD_BENCH "Build the Google Benchmark binaries" OFF)
option(TAGWIRE_WERROR "Treat compiler warnings as errors" OFF)
option(TAGWIRE_DEBUG_CHECKS "Compile TW_ASSERT and memory poisoning in" OFF)
option(TAGWIRE_UNITY "Compile several sources of a target as one" ${PROJECT_IS_TOP_LEVEL})
option(TAGWIRE_FUZZ "Link libFuzzer into the fuzz targets (clang with AddressSanitizer)" OFF)
set(TAGWIRE_FUZZ_SECONDS 10 CACHE STRING "How long each fuzz test runs")
set(TAGWIRE_SANITIZE "" CACHE STRING "Sanitizers: empty, address,undefined or thread")
set(by_program OFF)  # on where starting a program takes longer than most cases
if(TAGWIRE_SANITIZE MATCHES address)
    set(by_program ON)
endif()
option(TAGWIRE_TESTS_BY_PROGRAM "Run all cases of a test program in one process" ${by_program})

list(APPEND CMAKE_MODULE_PATH ${tw_tree}/cmake)
include(TagwireOptions)
include(TagwireTargets)

find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
configure_file(${tw_tree}/src/tagwire_version.h.in
               ${PROJECT_BINARY_DIR}/generated/tagwire_version.h @ONLY)

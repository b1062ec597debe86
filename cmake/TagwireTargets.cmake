# SPDX-License-Identifier: BSD-3-Clause
# Functions by which the module directories declare their targets.
include_guard(GLOBAL)
include(GoogleTest)
include(TagwireParts)
find_program(TAGWIRE_ENV env REQUIRED)

# tw_precompile_std(<target> [REUSE_FROM <target>])
# Compiles the standard headers once for all sources of a target, or takes those of one with the
# same options: parsing them is most of what compiling one of our sources is. Only what nobody here
# changes, and each source still includes what it needs: `./run lint` compiles without.
function(tw_precompile_std target)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "REUSE_FROM" "")
    if(arg_REUSE_FROM)
        target_precompile_headers(${target} REUSE_FROM ${arg_REUSE_FROM})
        return()
    endif()
    target_precompile_headers(${target} PRIVATE
        <algorithm> <array> <atomic> <bit> <cstdint> <cstdio> <cstdlib> <cstring> <functional>
        <map> <memory> <mutex> <optional> <span> <string> <unordered_map> <utility> <vector>)
endfunction()

# The programs that the labels of ThreadSanitizer's tests name are all that its preset builds.
function(tw_note_thread_program target)
    foreach(label IN ITEMS tsan model threads)
        if(label IN_LIST ARGN)
            set_property(GLOBAL APPEND PROPERTY TAGWIRE_THREAD_PROGRAMS ${target})
        endif()
    endforeach()
endfunction()

# tw_suites_of(<variable> <sources>...)
# The filter that selects the cases of these sources, from the suites that they name. Whoever adds a
# suite configures anew: until then the test `cases` fails, because no test runs it.
function(tw_suites_of variable)
    set(filter)
    foreach(source IN LISTS ARGN)
        if(source MATCHES "^\\$<")
            continue()
        endif()
        cmake_path(ABSOLUTE_PATH source)
        file(STRINGS ${source} lines REGEX "^(TEST|TEST_F|TEST_P|TYPED_TEST|RC_GTEST_PROP)\\(")
        foreach(line IN LISTS lines)
            string(REGEX REPLACE "^[A-Z_]+\\(([A-Za-z0-9_]+).*" "\\1" suite "${line}")
            if(line MATCHES "^TEST_P")
                list(APPEND filter */${suite}.*)
            elseif(line MATCHES "^TYPED_TEST")
                list(APPEND filter ${suite}/*)
            else()
                list(APPEND filter ${suite}.*)
            endif()
        endforeach()
    endforeach()
    list(REMOVE_DUPLICATES filter)
    list(JOIN filter : filter)
    set(${variable} ${filter} PARENT_SCOPE)
endfunction()

# tw_resolve_cases(<name>)
# In the caller: which program runs the cases that arg_OF names, and arg_FILTER, which selects among
# all cases of that program. A filter that only excludes excludes from the cases of arg_OF.
macro(tw_resolve_cases name)
    get_property(group_program GLOBAL PROPERTY TAGWIRE_PROGRAM_OF_${arg_OF})
    if(group_program)
        get_property(group_filter GLOBAL PROPERTY TAGWIRE_FILTER_OF_${arg_OF})
        set(arg_OF ${group_program})
        if(NOT arg_FILTER)
            set(arg_FILTER ${group_filter})
        elseif(arg_FILTER MATCHES "^[*]?-")
            string(REGEX REPLACE "^[*]?-" "${group_filter}-" arg_FILTER "${arg_FILTER}")
        endif()
    endif()
    if(NOT TARGET "${arg_OF}")
        message(FATAL_ERROR "${name}: no program '${arg_OF}'")
    endif()
endmacro()

# Death of a peer is noticed in a second in tests, not in the 7.5 s of the defaults, which outlast
# the outages of networks. ENVIRONMENT of a test comes behind it, and wins.
set(tw_short_retries TAGWIRE_RC_TIMEOUT=134ms TAGWIRE_DC_TIMEOUT=134ms)

# tw_add_test_variant(<name> OF <target> [FILTER gtest-filter] [LABELS unit quick ...] [SERIAL]
#                     [WAITS] [APART] [TIMEOUT seconds] [ENVIRONMENT K=V ...])
# Runs the cases of a program of tw_add_test once more, called <name>.<case>: all of them, or those
# that FILTER selects. SERIAL: two busy processes or timing, so ctest runs nothing beside it.
# WAITS: it leaves the processor alone most of its time, so it takes one of ctest's places, where
# others take two.
# The cases are found when ctest runs, in the environment in which they run. With
# TAGWIRE_TESTS_BY_PROGRAM they are one test, called <name>, but with APART.
function(tw_add_test_variant name)
    cmake_parse_arguments(PARSE_ARGV 1 arg
        "SERIAL;WAITS;APART" "OF;FILTER;TIMEOUT" "LABELS;ENVIRONMENT")
    if(arg_UNPARSED_ARGUMENTS)
        message(FATAL_ERROR "tw_add_test_variant(${name}): unknown ${arg_UNPARSED_ARGUMENTS}")
    endif()
    tw_label_parts(parts OF ${arg_OF} FILTER ${arg_FILTER} ENVIRONMENT ${arg_ENVIRONMENT})
    tw_resolve_cases("tw_add_test_variant(${name})")
    if(NOT arg_TIMEOUT)
        set(arg_TIMEOUT 180)
    endif()
    if(TAGWIRE_SANITIZE)
        math(EXPR arg_TIMEOUT "4 * ${arg_TIMEOUT}")
    endif()
    if(NOT arg_LABELS)
        set(arg_LABELS unit quick)
    endif()
    list(PREPEND arg_ENVIRONMENT ${tw_short_retries})
    set(places 2)
    if(arg_WAITS)
        set(places 1)
    endif()
    tw_note_thread_program(${arg_OF} ${arg_LABELS})
    list(APPEND arg_LABELS ${parts})
    if(TAGWIRE_TESTS_BY_PROGRAM AND NOT arg_APART)
        set(filter ${arg_FILTER})
        list(TRANSFORM filter PREPEND --gtest_filter=)
        math(EXPR arg_TIMEOUT "2 * ${arg_TIMEOUT}")
        add_test(NAME ${name} COMMAND ${arg_OF} --gtest_brief=1 ${filter})
        set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT}
            RUN_SERIAL ${arg_SERIAL} PROCESSORS ${places} ENVIRONMENT "${arg_ENVIRONMENT}"
            FAIL_REGULAR_EXPRESSION "] 0 tests from")
        return()
    endif()

    # What gtest_discover_tests starts programs with, to list their cases and to run them, is the
    # emulator of a cross build. env becomes the program, so signals and time limits reach it.
    get_target_property(emulator ${arg_OF} CROSSCOMPILING_EMULATOR)
    set(launcher ${arg_ENVIRONMENT})
    if(launcher)
        list(PREPEND launcher ${TAGWIRE_ENV})
    endif()
    if(emulator)
        list(APPEND launcher ${emulator})
    endif()
    set_property(TARGET ${arg_OF} PROPERTY CROSSCOMPILING_EMULATOR ${launcher})
    gtest_discover_tests(${arg_OF} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60 NO_PRETTY_VALUES
                         TEST_PREFIX ${name}. TEST_LIST ${name}_cases TEST_FILTER "${arg_FILTER}")
    set_property(TARGET ${arg_OF} PROPERTY CROSSCOMPILING_EMULATOR)
    if(emulator)
        set_property(TARGET ${arg_OF} PROPERTY CROSSCOMPILING_EMULATOR ${emulator})
    endif()

    # It cannot pass a list as a property value, so the properties are set by a file of our own,
    # which ctest reads after the discovered list. Where that is empty, a test of the same labels
    # stands for it, so that it is seen to fail.
    set(file ${CMAKE_CURRENT_BINARY_DIR}/${name}_properties.cmake)
    file(GENERATE OUTPUT ${file} CONTENT
"if(NOT ${name}_cases)
    set(${name}_cases ${name}_IS_NOT_BUILT_OR_HAS_NO_CASES)
    add_test(\${${name}_cases} \${${name}_cases})
endif()
set_tests_properties(\${${name}_cases} PROPERTIES LABELS [==[${arg_LABELS}]==]
    TIMEOUT ${arg_TIMEOUT} RUN_SERIAL ${arg_SERIAL} PROCESSORS ${places})
")
    set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${file})
endfunction()

# tw_add_test_program(<target> [SOURCES a.cc ...] [LIBS ...] [INTERNAL | OBJECTS library | BARE])
# A GoogleTest program with the common main. INTERNAL links the library's object files, so that
# classes behind the exported API can be tested, OBJECTS those of another object library in their
# place, BARE nothing of the library; otherwise the program links libtagwire.so like any user. Most
# of compiling a small test is parsing, so one program serves a folder: tw_add_test(... IN <target>)
# adds sources and runs them.
function(tw_add_test_program target)
    file(APPEND ${PROJECT_BINARY_DIR}/test_programs.txt "${target}\n")
    cmake_parse_arguments(PARSE_ARGV 1 arg "INTERNAL;BARE" "OBJECTS" "SOURCES;LIBS")
    if(arg_UNPARSED_ARGUMENTS)
        message(FATAL_ERROR "tw_add_test_program(${target}): unknown ${arg_UNPARSED_ARGUMENTS}")
    endif()
    add_executable(${target} ${arg_SOURCES})
    if(arg_OBJECTS)
        target_link_libraries(${target} PRIVATE ${arg_OBJECTS})
        target_include_directories(${target} PRIVATE
            ${tw_tree}/src ${PROJECT_BINARY_DIR}/generated)
    elseif(arg_INTERNAL)
        target_link_libraries(${target} PRIVATE tagwire_objects)
    elseif(NOT arg_BARE)
        target_link_libraries(${target} PRIVATE tagwire::tagwire)
    endif()
    target_link_libraries(${target} PRIVATE ${arg_LIBS} tagwire_test_main tagwire_options)
    target_include_directories(${target} PRIVATE ${tw_tree}/test/gtest)
    # A precompiled header serves only those who were compiled with the same position independence.
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${target} PRIVATE -fPIC)
    target_precompile_headers(${target} REUSE_FROM tagwire_test_main)
endfunction()

# tw_add_test(<name> SOURCES a.cc ... [IN program | LIBS ... INTERNAL | OBJECTS library | BARE]
#             [NO_RUN], and what tw_add_test_variant takes)
# Sources with test cases and their first run (with NO_RUN none): in a program that
# tw_add_test_program has declared, or in one of their own, which is called <name>.
function(tw_add_test name)
    cmake_parse_arguments(PARSE_ARGV 1 arg
        "INTERNAL;BARE;NO_RUN;SERIAL;WAITS;APART" "FILTER;OBJECTS;TIMEOUT;IN"
        "SOURCES;LIBS;LABELS;ENVIRONMENT")
    if(arg_UNPARSED_ARGUMENTS OR
       (arg_IN AND (arg_INTERNAL OR arg_BARE OR arg_LIBS OR arg_OBJECTS)))
        message(FATAL_ERROR "tw_add_test(${name}): unknown arguments '${arg_UNPARSED_ARGUMENTS}', "
                            "or what the program of IN is made of")
    endif()
    set(how)
    if(arg_IN)
        target_sources(${arg_IN} PRIVATE ${arg_SOURCES})
        tw_suites_of(filter ${arg_SOURCES})
        if(NOT filter)
            message(FATAL_ERROR "tw_add_test(${name}): no suite is found in ${arg_SOURCES}")
        endif()
        set_property(GLOBAL PROPERTY TAGWIRE_PROGRAM_OF_${name} ${arg_IN})
        set_property(GLOBAL PROPERTY TAGWIRE_FILTER_OF_${name} ${filter})
    else()
        if(arg_INTERNAL)
            set(how INTERNAL)
        elseif(arg_BARE)
            set(how BARE)
        elseif(arg_OBJECTS)
            set(how OBJECTS ${arg_OBJECTS})
        endif()
        tw_add_test_program(${name} ${how} SOURCES ${arg_SOURCES} LIBS ${arg_LIBS})
    endif()
    if(arg_NO_RUN)
        return()
    endif()
    set(how)
    foreach(word IN ITEMS SERIAL WAITS APART)
        if(arg_${word})
            list(APPEND how ${word})
        endif()
    endforeach()
    tw_add_test_variant(${name} OF ${name} ${how} FILTER ${arg_FILTER}
        TIMEOUT ${arg_TIMEOUT} LABELS ${arg_LABELS} ENVIRONMENT ${arg_ENVIRONMENT})
endfunction()

# tw_add_suite_variant(<name> <tier> OF <target> KIND <label>... [FILTER gtest-filter]
#                      [TIMEOUT seconds] [SERIAL] [WAITS] [ENVIRONMENT K=V ...])
# Runs the cases of a program of tw_add_test as one test, because a case takes less than the start
# of a process. Those that need what the transport does not offer are skipped within; a filter that
# finds none at all fails, because it has lost its transport. A tier is a label of CONTRIBUTING.md,
# or `unsanitized`: quick, and nightly under a sanitizer, for what takes the code of other variants
# through another setting.
function(tw_add_suite_variant name tier)
    cmake_parse_arguments(PARSE_ARGV 2 arg
        "SERIAL;WAITS" "OF;FILTER;TIMEOUT" "KIND;ENVIRONMENT")
    if(arg_UNPARSED_ARGUMENTS OR NOT arg_KIND)
        message(FATAL_ERROR "tw_add_suite_variant(${name}): no KIND, or unknown arguments "
                            "'${arg_UNPARSED_ARGUMENTS}'")
    endif()
    tw_label_parts(parts OF ${arg_OF} FILTER ${arg_FILTER} ENVIRONMENT ${arg_ENVIRONMENT})
    tw_resolve_cases("tw_add_suite_variant(${name})")
    if(NOT arg_TIMEOUT)
        set(arg_TIMEOUT 240)
    endif()
    if(TAGWIRE_SANITIZE)
        math(EXPR arg_TIMEOUT "4 * ${arg_TIMEOUT}")
    endif()
    if(tier STREQUAL unsanitized)
        set(tier quick)
        if(TAGWIRE_SANITIZE)
            set(tier nightly)
        endif()
    endif()
    list(PREPEND arg_ENVIRONMENT ${tw_short_retries})
    if(arg_FILTER)
        set(arg_FILTER --gtest_filter=${arg_FILTER})
    endif()
    tw_note_thread_program(${arg_OF} ${arg_KIND} ${tier})
    set(places 2)
    if(arg_WAITS)
        set(places 1)
    endif()
    add_test(NAME ${name} COMMAND ${arg_OF} --gtest_brief=1 ${arg_FILTER})
    set_tests_properties(${name} PROPERTIES
        LABELS "${arg_KIND};${tier};${parts}" TIMEOUT ${arg_TIMEOUT} RUN_SERIAL ${arg_SERIAL}
        PROCESSORS ${places} ENVIRONMENT "${arg_ENVIRONMENT}"
        FAIL_REGULAR_EXPRESSION "] 0 tests from")
endfunction()

# tw_add_kernel_test(<name> COMMAND target-or-program args... [WIRE] [LOSS percent]
#                    [TIMEOUT seconds] [ENVIRONMENT K=V ...])
# A test `kernel.<name>` on the kernel's soft-RoCE devices. Only ctest in the guest of
# `./run test-kernel` sees it: elsewhere there is no such device, so there it is neither run nor
# skipped. TAGWIRE_IB_DEVICES names the test's devices: rxed, or with WIRE rxe0,rxe1, whose packets
# get lost at the given rate. The guest emulates its processor, so everything takes 10 to 30 times
# as long.
function(tw_add_kernel_test name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "WIRE" "LOSS;TIMEOUT" "COMMAND;ENVIRONMENT")
    if(arg_UNPARSED_ARGUMENTS OR NOT DEFINED arg_COMMAND)
        message(FATAL_ERROR "tw_add_kernel_test(${name}): no COMMAND, or unknown arguments "
                            "'${arg_UNPARSED_ARGUMENTS}'")
    endif()
    if(DEFINED arg_LOSS AND NOT arg_WIRE)
        message(FATAL_ERROR "tw_add_kernel_test(${name}): LOSS needs WIRE, rxed has no wire")
    endif()
    if(NOT arg_TIMEOUT)
        set(arg_TIMEOUT 600)
    endif()
    list(POP_FRONT arg_COMMAND program)
    if(TARGET ${program})
        set(program $<TARGET_FILE:${program}>)
    endif()
    list(PREPEND arg_COMMAND ${program})
    set(devices rxed)
    if(arg_WIRE)
        if(NOT DEFINED arg_LOSS)
            set(arg_LOSS 0)
        endif()
        list(PREPEND arg_COMMAND
             ${tw_tree}/contrib/rxe_guest/wire.sh run --loss ${arg_LOSS})
        set(devices rxe0,rxe1)
    endif()
    list(PREPEND arg_ENVIRONMENT TAGWIRE_IB_DEVICES=${devices})
    list(JOIN arg_COMMAND "]==] [==[" words)
    set(file ${CMAKE_CURRENT_BINARY_DIR}/${name}_kernel_test.cmake)
    file(GENERATE OUTPUT ${file} CONTENT
"if(DEFINED ENV{TAGWIRE_TEST_GUEST})
    add_test([==[kernel.${name}]==] [==[${words}]==])
    set_tests_properties([==[kernel.${name}]==] PROPERTIES LABELS kernel RUN_SERIAL TRUE
        TIMEOUT ${arg_TIMEOUT} ENVIRONMENT [==[${arg_ENVIRONMENT}]==])
endif()
")
    set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${file})
endfunction()

# tw_add_bench(<target> SOURCES a.cc ... [LIBS ...])
# A Google Benchmark program over the library's object files.
function(tw_add_bench target)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBS")
    add_executable(${target} ${arg_SOURCES})
    target_link_libraries(${target} PRIVATE
        tagwire_objects benchmark::benchmark_main ${arg_LIBS} tagwire_options)
endfunction()

# tw_add_measure(<target> SOURCES a.cc ... [LIBS ...])
# A program that prints figures and is no Google Benchmark. It is built by its name, and with the
# benchmarks.
function(tw_add_measure target)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBS")
    add_executable(${target} ${arg_SOURCES})
    target_include_directories(${target} PRIVATE ${tw_tree}/test/gtest)
    target_link_libraries(${target} PRIVATE ${arg_LIBS} tagwire_options)
    if(NOT TAGWIRE_BUILD_BENCH)
        set_target_properties(${target} PROPERTIES EXCLUDE_FROM_ALL ON)
    endif()
endfunction()

# tw_add_fuzz_program(<program> <sources>...)
# A program of fuzz targets (test/fuzz/target.hpp), over libFuzzer or the files of a corpus. Its
# sources define all_targets().
function(tw_add_fuzz_program program)
    add_executable(${program} ${tw_tree}/test/fuzz/targets.cc ${ARGN})
    target_include_directories(${program} PRIVATE ${tw_tree}/test/fuzz)
    target_link_libraries(${program} PRIVATE tagwire_options)
    if(NOT TAGWIRE_FUZZ)
        target_sources(${program} PRIVATE ${tw_tree}/test/fuzz/replay_main.cc)
        return()
    endif()
    target_compile_options(${program} PRIVATE -fsanitize=fuzzer-no-link)
    # By its file: -fsanitize=fuzzer puts the C++ library before AddressSanitizer's.
    set(libfuzzer libclang_rt.fuzzer-${CMAKE_SYSTEM_PROCESSOR}.a)
    execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=${libfuzzer}
                    OUTPUT_VARIABLE libfuzzer OUTPUT_STRIP_TRAILING_WHITESPACE)
    target_link_libraries(${program} PRIVATE ${libfuzzer} Threads::Threads)
endfunction()

# tw_add_fuzz(<name> IN <program>)
# A target of the program: its source has that name, and so has the folder of its corpus.
# Where libFuzzer is linked (TAGWIRE_FUZZ) it is a test labelled `fuzz` that fuzzes for
# TAGWIRE_FUZZ_SECONDS. Everywhere it is a quick test that replays the corpus, so that each input
# that was found stays a regression test in all presets.
function(tw_add_fuzz name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "IN" "")
    target_sources(${arg_IN} PRIVATE ${name}.cc)
    set(corpus ${CMAKE_CURRENT_SOURCE_DIR}/corpus/${name})
    if(TAGWIRE_FUZZ)
        set(found ${PROJECT_BINARY_DIR}/fuzz/${name})
        file(MAKE_DIRECTORY ${found})
        add_test(NAME fuzz.fuzz_${name}
                 COMMAND ${arg_IN} --target=${name} -max_total_time=${TAGWIRE_FUZZ_SECONDS}
                         -timeout=10 -rss_limit_mb=2048 -print_final_stats=1
                         -artifact_prefix=${found}/ ${found} ${corpus})
        math(EXPR limit "${TAGWIRE_FUZZ_SECONDS} + 120")
        set_tests_properties(fuzz.fuzz_${name} PROPERTIES LABELS fuzz TIMEOUT ${limit})
        set(replay -runs=0)
    endif()
    add_test(NAME fuzz_corpus.fuzz_${name}
             COMMAND ${arg_IN} --target=${name} ${replay} ${corpus})
    set_tests_properties(fuzz_corpus.fuzz_${name} PROPERTIES
        LABELS "fuzz_corpus;quick" TIMEOUT 180)
    set_property(GLOBAL PROPERTY TAGWIRE_PROGRAM_OF_FUZZ_${name} ${arg_IN})
endfunction()

# tw_add_thread_tests()
# The target of all that the tests for ThreadSanitizer need (labels tsan, model and threads), once
# every test is declared.
function(tw_add_thread_tests)
    get_property(programs GLOBAL PROPERTY TAGWIRE_THREAD_PROGRAMS)
    add_custom_target(thread_tests)
    foreach(target IN LISTS programs ITEMS torture tagwire_vhca)
        if(TARGET ${target})
            add_dependencies(thread_tests ${target})
        endif()
    endforeach()
endfunction()

# tw_need_cli(): what the commands of two products share.
function(tw_need_cli)
    if(NOT TARGET tagwire_cli)
        add_subdirectory(${tw_tree}/cli ${PROJECT_BINARY_DIR}/cli)
    endif()
endfunction()

# tw_need_helper(<name>): the library to preload of that folder of test/.
function(tw_need_helper name)
    if(NOT TARGET ${name})
        add_subdirectory(${tw_tree}/test/${name} ${PROJECT_BINARY_DIR}/test/${name})
    endif()
endfunction()

# tw_add_tests_alone(<folder>...)
# At the end of a product's CMakeLists.txt: its tests, where it is configured alone. In the whole
# tree they come behind the targets of all products.
macro(tw_add_tests_alone)
    if(PROJECT_IS_TOP_LEVEL AND PROJECT_SOURCE_DIR STREQUAL CMAKE_CURRENT_SOURCE_DIR AND
       TAGWIRE_BUILD_TESTS)
        enable_testing()
        add_subdirectory(${tw_tree}/test/gtest ${PROJECT_BINARY_DIR}/test/gtest)
        foreach(folder ${ARGN})
            add_subdirectory(${folder})
        endforeach()
        tw_check_labels(${CMAKE_CURRENT_SOURCE_DIR})
    endif()
endmacro()

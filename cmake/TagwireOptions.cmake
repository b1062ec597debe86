# SPDX-License-Identifier: BSD-3-Clause
# Language level, warnings, sanitizers and output directories: what every target of this tree
# shares. Most of it holds for one folder and those below it, so each product that is configured
# alone includes it, whether or not another one has.
include(CheckLinkerFlag)

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_LINK_DEPENDS_NO_SHARED ON)

if(PROJECT_IS_TOP_LEVEL)
    include(GNUInstallDirs)
    set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
    set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
    set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
    # An installed program finds the library beside itself, wherever the prefix was moved to.
    file(RELATIVE_PATH tw_bin_to_lib /${CMAKE_INSTALL_BINDIR} /${CMAKE_INSTALL_LIBDIR})
    set(CMAKE_INSTALL_RPATH "$ORIGIN/${tw_bin_to_lib}")
    if(NOT CMAKE_BUILD_TYPE)
        set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
    endif()
    # TAGWIRE_CCACHE=OFF builds without, and so does who names a launcher.
    find_program(TAGWIRE_CCACHE ccache)
    if(TAGWIRE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
        foreach(lang C CXX)
            set(CMAKE_${lang}_COMPILER_LAUNCHER ${tw_tree}/cmake/ccache_launcher.sh
                ${tw_tree} ${PROJECT_BINARY_DIR} ${CMAKE_${lang}_COMPILER_ID}
                ${TAGWIRE_CCACHE})
        endforeach()
        if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
            # The times of headers differ between clones.
            add_compile_options("SHELL:-Xclang -fno-pch-timestamp")
        endif()
    endif()
    # For programs; libraries are linked by the system's own linker, as those of the packages are.
    # TAGWIRE_MOLD=OFF builds without.
    find_program(TAGWIRE_MOLD mold)
    if(TAGWIRE_MOLD AND NOT CMAKE_CROSSCOMPILING)
        check_linker_flag(CXX -fuse-ld=mold TAGWIRE_LINKS_BY_MOLD)
    endif()
    if(TAGWIRE_LINKS_BY_MOLD AND TAGWIRE_MOLD)
        add_link_options($<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-fuse-ld=mold>)
    endif()
    # Objects, and what is said of a place in a source, do not depend on where the tree is, nor on
    # whether ccache has made a path relative.
    file(RELATIVE_PATH tw_build_to_source ${PROJECT_BINARY_DIR} ${tw_tree})
    string(REGEX REPLACE "/$" "" tw_build_to_source ${tw_build_to_source})
    add_compile_options(-ffile-prefix-map=${tw_tree}/=
                        -ffile-prefix-map=${tw_build_to_source}/=
                        -ffile-prefix-map=/proc/self/cwd/${tw_build_to_source}/=)
endif()

# Reading the same headers for each source is much of what compiling them costs, so sixteen sources
# share it. Names in the anonymous namespaces of one target must differ then.
set(CMAKE_UNITY_BUILD ${TAGWIRE_UNITY})
set(CMAKE_UNITY_BUILD_BATCH_SIZE 16)

if(NOT TARGET tagwire_options)
    add_library(tagwire_options INTERFACE)
    target_compile_options(tagwire_options INTERFACE
        -Wall -Wextra -Wpedantic -Wconversion -Wshadow
        $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor>
        # gcc 12 reports false overflows inside libstdc++ and fmt once it has inlined them.
        $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-stringop-overflow -Wno-restrict>
        $<$<BOOL:${TAGWIRE_WERROR}>:-Werror>)
    target_compile_definitions(tagwire_options INTERFACE
        _GNU_SOURCE $<$<BOOL:${TAGWIRE_DEBUG_CHECKS}>:TAGWIRE_DEBUG_CHECKS=1>)
endif()

if(TAGWIRE_SANITIZE)
    add_compile_options(-fsanitize=${TAGWIRE_SANITIZE} -fno-omit-frame-pointer)
    add_link_options(-fsanitize=${TAGWIRE_SANITIZE})
    if(TAGWIRE_SANITIZE MATCHES undefined)
        # Enumerations of interfaces for C may come with any value, and are checked for theirs.
        add_compile_options(-fno-sanitize-recover=undefined -fno-sanitize=enum)
    endif()
    # What gcc says of itself, by which sources know.
    if(TAGWIRE_SANITIZE MATCHES address AND CMAKE_CXX_COMPILER_ID MATCHES Clang)
        add_compile_definitions(__SANITIZE_ADDRESS__=1)
    endif()
    # A runtime of its own, as gcc's is: a library that is preloaded can then come before it.
    if(TAGWIRE_SANITIZE MATCHES address AND CMAKE_CXX_COMPILER_ID MATCHES Clang)
        execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-resource-dir
                        OUTPUT_VARIABLE resources OUTPUT_STRIP_TRAILING_WHITESPACE)
        add_link_options(-shared-libasan -Wl,-rpath,${resources}/lib/linux)
    endif()
endif()
if(TAGWIRE_FUZZ AND NOT (CMAKE_CXX_COMPILER_ID MATCHES Clang AND TAGWIRE_SANITIZE MATCHES address))
    message(FATAL_ERROR "TAGWIRE_FUZZ needs clang and its AddressSanitizer (preset asan)")
endif()

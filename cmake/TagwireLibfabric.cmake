# SPDX-License-Identifier: BSD-3-Clause
# libfabric for its provider: which versions serve, and compiling with the headers of another one.
include_guard(GLOBAL)

if(NOT TAGWIRE_LIBFABRIC_INCLUDE)
    set(TAGWIRE_LIBFABRIC_INCLUDE "$ENV{TAGWIRE_LIBFABRIC_INCLUDE}" CACHE PATH
        "Headers of another libfabric, which the target libfabric_headers compiles with" FORCE)
endif()

# Headers from the first to the second version are known to fit.
set(tw_libfabric_min 1.17)
set(tw_libfabric_known 2.7)

# tw_find_libfabric(<variable>)
# PkgConfig::libfabric and libfabric_VERSION; <variable> is whether the provider can be built. Why
# not is said here, so that a version that does not serve cannot break the build of everything else.
function(tw_find_libfabric result)
    set(${result} FALSE PARENT_SCOPE)
    pkg_check_modules(libfabric QUIET IMPORTED_TARGET GLOBAL libfabric)
    if(NOT libfabric_FOUND)
        message(STATUS "The provider for libfabric is left out: no headers of libfabric")
        return()
    endif()
    set(libfabric_VERSION ${libfabric_VERSION} PARENT_SCOPE)
    if(libfabric_VERSION VERSION_LESS tw_libfabric_min)
        message(STATUS "The provider for libfabric is left out: libfabric ${libfabric_VERSION} is "
                       "older than ${tw_libfabric_min}")
        return()
    endif()
    # The known version has patch levels.
    string(REGEX MATCH "^[0-9]+\\.[0-9]+" minor ${libfabric_VERSION})
    set(fits TRUE)
    if(minor VERSION_GREATER tw_libfabric_known)
        tw_try_libfabric(fits)
    endif()
    set(${result} ${fits} PARENT_SCOPE)
endfunction()

# tw_try_libfabric(<variable>): whether the provider compiles with the headers of libfabric that
# were found. Tried are the sources that fill libfabric's tables and structures.
function(tw_try_libfabric result)
    set(source ${tw_tree}/contrib/libfabric)
    set(headers ${tw_tree}/src)
    if(NOT TARGET tagwire)
        get_target_property(headers tagwire::tagwire INTERFACE_INCLUDE_DIRECTORIES)
    endif()
    set(folders ${headers} ${source} ${libfabric_INCLUDE_DIRS})
    set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
    try_compile(TAGWIRE_LIBFABRIC_FITS ${PROJECT_BINARY_DIR}/try_libfabric
        SOURCES ${source}/av.cc ${source}/cntr.cc ${source}/cq.cc ${source}/domain.cc
                ${source}/ep.cc ${source}/ep_tables.cc ${source}/eq.cc ${source}/fabric.cc
                ${source}/info.cc ${source}/info_check.cc ${source}/mr.cc ${source}/tagged.cc
        CMAKE_FLAGS "-DINCLUDE_DIRECTORIES=${folders}"
        CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON
        OUTPUT_VARIABLE output)
    if(NOT TAGWIRE_LIBFABRIC_FITS)
        file(WRITE ${PROJECT_BINARY_DIR}/try_libfabric.log "${output}")
        message(STATUS "The provider for libfabric is left out: it does not compile with the "
                       "headers of libfabric ${libfabric_VERSION} "
                       "(${PROJECT_BINARY_DIR}/try_libfabric.log)")
    endif()
    set(${result} ${TAGWIRE_LIBFABRIC_FITS} PARENT_SCOPE)
endfunction()

# tw_check_libfabric_headers(): where TAGWIRE_LIBFABRIC_INCLUDE is set, whether it has headers that
# can serve. Makes the target libfabric_headers then, which is not part of `all`.
function(tw_check_libfabric_headers)
    if(NOT TAGWIRE_LIBFABRIC_INCLUDE)
        return()
    endif()
    set(header ${TAGWIRE_LIBFABRIC_INCLUDE}/rdma/fabric.h)
    if(NOT EXISTS ${header})
        message(FATAL_ERROR "TAGWIRE_LIBFABRIC_INCLUDE is ${TAGWIRE_LIBFABRIC_INCLUDE}, which has "
                            "no rdma/fabric.h")
    endif()
    file(STRINGS ${header} lines REGEX "^#define FI_(MAJOR|MINOR)_VERSION")
    string(REGEX MATCHALL "[0-9]+" numbers "${lines}")
    list(JOIN numbers . version)
    if(version VERSION_LESS tw_libfabric_min)
        message(FATAL_ERROR "TAGWIRE_LIBFABRIC_INCLUDE has the headers of libfabric ${version}: "
                            "the provider needs ${tw_libfabric_min} or later")
    endif()
    message(STATUS "The target libfabric_headers compiles with the headers of libfabric ${version}")
    add_custom_target(libfabric_headers)
endfunction()

# tw_compile_with_headers(<target>)
# The target libfabric_headers, where there is one, compiles the sources of this one with those
# headers. Nothing is linked.
function(tw_compile_with_headers target)
    if(NOT TARGET libfabric_headers)
        return()
    endif()
    get_target_property(sources ${target} SOURCES)
    get_target_property(includes ${target} INCLUDE_DIRECTORIES)
    get_target_property(libraries ${target} LINK_LIBRARIES)
    list(REMOVE_ITEM libraries PkgConfig::libfabric)
    set(object ${target}_with_headers)
    add_library(${object} OBJECT EXCLUDE_FROM_ALL ${sources})
    target_include_directories(${object} SYSTEM BEFORE PRIVATE ${TAGWIRE_LIBFABRIC_INCLUDE})
    target_include_directories(${object} PRIVATE ${includes})
    target_link_libraries(${object} PRIVATE ${libraries})
    target_compile_options(${object} PRIVATE -Wno-missing-field-initializers)
    add_dependencies(libfabric_headers ${object})
endfunction()

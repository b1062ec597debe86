# SPDX-License-Identifier: BSD-3-Clause
# tw_try_libfabric(<variable>): whether the provider compiles with the headers of libfabric that
# were found. Tried are the sources that fill libfabric's tables and structures.
function(tw_try_libfabric result)
    set(source ${PROJECT_SOURCE_DIR}/contrib/libfabric)
    set(folders ${PROJECT_SOURCE_DIR}/src ${source} ${libfabric_INCLUDE_DIRS})
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

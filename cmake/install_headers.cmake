# SPDX-License-Identifier: BSD-3-Clause
# At installation, with the variables that TagwireInstall.cmake sets: the headers of the messaging
# layer go right into the folder of headers, whatever their folder in this tree. A header of one
# line stays at each path that they had before, until 1.0.
file(GLOB parts ${source}/protocols/api/*.h ${source}/protocols/api/cxx_*.hpp)

# made_header PATH TEXT: what has not changed keeps its time, so that nobody compiles it anew.
set(names "")
function(made_header path text)
    set(before "")
    if(EXISTS ${made}/${path})
        file(READ ${made}/${path} before)
    endif()
    if(NOT text STREQUAL before)
        file(WRITE ${made}/${path} "${text}")
    endif()
    list(APPEND names ${path})
    set(names ${names} PARENT_SCOPE)
endfunction()

foreach(header IN LISTS parts ITEMS ${source}/tagwire.h ${source}/tagwire_msg.hpp)
    cmake_path(GET header FILENAME name)
    file(READ ${header} text)
    string(REPLACE "#include <protocols/api/" "#include <" text "${text}")
    made_header(${name} "${text}")
endforeach()
foreach(header IN LISTS parts)
    cmake_path(GET header FILENAME name)
    made_header(protocols/api/${name}
                "#include <${name}>  /* SPDX-License-Identifier: BSD-3-Clause. Moved there. */\n")
endforeach()
file(GLOB_RECURSE left RELATIVE ${made} ${made}/*)
list(REMOVE_ITEM left ${names})
foreach(name IN LISTS left)
    file(REMOVE ${made}/${name})
endforeach()

# `folder` may be an absolute path, as CMAKE_INSTALL_INCLUDEDIR may.
cmake_path(ABSOLUTE_PATH folder BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX} OUTPUT_VARIABLE destination)
file(INSTALL DESTINATION ${destination} TYPE DIRECTORY FILES ${made}/)

# SPDX-License-Identifier: BSD-3-Clause
# At installation, with the variables that TagwireInstall.cmake sets: the headers of the messaging
# layer go right into the folder of headers, whatever their folder in this tree. A header of one
# line stays at each path that they had before, until 1.0.
file(GLOB parts ${source}/protocols/api/*.h ${source}/protocols/api/cxx_*.hpp)
file(REMOVE_RECURSE ${made})
foreach(header IN LISTS parts ITEMS ${source}/tagwire.h ${source}/tagwire_msg.hpp)
    cmake_path(GET header FILENAME name)
    file(READ ${header} text)
    string(REPLACE "#include <protocols/api/" "#include <" text "${text}")
    file(WRITE ${made}/${name} "${text}")
endforeach()
foreach(header IN LISTS parts)
    cmake_path(GET header FILENAME name)
    file(WRITE ${made}/protocols/api/${name}
         "#include <${name}>  /* SPDX-License-Identifier: BSD-3-Clause. Moved there. */\n")
endforeach()
file(INSTALL DESTINATION ${CMAKE_INSTALL_PREFIX}/${folder} TYPE DIRECTORY FILES ${made}/)

# SPDX-License-Identifier: BSD-3-Clause
# What `cmake --install` puts into a prefix: libraries, public headers under include/tagwire, the
# tools, and the two descriptions by which other projects find them. Each file belongs to a
# component (runtime, dev, command, vhca, fi), of which cmake/TagwirePackage.cmake makes a Debian
# package each.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(TAGWIRE_INSTALL_INCLUDEDIR ${CMAKE_INSTALL_INCLUDEDIR}/tagwire)
set(TAGWIRE_INSTALL_CMAKEDIR ${CMAKE_INSTALL_LIBDIR}/cmake/tagwire)

install(TARGETS tagwire tagwire_static EXPORT tagwireTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT dev
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev
        FILE_SET HEADERS DESTINATION ${TAGWIRE_INSTALL_INCLUDEDIR} COMPONENT dev)
install(CODE "set(source \"${tw_tree}/src\")
set(made \"${PROJECT_BINARY_DIR}/installed_headers\")
set(folder \"${TAGWIRE_INSTALL_INCLUDEDIR}\")" COMPONENT dev)
install(SCRIPT ${tw_tree}/cmake/install_headers.cmake COMPONENT dev)
install(EXPORT tagwireTargets NAMESPACE tagwire:: DESTINATION ${TAGWIRE_INSTALL_CMAKEDIR}
        COMPONENT dev)
configure_package_config_file(
    ${tw_tree}/cmake/tagwireConfig.cmake.in ${PROJECT_BINARY_DIR}/tagwireConfig.cmake
    INSTALL_DESTINATION ${TAGWIRE_INSTALL_CMAKEDIR} NO_SET_AND_CHECK_MACRO)
# Until 1.0 a minor version may change interfaces.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tagwireConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tagwireConfig.cmake
              ${PROJECT_BINARY_DIR}/tagwireConfigVersion.cmake
        DESTINATION ${TAGWIRE_INSTALL_CMAKEDIR} COMPONENT dev)

# Folders that are given as absolute paths lie where they say, whatever the prefix.
if(IS_ABSOLUTE ${CMAKE_INSTALL_LIBDIR})
    set(TAGWIRE_PC_PREFIX ${CMAKE_INSTALL_PREFIX})
else()
    file(RELATIVE_PATH to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
    set(TAGWIRE_PC_PREFIX "\${pcfiledir}/${to_prefix}")
endif()
cmake_path(APPEND TAGWIRE_PC_LIBDIR "\${prefix}" ${CMAKE_INSTALL_LIBDIR})
cmake_path(APPEND TAGWIRE_PC_INCLUDEDIR "\${prefix}" ${TAGWIRE_INSTALL_INCLUDEDIR})
configure_file(${tw_tree}/cmake/tagwire.pc.in ${PROJECT_BINARY_DIR}/tagwire.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/tagwire.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
        COMPONENT dev)

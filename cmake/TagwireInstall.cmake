# SPDX-License-Identifier: BSD-3-Clause
# What `cmake --install` puts into a prefix: libraries, public headers under include/tagwire, the
# tool, and the two descriptions by which other projects find them.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(TAGWIRE_INSTALL_INCLUDEDIR ${CMAKE_INSTALL_INCLUDEDIR}/tagwire)
set(TAGWIRE_INSTALL_CMAKEDIR ${CMAKE_INSTALL_LIBDIR}/cmake/tagwire)

install(TARGETS tagwire tagwire_static EXPORT tagwireTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        FILE_SET HEADERS DESTINATION ${TAGWIRE_INSTALL_INCLUDEDIR})
if(TARGET tagwire_command)
    install(TARGETS tagwire_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

install(EXPORT tagwireTargets NAMESPACE tagwire:: DESTINATION ${TAGWIRE_INSTALL_CMAKEDIR})
configure_package_config_file(
    ${PROJECT_SOURCE_DIR}/cmake/tagwireConfig.cmake.in ${PROJECT_BINARY_DIR}/tagwireConfig.cmake
    INSTALL_DESTINATION ${TAGWIRE_INSTALL_CMAKEDIR} NO_SET_AND_CHECK_MACRO)
# Until 1.0 a minor version may change interfaces.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tagwireConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tagwireConfig.cmake
              ${PROJECT_BINARY_DIR}/tagwireConfigVersion.cmake
        DESTINATION ${TAGWIRE_INSTALL_CMAKEDIR})

file(RELATIVE_PATH TAGWIRE_PC_TO_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(${PROJECT_SOURCE_DIR}/cmake/tagwire.pc.in ${PROJECT_BINARY_DIR}/tagwire.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/tagwire.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_CONTACT "the tagwire authors <dev@tagwire.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SECTION libdevel)
set(CPACK_STRIP_FILES ON)
include(CPack)

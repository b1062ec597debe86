# SPDX-License-Identifier: BSD-3-Clause
# Debian packages by CPack, one of each component of the products that are built: libtagwire0
# (runtime), libtagwire-dev (dev), tagwire (command), tagwire-vhca (vhca, which needs none of the
# others), libtagwire-fi (fi, where libfabric's headers are). `./run package` makes them from the
# preset `package`, whose prefix is /usr.

if(TAGWIRE_BUILD_DOCS)
    include(TagwireDocs)
elseif(TARGET tagwire_command)
    install(FILES ${tw_tree}/docs/man/tagwire.7
            DESTINATION ${CMAKE_INSTALL_MANDIR}/man7 COMPONENT command)
endif()
if(TARGET tagwire)
    install(DIRECTORY ${tw_tree}/examples
            DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/libtagwire-dev COMPONENT dev)
endif()

set(CPACK_PACKAGE_CONTACT "the tagwire authors <dev@tagwire.invalid>")
set(tw_components)
if(TARGET tagwire)
    list(APPEND tw_components runtime dev)
endif()
if(TARGET tagwire_command)
    list(APPEND tw_components command)
endif()
if(TARGET tagwire_vhca)
    list(APPEND tw_components vhca)
endif()
if(TARGET tagwire_fi)
    list(APPEND tw_components fi)
endif()

# Debian wants the licence under the name of each package, and a changelog.
find_program(TAGWIRE_GZIP gzip)
set(tw_package_runtime libtagwire${PROJECT_VERSION_MAJOR})
set(tw_package_dev libtagwire-dev)
set(tw_package_command tagwire)
set(tw_package_vhca tagwire-vhca)
set(tw_package_fi libtagwire-fi)
set(tw_news)
if(TAGWIRE_GZIP)
    string(TIMESTAMP tw_now "%a, %d %b %Y %H:%M:%S +0000" UTC)
    file(WRITE ${PROJECT_BINARY_DIR}/package/changelog
"tagwire (${PROJECT_VERSION}) unstable; urgency=medium

  * What has changed is in NEWS.gz.

 -- ${CPACK_PACKAGE_CONTACT}  ${tw_now}
")
    set(tw_news ${PROJECT_BINARY_DIR}/package/NEWS.gz ${PROJECT_BINARY_DIR}/package/changelog.gz)
    execute_process(COMMAND ${TAGWIRE_GZIP} -9nc ${tw_tree}/CHANGELOG.md
                    OUTPUT_FILE ${PROJECT_BINARY_DIR}/package/NEWS.gz)
    execute_process(COMMAND ${TAGWIRE_GZIP} -9nc ${PROJECT_BINARY_DIR}/package/changelog
                    OUTPUT_FILE ${PROJECT_BINARY_DIR}/package/changelog.gz)
endif()
foreach(component ${tw_components})
    set(tw_doc ${CMAKE_INSTALL_DATAROOTDIR}/doc/${tw_package_${component}})
    install(FILES ${tw_tree}/LICENSE DESTINATION ${tw_doc} RENAME copyright
            COMPONENT ${component})
    install(FILES ${tw_news} DESTINATION ${tw_doc} COMPONENT ${component})
endforeach()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL ${tw_components})
set(CPACK_COMPONENTS_GROUPING ONE_PER_GROUP)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_LIBRARY_OUTPUT_DIRECTORY})
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)

set(tw_same "(= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME ${tw_package_runtime})
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION libs)
# CPack would write these for every package, and the command has libraries of others' names.
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/package/shlibs NEWLINE_STYLE UNIX CONTENT
     "libtagwire ${PROJECT_VERSION_MAJOR} ${tw_package_runtime} (>= ${PROJECT_VERSION})\n")
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/package/triggers NEWLINE_STYLE UNIX CONTENT
     "activate-noawait ldconfig\n")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_EXTRA
    ${PROJECT_BINARY_DIR}/package/shlibs ${PROJECT_BINARY_DIR}/package/triggers)
# Loaded at run time, where they are.
set(CPACK_DEBIAN_RUNTIME_PACKAGE_RECOMMENDS "ibverbs-providers, libibverbs1")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SUGGESTS "libpmix2, ${tw_package_vhca}")
set(CPACK_COMPONENT_RUNTIME_DESCRIPTION
    "tagged messages over shared memory, RDMA and TCP: shared library

tagwire is a communication library for authors of MPI, PGAS and RPC
libraries. It moves messages that are matched by tags between processes:
within a host over shared memory, between hosts over RDMA devices (verbs
reliable connections, mlx5 dynamic connections, datagrams). It has a
messaging layer, which chooses transport and protocol by measured costs,
and a transport layer whose API is source-compatible with UCT of UCX 1.13.

On a machine without a card tagwire-vhca provides a virtual RDMA device.")

set(CPACK_DEBIAN_DEV_PACKAGE_NAME ${tw_package_dev})
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "${tw_package_runtime} ${tw_same}")
set(CPACK_COMPONENT_DEV_DESCRIPTION
    "tagged messages over shared memory, RDMA and TCP: development files

Headers of the C and C++ interfaces of tagwire, the static library, files
for CMake and pkg-config, examples, manual pages of every call, and the
guide and the reference as HTML.")

set(CPACK_DEBIAN_COMMAND_PACKAGE_NAME ${tw_package_command})
set(CPACK_DEBIAN_COMMAND_PACKAGE_SECTION net)
set(CPACK_DEBIAN_COMMAND_PACKAGE_DEPENDS "${tw_package_runtime} ${tw_same}, python3")
set(CPACK_DEBIAN_COMMAND_PACKAGE_RECOMMENDS "gnuplot-nox, ${tw_package_vhca} ${tw_same}")
set(CPACK_DEBIAN_COMMAND_PACKAGE_SUGGESTS "ucx-utils, libfabric-bin")
set(CPACK_COMPONENT_COMMAND_DESCRIPTION
    "tagged messages over shared memory, RDMA and TCP: command

tagwire shows the transports of a machine, measures them beside the limits
of its memory and caches, tunes and explains the choice of protocols, writes
a report with plots, exchanges checked random messages for hours, and runs
programs of libibverbs on the virtual device of tagwire-vhca.")

# Loaded at run time, and what the programs need that it runs; --driver mlx5 needs both itself.
set(CPACK_DEBIAN_VHCA_PACKAGE_NAME ${tw_package_vhca})
set(CPACK_DEBIAN_VHCA_PACKAGE_SECTION net)
set(CPACK_DEBIAN_VHCA_PACKAGE_CONTROL_EXTRA ${PROJECT_BINARY_DIR}/package/triggers)
set(CPACK_DEBIAN_VHCA_PACKAGE_RECOMMENDS "ibverbs-providers, libibverbs1")
set(CPACK_DEBIAN_VHCA_PACKAGE_SUGGESTS "ibverbs-utils, perftest")
set(CPACK_COMPONENT_VHCA_DESCRIPTION
    "virtual RDMA device: runs RDMA programs without a card

Runs programs of libibverbs and libmlx5, unmodified and without privileges,
on an RDMA device made of software: RC, UC, UD and DC queue pairs, tag
matching and events, between processes through shared memory or between
hosts as RoCEv2 over UDP. Packets are lost, duplicated, delayed and
reordered on request, by a seed. It is meant for tests, also in containers
and in continuous integration, and not for speed.")

set(CPACK_DEBIAN_FI_PACKAGE_NAME ${tw_package_fi})
set(CPACK_DEBIAN_FI_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_FI_PACKAGE_DEPENDS "${tw_package_runtime} ${tw_same}")
set(CPACK_COMPONENT_FI_DESCRIPTION
    "tagged messages over shared memory, RDMA and TCP: libfabric provider

The provider tagwire for libfabric. Programs of libfabric, among them Open
MPI, send over tagwire without a change.")
include(CPack)

# SPDX-License-Identifier: BSD-3-Clause
# Manual pages, and the guide and the interfaces as HTML. Pages of the command come from its --help
# and docs/man/*.h2m, those of the interfaces from the comments of the public headers. The target
# `docs` needs no compiler: it is all but the pages of the command, which are `command_pages`.
find_program(TAGWIRE_HELP2MAN help2man REQUIRED)
find_package(Doxygen REQUIRED)
find_package(Python3 REQUIRED COMPONENTS Interpreter)
find_program(TAGWIRE_GZIP gzip REQUIRED)
find_program(TAGWIRE_DOT dot REQUIRED)
find_program(TAGWIRE_MSCGEN mscgen REQUIRED)

set(tw_man ${PROJECT_BINARY_DIR}/man)
set(tw_man_sources ${tw_tree}/docs/man)
file(MAKE_DIRECTORY ${tw_man}/man1 ${tw_man}/man7)
set(tw_pages)
# The date of the pages: of the commit, else of today (or SOURCE_DATE_EPOCH).
execute_process(COMMAND git -C ${PROJECT_SOURCE_DIR} log -1 --format=%cs
                OUTPUT_VARIABLE tw_man_date OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT tw_man_date)
    string(TIMESTAMP tw_man_date "%Y-%m-%d" UTC)
endif()

# tw_add_command_page(<page> <what it is> <target> [subcommand])
function(tw_add_command_page page what target)
    if(NOT TARGET ${target})
        return()
    endif()
    set(include ${tw_man_sources}/${page}.h2m)
    set(output ${tw_man}/man1/${page}.1.gz)
    add_custom_command(OUTPUT ${output}
        COMMAND ${CMAKE_COMMAND} -E env LC_ALL=C sh ${tw_man_sources}/page.sh ${TAGWIRE_HELP2MAN}
                ${output} ${include} ${PROJECT_VERSION} "${what}" $<TARGET_FILE:${target}>
                ${ARGN}
        DEPENDS ${target} ${include} ${tw_man_sources}/page.sh VERBATIM)
    set(tw_pages ${tw_pages} ${output} PARENT_SCOPE)
endfunction()
tw_add_command_page(tagwire "show, measure, tune and test the transports of this machine"
                    tagwire_command)
tw_add_command_page(tagwire-demo "exchange messages over every transport and measure them"
                    tagwire_demo)
tw_add_command_page(tagwire-info "show devices, transports and options" tagwire_command info)
tw_add_command_page(tagwire-perf "measure transports between processes" tagwire_command perf)
tw_add_command_page(tagwire-tune "measure what messages cost, for the choice of protocols"
                    tagwire_command tune)
tw_add_command_page(tagwire-explain "show how messages go, and why" tagwire_command explain)
tw_add_command_page(tagwire-report "measure a machine and write a page with plots"
                    tagwire_command report)
tw_add_command_page(tagwire-soak "exchange random messages and check every byte"
                    tagwire_command soak)
tw_add_command_page(tagwire-run "start a program as the ranks of a job on this host"
                    tagwire_command run)
tw_add_command_page(tagwire-completion "complete the command line in a shell"
                    tagwire_command completion)
tw_add_command_page(tagwire-vhca "test RDMA programs without a card" tagwire_vhca_command)
tw_add_command_page(tagwire-vhca-run "start a program on the virtual HCA" tagwire_vhca_command run)

add_custom_target(command_pages ALL DEPENDS ${tw_pages})

set(tw_topic_pages)
foreach(page tagwire fi_tagwire)
    set(output ${tw_man}/man7/${page}.7.gz)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${tw_man_sources}/${page}.7)
    file(READ ${tw_man_sources}/${page}.7 text)
    string(REPLACE " 7 \"\" " " 7 \"${tw_man_date}\" " text "${text}")
    file(WRITE ${tw_man}/${page}.7 "${text}")
    add_custom_command(OUTPUT ${output}
        COMMAND sh -c "gzip -9nc '${tw_man}/${page}.7' > '${output}'"
        DEPENDS ${tw_man}/${page}.7 VERBATIM)
    list(APPEND tw_topic_pages ${output})
endforeach()

# The interfaces: HTML with the guide, and a page of section 3 for each header and each function.
file(GLOB_RECURSE tw_documented CONFIGURE_DEPENDS ${tw_tree}/docs/*.md ${tw_tree}/vhca/*.md
     ${tw_tree}/tools/*.md ${tw_tree}/contrib/libfabric/*.md
     ${tw_tree}/src/protocols/api/* ${tw_tree}/src/uct/api/*
     ${tw_tree}/src/tagwire*.h ${tw_tree}/src/tagwire*.hpp)
set(tw_html_sources ${tw_tree}/docs/html)
# The theme is a package of Debian's; without it the pages look as Doxygen has them.
find_path(TAGWIRE_DOXYGEN_AWESOME doxygen-awesome.css
          PATHS /usr/share/doxygen-awesome-css /usr/local/share/doxygen-awesome-css)
set(TAGWIRE_DOXYGEN_STYLES ${tw_html_sources}/tagwire.css)
if(TAGWIRE_DOXYGEN_AWESOME)
    string(JOIN " " TAGWIRE_DOXYGEN_STYLES ${TAGWIRE_DOXYGEN_AWESOME}/doxygen-awesome.css
           ${TAGWIRE_DOXYGEN_AWESOME}/doxygen-awesome-sidebar-only.css ${TAGWIRE_DOXYGEN_STYLES})
endif()
configure_file(${tw_tree}/docs/Doxyfile.in ${PROJECT_BINARY_DIR}/Doxyfile @ONLY)
configure_file(${tw_tree}/docs/man/Doxyfile.in ${PROJECT_BINARY_DIR}/Doxyfile.man @ONLY)
set(tw_html ${PROJECT_BINARY_DIR}/html)
# Pictures are drawn anew, and lie beside the pages.
set(tw_picture_sources ${PROJECT_SOURCE_DIR}/docs/pictures)
file(GLOB tw_drawn CONFIGURE_DEPENDS ${tw_picture_sources}/*.dot ${tw_picture_sources}/*.msc)
set(tw_ready_pictures ${tw_picture_sources}/latency.svg
    ${PROJECT_SOURCE_DIR}/docs/guide/few-cores.svg)
add_custom_command(OUTPUT ${PROJECT_BINARY_DIR}/doxygen.stamp
    COMMAND ${CMAKE_COMMAND} -E rm -rf ${tw_html} ${tw_man}/xml ${tw_man}/man3
    COMMAND Doxygen::doxygen ${PROJECT_BINARY_DIR}/Doxyfile
    COMMAND ${Python3_EXECUTABLE} ${tw_picture_sources}/draw.py ${tw_html}
    COMMAND ${CMAKE_COMMAND} -E copy ${tw_ready_pictures} ${tw_html}
    COMMAND Doxygen::doxygen ${PROJECT_BINARY_DIR}/Doxyfile.man
    COMMAND ${Python3_EXECUTABLE} ${tw_man_sources}/calls.py ${tw_man}/xml ${tw_man}/man3
            ${PROJECT_VERSION} ${tw_man_date}
    COMMAND ${CMAKE_COMMAND} -E touch ${PROJECT_BINARY_DIR}/doxygen.stamp
    DEPENDS ${tw_documented} ${tw_tree}/README.md ${PROJECT_BINARY_DIR}/Doxyfile
            ${PROJECT_BINARY_DIR}/Doxyfile.man ${tw_man_sources}/calls.py
            ${PROJECT_SOURCE_DIR}/examples/manual_pages.c
            ${PROJECT_SOURCE_DIR}/examples/manual_pages_memory.h
            ${PROJECT_SOURCE_DIR}/examples/am_ring.c
            ${tw_html_sources}/page.py ${tw_html_sources}/layout.xml
            ${tw_html_sources}/tagwire.css ${tw_drawn} ${tw_ready_pictures}
            ${tw_picture_sources}/draw.py VERBATIM)

add_custom_target(docs ALL DEPENDS ${tw_topic_pages} ${PROJECT_BINARY_DIR}/doxygen.stamp)
install(DIRECTORY ${tw_man}/man1 DESTINATION ${CMAKE_INSTALL_MANDIR} COMPONENT command
        PATTERN "tagwire-vhca*" EXCLUDE)
install(DIRECTORY ${tw_man}/man1 DESTINATION ${CMAKE_INSTALL_MANDIR} COMPONENT vhca
        FILES_MATCHING PATTERN "tagwire-vhca*")
install(FILES ${tw_man}/man7/tagwire.7.gz DESTINATION ${CMAKE_INSTALL_MANDIR}/man7
        COMPONENT command)
if(TARGET tagwire_fi)
    install(FILES ${tw_man}/man7/fi_tagwire.7.gz DESTINATION ${CMAKE_INSTALL_MANDIR}/man7
            COMPONENT fi)
endif()
install(DIRECTORY ${tw_man}/man3 DESTINATION ${CMAKE_INSTALL_MANDIR} COMPONENT dev)
install(DIRECTORY ${tw_html} DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/libtagwire-dev
        COMPONENT dev)

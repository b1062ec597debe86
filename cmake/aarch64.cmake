# SPDX-License-Identifier: BSD-3-Clause
# Toolchain file: compiles for 64-bit ARM with Debian's cross compiler, against the arm64 packages
# that contrib/aarch64_root.sh unpacks into build/aarch64-root, or another folder that
# TAGWIRE_AARCH64_ROOT names, and runs tests with qemu-user.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

cmake_path(ABSOLUTE_PATH CMAKE_CURRENT_LIST_DIR NORMALIZE OUTPUT_VARIABLE here)
cmake_path(GET here PARENT_PATH tree)
set(TAGWIRE_AARCH64_ROOT ${tree}/build/aarch64-root CACHE PATH "Folder with the arm64 packages")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES TAGWIRE_AARCH64_ROOT)
set(libraries ${TAGWIRE_AARCH64_ROOT}/usr/lib/aarch64-linux-gnu)

set(CMAKE_SYSROOT ${TAGWIRE_AARCH64_ROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${TAGWIRE_AARCH64_ROOT})
set(ENV{PKG_CONFIG_LIBDIR} ${libraries}/pkgconfig:${TAGWIRE_AARCH64_ROOT}/usr/share/pkgconfig)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64;-L;${TAGWIRE_AARCH64_ROOT})

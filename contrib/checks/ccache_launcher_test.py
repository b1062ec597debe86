#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Tests of cmake/ccache_launcher.sh: a small tree with a precompiled header, built by each compiler
at one path, removed, and built at another."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SKIPPED = 77
LAUNCHER = Path(__file__).resolve().parents[2] / "cmake/ccache_launcher.sh"
COMPILERS = ("g++", "clang++")
MISSING = [tool for tool in (*COMPILERS, "cmake", "ninja", "ccache") if not shutil.which(tool)]
if MISSING:
    print(f"skipped: {', '.join(MISSING)} not found (packages of the same names)")
    sys.exit(1 if os.environ.get("TAGWIRE_TEST_REQUIRE_ALL") == "1" else SKIPPED)

CMAKE = """\
cmake_minimum_required(VERSION 3.22)
project(tree CXX)
set(CMAKE_CXX_COMPILER_LAUNCHER ${PROJECT_SOURCE_DIR}/launcher.sh ${PROJECT_SOURCE_DIR}
    ${PROJECT_BINARY_DIR} ${CMAKE_CXX_COMPILER_ID} CCACHE)
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
    add_compile_options("SHELL:-Xclang -fno-pch-timestamp")
endif()
add_executable(program src/main.cc src/other.cc)
target_include_directories(program PRIVATE src ${PROJECT_BINARY_DIR}/generated)
target_precompile_headers(program PRIVATE <vector> <inner.hpp>)
file(CONFIGURE OUTPUT generated/made.hpp CONTENT "inline int made() { return 1; }\\n")
"""
FILES = {
    "src/inner.hpp": '#pragma once\n#include "deep.hpp"\n#include "made.hpp"\n',
    "src/deep.hpp": "#pragma once\ninline int deep() { return 40; }\n",
    "src/main.cc": '#include "inner.hpp"\nint other();\n'
                   "int main() { return other() + deep() + made(); }\n",
    "src/other.cc": '#include "inner.hpp"\n'
                    "int other() { return int(std::vector<int>{1}.size()); }\n",
}
OBJECTS = 3  # with the precompiled header


class Launcher(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.environment = {name: value for name, value in os.environ.items()
                            if not name.startswith(("CCACHE_", "CMAKE_"))}
        self.environment["CCACHE_DIR"] = str(self.folder / "cache")
        # As where the system's default compiler is clang.
        self.unnamed_clang = self.folder / "c++"
        self.unnamed_clang.symlink_to(shutil.which("clang++"))

    def make_clone(self, name):
        root = self.folder / name
        for path, text in {**FILES, "CMakeLists.txt":
                           CMAKE.replace("CCACHE", shutil.which("ccache"))}.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        shutil.copy(LAUNCHER, root / "launcher.sh")
        return root

    def run_tool(self, *command):
        done = subprocess.run(command, env=self.environment, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def build(self, root, compiler):
        """Builds, and returns the program's exit status with what ccache found and did not."""
        self.run_tool("ccache", "--zero-stats")
        build = root / "build/kind"
        self.run_tool("cmake", "-G", "Ninja", "-S", root, "-B", build,
                      f"-DCMAKE_CXX_COMPILER={compiler}")
        self.run_tool("ninja", "-C", build)
        stats = dict(re.findall(r"^(\w+)\t(\d+)$", self.run_tool("ccache", "--print-stats"), re.M))
        hits = int(stats["direct_cache_hit"]) + int(stats["preprocessed_cache_hit"])
        status = subprocess.run([build / "program"], check=False).returncode
        return status, hits, int(stats["cache_miss"])

    def test_a_clone_finds_what_one_that_is_gone_has_compiled(self):
        for compiler in (*COMPILERS, self.unnamed_clang):
            with self.subTest(compiler):
                shutil.rmtree(self.folder / "cache", ignore_errors=True)
                name = Path(compiler).name
                first = self.make_clone(f"{name} first")
                self.assertEqual(self.build(first, compiler), (42, 0, OBJECTS))
                shutil.rmtree(first)
                second = self.make_clone(f"{name} second/deeper")
                self.assertEqual(self.build(second, compiler), (42, OBJECTS, 0))
                # A source of its own is compiled with the header that was found.
                (second / "src/other.cc").write_text(FILES["src/other.cc"].replace("{1}", "{1, 2}"))
                status, _, misses = self.build(second, compiler)
                self.assertEqual((status, misses), (43, 1))

    def test_a_header_that_is_another_is_compiled(self):
        for compiler in COMPILERS:
            with self.subTest(compiler):
                shutil.rmtree(self.folder / "cache", ignore_errors=True)
                self.build(self.make_clone(f"{compiler} third"), compiler)
                fourth = self.make_clone(f"{compiler} fourth")
                (fourth / "src/deep.hpp").write_text(FILES["src/deep.hpp"].replace("40", "50"))
                self.assertEqual(self.build(fourth, compiler), (52, 0, OBJECTS))

    def test_another_edition_finds_nothing(self):
        shutil.rmtree(self.folder / "cache", ignore_errors=True)
        self.build(self.make_clone("fifth"), "g++")
        sixth = self.make_clone("sixth")
        with (sixth / "launcher.sh").open("a") as launcher:
            launcher.write("# another\n")
        self.assertEqual(self.build(sixth, "g++"), (42, 0, OBJECTS))


if __name__ == "__main__":
    unittest.main()

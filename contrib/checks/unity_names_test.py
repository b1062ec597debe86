#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Tests of unity_names.py."""
import json
import tempfile
import unittest
from pathlib import Path

import unity_names


def local(body):
    return "namespace a {\nnamespace {\n" + body + "\n}  // namespace\n}  // namespace a\n"


def shared(*texts):
    """Names that files of these texts share, in their order."""
    names = {f"{index}.cc": unity_names.names_in(text) for index, text in enumerate(texts)}
    return [name for _, _, name in unity_names.collisions(names)]


class Names(unittest.TestCase):
    def test_constants_types_and_enumerators_are_found(self):
        self.assertEqual(shared(local("constexpr int kA = 1 << 2;"), local("int kA{3};")), ["kA"])
        self.assertEqual(shared(local("constexpr auto kA = int{1} << 3;"), local("int kA[4];")),
                         ["kA"])
        self.assertEqual(shared(local("struct T { int a; };"), local("class T : U {};")), ["T"])
        self.assertEqual(shared(local("enum E { kA, kB = f(1, 2) };"), local("int kB = 1;")),
                         ["kB"])

    def test_what_a_function_or_class_holds_is_its_own(self):
        self.assertEqual(shared(local("int f() { constexpr int kA = 1; return kA; }"),
                                local("struct T { static constexpr int kA = 2; };"),
                                local("enum class E { kA };")), [])

    def test_functions_share_a_name_if_their_parameters_differ(self):
        one = local("int f(const T& a, int b = 2) { return a; }")
        self.assertEqual(shared(one, local("int f(const T& other, int) { return 1; }")), ["f"])
        self.assertEqual(shared(one, local("int f(const U& a, int b) { return a; }")), [])
        self.assertEqual(shared(one, local("template <typename T>\nint f(const T& a, int b) {}")),
                         [])
        self.assertEqual(shared(one, local("int f(const T& a, int b);")), [])

    def test_a_local_function_hides_that_of_the_namespace(self):
        visible = "namespace a {\nint f(int a) { return a; }\nint T::g() { return 1; }\n}\n"
        self.assertEqual(shared(visible, local("int f(long a) { return 1; }")), ["f"])
        self.assertEqual(shared(visible, local("int g() { return 1; }")), [])

    def test_static_names_and_macros_are_local(self):
        self.assertEqual(shared("static int f(void) {\n}\n", "static int f() {\n}\n"), ["f"])
        self.assertEqual(shared("#define A 1\n", "#define A 1\n"), ["A"])
        self.assertEqual(shared("#define A 1\n#undef A\n", "#define A 1\n"), [])

    def test_equal_aliases_may_stand_twice(self):
        self.assertEqual(shared(local("using A = B;"), local("using  A = B;")), [])
        self.assertEqual(shared(local("using A = B;"), local("using A = C;")), ["A"])

    def test_other_namespaces_have_their_own(self):
        self.assertEqual(shared(local("int a = 1;"), "namespace {\nint a = 1;\n}\n"), [])
        self.assertEqual(shared("namespace a::b {\nnamespace {\nint c = 1;\n}\n}\n",
                                "namespace a {\nnamespace b {\nstatic int c = 1;\n}\n}\n"), ["c"])

    def test_a_type_of_a_namespace_is_defined_once(self):
        def twice(first, second):
            names = {"a.cc": unity_names.names_in(first), "b.hpp": unity_names.names_in(second)}
            return [name for _, _, name in unity_names.twice_defined(names)]

        one = "namespace a {\nclass T final : public B<int> {\n  int i;\n};\n}\n"
        self.assertEqual(twice(one, "namespace a {\nstruct T {\n};\n}\n"), ["a::T"])
        self.assertEqual(twice(one, "namespace a {\nclass T;\nT f(T t) { return t; }\n}\n"), [])
        self.assertEqual(twice(one, "namespace b {\nclass T {\n};\n}\n"), [])
        self.assertEqual(twice(one, local("class T {\n};")), [])
        self.assertEqual(twice(one, "namespace a {\nclass T::Inner {\n};\n}\n"), [])


class Targets(unittest.TestCase):
    def test_sources_are_those_of_the_unity_files_of_a_target(self):
        with tempfile.TemporaryDirectory() as name:
            build = Path(name)
            unity = build / "CMakeFiles/one.dir/Unity"
            unity.mkdir(parents=True)
            files = [unity / "unity_0_cxx.cxx", unity / "unity_1_cxx.cxx"]
            files[0].write_text('#include "/src/a.cc"\n\n#include "/src/b.cc"\n')
            files[1].write_text('#include "/src/c.cc"\n')
            entries = [{"directory": name, "file": str(file)} for file in files]
            entries.append({"directory": name, "file": "/src/alone.cc"})
            (build / "compile_commands.json").write_text(json.dumps(entries))
            found = [sorted(map(str, files))
                     for files in unity_names.sources_by_target(build).values()]
        self.assertEqual(found, [["/src/a.cc", "/src/b.cc", "/src/c.cc"]])


if __name__ == "__main__":
    unittest.main()

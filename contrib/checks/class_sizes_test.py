#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Tests of class_sizes.py."""
import unittest

import class_sizes


def counts(text):
    return {one.name: one.functions for one in class_sizes.classes(text)}


def fields(text):
    return {one.name: one.fields for one in class_sizes.classes(text)}


class Counting(unittest.TestCase):
    def test_functions_count_and_data_does_not(self):
        text = """
class A : public B {
  public:
    A(int a) : a_{a} {}
    A(const A&) = delete;
    ~A() = default;
    // int not_there();
    int get() const { return call(a_); }
    template <class T>
    void put(const T& value);
    bool operator==(const A& other) const;
    using Callback = void (*)(int);
    friend void other(A&);

  private:
    static constexpr int kMax = max(1, 2);
    int a_ = first(3);
    std::vector<int> b_{1, 2};
    Callback call_ = nullptr;
};
"""
        self.assertEqual(counts(text), {"A": 4})
        self.assertEqual(fields(text), {"A": 3})

    def test_a_class_within_counts_for_itself(self):
        text = "struct A {\n    struct B {\n        int f();\n        int g();\n    };\n"
        text += "    int h();\n};"
        self.assertEqual(counts(text), {"A": 1, "B": 2})

    def test_attributes_and_alignment_are_no_functions(self):
        text = "struct alignas(64) A {\n    alignas(128) int a;\n    [[nodiscard]] int f();\n};"
        self.assertEqual(counts(text), {"A": 1})
        self.assertEqual(fields(text), {"A": 1})

    def test_each_name_of_a_declaration_counts_and_types_do_not(self):
        text = """
struct A {
    class B;
    struct C final : D {
        int c;
    };
    enum class E { kOne };
    int a = 1, b{2}, c[3];
    std::map<int, int> d, *e;
    void (*f)(int);
    struct {
        int g, h;
    } i;
};
"""
        self.assertEqual(fields(text), {"A": 7, "C": 1})


class Chains(unittest.TestCase):
    def sizes(self, files):
        return {str(chain[0]): (functions, data) for functions, data, chain
                in class_sizes.Tree(files).sizes()}

    def test_an_object_has_what_its_bases_have(self):
        files = {"src/a.hpp": "class A : public x::B<int, C>, private D {\n    int a();\n};",
                 "src/b.hpp": "template <class T>\nclass B : D {\n    int b();\n    int c_;\n};",
                 "src/d.hpp": "struct D {\n    int d, e;\n    void f();\n};"}
        self.assertEqual(self.sizes(files),
                         {"src/a.hpp:A": (3, 3), "src/b.hpp:B": (2, 3), "src/d.hpp:D": (1, 2)})

    def test_of_two_bases_of_one_name_that_counts_which_is_included(self):
        files = {"src/a.hpp": '#include "one/b.hpp"\nclass A : B {\n};',
                 "src/one/b.hpp": "class B {\n    int b();\n};",
                 "src/two/b.hpp": "class B {\n    int b();\n    int c();\n};"}
        self.assertEqual(self.sizes(files)["src/a.hpp:A"], (1, 0))

    def test_the_largest_comes_first(self):
        files = {"a.hpp": "struct A {\n    int a;\n};\nstruct B {\n    int b, c;\n};"}
        self.assertEqual([chain[0].name for _, _, chain in class_sizes.Tree(files).sizes()],
                         ["B", "A"])


if __name__ == "__main__":
    unittest.main()

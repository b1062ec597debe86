#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Tests of class_sizes.py."""
import unittest

import class_sizes


def counts(text):
    return dict(class_sizes.classes(text))


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

    def test_a_class_within_counts_for_itself(self):
        text = "struct A {\n    struct B {\n        int f();\n        int g();\n    };\n"
        text += "    int h();\n};"
        self.assertEqual(counts(text), {"A": 1, "B": 2})

    def test_attributes_and_alignment_are_no_functions(self):
        text = "struct alignas(64) A {\n    alignas(128) int a;\n    [[nodiscard]] int f();\n};"
        self.assertEqual(counts(text), {"A": 1})


if __name__ == "__main__":
    unittest.main()

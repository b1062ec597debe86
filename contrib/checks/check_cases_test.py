#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""check_cases.py sees what no filter selects, and nothing else."""
import unittest
from pathlib import Path

from check_cases import (Filter, case_names, filters_of_programs, left_to_nobody,
                         without_tier)

LISTING = """Running main() from main.cc
Plain.
  first
  second
Each/Typed.  # TypeParam = int
  case
All/Param.
  case/0  # GetParam() = 1
  case/1  # GetParam() = 2
"""
CASES = ["Plain.first", "Plain.second", "Each/Typed.case", "All/Param.case/0", "All/Param.case/1"]


class CheckCases(unittest.TestCase):
    def test_names_have_their_suite_and_no_comment(self):
        self.assertEqual(list(case_names(LISTING)), CASES)

    def test_a_filter_selects_as_googletest_does(self):
        self.assertTrue(Filter("Plain.*:Other.*").selects("Plain.first"))
        self.assertTrue(Filter("*-Other.*").selects("Plain.first"))
        self.assertTrue(Filter("-Other.*").selects("Plain.first"))
        self.assertFalse(Filter("Plain.*-*.first").selects("Plain.first"))
        self.assertFalse(Filter("Plain.firs").selects("Plain.first"))
        self.assertTrue(Filter("*/Param.case/?").selects("All/Param.case/1"))

    def test_a_case_that_no_filter_selects_is_found(self):
        texts = {"Plain.first", "Plain.*-Plain.first", "Each/*", "*/Param.*/0"}
        self.assertEqual(left_to_nobody(CASES, texts), ["All/Param.case/1"])
        self.assertEqual(left_to_nobody(CASES, {"*"}), [])

    def test_only_programs_of_the_build_that_are_googletest_count(self):
        tests = [{"command": ["/b/bin/one", "--gtest_brief=1"]},
                 {"command": ["/usr/bin/env", "A=1", "/b/bin/two", "--gtest_filter=X.y"]},
                 {"command": ["/b/bin/tool", "--help"]},
                 {"command": ["/elsewhere/three", "--gtest_filter=*"]}]
        self.assertEqual(filters_of_programs(tests, Path("/b/bin")),
                         {"/b/bin/one": {"*"}, "/b/bin/two": {"X.y"}})

    def test_a_test_without_a_tier_is_found(self):
        def test(name, *labels):
            return {"name": name, "properties": [{"name": "LABELS", "value": list(labels)}]}

        tests = [test("day", "unit", "quick"), test("night", "nightly"), test("lost", "process"),
                 {"name": "bare"}, {"name": "program_NOT_BUILT"}]
        self.assertEqual(without_tier(tests), ["lost", "bare"])


if __name__ == "__main__":
    unittest.main()

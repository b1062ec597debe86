#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Checks docs/reference/semantics.md: ids are unique, and every test that it names exists.

Usage: check_semantics.py ROOT
"""
import re
import sys
from pathlib import Path

ROW = re.compile(r"^\| ([A-Z]\d+) \| .* \| `(\w+)\.(\w+)` \|$")


def tests_of(root):
    text = "".join(path.read_text() for path in sorted(root.glob("test/gtest/protocols/*.cc")))
    return set(re.findall(r"TEST(?:_[FP])?\((\w+),\s*(\w+)\)", text))


def problems(root):
    tests = tests_of(root)
    seen = set()
    page = (root / "docs/reference/semantics.md").read_text()
    for number, line in enumerate(page.splitlines(), 1):
        if not re.match(r"^\| [A-Z]\d+ \|", line):
            continue
        row = ROW.match(line)
        if row is None:
            yield f"{number}: a row is | id | promise | `Suite.test` |"
            continue
        promise, suite, test = row.groups()
        if promise in seen:
            yield f"{number}: {promise} is there twice"
        seen.add(promise)
        if (suite, test) not in tests:
            yield f"{number}: {promise}: there is no test {suite}.{test}"
    if not seen:
        yield "no row was found"


def main():
    found = list(problems(Path(sys.argv[1])))
    for problem in found:
        print(f"docs/reference/semantics.md:{problem}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

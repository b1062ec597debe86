#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Prints each failed test of files that ctest --output-junit wrote, with its output's end."""

import argparse
import xml.etree.ElementTree as ElementTree


def failed_cases(path):
    """The (name, reason, output) of every case of the file that did not pass."""
    for case in ElementTree.parse(path).iter("testcase"):
        if case.get("status") in ("run", "disabled") or case.find("skipped") is not None:
            continue
        failure = case.find("failure")
        reason = failure.get("message", "") if failure is not None else ""
        yield case.get("name"), reason, case.findtext("system-out", default="")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=60, help="of each test's output (60)")
    parser.add_argument("files", nargs="+", metavar="FILE")
    options = parser.parse_args()
    for path in options.files:
        for name, reason, output in failed_cases(path):
            print(f"--- {name}: {reason}")
            print("\n".join(output.splitlines()[-options.lines:]))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Finds cases of GoogleTest programs that no test of a build directory runs, and tests that belong
to no run.

Several tests run the same program with filters of their own, so a new suite or a changed filter can
leave a case to nobody. Each program that a test starts is asked for its cases. A test without one
of the labels by which `./run test` and .ci/run choose is run by nobody, too.
"""
import argparse
import json
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

SHOWN_MAX = 10  # of one program
TIERS = {"quick", "extended", "thirdparty", "nightly", "tsan", "fuzz", "kernel"}
UNITY_SOURCE = re.compile(r'^#include "([^"]+)"', re.M)
ALONE = re.compile(r"^[^*?:-]*$")


def compile_side(patterns):
    """A regular expression for one side of a filter, whose patterns a colon separates."""
    words = [re.escape(word).replace(r"\*", ".*").replace(r"\?", ".")
             for word in patterns.split(":") if word]
    return re.compile("(?:" + "|".join(words) + r")\Z") if words else re.compile(r"(?!)")


class Filter:
    """--gtest_filter=CHOSEN[-LEFT_OUT]"""

    def __init__(self, text):
        chosen, _, left_out = text.partition("-")
        self._chosen, self._left_out = compile_side(chosen or "*"), compile_side(left_out)

    def selects(self, case):
        return self._chosen.match(case) is not None and self._left_out.match(case) is None


def case_names(listing):
    """The names in the output of --gtest_list_tests."""
    suite = ""
    for line in listing.splitlines():
        name = line.split("#")[0].rstrip()
        if name.startswith("  "):
            yield suite + name.strip()
        elif name.endswith("."):
            suite = name


def filters_of_programs(tests, folder):
    """Program of the folder -> the filters that its tests run it with."""
    found = defaultdict(set)
    for test in tests:
        words = test.get("command", [])
        program = next((word for word in words if Path(word).parent == folder), None)
        if program is None or not any(word.startswith("--gtest") for word in words):
            continue
        texts = [word.split("=", 1)[1] for word in words if word.startswith("--gtest_filter=")]
        found[program].add(texts[-1] if texts else "*")
    return found


def left_to_nobody(cases, texts):
    """The cases that none of the filters selects."""
    single = {text for text in texts if ALONE.match(text)}
    filters = [Filter(text) for text in texts - single]
    return [case for case in cases
            if case not in single and not any(each.selects(case) for each in filters)]


def compiled_sources(build):
    """The names of the sources in the build, those that a unity file joins, too."""
    for entry in json.loads((build / "compile_commands.json").read_text()):
        source = Path(entry["file"])
        yield source.name
        if source.parent.name == "Unity" and source.exists():
            yield from (Path(name).name for name in UNITY_SOURCE.findall(source.read_text()))


def left_out(root, compiled):
    """Sources of tests that the build does not compile and that no CMakeLists.txt names."""
    places = ("test", "contrib", "vhca", "tools")
    named = " ".join(path.read_text() for place in places
                     for path in (root / place).rglob("CMakeLists.txt"))
    return sorted(path.relative_to(root).as_posix() for place in places
                  for path in (root / place).rglob("*_test.cc")
                  if path.name not in compiled and path.name not in named)


def without_test(build, found):
    """The test programs, as CMake lists them, that no test starts."""
    started = {Path(program).name for program in found}
    listed = (build / "test_programs.txt").read_text().split()
    return [name for name in listed if name not in started and (build / "bin" / name).exists()]


def labels_of(test):
    return next((each["value"] for each in test.get("properties", [])
                 if each["name"] == "LABELS"), [])


def without_tier(tests):
    """The tests that no run chooses; ctest's own word for a program that is not built is none."""
    return [test["name"] for test in tests
            if not TIERS & set(labels_of(test)) and not test["name"].endswith("_NOT_BUILT")]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=Path, help="a build directory with its programs")
    build = parser.parse_args().build.resolve()
    shown = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], check=True,
                           stdout=subprocess.PIPE, text=True).stdout
    tests = json.loads(shown)["tests"]
    found = filters_of_programs(tests, build / "bin")
    total, failures = 0, len(without_tier(tests))
    root = Path(__file__).resolve().parents[2]
    for name in left_out(root, set(compiled_sources(build))):
        print(f"{name}: error: no CMakeLists.txt names this source of tests")
        failures += 1
    for name in without_test(build, found):
        print(f"{name}: error: no test starts this program")
        failures += 1
    for name in without_tier(tests):
        print(f"{name}: error: it has none of the labels {', '.join(sorted(TIERS))}")
    for program, texts in sorted(found.items()):
        listing = subprocess.run([program, "--gtest_list_tests"], check=True,
                                 stdout=subprocess.PIPE, text=True).stdout
        cases = list(case_names(listing))
        total += len(cases)
        missing = left_to_nobody(cases, texts)
        failures += len(missing)
        for case in missing[:SHOWN_MAX]:
            print(f"{Path(program).name}: error: no test runs {case}: name its suite in a filter "
                  "of a CMakeLists.txt, or configure anew")
        if len(missing) > SHOWN_MAX:
            print(f"{Path(program).name}: error: and {len(missing) - SHOWN_MAX} more")
    print(f"check_cases: {len(tests)} tests, {total} cases of {len(found)} programs, {failures} "
          "that no run has")
    return 1 if failures or not found else 0


if __name__ == "__main__":
    sys.exit(main())

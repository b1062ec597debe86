#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Runs tests of UCX's own gtest program over the driver face of the virtual HCA, and counts them.

    contrib/ucx_gtest.py --gtest UCX_BUILD/test/gtest/gtest

Needs a build of UCX with its tests (vhca/docs/programs.md says how to make one, under
"UCX's own tests") and a built launcher. The groups of tests, and the failures that are expected
with their reasons, are in ucx_gtest_cases.py. A test that is skipped counts as not run. When the
program crashes or hangs, the test that ran has failed, and the others are run by a new program.

Exit status: 1, a test failed that is not expected to; 2, nothing could be run.
"""
import argparse
import collections
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field

import ucx_gtest_cases as cases

BATCH = 60  # tests of one program: names are passed as one argument
LIMIT_S = 300  # by default, UCX's watchdog ends a test that takes longer
LOGGED_LINES = 40

BUILT = pathlib.Path(__file__).resolve().parent.parent / "build/release/bin/tagwire-vhca"
LIST_SUITE = re.compile(r"^(\S+)\.\s*(#.*)?$")
LIST_CASE = re.compile(r"^  (\S+)")
RUN = re.compile(r"^\[ RUN      \] (\S+)")
SKIP = re.compile(r"^\[     SKIP \] ?\(?(.*?)\)?$")
OK = re.compile(r"^\[       OK \] (\S+)")
FAILED = re.compile(r"^\[  FAILED  \] (\S+?),? ")


@dataclass
class Result:
    state: str  # passed, failed, skipped
    reason: str = ""
    log: list = field(default_factory=list)


class Program:
    """UCX's gtest under the launcher."""

    def __init__(self, given):
        self.gtest, self.launcher = os.path.abspath(given.gtest), os.path.abspath(given.launcher)
        self.seed, self.limit_s, self.is_verbose = given.seed, given.limit, given.verbose

    def words(self, group, arguments):
        return [self.launcher, "run", "--driver", "mlx5", *group.options, "--", self.gtest,
                *arguments]

    def environment(self, group):
        # A hang or a crash is to end the program with a stack, not to wait for a debugger.
        return {**os.environ, "UCX_HANDLE_ERRORS": "bt", "UCX_LOG_PRINT_ENABLE": "n",
                **group.environment}

    def listed(self, group):
        done = subprocess.run(
            self.words(group, ["--gtest_list_tests", f"--gtest_filter={group.filter}"]),
            env=self.environment(group), stdin=subprocess.DEVNULL, capture_output=True,
            text=True, errors="replace", check=False, timeout=300)
        if done.returncode != 0:
            raise NothingRun(f"{self.gtest} does not list its tests: {done.stderr.strip()}")
        names, suite = [], ""
        for line in done.stdout.splitlines():
            if found := LIST_CASE.match(line):
                names.append(f"{suite}.{found[1]}")
            elif found := LIST_SUITE.match(line):
                suite = found[1]
        return names

    def run(self, group, names, results):
        """Until the program ends; what it got to is in `results`."""
        arguments = ["--gtest_filter=" + ":".join(names), "-t", str(self.limit_s)]
        if self.seed:
            arguments += ["-s", str(self.seed)]
        process = subprocess.Popen(
            self.words(group, arguments), env=self.environment(group), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
            start_new_session=True)
        try:
            follow(process, results, self.is_verbose)
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()


def follow(process, results, is_verbose):
    """Until the program ends: what each test comes to."""
    name, lines, skipped = "", [], None

    def note(state, reason=""):
        nonlocal name
        results[name] = Result(state, reason, lines)
        if is_verbose:
            print(f"{state} {name} {reason}", file=sys.stderr, flush=True)
        name = ""

    for line in map(str.rstrip, process.stdout):
        if found := RUN.match(line):
            name, lines, skipped = found[1], [], None
        elif not name:
            continue
        elif found := SKIP.match(line):
            skipped = found[1] or "no reason given"
        elif OK.match(line):
            note("passed" if skipped is None else "skipped", skipped or "")
        elif FAILED.match(line + " "):
            note("failed")
        else:
            lines.append(line)
    status = process.wait()
    if name:
        note("failed", f"the program ended with status {status}")


class NothingRun(Exception):
    """Nothing could be run."""


def run_group(program, group):
    names, results = program.listed(group), {}
    rest = list(names)
    while rest:
        before = len(results)
        program.run(group, rest[:BATCH], results)
        if len(results) == before:
            raise NothingRun(f"{program.gtest} ran none of {rest[0]} and {len(rest) - 1} others")
        rest = [name for name in rest if name not in results]
    return results


def judge(results):
    """Prints what failed. Tests that failed and are not expected to."""
    unexpected = []
    for name, result in results.items():
        if result.state != "failed":
            continue
        reason = cases.expected_failure(name)
        if reason is None:
            unexpected.append(name)
            print(f"FAILED {name} {result.reason}")
            print("\n".join(f"    {line}" for line in result.log[-LOGGED_LINES:]))
        else:
            print(f"failed as expected: {name}: {reason}")
    return unexpected


def table(counted):
    print("\n| group | tests | passed | failed | of these expected | skipped |")
    print("|---|---|---|---|---|---|")
    for group, results, unexpected in counted:
        states = collections.Counter(result.state for result in results.values())
        print(f"| {group.title} | {len(results)} | {states['passed']} | {states['failed']} "
              f"| {states['failed'] - len(unexpected)} | {states['skipped']} |")
    skipped = collections.Counter(
        (group.name, result.reason) for group, results, _ in counted
        for result in results.values() if result.state == "skipped")
    if skipped:
        print("\nskipped, by the program's own words:")
    for (name, reason), count in skipped.most_common():
        print(f"  {count:4} {name}: {reason}")


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gtest", required=True, help="gtest program of a build of UCX")
    parser.add_argument("--launcher", default=str(BUILT), help="tagwire-vhca; default: %(default)s")
    parser.add_argument("--group", action="append", choices=[group.name for group in cases.GROUPS],
                        help="only this one; may be given more than once")
    parser.add_argument("--filter", help="of gtest, instead of the group's own")
    parser.add_argument("--seed", type=int, help="of UCX's random numbers")
    parser.add_argument("--limit", type=int, default=LIMIT_S, metavar="SECONDS",
                        help="of one test; default: %(default)s")
    parser.add_argument("--verbose", action="store_true", help="tell of each test at once")
    given = parser.parse_args()
    for path, build in (
            (given.gtest, "build UCX with --enable-gtest, see vhca/docs/programs.md"),
            (given.launcher, "build the target tagwire-vhca, or name one by --launcher")):
        if shutil.which(path) is None:
            raise NothingRun(f"{path} is no program: {build}")
    return given


def main():
    try:
        given = parse()
        program = Program(given)
        counted = []
        for group in cases.GROUPS:
            if given.group is None or group.name in given.group:
                chosen = group.with_filter(given.filter) if given.filter else group
                results = run_group(program, chosen)
                counted.append((chosen, results, judge(results)))
    except NothingRun as error:
        print(f"ucx_gtest.py: {error}", file=sys.stderr)
        return 2
    if not any(results for _, results, _ in counted):
        print(f"ucx_gtest.py: {given.gtest} has none of the tests", file=sys.stderr)
        return 2
    table(counted)
    return 1 if any(unexpected for _, _, unexpected in counted) else 0


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="ucx-gtest-") as folder:
        # Nobody else's devices are in the same folder.
        os.environ["XDG_RUNTIME_DIR"] = folder
        STATUS = main()
    sys.exit(STATUS)

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Compares tagwire with UCX on this machine, in one run, against the performance budget.

Usage: compare.py --bin DIR --out DIR [--rounds N] [--rows WORD] [--no-instructions]

DIR holds the built `tagwire` and `instr_messages`. Results go to OUT/compare.json and
OUT/compare.txt. How to read them: docs/reference/perf.md. UCX is `ucx_perftest` from the path;
TAGWIRE_BENCH_UCX names one more, as a binary or as the prefix of an installation.

The two CPUs of a shared machine are sometimes near and sometimes far, so a reading counts only when
the cache line floor before and after it agrees within 10 %, and only readings of one round are
compared with each other. A round is: floor, ours, floor, UCX's, floor for every row. Rounds go on
until every row has enough of them that count.
"""
import argparse
import ctypes
import json
import os
import platform
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

import instructions
from compare_rows import budget_rows, messaging_rows

FLOOR_AGREES = 0.10
ROUNDS = 9
ROUNDS_MAX_FACTOR = 5
FAR_FLOOR_NS = 100  # between the two regimes: about 40 to 60 ns near, 150 to 250 ns far
TIMEOUT_S = 120
PORT_FIRST = 13400


class Skip(Exception):
    """A reading that could not be taken."""


def run(command, environment=None):
    result = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S,
                            env={**os.environ, **(environment or {})}, check=False)
    if result.returncode != 0:
        told = result.stderr.strip() or result.stdout.strip()
        raise Skip(f"{' '.join(map(str, command))}: {told}")
    return result.stdout


class Tagwire:
    def __init__(self, bin_directory, cpus):
        self.command = Path(bin_directory) / "tagwire"
        self.cpus = cpus

    def perf(self, test, arguments=(), environment=None):
        command = [self.command, "perf", test, *arguments, "--cpu", self.cpus, "--json", "-"]
        output = run(command, environment)
        return json.loads(output)["results"][0]

    def floor(self):
        """One-way nanoseconds of a cache line, lowest variant."""
        return self.perf("cacheline", ["--iters", "2048", "--warmup", "256"])["latency_ns"]["p50"]

    def memcpy(self, size):
        result = self.perf("memcpy", ["--size", str(size), "--iters", "640"])
        return size / result["latency_ns"]["p50"] * 1e9


def die_with_parent():
    """Between fork and exec: a server does not outlive an interrupted comparison."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class Ucx:
    """ucx_perftest as two processes on the same two CPUs. `launcher`: what starts it."""

    def __init__(self, binary, cpus, launcher=()):
        self.binary = str(binary)
        self.launcher = launcher
        self.cpus = cpus.split(",")
        self.port = PORT_FIRST
        library = Path(self.binary).parent.parent / "lib"
        self.environment = {"UCX_LOG_LEVEL": "error", "UCX_WARN_UNUSED_ENV_VARS": "n"}
        if Path(self.binary) != Path(shutil.which("ucx_perftest") or "") and library.is_dir():
            self.environment["LD_LIBRARY_PATH"] = str(library)

    def version(self):
        info = Path(self.binary).with_name("ucx_info")
        try:
            found = re.search(r"[Vv]ersion:?\s+([\d.]+)", run([info, "-v"], self.environment))
        except (OSError, Skip):
            found = None
        return found.group(1) if found else "unknown"

    def measure(self, arguments, environment):
        """(median latency in ns, messages per second)"""
        self.port += 1
        start = [*map(str, self.launcher), self.binary]
        command = ["-f", "-p", str(self.port), *arguments]
        variables = {**os.environ, **self.environment, **environment}
        server = subprocess.Popen([*start, *command, "-c", self.cpus[-1]], env=variables,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                  preexec_fn=die_with_parent)
        client_command = [*start, "localhost", *command, "-c", self.cpus[0]]
        try:
            for _ in range(20):
                time.sleep(0.1)  # until the server listens: connecting to find out would use it up
                client = subprocess.run(client_command, env=variables, capture_output=True,
                                        text=True, timeout=TIMEOUT_S, check=False,
                                        preexec_fn=die_with_parent)
                if client.returncode == 0:
                    return self.parse(client.stdout)
                if server.poll() is not None:
                    break
            raise Skip(f"{self.binary} {' '.join(command)}: {client.stderr.strip()[-200:]}")
        finally:
            server.kill()
            server.wait()

    @staticmethod
    def parse(output):
        for line in reversed(output.splitlines()):
            numbers = re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.%])", line)
            if len(numbers) >= 8:
                return float(numbers[1]) * 1000, float(numbers[-1])
        raise Skip("ucx_perftest printed no result")


def take_round(row, tagwire, ucx, others):
    """One reading of everything that belongs to the row, each between two floors."""
    floors = [tagwire.floor()]

    def bracketed(read):
        value = read()
        floors.append(tagwire.floor())
        return value

    ours, above = bracketed(lambda: row.ours(tagwire))
    reading = {"ours": ours, "above": above, "ucx": None, "others": {}, "reference": None}
    if row.reference:
        reading["reference"] = bracketed(lambda: row.reference(tagwire))
    if row.theirs:
        arguments, environment, index, size = row.theirs

        def theirs(program):
            value = program.measure(arguments, environment)[index]
            return value * size if size else value

        if ucx:
            reading["ucx"] = bracketed(lambda: theirs(ucx))
        for name, program in others.items():
            reading["others"][name] = bracketed(lambda program=program: theirs(program))
    reading["floors"] = floors
    reading["floor"] = statistics.median(floors)
    reading["counts"] = max(floors) - min(floors) <= FLOOR_AGREES * min(floors)
    return reading


def regime(reading):
    return "far" if reading["floor"] >= FAR_FLOOR_NS else "near"


def kept(row, of_regime=None):
    return [r for r in row.readings if r["counts"] and of_regime in (None, regime(r))]


def measure(rows, tagwire, ucx, others, rounds):
    problems = {}
    for number in range(1, rounds * ROUNDS_MAX_FACTOR + 1):
        missing = [row for row in rows if len(kept(row)) < rounds and row.name not in problems]
        if not missing:
            break
        for row in missing:
            try:
                row.readings.append(take_round(row, tagwire, ucx, others))
            except (Skip, subprocess.TimeoutExpired, OSError) as problem:
                problems[row.name] = str(problem)
                print(f"compare: {row.name}: {problem}", file=sys.stderr)
        if sys.stderr.isatty():
            done = ", ".join(str(len(kept(row))) for row in rows)
            print(f"\rround {number}: {done} of {rounds} readings count \033[K", end="",
                  file=sys.stderr)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    return problems


def show(value, unit):
    if value is None:
        return "-"
    if unit == "ns":
        return f"{value:.1f} ns" if value < 1e4 else f"{value / 1e3:.1f} us"
    if unit == "/s":
        return f"{value / 1e6:.2f} M/s"
    return f"{value / 1e9:.2f} GB/s"


def middle(readings, key):
    values = [r[key] for r in readings if r[key] is not None]
    return statistics.median(values) if values else None


def middle_of_other(readings, name):
    values = [r["others"][name] for r in readings if name in r["others"]]
    return statistics.median(values) if values else None


def verdict(goal, readings):
    judged = goal.judge(readings)
    if judged is None:
        return "not measured"
    value, met = judged
    word = "met" if met else "MISSED"
    if goal.kind == "above":
        by = "" if met else f", {value - goal.limit:.1f} ns too much"
        return f"{word}: {goal.text()}, is {value:+.1f} ns{by}"
    by = "" if met else f", needs {goal.limit:g}"
    return f"{word}: {goal.text()}, is {value:.2f} x{by}"


def table(rows, others):
    lines = []
    head = ["what", "regime", "rounds", "floor", "ours", "UCX", *others, "reference"]
    cells = [head]
    notes = {}
    for row in rows:
        for name in ("near", "far"):
            readings = kept(row, name)
            if not readings:
                continue
            notes[len(cells)] = [verdict(goal, readings) for goal in row.goal]
            cells.append([row.name, name, str(len(readings)),
                          show(middle(readings, "floor"), "ns"),
                          show(middle(readings, "ours"), row.unit),
                          show(middle(readings, "ucx"), row.unit),
                          *(show(middle_of_other(readings, other), row.unit) for other in others),
                          show(middle(readings, "reference"), row.unit)])
    widths = [max(len(line[i]) for line in cells) for i in range(len(head))]
    for number, line in enumerate(cells):
        padded = [line[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(line[1:], widths[1:]))]
        lines.append("  ".join(padded))
        lines += ["    " + note for note in notes.get(number, [])]
    return lines


def to_json(rows, problems, counts, ucx, others, tagwire):
    host = {"cpu": cpu_model(), "kernel": platform.release(), "cores": os.cpu_count()}
    document = {"schema": 1, "host": host,
                "tagwire": run([tagwire.command, "--version"]).split()[-1],
                "ucx": ucx.version() if ucx else None,
                "others": {name: program.version() for name, program in others.items()}, "rows": [],
                "instructions": counts}
    for row in rows:
        entry = {"name": row.name, "unit": row.unit, "problem": problems.get(row.name),
                 "regimes": {}, "readings": row.readings}
        for name in ("near", "far"):
            readings = kept(row, name)
            if readings:
                goals = []
                for goal in row.goal:
                    value, met = goal.judge(readings) or (None, None)
                    goals.append({"target": goal.text(), "value": value, "met": met})
                keys = ("floor", "ours", "above", "ucx", "reference")
                entry["regimes"][name] = {"rounds": len(readings), "goals": goals,
                                          **{key: middle(readings, key) for key in keys}}
        document["rows"].append(entry)
    return document


def cpu_model():
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()


def other_ucx(cpus):
    place = os.environ.get("TAGWIRE_BENCH_UCX")
    if not place:
        return {}
    binary = Path(place)
    if binary.is_dir():
        binary = binary / "bin" / "ucx_perftest"
    if not os.access(binary, os.X_OK):
        sys.exit(f"compare: TAGWIRE_BENCH_UCX={place}: no ucx_perftest there")
    program = Ucx(binary, cpus)
    return {f"UCX {program.version()}": program}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--bin", required=True, help="directory of the built programs")
    parser.add_argument("--out", required=True, help="directory for compare.json and compare.txt")
    parser.add_argument("--rounds", type=int, default=ROUNDS,
                        help="readings that must count (%(default)s)")
    parser.add_argument("--rows", default="", help="only rows whose name contains this")
    parser.add_argument("--no-instructions", action="store_true", help="do not count instructions")
    arguments = parser.parse_args()

    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        sys.exit("compare: two cpus are needed, otherwise the two sides take turns on one")
    cpus = f"{allowed[0]},{allowed[1]}"
    tagwire = Tagwire(arguments.bin, cpus)
    found = shutil.which("ucx_perftest")
    ucx = Ucx(found, cpus) if found else None
    if ucx is None:
        print("compare: no ucx_perftest here (package ucx-utils): only ours is measured",
              file=sys.stderr)
    others = other_ucx(cpus)
    rows = [row for row in budget_rows() + messaging_rows() if arguments.rows in row.name]
    problems = measure(rows, tagwire, ucx, others, arguments.rounds)
    counts = None
    if not arguments.no_instructions:
        counts = instructions.attempt(instructions.sm, arguments.bin)
    if isinstance(counts, str):
        problems["instructions"], counts = counts, None

    lines = table(rows, others)
    lines += [f"{name}: not measured: {problem}" for name, problem in problems.items()]
    if counts:
        lines += ["", "instructions of the library per 8-byte message (callgrind, loopback):"]
        lines += [f"    {name.replace('_', ' '):24} {value:8.1f}"
                  for name, value in counts.items() if value]
    out = Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    text = "\n".join(lines) + "\n"
    (out / "compare.txt").write_text(text, encoding="utf-8")
    document = to_json(rows, problems, counts, ucx, others, tagwire)
    (out / "compare.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    print(text, end="")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

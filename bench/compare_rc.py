#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Compares rc with bare verbs, perftest and UCX on one device, and dc with rc, in one run.

Usage: compare_rc.py --bin DIR --out DIR [--rounds N] [--rows WORD] [--no-instructions]

DIR holds the built programs. Results go to OUT/rc.json and OUT/rc.txt. The device is the virtual
HCA, on which all programs run; ours opens it by itself, the others are started by `tagwire vhca
run`. As in compare.py a reading is bracketed by the cache line floor and counts only when the
floors of its round agree within 25 %; ratios are taken within each round, and their median is
judged. The UCX is the newest of those in the path and in TAGWIRE_BENCH_UCX.
"""
import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import report_folder  # first: it finds the peers
import compare
import instructions
import rounds
from rounds import show
from ucx_peer import TIMEOUT_S, Skip, die_with_parent, installations_here, is_listening, run

DEVICE = "vhca0"
UCX_DEVICE = "vhca0:1"
MIB = 1 << 20
PERFTEST_PORT = 19400


class Perftest:
    """ib_send_lat and the like, as two pinned processes."""

    def __init__(self, launcher, cpus):
        self.launcher = [str(word) for word in launcher]
        self.cpus = cpus.split(",")
        self.port = PERFTEST_PORT

    def command(self, program, arguments, cpu):
        if shutil.which(program) is None:
            raise Skip(f"{program} is not installed (package perftest)")
        return [*self.launcher, "taskset", "-c", cpu, program, "-d", DEVICE, "-F", "-p",
                str(self.port), *arguments]

    def measure(self, program, arguments):
        """The words of the line of figures that the client prints."""
        self.port += 1
        server = subprocess.Popen(self.command(program, arguments, self.cpus[-1]),
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                  preexec_fn=die_with_parent)
        try:
            deadline = time.monotonic() + TIMEOUT_S
            while not is_listening(self.port):
                if server.poll() is not None or time.monotonic() > deadline:
                    raise Skip(f"{program}: the server did not start")
                time.sleep(0.02)
            output = run(
                [*self.command(program, arguments, self.cpus[0]), "127.0.0.1"])
        finally:
            server.kill()
            server.wait()
        rows = [line.split() for line in output.splitlines()
                if re.fullmatch(r"[\s\d.+\-e]+", line) and len(line.split()) >= 4]
        if not rows:
            raise Skip(f"{program} printed no figures")
        return rows[-1]

    def latency(self, program, size, count):
        """Half the round trip in ns, the median of single ones."""
        return float(self.measure(program, ["-s", str(size), "-n", str(count)])[4]) * 1000

    def bandwidth(self, program, size, count):
        """Bytes per second; perftest's MB are MiB."""
        return float(self.measure(program, ["-s", str(size), "-n", str(count)])[3]) * MIB


class Bench:
    """Everything that is read."""

    def __init__(self, bin_directory, cpus):
        self.bin = Path(bin_directory)
        self.cpus = cpus
        self.tagwire = compare.Tagwire(bin_directory, cpus)
        launcher = [self.tagwire.command, "vhca", "run", "--"]
        self.launcher = launcher
        self.perftest = Perftest(launcher, cpus)
        found = installations_here(cpus)
        self.ucx = found[0].with_launcher(launcher) if found else None  # the newest
    def over(self, transport, test, *arguments, environment=None):
        words = ["--tl", transport, "--device", DEVICE, *arguments]
        return self.tagwire.perf(test, words, environment)

    def rc(self, test, *arguments, environment=None):
        return self.over("rc", test, *arguments, environment=environment)

    def raw_tag(self, count):
        """Half the round trip in ns of bare verbs with tag matching."""
        output = run([*self.launcher, self.bin / "raw_tm_pingpong", "--device", DEVICE,
                              "--iters", str(count), "--cpu", self.cpus])
        found = re.search(r"median ([\d.]+) ns", output)
        if not found:
            raise Skip("raw_tm_pingpong printed no figure")
        return float(found[1])

    def ucx_latency(self, size, count):
        """Of active messages over rc_verbs."""
        if self.ucx is None:
            raise Skip("ucx_perftest is not installed (package ucx-utils)")
        layout = "short" if size == 8 else "bcopy"
        arguments = ["-t", "am_lat", "-x", "rc_verbs", "-d", UCX_DEVICE, "-D", layout, "-s",
                     str(size), "-n", str(count)]
        return self.ucx.measure(arguments, {})[0]


class Row:
    """What is read, and what it is compared with.

    ours, theirs: functions(bench) -> value; theirs by name
    goals: (name, "<=" or "<" or ">=", limit of ours / theirs)
    """

    def __init__(self, name, unit, ours, theirs, goals):
        self.name = name
        self.unit = unit
        self.ours = ours
        self.theirs = theirs
        self.goals = goals
        self.readings = []


def latency(test, *arguments, transport="rc"):
    return lambda bench: bench.over(transport, test, *arguments)["latency_ns"]["p50"]


def bandwidth(test, *arguments, environment=None):
    return lambda bench: bench.rc(test, *arguments, environment=environment)["bytes_per_s"]


def send_bw(bench):
    return bench.perftest.bandwidth("ib_send_bw", 64 << 10, 20000)


def all_rows():
    short = ["--op", "short", "--iters", "40000"]
    packed = ["--op", "bcopy", "--size", "4k", "--iters", "20000"]
    zcopy = ["--op", "zcopy", "--size", "64k", "--iters", "20000"]
    # Buffers for messages as long as ib_send_bw's, and as many.
    long_am = {"TAGWIRE_RC_SEG_BYTES": "66k", "TAGWIRE_RC_RX_DEPTH": "512"}
    rndv = ["--op", "rndv", "--size", "1m", "--iters", "2000"]
    return [
        Row("AM short 8 B, p50", "ns", latency("am_lat", *short),
            {"ib_send_lat": lambda b: b.perftest.latency("ib_send_lat", 8, 40000),
             "UCX rc_verbs": lambda b: b.ucx_latency(8, 40000)},
            [("ib_send_lat", "<=", 1.10), ("UCX rc_verbs", "<=", 0.95)]),
        Row("AM 4 KiB, p50", "ns", latency("am_lat", *packed),
            {"UCX rc_verbs": lambda b: b.ucx_latency(4096, 20000)},
            [("UCX rc_verbs", "<=", 0.95)]),
        Row("AM short 8 B over dc, p50", "ns", latency("am_lat", *short, transport="dc"),
            {"rc": latency("am_lat", *short)}, [("rc", "<=", 1.10)]),
        Row("AM 4 KiB over dc, p50", "ns", latency("am_lat", *packed, transport="dc"),
            {"rc": latency("am_lat", *packed)}, [("rc", "<=", 1.10)]),
        Row("tag short 8 B, p50", "ns", latency("tag_lat", *short),
            {"bare verbs": lambda b: b.raw_tag(40000)}, [("bare verbs", "<=", 1.10)]),
        Row("64 KiB zcopy, active message", "B/s", bandwidth("am_bw", *zcopy, environment=long_am),
            {"ib_send_bw": send_bw}, [("ib_send_bw", ">=", 0.95)]),
        Row("64 KiB zcopy, put", "B/s", bandwidth("put_bw", *zcopy), {"ib_send_bw": send_bw},
            [("ib_send_bw", ">=", 0.95)]),
        Row("1 MiB rendezvous", "B/s", bandwidth("tag_bw", *rndv),
            {"ib_read_bw": lambda b: b.perftest.bandwidth("ib_read_bw", MIB, 2000)},
            [("ib_read_bw", ">=", 0.95)]),
    ]


def take_round(row, bench):
    """One reading of everything that belongs to the row, each between two floors."""
    floors = [bench.tagwire.floor()]
    reading = {"ours": row.ours(bench), "theirs": {}}
    floors.append(bench.tagwire.floor())
    for name, read in row.theirs.items():
        reading["theirs"][name] = read(bench)
        floors.append(bench.tagwire.floor())
    return rounds.with_floors(reading, floors)


def measure(rows, bench, count):
    problems = {}
    for _ in range(count * rounds.ATTEMPTS_FACTOR):
        missing = [row for row in rows
                   if len(rounds.kept(row)) < count and row.name not in problems]
        for row in missing:
            try:
                row.readings.append(take_round(row, bench))
            except (Skip, subprocess.TimeoutExpired, OSError) as problem:
                problems[row.name] = str(problem)
        if not missing:
            break
    return problems


def judge(row, readings):
    """[(goal, median ratio, met)]"""
    judged = []
    for name, relation, limit in row.goals:
        ratio = statistics.median(r["ours"] / r["theirs"][name] for r in readings)
        met = {"<": ratio < limit, "<=": ratio <= limit, ">=": ratio >= limit}[relation]
        judged.append((f"{relation} {limit:g} x {name}", ratio, met))
    return judged


def summary(row):
    """Medians of the readings that count, by how far the CPUs were from each other."""
    regimes = {}
    for regime in ("near", "far"):
        readings = rounds.kept(row, regime)
        if not readings:
            continue
        regimes[regime] = {
            "rounds": len(readings), "floor": statistics.median(r["floor"] for r in readings),
            "ours": statistics.median(r["ours"] for r in readings),
            "theirs": {name: statistics.median(r["theirs"][name] for r in readings)
                       for name in row.theirs},
            "goals": [{"target": goal, "value": ratio, "met": met}
                      for goal, ratio, met in judge(row, readings)]}
    return regimes


def lines_of(row):
    lines = []
    for regime, found in summary(row).items():
        theirs = ", ".join(f"{name} {show(value, row.unit)}"
                           for name, value in found["theirs"].items())
        floor = show(found["floor"], "ns")
        lines.append(f"{row.name} ({regime}, {found['rounds']} rounds, floor {floor}): "
                     f"ours {show(found['ours'], row.unit)}, {theirs}")
        lines += [f"    {'met' if goal['met'] else 'MISSED'}: {goal['target']}, is "
                  f"{goal['value']:.2f} x" for goal in found["goals"]]
    return lines or [f"{row.name}: no round counts: the floor moved"]


def write_results(out, rows, problems, counts, ucx):
    lines = [rounds.host_line(), *([f"beside {ucx}"] if ucx else [])]
    lines += [line for row in rows if row.name not in problems for line in lines_of(row)]
    lines += [f"{name}: not measured: {problem}" for name, problem in problems.items()]
    if counts:
        lines += ["", *instructions.table(counts)]
    document = {"schema": 1, "device": DEVICE, "ucx": ucx, "problems": problems,
                "instructions": counts,
                "host": rounds.host(),
                "rows": [{"name": row.name, "unit": row.unit, "regimes": summary(row),
                          "readings": row.readings} for row in rows]}
    out.mkdir(parents=True, exist_ok=True)
    text = "\n".join(lines) + "\n"
    (out / "rc.txt").write_text(text, encoding="utf-8")
    (out / "rc.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    print(text, end="")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--bin", required=True, help="directory of the built programs")
    parser.add_argument("--out", required=True, help="directory for rc.json and rc.txt")
    parser.add_argument("--rounds", type=int, default=compare.ROUNDS,
                        help="readings that must count (%(default)s)")
    parser.add_argument("--rows", default="", help="only rows whose name contains this")
    parser.add_argument("--no-instructions", action="store_true", help="do not count instructions")
    arguments = parser.parse_args()
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        sys.exit("compare_rc: two cpus are needed, otherwise the two sides take turns on one")
    bench = Bench(arguments.bin, f"{allowed[0]},{allowed[1]}")
    rows = [row for row in all_rows() if arguments.rows in row.name]
    problems = measure(rows, bench, arguments.rounds)
    counts = None if arguments.no_instructions else instructions.columns(arguments.bin, UCX_DEVICE)
    write_results(Path(arguments.out), rows, problems, counts,
                  bench.ucx.name if bench.ucx else None)
    unsettled = [row.name for row in rows if row.name not in problems and not summary(row)]
    return 1 if problems or unsettled else 0


if __name__ == "__main__":
    sys.exit(main())

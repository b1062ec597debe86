#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Compares threads that send 8-byte messages over sm: with one thread, and with UCX.

Usage: threads.py --list
       threads.py --bin DIR --out DIR [--rounds N] [--both] [--seconds N] [--no-instructions]

DIR holds the built `tagwire`, `bench_sends`, `ucp_threads` and `instr_msg`. Results go to
OUT/threads.json and OUT/threads.txt. UCX is each ucx_perftest of the path and of TAGWIRE_BENCH_UCX;
`ucp_threads` measures its library in the arrangements that ucx_perftest has not. How to read the
results: docs/reference/perf.md.

A round takes all arrangements in turn, each between two floors. A row is the ratio of two of them
in one round; it counts where their four floors agree within 25 %.
"""
import argparse
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import report_folder  # first: it finds the peers
import compare
import instructions
import rounds
import ucx_peer
from rounds import REGIMES, columns, show
from ucx_peer import Skip, Unsupported, run

SCHEMA = 1
POLLERS = 15
SECONDS = 0.3
COUNT = 1000000  # of ucx_perftest, which cannot be told seconds
# Many turns of its processor: what seconds find by probes may fit into one, without the pollers.
BESIDE_POLLERS = ("--iters", "2000000", "--warmup", "10000")
COUNT_UNDER_VALGRIND = 2000
AHEAD = 1.05
UCP_OBJECTS = r"/(libucp|libuct|libuct_[a-z]+|libucs|libucs_[a-z]+)\.so"
UCX_SETTINGS = {"UCX_TLS": "posix,cma"}


class Way:
    """An arrangement of threads; `read()` returns {"rate": .., "by_cpu": .. or None}, messages per
    second of all threads together: of time, and of the processor time of each."""

    def __init__(self, name, read):
        self.name = name
        self.read = read


class Row:
    """`figure` of way `ours` over that of way `other`, in one round. `at_least`: None without a
    target."""

    def __init__(self, name, ours, other, at_least, figure="rate"):
        self.name = name
        self.ours = ours
        self.other = other
        self.at_least = at_least
        self.figure = figure

    def pairs(self, readings, regime=None):
        """[(ours, other, floor)] of the rounds that count in this regime; None: of all rounds."""
        found = []
        for one in readings:
            values = [one["values"].get(way, {}).get(self.figure)
                      for way in (self.ours, self.other)]
            if not all(values):
                continue
            floors = one["floors_of"][self.ours] + one["floors_of"][self.other]
            floor = statistics.median(floors)
            if regime is None or (rounds.agree(floors) and rounds.regime_of(floor) == regime):
                found.append((*values, floor))
        return found

    def summary(self, readings, regime=None):
        """Medians; None without a reading."""
        pairs = self.pairs(readings, regime)
        if not pairs:
            return None
        ratio = statistics.median(ours / other for ours, other, _ in pairs)
        ours, other, floor = (statistics.median(column) for column in zip(*pairs))
        met = None if self.at_least is None or regime is None else ratio >= self.at_least
        return {"rounds": len(pairs), "floor": floor, "ours": ours, "other": other, "ratio": ratio,
                "met": met}


# ---- What is measured

def ours(name, tagwire, *words, length=("--seconds", str(SECONDS))):
    def read():
        found = tagwire.perf("tag_rate", ["--level", "msg", *length, *words],
                             {"TAGWIRE_TRANSPORTS": "sm"})
        return {"rate": found["messages_per_s"],
                "by_cpu": sum(found["thread_messages_per_cpu_s"])}
    return Way(name, read)


def our_ways(tagwire):
    poll = ("--threads", "1", "--share", "worker", "--pollers", str(POLLERS), "--wait")
    return [
        ours("1 thread", tagwire, "--threads", "1"),
        ours("2 threads, a worker each", tagwire, "--threads", "2"),
        ours("2 threads, one worker", tagwire, "--threads", "2", "--share", "worker"),
        ours("1 thread, one worker", tagwire, "--threads", "1", "--share", "worker"),
        ours("beside pollers", tagwire, *poll, "spin", length=BESIDE_POLLERS),
        ours("beside pollers that yield", tagwire, *poll, "yield", length=BESIDE_POLLERS),
        ours("1 thread, between", tagwire, "--threads", "1", "--between"),
        ours("2 threads, one worker, between", tagwire, "--threads", "2", "--share", "worker",
             "--between"),
    ]


def parse_bench_sends(printed, way):
    """The median of this way, in millions."""
    found = re.search(rf"^{way} +(\d+\.\d+) M/s ", printed, re.MULTILINE)
    if found is None:
        raise Skip("bench_sends printed no result")
    return {"rate": float(found[1]) * 1e6, "by_cpu": None}


def sends(name, bin_directory, way):
    program = Path(bin_directory) / "bench_sends"
    return Way(name, lambda: parse_bench_sends(run([program, way]), way))


def sending_ways(bin_directory):
    """Threads that only send, as long as their messages fit into the rings."""
    return [sends("1 thread, sends alone", bin_directory, "multi"),
            sends("2 threads, 2 transmit contexts, sends alone", bin_directory, "contexts")]


def parse_ucp_threads(printed):
    figures = {words[0]: [float(word) for word in words[1:]]
               for words in map(str.split, printed.splitlines()) if words}
    try:
        return {"rate": figures["messages_per_s"][0], "by_cpu": sum(figures["by_cpu_time"])}
    except (KeyError, IndexError) as problem:
        raise Skip("ucp_threads printed no result") from problem


def parse_perftest(printed):
    """The last line of numbers ends with the messages per second of all threads."""
    for line in reversed(printed.splitlines()):
        words = line.split()
        if len(words) > 2 and all(re.fullmatch(r"\d+(\.\d+)?", word) for word in words):
            return {"rate": float(words[-1]), "by_cpu": None}
    raise Skip("ucx_perftest printed no result")


def reason(problem):
    """What ucp_threads said, without the command."""
    return str(problem).rsplit("ucp_threads: ", maxsplit=1)[-1]


def ucp_threads(ucx, bin_directory, cpus, words):
    program = Path(bin_directory) / "ucp_threads"
    if not program.exists():
        raise Unsupported("ucp_threads was not built (package libucx-dev)")
    try:
        return parse_ucp_threads(run([program, *words.split(), f"{SECONDS}s", cpus],
                                     {**ucx.environment, **UCX_SETTINGS}))
    except Skip as problem:
        kind = Unsupported if "--enable-mt" in str(problem) else Skip
        raise kind(reason(problem)) from problem


def perftest(ucx, cpus, threads, mode):
    """One process that sends to itself, as ours: the threads of two would need a CPU each."""
    its_cpus = ",".join(cpus.split(",")[:threads])
    return parse_perftest(run([ucx.binary, "-l", "-f", "-t", "tag_bw", "-s", "8", "-n", str(COUNT),
                               "-T", str(threads), "-M", mode, "-c", its_cpus],
                              {**ucx.environment, **UCX_SETTINGS}))


def perftest_between(ucx):
    """Two processes with one thread each, which is what two processors are enough for."""
    _, rate = ucx.measure(["-t", "tag_bw", "-s", "8", "-n", str(COUNT), "-T", "1", "-M", "multi"],
                          UCX_SETTINGS)
    return {"rate": rate, "by_cpu": None}


def ucx_ways(ucx, bin_directory, cpus):
    def ucp(name, words):
        return Way(f"{ucx.name}: {name}", lambda: ucp_threads(ucx, bin_directory, cpus, words))

    def with_t(threads, mode):
        return Way(f"{ucx.name}: -T {threads} -M {mode}",
                   lambda: perftest(ucx, cpus, threads, mode))

    return [ucp("1 thread, single", "context single 1 0 spin"),
            ucp("1 thread", "context multi 1 0 spin"),
            ucp("2 threads, a worker each", "context multi 2 0 spin"),
            ucp("2 threads, one worker", "worker multi 2 0 spin"),
            ucp("beside pollers", f"worker multi 1 {POLLERS} spin"),
            ucp("beside pollers that yield", f"worker multi 1 {POLLERS} yield"),
            *(with_t(threads, mode) for threads in (1, 2) for mode in ("single", "multi")),
            Way(f"{ucx.name}: between, -T 1 -M multi", lambda: perftest_between(ucx))]


def our_rows():
    by_time = "by processor time"
    each, shared = "2 threads, a worker each", "2 threads, one worker"
    contexts = "2 threads, 2 transmit contexts"
    return [
        Row(f"{each} / 1 thread", each, "1 thread", 1.95),
        Row(f"{each} / 1 thread, {by_time}", each, "1 thread", 1.95, "by_cpu"),
        Row(f"{shared} / 1 thread", shared, "1 thread", 1.0),
        Row(f"{shared} / 1 thread, {by_time}", shared, "1 thread", None, "by_cpu"),
        Row(f"{shared} / 1 thread, between processes", f"{shared}, between", "1 thread, between",
            1.0),
        Row(f"{contexts} / 1 thread, sends alone", f"{contexts}, sends alone",
            "1 thread, sends alone", 1.4),
        Row(f"1 thread beside {POLLERS} pollers / alone, {by_time}", "beside pollers",
            "1 thread, one worker", 0.9, "by_cpu"),
        Row(f"1 thread beside {POLLERS} that yield / alone, {by_time}", "beside pollers that yield",
            "1 thread, one worker", 0.9, "by_cpu"),
    ]


def rows_beside(name):
    """`name`: of the installation of UCX."""
    each, shared = "2 threads, a worker each", "2 threads, one worker"
    same = [Row(f"{way} / {name}", way, f"{name}: {way}", AHEAD)
            for way in ("1 thread", each, shared)]
    beside = [Row(f"{way} / {name}, by processor time", way, f"{name}: {way}", AHEAD, "by_cpu")
              for way in ("1 thread", each, shared, "beside pollers", "beside pollers that yield")]
    return [Row(f"1 thread, multi / single of {name}", "1 thread", f"{name}: 1 thread, single",
                AHEAD),
            *same, *beside,
            *(Row(f"{way} / {name} -T {threads} -M {mode}", way,
                  f"{name}: -T {threads} -M {mode}", AHEAD)
              for threads, way in ((1, "1 thread"), (2, each)) for mode in ("single", "multi")),
            Row(f"1 thread, between / {name} -T 1 -M multi", "1 thread, between",
                f"{name}: between, -T 1 -M multi", AHEAD)]


class Session:
    """Takes rounds, and keeps why a way could not be measured."""

    name = "round"

    def __init__(self, tagwire, ways):
        self.tagwire = tagwire
        self.ways = ways
        self.readings = []
        self.absent = {}    # {way: why there is no such thing here}
        self.problems = {}  # {way: what failed}

    def take(self, _):
        values, floors_of = {}, {}
        last = self.tagwire.floor()
        for way in self.ways:
            if way.name in self.absent or way.name in self.problems:
                continue
            try:
                values[way.name] = way.read()
            except Unsupported as problem:
                self.absent[way.name] = str(problem)
            except (Skip, subprocess.TimeoutExpired, OSError) as problem:
                self.problems[way.name] = str(problem)[-600:]
                print(f"threads: {way.name}: {problem}", file=sys.stderr)
            now = self.tagwire.floor()
            floors_of[way.name] = [last, now]
            last = now
        first = self.ways[0].name
        self.readings.append(rounds.with_floors({"values": values, "floors_of": floors_of},
                                                floors_of.get(first, [last])))
        return first in values


# ---- Instructions

def counted(command, environment, objects):
    """Instructions in these objects of a whole run."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "callgrind.out"
        run(["valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={file}", *command],
            {**instructions.SETTINGS, **environment}, instructions.TIMEOUT_S)
        return instructions.Profile(file).of(objects)


def per_message(command_of, environment, objects):
    """`command_of(count)`: that sends so many messages; their difference is the messages' alone."""
    once = COUNT_UNDER_VALGRIND
    more, less = (counted(command_of(count), environment, objects) for count in (2 * once, once))
    return (more - less) / once


def count_instructions(bin_directory, installations, cpus):
    """{what: instructions of a message of 8 bytes, or the sentence why there are none}"""
    if shutil.which("valgrind") is None:
        return {}
    tagwire, program = Path(bin_directory) / "tagwire", Path(bin_directory) / "ucp_threads"
    messages = Path(bin_directory) / "instr_msg"
    counts = {}

    def count(name, function, *arguments):
        try:
            counts[name] = instructions.attempt(function, *arguments)
        except Skip as problem:
            counts[name] = reason(problem)

    for mode, place in (("single", ["sm"]), ("multi", ["sm", "multi"])):
        count(f"tagwire, {mode}",
              lambda where: instructions.count_all([], messages, where, instructions.OURS,
                                                   ("msg",))["msg_total"], place)
    cpu = cpus.split(",", maxsplit=1)[0]
    count("tagwire, 1 thread", per_message,
          lambda n: [tagwire, "perf", "tag_rate", "--level", "msg", "--threads", "1", "--tl", "sm",
                     "--iters", str(n), "--warmup", "0", "--cpu", cpu], {}, instructions.OURS)
    for ucx in installations if program.exists() else ():
        for mode in ("single", "multi"):
            # Its untimed messages are a tenth of the timed ones.
            count(f"{ucx.name}, 1 thread, {mode}", per_message_of_ucp, program, ucx, mode, cpu)
    return counts


def per_message_of_ucp(program, ucx, mode, cpu):
    return per_message(lambda n: [program, "context", mode, "1", "0", "spin", str(n * 10 // 11),
                                  cpu], {**ucx.environment, **UCX_SETTINGS}, UCP_OBJECTS)


# ---- Results

def table(rows, readings, regime):
    head = ["row" if regime else "all rounds, not judged", "n", "floor", "ours", "other", "ratio",
            "target", ""]
    lines = []
    for row in rows:
        found = row.summary(readings, regime)
        if found is None:
            continue
        limit = "-" if row.at_least is None else f">={row.at_least:.2f}"
        verdict = {None: "", True: "met", False: "MISSED"}[found["met"]]
        lines.append([row.name, str(found["rounds"]), show(found["floor"], "ns"),
                      show(found["ours"], "/s"), show(found["other"], "/s"),
                      f"{found['ratio']:.2f}", limit, verdict])
    return columns([head, *lines]) if lines else []


def instruction_lines(counts):
    if not counts:
        return []
    lines = ["instructions of the library for a message of 8 bytes, both sides (callgrind):"]
    lines += [f"    {name:40} {value:8.1f}" if not isinstance(value, str)
              else f"    {name:40} not counted: {value[:120]}" for name, value in counts.items()]
    single, multi = counts.get("tagwire, single"), counts.get("tagwire, multi")
    if not isinstance(single, str) and not isinstance(multi, str) and single and multi:
        ratio = multi / single
        verdict = "met" if ratio <= instructions.MULTI_MAX else "MISSED"
        lines.append(f"    {verdict}: multi / single <= {instructions.MULTI_MAX}, is {ratio:.2f}")
    return [*lines, ""]


def report_lines(rows, session, counts, notes):
    lines = [rounds.host_line()]
    for regime in REGIMES:
        found = table(rows, session.readings, regime)
        lines += [f"{regime} CPUs", "", *found, ""] if found else [f"{regime}: none counts", ""]
    lines += [*table(rows, session.readings, None), ""]
    lines += instruction_lines(counts)
    lines += [f"left out, {name}: {why[:200]}" for name, why in session.absent.items()]
    lines += [f"not measured, {name}: {why}" for name, why in session.problems.items()]
    return lines + notes


def to_json(rows, session, counts, notes):
    return {"schema": SCHEMA, "tagwire": session.tagwire.version(), "notes": notes,
            "host": rounds.host(),
            "absent": session.absent, "problems": session.problems, "instructions": counts,
            "rows": [{"name": row.name, "ours": row.ours, "other": row.other,
                      "figure": row.figure, "at_least": row.at_least,
                      "regimes": {regime: row.summary(session.readings, regime)
                                  for regime in REGIMES},
                      "all": row.summary(session.readings)} for row in rows],
            "readings": session.readings}


def has_enough(row, readings, wanted):
    counts = [len(row.pairs(readings, regime)) for regime in REGIMES]
    return (min(counts) if wanted.both else max(counts)) >= wanted.rounds


def write_results(out, rows, session, counts, notes):
    text = "\n".join(report_lines(rows, session, counts, notes)) + "\n"
    out.mkdir(parents=True, exist_ok=True)
    (out / "threads.txt").write_text(text, encoding="utf-8")
    document = to_json(rows, session, counts, notes)
    (out / "threads.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    print(text, end="")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--list", action="store_true",
                        help="print the rows and their targets, and measure nothing")
    parser.add_argument("--bin", help="directory of the built programs")
    parser.add_argument("--out", help="directory for threads.json and threads.txt")
    parser.add_argument("--rounds", type=int, default=compare.ROUNDS,
                        help="rounds whose first way counts (%(default)s)")
    parser.add_argument("--both", action="store_true",
                        help="so many rounds near and so many far")
    parser.add_argument("--seconds", type=float, help="end by then with what there is")
    parser.add_argument("--no-instructions", action="store_true", help="do not count instructions")
    arguments = parser.parse_args()
    if not (arguments.list or (arguments.bin and arguments.out)):
        parser.error("--bin and --out are needed, or --list")
    if arguments.rounds < 1:
        parser.error("--rounds takes a number from 1")
    return arguments


def main():
    arguments = parse_arguments()
    cpus = compare.allowed_cpus()
    installations = ucx_peer.installations_here(cpus)
    rows = our_rows() + [row for ucx in installations for row in rows_beside(ucx.name)]
    if arguments.list:
        print("\n".join(columns([["row", "target"]] + [
            [row.name, "-" if row.at_least is None else f">={row.at_least:.2f}"]
            for row in rows])))
        return 0
    tagwire = compare.Tagwire(arguments.bin, cpus)
    ways = our_ways(tagwire) + sending_ways(arguments.bin) + [
        way for ucx in installations for way in ucx_ways(ucx, arguments.bin, cpus)]
    session = Session(tagwire, ways)
    limit = rounds.TimeLimit(arguments.seconds)
    notes = rounds.load_notes()
    rounds.take_turns([session], arguments, limit, session.take)
    unfinished = sum(not has_enough(row, session.readings, arguments) for row in rows)
    counts = {} if arguments.no_instructions else count_instructions(arguments.bin, installations,
                                                                      cpus)
    notes += filter(None, [limit.note(unfinished)])
    write_results(Path(arguments.out), rows, session, counts, notes)
    return 1 if session.problems else 0


if __name__ == "__main__":
    sys.exit(main())

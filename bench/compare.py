#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Compares tagwire over shared memory with UCX and libfabric's shm, in one run, by targets.

Usage: compare.py --list [--rows REGEX] [--sizes LIST] [--level uct|msg]
       compare.py --bin DIR --out DIR [--rounds N] [--both] [--seconds N] [--merge FILE]...
                  [--rows REGEX] [--sizes LIST] [--level uct|msg] [--no-instructions]
                  [--no-realtime]

       compare.py --markdown FILE...
       compare.py --page PAGE FILE...

DIR holds the built `tagwire` and `instr_messages`. Results go to OUT/compare.json and
OUT/compare.txt. How to read them: docs/reference/perf.md. The installations are `ucx_perftest` from
the path and those that TAGWIRE_BENCH_UCX lists, separated by colons or commas, each a ucx_perftest
or an installation prefix; of libfabric likewise `fi_rdm_tagged_pingpong`, or `fi_pingpong`, and
TAGWIRE_BENCH_LIBFABRIC. The newest is what tagwire is judged by.

A reading is: floor, ours, floor, each peer's, floor. It counts only when its floors agree within
25 %, and near and far CPUs are told apart by the floor. Rounds of all rows take turns until each
row has enough readings that count in one regime (--both: in each). Everything is measured with
real-time priority where this process may give it.
"""
import argparse
import json
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import report_folder  # first: it finds the peers
import instructions
import libfabric_peer
import realtime
import rounds
import tagwire_runs
import ucx_peer
from compare_markdown import markdown_lines, page_with
from compare_report import (SCHEMA, describe, list_lines, names_of, report_lines, to_json,
                            unoptimized)
from compare_rows import NO_PEER, all_rows
from ucx_peer import Skip, Unsupported

PEERS = {peer.KIND: peer.installations_here for peer in (ucx_peer, libfabric_peer)}
ROUNDS = 7
FLOOR_RUNS = 6


class Tagwire(tagwire_runs.Tagwire):
    def __init__(self, bin_directory, cpus, launcher=()):
        super().__init__(Path(bin_directory) / "tagwire", cpus, launcher)

    def floor(self):
        """One-way nanoseconds of a cache line: of each shape the lowest of several short runs.

        On machines that others use, too, one run of milliseconds meets slow ones by chance."""
        runs = self.results(["cacheline"] * FLOOR_RUNS, ["--iters", "2048", "--warmup", "256"])
        return rounds.floor_of((one["op"], one["latency_ns"]["p50"]) for one in runs)

    def memcpy(self, size):
        result = self.perf("memcpy", ["--size", str(size), "--iters", "640"])
        return size / result["latency_ns"]["p50"] * 1e9


# ---- Readings

def read_peer(row, peer, floor, is_judged):
    """({variant: value}, floors behind them). An older one that fails is left out of the row."""
    values, floors = {}, []
    for variant, read in row.theirs.items():
        if peer.name in row.absent:
            break
        try:
            values[variant] = read(row, peer)
        except (Skip, subprocess.TimeoutExpired, OSError) as problem:
            if is_judged and not isinstance(problem, Unsupported):
                raise
            row.absent[peer.name] = str(problem)
            break
        floors.append(floor())
    return values, floors


def read_reference(row, tagwire):
    """None where there is no such thing here."""
    try:
        return row.reference(tagwire)
    except Unsupported as problem:
        row.absent["reference"] = str(problem)
        return None


def take_reading(row, tagwire, installations):
    """Everything that belongs to the row, each between two floors; the judged peer comes first."""
    installations = [one for one in installations if row.is_of(one.name)]
    floors = [tagwire.floor()]
    try:
        ours, above = row.ours(row, tagwire)
    except Unsupported as problem:
        row.absent["tagwire"] = str(problem)
        raise
    floors.append(tagwire.floor())
    reading = {"ours": ours, "above": above, "reference": None, "peers": {}, "floors_of": {}}
    if row.reference and rounds.agree(floors):
        reading["reference"] = read_reference(row, tagwire)
        floors.append(tagwire.floor())
    for position, peer in enumerate(installations):
        if not rounds.agree(floors):
            break  # it will not count
        last = (reading["floors_of"].get(installations[position - 1].name, floors))[-1]
        values, behind = read_peer(row, peer, tagwire.floor, position == 0)
        if not values:
            continue
        reading["peers"][peer.name] = values
        if position == 0:
            floors += behind
        else:
            reading["floors_of"][peer.name] = [last, *behind]
    return rounds.with_floors(reading, floors)


class Taker:
    """Takes the readings of all rows, and keeps why a row could not be measured."""

    def __init__(self, tagwire, installations, priority=None):
        self.tagwire = tagwire
        self.installations = installations
        self.priority = priority
        self.problems = {}

    def __call__(self, row):
        try:
            row.readings.append(take_reading(row, self.tagwire, self.installations))
            return True
        except (Skip, subprocess.TimeoutExpired, OSError) as problem:
            if "tagwire" not in row.absent:
                self.problems[row.name] = str(problem)
                print(f"compare: {row.name}: {problem}", file=sys.stderr)
            return False


# ---- The command

def merge(rows, files, is_shown_alone=False):
    """Adds the readings of earlier results, of this kind of CPU unless nothing is added to them.

    Returns ({kind of peer: {name: its description}}, names of the rows that they have)."""
    by_name = {row.name: row for row in rows}
    described, names = {kind: {} for kind in PEERS}, set()
    for path in files:
        document = rounds.read_earlier(path, SCHEMA, "compare",
                                       "--markdown" if is_shown_alone else "--merge")
        for kind, known in described.items():
            known.update({one["name"]: one for one in document.get(kind.lower(), [])})
        for entry in document["rows"]:
            row = by_name.get(entry["name"])
            if row is None:
                print(f"compare: {path}: there is no row '{entry['name']}' any more",
                      file=sys.stderr)
                continue
            names.add(row.name)
            row.readings += entry["readings"]
            row.absent.update(entry["absent"])
            row.operations.update(entry["operations"])
    return described, names


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--list", action="store_true",
                        help="print the rows and their targets, and measure nothing")
    parser.add_argument("--markdown", nargs="+", metavar="FILE",
                        help="print earlier results as the tables of docs/reference/results.md, "
                             "those of each processor by themselves, and measure nothing")
    parser.add_argument("--page", nargs="+", metavar="FILE",
                        help="put these tables into the page that is the first FILE, where those "
                             "of other processors stay, and measure nothing")
    parser.add_argument("--bin", help="directory of the built programs")
    parser.add_argument("--out", help="directory for compare.json and compare.txt")
    parser.add_argument("--rounds", type=int, default=ROUNDS,
                        help="readings that must count for each row (%(default)s); 0: measure "
                             "nothing, show what is merged")
    parser.add_argument("--both", action="store_true",
                        help="so many readings near and so many far")
    parser.add_argument("--seconds", type=float, help="end by then with what there is")
    parser.add_argument("--merge", action="append", default=[], metavar="FILE",
                        help="add the readings of an earlier compare.json; may be repeated")
    parser.add_argument("--rows", default="", metavar="REGEX",
                        help="only rows whose name this regular expression finds")
    parser.add_argument("--sizes", type=rounds.parse_sizes, metavar="LIST",
                        help="only rows of these sizes: 8,1k or 8:4k")
    parser.add_argument("--level", choices=("uct", "msg"), help="only rows of this level")
    parser.add_argument("--no-instructions", action="store_true", help="do not count instructions")
    parser.add_argument("--no-realtime", action="store_true",
                        help="without real-time priority (chrt -f)")
    arguments = parser.parse_args()
    if not (arguments.list or arguments.markdown or arguments.page or
            (arguments.bin and arguments.out)):
        parser.error("--bin and --out are needed, or --list, --markdown or --page")
    if arguments.rounds < 0:
        parser.error("--rounds takes a number from 0")
    try:
        arguments.rows = re.compile(arguments.rows)
    except re.error as problem:
        parser.error(f"--rows '{arguments.rows}': {problem}")
    return arguments


def chosen_rows(rows, arguments):
    return [row for row in rows
            if arguments.rows.search(row.name) and arguments.level in (None, row.level)
            and (arguments.sizes is None or arguments.sizes(row.size))]


def allowed_cpus():
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        sys.exit("compare: two cpus are needed, otherwise the two sides take turns on one")
    return f"{allowed[0]},{allowed[1]}"


def count_instructions(arguments, taker):
    if arguments.no_instructions or arguments.rounds == 0:
        return None
    counts = instructions.attempt(instructions.sm, arguments.bin)
    if isinstance(counts, str):
        taker.problems["instructions"] = counts
        return None
    return counts


def allow_descriptors():
    """The peer of the row with 1000 peers has some thousand."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def tell_missing_peers(here, rows):
    for kind, some in here.items():
        if not some and any(row.theirs and row.peer == kind for row in rows):
            print(f"compare: {NO_PEER[kind]}", file=sys.stderr)


def by_processor(paths):
    """{processor: [paths of its results]}"""
    found = {}
    for path in paths:
        document = rounds.read_earlier(path, SCHEMA, "compare", "--markdown")
        found.setdefault(document["host"]["cpu"], []).append(path)
    return found


def tables_by_processor(paths):
    """{processor: the lines of its tables}, of the results of any machines."""
    tables = {}
    for cpu, its_paths in by_processor(paths).items():
        rows = all_rows(cpu)
        earlier, _ = merge(rows, its_paths, is_shown_alone=True)
        described = {kind: describe([], known) for kind, known in earlier.items()}
        tables[cpu] = markdown_lines(cpu, rows, names_of(described))
    return tables


def print_markdown(paths):
    print("\n\n".join("\n".join(lines) for lines in tables_by_processor(paths).values()))
    return 0


def write_page(page, paths):
    text = Path(page).read_text(encoding="utf-8")
    for cpu, lines in tables_by_processor(paths).items():
        text = page_with(text, cpu, lines)
    Path(page).write_text(text, encoding="utf-8")
    return 0


def main():
    arguments = parse_arguments()
    if arguments.markdown:
        return print_markdown(arguments.markdown)
    if arguments.page:
        return write_page(arguments.page[0], arguments.page[1:])
    everything = all_rows()
    rows = chosen_rows(everything, arguments)
    if not rows:
        sys.exit("compare: no row is so; --list prints them")
    if arguments.list:
        print("\n".join(list_lines(rows)))
        return 0
    limit = rounds.TimeLimit(arguments.seconds)
    notes = rounds.load_notes() if arguments.rounds else []
    cpus = allowed_cpus()
    allow_descriptors()
    here = {kind: find(cpus) for kind, find in PEERS.items()}
    tell_missing_peers(here, rows)
    priority = realtime.begin(not arguments.no_realtime)
    installations = [one for some in here.values() for one in some]
    for one in installations:
        one.launcher, one.programs = priority.launcher, arguments.bin
    taker = Taker(Tagwire(arguments.bin, cpus, priority.launcher), installations, priority)
    earlier, merged = merge(everything, arguments.merge)
    progress = rounds.Progress(rows, arguments.rounds)
    rounds.take_turns(rows, arguments, limit, taker, progress)
    progress.end()
    unfinished = sum(not rounds.has_enough(row, arguments.rounds, arguments.both)
                     for row in rows if not row.absent.get("tagwire"))
    described = {kind: describe(here[kind], earlier[kind]) for kind in PEERS}
    counts = count_instructions(arguments, taker)
    notes += unoptimized([one for some in described.values() for one in some])
    notes += [f"{name}: not measured: {problem}" for name, problem in taker.problems.items()]
    notes += filter(None, [limit.note(unfinished)])
    shown = [row for row in everything if row in rows or row.name in merged]
    write_results(Path(arguments.out), shown, taker, described, counts, notes)
    return 1 if taker.problems else 0


def write_results(out, rows, taker, described, counts, notes):
    lines = report_lines(rows, names_of(described), counts, notes, taker.priority)
    text = "\n".join(lines) + "\n"
    out.mkdir(parents=True, exist_ok=True)
    (out / "compare.txt").write_text(text, encoding="utf-8")
    document = to_json(rows, taker, described, counts, notes)
    (out / "compare.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    print(text, end="")


if __name__ == "__main__":
    sys.exit(main())

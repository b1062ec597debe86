# SPDX-License-Identifier: BSD-3-Clause
"""Readings on a machine whose two CPUs are sometimes near and sometimes far.

A reading lies between floors: the one-way time of a cache line between the two CPUs, before and
after each thing that is read. It counts only when all its floors agree within 25 %, and belongs to
the regime of their median. Only readings of one round are compared with each other.
"""
import argparse
import json
import os
import platform
import re
import signal
import statistics
import sys
import time

import report_folder  # first: it finds the next one
from machine import cpu_model

# Far is five times near. Within a regime the floors of one run move by a fifth, which changes what
# is measured between them by less.
FLOOR_AGREES = 0.25
FAR_FLOOR_NS = 100  # between the two regimes: about 30 to 60 ns near, 150 to 250 ns far
REGIMES = ("near", "far")
# Ways to hand over a cache line, and the operations of `tagwire perf cacheline` without its pauses.
SHAPES = {"line": "one line", "2 lines": "two lines", "64 lines": "a ring of lines"}
ATTEMPTS_FACTOR = 6  # so many times as many rounds as must count, at most
UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def agree(floors):
    return max(floors) - min(floors) <= FLOOR_AGREES * min(floors)


def regime_of(floor_ns):
    return "far" if floor_ns >= FAR_FLOOR_NS else "near"


def kept(row, regime=None):
    """The readings of a row that count."""
    return [r for r in row.readings if r["counts"] and regime in (None, regime_of(r["floor"]))]


def thrown_away(row):
    return sum(not reading["counts"] for reading in row.readings)


class Floor(float):
    """Nanoseconds of the lowest way to hand over a cache line; `shapes`: of each of SHAPES."""

    def __new__(cls, shapes):
        one = super().__new__(cls, min(shapes.values()))
        one.shapes = shapes
        return one


def floor_of(variants):
    """variants: (operation of `cacheline`, nanoseconds) of any number of runs."""
    shapes = {}
    for operation, nanoseconds in variants:
        shape = SHAPES[operation.removesuffix("+pause")]
        shapes[shape] = min(nanoseconds, shapes.get(shape, nanoseconds))
    return Floor(shapes)


def shapes_of(floors):
    """Medians of the floors of each shape; empty where one of them has none."""
    known = [getattr(one, "shapes", {}) for one in floors]
    return {shape: statistics.median(one[shape] for one in known) for shape in SHAPES.values()
            if all(shape in one for one in known)}


def with_floors(reading, floors):
    """The reading with its floors, and whether it counts."""
    return {**reading, "floors": floors, "floor": statistics.median(floors),
            "shapes": shapes_of(floors), "counts": agree(floors)}


class TimeLimit:
    """`seconds`: None for no limit."""

    def __init__(self, seconds=None):
        self.seconds = seconds
        self.begin = time.monotonic()
        self.is_interrupted = False

    def is_over(self):
        return self.seconds is not None and time.monotonic() - self.begin >= self.seconds

    def note(self, unfinished):
        """A line for the end of the results; None when the limit changed nothing."""
        if self.is_interrupted:
            return f"interrupted: {unfinished} rows have fewer readings than were wanted"
        if not (self.is_over() and unfinished):
            return None
        return (f"ended after {self.seconds:g} s, as --seconds says: {unfinished} rows have fewer "
                "readings than were wanted")


def load_notes():
    """A line where other programs run: a process that loses its CPU is in no floor."""
    load = os.getloadavg()[0]
    return [f"the machine was busy when this began (load {load:.1f}): figures beside other "
            "programs are worth little"] if load > 1 else []


def has_enough(row, rounds, both=False):
    """In one regime, or in each."""
    counts = [len(kept(row, regime)) for regime in REGIMES]
    return (min(counts) if both else max(counts)) >= rounds


def take_turns(rows, wanted, limit, take, on_round=None):
    """Rounds over all rows in turn until each has enough readings or the limit is over.

    `take(row)` returns whether the row goes on. `wanted.rounds`: how many readings must count;
    `wanted.both`: in each regime. SIGINT and SIGTERM end it as the limit does."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        go_round(rows, wanted, limit, take, on_round)
    except KeyboardInterrupt:
        limit.is_interrupted = True


def go_round(rows, wanted, limit, take, on_round):
    given_up = set()
    for number in range(1, wanted.rounds * ATTEMPTS_FACTOR * (2 if wanted.both else 1) + 1):
        missing = [row for row in rows
                   if row.name not in given_up and not has_enough(row, wanted.rounds, wanted.both)]
        if not missing:
            return
        for row in missing:
            if limit.is_over():
                return
            if not take(row):
                given_up.add(row.name)
            if on_round:
                on_round(number)


class Progress:
    """A line on the error stream, when that is a terminal."""

    def __init__(self, rows, rounds):
        self.rows = rows
        self.rounds = rounds
        self.on = sys.stderr.isatty()

    def __call__(self, number):
        if self.on:
            counts = sum(len(kept(row)) for row in self.rows)
            thrown = sum(thrown_away(row) for row in self.rows)
            print(f"\rround {number}: {counts} readings count, {thrown} thrown away, "
                  f"{len(self.rows)} rows want {self.rounds} each\033[K", end="", file=sys.stderr)

    def end(self):
        if self.on:
            print("\r\033[K", end="", file=sys.stderr)


def parse_size(word):
    found = re.fullmatch(r"(\d+)([kmg]?)", word.strip().lower())
    if not found:
        raise argparse.ArgumentTypeError(f"'{word}' is not a size such as 8, 4k or 1m")
    return int(found[1]) * UNITS[found[2]]


def parse_sizes(words):
    """A function that says whether a size is among "8,1k,64k" or in the range "8:4k"."""
    ranges = []
    for word in words.split(","):
        first, colon, last = word.partition(":")
        low = parse_size(first)
        ranges.append((low, parse_size(last) if colon else low))
        if ranges[-1][0] > ranges[-1][1]:
            raise argparse.ArgumentTypeError(f"'{word}' is not a range such as 8:4k")
    return lambda size: any(low <= size <= high for low, high in ranges)


def size_name(size):
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def show(value, unit):
    if value is None:
        return "-"
    if unit == "ns":
        return f"{value:.1f} ns" if value < 1e4 else f"{value / 1e3:.1f} us"
    if unit == "/s":
        return f"{value / 1e6:.2f} M/s"
    if unit == "B":
        return f"{value / 1024:.0f} KiB"
    return f"{value / 1e6:.1f} MB/s" if value < 1e9 else f"{value / 1e9:.2f} GB/s"


def columns(lines, left=1):
    """Lines of cells as text; the first `left` columns are left-aligned, the others right."""
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    return ["  ".join(cell.ljust(width) if i < left else cell.rjust(width)
                      for i, (cell, width) in enumerate(zip(line, widths))).rstrip()
            for line in lines]


def host():
    """Of the JSON of each part."""
    return {"cpu": cpu_model(), "kernel": platform.release(), "cores": os.cpu_count()}


def host_line(cpu=None):
    """Figures mean nothing without the processor: the first line of each part's results."""
    return f"processor: {cpu or cpu_model()}"


def read_earlier(path, schema, what, option="--merge"):
    """An earlier JSON of results; for --merge, of this kind of CPU. Exits where it does not fit."""
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
    except (OSError, ValueError) as problem:
        sys.exit(f"{what}: {option} {path}: {problem}")
    if not isinstance(document, dict) or document.get("schema") != schema:
        sys.exit(f"{what}: {option} {path}: not results of this version (schema {schema})")
    if option == "--merge" and document["host"]["cpu"] != cpu_model():
        sys.exit(f"{what}: {option} {path}: measured on another CPU, {document['host']['cpu']}")
    return document

# SPDX-License-Identifier: BSD-3-Clause
"""Measurements for the curves of a report: sources are read in turn, round after round, with the
floor before and after each round; a point is the median of its readings."""
import statistics
import subprocess
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Callable

from plot import SOLID, Curve
from ucx_peer import Skip

FLOOR_AGREES = 1.1
# Of a reading: a program that fails or takes too long, or prints something else.
FAILURES = (Skip, subprocess.SubprocessError, OSError, ValueError, LookupError, TypeError)


@dataclass
class Reading:
    """The points of one round, and the 99th percentiles of the batches, where these are known."""
    middle: dict
    upper: dict = field(default_factory=dict)


@dataclass
class Source:
    """One curve: it is read once in every round."""
    name: str
    read: Callable[[], Reading]
    line: str = SOLID
    colour: int = -1
    is_ours: bool = True  # so that its failure makes the report fail


@dataclass(frozen=True)
class Pace:
    rounds: int
    seconds: float  # behind which no further round begins; each source is read once even so
    limit: float    # seconds behind which nothing is read


def words_of(error):
    if isinstance(error, subprocess.TimeoutExpired):
        return f"{' '.join(map(str, error.cmd))} did not end within {error.timeout:g} s"
    return str(error)


class Readings:
    """Of one source."""

    def __init__(self):
        self.middle, self.upper = defaultdict(list), defaultdict(list)
        self.has_failed = False

    def add(self, reading):
        for kept, points in ((self.middle, reading.middle), (self.upper, reading.upper)):
            for x, value in points.items():
                kept[x].append(value)


def medians_of(readings):
    return {x: statistics.median(values) for x, values in sorted(readings.items())}


class Meter:
    """The time of `pace` begins now. floor: nanoseconds that a cache line takes."""

    def __init__(self, pace, floor):
        self.pace = pace
        self.begin = time.monotonic()
        self.read_floor_ns = floor
        self.floors = []
        self.notes = []  # problems, also printed on the terminal
        self.ours_failed = False

    def note(self, words):
        line = " ".join(words.split("\n")).strip()  # programs print several lines
        if line not in self.notes:
            print(f"  {line}", flush=True)
            self.notes.append(line)

    def is_behind(self, seconds):
        return time.monotonic() - self.begin >= seconds

    def read_floor(self):
        try:
            self.floors.append(self.read_floor_ns())
            return True
        except FAILURES as error:
            self.ours_failed = True
            self.note(f"cacheline failed: {words_of(error)}")
            return False

    def curves(self, what, sources):
        """Medians by x, one curve per source. One that failed is told and not read again."""
        print(f"{what} ...", flush=True)
        everything = [Readings() for _ in sources]
        first_floor = len(self.floors)
        left_out = []
        has_floor = self.read_floor()
        for number in range(self.pace.rounds):
            if number > 0 and self.is_behind(self.pace.seconds):
                break
            for source, readings in zip(sources, everything):
                is_late = self.is_behind(self.pace.limit)
                if is_late and number == 0:
                    left_out.append(source.name)
                if not (is_late or readings.has_failed):
                    self.read(what, source, readings)
            has_floor = has_floor and self.read_floor()
        if left_out:
            self.note(f"{what}: left out, the machine is too busy to measure in time: "
                      f"{'; '.join(left_out)}")
        self.tell_noise(what, self.floors[first_floor:])
        return [Curve(source.name, medians_of(readings.middle), source.line, source.colour,
                      medians_of(readings.upper))
                for source, readings in zip(sources, everything)]

    def read(self, what, source, readings):
        try:
            readings.add(source.read())
        except FAILURES as error:
            readings.has_failed = True
            self.ours_failed = self.ours_failed or source.is_ours
            self.note(f"{what}, {source.name}: {words_of(error)}")

    def tell_noise(self, what, floors):
        noisy = sum(max(pair) > min(pair) * FLOOR_AGREES for pair in zip(floors, floors[1:]))
        if noisy:
            self.note(f"{what}: noisy: around {noisy} of {len(floors) - 1} rounds the floor (a "
                      "cache line between the two cores) differed by more than 10 %, "
                      f"{min(floors):.0f} to {max(floors):.0f} ns.")

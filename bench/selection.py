#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Whether the messaging layer chooses the cheapest protocol: forces each at every power of two.

Usage: selection.py --bin DIR --out DIR [--tl LIST] [--size LIST] [--data LIST] [--rounds N]
                    [--both] [--seconds N] [--calibration FILE] [--cpu A,B]

DIR holds the built `tagwire`. First `tagwire tune` measures the machine into OUT/calibration.json,
unless --calibration names such a file; with --seconds it takes a third of that at most. A round
takes every way of forcing a protocol in turn, and between them the layer as it chooses by itself:
with these costs (chosen) and without (modelled). All of it with data that stays (kept) and with
data that the sender has just written (fresh). A reading is the figure of the choice beside that of
one forced protocol in the same round. It counts only when the floors that both were taken beside
agree within 25 %, and belongs to the regime of their median: near or far CPUs. Rounds go on until
each protocol at each size has N readings that count in one regime (--both: in each). The median of
the ratios, choice over forced, must be at most 1.10 for each protocol in all four cases.

Results go to OUT/selection.json and OUT/selection.txt. Exit status 1: some choice was worse.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import rounds
from rounds import REGIMES, kept, thrown_away

TOLERANCE = 0.10
ROUNDS = 7
ITERATIONS = 1000
DATA = "kept,fresh"
CHOICES = ("chosen", "modelled")  # ways that force nothing
TIMEOUT_S = 600
SIZES = "64:4m"
EAGER = ("short", "bcopy", "parts")
# Eager messages are forced by a threshold that no size here reaches.
NEVER = "32m"


def run(command, environment):
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                            timeout=TIMEOUT_S, env={**os.environ, **environment}, check=False)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {result.stderr.strip()}")
    return result.stdout


class Bench:
    def __init__(self, arguments):
        self.command = Path(arguments.bin) / "tagwire"
        self.cpus = ["--cpu", arguments.cpu] if arguments.cpu else []
        self.size = arguments.size
        self.calibration = Path(arguments.calibration
                                or Path(arguments.out) / "calibration.json").resolve()

    def tune(self, transports, seconds):
        """`seconds`: None or how long it may take."""
        limit = [] if seconds is None else ["--seconds", str(max(1, int(seconds)))]
        run([self.command, "tune", "--tl", ",".join(transports), "--output", self.calibration,
             "--force", *limit, *self.cpus], {})

    def knows(self, option):
        config = json.loads(run([self.command, "info", "config", "--json", "-"], {}))
        return any(one["name"] == option for one in config["config"])

    def latencies(self, transport, memory, data, environment):
        """{bytes: (ns, floor or None)}"""
        output = run([self.command, "perf", "tag_lat", "--level", "msg", "--tl", transport,
                      "--memory", memory, "--data", data, "--size", self.size, "--iters",
                      ITERATIONS, "--json", "-", *self.cpus],
                     environment)
        return {one["size"]: (one["latency_ns"]["p50"], one["floor_ns"])
                for one in json.loads(output)["results"]}

    def choices(self, transport, memory, calibration):
        """{bytes: protocol}, of the first rail that `transport` names."""
        output = run([self.command, "explain", "--tl", transport, "--buffer", memory, "--size",
                      self.size, "--json", "-"], {"TAGWIRE_CALIBRATION": str(calibration)})
        return {one["size"]: one["protocol"]
                for one in json.loads(output)["transports"][0]["sizes"]}


def forcings(bench):
    """{memory: {what is forced: environment}}"""
    eager = {"TAGWIRE_RNDV_THRESHOLD": NEVER}
    rndv = {"TAGWIRE_RNDV_THRESHOLD": "0"}
    if not bench.knows("TAGWIRE_RNDV_SCHEME"):
        return {"mapped": {"eager": eager, "rndv_get": rndv},
                "list": {"eager": eager, "rndv_copy": rndv}}
    schemes = {f"rndv_{scheme}": {**rndv, "TAGWIRE_RNDV_SCHEME": scheme}
               for scheme in ("get", "put", "copy")}
    return {"mapped": {"eager": eager, **schemes},
            "list": {"eager": eager, "rndv_copy": schemes["rndv_copy"]}}


class Against:
    """One choice beside one forced protocol at one size: a reading for each round."""

    def __init__(self):
        self.readings = []  # {"ratio": choice / forced, "floors", "floor", "counts"}

    def add(self, choice, forced):
        """Each (ns, floor). Where there is no floor all readings are of one regime."""
        floors = [floor or 0.0 for _, floor in (choice, forced)]
        self.readings.append(rounds.with_floors({"ratio": choice[0] / forced[0]}, floors))

    def ratio(self, regime):
        ratios = [r["ratio"] for r in kept(self, regime)]
        return statistics.median(ratios) if ratios else None


class Cell:
    """One transport, kind of memory, kind of data and size."""

    def __init__(self, size):
        self.size = size
        self.taken = []  # {way: (ns, floor)} of each round
        self.against = {}  # {(choice, forced way): Against}

    def add(self, taken):
        self.taken.append(taken)
        for forced in taken:
            for choice in CHOICES if forced not in CHOICES else ():
                self.against.setdefault((choice, forced), Against()).add(taken[choice],
                                                                         taken[forced])

    def judged(self):
        """Those that decide."""
        return [one for (choice, _), one in self.against.items() if choice == "chosen"]

    def median(self, way, regime):
        """Of the figures whose own floor is of the regime."""
        figures = [one[way][0] for one in self.taken
                   if rounds.regime_of(one[way][1] or 0.0) == regime]
        return statistics.median(figures) if figures else None

    def excess(self, choice, regime):
        """(above the best forced protocol, which that is); None without readings that count."""
        ratios = {forced: one.ratio(regime) for (which, forced), one in self.against.items()
                  if which == choice and one.ratio(regime) is not None}
        best = max(ratios, key=ratios.get, default=None)
        return (ratios[best] - 1, best) if best else (None, None)


class Part:
    """All sizes of one transport with one kind of memory and of data."""

    def __init__(self, bench, transport, memory, data, ways):
        self.bench = bench
        self.transport = transport
        self.memory = memory
        self.data = data
        self.ways = {**{way: {"TAGWIRE_CALIBRATION": "none", **environment}
                        for way, environment in ways.items()},
                     "chosen": {"TAGWIRE_CALIBRATION": str(bench.calibration)},
                     "modelled": {"TAGWIRE_CALIBRATION": "none"}}
        self.name = f"{transport}, {memory} buffers, {data} data"
        self.cells = {}

    @property
    def readings(self):
        """Those of which fewest count: so many rounds the part has."""
        judged = [one for cell in self.cells.values() for one in cell.judged()]
        fewest = min(judged, default=None,
                     key=lambda one: max(len(kept(one, regime)) for regime in REGIMES))
        return fewest.readings if fewest else []

    def take_round(self, limit):
        """A round that the limit ends is none."""
        taken = {}
        for way, environment in self.ways.items():
            if limit.is_over():
                return True
            taken[way] = self.bench.latencies(self.transport, self.memory, self.data, environment)
        for size in next(iter(taken.values())):
            cell = self.cells.setdefault(size, Cell(size))
            cell.add({way: sizes[size] for way, sizes in taken.items()})
        return True


def row_of(cell, regime, names):
    """Medians of one size in one regime, and how far above the best each choice is."""
    excess, best = cell.excess("chosen", regime)
    modelled, _ = cell.excess("modelled", regime)
    counts = [len(kept(one, regime)) for one in cell.judged()]
    # What fits a short message is one, whatever is set: there is nothing to choose.
    is_choice = names["chosen"] != "short"
    return {"size": cell.size, "regime": regime, "rounds": min(counts),
            "ns": {way: cell.median(way, regime) for way in cell.taken[0]},
            "best": best, "chosen": names["chosen"], "excess": excess,
            "modelled": names["modelled"], "modelled_excess": modelled,
            "ok": not is_choice or excess is None or excess <= TOLERANCE}


def rows_of(part, names):
    """`names`: {"chosen": {bytes: protocol}, "modelled": ..}"""
    rows = [row_of(cell, regime, {way: names[way].get(size, "-") for way in CHOICES})
            for regime in REGIMES for size, cell in sorted(part.cells.items())]
    return [row for row in rows if row["excess"] is not None]


def percent(share):
    return "-" if share is None else f"{100 * share:+.1f} %"


def lines_of(part, rows):
    lines = []
    for regime in REGIMES:
        of_regime = [row for row in rows if row["regime"] == regime]
        if not of_regime:
            continue
        ways = list(of_regime[0]["ns"])
        cells = [["bytes", "n", *ways, "by costs", "over best", "by model", "over best", ""]]
        for row in of_regime:
            cells.append([str(row["size"]), str(row["rounds"]),
                          *("-" if (ns := row["ns"][way]) is None else f"{ns:.0f}" for way in ways),
                          row["chosen"],
                          percent(row["excess"]), row["modelled"], percent(row["modelled_excess"]),
                          "" if row["ok"] else "MISSED"])
        lines += [f"{part.name}, {regime} CPUs (ns)", *rounds.columns(cells, left=0), ""]
    return lines or [f"{part.name}: no reading counts", ""]


def parts_of(bench, transports, kinds):
    return [Part(bench, transport, memory, data, ways) for transport in transports
            for memory, ways in forcings(bench).items() for data in kinds]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--tl", default="sm")
    parser.add_argument("--size", default=SIZES)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--data", default=DATA)
    parser.add_argument("--both", action="store_true")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--calibration", metavar="FILE")
    parser.add_argument("--cpu")
    arguments = parser.parse_args()
    limit = rounds.TimeLimit(arguments.seconds)
    arguments.notes = rounds.load_notes()
    out = Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    bench = Bench(arguments)
    transports = arguments.tl.split(",")
    if not arguments.calibration:
        bench.tune(transports, arguments.seconds and arguments.seconds / 3 / len(transports))
    parts = parts_of(bench, transports, arguments.data.split(","))
    rounds.take_turns(parts, arguments, limit, lambda part: part.take_round(limit))
    sys.exit(1 if write_results(out, parts, arguments, limit) else 0)


def write_results(out, parts, arguments, limit):
    """How many choices missed."""
    lines, report, missed, everything = [], [], 0, 0
    for part in parts:
        bench = part.bench
        names = {"chosen": bench.choices(part.transport, part.memory, bench.calibration),
                 "modelled": bench.choices(part.transport, part.memory, "none")}
        rows = rows_of(part, names)
        judged = [one for cell in part.cells.values() for one in cell.judged()]
        thrown = sum(map(thrown_away, judged))
        everything += sum(len(one.readings) for one in judged)
        missed += sum(not row["ok"] for row in rows)
        report.append({"transport": part.transport, "memory": part.memory, "data": part.data,
                       "thrown_away": thrown, "rows": rows})
        lines += lines_of(part, rows)
    lines.append(f"{sum(one['thrown_away'] for one in report)} of {everything} readings thrown "
                 "away, since their floors disagree by more than "
                 f"{100 * rounds.FLOOR_AGREES:.0f} %")
    lines.append(f"{missed} choices are more than {100 * TOLERANCE:.0f} % above the best")
    unfinished = sum(not rounds.has_enough(part, arguments.rounds, arguments.both)
                     for part in parts)
    lines += [*arguments.notes, *filter(None, [limit.note(unfinished)])]
    (out / "selection.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (out / "selection.json").write_text(json.dumps(
        {"schema": 2, "tolerance": TOLERANCE, "rounds": arguments.rounds, "parts": report},
        indent=2) + "\n", encoding="utf-8")
    print("\n".join(lines))
    return missed


if __name__ == "__main__":
    main()

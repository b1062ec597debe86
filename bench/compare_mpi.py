#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Compares Open MPI over tagwire's provider for libfabric with Open MPI's own ways on this machine.

Usage: compare_mpi.py --bin DIR --out DIR [--rounds N] [--both] [--seconds N] [--sizes LIST]
                      [--no-collectives]

DIR holds the built `tagwire` and `mpi_times`. Results go to OUT/mpi.json and OUT/mpi.txt. Modes are
Open MPI's mtl ofi over tagwire, its shared memory (vader) and its pml ucx, the latter also over
each UCX that TAGWIRE_BENCH_UCX lists. Two ranks on the two CPUs measure latency and a windowed
stream, 1 B to 4 MiB; 16 and 32 ranks, which yield while they wait, a barrier and an allreduce of
8 bytes. A round is: floor, tagwire, floor, each other mode, floor. It counts only when the floors
around tagwire agree within 25 %, a ratio only when those around the other mode do, too; near and
far CPUs are told apart by the floor. Where Open MPI or the provider is missing this says so and
ends with status 0.
"""
import argparse
import json
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import report_folder  # first: it finds the peers
import rounds
from compare import Tagwire, allowed_cpus
from openmpi_peer import MPIRUN, OFI, UCX, VADER, settings
from rounds import REGIMES, columns, kept, show, size_name, thrown_away
from ucx_peer import Skip, installations_here, library_directories, run

SCHEMA = 1
ROUNDS = 7
TIMEOUT_S = 120
OURS = "tagwire"
SIZES = [1 << power for power in range(23)]
RANKS = (16, 32)
# Floors around a run of some sizes agree more often than those around a run of all.
LAST_OF_GROUPS = (256, 16 << 10, 4 << 20)
YIELD = ["--mca", "mpi_yield_when_idle", "1"]


def limit_of(kind, size, regime):
    """(relation, limit) of ours / theirs."""
    if kind == "latency":
        return "<=", 0.7 if size >= 4096 and regime == "near" else 1.0
    if kind == "stream":
        if size == 8:
            return ">=", 0.85
        return ">=", 1.5 if size >= 4096 and regime == "near" else 1.0
    return "<=", 1.0


class Mode:
    """What carries Open MPI's messages."""

    def __init__(self, name, words, environment):
        self.name = name
        self.words = words
        self.environment = environment


def modes_here(provider, cpus):
    ofi = {"FI_PROVIDER_PATH": str(provider), "FI_TAGWIRE_TRANSPORTS": "sm"}
    modes = [Mode(OURS, OFI, ofi), Mode("vader", VADER, {}), Mode("pml ucx", UCX, {})]
    for ucx in installations_here(cpus):
        directories = library_directories(ucx.binary)
        if "LD_LIBRARY_PATH" in ucx.environment and directories:
            modes.append(Mode(f"pml ucx {ucx.version.name}", UCX,
                              {"LD_LIBRARY_PATH": ":".join(directories)}))
    return modes


class Job:
    """One way of starting mpi_times; a row for each figure that it prints."""

    def __init__(self, name, starts, kinds):
        self.name = name
        self.starts = starts  # function(mode's words) -> command behind mpirun
        self.kinds = kinds    # of the figures behind the first word of a line
        self.readings = []    # {"values": {mode: {(kind, what): value}}, "floors", ...}

    def read(self, mode):
        command = [MPIRUN, "--oversubscribe", "--bind-to", "none", *mode.words, *self.starts]
        return parse(run(command, settings(mode.environment), TIMEOUT_S), self.kinds)


def parse(printed, kinds):
    """{"latency 8": ns, ...} of what mpi_times prints."""
    values = {}
    for line in printed.splitlines():
        what, *figures = line.split()
        if len(figures) == len(kinds):
            for kind, figure in zip(kinds, figures):
                values[f"{kind} {what}"] = float(figure)
    if not values:
        raise Skip("mpi_times printed no figures")
    return values


def jobs_of(program, cpus, sizes, has_collectives):
    jobs = []
    first = SIZES[0]
    for last in LAST_OF_GROUPS:
        wanted = [size for size in SIZES if first <= size <= last and sizes(size)]
        first = last * 2
        if not wanted:
            continue
        starts = []
        for cpu in cpus.split(","):
            starts += [*([":"] if starts else []), "-np", "1", "taskset", "-c", cpu, program,
                       "pair", str(wanted[0]), str(wanted[-1])]
        jobs.append(Job(f"pair to {size_name(wanted[-1])}", starts, ("latency", "stream")))
    for ranks in RANKS if has_collectives else ():
        starts = [*YIELD, "-np", str(ranks), "taskset", "-c", cpus, program, "collectives"]
        jobs.append(Job(f"{ranks} ranks", starts, (f"{ranks} ranks",)))
    return jobs


class Taker:
    def __init__(self, tagwire, modes):
        self.tagwire = tagwire
        self.modes = modes
        self.problems = {}  # {(job, mode): why}

    def __call__(self, job):
        last = self.tagwire.floor()
        values, floors_of = {}, {}
        for mode in self.modes:
            if (job.name, mode.name) in self.problems:
                continue
            try:
                values[mode.name] = job.read(mode)
            except (Skip, subprocess.TimeoutExpired, OSError) as problem:
                self.problems[job.name, mode.name] = str(problem)[-600:]
                print(f"mpi: {job.name}, {mode.name}: {problem}", file=sys.stderr)
            floors_of[mode.name] = [last, self.tagwire.floor()]
            last = floors_of[mode.name][1]
            if mode.name == OURS and not rounds.agree(floors_of[OURS]):
                break  # it will not count
        reading = {"values": values, "floors_of": floors_of}
        job.readings.append(rounds.with_floors(reading, floors_of.get(OURS, [last])))
        return (job.name, OURS) not in self.problems


def both_of(reading, key, name):
    """(ours, the mode's) where the floors around both agree; None where they do not."""
    values = [reading["values"].get(mode, {}).get(key) for mode in (OURS, name)]
    if None in values or not rounds.agree([*reading["floors"], *reading["floors_of"][name]]):
        return None
    return values


# ---- Results

def row_of(readings, key, regime, names):
    """Medians of one figure, and how it compares with each other mode."""
    kind, _, what = key.rpartition(" ")
    relation, limit = limit_of(kind, int(what) if what.isdigit() else 0, regime)
    middle = {name: statistics.median(values) for name in names
              if (values := [r["values"][name][key] for r in readings
                             if key in r["values"].get(name, {})])}
    ratios = {}
    for name in names[1:]:
        pairs = [both for r in readings if (both := both_of(r, key, name))]
        if pairs:
            ratios[name] = statistics.median(ours / theirs for ours, theirs in pairs)
    met = all(ratio <= limit if relation == "<=" else ratio >= limit for ratio in ratios.values())
    return {"figure": key, "regime": regime, "rounds": len(readings), "medians": middle,
            "ratios": ratios, "target": f"{relation}{limit:g}", "met": met if ratios else None}


def rows_of(job, regime, names):
    readings = [r for r in kept(job, regime) if OURS in r["values"]]
    keys = list(readings[0]["values"][OURS]) if readings else []
    return [row_of(readings, key, regime, names) for key in sorted(keys, key=order)]


def order(key):
    kind, _, what = key.rpartition(" ")
    return kind, int(what) if what.isdigit() else 0, what


def figure_name(key):
    kind, _, what = key.rpartition(" ")
    return f"{kind} {size_name(int(what))}" if what.isdigit() else f"{what}, {kind}"


def letters(names):
    """Of the other modes, in the heads of columns."""
    return dict(zip(names[1:], "abcdefghijkl"))


def table(rows, names):
    others = names[1:]
    short = letters(names).values()
    head = ["", "n", OURS, *short, *(f"/{letter}" for letter in short), "target", ""]
    cells = [head]
    for row in rows:
        unit = "B/s" if row["figure"].startswith("stream") else "ns"
        cells.append([figure_name(row["figure"]), str(row["rounds"]),
                      *(show(row["medians"].get(name), unit) for name in names),
                      *(f"{row['ratios'][name]:.2f}" if name in row["ratios"] else "-"
                        for name in others),
                      row["target"], {True: "met", False: "MISSED", None: "-"}[row["met"]]])
    return columns(cells)


def results(jobs, names):
    """{regime: rows}"""
    return {regime: sorted((row for job in jobs for row in rows_of(job, regime, names)),
                           key=lambda row: order(row["figure"])) for regime in REGIMES}


def report_lines(jobs, names, notes):
    others = ", ".join(f"{letter}: {name}" for name, letter in letters(names).items())
    lines = [rounds.host_line(),
             f"medians; {others}; ratios are tagwire's figure / the other's", ""]
    for regime, rows in results(jobs, names).items():
        if not rows:
            lines += [f"{regime}: no reading counts", ""]
            continue
        lines += [f"{regime} CPUs", *table(rows, names), ""]
    thrown = sum(thrown_away(job) for job in jobs)
    lines.append(f"{thrown} of {sum(len(job.readings) for job in jobs)} readings thrown away, "
                 f"since their floors disagree by more than {100 * rounds.FLOOR_AGREES:.0f} %")
    return lines + notes


def write_results(out, text, document):
    out.mkdir(parents=True, exist_ok=True)
    (out / "mpi.txt").write_text(text, encoding="utf-8")
    (out / "mpi.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    print(text, end="")


def missing(program, provider):
    """Why nothing can be measured here; None when it can."""
    if shutil.which(MPIRUN) is None:
        return "Open MPI is not installed (packages openmpi-bin and libopenmpi-dev)"
    if not program.exists():
        return f"{program} is not built: CMake found no MPI (package libopenmpi-dev)"
    if provider is None:
        return "there is no libtagwire-fi.so: CMake found no libfabric (package libfabric-dev)"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--bin", required=True, help="directory of the built programs")
    parser.add_argument("--out", required=True, help="directory for mpi.json and mpi.txt")
    parser.add_argument("--rounds", type=int, default=ROUNDS,
                        help="readings that must count (%(default)s)")
    parser.add_argument("--both", action="store_true",
                        help="so many readings near and so many far")
    parser.add_argument("--seconds", type=float, help="end by then with what there is")
    parser.add_argument("--sizes", type=rounds.parse_sizes, default=lambda size: True,
                        metavar="LIST", help="only these sizes: 8,1k or 8:4k")
    parser.add_argument("--no-collectives", action="store_true",
                        help="no barrier and no allreduce")
    arguments = parser.parse_args()
    limit = rounds.TimeLimit(arguments.seconds)
    notes = rounds.load_notes()
    binaries = Path(arguments.bin).resolve()
    program = binaries / "mpi_times"
    provider = next((one.parent for one in (binaries.parent / "lib").rglob("libtagwire-fi.so")),
                    None)
    reason = missing(program, provider)
    if reason:
        write_results(Path(arguments.out), f"skipped: {reason}\n",
                      {"schema": SCHEMA, "skipped": reason})
        return 0
    cpus = allowed_cpus()
    modes = modes_here(provider, cpus)
    taker = Taker(Tagwire(arguments.bin, cpus), modes)
    jobs = jobs_of(str(program), cpus, arguments.sizes, not arguments.no_collectives)
    progress = rounds.Progress(jobs, arguments.rounds)
    rounds.take_turns(jobs, arguments, limit, taker, progress)
    progress.end()
    unfinished = sum(not rounds.has_enough(job, arguments.rounds, arguments.both) for job in jobs)
    names = [mode.name for mode in modes]
    notes += [f"{mode}, {job}: not measured: {why}" for (job, mode), why in taker.problems.items()]
    notes += filter(None, [limit.note(unfinished)])
    document = {"schema": SCHEMA, "skipped": None, "tagwire": taker.tagwire.version(),
                "host": rounds.host(),
                "modes": names, "notes": notes, "regimes": results(jobs, names),
                "jobs": [{"name": job.name, "readings": job.readings} for job in jobs]}
    text = "\n".join(report_lines(jobs, names, notes)) + "\n"
    write_results(Path(arguments.out), text, document)
    return 1 if taker.problems else 0


if __name__ == "__main__":
    sys.exit(main())

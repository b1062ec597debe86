#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Whether the messaging layer chooses the cheapest protocol: forces each at every power of two.

Usage: selection.py --bin DIR --out DIR [--tl LIST] [--size LIST] [--rounds N] [--cpu A,B]

DIR holds the built `tagwire`. First `tagwire tune` measures the machine into OUT/calibration.json.
Then a round takes every way of forcing a protocol in turn; rounds go on until each has N readings,
whose medians are compared. What the layer would choose with these measured costs, as `tagwire
explain` says, must be within 10 % of the best; what it would choose without them is shown beside.
Results go to OUT/selection.json and OUT/selection.txt. Exit status 1: some choice was worse.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

TOLERANCE = 0.10
ROUNDS = 7
ITERATIONS = 1000
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
        self.calibration = Path(arguments.out).resolve() / "calibration.json"

    def tune(self, transports):
        run([self.command, "tune", "--tl", ",".join(transports), "--output", self.calibration,
             "--force", *self.cpus], {})

    def knows(self, option):
        config = json.loads(run([self.command, "info", "config", "--json", "-"], {}))
        return any(one["name"] == option for one in config["config"])

    def latencies(self, transport, memory, environment):
        """{bytes: ns}"""
        output = run([self.command, "perf", "tag_lat", "--level", "msg", "--tl", transport,
                      "--memory", memory, "--size", self.size, "--iters", ITERATIONS,
                      "--json", "-", *self.cpus],
                     environment)
        return {one["size"]: one["latency_ns"]["p50"] for one in json.loads(output)["results"]}

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


def measure(bench, transports, rounds):
    """{(transport, memory): {forced: {bytes: ns}}}"""
    readings = {}
    for _ in range(rounds):
        for transport in transports:
            for memory, ways in forcings(bench).items():
                for forced, environment in ways.items():
                    of_forced = readings.setdefault((transport, memory), {}).setdefault(forced, {})
                    latencies = bench.latencies(
                        transport, memory, {"TAGWIRE_CALIBRATION": "none", **environment})
                    for size, ns in latencies.items():
                        of_forced.setdefault(size, []).append(ns)
    return {key: {forced: {size: statistics.median(all_ns) for size, all_ns in sizes.items()}
                  for forced, sizes in ways.items()} for key, ways in readings.items()}


def row_of(size, ways, chosen, modelled):
    times = {forced: sizes[size] for forced, sizes in ways.items()}
    best = min(times, key=times.get)

    def excess(protocol):
        forced = "eager" if protocol in EAGER else protocol
        return times[forced] / times[best] - 1 if forced in times else None

    # What fits a short message is one, whatever is set: there is nothing to choose.
    is_choice = chosen != "short"
    over = excess(chosen) if is_choice else 0.0
    return {"size": size, "ns": times, "best": best, "chosen": chosen, "excess": over,
            "modelled": modelled, "modelled_excess": excess(modelled) if is_choice else 0.0,
            "ok": over is not None and over <= TOLERANCE}


def percent(share):
    return "-" if share is None else f"{100 * share:+.1f} %"


def lines_of(key, rows):
    forced = list(rows[0]["ns"])
    lines = [f"{key[0]}, {key[1]} buffers (ns)",
             "".join(f"{cell:>13}" for cell in ("bytes", *forced, "chosen", "over best",
                                                "modelled", "over best"))]
    for row in rows:
        cells = [row["size"], *(f"{row['ns'][way]:.0f}" for way in forced), row["chosen"],
                 percent(row["excess"]), row["modelled"], percent(row["modelled_excess"])]
        lines.append("".join(f"{cell:>13}" for cell in cells) + ("" if row["ok"] else "  MISSED"))
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--tl", default="sm")
    parser.add_argument("--size", default=SIZES)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--cpu")
    arguments = parser.parse_args()
    bench = Bench(arguments)
    transports = arguments.tl.split(",")
    bench.tune(transports)
    results = measure(bench, transports, arguments.rounds)
    lines = []
    report = []
    for key, ways in results.items():
        chosen = bench.choices(*key, bench.calibration)
        modelled = bench.choices(*key, "none")
        rows = [row_of(size, ways, chosen[size], modelled[size])
                for size in sorted(next(iter(ways.values())))]
        report.append({"transport": key[0], "memory": key[1], "rows": rows})
        lines += [*lines_of(key, rows), ""]
    missed = sum(not row["ok"] for part in report for row in part["rows"])
    lines.append(f"{missed} choices are more than {100 * TOLERANCE:.0f} % above the best")
    out = Path(arguments.out)
    (out / "selection.txt").write_text("\n".join(lines) + "\n")
    (out / "selection.json").write_text(json.dumps(
        {"schema": 1, "tolerance": TOLERANCE, "rounds": arguments.rounds, "parts": report},
        indent=2) + "\n")
    print("\n".join(lines))
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Compares what peers cost over rc and over dc on one device, in one run.

Usage: peers.py --bin DIR --out DIR [--rounds N] [--peers-max N] [--no-rates]

DIR holds the built `tagwire` and `peer_cost`. Results go to OUT/peers.json, OUT/peers.txt and
OUT/peers.png and .svg. The device is the virtual HCA.

Memory and set-up: `peer_cost` makes so many endpoints of one interface in one process; what the
allocator gave out for them and the time that it took, the median of several runs. Where something
stopped it, what did so is in the table, beside the figures of the endpoints that were made.

Rates: `tagwire perf` with 64 peers in turn, dc with each of its policies and the pool that is the
default, against rc. As in compare.py a reading is bracketed by the cache line floor and counts only
when the floors of its round agree within 25 %; ratios are taken within each round.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import report_folder  # first: it finds the peers
import compare_rc
import rounds
from compare_rc import DEVICE, Row
from ucx_peer import TIMEOUT_S, Skip, run

TRANSPORTS = {"rc": (1, 10, 100, 1000, 10000), "dc": (1, 10, 100, 1000, 10000, 100000)}
COUNT_OF_MANY = 10000  # a run with so many peers is not repeated as often
REPEATS = 5
REPEATS_OF_MANY = 2
ROUNDS = 7
PEERS_OF_RATES = 64
BYTES_MAX = 128     # of one more peer over dc, with MANY of them
MANY = 1000
COLOURS = {"rc": "#b5482a", "dc": "#2a5db5"}


# ---- Memory and set-up

def cost_of(bench, transport, count):
    """What `peer_cost` says, with the last words of the library when something stopped it."""
    command = [(bench.bin / "peer_cost").resolve(), transport, str(count)]
    result = subprocess.run(command, capture_output=True, text=True, check=False,
                            timeout=TIMEOUT_S * 5,
                            env={**os.environ, "TAGWIRE_IB_DEVICES": DEVICE})
    said = result.stderr.strip().splitlines()
    if result.returncode != 0:
        how = f"status {result.returncode}" if result.returncode > 0 else "a signal"
        return {"peers": count, "made": 0, "bytes_per_peer": None, "setup_ns_per_peer": None,
                "qps": None, "stopped_by": said[-1] if said else how}
    cost = json.loads(result.stdout)
    if cost["stopped_by"] and said:
        cost["stopped_by"] += f" ({said[-1]})"
    return cost


def median_cost(readings):
    """One that stands for all: they differ in little but the time."""
    cost = dict(readings[-1])
    for key in ("bytes_per_peer", "setup_ns_per_peer"):
        values = [reading[key] for reading in readings if reading[key] is not None]
        cost[key] = statistics.median(values) if values else None
    return cost


def measure_costs(bench, peers_max):
    """{transport: [cost, ...]} by number of peers."""
    readings = {}
    for number in range(REPEATS):
        for transport, counts in TRANSPORTS.items():
            for count in counts:
                few = count < COUNT_OF_MANY or number < REPEATS_OF_MANY
                if count <= peers_max and few:
                    reading = cost_of(bench, transport, count)
                    readings.setdefault((transport, count), []).append(reading)
    return {transport: [median_cost(readings[transport, count]) for count in counts
                        if (transport, count) in readings]
            for transport, counts in TRANSPORTS.items()}


def bytes_text(value):
    for unit, factor in (("MB", 1e6), ("kB", 1e3)):
        if value >= factor * 10:
            return f"{value / factor:.0f} {unit}"
    return f"{value:.0f} B"


def time_text(ns):
    for unit, factor in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if ns >= factor:
            return f"{ns / factor:.3g} {unit}"
    return f"{ns:.0f} ns"


def cost_lines(costs):
    head = ("", "peers", "bytes each", "all of them", "set-up each", "all of them", "qps")
    lines = ["".join(f"{cell:>13}" for cell in head)]
    notes = []
    for transport, each in costs.items():
        for cost in each:
            cells = [transport, f"{cost['peers']}", "-", "-", "-", "-", f"{cost['qps'] or '-'}"]
            if cost["made"]:
                cells[2] = f"{cost['bytes_per_peer']:.0f}"
                cells[3] = bytes_text(cost["bytes_per_peer"] * cost["made"])
                cells[4] = time_text(cost["setup_ns_per_peer"])
                cells[5] = time_text(cost["setup_ns_per_peer"] * cost["made"])
            lines.append("".join(f"{cell:>13}" for cell in cells))
            if cost["stopped_by"]:
                notes.append(f"{transport}, {cost['peers']} peers: stopped at {cost['made']} by "
                             f"{cost['stopped_by']}")
    return lines + notes + cost_goals(costs)


def cost_goals(costs):
    many = [cost for cost in costs["dc"] if cost["made"] >= MANY]
    if not many:
        return []
    worst = max(cost["bytes_per_peer"] for cost in many)
    pairs = max(cost["qps"] for cost in many) - min(cost["qps"] for cost in costs["dc"])
    return [f"{'met' if worst <= BYTES_MAX else 'MISSED'}: one more peer of dc in <= {BYTES_MAX} "
            f"bytes, is {worst:.0f}",
            f"{'met' if pairs == 0 else 'MISSED'}: no queue pair for one more peer of dc, are "
            f"{pairs}"]


# ---- The plot

def draw_panel(axes, costs, key, title, scale):
    """What all peers cost together, by their number; readings are `scale` to a unit."""
    for transport, each in costs.items():
        made = [cost for cost in each if cost["made"]]
        counts = [cost["made"] for cost in made]
        totals = [cost[key] * cost["made"] / scale for cost in made]
        axes.plot(counts, totals, marker="o", markersize=4, color=COLOURS[transport])
        if counts:
            axes.annotate(transport, (counts[-1], totals[-1]), xytext=(6, 0),
                          textcoords="offset points", color=COLOURS[transport], va="center",
                          fontweight="bold")
        for cost, total in zip(made, totals):
            if cost["stopped_by"]:
                axes.plot(cost["made"], total, marker="x", markersize=11,
                          color=COLOURS[transport])
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_title(title, loc="left", fontsize=10)
    axes.set_xlabel("peers")
    axes.minorticks_off()
    axes.grid(True, which="major", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.margins(x=0.12)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def draw(costs, out):
    """Whether it was drawn: the library may not be installed."""
    try:
        import matplotlib
        matplotlib.use("Agg")
        from matplotlib import pyplot, ticker
    except ImportError:
        return False
    figure, panels = pyplot.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
    draw_panel(panels[0], costs, "bytes_per_peer", "Memory of all endpoints", 1)
    draw_panel(panels[1], costs, "setup_ns_per_peer", "Time to make and connect them", 1e9)
    for axes, unit in zip(panels, "Bs"):
        axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda n, _: f"{n:,.0f}"))
        axes.yaxis.set_major_formatter(ticker.EngFormatter(unit))
    figure.suptitle("What peers cost an interface (virtual HCA)", x=0.01, ha="left", fontsize=11)
    for kind in ("png", "svg"):
        figure.savefig(out / f"peers.{kind}", dpi=150)
    pyplot.close(figure)
    return True


# ---- Rates

def policies(bench):
    """Those that the library has."""
    told = json.loads(run([bench.tagwire.command, "info", "config", "--json", "-"]))
    accepted = next(option["accepted"] for option in told["config"]
                    if option["name"] == "TAGWIRE_DC_POLICY")
    return [word.strip() for word in accepted.rpartition(":")[2].split(",")]


class Figure:
    """A figure of `tagwire perf`; keeps the number of queue pairs of the last reading."""

    def __init__(self, key, test, arguments, environment=None):
        self.key = key
        self.test = test
        self.arguments = [*arguments, "--device", DEVICE]
        self.environment = environment
        self.qps = None

    def __call__(self, bench):
        result = bench.tagwire.perf(self.test, self.arguments, self.environment)
        self.qps = result["qps"]
        figure = result[self.key]
        return figure["p50"] if isinstance(figure, dict) else figure


def rate_rows(bench):
    many = ["--peers", str(PEERS_OF_RATES), "--window", "512", "--iters", "50000"]
    rows = []
    for name, test in (("AM short", "am_bw"), ("tagged", "tag_rate")):
        for policy in policies(bench):
            ours = Figure("messages_per_s", test, ["--tl", "dc", *many],
                          {"TAGWIRE_DC_POLICY": policy})
            theirs = Figure("messages_per_s", test, ["--tl", "rc", *many])
            rows.append(Row(f"{name} 8 B to {PEERS_OF_RATES} peers, dc {policy}", "/s", ours,
                            {"rc": theirs}, [("rc", ">=", 0.7)]))
    few = ["--iters", "40000"]
    rows.append(Row("tag short 8 B to one peer, p50", "ns",
                    Figure("latency_ns", "tag_lat", ["--tl", "dc", *few]),
                    {"rc": Figure("latency_ns", "tag_lat", ["--tl", "rc", *few])},
                    [("rc", "<=", 1.15)]))
    return rows


def policy_table(rows):
    """What each policy makes of the rate over rc: medians of all readings, settled or not."""
    ratios = {}
    for row in rows:
        policy = (row.ours.environment or {}).get("TAGWIRE_DC_POLICY")
        if policy and row.readings:
            ratios.setdefault(policy, {})[row.ours.test] = statistics.median(
                r["ours"] / r["theirs"]["rc"] for r in row.readings)
    tests = list(dict.fromkeys(test for each in ratios.values() for test in each))
    lines = ["".join(f"{cell:>13}" for cell in ("times rc", *tests))]
    for policy, each in ratios.items():
        cells = [f"{each[test]:.2f}" if test in each else "-" for test in tests]
        lines.append("".join(f"{cell:>13}" for cell in (policy, *cells)))
    return ["", *lines] if ratios else []


def rate_lines(rows, problems):
    lines = []
    for row in rows:
        if row.name in problems:
            lines.append(f"{row.name}: not measured: {problems[row.name]}")
            continue
        lines += compare_rc.lines_of(row)
        if row.readings:
            ratios = [r["ours"] / r["theirs"]["rc"] for r in row.readings]
            lines.append(f"    all {len(ratios)} readings: {statistics.median(ratios):.2f} x rc; "
                         f"queue pairs: dc {row.ours.qps}, rc {row.theirs['rc'].qps}")
    return lines + policy_table(rows)


# ---- Results

def write_results(out, costs, rows, problems):
    out.mkdir(parents=True, exist_ok=True)
    lines = [rounds.host_line(), *cost_lines(costs), "", *rate_lines(rows, problems)]
    if not draw(costs, out):
        print("peers: no plot: this Python has no matplotlib", file=sys.stderr)
    document = {"schema": 1, "device": DEVICE, "problems": problems, "costs": costs,
                "host": rounds.host(),
                "rows": [{"name": row.name, "unit": row.unit,
                          "regimes": compare_rc.summary(row), "readings": row.readings,
                          "qps": {"dc": row.ours.qps, "rc": row.theirs["rc"].qps}}
                         for row in rows]}
    (out / "peers.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (out / "peers.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--bin", required=True, help="directory of the built programs")
    parser.add_argument("--out", required=True, help="directory for peers.json, .txt, .png, .svg")
    parser.add_argument("--rounds", type=int, default=ROUNDS,
                        help="readings of rates that must count (%(default)s)")
    parser.add_argument("--peers-max", type=int, default=100000,
                        help="no more than so many endpoints (%(default)s)")
    parser.add_argument("--no-rates", action="store_true", help="only memory and set-up")
    arguments = parser.parse_args()
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        sys.exit("peers: two cpus are needed, otherwise the two sides take turns on one")
    bench = compare_rc.Bench(arguments.bin, f"{allowed[0]},{allowed[1]}")
    out = Path(arguments.out)
    costs = measure_costs(bench, arguments.peers_max)
    write_results(out, costs, [], {})  # rates take minutes
    print("\n".join(cost_lines(costs)), flush=True)
    try:
        rows = [] if arguments.no_rates else rate_rows(bench)
    except Skip as problem:
        sys.exit(f"peers: {problem}")
    problems = compare_rc.measure(rows, bench, arguments.rounds)
    write_results(out, costs, rows, problems)
    print("\n".join(["", *rate_lines(rows, problems)]))
    unsettled = [row for row in rows
                 if row.name not in problems and not compare_rc.summary(row)]
    return 1 if problems or unsettled else 0


if __name__ == "__main__":
    sys.exit(main())

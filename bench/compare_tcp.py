#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Compares tagwire over tcp with bare sockets, UCX, libfabric and iperf3, in one run.

Usage: compare_tcp.py --bin DIR --out DIR [--rounds N] [--sizes LIST] [--rows WORD] [--veth]
                      [--realtime] [--seconds N]

DIR holds the built `tagwire` and `tcp_sockets`. Results go to OUT/tcp.json and OUT/tcp.txt. All
programs are two processes on two CPUs, over the loopback, or with --veth between two network
namespaces (needs root). UCX is the newest of the path and TAGWIRE_BENCH_UCX, with UCX_TLS=tcp;
libfabric likewise, with `tcp;ofi_rxm`. A round of a row takes all programs in turn; ratios are
taken within rounds, and their median is judged. A program that is missing is left out, and the
results say why. --realtime gives all programs real-time priority (chrt -r), for machines that
others use, too: whoever spins loses its CPU to them otherwise.
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
import libfabric_peer
import rounds
import ucx_peer
from compare import allowed_cpus
from rounds import columns, show, size_name
from ucx_peer import Skip, die_with_parent, free_port, is_listening

SCHEMA = 1
ROUNDS = 7
TIMEOUT_S = 30  # of one program
OURS = "tagwire"
SIZES = [1 << power for power in range(3, 23)]
MIB = 1 << 20
BYTES_OF_STREAM = 2 << 30
REALTIME = ["chrt", "-r", "10"]  # round robin: threads of one program share a CPU


def iterations(kind, size):
    if kind == "latency":
        return max(320, min(20000, (256 << 20) // size))
    return max(256, min(200000, BYTES_OF_STREAM // size))


# ---- Where the programs run

class Loopback:
    """Both sides in this network namespace."""
    name = "loopback"
    device = "lo"
    host = "127.0.0.1"

    def prefix(self, _side):
        return []

    def close(self):
        pass


class Veth:
    """A network namespace for each side, and a pair of virtual Ethernet devices."""
    name = "veth"
    host = "10.213.77.2"

    def __init__(self):
        self.spaces = [f"tw-bench-{os.getpid()}-{side}" for side in "ab"]
        self.device = "twbench0"
        try:
            for space in self.spaces:
                ip("netns", "add", space)
            ip("link", "add", self.device, "netns", self.spaces[0], "type", "veth", "peer", "name",
               self.device, "netns", self.spaces[1])
            for last, space in enumerate(self.spaces, 1):
                ip("-n", space, "addr", "add", f"10.213.77.{last}/24", "dev", self.device)
                for device in ("lo", self.device):
                    ip("-n", space, "link", "set", device, "up")
            self.await_carrier()
        except BaseException:
            self.close()
            raise

    def await_carrier(self):
        """The kernel notices some time after both ends are up."""
        deadline = time.monotonic() + TIMEOUT_S
        for space in self.spaces:
            while "LOWER_UP" not in ip("-n", space, "link", "show", self.device):
                if time.monotonic() > deadline:
                    raise Skip(f"{self.device} has no carrier")
                time.sleep(0.01)

    def prefix(self, side):
        return ["ip", "netns", "exec", self.spaces[side]]

    def close(self):
        for space in self.spaces:
            subprocess.run(["ip", "netns", "del", space], check=False, capture_output=True)


def ip(*words):
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Skip(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


class Bench:
    def __init__(self, bin_directory, place, cpus, is_realtime):
        self.bin = Path(bin_directory)
        self.place = place
        self.cpus = cpus.split(",")
        self.is_realtime = is_realtime
        self.ucx = next(iter(ucx_peer.installations_here(cpus)), None)
        self.libfabric = next(iter(libfabric_peer.installations_here(cpus)), None)

    def start(self, command, side, variables, **more):
        # A pair of real-time programs that waits for each other would keep everybody out.
        limit = ["timeout", "-s", "KILL", str(TIMEOUT_S)]
        priority = REALTIME if self.is_realtime else []
        words = [*self.place.prefix(side), *limit, *priority, *command]

        def prepare():
            die_with_parent()
            os.sched_setaffinity(0, {int(self.cpus[side])})
        return subprocess.Popen([str(word) for word in words], env={**os.environ, **variables},
                                stdin=subprocess.DEVNULL, text=True, errors="replace",
                                preexec_fn=prepare, **more)

    def pair(self, server, client, port, variables=None):
        """What the client has printed."""
        variables = variables or {}
        serving = self.start(server, 1, variables, stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + TIMEOUT_S
            while not is_listening(port, serving.pid):
                if serving.poll() is not None or time.monotonic() > deadline:
                    raise Skip(f"{' '.join(map(str, server))}: the server did not start")
                time.sleep(0.01)
            asking = self.start(client, 0, variables, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE)
            printed, told = asking.communicate()
            if asking.returncode != 0:
                told = told.strip() or printed.strip() or "did not end"
                raise Skip(f"{' '.join(map(str, client))}: {told[-300:]}")
            return printed
        finally:
            serving.terminate()
            serving.wait()


# ---- Programs

def tagwire(bench, test, level, size, count, operation=None):
    port = free_port()
    client = [bench.bin / "tagwire", "perf", test, "--connect", f"{bench.place.host}:{port}",
              "--tl", "tcp", "--level", level, "--size", size, "--iters", count, "--cpu",
              bench.cpus[0], "--json", "-"]
    if level == "uct":
        client += ["--device", bench.place.device]
    if operation:
        client += ["--op", operation]
    server = [bench.bin / "tagwire", "perf", "--server", port, "--cpu", bench.cpus[1]]
    variables = {"TAGWIRE_TCP_DEVICES": bench.place.device, "TAGWIRE_CALIBRATION": "none"}
    return json.loads(bench.pair(server, client, port, variables))["results"][0]


def bare(bench, test, size, count):
    port = free_port()
    words = [bench.bin / "tcp_sockets", test, "--size", size, "--iters", count, "--port", port,
             "--cpu", ",".join(bench.cpus)]
    return float(bench.pair([*words, "--server"], [*words, "--connect", bench.place.host], port))


def ucx(bench, test, size, count):
    """(median latency in ns, messages per second)"""
    if bench.ucx is None:
        raise Skip("ucx_perftest is not installed (package ucx-utils)")
    port = free_port()
    words = ["-f", "-v", "-p", port]
    wanted = ["-t", test, "-s", size, "-n", count, "-w", max(10, count // 10)]
    variables = {**bench.ucx.environment, "UCX_TLS": "tcp", "UCX_NET_DEVICES": bench.place.device}
    printed = bench.pair([bench.ucx.binary, *words],
                         [bench.ucx.binary, bench.place.host, *words, *wanted], port, variables)
    return next(iter(ucx_peer.parse_results(printed).values()))


def libfabric(bench, size, count):
    """Mean nanoseconds of one way."""
    if bench.libfabric is None:
        raise Skip("fi_pingpong is not installed (package libfabric-bin)")
    port = free_port()
    server, client = bench.libfabric.commands(size, count, port, "tcp;ofi_rxm", bench.place.host)
    return libfabric_peer.parse_latency(bench.pair(server, client, port), size)


def iperf3(bench):
    """Bytes per second that the receiver saw."""
    if shutil.which("iperf3") is None:
        raise Skip("iperf3 is not installed (package iperf3)")
    port = free_port()
    printed = bench.pair(["iperf3", "-s", "-1", "-p", port],
                         ["iperf3", "-c", bench.place.host, "-p", port, "-n", 2 * BYTES_OF_STREAM,
                          "-l", MIB, "-J"], port)
    return json.loads(printed)["end"]["sum_received"]["bits_per_second"] / 8


# ---- Rows

class Row:
    """ours, theirs: functions(bench) -> value; theirs by name. goals: [(name, relation, limit)]"""

    def __init__(self, name, unit, size, ours, theirs, goals):
        self.name = name
        self.unit = unit
        self.size = size
        self.ours = ours
        self.theirs = theirs
        self.goals = goals
        self.readings = []
        self.absent = {}  # name of a program -> why

    def ratio(self, name):
        """Median of ours / theirs within rounds; None without such a reading."""
        ratios = [reading[OURS] / reading[name] for reading in self.readings if name in reading]
        return statistics.median(ratios) if ratios else None

    def median(self, name):
        values = [reading[name] for reading in self.readings if name in reading]
        return statistics.median(values) if values else None


def latency_row(size):
    count = iterations("latency", size)
    goals = [("UCX", "<", 1.0), ("libfabric", "<", 1.0)]
    if size == 8:
        goals.append(("bare socket", "<=", 1.15))
    return Row(f"latency {size_name(size)}", "ns", size,
               lambda b: tagwire(b, "tag_lat", "msg", size, count)["latency_ns"]["p50"],
               {"bare socket": lambda b: bare(b, "latency", size, count),
                "UCX": lambda b: ucx(b, "tag_lat", size, count)[0],
                "libfabric": lambda b: libfabric(b, size, max(100, count // 10))}, goals)


def stream_row(size):
    count = iterations("stream", size)
    theirs = {"bare socket": lambda b: bare(b, "stream", size, count),
              "UCX": lambda b: ucx(b, "tag_bw", size, max(256, count // 8))[1] * size}
    goals = [("UCX", ">", 1.0)]
    if size == MIB:
        theirs["iperf3"] = iperf3
        goals.append(("iperf3", ">=", 0.95))
    return Row(f"stream {size_name(size)}", "B/s", size,
               lambda b: tagwire(b, "tag_bw", "msg", size, count)["bytes_per_s"], theirs, goals)


def uct_row(name, test, operation):
    count = iterations("stream", MIB)
    return Row(f"{name} 1 MiB", "B/s", MIB,
               lambda b: tagwire(b, test, "uct", MIB, count, operation)["bytes_per_s"],
               {"bare socket": lambda b: bare(b, "stream", MIB, count), "iperf3": iperf3},
               [("iperf3", ">=", 0.95)])


def all_rows():
    rate = Row("rate 8 B", "/s", 8,
               lambda b: tagwire(b, "tag_rate", "msg", 8, 500000)["messages_per_s"],
               {"UCX": lambda b: ucx(b, "tag_bw", 8, 100000)[1]}, [("UCX", ">=", 2.0)])
    return [*map(latency_row, SIZES), *map(stream_row, SIZES), rate,
            uct_row("rendezvous", "tag_bw", "rndv"), uct_row("put", "put_bw", "zcopy"),
            uct_row("get", "get_bw", "zcopy")]


def take_round(row, bench):
    """One reading of ours and of each program that works here."""
    reading = {OURS: row.ours(bench)}
    for name, read in row.theirs.items():
        if name in row.absent:
            continue
        try:
            reading[name] = read(bench)
        except (Skip, OSError, ValueError, KeyError) as problem:
            row.absent[name] = str(problem)
    row.readings.append(reading)


def measure(rows, bench, count, limit):
    """{name of a row: why it was not measured}"""
    problems = {}
    for _ in range(count):
        for row in rows:
            if row.name in problems or limit.is_over():
                continue
            try:
                take_round(row, bench)
            except (Skip, OSError, ValueError, KeyError) as problem:
                problems[row.name] = str(problem)
    return problems


# ---- Results

PROGRAMS = ("bare socket", "UCX", "libfabric", "iperf3")


def judge(row):
    """[(text, ratio, met)]"""
    judged = []
    for name, relation, limit in row.goals:
        ratio = row.ratio(name)
        if ratio is None:
            continue
        met = {"<": ratio < limit, "<=": ratio <= limit, ">": ratio > limit,
               ">=": ratio >= limit}[relation]
        judged.append((f"{relation} {limit:g} x {name}", ratio, met))
    return judged


def cell(row, name):
    ratio = row.ratio(name)
    return "-" if ratio is None else f"{show(row.median(name), row.unit)} ({ratio:.2f})"


def report_lines(rows, problems, notes):
    measured = [row for row in rows if row.readings]
    table = [["", OURS, *(f"{name} (ratio)" for name in PROGRAMS), "targets"]]
    for row in measured:
        goals = [f"{'met' if met else 'MISSED'} {text}" for text, _, met in judge(row)]
        table.append([row.name, show(row.median(OURS), row.unit),
                      *(cell(row, name) for name in PROGRAMS), ", ".join(goals)])
    lines = [rounds.host_line(), *notes, *(columns(table) if measured else [])]
    absent = {f"{name}: {why}" for row in rows for name, why in row.absent.items()}
    return [*lines, *(f"left out: {why}" for why in sorted(absent)),
            *(f"{name}: not measured: {why}" for name, why in problems.items())]


def write_results(out, rows, problems, notes, bench):
    lines = report_lines(rows, problems, notes)
    found = {"UCX": bench.ucx.name if bench.ucx else None,
             "libfabric": bench.libfabric.name if bench.libfabric else None}
    document = {"schema": SCHEMA, "network": bench.place.name, "realtime": bench.is_realtime,
                "programs": found, "problems": problems,
                "host": {**rounds.host(), "congestion": congestion_control()},
                "rows": [{"name": row.name, "unit": row.unit, "readings": row.readings,
                          "absent": row.absent,
                          "goals": [{"target": text, "value": ratio, "met": met}
                                    for text, ratio, met in judge(row)]} for row in rows]}
    out.mkdir(parents=True, exist_ok=True)
    text = "\n".join(lines) + "\n"
    (out / "tcp.txt").write_text(text, encoding="utf-8")
    (out / "tcp.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    print(text, end="")


def congestion_control():
    """The system's, which all programs but ours use over the loopback."""
    try:
        return Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text(encoding="ascii").strip()
    except OSError:
        return None


def notes_of(bench, limit, unfinished):
    beside = [one.name for one in (bench.ucx, bench.libfabric) if one]
    return [f"tagwire over tcp, {bench.place.name}, congestion control of the system: "
            f"{congestion_control()}; beside {', '.join(beside) or 'no peer'}",
            *([] if bench.is_realtime else rounds.load_notes()),
            *filter(None, [limit.note(unfinished)])]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--bin", required=True, help="directory of the built programs")
    parser.add_argument("--out", required=True, help="directory for tcp.json and tcp.txt")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="readings of each row "
                        "(%(default)s)")
    parser.add_argument("--sizes", type=rounds.parse_sizes, metavar="LIST",
                        help="only rows of these sizes: 8,1k or 8:4k")
    parser.add_argument("--rows", default="", metavar="REGEX",
                        help="only rows whose name this regular expression finds")
    parser.add_argument("--veth", action="store_true",
                        help="between two network namespaces, not over the loopback")
    parser.add_argument("--realtime", action="store_true", help="with real-time priority")
    parser.add_argument("--seconds", type=float, help="end by then with what there is")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    rows = [row for row in all_rows() if re.search(arguments.rows, row.name)
            and (arguments.sizes is None or arguments.sizes(row.size))]
    limit = rounds.TimeLimit(arguments.seconds)
    try:
        place = Veth() if arguments.veth else Loopback()
    except Skip as problem:
        sys.exit(f"compare_tcp: {problem}")
    try:
        bench = Bench(arguments.bin, place, allowed_cpus(), arguments.realtime)
        problems = measure(rows, bench, arguments.rounds, limit)
    finally:
        place.close()
    unfinished = sum(len(row.readings) < arguments.rounds for row in rows)
    write_results(Path(arguments.out), rows, problems, notes_of(bench, limit, unfinished), bench)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

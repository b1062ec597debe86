#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Runs programs nobody here wrote on the virtual HCA, unmodified, and asks for exit status 0.

    thirdparty.py --list                         names of the cases
    thirdparty.py --launcher tagwire CASE...     runs them; status 0 if all passed, 77 if all that
                                                 did not pass lack their program
    thirdparty.py --launcher tagwire --table     runs all; prints the table of docs/vhca.md

Pairs run on loopback with a port of their own; both sides have to end by themselves in time, and
only processes started here are ever ended.
"""
import argparse
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field

SKIPPED = 77
LIMIT_S = 90
DEVICE = "vhca0"


@dataclass
class Case:
    name: str
    words: list          # the program and what both sides get
    pair: bool = True
    kind: str = "pingpong"
    environment: dict = field(default_factory=dict)
    server_words: list = None  # instead of `words`


def pingpong(program, *arguments, name=None):
    label = "".join(a for a in arguments if a.startswith("-"))
    return Case(name or f"{program}{label}", [program, "-d", DEVICE, "-n", "500", *arguments])


def perftest(program, *arguments, iterations="1000"):
    label = "".join(arguments)
    return Case(f"{program}{label}", [program, "-d", DEVICE, "-F", "-n", iterations, *arguments],
                kind="perftest")


def uct(transport, test, *arguments):
    return Case(f"uct_{transport}_{test}" + "".join(arguments),
                ["ucx_perftest", "-x", transport, "-d", f"{DEVICE}:1", "-t", test, "-n", "1000",
                 "-w", "100", *arguments],
                kind="ucx", server_words=["ucx_perftest"])


def ucp(test, *arguments):
    return Case(f"ucp_{test}" + "".join(arguments),
                ["ucx_perftest", "-t", test, "-n", "300", "-w", "50", *arguments],
                kind="ucx", server_words=["ucx_perftest"],
                environment={"UCX_TLS": "rc_verbs,ud_verbs", "UCX_NET_DEVICES": f"{DEVICE}:1"})


CASES = [
    Case("ibv_devices", ["ibv_devices"], pair=False, kind="list"),
    Case("ibv_devinfo-v", ["ibv_devinfo", "-v"], pair=False, kind="list"),
    pingpong("ibv_rc_pingpong"), pingpong("ibv_rc_pingpong", "-e"),
    pingpong("ibv_rc_pingpong", "-c"), pingpong("ibv_rc_pingpong", "-N"),
    pingpong("ibv_rc_pingpong", "-t"),
    pingpong("ibv_uc_pingpong"), pingpong("ibv_uc_pingpong", "-e"),
    pingpong("ibv_uc_pingpong", "-c"),
    pingpong("ibv_ud_pingpong"), pingpong("ibv_ud_pingpong", "-e"),
    pingpong("ibv_ud_pingpong", "-c"),
    pingpong("ibv_srq_pingpong"), pingpong("ibv_srq_pingpong", "-e"),
    pingpong("ibv_srq_pingpong", "-c"),
    perftest("ib_send_lat"), perftest("ib_send_lat", "-e"),
    perftest("ib_send_lat", "-c", "UD"), perftest("ib_send_bw"),
    perftest("ib_write_lat"), perftest("ib_write_bw"),
    perftest("ib_read_lat"), perftest("ib_read_bw"), perftest("ib_atomic_lat"),
    uct("rc_verbs", "am_lat"), uct("rc_verbs", "put_lat"),
    uct("rc_verbs", "get", "-D", "zcopy", "-s", "4096"),
    uct("rc_verbs", "fadd"), uct("ud_verbs", "am_lat"),
    ucp("tag_lat"), ucp("tag_bw", "-s", "1048576"),
    # DC
    perftest("ib_send_lat", "-c", "DC"), perftest("ib_send_bw", "-c", "DC"),
    perftest("ib_write_lat", "-c", "DC"), perftest("ib_write_bw", "-c", "DC"),
    perftest("ib_read_lat", "-c", "DC"), perftest("ib_read_bw", "-c", "DC"),
    perftest("ib_atomic_lat", "-c", "DC"), perftest("ib_atomic_bw", "-c", "DC"),
]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def is_listening(port):
    wanted = f":{port:04X}"
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table, encoding="ascii") as lines:
                if any(words[1].endswith(wanted) and words[3] == "0A"
                       for words in map(str.split, lines)):
                    return True
        except OSError:
            pass
    return False


class Side:
    """One started program and what it wrote."""

    def __init__(self, launcher, words, environment):
        self.out = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")
        self.process = subprocess.Popen(
            [launcher, "vhca", "run", "--", *words], stdin=subprocess.DEVNULL, stdout=self.out,
            stderr=subprocess.STDOUT, env={**os.environ, **environment}, start_new_session=True)

    def text(self):
        self.out.seek(0)
        return self.out.read()

    def wait(self, deadline):
        try:
            return self.process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            return "timeout"


def run_alone(launcher, case):
    side = Side(launcher, case.words, case.environment)
    status = side.wait(time.monotonic() + LIMIT_S)
    return [("alone", status, side.text())]


def run_pair(launcher, case):
    port = str(free_port())
    deadline = time.monotonic() + LIMIT_S
    server = Side(launcher, [*(case.server_words or case.words), "-p", port], case.environment)
    while not is_listening(int(port)) and server.process.poll() is None:
        if time.monotonic() > deadline:
            break
        time.sleep(0.02)
    words = [*case.words, "-p", port, "127.0.0.1"]
    if case.kind == "ucx":
        words = [case.words[0], "127.0.0.1", *case.words[1:], "-p", port]
    client = Side(launcher, words, case.environment)
    client_status = client.wait(deadline)
    if client_status != 0:  # the server may wait for ever
        deadline = min(deadline, time.monotonic() + 5)
    server_status = server.wait(deadline)
    return [("client", client_status, client.text()), ("server", server_status, server.text())]


def numbers_line(text):
    """The last line that holds figures only."""
    rows = [line for line in text.splitlines()
            if re.fullmatch(r"[\s\d.+\-e]+", line) and len(line.split()) >= 3]
    return " ".join(rows[-1].split()) if rows else ""


def figure(case, text):
    if case.kind == "pingpong":
        found = re.search(r"([\d.]+ usec/iter)", text)
        return found[1] if found else ""
    if case.kind == "perftest":
        words = numbers_line(text).split()
        if "_lat" in case.name and len(words) > 4:
            return f"{words[4]} us typical"
        return f"{words[3]} MB/s average" if len(words) > 3 else ""
    if case.kind == "ucx":
        found = re.search(r"^Final:\s+(.*)$", text, re.M)
        words = found[1].split() if found else []
        if len(words) > 4:
            return f"{words[5]} MB/s" if "_bw" in case.name else f"{words[1]} us median"
        return ""
    return DEVICE if DEVICE in text else ""


def run(launcher, case):
    """(passed, skipped, figure, report)"""
    if shutil.which(case.words[0]) is None:
        return False, True, "", f"{case.words[0]} is not installed"
    sides = (run_pair if case.pair else run_alone)(launcher, case)
    passed = all(status == 0 for _, status, _ in sides)
    shown = figure(case, sides[0][2])
    report = "\n".join(f"--- {who}: exit status {status}\n{text}" for who, status, text in sides)
    if passed and not shown:
        return False, False, "", "no figure was printed\n" + report
    return passed, False, shown, report


def print_row(case, passed, skipped, shown):
    result = "not installed" if skipped else "0 / 0" if passed and case.pair else (
        "0" if passed else "FAILS")
    extra = "".join(f"{name}={value} " for name, value in case.environment.items())
    print(f"| `{extra}{' '.join(case.words)}` | {result} | {shown} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--launcher")
    parser.add_argument("cases", nargs="*")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(case.name for case in CASES))
        return 0
    wanted = [case for case in CASES if not arguments.cases or case.name in arguments.cases]
    if not wanted:
        sys.exit("no such case")
    status = 0
    for case in wanted:
        passed, skipped, shown, report = run(arguments.launcher, case)
        if arguments.table:
            print_row(case, passed, skipped, shown)
        else:
            print(f"{case.name}: {'passed' if passed else 'skipped' if skipped else 'FAILED'} "
                  f"{shown}", flush=True)
        if not passed:
            print(report, file=sys.stderr)
            status = SKIPPED if skipped and status in (0, SKIPPED) else 1
    return status


if __name__ == "__main__":
    sys.exit(main())

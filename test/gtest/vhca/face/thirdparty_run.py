# SPDX-License-Identifier: BSD-3-Clause
"""Starts a program that nobody here wrote on the virtual HCA, one or both sides of it, and judges
what came of it: exit statuses, a figure, or the words with which it refuses."""
import ctypes
import ipaddress
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass, field

PRCTL = ctypes.CDLL(None).prctl
PR_SET_PDEATHSIG = 1
DEVICE = "vhca0"


@dataclass
class Case:
    name: str
    words: list          # the program and what both sides get
    pair: bool = True
    kind: str = "pingpong"
    environment: dict = field(default_factory=dict)
    server_words: list = None  # instead of `words`
    options: tuple = ()        # of the launcher
    refused: str = ""    # the program ends with an error and says this
    complains: str = ""  # it works, and when it tidies up a side of it ends with this error
    takes_long: bool = False
    is_quick: bool = False  # of `./run test`; the others run where there is more time

    @property
    def tier(self):
        return "quick" if self.is_quick else "full"

    @property
    def limit_s(self):
        return 400 if self.takes_long else 90

    @property
    def command(self):
        """As a person would type it."""
        options = f"[{' '.join(self.options)}] " if self.options else ""
        variables = "".join(f"{name}={value} " for name, value in self.environment.items())
        words = (f"'{word}'" if ";" in word else word for word in self.words)
        return options + variables + " ".join(words)


@dataclass
class Result:
    state: str           # passed, FAILED or skipped
    statuses: str = ""   # of client and server
    shown: str = ""      # a figure, or the words of a refusal
    report: str = ""     # what both sides wrote


def free_port():
    """Outside the range from which the system takes ports for others."""
    for attempt in range(1000):
        port = 10000 + (os.getpid() * 8 + attempt) % 20000
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port
    raise OSError("no free port between 10000 and 30000")


def own_address(number):
    """Loopback has room for each process id and four addresses of each."""
    return str(ipaddress.IPv4Address((127 << 24) | (os.getpid() << 2) | number))


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


def die_with_parent():
    """Between fork and exec; lasts for the program, too."""
    PRCTL(PR_SET_PDEATHSIG, signal.SIGKILL)


class Side:
    """One started program and what it wrote."""

    def __init__(self, launcher, case, words, number=1):
        self.out = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")
        address = ["--address", own_address(number)] if "udp" in case.options else []
        options = [*case.options, *address]
        self.process = subprocess.Popen(
            [launcher, "vhca", "run", *options, "--", *words], stdin=subprocess.DEVNULL,
            stdout=self.out, stderr=subprocess.STDOUT, env={**os.environ, **case.environment},
            start_new_session=True, preexec_fn=die_with_parent)

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
    side = Side(launcher, case, case.words)
    status = side.wait(time.monotonic() + case.limit_s)
    return [("alone", status, side.text())]


def words_of_sides(case, port):
    """What the server and the client are started with."""
    server = [*(case.server_words or case.words)]
    if case.kind == "ucx":
        client = [case.words[0], "127.0.0.1", *case.words[1:], "-p", port]
        return [*server, "-p", port], client
    if case.kind == "libfabric":
        return [*server, "-B", port], [*case.words, "-P", port, "127.0.0.1"]
    return [*server, "-p", port], [*case.words, "-p", port, "127.0.0.1"]


def run_pair(launcher, case):
    port = free_port()
    server_words, client_words = words_of_sides(case, str(port))
    deadline = time.monotonic() + case.limit_s
    server = Side(launcher, case, server_words)
    while not is_listening(port) and server.process.poll() is None:
        if time.monotonic() > deadline:
            break
        time.sleep(0.02)
    client = Side(launcher, case, client_words, 2)
    client_status = client.wait(deadline)
    if client_status != 0:  # the server may wait for ever
        deadline = min(deadline, time.monotonic() + 30)
    server_status = server.wait(deadline)
    return [("client", client_status, client.text()), ("server", server_status, server.text())]


def numbers_line(text):
    """The last line that holds figures only."""
    rows = [line for line in text.splitlines()
            if re.fullmatch(r"(?:[\s\d.+\-e]|nan|inf)+", line) and len(line.split()) >= 3]
    return " ".join(rows[-1].split()) if rows else ""


def figure(case, text):
    if case.kind == "pingpong":
        found = re.search(r"([\d.]+ usec/iter)", text)
        return found[1] if found else ""
    if case.kind == "perftest":
        words = numbers_line(text).split()
        if "_lat" in case.words[0] and len(words) > 4:
            return f"{words[4]} us typical"
        return f"{words[3]} MB/s average" if len(words) > 3 else ""
    if case.kind == "ucx":
        found = re.search(r"^Final:\s+(.*)$", text, re.M)
        words = found[1].split() if found else []
        if len(words) > 4:
            return f"{words[5]} MB/s" if "_bw" in case.name else f"{words[1]} us median"
        return ""
    if case.kind == "libfabric":
        rows = re.findall(r"^\S+ +[\dk]+ +=[\dk]+ +\S+ +\S+ +\S+ +([\d.]+) ", text, re.M)
        return f"{rows[-1]} us/transfer" if rows else ""
    return DEVICE if DEVICE in text else ""


def judge(case, sides):
    statuses = [status for _, status, _ in sides]
    text = sides[0][2]
    told = " / ".join(str(status) for status in statuses)
    if case.refused:
        is_refused = case.refused in text and not {0, "timeout"}.intersection(statuses)
        return is_refused, told, f'"{case.refused}"'
    # The complaint may stand in the line of the figures.
    shown = figure(case, text.replace(case.complains, "\n") if case.complains else text)
    if case.complains:
        is_told = any(case.complains in text for _, _, text in sides)
        return shown != "" and is_told and set(statuses) <= {0, 1}, told, shown
    return shown != "" and set(statuses) == {0}, told, shown


def run(launcher, case):
    if shutil.which(case.words[0]) is None:
        return Result("skipped", report=f"{case.words[0]} is not installed")
    sides = (run_pair if case.pair else run_alone)(launcher, case)
    passed, statuses, shown = judge(case, sides)
    wanted = f"refusal {case.refused!r}" if case.refused else "statuses 0 and a figure"
    report = [f"wanted: {wanted}"]
    report += [f"--- {who}: exit status {status}\n{text}" for who, status, text in sides]
    return Result("passed" if passed else "FAILED", statuses, shown, "\n".join(report))

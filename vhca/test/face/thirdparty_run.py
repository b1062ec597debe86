# SPDX-License-Identifier: BSD-3-Clause
"""Starts a program that nobody here wrote on the virtual HCA, one or both sides of it, and judges
what came of it: exit statuses, a figure, or the words with which it refuses."""
import ctypes
import ipaddress
import gzip
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from dataclasses import dataclass, field, replace

from thirdparty_judge import judge

PRCTL = ctypes.CDLL(None).prctl
PR_SET_PDEATHSIG = 1
DEVICE = "vhca0"
MLX5_PREFIX = "mlx5_"
DRIVER_MLX5 = ("--driver", "mlx5")
PYVERBS_TESTS = pathlib.Path("/usr/share/doc/rdma-core/tests")
PYVERBS_MODULE = pathlib.Path("/usr/lib/python3/dist-packages/pyverbs")
# The environment of every program; mpirun asks root for the two.
COMMON = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


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
    port: int = 0        # the only one that the program knows; 0: it is told
    takes_long: bool = False
    tier: str = "full"   # quick: of `./run test`; nightly: where there is most time

    @property
    def face(self):
        return "mlx5" if "mlx5" in self.options else "tagwire"

    @property
    def row(self):
        """Of the table: the cases of both faces share it."""
        return self.name.removeprefix(MLX5_PREFIX)

    @property
    def spins(self):
        """It polls, so it wants the processors for itself."""
        has_events = self.kind in ("pingpong", "perftest") and "-e" in self.words
        sleeps = has_events or "sleep" in self.words or self.refused or self.kind == "list"
        return not sleeps

    @property
    def limit_s(self):
        return 400 if self.takes_long else 90

    @property
    def command(self):
        """As a person would type it."""
        shown = [option for option in self.options if option not in DRIVER_MLX5]
        options = f"[{' '.join(shown)}] " if shown else ""
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


def has_claim(port):
    """A process of this user listens through rdma_cm, over shared memory."""
    with open("/proc/net/unix", encoding="utf-8") as sockets:
        claims = re.findall(rf"@tagwire-vhca-cm\.{os.geteuid()}\.(\d+)\.\d+$", sockets.read(), re.M)
    return any(int(service) & 0xffff == port for service in claims)


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
            [launcher, "run", *options, "--", *words], stdin=subprocess.DEVNULL,
            stdout=self.out, stderr=subprocess.STDOUT,
            env={**os.environ, **COMMON, **case.environment},
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


def unpack_tests(folder):
    """rdma-core's tests, which Debian packs one by one."""
    for packed in PYVERBS_TESTS.iterdir():
        content = packed.read_bytes()
        is_packed = packed.suffix == ".gz"
        name = packed.stem if is_packed else packed.name
        (folder / name).write_bytes(gzip.decompress(content) if is_packed else content)


def run_pyverbs(launcher, case):
    with tempfile.TemporaryDirectory(prefix="pyverbs-") as folder:
        unpack_tests(pathlib.Path(folder))
        script, *words = case.words
        # The interpreter that pyverbs was built for.
        words = ["/usr/bin/python3", f"{folder}/{script}", *words]
        return run_alone(launcher, replace(case, words=words))


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
    if case.kind == "rdma_cm":
        told = [] if case.port else ["-p", port]
        side = "-a" if case.words[0] == "rping" else "-s"
        return [*server, *told], [*case.words, side, "127.0.0.1", *told]
    return [*server, "-p", port], [*case.words, "-p", port, "127.0.0.1"]


def run_pair(launcher, case):
    port = case.port or free_port()
    server_words, client_words = words_of_sides(case, str(port))
    deadline = time.monotonic() + case.limit_s
    server = Side(launcher, case, server_words)
    uses_rdma_cm = case.kind == "rdma_cm" or "-R" in case.words
    is_ready = has_claim if uses_rdma_cm else is_listening
    while not is_ready(port) and server.process.poll() is None:
        if time.monotonic() > deadline:
            break
        time.sleep(0.02)
    client = Side(launcher, case, client_words, 2)
    client_status = client.wait(deadline)
    if client_status != 0:  # the server may wait for ever
        deadline = min(deadline, time.monotonic() + 30)
    server_status = server.wait(deadline)
    return [("client", client_status, client.text()), ("server", server_status, server.text())]


def lacks(case):
    """Of what the case needs, the first thing that is not installed."""
    if case.kind == "pyverbs":
        return next((str(path) for path in (PYVERBS_MODULE, PYVERBS_TESTS / "run_tests.py")
                     if not path.exists()), "")
    needed = case.words[:1] + (["NPopenmpi"] if case.kind == "mpi" else [])
    return next((program for program in needed if shutil.which(program) is None), "")


def run(launcher, case):
    lacking = lacks(case)
    if lacking:
        return Result("skipped", report=f"{lacking} is not installed")
    alone = run_pyverbs if case.kind == "pyverbs" else run_alone
    sides = (run_pair if case.pair else alone)(launcher, case)
    passed, statuses, shown = judge(case, sides)
    wanted = f"refusal {case.refused!r}" if case.refused else "statuses 0 and a figure"
    report = [f"wanted: {wanted}"]
    report += [f"--- {who}: exit status {status}\n{text}" for who, status, text in sides]
    return Result("passed" if passed else "FAILED", statuses, shown, "\n".join(report))

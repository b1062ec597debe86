# SPDX-License-Identifier: BSD-3-Clause
"""The UCX installations of this machine, and ucx_perftest of one of them as two processes.

The first is `ucx_perftest` of the path. TAGWIRE_BENCH_UCX names more, separated by colons or
commas, each by its binary or by its installation prefix (the directory above bin/ucx_perftest).
An installation has the name "UCX VERSION", of a development build "UCX VERSION-REVISION"; a second
one of that name gets a number behind it. The newest is what tagwire is judged by.
"""
import ctypes
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

TIMEOUT_S = 120
EXCHANGE_TIMEOUT_S = 10
VERSION_TIMEOUT_S = 15
POLL_S = 0.002
KIND = "UCX"
PROGRAM = "ucx_perftest"
SETTING = "TAGWIRE_BENCH_UCX"
# Hooks into mmap() serve a cache of registrations, which shared memory does not have; installing
# them takes newer ones half a second.
SETTINGS = {"UCX_LOG_LEVEL": "error", "UCX_WARN_UNUSED_ENV_VARS": "n",
            "UCX_MEM_MMAP_HOOK_MODE": "none"}
# As the library says it itself, at level debug, and as ucx_info prints it.
LOADED = re.compile(r"Version (\S+) \(loaded from ([^,)]+)(?:, git branch [^,]*, "
                    r"revision ([0-9a-f]+))?")
CONFIGURED = re.compile(r"Configured with: (.*)")
RELEASE_REVISION = re.compile(r"^0*$")


class Skip(Exception):
    """A reading that could not be taken."""


class Unsupported(Skip):
    """There is no such operation: not here, and not later."""


def run(command, environment=None, timeout=TIMEOUT_S):
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                            timeout=timeout, env={**os.environ, **(environment or {})},
                            errors="replace", check=False)
    if result.returncode != 0:
        told = result.stderr.strip() or result.stdout.strip()
        kind = Unsupported if result.returncode == 2 else Skip  # 2: tagwire's usage errors
        raise kind(f"{' '.join(map(str, command))}: {told}")
    return result.stdout


def die_with_parent():
    """Between fork and exec: a server does not outlive an interrupted comparison."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def is_listening(port, process="self"):
    """Without connecting: a server of one client would take that for its client.

    In the network namespace of the process."""
    wanted = f":{port:04X}"
    for table in ("tcp", "tcp6"):
        try:
            with open(f"/proc/{process}/net/{table}", encoding="ascii") as lines:
                if any(words[1].endswith(wanted) and words[3] == "0A"
                       for words in map(str.split, lines)):
                    return True
        except OSError:
            pass
    return False


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def run_pair(server, client, port, variables, cpus=None):
    """The client's CompletedProcess, once the server listens to TCP port `port`.

    cpus: (of the client, of the server); None where the programs pin themselves."""
    def prepare(cpu):
        def between_fork_and_exec():
            die_with_parent()
            if cpu is not None:
                os.sched_setaffinity(0, {int(cpu)})
        return between_fork_and_exec

    client_cpu, server_cpu = cpus or (None, None)
    started = subprocess.Popen(server, env=variables, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, preexec_fn=prepare(server_cpu))
    try:
        deadline = time.monotonic() + TIMEOUT_S
        while not is_listening(port):
            if started.poll() is not None or time.monotonic() > deadline:
                raise Skip(f"{' '.join(server)}: the server did not start")
            time.sleep(POLL_S)
        return subprocess.run(client, env=variables, capture_output=True, text=True,
                              errors="replace", timeout=TIMEOUT_S, check=False,
                              preexec_fn=prepare(client_cpu))
    finally:
        started.kill()
        started.wait()


class Version:
    """Number and revision of an installation; "unknown" sorts first."""

    def __init__(self, number="unknown", revision="", configured=""):
        self.number = number
        self.revision = "" if RELEASE_REVISION.match(revision or "") else revision
        self.configured = configured

    @property
    def name(self):
        return f"{self.number}-{self.revision}" if self.revision else self.number

    @property
    def key(self):
        return tuple(int(part) for part in re.findall(r"\d+", self.number))


def parse_version(printed):
    """From what the library or ucx_info has printed; None when no version is in it."""
    configured = CONFIGURED.search(printed)
    configured = configured[1].strip() if configured else ""
    if found := LOADED.search(printed):
        return Version(found[1], found[3], configured)
    found = re.search(r"[Vv]ersion:?\s+(\d[\d.]*)", printed)
    if not found:
        return None
    revision = re.search(r"revision ([0-9a-f]+)", printed)
    return Version(found[1], revision[1] if revision else "", configured)


def library_directories(binary, libraries="libucp.so*"):
    """Where a prefix may have its libraries, if the binary does not find them by itself."""
    prefix = Path(binary).resolve().parent.parent
    candidates = [prefix / "lib", prefix / "lib64", *sorted((prefix / "lib").glob("*-linux-gnu*"))]
    return [str(one) for one in candidates if any(one.glob(libraries))]


class Ucx:
    """ucx_perftest as two processes on the same two CPUs. `launcher`: what starts it."""

    def __init__(self, binary, cpus, launcher=()):
        self.binary = str(binary)
        self.launcher = [str(word) for word in launcher]
        self.programs = None  # directory of ours that measure its library
        self.cpus = cpus.split(",")
        self.environment = dict(SETTINGS)
        directories = library_directories(self.binary)
        if directories and Path(self.binary).resolve().parent.parent != Path("/usr"):
            self.environment["LD_LIBRARY_PATH"] = ":".join(directories)
        self.version = self.find_version()
        self.name = f"{KIND} {self.version.name}"
        self.refused = {}  # (test, op) -> the smallest size that it could not carry

    def with_launcher(self, launcher):
        copy = object.__new__(Ucx)
        copy.__dict__.update(self.__dict__, launcher=[str(word) for word in launcher], refused={})
        return copy

    def find_version(self):
        """As the measuring program's own library says; older ones say it by ucx_info alone."""
        asked = [[self.binary, "-l", "-f", "-t", "tag_lat", "-n", "1", "-w", "0"],
                 [str(Path(self.binary).with_name("ucx_info")), "-v"]]
        answers = []
        for command in asked:
            answers.append(self.printed_by(command))
            found = parse_version(answers[-1])
            if found:
                return found
        for directory in library_directories(self.binary):
            code = ("import ctypes, sys; f = ctypes.CDLL(sys.argv[1]).ucp_get_version_string; "
                    "f.restype = ctypes.c_char_p; print('Version ' + f().decode())")
            libraries = sorted(str(one) for one in Path(directory).glob("libucp.so*"))
            found = parse_version(self.printed_by([sys.executable, "-c", code, libraries[0]]))
            if found:
                return found
        return Version()

    def printed_by(self, command):
        settings = {**self.environment, "UCX_LOG_LEVEL": "debug", "UCX_TLS": "posix,self"}
        try:
            done = subprocess.run(command, env={**os.environ, **settings}, capture_output=True,
                                  text=True, errors="replace", timeout=VERSION_TIMEOUT_S,
                                  check=False, stdin=subprocess.DEVNULL)
            return done.stdout + done.stderr
        except (OSError, subprocess.TimeoutExpired):
            return ""

    def measure(self, arguments, environment):
        """(median latency in ns, messages per second)"""
        port = free_port()
        command = ["-f", "-p", str(port), *arguments]
        variables = {**os.environ, **self.environment, **environment}
        start = [*self.launcher, self.binary]
        client = run_pair([*start, *command, "-c", self.cpus[-1]],
                          [*start, "127.0.0.1", *command, "-c", self.cpus[0]], port, variables)
        if client.returncode == 0:
            return self.parse(client.stdout)
        told = client.stderr.strip() or client.stdout.strip()
        kind = Unsupported if "Unsupported operation" in told else Skip
        raise kind(f"{self.binary} {' '.join(command)}: {told[-300:]}")

    def exchange(self, size, count, environment):
        """Nanoseconds of one exchange of two processes, by ucp_exchange over this library."""
        program = Path(self.programs) / "ucp_exchange"
        if not program.exists():
            raise Unsupported("ucp_exchange was not built (package libucx-dev)")
        printed = run([*self.launcher, program, "2", size, count, ",".join(self.cpus)],
                      {**self.environment, **environment}, EXCHANGE_TIMEOUT_S)
        return parse_exchange(printed)

    def measure_uct(self, test, size, count, operations):
        """(operation, (median latency, rate)) by the first of `operations` that carries the size.

        What was refused once is not tried with longer messages."""
        for operation in operations:
            if size >= self.refused.get((test, operation), float("inf")):
                continue
            arguments = ["-t", test, "-x", "posix", "-d", "memory", "-D", operation, "-s",
                         str(size), "-n", str(count)]
            try:
                return operation, self.measure(arguments, {})
            except Unsupported:
                self.refused[test, operation] = size
        raise Unsupported(f"posix of {self.name} carries no active message so long")

    @staticmethod
    def parse(output):
        for line in reversed(output.splitlines()):
            numbers = re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.%])", line)
            if len(numbers) >= 8:
                return float(numbers[1]) * 1000, float(numbers[-1])
        raise Skip("ucx_perftest printed no result")


def parse_exchange(printed):
    found = re.fullmatch(r"exchange_ns (\d+\.\d+)\s*", printed)
    if found is None:
        raise Skip("ucp_exchange printed no result")
    return float(found[1])


def program_of(place, programs, setting):
    """The program that a place of `setting` names: itself, or the first of `programs` that lies in
    bin/ of the installation prefix. Exits where there is none."""
    path = Path(place).expanduser()
    for binary in [path / "bin" / name for name in programs] if path.is_dir() else [path]:
        if binary.is_file() and os.access(binary, os.X_OK):
            return str(binary)
    sys.exit(f"bench: {setting} names '{place}', where no program is: it takes a list, separated "
             f"by colons or commas, of {programs[0]} binaries or of installation prefixes "
             f"(directories with bin/{' or bin/'.join(programs)})")


def programs_here(programs, setting, value=None):
    """Paths of the first of `programs` that PATH has, and of those that `setting` names."""
    found = next(filter(None, map(shutil.which, programs)), None)
    binaries = [found] if found else []
    for place in places(os.environ.get(setting) if value is None else value):
        binary = program_of(place, programs, setting)
        if not any(os.path.realpath(binary) == os.path.realpath(one) for one in binaries):
            binaries.append(binary)
    return binaries


def places(setting):
    return [place.strip() for place in re.split(r"[:,]", setting or "") if place.strip()]


def give_distinct_names(installations, kind=KIND):
    taken = {}
    for one in installations:
        base = f"{kind} {one.version.name}"
        taken[base] = taken.get(base, 0) + 1
        one.name = base if taken[base] == 1 else f"{base} ({taken[base]})"


def newest_first(installations):
    """Of the same version the one that was named last comes first."""
    return sorted(reversed(installations), key=lambda one: one.version.key, reverse=True)


def installations_here(cpus, setting=None):
    """All of them, the newest first."""
    installations = [Ucx(binary, cpus) for binary in programs_here([PROGRAM], SETTING, setting)]
    give_distinct_names(installations)
    return newest_first(installations)

# SPDX-License-Identifier: BSD-3-Clause
"""The UCX installations of this machine, and ucx_perftest of one of them as two processes.

The first is `ucx_perftest` of the path. TAGWIRE_BENCH_UCX names more, separated by colons or
commas, each by its binary or by its installation prefix (the directory above bin/ucx_perftest).
An installation has the name "UCX VERSION", of a development build "UCX VERSION-REVISION"; a second
one of that name gets a number behind it. The newest is what tagwire is judged by.
"""
import ctypes
import math
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TIMEOUT_S = 120
SETTLE_TIMEOUT_S = 2
WORDS_MAX = 300  # of a program that has failed: the last ones
WARMUP = 50
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
# Of the comma-separated values that `ucx_perftest -f -v` prints.
MEDIAN_COLUMN, RATE_COLUMN = "50.0_percentile_lat", "overall_mr"


class Skip(Exception):
    """A reading that could not be taken."""


class Unsupported(Skip):
    """There is no such operation: not here, and not later."""


def run(command, environment=None, timeout=TIMEOUT_S, both_streams=False):
    """The standard output of a program; both_streams: with its errors behind."""
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                            timeout=timeout, env={**os.environ, **(environment or {})},
                            errors="replace", check=False, preexec_fn=die_with_parent)
    if result.returncode != 0:
        told = result.stderr.strip() or result.stdout.strip()
        kind = Unsupported if result.returncode == 2 else Skip  # 2: tagwire's usage errors
        raise kind(f"{' '.join(map(str, command))}: {told}")
    return result.stdout + (result.stderr if both_streams else "")


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


def words_of(file):
    file.seek(0)
    return file.read().strip()[-WORDS_MAX:]


def told_by(ended):
    """The words of a program that has failed: UCX writes errors to standard output."""
    return f"{ended.stdout}\n{ended.stderr}".strip()[-2 * WORDS_MAX:]


def wait_until_listening(server, port, words, timeout):
    deadline = time.monotonic() + timeout
    while not is_listening(port):
        if server.poll() is not None:
            raise Skip(f"{server.args[0]} as server ended with status {server.returncode}: "
                       f"{words_of(words)}")
        if time.monotonic() > deadline:
            raise Skip(f"{server.args[0]} as server did not listen within {timeout} s")
        time.sleep(POLL_S)


def cause_at_server(server, words):
    """Where a server has failed as well, its words; empty otherwise."""
    try:
        status = server.wait(SETTLE_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return ""
    return f"\n{server.args[0]} as server ended with status {status}: {words_of(words)}" \
        if status > 0 else ""


def run_pair(server, client, port, variables, cpus=None, given="", timeout=TIMEOUT_S):
    """The client's CompletedProcess, once the server listens to TCP port `port`. To the errors of a
    client that fails those of the server are added.

    cpus: (of the client, of the server); None where the programs pin themselves. given: text that
    both have as /dev/stdin. timeout: of the client, in seconds."""
    def prepare(cpu):
        def between_fork_and_exec():
            die_with_parent()
            if cpu is not None:
                os.sched_setaffinity(0, {int(cpu)})
        return between_fork_and_exec

    client_cpu, server_cpu = cpus or (None, None)
    with tempfile.TemporaryFile("w+") as source, \
            tempfile.TemporaryFile("w+", errors="replace") as words:
        source.write(given)
        source.flush()
        started = subprocess.Popen(server, env=variables, stdin=source, stdout=words,
                                   stderr=words, preexec_fn=prepare(server_cpu))
        try:
            wait_until_listening(started, port, words, timeout)
            ended = subprocess.run(client, env=variables, stdin=source, capture_output=True,
                                   text=True, errors="replace", timeout=timeout, check=False,
                                   preexec_fn=prepare(client_cpu))
            if ended.returncode != 0:
                ended.stderr += cause_at_server(started, words)
            return ended
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
        return next(iter(self.results(arguments, environment).values()))

    def sweep(self, test, counts, environment, timeout=TIMEOUT_S):
        """{size: (median latency in ns, messages per second)} by two processes in all.

        counts: {size: how many messages}"""
        batch = "".join(f"{size} -t {test} -s {size} -n {count} -w {WARMUP}\n"
                        for size, count in counts.items())
        results = self.results(["-b", "/dev/stdin"], environment, batch, timeout)
        if not all(name.isdigit() for name in results):
            raise Skip(f"{PROGRAM} printed no sizes: {', '.join(results)}")
        return {int(name): figures for name, figures in results.items()}

    def results(self, arguments, environment, given="", timeout=TIMEOUT_S):
        """As parse_results() says, of the client that begins with these arguments."""
        port = free_port()
        command = ["-f", "-v", "-p", str(port), *arguments]
        variables = {**os.environ, **self.environment, **environment}
        start = [*self.launcher, self.binary]
        client = run_pair([*start, *command, "-c", self.cpus[-1]],
                          [*start, "127.0.0.1", *command, "-c", self.cpus[0]], port, variables,
                          given=given, timeout=timeout)
        if client.returncode == 0:
            return parse_results(client.stdout)
        told = told_by(client)
        kind = Unsupported if "Unsupported operation" in told else Skip
        raise kind(f"{self.binary} {' '.join(command)} ended with status {client.returncode}: "
                   f"{told}")

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


def positive_of(program, word):
    try:
        value = float(word)
    except ValueError:
        value = 0
    if not 0 < value < math.inf:
        raise Skip(f"{program} printed '{word}' where a number was expected")
    return value


def parse_results(printed):
    """{name: (median latency in ns, messages per second)} of what `ucx_perftest -f -v` prints. The
    name is that in the batch file, without one empty. Other lines are what the library says."""
    head, found = [], {}
    for line in printed.splitlines():
        words = [word.strip() for word in line.split(",")]
        if "iterations" in words:
            head = words
        elif {MEDIAN_COLUMN, RATE_COLUMN} <= {*head} and len(words) == len(head):
            name = words[0] if head[0] != "iterations" else ""
            median_us, rate = (positive_of(PROGRAM, words[head.index(column)])
                               for column in (MEDIAN_COLUMN, RATE_COLUMN))
            found[name] = median_us * 1000, rate
    if not found:
        raise Skip(f"{PROGRAM} printed no result in the form that is known")
    return found


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

# SPDX-License-Identifier: BSD-3-Clause
"""The libfabric installations of this machine, and their tagged ping-pong over the shm provider.

The program is fi_rdm_tagged_pingpong of fabtests, or fi_pingpong where that is missing. The first
installation is that of the path. TAGWIRE_BENCH_LIBFABRIC names more, separated by colons or commas,
each by the program or by its installation prefix (the directory above bin/). An installation has
the name "libfabric VERSION". The newest is what tagwire is judged by.
"""
import os
import re
import subprocess
from pathlib import Path

from ucx_peer import (TIMEOUT_S, VERSION_TIMEOUT_S, Skip, Unsupported, Version, free_port,
                      give_distinct_names, library_directories, newest_first, programs_here,
                      run_pair, told_by)

KIND = "libfabric"
SETTING = "TAGWIRE_BENCH_LIBFABRIC"
FABTESTS = "fi_rdm_tagged_pingpong"
PROGRAMS = [FABTESTS, "fi_pingpong"]
WARMUP = 1000
# Both programs print a line of: bytes ... time MB/sec usec/xfer Mxfers/sec
RESULT = re.compile(r"^(\d\S*)\s.*?\s([\d.]+)s\s+([\d.]+)\s+([\d.]+)\s+[\d.]+$")


def parse_version(printed):
    """From `fi_info --version`; None when no version is in it."""
    found = re.search(r"^libfabric: (\d[\w.]*)", printed, re.MULTILINE)
    return Version(found[1]) if found else None


def parse_latency(printed, size):
    """Mean nanoseconds of one way.

    Bandwidth and time have two decimals each: the larger number is the more precise one."""
    for line in reversed(printed.splitlines()):
        found = RESULT.match(line.strip())
        if found:
            bytes_per_us, us = float(found[3]), float(found[4])
            if max(bytes_per_us, us) > 0:
                return 1e3 * (us if us > bytes_per_us else size / bytes_per_us)
    raise Skip("the ping-pong of libfabric printed no result")


class Libfabric:
    """The ping-pong as two processes on the same two CPUs."""

    def __init__(self, binary, cpus):
        self.binary = str(binary)
        self.launcher = []    # what starts it
        self.programs = None  # as of Ucx
        self.cpus = (cpus.split(",")[0], cpus.split(",")[-1])
        self.variables = {**os.environ, "FI_LOG_LEVEL": "warn"}
        directories = library_directories(self.binary, "libfabric.so*")
        if directories and Path(self.binary).resolve().parent.parent != Path("/usr"):
            self.variables["LD_LIBRARY_PATH"] = ":".join(directories)
        self.version = self.find_version()
        self.name = f"{KIND} {self.version.name}"

    def find_version(self):
        """As fi_info beside the program says, else that of the path with the same library."""
        for command in (str(Path(self.binary).with_name("fi_info")), "fi_info"):
            try:
                printed = subprocess.run([command, "--version"], env=self.variables,
                                         capture_output=True, text=True, errors="replace",
                                         timeout=VERSION_TIMEOUT_S, check=False,
                                         stdin=subprocess.DEVNULL).stdout
            except (OSError, subprocess.TimeoutExpired):
                continue
            if found := parse_version(printed):
                return found
        return Version()

    def commands(self, size, count, port, provider="shm", host="127.0.0.1"):
        """(of the server, of the client)"""
        if Path(self.binary).name.startswith(FABTESTS):
            both = [self.binary, "-p", provider, "-I", str(count), "-w", str(min(WARMUP, count)),
                    "-S", str(size), f"-E={port}"]
            return both, [*both, host]
        both = [self.binary, "-p", provider, "-e", "rdm", "-m", "tagged", "-I", str(count),
                "-S", str(size)]
        return [*both, "-B", str(port)], [*both, "-P", str(port), host]

    def tagged_latency(self, size, count, provider="shm", environment=None, timeout=TIMEOUT_S):
        """Mean nanoseconds of one way."""
        port = free_port()
        server, client = ([*self.launcher, *command]
                          for command in self.commands(size, count, port, provider))
        ended = run_pair(server, client, port, {**self.variables, **(environment or {})},
                         self.cpus, timeout=timeout)
        if ended.returncode == 0:
            return parse_latency(ended.stdout, size)
        told = told_by(ended)
        kind = Unsupported if "No data available" in told else Skip  # there is no such provider
        raise kind(f"{' '.join(client)} ended with status {ended.returncode}: {told}")


def installations_here(cpus, setting=None):
    """All of them, the newest first."""
    binaries = programs_here(PROGRAMS, SETTING, setting)
    installations = [Libfabric(binary, cpus) for binary in binaries]
    give_distinct_names(installations, KIND)
    return newest_first(installations)

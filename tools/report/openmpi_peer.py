# SPDX-License-Identifier: BSD-3-Clause
"""Open MPI of this machine, and NetPIPE between two of its ranks."""
import os
import re
import shutil
import subprocess

from ucx_peer import VERSION_TIMEOUT_S, Skip, positive_of, run

KIND = "Open MPI"
MPIRUN = "mpirun.openmpi"
NETPIPE = "NPopenmpi"
# Words for mpirun that choose the carrier of messages: libfabric's provider tagwire, Open MPI's own
# shared memory, UCX.
OFI = ["--mca", "pml", "cm", "--mca", "mtl", "ofi", "--mca", "mtl_ofi_provider_include", "tagwire"]
VADER = ["--mca", "pml", "ob1", "--mca", "btl", "self,vader"]
UCX = ["--mca", "pml", "ucx", "--mca", "pml_ucx_tls", "any", "--mca", "pml_ucx_devices", "any"]
# "  0:       8 bytes  12345 times -->    101.72 Mbps in       0.60 usec"
RESULT = re.compile(r"^\s*\d+:\s+(\d+) bytes\s+\d+ times\s+-->\s+\S+ Mbps in\s+(\S+) usec\s*$")


def settings(environment):
    """For mpirun: root needs leave."""
    as_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return {"UCX_LOG_LEVEL": "error", **environment, **(as_root if os.geteuid() == 0 else {})}


def parse_netpipe(printed):
    """{size: ns}: NetPIPE prints half of the round trip."""
    lines = filter(None, map(RESULT.match, printed.splitlines()))
    found = {int(line[1]): positive_of(NETPIPE, line[2]) * 1e3 for line in lines}
    if not found:
        raise Skip(f"{NETPIPE} printed no result in the form that is known")
    return found


class OpenMpi:
    """Raises Skip, which names the package, where it is not installed."""

    def __init__(self, cpus):
        for program, package in ((NETPIPE, "netpipe-openmpi"), (MPIRUN, "openmpi-bin")):
            if shutil.which(program) is None:
                raise Skip(f"{program} is not installed (apt-get install {package})")
        self.cpus = cpus
        self.version = self.find_version()

    @staticmethod
    def find_version():
        try:
            printed = run([MPIRUN, "--version"], timeout=VERSION_TIMEOUT_S)
        except (Skip, subprocess.TimeoutExpired):  # only the version is missing then
            printed = ""
        found = re.search(r"\(Open MPI\)\s*([\d.]+)", printed)
        return found[1] if found else "of unknown version"

    def latencies(self, layer, first, last, count, environment, timeout):
        """{size: half of the round trip in ns}; `layer`: words for mpirun."""
        command = [MPIRUN, "--oversubscribe", "--bind-to", "none", *layer]
        for rank, cpu in enumerate(self.cpus):
            command += [*([":"] if rank else []), "-np", "1", "taskset", "-c", cpu, NETPIPE,
                        "-l", first, "-u", last, "-n", count, "-p", "0", "-o", "/dev/null"]
        done = run(command, settings(environment), timeout, both_streams=True)
        return parse_netpipe(done)

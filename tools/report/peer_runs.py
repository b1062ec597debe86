# SPDX-License-Identifier: BSD-3-Clause
"""The curves of other libraries in a report, by their own measuring programs."""
import shutil
import time

from libfabric_peer import Libfabric
from meter import Reading
from openmpi_peer import MPIRUN, NETPIPE, OpenMpi
from own_runs import BYTES, LATENCY
from ucx_peer import PROGRAM, Skip, installations_here

PINGPONG = "fi_pingpong"
TCP_PROVIDER = "tcp;ofi_rxm"
SHARED_MEMORY = {"UCX_TLS": "posix,self,cma"}
TCP = {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "lo"}
KINDS = {"ucx": "UCX", "libfabric": "libfabric", "openmpi": "Open MPI"}
UNKNOWN = "of unknown version"


def version_name(version):
    return UNKNOWN if version.name == "unknown" else version.name


class PeerRuns:
    """cpus: of the side that measures and of the other. provider: the folder of libtagwire-fi.so,
    or empty. log: a set that gets the command lines."""

    def __init__(self, cpus, provider, timeout, log):
        self.cpus = [str(cpu) for cpu in cpus]
        self.provider = provider
        self.timeout = timeout
        self.log = log
        self.peers = {}     # kind -> what measures it
        self.versions = {}  # kind -> text

    def find(self, kind):
        """Raises Skip, which names the package, where it is not installed."""
        finders = {"ucx": self.find_ucx, "libfabric": self.find_libfabric,
                   "openmpi": lambda: OpenMpi(self.cpus)}
        peer = finders[kind]()
        self.peers[kind] = peer
        self.versions[kind] = peer.version if kind == "openmpi" else version_name(peer.version)

    def find_ucx(self):
        """The newest of the path and of TAGWIRE_BENCH_UCX."""
        found = installations_here(",".join(self.cpus))
        if not found:
            raise Skip(f"{PROGRAM} is not installed (apt-get install ucx-utils)")
        return found[0]

    def find_libfabric(self):
        program = shutil.which(PINGPONG)
        if program is None:
            raise Skip(f"{PINGPONG} is not installed (apt-get install libfabric-bin)")
        return Libfabric(program, ",".join(self.cpus))

    def ucx(self, settings, test, figure, batches):
        """settings: of its environment, SHARED_MEMORY or TCP. test: tag_lat or tag_bw."""
        ucx = self.peers["ucx"]
        counts = {size: batch.count for batch in batches for size in batch.sizes}
        shown = " ".join(f"{name}={value}" for name, value in settings.items())
        self.log.add(f"{shown} {ucx.binary} 127.0.0.1 -f -v -c {self.cpus[0]} -b LIST "
                     f"(of -t {test} -s SIZE -n COUNT)")
        found = ucx.sweep(test, counts, settings, self.timeout)
        return Reading({size: latency if figure == LATENCY else
                        rate * size if figure == BYTES else rate
                        for size, (latency, rate) in found.items()})

    def provider_settings(self):
        """With which programs of libfabric load tagwire's provider, where there is one."""
        path = {"FI_PROVIDER_PATH": self.provider} if self.provider else {}
        return {"FI_TAGWIRE_TRANSPORTS": "sm", **path}

    def libfabric(self, provider, batches):
        """Ping-pong; the sizes of a batch together have the time of one program."""
        environment = self.provider_settings() if provider == "tagwire" else {}
        points = {}
        for batch in batches:
            end = time.monotonic() + self.timeout
            for size in batch.sizes:
                left = end - time.monotonic()
                if left <= 0:
                    raise Skip(f"{PINGPONG} did not end within {self.timeout} s")
                points[size] = self.peers["libfabric"].tagged_latency(size, batch.count, provider,
                                                                      environment, left)
            shown = provider.replace(";", "\\;")
            self.log.add(f"taskset -c {self.cpus[0]} {PINGPONG} -p {shown} -e rdm -m tagged "
                         f"-I {batch.count} -S SIZE 127.0.0.1")
        return Reading(points)

    def openmpi(self, layer, batches):
        """NetPIPE; `layer`: words for mpirun. Of a batch the first size and the last."""
        self.log.add(f"{MPIRUN} {' '.join(layer)} -np 2 {NETPIPE} -l SIZE -u SIZE -n COUNT -p 0")
        points = {}
        for batch in batches:
            points.update(self.peers["openmpi"].latencies(
                layer, batch.sizes[0], batch.sizes[-1], batch.count, self.provider_settings(),
                self.timeout))
        return Reading(points)

# SPDX-License-Identifier: BSD-3-Clause
"""How much a report measures: few sizes and short runs, or all of them."""
from dataclasses import dataclass

from meter import Pace

KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True)
class Batch:
    """Sizes that are measured with as many messages each."""
    sizes: tuple
    count: int


def powers(first, last):
    return tuple(1 << power for power in range(first.bit_length() - 1, last.bit_length()))


@dataclass(frozen=True)
class Amounts:
    sweep: tuple    # latency and bandwidth
    tcp: tuple      # the same; fi_pingpong takes a second more for each size
    rate: tuple     # small messages
    choice: tuple   # where eager and rendezvous meet
    clients: tuple
    netpipe: tuple  # from one size to another
    depths: tuple
    depth_count: int
    threads: tuple
    thread_count: int
    pace: Pace
    timeout: float  # of one program, in seconds


# One lost time slice must not be most of a run: the shortest take milliseconds.
QUICK = Amounts(
    sweep=(Batch((8, 64, 512, 4 * KIB), 1000), Batch((32 * KIB, 256 * KIB), 400),
           Batch((MIB,), 100)),
    tcp=(Batch((8, 4 * KIB), 1000), Batch((64 * KIB,), 400), Batch((MIB,), 100)),
    rate=(Batch((8, 64, 256, KIB), 20000),),
    choice=(Batch((KIB, 4 * KIB), 1000), Batch((16 * KIB, 64 * KIB, 256 * KIB), 200),
            Batch((MIB,), 50)),
    clients=(Batch((8, 4 * KIB), 20000), Batch((64 * KIB,), 2000)),
    netpipe=(Batch((8, 64 * KIB), 200),),
    depths=(1, 100, 1000, 10000), depth_count=1000,
    threads=(1, 2), thread_count=20000,
    pace=Pace(3, 4, 28), timeout=10)

LONG = (Batch(powers(8 * KIB, 512 * KIB), 1000), Batch(powers(MIB, 4 * MIB), 200))
FULL = Amounts(
    sweep=(Batch(powers(8, 4 * KIB), 20000), *LONG),
    tcp=(Batch(powers(8, 4 * KIB), 10000), *LONG),
    rate=(Batch(powers(8, KIB), 200000),),
    choice=(Batch(powers(256, 8 * KIB), 10000), Batch(powers(16 * KIB, 256 * KIB), 1000),
            Batch(powers(512 * KIB, 4 * MIB), 200)),
    clients=(Batch((8, 64, 256, KIB, 4 * KIB), 20000),
             Batch((16 * KIB, 64 * KIB, 256 * KIB), 1000), Batch((MIB, 4 * MIB), 200)),
    netpipe=(Batch((8, 16 * KIB), 10000), Batch((32 * KIB, 4 * MIB), 200)),
    depths=(1, 10, 100, 1000, 10000, 100000), depth_count=10000,
    threads=(1, 2, 4), thread_count=200000,
    pace=Pace(7, 180, 285), timeout=30)

# SPDX-License-Identifier: BSD-3-Clause
"""The curves of this library in a report, by `tagwire perf`, and the transports that it has."""
from dataclasses import dataclass

from meter import Reading
from tagwire_runs import Tagwire

# Which figure of a result is drawn.
LATENCY = "latency_ns"
MESSAGES = "messages_per_s"
BYTES = "bytes_per_s"
SHOWN = ("sm", "rc", "dc", "tcp")


@dataclass(frozen=True)
class Lane:
    """One of this machine's transports with the device that stands for it."""
    transport: str
    device: str

    @property
    def tl(self):
        return "sm" if self.transport == "sm" else f"{self.transport}:{self.device}"

    @property
    def name(self):
        return "sm" if self.transport == "sm" else f"{self.transport} {self.device}"

    @property
    def is_virtual(self):
        return self.device.startswith("vhca")


def lanes_of(components):
    """As `tagwire info devices` has them: the first of each kind that has tagged messages, a real
    device before a virtual one; of tcp the last, which is the loopback interface."""
    devices = {}
    for component in components:
        for domain in component["memory_domains"]:
            for found in domain.get("transports", ()):
                lane = Lane(found["name"], found["device"])
                known = devices.setdefault(lane.transport, lane)
                if lane.transport == "tcp" or (known.is_virtual and not lane.is_virtual):
                    devices[lane.transport] = lane
    return [devices[transport] for transport in SHOWN if transport in devices]


def figure_of(result, figure):
    return result[LATENCY]["p50"] if figure == LATENCY else result[figure]


def words_of(sizes):
    return ",".join(map(str, sizes))


class OwnRuns:
    """log: a set that gets every command line that ran, without the sizes."""

    def __init__(self, command, timeout, log):
        self.tagwire = Tagwire(command)
        self.timeout = timeout
        self.log = log

    def run(self, test, words, more, setting=None):
        setting = setting or {}
        shown = [*(f"{name}={value}" for name, value in setting.items()), "tagwire perf", test,
                 *words]
        self.log.add(" ".join(shown))
        return self.tagwire.results([test], [*words, *map(str, more)], setting, self.timeout)

    def by_size(self, test, words, figure, batches, setting=None):
        """setting: {name: value} for the environment. Of latencies the p99 is read, too."""
        reading = Reading({})
        for batch in batches:
            for result in self.run(test, words, ["--size", words_of(batch.sizes), "--iters",
                                                 batch.count], setting):
                reading.middle[result["size"]] = figure_of(result, figure)
                if figure == LATENCY:
                    reading.upper[result["size"]] = result[LATENCY]["p99"]
        return reading

    def by_option(self, test, words, option, values, count, figure):
        """Over the values of an option, as --depth or --threads."""
        points = {}
        for value in values:
            result, *_ = self.run(test, words, [f"--{option}", value, "--iters", count])
            points[result[option]] = figure_of(result, figure)
        return Reading(points)

    def floor_ns(self):
        """Nanoseconds that a cache line takes."""
        result, *_ = self.run("cacheline", ["--iters", "2048", "--warmup", "256"], [])
        return figure_of(result, LATENCY)

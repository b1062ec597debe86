# SPDX-License-Identifier: BSD-3-Clause
"""The sections of a report: which test, over which transports and libraries, and its words."""
import statistics
from dataclasses import replace

import own_runs
import units
from explain_plot import CURVE_SIZES, plot_of
from meter import FAILURES, Reading, Source
from openmpi_peer import OFI, UCX, VADER
from own_runs import LATENCY, MESSAGES
from page import Section, SummaryRow
from peer_runs import SHARED_MEMORY, TCP, TCP_PROVIDER
from plot import DASHED, DOTTED, LIMIT, SOLID, Axis, Curve, Plot

# Levels of `tagwire perf`, and their names on the page.
LEVELS = (("msg", "messaging layer", SOLID), ("uct", "transport", DASHED))
SMALL_MESSAGE = 8
UCX_COLOUR, LIBFABRIC_COLOUR, OPENMPI_COLOUR = 5, 6, 7  # behind those of the transports
THRESHOLD = "TAGWIRE_RNDV_THRESHOLD"
EAGER = {THRESHOLD: "16m"}  # longer than any size here
RENDEZVOUS = {THRESHOLD: "0"}
SIZE_AXIS = Axis("message size (bytes)", units.BYTES)
LATENCY_AXIS = Axis("half of the round trip", units.NANOSECONDS)
BANDWIDTH_AXIS = Axis("payload per second", units.BYTES_PER_SECOND)
RATE_AXIS = Axis("messages per second", units.PER_SECOND)
SELECTION_ROWS = (8, 64, 512, 4096, 16384, 65536, 262144, 1048576, 4194304)
NO_PROVIDER = ("Programs of libfabric do not run over tagwire here: there is no libtagwire-fi.so "
               "beside the library (package libtagwire-fi), or the build has sanitizers, which "
               "those programs lack")


class Sections:
    """amounts: how much is measured. own, peers: what runs. meter: where it is read."""

    def __init__(self, amounts, own, peers, meter):
        self.amounts = amounts
        self.own = own
        self.peers = peers
        self.meter = meter
        self.sections = []

    def add(self, plot, meaning, sources):
        plot.curves = self.meter.curves(plot.title, sources)
        self.sections.append(Section(meaning, plot))

    # ---- Sources

    def level_source(self, lane, level, test, figure, batches, colour):
        option, name, line = level

        def read():
            reading = self.own.by_size(test, ["--level", option, "--tl", lane.tl], figure, batches)
            return reading if line == SOLID else Reading(reading.middle)  # one band is enough
        return Source(f"{lane.name}, {name}", read, line, colour)

    def peer_sources(self, is_tcp, test, figure, batches):
        sources = []
        if "ucx" in self.peers.peers:
            theirs = "tag_lat" if figure == LATENCY else "tag_bw"
            sources.append(Source(
                "UCX, tcp" if is_tcp else "UCX, posix+cma",
                lambda: self.peers.ucx(TCP if is_tcp else SHARED_MEMORY, theirs, figure, batches),
                DOTTED, UCX_COLOUR, False))
        if "libfabric" in self.peers.peers and test == "tag_lat":
            sources.append(Source(
                "libfabric, tcp" if is_tcp else "libfabric, shm",
                lambda: self.peers.libfabric(TCP_PROVIDER if is_tcp else "shm", batches),
                DOTTED, LIBFABRIC_COLOUR, False))
        return sources

    def sources(self, lanes, test, figure, batches):
        """Both levels of each transport, those of other libraries right behind the first of shared
        memory or tcp."""
        sources = []
        for colour, lane in enumerate(lanes):
            for level in LEVELS:
                sources.append(self.level_source(lane, level, test, figure, batches, colour))
                if lane.transport in ("sm", "tcp") and len(sources) == 1:
                    sources += self.peer_sources(lane.transport == "tcp", test, figure, batches)
        return sources

    # ---- Sections

    def add_latency(self, lanes):
        self.add(Plot("latency", "Latency", SIZE_AXIS, LATENCY_AXIS),
                 "Half of the round trip of a tagged ping-pong between two processes (tag_lat), "
                 "median over batches of 32. Each transport is measured through the messaging "
                 "layer (solid lines, whose pale bands reach up to the 99th percentile) and by "
                 "itself (dashed). Lower is better.",
                 self.sources(lanes, "tag_lat", LATENCY, self.amounts.sweep))
        self.add_floor()

    def add_floor(self):
        """The floor that was measured around the figures of the last section."""
        plot = self.sections[-1].plot
        places = [x for curve in plot.curves for x in curve.points]
        if places and self.meter.floors:
            floor = statistics.median(self.meter.floors)
            plot.curves.append(Curve("floor (a cache line)",
                                     {min(places): floor, max(places): floor}, LIMIT))

    def add_bandwidth(self, lanes):
        self.add(Plot("bandwidth", "Bandwidth", SIZE_AXIS, BANDWIDTH_AXIS),
                 "A stream of tagged messages in one direction with 64 under way (tag_bw), from "
                 "the first post until the last is known to be received. Higher is better.",
                 self.sources(lanes, "tag_bw", own_runs.BYTES, self.amounts.sweep))
        self.add_relative()

    def add_relative(self):
        """The last section again, each curve as a share of the best at its place."""
        plot = self.sections[-1].plot
        best = {}
        for curve in plot.curves:
            for x, value in curve.points.items():
                best[x] = max(best.get(x, 0), value)
        curves = [replace(curve, points={x: value * 100 / best[x] if best[x] > 0 else 0
                                         for x, value in curve.points.items()})
                  for curve in plot.curves]
        axis = Axis("share of the highest at this size", units.PERCENT)
        self.sections.append(Section(
            "The same figures as a share of the highest of each size, which shows differences that "
            "a logarithmic axis hides.",
            Plot(plot.id + "relative", plot.title + ", relative to the best", plot.x, axis,
                 curves)))

    def add_rate(self, lanes):
        self.add(Plot("rate", "Message rate", SIZE_AXIS, RATE_AXIS),
                 "A stream of small tagged messages, each with a tag and a receive of its own "
                 "(tag_rate; UCX: tag_bw). Higher is better.",
                 self.sources(lanes, "tag_rate", MESSAGES, self.amounts.rate))

    def add_tcp(self, lane):
        self.add(Plot("latencytcp", "Latency over TCP", SIZE_AXIS, LATENCY_AXIS),
                 "The same ping-pong over the loopback interface, where the kernel's sockets take "
                 "most of the time; UCX and libfabric (tcp;ofi_rxm) have the same sockets. Lower "
                 "is better.", self.sources([lane], "tag_lat", LATENCY, self.amounts.tcp))
        self.add(Plot("bandwidthtcp", "Bandwidth over TCP", SIZE_AXIS, BANDWIDTH_AXIS),
                 "The same stream over the loopback interface. Higher is better.",
                 self.sources([lane], "tag_bw", own_runs.BYTES, self.amounts.tcp))
        self.add(Plot("ratetcp", "Message rate over TCP", SIZE_AXIS, RATE_AXIS),
                 "The same stream of small messages over the loopback interface: one system call "
                 "takes many of them. Higher is better.",
                 self.sources([lane], "tag_rate", MESSAGES, self.amounts.rate))
        self.add_selection(lane)
        self.add_choice(lane)

    def add_depth(self, lanes):
        def source(lane, colour, name, line, more):
            words = ["--level", "msg", "--tl", lane.tl, *more]
            return Source(f"{lane.name}, {name}",
                          lambda: self.own.by_option("match", words, "depth", self.amounts.depths,
                                                     self.amounts.depth_count, LATENCY),
                          line, colour)

        sources = [source(lane, colour, *kind) for colour, lane in enumerate(lanes)
                   for kind in (("expected", SOLID, []), ("unexpected", DASHED, ["--unexpected"]))]
        self.add(Plot("depth", "Depth: a message among many",
                      Axis("other receives posted, or messages waiting", units.COUNT),
                      Axis("half of the round trip, 8 bytes", units.NANOSECONDS)),
                 "Ping-pong of tagged messages (match, messaging layer) whose tag is drawn at "
                 "random among as many posted receives (expected), or among as many messages that "
                 "wait without a receive (unexpected: one peek and one receive for each). Lower is "
                 "better; a flat line means that the cost does not depend on their number.",
                 sources)

    def add_threads(self, cores):
        def source(name, line, share):
            # Threads beyond the cores yield; all points are measured alike.
            words = ["--level", "msg", "--tl", "sm", "--share", share, "--wait", "yield"]
            return Source(name, lambda: self.own.by_option(
                "tag_rate", words, "threads", self.amounts.threads, self.amounts.thread_count,
                MESSAGES), line, 0)

        few = f" There are {cores} cores here: beyond that number threads take turns." \
            if self.amounts.threads[-1] > cores else ""
        self.add(Plot("threads", "Threads", Axis("threads", units.THREADS), RATE_AXIS),
                 "A stream of tagged messages of 8 bytes from each thread of one process to itself "
                 "(tag_rate, messaging layer, shared memory), the rates of all threads together: "
                 "each with a worker of its own, or all over one worker (`--share`). Higher is "
                 f"better.{few}",
                 [source("a worker each", SOLID, "context"),
                  source("one worker", DASHED, "worker")])

    def add_clients(self):
        known = self.peers.peers
        if not {"libfabric", "openmpi"} & {*known}:
            return
        if not self.peers.provider:
            self.meter.note(NO_PROVIDER)

        def libfabric(provider, line, is_ours):
            return Source(f"libfabric, {provider}",
                          lambda: self.peers.libfabric(provider, self.amounts.clients),
                          line, LIBFABRIC_COLOUR, is_ours)

        def openmpi(name, line, is_ours, layer):
            return Source(f"Open MPI, {name}",
                          lambda: self.peers.openmpi(layer, self.amounts.netpipe),
                          line, OPENMPI_COLOUR, is_ours)

        sources = {
            "libfabric": [libfabric("tagwire", SOLID, True), libfabric("shm", DOTTED, False)],
            "openmpi": [openmpi("tagwire", SOLID, True, OFI),
                        openmpi("vader", DOTTED, False, VADER),
                        openmpi("UCX", DASHED, False, UCX)]}
        self.add(Plot("clients", "Programs over tagwire: latency", SIZE_AXIS, LATENCY_AXIS),
                 "Half of the round trip as programs that know nothing of tagwire tell it: "
                 "libfabric's fi_pingpong with tags over tagwire's provider and over libfabric's "
                 "own for shared memory; NetPIPE over Open MPI, whose messages tagwire's provider "
                 "carries, or Open MPI's own transport for shared memory (vader), or UCX. Lower is "
                 "better.",
                 [source for kind in sources if kind in known for source in sources[kind]
                  if self.peers.provider or not source.is_ours])

    def add_selection(self, lane):
        try:
            document = self.own.tagwire.document(
                ["explain", "--tl", lane.tl, "--size", own_runs.words_of(CURVE_SIZES)],
                timeout=self.own.timeout)
            for rail in document["transports"]:
                plot = plot_of(rail, "selection" + lane.transport)
                plot.title = "Selection over " + plot.title
                self.sections.append(Section(
                    "The cost of a message by each protocol of the messaging layer, as its cost "
                    "model says or `tagwire tune` has measured it, and the choice (the pale band). "
                    "`tagwire explain` says why, term by term. Rendezvous begins at the vertical "
                    "line.", plot, SELECTION_ROWS))
        except FAILURES as error:
            self.meter.note(f"Selection over {lane.name}: {error}")

    def add_choice(self, lane):
        def source(name, line, setting):
            words = ["--level", "msg", "--tl", lane.tl]
            return Source(name, lambda: Reading(self.own.by_size(
                "tag_lat", words, LATENCY, self.amounts.choice, setting).middle), line)

        self.add(Plot("choice" + lane.transport, f"Choice over {lane.name}, measured", SIZE_AXIS,
                      LATENCY_AXIS),
                 f"Latency with either way of sending forced by {THRESHOLD}, beside what the "
                 "library chooses by the costs above: that line should be near the lower of the "
                 "others.",
                 [source("what is chosen", SOLID, {}), source("eager forced", DASHED, EAGER),
                  source("rendezvous forced", DOTTED, RENDEZVOUS)])

    # ---- Summary

    def summary(self):
        """Three numbers for each curve of the first plots, and of those over TCP."""
        plots = {section.plot.id: section.plot for section in self.sections}
        return [row for over in ("", "tcp") if "latency" + over in plots
                for row in summary_of(*(plots[name + over]
                                        for name in ("latency", "bandwidth", "rate")))]


def summary_of(latency, bandwidth, rate):
    rows = []
    for curve in latency.curves:
        if curve.line == LIMIT:
            continue
        streams, rates = (next((one.points for one in plot.curves if one.name == curve.name), {})
                          for plot in (bandwidth, rate))
        row = SummaryRow(curve.name, curve.points.get(SMALL_MESSAGE),
                         max(streams.values(), default=None), rates.get(SMALL_MESSAGE))
        if any(figure is not None
               for figure in (row.latency_ns, row.bytes_per_s, row.messages_per_s)):
            rows.append(row)
    return rows

# SPDX-License-Identifier: BSD-3-Clause
"""The rows of compare.py: what is read over sm, what it is compared with, and the targets."""
import statistics
from pathlib import Path

import report_folder  # first: it finds the peers
import libfabric_peer
import rounds
import ucx_peer
from rounds import parse_size, size_name
from ucx_peer import Unsupported

KIB = 1 << 10
MIB = 1 << 20
SIZES = [1 << power for power in range(3, 23)]
OPERATIONS = ("short", "bcopy", "zcopy")
COPIES_TO = "1m"  # with this rendezvous threshold UCX copies shorter messages through memory
UCP = {"default": {"UCX_TLS": "posix,cma"},
       COPIES_TO: {"UCX_TLS": "posix,cma", "UCX_RNDV_THRESH": COPIES_TO}}
DEEP = 100000
MEAN_RUNS = 3


class Goal:
    """A limit of ours / theirs in each regime; None where there is no target.

    against: "default", the peer as it comes; "best", the best of its variants in the same round;
        "reference", the row's reference
    relation: "<=" or ">="
    """

    def __init__(self, against, relation, near, far):
        self.against = against
        self.relation = relation
        self.limits = {"near": near, "far": far}

    def text(self, regime):
        limit = self.limits[regime]
        return "-" if limit is None else f"{self.relation}{limit:.2f}"

    def limits_text(self):
        near, far = self.text("near"), self.text("far")
        return near if near == far else f"{near} near, {far} far"

    def describe(self, peer):
        whom = {"default": peer, "best": f"{peer}, best threshold", "reference": "reference"}
        return f"{self.limits_text()} x {whom[self.against]}"

    def met(self, ratio, regime):
        """None where there is no target."""
        limit = self.limits[regime]
        if limit is None:
            return None
        return ratio <= limit if self.relation == "<=" else ratio >= limit


class Row:
    """One line of the comparison.

    ours: function(row, tagwire) -> (value, nanoseconds above the floor or None)
    unit: "ns", "/s", "B/s" or "B"
    theirs: {variant: function(row, peer) -> value}
    reference: function(tagwire) -> value of ours to compare with: memcpy, chase, depth 1
    peer: the library that `theirs` measures, the first word of its installations' names
    """

    def __init__(self, name, size, unit, ours, goals, theirs=None, reference=None,
                 peer=ucx_peer.KIND):
        self.name = name
        self.level = name.split()[0]
        self.peer = peer
        self.size = size
        self.unit = unit
        self.ours = ours
        self.goals = goals
        self.theirs = theirs or {}
        self.reference = reference
        self.readings = []
        self.absent = {}      # {who: why there is no value}
        self.operations = {}  # {who: short, bcopy or zcopy}

    def best(self, values):
        return min(values) if self.unit == "ns" else max(values)

    def is_of(self, peer):
        """Whether an installation of this name is measured in this row."""
        return self.peer == peer.split()[0]

    def judge_among(self, names):
        """The installation that judges the row: the first of its kind, None where there is none."""
        return next(filter(self.is_of, names), None)

    def ratio(self, reading, goal, peer):
        """Ours over theirs in one reading; None where one is missing."""
        if goal.against == "reference":
            theirs = reading["reference"]
        else:
            variants = reading["peers"].get(peer, {})
            if goal.against == "best":
                theirs = self.best(variants.values()) if variants else None
            else:
                theirs = variants.get("default")
        return reading["ours"] / theirs if theirs else None

    def median_ratio(self, readings, goal, peer):
        ratios = [ratio for r in readings if (ratio := self.ratio(r, goal, peer)) is not None]
        return statistics.median(ratios) if ratios else None


def target(against, relation, near, far=None):
    return Goal(against, relation, near, near if far is None else far)


# ---- What is read

def perf(row, tagwire, test, *arguments, environment=None):
    """Of the row's level and size."""
    result = tagwire.perf(test, ["--level", row.level, "--size", str(row.size), *arguments],
                          environment)
    if result["op"]:
        row.operations["tagwire"] = result["op"]
    return result


def latency(test, *arguments):
    def read(row, tagwire):
        result = perf(row, tagwire, test, *arguments)
        return result["latency_ns"]["p50"], result["above_floor_ns"]
    return read


def mean_latency(test, *arguments):
    """For peers that state no median: the lowest mean of several runs, which one interruption does
    not change."""
    def read(row, tagwire):
        runs = [perf(row, tagwire, test, *arguments) for _ in range(MEAN_RUNS)]
        lowest = min(runs, key=lambda run: run["latency_ns"]["mean"])
        return lowest["latency_ns"]["mean"], lowest["above_floor_ns"]
    return read


def buffer_bytes(peers):
    """Memory of a process for buffers, while it sends to so many peers."""
    def read(row, tagwire):
        result = perf(row, tagwire, "tag_bw" if row.level == "uct" else "tag_lat", "--peers",
                      str(peers), *iterations(2000))
        if result["buffer_bytes"] is None:
            raise Unsupported(f"{result['transport']} states no memory of buffers")
        return result["buffer_bytes"], None
    return read


def figure(test, *arguments, environment=None):
    """A stream's rate in the row's unit."""
    def read(row, tagwire):
        result = perf(row, tagwire, test, *arguments, environment=environment)
        return result["messages_per_s" if row.unit == "/s" else "bytes_per_s"], None
    return read


def in_unit(row, measured):
    """Of (latency, messages per second)."""
    nanoseconds, rate = measured
    return nanoseconds if row.unit == "ns" else rate if row.unit == "/s" else rate * row.size


def posix(test, count):
    """By the first operation of UCX's posix transport that carries the size."""
    def read(row, ucx):
        operation, measured = ucx.measure_uct(test, row.size, count, OPERATIONS)
        row.operations[ucx.name] = operation
        return in_unit(row, measured)
    return {"default": read}


def ucp(test, count):
    def variant(environment):
        return lambda row, ucx: in_unit(row, ucx.measure(
            ["-t", test, "-s", str(row.size), "-n", str(count)], environment))
    return {name: variant(environment) for name, environment in UCP.items()}


def ucp_exchange(count):
    def variant(environment):
        return lambda row, ucx: ucx.exchange(row.size, count, environment)
    return {name: variant(environment) for name, environment in UCP.items()}


def libfabric_tagged(count):
    return {"default": lambda row, libfabric: min(libfabric.tagged_latency(row.size, count)
                                                  for _ in range(MEAN_RUNS))}


def cache_bytes(level, caches=Path("/sys/devices/system/cpu/cpu0/cache")):
    """Of a processor's cache for data of this level."""
    for cache in sorted(caches.glob("index*")):
        words = [(cache / name).read_text(encoding="ascii").strip()
                 for name in ("level", "type", "size")]
        if words[0] == str(level) and words[1] != "Instruction":
            return parse_size(words[2].lower())
    raise Unsupported(f"the system does not state the size of the cache of level {level}")


def cache_limit(times, more=0):
    """So many second-level caches."""
    return lambda tagwire: times * cache_bytes(2) + more


def memcpy_1m(tagwire):
    return tagwire.memcpy(MIB)


def beyond_one(test):
    """How much longer a message takes with DEEP other receives than with one."""
    def read(row, tagwire):
        deep = perf(row, tagwire, test, "--depth", str(DEEP), *iterations(20000))
        one = perf(row, tagwire, test, "--depth", "1", *iterations(20000))
        return max(0.0, deep["latency_ns"]["p50"] - one["latency_ns"]["p50"]), None
    return read


def chase(tagwire):
    result = tagwire.perf("chase", ["--depth", str(DEEP), "--iters", "200000"])
    return result["latency_ns"]["p50"]


def beside_one(level, test, *arguments):
    """The same latency with one other receive: what a deep list is compared with."""
    def read(tagwire):
        words = ["--level", level, "--depth", "1", "--iters", "20000", *arguments]
        return tagwire.perf(test, words)["latency_ns"]["p50"]
    return read


def one_thread(tagwire):
    words = ["--level", "msg", "--threads", "1", "--iters", "1000000"]
    return tagwire.perf("tag_rate", words)["messages_per_s"]


# ---- Counts: some hundredths of a second each

def round_trips(size):
    return min(40000, max(200, (1 << 27) // size))


def messages(size):
    return min(1000000, max(200, (1 << 29) // size))


def iterations(count):
    return ["--iters", str(count)]


def warmed(count, size):
    """As many untimed ones before as ucx_perftest makes: 10000, or what goes in 0.1 s."""
    return [*iterations(count), "--warmup", str(min(10000, max(20, (1 << 30) // size)))]


# ---- Targets by size

def is_intel(cpu):
    return "intel" in cpu.lower()


def latency_limit(size, cpu):
    """Against the better of UCX's thresholds."""
    if size <= 64:
        return 0.95
    if size <= 2 * KIB:
        return 0.75 if is_intel(cpu) else 0.9
    if size <= 8 * KIB:
        return 0.9
    if size <= 128 * KIB:
        on_intel = {16 * KIB: 0.8, 32 * KIB: 0.9, 64 * KIB: 0.85, 128 * KIB: 0.8}
        return on_intel[size] if is_intel(cpu) else 0.95
    return 0.75


def stream_limits(size):
    """(against UCX as it comes or None, against the better of its thresholds)"""
    if size == 8 * KIB:
        return 1.3, 1.05
    if 512 <= size < 8 * KIB:
        return None, 1.3
    if size >= MIB:
        return None, 1.8
    return None, 1.1 if size == 512 * KIB else 1.05


# ---- The rows

def stream_unit(size):
    return "/s" if size == 8 else "B/s"


def uct_rows():
    rows = []
    for size in SIZES:
        trips, many = round_trips(size), messages(size)
        first = size == 8
        rows.append(Row(f"uct am_lat {size_name(size)}", size, "ns",
                        latency("am_lat", *warmed(trips, size)),
                        [target("default", "<=", 0.92, 1.0) if first
                         else Goal("default", "<=", None, None)], posix("am_lat", trips)))
        rows.append(Row(f"uct am_bw {size_name(size)}", size, stream_unit(size),
                        figure("am_bw", *warmed(many, size)),
                        [target("default", ">=", 2) if first
                         else Goal("default", ">=", None, None)], posix("am_bw", many)))
    return rows


def msg_rows(cpu):
    rows = []
    for size in SIZES:
        trips, many = round_trips(size), messages(size)
        as_it_comes, better = stream_limits(size)
        rows.append(Row(f"msg tag_lat {size_name(size)}", size, "ns",
                        latency("tag_lat", *warmed(trips, size)),
                        [Goal("default", "<=", None, None),
                         target("best", "<=", latency_limit(size, cpu))], ucp("tag_lat", trips)))
        rows.append(Row(f"msg tag_bw {size_name(size)}", size, stream_unit(size),
                        figure("tag_bw", *warmed(many, size)),
                        [target("default", ">=", as_it_comes), target("best", ">=", better)],
                        ucp("tag_bw", many)))
    return rows


def exchange_rows():
    """Two processes that send and receive at once."""
    return [Row(f"msg tag_exchange {size_name(size)}", size, "ns",
                latency("tag_exchange", "--ranks", "2", *iterations(round_trips(size)),
                        "--warmup", str(round_trips(size))),
                [Goal("default", "<=", None, None), target("best", "<=", 0.95)],
                ucp_exchange(round_trips(size)))
            for size in SIZES if size <= MIB]


def tagged_rows():
    """Of the transport's own tags, and rates of messages that each have a tag of their own."""
    big = iterations(1000)
    return [
        Row("uct tag_lat 8 B", 8, "ns", latency("tag_lat", *iterations(40000)),
            [target("default", "<=", 1.0)], posix("am_lat", 40000)),
        Row("uct tag_rate 8 B", 8, "/s", figure("tag_rate", *iterations(1000000)),
            [target("default", ">=", 1.8)], ucp("tag_bw", 1000000)),
        Row("msg tag_rate 8 B", 8, "/s", figure("tag_rate", *iterations(1000000)),
            [target("default", ">=", 1.5)], ucp("tag_bw", 1000000)),
        Row("uct tag_rate 1 MiB", MIB, "B/s", figure("tag_rate", *big),
            [target("default", ">=", 1.5)], ucp("tag_bw", 1000)),
        Row("uct tag_rate 1 MiB, allocated memory", MIB, "B/s",
            figure("tag_rate", "--memory", "alloc", *big),
            [target("reference", ">=", 0.9)], reference=memcpy_1m),
        Row("uct tag_rate 1 MiB, no process_vm_readv", MIB, "B/s",
            figure("tag_rate", *big, environment={"TAGWIRE_SM_CMA": "off"}),
            [target("reference", ">=", 0.4)], reference=memcpy_1m),
    ]


def matching_rows():
    """Depth 100 000. At random: what it adds, against a pointer chase through as many lines."""
    deep = ["--depth", str(DEEP), "--iters", "20000"]

    def row(name, test, goal, reference, *arguments):
        return Row(name, 8, "ns", latency(test, *deep, *arguments), [goal], reference=reference)

    behind = target("reference", "<=", 1.1)
    at_random = target("reference", "<=", 2.5)
    among = target("reference", "<=", 1.5)
    return [
        row("uct tag_lat behind 100000 receives", "tag_lat", behind, beside_one("uct", "tag_lat")),
        Row("uct match among 100000, added", 8, "ns", beyond_one("match"), [at_random],
            reference=chase),
        row("msg tag_lat behind 100000 receives", "tag_lat", behind, beside_one("msg", "tag_lat")),
        Row("msg match among 100000, added", 8, "ns", beyond_one("match"), [at_random],
            reference=chase),
        row("msg match_wild among 100000", "match_wild", among, beside_one("msg", "match_wild")),
        row("msg match among 100000 unexpected", "match", among,
            beside_one("msg", "match", "--unexpected"), "--unexpected"),
        Row("msg tag_rate 8 B, two threads / one", 8, "/s",
            figure("tag_rate", "--threads", "2", *iterations(1000000)),
            [target("reference", ">=", 1.7)], reference=one_thread),
    ]


def libfabric_rows():
    """Of means, since its programs state no median."""
    return [Row(f"msg tag_lat / libfabric {size_name(size)}", size, "ns",
                mean_latency("tag_lat", *iterations(round_trips(size))),
                [target("default", "<=", 0.95)], libfabric_tagged(round_trips(size)),
                peer=libfabric_peer.KIND)
            for size in SIZES if size <= MIB]


def memory_rows():
    """Of buffers, beside what they may take: some second-level caches of a processor."""
    limits = [("uct", "1 peer", 1, cache_limit(3, 64 * KIB)),
              ("uct", "64 peers", 64, cache_limit(4)),
              ("msg", "1000 peers", 1000, cache_limit(8))]
    return [Row(f"{level} buffers of {name}", 4 * KIB, "B", buffer_bytes(peers),
                [target("reference", "<=", 1.0)], reference=limit)
            for level, name, peers, limit in limits]


def all_rows(cpu=None):
    """With the targets of this processor; None: of that which is here."""
    return [*uct_rows(), *msg_rows(cpu or rounds.cpu_model()), *exchange_rows(), *tagged_rows(),
            *matching_rows(), *memory_rows(), *libfabric_rows()]


# Of bench/instructions.py: at most so many for one message, both sides.
INSTRUCTIONS = {"am_total": 140, "msg_total": 330}

NO_PEER = {
    ucx_peer.KIND: f"no ucx_perftest here (package ucx-utils, or {ucx_peer.SETTING}): only ours is "
                   "measured, beside the references",
    libfabric_peer.KIND: f"no {' or '.join(libfabric_peer.PROGRAMS)} here (package libfabric-bin, "
                         f"or {libfabric_peer.SETTING}): only ours is measured in its rows",
}

# SPDX-License-Identifier: BSD-3-Clause
"""What compare.py compares: the performance budget's rows for sm, and those of the messaging layer.
"""
import statistics


def uct(test, count):
    return (["-t", test, "-x", "posix", "-d", "memory", "-s", "8", "-n", str(count)], {})


def ucp(test, size, count):
    return (["-t", test, "-s", str(size), "-n", str(count)], {"UCX_TLS": "posix,cma"})


class Row:
    """One line of the budget: what is read, what it is compared with, and what must hold.

    ours: function(tagwire) -> (value, nanoseconds above the floor or None)
    unit: "ns", "/s" or "B/s"
    theirs: (arguments, environment of ucx_perftest, 0 for its latency or 1 for its rate, bytes of a
        message if the rate is wanted in bytes)
    reference: function(tagwire) -> value of ours to compare with: memcpy, depth 1
    """

    def __init__(self, name, ours, unit, goal, theirs=None, reference=None):
        self.name = name
        self.ours = ours
        self.unit = unit
        self.goal = goal
        self.theirs = theirs
        self.reference = reference
        self.readings = []


class Goal:
    """What must hold: at most so many ns above the floor, or a ratio to UCX or to the reference."""

    def __init__(self, kind, limit):
        self.kind = kind
        self.limit = limit

    def text(self):
        return {"above": f"<= floor + {self.limit:g} ns", "ucx<": "< UCX", "ucx>": "> UCX",
                "ucx<=": f"<= {self.limit:g} x UCX", "ucx>=": f">= {self.limit:g} x UCX",
                "reference>=": f">= {self.limit:g} x reference",
                "reference<=": f"<= {self.limit:g} x reference"}[self.kind]

    def judge(self, readings):
        """(value, met) or None when there is nothing to judge by."""
        if self.kind == "above":
            values = [r["above"] for r in readings if r["above"] is not None]
            return self.result(values, lambda v: v <= self.limit)
        key = "ucx" if self.kind.startswith("ucx") else "reference"
        values = [r["ours"] / r[key] for r in readings if r[key]]
        if self.kind == "ucx<":
            return self.result(values, lambda v: v < 1)
        if self.kind == "ucx>":
            return self.result(values, lambda v: v > 1)
        if self.kind.endswith(">="):
            return self.result(values, lambda v: v >= self.limit)
        return self.result(values, lambda v: v <= self.limit)

    @staticmethod
    def result(values, holds):
        return (statistics.median(values), holds(statistics.median(values))) if values else None


def latency(test, *arguments):
    def read(tagwire):
        result = tagwire.perf(test, arguments)
        return result["latency_ns"]["p50"], result["above_floor_ns"]
    return read


def figure(key, test, *arguments, environment=None):
    return lambda tagwire: (tagwire.perf(test, arguments, environment)[key], None)


def with_one_other(test):
    """The same latency with one other receive: what a deep list is compared with."""
    read = latency(test, "--depth", "1", "--iters", "20000")
    return lambda tagwire: read(tagwire)[0]


def memcpy_1m(tagwire):
    return tagwire.memcpy(1 << 20)


def budget_rows():
    mib = 1 << 20
    big = ["--size", "1m", "--iters", "1000", "--warmup", "100"]
    deep = ["--depth", "100000", "--iters", "20000"]
    many = ["--iters", "2000000"]
    short = ["--iters", "40000"]
    no_cma = {"TAGWIRE_SM_CMA": "off"}
    return [
        Row("AM short 8 B, p50", latency("am_lat", *short), "ns",
            [Goal("above", 10), Goal("ucx<", 1)], (*uct("am_lat", 200000), 0, None)),
        Row("tag short 8 B, p50", latency("tag_lat", *short), "ns",
            [Goal("above", 20), Goal("ucx<", 1)], (*ucp("tag_lat", 8, 200000), 0, None)),
        Row("AM short 8 B, rate", figure("messages_per_s", "am_bw", *many), "/s",
            [Goal("ucx>=", 2)], (*uct("am_bw", 2000000), 1, None)),
        Row("tagged 8 B, rate", figure("messages_per_s", "tag_rate", *many), "/s",
            [Goal("ucx>=", 1.8)], (*ucp("tag_bw", 8, 2000000), 1, None)),
        Row("tagged 1 MiB, ordinary memory", figure("bytes_per_s", "tag_rate", *big), "B/s",
            [Goal("ucx>=", 1.5)], (*ucp("tag_bw", mib, 1000), 1, mib)),
        Row("tagged 1 MiB, allocated memory",
            figure("bytes_per_s", "tag_rate", "--memory", "alloc", *big), "B/s",
            [Goal("reference>=", 0.9)], reference=memcpy_1m),
        Row("tagged 1 MiB, no process_vm_readv",
            figure("bytes_per_s", "tag_rate", *big, environment=no_cma), "B/s",
            [Goal("reference>=", 0.4)], reference=memcpy_1m),
        Row("tag p50 behind 100 000 receives", latency("tag_lat", *deep), "ns",
            [Goal("reference<=", 1.1)], reference=with_one_other("tag_lat")),
        Row("match p50 among 100 000 receives", latency("match", *deep), "ns",
            [Goal("reference<=", 1.3)], reference=with_one_other("match")),
    ]


def of_messages(read):
    """What read() would read, at the level of the messaging layer."""
    return lambda *arguments: read(*arguments, "--level", "msg")


def size_name(size):
    return f"{size // 1024} KiB" if size >= 1024 else f"{size} B"


def messaging_rows():
    msg_latency, msg_figure = of_messages(latency), of_messages(figure)
    deep = ["--depth", "100000", "--iters", "20000"]

    def beside_one(test, *arguments):
        read = msg_latency(test, "--depth", "1", "--iters", "20000", *arguments)
        return lambda tagwire: read(tagwire)[0]

    def one_thread(tagwire):
        read = msg_figure("messages_per_s", "tag_rate", "--threads", "1", "--iters", "1000000")
        return read(tagwire)[0]

    rows = [
        Row("msg 8 B, p50", msg_latency("tag_lat", "--iters", "40000"), "ns",
            [Goal("above", 32), Goal("ucx<=", 0.7)], (*ucp("tag_lat", 8, 200000), 0, None)),
        Row("msg 8 B, rate", msg_figure("messages_per_s", "tag_rate", "--iters", "2000000"), "/s",
            [Goal("ucx>=", 1.5)], (*ucp("tag_bw", 8, 2000000), 1, None)),
        Row("msg 8 B, rate of two threads to themselves",
            msg_figure("messages_per_s", "tag_rate", "--threads", "2", "--iters", "1000000"), "/s",
            [Goal("reference>=", 1.7)], reference=one_thread),
        Row("msg p50 behind 100 000 receives", msg_latency("tag_lat", *deep), "ns",
            [Goal("reference<=", 1.1)], reference=beside_one("tag_lat")),
        Row("msg match p50 among 100 000", msg_latency("match", *deep), "ns",
            [Goal("reference<=", 1.3)], reference=beside_one("match")),
        Row("msg match p50 among 100 000, wildcards too", msg_latency("match_wild", *deep), "ns",
            [Goal("reference<=", 1.5)], reference=beside_one("match_wild")),
        Row("msg match p50 among 100 000 unexpected", msg_latency("match", *deep, "--unexpected"),
            "ns", [Goal("reference<=", 1.5)], reference=beside_one("match", "--unexpected")),
    ]
    for size in (1 << power for power in range(10, 17)):
        count = max(2000, (1 << 27) // size)
        iterations = ["--size", str(size), "--iters", str(count)]
        rows.append(Row(f"msg {size_name(size)}, p50", msg_latency("tag_lat", *iterations), "ns",
                        [Goal("ucx<", 1)], (*ucp("tag_lat", size, count), 0, None)))
        rows.append(Row(f"msg {size_name(size)}, stream",
                        msg_figure("bytes_per_s", "tag_bw", *iterations), "B/s",
                        [Goal("ucx>", 1)], (*ucp("tag_bw", size, count), 1, size)))
    return rows

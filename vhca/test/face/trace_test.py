#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""`tagwire-vhca run --trace --stats` with programs of rdma-core: tshark understands each packet of
the traces, and the summaries agree with them. Needs ibverbs-utils and tshark."""
import collections
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

LAUNCHER = os.environ["TAGWIRE_TEST_COMMAND"]
SKIPPED = 77
SUMMARY = re.compile(
    r"^tagwire: vhca0 of (?P<program>\S+) \(pid (?P<pid>\d+)\): "
    r"(?P<sent>\d+) packets? with (?P<sent_bytes>\d+) bytes? sent, "
    r"(?P<received>\d+) packets? with (?P<received_bytes>\d+) bytes? received; "
    r"(?P<retransmissions>\d+) retransmissions?, (?P<timeouts>\d+) timeouts?, "
    r"(?P<naks>\d+) sequence NAKs?, (?P<rnr_naks>\d+) RNR NAKs?, (?P<duplicates>\d+) duplicates?"
    r"(?:, (?P<dropped>\d+) packets? dropped at arrival)?"
    r"(?:, (?P<nobody>\d+) packets? sent to nobody)?"
    r"(?:; faults: (?P<lost>\d+) lost, (?P<duplicated>\d+) duplicated, "
    r"(?P<reordered>\d+) reordered, (?P<delayed>\d+) delayed \(seed (?P<seed>\d+)\))?$", re.M)
MESSAGES, MESSAGE_BYTES = 200, 10000
FIELDS = ["frame.time_epoch", "infiniband.lrh.slid", "infiniband.lrh.dlid",
          "infiniband.bth.opcode", "infiniband.bth.destqp", "infiniband.bth.psn",
          "infiniband.invariant.crc", "ip.src", "ipv6.src", "_ws.malformed", "frame.len"]


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1])


def shown_by_tshark(path, *words):
    return subprocess.run(["tshark", "-n", "-r", path, *words], check=True, capture_output=True,
                          text=True).stdout


def dissected(path):
    words = ["-T", "fields", "-E", "separator=|", "-E", "occurrence=f"]
    for name in FIELDS:
        words += ["-e", name]
    return [dict(zip(FIELDS, line.split("|")))
            for line in shown_by_tshark(path, *words).splitlines()]


def link_type_of(path):
    with open(path, "rb") as stream:
        header = struct.unpack("=IHHIIII", stream.read(24))
    assert header[0] == 0xa1b23c4d and header[1:3] == (2, 4), header
    return header[6]


class Trace(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="vhca-trace-")
        self.addCleanup(shutil.rmtree, self.folder)

    def start(self, options, *words):
        process = subprocess.Popen(
            [LAUNCHER, "run", "--trace", "%p.pcap", "--stats", *options, "--", *words],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.folder)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def addresses(self, options):
        """udp: two addresses that no other process has."""
        if "udp" not in options:
            return [], []
        high, low = os.getpid() >> 8 & 0xff, os.getpid() & 0xff
        return tuple(["--address", f"127.{part}.{high}.{low}"] for part in (201, 202))

    def ping_pong(self, *options, gid=False):
        """What the summaries of both sides say."""
        for seed in range(5, 10):
            sides, errors = self.try_ping_pong(
                *options, *(["--seed", str(seed)] if "--loss" in options else []), gid=gid)
            if sides:
                return sides
            # The last acknowledgement was lost, and who owed it was gone.
            self.assertIn("--loss", options, errors)
            self.assertIn("retry counter exceeded", errors)
        self.fail("no seed is a good one")

    def try_ping_pong(self, *options, gid=False):
        port = free_port()
        words = ["ibv_rc_pingpong", "-d", "vhca0", "-p", port, "-n", str(MESSAGES), "-s",
                 str(MESSAGE_BYTES), "-m", "1024", *(["-g", "0"] if gid else [])]
        own, peer = self.addresses(options)
        server = self.start([*options, *own], *words)
        wait_for_listener(port, server)
        client = self.start([*options, *peer], *words, "127.0.0.1")
        sides = []
        for process in (server, client):
            output, errors = process.communicate(timeout=120)
            if process.returncode != 0:
                return None, output + errors
            found = list(SUMMARY.finditer(errors))
            self.assertEqual(len(found), 1, errors)
            sides.append(found[0].groupdict())
            self.assertEqual(int(found[0]["pid"]), process.pid)
            self.assertEqual(found[0]["program"], "ibv_rc_pingpong")
        return sides, ""

    def check(self, sides, link_type):
        """The traces of both sides."""
        for side in sides:
            path = os.path.join(self.folder, side["pid"] + ".pcap")
            self.assertEqual(link_type_of(path), link_type)
            rows = dissected(path)
            sent, received = int(side["sent"]), int(side["received"])
            self.assertEqual(len(rows), sent + received)
            sources = collections.Counter(
                row["infiniband.lrh.slid"] or row["ip.src"] or row["ipv6.src"] for row in rows)
            self.assertEqual(sorted(sources.values()), sorted([sent, received]))
            times = [float(row["frame.time_epoch"]) for row in rows]
            self.assertEqual(times, sorted(times))
            self.assertLess(abs(time.time() - times[-1]), 300)
            for row in rows:
                self.assertEqual(row["_ws.malformed"], "", row)
                self.assertNotEqual(row["infiniband.invariant.crc"], "", row)
                self.assertIn(int(row["infiniband.bth.opcode"], 0), {0, 1, 2, 4, 17}, row)
                self.assertEqual(row["infiniband.lrh.slid"] != "", link_type == 197, row)

    def check_lossy(self, sides):
        for side in sides:
            self.assertGreater(int(side["lost"]), 0, side)
            self.assertIn(int(side["seed"]), range(5, 10))
            self.assertGreaterEqual(int(side["sent_bytes"]), MESSAGES * MESSAGE_BYTES)
        self.assertGreater(sum(int(side["retransmissions"]) for side in sides), 0)
        for one, other in (sides, sides[::-1]):
            # Nobody takes the rest at the end.
            self.assertLessEqual(int(one["received"]), int(other["sent"]) - int(other["lost"]))

    def test_infiniband_over_shared_memory(self):
        sides = self.ping_pong("--loss", "0.05")
        self.check(sides, 197)
        self.check_lossy(sides)

    def test_ethernet_over_shared_memory(self):
        sides = self.ping_pong("--loss", "0.05", "--link-layer", "ethernet",
                               gid=True)
        self.check(sides, 1)
        self.check_lossy(sides)
        path = os.path.join(self.folder, sides[0]["pid"] + ".pcap")
        bad = shown_by_tshark(path, "-o", "udp.check_checksum:TRUE", "-Y",
                              "udp.checksum.status == 0")
        self.assertEqual(bad, "")

    def test_udp(self):
        sides = self.ping_pong("--fabric", "udp", "--loss", "0.05", gid=True)
        self.check(sides, 1)
        self.check_lossy(sides)
        path = os.path.join(self.folder, sides[0]["pid"] + ".pcap")
        bad = shown_by_tshark(path, "-o", "ip.check_checksum:TRUE", "-Y",
                              "ip.checksum.status == 0")
        self.assertEqual(bad, "")

    def test_without_faults_both_sides_count_the_same(self):
        sides = self.ping_pong()
        self.check(sides, 197)
        for one, other in (sides, sides[::-1]):
            self.assertEqual(one["sent_bytes"], str(MESSAGES * MESSAGE_BYTES))
            self.assertEqual(other["received_bytes"], one["sent_bytes"])
            self.assertIsNone(one["lost"])

    def test_chosen_seed_is_told(self):
        """That of a process which was given none is another one each time."""
        seeds = {side["seed"] for side in self.try_ping_pong("--dup", "0.01")[0]}
        self.assertGreater(len(seeds), 1, seeds)
        self.assertNotIn("0", seeds)

    def test_signal_leaves_what_was_sent(self):
        port = free_port()
        server = self.start([], "ibv_rc_pingpong", "-d", "vhca0", "-p", port, "-n", "1000000000")
        wait_for_listener(port, server)
        client = self.start([], "ibv_rc_pingpong", "-d", "vhca0", "-p", port, "-n", "1000000000",
                            "127.0.0.1")
        path = os.path.join(self.folder, f"{client.pid}.pcap")
        limit = time.monotonic() + 60
        while not (os.path.exists(path) and os.path.getsize(path) > 100_000):
            self.assertLess(time.monotonic(), limit)
            time.sleep(0.01)
        for process in (client, server):
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(60), -signal.SIGTERM)
        self.assertEqual(link_type_of(path), 197)
        self.assertNotEqual(shown_by_tshark(path, "-c", "20"), "")

    def test_two_processes_do_not_write_one_file(self):
        program = "ibv_devinfo -d vhca0 > /dev/null"
        one = os.path.join(self.folder, "one.pcap")
        with open(one, "wb") as file:
            # As another process that writes it has it.
            import fcntl  # pylint: disable=import-outside-toplevel
            fcntl.flock(file, fcntl.LOCK_EX)
            done = subprocess.run([LAUNCHER, "run", "--trace", one, "--", "sh", "-c",
                                   f"TAGWIRE_X=1 {program}"], capture_output=True, text=True,
                                  check=False, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        if done.stderr:  # a program that only looks need not open the device
            self.assertIn("%p", done.stderr)

    def test_relative_path_is_that_of_the_launcher(self):
        done = subprocess.run([LAUNCHER, "run", "--trace", "a/b.pcap", "--", "sh", "-c",
                               "cd /; echo $TAGWIRE_VHCA_TRACE"], capture_output=True, text=True,
                              check=True, timeout=60, cwd=self.folder)
        self.assertEqual(done.stdout.strip(), os.path.join(self.folder, "a/b.pcap"))


def wait_for_listener(port, process):
    wanted = f":{int(port):04X}"
    limit = time.monotonic() + 60
    while time.monotonic() < limit and process.poll() is None:
        for table in ("/proc/net/tcp", "/proc/net/tcp6"):
            with open(table, encoding="ascii") as lines:
                if any(line.split()[1].endswith(wanted) and line.split()[3] == "0A"
                       for line in lines):
                    return
        time.sleep(0.01)
    raise AssertionError("the server does not listen")


if __name__ == "__main__":
    for program in ("ibv_rc_pingpong", "tshark"):
        if shutil.which(program) is None:
            print(f"SKIPPED: there is no {program}")
            sys.exit(1 if os.environ.get("TAGWIRE_TEST_REQUIRE_ALL") == "1" else SKIPPED)
    unittest.main(verbosity=2)

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Tests of the benchmarks' own arithmetic: versions, regimes, targets, merging, tables."""
import argparse
import contextlib
import io
import json
import os
import re
import stat
import sys
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.dont_write_bytecode = True

import compare
import compare_markdown
import compare_mpi
import compare_report
import compare_rows
import compare_tcp
import libfabric_peer
import rounds
import selection
import ucx_peer

NEW, OLD = "UCX 1.23.0-9466d10", "UCX 1.13.1"
FABRIC, OLD_FABRIC = "libfabric 2.4.0", "libfabric 1.17.0"


def reading(ours, peers=None, floors=(50.0, 51.0), reference=None):
    return rounds.with_floors({"ours": ours, "above": None, "reference": reference,
                               "peers": peers or {}, "floors_of": {}}, list(floors))


def row_named(name):
    return next(row for row in compare_rows.all_rows() if row.name == name)


def executable(path, script):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + script + "\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def says_version(version):
    return f"echo 'UCX  INFO  Version {version} (loaded from /lib/libucp.so.0)' >&2"


class Versions(unittest.TestCase):
    def test_library_names_its_revision(self):
        version = ucx_peer.parse_version(
            "[1.2] [vm:1:0] ucp_context.c:2753 UCX  INFO  Version 1.23.0 (loaded from "
            "/opt/lib/libucp.so.0, git branch master, revision 9466d10)\n"
            "UCX  DEBUG Configured with: --prefix=/opt CFLAGS=-O1 -g1\n")
        self.assertEqual(version.name, "1.23.0-9466d10")
        self.assertEqual(version.configured, "--prefix=/opt CFLAGS=-O1 -g1")

    def test_release_has_none(self):
        for printed in ("UCX  INFO  Version 1.13.1 (loaded from /lib/libucp.so.0)",
                        "# Version 1.13.1\n# Git branch '<unknown>', revision 0000000\n"):
            self.assertEqual(ucx_peer.parse_version(printed).name, "1.13.1")
        self.assertEqual(ucx_peer.parse_version("# Library version: 1.16.0\n# Git branch 'v1', "
                                                "revision e4bb802\n").name, "1.16.0-e4bb802")
        self.assertIsNone(ucx_peer.parse_version("usage: ucx_perftest"))

    def test_newest_comes_first_and_names_are_distinct(self):
        each = [SimpleNamespace(version=ucx_peer.Version(*one), name="")
                for one in (("1.9.0",), ("1.13.1",), ("1.23.0", "9466d10"), ("1.13.1",),
                            ("unknown",))]
        ucx_peer.give_distinct_names(each)
        self.assertEqual([one.name for one in ucx_peer.newest_first(each)],
                         [NEW, "UCX 1.13.1 (2)", OLD, "UCX 1.9.0", "UCX unknown"])

    def test_unoptimized_build_is_told(self):
        one = {"name": NEW, "configured": "--prefix=/x CFLAGS=-O1 -g1"}
        self.assertEqual(len(compare_report.unoptimized([one])), 1)
        fast = {"name": NEW, "configured": "CFLAGS=-O3 -g"}
        self.assertEqual(compare_report.unoptimized([fast]), [])


class Installations(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.addCleanup(os.environ.update, PATH=os.environ["PATH"])
        os.environ["PATH"] = f"{self.folder}/path:/usr/bin:/bin"

    def test_list_takes_binaries_and_prefixes(self):
        executable(self.folder / "path/ucx_perftest", says_version("1.13.1"))
        prefix = self.folder / "prefix"
        executable(prefix / "bin/ucx_perftest", says_version("1.20.0"))
        binary = executable(self.folder / "perftest", says_version("1.9.0"))
        for setting in (f"{prefix}:{binary}", f"{binary}, {prefix},"):
            found = ucx_peer.installations_here("0,1", setting)
            self.assertEqual([one.name for one in found], ["UCX 1.20.0", OLD, "UCX 1.9.0"])

    def test_same_program_counts_once(self):
        binary = executable(self.folder / "path/ucx_perftest", says_version("1.13.1"))
        self.assertEqual(len(ucx_peer.installations_here("0,1", binary)), 1)

    def test_version_comes_from_ucx_info_where_the_library_says_none(self):
        executable(self.folder / "path/ucx_perftest", "echo usage >&2; exit 1")
        executable(self.folder / "path/ucx_info", "echo '# Library version: 1.16.0'")
        self.assertEqual(ucx_peer.installations_here("0,1", "")[0].name, "UCX 1.16.0")

    def test_place_without_a_program_ends_it_with_what_the_list_takes(self):
        with self.assertRaises(SystemExit) as ended:
            ucx_peer.program_of(str(self.folder), ["ucx_perftest"], ucx_peer.SETTING)
        self.assertIn(f"names '{self.folder}'", str(ended.exception))
        self.assertIn("installation prefixes", str(ended.exception))

    def test_libfabric_is_measured_by_fabtests_where_they_are(self):
        executable(self.folder / "path/fi_pingpong", "exit 0")
        executable(self.folder / "path/fi_info", "echo 'fi_info: 1.17.0'; echo libfabric: 1.17.0")
        prefix = self.folder / "prefix"
        for name in libfabric_peer.PROGRAMS:
            executable(prefix / "bin" / name, "exit 0")
        executable(prefix / "bin/fi_info", "echo 'fi_info: 2.4.0'; echo libfabric: 2.4.0")
        found = libfabric_peer.installations_here("2,5", str(prefix))
        self.assertEqual([one.name for one in found], [FABRIC, OLD_FABRIC])
        server, client = found[0].commands(1024, 200, 4711)
        self.assertEqual(server, [f"{prefix}/bin/fi_rdm_tagged_pingpong", "-p", "shm", "-I", "200",
                                  "-w", "200", "-S", "1024", "-E=4711"])
        self.assertEqual(client, [*server, "127.0.0.1"])
        server, client = found[1].commands(8, 100, 4711)
        self.assertEqual(server[-2:], ["-B", "4711"])
        self.assertEqual(client[-3:], ["-P", "4711", "127.0.0.1"])
        self.assertEqual(found[1].cpus, ("2", "5"))

    def test_libfabric_without_a_version_or_a_program(self):
        os.environ["PATH"] = str(self.folder)
        self.assertEqual(libfabric_peer.installations_here("0,1", ""), [])
        binary = executable(self.folder / "fi_pingpong", "exit 0")
        self.assertEqual(libfabric_peer.Libfabric(binary, "0,1").name, "libfabric unknown")


class Libfabric(unittest.TestCase):
    def test_latency_is_read_from_the_number_with_more_digits(self):
        printed = ("bytes   #sent   #ack     total       time     MB/sec    usec/xfer   "
                   "Mxfers/sec\n"
                   "8       20k     =20k     312k        0.01s     26.49       0.30       3.31\n")
        self.assertAlmostEqual(libfabric_peer.parse_latency(printed, 8), 302.0, places=1)
        printed = ("bytes   iters   total       time     MB/sec    usec/xfer   Mxfers/sec\n"
                   "1m      200     400m       0.04s  10485.76     100.00       0.01\n")
        self.assertAlmostEqual(libfabric_peer.parse_latency(printed, 1 << 20), 1e5, places=3)
        slow = "8       2k      31k         4.01s      0.01    1001.55       0.00\n"
        self.assertAlmostEqual(libfabric_peer.parse_latency(slow, 8), 1001550.0)

    def test_no_result_is_told(self):
        with self.assertRaises(ucx_peer.Skip):
            libfabric_peer.parse_latency("fi_getinfo(): -61 (No data available)\n", 8)

    def test_version_is_that_of_the_library(self):
        self.assertEqual(libfabric_peer.parse_version(
            "fi_info: 2.4.0rc1\nlibfabric: 2.4.0rc1\nlibfabric api: 2.4\n").name, "2.4.0rc1")
        self.assertIsNone(libfabric_peer.parse_version("libfabric api: 2.4\n"))


class Rounds(unittest.TestCase):
    def test_floors_decide_what_counts_and_where(self):
        self.assertTrue(rounds.agree([50, 62]))
        self.assertFalse(rounds.agree([50, 63]))
        row = SimpleNamespace(readings=[reading(1, floors=(50, 52)), reading(2, floors=(200, 210)),
                                        reading(3, floors=(50, 200))])
        self.assertEqual([r["ours"] for r in rounds.kept(row, "near")], [1])
        self.assertEqual([r["ours"] for r in rounds.kept(row, "far")], [2])
        self.assertEqual(rounds.thrown_away(row), 1)
        self.assertTrue(rounds.has_enough(row, 1, both=True))
        self.assertFalse(rounds.has_enough(row, 2))

    def test_rows_take_turns_and_one_that_fails_is_left(self):
        rows = [SimpleNamespace(name=name, readings=[]) for name in "abc"]
        order = []

        def take(row):
            order.append(row.name)
            row.readings.append(reading(1))
            return row.name != "b"

        rounds.take_turns(rows, SimpleNamespace(rounds=2, both=False), rounds.TimeLimit(), take)
        self.assertEqual("".join(order), "abcac")

    def test_attempts_end(self):
        row = SimpleNamespace(name="a", readings=[])

        def take(row):
            row.readings.append(reading(1, floors=(50, 200)))
            return True

        rounds.take_turns([row], SimpleNamespace(rounds=2, both=False), rounds.TimeLimit(), take)
        self.assertEqual(len(row.readings), 2 * rounds.ATTEMPTS_FACTOR)

    def test_limit_and_interruption_keep_what_there_is(self):
        row = SimpleNamespace(name="a", readings=[])
        over = rounds.TimeLimit(0)
        rounds.take_turns([row], SimpleNamespace(rounds=2, both=False), over, self.fail)
        self.assertIn("--seconds", over.note(1))
        self.assertIsNone(over.note(0))

        def interrupted(_):
            raise KeyboardInterrupt

        limit = rounds.TimeLimit()
        rounds.take_turns([row], SimpleNamespace(rounds=2, both=False), limit, interrupted)
        self.assertIn("interrupted", limit.note(1))

    def test_sizes_are_lists_and_ranges(self):
        among = rounds.parse_sizes("8:4k,1m")
        self.assertEqual([size for size in compare_rows.SIZES if not among(size)],
                         [1 << power for power in (13, 14, 15, 16, 17, 18, 19, 21, 22)])
        for wrong in ("8:", "k", "4k:8", "-1"):
            with self.assertRaises(argparse.ArgumentTypeError):
                rounds.parse_sizes(wrong)
        self.assertEqual(rounds.size_name(4096), "4 KiB")
        self.assertEqual(rounds.size_name(1 << 22), "4 MiB")
        self.assertEqual(rounds.size_name(100), "100 B")


class Targets(unittest.TestCase):
    def test_every_power_of_two_is_there_at_both_levels(self):
        rows = compare_rows.all_rows()
        names = [row.name for row in rows]
        self.assertEqual(len(names), len(set(names)))
        for test in ("uct am_lat", "uct am_bw", "msg tag_lat", "msg tag_bw"):
            sizes = [row.size for row in rows if row.name.startswith(test + " ") and row.theirs]
            self.assertEqual([size for size in sorted(set(sizes))], compare_rows.SIZES)

    def limits(self, name):
        return [(goal.against, goal.limits["near"], goal.limits["far"])
                for goal in row_named(name).goals]

    def test_limits_are_those_of_the_budget(self):
        self.assertEqual(self.limits("uct am_lat 8 B"), [("default", 0.92, 1.0)])
        self.assertEqual(self.limits("uct tag_lat 8 B"), [("default", 1.0, 1.0)])
        for size, intel, amd in (("8 B", 0.95, 0.95), ("2 KiB", 0.75, 0.9), ("8 KiB", 0.9, 0.9),
                                 ("16 KiB", 0.8, 0.95), ("64 KiB", 0.85, 0.95),
                                 ("256 KiB", 0.75, 0.75)):
            name = f"msg tag_lat {size}"
            for cpu, limit in (("INTEL(R) XEON(R)", intel), ("AMD EPYC", amd)):
                row = next(row for row in compare_rows.all_rows(cpu) if row.name == name)
                limits = [goal.limits for goal in row.goals]
                self.assertEqual(limits[1], {"near": limit, "far": limit})
        for name, as_it_comes, best in (("8 B", None, 1.05), ("512 B", None, 1.3),
                                        ("4 KiB", None, 1.3), ("8 KiB", 1.3, 1.05),
                                        ("512 KiB", None, 1.1), ("1 MiB", None, 1.8)):
            self.assertEqual(self.limits(f"msg tag_bw {name}"),
                             [("default", as_it_comes, as_it_comes), ("best", best, best)])
        self.assertEqual(self.limits("msg tag_exchange 1 MiB")[1], ("best", 0.95, 0.95))
        self.assertEqual(self.limits("msg match among 100000, added"), [("reference", 2.5, 2.5)])
        for size in ("8 B", "1 MiB"):
            self.assertEqual(self.limits(f"msg tag_lat / libfabric {size}"),
                             [("default", 0.95, 0.95)])

    def test_lowest_mean_of_several_runs_counts_on_both_sides(self):
        row = row_named("msg tag_lat / libfabric 8 B")
        ours = iter((300.0, 100.0, 200.0))
        run = SimpleNamespace(perf=lambda *_: {"op": None, "above_floor_ns": 1.0,
                                               "latency_ns": {"mean": next(ours)}})
        self.assertEqual(row.ours(row, run), (100.0, 1.0))
        theirs = iter((400.0, 900.0, 200.0))
        peer = SimpleNamespace(tagged_latency=lambda size, count: next(theirs))
        self.assertEqual(row.theirs["default"](row, peer), 200.0)

    def test_buffers_are_limited_by_the_second_level_cache(self):
        row = row_named("uct buffers of 64 peers")
        self.assertEqual([goal.limits["far"] for goal in row.goals], [1.0])
        asked = []

        def perf(test, arguments, environment):
            asked.append(arguments)
            return {"op": "bcopy", "buffer_bytes": 4 << 20}

        self.assertEqual(row.ours(row, SimpleNamespace(perf=perf)), (4 << 20, None))
        self.assertIn("--peers 64", " ".join(asked[0]))
        with self.assertRaises(ucx_peer.Unsupported):
            row.ours(row, SimpleNamespace(perf=lambda *_: {"op": None, "transport": "rc",
                                                           "buffer_bytes": None}))

    def test_cache_is_read_from_the_system(self):
        with tempfile.TemporaryDirectory() as folder:
            for index, (level, kind, size) in enumerate((("1", "Data", "32K"),
                                                         ("1", "Instruction", "64K"),
                                                         ("2", "Unified", "1024K"))):
                cache = Path(folder) / f"index{index}"
                cache.mkdir()
                for name, text in (("level", level), ("type", kind), ("size", size)):
                    (cache / name).write_text(text + "\n")
            self.assertEqual(compare_rows.cache_bytes(2, Path(folder)), 1 << 20)
            self.assertEqual(compare_rows.cache_bytes(1, Path(folder)), 32 << 10)
            with self.assertRaises(ucx_peer.Unsupported):
                compare_rows.cache_bytes(3, Path(folder))

    def test_best_is_chosen_in_each_round(self):
        row = row_named("msg tag_lat 4 KiB")
        best = row.goals[1]
        readings = [reading(100, {NEW: {"default": 100, "1m": 200}}),
                    reading(100, {NEW: {"default": 400, "1m": 200}}),
                    reading(100, {NEW: {"default": 400, "1m": 100}})]
        self.assertEqual([row.ratio(r, best, NEW) for r in readings], [1.0, 0.5, 1.0])
        self.assertEqual(row.median_ratio(readings, best, NEW), 1.0)
        self.assertIsNone(row.median_ratio(readings, best, OLD))
        stream = row_named("msg tag_bw 4 KiB")
        self.assertEqual(stream.ratio(readings[0], stream.goals[1], NEW), 0.5)

    def test_met_depends_on_the_regime(self):
        goal = row_named("uct am_lat 8 B").goals[0]
        self.assertTrue(goal.met(0.95, "far"))
        self.assertFalse(goal.met(0.95, "near"))
        self.assertIsNone(row_named("uct am_lat 16 B").goals[0].met(0.95, "near"))


class FakeTagwire:
    def __init__(self, floors):
        self.floors = iter(floors)

    def floor(self):
        return next(self.floors)


def fake_peer(name):
    return SimpleNamespace(name=name)


class Readings(unittest.TestCase):
    def row(self, theirs=None):
        both = {"default": lambda row, ucx: 100.0, "1m": lambda row, ucx: 200.0}
        return compare_rows.Row("msg tag_lat 8 B", 8, "ns", lambda row, tagwire: (50.0, 1.0), [],
                                theirs or both)

    def test_older_peers_do_not_spoil_the_judged_one(self):
        taken = compare.take_reading(self.row(), FakeTagwire([50, 51, 52, 51, 50, 90]),
                                     [fake_peer(NEW), fake_peer(OLD)])
        self.assertTrue(taken["counts"])
        self.assertEqual(taken["floors"], [50, 51, 52, 51])
        self.assertEqual(taken["floors_of"], {OLD: [51, 50, 90]})
        self.assertFalse(compare_report.agrees_with(taken, OLD))
        self.assertTrue(compare_report.agrees_with(taken, NEW))

    def test_reading_ends_where_the_floors_disagree(self):
        taken = compare.take_reading(self.row(), FakeTagwire([50, 90]), [fake_peer(NEW)])
        self.assertFalse(taken["counts"])
        self.assertEqual(taken["peers"], {})

    def test_operation_that_a_peer_lacks_leaves_its_cell_out(self):
        def refuse(row, ucx):
            raise ucx_peer.Unsupported("no message so long")

        row = self.row({"default": refuse})
        taken = compare.take_reading(row, FakeTagwire([50, 51]), [fake_peer(NEW)])
        self.assertTrue(taken["counts"])
        self.assertEqual(taken["peers"], {})
        self.assertEqual(row.absent, {NEW: "no message so long"})
        self.assertIn("left out, " + NEW, compare_report.absent_lines([row])[0])

    def test_row_is_compared_with_its_own_kind_of_peer(self):
        row = row_named("msg tag_lat / libfabric 8 B")
        row.ours = lambda row, tagwire: (50.0, 1.0)
        row.theirs = {"default": lambda row, peer: 100.0}
        taken = compare.take_reading(row, FakeTagwire([50, 51, 52]),
                                     [fake_peer(NEW), fake_peer(FABRIC)])
        self.assertEqual(taken["peers"], {FABRIC: {"default": 100.0}})
        self.assertEqual(len(taken["floors"]), 3)

    def test_reference_that_is_not_here_leaves_its_cell_out(self):
        def refuse(tagwire):
            raise ucx_peer.Unsupported("no size of the cache")

        row = compare_rows.Row("uct buffers", 8, "B", lambda row, tagwire: (1, None),
                               [compare_rows.target("reference", "<=", 1.0)], reference=refuse)
        taken = compare.take_reading(row, FakeTagwire([50, 51, 52]), [])
        self.assertIsNone(taken["reference"])
        self.assertIn("left out, reference: no size", compare_report.absent_lines([row])[0])

    def test_missing_peers_are_told_where_their_rows_are_wanted(self):
        told = io.StringIO()
        with contextlib.redirect_stderr(told):
            compare.tell_missing_peers({"UCX": [], "libfabric": []},
                                       [row_named("msg tag_lat / libfabric 8 B")])
        self.assertEqual(told.getvalue().count("\n"), 1)
        self.assertIn("TAGWIRE_BENCH_LIBFABRIC", told.getvalue())

    def test_failure_of_the_judged_one_is_a_problem(self):
        def fail(row, ucx):
            raise ucx_peer.Skip("it crashed")

        taker = compare.Taker(FakeTagwire([50, 51]), [fake_peer(NEW)])
        row = self.row({"default": fail})
        with contextlib.redirect_stderr(io.StringIO()):
            self.assertFalse(taker(row))
        self.assertEqual(taker.problems, {row.name: "it crashed"})


class Report(unittest.TestCase):
    def rows(self):
        row = row_named("msg tag_lat 4 KiB")
        peers = {NEW: {"default": 400.0, "1m": 390.0}, OLD: {"default": 500.0, "1m": 600.0}}
        row.readings = [reading(300.0, peers), reading(1000.0, peers, floors=(200, 201)),
                        reading(1.0, peers, floors=(50, 200))]
        deep = row_named("uct tag_lat behind 100000 receives")
        deep.readings = [reading(110.0, reference=100.0)]
        return [row, deep]

    def test_regimes_stand_apart_with_their_verdicts(self):
        lines = compare_report.report_lines(self.rows(), [NEW, OLD], None, ["a note"])
        text = "\n".join(lines)
        self.assertLess(text.index("near CPUs: 2 readings"), text.index("far CPUs: 1 readings"))
        self.assertRegex(text, r"4 KiB +1 +50\.5 ns +300\.0 ns +400\.0 ns +390\.0 ns +0\.75 "
                               r"+- +0\.77 +<=0\.90 +met")
        self.assertRegex(text, r"2\.50 +- +2\.56! +<=0\.90 +MISSED")
        self.assertRegex(text, r"receives +1 +50\.5 ns +110\.0 ns +100\.0 ns +1\.10 +<=1\.10 +met")
        self.assertIn(f"beside {OLD}", text)
        self.assertIn("1 of 4 readings thrown away", text)
        self.assertIn("targets of the rows: 2 met, 1 missed", text)
        self.assertEqual(lines[-1], "a note")

    def test_each_kind_of_peer_has_its_table_and_its_judge(self):
        row = row_named("msg tag_lat / libfabric 8 B")
        row.readings = [reading(100.0, {FABRIC: {"default": 200.0}, OLD_FABRIC: {"default": 80.0}})]
        names = [NEW, FABRIC, OLD_FABRIC]
        text = "\n".join(compare_report.report_lines([*self.rows(), row], names, None, []))
        self.assertIn(f"judged by {NEW} and {FABRIC}", text)
        self.assertRegex(text, r"against libfabric +n +floor +ours +libfabric +ratio +target\n")
        self.assertRegex(text, r"8 B +1 +50\.5 ns +100\.0 ns +200\.0 ns +0\.50 +<=0\.95 +met")
        older = text[text.index(f"beside {OLD_FABRIC}"):]
        self.assertRegex(older.splitlines()[1], r"libfabric 8 B +1 +100\.0 ns +80\.0 ns .*1\.25")
        self.assertIn("targets of the rows: 3 met, 1 missed", text)
        self.assertEqual(list(compare_report.regimes_json(row, names)["near"]["peers"]),
                         [FABRIC, OLD_FABRIC])

    def test_tables_of_the_page_are_in_the_order_of_the_rows(self):
        exchange = row_named("msg tag_exchange 8 B")
        exchange.readings = [reading(90.0, {NEW: {"default": 110.0, "1m": 100.0}})]
        rows = [*self.rows(), exchange, row_named("msg tag_bw 4 KiB"), row_named("uct am_lat 16 B"),
                row_named("msg tag_lat / libfabric 8 B"), row_named("msg buffers of 1000 peers")]
        rows[-2].readings = [reading(100.0, {FABRIC: {"default": 200.0}})]
        rows[-1].readings = [reading(8 << 20, floors=(200, 201), reference=8 << 20)]
        self.assertEqual(compare_markdown.markdown_lines("A", rows, [NEW, OLD, FABRIC]), [
            "### A",
            "",
            f"against {NEW} and {FABRIC}; near CPUs: 1 to 1 readings, floors 50 to 50 ns; far",
            "CPUs: 1 to 1 readings, floors 200 to 200 ns",
            "",
            "#### Level uct",
            "",
            "| row | target | near | far |",
            "|---|---|---|---|",
            "| uct tag_lat behind 100000 receives | <=1.10 | 1.10 | - |",
            "",
            "#### Level msg",
            "",
            "| size | latency / UCX: target | near | far | exchange / UCX: target | near | far | "
            "latency / libfabric: target | near | far |",
            "|---|---|---|---|---|---|---|---|---|---|",
            "| 8 B |  |  |  | <=0.95 | 0.90 | - | <=0.95 | 0.50 | - |",
            "| 4 KiB | <=0.90 | 0.77 | 2.56! |  |  |  |  |  |  |",
            "",
            "| row | target | near | far |",
            "|---|---|---|---|",
            "| msg buffers of 1000 peers | <=1.00 | - | 1.00 |"])

    def test_lines_are_narrow(self):
        rows = compare_rows.all_rows()
        for row in rows:
            peers = {name: {variant: 1234567.8 for variant in row.theirs}
                     for name in (NEW, OLD, FABRIC) if row.is_of(name)}
            row.readings = [reading(1234567.8, peers, floors=(200, 201), reference=1234567.8)]
        for line in compare_report.report_lines(rows, [NEW, OLD, FABRIC], None, []):
            self.assertLessEqual(len(line), 120, line)
        for line in compare_report.list_lines(rows):
            self.assertLessEqual(len(line), 120, line)

    def test_earlier_results_are_merged_by_row(self):
        rows = self.rows()
        taker = compare.Taker(SimpleNamespace(version=lambda: "1"), [])
        each = [{"name": name, "version": name.split()[1], "revision": "", "configured": "",
                 "binary": "", "judges": name != OLD} for name in (NEW, OLD, FABRIC)]
        described = {"UCX": each[:2], "libfabric": each[2:]}
        document = compare_report.to_json(rows, taker, described, None, [])
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "compare.json"
            path.write_text(json.dumps(document))
            again = compare_rows.all_rows()
            earlier, names = compare.merge(again, [path, path])
            told = io.StringIO()
            document["host"]["cpu"] = "another"
            path.write_text(json.dumps(document))
            with self.assertRaises(SystemExit):
                compare.merge(again, [path])
            with contextlib.redirect_stdout(told):
                compare.print_markdown([path])
            wrong = Path(folder) / "wrong.json"
            wrong.write_text('{"schema": 1}')
            with self.assertRaises(SystemExit):
                compare.merge(again, [wrong])
        self.assertEqual(names, {row.name for row in rows})
        self.assertEqual([one["name"] for one in compare_report.describe([], earlier["UCX"])],
                         [NEW, OLD])
        self.assertEqual(list(earlier["libfabric"]), [FABRIC])
        self.assertIn(f"against {NEW} and {FABRIC}; near", told.getvalue())
        merged = next(row for row in again if row.name == rows[0].name)
        self.assertEqual(len(merged.readings), 6)
        self.assertEqual(document["rows"][0]["regimes"]["near"]["goals"][1]["met"], True)
        self.assertIn("### another", told.getvalue())

    def test_rows_are_chosen_by_name_size_and_level(self):
        wanted = SimpleNamespace(rows=re.compile("tag_(lat|bw) "), level="msg",
                                 sizes=rounds.parse_sizes("8:16"))
        names = [row.name for row in compare.chosen_rows(compare_rows.all_rows(), wanted)]
        self.assertEqual(names, ["msg tag_lat 8 B", "msg tag_bw 8 B", "msg tag_lat 16 B",
                                 "msg tag_bw 16 B", "msg tag_lat behind 100000 receives",
                                 "msg tag_lat / libfabric 8 B", "msg tag_lat / libfabric 16 B"])


class Selection(unittest.TestCase):
    def cell(self):
        cell = selection.Cell(4096)
        for chosen, floor in ((100, 50), (108, 50), (130, 50), (200, 200)):
            cell.add({"eager": (100.0, floor), "rndv_get": (150.0, floor),
                      "chosen": (float(chosen), floor), "modelled": (150.0, floor + 1)})
        cell.add({"eager": (1.0, 50), "rndv_get": (9.0, 200), "chosen": (9.0, 200),
                  "modelled": (1.0, 90)})
        return cell

    def test_choice_is_judged_against_the_best_forced_one(self):
        names = {"chosen": "bcopy", "modelled": "rndv_get"}
        near = selection.row_of(self.cell(), "near", names)
        self.assertEqual((near["rounds"], near["best"]), (3, "eager"))
        self.assertAlmostEqual(near["excess"], 0.08)
        self.assertAlmostEqual(near["modelled_excess"], 0.5)
        self.assertTrue(near["ok"])
        far = selection.row_of(self.cell(), "far", names)
        self.assertAlmostEqual(far["excess"], 1.0)
        self.assertEqual(far["best"], "eager")
        self.assertFalse(far["ok"])

    def test_pairs_whose_floors_disagree_are_thrown_away(self):
        against = self.cell().against
        self.assertEqual(rounds.thrown_away(against["chosen", "eager"]), 1)
        self.assertEqual(rounds.thrown_away(against["chosen", "rndv_get"]), 0)

    def test_short_message_is_no_choice(self):
        names = {"chosen": "short", "modelled": "short"}
        self.assertTrue(selection.row_of(self.cell(), "far", names)["ok"])


class Mpi(unittest.TestCase):
    def test_limits_depend_on_size_and_regime(self):
        limit = compare_mpi.limit_of
        self.assertEqual(limit("latency", 2048, "near"), ("<=", 1.0))
        self.assertEqual(limit("latency", 4096, "near"), ("<=", 0.7))
        self.assertEqual(limit("latency", 4096, "far"), ("<=", 1.0))
        self.assertEqual(limit("stream", 8, "near"), (">=", 0.85))
        self.assertEqual(limit("stream", 16, "near"), (">=", 1.0))
        self.assertEqual(limit("stream", 4096, "near"), (">=", 1.5))
        self.assertEqual(limit("16 ranks", 0, "near"), ("<=", 1.0))

    def test_figures_are_read_and_judged(self):
        values = compare_mpi.parse("8 150.5 60000000\nnoise\n", ("latency", "stream"))
        self.assertEqual(values, {"latency 8": 150.5, "stream 8": 6e7})
        with self.assertRaises(ucx_peer.Skip):
            compare_mpi.parse("", ("latency", "stream"))
        names = ["tagwire", "vader", "pml ucx"]
        job = compare_mpi.Job("pair", [], ("latency", "stream"))
        theirs = {"latency 8": 100.0, "stream 8": 6e7}
        floors_of = {"tagwire": [50, 51], "vader": [51, 52], "pml ucx": [51, 90]}
        job.readings = [rounds.with_floors({"values": dict(zip(names, (values, theirs, theirs))),
                                            "floors_of": floors_of}, [50, 51])]
        latency, stream = compare_mpi.rows_of(job, "near", names)
        self.assertEqual(latency["ratios"], {"vader": 1.505})
        self.assertEqual((latency["figure"], latency["met"]), ("latency 8", False))
        self.assertEqual((stream["figure"], stream["met"]), ("stream 8", True))
        self.assertIn("1.50", "\n".join(compare_mpi.report_lines([job], names, [])))

    def test_sizes_choose_the_runs(self):
        jobs = compare_mpi.jobs_of("mpi_times", "0,1", rounds.parse_sizes("8:512"), False)
        self.assertEqual([job.name for job in jobs], ["pair to 256 B", "pair to 512 B"])
        self.assertEqual(jobs[0].starts[-3:], ["pair", "8", "256"])
        self.assertEqual(len(compare_mpi.jobs_of("mpi_times", "0,1", lambda size: True, True)), 5)


class Tcp(unittest.TestCase):
    def test_ratios_are_of_one_round_and_missing_programs_are_told(self):
        row = compare_tcp.uct_row("put", "put_bw", "zcopy")
        row.readings = [{"tagwire": 2e9, "iperf3": 1e9}, {"tagwire": 9e8, "iperf3": 1e9},
                        {"tagwire": 8e9, "iperf3": 4e9}]
        row.absent["bare socket"] = "gone"
        self.assertEqual(compare_tcp.judge(row), [(">= 0.95 x iperf3", 2.0, True)])
        lines = "\n".join(compare_tcp.report_lines([row], {}, []))
        self.assertIn("left out: bare socket: gone", lines)


if __name__ == "__main__":
    unittest.main()

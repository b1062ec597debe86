#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Tests of the arithmetic of threads.py: what its peers print, pairs of one round, verdicts."""
import sys
import unittest
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.dont_write_bytecode = True

import threads
import ucx_peer

UCX = "UCX 1.23.0"


def reading(values, floors_of):
    return {"values": {way: {"rate": rate, "by_cpu": 2 * rate} for way, rate in values.items()},
            "floors_of": floors_of}


class FakeTagwire:
    def __init__(self, floors):
        self.floors = iter(floors)

    def floor(self):
        return next(self.floors)

    @staticmethod
    def version():
        return "0.1.0"


def fails(kind):
    def read():
        raise kind("no such thing")
    return read


class Printed(unittest.TestCase):
    def test_rates_of_ucp_threads_are_added(self):
        self.assertEqual(threads.parse_ucp_threads("messages_per_s 1500\nby_cpu_time 1000 700\n"),
                         {"rate": 1500.0, "by_cpu": 1700.0})
        with self.assertRaises(ucx_peer.Skip):
            threads.parse_ucp_threads("messages_per_s\n")

    def test_median_of_a_way_of_bench_sends_counts(self):
        printed = ("301 rounds, bursts of 2000 messages a thread\n\n"
                   "way             median        best\n"
                   "multi        12.50 M/s   13.00 M/s  one thread, a worker of mode multi\n"
                   "contexts     20.25 M/s   24.00 M/s  two threads\n\n"
                   "contexts / multi: 1.62 (target >= 1.40: met)\n")
        self.assertEqual(threads.parse_bench_sends(printed, "contexts"),
                         {"rate": 20.25e6, "by_cpu": None})
        with self.assertRaises(ucx_peer.Skip):
            threads.parse_bench_sends(printed, "shared")

    def test_line_of_several_threads_has_fewer_figures(self):
        head = "|  Test  | # iterations | 50.0%ile |\n+-----+\n"
        one = head + "  500000   0.020    50.261  42.176   0.15   0.18   19896   23710\n"
        two = head + "  500000             69.735           0.22           28680\n"
        self.assertEqual(threads.parse_perftest(one)["rate"], 23710.0)
        self.assertEqual(threads.parse_perftest(two)["rate"], 28680.0)
        with self.assertRaises(ucx_peer.Skip):
            threads.parse_perftest(head)


class Rows(unittest.TestCase):
    row = threads.Row("2 / 1", "two", "one", 1.95)

    def test_ratio_is_that_of_one_round_whose_floors_agree(self):
        readings = [
            reading({"one": 10, "two": 20}, {"one": [50, 51], "two": [51, 52]}),
            reading({"one": 1, "two": 1}, {"one": [50, 51], "two": [51, 90]}),
            reading({"one": 10, "two": 15}, {"one": [200, 200], "two": [200, 205]}),
            reading({"one": 10}, {"one": [50, 50], "two": [50, 50]}),
        ]
        near = self.row.summary(readings, "near")
        self.assertEqual((near["rounds"], near["ratio"], near["met"]), (1, 2.0, True))
        far = self.row.summary(readings, "far")
        self.assertEqual((far["rounds"], far["ratio"], far["met"]), (1, 1.5, False))
        self.assertEqual(self.row.summary(readings)["rounds"], 3)
        self.assertIsNone(self.row.summary(readings)["met"])
        self.assertIsNone(self.row.summary(readings[1:2], "near"))

    def test_figure_that_a_peer_has_not_is_no_pair(self):
        one = reading({"one": 10, "two": 20}, {"one": [50, 50], "two": [50, 50]})
        one["values"]["one"]["by_cpu"] = None
        self.assertEqual(threads.Row("2 / 1", "two", "one", None, "by_cpu").pairs([one]), [])

    def test_every_row_names_ways_that_are_measured(self):
        tagwire = SimpleNamespace()
        ucx = SimpleNamespace(name=UCX)
        names = {way.name for way in [*threads.our_ways(tagwire), *threads.sending_ways("bin"),
                                      *threads.ucx_ways(ucx, "bin", "0,1")]}
        for row in [*threads.our_rows(), *threads.rows_beside(UCX)]:
            self.assertLessEqual({row.ours, row.other}, names, row.name)


    def test_two_transmit_contexts_have_a_target(self):
        row = next(row for row in threads.our_rows()
                   if row.ours == "2 threads, 2 transmit contexts, sends alone")
        self.assertEqual(row.at_least, 1.4)
        floors = {row.ours: [50, 51], row.other: [51, 52]}
        for rate, is_met in ((14, True), (13, False)):
            found = row.summary([reading({row.ours: rate, row.other: 10}, floors)], "near")
            self.assertEqual(found["met"], is_met)


class Sessions(unittest.TestCase):
    def test_way_that_is_not_here_is_left_out_and_told(self):
        ways = [threads.Way("one", lambda: {"rate": 10.0, "by_cpu": 10.0}),
                threads.Way("two", lambda: {"rate": 30.0, "by_cpu": 30.0}),
                threads.Way("no", fails(ucx_peer.Unsupported)),
                threads.Way("broken", fails(ucx_peer.Skip))]
        session = threads.Session(FakeTagwire([50] * 8), ways)
        self.assertTrue(session.take(session))
        self.assertTrue(session.take(session))
        self.assertEqual(session.absent, {"no": "no such thing"})
        self.assertEqual(session.problems, {"broken": "no such thing"})
        rows = [threads.Row("2 / 1", "two", "one", 1.95), threads.Row("no", "one", "no", 1.0)]
        text = "\n".join(threads.report_lines(rows, session, {"tagwire, single": 400.0,
                                                             "tagwire, multi": 600.0}, []))
        self.assertRegex(text, r"2 / 1 +2 +50.0 ns .* 3.00 +>=1.95 +met")
        self.assertIn("far: none counts", text)
        self.assertIn("MISSED: multi / single", text)
        self.assertIn("left out, no: no such thing", text)
        document = threads.to_json(rows, session, {}, [])
        self.assertEqual(document["rows"][0]["regimes"]["near"]["rounds"], 2)
        self.assertIsNone(document["rows"][1]["all"])


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Tests of what compare.py starts and how its results name the machine: exchanges, real-time
priority, floors of each shape, tables of several processors in one page."""
import re
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.dont_write_bytecode = True

import compare
import compare_markdown
import compare_picture
import compare_report
import compare_rows
import realtime
import rounds
import tagwire_runs
import ucx_peer
from bench_test import executable


class Exchanges(unittest.TestCase):
    def test_both_sides_are_measured_with_two_ranks_and_each_threshold(self):
        row = next(row for row in compare_rows.exchange_rows() if row.size == 4096)
        asked = []

        def perf(test, arguments, environment):
            asked.append([test, *arguments])
            return {"op": "auto", "above_floor_ns": None, "latency_ns": {"p50": 700.0}}

        self.assertEqual(row.ours(row, SimpleNamespace(perf=perf)), (700.0, None))
        self.assertIn("tag_exchange --level msg --size 4096 --ranks 2", " ".join(asked[0]))
        ucx = SimpleNamespace(exchange=lambda size, count, environment: (size, environment))
        self.assertEqual({name: read(row, ucx) for name, read in row.theirs.items()},
                         {name: (4096, settings) for name, settings in compare_rows.UCP.items()})

    def test_program_is_started_over_the_library_of_the_installation(self):
        with tempfile.TemporaryDirectory() as folder:
            ucx = object.__new__(ucx_peer.Ucx)
            ucx.launcher, ucx.cpus, ucx.environment = ["env"], ["0", "1"], {"FROM": "here"}
            ucx.programs = folder
            with self.assertRaises(ucx_peer.Unsupported):
                ucx.exchange(8, 100, {})
            executable(Path(folder) / "ucp_exchange",
                       '[ "$*" = "2 8 100 0,1" ] && echo exchange_ns $FROM$MORE')
            ucx.environment = {"FROM": "612"}
            self.assertEqual(ucx.exchange(8, 100, {"MORE": ".5"}), 612.5)
            with self.assertRaises(ucx_peer.Skip):
                ucx.exchange(8, 100, {})


class Realtime(unittest.TestCase):
    def kernel(self, runtime):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        for name, value in (("runtime", runtime), ("period", 1000000)):
            (Path(folder.name) / f"sched_rt_{name}_us").write_text(f"{value}\n")
        return Path(folder.name)

    def test_throttling_is_named(self):
        self.assertEqual(realtime.throttling(self.kernel(950000)),
                         "throttled to 950 of 1000 ms, kernel.sched_rt_runtime_us = 950000")
        self.assertIsNone(realtime.throttling(self.kernel(-1)))
        self.assertIsNone(realtime.throttling(self.kernel(1000000)))
        self.assertIsNone(realtime.throttling(Path("/nowhere")))

    def test_without_it_nothing_is_before_the_commands(self):
        priority = realtime.begin(wanted=False)
        self.assertEqual(priority.launcher, [])
        self.assertIn("--no-realtime", priority.note)

    def test_commands_of_both_sides_get_it(self):
        tagwire = compare.Tagwire("bin", "0,1", ["chrt", "-f", "10"])
        asked = []
        with unittest.mock.patch.object(tagwire_runs, "run", lambda command, *_:
                                        asked.append(command) or '{"results": []}'):
            tagwire.results(["tag_lat"])
        self.assertEqual(asked[0][:3], ["chrt", "-f", "10"])


class Processors(unittest.TestCase):
    def test_model_is_named_by_its_numbers_too(self):
        with tempfile.NamedTemporaryFile("w", suffix="cpuinfo") as info:
            info.write("processor\t: 0\ncpu family\t: 26\nmodel\t\t: 2\n"
                       "model name\t: AMD EPYC\nprocessor\t: 1\nmodel\t\t: 3\n")
            info.flush()
            self.assertEqual(rounds.cpu_model(info.name), "AMD EPYC (cpu family 26, model 2)")

    def test_floor_of_each_shape_is_the_lowest_with_or_without_a_pause(self):
        floor = rounds.floor_of([("line", 40.0), ("line+pause", 30.0), ("2 lines", 70.0),
                                 ("64 lines", 90.0), ("64 lines+pause", 95.0), ("line", 35.0)])
        self.assertEqual(floor, 30.0)
        self.assertEqual(floor.shapes, {"one line": 30.0, "two lines": 70.0,
                                        "a ring of lines": 90.0})
        taken = rounds.with_floors({}, [floor, floor])
        self.assertEqual(taken["shapes"], floor.shapes)
        self.assertEqual(rounds.with_floors({}, [floor, 31.0])["shapes"], {})
        self.assertIn("medians: one line 30 ns, two lines 70 ns, a ring of lines 90 ns",
                      compare_report.shapes_text([taken]))

    def test_report_begins_with_the_processor_and_the_priority(self):
        lines = compare_report.report_lines([], [], None, [], realtime.Priority([], "without"))
        self.assertEqual(lines[:2], [rounds.host_line(), "without"])

    def test_tables_of_other_processors_stay_in_the_page(self):
        page = f"before\n{compare_markdown.END_OF_PROCESSORS}\nbehind\n"
        page = compare_markdown.page_with(page, "A", ["of A"])
        page = compare_markdown.page_with(page, "B", ["of B"])
        again = compare_markdown.page_with(page, "A", ["newer of A"])
        self.assertLess(again.index("newer of A"), again.index("of B"))
        self.assertNotIn("\nof A", again)
        self.assertTrue(again.startswith("before\n") and again.endswith("behind\n"))
        self.assertEqual(compare_markdown.page_with("no mark", "A", ["of A"]), "no mark")


class Page(unittest.TestCase):
    PAGE = Path(compare_markdown.__file__).parents[1] / "docs/reference/results.md"

    def test_the_page_of_results_takes_tables_of_known_and_of_new_processors(self):
        text = self.PAGE.read_text(encoding="utf-8")
        known = re.findall(r"^<!-- end of (.*) -->$", text, re.MULTILINE)
        self.assertTrue(known)
        for cpu in (known[0], "a processor that nobody has"):
            written = compare_markdown.page_with(text, cpu, [f"### {cpu}", "", "| a table |"])
            self.assertEqual(written.count("| a table |"), 1, cpu)
            self.assertIn(f"<!-- compare.py --page: {cpu} -->", written)


class Picture(unittest.TestCase):
    PAGE = """\
against UCX 1.23.0 and libfabric 1.17.0; near CPUs

| row | target | near | far |
|---|---|---|---|
| uct am_lat 8 B | <=0.92 | 0.96! | - |

| size | latency / UCX: target | near | far | stream / UCX: target | near | far |
|---|---|---|---|---|---|---|
| 8 B | <=0.95 | 0.92 | - | >=1.05 | 1.00! | 1.00! |
| 4 KiB | <=0.95 / <=0.95 | 1.25! / 1.02! | 0.55 | >=1.30 | 7.00 | - |

| size | latency / UCX: target | near | far |
|---|---|---|---|
| 8 B | <=0.95 | 0.11 | 0.11 |
"""

    def test_latencies_of_the_first_table_by_size_are_drawn(self):
        self.assertEqual(compare_picture.ratios(self.PAGE),
                         {"near": [(8, 0.92), (4096, 1.25)], "far": [(4096, 0.55)]})
        picture = compare_picture.picture_of(self.PAGE)
        self.assertIn("divided by that of UCX 1.23.0<", picture)
        self.assertEqual(picture.count('<circle class="near"'), 3)  # one of them in the legend
        self.assertIn("prefers-color-scheme: dark", picture)

    def test_sizes_that_are_not_neighbours_are_not_connected(self):
        near = compare_picture.picture_of(self.PAGE).partition('<path class="near" d="')[2]
        self.assertEqual(near.partition('"')[0].count("M"), 2)

    def test_a_page_without_such_a_table_is_refused(self):
        with self.assertRaises(SystemExit):
            compare_picture.picture_of("| row | target |\n")

    def test_check_tells_a_picture_of_another_table(self):
        with tempfile.TemporaryDirectory() as name:
            page, svg = Path(name) / "page.md", Path(name) / "a.svg"
            page.write_text(self.PAGE)
            program = Path(compare_picture.__file__)
            run = lambda *words: subprocess.run([sys.executable, program, *words, page, svg],
                                                capture_output=True, check=False).returncode
            self.assertEqual(run("--check"), 1)
            self.assertEqual(run(), 0)
            self.assertEqual(run("--check"), 0)
            page.write_text(self.PAGE.replace("0.92", "0.93"))
            self.assertEqual(run("--check"), 1)


if __name__ == "__main__":
    unittest.main()

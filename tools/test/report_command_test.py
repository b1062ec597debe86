#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Tests of `tagwire report` as a program, and of tagwire-demo, which ends with it.

Usage: report_command_test.py COMMAND DEMO [Class[.test] ...]
"""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as tree
from pathlib import Path

SVG = "{http://www.w3.org/2000/svg}svg"
TIMEOUT_S = 150
SKIPPED = 77
REQUIRES_ALL = os.environ.get("TAGWIRE_TEST_REQUIRE_ALL", "0") not in ("", "0")
BUSY = ": left out, the machine is too busy"
SECTIONS = ("latency", "bandwidth", "bandwidthrelative", "rate", "depth", "threads", "latencytcp",
            "bandwidthtcp", "ratetcp", "selectionsm", "choicesm", "selectiontcp", "choicetcp")
LOADS = ("src=", 'href="http', "href='http", "url(http", "@import", "<script src", "<script>",
         "<link", "<img", "<iframe")
COMMAND, DEMO = sys.argv[1:3]


def run(program, *words, **settings):
    return subprocess.run([program, *words], capture_output=True, text=True, timeout=TIMEOUT_S,
                          env={**os.environ, **settings}, check=False, stdin=subprocess.DEVNULL)


class Command(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.file = self.folder / "page.html"

    def need(self, *programs):
        missing = [name for name in programs if shutil.which(name) is None]
        if missing and REQUIRES_ALL:
            self.fail(f"{', '.join(missing)}: not installed")
        if missing:
            self.skipTest(f"{', '.join(missing)}: not installed")

    def check_page(self, told):
        """By an independent XML parser: each section has two pictures with a name, a wide one and a
        narrow one, and a table with a number in each column; the data are JSON. On a machine too
        busy for all measurements, which `told` says then, sections may be empty."""
        root = tree.parse(self.file).getroot()
        for section in root.iter("section"):
            if BUSY in told and section.find("p[@class='note']") is not None:
                continue
            name = section.get("id")
            pictures = [one for one in section.iter(SVG) if one.get("aria-label")]
            self.assertEqual(len(pictures), 2, f"{name}: one picture for each width")
            rows = [[cell.text or "" for cell in row] for row in
                    section.find(".//table").iter("tr")]
            self.assertGreater(len(rows), 2, name)
            self.assertEqual(len({len(row) for row in rows}), 1, name)
            for column in zip(*rows[1:]):
                self.assertTrue(any(re.match("[0-9]", cell) for cell in column), name)
        data = json.loads(next(root.iter("script")).text)
        self.assertEqual([plot["id"] for plot in data["plots"]][:2], ["latency", "bandwidth"])


class Usage(Command):
    def test_wrong_usage_is_status_2(self):
        self.assertEqual(run(COMMAND, "report").returncode, 2)
        self.assertEqual(run(COMMAND, "report", self.file, "--slow").returncode, 2)
        for names in ("pigeon", "ucx,pigeon", "", "ucx,,libfabric"):
            ended = run(COMMAND, "report", self.file, "--compare", names)
            self.assertEqual(ended.returncode, 2, names)
            self.assertIn("ucx, libfabric", ended.stderr)
        self.assertFalse(self.file.exists())

    def test_a_file_that_cannot_be_written_is_found_before_measuring(self):
        self.need("gnuplot")
        ended = run(COMMAND, "report", "/proc/nowhere/page.html")
        self.assertEqual((ended.returncode, ended.stdout), (1, ""))
        self.assertIn("/proc/nowhere/page.html", ended.stderr)

    def test_an_interruption_leaves_no_file(self):
        self.need("gnuplot")
        with subprocess.Popen([COMMAND, "report", self.file], stdout=subprocess.PIPE, text=True,
                              stderr=subprocess.DEVNULL) as started:
            self.assertNotEqual(started.stdout.readline(), "", "it says what it measures")
            started.send_signal(signal.SIGINT)
            self.assertEqual(started.wait(TIMEOUT_S), -signal.SIGINT)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_a_missing_program_is_named_with_its_package(self):
        for missing, package in (("python3", "python3"), ("gnuplot", "gnuplot-nox")):
            place = self.folder / missing
            place.mkdir()
            for name, file in (("sh", shutil.which("sh")), ("python3", sys.executable)):
                if name != missing:
                    (place / name).symlink_to(file)
            ended = run(COMMAND, "report", self.file, PATH=str(place))
            self.assertEqual(ended.returncode, 1)
            self.assertIn(f"apt-get install {package}", ended.stderr)
        self.assertFalse(self.file.exists())

    def test_the_provider_that_is_offered_is_one_that_other_programs_load(self):
        self.need("fi_info")
        build = json.loads(run(COMMAND, "info", "build", "--json", "-").stdout)["build"]
        folder = Path(build["library"]).parent / "libfabric"
        self.assertTrue(Path(build["library"]).exists())
        if build["sanitizers"] or not (folder / "libtagwire-fi.so").exists():
            self.skipTest("the build has sanitizers, or no provider")
        ended = run("fi_info", "-p", "tagwire", FI_PROVIDER_PATH=str(folder))
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertIn("provider: tagwire", ended.stdout)


class Pages(Command):
    def setUp(self):
        super().setUp()
        self.need("gnuplot")

    def test_quick(self):
        """It has a plot and a table in every section and loads nothing."""
        ended = run(COMMAND, "report", self.file, "--quick")
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        html = self.file.read_text(encoding="utf-8")
        for name in SECTIONS:
            self.assertEqual(html.count(f'<section id="{name}">'), 1, name)
        self.check_page(ended.stdout)
        self.assertEqual(html.count('<table class="summary">'), 1)
        for word in ("`", *LOADS):
            self.assertFalse(word in html, word)
        for word in (f"report {self.file} --quick", "tagwire perf tag_lat --level uct --tl sm"):
            self.assertTrue(word in html, word)

    def test_failure(self):
        """A measurement of ours that fails is named in the page, and is status 1."""
        ended = run(COMMAND, "report", self.file, "--quick", TAGWIRE_RNDV_THRESHOLD="rubbish")
        self.assertEqual(ended.returncode, 1)
        self.assertTrue("Latency, sm, messaging layer: " in
                        self.file.read_text(encoding="utf-8"), ended.stdout)

    def test_demo(self):
        """It ends with the page, which has other libraries beside ours."""
        ended = run(DEMO, self.file)
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        self.check_page(ended.stdout)
        told = ended.stdout.find(f"report: {self.file}\ndemo: PASS, ")
        self.assertGreater(told, 0, ended.stdout)
        self.assertEqual(ended.stdout.count("\n", told), 2, ended.stdout)
        self.assertIn(" results validated\n", ended.stdout[told:])
        expected = ["sm/memory"]
        if "TAGWIRE_TEST_HAS_VHCA" in os.environ:
            expected += ["rc/", "dc/", "ud/"]
        for row in expected:
            self.assertIn(row, ended.stdout)
        if BUSY in ended.stdout:
            return
        self.need("ucx_perftest", "fi_pingpong")
        html = self.file.read_text(encoding="utf-8")
        # In the summary and in the tables of latency, bandwidth twice, and rate; latency, clients.
        for name, times in (("UCX, posix+cma", 5), ("libfabric, shm", 3), ("UCX, tcp", 4),
                            ("libfabric, tcp", 2)):
            self.assertEqual(html.count(f"<th>{name}</th>"), times, ended.stdout)
        self.assertEqual(html.count('<section id="clients">'), 1, ended.stdout)


if __name__ == "__main__":
    result = unittest.main(argv=[sys.argv[0], *sys.argv[3:]], exit=False, verbosity=2).result
    if not result.wasSuccessful():
        sys.exit(1)
    sys.exit(SKIPPED if result.skipped and len(result.skipped) == result.testsRun else 0)

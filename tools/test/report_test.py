#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Tests of the parts of `tagwire report`: output of other programs, medians and noise, plots, the
page and its file."""
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "report"))
sys.dont_write_bytecode = True

import amounts
import explain_plot
import libfabric_peer
import meter
import openmpi_peer
import own_runs
import page
import peer_runs
import plot
import report
import run
import sections
import ucx_peer
import units
from frame import NARROW, WIDE

UCX_HEAD = ("stdin,iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,"
            "overall_mr\n")
UCX_PRINTED = (UCX_HEAD + "8,10000,0.185,0.198,0.198,38.45,38.45,5039111,5039111\n"
               "1048576, 100,92.075,96.660,96.660,10345.58,10345.58,10346,10346\n")
FI_HEAD = "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec\n"


class Output(unittest.TestCase):
    """Of other libraries' programs."""

    def test_ucx_perftest_is_read_by_name(self):
        self.assertEqual(ucx_peer.parse_results(UCX_PRINTED),
                         {"8": (185, 5039111), "1048576": (92075, 10346)})
        alone = UCX_PRINTED.replace("stdin,", "").replace("\n8,", "\n").replace("\n1048576,", "\n")
        self.assertEqual(ucx_peer.parse_results(alone), {"": (92075, 10346)})

    def test_ucx_perftest_may_say_other_things_between(self):
        chatty = "[1.2] host UCX WARN unused, variable\n\n" + UCX_PRINTED
        self.assertEqual(len(ucx_peer.parse_results(chatty)), 2)

    def test_ucx_perftest_without_result_is_a_failure(self):
        for bad in ("", UCX_HEAD, "8,1,2,3,4,5,6,7,8\n", UCX_HEAD + "8,100,0.1\n",
                    UCX_HEAD + "8,100,none,1,1,1,1,1,1\n", UCX_HEAD + "8,100,-1,1,1,1,1,1,1\n",
                    UCX_HEAD + "8,100,inf,1,1,1,1,1,1\n",
                    "a,iterations,99.0_percentile_lat,b,c,d,e,f,overall_mr\n8,1,1,1,1,1,1,1,1"):
            with self.assertRaises(ucx_peer.Skip, msg=bad):
                ucx_peer.parse_results(bad)

    def test_ucx_perftest_without_sizes_is_a_failure(self):
        ucx = object.__new__(ucx_peer.Ucx)
        with mock.patch.object(ucx, "results", lambda *_: {"x": (1, 1)}, create=True), \
                self.assertRaises(ucx_peer.Skip):
            ucx.sweep("tag_lat", {8: 100}, {})

    def test_fi_pingpong_is_read(self):
        printed = FI_HEAD + "64k  1k  =1k  125m  1.14s      0.01     568.43   0.00\n"
        self.assertAlmostEqual(libfabric_peer.parse_latency(printed, 65536), 568430)

    def test_fi_pingpong_without_result_is_a_failure(self):
        for bad in ("", FI_HEAD, FI_HEAD + "8 10k =10k 156k 0.01s 21.39 fast 2.67\n",
                    FI_HEAD + "eight 10k =10k 156k 0.01s 21.39 0.37 2.67\n",
                    FI_HEAD + "8 10k =10k 156k 0.01s 0.00 0.00 2.67\n"):
            with self.assertRaises(ucx_peer.Skip, msg=bad):
                libfabric_peer.parse_latency(bad, 8)

    def test_netpipe_tells_half_of_the_round_trip(self):
        printed = ("Using no perturbations\n\n0: node\nNow starting the main loop\n"
                   "  0:       8 bytes  93958 times -->    202.50 Mbps in       0.30 usec\n"
                   " 14:    1024 bytes  71841 times -->  15868.41 Mbps in       0.49 usec\n")
        self.assertEqual(openmpi_peer.parse_netpipe(printed), {8: 300, 1024: 490})
        for bad in ("0: node\n", "0: 8 bytes 9 times --> 202.50 Mbps in fast usec\n"):
            with self.assertRaises(ucx_peer.Skip, msg=bad):
                openmpi_peer.parse_netpipe(bad)


class Peers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.peers = peer_runs.PeerRuns((0, 0), "", 20, set())
        setting = mock.patch.dict(os.environ, PATH=f"{self.folder}:/usr/bin:/bin")
        setting.start()
        self.addCleanup(setting.stop)
        os.environ.pop(ucx_peer.SETTING, None)

    def add(self, name, script):
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        path.chmod(0o755)

    def failure(self, call, *arguments):
        with self.assertRaises(ucx_peer.Skip) as failure:
            call(*arguments)
        return str(failure.exception)

    def test_names_are_checked(self):
        self.assertEqual(report.parse_compare(None), [])
        self.assertEqual(report.parse_compare("libfabric,ucx,openmpi"),
                         ["libfabric", "ucx", "openmpi"])
        for wrong in ("UCX", "", "ucx,,libfabric"):
            with self.assertRaises(report.UsageError, msg=wrong):
                report.parse_compare(wrong)

    def test_missing_programs_are_named_with_their_packages(self):
        os.environ["PATH"] = str(self.folder)
        for kind, package in (("ucx", "ucx-utils"), ("libfabric", "libfabric-bin"),
                              ("openmpi", "netpipe-openmpi")):
            self.assertIn(package, self.failure(self.peers.find, kind))
        self.assertEqual(self.peers.peers, {})

    def test_newest_of_the_path_and_the_list_is_taken(self):
        says = "echo 'UCX  INFO  Version {} (loaded from /lib/libucp.so.0)' >&2"
        self.add("ucx_perftest", says.format("1.13.1"))
        self.add("new_perftest", says.format("1.23.0"))
        self.peers.find("ucx")
        self.assertEqual(self.peers.versions, {"ucx": "1.13.1"})
        os.environ[ucx_peer.SETTING] = str(self.folder / "new_perftest")
        self.peers.find("ucx")
        self.assertEqual(self.peers.versions, {"ucx": "1.23.0"})
        self.assertEqual(self.peers.peers["ucx"].binary, str(self.folder / "new_perftest"))

    def test_place_without_a_program_is_a_note_of_the_page(self):
        os.environ[ucx_peer.SETTING] = "/no/ucx"
        notes = []
        report.find_peers(self.peers, ["ucx"], SimpleNamespace(note=notes.append))
        self.assertIn("UCX is not compared", notes[0])
        self.assertIn("'/no/ucx'", notes[0])

    def test_server_that_ends_is_told_with_its_words(self):
        self.add("ucx_perftest", "echo cannot do that >&2; exit 3")
        self.add("fi_pingpong", "echo nor that >&2; exit 4")
        for kind in ("ucx", "libfabric"):
            self.peers.find(kind)
        batches = [amounts.Batch((8,), 10)]
        self.assertIn("ucx_perftest as server ended with status 3: cannot do that", self.failure(
            self.peers.ucx, peer_runs.SHARED_MEMORY, "tag_lat", own_runs.LATENCY, batches))
        self.assertIn("fi_pingpong as server ended with status 4: nor that",
                      self.failure(self.peers.libfabric, "shm", batches))

    def test_server_that_ends_its_client_is_told_with_its_words(self):
        self.add("fi_pingpong", '''exec python3 -c "
import socket, sys
if sys.argv[-1] == '127.0.0.1':
    with socket.create_connection(('127.0.0.1', int(sys.argv[-2]))) as control:
        sys.exit('a word' if control.recv(1) else 'no word')
socket.create_server(('127.0.0.1', int(sys.argv[-1]))).accept()
sys.exit('no such provider')" "$@"''')
        self.peers.find("libfabric")
        told = self.failure(self.peers.libfabric, "shm", [amounts.Batch((8,), 10)])
        self.assertIn("ended with status 1: no word", told)
        self.assertIn("fi_pingpong as server ended with status 1: no such provider", told)

    def test_server_of_a_client_that_fails_is_ended(self):
        self.add("fi_pingpong", '''for last; do :; done
test "$last" = 127.0.0.1 && { echo no peer >&2; exit 5; }
exec python3 -c "
import socket, sys, time
listener = socket.create_server(('127.0.0.1', int(sys.argv[1])))
time.sleep(1000)" "$last"''')
        self.peers.find("libfabric")
        told = self.failure(self.peers.libfabric, "shm", [amounts.Batch((8,), 10)])
        self.assertIn("ended with status 5: no peer", told)
        with self.assertRaises(ChildProcessError, msg="a server was left"):
            os.waitpid(-1, os.WNOHANG)


class Lanes(unittest.TestCase):
    def test_real_devices_come_before_virtual_ones_and_loopback_is_last(self):
        def domain(*found):
            return {"transports": [{"name": name, "device": device} for name, device in found]}

        components = [{"memory_domains": [domain(("sm", "memory"))]},
                      {"memory_domains": [domain(("rc", "vhca0:1"), ("dc", "vhca0:1")),
                                          domain(("rc", "mlx5_0:1"), ("ud", "mlx5_0:1")),
                                          domain(("rc", "mlx5_1:1")), {"error": "why"}]},
                      {"memory_domains": [domain(("tcp", "eth0"), ("tcp", "lo"))]}]
        self.assertEqual([lane.tl for lane in own_runs.lanes_of(components)],
                         ["sm", "rc:mlx5_0:1", "dc:vhca0:1", "tcp:lo"])

    def test_provider_is_beside_the_library_and_without_sanitizers(self):
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder) / "libfabric"
            build = {"library": f"{folder}/libtagwire.so.0", "sanitizers": ""}
            self.assertEqual(report.provider_folder(build), "")
            place.mkdir()
            (place / report.PROVIDER).touch()
            self.assertEqual(report.provider_folder(build), str(place))
            self.assertEqual(report.provider_folder({**build, "sanitizers": "address"}), "")

    def test_figures_of_each_size_and_the_p99_of_latencies(self):
        own = own_runs.OwnRuns("tagwire", 5, set())
        own.tagwire = SimpleNamespace(results=lambda tests, words, *_: [
            {"size": int(words[words.index("--size") + 1]), "bytes_per_s": 7,
             "latency_ns": {"p50": 5, "p99": 6}}])
        batches = [amounts.Batch((8,), 100), amounts.Batch((4096,), 10)]
        found = own.by_size("tag_lat", ["--tl", "sm"], own_runs.LATENCY, batches, {"A": "1"})
        self.assertEqual(found, meter.Reading({8: 5, 4096: 5}, {8: 6, 4096: 6}))
        self.assertEqual(own.by_size("tag_bw", [], own_runs.BYTES, batches).middle,
                         {8: 7, 4096: 7})
        self.assertEqual(own.log, {"A=1 tagwire perf tag_lat --tl sm", "tagwire perf tag_bw"})


class Counting:
    """Reads 1, 2, 3, ... and fails from `fails_at` on."""

    def __init__(self, fails_at=1000):
        self.reads = 0
        self.fails_at = fails_at

    def __call__(self):
        self.reads += 1
        if self.reads >= self.fails_at:
            raise ucx_peer.Skip("out of order\n")
        return meter.Reading({8: self.reads}, {8: 10 * self.reads})


def meter_of(rounds, seconds=60, limit=60, floor=lambda: 50.0):
    return meter.Meter(meter.Pace(rounds, seconds, limit), floor)


@mock.patch("builtins.print")
class Meters(unittest.TestCase):
    def test_takes_medians_of_rounds_in_which_all_are_read_in_turn(self, _):
        one = meter_of(3)
        curves = one.curves("Test", [meter.Source("a", Counting()), meter.Source("b", Counting())])
        self.assertEqual([curve.name for curve in curves], ["a", "b"])
        self.assertEqual((curves[0].points, curves[0].upper), ({8: 2}, {8: 20}))
        self.assertEqual(len(one.floors), 4)
        self.assertEqual((one.notes, one.ours_failed), ([], False))

    def test_a_source_that_fails_is_named_and_not_read_again(self, _):
        ours, theirs = Counting(1), Counting(2)
        one = meter_of(3)
        one.curves("Test", [meter.Source("theirs", theirs, is_ours=False)])
        self.assertFalse(one.ours_failed)
        one.curves("Test", [meter.Source("ours", ours)])
        self.assertTrue(one.ours_failed)
        self.assertEqual((theirs.reads, ours.reads), (2, 1))
        self.assertEqual(one.notes, ["Test, theirs: out of order", "Test, ours: out of order"])

    def test_behind_its_time_each_is_read_once(self, _):
        source = Counting()
        curves = meter_of(100, seconds=0).curves("Test", [meter.Source("a", source)])
        self.assertEqual((source.reads, len(curves[0].points)), (1, 1))

    def test_behind_the_limit_nothing_is_read(self, _):
        source = Counting()
        one = meter_of(3, 0, 0)
        self.assertEqual(one.curves("Test", [meter.Source("a", source)])[0].points, {})
        self.assertEqual(source.reads, 0)
        self.assertEqual(len(one.notes), 1)
        self.assertIn("left out, the machine is too busy to measure in time: a", one.notes[0])

    def test_a_program_that_takes_too_long_is_told_in_one_line(self, _):
        def late():
            raise subprocess.TimeoutExpired(["tagwire", "perf"], 10)

        one = meter_of(1)
        one.curves("Test", [meter.Source("a", late)])
        self.assertEqual(one.notes, ["Test, a: tagwire perf did not end within 10 s"])

    def test_floor_that_moves_is_told(self, _):
        floors = iter((50, 60, 72))
        one = meter_of(2, floor=lambda: next(floors))
        one.curves("Test", [meter.Source("a", Counting())])
        self.assertEqual(len(one.notes), 1)
        self.assertIn("noisy: around 2 of 2 rounds", one.notes[0])

    def test_floor_that_fails_is_a_failure_of_ours(self, _):
        one = meter_of(2, floor=Counting(1))
        one.curves("Test", [meter.Source("a", Counting())])
        self.assertTrue(one.ours_failed)
        self.assertEqual(one.notes, ["cacheline failed: out of order"])


class Pages(unittest.TestCase):
    def test_values_have_three_digits_and_their_unit(self):
        for value, unit, text in ((65536, units.BYTES, "64k"), (100, units.BYTES, "100"),
                                  (100000, units.COUNT, "100000"),
                                  (293.4, units.NANOSECONDS, "293 ns"),
                                  (999.7, units.NANOSECONDS, "1.00 us"),
                                  (12.34e9, units.BYTES_PER_SECOND, "12.3 GB/s"),
                                  (5.678e6, units.PER_SECOND, "5.68 M/s"),
                                  (42.4, units.PERCENT, "42 %")):
            self.assertEqual(units.value_text(value, unit), text)

    def test_back_ticks_are_code(self):
        self.assertEqual(page.marked_up("see `tagwire a<b` there"),
                         "see <code>tagwire a&lt;b</code> there")

    def test_data_need_no_escape_in_html(self):
        axes = plot.Axis("x", units.BYTES), plot.Axis("y", units.COUNT)
        curve = plot.Curve("</script>", {8: 1.5}, upper={8: 2})
        one = page.Page("Title", facts={"Host": "a<b>&c"}, sections=[
            page.Section("", plot.Plot("one", "One", *axes, [curve]))])
        data = page.data_of(one)
        self.assertFalse(set("<>&") & set(data), data)
        self.assertIn("[[8.0,1.5]]", data)
        self.assertEqual(json.loads(data)["plots"][0]["curves"][0]["p99"], [[8, 2]])
        self.assertEqual(json.loads(data)["facts"], {"Host": "a<b>&c"})

    def test_words_of_the_machine_are_no_html(self):
        self.assertEqual(plot.escaped('a<b>&"c"'), "a&lt;b&gt;&amp;&quot;c&quot;")

    def test_a_section_without_points_says_so(self):
        axes = plot.Axis("x", units.BYTES), plot.Axis("y", units.COUNT)
        html = page.html_of(page.Page("Title", sections=[
            page.Section("", plot.Plot("one", "One", *axes, [plot.Curve("a", {})]))]))
        self.assertIn("There is nothing to show", html)

    def test_three_numbers_of_each_curve_stand_on_top(self):
        def with_curves(**points):
            return SimpleNamespace(curves=[plot.Curve(name, some) for name, some in points.items()])

        rows = sections.summary_of(with_curves(ours={8: 90, 64: 95}, theirs={64: 200}, none={}),
                                   with_curves(ours={8: 1, 4096: 9}), with_curves(theirs={8: 3}))
        self.assertEqual(rows, [page.SummaryRow("ours", 90, 9, None),
                                page.SummaryRow("theirs", None, None, 3)])


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = Path(folder.name) / "page.html"

    def test_page_is_replaced_as_a_whole_and_keeps_its_mode(self):
        report.check_writable(str(self.file))
        self.assertFalse(self.file.exists())
        self.file.touch(0o600)
        link = self.file.with_name("link.html")
        link.symlink_to(self.file)
        for text in ("first", "second"):
            report.write_page(str(link), text)
            self.assertEqual(self.file.read_text(), text)
        self.assertEqual(stat.S_IMODE(self.file.stat().st_mode), 0o600)
        self.assertTrue(link.is_symlink())
        self.assertEqual(len(list(self.file.parent.iterdir())), 2)

    def test_place_that_takes_no_file_is_found_before(self):
        for place in ("/proc/nowhere/page.html", str(self.file / "page.html")):
            with self.assertRaises(OSError) as failure:
                report.check_writable(place)
            self.assertIn(place, str(failure.exception))

    def test_devices_are_written_as_they_are(self):
        report.check_writable("/dev/null")
        report.write_page("/dev/null", "text")
        self.assertTrue(stat.S_ISCHR(os.stat("/dev/null").st_mode))


def two_curves(name="one"):
    return plot.Plot(name, "Latency", plot.Axis("message size", units.BYTES),
                     plot.Axis('half of the "round" trip', units.NANOSECONDS),
                     [plot.Curve("sm", {8: 100, 1024: 300, 65536: 9000}),
                      plot.Curve("another library", {8: 120, 0: 7, 65536: 20000}, plot.DASHED),
                      plot.Curve("nothing", {})])


class Starts(unittest.TestCase):
    FOLDER = Path(report.__file__).parent

    def run_report(self, *words, **how):
        return subprocess.run([sys.executable, "-sEB", self.FOLDER / "run.py", "report.py",
                               *words], capture_output=True, check=False, **how)

    def test_an_old_python_is_told_in_one_line(self):
        for version, status in (((3, 8, 10), 1), ((3, 9, 0), 0)):
            with mock.patch.object(sys, "version_info", version), \
                    mock.patch.object(sys, "argv", ["run.py", "report.py"]), \
                    mock.patch("runpy.run_path"), mock.patch("sys.stderr") as told:
                self.assertEqual(run.main(), status)
            self.assertEqual(told.write.call_count, status)

    @unittest.skipUnless(shutil.which("gnuplot"), "there is no gnuplot")
    def test_a_file_whose_name_is_no_utf_8_is_named_as_it_is(self):
        name = b"/proc/nowhere/\xff.html"
        ended = self.run_report("--compare=none", "--", name)
        self.assertEqual(ended.returncode, 2, ended.stderr)
        ended = self.run_report("--tagwire", "/nowhere", "--", name)
        self.assertEqual(ended.returncode, 1, ended.stderr)
        self.assertNotIn(b"Traceback", ended.stderr)
        self.assertIn(name, ended.stderr)

    def test_an_interruption_is_ignored_where_the_caller_ignores_it(self):
        for handler in (signal.SIG_IGN, signal.default_int_handler):
            with mock.patch("signal.getsignal", return_value=handler), \
                    mock.patch("signal.signal") as changed, \
                    mock.patch.object(report, "parse_arguments", side_effect=SystemExit):
                self.assertRaises(SystemExit, report.main)
            self.assertEqual(changed.called, handler is not signal.SIG_IGN)

    def test_no_signal_ends_it_between_a_file_and_its_successor(self):
        blocked = []
        with mock.patch.object(report, "replace", side_effect=lambda *_: blocked.append(
                signal.pthread_sigmask(signal.SIG_BLOCK, ()))), \
                tempfile.TemporaryDirectory() as folder:
            report.write_page(os.path.join(folder, "page.html"), "text")
        self.assertLessEqual(report.ENDING, blocked[0])
        self.assertFalse(report.ENDING & signal.pthread_sigmask(signal.SIG_BLOCK, ()))


@unittest.skipUnless(shutil.which("gnuplot"), "gnuplot is not installed")
class Plots(unittest.TestCase):
    def test_is_one_element_with_title_axes_and_the_curves_that_have_points(self):
        svg = plot.svg_of(two_curves())
        self.assertTrue(svg.startswith("<svg"))
        for words in ("Latency", "message size", "half of the", "another library", "32k", "10 us",
                      "</svg>", 'role="img"', "<title>Latency</title>"):
            self.assertIn(words, svg)
        self.assertNotIn("nothing", svg)

    def test_last_place_has_its_mark_and_the_legend_stands_below_the_axis(self):
        wanted = two_curves()
        wanted.curves[0].points[4 << 20] = 9e6
        for layout in (WIDE, NARROW):
            svg = plot.svg_of(wanted, layout)
            self.assertIn(">4m<", svg)
            self.assertIn("another library", svg)

            def height_of(words):
                place = svg.rindex("translate(", 0, svg.index(words))
                return float(svg[svg.index(",", place) + 1:].partition(")")[0])
            self.assertGreater(height_of(">sm<"), height_of(">message size<") + 10)

    def test_percents_are_linear_and_limits_have_no_markers(self):
        wanted = two_curves()
        wanted.y.unit = units.PERCENT
        limit = plot.Curve("limit", {8: 50, 64: 50}, plot.LIMIT)
        wanted.curves = [plot.Curve("share", {8: 100, 64: 30}), limit]
        svg = plot.svg_of(wanted)
        for mark in (">0 %<", ">20 %<", ">100 %<"):
            self.assertIn(mark, svg)
        self.assertEqual(limit.marker(1), "")

    def test_threads_have_powers_of_two_as_marks(self):
        wanted = two_curves()
        wanted.x.unit = units.THREADS
        wanted.curves = [plot.Curve("all", {1: 10, 2: 20, 4: 20})]
        svg = plot.svg_of(wanted)
        for mark in (">1<", ">2<", ">4<"):
            self.assertIn(mark, svg)
        self.assertNotIn(">5<", svg)

    def test_loads_nothing_and_takes_the_colour_of_the_text(self):
        svg = plot.svg_of(two_curves())
        for words in ('href="http', "href='http", "url(http", "<script", "black"):
            self.assertNotIn(words, svg)
        self.assertIn("currentColor", svg)

    def test_names_of_two_in_one_page_differ(self):
        svg = plot.svg_of(two_curves("two"))
        self.assertIn("id='twogpPt", svg)
        self.assertNotIn("id='gp", svg)
        self.assertNotIn('id="gnuplot', svg)

    def test_one_point_is_enough_and_none_is_refused(self):
        wanted = two_curves()
        wanted.x.unit, wanted.y.unit = units.COUNT, units.PER_SECOND
        wanted.curves = [plot.Curve("a point", {100000: 5})]
        self.assertIn("a point", plot.svg_of(wanted))
        wanted.curves = [plot.Curve("not positive", {8: 0})]
        with self.assertRaises(plot.PlotError):
            plot.svg_of(wanted)

    def test_cost_of_each_protocol_and_the_choice(self):
        def size(length, chosen, **costs):
            return {"size": length, "protocol": chosen, "protocols": [
                {"name": name, "obstacle": None if ns else "why", "ns": ns or 0}
                for name, ns in costs.items()]}

        rail = {"transport": "sm", "device": "memory", "rndv_from": 4096, "source": None,
                "sizes": [size(8, "short", short=50, rndv_get=900, rndv_put=None),
                          size(8192, "rndv_get", short=None, rndv_get=1000, rndv_put=None)]}
        drawn = explain_plot.plot_of(rail, "one")
        self.assertEqual(drawn.title, "sm:memory, rendezvous from 4096 bytes (modelled)")
        self.assertEqual(drawn.mark_at, 4096)
        self.assertEqual([(curve.name, curve.points, curve.line) for curve in drawn.curves],
                         [("chosen", {8: 50, 8192: 1000}, plot.BROAD),
                          ("short", {8: 50}, plot.SOLID),
                          ("rndv_get", {8: 900, 8192: 1000}, plot.DASHED)])
        self.assertEqual(plot.svg_file_of([drawn, drawn]).count("</svg>"), 5)


class Marks(unittest.TestCase):
    def test_of_sizes_leave_out_as_many_between_two_and_keep_the_last(self):
        self.assertEqual(plot.binary_marks(8, 64, 10), [8, 16, 32, 64])
        marks = plot.binary_marks(8, 4 << 20, 6)
        self.assertEqual((marks[0], marks[-1]), (8, 4 << 20))
        self.assertLessEqual(len(marks), 7)

    def test_of_counts_reach_around_the_range(self):
        self.assertEqual(plot.decimal_marks(3, 30), [2, 5, 10, 20, 50])
        self.assertEqual(plot.decimal_marks(3, 30000), [1, 10, 100, 1000, 10000, 100000])
        self.assertEqual(plot.decimal_marks(5, 5), [5])


if __name__ == "__main__":
    unittest.main()

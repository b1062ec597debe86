# SPDX-License-Identifier: BSD-3-Clause
"""Measures the transports of this machine and writes one page with plots of it. `tagwire report`
runs this program, whose options are those of the command and some that only that gives."""
import argparse
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import machine
from amounts import FULL, QUICK
from meter import Meter
from own_runs import OwnRuns, lanes_of
from page import Page, html_of
from peer_runs import KINDS, PeerRuns
from plot import PlotError, check_has_gnuplot
from sections import Sections
from tagwire_runs import Tagwire
from ucx_peer import Skip

sys.dont_write_bytecode = True
PROVIDER = "libtagwire-fi.so"
INFO_TIMEOUT_S = 60
ENDING = {signal.SIGHUP, signal.SIGINT, signal.SIGTERM}
PROVIDES = {"ucx": "{}, ucx_perftest, tag_lat and tag_bw of UCP",
            "libfabric": "{}, fi_pingpong, which has latency only", "openmpi": "{}, NetPIPE"}


class UsageError(Exception):
    """A command line that means nothing."""


# ---- The file

def folder_of(file):
    return os.path.dirname(file) or "."


def is_replaced(file, target):
    """Whether a new file takes the place of `file`. Devices, pipes and files that a shell has
    opened (/dev/stdout) are written as they are, and so is a file in a folder that takes no new
    one."""
    if file.startswith(("/dev/", "/proc/")):
        return False
    if os.path.lexists(target) and not (stat.S_ISREG(os.lstat(target).st_mode) and
                                        os.access(target, os.W_OK)):
        return False
    return os.access(folder_of(target), os.W_OK | os.X_OK)


def check_writable(file):
    """Raises OSError when write_page() could not write there."""
    target = os.path.realpath(file)
    if file != "-" and not is_replaced(file, target):
        with open(file, "a", encoding="utf-8"):
            pass


def write_page(file, html):
    """Replaces `file` as a whole; "-" is standard output."""
    if file == "-":
        print(html, end="")
        return
    target = os.path.realpath(file)
    if not is_replaced(file, target):
        Path(file).write_text(html, encoding="utf-8")
        return
    # Signals wait meanwhile, so that none leaves the new file beside the old one.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    try:
        replace(target, html)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def replace(target, html):
    with tempfile.NamedTemporaryFile("w", dir=folder_of(target), encoding="utf-8",
                                     delete=False) as aside:
        try:
            aside.write(html)
            aside.flush()
            if os.path.exists(target):
                os.fchmod(aside.fileno(), stat.S_IMODE(os.stat(target).st_mode))
            else:
                mask = os.umask(0)
                os.umask(mask)
                os.fchmod(aside.fileno(), 0o666 & ~mask)
            os.replace(aside.name, target)
        except BaseException:
            os.unlink(aside.name)
            raise


# ---- The report

def provider_folder(build):
    """The folder of libtagwire-fi.so, beside the library; empty: it is not there, or has sanitizers
    and programs that have none cannot load it. build: of `tagwire info build`."""
    folder = Path(build["library"]).parent / "libfabric"
    return str(folder) if not build["sanitizers"] and (folder / PROVIDER).exists() else ""


def parse_compare(words):
    kinds = words.split(",") if words is not None else []
    for kind in kinds:
        if kind not in KINDS:
            raise UsageError(f"--compare: there is no '{kind}'; it takes ucx, libfabric, openmpi, "
                             "or several (ucx,libfabric)")
    return kinds


def find_peers(peers, kinds, meter):
    for kind in kinds:
        try:
            peers.find(kind)
        except (Skip, SystemExit) as problem:  # of places that a list names and are not there
            meter.note(f"{KINDS[kind]} is not compared: {problem}")


def facts_of(build, lanes, peers, meter, arguments):
    found = machine.facts(peers.cpus)
    found["tagwire"] = build["version"]
    found["Command"] = os.fsencode(arguments.shown).decode("utf-8", "replace")
    found["Transports"] = ", ".join(
        lane.name + (" (virtual HCA, no card)" if lane.is_virtual else "") for lane in lanes)
    for kind, version in peers.versions.items():
        found[KINDS[kind]] = PROVIDES[kind].format(version)
    if meter.floors:
        found["Floor"] = (f"{min(meter.floors):.0f} to {max(meter.floors):.0f} ns: a cache line "
                          "from one core to the other")
    found["Figures"] = (f"Medians of up to {meter.pace.rounds} rounds; in each round the lines of "
                        "a plot are measured one after the other.")
    return found


def add_all(sections, lanes):
    near = [lane for lane in lanes if lane.transport != "tcp"]
    sections.add_latency(near)
    sections.add_bandwidth(near)
    sections.add_rate(near)
    sections.add_depth(near)
    sections.add_threads(len(machine.allowed_cpus()))
    sections.add_clients()
    for lane in near:
        sections.add_selection(lane)
        sections.add_choice(lane)
    for lane in lanes[len(near):]:
        sections.add_tcp(lane)


def measure(arguments, kinds):
    """(the page, whether every measurement of this library went well)"""
    amounts = QUICK if arguments.quick else FULL
    info = Tagwire(arguments.tagwire).document(["info"], timeout=INFO_TIMEOUT_S)
    lanes = lanes_of(info["devices"])
    commands = set()
    own = OwnRuns(arguments.tagwire, amounts.timeout, commands)
    meter = Meter(amounts.pace, own.floor_ns)
    peers = PeerRuns(machine.two_cpus(), provider_folder(info["build"]), amounts.timeout, commands)
    find_peers(peers, kinds, meter)
    if warning := machine.load_warning():
        meter.note(warning)
    sections = Sections(amounts, own, peers, meter)
    add_all(sections, lanes)
    facts = facts_of(info["build"], lanes, peers, meter, arguments)
    page = Page("tagwire: what messages cost on this machine", f"{facts['Host']}. {facts['Date']}",
                sections.summary(), facts, meter.notes, sections.sections, sorted(commands))
    return page, not meter.ours_failed


def parse_arguments():
    parser = argparse.ArgumentParser(prog="tagwire report", description=__doc__)
    parser.add_argument("file", metavar="OUT.html", help="HTML page to write; needs gnuplot")
    parser.add_argument("--quick", action="store_true", help="few sizes and short runs")
    parser.add_argument("--compare", metavar="LIST", help="ucx, libfabric, openmpi, or several")
    parser.add_argument("--tagwire", default=shutil.which("tagwire") or "tagwire", metavar="FILE",
                        help="the command, which is run for each measurement (%(default)s)")
    parser.add_argument("--shown", default=" ".join(sys.argv), metavar="WORDS",
                        help="the command line as the page shows it")
    return parser.parse_args()


def words_of(problem):
    """Without the escapes that Python writes a file's name with."""
    if isinstance(problem, OSError) and isinstance(problem.filename, str):
        return f"{problem.filename}: {problem.strerror}"
    return str(problem)


def main():
    # An interruption ends this process and, by the kernel, the programs that it runs; where the
    # caller ignores it (nohup, a job of a script), it is ignored.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    # File names may be no UTF-8: they are printed as they came.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # none, where it is closed
            stream.reconfigure(errors="surrogateescape")
    arguments = parse_arguments()
    try:
        kinds = parse_compare(arguments.compare)
        check_has_gnuplot()
        check_writable(arguments.file)
        page, is_whole = measure(arguments, kinds)
        write_page(arguments.file, html_of(page))
    except UsageError as problem:
        print(f"tagwire: {problem}\nTry 'tagwire report --help'.", file=sys.stderr)
        return 2
    except (PlotError, Skip, subprocess.SubprocessError, OSError, ValueError) as problem:
        print(f"tagwire: {words_of(problem)}", file=sys.stderr)
        return 1
    print(f"report: {arguments.file}")
    return 0 if is_whole else 1


if __name__ == "__main__":
    sys.exit(main())

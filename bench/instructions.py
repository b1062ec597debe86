#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Counts the instructions of one short message in the library's own code, by callgrind.

Usage: instructions.py --bin DIR [--device NAME] [--json FILE]
       instructions.py --bin DIR --functions am|bcopy|tag|put|msg|imm|whole|tested|unexpected|
                       handler|flush|idle|ep [--transport NAME]
       instructions.py --bin DIR --provider [mpi|stream|inject|pingpong] [--functions msg]

The second form lists the functions that the instructions of one message (of one endpoint that is
made) of rc are in. The third counts one message through the provider for libfabric, by `instr_fi`,
split into the provider, the messaging layer and the transport below it, libfabric.so, and the
program with libfabric's inline wrappers.

DIR holds the built programs. Counted is `instr_messages`: a process that sends to itself, over sm,
rc and dc, and beside rc the same text over UCX's rc_verbs on the virtual HCA; over dc also the
making of an endpoint to a new address; over sm also `instr_msg`, the same by the messaging layer.
What is counted: instructions in the transport library's objects (libtagwire; libuct, libuct_ib and
libucs) and in the functions of libc and of the C++ library that they call. What is not: the
device's library, the measuring program, and calls of progress that found nothing; how many of those
there are is chance, so their cost is measured apart and subtracted.
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

COUNT = 2000
COUNT_OF_ENDPOINTS = 500  # each needs an interface to have an address from
EP_CREATE_MAX = 6000  # instructions that making an endpoint of dc may take
MSG_ABOVE_TAG_MAX = 120  # instructions of the messaging layer, send and receive together
PROVIDER_MAX = 150  # instructions of the provider for libfabric, entries of both sides included
MULTI_MAX = 1.3  # instructions of the messaging layer in multi mode over those in single mode
PUT_ABOVE_MAX = 60  # instructions that the messaging layer adds to a short put of sm
FLUSH_MAX = 40  # instructions of a flush at level sent with nothing under way
HANDLER_MAX = 1.0  # an active message of the messaging layer over a tagged one
TIMEOUT_S = 300
OURS = r"/libtagwire\.so"
UCX = r"/(libuct|libuct_ib|libucs)\.so"
FI = r"/libtagwire-fi\.so"
HELPERS = r"/(libc|libm|libstdc\+\+|ld-linux[^/]*)[.-]"
# valgrind has no room for the address space that sm's arena takes by default.
SETTINGS = {"TAGWIRE_SM_ARENA_BYTES": "64m", "UCX_LOG_LEVEL": "error"}
# Where the profile is cut: functions of instr_messages.
PHASES = {"am": ("send_am", "progress_until"), "bcopy": ("send_packed", "progress_until"),
          "tag": ("post_receive", "send_tagged", "progress_until"), "idle": ("progress_idle",),
          "msg": ("post_receive", "send_tagged", "progress_until"),
          "imm": ("post_receive", "send_tagged", "progress_until"),
          "whole": ("post_whole", "send_whole", "progress_until"),
          "tested": ("post_tested", "send_tagged", "progress_until_tested"),
          "unexpected": ("send_tagged", "progress_until_kept", "receive_kept"),
          "handler": ("send_to_handler", "progress_until"),
          "put": ("put_short",),
          "flush": ("flush_nothing",),
          "ep": ("create_endpoint",)}
PROVIDER_PHASES = {"post_receive": "post receive", "send_tagged": "send",
                   "read_sent": "read the send's entry", "read_received": "progress, read the "
                   "receive's entry"}
PROVIDER_PARTS = ("provider", "messaging", "transport", "libfabric", "program")
PROVIDER_KINDS = ("mpi", "stream", "inject", "pingpong")


class Profile:
    """Instructions by object in a file that callgrind wrote."""

    def __init__(self, path):
        self.own = defaultdict(int)     # (object, function) -> instructions
        self.calls = defaultdict(int)   # (caller's object, callee's object) -> inclusive ones
        self.names = {"ob": {}, "fn": {}}
        with open(path, encoding="utf-8", errors="replace") as lines:
            self.read(lines)

    def name(self, kind, text):
        """Names are written once as "(12) name", then as "(12)"."""
        number, _, name = text.strip().partition(" ")
        if name:
            self.names[kind][number] = name
        return self.names[kind].get(number, text.strip())

    def read(self, lines):
        here = function = callee = None
        is_call = False
        for line in lines:
            if line.startswith("ob="):
                here = self.name("ob", line[3:])
            elif line.startswith("fn="):
                function = self.name("fn", line[3:])
            elif line.startswith("cob="):
                callee = self.name("ob", line[4:])
            elif line.startswith("cfn="):
                self.name("fn", line[4:])
            elif line.startswith("calls="):
                is_call = True
            elif line[:1].isdigit() or line[:1] in "+-*":
                cost = line.split()
                value = int(cost[1]) if len(cost) > 1 else 0
                if is_call:
                    self.calls[here, callee or here] += value
                else:
                    self.own[here, function] += value
                if is_call:
                    is_call, callee = False, None

    def of(self, objects):
        """Instructions in objects whose path matches, with the libc functions that they call."""
        own = sum(self.functions(objects).values())
        helpers = sum(cost for (caller, callee), cost in self.calls.items()
                      if matches(caller, objects) and matches(callee, HELPERS))
        return own + helpers

    def functions(self, objects):
        """Instructions of each function of these objects, inlined ones where they are inlined."""
        return {function: cost for (name, function), cost in self.own.items()
                if matches(name, objects)}


def matches(name, pattern):
    return name is not None and re.search(pattern, name) is not None


def profile(command, phase):
    """(profile of what ran inside the function `phase`, calls of progress that found nothing)"""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "callgrind.out"
        valgrind = ["valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={file}",
                    f"--toggle-collect=*{phase}*"]
        launcher, program = command
        result = subprocess.run([*launcher, *valgrind, *program], capture_output=True, text=True,
                                timeout=TIMEOUT_S, check=False,
                                env={**os.environ, **SETTINGS})
        told = re.search(r"(\d+) calls of progress found nothing", result.stdout)
        if result.returncode != 0 or not told:
            told = result.stderr.strip() or result.stdout.strip() or "no result"
            raise OSError(f"{' '.join(map(str, program))}: {told.splitlines()[-1]}")
        return Profile(file), int(told[1])


def count_of(kind):
    return COUNT_OF_ENDPOINTS if kind == "ep" else COUNT


def per_message(launcher, program, kind, place, objects, idle=0.0):
    """Instructions of each phase of one message."""
    costs = {}
    for phase in PHASES[kind]:
        samples = []
        once = count_of(kind)
        for count in (once, 2 * once):
            command = (launcher, [program, kind, str(count), *place])
            found, empty = profile(command, phase)
            paid = found.of(objects)
            samples.append(paid - empty * idle if phase.startswith("progress_until") else paid)
        costs[phase] = (samples[1] - samples[0]) / once
    return costs


def count_all(launcher, program, place, objects, kinds=("am", "bcopy", "tag")):
    """{"idle": .., "am_send": .., "am_receive": .., "am_total": .., "tag_post": .. and so on}"""
    idle = per_message(launcher, program, "idle", place, objects)["progress_idle"]
    counts = {"idle_progress": idle}
    names = {"send_am": "send", "send_packed": "send", "send_tagged": "send",
             "send_to_handler": "send", "put_short": "put", "flush_nothing": "flush",
             "post_receive": "post_receive",
             "progress_until": "receive", "progress_until_kept": "keep",
             "post_whole": "post_receive", "send_whole": "send", "post_tested": "post_receive",
             "progress_until_tested": "receive",
             "receive_kept": "receive"}
    for kind in kinds:
        costs = per_message(launcher, program, kind, place, objects, idle)
        counts.update({f"{kind}_{names[phase]}": cost for phase, cost in costs.items()})
        counts[f"{kind}_total"] = sum(costs.values())
    return counts


def functions(program, place, kind):
    """{function: instructions per message}, all phases together; empty polls are in it."""
    costs = defaultdict(float)
    for phase in PHASES[kind]:
        once = count_of(kind)
        for count, sign in ((once, -1), (2 * once, 1)):
            command = ([], [program, kind, str(count), *place])
            found, _ = profile(command, phase)
            for function, cost in found.functions(OURS).items():
                costs[function] += sign * cost / once
    return costs


def sm(bin_directory):
    """None when it cannot be counted here."""
    program = Path(bin_directory) / "instr_messages"
    if not program.exists() or shutil.which("valgrind") is None:
        return None
    counts = count_all([], program, ["sm"], OURS, kinds=("am", "bcopy", "tag", "put"))
    messages = Path(bin_directory) / "instr_msg"
    if messages.exists():
        layer = count_all([], messages, ["sm"], OURS,
                          kinds=("msg", "imm", "whole", "tested", "unexpected", "handler"))
        counts["msg_idle_progress"] = layer.pop("idle_progress")
        counts.update(layer)
        put = count_all([], messages, ["sm"], OURS, kinds=("put",))
        counts["msg_put_total"] = put["put_total"]
        flush = count_all([], messages, ["sm"], OURS, kinds=("flush",))
        counts["msg_flush_total"] = flush["flush_total"]
        counts["msg_above_tag"] = layer["msg_total"] - counts["tag_total"]
        multi = count_all([], messages, ["sm", "multi"], OURS, kinds=("msg",))
        counts["msg_multi_total"] = multi["msg_total"]
    return counts


def rc(bin_directory, device):
    return count_all([], Path(bin_directory) / "instr_messages", ["rc", device], OURS)


def dc(bin_directory, device):
    program = Path(bin_directory) / "instr_messages"
    counts = count_all([], program, ["dc", device], OURS)
    made = per_message([], program, "ep", ["dc", device], OURS)
    return {**counts, "ep_create": made["create_endpoint"]}


def ucx_rc(bin_directory, device):
    """UCX on the virtual HCA; it has no tags there."""
    launcher = [Path(bin_directory) / "tagwire", "vhca", "run", "--"]
    program = Path(bin_directory) / "instr_messages_ucx"
    return count_all(launcher, program, ["rc_verbs", device], UCX, kinds=("am", "bcopy"))


def part_of(name, function):
    """Whose instructions: one of PROVIDER_PARTS, or None. Of libtagwire by the function's name."""
    if matches(name, FI):
        return "provider"
    if matches(name, OURS):
        layer = matches(function, r"proto::|^tw_|anonymous namespace\)::(send|receive|try_)|_long")
        return "messaging" if layer else "transport"
    if matches(name, r"/libfabric\.so"):
        return "libfabric"
    return "program" if matches(name, r"/instr_fi$") else None


def provider_functions(bin_directory, kind):
    """{(phase, part, function): instructions per message}; reads that find nothing are left out."""
    program = Path(bin_directory) / "instr_fi"
    os.environ.setdefault("FI_PROVIDER_PATH", str(Path(bin_directory).parent / "lib/libfabric"))
    os.environ.setdefault("FI_TAGWIRE_TRANSPORTS", "sm")

    def sample(kind, phase, count):
        found, empty = profile(([], [program, kind, str(count)]), phase)
        return defaultdict(float, found.own), empty

    def difference(kind, phase):
        (more, more_empty), (less, less_empty) = (sample(kind, phase, COUNT * 2),
                                                  sample(kind, phase, COUNT))
        costs = {key: (more[key] - less[key]) / COUNT for key in {*more, *less}}
        return costs, (more_empty - less_empty) / COUNT

    idle, _ = difference("idle", "read_idle")
    costs = defaultdict(float)
    for phase in PROVIDER_PHASES:
        found, empty = difference(kind, phase)
        for (name, function), cost in found.items():
            paid = cost - (empty * idle.get((name, function), 0) if phase == "read_received" else 0)
            part = part_of(name, function) or ("libc" if matches(name, HELPERS) else None)
            if part is not None:
                costs[phase, part, function] += paid
    return costs


def provider_lines(bin_directory, kind, with_functions, counts):
    """The report of one kind of message as lines; `counts` takes {phase: {part: instructions}}."""
    costs = provider_functions(bin_directory, kind)
    parts = [*PROVIDER_PARTS, "libc"]
    lines = ["".join([f"{kind:40}", *(f"{part:>11}" for part in parts)])]
    sums = {phase: {part: sum(cost for (its_phase, its_part, _), cost in costs.items()
                              if (its_phase, its_part) == (phase, part)) for part in parts}
            for phase in PROVIDER_PHASES}
    sums["total"] = {part: sum(sums[phase][part] for phase in PROVIDER_PHASES) for part in parts}
    for phase, of_parts in sums.items():
        lines.append("".join([f"{PROVIDER_PHASES.get(phase, phase):40}",
                              *(f"{cost:11.1f}" for cost in of_parts.values())]))
    counts[kind] = sums
    total = sums["total"]["provider"]
    lines.append(f"{'met' if total <= PROVIDER_MAX else 'MISSED'}: the provider in <= "
                 f"{PROVIDER_MAX}, is {total:.0f}")
    if with_functions:
        listed = sorted(costs.items(), key=lambda item: -item[1])
        lines += [f"{cost:8.1f}  {phase:14} {part:10} {function[:90]}"
                  for (phase, part, function), cost in listed if cost >= 0.5]
    return lines


def table(columns):
    """Lines of text; `columns`: {title: counts or the sentence why there are none}."""
    counted = {title: counts for title, counts in columns.items() if isinstance(counts, dict)}
    keys = list(dict.fromkeys(key for counts in counted.values() for key in counts))
    lines = ["".join([f"{'instructions':20}", *(f"{title:>16}" for title in counted)])]
    for key in keys:
        cells = [f"{counts[key]:16.1f}" if key in counts else f"{'-':>16}"
                 for counts in counted.values()]
        lines.append("".join([f"{key.replace('_', ' '):20}", *cells]))
    lines += [f"{title}: not counted: {why}" for title, why in columns.items()
              if title not in counted]
    if "msg_above_tag" in counted.get("sm", {}):
        above = counted["sm"]["msg_above_tag"]
        lines.append(f"{'met' if above <= MSG_ABOVE_TAG_MAX else 'MISSED'}: the messaging layer in "
                     f"<= {MSG_ABOVE_TAG_MAX} more than a tagged message of sm, is {above:.0f}")
        ratio = counted["sm"]["msg_multi_total"] / counted["sm"]["msg_total"]
        lines.append(f"{'met' if ratio <= MULTI_MAX else 'MISSED'}: with TW_THREAD_MULTI in <= "
                     f"{MULTI_MAX} x of that, is {ratio:.2f} x")
        flush = counted["sm"]["msg_flush_total"]
        lines.append(f"{'met' if flush <= FLUSH_MAX else 'MISSED'}: a flush at level sent with "
                     f"nothing under way in <= {FLUSH_MAX}, is {flush:.0f}")
        above = counted["sm"]["msg_put_total"] - counted["sm"]["put_total"]
        lines.append(f"{'met' if above <= PUT_ABOVE_MAX else 'MISSED'}: tw_put() in <= "
                     f"{PUT_ABOVE_MAX} more than a short put of sm, is {above:.0f}")
        ratio = counted["sm"]["handler_total"] / counted["sm"]["msg_total"]
        lines.append(f"{'met' if ratio <= HANDLER_MAX else 'MISSED'}: an active message in <= "
                     f"{HANDLER_MAX} x of a tagged one, is {ratio:.2f} x")
    if "ep_create" in counted.get("dc", {}):
        made = counted["dc"]["ep_create"]
        lines.append(f"{'met' if made <= EP_CREATE_MAX else 'MISSED'}: an endpoint of dc in <= "
                     f"{EP_CREATE_MAX}, is {made:.0f}")
    return lines


def attempt(count, *arguments):
    try:
        return count(*arguments)
    except (OSError, subprocess.TimeoutExpired) as problem:
        return str(problem)


def columns(bin_directory, device="vhca0:1"):
    return {"sm": attempt(sm, bin_directory), "rc": attempt(rc, bin_directory, device),
            "dc": attempt(dc, bin_directory, device),
            "UCX rc_verbs": attempt(ucx_rc, bin_directory, device)}


def write_json(path, counts):
    if path:
        Path(path).write_text(json.dumps(counts, indent=2) + "\n", encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--bin", required=True, help="directory of the built programs")
    parser.add_argument("--device", default="vhca0:1", help="of rc, dc and rc_verbs (%(default)s)")
    parser.add_argument("--json", help="file for the counts")
    parser.add_argument("--functions", choices=PHASES, help="list those of this kind of message")
    parser.add_argument("--transport", default="rc", help="with --functions (%(default)s)")
    parser.add_argument("--provider", nargs="?", const="all", choices=(*PROVIDER_KINDS, "all"),
                        help="count this kind of message through the provider for libfabric")
    arguments = parser.parse_args()
    if shutil.which("valgrind") is None:
        sys.exit("instructions: valgrind is not installed")
    if arguments.provider:
        counts = {}
        for kind in PROVIDER_KINDS if arguments.provider == "all" else [arguments.provider]:
            print("\n".join(provider_lines(arguments.bin, kind, arguments.functions, counts)))
        write_json(arguments.json, counts)
        return 0
    if arguments.functions:
        is_msg = arguments.functions in ("msg", "imm", "whole", "tested", "unexpected",
                                         "handler", "flush")
        name = "instr_msg" if is_msg else "instr_messages"
        program = Path(arguments.bin) / name
        costs = functions(program, [arguments.transport], arguments.functions)
        for function, cost in sorted(costs.items(), key=lambda item: -item[1]):
            if cost >= 0.5:
                print(f"{cost:8.1f}  {function[:110]}")
        return 0
    counted = columns(arguments.bin, arguments.device)
    print("\n".join(table(counted)))
    write_json(arguments.json, counted)
    return 0


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: BSD-3-Clause
"""Tells from exit statuses and output whether a program did what its case wants, and which figure
it printed."""
import re


def numbers_line(text):
    """The last line that holds figures only."""
    rows = [line for line in text.splitlines()
            if re.fullmatch(r"(?:[\s\d.+\-e]|nan|inf)+", line) and len(line.split()) >= 3]
    return " ".join(rows[-1].split()) if rows else ""


def figure(case, text):
    if case.kind == "pingpong":
        found = re.search(r"([\d.]+ usec/iter)", text)
        return found[1] if found else ""
    if case.kind == "perftest":
        words = numbers_line(text).split()
        if "_lat" in case.words[0] and len(words) > 4:
            return f"{words[4]} us typical"
        return f"{words[3]} MB/s average" if len(words) > 3 else ""
    if case.kind == "ucx":
        found = re.search(r"^Final:\s+(.*)$", text, re.M)
        words = found[1].split() if found else []
        if len(words) > 4:
            return f"{words[5]} MB/s" if "_bw" in case.name else f"{words[1]} us median"
        return ""
    if case.kind == "libfabric":
        rows = re.findall(r"^\S+ +[\dk]+ +=[\dk]+ +\S+ +\S+ +\S+ +([\d.]+) ", text, re.M)
        return f"{rows[-1]} us/transfer" if rows else ""
    if case.kind == "pyverbs":
        return pyverbs_figure(text)
    if case.kind == "mpi":
        rows = re.findall(r"(\d+) bytes .*Integrity check passed", text)
        return f"{rows[-1]} bytes intact" if rows else ""
    if case.kind == "rdma_cm":
        return rdma_cm_figure(text)
    found = re.search(r"vhca\d+", text)
    return found[0] if found else ""


def rdma_cm_figure(text):
    """rping's rounds, a stream's speed, or what the others say when they are through."""
    rounds = re.findall(r"^ping data: rdma-ping-", text, re.M)
    if rounds:
        return f"{len(rounds)} rounds"
    streams = re.findall(r"^custom .* ([\d.]+) +[\d.]+ *$", text, re.M)
    if streams:
        return f"{streams[-1]} Gb/s"
    found = re.search(r"^(test complete|rdma_x?client: end 0)$", text, re.M)
    return found[1] if found else ""


def pyverbs_figure(text):
    """Nothing where all were skipped."""
    ran = re.search(r"^Ran (\d+) test", text, re.M)
    skipped = re.search(r"skipped=(\d+)", text)
    skips = int(skipped[1]) if skipped else 0
    passed = int(ran[1]) - skips if ran else 0
    return f"{passed} pass{f', {skips} skip' if skips else ''}" if passed > 0 else ""


def is_late_look(case, status, text):
    """rping's thread of events looks for one more behind the disconnection, while its main thread
    closes their channel: where that is first, a program that is through ends with 255, on cards,
    too."""
    if case.words[0] != "rping":
        return False
    rounds = int(case.words[case.words.index("-C") + 1])
    return (status == 255 and "DISCONNECT EVENT" in text and
            "rdma_get_cm_event: Bad file descriptor" in text and
            len(re.findall(r"ping data: rdma-ping-", text)) == rounds)


def judge(case, sides):
    statuses = [0 if is_late_look(case, status, text) else status for _, status, text in sides]
    text = sides[0][2]
    told = " / ".join(str(status) for status in statuses)
    if case.refused:
        is_refused = case.refused in text and not {0, "timeout"}.intersection(statuses)
        return is_refused, told, f'"{case.refused}"'
    # The complaint may stand in the line of the figures.
    shown = figure(case, text.replace(case.complains, "\n") if case.complains else text)
    if case.complains:
        is_told = any(case.complains in text for _, _, text in sides)
        return shown != "" and is_told and set(statuses) <= {0, 1}, told, shown
    return shown != "" and set(statuses) == {0}, told, shown

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Checks the house rules that a compiler cannot: who includes whom, SYNC labels, sizes, leftovers.

Prints `file:line: kind: rule: text` for each finding and ends with status 1 if one is an error;
sizes that are only a smell are warnings. CONTRIBUTING.md has the rules.
"""
import argparse
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tidy_includes import Includes

LINE_COLUMNS_MAX = 100
FILE_LINES_MAX = 600
FILE_LINES_TARGET = 300
FUNCTION_LINES_MAX = 70
SYNC_REACH_LINES = 8  # code lines between a label and the operation that it explains

CODE = {".h", ".hpp", ".cc", ".c"}
SCRIPTS = {".py", ".sh", ".cmake"}
SCRIPT_NAMES = {"run", "CMakeLists.txt", "pre-commit"}
TEXTS = {".md", ".json", ".in", ".map", ".txt"}

# Where the library and the other products have their sources, and their tests theirs.
SOURCES = ("src/", "vhca/", "tools/", "cli/")
TESTS = ("test/", "vhca/test/", "tools/test/")

# What may be named in certain places only: rule, pattern, where it may, whom the rule is about.
CONFINED = [
    ("infiniband", re.compile(r"#\s*include\s*<infiniband/"), ("src/uct/ib/", "vhca/"),
     SOURCES),
    ("pmix", re.compile(r"#\s*include\s*<pmix"), ("src/bootstrap/",), SOURCES),
    ("getenv", re.compile(r"\b(secure_)?getenv\s*\("), ("src/ucs/config/",), SOURCES),
    ("mapping", re.compile(r"\b(memfd_create|shm_open|mmap|munmap|mremap)\s*\(|\bSCM_RIGHTS\b"),
     ("src/ucs/sys/",), ("src/ucs/", "src/uct/", "src/protocols/")),
]
# Spelled in two halves, so that this file passes its own check.
COMMENT_TEXT = re.compile(r"^\s*(?://+[!<]*|/?\*+)(?: -+)?\s*(?P<text>.*)")
TRAILING = re.compile(r"[;,{}()]\s+//+[!<]*\s+(?P<text>.*)")
OPENING = re.compile(r"(What|Who|How|Of|That)\b")
PRONOUN = re.compile(r"(It|Its|They|Their|Them|These|Those|The same|So)\b|\.\.\.")
# Headers in which a comment names its subject, since readers come to it from a call.
NAMED_SUBJECTS = ("src/ucs/", "src/uct/", "src/protocols/", "src/bootstrap/", "src/tagwire")
OPENING_WITHIN = re.compile(r"(?<!\bvs)[.!?] (What|Who|How|Of|That)\b")
LEFTOVER = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|X" + r"XX)\b")
DISABLED = re.compile(r"\bDISABLED" + r"_\w")
MACHINE_PATH = re.compile(r"(?<![\w.$}])/(home/\w|ro" + r"ot/|wo" + r"rk/|Users/\w)")
SYNC = re.compile(r"\bSYNC\s+([a-z]\w*(?:\([^)]*\))?)")
ORDERED = re.compile(r"\bmemory_order(?:_|::)(acquire|release|acq_rel|seq_cst)\b")
UNORDERED = re.compile(
    r"\.(load\(\s*\)|(fetch_(add|sub|or|and|xor)|compare_exchange_(weak|strong))\()")
FUNCTION_HEAD = re.compile(
    r"^\s*(?!(namespace|class|struct|union|enum|extern|if|for|while|switch|do|else|try)\b)"
    r"[^#=]*\(.*\{$")
ASSERTION = re.compile(r"^\s*(EXPECT|ASSERT)_\w+\(")
UNBRACED_IF = re.compile(r"^\s*(\} )?(else )?if .*\)$")
GUARD = re.compile(r"^(?P<indent>\s*)(if|for|while) .*\) \{$")
CASE = re.compile(r"^(TEST|TEST_F|TEST_P|RC_GTEST_PROP)\(\w+, (?!DISABLED)([A-Z]\w*)")
COMMENT = re.compile(r"^\s*//+(?P<text>.*)$")
GAP = re.compile(r"(?<=\S) {3,}(?=\S)")
DRAWN = re.compile(r"[|<>+]|--|\.\.\.")
PROSE_WORDS = 4
TYPE_ALONE = re.compile(r"^\s+(?!(return|else|public|private|protected)\b)[\w:<>,* ]*[\w>*]$")
NAME_ALONE = re.compile(r"^\s+\w+(\[\w*\])?( = [^;]*)?;\s+//")


@dataclass(frozen=True)
class Finding:
    path: str
    line: int
    rule: str
    text: str
    warning: bool = False

    def __str__(self):
        kind = "warning" if self.warning else "error"
        return f"{self.path}:{self.line}: {kind}: {self.rule}: {self.text}"


def code_of(line):
    """The line without `//` comments and without the text of string literals."""
    return re.sub(r'"(\\.|[^"\\])*"', '""', line).split("//", 1)[0]


def is_source(path):
    return path.startswith(SOURCES) and not path.startswith(TESTS)


def is_comment(line):
    return line.lstrip().startswith(("//", "/*", "*"))


def first_line(path, lines):
    at = 1 if lines and lines[0].startswith("#!") else 0
    if len(lines) <= at or "SPDX-License-Identifier: BSD-3-Clause" not in lines[at]:
        yield Finding(path, at + 1, "spdx", "starts with SPDX-License-Identifier: BSD-3-Clause")


def sizes(path, lines):
    for number, line in enumerate(lines, 1):
        if len(line) > LINE_COLUMNS_MAX:
            yield Finding(path, number, "line-length",
                          f"{len(line)} columns; the limit is {LINE_COLUMNS_MAX}")
    if path.startswith("src/uct/api/"):
        return
    if len(lines) > FILE_LINES_MAX:
        yield Finding(path, 1, "file-size", f"{len(lines)} lines; the limit is {FILE_LINES_MAX}")
    elif len(lines) > FILE_LINES_TARGET:
        yield Finding(path, 1, "file-size",
                      f"{len(lines)} lines; the target is {FILE_LINES_TARGET}", warning=True)


def wrapping(path, lines):
    """Prose of Markdown; tables, code and links that cannot be broken may be longer."""
    fenced = False
    for number, line in enumerate(lines, 1):
        fenced ^= line.lstrip().startswith("```")
        is_code = fenced or line.startswith(("|", "    ", "\t", "#", "<"))
        breaks = " " in re.sub("`[^`]*`", "", line).strip()
        if len(line) > LINE_COLUMNS_MAX and breaks and not is_code:
            yield Finding(path, number, "line-length",
                          f"{len(line)} columns; prose is wrapped at {LINE_COLUMNS_MAX}")


def function_sizes(path, lines):
    """Bodies as clang-format lays them out: up to the brace in the column of the head."""
    start, end = None, ""
    for number, line in enumerate(lines, 1):
        if start is None and FUNCTION_HEAD.match(line):
            start = number
            end = line[:len(line) - len(line.lstrip())] + "}"
        elif start is not None and line.startswith(end):
            if number - start - 1 > FUNCTION_LINES_MAX:
                text = f"{number - start - 1} lines; {FUNCTION_LINES_MAX} is a smell"
                yield Finding(path, start, "function-size", text, warning=True)
            start = None


def columns(line):
    """Where the cells of a comment line begin; nothing for a line of code."""
    match = COMMENT.match(line)
    if not match or not match["text"].strip():
        return set()
    text, base = match["text"], match.start("text")
    first = len(text) - len(text.lstrip())
    return {base + first} | {base + gap.end() for gap in GAP.finditer(text)}


def layouts(path, lines):
    """Tables and charts that somebody's formatter ran together, and declarations that it tore."""
    starts = [columns(line) for line in lines]
    for number, line in enumerate(lines, 1):
        match = COMMENT.match(line)
        if match and not DRAWN.search(match["text"]):
            near = set().union(*starts[max(0, number - 3):number - 1], *starts[number:number + 2])
            if any(len(cell.split()) >= PROSE_WORDS and match.start("text") + end not in near
                   for cell, end in cells(match["text"])):
                yield Finding(path, number, "layout", "a table that was run together: a cell of "
                              "prose ends where no line nearby has a column")
        if number < len(lines) and TYPE_ALONE.match(line) and NAME_ALONE.match(lines[number]):
            yield Finding(path, number, "layout", "a declaration torn by its comment: put the "
                          "comment above it")


def braces(path, lines):
    """A single statement of one line stands without, as clang-format's RemoveBracesLLVM has it;
    a check of GoogleTest after an `if` stands within, since its macro holds an `else`."""
    for number, (line, body, end) in enumerate(zip(lines, lines[1:], lines[2:]), 1):
        if ASSERTION.match(body):
            if UNBRACED_IF.match(line):
                yield Finding(path, number, "braces", "a check after an if stands within")
            continue
        guard = GUARD.match(line)
        if guard and end == guard["indent"] + "}" and body.endswith(";") and not is_comment(body):
            yield Finding(path, number, "braces", "a body of one statement has none")


def cells(text):
    """(cell, where the next one begins) of each but the last."""
    begin = 0
    for gap in GAP.finditer(text):
        yield text[begin:gap.start()], gap.end()
        begin = gap.end()


def openings(path, lines):
    """A sentence of a comment begins with its subject or a verb."""
    ended = True
    for number, line in enumerate(lines, 1):
        comment = COMMENT_TEXT.match(line)
        text = comment["text"] if comment else ""
        if not comment:
            beside = TRAILING.search(line)
            text = beside["text"] if beside else ""
        if (comment is None or ended) and OPENING.match(text) or OPENING_WITHIN.search(text):
            yield Finding(path, number, "opening",
                          "a sentence opens with its subject, not with What, Who, How, Of, That")
        ended = not text or text.endswith((".", ":", "!", "?", "BSD-3-Clause"))


def subjects(path, lines):
    """A comment of a header says whom it is about, without a look at the line above."""
    if not path.startswith(NAMED_SUBJECTS) or not path.endswith((".h", ".hpp")):
        return
    within = False
    for number, line in enumerate(lines, 1):
        comment = COMMENT_TEXT.match(line)
        beside = TRAILING.search(line)
        text = comment["text"] if comment else beside["text"] if beside else ""
        if not (comment and within) and PRONOUN.match(text):
            yield Finding(path, number, "subject", "a comment names its subject: it does not begin "
                          "with a pronoun, The same, So or ...")
        within = comment is not None and "SPDX-License" not in line


def leftovers(path, lines):
    for number, line in enumerate(lines, 1):
        if match := LEFTOVER.search(line):
            yield Finding(path, number, "leftover", f"{match[0]}: do it, or open an issue")
        if match := CASE.search(line):
            yield Finding(path, number, "case-name", f"{match[2]}: a test case is in snake_case")
        if path.startswith(TESTS) and DISABLED.search(line):
            yield Finding(path, number, "disabled-test", "a test runs or does not exist")
        if match := MACHINE_PATH.search(line):
            yield Finding(path, number, "machine-path", f"{match[0]}: a path of one machine")


def confined(path, lines):
    for rule, pattern, allowed, scope in CONFINED:
        if path.startswith((*allowed, *TESTS)) or not path.startswith(scope):
            continue
        for number, line in enumerate(lines, 1):
            if pattern.search(code_of(line)):
                yield Finding(path, number, rule, f"only under {' and '.join(allowed)}")


def file_name(path):
    if re.match(r"(test/gtest|vhca/test|tools/test)/(.*/)?test_\w+\.cc$", path):
        yield Finding(path, 1, "file-name", "a source of tests is named NAME_test.cc")


def header_kind(path):
    public = path.startswith(("src/ucs/", "src/uct/api/", "src/protocols/api/")) or (
        path.startswith("src/") and path.count("/") == 1)
    if is_source(path) and path.endswith(".h") and not public:
        yield Finding(path, 1, "header-kind", "*.h is a public C header; private ones are *.hpp")


class Sync:
    """Every ordered atomic operation of a product has a label, and every label has a partner."""

    def __init__(self):
        self.places = {}

    def check(self, path, lines):
        if not path.startswith((*SOURCES, *TESTS)):
            return
        for number, line in enumerate(lines, 1):
            for label in SYNC.findall(line):
                self.places.setdefault(label, []).append((path, number))
            if is_source(path):
                yield from self.check_line(path, lines, number)

    def check_line(self, path, lines, number):
        code = code_of(lines[number - 1])
        if (match := ORDERED.search(code)) and not self.labelled(lines, number - 1):
            yield Finding(path, number, "sync-label", f"{match[0]} without a SYNC label above it")
        statement = lines[number - 1:number + 3]
        if UNORDERED.search(code) and not any("order" in line for line in statement):
            yield Finding(path, number, "memory-order", "an atomic operation names its order")

    @staticmethod
    def labelled(lines, at):
        code_lines = 0
        while at >= 0 and code_lines <= SYNC_REACH_LINES:
            if SYNC.search(lines[at]):
                return True
            code_lines += not is_comment(lines[at])
            at -= 1
        return False

    def lonely(self):
        for label, places in self.places.items():
            if len(places) < 2:
                path, line = places[0]
                yield Finding(path, line, "sync-pair", f"SYNC {label} has no partner")


def tracked_files(root):
    """What git tracks; in an exported tree, everything but build directories."""
    try:
        done = subprocess.run(["git", "-C", root, "ls-files", "-z"], check=True,
                              capture_output=True)
        if names := [name for name in done.stdout.decode().split("\0") if name]:
            return sorted(name for name in names if (Path(root) / name).is_file())
    except (OSError, subprocess.CalledProcessError):
        pass
    found = []
    for directory, children, names in os.walk(root):
        children[:] = [c for c in children if c not in (".git", "build", "out", "__pycache__")]
        found += [os.path.relpath(os.path.join(directory, name), root) for name in names]
    return sorted(found)


def check_code(path, lines, includes, sync):
    yield from function_sizes(path, lines)
    yield from layouts(path, lines)
    yield from braces(path, lines)
    yield from openings(path, lines)
    yield from subjects(path, lines)
    yield from confined(path, lines)
    yield from header_kind(path)
    yield from file_name(path)
    yield from sync.check(path, lines)
    for number, text in includes.check(path, lines):
        yield Finding(path, number, "include", text)


def check_tree(root, files):
    includes, sync, findings = Includes(files), Sync(), []
    for path in sorted(files):
        suffix, name = Path(path).suffix, Path(path).name
        is_script = suffix in SCRIPTS or name in SCRIPT_NAMES
        if not (suffix in CODE | TEXTS or is_script) or "/corpus/" in path:
            continue
        lines = (Path(root) / path).read_text(errors="replace").splitlines()
        findings += leftovers(path, lines)
        if suffix == ".md":
            findings += wrapping(path, lines)
        if suffix in CODE or is_script:
            findings += first_line(path, lines)
            findings += sizes(path, lines)
        if suffix in CODE:
            findings += check_code(path, lines, includes, sync)
    return findings + list(sync.lonely())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", nargs="?", default=Path(__file__).resolve().parents[2])
    root = str(parser.parse_args().root)
    files = tracked_files(root)
    findings = check_tree(root, files)
    for finding in findings:
        print(finding)
    errors = sum(not finding.warning for finding in findings)
    print(f"tidy: {len(files)} files, {errors} errors, {len(findings) - errors} warnings")
    return 1 if errors or not files else 0


if __name__ == "__main__":
    sys.exit(main())

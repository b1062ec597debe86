#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Names the parts, the stages of .ci/run and the tests that a change since a commit can touch.

A changed file touches its part, and the parts of all files that include it. A part that includes
headers of another one stands on that. Tests are named by an expression for ctest -L, from the
labels of cmake/TagwireParts.cmake. Where nothing tells what stands on a file, everything does.
"""
import argparse
import json
import posixpath
import re
import shlex
import subprocess
import sys
from collections import defaultdict, deque
from dataclasses import dataclass, field
from pathlib import Path

import affected_tables as tables

SOURCE = re.compile(r".*\.(h|hpp|c|cc)(\.in)?")
HEADER = re.compile(r".*\.(h|hpp)(\.in)?")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(["<])([^">\n]+)', re.M)
UNITY_SOURCE = re.compile(r'^#include "([^"]+)"', re.M)
BORROWED = re.compile(r"list\(TRANSFORM (\w+) PREPEND \$\{tw_tree\}/([\w/]+?)/?\)")
RACED = re.compile(r"\b(tsan|model|threads)\b")


@dataclass
class Verdict:
    base: str
    files: list = field(default_factory=list)
    everything: str = ""                         # why, or empty
    labels: dict = field(default_factory=dict)   # label -> the way from a changed file to it
    stages: dict = field(default_factory=dict)   # stage -> why
    left_out: dict = field(default_factory=dict)

    @property
    def parts(self):
        return sorted(label.removeprefix("uses-") for label in self.labels
                      if label.startswith("uses-"))

    @property
    def folders(self):
        return sorted(label.removeprefix("in-") for label in self.labels
                      if label.startswith("in-"))

    @property
    def expression(self):
        """For ctest -L; empty where nothing is left out. Checks look at all but pages."""
        if self.everything or not self.labels:
            return ""
        checks = {"check"} if set(self.labels) - {"uses-documents"} else set()
        return f"^({'|'.join(sorted(set(self.labels) | checks))})$"


class Unknown(Exception):
    """Why nothing can be left out."""


def git(root, *words):
    try:
        done = subprocess.run(["git", "-C", str(root), *words], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, check=False)
    except OSError as error:
        raise Unknown(f"git does not start: {error.strerror}") from error
    if done.returncode != 0:
        raise Unknown(f"git {' '.join(words[:2])} fails")
    return [name for name in done.stdout.decode(errors="surrogateescape").split("\0") if name]


def changed_files(root, base):
    """Those that differ from the commit in the working tree; both names of a renamed one."""
    try:
        git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{base}^{{commit}}")
    except Unknown as error:
        raise Unknown(f"there is no commit {base}") from error
    changed = git(root, "diff", "--name-only", "--no-renames", "-z", base, "--")
    return sorted({*changed, *git(root, "ls-files", "--others", "--exclude-standard", "-z")})


class Tree:
    """Who includes whom, among the files of the tree and the changed ones that are gone."""

    def __init__(self, root, changed):
        self.root = root
        self.files = {*git(root, "ls-files", "-z"), *changed}
        self.names = defaultdict(set)  # the last component -> files
        for path in self.files:
            if SOURCE.fullmatch(path):
                self.names[posixpath.basename(path).removesuffix(".in")].add(path)
        self.includes, self.includers = {}, defaultdict(set)
        for path in sorted(self.files):
            if SOURCE.fullmatch(path):
                self.includes[path] = set(self._included(path))
                for target in self.includes[path]:
                    self.includers[target].add(path)

    def text(self, path):
        try:
            return (self.root / path).read_text(errors="replace")
        except OSError:
            return ""

    def _included(self, path):
        for kind, name in INCLUDE.findall(self.text(path)):
            dirs = (posixpath.dirname(path), *tables.INCLUDE_DIRS)
            places = {posixpath.normpath(posixpath.join(place, name)) for place in dirs}
            same_name = self.names.get(posixpath.basename(name), ())
            found = {target for target in same_name if target.removesuffix(".in") in places}
            if not found and kind == '"':  # from an include directory that is not listed
                plain = re.sub(r"^(\.\./)+", "", name)
                found = {target for target in same_name
                         if f"/{target.removesuffix('.in')}".endswith(f"/{plain}")}
            yield from found


def reached_from(tree, changed):
    """Path -> the one that it includes, or None for the changed ones."""
    reached, todo = dict.fromkeys(changed), deque(changed)
    while todo:
        path = todo.popleft()
        for user in sorted(tree.includers.get(path, ())):
            if user not in reached and user != tables.COMPOSITION_ROOT:
                reached[user] = path
                todo.append(user)
    return reached


def way_to(reached, path):
    names = [path]
    while reached[names[-1]] is not None:
        names.append(reached[names[-1]])
    return " <- ".join(reversed(names))


def borrowers(tree):
    """Source -> the files that list it for a target of their own, such as the virtual HCA's."""
    found = defaultdict(set)
    for lists in sorted(tree.files):
        if not lists.startswith(tables.BORROWERS) or not lists.endswith("/CMakeLists.txt"):
            continue
        text = tree.text(lists)
        for variable, place in BORROWED.findall(text):
            for names in re.findall(rf"set\({variable}\s+([^)]*)\)", text):
                for name in names.split():
                    found[f"{place}/{name}"].add(lists)
    return found


def compiled_by(root, build):
    """Source -> folders of targets that compile it, from the build's compile_commands.json."""
    found = defaultdict(set)
    for entry in json.loads((build / "compile_commands.json").read_text()):
        place = entry.get("output", "").split("CMakeFiles/")[0]
        source = Path(entry["directory"], entry["file"])
        sources = [source]
        if source.parent.name == "Unity" and source.exists():
            sources = map(Path, UNITY_SOURCE.findall(source.read_text()))
        for name in sources:
            if name.is_relative_to(root):
                found[name.relative_to(root).as_posix()].add(place)
    return found


def note_parts(verdict, tree, reached, others):
    """Notes the label of each file that is reached, and those of the targets that compile it."""
    for path in reached:
        labels = tables.labels_of(path)
        if labels is None:
            raise Unknown(f"nothing tells what stands on {path}")
        # Of a header in a folder of tests, those that include it count.
        if HEADER.fullmatch(path) and path in tree.includers and labels[0].startswith("in-"):
            labels = ()
        for label in labels:
            verdict.labels.setdefault(label, way_to(reached, path))
        for place in sorted(others.get(path, ())):
            for label in (tables.labels_of(place) or ()) if not path.startswith(place) else ():
                verdict.labels.setdefault(label, f"{way_to(reached, path)}, compiled for {place}")


def note_users(verdict, tree):
    """Adds the parts that include headers of the affected ones, until there are no more."""
    users = defaultdict(dict)
    for path, targets in tree.includes.items():
        own = tables.PRODUCTS & {*(tables.labels_of(path) or ())}
        for target in sorted(targets) if path != tables.COMPOSITION_ROOT else ():
            labels = tables.labels_of(target) or ()
            for part in labels if not own & {*labels} else ():
                users[part].update(dict.fromkeys(own, f"{target} <- {path}"))
    users.pop("uses-library", None)  # tests of what uses the library have its label
    todo = deque(verdict.labels)
    while todo:
        part = todo.popleft()
        for label, way in sorted(users.get(part, {}).items()):
            if label not in verdict.labels:
                verdict.labels[label] = f"{part.removeprefix('uses-')} is affected, {way}"
                todo.append(label)


def has_raced_tests(tree, label):
    """Whether a folder declares tests for ThreadSanitizer, or only sources for other folders."""
    lists = [path for path in tree.files if path.endswith("/CMakeLists.txt")
             and label in (tables.labels_of(path) or ())]
    texts = [re.sub(r"#.*", "", tree.text(path)) for path in lists]
    return not lists or any(RACED.search(text) for text in texts)


def note_stages(verdict, tree):
    for stage, (wanted, why) in tables.STAGES.items():
        causes = [label for label in sorted(verdict.labels) if tables.needs(wanted, label)]
        if stage == "tsan":
            causes += [label for label in sorted(verdict.labels)
                       if label.startswith("in-") and has_raced_tests(tree, label)]
        if set(verdict.labels) == {"uses-documents"} and stage in ("build", "test"):
            why = "checks of pages"
        if causes:
            verdict.stages[stage] = f"{', '.join(causes)}: {why}"
        else:
            verdict.left_out[stage] = why


def judge(root, base, build=None, files=None):
    """The verdict on the files, or on those that differ from the commit."""
    verdict = Verdict(base)
    try:
        verdict.files = changed_files(root, base) if files is None else files
        for path in verdict.files:
            if tables.EVERYTHING.fullmatch(path):
                raise Unknown(f"{path} decides how everything is built, run or chosen")
        tree = Tree(root, verdict.files)
        others = borrowers(tree)
        if build is not None:
            for source, places in compiled_by(root, build).items():
                others[source] |= places
        note_parts(verdict, tree, reached_from(tree, verdict.files), others)
        note_users(verdict, tree)
        note_stages(verdict, tree)
    except Unknown as error:
        verdict.everything = str(error)
        verdict.stages = dict.fromkeys(tables.STAGES, verdict.everything)
        verdict.labels, verdict.left_out = {}, {}
    return verdict


def as_json(verdict):
    return json.dumps({
        "base": verdict.base, "files": verdict.files, "everything": verdict.everything or None,
        "parts": verdict.parts, "folders": verdict.folders, "labels": verdict.expression,
        "why": verdict.labels, "stages": verdict.stages, "left_out": verdict.left_out}, indent=2)


def as_shell(verdict):
    """Assignments for eval in bash."""
    return "\n".join((
        f"everything={int(bool(verdict.everything))}", f"reason={shlex.quote(verdict.everything)}",
        f"parts=({' '.join(verdict.parts)})", f"stages=({' '.join(verdict.stages)})",
        f"labels={shlex.quote(verdict.expression)}"))


def as_text(verdict):
    lines = [f"{len(verdict.files)} files differ from {verdict.base}"]
    if verdict.everything:
        return "\n".join([*lines, f"everything: {verdict.everything}"])
    lines += [f"why: {way}: {label}" for label, way in sorted(verdict.labels.items())]
    lines += [f"parts: {' '.join(verdict.parts) or 'none'}",
              f"folders of tests: {' '.join(verdict.folders) or 'none'}"]
    lines += [f"stage {stage:10}  {why}" for stage, why in verdict.stages.items()]
    lines += [f"left out: {stage:10} {why}" for stage, why in verdict.left_out.items()]
    return "\n".join([*lines, f"labels: {verdict.expression or 'none'}"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("base", help="the commit that the working tree is compared with")
    parser.add_argument("--build", type=Path,
                        help="a configured build directory: what else compiles a source")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_const", dest="show", const=as_json)
    how.add_argument("--shell", action="store_const", dest="show", const=as_shell,
                     help="everything, reason, parts, stages and labels as variables of bash")
    given = parser.parse_args()
    if given.build and not (given.build / "compile_commands.json").is_file():
        parser.error(f"{given.build} is not configured")
    root = Path(__file__).resolve().parents[2]
    print((given.show or as_text)(judge(root, given.base, given.build)))


if __name__ == "__main__":
    sys.exit(main())

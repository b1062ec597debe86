#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Reports how large objects are: the member functions and data members of each class of a product,
with those of all its bases, the largest first. A report for who looks for a class to cut; forty
functions or twenty data members ask for it. Always ends with status 0."""
import argparse
import re
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from tidy import is_source, tracked_files

SHOWN = 12

COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
LITERAL = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'')
LINE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.M)
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.M)
CLASS = re.compile(r"(?<!enum )\b(?:class|struct)\s+(?:\[\[[^\]]*\]\]\s*)?"
                   r"(?:alignas\s*\([^)]*\)\s*)?(\w+)\s*(?:final\s*)?(?::(?!:)([^;{()]*))?\{")
NO_MEMBER = re.compile(r"^\s*(using|friend|static_assert|typedef|enum|union)\b")
NO_FUNCTION = re.compile(NO_MEMBER.pattern + r"|=\s*(delete|default)")
POINTER = re.compile(r"\(\s*[\w:]*\*\s*\w+(\[\w*\])?\s*\)\s*\(")  # to a function
TYPE_ALONE = re.compile(r"^\s*(class|struct)\s+(\w+\s*)?(final\s*)?(:[^{]*)?(\{\})?\s*$")


def plain(text):
    """The text without comments, literals and directives; attributes hold no parenthesis."""
    text = COMMENT.sub(" ", LINE.sub("", text))
    return re.sub(r"\[\[[^\]]*\]\]|alignas\s*\([^)]*\)", " ", LITERAL.sub("0", text))


def end_of(text, begin):
    """The position behind the bracket that closes the one at `begin`."""
    depth = 0
    for at in range(begin, len(text)):
        depth += text[at] in "{("
        depth -= text[at] in "})"
        if depth == 0:
            return at + 1
    return len(text)


def members(body):
    """The declarations of a class body, each without the bodies in it."""
    declaration, at = "", 0
    while at < len(body):
        if body[at] == "{":
            at = end_of(body, at)
            declaration += "{}"
            # Behind an initializer or a nested type comes a semicolon.
            if re.match(r"\s*[;,)]", body[at:]) is None:
                yield declaration
                declaration = ""
            continue
        if body[at] == ";":
            yield declaration
            declaration = ""
        else:
            declaration += body[at]
        at += 1


def without_access(declaration):
    return re.sub(r"\b(public|private|protected)\s*:(?!:)", "", declaration)


def is_function(declaration):
    declaration = without_access(declaration)
    if NO_FUNCTION.search(declaration) or re.match(r"\s*(class|struct)\b", declaration):
        return False
    head = re.sub(r"\btemplate\s*<[^{};]*?>\s*(?=\w)", "", declaration).split("{}")[0]
    head = re.sub(r"\boperator\s*[^\s\w(]+", "named", head).split("=")[0]
    return re.search(r"[\w\]>&*]\s*\(", head) is not None and not POINTER.search(head)


def without_arguments(text):
    """The text without what stands in the angle brackets of templates."""
    depth, kept = 0, ""
    for letter in text:
        depth += letter == "<"
        kept += letter if depth == 0 else ""
        depth -= letter == ">" and depth > 0
    return kept


def field_count(declaration):
    """How many data members of an object it declares."""
    declaration = without_access(declaration).strip()
    if (not declaration.replace("{}", "").strip() or NO_FUNCTION.search(declaration)
            or is_function(declaration)
            or TYPE_ALONE.match(declaration)
            or re.match(r"(\w+\s+)*(static|template)\b", declaration)):
        return 0
    names = re.sub(r"=[^,]*|\{\}|\([^)]*\)", "", without_arguments(declaration))
    return 1 + names.count(",")


@dataclass
class Class:
    path: str
    name: str
    bases: list = field(default_factory=list)  # names, without namespaces and arguments
    functions: int = 0
    fields: int = 0

    def __str__(self):
        return f"{self.path}:{self.name}"


def base_names(text):
    """Those of a list such as `public uct::Base<T>, private Other`."""
    names = re.findall(r"[\w:]+\s*(?=,|$)", without_arguments(text or "").strip())
    return [name.strip().split("::")[-1] for name in names]


def classes(text, path=""):
    text = plain(text)
    for found in CLASS.finditer(text):
        begin = found.end() - 1
        declared = list(members(text[begin + 1:end_of(text, begin) - 1]))
        yield Class(path, found[1], base_names(found[2]), sum(map(is_function, declared)),
                    sum(map(field_count, declared)))


class Tree:
    """The classes of files {path: text}."""

    def __init__(self, files):
        self.named, self.included = defaultdict(list), {}
        for path, text in files.items():
            self.included[path] = INCLUDE.findall(text)
            for one in classes(text, path):
                self.named[one.name].append(one)

    def base(self, derived, name):
        """The class of that name in the same file, in one that it includes, or the only one."""
        found = [one for one in self.named.get(name, ()) if one is not derived]
        near = [one for one in found if one.path == derived.path] or [
            one for one in found
            if any(one.path.endswith(f"/{name}") for name in self.included[derived.path])]
        return (near or found)[0] if len(near) == 1 or len(found) == 1 else None

    def chain(self, one):
        """The class and all its bases, each once."""
        seen, todo = [], [one]
        while todo:
            one = todo.pop(0)
            if one is not None and one not in seen:
                seen.append(one)
                todo += [self.base(one, name) for name in one.bases]
        return seen

    def sizes(self):
        """(functions, data members, chain) of each class, the largest first."""
        rows = [(sum(one.functions for one in chain), sum(one.fields for one in chain), chain)
                for all_of_name in self.named.values() for chain in map(self.chain, all_of_name)]
        return sorted(rows, key=lambda row: (-row[0] - row[1], str(row[2][0])))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", nargs="?", default=Path(__file__).resolve().parents[2])
    parser.add_argument("--all", action="store_true", help="print every class")
    options = parser.parse_args()
    root = Path(options.root)
    rows = Tree({path: (root / path).read_text() for path in tracked_files(str(root))
                 if is_source(path) and path.endswith((".hpp", ".h", ".cc"))}).sizes()
    print("functions  data  class, then its bases")
    for functions, fields, chain in rows if options.all else rows[:SHOWN]:
        bases = "".join(f" : {one.name} {one.functions}+{one.fields}" for one in chain[1:])
        own = f"{chain[0].functions}+{chain[0].fields}"
        print(f"{functions:9}  {fields:4}  {chain[0]} {own}{bases}")
    print(f"class_sizes: {len(rows)} classes")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Counts the member functions of each class under src/, and who includes the header of the whole
messaging layer. A class has at most 40; those that have more may shrink, but not grow."""
import argparse
import re
import sys
from pathlib import Path

from tidy import tracked_files

FUNCTIONS_MAX = 40
WHOLE = "protocols/worker/worker.hpp"
# Larger ones, with what they have. A class that shrinks is entered anew, until it is here no more.
LARGER = {
    "src/protocols/worker/endpoint.hpp:Endpoint": 53,
    "src/protocols/transfer/send_queue.hpp:SendQueue": 49,
    "src/protocols/connect/connector.hpp:Connector": 47,
    "src/protocols/worker/peer_table.hpp:PeerTable": 46,
    "src/uct/tcp/tcp_iface.hpp:TcpIface": 45,
    "src/uct/sm/sm_iface.hpp:SmIface": 44,
    "src/protocols/worker/worker.hpp:Worker": 46,
    "src/protocols/worker/worker_core.hpp:WorkerCore": 42,
}
INCLUDERS_MAX = 7

COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
LITERAL = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'')
LINE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.M)
CLASS = re.compile(r"\b(?:class|struct)\s+(?:\[\[[^\]]*\]\]\s*)?(?:alignas\s*\([^)]*\)\s*)?"
                   r"(\w+)\s*(?:final\s*)?(?::[^;{()]*)?\{")
NO_FUNCTION = re.compile(
    r"^\s*(using|friend|static_assert|typedef|enum|union)\b|=\s*(delete|default)")


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


def is_function(declaration):
    declaration = re.sub(r"\b(public|private|protected)\s*:(?!:)", "", declaration)
    if NO_FUNCTION.search(declaration) or re.match(r"\s*(class|struct)\b", declaration):
        return False
    head = re.sub(r"\btemplate\s*<[^{};]*?>\s*(?=\w)", "", declaration).split("{}")[0]
    head = re.sub(r"\boperator\s*[^\s\w(]+", "named", head).split("=")[0]
    return re.search(r"[\w\]>&*]\s*\(", head) is not None


def classes(text):
    text = plain(text)
    for found in CLASS.finditer(text):
        begin = found.end() - 1
        body = text[begin + 1:end_of(text, begin) - 1]
        yield found[1], sum(map(is_function, members(body)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", nargs="?", default=Path(__file__).resolve().parents[2])
    parser.add_argument("--all", action="store_true", help="print every class, the largest first")
    options = parser.parse_args()
    root = Path(options.root)
    sizes, includers, failures = {}, [], 0
    for path in tracked_files(str(root)):
        if not path.startswith("src/") or not path.endswith((".hpp", ".h", ".cc")):
            continue
        text = (root / path).read_text()
        if path.startswith("src/protocols/") and f'"{WHOLE}"' in text:
            includers.append(path)
        for name, count in classes(text):
            sizes[f"{path}:{name}"] = count
    for name, count in sorted(sizes.items(), key=lambda item: -item[1]):
        limit = LARGER.get(name, FUNCTIONS_MAX)
        if options.all:
            print(f"{count:4} {name}")
        if count > limit:
            print(f"{name}: error: {count} member functions; the limit is {limit}")
            failures += 1
        elif name in LARGER and count < limit:
            print(f"{name}: error: {count} member functions, LARGER says {limit}: enter it anew")
            failures += 1
    for name in LARGER.keys() - sizes.keys():
        print(f"{name}: error: no such class, but it is in LARGER")
        failures += 1
    if len(includers) > INCLUDERS_MAX:
        print(f"error: {len(includers)} files include {WHOLE}; the limit is {INCLUDERS_MAX}")
        failures += 1
    print(f"class_sizes: {len(sizes)} classes, the largest has {max(sizes.values())} functions; "
          f"{len(includers)} files include {WHOLE}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

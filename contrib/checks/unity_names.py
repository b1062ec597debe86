#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Finds names that sources of one target share although they must not.

File-local names: a unity build may join the two sources. Types of a namespace that two files of the
target define, headers included: one program may have one definition only, and the linker does not
tell.

A name is local to its file if it stands in an unnamed namespace, is static at namespace scope, or
is a macro that the file does not undefine. Local functions may share a name if their parameters
differ, but one that is named as a function of the namespace hides that. Which files are joined
depends on their number and order, so such a pair breaks the build of whoever adds a file elsewhere.
The sources are those of compile_commands.json in a build directory with unity builds.
"""
import argparse
import json
import re
import sys
from collections import defaultdict
from pathlib import Path

from class_sizes import end_of, plain

# Files whose local names are not told apart yet. The list may shrink only.
SHARING = set()

# Where headers are found besides the folder of who includes them.
HEADER_FOLDERS = ("", "src", "test/gtest", "test/gtest/contract", "test/fuzz", "contrib/libfabric",
                  "contrib/libfabric/conformance")

UNITY_FILE = re.compile(r"/Unity/unity_\d+_\w+\.\w+$")
UNITY_SOURCE = re.compile(r'^#include "([^"]+)"', re.M)
DEFINE = re.compile(r"^[ \t]*#[ \t]*(define|undef)[ \t]+(\w+)", re.M)
NAMESPACE = re.compile(r"^(?:inline\s+)?namespace\s*([\w:]*)$")
TYPE = re.compile(r"^(?:typedef\s+)?(?:class|struct|union|enum(?:\s+class|\s+struct)?)\s+(\w+)")
DEFINITION = re.compile(r"^(?:class|struct|union)\s+(\w+)\s*(?:final\b\s*)?(?::(?!:)[^=(]*)?$")
INCLUDE = re.compile(r'^#\s*include\s+"([^"]+)"', re.M)
FUNCTION = re.compile(r"(?P<name>operator\s*[^\s\w(]+|operator\s*\(\s*\)|[\w:~]+)\s*\(")
VARIABLE = re.compile(r"(\w+)\s*(?:\[[^\]]*\]\s*)*$")
NO_NAME = re.compile(
    r"^(using\s+(?!\w+\s*=)|static_assert\b|extern\b|friend\b|asm\b|template\s+\w)")
ALIAS = re.compile(r"^(?:using|namespace)\s+(\w+)\s*=")
QUALIFIERS = {"const", "volatile", "unsigned", "signed", "struct", "class", "enum", "typename"}


def sources_by_target(build):
    """(directory of the target, language) -> the sources that its unity files join."""
    targets = defaultdict(set)
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path = Path(entry["directory"], entry["file"])
        if UNITY_FILE.search(path.as_posix()):
            sources = UNITY_SOURCE.findall(path.read_text())
            targets[path.parent.parent, path.suffix].update(Path(name) for name in sources)
    return targets


def without_template(head):
    """The head of a declaration behind `template <...>`."""
    while found := re.match(r"template\s*<", head):
        depth, at = 1, found.end()
        while depth and at < len(head):
            depth += {"<": 1, ">": -1}.get(head[at], 0)
            at += 1
        head = head[at:].lstrip()
        head = re.sub(r"^requires\s+[\w:<>, ]+?(?=\s+[\w:]+[\s&*]+\w+\s*\()", "", head).lstrip()
    return head


def parameters(text):
    """The types of a parameter list, without names and default values."""
    types, depth, start = [], 0, 0
    text += ","
    for at, letter in enumerate(text):
        depth += (letter in "<([{") - (letter in ">)]}")
        if letter != "," or depth > 0:
            continue
        one = text[start:at].split("=")[0].split()
        start = at + 1
        words = re.findall(r"[\w:]+|\S", " ".join(one))
        if len(words) > 1 and re.fullmatch(r"\w+", words[-1]) and words[-2] not in QUALIFIERS:
            words.pop()
        if words and words != ["void"]:
            types.append(" ".join(words))
    return tuple(types)


def names_of(head, body):
    """(name, kind) of each name that a declaration brings; `body` may be None.

    The kind is the parameters of a function, the text of an alias, None of anything else.
    """
    is_template = head.startswith("template")
    head = without_template(" ".join(head.split()))
    if NO_NAME.search(head):
        return
    if alias := ALIAS.match(head):
        yield alias[1], head
        return
    is_enum = head.startswith("enum")
    if (found := TYPE.match(head)) and (body is not None or "=" in head) and "(" not in head:
        yield found[1], None
    if is_enum and body is not None and not re.match(r"enum\s+(class|struct)\b", head):
        for item in re.sub(r"\([^()]*\)|\{[^{}]*\}", "", body).split(","):
            if word := re.match(r"\s*(\w+)", item):
                yield word[1], None
    if found is not None and "(" not in head:
        return
    left = head.split("=")[0] if "operator" not in head else head
    call = FUNCTION.search(left)
    if call is None:
        if variable := VARIABLE.search(left.rstrip()):
            if " " in left.strip():
                yield variable[1], None
        return
    name = call["name"]
    # A macro that is used has no type before it; a member's body goes with its class.
    if body is None or call.start() == 0 or "::" in name:
        return
    at = call.end() - 1
    types = parameters(head[at + 1:end_of(head, at) - 1])
    yield name, types + (("template",) if is_template else ())


def is_function(head):
    """What stands before a brace is a function, not a variable or a type."""
    return re.search(r"\)[^=]*$", head) is not None and re.match(r"[^(]*=(?!=)", head) is None


def end_of_statement(text, at):
    """The position behind the next semicolon outside of brackets."""
    while at < len(text) and text[at] != ";":
        at = end_of(text, at) if text[at] in "{(" else at + 1
    return at + 1


def names_in(text):
    """{(namespaces, name, kind)} of the names that are local to a file, of its functions that are
    not, and {(namespaces, name)} of the types that it defines and that are not local."""
    found, functions, types = set(), set(), set()

    def scan(text, spaces, is_local):
        at, start = 0, 0
        while at < len(text):
            if text[at] == ";":
                note(text[start:at], None, spaces, is_local)
                start = at + 1
            elif text[at] in "{(":
                end = end_of(text, at)
                head = text[start:at].strip()
                if text[at] == "(":
                    at = end
                    continue
                if space := NAMESPACE.match(head):
                    inner = spaces + tuple(space[1].split("::")) if space[1] else spaces
                    scan(text[at + 1:end - 1], inner, is_local or not space[1])
                elif re.match(r'extern\s+\S+$', head):
                    scan(text[at + 1:end - 1], spaces, is_local)
                else:
                    note(head, text[at + 1:end - 1], spaces, is_local)
                    if not is_function(head):
                        end = end_of_statement(text, end)
                start = end
                at = end
                continue
            at += 1

    def note(head, body, spaces, is_local):
        head = head.strip()
        is_static = re.match(r"(template\s*<.*>\s*)?static\b", head, re.S) is not None
        if head:
            head = re.sub(r"\b(static|constexpr|inline|constinit|thread_local)\b", "", head)
            names = {(spaces, *name) for name in names_of(head.strip(), body)}
            whole = without_template(" ".join(head.split()))
            if not is_local and body is not None and (defined := DEFINITION.match(whole)):
                types.add((spaces, defined[1]))
            if is_local or is_static:
                found.update(names)
            else:
                functions.update(name for name in names if isinstance(name[2], tuple))

    macros = {}
    for action, name in DEFINE.findall(text):
        macros[name] = action == "define"
    scan(plain(text), (), False)
    found |= {((), name, None) for name, is_defined in macros.items() if is_defined}
    return found, functions, types


def may_share(kind, other):
    """Overloads differ; the same alias may stand twice."""
    if isinstance(kind, tuple) and isinstance(other, tuple):
        return kind != other
    return isinstance(kind, str) and kind == other


def collisions(names_by_file):
    """(file, file, name) of each local name that another file has, too. Functions may differ in
    their parameters, but a local one hides all others of its namespace."""
    owners, functions = defaultdict(list), defaultdict(set)
    for file, (local, others, _) in sorted(names_by_file.items()):
        for spaces, name, kind in local:
            owners[spaces, name].append((file, kind))
        for spaces, name, _ in others:
            functions[spaces, name].add(file)
    for (spaces, name), users in sorted(owners.items(), key=lambda item: item[0]):
        for index, (file, kind) in enumerate(users):
            for other, other_kind in users[:index]:
                if file != other and not may_share(kind, other_kind):
                    yield other, file, name
            for other in functions[spaces, name] - {file} if isinstance(kind, tuple) else ():
                yield other, file, name


def headers_of(source, folders, known):
    """The headers of the tree that a source includes, and those that they include."""
    found, waiting = set(), [source]
    while waiting:
        file = waiting.pop()
        if file not in known:
            known[file] = INCLUDE.findall(file.read_text())
        for name in known[file]:
            header = next((path for folder in (file.parent, *folders)
                           if (path := (folder / name).resolve()).is_file()), None)
            if header is not None and header not in found:
                found.add(header)
                waiting.append(header)
    return found


def twice_defined(names_by_file):
    """(file, file, name) of each type that two files define."""
    first = {}
    for file, (_, _, types) in sorted(names_by_file.items()):
        for spaces, name in sorted(types):
            other = first.setdefault((spaces, name), file)
            if other != file:
                yield other, file, "::".join((*spaces, name))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=Path, help="a build directory that CMake has configured")
    build = parser.parse_args().build
    root = Path(__file__).resolve().parents[2]
    names, failures, used, known, twice = {}, set(), set(), {}, set()
    folders = [root / name for name in HEADER_FOLDERS]
    targets = sources_by_target(build)

    def look_at(file):
        path = str(file.relative_to(root))
        if path not in names:
            names[path] = names_in(file.read_text())
        return path

    for _, files in sorted(targets.items()):
        here, with_headers = {}, {}
        for file in files:
            if root not in file.parents or build.resolve() in file.parents or not file.is_file():
                continue
            path = look_at(file)
            here[path] = names[path]
            for header in headers_of(file, folders, known):
                path = look_at(header)
                with_headers[path] = names[path]
        twice.update(twice_defined(here | with_headers))
        for first, second, name in collisions(here):
            used |= SHARING & {first, second}
            if not SHARING & {first, second}:
                failures.add((second, first, name))
    for second, first, name in sorted(failures):
        print(f"{second}: error: {name} is local, and {first} has one, too: a unity build may "
              f"join them")
    for second, first, name in sorted((second, first, name) for first, second, name in twice):
        print(f"{second}: error: {name} is defined in {first}, too, and one program has both")
    for path in sorted(SHARING - used):
        print(f"{path}: error: it shares no name any more: take it out of SHARING")
    print(f"unity_names: {len(names)} sources of {len(targets)} targets, {len(failures)} names "
          f"that two files of a target share, {len(twice)} types with two definitions")
    return 1 if failures or twice or SHARING - used else 0


if __name__ == "__main__":
    sys.exit(main())

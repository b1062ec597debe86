#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""check_guide.py ROOT: what the pages show and link to is there.

A block of code behind a line `<!-- file: PATH -->` must be the file of that path, to the letter. A
link leads to a file of the tree, and its part behind the # to a heading there. Each page of docs/
and of a product's docs/ has its place in the tree of the HTML pages (docs/html/layout.xml) and is
linked from docs/README.md, decisions apart, which have a list of their own. A value beside the name
of a constant `TW_*`, and each sentence that tells one of the limits below, has the value of the
headers; constants and calls that pages name are there. Each call of the messaging layer has an
example for its manual page.
"""
import re
import sys
from pathlib import Path

BLOCK = re.compile(r"<!-- file: (\S+) -->\n```\w*\n(.*?)```\n", re.DOTALL)


# Sentences with a number, and the constant that has it.
LIMITS = [(re.compile(pattern, re.IGNORECASE), name) for pattern, name in (
    (r"\baddress\W[^.|]*?\bat most (\d+)\s+(bytes)", "TW_ADDRESS_BYTES_MAX"),
    (r"\bkey\W[^.|]*?\bat most (\d+)\s+(bytes)", "TW_KEY_BYTES_MAX"),
    (r"\bprivate data\W[^.|]*?(\d+)\s+(bytes)", "TW_PRIVATE_BYTES_MAX"),
    (r"\bheader has at most (\d+)\s+(bytes)", "TW_AM_HEADER_MAX"))]
# A constant and its value beside each other: `NAME` (16 KiB), `NAME` = 3, | `NAME` | 8 |, and
# 16 KiB (`NAME`).
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "us": 10**3, "ms": 10**6, "s": 10**9}
AMOUNT = (r"(0[xX][0-9a-fA-F]+|\d+(?:[ ,]\d{3})*(?: ?<< ?\d+)?)"
          r"(?:\s(KiB|MiB|GiB|bytes|ns|us|ms|s)\b)?")
NAMED = re.compile(rf"`(TW_\w+)`(?: \(| ?= ?| is |, | ?\| ?)(?:at most )?{AMOUNT}(?![\w.]| bits)")
BEHIND = re.compile(rf"(?<![\w.]){AMOUNT} \(`(TW_\w+)`\)")
MACRO = re.compile(r"^#define ((?:TW|TAGWIRE)_\w+) +(\S.*?) *(?:///?<.*)?$", re.MULTILINE)
VALUE = re.compile(r"^ +(TW_\w+)(?: = ([^,/\n]+?))?,? *(?:///?<.*)?$", re.MULTILINE)
NUMBER = re.compile(r"\(*(?:\(\w+\))?(0[xX][0-9a-fA-F]+|-?\d+)[uUlL]*(?: << (\d+))?\)*")
NAME = re.compile(r"`(TW_[A-Z0-9_]*[A-Z0-9])`")
DECLARED = re.compile(r"^TAGWIRE_API [^;(]*?\b(tw_\w+)\(", re.MULTILINE)
EXAMPLES = "examples/manual_pages.c"
CALL = re.compile(r"\b(tw_\w+)\(\)")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def anchor_of(heading):
    """As the pages' hosts make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def number_of(text):
    """The value of a constant expression as the headers have them, or None."""
    found = NUMBER.fullmatch(text)
    return int(found[1], 0) << int(found[2] or 0) if found else None


def constants(root):
    """Macros and enumerators of the public headers, with their values."""
    known = {}
    for header in public_headers(root):
        text = header.read_text()
        known |= {name: number_of(value) for name, value in MACRO.findall(text)}
        for body in re.findall(r"\benum\b[^{;]*\{(.*?)\}", text, re.DOTALL):
            value = -1
            for name, expression in VALUE.findall(body):
                value = number_of(expression) if expression else value + 1
                known[name] = value
                value = -1 if value is None else value
    return known


def public_headers(root):
    return [*(root / "src").glob("*.h"), *(root / "src/protocols/api").glob("*.h"),
            *(root / "src/uct/api").glob("*.h")]


def pages_of_today(root):
    """Decisions tell what was true when they were made."""
    pages = [*root.glob("*.md"), *(page for folder in ("docs", "examples", "contrib")
                                   for page in (root / folder).rglob("*.*"))]
    return sorted(page for page in pages if page.suffix in (".md", ".7", ".1")
                  and page.parent.name != "adr")


def amount(number, unit):
    number = re.sub(r"(?<=\d)[ ,](?=\d{3})", "", number)
    base, _, shift = number.partition("<<")
    return (int(base, 0) << int(shift or 0)) * UNITS.get(unit, 1)


def said_values(text, has_limits=True):
    """(constant, value in its own unit, the words) of each value that a page names."""
    for limit, name in LIMITS if has_limits else ():
        for found in limit.finditer(text):
            yield name, amount(*found.groups()), " ".join(found.groups())
    for found in NAMED.finditer(text):
        yield found[1], amount(found[2], found[3]), " ".join(filter(None, found.groups()[1:]))
    for found in BEHIND.finditer(text):
        yield found[3], amount(found[1], found[2]), " ".join(filter(None, found.groups()[:2]))


def wrong_values(root):
    """Constants whose value in a page is not that of the headers."""
    known, said = constants(root), 0
    for page in pages_of_today(root):
        # Pages of formats tell of addresses and keys of transports.
        has_limits = "internals" not in page.parts
        for name, value, words in said_values(page.read_text(), has_limits):
            said += 1
            if name not in known:
                continue  # unknown_names() has it
            if known[name] is not None and value != known[name]:
                yield f"{page.relative_to(root)}: says {words}; {name} is {known[name]}"
    if said == 0:
        yield "no page says a limit"


def unknown_names(root):
    """Constants and calls that pages name and no source has; one page lists names that are gone."""
    names, calls = set(), set()
    for source in (source for folder in ("src", "test", "cmake", "contrib", "vhca", "tools")
                   for source in (root / folder).rglob("*")
                   if source.suffix in (".h", ".hpp", ".cmake")):
        text = source.read_text()
        names |= set(re.findall(r"\bTW_\w+", text))
        calls |= set(re.findall(r"\btw_\w+", text))
    for page in pages_of_today(root):
        if page.name == "second-edition.md":
            continue
        text = page.read_text()
        for name in sorted({*NAME.findall(text)} - names | {*CALL.findall(text)} - calls):
            yield f"{page.relative_to(root)}: names {name}, which no source has"


def broken_links(root):
    folders = ("docs", "examples", "contrib", "vhca", "tools")
    pages = [*root.glob("*.md"),
             *(page for folder in folders for page in (root / folder).rglob("*.md"))]
    for page in sorted(pages):
        for link in LINK.findall(page.read_text()):
            path, _, anchor = link.partition("#")
            if "://" in link:
                continue
            target = (page.parent / path).resolve() if path else page
            if not target.exists():
                yield f"{page.relative_to(root)}: no {link}"
            elif anchor and target.suffix == ".md" and anchor not in map(
                    anchor_of, HEADING.findall(target.read_text())):
                yield f"{page.relative_to(root)}: no heading {link}"


def homeless_pages(root):
    tree = (root / "docs/html/layout.xml").read_text()
    front = root / "docs/README.md"
    linked = {(front.parent / link.partition("#")[0]).resolve()
              for link in LINK.findall(front.read_text())}
    for page in sorted([*(root / "docs").rglob("*.md"), *(root / "vhca/docs").rglob("*.md")]):
        name = page.relative_to(root)
        page_id = "md_" + re.sub(r"[/-]", "_", str(name.with_suffix("")))
        if f'"@ref {page_id}"' not in tree:
            yield f"{name}: not in docs/html/layout.xml"
        if page.resolve() not in linked and page != front and page.parent.name != "adr":
            yield f"{name}: not linked from docs/README.md"


def calls_without_example(root):
    """The manual page of each call shows an example (docs/man/calls.py)."""
    examples = "".join(program.read_text()
                       for program in sorted(root.glob(EXAMPLES.replace(".c", "*.[ch]"))))
    for header in [*(root / "src").glob("*.h"), *(root / "src/protocols/api").glob("*.h")]:
        for name in DECLARED.findall(header.read_text()):
            if not re.search(rf"\b{name}\(", examples):
                yield f"{EXAMPLES}: no example of {name}()"


def problems(root):
    yield from calls_without_example(root)
    yield from wrong_values(root)
    yield from unknown_names(root)
    yield from broken_links(root)
    yield from homeless_pages(root)
    shown = 0
    for page in [root / "README.md", *sorted((root / "docs").rglob("*.md"))]:
        for path, code in BLOCK.findall(page.read_text()):
            shown += 1
            source = root / path
            if not source.is_file():
                yield f"{page.relative_to(root)}: no file {path}"
            elif source.read_text() != code:
                yield f"{page.relative_to(root)}: shows another {path} than the tree has"
    if shown == 0:
        yield "no page shows a program"


def main():
    found = list(problems(Path(sys.argv[1])))
    print("\n".join(found) or "the guide shows what is there")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())

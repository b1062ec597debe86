#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""check_guide.py ROOT: what the pages show and link to is there.

A block of code behind a line `<!-- file: PATH -->` must be the file of that path, to the letter. A
link leads to a file of the tree, and its part behind the # to a heading there. Each page of docs/
has its place in the tree of the HTML pages (docs/html/layout.xml) and is linked from
docs/README.md, decisions apart, which have a list of their own. Numbers of bytes are those of the
headers.
"""
import re
import sys
from pathlib import Path

BLOCK = re.compile(r"<!-- file: (\S+) -->\n```\w*\n(.*?)```\n", re.DOTALL)


# Sentences with a number, and the macro that has it.
LIMITS = [(re.compile(pattern, re.IGNORECASE), macro) for pattern, macro in (
    (r"\baddress\W[^.|]*?\bat most (\d+)\s+bytes", "TW_ADDRESS_BYTES_MAX"),
    (r"\bkey\W[^.|]*?\bat most (\d+)\s+bytes", "TW_KEY_BYTES_MAX"),
    (r"\bprivate data\W[^.|]*?(\d+)\s+bytes", "TW_PRIVATE_BYTES_MAX"),
    (r"\bheader has at most (\d+)\s+bytes", "TW_AM_HEADER_MAX"))]
NAMED = re.compile(r"`(TW_\w+_MAX)` \((\d+)\)")
MACRO = re.compile(r"^#define (TW_\w+_MAX) +(\d+)\b", re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def anchor_of(heading):
    """As the pages' hosts make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def wrong_limits(root):
    macros = {name: number for header in (root / "src/protocols/api").glob("*.h")
              for name, number in MACRO.findall(header.read_text())}
    pages = [root / "README.md", *(page for folder in ("guide", "start", "reference", "man")
                                   for page in sorted((root / "docs" / folder).iterdir())
                                   if page.suffix in (".md", ".7", ".1"))]
    said = 0
    for page in pages:
        text = page.read_text()
        numbers = [(macro, found) for limit, macro in LIMITS for found in limit.findall(text)]
        numbers += [named for named in NAMED.findall(text) if named[0] in macros]
        said += len(numbers)
        for macro, number in numbers:
            if number != macros[macro]:
                yield f"{page.relative_to(root)}: says {number}; {macro} is {macros[macro]}"
    if said == 0:
        yield "no page says a limit"


def broken_links(root):
    pages = [*root.glob("*.md"), *(page for folder in ("docs", "examples", "contrib")
                                   for page in (root / folder).rglob("*.md"))]
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
    for page in sorted((root / "docs").rglob("*.md")):
        name = page.relative_to(root)
        page_id = "md_" + re.sub(r"[/-]", "_", str(name.with_suffix("")))
        if f'"@ref {page_id}"' not in tree:
            yield f"{name}: not in docs/html/layout.xml"
        if page.resolve() not in linked and page != front and page.parent.name != "adr":
            yield f"{name}: not linked from docs/README.md"


def problems(root):
    yield from wrong_limits(root)
    yield from broken_links(root)
    yield from homeless_pages(root)
    shown = 0
    for page in sorted((root / "docs").rglob("*.md")):
        for path, code in BLOCK.findall(page.read_text()):
            shown += 1
            source = root / path
            if not source.is_file():
                yield f"{page.relative_to(root)}: no file {path}"
            elif source.read_text() != code:
                yield f"{page.relative_to(root)}: shows another {path} than the tree has"
    if shown == 0:
        yield "no page shows a program"


found = list(problems(Path(sys.argv[1])))
print("\n".join(found) or "the guide shows what is there")
sys.exit(bool(found))

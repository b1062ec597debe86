#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""page.py FILE.md: prepares a page for Doxygen, which reads the result from standard output.

Doxygen takes the title of a page from its first line, so the licence line goes. It does not know
the anchors that hosts of Markdown make of headings, so each heading gets an id, and links to
headings name it. Pages of many headings begin with a table of contents. Files that are not pages
(sources, folders, those of test/) are named without a link. Pictures lie beside the pages, under
their names alone.
"""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FRONT_PAGE = ROOT / "README.md"  # its headings do not stand in the tree of pages
CONTENTS_FROM = 5  # headings
COMMENT = re.compile(r"^<!-- .* -->\n", re.MULTILINE)
FENCED = re.compile(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)
TITLE = re.compile(r"^# .*$", re.MULTILINE)
HEADING = re.compile(r"^##+ (.*)$", re.MULTILINE)
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)")
PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")


def heading_id(page, anchor):
    return re.sub(r"\W", "_", f"{page.relative_to(ROOT)}#{anchor}")


def anchor_of(heading):
    """As the hosts of Markdown make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def heading_with_id(page, match, seen):
    anchor = anchor_of(match[1])
    times = seen.get(anchor, 0)
    seen[anchor] = times + 1
    text = match[0].replace("`", "")  # which the table of contents would show as tags
    return f"{text} {{#{heading_id(page, f'{anchor}-{times}' if times else anchor)}}}"


def picture_for_doxygen(match):
    """Pictures stand beside the pages there; the alternative text is one line without quotes."""
    text = re.sub(r"\s+", " ", match[1]).replace('"', "'")
    return f'<img src="{Path(match[2]).name}" alt="{text}" style="max-width:100%"/>'


def link_for_doxygen(page, match):
    text, target = " ".join(match[1].split()), match[2]  # Doxygen ends a reference with its line
    path, _, anchor = target.partition("#")
    if "://" in target:
        return match.group()
    if path and (not path.endswith(".md") or "/test/" in f"/{path}"):
        return text
    if not anchor:
        return f"[{text}]({target})"
    linked = (page.parent / path).resolve() if path else page
    if linked == FRONT_PAGE:
        return text
    return f"[{text}](@ref {heading_id(linked, anchor)})"


def prepared(page):
    """Blocks of code stay as they are; a link may go over two lines elsewhere."""
    text = COMMENT.sub("", page.read_text())
    seen = {}
    for number, part in enumerate(FENCED.split(text)):
        if number == 0:  # a title has no markup
            part = TITLE.sub(lambda match: match[0].replace("`", ""), part, count=1)
        if number % 2 == 0:
            part = PICTURE.sub(picture_for_doxygen, part)
            part = LINK.sub(lambda match: link_for_doxygen(page, match), part)
            if page != FRONT_PAGE:
                part = HEADING.sub(lambda match: heading_with_id(page, match, seen), part)
        if number == 0 and page != FRONT_PAGE and len(HEADING.findall(text)) >= CONTENTS_FROM:
            part = part.replace("\n", "\n\n\\tableofcontents{html:2}\n", 1)
        yield part


print("".join(prepared(Path(sys.argv[1]).resolve())), end="")

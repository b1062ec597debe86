#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""check_guide.py ROOT: programs that the guide shows are files of the tree, to the letter.

A block of code behind a line `<!-- file: PATH -->` must be the file of that path.
"""
import re
import sys
from pathlib import Path

BLOCK = re.compile(r"<!-- file: (\S+) -->\n```\w*\n(.*?)```\n", re.DOTALL)


def problems(root):
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

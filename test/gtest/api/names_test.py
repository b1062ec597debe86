#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""names_test.py CC SRC UCX_INCLUDE PAGE: every name that UCX's <uct/api/uct.h> brings is in
ours, too, or on the compatibility page. Structure tags are no names here: ours differ."""
import re
import subprocess
import sys

PRIVATE = re.compile(r"^_?_?UCS_PP_|^UCS_TOKENPASTE|_H_?$|^_UCS")


def preprocess(compiler, include, *options):
    command = [compiler, "-std=gnu11", "-x", "c", f"-I{include}", "-E", *options, "-"]
    return subprocess.run(command, input="#include <uct/api/uct.h>\n", text=True,
                          capture_output=True, check=True).stdout


def declared(compiler, include):
    """Identifiers in lines that come from ucs/ and uct/ headers, without tags."""
    names, ours = set(), False
    for line in preprocess(compiler, include).splitlines():
        if marker := re.match(r'# \d+ "([^"]+)"', line):
            ours = "/ucs/" in marker[1] or "/uct/" in marker[1]
        elif ours:
            line = re.sub(r"\b(struct|enum|union)\s+\w+", "", line)
            names.update(re.findall(r"\b(?:uc[ts]|UC[TS]|__ucs)_\w+", line))
    return names


def macros(compiler, include):
    text = preprocess(compiler, include, "-dM")
    return set(re.findall(r"^#define ((?:uc[ts]|UC[TS])_\w+)", text, re.MULTILINE))


def main():
    compiler, source, ucx, page = sys.argv[1:]
    theirs = declared(compiler, ucx) | macros(compiler, ucx)
    ours = declared(compiler, source) | macros(compiler, source)
    with open(page, encoding="utf-8") as text:
        listed = set(re.findall(r"\w+", text.read()))
    missing = sorted(n for n in theirs - ours - listed if not PRIVATE.search(n))
    print(f"{len(theirs)} names of UCX, {len(theirs & ours)} here, {len(missing)} unaccounted for")
    for name in missing:
        print(f"FAILED: {name} is neither in our headers nor in {page}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())

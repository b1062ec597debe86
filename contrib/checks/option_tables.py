#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes the tables of options into a page, from what `tagwire info config` says of them.

Usage: option_tables.py [--check] TAGWIRE PAGE

A table stands between `<!-- these options: A, B -->`, which names them without TAGWIRE_, or
`<!-- options: NAME -->` and `<!-- end of options -->`. NAME is one of the tables that the program
lists: what no list of the page names follows there. --check changes nothing: status 1 tells that
the page is not what would be written, that it lacks an option, or has one twice.
"""
import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

BLOCK = re.compile(r"(<!-- (?P<kind>these options|options): (?P<names>[^>]+) -->\n).*?"
                   r"(<!-- end of options -->\n)", re.S)
HEAD = "| variable | accepted | default | |\n|---|---|---|---|\n"


def options_of(program):
    """By their names without TAGWIRE_, in the program's order."""
    done = subprocess.run([program, "info", "config", "--json", "-"], check=True,
                          capture_output=True, text=True)
    return {option["name"].removeprefix("TAGWIRE_"): option
            for option in json.loads(done.stdout)["config"]}


def cell(text):
    return text.replace("|", r"\|").replace("*", r"\*").replace("_", r"\_")


def row(option):
    default = f"`{option['default']}`" if option["default"] else ""
    return (f"| `{option['name']}` | {cell(option['accepted'])} | {default} | "
            f"{cell(option['doc'])} |\n").replace("|  |", "| |")


def write(page, options):
    """The page with its tables, and the names that it lacks, has twice or invents."""
    listed = [name for block in BLOCK.finditer(page) if block["kind"] == "these options"
              for name in re.findall(r"\w+", block["names"])]
    seen = []

    def table(match):
        if match["kind"] == "options":
            names = [name for name, option in options.items()
                     if option["table"] == match["names"] and name not in listed]
        else:
            names = re.findall(r"\w+", match["names"])
        seen.extend(names)
        rows = "".join(row(options[name]) for name in names if name in options)
        return match[1] + "\n" + HEAD + rows + "\n" + match[4]

    page = BLOCK.sub(table, page)
    return page, sorted({name for name in seen if seen.count(name) > 1} | set(seen) ^ set(options))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare, do not write")
    parser.add_argument("program", metavar="TAGWIRE", help="the tagwire command")
    parser.add_argument("page", type=Path, metavar="PAGE")
    args = parser.parse_args()
    before = args.page.read_text()
    after, strangers = write(before, options_of(args.program))
    if strangers:
        print(f"{args.page}: options that are not once in the page and in the program: {strangers}")
        return 1
    if not args.check:
        args.page.write_text(after)
    elif before != after:
        print(f"{args.page} is not what the program says of its options: "
              f"contrib/checks/option_tables.py build/release/bin/tagwire {args.page}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

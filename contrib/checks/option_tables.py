#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes the tables of options into a page, from what `tagwire info config` says of them.

Usage: option_tables.py [--check] TAGWIRE PAGE

A table stands between `<!-- options: NAME -->` and `<!-- end of options -->`, NAME being one of
the tables that the program lists. --check changes nothing: status 1 tells that the page is not what
would be written, or that it lacks a table.
"""
import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

BLOCK = re.compile(r"(<!-- options: (?P<name>[^>]+) -->\n).*?(<!-- end of options -->\n)", re.S)
HEAD = "| variable | accepted | default | |\n|---|---|---|---|\n"


def options_of(program):
    done = subprocess.run([program, "info", "config", "--json", "-"], check=True,
                          capture_output=True, text=True)
    tables = {}
    for option in json.loads(done.stdout)["config"]:
        tables.setdefault(option["table"], []).append(option)
    return tables


def cell(text):
    return text.replace("|", r"\|").replace("*", r"\*").replace("_", r"\_")


def row(option):
    default = f"`{option['default']}`" if option["default"] else ""
    return (f"| `{option['name']}` | {cell(option['accepted'])} | {default} | "
            f"{cell(option['doc'])} |\n").replace("|  |", "| |")


def write(page, tables):
    """The page with its tables, and the names that it has no use for or does not know."""
    seen = []

    def table(match):
        seen.append(match["name"])
        rows = "".join(row(option) for option in tables.get(match["name"], []))
        return match[1] + "\n" + HEAD + rows + "\n" + match[3]

    return BLOCK.sub(table, page), sorted(set(seen) ^ set(tables))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare, do not write")
    parser.add_argument("program", metavar="TAGWIRE", help="the tagwire command")
    parser.add_argument("page", type=Path, metavar="PAGE")
    args = parser.parse_args()
    before = args.page.read_text()
    after, strangers = write(before, options_of(args.program))
    if strangers:
        print(f"{args.page}: tables that are in the page or the program only: {strangers}")
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

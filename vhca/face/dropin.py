#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes the source of a library that takes the place of an installed one.

It exports the same names with the same versions. A name for which our library has a function
`tagwire_vhca_<name>` jumps there, in the default version of the name; every other one jumps to what
fails with EOPNOTSUPP, as a pointer or as a number, which is read from the headers. Two files are
written: assembler inside C, and the version script.
"""
import argparse
import re
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

PREFIX = "tagwire_vhca_"
# Constructors of real providers that were linked beside us call these and look at nothing.
HARMLESS = re.compile(r"^(verbs_register_driver_\d+|ibv_register_driver)$")
JUMPS = {"x86_64": "jmp {}@PLT", "aarch64": "b {}"}
RETURNS = {"x86_64": "ret", "aarch64": "ret"}

Symbol = namedtuple("Symbol", "name version is_default is_data size")


def run_nm(nm, *arguments):
    return subprocess.run([nm, *arguments], check=True, capture_output=True, text=True).stdout


def exported(nm, library):
    """The versioned functions and objects of a library, without the version nodes themselves."""
    symbols = []
    for line in run_nm(nm, "-D", "-S", "--with-symbol-versions", "--defined-only",
                       library).splitlines():
        words = line.split()
        if len(words) < 3 or "@" not in words[-1] or words[-2] == "A":
            continue
        name, at, version = re.match(r"([^@]+)(@@?)(.+)$", words[-1]).groups()
        size = int(words[1], 16) if len(words) == 4 else 0
        symbols.append(Symbol(name, version, at == "@@", words[-2] in "BDR", size))
    return sorted(symbols)


def implemented(nm, library):
    names = (line.split()[-1].split("@")[0] for line in
             run_nm(nm, "-D", "--defined-only", library).splitlines())
    return {name.removeprefix(PREFIX) for name in names if name.startswith(PREFIX)}


def returning_pointers(headers):
    """Functions that the headers declare as `something *name(`."""
    names = set()
    for header in headers:
        text = re.sub(r"/\*.*?\*/", " ", Path(header).read_text(encoding="utf-8"), flags=re.S)
        names.update(re.findall(r"\*\s*(\w+)\s*\(", text))
    return names


def body(symbol, ours, pointers, machine):
    if HARMLESS.match(symbol.name):
        return RETURNS[machine]
    if symbol.name in ours and symbol.is_default:
        return JUMPS[machine].format(PREFIX + symbol.name)
    kind = "pointer" if symbol.name in pointers else "number"
    return JUMPS[machine].format(f"{PREFIX}unsupported_{kind}")


def assembler(symbols, ours, pointers, machine):
    for index, symbol in enumerate(symbols):
        label = f"tagwire_dropin_{index}"
        at = "@@" if symbol.is_default else "@"
        versioned = f".symver {label}, {symbol.name}{at}{symbol.version}"
        if symbol.is_data:
            yield f'.bss\\n.balign 16\\n.globl {label}\\n.type {label}, %object'
            yield f'.size {label}, {symbol.size}\\n{label}: .zero {symbol.size}\\n{versioned}'
        else:
            yield f'.text\\n.balign 16\\n.globl {label}\\n.type {label}, %function'
            yield f'{label}: {body(symbol, ours, pointers, machine)}'
            yield f'.size {label}, . - {label}\\n{versioned}'


def version_script(symbols):
    nodes = sorted({symbol.version for symbol in symbols})
    # "local: *" would take the versioned names of its own node along.
    hidden = "tagwire_dropin_*; _init; _fini; _end; _edata; __bss_start;"
    text = [f"{nodes[0]} {{ local: {hidden} }};"] + [f"{node} {{ }};" for node in nodes[1:]]
    return "\n".join(text) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replace", required=True, help="the installed library")
    parser.add_argument("--ours", required=True, help="libtagwire-vhca.so")
    parser.add_argument("--header", action="append", default=[])
    parser.add_argument("--machine", required=True, choices=sorted(JUMPS))
    parser.add_argument("--nm", default="nm")
    parser.add_argument("--source", required=True)
    parser.add_argument("--map", required=True)
    arguments = parser.parse_args()
    symbols = exported(arguments.nm, arguments.replace)
    if not symbols:
        sys.exit(f"{arguments.replace} exports nothing with a version")
    lines = ["// Made by dropin.py.", "__asm__("]
    lines += [f'    "{line}\\n"' for line in assembler(
        symbols, implemented(arguments.nm, arguments.ours),
        returning_pointers(arguments.header), arguments.machine)]
    Path(arguments.source).write_text("\n".join(lines) + ");\n", encoding="utf-8")
    Path(arguments.map).write_text(version_script(symbols), encoding="utf-8")


if __name__ == "__main__":
    main()

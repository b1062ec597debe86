#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The drop-in libraries export exactly what the installed ones do, with the same versions, and our
own library nothing but tagwire_vhca_*."""
import argparse
import subprocess
import sys


def exports(library):
    listing = subprocess.run(["nm", "-D", "--with-symbol-versions", "--defined-only", library],
                             check=True, capture_output=True, text=True).stdout
    return {line.split()[-1] for line in listing.splitlines()}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ours", required=True)
    parser.add_argument("--pair", nargs=2, action="append", metavar=("INSTALLED", "DROPIN"))
    arguments = parser.parse_args()
    failures = []
    for installed, dropin in arguments.pair:
        wanted, got = exports(installed), exports(dropin)
        if len(wanted) < 20:
            failures.append(f"{installed} exports only {len(wanted)} names: is it the right file?")
        failures += [f"{dropin} lacks {name}" for name in sorted(wanted - got)]
        failures += [f"{dropin} has {name} in excess" for name in sorted(got - wanted)]
    failures += [f"{arguments.ours} exports {name}" for name in sorted(exports(arguments.ours))
                 if not name.startswith("tagwire_vhca_")]
    print("\n".join(failures))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

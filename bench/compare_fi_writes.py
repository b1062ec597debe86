#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Compares 8-byte writes (fi_write) of tagwire's provider with those of libfabric's shm, in turns.

Usage: compare_fi_writes.py BUILD [--rounds N] [--count N] [--bytes N] [--json FILE]

The medians of the rounds and their ratio are printed, and the same of the least times, which other
load on the machine disturbs less. The target is a ratio of 0.7. Both providers copy to ordinary
memory of the other process by process_vm_writev(2).
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

TARGET = 0.7
TIMEOUT_S = 60


def one_way(build, provider, count, size):
    """Nanoseconds: the median and the least of a run."""
    variables = {**os.environ, "FI_PROVIDER_PATH": str(build / "lib" / "libfabric"),
                 "FI_TAGWIRE_TRANSPORTS": "sm", "TAGWIRE_CALIBRATION": "none"}
    ended = subprocess.run([build / "bin" / "fi_writes", provider, str(count), str(size)],
                           env=variables, capture_output=True, text=True, timeout=TIMEOUT_S,
                           check=False, stdin=subprocess.DEVNULL)
    if ended.returncode != 0:
        sys.exit(f"compare_fi_writes: {provider}: {ended.stderr.strip()[-300:]}")
    return [float(number) for number in ended.stdout.split()]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=lambda path: Path(path).resolve())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--bytes", type=int, default=8)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    times = {"tagwire": [], "shm": []}
    for _ in range(options.rounds):
        for provider, seen in times.items():
            seen.append(one_way(options.build, provider, options.count, options.bytes))
    ratios = {}
    for at, kind in enumerate(("median", "least")):
        found = {provider: statistics.median(one[at] for one in seen)
                 for provider, seen in times.items()}
        ratios[kind] = found["tagwire"] / found["shm"]
        print(f"fi_write {options.bytes} B, one way, {kind}: tagwire {found['tagwire']:.0f} ns, "
              f"shm {found['shm']:.0f} ns, ratio {ratios[kind]:.2f} (target <= {TARGET})")
    if options.json:
        options.json.write_text(json.dumps({"bytes": options.bytes, "times_ns": times,
                                            "ratios": ratios, "target": TARGET}, indent=2) + "\n")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Shows clang the sources that no build by clang compiles, for its warnings.

Usage: clang_rest.py ALL BUILT

ALL is a build directory that is configured with every source and without unity builds (build/lint,
which `./run lint` configures), BUILT one of clang (build/asan). Each source of ALL that BUILT does
not compile is parsed by clang++ with its own command of ALL; a warning is an error. Sources that a
build would make first are left out.
"""
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys


def commands(build):
    """Source -> its entry in the compilation database; a unity source is those that it includes."""
    found = {}
    database = build / "compile_commands.json"
    if not database.exists():
        sys.exit(f"clang_rest: {build} is not configured: ./run lint does so with build/lint, "
                 "./run build asan with build/asan")
    for entry in json.loads(database.read_text()):
        source = pathlib.Path(entry["file"])
        parts = [source]
        if source.parent.name == "Unity":
            parts = re.findall(r'^#include "([^"]+)"', source.read_text(), re.MULTILINE)
        for part in parts:
            found[str(part)] = entry
    return found


def check(entry):
    """What clang says about a source, and whether it is content."""
    words = shlex.split(entry["command"])
    compiler = "clang" if entry["file"].endswith(".c") else "clang++"
    skipped = {"-o", "-c"}
    words = [word for before, word in zip(words, words[1:])
             if word not in skipped and before not in skipped]
    done = subprocess.run([compiler, "-fsyntax-only", "-Werror", "-Wno-unknown-warning-option",
                           *words, entry["file"]], cwd=entry["directory"], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return done.stdout, done.returncode == 0


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__.split("\n\n")[1])
    everything, built = (commands(pathlib.Path(name)) for name in sys.argv[1:])
    rest = sorted(source for source in set(everything) - set(built) if os.path.exists(source))
    failures = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for text, good in pool.map(check, (everything[source] for source in rest)):
            sys.stdout.write(text)
            failures += not good
    print(f"clang_rest: {len(rest)} sources of {len(everything)}, {failures} failed")
    return failures > 0


if __name__ == "__main__":
    sys.exit(main())

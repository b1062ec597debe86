#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Loads several copies of the library into one process, as a program does that loads other
libraries with thread-local variables: glibc has some 1600 bytes for all that come at run time.

Usage: check_copies.py LIBTAGWIRE
"""
import ctypes
import shutil
import sys
import tempfile
from pathlib import Path

COPIES = 12


def main():
    with tempfile.TemporaryDirectory() as folder:
        for number in range(COPIES):
            copy = Path(folder) / f"lib{number}.so"
            shutil.copy(sys.argv[1], copy)
            try:
                library = ctypes.CDLL(str(copy))
            except OSError as error:
                sys.exit(f"FAILED: copy {number + 1} of {COPIES} does not load: {error}")
            library.tw_bootstrap_last_error.restype = ctypes.c_char_p
            if library.tw_bootstrap_last_error() != b"":
                sys.exit(f"FAILED: copy {number + 1} has an error of another")
            if library.tw_bootstrap_barrier(None) == 0 or \
                    b"bs is NULL" not in library.tw_bootstrap_last_error():
                sys.exit(f"FAILED: copy {number + 1} does not tell its last error")
    print(f"{COPIES} copies load")


if __name__ == "__main__":
    main()

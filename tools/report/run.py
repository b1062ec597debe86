# SPDX-License-Identifier: BSD-3-Clause
"""run.py PROGRAM ARGUMENT...: runs a program beside it if this Python is new enough; says so if
not. An older Python understands no more than what stands here."""
import os
import sys

OLDEST = (3, 9)


def main():
    if sys.version_info < OLDEST:
        sys.stderr.write("tagwire: python3 is %d.%d; plots and reports need %d.%d or later\n"
                         % (tuple(sys.version_info[:2]) + OLDEST))
        return 1
    import runpy
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), sys.argv[1])
    sys.argv[:] = [program] + sys.argv[2:]
    runpy.run_path(program, run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())

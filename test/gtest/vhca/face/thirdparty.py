#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Runs programs nobody here wrote on the virtual HCA, unmodified, and asks for exit status 0.

    thirdparty.py --list                         tier (quick, full or nightly) and name of each case
    thirdparty.py --launcher tagwire CASE...     runs them; status 0 if all passed, 77 if all that
                                                 did not pass lack their program
    thirdparty.py --launcher tagwire --table     runs all; prints the table of docs/vhca-programs.md

Pairs run on loopback with a port of their own; both sides have to end by themselves in time, and
only processes started here are ever ended. A row that a program refuses to run has to say so in the
program's own words. Cases of the driver face are named mlx5_NAME.
"""
import argparse
import sys
from dataclasses import replace

import thirdparty_cases
import thirdparty_mlx5
from thirdparty_run import run

SKIPPED = 77

# Which of them `./run test` has time for.
QUICK = """
ib_send_lat ib_send_lat-e ib_send_lat--use-srq ib_send_lat-q4 ib_send_bw ib_send_bw--use-srq
ib_send_bw-q4 ib_send_bw-b ib_write_lat ib_write_bw ib_write_bw-q4 ib_read_lat ib_read_lat-e
ib_read_bw ib_read_bw-b ib_atomic_lat ib_atomic_bw ib_send_bw-cUC ib_send_lat-cUD ib_send_bw-cUD
ib_send_lat-cDC ib_send_bw-cDC--use-srq ib_write_bw-cDC-q4 ib_read_lat-cDC ib_read_bw-cDC-e
ib_atomic_lat-cDC
uct_rc_verbs_am_lat-Dshort uct_rc_verbs_am_bw-Dbcopy-s2048 uct_rc_verbs_put_bw-Dzcopy-s2048
uct_rc_verbs_get-Dzcopy-s2048 uct_rc_verbs_fadd-s8 uct_ud_verbs_am_lat-Dshort
ucp_tag_lat ucp_put_bw ucp_get ucp_stream_bw ucp_tag_lat-Esleep ucp_tag_bw-s4194304
fi_pingpong-I20-mtagged ibv_xsrq_pingpong soft-roce_ucp_tag_lat
udp_ib_send_lat udp_ib_write_bw udp_ib_read_lat udp_ib_send_lat-cUD udp_ucp_tag_lat-s4194304
""".split() + [case.name for case in thirdparty_cases.RDMA_CORE] + thirdparty_mlx5.QUICK

ALL = [*thirdparty_cases.ALL, *thirdparty_mlx5.ALL]
CASES = [replace(case, tier="quick") if case.name in QUICK else case for case in ALL]
assert len({case.name for case in CASES}) == len(CASES), "two cases have one name"
assert set(QUICK) <= {case.name for case in CASES}, "a quick row that is none"


def cells(result):
    if result is None:
        return "| |"
    outcome = {"passed": result.statuses, "skipped": "not installed"}.get(
        result.state, f"FAILS ({result.statuses})")
    return f"| {outcome} | {result.shown} "


class Table:
    """A line for each row, with columns for both faces: the driver face's cases have other numbers
    of iterations, and come later."""

    def __init__(self, launcher, cases):
        self.launcher = launcher
        self.by_row = {}
        for case in cases:
            self.by_row.setdefault(case.row, {})[case.face] = case

    def result(self, case):
        if case is None:
            return None
        result = run(self.launcher, case)
        if result.state != "passed":
            print(f"{case.name}: {result.state}\n{result.report}", file=sys.stderr)
        return result

    def print(self):
        for faces in self.by_row.values():
            shown = faces.get("tagwire") or faces["mlx5"]
            both = (self.result(faces.get(face)) for face in ("tagwire", "mlx5"))
            print(f"| `{shown.command}` {''.join(map(cells, both))}|", flush=True)


def run_all(launcher, cases):
    status = 0
    for case in cases:
        result = run(launcher, case)
        print(f"{case.name}: {result.state} {result.shown}", flush=True)
        if result.state != "passed":
            print(result.report, file=sys.stderr)
            skips_only = result.state == "skipped" and status in (0, SKIPPED)
            status = SKIPPED if skips_only else 1
    return status


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--launcher")
    parser.add_argument("cases", nargs="*")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(f"{case.tier} {case.name}" for case in CASES))
        return 0
    wanted = [case for case in CASES if not arguments.cases or case.name in arguments.cases]
    if not wanted:
        sys.exit("no such case")
    if arguments.table:
        Table(arguments.launcher, wanted).print()
        return 0
    return run_all(arguments.launcher, wanted)


if __name__ == "__main__":
    sys.exit(main())

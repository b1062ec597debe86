#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Runs programs nobody here wrote on the virtual HCA, unmodified, and asks for exit status 0.

    thirdparty.py --list                            tier (quick, full or nightly) of each case,
                                                    whether it has to run alone or may beside
                                                    others, its name
    thirdparty.py --launcher tagwire-vhca CASE...   runs them; status 0 if all passed, 77 if all
                                                    that did not pass lack their program
    thirdparty.py --table DIR                       prints a page of the results in DIR

--jobs N runs N cases at a time, --results DIR keeps a file there for each. No CASE: all of them.

Pairs run on loopback with a port of their own; both sides have to end by themselves in time, and
only processes started here are ever ended. A row that a program refuses to run has to say so in the
program's own words. Cases of the driver face are named mlx5_NAME.
"""
import argparse
import json
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, fields, replace
from functools import partial
from pathlib import Path

import thirdparty_cases as cases
import thirdparty_cm as cm
import thirdparty_mlx5 as mlx5
from thirdparty_run import Result, die_with_parent, run

SKIPPED = 77

# Which of them `./run test` has time for: each verb and connection once, by the option that asks
# the most of the device. .ci/run runs all but those of the night.
QUICK = """
ib_send_lat ib_send_bw--use-srq ib_write_bw-q4 ib_read_lat-e ib_atomic_lat ib_send_bw-cUC
ib_send_lat-cUD ib_send_lat-cDC ib_atomic_lat-cDC
uct_rc_verbs_am_lat-Dshort uct_rc_verbs_put_bw-Dzcopy-s2048 uct_rc_verbs_fadd-s8
uct_ud_verbs_am_lat-Dshort ucp_tag_lat ucp_put_bw ucp_tag_lat-Esleep
fi_pingpong-I20-mtagged ibv_xsrq_pingpong soft-roce_ucp_tag_lat
udp_ib_send_lat-cUD udp_ucp_tag_lat-s4194304
""".split() + [case.name for case in cases.RDMA_CORE] + [*mlx5.QUICK, *cm.QUICK]

# Groups of the table, each with the rows of both faces.
SECTIONS = {
    "rdma-core's examples": [*cases.RDMA_CORE, *mlx5.RDMA_CORE],
    "perftest": [*cases.PERFTEST, *mlx5.PERFTEST],
    "UCX's transports": [*cases.UCT, *mlx5.UCT],
    "UCX's protocols": [*cases.UCP, *mlx5.UCP],
    "libfabric": [*cases.LIBFABRIC, *cm.LIBFABRIC, *mlx5.LIBFABRIC],
    "Open MPI": [*cases.MPI, *mlx5.MPI],
    "rdma-core's own tests": [*cases.PYVERBS, *mlx5.PYVERBS],
    "Connections through rdma_cm": [*cm.RDMA_CM, *mlx5.RDMA_CM],
    "What the device does not offer": [*cases.NOT_OFFERED, *mlx5.NOT_OFFERED],
    "The profile soft-roce": cases.PROFILES,
    "Over UDP": [*cases.UDP, *mlx5.UDP],
    "Under faults": [*cm.LOSSY, *mlx5.FAULTY],
    "Commands by ioctl": mlx5.IOCTL,
}
SECTIONS = {title: [replace(case, tier="quick") if case.name in QUICK else case for case in rows]
            for title, rows in SECTIONS.items()}
CASES = [case for rows in SECTIONS.values() for case in rows]
assert len({case.name for case in CASES}) == len(CASES), "two cases have one name"
assert set(QUICK) <= {case.name for case in CASES}, "a quick row that is none"


def run_some(launcher, wanted, jobs):
    """Each case with its result, in the order of the cases. Processes, since each takes its port
    and its addresses from the number of its own."""
    if jobs == 1:
        yield from ((case, run(launcher, case)) for case in wanted)
        return
    with ProcessPoolExecutor(jobs, initializer=die_with_parent) as pool:
        yield from zip(wanted, pool.map(partial(run, launcher), wanted))


def cells(result):
    if result is None:
        return "| | "
    outcome = {"passed": result.statuses, "skipped": "not installed"}.get(
        result.state, f"FAILS ({result.statuses})")
    return f"| {outcome} | {result.shown} "


def print_table(folder):
    """A line for each row, with columns for both faces: the driver face's cases have other numbers
    of iterations."""
    results = {case.name: Result(**json.loads(path.read_text())) for case in CASES
               if (path := folder / f"{case.name}.json").exists()}
    print("# Programs on the virtual HCA\n\n"
          "A face has two columns: the exit status (client / server; one status: it was run\n"
          "alone), and a figure that the program printed, or its own words where it refuses to\n"
          "run. Figures are of one run beside others: they show that it ran, not how fast it can\n"
          "be.")
    for title, section in SECTIONS.items():
        by_row = {}
        for case in section:
            if case.name in results:
                by_row.setdefault(case.row, {})[case.face] = case
        if not by_row:
            continue
        print(f"\n## {title}\n\n| program | `tagwire` | | `mlx5` | |\n|---|---|---|---|---|")
        for faces in by_row.values():
            shown = faces.get("tagwire") or faces["mlx5"]
            both = (results[faces[face].name] if face in faces else None
                    for face in ("tagwire", "mlx5"))
            print(f"| `{shown.command}` {''.join(map(cells, both))}|")


def forget_others(folder):
    """Results of cases that are no more; files of others stay."""
    names = {case.name for case in CASES}
    for path in folder.glob("*.json"):
        if path.stem not in names and is_result(path):
            path.unlink(missing_ok=True)


def is_result(path):
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and set(content) == {field.name for field in fields(Result)}


def run_all(launcher, wanted, jobs, folder):
    status = 0
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
        forget_others(folder)
    for case, result in run_some(launcher, wanted, jobs):
        print(f"{case.name}: {result.state} {result.shown}", flush=True)
        if folder:
            (folder / f"{case.name}.json").write_text(json.dumps(asdict(result)))
        if result.state != "passed":
            print(result.report, file=sys.stderr)
            skips_only = result.state == "skipped" and status in (0, SKIPPED)
            status = SKIPPED if skips_only else 1
    return status


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--table", type=Path, metavar="DIR")
    parser.add_argument("--results", type=Path, metavar="DIR")
    parser.add_argument("--launcher")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("cases", nargs="*")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(f"{case.tier} {'alone' if case.spins else 'beside'} {case.name}"
                        for case in CASES))
        return 0
    if arguments.table:
        print_table(arguments.table)
        return 0
    wanted = [case for case in CASES if not arguments.cases or case.name in arguments.cases]
    if not wanted:
        sys.exit("no such case")
    return run_all(arguments.launcher, wanted, arguments.jobs, arguments.results)


if __name__ == "__main__":
    sys.exit(main())

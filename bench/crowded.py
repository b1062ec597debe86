#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Measures polite progress where processors are few (docs/guide/few-cores.md).

Usage: crowded.py --bin DIR --out DIR [--seconds N] [--runs N] [--ranks LIST] [--beside LIST]
                  [--mpi-ranks LIST] [--mpi-modes LIST]

DIR holds the built `tagwire` and, where Open MPI is there, `mpi_crowd`. Runs of each mode follow
each other in turn, on all processors that this process may use; nothing else should run.

- An allreduce of 8 bytes with each number of ranks, polite and spinning: the median of the runs'
  means, and the worst of them.
- Two ranks beside so many busy programs of others: the same.
- Open MPI over the provider (polite and spinning), vader and pml ucx, with mpi_yield_when_idle 0
  and 1: barrier, allreduce and exchanges of 8, 16 and 32 ranks; or those of these modes that
  --mpi-modes names. Spinning takes minutes from 16 ranks on.

Results go to OUT/crowded.json and OUT/crowded.txt, the first two as a plot to OUT/crowded.svg
where gnuplot is there.
"""
import argparse
import itertools
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

MODES = ("polite", "spin")
TIMEOUT_S = 180
MPI_MODES = {
    "polite": ("mtl ofi", {"TAGWIRE_PROGRESS": "polite"}),
    "spin": ("mtl ofi", {"TAGWIRE_PROGRESS": "spin"}),
    "vader": ("vader", {}),
    "pml ucx": ("ucx", {"UCX_LOG_LEVEL": "error"}),
}
MPI_WORDS = {
    "mtl ofi": ["--mca", "pml", "cm", "--mca", "mtl", "ofi", "--mca", "mtl_ofi_provider_include",
                "tagwire"],
    "vader": ["--mca", "pml", "ob1", "--mca", "btl", "self,vader"],
    "ucx": ["--mca", "pml", "ucx", "--mca", "pml_ucx_tls", "any", "--mca", "pml_ucx_devices",
            "any"],
}


def run(command, environment):
    done = subprocess.run(command, env={**os.environ, **environment}, timeout=TIMEOUT_S,
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: "
                           f"{done.stderr.strip()[-400:]}")
    return done.stdout


def mean_us(options, mode, ranks, beside):
    """Of an allreduce of 8 bytes, in one run."""
    command = [str(options.bin / "tagwire"), "perf", "allreduce", "--level", "msg", "--ranks",
               str(ranks), "--size", "8", "--seconds", str(options.seconds), "--json", "-"]
    if beside:
        command += ["--beside", str(beside)]
    results = json.loads(run(command, {"TAGWIRE_PROGRESS": mode}))["results"]
    return results[0]["latency_ns"]["mean"] / 1000


def measure(options, kind, ranks, beside):
    means = {mode: [] for mode in MODES}
    for _ in range(options.runs):
        for mode in MODES:
            means[mode].append(mean_us(options, mode, ranks, beside))
    return {"kind": kind, "ranks": ranks, "beside": beside,
            **{mode: {"median_us": statistics.median(values), "worst_us": max(values),
                      "runs_us": values} for mode, values in means.items()}}


def measure_mpi(options):
    """Lines of mpi_crowd by ranks, mpi_yield_when_idle and mode."""
    program = options.bin / "mpi_crowd"
    if shutil.which("mpirun.openmpi") is None or not program.exists():
        print("crowded: Open MPI or mpi_crowd is not there", file=sys.stderr)
        return []
    rows = []
    for ranks, yields in itertools.product(options.mpi_ranks, (0, 1)):
        for name in options.mpi_modes:
            words, environment = MPI_MODES[name]
            environment = {**environment, "FI_TAGWIRE_TRANSPORTS": "sm",
                           "FI_PROVIDER_PATH": str(options.bin.parent / "lib" / "libfabric")}
            if os.geteuid() == 0:
                environment.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
            command = ["mpirun.openmpi", "--oversubscribe", "--bind-to", "none", *MPI_WORDS[words],
                       "--mca", "mpi_yield_when_idle", str(yields), "-np", str(ranks),
                       str(program), str(options.seconds), "8", "131072"]
            try:
                printed = run(command, environment)
            except (RuntimeError, subprocess.TimeoutExpired) as problem:
                print(f"crowded: {name}: {problem}", file=sys.stderr)
                continue
            for line in printed.splitlines():
                *what, mean, median, p99, most = line.split()
                rows.append({"ranks": ranks, "mode": name, "yield_when_idle": yields,
                             "what": " ".join(what), "mean_us": float(mean),
                             "p50_us": float(median), "p99_us": float(p99),
                             "max_us": float(most)})
    return rows


def text_of(result):
    lines = [result["cpu"], "", "allreduce of 8 B, us: median and worst of the runs' means",
             f"{'':24}{'polite':>20}{'spinning':>20}"]
    for row in result["rows"]:
        figures = "".join(f"{row[mode]['median_us']:11.1f}{row[mode]['worst_us']:9.1f}"
                          for mode in MODES)
        lines.append(f"{label_of(row):24}{figures}")
    if result["mpi"]:
        lines += ["", "Open MPI, us: mean, median, 99th percentile"]
    for row in result["mpi"]:
        lines.append(f"{row['ranks']:2} ranks, yield {row['yield_when_idle']} {row['mode']:8}"
                     f"{row['what']:16}{row['mean_us']:11.1f}{row['p50_us']:11.1f}"
                     f"{row['p99_us']:11.1f}")
    return "\n".join(lines) + "\n"


def label_of(row):
    return f"{row['ranks']} ranks" + (f" beside {row['beside']}" if row["beside"] else "")


def plot(rows, path):
    """Bars of the medians, on a logarithmic scale."""
    data = "\n".join(f'"{label_of(row)}" {row["polite"]["median_us"]} {row["spin"]["median_us"]}'
                     for row in rows)
    script = f"""$rows << EOD
{data}
EOD
set terminal svg size 760,360 font "sans-serif,13" background "#ffffff"
set output "{path}"
set logscale y
set yrange [0.1:*]
set ylabel "allreduce of 8 B, mean, us"
set style data histograms
set style fill solid
set boxwidth 0.9
set grid ytics
set key top left
plot $rows using 2:xtic(1) title "polite" linecolor "#2a6fb0", \\
     $rows using 3 title "spinning" linecolor "#c0c4c8"
"""
    subprocess.run(["gnuplot"], input=script, text=True, check=True)


def modes(text):
    chosen = text.split(",")
    for name in chosen:
        if name not in MPI_MODES:
            raise argparse.ArgumentTypeError(f"no mode {name!r} among {', '.join(MPI_MODES)}")
    return chosen


def numbers(text):
    return [int(word) for word in text.split(",") if word]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--ranks", type=numbers, default=[2, 4, 8, 16])
    parser.add_argument("--beside", type=numbers, default=[2, 4])
    parser.add_argument("--mpi-ranks", type=numbers, default=[8, 16, 32])
    parser.add_argument("--mpi-modes", type=modes, default=list(MPI_MODES))
    options = parser.parse_args()
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    cpu = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")),
               platform.machine())
    rows = [measure(options, "ranks", ranks, 0) for ranks in options.ranks]
    rows += [measure(options, "strangers", 2, beside) for beside in options.beside]
    result = {"cpu": f"{cpu}, {len(os.sched_getaffinity(0))} processors", "rows": rows,
              "mpi": measure_mpi(options)}
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "crowded.json").write_text(json.dumps(result, indent=1) + "\n")
    text = text_of(result)
    (options.out / "crowded.txt").write_text(text)
    print(text, end="")
    if shutil.which("gnuplot") is not None:
        plot(rows, options.out / "crowded.svg")


if __name__ == "__main__":
    main()

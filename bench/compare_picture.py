#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""compare_picture.py [--check] PAGE SVG: draws the latencies of a page of results.

Takes the first table of PAGE that has a column "latency / UCX" (compare.py --page puts it there),
and draws the ratio over the size, a curve for each regime. --check only tells whether SVG is the
picture of that table. The picture follows the reader's choice of light or dark."""
import argparse
import math
import re
import sys
from pathlib import Path

HEAD = "latency / UCX: target"
UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20}
WIDTH, HEIGHT = 760, 330
LEFT, RIGHT, TOP, BOTTOM = 64, 24, 58, 48
LINES = (0.25, 0.5, 1, 2)
STYLE = """\
.ground { fill: #ffffff; stroke: #d0d7de } .text { fill: #1f2328 } .grid { stroke: #d0d7de }
.one { stroke: #1f2328; stroke-dasharray: 6 4 } text { font: 13px sans-serif }
.near { stroke: #4477aa } .far { stroke: #cc6600 } path { fill: none; stroke-width: 2.5 }
circle.near { fill: #4477aa } circle.far { fill: #cc6600 } .title { font-size: 15px }
@media (prefers-color-scheme: dark) {
.ground { fill: #0d1117; stroke: #30363d } .text { fill: #e6edf3 } .grid { stroke: #30363d }
.one { stroke: #e6edf3 } .near { stroke: #79b8ff } .far { stroke: #ffab70 }
circle.near { fill: #79b8ff } circle.far { fill: #ffab70 }
}"""


def bytes_of(text):
    number, unit = text.split()
    return int(number) * UNITS[unit]


def ratios(page):
    """{regime: [(bytes, ratio)]} of the first table by size."""
    rows = iter(page.splitlines())
    head = next((cells for cells in map(cells_of, rows) if HEAD in cells), None)
    if head is None:
        raise SystemExit(f"no table has a column '{HEAD}'")
    first = head.index(HEAD) + 1
    regimes = [name for name in head[first:first + 2] if name in ("near", "far")]
    next(rows)  # the line below the head
    curves = {regime: [] for regime in regimes}
    for row in map(cells_of, rows):
        if len(row) != len(head):
            break
        for regime, cell in zip(regimes, row[first:]):
            if cell and cell != "-":
                curves[regime].append((bytes_of(row[0]), float(cell.split()[0].rstrip("!"))))
    return curves


def cells_of(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def judge_of(page):
    """As "UCX 1.23.0", which the text above the tables names."""
    found = re.search(r"^against (UCX [\d.]+)", page, re.MULTILINE)
    return found[1] if found else "UCX"


def x_of(size, last):
    return LEFT + (WIDTH - LEFT - RIGHT) * (math.log2(size) - 3) / (math.log2(last) - 3)


def y_of(ratio):
    low, high = math.log2(LINES[0]), math.log2(LINES[-1])
    share = (min(max(math.log2(ratio), low), high) - low) / (high - low)
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share


def size_name(size):
    for unit in ("MiB", "KiB"):
        if size >= UNITS[unit]:
            return f"{size // UNITS[unit]} {unit}"
    return f"{size} B"


def drawn(curves, judge):
    last = max(size for curve in curves.values() for size, _ in curve)
    title = f"Time of a tagged message over shared memory, divided by that of {judge}"
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">'
    yield f"<title>{title}</title>"
    yield f"<style>{STYLE}</style>"
    yield f'<rect class="ground" x="0.5" y="0.5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="6"/>'
    yield f'<text class="text title" x="{LEFT}" y="26">{title}</text>'
    for ratio in LINES:
        y = f"{y_of(ratio):.1f}"
        yield (f'<line class="{"one" if ratio == 1 else "grid"}" x1="{LEFT}" y1="{y}" '
               f'x2="{WIDTH - RIGHT}" y2="{y}"/>')
        yield f'<text class="text" x="{LEFT - 8}" y="{y}" dy="4" text-anchor="end">{ratio}</text>'
    size = 8
    while size <= last:
        yield (f'<text class="text" x="{x_of(size, last):.1f}" y="{HEIGHT - BOTTOM + 24}" '
               f'text-anchor="middle">{size_name(size)}</text>')
        size *= 8
    for at, (regime, curve) in enumerate(curves.items()):
        points = [(f"{x_of(size, last):.1f}", f"{y_of(ratio):.1f}") for size, ratio in curve]
        measured = {size for size, _ in curve}
        steps = " ".join(f"{'L' if size // 2 in measured else 'M'}{x},{y}"
                         for (size, _), (x, y) in zip(curve, points))
        yield f'<path class="{regime}" d="{steps}"/>'
        for x, y in points:
            yield f'<circle class="{regime}" cx="{x}" cy="{y}" r="3"/>'
        x = LEFT + 190 * at
        yield f'<circle class="{regime}" cx="{x + 6}" cy="44" r="4"/>'
        yield f'<text class="text" x="{x + 16}" y="48">{regime} processors</text>'
    yield f'<text class="text" x="{LEFT + 380}" y="48">below 1: tagwire is faster</text>'
    yield "</svg>"


def picture_of(page):
    return "\n".join(drawn(ratios(page), judge_of(page))) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing; fail if it differs")
    parser.add_argument("page", type=Path)
    parser.add_argument("svg", type=Path)
    arguments = parser.parse_args()
    picture = picture_of(arguments.page.read_text(encoding="utf-8"))
    if not arguments.check:
        arguments.svg.write_text(picture, encoding="utf-8")
    elif not arguments.svg.is_file() or arguments.svg.read_text(encoding="utf-8") != picture:
        print(f"{arguments.svg} is not the picture of {arguments.page}: run compare_picture.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

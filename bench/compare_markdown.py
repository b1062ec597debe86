# SPDX-License-Identifier: BSD-3-Clause
"""The results of compare.py as the tables of docs/reference/results.md: of each level the rows that
have a target; tests that have a row for every power of two as one table by size. In the page the
tables of each processor stand between two marks, and replace only those of that processor."""
import textwrap

from compare_report import is_judge, judge, shapes_text
from rounds import REGIMES, kept, size_name

# Tests by size, and the heads of their columns.
SWEEPS = {"msg tag_lat": "latency / UCX", "msg tag_bw": "stream / UCX",
          "msg tag_exchange": "exchange / UCX", "msg tag_lat / libfabric": "latency / libfabric"}
LEVELS = ("uct", "msg")
PROSE_COLUMNS = 100
END_OF_PROCESSORS = "<!-- compare.py --page: further processors above this line -->"


def sweep_of(row):
    test = row.name.removesuffix(f" {size_name(row.size)}")
    return test if test in SWEEPS else None


def goals_of(row):
    return [goal for goal in row.goals if any(goal.limits.values())]


def target_cell(row):
    """As "<=0.85, far <=0.95 / <=0.95", of UCX as it comes and with the better threshold."""
    def text(goal):
        near, far = goal.text("near"), goal.text("far")
        return near if near == far else f"{near}, far {far}"
    return " / ".join(text(goal) for goal in goals_of(row))


def regime_cell(row, regime, names):
    """Medians of the ratios to each target's peer; "!" behind one that misses it."""
    wanted = goals_of(row)
    cells = ["-" if ratio is None else f"{ratio:.2f}" + ("!" if met is False else "")
             for goal, ratio, met in judge(row, kept(row, regime), regime, names)
             if goal in wanted]
    return "-" if set(cells) == {"-"} else " / ".join(cells)


def regimes_of(rows):
    """Those that were measured; all where none was."""
    return [regime for regime in REGIMES if any(kept(row, regime) for row in rows)] or REGIMES


def cells_of(row, names, regimes):
    return [target_cell(row), *(regime_cell(row, regime, names) for regime in regimes)]


def table(lines):
    head, *rest = [f"| {' | '.join(line)} |" for line in lines]
    return [head, "|" + "---|" * len(lines[0]), *rest]


def sweep_table(rows, names, regimes):
    """One line for each size; the target and each regime of each test."""
    sweeps = [test for test in SWEEPS if any(sweep_of(row) == test for row in rows)]
    by_place = {(sweep_of(row), row.size): row for row in rows}
    lines = [["size", *(f"{SWEEPS[test]}: {column}" if column == "target" else column
                        for test in sweeps for column in ("target", *regimes))]]
    for size in sorted({row.size for row in rows}):
        line = [size_name(size)]
        for test in sweeps:
            row = by_place.get((test, size))
            line += cells_of(row, names, regimes) if row else [""] * (1 + len(regimes))
        lines.append(line)
    return table(lines)


def about(rows, names):
    """What was compared, and how often."""
    words = []
    for regime in REGIMES:
        counts = [len(kept(row, regime)) for row in rows if kept(row, regime)]
        readings = [one for row in rows for one in kept(row, regime)]
        floors = [one["floor"] for one in readings]
        if counts:
            words.append(f"{regime} CPUs: {min(counts)} to {max(counts)} readings, floors "
                         f"{min(floors):.0f} to {max(floors):.0f} ns{shapes_text(readings)}")
    judges = [name for name in names if is_judge(name, names)]
    return "; ".join([*([f"against {' and '.join(judges)}"] if judges else []), *words])


def markdown_lines(cpu, rows, names):
    """`names`: of the installations, of each kind the judge first."""
    lines = [f"### {cpu}", "", *textwrap.wrap(about(rows, names), PROSE_COLUMNS), ""]
    regimes = regimes_of(rows)
    for level in LEVELS:
        wanted = [row for row in rows if row.level == level and goals_of(row)
                  and any(kept(row, regime) for regime in regimes)]
        swept = [row for row in wanted if sweep_of(row)]
        plain = [[row.name, *cells_of(row, names, regimes)] for row in wanted if not sweep_of(row)]
        if wanted:
            lines += [f"#### Level {level}", ""]
        if swept:
            lines += [*sweep_table(swept, names, regimes), ""]
        if plain:
            lines += [*table([["row", "target", *regimes], *plain]), ""]
    return lines[:-1]


def page_with(text, cpu, lines):
    """The text of a page with these tables in place of earlier ones of this processor alone."""
    begin, end = f"<!-- compare.py --page: {cpu} -->\n", f"<!-- end of {cpu} -->\n"
    section = f"{begin}\n" + "\n".join(lines) + f"\n\n{end}"
    before, found, rest = text.partition(begin)
    if found:
        _, found, behind = rest.partition(end)
        return before + section + behind if found else text
    before, found, behind = text.partition(END_OF_PROCESSORS)
    return f"{before}{section}\n{found}{behind}" if found else text

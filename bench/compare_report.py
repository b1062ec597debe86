# SPDX-License-Identifier: BSD-3-Clause
"""The results of compare.py as text, and the keys of its JSON."""
import re
import statistics

import report_folder  # first: it finds the peers
import rounds
from compare_rows import INSTRUCTIONS
from rounds import REGIMES, columns, kept, show, thrown_away
from ucx_peer import Version

SCHEMA = 3


def agrees_with(reading, peer):
    """Whether the floors around ours and around this peer's figures agree."""
    return rounds.agree([*reading["floors"], *reading["floors_of"].get(peer, [])])


def middle(readings, key):
    values = [r[key] for r in readings if r[key] is not None]
    return statistics.median(values) if values else None


def middle_of(readings, peer, variant):
    values = [r["peers"][peer][variant] for r in readings if variant in r["peers"].get(peer, {})]
    return statistics.median(values) if values else None


def judge(row, readings, regime, names):
    """[(goal, ratio or None, met or None)], beside the first of `names` that the row compares."""
    judged = []
    peer = row.judge_among(names)
    for goal in row.goals:
        ratio = row.median_ratio(readings, goal, peer)
        judged.append((goal, ratio, None if ratio is None else goal.met(ratio, regime)))
    return judged


def ratio_cells(judged, regime):
    """The ratio and the target of up to two goals, and the verdict on all."""
    cells = []
    for goal, ratio, met in judged:
        cells += ["-" if ratio is None else f"{ratio:.2f}" + ("!" if met is False else ""),
                  goal.text(regime)]
    cells += ["-"] * (4 - len(cells))
    verdicts = [met for _, _, met in judged if met is not None]
    return cells + ["-" if not verdicts else "met" if all(verdicts) else "MISSED"]


def count_cell(row, regime):
    return f"{len(kept(row, regime))}"


def judged_table(rows, regime, names):
    """Rows of one peer."""
    lines = []
    for row in rows:
        readings = kept(row, regime)
        if not row.theirs or not readings:
            continue
        peer = row.judge_among(names)
        lines.append([row.name, count_cell(row, regime), show(middle(readings, "floor"), "ns"),
                      show(middle(readings, "ours"), row.unit),
                      show(middle_of(readings, peer, "default"), row.unit),
                      show(middle_of(readings, peer, "1m"), row.unit),
                      *ratio_cells(judge(row, readings, regime, names), regime)])
    if not lines:
        return []
    kind = rows[0].peer
    head = [f"against {kind}", "n", "floor", "ours", kind, f"{kind} 1m", "ratio", "target", "best",
            "target", ""]
    if not any("1m" in row.theirs for row in rows):  # a peer without variants
        head, *lines = ([cell for i, cell in enumerate(line) if i not in (5, 8, 9)]
                        for line in [head, *lines])
    return columns([head, *lines])


def reference_table(rows, regime):
    head = ["against the reference", "n", "floor", "ours", "reference", "ratio", "target", ""]
    lines = []
    for row in rows:
        readings = kept(row, regime)
        if not row.reference or not readings:
            continue
        ratio, limit, *_, verdict = ratio_cells(judge(row, readings, regime, []), regime)
        lines.append([row.name, count_cell(row, regime), show(middle(readings, "floor"), "ns"),
                      show(middle(readings, "ours"), row.unit),
                      show(middle(readings, "reference"), row.unit), ratio, limit, verdict])
    return columns([head, *lines]) if lines else []


def older_table(rows, regime, peer):
    kind = peer.split()[0]
    head = [f"beside {peer}", "n", "ours", kind, f"{kind} 1m", "ratio", "best"]
    lines = []
    for row in filter(lambda row: row.is_of(peer), rows):
        readings = [r for r in kept(row, regime) if peer in r["peers"] and agrees_with(r, peer)]
        if not readings:
            continue
        ratios = [f"{ratio:.2f}" if ratio is not None else "-"
                  for _, ratio, _ in judge(row, readings, regime, [peer])]
        lines.append([row.name, str(len(readings)), show(middle(readings, "ours"), row.unit),
                      show(middle_of(readings, peer, "default"), row.unit),
                      show(middle_of(readings, peer, "1m"), row.unit),
                      *(ratios + ["-"] * (2 - len(ratios)))])
    return columns([head, *lines]) if lines else []


def is_judge(name, names):
    kind = name.split()[0]
    return name == next(one for one in names if one.split()[0] == kind)


def shapes(readings):
    """Medians of the floors of one line, two lines and a ring of lines."""
    known = [one["shapes"] for one in readings if one["shapes"]]
    return {shape: statistics.median(one[shape] for one in known)
            for shape in rounds.SHAPES.values()} if known else {}


def shapes_text(readings):
    found = [f"{shape} {value:.0f} ns" for shape, value in shapes(readings).items()]
    return f"; medians: {', '.join(found)}" if found else ""


def regime_lines(rows, regime, names):
    """The tables of one regime; `names`: of the installations, of each kind the judge first."""
    of_peer = {row.peer: [one for one in rows if one.peer == row.peer] for row in rows}
    tables = [*(judged_table(some, regime, names) for some in of_peer.values()),
              reference_table(rows, regime),
              *(older_table(rows, regime, name) for name in names if not is_judge(name, names))]
    tables = [table for table in tables if table]
    if not tables:
        return [f"{regime}: no reading counts", ""]
    readings = [r for row in rows for r in kept(row, regime)]
    floors = [r["floor"] for r in readings]
    lines = [f"{regime} CPUs: {len(floors)} readings, floors {min(floors):.0f} to "
             f"{max(floors):.0f} ns{shapes_text(readings)}", ""]
    for table in tables:
        lines += [*table, ""]
    return lines


def absent_lines(rows):
    """Why there are no values, the rows of one reason on one line."""
    reasons = {}
    for row in rows:
        for who, why in row.absent.items():
            short = "has no operation for this" if who == "tagwire" else why
            reasons.setdefault((who, short), []).append(row.name)
    lines = []
    for (who, why), names in reasons.items():
        shown = names if len(names) <= 2 else [names[0], "...", names[-1]]
        lines.append(f"left out, {who}: {why[:200]}: {', '.join(shown)} ({len(names)} rows)")
    return lines


def instruction_lines(counts):
    if not counts:
        return []
    lines = ["instructions of the library for an 8-byte message (callgrind, loopback):"]
    for name, value in counts.items():
        if value:
            limit = INSTRUCTIONS.get(name)
            verdict = "" if limit is None else (f"  {'met' if value <= limit else 'MISSED'}: "
                                                f"<={limit}")
            lines.append(f"    {name.replace('_', ' '):24} {value:8.1f}{verdict}")
    return [*lines, ""]


def verdict_counts(rows, names):
    met = missed = 0
    for row in rows:
        for regime in REGIMES:
            for _, _, verdict in judge(row, kept(row, regime), regime, names):
                met += verdict is True
                missed += verdict is False
    return f"targets of the rows: {met} met, {missed} missed"


def report_lines(rows, names, counts, notes, priority=None):
    thrown = sum(thrown_away(row) for row in rows)
    everything = sum(len(row.readings) for row in rows)
    lines = [rounds.host_line(), *([priority.note] if priority else []), ""]
    if names:
        judges = " and ".join(name for name in names if is_judge(name, names))
        lines += [f"judged by {judges}", "UCX: as it comes; UCX 1m: with UCX_RNDV_THRESH=1m; "
                  "best: the better of both", ""]
    for regime in REGIMES:
        lines += regime_lines(rows, regime, names)
    lines += instruction_lines(counts)
    lines += absent_lines(rows)
    lines.append(f"{thrown} of {everything} readings thrown away, since their floors disagree by "
                 f"more than {100 * rounds.FLOOR_AGREES:.0f} %")
    lines.append(verdict_counts(rows, names))
    return lines + notes


def regimes_json(row, names):
    regimes = {}
    for regime in REGIMES:
        readings = kept(row, regime)
        if not readings:
            continue
        peers = {name: {variant: middle_of(readings, name, variant) for variant in row.theirs}
                 for name in names if row.is_of(name)}
        goals = [{"against": goal.against, "relation": goal.relation,
                  "limit": goal.limits[regime], "value": ratio, "met": met}
                 for goal, ratio, met in judge(row, readings, regime, names)]
        regimes[regime] = {"rounds": len(readings), "peers": peers, "goals": goals,
                           "shapes": shapes(readings),
                           **{key: middle(readings, key)
                              for key in ("floor", "ours", "above", "reference")}}
    return regimes


def names_of(described):
    """Of all installations, of each kind the judge first."""
    return [one["name"] for some in described.values() for one in some]


def to_json(rows, taker, described, counts, notes):
    """described: {kind of peer: its installations}"""
    names = names_of(described)
    return {"schema": SCHEMA, "host": rounds.host(),
            "realtime": taker.priority.note if taker.priority else None,
            "tagwire": taker.tagwire.version(),
            **{kind.lower(): some for kind, some in described.items()},
            "notes": notes, "instructions": counts,
            "rows": [{"name": row.name, "level": row.level, "size": row.size, "unit": row.unit,
                      "problem": taker.problems.get(row.name), "absent": row.absent,
                      "operations": row.operations, "thrown_away": thrown_away(row),
                      "regimes": regimes_json(row, names), "readings": row.readings}
                     for row in rows if row.readings or row.absent or row.name in taker.problems]}


def describe(installations, earlier):
    """Of those that are here and those of merged results, the newest first."""
    here = {one.name: {"name": one.name, "version": one.version.number,
                       "revision": one.version.revision, "configured": one.version.configured,
                       "binary": one.binary} for one in installations}
    both = [*here.values(), *(one for name, one in earlier.items() if name not in here)]
    described = sorted(both, key=lambda one: Version(one["version"]).key, reverse=True)
    return [{**one, "judges": number == 0} for number, one in enumerate(described)]


def unoptimized(described):
    """Notes on peers that were built for debugging: they are slower than they could be."""
    return [f"{one['name']} was built with {found[0]}: it is slower than a release build"
            for one in described if (found := re.search(r"-O[01g](?= |$)", one["configured"]))]


def list_lines(rows):
    lines = [["row", "unit", "targets"]]
    for row in rows:
        targets = [goal.describe(row.peer) for goal in row.goals if goal.limits["near"] is not None]
        lines.append([row.name, row.unit, "; ".join(targets) or "-"])
    return columns(lines, left=3)

# SPDX-License-Identifier: BSD-3-Clause
"""The page that `tagwire report` writes: one HTML file that loads nothing, for large and small
screens, in the reader's light or dark colours. It is well-formed XML, too."""
import json
from dataclasses import dataclass, field, replace
from pathlib import Path

from frame import NARROW, WIDE
from plot import LIMIT, Plot, escaped, svg_of
from units import BASELESS, BYTES_PER_SECOND, NANOSECONDS, PER_SECOND, value_text

STYLE = Path(__file__).with_name("page.css")
SCHEMA = 1
HEAD = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<meta name="color-scheme" content="light dark"/>
"""
SUMMARY_HEAD = ("<tr><th></th><th>8 B latency</th><th>peak bandwidth</th><th>8 B message rate</th>"
                "</tr>\n")


@dataclass
class Section:
    meaning: str  # of the figures, in plain words
    plot: Plot    # has the title, too
    rows: tuple = ()  # of the table: these places alone; empty: all


@dataclass
class SummaryRow:
    """Of the table on top; a figure that was not measured is None."""
    name: str
    latency_ns: float = None
    bytes_per_s: float = None
    messages_per_s: float = None


@dataclass
class Page:
    title: str
    subtitle: str = ""
    summary: list = field(default_factory=list)
    facts: dict = field(default_factory=dict)
    notes: list = field(default_factory=list)  # of what is missing or did not go well
    sections: list = field(default_factory=list)
    commands: list = field(default_factory=list)  # that were run


def marked_up(words):
    """For HTML, with words between back-ticks as code."""
    parts = escaped(words).split("`")
    return "".join(f"<code>{part}</code>" if number % 2 else part
                   for number, part in enumerate(parts))


def cell(value, unit):
    return f"<td>{'-' if value is None else value_text(value, unit)}</td>"


def table_of(section):
    """Without limits, which are the same at every place."""
    plot = section.plot
    curves = [curve for curve in plot.curves if curve.points and curve.line != LIMIT]
    places = sorted({x for curve in curves for x in curve.points
                     if not section.rows or x in section.rows})
    head = "".join(f"<th>{escaped(curve.name)}</th>" for curve in curves)
    rows = "".join(f"<tr><th>{value_text(x, plot.x.unit)}</th>" +
                   "".join(cell(curve.points.get(x), plot.y.unit) for curve in curves) + "</tr>\n"
                   for x in places)
    return ('<div class="wide"><table class="figures">\n'
            f"<tr><th>{escaped(plot.x.label)}</th>{head}</tr>\n{rows}</table></div>\n")


def section_of(section):
    plot = section.plot
    html = (f'<section id="{plot.id}">\n<h2>{escaped(plot.title)}</h2>\n'
            f'<p class="quiet">{marked_up(section.meaning)}</p>\n')
    if plot.drawn():
        wide = replace(plot, draws_title=False)  # the heading has it
        narrow = replace(wide, id=plot.id + "narrow")
        html += (f'<div class="broad">{svg_of(wide, WIDE)}</div>\n'
                 f'<div class="narrow">{svg_of(narrow, NARROW)}</div>\n{table_of(section)}')
    else:
        html += '<p class="note">There is nothing to show: see above.</p>\n'
    return f"{html}</section>\n"


def summary_of(rows):
    if not rows:
        return ""
    lines = "".join(f"<tr><th>{escaped(row.name)}</th>{cell(row.latency_ns, NANOSECONDS)}"
                    f"{cell(row.bytes_per_s, BYTES_PER_SECOND)}"
                    f"{cell(row.messages_per_s, PER_SECOND)}</tr>\n" for row in rows)
    return f'<div class="wide"><table class="summary">\n{SUMMARY_HEAD}{lines}</table></div>\n'


def items_of(list_tag, items):
    """Nothing without items."""
    html = "".join(f"<li>{marked_up(item)}</li>\n" for item in items)
    return f"{list_tag}\n{html}</ul>\n" if html else ""


def pairs(points):
    return [[float(x), float(value)] for x, value in sorted(points.items())]


def plot_json(plot):
    curves = [{"name": curve.name, "points": pairs(curve.points),
               **({"p99": pairs(curve.upper)} if curve.upper else {})} for curve in plot.curves]
    unit = "" if plot.y.unit in BASELESS else plot.y.unit
    return {"id": plot.id, "title": plot.title, "x": plot.x.label, "y": plot.y.label, "unit": unit,
            "curves": curves}


def data_of(page):
    """Facts, notes and curves of a page as JSON, in which no character needs an escape in HTML or
    XML."""
    data = {"schema": SCHEMA, "facts": page.facts, "notes": page.notes,
            "plots": [plot_json(section.plot) for section in page.sections]}
    text = json.dumps(data, separators=(",", ":"))
    for character in "<>&":  # within strings, where JSON has another spelling
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def html_of(page):
    """Raises PlotError as svg_of() does. A section whose curves have no points says so instead."""
    title = escaped(page.title)
    html = (f"{HEAD}<style>\n{STYLE.read_text(encoding='utf-8')}</style>\n"
            f"<title>{title}</title></head><body>\n<h1>{title}</h1>\n")
    if page.subtitle:
        html += f'<p class="quiet">{escaped(page.subtitle)}</p>\n'
    html += summary_of(page.summary) + items_of('<ul class="note">', page.notes)
    html += "".join(map(section_of, page.sections))
    html += '<h2>Machine and measurement</h2>\n<table class="facts">\n'
    html += "".join(f"<tr><th>{escaped(name)}</th><td>{escaped(value)}</td></tr>\n"
                    for name, value in page.facts.items())
    html += ("</table>\n<details>\n<summary>Commands that were run</summary>\n"
             f"{items_of('<ul>', page.commands)}</details>\n"
             f'<script type="application/json" id="data">{data_of(page)}</script>\n')
    return f"{html}</body></html>\n"

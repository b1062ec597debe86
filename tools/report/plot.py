# SPDX-License-Identifier: BSD-3-Clause
"""Plots of curves, drawn by gnuplot: an <svg> element for a page, which loads nothing and has the
page's text colour, so that it is readable on light and on dark.

Values are in the unit's base: bytes, pieces, nanoseconds, pieces or bytes per second. Axes are
logarithmic, but percents go from 0 to 100; sizes and threads have powers of two as marks, counts
those of ten, the last one always. Values that are not positive are left out.
"""
import math
import shutil
import subprocess
from dataclasses import dataclass, field

import frame
from frame import WIDE, Frame
from units import BYTES, PERCENT, THREADS, mark_text

PLOT_TIMEOUT_S = 30
MARKERS_MAX = 20  # on one curve
MARGIN = 1.05     # around the marks of an axis

# Styles of curves, so that these can be told apart without colours: markers of solid ones are
# filled, of others hollow. BROAD is a pale band behind the others, LIMIT a grey line without
# markers.
SOLID, DASHED, DOTTED, BROAD, LIMIT = "solid", "dashed", "dotted", "broad", "limit"
DASHES = {SOLID: "1", DASHED: "(9,6)", DOTTED: "(2,4)"}
# Distinct for most eyes, and on light as on dark ground (Paul Tol's "bright", and what fits it).
COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#ee7733", "#999999")
FILLED_MARKERS = (7, 5, 9, 13, 11, 15)
HOLLOW_MARKERS = (6, 4, 8, 12, 10, 14)


class PlotError(Exception):
    """A plot that cannot be drawn."""


@dataclass
class Axis:
    label: str
    unit: str


@dataclass
class Curve:
    name: str
    points: dict                               # x -> value
    line: str = SOLID
    colour: int = -1                           # a family has one; -1: by the place of the curve
    upper: dict = field(default_factory=dict)  # with the points, the edges of a pale band

    def drawn(self):
        """(x, value) in order."""
        return [(x, value) for x, value in sorted(self.points.items())
                if x > 0 and 0 < value < math.inf]

    def marker(self, place):
        """Empty for lines that have none."""
        if self.line in (BROAD, LIMIT):
            return ""
        markers = FILLED_MARKERS if self.line == SOLID else HOLLOW_MARKERS
        return f"pt {markers[self.colour_at(place) % len(markers)]} ps 0.7"

    def style(self, place):
        if self.line == BROAD:
            return "lw 9 lc rgb '#cccccc'"
        if self.line == LIMIT:
            return "lw 2 dt (2,4) lc rgb '#888888'"
        return f"lw 2 dt {DASHES[self.line]} lc rgb '{self.rgb(place)}'"

    def colour_at(self, place):
        return place if self.colour < 0 else self.colour

    def rgb(self, place):
        return COLOURS[self.colour_at(place) % len(COLOURS)]


@dataclass
class Plot:
    id: str  # letters and digits, unique in the page
    title: str
    x: Axis
    y: Axis
    curves: list = field(default_factory=list)
    mark_at: float = 0       # a vertical line at this x, unless 0
    draws_title: bool = True  # else it is in the description alone

    def drawn(self):
        """Curves without points are left out."""
        return [curve for curve in self.curves if curve.drawn()]


def binary_marks(low, high, marks_max):
    """Powers of two, with as many left out between two marks as must be; the last is one of them.
    """
    first, last = math.floor(math.log2(low)), math.ceil(math.log2(high))
    step = max(1, -(-(last - first) // marks_max))
    powers = range(first, last - (step + 1) // 2 + 1, step)
    return [2.0 ** power for power in (*powers, last)]


def decimal_marks(low, high):
    """1, 2 and 5 times the powers of ten around the range, or the powers alone where these are
    enough."""
    digits = (1,) if high / low > 300 else (1, 2, 5)
    powers = range(math.floor(math.log10(low)), math.floor(math.log10(high)) + 2)
    marks = [digit * 10.0 ** power for power in powers for digit in digits]
    below = max((mark for mark in marks if mark <= low), default=marks[0])
    above = min((mark for mark in marks if mark >= high), default=marks[-1])
    return [mark for mark in marks if below <= mark <= above]


def marks_of(unit, low, high, marks_max):
    if unit in (BYTES, THREADS):
        return binary_marks(low, high, marks_max)
    return list(range(0, 101, 20)) if unit == PERCENT else decimal_marks(low, high)


def quoted(words):
    """A string for gnuplot; characters that it cannot hold become spaces."""
    return '"' + "".join(" " if c in '"\\\n' else c for c in words) + '"'


def axis_script(name, axis, values, marks_max):
    low, high = min(values), max(values)
    marks = marks_of(axis.unit, low, high, marks_max)
    texts = ", ".join(f'"{mark_text(mark, axis.unit)}" {mark:.17g}' for mark in marks)
    script = f"set {name}tics ({texts})\n"
    if axis.unit == PERCENT:
        return script + f"unset logscale {name}\nset {name}range [0:104]\n"
    return script + (f"set logscale {name}\nset {name}range [{min(marks[0], low) / MARGIN:.17g}:"
                     f"{max(marks[-1], high) * MARGIN:.17g}]\n")


def legend_script(curves, places):
    """gnuplot's own key keeps no columns where it is put below the plot."""
    script = ""
    for number, curve in enumerate(curves):
        left, middle = places.entry_left(number), places.entry_middle(number)
        end = left + places.across(frame.SAMPLE)
        script += (f"set arrow from screen {left:.6f}, screen {middle:.6f} to screen {end:.6f}, "
                   f"screen {middle:.6f} nohead {curve.style(number)}\n")
        if marker := curve.marker(number):
            script += (f'set label "" at screen {left + places.across(frame.SAMPLE // 2):.6f}, '
                       f"screen {middle:.6f} point {marker} lc rgb '{curve.rgb(number)}'\n")
        script += (f"set label {quoted(curve.name)} at screen "
                   f"{left + places.across(frame.SAMPLE + frame.SAMPLE_GAP):.6f}, screen "
                   f"{middle:.6f} left\n")
    return script


def head_script(plot, places):
    script = (f"set terminal svg size {places.width},{places.height} dynamic noenhanced "
              f"font 'sans-serif,{places.layout.font}'\n"
              "set grid lw 0.5 lc rgb '#888888'\nset border 3 lw 1\nset tics nomirror out\n"
              f"set lmargin at screen {places.left:.6f}\nset rmargin at screen {places.right:.6f}\n"
              f"set tmargin at screen {places.top:.6f}\nset bmargin at screen {places.bottom:.6f}\n"
              f"unset key\nset xlabel {quoted(plot.x.label)} offset 0,0.3\n"
              f"set label 1 {quoted(plot.y.label)} at screen 0.01, screen {places.label_top:.6f} "
              "left\n")
    if plot.mark_at > 0:
        script += (f"set arrow from first {plot.mark_at:.17g}, graph 0 to first "
                   f"{plot.mark_at:.17g}, graph 1 nohead dt (4,4) lc rgb '#888888' back\n")
    if plot.draws_title:
        script += f"set label 2 {quoted(plot.title)} at screen 0.01, screen 0.97 left\n"
    return script


def script_of(plot, layout):
    curves = plot.drawn()
    points = [point for curve in curves for point in curve.drawn()]
    places = Frame(plot, layout)
    script = head_script(plot, places) + legend_script(curves, places)
    for name, axis, values in zip("xy", (plot.x, plot.y), zip(*points)):
        script += axis_script(name, axis, values, layout.marks_max)
    bands, lines = [], []
    for number, curve in enumerate(curves):
        # Beside each point the upper edge, where there is one.
        rows = [f"{x:.17g} {value:.17g} {curve.upper.get(x, value):.17g}\n"
                for x, value in curve.drawn()]
        script += f"$curve{number} << EOD\n{''.join(rows)}EOD\n"
        if curve.upper:
            bands.append(f"$curve{number} using 1:2:3 with filledcurves fs transparent solid 0.18 "
                         f"noborder lc rgb '{curve.rgb(number)}'")
        marker = curve.marker(number)
        style = curve.style(number) if not marker else \
            f"{curve.style(number)} {marker} pi {len(curve.points) // MARKERS_MAX + 1}"
        kind = "linespoints" if marker else "lines"
        lines.append(f"$curve{number} using 1:2 with {kind} {style}")
    return f"{script}plot {', '.join(bands + lines)}\n"


def escaped(words):
    """As it stands in HTML and XML: `<` is `&lt;`."""
    for from_, to in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;")):
        words = words.replace(from_, to)
    return words


def as_element(svg, plot):
    """The element alone; its names are those of this plot, black is the colour of the page's text.
    It says in words what it shows, instead of gnuplot's own title and description."""
    begin = svg.find("<svg")
    if begin < 0 or "</svg>" not in svg:
        raise PlotError("gnuplot drew no picture; is its svg terminal missing?")
    svg = svg[begin:]
    for name in ("gpDot", "gpPt", "gnuplot_", "textbox", "greybox"):
        svg = svg.replace(name, plot.id + name)
    for black in ('"black"', "'black'"):
        svg = svg.replace(black, '"currentColor"')
    for black in ("rgb(  0,   0,   0)", "rgb(0,0,0)"):
        svg = svg.replace(black, "currentColor")
    title = f"<title>{escaped(plot.title)}</title>"
    names = ", ".join(curve.name for curve in plot.drawn())
    described = escaped(f"{plot.y.label} over {plot.x.label}: {names}")
    head, found, rest = svg.partition("<title>Gnuplot</title>")
    _, has_end, behind = rest.partition("</desc>")
    if found and has_end:
        svg = f"{head}{title}\n<desc>{described}</desc>{behind}"
    return f'<svg role="img" aria-label="{escaped(plot.title)}"{svg.removeprefix("<svg")}'


def check_has_gnuplot():
    if shutil.which("gnuplot") is None:
        raise PlotError("gnuplot, which draws the plots, is not installed (apt-get install "
                        "gnuplot-nox)")


def svg_of(plot, layout=WIDE):
    """The element. Raises PlotError when gnuplot is missing or fails, or there is no curve."""
    if not plot.drawn():
        raise PlotError(f"plot '{plot.title}' has nothing to show")
    check_has_gnuplot()
    drawn = subprocess.run(["gnuplot"], input=script_of(plot, layout), capture_output=True,
                           text=True, timeout=PLOT_TIMEOUT_S, check=False)
    if drawn.returncode != 0:
        raise PlotError(f"gnuplot: {drawn.stderr}")
    return as_element(drawn.stdout, plot)


def svg_file_of(plots):
    """The plots one below the other as a file of its own, dark on white."""
    pictures, top = "", 0
    for plot in plots:
        height = Frame(plot, WIDE).height
        pictures += (f'<svg y="{top}" width="{WIDE.width}" height="{height}">\n{svg_of(plot)}'
                     "</svg>\n")
        top += height
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDE.width}" height="{top}" '
            'color="black">\n<rect width="100%" height="100%" fill="white"/>\n'
            f"{pictures}</svg>\n")

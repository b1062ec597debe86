#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""draw.py [--check] [OUT]: draws the pictures of the pages from their sources in this folder.

NAME.dot is drawn by Graphviz, NAME.msc (a message sequence chart) by mscgen. The result, NAME.svg
in OUT or beside its source, follows the reader's choice of light or dark, and has the title and the
alternative text that the source states in its comments. --check needs neither program: it tells
which pictures in this folder were drawn from another source, or by another draw.py."""
import argparse
import hashlib
import html
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
TOOLS = {".dot": ["dot", "-Tsvg"], ".msc": ["mscgen", "-T", "svg", "-o", "-"]}
LIGHT = {"ground": "#ffffff", "border": "#d0d7de", "text": "#1f2328", "line": "#57606a"}
DARK = {"ground": "#0d1117", "border": "#30363d", "text": "#e6edf3", "line": "#9198a1"}
# Fills that sources use, and what they are in the dark.
FILLS = {"#ddf4ff": "#0c2d4d", "#fff8c5": "#3b2e00", "#f6f8fa": "#21262d"}
EDGE = 12  # around the drawing


def style(colours, fills):
    rules = [f".ground{{fill:{colours['ground']};stroke:{colours['border']}}}",
             f"text{{fill:{colours['text']};font-family:sans-serif}}",
             f'[stroke="black"]{{stroke:{colours["line"]}}}',
             f'[fill="black"]:not(text){{fill:{colours["line"]}}}',
             f'[fill="white"]{{fill:{colours["ground"]}}}']
    rules += [f'[fill="{name}"]{{fill:{fill}}}' for name, fill in fills.items()]
    return "\n".join(rules)


def stated(source, word):
    found = re.search(rf"^(?://|#) {word}: (.*)$", source, re.MULTILINE)
    if not found:
        raise SystemExit(f"draw.py: a source states no {word}")
    return html.escape(found[1])


def mark_of(source):
    """What tells a picture of this source from others."""
    text = Path(__file__).read_bytes() + source.read_bytes()
    return f"<!-- {source.name}: {hashlib.sha256(text).hexdigest()[:16]} -->"


def without_masks(svg):
    """mscgen blanks the ground of a text, which here goes above its arrow instead; and it gives a
    text the width of a font that the reader may not have."""
    svg = re.sub(r'<text x="(\d+)" (y="\d+" )textLength="(\d+)"(?![^>]*anchor)',
                 lambda match: f'<text x="{int(match[1]) + int(match[3]) // 2}" {match[2]}'
                               'text-anchor="middle"', svg)
    svg = re.sub(r'<polygon[^>]*/>\s*(?=<text)', "", svg)
    levels = set(re.findall(r'<line x1="\d+" y1="(\d+)" x2="\d+" y2="\1"', svg))

    def lifted(match):
        above = int(match[2]) - 4 if str(int(match[2]) + 1) in levels else int(match[2])
        return f"{match[1]}{above}"
    svg = re.sub(r'(<text x="\d+" y=")(\d+)', lifted, svg)
    return re.sub(r'(#[0-9A-F]{6})"', lambda match: match[0].lower(), svg)


def drawn(source):
    text = source.read_text(encoding="utf-8")
    svg = subprocess.run([*TOOLS[source.suffix], *(["-i", "-"] if source.suffix == ".msc" else [])],
                         input=text, capture_output=True, text=True, check=True).stdout
    if source.suffix == ".msc":
        svg = without_masks(svg)
    left, top, width, height = map(float, re.search(r'viewBox="([^"]*)"', svg)[1].split())
    body = re.search(r"<svg[^>]*>(.*)</svg>", svg, re.DOTALL)[1]
    body = re.sub(r"<!--.*?-->|<title>.*?</title>| textLength=\"\d+\"| font-family=\"[^\"]*\"|"
                  r"<polygon fill=\"white\" stroke=\"transparent\"[^>]*/>", "", body,
                  flags=re.DOTALL)
    body = "\n".join(line for line in body.splitlines() if line.strip())
    box = (left - EDGE, top - EDGE, width + 2 * EDGE, height + 2 * EDGE)
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="{' '.join(f'{side:g}' for side in box)}" \
width="{box[2]:g}" role="img" aria-labelledby="t d">
{mark_of(source)}
<title id="t">{stated(text, 'title')}</title>
<desc id="d">{stated(text, 'alt')}</desc>
<style>
{style(LIGHT, {})}
@media (prefers-color-scheme: dark) {{
{style(DARK, FILLS)}
}}
</style>
<rect class="ground" x="{box[0] + 0.5:g}" y="{box[1] + 0.5:g}" width="{box[2] - 1:g}" \
height="{box[3] - 1:g}" rx="6"/>
{body}
</svg>
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="draw nothing")
    parser.add_argument("out", nargs="?", type=Path, default=HERE)
    arguments = parser.parse_args()
    sources = sorted(path for path in HERE.iterdir() if path.suffix in TOOLS)
    if not arguments.check:
        arguments.out.mkdir(parents=True, exist_ok=True)
        for source in sources:
            (arguments.out / f"{source.stem}.svg").write_text(drawn(source), encoding="utf-8")
        return 0
    old = [source for source in sources if not (HERE / f"{source.stem}.svg").is_file() or
           mark_of(source) not in (HERE / f"{source.stem}.svg").read_text(encoding="utf-8")]
    for source in old:
        print(f"docs/pictures/{source.stem}.svg is not drawn from {source.name}: run draw.py")
    return 1 if old or not sources else 0


if __name__ == "__main__":
    sys.exit(main())

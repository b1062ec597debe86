# SPDX-License-Identifier: BSD-3-Clause
"""Cost of a message over its size, by protocol, from what `tagwire explain --json` writes.

As a program it reads that from standard input and writes the plots of all transports in it to
standard output, as one SVG file; `tagwire explain --plot` runs it so."""
import json
import sys

from plot import BROAD, DASHED, SOLID, Axis, Curve, Plot, PlotError, svg_file_of
from units import BYTES, NANOSECONDS

POWERS = 26
STEPS_OF_POWER = 8
# As smooth curves need them; `tagwire explain --plot` takes the same.
CURVE_SIZES = sorted({(1 << power) + (1 << power) * step // STEPS_OF_POWER
                      for power in range(POWERS) for step in range(STEPS_OF_POWER)} | {1 << POWERS})


def cost_of(size, name):
    """None where the protocol cannot carry the size."""
    return next((one["ns"] for one in size["protocols"]
                 if one["name"] == name and one["obstacle"] is None), None)


def curve_of(rail, name):
    costs = {size["size"]: cost_of(size, name) for size in rail["sizes"]}
    return Curve(name, {at: ns for at, ns in costs.items() if ns is not None},
                 DASHED if name.startswith("rndv") else SOLID)


def plot_of(rail, plot_id):
    """rail: a member of "transports"."""
    begin = rail["rndv_from"]
    threshold = "" if begin is None else f", rendezvous from {begin} bytes"
    costs = "modelled" if rail["source"] is None else "measured"
    chosen = {size["size"]: next(one["ns"] for one in size["protocols"]
                                 if one["name"] == size["protocol"]) for size in rail["sizes"]}
    names = [one["name"] for one in rail["sizes"][0]["protocols"]]
    curves = [Curve("chosen", chosen, BROAD),
              *(curve for curve in (curve_of(rail, name) for name in names) if curve.points)]
    return Plot(plot_id, f"{rail['transport']}:{rail['device']}{threshold} ({costs})",
                Axis("message size (bytes)", BYTES), Axis("cost of a message", NANOSECONDS), curves,
                begin or 0)


def main():
    rails = json.load(sys.stdin)["transports"]
    try:
        print(svg_file_of([plot_of(rail, f"plot{number}") for number, rail in enumerate(rails)]),
              end="")
    except PlotError as problem:
        sys.exit(str(problem))


if __name__ == "__main__":
    main()

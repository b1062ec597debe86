# SPDX-License-Identifier: BSD-3-Clause
"""The place of everything around a plot and of its legend, whose pixels count from the top left."""
from dataclasses import dataclass

TITLE_HEIGHT = 26
SAMPLE = 40      # of a line in the legend
SAMPLE_GAP = 8   # behind it
ENTRY_GAP = 24   # between two columns
COLUMNS_MAX = 4
CHARACTER_WIDTH = 0.55  # of the font's size


@dataclass(frozen=True)
class Layout:
    """Pixels of a plot and of what stands around it."""
    width: int
    height: int  # without the legend
    left: int
    right: int
    top: int
    bottom: int
    font: int
    legend_line: int
    marks_max: int  # on an axis of sizes


WIDE = Layout(800, 410, 90, 30, 44, 72, 15, 24, 10)
NARROW = Layout(380, 310, 76, 22, 40, 64, 13, 21, 6)  # fits a phone


class Frame:
    """Places are parts of gnuplot's screen, which is 1 wide and 1 high, from the bottom left
    corner."""

    def __init__(self, plot, layout):
        self.layout = layout
        names = [len(curve.name) for curve in plot.drawn()]
        name = int(max(names, default=1) * layout.font * CHARACTER_WIDTH)
        self.entry = SAMPLE + SAMPLE_GAP + ENTRY_GAP + name
        fitting = (layout.width - layout.left + ENTRY_GAP) // self.entry
        self.columns = min(max(1, min(fitting, COLUMNS_MAX)), max(len(names), 1))
        rows = -(-len(names) // self.columns)
        self.legend_height = rows * layout.legend_line + layout.font // 2
        self.top_pixels = layout.top + (TITLE_HEIGHT if plot.draws_title else 0)
        self.width = layout.width
        self.height = layout.height + self.top_pixels - layout.top + self.legend_height
        self.left = self.across(layout.left)
        self.right = self.across(layout.width - layout.right)
        self.top = self.down(self.top_pixels)
        self.bottom = self.down(self.height - self.legend_height - layout.bottom)
        self.label_top = self.down(self.top_pixels - layout.font * 4 // 3)

    def entry_left(self, place):
        """The left end of the entry at this place of the legend."""
        return self.across(self.layout.left + place % self.columns * self.entry)

    def entry_middle(self, place):
        line = self.layout.legend_line
        return self.down(self.height - self.legend_height + place // self.columns * line +
                         line // 2)

    def across(self, pixels):
        return pixels / self.width

    def down(self, pixels):
        return 1 - pixels / self.height

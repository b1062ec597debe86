# SPDX-License-Identifier: BSD-3-Clause
"""Units of plotted values, and values as texts of tables and of axes."""

BYTES, COUNT, THREADS, PERCENT = "bytes", "count", "threads", "%"
NANOSECONDS, PER_SECOND, BYTES_PER_SECOND = "ns", "1/s", "B/s"
BASELESS = (BYTES, COUNT, THREADS)  # numbers of things: no unit stands behind them

BINARY = ((1, ""), (1 << 10, "k"), (1 << 20, "m"), (1 << 30, "g"))
DECIMAL = ((1, ""), (1e3, "k"), (1e6, "M"), (1e9, "G"))
SCALES = {
    NANOSECONDS: ((1, " ns"), (1e3, " us"), (1e6, " ms"), (1e9, " s")),
    PER_SECOND: ((1, " /s"), (1e3, " k/s"), (1e6, " M/s"), (1e9, " G/s")),
    BYTES_PER_SECOND: ((1, " B/s"), (1e3, " kB/s"), (1e6, " MB/s"), (1e9, " GB/s")),
}


def step_of(value, scale, nearly):
    """(factor, name) of the last step that `value` reaches, or nearly does."""
    return next((step for step in reversed(scale) if value >= step[0] * nearly), scale[0])


def mark_text(value, unit):
    """Of an axis, for gnuplot."""
    if unit == PERCENT:
        return f"{value:g} %%"  # gnuplot takes it for a format
    if unit == THREADS:
        return f"{value:g}"
    scale = {BYTES: BINARY, COUNT: DECIMAL}.get(unit) or SCALES[unit]
    factor, name = step_of(value, scale, 0.999)
    return f"{value / factor:g}{name}"


def size_name(size):
    for factor, name in reversed(BINARY):
        if size % factor == 0 and size >= factor:
            return f"{size // factor}{name}"
    return f"{size}"


def value_text(value, unit):
    """"1.25 us", "3.1 GB/s", "64k": a value of a table, three digits."""
    if unit == BYTES:
        return size_name(int(value))
    if unit in BASELESS:
        return f"{value:.0f}"
    if unit == PERCENT:
        return f"{value:.0f} %"
    # 999.7 ns is 1.00 us: a value that would be rounded to four digits belongs to the next step.
    factor, name = step_of(value, SCALES[unit], 0.9995)
    shown = value / factor
    digits = 0 if shown >= 99.95 else 1 if shown >= 9.995 else 2
    return f"{shown:.{digits}f}{name}"

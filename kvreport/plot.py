"""Geometry of the boundary chart, in the subset of Python that is translated for the browser.

Pages draw the chart when the site is built, and again in the browser when a reader changes something:
both place their points with these functions. Positions are in the drawing's own units.
"""

from __future__ import annotations

import math
from typing import Final

PLOT_LEFT: Final = 58
PLOT_RIGHT: Final = 168
"""Room to the right of the axes, where lines have their names."""
PLOT_RIGHT_NARROW: Final = 14
PLOT_TOP: Final = 22
PLOT_BOTTOM: Final = 46
PLOT_WIDTH: Final = 860
PLOT_HEIGHT: Final = 360
PLOT_NARROW: Final = 560
"""Below this width the names of lines stand in a list under the drawing."""
PLOT_WIDTH_NARROW: Final = 360
PLOT_HEIGHT_NARROW: Final = 300
PLOT_TICK_WIDTH: Final = 57
PLOT_TICK_HEIGHT: Final = 36
"""Least room of a tick's label along an axis."""
LABEL_GAP: Final = 15
"""Least distance between the names of two lines."""
CHOSEN_WIDTH: Final = 7.5
CHOSEN_HEIGHT: Final = 17
"""Room of the chosen case's figures: for each character, and in height."""
CHOSEN_AWAY: Final = 9
"""Distance of the figures from their point."""
CHOSEN_STEP: Final = 12
CHOSEN_STEPS: Final = 8
"""Where lines pass on every side of the point: how far off the figures are tried, and how often, to each side."""
CHOSEN_CROSSING: Final = 40
"""Distance that one line less between the figures and their point is worth."""


def log_place(value: float, low: float, high: float, length: float) -> float:
    """Return where a value lies on a logarithmic axis, from its beginning; tenths are kept."""
    if value <= low:
        return 0.0
    if value >= high:
        return length
    return round(10 * length * math.log2(value / low) / math.log2(high / low)) / 10


def top_of(most: float) -> float:
    """Return the upper end of an axis whose largest value is ``most``."""
    return max(2.0, most * 1.25)


def first_power(low: float) -> int:
    """Return the exponent of the smallest power of two from ``low`` on."""
    exponent = 0
    while 2**exponent < low:
        exponent += 1
    return exponent


def tick_stride(low: float, high: float, room: float) -> int:
    """Return how many octaves there are between two ticks of an axis that has room for so many."""
    octaves = math.log2(high / low)
    return max(1, math.ceil(octaves / room))


def overlaps(
    start: float,
    start_y: float,
    end: float,
    end_y: float,
    left: float,
    top: float,
    width: float,
    height: float,
) -> bool:
    """Say whether a piece of a line, given from left to right, passes through a box."""
    low, high = max(start, left), min(end, left + width)
    if low > high or start >= end:
        return False
    slope = (end_y - start_y) / (end - start)
    first, last = start_y + slope * (low - start), start_y + slope * (high - start)
    if max(first, last) <= top:
        return False
    return min(first, last) < top + height


def crosses(
    start: float,
    start_y: float,
    end: float,
    end_y: float,
    left: float,
    left_y: float,
    right: float,
    right_y: float,
) -> bool:
    """Say whether two pieces of lines cross; pieces that only touch do not."""
    run, rise = end - start, end_y - start_y
    first = run * (left_y - start_y) - rise * (left - start)
    last = run * (right_y - start_y) - rise * (right - start)
    width, slope = right - left, right_y - left_y
    before = width * (start_y - left_y) - slope * (start - left)
    after = width * (end_y - left_y) - slope * (end - left)
    if first * last >= 0:
        return False
    return before * after < 0


def label_place(wanted: float, before: float) -> float:
    """Return where a label stands that comes after another one: where it wants to, or below that."""
    return max(wanted, before + LABEL_GAP)

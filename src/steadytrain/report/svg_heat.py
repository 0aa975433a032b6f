"""Heat maps and histograms as static SVG, with the cells as an embedded PNG.

Text colours are CSS classes of the page; cell colours are the same in its light and dark scheme. Absent cells are
transparent: the page's hatching shows through.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from html import escape

import numpy as np

from steadytrain.report import histograms
from steadytrain.report.colours import NOT_FINITE_COLOUR, Palette, heat_palette, hexadecimal, scale
from steadytrain.report.heat import HIGHEST, LOWEST, Heat
from steadytrain.report.histograms import Histogram
from steadytrain.report.png import data_address
from steadytrain.report.svg import Scale, step_labels
from steadytrain.report.wording import number

WIDTH = 860
LEFT_MIN, LEFT_MAX, RIGHT, TOP, BOTTOM = 64, 226, 10, 4, 22
CHARACTER_WIDTH = 6.2
"""Upper estimate of a label's character width: the average width of the letters of a name in the usual fonts."""

HEIGHT_WANTED = 640.0
ROW_HEIGHT_MIN, ROW_HEIGHT_MAX = 3.0, 15.0
LABEL_HEIGHT = 11.5
BIN_LABEL_DISTANCE = 20.0

HISTOGRAM_WIDTH, HISTOGRAM_HEIGHT, HISTOGRAM_LEFT = 260, 130, 40

HEAT_PALETTE = heat_palette()
_SWATCH = '<svg class="swatch" viewBox="0 0 9 9"><rect width="9" height="9" '
_BIN_NAMES = {"zero": "0", "below": "less", "above": "more", "nonfinite": "✗"}


def row_height(heat: Heat) -> float:
    """The height of a row."""
    return min(ROW_HEIGHT_MAX, max(ROW_HEIGHT_MIN, HEIGHT_WANTED / len(heat.rows)))


def labels_width(heats: Iterable[Heat]) -> int:
    """Width of the layer names on the left, the same for all drawings so that their steps line up."""
    longest = max((len(row.label) + 2 * row.not_finite for heat in heats for row in heat.rows), default=0)
    return min(LEFT_MAX, max(LEFT_MIN, math.ceil(12 + CHARACTER_WIDTH * longest)))


def drawing(heat: Heat, across: Scale, *, left: int) -> str:
    """``heat`` with the names of its rows in a margin of ``left`` and steps below. ``across`` places a step."""
    each = row_height(heat)
    # The cell of a step is centred on it, like the point of a curve.
    start, stop = across(heat.starts[0] - 0.5), across(heat.end - 0.5)
    whole = across(heat.starts[-1] - 0.5) - start
    height = each * len(heat.rows)
    picture = data_address(heat.levels, HEAT_PALETTE)
    box = f'x="{start:.1f}" y="{TOP}" width="{stop - start:.1f}" height="{height:.1f}"'
    parts = [
        f'<svg class="heat" viewBox="0 0 {WIDTH} {TOP + height + BOTTOM:.1f}" role="img" '
        f'aria-label="{escape(heat.title)}, each layer over the steps">',
        f'<rect class="absent" {box}/>',
        # The inner drawing cuts off what the last column has past the last step.
        f'<svg {box}><image class="cells" width="{whole:.1f}" height="{height:.1f}" '
        f'preserveAspectRatio="none" href="{picture}"/></svg>',
        *_rows(heat, each, left),
        *step_labels(heat.starts[0], heat.end - 1, across, TOP + height + 15, WIDTH),
        "</svg>",
    ]
    return "\n".join(parts)


def legend(heat: Heat) -> str:
    """Explain the colours of ``heat``."""
    bar = data_address(np.arange(LOWEST, HIGHEST + 1, dtype=np.uint8)[None, :], HEAT_PALETTE)
    magenta = hexadecimal(np.array([NOT_FINITE_COLOUR], np.uint8))[0]
    return (
        f'<span>{number(heat.low)} <img class="bar" src="{bar}" alt="to"> {number(heat.high)}</span> '
        f'<span>{_SWATCH}fill="{magenta}"/></svg> {escape(heat.not_finite)}</span> '
        f'<span>{_SWATCH}class="absent"/></svg> not measured</span>'
    )


def histogram_drawing(histogram: Histogram) -> str:
    """One histogram over the steps, with small magnitudes at the bottom."""
    box = f'x="{HISTOGRAM_LEFT}" width="{HISTOGRAM_WIDTH - HISTOGRAM_LEFT}" height="{HISTOGRAM_HEIGHT}"'
    return (
        f'<svg class="small" viewBox="0 0 {HISTOGRAM_WIDTH} {HISTOGRAM_HEIGHT}"><rect {box}/>'
        f'<image {box} preserveAspectRatio="none" href="{data_address(histogram.levels, _HISTOGRAM_PALETTE)}"/>'
        f"{''.join(_bin_labels(histogram))}</svg>"
    )


def labelled_rows(heat: Heat) -> list[int]:
    """The rows with room for their name: non-finite ones first, then evenly from the top."""
    each = row_height(heat)
    every = max(1, round(LABEL_HEIGHT / each + 0.49))
    rows = range(len(heat.rows))
    taken: set[int] = set()
    for row in [*(row for row in rows if heat.rows[row].not_finite), *rows[::every], *rows]:
        if not any(other in taken for other in range(row - every + 1, row + every)):
            taken.add(row)
    return sorted(taken)


def _rows(heat: Heat, each: float, left: int) -> list[str]:
    """Row names that fit, and for each row a transparent strip whose tooltip gives its largest value."""
    names = [
        f'<text class="tick{" bad" if heat.rows[row].not_finite else ""}" x="{left - 6}" '
        f'y="{TOP + (row + 0.5) * each + 3.8:.1f}" text-anchor="end">'
        f"{'✗ ' if heat.rows[row].not_finite else ''}{escape(heat.rows[row].label)}</text>"
        for row in labelled_rows(heat)
    ]
    strips = [
        f'<rect x="0" y="{TOP + index * each:.1f}" width="{WIDTH - RIGHT}" height="{each:.1f}">'
        f"<title>{escape(row.title)}</title></rect>"
        for index, row in enumerate(heat.rows)
    ]
    return [*names, '<g class="strips">', *strips, "</g>"]


def _bin_labels(histogram: Histogram) -> list[str]:
    """The names of the bins that have room."""
    each = HISTOGRAM_HEIGHT / len(histogram.bins)
    found, free_from = [], 0.0
    for row, name in enumerate(histogram.bins):
        y = (row + 0.5) * each
        if y >= free_from:
            label = escape(_BIN_NAMES.get(name, name))
            height = min(max(y + 4, 9), HISTOGRAM_HEIGHT - 1)
            found.append(f'<text x="{HISTOGRAM_LEFT - 4}" y="{height:.0f}">{label}</text>')
            free_from = y + BIN_LABEL_DISTANCE
    return found


def _histogram_palette() -> Palette:
    palette = np.zeros((histograms.NOT_FINITE + 1, 4), np.uint8)
    steps = slice(histograms.LOWEST, histograms.HIGHEST + 1)
    palette[steps, :3] = scale(histograms.HIGHEST - histograms.LOWEST + 1)
    palette[steps, 3] = 255
    palette[histograms.NOT_FINITE] = (*NOT_FINITE_COLOUR, 255)
    return palette


_HISTOGRAM_PALETTE = _histogram_palette()

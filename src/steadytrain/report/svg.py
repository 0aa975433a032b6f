"""A curve as a static SVG: for paper, without scripts, or if bokeh is not installed.

Colours are CSS classes of the page, so they follow its light or dark scheme.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from steadytrain.core.model import SEVERITIES
from steadytrain.report.report_values import SymptomRow
from steadytrain.report.thinned_curves import Curve
from steadytrain.report.wording import number

_TICKS = 5
FLOAT32_DIGITS = 1e-6
"""Two values closer than this share of their size differ by rounding only."""

LABEL_CHARACTER = 6.4
LABEL_LINE = 12.0
LABELS_MAX = 6
LABEL_ROWS_MAX = 3
"""Names of bands that overlap stand above each other, so far as this."""

Scale = Callable[[float], float]


@dataclass(frozen=True)
class Frame:
    """Size of a drawing, and its margins."""

    width: int
    height: int
    left: int = 76
    right: int = 10
    top: int = 14
    bottom: int = 24
    room: int = 8
    """Distance of the curve from the upper and lower edge."""

    def across(self, first: float, last: float) -> Scale:
        return scale_to(first, last, self.left, self.width - self.right)

    def up(self, curve: Curve) -> Scale:
        """The scale from values of ``curve`` to heights. On a logarithmic axis only positive values have one."""
        low, high = self.height - self.bottom - self.room, self.top + self.room
        drawn = [value for value in curve.values if math.isfinite(value) and (value > 0 or not curve.logarithmic)]
        if not drawn:
            return lambda value: self.height - self.bottom
        if curve.logarithmic:
            inner = scale_to(math.log(min(drawn)), math.log(max(drawn)), low, high)
            return lambda value: inner(math.log(value))
        return scale_to(min(drawn), max(drawn), low, high)


WIDE = Frame(860, 190)
HALF = Frame(430, 140)
SMALL = Frame(260, 56, left=1, right=1, top=1, bottom=1, room=6)


def drawing(
    curve: Curve, symptoms: Sequence[SymptomRow], frame: Frame = WIDE, *, span: tuple[float, float] | None = None
) -> str:
    """``curve`` with ``symptoms`` as vertical bands and non-finite values as crosses at the top edge.

    ``span`` gives the steps at the left and right edge, by default those of the curve.
    """
    first, last = min(curve.steps), max(curve.steps)
    left, right = span or (first, last)
    across, up = frame.across(left, right), frame.up(curve)
    edges = {"first": left, "last": right, "left": frame.left}
    edges |= {"right": frame.width - frame.right, "top": frame.top, "bottom": frame.height - frame.bottom}
    parts = [
        _opening("curve", curve, frame, edges),
        *_bands(symptoms, first, last, across, frame),
        *_axes(curve, first, last, across, up, frame),
        *_line(curve, across, up, digits=1),
        *_drawn_labels(symptoms, first, last, across, frame),
        *_crosses(curve, across, frame),
        "</svg>",
    ]
    return "\n".join(parts)


def small_drawing(curve: Curve) -> str:
    """``curve`` alone, with its range in the caption: cheap enough for thousands of layers.

    Integer coordinates, each relative to the one before, halve the size.
    """
    across, up = SMALL.across(curve.steps[0], curve.steps[-1]), SMALL.up(curve)
    path, bad, before, x, y = [], [], False, 0, 0
    for step, value in zip(curve.steps, curve.values, strict=True):
        drawn = math.isfinite(value) and (value > 0 or not curve.logarithmic)
        to_x, to_y = round(across(step)), round(up(value)) if drawn else y
        if drawn:
            # A round line of zero length draws a point between two gaps.
            path.append(f"l{to_x - x} {to_y - y}" if before else f"M{to_x} {to_y}h0")
            x, y = to_x, to_y
        elif not math.isfinite(value):
            bad.append(f"M{to_x} 1v7")
        before = drawn
    marks = f'<path class="bad" d="{"".join(bad)}"/>' if bad else ""
    return f'<svg class="small" viewBox="0 0 {SMALL.width} {SMALL.height}"><path d="{"".join(path)}"/>{marks}</svg>'


def step_labels(first: int, last: int, across: Scale, y: float, right: float) -> list[str]:
    """Labels of round steps along the lower edge of a drawing of width ``right``."""
    parts = []
    for step in dict.fromkeys(round(value) for value in _nice_ticks(first, last)):
        anchor = "end" if across(step) > right - 30 else "middle"
        parts.append(f'<text class="tick" x="{across(step):.1f}" y="{y:.1f}" text-anchor="{anchor}">{step:,}</text>')
    return parts


def scale_to(low: float, high: float, start: float, stop: float) -> Scale:
    """A linear map of ``low .. high`` to ``start .. stop``, or to the middle if the range is empty."""
    span = high - low
    if span <= 0 or not math.isfinite(span):
        return lambda value: (start + stop) / 2
    return lambda value: start + (value - low) / span * (stop - start)


def _opening(kind: str, curve: Curve, frame: Frame, edges: Mapping[str, float]) -> str:
    """``edges`` are the steps and the places of the drawn area, for what a script adds (``step_link.js``)."""
    label = f"{escape(curve.title)} over the steps"
    data = " ".join(f'data-{name}="{value}"' for name, value in edges.items())
    size = f'viewBox="0 0 {frame.width} {frame.height}"'
    return f'<svg class="{kind}" {size} role="img" aria-label="{label}" {data}>'


def _bands(symptoms: Sequence[SymptomRow], first: int, last: int, across: Scale, frame: Frame) -> list[str]:
    parts = []
    for symptom in by_severity(symptoms):
        if symptom.last_step < first or symptom.first_step > last:
            continue
        left, right = across(max(first, symptom.first_step)), across(min(last, symptom.last_step))
        parts.append(
            f'<rect class="band {escape(symptom.severity)}" x="{left - 1:.1f}" y="{frame.top}" '
            f'width="{right - left + 2:.1f}" height="{frame.height - frame.top - frame.bottom}">'
            f"<title>{escape(symptom.name)}, {escape(symptom.steps)}</title></rect>"
        )
    return parts


def by_severity(symptoms: Sequence[SymptomRow]) -> list[SymptomRow]:
    """The gravest last, so that it is drawn over the others."""
    return sorted(symptoms, key=lambda symptom: SEVERITIES.index(symptom.severity))


@dataclass(frozen=True)
class BandLabel:
    """The name of a symptom beside its band: its left edge, and its row from the bottom."""

    symptom: SymptomRow
    left: float
    row: int


def band_labels(
    symptoms: Sequence[SymptomRow], first: int, last: int, across: Scale, frame: Frame
) -> tuple[BandLabel, ...]:
    """The names of the symptoms where they begin, the gravest first and lowest, as far as there is room."""
    rows: list[list[tuple[float, float]]] = [[] for _ in range(LABEL_ROWS_MAX)]
    placed: list[BandLabel] = []
    for symptom in reversed(by_severity(symptoms)):
        if symptom.last_step < first or symptom.first_step > last or len(placed) == LABELS_MAX:
            continue
        width = LABEL_CHARACTER * len(symptom.name)
        left = min(across(max(first, symptom.first_step)) + 3, frame.width - frame.right - width)
        free = (
            row
            for row, taken in enumerate(rows)
            if not any(left < stop and start < left + width for start, stop in taken)
        )
        row = next(free, None)
        if left < frame.left or row is None:
            continue
        rows[row].append((left, left + width))
        placed.append(BandLabel(symptom, left, row))
    return tuple(placed)


def _drawn_labels(symptoms: Sequence[SymptomRow], first: int, last: int, across: Scale, frame: Frame) -> list[str]:
    return [
        f'<text class="tick named {escape(label.symptom.severity)}" x="{label.left:.1f}" '
        f'y="{frame.height - frame.bottom - 4 - LABEL_LINE * label.row:.1f}">{escape(label.symptom.name)}</text>'
        for label in band_labels(symptoms, first, last, across, frame)
    ]


def _axes(curve: Curve, first: int, last: int, across: Scale, up: Scale, frame: Frame) -> list[str]:
    parts = []
    left, right = frame.left, frame.width - frame.right
    for value in _value_ticks(curve):
        y = up(value)
        parts.append(f'<line class="grid" x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick" x="{left - 6}" y="{y + 3.5:.1f}" text-anchor="end">{number(value)}</text>')
    return [*parts, *step_labels(first, last, across, frame.height - 7, frame.width)]


def _line(curve: Curve, across: Scale, up: Scale, *, digits: int) -> list[str]:
    """The finite segments. A non-finite value (or a non-positive one on a log axis) breaks the line."""
    path, dots, open_length = [], [], 0
    points = [*zip(curve.steps, curve.values, strict=True), (0, math.nan)]
    for index, (step, value) in enumerate(points):
        if not math.isfinite(value) or (curve.logarithmic and value <= 0):
            if open_length == 1:
                dots.append(points[index - 1])
            open_length = 0
            continue
        path.append(f"{'L' if open_length else 'M'}{across(step):.{digits}f} {up(value):.{digits}f}")
        open_length += 1
    return [
        f'<path class="line" d="{"".join(path)}"/>',
        *(f'<circle class="dot" cx="{across(step):.1f}" cy="{up(value):.1f}" r="1.8"/>' for step, value in dots),
    ]


def _crosses(curve: Curve, across: Scale, frame: Frame) -> list[str]:
    bad = [(step, value) for step, value in zip(curve.steps, curve.values, strict=True) if not math.isfinite(value)]
    return [
        f'<text class="cross" x="{across(step):.1f}" y="{frame.top + 4}" text-anchor="middle">✗'
        f"<title>step {step:,}: {number(value)}</title></text>"
        for step, value in bad
    ]


def _value_ticks(curve: Curve) -> list[float]:
    finite = [value for value in curve.values if math.isfinite(value)]
    drawn = [value for value in finite if value > 0] if curve.logarithmic else finite
    return ticks_between(min(drawn), max(drawn), logarithmic=curve.logarithmic) if drawn else []


def ticks_between(low: float, high: float, *, logarithmic: bool = False) -> list[float]:
    """Round values to label an axis with. ``low`` is above zero on a logarithmic one."""
    if not logarithmic:
        return _nice_ticks(low, high)
    decades = range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)
    if len(decades) >= 2:
        return [10.0**power for power in decades[:: max(1, len(decades) // _TICKS)]]
    # Less than two decades: label 1, 2 and 5 of each.
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [base * 10.0**power for power in powers for base in (1, 2, 5) if low <= base * 10.0**power <= high]


def _nice_ticks(low: float, high: float) -> list[float]:
    """Round values between ``low`` and ``high``, about ``_TICKS`` of them; ``low`` alone if both nearly coincide."""
    if not high - low > FLOAT32_DIGITS * max(abs(low), abs(high)):
        return [low]
    raw = (high - low) / _TICKS
    size = 10.0 ** math.floor(math.log10(raw))
    width = next((base * size for base in (1, 2, 5) if base * size >= raw), 10 * size)
    return [index * width for index in range(math.ceil(low / width), math.floor(high / width) + 1)]

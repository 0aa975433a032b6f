"""A curve as a static SVG: what a page shows on paper, without scripts, or where bokeh is not installed.

Colours are classes of the page, so that they follow its light or dark scheme.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

from steadytrain.report.curves import Curve
from steadytrain.report.values import SymptomRow
from steadytrain.report.wording import number

WIDTH, HEIGHT = 860, 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 10, 14, 24
_TICKS = 5

Scale = Callable[[float], float]


def drawing(curve: Curve, symptoms: Sequence[SymptomRow]) -> str:
    """``curve`` with ``symptoms`` as vertical bands and what is not finite as crosses at the top edge."""
    first, last = min(curve.steps), max(curve.steps)
    across = _scale(first, last, _LEFT, WIDTH - _RIGHT)
    up = _vertical(curve)
    label = f"{escape(curve.title)} over the steps"
    parts = [
        f'<svg class="curve" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">',
        *_bands(symptoms, first, last, across),
        *_axes(curve, first, last, across, up),
        *_line(curve, across, up),
        *_crosses(curve, across),
        "</svg>",
    ]
    return "\n".join(parts)


def _bands(symptoms: Sequence[SymptomRow], first: int, last: int, across: Scale) -> list[str]:
    parts = []
    for symptom in symptoms:
        if symptom.last_step < first or symptom.first_step > last:
            continue
        left, right = across(max(first, symptom.first_step)), across(min(last, symptom.last_step))
        parts.append(
            f'<rect class="band {escape(symptom.severity)}" x="{left - 1:.1f}" y="{_TOP}" '
            f'width="{right - left + 2:.1f}" height="{HEIGHT - _TOP - _BOTTOM}">'
            f"<title>{escape(symptom.name)}, {escape(symptom.steps)}</title></rect>"
        )
    return parts


def _axes(curve: Curve, first: int, last: int, across: Scale, up: Scale) -> list[str]:
    parts = []
    for value in _value_ticks(curve):
        y = up(value)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick" x="{_LEFT - 6}" y="{y + 3.5:.1f}" text-anchor="end">{number(value)}</text>')
    for step in dict.fromkeys(round(value) for value in _nice_ticks(first, last)):
        anchor = "end" if across(step) > WIDTH - 40 else "middle"
        parts.append(
            f'<text class="tick" x="{across(step):.1f}" y="{HEIGHT - 7}" text-anchor="{anchor}">{step:,}</text>'
        )
    return parts


def _line(curve: Curve, across: Scale, up: Scale) -> list[str]:
    """The finite stretches; a value that is not finite (or that a log axis lacks) breaks the line."""
    path, dots, open_length = [], [], 0
    points = [*zip(curve.steps, curve.values, strict=True), (0, math.nan)]
    for index, (step, value) in enumerate(points):
        if not math.isfinite(value) or (curve.logarithmic and value <= 0):
            if open_length == 1:
                dots.append(points[index - 1])
            open_length = 0
            continue
        path.append(f"{'L' if open_length else 'M'}{across(step):.1f} {up(value):.1f}")
        open_length += 1
    return [
        f'<path class="line" d="{"".join(path)}"/>',
        *(f'<circle class="dot" cx="{across(step):.1f}" cy="{up(value):.1f}" r="1.8"/>' for step, value in dots),
    ]


def _crosses(curve: Curve, across: Scale) -> list[str]:
    bad = [(step, value) for step, value in zip(curve.steps, curve.values, strict=True) if not math.isfinite(value)]
    return [
        f'<text class="cross" x="{across(step):.1f}" y="{_TOP + 4}" text-anchor="middle">✗'
        f"<title>step {step:,}: {number(value)}</title></text>"
        for step, value in bad
    ]


def _vertical(curve: Curve) -> Scale:
    positive = [value for value in curve.values if math.isfinite(value) and (value > 0 or not curve.logarithmic)]
    if not positive:
        return lambda value: HEIGHT - _BOTTOM
    if curve.logarithmic:
        inner = _scale(math.log(min(positive)), math.log(max(positive)), HEIGHT - _BOTTOM - 6, _TOP + 10)
        return lambda value: inner(math.log(value))
    return _scale(min(positive), max(positive), HEIGHT - _BOTTOM - 6, _TOP + 10)


def _value_ticks(curve: Curve) -> list[float]:
    finite = [value for value in curve.values if math.isfinite(value)]
    if not curve.logarithmic:
        return _nice_ticks(min(finite), max(finite)) if finite else []
    low, high = min(value for value in finite if value > 0), max(finite)
    decades = range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)
    if len(decades) >= 2:
        return [10.0**power for power in decades[:: max(1, len(decades) // _TICKS)]]
    # Less than two decades: 1, 2 and 5 of each.
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [base * 10.0**power for power in powers for base in (1, 2, 5) if low <= base * 10.0**power <= high]


def _nice_ticks(low: float, high: float) -> list[float]:
    """Round values between ``low`` and ``high``, about ``_TICKS`` of them; both ends when they nearly meet."""
    if not high - low > 1e-12 * max(abs(low), abs(high)):
        return [low]
    raw = (high - low) / _TICKS
    size = 10.0 ** math.floor(math.log10(raw))
    width = next((base * size for base in (1, 2, 5) if base * size >= raw), 10 * size)
    return [index * width for index in range(math.ceil(low / width), math.floor(high / width) + 1)]


def _scale(low: float, high: float, start: float, stop: float) -> Scale:
    """A linear map of ``low .. high`` to ``start .. stop``; to the middle when the range is empty."""
    span = high - low
    if span <= 0 or not math.isfinite(span):
        return lambda value: (start + stop) / 2
    return lambda value: start + (value - low) / span * (stop - start)

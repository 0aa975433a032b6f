"""Render a comparison of runs as one self-contained HTML page that opens offline, loads nothing and runs no script.

The page shows the result of ``compare.runs``. It computes nothing except where a point lies on the page.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from html import escape

import numpy as np
from markupsafe import Markup

from steadytrain.compare.circumstances import Entry
from steadytrain.compare.run_groups import Comparison, Member, Pair
from steadytrain.compare.seed_noise import Noise
from steadytrain.core.model import Series
from steadytrain.report.first_screen import StatusWord
from steadytrain.report.result_page import ResultPage, Section, Severity, render
from steadytrain.report.svg import Frame, scale_to, step_labels, ticks_between
from steadytrain.report.thinned_curves import curve, spans_decades
from steadytrain.report.wording import clean, count, enumerated, number
from steadytrain.storage.documents import redact_value

COLOURS = ("#1f6feb", "#c2410c", "#15803d", "#9333ea", "#b45309", "#0e7490", "#be185d", "#57534e")
RUNS_DRAWN_MAX = 24
NAMES_SHOWN_MAX = 4
ENTRIES_SHOWN_MAX = 200
POINTS_MAX = 1500
FRAME = Frame(860, 260)
DOTS = Frame(860, 0, left=150, right=20, top=14, bottom=26)
ROW_HEIGHT = 34

HEADLINES = {
    "equal": "Bit-identical",
    "differ": "The runs differ",
    "no-difference": "No difference beyond seed noise",
    "cannot-tell": "Cannot tell",
}
SEVERITIES: Mapping[str, Severity] = {
    "equal": "silent",
    "differ": "warning",
    "no-difference": "silent",
    "cannot-tell": "note",
}
STATUS = {
    "equal": StatusWord("equal in every bit that both recorded", "good"),
    "differ": StatusWord("different", "bad"),
    "no-difference": StatusWord("no difference was shown", "good"),
    "cannot-tell": StatusWord("not known", "unsure"),
}


def page(comparison: Comparison, *, version: str) -> str:
    """The page of ``comparison``. ``version`` is the version of steadytrain that writes it."""
    comparison = redact_value(comparison)
    colours = _colours(comparison.members)
    drawings = [
        _losses(comparison, colours),
        *(_tails(comparison, noise, colours) for noise in comparison.groups),
        *(_difference(comparison, pair) for pair in comparison.pairs if not pair.equal),
        *(_entries(pair.left, pair.right, pair.entries) for pair in comparison.pairs),
        _entries("first group", "other group", comparison.entries) if comparison.groups else "",
        _runs(comparison.members, colours),
    ]
    names = [clean(name) for name in dict.fromkeys(member.group or member.run.name for member in comparison.members)]
    lines = headline(comparison)
    shown = ResultPage(
        kind=f"Comparison of {enumerated(names, NAMES_SHOWN_MAX)}",
        severity=SEVERITIES[comparison.verdict],
        status=(STATUS[comparison.verdict],),
        headline=HEADLINES[comparison.verdict],
        sentences=(*lines, *outcomes(comparison), *map(clean, comparison.notes)),
        command=f"steadytrain report {shlex.quote(str(comparison.members[-1].run.path))}",
        sections=(Section("Curves and settings", drawing=Markup(f'<div class="compared">{"".join(drawings)}</div>')),),
    )
    return render(shown, version=version)


def headline(comparison: Comparison) -> list[str]:
    """The result in one sentence per pair of runs or question. The terminal shows the same sentences."""
    return [*(_pair_line(pair) for pair in comparison.pairs), *(_noise_line(noise) for noise in comparison.groups)]


def outcomes(comparison: Comparison) -> list[str]:
    """How each run ended and its gravest symptom, a line each, unless they are alike."""
    told = [_outcome(member) for member in comparison.members]
    if len(set(told)) == 1 or len(told) > RUNS_DRAWN_MAX:
        return []
    return [f"{clean(member.run.name)}: {said}" for member, said in zip(comparison.members, told, strict=True)]


def _outcome(member: Member) -> str:
    at = f" at step {count(int(member.loss.steps[-1]))}" if len(member.loss) else ""
    found = member.gravest
    seen = "no alarm" if found is None else f"{found.severity} {clean(found.name)} at step {count(found.first_step)}"
    return f"{clean(member.run.state)}{at}, {seen}"


def _pair_line(pair: Pair) -> str:
    names = f"{clean(pair.left)} and {clean(pair.right)}"
    first = pair.agreement.first
    if first is None:
        return f"{names}: equal in all {pair.agreement.shared_steps:,} shared steps, in every bit that both recorded"
    what = f"{first.signal} of {clean(first.tensor)}" if first.tensor is not None else first.signal
    more = f" (and {first.also_count:,} more tensors)" if first.also_count else ""
    stream = "" if first.stream == "main" else f", stream {clean(first.stream)}"
    return (
        f"{names}: diverge at step {first.step:,}{stream}, phase {first.phase}: {what}{more} is {first.left:.9g} and "
        f"{first.right:.9g}"
    )


def _noise_line(noise: Noise) -> str:
    line = f"{clean(noise.left)} and {clean(noise.right)}: {clean(noise.why)}"
    if noise.interval is None:
        return line
    low, high = noise.interval
    line += f" (difference {noise.difference:+.4g}, interval {low:+.4g} to {high:+.4g}, p {number(noise.p or 0.0)}"
    if noise.effect is not None and noise.effect_interval is not None:
        line += f", effect {noise.effect:+.2f}, {noise.effect_interval[0]:+.2f} to {noise.effect_interval[1]:+.2f}"
    return line + f"; {noise.method}, {len(noise.left_values)} and {len(noise.right_values)} runs)"


def _colours(members: Sequence[Member]) -> list[str]:
    """One colour per group if there are groups, else one per run."""
    groups = list(dict.fromkeys(member.group for member in members))
    return [
        COLOURS[(groups.index(member.group) if member.group is not None else at) % len(COLOURS)]
        for at, member in enumerate(members)
    ]


def _losses(comparison: Comparison, colours: Sequence[str]) -> str:
    members = comparison.members[:RUNS_DRAWN_MAX]
    drawn = [(member.loss, colour) for member, colour in zip(members, colours, strict=False) if len(member.loss)]
    marks = [pair.agreement.first.step for pair in comparison.pairs if pair.agreement.first is not None]
    keys = dict.fromkeys(
        (clean(member.group or member.run.name), colour) for member, colour in zip(members, colours, strict=False)
    )
    legend = " &nbsp; ".join(
        f'<span class="swatch" style="background:{colour}"></span>{escape(name)}' for name, colour in keys
    )
    far = any(spans_decades(series.values) for series, _ in drawn)
    return f'<h3>Loss</h3><p class="small">{legend}</p>{lines(drawn, "loss", marks, logarithmic=far)}' if drawn else ""


def _difference(comparison: Comparison, pair: Pair) -> str:
    by_name = {member.run.name: member.loss for member in comparison.members}
    left, right = by_name[pair.left], by_name[pair.right]
    steps, at, other = np.intersect1d(left.steps, right.steps, return_indices=True)
    apart = np.abs(right.values[other] - left.values[at])
    here = np.isfinite(apart) & (apart > 0)
    if not here.any():
        return ""
    drawing = lines([(Series(steps[here], apart[here]), COLOURS[0])], "difference of the losses", [], logarithmic=True)
    names = f"{escape(clean(pair.left))} and {escape(clean(pair.right))}"
    return f"<h3>Difference of the losses of {names}</h3>{drawing}"


def lines(drawn: Sequence[tuple[Series, str]], title: str, marks: Sequence[int], *, logarithmic: bool = False) -> str:
    """Draw several series on the same axes. ``marks`` are steps with a dashed line."""
    thinned = [
        (found, colour) for series, colour in drawn if (found := curve(title, title, series, points_max=POINTS_MAX))
    ]
    points = [
        value
        for found, _ in thinned
        for value in found.values
        if math.isfinite(value) and (value > 0 or not logarithmic)
    ]
    if not points:
        return '<p class="small">no finite value to draw</p>'
    first, last = min(found.steps[0] for found, _ in thinned), max(found.steps[-1] for found, _ in thinned)
    across = FRAME.across(first, last)

    def height(value: float) -> float:
        return math.log10(value) if logarithmic else value

    low, high = min(points), max(points)
    up = scale_to(height(low), height(high), FRAME.height - FRAME.bottom - FRAME.room, FRAME.top + FRAME.room)
    label = f"{escape(title)} over the steps"
    parts = [f'<svg viewBox="0 0 {FRAME.width} {FRAME.height}" role="img" aria-label="{label}">']
    for value in ticks_between(low, high, logarithmic=logarithmic) or [low]:
        y = up(height(value))
        parts.append(f'<line class="grid" x1="{FRAME.left}" x2="{FRAME.width}" y1="{y:.1f}" y2="{y:.1f}"/>')
        shown = number(value)
        parts.append(f'<text class="tick" x="{FRAME.left - 6}" y="{y + 3.5:.1f}" text-anchor="end">{shown}</text>')
    for mark in marks:
        x = across(mark)
        parts.append(
            f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{FRAME.top}" y2="{FRAME.height - FRAME.bottom}">'
            f"<title>step {mark:,}</title></line>"
        )
    for found, colour in thinned:
        path, pen = [], "M"
        for step, value in zip(found.steps, found.values, strict=True):
            if not math.isfinite(value) or (logarithmic and value <= 0):
                pen = "M"
                continue
            path.append(f"{pen}{across(step):.1f} {up(height(value)):.1f}")
            pen = "L"
        parts.append(f'<path d="{"".join(path)}" stroke="{colour}"/>')
    return "\n".join([*parts, *step_labels(first, last, across, FRAME.height - 7, FRAME.width), "</svg>"])


def _tails(comparison: Comparison, noise: Noise, colours: Sequence[str]) -> str:
    """Draw each run's number as a dot, one row per group."""
    rows = [(noise.left, noise.left_values), (noise.right, noise.right_values)]
    values = [value for _, row in rows for value in row]
    if not values or comparison.tail is None:
        return ""
    of_group = {member.group: colour for member, colour in zip(comparison.members, colours, strict=True)}
    height = DOTS.top + ROW_HEIGHT * len(rows) + DOTS.bottom
    across = scale_to(min(values), max(values), DOTS.left, DOTS.width - DOTS.right)
    label = "mean loss of each run at the end"
    parts = [f'<svg viewBox="0 0 {DOTS.width} {height}" role="img" aria-label="{label}">']
    for at, (name, row) in enumerate(rows):
        y = DOTS.top + ROW_HEIGHT * (at + 0.5)
        parts.append(f'<line class="grid" x1="{DOTS.left}" x2="{DOTS.width - DOTS.right}" y1="{y}" y2="{y}"/>')
        shown = escape(clean(name))
        parts.append(f'<text class="tick" x="{DOTS.left - 12}" y="{y + 4}" text-anchor="end">{shown}</text>')
        colour = of_group.get(name, COLOURS[0])
        parts += [
            f'<circle cx="{across(value):.1f}" cy="{y}" r="5" fill="{colour}" fill-opacity=".7">'
            f"<title>{number(value)}</title></circle>"
            for value in row
        ]
    for value in dict.fromkeys((min(values), max(values))):
        x = across(value)
        parts.append(f'<text class="tick" x="{x:.1f}" y="{height - 8}" text-anchor="middle">{number(value)}</text>')
    first, last = comparison.tail
    return f"<h3>Mean loss over steps {first:,} to {last:,}, one dot per run</h3>" + "\n".join([*parts, "</svg>"])


def _entries(left: str, right: str, entries: Sequence[Entry]) -> str:
    rows = [
        f"<tr><td>{escape(clean(entry.name))}</td><td>{_cell(entry.left)}</td><td>{_cell(entry.right)}</td></tr>"
        for entry in entries[:ENTRIES_SHOWN_MAX]
    ]
    title = "<h3>Different settings</h3>"
    if not rows:
        return f"{title}<p>No recorded entry of configuration or environment differs.</p>"
    more = len(entries) - ENTRIES_SHOWN_MAX
    tail = f'<p class="small">and {more:,} more; --json lists all</p>' if more > 0 else ""
    heads = f"<tr><th>Entry</th><th>{escape(clean(left))}</th><th>{escape(clean(right))}</th></tr>"
    return f"{title}<table>{heads}{''.join(rows)}</table>{tail}"


def _cell(value: str | None) -> str:
    return '<span class="small">absent</span>' if value is None else escape(clean(value, length_max=400))


def _runs(members: Sequence[Member], colours: Sequence[str]) -> str:
    rows = [
        f'<tr><td><span class="swatch" style="background:{colour}"></span>{escape(clean(member.run.name))}</td>'
        f"<td>{escape(clean(member.group or ''))}</td><td>{escape(clean(member.seed or ''))}</td>"
        f"<td>{len(member.loss):,}</td><td>{escape(clean(member.run.ended or 'not recorded'))}</td>"
        f"<td>{'' if member.tail is None else number(member.tail)}</td></tr>"
        for member, colour in zip(members, colours, strict=True)
    ]
    heads = "".join(f"<th>{head}</th>" for head in ("Run", "Group", "Seed", "Losses", "Ended", "Loss at the end"))
    return f"<h3>Runs</h3><table><tr>{heads}</tr>{''.join(rows)}</table>"

"""A run, an incident or a diagnosis as a small piece of HTML for notebooks: the first screen of its page.

The piece has no script and no style sheet, and loads nothing. A notebook may be light or dark, and does not say which:
text has the notebook's own colour, and what is coloured has its own background.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Sequence
from functools import singledispatch
from html import escape
from pathlib import Path
from urllib.parse import quote

from steadytrain.core.errors import UsageError
from steadytrain.core.incident import Incident
from steadytrain.core.notebook import Drawing
from steadytrain.core.own_command import pasteable
from steadytrain.diagnosis.answer import Diagnosis
from steadytrain.report import build, diagnosis_shown
from steadytrain.report.first_screen import (
    FirstScreen,
    FixCard,
    StatusWord,
    Tone,
    WhereCard,
    WhyCard,
    headline,
    where_card,
    why_card,
)
from steadytrain.report.incidents_shown import incident_verdict
from steadytrain.report.report_values import Report
from steadytrain.report.svg import Scale, scale_to
from steadytrain.report.thinned_curves import Curve
from steadytrain.report.wording import Fact, clean, number
from steadytrain.storage.bundle import is_bundle, open_for_report
from steadytrain.storage.documents import redact_value
from steadytrain.storage.run_folder import Run, open_run

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 680, 110, 80, 18, 8
TICK_STEPS_MIN = 2
CALLS = ("diagnose", "locate", "replay", "report")
"""Commands that are functions of the same name, and take the same target."""

BACKGROUNDS: dict[Tone, str] = {"good": "#1b6e43", "bad": "#b3261e", "changed": "#8a5200", "unsure": "#51606f"}
"""White text has a contrast of 6 to 1 on each."""

CERTAIN: dict[str, Tone] = {"confirmed": "bad", "likely": "changed", "possible": "unsure", "unknown": "unsure"}
_LINES = "margin:.25em 0;overflow-wrap:anywhere"
_PRE = (
    "margin:.3em 0;padding:.4em .6em;background:rgba(127,127,127,.14);border-radius:4px;font-size:.9em;"
    "white-space:pre-wrap;overflow-wrap:anywhere;color:inherit"
)
_FRAME = "border:1px solid rgba(127,127,127,.45);border-radius:6px;padding:.6em .9em;max-width:60em;margin:.3em 0"


@singledispatch
def card(value: object) -> str:
    """The HTML of a run, an incident or a diagnosis."""
    raise TypeError(f"no card for {type(value).__name__}")


@card.register
def of_run(run: Run) -> str:
    return of_report(build.from_run(run))


@card.register
def of_incident(incident: Incident) -> str:
    first = FirstScreen(
        status=(),
        headline=incident_verdict(incident),
        certainty="",
        where=where_card(incident.finding, incident.symptoms, None),
        why=why_card(None, incident.symptoms),
        fix=None,
        loss=None,
        evidence=(),
    )
    return _screen(f"Incident at step {incident.step:,} of {clean(incident.run)}", redact_value(first), ())


@card.register
def of_diagnosis(diagnosis: Diagnosis) -> str:
    """The first screen of what was diagnosed, if it is still there; else what the diagnosis itself says."""
    try:
        return of_report(_report_at(Path(diagnosis.incident)), title=f"Diagnosis of {clean(diagnosis.incident)}")
    except (UsageError, OSError):
        told = diagnosis_shown.part(diagnosis)
        text, certainty = headline(told, diagnosis.verdict)
        alone = FirstScreen((), text, certainty, where_card(None, (), told), why_card(told, ()), None, None, ())
        return _screen(f"Diagnosis of {clean(diagnosis.incident)}", redact_value(alone), ())


def of_report(report: Report, *, title: str = "") -> str:
    """The first screen of ``report``."""
    shown = redact_value(report)
    assert shown.first is not None
    return _screen(title or shown.title, shown.first, shown.summary)


def page_card(shown: Report, file: str) -> str:
    """The first screen of a page that was written to ``file``, with a link to it. ``shown`` is redacted."""
    assert shown.first is not None
    link = f'<a href="{escape(quote(file))}" target="_blank">{escape(file)}</a>'
    end = f'<div style="margin-top:.6em">The whole page: {link}</div>'
    return _screen(shown.title, shown.first, shown.summary, end)


def curves_of(run: Run, stream: str) -> Drawing:
    """The curves of a stream, with its symptoms as bands.

    Raises:
        UsageError: the run has no such stream.
    """
    if stream not in run.streams():
        raise UsageError(f"{run.path}: no stream {stream!r}; it has: {', '.join(run.streams()) or 'none'}")
    report = redact_value(build.from_run(run, stream=stream))
    bands = [(one.first_step, one.last_step, one.name) for one in report.symptoms]
    drawn = [_figure(one, bands) for one in report.curves]
    title = f"<b>{escape(report.title)}</b>"
    return Drawing(f"Curves of {run.name}", _block(title, *(drawn or ["<div>No step was recorded.</div>"])))


def _report_at(path: Path) -> Report:
    return build.from_bundle(open_for_report(path)) if is_bundle(path) else build.from_run(open_run(path))


def _screen(title: str, first: FirstScreen, summary: Sequence[str], end: str = "") -> str:
    sure = f"{pill(first.certainty, CERTAIN[first.certainty])} " if first.certainty else ""
    return _block(
        f'<div style="opacity:.8;font-size:.9em">{escape(title)}</div>',
        *_status(first.status),
        f'<div style="font-size:1.1em;font-weight:600;{_LINES}">{sure}{escape(first.headline)}</div>',
        *(f'<div style="{_LINES}">{escape(sentence)}</div>' for sentence in summary),
        *_where(first.where),
        *_why(first.why),
        *_fix(first.fix),
        *([_figure(first.loss, ())] if first.loss is not None else ()),
        end,
    )


def pill(text: str, tone: Tone, sign: str = "") -> str:
    """A word on a coloured ground; its sign or its text says the same as its colour."""
    style = f"background:{BACKGROUNDS[tone]};color:#fff;border-radius:1em;padding:.1em .6em;font-size:.85em"
    style += ";display:inline-block;line-height:1.5"
    return f'<span style="{style}">{escape(f"{sign} {text}".strip())}</span>'


def _status(words: Iterable[StatusWord]) -> list[str]:
    shown = " ".join(pill(word.text, word.tone, word.sign) for word in words)
    return [f'<div style="line-height:1.9">{shown}</div>'] if shown else []


def _where(where: WhereCard | None) -> list[str]:
    if where is None:
        return []
    lines = [f"{'▸' if one.marked else ' '}{one.number or '':>5}  {one.text}" for one in where.source]
    code = f'<pre style="{_PRE}">{escape(chr(10).join(lines))}</pre>' if lines else ""
    return [_part("Where", f'<div style="{_LINES}">{escape(where.line)}</div>{code}{_facts(where.facts)}')]


def _why(why: WhyCard | None) -> list[str]:
    if why is None:
        return []
    items = "".join(f'<div style="{_LINES}">{escape(line)}</div>' for line in why.lines)
    rows = f'<pre style="{_PRE}">{escape(chr(10).join(why.rows))}</pre>' if why.rows else ""
    return [_part("Why", items + rows)]


def _fix(fix: FixCard | None) -> list[str]:
    if fix is None:
        return []
    works = f"{pill('seen to work', 'good', '✓')} " if fix.works else ""
    diff = f'<pre style="{_PRE}">{escape(chr(10).join(fix.diff))}</pre>' if fix.diff else ""
    effect = f'<div style="{_LINES}">{escape(fix.effect)}</div>' if fix.effect else ""
    call = f'<pre style="{_PRE}">{escape(python_call(fix.command))}</pre>' if fix.command else ""
    return [_part("Fix", f'<div style="{_LINES}">{works}{escape(fix.what)}</div>{diff}{effect}{call}')]


def python_call(line: str) -> str:
    """A command line as it is given in a cell: as a call of the function, or as a command after ``!``."""
    words = shlex.split(line)
    if len(words) == 3 and words[1] in CALLS and not words[2].startswith("-"):
        return f"steadytrain.{words[1]}({words[2]!r})"
    return f"!{pasteable(line)}"


def _facts(facts: Sequence[Fact]) -> str:
    return "".join(
        f'<div style="{_LINES}"><span style="opacity:.8">{escape(fact.label)}:</span> {escape(fact.value)}</div>'
        for fact in facts
    )


def _part(title: str, inside: str) -> str:
    return f'<div style="margin-top:.6em"><b>{title}</b>{inside}</div>'


def _block(*parts: str) -> str:
    return f'<div style="{_FRAME}">{"".join(parts)}</div>'


def _figure(drawn: Curve, bands: Sequence[tuple[int, int, str]]) -> str:
    bad = f", {drawn.not_finite:,} not finite (✗)" if drawn.not_finite else ""
    axis = ", log" if drawn.logarithmic else ""
    named = ", ".join(dict.fromkeys(name for *_, name in bands))
    marked = f"; grey: {named}" if named else ""
    caption = f"{drawn.title}{axis}{bad}{marked}"
    return f'<div style="margin-top:.6em">{escape(caption)}</div>{_drawing(drawn, bands)}'


def _drawing(drawn: Curve, bands: Sequence[tuple[int, int, str]]) -> str:
    """``drawn`` in the colour of the text, its bands behind it."""
    first, last = drawn.steps[0], drawn.steps[-1]
    across, up = scale_to(first, last, LEFT, WIDTH - 8), _up(drawn)
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(drawn.title)}" '
        f'style="width:100%;max-width:{WIDTH}px;display:block" font-size="11" fill="currentColor">'
    ]
    for start, stop, name in bands:
        if stop < first or start > last:
            continue
        left, right = across(max(first, start)), across(min(last, stop))
        parts.append(
            f'<rect x="{left - 1:.1f}" y="{TOP}" width="{right - left + 2:.1f}" height="{HEIGHT - BOTTOM - TOP}" '
            f'fill-opacity=".16"><title>{escape(name)}</title></rect>'
        )
    parts.append(f'<path d="{_path(drawn, across, up)}" fill="none" stroke="currentColor" stroke-width="1.3"/>')
    for step, value in zip(drawn.steps, drawn.values, strict=True):
        if not math.isfinite(value):
            parts.append(f'<text x="{across(step):.1f}" y="{TOP + 9}" text-anchor="middle">✗</text>')
    if drawn.smallest is not None and drawn.largest is not None:
        for value in dict.fromkeys((drawn.smallest, drawn.largest)):
            if value > 0 or not drawn.logarithmic:
                parts.append(f'<text x="{LEFT - 6}" y="{up(value) + 4:.1f}" text-anchor="end">{number(value)}</text>')
    parts.append(f'<text x="{LEFT}" y="{HEIGHT - 4}">step {first:,}</text>')
    if last - first >= TICK_STEPS_MIN:
        parts.append(f'<text x="{WIDTH - 8}" y="{HEIGHT - 4}" text-anchor="end">{last:,}</text>')
    return "".join([*parts, "</svg>"])


def _up(drawn: Curve) -> Scale:
    low, high = HEIGHT - BOTTOM - 6, TOP + 6
    finite = [one for one in drawn.values if math.isfinite(one) and (one > 0 or not drawn.logarithmic)]
    if not finite:
        return lambda value: low
    if drawn.logarithmic:
        inner = scale_to(math.log(min(finite)), math.log(max(finite)), low, high)
        return lambda value: inner(math.log(value))
    return scale_to(min(finite), max(finite), low, high)


def _path(drawn: Curve, across: Scale, up: Scale) -> str:
    path, before = [], False
    for step, value in zip(drawn.steps, drawn.values, strict=True):
        here = math.isfinite(value) and (value > 0 or not drawn.logarithmic)
        if here:
            path.append(f"{'L' if before else 'M'}{across(step):.1f} {up(value):.1f}{'' if before else 'h0'}")
        before = here
    return "".join(path)

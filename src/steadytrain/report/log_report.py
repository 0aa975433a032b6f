"""Build a ``Report`` of a run that another tool logged: its curves with their symptoms, and what was not checked."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from steadytrain.core.metric_names import TIMES, is_loss, is_score, words
from steadytrain.core.model import Series, Symptom, Window, worst
from steadytrain.grouping import Judgement
from steadytrain.grouping.stories import capital
from steadytrain.logs.reader import Log
from steadytrain.report.report_values import Command, Report, SymptomRow
from steadytrain.report.symptoms_shown import SYMPTOMS_MAX, symptom_row
from steadytrain.report.thinned_curves import Curve, curve
from steadytrain.report.told_once import told_once
from steadytrain.report.wording import clean, count, facts_of

STORIES_MAX = 5
METRIC_CURVES_MAX = 6
LOGARITHMIC_RATIO = 8.0
"""A loss with a larger ratio of extremes gets a logarithmic axis: on a linear one its beginning, or one spike, would
flatten everything else. A loss falls from ln(50,000) = 10.8 to 2 by a factor of 5."""

_CURVES = (
    ("gradient_norm", "gradient norm", "log"),
    ("learning_rate", "learning rate", "linear"),
    ("loss_scale", "loss scale", "log"),
)


def from_log(log: Log, judgement: Judgement) -> Report:
    """The report of one run of a log."""
    window = log.window
    seen = [symptom for symptom, _ in told_once([(symptom, "") for symptom in judgement.symptoms])]
    facts = facts_of(
        ("log", log.source),
        ("format", log.kind),
        ("steps", steps_of(window)),
        ("detectors that looked", ", ".join(judgement.looked)),
    )
    notes = list(log.notes)
    if len(seen) > SYMPTOMS_MAX:
        notes.append(f"{len(seen)} symptoms were seen; the first {SYMPTOMS_MAX} are shown.")
    if judgement.not_run:
        notes.append(not_run(judgement.not_run))
    told = tuple(clean(story.text) for story in judgement.stories if story.severity != "note")
    why = clean(judgement.why)
    return Report(
        title=f"Run {clean(log.name)}",
        verdict=f"{judgement.health}: {why}" if told else judgement.health,
        # Only a run that was found healthy gets the colour of silence.
        severity=worst([symptom.severity for symptom in seen]) or ("note" if judgement.health == "unknown" else None),
        summary=told[:STORIES_MAX] or (f"{capital(why)}.",),
        facts=facts,
        brief=facts,
        curves=_curves(window),
        symptoms=tuple(map(_row, seen[:SYMPTOMS_MAX])),
        incidents=(),
        commands=tuple(
            Command("what it means", f"steadytrain explain {shlex.quote(name)}")
            for name in dict.fromkeys(symptom.name for symptom in seen)
        )[:3],
        notes=tuple(map(clean, notes)),
        environment=(),
    )


def steps_of(window: Window) -> str:
    """The number of steps in a window, and the step numbers of the log if those differ from the count."""
    if not len(window):
        return "none"
    first, last = int(window.steps[0]), int(window.steps[-1])
    numbers = f" (number {first} to {last})" if (first, last) != (1, len(window)) else ""
    return f"{count(len(window))}{numbers}"


def not_run(why: Mapping[str, str]) -> str:
    """One sentence for all detectors that could not run."""
    return f"{len(why)} detectors did not run, because the log lacks what they need: {', '.join(why)}."


def loss_curve(window: Window) -> Curve | None:
    """The loss, with the axis chosen by ``LOGARITHMIC_RATIO``."""
    loss = window.series("loss")
    finite = loss.values[np.isfinite(loss.values)]
    wide = len(finite) > 0 and float(finite.min()) > 0.0 and float(finite.max() / finite.min()) > LOGARITHMIC_RATIO
    return curve("loss", "loss", loss, scale="log" if wide else "linear")


def _curves(window: Window) -> tuple[Curve, ...]:
    drawn = [loss_curve(window)]
    drawn += [curve(name, title, window.series(name), scale=scale) for name, title, scale in _CURVES]
    telling = [name for name, series in window.metrics.items() if not set(words(name)) & TIMES and _moves(series)]
    telling.sort(key=lambda name: not (is_loss(name) or is_score(name)))
    drawn += [curve(name, clean(name), window.metrics[name]) for name in telling[:METRIC_CURVES_MAX]]
    return tuple(found for found in drawn if found is not None)


def _moves(series: Series) -> bool:
    return len(series) > 1 and bool((series.values != series.values[0]).any())


def _row(symptom: Symptom) -> SymptomRow:
    first, last = symptom.first_step, symptom.last_step  # as they are written in the log, without separators
    return replace(symptom_row(symptom), steps=f"step {first}" if first == last else f"steps {first} to {last}")

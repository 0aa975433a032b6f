"""The page of another tool's log: what it says of silence, which curves it draws, steps as the log writes them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from steadytrain.core.model import Series, Window
from steadytrain.grouping import catalog, judge
from steadytrain.logs import Log
from steadytrain.report.log_report import from_log
from steadytrain.report.report_values import Report
from steadytrain.testing.windows import steps

NOISE = np.random.default_rng(0).normal(0.0, 0.02, 1200)
FALLING = 2.0 + 3.0 * np.exp(-np.arange(1200) / 200) + NOISE


def report(window: Window, *notes: str) -> Report:
    return from_log(Log("run", Path("run.csv"), "csv", window, notes), judge(window, catalog.detectors()))


def test_silence_says_what_it_stands_on_and_only_health_has_its_colour() -> None:
    healthy, short = report(steps(loss=FALLING)), report(steps(loss=FALLING[:4]))
    assert (healthy.verdict, short.verdict) == ("healthy", "unknown")
    assert healthy.severity in (None, "note")
    assert short.severity == "note"
    assert "could look at 1,200 steps (loss) and saw nothing above a note" in healthy.summary[0]
    assert short.summary == ("4 losses are too few to say anything; 5 are the least.",)


def test_a_story_is_the_summary_and_steps_are_written_as_in_the_log() -> None:
    loss = FALLING.copy()
    loss[1100:] = np.nan
    sick = report(steps(loss=loss, first_step=10_000, stride=10), "Resumed at step 7.")
    assert sick.verdict == "sick: nonfinite-loss from step 21000"
    assert sick.summary == ("The loss is NaN from step 21000 to 21990.",)
    assert sick.severity == "critical"
    (row,) = [row for row in sick.symptoms if row.name == "nonfinite-loss"]
    assert row.steps == "steps 21000 to 21990"
    assert sick.facts[2].value == "1,200 (number 10000 to 21990)"
    assert sick.notes[0] == "Resumed at step 7."


def test_a_wide_loss_is_drawn_on_a_logarithmic_axis() -> None:
    spike = np.where(np.arange(1200) == 600, 7425.0, FALLING)
    assert [curve.logarithmic for curve in report(steps(loss=FALLING)).curves] == [False]
    assert [curve.logarithmic for curve in report(steps(loss=spike)).curves] == [True]
    assert [curve.logarithmic for curve in report(steps(loss=np.append(spike, 0.0))).curves] == [False]


def test_evaluations_are_drawn_before_other_numbers_and_times_are_not() -> None:
    at = np.arange(100, 1200, 100)
    names = ("eval_runtime", "layer_7", "eval_loss", "constant", "eval_accuracy")
    metrics = {name: Series(at, np.zeros(11) if name == "constant" else np.linspace(1, 2, 11)) for name in names}
    drawn = report(steps(loss=FALLING, metrics=metrics)).curves
    assert [curve.name for curve in drawn] == ["loss", "eval_loss", "eval_accuracy", "layer_7"]

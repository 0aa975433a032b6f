"""A loss that judges more values a sample from some step on rises by design."""

from __future__ import annotations

import pytest

from script_windows import looked
from steadytrain.core.model import Symptom, Window
from steadytrain.grouping.harmless import is_by_design
from steadytrain.grouping.judged_values import judged_change
from steadytrain.testing import steps
from steadytrain.testing.windows import table


def judged(*values: float) -> Window:
    return looked(400, judged__loss=list(values))


def rise(first: int, last: int, name: str = "divergence") -> Symptom:
    return Symptom(name, "warning", first, last, "the loss rises")


GROWN = judged(4, 4, 4, 16, 16, 16)
STEPS: list[int] = GROWN.tables["script"].steps.tolist()


def test_a_horizon_that_grows_explains_a_rise() -> None:
    at = STEPS[3]
    told = f"the loss judges 16 values a sample from step {at} on, 4 before"
    assert judged_change(GROWN, rise(at, at + 8)) == told
    assert is_by_design(GROWN, rise(at, at + 8)) == told
    assert is_by_design(GROWN, rise(at, at + 8, "loss-spike")) == told
    assert is_by_design(GROWN, rise(at, at + 8, "nonfinite-loss")) == ""


@pytest.mark.parametrize(
    "window",
    [
        judged(4, 4, 4, 4, 4, 4),
        judged(4, 4, 4, 4.5, 4.5, 4.5),
        judged(31, 87, 40, 160, 12, 55),  # sequences of any length
        looked(400),
    ],
)
def test_other_losses_explain_nothing(window: Window) -> None:
    assert judged_change(window, rise(1, 400)) == ""


def test_a_change_long_before_explains_nothing() -> None:
    assert judged_change(GROWN, rise(STEPS[3] + 100, STEPS[3] + 120)) == ""


def test_a_change_within_a_long_rise_does_not_explain_how_it_began() -> None:
    assert judged_change(GROWN, rise(STEPS[3] - 40, 400)) == ""
    assert judged_change(GROWN, rise(STEPS[3] - 10, 400)) != ""


@pytest.mark.parametrize(
    ("signal", "since", "explained"),
    [
        ("loss", 40.0, True),
        ("loss", 4000.0, False),
        ("learning_rate", 0.002, True),
        ("learning_rate", 0.1, False),
        ("parameter_norm", 2.0, True),
        ("parameter_norm", 40.0, False),
    ],
)
def test_what_runs_away_is_not_explained(signal: str, since: float, explained: bool) -> None:
    at = STEPS[3]
    series = {"loss": 2.0, "learning_rate": 0.001, "parameter_norm": 1.0}
    values = {
        name: [value] * (at - 1) + [since if name == signal else value] * (401 - at) for name, value in series.items()
    }
    window = steps(**values, tables=GROWN.tables)
    assert bool(judged_change(window, rise(at, 400))) is explained


def test_longer_batches_explain_a_short_rise_alone() -> None:
    tokens = [256.0] * 100 + [448.0] * 100
    window = steps(loss=[2.0] * 200, tokens=tokens)
    assert judged_change(window, rise(101, 111)) == "batches went from 256 to 448 tokens"
    assert judged_change(window, rise(101, 200)) == ""
    assert judged_change(window, rise(60, 70)) == ""


@pytest.mark.parametrize(
    ("rows", "end", "excused"),
    [
        ({"reversed_gradient__train.py:31": [1.0]}, 0.5, True),
        ({"reversed_gradient__train.py:31": [1.0]}, 2.8, False),
        ({}, 0.5, False),
    ],
    ids=["it came back", "it did not", "no adversary"],
)
def test_an_adversary_explains_a_rise_that_came_back(rows: dict[str, list[float]], end: float, excused: bool) -> None:
    window = looked(400, **rows)
    window.signals["loss"][:] = [0.4] * 99 + [3.0] * 60 + [end] * 241
    assert bool(is_by_design(window, rise(100, 140, "lost-progress"))) is excused


@pytest.mark.parametrize(
    ("at", "end", "steps_seen", "excused"),
    [(100, 0.5, 400, True), (100, 2.8, 400, False), (100, 2.8, 150, True), (200, 0.5, 400, False)],
    ids=["it came back", "it did not", "it has just begun", "long after"],
)
def test_a_training_on_other_data_begins_high(at: int, end: float, steps_seen: int, excused: bool) -> None:
    begun = {"other-data:AdamW": [1.0]}
    rise_to = [0.4] * (at - 1) + [3.0] * 60 + [end] * (341 - at)
    window = steps(loss=rise_to[:steps_seen], tables={"script": table("script", at=[99], value=begun)})
    assert bool(is_by_design(window, rise(at, at + 40, "lost-progress"))) is excused

"""Plain numbers of the script that changed near the onset, and those that only move."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from steadytrain.survey.calls import Calls
from steadytrain.survey.changed_settings import Settings
from steadytrain.trial_runs.changes.old_settings import OldSettings, _is_new

ONSET = 20
JITTER = [1.0, 0.7, 1.2, 0.9, 0.6, 1.1, 0.8]

SICK: dict[str, Callable[[int], float]] = {
    "raised": lambda step: 0.1 if step < ONSET else 60.0,
    "from nothing": lambda step: 0.0 if step < ONSET else 0.97,
    "annealed, then far": lambda step: 0.3 - 0.005 * step if step < ONSET else 1e-4,
    "five steps before": lambda step: 0.02 if step < ONSET - 5 else 40.0,
}
HEALTHY: dict[str, Callable[[int], float]] = {
    "constant": lambda step: 0.1,
    "counter": lambda step: float(step),
    "cosine": lambda step: 0.5 + 0.5 * math.cos(step / 10),
    "long before": lambda step: 0.1 if step < 5 else 0.4,
    "a little": lambda step: 0.1 if step < ONSET else 0.12,
    "measured": lambda step: JITTER[step % 7] if step < ONSET else 30.0,
}


def _changed(values: Callable[[int], float], steps: range = range(1, 24)) -> list[tuple[str, float]]:
    settings = Settings()
    for step in steps:
        settings.gate(step, [{"lr": 0.1 * step, "weight_decay": values(step), "betas": (0.9, 0.99), "params": []}])
    return [(one["option"], one["after"]) for one in settings.changed(ONSET)]


@pytest.mark.parametrize(("changes", "found"), [(lambda rows: rows - 1, []), (lambda rows: 6.0, [0.0])])
def test_a_count_of_the_rows_of_a_batch_is_no_setting(changes: Callable[[int], float], found: list[float]) -> None:
    settings, model = Settings(), nn.Linear(2, 1)
    for step in range(1, 24):
        rows = 1 if step == ONSET else 8
        settings.called(step, model, ((torch.zeros(rows, 2),), {}))
        value = 0.0 if step == ONSET else float(changes(rows))
        settings.gate(step, [{"divisor": value, "params": []}])
    assert [one["after"] for one in settings.changed(ONSET)] == found


@pytest.mark.parametrize("name", SICK)
def test_a_number_that_jumps_near_the_onset_is_found(name: str) -> None:
    assert _changed(SICK[name]) == [("weight_decay", SICK[name](ONSET))]


@pytest.mark.parametrize("name", HEALTHY)
def test_a_number_that_moves_evenly_or_jitters_or_moved_long_before_is_not(name: str) -> None:
    assert _changed(HEALTHY[name]) == []


def test_a_number_that_grows_by_a_factor_in_each_step_is_found_with_the_factor() -> None:
    settings, onset = Settings(), 120
    for step in (1, 2, *range(108, 121)):
        settings.gate(step, [{"weight_decay": 1.0387**step, "momentum": 0.97**step, "nu": 0.9999**step, "params": []}])
    grown, shrunk = settings.changed(onset)
    assert (grown["option"], round(grown["each"], 4), grown["step"]) == ("weight_decay", 1.0387, 120)
    assert (grown["before"], grown["after"]) == (1.0387, 1.0387**120)
    assert (shrunk["option"], round(shrunk["each"], 3)) == ("momentum", 0.97)
    assert settings.changed(60) == []  # no surveyed steps lead up to it


def test_a_change_in_steps_that_were_not_seen_has_no_date() -> None:
    settings = Settings()
    for step in (1, 2, 3, 19, 20, 21):
        settings.gate(step, [{"weight_decay": 0.1 if step < 4 else 9.0, "params": []}])
    assert settings.changed(ONSET) == []


class Scorer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.drop, self.sharp = nn.Linear(4, 3), nn.Dropout(0.1), 1.0

    def forward(self, rows: Tensor) -> Tensor:
        return self.drop(self.layer(rows)) * self.sharp


def _loss(model: nn.Module, step: int) -> Tensor:
    rows = torch.ones(2, 4)
    temperature, smoothing = (0.2, 0.0) if step < ONSET else (1e-4, 0.9)
    labels = torch.zeros(2, dtype=torch.long)
    return functional.cross_entropy(model(rows) / temperature, labels, label_smoothing=smoothing)


def test_numbers_of_modules_and_of_operations_are_found_where_they_stand() -> None:
    calls, model = Calls(), Scorer()
    calls.look(True)
    try:
        for step in range(14, 24):
            calls.step_now = lambda step=step: step  # type: ignore[misc]
            if step == ONSET:
                model.sharp, model.drop.p = 50.0, 0.9
            calls.settings.called(step, model)
            _loss(model, step)
    finally:
        calls.look(False)
    found = calls.settings.changed(ONSET)
    names = {(one["kind"], one["name"], one["after"]) for one in found}
    assert names == {
        ("module", "sharp", 50.0),
        ("module", "p", 0.9),
        ("operand", "self.sharp", 50.0),
        ("operand", "temperature", 1e-4),
        ("operand", "smoothing", 0.9),
    }
    assert all("test_changed_settings.py" in one["line"] for one in found if one["kind"] == "operand")


@pytest.mark.parametrize(("value", "new"), [(40.0, True), (30.0, True), (0.02, False), (1, False), (True, False)])
def test_a_number_is_put_back_where_it_is_nearer_to_the_new_one(value: float, new: bool) -> None:
    assert _is_new({"before": 0.02, "after": 40.0}, value) is new


def test_without_a_number_there_is_no_change() -> None:
    with pytest.raises(ValueError, match="at least one"):
        OldSettings([]).check()

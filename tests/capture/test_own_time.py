from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from steadytrain.capture.step import live_run
from steadytrain.capture.step.own_time import OwnTime
from steadytrain.capture.tensors.activations.measurement import Measurement
from watching import watching


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_what_is_inside_counts_once_and_a_new_step_begins_at_nothing() -> None:
    clock = Clock()
    own = OwnTime(clock)
    own.restart()
    clock.now = 1.0  # the script's
    with own:
        clock.now = 3.0
        with own:
            clock.now = 4.0
        assert own.so_far() == 3.0
    clock.now = 10.0
    assert own.so_far() == 3.0
    with own:
        clock.now = 12.0
        own.restart()  # the step ends while we are at work: what comes after belongs to the next one
        clock.now = 15.0
    clock.now = 20.0
    assert own.so_far() == 3.0


def test_an_error_of_ours_is_our_time_too() -> None:
    clock = Clock()
    own = OwnTime(clock)
    try:
        with own:
            clock.now = 2.0
            raise ValueError
    except ValueError:
        clock.now = 5.0
    assert own.so_far() == 2.0


def test_looking_at_the_outputs_of_modules_is_our_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Near a symptom every output is looked at in every step: as the script's time that is a slower training."""
    own, clock = OwnTime(), Clock()
    own._clock = clock
    monkeypatch.setattr(live_run, "OwnTime", lambda: own)
    look, looks = Measurement.see_output, []

    def slow(self: Measurement, *args: Any) -> None:
        before = own.so_far()
        clock.now += 1.0
        looks.append(own.so_far() - before)
        look(self, *args)

    monkeypatch.setattr(Measurement, "see_output", slow)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with watching(tmp_path / "run", "observe"):
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(2, 4)).sum().backward()
            optimizer.step()
    assert looks
    assert set(looks) == {1.0}

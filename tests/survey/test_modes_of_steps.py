"""Which modules a survey says are in evaluation mode: those of the steps, not those of an evaluation after the last."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from steadytrain.survey.calls import Calls
from steadytrain.survey.module_calls import Modules

MODEL = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))


def called(modules: Modules, mode: bool) -> None:
    """A forward with gradients, as old evaluation code makes it."""
    MODEL.train(mode)
    modules.root_called(MODEL)
    x = torch.randn(8, 4)
    for part in MODEL:
        x = part(x)
        modules._after(part, (), x)


@pytest.mark.parametrize(
    ("modes", "left_on"),
    [([True], False), ([False], True), ([True, False], True), ([False, True], False)],
    ids=["training", "evaluation", "switched before the update", "switched back"],
)
def test_the_mode_of_the_last_call_before_an_update_counts(modes: list[bool], left_on: bool) -> None:
    modules, calls = _looking()
    for mode in modes:
        called(modules, mode)
    modules.step({})
    called(modules, mode=False)  # an evaluation after the last update
    calls.look(False)
    assert modules.root_in_eval is left_on
    assert modules.finish({})["modules_in_eval"] == (["1"] if left_on else [])


def _looking() -> tuple[Modules, Calls]:
    calls = Calls()
    calls.look(True)
    return Modules(calls), calls

"""The look reports what a script leaves of its gradients, however it clips them."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from steadytrain.capture.looks.call_settings import EVERY_STEPS
from steadytrain.capture.looks.hand_clips import HandClips


def norm_of(parameters: list[nn.Parameter]) -> float:
    return math.sqrt(sum(float(one.grad.square().sum()) for one in parameters if one.grad is not None))


def found(change: Callable[[list[nn.Parameter]], object], *, step: int = 0, scaled: bool = False) -> dict[str, float]:
    """What the look reports of a step. The script calls ``change`` between its backward and the update."""
    model, look = nn.Linear(6, 4), HandClips()
    parameters = [*model.parameters(), nn.Parameter(torch.ones(2))]  # the last one has no gradient
    stream = cast(Any, SimpleNamespace(own_steps=step, parameters=parameters))
    model(torch.randn(8, 6)).square().sum().backward()
    look.backward_ended(stream)
    change(parameters)
    return dict(look.rows({"gradient_norm": norm_of(parameters)}, scaled=scaled))


def halve(parameters: list[nn.Parameter]) -> None:
    for one in parameters:
        if one.grad is not None:
            one.grad.mul_(0.5)


def test_gradients_that_the_script_shortens_are_compared() -> None:
    rows = found(halve)
    assert rows["left-by-clip:gradients"] == pytest.approx(0.5)
    assert rows["norm-before-clip:gradients"] > 0


def test_nothing_is_told_where_nothing_is_taken_away_or_known() -> None:
    assert found(lambda parameters: None) == {}
    assert found(halve, step=EVERY_STEPS - 1) == {}
    assert found(halve, scaled=True) == {}
    assert found(lambda parameters: [one.grad.zero_() for one in parameters if one.grad is not None]) == {}
    assert dict(HandClips().rows({"gradient_norm": 1.0}, scaled=False)) == {}
    assert dict(HandClips().rows({}, scaled=False)) == {}


def test_a_clip_of_torch_is_measured_already() -> None:
    look = HandClips()
    scalars = {"gradient_norm": 2.0, "clip_coefficient": 0.25}
    expected = {"left-by-clip:gradients": 0.25, "norm-before-clip:gradients": 2.0}
    assert dict(look.rows(scalars, scaled=True)) == expected
    assert dict(look.rows({**scalars, "clip_coefficient": 1.0}, scaled=True))["left-by-clip:gradients"] == 1.0


def test_gradients_in_float64_have_a_norm() -> None:
    for dtype in (torch.float64, torch.float16, torch.complex128):
        look, parameter = HandClips(), nn.Parameter(torch.zeros(4, dtype=dtype))
        parameter.grad = torch.full((4,), 3e4, dtype=dtype)
        look.backward_ended(cast(Any, SimpleNamespace(own_steps=0, parameters=[parameter])))
        rows = dict(look.rows({"gradient_norm": 3e4}, scaled=False))
        assert rows["norm-before-clip:gradients"] == pytest.approx(6e4, rel=1e-3)

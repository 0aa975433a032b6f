"""What a trial sees of the rules that a script should keep."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from steadytrain.experiments.specs import Spec
from steadytrain.experiments.watched_rules import CARRIED_OVER, IN_EVALUATION, LOOKED
from steadytrain.trial_runs.trial_record import TrialRecord


def counted(steps: int, before: Callable[[torch.Tensor], None], role: str = "train") -> tuple[float, float]:
    weight, record = torch.ones(2, requires_grad=True), TrialRecord()
    measured: Any = SimpleNamespace(is_incident=False, record=SimpleNamespace(scalars={}))
    for step in range(steps):
        before(weight)
        record.backward_begins(role, [weight])
        weight.sum().backward()
        record.step(step, measured, 1.0)
    found = record.outcome(Spec("zero-grad", 0, None, ()), [], None).measured
    return found[CARRIED_OVER], found[LOOKED]


def clear(weight: torch.Tensor) -> None:
    weight.grad = None


def zero(weight: torch.Tensor) -> None:
    if weight.grad is not None:
        weight.grad.zero_()


def test_steps_that_begin_with_gradients_of_the_one_before_are_counted() -> None:
    assert counted(5, lambda weight: None) == (4.0, 4.0)
    assert counted(5, clear) == counted(5, zero) == (0.0, 4.0)
    assert counted(5, lambda weight: None, role="probe") == (0.0, 0.0)


def test_gradients_that_a_later_backward_finds_cleared_were_not_carried_over() -> None:
    weight, record = torch.ones(2, requires_grad=True), TrialRecord()
    measured: Any = SimpleNamespace(is_incident=False, record=SimpleNamespace(scalars={}))
    record.step(0, measured, 1.0)
    weight.grad = torch.ones(2)
    record.backward_begins("train", [weight])
    weight.grad = None
    record.backward_begins("train", [weight])
    weight.grad = torch.ones(2)
    record.backward_begins("train", [weight])
    record.step(1, measured, 1.0)
    assert record.outcome(Spec("x", 0, None, ()), [], None).measured == {
        LOOKED: 1.0,
        CARRIED_OVER: 0.0,
        IN_EVALUATION: 0.0,
    }


def test_steps_of_a_model_in_evaluation_mode_are_counted() -> None:
    """A frozen part in evaluation mode beside one that trains is no such step."""
    trains, evaluates, record = nn.Linear(1, 1), nn.Linear(1, 1).eval(), TrialRecord()
    measured: Any = SimpleNamespace(is_incident=False, record=SimpleNamespace(scalars={}))
    for step, models in enumerate(([trains], [evaluates], [trains, evaluates], [evaluates], [])):
        record.step(step, measured, 1.0, models)
    assert record.outcome(Spec("train-mode", 0, None, ()), [], None).measured[IN_EVALUATION] == 2.0

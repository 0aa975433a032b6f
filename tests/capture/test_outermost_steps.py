"""A step is reported once, however many ``step`` methods torch has wrapped, and whatever a step before raised."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from steadytrain.capture.hooks.module_hooks import OptimizerHook
from steadytrain.capture.hooks.outermost_steps import OutermostSteps


def report(place: str, error: Exception) -> None:
    raise error


class Child(torch.optim.SGD):
    def __init__(self, told: list[str]) -> None:
        super().__init__([torch.zeros(2, requires_grad=True)], lr=0.1)
        self.told, self.fails = told, False

    def step(self, closure: Any = None) -> Any:
        self.told.append("child")
        loss = super().step(closure)
        if self.fails:
            raise RuntimeError("of the script")
        self.told.append("child is done")
        return loss


def test_a_step_that_calls_its_parents_is_told_once() -> None:
    told: list[str] = []
    torch.optim.SGD([torch.zeros(2, requires_grad=True)], lr=0.1)
    child, other = Child(told), Child(told)
    steps = OutermostSteps(lambda *_: told.append("begins"), lambda *_: told.append("ends"))
    before = register_optimizer_step_pre_hook(OptimizerHook(steps.begins, report))
    after = register_optimizer_step_post_hook(OptimizerHook(steps.ends, report))
    whole = ["begins", "child", "child is done", "ends"]
    try:
        child.step()
        child.fails = True
        with pytest.raises(RuntimeError):
            child.step()
        child.fails = False
        assert told == [*whole, "begins", "child"]
        told.clear()
        child.step()
        other.step()
        child.step(lambda: other.step() or 0.0)
        assert told == [*whole, *whole, "begins", "child", *whole, "child is done", "ends"]
    finally:
        before.remove()
        after.remove()

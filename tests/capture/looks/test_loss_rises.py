"""In which steps the graph of the loss is read again after a rise."""

from __future__ import annotations

import math
from collections.abc import Iterable

from steadytrain.capture.looks.loss_rises import APART_STEPS, RISES_MAX, LossRises


def due_after(losses: Iterable[float | None]) -> list[int]:
    rises = LossRises()
    found = []
    for step, loss in enumerate(losses, start=1):
        rises.stepped(loss)
        if rises.is_due:
            found.append(step)
    return found


def test_two_steps_are_read_after_the_loss_stood_out() -> None:
    assert due_after([0.5, 0.6, 0.4, 0.5] * 5 + [0.9] * 20) == [21, 22]


def test_noise_a_slow_rise_and_a_falling_loss_are_no_reason() -> None:
    assert due_after([0.5, 0.6, 0.4, 0.5] * 50) == []
    assert due_after([1.0 + 0.01 * step for step in range(200)]) == []
    assert due_after([math.exp(-0.05 * step) for step in range(200)]) == []


def test_a_negative_loss_stands_out_as_any_other() -> None:
    assert due_after([-2.0, -2.1, -2.05, -2.0] * 5 + [-1.5] * 20) == [21, 22]


def test_losses_that_are_unknown_or_not_finite_are_passed_over() -> None:
    assert due_after([0.5, 0.6, 0.4, 0.5] * 5 + [None, math.nan, math.inf]) == []


def test_a_rough_loss_is_read_now_and_then_and_not_for_ever() -> None:
    rough = [2.0**step for step in range(1000)]
    found = due_after(rough)
    assert len(found) == 2 * min(RISES_MAX, len(range(APART_STEPS + 1, 1000, APART_STEPS + 1)))
    assert max(found[at + 2] - found[at] for at in range(len(found) - 2)) == APART_STEPS + 1

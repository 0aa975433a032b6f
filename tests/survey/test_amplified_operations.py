"""Operations of the script that suddenly make large numbers out of ordinary ones."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from steadytrain.survey.amplified_operations import EARLIER_STEPS_MIN, LINES_MAX, AmplifiedOperations

LINE = "train.py:4: x / spread"


def seen(steps: dict[int, tuple[Any, ...]], name: str = "__truediv__", *, early: bool = False) -> AmplifiedOperations:
    """What was seen of one line, with the operands of each step."""
    found = AmplifiedOperations()
    function = getattr(torch.Tensor, name)
    for step, (value, *others) in steps.items():
        found.saw(name, (value, *others), {}, function(value, *others), LINE, step, before_model=early)
    return found


def of(number: float) -> torch.Tensor:
    return torch.tensor([1.0, number])


USUAL = {step: (of(2.0), of(0.5)) for step in range(1, 7)}


def test_a_divisor_close_to_zero_is_named_with_its_line() -> None:
    one = seen({**USUAL, 7: (of(2.0), of(1e-4))}).found(7, lambda step: True)[0]
    assert (one["operation"], one["line"], one["step"], one["before_model"]) == ("truediv", LINE, 7, False)
    assert one["before"] == pytest.approx(4.0)
    assert one["result"] == pytest.approx(2e4, rel=1e-3)
    assert one["divisor"] == pytest.approx(1e-4)
    assert one["divisor_before"] == pytest.approx(0.5)
    assert one["divisor_usual"] == pytest.approx(1e-4)


def test_the_usual_divisor_is_that_of_most() -> None:
    few = {step: (torch.zeros(8), torch.full((8,), 0.5).index_fill(0, torch.tensor(0), 1e-4)) for step in range(1, 8)}
    few[7] = (torch.ones(8), few[7][1])  # what is divided by it is not 0 this time
    few |= {step: (torch.tensor([0.0] + [1.0] * 7), few[step][1]) for step in range(1, 7)}
    one = seen(few).found(7, lambda step: True)[0]
    assert (one["divisor"], one["divisor_before"]) == (pytest.approx(1e-4), pytest.approx(1e-4))
    assert one["divisor_usual"] == pytest.approx(0.5)


def test_a_large_operand_that_is_passed_on_is_none() -> None:
    assert seen({**USUAL, 7: (of(2e4), of(0.5))}).found(7, lambda step: True) == []


def test_an_exponent_that_grows_is_one() -> None:
    steps = {**{step: (of(2.0),) for step in range(1, 7)}, 7: (of(5.0),)}
    one = seen(steps, "exp").found(7, lambda step: True)[0]
    assert one["operation"] == "exp"
    assert "divisor" not in one


def test_what_grows_slowly_or_has_no_past_is_none() -> None:
    slow = {step: (of(2.0), of(0.5 * 0.6**step)) for step in range(1, 12)}
    assert seen(slow).found(11, lambda step: True) == []
    young = {step: USUAL[step] for step in range(1, EARLIER_STEPS_MIN)}
    assert seen({**young, 7: (of(2.0), of(1e-4))}).found(7, lambda step: True) == []


def test_a_divisor_that_fades_since_the_first_steps_is_named() -> None:
    fading = {step: (of(2.0), of(0.5 * 0.6 ** max(0, step - 12))) for step in range(1, 40)}
    one = seen(fading).found(30, lambda step: True)[0]
    assert one["divisor"] < 0.01 * one["divisor_before"]
    assert one["before"] == pytest.approx(4.0)
    grown = {step: (of(0.1 * step),) for step in range(1, 80)}
    assert seen(grown, "exp").found(79, lambda step: True) == []


def test_a_step_far_from_the_onset_is_not_looked_at() -> None:
    steps = {**USUAL, 7: (of(2.0), of(1e-4))}
    assert seen(steps).found(40, lambda step: True) == []
    assert seen(steps).found(9, lambda step: True)


def test_a_preparation_counts_only_where_it_made_the_inputs() -> None:
    steps = {**USUAL, 7: (of(2.0), of(1e-4))}
    assert seen(steps, early=True).found(7, lambda step: True)[0]["before_model"]
    assert seen(steps, early=True).found(7, lambda step: step != 7) == []
    assert seen(steps, early=True).found(7, lambda step: step == 7) == []


def test_numbers_that_are_not_finite_and_odd_operands_are_left_alone() -> None:
    steps = {**USUAL, 7: (of(2.0), of(0.0))}
    assert seen(steps).found(7, lambda step: True) == []
    found = AmplifiedOperations()
    found.saw("div", (torch.zeros(0), torch.zeros(0)), {}, torch.zeros(0), LINE, 1, before_model=False)
    found.saw("div", (2.0,), {"other": of(1.0)}, of(2.0), LINE, 1, before_model=False)
    assert found.found(1, lambda step: True) == []


def test_the_lines_of_a_step_are_bounded() -> None:
    found = AmplifiedOperations()
    for number in range(2 * LINES_MAX):
        found.saw("exp", (of(1.0),), {}, of(1.0).exp(), f"train.py:{number}: x", 1, before_model=False)
    assert len(found._steps[1]) == LINES_MAX

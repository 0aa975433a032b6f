"""Means over a mask that selects nothing are found in every spelling, with the rows; guarded and plain ones are not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402
from torch.nn import functional  # noqa: E402

from steadytrain.core.model import Symptom  # noqa: E402
from steadytrain.diagnosis.cause_catalog import causes  # noqa: E402
from steadytrain.survey.calls import Calls  # noqa: E402
from trial_cases import finite_case  # noqa: E402

ROWS, LENGTH = 4, 3
Loss = Callable[[Tensor, Tensor], Tensor]


def by_row(losses: Tensor, mask: Tensor) -> Tensor:
    return ((losses * mask).sum(dim=1) / mask.sum(dim=1)).mean()


def by_row_in_float(losses: Tensor, mask: Tensor) -> Tensor:
    count = mask.float().sum(-1).to(torch.float32)
    return (losses * mask).sum(-1).div(count).mean()


def whole(losses: Tensor, mask: Tensor) -> Tensor:
    return (losses * mask).sum() / mask.sum()


def counted(losses: Tensor, mask: Tensor) -> Tensor:
    return (losses * mask).sum() / torch.count_nonzero(mask)


def as_a_number(losses: Tensor, mask: Tensor) -> Tensor:
    return (losses * mask).sum() / mask.sum().item()


def twice(losses: Tensor, mask: Tensor) -> Tensor:
    return (losses * mask).sum() / mask.sum(1).sum()


def selected(losses: Tensor, mask: Tensor) -> Tensor:
    return losses[mask].mean()


def picked(losses: Tensor, mask: Tensor) -> Tensor:
    return torch.masked_select(losses, mask).mean()


def of_a_loss(losses: Tensor, mask: Tensor) -> Tensor:
    return functional.mse_loss(losses[mask], torch.zeros(int(mask.sum())))


def guarded(losses: Tensor, mask: Tensor) -> Tensor:
    return (losses * mask).sum() / mask.sum().clamp(min=1)


def of_values(losses: Tensor, mask: Tensor) -> Tensor:
    weights = 3.0 * mask
    return (losses * weights).sum() / weights.sum()


def bounded_by_zero(losses: Tensor, mask: Tensor) -> Tensor:
    return ((losses * mask).sum(1) / mask.float().sum(1).clamp(min=0)).mean()


def little_added(losses: Tensor, mask: Tensor) -> Tensor:
    """A detector's loss: places without an object count above the line, and not below it."""
    return losses.sum() / (mask.float().sum() + 1e-6)


def little_added_to_a_mean(losses: Tensor, mask: Tensor) -> Tensor:
    return (losses * mask).sum() / (mask.sum() + 1e-8)


def by_its_mean(losses: Tensor, mask: Tensor) -> Tensor:
    return ((losses * mask).mean(1) / mask.float().mean(1)).mean()


@pytest.fixture
def calls() -> Iterator[Calls]:
    made = Calls()
    made.look(True)
    yield made
    made.look(False)


def found(calls: Calls, loss: Loss, *, dead: int | None) -> list[dict[str, Any]]:
    """What a sound step and then one with a dead row (-1: all) leave."""
    for step in range(2):
        calls.step_begins()
        mask = torch.ones(ROWS, LENGTH, dtype=torch.bool)
        mask[:, 0] = False
        if step and dead is not None:
            mask[slice(None) if dead < 0 else dead] = False
        loss(torch.rand(ROWS, LENGTH, requires_grad=True), mask)
    return list(calls.masks.found)


@pytest.mark.parametrize("loss", [by_row, by_row_in_float, bounded_by_zero, by_its_mean], ids=lambda one: one.__name__)
def test_a_row_without_a_selected_position_is_named(calls: Calls, loss: Loss) -> None:
    (one,) = found(calls, loss, dead=2)
    assert one["rows"] == [2]
    assert "test_survey_empty_masks.py" in one["line"]
    assert not one["whole"]


@pytest.mark.parametrize(
    "loss", [whole, counted, as_a_number, twice, selected, picked, of_a_loss], ids=lambda one: one.__name__
)
def test_a_batch_without_a_selected_position_is_found_in_every_spelling(calls: Calls, loss: Loss) -> None:
    first = found(calls, loss, dead=-1)[0]
    assert first["whole"]
    assert first["of"] == ROWS


@pytest.mark.parametrize("loss", [by_row, whole, selected, of_a_loss, guarded, of_values], ids=lambda one: one.__name__)
def test_a_mask_that_selects_something_is_none(calls: Calls, loss: Loss) -> None:
    assert found(calls, loss, dead=None) == []


@pytest.mark.parametrize("loss", [guarded, of_values], ids=lambda one: one.__name__)
def test_a_count_of_at_least_one_and_a_sum_of_other_numbers_are_none(calls: Calls, loss: Loss) -> None:
    assert found(calls, loss, dead=-1) == []


def test_a_small_number_beside_the_count_of_nothing_is_found_where_it_makes_the_loss_large(calls: Calls) -> None:
    (one,) = found(calls, little_added, dead=-1)
    assert one["whole"]
    assert one["divisor"] == pytest.approx(1e-6)
    assert one["quotient"] > 1e5
    assert found(calls, little_added, dead=None) == []


def test_a_mean_over_nothing_that_a_small_number_makes_zero_is_none(calls: Calls) -> None:
    assert found(calls, little_added_to_a_mean, dead=-1) == []


def test_a_loss_that_a_count_of_nothing_makes_large_is_no_bad_batch() -> None:
    masks = [{"line": "train.py:9: a / n", "rows": [], "whole": True, "of": 4, "divisor": 1e-6, "quotient": 1800.0}]
    case = finite_case(facts={"empty_masks": masks, "loss_excess": 2000.0})
    named = causes()["no-supervised-tokens"].signature(case)
    assert named.broken_invariant is not None
    assert "its sum is divided by 1e-06, which gives 1.8e+03" in named.broken_invariant.what
    assert named.weight > causes()["bad-batch"].signature(case).weight


def test_the_diagnosis_names_line_and_row_and_not_the_division() -> None:
    masks = [{"line": "train.py:9: mean", "rows": [2], "whole": False, "of": 4, "call": 0}]
    case = finite_case(facts={"empty_masks": masks})
    signature = causes()["no-supervised-tokens"].signature(case)
    assert signature.batch_rows == (2,)
    assert signature.broken_invariant is None  # the loss stayed finite: somebody guards it


def test_a_mean_inside_the_model_is_one_over_its_input_and_not_over_labels(calls: Calls) -> None:
    (outside,) = found(calls, by_row, dead=2)

    def pooled(values: Tensor, mask: Tensor) -> Tensor:
        calls.masks.inside = True
        return ((values[..., None].expand(-1, -1, 5) * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)).mean()

    def loss_in_model(values: Tensor, mask: Tensor) -> Tensor:
        calls.masks.inside = True
        return by_row(values, mask)

    (inside,) = found(calls, pooled, dead=2)
    (of_labels,) = found(calls, loss_in_model, dead=2)
    assert (outside["in_model"], inside["in_model"], of_labels["in_model"]) == (False, True, False)
    symptom = Symptom("nonfinite-loss", "critical", 90, 90, "the loss is NaN")
    for one, named, other in (
        (outside, "no-supervised-tokens", "empty-input"),
        (inside, "empty-input", "no-supervised-tokens"),
    ):
        case = finite_case(symptom=symptom, symptoms=(symptom,), facts={"empty_masks": [one]})
        signature = causes()[named].signature(case)
        assert signature.broken_invariant is not None
        assert signature.batch_rows == (2,)
        assert causes()[other].signature(case).broken_invariant is None

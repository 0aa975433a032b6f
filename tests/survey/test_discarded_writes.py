"""Copies that are changed in place and thrown away, and copies that somebody reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor

from steadytrain.survey.calls import Calls

SQUARE = torch.arange(12.0).view(3, 4)
MASK = SQUARE > 5.0
KEPT: list[Tensor] = []


def cleared_in_a_reshaped_copy() -> None:
    flat = SQUARE.t().reshape(-1)
    flat[2] = 0.0


def cleared_in_a_flat_copy_of_another_type() -> None:
    flat = SQUARE.double().flatten()
    flat.index_fill_(0, torch.tensor([1]), 0.0)


def masked_and_changed() -> None:
    SQUARE[MASK].mul_(0.0)


def added_to_a_contiguous_copy() -> None:
    part = SQUARE.t().contiguous().view(2, 6)
    part += 1.0


def read_before_it_is_changed() -> float:
    flat = SQUARE.t().reshape(-1)
    total = flat.sum()
    flat[0] = 0.0
    return float(total)


DISCARDED = [
    (cleared_in_a_reshaped_copy, "reshape", "__setitem__"),
    (cleared_in_a_flat_copy_of_another_type, "double", "index_fill_"),
    (masked_and_changed, "__getitem__", "mul_"),
    (added_to_a_contiguous_copy, "contiguous", "add_"),
    (read_before_it_is_changed, "reshape", "__setitem__"),
]


def returned() -> Tensor:
    flat = SQUARE.t().reshape(-1)
    flat[2] = 0.0
    return flat


def summed() -> Tensor:
    flat = SQUARE.t().reshape(-1)
    flat[2] = 0.0
    return flat.sum()


def changed_in_a_view() -> None:
    flat = SQUARE.clone().view(-1)
    flat[2] = 0.0


def copied_once_more() -> Tensor:
    flat = SQUARE.t().reshape(-1)
    flat[2] = 0.0
    return flat.view(3, 4).t().reshape(-1) * 1.0


def kept_for_later() -> None:
    part = SQUARE[MASK]
    part.zero_()
    KEPT.append(part)


def a_view_is_kept_for_later() -> None:
    flat = SQUARE.t().reshape(-1)
    KEPT.append(flat[:2])
    flat.zero_()


def shown_as_an_array() -> Any:
    part = SQUARE[MASK]
    part.clamp_(0, 1)
    return part.numpy().max()


def given_to_the_original() -> None:
    part = SQUARE[MASK]
    part.mul_(1.0)
    SQUARE[MASK] = part


def values_stay() -> None:
    SQUARE.t().reshape(-1).requires_grad_()


def saved(path: Any) -> None:
    part = SQUARE[MASK]
    part.zero_()
    torch.save(part, path)


READ = [returned, summed, changed_in_a_view, copied_once_more, kept_for_later, a_view_is_kept_for_later]
READ += [shown_as_an_array, given_to_the_original, values_stay]  # type: ignore[list-item]


def followed(call: Callable[[], Any], times: int = 3) -> list[dict[str, Any]] | None:
    KEPT.clear()
    calls = Calls()
    calls.step_now = lambda: 7
    calls.look(True)
    results = []
    try:
        for _ in range(times):
            calls.step_begins()
            results.append(call())
    finally:
        calls.look(False)
    found = calls.made.facts(7, lambda _: False)["discarded_writes"]
    assert isinstance(found, (list, type(None)))
    return found


@pytest.mark.parametrize(("call", "copied", "by"), DISCARDED, ids=[one[0].__name__ for one in DISCARDED])
def test_a_changed_copy_that_is_gone(call: Callable[[], Any], copied: str, by: str) -> None:
    (one,) = followed(call) or ()
    assert (one["copied"], one["by"], one["times"], one["step"]) == (copied, by, 3, 7)
    assert all(one[key].startswith("test_discarded_writes.py:") for key in ("line", "copy_line"))


@pytest.mark.parametrize("call", READ, ids=[one.__name__ for one in READ])
def test_a_changed_copy_that_somebody_reads_or_keeps(call: Callable[[], Any]) -> None:
    assert followed(call) is None


def test_a_copy_that_is_saved_is_read(tmp_path: Any) -> None:
    assert followed(lambda: saved(tmp_path / "part.pt")) is None


def test_a_line_whose_copy_is_read_now_and_then_is_not_told() -> None:
    state = {"step": 0}

    def now_and_then() -> float:
        state["step"] += 1
        flat = SQUARE.t().reshape(-1)
        flat[2] = 0.0
        return float(flat.sum()) if state["step"] == 2 else 0.0

    assert followed(now_and_then) is None


def test_changes_inside_of_torch_are_not_followed() -> None:
    weight = torch.nn.Parameter(torch.randn(4, 4))
    optimizer = torch.optim.Adam([weight], lr=0.1)

    def step() -> None:
        optimizer.zero_grad()
        weight.square().sum().backward()
        torch.nn.utils.clip_grad_norm_([weight], 1.0)
        optimizer.step()

    assert followed(step, times=4) is None

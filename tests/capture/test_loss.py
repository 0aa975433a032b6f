"""The loss as the script means it: scales and accumulation are taken off, everything else is left in."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from steadytrain.capture.step.loss import FACTORS_MAX, loss_term, unscaled

LOSS, SCALE = 0.37, 1024.0

# name: the root's factors (value, power), known scales, backward calls of the step, and what is left of the root
UNSCALED: dict[str, tuple[list[tuple[float, int]], set[float], int, float]] = {
    "no factor": ([], set(), 1, 1.0),
    "no factor, accumulated": ([], set(), 4, 1.0),
    "a mean over 8 tokens": ([(8, -1)], set(), 1, 1.0),
    "a mean over 8 tokens, accumulated by 4": ([(8, -1)], set(), 4, 1.0),
    "half": ([(0.5, 1)], set(), 1, 1.0),
    "half, with a scale": ([(0.5, 1)], {SCALE}, 1, 1.0),
    "a factor like the scale, but no scaler": ([(SCALE, 1)], set(), 1, 1.0),
    "divided by the scale": ([(SCALE, -1)], {SCALE}, 1, 1.0),
    "divided by the calls": ([(4, -1)], set(), 4, 4.0),
    "multiplied by one over the calls": ([(0.25, 1)], set(), 4, 4.0),
    "by one over three, rounded": ([(0.3333333432674408, 1)], set(), 3, 3.0),
    "divided by the calls, then by as many tokens": ([(4, -1), (4, -1)], set(), 4, 4.0),
    "multiplied by the calls": ([(4, 1)], set(), 4, 1.0),
    "half, accumulated by two": ([(0.5, 1)], set(), 2, 2.0),
    "scaled": ([(SCALE, 1)], {SCALE}, 1, 1 / SCALE),
    "scaled by another scaler's scale": ([(SCALE, 1)], {2.0, SCALE}, 1, 1 / SCALE),
    "divided, then scaled": ([(SCALE, 1), (4, -1)], {SCALE}, 4, 4 / SCALE),
    "scaled, then divided": ([(4, -1), (SCALE, 1)], {SCALE}, 4, 4 / SCALE),
    "scaled, over a mean over 8 tokens": ([(SCALE, 1), (8, -1)], {SCALE}, 4, 1 / SCALE),
    "weighted, then scaled": ([(SCALE, 1), (0.5, 1), (4, -1)], {SCALE}, 4, 1 / SCALE),
    "by zero": ([(0.0, 1)], set(), 4, 1.0),
    "divided by zero": ([(0.0, -1)], set(), 4, 1.0),
    "by NaN": ([(float("nan"), 1)], {SCALE}, 4, 1.0),
}

# name: a root made from a loss, and the factors that are read off its graph
ROOTS: dict[str, tuple[Callable[[Tensor], Tensor], list[tuple[float, int]]]] = {
    "as it is": (lambda loss: loss, []),
    "divided": (lambda loss: loss / 4, [(4, -1)]),
    "multiplied": (lambda loss: loss * 0.25, [(0.25, 1)]),
    "multiplied from the left": (lambda loss: 0.25 * loss, [(0.25, 1)]),
    "by a tensor": (lambda loss: loss * torch.tensor(3.0), [(3, 1)]),
    "by a tensor from the left": (lambda loss: torch.tensor(3.0) * loss, [(3, 1)]),
    "by a tensor of one element": (lambda loss: (loss * torch.tensor([3.0])).squeeze(), []),
    "in place": (lambda loss: loss.clone().div_(4), [(4, -1)]),
    "divided, then scaled": (lambda loss: (loss / 4) * 1024.0, [(1024, 1), (4, -1)]),
    "a sum of two": (lambda loss: loss / 2 + loss / 3, []),
    "by something that is learned": (lambda loss: loss * torch.tensor(3.0, requires_grad=True), []),
    "by itself": (lambda loss: loss * loss, []),
    "one over it": (lambda loss: 4 / loss, [(4, 1)]),
    "many times": (lambda loss: multiplied(loss, FACTORS_MAX + 3), [(2, 1)] * FACTORS_MAX),
}


@pytest.mark.parametrize("name", UNSCALED)
def test_unscaled(name: str) -> None:
    factors, scales, backward_calls, times = UNSCALED[name]
    assert unscaled(LOSS, factors, scales=scales, backward_calls=backward_calls) == pytest.approx(LOSS * times)


@pytest.mark.parametrize("name", ROOTS)
def test_factors_are_read_off_the_graph(name: str) -> None:
    make, expected = ROOTS[name]
    weight = torch.tensor([1.0, 2.0], requires_grad=True)
    root = make((weight * weight).sum())
    term = loss_term(root)
    assert [(factor.value.item(), factor.power) for factor in term.factors] == [
        (pytest.approx(value), power) for value, power in expected
    ]
    assert term.root.item() == root.item()
    assert not term.root.requires_grad
    assert len(term.nodes) == len(expected) + 1
    root.backward()  # the graph is as it was
    assert weight.grad is not None


def test_a_loss_that_is_a_leaf_has_no_factors() -> None:
    leaf = torch.tensor(2.0, requires_grad=True)
    assert loss_term(leaf).factors == ()


def test_the_origin_is_the_line_that_asked_for_backward() -> None:
    origin = loss_term(torch.tensor(2.0, requires_grad=True)).origin
    assert origin is not None
    assert origin.startswith(f"{__file__}:")


def multiplied(loss: Tensor, times: int) -> Tensor:
    for _ in range(times):
        loss = loss * 2
    return loss

"""What custom functions keep for their backward, and whether it changes before it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from steadytrain.survey.custom_contexts import CustomContexts
from steadytrain.trial_runs.changes.wiring import OwnContexts
from steadytrain.trial_runs.launched_script import Launched

SCRATCH = torch.zeros(4)
MASK = torch.tensor([1.0, 0.0, 1.0, 1.0])


class Cube(torch.autograd.Function):
    """Its context keeps a buffer that the next application writes into."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.x = SCRATCH.copy_(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * 3 * ctx.x.square()


class Cloned(Cube):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.x = SCRATCH.copy_(x).clone()
        return x**3


class Masked(torch.autograd.Function):
    """All contexts keep the same constant."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.mask = MASK
        return x * MASK

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * ctx.mask


class InPlace(Cube):
    """Its backward writes into what its own context keeps."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.x = x.detach().clone()
        return x**3

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return ctx.x.square_().mul_(3 * gradient)


def followed(kind: Any, *, backward_between: bool = False) -> list[dict[str, Any]] | None:
    """What is found of two applications, one on the result of the other unless a backward lies between them."""
    contexts, x = CustomContexts(), torch.linspace(0.5, 1.1, 4, requires_grad=True)
    first = kind.apply(x)
    contexts.applied(kind, first)
    if backward_between:
        contexts.backward_begins()
        first.sum().backward()
    second = kind.apply(x if backward_between else first)
    contexts.applied(kind, second)
    contexts.backward_begins()
    second.sum().backward()
    contexts.step_begins()
    contexts.backward_begins()
    return contexts.found()


def test_a_buffer_that_the_next_application_writes_into_is_overwritten() -> None:
    assert followed(Cube) == [{"operation": "Cube", "attribute": "x", "applications": 1}]


@pytest.mark.parametrize("kind", [Cloned, Masked, InPlace])
def test_memory_of_its_own_and_constants_are_not(kind: Any) -> None:
    assert followed(kind) is None


def test_a_buffer_that_is_used_again_after_the_backward_is_not() -> None:
    assert followed(Cube, backward_between=True) is None


@pytest.fixture
def own_contexts() -> Iterator[OwnContexts]:
    before, change = Cube.apply, OwnContexts(operations=["Cube"])
    change.begin(Launched())
    yield change
    Cube.apply = before  # type: ignore[method-assign]


def gradient() -> Tensor:
    x = torch.linspace(0.5, 1.1, 4, requires_grad=True)
    (found,) = torch.autograd.grad(Cube.apply(Cube.apply(x)).sum(), x)
    return found


def test_with_contexts_of_their_own_the_gradient_is_right(own_contexts: OwnContexts) -> None:
    x = torch.linspace(0.5, 1.1, 4)
    assert torch.allclose(gradient(), 9 * x**8)
    assert own_contexts.touched == 2


def test_without_them_it_is_wrong() -> None:
    assert not torch.allclose(gradient(), 9 * torch.linspace(0.5, 1.1, 4) ** 8)

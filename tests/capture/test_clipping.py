"""Gradients before clipping, read from what ``clip_grad_norm_`` computes itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from steadytrain.capture.hooks import clipping as clipping_module
from steadytrain.capture.hooks.clipping import ClipArguments, Clipping
from steadytrain.capture.hooks.fail_open import Guard
from steadytrain.capture.step import gate
from steadytrain.capture.step.run_stopped import RunStopped
from steadytrain.capture.step.step_gradients import changed_since, gradients_of
from steadytrain.capture.step.watcher import Watcher
from steadytrain.capture.tensors.statistics import l2_norms
from watching import watching

clip_grad_norm = torch.nn.utils.clip_grad_norm_


def parameters(*, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    made = []
    for shape in [(4, 3), (5,), ()]:
        parameter = nn.Parameter(torch.zeros(shape, dtype=dtype))
        parameter.grad = (torch.randn(shape, generator=generator) * scale).to(dtype)
        made.append(parameter)
    return made


def clip(clipping: Clipping, tensors: list[Tensor], limit: float, **how: Any) -> None:
    reading = clipping.begin(tensors, ClipArguments.of((limit,), dict(how)), Guard(pytest.fail))
    if reading is None:
        total = clip_grad_norm(tensors, limit, **how)
    else:
        with reading:
            total = clip_grad_norm(tensors, limit, **how)
    clipping.end(total)


def norms(tensors: list[Tensor]) -> list[float]:
    return [float(torch.linalg.vector_norm(t.grad.double())) for t in tensors if t.grad is not None]


def known(clipping: Clipping, tensors: list[Tensor]) -> list[bool]:
    """Of each tensor whether its gradient is there, and as the clip left it."""
    gradients = gradients_of(tensors)
    changed = {at for at, _ in changed_since(clipping.left, tensors, gradients)}
    return [any(at == here and at not in changed for here, _ in gradients) for at in range(len(tensors))]


@pytest.mark.parametrize("limit", [0.5, 1e6])
def test_norms_before_and_after_are_known_without_another_look(limit: float) -> None:
    tensors, clipping = parameters(), Clipping()
    before = norms(tensors)
    clip(clipping, tensors, limit)
    after = norms(tensors)
    assert [float(clipping.norms[id(t)]) for t in tensors] == pytest.approx(before, rel=1e-6)
    assert known(clipping, tensors) == [True, True, True]
    assert clipping.total is not None
    coefficient = clipping.coefficient(float(clipping.total))
    assert [norm * coefficient for norm in before] == pytest.approx(after, rel=1e-5)


def _written(tensors: list[Tensor]) -> None:
    assert tensors[0].grad is not None
    tensors[0].grad.mul_(2)


def _replaced(tensors: list[Tensor]) -> None:
    assert tensors[0].grad is not None
    tensors[0].grad = tensors[0].grad.clone()


def _gone(tensors: list[Tensor]) -> None:
    tensors[0].grad = None


@pytest.mark.parametrize("change", [_written, _replaced, _gone])
def test_a_gradient_that_changed_since_is_not_known(change: Callable[[list[Tensor]], None]) -> None:
    tensors, clipping = parameters(), Clipping()
    clip(clipping, tensors, 0.5)
    change(tensors)
    assert known(clipping, tensors) == [False, True, True]


def test_after_two_clips_the_gradients_are_read_again_and_the_first_norms_stand() -> None:
    tensors, clipping = parameters(), Clipping()
    before = norms(tensors)
    clip(clipping, tensors, 0.5)
    clip(clipping, tensors, 0.1)
    assert not any(known(clipping, tensors))
    assert [float(clipping.norms[id(t)]) for t in tensors] == pytest.approx(before, rel=1e-6)


def test_another_norm_is_read_by_ourselves() -> None:
    tensors, clipping = parameters(), Clipping()
    before = norms(tensors)
    clip(clipping, tensors, 0.5, norm_type=math.inf)
    assert [float(clipping.norms[id(t)]) for t in tensors] == pytest.approx(before, rel=1e-6)
    assert not any(known(clipping, tensors))


def test_half_precision_is_read_in_float32() -> None:
    tensors, clipping = parameters(dtype=torch.bfloat16), Clipping()
    before = norms(tensors)
    clip(clipping, tensors, 0.5)
    assert [float(clipping.norms[id(t)]) for t in tensors] == pytest.approx(before, rel=1e-5)
    assert known(clipping, tensors) == [True, True, True]
    assert clipping.total is not None
    coefficient = clipping.coefficient(float(clipping.total))
    assert [norm * coefficient for norm in before] == pytest.approx(norms(tensors), rel=1e-2)


def test_the_tensor_that_held_nan_before_clipping_spread_it_is_counted() -> None:
    tensors, clipping = parameters(), Clipping()
    assert tensors[1].grad is not None
    tensors[1].grad[2] = math.nan
    clip(clipping, tensors, 0.5)
    assert {key: state.nan for key, state in clipping.states.items()} == {id(tensors[1]): 1}


def train(model: nn.Module, optimizer: torch.optim.Optimizer, *, scale: float = 1.0) -> None:
    loss = (model(torch.ones(2, 3)) * scale).square().mean()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
    optimizer.zero_grad()


def test_a_clipped_step_takes_no_norm_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []

    def counted(tensors: list[Tensor]) -> list[Tensor]:
        taken.append(len(tensors))
        return l2_norms(tensors)

    monkeypatch.setattr(gate, "l2_norms", counted)
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    with watching(tmp_path, "stop") as watcher:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            train(model, optimizer)
        history = watcher.streams[0].history.recent()
    assert set(taken) == {2}
    assert taken.count(2) == 1  # the weights, at the first step only
    applied = history.signals["gradient_norm_applied"]
    assert applied == pytest.approx([0.1] * 3, rel=1e-3)
    assert (history.signals["gradient_norm"] > 0.1).all()


def test_a_norm_that_overflows_while_the_gradients_are_finite_stops_nothing(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    with watching(tmp_path, "stop") as watcher:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        train(model, optimizer)
        for parameter in model.parameters():
            parameter.grad = torch.full_like(parameter, 1e30)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        assert watcher.streams[0].step == 2


def test_nan_before_clipping_is_refused_and_named(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    watcher: Watcher
    with watching(tmp_path, "stop") as watcher:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        train(model, optimizer)
        kept = [parameter.detach().clone() for parameter in model.parameters()]
        model(torch.ones(2, 3)).square().mean().backward()
        assert model.bias.grad is not None
        model.bias.grad[0] = math.nan
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()  # refused; the loop may go round once more for the search
    assert isinstance(watcher.stopped, RunStopped)
    assert all(torch.equal(a, b) for a, b in zip(kept, model.parameters(), strict=True))
    norms_before = watcher.streams[0].history.recent().gradient_norms[-1]
    assert np.isfinite(norms_before).tolist() == [True, False]


def test_torch_has_its_own_functions_again_after_a_clip_and_after_one_that_failed() -> None:
    owners = ((torch, "_foreach_norm"), (torch.linalg, "vector_norm"))
    before = [getattr(owner, name) for owner, name in owners]
    tensors = [nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(5))]
    for one in tensors:
        one.grad = torch.full_like(one, 2.0)
    reading = Clipping().begin(tensors, ClipArguments(1.0, is_l2=True), Guard(print))
    assert reading is not None

    def fails() -> None:
        with reading:
            assert torch.linalg.vector_norm(torch.tensor([3.0, 4.0])) == 5.0
            assert torch.linalg.vector_norm is not before[1]
            raise RuntimeError("in between")

    with pytest.raises(RuntimeError, match="in between"):
        fails()
    assert [getattr(owner, name) for owner, name in owners] == before


@pytest.mark.parametrize("foreach", [True, False])
def test_both_ways_of_torch_to_clip_hand_their_norms_over(foreach: bool) -> None:
    tensors = [nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(5))]
    for one in tensors:
        one.grad = torch.full_like(one, 2.0)
    clipping = Clipping()
    reading = clipping.begin(tensors, ClipArguments(1.0, is_l2=True), Guard(print))
    assert reading is not None
    with reading:
        nn.utils.clip_grad_norm_(tensors, 1.0, foreach=foreach)
    assert [float(clipping.norms[id(one)]) for one in tensors] == pytest.approx([math.sqrt(12), math.sqrt(20)])


def test_a_total_that_is_finite_is_all_that_is_read_of_the_norms(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    monkeypatch.setattr(clipping_module, "fetch", lambda norms: read.append(len(norms)) or [1.0] * len(norms))
    clip(Clipping(), parameters(), 0.5)
    assert read == []


@pytest.mark.parametrize("foreach", [None, False])
def test_what_is_not_finite_is_counted_before_the_clip_spreads_it(foreach: bool | None) -> None:
    tensors, clipping = parameters(), Clipping()
    assert tensors[1].grad is not None
    tensors[1].grad.view(-1)[:2] = math.nan
    clip(clipping, tensors, 0.5, foreach=foreach)
    assert {key: state.nan for key, state in clipping.states.items()} == {id(tensors[1]): 2}
    assert all(bool(tensor.grad.isnan().all()) for tensor in tensors if tensor.grad is not None)

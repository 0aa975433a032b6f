"""The loss of a step is what the script means by it, however many times it calls backward."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from steadytrain.storage.run_folder import open_run
from watching import watching

MICRO, STEPS, WORDS = 4, 3, 11
Loop = Callable[[nn.Module, list[tuple[Tensor, Tensor]]], float]
"""Does the backward calls of one step and returns the loss that its author would print."""


def model_of_words() -> nn.Module:
    return nn.Sequential(nn.Embedding(WORDS, 4), nn.Linear(4, WORDS))


def batches(step: int) -> list[tuple[Tensor, Tensor]]:
    """Micro-batches of different lengths; some labels are ignored."""
    torch.manual_seed(step)
    found = []
    for length in range(3, 3 + MICRO):
        labels = torch.randint(WORDS, (2 * length,))
        labels[0] = -100
        found.append((torch.randint(WORDS, (2, length)), labels))
    return found


def per_word(model: nn.Module, words: Tensor, labels: Tensor, reduction: str = "mean") -> Tensor:
    return F.cross_entropy(model(words).flatten(0, 1), labels, reduction=reduction)


def divided_by_calls(model: nn.Module, micro: list[tuple[Tensor, Tensor]]) -> float:
    losses = [per_word(model, *one) for one in micro]
    for loss in losses:
        (loss / MICRO).backward()
    return sum(loss.item() for loss in losses) / MICRO


def not_divided(model: nn.Module, micro: list[tuple[Tensor, Tensor]]) -> float:
    total = 0.0
    for one in micro:
        loss = per_word(model, *one)
        loss.backward()
        total += loss.item()
    return total / MICRO


def divided_by_the_words_of_the_step(model: nn.Module, micro: list[tuple[Tensor, Tensor]]) -> float:
    items, total = sum(int((labels != -100).sum()) for _, labels in micro), 0.0
    for one in micro:
        loss = per_word(model, *one, reduction="sum") / items
        loss.backward()
        total += loss.item()
    return total


def a_sum_of_its_own_divided_by_the_words_of_the_step(model: nn.Module, micro: list[tuple[Tensor, Tensor]]) -> float:
    items, total = torch.tensor(sum(labels.numel() for _, labels in micro)), 0.0
    for one in micro:
        loss = per_word(model, *one, reduction="none").sum() / items
        loss.backward()
        total += loss.item()
    return total


def each_divided_by_its_own_words(model: nn.Module, micro: list[tuple[Tensor, Tensor]]) -> float:
    total = 0.0
    for words, labels in micro:
        loss = per_word(model, words, labels, reduction="sum") / int((labels != -100).sum())
        loss.backward()
        total += loss.item()
    return total / MICRO


def by_a_trainer_that_knows_the_items(model: nn.Module, micro: list[tuple[Tensor, Tensor]]) -> float:
    def training_step(one: tuple[Tensor, Tensor], num_items_in_batch: Tensor) -> float:
        loss = torch.sum(per_word(model, *one, reduction="none") * torch.ones(()) / num_items_in_batch)
        loss.backward()
        return loss.item()

    items = torch.tensor(sum(int((labels != -100).sum()) for _, labels in micro))
    return sum(training_step(one, items) for one in micro)


def the_last_with_a_line_of_its_own(model: nn.Module, micro: list[tuple[Tensor, Tensor]]) -> float:
    total = 0.0
    for at, one in enumerate(micro):
        loss = per_word(model, *one) / MICRO
        total += loss.item()
        if at < MICRO - 1:
            loss.backward()
        else:
            loss.backward()  # where other ranks are waited for
    return total


def two_halves(model: nn.Module, micro: list[tuple[Tensor, Tensor]]) -> float:
    real = per_word(model, *micro[0])
    real.backward()
    fake = per_word(model, *micro[1])
    fake.backward()
    return real.item() + fake.item()


def two_losses_of_one_call(model: nn.Module, micro: list[tuple[Tensor, Tensor]]) -> float:
    out = model(micro[0][0])
    fit = F.cross_entropy(out.flatten(0, 1), micro[0][1])
    fit.backward(retain_graph=True)
    penalty = out.square().mean()
    penalty.backward()
    return fit.item() + penalty.item()


def by_a_trainer_around_the_division(model: nn.Module, micro: list[tuple[Tensor, Tensor]]) -> float:
    """As Accelerate does, which divides by its own number of micro-batches, here 1."""
    total = 0.0
    for one in micro:
        loss = per_word(model, *one) / MICRO
        total += loss.item()
        (loss / 1).backward()
    return total


LOOPS = [
    by_a_trainer_around_the_division,
    divided_by_calls,
    not_divided,
    divided_by_the_words_of_the_step,
    a_sum_of_its_own_divided_by_the_words_of_the_step,
    each_divided_by_its_own_words,
    by_a_trainer_that_knows_the_items,
    the_last_with_a_line_of_its_own,
    two_halves,
    two_losses_of_one_call,
]


@pytest.mark.parametrize("loop", LOOPS)
def test_the_loss_of_a_step_is_what_its_author_would_print(loop: Loop, tmp_path: Path) -> None:
    expected = []
    with watching(tmp_path / "run", "stop"):
        torch.manual_seed(0)
        model = model_of_words()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(STEPS):
            optimizer.zero_grad()
            expected.append(loop(model, batches(step)))
            optimizer.step()
    assert open_run(tmp_path / "run").window().signals["loss"].tolist() == pytest.approx(expected, rel=1e-5)


class SharpnessAware(torch.optim.Optimizer):
    """An optimizer around another one, which moves the weights between two passes of a step."""

    def __init__(self, parameters: Any, inner: Callable[[Any], torch.optim.Optimizer]) -> None:
        super().__init__(parameters, {"rho": 0.05})
        self.inner = inner(self.param_groups)

    @torch.no_grad()
    def first_step(self) -> None:
        for one in self.param_groups[0]["params"]:
            self.state[one]["moved"] = 0.05 * one.grad.sign()
            one.add_(self.state[one]["moved"])
        self.zero_grad()

    @torch.no_grad()
    def second_step(self) -> None:
        for one in self.param_groups[0]["params"]:
            one.sub_(self.state[one]["moved"])
        self.inner.step()
        self.zero_grad()


def test_the_loss_of_two_passes_is_that_of_the_weights_themselves(tmp_path: Path) -> None:
    expected = []
    with watching(tmp_path / "run", "stop") as watcher:
        torch.manual_seed(0)
        model = model_of_words()
        optimizer = SharpnessAware(model.parameters(), lambda groups: torch.optim.SGD(groups, lr=0.1))
        for step in range(STEPS):
            loss = per_word(model, *batches(step)[0])
            loss.backward()
            optimizer.first_step()
            per_word(model, *batches(step)[0]).backward()
            optimizer.second_step()
            expected.append(loss.item())
        assert not watcher._run.notes
    assert open_run(tmp_path / "run").window().signals["loss"].tolist() == pytest.approx(expected, rel=1e-5)

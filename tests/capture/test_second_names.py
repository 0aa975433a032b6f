"""A reference that is the trained model itself, by the name under which the script holds it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from watching import watching

ROWS = 16


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


def step(model: nn.Module, optimizer: torch.optim.Optimizer, inputs: Tensor, targets: Tensor) -> None:
    optimizer.zero_grad()
    nn.functional.mse_loss(model(inputs), targets).backward()
    optimizer.step()


class _Preferences:
    """A trainer with a reference; ``kept`` gives it one of the model."""

    def __init__(self, model: nn.Module, kept: Callable[[nn.Module], nn.Module]) -> None:
        self.model, self.ref_model = model, kept(model)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step(self) -> None:
        inputs = torch.randn(ROWS, 4)
        with torch.no_grad():
            wanted = self.ref_model(inputs)[:, :1]
        step(self.model, self.optimizer, inputs, wanted + 1)


@pytest.mark.parametrize("before", [0, 40], ids=["from the start", "after another stage"])
@pytest.mark.parametrize(
    ("kept", "is_one"), [(lambda model: model, True), (copy.deepcopy, False)], ids=["itself", "a deep copy"]
)
def test_a_reference_that_is_the_trained_model_itself(
    kept: Callable[[nn.Module], nn.Module], is_one: bool, before: int, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    with watching(tmp_path / "run", "observe") as watcher:
        trainer = _Preferences(net(), kept)
        for _ in range(before):
            step(trainer.model, trainer.optimizer, torch.randn(ROWS, 4), torch.randn(ROWS, 1))
        for _ in range(130 - before):
            trainer.step()
        found = [one for one in watcher.symptoms if one.name == "shared-target"]
    assert [one.message.startswith("self.ref_model, which runs") for one in found] == [True] * is_one


class _Tasks:
    """A learner that keeps the models of earlier tasks in a list; and one with a short name for its reference."""

    def __init__(self, model: nn.Module, *, listed: bool) -> None:
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        if listed:
            self.previous = [model]
        else:
            self.ref = model

    def step(self) -> None:
        inputs = torch.randn(ROWS, 4)
        with torch.no_grad():
            wanted = (self.previous[0] if hasattr(self, "previous") else self.ref)(inputs)
        step(self.model, self.optimizer, inputs, wanted + 1)


@pytest.mark.parametrize(("listed", "name"), [(True, "an entry of self.previous"), (False, "self.ref")])
def test_other_names_of_a_reference(listed: bool, name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    with watching(tmp_path / "run", "observe") as watcher:
        learner = _Tasks(net(), listed=listed)
        for _ in range(40):
            learner.step()
        found = [one.message for one in watcher.symptoms if one.name == "shared-target"]
    assert [message.startswith(f"{name}, which runs") for message in found] == [True]

"""What a finished training held (model, optimizer, schedule, loader, data set) is freed while the watch goes on.

Each way is a function that trains once and returns weak references to all of it.
"""

from __future__ import annotations

import contextlib
import gc
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset

from steadytrain.capture.hooks.fail_open import raise_own_errors
from steadytrain.capture.step.dropped_optimizers import Remains
from watching import watching

TRAININGS = 3
Refs = list["weakref.ref[Any]"]


class Samples(Dataset):
    def __init__(self) -> None:
        self.rows = torch.randn(12, 4)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.rows[index]


@pytest.fixture(autouse=True)
def _only_new_objects() -> Iterator[None]:
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def epoch(model: nn.Module, optimizer: torch.optim.Optimizer, loader: DataLoader[Any]) -> float:
    for batch in loader:
        loss = model(batch).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def sweep(number: int) -> Refs:
    """A schedule binds the optimizer's own ``step``: the two form a cycle."""
    model, data = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1)), Samples()
    optimizer = torch.optim.Adam(model.parameters(), lr=10.0 ** -(number + 2))
    schedule, loader = torch.optim.lr_scheduler.StepLR(optimizer, 1), DataLoader(data, batch_size=4, shuffle=True)
    for _ in range(2):
        epoch(model, optimizer, loader)
        schedule.step()
    return [weakref.ref(one) for one in (model, model[0], optimizer, schedule, loader, data, *model.parameters())]


def fold(number: int) -> Refs:
    """One of k folds, with an evaluation and the best weights taken back at the end."""
    model, data = nn.Linear(4, 1), Samples()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    train, valid = Subset(data, [n for n in range(12) if n % 3 != number]), Subset(data, [number])
    epoch(model, optimizer, DataLoader(train, batch_size=4))
    best = {name: value.clone() for name, value in model.state_dict().items()}
    optimizer.load_state_dict(optimizer.state_dict())
    epoch(model, optimizer, DataLoader(train, batch_size=4))
    with torch.no_grad():
        model(next(iter(DataLoader(valid))))
    model.load_state_dict(best)
    return [weakref.ref(one) for one in (model, optimizer, data, train, valid, *model.parameters())]


class PrunedError(Exception):
    pass


def trial(number: int) -> Refs:
    """As under Optuna: the objective raises in the middle of a step, and the study goes on."""
    refs: Refs = []

    def objective() -> None:
        model, data = nn.Linear(4, 1), Samples()
        optimizer = torch.optim.RMSprop(model.parameters(), lr=0.01)
        refs.extend(weakref.ref(one) for one in (model, optimizer, data))
        epoch(model, optimizer, DataLoader(data, batch_size=4))
        raise PrunedError

    with contextlib.suppress(PrunedError):
        objective()
    return refs


def cells(number: int) -> Refs:
    """As in a notebook: cells share their variables, which are deleted one by one."""
    space: dict[str, Any] = {"nn": nn, "torch": torch, "Samples": Samples, "DataLoader": DataLoader, "epoch": epoch}
    exec("model, data = nn.Linear(4, 1), Samples()\noptimizer = torch.optim.AdamW(model.parameters())", space)
    exec("loader = DataLoader(data, batch_size=4)", space)
    exec("epoch(model, optimizer, loader)", space)
    refs = [weakref.ref(space[name]) for name in ("model", "data", "optimizer", "loader")]
    for name in ("optimizer", "model", "loader", "data"):
        exec(f"del {name}", space)
    return refs


def pair(number: int) -> Refs:
    """Two optimizers in turn, dropped together."""
    models = [nn.Linear(4, 4), nn.Linear(4, 4)]
    optimizers = [torch.optim.Adam(model.parameters()) for model in models]
    for _ in range(3):
        for model, optimizer in zip(models, optimizers, strict=True):
            epoch(model, optimizer, DataLoader(Samples(), batch_size=6))
    return [weakref.ref(one) for one in (*models, *optimizers)]


@pytest.mark.parametrize("train", [sweep, fold, trial, cells, pair])
def test_nothing_of_a_finished_training_is_alive(tmp_path: Path, train: Callable[[int], Refs]) -> None:
    with raise_own_errors(), watching(tmp_path / "run", "stop") as watcher:
        for number in range(TRAININGS):
            refs = train(number)
            gc.collect()
            assert [ref() for ref in refs if ref() is not None] == []
        assert all(stream.step >= 3 for stream in watcher.streams)
        assert all(stream.last_facts and stream.last_facts["optimizer"] for stream in watcher.streams)


def test_a_last_batch_without_an_update_is_judged_though_its_function_has_returned(tmp_path: Path) -> None:
    def train() -> None:
        model = nn.Linear(4, 1)
        optimizer = torch.optim.Adam(model.parameters())
        epoch(model, optimizer, DataLoader(Samples(), batch_size=4))
        optimizer.zero_grad()
        loss = model(torch.full((2, 4), torch.nan)).mean()
        loss.backward()  # and no update

    with watching(tmp_path / "run", "stop") as watcher:
        train()
        gc.collect()
    assert [path.name for path in watcher.incidents] == ["step-000004-no-update"]
    assert (watcher.incidents[0] / "optimizer.safetensors").is_file()


def test_an_optimizer_that_keeps_its_parts_elsewhere_is_held_until_the_next_one() -> None:
    class Wrapper(torch.optim.Optimizer):
        def __init__(self, inner: torch.optim.Optimizer) -> None:
            self.inner = inner

        state = property(lambda self: self.inner.state)
        param_groups = property(lambda self: self.inner.param_groups)
        defaults = property(lambda self: self.inner.defaults)

    gone: list[Any] = []
    wrapper = Wrapper(torch.optim.SGD(nn.Linear(2, 1).parameters(), lr=0.1))
    remains = Remains(wrapper, gone.append)
    held = weakref.ref(wrapper)
    del wrapper
    assert held() is not None
    assert remains.stand_in() is None
    kept = remains.loosen()
    assert isinstance(kept, Wrapper)
    del kept
    assert held() is None
    assert gone == [remains.reference]

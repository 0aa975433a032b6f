"""A script that trains many models in one process (a sweep, cross-validation) gets the memory of each back."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from steadytrain.capture.snapshots import saved_checkpoints
from steadytrain.capture.step.dataset_numbers import HELD_MAX, DatasetNumbers
from watching import watching

MODELS = 20
MODELS_IN_CYCLES = 5


@pytest.fixture(autouse=True, scope="module")
def _only_new_objects() -> Iterator[None]:
    """The collector passes over all that is there already: it is asked often here, and looks for models only."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def trained(*, compiled: bool = False, cycle: bool = False) -> tuple[list[weakref.ref[Any]], list[float]]:
    """References to all of one model that has made three steps, and its losses; nothing else of it is left."""
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
    if compiled:
        model.compile(backend="eager")
    if cycle:
        model.trainer = SimpleNamespace(model=model)  # as trainers have it
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(torch.randn(4, 8)).pow(2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return [weakref.ref(one) for one in (model, model[0], optimizer, *model.parameters())], losses


def alive(refs: list[list[weakref.ref[Any]]]) -> int:
    gc.collect()
    return sum(any(ref() is not None for ref in of_model) for of_model in refs)


@pytest.mark.parametrize("cycle", [False, True])
def test_every_model_is_let_go_while_the_watch_goes_on(tmp_path: Path, cycle: bool) -> None:
    refs, number = [], MODELS_IN_CYCLES if cycle else MODELS
    with watching(tmp_path / "run", "stop") as watcher:
        for _ in range(number):
            refs.append(trained(cycle=cycle)[0])
            assert alive(refs) == 0
        assert [stream.step for stream in watcher.streams] == [3] * number


def test_a_watch_that_has_ended_holds_nothing_for_imports_to_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saved_checkpoints, "MODULES", ("steadytrain_imported_by_nobody",))
    finders = list(sys.meta_path)
    with watching(tmp_path / "run", "stop"):
        refs = [trained()[0]]
        last = nn.Linear(2, 1)  # the newest model is the one that a watch has in its hands when it ends
        last(torch.randn(3, 2)).sum().backward()
        refs.append([weakref.ref(last)])
        assert len(sys.meta_path) > len(finders)
    del last
    assert sys.meta_path == finders
    assert alive(refs) == 0


def test_a_model_goes_when_the_next_optimizer_is_made_before_anything_of_it_runs(tmp_path: Path) -> None:
    with watching(tmp_path / "run", "stop"):
        refs = [trained()[0]]
        torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)
        assert alive(refs) == 0


def test_a_module_that_compiled_itself_is_let_go(tmp_path: Path) -> None:
    with watching(tmp_path / "run", "stop"):
        refs = [trained(compiled=True)[0] for _ in range(3)]
        torch.compiler.reset()
        assert alive(refs) <= 1


def test_optimizers_that_take_turns_go_on_when_another_is_made(tmp_path: Path) -> None:
    def losses(watched: bool) -> list[float]:
        torch.manual_seed(0)
        models = [nn.Linear(3, 1), nn.Linear(3, 1)]
        optimizers = [torch.optim.Adam(model.parameters(), lr=0.1) for model in models]
        found: list[Tensor] = []
        for step in range(6):
            if step == 3:
                models.append(nn.Linear(3, 1))
                optimizers.append(torch.optim.Adam(models[-1].parameters(), lr=0.1))
            for model, optimizer in zip(models, optimizers, strict=True):
                loss = model(torch.ones(2, 3)).pow(2).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                found.append(loss.detach())
        return torch.stack(found).tolist()

    with watching(tmp_path / "run", "stop") as watcher:
        seen = losses(True)
        assert [stream.step for stream in watcher.streams] == [6, 6, 3]
    assert seen == losses(False)


def test_the_facts_of_a_model_that_is_gone_are_those_of_its_last_step(tmp_path: Path) -> None:
    from steadytrain.capture.incident.incident import script_facts

    with watching(tmp_path / "run", "stop") as watcher:
        trained()
        stream = watcher.streams[0]
        before = script_facts(stream, list(stream.roots()))
        trained()
        assert not stream.parameters
        assert script_facts(stream, list(stream.roots())) == before
        assert before["model"]["class"] == "Sequential"
        assert before["optimizer"][0]["class"] == "torch.optim.adamw.AdamW"


def test_a_data_set_at_the_address_of_one_that_is_gone_has_a_number_of_its_own() -> None:
    class Samples:
        pass

    numbers = DatasetNumbers()
    assert [numbers.number_of(SimpleNamespace(_dataset=Samples())) for _ in range(50)] == list(range(50))
    assert [numbers.number_of(SimpleNamespace(_dataset=[0.0])) for _ in range(50)] == list(range(50, 100))


def test_a_data_set_keeps_its_number_and_only_a_few_plain_lists_are_held() -> None:
    numbers = DatasetNumbers()
    train, valid = [1.0], torch.utils.data.TensorDataset(torch.ones(2))
    for _ in range(3):
        assert [numbers.number_of(SimpleNamespace(_dataset=one)) for one in (train, valid)] == [0, 1]
    assert numbers.key_of(1) == id(valid)
    for number in range(2 * HELD_MAX):
        numbers.number_of(SimpleNamespace(_dataset=[number]))
    assert len(numbers._held) == HELD_MAX

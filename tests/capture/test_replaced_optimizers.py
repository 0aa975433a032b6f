"""A new optimizer for the same parameters continues the training. Any other one begins a training of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from steadytrain.capture.step.watcher import Watcher
from steadytrain.report.circumstances import run_facts
from steadytrain.storage.run_folder import open_run
from watching import watching

STEPS = 6
Make = Callable[..., torch.optim.Optimizer]


def trained(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = STEPS, *, clamps: bool = False) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
        with torch.no_grad():
            for one in model.parameters() if clamps else ():
                one.clamp_(-1.0, 1.0)


def steps_of(watcher: Watcher) -> dict[str, int]:
    return {stream.name: stream.step for stream in watcher.streams}


def adam(model: nn.Module, rate: float = 1e-2) -> torch.optim.Optimizer:
    return torch.optim.Adam(filter(lambda one: one.requires_grad, model.parameters()), lr=rate)


def replaced(folder: Path) -> dict[str, Any]:
    fact: dict[str, Any] = open_run(folder).facts.get("replaced_optimizers", {"count": 0, "first": []})
    return fact


def test_steps_count_on(tmp_path: Path) -> None:
    with watching(tmp_path / "run", "observe") as watcher:
        model = nn.Linear(4, 1)
        optimizer = adam(model)
        trained(model, optimizer)
        optimizer = adam(model, 1e-3)
        trained(model, optimizer)
        assert steps_of(watcher) == {"main": 2 * STEPS}
        assert watcher.streams[0].optimizers == [optimizer]
    entry = {"stream": "main", "step": STEPS + 1, "old": "Adam", "new": "Adam", "old_rate": 1e-2, "new_rate": 1e-3}
    assert replaced(tmp_path / "run") == {"count": 1, "first": [entry]}
    run = open_run(tmp_path / "run")
    assert run.streams() == ["main"]
    (said,) = [fact.value for fact in run_facts(run, None) if fact.label == "optimizer replaced"]
    assert said == "in step 7: Adam by another Adam, learning rate 0.01 to 0.001"


@pytest.mark.parametrize("clamps", [False, True])
def test_the_old_one_is_kept(clamps: bool, tmp_path: Path) -> None:
    """As a scheduler keeps it; and the script may write to the weights after each of its updates."""
    with watching(tmp_path / "run", "observe") as watcher:
        model = nn.Linear(4, 1)
        kept = [adam(model), torch.optim.SGD(model.parameters(), lr=1e-2)][:1]
        trained(model, kept[0], clamps=clamps)
        kept.append(torch.optim.SGD(model.parameters(), lr=1e-2))
        trained(model, kept[1], clamps=clamps)
        assert steps_of(watcher) == {"main": 2 * STEPS}
    assert replaced(tmp_path / "run")["first"][0]["new"] == "SGD"


def test_each_of_two_that_step_together(tmp_path: Path) -> None:
    with watching(tmp_path / "run", "observe") as watcher:
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
        for _ in range(2):
            first = torch.optim.SGD(model[0].parameters(), lr=1e-2)
            second = torch.optim.Adam(model[1].parameters(), lr=1e-2)
            for _ in range(STEPS):
                model.zero_grad()
                model(torch.randn(8, 4)).square().mean().backward()
                first.step()
                second.step()
        assert steps_of(watcher) == {"main": 2 * STEPS}
        assert watcher.streams[0].optimizers == [first, second]
        assert len(watcher.streams[0].parameters) == 4


def loads_other_weights(model: nn.Module) -> nn.Module:
    model.load_state_dict(nn.Linear(4, 1).state_dict())
    return model


def begins_with_another_model(model: nn.Module) -> nn.Module:
    return nn.Linear(4, 1)


def takes_back_its_best(model: nn.Module) -> nn.Module:
    with torch.no_grad():
        for one in model.parameters():
            one.copy_(one.clone())
    return model


@pytest.mark.parametrize("between", [loads_other_weights, begins_with_another_model, takes_back_its_best])
def test_other_weights_are_another_training(between: Callable[[nn.Module], nn.Module], tmp_path: Path) -> None:
    with watching(tmp_path / "run", "observe") as watcher:
        model: nn.Module = nn.Linear(4, 1)
        optimizer = adam(model)
        trained(model, optimizer)
        model = between(model)
        optimizer = adam(model)
        trained(model, optimizer)
        assert steps_of(watcher) == {"main": STEPS, "optimizer-2": STEPS}
        assert not watcher._run.turns.may_be_next(watcher.streams[1], watcher.streams)
    assert replaced(tmp_path / "run")["count"] == 0


def test_those_that_take_turns_stay_apart(tmp_path: Path) -> None:
    """Over the same parameters, in each step, each after a backward of its own."""
    with watching(tmp_path / "run", "observe") as watcher:
        model = nn.Linear(4, 1)
        both = [adam(model), torch.optim.SGD(model.parameters(), lr=1e-2)]
        for _ in range(STEPS):
            for one in both:
                trained(model, one, 1)
        assert steps_of(watcher) == {"main": STEPS, "optimizer-2": STEPS}
        assert watcher._run.turns.may_be_next(watcher.streams[1], watcher.streams)
    assert replaced(tmp_path / "run")["count"] == 0


def test_one_that_comes_back_was_not_replaced(tmp_path: Path) -> None:
    with watching(tmp_path / "run", "observe") as watcher:
        model = nn.Linear(4, 1)
        both = [adam(model)]
        trained(model, both[0])
        both.append(torch.optim.SGD(model.parameters(), lr=1e-2))
        for _ in range(STEPS):
            trained(model, both[1], 1)
            trained(model, both[0], 1)
        assert steps_of(watcher) == {"main": 2 * STEPS, "optimizer-2": STEPS}
    assert replaced(tmp_path / "run") == {"count": 0, "first": []}
    assert open_run(tmp_path / "run").facts["optimizers_in_turn"] == 2


def test_a_head_and_then_all_are_two_trainings(tmp_path: Path) -> None:
    with watching(tmp_path / "run", "observe") as watcher:
        model = nn.Sequential(nn.Linear(4, 16), nn.Linear(16, 1))
        optimizer = adam(model[1])
        trained(model, optimizer)
        optimizer = adam(model)
        trained(model, optimizer)
        assert steps_of(watcher) == {"main": STEPS, "optimizer-2": STEPS}


def test_the_next_one_is_dropped_before_it_steps(tmp_path: Path) -> None:
    with watching(tmp_path / "run", "observe") as watcher:
        model = nn.Linear(4, 1)
        optimizer = adam(model)
        trained(model, optimizer)
        following = adam(model)
        del optimizer
        assert watcher.streams[0].parameters
        del following
        assert not watcher.streams[0].parameters


def test_many_replacements_are_counted(tmp_path: Path) -> None:
    """An optimizer made anew in each step."""
    with watching(tmp_path / "run", "observe") as watcher:
        model = nn.Linear(4, 1)
        for _ in range(100):
            optimizer = adam(model)
            trained(model, optimizer, 1)
        assert steps_of(watcher) == {"main": 100}
    fact = replaced(tmp_path / "run")
    assert len(fact["first"]) == 32
    assert fact["count"] >= 64

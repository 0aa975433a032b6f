"""Weights that are put into the model for an evaluation: an average that is still what it began with, and others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from steadytrain.capture.looks.evaluated_weights import EvaluatedWeights
from watching import watching

STEPS, EVERY = 240, 40
Weights = dict[str, Tensor]
Update = Callable[[Weights, nn.Module, int], None]


@contextmanager
def put_in(model: nn.Module, weights: Weights, *, alias: bool = False) -> Iterator[None]:
    own = {name: one.detach() if alias else one.detach().clone() for name, one in model.named_parameters()}
    with torch.no_grad():
        for name, one in model.named_parameters():
            one.copy_(weights[name])
        yield
        for name, one in model.named_parameters():
            one.copy_(own[name])


def average(decay: float) -> Update:
    def update(held: Weights, model: nn.Module, step: int) -> None:
        for name, one in model.named_parameters():
            held[name].mul_(decay).add_(one, alpha=1 - decay)

    return update


def mean_of_all(held: Weights, model: nn.Module, step: int) -> None:
    for name, one in model.named_parameters():
        held[name].add_(one - held[name], alpha=1 / step)


def shaken(held: Weights, model: nn.Module, step: int) -> None:
    for name, one in model.named_parameters():
        held[name] = one + 0.1 * torch.randn_like(one)


def train(update: Update, *, raw_beside: bool = False, never_again: bool = False, alias: bool = False) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))
    held = {name: one.detach().clone() for name, one in model.named_parameters()}
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    rows = torch.randn(64, 4)
    for step in range(1, STEPS + 1):
        x = torch.randn(16, 4)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x)[:, 0], x.sum(1).tanh()).backward()
        optimizer.step()
        with torch.no_grad():
            update(held, model, step)
        if step % EVERY == 0 and not (never_again and step > EVERY):
            with torch.no_grad(), put_in(model, held, alias=alias):
                model(rows)
        if step % EVERY == 0 and (raw_beside or never_again):
            with torch.no_grad():
                model(rows)


@pytest.mark.parametrize(
    ("update", "how", "told"),
    [
        (average(0.9999), {}, True),
        (average(0.95), {}, False),
        (average(0.9999), {"raw_beside": True}, False),
        (average(0.9999), {"never_again": True}, False),
        (mean_of_all, {}, False),
        (shaken, {}, False),
    ],
    ids=["slow", "fast", "beside the model itself", "once, at first", "mean of all", "shaken"],
)
def test_weights_that_stay_what_they_were(update: Update, how: dict[str, bool], told: bool, tmp_path: Path) -> None:
    with watching(tmp_path, "observe") as watcher:
        train(update, **how)
    found = [one for one in watcher.symptoms if one.name == "slow-average"]
    assert [one.severity for one in found] == ["warning"] * told
    assert all("the average of Sequential that is evaluated is still" in one.message for one in found)


@pytest.mark.parametrize(("alias", "severity"), [(True, ["warning"]), (False, [])])
def test_an_average_that_is_not_taken_out_is_trained_on(alias: bool, severity: list[str], tmp_path: Path) -> None:
    with watching(tmp_path, "observe") as watcher:
        train(average(0.997), alias=alias)
    found = [one for one in watcher.symptoms if one.name == "replaced-weights"]
    assert [one.severity for one in found] == severity
    assert [one.first_step for one in found] == [2 * EVERY + 1] * alias  # what an update is, is known since the first
    assert all("Sequential trains the weights that were evaluated before it" in one.message for one in found)


def test_a_part_that_is_called_alone_at_set_up_is_no_evaluation(tmp_path: Path) -> None:
    torch.manual_seed(0)
    with watching(tmp_path, "observe") as watcher:
        layer = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 32))
        model = nn.Sequential(layer, nn.Tanh(), nn.Linear(32, 1))
        parametrization = layer.parametrizations["weight"]
        parametrization()
        with torch.no_grad():
            parametrization()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        for _ in range(STEPS):
            x = torch.randn(16, 4)
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x)[:, 0], x.sum(1).tanh()).backward()
            optimizer.step()
    assert "slow-average" not in {one.name for one in watcher.symptoms}


def test_a_module_without_parameters_is_left_alone() -> None:
    look, loss = EvaluatedWeights(), nn.MSELoss()
    look.called(loss)
    look.called_aside(loss)
    look.called(loss)
    assert list(look.rows()) == []

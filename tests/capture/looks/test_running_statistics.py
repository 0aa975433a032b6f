"""Which batch norms count as never having learned their running statistics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch
from torch import nn

from steadytrain.capture.looks.running_statistics import has_statistics, slow_norms, statistics_rows


def rows(norm: nn.Module, *, prepare: Callable[[nn.Module], object] = lambda model: None) -> dict[str, float]:
    model = nn.Sequential(nn.Linear(4, 6), norm, nn.Linear(6, 2))
    prepare(model)
    for _ in range(3):
        x = torch.randn(8, 4)
        model(x).square().sum().backward()
    return dict(statistics_rows([model]))


def test_a_momentum_of_zero() -> None:
    assert rows(nn.BatchNorm1d(6, momentum=0.0)) == {"new-statistics:1": 0.0}


def test_statistics_that_are_reset() -> None:
    norm = nn.BatchNorm1d(6)
    rows(norm)
    norm.reset_running_stats()
    assert dict(statistics_rows([norm])) == {"new-statistics:BatchNorm1d": pytest.approx(0.1)}


@pytest.mark.parametrize(
    "norm",
    [
        nn.BatchNorm1d(6),
        nn.BatchNorm1d(6, momentum=None),
        nn.BatchNorm1d(6, momentum=0.0, track_running_stats=False),
        nn.LayerNorm(6),
    ],
)
def test_others_are_left_alone(norm: nn.Module) -> None:
    assert rows(norm) == {}


def test_frozen_in_evaluation_mode() -> None:
    assert rows(nn.BatchNorm1d(6, momentum=0.0), prepare=lambda model: model.eval()) == {}


def test_statistics_that_were_loaded() -> None:
    norm = nn.BatchNorm1d(6, momentum=0.0)
    norm.running_mean.fill_(0.3)  # type: ignore[union-attr]
    assert rows(norm) == {}


def test_a_norm_that_was_not_called() -> None:
    class Unused(nn.Sequential):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self[2](self[0](x))

    model = Unused(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 2))
    model(torch.randn(8, 4)).sum().backward()
    assert dict(statistics_rows([model])) == {}


class OfScript(nn.Module):
    def __init__(self, *, copied: bool) -> None:
        super().__init__()
        self.gain, self.copied = nn.Parameter(torch.ones(6)), copied
        self.register_buffer("running_mean", torch.zeros(6))
        self.register_buffer("running_var", torch.ones(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        held = [one.clone() if self.copied else one for one in (self.running_mean, self.running_var)]
        return nn.functional.batch_norm(x, *held, self.gain, training=self.training)


def test_a_norm_of_the_script_that_updates_copies_of_its_buffers() -> None:
    assert rows(OfScript(copied=True)) == {"new-statistics:1": -1.0}
    assert rows(OfScript(copied=False)) == {}
    assert rows(OfScript(copied=True), prepare=lambda model: model.eval()) == {}


def trained(norm: nn.BatchNorm1d, steps: int) -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 12), norm, nn.Linear(12, 2))
    for _ in range(steps):
        model(torch.randn(8, 4)).square().sum().backward()
    return model


def test_a_small_momentum_keeps_the_first_statistics() -> None:
    assert slow_norms([trained(nn.BatchNorm1d(12, momentum=3e-4), 16)]) == {"1": (3e-4, 16)}
    assert slow_norms([trained(nn.BatchNorm1d(12, momentum=0.04), 32)]) == {}
    assert slow_norms([trained(nn.BatchNorm1d(12), 16)]) == {}


def test_statistics_of_an_earlier_training_are_not_the_first_ones() -> None:
    norm = nn.BatchNorm1d(12, momentum=3e-4)
    norm.running_var.copy_(torch.linspace(0.05, 2.0, 12))  # type: ignore[union-attr]
    assert slow_norms([trained(norm, 16)]) == {}


def test_a_module_that_counts_what_it_is_asked_for_is_asked_for_nothing() -> None:
    class Curious(nn.Module):
        asked: ClassVar[list[str]] = []

        def __getattr__(self, name: str) -> Any:
            self.asked.append(name)
            return super().__getattr__(name)

    assert not has_statistics(Curious())
    assert Curious.asked == []
    assert has_statistics(nn.BatchNorm1d(2))

"""What counts as training biases and norms alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import nn

from steadytrain.capture.looks.trained_elements import descent_rows
from steadytrain.detectors.few_trained_parameters import FewTrainedParameters
from steadytrain.grouping.catalog import declared
from watching import watching

Chosen = Callable[[str], bool]


def said(chosen: Chosen, folder: Path) -> list[str]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 200), nn.LayerNorm(200), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, 3))
    for name, one in model.named_parameters():
        one.requires_grad_(chosen(name))
    with watching(folder, "observe") as watcher:
        optimizer = torch.optim.Adam([one for one in model.parameters() if one.requires_grad], lr=1e-3)
        for _ in range(8):
            optimizer.zero_grad()
            model(torch.randn(16, 8)).square().mean().backward()
            optimizer.step()
    return [one.message for one in watcher.symptoms if declared(one.name) is FewTrainedParameters]


@pytest.mark.parametrize(
    ("chosen", "kind"),
    [
        (
            lambda name: name in ("0.bias", "2.bias", "4.bias"),
            "403 of 43,003 elements of the model are trained: biases",
        ),
        (lambda name: name.startswith("1."), "400 of 43,003 elements of the model are trained: norms"),
        (lambda name: "bias" in name, "603 of 43,003 elements of the model are trained: biases and norms"),
    ],
)
def test_biases_and_norms(chosen: Chosen, kind: str, tmp_path: Path) -> None:
    assert said(chosen, tmp_path) == [f"only {kind}"]


@pytest.mark.parametrize("chosen", [lambda name: True, lambda name: name.startswith("4."), lambda name: "0" in name])
def test_heads_and_whole_models_are_left_alone(chosen: Chosen, tmp_path: Path) -> None:
    assert said(chosen, tmp_path) == []


def test_descent_is_that_of_sgd_alone() -> None:
    one = nn.Linear(2, 2)
    plain, heavy = (torch.optim.SGD(one.parameters(), lr=0.1, momentum=momentum) for momentum in (0.0, 0.9))
    adam = torch.optim.Adam(one.parameters())
    found = [dict(descent_rows(cast(Any, SimpleNamespace(optimizers=each)))) for each in ([plain], [heavy], [adam])]
    assert found == [{"descent:SGD": 1.0}, {"descent:SGD": pytest.approx(10.0)}, {}]

"""One time for all rows of a batch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from steadytrain.capture.looks.regression_targets import RegressionTargets
from steadytrain.capture.looks.shared_times import SharedTimes

ROWS = 16


def after(*times: torch.Tensor) -> dict[str, float]:
    shared, shown = SharedTimes(), {}
    for one in times:
        target = torch.randn(ROWS, 2)
        shown = dict(shared.rows(target, (torch.randn(ROWS, 2), one)))
    return shown


def test_one_time_a_step() -> None:
    assert after(torch.full((ROWS,), 3), torch.full((ROWS,), 8), torch.full((ROWS,), 8)) == {"shared-time": 2.0}
    assert after(torch.tensor([0.2]), torch.tensor([0.7]), torch.tensor(0.9)) == {"shared-time": 3.0}


def test_times_of_their_own() -> None:
    assert after(torch.arange(ROWS), torch.full((ROWS,), 8)) == {}
    assert after(*[torch.full((ROWS,), 5)] * 4) == {}
    assert after() == {}


def test_it_is_read_of_noise() -> None:
    torch.manual_seed(0)
    targets, found = RegressionTargets(), []
    for at in range(2):
        noise, x = torch.randn(600, 2), torch.randn(600, 2)
        call: Any = SimpleNamespace(args=(x + noise, torch.full((600,), at)), kwargs={})
        found.append("shared-time" in dict(targets.rows([noise], call)))
    assert found == [False, True]

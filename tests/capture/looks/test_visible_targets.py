"""Targets that stand among the inputs, and targets that do not."""

from __future__ import annotations

import torch
from torch import Tensor

from steadytrain.capture.looks.visible_targets import visible_targets

ROWS = 32


def shown(target: Tensor, *given: Tensor) -> dict[str, float]:
    return dict(visible_targets(target, given))


def test_the_last_step_of_a_window() -> None:
    torch.manual_seed(0)
    windows, several = torch.randn(ROWS, 24), torch.randn(ROWS, 24, 3)
    assert shown(windows[:, -1], windows) == {"target-in-last-input": 23.0}
    assert shown(windows[:, -1:] * 3.0 + 50.0, windows) == {"target-in-last-input": 23.0}
    assert shown(several[:, -1, 1], several) == {"target-in-last-input": 70.0}
    assert shown(several.transpose(1, 2)[:, 0, -1], several.transpose(1, 2)) == {"target-in-last-input": 23.0}


def test_a_column_of_a_table() -> None:
    torch.manual_seed(0)
    table = torch.randn(ROWS, 12)
    assert shown(table[:, 4], table) == {"target-in-input": 4.0}
    assert shown(table[:, [2, 3]], torch.randn(ROWS, 12), table) == {"target-in-input": 3.0}


def test_targets_that_are_not_there() -> None:
    torch.manual_seed(0)
    windows = torch.randn(ROWS, 24)
    following = 0.999 * windows[:, -1] + 0.03 * torch.randn(ROWS)
    assert shown(following, windows) == {}
    assert shown(windows, windows) == {}
    assert shown(windows[:, :8], windows) == {}
    assert shown(windows[:8, -1], windows[:8]) == {}
    assert shown((windows[:, -1] > 0).float(), (windows > 0).float()) == {}
    assert shown(3.0 * windows[:, :1] + 1.0, windows[:, :2]) == {}
    assert shown(windows[:, -1], torch.cat([windows[:-1], torch.randn(1, 24)])) == {}
    assert shown(torch.ones(ROWS), torch.ones(ROWS, 24)) == {}

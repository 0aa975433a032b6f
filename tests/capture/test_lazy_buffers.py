"""A lazy module has buffers without a shape before its first call: they are not kept, and nothing is reported."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from steadytrain.capture.hooks.fail_open import raise_own_errors
from watching import watching


def test_a_lazy_batch_norm_trains_under_a_watch(tmp_path: Path) -> None:
    with raise_own_errors(), watching(tmp_path / "run", "stop") as watcher:
        model = nn.Sequential(nn.LazyLinear(4), nn.LazyBatchNorm1d(), nn.Linear(4, 1))
        model(torch.randn(8, 3)).sum().backward()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.randn(8, 3)).pow(2).mean().backward()
            optimizer.step()
        assert [stream.step for stream in watcher.streams] == [2]

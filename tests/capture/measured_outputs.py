"""Modules and measurements that the tests of output statistics share."""

from __future__ import annotations

from typing import Any

from torch import nn


class Around(nn.Module):
    def __init__(self, inner: nn.Module, calls: int = 1) -> None:
        super().__init__()
        self.inner, self.calls = inner, calls

    def forward(self, *args: Any) -> None:
        for _ in range(self.calls):
            self.inner(*args)

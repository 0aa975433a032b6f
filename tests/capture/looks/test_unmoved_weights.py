"""Weights in 16 bits are compared over 64 updates: random rounding moves them, rounding to the nearest does not."""

from __future__ import annotations

from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from steadytrain.capture.looks.unmoved_weights import HalfWeights
from steadytrain.capture.step.optimizer_streams import Stream


class Counted(Stream):
    made = 0

    @property
    def own_steps(self) -> int:
        return self.made


def at_random(value: Tensor) -> Tensor:
    bits = value.contiguous().view(torch.int32)
    bits = bits + torch.randint_like(bits, 0, 1 << 16)
    return (bits & -65536).view(torch.float32).to(torch.bfloat16)


def nearest(value: Tensor) -> Tensor:
    return value.to(torch.bfloat16)


def readings(rounded: Any, dtype: torch.dtype = torch.bfloat16) -> list[tuple[str, float]]:
    torch.manual_seed(0)
    model = nn.Linear(64, 64).to(dtype)
    parameters, optimizer = list(model.parameters()), torch.optim.SGD(model.parameters(), lr=1e-4)
    looked, found = HalfWeights(), []
    with torch.no_grad():
        for step in range(150):
            stream = Counted("main", cast(Any, None), parameters=parameters)
            stream.join(optimizer)
            stream.made = step
            found += list(looked.rows(stream))
            for one in model.parameters():
                one.copy_(rounded(one.float() + 1e-4 * torch.randn(one.shape)).to(dtype))
    return found


def test_random_rounding_moves_nearly_all() -> None:
    (name, first), (_, second) = readings(at_random)
    assert name == "unmoved:SGD"
    assert max(first, second) < 0.1


def test_rounding_to_the_nearest_leaves_many() -> None:
    assert min(share for _, share in readings(nearest)) > 0.2


@pytest.mark.parametrize("rounded", [at_random, nearest])
def test_float32_is_not_read(rounded: Any) -> None:
    assert readings(rounded, torch.float32) == []

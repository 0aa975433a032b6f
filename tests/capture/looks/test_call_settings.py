"""Plain numbers that a script passes to its model are read by the name of their parameter."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from steadytrain.capture.looks.call_settings import setting_rows
from steadytrain.capture.step.input_recorder import MicroBatch, record_call


class Decoder(nn.Module):
    def forward(self, past: Tensor, share: float, *, tau: float = 1.0, hard: bool = False) -> Tensor:
        return past * share * tau


def called(*args: object, **kwargs: object) -> list[MicroBatch]:
    return [record_call(Decoder(), args, kwargs, None)]


def test_numbers_by_position_and_by_name() -> None:
    calls = called(torch.ones(2), 0.25, tau=2, hard=True)
    assert dict(setting_rows(calls)) == {"setting:share": 0.25, "setting:tau": 2.0}


def test_tensors_and_calls_without_numbers_are_not_read() -> None:
    assert dict(setting_rows(called(torch.ones(2), torch.tensor(0.5)))) == {}
    assert dict(setting_rows([])) == {}

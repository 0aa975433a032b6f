"""Buffers of a model that hold NaN."""

from __future__ import annotations

import torch
from torch import nn

from steadytrain.capture.looks.nan_buffers import BUFFERS_MAX, ELEMENTS_MAX, nan_buffer_rows


def test_statistics_after_a_batch_that_is_not_finite() -> None:
    net = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    assert dict(nan_buffer_rows([net])) == {}
    net(torch.full((8, 4), float("inf")))
    assert dict(nan_buffer_rows([net, net])) == {"nan-buffer:1.running_mean": 3.0, "nan-buffer:1.running_var": 3.0}
    module = net[1]
    assert isinstance(module, nn.BatchNorm1d)
    module.reset_running_stats()
    assert dict(nan_buffer_rows([net])) == {}


def test_what_is_no_fault_and_what_is_not_read() -> None:
    net = nn.Module()
    net.register_buffer("mask", torch.full((4, 4), float("-inf")).triu(1))
    net.register_buffer("both", torch.tensor([float("inf"), float("-inf")]))
    net.register_buffer("count", torch.tensor(3))
    net.register_buffer("large", torch.full((ELEMENTS_MAX + 1,), float("nan")))
    net.register_buffer("empty", torch.zeros(0))
    assert dict(nan_buffer_rows([net])) == {}
    assert dict(nan_buffer_rows([nn.Linear(2, 2)])) == {}
    net.register_buffer("small", torch.tensor([float("nan"), 1.0], dtype=torch.bfloat16))
    assert dict(nan_buffer_rows([net])) == {"nan-buffer:small": 1.0}


def test_so_many_buffers_at_most() -> None:
    net = nn.Module()
    for place in range(BUFFERS_MAX + 8):
        net.register_buffer(f"b{place}", torch.tensor([float("nan")]))
    assert 0 < len(dict(nan_buffer_rows([net]))) <= BUFFERS_MAX

"""What a watched step leaves behind is freed at once, not when the garbage collector runs: a model's gradients would
otherwise stay in memory several times over."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

import steadytrain

STEPS = 70
"""More than every cadence of a young run: steps measured whole, snapshots, looks at the script."""


@pytest.fixture
def garbage() -> Iterator[list[object]]:
    """Everything that only the garbage collector can free, from here on."""
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield gc.garbage
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


@pytest.mark.parametrize("clips", [False, True])
def test_no_tensor_of_a_step_waits_for_the_garbage_collector(
    tmp_path: Path, garbage: list[object], clips: bool
) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with steadytrain.watch(model, optimizer, runs_dir=tmp_path, to=("none",)):
        for _ in range(STEPS):
            loss = model(torch.randn(8, 16)).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            if clips:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        gc.collect()
        left = [tuple(one.shape) for one in garbage if isinstance(one, torch.Tensor)]
    assert not left


def test_a_finished_training_is_freed_without_the_garbage_collector(tmp_path: Path) -> None:
    """Of a sweep over large models one would be in memory several dozen times."""
    refs: list[weakref.ref[nn.Parameter]] = []

    def trial() -> None:
        model = nn.Sequential(nn.Linear(16, 24), nn.ReLU(), nn.Linear(24, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        refs.append(weakref.ref(model[0].weight))
        for _ in range(4):
            optimizer.zero_grad()
            model(torch.randn(8, 16)).pow(2).mean().backward()
            optimizer.step()

    with steadytrain.watch(runs_dir=tmp_path, to=("none",)):
        trial()  # torch itself leaves the first optimizer of a process in a cycle
        gc.collect()
        gc.disable()
        try:
            for _ in range(6):
                trial()
            alive = sum(one() is not None for one in refs[1:])
        finally:
            gc.enable()
    assert alive == 0

"""Replays of a training whose optimizer was made anew on the way, to the last bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

from replaying import plain_process, record, replay
from steadytrain.replay.verdict import Replayed

STEPS, ANEW, EVERY = 24, 18, 4


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    with plain_process():
        yield


def anew(kind: type[torch.optim.Optimizer], *, keeps: bool, loads: bool = False) -> None:
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer: torch.optim.Optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    kept = []
    for step in range(1, STEPS + 1):
        if step == ANEW:
            kept += [optimizer] if keeps else []
            before, optimizer = optimizer.state_dict(), kind(model.parameters(), lr=1e-3)
            if loads:
                optimizer.load_state_dict(before)
        optimizer.zero_grad()
        (model(torch.randn(8, 4)) - 1).square().mean().backward()
        optimizer.step()


LOOPS = {
    "dropped": partial(anew, torch.optim.Adam, keeps=False),
    "kept": partial(anew, torch.optim.Adam, keeps=True),
    "of another class": partial(anew, torch.optim.SGD, keeps=False),
    "goes on with the moments": partial(anew, torch.optim.Adam, keeps=False, loads=True),
}


@pytest.mark.parametrize("loop", LOOPS.values(), ids=list(LOOPS))
def test_each_snapshot_is_replayed_to_the_last_bit(loop: Callable[[], None], tmp_path: Path) -> None:
    recording = record(loop, tmp_path / "run", every=EVERY)
    assert recording.last_step == STEPS
    starts = recording.starts()
    assert starts[-1] > ANEW > starts[1]
    for start in starts[1:]:
        replayed = replay(loop, recording, start, own_steps=start - 1)
        assert isinstance(replayed, Replayed), replayed
        assert (replayed.first_difference, replayed.steps) == (None, STEPS - start + 1)


@pytest.mark.parametrize("loop", [LOOPS["dropped"], LOOPS["kept"]], ids=["dropped", "kept"])
def test_a_script_that_leaves_out_steps_keeps_the_old_one(loop: Callable[[], None], tmp_path: Path) -> None:
    recording = record(loop, tmp_path / "run", every=EVERY)
    start = max(one for one in recording.starts() if one < ANEW)
    assert start > 2
    replayed = replay(loop, recording, start)
    assert isinstance(replayed, Replayed), replayed
    assert replayed.first_difference is None


def test_one_of_another_class_needs_the_scripts_own_steps(tmp_path: Path) -> None:
    loop = LOOPS["of another class"]
    recording = record(loop, tmp_path / "run", every=EVERY)
    starts = recording.starts()
    within = replay(loop, recording, max(one for one in starts if one < ANEW))
    assert within == (
        f"step {ANEW} was the first one of a new SGD, and the launched script, which left out steps, still has its "
        "Adam (--lead-s)"
    )
    after = replay(loop, recording, starts[-1])
    assert isinstance(after, str)
    assert "has the optimizer Adam, not SGD" in after

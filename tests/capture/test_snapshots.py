"""Snapshots: which ones stay, and that one that cannot be whole does not come to be."""

from __future__ import annotations

import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from steadytrain.capture.hooks.model_discovery import name_parameters
from steadytrain.capture.snapshots import buffer, snapshots
from steadytrain.capture.snapshots.snapshot_state import horizon
from steadytrain.capture.snapshots.snapshot_thinning import thinned
from steadytrain.capture.snapshots.snapshots import FAILURES_MAX, Snapshots
from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.detection.step_history import StepHistory
from steadytrain.storage.tape_files import find_snapshots

WAIT_S = 10.0
LARGE = 3_000_000
"""Elements: 12 MB, which no disk takes in the microsecond that a gate of these tests allows."""


def stream_of(elements: int, device: str = "cpu") -> Stream:
    model = nn.Linear(elements, 1, bias=False, device=device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    parameters = list(model.parameters())
    stream = Stream(name="main", history=StepHistory(stream="main"), parameters=parameters)
    stream.join(optimizer)
    model.optimizer = optimizer  # which a stream does not hold
    stream.model = name_parameters([model], parameters)
    return stream


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """The thread copies nothing before this is set, however slow the training thread is."""
    may_go_on = threading.Event()
    copied_by_pieces = buffer.StateBuffer.copied_by_pieces

    def at_last(*given: Any, **options: Any) -> torch.Tensor:
        assert may_go_on.wait(WAIT_S)
        return copied_by_pieces(*given, **options)

    monkeypatch.setattr(buffer.StateBuffer, "copied_by_pieces", at_last)
    return may_go_on


def test_one_that_is_not_through_at_the_gate_is_given_up_and_after_three_there_are_no_more(
    tmp_path: Path, late: threading.Event
) -> None:
    stream, shots = stream_of(LARGE), Snapshots(1 << 30)
    for number in range(1 + FAILURES_MAX):
        stream.step = 1 + 1000 * number
        assert shots.is_due(stream)
        late.clear()
        shots.begin(stream, tmp_path, [])
        shots.gate(1e-6)
        late.set()
        shots.settle()
        assert shots.is_due(stream) == (number == 0), "the first one had no slot, and does not count"
    assert shots.note is not None
    assert "3 in a row" in shots.note
    stream.step = 10_000
    assert not shots.is_due(stream)
    shots.close()
    assert find_snapshots(tmp_path) == []
    assert not list((tmp_path / "snapshots").glob("*"))


def test_weights_that_change_while_they_are_copied_make_no_snapshot(tmp_path: Path, late: threading.Event) -> None:
    stream, shots = stream_of(LARGE), Snapshots(1 << 30)
    stream.step = 1
    shots.begin(stream, tmp_path, [])
    with torch.no_grad():
        stream.parameters[0].add_(1.0)
    late.set()
    shots.settle()
    assert find_snapshots(tmp_path) == []
    stream.step = 500
    shots.begin(stream, tmp_path, [])
    shots.settle()
    shots.close()
    assert [shot.step for shot in find_snapshots(tmp_path)] == [500]


def test_a_small_state_is_copied_and_may_change_at_once(tmp_path: Path) -> None:
    stream, shots = stream_of(10), Snapshots(1 << 30)
    stream.step = 1
    before = stream.parameters[0].detach().clone()
    shots.begin(stream, tmp_path, [])
    with torch.no_grad():
        stream.parameters[0].add_(1.0)
    shots.settle()
    shots.close()
    from safetensors.torch import load_file

    assert torch.equal(load_file(find_snapshots(tmp_path)[0].tensors)["model/weight"], before)


def of_file(folder: Path) -> torch.Tensor:
    from safetensors.torch import load_file

    return load_file(find_snapshots(folder)[-1].tensors)["model/weight"]


@pytest.mark.parametrize("step_s", [10.0, 0.02], ids=["at once", "by the thread"])
def test_a_larger_state_may_change_once_it_is_copied_and_before_it_is_written(
    step_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "STALL_SHARE", 1e4)
    may_be_written = threading.Event()
    written = snapshots.write_tensors

    def at_last(*given: Any, **options: Any) -> dict[str, str]:
        assert may_be_written.wait(WAIT_S)
        return written(*given, **options)

    monkeypatch.setattr(snapshots, "write_tensors", at_last)
    stream, shots = stream_of(LARGE), Snapshots(1 << 30)
    for step in (1, 500):
        stream.step = step
        may_be_written.clear()
        before = stream.parameters[0].detach().clone()
        shots.begin(stream, tmp_path, [])
        shots.gate(step_s)
        with torch.no_grad():
            stream.parameters[0].add_(1.0)
        may_be_written.set()
        shots.settle()
        assert torch.equal(of_file(tmp_path), before)
    shots.close()
    assert [shot.step for shot in find_snapshots(tmp_path)] == [1, 500]
    assert shots.memory_bytes == 4 * LARGE


def test_without_memory_for_a_copy_it_is_written_before_the_update(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buffer, "available_bytes", lambda: 0)
    monkeypatch.setattr(snapshots, "STALL_SHARE", 1e4)
    stream, shots = stream_of(LARGE), Snapshots(1 << 30)
    stream.step = 1
    before = stream.parameters[0].detach().clone()
    shots.begin(stream, tmp_path, [])
    shots.gate(1.0)
    assert torch.equal(of_file(tmp_path), before), "the gate let the update run before it was whole"
    with torch.no_grad():
        stream.parameters[0].add_(1.0)
    shots.close()
    assert shots.memory_bytes == 0


@pytest.mark.gpu
def test_a_state_on_a_gpu_is_not_copied_where_the_host_has_no_memory_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buffer, "available_bytes", lambda: 0)
    stream, shots = stream_of(LARGE, device="cuda"), Snapshots(1 << 30)
    stream.step = 1
    shots.begin(stream, tmp_path, [])
    assert shots.note == "no snapshots: there is no memory on the host for a copy of 12 MB"
    assert shots.memory_bytes == 0


def test_one_that_was_too_late_for_want_of_a_slot_is_taken_at_the_next_step(
    tmp_path: Path, late: threading.Event
) -> None:
    stream, shots = stream_of(LARGE), Snapshots(1 << 30)
    stream.step = 1
    shots.begin(stream, tmp_path, [])
    shots.gate(1e-6)
    late.set()
    shots.settle()
    assert find_snapshots(tmp_path) == []
    assert shots.memory_bytes == 4 * LARGE
    stream.step = 2
    assert shots.is_due(stream)
    shots.begin(stream, tmp_path, [])
    shots.settle()
    stream.step = 3
    assert not shots.is_due(stream)
    shots.close()
    assert [shot.step for shot in find_snapshots(tmp_path)] == [2]
    assert torch.equal(of_file(tmp_path), stream.parameters[0])


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(3_000_000),
        torch.randn(3, 5).t(),
        torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
        torch.randn(7).bfloat16(),
        torch.tensor(3.0),
        torch.empty(0, 4),
        torch.tensor([True, False]),
        torch.randn(4, dtype=torch.complex64).conj(),
        torch.randn(9)[::2],
    ],
    ids=lambda tensor: f"{tuple(tensor.shape)}-{tensor.dtype}",
)
def test_both_ways_of_copying_give_the_same_values_and_write_over(tensor: torch.Tensor) -> None:
    both = buffer.StateBuffer(), buffer.StateBuffer()
    for values in (tensor, tensor.clone().zero_(), tensor):
        at_once = both[0].copied("name", values)
        by_pieces = both[1].copied_by_pieces("name", values, go_on=lambda: True)
        assert torch.equal(at_once, values)
        assert torch.equal(by_pieces, values)
    assert both[0].has("name", tensor)
    assert both[1].has("name", tensor)
    assert both[0].memory_bytes == both[1].memory_bytes == tensor.numel() * tensor.element_size()


def test_a_state_over_the_budget_is_told_and_never_written(tmp_path: Path) -> None:
    stream, shots = stream_of(LARGE), Snapshots(20_000_000)
    stream.step = 1
    shots.begin(stream, tmp_path, [])
    assert shots.note is not None
    assert "--rewind-mb" in shots.note
    shots.close()
    assert not list(tmp_path.iterdir())


def test_a_thinned_file_is_written_over_unless_it_is_shared(tmp_path: Path) -> None:
    stream, shots = stream_of(10), Snapshots(1 << 30)
    linked = tmp_path / "linked"
    for step in range(1, 40):
        stream.step = step
        with torch.no_grad():
            stream.parameters[0].fill_(float(step))
        shots.begin(stream, tmp_path, [])
        shots.settle()
        if step == 3:
            linked.hardlink_to(find_snapshots(tmp_path)[-1].tensors)
    shots.close()
    from safetensors.torch import load_file

    assert load_file(linked)["model/weight"].unique().tolist() == [3.0]
    for shot in find_snapshots(tmp_path):
        assert load_file(shot.tensors)["model/weight"].unique().tolist() == [float(shot.step)]


@given(st.integers(1, 50), st.integers(100, 400))
def test_ages_double_and_the_horizon_is_covered(every: int, horizon_steps: int) -> None:
    kept: set[int] = set()
    steps = range(1, 2 * horizon_steps, every)
    for step in steps:
        kept = thinned(dict.fromkeys({*kept, step}, 1), horizon_steps=horizon_steps, size_bytes_max=1 << 30)
    newest = max(kept)
    ages = sorted(newest - step for step in kept)
    assert ages[0] == 0
    assert ages[-1] >= min(horizon_steps, newest - 1)
    assert len(ages) <= 4 + max(1, horizon_steps // every).bit_length()
    assert all(later <= 8 * max(earlier, every) for earlier, later in pairwise(ages[:-1]))


def test_the_budget_takes_the_oldest(tmp_path: Path) -> None:
    assert thinned({1: 5, 65: 5, 129: 5}, horizon_steps=2000, size_bytes_max=10) == {65, 129}
    assert thinned({1: 50}, horizon_steps=2000, size_bytes_max=10) == {1}


@pytest.mark.parametrize(("beta", "steps"), [(0.9999, 20000), (0.95, 2000)])
def test_the_horizon_is_that_of_the_second_moment_or_more(beta: float, steps: int) -> None:
    layer = nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(layer.parameters(), betas=(0.9, beta))
    assert abs(horizon([optimizer]) - steps) <= 1
    assert horizon([torch.optim.SGD(layer.parameters(), lr=0.1)]) == 2000

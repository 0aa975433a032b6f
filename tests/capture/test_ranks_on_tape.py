"""Ranks take snapshots at the same steps, keep their tapes for each other, and have none where state is sharded."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from steadytrain.capture.snapshots import common_steps, tapes_of_ranks
from steadytrain.capture.snapshots.common_steps import is_common, why_never
from steadytrain.capture.snapshots.tapes_of_ranks import needed_by_others
from steadytrain.capture.step.ranks import JointSteps


def stream(step: int = 1, joint: JointSteps | None = None, optimizers: tuple[object, ...] = ()) -> Any:
    return SimpleNamespace(step=step, own_steps=step, joint=joint, optimizers=list(optimizers))


def test_ranks_that_take_snapshots_less_often_take_them_where_the_others_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common_steps.ranks, "world_size", lambda: 2)
    often = {step for step in range(1, 1025) if is_common(stream(step), 64)}
    seldom = {step for step in range(1, 1025) if is_common(stream(step), 300)}
    assert often == {1, *range(64, 1025, 64)}
    assert seldom == {1, 512, 1024}
    assert seldom <= often
    monkeypatch.setattr(common_steps.ranks, "world_size", lambda: 1)
    assert is_common(stream(65), 64)


class ZeroRedundancyOptimizer:
    """Of torch by its name."""


class FullyShardedDataParallel(torch.nn.Module):
    """Of torch by its name."""


class DistributedDataParallel(torch.nn.Module):
    """Of torch by its name."""


def test_only_ranks_that_each_hold_the_whole_state_are_on_tapes() -> None:
    plain = JointSteps((DistributedDataParallel(),), None)
    assert why_never(stream()) is None
    assert why_never(stream(joint=plain, optimizers=(torch.optim.SGD,))) is None
    for joint, optimizers, what in (
        (JointSteps((), None, sharded=True), (), "sharded parameters"),
        (JointSteps((FullyShardedDataParallel(),), None), (), "FullyShardedDataParallel"),
        (plain, (ZeroRedundancyOptimizer(),), "ZeroRedundancyOptimizer"),
    ):
        why = why_never(stream(joint=joint, optimizers=optimizers))
        assert why is not None
        assert f"each rank holds a part of the state only ({what})" in why


def rank_with_tape(run: Path, rank: int) -> Path:
    folder = run / "ranks" / f"{rank:04d}" if rank else run
    (folder / "tape").mkdir(parents=True)
    (folder / "run.json").touch()
    return folder


def test_the_last_rank_removes_the_tapes_of_all_where_nothing_happened(tmp_path: Path) -> None:
    first, second = (rank_with_tape(tmp_path, rank) for rank in range(2))
    assert needed_by_others(second, 1, 2)  # the first may still get an incident
    assert (second / "tape").is_dir()
    assert not needed_by_others(first, 0, 2)
    assert not (second / "tape").exists()


def test_a_rank_keeps_its_tape_for_the_incident_of_another(tmp_path: Path) -> None:
    first, second = (rank_with_tape(tmp_path, rank) for rank in range(2))
    assert needed_by_others(second, 1, 2)
    (first / "incidents" / "loss-spike-step-000005").mkdir(parents=True)
    assert not needed_by_others(first, 0, 2)  # its own bundle has what it needs
    assert (second / "tape").is_dir()
    assert needed_by_others(second, 1, 2)


def test_ranks_that_are_recorded_elsewhere_need_no_tape(tmp_path: Path) -> None:
    assert not needed_by_others(rank_with_tape(tmp_path, 0), 0, 2)


def test_one_process_and_processes_without_a_launcher_need_no_other(tmp_path: Path) -> None:
    assert not needed_by_others(rank_with_tape(tmp_path, 0), 0, 1)
    own = tmp_path / "ranks" / "rank-0001"
    own.mkdir(parents=True)
    assert not needed_by_others(own, 1, 2)
    assert tapes_of_ranks.OVER not in {path.name for path in own.iterdir()}

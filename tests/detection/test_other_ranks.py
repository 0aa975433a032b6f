"""The last lines of a run name the rank that ended first."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rank_folders import FINISHED, PEER, VANISHED, run_of
from steadytrain.capture.incident import script_failure
from steadytrain.capture.step import ranks
from steadytrain.detection import other_ranks
from steadytrain.detection.other_ranks import of_other_ranks

LOST = PEER.format(13)


@pytest.fixture(autouse=True)
def no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(other_ranks, "END_S_MAX", 0.0)
    monkeypatch.setattr(script_failure, "FIRST_S_MAX", 0.0)


def test_a_rank_that_vanished_is_named_and_those_that_lost_contact_are_not_said_twice(tmp_path: Path) -> None:
    run = run_of(tmp_path / "r", (LOST, 12), (LOST, 12), (VANISHED, 12))
    (line,) = of_other_ranks(run, [])
    assert line.startswith("rank 2 ended first, after its 12 steps, and left no record of how")
    assert line.endswith("; ranks 0 and 1 lost contact")


def test_what_the_symptom_says_already_is_not_repeated(tmp_path: Path) -> None:
    run = run_of(tmp_path / "r", (LOST, 12), (FINISHED, 12))
    assert len(of_other_ranks(run, [])) == 1
    assert of_other_ranks(run, ["uneven-ranks"]) == []


def test_ranks_that_finished_are_not_mentioned(tmp_path: Path) -> None:
    assert of_other_ranks(run_of(tmp_path / "r", (FINISHED, 12), (FINISHED, 12)), []) == []


def test_a_rank_that_loses_contact_names_the_one_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_dir = run_of(tmp_path / "r", (LOST, 12), ("finished", 12), (VANISHED, 12))
    run: Any = SimpleNamespace(settings=SimpleNamespace(run_dir=run_dir), last_step=12, failure=LOST)
    monkeypatch.setattr(ranks, "rank", lambda: 1)
    first = script_failure.ended_first(run)
    assert first is not None
    assert first.end.rank == 2


@pytest.mark.parametrize("error", ["[pair.cc:553] Connection closed by peer [127.0.0.1]:4711", "Timed out waiting"])
def test_a_rank_that_is_gone_is_not_called_ranks_at_different_steps(
    error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of(tmp_path / "r", (FINISHED, 12), (VANISHED, 12))
    monkeypatch.setattr(ranks, "_lost", {(0, 1): error})
    told = ranks.take_lost(run)
    assert told is not None
    assert told.startswith("a rank has ended, so the ranks no longer decide together")
    assert ranks.take_lost(run) is None


def test_ranks_that_all_run_are_said_to_make_other_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "_lost", {(0, 1): "Timed out waiting 10000ms for recv operation to complete"})
    told = ranks.take_lost(tmp_path)
    assert told is not None
    assert told.startswith("the ranks do not make the same steps")

"""The first rank's view of the others, without processes: folders that it cannot see, and symptoms that follow."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import builders
from steadytrain.capture.looks import rank_agreement
from steadytrain.capture.looks.rank_agreement import RankAgreement
from steadytrain.core.model import Symptom
from steadytrain.storage.ranks_of_run import UNSEEN_RANKS, rank_folder
from steadytrain.storage.run_folder import RunWriter


class Run:
    """What the guest asks of a live run."""

    def __init__(self, folder: Path) -> None:
        self.facts: dict[str, Any] = {}
        self.symptoms: dict[int, Symptom] = {}
        self.notes: list[str] = []
        self.told: list[str] = []
        self.streams: list[Any] = []
        self.failure: str | None = None
        self.settings = SimpleNamespace(run_dir=folder)
        self.note, self.tell = self.notes.append, self.told.append
        self.guard = SimpleNamespace(part=self._part)
        self.recorder = SimpleNamespace(
            set_fact=self.facts.__setitem__,
            symptoms=self.symptoms,
            read=lambda *_: None,
            begin=lambda: SimpleNamespace(path=folder),
        )
        self.clock = float

    @staticmethod
    def _part(_: str) -> AbstractContextManager[None]:
        return nullcontext()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Run, RankAgreement, Any]:
    """Rank 0 of four ranks in one wrapper, whose first two have folders here."""
    for rank in (0, 1):
        builders.quiet_run(rank_folder(tmp_path, rank), rank=rank, world_size=4)
    monkeypatch.setattr(rank_agreement.ranks, "world_size", lambda: 4)
    monkeypatch.setattr(rank_agreement.ranks, "rank", lambda: 0)
    monkeypatch.setattr(rank_agreement.ranks, "ranks_of", lambda _: (0, 1, 2, 3))
    monkeypatch.setattr(rank_agreement, "END_S_MAX", 0.0)
    run = Run(tmp_path)
    stream = SimpleNamespace(step=7, name="main", joint=SimpleNamespace(group=None), parameters=[])
    run.streams.append(stream)
    return run, RankAgreement(run), stream  # type: ignore[arg-type]


def test_folders_that_cannot_be_seen_are_reported_once_after_a_while(
    world: tuple[Run, RankAgreement, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, agreement, stream = world
    agreement.step_ended(stream, tmp_path)
    assert run.notes == []  # they may come
    monkeypatch.setattr(rank_agreement, "UNSEEN_S", -1.0)
    for _ in range(2):
        stream.step += 8
        agreement.step_ended(stream, tmp_path)
    (note,) = run.notes
    assert note.startswith("rank 0 cannot see the folders of ranks 2 and 3, so the ranks are not compared")
    assert "--runs-dir" in note
    assert run.facts == {UNSEEN_RANKS: [2, 3]}


def test_a_short_run_reports_them_at_its_end(world: tuple[Run, RankAgreement, Any], tmp_path: Path) -> None:
    run, agreement, stream = world
    stream.step = 3
    agreement.step_ended(stream, tmp_path)
    agreement.script_ended()
    assert run.facts == {UNSEEN_RANKS: [2, 3]}


def test_ranks_that_may_never_make_a_step_are_not_missed(
    world: tuple[Run, RankAgreement, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, agreement, stream = world
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    stream.joint = None
    agreement.step_ended(stream, tmp_path)
    agreement.script_ended()
    assert (run.notes, run.facts) == ([], {})


def test_symptoms_that_follow_from_a_much_larger_loss_are_not_reported_by_themselves(tmp_path: Path) -> None:
    run = Run(tmp_path)
    agreement = RankAgreement(run)  # type: ignore[arg-type]
    writer = RunWriter(rank_folder(tmp_path, 1), dict(builders.DESCRIPTION))
    writer.raise_symptom(builders.symptom(13, name="divergence", signals=("loss",)))
    writer.close()
    agreement._news = {rank_folder(tmp_path, 1): rank_agreement.NewsReader(rank_folder(tmp_path, 1))}
    agreement._report_symptoms({"loss-ratio-since:1": 13.0, "compared:all": 23.0})
    assert run.told == []  # whether its loss stays so large is not known yet
    run.symptoms[0] = builders.symptom(13, name="rank-loss", severity="warning", numbers={"rank": 1.0})
    agreement._report_symptoms({"loss-ratio-since:1": 13.0, "compared:all": 87.0})
    assert run.told == []
    run.symptoms.clear()
    agreement._report_symptoms({"loss-ratio-since:1": 13.0, "compared:all": 87.0})
    assert len(run.told) == 1
    assert run.told[0].startswith("critical, rank 1: ")


def test_how_a_model_is_shared_is_known_after_the_script_dropped_it(
    world: tuple[Run, RankAgreement, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, agreement, stream = world
    kept: list[dict[str, float]] = []
    compared = SimpleNamespace(rows=lambda: {"compared:all": 7.0})
    monkeypatch.setattr(agreement, "_read", lambda _, rows: kept.append(rows))
    monkeypatch.setattr(agreement, "_digests", SimpleNamespace(is_due=lambda _: True, take=lambda *_: None))
    measured = SimpleNamespace(record=SimpleNamespace(step=8))
    agreement.gate(stream, SimpleNamespace(micro_batches=[]), measured)  # type: ignore[arg-type]
    monkeypatch.setattr(agreement, "_records", {rank: SimpleNamespace(read=lambda: None) for rank in range(2)})
    monkeypatch.setattr(agreement, "_comparison", compared)
    stream.joint, stream.parameters = None, []
    agreement._compare(stream, tmp_path)
    assert kept[-1]["wrapped:all"] == 1

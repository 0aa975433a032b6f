"""Steps and tables followed while they are written: each is read once, whatever happens to the files in between."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from live_runs import LiveRun
from steadytrain.core.errors import UsageError
from steadytrain.storage.compaction import compact_steps
from steadytrain.storage.numbered_files import list_parts
from steadytrain.storage.run_index import INDEX_FILE
from steadytrain.storage.run_news import NewsReader
from steadytrain.storage.segments import SUFFIXES
from steadytrain.storage.step_tail import StepTail
from steadytrain.storage.table_tail import TableTail


def steps(tail: StepTail) -> list[int]:
    return [step for window in tail.read() for step in window.steps.tolist()]


def test_each_step_is_read_once_over_all_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("steadytrain.storage.segments.RECORDS_PER_SEGMENT_MAX", 4)
    monkeypatch.setattr("steadytrain.storage.step_tail.BLOCK_BYTES", 300)  # two or three records
    run = LiveRun(tmp_path / "run")
    tail = StepTail(run.path / "steps" / "main")
    assert steps(tail) == []
    seen = []
    for count in (1, 0, 6, 3, 9):
        run.train(count)
        seen.append(steps(tail))
    assert [len(found) for found in seen] == [1, 0, 6, 3, 9]
    assert [step for found in seen for step in found] == list(range(1, 20))


def test_segments_that_are_merged_meanwhile_are_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("steadytrain.storage.segments.RECORDS_PER_SEGMENT_MAX", 4)
    run = LiveRun(tmp_path / "run")
    folder = run.path / "steps" / "main"
    tail = StepTail(folder)
    run.train(6)
    assert steps(tail) == [1, 2, 3, 4, 5, 6]
    run.train(16)  # the segment that is read half is closed, and merged with its neighbours
    compact_steps(folder, places=[], may_go_on=lambda: True)
    assert any("-" in part.path.stem for part in list_parts(folder, SUFFIXES))
    assert steps(tail) == list(range(7, 23))


def test_a_record_in_flight_is_read_when_it_is_whole(tmp_path: Path) -> None:
    run = LiveRun(tmp_path / "run")
    run.train(3)
    (part,) = list_parts(run.path / "steps" / "main", SUFFIXES)
    whole = part.path.read_bytes()
    part.path.write_bytes(whole[:-10])
    tail = StepTail(run.path / "steps" / "main")
    assert steps(tail) == [1, 2]
    part.path.write_bytes(whole)
    assert (steps(tail), tail.damaged) == ([3], None)


def test_damage_in_the_middle_is_reported_and_what_is_missing_is_an_error(tmp_path: Path) -> None:
    run = LiveRun(tmp_path / "run")
    run.train(4)
    (part,) = list_parts(run.path / "steps" / "main", SUFFIXES)
    data = bytearray(part.path.read_bytes())
    data[len(data) // 4 + 20] ^= 255
    part.path.write_bytes(data)
    tail = StepTail(run.path / "steps" / "main")
    assert (steps(tail), tail.damaged) == ([1], part.path)
    part.schema.unlink()
    with pytest.raises(UsageError, match="missing; the run folder is damaged"):
        steps(StepTail(run.path / "steps" / "main"))
    part.schema.write_text(json.dumps({"format": "other"}), encoding="utf-8")
    with pytest.raises(UsageError, match="schema"):
        steps(StepTail(run.path / "steps" / "main"))


def test_a_table_gives_the_newest_readings_and_skips_what_is_too_much(tmp_path: Path) -> None:
    run = LiveRun(tmp_path / "run")
    tail = TableTail(run.path / "tables" / "main" / "gradients", readings_max=3)
    assert tail.read() is None
    for _ in range(5):
        run.train()
        run.read("gradients", ["norm"], [[run.step], [0.0], [1.0]])
    table = tail.read()
    assert table is not None
    assert (table.steps.tolist(), table.values[:, 0, 0].tolist(), table.rows) == ([3, 4, 5], [3, 4, 5], run.names)
    assert tail.read() is None
    run.train()
    run.read("gradients", ["norm"], [[9.0]], rows=["other"])  # other rows: a new segment
    again = tail.read()
    assert again is not None
    assert (again.rows, again.steps.tolist()) == (("other",), [6])


def test_the_index_is_read_again_only_when_it_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = LiveRun(tmp_path / "run")
    reader = NewsReader(run.path)
    first = reader.read()
    assert first.facts == {}
    assert reader.read() is first
    run.run.set_fact("planned_steps", 90)
    assert reader.read().facts == {"planned_steps": 90}
    run.run.close()
    (run.path / INDEX_FILE).write_bytes(b"no index" * 200)
    with pytest.raises(UsageError, match="damaged"):
        reader.read()

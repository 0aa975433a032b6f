"""What a run keeps for listings at its end: used while it is true, and never longer."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

import builders
from steadytrain.storage import run_summaries
from steadytrain.storage.begun_runs import scan
from steadytrain.storage.run_folder import RunWriter, open_run
from steadytrain.storage.run_search import newest_and_begun, survey
from steadytrain.storage.run_summaries import KEPT_FILE, keep_summary, summary_of


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    """A run with a summary."""
    path = builders.bad_run(tmp_path / "runs" / "bad")
    keep_summary(path)
    return path


def test_a_kept_summary_says_the_same_and_opens_no_index(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_it = summary_of(kept)
    (kept / KEPT_FILE).rename(kept / "aside")
    assert summary_of(kept) == with_it
    (kept / "aside").rename(kept / KEPT_FILE)
    monkeypatch.setattr(run_summaries, "open_index", None)
    monkeypatch.setattr(run_summaries, "steps_of", None)
    assert summary_of(kept) == with_it
    assert (with_it.ended, with_it.worst, with_it.incidents) == ("stopped", "critical", 1)


def test_what_is_written_later_is_listed(kept: Path) -> None:
    index = sqlite3.connect(kept / "index.sqlite")
    with index:
        index.execute("UPDATE facts SET value = '\"failed\"' WHERE name = 'ended'")
    assert summary_of(kept).ended == "failed"  # it is in the log of the index only
    index.close()
    assert summary_of(kept).ended == "failed"


def test_a_run_that_goes_on_is_read_from_its_index(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "run", dict(builders.DESCRIPTION))
    writer.set_fact("ended", "finished")
    keep_summary(tmp_path / "run")
    assert not (tmp_path / "run" / KEPT_FILE).exists()  # its process still writes
    writer.close()
    keep_summary(builders.write_run(tmp_path / "killed", facts={}))
    assert not (tmp_path / "killed" / KEPT_FILE).exists()  # it never ended


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"of": null}', "\x00", '{"of": [1]}', "[" * 5_000])
def test_a_damaged_summary_is_not_used(kept: Path, text: str) -> None:
    expected = summary_of(kept)
    (kept / KEPT_FILE).write_text(text)
    assert summary_of(kept) == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ended", 3),
        ("symptoms", [["nonfinite-loss", "grave", 3]]),
        ("symptoms", [["nonfinite-loss"]]),
        ("symptoms", 3),
        ("devices", [3]),
        ("devices", None),
        ("incidents", [3]),
        ("steps", "many"),
        ("steps", True),
    ],
)
def test_a_summary_with_other_values_is_not_used(kept: Path, name: str, value: object) -> None:
    expected = summary_of(kept)
    document = json.loads((kept / KEPT_FILE).read_text())
    (kept / KEPT_FILE).write_text(json.dumps({**document, name: value}))
    assert summary_of(kept) == expected


def test_a_folder_is_looked_through_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builders.quiet_run(tmp_path / "a")
    (tmp_path / "begun").mkdir()
    looked: list[Path] = []
    for module in ("run_search", "begun_runs"):
        monkeypatch.setattr(f"steadytrain.storage.{module}.scan", lambda path: looked.append(path) or scan(path))
    assert [one.path.name for one in survey(tmp_path).begun] == ["begun"]
    path, (begun,) = newest_and_begun(tmp_path)
    assert (path.name, begun.path.name, len(looked)) == ("a", "begun", 2)


def test_a_run_that_cannot_be_read_does_not_hide_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        builders.quiet_run(tmp_path / name)
    steps_of = run_summaries.steps_of

    def unreadable(path: Path) -> int:
        if path.name == "a":
            raise PermissionError(13, "Permission denied", str(path / "steps"))
        return steps_of(path)

    monkeypatch.setattr(run_summaries, "steps_of", unreadable)
    listing = survey(tmp_path)
    assert [run.name for run in listing.runs] == ["b"]
    assert listing.unreadable == (f"{tmp_path / 'a'}: cannot be read (Permission denied)",)


def test_an_entry_that_comes_later_leaves_the_summary_behind(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    action = open_run(kept).actions[0]
    writer = RunWriter(kept, dict(open_run(kept).description))
    writer.add_action(action)
    writer.close()
    read: list[Path] = []
    opened = run_summaries.open_index
    monkeypatch.setattr(run_summaries, "open_index", lambda path: read.append(path) or opened(path))
    assert summary_of(kept).ended == "stopped"
    assert read == [kept]

"""``steadytrain runs``: the runs of a folder, newest first."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

import builders
from steadytrain.cli import runs, top
from steadytrain.cli.runs import command
from steadytrain.cli.show import command as show
from steadytrain.core.errors import UsageError
from steadytrain.storage import run_summaries
from steadytrain.storage.run_search import find, newest, survey


def test_runs_are_listed_newest_first(tmp_path: Path) -> None:
    builders.quiet_run(tmp_path / "quiet", started="2026-01-01T10:30:00+00:00")
    builders.bad_run(tmp_path / "bad")
    result = CliRunner().invoke(command, ["--runs-dir", str(tmp_path)])
    _, first, second = result.stdout.splitlines()
    assert first.split() == ["bad", "2026-11-20", "02:58", "412", "stopped", "critical", "1"]
    assert second.split() == ["quiet", "2026-01-01", "10:30", "1,000", "finished", "none", "seen", "0"]


def test_runs_as_json(tmp_path: Path) -> None:
    path = builders.bad_run(tmp_path / "bad")
    document = json.loads(CliRunner().invoke(command, ["--runs-dir", str(tmp_path), "--json"]).stdout)
    assert document == {
        "schema": "steadytrain.runs/1",
        "runs": [
            {
                "run": "bad",
                "path": str(path),
                "started": builders.DESCRIPTION["started"],
                "command": "train.py --learning-rate 3e-4",
                "ended": "stopped",
                "steps": 412,
                "worst": "critical",
                "incidents": 1,
                "ended_first": None,
            }
        ],
        "unreadable": [],
        "without_steps": [],
    }


def test_a_run_that_cannot_be_read_is_named_and_hides_no_other(tmp_path: Path) -> None:
    builders.quiet_run(tmp_path / "quiet")
    builders.write_run(tmp_path / "newer", version=99)
    result = CliRunner().invoke(command, ["--runs-dir", str(tmp_path)])
    assert result.exit_code == 0
    assert "quiet" in result.stdout
    assert "not listed" in result.stderr
    assert "version 99" in result.stderr


def test_an_empty_folder_says_what_to_do(tmp_path: Path) -> None:
    assert "steadytrain run SCRIPT" in CliRunner().invoke(command, ["--runs-dir", str(tmp_path)]).stdout


def test_a_missing_folder_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such folder"):
        CliRunner().invoke(command, ["--runs-dir", str(tmp_path / "missing")], catch_exceptions=False)


def test_many_runs_are_listed_with_the_same_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builders.quiet_run(tmp_path / "quiet", started="2026-01-01T10:30:00+00:00")
    builders.bad_run(tmp_path / "bad")
    styled = CliRunner().invoke(command, ["--runs-dir", str(tmp_path)]).stdout
    monkeypatch.setattr(runs, "STYLED_MAX", 1)
    plain = CliRunner().invoke(command, ["--runs-dir", str(tmp_path)]).stdout
    assert [line.split() for line in plain.splitlines()] == [line.split() for line in styled.splitlines()]


def test_a_listing_opens_each_run_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b", "c"):
        builders.quiet_run(tmp_path / name)
    opened: list[Path] = []
    read = run_summaries.read_description
    monkeypatch.setattr(run_summaries, "read_description", lambda path: opened.append(path) or read(path))
    CliRunner().invoke(command, ["--runs-dir", str(tmp_path)], catch_exceptions=False)
    assert sorted(path.name for path in opened) == ["a", "b", "c"]


def test_what_there_is_without_a_run_is_said_alike_everywhere(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    for look in (survey, newest):
        with pytest.raises(UsageError, match="no such folder of runs; record one with `steadytrain run SCRIPT`"):
            look(missing)
    old = tmp_path / "main-20261126-182007"
    old.mkdir()
    os.utime(old, (0, 0))
    with pytest.raises(UsageError, match="no runs here yet; record one with `steadytrain run SCRIPT`"):
        newest(tmp_path)


def test_a_run_that_has_no_step_yet_is_told(tmp_path: Path) -> None:
    (tmp_path / "main-20261126-182007").mkdir()
    (tmp_path / ".hidden").mkdir()
    begun = r"main-20261126-182007 began \d+ s ago and has no step yet"
    for target in (None, "main-20261126-182007", str(tmp_path / "main-20261126-182007")):
        with pytest.raises(UsageError, match=f"{begun}: call this again in a moment"):
            find(target, tmp_path)
    listed = CliRunner().invoke(command, ["--runs-dir", str(tmp_path)], catch_exceptions=False).stdout
    assert re.fullmatch(f"{begun}\n", listed)
    builders.quiet_run(tmp_path / "quiet")
    listed = CliRunner().invoke(command, ["--runs-dir", str(tmp_path)], catch_exceptions=False).stdout
    assert re.search(f"\nquiet .*\n{begun}\n", listed)
    document = json.loads(CliRunner().invoke(command, ["--runs-dir", str(tmp_path), "--json"]).stdout)
    assert document["without_steps"] == ["main-20261126-182007"]
    shown = CliRunner().invoke(show, ["--runs-dir", str(tmp_path)], catch_exceptions=False)
    assert re.fullmatch(f"steadytrain: {begun}; this is the run before it\n", shown.stderr)


def test_top_waits_for_the_first_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = tmp_path / "main-20261126-182007"
    begun.mkdir()
    monkeypatch.setattr("steadytrain.cli._live_screen.terminal_kind", lambda: "dumb")
    monkeypatch.setattr(top.time, "sleep", lambda seconds: builders.quiet_run(begun))
    told = CliRunner().invoke(top.command, ["--runs-dir", str(tmp_path)], catch_exceptions=False)
    assert "waiting for it, Ctrl-C ends" in told.stderr
    assert "1,000" in told.stdout

"""``steadytrain runs --root``: what is printed, and bad input."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import builders
from steadytrain.cli import _fleet
from steadytrain.cli.runs import command
from steadytrain.core.errors import UsageError
from steadytrain.experiments.outcome_files import write_result

ANSWER = {"schema": "steadytrain.diagnosis/1", "verdict": "bad-batch", "status": "likely"}


@pytest.fixture
def team(tmp_path: Path) -> Path:
    bad = builders.bad_run(tmp_path / "ada" / "bad", node="n17")
    write_result(bad / "incidents" / "step-412", "diagnosis.json", ANSWER)
    builders.bad_run(tmp_path / "ben" / "worse", node="n17", started="2026-01-01T10:30:00+00:00")
    builders.quiet_run(tmp_path / "ben" / "quiet", node="n3")
    return tmp_path


def printed(*words: str) -> list[str]:
    result = CliRunner().invoke(command, list(words), catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout.splitlines()


def test_the_gravest_and_then_the_newest_come_first(team: Path) -> None:
    said, _, head, *rows = printed("--root", str(team))
    assert said == f"3 runs below {team}: 1 without a symptom, 2 critical"
    assert head.split() == ["run", "node", "device", "started", "steps", "ended", "symptom", "cause"]
    assert [row.split()[0] for row in rows] == ["ada/bad", "ben/worse", "ben/quiet"]
    assert rows[0].endswith("nonfinite-gradient at 412  bad-batch (likely)")
    assert rows[1].endswith("nonfinite-gradient at 412  not diagnosed")
    assert rows[2].endswith("none seen                  -")


@pytest.mark.parametrize(
    ("by", "rows"),
    [
        ("node", [["n17", "2", "2", "0", "0", "ada/bad"], ["n3", "1", "0", "0", "0", "ben/quiet"]]),
        (
            "symptom",
            [["nonfinite-gradient", "2", "2", "0", "0", "ada/bad"], ["none", "seen", "1", "0", "0", "0", "ben/quiet"]],
        ),
        ("ended", [["stopped", "2", "2", "0", "0", "ada/bad"], ["finished", "1", "0", "0", "0", "ben/quiet"]]),
        ("health", [["critical", "2", "2", "0", "0", "ada/bad"], ["none", "seen", "1", "0", "0", "0", "ben/quiet"]]),
    ],
)
def test_runs_are_counted_by_what_they_have_in_common(team: Path, by: str, rows: list[list[str]]) -> None:
    assert [row.split() for row in printed("--root", str(team), "--by", by)[3:]] == rows


def test_the_document_has_the_runs_and_the_groups(team: Path) -> None:
    document = json.loads("\n".join(printed("--root", str(team), "--by", "cause", "--json")))
    assert (document["schema"], document["root"], document["complete"]) == ("steadytrain.fleet/1", str(team), True)
    assert document["runs"][0] == {
        "folder": "ada/bad",
        "run": "bad",
        "started": builders.DESCRIPTION["started"],
        "command": "train.py --learning-rate 3e-4",
        "node": "n17",
        "devices": [],
        "ranks": 1,
        "state": "stopped",
        "ended": "stopped",
        "steps": 412,
        "worst": "critical",
        "symptoms": [{"name": "nonfinite-gradient", "severity": "critical", "first_step": 412}],
        "incidents": 1,
        "cause": "bad-batch",
        "cause_status": "likely",
        "cause_of": None,
    }
    groups = {one["name"]: (one["runs"], one["critical"], one["newest"]) for one in document["groups"]}
    assert groups == {
        "bad-batch (likely)": (1, 1, "ada/bad"),
        "not diagnosed": (1, 1, "ben/worse"),
        "none seen": (1, 0, "ben/quiet"),
    }


def test_an_empty_folder_is_said(tmp_path: Path) -> None:
    (said,) = printed("--root", str(tmp_path))
    assert said.startswith(f"No runs found below {tmp_path}")


def test_groups_without_a_root_are_refused() -> None:
    result = CliRunner().invoke(command, ["--by", "cause"])
    assert isinstance(result.exception, UsageError)
    assert "--root" in str(result.exception)


def test_names_from_elsewhere_cannot_write_to_the_terminal(tmp_path: Path) -> None:
    builders.quiet_run(tmp_path / "run", node="n\x1b[31m3")
    assert "\x1b" not in "\n".join(printed("--root", str(tmp_path), "--by", "node"))


def test_a_narrow_terminal_gets_two_lines_a_run(team: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_fleet, "terminal_width", lambda: 50)
    lines = printed("--root", str(team))[2:]
    assert lines[0] == "ada/bad"
    assert "412 steps  stopped" in lines[1]
    assert all(len(line) <= 50 for line in lines)
    groups = printed("--root", str(team), "--by", "cause")[2:]
    assert groups[:2] == ["bad-batch (likely)", "  1 run  1 critical  0 warned  0 broke off"]
    monkeypatch.setattr(_fleet, "terminal_width", lambda: 200)
    assert printed("--root", str(team))[2].startswith("run ")


def test_the_command_offers_every_grouping() -> None:
    (by,) = (one for one in command.params if one.name == "by")
    assert isinstance(by.type, click.Choice)
    assert list(by.type.choices) == list(_fleet.GROUPINGS)

"""The run folder and its index, against damage and strangers."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

import builders
from steadytrain.core.errors import UsageError
from steadytrain.core.incident import Incident
from steadytrain.grouping.gravest import gravest_incident
from steadytrain.storage.run_folder import RunWriter, bundles_inside, open_run
from steadytrain.storage.run_index import RunIndex
from steadytrain.storage.run_search import find, list_runs, newest, unreadable_runs

# The run folder.


def test_a_run_folder_gives_back_what_was_written(tmp_path: Path) -> None:
    path = builders.bad_run(tmp_path / "copper-lynx")
    run = open_run(path)
    assert run.name == "copper-lynx"
    assert run.ended == "stopped"
    assert run.symptoms[0].name == "nonfinite-gradient"
    assert run.actions == (builders.incident().action,)
    assert run.incidents == (path / "incidents" / "step-412",)
    assert len(run.window()) == 412
    assert gravest_incident(path) == path / "incidents" / "step-412"


def test_of_several_incidents_the_gravest_is_meant(tmp_path: Path) -> None:
    def finite(step: int, *names: str, severity: str = "warning") -> Incident:
        symptoms = tuple(builders.symptom(step, name=name, severity=severity, numbers={}) for name in names)
        return builders.incident(step, symptoms=symptoms, kind="symptom")

    lone, slow, rises = finite(40, "loss-spike"), finite(50, "plateau", severity="critical"), finite(60, "divergence")
    grave = finite(70, "divergence", severity="critical")
    for number, (incidents, step) in enumerate(
        [((lone, rises), 40), ((lone, slow), 50), ((slow, grave), 70), ((slow, grave, builders.incident()), 412)]
    ):
        path = builders.bad_run(tmp_path / str(number), incidents=list(incidents))
        assert gravest_incident(path) == path / "incidents" / f"step-{step}"


def test_a_run_whose_process_was_killed_reads_as_far_as_it_got(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "killed", dict(builders.DESCRIPTION))
    writer.raise_symptom(builders.symptom())
    run = open_run(tmp_path / "killed")
    assert run.ended is None
    assert len(run.symptoms) == 1
    writer.close()


@pytest.mark.parametrize("content", [None, b""], ids=["missing", "empty"])
def test_a_missing_or_empty_index_reads_as_an_empty_one(tmp_path: Path, content: bytes | None) -> None:
    path = builders.write_run(tmp_path / "run", steps=builders.records(2))
    for file in path.glob("index.sqlite*"):
        file.unlink()
    if content is not None:
        (path / "index.sqlite").write_bytes(content)
    assert open_run(path).symptoms == ()


def test_an_index_whose_process_was_killed_before_its_tables_were_there_reads_as_an_empty_one(tmp_path: Path) -> None:
    run = builders.quiet_run(tmp_path / "run")
    (run / "index.sqlite").unlink()
    with closing(sqlite3.connect(run / "index.sqlite")) as index:
        index.execute("PRAGMA journal_mode=WAL")
    opened = open_run(run)
    assert (opened.facts, opened.symptoms, opened.incidents, opened.actions) == ({}, (), (), ())


def test_an_index_gets_all_of_its_tables_or_none(tmp_path: Path) -> None:
    schema = "CREATE TABLE facts (name TEXT); CREATE TABLE symptoms (name TEXT); CREATE TABLE facts (name TEXT);"
    with pytest.raises(sqlite3.Error):
        RunIndex(tmp_path / "index.sqlite", schema, busy_s=1.0)
    with closing(sqlite3.connect(tmp_path / "index.sqlite")) as index:
        assert index.execute("SELECT name FROM sqlite_master").fetchall() == []


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE symptoms",
        "INSERT INTO facts VALUES ('x', '{')",
        "INSERT INTO symptoms VALUES ('x', 'main', 1, 1, 'critical', '[]')",
        "INSERT INTO actions (step, document) VALUES (1, '{\"step\": 1}')",
        "UPDATE symptoms SET document = replace(document, 'critical', 'unheard-of')",
    ],
)
def test_a_damaged_index_is_one_line(tmp_path: Path, statement: str) -> None:
    path = builders.bad_run(tmp_path / "run")
    with sqlite3.connect(path / "index.sqlite") as index:
        index.execute(statement)
    index.close()
    with pytest.raises(UsageError, match="damaged") as caught:
        open_run(path)
    assert "\n" not in str(caught.value)


def test_an_index_that_is_no_database_is_one_line(tmp_path: Path) -> None:
    path = builders.quiet_run(tmp_path / "run")
    for file in path.glob("index.sqlite*"):
        file.unlink()
    (path / "index.sqlite").write_bytes(b"no database" * 100)
    with pytest.raises(UsageError, match="damaged"):
        open_run(path)


def test_a_newer_run_folder_asks_for_an_upgrade_and_hides_no_other_run(tmp_path: Path) -> None:
    builders.quiet_run(tmp_path / "old", started="2026-01-01T00:00:00+00:00")
    builders.write_run(tmp_path / "new", version=99)
    with pytest.raises(UsageError, match=r"version 99 is newer.*upgrade"):
        open_run(tmp_path / "new")
    assert [run.name for run in list_runs(tmp_path)] == ["old"]
    assert newest(tmp_path).name == "old"
    (reason,) = unreadable_runs(tmp_path)
    assert "version 99" in reason


def test_an_index_cannot_name_an_incident_outside_the_run(tmp_path: Path) -> None:
    outside = builders.write_bundle(tmp_path / "elsewhere")
    path = builders.bad_run(tmp_path / "run")
    (path / "incidents" / "link").symlink_to(outside)
    with sqlite3.connect(path / "index.sqlite") as index:
        for name in ("../elsewhere", str(outside), "incidents/link"):
            index.execute("INSERT INTO incidents VALUES (?, 1, '{}')", (name,))
    index.close()
    assert open_run(path).incidents == (path / "incidents" / "step-412",)


@pytest.mark.parametrize("argv", ["text", [1, None], None, {"a": 1}])
def test_a_run_description_of_odd_types_is_listed(tmp_path: Path, argv: object) -> None:
    builders.quiet_run(tmp_path / "run", argv=argv, started=None)
    assert len(list_runs(tmp_path)) == 1


def test_find_takes_a_path_or_a_name_and_refuses_the_rest_in_one_line(tmp_path: Path) -> None:
    path = builders.quiet_run(tmp_path / "run")
    (tmp_path / "other").mkdir()
    assert find(str(path), tmp_path / "nowhere") == path
    assert find("run", tmp_path) == path
    for target in (str(tmp_path / "other"), "unheard-of", "x" * 5000, "nul\0byte"):
        with pytest.raises(UsageError):
            find(target, tmp_path)


def test_a_list_of_long_runs_reads_no_step(tmp_path: Path) -> None:
    path = builders.quiet_run(tmp_path / "run")
    (path / "steps" / "main" / "000001.steps").write_bytes(b"\0" * 1_000_000)
    assert list_runs(tmp_path)[0].steps > 0


def test_a_bundle_outside_the_folder_is_not_one_of_the_run(tmp_path: Path) -> None:
    run, other = builders.bad_run(tmp_path / "bad"), builders.bad_run(tmp_path / "other")
    outside = other / "incidents" / "step-412"
    (run / "incidents" / "linked").symlink_to(outside)
    names = ["incidents/step-412", "incidents/linked", "../other/incidents/step-412", str(outside), "incidents/none"]
    assert bundles_inside(run, names) == (run / "incidents" / "step-412",)

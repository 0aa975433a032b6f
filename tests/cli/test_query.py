"""``steadytrain query``: questions in SQL over live and compacted runs, either of which may be a stranger's."""

from __future__ import annotations

import csv
import io
import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import builders
import warm
from steadytrain.cli.query import command
from steadytrain.core.errors import UsageError
from steadytrain.core.model import Reading
from steadytrain.storage import compaction
from steadytrain.storage import query as questions
from steadytrain.storage.compaction import compact_table
from steadytrain.storage.run_folder import open_run
from steadytrain.storage.tables import TableWriter

pytest.importorskip("duckdb")
pytest.importorskip("pyarrow")

NAN = float("nan")


def query(*arguments: str | Path) -> str:
    result = CliRunner().invoke(command, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def rows(*arguments: str | Path) -> list[list[Any]]:
    document = json.loads(query(*arguments, "--json"))
    assert document["schema"] == "steadytrain.query/1"
    return list(document["rows"])


def add_gradients(path: Path, steps: range = range(1, 413), *, compacted: bool = False) -> Path:
    """Norms of the step number, of NaN, and of a parameter without gradient."""
    writer = TableWriter(path / "tables" / "main", "gradients")
    for step in steps:
        if step == steps[-20]:
            writer.close()
        values = np.array([[step], [np.nan], [-1]], np.float32)
        writer.append(step, 1000.0 + step, Reading("gradients", builders.TENSORS, ("norm",), values))
    writer.close()
    if compacted:
        compact_table(path / "tables" / "main" / "gradients", places=[], known={}, may_go_on=lambda: True)
        assert list(path.rglob("*.parquet"))
    return path


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "full_steps_of", lambda rows, columns: 64)
    monkeypatch.setattr(compaction, "COLUMNAR_BYTES_MIN", 0)


def test_steps_have_their_signals_and_null_where_there_is_none(tmp_path: Path) -> None:
    path = builders.bad_run(tmp_path / "run")
    found = rows(
        path, "SELECT run, rank, stream, step, loss, tokens, refused FROM steps WHERE step > 410 ORDER BY step"
    )
    window = open_run(path).window()
    assert found == [
        ["run", 0, "main", 411, float(window.signals["loss"][410]), None, False],
        ["run", 0, "main", 412, "nan", None, True],
    ]


@pytest.mark.parametrize("compacted", [False, True])
def test_a_table_is_one_view_wherever_it_lies(tmp_path: Path, short: None, compacted: bool) -> None:
    path = add_gradients(builders.bad_run(tmp_path / "run"), compacted=compacted)
    first, second, third = rows(
        path, "SELECT name, count(*), count(norm), max(norm), max(step) FROM gradients GROUP BY name ORDER BY name"
    )
    assert first[0] == "model.embed.weight"
    assert first[1] == first[2] == second[1]
    assert (first[1] == 412) is not compacted
    assert first[3:] == [412.0, 412]
    assert (second[0], second[2]) == ("model.head.bias", 0)
    assert third[3] == "nan"


def test_what_was_raised_and_done_can_be_asked(tmp_path: Path) -> None:
    path = builders.bad_run(tmp_path / "run")
    assert rows(path, "SELECT name, severity, first_step, tensors, numbers FROM symptoms") == [
        ["nonfinite-gradient", "critical", 412, list(builders.TENSORS[1:]), {"gradient_norm": "nan"}]
    ]
    place = builders.located()
    assert rows(path, "SELECT step, path, operation, line, action FROM incidents") == [
        [412, str(path / "incidents" / "step-412"), place.operation, place.line, "refused-update"]
    ]
    assert rows(path, "SELECT what FROM actions") == [["refused-update"]]
    assert rows(path, "SELECT run, ended, command FROM runs") == [["run", "stopped", "train.py --learning-rate 3e-4"]]
    assert rows(path, "SELECT value FROM facts WHERE name = 'exit_status'") == [["1"]]


def test_the_views_are_listed_and_nothing_else(tmp_path: Path) -> None:
    path = add_gradients(builders.bad_run(tmp_path / "run"))
    listed = [name for (name,) in rows(path, "SHOW TABLES")]
    views = ["actions", "facts", "gradients", "histograms", "incidents", "machine"]
    assert listed == [*views, "modules", "ranks", "replica", "runs", "script", "steps", "symptoms", "tensors"]
    assert [row[0] for row in rows(path, "DESCRIBE gradients")] == [
        "run",
        "rank",
        "stream",
        "name",
        "step",
        "time",
        "norm",
    ]
    assert rows(path, "SELECT count(*) FROM tensors") == [[0]]


def test_several_runs_are_named_by_a_pattern_or_all_asked(tmp_path: Path) -> None:
    for name in ("a-1", "a-2", "it's"):
        builders.bad_run(tmp_path / name)
    counts = "SELECT run, count(*) FROM steps GROUP BY run ORDER BY run"
    assert rows("--runs-dir", tmp_path, counts) == [["a-1", 412], ["a-2", 412], ["it's", 412]]
    assert rows("--runs-dir", tmp_path, "a-*", counts) == [["a-1", 412], ["a-2", 412]]
    assert rows(str(tmp_path / "i*"), counts) == [["it's", 412]]
    assert rows("--runs-dir", tmp_path, "a-1", "it's", counts) == [["a-1", 412], ["it's", 412]]
    with pytest.raises(UsageError, match="no run matches"):
        query("--runs-dir", tmp_path, "b-*", counts)


def test_other_processes_of_a_run_have_its_name_and_their_rank(tmp_path: Path) -> None:
    path = builders.bad_run(tmp_path / "run")
    add_gradients(builders.bad_run(path / "ranks" / "0001", rank=1))
    assert rows(path, "SELECT DISTINCT run, rank FROM steps ORDER BY rank") == [["run", 0], ["run", 1]]
    assert rows(path, "SELECT DISTINCT run, rank FROM gradients") == [["run", 1]]


def test_rows_and_columns_that_changed_are_one_view(tmp_path: Path) -> None:
    path = builders.quiet_run(tmp_path / "run")
    writer = TableWriter(path / "tables" / "main", "tensors")
    writer.append(1, 1.0, Reading("tensors", ("a", "b"), ("mean",), np.array([[1], [NAN]], np.float32)))
    writer.append(2, 2.0, Reading("tensors", ("b",), ("mean", "step"), np.array([[2, 7]], np.float32)))
    writer.close()
    found = rows(path, "SELECT name, step, mean, step_value FROM tensors ORDER BY step, name")
    assert found == [["a", 1, 1.0, None], ["b", 1, None, None], ["b", 2, 2.0, 7.0]]


# On the terminal.


def test_a_table_on_the_terminal(tmp_path: Path) -> None:
    shown = query(
        builders.bad_run(tmp_path / "run"), "SELECT 'a' AS letter, 0.123456789123::DOUBLE AS number, NULL AS nothing"
    )
    assert shown.splitlines() == ["letter        number  nothing", "a       0.1234567891"]


def test_many_rows_are_cut_on_the_terminal_only(tmp_path: Path) -> None:
    path = builders.quiet_run(tmp_path / "run")
    lines = query(path, "SELECT step FROM steps").splitlines()
    assert len(lines) == 202
    assert lines[-1] == "The first 200 rows. All of them: --csv or --json"
    assert len(query(path, "SELECT step FROM steps", "--csv").splitlines()) == 1001


def test_csv_has_what_the_table_has(tmp_path: Path) -> None:
    path = builders.bad_run(tmp_path / "run")
    printed = query(path, "SELECT 'a,b' AS text, tensors, numbers, NULL AS nothing FROM symptoms", "--csv")
    head, row = csv.reader(io.StringIO(printed))
    assert head == ["text", "tensors", "numbers", "nothing"]
    assert row == ["a,b", json.dumps(list(builders.TENSORS[1:])), '{"gradient_norm": "nan"}', ""]


def test_a_run_whose_command_is_no_list_has_none(tmp_path: Path) -> None:
    run = builders.quiet_run(tmp_path / "runs" / "quiet")
    description = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**description, "argv": 3}))
    assert rows(run, "SELECT command FROM runs") == [[""]]


def test_a_run_cannot_send_escape_sequences_to_the_terminal(tmp_path: Path) -> None:
    path = builders.bad_run(tmp_path / "run", symptoms=[builders.symptom(message="\x1b[2Jgone")])
    assert "\x1b" not in query(path, "SELECT message FROM symptoms")


# What must not work.


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM '{outside}'",
        "SELECT * FROM glob('/*')",
        "COPY steps TO '{outside}'",
        "COPY steps TO '{inside}' (USE_TMP_FILE false)",
        "EXPLAIN ANALYZE COPY steps TO '{inside}' (USE_TMP_FILE false)",
        "ATTACH '{outside}'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "PRAGMA disable_profiling",
        "CREATE TABLE x AS SELECT 1",
        "DELETE FROM steps",
        "SELECT 1; COPY steps TO '{outside}'",
        "SELECT nothing FROM steps",
        "SELEKT",
        "",
        "   ",
    ],
)
def test_what_is_no_question_is_one_line_and_touches_nothing(tmp_path: Path, short: None, sql: str) -> None:
    path = add_gradients(builders.bad_run(tmp_path / "run"), compacted=True)
    inside = next(path.rglob("*.parquet"))
    outside = tmp_path / "outside.parquet"
    outside.write_bytes(inside.read_bytes())
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    with pytest.raises(UsageError) as caught:
        query(path, f"{sql.format(inside=inside, outside=outside)} /* gradients */" if sql.strip() else sql)
    assert "\n" not in str(caught.value)
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before


def test_names_of_tables_and_runs_cannot_be_sql(tmp_path: Path) -> None:
    path = builders.bad_run(tmp_path / "run", name="x'; DROP TABLE steps; --")
    for table in ('a"b', "Steps", "symptoms"):
        writer = TableWriter(path / "tables" / "it's", table)
        writer.append(1, 1.0, Reading(table, ("r",), ('c"d',), np.ones((1, 1), np.float32)))
        writer.close()
    assert rows(path, 'SELECT run, stream, "c""d" FROM "a""b" /* a b */') == [[]] * 0
    assert rows(path, "SELECT count(*) FROM steps") == [[412]]
    assert rows(path, "SELECT DISTINCT run FROM steps") == [["x'; DROP TABLE steps; --"]]


def test_a_bundle_or_nothing_is_named_as_such(tmp_path: Path) -> None:
    path = builders.bad_run(tmp_path / "run")
    with pytest.raises(UsageError, match="an incident bundle"):
        query(path / "incidents" / "step-412", "SELECT 1")
    with pytest.raises(UsageError, match="no such run"):
        query("nobody", "SELECT 1")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="no runs here yet"):
        query("--runs-dir", tmp_path / "empty", "SELECT 1")


@pytest.mark.parametrize("missing", ["duckdb", "pyarrow"])
def test_a_missing_package_is_named_with_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    path = builders.bad_run(tmp_path / "run")
    monkeypatch.setattr(questions, "find_spec", lambda name: None if missing == "duckdb" else True)
    monkeypatch.setattr("steadytrain.storage.data_frames.is_available", lambda: False)
    with pytest.raises(UsageError, match=rf"{missing}.*pip install 'duckdb>=\S+ 'pyarrow>="):
        query(path, "SELECT 1")


# While the run goes on.


def test_files_that_are_replaced_while_they_are_read_are_read_again(
    tmp_path: Path, short: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = add_gradients(builders.bad_run(tmp_path / "run"))
    real, calls = questions.open_part, []

    def replaced_first(part: Any) -> Any:
        if not calls:
            calls.append(part)
            compact_table(path / "tables" / "main" / "gradients", places=[], known={}, may_go_on=lambda: True)
        return real(part)

    monkeypatch.setattr(questions, "open_part", replaced_first)
    ((count,),) = rows(path, "SELECT count(DISTINCT step) FROM gradients")
    assert 64 <= count < 412


@pytest.mark.slow
def test_ctrl_c_ends_a_long_question_quietly(tmp_path: Path) -> None:
    path = builders.quiet_run(tmp_path / "run")
    sql = "SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000000) b"
    process = subprocess.Popen(
        [warm.python(), "-m", "steadytrain", "query", str(path), sql],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    # More than one: where the first arrives while a library is being imported, it may be lost. Far apart: one that
    # arrives while the process ends because of the one before aborts it.
    for wait_s in (3, 30, 30, 30):
        try:
            printed, told = process.communicate(timeout=wait_s)
            break
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
    assert process.returncode in (130, -signal.SIGINT)
    assert printed == b""
    assert b"RuntimeError" not in told


def test_a_query_that_takes_too_long_is_one_line(tmp_path: Path) -> None:
    run = builders.bad_run(tmp_path / "bad")
    endless = "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE a.range * b.range % 7 = 3"
    with pytest.raises(UsageError, match=r"no answer within 0\.2 s; .*--wait-s"):
        query(run, endless, "--wait-s", "0.2")
    with pytest.raises(UsageError, match=r"no answer within 0\.1 s"):
        query(run, endless, "--seconds", "0.1")


def test_a_query_that_takes_too_much_memory_is_one_line(tmp_path: Path) -> None:
    run = builders.bad_run(tmp_path / "bad")
    with pytest.raises(UsageError, match=r"more than 0\.05 GiB of memory; .*--memory"):
        query(run, "SELECT list(range) FROM range(100000000)", "--memory", "0.05")

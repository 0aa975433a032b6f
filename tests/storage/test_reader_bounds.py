"""Each reader of what a stranger may have written has a bound; here each is reached, and refuses or reads nothing."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path

import pytest

import builders
from steadytrain.checkpoints import folders
from steadytrain.core.errors import UsageError
from steadytrain.diagnosis import answer_files
from steadytrain.experiments import command_results
from steadytrain.experiments.command_results import CommandResult
from steadytrain.logs import text_files
from steadytrain.method import evidence
from steadytrain.report import source_lines
from steadytrain.storage import bundle_contents, signal_notes, step_look, tables, tape_files
from steadytrain.storage.bundle import open_bundle
from steadytrain.storage.run_folder import open_run

TEXT = '{"format": "x", "version": 1, "optimizers": [], "commands": [], "schema": "x"}'


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return builders.bad_run(tmp_path_factory.mktemp("bounds") / "run")


def bundle_of(run: Path) -> Path:
    return next(path for path in sorted((run / "incidents").iterdir()) if (path / "manifest.json").is_file())


def file_with(folder: Path, name: str, text: str = TEXT) -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


REFUSED: dict[str, Callable[[Path, Path], object]] = {
    "storage.bundle:JSON_BYTES_MAX": lambda run, _: open_bundle(bundle_of(run)).incident,
    "storage.bundle_contents:DOCUMENT_BYTES_MAX": lambda _, own: bundle_contents._document(file_with(own, "b.json")),
    "storage.bundle_contents:HEADER_BYTES_MAX": lambda _, own: bundle_contents._header(
        file_with(own, "m.safetensors", "\x20" + 7 * "\0" + TEXT)
    ),
    "storage.step_look:LOOK_BYTES_MAX": lambda _, own: (
        file_with(own, step_look.LOOK_FILE),
        step_look.read_look(own),
    ),
    "storage.tables:SCHEMA_BYTES_MAX": lambda _, own: tables.read_schema(file_with(own, "t.json")),
    "storage.tape_files:DOCUMENT_BYTES_MAX": lambda _, own: tape_files._read(
        file_with(own, "c.json"), file_with(own, "c.safetensors"), "x", 1
    ),
    "checkpoints.folders:JSON_BYTES_MAX": lambda _, own: folders._json(file_with(own, "trainer_state.json")),
    "logs.text_files:DOCUMENT_BYTES_MAX": lambda _, own: text_files.document_text(file_with(own, "log.json")),
}


@pytest.mark.parametrize("bound", REFUSED)
def test_what_is_above_its_bound_is_refused_in_words(
    run: Path, tmp_path: Path, bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, name = bound.split(":")
    monkeypatch.setattr(importlib.import_module(f"steadytrain.{module}"), name, 10)
    with pytest.raises(UsageError, match=r"bytes|MiB|larger|refused|at most"):
        REFUSED[bound](run, tmp_path)


UNREAD: dict[str, Callable[[Path, Path], object]] = {
    "diagnosis.answer_files:DOCUMENT_BYTES_MAX": lambda _, own: (
        file_with(own, answer_files.FILE),
        answer_files.read(own),
    )[1],
    "experiments.command_results:BYTES_MAX": lambda _, own: (
        command_results.keep_result(own, CommandResult("replay", True, "same")),
        command_results.results_of(own),
    )[1],
    "method.evidence:DOCUMENT_BYTES_MAX": lambda run, _: (
        file_with(run, evidence.PREFLIGHT_FILE, '{"checks": [{}]}'),
        evidence.preflight_of(open_run(run)),
    )[1],
    "report.source_lines:SOURCE_BYTES_MAX": lambda _, own: source_lines._lines(str(file_with(own, "train.py"))),
}


@pytest.mark.parametrize("bound", UNREAD)
def test_what_is_above_its_bound_is_not_read(
    run: Path, tmp_path: Path, bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, name = bound.split(":")
    monkeypatch.setattr(importlib.import_module(f"steadytrain.{module}"), name, 10)
    assert not UNREAD[bound](run, tmp_path)


def test_kept_results_are_bounded_in_number_and_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_results, "RESULTS_MAX", 2)
    monkeypatch.setattr(command_results, "WHAT_MAX", 3)
    command_results.keep_result(tmp_path, *(CommandResult(name, True, "a long text") for name in "abc"))
    kept = command_results.results_of(tmp_path)
    assert [(name, one.what) for name, one in kept.items()] == [("b", "a l"), ("c", "a l")]


def test_notes_of_signals_are_bounded_in_number_and_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / signal_notes.FOLDER).mkdir()
    for name in ("SIGABRT", "SIGBUS", "SIGSEGV"):
        file_with(tmp_path / signal_notes.FOLDER, f"{name}.txt", '  File "/home/me/a.py", line 7 in step\n' + "x" * 50)
    assert len(signal_notes.signals_of(tmp_path)) == 3
    monkeypatch.setattr(signal_notes, "NOTES_MAX", 2)
    monkeypatch.setattr(signal_notes, "NOTE_BYTES_MAX", 20)
    assert len(signal_notes.signals_of(tmp_path)) == 2

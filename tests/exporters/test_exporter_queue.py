"""What stands between the run and an exporter: one that raises, hangs or is slow costs the run nothing."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from builders import TENSORS, incident, records, symptom
from steadytrain.core.errors import UsageError
from steadytrain.core.extras import install
from steadytrain.core.incident import Incident
from steadytrain.core.model import Symptom
from steadytrain.exporters import check_to, exporter_queue, parse_to, run_exports
from steadytrain.exporters.exporter import Exporter, ExporterGoneError, Histogram, Row, Run, known_tools
from steadytrain.exporters.exporter_queue import Outlet
from steadytrain.exporters.run_exports import Exports
from waiting import until

RUN = Run("run", "/nowhere")
PATIENCE_S = 120.0


class Keeps(Exporter):
    """Keeps what it is handed. ``on`` says what to do in a method before that."""

    def __init__(self, **on: Callable[[], None]) -> None:
        self.steps: list[int] = []
        self.symptoms: list[str] = []
        self.incidents: list[int] = []
        self.flushes = 0
        self.ended = ""
        self._on = on

    def open(self, run: Run) -> None:
        self._do("open")

    def scalars(self, row: Row) -> None:
        self._do("scalars")
        self.steps.append(row.step)

    def histogram(self, histogram: Histogram) -> None:
        self._do("histogram")

    def symptom(self, symptom: Symptom) -> None:
        self._do("symptom")
        self.symptoms.append(symptom.name)

    def incident(self, path: Path, incident: Incident) -> None:
        self._do("incident")
        self.incidents.append(incident.step)

    def flush(self) -> None:
        self._do("flush")
        self.flushes += 1

    def close(self, ended: str) -> None:
        self._do("close")
        self.ended = ended

    def _do(self, method: str) -> None:
        self._on.get(method, lambda: None)()


class Started:
    """An outlet to ``exporter``, and what was told."""

    def __init__(self, exporter: Exporter) -> None:
        self.told: list[str] = []
        self.outlet = Outlet("there", lambda: exporter, RUN, self.told.append)

    def rows(self, first: int, last: int) -> None:
        for step in range(first, last + 1):
            self.outlet.put(lambda exporter, step=step: exporter.scalars(Row(step, 0.0, {})))

    def close(self, wait_s: float = PATIENCE_S) -> None:
        self.outlet.ask_to_close("finished")
        self.outlet.wait_closed(wait_s)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(exporter_queue, "FLUSH_EVERY_S", 0.01)
    monkeypatch.setattr(exporter_queue, "LET_GO_S", 0.05)
    yield
    until(lambda: not threads())


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("steadytrain-")]


def raising() -> None:
    raise RuntimeError("no room\non the other disk")


def test_all_arrives_in_order_and_in_batches_and_the_thread_ends() -> None:
    answers = threading.Event()
    exporter = Keeps(open=lambda: answers.wait() and None)
    started = Started(exporter)
    started.rows(1, 1000)
    started.outlet.put_marker(lambda exporter: exporter.symptom(symptom()))
    answers.set()
    started.close()
    assert exporter.steps == list(range(1, 1001))
    assert exporter.symptoms == ["nonfinite-gradient"]
    assert exporter.ended == "finished"
    assert exporter.flushes == 1
    assert started.told == []
    assert not threads()


def test_what_fails_once_is_told_once_and_the_rest_is_sent() -> None:
    failures = iter([True, False, True])

    def sometimes() -> None:
        if next(failures, False):
            raising()

    exporter = Keeps(scalars=sometimes)
    started = Started(exporter)
    started.rows(1, 10)
    started.close()
    assert exporter.steps == [2, *range(4, 11)]
    assert started.told == [
        "warning: there failed: RuntimeError: no room on the other disk; training goes on",
    ]


@pytest.mark.parametrize("method", ["scalars", "flush"])
def test_one_that_always_raises_is_dropped_after_a_few_times(method: str) -> None:
    exporter = Keeps(**{method: raising})
    started = Started(exporter)
    number = 0
    while started.outlet.alive:
        started.rows(number, number)
        number += 1
        time.sleep(0.002)
    started.close()
    assert started.told == [
        "warning: there failed: RuntimeError: no room on the other disk; training goes on",
        "warning: nothing more goes to there: RuntimeError: no room on the other disk",
    ]
    assert exporter.ended == "failed"


def test_one_that_cannot_be_opened_is_told_without_secrets() -> None:
    def refuses() -> None:
        raise ValueError("bad login: api_key=hf_abcdefghijklmnopqrstuvwx")

    started = Started(Keeps(open=refuses))
    until(lambda: not started.outlet.alive)
    started.rows(1, 10)
    started.close()
    assert started.told == [
        "warning: nothing goes to there: ValueError: bad login: api_key=[redacted: huggingface-token, 27 characters]"
    ]


def test_one_that_is_gone_is_left_at_once() -> None:
    def gone() -> None:
        raise ExporterGoneError("the run was deleted")

    started = Started(Keeps(scalars=gone))
    started.rows(1, 10)
    until(lambda: not started.outlet.alive)
    started.close()
    assert started.told == ["warning: nothing more goes to there: the run was deleted"]


@pytest.mark.parametrize("method", ["open", "scalars", "flush", "close"])
def test_one_that_hangs_holds_up_neither_the_run_nor_its_end(method: str) -> None:
    answers = threading.Event()
    started = Started(Keeps(**{method: lambda: answers.wait() and None}))
    started.rows(1, 3 * exporter_queue.ROWS_WAITING_MAX)  # each of these returns although nobody takes anything
    started.close(wait_s=0.05)
    assert threads() == ["steadytrain-there"]
    assert "warning: there does not respond; unwritten data is lost" in started.told
    answers.set()


def test_too_much_costs_the_oldest_rows_and_no_symptom_and_no_incident(tmp_path: Path) -> None:
    answers = threading.Event()
    exporter = Keeps(open=lambda: answers.wait() and None)
    started = Started(exporter)
    many, kept = 3 * exporter_queue.ROWS_WAITING_MAX, exporter_queue.ROWS_WAITING_MAX
    started.rows(1, 10)
    started.outlet.put_marker(lambda exporter: exporter.symptom(symptom()))
    started.outlet.put_marker(lambda exporter: exporter.incident(tmp_path, incident(7)))
    started.rows(11, many)
    answers.set()
    started.close()
    assert exporter.steps == list(range(many - kept + 1, many + 1))
    assert (exporter.symptoms, exporter.incidents) == (["nonfinite-gradient"], [7])
    assert started.told == [f"note: there was slower than the run: {many - kept} rows of scalars were dropped"]


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")  # what is tested is how it goes well
def test_a_forked_child_neither_writes_nor_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tensorboard")
    told: list[str] = []
    sink = Exports(["tensorboard"], tell=told.append)
    sink.open(tmp_path, {"name": "run"})
    for record in records(5):
        sink.step("main", record, TENSORS)
    monkeypatch.setattr(run_exports, "CLOSE_WAIT_S_MAX", PATIENCE_S)
    until(lambda: (tmp_path / "tensorboard").exists())
    process = os.fork()
    if not process:
        try:
            sink.forget()
            sink.step("main", record, TENSORS)
            sink.close("finished")
        finally:
            os._exit(len(told))
    assert os.waitpid(process, 0)[1] == 0
    sink.close("finished")
    assert told == []


def test_other_ranks_send_nothing(tmp_path: Path) -> None:
    sink = Exports(list(known_tools()), tell=lambda text: None)
    sink.open(tmp_path, {"name": "run", "rank": 1})
    sink.step("main", records(1)[0], TENSORS)
    sink.symptom(symptom())
    assert not threads()
    sink.close("finished")
    assert not list(tmp_path.iterdir())


def test_nothing_is_begun_and_nothing_imported_by_default(tmp_path: Path) -> None:
    loaded = set(sys.modules)
    sink = Exports(["auto"], tell=lambda text: None)
    sink.open(tmp_path, {"name": "run"})
    for record in records(100):
        sink.step("main", record, TENSORS)
    sink.close("finished")
    assert not set(sys.modules) - loaded
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("tensorboard", ("tensorboard",)),
        ("wandb, mlflow,wandb", ("wandb", "mlflow")),
        ("auto,tensorboard", ("auto", "tensorboard")),
        ("none", ("none",)),
    ],
)
def test_names(text: str, names: tuple[str, ...]) -> None:
    for name in set(names) & set(known_tools()):
        pytest.importorskip(f"{name}.version" if name == "mlflow" else name)
    assert parse_to(text) == names


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "tensorbord",
            "'tensorbord': no exporter has that name; one of mlflow, otel, prometheus, tensorboard, wandb, auto, none",
        ),
        ("", "'': no exporter has that name; one of mlflow, otel, prometheus, tensorboard, wandb, auto, none"),
        ("none,auto", "'none,auto': none excludes all others"),
    ],
)
def test_bad_names_are_told_in_a_line(text: str, line: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_to(text)
    assert str(error.value) == line


@pytest.mark.parametrize("tool", known_tools())
def test_a_tool_that_is_not_there_names_what_to_install(tool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, known_tools()[tool].requires, None)
    with pytest.raises(UsageError) as error:
        check_to([tool])
    assert str(error.value) == f"'{tool}': not installed here; {install(tool)}"

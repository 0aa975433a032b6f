"""What leaves the machine as text: no planted secret, and nothing that the place where it is shown would obey."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, final

import numpy as np
import pytest
from markdown_it import MarkdownIt

from builders import TENSORS, bad_run, incident, located, records, symptom
from feeding import handed_over
from steadytrain.api.exports import concluded_of, recorded_of
from steadytrain.core.incident import Action, Finding, Incident
from steadytrain.core.model import Reading, Symptom
from steadytrain.diagnosis import answer_files
from steadytrain.diagnosis.answer import Diagnosis
from steadytrain.exporters import run_exports
from steadytrain.exporters.alerts.alert import Place
from steadytrain.exporters.alerts.alert_book import GATHER_S, AlertBook
from steadytrain.exporters.alerts.settings import AlertSettings
from steadytrain.exporters.exporter import (
    ActiveRun,
    Exporter,
    Histogram,
    Row,
    Run,
    action_text,
    as_block,
    incident_text,
    symptom_text,
)
from steadytrain.exporters.run_exports import Exports
from steadytrain.storage.documents import as_json
from steadytrain.storage.run_folder import open_run

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from secret_forms import forms

FORMS = forms(20261125)[::3]
EVIL = (
    "<script>alert(1)</script> <img src=x onerror=y> ![i](https://evil.example/i.png) [c](https://evil.example) "
    "<!channel> @everyone <@U1> <users/all> \x1b[31mred\x07 \u202e '; DROP TABLE runs;-- ` ```\n# heading\n\n- list"
)


@final
class Kept(Exporter):
    """An exporter into a run of the script, which keeps all that it is given as text."""

    def __init__(self) -> None:
        self.got: list[str] = []

    def open(self, run: Run) -> None:
        self.got.append(str(run))

    def scalars(self, row: Row) -> None:
        self.got.append(str(row))

    def histogram(self, histogram: Histogram) -> None:
        self.got.append(str(histogram))

    def symptom(self, symptom: Symptom) -> None:
        self.got.append(str(symptom))

    def incident(self, path: Path, incident: Incident) -> None:
        self.got += [str(incident.to_json()), incident_text(path, incident)]

    def action(self, action: Action) -> None:
        self.got.append(str(action))

    def failed(self, why: str) -> None:
        self.got.append(why)

    def flush(self) -> None: ...

    def close(self, ended: str) -> None: ...


def planted(text: str) -> tuple[Symptom, Incident, Action]:
    """A symptom, its incident and an action, with ``text`` wherever a script can put some."""
    seen = symptom(412, message=f"bad: {text}", tensors=(text,))
    frozen = incident(412, finding=Finding(located(code=f"    x = f({text})"), text), symptoms=(seen,))
    action = Action(413, "steady", "applied", f"because of {text}", "clip")
    return seen, replace(frozen, action=replace(frozen.action, reason=text)), action


def through(got: str) -> list[str]:
    """The forms whose secret stands in ``got``; those of digits alone also stand in numbers."""
    return [form.name for form in FORMS if not form.secret.isdigit() and form.secret in got]


def test_no_secret_reaches_a_run_that_the_script_has_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept()
    joined: Any = type("Joined", (), {"join": lambda self, handle: kept})()
    monkeypatch.setattr(run_exports, "active_runs", lambda: [ActiveRun("wandb", "theirs", None)])
    monkeypatch.setattr(run_exports, "load_tool", lambda name: joined)
    sink = Exports(("auto",), tell=lambda line: None)
    sink.open(tmp_path, {"name": "run", "note": [form.text for form in FORMS]})
    names = tuple(form.text for form in FORMS)
    for record in records(3):
        sink.step("main", record, TENSORS)
    for table in ("modules", "tensors"):
        values = np.ones((len(names), 1), np.float32)
        sink.reading("main", 2, 0.0, Reading(table, names, ("nonfinite",), values))
    for at, form in enumerate(FORMS):
        seen, frozen, action = planted(form.text)
        sink.symptom(replace(seen, first_step=at))
        sink.incident(tmp_path, frozen)
        sink.action("main", action)
        if at % 50 == 0:  # a queue is bounded
            handed_over(sink)
    sink.close("failed", "\n".join(names))
    assert len(kept.got) > 3 * len(FORMS)
    assert through("\n".join(kept.got)) == []


def alerts_of(seen: Symptom, frozen: Incident, action: Action) -> list[str]:
    """Text, title and document of the alerts of these; like the process of alerts, the book gets them as documents."""
    book = AlertBook(AlertSettings(command="cat"), Place("run", "/runs/run", "node-7"), "steadytrain show", str)
    book.reached(412)
    book.symptom(Symptom.from_json(json.loads(as_json(seen.to_json()))), 0.0)
    book.incident(Path("/runs/run/incidents/step-000412"), Incident.from_json(json.loads(as_json(frozen.to_json()))), 0)
    book.action(Action.from_json(json.loads(as_json(action.to_json()))), 0.0)
    due = [*book.due(GATHER_S), book.end("failed", json.loads(as_json(seen.message)))]
    assert len(due) == 2
    return [text for alert in due for text in (alert.title, alert.text, as_json(alert.to_json()))]


def test_no_secret_reaches_an_alert() -> None:
    assert len(FORMS) >= 50
    assert through("\n".join(text for form in FORMS for text in alerts_of(*planted(form.text)))) == []


def test_no_secret_reaches_a_document_that_is_exported(tmp_path: Path) -> None:
    text = "\n".join(form.text for form in FORMS)
    seen, frozen, action = planted(text)
    run = open_run(bad_run(tmp_path / "run", symptoms=[seen], incidents=[replace(frozen, action=action)]))
    answer_files.keep(run.incidents[0], Diagnosis("i", "s", "exact", text, "unknown", None, text, (), ()))
    documents = [*recorded_of(run), *concluded_of(run, tmp_path)]
    assert [one.kind for one in documents] == ["incident", "diagnosis", "ledger", "page"]
    files = [Path(file).read_bytes().decode("utf-8", "replace") for one in documents for file in one.files]
    got = "\n".join([*(one.text for one in documents), *files])
    assert len(got) > 10_000
    assert through(got) == []


def test_texts_of_others_are_inert_where_markdown_is_shown() -> None:
    seen, frozen, action = planted(EVIL)
    for text in (symptom_text(seen), action_text(action), incident_text(Path("/runs/x"), frozen)):
        assert not any(sign in text for sign in "\x1b\x07\u202e")
        assert [token.type for token in MarkdownIt().parse(as_block(text))] == ["code_block"]


def test_an_alert_has_the_lines_of_its_form_alone() -> None:
    for text in alerts_of(*planted(EVIL)):
        assert not any(sign in text for sign in "\x1b\x07\u202e")
    _, text, *_ = alerts_of(*planted(EVIL))
    assert [line.partition(":")[0] for line in text.splitlines()[1:]] == ["Where", "Since", "Done", "Next", "Run"]


def test_a_chat_finds_nobody_to_call_and_no_link() -> None:
    pytest.importorskip("apprise")
    done = in_process(
        "import sys; from steadytrain.exporters.alerts.services import inert; "
        "sys.stdout.write(ascii(inert(sys.stdin.read())))",
        f"{EVIL}\nNext: steadytrain show /home/me@work/runs\nWhere: y = x @ w",
    )
    text = ast.literal_eval(done)
    for called in ("@everyone", "<!channel>", "<@U1>", "<users/all>", "](https"):
        assert called not in text
    assert text.replace("\u200b", "").startswith(EVIL)
    assert text.endswith("Next: steadytrain show /home/me@work/runs\nWhere: y = x @ w")


def in_process(code: str, given: str) -> str:
    """Apprise is imported in processes of their own alone."""
    done = subprocess.run([sys.executable, "-c", code], input=given, capture_output=True, text=True, check=True)
    return done.stdout

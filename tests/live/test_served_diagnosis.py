"""A diagnosis that a page starts: who may start it, its table of trials, its end, and that it ends with the server."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import builders
from steadytrain.api.pages import page_of
from steadytrain.cli.ui import Pages, diagnose_command
from steadytrain.experiments.outcome_files import trials_folder
from steadytrain.experiments.progress_file import FILE, Progress, going_on
from steadytrain.experiments.specs import Entry, Outcome, Spec, StepSeen, Verdict
from steadytrain.live.served.answers import Answer
from steadytrain.live.served.diagnosing import Diagnosing
from steadytrain.live.served.routes import Routes
from steadytrain.report.html import Served
from steadytrain.storage.bundle import write_json
from waiting import until

HOST = "127.0.0.1:8642"
INCIDENT = ("run", "bad", "incident", "step-412")
BAD_NAME = "<img src=x onerror='alert(1)'>"


class SmallPages:
    """Pages of what a server adds to them."""

    def report(self, path: Path, served: Served) -> str:
        return f'{served.command} data-token="{served.token}" {served.address}'

    def compare(self, paths: tuple[Path, Path]) -> str:
        raise NotImplementedError

    def explanations(self) -> Mapping[str, Mapping[str, str]]:
        raise NotImplementedError

    def explanation(self, name: str) -> str:
        raise NotImplementedError


def child(body: str) -> Callable[[Path], Sequence[str]]:
    return lambda source: [sys.executable, "-c", body, str(source)]


WAITS = "import sys, time; print('steadytrain: begun', file=sys.stderr, flush=True); time.sleep(600)"
INTERRUPTED = """
import sys, time
try:
    open(sys.argv[1] + '/begun', 'w').close()
    time.sleep(600)
except KeyboardInterrupt:
    print('steadytrain: interrupted: 2 trials are kept', file=sys.stderr)
    sys.exit(130)
"""


@contextmanager
def routes(root: Path, command: Callable[[Path], Sequence[str]]) -> Iterator[Routes]:
    if not (root / "bad").exists():
        builders.bad_run(root / "bad")
    diagnosing = Diagnosing(command)
    try:
        yield Routes(root, SmallPages(), diagnosing)
    finally:
        diagnosing.close()


def token(served: Routes) -> str:
    page = served.answer(INCIDENT, {}).body.decode()
    return re.findall(r'data-token="([^"]*)"', page)[0]


def post(served: Routes, *parts: str, **changed: str) -> Answer:
    headers = {"host": HOST, "origin": f"http://{HOST}", "x-steadytrain-token": token(served), **changed}
    return served.act((*INCIDENT, *parts), headers)


def known(served: Routes) -> dict[str, Any]:
    return dict(json.loads(served.answer((*INCIDENT, "diagnosis.json"), {}).body))


def outcome(trial: str, *losses: float | None, finite: bool = True, **changed: Any) -> Outcome:
    steps = tuple(StepSeen(at, loss, 1.0, finite or at + 1 < len(losses)) for at, loss in enumerate(losses))
    return Outcome(Spec(trial, 0, 400, (Entry(401),)), True, steps=steps, **changed)


def store(source: Path, *outcomes: Outcome) -> None:
    folder = trials_folder(source)
    folder.mkdir(parents=True, exist_ok=True)
    for at, one in enumerate(outcomes):
        file = folder / f"{one.spec.trial}-{at:016x}.json"
        write_json(file, {"schema": "steadytrain.outcome/1", "outcome": one.to_json()})
        os.utime(file, ns=(at, at))


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": ""},
        {"origin": "http://evil.example"},
        {"origin": f"https://{HOST}"},
        {"x-steadytrain-token": ""},
        {"x-steadytrain-token": "wröng"},
    ],
)
def test_only_a_page_of_this_server_starts_it(tmp_path: Path, headers: Mapping[str, str]) -> None:
    with routes(tmp_path, child(WAITS)) as served:
        assert post(served, "diagnose", **headers).status == 403
        assert known(served)["running"] is False


def test_one_runs_at_a_time_and_stops_from_the_page(tmp_path: Path) -> None:
    builders.bad_run(tmp_path / "other")
    with routes(tmp_path, child(INTERRUPTED)) as served:
        begun = tmp_path / "bad" / "incidents" / "step-412" / "begun"
        assert json.loads(post(served, "diagnose").body)["ours"] is True
        until(begun.exists)
        assert json.loads(post(served, "diagnose").body)["running"] is True  # the same again is no second one
        headers = {"host": HOST, "origin": f"http://{HOST}", "x-steadytrain-token": token(served)}
        refused = json.loads(served.act(("run", "other", "incident", "step-412", "diagnose"), headers).body)
        assert refused == {"refused": "a diagnosis of bad/step-412 is running; wait for it or stop it first"}
        post(served, "stop")
        until(lambda: not known(served)["running"])
        assert known(served)["end"] == "interrupted: 2 trials are kept"


def test_it_ends_with_the_server(tmp_path: Path) -> None:
    body = INTERRUPTED.replace("sys.exit(130)", "open(sys.argv[1] + '/ended', 'w').close()")
    with routes(tmp_path, child(body)) as served:
        post(served, "diagnose")
        until((tmp_path / "bad" / "incidents" / "step-412" / "begun").exists)
    assert (tmp_path / "bad" / "incidents" / "step-412" / "ended").exists()


def test_a_server_without_it_says_so_and_shows_no_button(tmp_path: Path) -> None:
    builders.bad_run(tmp_path / "bad")
    served = Routes(tmp_path, SmallPages())
    assert f"steadytrain diagnose {tmp_path}/bad/incidents/step-412" in served.answer(INCIDENT, {}).body.decode()
    assert token(served) == ""
    assert post(served, "diagnose").status == 403


def test_the_page_has_a_button_only_where_it_may_start(tmp_path: Path) -> None:
    source = builders.bad_run(tmp_path / "bad") / "incidents" / "step-412"
    for token_of_page, shown in (("a-token", True), ("", False)):
        served = Served((("Runs", "/"),), "/run/bad/incident/step-412", token_of_page, str(source))
        page = Pages().report(source, served)
        assert ('id="diagnosing-start"' in page, 'data-token="a-token"' in page) == (shown, shown)
        assert "connect-src 'self'" in page
        assert f"<code>{served.command}</code>" in page
    assert "connect-src" not in page_of(source)


@pytest.mark.slow
def test_what_was_recorded_elsewhere_is_refused_with_the_sentence_of_the_command(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("raise SystemExit('the script ran')\n", encoding="utf-8")
    command = {"argv": [script.name], "script": str(script), "cwd": str(tmp_path), "module": None}
    batches = {"format": "steadytrain.batches", "version": 1, "calls": [], "fetches": []}
    run = builders.bad_run(tmp_path / "bad", incidents=[])
    environment = {**builders.ENVIRONMENT, **command, "sources": {str(script): "0" * 64}}
    builders.write_bundle(run / "incidents" / "step-412", environment=environment, batches=batches)
    with routes(tmp_path, diagnose_command) as served:
        post(served, "diagnose")
        until(lambda: not known(served)["running"])
        assert "not recorded on this machine by you" in known(served)["end"]


def test_the_table_fills_while_a_diagnosis_runs_anywhere(tmp_path: Path) -> None:
    with routes(tmp_path, child(WAITS)) as served:
        source = tmp_path / "bad" / "incidents" / "step-412"
        progress = Progress(source)
        progress.doing(f"trying {BAD_NAME}")
        store(source, outcome("unchanged", 2.0, None, finite=False, exact=True), outcome("drop-batch", 2.0, 1.5))
        seen = known(served)
        assert (seen["running"], seen["ours"], seen["doing"]) == (True, False, f"trying {BAD_NAME}")
        assert [(row["trial"], row["seen"], row["effect"]) for row in seen["trials"]] == [
            ("unchanged", "not finite in its step 2; the same to the last bit", ""),
            ("drop-batch", "finite in 2 steps, last loss 1.5", ""),
        ]
        progress.judged([Verdict("drop-batch", "removed", why="none was bad"), Verdict("clip", "not-run", why="late")])
        rows = {row["trial"]: (row["effect"], row["why"], row["runs"]) for row in known(served)["trials"]}
        assert rows["drop-batch"] == ("removed", "none was bad", 1)
        assert rows["clip"] == ("not-run", "late", 0)
        progress.ended()
        assert (known(served)["running"], list(source.parent.glob(f"trials/*/{FILE}"))) == (False, [])


def test_a_killed_or_damaged_progress_is_no_running_diagnosis(tmp_path: Path) -> None:
    builders.bad_run(tmp_path / "bad")
    source = tmp_path / "bad" / "incidents" / "step-412"
    Progress(source).doing("trying")
    file = trials_folder(source) / FILE
    written = json.loads(file.read_text())
    assert going_on(source) is not None
    for damaged in ({**written, "process_start": 1}, {"doing": "x"}, [], {**written, "verdicts": 3}):
        file.write_text(json.dumps(damaged))
        assert going_on(source) is None

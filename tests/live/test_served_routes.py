"""What the addresses of ``steadytrain ui`` answer: runs below one folder, and nothing beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import builders
from live_runs import LiveRun
from steadytrain.cli.ui import Pages
from steadytrain.core.errors import UsageError
from steadytrain.experiments.outcome_files import trials_folder
from steadytrain.live.served import routes as served_routes
from steadytrain.live.served import run_states
from steadytrain.live.served.answers import Answer
from steadytrain.live.served.routes import Routes
from steadytrain.report.html import Served
from steadytrain.storage.run_folder import RUN_FILE

HOSTILE = "<img src=x onerror='alert(1)'>\"&run"


class FewPages:
    """Counts what it is asked for."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def report(self, path: Path, served: Served) -> str:
        self.made.append(path.name)
        return f"page {len(self.made)}"

    def compare(self, paths: tuple[Path, Path]) -> str:
        return " ".join(path.name for path in paths)

    def explanations(self) -> Mapping[str, Mapping[str, str]]:
        return {"Symptoms <b>": {HOSTILE: HOSTILE}}

    def explanation(self, name: str) -> str:
        if name != HOSTILE:
            raise UsageError(f"nothing is called {name}")
        return HOSTILE


@pytest.fixture
def routes(tmp_path: Path) -> Routes:
    return Routes(tmp_path / "runs", FewPages())


@pytest.fixture
def run(tmp_path: Path) -> LiveRun:
    return LiveRun(tmp_path / "runs" / "run")


def ask(routes: Routes, address: str, **query: str) -> Answer:
    return routes.answer(tuple(part for part in address.split("/") if part), query)


def read(routes: Routes, address: str, **query: str) -> Any:
    answer = ask(routes, address, **query)
    assert (answer.status, answer.kind) == (200, "application/json")
    return json.loads(answer.body)


def test_the_list_has_each_run_with_its_health(routes: Routes, run: LiveRun) -> None:
    builders.bad_run(routes.root / "bad")
    run.train(3)
    listed = read(routes, "runs.json")
    assert [(row["folder"], row["state"], row["worst"], row["steps"]) for row in listed["runs"]] == [
        ("run", "running", None, 3),
        ("bad", "stopped", "critical", 412),
    ]
    assert (listed["total"], listed["unreadable"]) == (2, [])


def test_what_cannot_be_read_or_lies_elsewhere_is_not_listed_as_a_run(routes: Routes, tmp_path: Path) -> None:
    builders.quiet_run(routes.root / "good")
    (routes.root / "link").symlink_to(builders.quiet_run(tmp_path / "outside"), target_is_directory=True)
    (routes.root / "damaged").mkdir()
    (routes.root / "damaged" / RUN_FILE).write_text("{", encoding="utf-8")
    builders.quiet_run(routes.root / "two\nlines")
    listed = read(routes, "runs.json")
    assert [row["folder"] for row in listed["runs"]] == ["good"]
    assert len(listed["unreadable"]) == 1
    assert "damaged" in listed["unreadable"][0]


def test_no_name_of_a_run_leads_out_of_the_folder(routes: Routes, run: LiveRun, tmp_path: Path) -> None:
    outside = builders.bad_run(tmp_path / "outside")
    builders.quiet_run(routes.root / ".hidden")
    (routes.root / "link").symlink_to(outside, target_is_directory=True)
    for name in ("..", ".", "", "../outside", str(outside), "run/../run", "link", ".hidden", "a\0b", "none", "ä" * 200):
        for rest in ((), ("state.json",), ("page",), ("incident", "step-412")):
            assert routes.answer(("run", name, *rest), {}).status == 404, (name, rest)
    assert ask(routes, "run/run").status == 200


def test_no_name_of_an_incident_leads_out_of_its_run(routes: Routes, tmp_path: Path) -> None:
    bad = builders.bad_run(routes.root / "bad")
    (bad / "incidents" / "link").symlink_to(builders.write_bundle(tmp_path / "bundle"), target_is_directory=True)
    for name in ("..", "../../bad", "", "step-1", "link"):
        assert routes.answer(("run", "bad", "incident", name), {}).status == 404, name
    assert routes.answer(("run", "bad", "incident", "step-412"), {}).status == 200


def test_the_state_and_the_curves_of_a_live_run(routes: Routes, run: LiveRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_states, "FRESH_S", 0.0)
    assert read(routes, "run/run/curve.json", signal="loss")["count"] == 0
    run.train(1500)
    run.train(1, loss=900.0)
    run.train(1, loss=float("nan"))
    run.train(1498)
    state = read(routes, "run/run/state.json")
    assert (state["state"], state["step"], state["trials"]) == ("running", 3000, [])
    whole = read(routes, "run/run/curve.json", signal="loss", columns="50")
    assert (whole["count"], whole["first"], whole["last"], sum(whole["bad"])) == (50, 1, 3000, 1)
    assert max(whole["largest"]) == 900.0
    near = read(routes, "run/run/curve.json", signal="loss", columns="50", first="1500", last="1504")
    assert (
        near["largest"] == near["smallest"] == [pytest.approx(1 + 8 / 1500, rel=1e-5), 900.0, None, *near["sample"][3:]]
    )
    assert (near["bad"], near["run"]) == ([0, 0, 1, 0, 0], [1, 3000])
    run.train(5)
    assert read(routes, "run/run/state.json")["step"] == 3005


def test_a_stretch_that_is_too_long_to_read_is_shown_in_the_stretches_there_are(
    routes: Routes, run: LiveRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_states, "STRETCHES", 16)
    monkeypatch.setattr(run_states, "STEPS_MAX", 100)
    run.train(1000)
    shown = read(routes, "run/run/curve.json", signal="loss", columns="50", first="500", last="999")
    assert (shown["count"], shown["last"] >= 999) == (9, True)


def test_a_curve_that_cannot_be_is_refused_in_a_sentence(routes: Routes, run: LiveRun) -> None:
    run.train(3)
    for query in (
        {"signal": "weights"},
        {"columns": "0"},
        {"columns": "many"},
        {"columns": "99999999"},
        {"first": "5", "last": "3"},
        {"first": "5"},
        {"first": "-1", "last": "9" * 40},
        {"first": "1", "last": "9" * 5000},
    ):
        answer = ask(routes, "run/run/curve.json", **{"signal": "loss", **query})
        assert (answer.status, b"Traceback" in answer.body) == (404, False), query


def test_pages_of_one_moment_share_one_answer(routes: Routes, run: LiveRun) -> None:
    run.train(3)
    assert ask(routes, "run/run/state.json") is ask(routes, "run/run/state.json")
    one, other = (ask(routes, "run/run/curve.json", signal="loss", columns=columns) for columns in ("50", "60"))
    assert one is not other
    assert one is ask(routes, "run/run/curve.json", signal="loss", columns="50")


def test_a_page_is_made_again_when_its_run_has_an_answer_or_a_symptom(
    routes: Routes, run: LiveRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served_routes, "PAGES_KEPT", 1)
    pages = routes.pages
    assert isinstance(pages, FewPages)
    run.train(3)
    assert [ask(routes, "run/run/page").body for _ in range(3)] == [b"page 1"] * 3
    run.run.raise_symptom(builders.symptom(3))
    assert ask(routes, "run/run/page").body == b"page 2"
    folder = trials_folder(run.path)
    folder.mkdir()
    assert ask(routes, "run/run/page").body == b"page 3"
    (folder / "diagnosis.json").write_text("{}", encoding="utf-8")
    assert ask(routes, "run/run/page").body == b"page 4"
    builders.quiet_run(routes.root / "quiet")
    assert [ask(routes, f"run/{name}/page").body for name in ("quiet", "run")] == [b"page 5", b"page 6"]


def test_trials_are_named_as_they_finish(routes: Routes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_states, "FRESH_S", 0.0)
    bad = builders.bad_run(routes.root / "bad")
    folder = trials_folder(bad / "incidents" / "step-412")
    folder.mkdir(parents=True)
    for name in ("unchanged-" + "0" * 16, "drop-rows-" + "a" * 16, "diagnosis", "<b>-" + "0" * 16):
        (folder / f"{name}.json").write_text("{}", encoding="utf-8")
    (found,) = read(routes, "run/bad/state.json")["trials"]
    assert (found["incident"], sorted(found["finished"])) == ("step-412", ["drop-rows", "unchanged"])


def test_hostile_names_stay_text(routes: Routes) -> None:
    builders.bad_run(routes.root / HOSTILE, name=HOSTILE)
    for address in (f"run/{HOSTILE}", "explain", f"explain/{HOSTILE}", f"compare/{HOSTILE}", f"run/x{HOSTILE}"):
        body = ask(routes, address).body.decode()
        assert "<img" not in body, address
        assert "<b>" not in body, address
    assert read(routes, "runs.json")["runs"][0]["name"] == HOSTILE


def test_two_runs_are_compared_and_a_missing_choice_is_said(routes: Routes) -> None:
    for name in ("one", "two"):
        builders.quiet_run(routes.root / name)
    assert ask(routes, "compare", a="one", b="two").body == b"one two"
    refused = ask(routes, "compare", a="one")
    assert (refused.status, b"choose one run in column A" in refused.body) == (404, True)
    assert ask(routes, "compare", a="one", b="../outside").status == 404


@pytest.mark.slow
def test_the_real_pages_state_a_policy_that_knows_no_other_host(tmp_path: Path) -> None:
    routes = Routes(tmp_path, Pages())
    builders.bad_run(tmp_path / "bad")
    builders.quiet_run(tmp_path / "quiet")
    addresses = ["", "explain", "explain/loss-spike", "run/bad", "run/bad/incident/step-412", "ui.css", "run.js"]
    for address in (*addresses, "runs.js"):
        answer = ask(routes, address)
        assert answer.status == 200, address
        policy = answer.policy if "default-src" in answer.policy else answer.body.decode().split("Policy")[1][:900]
        assert "default-src 'none'" in policy, address
        assert "http" not in policy, address
    assert b"default-src 'none'" in ask(routes, "compare", a="bad", b="quiet").body
    assert ask(routes, "compare", a="bad", b="bad").status == 404
    assert ask(routes, "explain/no-such-thing").status == 404

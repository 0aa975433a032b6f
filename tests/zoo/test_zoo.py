"""The zoo through the real command: stopped at the stated step with the stated operation, or left alone."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from scripts import call, run_script
from steadytrain.cli.main import commands
from steadytrain.core.incident import Samples

ZOO = Path(__file__).parents[2] / "zoo" / "nonfinite"
WAIT_S_MAX = 300.0

CASES = json.loads((ZOO / "cases.json").read_text())["cases"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="the zoo trains"),
]


def show(path: Path) -> dict[str, Any]:
    """What ``steadytrain show --json`` prints."""
    printed = CliRunner().invoke(commands, ["show", str(path), "--json"], catch_exceptions=False)
    assert printed.exit_code == 0, printed.output
    document: dict[str, Any] = json.loads(printed.stdout)
    return document


SICK = [case for case in CASES if case["exit"] == 70]
HEALTHY = [case for case in CASES if case["exit"] == 0]
LOOKED_AT = 7


def locate(path: Path, *options: str) -> dict[str, Any]:
    """What ``steadytrain locate --json`` prints."""
    done = call("locate", str(path), "--json", *options)
    assert done.stdout, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def marked(cases: list[dict[str, Any]], *, short: Callable[[dict[str, Any]], bool] = lambda case: True) -> list[Any]:
    """Compiling takes a while, and so do those that are not ``short``."""
    return [
        pytest.param(
            case,
            id=case["script"],
            marks=[] if "compiled" not in case["script"] and short(case) else [pytest.mark.long],
        )
        for case in cases
    ]


def only_by_replay(case: dict[str, Any]) -> bool:
    return case.get("by") == "locate"


def named_rightly(located: dict[str, Any] | None, case: dict[str, Any], why: str) -> None:
    assert located is not None, why
    assert located["phase"] == case["phase"]
    assert located["operation"] in case["operations"]
    assert located["module"] == case["module"]
    source = (ZOO / case["script"]).read_text().splitlines()
    assert located["file"] == str(ZOO / case["script"])
    assert case["marker"] in source[located["line"] - 1]


@pytest.mark.parametrize("case", marked(HEALTHY))
def test_healthy_run_is_left_alone(case: dict[str, Any], tmp_path: Path) -> None:
    outcome = run_script(tmp_path, ZOO / case["script"])
    assert outcome.status == 0, outcome.err
    assert outcome.warnings == []
    document = show(outcome.run_dir)
    assert document["steps"] == 10
    assert (document["incidents"], document["symptoms"], document["actions"]) == ([], [], [])


@pytest.mark.long
@pytest.mark.parametrize("case", HEALTHY, ids=lambda case: case["script"])
def test_a_look_at_a_step_of_a_healthy_run_blames_nothing(case: dict[str, Any], tmp_path: Path) -> None:
    outcome = run_script(tmp_path, ZOO / case["script"], "--keep-rewind")
    look = locate(outcome.run_dir, "--step", str(LOOKED_AT))
    assert (look["located"], look["step"]) == (None, LOOKED_AT)
    assert look["replayed"]["exact"]
    assert look["float64"]["verdict"] == "both-finite"
    compiled = look["compiled"]
    assert (compiled is not None) == ("compiled" in case["script"])
    assert compiled is None or (compiled["to_blame"], compiled["compiled_only"]) == (None, False)


def only_stop(bundles: list[str]) -> str:
    """The bundle of the stop; an update that broke weights may have left one more, if its look was in time."""
    (stop,) = (one for one in bundles if not Path(one).name.startswith("nonfinite-weight-"))
    return stop


@pytest.mark.parametrize("case", marked(SICK))
def test_broken_run_is_stopped_and_the_operation_named(case: dict[str, Any], tmp_path: Path) -> None:
    outcome = run_script(tmp_path, ZOO / case["script"])
    assert outcome.status == 70, outcome.err
    assert outcome.warnings == []
    document = show(outcome.run_dir)
    bundle = only_stop(document["incidents"])
    assert f"nonfinite-{case['reached']}" in [symptom["name"] for symptom in document["symptoms"]]
    incident = show(Path(bundle))
    assert incident["step"] == case["step"] or case["step"] is None
    located = incident["located"]
    samples = [Samples.from_json(one) for one in incident["samples"]]
    assert [one.named(row) for one in samples for row in one.nonfinite_rows] == case.get("bad_samples", [])
    if not case["operations"]:
        assert located is None
        assert incident["why"].startswith(case["why"])
        return
    if case.get("by") == "locate":
        assert located is None  # nothing false was named before
    else:
        named_rightly(located, case, incident["why"])
        assert located["reached"].startswith(case["reached"])
        assert f"first bad operation  {located['operation']} made {located['produced']}" in outcome.err


@pytest.mark.parametrize("case", marked([case for case in SICK if case["operations"]], short=only_by_replay))
def test_a_replay_names_it_too_and_says_whose_fault_it_is(case: dict[str, Any], tmp_path: Path) -> None:
    outcome = run_script(tmp_path, ZOO / case["script"])
    found = locate(outcome.run_dir)
    named_rightly(found["again"]["located"], case, found["again"]["why"])
    assert found["replayed"]["exact"]
    assert found["float64"]["verdict"] in [case.get("float64", found["float64"]["verdict"])]
    assert len(found["ladder"]["steps"]) == (1 if "compiled" in case["script"] else 5)
    blamed = found["compiled"]["to_blame"] if found["compiled"] else None
    assert blamed == case.get("compiled_only")
    assert blamed is None or found["compiled"]["compiled_only"]

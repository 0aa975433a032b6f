"""The zoo through the real command: stopped at the stated step with the stated operation, or left alone."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from steadytrain.cli.main import commands
from watched import run_script

ZOO = Path(__file__).parents[1] / "zoo" / "nonfinite"
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


@pytest.mark.parametrize("case", [case for case in CASES if case["exit"] == 0], ids=lambda case: case["script"])
def test_healthy_run_is_left_alone(case: dict[str, Any], tmp_path: Path) -> None:
    outcome = run_script(tmp_path, ZOO / case["script"])
    assert outcome.status == 0, outcome.err
    assert outcome.warnings == []
    document = show(outcome.run_dir)
    assert document["steps"] == 10
    assert (document["incidents"], document["symptoms"], document["actions"]) == ([], [], [])


@pytest.mark.parametrize("case", [case for case in CASES if case["exit"] == 70], ids=lambda case: case["script"])
def test_broken_run_is_stopped_and_the_operation_named(case: dict[str, Any], tmp_path: Path) -> None:
    outcome = run_script(tmp_path, ZOO / case["script"])
    assert outcome.status == 70, outcome.err
    assert outcome.warnings == []
    document = show(outcome.run_dir)
    (bundle,) = document["incidents"]
    assert f"nonfinite-{case['reached']}" in [symptom["name"] for symptom in document["symptoms"]]
    incident = show(Path(bundle))
    assert incident["step"] == case["step"]
    located = incident["located"]
    if not case["operations"]:
        assert located is None
        assert incident["why"].startswith(case["why"])
        return
    assert located is not None, incident["why"]
    assert located["phase"] == case["phase"]
    assert located["operation"] in case["operations"]
    assert located["module"] == case["module"]
    assert located["reached"].startswith(case["reached"])
    source = (ZOO / case["script"]).read_text().splitlines()
    assert located["file"] == str(ZOO / case["script"])
    assert case["marker"] in source[located["line"] - 1]
    assert f"first bad operation  {located['operation']} made {located['produced']}" in outcome.err

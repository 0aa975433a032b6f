"""``steadytrain show``: text for a person, one JSON document for a program, one line for a mistake."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import builders
import tabled
import warm
from scripts import Entered
from steadytrain.cli.show import command
from steadytrain.core.errors import UsageError


def show(*arguments: str | Path) -> str:
    result = CliRunner().invoke(command, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_the_newest_run_is_shown_when_none_is_named(tmp_path: Path) -> None:
    builders.quiet_run(tmp_path / "older", started="2026-01-01T00:00:00+00:00")
    builders.bad_run(tmp_path / "newer")
    shown = show("--runs-dir", tmp_path)
    assert shown.startswith("Step 412: the first Inf")
    assert not any(line != line.rstrip() for line in shown.splitlines())


def test_a_run_is_found_by_name_and_by_path(tmp_path: Path) -> None:
    builders.quiet_run(tmp_path / "quiet")
    assert show("quiet", "--runs-dir", tmp_path) == show(tmp_path / "quiet")


def test_an_incident_as_json_is_the_document_of_the_incident(tmp_path: Path) -> None:
    path = builders.write_bundle(tmp_path / "bundle")
    assert json.loads(show(path, "--json")) == builders.incident().to_json()


def test_a_run_as_json(tmp_path: Path) -> None:
    path = builders.bad_run(tmp_path / "run")
    document = json.loads(show(path, "--json"))
    assert document["schema"] == "steadytrain.run/1"
    assert document["run"] == "run"
    assert document["steps"] == 412
    assert document["ended"] == "stopped"
    assert document["started"] == builders.DESCRIPTION["started"]
    assert document["argv"] == builders.DESCRIPTION["argv"]
    assert document["streams"] == [{"name": "main", "steps": 412, "first_step": 1, "last_step": 412}]
    assert document["symptoms"] == [builders.symptom().to_json()]
    assert document["incidents"] == [str(path / "incidents" / "step-412")]
    assert document["actions"] == [builders.incident().action.to_json()]
    assert document["detectors"] == ["nonfinite-loss", "nonfinite-gradient"]


def test_what_recording_cost_is_shown(tmp_path: Path) -> None:
    assert json.loads(show(builders.quiet_run(tmp_path / "old"), "--json"))["cost"] is None
    cost = {"own_s": 2.5, "run_s": 50.0, "recorded_steps": 1000}
    path = builders.quiet_run(tmp_path / "run", facts={**builders.FACTS, "ended": "finished", "cost": cost})
    assert json.loads(show(path, "--json"))["cost"] == cost
    shown = " ".join(show(path).split())
    assert " cost 2.5 s of 50.0 s were steadytrain's work on the training thread" in shown


def test_a_run_with_tables_tells_its_largest_updates(tmp_path: Path) -> None:
    signals = {"loss_scale": [float("inf")] * 4, "scaler_skips": [3.0] * 4, "data_wait_s": [0.025] * 4}
    path = builders.quiet_run(tmp_path / "run", steps=tabled.with_signals(4, **signals))
    tabled.tensors(path, (1, 2), builders.TENSORS, update_ratio=np.array([[0.1, 0.2, 0.3], [0.1, np.inf, 0.3]]))
    document = json.loads(show(path, "--json"))
    assert document["update_ratios"][0] == {"tensor": builders.TENSORS[1], "ratio": "inf", "step": 2}
    assert [entry["tensor"] for entry in document["update_ratios"][1:]] == [builders.TENSORS[2], builders.TENSORS[0]]
    assert document["data_wait_share"] == pytest.approx(0.25)
    assert (document["loss_scale"], document["scaler_skips"]) == ("inf", 3)
    shown = show(path)
    assert re.search(rf"^largest updates +{builders.TENSORS[1]} inf", shown, re.MULTILINE)
    assert re.search(r"^data wait +25.0% of the time", shown, re.MULTILINE)


def test_json_has_no_nan(tmp_path: Path) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    json.loads(show(builders.bad_run(tmp_path / "run"), "--json"), parse_constant=refuse)


@pytest.mark.parametrize("arguments", [["unheard-of"], ["empty"], ["newer"], ["cut"], []])
def test_bad_input_is_one_line_and_status_two(tmp_path: Path, arguments: list[str], entered: Entered) -> None:
    (tmp_path / "runs" / "empty").mkdir(parents=True)
    if arguments:
        builders.write_run(tmp_path / "runs" / "newer", version=99)
        cut = builders.write_bundle(tmp_path / "runs" / "cut")
        (cut / "window.steps").write_bytes(b"")
    before = sorted(tmp_path.rglob("*"))
    folder = tmp_path / "runs" if arguments == ["empty"] else tmp_path
    status, out, err = entered("show", *arguments, "--runs-dir", tmp_path / "runs", "--json", folder=folder)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("steadytrain: ")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_tampered_bundle_is_refused(tmp_path: Path) -> None:
    path = builders.write_bundle(tmp_path / "bundle")
    text = (path / "incident.json").read_text().replace("aten.log.default", "aten.exp.default")
    (path / "incident.json").write_text(text)
    with pytest.raises(UsageError, match="checksum"):
        CliRunner().invoke(command, [str(path)], catch_exceptions=False)


def test_neither_torch_nor_a_template_engine_is_loaded(tmp_path: Path) -> None:
    path = builders.bad_run(tmp_path / "run")
    code = (
        "import sys; from steadytrain.cli.show import command; "
        f"command([{str(path)!r}], standalone_mode=False); "
        "print(sorted({'torch', 'jinja2', 'bokeh', 'pandas'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "[]"


def test_a_terminal_without_block_characters_gets_question_marks(tmp_path: Path) -> None:
    path = builders.bad_run(tmp_path / "run")
    result = subprocess.run(
        [warm.python(), "-m", "steadytrain", "show", str(path)],
        capture_output=True,
        check=False,
        env={"PYTHONIOENCODING": "latin-1", "PATH": ""},
    )
    assert result.returncode == 0
    assert b"???" in result.stdout


def test_every_field_of_the_documents_is_described(tmp_path: Path) -> None:
    described = (Path(__file__).parents[2] / "docs" / "schemas.md").read_text(encoding="utf-8")
    names = set(re.findall(r"`(?:\w+\[\]\.)?(\w+)`", described))
    path = builders.bad_run(tmp_path / "run")

    def missing(node: object) -> set[str]:
        if isinstance(node, list):
            return set().union(*map(missing, node))
        if isinstance(node, dict):
            return (set(node) - names).union(*(missing(value) for key, value in node.items() if key != "numbers"))
        return set()

    assert missing(json.loads(show(path, "--json"))) == set()
    assert missing(json.loads(show(path / "incidents" / "step-412", "--json"))) == set()

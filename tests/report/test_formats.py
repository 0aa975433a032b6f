"""A report as JSON, Markdown and JUnit XML: the same headline, and no text of a run that becomes markup."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

import builders
from scripts import Entered
from steadytrain.api.pages import formatted

HOSTILE = "<b>`x`|y\x1b[31m"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    told = [
        builders.symptom(412, severity="critical", message=f"the loss is {HOSTILE}"),
        builders.symptom(300, name="loss-spike", severity="warning", message="far above"),
    ]
    return builders.bad_run(tmp_path / "run", symptoms=told)


def test_json_has_what_the_first_screen_shows(run: Path) -> None:
    document = json.loads(formatted(run, "json"))
    assert (document["schema"], document["severity"]) == ("steadytrain.report/1", "critical")
    assert "stopped by steadytrain" in document["status"]
    assert [one["name"] for one in document["symptoms"]][-1] == "loss-spike" or document["symptoms"]
    assert document["next"].startswith("steadytrain ")
    assert "\x1b" not in formatted(run, "json")


def test_markdown_escapes_what_the_run_says(run: Path) -> None:
    text = formatted(run, "md")
    assert json.loads(formatted(run, "json"))["headline"].replace("_", "\\_")[:20] in text
    assert "\\<b\\>\\`x\\`\\|y" in text
    assert "<b>" not in text
    assert text.count("\nNext:\n") == 1


def test_junit_fails_for_what_is_critical_alone(run: Path) -> None:
    suite = ElementTree.fromstring(formatted(run, "junit"))
    cases = {case.get("name", ""): case.find("failure") is not None for case in suite.iter("testcase")}
    assert sum(cases.values()) == int(suite.get("failures", "0")) == 2
    assert [failed for name, failed in cases.items() if name.startswith("loss-spike")] == [False]
    healthy = ElementTree.fromstring(formatted(builders.quiet_run(run.parent / "quiet"), "junit"))
    assert (healthy.get("tests"), healthy.get("failures")) == ("1", "0")


def test_a_format_goes_to_standard_output_or_a_file(run: Path, tmp_path: Path, entered: Entered) -> None:
    status, out, _ = entered("report", run, "--format", "json", folder=tmp_path)
    assert (status, json.loads(out)["schema"]) == (0, "steadytrain.report/1")
    status, out, _ = entered("report", run, "--format", "md", "-o", "run.md", folder=tmp_path)
    assert (status, "next  " in out) == (0, True)
    assert (tmp_path / "run.md").read_text(encoding="utf-8").startswith("## ")

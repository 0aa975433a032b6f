"""``steadytrain repro`` of a loss that rises while all is finite: a few steps of training that need torch alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from test_repro import BYTES_MAX, LINES_MAX, digests, repro, run_clean

from scripts import run_script

ZOO = Path(__file__).parents[2] / "zoo" / "curves"

# What of it does the rise: a batch of other data, an update of thirty times the rate.
QUICK = {"corrupted_batch.py": ("batch", 900)}
MORE = {
    "learning_rate_times_30.py": ("updates", None),
    "shuffled_labels.py": ("batch", None),
    "learning_rate_too_high.py": ("updates", None),
}
FAULTS = (
    "the loss of this batch stands out",
    "raises the loss of its own batch",
    "raise the loss of their first batch",
)


def made(source: Path, folder: Path) -> dict[str, Any]:
    done = repro(str(source), "-o", str(folder), "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


@pytest.mark.slow
@pytest.mark.parametrize("script", [*QUICK, *(pytest.param(script, marks=pytest.mark.long) for script in MORE)])
def test_a_rise_of_the_zoo_becomes_a_small_script_that_fails(script: str, tmp_path: Path) -> None:
    outcome = run_script(tmp_path, ZOO / script, "--policy", "observe")
    incident = outcome.run.incidents[0]
    folder = tmp_path / "made"
    document = made(incident, folder)
    shape, step = {**QUICK, **MORE}[script]
    assert document["shape"] == shape
    assert step is None or f"the batch of step {step}" in (folder / "ISSUE.md").read_text(encoding="utf-8")
    assert document["lines"] <= LINES_MAX
    assert sum(document["files"].values()) <= BYTES_MAX
    assert document["loss"]["low"] < document["loss"]["limit"] < document["loss"]["high"]

    alone = run_clean(folder / "repro.py", tmp_path / "elsewhere")
    assert alone.returncode == 1
    assert any(fault in alone.stderr.splitlines()[-1] for fault in FAULTS)
    told = (folder / "repro.py").read_text(encoding="utf-8") + (folder / "ISSUE.md").read_text(encoding="utf-8")
    assert str(tmp_path) not in told
    if script in MORE:
        made(incident, tmp_path / "again")
        assert digests(tmp_path / "again") == digests(folder)


@pytest.mark.slow
@pytest.mark.long
def test_a_run_that_kept_its_tape_is_as_good_as_an_incident(tmp_path: Path) -> None:
    text = (ZOO / "corrupted_batch.py").read_text(encoding="utf-8").replace("1201", "930")
    outcome = run_script(tmp_path, text, "--keep-rewind")
    import shutil

    shutil.rmtree(outcome.run_dir / "incidents", ignore_errors=True)
    assert made(outcome.run_dir, tmp_path / "made")["shape"] == "batch"


@pytest.mark.slow
@pytest.mark.long
def test_a_rise_that_no_recorded_step_shows_is_told(tmp_path: Path) -> None:
    outcome = run_script(tmp_path, ZOO / "adam_with_rate_of_sgd.py", "--policy", "observe")
    done = repro(str(outcome.run.incidents[0]), "-o", str(tmp_path / "made"))
    assert done.returncode == 1
    assert "neither a batch nor the updates show half of the rise of the loss" in done.stdout
    assert not (tmp_path / "made").exists()

"""A comparison says how each run ended, and calls nothing a difference that one run alone recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import builders
from steadytrain.compare.circumstances import differing
from steadytrain.compare.run_groups import compare_runs
from steadytrain.report.comparison_page import outcomes, page
from steadytrain.storage.bundle import write_json
from steadytrain.storage.run_folder import open_run


def test_a_stopped_run_beside_a_finished_one(tmp_path: Path) -> None:
    runs = [open_run(builders.bad_run(tmp_path / "bad")), open_run(builders.quiet_run(tmp_path / "good"))]
    compared = compare_runs(runs)
    told = [
        "bad: stopped at step 412, critical nonfinite-gradient at step 412",
        "good: finished at step 1,000, no alarm",
    ]
    assert outcomes(compared) == told
    assert all(line in page(compared, version="1") for line in told)
    assert [member.to_json()["symptom"] is None for member in compared.members] == [False, True]


def test_runs_that_ended_alike_need_no_line(tmp_path: Path) -> None:
    runs = [open_run(builders.quiet_run(tmp_path / name)) for name in ("one", "two")]
    assert outcomes(compare_runs(runs)) == []


def names(folder: Path, left: dict[str, Any], right: dict[str, Any]) -> set[str]:
    runs = [open_run(builders.quiet_run(folder / name, **made)) for name, made in (("left", left), ("right", right))]
    return {entry.name for entry in differing(*runs)}


def test_what_one_run_alone_recorded_is_no_difference(tmp_path: Path) -> None:
    precise = {"facts": {**builders.FACTS, "precision": {"logits": "torch.float32", "tf32": False}}}
    other = {"facts": {**builders.FACTS, "precision": {"logits": "torch.float32", "tf32": True}}}
    assert names(tmp_path / "a", precise, {}) == set()
    assert names(tmp_path / "b", precise, other) == {"precision.tf32"}
    assert names(tmp_path / "c", {"argv": ["t.py", "--lr", "1"]}, {"argv": ["t.py"]}) == {"argv.lr"}


def test_the_machine_that_an_incident_recorded_is_no_difference_to_a_run_without_one(tmp_path: Path) -> None:
    bad = builders.bad_run(tmp_path / "bad")
    write_json(bad / "incidents" / "step-412" / "environment.json", {"device": {"machine": "x86_64"}})
    runs = [open_run(bad), open_run(builders.quiet_run(tmp_path / "good"))]
    assert "device.machine" not in {entry.name for entry in differing(*runs)}

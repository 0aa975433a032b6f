"""The scripts of ``zoo/runs``: each is deterministic, shows what ``cases.json`` states, and ends well when mended."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from scripts import bare, finished
from steadytrain.diagnosis.cause_catalog import causes
from steadytrain.grouping.catalog import detector_name, detectors
from zoo_cases import ZOO, watched

RUNS = ZOO / "runs"
CASES: list[dict[str, Any]] = json.loads((RUNS / "cases.json").read_text(encoding="utf-8"))["cases"]
OWN = [case for case in CASES if "/" not in case["script"]]
FAST = {"nan_row.py", "prompts_too_long.py"}
"""Two of the quickest; the other scripts take up to a minute each in all."""

MARKS = [
    pytest.param(
        case,
        id=Path(case["script"]).stem,
        marks=[pytest.mark.slow, *([] if case["script"] in FAST else [pytest.mark.long])],
    )
    for case in OWN
]
SICK_MIN, HEALTHY_MIN = 45, 15


@pytest.mark.parametrize("case", MARKS)
def test_it_shows_its_defect(case: dict[str, Any], tmp_path: Path) -> None:
    seen = watched("runs", case["script"], tmp_path, "--level", case["level"], "--to", "none")
    assert seen.status == case["exit"], seen.err
    missed = [wanted for wanted in case["expect"] if not any(_fits(wanted, one) for one in seen.raised)]
    assert bool(missed) == ("known_miss" in case), seen.raised
    if case.get("silent"):
        assert seen.raised == ()


@pytest.mark.long
@pytest.mark.parametrize("case", MARKS)
def test_it_is_the_same_each_time_and_better_when_mended(case: dict[str, Any], tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("once", "again", "mended")]
    for folder in folders:
        folder.mkdir()
    once, again = (finished(bare(RUNS / case["script"]), folder=folder) for folder in folders[:2])
    assert once.stdout == again.stdout
    mended = finished(bare(RUNS / case["script"], "--fixed"), folder=folders[2])
    assert mended.returncode == 0, mended.stderr
    losses = [float(found) for found in re.findall(r"loss (\S+)", mended.stdout)]
    assert losses
    assert all(math.isfinite(loss) for loss in losses)
    assert mended.stdout != once.stdout


def test_every_script_has_a_case_with_a_cause_that_there_is() -> None:
    scripts = sorted(path.name for path in RUNS.glob("*.py"))
    assert sorted(case["script"] for case in OWN) == scripts
    sick = [case for case in CASES if not case.get("healthy")]
    assert {case["cause"] for case in sick} <= set(causes())
    assert len(sick) >= SICK_MIN
    assert len(CASES) - len(sick) >= HEALTHY_MIN
    names = {detector_name(type(detector)) for detector in detectors()}
    assert {wanted["name"] for case in CASES for wanted in case["expect"]} <= names
    assert all(case["expect"] or case.get("silent") for case in sick)


def test_every_script_names_its_cause_its_thread_and_what_mends_it() -> None:
    for case in OWN:
        text = (RUNS / case["script"]).read_text(encoding="utf-8")
        docstring = " ".join(text.split('"""')[1].split())
        assert f"cause {case['cause']}." in docstring, case["script"]
        assert "Modelled on" in docstring, case["script"]
        assert "Mended:" in docstring, case["script"]
        assert '"--fixed" in sys.argv' in text, case["script"]
        assert "steadytrain" not in text, case["script"]


def test_scripts_of_other_folders_are_there() -> None:
    assert [case["script"] for case in CASES if not (RUNS / case["script"]).is_file()] == []


def _fits(wanted: dict[str, Any], seen: Any) -> bool:
    first, last = wanted["first_step"]
    same = wanted["name"] == seen["name"] and seen["severity"] in wanted["severity"].split(" or ")
    return same and first <= seen["first_step"] <= last

"""The scripts of ``zoo/curves``, run for real under watch: the faulty raise what they must, the healthy nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ZOO = Path(__file__).parents[1] / "zoo" / "curves"
CASES: list[dict[str, Any]] = json.loads((ZOO / "cases.json").read_text(encoding="utf-8"))["cases"]
WAIT_S_MAX = 120.0


@dataclass(frozen=True)
class Outcome:
    """How a watched script ended, and the symptoms above "note" that ``steadytrain show`` tells of it."""

    status: int
    err: str
    raised: tuple[Mapping[str, Any], ...]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: Path(case["script"]).stem)
def test_the_zoo(case: dict[str, Any], tmp_path: Path) -> None:
    outcome = _watched(case["script"], tmp_path)
    assert outcome.status == case["exit"], outcome.err
    assert "Error" not in outcome.err
    wrong = differences(case["expect"], outcome.raised)
    if "known_miss" in case:
        assert wrong, f"no longer missed: strike out known_miss ({case['known_miss']})"
    else:
        assert not wrong, outcome.err


def test_the_zoo_lists_every_script() -> None:
    scripts = sorted(path.name for path in ZOO.glob("*.py"))
    assert sorted(case["script"] for case in CASES) == scripts
    readme = (ZOO / "README.md").read_text(encoding="utf-8")
    assert [script for script in scripts if f"| `{script}` |" not in readme] == []


def test_no_script_knows_that_it_is_watched() -> None:
    assert [path.name for path in ZOO.glob("*.py") if "steadytrain" in path.read_text(encoding="utf-8")] == []


def test_differences() -> None:
    spike = {"name": "loss-spike", "severity": "warning", "first_step": 900}
    expected = {"name": "loss-spike", "severity": "warning", "first_step": [890, 900]}
    assert differences([], []) == []
    assert differences([expected], [spike]) == []
    assert len(differences([expected], [])) == 1
    assert len(differences([], [spike])) == 1
    assert len(differences([expected], [{**spike, "first_step": 901}])) == 2
    assert len(differences([expected], [{**spike, "severity": "critical"}])) == 2
    assert len(differences([expected], [spike, {**spike, "first_step": 950}])) == 1


def differences(expected: Sequence[Mapping[str, Any]], raised: Sequence[Mapping[str, Any]]) -> list[str]:
    """What was not raised but should have been, and what was but should not."""
    missed = [f"not raised: {wanted}" for wanted in expected if not any(_fits(wanted, seen) for seen in raised)]
    alarms = [f"raised: {seen}" for seen in raised if not any(_fits(wanted, seen) for wanted in expected)]
    return missed + alarms


def _fits(wanted: Mapping[str, Any], seen: Mapping[str, Any]) -> bool:
    first, last = wanted["first_step"]
    return (wanted["name"], wanted["severity"]) == (seen["name"], seen["severity"]) and (
        first <= seen["first_step"] <= last
    )


def _watched(script: str, folder: Path) -> Outcome:
    name = Path(script).stem
    run = _steadytrain(folder, "run", "--policy", "stop", "--runs-dir", str(folder), "--name", name, str(ZOO / script))
    show = _steadytrain(folder, "show", name, "--runs-dir", str(folder), "--json")
    assert show.returncode == 0, run.stderr + show.stderr
    symptoms = json.loads(show.stdout)["symptoms"]
    return Outcome(run.returncode, run.stderr, tuple(seen for seen in symptoms if seen["severity"] != "note"))


def _steadytrain(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "steadytrain", *arguments],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=WAIT_S_MAX,
        check=False,
    )

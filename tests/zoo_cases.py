"""Scripts of the zoo under watch, and how what was raised differs from what ``cases.json`` states."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from scripts import bare, call, finished

ZOO = Path(__file__).parents[1] / "zoo"

OF_THE_MACHINE = {"throughput-stall"}
"""What a busy machine raises; a script of the zoo has no say in it."""


@dataclass(frozen=True)
class Outcome:
    """How a watched script ended, and the symptoms above "note" that ``show`` tells of it, without the machine's."""

    status: int
    err: str
    raised: tuple[Mapping[str, Any], ...]


def cases(folder: str) -> list[dict[str, Any]]:
    """The cases of ``zoo/folder``."""
    listed: list[dict[str, Any]] = json.loads((ZOO / folder / "cases.json").read_text(encoding="utf-8"))["cases"]
    return listed


def parameters(folder: str) -> list[Any]:
    """The cases of ``zoo/folder`` for ``parametrize``, each with its marks."""
    return [
        pytest.param(
            case,
            id=Path(case["script"]).stem,
            marks=[pytest.mark.slow, *([pytest.mark.long] if case.get("long") else [])],
        )
        for case in cases(folder)
    ]


def check(case: Mapping[str, Any], outcome: Outcome) -> None:
    """What a case states holds; or, where that is a known miss, still does not."""
    assert outcome.status == case["exit"], outcome.err
    assert "Error" not in outcome.err
    wrong = differences(case["expect"], outcome.raised, beside=case.get("beside", ()))
    if "known_miss" in case:
        assert wrong, f"no longer missed: strike out known_miss ({case['known_miss']})"
    else:
        assert not wrong, f"{wrong}\n{outcome.err}"


def check_listed(folder: str) -> None:
    """Every script has its case and its line in the README, and none knows that it is watched."""
    scripts = sorted(path.name for path in (ZOO / folder).glob("*.py"))
    assert sorted(case["script"] for case in cases(folder)) == scripts
    readme = (ZOO / folder / "README.md").read_text(encoding="utf-8")
    assert [script for script in scripts if f"| `{script}` |" not in readme] == []
    assert [script for script in scripts if "steadytrain" in (ZOO / folder / script).read_text(encoding="utf-8")] == []


def differences(
    expect: Sequence[Mapping[str, Any]], raised: Sequence[Mapping[str, Any]], *, beside: Sequence[str] = ()
) -> list[str]:
    """What was not raised but should have been, and what was but should not.

    Symptoms named in ``beside`` may come as well, but not before the first of what is expected.
    """
    begins = min((wanted["first_step"][0] for wanted in expect), default=0)
    missed = [f"not raised: {wanted}" for wanted in expect if not any(_fits(wanted, seen) for seen in raised)]
    alarms = [
        f"raised: {seen}"
        for seen in raised
        if not any(_fits(wanted, seen) for wanted in expect)
        and not (seen["name"] in beside and seen["first_step"] >= begins)
    ]
    return missed + alarms


def watched(folder: str, script: str, runs_dir: Path, *options: str) -> Outcome:
    """The script under ``steadytrain run`` with ``options``, and what ``show`` tells of it."""
    name = Path(script).stem
    runs = ("--runs-dir", str(runs_dir))
    run = call("run", "--policy", "stop", *options, *runs, "--name", name, str(ZOO / folder / script), folder=runs_dir)
    show = call("show", name, *runs, "--json", folder=runs_dir)
    assert show.returncode == 0, run.stderr + show.stderr
    return Outcome(run.returncode, run.stderr, _above_note(json.loads(show.stdout)["symptoms"]))


def analyzed(folder: str, script: str, into: Path) -> Outcome:
    """The script alone, and what ``analyze`` tells of the log that it writes."""
    run = finished(bare(ZOO / folder / script), folder=into)
    analysis = call("analyze", "log.csv", "--json", folder=into)
    assert analysis.returncode == 0, run.stderr + analysis.stderr
    (told,) = json.loads(analysis.stdout)["runs"]
    return Outcome(run.returncode, run.stderr, _above_note(told["symptoms"]))


def _above_note(symptoms: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    return tuple(seen for seen in symptoms if seen["severity"] != "note" and seen["name"] not in OF_THE_MACHINE)


def _fits(wanted: Mapping[str, Any], seen: Mapping[str, Any]) -> bool:
    """Where looks that take their share of the time frame a fault, ``last_step`` says where they must have found it."""
    same = wanted["name"] == seen["name"] and seen["severity"] in wanted["severity"].split(" or ")
    steps = [name for name in ("first_step", "last_step") if name in wanted]
    return same and all(wanted[name][0] <= seen[name] <= wanted[name][1] for name in steps)

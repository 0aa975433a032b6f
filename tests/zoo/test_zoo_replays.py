"""The zoo of replays through the real commands: exact from every snapshot, or the reason named."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

import zoo_cases
from scripts import Ended, call, run_script
from steadytrain.storage.tape_files import find_recording

FOLDER = "replays"
CASES = zoo_cases.cases(FOLDER)
NEEDS = {"hf_trainer.py": "transformers", "lightning_module.py": "lightning", "accelerate_loop.py": "accelerate"}
SHORT = {"raw_loop.py", "two_workers.py", "fault_gather_backward.py", "fault_clock_in_loss.py"}
"""One of each kind; the others are for `make test-all`."""

REPLAYS_MAX = 5

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="the zoo trains"),
]


def parameters(*, faults: bool) -> list[Any]:
    return [
        pytest.param(case, marks=[] if case["script"] in SHORT else pytest.mark.long, id=case["script"])
        for case in CASES
        if (case["kind"] is not None) == faults
    ]


def recorded(case: dict[str, Any], folder: Path) -> tuple[Ended, Path]:
    """The run, and what of it is replayed: its bundle, or the run folder where there is none."""
    if case["script"] in NEEDS:
        pytest.importorskip(NEEDS[case["script"]])
    keep = () if case["exit"] else ("--keep-rewind",)
    outcome = run_script(folder, zoo_cases.ZOO / FOLDER / case["script"], *keep)
    assert outcome.status == case["exit"], outcome.err
    # A symptom on the way has a bundle as well: the last one is that of the value that is not finite.
    return outcome, outcome.run.incidents[-1] if case["exit"] else outcome.run_dir


def replay(source: Path, *options: str) -> tuple[int, dict[str, Any]]:
    done = call("replay", str(source), "--json", *options)
    assert done.stdout, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, document


def test_every_script_is_listed() -> None:
    zoo_cases.check_listed(FOLDER)


@pytest.mark.parametrize("case", parameters(faults=False))
def test_exact_from_every_snapshot(case: dict[str, Any], tmp_path: Path) -> None:
    outcome, source = recorded(case, tmp_path)
    starts = find_recording(source).starts()
    assert starts
    for start in starts:
        status, document = replay(source, "--from", str(start))
        last = case["step"] or outcome.run.window().steps[-1]
        assert document["exact"], document
        assert (document["from_step"], document["until_step"]) == (start, last)
        assert document["steps"] == last - start + 1
        assert document["changed"] == []
        assert (status, document["symptom"]) == ((1, True) if case["step"] else (0, None))


@pytest.mark.long
@pytest.mark.parametrize("case", parameters(faults=True))
def test_what_does_not_repeat_is_named(case: dict[str, Any], tmp_path: Path) -> None:
    _, source = recorded(case, tmp_path)
    first = find_recording(source).starts()[0]  # a later snapshot may lie behind the step that differs
    for _ in range(REPLAYS_MAX):
        _, document = replay(source, "--from", str(first))
        # What depends on the order of threads may repeat by chance, in the replays or in all of their traces.
        if document["kind"] not in (None, "transient"):
            break
    assert document["first_difference"] is not None, document["why"]
    assert document["first_difference"]["step"] == case["differs"]
    assert (document["kind"], document["switch"]) == (case["kind"], case["switch"]), document["why"]
    operation = document["operation"]
    assert operation["operation"] == case["operation"]
    assert operation["file"] == str(zoo_cases.ZOO / FOLDER / case["script"])
    assert case["marker"] in operation["code"]

"""A start from another place that the time does not allow leaves what was found before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from steadytrain.diagnosis.proof import Control
from steadytrain.diagnosis.suspects import suspects_of
from steadytrain.experiments.progress_file import Progress
from steadytrain.experiments.specs import Verdict
from steadytrain.trial_runs import diagnose
from trial_cases import finite_case

FOUND = {"drop-batch": Verdict("drop-batch", "persists", why="so it was")}


EXACT = Control(True, False, True, "nothing rises")
"""A replay to the last bit whose symptom no loss shows."""


def bench_of(folder: Path, control: Control, after: Control, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A diagnosis that found ``control`` from the script's start, and finds ``after`` from the first snapshot."""
    case = replace(finite_case(), onset=3, step=3, begins=(0, 1), taped=((1, 3),))
    request, progress = diagnose.Request(folder, 10.0, 1), Progress(folder)
    bench = diagnose._Bench(request, case, suspects_of(case), {}, {}, print, 10.0, lambda: 0.0, progress)
    bench.verdicts, bench.control = dict(FOUND), control
    monkeypatch.setattr(diagnose, "_run", lambda bench, names: setattr(bench, "control", after))
    monkeypatch.setattr(diagnose, "_plans", lambda case: ({}, {}))
    return bench


@pytest.mark.parametrize("in_time", [True, False])
def test_what_was_found_stays(in_time: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    after = Control(in_time, in_time, True if in_time else None, "")
    bench = bench_of(tmp_path, Control(True, True, False, "differs"), after, monkeypatch)
    diagnose._repeat_from_elsewhere(bench)
    assert (bench.case.begin, bench.control.exact) == ((1, True) if in_time else (0, False))
    assert bench.verdicts == ({} if in_time else FOUND)


@pytest.mark.parametrize("shown", [True, False])
def test_an_exact_replay_stays_if_no_other_shows_more(
    shown: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = bench_of(tmp_path, EXACT, Control(True, shown, None, ""), monkeypatch)
    diagnose._repeat_from_elsewhere(bench)
    assert bench.case.begin == (1 if shown else 0)
    assert bench.control.exact is (None if shown else True)

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


@pytest.mark.parametrize("in_time", [True, False])
def test_what_was_found_stays(in_time: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = replace(finite_case(), onset=3, step=3, begins=(0, 1), taped=((1, 3),))
    request = diagnose.Request(tmp_path, 10.0, 1)
    progress, suspects = Progress(tmp_path), suspects_of(case)
    bench = diagnose._Bench(request, case, suspects, {}, {}, print, 10.0, lambda: 0.0, progress)
    bench.verdicts, bench.control = dict(FOUND), Control(True, True, False, "differs")

    def run(bench: Any, names: Any) -> None:
        bench.control = Control(in_time, in_time, True if in_time else None, "")

    monkeypatch.setattr(diagnose, "_run", run)
    monkeypatch.setattr(diagnose, "_plans", lambda case: ({}, {}))
    diagnose._repeat_from_elsewhere(bench)
    assert (bench.case.begin, bench.control.exact) == ((1, True) if in_time else (0, False))
    assert bench.verdicts == ({} if in_time else FOUND)

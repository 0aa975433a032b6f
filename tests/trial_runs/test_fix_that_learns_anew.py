"""A fix that draws weights anew is followed from a snapshot of the run, others from the start that a survey kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from steadytrain.experiments.specs import Outcome, Spec
from steadytrain.trial_runs import trial_session
from steadytrain.trial_runs.trial_session import How, verify
from trial_cases import finite_case


@pytest.mark.parametrize(("fix", "begin"), [("reinitialize", 33), ("drop-batch", 67)])
def test_where_it_begins(fix: str, begin: int, monkeypatch: pytest.MonkeyPatch) -> None:
    case = replace(finite_case(onset=100, step=102, taped=((1, 120),)), begins=(1, 33, 67), kept=67)
    begun: set[int | None] = set()

    def run(source: Path, specs: Sequence[Spec], how: How) -> dict[str, list[Outcome]]:
        begun.update(spec.begin for spec in specs)
        return {spec.trial: [Outcome(spec, False, "not run here")] for spec in specs}

    def verified(*_: Any) -> None:
        return None

    monkeypatch.setattr(trial_session, "_run", run)
    monkeypatch.setattr(trial_session, "verified", verified)
    monkeypatch.setattr(trial_session, "beta2_of", lambda *_: None)
    verify(Path("incident"), case, fix, How(), steps=None)
    assert begun == {begin}

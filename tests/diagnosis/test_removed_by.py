"""An answer without a cause still names what removed the symptom."""

from __future__ import annotations

from steadytrain.diagnosis.conclusion import _removed_by
from steadytrain.experiments.specs import Verdict


def test_trials_that_removed_the_symptom_are_named_without_the_control() -> None:
    verdicts = [Verdict("unchanged", "removed"), Verdict("clip", "persists"), Verdict("longer-warmup", "removed")]
    assert _removed_by(verdicts) == " What removed the symptom: longer-warmup."
    assert _removed_by(verdicts[:2]) == ""

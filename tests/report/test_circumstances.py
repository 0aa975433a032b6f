"""What a terminal says of the circumstances of a run."""

from __future__ import annotations

from steadytrain.report.circumstances import brief
from steadytrain.report.wording import Fact


def test_detectors_are_counted_on_a_terminal_and_not_named() -> None:
    (told,) = brief([Fact("detectors", "loss-spike, divergence, plateau")])
    assert told == Fact("watched by", "3 detectors; `steadytrain explain` lists them")
    assert brief([]) == ()

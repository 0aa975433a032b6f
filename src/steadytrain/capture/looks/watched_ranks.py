"""What is added in a run of several ranks: whether they agree, and whether their steps go on."""

from __future__ import annotations

from steadytrain.capture.looks.rank_agreement import RankAgreement
from steadytrain.capture.looks.rank_stalls import RankStalls
from steadytrain.capture.step.live_run import LiveRun
from steadytrain.capture.step.observers import CompositeObserver, StepObserver


def watched_ranks(run: LiveRun) -> StepObserver:
    """Both as one observer. They do nothing in a run of one process."""
    return CompositeObserver(RankAgreement(run), RankStalls(run))

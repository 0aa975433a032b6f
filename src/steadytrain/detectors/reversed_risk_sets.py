"""Risk sets of a partial likelihood that hold those who left earlier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.detectors import SourceRule


@final
@dataclass(frozen=True)
class ReversedRiskSets(SourceRule):
    """A Cox partial likelihood compares each event with those who left before it, not with those still at risk.

    Means:
        The risk set of an event holds everybody who is followed at least as long. A cumulative sum from the front gives
        that only if rows are sorted by falling time; sorted by rising time it holds those who left earlier. The loss
        falls all the same, and the concordance on other rows stays below one half.

    Causes:
        - `argsort(time)` without `descending=True` before `logcumsumexp` or `cumsum`
        - a table or a batch that is sorted by rising time
        - a mask of pairs as `time[None, :] <= time[:, None]` that is summed over its second dimension

    Next:
        1. Sort with `descending=True`, or flip before and after the cumulative sum.
        2. Compare the loss of three rows with one computed by hand.
        3. Watch the concordance on other rows: it should rise above 0.5.
    """

    kind: ClassVar[str] = "reversed-risk"
    says: ClassVar[str] = (
        "builds the risk sets of a partial likelihood the wrong way round: by rising time each holds those who left "
        "earlier, not those still at risk; sort by falling time (descending=True) before the cumulative sum"
    )

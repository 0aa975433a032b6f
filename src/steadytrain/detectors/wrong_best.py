"""A best model that is kept by the wrong comparison."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from steadytrain.detectors import SourceRule


@final
@dataclass(frozen=True)
class WrongBest(SourceRule):
    """The best model is kept where its metric got worse.

    Means:
        The comparison that decides which weights are kept goes the other way than the metric: a loss that rose counts
        as the best, or an accuracy that fell. The checkpoint holds the worst weights, or the first ones, and training
        itself shows nothing. This is read in the source, by the name of the metric.

    Causes:
        - `if val_loss > best_loss`, taken over from an accuracy
        - `best_acc = 0` with `if acc < best_acc`: it never holds
        - no fault: a name that says the opposite of what it holds

    Next:
        1. `<` for what should fall, `>` for what should rise; begin at `inf` or `-inf`.
        2. Load what was kept and evaluate it: the metric must be the best of the log.
    """

    kind: ClassVar[str] = "wrong-best"
    says: ClassVar[str] = (
        "keeps the model where its metric got worse: the comparison goes the other way than the name of the metric says"
    )

"""A log compared with a healthy reference, as lines of text: both curves on one scale, and a table of both."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from steadytrain.compare.log_reference import LogReference, SignalBeside
from steadytrain.report.thinned_curves import spark
from steadytrain.report.wording import clean, number

ROWS_MAX = 8
WIDTH = 12


def lines_of(reference: LogReference) -> Iterator[str]:
    """The lines; the first names the reference."""
    same = "steps" if reference.aligned == "steps" else "place of the log"
    yield f"beside {clean(reference.run)}, at the same {same}:"
    if not reference.signals:
        yield "  they share no column with five rows or more"
    for signal in reference.signals:
        yield from _signal(signal)


def _signal(signal: SignalBeside) -> Iterator[str]:
    name = clean(signal.name)
    if signal.differs_from_step is None:
        yield f"  {name}: no lasting difference at the end of the log"
        if signal.name != "loss":
            return
    else:
        yield f"  {name}: differs from step {signal.differs_from_step} to the end"
    here = np.array([point.value for point in signal.points])
    there = np.array([np.nan if point.reference is None else point.reference for point in signal.points])
    known = there[np.isfinite(there)]
    logarithmic = bool(len(known) and min(here.min(), known.min()) > 0)
    both = spark(np.concatenate([here, known]), cells=len(here) + len(known), logarithmic=logarithmic)
    yield f"    this log  {both[: len(here)]}   reference  {both[len(here) :]}"
    yield f"    {'step':>{WIDTH}}{'this log':>{WIDTH}}{'reference':>{WIDTH}}{'ratio':>{WIDTH}}"
    for row in np.unique(np.linspace(0, len(here) - 1, ROWS_MAX).round().astype(int)).tolist():
        value, expected = float(here[row]), float(there[row])
        told = number(expected) if np.isfinite(expected) else "-"
        ratio = f"{value / expected:.3g}" if np.isfinite(expected) and expected > 0 < value else "-"
        yield f"    {signal.points[row].step:>{WIDTH}}{number(value):>{WIDTH}}{told:>{WIDTH}}{ratio:>{WIDTH}}"

"""Signs about rows that the causes of one axis share: copies since the onset, rows that are overwritten, rows that
are far longer than usual."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from steadytrain.core.incident import UNKNOWN_OWNER
from steadytrain.diagnosis.signs import Signs, fact, measured, when

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case

OTHER_ROWS_MIN = 1e-3
"""Gradient to other rows over that to the own one. Sums over rows, as of an auxiliary loss, are part of no output."""

ROWS_SHOWN_MAX = 8

COPIES_MIN, COPIES_MORE = 0.5, 0.4
"""Share of rows that are copies of others. Drawing with replacement from a small data set makes as many before."""


def holds_nan_from_before(case: Case) -> bool:
    """Whether the first bad value was in a tensor of the script before the step: in its data. Inf may be a mask."""
    return case.finding is not None and f"{UNKNOWN_OWNER} held NaN" in case.finding.why


def bad_rows(entry: object) -> str:
    """``row 2 of step 12, input 0`` of an entry of the fact ``batch_nonfinite``."""
    if not isinstance(entry, Mapping):
        return str(entry)
    rows = list(entry.get("rows") or ())
    more = f" and {len(rows) - ROWS_SHOWN_MAX} more" if len(rows) > ROWS_SHOWN_MAX else ""
    numbers = ", ".join(map(str, rows[:ROWS_SHOWN_MAX])) or "?"
    where = f", input {entry['input']}" if "input" in entry else ""
    return f"row{'s' if len(rows) > 1 else ''} {numbers}{more} of step {entry.get('step')}{where}"


def copies_since(case: Case, weight: float) -> Signs:
    """A sign if most rows from the onset on are copies of each other, and those before it were not."""
    before, since = measured(case, "repeated_rows_before"), measured(case, "repeated_rows_since")
    return when(
        since > COPIES_MIN and since > before + COPIES_MORE,
        weight,
        f"from the onset on {since:.0%} of the rows repeat the same few, before it {before:.0%}",
        "fact repeated_rows_since",
        before=before,
        since=since,
    )


def overwritten(case: Case, weight: float, *, invariant: bool = False) -> Signs:
    """A sign if stored rows change: when the data set reads them, or by a write in place."""
    read, written = fact(case, "rows_change_when_read"), fact(case, "rows_written")
    if isinstance(read, Mapping):
        what = f"reading row {read.get('row')} overwrites it in the data set's {read.get('attribute')}"
        return when(True, weight, what, "fact rows_change_when_read", invariant=invariant)
    if isinstance(written, Mapping):
        what = f"{written.get('line')} writes in place into rows that later steps read again"
        return when(True, weight, what, "fact rows_written", invariant=invariant)
    return ()


def missing_code(case: Case, weight: float) -> Signs:
    """A sign if a code for missing values stands in the batch."""
    codes = fact(case, "missing_codes")
    one = codes[0] if isinstance(codes, (list, tuple)) and codes else None
    if not isinstance(one, Mapping):
        return ()
    text = (
        f"{one.get('value'):.6g} stands at {one.get('places')} places of {one.get('input')} of step {one.get('step')}, "
        "far beyond all other values: a code for what is missing"
    )
    return when(True, weight, text if weight > 0 else f"{text}, which is another cause", "fact missing_codes")


LONG_ROWS_MIN, USUAL_VALUES_MAX = 2.0, 4.0
"""Times the usual length, from which rows are long, and times the usual largest value, up to which values are usual."""


def long_rows(case: Case, weight: float) -> Signs:
    """A sign if the rows of the batch are far longer than usual while their values are like those of other batches: a
    rare batch, not a damaged one."""
    times = measured(case, "batch_length")
    strange = any(measured(case, name) > USUAL_VALUES_MAX for name in ("batch_scale", "target_scale"))
    if not times >= LONG_ROWS_MIN or strange or fact(case, "batch_nonfinite"):
        return ()
    text = f"its rows are {times:.3g} times as long as usual, and their values are like those of others"
    return when(True, weight, text, "fact batch_length", batch_length=times)


def reads_other_rows(case: Case) -> bool:
    """Whether the output of one row of tokens depends on other rows of its batch, without a batch norm that mixes them
    on purpose."""
    of_tokens = fact(case, "causal_gradient") is not None and not fact(case, "batch_norm_modules")
    return of_tokens and measured(case, "batch_gradient") > OTHER_ROWS_MIN

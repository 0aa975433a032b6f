"""The loss of a log that has only its parts: the sum of ``box_loss``, ``cls_loss`` and ``dfl_loss``."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from steadytrain.logs.column_names import LOSS_PART, role_of
from steadytrain.logs.log_rows import Column, Rows
from steadytrain.logs.reader import Columns

TOTAL = "total loss"
PARTS_MAX = 8
COVERAGE_MIN = 0.5


def with_total(rows: Rows, wanted: Columns) -> Rows:
    """``rows`` with the sum of the parts as a column of its own, if parts are the only losses and have the same rows.

    NaN or Inf in a part makes the sum so.
    """
    tiers = {name: role_of(name).tier for name in rows.columns if role_of(name).what == "loss"}
    if wanted.loss is not None or not tiers or min(tiers.values()) != LOSS_PART or TOTAL in rows.columns:
        return rows
    names = [name for name, tier in tiers.items() if tier == LOSS_PART]
    fullest = max(len(rows.columns[name]) for name in names)
    parts = {name: rows.columns[name] for name in names if len(rows.columns[name]) >= COVERAGE_MIN * fullest}
    first, *others = parts.values()
    if not others or len(parts) > PARTS_MAX or any(not np.array_equal(first.rows, other.rows) for other in others):
        return rows
    total = Column(first.rows, np.sum([part.values for part in parts.values()], axis=0))
    note = f"The column {TOTAL!r} is the sum of {', '.join(parts)}; --loss names another."
    return replace(rows, columns={**rows.columns, TOTAL: total}, notes=(*rows.notes, note))
